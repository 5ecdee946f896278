//! All collectives besides all-reduce give the bytes of a sequential model, on lines of each form and in bulk, with one to
//! eight ranks, back to back and mixed with all-reduces.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::collective::{Collective, CollectiveCall};
use ccl_core::comm::StartState;
use ccl_core::config::{Config, TransportChoice};
use ccl_core::{DataType, Order, ReduceOp};
use ccl_tests::collectives::{self, Job, every_kind};
use ccl_tests::local::{self, sum};
use ccl_tests::{Group, data};
use ccl_ze::hooks;

const MAX_RANKS: usize = 8;

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", MAX_RANKS).env("ZE_SOFT_COMPUTE_UNITS", 8)
}

/// Small slots, so that short messages have several rounds. No granule is bulk.
fn config(granule: Option<u32>) -> Config {
    let transport = if granule.is_some() { TransportChoice::Lines } else { TransportChoice::Auto };
    let granule = granule.unwrap_or(0);
    Config { transport, granule, staging_tiles: 4, push_tiles: 2, bulk_bytes: 8192, ..Config::default() }
}

const WAYS: [Option<u32>; 4] = [None, Some(8), Some(16), Some(64)];

fn check(n: usize, config: &Config, start: &StartState, jobs: &[Job], rounds: u64) {
    local::ranks(n, config, start, |comm| {
        let stream = comm.stream(0).unwrap();
        for seed in 0..rounds {
            let wrong = collectives::run(&comm, &stream, jobs, seed, &mut |_| ()).unwrap();
            assert_eq!(wrong, None, "rank {} of {n}, round {seed}, granule {}", comm.rank(), config.granule);
        }
    });
}

/// Every kind with every datatype, and every reduction with some.
fn table(n: usize) -> Vec<Job> {
    let counts = [1, 63, 1000, 0, 5003, 77, 2048, 16, 31_001, 3];
    let mut jobs = Vec::new();
    for (i, dtype) in DataType::ALL.into_iter().enumerate() {
        for (j, op) in data::ops(dtype).into_iter().enumerate() {
            let order = if (i + j) % 3 == 0 { Order::Rank } else { Order::Ring };
            let count = counts[(i + 3 * j) % counts.len()];
            let kinds = every_kind(n, count, dtype, op, order);
            // What reduces nothing needs no repetition for each reduction.
            jobs.extend(kinds.into_iter().filter(|job| match job {
                Job::Collective(call, _) => j == 0 || call.what.reduces(),
                _ => false,
            }));
        }
    }
    jobs.push(Job::Collective(CollectiveCall::moving(Collective::Barrier, 0, DataType::Uint8), false));
    jobs
}

#[test]
fn every_collective_has_the_bytes_of_the_model() {
    process("every_collective_has_the_bytes_of_the_model").run(|_| {
        for n in [1, 2, 3, 5, 8] {
            for (way, granule) in WAYS.into_iter().enumerate() {
                // Each way with some of the larger groups.
                if n > 3 && way % 2 != n % 2 {
                    continue;
                }
                check(n, &config(granule), &StartState::default(), &table(n), 1);
            }
        }
    });
}

#[test]
fn in_host_memory_as_well() {
    process("in_host_memory_as_well").run(|_| {
        for granule in [None, Some(64)] {
            let config = Config { p2p_access: false, ..config(granule) };
            check(3, &config, &StartState::default(), &table(3)[..40], 1);
        }
    });
}

/// A list of everything, drawn from a seed.
fn mixture(n: usize, seed: u64, len: u64) -> Vec<Job> {
    let dtypes = [DataType::Uint8, DataType::Bfloat16, DataType::Float32, DataType::Float64];
    let job = |i: u64| {
        let word = data::word(seed, 7, i) as usize;
        let (count, dtype) = ([0, 1, 100, 3000, 40_000][word % 5] + word / 8 % 9, dtypes[word / 5 % 4]);
        let from = word / 20 % n;
        match word / 7 % 10 {
            0 | 1 => Job::AllReduce(sum(dtype, count)),
            2 | 3 if n > 1 => Job::Pair { from, to: (from + 1 + word / 400 % (n - 1)) % n, count, dtype },
            4 => Job::AllToAllV(seed + i, dtype),
            5 => Job::Exchange(seed + i, dtype),
            _ => {
                let kinds = every_kind(n, count, dtype, ReduceOp::Sum, Order::Ring);
                kinds[word / 100 % kinds.len()]
            }
        }
    };
    (0..len).map(job).collect()
}

#[test]
fn mixtures_back_to_back() {
    process("mixtures_back_to_back").run(|_| {
        for (n, granule, seed) in
            [(2, None, 1), (3, Some(64), 2), (4, None, 3), (5, Some(16), 4), (8, None, 5), (3, Some(8), 6)]
        {
            check(n, &config(granule), &StartState::default(), &mixture(n, seed, 160), 1);
        }
    });
}

/// Tags begin anew every few messages, of channels and of all-reduces.
#[test]
fn laps_of_a_few_messages() {
    process("laps_of_a_few_messages").run(|_| {
        for (tag_limit, granule) in [(255, Some(64)), (255, None), (77, Some(16))] {
            let start = StartState { tag_limit, ..StartState::default() };
            check(3, &config(granule), &start, &mixture(3, 11, 150), 2);
        }
    });
}

/// Whether a rule that is switched off makes some round wrong, or fail.
fn is_caught(hook: u32, granule: Option<u32>, tag_limit: u32, jobs: &[Job]) -> bool {
    let start = StartState { hooks: hook, tag_limit, ..StartState::default() };
    let config = Config { timeout: std::time::Duration::from_secs(3), ..config(granule) };
    let outcomes = local::ranks(3, &config, &start, |comm| {
        let stream = comm.stream(0).unwrap();
        for seed in 0..3 {
            let mut late = |i: usize| {
                if comm.rank() == 2 && i.is_multiple_of(8) {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            };
            match collectives::run(&comm, &stream, jobs, seed, &mut late) {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return true,
            }
        }
        false
    });
    outcomes.contains(&true)
}

/// NEGATIVE CONTROLS: a sender that doesn't wait for room overwrites what isn't taken; a flag before its data, or one of an
/// earlier lap, is taken for a message's.
#[test]
fn each_rule_is_needed() {
    process("each_rule_is_needed").limit(std::time::Duration::from_secs(240)).run(|_| {
        // A root that sends to many and waits for none.
        let broadcast = |count, root| {
            Job::Collective(CollectiveCall::moving(Collective::Broadcast { root }, count, DataType::Float32), true)
        };
        let flood: Vec<Job> = (0..60).map(|i| broadcast(500 + 17 * i, 0)).collect();
        // A long message after short ones finds lines of a lap before.
        let lap = |i: u64| broadcast(if i.is_multiple_of(5) { 900 } else { 1 }, 0);
        let laps: Vec<Job> = (0..60).map(lap).collect();
        for granule in [None, Some(64)] {
            assert!(!is_caught(0, granule, u32::MAX - 1, &flood));
            assert!(is_caught(hooks::NO_CREDIT, granule, u32::MAX - 1, &flood), "no credit, {granule:?}");
            assert!(is_caught(hooks::FLAG_FIRST, granule, u32::MAX - 1, &flood[..10]), "flag first, {granule:?}");
        }
        // The sender may rest at any time: the stale lines are seen if it does.
        assert!(!is_caught(hooks::REST_IN_MESSAGE, Some(64), 10, &laps));
        assert!(is_caught(hooks::REST_IN_MESSAGE | hooks::NO_CLEARING, Some(64), 10, &laps), "no clearing");
    });
}
