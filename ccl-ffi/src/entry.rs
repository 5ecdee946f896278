//! What every entry goes through: panics are contained, errors become codes, are heard and remembered.

use crate::group;
use crate::handle::{OnecclComm, handle};
use crate::ledger;
use crate::presence;
use crate::settings;
use ccl_core::{Error, Result};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// `onecclResult_t`.
pub type Code = i32;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const IN_PROGRESS: Code = 6;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of an entry that has no communicator.
pub(crate) fn entry(name: &str, body: impl FnOnce() -> Result<Code>) -> Code {
    contained(|| {
        presence::called();
        body()
    })
    .unwrap_or_else(|error| {
        hear(name, "", &error);
        error.abi_code()
    })
}

/// The same of an entry with one.
///
/// # Safety
/// `comm` is null or came from this library, or points to readable memory.
pub(crate) unsafe fn comm_entry(
    name: &'static str,
    comm: *mut OnecclComm,
    body: impl FnOnce(&'static OnecclComm) -> Result<Code>,
) -> Code {
    // SAFETY: passed on to the caller.
    let handle = match unsafe { handle(comm) } {
        Ok(handle) => handle,
        Err(error) => return entry(name, || Err(error)),
    };
    contained(|| body(handle)).unwrap_or_else(|error| {
        hear(name, &handle.ledger.who(), &error);
        error.abi_code()
    })
}

/// Runs the body of an entry that makes a communicator: within a group its failure is the group's as well.
pub(crate) fn making_entry(name: &str, body: impl FnOnce() -> Result<Code>) -> Code {
    entry(name, || contained(body).inspect_err(group::fail))
}

/// The same of an entry that makes one of another.
///
/// # Safety
/// As for [`comm_entry`].
pub(crate) unsafe fn splitting_entry(
    name: &'static str,
    comm: *mut OnecclComm,
    body: impl FnOnce(&'static OnecclComm) -> Result<Code>,
) -> Code {
    // SAFETY: passed on to the caller.
    match unsafe { handle(comm) } {
        // SAFETY: as above.
        Ok(_) => unsafe { comm_entry(name, comm, |handle| contained(|| body(handle)).inspect_err(group::fail)) },
        Err(error) => making_entry(name, || Err(error)),
    }
}

/// The same of a collective: a failure stays with the communicator, and within a group is the group's as well.
///
/// # Safety
/// As for [`comm_entry`].
// Always inlined, as what it leads to: a call is short, and functions that hand it on would be most of it.
#[inline(always)]
pub(crate) unsafe fn call_entry(
    name: &'static &'static str,
    comm: *mut OnecclComm,
    body: impl FnOnce(&'static OnecclComm) -> Result<Code>,
) -> Code {
    // SAFETY: passed on to the caller.
    let handle = match unsafe { handle(comm) } {
        Ok(handle) => handle,
        Err(error) => return refused_by_none(name, &error),
    };
    let checked = || {
        // Before any lock: in a forked child its holder may not exist.
        handle.check_process()?;
        handle.ledger.begin(name);
        body(handle)
    };
    // A code is shorter to hand out of what contains a panic than an error.
    let coded = || match checked() {
        Ok(code) => code,
        Err(error) => refused(name, handle, &error),
    };
    match catch_unwind(AssertUnwindSafe(coded)) {
        Ok(code) => code,
        Err(panic) => refused(name, handle, &of_panic(&*panic)),
    }
}

/// A collective was not made, being of no communicator that could remember it.
#[cold]
fn refused_by_none(name: &str, error: &Error) -> Code {
    group::fail(error);
    let code = entry(name, || Err(error.clone()));
    ledger::end_where_asked(&format!("{name}: {error}"));
    code
}

/// A collective was not made.
#[cold]
fn refused(name: &str, handle: &OnecclComm, error: &Error) -> Code {
    group::fail(error);
    handle.await_end(name);
    hear(name, &handle.ledger.who_and_where(), error);
    handle.ledger.refused(name, error);
    error.abi_code()
}

#[inline(always)]
fn contained<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => Err(of_panic(&*panic)),
    }
}

#[cold]
fn of_panic(panic: &(dyn std::any::Any + Send)) -> Error {
    Error::Internal(format!("a panic inside the library: {}", words(panic)))
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}

/// Callers of this ABI ignore return codes: what failed must be heard. What was said before is only for whoever debugs, or
/// a call in a loop would fill the log.
pub(crate) fn hear(name: &str, who: &str, error: &Error) {
    /// More different failures than this are no longer kept apart.
    const MOST: usize = 1000;
    /// For whoever holds the lock to let go of it.
    const LONG_ENOUGH: Duration = Duration::from_millis(200);
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let text = error.to_string();
    let line = if who.is_empty() { format!("{name}: {text}") } else { format!("{name}: {who}: {text}") };
    let first = {
        // In a forked child its holder may not exist.
        let said = SAID.try_lock_for(LONG_ENOUGH);
        said.is_none_or(|mut said| said.len() < MOST && said.insert(format!("{name}: {text}")))
    };
    match settings::config() {
        Ok(_) if first => tracing::error!("{line}"),
        Ok(_) => tracing::debug!("{line}"),
        // There is no log, since what it is to be can't be read.
        Err(_) if first => eprintln!("{line}"),
        Err(_) => {}
    }
    // Not at thread exit, when the cell may be gone: then the text is only in the log.
    let _ = LAST.try_with(|last| *last.borrow_mut() = c_string(line));
}

pub(crate) fn c_string(text: String) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// The text of this thread's last failure; valid until its next one.
pub(crate) fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

pub(crate) fn null(what: &str) -> Error {
    Error::InvalidArgument(format!("{what} is null"))
}

/// Stores a result.
///
/// # Safety
/// `to` is null or valid for a write.
pub(crate) unsafe fn put<T>(to: *mut T, value: T, what: &str) -> Result<Code> {
    if to.is_null() {
        return Err(null(what));
    }
    // SAFETY: by this function's contract.
    unsafe { to.write(value) };
    Ok(SUCCESS)
}

/// Names of the codes, in their order.
const NAMES: [&CStr; 13] = [
    c"success",
    c"error",
    c"system error",
    c"internal error",
    c"invalid argument",
    c"invalid usage",
    c"in progress",
    c"GPU failure",
    c"CPU failure",
    c"allocation failure on the CPU",
    c"allocation failure on the GPU",
    c"plugin exception",
    c"not implemented",
];

pub(crate) fn code_name(code: Code) -> *const c_char {
    usize::try_from(code).ok().and_then(|code| NAMES.get(code)).unwrap_or(&c"unknown result").as_ptr()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_internal_error_with_its_words() {
        let quiet = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let code = entry("entry", || panic!("lost {}", 7));
        std::panic::set_hook(quiet);
        assert_eq!(code, 3);
        // SAFETY: this thread's own text, read before its next failure.
        let text = unsafe { CStr::from_ptr(last_error()) }.to_str().unwrap();
        assert!(text.contains("a panic inside the library: lost 7"), "{text}");
    }

    /// A thread of the parent holds the lock that each call takes; in the child nobody lets go of it.
    #[test]
    fn a_forked_childs_call_is_refused_without_a_lock() {
        use crate::{onecclAllReduce, onecclCommDestroy, onecclCommInitRank, onecclGetUniqueId};
        use std::ptr::null_mut;
        // SAFETY: places for results, live handles, and buffers of as many bytes; the child ends without destructors.
        unsafe {
            let (mut comm, mut id) = (null_mut(), std::mem::zeroed::<crate::OnecclUniqueId>());
            assert_eq!(onecclGetUniqueId(&raw mut id), 0);
            assert_eq!(onecclCommInitRank(&raw mut comm, 1, id, 0), 0);
            let (input, mut output) = ([5i32, 7], [0i32; 2]);
            let mut reduce =
                || onecclAllReduce(input.as_ptr().cast(), output.as_mut_ptr().cast(), 2, 2, 0, comm, null_mut());
            assert_eq!(reduce(), 0);
            let held = handle(comm).unwrap().hold_state();
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::alarm(20);
                libc::_exit(reduce());
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            drop(held);
            assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 5), "status {status:#x}");
            assert_eq!((reduce(), onecclCommDestroy(comm)), (0, 0));
        }
    }
}
