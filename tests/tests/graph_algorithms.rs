//! Recordings of each algorithm, whatever the tables would choose: producer, collective and consumer on three lists.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::config::{Algorithm, Config, DeviceChoice, TransportChoice};
use ccl_tests::Group;
use ccl_tests::graph::{Way, run};
use ccl_ze::hooks;
use std::time::Duration;

const WAYS: [(Algorithm, TransportChoice); 5] = [
    (Algorithm::Ring, TransportChoice::Auto),
    (Algorithm::OneShot, TransportChoice::Lines),
    (Algorithm::OneShot, TransportChoice::Bulk),
    (Algorithm::Mesh, TransportChoice::Lines),
    (Algorithm::Mesh, TransportChoice::Bulk),
];

fn config((allreduce, transport): (Algorithm, TransportChoice)) -> Config {
    let timeout = Duration::from_secs(20);
    Config { allreduce, transport, timeout, device: DeviceChoice::Soft, ..Config::default() }
}

#[test]
fn replays_of_each_algorithm() {
    Group::new("replays_of_each_algorithm", 1).env("ZE_SOFT_DEVICES", 3).run(|_| {
        for algorithm in WAYS {
            for (way, count) in [(Way::Graph, 1073), (Way::Lists, 437), (Way::Outside, 5), (Way::Graph, 25 * 2048)] {
                let verdict = run(way, 3, count, 100, &config(algorithm), 0);
                assert_eq!((verdict.wrong, verdict.turns), (0, 100), "{algorithm:?}, {way:?}: {verdict:?}");
            }
        }
    });
}

/// NEGATIVE CONTROL: each algorithm counts its calls on the device.
#[test]
fn with_a_base_that_is_frozen_each_is_wrong() {
    Group::new("with_a_base_that_is_frozen_each_is_wrong", 1).env("ZE_SOFT_DEVICES", 3).run(|_| {
        for algorithm in WAYS {
            let verdict = run(Way::Graph, 3, 1073, 1_000, &config(algorithm), hooks::FROZEN_BASE);
            assert!(verdict.wrong > 0, "{algorithm:?}: nobody noticed in {} turns", verdict.turns);
        }
    });
}
