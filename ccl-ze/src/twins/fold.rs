//! The reduction of all ranks' elements where all are at hand, in the order that the contract asks for.

use super::reduce::{Reducer, Simd, Target};
use ccl_core::plan::geometry::Geometry;
use ccl_core::protocol::MAX_RANKS;
use ccl_core::{DataType, Kind, Order, ReduceOp};

/// What a launch's `kind` and `factor` ask for.
pub(super) struct Fold {
    pub(super) dtype: DataType,
    pub(super) op: ReduceOp,
    pub(super) order: Order,
    pub(super) reducer: Reducer,
}

impl Fold {
    /// Nothing where there is no such reduction.
    pub(super) fn new(kind: u32, factor: u64, n: usize, simd: Simd) -> Option<Fold> {
        let (dtype, op, order) = Kind::read(kind, factor)?;
        Some(Fold { dtype, op, order, reducer: Reducer::new((dtype, op, order), factor, n, simd) })
    }

    /// Reduces elements of one block, which is of `chunk`. The target's places are sources, or apart from all. `raw` has a bit
    /// for each rank whose source is its caller's input itself.
    ///
    /// # Safety
    /// The sources, by rank, hold `elements` elements, and `to` has room for them.
    #[inline]
    pub(super) unsafe fn block(&self, chunk: usize, sources: &[*const u8], raw: u32, to: Target, elements: usize) {
        let first = if self.order == Order::Ring { chunk } else { 0 };
        // SAFETY: passed on.
        unsafe { self.reducer.reduce_many(to, sources, first, raw, elements * self.reducer.size()) };
    }

    /// Reduces elements side by side, `elements` of the message from `first` on, with which each source begins.
    ///
    /// # Safety
    /// As for [`Self::block`].
    pub(super) unsafe fn run(
        &self,
        geometry: &Geometry,
        (first, elements): (u64, u64),
        sources: &[*const u8],
        raw: u32,
        to: Target,
    ) {
        let (n, size) = (sources.len(), self.reducer.size());
        if n == 2 || self.order == Order::Rank {
            // Of two operands the order is of no consequence.
            // SAFETY: passed on.
            return unsafe { self.block(0, sources, raw, to, elements as usize) };
        }
        let (block, period) = (geometry.block_elements(), geometry.period());
        let mut in_row = first % period;
        let mut chunk = (in_row / block % n as u64) as usize;
        let mut in_block = in_row % block;
        let mut here = [std::ptr::null(); MAX_RANKS];
        here[..n].copy_from_slice(sources);
        let (mut to, mut left) = (to, elements);
        while left > 0 {
            let count = (block - in_block).min(period - in_row).min(left);
            // SAFETY: part of the ranges that were passed.
            unsafe { self.block(chunk, &here[..n], raw, to, count as usize) };
            let bytes = count as usize * size;
            here[..n].iter_mut().for_each(|source| *source = source.wrapping_add(bytes));
            to = to.wrapping_add(bytes);
            left -= count;
            in_row += count;
            // A block ends here, or the part of one that was asked for.
            in_block = 0;
            chunk = if chunk + 1 == n { 0 } else { chunk + 1 };
            if in_row == period {
                (in_row, chunk) = (0, 0);
            }
        }
    }
}
