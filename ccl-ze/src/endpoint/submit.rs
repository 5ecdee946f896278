//! A call is issued, or recorded: what it waits for and what it signals.

use super::{Completed, Executable, Kind, ZeEndpoint};
use crate::api::{runs_all_the_same, ze};
use crate::capture;
use crate::event::{EventSlot, with_one_more};
use crate::hooks;
use crate::module::KernelId;
use crate::recording::Recording;
use crate::stream::{Form, Stream};
use ccl_core::Result;
use ccl_core::device::{Edges, Io};
use level_zero_sys::*;
use qcell::QCellOwner;
use std::sync::Arc;

impl ZeEndpoint {
    /// # Safety
    /// As for [`ccl_core::device::Endpoint::submit`].
    pub(super) unsafe fn enqueue(
        &self,
        stream: &Stream,
        executable: &Executable,
        io: Io,
        edges: Edges<'_, ze_event_handle_t>,
    ) -> Result<Completed> {
        stream.check_device(&self.gpu)?;
        if let Form::OnQueue(queue) = &stream.form {
            // SAFETY: passed on to the caller.
            return unsafe { self.on_queue(stream, queue, executable, io, edges) };
        }
        let after = if hooks::on(self.hooks, hooks::NO_WAITS) { &[] } else { edges.after };
        // SAFETY: passed on to the caller.
        match unsafe { capture::enter(stream, after)? } {
            // SAFETY: as above.
            (Some(recording), after) => unsafe {
                self.record(&recording, stream, executable, io, Edges { after, ..edges })
            },
            // SAFETY: as above.
            (None, after) => unsafe { self.issue(stream, executable, io, Edges { after, ..edges }) },
        }
    }

    /// # Safety
    /// As above.
    unsafe fn issue(
        &self,
        stream: &Stream,
        executable: &Executable,
        io: Io,
        edges: Edges<'_, ze_event_handle_t>,
    ) -> Result<Completed> {
        let in_order = stream.order().is_some();
        let failed = || self.host.is_aborted();
        // The lock is held over the append: the chain's order is the order of issue.
        let mut chain = self.gpu.place(&failed)?;
        let predecessor = self.gpu.predecessor_of_list(&mut chain, stream.order(), &failed)?;
        // Only lists that are in order can signal counter-based events.
        let events = if in_order { &self.events } else { &self.loose_events };
        let event = chain.turn.rw(events).take()?;
        if !edges.after.is_empty() || predecessor.as_ref().is_some_and(|event| !event.is_bounded()) {
            stream.mark_foreign();
        }
        let appended = with_one_more(edges.after, predecessor.as_ref(), |waits| {
            let turn = &mut chain.turn;
            // SAFETY: buffers and events are the caller's duty; the predecessor lives while the chain knows it.
            unsafe { self.append_with_signals(turn, stream, executable, io, Some(&event), edges.signal, waits) }
        });
        let signalled = match appended {
            Ok(signalled) => signalled,
            Err(error) => {
                // What a driver that fails has done isn't known.
                self.host.lost_count();
                event.give_back();
                return Err(error);
            }
        };
        // The call runs, and has its turn, whatever became of its second signal.
        if executable.is_counted() {
            self.host.took_next();
        }
        self.keep_table(executable, &event);
        chain.push(stream.id, &event, signalled.is_ok() && !stream.is_foreign(), predecessor, &self.gpu.finished);
        signalled.map(|()| Completed::Issued(event))
    }

    /// In a recording everything is made anew and belongs to it: what a replay signals must not be handed to anybody else.
    ///
    /// # Safety
    /// As above.
    unsafe fn record(
        &self,
        recording: &Arc<Recording>,
        stream: &Stream,
        executable: &Executable,
        io: Io,
        edges: Edges<'_, ze_event_handle_t>,
    ) -> Result<Completed> {
        let gpu = &self.gpu;
        let in_order = stream.order().is_some();
        let event = match () {
            () if hooks::on(self.hooks, hooks::STALE_EVENT) => Some(EventSlot::stale(gpu)?),
            // A regular event would still be signalled by the replay before, and whoever waits for it would not wait.
            () if in_order && self.counter => Some(EventSlot::counter(gpu, false)?),
            () => None,
        };
        // One call at a time, as the chain does it for calls that are issued.
        let mut chain = gpu.chain.lock();
        let predecessor = recording.predecessor(stream.id)?;
        let own = self.for_recording(recording, executable)?;
        let executable = own.as_ref().unwrap_or(executable);
        // Without an order of its own, barriers give the list one around the call.
        if !in_order {
            self.barrier(stream)?;
        }
        let signalled = with_one_more(edges.after, predecessor.as_ref(), |waits| {
            let turn = &mut chain.turn;
            // SAFETY: buffers and events are the caller's duty; the predecessor lives as long as the recording.
            unsafe { self.append_with_signals(turn, stream, executable, io, event.as_ref(), edges.signal, waits) }
        })?;
        // The call is in the recording, whatever comes behind it.
        if !self.counter {
            recording.keep_to_regular();
        }
        recording.push(stream.id, event.as_ref());
        let ended = if in_order { Ok(()) } else { self.barrier(stream).map_err(runs_all_the_same) };
        signalled.and(ended).map(|()| Completed::Recorded(recording.clone(), event))
    }

    /// Appends the call, which signals ours and the caller's event, as far as there are any. An error if it was not
    /// appended; else what became of the second signal, of two.
    ///
    /// # Safety
    /// As above.
    #[expect(clippy::too_many_arguments, reason = "what a call takes")]
    unsafe fn append_with_signals(
        &self,
        turn: &mut QCellOwner,
        stream: &Stream,
        executable: &Executable,
        io: Io,
        own: Option<&Arc<EventSlot>>,
        signal: Option<ze_event_handle_t>,
        waits: &[ze_event_handle_t],
    ) -> Result<Result<()>> {
        let none = std::ptr::null_mut();
        let mut own = match own {
            Some(_) if hooks::on(self.hooks, hooks::NO_SIGNAL) => none,
            Some(event) => event.handle,
            None => none,
        };
        let in_order = stream.order().is_some();
        let (first, second) = match signal {
            None => (own, none),
            // The caller's first: one that the driver doesn't take is refused with the call.
            Some(signal) if in_order || own.is_null() => (signal, own),
            // But it may be signalled already: without an order only ours tells when the call is over.
            Some(signal) => (own, signal),
        };
        // SAFETY: passed on to the caller.
        unsafe { self.append(turn, stream, executable, io, first, waits)? };
        if second.is_null() {
            return Ok(Ok(()));
        }
        let (api, list) = (&*self.gpu.api, stream.list());
        let _guard = stream.lock.lock();
        // SAFETY: live list and events; the wait list is only read.
        let signalled = unsafe {
            match in_order {
                true => ze!(api, zeCommandListAppendSignalEvent(list, second)),
                false => ze!(api, zeCommandListAppendBarrier(list, second, 1, &raw mut own)),
            }
        };
        Ok(signalled.map_err(runs_all_the_same))
    }

    /// Appends what a plan comes to: one call of the driver, or as many more as [`Kernel::launch`] needs.
    ///
    /// # Safety
    /// As for [`Endpoint::submit`].
    unsafe fn append(
        &self,
        turn: &mut QCellOwner,
        stream: &Stream,
        executable: &Executable,
        io: Io,
        signal: ze_event_handle_t,
        after: &[ze_event_handle_t],
    ) -> Result<()> {
        let api = &*self.gpu.api;
        let (waits, wait_list) = (after.len() as u32, after.as_ptr().cast_mut());
        let list = stream.list();
        let _guard = stream.lock.lock();
        let first = [io.send as u64, io.recv as u64];
        let kernel = |kernel: &KernelId| self.gpu.modules.kernel(*kernel);
        match &executable.kind {
            // SAFETY: buffers and events are the caller's duty; the wait list is only read.
            Kind::Copy { bytes } if io.send != io.recv.cast_const() => unsafe {
                ze!(api, zeCommandListAppendMemoryCopy(list, io.recv, io.send, *bytes, signal, waits, wait_list))
            },
            // SAFETY: live list and events.
            Kind::Empty | Kind::Copy { .. } => unsafe {
                ze!(api, zeCommandListAppendBarrier(list, signal, waits, wait_list))
            },
            // SAFETY: buffers and events are the caller's duty, the other arguments this endpoint's memory.
            Kind::Ring { kernel: id, groups, arguments } => unsafe {
                kernel(id).launch(turn, list, *groups, first, arguments, signal, after)
            },
            // SAFETY: as above.
            Kind::Push { kernel: id, groups, arguments } => unsafe {
                kernel(id).launch(turn, list, *groups, first, arguments, signal, after)
            },
            // SAFETY: as above; the table is kept until the call has finished.
            Kind::Channel { kernel: id, groups, arguments, .. } => unsafe {
                kernel(id).launch(turn, list, *groups, first, arguments, signal, after)
            },
            // SAFETY: as above; the other ranks' buffers stay registered while the executable is in use.
            Kind::Direct { kernel: id, groups, arguments, .. } => unsafe {
                kernel(id).launch(turn, list, *groups, first, arguments, signal, after)
            },
            // SAFETY: as above; the buffers are among its arguments.
            Kind::Fused(launch) => unsafe {
                let (arguments, groups) = (&launch.arguments, launch.groups);
                let first = [arguments[0], arguments[1]];
                kernel(&launch.kernel).launch(turn, list, groups, first, arguments, signal, after)
            },
            // SAFETY: as above; its launch keeps the memory that work-groups share.
            Kind::Mhc(launch) => unsafe {
                let (arguments, groups) = (&launch.arguments, launch.groups);
                let first = [arguments[0], arguments[1]];
                kernel(&launch.kernel).launch(turn, list, groups, first, arguments, signal, after)
            },
        }
    }

    fn barrier(&self, stream: &Stream) -> Result<()> {
        let none = std::ptr::null_mut();
        let _guard = stream.lock.lock();
        // SAFETY: a live list and no events.
        unsafe { ze!(self.gpu.api, zeCommandListAppendBarrier(stream.list(), none, 0, std::ptr::null_mut())) }
    }
}
