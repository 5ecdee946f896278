//! The collectives besides all-reduce.

use super::{Communicator, Completion};
use crate::collective::{Collective, CollectiveCall, Pieces, Table};
use crate::device::{Device, Edges, Endpoint, Io};
use crate::error::{Error, Result};
use crate::plan::Request;
use crate::plan::channel::ChannelPlan;

impl<D: Device> Communicator<D> {
    /// The plan by which a collective goes among several ranks.
    pub fn plan_collective(&self, call: &CollectiveCall) -> Result<ChannelPlan> {
        ChannelPlan::new(call, &self.shared.info.agreed, &self.shared.config)
    }

    /// What every collective is refused for before anything is enqueued: a communicator that has failed, buffers and pieces
    /// that no call can have. Returns what this rank moves.
    pub fn check_collective<'a>(&self, call: &CollectiveCall, table: Option<&'a Table>, io: Io) -> Result<Pieces<'a>> {
        self.shared.health.check()?;
        let (n, rank) = (self.world_size(), self.shared.rank);
        let pattern = call.pattern(n, rank)?;
        let pieces = match (call.what.by_table(), table) {
            (true, Some(table)) => Pieces::Table(table),
            (false, None) => Pieces::Pattern(pattern),
            _ => return Err(Error::Internal(format!("{} with or without a table", call.what))),
        };
        pieces.check(call, n, rank, io)?;
        Ok(pieces)
    }

    /// Appends a collective to `stream` and returns. It runs in the stream's order and that of `edges`. `table` is for those
    /// collectives that go by one, and is only read now.
    ///
    /// Nothing is enqueued when an error is returned, unless that says so.
    ///
    /// # Safety
    /// `io` must hold the pieces that this rank sends and receives, valid until the completion says so, or as long as what
    /// records the stream may be replayed; the events of `edges` must be live.
    pub unsafe fn collective(
        &self,
        call: &CollectiveCall,
        table: Option<&Table>,
        io: Io,
        stream: &<D::Endpoint as Endpoint>::Stream,
        edges: Edges<'_, <D::Endpoint as Endpoint>::Event>,
    ) -> Result<Completion<D>> {
        let pieces = self.check_collective(call, table, io)?;
        let shared = &*self.shared;
        if self.world_size() == 1 {
            // SAFETY: passed on to the caller.
            return unsafe { self.alone(call, &pieces, io, stream, edges) };
        }
        // One lock around plan, number and append: two threads that issue on one communicator get one order.
        let mut issue = shared.issue.lock();
        // It may have failed while the other one's call was waited for.
        shared.health.check()?;
        let make = || {
            let nothing = call.count == 0 && table.is_none() && call.what != Collective::Barrier;
            if nothing {
                call.op.factor(call.dtype)?;
                return Ok(shared.endpoint.prepare_copy(0));
            }
            shared.endpoint.prepare_pieces(&self.plan_collective(call)?, &pieces, shared.rank)
        };
        let own;
        let executable = match table {
            None => issue.collectives.get_or_make(call, make)?,
            // A table is the call's own.
            Some(_) => {
                own = make()?;
                &own
            }
        };
        // SAFETY: passed on to the caller.
        let inner = unsafe { shared.endpoint.submit(stream, executable, io, edges) };
        let inner = inner.map_err(|error| shared.health.why(error))?;
        Ok(Completion::new(inner, shared.health.clone()))
    }

    /// A rank alone: a copy, or what an all-reduce makes of it.
    ///
    /// # Safety
    /// As for [`Self::collective`].
    unsafe fn alone(
        &self,
        call: &CollectiveCall,
        pieces: &Pieces<'_>,
        io: Io,
        stream: &<D::Endpoint as Endpoint>::Stream,
        edges: Edges<'_, <D::Endpoint as Endpoint>::Event>,
    ) -> Result<Completion<D>> {
        let CollectiveCall { what, count, dtype, op, order } = *call;
        if what.reduces() {
            let request = Request { count, dtype, op, order, period: None, registered: None };
            // SAFETY: both buffers hold `count` elements: there is one piece.
            return unsafe { self.all_reduce(&request, io, stream, edges) };
        }
        let shared = &*self.shared;
        let (from, to) = (pieces.send(0).unwrap_or_default(), pieces.receive(0).unwrap_or_default());
        let executable = shared.endpoint.prepare_copy(from.bytes);
        let io = Io {
            send: io.send.wrapping_byte_add(from.offset as usize),
            recv: io.recv.wrapping_byte_add(to.offset as usize),
        };
        let _issue = shared.issue.lock();
        shared.health.check()?;
        // SAFETY: passed on to the caller; the piece lies in both buffers.
        let inner = unsafe { shared.endpoint.submit(stream, &executable, io, edges) };
        let inner = inner.map_err(|error| shared.health.why(error))?;
        Ok(Completion::new(inner, shared.health.clone()))
    }
}
