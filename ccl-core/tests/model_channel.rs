//! A channel, searched in every state: a sender and a receiver, messages of one to three lines or with a flag apart, stores
//! that arrive at once or later in any order, tags that begin anew. What a receiver takes is exactly its message; each rule
//! that is removed is found.
#![allow(missing_docs, reason = "test code")]

use ccl_core::protocol::channel::{CHANNEL_DEPTH, Credit, channel_slot, lap, next_sent};
use std::collections::HashSet;

/// Lines of a slot. In bulk the last "line" is the flag, and those before it are data.
const LINES: usize = 3;

/// A rule that is not kept.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Without {
    Nothing,
    Credit,
    Clearing,
    /// The credit goes before the last line is taken.
    LateCredit,
    /// The clearing may reach memory after the credit that says that it is done.
    ClearingFence,
    /// In bulk, the flag may arrive before the data.
    FlagLast,
    /// One slot for two messages.
    Depth,
}

/// What a line holds: its tag, and the number of the message that it was stored for.
type Line = (u32, u16);

/// A store on its way.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Store {
    Line(usize, usize, Line),
    /// The credit, and for which message: stores to one word by one rank don't pass each other.
    Credit(u16, u32),
    Clear,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    slots: [[Line; LINES]; CHANNEL_DEPTH],
    credit: u32,
    /// Sender: tag and number of the last message, lines of it that are stored.
    sent: u32,
    message: u16,
    stored: usize,
    /// Whether the next message has its room.
    granted: bool,
    /// Receiver: the same of the message that it takes.
    taken: u32,
    awaited: u16,
    lines: usize,
    told: bool,
    flying: Vec<Store>,
}

struct Model {
    /// Lines of each message.
    messages: Vec<usize>,
    limit: u32,
    bulk: bool,
    delayed: bool,
    without: Without,
}

impl Model {
    fn slot(&self, tag: u32) -> usize {
        if self.without == Without::Depth { 0 } else { channel_slot(tag) }
    }

    /// Lines of a message as they are stored; in bulk data and then the flag.
    fn places(&self, message: u16) -> usize {
        self.messages[message as usize].min(LINES)
    }

    fn store(&self, state: &mut State, store: Store) {
        if self.delayed {
            state.flying.push(store);
            state.flying.sort();
        } else {
            Self::land(state, &store);
        }
    }

    fn land(state: &mut State, store: &Store) {
        match store {
            Store::Line(slot, line, content) => state.slots[*slot][*line] = *content,
            Store::Credit(_, credit) => state.credit = *credit,
            Store::Clear => state.slots.iter_mut().flatten().for_each(|line| line.0 = 0),
        }
    }

    /// Every state that may follow; the error says what went wrong.
    fn next(&self, state: &State) -> Result<Vec<State>, String> {
        let mut all = Vec::new();
        for i in 0..state.flying.len() {
            let mut next = state.clone();
            let store = next.flying.remove(i);
            // What one fence or release keeps in order: a flag behind its data, a credit behind a clearing, and credits.
            let behind = |before: &Store| match (&store, before) {
                (Store::Line(_, line, _), Store::Line(_, other, _)) => {
                    self.bulk && self.without != Without::FlagLast && *line == LINES - 1 && *other < LINES - 1
                }
                (Store::Credit(..), Store::Clear) => self.without != Without::ClearingFence,
                (Store::Credit(of, _), Store::Credit(other, _)) => other < of,
                _ => false,
            };
            if !next.flying.iter().any(behind) {
                Self::land(&mut next, &store);
                all.push(next);
            }
        }
        self.send(state, &mut all);
        self.receive(state, &mut all)?;
        Ok(all)
    }

    fn send(&self, state: &State, all: &mut Vec<State>) {
        if state.message as usize == self.messages.len() {
            return;
        }
        let (tag, needs) = next_sent(state.sent, lap(self.limit));
        let mut next = state.clone();
        if !state.granted {
            let met =
                self.without == Without::Credit && !matches!(needs, Credit::Cleared) || needs.is_met(state.credit);
            if met {
                next.granted = true;
                all.push(next);
            }
            return;
        }
        let places = self.places(state.message);
        let line = if self.bulk && state.stored + 1 == places { LINES - 1 } else { state.stored };
        self.store(&mut next, Store::Line(self.slot(tag), line, (tag, state.message)));
        next.stored += 1;
        if next.stored == places {
            (next.sent, next.message, next.stored, next.granted) = (tag, state.message + 1, 0, false);
        }
        all.push(next);
    }

    fn receive(&self, state: &State, all: &mut Vec<State>) -> Result<(), String> {
        if state.awaited as usize == self.messages.len() {
            return Ok(());
        }
        let tag = state.taken + 1;
        let places = self.places(state.awaited);
        let mut next = state.clone();
        if state.lines < places {
            let slot = &state.slots[self.slot(tag)];
            // In bulk the flag is seen first, then the data is taken.
            let (line, flag) = match (self.bulk, state.lines) {
                (false, line) => (line, true),
                (true, 0) => (LINES - 1, true),
                (true, line) => (line - 1, false),
            };
            if flag && slot[line].0 != tag {
                return Ok(());
            }
            if slot[line].1 != state.awaited {
                return Err(format!("message {} takes a line of message {}", state.awaited, slot[line].1));
            }
            next.lines += 1;
            // Too early by one line.
            if self.without == Without::LateCredit && next.lines + 1 == places && tag != lap(self.limit) {
                self.store(&mut next, Store::Credit(state.awaited, tag));
                next.told = true;
            }
            all.push(next);
            return Ok(());
        }
        let credit = if tag == lap(self.limit) { 0 } else { tag };
        if credit == 0 && self.without != Without::Clearing {
            // Own memory, but past the caches: it may be late as well, unless a fence follows.
            self.store(&mut next, Store::Clear);
        }
        if !next.told {
            self.store(&mut next, Store::Credit(state.awaited, credit));
        }
        (next.taken, next.awaited, next.lines, next.told) = (credit, state.awaited + 1, 0, false);
        all.push(next);
        Ok(())
    }

    /// States seen, or what went wrong.
    fn search(&self) -> Result<usize, String> {
        let start = State {
            slots: [[(0, u16::MAX); LINES]; CHANNEL_DEPTH],
            credit: 0,
            sent: 0,
            message: 0,
            stored: 0,
            granted: false,
            taken: 0,
            awaited: 0,
            lines: 0,
            told: false,
            flying: Vec::new(),
        };
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        let mut ended = false;
        while let Some(state) = open.pop() {
            let over = state.message as usize == self.messages.len() && state.awaited as usize == self.messages.len();
            let following = self.next(&state)?;
            if following.is_empty() && !over {
                return Err(format!("stuck before message {} of {}", state.awaited, self.messages.len()));
            }
            ended |= over;
            open.extend(following.into_iter().filter(|next| seen.insert(next.clone())));
        }
        if ended { Ok(seen.len()) } else { Err("it never ends".into()) }
    }
}

fn messages() -> Vec<Vec<usize>> {
    vec![
        vec![1, 1, 1, 1, 1, 1, 1, 1, 1],
        vec![3, 1, 1, 1, 3, 1, 1, 1, 3],
        vec![2, 3, 1, 2, 2, 3, 1, 2, 3, 1],
        vec![3, 3, 3, 3, 3, 3],
    ]
}

fn models(without: Without) -> impl Iterator<Item = Model> {
    messages().into_iter().flat_map(move |messages| {
        [(4, false, false), (4, false, true), (5, false, true), (4, true, true), (100, true, true), (1, true, false)]
            .map(|(limit, bulk, delayed)| Model { messages: messages.clone(), limit, bulk, delayed, without })
    })
}

#[test]
fn every_message_is_taken_as_it_was_sent() {
    let mut states = 0;
    for model in models(Without::Nothing) {
        let found = model.search();
        states +=
            found.unwrap_or_else(|why| panic!("{:?} limit {} bulk {}: {why}", model.messages, model.limit, model.bulk));
    }
    println!("{states} states");
    assert!(states > 3000, "{states}");
}

#[test]
fn each_rule_is_needed() {
    for without in [
        Without::Credit,
        Without::Clearing,
        Without::LateCredit,
        Without::ClearingFence,
        Without::FlagLast,
        Without::Depth,
    ] {
        assert!(models(without).any(|model| model.search().is_err()), "{without:?} removed, and nobody notices");
    }
}
