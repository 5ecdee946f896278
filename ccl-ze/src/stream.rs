//! Streams: in-order immediate command lists.

use crate::api::ze;
use crate::gpu::Gpu;
use ccl_core::{Error, Result};
use level_zero_sys::*;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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
    /// Whether work that this library doesn't know may be on the stream: then nothing says that what follows it ends.
    foreign: AtomicBool,
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
        Stream { gpu: gpu.clone(), list, owned, lock: Mutex::new(()), id, foreign: AtomicBool::new(!owned) }
    }

    /// The command list, for work of the caller's own. Level Zero wants appends to it serialised.
    pub fn raw(&self) -> ze_command_list_handle_t {
        self.mark_foreign();
        self.list
    }

    pub(crate) fn list(&self) -> ze_command_list_handle_t {
        self.list
    }

    pub(crate) fn mark_foreign(&self) {
        self.foreign.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Waits until everything on the stream has finished: without a limit if the caller put work of its own there that
    /// never does.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: a live list.
        unsafe { ze!(self.gpu.api, zeCommandListHostSynchronize(self.list, u64::MAX)) }
    }

    /// Waits at most `limit` until everything on the stream has finished; false if it has not by then.
    pub fn synchronize_for(&self, limit: Duration) -> Result<bool> {
        let api = &self.gpu.api;
        api.count();
        // SAFETY: a live list.
        match unsafe { (api.table.zeCommandListHostSynchronize)(self.list, nanoseconds(limit)) } {
            ZE_RESULT_NOT_READY => Ok(false),
            code => api.check("zeCommandListHostSynchronize", code).map(|()| true),
        }
    }

    /// Waits for the stream where only this library's work is on it: that ends, or the device is broken.
    pub(crate) fn settle(&self) -> Result<()> {
        // On the software driver a wait without a limit saves a switch of threads.
        if self.gpu.api.software && !self.is_foreign() {
            return self.synchronize();
        }
        let after = self.gpu.patience;
        if self.synchronize_for(after)? {
            return Ok(());
        }
        Err(Error::Timeout { after, what: format!("a copy or fill on device {} does not end", self.gpu.index()) })
    }

    /// Appends a copy of `bytes` bytes, after the events in `after`.
    ///
    /// # Safety
    /// Both ranges must be valid until the stream has done this, and the events live.
    pub unsafe fn copy(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        after: &[ze_event_handle_t],
    ) -> Result<()> {
        if !after.is_empty() {
            self.mark_foreign();
        }
        // SAFETY: passed on to the caller.
        unsafe { self.append_copy(to, from, bytes, after) }
    }

    /// The same where whoever calls knows whether the events come.
    ///
    /// # Safety
    /// As for [`Stream::copy`].
    pub(crate) unsafe fn append_copy(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        after: &[ze_event_handle_t],
    ) -> Result<()> {
        let _guard = self.lock.lock();
        let (none, waits) = (std::ptr::null_mut(), after.len() as u32);
        let wait_list = after.as_ptr().cast_mut();
        // SAFETY: a live list; ranges and events are the caller's duty; the wait list is only read.
        unsafe { ze!(self.gpu.api, zeCommandListAppendMemoryCopy(self.list, to, from, bytes, none, waits, wait_list)) }
    }

    /// Appends a fill with a byte, after the events in `after`.
    ///
    /// # Safety
    /// The range must be valid until the stream has done this, and the events live.
    pub unsafe fn fill(&self, to: *mut c_void, byte: u8, bytes: usize, after: &[ze_event_handle_t]) -> Result<()> {
        if !after.is_empty() {
            self.mark_foreign();
        }
        let _guard = self.lock.lock();
        let (none, waits) = (std::ptr::null_mut(), after.len() as u32);
        let (pattern, wait_list) = ((&raw const byte).cast(), after.as_ptr().cast_mut());
        // SAFETY: a live list; range and events are the caller's duty; the wait list is only read.
        unsafe {
            ze!(self.gpu.api, zeCommandListAppendMemoryFill(self.list, to, pattern, 1, bytes, none, waits, wait_list))
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
        if !self.owned {
            return;
        }
        if let Err(error) = self.settle() {
            // A list may not be destroyed under its work.
            tracing::error!("a stream is not freed: {error}");
            return;
        }
        // SAFETY: made in `new`, and its work has finished. A failure can't be helped here.
        let _ = unsafe { ze!(self.gpu.api, zeCommandListDestroy(self.list)) };
    }
}

/// A limit for a driver's wait, never the value that means none.
pub(crate) fn nanoseconds(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX - 1)
}
