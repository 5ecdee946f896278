//! Ten thousand calls back to back between processes, every byte of every result verified.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{Bfloat16, Float16, Float32};
use ccl_core::comm::StartState;
use ccl_tests::calls::{self, Call, Options, Overwrite, Route};
use ccl_tests::data::word;
use ccl_tests::{Group, Rank, soft};
use ccl_ze::{Communicator, hooks};
use std::time::Duration;
use ze_soft::ext;

const CALLS: usize = 10_000;
/// With commands that begin late.
const DELAYED: usize = 3_000;
const SEED: u64 = 1 << 32;

/// Mostly a few elements; some messages of several tiles, a few of several rounds.
fn mixed(calls: usize) -> Vec<Call> {
    let call = |i: usize| {
        let random = word(SEED, 0, i as u64) as usize;
        let most = match i % 500 {
            499 => 40_000,
            k if k % 50 == 7 => 6_000,
            k if k % 5 == 3 => 700,
            _ => 70,
        };
        let route = [Route::Apart, Route::Apart, Route::Shared, Route::InPlace][random / 4 % 4];
        Call::sum([Bfloat16, Float16, Float32][random % 3], random / 64 % (most + 1), route)
    };
    (0..calls).map(call).collect()
}

/// Staging memory poisoned before it is cleared.
fn communicator(rank: &Rank) -> Communicator {
    let start = StartState { hooks: hooks::POISON_STAGING, ..StartState::default() };
    rank.builder().start(start).init(&rank.id, rank.rank, rank.n).unwrap()
}

fn stress(rank: Rank) {
    let comm = communicator(&rank);
    let (stream, other) = (comm.stream(0).unwrap(), comm.stream(1).unwrap());
    let own = rank.rank;
    for (delayed, calls) in [(false, CALLS), (true, DELAYED)] {
        if delayed {
            // Now each command of this rank's queues begins late as well.
            let (device, most) = (own as u32, Duration::from_micros(30).as_nanos() as u64);
            soft::fault(ext::ZESOFT_FAULT_DELAY_QUEUE, device, ext::ZESOFT_ANY, most, own as u64 + 1);
        }
        let mut before = |i: usize| {
            let random = word(SEED, own + 100, i as u64);
            if random.is_multiple_of(128) {
                std::thread::sleep(Duration::from_micros(u64::from(random >> 8) % 400));
            }
        };
        let seed = if delayed { SEED } else { 2 * SEED };
        let options = Options { seed, overwrite: Overwrite::OnCompletion, before: &mut before };
        let found = calls::run(&comm, &stream, &other, &mixed(calls), options).unwrap();
        found.assert_clean(&format!("rank {own} of {}, delayed: {delayed}", rank.n));
    }
}

fn group(test: &str, n: usize) -> Group {
    Group::new(test, n).env("CCLX_STAGING_TILES", 8)
}

#[test]
fn one_rank() {
    group("one_rank", 1).run(stress);
}

#[test]
fn two_ranks() {
    group("two_ranks", 2).run(stress);
}

#[test]
fn three_ranks_with_regular_events() {
    group("three_ranks_with_regular_events", 3).env("CCLX_EVENTS", "regular").run(stress);
}

#[test]
fn four_ranks_with_narrow_lines() {
    group("four_ranks_with_narrow_lines", 4).env("CCLX_GRANULE", 8).run(stress);
}

#[test]
fn five_ranks_in_host_memory() {
    group("five_ranks_in_host_memory", 5).env("CCL_TOPO_P2P_ACCESS", 0).env("CCLX_GRANULE", 16).run(stress);
}

#[test]
fn eight_ranks() {
    group("eight_ranks", 8).run(stress);
}

/// NEGATIVE CONTROL: inputs overwritten without waiting on the completion give wrong results.
#[test]
fn a_fill_that_does_not_wait_is_noticed() {
    group("a_fill_that_does_not_wait_is_noticed", 2).run(|rank| {
        let comm = communicator(&rank);
        let (stream, other) = (comm.stream(0).unwrap(), comm.stream(1).unwrap());
        // The peer comes late, so the fills have run before the first call has finished.
        let mut before = |i: usize| {
            if i == 0 && rank.rank == 1 {
                std::thread::sleep(Duration::from_millis(200));
            }
        };
        let options = Options { seed: 1, overwrite: Overwrite::AtOnce, before: &mut before };
        let calls = [Call::sum(Bfloat16, 100, Route::Apart); 200];
        let found = calls::run(&comm, &stream, &other, &calls, options).unwrap();
        assert!(!found.wrong.is_empty(), "no result was wrong");
    });
}

/// What fills staging memory before a call, and which tags there are.
fn poisoned(rank: Rank, hooks: u32, tag_limit: u32) -> Vec<(usize, String)> {
    // The first tag is the highest.
    let start = StartState { hooks, tag_limit, base: tag_limit - 1 };
    let comm = rank.builder().start(start).init(&rank.id, rank.rank, rank.n).unwrap();
    let (stream, other) = (comm.stream(0).unwrap(), comm.stream(1).unwrap());
    let mut before = |_| {
        if rank.rank == 1 {
            std::thread::sleep(Duration::from_millis(300));
        }
    };
    let options = Options { seed: 5, overwrite: Overwrite::Never, before: &mut before };
    // One block, so nothing of chunk 1: rank 0 waits for slot 1 only, which lies far from the ends of the staging memory
    // that the pattern of the link test has covered.
    let calls = [Call::sum(Bfloat16, 100, Route::Apart)];
    calls::run(&comm, &stream, &other, &calls, options).unwrap().wrong
}

/// Poisoned staging memory that nobody clears: no tag in use is mistaken for the poison.
#[test]
fn poison_is_no_tag() {
    Group::new("poison_is_no_tag", 2).run(|rank| {
        let hooks = hooks::POISON_STAGING | hooks::SKIP_STAGING_CLEAR;
        assert_eq!(poisoned(rank, hooks, ccl_core::protocol::TAG_LIMIT), []);
    });
}

/// Were all ones a tag, clearing alone would protect from the poison, and it does.
#[test]
fn clearing_removes_poison() {
    Group::new("clearing_removes_poison", 2).run(|rank| {
        assert_eq!(poisoned(rank, hooks::POISON_STAGING, u32::MAX), []);
    });
}

/// NEGATIVE CONTROL: without clearing it is taken for data.
#[test]
fn poison_that_is_a_tag_is_noticed() {
    Group::new("poison_that_is_a_tag_is_noticed", 2).run(|rank| {
        let hooks = hooks::POISON_STAGING | hooks::SKIP_STAGING_CLEAR;
        let own = rank.rank;
        let wrong = poisoned(rank, hooks, u32::MAX);
        assert_eq!(wrong.is_empty(), own != 0, "rank {own}: {wrong:?}");
    });
}
