//! Command lists.
//!
//! Whether a list is in order or not, its commands run in the order in which they were appended: the specification
//! allows that. In-order lists have a counter besides, for counter-based events.

mod entry;
mod mutable;
mod nested;
mod recording;

pub(crate) use entry::queue_executor;
pub(crate) use mutable::FLAGS as MUTABLE_FLAGS;
pub(crate) use recording::{Chain, Recording};

use crate::engine::cuda;
use crate::error::fail;
use crate::event::{self, Counter, Event, Point};
use crate::exec::{Executor, LaneId, Progress, Receipt, Run, Work, wait};
use crate::graph::{Executable, Home, Mark, Pending, Session, Site};
use crate::handle::Object;
use crate::op::{Command, Op, Signal, Wait, Waits};
use crate::queue::Made;
use level_zero_sys::*;
use parking_lot::Mutex;
use recording::Record;
use std::sync::Arc;

/// A command list.
pub(crate) struct List {
    /// The handles it was created with, for the program to ask for.
    context: usize,
    device: usize,
    executor: Arc<Executor>,
    /// There if the list is in order.
    counter: Option<Arc<Counter>>,
    /// The capture that an immediate list takes part in.
    capture: Mark,
    kind: ListKind,
}

enum ListKind {
    Immediate {
        lane: LaneId,
        progress: Arc<Progress>,
        made: Made,
        /// What will have run the newest command.
        newest: crate::exec::SourceCell,
    },
    Regular {
        flags: ze_command_list_flags_t,
        record: Mutex<Record>,
        chain: Arc<Chain>,
    },
}

impl Object for List {
    const MAGIC: u64 = 0x5a45_534f_434c_5331;
}

impl List {
    /// Whether kernels may be appended.
    pub(crate) fn computes(&self) -> bool {
        self.executor.computes()
    }

    fn is_immediate(&self) -> bool {
        matches!(self.kind, ListKind::Immediate { .. })
    }

    /// What waiting for `event` in this list means, if it means anything.
    ///
    /// A counter-based event is taken for what it stands for now: it may be aimed anew before this list's command runs.
    pub(crate) fn wait_for(&self, event: &Arc<Event>) -> Option<Wait> {
        if event.counted().is_none() {
            return Some(Wait::State(event.clone()));
        }
        let point = event.point()?;
        if self.counter.as_ref().is_some_and(|own| Arc::ptr_eq(own, point.counter())) {
            // The list's own order sees to that.
            return None;
        }
        match point.is_recorded() && !self.is_immediate() {
            true => Some(Wait::Late { point, slot: 0 }),
            false => Some(Wait::Count(point.settled())),
        }
    }

    /// The counter with which this list signals `event`, if that is a counter-based event and one for this list.
    fn counter_for(&self, event: &Event) -> Result<Option<&Arc<Counter>>, ze_result_t> {
        let Some(flags) = event.counted() else { return Ok(None) };
        let Some(counter) = &self.counter else {
            let text = "only an in-order list can signal a counter-based event";
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
        };
        let (immediate, other) = (ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE, ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE);
        let (wanted, name) = match self.is_immediate() {
            // Neither flag means immediate.
            true => (flags & immediate != 0 || flags & other == 0, "an immediate"),
            false => (flags & other != 0, "a regular"),
        };
        if !wanted {
            let text = format!("this counter-based event was not created for {name} list");
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
        }
        Ok(Some(counter))
    }

    fn signal_of(&self, event: &Arc<Event>) -> Result<Signal, ze_result_t> {
        event.check_usable()?;
        Ok(match self.counter_for(event)? {
            None => Signal::State(event.clone()),
            Some(counter) => {
                let stamped = event.is_stamped().then(|| event.clone());
                // A stream has to be told which counter.
                match self.is_immediate() && !cuda::runs() {
                    true => Signal::Own { stamped },
                    false => Signal::Count { counter: counter.clone(), stamped },
                }
            }
        })
    }

    /// Tells lists apart while they live.
    pub(crate) fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// The capture that it takes part in.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.capture.session()
    }

    fn site(&self) -> Site<'_> {
        let in_order = self.counter.is_some();
        Site { key: self.key(), executor: &self.executor, in_order, mark: &self.capture }
    }

    /// What a capture needs to know to begin on this list, if one may.
    pub(crate) fn recordable(&self) -> Result<Site<'_>, ze_result_t> {
        let ListKind::Immediate { made, .. } = &self.kind else {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "only an immediate list can be captured"));
        };
        if self.session().is_some() {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "this list is being captured already"));
        }
        check_asynchronous(made.mode)?;
        Ok(self.site())
    }

    /// The capture that a command of this list would belong to if it waited for `event`, which a capture recorded.
    fn join(&self, event: &Event, own: Option<Arc<Session>>) -> Result<Option<Arc<Session>>, ze_result_t> {
        let Some(other) = event.captured().session() else { return Ok(own) };
        let ListKind::Immediate { made, .. } = &self.kind else {
            event.check_usable()?;
            return Ok(own);
        };
        match own {
            Some(own) if Arc::ptr_eq(&own, &other) => Ok(Some(own)),
            Some(_) => {
                let text = "this event belongs to another recording, and two recordings can't become one";
                Err(fail(ZE_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT, text))
            }
            None => check_asynchronous(made.mode).map(|()| Some(other)),
        }
    }

    /// Whether what is appended is submitted at once: to an immediate list that is in no capture.
    pub(crate) fn is_eager(&self) -> bool {
        self.is_immediate() && !self.capture.is_set()
    }

    /// Submits a command that waits for nothing besides the list's order, on a list that [`Self::is_eager`].
    pub(crate) fn issue(&self, op: Op, event: Option<&Arc<Event>>) -> Result<(), ze_result_t> {
        let ListKind::Immediate { lane, .. } = &self.kind else { return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT) };
        let signal = event.map(|event| self.signal_of(event)).transpose()?;
        self.executor.start()?;
        let receipt = self.executor.submit_command(*lane, op, signal, None);
        self.submitted(receipt, event)
    }

    /// Appends a command.
    pub(crate) fn append(&self, op: Op, target: Target, event: Option<&Arc<Event>>) -> Result<(), ze_result_t> {
        let mut waits = match target {
            Target::Run(waits) => waits,
            Target::Record(Pending { session, waits }) => {
                if let Some(event) = event {
                    self.counter_for(event)?;
                }
                return session.record(&self.site(), op, waits, event);
            }
        };
        let signal = event.map(|event| self.signal_of(event)).transpose()?;
        match &self.kind {
            ListKind::Immediate { lane, .. } => {
                self.executor.start()?;
                let receipt = self.executor.submit_command(*lane, op, signal, Some(waits));
                self.submitted(receipt, event)
            }
            ListKind::Regular { record, .. } => {
                let mut record = record.lock();
                record.check_open()?;
                waits.number(&mut record.late);
                if let (Some(event), Some(Signal::Count { counter, .. })) = (event, &signal) {
                    event.aim(Point::recorded(counter.clone(), record.epoch.clone(), record.commands.len()));
                }
                if let Some(event) = event {
                    event.captured().clear();
                }
                record.commands.push(Command { op, waits, signal });
                Ok(())
            }
        }
    }

    /// What follows a submission to an immediate list.
    fn submitted(&self, receipt: Receipt, event: Option<&Arc<Event>>) -> Result<(), ze_result_t> {
        let ListKind::Immediate { newest, made, .. } = &self.kind else { return Ok(()) };
        newest.set(receipt.source);
        if let Some(event) = event {
            // Who waits for it now waits for this, not for what a recording has of it.
            event.captured().clear();
        }
        match (event, &self.counter) {
            (Some(event), Some(counter)) if event.counted().is_some() => {
                event.aim_at(counter, receipt.position, receipt.source);
            }
            (Some(event), _) => event.expect(receipt.source),
            (None, _) => {}
        }
        if made.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS {
            self.synchronize(u64::MAX)?;
        }
        Ok(())
    }

    /// Waits for all that was appended to an immediate list so far.
    fn synchronize(&self, timeout: u64) -> Result<(), ze_result_t> {
        let ListKind::Immediate { progress, newest, .. } = &self.kind else {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "only an immediate list can be waited for"));
        };
        if self.session().is_some() {
            let text = "a list that is being captured can't be waited for: what is recorded does not run";
            return Err(fail(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED, text));
        }
        let target = progress.submitted();
        match wait(timeout, || progress.is_over(target, &self.executor), || newest.get()) {
            ZE_RESULT_SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    /// Appends executions of regular lists to an immediate list, after the waits and before the signal.
    pub(crate) fn append_lists(
        &self,
        lists: &[&Arc<List>],
        target: Target,
        event: Option<&Arc<Event>>,
    ) -> Result<(), ze_result_t> {
        let ListKind::Immediate { lane, .. } = &self.kind else {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "lists can only be appended to an immediate list"));
        };
        let waits = match target {
            Target::Run(waits) => waits,
            Target::Record(pending) => return self.record_lists(lists, pending, event),
        };
        let signal = event.map(|event| self.signal_of(event)).transpose()?;
        for list in lists {
            list.check_executable(&self.executor)?;
        }
        self.executor.start()?;
        if !waits.is_empty() {
            let receipt = self.executor.submit_command(*lane, Op::Nothing, None, Some(waits));
            self.submitted(receipt, None)?;
        }
        for list in lists {
            let receipt = list.execute(None, |run| self.executor.submit(*lane, Work::Run(run)))?;
            self.submitted(receipt, None)?;
        }
        if signal.is_some() {
            let receipt = self.executor.submit_command(*lane, Op::Nothing, signal, None);
            self.submitted(receipt, event)?;
        }
        Ok(())
    }

    /// Appends a replay of a graph.
    pub(crate) fn append_graph(
        &self,
        graph: &Arc<Executable>,
        target: Target,
        event: Option<&Arc<Event>>,
    ) -> Result<(), ze_result_t> {
        let mut waits = match target {
            Target::Run(waits) => waits,
            Target::Record(Pending { session, waits }) => {
                self.check_nesting("graphs")?;
                return session.record_graph(&self.site(), graph.body(), waits, event);
            }
        };
        let ListKind::Immediate { lane, made, .. } = &self.kind else {
            return self.append_nodes(graph.body(), waits, event);
        };
        let (device, ordinal) = (self.executor.device(), self.executor.ordinal());
        let (here, home) = (Home { device, ordinal, in_order: self.counter.is_some() }, graph.body().home);
        if made.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS || here != home {
            let Home { device, ordinal, in_order } = home;
            let order = if in_order { "in order" } else { "out of order" };
            let text = format!(
                "this graph is replayed on an asynchronous list of device {device} and queue group {ordinal} that is \
                 {order}, like the one on which it was recorded"
            );
            return Err(fail(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, text));
        }
        let signal = event.map(|event| self.signal_of(event)).transpose()?;
        self.executor.start()?;
        graph.start()?;
        let replay = graph.issue();
        if *replay > 1 {
            waits.push(Wait::Replay(graph.clone(), *replay - 1));
        }
        let begun = self.executor.submit_command(*lane, Op::Begin(graph.clone(), *replay), None, Some(waits));
        graph.submit(*replay, begun.source);
        let mut waits = Waits::default();
        waits.push(Wait::Replay(graph.clone(), *replay));
        let receipt = self.executor.submit_command(*lane, Op::Nothing, signal, Some(waits));
        drop(replay);
        self.submitted(receipt, event)
    }

    /// Refuses a list that can't be executed by `executor`.
    pub(crate) fn check_executable(&self, executor: &Executor) -> Result<(), ze_result_t> {
        let ListKind::Regular { record, .. } = &self.kind else {
            return Err(fail(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "an immediate list can't be executed again"));
        };
        if self.executor.ordinal() != executor.ordinal() {
            let text = format!(
                "a list of queue group {} can't be executed on queue group {}",
                self.executor.ordinal(),
                executor.ordinal()
            );
            return Err(fail(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, text));
        }
        if self.executor.device() != executor.device() {
            let text = format!(
                "a list of device {} can't be executed on device {}",
                self.executor.device(),
                executor.device()
            );
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
        }
        record.lock().recording().map(drop)
    }

    /// Has a closed list executed by `submit`.
    pub(crate) fn execute(
        &self,
        flow: Option<(Arc<crate::queue::Flow>, u64)>,
        submit: impl FnOnce(Run) -> Receipt,
    ) -> Result<Receipt, ze_result_t> {
        let ListKind::Regular { record, chain, .. } = &self.kind else {
            return Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
        };
        let recording = record.lock().recording()?;
        // Before the submission counts: a list may wait for what its own earlier execution signals.
        let targets = recording.targets();
        let repetition = recording.epoch.run();
        let chain = (chain.clone(), chain.issue());
        let receipt = submit(Run { recording: recording.clone(), repetition, chain, flow, targets, at: 0 });
        recording.submitted(receipt.source);
        Ok(receipt)
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if let Some(session) = self.session() {
            session.list_destroyed(self.key());
        }
        // What was appended still runs: it keeps all it needs.
        if let ListKind::Immediate { lane, .. } = &self.kind {
            self.executor.close_lane(*lane);
        }
    }
}

/// The address of the entry point of this name that isn't an append.
pub(crate) fn resolve(name: &[u8]) -> Option<*const std::ffi::c_void> {
    entry::resolve(name).or_else(|| mutable::resolve(name))
}

/// What becomes of a command that is being appended.
pub(crate) enum Target {
    /// It is executed, after these waits; by a regular list when that is.
    Run(Waits),
    /// It is captured.
    Record(Pending),
}

fn check_asynchronous(mode: ze_command_queue_mode_t) -> Result<(), ze_result_t> {
    match mode {
        ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS => {
            Err(fail(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED, "a synchronous list can't be captured"))
        }
        _ => Ok(()),
    }
}

/// What becomes of a command of `list` with this wait list.
///
/// # Safety
/// `events` must be null or point to `count` handles.
pub(crate) unsafe fn wait_list(list: &List, count: u32, events: *mut ze_event_handle_t) -> Result<Target, ze_result_t> {
    if count > 0 && events.is_null() {
        return Err(fail(ZE_RESULT_ERROR_INVALID_SIZE, format!("a wait list of {count} events is a null pointer")));
    }
    // SAFETY: the caller's promise.
    let events = (0..count as usize).map(|index| event::get(unsafe { events.add(index).read() }));
    let mut session = list.session();
    for event in events.clone() {
        session = list.join(event?, session)?;
    }
    if let Some(session) = session {
        let waits = events.map(|event| event.cloned()).collect::<Result<_, _>>()?;
        return Ok(Target::Record(Pending { session, waits }));
    }
    let mut waits = Waits::default();
    for event in events {
        if let Some(wait) = list.wait_for(event?) {
            waits.push(wait);
        }
    }
    Ok(Target::Run(waits))
}
