//! What can't work is refused at init, with an error that names what is wrong.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::bootstrap::{self, RootOptions, UniqueId};
use ccl_core::config::{Config, DeviceChoice};
use ccl_core::mesh::Mesh;
use ccl_core::{Error, ReduceOp};
use ccl_tests::{Group, Rank};
use ccl_ze::Communicator;
use std::path::Path;
use std::time::{Duration, Instant};

fn alone(device: DeviceChoice) -> ccl_core::Result<Communicator> {
    let id = UniqueId::create(RootOptions::default()).unwrap();
    Communicator::builder_with(Config { device, ..Config::default() }).init(&id, 0, 1)
}

/// An Intel GPU can't be asked for where there is none; with one, this build has no kernels for it yet.
#[test]
fn an_intel_device_that_is_not_there() {
    let error = alone(DeviceChoice::Intel).map(drop).unwrap_err().to_string();
    let named = ["Level Zero loader", "an Intel GPU is here, but"];
    assert!(named.iter().any(|named| error.contains(named)), "{error}");
}

#[test]
fn a_loader_that_is_not_there() {
    match alone(DeviceChoice::Loader) {
        // A machine with a loader that offers the software driver.
        Ok(comm) => assert!(comm.describe().driver.contains("through libze_loader.so.1")),
        Err(error) => {
            let error = error.to_string();
            let named = ["Level Zero loader", "an Intel GPU is here, but"];
            assert!(named.iter().any(|named| error.contains(named)), "{error}");
        }
    }
}

/// A rank whose environment has this variable, and the error that says so.
fn refused(test: &str, name: &str, value: &str) {
    let body = |rank: Rank| match Communicator::builder() {
        Ok(_) => panic!("{name}={value} was accepted"),
        Err(error) => rank.say(format_args!("error {error}")),
    };
    Group::new(test, 1).env(name, value).run_with(body, |running| {
        let ended = running.wait();
        assert!(ended[0].status.success(), "{}", ended[0].output);
        let error = ended[0].said("error")[0];
        assert!(error.contains(name), "{error}");
        eprintln!("{name}={value}: {error}");
    });
}

#[test]
fn a_value_that_is_none() {
    refused("a_value_that_is_none", "CCLX_TIMEOUT_MS", "soon");
}

#[test]
fn a_variable_that_is_none() {
    refused("a_variable_that_is_none", "CCLX_TIMEOUT", "1000");
}

#[test]
fn a_value_of_another_build() {
    refused("a_value_of_another_build", "CCLX_CHECK", "result");
}

/// Ranks that each try to join; what they met.
fn met(group: Group, of: impl Fn(&Rank) -> ccl_core::Result<Communicator>) -> Option<Vec<String>> {
    let body = |rank: Rank| {
        let met = match of(&rank) {
            Ok(comm) => {
                let stream = comm.stream(0).unwrap();
                let mut buffer = comm.alloc::<f32>(3000).unwrap();
                for _ in 0..20 {
                    buffer.write(&stream, &[rank.rank as f32 + 1.0; 3000]).unwrap();
                    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
                    let mut got = [0.0; 3000];
                    buffer.read(&stream, &mut got).unwrap();
                    assert_eq!(got, [(rank.n * (rank.n + 1) / 2) as f32; 3000]);
                }
                "right".to_owned()
            }
            Err(error) => error.to_string(),
        };
        rank.say(format_args!("met {met}"));
    };
    group.limit(Duration::from_secs(60)).run_with(body, |running| {
        let ended = running.wait();
        let met = ended.iter().map(|ended| {
            assert!(ended.status.success(), "{}", ended.output);
            ended.said("met")[0].to_owned()
        });
        Some(met.collect())
    })
}

fn join(rank: &Rank) -> ccl_core::Result<Communicator> {
    rank.builder().init(&rank.id, rank.rank, rank.n)
}

#[test]
fn more_ranks_than_devices() {
    let group = Group::new("more_ranks_than_devices", 2).env("ZE_SOFT_DEVICES", 1);
    let met = met(group, join).unwrap();
    assert!(met[1].contains("local rank 1 needs a device of its own, but there are 1"), "{met:?}");
    assert!(met[1].contains("CCLX_ALLOW_SHARED_DEVICE=1"), "{met:?}");
    // Who could have joined learns who can't come, and why.
    assert!(met[0].starts_with("rank 1 is gone") && met[0].contains("local rank 1 needs a device"), "{met:?}");
}

#[test]
fn two_ranks_on_one_device() {
    let on_device_0 = |rank: &Rank| rank.builder().device(0).init(&rank.id, rank.rank, rank.n);
    let met = met(Group::new("two_ranks_on_one_device", 2), on_device_0).unwrap();
    for met in met {
        assert!(met.contains("ranks 0 and 1 are on the same device"), "{met}");
        assert!(met.contains("CCLX_ALLOW_SHARED_DEVICE=1 permits it"), "{met}");
    }
}

#[test]
fn two_processes_share_a_device_if_allowed() {
    let group = Group::new("two_processes_share_a_device_if_allowed", 2);
    let met = met(group.env("ZE_SOFT_DEVICES", 1).env("CCLX_ALLOW_SHARED_DEVICE", 1), join).unwrap();
    assert_eq!(met, ["right", "right"]);
}

/// Ranks as threads with a configuration each; what they met, and how long it took.
fn threads(configs: Vec<Config>, device: impl Fn(usize) -> usize) -> Vec<ccl_core::Result<()>> {
    let began = Instant::now();
    let meshes = bootstrap::local(configs.len()).unwrap();
    let met = std::thread::scope(|scope| {
        let join = |(mesh, config): (Mesh, Config)| {
            let device = device(mesh.rank());
            scope.spawn(move || Communicator::builder_with(config).device(device).init_local(mesh).map(drop))
        };
        let ranks: Vec<_> = meshes.into_iter().zip(configs).map(join).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert!(began.elapsed() < Duration::from_secs(20));
    met
}

fn soft() -> Config {
    Config { device: DeviceChoice::Soft, connection_timeout: Duration::from_secs(10), ..Config::default() }
}

#[test]
fn threads_can_not_share_a_device() {
    let config = Config { allow_shared_device: true, ..soft() };
    for met in threads(vec![config; 2], |_| 0) {
        let error = met.unwrap_err().to_string();
        assert!(error.contains("ranks 0 and 1 are threads of one process on one device"), "{error}");
    }
}

#[test]
fn a_variable_that_differs_is_named() {
    let odd = Config { granule: 8, ..soft() };
    for met in threads(vec![soft(), soft(), odd], |rank| rank) {
        let error = met.unwrap_err();
        assert!(matches!(error, Error::Mismatch { rank: 2, .. }), "{error}");
        assert!(error.to_string().contains("CCLX_GRANULE=8 there, CCLX_GRANULE=0 on rank 0"), "{error}");
    }
}

#[test]
fn the_log_file_that_can_not_be_opened_is_named() {
    let path = Path::new("/proc/no/such/folder/log");
    let error = ccl_ze::log::install(&Config { log_file: Some(path.into()), ..soft() }).unwrap_err();
    assert!(error.to_string().contains("CCL_LOG_FILE=/proc/no/such/folder/log"), "{error}");
}
