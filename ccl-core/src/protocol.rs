//! The numbers of the wire protocol (docs/protocol.md is its law).
//!
//! Plans, native twins, device kernels and model checks all read these; nothing here depends on a driver.

pub mod channel;

use channel::{CHANNEL_DEPTH, CHANNEL_WIRES, ChannelState};

/// Bytes of a block: the unit of block-cyclic ownership.
pub const BLOCK_BYTES: usize = 256;
/// 32-bit words of a block.
pub const BLOCK_WORDS: usize = BLOCK_BYTES / 4;
/// Blocks of a tile, the unit in which slots are sized: the least number of blocks that fills whole lines in every
/// [`LineForm`] (1, 3 and 15 words of payload), so that rounds begin at block boundaries. Of 8-byte elements a tile may
/// hold fewer ([`LineForm::tile_blocks`]).
pub const TILE_BLOCKS: usize = 15;
/// 32-bit words of a tile.
pub const TILE_WORDS: usize = TILE_BLOCKS * BLOCK_WORDS;
/// Most work-groups (wires) that one collective may use.
pub const MAX_WIRES: usize = 64;
/// Most ranks of a ring.
pub const MAX_RANKS: usize = 16;
/// Spins between two looks at the abort word.
pub const SPINS_PER_ABORT_POLL: u32 = 1024;
/// Highest tag in use: 0 is a cleared flag, all ones is what poisoned memory holds.
pub const TAG_LIMIT: u32 = u32::MAX - 1;
/// Byte that fills the output of a collective that gave up: NaN in every float type.
pub const FAILED_FILL: u8 = 0xFF;

/// Slots of a wire: one for each step of the ring, one generation. One fewer is not safe (docs/protocol.md).
pub const fn slots(n: usize) -> usize {
    if n < 2 { 0 } else { 2 * (n - 1) }
}

/// Steps of a ring all-reduce: n-1 of reduce-scatter, n-1 of all-gather.
pub const fn steps(n: usize) -> usize {
    slots(n)
}

/// Chunk that `rank` sends in `step`; it receives [`sent_chunk`] of the previous rank.
pub const fn sent_chunk(n: usize, rank: usize, step: usize) -> usize {
    // Reduce-scatter step s sends chunk r - s; all-gather step s' = s - (n-1) sends chunk r + 1 - s'. Both are r - s
    // modulo n, since r + 1 - (s - n + 1) = r - s + n.
    (rank + 2 * n - step % n) % n
}

/// Chunk that `rank` receives in `step` from the previous rank.
pub const fn received_chunk(n: usize, rank: usize, step: usize) -> usize {
    sent_chunk(n, (rank + n - 1) % n, step)
}

/// Rank in which the reduction of `chunk` ends.
pub const fn owner(n: usize, chunk: usize) -> usize {
    (chunk + n - 1) % n
}

/// Size and payload of a line: one naturally aligned store that carries data and, in its last word, the flag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LineForm {
    /// 8 bytes, 4 of them data.
    L8,
    /// 16 bytes, 12 of them data.
    L16,
    /// 64 bytes, 60 of them data.
    L64,
}

impl LineForm {
    /// All forms, narrowest first.
    pub const ALL: [LineForm; 3] = [LineForm::L8, LineForm::L16, LineForm::L64];

    /// Bytes that can't be seen torn.
    pub const fn granule(self) -> usize {
        match self {
            LineForm::L8 => 8,
            LineForm::L16 => 16,
            LineForm::L64 => 64,
        }
    }

    /// 32-bit words of data.
    pub const fn payload_words(self) -> usize {
        self.granule() / 4 - 1
    }

    /// 32-bit words of data in a line of elements of `elem` bytes. An element of 8 bytes doesn't straddle two work-items:
    /// of the wider forms one word stays unused, and of the narrowest each has two lines.
    pub const fn data_words(self, elem: usize) -> usize {
        match (self, elem) {
            (LineForm::L64, 8) => 14,
            (LineForm::L16, 8) => 2,
            _ => self.payload_words(),
        }
    }

    /// Blocks of a tile of elements of `elem` bytes: what its lines, which are the same for all types, carry.
    pub const fn tile_blocks(self, elem: usize) -> usize {
        self.lines_per_tile() * self.data_words(elem) / BLOCK_WORDS
    }

    /// Lines of a tile.
    pub const fn lines_per_tile(self) -> usize {
        TILE_WORDS / self.payload_words()
    }

    /// Bytes of a tile on the wire.
    pub const fn tile_bytes(self) -> usize {
        self.lines_per_tile() * self.granule()
    }

    /// The next narrower form.
    pub fn narrower(self) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|form| *form < self)
    }

    /// The widest form whose granule is at most `bytes`.
    pub fn from_granule(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|f| f.granule() <= bytes)
    }
}

/// Tag of `round` of a call that starts at `base`.
pub const fn tag(base: u32, round: u32) -> u32 {
    base + round + 1
}

/// Where a call's tags begin and where the next call's begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagSpan {
    /// Base of this call.
    pub base: u32,
    /// Base that its last work-group leaves behind.
    pub next: u32,
    /// Whether this call must first do barrier, clear own flags, barrier.
    pub wraps: bool,
}

/// The tags of a call of `rounds` rounds, given the base that the previous call left. `rounds <= limit`.
pub const fn tag_span(base: u32, rounds: u32, limit: u32) -> TagSpan {
    if rounds > limit - base {
        TagSpan { base: 0, next: rounds, wraps: true }
    } else {
        TagSpan { base, next: base + rounds, wraps: false }
    }
}

/// One communicator's state in DEVICE memory. Written by the host once, before the first collective; afterwards only
/// collectives touch it, in stream order.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommState {
    /// Tags up to this one are spent.
    pub base: u32,
    /// Highest tag ([`TAG_LIMIT`]; smaller in tests).
    pub tag_limit: u32,
    /// Work-groups of the running collective that have left.
    pub left: u32,
    /// Not 0 once a collective gave up or overlapped another: a [`Fault`] code, sticky.
    pub poisoned: u32,
    /// Times the tag range was started anew.
    pub wraps: u32,
    /// Switches a rule off, for negative controls (see `ccl_ze::hooks`); 0 in use.
    pub hooks: u32,
    /// Collectives that have finished.
    pub calls: u64,
    /// Milliseconds after which a waiting kernel gives up by itself, the backstop behind the host's deadline.
    pub spin_limit_ms: u64,
    /// Turns a waiting work-group may spin before it gives the processor away (CPU only).
    pub spins_before_yield: u32,
    /// Turns of a device kernel's wait that take about a millisecond, by which it measures `spin_limit_ms`; 0 is what
    /// suits a GPU. Not used by the native twins, which have a clock.
    pub spins_per_ms: u32,
    /// [`Layout::slot_tiles`]: what a clearing needs to know of staging memory, whatever the call's algorithm.
    pub slot_tiles: u32,
    /// [`Layout::push_tiles`].
    pub push_tiles: u32,
    /// [`Layout::bulk_bytes`].
    pub bulk_bytes: u32,
    /// [`Layout::form`], by its bytes. (`busy` begins on a line of its own.)
    pub granule: u32,
    /// One word per work-group, exchanged on entry: two overlapping collectives of one communicator are an error.
    pub busy: [u32; MAX_WIRES],
    /// Not 0: every call begins by comparing its [`Shape`] with the previous rank's.
    pub check: u32,
    /// Unused.
    pub reserved: u32,
    /// Of the channels.
    pub channels: ChannelState,
}

/// One communicator's block in HOST memory: what host and device tell each other while a collective runs.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct HostBlock {
    /// Set by the host: give up. The only word that the device polls over the bus.
    pub abort: u32,
    /// Keeps the device's words off the polled line.
    pub reserved: [u32; 15],
    /// Collectives entered.
    pub entered: u64,
    /// Collectives finished.
    pub done: u64,
    /// [`Fault`] code of the first failure, 0 if none; written last.
    pub fault: u32,
    /// Wire that failed.
    pub wire: u32,
    /// Step that failed.
    pub step: u32,
    /// Round that failed.
    pub round: u32,
    /// Tag that was waited for.
    pub expected: u32,
    /// Flag that was there instead.
    pub seen: u32,
    /// Number (from 1) of the collective that failed.
    pub call: u64,
    /// Number of the collective that the words below tell of: the latest that began on a sound communicator.
    pub shape_call: u64,
    /// [`Shape::count`].
    pub shape_count: u64,
    /// [`Shape::kind`].
    pub shape_kind: u32,
    /// [`Shape::fingerprint`].
    pub shape_fingerprint: u32,
    /// Calls between some ranks only that were entered. While one runs, it is told of as the collective that would be next.
    pub private_entered: u64,
}

/// Why a collective gave up, as the device says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Fault {
    /// The abort word was set.
    Aborted = 1,
    /// The device's own limit passed.
    SpinLimit = 2,
    /// Another collective of the same communicator was running.
    Overlap = 3,
    /// The previous rank made another call (seen with [`CommState::check`] only).
    Mismatch = 4,
}

/// What a collective is, as the device tells it: also of one that is replayed, which the host does not see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Elements.
    pub count: u64,
    /// [`crate::types::Kind`], and above it which collective.
    pub kind: u32,
    /// Of all arguments that must be alike on all ranks; equal fingerprints are equal calls as far as 32 bits tell.
    pub fingerprint: u32,
}

/// Mixes a word into a fingerprint; the device kernels do the same.
pub const fn fingerprint_of(before: u32, word: u32) -> u32 {
    let x = (before ^ word).wrapping_mul(0x9E37_79B1);
    x ^ (x >> 15)
}

impl Shape {
    /// The shape of a call with these arguments. `further` is what else a kind of call wants
    /// alike: where a direct call's buffers lie.
    pub const fn new(count: u64, period: u64, further: u64, kind: u32, rounds: u32) -> Self {
        let words = [
            count as u32,
            (count >> 32) as u32,
            period as u32,
            (period >> 32) as u32,
            further as u32,
            (further >> 32) as u32,
            kind,
            rounds,
        ];
        let mut fingerprint = 0;
        let mut i = 0;
        while i < words.len() {
            fingerprint = fingerprint_of(fingerprint, words[i]);
            i += 1;
        }
        Self { count, kind, fingerprint }
    }
}

impl Fault {
    /// The fault with this code.
    pub fn from_code(code: u32) -> Option<Self> {
        [Fault::Aborted, Fault::SpinLimit, Fault::Overlap, Fault::Mismatch].into_iter().find(|f| *f as u32 == code)
    }
}

/// Head of a rank's staging memory, before the slots: what is not data.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct StagingHead {
    /// 1 while the owner sleeps on it; read by the sender where memory is coherent (CPU) only.
    pub parked: u32,
    /// Keeps the barrier lines apart.
    pub reserved: [u32; 15],
    /// Flags of the barriers around a clearing, for each wire: barrier 0 lap 0, barrier 0 lap 1, barrier 1 lap 0,
    /// barrier 1 lap 1. The value is the number of the clearing (`CommState::wraps` + 1).
    pub barrier: [[u32; 16]; MAX_WIRES],
    /// A line of 8 bytes: the previous rank's fingerprint and, as the flag, the number of its call.
    pub check: [u32; 16],
}

/// Bytes before the first slot.
pub const STAGING_HEAD_BYTES: usize = 8192;
const _: () = assert!(size_of::<StagingHead>() <= STAGING_HEAD_BYTES);

/// Generations of a push slot: one for odd tags, one for even ones (docs/protocol.md, "Why two generations").
pub const GENERATIONS: usize = 2;
/// Bytes from one flag to the next, where flags are apart from their data: each on a line of its own.
pub const FLAG_STRIDE: usize = 64;

/// Generation of the push slots that the round with this tag uses.
#[inline]
pub const fn generation(tag: u32) -> usize {
    (tag % GENERATIONS as u32) as usize
}

/// What a push slot is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Region {
    /// Inputs: one-shot, and the first phase of a mesh.
    Input = 0,
    /// Results: the second phase of a mesh.
    Result = 1,
}

impl Region {
    /// Both.
    pub const ALL: [Region; 2] = [Region::Input, Region::Result];
}

/// Which flag of a direct call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum DirectFlag {
    /// The sender's buffers may be read and written.
    Ready = 0,
    /// The sender has read all that it reads and stored all that it stores.
    Done = 1,
}

/// Where everything in a rank's staging memory lies: a function of what all ranks agreed on at init, never of a call.
///
/// `StagingHead` | the ring's line slots | push line slots | flags of bulk slots and of direct calls | bulk slots |
/// credits of channels | flags of channels | slots of channels.
/// Ranges are never shared between layouts of a word: one that holds data must not lie where another layout polls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// Ranks.
    pub n: usize,
    /// Lines on the wire.
    pub form: LineForm,
    /// Tiles of a slot of the ring.
    pub slot_tiles: u32,
    /// Tiles of a push line slot; 0 if there are none.
    pub push_tiles: u32,
    /// Data bytes of a bulk slot, a multiple of [`BULK_UNIT`]; 0 if there are none, nor flags of direct calls.
    pub bulk_bytes: u32,
}

/// What a bulk slot is for. Each has its own: who may store into it next depends on the algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum BulkUse {
    /// One-shots: the two ranks of a slot store into it by turns.
    OneShot = 0,
    /// Meshes: what went to the owner comes back as the result.
    Mesh = 1,
}

impl BulkUse {
    /// Both.
    pub const ALL: [BulkUse; 2] = [BulkUse::OneShot, BulkUse::Mesh];
}

/// What the size of a bulk slot is a multiple of.
pub const BULK_UNIT: u32 = 4096;

/// Where in the staging memory begins what calls in bulk use; see [`Layout::bulk_offsets`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkOffsets {
    /// The flags.
    pub flags: usize,
    /// The slots of one-shots and meshes.
    pub turns: usize,
}

impl Layout {
    #[inline]
    const fn places(&self) -> usize {
        if self.n < 2 { 0 } else { Region::ALL.len() * GENERATIONS * self.n }
    }

    #[inline]
    const fn place(&self, region: Region, generation: usize, sender: usize) -> usize {
        (region as usize * GENERATIONS + generation) * self.n + sender
    }

    /// Byte offset of the first push line slot: the end of the ring's.
    #[inline]
    pub const fn push_offset(&self) -> usize {
        ring_bytes(self.n, self.form, self.slot_tiles as usize)
    }

    /// Bytes of a push line slot.
    #[inline]
    pub const fn push_slot_bytes(&self) -> usize {
        self.push_tiles as usize * self.form.tile_bytes()
    }

    /// Byte offset of the push line slot into which `sender` stores. The own one is never used.
    pub const fn push_slot(&self, region: Region, generation: usize, sender: usize) -> usize {
        self.push_offset() + self.place(region, generation, sender) * self.push_slot_bytes()
    }

    /// Byte offset of the first flag, where the lines end: all from the head to here are lines of one form.
    #[inline]
    pub const fn flags_offset(&self) -> usize {
        self.push_offset() + self.places() * self.push_slot_bytes()
    }

    /// Flags that are apart from their data: those of bulk slots, then those of direct calls.
    #[inline]
    pub const fn flags(&self) -> usize {
        if self.bulk_bytes == 0 || self.n < 2 { 0 } else { (self.places() + 2 * self.n) * MAX_WIRES }
    }

    /// Byte offset of a wire's flag of a bulk slot.
    #[inline]
    pub const fn bulk_flag(&self, region: Region, generation: usize, sender: usize, wire: u32) -> usize {
        self.bulk_flag_from(self.flags_offset(), region, generation, sender, wire)
    }

    /// The same with the offset of the first flag at hand.
    #[inline]
    pub const fn bulk_flag_from(
        &self,
        flags: usize,
        region: Region,
        generation: usize,
        sender: usize,
        wire: u32,
    ) -> usize {
        let flag = self.place(region, generation, sender) * MAX_WIRES + wire as usize;
        flags + flag * FLAG_STRIDE
    }

    /// Byte offset of a wire's flag of a direct call.
    pub const fn direct_flag(&self, which: DirectFlag, sender: usize, wire: u32) -> usize {
        let flag = (self.places() + which as usize * self.n + sender) * MAX_WIRES + wire as usize;
        self.flags_offset() + flag * FLAG_STRIDE
    }

    /// Byte offset of the first bulk slot.
    #[inline]
    pub const fn bulk_offset(&self) -> usize {
        (self.flags_offset() + self.flags() * FLAG_STRIDE).next_multiple_of(BULK_UNIT as usize)
    }

    /// Byte offset of the data of the bulk slot into which `sender` stores, of mHC by owners. The own one is never used.
    pub const fn bulk_slot(&self, region: Region, generation: usize, sender: usize) -> usize {
        self.bulk_offset() + self.place(region, generation, sender) * self.bulk_bytes as usize
    }

    /// Byte offsets of what calls in bulk look for again and again.
    #[inline]
    pub const fn bulk_offsets(&self) -> BulkOffsets {
        BulkOffsets { flags: self.flags_offset(), turns: self.turns_offset() }
    }

    /// Byte offset of the first bulk slot of one-shots and meshes.
    #[inline]
    pub const fn turns_offset(&self) -> usize {
        self.bulk_offset() + self.places() * self.bulk_bytes as usize
    }

    /// Byte offset of the bulk slot that the owner of the memory shares with `peer`, of one-shots or meshes. The own one is
    /// never used.
    #[inline]
    pub const fn turn_slot(&self, bulk_use: BulkUse, peer: usize) -> usize {
        self.turn_slot_from(self.turns_offset(), bulk_use, peer)
    }

    /// The same with the offset of the first of them at hand.
    #[inline]
    pub const fn turn_slot_from(&self, turns: usize, bulk_use: BulkUse, peer: usize) -> usize {
        turns + (bulk_use as usize * self.n + peer) * self.bulk_bytes as usize
    }

    /// Byte offset of the first credit of channels: the end of all that is shared by calls of all ranks.
    pub const fn channel_offset(&self) -> usize {
        let end = if self.bulk_bytes == 0 {
            self.flags_offset()
        } else {
            self.turns_offset() + if self.n < 2 { 0 } else { BulkUse::ALL.len() * self.n * self.bulk_bytes as usize }
        };
        end.next_multiple_of(BULK_UNIT as usize)
    }

    const fn channels(&self) -> usize {
        if self.push_tiles == 0 || self.n < 2 { 0 } else { self.n * CHANNEL_WIRES }
    }

    /// Lines of a channel's slot, on lines.
    pub const fn channel_part_lines(&self) -> u32 {
        self.push_tiles * self.form.lines_per_tile() as u32 / CHANNEL_WIRES as u32
    }

    /// Bytes of a channel's slot, in bulk.
    pub const fn channel_part_bytes(&self) -> u32 {
        self.bulk_bytes / CHANNEL_WIRES as u32 / BLOCK_BYTES as u32 * BLOCK_BYTES as u32
    }

    /// Bytes from one slot of channels to the next.
    pub const fn channel_slot_bytes(&self) -> usize {
        let lines = self.channel_part_lines() as usize * self.form.granule();
        let bulk = self.channel_part_bytes() as usize;
        (if lines > bulk { lines } else { bulk }).next_multiple_of(FLAG_STRIDE)
    }

    /// Byte offset, in the sender's staging memory, of the credit that `receiver` gives it on a wire.
    pub const fn channel_credit(&self, receiver: usize, wire: u32) -> usize {
        self.channel_offset() + (receiver * CHANNEL_WIRES + wire as usize) * FLAG_STRIDE
    }

    /// Byte offset, in the receiver's staging memory, of the flag of a message of `sender` in bulk.
    pub const fn channel_flag(&self, slot: usize, sender: usize, wire: u32) -> usize {
        let flag = (sender * CHANNEL_WIRES + wire as usize) * CHANNEL_DEPTH + slot;
        self.channel_offset() + (self.channels() + flag) * FLAG_STRIDE
    }

    /// Byte offset, in the receiver's staging memory, of a message of `sender`.
    pub const fn channel_slot(&self, slot: usize, sender: usize, wire: u32) -> usize {
        let first = self.channel_offset() + self.channels() * (1 + CHANNEL_DEPTH) * FLAG_STRIDE;
        first + ((sender * CHANNEL_WIRES + wire as usize) * CHANNEL_DEPTH + slot) * self.channel_slot_bytes()
    }

    /// Bytes of staging memory.
    pub const fn bytes(&self) -> usize {
        if self.channels() == 0 { self.channel_offset() } else { self.channel_slot(0, self.n, 0) }
    }
}

/// Bytes of the head and of the ring's slots, for each step one of `slot_tiles` tiles.
///
/// Slot s of every layout is the same range, whatever the number of wires: that is what makes calls of different
/// sizes safe after one another.
pub const fn ring_bytes(n: usize, form: LineForm, slot_tiles: usize) -> usize {
    STAGING_HEAD_BYTES + slots(n) * slot_tiles * form.tile_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_go_round_and_end_at_their_owner() {
        for n in 2..=MAX_RANKS {
            for chunk in 0..n {
                let mut at = chunk;
                for step in 0..steps(n) {
                    assert_eq!(sent_chunk(n, at, step), chunk, "n {n} step {step}");
                    at = (at + 1) % n;
                    assert_eq!(received_chunk(n, at, step), chunk);
                    if step == n - 2 {
                        assert_eq!(at, owner(n, chunk));
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_are_whole_lines() {
        for form in LineForm::ALL {
            assert_eq!(form.lines_per_tile() * form.payload_words(), TILE_WORDS);
        }
        for elem in [1, 2, 4, 8] {
            for form in LineForm::ALL {
                // Rounds begin at block boundaries, and elements in one line or in two of their own.
                let words = form.lines_per_tile() * form.data_words(elem);
                assert_eq!(words, form.tile_blocks(elem) * BLOCK_WORDS);
                assert!(form.data_words(elem) * 4 % elem == 0 || form.data_words(elem) * 8 == elem);
            }
        }
        assert_eq!(
            LineForm::ALL.map(|form| (form.tile_blocks(4), form.tile_blocks(8))),
            [(15, 15), (15, 10), (15, 14)]
        );
        assert_eq!(LineForm::from_granule(32), Some(LineForm::L16));
        assert_eq!(LineForm::from_granule(4), None);
    }

    #[test]
    fn nothing_in_staging_memory_overlaps() {
        for form in LineForm::ALL {
            for (n, push_tiles, bulk_bytes) in [(2, 3, 4096), (3, 1, 8192), (16, 16, 262_144), (5, 0, 4096), (5, 4, 0)]
            {
                let layout = Layout { n, form, slot_tiles: 7, push_tiles, bulk_bytes };
                let mut ranges = vec![(0, STAGING_HEAD_BYTES, 8)];
                for slot in 0..slots(n) {
                    let bytes = 7 * form.tile_bytes();
                    ranges.push((STAGING_HEAD_BYTES + slot * bytes, bytes, form.granule()));
                }
                for sender in 0..n {
                    for region in Region::ALL {
                        for generation in 0..GENERATIONS {
                            let bytes = layout.push_slot_bytes();
                            ranges.push((layout.push_slot(region, generation, sender), bytes, form.granule()));
                            if bulk_bytes > 0 {
                                let at = layout.bulk_slot(region, generation, sender);
                                ranges.push((at, bulk_bytes as usize, BULK_UNIT as usize));
                                for wire in 0..MAX_WIRES as u32 {
                                    ranges.push((layout.bulk_flag(region, generation, sender, wire), 64, 64));
                                }
                            }
                        }
                    }
                    for bulk_use in BulkUse::ALL.into_iter().filter(|_| bulk_bytes > 0) {
                        let at = layout.turn_slot(bulk_use, sender);
                        ranges.push((at, bulk_bytes as usize, BULK_UNIT as usize));
                    }
                    for which in [DirectFlag::Ready, DirectFlag::Done] {
                        for wire in (0..MAX_WIRES as u32).filter(|_| bulk_bytes > 0) {
                            ranges.push((layout.direct_flag(which, sender, wire), 64, 64));
                        }
                    }
                }
                for (sender, wire) in (0..n).flat_map(|s| (0..CHANNEL_WIRES as u32).map(move |w| (s, w))) {
                    if push_tiles == 0 {
                        continue;
                    }
                    ranges.push((layout.channel_credit(sender, wire), FLAG_STRIDE, FLAG_STRIDE));
                    for slot in 0..CHANNEL_DEPTH {
                        ranges.push((layout.channel_flag(slot, sender, wire), FLAG_STRIDE, FLAG_STRIDE));
                        let bytes = layout.channel_slot_bytes();
                        assert!(bytes >= layout.channel_part_lines() as usize * form.granule());
                        assert!(bytes >= layout.channel_part_bytes() as usize);
                        ranges.push((layout.channel_slot(slot, sender, wire), bytes, FLAG_STRIDE));
                    }
                }
                ranges.sort_unstable();
                let mut end = 0;
                let mut used = 0;
                for (start, bytes, align) in ranges {
                    assert!(start >= end && start % align == 0, "{layout:?} at {start}");
                    end = start + bytes;
                    used += bytes;
                }
                assert!(layout.bytes() - end < BULK_UNIT as usize, "{layout:?}");
                assert!(end - used < 2 * BULK_UNIT as usize, "holes");
                let flags = (layout.flags_offset()..layout.flags_offset() + layout.flags() * FLAG_STRIDE).len();
                assert_eq!(flags, if bulk_bytes > 0 { 6 * n * MAX_WIRES * 64 } else { 0 });
            }
        }
        let alone = Layout { n: 1, form: LineForm::L64, slot_tiles: 9, push_tiles: 9, bulk_bytes: 4096 };
        assert!(alone.bytes() <= STAGING_HEAD_BYTES + BULK_UNIT as usize);
    }

    #[test]
    fn tags_never_pass_the_limit_and_are_never_zero() {
        let mut base = 0;
        let mut wraps = 0;
        for call in 0..10_000u32 {
            let rounds = 1 + call % 7;
            let span = tag_span(base, rounds, 255);
            assert!(tag(span.base, 0) > 0 && tag(span.base, rounds - 1) <= 255);
            assert_eq!(span.wraps, span.base == 0 && call > 0);
            wraps += u32::from(span.wraps);
            base = span.next;
        }
        assert!(wraps > 100);
    }
}
