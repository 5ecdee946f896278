//! An all-reduce and the mHC boundary after it by columns: the steps of the device kernels of that name, by one thread that
//! plays all work-groups. All have sent before any waits.

use super::super::call::{Call, Failure};
use super::super::fold::Fold;
use super::super::reduce::Target;
use super::super::wait::GaveUp;
use super::put_lines;
use crate::hooks;
use ccl_core::plan::mhc::{MhcPhase, MhcPlan};
use ccl_core::protocol::{BLOCK_WORDS, LineForm, MAX_RANKS};
use ccl_core::slot::Line;

/// One launch.
pub(super) struct Columns<'a> {
    pub(super) plan: &'a MhcPlan,
    pub(super) call: &'a Call<'a>,
    pub(super) fold: &'a Fold,
    /// All ranks' staging memory, as it is mapped here.
    pub(super) peers: &'a [*mut u8],
    pub(super) rank: usize,
    pub(super) send: *const u8,
    /// Where the sum goes.
    pub(super) recv: *mut u8,
}

impl Columns<'_> {
    /// Everybody's x, summed.
    ///
    /// # Safety
    /// Buffers of the plan's rows, and all ranks' staging memory of the agreed size.
    pub(super) unsafe fn reduce(&self) -> Result<(), Failure> {
        // SAFETY: passed on.
        unsafe {
            match self.plan.reduce.layout.form {
                LineForm::L8 => self.by_lines::<1>(),
                LineForm::L16 => self.by_lines::<3>(),
                LineForm::L64 => self.by_lines::<15>(),
            }
        }
    }

    /// Of each block of each row: row, number, its first element in the message, elements.
    fn blocks(&self) -> impl Iterator<Item = (u64, usize, usize, usize)> + use<> {
        let (rows, d, block) = (self.plan.params.rows, self.plan.params.hidden as usize, self.plan.params.block());
        let of_row = move |row: u64| {
            (0..d.div_ceil(block)).map(move |i| (row, i, row as usize * d + i * block, block.min(d - i * block)))
        };
        (0..rows).flat_map(of_row)
    }

    fn slot_tag(&self, tag: u32) -> u32 {
        if hooks::on(self.call.hooks, hooks::ONE_GENERATION) { 0 } else { tag }
    }

    /// # Safety
    /// As for [`Self::reduce`].
    unsafe fn by_lines<const D: usize>(&self) -> Result<(), Failure> {
        let (n, size, tag) = (self.plan.reduce.n, self.fold.dtype.size(), self.call.tag(0));
        let others = || (1..n).map(|distance| (self.rank + distance) % n);
        let mut words = [0; BLOCK_WORDS];
        for (row, block, first, elements) in self.blocks() {
            // SAFETY: the block lies in the input and has as many bytes as words at most.
            unsafe {
                let to = words.as_mut_ptr().cast::<u8>();
                std::ptr::copy_nonoverlapping(self.send.add(first * size), to, elements * size);
                to.add(elements * size).write_bytes(0, size_of_val(&words) - elements * size);
            }
            let offset = self.plan.column_offset(self.slot_tag(tag), self.rank, row, block);
            for peer in others() {
                // SAFETY: by the plan the lines lie in the slot.
                unsafe { put_lines::<D>(self.peers[peer].add(offset), &words, tag) };
            }
        }
        self.call.waiter.notify(others().map(|peer| self.peers[peer]));
        if self.rank == 1 && hooks::on(self.call.hooks, hooks::ONE_GENERATION) {
            // A mutation: the others get the time to be a call ahead.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let mut given = [[0; BLOCK_WORDS]; MAX_RANKS];
        for (row, block, first, elements) in self.blocks() {
            let mut sources = [std::ptr::null(); MAX_RANKS];
            for sender in others() {
                let offset = self.plan.column_offset(self.slot_tag(tag), sender, row, block);
                // SAFETY: as above, of the own staging memory.
                unsafe { self.take::<D>(offset, tag, &mut given[sender]) }.map_err(|gave_up| Failure {
                    gave_up,
                    wire: block,
                    step: MhcPhase::Reduce as usize,
                    round: 0,
                    expected: tag,
                })?;
                sources[sender] = given[sender].as_ptr().cast();
            }
            sources[self.rank] = self.send.wrapping_add(first * size);
            // SAFETY: each source holds the block's elements, and so does the place of the result.
            unsafe {
                let to = Target::only(self.recv.add(first * size));
                self.fold.block(block % n, &sources[..n], 1 << self.rank, to, elements);
            }
        }
        Ok(())
    }

    /// # Safety
    /// The lines of a block lie at `offset` of the own staging memory.
    unsafe fn take<const D: usize>(&self, offset: usize, tag: u32, to: &mut [u32; BLOCK_WORDS]) -> Result<(), GaveUp> {
        for (i, to) in to.chunks_mut(D).enumerate() {
            // SAFETY: passed on; lines are only ever accessed as such.
            let line = unsafe { &*self.peers[self.rank].add(offset).cast::<Line<D>>().add(i) };
            self.call.waiter.until(|| line.flag(), tag)?;
            to.copy_from_slice(&line.take()[..to.len()]);
        }
        Ok(())
    }
}
