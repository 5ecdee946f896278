//! The end of a process whose kernels still run.
//!
//! The OpenCL runtime waits at exit for every kernel, so that a kernel which waits for a peer that is gone would keep
//! its process for ever: a program that has noticed and given up could not even end. So the process ends without the
//! runtime's farewell if kernels don't.

use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long kernels have at exit to come to their end.
const GRACE: Duration = Duration::from_secs(1);

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// A launch that runs, as long as this lives.
pub(super) struct Launch(());

impl Launch {
    pub(super) fn begin() -> Self {
        static ARRANGED: Once = Once::new();
        // Handlers run last come, first served: by the first launch, the runtime has registered its own.
        ARRANGED.call_once(|| {
            // Without room for one more handler, exiting is as it was.
            // SAFETY: the handler's code stays: threads of this library run in it for ever.
            let _ = unsafe { on_exit(leave, std::ptr::null_mut()) };
        });
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Release);
    }
}

unsafe extern "C" {
    /// As `atexit`, for a handler that is told the status.
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), data: *mut c_void) -> c_int;
}

extern "C" fn leave(status: c_int, _: *mut c_void) {
    let start = Instant::now();
    while RUNNING.load(Ordering::Acquire) != 0 {
        if start.elapsed() > GRACE {
            // SAFETY: flushing all streams is what the rest of the exit would have done; `_exit` never returns.
            unsafe {
                libc::fflush(std::ptr::null_mut());
                libc::_exit(status)
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
