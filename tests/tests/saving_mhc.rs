//! What `CCLX_CAPTURE` saves of mHC boundaries: what they had, with what fed them; what can't be saved is said.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::Config;
use ccl_core::corpus::{Options, Verdict, What, verify};
use ccl_core::mhc::{Design, Params, Variant};
use ccl_core::{DataType, ReduceOp};
use ccl_tests::fused::{Case, Peer};
use ccl_tests::{Group, local};
use ccl_ze::{CallOptions, hooks};
use half::bf16;
use std::path::PathBuf;

fn case(seed: u64, in_place: bool) -> Case {
    let params = Params { norm_eps: Some(1e-6), ..Params::new(Variant::V4, DataType::Bfloat16, 2, 96, 4) };
    Case { params, seed, in_place, x_out: None }
}

/// What is saved of what two ranks do.
fn saved(name: &str, hooks: u32, body: impl Fn(&mut Peer) + Sync) -> Verdict {
    let directory: PathBuf = std::env::temp_dir().join(format!("ccl-capture-mhc-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let config = Config { capture: Some(directory.clone()), ..Config::default() };
    let start = StartState { hooks, ..StartState::default() };
    local::ranks(2, &config, &start, |comm| body(&mut Peer::new(comm, case(0, false).bytes())));
    let verdict = verify(&directory, &Options::default()).unwrap();
    std::fs::remove_dir_all(directory).unwrap();
    verdict
}

fn kinds(verdict: &Verdict) -> Vec<What> {
    let mut kinds: Vec<What> = verdict.findings.iter().map(|finding| finding.what).collect();
    kinds.dedup();
    kinds
}

fn told(verdict: &Verdict, words: &str) -> bool {
    verdict.findings.iter().any(|finding| finding.text.contains(words))
}

const DESIGNS: [Design; 3] = [Design::Unfused, Design::A, Design::C];

/// A boundary, and another in its place, which reads what the first put there; the results are right all the same.
fn two(peer: &mut Peer, design: Design) {
    let case = case(1, true);
    let image = peer.run::<bf16>(&case, design).unwrap();
    assert_eq!(case.wrong::<bf16>(peer.comm.rank(), &case.written::<bf16>(2), &image), None);
    peer.issue(&case, design).unwrap().wait().unwrap();
}

/// With the control of the rule that inputs are saved before the call.
#[test]
fn boundaries_in_place_are_saved_as_they_were() {
    Group::new("boundaries_in_place_are_saved_as_they_were", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        for design in DESIGNS {
            let verdict = saved("stands", 0, |peer| two(peer, design));
            assert!(verdict.passed(), "{design}: {:?}", verdict.findings);
            assert_eq!((verdict.counts.events["all_reduce"], verdict.counts.events["mhc_boundary"]), (2, 2));
            assert_eq!((verdict.counts.aliased["mhc_boundary"], verdict.counts.links), (2, 2 * 5), "{design}");
            let verdict = saved("late", hooks::SAVE_INPUT_LATE, |peer| two(peer, design));
            assert!(kinds(&verdict).contains(&What::Reduction), "{design}: {:?}", verdict.findings);
        }
    });
}

#[test]
fn a_residual_that_was_written_over_is_convicted() {
    Group::new("a_residual_that_was_written_over_is_convicted", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let verdict = saved("over", 0, |peer| {
            drop(peer.run::<bf16>(&case(1, true), Design::C).unwrap());
            // Alike on both ranks, and another than what the first boundary put out.
            drop(peer.run::<bf16>(&case(2, true), Design::C).unwrap());
        });
        assert_eq!(kinds(&verdict), [What::Link], "{:?}", verdict.findings);
        assert!(told(&verdict, "'residual' is not what event 2 (mhc_boundary) put out"), "{:?}", verdict.findings);
    });
}

#[test]
fn a_boundary_that_hangs_in_the_air_ends_the_saving() {
    Group::new("a_boundary_that_hangs_in_the_air_ends_the_saving", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let verdict = saved("alone", 0, |peer| {
            let case = case(1, true);
            let image = case.before::<bf16>(0);
            peer.memory.write(&peer.stream, &image).unwrap();
            let buffers = case.buffers(peer.memory.as_ptr());
            for _ in 0..2 {
                // SAFETY: the memory holds the tensors, and is waited for.
                let done =
                    unsafe { peer.comm.mhc(&case.params, &buffers, &peer.stream, CallOptions::default()).unwrap() };
                done.wait().unwrap();
            }
        });
        assert_eq!(kinds(&verdict), [What::Incomplete], "{:?}", verdict.findings);
        assert!(told(&verdict, "its x is not where a captured all_reduce put its output"), "{:?}", verdict.findings);
        let verdict = saved("elsewhere", 0, |peer| {
            for seed in [1, 2] {
                drop(peer.run::<bf16>(&case(seed, false), Design::Unfused).unwrap());
            }
        });
        assert_eq!(kinds(&verdict), [What::Incomplete], "{:?}", verdict.findings);
        assert!(told(&verdict, "its residual is not what event 2 put out"), "{:?}", verdict.findings);
    });
}

#[test]
fn recorded_boundaries_are_counted_and_not_saved() {
    Group::new("recorded_boundaries_are_counted_and_not_saved", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        for design in DESIGNS {
            let verdict = saved("recorded", 0, |peer| {
                let case = case(1, true);
                drop(peer.run::<bf16>(&case, design).unwrap());
                let mut image = case.before::<bf16>(peer.comm.rank());
                peer.memory.write(&peer.stream, &image).unwrap();
                peer.stream.begin_capture().unwrap();
                drop(peer.issue(&case, design).unwrap());
                let graph = peer.stream.end_capture().unwrap().instantiate().unwrap();
                // SAFETY: the memory outlives the wait.
                unsafe { graph.launch(&peer.stream, CallOptions::default()).unwrap().wait().unwrap() };
                peer.memory.read(&peer.stream, &mut image).unwrap();
                assert_eq!(case.wrong::<bf16>(peer.comm.rank(), &case.written::<bf16>(2), &image), None);
                let mut more = peer.comm.alloc::<f32>(3).unwrap();
                more.write(&peer.stream, &[1.0; 3]).unwrap();
                peer.comm.all_reduce_in_place(&mut more, ReduceOp::Sum, &peer.stream).unwrap().wait().unwrap();
            });
            assert_eq!(kinds(&verdict), [What::Incomplete], "{:?}", verdict.findings);
            assert!(told(&verdict, "a recorded mhc_boundary of 2 rows"), "{design}: {:?}", verdict.findings);
            let events = &verdict.counts.events;
            assert_eq!((events["all_reduce"], events["mhc_boundary"]), (2, 1), "{design}");
        }
    });
}
