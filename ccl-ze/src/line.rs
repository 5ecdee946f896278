//! The line in which communicators that a process makes at the same time wait for their device.

use ccl_core::config::Config;
use ccl_core::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A place in the line. Communicators that were asked for by one thread, and share a device, try their lines out one after
/// the other in the order in which they were asked for: at once, they would wait for one another where the ranks' devices
/// take them in different orders. The same goes for what one rank splits off one parent, whichever thread asks; other ranks
/// of that parent in this process have to meet it in the split, and don't wait for it here. Ranks learn of each other
/// before that, and those on other devices pass.
///
/// Dropped when the communicator is made, or not going to be.
pub struct PlaceInLine {
    number: u64,
}

/// What a communicator is split off: its name, and which of its ranks splits.
type Parent = (u32, usize);

struct Entry {
    number: u64,
    thread: ThreadId,
    /// For whom it stands, in words.
    what: String,
    parent: Option<Parent>,
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
    /// The last place of the line, for what the calling thread asks for, `what` in words; `parent` is what it is split off,
    /// if it is.
    pub fn take(what: String, parent: Option<Parent>) -> PlaceInLine {
        let mut line = LINE.lock();
        let number = line.next;
        line.next += 1;
        line.waiting.push(Entry { number, thread: std::thread::current().id(), what, parent, device: None });
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
        while let Some((own, before)) = line.ahead_of(self.number) {
            let since = line.moved.map_or(began, |moved| moved.max(began));
            if since.elapsed() >= limit {
                let device = before.device.map_or_else(String::new, |device| format!(" on device {device}"));
                let what = format!(
                    "{} waited for {}, which was asked for before it and is still being made{device}; all ranks have to ask \
                     for the communicators of a device in the same order",
                    own.what, before.what
                );
                return Err(Error::Timeout { after: limit, what });
            }
            MOVED.wait_until(&mut line, since + limit);
        }
        Ok(())
    }
}

/// How long a line may stand still: longer than what is before its end may take, which is bounded by its own deadlines.
pub(crate) fn patience(config: &Config) -> Duration {
    config.connection_timeout.saturating_mul(3).saturating_add(Duration::from_secs(60))
}

impl Line {
    /// The entry of this number, and the first one that it has to wait for, if any.
    fn ahead_of(&self, number: u64) -> Option<(&Entry, &Entry)> {
        let own = self.waiting.iter().find(|entry| entry.number == number)?;
        let device_may_be_own =
            |entry: &Entry| entry.device.is_none() || own.device.is_none() || entry.device == own.device;
        let ahead = self.waiting.iter().find(|entry| {
            let before = entry.number < number;
            let siblings = own.parent.is_some() && entry.parent == own.parent;
            before && (siblings || entry.thread == own.thread && device_may_be_own(entry))
        })?;
        Some((own, ahead))
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

    fn taken(what: &str, parent: Option<Parent>) -> PlaceInLine {
        PlaceInLine::take(what.into(), parent)
    }

    fn taken_elsewhere(parent: Option<Parent>) -> PlaceInLine {
        std::thread::spawn(move || taken("foreign", parent)).join().unwrap()
    }

    #[test]
    fn a_device_is_waited_for_in_the_order_of_one_threads_wishes() {
        let (first, other, last) = (taken("first", None), taken("other", None), taken("last", None));
        last.on_device(1);
        // Whose device is not known may be the own.
        assert!(matches!(last.await_turn(NO_TIME), Err(Error::Timeout { .. })));
        first.on_device(1);
        other.on_device(2);
        other.await_turn(NO_TIME).unwrap();
        let told = last.await_turn(NO_TIME).unwrap_err().to_string();
        assert!(told.contains("last waited for first") && told.contains("on device 1"), "{told}");
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
        let (first, second) = (taken("first", Some((7, 0))), taken_elsewhere(Some((7, 0))));
        let cousin = taken_elsewhere(Some((8, 0)));
        cousin.await_turn(NO_TIME).unwrap();
        // What has to meet the first in its split.
        taken_elsewhere(Some((7, 1))).await_turn(NO_TIME).unwrap();
        assert!(matches!(second.await_turn(NO_TIME), Err(Error::Timeout { .. })));
        drop(first);
        second.await_turn(NO_TIME).unwrap();
    }
}
