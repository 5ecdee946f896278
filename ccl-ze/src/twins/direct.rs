//! The direct all-reduce on the CPU: each rank reduces its share straight from everybody's registered input and stores
//! the result into everybody's output. Only flags go through staging memory.

use super::call::{self, Call, Frame};
use super::copy;
use super::fold::Fold;
use super::push::Push;
use super::reduce::Target;
use ccl_core::plan::geometry::Geometry;
use ccl_core::plan::push::{Mode, Part, Phase, PushPlan, Transport};
use ccl_core::protocol::{CommState, DirectFlag, HostBlock, MAX_RANKS, Shape};
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernel's arguments, in order (`ccl_core::plan::push::DIRECT_ARGS`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Args {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    pub(super) state: *mut CommState,
    pub(super) host: *mut HostBlock,
    pub(super) peers: *const *mut u8,
    /// Where all ranks' registered buffers of the input begin, then those of the output. What the own buffers' distances
    /// from there are, everybody's are.
    pub(super) buffers: *const *mut u8,
    pub(super) count: u64,
    pub(super) period: u64,
    pub(super) factor: u64,
    pub(super) kind: u32,
    pub(super) rank: u32,
    pub(super) n: u32,
}

/// What is reduced before it is copied to the others' outputs: it is still in the nearest cache then.
const PIECE_BYTES: usize = 8192;

/// Runs the kernel.
///
/// # Safety
/// `args` are those of a launch on an active communicator on coherent memory: all ranks' buffers of `count` elements, all
/// ranks' staging memory.
pub(super) unsafe fn run(args: &Args, geometry: Geometry, wires: u32, fold: &Fold) {
    let (rank, n) = (args.rank as usize, args.n as usize);
    // SAFETY: the tables have an address for each rank, or two.
    let (peers, inputs, outputs) = unsafe {
        (
            std::slice::from_raw_parts(args.peers, n),
            std::slice::from_raw_parts(args.buffers, n),
            std::slice::from_raw_parts(args.buffers.add(n), n),
        )
    };
    let (mut sources, mut targets) = ([std::ptr::null_mut::<u8>(); MAX_RANKS], [std::ptr::null_mut::<u8>(); MAX_RANKS]);
    let (input, output) = (args.send.addr() - inputs[rank].addr(), args.recv.addr() - outputs[rank].addr());
    sources.iter_mut().zip(inputs).for_each(|(source, begin)| *source = begin.wrapping_add(input));
    targets.iter_mut().zip(outputs).for_each(|(target, begin)| *target = begin.wrapping_add(output));
    // SAFETY: words that are set before the first collective only.
    let layout = unsafe { call::layout(args.state, n) };
    let (dtype, op, order) = (fold.dtype, fold.op, fold.order);
    let (mode, transport) = (Mode::Direct, Transport::Bulk);
    let plan = PushPlan { n, dtype, op, order, geometry, mode, transport, wires, part: 0, rounds: 1, layout };
    let size = geometry.elem();
    // Ranks whose buffers are at different distances, or registered by other numbers (which come as the factor that
    // direct calls don't take), would take each other's wrong elements.
    let distances = (input as u64) << 20 ^ output as u64;
    let shape = Shape::new(args.count, args.period, args.factor ^ distances, args.kind, 1);
    let frame = Frame::of_push(&plan, (args.state, args.host), (peers, rank), shape, args.recv);
    let body = |call: &Call<'_>| {
        let bulk = plan.layout.bulk_offsets();
        let push = Push { plan: &plan, call, fold, peers, rank, send: args.send, recv: args.recv, size, bulk };
        let tag = call.tag(0);
        let flag = |receiver: usize, which, sender, wire| {
            let offset = layout.direct_flag(which, sender, wire);
            // SAFETY: an aligned word of staging memory, which is only accessed as an atomic.
            unsafe { AtomicU32::from_ptr(peers[receiver].add(offset).cast()) }
        };
        let tell = |which, phase| {
            for wire in 0..wires {
                for peer in push.others() {
                    flag(peer, which, rank, wire).store(tag, Ordering::Release);
                    if phase == Phase::Send
                        && push.traces()
                        && let Some(part) = plan.elements(0, rank, wire)
                    {
                        push.trace(0, phase, wire, peer, part);
                    }
                }
            }
            push.notify();
        };
        let hear = |which, wire, phase| {
            push.others().try_for_each(|peer| {
                let word = flag(rank, which, peer, wire);
                call.waiter
                    .until(|| word.load(Ordering::Acquire), tag)
                    .map_err(|gave_up| Push::failure(gave_up, phase, wire, 0, tag))
            })
        };
        tell(DirectFlag::Ready, Phase::Send);
        for wire in 0..wires {
            hear(DirectFlag::Ready, wire, Phase::Reduce)?;
            let Some(part @ Part::Elements { first, elements }) = plan.elements(0, rank, wire) else { continue };
            // SAFETY: all ranks' buffers are ready, and this share is this rank's alone.
            unsafe { share(&push, &sources, &targets, first, elements) };
            push.trace(0, Phase::Reduce, wire, rank, part);
        }
        tell(DirectFlag::Done, Phase::Reduce);
        for wire in 0..wires {
            hear(DirectFlag::Done, wire, Phase::Gather)?;
            for peer in push.others().filter(|_| push.traces()) {
                if let Some(part) = plan.elements(0, peer, wire) {
                    push.trace(0, Phase::Gather, wire, peer, part);
                }
            }
        }
        Ok(())
    };
    // SAFETY: by this function's contract.
    unsafe { call::run(&frame, body) };
}

/// Reduces elements of all inputs and stores the result into all outputs.
unsafe fn share(push: &Push<'_>, inputs: &[*mut u8], outputs: &[*mut u8], first: u64, elements: u64) {
    let (n, size) = (push.plan.n, push.size);
    let piece = (PIECE_BYTES / size) as u64;
    let mut done = 0;
    while done < elements {
        let count = piece.min(elements - done);
        let offset = (first + done) as usize * size;
        let mut sources = [std::ptr::null(); MAX_RANKS];
        sources[..n]
            .iter_mut()
            .zip(inputs)
            .for_each(|(source, input)| *source = input.wrapping_add(offset).cast_const());
        let (result, bytes) = (push.recv.wrapping_add(offset), count as usize * size);
        let run = |to: Target| {
            let raw = u32::MAX >> (32 - n);
            // SAFETY: the elements lie in every buffer.
            unsafe { push.fold.run(&push.plan.geometry, (first + done, count), &sources[..n], raw, to) };
        };
        let out_past = push.past_caches();
        if n == 2
            && let Some(also_past) = copy::way(1 - push.rank, bytes)
        {
            // Of one block of two ranks' elements nothing is read once it is stored: both outputs at once.
            run(Target {
                out: result,
                also: outputs[1 - push.rank].wrapping_add(offset),
                out_past,
                also_past: also_past | out_past,
            });
        } else {
            run(Target::only(result));
            for peer in push.others() {
                // SAFETY: the elements lie in every buffer.
                unsafe { copy::to_peer(peer, result, outputs[peer].add(offset), bytes) };
            }
        }
        done += count;
    }
}
