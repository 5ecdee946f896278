//! mHC boundaries by columns as the device kernels' SPIR-V executes them, where a group gives up, where tags begin anew and
//! in checked mode: what is done about it, and that it is noticed where it isn't. Run by `.ci/beds/opencl-tests.sh`.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::mhc::{Design, Params, Variant};
use ccl_core::plan::mhc::Fused;
use ccl_core::{DataType, ReduceOp};
use ccl_tests::failure::fault;
use ccl_tests::fused::{Case, Peer};
use ccl_tests::group::Running;
use ccl_tests::local::UNTOUCHED;
use ccl_tests::{Group, Rank, spirv};
use ccl_ze::hooks;
use half::bf16;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// More than two processes that take turns on a busy processor need.
const PATIENCE: Duration = Duration::from_secs(60);
/// Turns of a wait to a millisecond of a kernel's own limit, which is 122 s here: some seconds, as a processor goes.
const SPINS_PER_MS: u32 = 300;

fn case(rows: u64, seed: u64) -> Case {
    let params = Params::new(Variant::V4, DataType::Bfloat16, rows, 256, 4);
    Case { params, seed, in_place: false, x_out: Some(false) }
}

fn group(test: &str, n: usize) -> Group {
    spirv::group(test, n).env("CCL_ALLREDUCE", "oneshot").env("CCLX_GRANULE", 16).env("CCLX_TIMEOUT_MS", 60_000)
}

/// With room for the case, which goes by columns, and by more groups than there are wires.
fn peer(rank: &Rank, start: StartState, case: &Case) -> Peer {
    spirv::leave_boundaries_unoptimized();
    let comm = spirv::communicator(rank, start);
    let plan = comm.plan_mhc(&case.params, Fused::Whole).unwrap();
    assert!(plan.columns && plan.groups > plan.reduce.wires, "{plan}");
    Peer::new(comm, case.bytes())
}

/// Nobody is late for the others afterwards.
fn wait_for_all(peer: &Peer) {
    let mut one = peer.comm.alloc::<f32>(1).unwrap();
    one.write(&peer.stream, &[1.0]).unwrap();
    peer.comm.all_reduce_in_place(&mut one, ReduceOp::Sum, &peer.stream).unwrap().wait().unwrap();
}

/// All that ranks said they found.
fn watch(running: Running) -> Vec<String> {
    let mut found = Vec::new();
    for (rank, ended) in running.wait().into_iter().enumerate() {
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        assert_eq!(ended.said("ends").len(), 1, "rank {rank}: {}", ended.output);
        found.extend(ended.said("found").into_iter().map(|what| format!("rank {rank}: {what}")));
    }
    eprintln!("{found:?}");
    found
}

/// A call of which rank 0 never gets block 1 from rank 1. When it has added up block 0 it is told to give up, or does by
/// its own limit; the group that has added up counts itself last.
fn a_block_does_not_come(rank: Rank, rows: u64, by_limit: bool) {
    let case = case(rows, 3);
    if by_limit {
        hooks::SPINS_PER_MS.set(SPINS_PER_MS).unwrap();
    }
    let mut peer = peer(&rank, StartState::default(), &case);
    let written = case.written::<bf16>(rank.n);
    wait_for_all(&peer);
    let says = if by_limit { "by its own limit" } else { "enough" };
    if rank.rank == 1 {
        // It gets all that it needs, unless it is told to give up before it has looked.
        match peer.run::<bf16>(&case, Design::A) {
            Ok(image) => assert_eq!(case.wrong::<bf16>(1, &written, &image), None),
            Err(error) => assert!(error.to_string().contains("as rank 0 tells"), "{error}"),
        }
        let error = fault(&peer.comm, PATIENCE).to_string();
        assert!(error.contains(says) && error.ends_with("as rank 0 tells"), "{error}");
        return rank.say("ends .");
    }
    peer.memory.write(&peer.stream, &case.before::<bf16>(0)).unwrap();
    let done = peer.issue(&case, Design::A).unwrap();
    let x_out = case.buffers(peer.memory.as_ptr()).x_out.cast::<u8>().cast_const();
    let since = Instant::now();
    for tile in 0..case.params.rows.div_ceil(4) {
        let first = x_out.wrapping_add((tile * 4 * case.params.hidden) as usize * 2);
        // SAFETY: the software device's memory is the host's; a kernel may write the block meanwhile, so that it is read
        // anew each time and nothing rests on it.
        while unsafe { first.cast::<u32>().read_volatile() } == u32::from_ne_bytes([UNTOUCHED; 4]) {
            assert!(since.elapsed() < PATIENCE, "block 0 of tile {tile} isn't there");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    if !by_limit {
        peer.comm.abort("enough");
    }
    let error = done.wait().unwrap_err();
    assert!(error.to_string().contains(says), "{error}");
    if let Some(what) = peer.unlike_failed::<bf16>(&case, &written, Duration::from_secs(15)) {
        rank.say(format_args!("found {what}"));
    }
    rank.say("ends .");
}

/// By how many tiles: their groups count themselves in one word or in several, then the tiles in another.
fn a_group_gives_up(test: &str, rows: u64, by_limit: bool) {
    let with = |mutant: &str| {
        group(test, 2).env(spirv::IMAGE, mutant).run_with(|rank| a_block_does_not_come(rank, rows, by_limit), watch)
    };
    let found = with("columns_l16-unsent_block");
    assert!(found.is_empty(), "{found:?}");
    let found = with("columns_l16-uncounted_failure");
    assert!(!found.is_empty(), "nobody noticed that sums were missing");
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_group_of_one_tile_gives_up() {
    a_group_gives_up("a_group_of_one_tile_gives_up", 3, false);
}

/// The limit is short. So this comes after the one above, which has the same kernels compiled: a rank that waits for the other's
/// compiler would give up.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_group_of_one_tile_gives_up_by_its_own_limit() {
    a_group_gives_up("a_group_of_one_tile_gives_up_by_its_own_limit", 3, true);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_group_of_each_tile_gives_up() {
    a_group_gives_up("a_group_of_each_tile_gives_up", 6, false);
}

/// Calls in each of which tags begin anew, to which rank 1 comes late: whether they are themselves.
fn tags_begin_anew(rank: Rank) {
    let cases: Vec<Case> = (0..4).map(|seed| case(3, seed)).collect();
    let mut peer = peer(&rank, StartState { tag_limit: 1, ..StartState::default() }, &cases[0]);
    for case in &cases {
        let written = case.written::<bf16>(rank.n);
        if rank.rank == 1 {
            std::thread::sleep(Duration::from_millis(100));
        }
        let found = match peer.run::<bf16>(case, Design::A) {
            Ok(image) => case.wrong::<bf16>(rank.rank, &written, &image),
            Err(error) => Some(error.to_string()),
        };
        if let Some(found) = found {
            rank.say(format_args!("found {found}"));
            // The other one may wait for what was cleared.
            peer.comm.abort("something is wrong");
            break;
        }
    }
    rank.say("ends .");
}

fn anew_with(test: &str, mutant: Option<&str>) -> Vec<String> {
    let group = group(test, 2);
    match mutant {
        None => group,
        Some(mutant) => group.env(spirv::IMAGE, mutant),
    }
    .run_with(tags_begin_anew, watch)
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn every_call_begins_with_a_clearing() {
    let test = "every_call_begins_with_a_clearing";
    assert_eq!(anew_with(test, None), Vec::<String>::new());
    // What lies there from the call before has the tag of this one.
    for mutant in ["columns_l16-no_clearing", "columns_l16-ahead_of_clearing"] {
        assert_ne!(anew_with(test, Some(mutant)), Vec::<String>::new(), "{mutant}: nobody noticed");
    }
}

/// Whether checked calls go in parts among any number of ranks.
const IN_PARTS: &str = "TEST_IN_PARTS";

/// Checked calls of two blocks, whose mixes are worth two parts each.
fn checked_calls(rank: Rank) {
    hooks::CHECKED_IN_PARTS.store(std::env::var_os(IN_PARTS).is_some(), Relaxed);
    let cases = [case(1, 0), case(1, 1)];
    let mut peer = peer(&rank, StartState::default(), &cases[0]);
    wait_for_all(&peer);
    for case in &cases {
        let written = case.written::<bf16>(rank.n);
        let found = match peer.run::<bf16>(case, Design::A) {
            Ok(image) => case.wrong::<bf16>(rank.rank, &written, &image),
            Err(error) => Some(error.to_string()),
        };
        if let Some(found) = found {
            rank.say(format_args!("found {found}"));
            break;
        }
    }
    rank.say("ends .");
}

/// Rank 1 looks at what rank 0 says that the call is when rank 0 is a call further, or has had the time for it: it must not be.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_checked_call_waits_for_who_compares() {
    let group = |n: usize| {
        let group = group("a_checked_call_waits_for_who_compares", n).env("CCLX_CHECK", "global");
        group.env(spirv::IMAGE, "columns_l16-late_compare")
    };
    // Two in parts, three in one.
    for n in [2, 3] {
        assert_eq!(group(n).run_with(checked_calls, watch), Vec::<String>::new(), "{n} ranks");
    }
    let found = group(3).env(IN_PARTS, 1).env("CCLX_TIMEOUT_MS", 8_000).run_with(checked_calls, watch);
    assert!(found.iter().any(|what| what.contains("timed out")), "nobody noticed: {found:?}");
}
