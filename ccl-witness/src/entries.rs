//! The names that are passed on as they come, and those by which communicators begin and end.

use crate::abi::{Code, IN_PROGRESS, OnecclUniqueId, SUCCESS};
use crate::group;
use crate::places::{self, Birth};
use crate::real::{passed_on, under};
use std::ffi::{c_char, c_int, c_void};

macro_rules! export {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)+) => { $(
        /// Passed on as it is.
        ///
        /// # Safety
        /// As the library underneath has it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: passed on to the caller.
            unsafe { under::$name($($arg),*) }
        }
    )+ };
}

passed_on! { export! {} }

/// Makes an id, and a place where the ranks' witnesses meet that follows from it.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclGetUniqueId(id: *mut OnecclUniqueId) -> Code {
    // SAFETY: passed on to the caller.
    let code = unsafe { under::onecclGetUniqueId(id) };
    if code == SUCCESS && !id.is_null() {
        // SAFETY: the library underneath has just written it.
        places::serve(unsafe { &(*id).data });
    }
    code
}

/// Whether a communicator comes of it, now or when it is formed.
const fn begun(code: Code) -> bool {
    matches!(code, SUCCESS | IN_PROGRESS)
}

/// Joins a group; the witnesses of its ranks meet too.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommInitRank(comm: *mut *mut c_void, n: usize, id: OnecclUniqueId, rank: c_int) -> Code {
    // SAFETY: passed on to the caller.
    let code = unsafe { under::onecclCommInitRank(comm, n, id, rank) };
    if begun(code) {
        group::born(comm as usize, Birth::Joined { id: Box::new(id.data), rank: rank as usize, n });
    }
    code
}

/// The same with a configuration.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommInitRankConfig(
    comm: *mut *mut c_void,
    n: usize,
    id: OnecclUniqueId,
    rank: c_int,
    config: *const c_void,
) -> Code {
    // SAFETY: passed on to the caller.
    let code = unsafe { under::onecclCommInitRankConfig(comm, n, id, rank, config) };
    if begun(code) {
        group::born(comm as usize, Birth::Joined { id: Box::new(id.data), rank: rank as usize, n });
    }
    code
}

/// Splits a communicator; so do the witnesses.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommSplit(
    comm: *mut c_void,
    color: c_int,
    key: c_int,
    made: *mut *mut c_void,
    config: *mut c_void,
) -> Code {
    // SAFETY: passed on to the caller.
    let code = unsafe { under::onecclCommSplit(comm, color, key, made, config) };
    if begun(code)
        && let Some(parent) = places::find(comm)
    {
        group::born(made as usize, Birth::Split { parent, color: u32::try_from(color).ok(), key });
    }
    code
}

/// Ends a communicator. What is still to be compared is compared meanwhile.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommDestroy(comm: *mut c_void) -> Code {
    places::end(comm);
    // SAFETY: passed on to the caller.
    unsafe { under::onecclCommDestroy(comm) }
}

/// Ends a communicator without waiting.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommAbort(comm: *mut c_void) -> Code {
    places::end(comm);
    // SAFETY: passed on to the caller.
    unsafe { under::onecclCommAbort(comm) }
}

/// Makes a reduction that multiplies first; a factor in host memory is remembered.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclRedOpCreatePreMulSum(
    op: *mut c_int,
    scalar: *mut c_void,
    dtype: c_int,
    residence: c_int,
    comm: *mut c_void,
) -> Code {
    // SAFETY: passed on to the caller.
    let code = unsafe { under::onecclRedOpCreatePreMulSum(op, scalar, dtype, residence, comm) };
    if code == SUCCESS
        && let Some(watched) = places::find(comm)
    {
        // SAFETY: the library underneath has taken both.
        unsafe { watched.knows_factor(*op, scalar, dtype, residence) };
    }
    code
}

/// Ends such a reduction.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclRedOpDestroy(op: c_int, comm: *mut c_void) -> Code {
    if let Some(watched) = places::find(comm) {
        watched.forgets_factor(op);
    }
    // SAFETY: passed on to the caller.
    unsafe { under::onecclRedOpDestroy(op, comm) }
}
