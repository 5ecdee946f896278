//! Runs of a recording, each of them one submission in the chain of a device's collectives.

use crate::api::{runs_all_the_same, ze};
use crate::capture;
use crate::chain::{Chain, UNCHAINED};
use crate::communicator::CallOptions;
use crate::completion::Completion;
use crate::event::{EventSlot, Events, with_one_more};
use crate::gpu::Gpu;
use crate::recording::Recording;
use crate::stream::Stream;
use ccl_core::comm::Health;
use ccl_core::{Error, Result};
use level_zero_sys::{ze_command_list_handle_t, ze_event_handle_t};
use parking_lot::MutexGuard;
use qcell::QCell;
use std::sync::Arc;

/// Events that an executable starts with: one for a replay that runs, one for the next.
const FIRST_EVENTS: u32 = 2;

/// What is needed to run something recorded, whatever it is.
pub(crate) struct Replays {
    gpu: Arc<Gpu>,
    events: QCell<Events>,
    healths: Arc<[Arc<Health>]>,
    /// Kept until the last replay is over.
    recording: Arc<Recording>,
}

impl Replays {
    pub(crate) fn new(gpu: &Arc<Gpu>, recording: &Arc<Recording>) -> Result<Replays> {
        let mut events = Events::new(gpu, gpu.counter_events(recording.events())?);
        events.grow(FIRST_EVENTS)?;
        let healths = recording.healths().into();
        Ok(Replays { gpu: gpu.clone(), events: gpu.turn.cell(events), healths, recording: recording.clone() })
    }

    /// Has `append` put one run on `stream`: it is given a list, an event to signal and events to wait for.
    ///
    /// # Safety
    /// The events of `options` must be live, and whatever the recording uses valid until the completion says so.
    pub(crate) unsafe fn launch(
        &self,
        stream: &Stream,
        options: CallOptions<'_>,
        append: impl FnOnce(ze_command_list_handle_t, ze_event_handle_t, &[ze_event_handle_t]) -> Result<()>,
    ) -> Result<Completion> {
        stream.check_device(&self.gpu)?;
        stream.check_list("a replay of Level Zero's")?;
        if stream.order().is_none() {
            return Err(Error::NotImplemented("a replay on a list that is not in order".into()));
        }
        for health in self.healths.iter() {
            health.check_open()?;
        }
        // By one of these events the stream may come into another recording: asked before, it wouldn't say so.
        // SAFETY: the events are the caller's duty.
        let (recording, after) = unsafe { capture::enter(stream, options.after)? };
        if recording.is_some() {
            return Err(Error::NotImplemented("a replay inside another recording".into()));
        }
        // It may hold anything: nothing says that it ends.
        stream.mark_foreign();
        let refusal = || self.healths.iter().find_map(|health| health.check().err());
        // What holds no collective takes no turn among them.
        let chained = self.recording.has_calls();
        let taken = match chained {
            true => self.next(stream, &|| refusal().is_some()),
            false => Ok((self.gpu.chain.lock(), None)),
        };
        let (mut chain, predecessor) = taken.map_err(|error| refusal().unwrap_or(error))?;
        let event = chain.turn.rw(&self.events).take()?;
        let (list, signal) = (stream.list(), options.signal.unwrap_or(event.handle));
        let _guard = stream.lock.lock();
        // The caller's event first: one that the driver doesn't take is refused with the run.
        if let Err(error) = with_one_more(after, predecessor.as_ref(), |waits| append(list, signal, waits)) {
            event.give_back();
            return Err(error);
        }
        let signalled = match options.signal {
            None => Ok(()),
            // SAFETY: a live list in order, and an event of ours.
            Some(_) => unsafe { ze!(self.gpu.api, zeCommandListAppendSignalEvent(list, event.handle)) },
        };
        // It runs, and has its turn, whatever became of the second signal.
        match chained {
            true => {
                self.recording.begun(&event);
                chain.push(stream.id, &event, false, predecessor, &self.gpu.finished);
            }
            false => event.issued(UNCHAINED, false),
        }
        signalled.map_err(runs_all_the_same)?;
        Ok(Completion::of_replay(event, self.healths.clone()))
    }

    /// The chain, for a run that comes next, and what that must wait for; an error as soon as `failed`.
    fn next(
        &self,
        stream: &Stream,
        failed: &dyn Fn() -> bool,
    ) -> Result<(MutexGuard<'_, Chain>, Option<Arc<EventSlot>>)> {
        let mut chain = self.gpu.place(failed)?;
        let predecessor = self.gpu.predecessor_of_list(&mut chain, stream.order(), failed)?;
        Ok((chain, predecessor))
    }

    /// Waits for the runs, as long as that is worth it; false if one is left. What they use is then lost instead of freed.
    pub(crate) fn finish(&mut self) -> bool {
        let events = self.events.get_mut();
        if !events.finish() {
            tracing::error!("a replay is still unfinished; what it uses is not freed");
            events.forget();
            std::mem::forget(self.recording.clone());
            return false;
        }
        self.gpu.chain.lock().leave(&self.gpu.finished, |last| events.has(last));
        true
    }
}
