//! What a device says of one call.

use crate::event::EventSlot;
use crate::recording::Recording;
use ccl_core::device;
use ccl_core::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// The completion of one call. Keeps its event from being used for another.
pub(crate) enum Completed {
    /// It runs.
    Issued(Arc<EventSlot>),
    /// It runs with each replay of this recording. Its event, if it could be given one, is an edge to what is in the same
    /// recording.
    Recorded(Arc<Recording>, Option<Arc<EventSlot>>),
}

impl Completed {
    /// The event of a call that runs.
    fn issued(&self) -> Result<&Arc<EventSlot>> {
        match self {
            Completed::Issued(event) => Ok(event),
            Completed::Recorded(..) => Err(Error::InvalidUsage(
                "the call was recorded and runs when its recording is replayed: wait for the replay".into(),
            )),
        }
    }

    /// The event that the call signals as its last act.
    pub(crate) fn event(&self) -> Result<&Arc<EventSlot>> {
        match self {
            Completed::Issued(event) if event.on_queue().is_some() => {
                Err(Error::NotImplemented("a Level Zero event of a call on a SYCL queue".into()))
            }
            Completed::Issued(event) | Completed::Recorded(_, Some(event)) => Ok(event),
            Completed::Recorded(_, None) => Err(Error::NotImplemented(
                "an event of a recorded call, where it can't signal a counter-based one: give the call one to signal"
                    .into(),
            )),
        }
    }
}

impl device::Completion for Completed {
    fn wait_unless(&self, give_up: &mut dyn FnMut() -> bool) -> Result<bool> {
        self.issued()?.wait_unless(give_up)
    }

    fn wait_for(&self, limit: Duration) -> Result<bool> {
        self.issued()?.wait_for(limit)
    }
}
