//! Recorded graphs as CUDA graphs: their nodes are captured once, and a replay is one launch.

use super::api::*;
use super::runtime::Gpu;
use super::stream::{self, Stream, Target};
use crate::op::Op;
use parking_lot::Mutex;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A CUDA graph, ready to be launched on its stream.
pub(crate) struct Graph {
    stream: Arc<Stream>,
    executable: CUgraphExec,
    /// Where the stream stood behind the newest launch.
    last: AtomicU64,
}

/// What no program uses any more and a stream still does.
static GARBAGE: Mutex<Vec<(Arc<Stream>, CUgraphExec, u64)>> = Mutex::new(Vec::new());

/// A stream that captures; given back whatever happens.
struct Capture {
    gpu: &'static Gpu,
    stream: CUstream,
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SAFETY: created for this capture alone.
        unsafe { (self.gpu.api.cuStreamDestroy)(self.stream) };
    }
}

impl Capture {
    /// Makes what follows depend on just these nodes.
    fn depend(&self, on: &mut [CUgraphNode]) -> Result<(), String> {
        let (nodes, count) = (if on.is_empty() { null_mut() } else { on.as_mut_ptr() }, on.len());
        // SAFETY: a capturing stream and nodes of its graph.
        unsafe {
            cuda!(
                self.gpu.api,
                cuStreamUpdateCaptureDependencies(self.stream, nodes, count, CU_STREAM_SET_CAPTURE_DEPENDENCIES)
            )
        }
    }

    /// What would follow depends on.
    fn dependencies(&self) -> Result<Vec<CUgraphNode>, String> {
        let (mut status, mut id, mut graph) = (0, 0, CUgraph::NULL);
        let (mut nodes, mut count) = (std::ptr::null(), 0);
        // SAFETY: a capturing stream, and places for the answers.
        unsafe {
            cuda!(
                self.gpu.api,
                cuStreamGetCaptureInfo(
                    self.stream,
                    &raw mut status,
                    &raw mut id,
                    &raw mut graph,
                    &raw mut nodes,
                    &raw mut count
                )
            )?;
        }
        if nodes.is_null() || count == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the library's array of that many, valid until the next call on the stream.
        Ok(unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec())
    }

    /// Captures operations, each behind those that it names by their numbers, all of them lower.
    fn record<'a>(&self, operations: impl Iterator<Item = (&'a Op, Vec<usize>)>) -> Result<(), String> {
        let mut ends: Vec<Vec<CUgraphNode>> = Vec::new();
        // Kernels that say when the next one may begin, all of which wait for all that is before.
        let mut heralds: Vec<CUgraphNode> = Vec::new();
        for (op, after) in operations {
            let mut before: Vec<CUgraphNode> = Vec::new();
            for node in after.iter().flat_map(|&number| &ends[number]) {
                if !before.contains(node) {
                    before.push(*node);
                }
            }
            if matches!(op, Op::Nothing | Op::Barrier) {
                ends.push(before);
                continue;
            }
            self.depend(&mut before)?;
            let begins_early = matches!(op, Op::Launch(launch) if launch.begins_early());
            if let (Op::Launch(launch), true) = (op, begins_early) {
                let early = matches!(before[..], [node] if heralds.contains(&node));
                launch.give(Target { gpu: self.gpu, stream: self.stream, early })?;
            } else {
                // SAFETY: a capturing stream: nothing is reached before the graph is launched, which is the program's doing.
                unsafe { stream::give(self.gpu, self.stream, op) }?;
            }
            let end = self.dependencies()?;
            // A launch of no groups leaves no node.
            if begins_early && end != before {
                heralds.extend(&end);
            }
            ends.push(end);
        }
        // All that was captured is joined in the end.
        let mut all: Vec<CUgraphNode> = Vec::new();
        for node in ends.into_iter().flatten() {
            if !all.contains(&node) {
                all.push(node);
            }
        }
        self.depend(&mut all)
    }
}

impl Graph {
    /// Whether an operation can be part of one.
    pub(crate) fn takes(op: &Op) -> bool {
        match op {
            Op::Nothing | Op::Barrier | Op::Copy { .. } | Op::CopyRegion(_) | Op::Fill { .. } | Op::Launch(_) => true,
            Op::Call { .. } | Op::Timestamp(_) => true,
            Op::Reset(_) | Op::Begin(..) | Op::Replay(_) | Op::Times(_) => false,
        }
    }

    /// A graph of operations, each behind those that it names by their numbers, all of them lower.
    pub(crate) fn new<'a>(
        stream: &Arc<Stream>,
        operations: impl Iterator<Item = (&'a Op, Vec<usize>)>,
    ) -> Result<Self, String> {
        sweep();
        let gpu = stream.gpu;
        gpu.enter()?;
        let capture = Capture { gpu, stream: stream::create(gpu)? };
        // SAFETY: a new stream.
        unsafe { cuda!(gpu.api, cuStreamBeginCapture(capture.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) }?;
        let recorded = capture.record(operations);
        let (mut graph, mut executable) = (CUgraph::NULL, CUgraphExec::NULL);
        // SAFETY: a capturing stream, and a place for the graph.
        let ended = unsafe { cuda!(gpu.api, cuStreamEndCapture(capture.stream, &raw mut graph)) };
        recorded.and(ended)?;
        // SAFETY: the graph that was captured, destroyed once, when the executable is made; a place for that.
        unsafe {
            let made = cuda!(gpu.api, cuGraphInstantiate(&raw mut executable, graph, 0));
            (gpu.api.cuGraphDestroy)(graph);
            made?;
        }
        Ok(Self { stream: stream.clone(), executable, last: AtomicU64::new(0) })
    }

    pub(super) fn launch(&self, stream: CUstream) -> Result<(), String> {
        // SAFETY: both live; launches of one graph follow each other on one stream.
        unsafe { cuda!(self.stream.gpu.api, cuGraphLaunch(self.executable, stream)) }?;
        self.last.store(self.stream.issued() + 1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        GARBAGE.lock().push((self.stream.clone(), self.executable, self.last.load(Ordering::Relaxed)));
        sweep();
    }
}

/// Destroys what has run for the last time.
fn sweep() {
    GARBAGE.lock().retain(|(stream, executable, last)| {
        if !stream.retired(*last) || stream.gpu.enter().is_err() {
            return true;
        }
        // SAFETY: nobody can launch it any more, and its launches are over.
        unsafe { (stream.gpu.api.cuGraphExecDestroy)(*executable) };
        false
    });
}
