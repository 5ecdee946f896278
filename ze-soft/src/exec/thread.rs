//! An executor's own thread.
//!
//! It runs what no waiting host thread runs. While work keeps coming it sleeps in ticks so short that a submitter need
//! not wake it: waking is a system call. Without work it goes to sleep for good, and the next submission wakes it.

use super::{Executor, Outcome, Runner};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The thread is up.
pub(super) const AWAKE: u8 = 0;
/// It looks again within a [`TICK`].
pub(super) const SHORT: u8 = 1;
/// It sleeps for longer or for good: a submission must wake it.
pub(super) const LONG: u8 = 2;

const TICK: Duration = Duration::from_micros(150);
/// The longest tick, for work that waits for another process or the host.
const SLOW_TICK: Duration = Duration::from_millis(1);
/// How long after the last submission the thread goes on in ticks.
const FRESH: Duration = Duration::from_millis(100);
/// How often it looks for more, right after it ran something.
const SPINS: u32 = 200;

pub(super) fn start(executor: Arc<Executor>) -> std::io::Result<()> {
    let name = format!("ze-soft-{}.{}", executor.device, executor.ordinal);
    std::thread::Builder::new().name(name).spawn(move || serve(&executor)).map(drop)
}

fn serve(executor: &Executor) -> ! {
    let mut fresh = Instant::now();
    let mut tick = TICK;
    let mut ticket = 0;
    let mut host_runs = 0;
    let mut kicked = true;
    loop {
        let now_run = executor.host_runs.load(Ordering::Relaxed);
        // A host thread that ran something since the last tick is likely at the next command already: stepping in
        // would only make it wait. If it isn't, the next tick finds that nothing moved.
        let yielding = now_run != host_runs && !kicked;
        host_runs = now_run;
        let outcome = if yielding { Outcome::Busy } else { executor.run_one(u64::MAX, Runner::Thread) };
        if matches!(outcome, Outcome::Ran) {
            fresh = Instant::now();
            tick = TICK;
            for _ in 0..SPINS {
                if executor.pending.load(Ordering::Relaxed) != 0 {
                    break;
                }
                std::hint::spin_loop();
            }
            continue;
        }
        let now = Instant::now();
        let mut state = executor.state.lock();
        kicked = std::mem::take(&mut state.kicked);
        if state.ticket != ticket {
            ticket = state.ticket;
            fresh = now;
            tick = TICK;
        }
        if kicked {
            continue;
        }
        let idle = executor.pending.load(Ordering::Relaxed) == 0 && now.duration_since(fresh) > FRESH;
        // Whoever is running a command is likely to run the next one, too: it need not pay for waking this thread.
        let busy = matches!(outcome, Outcome::Busy);
        executor.fall_asleep(if idle || (tick > TICK && !busy) { LONG } else { SHORT });
        drop(state);
        // Who submits from here on sees how it sleeps, and rouses it.
        executor.doze((!idle).then_some(tick));
        if !idle && !yielding {
            tick = (tick * 2).min(SLOW_TICK);
        }
        let mut state = executor.state.lock();
        executor.wake_up();
        kicked = std::mem::take(&mut state.kicked);
    }
}

impl Executor {
    /// Sleeps until it is roused, or at most so long.
    fn doze(&self, limit: Option<Duration>) {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut roused = self.roused.lock();
        while !*roused {
            match deadline {
                None => self.wake.wait(&mut roused),
                Some(deadline) if self.wake.wait_until(&mut roused, deadline).timed_out() => break,
                Some(_) => {}
            }
        }
        *roused = false;
    }
}
