//! The sums over columns: of each block the products with all rows of `weights`, and the squares. `weights` comes from memory
//! once: for one row that is what takes the time, for several it is arithmetic.

use super::lanes;
use super::{SUMS, TILE, TILE_VALUES};
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

    /// In parts for which a tile of so many rows has room, ascending.
    pub(super) fn runs(self, params: &Params, rows: usize) -> impl Iterator<Item = Blocks> {
        let most = (TILE_VALUES / (rows * params.hc() * params.block())).max(1);
        let run = move |k: usize| Blocks { first: self.at(k), count: most.min(self.count - k), ..self };
        (0..self.count).step_by(most).map(run)
    }
}

/// Room for the values of a tile and its blocks' sums.
#[derive(Default)]
pub(super) struct Room {
    /// By block, row, stream and column: the rounded residual, 0 beyond the row's end.
    values: Vec<f32>,
    /// By block and row: the mixes, then the square.
    sums: Vec<f32>,
    /// Weights of a block that the end of the row cuts short.
    tail: Vec<f32>,
    /// Steps of the next sums whose weights have been asked for.
    asked: usize,
}

/// Rows from which on four at a time share what is loaded of `weights`.
pub(super) const MANY: usize = 4;
/// Elements of `weights` that are asked for before they are needed: at least, and while X' is computed.
const AHEAD: usize = 4096;
const FAR: usize = 32 << 10;

/// The order in which the weights of some blocks are read: a mix and a block at a time.
struct Way<'a> {
    params: &'a Params,
    weights: *const f32,
    blocks: Blocks,
    /// Whether a block's mixes follow one another, else a mix's blocks.
    by_block: bool,
}

impl<'a> Way<'a> {
    fn new(params: &'a Params, weights: *const f32, blocks: Blocks, rows: usize) -> Self {
        // Along a row of weights is how memory is read fastest, if all of it is read. Of blocks that lie apart, and of many
        // rows, the values of a block stay in the first cache for all mixes.
        Self { params, weights, blocks, by_block: rows >= MANY || blocks.step > 1 }
    }

    const fn steps(&self) -> usize {
        self.blocks.count * self.params.mixes()
    }

    /// The mix of a step, and its block.
    const fn at(&self, step: usize) -> (usize, usize) {
        match self.by_block {
            true => (step % self.params.mixes(), step / self.params.mixes()),
            false => (step / self.blocks.count, step % self.blocks.count),
        }
    }

    fn address(&self, (j, k): (usize, usize)) -> *const f32 {
        let row = j * self.params.hc() * self.params.hidden as usize;
        self.weights.wrapping_add(row + self.blocks.at(k) * self.params.block())
    }

    /// Asks for what a step will need.
    fn fetch(&self, step: usize) {
        // A processor that fetches by itself what comes next does it best where a row is read on and on. Where blocks lie
        // apart it would fetch others' blocks as well, all of them, and of short pieces of many rows it knows nothing.
        if step >= self.steps() || self.blocks.step == 1 && !self.by_block {
            return;
        }
        let (j, k) = self.at(step);
        let (d, block) = (self.params.hidden as usize, self.params.block());
        let columns = block.min(d - self.blocks.at(k) * block);
        for i in 0..self.params.hc() {
            lanes::fetch(self.address((j, k)).wrapping_add(i * d), columns);
        }
    }

    /// Steps of so many elements.
    const fn steps_of(&self, elements: usize) -> usize {
        let steps = elements / (self.params.hc() * self.params.block());
        if steps > 0 { steps } else { 1 }
    }
}

impl Room {
    /// Room for `rows` rows of these blocks.
    pub(super) fn make(&mut self, params: &Params, rows: usize, blocks: Blocks) {
        debug_assert!(rows <= TILE && rows * blocks.count * params.hc() * params.block() <= TILE_VALUES);
        self.values.resize(TILE_VALUES, 0.0);
        self.sums.resize(self.sums.len().max(rows * blocks.count * SUMS), 0.0);
        self.tail.resize(8 * 128, 0.0);
    }

    /// Asks for a few of the weights that [`of_blocks`] will want next of these blocks, beyond those asked for already.
    pub(super) fn ask(&mut self, params: &Params, weights: *const f32, rows: usize, blocks: Blocks) {
        let way = Way::new(params, weights, blocks, rows);
        let until = (self.asked + way.steps_of(AHEAD / 4)).min(way.steps_of(FAR));
        (self.asked..until).for_each(|step| way.fetch(step));
        self.asked = until;
    }

    /// Where the values of the `k`-th block of a row, one of `rows`, go.
    pub(super) fn values(&mut self, params: &Params, rows: usize, row: usize, k: usize) -> &mut [f32] {
        let of_block = params.hc() * params.block();
        &mut self.values[(k * rows + row) * of_block..][..of_block]
    }

    /// Adds what [`of_blocks`] has left of a row's `k`-th block.
    pub(super) fn add_to(&self, sums: &mut [f32], rows: usize, row: usize, k: usize) {
        let of_block = &self.sums[(k * rows + row) * SUMS..];
        sums.iter_mut().zip(of_block).for_each(|(sum, of_block)| *sum += of_block);
    }
}

/// The sums of `rows` rows in some blocks, each by itself.
///
/// # Safety
/// `weights` has the shape that the parameters say, and the blocks are in its rows. The processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn of_blocks(params: &Params, weights: *const f32, rows: usize, blocks: Blocks, room: &mut Room) {
    // SAFETY: passed on.
    unsafe {
        // Of blocks that lie apart, what is between them isn't wanted.
        match (params.hc(), blocks.step > 1) {
            (2, false) => of_streams::<2, false>(params, weights, rows, blocks, room),
            (2, true) => of_streams::<2, true>(params, weights, rows, blocks, room),
            (4, false) => of_streams::<4, false>(params, weights, rows, blocks, room),
            (4, true) => of_streams::<4, true>(params, weights, rows, blocks, room),
            (_, false) => of_streams::<8, false>(params, weights, rows, blocks, room),
            (_, true) => of_streams::<8, true>(params, weights, rows, blocks, room),
        }
    }
}

/// # Safety
/// As for [`of_blocks`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn of_streams<const HC: usize, const LONE: bool>(
    params: &Params,
    weights: *const f32,
    rows: usize,
    blocks: Blocks,
    room: &mut Room,
) {
    let (d, mixes, block) = (params.hidden as usize, params.mixes(), params.block());
    let way = Way::new(params, weights, blocks, rows);
    let ahead = room.asked.max(way.steps_of(AHEAD));
    room.asked = 0;
    let Room { values, sums, tail, .. } = room;
    let values = |row: usize, k: usize| values[(k * rows + row) * HC * block..][..HC * block].as_ptr();
    for step in 0..way.steps() {
        way.fetch(step + ahead);
        let (j, k) = way.at(step);
        let (mut from, mut stride) = (way.address((j, k)), d);
        let columns = d - blocks.at(k) * block;
        if columns < block {
            // Beyond the row is the next stream's, which may be no number.
            for i in 0..HC {
                // SAFETY: the columns that the row has.
                unsafe { std::ptr::copy_nonoverlapping(from.add(i * d), tail.as_mut_ptr().add(i * 128), columns) };
                tail[i * 128 + columns..][..128 - columns].fill(0.0);
            }
            (from, stride) = (tail.as_ptr(), 128);
        }
        let sums = &mut sums[k * rows * SUMS..][..rows * SUMS];
        if rows >= MANY {
            for row in (0..rows).step_by(4) {
                let four = std::array::from_fn(|q| values((row + q).min(rows - 1), k));
                // SAFETY: whole blocks of all streams: weights of a mix, or their copy, and values.
                let four = unsafe { lanes::four_dots::<HC, LONE>((from, stride), (four, block), block) };
                for (row, sum) in (row..rows).zip(four) {
                    sums[row * SUMS + j] = sum;
                }
            }
        } else {
            for row in 0..rows {
                // SAFETY: as above.
                sums[row * SUMS + j] = unsafe { lanes::dot::<LONE>(values(row, k), block, from, stride, HC, block) };
            }
        }
    }
    for (row, k) in (0..rows).flat_map(|row| (0..blocks.count).map(move |k| (row, k))) {
        let values = values(row, k);
        // SAFETY: as above.
        sums[(k * rows + row) * SUMS + mixes] = unsafe { lanes::dot::<false>(values, block, values, block, HC, block) };
    }
}
