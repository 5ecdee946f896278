//! The ring: 2(n-1) hops of chunks, cut into wires and rounds.
//!
//! A plan is the same on every rank. What a given rank does, [`RingPlan::steps`] says: a native twin executes those
//! steps, a verifier executes them symbolically, and a trace of the former is compared with the latter's input.

use std::fmt;

use super::geometry::Geometry;
use super::{Agreed, Request, describe_call, plural};
use crate::protocol::{LineForm, MAX_WIRES, STAGING_HEAD_BYTES, ring_bytes, sent_chunk, slots};
use crate::{DataType, Error, Order, ReduceOp, Result};

/// Most tiles of a slot: counts of words and lines stay within 32 bits.
pub const MAX_SLOT_TILES: u32 = 1 << 16;

/// A ring all-reduce of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingPlan {
    /// Ranks. One that is alone sends nothing; it multiplies what is to be multiplied.
    pub n: usize,
    /// Element type.
    pub dtype: DataType,
    /// Reduction.
    pub op: ReduceOp,
    /// Order of summation.
    pub order: Order,
    /// Who owns which element.
    pub geometry: Geometry,
    /// Lines on the wire.
    pub form: LineForm,
    /// Work-groups, each with its own stream of blocks.
    pub wires: u32,
    /// Tiles of a slot, all wires together; agreed at init.
    pub slot_tiles: u32,
    /// Tiles of a slot that belong to one wire: what a wire moves in one step.
    pub tiles: u32,
    /// Times that the whole ring is gone round, the maximum over chunks and wires.
    pub rounds: u32,
}

/// Part of a wire's stream for one chunk: what travels in one round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its first block, counted in the wire's stream for the chunk.
    pub first_block: u64,
    /// Its blocks, at least 1.
    pub blocks: u32,
    /// 32-bit words of data.
    pub words: u32,
    /// Lines that carry them, the last one perhaps in part.
    pub lines: u32,
}

/// One thing that one wire of one rank does: receive, reduce, store, send, as far as each applies and in this order.
///
/// Without `receive` the value is the rank's own input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Round of the call.
    pub round: u32,
    /// Position i in the ring: receives slot i - 1, sends slot i.
    pub position: u32,
    /// Wire.
    pub wire: u32,
    /// Chunk.
    pub chunk: usize,
    /// First block, counted in the wire's stream for the chunk.
    pub first_block: u64,
    /// Blocks.
    pub blocks: u32,
    /// Lines.
    pub lines: u32,
    /// Waits for slot `position - 1`.
    pub receive: bool,
    /// Adds the own input to what was received.
    pub reduce: bool,
    /// Writes the value to the output.
    pub store: bool,
    /// Writes the value into slot `position` of the next rank.
    pub send: bool,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { round, position, wire, chunk, first_block, blocks, .. } = self;
        write!(f, "round {round} position {position} wire {wire} chunk {chunk} blocks {first_block}+{blocks}")
    }
}

impl RingPlan {
    /// The ring for `request` on `wires` wires. Fails if it can't be expressed, never because of what ranks support.
    pub fn new(request: &Request, agreed: &Agreed, wires: u32) -> Result<Self> {
        let Request { count, dtype, op, order, period, .. } = *request;
        let Agreed { n, form, slot_tiles, .. } = *agreed;
        if n == 0 {
            return Err(Error::InvalidArgument("a ring of 0 ranks".into()));
        }
        if slot_tiles > MAX_SLOT_TILES {
            return Err(Error::InvalidArgument(format!(
                "slots of {slot_tiles} tiles; they have at most {MAX_SLOT_TILES}"
            )));
        }
        if wires == 0 || wires as usize > MAX_WIRES || wires > slot_tiles {
            return Err(Error::InvalidArgument(format!(
                "{wires} wires; a ring has 1 to {MAX_WIRES}, and no more than tiles in a slot ({slot_tiles})"
            )));
        }
        let geometry = Geometry::new(n, count, period, dtype.size())?;
        let tiles = slot_tiles / wires;
        let longest = (0..n).map(|chunk| geometry.wire_blocks(chunk, wires, 0)).max().unwrap_or(0);
        let rounds = longest.div_ceil(u64::from(tiles) * form.tile_blocks(dtype.size()) as u64);
        let rounds = u32::try_from(rounds).map_err(|_| {
            Error::NotImplemented(format!("{count} elements of {dtype} in {rounds} rounds, more than 32 bits hold"))
        })?;
        Ok(Self { n, dtype, op, order, geometry, form, wires, slot_tiles, tiles, rounds })
    }

    /// Positions of a rank in each round: 0 only sends, the last only receives.
    pub const fn positions(&self) -> u32 {
        slots(self.n) as u32 + 1
    }

    /// Blocks of a wire's stream that one full round carries.
    pub const fn round_blocks(&self) -> u64 {
        self.tiles as u64 * self.form.tile_blocks(self.geometry.elem()) as u64
    }

    /// What `wire` carries of `chunk` in `round`, if anything.
    #[inline]
    pub fn segment(&self, chunk: usize, wire: u32, round: u32) -> Option<Segment> {
        let all = self.geometry.wire_blocks(chunk, self.wires, wire);
        let first_block = u64::from(round) * self.round_blocks();
        let blocks = all.saturating_sub(first_block).min(self.round_blocks());
        (blocks > 0).then(|| {
            // At most MAX_SLOT_TILES tiles: 32 bits suffice.
            let words = self.geometry.wire_words(chunk, self.wires, wire, first_block, blocks) as u32;
            let lines = words.div_ceil(self.form.data_words(self.geometry.elem()) as u32);
            Segment { first_block, blocks: blocks as u32, words, lines }
        })
    }

    /// What `wire` of `rank` does at `position` of `round`, if anything.
    #[inline]
    pub fn step(&self, rank: usize, round: u32, position: u32, wire: u32) -> Option<Step> {
        let chunk = sent_chunk(self.n, rank, position as usize);
        let Segment { first_block, blocks, lines, .. } = self.segment(chunk, wire, round)?;
        let (turn, last) = (self.n as u32 - 1, self.positions() - 1);
        Some(Step {
            round,
            position,
            wire,
            chunk,
            first_block,
            blocks,
            lines,
            receive: position > 0,
            reduce: (1..=turn).contains(&position),
            store: position >= turn,
            send: position < last,
        })
    }

    /// What `rank` does, in order: by round, position, wire.
    pub fn steps(&self, rank: usize) -> impl Iterator<Item = Step> + use<> {
        let plan = *self;
        (0..plan.rounds).flat_map(move |round| {
            (0..plan.positions()).flat_map(move |position| {
                (0..plan.wires).filter_map(move |wire| plan.step(rank, round, position, wire))
            })
        })
    }

    /// What one wire of `rank` does, in order: its part of [`Self::steps`].
    pub fn wire_steps(&self, rank: usize, wire: u32) -> impl Iterator<Item = Step> + use<> {
        let plan = *self;
        (0..plan.rounds).flat_map(move |round| {
            (0..plan.positions()).filter_map(move |position| plan.step(rank, round, position, wire))
        })
    }

    /// Byte offset, in the receiver's staging memory, of the first line that `wire` has in `slot`.
    #[inline]
    pub const fn slot_offset(&self, slot: u32, wire: u32) -> usize {
        let tile = self.form.tile_bytes();
        STAGING_HEAD_BYTES + (slot as usize * self.slot_tiles as usize + wire as usize * self.tiles as usize) * tile
    }

    /// Byte offset, in the receiver's staging memory, of `line` of `wire` in `slot`.
    pub const fn line_offset(&self, slot: u32, wire: u32, line: u32) -> usize {
        self.slot_offset(slot, wire) + line as usize * self.form.granule()
    }

    /// Bytes of staging memory that the plan's slots lie in.
    pub const fn staging_bytes(&self) -> usize {
        ring_bytes(self.n, self.form, self.slot_tiles as usize)
    }
}

impl fmt::Display for RingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RingPlan { n, dtype, op, order, geometry, form, wires, tiles, rounds, .. } = self;
        f.write_str("ring ")?;
        describe_call(f, *n, (*dtype, *op, *order), geometry)?;
        write!(f, ": {wires} wire{} of {tiles} tile{}", plural(*wires), plural(*tiles))?;
        write!(f, ", {}-byte lines, {rounds} round{}", form.granule(), plural(*rounds))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn ring(n: usize, count: u64, form: LineForm, slot_tiles: u32, wires: u32) -> RingPlan {
        let request = Request {
            count,
            dtype: DataType::Bfloat16,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        };
        let agreed = Agreed { max_wires: 64, tag_limit: u32::MAX, ..Agreed::ring(n, form, slot_tiles) };
        RingPlan::new(&request, &agreed, wires).unwrap()
    }

    #[test]
    fn slots_and_wires_never_overlap_and_fit_the_staging_memory() {
        for form in LineForm::ALL {
            for (slot_tiles, wires) in [(1, 1), (7, 1), (7, 3), (64, 64), (65, 64)] {
                let plan = ring(4, 1_000_000, form, slot_tiles, wires);
                let mut ranges = BTreeMap::new();
                for slot in 0..slots(4) as u32 {
                    for wire in 0..wires {
                        let lines = plan.tiles * form.lines_per_tile() as u32;
                        let start = plan.line_offset(slot, wire, 0);
                        assert_eq!(start % form.granule(), 0);
                        ranges.insert(start, plan.line_offset(slot, wire, lines));
                    }
                }
                let mut end = STAGING_HEAD_BYTES;
                for (start, stop) in ranges {
                    assert!(start >= end);
                    end = stop;
                }
                assert!(end <= plan.staging_bytes());
            }
        }
    }

    #[test]
    fn a_slot_begins_at_the_same_byte_whatever_the_wires() {
        let (one, many) = (ring(4, 9999, LineForm::L16, 65, 1), ring(4, 9999, LineForm::L16, 65, 8));
        for slot in 0..6 {
            assert_eq!(one.slot_offset(slot, 0), many.slot_offset(slot, 0));
        }
    }

    #[test]
    fn steps_come_by_round_position_wire_and_split_by_wire() {
        let plan = ring(3, 100_000, LineForm::L64, 4, 2);
        assert!(plan.rounds > 1);
        for rank in 0..3 {
            let steps: Vec<_> = plan.steps(rank).collect();
            assert!(steps.is_sorted_by_key(|s| (s.round, s.position, s.wire)));
            for wire in 0..2 {
                let own: Vec<_> = steps.iter().copied().filter(|s| s.wire == wire).collect();
                assert_eq!(own, plan.wire_steps(rank, wire).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_line_for_people_says_what_matters() {
        let text = ring(4, 100_000, LineForm::L64, 4, 2).to_string();
        assert_eq!(text, "ring bfloat16 sum order=ring n=4 count=100000: 2 wires of 2 tiles, 64-byte lines, 4 rounds");
    }

    #[test]
    fn rings_that_cannot_be_are_refused() {
        let request = Request {
            count: 1,
            dtype: DataType::Float32,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        };
        let agreed = Agreed { max_wires: 4, tag_limit: 9, ..Agreed::ring(0, LineForm::L8, 4) };
        assert!(RingPlan::new(&request, &agreed, 1).unwrap_err().to_string().contains("ring of 0"));
        let agreed = Agreed { n: 2, ..agreed };
        let huge = Agreed { slot_tiles: MAX_SLOT_TILES + 1, ..agreed };
        assert!(RingPlan::new(&request, &huge, 1).unwrap_err().to_string().contains("tiles"));
        for wires in [0, 5, 65] {
            assert!(RingPlan::new(&request, &agreed, wires).unwrap_err().to_string().contains("wires"));
        }
    }
}
