//! Breadth-first search through every state that a scenario's program can reach.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::program::{Op, Program, lay_out};
use super::{Scenario, Violation};

/// More than any scenario of the tests needs: a search that would not end says so.
const MOST_STATES: usize = 3_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Memory {
    flag: u16,
    message: u16,
    unread: bool,
    unseen: bool,
}

/// A store on its way: whose, and the how-manieth of those.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Flight {
    from: (u8, u8),
    number: u16,
    op: (u8, u8, u8, u16),
}

/// Everything that decides what happens next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    calls: Vec<u8>,
    /// By rank: for each wire how far its first work is, then for each strand.
    firsts: Vec<Vec<u8>>,
    strands: Vec<Vec<u8>>,
    memory: Vec<Memory>,
    flights: Vec<Flight>,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Deliver(usize),
    First(usize, usize),
    Strand(usize, usize, usize),
}

/// What a search found.
pub(crate) struct Outcome {
    pub(crate) states: usize,
    pub(crate) violation: Option<Violation>,
    way: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after {} states\n  {}", self.violation, self.states, self.way.join("\n  "))
    }
}

struct Machine {
    program: Program,
    delayed: bool,
}

/// Visits every reachable state until a violation is found.
pub(crate) fn search(scenario: &Scenario) -> Outcome {
    let machine = Machine { program: lay_out(scenario), delayed: scenario.delayed };
    let mut start = State {
        calls: vec![0; scenario.agreed.n],
        firsts: vec![Vec::new(); scenario.agreed.n],
        strands: vec![Vec::new(); scenario.agreed.n],
        memory: vec![Memory::default(); machine.program.cells],
        flights: Vec::new(),
    };
    (0..scenario.agreed.n).for_each(|rank| machine.begin(&mut start, rank));
    let print = |state: &State| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    };
    let root = print(&start);
    let mut visited: HashMap<u64, (u64, String)> = HashMap::from([(root, (root, String::new()))]);
    let mut frontier = VecDeque::from([(root, start)]);
    while let Some((from, state)) = frontier.pop_front() {
        let actions = machine.actions(&state);
        let mut found = if actions.is_empty() { machine.ended(&state).err().map(|v| (v, String::new())) } else { None };
        for action in actions {
            let mut next = state.clone();
            if let Err(violation) = machine.apply(&mut next, action) {
                found = Some((violation, machine.describe(&state, action)));
                break;
            }
            let key = print(&next);
            if let std::collections::hash_map::Entry::Vacant(entry) = visited.entry(key) {
                entry.insert((from, machine.describe(&state, action)));
                frontier.push_back((key, next));
            }
        }
        if let Some((violation, last)) = found {
            let (mut way, mut at) = (vec![last], from);
            while let Some((before, what)) = visited.get(&at)
                && *before != at
            {
                way.push(what.clone());
                at = *before;
            }
            way.reverse();
            return Outcome { states: visited.len(), violation: Some(violation), way };
        }
        assert!(visited.len() < MOST_STATES, "too many states to visit: {scenario:?}");
    }
    Outcome { states: visited.len(), violation: None, way: Vec::new() }
}

impl Machine {
    /// Resets a rank's progress to the beginning of its call.
    fn begin(&self, state: &mut State, rank: usize) {
        let Some(groups) = self.program.ranks[rank].get(state.calls[rank] as usize) else {
            (state.firsts[rank], state.strands[rank]) = (Vec::new(), Vec::new());
            return;
        };
        state.firsts[rank] = vec![0; groups.len()];
        state.strands[rank] = vec![0; groups.iter().map(|group| group.strands.len()).sum()];
    }

    fn op(&self, state: &State, action: Action) -> Option<&Op> {
        let (rank, wire) = match action {
            Action::First(rank, wire) | Action::Strand(rank, wire, _) => (rank, wire),
            Action::Deliver(_) => return None,
        };
        let groups = self.program.ranks[rank].get(state.calls[rank] as usize)?;
        match action {
            Action::First(..) => groups[wire].first.get(state.firsts[rank][wire] as usize),
            Action::Strand(_, _, strand) => {
                groups[wire].strands[strand].get(state.strands[rank][self.index(state, rank, wire, strand)] as usize)
            }
            Action::Deliver(_) => None,
        }
    }

    fn index(&self, state: &State, rank: usize, wire: usize, strand: usize) -> usize {
        let groups = &self.program.ranks[rank][state.calls[rank] as usize];
        groups[..wire].iter().map(|group| group.strands.len()).sum::<usize>() + strand
    }

    fn actions(&self, state: &State) -> Vec<Action> {
        let mut all = Vec::new();
        for (i, flight) in state.flights.iter().enumerate() {
            let release = matches!(self.flying(flight), Op::Flag { release: true, .. });
            let held = |other: &Flight| {
                other.from == flight.from
                    && other.number < flight.number
                    && matches!(self.flying(other), Op::Store { .. })
            };
            if !release || !state.flights.iter().any(held) {
                all.push(Action::Deliver(i));
            }
        }
        for rank in 0..self.program.ranks.len() {
            let Some(groups) = self.program.ranks[rank].get(state.calls[rank] as usize) else { continue };
            for (wire, group) in groups.iter().enumerate() {
                let first = Action::First(rank, wire);
                let actions = if self.op(state, first).is_some() {
                    vec![first]
                } else {
                    (0..group.strands.len()).map(|strand| Action::Strand(rank, wire, strand)).collect()
                };
                all.extend(actions.into_iter().filter(|action| match self.op(state, *action) {
                    None => false,
                    Some(Op::Receive { flags, .. }) => {
                        flags.iter().all(|(cell, tag)| state.memory[*cell as usize].flag == *tag)
                    }
                    Some(_) => true,
                }));
            }
        }
        all
    }

    fn flying(&self, flight: &Flight) -> &Op {
        let (call, wire, strand, at) = flight.op;
        let group = &self.program.ranks[flight.from.0 as usize][call as usize][wire as usize];
        if strand == u8::MAX { &group.first[at as usize] } else { &group.strands[strand as usize][at as usize] }
    }

    fn apply(&self, state: &mut State, action: Action) -> Result<(), Violation> {
        if let Action::Deliver(i) = action {
            let flight = state.flights.remove(i);
            return arrive(&mut state.memory, self.flying(&flight));
        }
        let Some(op) = self.op(state, action) else { return Ok(()) };
        let (rank, place) = match action {
            Action::First(rank, wire) => {
                let at = state.firsts[rank][wire];
                state.firsts[rank][wire] += 1;
                (rank, (wire as u8, u8::MAX, u16::from(at), 128 + wire as u8))
            }
            Action::Strand(rank, wire, strand) => {
                let index = self.index(state, rank, wire, strand);
                let at = state.strands[rank][index];
                state.strands[rank][index] += 1;
                (rank, (wire as u8, strand as u8, u16::from(at), index as u8))
            }
            Action::Deliver(_) => return Ok(()),
        };
        match op {
            Op::Store { own: false, .. } | Op::Flag { .. } if self.delayed => {
                let call = state.calls[rank];
                let flight = Flight {
                    from: (rank as u8, place.3),
                    number: u16::from(call) << 8 | place.2,
                    op: (call, place.0, place.1, place.2),
                };
                let key = |flight: &Flight| (flight.from, flight.number);
                let at = state.flights.partition_point(|other| key(other) < key(&flight));
                state.flights.insert(at, flight);
            }
            Op::Store { .. } | Op::Flag { .. } => arrive(&mut state.memory, op)?,
            Op::Receive { flags, data } => {
                for (cell, _) in flags {
                    state.memory[*cell as usize].unseen = false;
                }
                for (cell, message) in data {
                    let memory = &mut state.memory[*cell as usize];
                    if !memory.unread || memory.message != *message {
                        return Err(Violation::WrongMessage);
                    }
                    (memory.unread, memory.message) = (false, 0);
                }
            }
            Op::Clear(cells) => {
                for cell in cells {
                    let memory = &mut state.memory[*cell as usize];
                    if memory.unseen {
                        return Err(Violation::ClearedUnread);
                    }
                    memory.flag = 0;
                }
            }
        }
        let groups = &self.program.ranks[rank][state.calls[rank] as usize];
        let firsts = groups.iter().zip(&state.firsts[rank]).all(|(group, at)| group.first.len() == *at as usize);
        let strands = groups.iter().flat_map(|group| &group.strands);
        if firsts && strands.zip(&state.strands[rank]).all(|(strand, at)| strand.len() == *at as usize) {
            state.calls[rank] += 1;
            self.begin(state, rank);
        }
        Ok(())
    }

    fn ended(&self, state: &State) -> Result<(), Violation> {
        let ended = |(calls, at): (&Vec<_>, &u8)| calls.len() == *at as usize;
        if !self.program.ranks.iter().zip(&state.calls).all(ended) {
            return Err(Violation::Deadlock);
        }
        if state.memory.iter().any(|memory| memory.unread || memory.unseen) { Err(Violation::Leftover) } else { Ok(()) }
    }

    fn describe(&self, state: &State, action: Action) -> String {
        match action {
            Action::Deliver(i) => format!("arrives: {:?}", self.flying(&state.flights[i])),
            Action::First(rank, _) | Action::Strand(rank, ..) => {
                format!("rank {rank} call {} {action:?}: {:?}", state.calls[rank], self.op(state, action))
            }
        }
    }
}

fn arrive(memory: &mut [Memory], op: &Op) -> Result<(), Violation> {
    match op {
        Op::Store { cells, message, line, .. } => {
            for cell in cells {
                let memory = &mut memory[*cell as usize];
                if memory.unread || (line.is_some() && memory.unseen) {
                    return Err(Violation::Overwritten);
                }
                (memory.message, memory.unread) = (*message, true);
                if let Some(tag) = line {
                    (memory.flag, memory.unseen) = (*tag, true);
                }
            }
        }
        Op::Flag { cell, tag, .. } => {
            let memory = &mut memory[*cell as usize];
            if memory.unseen {
                return Err(Violation::Overwritten);
            }
            (memory.flag, memory.unseen) = (*tag, true);
        }
        Op::Receive { .. } | Op::Clear(_) => {}
    }
    Ok(())
}
