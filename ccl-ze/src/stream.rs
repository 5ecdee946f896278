//! Streams: command lists that calls are appended to.

use crate::api::{ze, ze_optional};
use crate::capture;
use crate::event::EventSlot;
use crate::gpu::Gpu;
use crate::recording::Recording;
use crate::sycl::{End, Event, Queue, Work};
use ccl_core::{Error, Result};
use level_zero_sys::*;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What kind of list a stream is.
pub(crate) enum Form {
    /// What is appended is issued, unless the list is being captured.
    Immediate,
    /// What is appended is recorded, and runs each time the list is executed once it is closed.
    Regular(Arc<Recording>),
    /// A SYCL queue, which knows itself whether it records. There is no list.
    OnQueue(Arc<Queue>),
}

/// Streams on SYCL queues, so that a queue is the same stream to all communicators.
static ON_QUEUES: Mutex<Vec<Weak<Stream>>> = Mutex::new(Vec::new());

/// A stream of work on a device: each command begins when the one before has finished.
///
/// On a list of the caller's that isn't in order ([`crate::Communicator::stream_from_raw`]) a call is ordered by its
/// events only, and after the collectives before it.
///
/// Dropping one waits for its work, at most three times `CCLX_TIMEOUT_MS` and ten seconds. A list of the caller's is waited
/// for as well, where calls on it have events that the list still has to look at.
pub struct Stream {
    pub(crate) gpu: Arc<Gpu>,
    list: ze_command_list_handle_t,
    owned: bool,
    pub(crate) form: Form,
    in_order: bool,
    /// Completions that the stream was told to wait for and whose events may not be used again before it has.
    awaited: Mutex<Vec<Arc<EventSlot>>>,
    /// Level Zero wants appends to one list serialised.
    pub(crate) lock: Mutex<()>,
    /// Tells streams apart in the chain of collectives; unlike a handle it is never used again.
    pub(crate) id: u64,
    /// Whether work that this library doesn't know may be on the stream: then nothing says that what follows it ends.
    foreign: AtomicBool,
    /// Whether it was being captured when that was last asked.
    capturing: AtomicBool,
    /// See [`Stream::forget_completions`].
    forgets: AtomicBool,
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
        Ok(Self::of(gpu, list, Form::Immediate, true, true))
    }

    /// A list that is not its own.
    pub(crate) fn recording(gpu: &Arc<Gpu>, list: ze_command_list_handle_t, in_order: bool) -> Stream {
        Self::of(gpu, list, Form::Regular(Recording::new()), in_order, false)
    }

    /// A list of the caller's, of whatever form it says that it has.
    pub(crate) fn wrap(gpu: &Arc<Gpu>, list: ze_command_list_handle_t) -> Result<Stream> {
        let (mut immediate, mut flags) = (0, 0);
        // SAFETY: a live list by the caller's promise, and places for the answers.
        unsafe {
            ze_optional!(gpu.api, zeCommandListIsImmediate(list, &raw mut immediate))?;
            if immediate == 0 {
                ze_optional!(gpu.api, zeCommandListGetFlags(list, &raw mut flags))?;
                return Ok(Self::recording(gpu, list, flags & ZE_COMMAND_LIST_FLAG_IN_ORDER != 0));
            }
            ze_optional!(gpu.api, zeCommandListImmediateGetFlags(list, &raw mut flags))?;
        }
        Ok(Self::of(gpu, list, Form::Immediate, flags & ZE_COMMAND_QUEUE_FLAG_IN_ORDER != 0, false))
    }

    /// A SYCL queue of the caller's.
    ///
    /// # Safety
    /// `queue` is a live `sycl::queue` of the runtime that the process has loaded.
    pub(crate) unsafe fn on_queue(gpu: &Arc<Gpu>, queue: *const c_void) -> Result<Arc<Stream>> {
        let bridge = gpu.bridge()?;
        // SAFETY: passed on to the caller.
        let key = unsafe { Queue::key(bridge, queue) };
        let mut known = ON_QUEUES.lock();
        known.retain(|stream| stream.strong_count() > 0);
        let found = known
            .iter()
            .filter_map(Weak::upgrade)
            .find(|stream| Arc::ptr_eq(&stream.gpu, gpu) && stream.queue().is_some_and(|queue| queue.has_key(key)));
        if let Some(stream) = found {
            return Ok(stream);
        }
        // SAFETY: as above.
        let queue = unsafe { Queue::open(gpu, bridge, queue)? };
        let stream = Arc::new(Self::of(gpu, std::ptr::null_mut(), Form::OnQueue(Arc::new(queue)), true, false));
        known.push(Arc::downgrade(&stream));
        Ok(stream)
    }

    /// The SYCL queue that it is.
    pub(crate) fn queue(&self) -> Option<&Arc<Queue>> {
        match &self.form {
            Form::OnQueue(queue) => Some(queue),
            Form::Immediate | Form::Regular(_) => None,
        }
    }

    /// Of a SYCL queue: from now on nobody asks whether single calls on it have finished. They then need no event of the
    /// runtime's while the device's calls are all on this queue, which costs less. A completion that is asked all the same
    /// tells of all that is on the queue by then.
    pub fn forget_completions(&self) {
        self.forgets.store(true, Ordering::Relaxed);
    }

    /// Whether [`Self::forget_completions`] was called.
    #[inline]
    pub(crate) fn forgets_completions(&self) -> bool {
        self.forgets.load(Ordering::Relaxed)
    }

    /// Fails if it is a SYCL queue: `what` needs a command list.
    pub(crate) fn check_list(&self, what: &str) -> Result<()> {
        match self.queue() {
            None => Ok(()),
            Some(_) => Err(Error::NotImplemented(format!("{what} on a SYCL queue"))),
        }
    }

    fn of(gpu: &Arc<Gpu>, list: ze_command_list_handle_t, form: Form, in_order: bool, owned: bool) -> Stream {
        Stream {
            gpu: gpu.clone(),
            list,
            owned,
            form,
            in_order,
            awaited: Mutex::default(),
            lock: Mutex::new(()),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            foreign: AtomicBool::new(!owned),
            capturing: AtomicBool::new(false),
            forgets: AtomicBool::new(false),
        }
    }

    /// What the chain of collectives knows it by, if what is on it has an order.
    pub(crate) fn order(&self) -> Option<u64> {
        self.in_order.then_some(self.id)
    }

    /// Makes what comes on the stream wait for `event`.
    pub(crate) fn wait_on(&self, event: &Arc<EventSlot>) -> Result<()> {
        self.check_list("a wait for a Level Zero event")?;
        if !self.is_on(event.gpu()) {
            let (own, other) = (self.gpu.index(), event.gpu().index());
            let text = format!("the stream is on device {own}, what it is to wait for on device {other}");
            return Err(Error::InvalidUsage(text));
        }
        // It may join a capture by this, so that from here on it has to be asked.
        self.mark_foreign();
        let mut handle = event.handle;
        {
            let _guard = self.lock.lock();
            // SAFETY: a live list and event; the wait list is only read.
            unsafe { ze!(self.gpu.api, zeCommandListAppendWaitOnEvents(self.list, 1, &raw mut handle))? };
            if !self.in_order {
                let none = std::ptr::null_mut();
                // SAFETY: as above. Nothing else puts what follows behind the wait.
                unsafe { ze!(self.gpu.api, zeCommandListAppendBarrier(self.list, none, 0, std::ptr::null_mut()))? };
            }
        }
        // The wait is on the list, whatever the driver answers.
        let recording = capture::of(self);
        match &recording {
            Ok(Some(recording)) => recording.keep(event.clone()),
            _ if event.is_regular() => self.awaited.lock().push(event.clone()),
            _ => {}
        }
        recording.map(drop)
    }

    /// The command list, for work of the caller's own. Level Zero wants appends to it serialised. Null if the stream is a
    /// SYCL queue.
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

    pub(crate) fn was_capturing(&self) -> bool {
        self.capturing.load(Ordering::Relaxed)
    }

    pub(crate) fn note_capturing(&self, capturing: bool) {
        self.capturing.store(capturing, Ordering::Relaxed);
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Waits until everything on the stream has finished: without a limit if the caller put work of its own there that
    /// never does. A stream that records has nothing to wait for: an error.
    pub fn synchronize(&self) -> Result<()> {
        self.check_issues()?;
        if let Some(queue) = self.queue() {
            return end_of(queue)?.wait_for(&self.gpu, Duration::MAX).map(|_| ());
        }
        let awaited = std::mem::take(&mut *self.awaited.lock());
        // SAFETY: a live list.
        let done = unsafe { ze!(self.gpu.api, zeCommandListHostSynchronize(self.list, u64::MAX)) };
        if done.is_err() {
            self.awaited.lock().extend(awaited);
        }
        done
    }

    /// Fails if what is appended now would be recorded and not run.
    pub(crate) fn check_issues(&self) -> Result<()> {
        match capture::of(self)? {
            None => Ok(()),
            Some(_) => Err(Error::InvalidUsage("the stream records: nothing on it runs before it is replayed".into())),
        }
    }

    /// Waits at most `limit` until everything on the stream has finished; false if it has not by then.
    pub fn synchronize_for(&self, limit: Duration) -> Result<bool> {
        self.check_issues()?;
        if let Some(queue) = self.queue() {
            return end_of(queue)?.wait_for(&self.gpu, limit);
        }
        let awaited = std::mem::take(&mut *self.awaited.lock());
        let api = &self.gpu.api;
        api.count();
        // SAFETY: a live list.
        let done = match unsafe { (api.table.zeCommandListHostSynchronize)(self.list, nanoseconds(limit)) } {
            ZE_RESULT_NOT_READY => Ok(false),
            code => api.check("zeCommandListHostSynchronize", code).map(|()| true),
        };
        if done != Ok(true) {
            self.awaited.lock().extend(awaited);
        }
        done
    }

    /// Waits for the stream where only this library's work is on it: that ends, or the device is broken.
    pub(crate) fn settle(&self) -> Result<()> {
        // On the software driver a wait without a limit saves a switch of threads.
        if self.gpu.api.software && !self.is_foreign() {
            return self.synchronize();
        }
        let after = self.gpu.patience();
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
        if let Some(queue) = self.queue() {
            if !after.is_empty() {
                return self.check_list("a wait for Level Zero events");
            }
            let work = if bytes == 0 { Work::Nothing } else { Work::Copy { to, from, bytes } };
            // SAFETY: the ranges are the caller's duty.
            return unsafe { queue.submit(work, None, End::Untold, false) }.map(drop);
        }
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
        self.check_list("a fill")?;
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

    /// What is on the list may still run: the events that it looks at may neither be used again nor go, nor may the context.
    fn give_up(&mut self) {
        std::mem::forget((std::mem::take(self.awaited.get_mut()), self.gpu.clone()));
    }

    /// Fails if the stream is on another device.
    #[inline]
    pub(crate) fn check_device(&self, gpu: &Arc<Gpu>) -> Result<()> {
        if self.is_on(gpu) { Ok(()) } else { Err(self.on_another(gpu)) }
    }

    /// Whether the stream is on this device.
    #[inline]
    pub(crate) fn is_on(&self, gpu: &Arc<Gpu>) -> bool {
        Arc::ptr_eq(&self.gpu, gpu)
    }

    #[cold]
    fn on_another(&self, gpu: &Gpu) -> Error {
        Error::InvalidUsage(format!(
            "the stream is on device {}, the communicator on device {}",
            self.gpu.index(),
            gpu.index()
        ))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.owned {
            // The caller's list lives on, and with it what it still has to look at.
            if !self.awaited.get_mut().is_empty()
                && let Err(error) = self.settle()
            {
                tracing::error!("events that a list of the caller's waits for are not freed: {error}");
                self.give_up();
            }
            return;
        }
        if let Some(recording) = crate::graph::abandon(self) {
            let awaited = std::mem::take(self.awaited.get_mut());
            recording.keep(Arc::new(CapturedList { gpu: self.gpu.clone(), list: self.list, awaited }));
            return;
        }
        if let Err(error) = self.settle() {
            // A list may not be destroyed under its work.
            tracing::error!("a stream is not freed: {error}");
            self.give_up();
            return;
        }
        // SAFETY: made in `new`, and its work has finished. A failure can't be helped here.
        let _ = unsafe { ze!(self.gpu.api, zeCommandListDestroy(self.list)) };
    }
}

/// The list of a stream that was dropped while another list's capture held it. It goes with what was recorded.
struct CapturedList {
    gpu: Arc<Gpu>,
    list: ze_command_list_handle_t,
    awaited: Vec<Arc<EventSlot>>,
}

// SAFETY: a handle that any thread may use, and nobody else has.
unsafe impl Send for CapturedList {}
// SAFETY: as above.
unsafe impl Sync for CapturedList {}

impl Drop for CapturedList {
    fn drop(&mut self) {
        let (api, limit) = (&*self.gpu.api, nanoseconds(self.gpu.patience()));
        // What came before the capture may still run. The capture is over.
        // SAFETY: a live list; made in `Stream::new`, and destroyed once its work has finished.
        let destroyed = unsafe {
            ze!(api, zeCommandListHostSynchronize(self.list, limit))
                .and_then(|()| ze!(api, zeCommandListDestroy(self.list)))
        };
        if let Err(error) = destroyed {
            tracing::error!("a stream that was captured is not freed: {error}");
            // Nor its context: see `Stream::give_up`.
            std::mem::forget((std::mem::take(&mut self.awaited), self.gpu.clone()));
        }
    }
}

/// The event of everything that is on a queue.
fn end_of(queue: &Arc<Queue>) -> Result<Event> {
    let event = queue.event();
    // SAFETY: it names no memory.
    unsafe { queue.submit(Work::Nothing, None, End::Own(&event), false)? };
    Ok(event)
}

/// A limit for a driver's wait, never the value that means none.
pub(crate) fn nanoseconds(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX - 1)
}
