//! What this library has beyond oneCCL's names; `include/cclx.h` is the same for C.

use crate::call::{Call, What, datatype};
use crate::entry::{Code, SUCCESS, call_entry, comm_entry, entry, null, put};
use crate::group::{issue_on, refuse_within};
use crate::handle::{Live, OnecclComm, forked};
use crate::queue::known;
use ccl_core::watch::fork;
use ccl_core::{Error, Result};
use ccl_ze::{CallOptions, Stream};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A stream, to C.
pub struct CclxStream {
    pub(crate) stream: Arc<Stream>,
    generation: u32,
}

impl CclxStream {
    /// Stores a stream for the caller.
    ///
    /// # Safety
    /// `place` is null or valid for a write.
    pub(crate) unsafe fn put(place: *mut *mut CclxStream, stream: Arc<Stream>) -> Result<Code> {
        let made = Box::new(CclxStream { stream, generation: fork::generation()? });
        // SAFETY: passed on to the caller.
        unsafe { put(place, Box::into_raw(made), "the place for the stream") }
    }

    /// The stream behind a pointer, for calls that come with no communicator.
    ///
    /// # Safety
    /// `stream` is null or live.
    pub(crate) unsafe fn given<'a>(stream: *mut CclxStream) -> Result<&'a Stream> {
        // SAFETY: by this function's contract.
        let stream = unsafe { stream.as_ref() }.ok_or_else(|| null("the stream"))?;
        // In a forked child nobody executes what is on it, and whoever holds its locks may not exist.
        if fork::current() == stream.generation { Ok(&stream.stream) } else { Err(forked("stream")) }
    }
}

/// A stream on a Level Zero command list of the caller's.
///
/// # Safety
/// `communicator` is null or a live handle; `list` is null or a live list of its device and context, which outlives the
/// stream; `stream` is null or valid for a write. See [`ccl_ze::Communicator::stream_from_raw`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxStreamCreate(
    communicator: *mut OnecclComm,
    list: *mut c_void,
    stream: *mut *mut CclxStream,
) -> Code {
    let body = |handle: &'static OnecclComm| {
        let live = handle.live()?;
        if list.is_null() {
            return Err(null("the command list"));
        }
        if stream.is_null() {
            return Err(null("the place for the stream"));
        }
        // SAFETY: passed on to the caller.
        let made = unsafe { live.comm.stream_from_raw(list.cast())? };
        // SAFETY: as above.
        unsafe { CclxStream::put(stream, Arc::new(made)) }
    };
    // SAFETY: as above.
    unsafe { comm_entry("cclxStreamCreate", communicator, body) }
}

/// A stream on a SYCL queue of the caller's: in order, of the communicator's device and SYCL's default context.
///
/// # Safety
/// `communicator` is null or a live handle; `queue` is null or a live `sycl::queue`; `stream` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxStreamFromQueue(
    communicator: *mut OnecclComm,
    queue: *mut c_void,
    stream: *mut *mut CclxStream,
) -> Code {
    let body = |handle: &'static OnecclComm| {
        let live = handle.live()?;
        if queue.is_null() {
            return Err(null("the queue"));
        }
        if stream.is_null() {
            return Err(null("the place for the stream"));
        }
        // SAFETY: passed on to the caller.
        let made = unsafe { live.queue(queue)? };
        // SAFETY: as above.
        unsafe { CclxStream::put(stream, made) }
    };
    // SAFETY: as above.
    unsafe { comm_entry("cclxStreamFromQueue", communicator, body) }
}

/// Ends a stream; the list or queue stays.
///
/// # Safety
/// `stream` is null or live, and dead afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxStreamDestroy(stream: *mut CclxStream) -> Code {
    entry("cclxStreamDestroy", || {
        // SAFETY: passed on to the caller.
        unsafe { CclxStream::given(stream)? };
        // SAFETY: made by `Box::into_raw` where streams are made, destroyed once by contract.
        drop(unsafe { Box::from_raw(stream) });
        Ok(SUCCESS)
    })
}

/// An all-reduce with events: on a stream of device memory, without one of host memory and without events.
///
/// # Safety
/// The buffers hold `count` elements each, as long as the call may run, and are the same or apart; `communicator` and
/// `stream` are null or live; `wait` holds `n_wait` live events, and `signal` is null or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxAllReduceAfter(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    datatype_number: c_int,
    op: c_int,
    communicator: *mut OnecclComm,
    stream: *mut CclxStream,
    n_wait: usize,
    wait: *const *mut c_void,
    signal: *mut c_void,
) -> Code {
    let body = |handle: &'static OnecclComm| {
        // SAFETY: passed on to the caller.
        let (stream, after) = unsafe { (stream.as_ref(), events(n_wait, wait)?) };
        let call = |live: &Live| {
            let (dtype, reduction) = (datatype(datatype_number)?, live.reduction(op)?);
            Ok(Call { what: What::AllReduce, count, dtype, reduction, send, recv })
        };
        if n_wait == 0 && signal.is_null() {
            // SAFETY: as above.
            return unsafe { issue_on(handle, |_| Ok(stream.map(|stream| stream.stream.clone())), call) };
        }
        let Some(stream) = stream else {
            return Err(Error::NotImplemented("events for a call on host buffers (a null stream)".into()));
        };
        refuse_within("an all-reduce with events")?;
        let live = handle.live()?;
        let call = call(&live)?;
        live.check(&call)?;
        let (dtype, op) = (call.dtype, known(call.reduction)?);
        handle.ledger.on_streams.store(true, Ordering::Relaxed);
        let request = live.comm.request(count as u64, dtype, op);
        let signal = (!signal.is_null()).then_some(signal.cast());
        // SAFETY: as above.
        let done =
            unsafe { live.comm.all_reduce_with(&request, send, recv, &stream.stream, CallOptions { after, signal }) };
        done.map(|_| SUCCESS)
    };
    // SAFETY: as above.
    unsafe { call_entry(&"cclxAllReduceAfter", communicator, body) }
}

/// # Safety
/// `wait` is null or holds `count` events.
pub(crate) unsafe fn events<'a>(
    count: usize,
    wait: *const *mut c_void,
) -> Result<&'a [level_zero_sys::ze_event_handle_t]> {
    match (count, wait.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(null("the list of events to wait for")),
        // SAFETY: by this function's contract; handles are pointers.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(wait.cast(), count) }),
    }
}
