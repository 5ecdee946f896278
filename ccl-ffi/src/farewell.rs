//! Goodbye at the process's end. Programs such as torch destroy no communicator; without a word their end would be a death to
//! ranks whose last call has not quite returned.

use crate::handle::OnecclComm;
use parking_lot::Mutex;
use std::sync::Once;

/// The process's communicators.
static ALL: Mutex<Vec<&'static OnecclComm>> = Mutex::new(Vec::new());

/// Says goodbye for `handle` when the process ends in order.
pub(crate) fn of(handle: &'static OnecclComm) {
    static ARRANGED: Once = Once::new();
    // SAFETY: a function of this library, which stays loaded.
    ARRANGED.call_once(|| _ = unsafe { libc::atexit(at_exit) });
    ALL.lock().push(handle);
}

/// The process's communicators that fit.
pub(crate) fn living(fits: impl Fn(&OnecclComm) -> bool) -> Vec<&'static OnecclComm> {
    ALL.lock().iter().copied().filter(|handle| fits(handle)).collect()
}

/// Forgets `handle`.
pub(crate) fn not_of(handle: &OnecclComm) {
    ALL.lock().retain(|known| !std::ptr::eq(*known, handle));
}

/// Only messages are sent, after those of a failure that is being looked into: other libraries may have ended already, and
/// threads still run.
extern "C" fn at_exit() {
    // In a forked child the lock may be held by nobody who is there.
    if let Some(all) = ALL.try_lock() {
        all.iter().for_each(|handle| handle.leave());
    }
}
