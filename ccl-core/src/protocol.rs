//! The numbers of the wire protocol (docs/protocol.md is its law).
//!
//! Plans, native twins, device kernels and model checks all read these; nothing here depends on a driver.

pub mod channel;
mod layout;

pub use layout::{
    BULK_UNIT, BulkOffsets, BulkUse, DirectFlag, FLAG_STRIDE, GENERATIONS, Layout, Region, generation, ring_bytes,
};

use channel::ChannelState;

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
