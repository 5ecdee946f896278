//! The ring all-reduce on the CPU: the twin of the device kernel of the same name (docs/protocol.md).
//!
//! One thread plays all work-groups of the launch. That is allowed because the chains of different lines do not depend
//! on one another, and it keeps a small machine from needing a thread per wire.

use super::add::AddFn;
use super::trace;
use super::wait::{GaveUp, Waiter};
use crate::hooks;
use ccl_core::plan::geometry::{Block, Blocks, Geometry};
use ccl_core::plan::ring::Step;
use ccl_core::protocol::{
    BLOCK_WORDS, CommState, FAILED_FILL, Fault, HostBlock, LineForm, STAGING_HEAD_BYTES, StagingHead, TILE_BLOCKS,
    TILE_WORDS, sent_chunk, slots, tag, tag_span,
};
use ccl_core::slot::Line;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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
}

/// Where a step failed.
struct Failure {
    gave_up: GaveUp,
    wire: usize,
    step: usize,
    round: u32,
    expected: u32,
}

/// One launch.
struct Ring<'a, const D: usize> {
    args: &'a Args,
    geometry: Geometry,
    size: usize,
    add: AddFn,
    waiter: Waiter<'a>,
    wires: usize,
    hooks: u32,
}

/// Runs the kernel: `D` is the line's payload in words.
///
/// # Safety
/// `args` are those of a launch on an active communicator of this line form: buffers of `count` elements, staging
/// memory of the agreed size, the next rank's mapped.
pub(super) unsafe fn run<const D: usize>(args: &Args, geometry: Geometry, wires: usize, add: AddFn) {
    let size = geometry.elem();
    // Not a reference yet: should another collective run at the same time, the rest of the state is its own.
    // SAFETY: only the address of the words is computed.
    let busy = unsafe { (&raw mut (*args.state).busy).cast::<u32>() };
    // SAFETY: a word that is set before the first collective only.
    let hooks = unsafe { (*args.state).hooks };
    // SAFETY: `wires` is at most `MAX_WIRES`, the number of these words, which are only accessed as atomics.
    let busy = |wire: usize| unsafe { AtomicU32::from_ptr(busy.add(wire)) };
    let taken = (0..wires).filter(|&wire| busy(wire).swap(1, Ordering::AcqRel) != 0).count();
    if taken > 0 && !hooks::on(hooks, hooks::IGNORE_BUSY) {
        let gave_up = GaveUp { fault: Fault::Overlap, seen: taken as u32 };
        // The busy words and the counters are the other collective's.
        // SAFETY: passed on.
        unsafe { fail(args, size, &Failure { gave_up, wire: 0, step: 0, round: 0, expected: 0 }) };
        return;
    }
    let state = args.state;
    // SAFETY: the busy words say that no other collective of this communicator runs, so nobody else looks at these.
    let (calls, base, limit, wraps) = unsafe { ((*state).calls, (*state).base, (*state).tag_limit, (*state).wraps) };
    // SAFETY: a word that any kernel may set; accessed as an atomic only.
    let poisoned = unsafe { AtomicU32::from_ptr(&raw mut (*state).poisoned) };
    // SAFETY: the host block lives as long as the communicator; its words are accessed as atomics while kernels run.
    let (entered, done) = unsafe {
        (AtomicU64::from_ptr(&raw mut (*args.host).entered), AtomicU64::from_ptr(&raw mut (*args.host).done))
    };
    let call = calls + 1;
    entered.store(call, Ordering::Release);

    let span = tag_span(base, args.rounds, limit);
    // A mutation: what a kernel would do whose base comes from an argument that a recording froze.
    let base = if !hooks::on(hooks, hooks::FROZEN_BASE) { span.base } else { 0 };
    // SAFETY: the pointers are the communicator's.
    let waiter = unsafe { Waiter::new(args.state, args.host, args.inbox.cast(), args.outbox.cast()) };
    let mut ring = Ring::<D> { args, geometry, size: geometry.elem(), add, waiter, wires, hooks };
    if poisoned.load(Ordering::Relaxed) != 0 {
        // SAFETY: the output is the launch's.
        unsafe { fill_failed(args, size) };
    } else {
        let mut outcome = Ok(());
        if span.wraps && !hooks::on(hooks, hooks::NO_CLEARING) {
            // SAFETY: by this function's contract.
            outcome = unsafe { ring.clear(wraps + 1) };
        }
        for round in 0..args.rounds {
            if outcome.is_ok() {
                // SAFETY: by this function's contract.
                outcome = unsafe { ring.round(round, tag(base, round)) };
            }
        }
        if let Err(failure) = outcome {
            // SAFETY: passed on.
            unsafe { fail(args, size, &failure) };
        }
    }
    // The last work-group to leave.
    // SAFETY: as where they were read.
    unsafe {
        (*state).base = span.next;
        (*state).wraps = wraps + u32::from(span.wraps);
        (*state).calls = call;
    }
    for wire in 0..wires {
        busy(wire).store(0, Ordering::Release);
    }
    done.store(call, Ordering::Release);
}

/// Poisons the communicator, says why, and makes the output unmistakable.
unsafe fn fail(args: &Args, size: usize, failure: &Failure) {
    let code = failure.gave_up.fault as u32;
    // SAFETY: state and host block are the communicator's; the poison is sticky and the same word for whoever writes it;
    // the fault word is written last and only once.
    unsafe {
        AtomicU32::from_ptr(&raw mut (*args.state).poisoned).store(code, Ordering::Relaxed);
        let host = args.host;
        let call = AtomicU64::from_ptr(&raw mut (*host).entered).load(Ordering::Relaxed).max(1);
        // Whoever sets the number of the failed call, which is 0 before, writes the rest.
        let claim = AtomicU64::from_ptr(&raw mut (*host).call);
        if claim.compare_exchange(0, call, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            for (word, value) in [
                (&raw mut (*host).wire, failure.wire as u32),
                (&raw mut (*host).step, failure.step as u32),
                (&raw mut (*host).round, failure.round),
                (&raw mut (*host).expected, failure.expected),
                (&raw mut (*host).seen, failure.gave_up.seen),
            ] {
                AtomicU32::from_ptr(word).store(value, Ordering::Relaxed);
            }
            AtomicU32::from_ptr(&raw mut (*host).fault).store(code, Ordering::Release);
        }
        fill_failed(args, size);
    }
}

/// Zeros would be plausible; 0xFF is NaN in every float type.
unsafe fn fill_failed(args: &Args, size: usize) {
    // SAFETY: the output holds `count` elements.
    unsafe { args.recv.write_bytes(FAILED_FILL, args.count as usize * size) };
}

/// The blocks of a tile, in the order of the wire's stream.
struct Tile {
    blocks: [Block; TILE_BLOCKS],
    len: usize,
}

impl Tile {
    fn next(blocks: &mut Blocks) -> Option<Tile> {
        let mut tile = Tile { blocks: [Block { first: 0, elements: 0 }; TILE_BLOCKS], len: 0 };
        for (slot, block) in tile.blocks.iter_mut().zip(blocks.by_ref()) {
            *slot = block;
            tile.len += 1;
        }
        (tile.len > 0).then_some(tile)
    }
}

impl<const D: usize> Ring<'_, D> {
    const LINES_PER_TILE: usize = TILE_WORDS / D;
    const TILE_BYTES: usize = Self::LINES_PER_TILE * (D + 1) * 4;

    /// Slot `slot`'s part of `wire`, in a staging memory.
    fn lines(&self, staging: *mut u8, slot: usize, wire: usize) -> *const Line<D> {
        let slot = if !hooks::on(self.hooks, hooks::ONE_SLOT_FEWER) {
            slot
        } else {
            slot % (slots(self.args.n as usize) - 1).max(1)
        };
        let tile = slot * self.args.slot_tiles as usize + wire * self.args.tiles as usize;
        staging.wrapping_add(STAGING_HEAD_BYTES + tile * Self::TILE_BYTES).cast()
    }

    /// All positions of one round, all wires in each.
    unsafe fn round(&mut self, round: u32, tag: u32) -> Result<(), Failure> {
        let (n, rank) = (self.args.n as usize, self.args.rank as usize);
        let last = slots(n);
        for position in 0..=last {
            let chunk = sent_chunk(n, rank, position);
            for wire in 0..self.wires {
                let first_block = u64::from(round) * u64::from(self.args.tiles) * TILE_BLOCKS as u64;
                let total = self.geometry.wire_blocks(chunk, self.wires as u32, wire as u32);
                let blocks = total.saturating_sub(first_block).min(u64::from(self.args.tiles) * TILE_BLOCKS as u64);
                if blocks == 0 {
                    continue;
                }
                let mut step = Step {
                    round,
                    position: position as u32,
                    wire: wire as u32,
                    chunk,
                    first_block,
                    blocks: blocks as u32,
                    lines: 0,
                    receive: position > 0,
                    reduce: position > 0 && position < n,
                    store: position + 1 >= n,
                    send: position < last,
                };
                // SAFETY: by the contract of `run`.
                unsafe { self.segment(&mut step, tag) }.map_err(|gave_up| Failure {
                    gave_up,
                    wire,
                    step: position.saturating_sub(1),
                    round,
                    expected: tag,
                })?;
                if hooks::on(self.hooks, hooks::TRACE) {
                    trace::record(rank, step);
                }
            }
        }
        Ok(())
    }

    /// One wire's share of a chunk in one round: tile by tile, receive, reduce, store, send.
    unsafe fn segment(&mut self, step: &mut Step, tag: u32) -> Result<(), GaveUp> {
        let position = step.position as usize;
        let wire = step.wire as usize;
        // At position 0 nothing is received, and the line is not looked at.
        let incoming = self.lines(self.args.inbox, position.saturating_sub(1), wire);
        let outgoing = self.lines(self.args.outbox, position, wire);
        let (chunk, wires) = (step.chunk, self.wires as u32);
        let words_of_all = self.geometry.wire_words(chunk, wires, step.wire, step.first_block, u64::from(step.blocks));
        step.lines = words_of_all.div_ceil(D as u64) as u32;
        let mut blocks = self.geometry.blocks(chunk, wires, step.wire, step.first_block, u64::from(step.blocks));
        let mut words = [0u32; TILE_WORDS];
        let mut line = 0;
        while let Some(tile) = Tile::next(&mut blocks) {
            let lines = (step.lines as usize - line).min(Self::LINES_PER_TILE);
            if step.receive {
                for (i, payload) in words.as_chunks_mut::<D>().0[..lines].iter_mut().enumerate() {
                    // SAFETY: the plan keeps a slot's lines inside the staging memory.
                    let line = unsafe { &*incoming.add(line + i) };
                    self.waiter.until(|| line.flag(), tag)?;
                    *payload = line.take();
                }
                if step.reduce {
                    // SAFETY: the blocks lie in the input.
                    unsafe { self.reduce(&tile, &mut words) };
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
                for (i, payload) in words.as_chunks::<D>().0[..lines].iter().enumerate() {
                    // SAFETY: as above, in the next rank's staging memory.
                    let line = unsafe { &*outgoing.add(line + i) };
                    if !hooks::on(self.hooks, hooks::FLAG_FIRST) {
                        line.put(payload, tag);
                    } else {
                        // Long enough for a receiver that shares the processor to come in between.
                        let between = || match i {
                            0 => std::thread::sleep(std::time::Duration::from_micros(50)),
                            _ => (0..50).for_each(|_| std::hint::spin_loop()),
                        };
                        line.put_flag_first(payload, tag, between);
                    }
                }
                self.waiter.notify();
            }
            line += lines;
        }
        Ok(())
    }

    /// Takes the own input; what is not data is zero.
    unsafe fn load(&self, tile: &Tile, words: &mut [u32; TILE_WORDS]) {
        for (block, words) in tile.blocks[..tile.len].iter().zip(words.as_chunks_mut::<BLOCK_WORDS>().0) {
            let bytes = block.elements as usize * self.size;
            if bytes < BLOCK_WORDS * 4 {
                *words = [0; BLOCK_WORDS];
            }
            // SAFETY: the block lies in the input, and `words` has room for a whole block.
            unsafe {
                let from = self.args.send.add(block.first as usize * self.size);
                std::ptr::copy_nonoverlapping(from, words.as_mut_ptr().cast(), bytes);
            }
        }
    }

    /// Adds the own input to what was received.
    unsafe fn reduce(&self, tile: &Tile, words: &mut [u32; TILE_WORDS]) {
        for (block, words) in tile.blocks[..tile.len].iter().zip(words.as_chunks_mut::<BLOCK_WORDS>().0) {
            // SAFETY: the block lies in the input; the sum is a private buffer.
            unsafe {
                let own = self.args.send.add(block.first as usize * self.size);
                (self.add)(words.as_mut_ptr().cast(), own, block.elements as usize * self.size);
            }
        }
    }

    unsafe fn store(&self, tile: &Tile, words: &[u32; TILE_WORDS]) {
        for (block, words) in tile.blocks[..tile.len].iter().zip(words.as_chunks::<BLOCK_WORDS>().0) {
            // SAFETY: the block lies in the output.
            unsafe {
                let to = self.args.recv.add(block.first as usize * self.size);
                std::ptr::copy_nonoverlapping(words.as_ptr().cast(), to, block.elements as usize * self.size);
            }
        }
    }

    /// Starts the tag range anew: barrier, clear own flags, barrier.
    unsafe fn clear(&mut self, number: u32) -> Result<(), Failure> {
        for barrier in 0..2 {
            for wire in 0..self.wires {
                // SAFETY: by the contract of `run`.
                unsafe { self.barrier(wire, barrier, number) }.map_err(|gave_up| Failure {
                    gave_up,
                    wire,
                    step: barrier,
                    round: 0,
                    expected: number,
                })?;
            }
            if barrier == 0 {
                // One thread plays all work-groups: their shares and the remainder are the whole of the slots.
                let lines = slots(self.args.n as usize) * self.args.slot_tiles as usize * Self::LINES_PER_TILE;
                let first: *const Line<D> = self.args.inbox.wrapping_add(STAGING_HEAD_BYTES).cast();
                for line in 0..lines {
                    // SAFETY: inside the staging memory.
                    unsafe { &*first.add(line) }.clear();
                }
            }
        }
        Ok(())
    }

    /// A token goes round twice: when it is back at rank 0 all have come, then it lets them go.
    unsafe fn barrier(&self, wire: usize, barrier: usize, number: u32) -> Result<(), GaveUp> {
        let flag = |staging: *mut u8, lap: usize| {
            let head = staging.cast::<StagingHead>();
            // SAFETY: the head is part of the staging memory; the barrier words are only accessed as atomics.
            unsafe { AtomicU32::from_ptr((&raw mut (*head).barrier).cast::<u32>().add(wire * 16 + barrier * 2 + lap)) }
        };
        let wait = |lap| {
            let word = flag(self.args.inbox, lap);
            self.waiter.until(|| word.load(Ordering::Acquire), number)
        };
        let pass = |lap| {
            flag(self.args.outbox, lap).store(number, Ordering::Release);
            self.waiter.notify();
        };
        let (rank, n) = (self.args.rank, self.args.n);
        if rank == 0 {
            pass(0);
            wait(0)?;
            pass(1);
            return Ok(());
        }
        wait(0)?;
        pass(0);
        wait(1)?;
        if rank + 1 < n {
            pass(1);
        }
        Ok(())
    }
}

const _: () = {
    assert!(size_of::<Line<1>>() == LineForm::L8.granule());
    assert!(size_of::<Line<15>>() == LineForm::L64.granule());
};
