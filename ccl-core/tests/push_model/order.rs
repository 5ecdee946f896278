//! What must have happened before what: the same safety, shown for sizes that no search reaches.
//!
//! One execution is walked through with a vector clock for each strand. For each cell it asks that the receive of a message
//! happens before the store of the next one or a clearing, and that a receiver doesn't take the last flag for its own. If
//! that holds, every other execution is the same one with unordered events swapped.

use super::program::{Op, lay_out};
use super::{Scenario, Violation};

type Clock = Vec<u32>;

fn join(into: &mut Clock, other: &Clock) {
    into.iter_mut().zip(other).for_each(|(a, b)| *a = (*a).max(*b));
}

#[derive(Clone, Default)]
struct Cell {
    flag: u16,
    message: u16,
    /// What the store of the flag, or of the data, knew.
    sent: Option<Clock>,
    /// The receive or clearing after it.
    taken: Option<(usize, u32)>,
}

/// The first violation that some execution can reach, if any; stores whole and released.
pub(crate) fn check(scenario: &Scenario) -> Result<(), Violation> {
    let program = lay_out(scenario);
    let n = scenario.agreed.n;
    let width = |calls: &Vec<Vec<super::program::Group>>| {
        calls.iter().map(|groups| groups.iter().map(|group| 1 + group.strands.len()).sum::<usize>()).max().unwrap_or(0)
    };
    let most = program.ranks.iter().map(width).max().unwrap_or(0);
    let mut cells = vec![Cell::default(); program.cells];
    let mut ranks: Vec<Clock> = vec![vec![0; n * most]; n];
    let mut at = vec![0; n];
    // By rank: each sequence's clock and progress, a group's first work before its strands.
    let mut running: Vec<Vec<(Clock, usize)>> = vec![Vec::new(); n];
    loop {
        let (mut progress, mut waiting) = (false, false);
        for rank in 0..n {
            let Some(groups) = program.ranks[rank].get(at[rank]) else { continue };
            waiting = true;
            let sequences: usize = groups.iter().map(|group| 1 + group.strands.len()).sum();
            if running[rank].is_empty() {
                running[rank] = vec![(ranks[rank].clone(), 0); sequences];
            }
            let mut index = 0;
            let mut done = true;
            for group in groups {
                let head = index;
                for (i, ops) in std::iter::once(&group.first).chain(&group.strands).enumerate() {
                    if i > 0 && running[rank][head].1 < group.first.len() {
                        done = false;
                        break;
                    }
                    if i > 0 && running[rank][head + i].1 == 0 {
                        let first = running[rank][head].0.clone();
                        join(&mut running[rank][head + i].0, &first);
                    }
                    let (clock, next) = &mut running[rank][head + i];
                    let own = rank * most + head + i;
                    while let Some(op) = ops.get(*next) {
                        if !step(&mut cells, op, clock, own)? {
                            break;
                        }
                        *next += 1;
                        progress = true;
                    }
                    done &= *next == ops.len();
                }
                index = head + 1 + group.strands.len();
            }
            if done {
                for (clock, _) in running[rank].drain(..) {
                    join(&mut ranks[rank], &clock);
                }
                at[rank] += 1;
                progress = true;
            }
        }
        if !waiting {
            return Ok(());
        }
        if !progress {
            return Err(Violation::Deadlock);
        }
    }
}

/// Executes an operation; false if it has to wait.
fn step(cells: &mut [Cell], op: &Op, clock: &mut Clock, own: usize) -> Result<bool, Violation> {
    let knows = |clock: &Clock, event: Option<(usize, u32)>| event.is_none_or(|(who, when)| clock[who] >= when);
    clock[own] += 1;
    let free = |cell: &Cell, clock: &Clock| {
        let taken = cell.sent.is_none() || cell.taken.is_some();
        if taken && knows(clock, cell.taken) { Ok(()) } else { Err(Violation::Overwritten) }
    };
    match op {
        Op::Store { cells: to, message, line, .. } => {
            for cell in to {
                let cell = &mut cells[*cell as usize];
                free(cell, clock)?;
                if line.is_some_and(|tag| tag == cell.flag) {
                    return Err(Violation::WrongMessage);
                }
                let flag = line.unwrap_or(cell.flag);
                *cell = Cell { flag, message: *message, sent: Some(clock.clone()), taken: None };
            }
        }
        Op::Flag { cell, tag, .. } => {
            let cell = &mut cells[*cell as usize];
            free(cell, clock)?;
            if cell.flag == *tag {
                return Err(Violation::WrongMessage);
            }
            *cell = Cell { flag: *tag, message: 0, sent: Some(clock.clone()), taken: None };
        }
        Op::Receive { flags, data } => {
            if flags.iter().any(|(cell, tag)| cells[*cell as usize].flag != *tag) {
                clock[own] -= 1;
                return Ok(false);
            }
            for (cell, _) in flags {
                let sent = cells[*cell as usize].sent.clone();
                sent.iter().for_each(|sent| join(clock, sent));
            }
            for (cell, message) in data {
                let cell = &mut cells[*cell as usize];
                // Data without a flag of its own must be known to be there.
                let known = cell.sent.as_ref().is_some_and(|sent| sent.iter().zip(&*clock).all(|(a, b)| a <= b));
                if cell.message != *message || cell.taken.is_some() || !known {
                    return Err(Violation::WrongMessage);
                }
            }
            let event = Some((own, clock[own]));
            flags.iter().chain(data).for_each(|(cell, _)| cells[*cell as usize].taken = event);
        }
        Op::Clear(all) => {
            for cell in all {
                let cell = &mut cells[*cell as usize];
                if free(cell, clock).is_err() {
                    return Err(Violation::ClearedUnread);
                }
                (cell.flag, cell.taken) = (0, Some((own, clock[own])));
                cell.sent.get_or_insert_with(|| clock.clone());
            }
        }
    }
    Ok(true)
}
