//! Bulk slots of `ccl_core::slot` under every order of memory that the language allows: one-shots of two ranks, which
//! store by turns into two slots, run by
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ccl-core --release --test loom_bulk`
#![cfg(loom)]
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::array::from_fn;
use std::sync::Arc;

use ccl_core::protocol::{GENERATIONS, TAG_LIMIT, generation, tag, tag_span};
use ccl_core::slot::{BulkFlag, BulkSlot};
use loom::thread;

const N: usize = 2;
const WORDS: usize = 2;

/// The rule that a test breaks.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    FlagFirst,
    NoRelease,
    OneGeneration,
    NoTurns,
}

/// A rank's staging memory: the slot that it shares with the other one, and its flags, one of each generation.
#[derive(Default)]
struct Staging {
    slot: BulkSlot<WORDS>,
    flags: [BulkFlag; GENERATIONS],
}

/// A rank's own words: other ones in each call, round and rank.
fn input(call: usize, round: u32, rank: usize) -> [u32; WORDS] {
    from_fn(|word| ((call * 8 + round as usize) * N + rank) as u32 * 1000 + word as u32)
}

/// All calls of one rank.
fn rank(rank: usize, all: &[Staging; N], rounds: &[u32], broken: Broken) {
    let other = (rank + 1) % N;
    let which = |tag: u32| if broken == Broken::OneGeneration { 0 } else { generation(tag) };
    let mut base = 0;
    for (call, &rounds) in rounds.iter().enumerate() {
        let span = tag_span(base, rounds, TAG_LIMIT);
        for round in 0..rounds {
            let tag = tag(span.base, round);
            let turn = if broken == Broken::NoTurns { 0 } else { which(tag) };
            let (to, from) = if turn == 0 { (other, rank) } else { (rank, other) };
            let (theirs, flag) = (&all[to].slot, &all[other].flags[which(tag)]);
            let data = input(call, round, rank);
            match broken {
                Broken::FlagFirst => theirs.put_flag_first(&data, flag, tag),
                Broken::NoRelease => theirs.put_without_release(&data, flag, tag),
                Broken::Nothing | Broken::OneGeneration | Broken::NoTurns => theirs.put(&data, flag, tag),
            }
            while all[rank].flags[which(tag)].seen() != tag {
                thread::yield_now();
            }
            assert_eq!(all[from].slot.take(), input(call, round, other), "not the message of this round");
        }
        base = span.next;
    }
}

/// Runs calls of the given rounds on two ranks in every order, up to `preemptions` involuntary switches.
fn run(rounds: &'static [u32], preemptions: Option<usize>, broken: Broken) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let all: Arc<[Staging; N]> = Arc::new(from_fn(|_| Staging::default()));
        let theirs = Arc::clone(&all);
        let other = thread::spawn(move || rank(1, &theirs, rounds, broken));
        rank(0, &all, rounds, broken);
        other.join().unwrap();
    });
}

#[test]
fn one_call_without_a_bound() {
    run(&[1], None, Broken::Nothing);
}

#[test]
fn calls_of_several_rounds() {
    run(&[1, 2, 1], Some(3), Broken::Nothing);
    run(&[4], Some(3), Broken::Nothing);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn flag_first_is_found() {
    run(&[1], Some(3), Broken::FlagFirst);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn a_flag_without_release_is_found() {
    run(&[1], Some(3), Broken::NoRelease);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn a_slot_without_turns_is_found() {
    run(&[1, 1], Some(3), Broken::NoTurns);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn one_generation_is_found() {
    run(&[1, 1], Some(3), Broken::OneGeneration);
}
