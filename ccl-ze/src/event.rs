//! Completion events and the pool that hands them out without allocating.

use crate::api::{ze, ze_optional};
use crate::gpu::Gpu;
use crate::stream::nanoseconds;
use crate::sycl;
use ccl_core::{Error, Result};
use level_zero_sys::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Events that a communicator starts with; more are made when so many completions are held at once.
pub(crate) const FIRST_EVENTS: u32 = 16;
/// How often a waiter looks up to see whether it should give up.
pub(crate) const SLICE: Duration = Duration::from_millis(10);

struct Pool {
    gpu: Arc<Gpu>,
    handle: ze_event_pool_handle_t,
}

// SAFETY: a handle that Level Zero lets any thread use.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: its events hold an `Arc` of this and so are gone.
        let _ = unsafe { ze!(self.gpu.api, zeEventPoolDestroy(self.handle)) };
    }
}

/// One event. Whoever holds an `Arc` of it keeps it from being used for another call.
pub(crate) struct EventSlot {
    gpu: Arc<Gpu>,
    pub(crate) handle: ze_event_handle_t,
    /// Of regular events; others have no pool.
    _pool: Option<Arc<Pool>>,
    /// Of calls on SYCL queues, instead of a handle.
    queue: Option<sycl::Event>,
    /// Its latest call's number in the device's chain; 0 before the first.
    number: AtomicU64,
    /// Whether that call has nothing but collectives before it, so that it ends by itself.
    bounded: AtomicBool,
}

// SAFETY: a handle that Level Zero lets any thread use.
unsafe impl Send for EventSlot {}
// SAFETY: as above.
unsafe impl Sync for EventSlot {}

impl EventSlot {
    /// Its call was issued under this number.
    #[inline]
    pub(crate) fn issued(&self, number: u64, bounded: bool) {
        self.number.store(number, Ordering::Relaxed);
        self.bounded.store(bounded, Ordering::Relaxed);
    }

    /// The device whose call it tells of.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.bounded.load(Ordering::Relaxed)
    }

    /// Waits for its call, or until `give_up` says so: false then.
    pub(crate) fn wait_unless(&self, give_up: &mut dyn FnMut() -> bool) -> Result<bool> {
        let number = self.number();
        if self.gpu.api.software && self.is_bounded() && self.queue.is_none() {
            // On the software driver a wait without a limit executes the call on this thread, which saves a switch; it
            // ends, since the kernel's own waits do.
            // SAFETY: a live event.
            unsafe { ze!(self.gpu.api, zeEventHostSynchronize(self.handle, u64::MAX))? };
            self.gpu.finished.note(number);
            return Ok(true);
        }
        while !self.wait_for(SLICE)? {
            if give_up() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits at most as long as unfinished calls are worth waiting for at the end; false if this one isn't finished by
    /// then. A failing driver has finished for good; of a queue that can't be asked nothing is known: an error at once.
    pub(crate) fn ends(&self) -> Result<bool> {
        let since = Instant::now();
        self.ends_unless(&mut || since.elapsed() > self.gpu.patience())
    }

    fn ends_unless(&self, give_up: &mut dyn FnMut() -> bool) -> Result<bool> {
        let outcome = self.wait_unless(give_up);
        if self.queue.is_some() { outcome } else { Ok(outcome.unwrap_or(true)) }
    }

    /// Whether it [`Self::ends`]; what isn't known to have ended hasn't.
    pub(crate) fn wait_at_end(&self) -> bool {
        is_known(self.ends())
    }

    /// The same until then.
    pub(crate) fn is_over_by(&self, deadline: Instant) -> bool {
        is_known(self.ends_unless(&mut || Instant::now() > deadline))
    }

    /// Waits for its call, whose kernel gives up in time if the other ranks don't come.
    pub(crate) fn settle(&self) -> Result<()> {
        self.settle_unless(&|| false).map(|_| ())
    }

    /// The same as long as `failed` doesn't say that the wait is for nothing: false then.
    pub(crate) fn settle_unless(&self, failed: &dyn Fn() -> bool) -> Result<bool> {
        let since = Instant::now();
        if self.ends_unless(&mut || failed() || since.elapsed() > self.gpu.patience())? {
            return Ok(true);
        }
        if failed() {
            return Ok(false);
        }
        let what = format!("a collective before this one on device {} does not end", self.gpu.index());
        Err(Error::Timeout { after: self.gpu.patience(), what })
    }

    /// Waits at most `limit`; false if the event isn't signalled by then.
    pub(crate) fn wait_for(&self, limit: Duration) -> Result<bool> {
        let number = self.number();
        if let Some(event) = &self.queue {
            let finished = event.wait_for(&self.gpu, limit)?;
            if finished {
                self.gpu.finished.note(number);
            }
            return Ok(finished);
        }
        let api = &self.gpu.api;
        api.count();
        // SAFETY: a live event.
        match unsafe { (api.table.zeEventHostSynchronize)(self.handle, nanoseconds(limit)) } {
            ZE_RESULT_NOT_READY => Ok(false),
            code => {
                api.check("zeEventHostSynchronize", code)?;
                self.gpu.finished.note(number);
                Ok(true)
            }
        }
    }

    /// The event of a call on a SYCL queue.
    pub(crate) fn on_queue(&self) -> Option<&sycl::Event> {
        self.queue.as_ref()
    }

    pub(crate) fn is_signalled(&self) -> Result<bool> {
        if let Some(event) = &self.queue {
            return event.is_finished(&self.gpu);
        }
        let api = &self.gpu.api;
        api.count();
        // SAFETY: a live event.
        match unsafe { (api.table.zeEventQueryStatus)(self.handle) } {
            ZE_RESULT_NOT_READY => Ok(false),
            code => api.check("zeEventQueryStatus", code).map(|()| true),
        }
    }
}

/// Whether a call has ended as far as is known.
fn is_known(ended: Result<bool>) -> bool {
    ended.unwrap_or_else(|error| {
        tracing::warn!("a call counts as unfinished: {error}");
        false
    })
}

impl Drop for EventSlot {
    fn drop(&mut self) {
        if self.queue.is_some() {
            return;
        }
        // SAFETY: nobody holds it any more, and the last work that uses it has finished: its endpoint saw to that.
        let _ = unsafe { ze!(self.gpu.api, zeEventDestroy(self.handle)) };
    }
}

/// What events are made for.
pub(crate) enum Make {
    /// Lists in order.
    Counter,
    /// Any list.
    Regular,
    /// SYCL queues, with what counts the calls there.
    OnQueue(&'static sycl::Bridge, Arc<dyn sycl::Counts>),
}

/// A communicator's events, taken in turn.
pub(crate) struct Events {
    gpu: Arc<Gpu>,
    make: Make,
    slots: Vec<Arc<EventSlot>>,
    next: usize,
}

impl Events {
    /// Makes none yet.
    pub(crate) fn new(gpu: &Arc<Gpu>, counter: bool) -> Events {
        let make = if counter { Make::Counter } else { Make::Regular };
        Events { gpu: gpu.clone(), make, slots: Vec::new(), next: 0 }
    }

    /// The same for calls on SYCL queues, which `counts` counts.
    pub(crate) fn on_queues(gpu: &Arc<Gpu>, bridge: &'static sycl::Bridge, counts: Arc<dyn sycl::Counts>) -> Events {
        Events { gpu: gpu.clone(), make: Make::OnQueue(bridge, counts), slots: Vec::new(), next: 0 }
    }

    /// Makes `count` more.
    pub(crate) fn grow(&mut self, count: u32) -> Result<()> {
        let gpu = &self.gpu;
        let pool = match self.make {
            Make::Regular => Some(Arc::new(regular_pool(gpu, count)?)),
            Make::Counter | Make::OnQueue(..) => None,
        };
        for index in 0..count {
            let slot = match (&pool, &self.make) {
                (Some(pool), _) => EventSlot::regular(gpu, pool, index)?,
                (None, Make::OnQueue(bridge, counts)) => {
                    EventSlot::of_queue(gpu, sycl::Event::new(bridge, Some(counts.clone())))
                }
                (None, _) => EventSlot::counter(gpu, true)?,
            };
            self.slots.push(slot);
        }
        Ok(())
    }

    /// Waits for every call that was given one of these events, as long as that is worth it; false if one is left.
    pub(crate) fn finish(&self) -> bool {
        // The latest call's first: those before it on the device have finished then, and need no event to tell.
        let latest = self.slots.iter().max_by_key(|slot| slot.number());
        latest.into_iter().chain(&self.slots).all(|slot| self.gpu.finished.has(slot) || slot.wait_at_end())
    }

    /// Those whose call is not known to have finished.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = Arc<EventSlot>> {
        self.slots.iter().filter(|slot| !self.gpu.finished.has(slot)).cloned()
    }

    /// For a device that is only pretended: nothing is unfinished.
    pub(crate) fn presume_finished(&self) {
        self.slots.iter().for_each(|slot| self.gpu.finished.note(slot.number()));
    }

    /// Never destroys the events: work that uses them is unfinished.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.slots));
    }

    /// Whether `event` is one of these.
    pub(crate) fn has(&self, event: &Arc<EventSlot>) -> bool {
        self.slots.iter().any(|slot| Arc::ptr_eq(slot, event))
    }

    /// An event that nobody holds and no unfinished call signals, ready for the next call.
    pub(crate) fn take(&mut self) -> Result<Arc<EventSlot>> {
        loop {
            for _ in 0..self.slots.len() {
                let slot = &self.slots[self.next];
                self.next = (self.next + 1) % self.slots.len();
                if Arc::strong_count(slot) > 1 {
                    continue;
                }
                if !matches!(self.make, Make::Regular) {
                    // What waits on it captured its value, or the event itself, so it can be used again at once.
                    return Ok(slot.clone());
                }
                if self.gpu.finished.has(slot) || slot.is_signalled()? {
                    self.gpu.finished.note(slot.number());
                    // SAFETY: its call has finished, and whoever waits on it would hold it.
                    unsafe { ze!(self.gpu.api, zeEventHostReset(slot.handle))? };
                    return Ok(slot.clone());
                }
            }
            if self.slots.len() >= 1 << 16 {
                return Err(Error::InvalidUsage(format!("{} completions are held or unfinished", self.slots.len())));
            }
            self.grow((self.slots.len() as u32).max(FIRST_EVENTS))?;
        }
    }
}

impl EventSlot {
    fn new(gpu: &Arc<Gpu>, handle: ze_event_handle_t, pool: Option<Arc<Pool>>) -> Arc<EventSlot> {
        let (number, bounded) = (AtomicU64::new(0), AtomicBool::new(true));
        Arc::new(EventSlot { gpu: gpu.clone(), handle, _pool: pool, queue: None, number, bounded })
    }

    fn of_queue(gpu: &Arc<Gpu>, event: sycl::Event) -> Arc<EventSlot> {
        let (number, bounded) = (AtomicU64::new(0), AtomicBool::new(false));
        let handle = std::ptr::null_mut();
        Arc::new(EventSlot { gpu: gpu.clone(), handle, _pool: None, queue: Some(event), number, bounded })
    }

    /// A counter-based event.
    ///
    /// `crosses`: work that is captured may wait for it although it is signalled outside the graph.
    pub(crate) fn counter(gpu: &Arc<Gpu>, crosses: bool) -> Result<Arc<EventSlot>> {
        let plain = ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
            | ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE
            | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE;
        if crosses && gpu.api.table.zeGraphCreateExt.is_some() {
            let made = Self::counter_with(gpu, plain | ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL);
            // A driver from before graphs, under a loader that knows them, doesn't know the flag.
            if made.is_ok() {
                return made;
            }
        }
        Self::counter_with(gpu, plain)
    }

    fn counter_with(gpu: &Arc<Gpu>, flags: ze_event_counter_based_flags_t) -> Result<Arc<EventSlot>> {
        let (signal, wait) = (ZE_EVENT_SCOPE_FLAG_HOST, ZE_EVENT_SCOPE_FLAG_HOST);
        let desc = ze_event_counter_based_desc_t { flags, signal, wait, ..Default::default() };
        let mut handle = std::ptr::null_mut();
        // SAFETY: live context and device; descriptor and output outlive the call.
        unsafe {
            ze_optional!(
                gpu.api,
                zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, &raw mut handle)
            )?;
        }
        Ok(Self::new(gpu, handle, None))
    }

    /// A regular event that is signalled, so that a fresh one looks like one whose call has finished.
    fn regular(gpu: &Arc<Gpu>, pool: &Arc<Pool>, index: u32) -> Result<Arc<EventSlot>> {
        let scope = ZE_EVENT_SCOPE_FLAG_HOST;
        let desc = ze_event_desc_t { index, signal: scope, wait: scope, ..Default::default() };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live pool with room for the index; descriptor and output outlive the call.
        unsafe { ze!(gpu.api, zeEventCreate(pool.handle, &raw const desc, &raw mut handle))? };
        let slot = Self::new(gpu, handle, Some(pool.clone()));
        // SAFETY: a new event.
        unsafe { ze!(gpu.api, zeEventHostSignal(handle))? };
        Ok(slot)
    }

    /// A regular event that a recording signals and nobody resets: what it must not use (`hooks::STALE_EVENT`).
    pub(crate) fn stale(gpu: &Arc<Gpu>) -> Result<Arc<EventSlot>> {
        let slot = Self::regular(gpu, &Arc::new(regular_pool(gpu, 1)?), 0)?;
        // SAFETY: a live event that no work refers to.
        unsafe { ze!(gpu.api, zeEventHostReset(slot.handle))? };
        Ok(slot)
    }

    /// Whether work that waits on it reads its state when it runs, so that it may not be used again before.
    pub(crate) fn is_regular(&self) -> bool {
        self._pool.is_some()
    }

    /// Undoes [`Events::take`] where nothing was appended that would signal it.
    pub(crate) fn give_back(&self) {
        if self._pool.is_some() {
            // SAFETY: a live event that no work refers to. A failure can't be helped; the append's error is told.
            let _ = unsafe { ze!(self.gpu.api, zeEventHostSignal(self.handle)) };
        }
    }
}

/// How many events a call waits for without an allocation.
const FEW: usize = 16;

/// Calls `with` with the events in `after` and one more, where there is one.
#[inline(always)]
pub(crate) fn with_one_more<R>(
    after: &[ze_event_handle_t],
    more: Option<&Arc<EventSlot>>,
    with: impl FnOnce(&[ze_event_handle_t]) -> R,
) -> R {
    match more {
        None => with(after),
        Some(more) => with_another(after, more, with),
    }
}

#[inline(never)]
fn with_another<R>(
    after: &[ze_event_handle_t],
    more: &Arc<EventSlot>,
    with: impl FnOnce(&[ze_event_handle_t]) -> R,
) -> R {
    let mut few = [std::ptr::null_mut(); FEW];
    let mut many = Vec::new();
    let all = match few.get_mut(..=after.len()) {
        Some(few) => few,
        None => {
            many.resize(after.len() + 1, std::ptr::null_mut());
            &mut many[..]
        }
    };
    all[..after.len()].copy_from_slice(after);
    all[after.len()] = more.handle;
    with(all)
}

fn regular_pool(gpu: &Arc<Gpu>, count: u32) -> Result<Pool> {
    let desc = ze_event_pool_desc_t { flags: ZE_EVENT_POOL_FLAG_HOST_VISIBLE, count, ..Default::default() };
    let mut handle = std::ptr::null_mut();
    let mut device = gpu.device;
    // SAFETY: live context and device; descriptor and output outlive the call.
    unsafe { ze!(gpu.api, zeEventPoolCreate(gpu.context, &raw const desc, 1, &raw mut device, &raw mut handle))? };
    Ok(Pool { gpu: gpu.clone(), handle })
}
