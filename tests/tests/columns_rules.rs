//! mHC boundaries by columns where a rank dies, aborts or doesn't come, and where tags begin anew in every call.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::{Algorithm, Config, OnError, TransportChoice};
use ccl_core::mhc::{Design, Params, Variant};
use ccl_core::plan::mhc::Fused;
use ccl_core::{DataType, Error};
use ccl_tests::failure::{fault, stamp};
use ccl_tests::fused::{Case, Peer};
use ccl_tests::group::Ended;
use ccl_tests::{Group, Rank, local};
use ccl_ze::{Communicator, Completion, hooks};
use half::bf16;
use nix::sys::signal::Signal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// From what went wrong to the error in the caller's hands, and from there to an output that is filled.
const LATENCY: Duration = Duration::from_secs(3);
/// How long a rank waits to be told of another's failure.
const PATIENCE: Duration = Duration::from_secs(40);
/// Which rules the ranks of a test go without.
const HOOKS: &str = "TEST_HOOKS";

fn case(rows: u64, seed: u64) -> Case {
    let params = Params::new(Variant::V4, DataType::Bfloat16, rows, 384, 4);
    Case { params, seed, in_place: false, x_out: Some(false) }
}

/// With room for the case, which goes by columns.
fn peer(comm: Communicator, case: &Case) -> Peer {
    let plan = comm.plan_mhc(&case.params, Fused::Whole).unwrap();
    assert!(plan.columns, "{plan}");
    Peer::new(comm, case.bytes())
}

/// Writes the inputs and calls.
fn issue(peer: &mut Peer, case: &Case) -> Completion {
    peer.memory.write(&peer.stream, &case.before::<bf16>(peer.comm.rank())).unwrap();
    peer.issue(case, Design::A).unwrap()
}

/// What is wrong with the memory of a rank whose call has failed.
fn unlike_failed(peer: &Peer, case: &Case) -> Option<String> {
    peer.unlike_failed::<bf16>(case, &case.written::<bf16>(3), LATENCY)
}

/// Rank 1 dies after a first call of all; rank 0 waits in the second one, and so does rank 1 if it is `inside`, for rank 2,
/// which never comes. What rank 0 found wrong with its memory.
fn a_rank_dies(test: &str, inside: bool, hooks: u32, aborts: bool) -> Option<String> {
    let case = case(3, 5);
    let body = |rank: Rank| {
        let start = StartState { hooks: std::env::var(HOOKS).unwrap().parse().unwrap(), ..StartState::default() };
        let aborts = std::env::var("TEST_ABORTS").unwrap() == "true";
        hooks::NO_ABORT.store(!aborts, Ordering::Relaxed);
        let comm = rank.builder().start(start).init(&rank.id, rank.rank, rank.n).unwrap();
        let mut peer = peer(comm, &case);
        let (written, image) = (case.written::<bf16>(rank.n), peer.run::<bf16>(&case, Design::A).unwrap());
        assert_eq!(case.wrong::<bf16>(rank.rank, &written, &image), None);
        let calls = rank.rank == 0 || rank.rank == 1 && std::env::var("TEST_INSIDE").unwrap() == "true";
        let done = calls.then(|| issue(&mut peer, &case));
        rank.say("calls");
        // A call that isn't told to end isn't waited for. Rank 1 is killed meanwhile.
        let error = match done {
            Some(done) if aborts => done.wait().unwrap_err(),
            _ => fault(&peer.comm, PATIENCE),
        };
        rank.mark("failed");
        if rank.rank == 0 {
            assert_eq!(peer.issue(&case, Design::A).map(drop), Err(error.clone()), "it stays so");
            rank.say(format_args!("found {:?}", unlike_failed(&peer, &case)));
        }
        assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
        rank.say("ends");
        // A communicator would wait for a call that nobody ends.
        std::process::exit(0);
    };
    let group = Group::new(test, 3).limit(Duration::from_secs(60)).env("CCLX_TRANSPORT", "lines");
    let group = group.env("CCL_ALLREDUCE", "oneshot").env("CCLX_TIMEOUT_MS", 30_000);
    let group = group.env(HOOKS, hooks).env("TEST_ABORTS", aborts).env("TEST_INSIDE", inside);
    let (ended, killed) = group.run_with(body, |running| {
        (0..3).for_each(|rank| running.wait_for_line(rank, "calls", Duration::from_secs(30)));
        std::thread::sleep(Duration::from_millis(50));
        let killed = stamp();
        running.signal(1, Signal::SIGKILL);
        (running.wait(), killed)
    });
    for (rank, ended) in ended.iter().enumerate().filter(|(rank, _)| *rank != 1) {
        assert!(ended.status.success() && ended.output.contains("ends"), "rank {rank}: {}", ended.output);
        let took = Duration::from_nanos(ended.stamped("failed") - killed);
        assert!(took <= LATENCY, "rank {rank} was told after {took:?}");
    }
    found(&ended[0])
}

fn found(ended: &Ended) -> Option<String> {
    let said = ended.said("found");
    (said != ["None"]).then(|| said.join(", "))
}

#[test]
fn a_rank_that_dies_before_its_call_is_named() {
    assert_eq!(a_rank_dies("a_rank_that_dies_before_its_call_is_named", false, 0, true), None);
}

#[test]
fn a_rank_that_dies_inside_its_call_is_named() {
    assert_eq!(a_rank_dies("a_rank_that_dies_inside_its_call_is_named", true, 0, true), None);
}

/// NEGATIVE CONTROL: a y that nobody fills is noticed, and so is a call that goes on waiting.
#[test]
fn an_output_that_is_not_filled_is_noticed() {
    let test = "an_output_that_is_not_filled_is_noticed";
    // Which of them it is the ranks are told by their parent.
    for (hooks, aborts) in [(hooks::NO_FILL, true), (0, false)] {
        let found = a_rank_dies(test, true, hooks, aborts);
        assert!(found.is_some_and(|found| found.contains("tensor Some(14)")), "{hooks} {aborts}: nobody noticed");
    }
}

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 4).env("ZE_SOFT_COMPUTE_UNITS", 8)
}

fn config(timeout: Duration) -> Config {
    Config {
        transport: TransportChoice::Lines,
        allreduce: Algorithm::OneShot,
        push_tiles: 8,
        on_error: Some(OnError::Log),
        timeout,
        ..Config::default()
    }
}

/// Rank 1 leaves the others alone in their second call; it aborts, or stays away until they have given up.
#[test]
fn a_rank_that_aborts_or_stays_away_is_told_of() {
    process("a_rank_that_aborts_or_stays_away_is_told_of").run(|_| {
        for (aborts, timeout) in [(true, Duration::from_secs(60)), (false, Duration::from_secs(3))] {
            let case = case(3, 7);
            local::ranks(3, &config(timeout), &StartState::default(), |comm| {
                let mut peer = peer(comm, &case);
                peer.run::<bf16>(&case, Design::A).unwrap();
                if peer.comm.rank() == 1 {
                    if aborts {
                        std::thread::sleep(Duration::from_millis(50));
                        peer.comm.abort("the test wants it so");
                    }
                    fault(&peer.comm, PATIENCE);
                    return;
                }
                let since = Instant::now();
                let error = issue(&mut peer, &case).wait().unwrap_err();
                assert!(since.elapsed() < timeout + LATENCY, "{error}");
                let text = error.to_string();
                match aborts {
                    true => assert!(text.starts_with("aborted: the test wants it so, as rank 1 tells"), "{text}"),
                    false => {
                        assert!(matches!(error, Error::Timeout { .. }) && text.contains("rank 1"), "{text}");
                    }
                }
                assert_eq!(unlike_failed(&peer, &case), None);
            });
        }
    });
}

/// Calls by columns of changing sizes whose tags begin anew in nearly each of them, to which rank 1 comes late: how many
/// were wrong.
fn wrong_calls(n: usize, tag_limit: u32, granule: u32, hooks: u32) -> usize {
    let cases: Vec<Case> = (0..16).map(|seed| case([1, 3, 2, 4][seed % 4], seed as u64)).collect();
    let written: Vec<_> = cases.iter().map(|case| case.written::<bf16>(n)).collect();
    let config = Config { granule, ..config(Duration::from_secs(5)) };
    let start = StartState { tag_limit, hooks, ..StartState::default() };
    let wrong = local::ranks(n, &config, &start, |comm| {
        let mut peer = peer(comm, &cases[3]);
        let rank = peer.comm.rank();
        let mut wrong = 0;
        for (case, written) in cases.iter().zip(&written) {
            let plan = peer.comm.plan_mhc(&case.params, Fused::Whole).unwrap();
            assert!(plan.columns && plan.groups > plan.reduce.wires, "{plan}");
            if rank == 1 {
                std::thread::sleep(Duration::from_millis(5));
            }
            match peer.run::<bf16>(case, Design::A) {
                Ok(image) => wrong += usize::from(case.wrong::<bf16>(rank, written, &image).is_some()),
                Err(_) => return wrong + 1,
            }
        }
        wrong
    });
    wrong.into_iter().sum()
}

/// NEGATIVE CONTROL within: what isn't cleared is taken for the call's own.
#[test]
fn tags_begin_anew_in_every_call() {
    process("tags_begin_anew_in_every_call").run(|_| {
        for (n, tag_limit, granule) in [(2, 1, 64), (3, 2, 16), (4, 3, 8)] {
            assert_eq!(wrong_calls(n, tag_limit, granule, 0), 0, "{n} ranks");
            assert!(wrong_calls(n, tag_limit, granule, hooks::NO_CLEARING) > 0, "{n} ranks: nobody noticed");
        }
    });
}
