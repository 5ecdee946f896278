//! Device memory for callers, and buffers that they register.

use crate::entry::{Code, SUCCESS, comm_entry, entry, null, put};
use crate::handle::OnecclComm;
use crate::settings;
use ccl_core::{Error, Result};
use ccl_ze::DeviceMemory;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What was handed out, by address.
static ALLOCATED: RwLock<BTreeMap<usize, (DeviceMemory, usize)>> = RwLock::new(BTreeMap::new());

/// Whether there ever was any: most programs have their memory from elsewhere.
static ANY: AtomicBool = AtomicBool::new(false);

/// Fails if `bytes` bytes are of memory that was handed out, but pass its end or are another device's than `device`: that one's
/// driver context knows nothing of them.
pub(crate) fn check(address: usize, bytes: usize, device: usize) -> Result<()> {
    if any() { look_up(address, bytes, device) } else { Ok(()) }
}

/// Whether memory was ever handed out.
#[inline(always)]
pub(crate) fn any() -> bool {
    // Whoever names memory of ours has it from a call that has set this.
    ANY.load(Ordering::Relaxed)
}

fn look_up(address: usize, bytes: usize, device: usize) -> Result<()> {
    // Calls don't wait for each other here.
    let allocated = ALLOCATED.read();
    let Some((start, (memory, size))) = allocated.range(..=address).next_back() else {
        return Ok(());
    };
    let left = start.saturating_add(*size).saturating_sub(address);
    if left == 0 || bytes == 0 {
        return Ok(());
    }
    if memory.device_index() != device {
        return Err(Error::NotImplemented(format!(
            "{address:#x} is memory of device {}, and the communicator's device is {device}",
            memory.device_index()
        )));
    }
    if bytes > left {
        return Err(Error::InvalidArgument(format!(
            "{bytes} bytes from {address:#x} on pass the end of what onecclMemAlloc gave, {left} bytes on"
        )));
    }
    Ok(())
}

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
        ANY.store(true, Ordering::Relaxed);
        ALLOCATED.write().insert(address as usize, (memory, size));
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
        match ALLOCATED.write().remove(&(address as usize)) {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::{OnecclUniqueId, onecclCommDestroy, onecclCommInitRank, onecclGetUniqueId, onecclSetDevice};
    use crate::{onecclGroupEnd, onecclGroupStart, onecclRecv, onecclSend};
    use std::ptr::null_mut;

    /// The software device's memory is the process's, so that only its calls tell how what a rank sends itself is copied.
    #[test]
    fn own_messages_of_device_memory_are_copied_by_the_device() {
        // SAFETY: places for results, live handles, and buffers of as many bytes.
        unsafe {
            let (mut comm, mut memory) = (null_mut(), null_mut());
            let mut id = std::mem::zeroed::<OnecclUniqueId>();
            assert_eq!(onecclSetDevice(0), 0);
            assert_eq!(onecclGetUniqueId(&raw mut id), 0);
            assert_eq!(onecclCommInitRank(&raw mut comm, 1, id, 0), 0);
            assert_eq!(onecclMemAlloc(&raw mut memory, 64), 0);
            let live = crate::handle::handle(comm).unwrap().live().unwrap();
            let host: Vec<u8> = (0..64).map(|i| i * 3 + 1).collect();
            let mut back = vec![0u8; 64];
            let exchange = |from: *const c_void, to: *mut c_void, bytes: usize| {
                let before = live.comm.level_zero_calls();
                assert_eq!(onecclGroupStart(), 0);
                assert_eq!(onecclSend(from, bytes, 1, 0, comm, null_mut()), 0);
                assert_eq!(onecclRecv(to, bytes, 1, 0, comm, null_mut()), 0);
                assert_eq!(onecclGroupEnd(), 0);
                live.comm.level_zero_calls() - before
            };
            // The scratch memory is there from here on.
            exchange(host.as_ptr().cast(), memory, 64);
            let (looked_up, copied) = (2, 3);
            assert!(exchange(host.as_ptr().cast(), memory, 64) > copied, "two copies and a wait, by the device");
            assert!(exchange(memory, back.as_mut_ptr().cast(), 64) > copied);
            assert_eq!(back, host);
            back.fill(0);
            let calls = exchange(host.as_ptr().cast(), back.as_mut_ptr().cast(), 64);
            assert!(calls <= looked_up, "{calls} calls for memory of the host");
            assert_eq!(back, host);
            // Onto itself, a little further on.
            exchange(memory, memory.wrapping_byte_add(8), 32);
            exchange(memory, back.as_mut_ptr().cast(), 40);
            assert_eq!([&back[..8], &back[8..40]], [&host[..8], &host[..32]]);
            assert_eq!((onecclMemFree(memory), onecclCommDestroy(comm)), (0, 0));
        }
    }
}
