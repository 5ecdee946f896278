//! The collectives besides all-reduce: what a call of one asks for, and which piece of which buffer goes to whom.

use std::fmt;

use crate::device::Io;
use crate::protocol::MAX_RANKS;
use crate::types::Kind;
use crate::{DataType, Error, Order, ReduceOp, Result};

/// Which collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Collective {
    /// Every rank gets every rank's input, by rank.
    AllGather,
    /// Every rank gets its piece of the reduction of all inputs.
    ReduceScatter,
    /// Every rank gets the root's input.
    Broadcast {
        /// Whose.
        root: usize,
    },
    /// The root gets the reduction of all inputs.
    Reduce {
        /// Who.
        root: usize,
    },
    /// Every rank gets its piece of the root's input.
    Scatter {
        /// Whose.
        root: usize,
    },
    /// The root gets every rank's input, by rank.
    Gather {
        /// Who.
        root: usize,
    },
    /// Every rank gets its piece of every rank's input, by rank.
    AllToAll,
    /// The same with pieces of any size, wherever they lie.
    AllToAllV,
    /// No data: it ends after every rank has begun it.
    Barrier,
    /// One rank's input goes to one other. Only those two take part.
    Send {
        /// The other.
        to: usize,
    },
    /// The other side of [`Collective::Send`].
    Receive {
        /// The other.
        from: usize,
    },
    /// Sends to and receives from several ranks at once, at most one of each for a rank. Only ranks that are named take
    /// part.
    Exchange,
}

impl Collective {
    /// The highest byte of [`crate::protocol::Shape::kind`]; that of all-reduce is 0.
    pub const fn code(self) -> u32 {
        match self {
            Collective::AllGather => 1,
            Collective::ReduceScatter => 2,
            Collective::Broadcast { .. } => 3,
            Collective::Reduce { .. } => 4,
            Collective::Scatter { .. } => 5,
            Collective::Gather { .. } => 6,
            Collective::AllToAll => 7,
            Collective::AllToAllV => 8,
            Collective::Barrier => 9,
            Collective::Send { .. } => 10,
            Collective::Receive { .. } => 11,
            Collective::Exchange => 12,
        }
    }

    /// The rank that its name is not complete without.
    pub const fn root(self) -> Option<usize> {
        match self {
            Collective::Broadcast { root }
            | Collective::Reduce { root }
            | Collective::Scatter { root }
            | Collective::Gather { root }
            | Collective::Send { to: root }
            | Collective::Receive { from: root } => Some(root),
            _ => None,
        }
    }

    /// The name of the collective with this code.
    pub const fn name_of(code: u32) -> Option<&'static str> {
        const NAMES: [&str; 13] = [
            "all_reduce",
            "all_gather",
            "reduce_scatter",
            "broadcast",
            "reduce",
            "scatter",
            "gather",
            "all_to_all",
            "all_to_all_v",
            "barrier",
            "send",
            "receive",
            "exchange",
        ];
        if (code as usize) < NAMES.len() { Some(NAMES[code as usize]) } else { None }
    }

    /// Whether it is between ranks that it names, and of no concern to the others.
    pub const fn is_private(self) -> bool {
        matches!(self, Collective::Send { .. } | Collective::Receive { .. } | Collective::Exchange)
    }

    /// Whether elements are reduced.
    pub const fn reduces(self) -> bool {
        matches!(self, Collective::ReduceScatter | Collective::Reduce { .. })
    }

    /// Whether each rank says for itself which pieces it sends and receives.
    pub const fn by_table(self) -> bool {
        matches!(self, Collective::AllToAllV | Collective::Exchange)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Collective::name_of(self.code()).unwrap_or_default())
    }
}

/// What a call asks for: alike on all ranks, but for the peer of a send or receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CollectiveCall {
    /// Which collective.
    pub what: Collective,
    /// Elements of a piece: what each rank sends (all_gather, gather), receives (reduce_scatter, scatter), sends to each
    /// (all_to_all), or the whole message. 0 of a barrier, and where a table says.
    pub count: u64,
    /// Element type.
    pub dtype: DataType,
    /// Reduction, if it reduces.
    pub op: ReduceOp,
    /// Order of reduction.
    pub order: Order,
}

impl CollectiveCall {
    /// A collective that reduces nothing.
    pub const fn moving(what: Collective, count: u64, dtype: DataType) -> Self {
        Self { what, count, dtype, op: ReduceOp::Sum, order: Order::Ring }
    }

    /// The word by which kernels, and messages, know the call: datatype, reduction, order, root, collective.
    pub fn kind(&self) -> u32 {
        let root = self.what.root().unwrap_or(0) as u32;
        let Self { dtype, op, order, .. } = *self;
        Kind::new(dtype, op, order).word() | root << ROOT_SHIFT | self.what.code() << CODE_SHIFT
    }

    /// What `rank` of `n` sends and receives, unless a table says.
    pub fn pattern(&self, n: usize, rank: usize) -> Result<Pattern> {
        if let Some(root) = self.what.root()
            && root >= n
        {
            return Err(Error::InvalidArgument(format!("{} with rank {root} of {n} ranks", self.what)));
        }
        if self.what.is_private() && self.what.root() == Some(rank) {
            return Err(Error::InvalidUsage(format!(
                "{} of rank {rank} with itself; an exchange may do both at once",
                self.what
            )));
        }
        let size = self.dtype.size() as u64;
        let Some(bytes) = self.count.checked_mul(size).filter(|bytes| *bytes <= (isize::MAX as u64) / n as u64) else {
            return Err(Error::InvalidArgument(format!("count {} overflows the address space", self.count)));
        };
        let all = u32::MAX >> (32 - n as u32);
        let only = |is_it: bool, mask: u32| if is_it { mask } else { 0 };
        let bit = 1 << rank;
        let (sends, receives, send_stride, recv_stride) = match self.what {
            Collective::AllGather => (all, all, 0, bytes),
            Collective::ReduceScatter => (all, all, bytes, 0),
            Collective::AllToAll => (all, all, bytes, bytes),
            Collective::Broadcast { root } => (only(rank == root, all), 1 << root, 0, 0),
            Collective::Scatter { root } => (only(rank == root, all), 1 << root, bytes, 0),
            Collective::Gather { root } => (1 << root, only(rank == root, all), 0, bytes),
            Collective::Reduce { root } => (1 << root, only(rank == root, all), 0, 0),
            Collective::Barrier => (all & !bit, all & !bit, 0, 0),
            Collective::Send { to } => (1 << to, 0, 0, 0),
            Collective::Receive { from } => (0, 1 << from, 0, 0),
            Collective::AllToAllV | Collective::Exchange => (0, 0, 0, 0),
        };
        Ok(Pattern { sends, receives, send_stride, recv_stride, bytes })
    }
}

/// Where the root is in [`CollectiveCall::kind`]. (The order below it has four bits for its one.)
pub const ROOT_SHIFT: u32 = 20;
/// Where the collective's code is.
pub const CODE_SHIFT: u32 = 24;

/// Some bytes of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Piece {
    /// The first, from the beginning of the buffer.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// What a rank sends to each rank, itself included, and receives from each, where it says so itself; nothing where a
/// piece has no bytes. Kernels read it as it lies here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Table {
    /// By receiver.
    pub sends: [Piece; MAX_RANKS],
    /// By sender.
    pub receives: [Piece; MAX_RANKS],
}

/// What a rank sends and receives where all pieces are alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// A bit for each rank to which a piece goes; the own one for a piece that only changes places.
    pub sends: u32,
    /// A bit for each rank from which one comes.
    pub receives: u32,
    /// Bytes from one rank's piece to the next in the input.
    pub send_stride: u64,
    /// The same of the output.
    pub recv_stride: u64,
    /// Bytes of a piece.
    pub bytes: u64,
}

impl Pattern {
    /// What goes to `peer`, of the input.
    pub const fn send(&self, peer: usize) -> Option<Piece> {
        if self.sends >> peer & 1 == 0 {
            return None;
        }
        Some(Piece { offset: peer as u64 * self.send_stride, bytes: self.bytes })
    }

    /// What comes from `peer`, into the output.
    pub const fn receive(&self, peer: usize) -> Option<Piece> {
        if self.receives >> peer & 1 == 0 {
            return None;
        }
        Some(Piece { offset: peer as u64 * self.recv_stride, bytes: self.bytes })
    }
}

/// What one rank's call moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pieces<'a> {
    /// All alike.
    Pattern(Pattern),
    /// As the rank says.
    Table(&'a Table),
}

impl Pieces<'_> {
    /// What goes to `peer`, of the input.
    pub fn send(&self, peer: usize) -> Option<Piece> {
        match self {
            Pieces::Pattern(pattern) => pattern.send(peer),
            Pieces::Table(table) => Some(table.sends[peer]).filter(|piece| piece.bytes > 0),
        }
    }

    /// What comes from `peer`, into the output.
    pub fn receive(&self, peer: usize) -> Option<Piece> {
        match self {
            Pieces::Pattern(pattern) => pattern.receive(peer),
            Pieces::Table(table) => Some(table.receives[peer]).filter(|piece| piece.bytes > 0),
        }
    }

    /// Bytes from the beginning of the input, and of the output, to the end of the last piece.
    pub fn extents(&self) -> Result<(u64, u64)> {
        let end = |piece: Option<Piece>| match piece {
            Some(Piece { offset, bytes }) => offset.checked_add(bytes).filter(|end| *end <= isize::MAX as u64),
            None => Some(0),
        };
        let last = |of: &dyn Fn(usize) -> Option<Piece>| {
            (0..MAX_RANKS).try_fold(0, |last: u64, peer| Some(last.max(end(of(peer))?)))
        };
        let ends = last(&|peer| self.send(peer)).zip(last(&|peer| self.receive(peer)));
        ends.ok_or_else(|| Error::InvalidArgument("pieces that pass the end of the address space".into()))
    }

    /// What no rank may ask for: buffers that are missing, misaligned, or overlap otherwise than in place, and a table
    /// whose pieces can't be.
    pub fn check(&self, call: &CollectiveCall, n: usize, rank: usize, io: Io) -> Result<()> {
        let size = call.dtype.size() as u64;
        if let Pieces::Table(table) = self {
            check_table(table, size, n, rank)?;
        }
        let (send_bytes, recv_bytes) = self.extents()?;
        let (send, recv) = (io.send as u64, io.recv as u64);
        for (name, address, bytes) in [("send", send, send_bytes), ("receive", recv, recv_bytes)] {
            if bytes == 0 {
                continue;
            }
            let refuse = |what: String| Err(Error::InvalidArgument(format!("{}: {name} buffer {what}", call.what)));
            if address == 0 {
                return refuse(format!("is null, but {bytes} bytes of it are used"));
            }
            if !address.is_multiple_of(size) {
                return refuse(format!("{address:#x} is not aligned to its element type {}", call.dtype));
            }
            if address.checked_add(bytes).is_none() {
                return refuse(format!("{address:#x} ends past the address space"));
            }
        }
        let apart = send_bytes == 0
            || recv_bytes == 0
            || send + send_bytes <= recv
            || recv + recv_bytes <= send
            || matches!(self, Pieces::Table(table) if are_apart(table, send, recv));
        let own = |piece: Option<Piece>, address: u64| piece.map(|piece| address + piece.offset);
        let in_place = matches!(self, Pieces::Pattern(_))
            && own(self.send(rank), send).is_some_and(|at| own(self.receive(rank), recv) == Some(at));
        if apart || in_place {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "{}: send buffer {send:#x} of {send_bytes} bytes and receive buffer {recv:#x} of {recv_bytes} bytes overlap; in \
             place means that the own piece lies where it goes",
            call.what
        )))
    }
}

/// Whether no piece that is sent lies where one is received; the buffers themselves may mesh.
fn are_apart(table: &Table, send: u64, recv: u64) -> bool {
    let range = |piece: &Piece, from: u64| from + piece.offset..from + piece.offset + piece.bytes;
    let sent = table.sends.iter().filter(|piece| piece.bytes > 0).map(|piece| range(piece, send));
    let received = || table.receives.iter().filter(|piece| piece.bytes > 0).map(|piece| range(piece, recv));
    sent.into_iter().all(|sent| received().all(|got| sent.end <= got.start || got.end <= sent.start))
}

fn check_table(table: &Table, size: u64, n: usize, rank: usize) -> Result<()> {
    let refuse = |what: String| Err(Error::InvalidArgument(what));
    for (verb, pieces) in [("sent to", &table.sends), ("received from", &table.receives)] {
        for (peer, Piece { offset, bytes }) in pieces.iter().enumerate() {
            if peer >= n && *bytes > 0 {
                return refuse(format!("a piece {verb} rank {peer} of {n} ranks"));
            }
            if !bytes.is_multiple_of(size) || !offset.is_multiple_of(size) {
                return refuse(format!(
                    "a piece of {bytes} bytes at {offset} {verb} rank {peer}: elements have {size} bytes"
                ));
            }
        }
    }
    let (sent, received) = (table.sends[rank].bytes, table.receives[rank].bytes);
    if sent != received {
        return refuse(format!("rank {rank} sends itself {sent} bytes and receives {received}"));
    }
    // Two pieces in one place would be a race between their senders.
    let mut places: Vec<(u64, u64)> =
        table.receives.iter().filter(|piece| piece.bytes > 0).map(|piece| (piece.offset, piece.bytes)).collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        if pair[0].0.checked_add(pair[0].1).is_none_or(|end| end > pair[1].0) {
            return refuse(format!("pieces that are received at {} and {} overlap", pair[0].0, pair[1].0));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn io(send: usize, recv: usize) -> Io {
        Io { send: send as *const _, recv: recv as *mut _ }
    }

    #[test]
    fn in_place_is_where_the_own_piece_lies() {
        let at = 0x1000;
        let bytes = 4 * 100;
        for (what, send, recv, ok) in [
            (Collective::AllGather, at + 2 * bytes, at, true),
            (Collective::AllGather, at, at, false),
            (Collective::ReduceScatter, at, at + 2 * bytes, true),
            (Collective::ReduceScatter, at, at, false),
            (Collective::AllToAll, at, at, true),
            (Collective::AllToAll, at, at + bytes, false),
            (Collective::Broadcast { root: 2 }, at, at, true),
            (Collective::Broadcast { root: 2 }, at, at + 4, false),
            // Not the root's: its send buffer is none of the call's.
            (Collective::Broadcast { root: 1 }, at, at + 4, true),
            (Collective::Broadcast { root: 1 }, 0, at, true),
            (Collective::Reduce { root: 2 }, at, at, true),
            (Collective::Reduce { root: 1 }, at, 0, true),
            (Collective::Scatter { root: 2 }, at, at + 2 * bytes, true),
            (Collective::Scatter { root: 2 }, at, at, false),
            (Collective::Gather { root: 2 }, at + 2 * bytes, at, true),
            (Collective::Send { to: 1 }, at, 0, true),
            (Collective::Send { to: 1 }, 0, at, false),
            (Collective::Receive { from: 1 }, 0, at + 2, false),
            (Collective::Barrier, 0, 0, true),
        ] {
            let count = if what == Collective::Barrier { 0 } else { 100 };
            let call = CollectiveCall::moving(what, count, DataType::Float32);
            let pieces = Pieces::Pattern(call.pattern(4, 2).unwrap());
            let checked = pieces.check(&call, 4, 2, io(send, recv));
            assert_eq!(checked.is_ok(), ok, "{what} {send:#x} {recv:#x}: {checked:?}");
        }
    }

    #[test]
    fn a_table_that_can_not_be_is_refused() {
        let call = CollectiveCall::moving(Collective::AllToAllV, 0, DataType::Float32);
        let mut good = Table::default();
        good.sends[1] = Piece { offset: 8, bytes: 16 };
        good.receives[0] = Piece { offset: 0, bytes: 8 };
        good.receives[1] = Piece { offset: 8, bytes: 4 };
        let check = |table: &Table| Pieces::Table(table).check(&call, 2, 1, io(0x1000, 0x2000));
        let refused = |table: &Table, word: &str| {
            let text = check(table).unwrap_err().to_string();
            assert!(text.contains(word), "{text}, not: {word}");
        };
        refused(&good, "itself 16 bytes and receives 4");
        good.receives[1].bytes = 16;
        check(&good).unwrap();
        let with = |change: &dyn Fn(&mut Table)| {
            let mut table = good;
            change(&mut table);
            table
        };
        refused(&with(&|t| t.receives[1].offset = 4), "overlap");
        refused(&with(&|t| t.sends[0].bytes = 6), "elements have 4 bytes");
        refused(&with(&|t| t.sends[2].bytes = 4), "rank 2 of 2 ranks");
        refused(&with(&|t| t.sends[0] = Piece { offset: u64::MAX - 3, bytes: 8 }), "address space");
        // Buffers that mesh, as pieces of one memory do that are sent and received in turn.
        let meshed = |table: &Table| Pieces::Table(table).check(&call, 2, 1, io(0x1000, 0x1018));
        meshed(&with(&|t| t.sends[0] = Piece { offset: 64, bytes: 4 })).unwrap();
        let met = meshed(&with(&|t| t.sends[0] = Piece { offset: 44, bytes: 8 })).unwrap_err();
        assert!(met.to_string().contains("overlap"), "{met}");
    }

    #[test]
    fn roots_are_ranks_and_nobody_sends_to_itself() {
        let call = |what| CollectiveCall::moving(what, 1, DataType::Int8).pattern(3, 1);
        call(Collective::Broadcast { root: 2 }).unwrap();
        assert!(call(Collective::Broadcast { root: 3 }).unwrap_err().to_string().contains("rank 3 of 3"));
        assert!(call(Collective::Send { to: 1 }).unwrap_err().to_string().contains("itself"));
    }
}
