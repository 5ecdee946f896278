//! Collectives through channels, on lines and in bulk, as the device kernels' SPIR-V executes them, between processes and
//! held to a sequential model. Run by `.ci/beds/opencl-tests.sh`.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::collective::{Collective, CollectiveCall};
use ccl_core::comm::StartState;
use ccl_core::{DataType, Order};
use ccl_tests::collectives::{self, Job, every_kind};
use ccl_tests::{Group, Rank, data, spirv};

/// Every kind; the types, reductions, orders and sizes take turns. Then what only some ranks take part in.
fn jobs(n: usize, turn: usize) -> Vec<Job> {
    let counts = [1, 1000, 63, 5003, 2049];
    let mut jobs = Vec::new();
    for i in turn..turn + 5 {
        let dtype = DataType::ALL[(2 * i + turn) % 10];
        let order = if i % 2 == 0 { Order::Ring } else { Order::Rank };
        let kinds = every_kind(n, counts[i % 5], dtype, data::ops(dtype)[i % 6], order);
        jobs.extend(kinds.into_iter().skip(i % 2).step_by(2));
    }
    let moving = CollectiveCall::moving;
    jobs.push(Job::Collective(moving(Collective::Barrier, 0, DataType::Uint8), false));
    for (i, dtype) in [(0, DataType::Uint8), (1, DataType::Float16), (2, DataType::Float64)] {
        let (from, to) = (i % n, (i + 1) % n);
        jobs.push(Job::Pair { from, to, count: 3000 + i, dtype });
        jobs.push(Job::AllToAllV(i as u64 + turn as u64, dtype));
        jobs.push(Job::Exchange(i as u64 + 9, dtype));
    }
    jobs
}

fn check(rank: Rank, turn: usize) {
    // Tags end every few messages.
    let comm = spirv::communicator(&rank, StartState { tag_limit: 30, ..StartState::default() });
    let stream = comm.stream(0).unwrap();
    let wrong = collectives::run(&comm, &stream, &jobs(rank.n, turn), turn as u64, &mut |_| ()).unwrap();
    assert_eq!(wrong, None, "rank {} of {}", rank.rank, rank.n);
}

fn group(test: &str, n: usize, transport: &str, granule: u32) -> Group {
    let group = spirv::group(test, n).env("CCLX_TRANSPORT", transport).env("CCLX_GRANULE", granule);
    group.env("CCLX_PUSH_TILES", 4).env("CCLX_BULK_BYTES", 16_384).env("CCLX_MAX_WIRES", 3)
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn two_ranks_on_lines() {
    for (turn, granule) in [8, 16, 64].into_iter().enumerate() {
        group("two_ranks_on_lines", 2, "lines", granule).run(|rank| check(rank, turn));
    }
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn three_ranks_on_lines() {
    for (turn, granule) in [16, 64, 8].into_iter().enumerate() {
        group("three_ranks_on_lines", 3, "lines", granule).run(|rank| check(rank, 3 + turn));
    }
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn three_ranks_in_bulk() {
    group("three_ranks_in_bulk", 3, "auto", 64).run(|rank| check(rank, 6));
}
