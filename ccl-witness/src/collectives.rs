//! The collectives, under oneCCL's names: passed on, and kept for the comparer where the buffers are the host's.

use crate::abi::{Code, SUCCESS};
use crate::call::{Call, Op, What};
use crate::real::under;
use crate::watched::Watched;
use crate::{group, places};
use ccl_core::collective::{Collective, Piece, Table};
use ccl_core::protocol::MAX_RANKS;
use ccl_core::{DataType, ReduceOp};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

const ON_A_STREAM: &str = "on a stream, whose buffers are not the host's";
const MESSAGE: &str = "a send or receive";
const STRANGE: &str = "a datatype, reduction or root that the witness does not know";

fn datatype(number: c_int) -> Option<DataType> {
    u32::try_from(number).ok().and_then(DataType::from_abi)
}

/// What is to be watched of a call, or why nothing is.
fn moving(
    what: Option<Collective>,
    count: usize,
    dtype: c_int,
    send: *const c_void,
    recv: *mut c_void,
) -> Option<Call> {
    let (what, op) = (What::Other(what?), Op::Known(ReduceOp::Sum));
    Some(Call { what, count, dtype: datatype(dtype)?, op, table: None, send: send as usize, recv: recv as usize })
}

fn root(number: c_int) -> Option<usize> {
    usize::try_from(number).ok()
}

/// Makes a call by `run`, and keeps what `call` says of it.
fn watched(
    comm: *mut c_void,
    stream: *mut c_void,
    call: impl FnOnce(&Watched) -> Result<Call, &'static str>,
    run: impl FnOnce() -> Code,
) -> Code {
    match places::find(comm) {
        Some(watched) => watched_by(&watched, stream, call, run),
        None => run(),
    }
}

fn watched_by(
    watched: &Arc<Watched>,
    stream: *mut c_void,
    call: impl FnOnce(&Watched) -> Result<Call, &'static str>,
    run: impl FnOnce() -> Code,
) -> Code {
    if !stream.is_null() {
        watched.leave_out(ON_A_STREAM);
        return run();
    }
    let call = match call(watched) {
        Ok(call) => call,
        Err(why) => {
            watched.leave_out(why);
            return run();
        }
    };
    if group::is_open() {
        let code = run();
        if code == SUCCESS {
            group::queue(watched.clone(), call);
        }
        return code;
    }
    let entered = watched.enter();
    let begun = watched.begin(call, true, None);
    let code = run();
    let alone = watched.leave(entered);
    if let Some(begun) = begun {
        watched.end(begun, code, alone);
    }
    code
}

/// Reduces to every rank.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclAllReduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Code {
    let call = |watched: &Watched| {
        let (dtype, op) = datatype(dtype).zip(watched.reduction(op)).ok_or(STRANGE)?;
        let (what, table) = (What::AllReduce, None);
        Ok(Call { what, count, dtype, op, table, send: send as usize, recv: recv as usize })
    };
    // SAFETY: passed on to the caller.
    watched(comm, stream, call, || unsafe { under::onecclAllReduce(send, recv, count, dtype, op, comm, stream) })
}

/// Reduces to the root.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclReduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    to: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Code {
    let call = |watched: &Watched| {
        let what = root(to).map(|root| Collective::Reduce { root });
        let call = moving(what, count, dtype, send, recv).zip(watched.reduction(op)).ok_or(STRANGE)?;
        Ok(Call { op: call.1, ..call.0 })
    };
    // SAFETY: passed on to the caller.
    watched(comm, stream, call, || unsafe { under::onecclReduce(send, recv, count, dtype, op, to, comm, stream) })
}

/// Reduces; each rank gets its piece.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclReduceScatter(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Code {
    let call = |watched: &Watched| {
        let call = moving(Some(Collective::ReduceScatter), count, dtype, send, recv);
        let call = call.zip(watched.reduction(op)).ok_or(STRANGE)?;
        Ok(Call { op: call.1, ..call.0 })
    };
    // SAFETY: passed on to the caller.
    watched(comm, stream, call, || unsafe { under::onecclReduceScatter(send, recv, count, dtype, op, comm, stream) })
}

/// From the root to every rank.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclBroadcast(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    from: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Code {
    let call = |_: &Watched| {
        moving(root(from).map(|root| Collective::Broadcast { root }), count, dtype, send, recv).ok_or(STRANGE)
    };
    // SAFETY: passed on to the caller.
    watched(comm, stream, call, || unsafe { under::onecclBroadcast(send, recv, count, dtype, from, comm, stream) })
}

/// A piece from the root to each rank.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclScatter(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    from: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Code {
    let call = |_: &Watched| {
        moving(root(from).map(|root| Collective::Scatter { root }), count, dtype, send, recv).ok_or(STRANGE)
    };
    // SAFETY: passed on to the caller.
    watched(comm, stream, call, || unsafe { under::onecclScatter(send, recv, count, dtype, from, comm, stream) })
}

/// Every rank's piece to every rank.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclAllGather(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Code {
    let call = |_: &Watched| moving(Some(Collective::AllGather), count, dtype, send, recv).ok_or(STRANGE);
    // SAFETY: passed on to the caller.
    watched(comm, stream, call, || unsafe { under::onecclAllGather(send, recv, count, dtype, comm, stream) })
}

/// A piece from each rank to each.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclAllToAll(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Code {
    let call = |_: &Watched| moving(Some(Collective::AllToAll), count, dtype, send, recv).ok_or(STRANGE);
    // SAFETY: passed on to the caller.
    watched(comm, stream, call, || unsafe { under::onecclAllToAll(send, recv, count, dtype, comm, stream) })
}

/// The same with pieces of any size.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclAllToAllV(
    send: *const c_void,
    to: *const usize,
    recv: *mut c_void,
    from: *const usize,
    dtype: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Code {
    // SAFETY: passed on to the caller.
    let call = |watched: &Watched| unsafe { pieces(watched, send, to, recv, from, dtype) };
    // SAFETY: as above.
    watched(comm, stream, call, || unsafe { under::onecclAllToAllV(send, to, recv, from, dtype, comm, stream) })
}

/// What is to be watched of an all_to_all_v. Where the number of ranks isn't known it has no table, and is not left out: other
/// ranks may know the number, and all have to count alike.
///
/// # Safety
/// `to` and `from` are null or hold a number for each rank.
unsafe fn pieces(
    watched: &Watched,
    send: *const c_void,
    to: *const usize,
    recv: *mut c_void,
    from: *const usize,
    dtype: c_int,
) -> Result<Call, &'static str> {
    let call = moving(Some(Collective::AllToAllV), 0, dtype, send, recv).ok_or(STRANGE)?;
    let n = watched.seat().map(|seat| seat.n).filter(|n| *n <= MAX_RANKS && !to.is_null() && !from.is_null());
    let table = n.map(|n| {
        // SAFETY: by this function's contract.
        let (to, from) = unsafe { (std::slice::from_raw_parts(to, n), std::slice::from_raw_parts(from, n)) };
        Box::new(Table { sends: in_a_row(to, call.dtype), receives: in_a_row(from, call.dtype) })
    });
    Ok(Call { table, ..call })
}

/// Pieces of so many elements, one after the other; such as pass the end of memory are refused when they are looked at.
fn in_a_row(counts: &[usize], dtype: DataType) -> [Piece; MAX_RANKS] {
    let mut pieces = [Piece::default(); MAX_RANKS];
    let mut offset = 0u64;
    for (piece, count) in pieces.iter_mut().zip(counts) {
        let bytes = (*count as u64).saturating_mul(dtype.size() as u64);
        *piece = Piece { offset, bytes };
        offset = offset.saturating_add(bytes);
    }
    pieces
}

/// Passed on, and counted.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclSend(
    send: *const c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Code {
    // SAFETY: passed on to the caller.
    watched(comm, stream, |_| Err(MESSAGE), || unsafe { under::onecclSend(send, count, dtype, peer, comm, stream) })
}

/// Passed on, and counted.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclRecv(
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Code {
    if stream.is_null() && group::is_open() {
        let bytes = datatype(dtype).map_or(0, |dtype| count.saturating_mul(dtype.size()));
        group::receives(recv as usize, bytes);
    }
    // SAFETY: passed on to the caller.
    watched(comm, stream, |_| Err(MESSAGE), || unsafe { under::onecclRecv(recv, count, dtype, peer, comm, stream) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::watched::{Job, Kept, Seat};
    use std::time::Duration;

    /// A rank that learns its place late counts as those do that learned it in time, and compares nothing that it doesn't know.
    #[test]
    fn an_all_to_all_v_without_a_seat_takes_its_number() {
        let late = Watched::with(None, 100, Duration::from_millis(5));
        let (send, mut recv): (Vec<u32>, _) = ((0..8).map(|i| 100 + 7 * i).collect(), [0u32; 8]);
        let (counts, dtype, stream) = ([5usize, 3], DataType::Uint32 as c_int, std::ptr::null_mut());
        let (from, into) = (send.as_ptr().cast::<c_void>(), recv.as_mut_ptr().cast::<c_void>());
        for turn in 0..3 {
            // SAFETY: two counts for two ranks.
            let call =
                |watched: &Watched| unsafe { pieces(watched, from, counts.as_ptr(), into, counts.as_ptr(), dtype) };
            let run = || {
                // Its place comes to be known while the second call runs.
                (turn == 1).then(|| late.sit(Seat { rank: 1, n: 2 }));
                // SAFETY: two buffers of eight elements.
                unsafe { std::ptr::copy_nonoverlapping(from.cast::<u32>(), into.cast::<u32>(), 8) };
                SUCCESS
            };
            assert_eq!(watched_by(&late, stream, call, run), SUCCESS);
        }
        late.end_calls();
        for number in 1..=3 {
            let Some(Job::Call(kept)) = late.queue.next() else { panic!("call {number} left nothing") };
            let Kept { number: got, call, data } = *kept;
            assert_eq!((got, call.name()), (number, "all_to_all_v of uint32".into()));
            match data {
                Err(why) => assert!(number < 3 && why.contains("have not met"), "{number}: {why}"),
                Ok((input, output)) => {
                    let bytes: Vec<u8> = send.iter().flat_map(|element| element.to_ne_bytes()).collect();
                    assert_eq!((number, input, output), (3, bytes.clone(), bytes));
                }
            }
        }
    }
}
