//! The collectives, under oneCCL's names. With a null stream the buffers are the host's, and a call returns with its result:
//! outside a group at once, inside one at the group's end. Another stream is a SYCL queue: the buffers are device memory,
//! and a call returns once it is submitted (docs/sycl.md).

use crate::call::{Call, What, datatype, rank};
use crate::entry::{Code, SUCCESS, call_entry, null};
use crate::group::{is_open, issue};
use crate::handle::{Live, OnecclComm};
use crate::memory;
use ccl_core::{DataType, ReduceOp, Result};
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

/// A collective's entry: issues what `call` makes of the caller's arguments.
///
/// # Safety
/// As for the entries: what the call names holds what it reads and writes, with a stream until that has done it;
/// `communicator` is null or a handle, `stream` null or a live SYCL queue.
unsafe fn collective(
    name: &'static &'static str,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
    call: impl FnOnce(&Live) -> Result<Call>,
) -> Code {
    // SAFETY: passed on to the caller.
    let body = |handle: &'static OnecclComm| unsafe { issue(handle, stream, call) };
    // SAFETY: by this function's contract.
    unsafe { call_entry(name, communicator, body) }
}

/// A caller's list of one count for each rank.
///
/// # Safety
/// `counts` is null or holds `n` numbers.
unsafe fn counts(counts: *const usize, n: usize, what: &str) -> Result<Vec<usize>> {
    if counts.is_null() {
        return Err(null(what));
    }
    // SAFETY: by this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(counts, n) }.to_vec())
}

/// `recv` = reduction of all ranks' `send`, on every rank. In place: `send` = `recv`.
///
/// # Safety
/// `send` and `recv` hold what the call reads and writes; `communicator` is null or a handle, `stream` null or a live SYCL
/// queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclAllReduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    datatype_number: c_int,
    op: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    let call = |live: &Live| {
        let (dtype, reduction) = (datatype(datatype_number)?, live.reduction(op)?);
        Ok(Call { what: What::AllReduce, count, dtype, reduction, send, recv })
    };
    let body = |handle: &'static OnecclComm| {
        // SAFETY: passed on to the caller.
        let plain = unsafe { plain_all_reduce(handle, send, recv, count, datatype_number, op, stream) };
        match plain {
            Some(Ok(())) => Ok(SUCCESS),
            Some(Err(error)) => Err(error),
            // SAFETY: as above.
            None => unsafe { issue(handle, stream, call) },
        }
    };
    // SAFETY: as above.
    unsafe { call_entry(&"onecclAllReduce", communicator, body) }
}

/// Submits an all-reduce of the kind that is called most: outside a group, on a queue that was used before, with nothing
/// that would take a second look. What takes one, or is refused, is left to [`issue`].
///
/// # Safety
/// As for [`onecclAllReduce`].
#[inline(always)]
unsafe fn plain_all_reduce(
    handle: &OnecclComm,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    datatype_number: c_int,
    op: c_int,
    queue: *const c_void,
) -> Option<Result<()>> {
    let dtype = DataType::from_abi(u32::try_from(datatype_number).ok()?)?;
    let op = ReduceOp::from_abi(u32::try_from(op).ok()?)?;
    if queue.is_null() || is_open() || memory::any() {
        return None;
    }
    let live = handle.live_now()?;
    // SAFETY: passed on to the caller.
    let stream = unsafe { live.known_queue(queue)? };
    handle.ledger.on_streams.store(true, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { live.comm.all_reduce_plainly((count as u64, dtype, op), send, recv, &stream) }
}

/// The same on the rank `root` only.
///
/// # Safety
/// `send` and `recv` hold what the call reads and writes; `communicator` is null or a handle, `stream` null or a live SYCL
/// queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclReduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    datatype_number: c_int,
    op: c_int,
    root: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    let call = |live: &Live| {
        let (dtype, reduction) = (datatype(datatype_number)?, live.reduction(op)?);
        Ok(Call { what: What::Reduce { root: rank(root, "root")? }, count, dtype, reduction, send, recv })
    };
    // SAFETY: passed on to the caller.
    unsafe { collective(&"onecclReduce", communicator, stream, call) }
}

/// The same of which every rank gets its piece of `count` elements. In place: `recv` = `send` + rank * `count`.
///
/// # Safety
/// `send` and `recv` hold what the call reads and writes; `communicator` is null or a handle, `stream` null or a live SYCL
/// queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclReduceScatter(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    datatype_number: c_int,
    op: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    let call = |live: &Live| {
        let (dtype, reduction) = (datatype(datatype_number)?, live.reduction(op)?);
        Ok(Call { what: What::ReduceScatter, count, dtype, reduction, send, recv })
    };
    // SAFETY: passed on to the caller.
    unsafe { collective(&"onecclReduceScatter", communicator, stream, call) }
}

/// `recv` = the `send` of the rank `root`, on every rank. In place: `send` = `recv`.
///
/// # Safety
/// `send` and `recv` hold what the call reads and writes; `communicator` is null or a handle, `stream` null or a live SYCL
/// queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclBroadcast(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    datatype_number: c_int,
    root: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    let call = |_: &Live| {
        let what = What::Broadcast { root: rank(root, "root")? };
        Ok(Call::moving(what, count, datatype(datatype_number)?, send, recv))
    };
    // SAFETY: passed on to the caller.
    unsafe { collective(&"onecclBroadcast", communicator, stream, call) }
}

/// `recv` = this rank's piece of the `send` of the rank `root`. In place: `recv` = `send` + root * `count`.
///
/// # Safety
/// `send` and `recv` hold what the call reads and writes; `communicator` is null or a handle, `stream` null or a live SYCL
/// queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclScatter(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    datatype_number: c_int,
    root: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    let call = |_: &Live| {
        let what = What::Scatter { root: rank(root, "root")? };
        Ok(Call::moving(what, count, datatype(datatype_number)?, send, recv))
    };
    // SAFETY: passed on to the caller.
    unsafe { collective(&"onecclScatter", communicator, stream, call) }
}

/// `recv` = all ranks' `send`, by rank. In place: `send` = `recv` + rank * `count`.
///
/// # Safety
/// `send` and `recv` hold what the call reads and writes; `communicator` is null or a handle, `stream` null or a live SYCL
/// queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclAllGather(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    datatype_number: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    let call = |_: &Live| {
        let what = What::AllGather;
        Ok(Call::moving(what, count, datatype(datatype_number)?, send, recv))
    };
    // SAFETY: passed on to the caller.
    unsafe { collective(&"onecclAllGather", communicator, stream, call) }
}

/// `recv` = this rank's pieces of all ranks' `send`, by rank; `count` elements each. In place: `send` = `recv`.
///
/// # Safety
/// `send` and `recv` hold what the call reads and writes; `communicator` is null or a handle, `stream` null or a live SYCL
/// queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclAllToAll(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    datatype_number: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    let call = |_: &Live| {
        let what = What::AllToAll;
        Ok(Call::moving(what, count, datatype(datatype_number)?, send, recv))
    };
    // SAFETY: passed on to the caller.
    unsafe { collective(&"onecclAllToAll", communicator, stream, call) }
}

/// The same with pieces of any size: `send` holds `to[i]` elements for each rank i, one after the other, and `recv` gets
/// `from[i]` of each.
///
/// # Safety
/// `send` and `recv` hold what the call reads and writes, `to` and `from` one number for each rank; `communicator` is null or
/// a handle, `stream` null or a live SYCL queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclAllToAllV(
    send: *const c_void,
    to: *const usize,
    recv: *mut c_void,
    from: *const usize,
    datatype_number: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    let call = |live: &Live| {
        let n = live.comm.world_size();
        // SAFETY: passed on to the caller.
        let (to, from) =
            unsafe { (counts(to, n, "the list of send counts")?, counts(from, n, "the list of receive counts")?) };
        Ok(Call::moving(What::AllToAllV { to, from }, 0, datatype(datatype_number)?, send, recv))
    };
    // SAFETY: passed on to the caller.
    unsafe { collective(&"onecclAllToAllV", communicator, stream, call) }
}

/// Sends to the rank `peer`, which receives as much.
///
/// # Safety
/// `send` holds `count` elements; `communicator` is null or a handle, `stream` null or a live SYCL queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclSend(
    send: *const c_void,
    count: usize,
    datatype_number: c_int,
    peer: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    let call = |_: &Live| {
        let what = What::Send { to: rank(peer, "peer")? };
        Ok(Call::moving(what, count, datatype(datatype_number)?, send, std::ptr::null_mut()))
    };
    // SAFETY: passed on to the caller.
    unsafe { collective(&"onecclSend", communicator, stream, call) }
}

/// Receives from the rank `peer`, which sends as much.
///
/// # Safety
/// `recv` holds `count` elements; `communicator` is null or a handle, `stream` null or a live SYCL queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclRecv(
    recv: *mut c_void,
    count: usize,
    datatype_number: c_int,
    peer: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    let call = |_: &Live| {
        let what = What::Receive { from: rank(peer, "peer")? };
        Ok(Call::moving(what, count, datatype(datatype_number)?, std::ptr::null(), recv))
    };
    // SAFETY: passed on to the caller.
    unsafe { collective(&"onecclRecv", communicator, stream, call) }
}
