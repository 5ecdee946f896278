//! What `CCLX_CHECK=local` adds: buffers that lie within an allocation, looked at before anything is enqueued.

use crate::api::ze;
use crate::gpu::Gpu;
use ccl_core::plan::Request;
use ccl_core::{Error, Result};
use std::ffi::c_void;

/// Fails unless both buffers of a call lie within one allocation each of the device's context.
pub(crate) fn buffers(gpu: &Gpu, request: &Request, send: *const c_void, recv: *const c_void) -> Result<()> {
    // What overflows is refused by the check that is always made.
    match request.count.checked_mul(request.dtype.size() as u64) {
        Some(bytes) => ranges(gpu, [("send", send, bytes), ("receive", recv, bytes)]),
        None => Ok(()),
    }
}

/// Fails unless each buffer, of so many bytes, lies within one allocation of the device's context; one of none may be
/// anywhere.
pub(crate) fn ranges(gpu: &Gpu, buffers: [(&str, *const c_void, u64); 2]) -> Result<()> {
    for (name, address, bytes) in buffers.into_iter().filter(|(.., bytes)| *bytes > 0) {
        let Some((base, size)) = range(gpu, address) else {
            return Err(Error::InvalidArgument(format!(
                "{name} buffer {address:p} is not memory of this device's context (CCLX_CHECK=local)"
            )));
        };
        let left = (base as u64 + size as u64).saturating_sub(address as u64);
        if left < bytes {
            return Err(Error::InvalidArgument(format!(
                "{name} buffer {address:p} of {bytes} bytes passes the end of its allocation, {left} bytes on \
                 (CCLX_CHECK=local)"
            )));
        }
    }
    Ok(())
}

/// Where the allocation of the device's context begins that holds an address, and its bytes.
pub(crate) fn range(gpu: &Gpu, address: *const c_void) -> Option<(*mut c_void, usize)> {
    let (mut base, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: a live context and two outputs; the driver only looks the address up.
    let known = unsafe { ze!(gpu.api, zeMemGetAddressRange(gpu.context, address, &raw mut base, &raw mut size)) };
    (known.is_ok() && !base.is_null()).then_some((base, size))
}
