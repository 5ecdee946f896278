//! How a kernel on the CPU waits for a line: it spins, then gives the processor away, then sleeps on a futex.

use ccl_core::protocol::{CommState, Fault, HostBlock, SPINS_PER_ABORT_POLL, StagingHead};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// Turns of giving the processor away before the waiter sleeps.
const YIELDS_BEFORE_PARK: u32 = 2_000;
/// Longest sleep: the abort word and the limit are looked at this often.
const PARK: Duration = Duration::from_millis(2);
/// How long a waiter that has said that it sleeps looks on: a sender that saw it awake had stored its flag just before,
/// and that store leaves the sender's core within less than a thousandth of this.
const LAST_LOOK: Duration = Duration::from_micros(50);

/// Waits on behalf of one kernel.
pub(super) struct Waiter<'a> {
    abort: &'a AtomicU32,
    parked: &'a AtomicU32,
    spins_before_yield: u32,
    limit: Duration,
}

/// Why a wait ended without its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct GaveUp {
    pub(super) fault: Fault,
    pub(super) seen: u32,
}

impl<'a> Waiter<'a> {
    /// # Safety
    /// The pointers are the communicator's, live while the kernel runs.
    pub(super) unsafe fn new(state: *const CommState, host: *mut HostBlock, inbox: *mut StagingHead) -> Self {
        // SAFETY: the words are only accessed as atomics once the communicator is active, bar `CommState`'s, which no
        // other kernel touches while this one runs.
        unsafe {
            Self {
                abort: AtomicU32::from_ptr(&raw mut (*host).abort),
                parked: AtomicU32::from_ptr(&raw mut (*inbox).parked),
                spins_before_yield: (*state).spins_before_yield,
                limit: Duration::from_millis((*state).spin_limit_ms),
            }
        }
    }

    /// Waits until `flag` reads as `tag`.
    #[inline]
    pub(super) fn until(&self, flag: impl Fn() -> u32, tag: u32) -> Result<(), GaveUp> {
        if flag() == tag { Ok(()) } else { self.until_slow(flag, tag) }
    }

    fn until_slow(&self, flag: impl Fn() -> u32, tag: u32) -> Result<(), GaveUp> {
        for spin in 1..=self.spins_before_yield {
            if flag() == tag {
                return Ok(());
            }
            if spin.is_multiple_of(SPINS_PER_ABORT_POLL) {
                self.look(None, &flag)?;
            }
            std::hint::spin_loop();
        }
        let since = Instant::now();
        for _ in 0..YIELDS_BEFORE_PARK {
            if flag() == tag {
                return Ok(());
            }
            // On a busy machine each turn may take as long as other threads like.
            self.look(Some(since), &flag)?;
            std::thread::yield_now();
        }
        loop {
            self.parked.store(1, Ordering::Relaxed);
            // From here on, senders see the word; what those stored that did not see it is looked for a while longer.
            fence(Ordering::SeqCst);
            let said = Instant::now();
            let mut arrived = flag() == tag;
            while !arrived && said.elapsed() < LAST_LOOK {
                std::thread::yield_now();
                arrived = flag() == tag;
            }
            if !arrived {
                futex_wait(self.parked, 1, PARK);
            }
            self.parked.store(0, Ordering::Relaxed);
            if arrived || flag() == tag {
                return Ok(());
            }
            self.look(Some(since), &flag)?;
        }
    }

    fn look(&self, since: Option<Instant>, flag: &impl Fn() -> u32) -> Result<(), GaveUp> {
        if self.abort.load(Ordering::Relaxed) != 0 {
            return Err(GaveUp { fault: Fault::Aborted, seen: flag() });
        }
        if since.is_some_and(|since| since.elapsed() > self.limit) {
            return Err(GaveUp { fault: Fault::SpinLimit, seen: flag() });
        }
        Ok(())
    }

    /// Wakes those of some peers that sleep, after something was stored to them; each is named by its staging memory.
    ///
    /// There is no fence between the store and the look at the word: it would have every call wait until the peer's core
    /// has given the flag's line away. Instead whoever goes to sleep looks for [`LAST_LOOK`] longer, and never sleeps
    /// longer than [`PARK`].
    #[inline]
    pub(super) fn notify(&self, peers: impl IntoIterator<Item = *mut u8>) {
        for staging in peers {
            // SAFETY: the head of a peer's staging memory, of which this word is only accessed as an atomic.
            let parked = unsafe { AtomicU32::from_ptr(&raw mut (*staging.cast::<StagingHead>()).parked) };
            if parked.load(Ordering::Relaxed) != 0 {
                futex_wake(parked);
            }
        }
    }
}

fn futex_wait(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = libc::timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
    // SAFETY: the word and the limit outlive the call; not the private form, since the waker is another process. Any
    // outcome is fine: the caller looks at its condition again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const limit) };
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccl_core::protocol::channel::ChannelState;
    use ccl_core::protocol::{MAX_WIRES, TAG_LIMIT};

    /// Waits for a flag that never comes, with this device limit, while `meanwhile` runs with the host block's abort
    /// word and the word on which the waiter sleeps.
    fn wait(spin_limit_ms: u64, meanwhile: impl FnOnce(&AtomicU32, &AtomicU32) + Send) -> (GaveUp, Duration) {
        let state = CommState {
            base: 0,
            tag_limit: TAG_LIMIT,
            left: 0,
            poisoned: 0,
            wraps: 0,
            hooks: 0,
            calls: 0,
            spin_limit_ms,
            spins_before_yield: 2 * SPINS_PER_ABORT_POLL,
            spins_per_ms: 0,
            slot_tiles: 1,
            push_tiles: 0,
            bulk_bytes: 0,
            granule: 64,
            busy: [0; MAX_WIRES],
            check: 0,
            reserved: 0,
            channels: ChannelState::NEW,
        };
        // SAFETY: structures of plain numbers, for which all zeros is a value.
        let (mut host, mut inbox) = unsafe { std::mem::zeroed::<(HostBlock, StagingHead)>() };
        // SAFETY: all three outlive the waiter, and are accessed through it and as atomics only.
        let waiter = unsafe { Waiter::new(&raw const state, &raw mut host, &raw mut inbox) };
        let (abort, parked) = (waiter.abort, waiter.parked);
        let since = Instant::now();
        let gave_up = std::thread::scope(|scope| {
            scope.spawn(move || meanwhile(abort, parked));
            waiter.until(|| 6, 7)
        });
        (gave_up.expect_err("a flag that never comes"), since.elapsed())
    }

    /// The backstop for a watch that is dead: nobody ever sets the abort word, and yet it ends.
    #[test]
    fn a_waiter_gives_up_by_itself() {
        let (gave_up, took) = wait(80, |_, _| ());
        assert_eq!((gave_up.fault, gave_up.seen), (Fault::SpinLimit, 6));
        assert!(took >= Duration::from_millis(80) && took < Duration::from_secs(5), "{took:?}");
    }

    #[test]
    fn an_abort_is_seen_while_spinning_and_while_parked() {
        let (gave_up, _) = wait(60_000, |abort, _| abort.store(1, Ordering::Relaxed));
        assert_eq!(gave_up.fault, Fault::Aborted);
        let (gave_up, took) = wait(60_000, |abort, parked| {
            while parked.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            abort.store(1, Ordering::Relaxed);
        });
        assert_eq!((gave_up.fault, gave_up.seen), (Fault::Aborted, 6));
        // A busy machine may take seconds until the waiter sleeps.
        assert!(took < Duration::from_secs(30), "{took:?}");
    }

    /// A sender wakes a waiter that sleeps.
    #[test]
    fn a_waiter_that_sleeps_is_woken() {
        // SAFETY: as above.
        let (mut host, mut inbox, mut outbox, mut state) =
            unsafe { std::mem::zeroed::<(HostBlock, StagingHead, StagingHead, CommState)>() };
        state.spin_limit_ms = 60_000;
        let flag = AtomicU32::new(0);
        // SAFETY: all outlive both waiters; the sender's outbox is the waiter's inbox.
        let (waiter, sender) = unsafe {
            (
                Waiter::new(&raw const state, &raw mut host, &raw mut inbox),
                Waiter::new(&raw const state, &raw mut host, &raw mut outbox),
            )
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while waiter.parked.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                flag.store(7, Ordering::Release);
                sender.notify([(&raw mut inbox).cast()]);
            });
            waiter.until(|| flag.load(Ordering::Acquire), 7).expect("the flag came");
        });
    }
}
