//! Consumer tests with the device kernels' SPIR-V, executed by an OpenCL runtime: edges of graphs, lists and eager calls,
//! and what happens without them. Run by `.ci/beds/opencl-tests.sh`; few turns, since one takes tens of milliseconds.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_tests::graph::{Chain, Way};
use ccl_tests::{Group, soft};
use ccl_ze::hooks;
use std::time::Duration;
use ze_soft::ext;

const COUNT: usize = 437;
const TURNS: usize = 25;

/// Wrong outputs of each rank.
fn wrong(test: &str, way: Way, hooks: u32, plant: impl Fn()) -> Vec<usize> {
    let body = |rank: ccl_tests::Rank| {
        plant();
        let start = StartState { hooks, ..StartState::default() };
        let comm = rank.builder().start(start).init(&rank.id, rank.rank, rank.n).unwrap();
        let mut chain = Chain::new(comm, way, COUNT).unwrap();
        let wrong = (0..TURNS).filter_map(|turn| chain.turn(turn).unwrap()).count();
        rank.say(format_args!("wrong {wrong}"));
    };
    Group::new(test, 2).limit(Duration::from_secs(240)).run_with(body, |running| {
        let ended = running.wait();
        let number = |ended: &ccl_tests::group::Ended| {
            assert!(ended.status.success(), "{}\n{}", ended.status, ended.output);
            ended.said("wrong")[0].trim().parse().unwrap()
        };
        ended.iter().map(number).collect()
    })
}

#[test]
#[ignore = "needs the OpenCL bed"]
fn replays_of_a_graph() {
    assert_eq!(wrong("replays_of_a_graph", Way::Graph, 0, || ()), [0, 0]);
}

#[test]
#[ignore = "needs the OpenCL bed"]
fn executions_of_lists() {
    assert_eq!(wrong("executions_of_lists", Way::Lists, 0, || ()), [0, 0]);
}

#[test]
#[ignore = "needs the OpenCL bed"]
fn a_consumer_outside_the_graph() {
    assert_eq!(wrong("a_consumer_outside_the_graph", Way::Outside, 0, || ()), [0, 0]);
}

/// NEGATIVE CONTROL.
#[test]
#[ignore = "needs the OpenCL bed"]
fn without_the_incoming_edge() {
    let slow = || soft::fault(ext::ZESOFT_FAULT_DELAY_QUEUE, ext::ZESOFT_ANY, 0, 2_000_000, 7);
    assert_ne!(wrong("without_the_incoming_edge", Way::Graph, hooks::NO_WAITS, slow), [0, 0]);
}

/// NEGATIVE CONTROL.
#[test]
#[ignore = "needs the OpenCL bed"]
fn without_the_outgoing_edge() {
    assert_ne!(wrong("without_the_outgoing_edge", Way::Lists, hooks::NO_SIGNAL, || ()), [0, 0]);
}

/// NEGATIVE CONTROL.
#[test]
#[ignore = "needs the OpenCL bed"]
fn with_an_event_from_the_replay_before() {
    assert_ne!(wrong("with_an_event_from_the_replay_before", Way::Lists, hooks::STALE_EVENT, || ()), [0, 0]);
}
