//! A call as it was made, and which bytes of it which rank needs in order to judge it.

use ccl_core::collective::{Collective, CollectiveCall, Piece, Pieces, Table};
use ccl_core::device::Io;
use ccl_core::types::Factor;
use ccl_core::{DataType, ReduceOp};
use std::ops::Range;

/// Which collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Judged in shares: each rank judges its share of every rank's result.
    AllReduce,
    /// Judged by whoever receives.
    Other(Collective),
}

/// How elements are reduced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Known(ReduceOp),
    /// A factor that can't be read.
    Unknown,
}

/// A call on host buffers.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) what: What,
    pub(crate) count: usize,
    pub(crate) dtype: DataType,
    pub(crate) op: Op,
    /// Of an all-to-all with pieces of any size; none if its counts can't be read, as the number of ranks isn't known.
    pub(crate) table: Option<Box<Table>>,
    pub(crate) send: usize,
    pub(crate) recv: usize,
}

impl Call {
    /// The same on every rank, in words.
    pub(crate) fn name(&self) -> String {
        let Call { what, count, dtype, op, .. } = self;
        let op = match op {
            Op::Known(op) => op.name(),
            Op::Unknown => "premulsum",
        };
        match what {
            What::AllReduce => format!("all_reduce of {count} {dtype}, {op}"),
            What::Other(Collective::AllToAllV) => format!("all_to_all_v of {dtype}"),
            What::Other(what) => {
                let root = what.root().map_or(String::new(), |root| format!(", root {root}"));
                let op = if what.reduces() { format!(", {op}") } else { String::new() };
                format!("{what} of {count} {dtype}{op}{root}")
            }
        }
    }

    /// Whether it is not known what it reads and writes.
    pub(crate) fn lacks_table(&self) -> bool {
        self.what == What::Other(Collective::AllToAllV) && self.table.is_none()
    }

    fn pieces(&self, n: usize, rank: usize) -> Result<Option<Pieces<'_>>, String> {
        let What::Other(what) = self.what else { return Ok(None) };
        if self.lacks_table() {
            return Err("its counts were not read".into());
        }
        let call = CollectiveCall::moving(what, self.count as u64, self.dtype);
        let pattern = call.pattern(n, rank).map_err(|error| error.to_string())?;
        let pieces = self.table.as_deref().map_or(Pieces::Pattern(pattern), Pieces::Table);
        let io = Io { send: self.send as *const _, recv: self.recv as *mut _ };
        pieces.check(&call, n, rank, io).map_err(|error| error.to_string())?;
        Ok(Some(pieces))
    }

    /// Bytes of both buffers that `rank` of `n` uses; an error of a call that no library should take.
    pub(crate) fn extents(&self, n: usize, rank: usize) -> Result<(usize, usize), String> {
        match self.pieces(n, rank)? {
            Some(pieces) => {
                let (send, recv) = pieces.extents().map_err(|error| error.to_string())?;
                Ok((send as usize, recv as usize))
            }
            None => {
                let bytes = self.count.checked_mul(self.dtype.size()).filter(|bytes| *bytes <= isize::MAX as usize);
                let bytes = bytes.ok_or("more elements than memory")?;
                if bytes > 0 && (self.send == 0 || self.recv == 0) {
                    return Err("a buffer is null".into());
                }
                if self.send != self.recv && self.send.abs_diff(self.recv) < bytes {
                    return Err("the buffers overlap in part".into());
                }
                Ok((bytes, bytes))
            }
        }
    }

    /// The bytes of this rank's input that `judge` needs.
    pub(crate) fn input_for(&self, n: usize, rank: usize, judge: usize) -> Range<usize> {
        match self.pieces(n, rank) {
            Ok(Some(pieces)) => pieces.send(judge).map_or(0..0, range),
            Ok(None) => self.share(n, judge),
            Err(_) => 0..0,
        }
    }

    /// The bytes of this rank's output that `judge` needs.
    pub(crate) fn output_for(&self, n: usize, judge: usize) -> Range<usize> {
        match self.what {
            What::AllReduce => self.share(n, judge),
            What::Other(_) => 0..0,
        }
    }

    /// Where what comes from `from` lies in this rank's output; for a reduction, where the result does.
    pub(crate) fn received(&self, n: usize, rank: usize, from: usize) -> Range<usize> {
        match self.pieces(n, rank) {
            Ok(Some(pieces)) => pieces.receive(from).map_or(0..0, range),
            Ok(None) | Err(_) => 0..0,
        }
    }

    /// The share of an all-reduce that `judge` judges.
    pub(crate) fn share(&self, n: usize, judge: usize) -> Range<usize> {
        let at = |rank: usize| (self.count as u128 * rank as u128 / n as u128) as usize * self.dtype.size();
        at(judge)..at(judge + 1)
    }

    /// The factor of this rank, as the bits of its scalar and that scalar's type.
    pub(crate) fn factor(&self) -> Option<Factor> {
        match self.op {
            Op::Known(ReduceOp::PreMulSum(factor)) => Some(factor),
            _ => None,
        }
    }
}

fn range(piece: Piece) -> Range<usize> {
    piece.offset as usize..(piece.offset + piece.bytes) as usize
}
