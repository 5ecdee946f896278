//! Underneath oneCCL's own `libccl.so.2`, as the plugin that `CCL_PLUGIN` names: it asks [`onecclPluginCall`] for functions, and
//! has each communicator bring a table of them inside a structure of its own.
//!
//! That structure is nowhere published and differs between versions without a way to tell, so only the version that this was
//! observed with is served; others are refused when the first communicator is to be made.

use crate::abi::{OnecclConfig, OnecclDevComm, OnecclDevCommRequirements, OnecclUniqueId};
use crate::collectives::*;
use crate::copies;
use crate::entry::{Code, SUCCESS, entry, making_entry, null};
use crate::group::{onecclGroupEnd, onecclGroupStart};
use crate::handle::{OnecclComm, copy};
use crate::lifecycle::*;
use crate::memory::*;
use crate::redop::*;
use crate::unsupported::*;
use ccl_core::{Error, Result};
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// oneCCL's own communicator, 2022.2.
#[repr(C)]
pub struct Outer {
    size: usize,
    magic: c_int,
    version: c_int,
    /// For the plugin: our communicator.
    ours: *mut OnecclComm,
    id: OnecclUniqueId,
    config: OnecclConfig,
    error: Code,
    /// Functions by their slots.
    table: [*const c_void; SLOTS],
}

const SLOTS: usize = 30;
const _: () = assert!(std::mem::offset_of!(Outer, config) == 4120 && std::mem::offset_of!(Outer, table) == 4184);
const _: () = assert!(size_of::<Outer>() == 4424);

/// Versions whose communicators look so.
const KNOWN: std::ops::RangeInclusive<c_int> = 20_220_200..=20_220_299;

/// What the library above asks for: a function by its number, null for one that is not here.
#[unsafe(no_mangle)]
pub extern "C" fn onecclPluginCall(which: c_int) -> *mut c_void {
    copies::AS_PLUGIN.store(true, std::sync::atomic::Ordering::Relaxed);
    let function = match which {
        1 => begin as *const c_void,
        2 => make_id as *const c_void,
        3 => make as *const c_void,
        4 => onecclSetDevice as *const c_void,
        6 => onecclGroupStart as *const c_void,
        7 => onecclGroupEnd as *const c_void,
        9 => onecclMemAlloc as *const c_void,
        10 => onecclMemFree as *const c_void,
        11 => onecclGetPeerDevicePointer as *const c_void,
        12 => onecclGetLsaDevicePointer as *const c_void,
        13 => onecclGetLocalDevicePointer as *const c_void,
        // Its key-value store and its choice among plugins by score.
        _ => std::ptr::null(),
    };
    function.cast_mut()
}

/// Each thread begins so. The library above can't be asked for its version yet: that would begin anew.
extern "C" fn begin() -> Code {
    SUCCESS
}

/// The version of the library above, once.
fn check_version() -> Result<()> {
    static CHECKED: OnceLock<Result<()>> = OnceLock::new();
    let check = || {
        let above = copies::others(copy()).into_iter().find(|other| !other.is_copy());
        let above = above.ok_or_else(|| {
            Error::NotImplemented("as a plugin of a oneCCL whose library is not mapped under its own name".into())
        })?;
        match version_of(&above.path) {
            Some(version) if KNOWN.contains(&version) => Ok(()),
            version => Err(Error::NotImplemented(format!(
                "as a plugin of {}, version {}: only {} to {} are known; use another route (`ccl run --route audit`)",
                above.path,
                version.map_or_else(|| "unknown".into(), |version| version.to_string()),
                KNOWN.start(),
                KNOWN.end()
            ))),
        }
    };
    CHECKED.get_or_init(check).clone()
}

fn version_of(library: &str) -> Option<c_int> {
    let path = CString::new(library).ok()?;
    // SAFETY: a terminated name of a library that is loaded: it is only looked up.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: a loaded library and a terminated name.
    let address = unsafe { libc::dlsym(library, c"onecclGetVersion".as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: oneCCL's function of that name has this type in all versions.
    let get: unsafe extern "C" fn(*mut c_int) -> Code = unsafe { std::mem::transmute(address) };
    // Where ours were meant by that path it would say nothing of the library above.
    if std::ptr::fn_addr_eq(get, crate::info::onecclGetVersion as unsafe extern "C" fn(*mut c_int) -> Code) {
        return None;
    }
    let mut version = 0;
    // SAFETY: a place for a number.
    (unsafe { get(&raw mut version) } == SUCCESS).then_some(version)
}

unsafe extern "C" fn make_id(id: *mut OnecclUniqueId) -> Code {
    let checked = entry("onecclGetUniqueId", || check_version().map(|()| SUCCESS));
    if checked != SUCCESS {
        return checked;
    }
    // SAFETY: passed on to the caller.
    unsafe { onecclGetUniqueId(id) }
}

/// Makes our communicator and puts it, and the table, into the one that the library above has allocated.
unsafe extern "C" fn make(
    place: *mut *mut Outer,
    ranks: usize,
    id: OnecclUniqueId,
    rank: c_int,
    config: *const OnecclConfig,
) -> Code {
    // SAFETY: passed on to the caller.
    let outer = if place.is_null() { null_mut() } else { unsafe { *place } };
    let checked = making_entry("onecclCommInitRank", || {
        check_version()?;
        if outer.is_null() { Err(null("oneCCL's communicator")) } else { Ok(SUCCESS) }
    });
    if checked != SUCCESS {
        return checked;
    }
    // SAFETY: passed on to the caller.
    let config = unsafe { blocking(config) };
    let config = config.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a communicator of the version that was checked.
    let code = unsafe { onecclCommInitRankConfig(&raw mut (*outer).ours, ranks, id, rank, config) };
    // SAFETY: as above.
    unsafe { (*outer).table = TABLE.0 };
    code
}

/// The library above takes a communicator that is still being made for one that failed: all are waited for.
///
/// # Safety
/// `given` is null or a configuration of the version that was checked.
unsafe fn blocking(given: *const OnecclConfig) -> Option<OnecclConfig> {
    // SAFETY: by this function's contract.
    let mut config = unsafe { given.as_ref() }.copied()?;
    if config.size != 0 && config.blocking == 0 {
        config.blocking = 1;
    }
    Some(config)
}

/// Our communicator of one of oneCCL's.
///
/// # Safety
/// `outer` is null or was filled by [`make`].
unsafe fn ours(outer: *mut Outer) -> *mut OnecclComm {
    // SAFETY: by this function's contract.
    if outer.is_null() { null_mut() } else { unsafe { (*outer).ours } }
}

/// Functions that go on to ours with our communicator in place of oneCCL's.
macro_rules! onward {
    ($($name:ident => $ours:ident($($before:ident: $b:ty),*; comm $(, $after:ident: $a:ty)*);)+) => { $(
        unsafe extern "C" fn $name($($before: $b,)* comm: *mut Outer $(, $after: $a)*) -> Code {
            // SAFETY: passed on to the caller, whose communicator came from `make` or `split`.
            #[allow(unused_unsafe, reason = "some of them are safe to call")]
            unsafe { $ours($($before,)* ours(comm) $(, $after)*) }
        }
    )+ };
}

onward! {
    all_reduce => onecclAllReduce(s: *mut c_void, r: *mut c_void, n: usize, t: c_int, op: c_int; comm, q: *mut c_void);
    all_gather => onecclAllGather(s: *const c_void, r: *mut c_void, n: usize, t: c_int; comm, q: *mut c_void);
    all_to_all => onecclAllToAll(s: *const c_void, r: *mut c_void, n: usize, t: c_int; comm, q: *mut c_void);
    all_to_all_v => onecclAllToAllV(s: *const c_void, ns: *const usize, r: *mut c_void, nr: *const usize, t: c_int; comm,
                                    q: *mut c_void);
    broadcast => onecclBroadcast(s: *const c_void, r: *mut c_void, n: usize, t: c_int, root: c_int; comm, q: *mut c_void);
    reduce => onecclReduce(s: *const c_void, r: *mut c_void, n: usize, t: c_int, op: c_int, root: c_int; comm,
                           q: *mut c_void);
    reduce_scatter => onecclReduceScatter(s: *const c_void, r: *mut c_void, n: usize, t: c_int, op: c_int; comm,
                                          q: *mut c_void);
    scatter => onecclScatter(s: *const c_void, r: *mut c_void, n: usize, t: c_int, root: c_int; comm, q: *mut c_void);
    send => onecclSend(s: *const c_void, n: usize, t: c_int, peer: c_int; comm, q: *mut c_void);
    receive => onecclRecv(r: *mut c_void, n: usize, t: c_int, peer: c_int; comm, q: *mut c_void);
    user_rank => onecclCommUserRank(; comm, rank: *mut c_int);
    count => onecclCommCount(; comm, count: *mut c_int);
    device => onecclCommDevice(; comm, device: *mut c_int);
    register => onecclCommRegister(; comm, at: *mut c_void, bytes: usize, made: *mut *mut c_void);
    deregister => onecclCommDeregister(; comm, made: *mut c_void);
    window_register => onecclCommWindowRegister(; comm, at: *mut c_void, bytes: usize, made: *mut *mut c_void, flags: c_int);
    window_deregister => onecclCommWindowDeregister(; comm, made: *mut c_void);
    device_create => onecclDevCommCreate(; comm, wanted: *const OnecclDevCommRequirements, made: *mut OnecclDevComm);
    device_destroy => onecclDevCommDestroy(; comm, made: *const OnecclDevComm);
    pre_multiplied => onecclRedOpCreatePreMulSum(op: *mut c_int, scalar: *mut c_void, t: c_int, place: c_int; comm);
    operation_destroy => onecclRedOpDestroy(op: c_int; comm);
    destroy => onecclCommDestroy(; comm);
    finalize => onecclCommFinalize(; comm);
    abort => onecclCommAbort(; comm);
}

/// Splits ours; the library above has allocated the new one.
unsafe extern "C" fn split(
    parent: *mut Outer,
    color: c_int,
    key: c_int,
    place: *mut *mut Outer,
    config: *mut OnecclConfig,
) -> Code {
    // SAFETY: passed on to the caller.
    let made = if place.is_null() { null_mut() } else { unsafe { *place } };
    if made.is_null() {
        return making_entry("onecclCommSplit", || Err(null("oneCCL's communicator")));
    }
    // SAFETY: passed on to the caller.
    let mut config = unsafe { blocking(config) };
    let config = config.as_mut().map_or(null_mut(), std::ptr::from_mut);
    // SAFETY: communicators of the version that was checked when the first was made.
    let code = unsafe { onecclCommSplit(ours(parent), color, key, &raw mut (*made).ours, config) };
    // SAFETY: as above.
    unsafe { (*made).table = TABLE.0 };
    if code == SUCCESS && color == -1 {
        // A rank without a colour has none; the library above would hand out the empty one.
        // SAFETY: it was allocated by the C library for the caller, who has not seen it.
        unsafe {
            *place = null_mut();
            libc::free(made.cast());
        }
    }
    code
}

/// What the slots hold that no call was seen to use.
extern "C" fn unknown() -> Code {
    entry("onecclPluginCall", || Err(Error::NotImplemented("a function of oneCCL's plugins that is not known".into())))
}

struct Table([*const c_void; SLOTS]);

// SAFETY: addresses of functions.
unsafe impl Sync for Table {}

static TABLE: Table = Table({
    let mut table = [unknown as *const c_void; SLOTS];
    table[0] = all_reduce as *const c_void;
    table[1] = all_gather as *const c_void;
    table[2] = all_to_all as *const c_void;
    table[3] = all_to_all_v as *const c_void;
    table[4] = broadcast as *const c_void;
    table[5] = reduce as *const c_void;
    table[6] = reduce_scatter as *const c_void;
    table[7] = scatter as *const c_void;
    table[8] = send as *const c_void;
    table[9] = receive as *const c_void;
    table[11] = user_rank as *const c_void;
    table[13] = count as *const c_void;
    table[15] = device as *const c_void;
    table[18] = register as *const c_void;
    table[19] = deregister as *const c_void;
    table[20] = window_register as *const c_void;
    table[21] = window_deregister as *const c_void;
    table[22] = device_create as *const c_void;
    table[23] = device_destroy as *const c_void;
    table[24] = pre_multiplied as *const c_void;
    table[25] = operation_destroy as *const c_void;
    table[26] = split as *const c_void;
    table[27] = destroy as *const c_void;
    table[28] = finalize as *const c_void;
    table[29] = abort as *const c_void;
    table
});
