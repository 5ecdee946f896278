//! Ranks that are held up for less than the deadline, one by one or all together, are no failure.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::{DataType, ReduceOp};
use ccl_tests::group::Running;
use ccl_tests::{Group, Rank, data, soft};
use nix::sys::signal::{SigHandler, Signal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const N: usize = 3;
const TIMEOUT: Duration = Duration::from_millis(2000);
const COUNT: usize = 30_000;

/// Calls until `end` says so, in step with the other ranks: whether to go on is itself part of what is reduced.
fn calls_until(rank: &Rank, end: impl Fn() -> bool) {
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    let mut buffer = comm.alloc::<f32>(COUNT).unwrap();
    let mut stop = comm.alloc::<f32>(1).unwrap();
    let mut got = vec![0f32; COUNT];
    for call in 0u64.. {
        let inputs: Vec<_> = (0..rank.n).map(|rank| data::ordinary(DataType::Float32, call % 8, rank, COUNT)).collect();
        buffer.write(&stream, bytemuck::cast_slice(&inputs[rank.rank])).unwrap();
        let done = comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap();
        done.wait().unwrap_or_else(|error| panic!("call {call}: {error}"));
        buffer.read(&stream, &mut got).unwrap();
        let want = data::expected(DataType::Float32, &inputs, None);
        assert_eq!(data::first_difference(bytemuck::cast_slice(&got), &want, DataType::Float32), None, "call {call}");
        let mut votes = [f32::from(u8::from(end()))];
        stop.write(&stream, &votes).unwrap();
        comm.all_reduce_in_place(&mut stop, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
        stop.read(&stream, &mut votes).unwrap();
        if votes[0] > 0.0 {
            rank.say(format_args!("calls {}", call + 1));
            break;
        }
    }
}

fn run(test: &str, body: impl FnOnce(Rank), disturb: impl FnOnce(&Running)) {
    let group = Group::new(test, N).env("CCLX_TIMEOUT_MS", TIMEOUT.as_millis()).limit(Duration::from_secs(60));
    group.run_with(body, |running| {
        for rank in 0..N {
            running.wait_for_line(rank, "started", Duration::from_secs(20));
        }
        disturb(&running);
        // Told by its last act, to end the calls.
        running.signal(0, Signal::SIGUSR1);
        for (rank, ended) in running.wait().iter().enumerate() {
            assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
            eprintln!("{test}, rank {rank}: {} right calls", ended.said("calls")[0]);
        }
    });
}

static ENDS: AtomicBool = AtomicBool::new(false);

extern "C" fn on_usr1(_: i32) {
    ENDS.store(true, Ordering::Relaxed);
}

/// Calls until rank 0 gets a SIGUSR1.
fn body(rank: Rank) {
    // SAFETY: the handler only stores into an atomic.
    unsafe { nix::sys::signal::signal(Signal::SIGUSR1, SigHandler::Handler(on_usr1)).unwrap() };
    // Each command late by a random time, differently on each rank.
    soft::fault(ze_soft::ext::ZESOFT_FAULT_DELAY_QUEUE, rank.rank as u32, 0, 300_000, rank.rank as u64 + 1);
    rank.say("started");
    calls_until(&rank, || ENDS.load(Ordering::Relaxed));
}

fn rest(until: Instant) {
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
}

#[test]
fn pauses_of_single_ranks() {
    run("pauses_of_single_ranks", body, |running| {
        let end = Instant::now() + Duration::from_millis(2500);
        for turn in 0u64.. {
            let random = u64::from(data::word(1, 2, turn));
            let rank = (random % N as u64) as usize;
            running.signal(rank, Signal::SIGSTOP);
            rest(Instant::now() + Duration::from_millis(random / 7 % 300));
            running.signal(rank, Signal::SIGCONT);
            rest(Instant::now() + Duration::from_millis(random / 3000 % 50));
            if Instant::now() > end {
                break;
            }
        }
    });
}

/// A job that is suspended as a whole for longer than the deadline goes on as if nothing had been.
#[test]
fn a_pause_of_all_ranks() {
    run("a_pause_of_all_ranks", body, |running| {
        for _ in 0..2 {
            (0..N).for_each(|rank| running.signal(rank, Signal::SIGSTOP));
            rest(Instant::now() + TIMEOUT + Duration::from_millis(500));
            (0..N).for_each(|rank| running.signal(rank, Signal::SIGCONT));
            rest(Instant::now() + Duration::from_millis(300));
        }
    });
}
