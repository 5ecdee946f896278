//! SYCL graphs that are being recorded: the order of their collectives, and what they need.

use super::bridge::Bridge;
use super::event::Event;
use super::queue::Queue;
use crate::recording::Recording;
use ccl_core::Result;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

/// Graphs that are kept in mind for one device; who records more at a time, each on several queues, loses the order
/// between their collectives.
const MOST: usize = 8;

/// A device's graphs that are being recorded.
#[derive(Default)]
pub(crate) struct Recordings(Mutex<Vec<Arc<GraphRecording>>>);

/// One of them.
pub(crate) struct GraphRecording {
    graph: Graph,
    recording: Arc<Recording>,
    last: Mutex<Option<Last>>,
}

/// The collective that was recorded last.
struct Last {
    stream: u64,
    event: Arc<Event>,
}

impl Recordings {
    /// The recording of the graph that `queue` records for, begun now if this is the first to ask.
    ///
    /// Nothing tells when such a graph is gone, so what its calls use stays for ever.
    pub(crate) fn of(&self, queue: &Queue) -> Result<Arc<GraphRecording>> {
        let mut known = self.0.lock();
        for (index, one) in known.iter().enumerate() {
            if one.graph.is_of(queue)? {
                // The latest ones last.
                let one = known.remove(index);
                known.push(one.clone());
                return Ok(one);
            }
        }
        let recording = Recording::new();
        std::mem::forget(recording.clone());
        let made = Arc::new(GraphRecording { graph: Graph::of(queue)?, recording, last: Mutex::default() });
        if known.len() == MOST {
            known.remove(0);
        }
        known.push(made.clone());
        Ok(made)
    }
}

impl GraphRecording {
    pub(crate) fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    /// What a collective on `stream` must wait for: those of one graph take turns in each replay.
    pub(crate) fn predecessor(&self, stream: u64) -> Option<Arc<Event>> {
        let last = self.last.lock();
        last.as_ref().filter(|last| last.stream != stream).map(|last| last.event.clone())
    }

    /// Adds a collective that was recorded on `stream`.
    pub(crate) fn push(&self, stream: u64, event: Arc<Event>) {
        *self.last.lock() = Some(Last { stream, event });
    }
}

/// A handle of our own on a graph.
struct Graph {
    bridge: &'static Bridge,
    own: *mut c_void,
}

// SAFETY: a handle on a graph that is only compared.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Graph {
    fn of(queue: &Queue) -> Result<Graph> {
        let bridge = queue.bridge();
        let mut own = null_mut();
        // SAFETY: an own handle, and a place for the answer.
        let code = unsafe { (bridge.functions.graph_open)(queue.own, &raw mut own) };
        bridge.check("sycl::queue::ext_oneapi_get_graph", code)?;
        Ok(Graph { bridge, own })
    }

    fn is_of(&self, queue: &Queue) -> Result<bool> {
        let mut same = 0;
        // SAFETY: own handles, and a place for the answer.
        let code = unsafe { (self.bridge.functions.graph_is)(self.own, queue.own, &raw mut same) };
        self.bridge.check("sycl::queue::ext_oneapi_get_graph", code)?;
        Ok(same != 0)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: an own handle, used by nobody any more.
        unsafe { (self.bridge.functions.graph_close)(self.own) };
    }
}
