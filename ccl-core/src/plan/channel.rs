//! Plans of the collectives besides all-reduce, and of sends and receives: they all go through *channels*.
//!
//! A channel carries messages from one rank to another on one wire, in order. It has two slots in the receiver's staging
//! memory, message m in slot m mod 2, and one word in the sender's, the credit: how many the receiver has taken. So a call
//! concerns those only who send or receive in it (docs/protocol.md, "Channels").

use std::fmt;
use std::ops::Range;

use super::geometry::Geometry;
use super::push::Transport;
use super::{Agreed, plural};
use crate::collective::{CollectiveCall, Pieces};
use crate::config::{Config, TransportChoice};
use crate::protocol::channel::CHANNEL_WIRES;
use crate::protocol::{BLOCK_BYTES, Layout};
use crate::{Error, Result};

/// Sizes of the arguments of the kernels of channels, in order: send, recv, state, host, peers (a table in device memory
/// of the n ranks' staging addresses, the own one at the own index), table ([`crate::collective::Table`] in memory that the
/// device reads, or 0), send_stride, recv_stride, bytes, count, first (of the reduction: where the own piece begins in the
/// whole message, in elements), factor, kind ([`CollectiveCall::kind`]), rank, n, sends, receives, wires (of channels, not of
/// the launch), part ([`Channels::part`]), flags ([`FLAG_PRIVATE`]).
pub const CHANNEL_ARGS: [usize; 20] = [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4];

/// Of a kernel's `flags`: only the ranks that the call names take part in it.
pub const FLAG_PRIVATE: u32 = 1;

/// How a communicator's channels are cut: the same for all calls, for life. Otherwise one call's message would lie where
/// another's is that hasn't been taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Channels {
    /// How messages travel.
    pub transport: Transport,
    /// Wires.
    pub wires: u32,
    /// What a message may have of a slot: lines on lines, bytes in bulk.
    pub part: u32,
    /// Bytes of data in a full message, of elements up to 4 bytes (lines of larger ones leave words unused).
    full: u32,
    /// The same of elements of 8 bytes that are reduced.
    full_wide: u32,
}

impl Channels {
    /// Those of a communicator.
    pub fn new(agreed: &Agreed, config: &Config) -> Result<Channels> {
        let layout = agreed.layout();
        if layout.push_tiles == 0 {
            return Err(Error::NotImplemented(
                "collectives other than all_reduce where not every rank can store into every other's memory".into(),
            ));
        }
        let wires = agreed.max_wires.min(CHANNEL_WIRES as u32);
        if layout.bulk_bytes > 0 && config.transport != TransportChoice::Lines {
            return Ok(Self::of(&layout, Transport::Bulk, wires));
        }
        Ok(Self::of(&layout, Transport::Lines(layout.form), wires))
    }

    /// Those of a layout.
    pub fn of(layout: &Layout, transport: Transport, wires: u32) -> Channels {
        match transport {
            Transport::Bulk => {
                let part = layout.channel_part_bytes();
                Channels { transport, wires, part, full: part, full_wide: part }
            }
            Transport::Lines(form) => {
                let part = layout.channel_part_lines();
                let bytes = |elem: usize| part * form.data_words(elem) as u32 * 4;
                Channels { transport, wires, part, full: bytes(4), full_wide: bytes(8) }
            }
        }
    }

    /// Bytes of a full message; `wide` if elements of 8 bytes are reduced.
    pub const fn full(&self, wide: bool) -> u64 {
        (if wide { self.full_wide } else { self.full }) as u64
    }

    /// Messages into which a piece of so many bytes is cut, over all wires. A piece without bytes is one message.
    const fn messages(&self, bytes: u64, wide: bool) -> u64 {
        let messages = bytes.div_ceil(self.full(wide));
        if messages == 0 { 1 } else { messages }
    }

    /// Rounds in which a piece goes: in each, every wire has at most one message of it.
    pub const fn rounds(&self, bytes: u64, wide: bool) -> u64 {
        self.messages(bytes, wide).div_ceil(self.wires as u64)
    }

    /// Wires on which a piece goes.
    pub fn wires_for(&self, bytes: u64, wide: bool) -> u32 {
        self.messages(bytes, wide).min(u64::from(self.wires)) as u32
    }

    /// What `wire` carries of a piece in `round`.
    pub fn message(&self, bytes: u64, wide: bool, round: u64, wire: u32) -> Option<Range<u64>> {
        let number = round * u64::from(self.wires) + u64::from(wire);
        if number >= self.messages(bytes, wide) {
            return None;
        }
        let start = number * self.full(wide);
        Some(start..bytes.min(start + self.full(wide)))
    }
}

/// The plan of one call. What a given rank does follows from its [`Pieces`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelPlan {
    /// Ranks.
    pub n: usize,
    /// The call.
    pub call: CollectiveCall,
    /// How channels are cut.
    pub channels: Channels,
    /// Where everything lies.
    pub layout: Layout,
}

impl ChannelPlan {
    /// The plan of a call among several ranks. Refuses what can't be expressed.
    pub fn new(call: &CollectiveCall, agreed: &Agreed, config: &Config) -> Result<ChannelPlan> {
        call.op.factor(call.dtype)?;
        let plan =
            ChannelPlan { n: agreed.n, call: *call, channels: Channels::new(agreed, config)?, layout: agreed.layout() };
        if call.what.reduces() {
            plan.geometry()?;
        }
        Ok(plan)
    }

    /// Whether elements of 8 bytes are reduced, which lines carry fewer of.
    pub const fn wide(&self) -> bool {
        self.call.what.reduces() && self.call.dtype.size() == 8
    }

    /// Which element is added in which order: that of an all-reduce of all that is reduced, so that the bits are the same.
    pub fn geometry(&self) -> Result<Geometry> {
        Geometry::new(self.n, self.message(), None, self.call.dtype.size())
    }

    /// Elements of each rank's input to the reduction.
    pub const fn message(&self) -> u64 {
        match self.call.what {
            crate::collective::Collective::ReduceScatter => self.call.count.saturating_mul(self.n as u64),
            _ => self.call.count,
        }
    }

    /// Work-groups that `rank` needs: at least one, as the call counts.
    pub fn groups(&self, pieces: &Pieces<'_>) -> u32 {
        let of = |peer| {
            let bytes = |piece: crate::collective::Piece| self.channels.wires_for(piece.bytes, self.wide());
            pieces.send(peer).map_or(0, bytes).max(pieces.receive(peer).map_or(0, bytes))
        };
        (0..self.n).map(of).max().unwrap_or(0).max(1)
    }

    /// Rounds of `rank`.
    pub fn rounds(&self, pieces: &Pieces<'_>) -> u64 {
        let of = |peer| {
            let bytes = |piece: crate::collective::Piece| self.channels.rounds(piece.bytes, self.wide());
            pieces.send(peer).map_or(0, bytes).max(pieces.receive(peer).map_or(0, bytes))
        };
        (0..self.n).map(of).max().unwrap_or(0)
    }
}

impl fmt::Display for ChannelPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChannelPlan { n, call, channels, .. } = self;
        write!(f, "{} {}", call.what, call.dtype)?;
        if call.what.reduces() {
            write!(f, " {} order={}", call.op, call.order)?;
        }
        write!(f, " n={n} count={}", call.count)?;
        if let Some(root) = call.what.root() {
            write!(f, " root={root}")?;
        }
        let Channels { wires, part, transport, .. } = channels;
        let what = if *transport == Transport::Bulk { "bytes" } else { "lines" };
        write!(f, ": channels of {wires} wire{}, messages of {part} {what}, {transport}", plural(*wires))
    }
}

/// What parts of slots are a multiple of in bulk.
pub const PART_UNIT: u32 = BLOCK_BYTES as u32;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::protocol::LineForm;

    #[test]
    fn messages_cover_a_piece_once_and_fit() {
        let agreed = Agreed { push_tiles: 3, bulk_bytes: 8192, max_wires: 5, ..Agreed::ring(3, LineForm::L64, 8) };
        let lines = Config { transport: TransportChoice::Lines, ..Config::default() };
        for config in [Config::default(), lines] {
            let channels = Channels::new(&agreed, &config).unwrap();
            assert_eq!(channels.wires, 5);
            for wide in [false, true] {
                let full = channels.full(wide);
                assert!(full > 0 && full.is_multiple_of(8));
                for bytes in [0, 8, full - 8, full, full + 8, 5 * full, 5 * full + 8, 77 * full + 16] {
                    let (mut next, mut number) = (0, 0);
                    for round in 0..channels.rounds(bytes, wide) {
                        for wire in 0..channels.wires {
                            let Some(range) = channels.message(bytes, wide, round, wire) else { continue };
                            assert!(range.start == next && range.end - range.start <= full);
                            assert!(wire < channels.wires_for(bytes, wide));
                            (next, number) = (range.end, number + 1);
                        }
                    }
                    assert_eq!(next, bytes);
                    assert!(number >= 1, "a piece without bytes is told of as well");
                    assert_eq!(channels.message(bytes, wide, channels.rounds(bytes, wide), 0), None);
                }
            }
        }
    }
}
