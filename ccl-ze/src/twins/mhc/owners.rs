//! Design C: each owner reduces its columns of x, does post on them and adds up its slice of the sums, which go round with
//! the result (docs/protocol.md, "mHC by owners").

use super::super::call::{Call, Failure};
use super::super::copy::to_peer;
use super::super::fold::Fold;
use super::super::reduce::Target;
use super::super::wait::GaveUp;
use super::super::{Simd, trace};
use super::lanes::{Lanes, fetch};
use super::sums::{self, Blocks, Room};
use super::{SUMS, put_lines};
use crate::hooks;
use ccl_core::mhc::reference;
use ccl_core::mhc::{Buffers, MAX_MIXES};
use ccl_core::plan::geometry::Geometry;
use ccl_core::plan::mhc::{MhcPhase, MhcPlan, row_sums};
use ccl_core::plan::push::Transport;
use ccl_core::protocol::{BLOCK_BYTES, LineForm, MAX_RANKS, Region, generation};
use ccl_core::slot::Line;
use half::{bf16, f16};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

/// One launch.
struct Owners<'a> {
    plan: &'a MhcPlan,
    call: &'a Call<'a>,
    fold: &'a Fold,
    peers: &'a [*mut u8],
    rank: usize,
    buffers: &'a Buffers,
}

/// What a round works in, kept by the thread.
#[derive(Default)]
struct Scratch {
    /// The reduced rows of a round, where the caller has no place for them.
    x: Vec<u64>,
    /// By rank: a message as its words follow one another.
    words: [Vec<u32>; MAX_RANKS],
    /// For a tile's rows.
    room: Room,
    /// [row, sums]: of the own columns.
    own: Vec<f32>,
    /// [owner, row, sums].
    sums: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// All rounds.
///
/// # Safety
/// As for [`super::fused`]'s kernels.
pub(super) unsafe fn run(
    plan: &MhcPlan,
    call: &Call<'_>,
    fold: &Fold,
    peers: &[*mut u8],
    rank: usize,
    buffers: &Buffers,
    simd: Simd,
) -> Result<(), Failure> {
    use ccl_core::DataType::{Bfloat16, Float16, Float32};
    let owners = Owners { plan, call, fold, peers, rank, buffers };
    SCRATCH.with_borrow_mut(|scratch| {
        for round in 0..plan.rounds() {
            // SAFETY: by this function's contract.
            unsafe {
                match plan.params.dtype {
                    Bfloat16 => owners.round::<bf16>(round, scratch, simd)?,
                    Float16 => owners.round::<f16>(round, scratch, simd)?,
                    Float32 => owners.round::<f32>(round, scratch, simd)?,
                    // Refused by `Params::check`.
                    _ => {}
                }
            }
        }
        Ok(())
    })
}

/// The rows of a round.
struct Round {
    tag: u32,
    geometry: Geometry,
    /// The first row, and how many.
    first: usize,
    rows: usize,
    /// Where the reduced rows begin.
    x: *mut u8,
}

impl Owners<'_> {
    /// # Safety
    /// As for [`run`].
    unsafe fn round<T: Lanes>(&self, round: u32, scratch: &mut Scratch, simd: Simd) -> Result<(), Failure> {
        let plan = self.plan;
        let (params, wires, tag) = (&plan.params, plan.reduce.wires, self.call.tag(round));
        let ((first, rows), d, size) = (plan.rows(round), params.hidden as usize, size_of::<T>());
        let (first, rows) = (first as usize, rows as usize);
        let x = if self.buffers.x_out.is_null() {
            scratch.x.resize(scratch.x.len().max((rows * d * size).div_ceil(8)), 0);
            scratch.x.as_mut_ptr().cast()
        } else {
            self.buffers.x_out.cast::<u8>().wrapping_add(first * d * size)
        };
        let part = Round { tag, geometry: plan.geometry(round), first, rows, x };
        let failed = |phase: MhcPhase, wire: u32| {
            move |gave_up| Failure { gave_up, wire: wire as usize, step: phase as usize, round, expected: tag }
        };
        let trace = |phase, wire, peer, words| {
            if hooks::on(self.call.hooks, hooks::TRACE) {
                trace::record_mhc(self.rank, ccl_core::plan::mhc::MhcStep { round, phase, wire, peer, words });
            }
        };
        for (wire, peer) in (0..wires).flat_map(|wire| self.others().map(move |peer| (wire, peer))) {
            let input = self.buffers.x.cast::<u8>().wrapping_add(first * d * size);
            // SAFETY: the rows are the input's; by the plan the message fits into the peer's slot.
            let words = unsafe { self.send(Region::Input, &part, wire, peer, peer, input, &mut scratch.words[0]) };
            if words > 0 {
                trace(MhcPhase::Send, wire, peer, words);
            }
        }
        self.notify();
        let elements = params.hc() * d;
        let residual = self.buffers.residual.cast::<T>().wrapping_add(first * elements);
        fetch(residual, (rows * elements).min(EARLY));
        if params.variant.has_pre() {
            sums::ask(params, self.buffers.weights, self.blocks(self.rank));
        }
        for wire in 0..wires {
            // SAFETY: by the plan.
            let words =
                unsafe { self.reduce(&part, wire, &mut scratch.words) }.map_err(failed(MhcPhase::Reduce, wire))?;
            trace(MhcPhase::Reduce, wire, self.rank, words);
        }
        self.notify();
        let sums = plan.sum_words(round);
        let fast = super::is_fast(simd);
        if fast {
            // SAFETY: the processor has what it takes; own columns of x are reduced.
            unsafe { self.own::<T>(&part, scratch) };
            self.send_sums(round, tag, sums, scratch, trace);
        }
        for (wire, peer) in (0..wires).flat_map(|wire| self.others().map(move |peer| (wire, peer))) {
            // SAFETY: by the plan.
            let words = unsafe { self.gather(&part, wire, peer, &mut scratch.words[0]) }
                .map_err(failed(MhcPhase::Gather, wire))?;
            if words > 0 {
                trace(MhcPhase::Gather, wire, peer, words);
            }
        }
        if fast {
            // SAFETY: as above; now all of x is there.
            unsafe { self.others_columns::<T>(&part, scratch) };
        } else {
            // SAFETY: all of x is there.
            unsafe { self.plain::<T>(&part, scratch) };
            self.send_sums(round, tag, sums, scratch, trace);
        }
        if sums > 0 {
            self.await_sums(tag, rows, sums, scratch).map_err(failed(MhcPhase::Finish, wires))?;
            for row in 0..rows {
                let mix = self.mixes(rows, row, &scratch.sums);
                // SAFETY: the row's X' is stored.
                unsafe { super::rows::finish::<T>(params, self.buffers, first + row, &mix, simd) };
            }
        }
        (0..wires).for_each(|wire| trace(MhcPhase::Finish, wire, self.rank, sums));
        Ok(())
    }

    /// The other ranks, from the next one on.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, n) = (self.rank, self.plan.reduce.n);
        (1..n).map(move |distance| (rank + distance) % n)
    }

    fn notify(&self) {
        self.call.waiter.notify(self.others().map(|peer| self.peers[peer]));
    }

    /// The chunk whose sum is complete at `owner`.
    fn chunk(&self, owner: usize) -> usize {
        (owner + 1) % self.plan.reduce.n
    }

    /// Stores the columns of `owner`, of rows that begin at `from`, into `peer`'s slot. Returns the words of the message.
    #[expect(clippy::too_many_arguments, reason = "what, of what, to where")]
    unsafe fn send(
        &self,
        region: Region,
        part: &Round,
        wire: u32,
        owner: usize,
        peer: usize,
        from: *const u8,
        room: &mut Vec<u32>,
    ) -> u32 {
        let (chunk, wires, size) = (self.chunk(owner), self.plan.reduce.wires, self.plan.reduce.geometry.elem());
        let blocks = part.geometry.wire_blocks(chunk, wires, wire);
        if blocks == 0 {
            return 0;
        }
        let words = part.geometry.wire_words(chunk, wires, wire, 0, blocks) as u32;
        room.resize(room.len().max(blocks as usize * BLOCK_BYTES / 4), 0);
        for (i, block) in part.geometry.blocks(chunk, wires, wire, 0, blocks).enumerate() {
            let to = room.as_mut_ptr().cast::<u8>().wrapping_add(i * BLOCK_BYTES);
            // SAFETY: the block lies in the rows, and the room has one for it.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from.add(block.first as usize * size),
                    to,
                    block.elements as usize * size,
                );
            }
        }
        // SAFETY: by the plan.
        unsafe { self.put(region, part.tag, wire, peer, &room[..words as usize]) };
        words
    }

    /// Stores a message into `peer`'s slot.
    unsafe fn put(&self, region: Region, tag: u32, wire: u32, peer: usize, words: &[u32]) {
        let tag_of_slot = if hooks::on(self.call.hooks, hooks::ONE_GENERATION) { 0 } else { tag };
        let to = self.peers[peer].wrapping_add(self.plan.offset(region, tag_of_slot, self.rank, wire));
        // SAFETY: by the plan the message fits into the slot.
        unsafe {
            match self.plan.reduce.transport {
                Transport::Lines(LineForm::L8) => put_lines::<1>(to, words, tag),
                Transport::Lines(LineForm::L16) => put_lines::<3>(to, words, tag),
                Transport::Lines(LineForm::L64) => put_lines::<15>(to, words, tag),
                Transport::Bulk => {
                    to_peer(peer, words.as_ptr().cast(), to, size_of_val(words));
                    self.flag(peer, region, tag_of_slot, self.rank, wire).store(tag, Ordering::Release);
                }
            }
        }
    }

    /// Waits for a message of so many words and says where they are: in the slot, or in `room`.
    fn get(
        &self,
        region: Region,
        tag: u32,
        wire: u32,
        sender: usize,
        words: u32,
        room: &mut Vec<u32>,
    ) -> Result<*const u8, GaveUp> {
        let tag_of_slot = if hooks::on(self.call.hooks, hooks::ONE_GENERATION) { 0 } else { tag };
        let from = self.peers[self.rank].wrapping_add(self.plan.offset(region, tag_of_slot, sender, wire));
        let words = words as usize;
        room.resize(room.len().max(words), 0);
        let room = &mut room[..words];
        // A mutation: the sums of whichever call was here before.
        let stale = wire == self.plan.reduce.wires && hooks::on(self.call.hooks, hooks::STALE_SUMS);
        // SAFETY: by the plan the message lies in the slot.
        unsafe {
            match self.plan.reduce.transport {
                Transport::Lines(LineForm::L8) => self.take::<1>(from, tag, stale, room)?,
                Transport::Lines(LineForm::L16) => self.take::<3>(from, tag, stale, room)?,
                Transport::Lines(LineForm::L64) => self.take::<15>(from, tag, stale, room)?,
                Transport::Bulk => {
                    let flag = self.flag(self.rank, region, tag_of_slot, sender, wire);
                    if !stale {
                        self.call.waiter.until(|| flag.load(Ordering::Acquire), tag)?;
                    }
                    return Ok(from);
                }
            }
        }
        Ok(room.as_ptr().cast())
    }

    unsafe fn take<const D: usize>(
        &self,
        from: *mut u8,
        tag: u32,
        stale: bool,
        room: &mut [u32],
    ) -> Result<(), GaveUp> {
        for (i, room) in room.chunks_mut(D).enumerate() {
            // SAFETY: passed on; lines are only ever accessed as such.
            let line = unsafe { &*from.cast::<Line<D>>().add(i) };
            if !stale {
                self.call.waiter.until(|| line.flag(), tag)?;
            }
            room.copy_from_slice(&line.take()[..room.len()]);
        }
        Ok(())
    }

    fn flag(&self, receiver: usize, region: Region, tag: u32, sender: usize, wire: u32) -> &AtomicU32 {
        let offset = self.plan.reduce.layout.bulk_flag(region, generation(tag), sender, wire);
        // SAFETY: an aligned word of staging memory, which outlives the launch and is only accessed as an atomic.
        unsafe { AtomicU32::from_ptr(self.peers[receiver].add(offset).cast()) }
    }

    /// Waits for everybody's part of the own columns, reduces them, and stores the result into every peer's slot.
    unsafe fn reduce(&self, part: &Round, wire: u32, rooms: &mut [Vec<u32>; MAX_RANKS]) -> Result<u32, GaveUp> {
        let (n, wires, size) = (self.plan.reduce.n, self.plan.reduce.wires, self.plan.reduce.geometry.elem());
        let chunk = self.chunk(self.rank);
        let blocks = part.geometry.wire_blocks(chunk, wires, wire);
        if blocks == 0 {
            return Ok(0);
        }
        let words = part.geometry.wire_words(chunk, wires, wire, 0, blocks) as u32;
        let mut sources = [std::ptr::null(); MAX_RANKS];
        for sender in self.others() {
            sources[sender] = self.get(Region::Input, part.tag, wire, sender, words, &mut rooms[sender])?;
        }
        let d = self.plan.params.hidden as usize;
        for (i, block) in part.geometry.blocks(chunk, wires, wire, 0, blocks).enumerate() {
            let offset = block.first as usize * size;
            let mut here = [std::ptr::null(); MAX_RANKS];
            here[..n].iter_mut().zip(&sources).for_each(|(here, from)| *here = from.wrapping_add(i * BLOCK_BYTES));
            here[self.rank] = self.buffers.x.cast::<u8>().wrapping_add(part.first * d * size + offset);
            // SAFETY: each source holds the block's elements, and so does the place of the result.
            unsafe {
                let to = Target::only(part.x.add(offset));
                self.fold.block(chunk, &here[..n], 1 << self.rank, to, block.elements as usize);
            }
        }
        for peer in self.others() {
            // SAFETY: by the plan. The own room isn't one that was received into.
            unsafe { self.send(Region::Result, part, wire, self.rank, peer, part.x, &mut rooms[self.rank]) };
        }
        Ok(words)
    }

    /// Waits for the columns of `peer` and stores them among the rows.
    unsafe fn gather(&self, part: &Round, wire: u32, peer: usize, room: &mut Vec<u32>) -> Result<u32, GaveUp> {
        let (chunk, wires, size) = (self.chunk(peer), self.plan.reduce.wires, self.plan.reduce.geometry.elem());
        let blocks = part.geometry.wire_blocks(chunk, wires, wire);
        if blocks == 0 {
            return Ok(0);
        }
        let words = part.geometry.wire_words(chunk, wires, wire, 0, blocks) as u32;
        let from = self.get(Region::Result, part.tag, wire, peer, words, room)?;
        for (i, block) in part.geometry.blocks(chunk, wires, wire, 0, blocks).enumerate() {
            // SAFETY: the block is part of what was received, and of the rows.
            unsafe {
                let to = part.x.add(block.first as usize * size);
                std::ptr::copy_nonoverlapping(from.add(i * BLOCK_BYTES), to, block.elements as usize * size);
            }
        }
        Ok(words)
    }

    /// Stores the own columns' sums into every peer's slot, one wire further.
    fn send_sums(
        &self,
        round: u32,
        tag: u32,
        sums: u32,
        scratch: &mut Scratch,
        trace: impl Fn(MhcPhase, u32, usize, u32),
    ) {
        if sums == 0 {
            return;
        }
        let (width, rows) = (row_sums(&self.plan.params), self.plan.rows(round).1 as usize);
        let message = &mut scratch.words[0];
        message.clear();
        message.extend((0..rows).flat_map(|row| &scratch.own[row * SUMS..][..width]).map(|sum| sum.to_bits()));
        if self.rank == 1 && hooks::on(self.call.hooks, hooks::STALE_SUMS) {
            // Long enough for the others to come to where they would wait.
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        for peer in self.others() {
            // SAFETY: by the plan.
            unsafe { self.put(Region::Result, tag, self.plan.reduce.wires, peer, message) };
            trace(MhcPhase::Sums, self.plan.reduce.wires - 1, peer, sums);
        }
        self.notify();
    }

    fn await_sums(&self, tag: u32, rows: usize, words: u32, scratch: &mut Scratch) -> Result<(), GaveUp> {
        let (n, width) = (self.plan.reduce.n, row_sums(&self.plan.params));
        let Scratch { sums, own, words: rooms, .. } = scratch;
        sums.resize(sums.len().max(n * rows * SUMS), 0.0);
        for owner in 0..n {
            let place = &mut sums[owner * rows * SUMS..][..rows * SUMS];
            if owner == self.rank {
                place.copy_from_slice(&own[..rows * SUMS]);
                continue;
            }
            let from =
                self.get(Region::Result, tag, self.plan.reduce.wires, owner, words, &mut rooms[0])?.cast::<f32>();
            for (row, place) in place.chunks_mut(SUMS).enumerate() {
                // SAFETY: part of the message.
                unsafe { std::ptr::copy_nonoverlapping(from.add(row * width), place.as_mut_ptr(), width) };
            }
        }
        Ok(())
    }

    /// A row's mixes from all owners' sums, in rank order.
    fn mixes(&self, rows: usize, row: usize, sums: &[f32]) -> [f32; MAX_MIXES] {
        let (params, n) = (&self.plan.params, self.plan.reduce.n);
        let mixes = params.mixes();
        let total = |j: usize| (0..n).fold(0.0f32, |sum, owner| sum + sums[(owner * rows + row) * SUMS + j]);
        let columns = params.hc() * params.hidden as usize;
        let inverse = ccl_core::mhc::math::rsqrt(total(mixes) / columns as f32 + params.rms_eps);
        std::array::from_fn(|j| if j < mixes { total(j) * inverse } else { 0.0 })
    }

    /// The boundary's memory, with x where the round has it.
    fn memory<T>(&self, part: &Round) -> Buffers {
        let before = part.first * self.plan.params.hidden as usize;
        Buffers { x: part.x.cast::<T>().wrapping_sub(before).cast(), ..*self.buffers }
    }

    /// The blocks of an owner's columns.
    fn blocks(&self, owner: usize) -> Blocks {
        let (n, blocks) = (self.plan.reduce.n, self.plan.params.blocks());
        let first = self.chunk(owner);
        Blocks { first, step: n, count: blocks.saturating_sub(first).div_ceil(n) }
    }

    /// Post and the sums of own columns.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn own<T: Lanes>(&self, part: &Round, scratch: &mut Scratch) {
        let (params, memory) = (&self.plan.params, self.memory::<T>(part));
        let pre = params.variant.has_pre();
        let Scratch { room, own, .. } = scratch;
        own.resize(own.len().max(part.rows * SUMS), 0.0);
        own[..part.rows * SUMS].fill(0.0);
        let of_tile = super::TILE / params.hc();
        for tile in (0..part.rows).step_by(of_tile) {
            let rows = of_tile.min(part.rows - tile);
            let blocks = self.blocks(self.rank);
            room.make(params, rows);
            let post = |row: usize, block: usize, values: &mut [f32]| {
                // SAFETY: passed on; x of own columns is reduced.
                unsafe { super::post_block::<T>(params, &memory, part.first + tile + row, block, values) };
            };
            let add = |row: usize, _: usize, sums: &[f32]| sums::add_to(&mut own[(tile + row) * SUMS..], sums);
            if pre {
                // SAFETY: passed on.
                unsafe { sums::of_blocks(params, memory.weights, rows, blocks, room, post, add) };
            } else {
                for (row, k) in (0..rows).flat_map(|row| (0..blocks.count).map(move |k| (row, k))) {
                    post(row, blocks.at(k), room.values(params, row));
                }
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn own<T: Lanes>(&self, _part: &Round, _scratch: &mut Scratch) {}

    /// Post of the others' columns.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn others_columns<T: Lanes>(&self, part: &Round, scratch: &mut Scratch) {
        let (params, memory) = (&self.plan.params, self.memory::<T>(part));
        scratch.room.make(params, 1);
        for row in 0..part.rows {
            for blocks in self.others().map(|owner| self.blocks(owner)) {
                for k in 0..blocks.count {
                    let values = scratch.room.values(params, 0);
                    // SAFETY: passed on; all of x is there.
                    unsafe { super::post_block::<T>(params, &memory, part.first + row, blocks.at(k), values) };
                }
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn others_columns<T: Lanes>(&self, _part: &Round, _scratch: &mut Scratch) {}

    /// Post of all columns and the sums of own ones, by the reference.
    unsafe fn plain<T: Lanes>(&self, part: &Round, scratch: &mut Scratch) {
        let (params, n, memory) = (&self.plan.params, self.plan.reduce.n, self.memory::<T>(part));
        let (hc, d, mixes) = (params.hc(), params.hidden as usize, params.mixes());
        let own = &mut scratch.own;
        own.resize(own.len().max(part.rows * SUMS), 0.0);
        for row in 0..part.rows {
            let at = part.first + row;
            // SAFETY: by the shapes that the caller vouches for.
            let (new, weights) = unsafe {
                let slice = |from: *const T, len: usize| std::slice::from_raw_parts(from.add(at * len), len);
                let wide = |from: *const f32, len: usize| std::slice::from_raw_parts(from.add(at * len), len);
                let x = slice(memory.x.cast(), d);
                let residual = slice(memory.residual.cast(), hc * d);
                let new = reference::post(d, x, residual, wide(memory.post, hc), wide(memory.comb, hc * hc));
                let to = memory.residual_out.cast::<T>().add(at * hc * d);
                std::ptr::copy_nonoverlapping(new.as_ptr(), to, hc * d);
                let weights: &[f32] = match mixes {
                    0 => &[],
                    _ => std::slice::from_raw_parts(memory.weights, mixes * hc * d),
                };
                (new, weights)
            };
            if params.variant.has_pre() {
                let sums = reference::owner_sums(params, n, self.rank, &new, weights);
                own[row * SUMS..][..mixes + 1].copy_from_slice(&sums[..mixes + 1]);
            }
        }
    }
}

/// Elements of the residual that are asked for while others' messages are on their way.
const EARLY: usize = 32 << 10;
