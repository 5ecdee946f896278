//! Calls on SYCL queues: submitted through the runtime, which orders them and records them as it does its own.

use super::{Completed, Executable, Kind, ZeEndpoint};
use crate::event::{EventSlot, Events, FIRST_EVENTS};
use crate::hooks;
use crate::kernel::MOST_ARGUMENTS;
use crate::module::KernelId;
use crate::stream::{Form, Stream};
use crate::sycl::{End, Event, GoneOn, Queue, Work};
use ccl_core::device::{Edges, Io};
use ccl_core::{Error, Result};
use level_zero_sys::ze_event_handle_t;
use std::mem::MaybeUninit;
use std::sync::Arc;

impl ZeEndpoint {
    /// # Safety
    /// As for [`ccl_core::device::Endpoint::submit`].
    #[inline]
    pub(super) unsafe fn on_queue(
        &self,
        stream: &Stream,
        queue: &Arc<Queue>,
        executable: &Executable,
        io: Io,
        edges: Edges<'_, ze_event_handle_t>,
    ) -> Result<Completed> {
        if !edges.after.is_empty() || edges.signal.is_some() {
            return Err(Error::NotImplemented(
                "Level Zero events for a call on a SYCL queue: order the queue itself (ext_oneapi_submit_barrier)"
                    .into(),
            ));
        }
        // SAFETY: passed on to the caller.
        unsafe { self.begin_on_queue(stream, queue, executable, io, GoneOn::No) }
    }

    /// The same without edges, for nobody to wait for.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    pub(super) unsafe fn enqueue_unheard(
        &self,
        stream: &Stream,
        executable: &Executable,
        io: Io,
    ) -> Result<Option<Completed>> {
        if let Form::OnQueue(queue) = &stream.form
            && stream.is_on(&self.gpu)
        {
            // SAFETY: passed on to the caller.
            return match unsafe { self.go_on(stream, queue, executable, io)? } {
                GoneOn::Yes => Ok(None),
                // SAFETY: as above.
                not => unsafe { self.begin_on_queue(stream, queue, executable, io, not) }.map(Some),
            };
        }
        // SAFETY: as above.
        unsafe { self.enqueue(stream, executable, io, Edges { after: &[], signal: None }) }.map(Some)
    }

    /// A call that doesn't just go on.
    ///
    /// # Safety
    /// As above.
    #[inline(never)]
    unsafe fn begin_on_queue(
        &self,
        stream: &Stream,
        queue: &Arc<Queue>,
        executable: &Executable,
        io: Io,
        gone_on: GoneOn,
    ) -> Result<Completed> {
        let recording = match gone_on {
            GoneOn::Records => Some(true),
            _ => queue.is_known_to_record(&self.gpu)?,
        };
        if recording != Some(true) {
            // SAFETY: passed on to the caller.
            let issued = unsafe { self.issue_on_queue(stream, queue, executable, io, recording.is_none())? };
            if let Some(completed) = issued {
                return Ok(completed);
            }
        }
        match queue.captured(&self.gpu)? {
            // SAFETY: as above.
            Some(list) => unsafe { self.enqueue(&list, executable, io, Edges { after: &[], signal: None }) },
            // SAFETY: as above.
            None => unsafe { self.record_on_queue(stream, queue, executable, io) },
        }
    }

    /// Issues a call that follows one of this communicator's on the same queue, if both need no event: the slot of that one
    /// then tells the end of both.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn go_on(&self, stream: &Stream, queue: &Arc<Queue>, executable: &Executable, io: Io) -> Result<GoneOn> {
        const NOT: GoneOn = GoneOn::No;
        let mut words = [const { MaybeUninit::uninit() }; MOST_ARGUMENTS];
        let Some(Launch { kernel, groups, counted, words }) = executable.launch(io, &mut words) else { return Ok(NOT) };
        let kernel = self.gpu.modules.kernel(kernel);
        let mut chain = self.gpu.chain.lock();
        let Some(slot) = chain.last_alone_on(stream.id) else { return Ok(NOT) };
        let is_own = |event: &&Event| hooks::on(self.hooks, hooks::ANYBODYS_SLOT) || event.is_counted_by(&*self.host);
        let Some(event) = slot.on_queue().filter(is_own) else { return Ok(NOT) };
        let number = if counted { self.host.next() } else { 0 };
        // SAFETY: the buffers are the caller's duty, the other arguments this endpoint's memory.
        match unsafe { kernel.go_on(&self.gpu, queue, groups, words, event, number) } {
            Ok(GoneOn::Yes) => {}
            Ok(not) => return Ok(not),
            Err(error) => {
                self.host.lost_count();
                return Err(error);
            }
        }
        if number > 0 {
            self.host.took(number);
        }
        chain.go_on();
        Ok(GoneOn::Yes)
    }

    /// With `unless_recording` nothing is issued if the queue turns out to record: `None`.
    ///
    /// # Safety
    /// As above.
    unsafe fn issue_on_queue(
        &self,
        stream: &Stream,
        queue: &Arc<Queue>,
        executable: &Executable,
        io: Io,
        unless_recording: bool,
    ) -> Result<Option<Completed>> {
        let slot = self.take_queue_event(queue)?;
        let failed = || self.host.is_aborted();
        // The lock is held over the submission: the chain's order is the order of issue.
        let mut chain = self.gpu.place(&failed)?;
        let finished = &self.gpu.finished;
        let predecessor = chain.predecessor(stream.order(), finished);
        let after = match &predecessor {
            None => None,
            Some(_) if hooks::on(self.hooks, hooks::NO_ORDER_OF_QUEUES) => None,
            Some(slot) => {
                // What is recorded waits for nothing that runs.
                let made = slot.on_queue().is_some_and(Event::is_made);
                if !made && unless_recording && queue.is_recording()? {
                    return Ok(None);
                }
                match slot.on_queue() {
                    Some(event) if event.can_be_awaited(&self.gpu)? => Some(event),
                    // The runtime can wait neither for an event of Level Zero's nor for a queue that records by now.
                    _ => self.gpu.settle_in_place(&mut chain, slot, &failed).map(|()| None)?,
                }
            }
        };
        let event = slot.on_queue().ok_or_else(|| Error::Internal("an event that is not a queue's".into()))?;
        let alone = chain.is_all_on(queue.own_key()) && stream.forgets_completions() && queue.tells_idle();
        let counted = executable.is_counted();
        let end = if alone && executable.table().is_none() {
            End::OfAll(event, if counted { self.host.next() } else { 0 })
        } else {
            End::Own(event)
        };
        // SAFETY: passed on to the caller.
        match unsafe { self.submit_to(queue, executable, io, after, end, unless_recording) } {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                self.host.lost_count();
                return Err(error);
            }
        }
        if counted {
            self.host.took_next();
        }
        self.keep_table(executable, &slot);
        chain.push_on_queue(queue.own_key());
        chain.push(stream.id, &slot, false, predecessor, finished);
        Ok(Some(Completed::Issued(slot)))
    }

    fn take_queue_event(&self, queue: &Queue) -> Result<Arc<EventSlot>> {
        let mut events = self.queue_events.lock();
        if let Some(events) = events.as_mut() {
            return events.take();
        }
        let mut made = Events::on_queues(&self.gpu, queue.bridge(), self.host.clone());
        made.grow(FIRST_EVENTS)?;
        events.insert(made).take()
    }

    /// A node of the graph that the queue records for.
    ///
    /// # Safety
    /// As above.
    unsafe fn record_on_queue(
        &self,
        stream: &Stream,
        queue: &Arc<Queue>,
        executable: &Executable,
        io: Io,
    ) -> Result<Completed> {
        // One call at a time, as for calls that are issued.
        let _chain = self.gpu.chain.lock();
        let graph = self.gpu.sycl_graphs.of(queue)?;
        let recording = graph.recording();
        let own = self.for_recording(recording, executable)?;
        let executable = own.as_ref().unwrap_or(executable);
        let (predecessor, event) = (graph.predecessor(stream.id), Arc::new(queue.event()));
        // SAFETY: passed on to the caller.
        unsafe { self.submit_to(queue, executable, io, predecessor.as_deref(), End::Own(&event), false)? };
        graph.push(stream.id, event);
        Ok(Completed::Recorded(recording.clone(), None))
    }

    /// # Safety
    /// As above.
    unsafe fn submit_to(
        &self,
        queue: &Arc<Queue>,
        executable: &Executable,
        io: Io,
        after: Option<&Event>,
        end: End<'_>,
        unless_recording: bool,
    ) -> Result<bool> {
        let launch = |kernel, groups, words: &[u64]| {
            // SAFETY: the buffers are the caller's duty, the other arguments this endpoint's memory.
            unsafe { self.gpu.modules.kernel(kernel).submit(queue, groups, words, after, end, unless_recording) }
        };
        let room = &mut [const { MaybeUninit::uninit() }; MOST_ARGUMENTS];
        match &executable.kind {
            Kind::Copy { bytes } if io.send != io.recv.cast_const() => {
                let work = Work::Copy { to: io.recv, from: io.send, bytes: *bytes };
                // SAFETY: the buffers are the caller's duty.
                unsafe { queue.submit(work, after, end, unless_recording) }
            }
            // SAFETY: it names no memory.
            Kind::Empty | Kind::Copy { .. } => unsafe { queue.submit(Work::Nothing, after, end, unless_recording) },
            Kind::Ring { kernel, groups, arguments } => launch(*kernel, *groups, put(arguments, io, room)),
            Kind::Push { kernel, groups, arguments } => launch(*kernel, *groups, put(arguments, io, room)),
            Kind::Channel { kernel, groups, arguments, .. } => launch(*kernel, *groups, put(arguments, io, room)),
            Kind::Direct { kernel, groups, arguments, .. } => launch(*kernel, *groups, put(arguments, io, room)),
            Kind::Fused(ready) => launch(ready.kernel, ready.groups, &ready.arguments),
            Kind::Mhc(ready) => launch(ready.kernel, ready.groups, &ready.arguments),
        }
    }
}

/// Room for a launch's arguments.
type Words = [MaybeUninit<u64>; MOST_ARGUMENTS];

/// A launch as it is submitted.
struct Launch<'a> {
    kernel: KernelId,
    groups: u32,
    /// Whether the device counts it as a collective.
    counted: bool,
    words: &'a [u64],
}

impl Executable {
    /// Its launch, if it is one whose arguments need nothing to be kept.
    #[inline(always)]
    fn launch<'a>(&self, io: Io, words: &'a mut Words) -> Option<Launch<'a>> {
        let launch = |&kernel: &KernelId, &groups: &u32, counted, words| Launch { kernel, groups, counted, words };
        match &self.kind {
            Kind::Push { kernel, groups, arguments } => Some(launch(kernel, groups, true, put(arguments, io, words))),
            Kind::Ring { kernel, groups, arguments } => Some(launch(kernel, groups, true, put(arguments, io, words))),
            Kind::Channel { kernel, groups, arguments, table: None } => {
                Some(launch(kernel, groups, self.is_counted(), put(arguments, io, words)))
            }
            _ => None,
        }
    }
}

/// A collective's arguments, of which the first two are the buffers, in `words`.
#[inline(always)]
fn put<'a, const N: usize>(arguments: &[u64; N], io: Io, words: &'a mut Words) -> &'a [u64] {
    const { assert!(N >= 2 && N <= MOST_ARGUMENTS) };
    // SAFETY: room for as many words, all of which are written before they are read.
    unsafe {
        let first = words.as_mut_ptr().cast::<u64>();
        first.write(io.send as u64);
        first.add(1).write(io.recv as u64);
        first.add(2).copy_from_nonoverlapping(arguments.as_ptr().add(2), N - 2);
        std::slice::from_raw_parts(first, N)
    }
}
