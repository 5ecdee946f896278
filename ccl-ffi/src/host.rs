//! Calls on host buffers: through device memory of the communicator, and over when they return.

use crate::call::{Call, Reduction, What};
use crate::handle::Live;
use ccl_core::types::Factor;
use ccl_core::{Error, ReduceOp, Result};
use ccl_ze::{Buffer, Communicator, Completion, Stream};
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
        let mut bits = 0u64;
        let to: *mut c_void = (&raw mut bits).cast();
        // SAFETY: whoever made the reduction keeps its scalar until it is destroyed; `bits` lives until the stream is done.
        unsafe { self.stream.copy(to, at as *const c_void, dtype.size(), &[])? };
        self.stream.synchronize()?;
        Ok(ReduceOp::PreMulSum(Factor::new(dtype, bits)))
    }
}

impl Live {
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
        let (inputs, outputs, bytes) = self.layout(step)?;
        let reduction = match step {
            Step::One(call) => host.reduction(call.reduction)?,
            Step::Exchange(_) => ReduceOp::Sum,
        };
        self.refuse(step, reduction)?;
        let scratch = host.reserve(&self.comm, bytes)?;
        for piece in &inputs {
            let (to, from) = ((scratch + piece.offset) as *mut c_void, piece.host as *const c_void);
            // SAFETY: the caller's buffer and the scratch memory hold these bytes, until the stream is waited for.
            unsafe { host.stream.copy(to, from, piece.bytes, &[])? };
        }
        // SAFETY: the scratch memory holds the pieces and is locked until the call has finished.
        let completion = match unsafe { self.submit(step, reduction, scratch, &inputs, &outputs, &host.stream) } {
            Ok(completion) => completion,
            Err(error) => {
                // The copies must not outlast the caller's buffers.
                host.stream.synchronize()?;
                return Err(error);
            }
        };
        Ok(Begun { host, completion, outputs })
    }

    /// Where the pieces of a step's calls lie in the scratch memory, and how large that has to be.
    fn layout(&self, step: &Step) -> Result<(Vec<Piece>, Vec<Piece>, usize)> {
        let (n, rank) = (self.comm.world_size(), self.comm.rank());
        let mut end = 0usize;
        let mut place = |host: usize, bytes: usize| {
            let piece = Piece { host, offset: end, bytes };
            end = end.checked_add(bytes)?.checked_next_multiple_of(APART)?;
            Some(piece)
        };
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let calls = match step {
            Step::One(call) => std::slice::from_ref(call),
            Step::Exchange(calls) => calls,
        };
        for call in calls {
            let extent = call.check(n, rank)?;
            let overflow = || Error::InvalidArgument("the buffers of one step overflow the address space".into());
            let input = place(call.send as usize, extent.send).ok_or_else(overflow)?;
            // In place, as what reduces into the input's place needs no more memory.
            let output = match call.what {
                What::AllReduce => Piece { host: call.recv as usize, ..input },
                _ => place(call.recv as usize, extent.recv).ok_or_else(overflow)?,
            };
            inputs.push(input);
            outputs.push(output);
        }
        for pieces in [&mut inputs, &mut outputs] {
            pieces.retain(|piece| piece.bytes > 0);
        }
        Ok((inputs, outputs, end))
    }

    /// What can't be done is refused before anything is moved.
    fn refuse(&self, step: &Step, op: ReduceOp) -> Result<()> {
        match step {
            Step::One(Call { what: What::AllReduce, count, dtype, .. }) => {
                self.comm.plan(&self.comm.request(*count as u64, *dtype, op)).map(drop)
            }
            Step::One(call) => Err(Error::NotImplemented(format!("{:?}", call.what))),
            Step::Exchange(_) => Err(Error::NotImplemented("send and receive".into())),
        }
    }

    /// # Safety
    /// The scratch memory holds the pieces until the completion says so.
    unsafe fn submit(
        &self,
        step: &Step,
        op: ReduceOp,
        scratch: usize,
        _inputs: &[Piece],
        _outputs: &[Piece],
        stream: &Stream,
    ) -> Result<Completion> {
        match step {
            Step::One(Call { what: What::AllReduce, count, dtype, .. }) => {
                let request = self.comm.request(*count as u64, *dtype, op);
                let memory = scratch as *mut c_void;
                // SAFETY: passed on to the caller.
                unsafe { self.comm.all_reduce_raw(&request, memory, memory, stream, &[]) }
            }
            _ => Err(Error::NotImplemented("this collective".into())),
        }
    }
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
        for piece in &self.outputs {
            let (to, from) = (piece.host as *mut c_void, (scratch + piece.offset) as *const c_void);
            // Also after a failure: the output is then 0xFF bytes, which nobody takes for a result.
            // SAFETY: the caller's buffer and the scratch memory hold these bytes, until the stream is waited for.
            unsafe { self.host.stream.copy(to, from, piece.bytes, &[])? };
        }
        self.host.stream.synchronize()?;
        outcome
    }
}
