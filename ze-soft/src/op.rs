//! Commands: what they do, what they wait for and what they signal.

use crate::device::timestamp;
use crate::engine::cuda::{self, Home, Stream};
use crate::event::{Counter, Event, Point};
use crate::exec::Source;
use crate::graph::Executable;
use crate::kernel::BoundLaunch;
use level_zero_sys::ze_kernel_timestamp_result_t;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::sync::Arc;

/// How many waits a command holds without an allocation.
const INLINE_WAITS: usize = 3;

/// What a command does.
#[derive(Clone)]
pub(crate) enum Op {
    /// Only waits and signals.
    Nothing,
    /// A barrier.
    Barrier,
    /// Copies memory that may overlap.
    Copy { target: *mut u8, source: *const u8, size: usize },
    /// Copies a box out of an array into another.
    CopyRegion(Box<Region>),
    /// Repeats a pattern.
    Fill { target: *mut u8, size: usize, pattern: Pattern },
    /// Runs a kernel.
    Launch(BoundLaunch),
    /// Resets an event.
    Reset(Arc<Event>),
    /// Writes the device's time.
    Timestamp(*mut u64),
    /// Writes the times that events have taken, each to its own place.
    Times(Arc<[(Arc<Event>, *mut ze_kernel_timestamp_result_t)]>),
    /// Lets the nodes of a graph's replay go.
    Begin(Arc<Executable>, u64),
    /// Replays what CUDA captured.
    Replay(Arc<cuda::Graph>),
    /// Calls a function of the host.
    Call { function: unsafe extern "C" fn(*mut c_void), data: *mut c_void },
}

/// Two boxes of the same size, each in an array of its own, as rows: the places of their first bytes, and how far the next
/// row and the next slice are.
#[derive(Clone)]
pub(crate) struct Region {
    pub(crate) target: *mut u8,
    pub(crate) target_pitches: [usize; 2],
    pub(crate) source: *const u8,
    pub(crate) source_pitches: [usize; 2],
    /// Bytes, rows, slices.
    pub(crate) extent: [usize; 3],
}

impl Region {
    /// Its rows: target, source and bytes of each.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (*mut u8, *const u8, usize)> {
        let [width, rows, slices] = self.extent;
        let place =
            |[row, slice]: [usize; 2], [row_pitch, slice_pitch]: [usize; 2]| row * row_pitch + slice * slice_pitch;
        (0..slices).flat_map(move |slice| (0..rows).map(move |row| [row, slice])).map(move |at| {
            let target = self.target.wrapping_add(place(at, self.target_pitches));
            (target, self.source.wrapping_add(place(at, self.source_pitches)), width)
        })
    }
}

/// The bytes of a fill's pattern: short ones, which are the usual, need no allocation.
#[derive(Clone)]
pub(crate) enum Pattern {
    Short([u8; 16], u8),
    Long(Box<[u8]>),
}

impl Pattern {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut short = [0; 16];
        match short.get_mut(..bytes.len()) {
            Some(start) => {
                start.copy_from_slice(bytes);
                Self::Short(short, bytes.len() as u8)
            }
            None => Self::Long(bytes.into()),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes, length) => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

// SAFETY: the pointers are the program's, which by the specification keeps what they point to accessible to the device,
// whichever thread plays it, until the command has run.
unsafe impl Send for Op {}
// SAFETY: as above; running an operation is left to one thread at a time by the executor.
unsafe impl Sync for Op {}

impl Op {
    /// Runs it.
    pub(crate) fn run(&self) {
        match self {
            // A replay of CUDA's is only ever given to a stream.
            Self::Nothing | Self::Barrier | Self::Replay(_) => {}
            // SAFETY: the program promised that both ranges are accessible until the command has run.
            Self::Copy { target, source, size } => unsafe { std::ptr::copy(*source, *target, *size) },
            // SAFETY: as for a copy.
            Self::CopyRegion(region) => region.rows().for_each(|(target, source, size)| unsafe {
                std::ptr::copy(source, target, size);
            }),
            // SAFETY: as for a copy; no pattern is empty.
            Self::Fill { target, size, pattern } => unsafe { fill(*target, *size, pattern.bytes()) },
            Self::Launch(launch) => launch.run(),
            Self::Reset(event) => event.reset(),
            Self::Begin(graph, replay) => graph.begin(*replay),
            // SAFETY: the program promised eight aligned writable bytes; the alignment was checked.
            Self::Timestamp(target) => unsafe { target.write(timestamp()) },
            Self::Times(events) => events.iter().for_each(|(event, target)| {
                // SAFETY: the program promised room for a result there; it need not be aligned to more than 4 bytes.
                unsafe { target.write_unaligned(event.taken_times()) }
            }),
            // SAFETY: the program handed the function over to be called with this argument.
            Self::Call { function, data } => unsafe { function(*data) },
        }
    }
}

impl Op {
    /// Gives it to a stream: what the host has to do for it is done when this returns, the rest when the stream comes to it.
    pub(crate) fn give(&self, stream: &Stream) {
        match self {
            Self::Reset(event) => event.give_reset(stream),
            Self::Begin(graph, replay) => graph.begin(*replay),
            _ => stream.give(self),
        }
    }
}

/// Fills `size` bytes with a repeated pattern.
///
/// # Safety
/// `size` bytes at `target` must be writable, and the pattern must not be empty.
unsafe fn fill(target: *mut u8, size: usize, pattern: &[u8]) {
    if let [byte] = pattern {
        // SAFETY: the caller's promise.
        return unsafe { target.write_bytes(*byte, size) };
    }
    let mut filled = pattern.len().min(size);
    // SAFETY: `filled` is no more than either length, and the pattern is our own memory.
    unsafe { target.copy_from_nonoverlapping(pattern.as_ptr(), filled) };
    while filled < size {
        // What is filled is a multiple of the pattern, so it can itself be copied on.
        let more = filled.min(size - filled);
        // SAFETY: both halves lie within `size` bytes and don't overlap.
        unsafe { target.add(filled).copy_from_nonoverlapping(target, more) };
        filled += more;
    }
}

/// One thing that a command waits for.
#[derive(Clone)]
pub(crate) enum Wait {
    /// A regular event is signalled.
    State(Arc<Event>),
    /// A counter has come to where it stood to come when the wait was appended.
    Count(Point),
    /// As `Count`, of a recorded list's event waited for in a recorded list: where the counter must come is only known
    /// when this list is submitted, and is then entry `slot` of the run's targets.
    Late { point: Point, slot: usize },
    /// A replay of a graph is over.
    Replay(Arc<Executable>, u64),
}

impl Wait {
    /// `home` is the stream that asks, if there are streams: what was given to the same one before counts as there.
    fn blocked(&self, targets: &[u64], home: Home) -> Option<Option<Source>> {
        match self {
            Self::State(event) => (!event.is_there(home)).then(|| event.source()),
            Self::Count(point) => (!point.is_there(home)).then(|| point.source()),
            Self::Replay(graph, replay) => (!graph.reached(*replay)).then(|| graph.source(*replay)),
            Self::Late { point, slot } => {
                let target = targets.get(*slot).copied().unwrap_or_else(|| point.target());
                (!point.counter().is_there(target, home)).then(|| point.source())
            }
        }
    }
}

/// What a command waits for: a few as a rule, which need no allocation.
#[derive(Clone, Default)]
pub(crate) struct Waits(SmallVec<[Wait; INLINE_WAITS]>);

impl Waits {
    pub(crate) fn push(&mut self, wait: Wait) {
        self.0.push(wait);
    }

    /// Gives the waits that are left open their slots, from `next` on.
    pub(crate) fn number(&mut self, next: &mut usize) {
        for wait in &mut self.0 {
            if let Wait::Late { slot, .. } = wait {
                *slot = *next;
                *next += 1;
            }
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Wait> {
        self.0.iter()
    }

    /// If something isn't there yet: what will bring it, as far as that is known.
    #[inline]
    pub(crate) fn blocked(&self, targets: &[u64], home: Home) -> Option<Option<Source>> {
        self.iter().find_map(|wait| wait.blocked(targets, home))
    }
}

/// What a command signals.
pub(crate) enum Signal {
    /// A regular event.
    State(Arc<Event>),
    /// The counter of its immediate list, which the list's lane keeps and moves on when the command is off it
    /// ([`crate::exec`]); and the event, if that takes the command's times.
    Own { stamped: Option<Arc<Event>> },
    /// Any counter; and the event likewise.
    Count { counter: Arc<Counter>, stamped: Option<Arc<Event>> },
}

impl Signal {
    /// Whether the command's times are wanted.
    pub(crate) fn is_stamped(&self) -> bool {
        match self {
            Self::State(event) => event.is_stamped(),
            Self::Own { stamped } | Self::Count { stamped, .. } => stamped.is_some(),
        }
    }

    /// Signals, but for a lane's own counter. Whoever sees it sees all that the command wrote.
    pub(crate) fn deliver(&self, count: u64, times: Option<(u64, u64)>) {
        match self {
            Self::State(event) => event.signal(times),
            Self::Own { stamped } => {
                if let (Some(event), Some(times)) = (stamped, times) {
                    event.stamp(times);
                }
            }
            Self::Count { counter, stamped } => {
                if let (Some(event), Some(times)) = (stamped, times) {
                    event.stamp(times);
                }
                counter.publish(count);
            }
        }
    }

    /// Has a stream signal, once all before is done.
    pub(crate) fn give(&self, count: u64, stream: &Stream) {
        match self {
            Self::State(event) => event.give_signal(stream),
            // Lists whose executor has a stream name their counter.
            Self::Own { .. } => {}
            Self::Count { counter, stamped } => {
                if let Some(event) = stamped {
                    event.give_stamp(stream, false);
                }
                counter.give(count, stream);
            }
        }
    }

    /// Has a stream note when the command begins.
    pub(crate) fn give_start(&self, stream: &Stream) {
        match self {
            Self::State(event) | Self::Own { stamped: Some(event) } | Self::Count { stamped: Some(event), .. } => {
                event.give_stamp(stream, true);
            }
            Self::Own { stamped: None } | Self::Count { stamped: None, .. } => {}
        }
    }
}

/// A command.
pub(crate) struct Command {
    pub(crate) op: Op,
    pub(crate) waits: Waits,
    pub(crate) signal: Option<Signal>,
}

impl Command {
    /// One without anything in it.
    pub(crate) fn nothing() -> Self {
        Self { op: Op::Nothing, waits: Waits::default(), signal: None }
    }

    /// Puts something into one that is empty.
    #[inline]
    pub(crate) fn fill(&mut self, op: Op, signal: Option<Signal>, waits: Option<Waits>) {
        // Nothing is there that would have to be dropped, and to find that out takes a while.
        std::mem::forget(std::mem::replace(&mut self.op, op));
        std::mem::forget(std::mem::replace(&mut self.signal, signal));
        if let Some(waits) = waits {
            self.waits = waits;
        }
    }

    /// Lets go of all that it holds.
    #[inline]
    pub(crate) fn empty(&mut self) {
        self.op = Op::Nothing;
        if !self.waits.is_empty() {
            self.waits = Waits::default();
        }
        self.signal = None;
    }

    /// Whether it is a barrier for all that was submitted before: one with a wait list only waits for that.
    pub(crate) fn is_full_barrier(&self) -> bool {
        matches!(self.op, Op::Barrier) && self.waits.is_empty()
    }
}
