//! What a counter-based event stands for. Appends write it, and whoever waits for the event looks at it, again and again:
//! so that looking takes no lock, what matters of it is also kept in words of its own.

use super::{Counter, Point};
use crate::exec::{Source, SourceCell};
use crate::latch::Latch;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// See the module.
pub(super) struct Aim {
    /// All of it; none for an event that no list was told to signal.
    point: Latch<Option<Point>>,
    /// Odd while the words below are written, which is done with `point` locked.
    version: AtomicU64,
    /// Where the counter lies; null if these words don't say it all.
    cell: AtomicPtr<AtomicU64>,
    value: AtomicU64,
    source: SourceCell,
}

impl Aim {
    pub(super) fn new(point: Option<Point>) -> Self {
        Self {
            point: Latch::new(point),
            version: AtomicU64::new(0),
            cell: AtomicPtr::new(ptr::null_mut()),
            value: AtomicU64::new(0),
            source: SourceCell::default(),
        }
    }

    /// The point itself.
    pub(super) fn point(&self) -> Option<Point> {
        self.point.lock().clone()
    }

    /// Whether the counter has come there; if so, all that was written before is seen.
    pub(super) fn is_reached(&self) -> bool {
        match self.words() {
            Some((cell, value, _)) => cell.load(Ordering::Acquire) >= value,
            None => self.point.lock().as_ref().is_none_or(Point::reached),
        }
    }

    /// Whether it has come there, and what will have brought it there if not: one look instead of two.
    pub(super) fn look(&self) -> (bool, Option<Source>) {
        match self.words() {
            Some((cell, value, source)) => (cell.load(Ordering::Acquire) >= value, source),
            None => (self.is_reached(), self.source()),
        }
    }

    /// What will have brought it there.
    pub(super) fn source(&self) -> Option<Source> {
        match self.words() {
            Some((_, _, source)) => source,
            None => self.point.lock().as_ref().and_then(Point::source),
        }
    }

    fn words(&self) -> Option<(&AtomicU64, u64, Option<Source>)> {
        let version = self.version.load(Ordering::Acquire);
        let (cell, value, source) =
            (self.cell.load(Ordering::Relaxed), self.value.load(Ordering::Relaxed), self.source.get());
        // Who has read a word of a newer version sees that it was begun.
        fence(Ordering::Acquire);
        if version % 2 == 1 || self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        // SAFETY: null, or a counter's cell that stays for good; no word is of another version.
        unsafe { cell.as_ref() }.map(|cell| (cell, value, source))
    }

    /// Makes it stand for something else.
    pub(super) fn set(&self, at: Point) {
        let mut point = self.point.lock();
        let before = point.replace(at);
        self.write(None);
        drop(point);
        // It may be the last to hold a counter, whose end takes other locks.
        drop(before);
    }

    /// The same for a count that a counter comes to: as a rule the counter of the time before.
    pub(super) fn set_count(&self, counter: &Arc<Counter>, count: u64, source: Option<Source>) {
        let mut point = self.point.lock();
        let moved = point.as_mut().is_some_and(|point| point.move_to(counter, count, source));
        let before = if moved { None } else { point.replace(Point::at(counter.clone(), count, source)) };
        self.write(counter.lasting().map(|cell| (cell, counter.place(count).0, source)));
        drop(point);
        drop(before);
    }

    /// Writes the words, with `point` locked.
    fn write(&self, words: Option<(&AtomicU64, u64, Option<Source>)>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // A reader that sees a new word sees the odd version as well.
        fence(Ordering::Release);
        let (cell, value, source) =
            words.map_or((ptr::null(), 0, None), |(cell, value, source)| (ptr::from_ref(cell), value, source));
        self.cell.store(cell.cast_mut(), Ordering::Relaxed);
        self.value.store(value, Ordering::Relaxed);
        self.source.set(source);
        self.version.store(version + 2, Ordering::Release);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    /// Aimed to and fro between a counter that has come far and one that hasn't begun, at values of which each has been
    /// reached: a reader that mixed the two would see one that isn't.
    #[test]
    fn a_reader_never_mixes_two_aims() {
        let (far, near) = (Counter::new().unwrap(), Counter::new().unwrap());
        far.publish(1_000_000);
        near.publish(1);
        let (aim, over) = (Aim::new(None), AtomicBool::new(false));
        let (begun, seen) = (Barrier::new(3), AtomicU64::new(0));
        aim.set_count(&near, 1, None);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        begun.wait();
                        let mut looks = 0u64;
                        while !over.load(Ordering::Relaxed) {
                            assert!(aim.is_reached(), "look {looks}");
                            looks += 1;
                            seen.fetch_max(looks, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            begun.wait();
            // On a machine that is busy, readers may come late: until they have looked as well.
            let mut turn = 0u64;
            while turn < 100_000
                || seen.load(Ordering::Relaxed) < 100 && readers.iter().all(|reader| !reader.is_finished())
            {
                turn += 1;
                aim.set_count(&far, 999_000 + turn % 1000, None);
                aim.set_count(&near, 1, None);
                if turn.is_multiple_of(64) {
                    aim.set(Point::at(far.clone(), 2, None));
                }
            }
            over.store(true, Ordering::Relaxed);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    }

    #[test]
    fn an_aim_says_when_its_counter_has_come() {
        let (one, other) = (Counter::new().unwrap(), Counter::new().unwrap());
        let aim = Aim::new(None);
        assert!(aim.is_reached(), "never aimed");
        aim.set_count(&one, 2, None);
        one.publish(1);
        assert!(!aim.is_reached());
        one.publish(2);
        assert!(aim.is_reached());
        aim.set_count(&one, 3, None);
        assert!(!aim.is_reached());
        aim.set_count(&other, 1, None);
        one.publish(3);
        assert!(!aim.is_reached());
        assert!(Arc::ptr_eq(aim.point().unwrap().counter(), &other));
        other.publish(1);
        assert!(aim.is_reached());
    }
}
