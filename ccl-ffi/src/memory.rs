//! Device memory for callers, and buffers that they register.

use crate::boundary::{Code, SUCCESS, comm_entry, entry, null, put};
use crate::handle::OnecclComm;
use crate::settings;
use ccl_core::{Error, Result};
use ccl_ze::DeviceMemory;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What was handed out, by address.
static ALLOCATED: Mutex<BTreeMap<usize, DeviceMemory>> = Mutex::new(BTreeMap::new());

/// Device memory, on the device that this thread chose, else LOCAL_RANK, else the first.
///
/// # Safety
/// `place` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclMemAlloc(place: *mut *mut c_void, size: usize) -> Code {
    entry("onecclMemAlloc", || {
        // SAFETY: passed on to the caller.
        unsafe { put(place, std::ptr::null_mut(), "the place for the address")? };
        settings::may_use_driver()?;
        let config = settings::config()?;
        let device = settings::device().or(config.local_rank.map(|rank| rank as usize)).unwrap_or(0);
        let memory = DeviceMemory::new(config, device, size)?;
        let address = memory.as_ptr();
        ALLOCATED.lock().insert(address as usize, memory);
        // SAFETY: as above.
        unsafe { put(place, address, "the place for the address") }
    })
}

/// Frees what [`onecclMemAlloc`] gave. No call may use it any more.
#[unsafe(no_mangle)]
pub extern "C" fn onecclMemFree(address: *mut c_void) -> Code {
    entry("onecclMemFree", || {
        settings::may_use_driver()?;
        if address.is_null() {
            return Ok(SUCCESS);
        }
        match ALLOCATED.lock().remove(&(address as usize)) {
            Some(memory) => {
                drop(memory);
                Ok(SUCCESS)
            }
            None => Err(Error::InvalidArgument(format!("{address:p} was not allocated by onecclMemAlloc"))),
        }
    })
}

/// Takes note of a buffer. That is a hint: calls with a null stream go as they would without.
///
/// # Safety
/// `communicator` is null or a handle, `place` null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommRegister(
    communicator: *mut OnecclComm,
    buffer: *mut c_void,
    size: usize,
    place: *mut *mut c_void,
) -> Code {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let body = |handle: &'static OnecclComm| {
        let live = handle.live()?;
        if place.is_null() {
            return Err(null("the place for the registration"));
        }
        if buffer.is_null() {
            return Err(null("the buffer"));
        }
        if (buffer as usize).checked_add(size).is_none() {
            return Err(Error::InvalidArgument(format!("{size} bytes from {buffer:p} on pass the end of memory")));
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        live.registered.lock().insert(number, (buffer as usize, size));
        // SAFETY: passed on to the caller.
        unsafe { put(place, number as *mut c_void, "the place for the registration") }
    };
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("onecclCommRegister", communicator, body) }
}

/// Ends a registration.
///
/// # Safety
/// `communicator` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommDeregister(communicator: *mut OnecclComm, registration: *mut c_void) -> Code {
    let body = |handle: &'static OnecclComm| -> Result<Code> {
        match handle.known()?.registered.lock().remove(&(registration as usize)) {
            Some(_) => Ok(SUCCESS),
            None => Err(Error::InvalidArgument(format!("{registration:p} is no registration of this communicator"))),
        }
    };
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("onecclCommDeregister", communicator, body) }
}
