//! Events of the SYCL runtime.

use super::bridge::Bridge;
use super::queue::Queue;
use crate::capture;
use crate::gpu::Gpu;
use crate::recording::Recording;
use crate::stream::Stream;
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

/// What a device counts the calls of a communicator by.
pub(crate) trait Counts: Send + Sync {
    /// Whether the device has done call `number` and all before it; `None` if that isn't known, because replays may have been
    /// counted with them. `recording` says what the call's queue records for now: that was not replayed yet.
    fn has_done(
        &self,
        number: u64,
        recording: &mut dyn FnMut() -> Result<Option<Arc<Recording>>>,
    ) -> Result<Option<bool>>;
}

/// The place of an event, which is made anew by each submission that is given it.
pub(crate) struct Event {
    bridge: &'static Bridge,
    pub(super) place: Mutex<Place>,
    counts: Option<Arc<dyn Counts>>,
    /// Where that lies; only compared.
    counted_by: *const (),
}

// SAFETY: the address is never followed.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

#[derive(Default)]
pub(super) struct Place {
    raw: RawEvent,
    there: bool,
    /// The queue that a submission without an event was made to last; kept for the next one.
    queue: Option<Arc<Queue>>,
    /// Whether the latest submission is that one, and the event not made yet.
    behind: bool,
    /// That submission's number as the device counts it; 0 if it doesn't.
    pub(super) number: u64,
}

impl Place {
    /// Whether the latest submission was to `queue` and without an event, and none was made since.
    #[inline]
    pub(super) fn is_behind(&self, queue: &Arc<Queue>) -> bool {
        self.behind && self.queue.as_ref().is_some_and(|known| Arc::ptr_eq(known, queue))
    }

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
    #[inline]
    pub(super) fn set_behind(&mut self, bridge: &Bridge, queue: &Arc<Queue>, number: u64) {
        self.close(bridge);
        (self.behind, self.number) = (true, number);
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

    /// The command list of its queue, if the driver itself records that.
    fn captured(&self, gpu: &Arc<Gpu>) -> Result<Option<Arc<Stream>>> {
        self.queue.as_ref().map_or(Ok(None), |queue| queue.captured(gpu))
    }

    fn close(&mut self, bridge: &Bridge) {
        if std::mem::take(&mut self.there) {
            // SAFETY: a live event that was made here, and that nobody refers to by its place.
            unsafe { (bridge.functions.event_close)(&raw mut self.raw) };
        }
    }
}

impl Event {
    /// `counts` counts the calls that it is given to.
    pub(crate) fn new(bridge: &'static Bridge, counts: Option<Arc<dyn Counts>>) -> Event {
        let counted_by = counts.as_ref().map_or(std::ptr::null(), |counts| Arc::as_ptr(counts).cast());
        Event { bridge, place: Mutex::default(), counts, counted_by }
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
        if place.captured(gpu)?.is_some() {
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
            return match place.captured(gpu)? {
                Some(list) => self.is_counted(place.number, &list),
                None => match &place.queue {
                    Some(queue) if !queue.is_idle()? => {
                        self.was_counted(place.number, &mut || Ok(None)).map(|done| done == Some(true))
                    }
                    _ => Ok(true),
                },
            };
        }
        let Some(event) = place.get() else { return Ok(true) };
        let mut finished = 0;
        // SAFETY: a live event, and a place for the answer.
        let code = unsafe { (self.bridge.functions.event_finished)(event, &raw mut finished) };
        self.bridge.check("sycl::event::get_info", code)?;
        Ok(finished != 0)
    }

    /// The same while the driver captures `list`: that can't be asked, but the device counts.
    #[cold]
    fn is_counted(&self, number: u64, list: &Stream) -> Result<bool> {
        let done = self.was_counted(number, &mut || capture::of(list))?;
        done.ok_or_else(|| {
            Error::NotImplemented(
                "to tell whether earlier calls on a SYCL queue have finished while the driver records it: end the recording \
                 first"
                    .into(),
            )
        })
    }

    /// Whether the device has counted submission `number`, if that is known; `recording` as for [`Counts::has_done`].
    #[cold]
    fn was_counted(
        &self,
        number: u64,
        recording: &mut dyn FnMut() -> Result<Option<Arc<Recording>>>,
    ) -> Result<Option<bool>> {
        let done = match &self.counts {
            Some(counts) if number > 0 => counts.has_done(number, recording)?,
            _ => None,
        };
        if done == Some(true) {
            // The kernel says so before its very last instruction.
            std::thread::sleep(PAUSE);
        }
        Ok(done)
    }

    /// Whether `counts` counts what it is given to.
    #[inline]
    pub(crate) fn is_counted_by(&self, counts: &impl Counts) -> bool {
        std::ptr::addr_eq(self.counted_by, counts)
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
