//! Finding a communicator that somebody else in the process made, through whichever route.

use crate::abi::OnecclUniqueId;
use crate::copies;
use crate::entry::{Code, SUCCESS, entry, null, put};
use crate::farewell;
use crate::handle::{OnecclComm, copy, own_path};
use ccl_core::Error;
use sha2::{Digest as _, Sha256};
use std::ffi::c_int;

/// What an id is known by.
pub(crate) fn digest(id: &[u8]) -> [u8; 32] {
    Sha256::digest(id).into()
}

/// The live communicators of this copy: how many fit, and one of them. A copy of another version calls it too.
///
/// # Safety
/// `digest` is null or 32 bytes; `found` is null or valid for a write.
pub(crate) unsafe extern "C" fn here(digest: *const u8, device: c_int, found: *mut *mut OnecclComm) -> c_int {
    // SAFETY: by this function's contract.
    let digest = (!digest.is_null()).then(|| unsafe { &*digest.cast::<[u8; 32]>() });
    let fitting = farewell::living(|handle| handle.fits(digest, device));
    if let Some(first) = fitting.first().filter(|_| !found.is_null()) {
        // SAFETY: by this function's contract.
        unsafe { found.write(std::ptr::from_ref(*first).cast_mut()) };
    }
    c_int::try_from(fitting.len()).unwrap_or(c_int::MAX)
}

/// The one live communicator of this process that was made with `id`, or any where that is null, on `device`, or any where that
/// is -1. See `cclx.h`.
///
/// # Safety
/// `id` is null or an id; `comm` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxCommLookup(id: *const OnecclUniqueId, device: c_int, comm: *mut *mut OnecclComm) -> Code {
    entry("cclxCommLookup", || {
        if comm.is_null() {
            return Err(null("the place for the communicator"));
        }
        // SAFETY: passed on to the caller.
        unsafe { put(comm, std::ptr::null_mut(), "the place for the communicator")? };
        if device < -1 {
            return Err(Error::InvalidArgument(format!("device {device}")));
        }
        // SAFETY: as above.
        let digest = unsafe { id.as_ref() }.map(|id| digest(&id.data));
        let mut found = std::ptr::null_mut();
        let digest_bytes = digest.as_ref().map_or(std::ptr::null(), |digest| digest.as_ptr());
        // SAFETY: null or 32 bytes, and a place of our own.
        let count = unsafe { here(digest_bytes, device, &raw mut found) };
        let wanted = match (digest.is_some(), device) {
            (true, -1) => "made with this unique id".into(),
            (true, _) => format!("made with this unique id on device {device}"),
            (false, -1) => "in this process".into(),
            (false, _) => format!("on device {device}"),
        };
        match count {
            1 => {
                // SAFETY: as above.
                unsafe { put(comm, found, "the place for the communicator")? };
                Ok(SUCCESS)
            }
            0 => {
                let others = copies::others(copy());
                let elsewhere = others.iter().find(|other| other.lookup(digest.as_ref(), device).0 > 0);
                Err(Error::InvalidUsage(match elsewhere {
                    Some(other) => format!(
                        "the communicator {wanted} was made by another copy of the library, {}, and can't be used by this one, \
                         {}: {}",
                        other.path,
                        own_path(),
                        copies::advice(&own_path())
                    ),
                    None => format!("there is no live communicator {wanted}"),
                }))
            }
            several => Err(Error::InvalidUsage(format!("there are {several} live communicators {wanted}"))),
        }
    })
}
