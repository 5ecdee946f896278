//! Streams: what an executor gives its commands to.

use super::api::*;
use super::runtime::{self, Gpu, Word};
use crate::engine::lose;
use crate::op::{Op, Pattern};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which executor's stream something was given to; the default is none.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Home(pub(crate) u16);

impl Home {
    /// Whether it is a stream at all.
    pub(crate) fn exists(self) -> bool {
        self.0 != 0
    }
}

/// Where a kernel is launched.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) stream: CUstream,
    /// Whether it begins while the kernel before it ends.
    pub(super) early: bool,
}

/// The CUDA stream of one executor.
pub(crate) struct Stream {
    pub(super) gpu: &'static Gpu,
    pub(super) handle: CUstream,
    home: Home,
    /// How many things it was given.
    issued: AtomicU64,
    /// Up to which of them a mark was given: a store of its number.
    marked: Mutex<u64>,
    /// The newest mark that the GPU came to.
    retired: Word,
}

impl Stream {
    pub(crate) fn new(device: u32, home: Home) -> Result<Self, String> {
        let gpu = runtime::get()?.gpu(device)?;
        gpu.enter()?;
        let retired = Word::new(gpu.api)?;
        Ok(Self { gpu, handle: create(gpu)?, home, issued: AtomicU64::new(0), marked: Mutex::new(0), retired })
    }

    pub(crate) fn home(&self) -> Home {
        self.home
    }

    /// Counts what was given to it so far.
    pub(crate) fn issued(&self) -> u64 {
        self.issued.load(Ordering::Acquire)
    }

    /// Whether the first `count` things are done; if so, what they wrote is seen.
    pub(crate) fn retired(&self, count: u64) -> bool {
        if self.retired.get() >= count {
            return true;
        }
        let mut marked = self.marked.lock();
        if *marked < count {
            let mark = self.issued();
            let place = self.retired.address();
            // SAFETY: a live stream and a word that is never given back. Marks grow: they are given under the lock.
            self.settle("a mark", || unsafe { self.gpu.store64(self.handle, place, mark) });
            *marked = mark;
        }
        false
    }

    /// Whether the GPU has failed at something it was given; the devices are lost then.
    pub(crate) fn has_failed(&self) -> bool {
        // SAFETY: a live stream.
        let query = || unsafe { (self.gpu.api.cuStreamQuery)(self.handle) };
        match self.gpu.enter().map(|()| query()) {
            Ok(CUDA_SUCCESS | CUDA_ERROR_NOT_READY) => false,
            Ok(code) => {
                lose(self.gpu.api.check("something that was given to the GPU", code).err().unwrap_or_default());
                true
            }
            Err(why) => {
                lose(why);
                true
            }
        }
    }

    /// Gives it an operation.
    pub(crate) fn give(&self, op: &Op) {
        // SAFETY: the program promised that what its commands reach is accessible until they are over.
        self.settle("a command", || unsafe { give(self.gpu, self.handle, op) });
    }

    /// Has it set a regular event's state, once all before is done.
    pub(crate) fn set_state(&self, place: *mut u32, value: u32) {
        // SAFETY: the state lies in its pool's memory, which the GPU was told of and which outlives the event's use.
        self.settle("a signal", || unsafe { self.gpu.store32(self.handle, place as CUdeviceptr, value) });
    }

    /// Has it bring a counter to a value, once all before is done.
    pub(crate) fn set_counter(&self, place: *mut u64, value: u64) {
        // SAFETY: counters lie in memory that the GPU was told of and that is never given back.
        self.settle("a signal", || unsafe { self.gpu.store64(self.handle, place as CUdeviceptr, value) });
    }

    /// Has it note the time.
    pub(crate) fn stamp(&self, place: *mut u64) {
        // SAFETY: as for states and counters.
        self.settle("a time stamp", || unsafe { self.gpu.stamp(self.handle, place as CUdeviceptr) });
    }

    fn settle(&self, what: &str, give: impl FnOnce() -> Result<(), String>) {
        if let Err(why) = self.gpu.enter().and_then(|()| give()) {
            lose(format!("{what} was not executed: {why}"));
        }
        self.issued.fetch_add(1, Ordering::Release);
    }
}

pub(super) fn create(gpu: &Gpu) -> Result<CUstream, String> {
    let mut handle = CUstream::NULL;
    // SAFETY: the caller made a context current; a place for the handle.
    unsafe { cuda!(gpu.api, cuStreamCreate(&raw mut handle, CU_STREAM_NON_BLOCKING)) }?;
    Ok(handle)
}

/// Gives an operation to a stream of the GPU that is current.
///
/// # Safety
/// A live stream; what the operation reaches is accessible until it is over.
pub(super) unsafe fn give(gpu: &Gpu, stream: CUstream, op: &Op) -> Result<(), String> {
    let api = gpu.api;
    match op {
        Op::Nothing | Op::Barrier => Ok(()),
        Op::Copy { size: 0, .. } | Op::Fill { size: 0, .. } => Ok(()),
        Op::Copy { target, source, size } => {
            let (target, source) = (*target as CUdeviceptr, *source as CUdeviceptr);
            // SAFETY: the caller's promise. CUDA tells by the addresses whose memory it is.
            unsafe { cuda!(api, cuMemcpyAsync(target, source, *size, stream)) }
        }
        Op::CopyRegion(region) => {
            region.rows().filter(|(_, _, size)| *size > 0).try_for_each(|(target, source, size)| {
                // SAFETY: as for a copy.
                unsafe { cuda!(api, cuMemcpyAsync(target as CUdeviceptr, source as CUdeviceptr, size, stream)) }
            })
        }
        // SAFETY: the caller's promise.
        Op::Fill { target, size, pattern } => unsafe { fill(gpu, stream, *target as CUdeviceptr, *size, pattern) },
        Op::Launch(launch) => launch.give(Target { gpu, stream, early: false }),
        Op::Timestamp(target) => {
            // SAFETY: the caller's promise; the alignment was checked.
            unsafe { gpu.stamp(stream, *target as CUdeviceptr) }
        }
        // SAFETY: the program handed the function over to be called with this argument.
        Op::Call { function, data } => unsafe { cuda!(api, cuLaunchHostFunc(stream, *function, *data)) },
        Op::Replay(graph) => graph.launch(stream),
        Op::Reset(_) | Op::Begin(..) | Op::Times(_) => Err("an operation of the executor's own".to_owned()),
    }
}

/// Repeats a pattern: those of 1, 2 and 4 bytes at once, others by copying what is filled.
unsafe fn fill(gpu: &Gpu, stream: CUstream, to: CUdeviceptr, size: usize, pattern: &Pattern) -> Result<(), String> {
    let api = gpu.api;
    // SAFETY: the caller's promise, for all of the calls below.
    unsafe {
        match *pattern.bytes() {
            [byte] => return cuda!(api, cuMemsetD8Async(to, byte, size, stream)),
            [a, b] if size.is_multiple_of(2) && to.is_multiple_of(2) => {
                return cuda!(api, cuMemsetD16Async(to, u16::from_ne_bytes([a, b]), size / 2, stream));
            }
            [a, b, c, d] if size.is_multiple_of(4) && to.is_multiple_of(4) => {
                return cuda!(api, cuMemsetD32Async(to, u32::from_ne_bytes([a, b, c, d]), size / 4, stream));
            }
            _ => {}
        }
        let mut filled = pattern.bytes().len().min(size);
        for (offset, byte) in (0..).zip(&pattern.bytes()[..filled]) {
            cuda!(api, cuMemsetD8Async(to + offset, *byte, 1, stream))?;
        }
        while filled < size {
            // What is filled is a multiple of the pattern, so it can itself be copied on.
            let more = filled.min(size - filled);
            cuda!(api, cuMemcpyAsync(to + filled as u64, to, more, stream))?;
            filled += more;
        }
    }
    Ok(())
}
