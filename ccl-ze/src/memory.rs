//! Memory of a device or of the host, allocated, shared by IPC handle, or mapped from a descriptor and imported.

use crate::api::{ze, ze_optional};
use crate::gpu::Gpu;
use ccl_core::{Error, Result};
use level_zero_sys::*;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of what we allocate: large pages of the devices that we know.
const ALIGNMENT: usize = 65536;

/// Memory that this library allocated.
pub(crate) struct Allocation {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) address: *mut c_void,
}

// SAFETY: an address range that the driver lets any thread use; who accesses it when is the users' protocol.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Memory on the device.
    pub(crate) fn device(gpu: &Arc<Gpu>, bytes: usize) -> Result<Allocation> {
        let desc = ze_device_mem_alloc_desc_t::default();
        let mut address = std::ptr::null_mut();
        // SAFETY: live context and device; descriptor and output outlive the call.
        unsafe {
            ze!(
                gpu.api,
                zeMemAllocDevice(gpu.context, &raw const desc, bytes, ALIGNMENT, gpu.device, &raw mut address)
            )?;
        }
        Ok(Allocation { gpu: gpu.clone(), address })
    }

    /// Memory of the host that the device can access.
    pub(crate) fn host(gpu: &Arc<Gpu>, bytes: usize) -> Result<Allocation> {
        let desc = ze_host_mem_alloc_desc_t::default();
        let mut address = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe { ze!(gpu.api, zeMemAllocHost(gpu.context, &raw const desc, bytes, 4096, &raw mut address))? };
        Ok(Allocation { gpu: gpu.clone(), address })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `device` or `host`; whoever drops it has made sure that no work uses it. A failure can't
        // be helped here.
        let _ = unsafe { ze!(self.gpu.api, zeMemFree(self.gpu.context, self.address)) };
    }
}

/// Device memory of this rank, open to one peer.
pub(crate) struct Exported {
    pub(crate) memory: Arc<Allocation>,
    handle: ze_ipc_mem_handle_t,
}

/// What an importer needs beside the descriptor.
pub(crate) struct Details {
    /// The exporter's handle. Its first bytes hold a descriptor number, which means nothing elsewhere.
    handle: [u8; HANDLE_BYTES],
    /// Whether the handle names the exporter's process, so that the driver fetches the descriptor from there itself.
    names_process: bool,
    /// Where the memory begins in what the handle opens.
    offset: u64,
}

const HANDLE_BYTES: usize = size_of::<ze_ipc_mem_handle_t>();

impl Details {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.handle[..], &[u8::from(self.names_process)], &self.offset.to_le_bytes()].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Details> {
        let parts = bytes.split_first_chunk::<HANDLE_BYTES>();
        parts
            .and_then(|(handle, rest)| {
                let (names_process, offset) = rest.split_first()?;
                let offset = u64::from_le_bytes(offset.try_into().ok()?);
                Some(Details { handle: *handle, names_process: *names_process != 0, offset })
            })
            .ok_or_else(|| Error::Internal(format!("{} bytes of staging details", bytes.len())))
    }
}

impl Exported {
    pub(crate) fn new(memory: Arc<Allocation>) -> Result<Exported> {
        let gpu = &memory.gpu;
        let mut handle = ze_ipc_mem_handle_t { data: [0; HANDLE_BYTES] };
        // SAFETY: an allocation of this context, and a place for the handle.
        unsafe { ze!(gpu.api, zeMemGetIpcHandle(gpu.context, memory.address, &raw mut handle))? };
        Ok(Exported { memory, handle })
    }

    /// A descriptor of the memory that can be sent to another process, and what goes with it.
    pub(crate) fn export(&self) -> Result<(Details, OwnedFd)> {
        let gpu = &self.memory.gpu;
        let mut number = 0u64;
        let fd = if gpu.api.table.zeMemGetFileDescriptorFromIpcHandleExp.is_some() {
            // SAFETY: a handle that this context gave out, and a place for the number.
            unsafe {
                ze_optional!(
                    gpu.api,
                    zeMemGetFileDescriptorFromIpcHandleExp(gpu.context, self.handle, &raw mut number)
                )?;
            }
            number as RawFd
        } else {
            handle_fd(&self.handle)
        };
        let (mut base, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: an allocation of this context, and places for base and size.
        unsafe { ze!(gpu.api, zeMemGetAddressRange(gpu.context, self.memory.address, &raw mut base, &raw mut size))? };
        let offset = self.memory.address as u64 - base as u64;
        let handle = self.handle.data.map(|c| c as u8);
        let names_process = names_process(&handle, std::process::id());
        Ok((Details { handle, names_process, offset }, duplicate(fd)?))
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let gpu = &self.memory.gpu;
        // SAFETY: the handle is given back once, before its memory goes. A failure can't be helped here.
        let _ = unsafe { ze!(gpu.api, zeMemPutIpcHandle(gpu.context, self.handle)) };
    }
}

/// The descriptor number in a handle's first bytes.
fn handle_fd(handle: &ze_ipc_mem_handle_t) -> RawFd {
    let bytes: [u8; 4] = std::array::from_fn(|i| handle.data[i] as u8);
    RawFd::from_ne_bytes(bytes)
}

/// Whether a handle holds the number of the process that made it, behind the eight bytes of the descriptor.
fn names_process(handle: &[u8; HANDLE_BYTES], process: u32) -> bool {
    handle[8..].chunks_exact(4).any(|word| word == process.to_ne_bytes())
}

fn duplicate(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: borrowed for the call only; if the number is not open, `fcntl` says so.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let copy =
        fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(3)).map_err(|e| Error::system("duplicating an IPC descriptor", e))?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// A peer's device memory, mapped here.
pub(crate) struct Imported {
    gpu: Arc<Gpu>,
    base: *mut c_void,
    pub(crate) address: *mut c_void,
}

// SAFETY: as for `Allocation`.
unsafe impl Send for Imported {}
// SAFETY: as for `Allocation`.
unsafe impl Sync for Imported {}

impl Imported {
    pub(crate) fn open(gpu: &Arc<Gpu>, details: &Details, memory: OwnedFd) -> Result<Imported> {
        let handle = handle_here(gpu, details, &memory);
        let mut base = std::ptr::null_mut();
        // SAFETY: live context and device, a handle made for this process, and a place for the address.
        unsafe { ze!(gpu.api, zeMemOpenIpcHandle(gpu.context, gpu.device, handle, 0, &raw mut base))? };
        let address = base.wrapping_byte_add(details.offset as usize);
        Ok(Imported { gpu: gpu.clone(), base, address })
    }
}

/// A handle of the exporter's memory that is valid in this process. Whether it is, the pattern test judges.
fn handle_here(gpu: &Gpu, details: &Details, memory: &OwnedFd) -> ze_ipc_mem_handle_t {
    let mut handle = ze_ipc_mem_handle_t { data: details.handle.map(|b| b as _) };
    if gpu.api.table.zeMemGetIpcHandleFromFileDescriptorExp.is_some() {
        let number = memory.as_raw_fd() as u64;
        let mut made = handle;
        // SAFETY: an open descriptor and a place for the handle.
        let asked = unsafe {
            ze_optional!(gpu.api, zeMemGetIpcHandleFromFileDescriptorExp(gpu.context, number, &raw mut made))
        };
        match asked {
            Ok(()) => return made,
            // Intel's driver knows only descriptors that this process exported itself.
            Err(error) => tracing::debug!("{error}; the exporter's handle is used"),
        }
    }
    if !details.names_process {
        for (byte, new) in handle.data.iter_mut().zip(memory.as_raw_fd().to_ne_bytes()) {
            *byte = new as _;
        }
    }
    handle
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: opened in `open` and closed once; its user has made sure that no work uses it.
        let _ = unsafe { ze!(self.gpu.api, zeMemCloseIpcHandle(self.gpu.context, self.base)) };
    }
}

/// Seals that fix the size of shared memory.
const SIZE_SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);

/// Host memory that processes share: a memfd, mapped here and made known to the driver.
pub(crate) struct SharedHost {
    gpu: Arc<Gpu>,
    address: NonNull<c_void>,
    bytes: usize,
    by_pointer: bool,
}

// SAFETY: as for `Allocation`.
unsafe impl Send for SharedHost {}
// SAFETY: as for `Allocation`.
unsafe impl Sync for SharedHost {}

impl SharedHost {
    /// A descriptor of new memory, zeroed. A memfd has no name to leak and needs no /dev/shm.
    pub(crate) fn create(bytes: usize) -> Result<OwnedFd> {
        let failed = |e| Error::system(format!("{bytes} bytes of shared host memory"), e);
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let memory = memfd_create(c"cclx-staging", flags).map_err(failed)?;
        nix::unistd::ftruncate(&memory, bytes as i64).map_err(failed)?;
        // Whoever maps it can rely on its size.
        fcntl(&memory, FcntlArg::F_ADD_SEALS(SIZE_SEALS)).map_err(failed)?;
        Ok(memory)
    }

    pub(crate) fn map(gpu: &Arc<Gpu>, memory: BorrowedFd<'_>, bytes: usize) -> Result<SharedHost> {
        let length = NonZeroUsize::new(bytes).ok_or_else(|| Error::Internal("no staging memory".into()))?;
        let failed = |e| Error::system("a peer's shared host memory", e);
        let seals = fcntl(memory, FcntlArg::F_GET_SEALS).map_err(failed)?;
        let size = nix::sys::stat::fstat(memory).map_err(failed)?.st_size;
        if !SealFlag::from_bits_retain(seals).contains(SIZE_SEALS) || size != bytes as i64 {
            // Memory that could shrink would end this process by a signal.
            return Err(Error::Internal(format!("shared host memory of {size} bytes, not sealed {bytes} ones")));
        }
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe {
            mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, memory.as_fd(), 0)
        }
        .map_err(|e| Error::system("mapping shared host memory", e))?;
        match Self::import(gpu, address, bytes) {
            Ok(by_pointer) => Ok(SharedHost { gpu: gpu.clone(), address, bytes, by_pointer }),
            Err(error) => {
                // SAFETY: mapped above and known to nobody.
                let _ = unsafe { munmap(address, bytes) };
                Err(error)
            }
        }
    }

    /// Whether the import went by `zexDriverImportExternalPointer`, the way of drivers without the extension.
    fn import(gpu: &Gpu, address: NonNull<c_void>, bytes: usize) -> Result<bool> {
        let system = ze_external_memmap_sysmem_ext_desc_t {
            pSystemMemory: address.as_ptr(),
            size: bytes as u64,
            ..Default::default()
        };
        let desc = ze_host_mem_alloc_desc_t { pNext: (&raw const system).cast(), ..Default::default() };
        let mut imported = std::ptr::null_mut();
        // SAFETY: live context; descriptors, the mapping and the output outlive the call.
        let first = unsafe { ze!(gpu.api, zeMemAllocHost(gpu.context, &raw const desc, bytes, 0, &raw mut imported)) };
        match first {
            Ok(()) if imported == address.as_ptr() => Ok(false),
            outcome => {
                if outcome.is_ok() {
                    // A driver that ignores the extension has allocated something else.
                    // SAFETY: just allocated, used by nobody.
                    let _ = unsafe { ze!(gpu.api, zeMemFree(gpu.context, imported)) };
                }
                // SAFETY: a live driver and a mapping of this size.
                unsafe {
                    ze_optional!(gpu.api, zexDriverImportExternalPointer(gpu.api.driver, address.as_ptr(), bytes))?;
                }
                Ok(true)
            }
        }
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.address.as_ptr()
    }
}

impl Drop for SharedHost {
    fn drop(&mut self) {
        let (api, address) = (&self.gpu.api, self.address.as_ptr());
        // SAFETY: imported and mapped in `map`, undone once in reverse; its user has made sure that no work uses it.
        unsafe {
            let _ = if self.by_pointer {
                ze_optional!(api, zexDriverReleaseImportedPointer(api.driver, address))
            } else {
                ze!(api, zeMemFree(self.gpu.context, address))
            };
            let _ = munmap(self.address, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_come_back_whole() {
        let mut handle = [7; HANDLE_BYTES];
        handle[16..20].copy_from_slice(&4711u32.to_ne_bytes());
        for names_process in [false, true] {
            let bytes = Details { handle, names_process, offset: 1 << 40 }.encode();
            let back = Details::decode(&bytes).expect("encoded just now");
            assert_eq!((back.handle, back.names_process, back.offset), (handle, names_process, 1 << 40));
            assert!(Details::decode(&bytes[1..]).is_err());
        }
    }

    #[test]
    fn a_handle_may_name_its_process() {
        let mut handle = [0; HANDLE_BYTES];
        handle[..4].copy_from_slice(&4711u32.to_ne_bytes());
        assert!(!names_process(&handle, 4711), "a descriptor's number");
        handle[16..20].copy_from_slice(&4711u32.to_ne_bytes());
        assert!(names_process(&handle, 4711));
        assert!(!names_process(&handle, 4712));
    }
}
