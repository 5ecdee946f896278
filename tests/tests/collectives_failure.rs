//! Calls through channels that don't fit together, or whose other side never comes: bounded, and named. And recordings
//! of them: replays go on where the replay before, and calls in between, left the channels.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::collective::{Collective, CollectiveCall};
use ccl_core::comm::StartState;
use ccl_core::config::{Check, Config, OnError};
use ccl_core::{DataType, Error, Order, ReduceOp, Result};
use ccl_tests::Group;
use ccl_tests::collectives::{self, Bench, Job, every_kind};
use ccl_tests::local::{self, sum};
use ccl_ze::{CallOptions, Communicator};
use std::time::{Duration, Instant};

const N: usize = 4;

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", N)
}

fn config(check: Check, timeout: u64) -> Config {
    Config { check, timeout: Duration::from_millis(timeout), on_error: Some(OnError::Log), ..Config::default() }
}

fn collective(what: Collective, count: u64) -> Job {
    Job::Collective(CollectiveCall::moving(what, count, DataType::Float32), false)
}

/// Three calls that are alike, then the odd rank's own.
fn odd_one_out(odd: usize, usual: Job, other: Job, config: &Config) -> Vec<Result<Option<String>>> {
    local::ranks(N, config, &StartState::default(), |comm| {
        let stream = comm.stream(0).unwrap();
        collectives::run(&comm, &stream, &[usual, usual, usual], 1, &mut |_| ()).unwrap();
        let last = if comm.rank() == odd { other } else { usual };
        collectives::run(&comm, &stream, &[last], 2, &mut |_| ())
    })
}

#[test]
fn a_rank_that_makes_another_collective_is_named() {
    process("a_rank_that_makes_another_collective_is_named").run(|_| {
        let broadcast = collective(Collective::Broadcast { root: 0 }, 100);
        let gather = collective(Collective::AllGather, 100);
        for (odd, usual, other, told) in [
            (2, broadcast, gather, "rank 2 made all_gather with 100 float32; ranks 0, 1, 3 made broadcast"),
            (
                1,
                broadcast,
                collective(Collective::Broadcast { root: 0 }, 101),
                "rank 1 made it with 101 float32 root=0",
            ),
            (
                3,
                broadcast,
                collective(Collective::Broadcast { root: 1 }, 100),
                "rank 3 made it with 100 float32 root=1",
            ),
            (0, gather, Job::AllReduce(sum(DataType::Float32, 100)), "rank 0 made all_reduce with 100 float32 sum"),
        ] {
            for (rank, outcome) in odd_one_out(odd, usual, other, &config(Check::Global, 20_000)).iter().enumerate() {
                let error = outcome.as_ref().expect_err("a call that differs");
                assert!(matches!(error, Error::InvalidUsage(_)), "rank {rank}: {error}");
                assert!(error.to_string().contains(told), "rank {rank}: {error}, not: {told}");
            }
        }
    });
}

/// Of every collective: one rank leaves a call out, makes one twice, or makes it of another length. What the others make next
/// is then not what it makes.
#[test]
fn a_rank_that_skips_repeats_or_reshapes_a_collective_is_named() {
    process("a_rank_that_skips_repeats_or_reshapes_a_collective_is_named").run(|_| {
        let kinds = |count| {
            let every = every_kind(N, count, DataType::Float32, ReduceOp::Max, Order::Ring);
            let mut all: Vec<_> = every.into_iter().filter(|job| matches!(job, Job::Collective(_, false))).collect();
            all.push(Job::AllReduce(sum(DataType::Float32, count)));
            all
        };
        let barrier = collective(Collective::Barrier, 0);
        let mut compared = 0;
        for (kind, (usual, longer)) in kinds(100).into_iter().zip(kinds(101)).enumerate() {
            let odd = kind % N;
            for (what, all, own) in [
                ("skips", [usual, usual, barrier], [usual, barrier, usual]),
                ("repeats", [usual, barrier, usual], [usual, usual, barrier]),
                ("reshapes", [usual, usual, barrier], [usual, longer, barrier]),
            ] {
                let outcomes = local::ranks(N, &config(Check::Global, 20_000), &StartState::default(), |comm| {
                    let stream = comm.stream(0).unwrap();
                    let jobs = if comm.rank() == odd { own } else { all };
                    collectives::run(&comm, &stream, &jobs[..1], 1, &mut |_| ()).unwrap();
                    collectives::run(&comm, &stream, &jobs[1..], 2, &mut |_| ())
                });
                for (rank, outcome) in outcomes.iter().enumerate() {
                    let error = outcome.as_ref().expect_err("calls that differ");
                    let told = format!("ranks disagree on call #2: rank {odd} made ");
                    assert!(error.to_string().contains(&told), "rank {rank} of {usual:?}, {odd} {what}: {error}");
                }
                compared += 1;
            }
        }
        assert_eq!(compared, 8 * 3);
    });
}

/// Many checked calls, of which most let their ranks go before the others have come.
#[test]
fn checked_calls_are_right() {
    process("checked_calls_are_right").run(|_| {
        let mut jobs = every_kind(N, 700, DataType::Float16, ReduceOp::Sum, Order::Ring);
        jobs.extend((0..40).map(|i| collective(Collective::Broadcast { root: i % N }, 50)));
        jobs.push(Job::Pair { from: 1, to: 3, count: 9000, dtype: DataType::Int32 });
        jobs.push(Job::AllReduce(sum(DataType::Bfloat16, 3000)));
        jobs.push(collective(Collective::Barrier, 0));
        local::ranks(N, &config(Check::Global, 20_000), &StartState::default(), |comm| {
            let stream = comm.stream(0).unwrap();
            for seed in 0..3 {
                let wrong = collectives::run(&comm, &stream, &jobs, seed, &mut |_| ()).unwrap();
                assert_eq!(wrong, None, "rank {}", comm.rank());
            }
        });
    });
}

/// What a rank, all of whose calls are these, is told; the others make none.
fn lonely(what: Collective, rank: usize) -> (Error, Duration) {
    let outcomes = local::ranks(N, &config(Check::Off, 1500), &StartState::default(), |comm: Communicator| {
        if comm.rank() != rank {
            // It stays, and answers when it is asked.
            std::thread::sleep(Duration::from_millis(2500));
            return None;
        }
        let stream = comm.stream(0).unwrap();
        let buffer = comm.alloc::<f32>(1 << 20).unwrap();
        let call =
            CollectiveCall::moving(what, if what == Collective::Barrier { 0 } else { 1 << 20 }, DataType::Float32);
        let (at, since) = (buffer.as_ptr().cast(), Instant::now());
        // SAFETY: the buffer holds what is sent or received and lives until the wait.
        let done = unsafe { comm.collective_raw(&call, None, at, at, &stream, CallOptions::default()) };
        let error = done.unwrap().wait().expect_err("nobody comes");
        Some((error, since.elapsed()))
    });
    outcomes.into_iter().flatten().next().unwrap()
}

#[test]
fn who_waits_for_nobody_is_told_so_in_time() {
    process("who_waits_for_nobody_is_told_so_in_time").run(|_| {
        for (what, told) in [
            (
                Collective::Receive { from: 1 },
                "receive (1048576 float32 from rank 1) did not finish: rank 1 is in no call",
            ),
            (Collective::Send { to: 3 }, "send (1048576 float32 to rank 3) did not finish"),
            (Collective::Broadcast { root: 0 }, "rank 1 has not entered broadcast #1 (1048576 float32 root=0)"),
            (Collective::Barrier, "rank 3 has not entered barrier #1"),
        ] {
            let rank = if what == (Collective::Receive { from: 1 }) { 2 } else { 0 };
            let (error, took) = lonely(what, rank);
            assert!(matches!(error, Error::Timeout { .. }) && took < Duration::from_secs(20), "{error} after {took:?}");
            assert!(error.to_string().contains(told), "{error}, not: {told}");
        }
    });
}

#[test]
fn replays_go_on_where_the_channels_are() {
    process("replays_go_on_where_the_channels_are").run(|_| {
        let mut jobs = every_kind(3, 2500, DataType::Bfloat16, ReduceOp::Sum, Order::Ring);
        jobs.push(Job::Pair { from: 2, to: 0, count: 5000, dtype: DataType::Uint8 });
        jobs.push(Job::AllToAllV(5, DataType::Float32));
        jobs.push(Job::AllReduce(sum(DataType::Float32, 1000)));
        let start = StartState { tag_limit: 40, ..StartState::default() };
        local::ranks(3, &config(Check::Off, 20_000), &start, |comm| {
            let stream = comm.stream(0).unwrap();
            let mut bench = Bench::new(&comm, &jobs).unwrap();
            stream.begin_capture().unwrap();
            let recorded = bench.issue(&stream, &mut |_| ());
            let graph = stream.end_capture().unwrap();
            drop(recorded.unwrap());
            let graph = graph.instantiate().unwrap();
            for seed in 0..6 {
                bench.write(&stream, seed).unwrap();
                // SAFETY: the bench, and with it all buffers, outlives the graph's last replay.
                let done = unsafe { graph.launch(&stream, CallOptions::default()).unwrap() };
                // Ranks are at different places when calls come in between.
                if comm.rank() == 1 {
                    done.wait().unwrap();
                }
                let wrong = bench.check(&stream, seed).unwrap();
                assert_eq!(wrong, None, "rank {}, replay {seed}", comm.rank());
                let wrong = collectives::run(&comm, &stream, &jobs[..5], 100 + seed, &mut |_| ()).unwrap();
                assert_eq!(wrong, None, "rank {}, between replays", comm.rank());
            }
            drop(graph);
        });
    });
}
