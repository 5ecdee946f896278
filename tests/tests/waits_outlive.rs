//! A completion that outlives its communicator: the goodbye doesn't wait for it, and it still tells how the call ended.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::Config;
use ccl_core::{Error, ReduceOp};
use ccl_tests::failure::{die, fault};
use ccl_tests::{Group, Rank, local};
use nix::sys::signal::Signal;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const COUNT: usize = 5000;

/// How long after the other's end its absence would have been noticed many times over.
const LONGER: Duration = Duration::from_millis(700);

/// Rank 0 lets its communicator go, uses the completion and dies with it: that has to be nobody's failure.
#[test]
fn the_goodbye_does_not_wait_for_completions() {
    for n in [2, 3] {
        let body = |rank: Rank| {
            let comm = rank.communicator();
            let stream = comm.stream(0).unwrap();
            let mut buffer = comm.alloc::<f32>(COUNT).unwrap();
            buffer.write(&stream, &[1.0 + rank.rank as f32; COUNT]).unwrap();
            if rank.rank == 1 {
                // So that rank 0's call is in flight when its communicator goes.
                std::thread::sleep(Duration::from_millis(150));
            }
            let done = comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap();
            if rank.rank == 0 {
                drop(comm);
                for _ in 0..2 {
                    done.wait().unwrap();
                    assert_eq!(done.wait_for(Duration::ZERO), Ok(true));
                }
                let mut got = vec![0.0; COUNT];
                buffer.read(&stream, &mut got).unwrap();
                assert_eq!(got, [(rank.n * (rank.n + 1) / 2) as f32; COUNT]);
                rank.say("waited");
                die();
            }
            done.wait().unwrap();
            // Told by the parent's close of what it waits on: rank 0 is gone for sure.
            rank.say("done");
            std::thread::sleep(LONGER);
            assert_eq!(comm.fault(), None);
            rank.say("sound");
        };
        let group = Group::new("the_goodbye_does_not_wait_for_completions", n).limit(Duration::from_secs(30));
        let ended = group.env("CCLX_DEVICE", "soft").run_with(body, |running| running.wait());
        assert_eq!(ended[0].status.signal(), Some(Signal::SIGKILL as i32), "{}", ended[0].output);
        assert!(ended[0].output.contains("waited"), "{}", ended[0].output);
        for (rank, other) in ended.iter().enumerate().skip(1) {
            assert!(other.status.success() && other.output.contains("sound"), "rank {rank}: {}", other.output);
            assert!(other.after > ended[0].after + LONGER / 4, "rank {rank} looked on while rank 0 lived");
        }
    }
}

/// What failed is told however late it is asked for.
#[test]
fn a_failure_outlives_the_communicator() {
    Group::new("a_failure_outlives_the_communicator", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let config = Config { timeout: Duration::from_secs(2), ..Config::default() };
        let met = local::ranks(2, &config, &StartState::default(), |comm| {
            let stream = comm.stream(0).unwrap();
            let mut buffer = comm.alloc::<f32>(COUNT).unwrap();
            if comm.rank() == 1 {
                // Never comes.
                return fault(&comm, Duration::from_secs(60));
            }
            let done = comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap();
            comm.abort("enough");
            drop(comm);
            let error = done.wait().unwrap_err();
            assert_eq!(done.wait(), Err(error.clone()));
            assert_eq!(done.wait_for(Duration::from_secs(1)), Err(error.clone()));
            error
        });
        assert_eq!(met[0], Error::Aborted("enough".into()));
        assert!(met[1].to_string().contains("enough"), "{}", met[1]);
    });
}
