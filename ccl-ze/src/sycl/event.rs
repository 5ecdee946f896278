//! Events of the SYCL runtime.

use super::bridge::Bridge;
use ccl_core::Result;
use parking_lot::Mutex;
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
        let mut old = std::mem::replace(&mut self.raw, fresh);
        if std::mem::replace(&mut self.there, true) {
            // SAFETY: an event that was made here, and that nobody refers to by its place.
            unsafe { (bridge.functions.event_close)(&raw mut old) };
        }
        Ok(true)
    }
}

impl Event {
    pub(crate) fn new(bridge: &'static Bridge) -> Event {
        Event { bridge, place: Mutex::default() }
    }

    /// Whether what it was made by has finished; also before the first time.
    pub(crate) fn is_finished(&self) -> Result<bool> {
        let place = self.place.lock();
        let Some(event) = place.get() else { return Ok(true) };
        let mut finished = 0;
        // SAFETY: a live event, and a place for the answer.
        let code = unsafe { (self.bridge.functions.event_finished)(event, &raw mut finished) };
        self.bridge.check("sycl::event::get_info", code)?;
        Ok(finished != 0)
    }

    /// Waits at most `limit`; false if it has not finished by then.
    pub(crate) fn wait_for(&self, limit: Duration) -> Result<bool> {
        let since = Instant::now();
        while !self.is_finished()? {
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
        let place = self.place.get_mut();
        if place.there {
            // SAFETY: a live event that goes with its place.
            unsafe { (self.bridge.functions.event_close)(&raw mut place.raw) };
        }
    }
}
