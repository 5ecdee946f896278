//! The push algorithms: one-shot, mesh and direct. Nobody passes anything on; everybody stores into everybody's memory.
//!
//! A plan is the same on every rank; what a given rank does, [`PushPlan::steps`] says. Which rank computes an element is
//! a matter of the algorithm and the transport; in which order its inputs are added is not: that is the contract of
//! [`Geometry::chunk_of`], whatever the algorithm.

use std::fmt;
use std::ops::Range;

use super::geometry::Geometry;
use super::ring::Segment;
use super::{Agreed, Request, describe_call, plural};
use crate::protocol::{BLOCK_BYTES, BLOCK_WORDS, BulkUse, Layout, LineForm, MAX_WIRES, Region, generation, owner};
use crate::{DataType, Error, Order, ReduceOp, Result};

/// How a push algorithm shares the work. The discriminants are the kernels' argument `mode`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Mode {
    /// Everybody sends everybody its whole message; everybody reduces all of it.
    OneShot = 0,
    /// Everybody sends each owner its share; the owner reduces it and sends everybody the result.
    Mesh = 1,
    /// Registered buffers on coherent memory: the owner reads its share from everybody's input and stores the result into
    /// everybody's output. Only flags travel.
    Direct = 2,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::OneShot => "one-shot",
            Mode::Mesh => "mesh",
            Mode::Direct => "direct",
        })
    }
}

/// How data and flag travel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Together, in one store.
    Lines(LineForm),
    /// Data, then a release, then one flag of the wire: only where that order is shown to hold.
    Bulk,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Lines(form) => write!(f, "{}-byte lines", form.granule()),
            Transport::Bulk => f.write_str("bulk"),
        }
    }
}

/// Sizes of the arguments of a push kernel (lines or bulk), in order: send, recv, state, host, peers (a table in device
/// memory of the n ranks' staging addresses, the own one at the own index), count, period, factor, kind, rank, n, mode
/// ([`Mode`]), part ([`PushPlan::part`]), rounds. Wires are the launch's work-groups; the rest of [`Layout`] is in
/// `CommState`.
pub const PUSH_ARGS: [usize; 14] = [8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4];

/// Sizes of the arguments of a direct kernel, in order: send, recv, state, host, peers (as above), buffers (a table in
/// device memory of where the n ranks' registered buffers begin in which the inputs lie, then those of the outputs, the own
/// ones included; all ranks' inputs are as far from there as `send` is from the own, and outputs likewise), count, period,
/// a fingerprint of which registrations these are, kind, rank, n.
pub const DIRECT_ARGS: [usize; 12] = [8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4];

/// What one step is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Lines: a segment of a chunk's stream on this wire.
    Lines {
        /// Chunk.
        chunk: usize,
        /// Blocks and lines. There may be more lines than data fills; they are sent and waited for nevertheless.
        segment: Segment,
    },
    /// Bulk and direct: elements side by side, perhaps none.
    Elements {
        /// The first.
        first: u64,
        /// How many.
        elements: u64,
    },
}

/// Phases of a round, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Stores own input into the peer's [`Region::Input`]; in direct, tells the peer that the own buffers are ready.
    Send,
    /// Waits for all peers' parts, reduces them with the own, stores the result into the own output; in a mesh also into
    /// every peer's [`Region::Result`], in direct also into every peer's output, and tells the peers that it is done.
    Reduce,
    /// Waits for the peer's result and stores it into the own output; in direct, waits until the peer is done.
    Gather,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Phase; 3] = [Phase::Send, Phase::Reduce, Phase::Gather];
}

/// One thing that one wire of one rank does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushStep {
    /// Round of the call.
    pub round: u32,
    /// Phase of the round.
    pub phase: Phase,
    /// Wire.
    pub wire: u32,
    /// The rank at the other end; the own one in [`Phase::Reduce`], which is about all.
    pub peer: usize,
    /// What of the message.
    pub part: Part,
}

impl fmt::Display for PushStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PushStep { round, phase, wire, peer, part } = self;
        write!(f, "round {round} {phase:?} wire {wire} peer {peer} ")?;
        match part {
            Part::Lines { chunk, segment } => {
                write!(f, "chunk {chunk} blocks {}+{}", segment.first_block, segment.blocks)
            }
            Part::Elements { first, elements } => write!(f, "elements {first}+{elements}"),
        }
    }
}

/// A message cut into elements side by side: rounds, owners, wires. What bulk and direct calls go by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// Elements of the message.
    pub count: u64,
    /// Ranks that share a round's window: n, or 1 where everybody reduces all.
    pub owners: u64,
    /// Wires.
    pub wires: u64,
    /// Most elements that a wire moves in a round: a multiple of `unit`.
    pub most: u64,
    /// What shares are a multiple of, but for the last: the elements of a block.
    pub unit: u64,
}

impl Windows {
    /// Elements of a full round.
    #[inline]
    pub const fn window(&self) -> u64 {
        self.owners * self.wires * self.most
    }

    /// Rounds of the message.
    pub const fn rounds(&self) -> u64 {
        self.count.div_ceil(self.window())
    }

    /// What `wire` of `owner` has in `round`: shares are as even as whole units allow, and may be empty.
    #[inline]
    pub fn range(&self, round: u32, owner: usize, wire: u32) -> Range<u64> {
        let start = self.count.min(u64::from(round) * self.window());
        let end = self.count.min(start + self.window());
        if self.owners * self.wires == 1 {
            // Nothing to share, and no division in the shortest calls.
            return start..end;
        }
        let share = (end - start).div_ceil(self.owners * self.wires).next_multiple_of(self.unit);
        let at = |i: u64| end.min(start + i * share);
        // One-shot has one owner, who stands for all.
        let i = (owner as u64).min(self.owners - 1) * self.wires + u64::from(wire);
        at(i)..at(i + 1)
    }
}

/// Where data in bulk lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BulkPlace {
    /// The rank in whose staging memory.
    pub holder: usize,
    /// Bytes from its beginning.
    pub offset: usize,
}

/// A push all-reduce of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushPlan {
    /// Ranks, at least 2.
    pub n: usize,
    /// Element type.
    pub dtype: DataType,
    /// Reduction.
    pub op: ReduceOp,
    /// Order of reduction.
    pub order: Order,
    /// Which element is of which chunk: in direct and bulk only the order of reduction, on lines also the streams.
    pub geometry: Geometry,
    /// Who does what.
    pub mode: Mode,
    /// How it travels; [`Transport::Bulk`] for direct.
    pub transport: Transport,
    /// Work-groups.
    pub wires: u32,
    /// What a wire has of a slot: lines on lines, bytes in bulk, 0 in direct.
    pub part: u32,
    /// Rounds, the maximum over chunks and wires.
    pub rounds: u32,
    /// Where everything lies.
    pub layout: Layout,
}

impl PushPlan {
    /// The plan for `request` on `wires` wires. Fails if it can't be expressed.
    pub fn new(request: &Request, agreed: &Agreed, mode: Mode, transport: Transport, wires: u32) -> Result<Self> {
        let Request { count, dtype, op, order, period, .. } = *request;
        let (n, layout) = (agreed.n, agreed.layout());
        let refuse = |what: String| Err(Error::InvalidArgument(format!("{mode} by {transport}: {what}")));
        if n < 2 {
            return refuse(format!("{n} ranks; it takes at least 2"));
        }
        if wires == 0 || wires as usize > MAX_WIRES {
            return refuse(format!("{wires} wires; there are 1 to {MAX_WIRES}"));
        }
        let part = match (mode, transport) {
            (Mode::Direct, Transport::Lines(_)) => return refuse("only flags travel".into()),
            (_, Transport::Bulk) if layout.bulk_bytes == 0 => return refuse("no bulk slots were agreed on".into()),
            (Mode::Direct, Transport::Bulk) => 0,
            (_, Transport::Bulk) => layout.bulk_bytes / wires / BLOCK_BYTES as u32 * BLOCK_BYTES as u32,
            (_, Transport::Lines(form)) if form != layout.form => {
                return refuse(format!("lines of {} bytes were agreed on", layout.form.granule()));
            }
            (_, Transport::Lines(form)) => layout.push_tiles * form.lines_per_tile() as u32 / wires,
        };
        let geometry = Geometry::new(n, count, period, dtype.size())?;
        let mut plan = Self { n, dtype, op, order, geometry, mode, transport, wires, part, rounds: 0, layout };
        let rounds = match transport {
            Transport::Lines(_) if plan.round_blocks() == 0 => {
                return refuse(format!("{wires} wires; a slot has too few tiles ({})", layout.push_tiles));
            }
            Transport::Lines(_) => {
                let longest = (0..n).map(|chunk| geometry.wire_blocks(chunk, wires, 0)).max().unwrap_or(0);
                longest.div_ceil(plan.round_blocks())
            }
            Transport::Bulk => plan.windows().rounds(),
        };
        plan.rounds = u32::try_from(rounds).map_err(|_| {
            Error::NotImplemented(format!("{count} elements of {dtype} in {rounds} rounds, more than 32 bits hold"))
        })?;
        Ok(plan)
    }

    /// Most wires with which every wire has room for a block.
    pub fn most_wires(agreed: &Agreed, mode: Mode, transport: Transport) -> u32 {
        let layout = agreed.layout();
        let most = match (mode, transport) {
            (Mode::Direct, _) => MAX_WIRES as u32,
            (_, Transport::Bulk) => layout.bulk_bytes / BLOCK_BYTES as u32,
            (_, Transport::Lines(form)) => {
                let lines = layout.push_tiles * form.lines_per_tile() as u32;
                // Of the elements that leave the most of a line unused: the limit is the same for all types.
                let block = (BLOCK_WORDS as u32).div_ceil(form.data_words(8) as u32);
                lines / (block * segments(mode, agreed.n))
            }
        };
        most.min(MAX_WIRES as u32)
    }

    /// On lines: the most lines of a segment.
    pub const fn segment_lines(&self) -> u32 {
        self.part / segments(self.mode, self.n)
    }

    /// On lines: blocks of a wire's stream for a chunk that one full round carries. Rounds begin with whole blocks; what is
    /// left over of the lines is not used.
    pub fn round_blocks(&self) -> u64 {
        match self.transport {
            Transport::Lines(form) => {
                u64::from(self.segment_lines()) * form.data_words(self.geometry.elem()) as u64 / BLOCK_WORDS as u64
            }
            Transport::Bulk => 0,
        }
    }

    /// On lines: what `wire` carries of `chunk` in `round`, if anything.
    ///
    /// In a one-shot a segment has as many lines in every round as in the first, with or without data: a line that sits
    /// out a round would not show that its receiver has taken the one before (docs/protocol.md).
    pub fn segment(&self, chunk: usize, wire: u32, round: u32) -> Option<Segment> {
        let Transport::Lines(form) = self.transport else { return None };
        let all = self.geometry.wire_blocks(chunk, self.wires, wire);
        let of = |round: u32| {
            let first_block = all.min(u64::from(round) * self.round_blocks());
            let blocks = (all - first_block).min(self.round_blocks());
            // A slot has at most MAX_SLOT_TILES tiles: 32 bits suffice.
            let words = self.geometry.wire_words(chunk, self.wires, wire, first_block, blocks) as u32;
            let lines = words.div_ceil(form.data_words(self.geometry.elem()) as u32);
            Segment { first_block, blocks: blocks as u32, words, lines }
        };
        let segment = match self.mode {
            Mode::OneShot => Segment { lines: of(0).lines, ..of(round) },
            Mode::Mesh | Mode::Direct => of(round),
        };
        (segment.lines > 0).then_some(segment)
    }

    /// In bulk and direct: how the message is cut.
    #[inline]
    pub const fn windows(&self) -> Windows {
        let unit = self.geometry.block_elements();
        let (owners, wires) = (if matches!(self.mode, Mode::OneShot) { 1 } else { self.n as u64 }, self.wires as u64);
        let most = match self.mode {
            // All in one round.
            Mode::Direct => self.geometry.count().div_ceil(owners * wires).next_multiple_of(unit),
            // Elements are a power of two.
            _ => (self.part as u64) >> self.geometry.elem().trailing_zeros(),
        };
        Windows { count: self.geometry.count(), owners, wires, most: if most == 0 { unit } else { most }, unit }
    }

    /// In bulk and direct: what `wire` of `owner` has in `round`, and whether flags go for it. In a one-shot and in direct
    /// they go in every round, data or not; see [`Self::segment`].
    #[inline]
    pub fn elements(&self, round: u32, owner: usize, wire: u32) -> Option<Part> {
        let windows = self.windows();
        let Range { start, end } = windows.range(round, owner, wire);
        let goes = match self.mode {
            Mode::OneShot if round == 0 => start < end,
            Mode::OneShot => !windows.range(0, 0, wire).is_empty(),
            Mode::Mesh => start < end,
            Mode::Direct => true,
        };
        goes.then_some(Part::Elements { first: start, elements: end - start })
    }

    /// What `wire` of `rank` does in a phase of `round`, in order.
    pub fn phase_steps(
        &self,
        rank: usize,
        round: u32,
        phase: Phase,
        wire: u32,
    ) -> impl Iterator<Item = PushStep> + use<> {
        let plan = *self;
        let (n, lines) = (plan.n, matches!(plan.transport, Transport::Lines(_)));
        // Each rank begins with the next one, so that no two store into the same memory at first.
        let peers = match phase {
            Phase::Send => 1..n,
            Phase::Reduce => 0..1,
            Phase::Gather if plan.mode == Mode::OneShot => 1..1,
            Phase::Gather => 1..n,
        };
        peers.flat_map(move |distance| {
            let peer = (rank + distance) % n;
            // Whose share it is about.
            let owned = match (plan.mode, phase) {
                (Mode::OneShot, _) | (_, Phase::Reduce) => rank,
                (Mode::Mesh, _) => peer,
                // What travels is the news that the own side is ready or the peer done.
                (Mode::Direct, Phase::Send) => rank,
                (Mode::Direct, Phase::Gather) => peer,
            };
            let parts = if lines && plan.mode == Mode::OneShot { n } else { 1 };
            (0..parts).filter_map(move |i| {
                let part = if lines {
                    // The chunk whose owner it is.
                    let chunk = if plan.mode == Mode::OneShot { i } else { (owned + 1) % n };
                    debug_assert!(plan.mode == Mode::OneShot || owner(n, chunk) == owned);
                    Part::Lines { chunk, segment: plan.segment(chunk, wire, round)? }
                } else {
                    plan.elements(round, owned, wire)?
                };
                Some(PushStep { round, phase, wire, peer, part })
            })
        })
    }

    /// What `rank` does, in order: by round, phase, wire.
    pub fn steps(&self, rank: usize) -> impl Iterator<Item = PushStep> + use<> {
        let plan = *self;
        (0..plan.rounds).flat_map(move |round| {
            Phase::ALL
                .into_iter()
                .flat_map(move |phase| (0..plan.wires).flat_map(move |wire| plan.phase_steps(rank, round, phase, wire)))
        })
    }

    /// Byte offset, in the receiver's staging memory, of the first line of `chunk` on `wire` that `sender` stores in the
    /// round with this tag.
    pub const fn segment_offset(&self, region: Region, tag: u32, sender: usize, wire: u32, chunk: usize) -> usize {
        let first = match self.mode {
            Mode::OneShot => chunk as u32 * self.segment_lines(),
            _ => 0,
        };
        let line = (wire * self.part + first) as usize;
        self.layout.push_slot(region, generation(tag), sender) + line * self.layout.form.granule()
    }

    /// Byte offset, in the receiver's staging memory, of the data in bulk that `sender` stores on `wire` in the round with this
    /// tag, of mHC by owners. The flag is at [`Layout::bulk_flag`].
    pub const fn bulk_offset(&self, region: Region, tag: u32, sender: usize, wire: u32) -> usize {
        self.layout.bulk_slot(region, generation(tag), sender) + wire as usize * self.part as usize
    }

    /// In bulk: where the input that `sender` stores for `receiver` on `wire` lies in the round with this tag. A mesh's
    /// result comes back in the same place. The flags are in the receiver's memory, at [`Layout::bulk_flag`].
    ///
    /// A place is stored to by who has read it last: by turns in a one-shot, to and fro in a mesh. Its lines are then in
    /// that rank's cache as its own, and the store need not ask for them.
    #[inline]
    pub const fn bulk_place(&self, tag: u32, sender: usize, receiver: usize, wire: u32) -> BulkPlace {
        self.bulk_place_from(self.layout.turns_offset(), tag, sender, receiver, wire)
    }

    /// The same with the offset of the first such slot at hand.
    #[inline]
    pub const fn bulk_place_from(
        &self,
        turns: usize,
        tag: u32,
        sender: usize,
        receiver: usize,
        wire: u32,
    ) -> BulkPlace {
        let (holder, peer, bulk_use) = match self.mode {
            Mode::OneShot if generation(tag) == 1 => (sender, receiver, BulkUse::OneShot),
            Mode::OneShot => (receiver, sender, BulkUse::OneShot),
            _ => (receiver, sender, BulkUse::Mesh),
        };
        let offset = self.layout.turn_slot_from(turns, bulk_use, peer) + wire as usize * self.part as usize;
        BulkPlace { holder, offset }
    }
}

/// Segments of a wire's part of a slot: one for each chunk that a sender has for one receiver.
const fn segments(mode: Mode, n: usize) -> u32 {
    match mode {
        Mode::OneShot => n as u32,
        Mode::Mesh | Mode::Direct => 1,
    }
}

impl fmt::Display for PushPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PushPlan { n, dtype, op, order, geometry, mode, transport, wires, rounds, .. } = self;
        write!(f, "{mode} ")?;
        describe_call(f, *n, (*dtype, *op, *order), geometry)?;
        write!(f, ": {wires} wire{}", plural(*wires))?;
        match (mode, transport) {
            (Mode::Direct, _) => {}
            (_, Transport::Lines(_)) => write!(f, " of {} lines, {transport}", self.part)?,
            (_, Transport::Bulk) => write!(f, " of {} bytes, {transport}", self.part)?,
        }
        write!(f, ", {rounds} round{}", plural(*rounds))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::protocol::GENERATIONS;

    const AGREED: Agreed = Agreed { push_tiles: 16, bulk_bytes: 65_536, ..Agreed::ring(4, LineForm::L64, 8) };

    fn push(n: usize, count: u64, mode: Mode, transport: Transport, wires: u32) -> PushPlan {
        let request = Request {
            count,
            dtype: DataType::Bfloat16,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        };
        PushPlan::new(&request, &Agreed { n, ..AGREED }, mode, transport, wires).unwrap()
    }

    #[test]
    fn windows_hold_every_element_once_and_fit() {
        for count in [0, 1, 127, 128, 129, 1000, 32_768, 32_769, 1_000_003] {
            for (owners, wires, most) in [(1, 1, 128), (1, 3, 4096), (4, 1, 1024), (5, 2, 128), (16, 64, 256)] {
                let windows = Windows { count, owners, wires, most, unit: 128 };
                let mut next = 0;
                for round in 0..windows.rounds() as u32 {
                    for owner in 0..owners as usize {
                        for wire in 0..wires as u32 {
                            let range = windows.range(round, owner, wire);
                            assert!(range.end - range.start <= most && (range.is_empty() || range.start == next));
                            assert!(range.is_empty() || range.start.is_multiple_of(128));
                            next = next.max(range.end);
                        }
                    }
                }
                assert_eq!(next, count, "{windows:?}");
            }
        }
    }

    #[test]
    fn parts_of_slots_never_overlap_and_stay_in_their_slot() {
        let lines = Transport::Lines(LineForm::L64);
        for (mode, transport, wires) in [
            (Mode::OneShot, lines, 1),
            (Mode::OneShot, lines, 3),
            (Mode::Mesh, lines, 1),
            (Mode::Mesh, lines, 7),
            (Mode::OneShot, Transport::Bulk, 3),
            (Mode::Mesh, Transport::Bulk, 1),
        ] {
            let plan = push(4, 1_000_000, mode, transport, wires);
            let mut ranges = Vec::new();
            if transport == Transport::Bulk {
                // Of two tags that follow one another: of a one-shot all slots are used, each by one rank.
                for (tag, sender, peer) in
                    (1..=2).flat_map(|t| (0..4).flat_map(move |s| (0..4).map(move |p| (t, s, p))))
                {
                    if sender == peer || (mode == Mode::Mesh && tag == 2) {
                        continue;
                    }
                    for wire in 0..wires {
                        let BulkPlace { holder, offset } = plan.bulk_place(tag, sender, peer, wire);
                        let back = plan.bulk_place(tag + 1, peer, sender, wire);
                        assert_eq!((holder, offset) == (back.holder, back.offset), mode == Mode::OneShot);
                        let memory = (holder + 4 * tag as usize) * plan.layout.bytes();
                        let slot = offset - wire as usize * plan.part as usize;
                        ranges.push((memory + offset, plan.part as usize, memory + slot));
                    }
                }
            }
            for tag in (1..=GENERATIONS as u32).filter(|_| transport != Transport::Bulk) {
                for region in Region::ALL {
                    for (sender, wire) in (0..4).flat_map(|s| (0..wires).map(move |w| (s, w))) {
                        for chunk in 0..segments(mode, 4) as usize {
                            let at = plan.segment_offset(region, tag, sender, wire, chunk);
                            let slot = plan.layout.push_slot(region, generation(tag), sender);
                            ranges.push((at, plan.segment_lines() as usize * 64, slot));
                        }
                    }
                }
            }
            ranges.sort_unstable();
            let slot_bytes = match transport {
                Transport::Bulk => plan.layout.bulk_bytes as usize,
                Transport::Lines(_) => plan.layout.push_slot_bytes(),
            };
            let mut end = 0;
            for (start, bytes, slot) in ranges {
                assert!(start >= end && start >= slot && start + bytes <= slot + slot_bytes, "{plan}");
                end = start + bytes;
            }
        }
    }

    #[test]
    fn a_one_shot_of_several_rounds_sends_the_same_lines_in_each() {
        for transport in [Transport::Lines(LineForm::L64), Transport::Bulk] {
            let plan = push(4, 100_000, Mode::OneShot, transport, 2);
            assert!(plan.rounds > 1);
            let in_round = |round: u32| {
                let steps = plan.steps(1).filter(|s| s.round == round && s.phase == Phase::Send);
                let lines = |s: PushStep| if let Part::Lines { segment, .. } = s.part { segment.lines } else { 1 };
                steps.map(|s| (s.wire, s.peer, lines(s))).collect::<Vec<_>>()
            };
            for round in 1..plan.rounds {
                assert_eq!(in_round(round), in_round(0), "{plan}");
            }
        }
        // And a short one only what it needs: one line, to each of three peers.
        let plan = push(4, 1, Mode::OneShot, Transport::Lines(LineForm::L64), 1);
        assert_eq!(plan.steps(2).filter(|s| s.phase == Phase::Send).count(), 3);
    }

    #[test]
    fn a_line_for_people_says_what_matters() {
        let lines = Transport::Lines(LineForm::L64);
        for (plan, text) in [
            (
                push(4, 5000, Mode::OneShot, lines, 2),
                "one-shot bfloat16 sum order=ring n=4 count=5000: 2 wires of 512 lines, 64-byte lines, 1 round",
            ),
            (
                push(4, 1 << 20, Mode::Mesh, Transport::Bulk, 1),
                "mesh bfloat16 sum order=ring n=4 count=1048576: 1 wire of 65536 bytes, bulk, 8 rounds",
            ),
            (
                push(4, 1 << 20, Mode::Direct, Transport::Bulk, 1),
                "direct bfloat16 sum order=ring n=4 count=1048576: 1 wire, 1 round",
            ),
        ] {
            assert_eq!(plan.to_string(), text);
        }
    }

    #[test]
    fn the_most_wires_are_the_most() {
        for (mode, transport) in [
            (Mode::OneShot, Transport::Lines(LineForm::L64)),
            (Mode::Mesh, Transport::Lines(LineForm::L64)),
            (Mode::OneShot, Transport::Bulk),
        ] {
            let agreed = Agreed { push_tiles: 2, bulk_bytes: 4096, ..AGREED };
            let most = PushPlan::most_wires(&agreed, mode, transport);
            let request = Request {
                count: 9,
                dtype: DataType::Float32,
                op: ReduceOp::Sum,
                order: Order::Rank,
                period: None,
                registered: None,
            };
            assert!(most > 0 && most < 64);
            PushPlan::new(&request, &agreed, mode, transport, most).unwrap();
            let more = PushPlan::new(&request, &agreed, mode, transport, most + 1);
            assert!(transport == Transport::Bulk || more.is_err(), "{mode} {transport} {most}");
        }
    }
}
