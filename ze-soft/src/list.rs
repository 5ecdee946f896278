//! Command lists.
//!
//! Whether a list is in order or not, its commands run in the order in which they were appended: the specification
//! allows that. In-order lists have a counter besides, for counter-based events.

mod entry;
mod recording;

pub(crate) use entry::{queue_executor, resolve};
pub(crate) use recording::{Chain, Recording};

use crate::error::fail;
use crate::event::{self, Counter, Event, Point};
use crate::exec::{Executor, LaneId, Progress, Receipt, Run, Work, wait};
use crate::handle::Object;
use crate::op::{Command, Op, Signal, Wait, Waits};
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
    kind: ListKind,
}

enum ListKind {
    Immediate {
        lane: LaneId,
        progress: Arc<Progress>,
        index: u32,
        flags: ze_command_queue_flags_t,
        mode: ze_command_queue_mode_t,
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

    fn signal_of(&self, event: &Arc<Event>) -> Result<Signal, ze_result_t> {
        let Some(flags) = event.counted() else { return Ok(Signal::State(event.clone())) };
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
        Ok(Signal::Count { counter: counter.clone(), stamped: event.is_stamped().then(|| event.clone()) })
    }

    /// Appends a command.
    pub(crate) fn append(&self, op: Op, mut waits: Waits, event: Option<&Arc<Event>>) -> Result<(), ze_result_t> {
        let signal = event.map(|event| self.signal_of(event)).transpose()?;
        match &self.kind {
            ListKind::Immediate { lane, .. } => {
                self.executor.start()?;
                let receipt = self.executor.submit(*lane, Work::Command(Command { op, waits, signal }));
                self.submitted(receipt, event)
            }
            ListKind::Regular { record, .. } => {
                let mut record = record.lock();
                record.check_open()?;
                waits.number(&mut record.late);
                if let (Some(event), Some(Signal::Count { counter, .. })) = (event, &signal) {
                    event.aim(Point::recorded(counter.clone(), record.epoch.clone(), record.commands.len()));
                }
                record.commands.push(Command { op, waits, signal });
                Ok(())
            }
        }
    }

    /// What follows a submission to an immediate list.
    fn submitted(&self, receipt: Receipt, event: Option<&Arc<Event>>) -> Result<(), ze_result_t> {
        let ListKind::Immediate { newest, mode, .. } = &self.kind else { return Ok(()) };
        newest.set(receipt.source);
        match (event, &self.counter) {
            (Some(event), Some(counter)) if event.counted().is_some() => {
                event.aim(Point::at(counter.clone(), receipt.position, receipt.source));
            }
            (Some(event), _) => event.expect(receipt.source),
            (None, _) => {}
        }
        if *mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS {
            self.synchronize(u64::MAX)?;
        }
        Ok(())
    }

    /// Waits for all that was appended to an immediate list so far.
    fn synchronize(&self, timeout: u64) -> Result<(), ze_result_t> {
        let ListKind::Immediate { progress, newest, .. } = &self.kind else {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "only an immediate list can be waited for"));
        };
        let target = progress.submitted();
        match wait(timeout, || progress.reached(target), || newest.get()) {
            ZE_RESULT_SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    /// Appends executions of regular lists to an immediate list, after the waits and before the signal.
    pub(crate) fn append_lists(
        &self,
        lists: &[&Arc<List>],
        waits: Waits,
        event: Option<&Arc<Event>>,
    ) -> Result<(), ze_result_t> {
        let ListKind::Immediate { lane, .. } = &self.kind else {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "lists can only be appended to an immediate list"));
        };
        let signal = event.map(|event| self.signal_of(event)).transpose()?;
        for list in lists {
            list.check_executable(&self.executor)?;
        }
        self.executor.start()?;
        if !waits.is_empty() {
            let receipt = self.executor.submit(*lane, Work::Command(Command { op: Op::Nothing, waits, signal: None }));
            self.submitted(receipt, None)?;
        }
        for list in lists {
            let receipt = list.execute(None, |run| self.executor.submit(*lane, Work::Run(run)))?;
            self.submitted(receipt, None)?;
        }
        if signal.is_some() {
            let command = Command { op: Op::Nothing, waits: Waits::default(), signal };
            let receipt = self.executor.submit(*lane, Work::Command(command));
            self.submitted(receipt, event)?;
        }
        Ok(())
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
        // What was appended still runs: it keeps all it needs.
        if let ListKind::Immediate { lane, .. } = &self.kind {
            self.executor.close_lane(*lane);
        }
    }
}

/// The waits of a wait list.
///
/// # Safety
/// `events` must be null or point to `count` handles.
pub(crate) unsafe fn wait_list(list: &List, count: u32, events: *mut ze_event_handle_t) -> Result<Waits, ze_result_t> {
    let mut waits = Waits::default();
    if count > 0 && events.is_null() {
        return Err(fail(ZE_RESULT_ERROR_INVALID_SIZE, format!("a wait list of {count} events is a null pointer")));
    }
    for index in 0..count as usize {
        // SAFETY: the caller's promise.
        let event = event::get(unsafe { events.add(index).read() })?;
        if let Some(wait) = list.wait_for(event) {
            waits.push(wait);
        }
    }
    Ok(waits)
}
