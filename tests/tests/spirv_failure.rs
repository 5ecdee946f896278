//! The device kernels' SPIR-V when a peer fails: the survivors' kernels come to an end, and leave 0xFF behind.
//! Run by `.ci/beds/opencl-tests.sh`.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::{Error, ReduceOp};
use ccl_tests::failure::{check_poisoned, check_sticky, die, failing_call};
use ccl_tests::group::Ended;
use ccl_tests::{Group, Rank, spirv};
use ccl_ze::{Buffer, Communicator, Stream};
use std::time::Duration;

/// One wire's worth: a call's hops take long where many ranks share a core, and long is not what is tested here.
const COUNT: usize = 4_000;
/// Four wires' worth.
const LARGE: usize = 40_000;
/// The rank that leaves the others alone.
const ABSENT: usize = 1;
/// From what went wrong to the error in the caller's hands, on cores that have more than enough to do.
const LATENCY: Duration = Duration::from_secs(5);

fn group(test: &str, n: usize) -> Group {
    // A form that is asked for needs no test of lines at init.
    spirv::group(test, n).env("CCLX_GRANULE", 64)
}

/// Elements of a call, where a test wants so many.
const ELEMENTS: &str = "TEST_ELEMENTS";

/// Elements of a call: more than one wire's where the processor has few ranks to run.
fn count(n: usize) -> usize {
    let wanted = std::env::var(ELEMENTS).ok().map(|elements| elements.parse().unwrap());
    wanted.unwrap_or(if n == 2 { LARGE } else { COUNT })
}

/// What a rank works with, after one call that went well.
fn start(rank: &Rank) -> (Communicator, Stream, Buffer<f32>) {
    let comm = spirv::communicator(rank, StartState::default());
    let stream = comm.stream(0).unwrap();
    let count = count(rank.n);
    let mut buffer = comm.alloc::<f32>(count).unwrap();
    buffer.write(&stream, &vec![1.0; count]).unwrap();
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
    let mut sum = vec![0.0; count];
    buffer.read(&stream, &mut sum).unwrap();
    assert_eq!(sum, vec![rank.n as f32; count]);
    (comm, stream, buffer)
}

/// A call that waits for the absent rank, and what is left of it.
fn survive(rank: &Rank, is: fn(&Error) -> bool) {
    let (comm, stream, mut buffer) = start(rank);
    rank.mark("calls");
    let error = failing_call(rank, &comm, &mut buffer, &stream);
    assert!(is(&error), "{error:?}");
    check_poisoned(&comm, &mut buffer, &stream, &error);
    drop((buffer, stream, comm));
    rank.say("freed all");
}

fn check_survivors(ended: &[Ended], since: impl Fn(&Ended) -> u64, limit: Duration) {
    for (rank, ended) in ended.iter().enumerate().filter(|(rank, _)| *rank != ABSENT) {
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        assert!(ended.output.contains("freed all"), "rank {rank}: {}", ended.output);
        let took = Duration::from_nanos(ended.stamped("failed") - since(ended));
        assert!(took <= limit, "rank {rank} was told after {took:?}");
    }
}

/// The loader's log of a process that is killed is cut off, which the loader bed calls a finding: so these ranks use
/// the driver that is linked in.
fn kill(test: &str, n: usize) {
    let body = |rank: Rank| match rank.rank {
        ABSENT => {
            let _all = start(&rank);
            std::thread::sleep(Duration::from_millis(300));
            rank.mark("dies");
            die()
        }
        _ => survive(&rank, |error| matches!(error, Error::PeerLost { rank: ABSENT, .. })),
    };
    let ended = group(test, n).env("CCLX_DEVICE", "soft").run_with(body, |running| running.wait());
    let died = ended[ABSENT].stamped("dies");
    check_survivors(&ended, |_| died, LATENCY);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_killed_peer_of_one() {
    kill("a_killed_peer_of_one", 2);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_killed_peer_of_three() {
    kill("a_killed_peer_of_three", 4);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_peer_that_aborts() {
    aborts(group("a_peer_that_aborts", 3));
}

/// Most work-items of a sub-group have no line to wait for then, and all have to give up together.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_peer_that_aborts_a_short_message() {
    let group = spirv::group("a_peer_that_aborts_a_short_message", 3);
    aborts(group.env("CCLX_GRANULE", 16).env("CCL_ALLREDUCE", "oneshot").env(ELEMENTS, 10));
}

fn aborts(group: Group) {
    let body = |rank: Rank| match rank.rank {
        ABSENT => {
            let (comm, stream, buffer) = start(&rank);
            std::thread::sleep(Duration::from_millis(300));
            rank.mark("aborts");
            comm.abort("the test wants it so");
            drop((buffer, stream, comm));
        }
        _ => survive(&rank, |error| error.to_string().contains("the test wants it so")),
    };
    let ended = group.run_with(body, |running| running.wait());
    assert!(ended[ABSENT].status.success(), "{}", ended[ABSENT].output);
    let aborted = ended[ABSENT].stamped("aborts");
    check_survivors(&ended, |_| aborted, LATENCY);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_peer_that_does_not_come() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let body = |rank: Rank| match rank.rank {
        ABSENT => {
            let (comm, ..) = start(&rank);
            // Until the others have given up, whose fault arrives here.
            while comm.fault().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        _ => survive(&rank, |error| matches!(error, Error::Timeout { .. })),
    };
    let group = group("a_peer_that_does_not_come", 3).env("CCLX_TIMEOUT_MS", TIMEOUT.as_millis());
    let ended = group.run_with(body, |running| running.wait());
    check_survivors(&ended, |ended| ended.stamped("calls"), TIMEOUT + LATENCY);
}

/// Checked, every rank is told who made another call; unchecked, it would be wrong data.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_peer_that_makes_another_call() {
    let body = |rank: Rank| {
        let (comm, stream, mut buffer) = start(&rank);
        let at = buffer.as_ptr().cast::<std::ffi::c_void>();
        let elements = count(rank.n) - usize::from(rank.rank == ABSENT);
        let request = comm.request(elements as u64, ccl_core::DataType::Float32, ReduceOp::Sum);
        // SAFETY: the buffer holds more and lives until the wait.
        let error = unsafe { comm.all_reduce_raw(&request, at, at, &stream, &[]).unwrap().wait().unwrap_err() };
        assert!(matches!(error, Error::InvalidUsage(_)), "{error:?}");
        let named = format!("ranks disagree on call #2: rank 1 made it with {} float32 sum", count(rank.n) - 1);
        assert!(error.to_string().contains(&named), "{error}");
        // The odd rank's own output is an element shorter than its buffer.
        let check = if rank.rank == ABSENT { check_sticky } else { check_poisoned };
        check(&comm, &mut buffer, &stream, &error);
    };
    group("a_peer_that_makes_another_call", 3).env("CCLX_CHECK", "global").run(body);
}
