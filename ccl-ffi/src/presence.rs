//! What this copy of the library says about itself, once per process: in the log when its first communicator forms, and line by
//! line to `ccl run`, which started the process (`ccl_core::presence`). A process that never calls pays nothing for it.

use crate::copies;
use crate::handle::{copy, own_path};
use crate::lookup;
use crate::settings;
use ccl_core::presence::{Event, FOLDER, say};
use ccl_ze::Description;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

/// Where `ccl run` wants to be told. Read here and not with the configuration, which may be refused: that a process was called
/// is told all the same.
fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Runs when the library is mapped. Without the variable it costs one look at the environment.
#[used]
#[unsafe(link_section = ".init_array")]
static MAPPED: extern "C" fn() = mapped;

extern "C" fn mapped() {
    // SAFETY: a terminated name; no thread changes the environment while libraries are being mapped at the start, and one that
    // does so later breaks every reader's contract.
    if !unsafe { libc::getenv(c"CCLX_REPORT".as_ptr()) }.is_null() {
        _ = std::panic::catch_unwind(|| tell(|| Event::Mapped { library: own_path().into() }));
    }
}

fn tell(event: impl FnOnce() -> Event) {
    if let Some(folder) = folder() {
        say(&folder, event());
    }
}

/// To be called by every entry; does something the first time.
#[inline]
pub(crate) fn called() {
    static FIRST: Once = Once::new();
    if !FIRST.is_completed() {
        // A panic must not spoil what comes after.
        FIRST.call_once(|| _ = std::panic::catch_unwind(first_call));
    }
}

fn first_call() {
    copies::show(copy(), lookup::here);
    tell_called();
    warn_of_others();
}

/// Says once a process that it calls. A forked child begins with what its parent has said, and is another process.
fn tell_called() {
    static SAID_BY: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id();
    if SAID_BY.swap(own, Ordering::Relaxed) == own {
        return;
    }
    tell(|| Event::Called {
        library: own_path().into(),
        version: env!("CARGO_PKG_VERSION").into(),
        sha256: digest().into(),
        route: route().into(),
    });
}

/// Says once that the process has a second library for the same calls.
pub(crate) fn warn_of_others() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.load(Ordering::Relaxed) {
        return;
    }
    let Some(text) = copies::warning(copy()) else { return };
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    match settings::config() {
        Ok(_) => tracing::warn!("{text}"),
        // There is no log, since what it is to be can't be read.
        Err(_) => eprintln!("{text}"),
    }
    tell(|| Event::Second { text });
}

/// A communicator was made. The first of the process is told in the log.
pub(crate) fn formed(rank: usize, ranks: usize, seen: &Description) {
    static BANNER_OF: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id();
    if BANNER_OF.swap(own, Ordering::Relaxed) != own && tracing::enabled!(tracing::Level::INFO) {
        tracing::info!(
            "cclx {}, sha256 {}, {}, by {}, on {} ({}), device {}",
            env!("CARGO_PKG_VERSION"),
            digest(),
            own_path(),
            route(),
            seen.device,
            seen.driver,
            seen.device_index
        );
    }
    tell_called();
    let device = || format!("{}, device {}", seen.device, seen.device_index);
    tell(|| Event::Formed { rank, ranks, driver: seen.driver.clone(), device: device() });
    // Libraries may have come since the first call.
    warn_of_others();
}

/// SHA-256 of the library's file.
fn digest() -> &'static str {
    static DIGEST: OnceLock<String> = OnceLock::new();
    DIGEST.get_or_init(|| {
        let mut hash = Sha256::new();
        let read = std::fs::File::open(own_path()).and_then(|mut file| std::io::copy(&mut file, &mut hash));
        if read.is_err() {
            return String::new();
        }
        hash.finalize().iter().fold(String::new(), |mut text, byte| {
            // Writing into a string can't fail.
            _ = write!(text, "{byte:02x}");
            text
        })
    })
}

/// How this library got into the process, as far as its surroundings tell.
fn route() -> &'static str {
    if copies::AS_PLUGIN.load(Ordering::Relaxed) {
        return "oneCCL's plugin interface";
    }
    let own = PathBuf::from(own_path()).canonicalize().ok();
    let is_own = |path: &Path| own.is_some() && path.canonicalize().ok() == own;
    let list = |name: &str, separators: &[char]| -> Vec<PathBuf> {
        let text = std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
        text.split(separators).filter(|part| !part.is_empty()).map(PathBuf::from).collect()
    };
    if list("LD_PRELOAD", &[':', ' ']).iter().any(|path| is_own(path)) {
        "LD_PRELOAD"
    } else if list("LD_AUDIT", &[':']).iter().any(|path| path.ends_with("libcclx_audit.so")) {
        "LD_AUDIT"
    } else if list("LD_LIBRARY_PATH", &[':', ';']).iter().any(|folder| is_own(&folder.join("libccl.so.2"))) {
        "LD_LIBRARY_PATH"
    } else {
        "its own path"
    }
}
