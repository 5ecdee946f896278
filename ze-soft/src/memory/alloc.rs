//! The entry points that allocate, free and describe memory.

use crate::abi::{chain, input, output, run};
use crate::context::Context;
use crate::device::{self, Device};
use crate::entry::entry_points;
use crate::error::fail;
use crate::handle::get;
use crate::properties::memory_size;
use level_zero_sys::*;
use std::ffi::c_void;

/// The largest alignment that is honoured: no page is larger.
const MAX_ALIGNMENT: usize = 1 << 30;

/// What the chains of the allocation descriptors ask for.
#[derive(Default)]
struct Wishes {
    system_memory: Option<(*mut c_void, u64)>,
    imports_descriptor: bool,
}

/// # Safety
/// `next` is null or a chain as the specification describes it.
unsafe fn wishes(next: *const c_void) -> Wishes {
    let mut wishes = Wishes::default();
    // SAFETY: the caller's promise; each type stands for its structure.
    unsafe {
        chain(next.cast_mut(), |stype, link| match stype {
            ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC => {
                let desc = &*link.cast::<ze_external_memmap_sysmem_ext_desc_t>();
                wishes.system_memory = Some((desc.pSystemMemory, desc.size));
            }
            ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD => wishes.imports_descriptor = true,
            _ => {}
        });
    }
    wishes
}

fn check_size(size: usize, alignment: usize) -> Result<(), ze_result_t> {
    if size == 0 {
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "an allocation of 0 bytes"));
    }
    if size as u64 > memory_size() {
        let text = format!("an allocation of {size} bytes, more than the {} of the device", memory_size());
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, text));
    }
    if alignment != 0 && (!alignment.is_power_of_two() || alignment > MAX_ALIGNMENT) {
        let text = format!("an alignment of {alignment} is no power of two up to {MAX_ALIGNMENT}");
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, text));
    }
    Ok(())
}

/// # Safety
/// `desc` is null or points to a descriptor with a sound chain.
unsafe fn check_device_desc(desc: *const ze_device_mem_alloc_desc_t) -> Result<(), ze_result_t> {
    // SAFETY: the caller's promise.
    let desc = unsafe { input(desc) }?;
    let known = ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_CACHED
        | ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_UNCACHED
        | ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT;
    if desc.flags & !known != 0 {
        return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
    }
    if desc.ordinal != 0 {
        let text = format!("there is no memory ordinal {}", desc.ordinal);
        return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
    }
    // SAFETY: the caller's promise.
    let wishes = unsafe { wishes(desc.pNext) };
    if wishes.system_memory.is_some() || wishes.imports_descriptor {
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "device memory can't be imported this way"));
    }
    Ok(())
}

fn check_host_flags(flags: ze_host_mem_alloc_flags_t) -> Result<(), ze_result_t> {
    let known = ZE_HOST_MEM_ALLOC_FLAG_BIAS_CACHED
        | ZE_HOST_MEM_ALLOC_FLAG_BIAS_UNCACHED
        | ZE_HOST_MEM_ALLOC_FLAG_BIAS_WRITE_COMBINED
        | ZE_HOST_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT;
    if flags & !known != 0 { Err(ZE_RESULT_ERROR_INVALID_ENUMERATION) } else { Ok(()) }
}

unsafe extern "C" fn zeMemAllocDevice(
    hContext: ze_context_handle_t,
    device_desc: *const ze_device_mem_alloc_desc_t,
    size: usize,
    alignment: usize,
    hDevice: ze_device_handle_t,
    pptr: *mut *mut c_void,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        let device = get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise about both pointers.
        let pointer = unsafe {
            check_device_desc(device_desc)?;
            output(pptr)?
        };
        check_size(size, alignment)?;
        *pointer = super::allocate(ZE_MEMORY_TYPE_DEVICE, Some(device.index), size, alignment)?;
        Ok(())
    })
}

unsafe extern "C" fn zeMemAllocShared(
    hContext: ze_context_handle_t,
    device_desc: *const ze_device_mem_alloc_desc_t,
    host_desc: *const ze_host_mem_alloc_desc_t,
    size: usize,
    alignment: usize,
    hDevice: ze_device_handle_t,
    pptr: *mut *mut c_void,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // The device is optional: without one the memory belongs to all of them.
        let device = if hDevice.is_null() { None } else { Some(get::<Device, _>(hDevice)?.index) };
        // SAFETY: the specification's promise about the three pointers.
        let pointer = unsafe {
            check_device_desc(device_desc)?;
            check_host_flags(input(host_desc)?.flags)?;
            output(pptr)?
        };
        check_size(size, alignment)?;
        *pointer = super::allocate(ZE_MEMORY_TYPE_SHARED, device, size, alignment)?;
        Ok(())
    })
}

unsafe extern "C" fn zeMemAllocHost(
    hContext: ze_context_handle_t,
    host_desc: *const ze_host_mem_alloc_desc_t,
    size: usize,
    alignment: usize,
    pptr: *mut *mut c_void,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // SAFETY: the specification's promise about both pointers and the chain.
        let (desc, pointer) = unsafe { (input(host_desc)?, output(pptr)?) };
        check_host_flags(desc.flags)?;
        // SAFETY: as above.
        let wishes = unsafe { wishes(desc.pNext) };
        if wishes.imports_descriptor {
            return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "host memory can't be imported from a descriptor"));
        }
        check_size(size, alignment)?;
        let Some((memory, mapped)) = wishes.system_memory else {
            *pointer = super::allocate(ZE_MEMORY_TYPE_HOST, None, size, alignment)?;
            return Ok(());
        };
        if size as u64 > mapped {
            let text = format!("{size} bytes are asked for, but only {mapped} are given to be mapped");
            return Err(fail(ZE_RESULT_ERROR_INVALID_SIZE, text));
        }
        if alignment != 0 && !memory.addr().is_multiple_of(alignment) {
            let text = format!("{memory:p} is not aligned to {alignment}");
            return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, text));
        }
        super::import_pages(memory, mapped as usize)?;
        *pointer = memory;
        Ok(())
    })
}

unsafe extern "C" fn zeMemFree(hContext: ze_context_handle_t, ptr: *mut c_void) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        if ptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        super::free(ptr)
    })
}

unsafe extern "C" fn zeMemFreeExt(
    hContext: ze_context_handle_t,
    pMemFreeDesc: *const ze_memory_free_ext_desc_t,
    ptr: *mut c_void,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // SAFETY: the specification's promise.
        let policy = unsafe { input(pMemFreeDesc) }?.freePolicy;
        if ptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        let waiting =
            ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE | ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
        if policy & !waiting != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        if policy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE != 0 {
            device::drain_all();
        }
        if policy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE != 0 {
            return super::free_later(ptr);
        }
        super::free(ptr)
    })
}

unsafe extern "C" fn zeMemGetAllocProperties(
    hContext: ze_context_handle_t,
    ptr: *const c_void,
    pMemAllocProperties: *mut ze_memory_allocation_properties_t,
    phDevice: *mut ze_device_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        if ptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        // SAFETY: the specification's promise; the device is optional.
        let (properties, device) = unsafe { (output(pMemAllocProperties)?, phDevice.as_mut()) };
        let allocation = super::find(ptr);
        let (kind, id, index) = match &allocation {
            Some(allocation) => (allocation.kind, allocation.id, allocation.device),
            None => (ZE_MEMORY_TYPE_UNKNOWN, 0, None),
        };
        (properties.r#type, properties.id) = (kind, id);
        properties.pageSize = if allocation.is_some() { super::mapping::page_size() as u64 } else { 0 };
        if let Some(device) = device {
            *device = index.map_or(std::ptr::null_mut(), device::handle_of);
        }
        let mut outcome = Ok(());
        // SAFETY: the specification's promise about chains; the type stands for its structure.
        unsafe {
            chain(properties.pNext, |stype, link| {
                if stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD {
                    outcome = export_descriptor(allocation.as_deref(), &mut *link.cast());
                }
            });
        }
        outcome
    })
}

/// Fills in the descriptor that stands for the allocation in other processes. It stays the driver's.
fn export_descriptor(
    allocation: Option<&super::Allocation>,
    export: &mut ze_external_memory_export_fd_t,
) -> Result<(), ze_result_t> {
    if export.flags != ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD {
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION, "memory is exported as an opaque descriptor only"));
    }
    let allocation =
        allocation.ok_or_else(|| fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "there is no allocation to export"))?;
    export.fd = allocation.export(1)?;
    Ok(())
}

unsafe extern "C" fn zeMemGetAddressRange(
    hContext: ze_context_handle_t,
    ptr: *const c_void,
    pBase: *mut *mut c_void,
    pSize: *mut usize,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        if ptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        let allocation = super::find(ptr).ok_or_else(|| {
            fail(ZE_RESULT_ERROR_ADDRESS_NOT_FOUND, format!("{ptr:p} lies in no memory of this driver"))
        })?;
        // SAFETY: the specification's promise; both are optional.
        unsafe {
            if let Some(base) = pBase.as_mut() {
                *base = std::ptr::with_exposed_provenance_mut(allocation.base());
            }
            if let Some(size) = pSize.as_mut() {
                *size = allocation.size();
            }
        }
        Ok(())
    })
}

entry_points! {
    zeMemAllocDevice: zeMemAllocDevice_t,
    zeMemAllocShared: zeMemAllocShared_t,
    zeMemAllocHost: zeMemAllocHost_t,
    zeMemFree: zeMemFree_t,
    zeMemFreeExt: zeMemFreeExt_t,
    zeMemGetAllocProperties: zeMemGetAllocProperties_t,
    zeMemGetAddressRange: zeMemGetAddressRange_t,
}
