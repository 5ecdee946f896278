//! The litmus test at init: lines are as wide as they arrive whole, unless a width was asked for.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod waits_gate;

use ccl_core::DataType::{Bfloat16, Float32};
use ccl_core::config::Config;
use ccl_core::{ReduceOp, bootstrap};
use ccl_tests::calls::{self, Call, Options, Overwrite, Route};
use ccl_tests::data::word;
use ccl_tests::{Group, Rank, soft};
use ccl_ze::Communicator;
use std::time::Duration;
use waits_gate::Gate;
use ze_soft::ext;

/// Bytes that arrive as one; 0, stores are not late.
const DELIVERED: &str = "TEST_DELIVERED";

fn group(test: &str, n: usize, delivered: u32) -> Group {
    // Faults are planted in the driver that is linked in.
    let group = Group::new(test, n).env("CCLX_DEVICE", "soft").env(DELIVERED, delivered);
    // Little staging memory: all of it is looked at for each delivery.
    group.env("CCLX_STAGING_TILES", 3).env("CCLX_MAX_WIRES", 3).env("CCLX_PUSH_TILES", 2).env("CCLX_BULK_BYTES", 4096)
}

/// Joins the group and tells how wide the lines are.
fn join(rank: &Rank) -> Communicator {
    ccl_ze::log::install(&Config::from_env().unwrap()).unwrap();
    let delivered = std::env::var(DELIVERED).unwrap().parse().unwrap();
    if delivered > 0 {
        let (most, seed) = (Duration::from_micros(300), rank.rank as u64 + 1);
        soft::fault(ext::ZESOFT_FAULT_LATE_STORES, ext::ZESOFT_ANY, delivered, most.as_nanos() as u64, seed);
    }
    let comm = rank.communicator();
    assert!(comm.describe().p2p, "in host memory no store would be late");
    rank.say(format_args!("granule {}", comm.describe().granule));
    rank.say(format_args!("bulk {}", comm.describe().bulk));
    comm
}

fn joins_and_reduces(rank: Rank) {
    let comm = join(&rank);
    reduces(&comm);
}

fn reduces(comm: &Communicator) {
    let call = |i: usize| {
        let random = word(5, 0, i as u64) as usize;
        let most = [40, 400, 3_000, 12_000][i % 4];
        let route = [Route::Apart, Route::InPlace, Route::Shared][i % 3];
        Call::sum(if random.is_multiple_of(2) { Bfloat16 } else { Float32 }, 1 + random / 2 % most, route)
    };
    let calls: Vec<_> = (0..300).map(call).collect();
    let (stream, other) = (comm.stream(0).unwrap(), comm.stream(1).unwrap());
    let options = Options { seed: 5, overwrite: Overwrite::OnCompletion, before: &mut |_| () };
    let found = calls::run(comm, &stream, &other, &calls, options).unwrap();
    found.assert_clean(&format!("rank {} of {}", comm.rank(), comm.world_size()));
}

/// All ranks have lines of `granule` bytes, and the widths that were given up are told once, by one of them. Where stores
/// are late, data and flag are not stored apart, which is told once too.
fn check(group: Group, body: fn(Rank), granule: usize, given_up: &[usize], late: bool) {
    let ended = group.limit(Duration::from_secs(60)).run_with(body, |running| running.wait());
    for (rank, ended) in ended.iter().enumerate() {
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        assert_eq!(ended.said("granule"), [granule.to_string()], "rank {rank}");
        assert_eq!(ended.said("bulk"), [(!late).to_string()], "rank {rank}");
    }
    let outputs = || ended.iter().flat_map(|ended| ended.output.lines());
    let warnings: Vec<_> = outputs().filter(|line| line.contains("do not arrive whole")).collect();
    assert_eq!(warnings.len(), given_up.len(), "{warnings:?}");
    let unordered = outputs().filter(|line| line.contains("do not arrive before the flag")).count();
    assert_eq!(unordered, usize::from(late));
    for (warning, width) in warnings.iter().zip(given_up) {
        assert!(warning.contains("|CCL_WARN|"), "{warning}");
        assert!(warning.contains(&format!("lines of {width} bytes do not arrive whole")), "{warning}");
    }
}

fn widths(test: &str, n: usize) {
    for (delivered, granule, given_up) in [(8, 8, &[64, 16][..]), (16, 16, &[64]), (64, 64, &[]), (0, 64, &[])] {
        check(group(test, n, delivered), joins_and_reduces, granule, given_up, delivered > 0);
    }
}

#[test]
fn two_ranks_take_lines_that_arrive_whole() {
    widths("two_ranks_take_lines_that_arrive_whole", 2);
}

#[test]
fn three_ranks_take_lines_that_arrive_whole() {
    widths("three_ranks_take_lines_that_arrive_whole", 3);
}

/// One rank whose stores are torn is enough for all.
#[test]
fn one_rank_that_tears_narrows_the_lines_of_all() {
    let body = |rank: Rank| {
        if rank.rank != 1 {
            // SAFETY: nothing else runs in this process yet that would read the environment.
            unsafe { std::env::set_var(DELIVERED, "0") };
        }
        joins_and_reduces(rank);
    };
    check(group("one_rank_that_tears_narrows_the_lines_of_all", 3, 8), body, 8, &[64, 16], true);
}

#[test]
fn a_width_that_was_asked_for_is_taken_as_it_is() {
    for width in [64, 16] {
        let group = group("a_width_that_was_asked_for_is_taken_as_it_is", 2, 8).env("CCLX_GRANULE", width);
        check(group, |rank| drop(join(&rank)), width, &[], true);
    }
}

/// Staging memory as large as it is by default: few of its lines are in use at a time.
#[test]
fn default_staging_narrows_too() {
    let group = Group::new("default_staging_narrows_too", 2).env("CCLX_DEVICE", "soft").env(DELIVERED, 8);
    check(group, joins_and_reduces, 8, &[64, 16], true);
}

/// One rank's calls time out at their very end, the other's are whole: that says nothing about lines, and both fail.
#[test]
fn a_rank_that_gives_up_is_no_torn_line() {
    let body = |rank: Rank| {
        ccl_ze::log::install(&Config::from_env().unwrap()).unwrap();
        ccl_ze::hooks::LITMUS_GIVES_UP.store(rank.rank == 1, std::sync::atomic::Ordering::Relaxed);
        let error = rank.builder().init(&rank.id, rank.rank, rank.n).err().unwrap();
        rank.say(format_args!("failed: {error}"));
    };
    let group = group("a_rank_that_gives_up_is_no_torn_line", 2, 0).limit(Duration::from_secs(60));
    for (rank, ended) in group.run_with(body, |running| running.wait()).iter().enumerate() {
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        assert!(!ended.output.contains("arrive whole"), "rank {rank}:\n{}", ended.output);
        // The reason is known to all.
        let told = ended.said("failed:");
        assert!(told.len() == 1 && told[0].contains("the litmus test of this rank gives up"), "rank {rank}: {told:?}");
        assert_eq!(told[0].starts_with("rank 1 is gone"), rank == 0, "{told:?}");
    }
}

/// Longer than a rank waits for a line in the litmus test.
const BUSY: Duration = Duration::from_secs(12);

/// A rank whose device is busy with another communicator is late; that is no torn line. Until it can begin, nobody begins
/// the litmus test.
#[test]
fn a_busy_device_does_not_narrow_the_lines() {
    let body = |rank: Rank| {
        if rank.rank != 0 {
            return joins_and_reduces(rank);
        }
        let mesh = bootstrap::local(1).unwrap().remove(0);
        let solo = rank.builder().device(0).init_local(mesh).unwrap();
        // Not the queue that init uses: what is held back there may hold all of it back.
        let stream = solo.stream(1).unwrap();
        let gate = Gate::new(&stream);
        gate.hold(&stream);
        let mut buffer = solo.alloc::<f32>(100).unwrap();
        let done = solo.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(BUSY);
            gate.open();
        });
        let comm = join(&rank);
        assert_eq!(done.wait_for(Duration::ZERO), Ok(true));
        reduces(&comm);
    };
    let group = group("a_busy_device_does_not_narrow_the_lines", 2, 0);
    check(group, body, 64, &[], false);
}

/// Rank 1 of 3 ends in the middle of the litmus test: what the others meet, and seconds from its beginning until then.
fn killed(test: &str, looking: bool) -> [(String, f64); 2] {
    let body = |rank: Rank| {
        let told = std::sync::atomic::Ordering::Relaxed;
        ccl_ze::hooks::LITMUS_ENDS_THE_PROCESS.store(rank.rank == 1, told);
        ccl_ze::hooks::NO_ABORT.store(std::env::var("TEST_LOOKING").unwrap() == "false", told);
        if rank.rank == 1 {
            rank.mark("begins");
        }
        let error = rank.builder().init(&rank.id, rank.rank, rank.n).err().unwrap();
        rank.mark("ends");
        rank.say(format_args!("error {error}"));
    };
    let group = group(test, 3, 0).env("TEST_LOOKING", looking).limit(Duration::from_secs(60));
    let ended = group.run_with(body, |running| running.wait());
    assert!(!ended[1].status.success(), "{}", ended[1].output);
    let begun = ended[1].stamped("begins");
    [0, 2].map(|rank| {
        let ended = &ended[rank];
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        (ended.said("error").concat(), (ended.stamped("ends") - begun) as f64 / 1e9)
    })
}

#[test]
fn a_rank_that_ends_in_the_litmus_test_is_named_at_once() {
    let told = killed("a_rank_that_ends_in_the_litmus_test_is_named_at_once", true);
    for (error, seconds) in &told {
        assert!(error.starts_with("rank 1 is gone"), "{error}");
        assert!(*seconds < 6.0, "named after {seconds} s");
    }
    // One of them may have it from the other.
    assert!(told.iter().any(|(error, _)| error.contains("litmus test")), "{told:?}");
}

/// The same where calls can't be aborted: the others wait for their lines.
#[test]
fn without_an_abort_the_litmus_test_waits_out_its_limit() {
    for (error, seconds) in killed("without_an_abort_the_litmus_test_waits_out_its_limit", false) {
        assert!(error.starts_with("rank 1 is gone"), "{error}");
        assert!(seconds > 8.0, "named after {seconds} s");
    }
}
