//! The collectives besides all-reduce, and sends and receives.

use super::{CallOptions, Communicator};
use crate::buffer::{Buffer, Element};
use crate::completion::Completion;
use crate::stream::Stream;
use ccl_core::collective::{Collective, CollectiveCall, Piece, Table};
use ccl_core::config::Check;
use ccl_core::device::{Edges, Io};
use ccl_core::plan::channel::ChannelPlan;
use ccl_core::protocol::MAX_RANKS;
use ccl_core::{Error, ReduceOp, Result};
use std::ffi::c_void;

impl Communicator {
    /// `recv` = every rank's `send`, one after the other.
    pub fn all_gather<T: Element>(
        &self,
        send: &Buffer<T>,
        recv: &mut Buffer<T>,
        stream: &Stream,
    ) -> Result<Completion> {
        self.lengths("all_gather", (recv.len(), "receive"), (send.len(), self.world_size()))?;
        self.both(Collective::AllGather, send.len(), None, send, recv, stream)
    }

    /// The same where this rank's part of `buffer` is its input.
    pub fn all_gather_in_place<T: Element>(&self, buffer: &mut Buffer<T>, stream: &Stream) -> Result<Completion> {
        let count = self.share("all_gather", buffer.len())?;
        let own = buffer.as_ptr().wrapping_add(self.rank() * count).cast();
        self.on(Collective::AllGather, count, None, buffer, own, buffer.address(), stream)
    }

    /// `recv` = this rank's part of what an all-reduce would make of `send`, to the bit.
    pub fn reduce_scatter<T: Element>(
        &self,
        send: &Buffer<T>,
        recv: &mut Buffer<T>,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<Completion> {
        self.lengths("reduce_scatter", (send.len(), "send"), (recv.len(), self.world_size()))?;
        self.both(Collective::ReduceScatter, recv.len(), Some(op), send, recv, stream)
    }

    /// The same with the result in this rank's part of `buffer`; its other parts are only read.
    pub fn reduce_scatter_in_place<T: Element>(
        &self,
        buffer: &mut Buffer<T>,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<Completion> {
        let count = self.share("reduce_scatter", buffer.len())?;
        let own = buffer.as_ptr().wrapping_add(self.rank() * count).cast();
        self.on(Collective::ReduceScatter, count, Some(op), buffer, buffer.address(), own, stream)
    }

    /// `buffer` = that of `root`.
    pub fn broadcast<T: Element>(&self, buffer: &mut Buffer<T>, root: usize, stream: &Stream) -> Result<Completion> {
        let at = buffer.address();
        self.on(Collective::Broadcast { root }, buffer.len(), None, buffer, at, at, stream)
    }

    /// `recv` of `root` = op over ranks of `send`, with the bits of an all-reduce. The others' isn't used.
    pub fn reduce<T: Element>(
        &self,
        send: &Buffer<T>,
        recv: &mut Buffer<T>,
        op: ReduceOp,
        root: usize,
        stream: &Stream,
    ) -> Result<Completion> {
        if self.rank() == root {
            self.lengths("reduce", (recv.len(), "receive"), (send.len(), 1))?;
        }
        self.both(Collective::Reduce { root }, send.len(), Some(op), send, recv, stream)
    }

    /// The same with the result in the input's place.
    pub fn reduce_in_place<T: Element>(
        &self,
        buffer: &mut Buffer<T>,
        op: ReduceOp,
        root: usize,
        stream: &Stream,
    ) -> Result<Completion> {
        let at = buffer.address();
        self.on(Collective::Reduce { root }, buffer.len(), Some(op), buffer, at, at, stream)
    }

    /// `recv` = this rank's part of `send` of `root`. The others' `send` isn't used.
    pub fn scatter<T: Element>(
        &self,
        send: &Buffer<T>,
        recv: &mut Buffer<T>,
        root: usize,
        stream: &Stream,
    ) -> Result<Completion> {
        if self.rank() == root {
            self.lengths("scatter", (send.len(), "send"), (recv.len(), self.world_size()))?;
        }
        self.both(Collective::Scatter { root }, recv.len(), None, send, recv, stream)
    }

    /// `recv` of `root` = every rank's `send`, one after the other. The others' `recv` isn't used.
    pub fn gather<T: Element>(
        &self,
        send: &Buffer<T>,
        recv: &mut Buffer<T>,
        root: usize,
        stream: &Stream,
    ) -> Result<Completion> {
        if self.rank() == root {
            self.lengths("gather", (recv.len(), "receive"), (send.len(), self.world_size()))?;
        }
        self.both(Collective::Gather { root }, send.len(), None, send, recv, stream)
    }

    /// Part r of `recv` = this rank's part of `send` of rank r.
    pub fn all_to_all<T: Element>(
        &self,
        send: &Buffer<T>,
        recv: &mut Buffer<T>,
        stream: &Stream,
    ) -> Result<Completion> {
        self.lengths("all_to_all", (recv.len(), "receive"), (send.len(), 1))?;
        let count = self.share("all_to_all", send.len())?;
        self.both(Collective::AllToAll, count, None, send, recv, stream)
    }

    /// The same with parts of any size, one after the other: `send_counts[r]` elements go to rank r and `recv_counts[r]`
    /// come from it, which has to send as many.
    pub fn all_to_all_v<T: Element>(
        &self,
        send: &Buffer<T>,
        send_counts: &[usize],
        recv: &mut Buffer<T>,
        recv_counts: &[usize],
        stream: &Stream,
    ) -> Result<Completion> {
        let sides = [("send", send_counts, send.len()), ("receive", recv_counts, recv.len())];
        let [sends, receives] = sides.map(|(name, counts, len)| self.pieces(name, counts, len, size_of::<T>()));
        let table = Table { sends: sends?, receives: receives? };
        send.check_gpu(&self.gpu, "send")?;
        recv.check_gpu(&self.gpu, "receive")?;
        let call = CollectiveCall::moving(Collective::AllToAllV, 0, T::DATATYPE);
        // SAFETY: the buffers hold the pieces, and keep their memory until the call has finished.
        let done = unsafe {
            self.collective_raw(&call, Some(&table), send.address(), recv.address(), stream, CallOptions::default())?
        };
        send.used_by(done.device());
        recv.used_by(done.device());
        Ok(done)
    }

    /// Sends `buffer` to one rank, which has to receive as much. The other ranks have no part in it.
    ///
    /// It may wait, in the stream's order, until the other has received. Two ranks that each send before they receive may
    /// so wait for each other: an exchange does both at once.
    pub fn send<T: Element>(&self, buffer: &Buffer<T>, to: usize, stream: &Stream) -> Result<Completion> {
        buffer.check_gpu(&self.gpu, "send")?;
        let call = CollectiveCall::moving(Collective::Send { to }, buffer.len() as u64, T::DATATYPE);
        let nowhere = std::ptr::null_mut();
        // SAFETY: the buffer has that many elements, and keeps its memory until the call has finished.
        let done =
            unsafe { self.collective_raw(&call, None, buffer.address(), nowhere, stream, CallOptions::default())? };
        buffer.used_by(done.device());
        Ok(done)
    }

    /// Receives `buffer` from one rank; the other side of [`Self::send`].
    pub fn receive<T: Element>(&self, buffer: &mut Buffer<T>, from: usize, stream: &Stream) -> Result<Completion> {
        self.on(Collective::Receive { from }, buffer.len(), None, buffer, std::ptr::null(), buffer.address(), stream)
    }

    /// No data: what follows on `stream` begins after all ranks have come here in their streams.
    pub fn barrier(&self, stream: &Stream) -> Result<Completion> {
        let call = CollectiveCall::moving(Collective::Barrier, 0, ccl_core::DataType::Uint8);
        let nowhere = std::ptr::null_mut();
        // SAFETY: no memory is used.
        unsafe { self.collective_raw(&call, None, nowhere, nowhere, stream, CallOptions::default()) }
    }

    /// Any of them on raw device addresses, with all options. In place is where this rank's own piece lies where it goes;
    /// otherwise the buffers must not overlap. A table is for [`Collective::AllToAllV`] and [`Collective::Exchange`], and
    /// only read now.
    ///
    /// # Safety
    /// `send` and `recv` must hold what this rank sends and receives until the completion says so, or as long as what
    /// records the stream may be replayed; the events must be live, of the device's context.
    pub unsafe fn collective_raw(
        &self,
        call: &CollectiveCall,
        table: Option<&Table>,
        send: *const c_void,
        recv: *mut c_void,
        stream: &Stream,
        options: CallOptions<'_>,
    ) -> Result<Completion> {
        let io = Io { send, recv };
        if self.config.check != Check::Off {
            self.check_pieces(call, table, io)?;
        }
        let edges = Edges { after: options.after, signal: options.signal };
        // SAFETY: passed on to the caller.
        let completion = unsafe { self.core.collective(call, table, io, stream, edges) }.map(Completion::of_call)?;
        if let Some(saving) = self.saving() {
            saving.leave_out(call);
        }
        Ok(completion)
    }

    /// A call in the configured order.
    pub fn collective_call(
        &self,
        what: Collective,
        count: u64,
        dtype: ccl_core::DataType,
        op: ReduceOp,
    ) -> CollectiveCall {
        CollectiveCall { what, count, dtype, op, order: self.config.order }
    }

    /// The plan of such a call among several ranks; it prints as one line.
    pub fn plan_collective(&self, call: &CollectiveCall) -> Result<ChannelPlan> {
        self.core.plan_collective(call)
    }

    fn both<T: Element>(
        &self,
        what: Collective,
        count: usize,
        op: Option<ReduceOp>,
        send: &Buffer<T>,
        recv: &mut Buffer<T>,
        stream: &Stream,
    ) -> Result<Completion> {
        send.check_gpu(&self.gpu, "send")?;
        let done = self.on(what, count, op, recv, send.address(), recv.address(), stream)?;
        send.used_by(done.device());
        Ok(done)
    }

    #[expect(clippy::too_many_arguments, reason = "what a call takes")]
    fn on<T: Element>(
        &self,
        what: Collective,
        count: usize,
        op: Option<ReduceOp>,
        buffer: &Buffer<T>,
        send: *const c_void,
        recv: *mut c_void,
        stream: &Stream,
    ) -> Result<Completion> {
        buffer.check_gpu(&self.gpu, "receive")?;
        let call = self.collective_call(what, count as u64, T::DATATYPE, op.unwrap_or(ReduceOp::Sum));
        // SAFETY: the buffers were found to have that many elements, and keep their memory until the call has finished.
        let done = unsafe { self.collective_raw(&call, None, send, recv, stream, CallOptions::default())? };
        buffer.used_by(done.device());
        Ok(done)
    }

    fn lengths(&self, name: &str, (whole, of): (usize, &str), (part, times): (usize, usize)) -> Result<()> {
        if part.checked_mul(times) == Some(whole) {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "{name}: the {of} buffer has {whole} elements; it takes {times} times {part}"
        )))
    }

    /// Elements of each rank's part.
    fn share(&self, name: &str, len: usize) -> Result<usize> {
        let n = self.world_size();
        if len.is_multiple_of(n) {
            return Ok(len / n);
        }
        Err(Error::InvalidArgument(format!("{name}: {len} elements are not {n} equal parts")))
    }

    fn pieces(&self, name: &str, counts: &[usize], len: usize, size: usize) -> Result<[Piece; MAX_RANKS]> {
        let n = self.world_size();
        if counts.len() != n {
            return Err(Error::InvalidArgument(format!("{} {name} counts of {n} ranks", counts.len())));
        }
        let mut pieces = [Piece::default(); MAX_RANKS];
        let mut first = 0usize;
        for (piece, &count) in pieces.iter_mut().zip(counts) {
            let end = first.checked_add(count).filter(|&end| end <= len).ok_or_else(|| {
                Error::InvalidArgument(format!("the {name} counts exceed the {len} elements of the {name} buffer"))
            })?;
            *piece = Piece { offset: (first * size) as u64, bytes: (count * size) as u64 };
            first = end;
        }
        Ok(pieces)
    }
}
