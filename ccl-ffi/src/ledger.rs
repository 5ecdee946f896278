//! What a communicator's messages need to know: who it is, how many calls it was given, and its first failure.

use crate::entry::{Code, c_string};
use crate::settings;
use ccl_core::Error;
use ccl_core::config::{Config, OnError};
use std::ffi::CString;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Outlives its communicator: texts that were given out stay.
pub(crate) struct Ledger {
    who: OnceLock<Who>,
    calls: AtomicU64,
    /// The latest one's name.
    latest: AtomicPtr<&'static str>,
    /// Keeps the watch from saying a failure.
    #[cfg(test)]
    held: parking_lot::Mutex<()>,
    first: OnceLock<(Code, CString)>,
    /// This rank gives up on purpose: no failure.
    pub(crate) aborting: AtomicBool,
    /// Calls that are being made.
    running: AtomicU32,
    /// Whether calls were appended to streams, of which nobody counts what still runs.
    pub(crate) on_streams: AtomicBool,
    /// The communicator failed while no call was running: the next one ends the process.
    deferred: AtomicBool,
    on_error: Option<OnError>,
    /// Whether the log is not what a person at a terminal sees.
    logs_elsewhere: bool,
}

const NO_CALL: &&str = &"no call";

struct Who {
    rank: usize,
    world_size: usize,
    name: u32,
}

impl Ledger {
    pub(crate) fn new(config: &Config) -> Ledger {
        Ledger {
            who: OnceLock::new(),
            calls: AtomicU64::new(0),
            latest: AtomicPtr::new(std::ptr::from_ref(NO_CALL).cast_mut()),
            #[cfg(test)]
            held: parking_lot::Mutex::new(()),
            first: OnceLock::new(),
            aborting: AtomicBool::new(false),
            running: AtomicU32::new(0),
            on_streams: AtomicBool::new(false),
            deferred: AtomicBool::new(false),
            on_error: config.on_error,
            logs_elsewhere: config.log_file.is_some(),
        }
    }

    pub(crate) fn introduce(&self, rank: usize, world_size: usize, name: u32) {
        let _ = self.who.set(Who { rank, world_size, name });
    }

    /// Counts a collective.
    #[inline]
    pub(crate) fn begin(&self, name: &'static &'static str) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.latest.store(std::ptr::from_ref(name).cast_mut(), Ordering::Relaxed);
    }

    /// Holds what a failure takes to be said.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.held.lock()
    }

    /// "communicator 0badcafe, rank 1 of 2".
    pub(crate) fn who(&self) -> String {
        match self.who.get() {
            Some(Who { rank, world_size, name }) => format!("communicator {name:08x}, rank {rank} of {world_size}"),
            None => "a communicator that has not formed".into(),
        }
    }

    /// The same, and the number of the latest call.
    pub(crate) fn who_and_where(&self) -> String {
        format!("call #{}, {}", self.calls.load(Ordering::Relaxed), self.who())
    }

    /// A call is being made, as long as this is kept.
    pub(crate) fn run(&self) -> Running<'_> {
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(self)
    }

    /// The first failure, which stays.
    pub(crate) fn first(&self) -> Option<&(Code, CString)> {
        self.first.get()
    }

    /// Keeps a failure that the watch has not come to say yet.
    pub(crate) fn remember(&self, error: &Error) {
        if self.first.get().is_none() {
            self.keep(error, &self.line_of(error));
        }
    }

    fn line_of(&self, error: &Error) -> String {
        #[cfg(test)]
        let _held = self.held.lock();
        // SAFETY: only names that stay are stored.
        let latest = unsafe { &*self.latest.load(Ordering::Relaxed) };
        format!("{latest}: {}: {error}", self.who_and_where())
    }

    fn keep(&self, error: &Error, line: &str) {
        let _ = self.first.set((error.abi_code(), c_string(line.into())));
    }

    /// A call was not made. Callers that ignore its code would go on with whatever the buffers hold: whoever asked for the
    /// end of the process gets it. Otherwise a caller that reads codes may go on.
    pub(crate) fn refused(&self, name: &str, error: &Error) {
        let line = format!("{name}: {}: {error}", self.who_and_where());
        self.keep(error, &line);
        if self.on_error == Some(OnError::Abort) && !self.aborting.load(Ordering::Relaxed) {
            end_process(&line);
        }
    }

    /// The communicator is of no use any more: a call failed, or a rank is gone. While no call runs that is no reason to end
    /// the process: programs that are at their end leave one after the other, without a word to this library.
    pub(crate) fn failed(&self, error: &Error) {
        let line = self.line_of(error);
        self.keep(error, &line);
        if self.aborting.load(Ordering::Relaxed) {
            tracing::info!("{line}");
            return;
        }
        let on_streams = match error {
            Error::PeerLost { during, .. } => !during.is_empty(),
            _ => self.on_streams.load(Ordering::Relaxed),
        };
        let ends = self.ends_with_failure();
        if ends && !on_streams && self.running.load(Ordering::SeqCst) == 0 {
            tracing::info!("{line}");
            self.deferred.store(true, Ordering::SeqCst);
            return;
        }
        // Whatever a caller that ignores codes would compute from here on would rest on a wrong result.
        if self.logs_elsewhere || !ends {
            tracing::error!("{line}");
        }
        if ends {
            end_process(&line);
        }
    }

    /// Whether a failure ends the process.
    fn ends_with_failure(&self) -> bool {
        self.on_error != Some(OnError::Log) && !self.aborting.load(Ordering::Relaxed)
    }

    /// A call met the communicator's failure: does not return where that ends the process, or has begun to.
    pub(crate) fn met_failure(&self, name: &str, error: &Error) {
        // More than the watch needs on any machine.
        const LONG_ENOUGH: Duration = Duration::from_secs(30);
        let since = Instant::now();
        while self.ends_with_failure() && since.elapsed() < LONG_ENOUGH {
            if self.deferred.load(Ordering::SeqCst) {
                let line = format!("{name}: {}: {error}", self.who_and_where());
                if self.logs_elsewhere {
                    tracing::error!("{line}");
                }
                end_process(&line);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// See [`Ledger::run`].
pub(crate) struct Running<'a>(&'a Ledger);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What [`Ledger::refused`] does for whoever asked for it, after a call of no communicator.
pub(crate) fn end_where_asked(line: &str) {
    if settings::config().is_ok_and(|config| config.on_error == Some(OnError::Abort)) {
        end_process(line);
    }
}

/// A process that ends says why on standard error, wherever its log goes; in one write, so that ranks' messages don't mix.
fn end_process(line: &str) {
    let message = format!("{line}; the process ends (CCLX_ON_ERROR=log would keep it)\n");
    let _ = std::io::stderr().write_all(message.as_bytes());
    std::process::abort();
}
