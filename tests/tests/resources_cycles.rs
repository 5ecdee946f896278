//! Communicators come and go, or fail to come, and leave nothing behind.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::bootstrap::{self, RootOptions};
use ccl_core::config::{Config, DeviceChoice};
use ccl_core::{Error, ReduceOp};
use ccl_tests::count::{Held, held};
use ccl_tests::failure::{die, share_id};
use ccl_tests::{Group, Rank};
use ccl_ze::Communicator;
use std::time::{Duration, Instant};

const CYCLES: usize = 200;
/// Ranks that spin take many times as long where others want the processors.
const LOADED: Duration = Duration::from_secs(300);
const WARM_UP: usize = 20;
/// How long those who are right wait in a group that is never complete.
const INCOMPLETE: Duration = Duration::from_millis(300);

/// Ranks whose C library has one arena: else it reserves another 64 MiB whenever two threads happen to allocate at once.
fn group(test: &str, ranks: usize) -> Group {
    Group::new(test, ranks).env("MALLOC_ARENA_MAX", 1)
}

/// One life: a communicator, two streams, two buffers, calls of two sizes.
fn live(comm: &Communicator) {
    let streams = [comm.stream(0).unwrap(), comm.stream(1).unwrap()];
    for (stream, count) in streams.iter().zip([10, 20_000]) {
        let mut buffer = comm.alloc::<f32>(count).unwrap();
        buffer.write(stream, &vec![1.0; count]).unwrap();
        comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, stream).unwrap().wait().unwrap();
        let mut got = vec![0.0; count];
        buffer.read(stream, &mut got).unwrap();
        assert!(got.iter().all(|x| *x == comm.world_size() as f32));
    }
}

/// A rendezvous whose group is never complete is over soon.
fn options() -> RootOptions {
    RootOptions { join_limit: INCOMPLETE, ..RootOptions::default() }
}

/// What is held once all that is on its way out has gone: threads, rendezvous that nobody will join any more.
fn settled(wanted: Option<Held>) -> Held {
    let Some(wanted) = wanted else {
        fill_stacks();
        std::thread::sleep(2 * INCOMPLETE);
        return held();
    };
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let now = held();
        let flat = now.descriptors <= wanted.descriptors && now.threads <= wanted.threads;
        if flat || Instant::now() > until {
            return now;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Leaves the C library stacks for more threads than there ever are at once: it keeps those of threads that have ended, and
/// how many of them come to be at the same time is a matter of luck.
fn fill_stacks() {
    let all = std::sync::Barrier::new(48);
    std::thread::scope(|scope| {
        for _ in 0..48 {
            // As large as those of the library's own threads.
            std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, || all.wait()).unwrap();
        }
    });
}

/// Descriptors and threads are no more than before; mappings and address space may waver, but don't grow with the cycles.
fn check_flat(what: &str, before: Held, cycles: usize) -> Held {
    let after = settled(Some(before));
    assert!(after.descriptors <= before.descriptors, "{what}: {before:?}, then {after:?}");
    assert!(after.threads <= before.threads, "{what}: {before:?}, then {after:?}");
    assert!(after.mappings < before.mappings + cycles / 10, "{what}: {before:?}, then {after:?}");
    // The C library keeps a few stacks of threads that have ended. Staging memory alone is megabytes each cycle.
    assert!(after.address_space_kib < before.address_space_kib + (16 << 10), "{what}: {before:?}, then {after:?}");
    after
}

#[test]
fn lives_of_two_processes() {
    let body = |rank: Rank| {
        // It lives through all others, and carries their ids.
        let carrier = rank.communicator();
        let stream = carrier.stream(0).unwrap();
        let cycle =
            || live(&rank.builder().init(&share_id(&rank, &carrier, &stream, options()), rank.rank, rank.n).unwrap());
        for _ in 0..WARM_UP {
            cycle();
        }
        let before = settled(None);
        for _ in 0..CYCLES {
            cycle();
        }
        let after = check_flat("lives", before, CYCLES);
        rank.say(format_args!("held {before:?} {after:?}"));
    };
    group("lives_of_two_processes", 2).limit(LOADED).run_with(body, |running| {
        for (rank, ended) in running.wait().iter().enumerate() {
            assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
            eprintln!("{CYCLES} lives, rank {rank}: {}", ended.said("held")[0]);
        }
    });
}

#[test]
fn lives_of_three_threads() {
    let body = |rank: Rank| {
        let config = Config { device: DeviceChoice::Soft, ..Config::default() };
        let cycle = || {
            let meshes = bootstrap::local(3).unwrap();
            std::thread::scope(|scope| {
                for (device, mesh) in meshes.into_iter().enumerate() {
                    let builder = Communicator::builder_with(config.clone()).device(device);
                    scope.spawn(move || live(&builder.init_local(mesh).unwrap()));
                }
            });
        };
        for _ in 0..WARM_UP {
            cycle();
        }
        let before = settled(None);
        for _ in 0..CYCLES / 2 {
            cycle();
        }
        let after = check_flat("lives", before, CYCLES / 2);
        rank.say(format_args!("held {before:?} {after:?}"));
    };
    group("lives_of_three_threads", 1).env("ZE_SOFT_DEVICES", 3).limit(LOADED).run_with(body, |running| {
        let ended = running.wait();
        assert!(ended[0].status.success(), "{}\n{}", ended[0].status, ended[0].output);
        eprintln!("{} lives of three threads: {}", CYCLES / 2, ended[0].said("held")[0]);
    });
}

/// Ways for an init to fail that both ranks notice.
fn failing(rank: &Rank, way: usize, id: &bootstrap::UniqueId) -> Error {
    let limit = if way == 1 { INCOMPLETE } else { Duration::from_secs(10) };
    // Staging in host memory, from which there is nothing to fall back to.
    let config = Config { connection_timeout: limit, p2p_access: way != 3, ..Config::from_env().unwrap() };
    let builder = |config: &Config| Communicator::builder_with(config.clone());
    let met = match (way, rank.rank) {
        // Rank 1 leaves between rendezvous and communicator.
        (0, 1) => {
            let mesh = bootstrap::join(id, 1, 2, Duration::from_secs(10)).unwrap();
            drop(mesh);
            return Error::Aborted("left".into());
        }
        // It has another world in mind.
        (1, 1) => builder(&config).init(id, 1, 3),
        // It has another configuration.
        (2, 1) => builder(&Config { granule: 8, ..config }).init(id, 1, 2),
        // Its driver runs out of memory in the middle.
        (3, 1) => {
            let countdown = 1;
            ccl_tests::soft::fault(ze_soft::ext::ZESOFT_FAULT_FAIL_ALLOCATION, 0, 0, countdown, 0);
            let met = builder(&config).init(id, 1, 2);
            ccl_tests::soft::fault(ze_soft::ext::ZESOFT_FAULT_CLEAR, 0, 0, 0, 0);
            met
        }
        _ => builder(&config).init(id, rank.rank, 2),
    };
    met.map(drop).expect_err("a failing init")
}

const WAYS: usize = 4;
const FAILURES: usize = 20;

#[test]
fn inits_that_fail() {
    let body = |rank: Rank| {
        let carrier = rank.communicator();
        let stream = carrier.stream(0).unwrap();
        let cycle = |say: bool| {
            for way in 0..WAYS {
                let id = share_id(&rank, &carrier, &stream, options());
                let error = failing(&rank, way, &id);
                if say {
                    rank.say(format_args!("way{way} {error}"));
                }
            }
        };
        for turn in 0..5 {
            cycle(turn == 0);
        }
        let before = settled(None);
        for _ in 0..FAILURES {
            cycle(false);
        }
        let after = check_flat("failing inits", before, FAILURES * WAYS);
        // What failed so often does not stand in the way of what works.
        live(&rank.builder().init(&share_id(&rank, &carrier, &stream, options()), rank.rank, rank.n).unwrap());
        rank.say(format_args!("held {before:?} {after:?}"));
    };
    group("inits_that_fail", 2).run_with(body, |running| {
        let ended = running.wait();
        for (rank, ended) in ended.iter().enumerate() {
            assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
            for way in 0..WAYS {
                eprintln!("rank {rank}, way {way}: {}", ended.said(&format!("way{way}"))[0]);
            }
            eprintln!("rank {rank}: {}", ended.said("held")[0]);
        }
        let said = |rank: usize, way: usize| ended[rank].said(&format!("way{way}"))[0].to_owned();
        assert!(said(0, 0).contains("rank 1"), "{}", said(0, 0));
        // Whoever comes first decides how large the world is.
        let refused = (0..2).find(|rank| said(*rank, 1).contains("the rendezvous refused rank")).unwrap();
        assert!(said(refused, 1).contains("the world has"), "{}", said(refused, 1));
        assert!(said(1 - refused, 1).contains("no group can form"), "{}", said(1 - refused, 1));
        for rank in 0..2 {
            assert!(said(rank, 2).contains("CCLX_GRANULE=8 there, CCLX_GRANULE=0 on rank 0"), "{}", said(rank, 2));
        }
        assert!(said(0, 3).contains("rank 1"), "{}", said(0, 3));
    });
}

/// A process that is killed between rendezvous and communicator is named, and costs the other one nothing.
#[test]
fn a_death_during_init() {
    let body = |rank: Rank| {
        // The device and what its driver keeps for good.
        drop(Communicator::builder().unwrap().init_local(bootstrap::local(1).unwrap().remove(0)).unwrap());
        let before = settled(None);
        if rank.rank == 1 {
            let _mesh = bootstrap::join(&rank.id, 1, 2, Duration::from_secs(10)).unwrap();
            die();
        }
        let error = rank.builder().init(&rank.id, 0, 2).map(drop).unwrap_err();
        assert!(error.to_string().contains("rank 1"), "{error}");
        assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
        check_flat("a death during init", before, 100);
    };
    group("a_death_during_init", 2).limit(Duration::from_secs(30)).run_with(body, |running| {
        let ended = running.wait();
        assert!(ended[0].status.success(), "{}\n{}", ended[0].status, ended[0].output);
    });
}
