//! Symbolic execution of the calls that go through channels: all ranks at once, each as one thread that plays all wires,
//! with the slots and credits that there are.

use std::collections::VecDeque;
use std::ops::Range;

use super::channel::ChannelPlan;
use crate::collective::{Collective, Pieces};
use crate::protocol::channel::{CHANNEL_DEPTH, CHANNEL_WIRES};

/// One message: who, on which wire, which bytes of the piece.
#[derive(Clone, PartialEq, Debug)]
struct Message {
    wire: u32,
    bytes: Range<u64>,
}

#[derive(Clone, PartialEq, Debug)]
enum Step {
    Send(usize, Message),
    Take(usize, Message),
}

/// What a rank does, in order: by round, first all that it sends, then all that it takes.
fn steps(plan: &ChannelPlan, rank: usize, pieces: &Pieces<'_>) -> Vec<Step> {
    let (n, channels, wide) = (plan.n, plan.channels, plan.wide());
    let mut steps = Vec::new();
    for round in 0..plan.rounds(pieces) {
        for sends in [true, false] {
            for wire in 0..channels.wires {
                for peer in (1..n).map(|distance| (rank + distance) % n) {
                    let piece = if sends { pieces.send(peer) } else { pieces.receive(peer) };
                    let Some(bytes) = piece.and_then(|p| channels.message(p.bytes, wide, round, wire)) else {
                        continue;
                    };
                    let message = Message { wire, bytes };
                    steps.push(if sends { Step::Send(peer, message) } else { Step::Take(peer, message) });
                }
            }
        }
    }
    steps
}

/// Whether the ranks' calls, whose pieces these are, fit together: every message is taken by whom it is for, each byte of
/// every piece travels once, nobody waits for ever. The error says what is wrong.
pub fn verify(plan: &ChannelPlan, pieces: &[Pieces<'_>]) -> Result<(), String> {
    let n = plan.n;
    for (rank, own) in pieces.iter().enumerate() {
        for (peer, other) in pieces.iter().enumerate() {
            let (sent, taken) = (own.send(peer), other.receive(rank));
            // Whoever reduces in place of sending has no piece of its own to move.
            if sent.map(|piece| piece.bytes) != taken.map(|piece| piece.bytes) {
                return Err(format!("rank {rank} sends {sent:?} to rank {peer}, which takes {taken:?}"));
            }
        }
    }
    let programs: Vec<Vec<Step>> = pieces.iter().enumerate().map(|(rank, own)| steps(plan, rank, own)).collect();
    let mut at = vec![0; n];
    let place = |from: usize, to: usize, wire: u32| (from * n + to) * CHANNEL_WIRES + wire as usize;
    let mut channels = vec![VecDeque::new(); n * n * CHANNEL_WIRES];
    loop {
        let mut moved = false;
        for rank in 0..n {
            while let Some(step) = programs[rank].get(at[rank]) {
                match step {
                    Step::Send(to, message) => {
                        let channel = &mut channels[place(rank, *to, message.wire)];
                        if channel.len() == CHANNEL_DEPTH {
                            break;
                        }
                        channel.push_back(message.clone());
                    }
                    Step::Take(from, message) => match channels[place(*from, rank, message.wire)].pop_front() {
                        None => break,
                        Some(other) if other == *message => {}
                        Some(other) => {
                            return Err(format!("rank {rank} takes {other:?} of rank {from} for {message:?}"));
                        }
                    },
                }
                at[rank] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    if let Some(stuck) = (0..n).find(|rank| at[*rank] < programs[*rank].len()) {
        return Err(format!("rank {stuck} waits for ever at {:?}", programs[stuck][at[stuck]]));
    }
    if channels.iter().any(|channel| !channel.is_empty()) {
        return Err("messages that nobody takes".into());
    }
    programs.iter().zip(pieces).enumerate().try_for_each(|(rank, (program, own))| cover(plan, rank, program, own))
}

/// Each byte of what a rank receives arrives once.
fn cover(plan: &ChannelPlan, rank: usize, program: &[Step], own: &Pieces<'_>) -> Result<(), String> {
    let reduces = plan.call.what.reduces();
    for peer in (0..plan.n).filter(|peer| *peer != rank) {
        let Some(piece) = own.receive(peer) else { continue };
        let mut ranges: Vec<_> = program
            .iter()
            .filter_map(|step| match step {
                Step::Take(from, message) if *from == peer => Some(message.bytes.clone()),
                _ => None,
            })
            .collect();
        ranges.sort_by_key(|range| range.start);
        let mut end = 0;
        for range in ranges {
            if range.start != end {
                return Err(format!("rank {rank} gets bytes {range:?} of rank {peer} after {end}"));
            }
            if reduces && range.start % plan.call.dtype.size() as u64 != 0 {
                return Err(format!("rank {rank} gets a part of an element of rank {peer}: {range:?}"));
            }
            end = range.end;
        }
        if end != piece.bytes {
            return Err(format!("rank {rank} gets {end} of {} bytes of rank {peer}", piece.bytes));
        }
    }
    match plan.call.what {
        // Nobody's end is to come before everybody's beginning.
        Collective::Barrier if (0..plan.n).any(|peer| peer != rank && own.receive(peer).is_none()) => {
            Err(format!("rank {rank} doesn't hear of everyone"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::collective::{CollectiveCall, Pattern, Piece, Table};
    use crate::config::{Config, TransportChoice};
    use crate::plan::Agreed;
    use crate::protocol::LineForm;
    use crate::{DataType, Order, ReduceOp};

    fn calls(n: usize, count: u64) -> Vec<CollectiveCall> {
        use Collective::*;
        let root = n - 1;
        let roots = [Broadcast { root }, Reduce { root }, Scatter { root: 0 }, Gather { root }];
        [AllGather, ReduceScatter, AllToAll, Barrier]
            .into_iter()
            .chain(roots)
            .map(|what| CollectiveCall {
                what,
                count: if what == Barrier { 0 } else { count },
                dtype: DataType::Float64,
                op: ReduceOp::Sum,
                order: Order::Ring,
            })
            .collect()
    }

    fn plan(n: usize, call: &CollectiveCall, transport: TransportChoice) -> ChannelPlan {
        let agreed = Agreed { push_tiles: 1, bulk_bytes: 4096, max_wires: 3, ..Agreed::ring(n, LineForm::L64, 4) };
        ChannelPlan::new(call, &agreed, &Config { transport, ..Config::default() }).unwrap()
    }

    #[test]
    fn every_collective_fits_together() {
        for n in [2, 3, 5, 8] {
            for count in [1, 31, 97, 2000] {
                for call in calls(n, count) {
                    for transport in [TransportChoice::Lines, TransportChoice::Auto] {
                        let plan = plan(n, &call, transport);
                        let pieces: Vec<_> =
                            (0..n).map(|rank| Pieces::Pattern(call.pattern(n, rank).unwrap())).collect();
                        verify(&plan, &pieces).unwrap_or_else(|why| panic!("{plan}: {why}"));
                    }
                }
            }
        }
    }

    #[test]
    fn tables_fit_together_if_they_do() {
        let n = 3;
        let call = CollectiveCall::moving(Collective::AllToAllV, 0, DataType::Float32);
        let plan = plan(n, &call, TransportChoice::Auto);
        let bytes = |from: usize, to: usize| 4 * ((7 * from + 1000 * to) as u64 % 1300);
        let mut tables: Vec<Table> = (0..n)
            .map(|rank| {
                let mut table = Table::default();
                for peer in 0..n {
                    table.sends[peer] = Piece { offset: 8000 * peer as u64, bytes: bytes(rank, peer) };
                    table.receives[peer] = Piece { offset: 8000 * peer as u64, bytes: bytes(peer, rank) };
                }
                table
            })
            .collect();
        let check = |tables: &[Table]| verify(&plan, &tables.iter().map(Pieces::Table).collect::<Vec<_>>());
        check(&tables).unwrap();
        tables[1].receives[2].bytes += 4;
        assert!(check(&tables).unwrap_err().contains("rank 2 sends"), "{:?}", check(&tables));
    }

    #[test]
    fn a_pattern_that_leaves_someone_waiting_is_found() {
        let call = CollectiveCall::moving(Collective::Barrier, 0, DataType::Int8);
        let plan = plan(3, &call, TransportChoice::Auto);
        let mut pieces: Vec<_> = (0..3).map(|rank| Pieces::Pattern(call.pattern(3, rank).unwrap())).collect();
        verify(&plan, &pieces).unwrap();
        let Pieces::Pattern(whole) = pieces[1] else { unreachable!() };
        pieces[1] = Pieces::Pattern(Pattern { sends: whole.sends & !1, ..whole });
        assert!(verify(&plan, &pieces).is_err());
    }
}
