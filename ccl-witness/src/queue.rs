//! What a rank's calls leave for its comparer, in the order of the calls.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Calls that may wait before the program does.
const MOST_CALLS: usize = 256;
/// Bytes of them.
const MOST_BYTES: usize = 256 << 20;

/// Places are taken before a call and filled when it has returned: the order is that in which calls began.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// Number of the front.
    first: u64,
    places: VecDeque<Option<(T, usize)>>,
    bytes: usize,
    closed: bool,
}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Queue<T> {
        let state = State { first: 0, places: VecDeque::new(), bytes: 0, closed: false };
        Queue { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until there is room, at most so long; whether there is.
    pub(crate) fn wait_for_room(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.closed && (state.places.len() >= MOST_CALLS || state.bytes >= MOST_BYTES) {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
        true
    }

    /// Takes the next place.
    pub(crate) fn take(&self) -> u64 {
        let mut state = self.state.lock();
        state.places.push_back(None);
        state.first + state.places.len() as u64 - 1
    }

    /// Fills a place.
    pub(crate) fn fill(&self, place: u64, item: T, bytes: usize) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.bytes += bytes;
        let index = place.checked_sub(state.first).map(|index| index as usize);
        if let Some(slot) = index.and_then(|index| state.places.get_mut(index)) {
            *slot = Some((item, bytes));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The next item, when it is there; none once the queue is closed.
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        while !state.closed {
            if let Some(Some(_)) = state.places.front()
                && let Some(Some((item, bytes))) = state.places.pop_front()
            {
                state.first += 1;
                state.bytes -= bytes;
                drop(state);
                self.changed.notify_all();
                return Some(item);
            }
            self.changed.wait(&mut state);
        }
        None
    }

    /// Nobody takes anything any more; what was left.
    pub(crate) fn close(&self) -> usize {
        let mut state = self.state.lock();
        state.closed = true;
        let left = state.places.len();
        state.places.clear();
        state.bytes = 0;
        drop(state);
        self.changed.notify_all();
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_the_order_of_their_places() {
        let queue = Queue::new();
        let places: Vec<u64> = (0..4).map(|_| queue.take()).collect();
        for place in [2, 0, 3, 1] {
            queue.fill(places[place], place, 10);
        }
        let items = [queue.next(), queue.next(), queue.next(), queue.next()];
        assert_eq!(items, [Some(0), Some(1), Some(2), Some(3)]);
        queue.close();
        assert_eq!(queue.next(), None, "nobody waits for what never comes");
    }

    #[test]
    fn a_full_queue_holds_nobody_for_good() {
        let queue = Queue::new();
        for item in 0..MOST_CALLS {
            let place = queue.take();
            queue.fill(place, item, 0);
        }
        assert!(!queue.wait_for_room(Duration::from_millis(20)));
        queue.next();
        assert!(queue.wait_for_room(Duration::from_millis(20)));
        let place = queue.take();
        queue.fill(place, 7, MOST_BYTES);
        assert!(!queue.wait_for_room(Duration::from_millis(20)));
        assert_eq!(queue.close(), MOST_CALLS);
        assert!(queue.wait_for_room(Duration::ZERO));
    }
}
