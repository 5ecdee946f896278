//! In the steady state no thread of the process allocates.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::ReduceOp;
use ccl_tests::count::{CountingAllocator, count_allocations};
use ccl_tests::{Group, Rank};
use std::hint::black_box;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CALLS: usize = 1000;

fn steady(rank: Rank) {
    let comm = rank.communicator();
    let (stream, other) = (comm.stream(0).unwrap(), comm.stream(1).unwrap());
    let mut buffers = [comm.alloc::<f32>(20_000).unwrap(), comm.alloc::<f32>(100).unwrap()];
    for buffer in &mut buffers {
        let zeros = vec![0.0; buffer.len()];
        buffer.write(&stream, &zeros).unwrap();
    }
    let mut calls = |number: usize, streams: [&ccl_ze::Stream; 2]| {
        for call in 0..number {
            let buffer = &mut buffers[call / 2 % 2];
            let done = comm.all_reduce_in_place(buffer, ReduceOp::Sum, streams[call % 2]).unwrap();
            done.wait().unwrap();
        }
    };
    for streams in [[&stream, &stream], [&stream, &other]] {
        calls(200, streams);
        // The first time that a thread meets a lock in use, the lock's library makes it an entry in a table; on a busy
        // machine that may be any time. What calls allocate, and what the watch does while they run, is in each window.
        let windows = [(); 3].map(|()| count_allocations(|| calls(CALLS, streams)));
        rank.say(format_args!("least {}", windows.iter().min().unwrap()));
        rank.say(format_args!("all {windows:?}"));
        assert!(windows.iter().sum::<u64>() < 20, "{windows:?}");
    }
    // The counter counts.
    assert!(count_allocations(|| drop(black_box(Box::new(rank.n)))) >= 1);
}

fn run(test: &str, n: usize) {
    Group::new(test, n).run_with(steady, |running| {
        let ended = running.wait();
        for (rank, ended) in ended.iter().enumerate() {
            assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
            eprintln!("{test}, rank {rank}, one stream, then two: {:?}", ended.said("all"));
            assert_eq!(ended.said("least"), ["0", "0"], "rank {rank}: {CALLS} calls on one stream, and on two");
        }
    });
}

#[test]
fn one_rank_allocates_nothing() {
    run("one_rank_allocates_nothing", 1);
}

#[test]
fn two_ranks_allocate_nothing() {
    run("two_ranks_allocate_nothing", 2);
}
