//! What calls are refused for before anything is enqueued, for callers that make several calls or none.

use super::Communicator;
use crate::bounds;
use crate::stream::Stream;
use ccl_core::Result;
use ccl_core::collective::{CollectiveCall, Table};
use ccl_core::config::Check;
use ccl_core::device::Io;
use ccl_core::plan::Request;
use std::ffi::c_void;

impl Communicator {
    /// Fails if `stream` is not of this communicator's device.
    pub fn check_stream(&self, stream: &Stream) -> Result<()> {
        stream.check_device(&self.gpu)
    }

    /// Fails where [`Self::all_reduce_raw`] would before it enqueues anything, with the same error: a communicator that has
    /// failed, a stream of another device, buffers that no call can have, what can't be planned. What only the driver can tell
    /// (a stream that records, and may not) shows when the call is made.
    pub fn check_all_reduce(
        &self,
        request: &Request,
        send: *const c_void,
        recv: *mut c_void,
        stream: &Stream,
    ) -> Result<()> {
        self.check_stream(stream)?;
        self.core.check(request, Io { send, recv })?;
        match self.config.check {
            Check::Off => Ok(()),
            _ => bounds::buffers(&self.gpu, request, send, recv),
        }
    }

    /// The same for [`Self::collective_raw`].
    pub fn check_collective(
        &self,
        call: &CollectiveCall,
        table: Option<&Table>,
        send: *const c_void,
        recv: *mut c_void,
        stream: &Stream,
    ) -> Result<()> {
        self.check_stream(stream)?;
        let io = Io { send, recv };
        match self.config.check {
            Check::Off => self.core.check_collective(call, table, io).map(drop)?,
            // Which looks at the same first.
            _ => self.check_pieces(call, table, io)?,
        }
        // A rank alone, and a call without elements, are not planned.
        call.op.factor(call.dtype)?;
        if self.world_size() > 1 { self.plan_collective(call).map(drop) } else { Ok(()) }
    }

    /// What `CCLX_CHECK=local` adds to an all-reduce.
    #[cold]
    pub(super) fn check_memory(&self, request: &Request, io: Io) -> Result<()> {
        // A communicator that has failed says so, without another look at anything.
        self.core.check_call(request, io)?;
        bounds::buffers(&self.gpu, request, io.send, io.recv)
    }

    /// What it adds to another collective.
    #[cold]
    pub(super) fn check_pieces(&self, call: &CollectiveCall, table: Option<&Table>, io: Io) -> Result<()> {
        let pieces = self.core.check_collective(call, table, io)?;
        let Some(table) = table else {
            let (sent, received) = pieces.extents()?;
            return bounds::ranges(&self.gpu, [("send", io.send, sent), ("receive", io.recv, received)]);
        };
        // Its pieces may lie in several allocations.
        table.sends.iter().zip(&table.receives).try_for_each(|(sent, received)| {
            let send = io.send.wrapping_byte_add(sent.offset as usize);
            let recv = io.recv.wrapping_byte_add(received.offset as usize).cast_const();
            bounds::ranges(&self.gpu, [("send", send, sent.bytes), ("receive", recv, received.bytes)])
        })
    }
}
