//! Memory: the GPU's own, what other processes share of theirs, and the host's, made known to the GPU.

use super::api::*;
use super::runtime::{self, Gpu};
use super::{runs, unavailable};
use crate::error::fail;
use level_zero_sys::{ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, ze_result_t};

/// What CUDA carves memory out of. A handle for another process opens all of one, so that memory that is shared must
/// not share it with anything else.
const GRANULE: usize = 2 << 20;

/// Memory of a GPU.
pub(crate) struct Device {
    gpu: &'static Gpu,
    address: CUdeviceptr,
    size: usize,
}

/// The bytes that tell another process what to open: CUDA's handle, then size, address and process.
pub(crate) const TICKET_BYTES: usize = 88;

impl Device {
    /// New memory for a device.
    pub(crate) fn allocate(device: u32, size: usize) -> Result<Self, String> {
        let gpu = runtime::get()?.gpu(device)?;
        gpu.enter()?;
        let size = size.checked_next_multiple_of(GRANULE).ok_or("more bytes than there are addresses")?;
        let mut address = 0;
        // SAFETY: a current context and a place for the address.
        unsafe { cuda!(gpu.api, cuMemAlloc(&raw mut address, size)) }?;
        Ok(Self { gpu, address, size })
    }

    pub(crate) fn base(&self) -> usize {
        self.address as usize
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// What another process needs to open it.
    pub(crate) fn ticket(&self) -> Result<[u8; TICKET_BYTES], String> {
        self.gpu.enter()?;
        let mut handle = CUipcMemHandle([0; 64]);
        // SAFETY: a current context, the start of an allocation, and a place for the handle.
        unsafe { cuda!(self.gpu.api, cuIpcGetMemHandle(&raw mut handle, self.address)) }?;
        let mut ticket = [0; TICKET_BYTES];
        ticket[..64].copy_from_slice(&handle.0);
        ticket[64..72].copy_from_slice(&(self.size as u64).to_le_bytes());
        ticket[72..80].copy_from_slice(&self.address.to_le_bytes());
        ticket[80..84].copy_from_slice(&std::process::id().to_le_bytes());
        Ok(ticket)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: allocated above and freed once. CUDA waits for what still uses it.
            unsafe { (self.gpu.api.cuMemFree)(self.address) };
        }
    }
}

/// Where the memory of a ticket lies, if this process allocated it.
pub(crate) fn own(ticket: &[u8; TICKET_BYTES]) -> Option<usize> {
    let address = u64::from_le_bytes(std::array::from_fn(|i| ticket[72 + i]));
    let process = u32::from_le_bytes(std::array::from_fn(|i| ticket[80 + i]));
    (process == std::process::id()).then_some(address as usize)
}

/// Memory of another process's.
pub(crate) struct Opened {
    gpu: &'static Gpu,
    address: CUdeviceptr,
    size: usize,
}

impl Opened {
    /// Opens it for a device.
    pub(crate) fn open(device: u32, ticket: &[u8; TICKET_BYTES]) -> Result<Self, String> {
        let mut handle = CUipcMemHandle([0; 64]);
        handle.0.copy_from_slice(&ticket[..64]);
        let size = u64::from_le_bytes(std::array::from_fn(|i| ticket[64 + i])) as usize;
        let gpu = runtime::get()?.gpu(device)?;
        gpu.enter()?;
        let mut address = 0;
        // SAFETY: a current context and a place for the address; CUDA judges the handle.
        unsafe { cuda!(gpu.api, cuIpcOpenMemHandle(&raw mut address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) }?;
        Ok(Self { gpu, address, size })
    }

    pub(crate) fn base(&self) -> usize {
        self.address as usize
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: opened above and closed once.
            unsafe { (self.gpu.api.cuIpcCloseMemHandle)(self.address) };
        }
    }
}

/// Pages of the host's that all GPUs reach while this lives.
pub(crate) struct Pinned(&'static Gpu, usize);

impl Pinned {
    /// Makes pages known; nothing to do for the other engines.
    pub(crate) fn new(base: usize, size: usize) -> Result<Option<Self>, ze_result_t> {
        if !runs() {
            return Ok(None);
        }
        let gpu = unavailable(runtime::get().and_then(runtime::Runtime::first))?;
        let pin = || {
            gpu.enter()?;
            let start = std::ptr::with_exposed_provenance_mut(base);
            // SAFETY: a current context and mapped pages, which stay so while this lives, as its owners see to.
            unsafe { cuda!(gpu.api, cuMemHostRegister(start, size, CU_MEMHOSTREGISTER_PORTABLE_DEVICEMAP)) }
        };
        match pin() {
            Ok(()) => Ok(Some(Self(gpu, base))),
            Err(why) => {
                let text = format!("{size} bytes of the host can't be made known to the GPU: {why}");
                Err(fail(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, text))
            }
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.0.enter().is_ok() {
            // SAFETY: made known above, undone once.
            unsafe { (self.0.api.cuMemHostUnregister)(std::ptr::with_exposed_provenance_mut(self.1)) };
        }
    }
}
