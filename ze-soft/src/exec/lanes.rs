//! What an executor has to do: lanes of items, each lane in order.
//!
//! An immediate command list is one lane for its life. Each run of a regular list on a queue is a lane of its own: so
//! that a list that waits doesn't hold up the queue's other lists, one of which may be what it waits for.

use super::{Executor, Outcome, Source};
use crate::engine::cuda::Home;
use crate::event::Counter;
use crate::graph::{Executable, Part};
use crate::list::{Chain, Recording};
use crate::op::{Command, Op, Signal, Waits};
use crate::queue::Flow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A lane of one executor.
#[derive(Clone, Copy)]
pub(crate) struct LaneId(usize);

/// How far a lane has come.
#[derive(Default)]
pub(crate) struct Progress {
    submitted: AtomicU64,
    done: AtomicU64,
    /// Where the executor's stream stood behind the newest item that has run.
    given: AtomicU64,
}

impl Progress {
    /// How many items were submitted.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Whether the first `count` items have run, also on the executor's stream; if so, what they wrote is seen.
    pub(crate) fn is_over(&self, count: u64, executor: &Executor) -> bool {
        self.done.load(Ordering::Acquire) >= count && executor.retired(self.given.load(Ordering::Relaxed))
    }
}

/// What a lane is given.
pub(crate) enum Work {
    /// One command, in a box of the executor's that is used again.
    Command(Box<Command>),
    /// A closed list, to be executed once.
    Run(Run),
    /// One executor's share of a graph's replay.
    Part(Part),
}

/// One execution of a closed list.
pub(crate) struct Run {
    /// The list's commands.
    pub(crate) recording: Arc<Recording>,
    /// Which execution of these commands this is, from 1.
    pub(crate) repetition: u64,
    /// The list's executions, and which of them this is, from 1: they don't overtake each other.
    pub(crate) chain: (Arc<Chain>, u64),
    /// The queue it was submitted to, and its number there, from 1.
    pub(crate) flow: Option<(Arc<Flow>, u64)>,
    /// What the waits that were left open when the list was recorded wait for, as of this submission.
    pub(crate) targets: Vec<u64>,
    /// The next command.
    pub(crate) at: usize,
}

impl Run {
    fn blocked(&self, home: Home) -> Option<Option<Source>> {
        let (chain, number) = &self.chain;
        if self.at == 0 && !chain.reached(number - 1) {
            return Some(None);
        }
        let command = self.recording.commands.get(self.at)?;
        if let Some((flow, number)) = &self.flow
            && command.is_full_barrier()
            && !flow.reached(number - 1)
        {
            return Some(None);
        }
        command.waits.blocked(&self.targets, home)
    }

    /// Notes that its next command has run, and says whether it was the last.
    fn advance(&mut self) -> bool {
        self.at += 1;
        if self.at < self.recording.commands.len() {
            return false;
        }
        let (chain, number) = &self.chain;
        chain.complete(*number);
        if let Some((flow, number)) = &self.flow {
            flow.complete(*number);
        }
        true
    }
}

struct Item {
    ticket: u64,
    position: u64,
    work: Work,
}

impl Item {
    /// Shows what it could run next until `each` has enough: the number of a node of a graph, else 0. If there is
    /// nothing, says what it waits for, as far as that is known.
    fn look(&self, home: Home, mut each: impl FnMut(usize) -> bool) -> Option<Option<Source>> {
        let blocked = match &self.work {
            Work::Command(command) => command.waits.blocked(&[], home),
            Work::Run(run) => run.blocked(home),
            Work::Part(part) => return part.look(home, each),
        };
        if blocked.is_none() {
            each(0);
        }
        blocked
    }
}

#[derive(Default)]
struct Lane {
    items: VecDeque<Item>,
    submitted: u64,
    progress: Option<Arc<Progress>>,
    /// What commands that signal the lane's own counter move on.
    counter: Option<Arc<Counter>>,
    /// It is in `State::live`.
    live: bool,
    /// A command taken out of it is running.
    running: bool,
    closed: bool,
}

impl Lane {
    /// Its next item, where that is a command that may run: the usual case, without a choice.
    #[inline]
    fn take_ready(&mut self, limit: u64, home: Home) -> Option<Picked> {
        let Item { ticket, work: Work::Command(command), .. } = self.items.front()? else { return None };
        if *ticket > limit || command.waits.blocked(&[], home).is_some() {
            return None;
        }
        let Some(Item { work: Work::Command(command), position, .. }) = self.items.pop_front() else { return None };
        self.running = true;
        Some(Picked::Command(command, position))
    }
}

/// What was chosen to run.
pub(super) enum Picked {
    /// A command, and its place in its lane.
    Command(Box<Command>, u64),
    /// The command at `at` of a list, if it has that many, and what its counter becomes.
    Step { recording: Arc<Recording>, at: usize, count: u64 },
    /// A node of a graph.
    Node { graph: Arc<Executable>, node: usize, replay: u64 },
}

/// What has run.
pub(super) enum Ran {
    /// A command: its box, emptied, and where its lane's counter comes, if it is to.
    Command { emptied: Box<Command>, count: Option<u64> },
    /// A command of a run, or a node of a part.
    Part,
}

/// What follows from that, to be dropped when nobody holds the latch any more.
pub(super) struct Finished {
    /// Whether that finished an item.
    pub(super) item: bool,
    _over: Option<Work>,
    _counter: Option<Arc<Counter>>,
}

/// The lanes, and what the thread and the submitters tell each other.
#[derive(Default)]
pub(super) struct State {
    lanes: Vec<Lane>,
    free: Vec<usize>,
    /// Lanes with something to run.
    live: Vec<usize>,
    /// Boxes of commands that have run, emptied: a command is large, and is not to be allocated anew each time.
    #[expect(clippy::vec_box, reason = "a command moves by its box")]
    spare: Vec<Box<Command>>,
    /// The newest ticket given out.
    pub(super) ticket: u64,
    pub(super) kicked: bool,
    /// The executor's stream, if it has one.
    pub(super) home: Home,
}

impl State {
    fn vacant(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.lanes.push(Lane::default());
            self.lanes.len() - 1
        })
    }

    pub(super) fn open_lane(&mut self, counter: Option<Arc<Counter>>) -> (LaneId, Arc<Progress>) {
        let id = self.vacant();
        let progress = Arc::new(Progress::default());
        let lane = &mut self.lanes[id];
        lane.progress = Some(progress.clone());
        lane.counter = counter;
        lane.submitted = 0;
        lane.closed = false;
        (LaneId(id), progress)
    }

    /// Gives back the lane's counter if nothing is left that moves it.
    pub(super) fn close_lane(&mut self, LaneId(id): LaneId) -> Option<Arc<Counter>> {
        self.lanes[id].closed = true;
        self.retire(id)
    }

    #[inline]
    pub(super) fn push(&mut self, LaneId(id): LaneId, work: Work) -> (u64, u64) {
        self.ticket += 1;
        let lane = &mut self.lanes[id];
        lane.submitted += 1;
        if let Some(progress) = &lane.progress {
            progress.submitted.store(lane.submitted, Ordering::Relaxed);
        }
        lane.items.push_back(Item { ticket: self.ticket, position: lane.submitted, work });
        if !lane.live {
            lane.live = true;
            self.live.push(id);
        }
        (self.ticket, lane.submitted)
    }

    /// Waits only where there are any: they are large.
    #[inline]
    pub(super) fn push_command(
        &mut self,
        lane: LaneId,
        op: Op,
        signal: Option<Signal>,
        waits: Option<Waits>,
    ) -> (u64, u64) {
        let mut command = self.spare.pop().unwrap_or_else(|| Box::new(Command::nothing()));
        command.fill(op, signal, waits);
        self.push(lane, Work::Command(command))
    }

    pub(super) fn push_alone(&mut self, work: Work) -> (u64, u64) {
        let id = self.vacant();
        let lane = &mut self.lanes[id];
        lane.submitted = 0;
        lane.closed = true;
        self.push(LaneId(id), work)
    }

    /// Takes the next command to run. With a seed it is any of those that may run, else the oldest.
    pub(super) fn pick(&mut self, limit: u64, seed: u64) -> Result<(LaneId, Picked), Outcome> {
        if seed == 0
            && let [id] = self.live[..]
            && let Some(picked) = self.lanes[id].take_ready(limit, self.home)
        {
            return Ok((LaneId(id), picked));
        }
        let mut best: Option<(u64, usize, usize)> = None;
        let mut waiting: Option<(u64, Option<Source>)> = None;
        let mut ready = 0;
        for &id in &self.live {
            let Some(head) = self.lanes[id].items.front() else { continue };
            let older = best.is_none_or(|(ticket, ..)| head.ticket < ticket);
            if head.ticket > limit || (seed == 0 && !older) {
                continue;
            }
            let each = |node: usize| {
                ready += 1;
                // Of k that are ready each ends up chosen with probability 1/k.
                let word = seed ^ self.ticket ^ head.ticket << 20 ^ (node as u64) << 40;
                if seed == 0 || scramble(word).is_multiple_of(ready) {
                    best = Some((head.ticket, id, node));
                }
                seed != 0
            };
            if let Some(source) = head.look(self.home, each)
                && waiting.is_none_or(|(ticket, _)| head.ticket < ticket)
            {
                waiting = Some((head.ticket, source));
            }
        }
        let Some((_, id, node)) = best else {
            return Err(waiting.map_or(Outcome::Empty, |(_, source)| Outcome::Blocked(source)));
        };
        let lane = &mut self.lanes[id];
        lane.running = true;
        let picked = match lane.items.front() {
            Some(Item { work: Work::Run(run), .. }) => {
                let count = run.recording.epoch.count(run.repetition, run.at);
                Picked::Step { recording: run.recording.clone(), at: run.at, count }
            }
            Some(Item { work: Work::Part(part), .. }) => {
                Picked::Node { graph: part.executable().clone(), node, replay: part.replay() }
            }
            _ => match lane.items.pop_front() {
                Some(Item { work: Work::Command(command), position, .. }) => Picked::Command(command, position),
                _ => return Err(Outcome::Empty),
            },
        };
        Ok((LaneId(id), picked))
    }

    /// Notes that what [`Self::pick`] took has run. `given` is where the executor's stream stands.
    pub(super) fn finish(&mut self, LaneId(id): LaneId, ran: Ran, given: u64) -> Finished {
        let lane = &mut self.lanes[id];
        lane.running = false;
        let mut over = None;
        match ran {
            Ran::Command { emptied, count } => {
                self.spare.push(emptied);
                if let (Some(count), Some(counter)) = (count, &lane.counter) {
                    counter.advance(count);
                }
            }
            Ran::Part => {
                // A run stays at the front of its lane until its last command has run, and so does a part.
                let last = match lane.items.front_mut().map(|item| &mut item.work) {
                    Some(Work::Run(run)) => run.advance(),
                    Some(Work::Part(part)) => part.advance(),
                    Some(Work::Command(_)) | None => false,
                };
                if !last {
                    return Finished { item: false, _over: None, _counter: None };
                }
                over = lane.items.pop_front().map(|item| item.work);
            }
        }
        if let Some(progress) = &lane.progress {
            progress.given.store(given, Ordering::Relaxed);
            // Only under the latch, so this isn't a race.
            progress.done.store(progress.done.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        let counter = self.retire(id);
        Finished { item: true, _over: over, _counter: counter }
    }

    /// Takes a lane without items off the live ones, and frees it if its list is gone; gives back its counter then.
    fn retire(&mut self, id: usize) -> Option<Arc<Counter>> {
        let lane = &mut self.lanes[id];
        if lane.running || !lane.items.is_empty() {
            return None;
        }
        if lane.live {
            lane.live = false;
            match self.live[..] {
                [_] => self.live.clear(),
                _ => self.live.retain(|&live| live != id),
            }
        }
        if !lane.closed {
            return None;
        }
        lane.progress = None;
        self.free.push(id);
        lane.counter.take()
    }
}

fn scramble(mut word: u64) -> u64 {
    // splitmix64's finaliser: neighbouring tickets give unrelated choices.
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
