//! Calls on SYCL queues: on the caller's own device memory, and under way when they return.

use crate::call::{Call, Reduction, What};
use crate::handle::Live;
use crate::host::Step;
use ccl_core::collective::{Collective, CollectiveCall, Piece, Table};
use ccl_core::{DataType, Error, Result};
use ccl_ze::{CallOptions, Stream};
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

    /// Submits a step whose calls have been checked, and returns.
    ///
    /// # Safety
    /// The calls' buffers hold what they say until the queue has done this, or as long as a graph that records it may be
    /// replayed.
    pub(crate) unsafe fn submit(&self, step: &Step, stream: &Stream) -> Result<()> {
        match step {
            // SAFETY: passed on to the caller.
            Step::One(call) => unsafe { self.submit_one(call, stream) },
            // SAFETY: as above.
            Step::Exchange(calls) => unsafe { self.submit_exchange(calls, stream) },
        }
    }

    /// # Safety
    /// As above.
    pub(crate) unsafe fn submit_one(&self, call: &Call, stream: &Stream) -> Result<()> {
        let (count, dtype) = (call.count as u64, call.dtype);
        let Reduction::Known(op) = call.reduction else {
            return Err(Error::NotImplemented("a scalar in device memory for a call on a stream".into()));
        };
        if call.what == What::AllReduce {
            let request = self.comm.request(count, dtype, op);
            // SAFETY: passed on to the caller.
            return unsafe { self.comm.all_reduce_raw(&request, call.send, call.recv, stream, &[]) }.map(drop);
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
    unsafe fn submit_exchange(&self, calls: &[Call], stream: &Stream) -> Result<()> {
        // A piece lies anywhere: each table counts from the first of its kind.
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
        if table.sends.iter().chain(&table.receives).all(|piece| piece.bytes == 0) {
            // Nobody waits for what has no elements.
            return Ok(());
        }
        let exchange = CollectiveCall::moving(Collective::Exchange, 0, DataType::Uint8);
        // SAFETY: as above.
        unsafe { self.submit_call(&exchange, Some(&table), send as *const _, recv as *mut _, stream) }
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
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.comm.collective_raw(call, table, send, recv, stream, CallOptions::default()) }.map(drop)
    }

    /// Whether a call that is outside a group can be submitted as it is: a send to this rank itself has its receive in the
    /// same group.
    pub(crate) fn stands_alone(&self, call: &Call) -> bool {
        !matches!(call.what, What::Send { to: peer } | What::Receive { from: peer } if peer == self.comm.rank())
    }
}
