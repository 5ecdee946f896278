//! Ranks that stop, stray or give up: the others' calls end in time with an error that says who and where.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::bootstrap::RootOptions;
use ccl_core::{DataType, Error, ReduceOp};
use ccl_tests::failure::{check_latency, check_poisoned, check_sticky, failing_call, fault, is_failed_output, stamp};
use ccl_tests::group::{Ended, Running};
use ccl_tests::{Group, Rank, data};
use ccl_ze::{Buffer, Communicator, Stream};
use nix::sys::signal::Signal;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(1000);
const ATTEMPTS: usize = 3;

fn group(test: &str, n: usize) -> Group {
    Group::new(test, n).env("CCLX_TIMEOUT_MS", TIMEOUT.as_millis()).limit(Duration::from_secs(60))
}

/// What a rank works with, after one call that went well.
fn start(rank: &Rank, count: usize) -> (Communicator, Stream, Buffer<f32>) {
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    let mut buffer = comm.alloc::<f32>(count).unwrap();
    buffer.write(&stream, &vec![1.0; count]).unwrap();
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
    (comm, stream, buffer)
}

fn all_succeeded(ended: &[Ended]) {
    for (rank, ended) in ended.iter().enumerate() {
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
    }
}

fn between(ended: &Ended, from: &str, to: &str) -> Duration {
    Duration::from_nanos(ended.stamped(to).checked_sub(ended.stamped(from)).expect("stamps in order"))
}

/// The first call that fails, however many go well before it.
fn until_failure(rank: &Rank, comm: &Communicator, buffer: &mut Buffer<f32>, stream: &Stream) -> Error {
    loop {
        let entered = stamp();
        let met = comm.all_reduce_in_place(buffer, ReduceOp::Sum, stream).and_then(|done| done.wait());
        if let Err(error) = met {
            rank.mark("failed");
            rank.say(format_args!("entered {entered}"));
            rank.say(format_args!("error {error}"));
            return error;
        }
    }
}

fn stopped(running: &Running, rank: usize) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.pid(rank))).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// Stops rank 1 in a stream of calls, lets it go on once the others have failed, and looks at what all of them met.
fn stop(test: &str, n: usize) {
    let mut took = Vec::new();
    for _ in 0..ATTEMPTS {
        let body = |rank: Rank| {
            let (comm, stream, mut buffer) = start(&rank, 100_000);
            rank.say("started");
            let error = until_failure(&rank, &comm, &mut buffer, &stream);
            // The stopped rank may have been between two calls; the others are stuck in one.
            assert!(rank.rank == 1 || is_failed_output(&buffer, &stream));
            check_sticky(&comm, &mut buffer, &stream, &error);
            drop((buffer, stream, comm));
            rank.say("freed all");
        };
        let (ended, pid) = group(test, n).run_with(body, |running| {
            running.wait_for_line(1, "started", Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(30));
            running.signal(1, Signal::SIGSTOP);
            let pid = running.pid(1);
            std::thread::sleep(2 * TIMEOUT + Duration::from_millis(500));
            assert!(stopped(&running, 1), "rank 1 is stopped");
            running.signal(1, Signal::SIGCONT);
            (running.wait(), pid)
        });
        all_succeeded(&ended);
        for (rank, ended) in ended.iter().enumerate() {
            let error = ended.said("error")[0];
            assert!(error.contains(&format!("rank 1 (process {pid}) does not answer")), "rank {rank}: {error}");
            assert!(error.starts_with("timed out after 1s: "), "rank {rank}: {error}");
            assert!(ended.output.contains("freed all"));
        }
        let others = ended.iter().enumerate().filter(|(rank, _)| *rank != 1);
        took.extend(others.map(|(_, ended)| between(ended, "entered", "failed")));
        // Not before the time is up for one of them, and not long after.
        assert!(took.iter().any(|took| *took >= TIMEOUT), "{took:?}");
        if took.iter().all(|took| *took <= TIMEOUT + Duration::from_millis(400)) {
            break;
        }
    }
    check_latency(test, &took, TIMEOUT + Duration::from_millis(400), 3 * TIMEOUT);
}

#[test]
fn two_ranks_one_is_stopped() {
    stop("two_ranks_one_is_stopped", 2);
}

#[test]
fn four_ranks_one_is_stopped() {
    stop("four_ranks_one_is_stopped", 4);
}

#[test]
fn a_rank_that_skips_a_call_is_named() {
    let body = |rank: Rank| {
        let (comm, stream, mut buffer) = start(&rank, 1000);
        if rank.rank == 2 {
            // It comes to its next call when the others have long given up.
            std::thread::sleep(2 * TIMEOUT);
        }
        rank.mark("entered");
        let error = failing_call(&rank, &comm, &mut buffer, &stream);
        if rank.rank == 2 {
            // It never got to enqueue anything, so its data is as it was.
            assert!(!is_failed_output(&buffer, &stream));
        } else {
            check_poisoned(&comm, &mut buffer, &stream, &error);
        }
    };
    let ended = group("a_rank_that_skips_a_call_is_named", 3).run_with(body, Running::wait);
    all_succeeded(&ended);
    for ended in &ended {
        let error = ended.said("error")[0];
        let wanted = "rank 2 has not entered all_reduce #2 (1000 float32 sum) (it finished #1)";
        assert!(error.starts_with("timed out after 1s") && error.contains(wanted), "{error}");
    }
    let took: Vec<_> = ended[..2].iter().map(|ended| between(ended, "entered", "failed")).collect();
    check_latency("skipped call", &took, TIMEOUT + Duration::from_millis(400), 3 * TIMEOUT);
}

#[test]
fn ranks_with_different_counts_end_in_time() {
    let body = |rank: Rank| {
        let (comm, stream, _) = start(&rank, 1000);
        // In rounds and lines of which the other rank has fewer.
        let mut buffer = comm.alloc::<f32>(if rank.rank == 0 { 4_000_000 } else { 1000 }).unwrap();
        buffer.write(&stream, &vec![1.0; buffer.len()]).unwrap();
        rank.mark("entered");
        if rank.rank == 0 {
            let error = failing_call(&rank, &comm, &mut buffer, &stream);
            check_poisoned(&comm, &mut buffer, &stream, &error);
        } else {
            let error = until_failure_of(&comm, &mut buffer, &stream);
            rank.mark("failed");
            rank.say(format_args!("error {error}"));
        }
    };
    let ended = group("ranks_with_different_counts_end_in_time", 2).run_with(body, Running::wait);
    all_succeeded(&ended);
    for ended in &ended {
        let error = ended.said("error")[0];
        assert!(error.starts_with("timed out after 1s"), "{error}");
        assert!(error.contains("all_reduce #2"), "{error}");
        assert!(error.contains("(4000000 float32 sum)") || error.contains("(1000 float32 sum)"), "{error}");
        assert!(between(ended, "entered", "failed") <= 4 * TIMEOUT);
    }
}

/// Without the checked mode a rank with the smaller count may get through its call; the communicator fails all the
/// same.
fn until_failure_of(comm: &Communicator, buffer: &mut Buffer<f32>, stream: &Stream) -> Error {
    let met = comm.all_reduce_in_place(buffer, ReduceOp::Sum, stream).unwrap().wait();
    match met {
        Err(error) => error,
        Ok(()) => loop {
            if let Some(fault) = comm.fault() {
                break fault;
            }
            std::thread::sleep(Duration::from_millis(1));
        },
    }
}

#[test]
fn opposite_orders_of_two_communicators_end_in_time() {
    const COUNT: usize = 5000;
    let body = |rank: Rank| {
        let (first, stream, _) = start(&rank, COUNT);
        let second = second_communicator(&rank, &first, &stream);
        let other = second.stream(1).unwrap();
        let inputs: Vec<_> = (0..2).map(|rank| data::ordinary(DataType::Float32, 9, rank, COUNT)).collect();
        let want = data::expected(DataType::Float32, &inputs, None);
        let mut buffers = [first.alloc::<f32>(COUNT).unwrap(), second.alloc::<f32>(COUNT).unwrap()];
        for buffer in &mut buffers {
            buffer.write(&stream, bytemuck::cast_slice(&inputs[rank.rank])).unwrap();
        }
        let [a, b] = &mut buffers;
        rank.mark("entered");
        let (a, b) = if rank.rank == 0 {
            let a = first.all_reduce_in_place(a, ReduceOp::Sum, &stream).unwrap();
            (a, second.all_reduce_in_place(b, ReduceOp::Sum, &other).unwrap())
        } else {
            let b = second.all_reduce_in_place(b, ReduceOp::Sum, &other).unwrap();
            (first.all_reduce_in_place(a, ReduceOp::Sum, &stream).unwrap(), b)
        };
        let met = [a.wait(), b.wait()];
        rank.mark("failed");
        for (met, buffer) in met.iter().zip(&buffers) {
            let mut got = vec![0f32; COUNT];
            buffer.read(&stream, &mut got).unwrap();
            match met {
                Ok(()) => assert_eq!(bytemuck::cast_slice::<f32, u8>(&got), want, "said to be right"),
                Err(error) => {
                    rank.say(format_args!("error {error}"));
                    // Who gave up had sent its own input before: the other may have found all that it needs.
                    let whole = bytemuck::cast_slice::<f32, u8>(&got) == want;
                    assert!(whole || got.iter().all(|x| x.to_bits() == u32::MAX), "the output after: {error}");
                }
            }
        }
    };
    let ended = group("opposite_orders_of_two_communicators_end_in_time", 2).run_with(body, Running::wait);
    all_succeeded(&ended);
    for (rank, ended) in ended.iter().enumerate() {
        let errors = ended.said("error");
        assert!(!errors.is_empty(), "rank {rank}: {}", ended.output);
        for error in errors {
            eprintln!("opposite orders, rank {rank}: {error}");
            assert!(error.starts_with("timed out after 1s"), "rank {rank}: {error}");
            // Both collectives, and both communicators.
            let stuck = error.contains(" has not entered all_reduce #") && error.contains(" and is in all_reduce #");
            assert!(stuck && error.matches("communicator ").count() == 2, "rank {rank}: {error}");
        }
        assert!(between(ended, "entered", "failed") <= 4 * TIMEOUT);
    }
}

/// Another communicator of the same ranks. Its id travels through the first one.
fn second_communicator(rank: &Rank, first: &Communicator, stream: &Stream) -> Communicator {
    let id = ccl_tests::failure::share_id(rank, first, stream, RootOptions::default());
    rank.builder().init(&id, rank.rank, rank.n).unwrap()
}

#[test]
fn abort_frees_local_waiters_and_tells_the_others() {
    let body = |rank: Rank| {
        let (comm, stream, mut buffer) = start(&rank, 100_000);
        match rank.rank {
            0 => {
                let aborter = std::thread::spawn({
                    let comm = comm.clone();
                    let rank = Rank { rank: 0, n: rank.n, id: rank.id };
                    move || {
                        std::thread::sleep(Duration::from_millis(200));
                        rank.mark("aborted");
                        comm.abort("the user changed his mind");
                    }
                });
                let error = failing_call(&rank, &comm, &mut buffer, &stream);
                assert_eq!(error, Error::Aborted("the user changed his mind".into()));
                check_poisoned(&comm, &mut buffer, &stream, &error);
                aborter.join().unwrap();
            }
            1 => {
                let error = failing_call(&rank, &comm, &mut buffer, &stream);
                assert!(matches!(error, Error::Aborted(_)), "{error}");
                check_poisoned(&comm, &mut buffer, &stream, &error);
            }
            _ => {
                let error = fault(&comm, Duration::from_secs(60));
                rank.mark("failed");
                rank.say(format_args!("error {error}"));
            }
        }
    };
    let ended = group("abort_frees_local_waiters_and_tells_the_others", 3).run_with(body, Running::wait);
    all_succeeded(&ended);
    let aborted = ended[0].stamped("aborted");
    let took: Vec<_> =
        ended.iter().map(|e| Duration::from_nanos(e.stamped("failed").saturating_sub(aborted))).collect();
    check_latency("abort", &took, Duration::from_millis(200), Duration::from_secs(1));
    for (rank, ended) in ended.iter().enumerate().skip(1) {
        // A rank that has heard of it tells it on, and may be heard first. Whose abort it was is told all the same.
        let first = "aborted: the user changed his mind, as rank 0 tells".to_owned();
        let on = format!("{first}, as rank {} tells", 3 - rank);
        let error = ended.said("error");
        assert!(error == [first] || error == [on], "rank {rank}: {error:?}");
    }
}
