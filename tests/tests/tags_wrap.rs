//! The tag range is passed, many times over, and each of the rules that make that safe is missed when it is off.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{Bfloat16, Float32};
use ccl_core::comm::StartState;
use ccl_core::config::{Algorithm, Config, TransportChoice};
use ccl_core::protocol::{TAG_LIMIT, tag_span};
use ccl_tests::Group;
use ccl_tests::calls::{self, Call, Options, Overwrite, Route};
use ccl_tests::data::{self, word};
use ccl_tests::local::{self, Peer, sum};
use ccl_ze::{Communicator, hooks};
use std::time::Duration;

/// Tags of 8 bits.
const NARROW: u32 = 255;

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 5)
}

/// A tile or a page in a slot, so that a call of some size takes many rounds.
fn small_slots() -> Config {
    let timeout = Duration::from_secs(20);
    Config { staging_tiles: 1, push_tiles: 1, bulk_bytes: 4096, timeout, ..Config::default() }
}

fn by(allreduce: Algorithm, transport: TransportChoice) -> Config {
    Config { allreduce, transport, ..small_slots() }
}

fn mixed(calls: usize) -> Vec<Call> {
    let call = |i: usize| {
        let random = word(11, 0, i as u64) as usize;
        let most = match i % 20 {
            7 => 30_000,
            13 => 10_000,
            k if k % 4 == 0 => 4_000,
            _ => 300,
        };
        let dtype = if random.is_multiple_of(2) { Bfloat16 } else { Float32 };
        let route = [Route::Apart, Route::InPlace, Route::Shared][random / 2 % 3];
        Call::sum(dtype, 1 + random / 16 % most, route)
    };
    (0..calls).map(call).collect()
}

/// How often `calls` pass the end of the range.
fn wraps(comm: &Communicator, calls: &[Call], start: &StartState) -> u32 {
    let mut base = start.base;
    let mut wraps = 0;
    for call in calls {
        let span = tag_span(base, comm.plan(&sum(call.dtype, call.count)).unwrap().rounds(), start.tag_limit);
        base = span.next;
        wraps += u32::from(span.wraps);
    }
    wraps
}

fn run(comm: &Communicator, calls: &[Call]) -> ccl_core::Result<calls::Found> {
    let (stream, other) = (comm.stream(0)?, comm.stream(1)?);
    let rank = comm.rank();
    let mut before = |i: usize| {
        let random = word(12, rank, i as u64);
        if random.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(u64::from(random >> 8) % 300));
        }
    };
    calls::run(
        comm,
        &stream,
        &other,
        calls,
        Options { seed: 99, overwrite: Overwrite::OnCompletion, before: &mut before },
    )
}

#[test]
fn eight_bit_tags_go_through_many_wraps() {
    process("eight_bit_tags_go_through_many_wraps").run(|_| {
        let start = StartState { tag_limit: NARROW, ..StartState::default() };
        for n in 2..=5 {
            // By default what is short goes by one-shot on lines, what is longer by one-shot or a mesh in bulk.
            for (granule, config) in [
                (8, by(Algorithm::Ring, TransportChoice::Auto)),
                (64, by(Algorithm::Ring, TransportChoice::Auto)),
                (64, small_slots()),
                (16, by(Algorithm::Auto, TransportChoice::Lines)),
            ] {
                let calls = mixed(1_500);
                local::ranks(n, &Config { granule, ..config }, &start, |comm| {
                    assert!(wraps(&comm, &calls, &start) > 5, "too few wraps: {}", wraps(&comm, &calls, &start));
                    run(&comm, &calls).unwrap().assert_clean(&format!("rank {} of {n}", comm.rank()));
                });
            }
        }
    });
}

#[test]
fn the_real_range_is_passed_at_its_end() {
    process("the_real_range_is_passed_at_its_end").run(|_| {
        for n in [2, 3, 5] {
            for before in 0..4 {
                let start = StartState { base: TAG_LIMIT - before, ..StartState::default() };
                let calls = mixed(60);
                local::ranks(n, &small_slots(), &start, |comm| {
                    assert_eq!(wraps(&comm, &calls, &start), 1);
                    run(&comm, &calls).unwrap().assert_clean(&format!("rank {} of {n}", comm.rank()));
                });
            }
        }
    });
}

/// On two ranks: a call of two blocks, then `between` calls of one block, then the first again with other data, to
/// which rank 1 comes late. A call of one block has nothing of chunk 1, so nothing is stored to where rank 0 receives
/// that chunk's first hop; if the last call has the first one's tag, only a clearing keeps rank 0 from taking the old
/// line for the new. In a mesh it is the input of the chunk that rank 0 owns; in bulk, where owners' shares follow one
/// another, that of rank 1's share, and rank 0 is the late one. Of the early rank, then of the late one: whether all
/// results but the last were right, and whether the last was.
fn stale_line(config: &Config, start: &StartState, between: usize) -> Vec<(bool, bool)> {
    const TWO_BLOCKS: usize = 256;
    let late = usize::from(config.transport != TransportChoice::Bulk);
    let mut outcomes = local::ranks(2, config, start, |comm| {
        let rank = comm.rank();
        let mut peer = Peer::new(comm, TWO_BLOCKS * 2);
        let mut call = |seed: u64, count: usize| {
            let inputs: Vec<_> = (0..2).map(|r| data::ordinary(Bfloat16, seed, r, count)).collect();
            let got = peer.reduce(&sum(Bfloat16, count), &inputs[rank], false).unwrap();
            got == data::expected(Bfloat16, &inputs, None)
        };
        let mut right = call(0, TWO_BLOCKS);
        for seed in 1..=between as u64 {
            right &= call(seed, 1 + seed as usize % 128);
        }
        if rank == late {
            std::thread::sleep(Duration::from_millis(300));
        }
        (right, call(1000, TWO_BLOCKS))
    });
    outcomes.swap(1, late);
    outcomes
}

/// Ways on which a call of one block leaves out what one of two blocks stores.
fn ways() -> [Config; 3] {
    [
        by(Algorithm::Ring, TransportChoice::Auto),
        by(Algorithm::Mesh, TransportChoice::Lines),
        by(Algorithm::Mesh, TransportChoice::Bulk),
    ]
}

#[test]
fn a_line_that_was_not_rewritten_is_cleared() {
    process("a_line_that_was_not_rewritten_is_cleared").run(|_| {
        let start = StartState { tag_limit: NARROW, ..StartState::default() };
        for config in ways() {
            assert_eq!(stale_line(&config, &start, NARROW as usize - 1), [(true, true); 2]);
        }
    });
}

/// NEGATIVE CONTROL: no clearing at the end of the tag range.
#[test]
fn a_wrap_without_clearing_is_noticed() {
    process("a_wrap_without_clearing_is_noticed").run(|_| {
        let start = StartState { tag_limit: NARROW, hooks: hooks::NO_CLEARING, ..StartState::default() };
        for config in ways() {
            let outcomes = stale_line(&config, &start, NARROW as usize - 1);
            assert_eq!(outcomes[0], (true, false), "{} {}", config.allreduce, config.transport);
        }
    });
}

/// NEGATIVE CONTROL: the tag comes from an argument that a recording froze.
#[test]
fn a_frozen_base_is_noticed() {
    process("a_frozen_base_is_noticed").run(|_| {
        let start = StartState { hooks: hooks::FROZEN_BASE, ..StartState::default() };
        for config in ways() {
            let outcomes = stale_line(&config, &start, 0);
            // The first may be wrong as well: a rank that goes on without waiting overwrites what the other still reads.
            assert!(!outcomes[0].1, "{} {}: {outcomes:?}", config.allreduce, config.transport);
        }
    });
}

/// Calls of some size, all alike; how many results were wrong, or a failure, by rank.
fn mutated(n: usize, config: &Config, hooks: u32, calls: usize, count: usize) -> Vec<Result<usize, String>> {
    let start = StartState { hooks, ..StartState::default() };
    let calls = vec![Call::sum(Bfloat16, count, Route::Apart); calls];
    local::ranks(n, config, &start, |comm| match run(&comm, &calls) {
        Ok(found) => Ok(found.wrong.len()),
        Err(error) => Err(error.to_string()),
    })
}

fn is_noticed(outcomes: &[Result<usize, String>]) -> bool {
    outcomes.iter().any(|outcome| *outcome != Ok(0))
}

/// NEGATIVE CONTROL: the flag of a line is stored before its data.
#[test]
fn flag_before_data_is_noticed() {
    process("flag_before_data_is_noticed").run(|_| {
        for (allreduce, transport) in [
            (Algorithm::Ring, TransportChoice::Auto),
            (Algorithm::OneShot, TransportChoice::Lines),
            (Algorithm::OneShot, TransportChoice::Bulk),
            (Algorithm::Mesh, TransportChoice::Bulk),
        ] {
            let config = Config { granule: 64, max_wires: 1, allreduce, transport, ..Config::default() };
            assert_eq!(mutated(2, &config, 0, 20, 8_000), [Ok(0), Ok(0)]);
            // A receiver that is late every time, on a busy machine, sees nothing: so more than once.
            let noticed = (0..20).any(|_| is_noticed(&mutated(2, &config, hooks::FLAG_FIRST, 20, 8_000)));
            assert!(noticed, "{allreduce} {transport}");
        }
    });
}

/// NEGATIVE CONTROL: 2n-3 slots.
#[test]
fn one_slot_fewer_is_noticed() {
    process("one_slot_fewer_is_noticed").run(|_| {
        // A lost message is only noticed by the deadline.
        let config = Config { timeout: Duration::from_millis(2000), allreduce: Algorithm::Ring, ..Config::default() };
        for n in [2, 3] {
            // It takes a rank that is ahead of the next one.
            let noticed = (0..5).any(|_| is_noticed(&mutated(n, &config, hooks::ONE_SLOT_FEWER, 400, 100_000)));
            assert!(noticed, "n {n}");
        }
    });
}

/// NEGATIVE CONTROL: one-shots in bulk whose ranks don't store by turns into the place that they have read.
#[test]
fn bulk_data_that_stay_in_place_are_noticed() {
    process("bulk_data_that_stay_in_place_are_noticed").run(|_| {
        for n in [2, 3] {
            let timeout = Duration::from_millis(2000);
            let config = Config { timeout, ..by(Algorithm::OneShot, TransportChoice::Bulk) };
            let clean = mutated(n, &config, 0, 200, 20_000);
            assert!(!is_noticed(&clean), "{clean:?}");
            // It takes a rank that is ahead of another.
            let noticed = (0..10).any(|_| is_noticed(&mutated(n, &config, hooks::BULK_STAYS, 200, 20_000)));
            assert!(noticed, "n {n}");
        }
    });
}

/// NEGATIVE CONTROL: push slots of one generation.
#[test]
fn one_generation_is_noticed() {
    process("one_generation_is_noticed").run(|_| {
        for (n, transport) in [(2, TransportChoice::Lines), (2, TransportChoice::Bulk), (3, TransportChoice::Bulk)] {
            let timeout = Duration::from_millis(2000);
            let config = Config { timeout, ..by(Algorithm::OneShot, transport) };
            let clean = mutated(n, &config, 0, 200, 20_000);
            assert!(!is_noticed(&clean), "{clean:?}");
            // As with one slot fewer.
            let noticed = (0..5).any(|_| is_noticed(&mutated(n, &config, hooks::ONE_GENERATION, 200, 20_000)));
            assert!(noticed, "n {n} {transport}");
        }
    });
}
