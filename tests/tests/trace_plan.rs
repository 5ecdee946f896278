//! What the executed twins do is what the plan says, step by step, and the verifier accepts that plan.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{self, Bfloat16, Float16, Float32};
use ccl_core::comm::StartState;
use ccl_core::config::{Algorithm, Config, TransportChoice};
use ccl_core::plan::{Plan, Request};
use ccl_tests::local::{self, Peer, sum};
use ccl_tests::{Group, data};
use ccl_ze::{hooks, twins};

const MAX_RANKS: usize = 16;

/// One process that has a device for each rank and lets every wire run.
fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", MAX_RANKS).env("ZE_SOFT_COMPUTE_UNITS", 64)
}

fn config(granule: u32, max_wires: u32, staging_tiles: u32) -> Config {
    Config { granule, max_wires, staging_tiles, allreduce: Algorithm::Ring, ..Config::default() }
}

/// Runs `requests` on `n` ranks, in place and not, and compares each rank's steps with its plan's. Returns the steps
/// that were compared.
fn check(n: usize, config: &Config, requests: &[Request]) -> usize {
    let capacity = requests.iter().map(|r| r.count as usize * r.dtype.size()).max().unwrap();
    let start = StartState { hooks: hooks::TRACE, ..StartState::default() };
    let compared = local::ranks(n, config, &start, |comm| {
        let rank = comm.rank();
        let mut peer = Peer::new(comm, capacity);
        let mut compared = 0;
        for (seed, request) in (0..).zip(requests) {
            let (dtype, count) = (request.dtype, request.count as usize);
            let plan = peer.comm.plan(request).unwrap();
            if rank == 0 {
                plan.verify().unwrap_or_else(|fault| panic!("{plan}: {fault}"));
            }
            // Above some size the reference would take longer than all the rest.
            let check_data = rank == 0 && count * n < 1 << 19;
            for in_place in [false, true] {
                let got = peer.reduce(request, &data::ordinary(dtype, seed, rank, count), in_place).unwrap();
                let steps = twins::trace::take(rank);
                match &plan {
                    Plan::Ring(ring) => {
                        let mut planned = 0;
                        for (i, step) in ring.steps(rank).enumerate() {
                            assert_eq!(steps.get(i), Some(&step), "rank {rank}, step {i} of {plan}");
                            planned += 1;
                        }
                        assert_eq!(steps.len(), planned, "rank {rank} of {plan}");
                        compared += planned;
                    }
                    Plan::Push(push) => {
                        let steps = twins::trace::take_push(rank);
                        let mut planned = 0;
                        for (i, step) in push.steps(rank).enumerate() {
                            assert_eq!(steps.get(i), Some(&step), "rank {rank}, step {i} of {plan}");
                            planned += 1;
                        }
                        assert_eq!(steps.len(), planned, "rank {rank} of {plan}");
                        compared += planned;
                    }
                    Plan::Empty | Plan::Local => assert!(steps.is_empty(), "rank {rank}: {steps:?} in {plan}"),
                }
                if check_data {
                    let inputs: Vec<_> = (0..n).map(|r| data::ordinary(dtype, seed, r, count)).collect();
                    let want = data::expected(dtype, &inputs, request.period);
                    assert_eq!(data::first_difference(&got, &want, dtype), None, "{plan}, in place: {in_place}");
                }
            }
        }
        compared
    });
    compared.into_iter().sum()
}

/// A twin that leaves a block out of each step on all ranks, so that nobody waits in vain, doesn't do what the plan says.
#[test]
fn a_walk_that_is_too_short_is_noticed() {
    process("a_walk_that_is_too_short_is_noticed").run(|_| {
        let start = StartState { hooks: hooks::TRACE | hooks::SHORT_WALK, ..StartState::default() };
        let request = sum(Float32, 4099);
        let differing = local::ranks(3, &config(8, 64, 256), &start, |comm| {
            let rank = comm.rank();
            let mut peer = Peer::new(comm, 4099 * 4);
            let Plan::Ring(ring) = peer.comm.plan(&request).unwrap() else { panic!("not a ring") };
            peer.reduce(&request, &data::ordinary(Float32, 1, rank, 4099), false).unwrap();
            let (steps, planned) = (twins::trace::take(rank), ring.steps(rank).collect::<Vec<_>>());
            assert_eq!(steps.len(), planned.len());
            steps.iter().zip(&planned).filter(|(step, planned)| step != planned).count()
        });
        assert!(differing.iter().all(|&differing| differing > 0), "{differing:?}");
    });
}

fn requests(n: usize, counts: &[usize]) -> Vec<Request> {
    let dtypes = [Bfloat16, Float16, Float32];
    let mut requests: Vec<_> = counts.iter().zip(0..).map(|(&count, i)| sum(dtypes[(n + i) % 3], count)).collect();
    // Rows that are no multiple of a block, and rows of one block.
    let rows = |dtype: DataType, count: usize, period| Request { period: Some(period), ..sum(dtype, count) };
    requests.extend([rows(Bfloat16, 4099, 500), rows(Float32, 5 * 64, 64)]);
    requests
}

#[test]
fn every_rank_executes_its_plan() {
    process("every_rank_executes_its_plan").run(|_| {
        // The shipped plan, few wires of few tiles, one wire of one tile, and as many wires as tiles.
        for config in [config(8, 64, 256), config(16, 3, 5), config(64, 1, 1), config(64, 64, 64)] {
            for n in 1..=MAX_RANKS {
                let counts = [0, 1, n - 1, n, n + 1, 127, 4099, 65_537];
                let compared = check(n, &config, &requests(n, &counts));
                assert_eq!(compared > 0, n > 1);
            }
        }
    });
}

/// The push algorithms, on lines of each form and in bulk, in one round and in many, on one wire and on several.
#[test]
fn every_rank_executes_its_push_plan() {
    process("every_rank_executes_its_push_plan").run(|_| {
        for (algorithm, transport, granule, max_wires, push_tiles, bulk_bytes) in [
            (Algorithm::OneShot, TransportChoice::Lines, 8, 64, 16, 4096),
            (Algorithm::OneShot, TransportChoice::Lines, 64, 3, 16, 4096),
            (Algorithm::OneShot, TransportChoice::Bulk, 64, 1, 1, 4096),
            (Algorithm::Mesh, TransportChoice::Lines, 16, 3, 5, 4096),
            (Algorithm::Mesh, TransportChoice::Lines, 64, 64, 16, 4096),
            (Algorithm::Mesh, TransportChoice::Bulk, 64, 1, 1, 8192),
            (Algorithm::Mesh, TransportChoice::Bulk, 64, 1, 1, 256 << 10),
        ] {
            let config = Config {
                allreduce: algorithm,
                transport,
                granule,
                max_wires,
                push_tiles,
                bulk_bytes,
                ..Config::default()
            };
            for n in [2, 3, 4, 5, 8, MAX_RANKS] {
                let counts = [0, 1, n - 1, n, n + 1, 127, 4099, 65_537];
                assert!(check(n, &config, &requests(n, &counts)) > 0);
            }
        }
    });
}

/// Hundreds of rounds, and 64 wires.
#[test]
fn a_long_message_executes_its_plan() {
    process("a_long_message_executes_its_plan").run(|_| {
        const COUNT: usize = 10_556_587;
        check(2, &config(0, 64, 64), &[sum(Float32, COUNT)]);
        check(5, &config(64, 7, 16), &[sum(Bfloat16, COUNT)]);
        check(16, &config(64, 3, 64), &[sum(Bfloat16, COUNT)]);
    });
}
