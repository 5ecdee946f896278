//! What must have happened before what: the same safety, shown for sizes that no search reaches.
//!
//! One execution is walked through with a vector clock for each sequence of work. For each line of staging memory it
//! asks that the receive of a message happens before the store of the next one or a clearing, and that the next
//! receiver begins to look after the last receive and doesn't take the last tag for its own. If that holds, every
//! other execution is the same one with unordered events swapped: the first event to differ would have to be a
//! receive that sees another message, and there is none that it could see.

use super::machine::Violation;
use super::{Advance, Scenario, TagRule};

/// How many events of each sequence of work are known to have happened.
type Clock = Vec<u32>;

fn join(into: &mut Clock, other: &Clock) {
    for (a, b) in into.iter_mut().zip(other) {
        *a = (*a).max(*b);
    }
}

fn join_all(clocks: &mut [Clock]) {
    let mut all = clocks[0].clone();
    for clock in &clocks[1..] {
        join(&mut all, clock);
    }
    clocks.fill(all);
}

/// An event: number `.1` of sequence `.0`.
type Event = (usize, u32);

fn knows(clock: &Clock, event: Event) -> bool {
    clock[event.0] >= event.1
}

fn happen(clock: &mut Clock, sequence: usize) -> Event {
    clock[sequence] += 1;
    (sequence, clock[sequence])
}

/// The last that happened to a line: its flag, and the receive or the clearing.
#[derive(Clone, Copy)]
struct Last {
    tag: u32,
    event: Event,
}

/// A ring of clocks over a scenario.
struct Walk<'a> {
    scenario: &'a Scenario,
    cells: Vec<Option<Last>>,
}

/// The first violation that some execution of `scenario` can reach, if any. Chunks advance freely within a round,
/// lines arrive whole and later; the base is advanced by the library's rule.
pub(crate) fn check(scenario: &Scenario) -> Result<(), Violation> {
    let rules = &scenario.rules;
    assert!(rules.whole_lines && rules.barriers_counted && rules.advance != Advance::FirstByMost, "not expressed here");
    let (n, lines) = (scenario.n, scenario.lines);
    let sequences = n * lines * (n + 1);
    let mut walk = Walk { scenario, cells: vec![None; scenario.cells()] };
    let mut ranks: Vec<Clock> = vec![vec![0; sequences]; n];
    let mut base = 0;
    for call in 0..scenario.calls.len() {
        let span = scenario.span(call, base);
        let part = scenario.part(call);
        // A rank starts a call when all of its work in the last has ended: all work-groups start from one clock.
        let started = ranks.clone();
        for wire in 0..scenario.calls[call].wires {
            let mut group = started.clone();
            if span.wraps {
                walk.wrap(call, wire, &mut group)?;
            }
            for lane in wire * part..(wire + 1) * part {
                walk.ring(call, lane, span.base, &mut group.clone(), &mut ranks)?;
            }
            // A work-group without lines has its barriers and its clearing behind it when the call ends, too.
            ranks.iter_mut().zip(&group).for_each(|(rank, own)| join(rank, own));
        }
        base = if rules.tags == TagRule::Argument { base } else { scenario.next_base(span) };
    }
    Ok(())
}

impl Walk<'_> {
    fn wrap(&mut self, call: usize, wire: usize, group: &mut [Clock]) -> Result<(), Violation> {
        let rules = self.scenario.rules;
        if rules.barriers[0] {
            join_all(group);
        }
        if rules.clears {
            let (n, lines) = (self.scenario.n, self.scenario.lines);
            for (rank, clock) in group.iter_mut().enumerate() {
                let event = happen(clock, n * n * lines + rank * lines + wire);
                for cell in self.scenario.cleared_by(call, rank, wire) {
                    if self.cells[cell].is_some_and(|last| !knows(clock, last.event)) {
                        return Err(Violation::ClearedUnread);
                    }
                    self.cells[cell] = Some(Last { tag: 0, event });
                }
            }
        }
        if rules.barriers[1] {
            join_all(group);
        }
        Ok(())
    }

    /// All rounds of one line of the slot, on all ranks. `own` is what each rank's work-item knows.
    fn ring(
        &mut self,
        call: usize,
        lane: usize,
        base: u32,
        own: &mut [Clock],
        ranks: &mut [Clock],
    ) -> Result<(), Violation> {
        let n = self.scenario.n;
        let most = (0..n).map(|chunk| self.scenario.rounds_of(call, lane, chunk)).max().unwrap_or(0);
        for round in 0..most {
            // By chunk and rank: a rank meets a chunk once or twice in a round.
            let mut strands: Vec<Vec<Clock>> = (0..n).map(|_| own.to_vec()).collect();
            for chunk in (0..n).filter(|&chunk| round < self.scenario.rounds_of(call, lane, chunk)) {
                self.chain(call, lane, (base, round), chunk, &mut strands[chunk])?;
            }
            for strand in &strands {
                own.iter_mut().zip(strand).for_each(|(own, strand)| join(own, strand));
            }
        }
        ranks.iter_mut().zip(own).for_each(|(rank, own)| join(rank, own));
        Ok(())
    }

    /// One chunk's way through all positions.
    fn chain(
        &mut self,
        call: usize,
        lane: usize,
        (base, round): (u32, usize),
        chunk: usize,
        strand: &mut [Clock],
    ) -> Result<(), Violation> {
        let n = self.scenario.n;
        let mut arriving: Option<(Clock, Event)> = None;
        for position in self.scenario.positions() {
            let rank = (chunk + position) % n;
            assert_eq!(self.scenario.chunk_at(rank, position), chunk, "the chain goes from rank to rank");
            let sequence = (rank * self.scenario.lines + lane) * n + chunk;
            let event = happen(&mut strand[rank], sequence);
            if let Some((sent, place)) = arriving.take() {
                let (cell, tag) = (place.0, place.1);
                if let Some(last) = self.cells[cell] {
                    // The receiver may look at any time before the store arrives.
                    if tag == last.tag {
                        return Err(Violation::WrongMessage);
                    }
                    if !knows(&sent, last.event) {
                        return Err(if last.tag == 0 { Violation::ClearedUnread } else { Violation::Overwritten });
                    }
                    // Flags older than the last are out of sight only if the receiver itself knows of the last.
                    if !knows(&strand[rank], last.event) {
                        return Err(Violation::WrongMessage);
                    }
                }
                self.cells[cell] = Some(Last { tag, event });
                join(&mut strand[rank], &sent);
            }
            if position < *self.scenario.positions().end() {
                let next = (rank + 1) % n;
                let cell = self.scenario.cell(call, next, lane, (base, round, position));
                arriving = Some((strand[rank].clone(), (cell, self.scenario.tag(base, round, position))));
            }
        }
        Ok(())
    }
}
