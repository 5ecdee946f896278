//! One-shot and mesh in bulk: data by plain stores into a slot of the receiver's, then one flag with release. Only where
//! memory is a processor's, whose stores become visible in their order.

use super::call::Failure;
use super::copy;
use super::push::Push;
use super::reduce::Target;
use super::wait::GaveUp;
use crate::hooks;
use ccl_core::plan::push::{BulkPlace, Mode, Part, Phase};
use ccl_core::protocol::{MAX_RANKS, Region, generation};
use std::sync::atomic::{AtomicU32, Ordering};

/// What is reduced before it is sent on: it is still in the nearest cache then.
const PIECE_BYTES: usize = 8192;

/// All rounds.
///
/// # Safety
/// As for [`super::push::run`].
pub(super) unsafe fn rounds(push: &Push<'_>) -> Result<(), Failure> {
    let plan = push.plan;
    let one_shot = plan.mode == Mode::OneShot;
    for round in 0..plan.rounds {
        let tag = push.call.tag(round);
        let part = |owner: usize, wire: u32| plan.elements(round, owner, wire);
        for wire in 0..plan.wires {
            for peer in push.others() {
                let Some(part @ Part::Elements { first, elements }) = part(peer, wire) else { continue };
                let to = place(push, tag, push.rank, peer, wire);
                let (offset, bytes) = (first as usize * push.size, elements as usize * push.size);
                // SAFETY: the elements lie in the input, and by the plan in this rank's slot at the peer.
                unsafe {
                    let data = || push.fold.reducer.contribute(to, push.send.add(offset), bytes);
                    publish(push, peer, Region::Input, tag, wire, data);
                }
                push.trace(round, Phase::Send, wire, peer, part);
            }
        }
        push.notify();
        for wire in 0..plan.wires {
            let Some(part @ Part::Elements { first, elements }) = part(push.rank, wire) else { continue };
            // SAFETY: by the plan.
            unsafe { reduce(push, tag, wire, first, elements) }
                .map_err(|gave_up| Push::failure(gave_up, Phase::Reduce, wire, round, tag))?;
            push.trace(round, Phase::Reduce, wire, push.rank, part);
        }
        if one_shot {
            continue;
        }
        push.notify();
        for wire in 0..plan.wires {
            for peer in push.others() {
                let Some(part @ Part::Elements { first, elements }) = part(peer, wire) else { continue };
                wait(push, Region::Result, tag, peer, wire)
                    .map_err(|gave_up| Push::failure(gave_up, Phase::Gather, wire, round, tag))?;
                let from = place(push, tag, push.rank, peer, wire);
                let (offset, bytes) = (first as usize * push.size, elements as usize * push.size);
                // SAFETY: the peer's result has arrived, and the elements lie in the output.
                unsafe { copy::to_own(from, push.recv.add(offset), bytes, push.past_caches()) };
                push.trace(round, Phase::Gather, wire, peer, part);
            }
        }
    }
    Ok(())
}

/// Waits for all peers' elements, reduces them with the own to the output, and sends the result on where it is a mesh.
unsafe fn reduce(push: &Push<'_>, tag: u32, wire: u32, first: u64, elements: u64) -> Result<(), GaveUp> {
    let (n, size) = (push.plan.n, push.size);
    let mut sources = [std::ptr::null(); MAX_RANKS];
    sources[push.rank] = push.send.wrapping_add(first as usize * size);
    for peer in push.others() {
        wait(push, Region::Input, tag, peer, wire)?;
        sources[peer] = place(push, tag, peer, push.rank, wire).cast_const();
    }
    let to = Target { out_past: push.past_caches(), ..Target::only(push.recv.wrapping_add(first as usize * size)) };
    let raw = 1 << push.rank;
    if push.plan.mode == Mode::OneShot {
        // SAFETY: all sources have arrived, and the elements lie in the output.
        unsafe { push.fold.run(&push.plan.geometry, (first, elements), &sources[..n], raw, to) };
        return Ok(());
    }
    if n == 2 {
        let peer = 1 - push.rank;
        let to = Target { also: place(push, tag, peer, push.rank, wire), ..to };
        // SAFETY: both sources have arrived; the elements lie in the output, and the result goes where the peer's input is.
        unsafe { push.fold.run(&push.plan.geometry, (first, elements), &sources[..n], raw, to) };
        publish(push, peer, Region::Result, tag, wire, || ());
        return Ok(());
    }
    let piece = (PIECE_BYTES / size) as u64;
    let mut done = 0;
    while done < elements {
        let count = piece.min(elements - done);
        let offset = done as usize * size;
        let mut here = [std::ptr::null(); MAX_RANKS];
        here[..n].iter_mut().zip(&sources).for_each(|(here, source)| *here = source.wrapping_add(offset));
        // SAFETY: part of what has arrived, of the output, and of the peers' places, which are read just before.
        unsafe {
            let to = Target::only(to.out.add(offset));
            push.fold.run(&push.plan.geometry, (first + done, count), &here[..n], raw, to);
            for peer in push.others() {
                let back = place(push, tag, peer, push.rank, wire).add(offset);
                copy::plain(to.out, back, count as usize * size);
            }
        }
        done += count;
    }
    for peer in push.others() {
        publish(push, peer, Region::Result, tag, wire, || ());
    }
    Ok(())
}

/// Where `sender`'s input for `receiver` lies, and a mesh's result on its way back.
fn place(push: &Push<'_>, tag: u32, sender: usize, receiver: usize, wire: u32) -> *mut u8 {
    let turn = if hooks::on(push.call.hooks, hooks::BULK_STAYS) { 0 } else { push.slot_tag(tag) };
    let BulkPlace { holder, offset } = push.plan.bulk_place_from(push.bulk.turns, turn, sender, receiver, wire);
    push.peers[holder].wrapping_add(offset)
}

fn flag<'a>(push: &Push<'a>, receiver: usize, region: Region, tag: u32, sender: usize, wire: u32) -> &'a AtomicU32 {
    let (layout, generation) = (&push.plan.layout, generation(push.slot_tag(tag)));
    let offset = layout.bulk_flag_from(push.bulk.flags, region, generation, sender, wire);
    // SAFETY: an aligned word of staging memory, which outlives the launch and is only accessed as an atomic.
    unsafe { AtomicU32::from_ptr(push.peers[receiver].add(offset).cast()) }
}

fn wait(push: &Push<'_>, region: Region, tag: u32, sender: usize, wire: u32) -> Result<(), GaveUp> {
    let flag = flag(push, push.rank, region, tag, sender, wire);
    push.call.waiter.until(|| flag.load(Ordering::Acquire), tag)
}

/// Stores data, then the flag.
fn publish(push: &Push<'_>, peer: usize, region: Region, tag: u32, wire: u32, data: impl FnOnce()) {
    let flag = flag(push, peer, region, tag, push.rank, wire);
    if hooks::on(push.call.hooks, hooks::FLAG_FIRST) {
        flag.store(tag, Ordering::Release);
        // Long enough for a receiver that shares the processor to come in between.
        std::thread::sleep(std::time::Duration::from_micros(50));
        data();
        return;
    }
    data();
    flag.store(tag, Ordering::Release);
}
