//! A consumer on another queue that waits only on what the call returned always sees its result, in replays too; and each
//! edge that is taken away is missed.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice, EventChoice};
use ccl_tests::graph::{Chain, Way, run, run_rank, shows_edges};
use ccl_tests::local::ranks;
use ccl_tests::{Group, soft};
use ccl_ze::hooks;
use std::time::Duration;
use ze_soft::ext;

const COUNT: usize = 1073;
const N: usize = 2;

fn config() -> Config {
    Config { device: DeviceChoice::Soft, timeout: Duration::from_secs(20), ..Config::default() }
}

/// In a process of its own: faults hold for all of a process.
fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", N).limit(Duration::from_secs(240))
}

/// Every command of the queue starts up to `microseconds` late.
fn delay(ordinal: u32, microseconds: u64) {
    soft::fault(ext::ZESOFT_FAULT_DELAY_QUEUE, ext::ZESOFT_ANY, ordinal, microseconds * 1000, 0x5eed);
}

fn clear() {
    soft::fault(ext::ZESOFT_FAULT_CLEAR, 0, 0, 0, 0);
}

fn passes(way: Way, turns: usize, config: &Config) {
    let verdict = run(way, N, COUNT, turns, config, 0);
    assert_eq!((verdict.wrong, verdict.turns), (0, turns), "{way:?}: {verdict:?}");
}

#[test]
fn ten_thousand_replays_of_a_graph() {
    process("ten_thousand_replays_of_a_graph").run(|_| passes(Way::Graph, 10_000, &config()));
}

#[test]
fn executions_of_lists() {
    process("executions_of_lists").run(|_| passes(Way::Lists, 2_000, &config()));
}

#[test]
fn consumers_outside_the_graph() {
    process("consumers_outside_the_graph").run(|_| passes(Way::Outside, 2_000, &config()));
}

/// The driver's own description: no edge is missing, and none leads elsewhere.
#[test]
fn the_dump_shows_the_edges() {
    process("the_dump_shows_the_edges").run(|_| {
        ranks(N, &config(), &StartState::default(), |comm| {
            let chain = Chain::new(comm.clone(), Way::Eager, COUNT).unwrap();
            let (graph, done) = chain.capture(true).unwrap();
            let file = std::env::temp_dir().join(format!("ccl-graph-{}-{}.dot", std::process::id(), comm.rank()));
            graph.dump(&file).unwrap();
            let dump = std::fs::read_to_string(&file).unwrap();
            std::fs::remove_file(&file).unwrap();
            shows_edges(&dump).unwrap();
            // The picture of docs/graphs.md, but for addresses.
            let simple = |text: &str| text.lines().filter(|line| line.contains("->")).collect::<Vec<_>>().join("\n");
            let documented = include_str!("../../docs/graphs.dot");
            assert_eq!(simple(&dump), simple(documented), "docs/graphs.dot is made from this: {dump}");
            drop((done, graph));
        });
    });
}

#[test]
fn between_processes() {
    Group::new("between_processes", N).run(|rank| {
        let comm = rank.communicator();
        for way in [Way::Eager, Way::Graph, Way::Lists, Way::Outside] {
            run_rank(way, comm.clone(), COUNT, 300);
        }
    });
}

#[test]
fn eager_calls() {
    process("eager_calls").run(|_| {
        passes(Way::Eager, 1_000, &config());
        passes(Way::Eager, 1_000, &Config { events: EventChoice::Regular, ..config() });
    });
}

#[test]
fn late_and_shuffled_queues() {
    process("late_and_shuffled_queues").run(|_| {
        for way in [Way::Graph, Way::Lists, Way::Eager, Way::Outside] {
            for slow in [0, 1] {
                clear();
                delay(slow, 300);
                soft::fault(ext::ZESOFT_FAULT_REORDER, ext::ZESOFT_ANY, ext::ZESOFT_ANY, 0, 7 + u64::from(slow));
                passes(way, 200, &config());
            }
        }
    });
}

/// The one edge from the collective to its consumer, by the numbers of the dump (docs/graphs.dot).
const OUTGOING: u64 = 5 << 32 | 7;

/// NEGATIVE CONTROL: fails within a thousand turns.
fn fails(what: &str, way: Way, hooks: u32) {
    let verdict = run(way, N, COUNT, 1_000, &config(), hooks);
    eprintln!("{what}, {way:?}: wrong after {} turns: {:?}", verdict.turns, verdict.first);
    assert!(verdict.wrong > 0, "{what}, {way:?}: nobody noticed in {} turns", verdict.turns);
}

#[test]
fn without_the_outgoing_edge() {
    process("without_the_outgoing_edge").run(|_| {
        for way in [Way::Eager, Way::Lists] {
            delay(1, 300);
            fails("nothing is signalled", way, hooks::NO_SIGNAL);
        }
        // In a graph the driver would refuse to wait for what nobody signals: there it loses the edge itself.
        soft::fault(ext::ZESOFT_FAULT_DROP_EDGES, ext::ZESOFT_ANY, 0, OUTGOING, 0);
        fails("edge dropped", Way::Graph, 0);
    });
}

#[test]
fn without_the_incoming_edge() {
    process("without_the_incoming_edge").run(|_| {
        delay(0, 300);
        for way in [Way::Eager, Way::Lists, Way::Graph] {
            fails("nothing is waited for", way, hooks::NO_WAITS);
        }
    });
}

#[test]
fn with_a_base_that_is_frozen() {
    process("with_a_base_that_is_frozen").run(|_| {
        for way in [Way::Lists, Way::Graph] {
            fails("base passed by value", way, hooks::FROZEN_BASE);
        }
    });
}

#[test]
fn with_an_event_from_the_replay_before() {
    process("with_an_event_from_the_replay_before").run(|_| {
        delay(1, 300);
        fails("regular event, never reset", Way::Lists, hooks::STALE_EVENT);
        fails("waited for from outside", Way::Wrong, hooks::STALE_EVENT);
        soft::fault(ext::ZESOFT_FAULT_STALE_EDGES, ext::ZESOFT_ANY, 0, OUTGOING, 0);
        fails("edge satisfied by the replay before", Way::Graph, 0);
    });
}
