//! Calls on host buffers: through device memory of the communicator, and over when they return.

use crate::call::{Call, Reduction, What};
use crate::handle::Live;
use crate::memory;
use ccl_core::collective::{self, Collective, CollectiveCall, Table};
use ccl_core::plan::Request;
use ccl_core::types::Factor;
use ccl_core::{DataType, Error, ReduceOp, Result};
use ccl_ze::{Buffer, CallOptions, Communicator, Completion, Stream};
use parking_lot::MutexGuard;
use std::ffi::c_void;
use std::time::Duration;

/// Where one piece begins behind another, in the scratch memory.
const APART: usize = 256;

/// A communicator's way for host buffers.
pub(crate) struct HostPath {
    stream: Stream,
    scratch: Option<Buffer<u8>>,
}

/// What is begun at once.
pub(crate) enum Step {
    One(Call),
    /// At most one send to and one receive from each other rank.
    Exchange(Vec<Call>),
}

/// Bytes of host memory, and where they lie in the scratch memory.
#[derive(Clone, Copy)]
struct Piece {
    host: usize,
    offset: usize,
    bytes: usize,
}

/// Where a step's buffers lie in the scratch memory: first all input, then all output.
struct Scratch {
    inputs: Vec<Piece>,
    outputs: Vec<Piece>,
    /// Where the output begins.
    output: usize,
    bytes: usize,
}

/// What a step is to the communicator.
enum Work {
    AllReduce(Request),
    Other(CollectiveCall, Option<Box<Table>>),
}

/// A step that has begun.
pub(crate) struct Begun<'a> {
    host: MutexGuard<'a, HostPath>,
    completion: Completion,
    outputs: Vec<Piece>,
}

impl HostPath {
    pub(crate) fn new(comm: &Communicator) -> Result<HostPath> {
        Ok(HostPath { stream: comm.stream(0)?, scratch: Some(comm.alloc(0)?) })
    }

    /// Scratch memory of so many bytes.
    fn reserve(&mut self, comm: &Communicator, bytes: usize) -> Result<usize> {
        if self.scratch.as_ref().is_none_or(|scratch| scratch.len() < bytes) {
            self.scratch = Some(comm.alloc(bytes)?);
        }
        Ok(self.scratch.as_ref().map_or(0, |scratch| scratch.as_ptr() as usize))
    }

    /// The scalar that a reduction multiplies by, as it is now.
    fn reduction(&self, reduction: Reduction) -> Result<ReduceOp> {
        let (at, dtype) = match reduction {
            Reduction::Known(op) => return Ok(op),
            Reduction::OnDevice { at, dtype } => (at, dtype),
        };
        let mut bits = Box::new(0u64);
        let to: *mut c_void = (&raw mut *bits).cast();
        // SAFETY: whoever made the reduction keeps its scalar until it is destroyed; `bits` lives until the stream is done.
        let copied = unsafe { self.stream.copy(to, at as *const c_void, dtype.size(), &[]) };
        if let Err(error) = copied.and_then(|()| self.stream.synchronize()) {
            // The copy may still come.
            Box::leak(bits);
            return Err(error);
        }
        Ok(ReduceOp::PreMulSum(Factor::new(dtype, *bits)))
    }
}

impl Live {
    /// Reads the scalar of a call that is made later.
    pub(crate) fn fix_scalar(&self, call: &mut Call) -> Result<()> {
        if let Reduction::OnDevice { .. } = call.reduction {
            call.reduction = Reduction::Known(self.host.lock().reduction(call.reduction)?);
        }
        Ok(())
    }

    /// Fails if a call can't be made, whatever the other ranks do.
    pub(crate) fn check(&self, call: &Call) -> Result<()> {
        let extent = call.check(self.comm.world_size(), self.comm.rank())?;
        memory::check(call.send as usize, extent.send, self.comm.device_index())?;
        memory::check(call.recv as usize, extent.recv, self.comm.device_index())
    }

    /// Fails where a call on host buffers could not be begun, whatever else its group holds. Its scalar was read.
    pub(crate) fn check_begin(&self, call: &Call) -> Result<()> {
        let Reduction::Known(op) = call.reduction else { return Ok(()) };
        op.factor(call.dtype)?;
        match call.what {
            // What there is to plan is all of an exchange.
            What::Send { .. } | What::Receive { .. } => Ok(()),
            _ => self.one(call, op).map(drop),
        }
    }

    /// Begins a step whose calls have been checked: their input is read before this returns or soon after, their output is
    /// there when [`Begun::finish`] returns.
    ///
    /// # Safety
    /// The calls' buffers hold what they say until then.
    pub(crate) unsafe fn begin(&self, step: &Step) -> Result<Begun<'_>> {
        let mut host = self.host.lock();
        // Before anything is moved: a communicator that has failed says so.
        if let Some(error) = self.comm.fault() {
            return Err(error);
        }
        let place = self.layout(step)?;
        let reduction = match step {
            Step::One(call) => host.reduction(call.reduction)?,
            Step::Exchange(_) => ReduceOp::Sum,
        };
        // What can't be done is refused before anything is moved.
        let work = self.work(step, reduction, &place)?;
        let scratch = host.reserve(&self.comm, place.bytes)?;
        let copied = place.inputs.iter().try_for_each(|piece| {
            let (to, from) = ((scratch + piece.offset) as *mut c_void, piece.host as *const c_void);
            // SAFETY: the caller's buffer and the scratch memory hold these bytes, until the stream is waited for.
            unsafe { host.stream.copy(to, from, piece.bytes, &[]) }
        });
        let (send, recv) = (scratch as *const c_void, (scratch + place.output) as *mut c_void);
        // SAFETY: the scratch memory holds the pieces and is locked until the call has finished.
        let submitted = copied.and_then(|()| unsafe {
            match &work {
                Work::AllReduce(request) => self.comm.all_reduce_raw(request, send, recv, &host.stream, &[]),
                Work::Other(call, table) => {
                    self.comm.collective_raw(call, table.as_deref(), send, recv, &host.stream, CallOptions::default())
                }
            }
        });
        match submitted {
            Ok(completion) => Ok(Begun { host, completion, outputs: place.outputs }),
            Err(error) => {
                // The copies must not outlast the caller's buffers. Why the call failed says more than why the wait did.
                let _ = host.stream.synchronize();
                Err(error)
            }
        }
    }

    /// Copies what this rank sends itself. The ranges may overlap.
    ///
    /// # Safety
    /// Both hold `bytes` bytes.
    pub(crate) unsafe fn copy_own(&self, to: *mut c_void, from: *const c_void, bytes: usize) -> Result<()> {
        if !self.comm.has_allocated(to) && !self.comm.has_allocated(from) {
            // SAFETY: by this function's contract, and it is memory of the host.
            unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
            return Ok(());
        }
        // The processor may not reach the device's memory.
        let mut host = self.host.lock();
        let between = host.reserve(&self.comm, bytes)? as *mut c_void;
        // SAFETY: by this function's contract; the scratch memory holds as many and is locked until the stream is done.
        let copied = unsafe {
            host.stream.copy(between, from, bytes, &[]).and_then(|()| host.stream.copy(to, between, bytes, &[]))
        };
        // Also after a failure: no copy is to outlast the caller's buffers.
        copied.and(host.stream.synchronize())
    }

    /// Where the buffers of a step's calls lie in the scratch memory.
    fn layout(&self, step: &Step) -> Result<Scratch> {
        let (n, rank) = (self.comm.world_size(), self.comm.rank());
        let calls = match step {
            Step::One(call) => std::slice::from_ref(call),
            Step::Exchange(calls) => calls,
        };
        let (mut inputs, mut outputs) = (Row::default(), Row::default());
        for call in calls {
            let extent = call.check(n, rank)?;
            inputs.push(call.send as usize, extent.send)?;
            outputs.push(call.recv as usize, extent.recv)?;
        }
        // In place, as a sum needs no memory of its own.
        let output = if matches!(step, Step::One(Call { what: What::AllReduce, .. })) { 0 } else { inputs.end };
        let bytes = output.checked_add(outputs.end).ok_or_else(too_large)?.max(inputs.end);
        for piece in &mut outputs.pieces {
            piece.offset += output;
        }
        Ok(Scratch { inputs: inputs.pieces, outputs: outputs.pieces, output, bytes })
    }

    fn work(&self, step: &Step, op: ReduceOp, place: &Scratch) -> Result<Work> {
        let calls = match step {
            Step::One(call) => return self.one(call, op),
            Step::Exchange(calls) => calls,
        };
        let mut table = Box::<Table>::default();
        // Each call has one piece, and an exchange only calls with elements.
        let (mut inputs, mut outputs) = (place.inputs.iter(), place.outputs.iter());
        for call in calls {
            match call.what {
                What::Send { to } => {
                    table.sends[to] = inputs.next().map_or_else(Default::default, |piece| piece.in_row(0))
                }
                What::Receive { from } => {
                    table.receives[from] =
                        outputs.next().map_or_else(Default::default, |piece| piece.in_row(place.output));
                }
                _ => return Err(Error::Internal(format!("{:?} in an exchange", call.what))),
            }
        }
        self.planned(CollectiveCall::moving(Collective::Exchange, 0, DataType::Uint8), Some(table))
    }

    fn one(&self, call: &Call, op: ReduceOp) -> Result<Work> {
        let (count, dtype) = (call.count as u64, call.dtype);
        if call.what == What::AllReduce {
            let request = self.comm.request(count, dtype, op);
            self.comm.plan(&request)?;
            return Ok(Work::AllReduce(request));
        }
        let (what, table) =
            call.collective().ok_or_else(|| Error::Internal("a send or receive outside an exchange".into()))?;
        self.planned(self.comm.collective_call(what, count, dtype, op), table)
    }

    fn planned(&self, call: CollectiveCall, table: Option<Box<Table>>) -> Result<Work> {
        if self.comm.world_size() > 1 {
            self.comm.plan_collective(&call)?;
        }
        Ok(Work::Other(call, table))
    }
}

/// Pieces that are laid one after the other.
#[derive(Default)]
struct Row {
    pieces: Vec<Piece>,
    end: usize,
}

impl Row {
    fn push(&mut self, host: usize, bytes: usize) -> Result<()> {
        if bytes > 0 {
            self.pieces.push(Piece { host, offset: self.end, bytes });
            let end = self.end.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(APART));
            self.end = end.ok_or_else(too_large)?;
        }
        Ok(())
    }
}

impl Piece {
    /// The same in a table whose buffer begins at `start`.
    fn in_row(&self, start: usize) -> collective::Piece {
        collective::Piece { offset: (self.offset - start) as u64, bytes: self.bytes as u64 }
    }
}

fn too_large() -> Error {
    Error::InvalidArgument("the buffers of one step overflow the address space".into())
}

impl Begun<'_> {
    /// Waits for the end and stores the outputs.
    ///
    /// # Safety
    /// As for [`Live::begin`].
    pub(crate) unsafe fn finish(mut self) -> Result<()> {
        let outcome = self.completion.wait();
        if outcome.is_err() && matches!(self.completion.wait_for(Duration::ZERO), Ok(false)) {
            // It never began and may yet: its memory is given up, and nothing is to be copied behind it. The output stays
            // what it was.
            std::mem::forget(self.host.scratch.take());
            return outcome;
        }
        let scratch = self.host.scratch.as_ref().map_or(0, |scratch| scratch.as_ptr() as usize);
        // Also after a failure: the output is then 0xFF bytes, which nobody takes for a result.
        let copied = self.outputs.iter().try_for_each(|piece| {
            let (to, from) = (piece.host as *mut c_void, (scratch + piece.offset) as *const c_void);
            // SAFETY: the caller's buffer and the scratch memory hold these bytes, until the stream is waited for.
            unsafe { self.host.stream.copy(to, from, piece.bytes, &[]) }
        });
        let done = self.host.stream.synchronize();
        outcome.and(copied).and(done)
    }
}
