//! Events.
//!
//! A regular event is a cell of its pool's memory, which other processes may have mapped. A counter-based event holds
//! no state of its own: it names a point of the counter of the in-order list that was last told to signal it. One that
//! no list was told to signal counts as complete, as in Intel's driver.

mod aim;
mod counter;
mod entry_counted;
mod entry_regular;
mod given;
mod pool;
mod shared;

pub(crate) use counter::{Counter, Epoch, Point};

use crate::engine::cuda::{self, Home, Stream};
use crate::error::fail;
use crate::exec::{self, Source, SourceCell};
use crate::graph::Mark;
use crate::handle::{self, Object};
use aim::Aim;
use given::{Given, GivenCell};
use level_zero_sys::*;
use pool::{Cell, Pool};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SCOPES: u32 = ZE_EVENT_SCOPE_FLAG_SUBDEVICE | ZE_EVENT_SCOPE_FLAG_DEVICE | ZE_EVENT_SCOPE_FLAG_HOST;

/// Start and end of a command on the devices' clock.
#[derive(Default)]
struct Stamps {
    start: AtomicU64,
    end: AtomicU64,
}

/// An event.
pub(crate) struct Event {
    kind: EventKind,
    signal_scope: ze_event_scope_flags_t,
    wait_scope: ze_event_scope_flags_t,
    stamped: bool,
    /// The handle of its pool, null for none.
    pool: usize,
    /// The capture that recorded its newest signal.
    captured: Mark,
}

enum EventKind {
    Regular {
        cell: NonNull<Cell>,
        /// What will have signalled it, if that was appended in this process.
        source: SourceCell,
        /// What a stream was told to do to it last.
        given: GivenCell,
        /// Keeps `cell` mapped.
        _memory: Arc<Pool>,
    },
    Counted {
        flags: ze_event_counter_based_flags_t,
        point: Aim,
        stamps: Stamps,
        /// Where a GPU notes the times instead.
        pinned: Option<Arc<Counter>>,
        opened: bool,
    },
}

// SAFETY: `cell` points to atomics in memory that `_memory` keeps mapped; all else is sharable.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Object for Event {
    const MAGIC: u64 = 0x5a45_534f_4556_5431;
}

impl Event {
    fn cell(&self) -> Option<&Cell> {
        match &self.kind {
            // SAFETY: the pool found the cell inside its mapping, which `_memory` keeps.
            EventKind::Regular { cell, .. } => Some(unsafe { cell.as_ref() }),
            EventKind::Counted { .. } => None,
        }
    }

    /// Whether it is signalled, or counter-based and complete; if so, all that was written before is seen.
    pub(crate) fn is_signalled(&self) -> bool {
        match &self.kind {
            EventKind::Regular { .. } => self.cell().is_some_and(Cell::is_signalled),
            EventKind::Counted { point, .. } => point.is_reached(),
        }
    }

    /// [`Self::is_signalled`] and [`Self::source`] at once.
    pub(crate) fn look(&self) -> (bool, Option<Source>) {
        match &self.kind {
            EventKind::Regular { .. } => (self.is_signalled(), self.source()),
            EventKind::Counted { point, .. } => point.look(),
        }
    }

    /// What will have signalled it, as far as that is known.
    pub(crate) fn source(&self) -> Option<Source> {
        match &self.kind {
            EventKind::Regular { source, .. } => source.get(),
            EventKind::Counted { point, .. } => point.source(),
        }
    }

    /// Whether a command of `home` that waits for a regular event may go: it is signalled, or the same stream was told to
    /// signal it before.
    pub(crate) fn is_there(&self, home: Home) -> bool {
        let EventKind::Regular { given, .. } = &self.kind else { return self.is_signalled() };
        match given.get() {
            Given::Nothing => self.is_signalled(),
            Given::Signal(by) => by == home || self.is_signalled(),
            // Until the stream has come to the reset, the state is an old one.
            Given::Reset(by, at) => exec::retired(by, at) && self.is_signalled(),
        }
    }

    /// Has a stream signal a regular event, as a command's last act.
    pub(crate) fn give_signal(&self, stream: &Stream) {
        self.give_stamp(stream, false);
        if let (EventKind::Regular { given, .. }, Some(cell)) = (&self.kind, self.cell()) {
            stream.set_state(cell.state(), 1);
            given.set(Given::Signal(stream.home()));
        }
    }

    /// Has a stream reset a regular event.
    pub(crate) fn give_reset(&self, stream: &Stream) {
        if let (EventKind::Regular { given, .. }, Some(cell)) = (&self.kind, self.cell()) {
            stream.set_state(cell.state(), 0);
            given.set(Given::Reset(stream.home(), stream.issued()));
        }
    }

    /// Has a stream note the time, if the event takes times.
    pub(crate) fn give_stamp(&self, stream: &Stream, start: bool) {
        if !self.stamped {
            return;
        }
        if let Some(stamps) = self.stamps() {
            stream.stamp(if start { stamps.start.as_ptr() } else { stamps.end.as_ptr() });
        }
    }

    fn stamps(&self) -> Option<&Stamps> {
        match &self.kind {
            EventKind::Counted { pinned: Some(counter), .. } => Some(counter.stamps()),
            EventKind::Counted { stamps, .. } => Some(stamps),
            EventKind::Regular { .. } => self.cell().map(|cell| &cell.stamps),
        }
    }

    /// Notes what will have signalled a regular event.
    pub(crate) fn expect(&self, expected: Option<Source>) {
        if let EventKind::Regular { source, .. } = &self.kind {
            source.set(expected);
        }
    }

    /// Whether it takes a command's times.
    pub(crate) fn is_stamped(&self) -> bool {
        self.stamped
    }

    /// Takes a command's times.
    pub(crate) fn stamp(&self, (start, end): (u64, u64)) {
        let Some(stamps) = self.stamps() else { return };
        // The signal that follows publishes them.
        stamps.start.store(start, Ordering::Relaxed);
        stamps.end.store(end, Ordering::Relaxed);
    }

    /// Signals a regular event, as a command's last act.
    pub(crate) fn signal(&self, times: Option<(u64, u64)>) {
        if let Some(times) = times {
            self.stamp(times);
        }
        if let Some(cell) = self.cell() {
            cell.set();
        }
        self.forget_given();
    }

    /// From here on the state says all.
    fn forget_given(&self) {
        if let EventKind::Regular { given, .. } = &self.kind {
            given.set(Given::Nothing);
        }
    }

    /// Resets a regular event.
    pub(crate) fn reset(&self) {
        if let Some(cell) = self.cell() {
            cell.clear();
        }
        self.forget_given();
    }

    /// The flags of a counter-based event.
    pub(crate) fn counted(&self) -> Option<ze_event_counter_based_flags_t> {
        match &self.kind {
            EventKind::Regular { .. } => None,
            EventKind::Counted { flags, .. } => Some(*flags),
        }
    }

    /// The capture that recorded its newest signal.
    pub(crate) fn captured(&self) -> &Mark {
        &self.captured
    }

    /// Whether it means nothing outside a graph that records it: a counter-based event, unless it was created for use
    /// across a graph's border.
    pub(crate) fn is_graph_internal(&self) -> bool {
        self.counted().is_some_and(|flags| flags & ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL == 0)
    }

    /// Refuses a counter-based event that an active recording has for itself.
    pub(crate) fn check_usable(&self) -> Result<(), ze_result_t> {
        if self.is_graph_internal() && self.captured.session().is_some() {
            let text = "this counter-based event belongs to a recording that is not over";
            return Err(fail(ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT, text));
        }
        Ok(())
    }

    /// Refuses to let the host wait for what is only recorded.
    fn check_waitable(&self) -> Result<(), ze_result_t> {
        if self.captured.session().is_some() {
            let text = "a recorded command signals this event: it comes with a replay, so it can't be waited for now";
            return Err(fail(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED, text));
        }
        Ok(())
    }

    /// What a counter-based event stands for now.
    pub(crate) fn point(&self) -> Option<Point> {
        match &self.kind {
            EventKind::Regular { .. } => None,
            EventKind::Counted { point, .. } => point.point(),
        }
    }

    /// Makes a counter-based event stand for something else.
    pub(crate) fn aim(&self, at: Point) {
        if let EventKind::Counted { point, .. } = &self.kind {
            point.set(at);
        }
    }

    /// The same for a count that a counter comes to.
    pub(crate) fn aim_at(&self, counter: &Arc<Counter>, count: u64, source: Option<Source>) {
        if let EventKind::Counted { point, .. } = &self.kind {
            point.set_count(counter, count, source);
        }
    }

    fn regular(pool: &Arc<Pool>, owner: usize, desc: &ze_event_desc_t) -> Result<Self, ze_result_t> {
        let cell = pool.claim(desc.index)?;
        Ok(Self {
            kind: EventKind::Regular {
                cell,
                source: SourceCell::default(),
                given: GivenCell::default(),
                _memory: pool.clone(),
            },
            signal_scope: desc.signal,
            wait_scope: desc.wait,
            stamped: pool.is_stamped(),
            pool: owner,
            captured: Mark::default(),
        })
    }

    fn new_counted(
        flags: ze_event_counter_based_flags_t,
        scopes: (ze_event_scope_flags_t, ze_event_scope_flags_t),
        opened: Option<Option<Point>>,
        pool: usize,
    ) -> Result<Self, ze_result_t> {
        let stamped =
            flags & (ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP | ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP) != 0;
        let is_opened = opened.is_some();
        let pinned = (stamped && cuda::runs()).then(Counter::new).transpose()?;
        Ok(Self {
            kind: EventKind::Counted {
                flags,
                point: Aim::new(opened.flatten()),
                stamps: Stamps::default(),
                pinned,
                opened: is_opened,
            },
            signal_scope: scopes.0,
            wait_scope: scopes.1,
            stamped,
            pool,
            captured: Mark::default(),
        })
    }

    /// The times that it has taken, whether or not it is signalled: zeros before it ever was.
    pub(crate) fn taken_times(&self) -> ze_kernel_timestamp_result_t {
        let times = self.stamps().map_or_else(Default::default, |stamps| ze_kernel_timestamp_data_t {
            kernelStart: stamps.start.load(Ordering::Relaxed),
            kernelEnd: stamps.end.load(Ordering::Relaxed),
        });
        ze_kernel_timestamp_result_t { global: times, context: times }
    }

    /// The times of the command that signalled it.
    fn times(&self) -> Result<ze_kernel_timestamp_data_t, ze_result_t> {
        if !self.stamped {
            return Err(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
        }
        if !self.is_signalled() {
            return Err(ZE_RESULT_NOT_READY);
        }
        let stamps = self.stamps().ok_or(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT)?;
        Ok(ze_kernel_timestamp_data_t {
            kernelStart: stamps.start.load(Ordering::Relaxed),
            kernelEnd: stamps.end.load(Ordering::Relaxed),
        })
    }
}

/// The event of a handle that must be one.
pub(crate) fn get<'a>(event: ze_event_handle_t) -> Result<&'a Arc<Event>, ze_result_t> {
    handle::get::<Event, _>(event).map_err(|error| match error {
        ZE_RESULT_ERROR_UNINITIALIZED => ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
        error => error,
    })
}

/// The address of this module's entry point called `name`.
pub(crate) fn resolve(name: &[u8]) -> Option<*const c_void> {
    entry_regular::resolve(name).or_else(|| entry_counted::resolve(name)).or_else(|| pool::resolve(name))
}
