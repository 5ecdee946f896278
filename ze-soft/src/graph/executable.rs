//! Executable graphs, and their replays.
//!
//! A replay is an item that begins it and one that ends it, in the lane of the list it was appended to, and one item
//! for each executor that has nodes of the graph: a [`Part`], which runs whichever of its nodes has nothing left to wait
//! for. All of it is laid out when the graph is instantiated, so that a replay allocates nothing.

use super::{Body, Graph};
use crate::device;
use crate::engine::cuda::{self, Home};
use crate::error::fail;
use crate::event::{Counter, Point};
use crate::exec::{Executor, Source, SourceCell, Work, kick_all};
use crate::fault::{self, EdgeFault};
use crate::handle::Object;
use crate::op::{Op, Signal};
use level_zero_sys::{ZE_RESULT_ERROR_INVALID_GRAPH, ze_result_t};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// How many replays at a time have their sources known, which lets waiting hosts run their nodes; beyond that they
/// leave it to the executors' threads.
const RING: usize = 8;

/// What a node waits for inside the graph.
struct Edge {
    node: usize,
    /// A planted fault: the replay before this one satisfies it.
    stale: bool,
}

/// The nodes of one executor.
struct Plan {
    executor: Arc<Executor>,
    /// In the order in which they were recorded.
    nodes: Vec<usize>,
}

/// What will have run the parts of a replay.
struct Sources {
    replay: AtomicU64,
    begin: SourceCell,
    parts: Vec<SourceCell>,
}

/// An executable graph.
pub(crate) struct Executable {
    body: Arc<Body>,
    graph: Weak<Graph>,
    handle: usize,
    edges: Vec<Vec<Edge>>,
    signals: Vec<Option<Signal>>,
    plans: Vec<Plan>,
    /// For each node its place in `plans`.
    plan_of: Vec<usize>,
    /// For each node the slot of the first event outside the graph that it waits for, and how many slots there are.
    slots: Vec<usize>,
    slot_count: usize,
    /// All nodes as one operation: a CUDA graph, where that can hold them.
    whole: Option<Op>,
    /// For each node the latest replay in which it has run.
    done: Vec<AtomicU64>,
    /// How many nodes have run in the current replay.
    finished: AtomicUsize,
    begun: AtomicU64,
    ended: AtomicU64,
    issued: Mutex<u64>,
    sources: [Sources; RING],
}

impl Object for Executable {
    const MAGIC: u64 = 0x5a45_534f_4758_4531;
}

impl Executable {
    /// An executable of what `graph` recorded.
    pub(super) fn new(graph: &Arc<Graph>, handle: usize) -> Result<Arc<Self>, ze_result_t> {
        let body = graph.body()?;
        let faults = fault::edges();
        let (mut plans, mut plan_of) = (Vec::<Plan>::new(), Vec::new());
        let (mut slots, mut slot_count) = (Vec::new(), 0);
        let (mut signals, mut edges) = (Vec::new(), Vec::new());
        // CUDA's streams know no edges between each other: there all nodes are given to the graph's own.
        let only = if cuda::runs() { Some(home_executor(&body)?) } else { None };
        for (index, node) in body.nodes.iter().enumerate() {
            let executor = only.as_ref().unwrap_or(&node.executor);
            let plan = match plans.iter().position(|plan| Arc::ptr_eq(&plan.executor, executor)) {
                Some(plan) => plan,
                None => {
                    plans.push(Plan { executor: executor.clone(), nodes: Vec::new() });
                    plans.len() - 1
                }
            };
            plans[plan].nodes.push(index);
            plan_of.push(plan);
            slots.push(slot_count);
            slot_count += node.outside.len();
            signals.push(match &node.signal {
                // Inside the graph it is edges, and outside nobody may look at it.
                Some(event) if event.is_graph_internal() => None,
                Some(event) if event.counted().is_some() => {
                    let stamped = event.is_stamped().then(|| event.clone());
                    Some(Signal::Count { counter: Counter::new()?, stamped })
                }
                Some(event) => Some(Signal::State(event.clone())),
                None => None,
            });
            let to = (node.executor.device(), node.executor.ordinal(), index);
            edges.push(
                node.after
                    .iter()
                    .filter_map(|before| {
                        let hit = if before.by_event { EdgeFault::of(&faults, before.node, to) } else { None };
                        let stale = match hit {
                            None => false,
                            Some(EdgeFault::Stale) => true,
                            Some(EdgeFault::Drop) => return None,
                        };
                        Some(Edge { node: before.node, stale })
                    })
                    .collect(),
            );
        }
        let sources = std::array::from_fn(|_| Sources {
            replay: AtomicU64::new(0),
            begin: SourceCell::default(),
            parts: plans.iter().map(|_| SourceCell::default()).collect(),
        });
        let done = body.nodes.iter().map(|_| AtomicU64::new(0)).collect();
        let whole = only.map(|executor| whole(&body, &edges, &signals, &executor)).transpose()?.flatten();
        Ok(Arc::new(Self {
            body,
            graph: Arc::downgrade(graph),
            handle,
            edges,
            signals,
            plans,
            plan_of,
            slots,
            slot_count,
            whole,
            done,
            finished: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            issued: Mutex::new(0),
            sources,
        }))
    }

    pub(crate) fn body(&self) -> &Arc<Body> {
        &self.body
    }

    /// The handle of the graph it was made of, while that lives.
    pub(super) fn source_graph(&self) -> Option<usize> {
        self.graph.upgrade().map(|_| self.handle)
    }

    /// Makes sure that all executors it needs have their threads.
    pub(crate) fn start(&self) -> Result<(), ze_result_t> {
        self.plans.iter().try_for_each(|plan| plan.executor.start())
    }

    /// A new replay, whose number the guard holds; others are numbered once the guard is gone.
    pub(crate) fn issue(&self) -> MutexGuard<'_, u64> {
        let mut issued = self.issued.lock();
        *issued += 1;
        issued
    }

    /// Submits the parts of a replay, whose beginning `begin` will have run.
    pub(crate) fn submit(self: &Arc<Self>, replay: u64, begin: Option<Source>) {
        let targets = (self.slot_count > 0).then(|| {
            self.body
                .nodes
                .iter()
                .flat_map(|node| &node.outside)
                .map(|event| event.point().map(Point::settled))
                .collect()
        });
        let ring = &self.sources[replay as usize % RING];
        ring.replay.store(0, Ordering::Relaxed);
        ring.begin.set(begin);
        for (index, plan) in self.plans.iter().enumerate() {
            let (executable, targets) = (self.clone(), targets.clone());
            let left = if self.whole.is_some() { 1 } else { plan.nodes.len() };
            let part = Part { executable, plan: index, replay, targets, from: 0, left };
            let receipt = plan.executor.submit_alone(Work::Part(part));
            ring.parts[index].set(receipt.source);
        }
        ring.replay.store(replay, Ordering::Release);
        for (node, signal) in self.signals.iter().enumerate() {
            let source = || ring.parts[self.plan_of[node]].get();
            match signal {
                None => {}
                Some(Signal::State(event)) => event.expect(source()),
                Some(Signal::Count { counter, .. }) => {
                    if let Some(event) = &self.body.nodes[node].signal {
                        event.aim_at(counter, replay, source());
                    }
                }
                // Only of immediate lists.
                Some(Signal::Own { .. }) => {}
            }
        }
    }

    /// Lets a replay's nodes go.
    pub(crate) fn begin(&self, replay: u64) {
        self.begun.store(replay, Ordering::Release);
        if self.body.nodes.is_empty() {
            self.ended.store(replay, Ordering::Release);
        }
        kick_all();
    }

    /// Whether a replay is over; if so, what it wrote is seen.
    pub(crate) fn reached(&self, replay: u64) -> bool {
        self.ended.load(Ordering::Acquire) >= replay
    }

    /// What will have run something that a replay still lacks, as far as that is known.
    pub(crate) fn source(&self, replay: u64) -> Option<Source> {
        let missing = self.done.iter().position(|done| done.load(Ordering::Acquire) < replay)?;
        self.part_source(self.plan_of[missing], replay)
    }

    fn part_source(&self, plan: usize, replay: u64) -> Option<Source> {
        let ring = &self.sources[replay as usize % RING];
        let source = ring.parts[plan].get();
        // Another replay may have taken its place.
        (ring.replay.load(Ordering::Acquire) == replay).then_some(source)?
    }

    /// Runs one of its nodes through `run`, which is given what the node does, what it signals and with which count.
    pub(crate) fn run(&self, node: usize, replay: u64, mut run: impl FnMut(&Op, Option<&Signal>, u64)) {
        if let Some(whole) = &self.whole {
            run(whole, None, replay);
            // Whoever waits for a node from outside waits for the whole: later than need be, never too early.
            for signal in self.signals.iter().flatten() {
                run(&Op::Nothing, Some(signal), replay);
            }
            self.done.iter().for_each(|done| done.store(replay, Ordering::Release));
            return self.ended.store(replay, Ordering::Release);
        }
        run(&self.body.nodes[node].op, self.signals[node].as_ref(), replay);
        self.done[node].store(replay, Ordering::Release);
        if self.finished.fetch_add(1, Ordering::AcqRel) + 1 == self.done.len() {
            // The next replay begins once it sees this one's end.
            self.finished.store(0, Ordering::Relaxed);
            self.ended.store(replay, Ordering::Release);
        }
    }
}

/// The executor of the list on which a graph is replayed.
fn home_executor(body: &Body) -> Result<Arc<Executor>, ze_result_t> {
    let device = device::all().iter().find(|entry| entry.device.index == body.home.device);
    let executor = device.and_then(|entry| entry.device.executor(body.home.ordinal)).cloned();
    executor.ok_or_else(|| fail(ZE_RESULT_ERROR_INVALID_GRAPH, "the graph's device is not there any more"))
}

/// All nodes as one CUDA graph, if that can hold them: nothing in it waits for the outside or takes times.
fn whole(
    body: &Body,
    edges: &[Vec<Edge>],
    signals: &[Option<Signal>],
    executor: &Arc<Executor>,
) -> Result<Option<Op>, ze_result_t> {
    let fits = |node: &super::Node| node.waits.is_empty() && node.outside.is_empty() && cuda::Graph::takes(&node.op);
    if !body.nodes.iter().all(fits) || signals.iter().flatten().any(Signal::is_stamped) {
        return Ok(None);
    }
    executor.start()?;
    let Some(stream) = executor.stream() else { return Ok(None) };
    // The replay before this one is over when this one begins: an edge from there is none.
    let before = |edges: &Vec<Edge>| edges.iter().filter(|edge| !edge.stale).map(|edge| edge.node).collect();
    let operations = body.nodes.iter().zip(edges).map(|(node, edges)| (&node.op, before(edges)));
    match cuda::Graph::new(stream, operations) {
        Ok(graph) => Ok(Some(Op::Replay(Arc::new(graph)))),
        Err(why) => Err(fail(ZE_RESULT_ERROR_INVALID_GRAPH, format!("CUDA makes no graph of this: {why}"))),
    }
}

/// What one executor has to do for one replay.
pub(crate) struct Part {
    executable: Arc<Executable>,
    plan: usize,
    replay: u64,
    /// For each event outside the graph what it stood for when the replay was appended.
    targets: Option<Arc<[Option<Point>]>>,
    /// All nodes of the plan before this place have run.
    from: usize,
    left: usize,
}

impl Part {
    pub(crate) fn executable(&self) -> &Arc<Executable> {
        &self.executable
    }

    pub(crate) fn replay(&self) -> u64 {
        self.replay
    }

    /// Shows the nodes that can run until `each` has enough. If there is none, says what the first one waits for.
    pub(crate) fn look(&self, home: Home, mut each: impl FnMut(usize) -> bool) -> Option<Option<Source>> {
        let graph = &self.executable;
        if graph.begun.load(Ordering::Acquire) < self.replay {
            let ring = &graph.sources[self.replay as usize % RING];
            let source = ring.begin.get();
            return Some((ring.replay.load(Ordering::Acquire) == self.replay).then_some(source).flatten());
        }
        let (mut waiting, mut any) = (None, false);
        for &node in &graph.plans[self.plan].nodes[self.from..] {
            if graph.done[node].load(Ordering::Relaxed) >= self.replay {
                continue;
            }
            match self.blocked(node, home) {
                Some(source) => {
                    waiting.get_or_insert(source);
                }
                None => {
                    any = true;
                    if !each(node) {
                        break;
                    }
                }
            }
        }
        if any { None } else { Some(waiting.flatten()) }
    }

    fn blocked(&self, node: usize, home: Home) -> Option<Option<Source>> {
        let graph = &self.executable;
        for edge in &graph.edges[node] {
            let replay = self.replay - u64::from(edge.stale);
            if graph.done[edge.node].load(Ordering::Acquire) < replay {
                return Some(graph.part_source(graph.plan_of[edge.node], replay));
            }
        }
        let recorded = &graph.body.nodes[node];
        if let Some(targets) = &self.targets {
            let slots = graph.slots[node]..graph.slots[node] + recorded.outside.len();
            if let Some(point) = targets[slots].iter().flatten().find(|point| !point.is_there(home)) {
                return Some(point.source());
            }
        }
        recorded.waits.blocked(&[], home)
    }

    /// Notes that one of its nodes has run, and says whether it was the last.
    pub(crate) fn advance(&mut self) -> bool {
        let graph = &self.executable;
        let nodes = &graph.plans[self.plan].nodes;
        while self.from < nodes.len() && graph.done[nodes[self.from]].load(Ordering::Relaxed) >= self.replay {
            self.from += 1;
        }
        self.left -= 1;
        self.left == 0
    }
}
