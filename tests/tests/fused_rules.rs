//! Fused mHC calls: their steps are the plan's, each rule that they rest on is needed, and they fail as other calls do.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::{Check, Config, OnError, TransportChoice};
use ccl_core::mhc::{Design, Params, Variant};
use ccl_core::plan::mhc::Fused;
use ccl_core::{DataType, Error};
use ccl_tests::fused::{Case, Peer};
use ccl_tests::local::{self, sum};
use ccl_tests::{Group, data};
use ccl_ze::{Buffer, CallOptions, Communicator, hooks, twins};
use half::bf16;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 8).env("ZE_SOFT_COMPUTE_UNITS", 8)
}

fn case(rows: u64, hidden: u64, seed: u64) -> Case {
    let params = Params::new(Variant::V4, DataType::Bfloat16, rows, hidden, 4);
    Case { params, seed, in_place: false, x_out: None }
}

const TRANSPORTS: [TransportChoice; 2] = [TransportChoice::Bulk, TransportChoice::Lines];

fn config(transport: TransportChoice) -> Config {
    Config {
        transport,
        push_tiles: 8,
        bulk_bytes: 24 << 10,
        on_error: Some(OnError::Log),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

/// Calls with data of their own, mixed with plain all-reduces; how many were wrong on any rank.
fn wrong_calls(n: usize, config: &Config, start: &StartState, rows: &[u64]) -> usize {
    wrong_calls_by(Design::C, n, config, start, rows)
}

fn wrong_calls_by(design: Design, n: usize, config: &Config, start: &StartState, rows: &[u64]) -> usize {
    let cases: Vec<Case> = (0..).zip(rows).map(|(seed, rows)| case(*rows, 384, seed)).collect();
    let written: Vec<_> = cases.iter().map(|case| case.written::<bf16>(n)).collect();
    let capacity = cases.iter().map(Case::bytes).max().unwrap().max(1 << 16);
    let wrong = local::ranks(n, config, start, |comm| {
        let rank = comm.rank();
        let mut plain = local::Peer::new(comm, capacity);
        let (stream, memory) = (plain.comm.stream(0).unwrap(), plain.comm.alloc(capacity).unwrap());
        plain.comm.prepare_mhc().unwrap();
        let mut wrong = 0;
        for (i, (case, written)) in cases.iter().zip(&written).enumerate() {
            let mut image = case.before::<bf16>(rank);
            put(&memory, &image);
            let options = CallOptions { after: &[], signal: None };
            let buffers = case.buffers(memory.as_ptr());
            // SAFETY: the memory holds the tensors and lives until the wait.
            let done = unsafe { plain.comm.all_reduce_mhc(&case.params, &buffers, design, &stream, options) };
            if done.and_then(|done| done.wait()).is_err() {
                // A communicator that has failed stays so.
                return wrong + 1;
            }
            take(&memory, &mut image);
            wrong += usize::from(case.wrong::<bf16>(rank, written, &image).is_some());
            if i % 3 == 2 {
                let request = sum(DataType::Bfloat16, 100 + 37 * i % 900);
                let input = |r| data::ordinary(request.dtype, i as u64, r, request.count as usize);
                let inputs: Vec<_> = (0..n).map(input).collect();
                let got = plain.reduce(&request, &inputs[rank], false).unwrap();
                let want = data::expected(request.dtype, &inputs, None);
                wrong += usize::from(data::first_difference(&got, &want, request.dtype).is_some());
            }
        }
        wrong
    });
    wrong.into_iter().sum()
}

/// Writes `image` to device memory.
fn put(memory: &Buffer<u8>, image: &[u8]) {
    // SAFETY: the software device's memory is the host's, it has room for the image, and nothing else uses it now.
    unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), memory.as_ptr(), image.len()) };
}

/// Reads it back.
fn take(memory: &Buffer<u8>, image: &mut [u8]) {
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(memory.as_ptr(), image.as_mut_ptr(), image.len()) };
}

#[test]
fn steps_are_the_plans() {
    process("steps_are_the_plans").run(|_| {
        for (transport, n) in [(TransportChoice::Bulk, 2), (TransportChoice::Lines, 3)] {
            let start = StartState { hooks: hooks::TRACE, ..StartState::default() };
            let compared = local::ranks(n, &config(transport), &start, |comm| {
                let rank = comm.rank();
                let mut peer = Peer::new(comm, case(64, 1056, 0).bytes());
                let mut compared = 0;
                for (rows, hidden) in [(1, 4096), (17, 1056), (3, 64), (64, 384)] {
                    let case = case(rows, hidden, 1);
                    let plan = peer.comm.plan_mhc(&case.params, Fused::Owner).unwrap();
                    plan.verify().unwrap();
                    peer.run::<bf16>(&case, Design::C).unwrap();
                    let (steps, planned) = (twins::trace::take_mhc(rank), plan.steps(rank).collect::<Vec<_>>());
                    assert_eq!(steps, planned, "rank {rank} of {plan}");
                    compared += steps.len();
                }
                compared
            });
            assert!(compared.iter().all(|steps| *steps > 30), "{compared:?}");
        }
    });
}

/// Calls of changing sizes one after another, with plain ones between and tags that begin anew all the time.
#[test]
fn calls_follow_one_another() {
    process("calls_follow_one_another").run(|_| {
        let rows: Vec<u64> = (0..90).map(|i| [1, 30, 2, 9, 64, 3][i % 6]).collect();
        for transport in TRANSPORTS {
            for (n, tag_limit) in [(2, u32::MAX - 1), (3, 16), (4, 23)] {
                let start = StartState { tag_limit, base: tag_limit - 3, ..StartState::default() };
                assert_eq!(wrong_calls(n, &config(transport), &start, &rows), 0, "{transport:?} {n}");
            }
        }
    });
}

/// The same by columns, with forms that are not, and with all-reduces that use the same slots otherwise.
#[test]
fn calls_by_columns_follow_one_another() {
    process("calls_by_columns_follow_one_another").run(|_| {
        let rows: Vec<u64> = (0..60).map(|i| [1, 2, 30, 4, 1, 3][i % 6]).collect();
        for (n, tag_limit, granule) in [(2, u32::MAX - 1, 64), (3, 16, 16), (4, 23, 8)] {
            let config = Config { granule, ..config(TransportChoice::Lines) };
            let start = StartState { tag_limit, base: tag_limit - 3, ..StartState::default() };
            let by_columns = local::ranks(n, &config, &start, |comm| {
                let by_columns = |rows: &u64| comm.plan_mhc(&case(*rows, 384, 0).params, Fused::Whole).unwrap().columns;
                rows.iter().map(by_columns).collect::<Vec<bool>>()
            });
            let expected: Vec<bool> = rows.iter().map(|rows| *rows != 30).collect();
            assert_eq!(by_columns, vec![expected; n]);
            assert_eq!(wrong_calls_by(Design::A, n, &config, &start, &rows), 0, "{granule} {n}");
        }
    });
}

/// NEGATIVE CONTROL: whose lines are overwritten before it has read them never finds them.
#[test]
fn columns_need_two_generations() {
    process("columns_need_two_generations").run(|_| {
        let config = Config { timeout: Duration::from_secs(3), ..config(TransportChoice::Lines) };
        let start = StartState { hooks: hooks::ONE_GENERATION, ..StartState::default() };
        assert!(wrong_calls_by(Design::A, 3, &config, &start, &[1; 8]) > 0, "nobody noticed");
    });
}

/// NEGATIVE CONTROL: whoever doesn't wait for the others' sums computes with those of a call before.
#[test]
fn sums_have_to_be_waited_for() {
    process("sums_have_to_be_waited_for").run(|_| {
        for transport in TRANSPORTS {
            let start = StartState { hooks: hooks::STALE_SUMS, ..StartState::default() };
            let wrong = wrong_calls(3, &config(transport), &start, &[5; 120]);
            assert!(wrong > 0, "{transport:?}: nobody noticed");
        }
    });
}

/// A forced design that can't be is refused before anything is enqueued; left to the library the call goes unfused.
#[test]
fn what_cannot_be_fused_is_refused_or_goes_unfused() {
    process("what_cannot_be_fused_is_refused_or_goes_unfused").run(|_| {
        let config = Config { bulk_bytes: 4096, transport: TransportChoice::Bulk, ..Config::default() };
        let wide = case(2, 5120, 3);
        let written = wide.written::<bf16>(2);
        local::ranks(2, &config, &StartState::default(), |comm| {
            let mut peer = Peer::new(comm, wide.bytes());
            let calls = peer.comm.level_zero_calls();
            for (design, words) in [(Design::C, "no room for a row"), (Design::B, "y needs the sums")] {
                let Err(Error::NotImplemented(text)) = peer.issue(&wide, design).map(drop) else { panic!("{design}") };
                assert!(text.contains(words), "{text}");
            }
            assert_eq!(peer.comm.level_zero_calls(), calls, "nothing is enqueued");
            let image = peer.run::<bf16>(&wide, Design::Auto).unwrap();
            assert_eq!(wide.wrong::<bf16>(peer.comm.rank(), &written, &image), None);
            // What can be is one call of the driver.
            let narrow = case(2, 64, 3);
            peer.run::<bf16>(&narrow, Design::Auto).unwrap();
            peer.memory.write(&peer.stream, &narrow.before::<bf16>(peer.comm.rank())).unwrap();
            let calls = peer.comm.level_zero_calls();
            let done = peer.issue(&narrow, Design::Auto).unwrap();
            assert_eq!(peer.comm.level_zero_calls() - calls, 1);
            done.wait().unwrap();
        });
    });
}

/// Without rows nothing is written by any design; a design that the variant can't have is refused on one rank, too.
#[test]
fn no_rows_and_one_rank() {
    process("no_rows_and_one_rank").run(|_| {
        local::ranks(2, &config(TransportChoice::Auto), &StartState::default(), |comm| {
            let rank = comm.rank();
            let none = case(0, 384, 1);
            let mut peer = Peer::new(comm, none.bytes());
            for design in [Design::Unfused, Design::A, Design::C, Design::Auto] {
                let image = peer.run::<bf16>(&none, design).unwrap();
                assert_eq!(image, none.before::<bf16>(rank), "{design}");
            }
            let Err(Error::NotImplemented(text)) = peer.issue(&none, Design::B).map(drop) else { panic!("b of v4") };
            assert!(text.contains("y needs the sums"), "{text}");
        });
        local::ranks(1, &config(TransportChoice::Auto), &StartState::default(), |comm| {
            let some = case(2, 384, 1);
            let mut peer = Peer::new(comm, some.bytes());
            let Err(Error::NotImplemented(text)) = peer.issue(&some, Design::B).map(drop) else { panic!("b of v4") };
            assert!(text.contains("y needs the sums"), "{text}");
            let delayed = Case { params: Params { variant: Variant::V41, ..some.params }, ..some };
            let image = peer.run::<bf16>(&delayed, Design::B).unwrap();
            assert_eq!(delayed.wrong::<bf16>(0, &delayed.written::<bf16>(1), &image), None);
        });
    });
}

/// Recorded once and replayed with other inputs: every replay has the bits of its own.
#[test]
fn replays_compute_with_what_is_there() {
    process("replays_compute_with_what_is_there").run(|_| {
        for transport in TRANSPORTS {
            assert_eq!(replays(3, &config(transport), 0), 0, "{transport:?}");
            assert!(replays(3, &config(transport), hooks::FROZEN_BASE) > 0, "{transport:?}: nobody noticed");
        }
    });
}

/// Two fused calls in a list, which is executed several times; how many executions were wrong.
fn replays(n: usize, config: &Config, hooks: u32) -> usize {
    const TURNS: u64 = 40;
    let first = case(9, 384, 0);
    let second = Case { params: Params { variant: Variant::V41, ..case(2, 1056, 0).params }, ..first };
    let of_turn = |turn| [Case { seed: 2 * turn, ..first }, Case { seed: 2 * turn + 1, ..second }];
    let written: Vec<_> = (0..TURNS).map(|turn| of_turn(turn).map(|case| case.written::<bf16>(n))).collect();
    let start = StartState { hooks, ..StartState::default() };
    let wrong = local::ranks(n, config, &start, |comm| {
        let rank = comm.rank();
        comm.prepare_mhc().unwrap();
        let stream = comm.stream(0).unwrap();
        let memory = [first, second].map(|case| comm.alloc::<u8>(case.bytes()).unwrap());
        let list = comm.command_list(0).unwrap();
        for (case, memory, design) in [(first, &memory[0], Design::C), (second, &memory[1], Design::B)] {
            let options = CallOptions { after: &[], signal: None };
            // SAFETY: the memory lives as long as the list.
            unsafe {
                let _recorded = comm
                    .all_reduce_mhc(&case.params, &case.buffers(memory.as_ptr()), design, list.stream(), options)
                    .unwrap();
            }
        }
        let list = list.close().unwrap();
        let mut wrong = 0;
        for (turn, written) in written.iter().enumerate() {
            let cases = of_turn(turn as u64);
            for (case, memory) in cases.iter().zip(&memory) {
                put(memory, &case.before::<bf16>(rank));
            }
            let options = CallOptions { after: &[], signal: None };
            // SAFETY: all that was recorded is alive.
            unsafe { list.execute(&stream, options).unwrap().wait().unwrap() };
            for ((case, memory), written) in cases.iter().zip(&memory).zip(written) {
                let mut image = vec![0; case.bytes()];
                take(memory, &mut image);
                wrong += usize::from(case.wrong::<bf16>(rank, written, &image).is_some());
            }
        }
        wrong
    });
    wrong.into_iter().sum()
}

/// Checked mode tells boundaries apart, not only sizes.
#[test]
fn a_rank_with_another_boundary_is_named() {
    process("a_rank_with_another_boundary_is_named").run(|_| {
        let config = Config { check: Check::Global, ..config(TransportChoice::Auto) };
        for (odd, design) in [
            (Params { sinkhorn_iterations: 19, ..case(3, 384, 0).params }, Design::C),
            (case(3, 384, 0).params, Design::A),
        ] {
            let outcomes = local::ranks(3, &config, &StartState::default(), |comm| {
                let usual = case(3, 384, comm.rank() as u64);
                let peer = Peer::new(comm, usual.bytes());
                put(&peer.memory, &usual.before::<bf16>(0));
                peer.issue(&usual, Design::C).unwrap().wait().unwrap();
                match peer.comm.rank() {
                    1 => peer.issue(&Case { params: odd, ..usual }, design),
                    _ => peer.issue(&usual, Design::C),
                }
                .and_then(|done| done.wait())
            });
            for outcome in outcomes {
                let text = outcome.unwrap_err().to_string();
                assert!(text.contains("ranks disagree on call #2: rank 1"), "{text}");
            }
        }
    });
}

/// A call that waits for a rank that never comes ends when it is told to, by name, and its y is no number.
#[test]
fn an_abort_ends_a_call_that_waits() {
    process("an_abort_ends_a_call_that_waits").run(|_| {
        for (transport, design) in [
            (TransportChoice::Bulk, Design::C),
            (TransportChoice::Lines, Design::C),
            (TransportChoice::Bulk, Design::A),
            (TransportChoice::Lines, Design::A),
        ] {
            local::ranks(2, &config(transport), &StartState::default(), |comm| {
                let case = case(3, 384, 5);
                let mut peer = Peer::new(comm, case.bytes());
                peer.run::<bf16>(&case, design).unwrap();
                let met = if peer.comm.rank() == 0 {
                    let done = peer.issue(&case, design).unwrap();
                    std::thread::sleep(Duration::from_millis(50));
                    peer.comm.abort("enough");
                    done.wait()
                } else {
                    // It never comes to the call before the other has given up.
                    let since = Instant::now();
                    while peer.comm.fault().is_none() && since.elapsed() < Duration::from_secs(15) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    peer.issue(&case, design).and_then(|done| done.wait())
                };
                let error = met.unwrap_err();
                assert!(error.to_string().contains("enough"), "{error}");
                assert_eq!(peer.issue(&case, design).map(drop), Err(error), "it stays so");
                if peer.comm.rank() == 0 {
                    // Read in the stream's order: the error may be here before the call has filled its output.
                    let mut image = vec![0; case.bytes()];
                    peer.memory.read(&peer.stream, &mut image).unwrap();
                    let y = case.buffers(std::ptr::null_mut()).y as usize;
                    let y = &image[y..y + 3 * 384 * 2];
                    assert!(y.iter().all(|byte| *byte == 0xFF), "an output that is no number");
                }
            });
        }
    });
}

/// A rank that dies while the other's fused call waits for its sums or its columns.
#[test]
fn a_rank_that_dies_is_named() {
    let ended = Group::new("a_rank_that_dies_is_named", 2).limit(Duration::from_secs(60)).run_with(
        |rank| {
            let comm: Communicator = rank.communicator();
            let case = case(3, 384, 5);
            let mut peer = Peer::new(comm, case.bytes());
            peer.run::<bf16>(&case, Design::C).unwrap();
            rank.say("ready");
            if rank.rank == 1 {
                // Killed once the other has its first result: a call that it still waits for would fail, too.
                std::thread::sleep(Duration::from_secs(60));
            }
            let since = Instant::now();
            let error = peer.issue(&case, Design::C).and_then(|done| done.wait()).unwrap_err();
            assert!(since.elapsed() < Duration::from_secs(20), "it ends in time");
            assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
            rank.say("survived");
        },
        |running| {
            for rank in 0..2 {
                running.wait_for_line(rank, "ready", Duration::from_secs(30));
            }
            running.signal(1, Signal::SIGKILL);
            running.wait()
        },
    );
    assert!(ended[0].status.success() && ended[0].output.contains("survived"), "{}", ended[0].output);
    assert!(!ended[1].status.success());
}
