//! What `CCLX_CAPTURE` saves is what the calls had; what it can't save it says; it never holds a call up for good.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{Bfloat16, Float16, Float32};
use ccl_core::collective::{Collective, CollectiveCall};
use ccl_core::comm::StartState;
use ccl_core::config::Config;
use ccl_core::corpus::{Options, Verdict, What, verify};
use ccl_tests::local::{self, Peer, sum};
use ccl_tests::{Group, data};
use ccl_ze::{CallOptions, hooks};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ccl-capture-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn config(directory: &Path) -> Config {
    Config { capture: Some(directory.into()), ..Config::default() }
}

fn kinds(verdict: &Verdict) -> Vec<What> {
    let mut kinds: Vec<What> = verdict.findings.iter().map(|finding| finding.what).collect();
    kinds.dedup();
    kinds
}

/// Calls of several types and sizes, in and out of place, on 4 ranks.
fn calls(directory: &Path, hooks: u32) {
    let start = StartState { hooks, ..StartState::default() };
    local::ranks(4, &config(directory), &start, |comm| {
        let rank = comm.rank();
        let mut peer = Peer::new(comm, 1 << 17);
        for call in 0..12u64 {
            let dtype = [Bfloat16, Float16, Float32][call as usize % 3];
            let count = [1, 0, 63, 5000, 20_000][call as usize % 5];
            let input = data::ordinary(dtype, call, rank, count);
            peer.reduce(&sum(dtype, count), &input, call % 2 == 0).unwrap();
        }
    });
}

#[test]
fn what_is_saved_stands() {
    Group::new("what_is_saved_stands", 1).env("ZE_SOFT_DEVICES", 4).run(|_| {
        let directory = folder("stands");
        calls(&directory, 0);
        let verdict = verify(&directory, &Options::default()).unwrap();
        assert!(verdict.passed(), "{:?}", verdict.findings);
        assert_eq!((verdict.counts.files, verdict.counts.events["all_reduce"]), (48, 12));
        // A second group goes beside the first.
        calls(&directory, 0);
        let verdict = verify(&directory, &Options::default()).unwrap();
        assert!(verdict.passed(), "{:?}", verdict.findings);
        assert_eq!((verdict.counts.files, verdict.counts.communicators), (96, 2));
        std::fs::remove_dir_all(directory).unwrap();
    });
}

/// The control of the rule that an input is saved before the call.
#[test]
fn an_input_that_is_saved_too_late_is_convicted() {
    Group::new("an_input_that_is_saved_too_late_is_convicted", 1).env("ZE_SOFT_DEVICES", 4).run(|_| {
        let directory = folder("late");
        calls(&directory, hooks::SAVE_INPUT_LATE);
        let verdict = verify(&directory, &Options::default()).unwrap();
        assert_eq!(kinds(&verdict), [What::Reduction]);
        let in_place = |event: u64| event % 2 == 1;
        assert!(verdict.findings.iter().all(|finding| in_place(finding.event.unwrap())), "{:?}", verdict.findings);
        std::fs::remove_dir_all(directory).unwrap();
    });
}

#[test]
fn recorded_calls_are_counted_and_not_saved() {
    Group::new("recorded_calls_are_counted_and_not_saved", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let directory = folder("recorded");
        local::ranks(2, &config(&directory), &StartState::default(), |comm| {
            let rank = comm.rank();
            let input = data::ordinary(Bfloat16, 1, rank, 100);
            let mut buffer = comm.alloc::<half::bf16>(100).unwrap();
            let mut peer = Peer::new(comm.clone(), 200);
            peer.reduce(&sum(Bfloat16, 100), &input, true).unwrap();
            let stream = comm.stream(0).unwrap();
            buffer.write(&stream, &[half::bf16::ONE; 100]).unwrap();
            stream.begin_capture().unwrap();
            for _ in 0..2 {
                drop(comm.all_reduce_in_place(&mut buffer, ccl_core::ReduceOp::Sum, &stream).unwrap());
            }
            let executable = stream.end_capture().unwrap().instantiate().unwrap();
            // SAFETY: no events; the buffer outlives the wait.
            unsafe { executable.launch(&stream, CallOptions::default()).unwrap().wait().unwrap() };
            let mut result = [half::bf16::ZERO; 100];
            buffer.read(&stream, &mut result).unwrap();
            assert!(result.iter().all(|value| value.to_f32() == 4.0));
            peer.reduce(&sum(Bfloat16, 100), &input, false).unwrap();
        });
        let verdict = verify(&directory, &Options::default()).unwrap();
        assert_eq!(kinds(&verdict), [What::Incomplete]);
        let told = |words: &str| verdict.findings.iter().any(|finding| finding.text.contains(words));
        assert!(told("2 calls were not captured") && told("a recorded all_reduce of 100 bfloat16"), "{verdict:?}");
        let verdict = verify(&directory, &Options { allow_incomplete: true }).unwrap();
        assert!(verdict.passed() && verdict.counts.events["all_reduce"] == 2, "{verdict:?}");
        std::fs::remove_dir_all(directory).unwrap();
    });
}

/// They are no events of a corpus, which says so: it does not pass for one of all that the program did.
#[test]
fn other_collectives_are_counted_and_not_saved() {
    Group::new("other_collectives_are_counted_and_not_saved", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let directory = folder("others");
        local::ranks(2, &config(&directory), &StartState::default(), |comm| {
            let input = data::ordinary(Bfloat16, 1, comm.rank(), 100);
            Peer::new(comm.clone(), 200).reduce(&sum(Bfloat16, 100), &input, true).unwrap();
            let (stream, buffer) = (comm.stream(0).unwrap(), comm.alloc::<f32>(300).unwrap());
            let at = buffer.as_ptr();
            for what in [Collective::Broadcast { root: 1 }, Collective::AllToAll] {
                let call = CollectiveCall::moving(what, 70, Float32);
                let options = CallOptions::default();
                // SAFETY: the buffer holds both pieces of all messages and lives until the wait.
                let done = unsafe { comm.collective_raw(&call, None, at.cast(), at.cast(), &stream, options) };
                done.unwrap().wait().unwrap();
            }
        });
        let verdict = verify(&directory, &Options::default()).unwrap();
        assert_eq!(kinds(&verdict), [What::Incomplete]);
        let told = |words: &str| verdict.findings.iter().any(|finding| finding.text.contains(words));
        assert!(told("2 calls were not captured") && told("broadcast of 70 float32 (no all_reduce)"), "{verdict:?}");
        assert_eq!(verdict.counts.events["all_reduce"], 1);
        std::fs::remove_dir_all(directory).unwrap();
    });
}

/// One thread that issues the calls of both ranks: the first call can't end while it is waited for.
#[test]
fn a_wait_that_would_not_end_ends_the_saving() {
    Group::new("a_wait_that_would_not_end_ends_the_saving", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let directory = folder("held");
        let config = Config { timeout: Duration::from_secs(6), ..config(&directory) };
        let comms = local::ranks(2, &config, &StartState::default(), |comm| comm);
        let streams = [comms[0].stream(0).unwrap(), comms[1].stream(0).unwrap()];
        let mut buffers = [comms[0].alloc::<f32>(10).unwrap(), comms[1].alloc::<f32>(10).unwrap()];
        for (rank, buffer) in buffers.iter_mut().enumerate() {
            buffer.write(&streams[rank], &[rank as f32 + 1.0; 10]).unwrap();
        }
        let mut done = Vec::new();
        for ((comm, stream), buffer) in comms.iter().zip(&streams).zip(&mut buffers) {
            done.push(comm.all_reduce_in_place(buffer, ccl_core::ReduceOp::Sum, stream).unwrap());
        }
        done.iter().for_each(|done| done.wait().unwrap());
        for (buffer, stream) in buffers.iter().zip(&streams) {
            let mut result = [0.0; 10];
            buffer.read(stream, &mut result).unwrap();
            assert_eq!(result, [3.0; 10]);
        }
        drop((done, buffers, streams, comms));
        let verdict = verify(&directory, &Options::default()).unwrap();
        assert!(verdict.findings.iter().all(|finding| finding.what == What::Incomplete), "{verdict:?}");
        assert!(verdict.findings[0].text.contains("did not end within 3s"), "{verdict:?}");
        std::fs::remove_dir_all(directory).unwrap();
    });
}

#[test]
fn the_limit_is_kept() {
    Group::new("the_limit_is_kept", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let directory = folder("limit");
        let config = Config { capture_limit: 1, ..config(&directory) };
        local::ranks(2, &config, &StartState::default(), |comm| {
            let rank = comm.rank();
            let mut peer = Peer::new(comm, 1 << 18);
            for call in 0..6 {
                let input = data::ordinary(Float32, call, rank, 1 << 16);
                let got = peer.reduce(&sum(Float32, 1 << 16), &input, true).unwrap();
                let inputs = [0, 1].map(|rank| data::ordinary(Float32, call, rank, 1 << 16));
                assert_eq!(data::first_difference(&got, &data::expected(Float32, &inputs, None), Float32), None);
            }
        });
        let verdict = verify(&directory, &Options::default()).unwrap();
        assert_eq!(kinds(&verdict), [What::Incomplete]);
        // Two messages of 256 KiB a call.
        assert_eq!((verdict.counts.events["all_reduce"], verdict.counts.files), (1, 2));
        assert!(verdict.findings.iter().any(|finding| finding.text.contains("5 calls after")), "{verdict:?}");
        std::fs::remove_dir_all(directory).unwrap();
    });
}

#[test]
fn a_folder_that_can_not_be_is_refused_at_once() {
    Group::new("a_folder_that_can_not_be_is_refused_at_once", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let builder = ccl_ze::Communicator::builder_with(config(Path::new("/proc/nothing/here")));
        let id = ccl_core::bootstrap::UniqueId::create(Default::default()).unwrap();
        let error = builder.init(&id, 0, 1).err().unwrap().to_string();
        assert!(error.contains("CCLX_CAPTURE=/proc/nothing/here"), "{error}");
    });
}
