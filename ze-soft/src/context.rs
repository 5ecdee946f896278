//! Contexts.

use crate::abi::{input, output, run};
use crate::device::Device;
use crate::driver::Driver;
use crate::engine::cuda;
use crate::entry::entry_points;
use crate::error::fail;
use crate::handle::{Object, export, get, take};
use crate::memory;
use level_zero_sys::*;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

/// A context. All our devices and the host share one address space, so it has nothing to keep.
pub(crate) struct Context {
    /// The driver's own context, which programs may use but not destroy.
    default: bool,
}

impl Object for Context {
    const MAGIC: u64 = 0x5a45_534f_4354_5831;
}

unsafe extern "C" fn zeContextCreate(
    hDriver: ze_driver_handle_t,
    desc: *const ze_context_desc_t,
    phContext: *mut ze_context_handle_t,
) -> ze_result_t {
    // SAFETY: no devices named means all of them; the other arguments are passed on as they are.
    unsafe { zeContextCreateEx(hDriver, desc, 0, std::ptr::null_mut(), phContext) }
}

unsafe extern "C" fn zeContextCreateEx(
    hDriver: ze_driver_handle_t,
    desc: *const ze_context_desc_t,
    numDevices: u32,
    phDevices: *mut ze_device_handle_t,
    phContext: *mut ze_context_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        // SAFETY: the specification's promise about these two pointers.
        let (desc, context) = unsafe { (input(desc)?, output(phContext)?) };
        if desc.flags & !ZE_CONTEXT_FLAG_TBD != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        if phDevices.is_null() && numDevices > 0 {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        for i in 0..numDevices as usize {
            // SAFETY: the array has `numDevices` entries.
            get::<Device, _>(unsafe { phDevices.add(i).read() })?;
        }
        cuda::check()?;
        *context = export(Arc::new(Context { default: false }));
        Ok(())
    })
}

/// The context that the driver itself provides.
pub(crate) fn default_handle() -> ze_context_handle_t {
    static HANDLE: OnceLock<usize> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        export::<Context, _ze_context_handle_t>(Arc::new(Context { default: true })).expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(*handle)
}

unsafe extern "C" fn zeContextDestroy(hContext: ze_context_handle_t) -> ze_result_t {
    run(|| {
        if get::<Context, _>(hContext)?.default {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the driver's default context can't be destroyed"));
        }
        take::<Context, _>(hContext).map(drop)
    })
}

unsafe extern "C" fn zeContextGetStatus(hContext: ze_context_handle_t) -> ze_result_t {
    run(|| get::<Context, _>(hContext).map(drop))
}

unsafe extern "C" fn zeContextSystemBarrier(hContext: ze_context_handle_t, hDevice: ze_device_handle_t) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        get::<Device, _>(hDevice)?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Ok(())
    })
}

/// Residency is the host's virtual memory's business; what is left to do is to check the range.
fn check_range(
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    pointer: *mut c_void,
    size: usize,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(context)?;
        get::<Device, _>(device)?;
        if pointer.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        let allocation = memory::find(pointer).ok_or_else(|| {
            fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("{pointer:p} is no memory of this driver"))
        })?;
        if size > allocation.end() - pointer.addr() {
            return Err(fail(
                ZE_RESULT_ERROR_INVALID_ARGUMENT,
                format!("{size} bytes at {pointer:p} reach beyond the end of their allocation"),
            ));
        }
        Ok(())
    })
}

unsafe extern "C" fn zeContextMakeMemoryResident(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    ptr: *mut c_void,
    size: usize,
) -> ze_result_t {
    check_range(hContext, hDevice, ptr, size)
}

unsafe extern "C" fn zeContextEvictMemory(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    ptr: *mut c_void,
    size: usize,
) -> ze_result_t {
    check_range(hContext, hDevice, ptr, size)
}

entry_points! {
    zeContextCreate: zeContextCreate_t,
    zeContextCreateEx: zeContextCreateEx_t,
    zeContextDestroy: zeContextDestroy_t,
    zeContextGetStatus: zeContextGetStatus_t,
    zeContextSystemBarrier: zeContextSystemBarrier_t,
    zeContextMakeMemoryResident: zeContextMakeMemoryResident_t,
    zeContextEvictMemory: zeContextEvictMemory_t,
}
