//! The sums over columns: of each block the products with all rows of `weights`, and the squares. `weights` comes from memory
//! once: for one row that is what takes the time, for several it is arithmetic.

use super::lanes;
use super::{SUMS, TILE};
use ccl_core::mhc::Params;

/// Blocks of a row, `step` apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) first: usize,
    pub(super) step: usize,
    pub(super) count: usize,
}

impl Blocks {
    /// The number in its row of the `k`-th.
    pub(super) const fn at(&self, k: usize) -> usize {
        self.first + k * self.step
    }
}

/// Room for a block of a tile: its values and its sums.
#[derive(Default)]
pub(super) struct Room {
    /// By row, stream and column: the rounded residual, 0 beyond the row's end.
    values: Vec<f32>,
    /// By row: the mixes, then the square.
    sums: Vec<f32>,
    /// Weights of a block that the end of the row cuts short.
    tail: Vec<f32>,
}

/// Rows from which on four at a time share what is loaded of `weights`.
pub(super) const MANY: usize = 4;
/// Elements of `weights` that are asked for before they are needed.
const AHEAD: usize = 4096;

/// The order in which the weights of some blocks are read: a block's mixes one after another, so that its values stay in the
/// first cache.
struct Way<'a> {
    params: &'a Params,
    weights: *const f32,
    blocks: Blocks,
}

impl Way<'_> {
    const fn steps(&self) -> usize {
        self.blocks.count * self.params.mixes()
    }

    /// The mix of a step, and its block.
    const fn at(&self, step: usize) -> (usize, usize) {
        (step % self.params.mixes(), step / self.params.mixes())
    }

    fn address(&self, (j, k): (usize, usize)) -> *const f32 {
        let row = j * self.params.hc() * self.params.hidden as usize;
        self.weights.wrapping_add(row + self.blocks.at(k) * self.params.block())
    }

    /// Asks for what a step will need: of short pieces of many rows the processor doesn't find out by itself.
    fn fetch(&self, step: usize) {
        if step < self.steps() {
            let (j, k) = self.at(step);
            fetch_block(self.params, self.address((j, k)), self.blocks.at(k));
        }
    }
}

/// Steps by which [`of_blocks`] asks ahead.
pub(super) const fn ahead(params: &Params) -> usize {
    let steps = AHEAD / (params.hc() * params.block());
    if steps > 0 { steps } else { 1 }
}

/// Asks for the weights of a mix in a block of all streams, which begin at `from`.
pub(super) fn fetch_block(params: &Params, from: *const f32, block: usize) {
    let (d, width) = (params.hidden as usize, params.block());
    for i in 0..params.hc() {
        lanes::fetch(from.wrapping_add(i * d), width.min(d - block * width));
    }
}

impl Room {
    /// Room for `rows` rows.
    pub(super) fn make(&mut self, params: &Params, rows: usize) {
        debug_assert!(rows <= TILE);
        self.values.resize(self.values.len().max(rows * params.hc() * params.block()), 0.0);
        self.sums.resize(self.sums.len().max(rows * SUMS), 0.0);
        self.tail.resize(8 * 128, 0.0);
    }

    /// Where the values of a row's block go.
    pub(super) fn values(&mut self, params: &Params, row: usize) -> &mut [f32] {
        let of_block = params.hc() * params.block();
        &mut self.values[row * of_block..][..of_block]
    }
}

/// Adds a block's sums.
pub(super) fn add_to(sums: &mut [f32], of_block: &[f32]) {
    sums.iter_mut().zip(of_block).for_each(|(sum, of_block)| *sum += of_block);
}

/// Asks for the first weights that [`of_blocks`] will want.
pub(super) fn ask(params: &Params, weights: *const f32, blocks: Blocks) {
    let way = Way { params, weights, blocks };
    (0..ahead(params)).for_each(|step| way.fetch(step));
}

/// The sums of `rows` rows in some blocks, one after another. Of each, by row and the block's number in the row, `values` makes
/// the values, while the first weights are on their way, and `add` is given the sums.
///
/// # Safety
/// `weights` has the shape that the parameters say, and the blocks are in its rows. The processor has AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn of_blocks(
    params: &Params,
    weights: *const f32,
    rows: usize,
    blocks: Blocks,
    room: &mut Room,
    values: impl FnMut(usize, usize, &mut [f32]),
    add: impl FnMut(usize, usize, &[f32]),
) {
    // SAFETY: passed on.
    unsafe {
        // Of blocks that lie apart, what is between them isn't wanted.
        match (params.hc(), blocks.step > 1) {
            (2, false) => of_streams::<2, false>(params, weights, rows, blocks, room, values, add),
            (2, true) => of_streams::<2, true>(params, weights, rows, blocks, room, values, add),
            (4, false) => of_streams::<4, false>(params, weights, rows, blocks, room, values, add),
            (4, true) => of_streams::<4, true>(params, weights, rows, blocks, room, values, add),
            (_, false) => of_streams::<8, false>(params, weights, rows, blocks, room, values, add),
            (_, true) => of_streams::<8, true>(params, weights, rows, blocks, room, values, add),
        }
    }
}

/// # Safety
/// As for [`of_blocks`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn of_streams<const HC: usize, const LONE: bool>(
    params: &Params,
    weights: *const f32,
    rows: usize,
    blocks: Blocks,
    room: &mut Room,
    mut make: impl FnMut(usize, usize, &mut [f32]),
    mut add: impl FnMut(usize, usize, &[f32]),
) {
    let (d, mixes, block, ahead) = (params.hidden as usize, params.mixes(), params.block(), ahead(params));
    let way = Way { params, weights, blocks };
    for k in 0..blocks.count {
        for row in 0..rows {
            make(row, blocks.at(k), room.values(params, row));
        }
        let Room { values, sums, tail } = &mut *room;
        let values = |row: usize| values[row * HC * block..][..HC * block].as_ptr();
        let columns = d - blocks.at(k) * block;
        for j in 0..mixes {
            way.fetch(k * mixes + j + ahead);
            let (mut from, mut stride) = (way.address((j, k)), d);
            if columns < block {
                // Beyond the row is the next stream's, which may be no number.
                for i in 0..HC {
                    // SAFETY: the columns that the row has.
                    unsafe { std::ptr::copy_nonoverlapping(from.add(i * d), tail.as_mut_ptr().add(i * 128), columns) };
                    tail[i * 128 + columns..][..128 - columns].fill(0.0);
                }
                (from, stride) = (tail.as_ptr(), 128);
            }
            if rows >= MANY {
                for row in (0..rows).step_by(4) {
                    let four = std::array::from_fn(|q| values((row + q).min(rows - 1)));
                    // SAFETY: whole blocks of all streams: weights of a mix, or their copy, and values.
                    let four = unsafe { lanes::four_dots::<HC, LONE>((from, stride), (four, block), block) };
                    for (row, sum) in (row..rows).zip(four) {
                        sums[row * SUMS + j] = sum;
                    }
                }
            } else {
                for row in 0..rows {
                    // SAFETY: as above.
                    let sum = unsafe { lanes::dot::<LONE>(values(row), block, from, stride, HC, block) };
                    sums[row * SUMS + j] = sum;
                }
            }
        }
        for row in 0..rows {
            let values = values(row);
            // SAFETY: as above.
            sums[row * SUMS + mixes] = unsafe { lanes::dot::<false>(values, block, values, block, HC, block) };
            add(row, blocks.at(k), &sums[row * SUMS..][..=mixes]);
        }
    }
}
