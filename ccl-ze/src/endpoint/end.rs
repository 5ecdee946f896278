//! What outlives an endpoint, and its end.

use super::{Executable, Kind, ZeEndpoint};
use crate::capture;
use crate::event::{EventSlot, Events};
use crate::hooks;
use crate::mhc;
use crate::recording::{Kept, Recording};
use ccl_core::Result;
use ccl_core::watch::Alarm as _;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

impl ZeEndpoint {
    /// Takes note that `recording` holds a call of this endpoint, and gives it what the call needs. What is to be recorded,
    /// if that isn't `executable` itself.
    pub(super) fn for_recording(
        &self,
        recording: &Arc<Recording>,
        executable: &Executable,
    ) -> Result<Option<Executable>> {
        let own = self.of_recording(recording, executable)?;
        let executable = own.as_ref().unwrap_or(executable);
        if let Some(table) = executable.table() {
            recording.keep(table.clone());
        }
        if let Kind::Direct { table, .. } = &executable.kind {
            recording.keep(table.clone());
        }
        recording.keep(self.memory().clone());
        if executable.is_counted() {
            self.host.is_in(recording);
        }
        if let Kind::Mhc(mhc::Launch { memory, .. }) | Kind::Fused(mhc::FusedLaunch { memory, .. }) = &executable.kind {
            recording.keep(memory.clone());
        }
        let mut recordings = self.recordings.lock();
        if !recordings.last().is_some_and(|last| std::ptr::eq(last.as_ptr(), Arc::as_ptr(recording))) {
            recordings.retain(|known| known.strong_count() > 0);
            recordings.push(Arc::downgrade(recording));
        }
        drop(recordings);
        Ok(own)
    }

    /// Whether all calls and replays that run are over by then: nothing is waited for at the end.
    pub(crate) fn is_over_by(&self, deadline: Instant) -> bool {
        let mut running: Vec<_> =
            self.recordings.lock().iter().filter_map(|recording| recording.upgrade()?.run()).collect();
        {
            // Whoever has it may be in a runtime that waits for the device.
            let Some(chain) = self.gpu.chain.try_lock_until(deadline) else { return false };
            running.extend(self.events.ro(&chain.turn).unfinished());
            running.extend(self.loose_events.ro(&chain.turn).unfinished());
        }
        running.extend(self.queue_events.lock().iter().flat_map(Events::unfinished));
        // The latest first: it tells of those before it, which may have no events.
        running.sort_by_key(|slot| Reverse(slot.number()));
        running.iter().all(|slot| self.gpu.finished.has(slot) || slot.is_over_by(deadline))
    }

    pub(super) fn memory(&self) -> &Kept {
        self.memory.get_or_init(|| {
            let (staging, peers, table) = (self.staging.clone(), self.peers.clone(), self.table.clone());
            Arc::new((staging, peers, table, self.state.clone(), self.host.clone(), self.registry.clone()))
        })
    }
}

impl Drop for ZeEndpoint {
    fn drop(&mut self) {
        capture::sweep();
        let (events, loose) = (self.events.get_mut(), self.loose_events.get_mut());
        let queued = self.queue_events.get_mut();
        let finish = |events: &Events, loose: &Events, queued: &Option<Events>| {
            events.finish() && loose.finish() && queued.iter().all(Events::finish)
        };
        if self.memory.get().is_some_and(|memory| Arc::strong_count(memory) > 1) {
            // Replays that run are waited for like eager calls.
            if !hooks::on(self.hooks, hooks::PRETENDED_DEVICE | hooks::NO_WAIT_FOR_REPLAYS) {
                let recordings = std::mem::take(self.recordings.get_mut());
                for run in recordings.iter().filter_map(|recording| recording.upgrade()?.run()) {
                    // What doesn't end is let go by the abort.
                    let _ = run.wait_at_end();
                }
                // Nor are calls that run to give up because recordings hold others.
                let _ = finish(events, loose, queued);
            }
            // Recordings still hold its calls: should one be replayed, it gives up instead of waiting for the others.
            self.host.abort();
        }
        if hooks::on(self.hooks, hooks::PRETENDED_DEVICE) {
            events.presume_finished();
            loose.presume_finished();
            queued.iter().for_each(Events::presume_finished);
        } else if !finish(events, loose, queued) {
            // Freeing memory under a kernel would be worse than losing it.
            tracing::error!("collectives are still unfinished; their memory is not freed");
            events.forget();
            loose.forget();
            queued.iter_mut().for_each(Events::forget);
            std::mem::forget(self.memory().clone());
            std::mem::forget(std::mem::take(self.tables.get_mut()));
            self.mhc.get().inspect(|workspace| workspace.forget());
            return;
        }
        // What the chain holds of these events would keep the device for ever.
        let is_own = |last: &Arc<EventSlot>| {
            events.has(last) || loose.has(last) || queued.as_ref().is_some_and(|queued| queued.has(last))
        };
        self.gpu.chain.lock().leave(&self.gpu.finished, is_own);
    }
}
