//! A rank that dies: the others are told who it was, at once, and nobody takes a half-made result for a whole one.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::{DataType, Error, ReduceOp};
use ccl_tests::failure::{check_poisoned, die, failing_call, fault, is_failed_output, stamp};
use ccl_tests::group::Ended;
use ccl_tests::{Group, Rank, data, soft};
use nix::sys::signal::Signal;
use std::time::Duration;

const ATTEMPTS: usize = 3;
/// From the kill to the error in the hands of the survivor's caller.
const LATENCY: Duration = Duration::from_millis(200);
/// The same on a machine that is busy with something else.
const LATENCY_UNDER_LOAD: Duration = Duration::from_secs(1);

/// Where the victim is when it dies.
#[derive(Clone, Copy, PartialEq)]
enum When {
    /// It never enters the collective.
    Before,
    /// Its collective hangs in its queue, behind others that are late.
    Queued,
    /// It is in the collective and waits for a rank that is late, like the others.
    Inside,
}

fn survivor(rank: &Rank, victim: usize) {
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    let mut buffer = comm.alloc::<f32>(300_000).unwrap();
    buffer.write(&stream, &vec![1.0; 300_000]).unwrap();
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
    let error = failing_call(rank, &comm, &mut buffer, &stream);
    assert!(matches!(error, Error::PeerLost { rank, .. } if rank == victim), "{error}");
    // Who was in the collective says in which.
    assert!(error.to_string().contains("all_reduce #2 (300000 float32 sum)"), "{error}");
    check_poisoned(&comm, &mut buffer, &stream, &error);
    drop((buffer, stream, comm));
    rank.say("freed all");
}

fn victim(rank: &Rank, when: When) {
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    let mut buffer = comm.alloc::<f32>(300_000).unwrap();
    buffer.write(&stream, &vec![1.0; 300_000]).unwrap();
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
    if when == When::Queued {
        soft::fault(
            ze_soft::ext::ZESOFT_FAULT_DELAY_QUEUE,
            rank.rank as u32,
            ze_soft::ext::ZESOFT_ANY,
            10_000_000_000,
            0,
        );
    }
    let doomed = std::thread::spawn({
        let rank = Rank { rank: rank.rank, n: rank.n, id: rank.id };
        move || {
            std::thread::sleep(Duration::from_millis(150));
            rank.mark("dies");
            die()
        }
    });
    if when != When::Before {
        let _ = comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait();
    }
    let _ = doomed.join();
}

/// A rank that neither dies nor comes: it leaves the victim waiting inside, and is told all the same.
fn latecomer(rank: &Rank, victim: usize) {
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    let mut buffer = comm.alloc::<f32>(300_000).unwrap();
    buffer.write(&stream, &vec![1.0; 300_000]).unwrap();
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
    let error = fault(&comm, Duration::from_secs(60));
    rank.mark("failed");
    assert!(matches!(error, Error::PeerLost { rank, .. } if rank == victim), "{error}");
    drop((buffer, stream, comm));
    rank.say("freed all");
}

fn latencies(ended: &[Ended], victim: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    let killed = ended[victim].stamped("dies");
    for (rank, ended) in ended.iter().enumerate().filter(|(rank, _)| *rank != victim) {
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        assert!(ended.output.contains("freed all"), "rank {rank}: {}", ended.output);
        took.push(Duration::from_nanos(ended.stamped("failed") - killed));
    }
    took
}

fn kill(test: &str, n: usize, dead: usize, when: When) {
    for attempt in 1..=ATTEMPTS {
        let body = |rank: Rank| match when {
            _ if rank.rank == dead => victim(&rank, when),
            When::Inside if rank.rank == (dead + 1) % n => latecomer(&rank, dead),
            _ => survivor(&rank, dead),
        };
        let ended = Group::new(test, n).limit(Duration::from_secs(30)).run_with(body, |running| running.wait());
        let took = latencies(&ended, dead);
        eprintln!("{test}: {took:.1?}");
        assert!(took.iter().all(|took| *took <= LATENCY_UNDER_LOAD), "{took:?}");
        if took.iter().all(|took| *took <= LATENCY) {
            return;
        }
        assert!(attempt < ATTEMPTS, "never within {LATENCY:?}, at last {took:?}");
    }
}

#[test]
fn two_ranks_the_dead_one_never_enters() {
    kill("two_ranks_the_dead_one_never_enters", 2, 1, When::Before);
}

#[test]
fn two_ranks_the_dead_one_is_queued() {
    kill("two_ranks_the_dead_one_is_queued", 2, 0, When::Queued);
}

#[test]
fn four_ranks_the_dead_one_never_enters() {
    kill("four_ranks_the_dead_one_never_enters", 4, 2, When::Before);
}

#[test]
fn four_ranks_the_dead_one_is_inside() {
    kill("four_ranks_the_dead_one_is_inside", 4, 3, When::Inside);
}

/// Calls without end until the communicator fails, each with data of its own. What a call leaves behind is its right
/// result or 0xFF, whatever its completion says; right is what it says only if it is.
fn stream_of_calls(rank: Rank) {
    const COUNT: usize = 200_000;
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    let mut send = comm.alloc::<f32>(COUNT).unwrap();
    let mut recv = comm.alloc::<f32>(COUNT).unwrap();
    let input = |rank: usize| data::ordinary(DataType::Float32, 7, rank, COUNT);
    let inputs: Vec<_> = (0..rank.n).map(input).collect();
    let want = data::expected(DataType::Float32, &inputs, None);
    let mut got = vec![0f32; COUNT];
    rank.say("started");
    for call in 1u64.. {
        send.write(&stream, bytemuck::cast_slice(&inputs[rank.rank])).unwrap();
        // SAFETY: the buffer holds that many bytes and is not freed before the fill is done.
        unsafe { stream.fill(recv.as_ptr().cast(), 0x55, COUNT * 4, &[]).unwrap() };
        let met = match comm.all_reduce(&send, &mut recv, ReduceOp::Sum, &stream) {
            Ok(done) => done.wait(),
            Err(error) => {
                rank.mark("failed");
                rank.say(format_args!("error {error}"));
                assert_eq!(comm.fault(), Some(error));
                stream.synchronize().unwrap();
                break;
            }
        };
        let at = stamp();
        recv.read(&stream, &mut got).unwrap();
        let right = bytemuck::cast_slice::<f32, u8>(&got) == want;
        match met {
            Ok(()) => assert!(right, "call {call} was said to be right"),
            Err(error) => {
                rank.say(format_args!("failed {at}"));
                rank.say(format_args!("error {error}"));
                let failed = is_failed_output(&recv, &stream);
                assert!(right || failed, "call {call}: neither the result nor 0xFF after: {error}");
                rank.say(format_args!("output {}", if failed { "0xFF" } else { "whole" }));
                assert_eq!(comm.fault(), Some(error));
                break;
            }
        }
    }
    drop((send, recv, stream, comm));
    rank.say("freed all");
}

/// Kills `dead` some time after the ranks were started, from outside.
fn kill_at_random(test: &str, n: usize, moments: u64) {
    let mut took = Vec::new();
    for moment in 0..moments {
        let dead = (moment % n as u64) as usize;
        let group = Group::new(test, n).limit(Duration::from_secs(30));
        let (ended, killed) = group.run_with(stream_of_calls, |running| {
            running.wait_for_line(dead, "started", Duration::from_secs(20));
            let random = u64::from(data::word(n as u64, 0, moment));
            std::thread::sleep(Duration::from_micros(20_000 + random % 60_000));
            let killed = stamp();
            running.signal(dead, Signal::SIGKILL);
            (running.wait(), killed)
        });
        for (rank, ended) in ended.iter().enumerate().filter(|(rank, _)| *rank != dead) {
            assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
            let error = ended.said("error");
            let error = error.first().unwrap();
            assert!(error.contains(&format!("rank {dead} is gone")), "rank {rank}: {error}");
            took.push(Duration::from_nanos(ended.stamped("failed") - killed));
        }
    }
    took.sort_unstable();
    eprintln!("{test}: median {:.1?}, all {took:.1?}", took[took.len() / 2]);
    assert!(took[took.len() / 2] <= LATENCY, "{took:?}");
    assert!(took[took.len() - 1] <= LATENCY_UNDER_LOAD, "{took:?}");
}

#[test]
fn two_ranks_killed_at_random_moments() {
    kill_at_random("two_ranks_killed_at_random_moments", 2, 12);
}

#[test]
fn four_ranks_killed_at_random_moments() {
    kill_at_random("four_ranks_killed_at_random_moments", 4, 8);
}
