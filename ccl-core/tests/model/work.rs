//! The work of a rank, laid out: what is done in which order.

use std::collections::BTreeMap;

use super::{Scenario, Work};

/// A work-group's steps before the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GroupOp {
    Signal(usize),
    Await(usize),
    Clear,
    /// Nothing: for a work-group that no line goes to.
    Pass,
}

/// What is done to one line at one position of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) lane: usize,
    pub(crate) round: usize,
    pub(crate) position: usize,
    pub(crate) chunk: usize,
}

/// Work that is done in order.
#[derive(Clone, Debug)]
pub(crate) struct Strand {
    pub(crate) wire: usize,
    pub(crate) ops: Vec<Op>,
}

/// Two laps of a token: the first gathers (0 to 1 ... to n-1 to 0), the second releases (0 to ... n-1).
pub(crate) fn barrier_ops(n: usize, rank: usize, barrier: usize) -> Vec<GroupOp> {
    let (gather, release) = (barrier * 2, barrier * 2 + 1);
    if rank == 0 {
        return vec![GroupOp::Signal(gather), GroupOp::Await(gather), GroupOp::Signal(release)];
    }
    let mut ops = vec![GroupOp::Await(gather), GroupOp::Signal(gather), GroupOp::Await(release)];
    if rank + 1 < n {
        ops.push(GroupOp::Signal(release));
    }
    ops
}

/// The strands of one rank in one call.
pub(crate) fn lay_out(scenario: &Scenario, call: usize, rank: usize) -> Vec<Strand> {
    let mut all = Vec::new();
    for round in 0..scenario.rounds(call) as usize {
        for position in scenario.positions() {
            let chunk = scenario.chunk_at(rank, position);
            let lanes = scenario.lanes(call).filter(|&lane| round < scenario.rounds_of(call, lane, chunk));
            all.extend(lanes.map(|lane| Op { lane, round, position, chunk }));
        }
    }
    let wire = |op: &Op| op.lane / scenario.part(call);
    let key = |op: &Op| match scenario.work {
        Work::Line => (op.lane, 0),
        Work::Chunk => (op.lane, op.chunk),
        Work::Wire => (wire(op), 0),
    };
    let mut strands: BTreeMap<(usize, usize), Strand> = BTreeMap::new();
    for op in all {
        strands.entry(key(&op)).or_insert_with(|| Strand { wire: wire(&op), ops: Vec::new() }).ops.push(op);
    }
    strands.into_values().collect()
}
