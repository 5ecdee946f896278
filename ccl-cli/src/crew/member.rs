//! One rank process, as seen from inside: does what it is told, and says what came of it.

use super::{Post, Said, Seat};
use ccl_core::{Error, Result};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The whole life of a rank process: takes its job and runs it.
pub(crate) fn serve<J: DeserializeOwned>(run: impl FnOnce(Seat, J) -> Result<()>) -> ExitCode {
    // The parent may die without a chance to end its ranks.
    let guarded = set_pdeathsig(Signal::SIGKILL).map_err(|errno| Error::system("prctl(PR_SET_PDEATHSIG)", errno));
    let done = guarded.and_then(|()| {
        let Some(Post { seat, job }) = next()? else { return Ok(()) };
        // It may have died before the first line of this.
        if nix::unistd::getppid().as_raw() != seat.parent {
            return Err(Error::InvalidUsage("this is a rank of a group that ccl starts".into()));
        }
        run(seat, job)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let timed_out = matches!(error, Error::Timeout { .. });
            // If this can't be said, the parent sees the end of the process.
            let _ = line(&Said::<()>::Failed { timed_out, error: error.to_string() });
            ExitCode::FAILURE
        }
    }
}

/// The next thing that it is told; `None` if there is nothing more.
pub(crate) fn next<M: DeserializeOwned>() -> Result<Option<M>> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&line).map(Some).map_err(|error| Error::system("a line from ccl", error)),
        Err(error) => Err(Error::system("reading from ccl", error)),
    }
}

/// Answers.
pub(crate) fn say(answer: impl Serialize) -> Result<()> {
    line(&Said::Answer(answer))
}

/// How often it says that it is still at work while it measures or computes.
const BUSY_EVERY: Duration = Duration::from_millis(500);

/// Says now and then that it is still at work.
pub(crate) struct Pulse(Instant);

impl Pulse {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// At `now`; whether it was said, which takes time.
    pub(crate) fn beat(&mut self, now: Instant) -> Result<bool> {
        if now.saturating_duration_since(self.0) <= BUSY_EVERY {
            return Ok(false);
        }
        busy()?;
        self.0 = Instant::now();
        Ok(true)
    }
}

/// Says that it is still at work.
pub(crate) fn busy() -> Result<()> {
    line(&Said::<()>::Busy)
}

fn line(said: &Said<impl Serialize>) -> Result<()> {
    let mut line = serde_json::to_vec(said).map_err(|error| Error::Internal(error.to_string()))?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(|error| Error::system("writing to ccl", error))
}
