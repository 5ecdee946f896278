//! Events of the SYCL runtime.

use super::bridge::Bridge;
use super::queue::Queue;
use crate::gpu::Gpu;
use ccl_core::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks at an event that is waited for.
const PAUSE: Duration = Duration::from_micros(50);

/// A `sycl::event`, by its bytes.
#[repr(C)]
#[derive(Default)]
pub(super) struct RawEvent {
    words: [u64; 2],
}

/// The place of an event, which is made anew by each submission that is given it.
pub(crate) struct Event {
    bridge: &'static Bridge,
    pub(super) place: Mutex<Place>,
}

#[derive(Default)]
pub(super) struct Place {
    raw: RawEvent,
    there: bool,
    /// The queue that a submission without an event was made to last; kept for the next one.
    queue: Option<Arc<Queue>>,
    /// Whether the latest submission is that one, and the event not made yet.
    behind: bool,
}

impl Place {
    /// The event, if there is one.
    pub(super) fn get(&self) -> Option<*const RawEvent> {
        self.there.then_some(&raw const self.raw)
    }

    /// Has `make` make an event here, in place of the old one if it does: then true.
    pub(super) fn renew(&mut self, bridge: &Bridge, make: impl FnOnce(*mut RawEvent) -> Result<bool>) -> Result<bool> {
        let mut fresh = RawEvent::default();
        if !make(&raw mut fresh)? {
            return Ok(false);
        }
        self.close(bridge);
        (self.raw, self.there, self.behind) = (fresh, true, false);
        Ok(true)
    }

    /// Takes note of a submission to `queue` without an event.
    pub(super) fn set_behind(&mut self, bridge: &Bridge, queue: &Arc<Queue>) {
        self.close(bridge);
        self.behind = true;
        if !self.queue.as_ref().is_some_and(|known| Arc::ptr_eq(known, queue)) {
            self.queue = Some(queue.clone());
        }
    }

    /// Makes the event of a submission that has none; false if its queue records, so that none can be had.
    fn make(&mut self, bridge: &Bridge) -> Result<bool> {
        match self.queue.clone().filter(|_| self.behind) {
            Some(queue) => self.renew(bridge, |place| queue.mark(place)),
            None => Ok(true),
        }
    }

    /// Whether the driver itself records its queue.
    fn is_captured(&self, gpu: &Arc<Gpu>) -> Result<bool> {
        self.queue.as_ref().map_or(Ok(false), |queue| Ok(queue.captured(gpu)?.is_some()))
    }

    fn close(&mut self, bridge: &Bridge) {
        if std::mem::take(&mut self.there) {
            // SAFETY: a live event that was made here, and that nobody refers to by its place.
            unsafe { (bridge.functions.event_close)(&raw mut self.raw) };
        }
    }
}

impl Event {
    pub(crate) fn new(bridge: &'static Bridge) -> Event {
        Event { bridge, place: Mutex::default() }
    }

    /// Whether it is there already.
    pub(crate) fn is_made(&self) -> bool {
        !self.place.lock().behind
    }

    /// Makes sure that other submissions can be told to wait for it; false if they can't: its queue records, and what runs
    /// there was submitted without an event. An error if not even the host could wait for that.
    pub(crate) fn can_be_awaited(&self, gpu: &Arc<Gpu>) -> Result<bool> {
        let mut place = self.place.lock();
        if place.make(self.bridge)? {
            return Ok(true);
        }
        if place.is_captured(gpu)? {
            return Err(Error::NotImplemented(
                "the first call on a second SYCL queue while the driver records the first one: make it before or after"
                    .into(),
            ));
        }
        Ok(false)
    }

    /// Whether what it was made by has finished; also before the first time.
    pub(crate) fn is_finished(&self, gpu: &Arc<Gpu>) -> Result<bool> {
        let mut place = self.place.lock();
        if !place.make(self.bridge)? {
            // A list that is captured can't be asked.
            let told = !place.is_captured(gpu)?;
            return Ok(told && place.queue.as_ref().map_or(Ok(true), |queue| queue.is_idle())?);
        }
        let Some(event) = place.get() else { return Ok(true) };
        let mut finished = 0;
        // SAFETY: a live event, and a place for the answer.
        let code = unsafe { (self.bridge.functions.event_finished)(event, &raw mut finished) };
        self.bridge.check("sycl::event::get_info", code)?;
        Ok(finished != 0)
    }

    /// Waits at most `limit`; false if it has not finished by then.
    pub(crate) fn wait_for(&self, gpu: &Arc<Gpu>, limit: Duration) -> Result<bool> {
        let since = Instant::now();
        while !self.is_finished(gpu)? {
            if since.elapsed() >= limit {
                return Ok(false);
            }
            std::thread::sleep(PAUSE.min(limit));
        }
        Ok(true)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.place.get_mut().close(self.bridge);
    }
}
