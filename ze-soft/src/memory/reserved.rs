//! Addresses that a program reserves, and physical memory that it maps into them.
//!
//! Physical memory is a file; a mapping of part of it is an allocation like any other while it lasts, so that kernels,
//! copies and questions about addresses find it.

use super::mapping::{File, Mapping, page_size};
use super::{ALLOCATIONS, Allocation, Backing, insert, next_id, out_of_memory};
use crate::abi::{input, output, run};
use crate::context::Context;
use crate::device::Device;
use crate::engine::cuda;
use crate::entry::entry_points;
use crate::error::fail;
use crate::handle::{Object, export, get, take};
use crate::properties::memory_size;
use level_zero_sys::*;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

/// Memory without an address.
struct Physical {
    id: u64,
    file: File,
}

impl Object for Physical {
    const MAGIC: u64 = 0x5a45_534f_5048_5931;
}

/// Reserved addresses, and what is mapped there, by its start.
struct Reservation {
    mapping: Mapping,
    parts: BTreeMap<usize, Part>,
}

struct Part {
    size: usize,
    access: ze_memory_access_attribute_t,
    /// Kept: the program may give up its handle while the memory is mapped.
    _physical: Arc<Physical>,
}

static RESERVATIONS: Mutex<BTreeMap<usize, Reservation>> = Mutex::new(BTreeMap::new());

/// Refuses ranges that are empty or not of whole pages.
fn check_range(start: usize, size: usize) -> Result<(), ze_result_t> {
    if size == 0 || !size.is_multiple_of(page_size()) {
        let text = format!("{size} bytes are not whole pages of {}", page_size());
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, text));
    }
    if !start.is_multiple_of(page_size()) {
        let text = format!("{start:#x} is not aligned to a page of {} bytes", page_size());
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, text));
    }
    Ok(())
}

fn protection(access: ze_memory_access_attribute_t) -> Result<i32, ze_result_t> {
    match access {
        ZE_MEMORY_ACCESS_ATTRIBUTE_NONE => Ok(libc::PROT_NONE),
        ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE => Ok(libc::PROT_READ | libc::PROT_WRITE),
        ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY => Ok(libc::PROT_READ),
        _ => Err(ZE_RESULT_ERROR_INVALID_ENUMERATION),
    }
}

/// Does something to the reservation that a range lies in.
fn within<T>(
    pointer: *const c_void,
    size: usize,
    act: impl FnOnce(&mut Reservation, usize) -> Result<T, ze_result_t>,
) -> Result<T, ze_result_t> {
    if pointer.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    let start = pointer.addr();
    check_range(start, size)?;
    let mut reservations = RESERVATIONS.lock();
    let found = reservations.range_mut(..=start).next_back().map(|(_, reservation)| reservation);
    match found.filter(|it| start < it.mapping.base() + it.mapping.size()) {
        Some(it) if size <= it.mapping.base() + it.mapping.size() - start => act(it, start),
        _ => Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("{size} bytes at {pointer:p} are not reserved"))),
    }
}

impl Reservation {
    /// The starts of the mappings that a range is made of; it has to begin and end where mappings do.
    fn parts_of(&self, start: usize, size: usize) -> Result<Vec<usize>, ze_result_t> {
        let mut starts = Vec::new();
        let mut at = start;
        while at < start + size {
            let Some(part) = self.parts.get(&at).filter(|part| at + part.size <= start + size) else {
                let text = format!("{size} bytes at {start:#x} are not whole mappings: there is none at {at:#x}");
                return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
            };
            starts.push(at);
            at += part.size;
        }
        Ok(starts)
    }
}

fn system_refused(error: &std::io::Error) -> ze_result_t {
    out_of_memory(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, error)
}

unsafe extern "C" fn zeVirtualMemReserve(
    hContext: ze_context_handle_t,
    pStart: *const c_void,
    size: usize,
    pptr: *mut *mut c_void,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // SAFETY: the specification's promise.
        let pointer = unsafe { output(pptr) }?;
        check_range(pStart.addr(), size)?;
        if cuda::runs() {
            let text = "the memory of the CUDA engine is mapped by CUDA alone";
            return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, text));
        }
        let mapping = Mapping::reserve(pStart.addr(), size).map_err(|error| system_refused(&error))?;
        *pointer = std::ptr::with_exposed_provenance_mut(mapping.base());
        RESERVATIONS.lock().insert(mapping.base(), Reservation { mapping, parts: BTreeMap::new() });
        Ok(())
    })
}

unsafe extern "C" fn zeVirtualMemFree(hContext: ze_context_handle_t, ptr: *const c_void, size: usize) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        within(ptr, size, |it, start| {
            if start != it.mapping.base() || size != it.mapping.size() {
                return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "only a whole reservation is freed"));
            }
            if !it.parts.is_empty() {
                let text = format!("{} mappings are left in this reservation", it.parts.len());
                return Err(fail(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, text));
            }
            Ok(())
        })?;
        // By the specification no other thread frees or uses the same range.
        RESERVATIONS.lock().remove(&ptr.addr());
        Ok(())
    })
}

unsafe extern "C" fn zeVirtualMemQueryPageSize(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    size: usize,
    pagesize: *mut usize,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise.
        let answer = unsafe { output(pagesize) }?;
        if size == 0 {
            return Err(ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
        }
        *answer = page_size();
        Ok(())
    })
}

unsafe extern "C" fn zePhysicalMemCreate(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    desc: *mut ze_physical_mem_desc_t,
    phPhysicalMemory: *mut ze_physical_mem_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // SAFETY: the specification's promise about these two pointers.
        let (desc, handle) = unsafe { (input(desc.cast_const())?, output(phPhysicalMemory)?) };
        let (kind, device) = match desc.flags {
            0 | ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE => {
                (ZE_MEMORY_TYPE_DEVICE, Some(get::<Device, _>(hDevice)?.index))
            }
            ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST => (ZE_MEMORY_TYPE_HOST, None),
            _ => return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION),
        };
        if !desc.pNext.is_null() {
            return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "physical memory has no extensions here"));
        }
        check_range(0, desc.size)?;
        if desc.size as u64 > memory_size() {
            let text = format!("{} bytes, more than the {} of the device", desc.size, memory_size());
            return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, text));
        }
        let file = File::create(kind, device, desc.size).map_err(|error| system_refused(&error))?;
        *handle = export(Arc::new(Physical { id: next_id(), file }));
        Ok(())
    })
}

unsafe extern "C" fn zePhysicalMemDestroy(
    hContext: ze_context_handle_t,
    hPhysicalMemory: ze_physical_mem_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        take::<Physical, _>(hPhysicalMemory).map(drop)
    })
}

unsafe extern "C" fn zePhysicalMemGetProperties(
    hContext: ze_context_handle_t,
    hPhysicalMem: ze_physical_mem_handle_t,
    pMemProperties: *mut ze_physical_mem_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        let physical = get::<Physical, _>(hPhysicalMem)?;
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pMemProperties) }?;
        (properties.id, properties.size) = (physical.id, physical.file.size() as u64);
        Ok(())
    })
}

unsafe extern "C" fn zeVirtualMemMap(
    hContext: ze_context_handle_t,
    ptr: *const c_void,
    size: usize,
    hPhysicalMemory: ze_physical_mem_handle_t,
    offset: usize,
    access: ze_memory_access_attribute_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        let physical = get::<Physical, _>(hPhysicalMemory)?;
        let protection = protection(access)?;
        if !offset.is_multiple_of(page_size()) {
            let text = format!("an offset of {offset} bytes is not of whole pages");
            return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, text));
        }
        if size > physical.file.size().saturating_sub(offset) {
            let text = format!("{size} bytes from {offset} on are more than the {} there are", physical.file.size());
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
        }
        within(ptr, size, |it, start| {
            let before = it.parts.range(..start + size).next_back();
            if before.is_some_and(|(at, part)| at + part.size > start) {
                return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "something is mapped there already"));
            }
            let file = Some((physical.file.descriptor(), offset as i64));
            it.mapping.cover(start, size, protection, file).map_err(|error| system_refused(&error))?;
            it.parts.insert(start, Part { size, access, _physical: physical.clone() });
            let (kind, device) = (physical.file.kind(), physical.file.device());
            insert(Allocation { id: next_id(), kind, device, base: start, size, backing: Backing::Placed });
            Ok(())
        })
    })
}

unsafe extern "C" fn zeVirtualMemUnmap(hContext: ze_context_handle_t, ptr: *const c_void, size: usize) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        within(ptr, size, |it, start| {
            let starts = it.parts_of(start, size)?;
            it.mapping.cover(start, size, libc::PROT_NONE, None).map_err(|error| system_refused(&error))?;
            let mut allocations = ALLOCATIONS.write();
            for start in starts {
                it.parts.remove(&start);
                allocations.remove(&start);
            }
            Ok(())
        })
    })
}

unsafe extern "C" fn zeVirtualMemSetAccessAttribute(
    hContext: ze_context_handle_t,
    ptr: *const c_void,
    size: usize,
    access: ze_memory_access_attribute_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        let protection = protection(access)?;
        within(ptr, size, |it, start| {
            let starts = it.parts_of(start, size)?;
            it.mapping.protect(start, size, protection).map_err(|error| system_refused(&error))?;
            for start in starts {
                if let Some(part) = it.parts.get_mut(&start) {
                    part.access = access;
                }
            }
            Ok(())
        })
    })
}

unsafe extern "C" fn zeVirtualMemGetAccessAttribute(
    hContext: ze_context_handle_t,
    ptr: *const c_void,
    size: usize,
    access: *mut ze_memory_access_attribute_t,
    outSize: *mut usize,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // SAFETY: the specification's promise about these two pointers.
        let (access, alike) = unsafe { (output(access)?, output(outSize)?) };
        within(ptr, size, |it, start| {
            // What a page has, and where the mapping, or the gap between mappings, that it is in ends.
            let at = |page: usize| match it.parts.range(..=page).next_back() {
                Some((start, part)) if page < start + part.size => (part.access, start + part.size),
                _ => {
                    let next = it.parts.range(page..).next().map(|(start, _)| *start);
                    (ZE_MEMORY_ACCESS_ATTRIBUTE_NONE, next.unwrap_or(it.mapping.base() + it.mapping.size()))
                }
            };
            let (found, mut end) = at(start);
            while end < start + size && at(end).0 == found {
                end = at(end).1;
            }
            (*access, *alike) = (found, (end - start).min(size));
            Ok(())
        })
    })
}

entry_points! {
    zeVirtualMemReserve: zeVirtualMemReserve_t,
    zeVirtualMemFree: zeVirtualMemFree_t,
    zeVirtualMemQueryPageSize: zeVirtualMemQueryPageSize_t,
    zeVirtualMemMap: zeVirtualMemMap_t,
    zeVirtualMemUnmap: zeVirtualMemUnmap_t,
    zeVirtualMemSetAccessAttribute: zeVirtualMemSetAccessAttribute_t,
    zeVirtualMemGetAccessAttribute: zeVirtualMemGetAccessAttribute_t,
    zePhysicalMemCreate: zePhysicalMemCreate_t,
    zePhysicalMemDestroy: zePhysicalMemDestroy_t,
    zePhysicalMemGetProperties: zePhysicalMemGetProperties_t,
}
