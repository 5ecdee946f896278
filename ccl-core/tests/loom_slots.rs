//! The lines of `ccl_core::slot` under every order of memory that the language allows: two ranks, run by
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ccl-core --release --test loom_slots`
//!
//! The ring is written out here, from the library's own numbers; the lines are the library's own code.
#![cfg(loom)]
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::array::from_fn;
use std::sync::Arc;

use ccl_core::protocol::{TAG_LIMIT, received_chunk, sent_chunk, slots, steps, tag, tag_span};
use ccl_core::slot::Line;
use loom::thread;

const N: usize = 2;

/// The rule that a test breaks.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    FlagFirst,
    OneSlot,
    TagFromArgument,
    NoClearing,
    NoBarrier,
}

/// What a rank's previous rank writes to: a line for each slot, and the flags of a barrier (gather, release).
struct Staging<const D: usize> {
    slots: [Line<D>; slots(N)],
    barrier: [Line<1>; 2],
}

/// A rank's own words of `chunk`: other ones in each call, round, rank and place.
fn input<const D: usize>(call: usize, round: u32, rank: usize, chunk: usize) -> [u32; D] {
    from_fn(|word| (((call * 8 + round as usize) * N + rank) * N + chunk) as u32 * 1000 + word as u32)
}

fn sum<const D: usize>(a: [u32; D], b: [u32; D]) -> [u32; D] {
    from_fn(|word| a[word] + b[word])
}

fn wait<const D: usize>(line: &Line<D>, tag: u32) {
    while line.flag() != tag {
        thread::yield_now();
    }
}

/// All calls of one rank, one line for each chunk: what a work-item does.
fn rank<const D: usize>(rank: usize, all: &[Staging<D>; N], rounds: &[u32], limit: u32, broken: Broken) {
    let (own, next) = (&all[rank], &all[(rank + 1) % N]);
    let slot = |step: usize| if broken == Broken::OneSlot { 0 } else { step };
    let (mut base, mut wraps) = (0, 0);
    for (call, &rounds) in rounds.iter().enumerate() {
        let span = tag_span(base, rounds, limit);
        if span.wraps {
            wraps += 1;
            wrap(rank, own, next, wraps, broken);
        }
        for round in 0..rounds {
            // One slot gets a tag of its own for each step, or equal tags alone would give it away.
            let tag = |step: usize| match broken {
                Broken::OneSlot => tag(span.base, round) * steps(N) as u32 + step as u32,
                _ => tag(span.base, round),
            };
            for position in 0..=steps(N) {
                let chunk = sent_chunk(N, rank, position);
                let mut value = input(call, round, rank, chunk);
                if position > 0 {
                    assert_eq!(chunk, received_chunk(N, rank, position - 1));
                    let line = &own.slots[slot(position - 1)];
                    wait(line, tag(position - 1));
                    let arrived = line.take();
                    value = if position < N { sum(arrived, value) } else { arrived };
                }
                if position >= N - 1 {
                    let meant = sum(input(call, round, 0, chunk), input(call, round, 1, chunk));
                    assert_eq!(value, meant, "not the sum of this call");
                }
                if position < steps(N) {
                    let line = &next.slots[slot(position)];
                    match broken {
                        Broken::FlagFirst => line.put_flag_first(&value, tag(position), || ()),
                        _ => line.put(&value, tag(position)),
                    }
                }
            }
        }
        base = if broken == Broken::TagFromArgument { base } else { span.next };
    }
}

/// The tags begin anew: clear the own flags, then wait until the other rank has done so too.
fn wrap<const D: usize>(rank: usize, own: &Staging<D>, next: &Staging<D>, number: u32, broken: Broken) {
    if broken != Broken::NoClearing {
        own.slots.iter().for_each(Line::clear);
    }
    if broken == Broken::NoBarrier {
        return;
    }
    let [gather, release] = [0, 1];
    if rank == 0 {
        next.barrier[gather].put(&[0], number);
        wait(&own.barrier[gather], number);
        next.barrier[release].put(&[0], number);
    } else {
        wait(&own.barrier[gather], number);
        next.barrier[gather].put(&[0], number);
        wait(&own.barrier[release], number);
    }
}

/// Runs calls of the given rounds on two ranks in every order, up to `preemptions` involuntary switches.
fn run<const D: usize>(rounds: &'static [u32], limit: u32, preemptions: Option<usize>, broken: Broken) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let staging = || Staging { slots: from_fn(|_| Line::<D>::default()), barrier: from_fn(|_| Line::default()) };
        let all = Arc::new([staging(), staging()]);
        let other = Arc::clone(&all);
        let other = thread::spawn(move || rank(1, &other, rounds, limit, broken));
        rank(0, &all, rounds, limit, broken);
        other.join().unwrap();
    });
}

#[test]
fn three_calls() {
    run::<1>(&[1, 1, 1], TAG_LIMIT, Some(4), Broken::Nothing);
}

#[test]
fn one_call_without_a_bound() {
    run::<1>(&[1], TAG_LIMIT, None, Broken::Nothing);
}

#[test]
fn three_calls_of_wide_lines() {
    run::<3>(&[1, 1, 1], TAG_LIMIT, Some(3), Broken::Nothing);
}

#[test]
fn a_call_of_two_rounds_between_others() {
    run::<1>(&[1, 2, 1], TAG_LIMIT, Some(3), Broken::Nothing);
}

#[test]
fn tags_begin_anew() {
    run::<1>(&[1, 1, 1], 1, Some(3), Broken::Nothing);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn flag_first_is_found() {
    run::<3>(&[1, 1], TAG_LIMIT, Some(3), Broken::FlagFirst);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn one_slot_is_found() {
    run::<3>(&[1, 1], TAG_LIMIT, Some(3), Broken::OneSlot);
}

#[test]
#[should_panic(expected = "not the sum of this call")]
fn a_tag_from_an_argument_is_found() {
    run::<3>(&[1, 1], TAG_LIMIT, Some(3), Broken::TagFromArgument);
}

#[test]
#[should_panic(expected = "not the sum of this call")]
fn tags_that_begin_anew_without_clearing_are_found() {
    run::<3>(&[1, 1], 1, Some(3), Broken::NoClearing);
}

#[test]
// The other rank clears the message away, and this wait never ends.
#[should_panic(expected = "exceeded maximum number of branches")]
fn a_clearing_without_a_barrier_is_found() {
    run::<3>(&[1, 1], 1, Some(3), Broken::NoBarrier);
}
