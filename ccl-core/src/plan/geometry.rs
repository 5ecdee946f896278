//! Which element belongs to which chunk, and how a chunk's elements lie on its wires.
//!
//! Element i belongs to chunk `((i mod P) / B) mod n`, with B elements to a block and rows of P elements. A chunk's
//! blocks are numbered in ascending element order, row by row; block k travels on wire `k mod W` as that wire's block
//! `k div W`. On the wire every block takes [`BLOCK_WORDS`] words, a short one too, so that positions need no table;
//! only the last block of a wire's stream is cut to the words that it needs.

use std::iter::FusedIterator;

use crate::protocol::{BLOCK_BYTES, BLOCK_WORDS, MAX_RANKS};
use crate::{Error, Result};

/// Most elements of one message: sums of offsets stay within 64 bits far beyond any memory.
pub const MAX_COUNT: u64 = 1 << 60;

/// Neighbouring elements that belong to the same chunk: at most a block of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Index of its first element in the message.
    pub first: u64,
    /// Number of its elements, at least 1.
    pub elements: u32,
}

/// Ownership of the elements of one message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    n: usize,
    count: u64,
    /// At least 1 and at most `max(count, 1)`: an unbounded period and one beyond the message mean the same.
    period: u64,
    elem: usize,
}

impl Geometry {
    /// The geometry of `count` elements of `elem` bytes over `n` ranks, in rows of `period` elements or in one.
    #[inline]
    pub fn new(n: usize, count: u64, period: Option<u64>, elem: usize) -> Result<Self> {
        let refuse = |what: String| Err(Error::InvalidArgument(what));
        if n == 0 || n > MAX_RANKS {
            return refuse(format!("{n} ranks; a geometry has 1 to {MAX_RANKS}"));
        }
        if !matches!(elem, 1 | 2 | 4 | 8) {
            return refuse(format!("elements of {elem} bytes; they have 1, 2, 4 or 8"));
        }
        if count > MAX_COUNT {
            return refuse(format!("count {count} is beyond {MAX_COUNT}"));
        }
        if period == Some(0) {
            return refuse("a period of 0 elements".into());
        }
        Ok(Self { n, count, period: period.unwrap_or(u64::MAX).min(count.max(1)), elem })
    }

    /// Number of chunks, which is that of ranks.
    pub const fn n(&self) -> usize {
        self.n
    }

    /// Elements of the message.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Elements of a row; never more than the message has (but at least 1).
    pub const fn period(&self) -> u64 {
        self.period
    }

    /// Bytes of an element.
    pub const fn elem(&self) -> usize {
        self.elem
    }

    /// Elements of a full block.
    pub const fn block_elements(&self) -> u64 {
        (BLOCK_BYTES / self.elem) as u64
    }

    /// Chunk of element `i`.
    pub const fn chunk_of(&self, i: u64) -> usize {
        (i % self.period / self.block_elements() % self.n as u64) as usize
    }

    /// Chunk of element `i` and the number of its block in that chunk: the inverse of [`Self::block`].
    pub const fn locate(&self, i: u64) -> (usize, u64) {
        let (row, block) = (i / self.period, i % self.period / self.block_elements());
        let chunk = (block % self.n as u64) as usize;
        (chunk, row * self.row_blocks(self.period, chunk) + block / self.n as u64)
    }

    /// Blocks of `chunk` in a row of `len` elements.
    const fn row_blocks(&self, len: u64, chunk: usize) -> u64 {
        len.div_ceil(self.block_elements()).saturating_sub(chunk as u64).div_ceil(self.n as u64)
    }

    /// Elements of `chunk` in a row of `len` elements.
    fn row_elements(&self, len: u64, chunk: usize) -> u64 {
        let (blocks, size) = (self.row_blocks(len, chunk), self.block_elements());
        match blocks.checked_sub(1) {
            None => 0,
            Some(full) => full * size + size.min(len - (chunk as u64 + full * self.n as u64) * size),
        }
    }

    /// Blocks of `chunk`.
    pub const fn blocks_in_chunk(&self, chunk: usize) -> u64 {
        let (rows, tail) = (self.count / self.period, self.count % self.period);
        rows * self.row_blocks(self.period, chunk) + self.row_blocks(tail, chunk)
    }

    /// Elements of `chunk`.
    pub fn elements_in_chunk(&self, chunk: usize) -> u64 {
        let (rows, tail) = (self.count / self.period, self.count % self.period);
        rows * self.row_elements(self.period, chunk) + self.row_elements(tail, chunk)
    }

    /// Block `k` of `chunk`; `k < blocks_in_chunk(chunk)`.
    pub fn block(&self, chunk: usize, k: u64) -> Block {
        debug_assert!(k < self.blocks_in_chunk(chunk), "block {k} of chunk {chunk} of {self:?}");
        let per_row = self.row_blocks(self.period, chunk);
        let (row, column) = (k / per_row, k % per_row);
        self.block_at(row * self.period, (chunk as u64 + column * self.n as u64) * self.block_elements())
    }

    /// The block that begins `offset` elements into the row that begins at `row`.
    #[inline(always)]
    fn block_at(&self, row: u64, offset: u64) -> Block {
        let first = row + offset;
        let elements = self.block_elements().min(self.period - offset).min(self.count - first);
        Block { first, elements: elements as u32 }
    }

    /// Blocks in the stream of `wire`, one of `wires`, for `chunk`.
    pub const fn wire_blocks(&self, chunk: usize, wires: u32, wire: u32) -> u64 {
        self.blocks_in_chunk(chunk).saturating_sub(wire as u64).div_ceil(wires as u64)
    }

    /// Words that blocks `first..first + blocks` of a wire's stream take. (Of some round, that is: short rows make a
    /// whole stream longer than its message.)
    pub fn wire_words(&self, chunk: usize, wires: u32, wire: u32, first: u64, blocks: u64) -> u64 {
        let all = self.wire_blocks(chunk, wires, wire);
        debug_assert!(first + blocks <= all, "blocks {first}+{blocks} of {all}");
        if blocks == 0 || first + blocks < all {
            return blocks * BLOCK_WORDS as u64;
        }
        let last = self.block(chunk, u64::from(wire) + (all - 1) * u64::from(wires));
        (blocks - 1) * BLOCK_WORDS as u64 + self.block_words(last)
    }

    /// Words that the elements of `block` fill, the last one perhaps in part.
    #[inline(always)]
    pub fn block_words(&self, block: Block) -> u64 {
        (u64::from(block.elements) * self.elem as u64).div_ceil(4)
    }

    /// Walks blocks `first..first + blocks` of a wire's stream for `chunk`, those that exist, without a division for
    /// each.
    pub fn blocks(&self, chunk: usize, wires: u32, wire: u32, first: u64, blocks: u64) -> Blocks {
        let (size, stride) = (self.block_elements(), self.n as u64);
        let left = blocks.min(self.wire_blocks(chunk, wires, wire).saturating_sub(first));
        // A chunk without blocks has none in a row either; nothing is divided for it.
        let per_row = self.row_blocks(self.period, chunk).max(1);
        let (row, column) = if left == 0 {
            (0, 0)
        } else {
            let k = u64::from(wire) + first * u64::from(wires);
            (k / per_row, k % per_row)
        };
        let (rows, columns) = (u64::from(wires) / per_row, u64::from(wires) % per_row);
        Blocks {
            geometry: *self,
            left,
            row: row * self.period,
            offset: (chunk as u64 + column * stride) * size,
            // Past the last column: where the offset has to fall back into the next row.
            wrap: (chunk as u64 + per_row * stride) * size,
            row_advance: if left == 0 { 0 } else { rows * self.period },
            offset_advance: columns * stride * size,
            row_width: per_row * stride * size,
        }
    }
}

/// The blocks of part of a wire's stream, in order. See [`Geometry::blocks`].
#[derive(Clone, Debug)]
pub struct Blocks {
    geometry: Geometry,
    left: u64,
    row: u64,
    offset: u64,
    wrap: u64,
    row_advance: u64,
    offset_advance: u64,
    row_width: u64,
}

impl Iterator for Blocks {
    type Item = Block;

    #[inline(always)]
    fn next(&mut self) -> Option<Block> {
        if self.left == 0 {
            return None;
        }
        let block = self.geometry.block_at(self.row, self.offset);
        self.left -= 1;
        self.row += self.row_advance;
        self.offset += self.offset_advance;
        if self.offset >= self.wrap {
            self.offset -= self.row_width;
            self.row += self.geometry.period;
        }
        Some(block)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Blocks {}
impl FusedIterator for Blocks {}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    /// The definition, element by element.
    fn by_definition(g: &Geometry) -> Vec<Vec<Block>> {
        let size = g.block_elements();
        let mut chunks = vec![Vec::<Block>::new(); g.n()];
        let mut previous = None;
        for i in 0..g.count() {
            let place = (i / g.period(), i % g.period() / size);
            let chunk = &mut chunks[(place.1 % g.n() as u64) as usize];
            match chunk.last_mut() {
                Some(block) if previous == Some(place) => block.elements += 1,
                _ => chunk.push(Block { first: i, elements: 1 }),
            }
            previous = Some(place);
        }
        chunks
    }

    fn check(g: &Geometry) {
        let chunks = by_definition(g);
        for (c, blocks) in chunks.iter().enumerate() {
            assert_eq!(g.blocks_in_chunk(c), blocks.len() as u64, "{g:?} chunk {c}");
            assert_eq!(g.elements_in_chunk(c), blocks.iter().map(|b| u64::from(b.elements)).sum::<u64>());
            for (k, block) in blocks.iter().enumerate() {
                assert_eq!(g.block(c, k as u64), *block, "{g:?} chunk {c} block {k}");
                for i in [block.first, block.first + u64::from(block.elements) - 1] {
                    assert_eq!((g.locate(i), g.chunk_of(i)), ((c, k as u64), c), "{g:?} element {i}");
                }
            }
            for wires in [1u32, 2, 3, 7, 64] {
                for wire in 0..wires {
                    let stream: Vec<_> = blocks.iter().skip(wire as usize).step_by(wires as usize).copied().collect();
                    let all = stream.len() as u64;
                    assert_eq!(g.wire_blocks(c, wires, wire), all);
                    for first in (0..all.min(5)).chain(all.saturating_sub(2)..=all) {
                        let walked: Vec<_> = g.blocks(c, wires, wire, first, 4).collect();
                        let expected = &stream[first as usize..all.min(first + 4) as usize];
                        assert_eq!(walked, expected, "{g:?} chunk {c} wire {wire}/{wires} from {first}");
                        let words = expected.iter().enumerate().map(|(i, b)| match first + i as u64 + 1 == all {
                            true => (u64::from(b.elements) * g.elem() as u64).div_ceil(4),
                            false => BLOCK_WORDS as u64,
                        });
                        let taken = g.wire_words(c, wires, wire, first, expected.len() as u64);
                        assert_eq!(taken, words.sum::<u64>());
                    }
                }
            }
        }
    }

    #[test]
    fn every_formula_agrees_with_the_definition() {
        for n in [1, 2, 3, 5, 8, 16] {
            for elem in [2, 4] {
                for count in [0, 1, 63, 64, 65, 127, 128, 129, 1000, 4097] {
                    for period in [None, Some(1), Some(63), Some(64), Some(129), Some(500), Some(5000)] {
                        check(&Geometry::new(n, count, period, elem).unwrap());
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_overflows_at_the_largest_count() {
        for period in [None, Some(1), Some(7168), Some(MAX_COUNT - 1), Some(u64::MAX)] {
            for n in [1, 3, 16] {
                let g = Geometry::new(n, MAX_COUNT, period, 8).unwrap();
                assert_eq!((0..n).map(|c| g.elements_in_chunk(c)).sum::<u64>(), MAX_COUNT);
                for c in 0..n {
                    for wires in [1, 64] {
                        let all = g.wire_blocks(c, wires, 0);
                        for first in [0, all / 2, all.saturating_sub(3)] {
                            for (i, block) in g.blocks(c, wires, 0, first, 3).enumerate() {
                                let k = (first + i as u64) * u64::from(wires);
                                assert_eq!(block, g.block(c, k));
                                assert_eq!(g.locate(block.first), (c, k));
                            }
                        }
                        // A whole stream of one-element rows would be more than 2^64 words; no round is.
                        let tail = all.min(3);
                        let (least, most) = (tail.saturating_sub(1) * BLOCK_WORDS as u64, tail * BLOCK_WORDS as u64);
                        let words = g.wire_words(c, wires, 0, all - tail, tail);
                        assert!(words <= most && (tail == 0 || words > least));
                    }
                }
            }
        }
    }

    #[test]
    fn what_has_no_geometry_is_refused_by_name() {
        for (geometry, word) in [
            (Geometry::new(0, 1, None, 2), "0 ranks"),
            (Geometry::new(17, 1, None, 2), "17 ranks"),
            (Geometry::new(2, MAX_COUNT + 1, None, 2), "beyond"),
            (Geometry::new(2, 1, Some(0), 2), "period of 0"),
            (Geometry::new(2, 1, None, 3), "3 bytes"),
        ] {
            let Err(Error::InvalidArgument(text)) = geometry else { panic!("{geometry:?} was not refused") };
            assert!(text.contains(word), "{text}");
        }
    }
}
