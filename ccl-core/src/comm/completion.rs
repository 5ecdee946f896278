//! When a call has finished, and whether it was right.

use crate::device::{self, Device, Endpoint};
use crate::error::{Error, Result};
use crate::protocol::Fault;
use crate::watch::{Alarm, DeviceFault, Status, VERDICT_TIME};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a kernel may take to notice that it is to give up, and to fill its output.
const TIME_TO_GIVE_UP: Duration = Duration::from_secs(2);

/// Most that counts of the time between two looks for the watch's word.
const LOOK: Duration = Duration::from_millis(100);

/// Whether a communicator is still sound. Completions keep this, and not the watch: it says goodbye when the communicator
/// goes.
pub struct Health {
    status: Status,
    alarm: Arc<dyn Alarm>,
    /// When a fault of which the watch has said nothing was last looked for, and how long that has gone on.
    unanswered: Mutex<Option<(Instant, Duration)>>,
}

impl Health {
    pub(super) fn new(status: Status, alarm: Arc<dyn Alarm>) -> Health {
        Health { status, alarm, unanswered: Mutex::new(None) }
    }

    /// Whether nothing has.
    #[inline(always)]
    pub(super) fn is_sound(&self) -> bool {
        self.status.is_sound()
    }

    /// The error that poisoned the communicator.
    #[inline(always)]
    pub fn check(&self) -> Result<()> {
        if self.status.is_sound() { Ok(()) } else { self.status.fault().map_or(Ok(()), Err) }
    }

    /// Why a call was not made that was given up for `error`: a communicator that has failed meanwhile says so. What else
    /// stood in its way is told as it is: it may say that the call runs all the same.
    #[cold]
    pub(super) fn why(&self, error: Error) -> Error {
        match error {
            Error::Aborted(_) | Error::Timeout { .. } => self.check().err().unwrap_or(error),
            _ => error,
        }
    }

    /// The same before work that holds its calls is begun anew: the communicator must still be there.
    pub fn check_open(&self) -> Result<()> {
        self.check()?;
        if self.status.is_closed() { Err(gone()) } else { Ok(()) }
    }

    /// The same after a call has ended: a fault that the device has just reported becomes known to the watch at its
    /// next look, which also finds out which rank is to blame. Once the communicator has gone nobody looks, and calls
    /// that are still repeated give up.
    #[inline]
    pub fn check_ended(&self) -> Result<()> {
        self.check_ended_for(Duration::MAX).map(drop)
    }

    /// The same for at most `limit`; `Ok(false)` if it isn't known by then who is to blame.
    #[inline]
    fn check_ended_for(&self, limit: Duration) -> Result<bool> {
        self.check()?;
        self.alarm.fault().map_or(Ok(true), |fault| self.await_notice(fault, limit))
    }

    #[cold]
    fn await_notice(&self, fault: DeviceFault, limit: Duration) -> Result<bool> {
        let since = Instant::now();
        while self.unanswered() < VERDICT_TIME {
            // It says what it has to say before it goes.
            let closed = self.status.is_closed();
            self.check()?;
            if closed {
                return Err(unwatched(fault));
            }
            let left = limit.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(left.min(Duration::from_millis(1)));
        }
        let error = Error::Internal(format!("the device reported {fault:?} and the watch did not notice"));
        self.status.fail(error.clone());
        Err(error)
    }

    /// For how long a fault has been looked for in vain. Time in which nobody looked, or the process stood still, doesn't
    /// count.
    fn unanswered(&self) -> Duration {
        let now = Instant::now();
        let mut unanswered = self.unanswered.lock();
        let (last, sum) = unanswered.get_or_insert((now, Duration::ZERO));
        *sum += (now - *last).min(LOOK);
        *last = now;
        *sum
    }
}

/// What a device reports once its communicator has gone.
fn unwatched(fault: DeviceFault) -> Error {
    match fault.fault {
        Fault::Aborted => gone(),
        _ => Error::InvalidUsage(format!(
            "a communicator has gone before its calls, and nobody can say which rank is to blame: {fault:?}"
        )),
    }
}

fn gone() -> Error {
    Error::InvalidUsage("a recording is replayed whose communicator has gone: its collectives give up".into())
}

/// Waits for work that holds calls of these communicators, and says whether they were right. What never begins, because it
/// is queued behind something that does not come, is waited for until shortly after one of them has failed.
pub fn wait(work: &impl device::Completion, healths: &[Arc<Health>]) -> Result<()> {
    let mut failed = None;
    let mut give_up = || {
        healths.iter().any(|health| health.check().is_err())
            && failed.get_or_insert_with(Instant::now).elapsed() > TIME_TO_GIVE_UP
    };
    work.wait_unless(&mut give_up)?;
    healths.iter().try_for_each(|health| health.check_ended())
}

/// The same for at most `limit`; `Ok(false)` if the work isn't finished by then, or if it isn't known yet who is to blame.
pub fn wait_for(work: &impl device::Completion, healths: &[Arc<Health>], limit: Duration) -> Result<bool> {
    let since = Instant::now();
    if !work.wait_for(limit)? {
        return Ok(false);
    }
    // What is known of one isn't held back by what isn't known of another yet.
    healths.iter().try_for_each(|health| health.check())?;
    for health in healths {
        if !health.check_ended_for(limit.saturating_sub(since.elapsed()))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tells when a call has finished and whether it was right.
pub struct Completion<D: Device> {
    inner: <D::Endpoint as Endpoint>::Completion,
    health: Arc<Health>,
}

impl<D: Device> Completion<D> {
    pub(super) fn new(inner: <D::Endpoint as Endpoint>::Completion, health: Arc<Health>) -> Self {
        Self { inner, health }
    }

    /// Waits for the end of the call. An error is the one that poisoned the communicator. The output is then filled with
    /// 0xFF bytes; it is whole if the call had finished just before the failure, and untouched if the call never began,
    /// because it is queued behind something that does not come: such a call is waited for until shortly after the
    /// communicator has failed.
    pub fn wait(&self) -> Result<()> {
        wait(&self.inner, std::slice::from_ref(&self.health))
    }

    /// Waits at most `limit`; `Ok(false)` if the call is not finished by then, or has failed and it isn't known yet why.
    pub fn wait_for(&self, limit: Duration) -> Result<bool> {
        wait_for(&self.inner, std::slice::from_ref(&self.health), limit)
    }

    /// The device's own completion.
    pub fn device(&self) -> &<D::Endpoint as Endpoint>::Completion {
        &self.inner
    }

    /// Whether the communicator is still sound.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }
}
