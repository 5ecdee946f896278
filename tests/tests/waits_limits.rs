//! Settings that did not come from the environment: those out of range are refused by name, before anything else, and
//! those at its ends work.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::config::Config;
use ccl_core::{Error, bootstrap};
use ccl_tests::Group;
use ccl_tests::data;
use ccl_tests::local::{Peer, sum};
use ccl_ze::Communicator;
use std::time::{Duration, Instant};

/// The longest time that CCLX_TIMEOUT_MS can say.
const LONGEST: Duration = Duration::from_millis(u32::MAX as u64);

/// What two ranks with this configuration, as threads, meet.
fn form(config: &Config) -> Vec<Result<Communicator, Error>> {
    let meshes = bootstrap::local(2).unwrap();
    std::thread::scope(|scope| {
        let join = |(rank, mesh)| {
            let builder = Communicator::builder_with(config.clone()).device(rank);
            scope.spawn(move || builder.init_local(mesh))
        };
        let threads: Vec<_> = meshes.into_iter().enumerate().map(join).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn what_is_out_of_range_is_refused_by_name() {
    let config = Config::default;
    let bad = [
        ("CCLX_TIMEOUT_MS", Config { timeout: Duration::MAX, ..config() }),
        ("CCLX_TIMEOUT_MS", Config { timeout: Duration::from_millis(1 << 32), ..config() }),
        ("CCLX_TIMEOUT_MS", Config { timeout: Duration::ZERO, ..config() }),
        ("CCLX_TIMEOUT_MS", Config { timeout: LONGEST + Duration::from_nanos(1), ..config() }),
        ("CCL_KVS_CONNECTION_TIMEOUT", Config { connection_timeout: Duration::MAX, ..config() }),
        ("CCL_KVS_CONNECTION_TIMEOUT", Config { connection_timeout: Duration::ZERO, ..config() }),
        ("CCLX_STAGING_TILES", Config { staging_tiles: 0, ..config() }),
        ("CCLX_STAGING_TILES", Config { staging_tiles: u32::MAX, ..config() }),
        ("CCLX_MAX_WIRES", Config { max_wires: 0, ..config() }),
        ("CCLX_MAX_WIRES", Config { max_wires: u32::MAX, ..config() }),
        ("CCLX_GRANULE", Config { granule: 7, ..config() }),
        ("CCLX_GRANULE", Config { granule: 128, ..config() }),
        ("LOCAL_RANK", Config { local_rank: Some(u32::MAX), ..config() }),
        ("LOCAL_WORLD_SIZE", Config { local_world_size: Some(0), ..config() }),
        ("CCL_LOG_FILE", Config { log_file: Some("".into()), ..config() }),
    ];
    Group::new("what_is_out_of_range_is_refused_by_name", 1).limit(Duration::from_secs(30)).run(|_| {
        for (name, config) in &bad {
            let since = Instant::now();
            for met in form(config) {
                match met {
                    Err(Error::InvalidArgument(what)) => assert!(what.starts_with(&format!("{name}='")), "{what}"),
                    Err(other) => panic!("{name}: {other}"),
                    Ok(_) => panic!("{name} was not refused: {config:?}"),
                }
            }
            assert!(since.elapsed() < Duration::from_secs(2), "{name}: at once, not after {:?}", since.elapsed());
        }
    });
}

/// A rank whose configuration is refused does not leave the others waiting for it.
#[test]
fn the_others_are_told() {
    Group::new("the_others_are_told", 1).limit(Duration::from_secs(30)).run(|_| {
        let mut meshes = bootstrap::local(2).unwrap();
        let bad = Config { timeout: Duration::MAX, ..Config::default() };
        let refused = Communicator::builder_with(bad).device(1).init_local(meshes.remove(1));
        assert!(matches!(refused.map(drop), Err(Error::InvalidArgument(_))));
        let since = Instant::now();
        let met = Communicator::builder_with(Config::default()).device(0).init_local(meshes.remove(0));
        let error = met.map(drop).unwrap_err();
        assert!(error.to_string().contains("CCLX_TIMEOUT_MS"), "{error}");
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    });
}

#[test]
fn the_ends_of_the_ranges_work() {
    let config = Config { staging_tiles: 4, ..Config::default() };
    let good = [
        Config { timeout: LONGEST, ..config.clone() },
        // No whole number of seconds.
        Config { connection_timeout: Duration::from_millis(20_500), ..config.clone() },
        Config { connection_timeout: Duration::from_secs(u32::MAX.into()), ..config.clone() },
        Config { staging_tiles: 1, max_wires: 1, ..config.clone() },
        Config { local_rank: Some(0), local_world_size: Some(u16::MAX.into()), ..config },
    ];
    Group::new("the_ends_of_the_ranges_work", 1).limit(Duration::from_secs(60)).run(|_| {
        for config in &good {
            let comms: Vec<_> = form(config).into_iter().map(Result::unwrap).collect();
            std::thread::scope(|scope| {
                for comm in comms {
                    scope.spawn(move || {
                        let (dtype, count) = (ccl_core::DataType::Float32, 9000);
                        let inputs: Vec<_> = (0..2).map(|rank| data::ordinary(dtype, 3, rank, count)).collect();
                        let mut peer = Peer::new(comm, inputs[0].len());
                        let got = peer.reduce(&sum(dtype, count), &inputs[peer.comm.rank()], true).unwrap();
                        let want = data::expected(dtype, &inputs, None);
                        assert_eq!(data::first_difference(&got, &want, dtype), None);
                    });
                }
            });
        }
    });
}
