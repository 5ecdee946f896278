//! Groups: calls between `onecclGroupStart` and the outermost `onecclGroupEnd` of a thread are made together.
//!
//! The collectives of a communicator are made in the order of their calls, then its sends and receives: the first ones
//! between each two ranks together, then the second ones, and so on. Communicators take turns in an order that is alike on
//! all ranks. So no rank waits for one that waits for it, in whatever order each of them queued its calls, as long as all
//! queued what fits. What is due at the same time on several communicators (ranks of one group in one thread) is begun on
//! all of them before any is waited for. Calls on SYCL queues are submitted in the same order and not waited for.

use crate::call::{Call, What};
use crate::entry::{Code, SUCCESS, entry, hear};
use crate::forming::Making;
use crate::handle::{Live, OnecclComm, forked};
use crate::host::Step;
use ccl_core::watch::fork;
use ccl_core::{Error, Result};
use ccl_ze::hooks;
use ccl_ze::{Completion, Stream};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A call that was checked.
struct Queued {
    handle: &'static OnecclComm,
    live: Arc<Live>,
    call: Call,
    /// The SYCL queue; none where the buffers are the host's.
    stream: Option<Arc<Stream>>,
}

#[derive(Default)]
struct Group {
    making: Vec<Making>,
    calls: Vec<Queued>,
    /// The first failure of a call in it: then none is made.
    failed: Option<Error>,
    /// Of the process that began it.
    generation: u32,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
    /// How many are open, one in the other.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Threads that have one open. Each call looks, and a thread's own memory takes longer to find.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Makes a call, now or at the end of this thread's group: on a SYCL queue, or on host buffers where `queue` is null.
///
/// # Safety
/// `queue` is null or a live `sycl::queue`; what the call names holds what it reads and writes, on a queue until that has
/// done it.
pub(crate) unsafe fn issue(
    handle: &'static OnecclComm,
    queue: *const c_void,
    call: impl FnOnce(&Live) -> Result<Call>,
) -> Result<Code> {
    // SAFETY: passed on to the caller.
    let stream = |live: &Live| if queue.is_null() { Ok(None) } else { unsafe { live.queue(queue) }.map(Some) };
    // SAFETY: as above.
    unsafe { issue_on(handle, stream, call) }
}

/// The same on whatever stream there is.
///
/// # Safety
/// As for [`issue`].
pub(crate) unsafe fn issue_on(
    handle: &'static OnecclComm,
    stream: impl FnOnce(&Live) -> Result<Option<Arc<Stream>>>,
    call: impl FnOnce(&Live) -> Result<Call>,
) -> Result<Code> {
    let live = handle.live()?;
    let call = call(&live)?;
    live.check(&call)?;
    let stream = stream(&live)?;
    let alone = !is_open() && live.stands_alone(&call);
    let Some(queue) = stream.as_ref().filter(|_| alone) else {
        return queue_up(Queued { handle, live, call, stream }).map(|()| SUCCESS);
    };
    handle.ledger.on_streams.store(true, Ordering::Relaxed);
    // SAFETY: passed on to the caller.
    unsafe { live.submit_one(&call, queue) }.map(|_| SUCCESS)
}

/// Leaves a call to the end of this thread's group, if it has one open, and makes it otherwise.
#[inline(never)]
fn queue_up(mut queued: Queued) -> Result<()> {
    if !is_open() {
        return make(vec![queued]).map_err(|(_, error)| error);
    }
    // At the group's end it would be refused after the calls before it were made.
    let Queued { live, call, stream, .. } = &mut queued;
    match stream {
        Some(stream) => live.check_submission(call, stream)?,
        None => {
            // What it is destroyed for, or overwritten by, before the group's end must not be read then.
            live.fix_scalar(call)?;
            live.check_begin(call)?;
        }
    }
    GROUP.with_borrow_mut(|group| group.calls.push(queued));
    Ok(())
}

/// A call's failure is also its group's, if this thread has one open.
#[cold]
pub(crate) fn fail(error: &Error) {
    if is_open() {
        // Not at thread exit, when nobody can end the group any more.
        let _ = GROUP.try_with(|group| {
            group.borrow_mut().failed.get_or_insert_with(|| error.clone());
        });
    }
}

/// Whether this thread has a group open.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed) > 0 && is_open_here()
}

#[cold]
#[inline(never)]
fn is_open_here() -> bool {
    DEPTH.get() > 0
}

/// Refuses what can't be part of a group.
pub(crate) fn refuse_within(what: &str) -> Result<()> {
    if is_open() { Err(Error::NotImplemented(format!("{what} within a group"))) } else { Ok(()) }
}

/// Leaves the making of a communicator to the end of this thread's group; gives it back where there is none.
pub(crate) fn defer(making: Making) -> Option<Making> {
    if !is_open() {
        return Some(making);
    }
    GROUP.with_borrow_mut(|group| group.making.push(making));
    None
}

/// Makes calls, in the order that this module is about. A failure comes with the communicator that it is of.
fn make(calls: Vec<Queued>) -> std::result::Result<(), (&'static OnecclComm, Error)> {
    let steps = steps(calls)?;
    // Communicators that have calls on host buffers in it.
    let on_host: BTreeSet<*const OnecclComm> =
        steps.iter().filter(|due| due.stream.is_none()).map(|due| std::ptr::from_ref(due.handle)).collect();
    // Their latest calls that run on streams; what was before one has ended when it has.
    let mut on_streams: BTreeMap<*const OnecclComm, Completion> = BTreeMap::new();
    let mut left = &steps[..];
    while let Some((first, _)) = left.split_first() {
        let together = left.iter().take_while(|step| step.turn == first.turn).count();
        let (now, later) = left.split_at(together);
        left = later;
        let mut begun = Vec::with_capacity(now.len());
        let mut outcome = Ok(());
        for Due { handle, live, step, stream, .. } in now {
            if let Some(stream) = stream {
                handle.ledger.on_streams.store(true, Ordering::Relaxed);
                // SAFETY: the callers of the queued calls keep their buffers until the queue has done this.
                match unsafe { live.submit(step, stream) } {
                    // What is recorded runs when it is replayed.
                    Ok(Some(done)) if on_host.contains(&std::ptr::from_ref(*handle)) && !done.is_recorded() => {
                        on_streams.insert(*handle, done);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        outcome = Err((*handle, error));
                        break;
                    }
                }
                continue;
            }
            let running = handle.ledger.run();
            // It may read what that call writes, and its input is copied in no order with streams of the caller's. The wait
            // ends as that for any call does.
            let before = on_streams.remove(&std::ptr::from_ref(*handle)).map_or(Ok(()), |done| done.wait());
            // SAFETY: the callers of the queued calls keep their buffers until their group's end.
            match before.and_then(|()| unsafe { live.begin(step) }) {
                Ok(step) => begun.push((*handle, step, running)),
                Err(error) => {
                    outcome = Err((*handle, error));
                    break;
                }
            }
        }
        for (handle, step, running) in begun {
            // SAFETY: as above.
            let ended = unsafe { step.finish() };
            drop(running);
            outcome = outcome.and(ended.map_err(|error| (handle, error)));
        }
        outcome?;
    }
    Ok(())
}

/// A step and when it is its turn.
struct Due {
    /// Alike on all ranks: the communicator's name, collectives before sends and receives, number among these.
    turn: (u32, bool, usize),
    handle: &'static OnecclComm,
    live: Arc<Live>,
    step: Step,
    stream: Option<Arc<Stream>>,
}

/// A communicator's sends and receives by peer, in order.
#[derive(Default)]
struct Between {
    sends: BTreeMap<usize, Vec<Call>>,
    receives: BTreeMap<usize, Vec<Call>>,
    /// Where they are made: all in one place.
    stream: Option<Option<Arc<Stream>>>,
}

fn steps(calls: Vec<Queued>) -> std::result::Result<Vec<Due>, (&'static OnecclComm, Error)> {
    struct Of {
        handle: &'static OnecclComm,
        live: Arc<Live>,
        collectives: usize,
        between: Between,
    }
    if hooks::groups_as_queued() {
        return Ok(as_queued(calls));
    }
    let mut communicators: Vec<Of> = Vec::new();
    let mut steps = Vec::with_capacity(calls.len());
    for Queued { handle, live, call, stream } in calls {
        let index = communicators.iter().position(|known| std::ptr::eq(known.handle, handle)).unwrap_or_else(|| {
            communicators.push(Of { handle, live: live.clone(), collectives: 0, between: Between::default() });
            communicators.len() - 1
        });
        let of = &mut communicators[index];
        if matches!(call.what, What::Send { .. } | What::Receive { .. }) {
            of.between.join(stream.as_ref()).map_err(|error| (handle, error))?;
        }
        match call.what {
            What::Send { to } => of.between.sends.entry(to).or_default().push(call),
            What::Receive { from } => of.between.receives.entry(from).or_default().push(call),
            _ => {
                let turn = (live.name, false, of.collectives);
                of.collectives += 1;
                steps.push(Due { turn, handle, live, step: Step::One(call), stream });
            }
        }
    }
    let mut own = Vec::new();
    for Of { handle, live, mut between, .. } in communicators {
        let stream = between.stream.clone().flatten();
        let messages = between.own(live.comm.rank(), stream.is_some()).map_err(|error| (handle, error))?;
        own.push((handle, live.clone(), messages));
        for (round, calls) in between.rounds().into_iter().enumerate() {
            if let Some(stream) = &stream {
                live.check_exchange(&calls, stream).map_err(|error| (handle, error))?;
            }
            let turn = (live.name, true, round);
            let (live, stream, step) = (live.clone(), stream.clone(), Step::Exchange(calls));
            steps.push(Due { turn, handle, live, step, stream });
        }
    }
    // Only when nothing is refused any more.
    for (handle, live, messages) in own {
        copy_own(&live, &messages).map_err(|error| (handle, error))?;
    }
    // By rank too, so that two threads that do this begin in one order.
    steps.sort_by_key(|due| (due.turn, due.live.comm.rank()));
    Ok(steps)
}

/// Without the rules of this module: a test's control.
fn as_queued(calls: Vec<Queued>) -> Vec<Due> {
    let due = |(number, Queued { handle, live, call, stream })| {
        let step = match call.what {
            What::Send { .. } | What::Receive { .. } => Step::Exchange(vec![call]),
            _ => Step::One(call),
        };
        Due { turn: (0, false, number), handle, live, step, stream }
    };
    calls.into_iter().enumerate().map(due).collect()
}

impl Between {
    /// Takes note of where one of them is to be made.
    fn join(&mut self, stream: Option<&Arc<Stream>>) -> Result<()> {
        let first = self.stream.get_or_insert_with(|| stream.cloned());
        match (first, stream) {
            (None, None) => Ok(()),
            (Some(first), Some(stream)) if Arc::ptr_eq(first, stream) => Ok(()),
            _ => {
                Err(Error::NotImplemented("sends and receives of one group and communicator on several streams".into()))
            }
        }
    }

    /// What is between this rank and itself, each send with its receive, to be copied; none on a stream, where it is part of
    /// the rounds.
    fn own(&mut self, rank: usize, on_stream: bool) -> Result<Vec<(Call, Call)>> {
        let (sends, receives) = (self.sends.get(&rank), self.receives.get(&rank));
        check_own(rank, sends.map_or(&[], Vec::as_slice), receives.map_or(&[], Vec::as_slice))?;
        if on_stream {
            return Ok(Vec::new());
        }
        let (sends, receives) = (self.sends.remove(&rank), self.receives.remove(&rank));
        Ok(sends.into_iter().flatten().zip(receives.into_iter().flatten()).collect())
    }

    /// The first send to and receive from each peer, then the second ones, and so on.
    fn rounds(self) -> Vec<Vec<Call>> {
        let mut rounds: Vec<Vec<Call>> = Vec::new();
        for calls in self.sends.into_values().chain(self.receives.into_values()) {
            // Nobody waits for what has no elements; the other side leaves it out as well.
            for (round, call) in calls.into_iter().filter(|call| call.count > 0).enumerate() {
                if rounds.len() <= round {
                    rounds.push(Vec::new());
                }
                rounds[round].push(call);
            }
        }
        rounds
    }
}

fn bytes(call: &Call) -> usize {
    call.count * call.dtype.size()
}

/// A rank's sends to itself need their receives.
fn check_own(rank: usize, sends: &[Call], receives: &[Call]) -> Result<()> {
    if sends.len() != receives.len() || sends.iter().zip(receives).any(|(send, receive)| bytes(send) != bytes(receive))
    {
        return Err(Error::InvalidUsage(format!(
            "rank {rank} sends itself {} messages and receives {} of other sizes or number; both belong in one group",
            sends.len(),
            receives.len()
        )));
    }
    Ok(())
}

/// Copies what a rank sends itself.
fn copy_own(live: &Live, messages: &[(Call, Call)]) -> Result<()> {
    for (send, receive) in messages.iter().filter(|(send, _)| send.count > 0) {
        // SAFETY: both buffers hold that many bytes until the group's end.
        unsafe { live.copy_own(receive.recv, send.send, bytes(send))? };
    }
    Ok(())
}

/// Opens a group on this thread, or one more level of it.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGroupStart() -> Code {
    entry("onecclGroupStart", || {
        let generation = fork::generation()?;
        if DEPTH.replace(DEPTH.get() + 1) == 0 {
            OPEN.fetch_add(1, Ordering::Relaxed);
            GROUP.with_borrow_mut(|group| group.generation = generation);
        }
        Ok(SUCCESS)
    })
}

/// Closes a level of this thread's group; the outermost makes its calls and returns when they are done.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGroupEnd() -> Code {
    entry("onecclGroupEnd", || {
        let outer = DEPTH.get().checked_sub(1);
        let outer = outer.ok_or_else(|| Error::InvalidUsage("no group was started on this thread".into()))?;
        DEPTH.set(outer);
        let mut group = Group::default();
        if outer == 0 {
            OPEN.fetch_sub(1, Ordering::Relaxed);
            group = GROUP.take();
            if group.generation != fork::current() {
                // Not even dropped: whoever holds its locks may not exist.
                std::mem::forget(group);
                return Err(forked("group"));
            }
        }
        // Communicators that are being made are told of it all the same: the other ranks wait for this one.
        let made = Making::run_all(group.making);
        if let Some(error) = group.failed {
            return Err(error);
        }
        made?;
        make(group.calls).map(|()| SUCCESS).map_err(|(handle, error)| {
            handle.await_end("onecclGroupEnd");
            let who = handle.ledger.who_and_where();
            hear("onecclGroupEnd", &who, &error);
            handle.ledger.refused("onecclGroupEnd", &error);
            error
        })
    })
}
