//! The process's communicators by their handles: how the witnesses of their ranks meet, and how all ends.

use crate::comparer::{self, Origin};
use crate::report;
use crate::watched::{Seat, Watched};
use ccl_core::bootstrap::{RootOptions, UniqueId};
use ccl_core::watch::fork;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::time::{Duration, Instant};

/// How long a process that ends waits for its comparers, all together.
const LAST_WORDS: Duration = Duration::from_secs(5);

static PLACES: RwLock<Option<HashMap<usize, Arc<Watched>>>> = RwLock::new(None);
/// Those that have not reported, destroyed or not.
static UNREPORTED: Mutex<Vec<Arc<Watched>>> = Mutex::new(Vec::new());
/// Of which process the rest of this is.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Where a communicator comes from.
pub(crate) enum Birth {
    Joined { id: Box<[u8; 4096]>, rank: usize, n: usize },
    Split { parent: Arc<Watched>, color: Option<u32>, key: i32 },
}

/// Starts the rendezvous that goes with this id of the library underneath.
pub(crate) fn serve(id: &[u8; 4096]) {
    let served = UniqueId::derived(id).and_then(|id| id.serve(RootOptions::default()));
    if let Err(error) = served {
        report::say(&format!("no rendezvous for the ranks' witnesses: {error}"));
    }
}

/// The communicator of this handle. None in a forked child, which has no comparers.
pub(crate) fn find(comm: *mut c_void) -> Option<Arc<Watched>> {
    if fork::current() != GENERATION.load(Ordering::Relaxed) {
        return None;
    }
    PLACES.read().as_ref()?.get(&(comm as usize)).cloned()
}

/// A communicator has come to be at `place`.
pub(crate) fn birth(place: usize, birth: Birth) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        GENERATION.store(fork::generation().unwrap_or(0), Ordering::Relaxed);
        // SAFETY: a function of this library, which stays loaded.
        unsafe { libc::atexit(at_exit) };
    });
    // SAFETY: the caller's place for the handle, into which the library underneath has written.
    let handle = unsafe { (place as *const usize).read() };
    match birth {
        Birth::Joined { id, rank, n } => {
            let watched = Watched::new(Some(Seat { rank, n }));
            add(handle, watched, Origin::Id(id));
        }
        Birth::Split { parent, color, key } => {
            let (gives, takes) = mpsc::channel();
            parent.split(color, key, gives);
            if color.is_some() {
                add(handle, Watched::new(None), Origin::Parent(takes));
            }
        }
    }
}

fn add(handle: usize, watched: Arc<Watched>, origin: Origin) {
    if handle == 0 {
        return;
    }
    PLACES.write().get_or_insert_default().insert(handle, watched.clone());
    UNREPORTED.lock().push(watched.clone());
    let works = watched.clone();
    let thread = std::thread::Builder::new().name("cclx-witness".into()).spawn(move || {
        let ended = catch_unwind(AssertUnwindSafe(|| comparer::run(&works, origin)));
        if ended.is_err() {
            works.give_up("a panic inside the witness");
        }
        works.finish();
        UNREPORTED.lock().retain(|one| !Arc::ptr_eq(one, &works));
    });
    if let Err(error) = thread {
        watched.give_up(&format!("no thread to compare on: {error}"));
    }
}

/// The communicator takes no more calls.
pub(crate) fn end(comm: *mut c_void) {
    if find(comm).is_some()
        && let Some(watched) = PLACES.write().as_mut().and_then(|places| places.remove(&(comm as usize)))
    {
        watched.end_calls();
    }
}

/// Programs such as torch destroy no communicator.
extern "C" fn at_exit() {
    if fork::current() != GENERATION.load(Ordering::Relaxed) {
        return;
    }
    let all = std::mem::take(&mut *UNREPORTED.lock());
    all.iter().for_each(|watched| watched.end_calls());
    let until = Instant::now() + LAST_WORDS;
    all.iter().for_each(|watched| watched.finish_by(until));
}
