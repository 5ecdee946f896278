//! Graphs in Intel's driver on devices that it pretends: what is captured, instantiated and appended is real, and nothing
//! runs. Run by `.ci/beds/neo-tests.sh`.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_tests::graph::{Chain, Way, shows_edges};
use ccl_tests::neo::pretended;
use ccl_tests::{Group, Rank};
use ccl_ze::{CallOptions, Communicator};

const COUNT: usize = 5000;

fn as_rank(rank: &Rank) -> Communicator {
    pretended(rank.builder()).init(&rank.id, rank.rank, rank.n).unwrap()
}

fn group(test: &str) -> Group {
    Group::new(test, 2).env("CCL_TOPO_P2P_ACCESS", 0)
}

#[test]
#[ignore = "needs the NEO bed"]
fn edges_of_a_captured_graph() {
    let body = |rank: Rank| {
        let comm = as_rank(&rank);
        let chain = Chain::new(comm.clone(), Way::Eager, COUNT).unwrap();
        let (graph, done) = chain.capture(true).unwrap();
        assert!(!graph.is_empty().unwrap());
        let file = std::env::temp_dir().join(format!("ccl-neo-graph-{}.dot", std::process::id()));
        graph.dump(&file).unwrap();
        let dump = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        rank.say(&dump);
        shows_edges(&dump).unwrap();
        let executable = graph.instantiate().unwrap();
        for _ in 0..3 {
            // SAFETY: nothing runs.
            drop(unsafe { executable.launch(chain.stream(), CallOptions::default()).unwrap() });
        }
        // What never runs is never over: nobody waits for it.
        std::mem::forget((executable, chain, done, graph));
        assert_eq!(comm.fault(), None);
        std::process::exit(0);
    };
    group("edges_of_a_captured_graph").run_with(body, |running| {
        for (rank, ended) in running.wait().iter().enumerate() {
            assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        }
    });
}
