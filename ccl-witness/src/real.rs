//! The library underneath: opened by its path, so that its own names come before ours for itself, and after them for everyone
//! else.

use crate::abi::{Code, NOT_IMPLEMENTED, OnecclUniqueId, SYSTEM_ERROR};
use crate::report;
use ccl_core::config::Config;
use ccl_core::{linker, presence};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};
use std::collections::BTreeSet;
use std::ffi::{OsString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What a name gives that the library underneath does not have.
pub(crate) trait Absent {
    fn of(code: Code) -> Self;
}

impl Absent for Code {
    fn of(code: Code) -> Self {
        code
    }
}

impl Absent for () {
    fn of(_: Code) -> Self {}
}

impl Absent for *const c_char {
    fn of(_: Code) -> Self {
        c"the witness has no such function underneath".as_ptr()
    }
}

macro_rules! names {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)+) => {
        /// The functions of the library underneath, by their names.
        #[allow(non_snake_case, reason = "they are called as the ABI calls them")]
        pub(crate) struct Real {
            path: PathBuf,
            $($name: Option<unsafe extern "C" fn($($ty),*) -> $ret>,)+
        }

        impl Real {
            fn find(library: &Library, path: PathBuf) -> Real {
                Real {
                    path,
                    $(
                        // SAFETY: a function of this name has this type in every library of this ABI.
                        $name: unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }.ok().map(|f| *f),
                    )+
                }
            }
        }

        /// Calls to the library underneath.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "as the ABI has them")]
        pub(crate) mod under {
            use super::*;
            $(
                /// # Safety
                /// As the library underneath has it.
                pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
                    match real() {
                        Ok(Real { $name: Some(function), .. }) => {
                            // SAFETY: passed on to the caller.
                            unsafe { function($($arg),*) }
                        }
                        Ok(Real { path, .. }) => {
                            once(&format!("{} has no {}", path.display(), stringify!($name)));
                            Absent::of(NOT_IMPLEMENTED)
                        }
                        Err(error) => {
                            once(error);
                            Absent::of(SYSTEM_ERROR)
                        }
                    }
                }
            )+
        }
    };
}

/// Has a macro given the functions that are passed on as they come, and what follows.
macro_rules! passed_on {
    ($then:ident! { $($more:tt)* }) => { $then! {
        onecclGetVersion(version: *mut c_int) -> Code;
        onecclExtractVersionComponents(version: c_int, major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> Code;
        onecclCommFinalize(comm: *mut c_void) -> Code;
        onecclCommGetAsyncError(comm: *mut c_void) -> Code;
        onecclGetErrorString(code: Code) -> *const c_char;
        onecclGetLastError(comm: *mut c_void) -> *const c_char;
        onecclGetLastErrorString() -> *const c_char;
        onecclDebugInit() -> ();
        onecclResetDebugInit() -> ();
        onecclDebugLog(level: c_int, place: *const c_char, line: c_int, text: *const c_char) -> ();
        onecclCommCount(comm: *mut c_void, count: *mut c_int) -> Code;
        onecclCommDevice(comm: *mut c_void, device: *mut c_int) -> Code;
        onecclCommUserRank(comm: *mut c_void, rank: *mut c_int) -> Code;
        onecclSetDevice(index: u32) -> Code;
        onecclMemAlloc(place: *mut *mut c_void, size: usize) -> Code;
        onecclMemFree(address: *mut c_void) -> Code;
        onecclCommRegister(comm: *mut c_void, buffer: *mut c_void, size: usize, handle: *mut *mut c_void) -> Code;
        onecclCommDeregister(comm: *mut c_void, handle: *mut c_void) -> Code;
        onecclCommWindowRegister(comm: *mut c_void, buffer: *mut c_void, size: usize, window: *mut *mut c_void, flags: c_int) -> Code;
        onecclCommWindowDeregister(comm: *mut c_void, window: *mut c_void) -> Code;
        onecclDevCommCreate(comm: *mut c_void, needs: *const c_void, made: *mut c_void) -> Code;
        onecclDevCommDestroy(comm: *mut c_void, made: *const c_void) -> Code;
        onecclGetPeerDevicePointer(window: *mut c_void, offset: usize, peer: c_int, place: *mut *mut c_void) -> Code;
        onecclGetLsaDevicePointer(window: *mut c_void, offset: usize, peer: c_int, place: *mut *mut c_void) -> Code;
        onecclGetLocalDevicePointer(window: *mut c_void, offset: usize, place: *mut *mut c_void) -> Code;
        $($more)*
    } };
}
pub(crate) use passed_on;

passed_on! { names! {
    onecclGetUniqueId(id: *mut OnecclUniqueId) -> Code;
    onecclCommInitRank(comm: *mut *mut c_void, n: usize, id: OnecclUniqueId, rank: c_int) -> Code;
    onecclCommInitRankConfig(comm: *mut *mut c_void, n: usize, id: OnecclUniqueId, rank: c_int, config: *const c_void) -> Code;
    onecclCommDestroy(comm: *mut c_void) -> Code;
    onecclCommAbort(comm: *mut c_void) -> Code;
    onecclCommSplit(comm: *mut c_void, color: c_int, key: c_int, made: *mut *mut c_void, config: *mut c_void) -> Code;
    onecclRedOpCreatePreMulSum(op: *mut c_int, scalar: *mut c_void, dtype: c_int, residence: c_int, comm: *mut c_void) -> Code;
    onecclRedOpDestroy(op: c_int, comm: *mut c_void) -> Code;
    onecclAllReduce(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, comm: *mut c_void, stream: *mut c_void) -> Code;
    onecclReduce(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, root: c_int, comm: *mut c_void, stream: *mut c_void) -> Code;
    onecclReduceScatter(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, comm: *mut c_void, stream: *mut c_void) -> Code;
    onecclBroadcast(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: *mut c_void, stream: *mut c_void) -> Code;
    onecclScatter(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: *mut c_void, stream: *mut c_void) -> Code;
    onecclAllGather(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, comm: *mut c_void, stream: *mut c_void) -> Code;
    onecclAllToAll(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, comm: *mut c_void, stream: *mut c_void) -> Code;
    onecclAllToAllV(send: *const c_void, to: *const usize, recv: *mut c_void, from: *const usize, dtype: c_int, comm: *mut c_void, stream: *mut c_void) -> Code;
    onecclSend(send: *const c_void, count: usize, dtype: c_int, peer: c_int, comm: *mut c_void, stream: *mut c_void) -> Code;
    onecclRecv(recv: *mut c_void, count: usize, dtype: c_int, peer: c_int, comm: *mut c_void, stream: *mut c_void) -> Code;
    onecclGroupStart() -> Code;
    onecclGroupEnd() -> Code;
} }

/// The settings and the library underneath; or why there are none, once and for all.
fn real() -> &'static Result<Real, String> {
    static REAL: OnceLock<Result<Real, String>> = OnceLock::new();
    REAL.get_or_init(|| {
        let config = config().as_ref().map_err(Clone::clone)?;
        let path = config.witness.as_deref().ok_or("CCLX_WITNESS does not name the library underneath")?;
        let found = open(path)?;
        if let Some(folder) = &config.report {
            presence::say(folder, introduction(&found));
        }
        Ok(found)
    })
}

fn open(path: &Path) -> Result<Real, String> {
    let path = path.canonicalize().map_err(|error| format!("CCLX_WITNESS={}: {error}", path.display()))?;
    // Two slashes tell the audit library of `ccl run` that this file is meant, and not what stands in its place.
    let mut meant = OsString::from("/");
    meant.push(&path);
    // Its plugins want it by a name that is ours here, and look for what else it has (parts of its compiler's runtime) among
    // the global symbols. There it is the last, so that nobody else calls it past us.
    // SAFETY: a library whose initialisation the user asked for.
    let library =
        unsafe { Library::open(Some(&meant), RTLD_LAZY | RTLD_GLOBAL | libc::RTLD_DEEPBIND) }.map_err(|error| {
            // The linker's own words are the cause, not the error's text.
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            format!("CCLX_WITNESS={}: {why}", path.display())
        })?;
    let found = Real::find(&library, path);
    // It stays loaded.
    std::mem::forget(library);
    let own = crate::onecclGetVersion as unsafe extern "C" fn(*mut c_int) -> Code;
    match found.onecclGetVersion {
        Some(theirs) if std::ptr::fn_addr_eq(theirs, own) => {
            Err(format!("CCLX_WITNESS={} is the witness itself", found.path.display()))
        }
        Some(_) => Ok(found),
        None => Err(format!("CCLX_WITNESS={} has no onecclGetVersion", found.path.display())),
    }
}

/// What `ccl run` is told.
fn introduction(real: &Real) -> presence::Event {
    presence::Event::Called {
        library: own_path(),
        version: env!("CARGO_PKG_VERSION").into(),
        sha256: String::new(),
        route: format!("a witness of {}", real.path.display()),
    }
}

fn own_path() -> PathBuf {
    linker::file_of(crate::onecclGetVersion as unsafe extern "C" fn(*mut c_int) -> Code as usize).unwrap_or_default()
}

/// The library underneath, for people.
pub(crate) fn path() -> String {
    real().as_ref().map_or_else(|_| "nothing".into(), |real| real.path.display().to_string())
}

/// The process's settings.
pub(crate) fn config() -> &'static Result<Config, String> {
    static CONFIG: OnceLock<Result<Config, String>> = OnceLock::new();
    CONFIG.get_or_init(|| Config::from_env().map_err(|error| error.to_string()))
}

/// What a caller that ignores codes has to hear, the first time.
fn once(text: &str) {
    static SAID: parking_lot::Mutex<BTreeSet<String>> = parking_lot::Mutex::new(BTreeSet::new());
    if SAID.lock().insert(text.into()) {
        report::say(text);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_library_is_named_with_the_linkers_reason() {
        let file = std::env::temp_dir().join(format!("cclx-witness-no-library-{}", std::process::id()));
        std::fs::write(&file, "text").unwrap();
        let said = open(&file).err().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(said.contains(&format!("CCLX_WITNESS={}: ", file.display())), "{said}");
        assert!(said.contains("file too short"), "{said}");
    }
}
