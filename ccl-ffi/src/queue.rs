//! Calls on SYCL queues: on the caller's own device memory, and under way when they return.

use crate::call::{Call, Reduction, What};
use crate::handle::Live;
use crate::host::Step;
use ccl_core::collective::{Collective, CollectiveCall, Piece, Table};
use ccl_core::{DataType, Error, ReduceOp, Result};
use ccl_ze::{CallOptions, Completion, Stream};
use std::ffi::c_void;
use std::sync::Arc;

/// Queues of a communicator that are kept at hand; SYCL programs take theirs from a pool.
const MOST: usize = 64;

/// A communicator's queues.
#[derive(Default)]
pub(crate) struct Queues(Vec<(usize, Arc<Stream>)>);

impl Live {
    /// The stream of a queue.
    ///
    /// # Safety
    /// `queue` is a live `sycl::queue`.
    pub(crate) unsafe fn queue(&self, queue: *const c_void) -> Result<Arc<Stream>> {
        // SAFETY: passed on to the caller.
        let key = unsafe { self.comm.key_of_queue(queue)? };
        let mut queues = self.queues.lock();
        if let Some((_, stream)) = queues.0.iter().find(|(known, _)| *known == key) {
            return Ok(stream.clone());
        }
        // SAFETY: as above.
        let stream = unsafe { self.comm.stream_from_queue(queue)? };
        // No function of this library's hands a call's completion out.
        stream.forget_completions();
        if queues.0.len() == MOST {
            queues.0.remove(0);
        }
        queues.0.push((key, stream.clone()));
        Ok(stream)
    }

    /// The stream of a queue that was used before.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    pub(crate) unsafe fn known_queue(&self, queue: *const c_void) -> Option<Arc<Stream>> {
        // SAFETY: passed on to the caller.
        let key = unsafe { self.comm.key_of_queue(queue).ok()? };
        let queues = self.queues.lock();
        queues.0.iter().find(|(known, _)| *known == key).map(|(_, stream)| stream.clone())
    }

    /// Waits for what is on the queues that were used, each at most as long as a call may take.
    pub(crate) fn settle_queues(&self) -> Result<()> {
        let known: Vec<Arc<Stream>> = self.queues.lock().0.iter().map(|(_, stream)| stream.clone()).collect();
        for stream in known {
            // What is recorded is not under way.
            match stream.synchronize_for(self.wish.config.timeout) {
                Ok(true) | Err(Error::InvalidUsage(_)) => {}
                Ok(false) => {
                    let what = "work on a SYCL queue does not end".into();
                    return Err(Error::Timeout { after: self.wish.config.timeout, what });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fails where a call could not be submitted to `stream`, whatever else its group holds.
    pub(crate) fn check_submission(&self, call: &Call, stream: &Stream) -> Result<()> {
        let (count, dtype, op) = (call.count as u64, call.dtype, known(call.reduction)?);
        if call.what == What::AllReduce {
            return self.comm.check_all_reduce(&self.comm.request(count, dtype, op), call.send, call.recv, stream);
        }
        match call.collective() {
            Some((what, table)) => {
                let wanted = self.comm.collective_call(what, count, dtype, op);
                self.comm.check_collective(&wanted, table.as_deref(), call.send, call.recv, stream)
            }
            // The rest is up to what it is exchanged with.
            None => self.comm.check_stream(stream),
        }
    }

    /// The same for a whole exchange.
    pub(crate) fn check_exchange(&self, calls: &[Call], stream: &Stream) -> Result<()> {
        let Exchange { table, send, recv } = Exchange::of(calls)?;
        self.comm.check_collective(&EXCHANGE, Some(&table), send, recv, stream)
    }

    /// Submits a step whose calls have been checked, and returns; nothing of an exchange without elements.
    ///
    /// # Safety
    /// The calls' buffers hold what they say until the queue has done this, or as long as a graph that records it may be
    /// replayed.
    pub(crate) unsafe fn submit(&self, step: &Step, stream: &Stream) -> Result<Option<Completion>> {
        match step {
            // SAFETY: passed on to the caller.
            Step::One(call) => unsafe { self.submit_one(call, stream) },
            // SAFETY: as above.
            Step::Exchange(calls) => unsafe { self.submit_exchange(calls, stream) },
        }
    }

    /// # Safety
    /// As above.
    pub(crate) unsafe fn submit_one(&self, call: &Call, stream: &Stream) -> Result<Option<Completion>> {
        let (count, dtype, op) = (call.count as u64, call.dtype, known(call.reduction)?);
        if call.what == What::AllReduce {
            let request = self.comm.request(count, dtype, op);
            // SAFETY: passed on to the caller.
            return unsafe { self.comm.all_reduce_raw(&request, call.send, call.recv, stream, &[]) }.map(Some);
        }
        let Some((what, table)) = call.collective() else {
            // SAFETY: as above.
            return unsafe { self.submit_exchange(std::slice::from_ref(call), stream) };
        };
        let wanted = self.comm.collective_call(what, count, dtype, op);
        // SAFETY: as above.
        unsafe { self.submit_call(&wanted, table.as_deref(), call.send, call.recv, stream) }
    }

    /// # Safety
    /// As above; at most one call to and one from each rank.
    unsafe fn submit_exchange(&self, calls: &[Call], stream: &Stream) -> Result<Option<Completion>> {
        let Exchange { table, send, recv } = Exchange::of(calls)?;
        if table.sends.iter().chain(&table.receives).all(|piece| piece.bytes == 0) {
            // Nobody waits for what has no elements.
            return Ok(None);
        }
        // SAFETY: as above.
        unsafe { self.submit_call(&EXCHANGE, Some(&table), send, recv, stream) }
    }

    /// # Safety
    /// As above.
    unsafe fn submit_call(
        &self,
        call: &CollectiveCall,
        table: Option<&Table>,
        send: *const c_void,
        recv: *mut c_void,
        stream: &Stream,
    ) -> Result<Option<Completion>> {
        // SAFETY: passed on to the caller.
        unsafe { self.comm.collective_raw(call, table, send, recv, stream, CallOptions::default()) }.map(Some)
    }

    /// Whether a call that is outside a group can be submitted as it is: a send to this rank itself has its receive in the
    /// same group.
    pub(crate) fn stands_alone(&self, call: &Call) -> bool {
        !matches!(call.what, What::Send { to: peer } | What::Receive { from: peer } if peer == self.comm.rank())
    }
}

/// Several sends and receives in one call: bytes, whatever they are of.
const EXCHANGE: CollectiveCall = CollectiveCall::moving(Collective::Exchange, 0, DataType::Uint8);

/// What [`EXCHANGE`] moves.
struct Exchange {
    table: Table,
    send: *const c_void,
    recv: *mut c_void,
}

impl Exchange {
    /// A piece lies anywhere: each table counts from the first of its kind.
    fn of(calls: &[Call]) -> Result<Exchange> {
        let first = |of: fn(&Call) -> usize| calls.iter().map(of).filter(|at| *at != 0).min().unwrap_or(0);
        let (send, recv) = (first(|call| call.send as usize), first(|call| call.recv as usize));
        let mut table = Table::default();
        for call in calls {
            let bytes = (call.count * call.dtype.size()) as u64;
            match call.what {
                What::Send { to } => {
                    table.sends[to] = Piece { offset: (call.send as usize).wrapping_sub(send) as u64, bytes };
                }
                What::Receive { from } => {
                    table.receives[from] = Piece { offset: (call.recv as usize).wrapping_sub(recv) as u64, bytes };
                }
                _ => return Err(Error::Internal(format!("{:?} in an exchange", call.what))),
            }
        }
        Ok(Exchange { table, send: send as *const _, recv: recv as *mut _ })
    }
}

/// The reduction of a call on a stream, which nobody reads a scalar for.
pub(crate) fn known(reduction: Reduction) -> Result<ReduceOp> {
    match reduction {
        Reduction::Known(op) => Ok(op),
        Reduction::OnDevice { .. } => {
            Err(Error::NotImplemented("a scalar in device memory for a call on a stream".into()))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::group::issue_on;
    use crate::handle::handle;
    use crate::*;
    use std::ptr::null_mut;

    /// On a rank alone an all-reduce copies, and an exchange is with itself. Any stream will do for a SYCL queue.
    #[test]
    fn what_a_stream_can_not_take_is_refused_before_anything_of_its_group_is_made() {
        // SAFETY: places for results, live handles, and buffers of as many bytes, or what is to be refused.
        unsafe {
            let (mut comm, mut memory, mut id) = (null_mut(), null_mut(), std::mem::zeroed::<OnecclUniqueId>());
            assert_eq!(onecclSetDevice(1), 0);
            assert_eq!(onecclGetUniqueId(&raw mut id), 0);
            assert_eq!(onecclCommInitRank(&raw mut comm, 1, id, 0), 0);
            assert_eq!(onecclMemAlloc(&raw mut memory, 400), 0);
            let handle = handle(comm).unwrap();
            let live = handle.live().unwrap();
            let stream = Arc::new(live.comm.stream(0).unwrap());
            let at = memory.cast::<i32>();
            // The processor reaches this device's memory.
            let words = || std::slice::from_raw_parts(at, 100);
            let on_stream = |what, from: usize, to: *mut c_void| {
                let call = Call::moving(what, 10, DataType::Int32, at.add(from).cast(), to);
                issue_on(handle, |_| Ok(Some(stream.clone())), |_| Ok(call))
            };
            // Where a message to oneself comes from and goes to, its refusal if there is one, and a second one's.
            for (pieces, refused) in [
                (&[(0, 20)][..], None),
                (&[(0, 5)], Some("overlap")),
                (&[(0, 20), (30, 35)], Some("overlap")),
                (&[(0, 20), (30, 50)], None),
            ] {
                (0..100).for_each(|i| at.add(i).write(i as i32 * 3 + 1));
                assert_eq!(onecclGroupStart(), 0);
                assert_eq!(on_stream(What::AllReduce, 0, at.add(80).cast()), Ok(0));
                for &(from, to) in pieces {
                    assert_eq!(on_stream(What::Send { to: 0 }, from, null_mut()), Ok(0));
                    assert_eq!(on_stream(What::Receive { from: 0 }, 0, at.add(to).cast()), Ok(0));
                }
                let ended = onecclGroupEnd();
                stream.synchronize().unwrap();
                assert_eq!(ended, if refused.is_some() { 4 } else { 0 }, "{pieces:?}");
                if let Some(text) = refused {
                    let told = std::ffi::CStr::from_ptr(onecclGetLastError(null_mut())).to_str().unwrap();
                    assert!(told.contains(text), "{told}");
                }
                for (i, word) in words().iter().enumerate() {
                    let moved = |to: usize| i >= to && i < to + 10;
                    let by = pieces.iter().chain(&[(0, 80)]).find(|(_, to)| refused.is_none() && moved(*to));
                    let from = by.map_or(i, |(from, to)| i - to + from);
                    assert_eq!(*word, from as i32 * 3 + 1, "{pieces:?}: word {i}");
                }
            }
            // The other collectives' buffers, when the call is queued.
            assert_eq!(onecclGroupStart(), 0);
            assert_eq!(on_stream(What::AllReduce, 0, at.add(80).cast()), Ok(0));
            let told = on_stream(What::AllGather, 0, at.add(20).wrapping_byte_add(2).cast()).unwrap_err();
            assert!(told.to_string().contains("not aligned"), "{told}");
            group::fail(&told);
            assert_eq!(onecclGroupEnd(), 4);
            drop((live, stream));
            assert_eq!((onecclMemFree(memory), onecclCommDestroy(comm)), (0, 0));
        }
    }
}
