//! Waiting on the host.

use super::thread::SHORT;
use super::{EXECUTOR_COUNT, EXECUTORS, Outcome, Runner, Source, gpu_failed};
use crate::engine::{self, cuda};
use level_zero_sys::{ZE_RESULT_NOT_READY, ZE_RESULT_SUCCESS, ze_result_t};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How many executors a chain of waits is followed through.
const CHAIN: usize = 8;
/// How often a waiter looks before it lets others have the processor, and then before it sleeps.
const SPINS: u32 = 500;
const YIELDS: u32 = 20;
const FIRST_SLEEP: Duration = Duration::from_micros(10);
const LONGEST_SLEEP: Duration = Duration::from_micros(200);
/// How long it looks on without sleeping where a GPU executes: a sleep lasts longer than most of what is waited for, so
/// that all times would be those of its wake-ups.
const LOOKS_ON: Duration = Duration::from_millis(20);
/// Stands for a deadline that the clock can't express.
const FAR: Duration = Duration::from_secs(1 << 32);

/// Waits until `ready`, at most `timeout` nanoseconds; `u64::MAX` is for ever, 0 only looks. A wait for ever runs the
/// commands itself that lead to `source`, so that a lone caller pays no thread switch. A wait with a timeout doesn't:
/// it couldn't stop a long one at its deadline.
pub(crate) fn wait(timeout: u64, ready: impl Fn() -> bool, source: impl Fn() -> Option<Source>) -> ze_result_t {
    if ready() {
        return engine::health();
    }
    wait_on(timeout, source(), ready, source)
}

/// The same for what isn't there yet, of which it is known already what will bring it.
pub(crate) fn wait_on(
    timeout: u64,
    first: Option<Source>,
    ready: impl Fn() -> bool,
    source: impl Fn() -> Option<Source>,
) -> ze_result_t {
    let code = match timeout {
        0 => ZE_RESULT_NOT_READY,
        u64::MAX => drain(first, ready, source),
        _ => wait_until(Duration::from_nanos(timeout), ready),
    };
    // What is over isn't done if a launch failed.
    if code == ZE_RESULT_SUCCESS { engine::health() } else { code }
}

fn drain(mut next: Option<Source>, ready: impl Fn() -> bool, source: impl Fn() -> Option<Source>) -> ze_result_t {
    let mut pause = Pause::new(YIELDS);
    loop {
        if help(next) {
            pause = Pause::new(YIELDS);
        } else {
            pause.pause(FAR);
        }
        // What a GPU has failed at never comes.
        if ready() || (!pause.spinning() && gpu_failed()) {
            return ZE_RESULT_SUCCESS;
        }
        next = source();
    }
}

/// Runs one command that leads to `source`. Nothing issued after that: it might wait for what the caller does once its
/// own wait is over.
fn help(mut source: Option<Source>) -> bool {
    for _ in 0..CHAIN {
        let Some((executor, ticket)) = source.and_then(|source| Some((source.executor()?, source.ticket()))) else {
            return false;
        };
        match executor.run_one(ticket, Runner::Host) {
            Outcome::Ran => return true,
            Outcome::Blocked(next) => source = next,
            Outcome::Busy | Outcome::Empty => return false,
        }
    }
    false
}

fn wait_until(timeout: Duration, ready: impl Fn() -> bool) -> ze_result_t {
    let start = Instant::now();
    let deadline = start.checked_add(timeout).unwrap_or_else(|| start + FAR);
    // On a busy machine a yield can last longer than a short timeout; a sleep is interrupted at its end.
    let mut pause = Pause::new(0);
    let mut kicked = false;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if ready() {
            return ZE_RESULT_SUCCESS;
        }
        if left.is_zero() {
            // Whoever only ever waits shortly has to learn of it too.
            return if gpu_failed() { ZE_RESULT_SUCCESS } else { ZE_RESULT_NOT_READY };
        }
        if !pause.spinning() && gpu_failed() {
            return ZE_RESULT_SUCCESS;
        }
        if pause.turns >= SPINS && !kicked {
            // The threads must do it, and now: they may be in the middle of a tick.
            for executor in EXECUTORS.iter().take(EXECUTOR_COUNT.load(Ordering::Relaxed)).filter_map(OnceLock::get) {
                executor.kick(SHORT);
            }
            kicked = true;
        }
        pause.pause(left);
    }
}

/// Pauses that grow: spinning, then yielding, then sleeping.
struct Pause {
    turns: u32,
    yields: u32,
    /// Until when it does no more than yield, if a GPU executes.
    awake: Option<Instant>,
}

impl Pause {
    fn new(yields: u32) -> Self {
        Self { turns: 0, yields, awake: None }
    }

    /// Whether it pauses so shortly that a look at the GPU, a call of its driver, would be most of the wait.
    fn spinning(&self) -> bool {
        self.turns < SPINS || self.awake.is_some()
    }

    /// Pauses once, no longer than `longest`.
    fn pause(&mut self, longest: Duration) {
        if let Some(until) = self.awake {
            // Close to its end the sleep below is more punctual than a yield.
            if longest >= LONGEST_SLEEP && Instant::now() < until {
                return std::thread::yield_now();
            }
            self.awake = None;
        }
        self.turns = self.turns.saturating_add(1);
        if self.turns == SPINS && cuda::runs() {
            self.awake = Some(Instant::now() + LOOKS_ON.min(longest));
        }
        match self.turns {
            0..=SPINS => std::hint::spin_loop(),
            turns if turns <= SPINS + self.yields => std::thread::yield_now(),
            turns => {
                let sleep = FIRST_SLEEP * (1 << (turns - SPINS - self.yields).min(5));
                std::thread::sleep(sleep.min(LONGEST_SLEEP).min(longest));
            }
        }
    }
}
