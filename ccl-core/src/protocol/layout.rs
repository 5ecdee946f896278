//! Where everything lies in a rank's staging memory, and which of it a call may use.

use super::channel::{CHANNEL_DEPTH, CHANNEL_WIRES};
use super::{BLOCK_BYTES, LineForm, MAX_WIRES, STAGING_HEAD_BYTES, slots};

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
        Region::ALL.len() * GENERATIONS * self.n
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
        if self.bulk_bytes == 0 { 0 } else { (self.places() + 2 * self.n) * MAX_WIRES }
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
            self.turns_offset() + BulkUse::ALL.len() * self.n * self.bulk_bytes as usize
        };
        end.next_multiple_of(BULK_UNIT as usize)
    }

    const fn channels(&self) -> usize {
        if self.push_tiles == 0 { 0 } else { self.n * CHANNEL_WIRES }
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
    fn nothing_in_staging_memory_overlaps() {
        for form in LineForm::ALL {
            for (n, push_tiles, bulk_bytes) in
                [(1, 3, 4096), (2, 3, 4096), (3, 1, 8192), (16, 16, 262_144), (5, 0, 4096), (5, 4, 0)]
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
        let alone = Layout { n: 1, form: LineForm::L64, slot_tiles: 9, push_tiles: 0, bulk_bytes: 0 };
        assert_eq!(alone.bytes(), STAGING_HEAD_BYTES);
    }
}
