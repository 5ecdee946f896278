//! Streams for callers without Level Zero lists of their own, and the handles for those who make some.

use crate::cclx::{CclxStream, events};
use crate::entry::{Code, IN_PROGRESS, SUCCESS, comm_entry, entry, null};
use crate::handle::OnecclComm;
use ccl_core::Error;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

/// A stream of the library's own: an immediate list, in order, on one of the device's compute queues.
///
/// # Safety
/// `communicator` is null or a live handle; `stream` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxStreamOpen(
    communicator: *mut OnecclComm,
    queue: c_int,
    stream: *mut *mut CclxStream,
) -> Code {
    let body = |handle: &'static OnecclComm| {
        let live = handle.live()?;
        let queue = usize::try_from(queue).map_err(|_| Error::InvalidArgument(format!("queue {queue}")))?;
        if stream.is_null() {
            return Err(null("the place for the stream"));
        }
        // SAFETY: passed on to the caller.
        unsafe { CclxStream::put(stream, Arc::new(live.comm.stream(queue)?)) }
    };
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("cclxStreamOpen", communicator, body) }
}

/// Waits at most `timeout_ms` for what is on a stream; in progress if it has not finished by then.
///
/// # Safety
/// `stream` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxStreamSynchronize(stream: *mut CclxStream, timeout_ms: u32) -> Code {
    entry("cclxStreamSynchronize", || {
        // SAFETY: passed on to the caller.
        let stream = unsafe { CclxStream::given(stream)? };
        let done = stream.synchronize_for(Duration::from_millis(timeout_ms.into()))?;
        Ok(if done { SUCCESS } else { IN_PROGRESS })
    })
}

/// Appends a copy, between memory of the device and of the host or within either.
///
/// # Safety
/// `stream` is null or live; both ranges hold `bytes` until the stream has done this; `wait` holds `n_wait` live events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxStreamCopy(
    stream: *mut CclxStream,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    n_wait: usize,
    wait: *const *mut c_void,
) -> Code {
    entry("cclxStreamCopy", || {
        // SAFETY: passed on to the caller.
        let (stream, after) = unsafe { (CclxStream::given(stream)?, events(n_wait, wait)?) };
        if bytes > 0 && (to.is_null() || from.is_null()) {
            return Err(null(if to.is_null() { "what is copied to" } else { "what is copied from" }));
        }
        if bytes > 0 {
            // SAFETY: passed on to the caller.
            unsafe { stream.copy(to, from, bytes, after)? };
        }
        Ok(SUCCESS)
    })
}

/// The handles of Level Zero that a communicator uses, for lists and events of the caller's. They live as long as it does.
///
/// # Safety
/// `communicator` is null or a live handle; each place is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxCommHandles(
    communicator: *mut OnecclComm,
    driver: *mut *mut c_void,
    context: *mut *mut c_void,
    device: *mut *mut c_void,
) -> Code {
    let body = |handle: &'static OnecclComm| {
        let own = handle.live()?.comm.handles();
        for (place, handle) in [(driver, own.driver.cast()), (context, own.context.cast()), (device, own.device.cast())]
        {
            if !place.is_null() {
                // SAFETY: passed on to the caller.
                unsafe { place.write(handle) };
            }
        }
        Ok(SUCCESS)
    };
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("cclxCommHandles", communicator, body) }
}
