//! A collective as it was asked for, and what no rank may ask for.

use ccl_core::collective::{Collective, Piece, Table};
use ccl_core::protocol::MAX_RANKS;
use ccl_core::{DataType, Error, ReduceOp, Result};
use std::ffi::{c_int, c_void};

/// Which collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast {
        root: usize,
    },
    Reduce {
        root: usize,
    },
    Scatter {
        root: usize,
    },
    AllToAll,
    /// Elements to and from each rank.
    AllToAllV {
        to: Vec<usize>,
        from: Vec<usize>,
    },
    Send {
        to: usize,
    },
    Receive {
        from: usize,
    },
}

/// How elements are reduced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reduction {
    Known(ReduceOp),
    /// A sum of elements that are multiplied first, by what is there when the call runs.
    OnDevice {
        at: usize,
        dtype: DataType,
    },
}

/// A collective.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) what: What,
    /// Elements of a piece.
    pub(crate) count: usize,
    pub(crate) dtype: DataType,
    /// Of those that reduce.
    pub(crate) reduction: Reduction,
    pub(crate) send: *const c_void,
    pub(crate) recv: *mut c_void,
}

/// Bytes of a rank's buffers in a call; 0 of one that it does not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) send: usize,
    pub(crate) recv: usize,
}

/// The datatype of this number.
#[inline]
pub(crate) fn datatype(number: c_int) -> Result<DataType> {
    u32::try_from(number)
        .ok()
        .and_then(DataType::from_abi)
        .ok_or_else(|| Error::InvalidArgument(format!("datatype {number}")))
}

/// A rank that is root, or peer.
pub(crate) fn rank(number: c_int, what: &str) -> Result<usize> {
    usize::try_from(number).map_err(|_| Error::InvalidArgument(format!("{what} {number}")))
}

/// Pieces of so many elements; their sum was checked.
fn one_after_another(counts: &[usize], dtype: DataType) -> [Piece; MAX_RANKS] {
    let mut pieces = [Piece::default(); MAX_RANKS];
    let mut offset = 0;
    for (piece, count) in pieces.iter_mut().zip(counts) {
        let bytes = (count * dtype.size()) as u64;
        *piece = Piece { offset, bytes };
        offset += bytes;
    }
    pieces
}

impl Call {
    /// A call that reduces nothing.
    pub(crate) fn moving(what: What, count: usize, dtype: DataType, send: *const c_void, recv: *mut c_void) -> Call {
        Call { what, count, dtype, reduction: Reduction::Known(ReduceOp::Sum), send, recv }
    }

    /// What it is besides an all-reduce, with the table that goes with it; none for an all-reduce and for a part of an exchange.
    pub(crate) fn collective(&self) -> Option<(Collective, Option<Box<Table>>)> {
        let what = match &self.what {
            What::AllReduce | What::Send { .. } | What::Receive { .. } => return None,
            What::AllGather => Collective::AllGather,
            What::ReduceScatter => Collective::ReduceScatter,
            What::Broadcast { root } => Collective::Broadcast { root: *root },
            What::Reduce { root } => Collective::Reduce { root: *root },
            What::Scatter { root } => Collective::Scatter { root: *root },
            What::AllToAll => Collective::AllToAll,
            What::AllToAllV { to, from } => {
                let pieces = |counts| one_after_another(counts, self.dtype);
                let table = Table { sends: pieces(to), receives: pieces(from) };
                return Some((Collective::AllToAllV, Some(Box::new(table))));
            }
        };
        Some((what, None))
    }

    /// What `rank` of `n` uses of its buffers; an error if that can't be.
    pub(crate) fn check(&self, n: usize, rank: usize) -> Result<Extent> {
        let named = match self.what {
            What::Broadcast { root } | What::Reduce { root } | What::Scatter { root } => Some(("root", root)),
            What::Send { to: peer } | What::Receive { from: peer } => Some(("peer", peer)),
            _ => None,
        };
        if let Some((what, number)) = named.filter(|(_, number)| *number >= n) {
            return Err(Error::InvalidArgument(format!("{what} {number} of {n} ranks")));
        }
        let extent = self.extent(n, rank)?;
        let (send, recv) = (self.send as usize, self.recv as usize);
        for (name, address, bytes) in [("send", send, extent.send), ("receive", recv, extent.recv)] {
            if bytes > 0 && address == 0 {
                return Err(Error::InvalidArgument(format!(
                    "the {name} buffer is null, but {bytes} bytes of it are used"
                )));
            }
            if address.checked_add(bytes).is_none() {
                return Err(Error::InvalidArgument(format!("the {name} buffer ends past the address space")));
            }
        }
        let apart = extent.send == 0 || extent.recv == 0 || send + extent.send <= recv || recv + extent.recv <= send;
        if apart || self.is_in_place(rank, send, recv) {
            return Ok(extent);
        }
        Err(Error::InvalidArgument(format!(
            "send buffer {send:#x} of {} bytes and receive buffer {recv:#x} of {} bytes overlap otherwise than in place",
            extent.send, extent.recv
        )))
    }

    /// Whether the own piece lies where it goes.
    fn is_in_place(&self, rank: usize, send: usize, recv: usize) -> bool {
        // No overflow: the buffers have that many bytes.
        let piece = self.count * self.dtype.size();
        match self.what {
            What::AllReduce | What::Broadcast { .. } | What::Reduce { .. } | What::AllToAll => send == recv,
            What::AllGather => send == recv + rank * piece,
            What::ReduceScatter | What::Scatter { .. } => recv == send + rank * piece,
            What::AllToAllV { .. } | What::Send { .. } | What::Receive { .. } => false,
        }
    }

    fn extent(&self, n: usize, rank: usize) -> Result<Extent> {
        let one = self.bytes(self.count)?;
        let all = self.bytes(self.count.checked_mul(n).ok_or_else(|| self.too_many())?)?;
        let only = |here: bool, bytes: usize| if here { bytes } else { 0 };
        let (send, recv) = match &self.what {
            What::AllGather => (one, all),
            What::ReduceScatter => (all, one),
            What::AllReduce => (one, one),
            What::Broadcast { root } => (only(rank == *root, one), one),
            What::Reduce { root } => (one, only(rank == *root, one)),
            What::Scatter { root } => (only(rank == *root, all), one),
            What::AllToAll => (all, all),
            What::AllToAllV { to, from } => {
                if to[rank] != from[rank] {
                    return Err(Error::InvalidArgument(format!(
                        "rank {rank} sends itself {} elements and receives {}",
                        to[rank], from[rank]
                    )));
                }
                (self.sum(to)?, self.sum(from)?)
            }
            What::Send { .. } => (one, 0),
            What::Receive { .. } => (0, one),
        };
        Ok(Extent { send, recv })
    }

    fn sum(&self, counts: &[usize]) -> Result<usize> {
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        self.bytes(sum.ok_or_else(|| self.too_many())?)
    }

    fn bytes(&self, count: usize) -> Result<usize> {
        let bytes = count.checked_mul(self.dtype.size()).filter(|bytes| *bytes <= isize::MAX as usize);
        bytes.ok_or_else(|| self.too_many())
    }

    #[cold]
    fn too_many(&self) -> Error {
        Error::InvalidArgument(format!("{} elements of {} overflow the address space", self.count, self.dtype))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn call(what: What, count: usize, send: usize, recv: usize) -> Call {
        Call::moving(what, count, DataType::Float32, send as *const _, recv as *mut _)
    }

    #[test]
    fn buffers_of_a_call() {
        let (at, piece) = (0x1000, 400);
        for (what, send, recv, extent) in [
            (What::AllReduce, at, at, Some((400, 400))),
            (What::AllReduce, at, at + 4, None),
            (What::AllGather, at + 2 * piece, at, Some((400, 1600))),
            (What::AllGather, at, at, None),
            (What::ReduceScatter, at, at + 2 * piece, Some((1600, 400))),
            (What::ReduceScatter, at, at + piece, None),
            (What::Broadcast { root: 2 }, at, at, Some((400, 400))),
            (What::Broadcast { root: 1 }, 0, at, Some((0, 400))),
            (What::Broadcast { root: 4 }, at, at, None),
            (What::Reduce { root: 1 }, at, 0, Some((400, 0))),
            (What::Reduce { root: 2 }, at, 0, None),
            (What::Scatter { root: 2 }, at, at + 2 * piece, Some((1600, 400))),
            (What::Scatter { root: 0 }, 0, at, Some((0, 400))),
            (What::AllToAll, at, at, Some((1600, 1600))),
            (What::AllToAll, at, at + 1600, Some((1600, 1600))),
            (What::AllToAllV { to: vec![1, 2, 3, 4], from: vec![0, 0, 3, 0] }, at, 0x9000, Some((40, 12))),
            (What::AllToAllV { to: vec![1, 2, 3, 4], from: vec![0, 0, 2, 0] }, at, 0x9000, None),
            (What::Send { to: 3 }, at, 0, Some((400, 0))),
            (What::Receive { from: 4 }, 0, at, None),
        ] {
            let made = call(what, 100, send, recv);
            let checked = made.check(4, 2);
            assert_eq!(checked.clone().ok().map(|e| (e.send, e.recv)), extent, "{made:?}: {checked:?}");
        }
        // Nothing is used of buffers without elements.
        assert_eq!(call(What::AllGather, 0, 0, 0).check(4, 2).unwrap(), Extent { send: 0, recv: 0 });
        for count in [usize::MAX, usize::MAX / 2, usize::MAX / 4] {
            call(What::AllToAll, count, at, at).check(4, 2).unwrap_err();
        }
    }
}
