//! The push all-reduces on the CPU, one-shot and mesh: the twins of the device kernels of the same names. Their steps are
//! those of `ccl_core::plan::push`.
//!
//! One thread plays all work-groups: round by round, phase by phase, and all wires in each.

use super::call::{self, Call, Failure, Frame};
use super::fold::Fold;
use super::reduce::Target;
use super::wait::GaveUp;
use super::{bulk, trace};
use crate::hooks;
use ccl_core::plan::geometry::{Blocks, Geometry};
use ccl_core::plan::push::{Mode, Part, Phase, PushPlan, PushStep, Transport};
use ccl_core::plan::ring::Segment;
use ccl_core::protocol::{
    BLOCK_WORDS, BulkOffsets, CommState, HostBlock, LineForm, MAX_RANKS, Region, Shape, TILE_WORDS,
};
use ccl_core::slot::Line;
use std::mem::MaybeUninit;

/// The kernel's arguments, in order (`ccl_core::plan::push::PUSH_ARGS`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Args {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    pub(super) state: *mut CommState,
    pub(super) host: *mut HostBlock,
    pub(super) peers: *const *mut u8,
    pub(super) count: u64,
    pub(super) period: u64,
    pub(super) factor: u64,
    pub(super) kind: u32,
    pub(super) rank: u32,
    pub(super) n: u32,
    pub(super) mode: u32,
    pub(super) part: u32,
    pub(super) rounds: u32,
}

/// Messages from so many bytes on leave nothing in a processor's caches for whoever reads the output.
const PAST_CACHES_BYTES: usize = 8 << 20;

/// One launch.
pub(super) struct Push<'a> {
    pub(super) plan: &'a PushPlan,
    pub(super) call: &'a Call<'a>,
    pub(super) fold: &'a Fold,
    /// All ranks' staging memory, as it is mapped here.
    pub(super) peers: &'a [*mut u8],
    pub(super) rank: usize,
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    /// Bytes of an element.
    pub(super) size: usize,
    /// Where in anybody's staging memory begins what bulk uses.
    pub(super) bulk: BulkOffsets,
}

/// Runs a kernel of one-shot or mesh.
///
/// # Safety
/// `args` are those of a launch on an active communicator whose ranks agreed on this transport: buffers of `count`
/// elements, all ranks' staging memory of the agreed size.
pub(super) unsafe fn run(args: &Args, geometry: Geometry, transport: Transport, wires: u32, fold: &Fold) {
    let (rank, n) = (args.rank as usize, args.n as usize);
    // SAFETY: the table has an address for each rank.
    let peers = unsafe { std::slice::from_raw_parts(args.peers, n) };
    // SAFETY: words that are set before the first collective only.
    let layout = unsafe { call::layout(args.state, n) };
    let (dtype, op, order) = (fold.dtype, fold.op, fold.order);
    let mode = if args.mode == Mode::OneShot as u32 { Mode::OneShot } else { Mode::Mesh };
    let part = args.part;
    let plan = PushPlan { n, dtype, op, order, geometry, mode, transport, wires, part, rounds: args.rounds, layout };
    let size = geometry.elem();
    // The factor is each rank's own, and so nothing to compare.
    let shape = Shape::new(args.count, args.period, 0, args.kind, args.rounds);
    let frame = Frame::of_push(&plan, (args.state, args.host), (peers, rank), shape, args.recv);
    let bulk = layout.bulk_offsets();
    let body = |call: &Call<'_>| {
        let push = Push { plan: &plan, call, fold, peers, rank, send: args.send, recv: args.recv, size, bulk };
        // SAFETY: by this function's contract.
        unsafe { rounds(&push) }
    };
    // SAFETY: by this function's contract.
    unsafe { call::run(&frame, body) };
}

/// All rounds of one-shot or mesh, by the plan's transport.
///
/// # Safety
/// As for [`run`].
pub(super) unsafe fn rounds(push: &Push<'_>) -> Result<(), Failure> {
    // SAFETY: passed on.
    unsafe {
        match (push.plan.transport, push.size) {
            (Transport::Bulk, _) => bulk::rounds(push),
            (Transport::Lines(LineForm::L8), _) => push.rounds::<1, 1>(),
            (Transport::Lines(LineForm::L16), 8) => push.rounds::<3, 2>(),
            (Transport::Lines(LineForm::L16), _) => push.rounds::<3, 3>(),
            (Transport::Lines(LineForm::L64), 8) => push.rounds::<15, 14>(),
            (Transport::Lines(LineForm::L64), _) => push.rounds::<15, 15>(),
        }
    }
}

impl Push<'_> {
    /// Own staging memory.
    pub(super) fn inbox(&self) -> *mut u8 {
        self.peers[self.rank]
    }

    /// The other ranks, from the next one on.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, n) = (self.rank, self.plan.n);
        (1..n).map(move |distance| if rank + distance < n { rank + distance } else { rank + distance - n })
    }

    /// Whether the message is so long that its end would drive its beginning out of the caches: what is stored to the
    /// user's buffer then had better not be fetched before.
    pub(super) fn past_caches(&self) -> bool {
        self.plan.geometry.count() as usize * self.size >= PAST_CACHES_BYTES
    }

    /// Wakes the peers that sleep.
    pub(super) fn notify(&self) {
        self.call.waiter.notify(self.others().map(|peer| self.peers[peer]));
    }

    /// The tag by which the generation of slots is chosen.
    pub(super) fn slot_tag(&self, tag: u32) -> u32 {
        if hooks::on(self.call.hooks, hooks::ONE_GENERATION) { 0 } else { tag }
    }

    /// Whether steps are recorded.
    pub(super) fn traces(&self) -> bool {
        hooks::on(self.call.hooks, hooks::TRACE)
    }

    pub(super) fn trace(&self, round: u32, phase: Phase, wire: u32, peer: usize, part: Part) {
        if self.traces() {
            trace::record_push(self.rank, PushStep { round, phase, wire, peer, part });
        }
    }

    /// Names the place of a wait that was given up.
    pub(super) fn failure(gave_up: GaveUp, phase: Phase, wire: u32, round: u32, expected: u32) -> Failure {
        Failure { gave_up, wire: wire as usize, step: phase as usize, round, expected }
    }

    /// All rounds, on lines of `D` words besides the flag, `P` of which are used.
    unsafe fn rounds<const D: usize, const P: usize>(&self) -> Result<(), Failure> {
        let plan = self.plan;
        // What a wire's tile holds, of each sender. It is written before it is read, so it needn't be initialised.
        let mut tiles = [MaybeUninit::<[u32; TILE_WORDS]>::uninit(); MAX_RANKS];
        let one_shot = plan.mode == Mode::OneShot;
        let chunks = if one_shot { 0..plan.n } else { 0..1 };
        // The chunk whose sum is complete at `owner`.
        let chunk_of = |owner: usize| if owner + 1 < plan.n { owner + 1 } else { 0 };
        for round in 0..plan.rounds {
            let tag = self.call.tag(round);
            for wire in 0..plan.wires {
                for peer in self.others() {
                    for i in chunks.clone() {
                        let chunk = if one_shot { i } else { chunk_of(peer) };
                        let Some(segment) = plan.segment(chunk, wire, round) else { continue };
                        let mut sender = self.sender::<D>(Region::Input, tag, wire, chunk, peer);
                        let mut blocks = self.blocks(chunk, wire, &segment);
                        let mut left = segment.lines as usize;
                        while left > 0 {
                            let lines = left.min(TILE_WORDS / D);
                            // SAFETY: the blocks lie in the input; the lines in the peer's slot, by the plan.
                            unsafe {
                                self.load::<P>(Message::Input, &mut blocks, lines, &mut tiles[0]);
                                sender.put::<P>(&tiles[0], lines);
                            }
                            left -= lines;
                        }
                        self.trace(round, Phase::Send, wire, peer, Part::Lines { chunk, segment });
                    }
                }
            }
            self.notify();
            for wire in 0..plan.wires {
                for i in chunks.clone() {
                    let chunk = if one_shot { i } else { chunk_of(self.rank) };
                    let Some(segment) = plan.segment(chunk, wire, round) else { continue };
                    // SAFETY: by the plan.
                    unsafe { self.reduce::<D, P>(tag, wire, chunk, &segment, &mut tiles) }
                        .map_err(|gave_up| Self::failure(gave_up, Phase::Reduce, wire, round, tag))?;
                    self.trace(round, Phase::Reduce, wire, self.rank, Part::Lines { chunk, segment });
                }
            }
            if one_shot {
                continue;
            }
            self.notify();
            for wire in 0..plan.wires {
                for peer in self.others() {
                    let chunk = chunk_of(peer);
                    let Some(segment) = plan.segment(chunk, wire, round) else { continue };
                    // SAFETY: by the plan.
                    unsafe { self.gather::<D, P>(tag, wire, peer, chunk, &segment, &mut tiles[0]) }
                        .map_err(|gave_up| Self::failure(gave_up, Phase::Gather, wire, round, tag))?;
                    self.trace(round, Phase::Gather, wire, peer, Part::Lines { chunk, segment });
                }
            }
        }
        Ok(())
    }

    fn blocks(&self, chunk: usize, wire: u32, segment: &Segment) -> Blocks {
        self.plan.geometry.blocks(chunk, self.plan.wires, wire, segment.first_block, u64::from(segment.blocks))
    }

    /// Lines that this rank stores into `peer`'s staging memory.
    fn sender<const D: usize>(&self, region: Region, tag: u32, wire: u32, chunk: usize, peer: usize) -> Sender<D> {
        let offset = self.plan.segment_offset(region, self.slot_tag(tag), self.rank, wire, chunk);
        let line = self.peers[peer].wrapping_add(offset).cast();
        Sender { line, tag, flag_first: hooks::on(self.call.hooks, hooks::FLAG_FIRST) }
    }

    /// The first line that `sender` stores into the own staging memory.
    fn incoming<const D: usize>(
        &self,
        region: Region,
        tag: u32,
        wire: u32,
        chunk: usize,
        sender: usize,
    ) -> *const Line<D> {
        let offset = self.plan.segment_offset(region, self.slot_tag(tag), sender, wire, chunk);
        self.inbox().wrapping_add(offset).cast()
    }

    /// Takes what `lines` lines carry of a message's blocks, of the own input as it contributes to the reduction; what is
    /// not data is zero.
    unsafe fn load<const P: usize>(
        &self,
        from: Message,
        blocks: &mut Blocks,
        lines: usize,
        tile: &mut MaybeUninit<[u32; TILE_WORDS]>,
    ) {
        let words = tile.as_mut_ptr().cast::<u32>();
        let needed = lines * P;
        let mut at = 0;
        while at < needed {
            // A block is never cut: what a tile's lines carry are whole blocks, but for the message's last one.
            let room = BLOCK_WORDS.min(needed - at);
            let bytes = match blocks.next() {
                Some(block) => {
                    let bytes = block.elements as usize * self.size;
                    let (offset, to) = (block.first as usize * self.size, words.wrapping_add(at).cast());
                    // SAFETY: the block lies in the message, and the tile has room for `room` words, which it fits in.
                    unsafe {
                        match from {
                            Message::Input => self.fold.reducer.contribute(to, self.send.add(offset), bytes),
                            Message::Result => std::ptr::copy_nonoverlapping(self.recv.add(offset), to, bytes),
                        }
                    }
                    bytes
                }
                None => 0,
            };
            // SAFETY: the rest of that room.
            unsafe { words.add(at).cast::<u8>().add(bytes).write_bytes(0, room * 4 - bytes) };
            at += room;
        }
    }

    /// Waits for `lines` lines and takes what they carry.
    unsafe fn take<const D: usize, const P: usize>(
        &self,
        first: *const Line<D>,
        lines: usize,
        tag: u32,
        tile: &mut MaybeUninit<[u32; TILE_WORDS]>,
    ) -> Result<(), GaveUp> {
        let words = tile.as_mut_ptr().cast::<u32>();
        for i in 0..lines {
            // SAFETY: the plan keeps a slot's lines inside the staging memory.
            let line = unsafe { &*first.add(i) };
            self.call.waiter.until(|| line.flag(), tag)?;
            let data = line.take();
            // SAFETY: a tile has room for what its lines carry, and P is at most D.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), words.add(i * P), P) };
        }
        Ok(())
    }

    /// Waits for all senders' lines of a segment, reduces them with the own input to the output, and sends the result on
    /// where it is a mesh.
    unsafe fn reduce<const D: usize, const P: usize>(
        &self,
        tag: u32,
        wire: u32,
        chunk: usize,
        segment: &Segment,
        tiles: &mut [MaybeUninit<[u32; TILE_WORDS]>; MAX_RANKS],
    ) -> Result<(), GaveUp> {
        let (plan, n) = (self.plan, self.plan.n);
        let mut blocks = self.blocks(chunk, wire, segment);
        let (mut done, mut results) = (0, blocks.clone());
        while done < segment.lines as usize {
            let lines = (segment.lines as usize - done).min(TILE_WORDS / D);
            for sender in self.others() {
                let first = self.incoming::<D>(Region::Input, tag, wire, chunk, sender).wrapping_add(done);
                // SAFETY: passed on.
                unsafe { self.take::<D, P>(first, lines, tag, &mut tiles[sender])? };
            }
            let tile_blocks = (lines * P).div_ceil(BLOCK_WORDS);
            for (i, block) in blocks.by_ref().take(tile_blocks).enumerate() {
                let offset = block.first as usize * self.size;
                let mut sources = [std::ptr::null(); MAX_RANKS];
                for (source, tile) in sources[..n].iter_mut().zip(tiles.iter()) {
                    *source = tile.as_ptr().cast::<u32>().wrapping_add(i * BLOCK_WORDS).cast();
                }
                sources[self.rank] = self.send.wrapping_add(offset);
                // SAFETY: each source holds the block's elements: the own in the input, the others' taken just now.
                unsafe {
                    self.fold.block(
                        chunk,
                        &sources[..n],
                        1 << self.rank,
                        Target::only(self.recv.add(offset)),
                        block.elements as usize,
                    )
                };
            }
            if plan.mode == Mode::Mesh {
                // SAFETY: the blocks lie in the output; the lines in the peers' slots, by the plan.
                unsafe { self.load::<P>(Message::Result, &mut results, lines, &mut tiles[0]) };
                for peer in self.others() {
                    let mut sender = self.sender::<D>(Region::Result, tag, wire, chunk, peer);
                    sender.line = sender.line.wrapping_add(done);
                    // SAFETY: as above.
                    unsafe { sender.put::<P>(&tiles[0], lines) };
                }
            }
            done += lines;
        }
        Ok(())
    }

    /// Waits for a peer's result and stores it into the output.
    unsafe fn gather<const D: usize, const P: usize>(
        &self,
        tag: u32,
        wire: u32,
        peer: usize,
        chunk: usize,
        segment: &Segment,
        tile: &mut MaybeUninit<[u32; TILE_WORDS]>,
    ) -> Result<(), GaveUp> {
        let first = self.incoming::<D>(Region::Result, tag, wire, chunk, peer);
        let mut blocks = self.blocks(chunk, wire, segment);
        let mut done = 0;
        while done < segment.lines as usize {
            let lines = (segment.lines as usize - done).min(TILE_WORDS / D);
            // SAFETY: passed on.
            unsafe { self.take::<D, P>(first.wrapping_add(done), lines, tag, tile)? };
            for (i, block) in blocks.by_ref().take((lines * P).div_ceil(BLOCK_WORDS)).enumerate() {
                // SAFETY: the block lies in the output, and its words were taken just now.
                unsafe {
                    let from = tile.as_ptr().cast::<u32>().add(i * BLOCK_WORDS).cast::<u8>();
                    let to = self.recv.add(block.first as usize * self.size);
                    std::ptr::copy_nonoverlapping(from, to, block.elements as usize * self.size);
                }
            }
            done += lines;
        }
        Ok(())
    }
}

/// What is sent.
enum Message {
    Input,
    Result,
}

/// Stores lines one after the other.
struct Sender<const D: usize> {
    line: *const Line<D>,
    tag: u32,
    flag_first: bool,
}

impl<const D: usize> Sender<D> {
    /// Stores `lines` lines of a tile, `P` words in each.
    unsafe fn put<const P: usize>(&mut self, tile: &MaybeUninit<[u32; TILE_WORDS]>, lines: usize) {
        let words = tile.as_ptr().cast::<u32>();
        for i in 0..lines {
            let mut data = [0; D];
            // SAFETY: the tile's words were written for that many lines; the line lies in staging memory.
            let line = unsafe {
                std::ptr::copy_nonoverlapping(words.add(i * P), data.as_mut_ptr(), P);
                &*self.line
            };
            if self.flag_first {
                // Long enough for a receiver that shares the processor to come in between.
                let between = || match i {
                    0 => std::thread::sleep(std::time::Duration::from_micros(50)),
                    _ => (0..50).for_each(|_| std::hint::spin_loop()),
                };
                line.put_flag_first(&data, self.tag, between);
            } else {
                line.put(&data, self.tag);
            }
            self.line = self.line.wrapping_add(1);
        }
    }
}
