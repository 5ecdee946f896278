//! The ring all-reduce on the CPU: the twin of the device kernel of the same name (docs/protocol.md). Its steps are those of
//! `ccl_core::plan::ring`.
//!
//! One thread plays all work-groups of the launch. That is allowed because the chains of different lines do not depend
//! on one another, and it keeps a small machine from needing a thread per wire.

use super::call::{self, Call, Failure, Frame};
use super::fold::Fold;
use super::reduce::Reducer;
use super::trace;
use super::wait::GaveUp;
use crate::hooks;
use ccl_core::plan::geometry::{Block, Blocks, Geometry};
use ccl_core::plan::ring::{RingPlan, Step};
use ccl_core::protocol::{BLOCK_WORDS, CommState, HostBlock, LineForm, Shape, TILE_BLOCKS, TILE_WORDS, slots};
use ccl_core::slot::Line;

/// The kernel's arguments, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Args {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    pub(super) state: *mut CommState,
    pub(super) host: *mut HostBlock,
    pub(super) inbox: *mut u8,
    pub(super) outbox: *mut u8,
    pub(super) count: u64,
    pub(super) period: u64,
    pub(super) rank: u32,
    pub(super) n: u32,
    pub(super) tiles: u32,
    pub(super) rounds: u32,
    pub(super) slot_tiles: u32,
    pub(super) kind: u32,
    pub(super) factor: u64,
}

/// One launch.
struct Ring<'a, const D: usize, const P: usize> {
    plan: &'a RingPlan,
    args: &'a Args,
    call: &'a Call<'a>,
    reducer: &'a Reducer,
}

/// Runs the kernel: a line of `form` has `D` words besides its flag, and `P` of them carry data.
///
/// # Safety
/// `args` are those of a launch on an active communicator of this line form: buffers of `count` elements, staging
/// memory of the agreed size, the next rank's mapped.
pub(super) unsafe fn run<const D: usize, const P: usize>(
    args: &Args,
    geometry: Geometry,
    form: LineForm,
    wires: u32,
    fold: &Fold,
) {
    let (rank, n) = (args.rank as usize, args.n as usize);
    let Args { slot_tiles, tiles, rounds, .. } = *args;
    let (dtype, op, order) = (fold.dtype, fold.op, fold.order);
    let plan = RingPlan { n, dtype, op, order, geometry, form, wires, slot_tiles, tiles, rounds };
    let frame = Frame {
        state: args.state,
        host: args.host,
        inbox: args.inbox,
        outbox: args.outbox,
        rank,
        n,
        wires: wires as usize,
        rounds,
        // The factor is each rank's own, and so nothing to compare.
        shape: Shape::new(args.count, args.period, 0, args.kind, rounds),
        output: args.recv,
        output_bytes: geometry.count() as usize * geometry.elem(),
        channels: None,
    };
    let body = |call: &Call<'_>| {
        let ring = Ring::<D, P> { plan: &plan, args, call, reducer: &fold.reducer };
        // SAFETY: by this function's contract.
        plan.steps(rank).try_for_each(|step| unsafe { ring.step(&step) })
    };
    // SAFETY: by this function's contract.
    unsafe { call::run(&frame, body) };
}

/// The first words of a line's.
#[inline(always)]
fn head<const D: usize, const P: usize>(data: &[u32; D]) -> [u32; P] {
    std::array::from_fn(|i| data[i])
}

/// The blocks of a tile, in the order of the wire's stream.
struct Tile {
    blocks: [Block; TILE_BLOCKS],
    len: usize,
}

impl Tile {
    #[inline(always)]
    fn next(blocks: &mut Blocks, most: usize) -> Option<Tile> {
        let mut tile = Tile { blocks: [Block { first: 0, elements: 0 }; TILE_BLOCKS], len: 0 };
        for (slot, block) in tile.blocks[..most].iter_mut().zip(blocks.by_ref()) {
            *slot = block;
            tile.len += 1;
        }
        (tile.len > 0).then_some(tile)
    }
}

impl<const D: usize, const P: usize> Ring<'_, D, P> {
    const LINES_PER_TILE: usize = TILE_WORDS / D;
    const TILE_BLOCKS: usize = Self::LINES_PER_TILE * P / BLOCK_WORDS;

    /// Slot `slot`'s part of `wire`, in a staging memory.
    fn lines(&self, staging: *mut u8, slot: u32, wire: u32) -> *const Line<D> {
        let slot = if !hooks::on(self.call.hooks, hooks::ONE_SLOT_FEWER) {
            slot
        } else {
            slot % (slots(self.plan.n) as u32 - 1).max(1)
        };
        staging.wrapping_add(self.plan.slot_offset(slot, wire)).cast()
    }

    /// One wire's share of a chunk in one round.
    unsafe fn step(&self, step: &Step) -> Result<(), Failure> {
        let Step { round, position, wire, .. } = *step;
        let tag = self.call.tag(round);
        // Nothing was done yet; what is done is counted where it is done.
        let traced = hooks::on(self.call.hooks, hooks::TRACE);
        let nothing = Step { blocks: 0, lines: 0, receive: false, reduce: false, store: false, send: false, ..*step };
        let mut done = traced.then_some(nothing);
        // SAFETY: by the contract of `run`.
        unsafe { self.segment(step, tag, &mut done) }.map_err(|gave_up| Failure {
            gave_up,
            wire: wire as usize,
            step: position.saturating_sub(1) as usize,
            round,
            expected: tag,
        })?;
        if let Some(done) = done {
            trace::record(self.args.rank as usize, done);
        }
        Ok(())
    }

    /// Tile by tile: receive, reduce, store, send.
    unsafe fn segment(&self, step: &Step, tag: u32, done: &mut Option<Step>) -> Result<(), GaveUp> {
        // At position 0 nothing is received, and the line is not looked at.
        let incoming = self.lines(self.args.inbox, step.position.saturating_sub(1), step.wire);
        let outgoing = self.lines(self.args.outbox, step.position, step.wire);
        let left_out = u64::from(hooks::on(self.call.hooks, hooks::SHORT_WALK));
        let (wires, blocks) = (self.plan.wires, u64::from(step.blocks) - left_out);
        let mut blocks = self.plan.geometry.blocks(step.chunk, wires, step.wire, step.first_block, blocks);
        let mut words = [0u32; TILE_WORDS];
        let mut line = 0;
        while let Some(tile) = Tile::next(&mut blocks, Self::TILE_BLOCKS) {
            let lines = (step.lines as usize - line).min(Self::LINES_PER_TILE);
            let mut received = 0;
            if step.receive {
                for (i, payload) in words.as_chunks_mut::<P>().0[..lines].iter_mut().enumerate() {
                    // SAFETY: the plan keeps a slot's lines inside the staging memory.
                    let line = unsafe { &*incoming.add(line + i) };
                    self.call.waiter.until(|| line.flag(), tag)?;
                    *payload = head(&line.take());
                    received += 1;
                }
                if step.reduce {
                    // SAFETY: the blocks lie in the input.
                    unsafe { self.reduce(&tile, &mut words, step.store) };
                }
            } else {
                // SAFETY: the blocks lie in the input.
                unsafe { self.load(&tile, &mut words) };
            }
            if step.store {
                // SAFETY: the blocks lie in the output.
                unsafe { self.store(&tile, &words) };
            }
            if step.send {
                for (i, payload) in words.as_chunks::<P>().0[..lines].iter().enumerate() {
                    // SAFETY: as above, in the next rank's staging memory.
                    let line = unsafe { &*outgoing.add(line + i) };
                    let mut data = [0; D];
                    data[..P].copy_from_slice(payload);
                    if !hooks::on(self.call.hooks, hooks::FLAG_FIRST) {
                        line.put(&data, tag);
                    } else {
                        // Long enough for a receiver that shares the processor to come in between.
                        let between = || match i {
                            0 => std::thread::sleep(std::time::Duration::from_micros(50)),
                            _ => (0..50).for_each(|_| std::hint::spin_loop()),
                        };
                        line.put_flag_first(&data, tag, between);
                    }
                }
                self.call.waiter.notify([self.args.outbox]);
            }
            if let Some(done) = done {
                self.note(done, &tile, lines, received, step);
            }
            line += lines;
        }
        Ok(())
    }

    /// Adds what was done of a tile to what is told of the step.
    #[cold]
    fn note(&self, done: &mut Step, tile: &Tile, lines: usize, received: usize, step: &Step) {
        if done.blocks == 0 {
            // Where the walk began, by the inverse of what it was told.
            let (chunk, number) = self.plan.geometry.locate(tile.blocks[0].first);
            let wires = u64::from(self.plan.wires);
            (done.chunk, done.wire, done.first_block) = (chunk, (number % wires) as u32, number / wires);
        }
        done.blocks += tile.len as u32;
        done.lines += lines as u32;
        done.receive |= received > 0;
        done.reduce |= received > 0 && step.reduce;
        done.store |= step.store;
        done.send |= step.send;
    }

    /// Takes the own input; what is not data is zero.
    unsafe fn load(&self, tile: &Tile, words: &mut [u32; TILE_WORDS]) {
        for (block, words) in tile.blocks[..tile.len].iter().zip(words.as_chunks_mut::<BLOCK_WORDS>().0) {
            let bytes = block.elements as usize * self.reducer.size();
            if bytes < BLOCK_WORDS * 4 {
                *words = [0; BLOCK_WORDS];
            }
            // SAFETY: the block lies in the input, and `words` has room for a whole block.
            unsafe {
                let from = self.args.send.add(block.first as usize * self.reducer.size());
                self.reducer.contribute(words.as_mut_ptr().cast(), from, bytes);
            }
        }
    }

    /// Adds the own input to what was received; the last to do so finishes the sum.
    unsafe fn reduce(&self, tile: &Tile, words: &mut [u32; TILE_WORDS], last: bool) {
        for (block, words) in tile.blocks[..tile.len].iter().zip(words.as_chunks_mut::<BLOCK_WORDS>().0) {
            // SAFETY: the block lies in the input; the sum is a private buffer.
            unsafe {
                let own = self.args.send.add(block.first as usize * self.reducer.size());
                self.reducer.reduce(
                    words.as_mut_ptr().cast(),
                    own,
                    last,
                    block.elements as usize * self.reducer.size(),
                );
            }
        }
    }

    unsafe fn store(&self, tile: &Tile, words: &[u32; TILE_WORDS]) {
        for (block, words) in tile.blocks[..tile.len].iter().zip(words.as_chunks::<BLOCK_WORDS>().0) {
            // SAFETY: the block lies in the output.
            unsafe {
                let to = self.args.recv.add(block.first as usize * self.reducer.size());
                std::ptr::copy_nonoverlapping(words.as_ptr().cast(), to, block.elements as usize * self.reducer.size());
            }
        }
    }
}

const _: () = {
    assert!(size_of::<Line<1>>() == LineForm::L8.granule());
    assert!(size_of::<Line<15>>() == LineForm::L64.granule());
};
