//! Calls through channels: their arguments, and tables of pieces where a rank says itself what it moves.

use super::{Executable, Kind, ZeEndpoint};
use crate::event::EventSlot;
use crate::kernels::{Family, combine_name, move_name};
use crate::memory::Allocation;
use ccl_core::Result;
use ccl_core::collective::{Collective, Pattern, Pieces, Table};
use ccl_core::plan::channel::{CHANNEL_ARGS, ChannelPlan, FLAG_PRIVATE};
use ccl_core::plan::push::Transport;
use std::sync::Arc;

/// Tables that are kept for later calls at most.
const MOST_TABLES: usize = 64;
/// Where a call's flags are among its arguments.
const FLAGS: usize = CHANNEL_ARGS.len() - 1;

impl Executable {
    /// The table that the call reads.
    #[inline]
    pub(super) fn table(&self) -> Option<&Arc<Allocation>> {
        match &self.kind {
            Kind::Channel { table, .. } => table.as_ref(),
            _ => None,
        }
    }

    /// Whether the device counts it as a collective.
    #[inline]
    pub(super) fn is_counted(&self) -> bool {
        match &self.kind {
            Kind::Ring { .. } | Kind::Push { .. } | Kind::Direct { .. } | Kind::Fused(_) => true,
            Kind::Channel { arguments, .. } => arguments[FLAGS] & u64::from(FLAG_PRIVATE) == 0,
            Kind::Mhc(_) | Kind::Copy { .. } | Kind::Empty => false,
        }
    }
}

impl ZeEndpoint {
    pub(super) fn of_pieces(&self, plan: &ChannelPlan, pieces: &Pieces<'_>, rank: usize) -> Result<Executable> {
        let call = &plan.call;
        let (family, form) = match plan.channels.transport {
            Transport::Lines(form) => (Family::Channel(form), Some(form)),
            Transport::Bulk => (Family::ChannelBulk, None),
        };
        let name = if call.what.reduces() { combine_name(call.dtype.size(), form) } else { move_name(form) };
        let kernel = self.kernel(family, &name)?;
        let (pattern, table) = match pieces {
            Pieces::Pattern(pattern) => (*pattern, None),
            Pieces::Table(table) => {
                let nothing = Pattern { sends: 0, receives: 0, send_stride: 0, recv_stride: 0, bytes: 0 };
                (nothing, Some(self.table(table)?))
            }
        };
        let first = if call.what == Collective::ReduceScatter { rank as u64 * call.count } else { 0 };
        let arguments = [
            0,
            0,
            self.state.address as u64,
            self.host.memory.address as u64,
            self.table.address as u64,
            table.as_ref().map_or(0, |table| table.address as u64),
            pattern.send_stride,
            pattern.recv_stride,
            pattern.bytes,
            call.count,
            first,
            call.op.factor(call.dtype)?,
            call.kind().into(),
            rank as u64,
            plan.n as u64,
            pattern.sends.into(),
            pattern.receives.into(),
            plan.channels.wires.into(),
            plan.channels.part.into(),
            if call.what.is_private() { FLAG_PRIVATE.into() } else { 0 },
        ];
        let groups = plan.groups(pieces);
        Ok(Executable { kind: Kind::Channel { kernel, groups, arguments: Box::new(arguments), table } })
    }

    /// Memory that the device reads, with a table in it: used before, if a call that used it is over.
    fn table(&self, table: &Table) -> Result<Arc<Allocation>> {
        let mut tables = self.tables.lock();
        let over = |entry: &(Arc<Allocation>, Arc<EventSlot>)| {
            Arc::strong_count(&entry.0) == 1 && entry.1.is_signalled().unwrap_or(false)
        };
        let memory = match tables.iter().position(over) {
            Some(free) => tables.swap_remove(free).0,
            None => Arc::new(Allocation::host(&self.gpu, size_of::<Table>())?),
        };
        // SAFETY: host memory of this size, which no call reads now.
        unsafe { memory.address.cast::<Table>().write(*table) };
        Ok(memory)
    }

    /// Keeps a call's table until `event` says that the call is over.
    #[inline(always)]
    pub(super) fn keep_table(&self, executable: &Executable, event: &Arc<EventSlot>) {
        if let Some(table) = executable.table() {
            self.keep(table, event);
        }
    }

    fn keep(&self, table: &Arc<Allocation>, event: &Arc<EventSlot>) {
        let mut tables = self.tables.lock();
        if tables.len() >= MOST_TABLES {
            tables.retain(|(_, event)| !event.is_signalled().unwrap_or(false));
        }
        tables.push((table.clone(), event.clone()));
    }
}
