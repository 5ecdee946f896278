//! When a call or a replay has finished, and whether it was right.

use crate::endpoint::{Completed, ZeDevice};
use crate::event::EventSlot;
use crate::stream::Stream;
use ccl_core::Result;
use ccl_core::comm::{self, Health};
use level_zero_sys::ze_event_handle_t;
use std::sync::Arc;
use std::time::Duration;

/// Tells when a call has finished and whether it was right. Dropping it loses nothing: the call goes on.
///
/// That of a call which was recorded is an edge inside the recording: nothing has run yet, and waiting for it is an error.
#[must_use = "a failure is only told to whoever waits, and by the next call"]
pub struct Completion(Inner);

enum Inner {
    Call(comm::Completion<ZeDevice>),
    Replay(Completed, Arc<[Arc<Health>]>),
}

impl Completion {
    #[inline]
    pub(crate) fn of_call(call: comm::Completion<ZeDevice>) -> Completion {
        if let Completed::Recorded(recording, _) = call.device() {
            recording.answer_for(call.health());
        }
        Completion(Inner::Call(call))
    }

    pub(crate) fn of_replay(event: Arc<EventSlot>, healths: Arc<[Arc<Health>]>) -> Completion {
        Completion(Inner::Replay(Completed::Issued(event), healths))
    }

    /// Waits for the end of the call, or of the whole replay. An error has poisoned the communicator, of a replay any of
    /// those whose calls it holds: every later call returns the same one. The output is then filled with 0xFF bytes; it is
    /// whole if the call had finished just before, and untouched if the call never began.
    pub fn wait(&self) -> Result<()> {
        match &self.0 {
            Inner::Call(call) => call.wait(),
            Inner::Replay(event, healths) => comm::wait(event, healths),
        }
    }

    /// Waits at most `limit`; `Ok(false)` if the call is not finished by then, or has failed and it isn't known yet why.
    pub fn wait_for(&self, limit: Duration) -> Result<bool> {
        match &self.0 {
            Inner::Call(call) => call.wait_for(limit),
            Inner::Replay(event, healths) => comm::wait_for(event, healths, limit),
        }
    }

    /// Whether the call was recorded: it runs when what it was recorded in is replayed, and there is nothing to wait for.
    pub fn is_recorded(&self) -> bool {
        matches!(self.device(), Completed::Recorded(..))
    }

    /// Whether the call is finished, without waiting; an error if it was not right, as soon as it is known why.
    pub fn is_finished(&self) -> Result<bool> {
        self.wait_for(Duration::ZERO)
    }

    /// The event that is signalled last, for work on any stream of the same device to wait on. Valid while this lives.
    ///
    /// Of a recorded call it is good for work in the same recording only: outside, it may still be what the replay before
    /// has signalled. An error if the recorded call could not be given one (a list that is not in order, or no
    /// counter-based events): such a call wants an event of the caller's to signal.
    pub fn event(&self) -> Result<ze_event_handle_t> {
        self.device().event().map(|event| event.handle)
    }

    /// Makes what comes on `stream`, of the same device, from now on wait for this. The stream of a recorded call's consumer thereby comes into
    /// the same capture, if it isn't in it.
    pub fn order(&self, stream: &Stream) -> Result<()> {
        stream.wait_on(self.device().event()?)
    }

    pub(crate) fn device(&self) -> &Completed {
        match &self.0 {
            Inner::Call(call) => call.device(),
            Inner::Replay(event, _) => event,
        }
    }
}
