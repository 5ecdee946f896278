//! Breadth-first search through every state that a scenario can reach.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

use super::Scenario;
use super::machine::{Action, Machine, State, Violation};

/// More than any scenario of the tests needs: a search that would not end says so.
const MOST_STATES: usize = 8_000_000;

/// What a search found.
pub(crate) struct Outcome {
    pub(crate) states: usize,
    /// The first violation, nearest to the start, and the way to it.
    pub(crate) violation: Option<(Violation, Vec<String>)>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.violation {
            None => write!(f, "{} states, no violation", self.states),
            Some((violation, way)) => write!(f, "{violation:?} after {} states:\n  {}", self.states, way.join("\n  ")),
        }
    }
}

/// Fingerprints are hashes already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are u64");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// By fingerprint: the state that it was reached from, and by which of the actions possible there.
type Visited = HashMap<u64, (u64, u16), BuildHasherDefault<Same>>;

fn fingerprint(state: &State, buffer: &mut Vec<u8>) -> u64 {
    state.encode(buffer);
    let mut hasher = DefaultHasher::new();
    hasher.write(buffer);
    hasher.finish()
}

/// Visits every reachable state until a violation is found.
pub(crate) fn search(scenario: &Scenario) -> Outcome {
    let machine = Machine::new(scenario.clone());
    let (mut actions, mut buffer) = (Vec::new(), Vec::new());
    let start = machine.initial();
    let root = fingerprint(&start, &mut buffer);
    let mut visited = Visited::default();
    visited.insert(root, (root, 0));
    let mut frontier = VecDeque::from([(root, start)]);
    while let Some((from, state)) = frontier.pop_front() {
        machine.actions(&state, &mut actions);
        let mut found =
            if actions.is_empty() { machine.ended(&state).err().map(|violation| (violation, None)) } else { None };
        for (i, &action) in actions.iter().enumerate() {
            let mut next = state.clone();
            if let Err(violation) = machine.apply(&mut next, action) {
                found = Some((violation, Some(i as u16)));
                break;
            }
            let print = fingerprint(&next, &mut buffer);
            visited.entry(print).or_insert_with(|| {
                frontier.push_back((print, next));
                (from, i as u16)
            });
        }
        if let Some((violation, last)) = found {
            let way = way_to(&machine, &visited, from, last);
            return Outcome { states: visited.len(), violation: Some((violation, way)) };
        }
        assert!(visited.len() < MOST_STATES, "too many states to visit: {scenario:?}");
    }
    Outcome { states: visited.len(), violation: None }
}

/// The actions from the start to the state `to` and, if there is one, the action `last` in it.
fn way_to(machine: &Machine, visited: &Visited, to: u64, last: Option<u16>) -> Vec<String> {
    let mut indices = Vec::from_iter(last);
    let mut at = to;
    while let Some(&(from, index)) = visited.get(&at)
        && from != at
    {
        indices.push(index);
        at = from;
    }
    let mut state = machine.initial();
    let mut actions: Vec<Action> = Vec::new();
    let mut way = Vec::new();
    for index in indices.into_iter().rev() {
        machine.actions(&state, &mut actions);
        let action = actions[index as usize];
        way.push(machine.describe(&state, action).to_string());
        if machine.apply(&mut state, action).is_err() {
            break;
        }
    }
    way
}
