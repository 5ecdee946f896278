//! NEGATIVE CONTROLS: kernels with a rule of the protocol broken, which execution must notice. The others, whose fault
//! a processor hides, are those of `.ci/kernels/ocloc.sh`. Run by `.ci/beds/opencl-tests.sh`.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{Bfloat16, Float32};
use ccl_core::collective::{Collective, CollectiveCall};
use ccl_core::comm::StartState;
use ccl_core::mhc::{Design, Params, Variant};
use ccl_core::plan::mhc::Fused;
use ccl_tests::calls::{self, Call, Options, Overwrite, Route};
use ccl_tests::collectives::{self, Job};
use ccl_tests::fused::{Case, Peer};
use ccl_tests::group::Running;
use ccl_tests::{Rank, spirv};
use half::bf16;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

const CALLS: usize = 12;
/// Several turns of the work-group for each position, so that ranks stand at different lines.
const COUNT: usize = 30_000;

/// Runs alike calls to which rank 1 always comes late, and tells how many results are wrong.
fn count_wrong(rank: Rank) {
    let comm = spirv::communicator(&rank, StartState::default());
    let (stream, other) = (comm.stream(0).unwrap(), comm.stream(1).unwrap());
    let calls = [Call::sum(Bfloat16, COUNT, Route::Apart); CALLS];
    let mut before = |_: usize| {
        if rank.rank == 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let options = Options { seed: 17, overwrite: Overwrite::Never, before: &mut before };
    match calls::run(&comm, &stream, &other, &calls, options) {
        Ok(found) => {
            assert!(found.inputs.is_empty() && found.stray == 0, "{found:?}");
            rank.say(format_args!("wrong {}", found.wrong.len()));
        }
        // What a mutant does may also end in a deadlock, which the deadline bounds. It is no wrong result.
        Err(error) => rank.say(format_args!("error {error}")),
    }
}

/// Wrong results of all ranks, and how many ranks' calls failed.
fn watch(running: Running) -> (usize, usize) {
    let (mut wrong, mut failed) = (0, 0);
    for (rank, ended) in running.wait().into_iter().enumerate() {
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        eprintln!("rank {rank}: wrong {:?}, error {:?}", ended.said("wrong"), ended.said("error"));
        wrong += ended.said("wrong").iter().map(|wrong| wrong.parse::<usize>().unwrap()).sum::<usize>();
        failed += ended.said("error").len();
    }
    (wrong, failed)
}

/// The same calls in the same line form with the kernel as it is and with the mutant: wrong results and failed ranks of
/// the latter. The former has none.
fn with_mutant(test: &str, mutant: &str, n: usize, algorithm: &str, transport: &str) -> (usize, usize) {
    let group = || {
        let group = spirv::group(test, n).limit(Duration::from_secs(120)).env("CCLX_TRANSPORT", transport);
        let group = group.env("CCLX_GRANULE", 16).env("CCLX_MAX_WIRES", 1).env("CCLX_TIMEOUT_MS", 10_000);
        // Small slots, so that the push algorithms take several rounds.
        group.env("CCL_ALLREDUCE", algorithm).env("CCLX_PUSH_TILES", 4).env("CCLX_BULK_BYTES", 8192)
    };
    // Of mutants that differ in nothing else, the first says how the kernel as it is fares.
    static RIGHT: Mutex<BTreeSet<(usize, String)>> = Mutex::new(BTreeSet::new());
    if RIGHT.lock().unwrap().insert((n, format!("{algorithm} {transport}"))) {
        assert_eq!(group().run_with(count_wrong, watch), (0, 0), "without a mutant");
    }
    group().env(spirv::IMAGE, mutant).run_with(count_wrong, watch)
}

/// A mutant of the ring whose results must be wrong.
fn is_noticed(test: &str, mutant: &str, n: usize) {
    let (wrong, _) = with_mutant(test, mutant, n, "ring", "auto");
    assert!(wrong > 0, "mutant {mutant} was not noticed");
}

/// Broadcasts one after the other, to which rank 1 comes late now and then: whether every result is right.
fn broadcasts(rank: Rank) {
    let comm = spirv::communicator(&rank, StartState::default());
    let stream = comm.stream(0).unwrap();
    let broadcast = |i: u64| {
        let call = CollectiveCall::moving(Collective::Broadcast { root: 0 }, 2000 + 70 * i, Float32);
        Job::Collective(call, true)
    };
    let jobs: Vec<Job> = (0..24).map(broadcast).collect();
    let mut late = |i: usize| {
        if rank.rank == 1 && i.is_multiple_of(8) {
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    match collectives::run(&comm, &stream, &jobs, 5, &mut late) {
        Ok(wrong) => rank.say(format_args!("wrong {}", usize::from(wrong.is_some()))),
        Err(error) => rank.say(format_args!("error {error}")),
    }
}

/// Boundaries by owners, to which rank 1 always comes late, so that nobody's sums are there too early by luck.
fn boundaries(rank: Rank) {
    boundaries_by(rank, Design::C, [(1, 1056), (3, 700), (2, 1056)]);
}

/// The same by columns.
fn columns(rank: Rank) {
    boundaries_by(rank, Design::A, [(1, 384), (3, 200), (2, 384)]);
}

fn boundaries_by(rank: Rank, design: Design, shapes: [(u64, u64); 3]) {
    spirv::leave_boundaries_unoptimized();
    let cases = shapes.into_iter().enumerate().map(|(seed, (rows, hidden))| {
        let params = Params::new(Variant::V4, Bfloat16, rows, hidden, 4);
        Case { params, seed: seed as u64, in_place: false, x_out: None }
    });
    let cases: Vec<Case> = cases.collect();
    let capacity = cases.iter().map(Case::bytes).max().unwrap();
    let mut peer = Peer::new(spirv::communicator(&rank, StartState::default()), capacity);
    let mut wrong = 0;
    for case in &cases {
        let written = case.written::<bf16>(rank.n);
        if rank.rank == 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let plan = peer.comm.plan_mhc(&case.params, Fused::Whole).unwrap();
        assert!(design == Design::C || plan.columns, "{plan}");
        match peer.run::<bf16>(case, design) {
            Ok(image) => wrong += usize::from(case.wrong::<bf16>(rank.rank, &written, &image).is_some()),
            Err(error) => return rank.say(format_args!("error {error}")),
        }
    }
    rank.say(format_args!("wrong {wrong}"));
}

fn boundaries_with(test: &str, mutant: &str, n: usize) {
    let found = with_boundaries(test, mutant, n, boundaries);
    assert!(found.0 > 0, "mutant {mutant} was not noticed");
}

/// What ranks find with a mutant: results that are wrong, and errors.
fn with_boundaries(test: &str, mutant: &str, n: usize, calls: fn(Rank)) -> (usize, usize) {
    // What a mutant loses is waited for in vain. The OpenCL runtime compiles while another rank waits.
    let timeout_ms = if std::env::var("ZE_SOFT_ENGINE").is_ok_and(|engine| engine == "cuda") { 10_000 } else { 60_000 };
    let group = || {
        let group = spirv::group(test, n).env("CCL_ALLREDUCE", "auto").env("CCLX_GRANULE", 16);
        group.env("CCLX_TIMEOUT_MS", timeout_ms)
    };
    assert_eq!(group().run_with(calls, watch), (0, 0), "without a mutant");
    group().env(spirv::IMAGE, mutant).run_with(calls, watch)
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn columns_of_one_generation() {
    let found = with_boundaries("columns_of_one_generation", "columns_l16-one_generation", 2, columns);
    assert_ne!(found, (0, 0), "not noticed");
}

/// Two ranks' sums are the same in either order; three ranks' are not.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn owners_sums_in_another_order() {
    boundaries_with("owners_sums_in_another_order", "fused_l16-own_sums_first", 3);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn sums_of_what_is_not_there_yet() {
    boundaries_with("sums_of_what_is_not_there_yet", "fused_l16-no_ready", 2);
}

/// Compiles the kernel or a mutant into the bed's cache, which else the first of the ranks would do.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_module_is_compiled() {
    let compile = |rank: Rank| drop(spirv::communicator(&rank, StartState::default()));
    // Half a minute by itself; several of them share the processor.
    spirv::group("a_module_is_compiled", 1).limit(Duration::from_secs(600)).run(compile);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn flag_before_data() {
    is_noticed("flag_before_data", "ring_l16-flag_first", 2);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn base_of_a_recording() {
    is_noticed("base_of_a_recording", "ring_l16-frozen_base", 2);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn one_slot_fewer() {
    is_noticed("one_slot_fewer", "ring_l16-one_slot_fewer", 2);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn truncation_for_rounding() {
    is_noticed("truncation_for_rounding", "ring_l16-truncate", 2);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn push_flag_before_data() {
    let (wrong, _) = with_mutant("push_flag_before_data", "push_l16-flag_first", 2, "mesh", "lines");
    assert!(wrong > 0, "not noticed");
}

/// A message stored over another that was not received yet is never received: ranks wait for it until they give up.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn push_one_generation() {
    let found = with_mutant("push_one_generation", "push_l16-one_generation", 2, "oneshot", "lines");
    assert_ne!(found, (0, 0), "not noticed");
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn push_wrong_order() {
    let (wrong, _) = with_mutant("push_wrong_order", "push_l16-wrong_order", 3, "mesh", "lines");
    assert!(wrong > 0, "not noticed");
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn bulk_flag_before_data() {
    let (wrong, refused) = with_mutant("bulk_flag_before_data", "bulk-bulk_flag_first", 2, "mesh", "bulk");
    assert_eq!((wrong, refused), (0, 2), "the litmus test at init has to refuse bulk by itself");
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn bulk_one_generation() {
    let found = with_mutant("bulk_one_generation", "bulk-one_generation", 2, "oneshot", "bulk");
    assert_ne!(found, (0, 0), "not noticed");
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn bulk_wrong_order() {
    let (wrong, _) = with_mutant("bulk_wrong_order", "bulk-wrong_order", 3, "mesh", "bulk");
    assert!(wrong > 0, "not noticed");
}

/// A root that doesn't wait for room stores over messages that were not taken yet.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn channel_without_credit() {
    let group = || {
        let group = spirv::group("channel_without_credit", 2).limit(Duration::from_secs(120));
        let group = group.env("CCLX_TRANSPORT", "lines").env("CCLX_GRANULE", 16).env("CCLX_TIMEOUT_MS", 10_000);
        group.env("CCLX_PUSH_TILES", 1).env("CCLX_MAX_WIRES", 1)
    };
    assert_eq!(group().run_with(broadcasts, watch), (0, 0), "without a mutant");
    let found = group().env(spirv::IMAGE, "channel_l16-no_credit").run_with(broadcasts, watch);
    assert_ne!(found, (0, 0), "not noticed");
}
