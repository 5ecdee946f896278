//! Callers of the C ABI in Rust.

use crate::Rank;
use ccl_core::bootstrap::{RootOptions, UniqueId};
use cclx::{
    CONFIG_MAGIC, OnecclComm, OnecclConfig, OnecclUniqueId, UNDEFINED, onecclAllReduce, onecclCommCount,
    onecclCommInitRank, onecclCommUserRank, onecclGetLastError, onecclSetDevice,
};
use std::ffi::CStr;
use std::ptr::null_mut;

/// `onecclInt32`.
pub const INT32: i32 = 2;
/// `onecclUint8`.
pub const UINT8: i32 = 1;
/// `onecclSum`.
pub const SUM: i32 = 0;

/// A configuration that says nothing.
pub const WITHOUT_WISHES: OnecclConfig = OnecclConfig {
    size: 56,
    magic: CONFIG_MAGIC,
    version: 20_220_200,
    blocking: UNDEFINED,
    cga_cluster_size: UNDEFINED,
    min_ctas: UNDEFINED,
    max_ctas: UNDEFINED,
    net_name: std::ptr::null(),
    split_share: UNDEFINED,
    multi_threaded: UNDEFINED,
    plugin: 0,
};

/// An id as C has it.
pub fn id_of(id: &UniqueId) -> OnecclUniqueId {
    // SAFETY: plain bytes, and as many.
    unsafe { std::mem::transmute(*id.as_bytes()) }
}

/// A new id.
pub fn new_id() -> OnecclUniqueId {
    id_of(&UniqueId::create(RootOptions::default()).expect("a unique id"))
}

/// This rank's communicator of `n` ranks on a device of its own.
pub fn join(id: OnecclUniqueId, rank: usize, n: usize) -> *mut OnecclComm {
    let mut comm = null_mut();
    onecclSetDevice(rank as u32);
    // SAFETY: a place for the communicator.
    let code = unsafe { onecclCommInitRank(&raw mut comm, n, id, rank as i32) };
    assert_eq!(code, 0, "{}", last_error(null_mut()));
    comm
}

impl Rank {
    /// The communicator of this rank, by the C ABI.
    pub fn joined(&self) -> *mut OnecclComm {
        join(id_of(&self.id), self.rank, self.n)
    }
}

/// What was said last.
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "null is fine, and handles are never freed")]
pub fn last_error(comm: *mut OnecclComm) -> String {
    // SAFETY: null or a handle; the text is read before this thread's next failure.
    unsafe { CStr::from_ptr(onecclGetLastError(comm)) }.to_string_lossy().into_owned()
}

/// What one rank gives to one call.
pub fn element(call: usize, rank: usize, i: usize) -> i32 {
    ((call * 7919 + rank * 104_729 + i * 31) % 100_003) as i32 - 50_000
}

/// Ranks of a communicator, which of them this one is, and the sum of their inputs.
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "handles are never freed, and what is none is refused")]
pub fn seen_of(comm: *mut OnecclComm, input: i32) -> (i32, i32, i32) {
    let (mut count, mut rank, mut sum) = (-1, -1, -1);
    let from = (&raw const input).cast();
    // SAFETY: a handle and places for the answers; the buffers outlive the call.
    unsafe {
        assert_eq!((onecclCommCount(comm, &raw mut count), onecclCommUserRank(comm, &raw mut rank)), (0, 0));
        let code = onecclAllReduce(from, (&raw mut sum).cast(), 1, INT32, SUM, comm, null_mut());
        assert_eq!(code, 0, "{}", last_error(comm));
    }
    (count, rank, sum)
}
