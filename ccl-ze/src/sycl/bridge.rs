//! The bridge to the SYCL runtime that this process has loaded: a small library of its own, one for each major version of
//! libsycl, since C++ interfaces differ between them. ccl-ffi/sycl/bridge.h has the same declarations.

use super::event::RawEvent;
use ccl_core::{Error, Result, linker};
use level_zero_sys::{ze_context_handle_t, ze_device_handle_t};
use parking_lot::Mutex;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

/// The version of the declarations.
const VERSION: u32 = 5;
/// Major versions of libsycl for which there is a bridge.
pub const RELEASES: [u32; 2] = [8, 9];
/// Most devices that are asked for.
const MOST_DEVICES: usize = 256;

/// What doesn't change about a queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueFacts {
    pub(super) level_zero: u32,
    pub(super) in_order: u32,
    pub(super) lists: u32,
    pub(super) device: ze_device_handle_t,
    pub(super) context: ze_context_handle_t,
}

/// One launch of a kernel, or a copy, or nothing but its event.
#[repr(C)]
pub(super) struct RawWork {
    pub(super) kernel: *mut c_void,
    pub(super) groups: u32,
    pub(super) items: u32,
    pub(super) words: *const u64,
    pub(super) word_bytes: usize,
    pub(super) to: *mut c_void,
    pub(super) from: *const c_void,
    pub(super) bytes: usize,
    pub(super) unless_recording: u32,
}

/// The bridge's functions. Those that return an `int` return 0 or have a text in `error`.
#[repr(C)]
pub(super) struct Functions {
    version: u32,
    release: u32,
    error: unsafe extern "C" fn() -> *const c_char,
    devices: unsafe extern "C" fn(u32, *mut ze_device_handle_t, *mut ze_context_handle_t, *mut u32) -> c_int,
    pub(super) queue_key: unsafe extern "C" fn(*const c_void) -> usize,
    pub(super) queue_open: unsafe extern "C" fn(*const c_void, *mut *mut c_void, *mut QueueFacts) -> c_int,
    pub(super) queue_close: unsafe extern "C" fn(*mut c_void),
    pub(super) queue_recording: unsafe extern "C" fn(*mut c_void, u32, *mut u32) -> c_int,
    pub(super) queue_list: unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int,
    pub(super) graph_open: unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int,
    pub(super) graph_is: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut u32) -> c_int,
    pub(super) graph_close: unsafe extern "C" fn(*mut c_void),
    pub(super) kernel_open: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut *mut c_void) -> c_int,
    pub(super) kernel_close: unsafe extern "C" fn(*mut c_void),
    pub(super) queue_is_idle: unsafe extern "C" fn(*mut c_void, *mut u32) -> c_int,
    pub(super) queue_drop_events: unsafe extern "C" fn(*mut c_void),
    pub(super) queue_to_try: unsafe extern "C" fn(*mut c_void, u32, *mut *mut c_void) -> c_int,
    pub(super) submit:
        unsafe extern "C" fn(*mut c_void, *const RawWork, *const *const RawEvent, u32, *mut RawEvent) -> c_int,
    pub(super) launch: unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *const u64, usize, u32) -> c_int,
    pub(super) event_finished: unsafe extern "C" fn(*const RawEvent, *mut u32) -> c_int,
    pub(super) event_close: unsafe extern "C" fn(*mut RawEvent),
}

/// Nothing was said of which command lists a queue uses.
pub(super) const LISTS_USUAL: u32 = 0;
/// It was said not to use immediate ones.
pub(super) const LISTS_NOT_IMMEDIATE: u32 = 2;
/// What a submission returns that was not to be recorded.
pub(super) const RECORDS: c_int = 2;
/// The driver doesn't capture the queue's list.
pub(super) const DRIVER_WAS_ASKED: u32 = 2;
/// What is done with a queue to try something on.
pub(super) const TRY_NO_EVENT: u32 = 0;
pub(super) const TRY_DROPPED_EVENT: u32 = 1;
pub(super) const TRY_RECORDED: u32 = 2;
/// What a queue says that only tells as it is submitted to.
pub(super) const ASK_SUBMIT: u32 = 2;

type Open = unsafe extern "C" fn(u32) -> *const Functions;

/// A bridge that is loaded; it stays.
pub(crate) struct Bridge {
    pub(super) functions: &'static Functions,
}

/// A device as the runtime has it.
#[derive(Clone, Copy)]
pub(crate) struct SyclDevice {
    pub(crate) device: ze_device_handle_t,
    pub(crate) context: ze_context_handle_t,
}

impl Bridge {
    /// The bridge for the runtime that this process has loaded; none if it has loaded none.
    pub(crate) fn of_process() -> Result<Option<&'static Bridge>> {
        static LOADED: Mutex<Option<&'static Bridge>> = Mutex::new(None);
        let mut loaded = LOADED.lock();
        if let Some(bridge) = *loaded {
            return Ok(Some(bridge));
        }
        let mapped: Vec<u32> = RELEASES.into_iter().filter(|release| is_mapped(*release)).collect();
        let release = match mapped[..] {
            [] => return Ok(None),
            [release] => release,
            _ => {
                return Err(Error::InvalidUsage(
                    "this process has loaded two versions of the SYCL runtime, libsycl.so.8 and libsycl.so.9".into(),
                ));
            }
        };
        let bridge = load(release)?;
        *loaded = Some(bridge);
        Ok(Some(bridge))
    }

    /// The Level Zero GPUs in the runtime's order, with the context of queues that were given none.
    pub(crate) fn devices(&self) -> Result<Vec<SyclDevice>> {
        let (mut devices, mut contexts) = ([null_mut(); MOST_DEVICES], [null_mut(); MOST_DEVICES]);
        let mut count = 0;
        let most = MOST_DEVICES as u32;
        // SAFETY: room for `most` handles each, and for their number.
        let code =
            unsafe { (self.functions.devices)(most, devices.as_mut_ptr(), contexts.as_mut_ptr(), &raw mut count) };
        self.check("sycl::platform::get_devices", code)?;
        let known = devices.into_iter().zip(contexts).take(count as usize);
        Ok(known.map(|(device, context)| SyclDevice { device, context }).collect())
    }

    /// Whether the release has an adapter that batches what is submitted to queues without immediate command lists.
    pub(super) fn gathers(&self) -> bool {
        self.functions.release >= 9
    }

    /// What came of a call of the runtime.
    #[inline(always)]
    pub(super) fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.failed(call)) }
    }

    #[cold]
    fn failed(&self, call: &str) -> Error {
        // SAFETY: the text of this thread's last failure, terminated, read before the next call.
        let text = unsafe { CStr::from_ptr((self.functions.error)()) };
        Error::Device { call: call.into(), detail: text.to_string_lossy().into_owned() }
    }
}

/// File name of the bridge for a version of libsycl.
pub fn file_name(release: u32) -> String {
    format!("libcclx_sycl{release}.so")
}

/// Where a bridge would be found: beside this library.
pub fn beside(release: u32) -> Option<PathBuf> {
    Some(own_folder()?.join(file_name(release)))
}

/// Whether the process has loaded this version of the runtime, by its SONAME.
fn is_mapped(release: u32) -> bool {
    let name = format!("libsycl.so.{release}\0");
    // SAFETY: a terminated name; nothing is loaded.
    let handle = unsafe { libc::dlopen(name.as_ptr().cast(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: a handle of the call above. The library stays, as whoever loaded it keeps it.
    unsafe { libc::dlclose(handle) };
    true
}

fn load(release: u32) -> Result<&'static Bridge> {
    let name = file_name(release);
    let beside = beside(release).filter(|path| path.exists());
    // Beside this library it is ours; elsewhere the system's search path decides.
    let path = beside.as_deref().unwrap_or(Path::new(&name));
    let refuse = |why: String| {
        Error::NotImplemented(format!(
            "SYCL queues: this process has loaded libsycl.so.{release}, whose bridge {} {why}",
            path.display()
        ))
    };
    let terminated = CString::new(path.as_os_str().as_bytes()).map_err(|_| refuse("has no usable path".into()))?;
    // SAFETY: a terminated path. The bridge's constructors are those of the C++ library.
    let handle = unsafe { libc::dlopen(terminated.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(refuse(format!("can't be loaded: {}", linker::last_error())));
    }
    // SAFETY: a live handle and a terminated name.
    let symbol = unsafe { libc::dlsym(handle, c"cclx_sycl_bridge_open".as_ptr()) };
    if symbol.is_null() {
        return Err(refuse("is something else: it has no cclx_sycl_bridge_open".into()));
    }
    // SAFETY: the bridge declares it so, in every version.
    let open: Open = unsafe { std::mem::transmute::<*mut c_void, Open>(symbol) };
    // SAFETY: it takes any number.
    let functions = unsafe { open(VERSION).as_ref() };
    let functions = functions.ok_or_else(|| refuse("is of another version of this library".into()))?;
    if functions.version != VERSION || functions.release != release {
        return Err(refuse(format!("was built for libsycl.so.{}", functions.release)));
    }
    tracing::info!("SYCL queues: bridge {} for libsycl.so.{release}", path.display());
    Ok(Box::leak(Box::new(Bridge { functions })))
}

/// The folder of the file that this code was loaded from.
fn own_folder() -> Option<PathBuf> {
    static HERE: u8 = 0;
    let path = linker::file_of(&raw const HERE as usize)?.canonicalize().ok()?;
    path.parent().map(Path::to_path_buf)
}
