//! Where the staging memory is, and what happens when a link or an allocation is broken.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{Bfloat16, Float32};
use ccl_core::comm::StartState;
use ccl_core::config::Config;
use ccl_tests::group::Ended;
use ccl_tests::local::{Peer, sum};
use ccl_tests::{Group, Rank, data, soft};
use ccl_ze::hooks;
use std::time::Duration;
use ze_soft::ext;

/// Sends this rank's log to standard error, where the parent counts the warnings.
fn log() {
    ccl_ze::log::install(&Config::from_env().unwrap()).unwrap();
}

/// Reduces messages of some sizes and says where the staging memory is.
fn check(rank: &Rank, hooks: u32) -> ccl_core::Result<()> {
    let start = StartState { hooks, ..StartState::default() };
    let comm = rank.builder().start(start).init(&rank.id, rank.rank, rank.n)?;
    rank.say(format!("p2p={}", comm.describe().p2p));
    let mut peer = Peer::new(comm, 400_000);
    for (seed, dtype, count) in [(1, Bfloat16, 1), (2, Float32, 1000), (3, Bfloat16, 200_000), (4, Float32, 77_777)] {
        let inputs: Vec<_> = (0..rank.n).map(|r| data::ordinary(dtype, seed, r, count)).collect();
        let got = peer.reduce(&sum(dtype, count), &inputs[rank.rank], count.is_multiple_of(2))?;
        let difference = data::first_difference(&got, &data::expected(dtype, &inputs, None), dtype);
        assert_eq!(difference, None, "rank {} of {}, {count} {dtype}", rank.rank, rank.n);
    }
    Ok(())
}

fn count(ended: &[Ended], text: &str) -> usize {
    ended.iter().map(|rank| rank.output.matches(text).count()).sum()
}

/// Runs `check` after `before` and returns what all ranks, who must succeed, wrote.
fn run(group: Group, hooks: fn(usize) -> u32, before: fn(usize)) -> Vec<Ended> {
    // Faults are planted in the driver that is linked in.
    group.env("CCLX_DEVICE", "soft").run_with(
        |rank| {
            log();
            before(rank.rank);
            check(&rank, hooks(rank.rank)).unwrap();
        },
        |running| {
            let ended = running.wait();
            for (rank, ended) in ended.iter().enumerate() {
                assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
            }
            ended
        },
    )
}

fn no_hooks(_: usize) -> u32 {
    0
}

fn no_fault(_: usize) {}

fn assert_everywhere(ended: &[Ended], p2p: bool, warnings: usize) {
    let all: String = ended.iter().map(|rank| rank.output.as_str()).collect();
    assert_eq!(count(ended, &format!("p2p={p2p}")), ended.len(), "{all}");
    assert_eq!(count(ended, "CCL_WARN"), warnings, "{all}");
}

#[test]
fn devices_that_reach_each_other_use_device_memory() {
    for (p2p, n) in [("all", 4), ("ring", 3)] {
        let group = Group::new("devices_that_reach_each_other_use_device_memory", n).env("ZE_SOFT_P2P", p2p);
        assert_everywhere(&run(group, no_hooks, no_fault), true, 0);
    }
}

#[test]
fn devices_that_do_not_are_staged() {
    let group = || Group::new("devices_that_do_not_are_staged", 3);
    // The third has the device opposite to the first's: that link alone is missing.
    let groups = [
        group().env("ZE_SOFT_P2P", "none"),
        group().env("ZE_SOFT_P2P", "ring").env("ZE_SOFT_DEVICES", 4),
        // Neighbours alone are not enough: some algorithms store into every rank's memory.
        Group::new("devices_that_do_not_are_staged", 4).env("ZE_SOFT_P2P", "ring"),
        group().env("CCL_TOPO_P2P_ACCESS", 0),
    ];
    for group in groups {
        assert_everywhere(&run(group, no_hooks, no_fault), false, 0);
    }
}

/// Exactly one warning, from one rank, that names the pair.
fn assert_falls_back(ended: &[Ended], named: &str) {
    assert_everywhere(ended, false, 1);
    let warning = ended.iter().flat_map(|rank| rank.output.lines()).find(|line| line.contains("CCL_WARN")).unwrap();
    assert!(warning.contains(named) && warning.contains("host memory"), "{warning}");
}

#[test]
fn one_corrupt_pair_stages_everybody() {
    let group = Group::new("one_corrupt_pair_stages_everybody", 4);
    let ended = run(group, |rank| if rank == 1 { hooks::CORRUPT_LINK } else { 0 }, no_fault);
    assert_falls_back(&ended, "1 -> 2, 1 -> 3, 1 -> 0");
}

#[test]
fn a_link_that_the_driver_corrupts_stages_everybody() {
    let group = Group::new("a_link_that_the_driver_corrupts_stages_everybody", 4);
    let ended = run(group, no_hooks, |rank| {
        if rank == 3 {
            // No neighbours.
            soft::fault(ext::ZESOFT_FAULT_CORRUPT_LINK, 3, 1, 0, 0);
        }
    });
    assert_falls_back(&ended, "3 -> 1");
}

#[test]
fn memory_that_cannot_be_opened_stages_everybody() {
    let group = Group::new("memory_that_cannot_be_opened_stages_everybody", 3);
    let ended = run(group, no_hooks, |rank| {
        if rank == 2 {
            soft::fault(ext::ZESOFT_FAULT_FAIL_IPC_OPEN, 0, 0, 1, 0);
        }
    });
    assert_falls_back(&ended, "2 -> 0");
}

/// Every allocation of rank 1 in turn: the group works without it, or every rank gets an error, and rank 0's names
/// rank 1. Which of the two, by the number of the allocation.
fn failed_allocations(test: &str, p2p: u32) -> Vec<bool> {
    const FAILURES: u64 = 7;
    let outcome = |nth: u64| {
        let group = Group::new(test, 2).env("CCL_TOPO_P2P_ACCESS", p2p).env("TEST_NTH", nth);
        group.env("CCLX_DEVICE", "soft").limit(Duration::from_secs(30)).run_with(
            |rank| {
                let nth = std::env::var("TEST_NTH").unwrap().parse().unwrap();
                if rank.rank == 1 {
                    soft::fault(ext::ZESOFT_FAULT_FAIL_ALLOCATION, 0, 0, nth, 0);
                }
                let start = StartState::default();
                match rank.builder().start(start).init(&rank.id, rank.rank, rank.n) {
                    Err(error) => rank.say(format!("error: {error}")),
                    Ok(comm) => {
                        soft::fault(ext::ZESOFT_FAULT_CLEAR, 0, 0, 0, 0);
                        let mut peer = Peer::new(comm, 4096);
                        let inputs = [0, 1].map(|r| data::ordinary(Float32, nth, r, 1024));
                        let got = peer.reduce(&sum(Float32, 1024), &inputs[rank.rank], false).unwrap();
                        assert_eq!(got, data::expected(Float32, &inputs, None));
                        rank.say("works");
                    }
                }
            },
            |running| {
                let ended = running.wait();
                let all: String = ended.iter().map(|rank| rank.output.as_str()).collect();
                assert!(ended.iter().all(|rank| rank.status.success()), "allocation {nth}: {all}");
                let works = count(&ended, "works");
                assert!(works == 0 || works == 2, "allocation {nth}: {all}");
                if works == 0 {
                    let line = |rank: usize| {
                        ended[rank].output.lines().find_map(|line| line.split_once("error: ")).unwrap().1.to_owned()
                    };
                    assert!(line(0).contains("rank 1"), "allocation {nth}: {}", line(0));
                    assert!(line(1).contains("MEMORY"), "allocation {nth}: {}", line(1));
                }
                works == 2
            },
        )
    };
    (1..=FAILURES).map(outcome).collect()
}

#[test]
fn a_failed_allocation_falls_back_to_host_memory() {
    // The staging memory, the table of peers, the state and the host block, which are tried again elsewhere; then the
    // buffers of the three litmus tests, whose want is an error.
    let outcomes = failed_allocations("a_failed_allocation_falls_back_to_host_memory", 1);
    assert_eq!(outcomes, [true, true, true, true, false, false, false]);
}

#[test]
fn a_failed_allocation_without_a_way_out_is_an_error_everywhere() {
    let outcomes = failed_allocations("a_failed_allocation_without_a_way_out_is_an_error_everywhere", 0);
    // The table of peers, the state, the host block and the buffers of the litmus tests; host staging memory is mapped, not
    // allocated.
    assert_eq!(outcomes, [false, false, false, false, false, false, true]);
}
