//! What `onecclComm_t` points to. Handles are never freed: one that is used after its end says so, and a text that it gave
//! out stays readable. That costs some hundred bytes a communicator.

use crate::copies;
use crate::entry::Code;
use crate::farewell;
use crate::forming::Wish;
use crate::host::HostPath;
use crate::ledger::Ledger;
use crate::queue::Queues;
use crate::redop::Operations;
use ccl_core::config::Config;
use ccl_core::watch::fork;
use ccl_core::{Error, Result};
use ccl_ze::Communicator;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::ffi::{CString, c_int};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What `onecclComm_t` points to.
#[repr(C)]
pub struct OnecclComm {
    /// Address of this copy's [`COPY`], first so that any copy can tell.
    copy: usize,
    generation: u32,
    /// Digest of the id that it was made with; none of one that was split off.
    id: Option<[u8; 32]>,
    state: RwLock<State>,
    pub(crate) ledger: Arc<Ledger>,
}

/// How far a communicator is.
pub(crate) enum State {
    /// It is being made.
    Forming,
    Live(Arc<Live>),
    /// It takes no more calls.
    Finalized(Arc<Live>),
    /// It could not be made.
    Failed(Error),
    /// What is left of it can be there still, where it could not end at once.
    Aborted(Option<Arc<Live>>),
    Destroyed,
}

/// A communicator, and what this ABI has beside it.
pub(crate) struct Live {
    // Dropped before what its calls may still use.
    pub(crate) comm: Communicator,
    pub(crate) name: u32,
    pub(crate) wish: Wish,
    pub(crate) host: Mutex<HostPath>,
    pub(crate) queues: Mutex<Queues>,
    pub(crate) operations: Mutex<Operations>,
    /// Registered buffers by their handles.
    pub(crate) registered: Mutex<BTreeMap<usize, (usize, usize)>>,
}

/// Its address tells this copy of the library from another in the same process.
static COPY: u8 = 0;

/// What tells this copy of the library from another.
pub(crate) fn copy() -> usize {
    &raw const COPY as usize
}

impl OnecclComm {
    pub(crate) fn forming(config: &Config, id: Option<[u8; 32]>) -> Result<&'static OnecclComm> {
        // What is never freed stays in sight of whoever looks for leaks.
        static EVER: Mutex<Vec<&'static OnecclComm>> = Mutex::new(Vec::new());
        let (copy, generation, state) = (copy(), fork::generation()?, RwLock::new(State::Forming));
        let ledger = Arc::new(Ledger::new(config));
        let handle: &'static OnecclComm = Box::leak(Box::new(OnecclComm { copy, generation, id, state, ledger }));
        EVER.lock().push(handle);
        Ok(handle)
    }

    /// The communicator came to be, or not; unless somebody has ended it meanwhile.
    pub(crate) fn formed(&'static self, outcome: Result<Live>) -> Result<()> {
        let mut state = self.state.write();
        match (&*state, outcome) {
            (State::Forming, Ok(live)) => {
                *state = State::Live(Arc::new(live));
                farewell::of(self);
            }
            (State::Forming, Err(error)) => {
                *state = State::Failed(error.clone());
                return Err(error);
            }
            (_, outcome) => drop(outcome?),
        }
        Ok(())
    }

    /// Holds what every call takes.
    #[cfg(test)]
    pub(crate) fn hold_state(&self) -> parking_lot::RwLockWriteGuard<'_, impl Sized> {
        self.state.write()
    }

    /// The communicator, for a call.
    pub(crate) fn live(&self) -> Result<Arc<Live>> {
        self.check_process()?;
        let state = self.state.read();
        if let State::Live(live) = &*state { Ok(live.clone()) } else { Err(state.refusal()) }
    }

    /// The same where the process was checked; none where it takes no call.
    #[inline(always)]
    pub(crate) fn live_now(&self) -> Option<Arc<Live>> {
        if let State::Live(live) = &*self.state.read() { Some(live.clone()) } else { None }
    }

    /// Takes no more calls; the communicator.
    pub(crate) fn finalize(&self) -> Result<Arc<Live>> {
        self.check_process()?;
        let mut state = self.state.write();
        match &*state {
            State::Live(live) => {
                let live = live.clone();
                *state = State::Finalized(live.clone());
                Ok(live)
            }
            State::Finalized(_) => Err(Error::InvalidUsage("the communicator was finalized before".into())),
            other => Err(other.absence()),
        }
    }

    /// Whether it is live, was made with the id of this digest, if there is one, and is on this device, unless that is -1.
    pub(crate) fn fits(&self, digest: Option<&[u8; 32]>, device: c_int) -> bool {
        let live = self.live();
        let on = |live: &Live| device == -1 || usize::try_from(device) == Ok(live.comm.describe().device_index);
        live.is_ok_and(|live| on(&live)) && digest.is_none_or(|digest| self.id.as_ref() == Some(digest))
    }

    /// The communicator, for a question.
    pub(crate) fn known(&self) -> Result<Arc<Live>> {
        self.check_process()?;
        match &*self.state.read() {
            State::Live(live) | State::Finalized(live) => Ok(live.clone()),
            other => Err(other.absence()),
        }
    }

    /// Says goodbye to the other ranks: the process is about to end, and no call is waited for. A failure that the device has
    /// just reported is this process's own, which is told as always; finding out which rank is to blame takes a second or so.
    pub(crate) fn leave(&self) {
        if self.check_process().is_err() {
            return;
        }
        let state = self.state.try_read();
        let live = match state.as_deref() {
            Some(State::Live(live) | State::Finalized(live)) => Some(live),
            _ => None,
        };
        if let Some(live) = live {
            // Whatever it is, whoever is to hear of it does.
            let _ = live.comm.check_ended();
        }
        self.ledger.aborting.store(true, Ordering::Relaxed);
        if let Some(live) = live {
            live.comm.leave();
        }
    }

    /// Puts another state in place; the old one.
    pub(crate) fn become_state(&self, new: State) -> Result<State> {
        self.check_process()?;
        Ok(std::mem::replace(&mut *self.state.write(), new))
    }

    /// Leaves the end of an aborted communicator to whoever destroys it; if somebody has done so, this is it.
    pub(crate) fn leave_to_destroy(&self, live: Arc<Live>) {
        let mut state = self.state.write();
        if let State::Aborted(left) = &mut *state {
            *left = Some(live);
        } else {
            drop(state);
            drop(live);
        }
    }

    /// Whether it is still being made.
    pub(crate) fn is_forming(&self) -> Result<bool> {
        self.check_process()?;
        Ok(matches!(&*self.state.read(), State::Forming))
    }

    /// The first failure, its code with its words: whoever sees one has the other too, though the watch may still be about to
    /// say them.
    pub(crate) fn first_failure(&self) -> Option<&(Code, CString)> {
        if let Some(error) = self.known().ok().and_then(|live| live.comm.fault()) {
            self.ledger.remember(&error);
        }
        self.ledger.first()
    }

    /// A call failed: does not return where the communicator itself has failed and the process ends for it.
    pub(crate) fn await_end(&self, name: &str) {
        if let Some(error) = self.known().ok().and_then(|live| live.comm.fault()) {
            self.ledger.met_failure(name, &error);
        }
    }

    /// Before any lock: in a forked child its holder may not exist.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if fork::current() == self.generation { Ok(()) } else { Err(forked("communicator")) }
    }
}

/// A child was given what belongs to the process that it was forked from.
#[cold]
pub(crate) fn forked(what: &str) -> Error {
    Error::InvalidUsage(format!("used after fork; a {what} belongs to one process"))
}

impl State {
    /// Why it takes no call.
    #[cold]
    fn refusal(&self) -> Error {
        match self {
            State::Finalized(_) => Error::InvalidUsage("the communicator is finalized".into()),
            other => other.absence(),
        }
    }

    fn absence(&self) -> Error {
        match self {
            State::Failed(error) => error.clone(),
            State::Forming => Error::InvalidUsage("the communicator is still being made".into()),
            State::Aborted(_) => Error::InvalidUsage("the communicator was aborted".into()),
            _ => Error::InvalidUsage("the communicator was destroyed".into()),
        }
    }
}

/// The handle behind a pointer.
///
/// # Safety
/// `comm` is null or came from this library, or points to a word of readable memory.
#[inline(always)]
pub(crate) unsafe fn handle(comm: *mut OnecclComm) -> Result<&'static OnecclComm> {
    // SAFETY: readable by this function's contract.
    if comm.is_null() || !comm.is_aligned() || unsafe { (&raw const (*comm).copy).read() } != copy() {
        // SAFETY: passed on to the caller.
        return Err(unsafe { not_ours(comm) });
    }
    // SAFETY: it has the mark of this copy, whose handles live for ever.
    Ok(unsafe { &*comm })
}

/// Why a pointer is no handle of this copy.
///
/// # Safety
/// As for [`handle`].
#[cold]
unsafe fn not_ours(comm: *mut OnecclComm) -> Error {
    if comm.is_null() {
        let other = copies::others(copy()).into_iter().find(|other| !copies::is_meant(other));
        let split = other.map(|other| split(&other.path)).unwrap_or_default();
        return Error::InvalidArgument(format!(
            "the communicator is null: it was never made, or its making failed (the log says why){split}"
        ));
    }
    if !comm.is_aligned() {
        return Error::InvalidArgument(format!("{comm:p} is no communicator"));
    }
    // SAFETY: readable by this function's contract.
    let copy_of_maker = unsafe { (&raw const (*comm).copy).read() };
    // Another copy's first word lies in that copy; of oneCCL's own little is known but that its file is mapped.
    let maker = copies::file_of(copy_of_maker);
    let maker = maker.or_else(|| copies::others(copy()).into_iter().next().map(|other| other.path));
    let split = maker.map_or_else(|| ", or was not made at all".into(), |maker| split(&maker));
    Error::InvalidUsage(format!(
        "the communicator {comm:p} was not made by this copy of the library ({}){split}",
        own_path()
    ))
}

/// Where else it may have come from, and what helps.
fn split(other: &str) -> String {
    let own = own_path();
    format!("; the process has two, {own} and {other}, and its calls are split between them: {}", copies::advice(&own))
}

/// The file that this copy of the library was loaded from.
pub(crate) fn own_path() -> String {
    copies::file_of(copy()).unwrap_or_else(|| "of unknown path".into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::*;
    use std::ffi::CStr;
    use std::ptr::null_mut;
    use std::time::{Duration, Instant};

    /// The watch is kept from saying a failure that can be seen already; who asks for the code then has the words as well.
    #[test]
    fn a_failure_that_is_seen_has_its_words() {
        // SAFETY: places for results, and a live handle.
        let handle = unsafe {
            let (mut comm, mut id) = (null_mut(), std::mem::zeroed::<OnecclUniqueId>());
            assert_eq!(onecclGetUniqueId(&raw mut id), 0);
            assert_eq!(onecclCommInitRank(&raw mut comm, 1, id, 0), 0);
            handle(comm).unwrap()
        };
        let held = handle.ledger.hold();
        let live = handle.live().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| live.comm.abort("enough"));
            let since = Instant::now();
            while live.comm.fault().is_none() {
                assert!(since.elapsed() < Duration::from_secs(30));
                std::thread::yield_now();
            }
            let asks = scope.spawn(|| {
                let comm = std::ptr::from_ref(handle).cast_mut();
                // SAFETY: a live handle, and a text that stays.
                unsafe { (onecclCommGetAsyncError(comm), CStr::from_ptr(onecclGetLastError(comm)).to_str().unwrap()) }
            });
            std::thread::sleep(Duration::from_millis(300));
            drop(held);
            let (code, text) = asks.join().unwrap();
            assert_eq!(code, 3);
            assert!(text.contains("aborted: enough"), "{text}");
        });
        drop(live);
        let comm = std::ptr::from_ref(handle).cast_mut();
        // SAFETY: a handle, which stays one. What is destroyed stays so.
        let codes = unsafe { [onecclCommDestroy(comm), onecclCommAbort(comm), onecclCommDestroy(comm)] };
        assert_eq!(codes, [0, 5, 5]);
    }
}
