//! Captures: from the beginning of a recording to its end.
//!
//! A list and an event only remember the number of the capture that they were last part of. Whether that is still
//! active is one look into [`SESSIONS`], so that the end of a capture needs to visit none of them.

use super::{Body, Dependency, Graph, Home, Node, Stage, join};
use crate::error::fail;
use crate::event::Event;
use crate::exec::Executor;
use crate::handle::{export, take};
use crate::op::{Op, Wait, Waits};
use level_zero_sys::*;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

static SESSIONS: LazyLock<Mutex<HashMap<u64, Arc<Session>>>> = LazyLock::new(Mutex::default);

/// Which capture a list takes part in, or captured the newest signal of an event.
#[derive(Default)]
pub(crate) struct Mark(AtomicU64);

impl Mark {
    /// The capture, if it is still active.
    // All that is ever appended asks this: without a capture it is one load.
    #[inline]
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        let id = self.0.load(Ordering::Relaxed);
        if id == 0 { None } else { self.session_of(id) }
    }

    #[cold]
    fn session_of(&self, id: u64) -> Option<Arc<Session>> {
        let session = SESSIONS.lock().get(&id).cloned();
        if session.is_none() {
            // Over: the next question is a load again. A newer capture's mark stays.
            let _ = self.0.compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        session
    }

    /// Whether there was one when it was last looked at.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn is(&self, session: &Session) -> bool {
        self.0.load(Ordering::Relaxed) == session.id
    }

    fn set(&self, session: &Session) {
        self.0.store(session.id, Ordering::Relaxed);
    }
}

/// A list, as far as captures are concerned.
pub(crate) struct Site<'a> {
    /// Tells lists apart while they live.
    pub(crate) key: usize,
    pub(crate) executor: &'a Arc<Executor>,
    pub(crate) in_order: bool,
    pub(crate) mark: &'a Mark,
}

/// A command that is about to be captured, and what it waits for.
pub(crate) struct Pending {
    pub(crate) session: Arc<Session>,
    pub(crate) waits: Vec<Arc<Event>>,
}

/// A list that takes part in a capture.
pub(super) struct Member {
    /// Its [`Site::key`]; 0 once it is destroyed.
    key: usize,
    executor: Arc<Executor>,
    in_order: bool,
    /// The list it was forked from; none for the first.
    pub(super) parent: Option<usize>,
    /// What everything that comes depends on.
    barrier: Option<usize>,
    /// Of an in-order list the newest node, else all since the last barrier.
    since: Vec<usize>,
}

impl Member {
    fn new(site: &Site<'_>, parent: Option<usize>) -> Self {
        let (key, executor, in_order) = (site.key, site.executor.clone(), site.in_order);
        Self { key, executor, in_order, parent, barrier: None, since: Vec::new() }
    }

    /// What the list's own order makes the next command depend on.
    fn order(&self, op: &Op, waits: bool) -> Vec<usize> {
        let full = matches!(op, Op::Barrier) && !waits;
        let since = if self.in_order || full { self.since.as_slice() } else { &[] };
        self.barrier.iter().chain(since).copied().collect()
    }

    /// Takes the list on to its next command.
    fn advance(&mut self, node: usize, op: &Op, waits: bool) {
        if self.in_order {
            self.since.clear();
            self.since.push(node);
            return;
        }
        match op {
            Op::Barrier if !waits => {
                self.since.clear();
                self.barrier = Some(node);
            }
            // One that only waits holds up what follows, not what came before.
            Op::Barrier | Op::Nothing if waits => self.barrier = Some(node),
            _ => self.since.push(node),
        }
    }
}

#[derive(Default)]
struct State {
    over: bool,
    nodes: Vec<Node>,
    members: Vec<Member>,
    /// Events by address, and which node signals each. They are kept, so that no other gets the address.
    signallers: HashMap<usize, (Arc<Event>, usize)>,
}

/// An active capture.
pub(crate) struct Session {
    id: u64,
    graph: Arc<Graph>,
    /// The graph's handle, and whether this capture created it.
    handle: usize,
    created: bool,
    /// The list on which it began.
    primary: usize,
    home: Home,
    state: Mutex<State>,
}

fn address(event: &Arc<Event>) -> usize {
    Arc::as_ptr(event) as usize
}

impl Session {
    /// Begins a capture on a list: into `graph`, or into a new one.
    pub(super) fn begin(
        site: &Site<'_>,
        list: ze_command_list_handle_t,
        graph: Option<(ze_graph_handle_t, &Arc<Graph>)>,
    ) -> Result<(), ze_result_t> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let created = graph.is_none();
        let (handle, graph) = match graph {
            Some((handle, graph)) => (handle, graph.clone()),
            None => {
                let graph = Graph::new();
                (export::<Graph, _ze_graph_handle_t>(graph.clone()), graph)
            }
        };
        let home = Home { device: site.executor.device(), ordinal: site.executor.ordinal(), in_order: site.in_order };
        let state = State { members: vec![Member::new(site, None)], ..State::default() };
        let session = Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            graph,
            handle: handle as usize,
            created,
            primary: site.key,
            home,
            state: Mutex::new(state),
        });
        {
            let mut graph = session.graph.state.lock();
            match &graph.stage {
                Stage::Empty => {}
                Stage::Recorded(body) if body.nodes.is_empty() => {}
                Stage::Invalid => return Err(super::invalid()),
                Stage::Recorded(_) | Stage::Capturing(_) => {
                    let text = "a graph must be empty when a recording into it begins";
                    return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
                }
            }
            graph.stage = Stage::Capturing(session.clone());
            graph.primary = list as usize;
        }
        site.mark.set(&session);
        SESSIONS.lock().insert(session.id, session);
        Ok(())
    }

    /// The handle of its graph.
    pub(super) fn handle(&self) -> ze_graph_handle_t {
        self.handle as ze_graph_handle_t
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().nodes.is_empty()
    }

    /// Refuses events that can't be captured.
    pub(crate) fn check_events(
        self: &Arc<Self>,
        waits: &[Arc<Event>],
        signal: Option<&Arc<Event>>,
    ) -> Result<(), ze_result_t> {
        if waits.iter().chain(signal).any(crosses_all_borders) {
            let text = "an event for other processes and for use across a graph's border can't be captured here";
            return Err(fail(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED, text));
        }
        if let Some(event) = signal
            && event.is_graph_internal()
            && event.captured().session().is_some_and(|other| !Arc::ptr_eq(self, &other))
        {
            return Err(fail(ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT, "this event belongs to another recording"));
        }
        Ok(())
    }

    /// Records the nodes of a graph, in an in-order list: after `waits` and what the list holds, before what follows.
    pub(crate) fn record_graph(
        self: &Arc<Self>,
        site: &Site<'_>,
        body: &Body,
        waits: Vec<Arc<Event>>,
        signal: Option<&Arc<Event>>,
    ) -> Result<(), ze_result_t> {
        self.check_events(&waits, signal)?;
        self.record(site, Op::Nothing, waits, None)?;
        let mut state = self.state.lock();
        let State { nodes, members, signallers, .. } = &mut *state;
        let list = members.iter().position(|member| member.key == site.key);
        let Some((list, entry)) = list.and_then(|list| Some((list, *members[list].since.first()?))) else {
            return Err(fail(ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING, "this recording is over"));
        };
        let base = nodes.len();
        let mut last = vec![true; body.nodes.len()];
        for node in &body.nodes {
            let mut after = Vec::with_capacity(node.after.len().max(1));
            for before in &node.after {
                last[before.node] = false;
                after.push(Dependency { node: base + before.node, ..*before });
            }
            if after.is_empty() {
                after.push(Dependency { node: entry, by_event: false });
            }
            if let Op::Reset(event) = &node.op {
                signallers.remove(&address(event));
                event.captured().clear();
            }
            // Inside the other graph such an event is edges, and nobody outside may look at it.
            if let Some(event) = node.signal.as_ref().filter(|event| !event.is_graph_internal()) {
                signallers.insert(address(event), (event.clone(), nodes.len()));
                event.captured().set(self);
            }
            let (executor, op, waits) = (node.executor.clone(), node.op.clone(), node.waits.clone());
            let (outside, signal) = (node.outside.clone(), node.signal.clone());
            nodes.push(Node { list, executor, op, after, waits, outside, signal });
        }
        if !body.nodes.is_empty() {
            members[list].since = (base..).zip(last).filter_map(|(node, last)| last.then_some(node)).collect();
        }
        drop(state);
        self.record(site, Op::Nothing, Vec::new(), signal)
    }

    /// Records a command of a list; what is refused leaves no trace. A list that was not part of the capture becomes so.
    pub(crate) fn record(
        self: &Arc<Self>,
        site: &Site<'_>,
        op: Op,
        waits: Vec<Arc<Event>>,
        signal: Option<&Arc<Event>>,
    ) -> Result<(), ze_result_t> {
        self.check_events(&waits, signal)?;
        let mut state = self.state.lock();
        if state.over {
            return Err(fail(ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING, "this recording is over"));
        }
        let (mut after, mut states, mut outside) = (Vec::new(), Waits::default(), Vec::new());
        let waited = !waits.is_empty();
        for event in waits {
            // Something outside may have been told to signal it since.
            let signaller = state.signallers.get(&address(&event)).filter(|_| event.captured().is(self));
            match (signaller, event.counted()) {
                (Some(&(_, node)), _) => after.push(Dependency { node, by_event: true }),
                (None, None) => states.push(Wait::State(event)),
                (None, Some(_)) if event.is_graph_internal() => {
                    let text = "a recorded command can't wait for a counter-based event that its own recording \
                                does not signal, unless that has ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL";
                    return Err(fail(ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT, text));
                }
                (None, Some(_)) => outside.push(event),
            }
        }
        let list = match state.members.iter().position(|member| member.key == site.key) {
            Some(list) => list,
            None => {
                let Some(first) = after.first() else {
                    return Err(fail(ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING, "this list left the recording"));
                };
                let parent = state.nodes[first.node].list;
                state.members.push(Member::new(site, Some(parent)));
                site.mark.set(self);
                state.members.len() - 1
            }
        };
        let State { nodes, members, signallers, .. } = &mut *state;
        let (member, number) = (&mut members[list], nodes.len());
        for node in member.order(&op, waited) {
            if after.iter().all(|known| known.node != node) {
                after.push(Dependency { node, by_event: false });
            }
        }
        member.advance(number, &op, waited);
        if let Op::Reset(event) = &op {
            // Who waits for it from here on waits for what will signal it anew.
            signallers.remove(&address(event));
            event.captured().clear();
        }
        if let Some(event) = signal {
            signallers.insert(address(event), (event.clone(), number));
            event.captured().set(self);
        }
        let executor = member.executor.clone();
        nodes.push(Node { list, executor, op, after, waits: states, outside, signal: signal.cloned() });
        Ok(())
    }

    /// Ends it for all its lists, and makes what it recorded the graph's.
    pub(super) fn end(&self, key: usize) -> Result<ze_graph_handle_t, ze_result_t> {
        if key != self.primary {
            let text = "a recording ends on the list on which it began";
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
        }
        let State { nodes, members, .. } = self.leave();
        if let Some(list) = join::unjoined(&nodes, &members) {
            self.failed(true);
            let text = format!("list {list} of the recording was forked, and not all its work was joined again");
            return Err(fail(ZE_RESULT_ERROR_GRAPH_UNJOINED_FORKS, text));
        }
        self.graph.state.lock().stage = Stage::Recorded(Arc::new(Body { nodes, home: self.home }));
        Ok(self.handle())
    }

    /// Ends it without a result. `owned`: a graph that it created has nobody else who would destroy it.
    pub(super) fn give_up(&self, owned: bool) {
        drop(self.leave());
        self.failed(owned);
    }

    /// Takes note that a list is destroyed: without the one on which it began, nobody can end it.
    pub(crate) fn list_destroyed(&self, key: usize) {
        if key == self.primary {
            self.give_up(true);
        } else if let Some(member) = self.state.lock().members.iter_mut().find(|member| member.key == key) {
            member.key = 0;
        }
    }

    fn leave(&self) -> State {
        SESSIONS.lock().remove(&self.id);
        std::mem::replace(&mut *self.state.lock(), State { over: true, ..State::default() })
    }

    fn failed(&self, owned: bool) {
        self.graph.state.lock().stage = Stage::Invalid;
        if self.created && owned {
            // A program that destroyed it all the same is told by the handle's word.
            if let Ok(graph) = take::<Graph, _>(self.handle()) {
                graph.destroyed();
            }
        }
    }
}

/// Whether the event is both for other processes and for use across a graph's border.
fn crosses_all_borders(event: &Arc<Event>) -> bool {
    let both = ZE_EVENT_COUNTER_BASED_FLAG_IPC | ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL;
    event.counted().is_some_and(|flags| flags & both == both)
}
