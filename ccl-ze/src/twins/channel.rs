//! The calls through channels on the CPU: those that move pieces and those that reduce them. The twins of the device
//! kernels of the same names; docs/protocol.md, "Channels", is their law.
//!
//! One thread plays all work-groups: round by round, first all that it sends on any wire, then all that it takes.

use super::call::{self, Call, Failure, Frame, OfChannels};
use super::copy::to_peer;
use super::fold::Fold;
use super::reduce::Target;
use super::wait::GaveUp;
use crate::hooks;
use ccl_core::ReduceOp;
use ccl_core::collective::{Pattern, Piece, Pieces, Table};
use ccl_core::plan::channel::{Channels, FLAG_PRIVATE};
use ccl_core::plan::geometry::Geometry;
use ccl_core::plan::push::Transport;
use ccl_core::protocol::channel::{CHANNEL_DEPTH, ChannelState, channel_slot, lap, next_sent};
use ccl_core::protocol::{CommState, HostBlock, Layout, LineForm, MAX_RANKS, Shape, TILE_WORDS};
use ccl_core::slot::Line;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernels' arguments, in order (`ccl_core::plan::channel::CHANNEL_ARGS`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Args {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    pub(super) state: *mut CommState,
    pub(super) host: *mut HostBlock,
    pub(super) peers: *const *mut u8,
    pub(super) table: *const Table,
    pub(super) send_stride: u64,
    pub(super) recv_stride: u64,
    pub(super) bytes: u64,
    pub(super) count: u64,
    pub(super) first: u64,
    pub(super) factor: u64,
    pub(super) kind: u32,
    pub(super) rank: u32,
    pub(super) n: u32,
    pub(super) sends: u32,
    pub(super) receives: u32,
    pub(super) wires: u32,
    pub(super) part: u32,
    pub(super) flags: u32,
}

/// The reduction of a call, and the whole message that it is of.
pub(super) struct Reduction<'a> {
    pub(super) fold: &'a Fold,
    pub(super) geometry: Geometry,
}

/// Where a message is in the protocol.
#[derive(Clone, Copy)]
struct Place {
    peer: usize,
    wire: u32,
    tag: u32,
}

/// Steps that a wait tells of.
const AWAITS_CREDIT: usize = 0;
const AWAITS_MESSAGE: usize = 1;

/// One launch.
struct Channel<'a> {
    call: &'a Call<'a>,
    reduction: Option<Reduction<'a>>,
    channels: Channels,
    layout: Layout,
    peers: &'a [*mut u8],
    rank: usize,
    send: *const u8,
    recv: *mut u8,
    pieces: Pieces<'a>,
    first: u64,
    /// Whether elements of 8 bytes are reduced.
    wide: bool,
    lap: u32,
    state: *mut ChannelState,
    /// Ranks that something was stored for and that may sleep.
    to_wake: Cell<u32>,
}

/// Runs a kernel.
///
/// # Safety
/// `args` are those of a launch on an active communicator whose ranks agreed on this transport: buffers that hold the
/// pieces, all ranks' staging memory of the agreed size, a table or null.
pub(super) unsafe fn run(args: &Args, transport: Transport, groups: u32, reduction: Option<Reduction<'_>>) {
    let (rank, n) = (args.rank as usize, args.n as usize);
    // SAFETY: the table has an address for each rank; words that are set before the first collective only; a live table.
    let (peers, layout, table, tag_limit) = unsafe {
        (
            std::slice::from_raw_parts(args.peers, n),
            call::layout(args.state, n),
            args.table.as_ref(),
            (*args.state).tag_limit,
        )
    };
    let Args { sends, receives, send_stride, recv_stride, bytes, .. } = *args;
    let pattern = Pattern { sends, receives, send_stride, recv_stride, bytes };
    let pieces = table.map_or(Pieces::Pattern(pattern), Pieces::Table);
    let private = args.flags & FLAG_PRIVATE != 0;
    // Where a call is, it is compared by everything that is alike on all ranks.
    let shape = Shape::new(args.count, 0, 0, args.kind, 0);
    let mut outputs = [(args.recv, 0); MAX_RANKS];
    let mut count = 0;
    for Piece { offset, bytes } in (0..n).filter_map(|peer| pieces.receive(peer)).filter(|piece| piece.bytes > 0) {
        outputs[count] = (args.recv.wrapping_add(offset as usize), bytes as usize);
        count += 1;
    }
    let outputs = &outputs[..count];
    let frame = Frame {
        state: args.state,
        host: args.host,
        inbox: peers[rank],
        outbox: peers[(rank + 1) % n],
        rank,
        n,
        wires: groups as usize,
        rounds: 0,
        shape,
        output: args.recv,
        output_bytes: 0,
        channels: Some(OfChannels { outputs, private }),
    };
    let wide = reduction.as_ref().is_some_and(|reduction| reduction.geometry.elem() == 8);
    let channels = Channels::of(&layout, transport, args.wires);
    debug_assert_eq!(channels.part, args.part, "the device's kernels are told what follows from the layout");
    let body = |call: &Call<'_>| {
        let channel = Channel {
            call,
            reduction,
            channels,
            layout,
            peers,
            rank,
            send: args.send,
            recv: args.recv,
            pieces,
            first: args.first,
            wide,
            lap: lap(tag_limit),
            // SAFETY: only the address is computed.
            state: unsafe { &raw mut (*args.state).channels },
            to_wake: Cell::new(0),
        };
        // SAFETY: by this function's contract.
        unsafe {
            match (transport, wide) {
                (Transport::Bulk, _) => channel.rounds::<0, 0>(),
                (Transport::Lines(LineForm::L8), _) => channel.rounds::<1, 1>(),
                (Transport::Lines(LineForm::L16), true) => channel.rounds::<3, 2>(),
                (Transport::Lines(LineForm::L16), false) => channel.rounds::<3, 3>(),
                (Transport::Lines(LineForm::L64), true) => channel.rounds::<15, 14>(),
                (Transport::Lines(LineForm::L64), false) => channel.rounds::<15, 15>(),
            }
        }
    };
    // SAFETY: by this function's contract.
    unsafe { call::run(&frame, body) };
}

impl Channel<'_> {
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, n) = (self.rank, self.peers.len());
        (1..n).map(move |distance| if rank + distance < n { rank + distance } else { rank + distance - n })
    }

    /// Wakes those that something was stored for.
    fn wake(&self) {
        let ranks = self.to_wake.replace(0);
        if ranks != 0 {
            let named = (0..self.peers.len()).filter(|peer| ranks >> peer & 1 != 0);
            self.call.waiter.notify(named.map(|peer| self.peers[peer]));
        }
    }

    /// Waits until `word` is what is expected. Who sleeps meanwhile may be the one that is waited for.
    fn wait(&self, word: impl Fn() -> u32, expected: u32) -> Result<(), GaveUp> {
        if word() == expected {
            return Ok(());
        }
        self.wake();
        self.call.waiter.until(word, expected)
    }

    fn word(&self, rank: usize, offset: usize) -> &AtomicU32 {
        // SAFETY: an aligned word of staging memory, which outlives the launch and is only accessed as an atomic.
        unsafe { AtomicU32::from_ptr(self.peers[rank].add(offset).cast()) }
    }

    /// The counter of the last message sent to a peer on a wire, or taken from it.
    fn sent(&self, peer: usize, wire: u32) -> *mut u32 {
        // SAFETY: only an address within the state is computed.
        unsafe { &raw mut (*self.state).sent[peer][wire as usize] }
    }

    fn taken(&self, peer: usize, wire: u32) -> *mut u32 {
        // SAFETY: as above.
        unsafe { &raw mut (*self.state).taken[peer][wire as usize] }
    }

    /// All rounds, on lines of `D` words besides the flag, `P` of which are used; in bulk where `D` is 0.
    unsafe fn rounds<const D: usize, const P: usize>(&self) -> Result<(), Failure> {
        let rounds_of = |piece: Option<Piece>| piece.map_or(0, |piece| self.channels.rounds(piece.bytes, self.wide));
        let rounds =
            self.others().map(|peer| rounds_of(self.pieces.send(peer)).max(rounds_of(self.pieces.receive(peer))));
        let rounds = rounds.max().unwrap_or(0);
        let failure = |gave_up, step, wire: u32, round: u64, expected| Failure {
            gave_up,
            wire: wire as usize,
            step,
            round: round as u32,
            expected,
        };
        for round in 0..rounds {
            for wire in 0..self.channels.wires {
                for peer in self.others() {
                    let Some(piece) = self.pieces.send(peer) else { continue };
                    let Some(range) = self.channels.message(piece.bytes, self.wide, round, wire) else { continue };
                    // SAFETY: the range lies in the input.
                    unsafe { self.put::<D, P>(peer, wire, piece.offset, range) }
                        .map_err(|(gave_up, expected)| failure(gave_up, AWAITS_CREDIT, wire, round, expected))?;
                }
            }
            if round == 0 {
                // SAFETY: by the contract of `run`.
                unsafe { self.keep_own() };
            }
            for wire in 0..self.channels.wires {
                // SAFETY: the pieces lie in the output.
                unsafe {
                    match &self.reduction {
                        Some(reduction) => self.reduce::<D, P>(reduction, round, wire),
                        None => self.take_all::<D, P>(round, wire),
                    }
                }
                .map_err(|(gave_up, expected)| failure(gave_up, AWAITS_MESSAGE, wire, round, expected))?;
            }
            self.wake();
        }
        if rounds == 0 {
            // SAFETY: by the contract of `run`.
            unsafe { self.keep_own() };
        }
        Ok(())
    }

    /// The own piece changes places, unless it is in place or an operand.
    unsafe fn keep_own(&self) {
        let (Some(from), Some(to)) = (self.pieces.send(self.rank), self.pieces.receive(self.rank)) else { return };
        let (source, target) =
            (self.send.wrapping_add(from.offset as usize), self.recv.wrapping_add(to.offset as usize));
        if self.reduction.is_none() && source != target.cast_const() {
            // SAFETY: the pieces lie in the buffers, which are apart where they aren't in place.
            unsafe { std::ptr::copy_nonoverlapping(source, target, to.bytes as usize) };
        }
    }

    /// Sends a message, once there is room for it.
    unsafe fn put<const D: usize, const P: usize>(
        &self,
        peer: usize,
        wire: u32,
        offset: u64,
        range: Range<u64>,
    ) -> Result<(), (GaveUp, u32)> {
        let counter = self.sent(peer, wire);
        // SAFETY: one call of a communicator at a time, which is this one.
        let (tag, needs) = next_sent(unsafe { *counter }, self.lap);
        let credit = self.word(self.rank, self.layout.channel_credit(peer, wire));
        if !hooks::on(self.call.hooks, hooks::NO_CREDIT) {
            let met = || match credit.load(Ordering::Acquire) {
                value if needs.is_met(value) => needs.word(),
                value => value,
            };
            self.wait(met, needs.word()).map_err(|gave_up| (gave_up, needs.word()))?;
        }
        let at = Place { peer, wire, tag };
        let from = self.send.wrapping_add((offset + range.start) as usize);
        let bytes = (range.end - range.start) as usize;
        // SAFETY: the range lies in the input, and the message in this rank's slot at the peer, which is free.
        unsafe {
            if D == 0 {
                self.put_bulk(at, from, bytes);
            } else {
                self.put_lines::<D, P>(at, from, bytes);
            }
            *counter = tag;
        }
        self.to_wake.set(self.to_wake.get() | 1 << peer);
        Ok(())
    }

    /// What a reduction multiplies by first, if it does.
    fn scales(&self) -> Option<&Fold> {
        let fold = self.reduction.as_ref()?.fold;
        matches!(fold.op, ReduceOp::PreMulSum(_)).then_some(fold)
    }

    unsafe fn put_bulk(&self, at: Place, from: *const u8, bytes: usize) {
        let slot = channel_slot(at.tag);
        let to = self.peers[at.peer].wrapping_add(self.layout.channel_slot(slot, self.rank, at.wire));
        let flag = self.word(at.peer, self.layout.channel_flag(slot, self.rank, at.wire));
        let first = hooks::on(self.call.hooks, hooks::FLAG_FIRST);
        if first {
            flag.store(at.tag, Ordering::Release);
            // Long enough for a receiver that shares the processor to come in between.
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        // SAFETY: passed on.
        unsafe {
            match self.scales() {
                Some(fold) => fold.reducer.contribute(to, from, bytes),
                None => to_peer(at.peer, from, to, bytes),
            }
        }
        if !first {
            flag.store(at.tag, Ordering::Release);
        }
    }

    unsafe fn put_lines<const D: usize, const P: usize>(&self, at: Place, from: *const u8, bytes: usize) {
        let offset = self.layout.channel_slot(channel_slot(at.tag), self.rank, at.wire);
        let first: *const Line<D> = self.peers[at.peer].wrapping_add(offset).cast();
        let mut scaled = [0u32; TILE_WORDS];
        let tile = TILE_WORDS / D * P * 4;
        let mut done = 0;
        loop {
            let here = (bytes - done).min(tile);
            let mut source = from.wrapping_add(done);
            if let Some(fold) = self.scales() {
                // SAFETY: a tile has room for what its lines carry.
                unsafe { fold.reducer.contribute(scaled.as_mut_ptr().cast(), source, here) };
                source = scaled.as_ptr().cast();
            }
            // A message without data is a line as well.
            for i in 0..here.div_ceil(P * 4).max(1) {
                let mut data = [0u32; D];
                let room = (here - i * P * 4).min(P * 4);
                // SAFETY: passed on; a line of the slot, by the plan.
                let line = unsafe {
                    if room > 0 {
                        std::ptr::copy_nonoverlapping(source.add(i * P * 4), data.as_mut_ptr().cast::<u8>(), room);
                    }
                    &*first.add(done / (P * 4) + i)
                };
                if hooks::on(self.call.hooks, hooks::FLAG_FIRST) {
                    line.put_flag_first(&data, at.tag, || std::thread::sleep(std::time::Duration::from_micros(50)));
                } else {
                    line.put(&data, at.tag);
                }
                if i == 0 && hooks::on(self.call.hooks, hooks::REST_IN_MESSAGE) {
                    self.to_wake.set(self.to_wake.get() | 1 << at.peer);
                    self.wake();
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            }
            done += here;
            if done == bytes {
                return;
            }
        }
    }

    /// The tag of the message that comes next from a peer.
    fn awaited(&self, peer: usize, wire: u32) -> Place {
        // SAFETY: one call of a communicator at a time, which is this one.
        let taken = unsafe { *self.taken(peer, wire) };
        Place { peer, wire, tag: taken + 1 }
    }

    /// Takes note that a message was taken, and tells its sender. At the end of a lap its flags are cleared first.
    fn took<const D: usize>(&self, at: Place) {
        let mut tag = at.tag;
        if tag == self.lap {
            tag = 0;
            if !hooks::on(self.call.hooks, hooks::NO_CLEARING) {
                self.clear::<D>(at);
            }
        }
        // SAFETY: as in `awaited`.
        unsafe { *self.taken(at.peer, at.wire) = tag };
        self.word(at.peer, self.layout.channel_credit(self.rank, at.wire)).store(tag, Ordering::Release);
        self.to_wake.set(self.to_wake.get() | 1 << at.peer);
    }

    fn clear<const D: usize>(&self, at: Place) {
        for slot in 0..CHANNEL_DEPTH {
            if D == 0 {
                self.word(self.rank, self.layout.channel_flag(slot, at.peer, at.wire)).store(0, Ordering::Relaxed);
                continue;
            }
            let first = self.layout.channel_slot(slot, at.peer, at.wire);
            for line in 0..self.channels.part as usize {
                self.word(self.rank, first + line * (D + 1) * 4 + D * 4).store(0, Ordering::Relaxed);
            }
        }
    }

    /// Takes what comes from all peers on a wire.
    unsafe fn take_all<const D: usize, const P: usize>(&self, round: u64, wire: u32) -> Result<(), (GaveUp, u32)> {
        for peer in self.others() {
            let Some(piece) = self.pieces.receive(peer) else { continue };
            let Some(range) = self.channels.message(piece.bytes, self.wide, round, wire) else { continue };
            let at = self.awaited(peer, wire);
            let to = self.recv.wrapping_add((piece.offset + range.start) as usize);
            let bytes = (range.end - range.start) as usize;
            if D == 0 {
                let from = self.arrived(at).map_err(|gave_up| (gave_up, at.tag))?;
                // SAFETY: the message has arrived, and the range lies in the output.
                unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            } else {
                let mut done = 0;
                loop {
                    let here = (bytes - done).min(P * 4);
                    // SAFETY: by the plan.
                    let data = unsafe { self.line::<D>(at, done / (P * 4)) }.map_err(|gave_up| (gave_up, at.tag))?;
                    if here > 0 {
                        // SAFETY: the range lies in the output, and a line has `P` words.
                        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr().cast::<u8>(), to.add(done), here) };
                    }
                    done += here;
                    if done == bytes {
                        break;
                    }
                }
            }
            self.took::<D>(at);
        }
        Ok(())
    }

    /// In bulk: waits for a message and says where it is.
    fn arrived(&self, at: Place) -> Result<*const u8, GaveUp> {
        let slot = channel_slot(at.tag);
        let flag = self.word(self.rank, self.layout.channel_flag(slot, at.peer, at.wire));
        self.wait(|| flag.load(Ordering::Acquire), at.tag)?;
        Ok(self.peers[self.rank].wrapping_add(self.layout.channel_slot(slot, at.peer, at.wire)).cast_const())
    }

    /// On lines: waits for a line of a message.
    unsafe fn line<const D: usize>(&self, at: Place, number: usize) -> Result<[u32; D], GaveUp> {
        let offset = self.layout.channel_slot(channel_slot(at.tag), at.peer, at.wire);
        let first: *const Line<D> = self.peers[self.rank].wrapping_add(offset).cast();
        // SAFETY: passed on: a line of the slot.
        let line = unsafe { &*first.add(number) };
        self.wait(|| line.flag(), at.tag)?;
        Ok(line.take())
    }

    /// Takes what comes from all peers on a wire and reduces it with the own piece to the output.
    unsafe fn reduce<const D: usize, const P: usize>(
        &self,
        reduction: &Reduction<'_>,
        round: u64,
        wire: u32,
    ) -> Result<(), (GaveUp, u32)> {
        // All pieces are alike; who reduces receives from all.
        let (Some(own), Some(piece)) = (self.pieces.send(self.rank), self.pieces.receive(self.rank)) else {
            return Ok(());
        };
        let Some(range) = self.channels.message(piece.bytes, self.wide, round, wire) else { return Ok(()) };
        let Reduction { fold, geometry } = reduction;
        let (n, size) = (self.peers.len(), geometry.elem());
        let own = self.send.wrapping_add(own.offset as usize);
        let to = self.recv.wrapping_add(piece.offset as usize);
        let mut tiles = [MaybeUninit::<[u32; TILE_WORDS]>::uninit(); MAX_RANKS];
        let mut sources = [std::ptr::null(); MAX_RANKS];
        let mut start = range.start;
        while start < range.end {
            let tile = if D == 0 { range.end - range.start } else { (TILE_WORDS / D.max(1) * P * 4) as u64 };
            let here = (range.end - start).min(tile) as usize;
            for peer in self.others() {
                let at = self.awaited(peer, wire);
                if D == 0 {
                    sources[peer] = self.arrived(at).map_err(|gave_up| (gave_up, at.tag))?;
                    continue;
                }
                let words = tiles[peer].as_mut_ptr().cast::<u32>();
                let before = (start - range.start) as usize / (P * 4);
                for i in 0..here.div_ceil(P * 4) {
                    // SAFETY: by the plan; a tile has room for what its lines carry, and P is at most D.
                    unsafe {
                        let data = self.line::<D>(at, before + i).map_err(|gave_up| (gave_up, at.tag))?;
                        std::ptr::copy_nonoverlapping(data.as_ptr(), words.add(i * P), P);
                    }
                }
                sources[peer] = words.cast::<u8>().cast_const();
            }
            sources[self.rank] = own.wrapping_add(start as usize);
            let first = self.first + start / size as u64;
            // SAFETY: all sources have arrived, and the elements lie in the output.
            unsafe {
                fold.run(
                    geometry,
                    (first, (here / size) as u64),
                    &sources[..n],
                    1 << self.rank,
                    Target::only(to.wrapping_add(start as usize)),
                );
            }
            start += here as u64;
        }
        for peer in self.others() {
            self.took::<D>(self.awaited(peer, wire));
        }
        Ok(())
    }
}
