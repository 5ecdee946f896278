//! Streams: in-order immediate command lists.

use crate::api::ze;
use crate::gpu::Gpu;
use ccl_core::{Error, Result};
use level_zero_sys::*;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An ordered stream of work on a device: each command begins when the one before has finished.
pub struct Stream {
    pub(crate) gpu: Arc<Gpu>,
    list: ze_command_list_handle_t,
    owned: bool,
    /// Level Zero wants appends to one list serialised.
    pub(crate) lock: Mutex<()>,
    /// Tells streams apart in the chain of collectives; unlike a handle it is never used again.
    pub(crate) id: u64,
}

// SAFETY: a handle that any thread may use; appends are serialised by `lock`.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream on one of the device's compute queues: 0 is the first, and others run beside it where the device has
    /// them.
    pub(crate) fn new(gpu: &Arc<Gpu>, queue: usize) -> Result<Stream> {
        let ordinal = gpu.ordinals[queue % gpu.ordinals.len()];
        let desc = ze_command_queue_desc_t {
            ordinal,
            flags: ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
            mode: ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            ..Default::default()
        };
        let mut list = std::ptr::null_mut();
        // SAFETY: live context and device; descriptor and output outlive the call.
        unsafe {
            ze!(gpu.api, zeCommandListCreateImmediate(gpu.context, gpu.device, &raw const desc, &raw mut list))?;
        }
        Ok(Self::wrap(gpu, list, true))
    }

    pub(crate) fn wrap(gpu: &Arc<Gpu>, list: ze_command_list_handle_t, owned: bool) -> Stream {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Stream { gpu: gpu.clone(), list, owned, lock: Mutex::new(()), id }
    }

    /// The command list, for work of the caller's own. Level Zero wants appends to it serialised.
    pub fn raw(&self) -> ze_command_list_handle_t {
        self.list
    }

    /// Waits until everything on the stream has finished.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: a live list.
        unsafe { ze!(self.gpu.api, zeCommandListHostSynchronize(self.list, u64::MAX)) }
    }

    /// Appends a copy of `bytes` bytes.
    ///
    /// # Safety
    /// Both ranges must be valid until the stream has done this.
    pub unsafe fn copy(&self, to: *mut c_void, from: *const c_void, bytes: usize) -> Result<()> {
        let _guard = self.lock.lock();
        // SAFETY: a live list; the ranges are the caller's duty.
        unsafe {
            ze!(
                self.gpu.api,
                zeCommandListAppendMemoryCopy(
                    self.list,
                    to,
                    from,
                    bytes,
                    std::ptr::null_mut(),
                    0,
                    std::ptr::null_mut()
                )
            )
        }
    }

    /// Appends a fill with a byte, after the events in `after`.
    ///
    /// # Safety
    /// The range must be valid until the stream has done this, and the events live.
    pub unsafe fn fill(&self, to: *mut c_void, byte: u8, bytes: usize, after: &[ze_event_handle_t]) -> Result<()> {
        let _guard = self.lock.lock();
        // SAFETY: a live list; range and events are the caller's duty; the wait list is only read.
        unsafe {
            ze!(
                self.gpu.api,
                zeCommandListAppendMemoryFill(
                    self.list,
                    to,
                    (&raw const byte).cast(),
                    1,
                    bytes,
                    std::ptr::null_mut(),
                    after.len() as u32,
                    after.as_ptr().cast_mut()
                )
            )
        }
    }

    /// Fails if the stream is on another device.
    pub(crate) fn check_device(&self, gpu: &Arc<Gpu>) -> Result<()> {
        if Arc::ptr_eq(&self.gpu, gpu) {
            return Ok(());
        }
        Err(Error::InvalidUsage(format!(
            "the stream is on device {}, the communicator on device {}",
            self.gpu.index(),
            gpu.index()
        )))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: made in `new`; its work is waited for, since a list may not be destroyed under it.
            unsafe {
                let _ = ze!(self.gpu.api, zeCommandListHostSynchronize(self.list, u64::MAX));
                let _ = ze!(self.gpu.api, zeCommandListDestroy(self.list));
            }
        }
    }
}
