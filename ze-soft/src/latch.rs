//! The lock of sections that are a few memory accesses long, as every append and every wait pass some of.
//!
//! Taking it is one locked instruction and giving it back a plain store, where a lock that can put threads to sleep needs
//! two of the former. Nobody sleeps on it: who finds it taken looks on, and gives the processor away if that takes long.

use parking_lot::lock_api;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a thread looks before it gives the processor to another, which may be the holder.
const SPINS: u32 = 100;

/// See [`Latch`].
pub(crate) struct RawLatch(AtomicBool);

/// A value behind such a lock.
pub(crate) type Latch<T> = lock_api::Mutex<RawLatch, T>;

// SAFETY: `lock` returns and `try_lock` succeeds only for the one thread that changed the word from false to true, which
// stays true until that thread's `unlock`; acquire and release order what happens in between.
unsafe impl lock_api::RawMutex for RawLatch {
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

impl RawLatch {
    #[cold]
    fn lock_slow(&self) {
        let mut turns = 0;
        loop {
            while self.0.load(Ordering::Relaxed) {
                turns += 1;
                if turns < SPINS {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
            }
            if lock_api::RawMutex::try_lock(self) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_thread_at_a_time_is_inside() {
        const TURNS: u64 = 20_000;
        let latch = Latch::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..TURNS {
                        // Read and written apart: two inside at a time would lose a turn.
                        let mut value = latch.lock();
                        let seen = *value;
                        std::hint::spin_loop();
                        *value = seen + 1;
                    }
                });
            }
        });
        assert_eq!(latch.into_inner(), 3 * TURNS);
    }

    #[test]
    fn what_is_taken_is_not_taken_again() {
        let latch = Latch::new(());
        let held = latch.lock();
        assert!(latch.try_lock().is_none());
        drop(held);
        assert!(latch.try_lock().is_some());
    }
}
