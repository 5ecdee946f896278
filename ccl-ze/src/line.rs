//! The line in which communicators that a process makes at the same time wait for their device.

use ccl_core::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A place in the line. Communicators that were asked for by one thread, and share a device, try their lines out one after
/// the other in the order in which they were asked for: at once, they would wait for one another where the ranks' devices
/// take them in different orders. The same goes for what is split off one parent, whichever thread asks. Ranks learn of
/// each other before that, and those on other devices pass.
///
/// Dropped when the communicator is made, or not going to be.
pub struct PlaceInLine {
    number: u64,
}

struct Entry {
    number: u64,
    thread: ThreadId,
    /// The name of what it is split off, if it is.
    parent: Option<u32>,
    /// None until it is known.
    device: Option<usize>,
}

struct Line {
    next: u64,
    waiting: Vec<Entry>,
    /// When the line last moved.
    moved: Option<Instant>,
}

static LINE: Mutex<Line> = Mutex::new(Line { next: 0, waiting: Vec::new(), moved: None });
static MOVED: Condvar = Condvar::new();

impl PlaceInLine {
    /// The last place of the line, for what the calling thread asks for; `parent` is the name of the communicator that it is
    /// split off.
    pub fn take(parent: Option<u32>) -> PlaceInLine {
        let mut line = LINE.lock();
        let number = line.next;
        line.next += 1;
        line.waiting.push(Entry { number, thread: std::thread::current().id(), parent, device: None });
        PlaceInLine { number }
    }

    /// Its device is known: whoever waits for another need not wait for this.
    pub fn on_device(&self, device: usize) {
        if let Some(own) = LINE.lock().waiting.iter_mut().find(|entry| entry.number == self.number) {
            own.device = Some(device);
        }
        MOVED.notify_all();
    }

    /// Waits until nothing is before it. Gives up when the line has not moved for `limit`.
    pub fn await_turn(&self, limit: Duration) -> Result<()> {
        let began = Instant::now();
        let mut line = LINE.lock();
        while line.is_behind(self.number) {
            let since = line.moved.map_or(began, |moved| moved.max(began));
            if since.elapsed() >= limit
                || MOVED.wait_until(&mut line, since + limit).timed_out() && !line.moved_after(since)
            {
                let what = "a communicator that was asked for before this one is still being made".into();
                return Err(Error::Timeout { after: limit, what });
            }
        }
        Ok(())
    }
}

impl Line {
    fn is_behind(&self, number: u64) -> bool {
        let Some(own) = self.waiting.iter().find(|entry| entry.number == number) else { return false };
        let device_may_be_own =
            |entry: &Entry| entry.device.is_none() || own.device.is_none() || entry.device == own.device;
        self.waiting.iter().any(|entry| {
            let before = entry.number < number;
            let siblings = own.parent.is_some() && entry.parent == own.parent;
            before && (siblings || entry.thread == own.thread && device_may_be_own(entry))
        })
    }

    fn moved_after(&self, since: Instant) -> bool {
        self.moved.is_some_and(|moved| moved > since)
    }
}

impl Drop for PlaceInLine {
    fn drop(&mut self) {
        let mut line = LINE.lock();
        line.waiting.retain(|entry| entry.number != self.number);
        line.moved = Some(Instant::now());
        drop(line);
        MOVED.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    fn taken_elsewhere(parent: Option<u32>) -> PlaceInLine {
        std::thread::spawn(move || PlaceInLine::take(parent)).join().unwrap()
    }

    #[test]
    fn a_device_is_waited_for_in_the_order_of_one_threads_wishes() {
        let (first, other, last) = (PlaceInLine::take(None), PlaceInLine::take(None), PlaceInLine::take(None));
        last.on_device(1);
        // Whose device is not known may be the own.
        assert!(matches!(last.await_turn(NO_TIME), Err(Error::Timeout { .. })));
        first.on_device(1);
        other.on_device(2);
        other.await_turn(NO_TIME).unwrap();
        assert!(matches!(last.await_turn(NO_TIME), Err(Error::Timeout { .. })));
        // Another thread's order is its own.
        let foreign = taken_elsewhere(None);
        foreign.on_device(1);
        foreign.await_turn(NO_TIME).unwrap();
        let waits = std::thread::spawn(move || last.await_turn(Duration::from_secs(60)));
        drop(first);
        waits.join().unwrap().unwrap();
    }

    #[test]
    fn children_of_one_parent_wait_whoever_asks() {
        let (first, second) = (PlaceInLine::take(Some(7)), taken_elsewhere(Some(7)));
        let cousin = taken_elsewhere(Some(8));
        cousin.await_turn(NO_TIME).unwrap();
        assert!(matches!(second.await_turn(NO_TIME), Err(Error::Timeout { .. })));
        drop(first);
        second.await_turn(NO_TIME).unwrap();
    }
}
