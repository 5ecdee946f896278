//! In the steady state the calling thread makes no system call while it neither yields nor parks.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::ReduceOp;
use ccl_tests::syscalls::{self, Count};
use ccl_tests::{Group, Rank};

const WINDOWS: usize = 20;
const CALLS: usize = 100;

/// In each window of calls: how many calls made no system call at all, and which system calls the others made.
fn steady(rank: Rank) {
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    let mut buffer = comm.alloc::<f32>(1000).unwrap();
    buffer.write(&stream, &[1.0; 1000]).unwrap();
    let mut call = || comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
    for _ in 0..200 {
        call();
    }
    let (mut quiet, mut best) = (0, 0);
    let mut made: Vec<Count> = Vec::new();
    for _ in 0..WINDOWS {
        let mut quiet_here = 0;
        for _ in 0..CALLS {
            let counts = syscalls::count(&mut call).unwrap();
            quiet_here += usize::from(counts.is_empty());
            made.extend(counts);
        }
        quiet += quiet_here;
        best = best.max(quiet_here);
    }
    let other: Vec<_> = made.iter().filter(|count| !count.yields_or_parks()).collect();
    assert!(other.is_empty(), "neither yields nor parks: {other:?}");
    // The counter counts, and the calls it counts are done.
    let counts = syscalls::count(|| assert_eq!(unsafe_getppid(), nix::unistd::getppid().as_raw())).unwrap();
    assert_eq!(counts, [Count { number: libc::SYS_getppid, count: 2 }]);
    let waiting: u64 = made.iter().map(|count| count.count).sum();
    rank.say(format_args!("quiet {quiet}"));
    rank.say(format_args!("best {best}"));
    rank.say(format_args!("waiting {waiting}"));
}

fn unsafe_getppid() -> i32 {
    // SAFETY: takes nothing and can't fail.
    unsafe { libc::syscall(libc::SYS_getppid) as i32 }
}

/// How many of the calls of the best window, and of all, made no system call.
fn run(test: &str, n: usize) -> Vec<(usize, usize)> {
    Group::new(test, n).run_with(steady, |running| {
        let ended = running.wait();
        let judge = |(rank, ended): (usize, &ccl_tests::group::Ended)| {
            assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
            let number = |key: &str| ended.said(key)[0].parse().unwrap();
            let (best, quiet, waiting) = (number("best"), number("quiet"), number("waiting"));
            let all = WINDOWS * CALLS;
            eprintln!(
                "{test}, rank {rank}: {quiet} of {all} calls without any; {waiting} yields and sleeps in the rest"
            );
            (best, quiet)
        };
        ended.iter().enumerate().map(judge).collect()
    })
}

#[test]
fn a_lone_rank_makes_none() {
    // Where the machine is busy, the driver's own thread may take a command just before it loses its core; the caller
    // then yields until it is back. The rest makes none.
    let (best, quiet) = run("a_lone_rank_makes_none", 1)[0];
    assert_eq!(best, CALLS);
    assert!(quiet > WINDOWS * CALLS * 9 / 10, "{quiet} of {}", WINDOWS * CALLS);
}

#[test]
fn two_ranks_make_none_unless_they_wait_long() {
    // With other work on the machine a peer may be off its core for longer than a waiter spins: that is when it yields.
    // A window in which that does not happen to most calls must exist.
    const ATTEMPTS: usize = 5;
    let attempt = |_| {
        let found = run("two_ranks_make_none_unless_they_wait_long", 2);
        found.iter().all(|(best, _)| *best > CALLS / 2)
    };
    assert!((0..ATTEMPTS).any(attempt), "most calls made system calls in each window of {ATTEMPTS} attempts");
}
