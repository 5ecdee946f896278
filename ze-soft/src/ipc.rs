//! IPC handles of memory.
//!
//! As with the real driver, a handle begins with the number of a descriptor, and that number means nothing in another
//! process: the descriptor has to be passed, its number there put into the handle (or a new handle made of it). The rest
//! of the handle says which memory it is, so that a number that happens to be open there is not taken for it.

use crate::abi::{chain, output, run};
use crate::config;
use crate::context::Context;
use crate::device::Device;
use crate::entry::entry_points;
use crate::error::fail;
use crate::fault;
use crate::handle::get;
use crate::memory::{self, File};
use level_zero_sys::*;
use std::ffi::c_void;
use std::os::fd::{BorrowedFd, RawFd};

const MAGIC: u32 = 0x5a73_6970;
const NO_DEVICE: u32 = u32::MAX;

/// What the 64 bytes of a handle mean.
#[repr(C)]
#[derive(Clone, Copy)]
struct Content {
    descriptor: RawFd,
    magic: u32,
    /// The process that made the handle.
    process: u32,
    /// The device whose memory it is.
    device: u32,
    size: u64,
    filesystem: u64,
    inode: u64,
    /// The allocation in that process; 0 if the handle was made of a descriptor.
    allocation: u64,
    address: u64,
    check: u64,
}

const _: () = assert!(size_of::<Content>() == size_of::<ze_ipc_mem_handle_t>());

impl Content {
    fn of(file: &File, descriptor: RawFd, allocation: u64, address: usize) -> Self {
        let content = Self {
            descriptor,
            magic: MAGIC,
            process: std::process::id(),
            device: file.device().unwrap_or(NO_DEVICE),
            size: file.size() as u64,
            filesystem: file.identity().filesystem,
            inode: file.identity().inode,
            allocation,
            address: address as u64,
            check: 0,
        };
        Self { check: content.sum(), ..content }
    }

    /// A sum over everything but the descriptor, whose number the receiver replaces.
    fn sum(&self) -> u64 {
        let head = u64::from(self.process) << 32 | u64::from(self.device);
        [head, self.size, self.filesystem, self.inode, self.allocation, self.address]
            .iter()
            .fold(u64::from(self.magic), |sum, word| fault::mix(sum ^ word))
    }

    fn pack(self) -> ze_ipc_mem_handle_t {
        // SAFETY: both are 64 bytes of plain numbers without gaps.
        unsafe { std::mem::transmute(self) }
    }

    fn unpack(handle: &ze_ipc_mem_handle_t) -> Result<Self, ze_result_t> {
        // SAFETY: both are 64 bytes of plain numbers, any of which is valid; the copy needs no alignment.
        let content = unsafe { std::ptr::from_ref(handle).cast::<Self>().read_unaligned() };
        if content.magic != MAGIC || content.check != content.sum() {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "these bytes are not an IPC handle of this driver"));
        }
        Ok(content)
    }

    /// The file behind the descriptor, as this process has it.
    fn file(&self) -> Result<File, ze_result_t> {
        received(self.descriptor)
            .filter(|file| file.identity().inode == self.inode && file.identity().filesystem == self.filesystem)
            .filter(|file| file.size() as u64 == self.size)
            .ok_or_else(|| {
                let Self { descriptor, process, .. } = self;
                fail(
                    ZE_RESULT_ERROR_INVALID_ARGUMENT,
                    format!(
                        "descriptor {descriptor} of this IPC handle, made by process {process}, is not that memory in \
                         process {}: the descriptor itself was not passed, or the handle was put back",
                        std::process::id()
                    ),
                )
            })
    }
}

/// The file behind a descriptor number of this process, if it is memory of this driver.
fn received(descriptor: RawFd) -> Option<File> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the number is only looked at and duplicated during this call; if nothing is open under it, that fails.
    File::received(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

unsafe extern "C" fn zeMemGetIpcHandle(
    hContext: ze_context_handle_t,
    ptr: *const c_void,
    pIpcHandle: *mut ze_ipc_mem_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        if ptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        // SAFETY: the specification's promise.
        let handle = unsafe { output(pIpcHandle) }?;
        let allocation = memory::find(ptr)
            .ok_or_else(|| fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("{ptr:p} is no memory of this driver")))?;
        if allocation.kind != ZE_MEMORY_TYPE_DEVICE {
            return Err(fail(
                ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                format!("{ptr:p} is not device memory: only that has IPC handles"),
            ));
        }
        let descriptor = allocation.export(1)?;
        let file = allocation.file().ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        *handle = Content::of(file, descriptor, allocation.id, allocation.base()).pack();
        Ok(())
    })
}

unsafe extern "C" fn zeMemGetIpcHandleWithProperties(
    hContext: ze_context_handle_t,
    ptr: *const c_void,
    pNext: *mut c_void,
    pIpcHandle: *mut ze_ipc_mem_handle_t,
) -> ze_result_t {
    let mut flags = ZE_IPC_MEM_HANDLE_TYPE_FLAG_DEFAULT;
    // SAFETY: the specification's promise about chains; the type stands for its structure.
    unsafe {
        chain(pNext, |stype, link| {
            if stype == ZE_STRUCTURE_TYPE_IPC_MEM_HANDLE_TYPE_EXT_DESC {
                flags = (*link.cast::<ze_ipc_mem_handle_type_ext_desc_t>()).typeFlags;
            }
        });
    }
    if flags & !ZE_IPC_MEM_HANDLE_TYPE_FLAG_DEFAULT != 0 {
        return fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "IPC handles are of the default type only");
    }
    // SAFETY: the arguments are passed on under the same promise.
    unsafe { zeMemGetIpcHandle(hContext, ptr, pIpcHandle) }
}

unsafe extern "C" fn zeMemPutIpcHandle(hContext: ze_context_handle_t, handle: ze_ipc_mem_handle_t) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        let content = Content::unpack(&handle)?;
        if content.process != std::process::id() || content.allocation == 0 {
            // Made elsewhere, or of a descriptor that is the program's own: nothing of ours hangs on it.
            return Ok(());
        }
        match memory::find(std::ptr::without_provenance(content.address as usize)) {
            Some(allocation) if allocation.id == content.allocation => allocation.put_back(),
            // Freed meanwhile, and the descriptor closed with it.
            _ => Ok(()),
        }
    })
}

unsafe extern "C" fn zeMemOpenIpcHandle(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    handle: ze_ipc_mem_handle_t,
    flags: ze_ipc_memory_flags_t,
    pptr: *mut *mut c_void,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        let device = get::<Device, _>(hDevice)?;
        if flags & !(ZE_IPC_MEMORY_FLAG_BIAS_CACHED | ZE_IPC_MEMORY_FLAG_BIAS_UNCACHED) != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        // SAFETY: the specification's promise.
        let pointer = unsafe { output(pptr) }?;
        let file = Content::unpack(&handle)?.file()?;
        let owner = file.device().unwrap_or(device.index);
        if !config::get().reaches(device.index, owner) {
            return Err(fail(
                ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                format!("device {} does not reach the memory of device {owner}", device.index),
            ));
        }
        if fault::fail_ipc_open() {
            return Err(fail(
                ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                "this opening was to fail (ZESOFT_FAULT_FAIL_IPC_OPEN)",
            ));
        }
        *pointer = memory::open(&file, device.index, fault::mapped(device.index, owner))?;
        Ok(())
    })
}

unsafe extern "C" fn zeMemCloseIpcHandle(hContext: ze_context_handle_t, ptr: *const c_void) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        if ptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        memory::close(ptr)
    })
}

unsafe extern "C" fn zeMemGetFileDescriptorFromIpcHandleExp(
    hContext: ze_context_handle_t,
    ipcHandle: ze_ipc_mem_handle_t,
    pHandle: *mut u64,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // SAFETY: the specification's promise.
        let number = unsafe { output(pHandle) }?;
        let content = Content::unpack(&ipcHandle)?;
        content.file()?;
        *number = content.descriptor as u64;
        Ok(())
    })
}

unsafe extern "C" fn zeMemGetIpcHandleFromFileDescriptorExp(
    hContext: ze_context_handle_t,
    handle: u64,
    pIpcHandle: *mut ze_ipc_mem_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // SAFETY: the specification's promise.
        let ipc_handle = unsafe { output(pIpcHandle) }?;
        let descriptor = RawFd::try_from(handle).unwrap_or(-1);
        let file = received(descriptor).ok_or_else(|| {
            fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("descriptor {handle} is not memory of this driver"))
        })?;
        *ipc_handle = Content::of(&file, descriptor, 0, 0).pack();
        Ok(())
    })
}

entry_points! {
    zeMemGetIpcHandle: zeMemGetIpcHandle_t,
    zeMemGetIpcHandleWithProperties: zeMemGetIpcHandleWithProperties_t,
    zeMemPutIpcHandle: zeMemPutIpcHandle_t,
    zeMemOpenIpcHandle: zeMemOpenIpcHandle_t,
    zeMemCloseIpcHandle: zeMemCloseIpcHandle_t,
    zeMemGetFileDescriptorFromIpcHandleExp: zeMemGetFileDescriptorFromIpcHandleExp_t,
    zeMemGetIpcHandleFromFileDescriptorExp: zeMemGetIpcHandleFromFileDescriptorExp_t,
}
