//! Recorded graphs: record and replay.
//!
//! While a capture is active ([`capture`]) what is appended to its immediate lists becomes nodes instead of work. The
//! graph that results ([`Body`]) is made into executables ([`executable`]), whose replays run on the executors that the
//! lists belong to. Between nodes there are only edges: the order of an in-order list, a barrier, or an event that one
//! captured command signals and another waits for. The state of an event plays no part in that, so that what an earlier
//! replay left behind releases nobody.

mod capture;
mod dump;
mod entry;
mod executable;
mod join;

pub(crate) use capture::{Mark, Pending, Session, Site};
pub(crate) use entry::{extension, resolve};
pub(crate) use executable::{Executable, Part};

use crate::error::fail;
use crate::event::Event;
use crate::exec::Executor;
use crate::handle::Object;
use crate::op::{Op, Waits};
use level_zero_sys::{
    ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_APPEND_COMMANDLIST, ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_IMMUTABLE_GRAPH,
    ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_SUBGRAPHS, ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
    ZE_RESULT_ERROR_INVALID_GRAPH, ze_record_replay_graph_ext_flags_t, ze_result_t,
};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What devices say they can do with graphs. Events that are both shared with other processes and used across a graph's
/// border are refused by name, as their absence here demands.
pub(crate) const FLAGS: ze_record_replay_graph_ext_flags_t = ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_IMMUTABLE_GRAPH
    | ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_SUBGRAPHS
    | ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_APPEND_COMMANDLIST;

/// A command that a node depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) node: usize,
    /// An event makes the edge, not the order of a list.
    pub(crate) by_event: bool,
}

/// A captured command.
pub(crate) struct Node {
    /// Number of the list it was appended to, among the lists of the capture.
    pub(crate) list: usize,
    pub(crate) executor: Arc<Executor>,
    pub(crate) op: Op,
    /// Nodes before it in the recording.
    pub(crate) after: Vec<Dependency>,
    /// Regular events that nothing in the graph signals: their state counts at each replay.
    pub(crate) waits: Waits,
    /// Counter-based events that are signalled outside the graph: what they stand for when a replay is appended counts.
    pub(crate) outside: Vec<Arc<Event>>,
    pub(crate) signal: Option<Arc<Event>>,
}

impl Node {
    /// Whether it is work, other than waiting and signalling.
    pub(crate) fn is_work(&self) -> bool {
        !matches!(self.op, Op::Nothing | Op::Barrier | Op::Reset(_))
    }
}

/// What a list must be like for a graph to be replayed on it: what the one was like on which the recording began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) device: u32,
    pub(crate) ordinal: u32,
    pub(crate) in_order: bool,
}

/// A finished recording.
pub(crate) struct Body {
    pub(crate) nodes: Vec<Node>,
    pub(crate) home: Home,
}

/// What is known of a graph.
enum Stage {
    Empty,
    Capturing(Arc<Session>),
    Recorded(Arc<Body>),
    /// Its recording failed or was given up.
    Invalid,
}

type Callback = (unsafe extern "C" fn(*mut c_void), usize);

struct State {
    stage: Stage,
    /// Handle of the list on which the recording began.
    primary: usize,
    callbacks: Vec<Callback>,
}

/// A graph.
pub(crate) struct Graph {
    id: u64,
    state: Mutex<State>,
}

impl Object for Graph {
    const MAGIC: u64 = 0x5a45_534f_4752_4831;
}

impl Graph {
    pub(crate) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let state = Mutex::new(State { stage: Stage::Empty, primary: 0, callbacks: Vec::new() });
        Arc::new(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), state })
    }

    /// Its recording, once that is over.
    pub(crate) fn body(&self) -> Result<Arc<Body>, ze_result_t> {
        match &self.state.lock().stage {
            Stage::Recorded(body) => Ok(body.clone()),
            Stage::Empty => Err(fail(ZE_RESULT_ERROR_INVALID_GRAPH, "nothing was recorded into this graph")),
            Stage::Invalid => Err(invalid()),
            Stage::Capturing(_) => {
                Err(fail(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED, "this graph is still being recorded"))
            }
        }
    }

    /// Whether it has no nodes.
    fn is_empty(&self) -> Result<bool, ze_result_t> {
        let session = match &self.state.lock().stage {
            Stage::Empty => return Ok(true),
            Stage::Recorded(body) => return Ok(body.nodes.is_empty()),
            Stage::Invalid => return Err(invalid()),
            Stage::Capturing(session) => session.clone(),
        };
        Ok(session.is_empty())
    }

    fn add_callback(&self, callback: Callback) {
        self.state.lock().callbacks.push(callback);
    }

    /// What follows the end of its handle.
    fn destroyed(&self) {
        let (stage, callbacks) = {
            let mut state = self.state.lock();
            let stage = std::mem::replace(&mut state.stage, Stage::Invalid);
            (stage, std::mem::take(&mut state.callbacks))
        };
        if let Stage::Capturing(session) = stage {
            session.give_up(false);
        }
        for (function, data) in callbacks {
            // SAFETY: the program handed the function over to be called with this argument, once.
            unsafe { function(data as *mut c_void) };
        }
    }
}

fn invalid() -> ze_result_t {
    fail(ZE_RESULT_ERROR_INVALID_GRAPH, "the recording of this graph failed or was given up")
}
