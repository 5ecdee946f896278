//! Executors: one for each queue ordinal of each device.
//!
//! An executor runs the commands of all lists and queues of its ordinal one at a time, in the order they were issued,
//! and passes over a list whose next command waits for something that isn't there yet. Whoever has set `running` runs
//! a command: the executor's own thread ([`thread`]), or a host thread that waits for it anyway ([`wait`]). The latch
//! on `state` is only ever held for a few memory accesses, never while a command runs, so that appends and waits with
//! a timeout can't be held up by a long kernel.

mod lanes;
mod thread;
mod wait;

pub(crate) use lanes::{LaneId, Progress, Run, Work};
pub(crate) use wait::{wait, wait_on};

use crate::device::timestamp;
use crate::engine::cuda::{self, Home, Stream};
use crate::error::fail;
use crate::event::Counter;
use crate::fault;
use crate::latch::Latch;
use crate::op::{Op, Signal, Waits};
use lanes::{Picked, Ran, State};
use level_zero_sys::{ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, ze_result_t};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The first ordinals of a device run kernels; those after them only copy.
const COMPUTE_ORDINALS: u32 = 2;

/// All executors, so that a wait can find the one that will end it, and a signal the ones that wait for it.
static EXECUTORS: [OnceLock<Arc<Executor>>; 1024] = [const { OnceLock::new() }; 1024];
static EXECUTOR_COUNT: AtomicUsize = AtomicUsize::new(0);
/// How many threads sleep such that they must be woken: usually none while work keeps coming, and then nobody has to look.
static LONG_SLEEPERS: AtomicUsize = AtomicUsize::new(0);

/// Who runs a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runner {
    /// The executor's own thread.
    Thread,
    /// A thread of the program, inside a wait.
    Host,
}

/// What came of an attempt to run a command.
enum Outcome {
    /// A command ran.
    Ran,
    /// Somebody else is running one.
    Busy,
    /// Every candidate waits; for the oldest it is known or not what will end its wait.
    Blocked(Option<Source>),
    /// There is no candidate.
    Empty,
}

/// Something that will happen when an executor has run the command of a ticket. Its word is 0 for "unknown", else 16
/// bits of executor number plus one over 48 bits of ticket: one word, so that it can be kept in an atomic.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source(u64);

const TICKET_BITS: u32 = 48;

impl Source {
    fn executor(self) -> Option<&'static Arc<Executor>> {
        EXECUTORS.get(usize::try_from((self.0 >> TICKET_BITS).checked_sub(1)?).ok()?)?.get()
    }

    fn ticket(self) -> u64 {
        self.0 & ((1 << TICKET_BITS) - 1)
    }
}

/// A [`Source`] that changes.
#[derive(Default)]
pub(crate) struct SourceCell(AtomicU64);

impl SourceCell {
    pub(crate) fn set(&self, source: Option<Source>) {
        self.0.store(source.map_or(0, |source| source.0), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Source> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            word => Some(Source(word)),
        }
    }
}

/// What the submitter learns about what it submitted.
#[derive(Clone, Copy)]
pub(crate) struct Receipt {
    /// What will have run it.
    pub(crate) source: Option<Source>,
    /// How many items its lane has been given, this one included.
    pub(crate) position: u64,
}

/// The executor of one (device, queue ordinal).
pub(crate) struct Executor {
    device: u32,
    ordinal: u32,
    /// Its place in [`EXECUTORS`], unless that is full.
    number: Option<u64>,
    threaded: AtomicBool,
    /// Held while the thread is started.
    starting: Mutex<()>,
    state: Latch<State>,
    /// Whether a command runs. Written under `state`, as are the next two.
    running: AtomicBool,
    /// Items submitted and not finished.
    pending: AtomicUsize,
    /// Commands run by host threads, for the thread to see that it isn't needed.
    host_runs: AtomicU64,
    /// How the thread sleeps (the constants in [`thread`]); written under `state`, before it does.
    sleep: AtomicU8,
    /// Set to have the thread wake up.
    roused: Mutex<bool>,
    wake: Condvar,
    /// What commands are given to with the CUDA engine, made with the first submission; with the others there is none.
    stream: OnceLock<Arc<Stream>>,
}

impl Executor {
    /// An executor; its thread starts with the first submission.
    pub(crate) fn new(device: u32, ordinal: u32) -> Arc<Self> {
        let place = EXECUTOR_COUNT.fetch_add(1, Ordering::Relaxed);
        let slot = EXECUTORS.get(place);
        let executor = Arc::new(Self {
            device,
            ordinal,
            number: slot.is_some().then_some(place as u64),
            threaded: AtomicBool::new(false),
            starting: Mutex::new(()),
            state: Latch::new(State::default()),
            running: AtomicBool::new(false),
            pending: AtomicUsize::new(0),
            host_runs: AtomicU64::new(0),
            sleep: AtomicU8::new(thread::AWAKE),
            roused: Mutex::new(false),
            wake: Condvar::new(),
            stream: OnceLock::new(),
        });
        if let Some(slot) = slot {
            // The place was this call's alone, so it was empty.
            let _ = slot.set(executor.clone());
        }
        executor
    }

    /// Whether kernels may be appended to lists of this ordinal.
    pub(crate) fn computes(&self) -> bool {
        self.ordinal < COMPUTE_ORDINALS
    }

    /// The device's index.
    pub(crate) fn device(&self) -> u32 {
        self.device
    }

    /// The queue ordinal.
    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Whether everything that was submitted has finished.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0 && self.retired(self.given())
    }

    /// A new lane: items of one lane run in order. It lives until [`Self::close_lane`]. `counter` is what
    /// [`Signal::Own`] moves on.
    pub(crate) fn open_lane(&self, counter: Option<Arc<Counter>>) -> (LaneId, Arc<Progress>) {
        self.state.lock().open_lane(counter)
    }

    /// Ends a lane once what it was given has run.
    pub(crate) fn close_lane(&self, lane: LaneId) {
        let counter = self.state.lock().close_lane(lane);
        // Not under the latch: its end takes other locks.
        drop(counter);
    }

    /// Makes sure that the thread runs; to be called before a submission.
    #[inline]
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), ze_result_t> {
        if self.threaded.load(Ordering::Acquire) { Ok(()) } else { self.start_thread() }
    }

    #[cold]
    fn start_thread(self: &Arc<Self>) -> Result<(), ze_result_t> {
        let _once = self.starting.lock();
        if !self.threaded.load(Ordering::Relaxed) {
            if cuda::runs() {
                let home = self.open_stream()?;
                self.state.lock().home = home;
            }
            thread::start(self.clone()).map_err(|error| {
                let text = format!("no thread for queue group {} of device {}: {error}", self.ordinal, self.device);
                fail(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, text)
            })?;
            self.threaded.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn open_stream(&self) -> Result<Home, ze_result_t> {
        let unavailable = |why: String| fail(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, why);
        let number = self.number.ok_or_else(|| unavailable("there are too many queue groups".to_owned()))?;
        let home = Home(number as u16 + 1);
        if self.stream.get().is_none() {
            let stream = Stream::new(self.device, home).map_err(unavailable)?;
            self.stream.get_or_init(|| Arc::new(stream));
        }
        Ok(home)
    }

    /// The stream that it gives its commands to, if there is one.
    pub(crate) fn stream(&self) -> Option<&Arc<Stream>> {
        self.stream.get()
    }

    /// Counts what its stream was given.
    pub(crate) fn given(&self) -> u64 {
        self.stream.get().map_or(0, |stream| stream.issued())
    }

    /// Whether its stream is done with the first `count` things.
    pub(crate) fn retired(&self, count: u64) -> bool {
        self.stream.get().is_none_or(|stream| stream.retired(count))
    }

    /// Submits to a lane.
    pub(crate) fn submit(&self, lane: LaneId, work: Work) -> Receipt {
        self.push(|state| state.push(lane, work))
    }

    /// Submits one command to a lane.
    #[inline]
    pub(crate) fn submit_command(&self, lane: LaneId, op: Op, signal: Option<Signal>, waits: Option<Waits>) -> Receipt {
        self.push(|state| state.push_command(lane, op, signal, waits))
    }

    /// Submits what has no lane of its own: it is ordered only by what it waits for.
    pub(crate) fn submit_alone(&self, work: Work) -> Receipt {
        self.push(|state| state.push_alone(work))
    }

    #[inline(always)]
    fn push(&self, push: impl FnOnce(&mut State) -> (u64, u64)) -> Receipt {
        let mut state = self.state.lock();
        let (ticket, position) = push(&mut state);
        self.pending.store(self.pending.load(Ordering::Relaxed) + 1, Ordering::Release);
        let asleep = self.sleep.load(Ordering::Relaxed) == thread::LONG;
        drop(state);
        if self.stream.get().is_some() {
            self.pump();
        } else if asleep {
            self.rouse();
        }
        Receipt { source: self.source(ticket), position }
    }

    /// Gives the stream what can go: that doesn't wait for the GPU, and spares the way through the executor's thread.
    /// What is held up is left to that.
    fn pump(&self) {
        const SPINS: u32 = 10_000;
        let mut spins = 0;
        while self.pending.load(Ordering::Acquire) != 0 {
            match self.run_one(u64::MAX, Runner::Host) {
                Outcome::Ran => spins = 0,
                Outcome::Busy if spins < SPINS => {
                    spins += 1;
                    std::hint::spin_loop();
                }
                Outcome::Busy | Outcome::Blocked(_) | Outcome::Empty => return self.kick(thread::SHORT),
            }
        }
    }

    fn source(&self, ticket: u64) -> Option<Source> {
        self.number.map(|number| Source((number + 1) << TICKET_BITS | ticket))
    }

    /// Wakes the thread.
    fn rouse(&self) {
        *self.roused.lock() = true;
        self.wake.notify_one();
    }

    /// Notes how the thread sleeps from here on; under the latch on `state`, as [`Self::wake_up`] is.
    fn fall_asleep(&self, how: u8) {
        if how == thread::LONG {
            LONG_SLEEPERS.fetch_add(1, Ordering::SeqCst);
        }
        self.sleep.store(how, Ordering::SeqCst);
    }

    fn wake_up(&self) {
        if self.sleep.swap(thread::AWAKE, Ordering::SeqCst) == thread::LONG {
            LONG_SLEEPERS.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Wakes the thread if it sleeps, in this way at least, while there is something to do.
    fn kick(&self, least: u8) {
        if self.pending.load(Ordering::SeqCst) != 0 && self.sleep.load(Ordering::SeqCst) >= least {
            self.state.lock().kicked = true;
            self.rouse();
        }
    }

    /// Runs the oldest command that can run and whose ticket is at most `limit`.
    fn run_one(&self, limit: u64, runner: Runner) -> Outcome {
        if self.pending.load(Ordering::Acquire) == 0 {
            return Outcome::Empty;
        }
        if self.running.load(Ordering::Relaxed) {
            return Outcome::Busy;
        }
        let seed = fault::reorder_seed(self.device, self.ordinal);
        let mut state = self.state.lock();
        if self.running.load(Ordering::Relaxed) {
            return Outcome::Busy;
        }
        let (lane, picked) = match state.pick(limit, seed) {
            Ok(picked) => picked,
            Err(outcome) => return outcome,
        };
        self.running.store(true, Ordering::Relaxed);
        if runner == Runner::Host {
            self.host_runs.store(self.host_runs.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        drop(state);
        let (signalled, ran) = match picked {
            Picked::Command(mut command, position) => {
                let signalled = self.execute(&command.op, command.signal.as_ref(), position);
                let own = signalled && matches!(command.signal, Some(Signal::Own { .. }));
                command.empty();
                (signalled, Ran::Command { emptied: command, count: own.then_some(position) })
            }
            Picked::Step { recording, at, count } => {
                let command = recording.commands.get(at);
                let signalled =
                    command.is_some_and(|command| self.execute(&command.op, command.signal.as_ref(), count));
                (signalled, Ran::Part)
            }
            Picked::Node { graph, node, replay } => {
                graph.run(node, replay, |op, signal, count| {
                    self.execute(op, signal, count);
                });
                (true, Ran::Part)
            }
        };
        let given = self.given();
        let mut state = self.state.lock();
        let finished = state.finish(lane, ran, given);
        self.running.store(false, Ordering::Relaxed);
        if finished.item {
            self.pending.store(self.pending.load(Ordering::Relaxed) - 1, Ordering::Release);
        }
        drop(state);
        drop(finished);
        if signalled {
            kick_others(Some(self));
        }
        Outcome::Ran
    }

    /// Does an operation, and says whether it signalled something.
    fn execute(&self, op: &Op, signal: Option<&Signal>, count: u64) -> bool {
        let delay = fault::queue_delay(self.device, self.ordinal);
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        if let Some(stream) = self.stream.get() {
            return self.give(stream, op, signal, count);
        }
        let start = signal.is_some_and(Signal::is_stamped).then(timestamp);
        op.run();
        let Some(signal) = signal else { return false };
        if fault::lose_signal(self.device, self.ordinal) {
            return false;
        }
        signal.deliver(count, start.map(|start| (start, timestamp())));
        true
    }
}

impl Executor {
    /// As [`Self::execute`], by way of its stream.
    fn give(&self, stream: &Stream, op: &Op, signal: Option<&Signal>, count: u64) -> bool {
        if let Some(signal) = signal
            && signal.is_stamped()
        {
            signal.give_start(stream);
        }
        op.give(stream);
        let Some(signal) = signal else { return false };
        if fault::lose_signal(self.device, self.ordinal) {
            return false;
        }
        signal.give(count, stream);
        true
    }
}

/// Whether a stream is done with the first `count` things that it was given.
pub(crate) fn retired(Home(number): Home, count: u64) -> bool {
    let executor = usize::from(number).checked_sub(1).and_then(|place| EXECUTORS.get(place)?.get());
    executor.is_none_or(|executor| executor.retired(count))
}

/// Whether a GPU has failed at something; the devices are lost then.
fn gpu_failed() -> bool {
    let count = EXECUTOR_COUNT.load(Ordering::Relaxed);
    let streams = EXECUTORS.iter().take(count).filter_map(|executor| executor.get()?.stream.get());
    cuda::runs() && streams.into_iter().any(|stream| stream.has_failed())
}

/// Tells the executors that sleep on something unfinished that an event has changed.
pub(crate) fn kick_all() {
    kick_others(None);
}

fn kick_others(except: Option<&Executor>) {
    if LONG_SLEEPERS.load(Ordering::SeqCst) == 0 {
        return;
    }
    let count = EXECUTOR_COUNT.load(Ordering::Relaxed);
    for executor in EXECUTORS.iter().take(count).filter_map(OnceLock::get) {
        if !except.is_some_and(|except| std::ptr::eq(except, executor.as_ref())) {
            // A thread in short ticks sees it soon enough; waking it would cost the signaller a system call.
            executor.kick(thread::LONG);
        }
    }
}
