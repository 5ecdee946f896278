//! Tells a forked child from the process that made a communicator, without a system call.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;

use crate::{Error, Result};

static GENERATION: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between this process and the first; counted from the first call on.
pub fn generation() -> Result<u32> {
    static HANDLER: OnceLock<i32> = OnceLock::new();
    // SAFETY: the handler is a function of this library with the right signature and does nothing but an atomic add,
    // which is allowed after a fork. The C library drops it when this library is unloaded.
    match HANDLER.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_child)) }) {
        0 => Ok(current()),
        code => Err(Error::system("pthread_atfork", Errno::from_raw(*code))),
    }
}

/// The same, on the hot path; right once [`generation`] was asked.
#[inline]
pub fn current() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}
