//! Counters of in-order lists, which counter-based events refer to.
//!
//! All counters of a process lie in a few memfds, so that any of them can be shared without a descriptor each. A
//! counter only grows, also when its place goes to another list: who waits for a value it has passed is not held up.

use super::Stamps;
use super::shared::{IpcHandle, Kind, Shared};
use crate::engine::cuda::{Home, Stream};
use crate::exec::{Source, SourceCell};
use level_zero_sys::{ZE_RESULT_ERROR_INVALID_ARGUMENT, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, ze_result_t};
use parking_lot::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Counters of different lists are written by different threads: each has a cache line.
const STRIDE: usize = 64;
const PER_CHUNK: usize = 1024;
const CHUNK_BYTES: usize = STRIDE * PER_CHUNK;

struct Chunk {
    memory: Arc<Shared>,
    /// Free places, and the value that each comes to when all is done that a stream was given.
    free: Vec<(usize, u64)>,
}

/// They are never taken off.
static CHUNKS: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());

/// A counter.
pub(crate) struct Counter {
    cell: NonNull<AtomicU64>,
    memory: Arc<Shared>,
    /// The counter's place in its memory; its chunk takes it back, unless it is another process's.
    offset: usize,
    chunk: Option<usize>,
    /// What it stood at when this list got it: counts are relative to that.
    start: u64,
    /// To which count a stream was told to bring it, and which stream.
    given: AtomicU64,
    giver: AtomicU16,
}

// SAFETY: the cell is an atomic in memory that `memory` keeps mapped.
unsafe impl Send for Counter {}
// SAFETY: as above.
unsafe impl Sync for Counter {}

impl Counter {
    /// A counter for a list.
    pub(crate) fn new() -> Result<Arc<Self>, ze_result_t> {
        let mut chunks = CHUNKS.lock();
        if chunks.iter().all(|chunk| chunk.free.is_empty()) {
            let memory = Arc::new(Shared::create(CHUNK_BYTES)?);
            chunks.push(Chunk { memory, free: (0..PER_CHUNK).rev().map(|index| (index * STRIDE, 0)).collect() });
        }
        let place = chunks.iter_mut().enumerate().find_map(|(index, chunk)| {
            let (offset, value) = chunk.free.pop()?;
            Some((index, offset, value, chunk.memory.clone()))
        });
        let (chunk, offset, value, memory) = place.ok_or(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        let cell = memory.at::<AtomicU64>(offset).ok_or(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        let mut counter = Self::at(cell, memory, offset, Some(chunk));
        counter.start = counter.cell().load(Ordering::Relaxed).max(value);
        Ok(Arc::new(counter))
    }

    fn at(cell: NonNull<AtomicU64>, memory: Arc<Shared>, offset: usize, chunk: Option<usize>) -> Self {
        let (given, giver) = (AtomicU64::new(0), AtomicU16::new(0));
        Self { cell, memory, offset, chunk, start: 0, given, giver }
    }

    fn cell(&self) -> &AtomicU64 {
        // SAFETY: `cell` was found inside the mapping that `memory` keeps, aligned for an atomic.
        unsafe { self.cell.as_ref() }
    }

    /// Whether the counter has come to `count`; if so, all that was written before it did is seen.
    pub(crate) fn reached(&self, count: u64) -> bool {
        self.cell().load(Ordering::Acquire) >= self.start + count
    }

    /// Whether a command of `home` that waits for `count` may go: it is reached, or the same stream was told to bring it
    /// about before.
    pub(crate) fn is_there(&self, count: u64, home: Home) -> bool {
        self.reached(count)
            || home.exists()
                && self.giver.load(Ordering::Acquire) == home.0
                && self.given.load(Ordering::Acquire) >= count
    }

    /// Has a stream bring the counter to `count`. It is always the same stream: that of its list.
    pub(crate) fn give(&self, count: u64, stream: &Stream) {
        stream.set_counter(self.cell.as_ptr().cast(), self.start + count);
        self.giver.store(stream.home().0, Ordering::Release);
        self.given.fetch_max(count, Ordering::Release);
    }

    /// Times beside the counter, where a GPU can note them.
    pub(super) fn stamps(&self) -> &Stamps {
        const { assert!(size_of::<AtomicU64>() + size_of::<Stamps>() <= STRIDE) };
        // SAFETY: behind the cell there is room in its stride, which is all atomics, valid whatever they hold.
        unsafe { self.cell.add(1).cast::<Stamps>().as_ref() }
    }

    /// Brings the counter to `count`, as the last act of a command.
    pub(crate) fn publish(&self, count: u64) {
        self.cell().fetch_max(self.start + count, Ordering::Release);
    }

    /// The same where nobody else moves the counter, which is not there yet.
    pub(crate) fn advance(&self, count: u64) {
        self.cell().store(self.start + count, Ordering::Release);
    }

    /// The counter's word, if that stays mapped for good: the memory of this process's own counters does.
    pub(super) fn lasting(&self) -> Option<&AtomicU64> {
        self.chunk.map(|_| self.cell())
    }

    /// The value that stands for `count`, and where the counter lies.
    pub(super) fn place(&self, count: u64) -> (u64, u64) {
        (self.start + count, self.cell.as_ptr() as u64)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(index) = self.chunk
            && let Some(chunk) = CHUNKS.lock().get_mut(index)
        {
            chunk.free.push((self.offset, self.start + self.given.load(Ordering::Relaxed)));
        }
    }
}

/// The executions of one recording of a regular list, as far as its counter is concerned: each moves it on by the
/// number of the list's commands.
#[derive(Default)]
pub(crate) struct Epoch {
    base: u64,
    /// Number of commands, once the list is closed.
    length: AtomicU64,
    /// Number of submitted executions.
    runs: AtomicU64,
    /// What will have run the latest.
    source: SourceCell,
}

impl Epoch {
    /// The epoch after this one, whose executions count on from those submitted so far.
    pub(crate) fn next(&self) -> Self {
        let base = self.base + self.runs.load(Ordering::Relaxed) * self.length.load(Ordering::Relaxed);
        Self { base, ..Self::default() }
    }

    pub(crate) fn close(&self, length: usize) {
        self.length.store(length as u64, Ordering::Relaxed);
    }

    /// Notes a submission, and says which one it is, from 1.
    pub(crate) fn run(&self) -> u64 {
        self.runs.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn submitted(&self, source: Option<Source>) {
        self.source.set(source);
    }

    /// Where the counter stands when execution `run` has done the command at `at`.
    pub(crate) fn count(&self, run: u64, at: usize) -> u64 {
        self.base + run.saturating_sub(1) * self.length.load(Ordering::Relaxed) + at as u64 + 1
    }
}

/// What a counter-based event stands for: that a counter comes to a value.
#[derive(Clone)]
pub(crate) struct Point {
    counter: Arc<Counter>,
    target: Target,
}

#[derive(Clone)]
enum Target {
    Count(u64, Option<Source>),
    /// The command at this place of a recorded list, in the list's latest execution.
    Recorded(Arc<Epoch>, usize),
}

impl Point {
    /// The counter comes to `count`.
    pub(crate) fn at(counter: Arc<Counter>, count: u64, source: Option<Source>) -> Self {
        Self { counter, target: Target::Count(count, source) }
    }

    /// A recorded list does the command at `index`.
    pub(crate) fn recorded(counter: Arc<Counter>, epoch: Arc<Epoch>, index: usize) -> Self {
        Self { counter, target: Target::Recorded(epoch, index) }
    }

    /// Makes it mean another count of the same counter, if it is one of this counter.
    pub(super) fn move_to(&mut self, counter: &Arc<Counter>, count: u64, source: Option<Source>) -> bool {
        let same = Arc::ptr_eq(&self.counter, counter) && !self.is_recorded();
        if same {
            self.target = Target::Count(count, source);
        }
        same
    }

    pub(crate) fn counter(&self) -> &Arc<Counter> {
        &self.counter
    }

    /// The count that this means now.
    pub(crate) fn target(&self) -> u64 {
        match &self.target {
            Target::Count(count, _) => *count,
            Target::Recorded(epoch, index) => epoch.count(epoch.runs.load(Ordering::Relaxed), *index),
        }
    }

    /// Whether it may come to mean something else.
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.target, Target::Recorded(..))
    }

    /// What it means now, for good.
    pub(crate) fn settled(self) -> Self {
        let (count, source) = (self.target(), self.source());
        Self::at(self.counter, count, source)
    }

    pub(crate) fn reached(&self) -> bool {
        self.counter.reached(self.target())
    }

    /// As [`Counter::is_there`].
    pub(crate) fn is_there(&self, home: Home) -> bool {
        self.counter.is_there(self.target(), home)
    }

    pub(crate) fn source(&self) -> Option<Source> {
        match &self.target {
            Target::Count(_, source) => *source,
            Target::Recorded(epoch, _) => epoch.source.get(),
        }
    }

    /// A handle with which another process sees the point as it is now.
    pub(super) fn export(&self) -> Result<IpcHandle, ze_result_t> {
        let mut handle = self.counter.memory.handle(Kind::Counted)?;
        handle.words = [self.counter.offset as u64, self.counter.place(self.target()).0, 0];
        Ok(handle)
    }

    /// The point of a handle.
    pub(super) fn import(handle: &IpcHandle) -> Result<Self, ze_result_t> {
        let [offset, target, _] = handle.words;
        let offset = usize::try_from(offset).map_err(|_| ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        let memory = Arc::new(Shared::open(handle, CHUNK_BYTES)?);
        let cell = memory.at::<AtomicU64>(offset).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        Ok(Self::at(Arc::new(Counter::at(cell, memory, offset, None)), target, None))
    }
}
