//! The order of one process's collectives on one device: each begins when the one before has finished, whatever stream
//! or communicator it is on.

use crate::event::EventSlot;
use qcell::QCellOwner;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Predecessors kept before it is asked which of them are no longer needed.
const KEPT: usize = 32;

/// The number of what takes no turn: of it nothing follows for what has one.
pub(crate) const UNCHAINED: u64 = u64::MAX;

/// The collectives of a device, in the order of their issue. Whoever has it locked has the device's turn: to issue, unless
/// the next place in the order is taken.
pub(crate) struct Chain {
    /// Opens what only whoever has the turn touches: the device's kernels' arguments and its communicators' events.
    pub(crate) turn: QCellOwner,
    last: Option<Link>,
    /// Events that a call on another stream was told to wait for, with that call: until it has finished, its
    /// predecessor's event may neither be used for another call nor go.
    awaited: VecDeque<(Link, Arc<EventSlot>)>,
    issued: u64,
    /// Whether a call that is to come next waits for the last one, without the lock: see [`Gpu::settle_in_place`].
    ///
    /// [`Gpu::settle_in_place`]: crate::gpu::Gpu::settle_in_place
    pub(crate) is_taken: bool,
    /// Whether collectives were ever on two SYCL queues.
    switched: bool,
    /// The one of the latest of them, by its key.
    queue: Option<usize>,
}

/// A collective that was issued.
struct Link {
    stream: u64,
    number: u64,
    event: Arc<EventSlot>,
}

/// Number of the latest collective that is known to have finished; all before it have too.
#[derive(Default)]
pub(crate) struct Finished(AtomicU64);

impl Finished {
    /// Takes note that the call of this number has finished. Whoever asked its event looked at the number before: the event
    /// may have become a later call's meanwhile.
    pub(crate) fn note(&self, number: u64) {
        // Of two threads the lower number may stay: then less is known to have finished than has, until the next.
        if number != UNCHAINED && number > self.get() {
            self.0.store(number, Ordering::Relaxed);
        }
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether the latest call of `event` is known to have finished.
    pub(crate) fn has(&self, event: &EventSlot) -> bool {
        event.number() <= self.get()
    }
}

impl Chain {
    pub(crate) fn new() -> Chain {
        Chain {
            turn: QCellOwner::new(),
            last: None,
            awaited: VecDeque::with_capacity(2 * KEPT),
            issued: 0,
            is_taken: false,
            switched: false,
            queue: None,
        }
    }

    /// The event of the collective that was issued last.
    pub(crate) fn last(&self) -> Option<Arc<EventSlot>> {
        self.last.as_ref().map(|last| last.event.clone())
    }

    /// What a collective on `stream`, if that has an order, must wait for: nothing if the one before is on the same
    /// stream or has finished.
    #[inline]
    pub(crate) fn predecessor(&self, stream: Option<u64>, finished: &Finished) -> Option<Arc<EventSlot>> {
        let last = self.last.as_ref()?;
        (stream != Some(last.stream) && last.number > finished.get()).then(|| last.event.clone())
    }

    /// Whether all collectives so far that were on SYCL queues were on the one with this key. A program that uses a second
    /// queue will use it again.
    #[inline]
    pub(crate) fn is_all_on(&self, queue: usize) -> bool {
        !self.switched && self.queue.is_none_or(|last| last == queue)
    }

    /// Takes note that the collective which is added next was submitted to the SYCL queue with this key.
    #[inline]
    pub(crate) fn push_on_queue(&mut self, queue: usize) {
        self.switched |= self.queue.replace(queue).is_some_and(|last| last != queue);
    }

    /// Adds a collective that has been appended to `stream`, after waiting for `predecessor`. `bounded` says that
    /// nothing but collectives is before it.
    pub(crate) fn push(
        &mut self,
        stream: u64,
        event: &Arc<EventSlot>,
        bounded: bool,
        predecessor: Option<Arc<EventSlot>>,
        finished: &Finished,
    ) {
        self.issued += 1;
        event.issued(self.issued, bounded);
        let link = || Link { stream, number: self.issued, event: event.clone() };
        self.last = Some(link());
        if let Some(predecessor) = predecessor {
            self.awaited.push_back((link(), predecessor));
        }
        self.prune(finished);
        // The call is enqueued: a driver that can't say how another one is doing doesn't change that.
        if self.awaited.len() > KEPT
            && let Some((successor, _)) = self.awaited.front()
            && successor.event.is_signalled().unwrap_or(false)
        {
            finished.note(successor.number);
            self.prune(finished);
        }
    }

    /// The event of the latest collective, if that is on `stream` and nobody else holds it but whoever made it: nobody
    /// waits for it either, to come next.
    #[inline]
    pub(crate) fn last_alone_on(&self, stream: u64) -> Option<&Arc<EventSlot>> {
        let last = self.last.as_ref()?;
        (last.stream == stream && Arc::strong_count(&last.event) == 2).then_some(&last.event)
    }

    /// Adds a collective that follows the latest one on its stream, and has its event.
    #[inline]
    pub(crate) fn go_on(&mut self) {
        if let Some(last) = &mut self.last {
            self.issued += 1;
            last.number = self.issued;
            last.event.issued(self.issued, false);
        }
    }

    #[inline(always)]
    fn prune(&mut self, finished: &Finished) {
        while self.awaited.front().is_some_and(|(successor, _)| successor.number <= finished.get()) {
            self.awaited.pop_front();
        }
    }

    /// Lets go of what is finished and of a last collective for which `is_own` holds; its communicator ends.
    pub(crate) fn leave(&mut self, finished: &Finished, is_own: impl Fn(&Arc<EventSlot>) -> bool) {
        self.prune(finished);
        if self.last.as_ref().is_some_and(|last| is_own(&last.event)) {
            self.last = None;
        }
    }
}

#[cfg(all(test, feature = "soft"))]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::gpu::Gpu;
    use ccl_core::config::{Config, DeviceChoice};

    #[test]
    fn a_slot_goes_on_with_nobody_looking_and_an_earlier_end_is_not_the_later_ones() {
        let config = Config { device: DeviceChoice::Soft, ..Config::default() };
        let gpu = Gpu::open(&config, 0).unwrap();
        let (mut chain, finished) = (Chain::new(), Finished::default());
        let slot = EventSlot::counter(&gpu, false).unwrap();
        assert!(chain.last_alone_on(1).is_none());
        chain.push(1, &slot, false, None, &finished);
        assert!(Arc::ptr_eq(chain.last_alone_on(1).unwrap(), &slot));
        assert!(chain.last_alone_on(2).is_none(), "another stream's");
        let waiter = slot.clone();
        assert!(chain.last_alone_on(1).is_none(), "somebody may be waiting");
        let number = waiter.number();
        drop(waiter);
        chain.go_on();
        assert_eq!(slot.number(), number + 1);
        finished.note(number);
        assert!(!finished.has(&slot));
        assert!(chain.predecessor(Some(2), &finished).is_some(), "what comes on another stream waits");
        assert!(chain.predecessor(Some(1), &finished).is_none());
        finished.note(slot.number());
        assert!(finished.has(&slot));
        assert!(chain.predecessor(Some(2), &finished).is_none());
    }
}
