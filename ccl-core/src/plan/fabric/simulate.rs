//! The engine: events in the order of their times, and of their making where times are equal.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::super::Plan;
use super::super::push::Phase;
use super::Fabric;
use super::links::{Links, Server, Stage, Time, Transfer, picoseconds, rate, span};
use super::work::{self, Cut, Kind, Message, Work};
use crate::protocol::MAX_RANKS;

/// What a simulated call took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Picoseconds from the append of the launches, on all ranks at once, to the last rank's completion.
    pub picoseconds: u64,
    /// Bytes that each rank put on its link, flags included.
    pub sent: Vec<u64>,
    /// Bytes that went through the root port.
    pub root_bytes: u64,
    /// Steps that all wires of all ranks took.
    pub steps: u64,
}

impl Report {
    /// Microseconds.
    pub fn us(&self) -> f64 {
        self.picoseconds as f64 * 1e-6
    }
}

/// Why a simulation came to no end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Stuck {
    /// Nothing is under way, and somebody waits.
    #[error("deadlock: {0}")]
    Deadlock(String),
    /// What came is not what was waited for.
    #[error("{0}")]
    Mismatch(String),
    /// The box can't be.
    #[error("no fabric to simulate: {0}")]
    Fabric(String),
}

/// Executes the steps of all ranks of `plan` on `fabric`. What has no steps takes a launch: a local copy's bytes are not
/// in its plan.
pub fn simulate(plan: &Plan, fabric: &Fabric) -> Result<Report, Stuck> {
    match plan {
        Plan::Empty | Plan::Local => Machine::new(fabric, 1, 1)?.run(|_, _| std::iter::empty()),
        Plan::Ring(plan) => Machine::new(fabric, plan.n, plan.wires)?
            .run(|rank, wire| plan.wire_steps(rank, wire).map(move |step| work::ring(plan, rank, step))),
        Plan::Push(plan) => Machine::new(fabric, plan.n, plan.wires)?.run(|rank, wire| {
            (0..plan.rounds).flat_map(move |round| {
                let phase = move |phase| plan.phase_steps(rank, round, phase, wire);
                Phase::ALL.into_iter().flat_map(phase).flat_map(|step| work::push(plan, step))
            })
        }),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The piece that a work-group is at is done.
    Moved(usize),
    /// A piece of a message to this wire comes to a stage of its way.
    At(Stage, u32, Message, u32, Transfer),
}

/// A work-group, running or yet to run.
struct Group<I> {
    works: I,
    /// What it is at, and which piece of it.
    work: Option<(Work, u32)>,
    /// Waits for a message.
    waits: bool,
}

/// A piece on its way; of at most a few KiB, between two of at most [`MAX_RANKS`].
fn transfer(from: usize, to: usize, cut: &Cut, piece: u32) -> Transfer {
    Transfer { from: from as u8, to: to as u8, bytes: cut.piece(piece).0 as u32, end: 0 }
}

struct Machine {
    n: usize,
    wires: usize,
    now: Time,
    /// Events made: the order among equal times.
    made: u64,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    links: Links,
    local: Vec<Server>,
    unit_rate: u64,
    units: usize,
    launch: Time,
    latency: Time,
    /// What was seen and not yet taken, by receiver, wire, sender, and whether it was loaded: that comes when asked for,
    /// all else in the order of its stores.
    inbox: Vec<VecDeque<(Message, u32, u32)>>,
    steps: u64,
}

impl Machine {
    fn new(fabric: &Fabric, n: usize, wires: u32) -> Result<Self, Stuck> {
        let Fabric { pair_gbps, port_gbps, incast, local_gbps, unit_gbps, launch_us, hop_us, poll_us, .. } = *fabric;
        let refuse = |what: &str| Err(Stuck::Fabric(format!("{}: {what}", fabric.name)));
        if n == 0 || n > MAX_RANKS || wires == 0 || fabric.compute_units == 0 {
            return refuse("ranks, wires and compute units are at least 1, and there are 16 ranks at most");
        }
        let root = fabric.root.map_or(1.0, |root| root.gbps);
        if [pair_gbps, port_gbps, local_gbps, unit_gbps, root, incast].iter().any(|r| !(1e-3..1e6).contains(r)) {
            return refuse("a rate is not within 1 MB/s and 1 PB/s");
        }
        if incast > 1.0 || fabric.root.is_some_and(|root| root.switch == 0) {
            return refuse("incast is a share, and a switch has devices");
        }
        if [launch_us, poll_us, hop_us - poll_us].iter().any(|us| !(0.0..1e6).contains(us)) {
            return refuse("a latency is negative or beyond a second");
        }
        Ok(Self {
            n,
            wires: wires as usize,
            now: 0,
            made: 0,
            events: BinaryHeap::new(),
            links: Links::new(fabric, n),
            local: vec![Server::new(rate(local_gbps)); n],
            unit_rate: rate(unit_gbps),
            units: fabric.compute_units as usize,
            launch: picoseconds(launch_us),
            latency: picoseconds(hop_us - poll_us),
            inbox: vec![VecDeque::new(); n * wires as usize * n * 2],
            steps: 0,
        })
    }

    fn run<I: Iterator<Item = Work>>(mut self, works: impl Fn(usize, u32) -> I) -> Result<Report, Stuck> {
        let (n, wires) = (self.n, self.wires);
        let mut groups: Vec<_> = (0..n * wires)
            .map(|group| Group { works: works(group / wires, (group % wires) as u32), work: None, waits: false })
            .collect();
        // Work-groups of each rank that have begun; the rest queue for a unit.
        let mut begun = vec![wires.min(self.units); n];
        self.now = self.launch;
        let mut end = self.launch;
        let mut ready: Vec<usize> = (0..n * wires).filter(|group| group % wires < self.units).collect();
        ready.reverse();
        let mut left = n * wires;
        loop {
            while let Some(group) = ready.pop() {
                if self.go_on(group, &mut groups[group])? {
                    end = self.now;
                    left -= 1;
                    let rank = group / wires;
                    if begun[rank] < wires {
                        ready.push(rank * wires + begun[rank]);
                        begun[rank] += 1;
                    }
                }
            }
            let Some(Reverse((time, _, event))) = self.events.pop() else { break };
            self.now = time;
            match event {
                Event::Moved(group) => {
                    self.give(group, &mut groups[group]);
                    ready.push(group);
                }
                Event::At(Stage::Seen, wire, message, piece, Transfer { from, to, bytes, .. }) => {
                    let group = to as usize * wires + wire as usize;
                    let inbox = self.inbox_of(group, from.into(), message.kind == Kind::Loaded);
                    self.inbox[inbox].push_back((message, piece, bytes));
                    if groups[group].waits {
                        ready.push(group);
                    }
                }
                Event::At(stage, wire, message, piece, transfer) => self.pass(stage, wire, message, piece, transfer),
            }
        }
        if left > 0 {
            return Err(Stuck::Deadlock(self.waiting(&groups)));
        }
        if let Some(inbox) = self.inbox.iter().position(|inbox| !inbox.is_empty()) {
            let (message, ..) = self.inbox[inbox][0];
            let (group, from) = (inbox / 2 / n, inbox / 2 % n);
            let (rank, wire) = (group / wires, group % wires);
            return Err(Stuck::Mismatch(format!("rank {rank} wire {wire} never takes rank {from}'s {message}")));
        }
        let Links { sent, root_bytes, .. } = self.links;
        Ok(Report { picoseconds: end, sent, root_bytes, steps: self.steps })
    }

    fn waiting<I>(&self, groups: &[Group<I>]) -> String {
        let waiting: Vec<_> = groups
            .iter()
            .enumerate()
            .filter_map(|(group, state)| {
                let (work, piece) = state.work?;
                let rank = group / self.wires;
                let from = self.missing(group, &work, piece)?;
                Some(format!("rank {rank} waits in {} for rank {from}'s {}", work.origin, work.taken))
            })
            .collect();
        waiting.join("; ")
    }

    /// A peer whose message isn't there as far as it is needed.
    fn missing(&self, group: usize, work: &Work, piece: u32) -> Option<usize> {
        let needed = if work.whole && piece == 0 { work.cut.pieces() as usize } else { 1 };
        let there = |from| self.inbox[self.inbox_of(group, from, work.loads)].len();
        work.takes.of(group / self.wires, self.n).find(|from| there(*from) < needed)
    }

    const fn inbox_of(&self, group: usize, from: usize, loaded: bool) -> usize {
        (group * self.n + from) * 2 + loaded as usize
    }

    fn at(&mut self, time: Time, event: Event) {
        self.events.push(Reverse((time, self.made, event)));
        self.made += 1;
    }

    fn pass(&mut self, stage: Stage, wire: u32, message: Message, piece: u32, mut transfer: Transfer) {
        let (next, time) = self.links.pass(stage, self.now, &mut transfer);
        self.at(time, Event::At(next, wire, message, piece, transfer));
    }

    /// Takes a group on until it waits or moves memory; true if it has nothing left to do.
    fn go_on<I: Iterator<Item = Work>>(&mut self, group: usize, state: &mut Group<I>) -> Result<bool, Stuck> {
        let (n, rank, wire) = (self.n, group / self.wires, (group % self.wires) as u32);
        let (work, piece) = match state.work {
            Some(at) => at,
            None => {
                let Some(work) = state.works.next() else { return Ok(true) };
                self.steps += 1;
                if work.loads {
                    for (piece, from) in
                        (0..work.cut.pieces()).flat_map(|piece| work.takes.of(rank, n).map(move |from| (piece, from)))
                    {
                        let transfer = transfer(from, rank, &work.cut, piece);
                        let asked = self.now + self.latency;
                        self.at(asked, Event::At(Stage::Pair, wire, work.taken, piece, transfer));
                    }
                }
                *state.work.insert((work, 0))
            }
        };
        state.waits = self.missing(group, &work, piece).is_some();
        if state.waits {
            return Ok(false);
        }
        let (bytes, data) = work.cut.piece(piece);
        for from in work.takes.of(rank, n) {
            let inbox = self.inbox_of(group, from, work.loads);
            let found = self.inbox[inbox].pop_front();
            if found != Some((work.taken, piece, bytes as u32)) {
                let found = found.map_or("nothing".into(), |(message, ..)| message.to_string());
                return Err(Stuck::Mismatch(format!(
                    "rank {rank}, {}: waits for rank {from}'s {}, finds {found}",
                    work.origin, work.taken
                )));
            }
        }
        // What was taken was stored into local memory before it is loaded; what is loaded from elsewhere wasn't.
        let taken = work.takes.number(n) * bytes;
        let through = if work.loads { 0 } else { 2 * taken } + work.passes * data;
        let (_, memory) = self.local[rank].serve(self.now, through);
        // A work-group loads and stores at the same time.
        let moved = taken.max(work.gives.number(n) * bytes).max(data);
        let done = memory.max(self.now + span(moved, self.unit_rate));
        self.at(done, Event::Moved(group));
        Ok(false)
    }

    /// Sends what the group has moved, and goes to its next piece.
    fn give<I>(&mut self, group: usize, state: &mut Group<I>) {
        let Some((work, piece)) = state.work else { return };
        let (rank, wire) = (group / self.wires, (group % self.wires) as u32);
        for to in work.gives.of(rank, self.n) {
            self.pass(Stage::Pair, wire, work.given, piece, transfer(rank, to, &work.cut, piece));
        }
        state.work = (piece + 1 < work.cut.pieces()).then_some((work, piece + 1));
    }
}

#[cfg(test)]
#[path = "simulate_tests.rs"]
mod tests;
