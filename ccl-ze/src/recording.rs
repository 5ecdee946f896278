//! What a recording needs for as long as it may be replayed: the events of its collectives and the memory they use.

use crate::event::EventSlot;
use crate::gpu::Gpu;
use crate::memory::Allocation;
use ccl_core::comm::Health;
use ccl_core::config::EventChoice;
use ccl_core::{Error, Result};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A graph while it is captured and as long as it exists, or what was appended to a regular list.
pub(crate) struct Recording {
    state: Mutex<State>,
    ended: AtomicBool,
    /// Whether it holds a call of a communicator that has regular events only.
    regular: AtomicBool,
}

/// Something that must outlive the recording's replays.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
struct State {
    // Fields are dropped in this order: events before the memory of their calls.
    last: Option<Link>,
    run: Option<Arc<EventSlot>>,
    events: Vec<Arc<EventSlot>>,
    healths: Vec<Arc<Health>>,
    kept: Vec<Kept>,
    /// By device: what the work-groups of its boundaries share.
    workspaces: Vec<(Arc<Gpu>, Arc<Allocation>)>,
}

/// The collective that was recorded last.
struct Link {
    stream: u64,
    event: Option<Arc<EventSlot>>,
}

impl Recording {
    pub(crate) fn new() -> Arc<Recording> {
        let (ended, regular) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Recording { state: Mutex::default(), ended, regular })
    }

    /// Its graph is gone.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// It holds a call of a communicator that has regular events only.
    pub(crate) fn keep_to_regular(&self) {
        self.regular.store(true, Ordering::Relaxed);
    }

    /// What kind of events its replays are to have.
    pub(crate) fn events(&self) -> EventChoice {
        if self.regular.load(Ordering::Relaxed) { EventChoice::Regular } else { EventChoice::Auto }
    }

    /// What a collective on `stream` must wait for: the recording's collectives take turns in each replay. Collectives
    /// outside are none of its business: they are not repeated with it.
    pub(crate) fn predecessor(&self, stream: u64) -> Result<Option<Arc<EventSlot>>> {
        match &self.state.lock().last {
            Some(last) if last.stream != stream => match &last.event {
                Some(event) => Ok(Some(event.clone())),
                None => Err(Error::NotImplemented(
                    "collectives on several lists of one recording, where they can't signal counter-based events"
                        .into(),
                )),
            },
            _ => Ok(None),
        }
    }

    /// Adds a collective that was appended to `stream`.
    pub(crate) fn push(&self, stream: u64, event: Option<&Arc<EventSlot>>) {
        let mut state = self.state.lock();
        state.last = Some(Link { stream, event: event.cloned() });
        state.events.extend(event.cloned());
    }

    /// Takes note of the latest replay; those before it are over when it is.
    pub(crate) fn begun(&self, run: &Arc<EventSlot>) {
        self.state.lock().run = Some(run.clone());
    }

    /// The latest replay.
    pub(crate) fn run(&self) -> Option<Arc<EventSlot>> {
        self.state.lock().run.clone()
    }

    /// Keeps something for as long as it may be replayed.
    pub(crate) fn keep(&self, kept: Kept) {
        let mut state = self.state.lock();
        // Most calls keep what the call before did.
        if !state.kept.iter().rev().take(8).any(|old| std::ptr::addr_eq(Arc::as_ptr(old), Arc::as_ptr(&kept))) {
            state.kept.push(kept);
        }
    }

    /// What the work-groups of its boundaries on `gpu` share, which take turns: by `make`, where there is none yet. No other
    /// recording and no eager boundary uses it, for they may run at the same time.
    pub(crate) fn workspace(
        &self,
        gpu: &Arc<Gpu>,
        make: impl FnOnce() -> Result<Arc<Allocation>>,
    ) -> Result<Arc<Allocation>> {
        let mut state = self.state.lock();
        if let Some((_, memory)) = state.workspaces.iter().find(|(of, _)| Arc::ptr_eq(of, gpu)) {
            return Ok(memory.clone());
        }
        let memory = make()?;
        state.workspaces.push((gpu.clone(), memory.clone()));
        Ok(memory)
    }

    /// Takes note of a communicator whose calls it holds.
    pub(crate) fn answer_for(&self, health: &Arc<Health>) {
        let mut state = self.state.lock();
        if !state.healths.iter().any(|known| Arc::ptr_eq(known, health)) {
            state.healths.push(health.clone());
        }
    }

    /// Whether there is a collective in it.
    pub(crate) fn has_calls(&self) -> bool {
        self.state.lock().last.is_some()
    }

    /// The communicators whose calls it holds.
    pub(crate) fn healths(&self) -> Vec<Arc<Health>> {
        self.state.lock().healths.clone()
    }
}
