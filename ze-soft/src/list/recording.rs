//! What a regular list records, and its executions.

use super::mutable::Mutables;
use crate::error::fail;
use crate::event::Epoch;
use crate::exec::{self, Source};
use crate::op::{Command, Signal, Wait};
use level_zero_sys::{ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ZE_RESULT_ERROR_INVALID_ARGUMENT, ze_result_t};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long executions that are over may take to let go of what they executed, in nanoseconds.
const LETS_GO: u64 = 2_000_000_000;

/// A regular list while it is being recorded, and after.
#[derive(Default)]
pub(super) struct Record {
    /// What was appended since the list was opened.
    pub(super) commands: Vec<Command>,
    /// How many waits are left open until the list is submitted.
    pub(super) late: usize,
    pub(super) epoch: Arc<Epoch>,
    pub(super) closed: Option<Arc<Recording>>,
    /// There if commands may change after the list was closed.
    pub(super) mutable: Option<Box<Mutables>>,
}

impl Record {
    pub(super) fn check_open(&self) -> Result<(), ze_result_t> {
        match self.closed {
            None => Ok(()),
            Some(_) => Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "this command list is closed")),
        }
    }

    pub(super) fn close(&mut self) -> Result<(), ze_result_t> {
        if self.mutable.is_some() && self.closed.is_some() {
            return self.close_again();
        }
        self.check_open()?;
        let commands = std::mem::take(&mut self.commands);
        self.epoch.close(commands.len());
        self.closed = Some(Arc::new(Recording { commands, late: self.late, epoch: self.epoch.clone() }));
        Ok(())
    }

    /// Makes the changes that were collected since the list was closed.
    fn close_again(&mut self) -> Result<(), ze_result_t> {
        let (Some(mutables), Some(closed)) = (self.mutable.as_deref_mut(), &mut self.closed) else { return Ok(()) };
        if !mutables.has_changes() {
            return Ok(());
        }
        let launches = mutables.launches()?;
        // The program waited for the executions; the executor may be about to let go of the last one.
        exec::wait(LETS_GO, || Arc::strong_count(closed) == 1, || None);
        let Some(recording) = Arc::get_mut(closed) else {
            let text = "commands of a list can't change while it is executed";
            return Err(fail(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, text));
        };
        mutables.apply(&mut recording.commands, &recording.epoch, launches);
        recording.late = 0;
        recording.commands.iter_mut().for_each(|command| command.waits.number(&mut recording.late));
        Ok(())
    }

    /// Opens the list again, empty. Executions in flight keep what they execute.
    pub(super) fn reset(&mut self) {
        let epoch = Arc::new(self.epoch.next());
        let mutable = self.mutable.as_ref().map(|_| Box::default());
        *self = Self { epoch, mutable, ..Self::default() };
    }

    pub(super) fn recording(&self) -> Result<Arc<Recording>, ze_result_t> {
        if self.mutable.as_ref().is_some_and(|mutables| mutables.has_changes()) {
            let text = "a command list whose commands have changed must be closed again before it can be executed";
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
        }
        self.closed.clone().ok_or_else(|| {
            fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a command list must be closed before it can be executed")
        })
    }
}

/// The commands of a closed list.
pub(crate) struct Recording {
    pub(crate) commands: Vec<Command>,
    late: usize,
    pub(crate) epoch: Arc<Epoch>,
}

impl Recording {
    /// What the waits that were left open wait for, if the list is submitted now.
    pub(super) fn targets(&self) -> Vec<u64> {
        if self.late == 0 {
            return Vec::new();
        }
        let waits = self.commands.iter().flat_map(|command| command.waits.iter());
        waits
            .filter_map(|wait| match wait {
                Wait::Late { point, .. } => Some(point.target()),
                Wait::State(_) | Wait::Count(_) | Wait::Replay(..) => None,
            })
            .collect()
    }

    /// Notes what will have run it, for those who wait for what it signals.
    pub(super) fn submitted(&self, source: Option<Source>) {
        self.epoch.submitted(source);
        for command in &self.commands {
            if let Some(Signal::State(event)) = &command.signal {
                event.expect(source);
            }
        }
    }
}

/// The executions of one list, which don't overtake each other.
#[derive(Default)]
pub(crate) struct Chain {
    issued: AtomicU64,
    done: AtomicU64,
}

impl Chain {
    /// The number of a new execution, from 1.
    pub(crate) fn issue(&self) -> u64 {
        self.issued.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that an execution is over.
    pub(crate) fn complete(&self, number: u64) {
        self.done.store(number, Ordering::Release);
    }

    /// Whether the first `number` executions are over.
    pub(crate) fn reached(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }
}
