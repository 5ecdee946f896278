//! The life of a collective on the CPU, whatever its algorithm: busy words, entry, poison, clearing, the counters that
//! are left behind, and failure (docs/protocol.md, "A work-group, from entry to exit").
//!
//! One thread plays all work-groups of a launch. An algorithm keeps the protocol's order: round by round, within it
//! position by position, and all wires at each.

use super::wait::{GaveUp, Waiter};
use crate::hooks;
use ccl_core::plan::push::PushPlan;
use ccl_core::protocol::{
    CommState, FAILED_FILL, FLAG_STRIDE, Fault, HostBlock, Layout, LineForm, STAGING_HEAD_BYTES, Shape, StagingHead,
    tag, tag_span,
};
use ccl_core::slot::Line;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// What every collective's launch says, whatever its algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) state: *mut CommState,
    pub(super) host: *mut HostBlock,
    /// Own staging memory.
    pub(super) inbox: *mut u8,
    /// The next rank's.
    pub(super) outbox: *mut u8,
    pub(super) rank: usize,
    pub(super) n: usize,
    pub(super) wires: usize,
    pub(super) rounds: u32,
    /// What the call is, for messages and for the comparison between ranks.
    pub(super) shape: Shape,
    /// Where the result goes; filled if there is none.
    pub(super) output: *mut u8,
    pub(super) output_bytes: usize,
    /// Of a call through channels.
    pub(super) channels: Option<OfChannels<'a>>,
}

/// What is particular to a call through channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfChannels<'a> {
    /// What is written of the output, where it isn't a beginning of it.
    pub(super) outputs: &'a [(*mut u8, usize)],
    /// Whether only some ranks take part: it is no collective, and not counted as one.
    pub(super) private: bool,
}

impl Frame<'_> {
    /// The frame of a push plan, whose ranks all know one another's staging memory, `peers`.
    pub(super) fn of_push(
        plan: &PushPlan,
        (state, host): (*mut CommState, *mut HostBlock),
        (peers, rank): (&[*mut u8], usize),
        shape: Shape,
        output: *mut u8,
    ) -> Frame<'static> {
        let n = plan.n;
        Frame {
            state,
            host,
            inbox: peers[rank],
            outbox: peers[(rank + 1) % n],
            rank,
            n,
            wires: plan.wires as usize,
            rounds: plan.rounds,
            shape,
            output,
            output_bytes: plan.geometry.count() as usize * plan.geometry.elem(),
            channels: None,
        }
    }
}

/// Where everything lies in the communicator's staging memory.
///
/// # Safety
/// `state` is an active communicator's.
pub(super) unsafe fn layout(state: *const CommState, n: usize) -> Layout {
    // SAFETY: words that are set before the first collective only.
    let (granule, slot_tiles, push_tiles, bulk_bytes) =
        unsafe { ((*state).granule, (*state).slot_tiles, (*state).push_tiles, (*state).bulk_bytes) };
    let form = LineForm::from_granule(granule as usize).unwrap_or(LineForm::L8);
    Layout { n, form, slot_tiles, push_tiles, bulk_bytes }
}

/// Where a step failed.
pub(super) struct Failure {
    pub(super) gave_up: GaveUp,
    pub(super) wire: usize,
    pub(super) step: usize,
    pub(super) round: u32,
    pub(super) expected: u32,
}

/// A collective that has begun and may send and receive.
pub(super) struct Call<'a> {
    pub(super) waiter: Waiter<'a>,
    /// Rules that a test has switched off.
    pub(super) hooks: u32,
    base: u32,
}

impl Call<'_> {
    /// The tag of a round.
    pub(super) fn tag(&self, round: u32) -> u32 {
        tag(self.base, round)
    }
}

/// Runs a collective from entry to exit; `body` is all its rounds. It isn't called where the communicator is poisoned.
///
/// # Safety
/// `frame` is that of a launch on an active communicator: its own memory, staging memory of the agreed size, the next
/// rank's mapped, an output of that many bytes.
pub(super) unsafe fn run(frame: &Frame<'_>, body: impl FnOnce(&Call<'_>) -> Result<(), Failure>) {
    let state = frame.state;
    // Not a reference yet: should another collective run at the same time, the rest of the state is its own.
    // SAFETY: only the address of the words is computed.
    let busy = unsafe { (&raw mut (*state).busy).cast::<u32>() };
    // SAFETY: a word that is set before the first collective only.
    let hooks = unsafe { (*state).hooks };
    // SAFETY: `wires` is at most `MAX_WIRES`, the number of these words, which are only accessed as atomics.
    let busy = |wire: usize| unsafe { AtomicU32::from_ptr(busy.add(wire)) };
    let taken = (0..frame.wires).filter(|&wire| busy(wire).swap(1, Ordering::AcqRel) != 0).count();
    if taken > 0 && !hooks::on(hooks, hooks::IGNORE_BUSY) {
        let gave_up = GaveUp { fault: Fault::Overlap, seen: taken as u32 };
        // The busy words and the counters are the other collective's.
        // SAFETY: passed on.
        unsafe { fail(frame, &Failure { gave_up, wire: 0, step: 0, round: 0, expected: 0 }) };
        return;
    }
    // SAFETY: the busy words say that no other collective of this communicator runs, so nobody else looks at these.
    let (calls, base, limit, wraps) = unsafe { ((*state).calls, (*state).base, (*state).tag_limit, (*state).wraps) };
    // SAFETY: a word that any kernel may set; accessed as an atomic only.
    let poisoned = unsafe { AtomicU32::from_ptr(&raw mut (*state).poisoned) };
    // SAFETY: the host block lives as long as the communicator; its words are accessed as atomics while kernels run.
    let (entered, done) = unsafe {
        (AtomicU64::from_ptr(&raw mut (*frame.host).entered), AtomicU64::from_ptr(&raw mut (*frame.host).done))
    };
    let number = calls + 1;
    let private = frame.channels.is_some_and(|of| of.private);
    if private {
        // SAFETY: words of the state and the host block, as above.
        unsafe {
            let count = &mut (*state).channels.private_calls;
            *count += 1;
            AtomicU64::from_ptr(&raw mut (*frame.host).private_entered).store(*count, Ordering::Relaxed);
        }
    }
    let sound = poisoned.load(Ordering::Relaxed) == 0;
    if sound {
        // SAFETY: the host block lives as long as the communicator.
        unsafe { tell_shape(frame, number) };
    }
    entered.store(number, Ordering::Release);

    let span = tag_span(base, frame.rounds, limit);
    // A mutation: what a kernel would do whose base comes from an argument that a recording froze.
    let base = if !hooks::on(hooks, hooks::FROZEN_BASE) { span.base } else { 0 };
    if !sound {
        // SAFETY: the output is the launch's.
        unsafe { fill_failed(frame) };
    } else {
        // SAFETY: the pointers are the communicator's.
        let waiter = unsafe { Waiter::new(state, frame.host, frame.inbox.cast()) };
        let call = Call { waiter, hooks, base };
        // SAFETY: by this function's contract.
        let mut outcome = if private { Ok(()) } else { unsafe { compare(frame, &call.waiter, number) } };
        if outcome.is_ok() && span.wraps && !hooks::on(hooks, hooks::NO_CLEARING) {
            // SAFETY: by this function's contract.
            outcome = unsafe { clear(frame, &call.waiter, wraps + 1) };
        }
        if let Err(failure) = outcome.and_then(|()| body(&call)) {
            // SAFETY: passed on.
            unsafe { fail(frame, &failure) };
        }
    }
    // The last work-group to leave.
    let finished = if private { calls } else { number };
    // SAFETY: as where they were read.
    unsafe {
        (*state).base = span.next;
        (*state).wraps = wraps + u32::from(span.wraps);
        (*state).calls = finished;
    }
    for wire in 0..frame.wires {
        busy(wire).store(0, Ordering::Release);
    }
    done.store(finished, Ordering::Release);
    if private {
        // It had the number of the collective that is next.
        entered.store(finished, Ordering::Release);
    }
}

/// Says what call `number` is. A poisoned communicator keeps what it said of the call that failed.
unsafe fn tell_shape(frame: &Frame<'_>, number: u64) {
    let Shape { count, kind, fingerprint } = frame.shape;
    // SAFETY: words of the host block, which are accessed as atomics only.
    unsafe {
        let call = AtomicU64::from_ptr(&raw mut (*frame.host).shape_call);
        call.store(0, Ordering::Relaxed);
        // A reader that sees a new word sees the zero as well.
        fence(Ordering::Release);
        AtomicU64::from_ptr(&raw mut (*frame.host).shape_count).store(count, Ordering::Relaxed);
        AtomicU32::from_ptr(&raw mut (*frame.host).shape_kind).store(kind, Ordering::Relaxed);
        AtomicU32::from_ptr(&raw mut (*frame.host).shape_fingerprint).store(fingerprint, Ordering::Relaxed);
        call.store(number, Ordering::Release);
    }
}

/// In checked mode: sends the next rank what this call is, and compares with what the previous rank's is.
unsafe fn compare(frame: &Frame<'_>, waiter: &Waiter<'_>, number: u64) -> Result<(), Failure> {
    // SAFETY: a word that is set before the first collective only.
    if unsafe { (*frame.state).check } == 0 || frame.n < 2 {
        return Ok(());
    }
    let line = |staging: *mut u8| {
        // SAFETY: part of the staging memory's head, aligned for a line; only ever accessed as one.
        unsafe { &*(&raw const (*staging.cast::<StagingHead>()).check).cast::<Line<1>>() }
    };
    let (tag, own) = (number as u32, frame.shape.fingerprint);
    line(frame.outbox).put(&[own], tag);
    waiter.notify([frame.outbox]);
    let incoming = line(frame.inbox);
    let failure = |gave_up| Failure { gave_up, wire: 0, step: 0, round: 0, expected: own };
    waiter.until(|| incoming.flag(), tag).map_err(failure)?;
    match incoming.take() {
        [other] if other == own => {}
        [other] => return Err(failure(GaveUp { fault: Fault::Mismatch, seen: other })),
    }
    if frame.channels.is_none() {
        return Ok(());
    }
    // Who ends a call through channels hasn't heard of everyone; but the next line overwrites this one.
    // SAFETY: by the contract of `run`.
    unsafe { pass_barrier(frame, waiter, 0, COMPARED, tag) }.map_err(|gave_up| Failure {
        gave_up,
        wire: 0,
        step: COMPARED,
        round: 0,
        expected: tag,
    })
}

/// The barrier, of those that a wire has words for, behind a comparison; 0 and 1 are a clearing's.
const COMPARED: usize = 2;

/// Poisons the communicator, says why, and makes the output unmistakable.
unsafe fn fail(frame: &Frame<'_>, failure: &Failure) {
    let code = failure.gave_up.fault as u32;
    // SAFETY: state and host block are the communicator's; the poison is sticky and the same word for whoever writes it;
    // the fault word is written last and only once.
    unsafe {
        AtomicU32::from_ptr(&raw mut (*frame.state).poisoned).store(code, Ordering::Relaxed);
        let host = frame.host;
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
        fill_failed(frame);
    }
}

/// Zeros would be plausible; 0xFF is NaN in every float type.
unsafe fn fill_failed(frame: &Frame<'_>) {
    // SAFETY: a word that is set before the first collective only.
    if hooks::on(unsafe { (*frame.state).hooks }, hooks::NO_FILL) {
        return;
    }
    let whole = [(frame.output, frame.output_bytes)];
    for &(output, bytes) in frame.channels.map_or(&whole[..], |of| of.outputs) {
        // SAFETY: the output holds this many bytes.
        unsafe { output.write_bytes(FAILED_FILL, bytes) };
    }
}

/// Starts the tag range anew: barrier, clear own flags, barrier.
unsafe fn clear(frame: &Frame<'_>, waiter: &Waiter<'_>, number: u32) -> Result<(), Failure> {
    for barrier in 0..2 {
        for wire in 0..frame.wires {
            // SAFETY: by the contract of `run`.
            unsafe { pass_barrier(frame, waiter, wire, barrier, number) }.map_err(|gave_up| Failure {
                gave_up,
                wire,
                step: barrier,
                round: 0,
                expected: number,
            })?;
        }
        if barrier == 0 {
            // One thread plays all work-groups: their shares and the remainder are all there is.
            // SAFETY: the state is the communicator's.
            let layout = unsafe { layout(frame.state, frame.n) };
            let lines =
                (STAGING_HEAD_BYTES + layout.form.granule() - 4..layout.flags_offset()).step_by(layout.form.granule());
            let flags = (0..layout.flags()).map(|flag| layout.flags_offset() + flag * FLAG_STRIDE);
            for offset in lines.chain(flags) {
                // SAFETY: a word inside the staging memory, which is only accessed as an atomic.
                unsafe { AtomicU32::from_ptr(frame.inbox.add(offset).cast()) }.store(0, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// A token goes round twice: when it is back at rank 0 all have come, then it lets them go.
unsafe fn pass_barrier(
    frame: &Frame<'_>,
    waiter: &Waiter<'_>,
    wire: usize,
    barrier: usize,
    number: u32,
) -> Result<(), GaveUp> {
    let flag = |staging: *mut u8, lap: usize| {
        let head = staging.cast::<StagingHead>();
        // SAFETY: the head is part of the staging memory; the barrier words are only accessed as atomics.
        unsafe { AtomicU32::from_ptr((&raw mut (*head).barrier).cast::<u32>().add(wire * 16 + barrier * 2 + lap)) }
    };
    let wait = |lap| {
        let word = flag(frame.inbox, lap);
        waiter.until(|| word.load(Ordering::Acquire), number)
    };
    let pass = |lap| {
        flag(frame.outbox, lap).store(number, Ordering::Release);
        waiter.notify([frame.outbox]);
    };
    if frame.rank == 0 {
        pass(0);
        wait(0)?;
        pass(1);
        return Ok(());
    }
    wait(0)?;
    pass(0);
    wait(1)?;
    if frame.rank + 1 < frame.n {
        pass(1);
    }
    Ok(())
}
