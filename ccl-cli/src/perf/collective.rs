//! The collectives that are measured: what each rank sends and receives of a message, and what must come of it.
//!
//! Where a message is in parts, one for each rank, a rank's input lies where its part does in a whole one, and so does its
//! output: then an element's place says what it must be.

use super::data::{Finding, Shape, check_guard};
use ccl_core::collective::{Collective, CollectiveCall, Piece, Table};
use ccl_core::plan::Request;
use ccl_core::{Order, ReduceOp};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A collective by its name on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Reduce,
    Scatter,
    Gather,
    AllToAll,
    SendRecv,
}

/// A call of it.
#[derive(Clone, Copy)]
pub(super) enum Call {
    AllReduce(Request),
    Other(CollectiveCall),
}

/// What an output must hold.
enum Holds {
    Reduced,
    /// A rank's input, at the same place, or at this rank's part of it.
    Input(usize),
    Swapped(usize),
    /// What was there before.
    Old,
}

impl What {
    pub(super) const ALL: [What; 9] = [
        What::AllReduce,
        What::ReduceScatter,
        What::AllGather,
        What::Broadcast,
        What::Reduce,
        What::Scatter,
        What::Gather,
        What::AllToAll,
        What::SendRecv,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            What::AllReduce => "all_reduce",
            What::ReduceScatter => "reduce_scatter",
            What::AllGather => "all_gather",
            What::Broadcast => "broadcast",
            What::Reduce => "reduce",
            What::Scatter => "scatter",
            What::Gather => "gather",
            What::AllToAll => "all_to_all",
            What::SendRecv => "sendrecv",
        }
    }

    pub(super) const fn reduces(self) -> bool {
        matches!(self, What::AllReduce | What::ReduceScatter | What::Reduce)
    }

    pub(super) const fn has_root(self) -> bool {
        matches!(self, What::Broadcast | What::Reduce | What::Scatter | What::Gather)
    }

    /// Whether a message has a part for each rank.
    pub(super) const fn has_parts(self) -> bool {
        matches!(self, What::ReduceScatter | What::AllGather | What::Scatter | What::Gather | What::AllToAll)
    }

    /// Whether the output may lie where the input does.
    pub(super) const fn has_place(self) -> bool {
        !matches!(self, What::SendRecv)
    }

    /// Elements of a message of at most `count`.
    pub(super) const fn whole(self, count: u64, ranks: usize) -> u64 {
        if self.has_parts() { count / ranks as u64 * ranks as u64 } else { count }
    }

    /// Bus bandwidth by algorithm bandwidth, as nccl-tests define them.
    pub(super) fn bus_factor(self, ranks: usize) -> f64 {
        let n = ranks as f64;
        match self {
            What::AllReduce => 2.0 * (n - 1.0) / n,
            What::Broadcast | What::Reduce | What::SendRecv => 1.0,
            _ => (n - 1.0) / n,
        }
    }

    /// What the library is asked for, of a message of `count` elements in all.
    pub(super) fn call(self, request: Request, ranks: usize, root: usize) -> Call {
        let what = match self {
            What::AllReduce => return Call::AllReduce(request),
            What::ReduceScatter => Collective::ReduceScatter,
            What::AllGather => Collective::AllGather,
            What::Broadcast => Collective::Broadcast { root },
            What::Reduce => Collective::Reduce { root },
            What::Scatter => Collective::Scatter { root },
            What::Gather => Collective::Gather { root },
            What::AllToAll => Collective::AllToAll,
            What::SendRecv => return Call::Other(CollectiveCall::moving(Collective::Exchange, 0, request.dtype)),
        };
        let Request { count, dtype, op, order, .. } = request;
        let count = if self.has_parts() { count / ranks as u64 } else { count };
        // What reduces nothing has one request, whatever reduction was asked for.
        let (op, order) = if self.reduces() { (op, order) } else { (ReduceOp::Sum, Order::Ring) };
        Call::Other(CollectiveCall { what, count, dtype, op, order })
    }

    /// What a rank sends to whom, and receives from whom, where it says so itself: to the next one and from the one before.
    pub(super) fn table(self, shape: &Shape, rank: usize) -> Option<Box<Table>> {
        if self != What::SendRecv {
            return None;
        }
        let (n, piece) = (shape.ranks, Piece { offset: 0, bytes: shape.bytes() as u64 });
        let mut table = Box::<Table>::default();
        table.sends[(rank + 1) % n] = piece;
        table.receives[(rank + n - 1) % n] = piece;
        Some(table)
    }

    /// Elements before a rank's input and its output.
    pub(super) const fn places(self, count: usize, ranks: usize, rank: usize) -> (usize, usize) {
        let own = rank * (count / ranks);
        match self {
            What::AllGather | What::Gather => (own, 0),
            What::ReduceScatter | What::Scatter => (0, own),
            _ => (0, 0),
        }
    }

    fn holds(self, shape: &Shape, rank: usize, root: usize) -> Vec<(Range<usize>, Holds)> {
        let (n, count) = (shape.ranks, shape.count);
        let part = count / n;
        let own = rank * part..(rank + 1) * part;
        let around = |holds| vec![(0..own.start, Holds::Old), (own.clone(), holds), (own.end..count, Holds::Old)];
        let by_rank = |of: fn(usize) -> Holds| (0..n).map(|r| (r * part..(r + 1) * part, of(r))).collect();
        match self {
            What::AllReduce => vec![(0..count, Holds::Reduced)],
            What::Reduce if rank == root => vec![(0..count, Holds::Reduced)],
            What::ReduceScatter => around(Holds::Reduced),
            What::Broadcast => vec![(0..count, Holds::Input(root))],
            What::Scatter => around(Holds::Input(root)),
            What::AllGather => by_rank(Holds::Input),
            What::Gather if rank == root => by_rank(Holds::Input),
            What::AllToAll => by_rank(Holds::Swapped),
            What::SendRecv => vec![(0..count, Holds::Input((rank + n - 1) % n))],
            What::Reduce | What::Gather => vec![(0..count, Holds::Old)],
        }
    }

    /// Compares a whole output with what it must hold in a round.
    pub(super) fn check(
        self,
        shape: &Shape,
        (rank, root): (usize, usize),
        in_place: bool,
        message: &[u8],
        round: u32,
    ) -> Finding {
        let size = shape.dtype.size();
        let part = shape.count / shape.ranks;
        let mut finding = Finding::default();
        for (range, holds) in self.holds(shape, rank, root) {
            let bytes = &message[range.start * size..range.end * size];
            let first = range.start as u64;
            finding.add(match holds {
                Holds::Reduced => shape.check_output(bytes, round, first),
                Holds::Input(of) => shape.check_input(bytes, of, round, first),
                Holds::Swapped(of) => shape.check_input(bytes, of, round, (rank * part) as u64),
                Holds::Old if in_place => shape.check_input(bytes, rank, round, first),
                Holds::Old => check_guard(bytes, "that isn't the call's, of"),
            });
        }
        finding
    }
}

/// The name of a reduction in the table: of what reduces nothing there is none.
pub(super) fn redop(what: What, name: &'static str) -> &'static str {
    if what.reduces() { name } else { "none" }
}

/// Those of these sizes that the collective has: parts are equal.
pub(super) fn counts(what: What, counts: Vec<u64>, ranks: usize) -> Vec<u64> {
    let mut counts: Vec<u64> = counts.into_iter().map(|count| what.whole(count, ranks)).collect();
    counts.dedup();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_an_output_is_spoken_for() {
        let shape = Shape {
            dtype: ccl_core::DataType::Float32,
            op: super::super::data::Op::Plain(ReduceOp::Sum),
            order: Order::Ring,
            ranks: 3,
            count: 12,
        };
        for what in What::ALL {
            for rank in 0..3 {
                let mut next = 0;
                for (range, _) in what.holds(&shape, rank, 1) {
                    assert_eq!(range.start, next, "{}", what.name());
                    next = range.end;
                }
                assert_eq!(next, 12, "{}", what.name());
            }
        }
    }
}
