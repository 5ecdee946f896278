//! The protocol as a state machine: what a work-group, a work-item and the memory between two ranks can do next.

use std::fmt;

use ccl_core::protocol::{TagSpan, owner, steps};

use super::work::{GroupOp, Op, Strand, barrier_ops, lay_out};
use super::{Advance, Scenario, TagRule, Work};

/// What must never happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// A receive took something else than the message meant for it.
    WrongMessage,
    /// A message was stored over one that had not been received.
    Overwritten,
    /// A clearing removed a message that had not been received.
    ClearedUnread,
    /// A result does not hold each rank's contribution once.
    WrongSum,
    /// A tag is 0 or above the limit.
    TagOutOfRange,
    /// Ranks wait for ever.
    Deadlock,
    /// All calls ended and a message was never received.
    Leftover,
}

/// What a line carries: which message it is, and whose contributions are in its sum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Message {
    call: u8,
    round: u8,
    step: u8,
    chunk: u8,
    lane: u8,
    sum: u8,
}

/// A line of staging memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Cell {
    flag: u16,
    message: Message,
    unread: bool,
}

/// A store on its way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Store {
    Line(u16, Message, u16),
    Data(u16, Message),
    Flag(u16, u16),
    Barrier(u16, u8),
    Clear(u16),
}

/// A work-group of the running call.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Group {
    entered: bool,
    wraps: bool,
    base: u16,
    clearing: u8,
    done: u8,
}

/// A rank's [`ccl_core::protocol::CommState`], and how far it is in the list of calls.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Rank {
    call: u8,
    left: u8,
    wraps: u8,
    base: u16,
}

/// Everything that decides what happens next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    ranks: Vec<Rank>,
    groups: Vec<Group>,
    strands: Vec<u8>,
    cells: Vec<Cell>,
    barriers: Vec<u8>,
    in_flight: Vec<Store>,
}

impl State {
    /// The state in few bytes, for the set of the visited. Of a received message only the flag still matters.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        for r in &self.ranks {
            out.extend([r.call, r.left, r.wraps]);
            out.extend(r.base.to_le_bytes());
        }
        for g in &self.groups {
            out.extend([u8::from(g.entered) | u8::from(g.wraps) << 1, g.clearing, g.done]);
            out.extend(g.base.to_le_bytes());
        }
        out.extend(&self.strands);
        out.extend(&self.barriers);
        for cell in &self.cells {
            out.extend(cell.flag.to_le_bytes());
            if cell.unread {
                encode_message(&cell.message, out);
            } else {
                out.push(0xFF);
            }
        }
        for store in &self.in_flight {
            match store {
                Store::Line(cell, message, tag) => {
                    out.push(1);
                    out.extend(cell.to_le_bytes());
                    out.extend(tag.to_le_bytes());
                    encode_message(message, out);
                }
                Store::Data(cell, message) => {
                    out.push(2);
                    out.extend(cell.to_le_bytes());
                    encode_message(message, out);
                }
                Store::Flag(cell, tag) => {
                    out.push(3);
                    out.extend(cell.to_le_bytes());
                    out.extend(tag.to_le_bytes());
                }
                Store::Barrier(word, value) => {
                    out.push(4);
                    out.extend(word.to_le_bytes());
                    out.push(*value);
                }
                Store::Clear(cell) => {
                    out.push(5);
                    out.extend(cell.to_le_bytes());
                }
            }
        }
    }
}

fn encode_message(m: &Message, out: &mut Vec<u8>) {
    out.extend([m.call, m.round, m.step, m.chunk, m.lane, m.sum]);
}

/// Something that can happen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A store arrives.
    Deliver(usize),
    /// A work-group takes its next step outside the ring: barrier, clearing, or leaving with nothing to do.
    Group(usize, usize),
    /// A work-item takes its next position.
    Strand(usize, usize),
}

/// A scenario with the work of every rank in every call laid out.
pub(crate) struct Machine {
    pub(crate) scenario: Scenario,
    /// By call, then rank.
    strands: Vec<Vec<Vec<Strand>>>,
    max_wires: usize,
    max_strands: usize,
}

impl Machine {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let strands: Vec<Vec<Vec<Strand>>> = (0..scenario.calls.len())
            .map(|call| (0..scenario.n).map(|rank| lay_out(&scenario, call, rank)).collect())
            .collect();
        let max_wires = scenario.calls.iter().map(|call| call.wires).max().unwrap_or(1);
        let max_strands = strands.iter().flatten().map(Vec::len).max().unwrap_or(0);
        Self { scenario, strands, max_wires, max_strands }
    }

    pub(crate) fn initial(&self) -> State {
        let n = self.scenario.n;
        State {
            ranks: vec![Rank::default(); n],
            groups: vec![Group::default(); n * self.max_wires],
            strands: vec![0; n * self.max_strands],
            cells: vec![Cell::default(); self.scenario.cells()],
            barriers: vec![0; n * self.max_wires * 4],
            in_flight: Vec::new(),
        }
    }

    /// All that can happen next, written to `out`.
    pub(crate) fn actions(&self, state: &State, out: &mut Vec<Action>) {
        out.clear();
        out.extend((0..state.in_flight.len()).map(Action::Deliver));
        for rank in 0..self.scenario.n {
            let call = state.ranks[rank].call as usize;
            if call == self.scenario.calls.len() {
                continue;
            }
            for wire in 0..self.scenario.calls[call].wires {
                let group = self.entered(state, rank, wire);
                match self.group_op(rank, wire, call, group) {
                    Some(GroupOp::Await(word)) if state.barriers[self.barrier(rank, wire, word)] != group.clearing => {}
                    Some(_) => out.push(Action::Group(rank, wire)),
                    None => {
                        let mine = self.strands[call][rank].iter().enumerate().filter(|(_, s)| s.wire == wire);
                        out.extend(
                            mine.filter(|(i, _)| self.ready(state, rank, *i, group))
                                .map(|(i, _)| Action::Strand(rank, i)),
                        );
                    }
                }
            }
        }
    }

    /// Whether nothing is left to do; if not, and nothing can happen, the ranks wait for ever.
    pub(crate) fn ended(&self, state: &State) -> Result<(), Violation> {
        if state.ranks.iter().any(|r| (r.call as usize) < self.scenario.calls.len()) {
            return Err(Violation::Deadlock);
        }
        if state.cells.iter().any(|cell| cell.unread) { Err(Violation::Leftover) } else { Ok(()) }
    }

    pub(crate) fn apply(&self, state: &mut State, action: Action) -> Result<(), Violation> {
        match action {
            Action::Deliver(i) => {
                let store = state.in_flight.remove(i);
                arrive(state, store)
            }
            Action::Group(rank, wire) => self.step_group(state, rank, wire),
            Action::Strand(rank, strand) => self.step_strand(state, rank, strand),
        }
    }

    fn barrier(&self, rank: usize, wire: usize, word: usize) -> usize {
        (rank * self.max_wires + wire) * 4 + word
    }

    /// The work-group as it is, or as it would be if it entered now. It reads the base as late as it can.
    fn entered(&self, state: &State, rank: usize, wire: usize) -> Group {
        let group = state.groups[rank * self.max_wires + wire];
        if group.entered {
            return group;
        }
        let own = state.ranks[rank];
        let span = self.scenario.span(own.call as usize, u32::from(own.base));
        let clearing = if self.scenario.rules.barriers_counted { own.wraps + 1 } else { 1 };
        Group { entered: true, wraps: span.wraps, base: span.base as u16, clearing, done: 0 }
    }

    /// The work-group's next step outside the ring.
    fn group_op(&self, rank: usize, wire: usize, call: usize, group: Group) -> Option<GroupOp> {
        let done = group.done as usize;
        let mut ops = Vec::new();
        if group.wraps {
            let rules = &self.scenario.rules;
            if rules.barriers[0] {
                ops.extend(barrier_ops(self.scenario.n, rank, 0));
            }
            if rules.clears {
                ops.push(GroupOp::Clear);
            }
            if rules.barriers[1] {
                ops.extend(barrier_ops(self.scenario.n, rank, 1));
            }
        }
        if ops.is_empty() && !self.strands[call][rank].iter().any(|s| s.wire == wire) {
            ops.push(GroupOp::Pass);
        }
        ops.get(done).copied()
    }

    fn ready(&self, state: &State, rank: usize, index: usize, group: Group) -> bool {
        let call = state.ranks[rank].call as usize;
        let strands = &self.strands[call][rank];
        let progress = |i: usize| strands[i].ops.get(state.strands[rank * self.max_strands + i] as usize);
        let Some(op) = progress(index) else { return false };
        // Chunks go their own way, but not into the next round.
        let beside =
            strands.iter().enumerate().filter(|(_, s)| s.ops[0].lane == op.lane).filter_map(|(i, _)| progress(i));
        if self.scenario.work == Work::Chunk && beside.into_iter().any(|other| other.round < op.round) {
            return false;
        }
        op.position == 0 || {
            let (cell, tag) = self.slot(call, rank, group, op, op.position - 1);
            state.cells[cell].flag == tag
        }
    }

    fn slot(&self, call: usize, rank: usize, group: Group, op: &Op, step: usize) -> (usize, u16) {
        let base = u32::from(group.base);
        let cell = self.scenario.cell(call, rank, op.lane, (base, op.round, step));
        (cell, self.scenario.tag(base, op.round, step) as u16)
    }

    fn step_strand(&self, state: &mut State, rank: usize, index: usize) -> Result<(), Violation> {
        let n = self.scenario.n;
        let call = state.ranks[rank].call as usize;
        let Strand { wire, ref ops } = self.strands[call][rank][index];
        let group = self.entered(state, rank, wire);
        state.groups[rank * self.max_wires + wire] = group;
        let op = &ops[state.strands[rank * self.max_strands + index] as usize];
        let message = |step: usize, sum: u8| Message {
            call: call as u8,
            round: op.round as u8,
            step: step as u8,
            chunk: op.chunk as u8,
            lane: op.lane as u8,
            sum,
        };
        let own = 1 << rank;
        let mut sum = own;
        if op.position > 0 {
            let step = op.position - 1;
            let (cell, _) = self.slot(call, rank, group, op, step);
            let cell = &mut state.cells[cell];
            // Ranks chunk, chunk + 1, ... have added to it, one a step.
            let meant = message(step, (0..=step.min(n - 1)).map(|k| 1 << ((op.chunk + k) % n)).sum());
            if !cell.unread || cell.message != meant {
                return Err(Violation::WrongMessage);
            }
            cell.unread = false;
            sum = if op.position < n { cell.message.sum + own } else { cell.message.sum };
        }
        if op.position >= n - 1 {
            let first = op.position == n - 1;
            if sum != (1 << n) - 1 || first != (rank == owner(n, op.chunk)) {
                return Err(Violation::WrongSum);
            }
        }
        if op.position < steps(n) {
            let (cell, tag) = self.slot(call, (rank + 1) % n, group, op, op.position);
            self.check_tag(tag)?;
            self.store_line(state, cell as u16, message(op.position, sum), tag)?;
        }
        state.strands[rank * self.max_strands + index] += 1;
        self.leave_if_done(state, rank, wire);
        Ok(())
    }

    fn check_tag(&self, tag: u16) -> Result<(), Violation> {
        let limit = self.scenario.tag(self.scenario.limit - 1, 0, steps(self.scenario.n) - 1);
        if tag == 0 || u32::from(tag) > limit { Err(Violation::TagOutOfRange) } else { Ok(()) }
    }

    fn store_line(&self, state: &mut State, cell: u16, message: Message, tag: u16) -> Result<(), Violation> {
        if self.scenario.rules.whole_lines {
            return self.store(state, Store::Line(cell, message, tag));
        }
        self.store(state, Store::Flag(cell, tag))?;
        self.store(state, Store::Data(cell, message))
    }

    fn store(&self, state: &mut State, store: Store) -> Result<(), Violation> {
        if !self.scenario.delayed {
            return arrive(state, store);
        }
        let at = state.in_flight.partition_point(|other| other < &store);
        state.in_flight.insert(at, store);
        Ok(())
    }

    fn step_group(&self, state: &mut State, rank: usize, wire: usize) -> Result<(), Violation> {
        let call = state.ranks[rank].call as usize;
        let mut group = self.entered(state, rank, wire);
        let mut first = true;
        // A signal that follows a step goes with it: nobody sees it before it arrives.
        while let Some(op) = self.group_op(rank, wire, call, group) {
            match op {
                GroupOp::Signal(word) => {
                    let next = self.barrier((rank + 1) % self.scenario.n, wire, word);
                    self.store(state, Store::Barrier(next as u16, group.clearing))?;
                }
                _ if !first => break,
                GroupOp::Clear => {
                    for cell in self.scenario.cleared_by(call, rank, wire) {
                        if self.scenario.rules.clears_in_order {
                            arrive(state, Store::Clear(cell as u16))?;
                        } else {
                            self.store(state, Store::Clear(cell as u16))?;
                        }
                    }
                }
                GroupOp::Await(_) | GroupOp::Pass => {}
            }
            first = false;
            group.done += 1;
        }
        state.groups[rank * self.max_wires + wire] = group;
        self.leave_if_done(state, rank, wire);
        Ok(())
    }

    /// A work-group with nothing left leaves; with the last the call ends and the rank may start the next.
    fn leave_if_done(&self, state: &mut State, rank: usize, wire: usize) {
        let call = state.ranks[rank].call as usize;
        let group = state.groups[rank * self.max_wires + wire];
        let progress = |i: usize| state.strands[rank * self.max_strands + i] as usize;
        let mut mine = self.strands[call][rank].iter().enumerate().filter(|(_, s)| s.wire == wire);
        if self.group_op(rank, wire, call, group).is_some() || mine.any(|(i, s)| progress(i) < s.ops.len()) {
            return;
        }
        let wires = self.scenario.calls[call].wires as u8;
        let own = &mut state.ranks[rank];
        own.left += 1;
        let advances =
            if self.scenario.rules.advance == Advance::FirstByMost { own.left == 1 } else { own.left == wires };
        if advances {
            let next = u32::from(group.base) + self.scenario.rounds(call);
            let span = TagSpan { base: u32::from(group.base), next, wraps: group.wraps };
            let argument = self.scenario.rules.tags == TagRule::Argument;
            own.base = if argument { own.base } else { self.scenario.next_base(span) as u16 };
            own.wraps += u8::from(group.wraps);
        }
        if own.left == wires {
            own.left = 0;
            own.call += 1;
            state.groups[rank * self.max_wires..][..self.max_wires].fill(Group::default());
            state.strands[rank * self.max_strands..][..self.max_strands].fill(0);
        }
    }

    /// An action in words, for the trace of a violation.
    pub(crate) fn describe(&self, state: &State, action: Action) -> impl fmt::Display {
        match action {
            Action::Deliver(i) => format!("arrives: {:?}", state.in_flight[i]),
            Action::Group(rank, wire) => {
                let call = state.ranks[rank].call as usize;
                let op = self.group_op(rank, wire, call, self.entered(state, rank, wire));
                format!("rank {rank} call {call} work-group {wire}: {op:?}")
            }
            Action::Strand(rank, index) => {
                let call = state.ranks[rank].call as usize;
                let strand = &self.strands[call][rank][index];
                let op = strand.ops[state.strands[rank * self.max_strands + index] as usize];
                format!("rank {rank} call {call}: {op:?}")
            }
        }
    }
}

/// A store reaches memory.
fn arrive(state: &mut State, store: Store) -> Result<(), Violation> {
    let mut put = |cell: u16, message: Message| {
        let cell = &mut state.cells[cell as usize];
        if cell.unread {
            return Err(Violation::Overwritten);
        }
        (cell.message, cell.unread) = (message, true);
        Ok(())
    };
    match store {
        Store::Line(cell, message, tag) => {
            put(cell, message)?;
            state.cells[cell as usize].flag = tag;
        }
        Store::Data(cell, message) => put(cell, message)?,
        Store::Flag(cell, tag) => state.cells[cell as usize].flag = tag,
        Store::Barrier(word, value) => state.barriers[word as usize] = value,
        Store::Clear(cell) => {
            let cell = &mut state.cells[cell as usize];
            if cell.unread {
                return Err(Violation::ClearedUnread);
            }
            cell.flag = 0;
        }
    }
    Ok(())
}
