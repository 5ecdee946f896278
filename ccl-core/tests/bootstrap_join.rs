//! Joining, and every way in which it is refused.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ccl_core::bootstrap::{RootOptions, UNIQUE_ID_BYTES, UniqueId, join, local};
use ccl_core::mesh::Mesh;
use ccl_core::{Error, Result};
use sha2::{Digest, Sha256};

const PATIENCE: Duration = Duration::from_secs(20);

fn create() -> UniqueId {
    UniqueId::create(RootOptions::default()).unwrap()
}

fn start(id: &UniqueId, rank: usize, world: usize, timeout: Duration) -> thread::JoinHandle<Result<Mesh>> {
    let id = *id;
    thread::spawn(move || join(&id, rank, world, timeout))
}

fn finish(threads: Vec<thread::JoinHandle<Result<Mesh>>>) -> Vec<Mesh> {
    threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
}

/// Every rank hears every other one's own words.
fn check_group(meshes: &[Mesh]) {
    thread::scope(|scope| {
        for mesh in meshes {
            scope.spawn(move || {
                mesh.set_deadline(PATIENCE);
                let said = mesh.all_gather(format!("I am {}", mesh.rank()).as_bytes(), "names").unwrap();
                let expected: Vec<_> = (0..meshes.len()).map(|rank| format!("I am {rank}").into_bytes()).collect();
                assert_eq!(said, expected);
                mesh.barrier("end").unwrap();
                for peer in 0..meshes.len() {
                    let expected = (peer != mesh.rank()).then(std::process::id);
                    assert_eq!(mesh.peer_pid(peer), expected);
                }
            });
        }
    });
}

fn text_of(result: Result<Mesh>) -> String {
    result.expect_err("this join must fail").to_string()
}

#[test]
fn groups_of_all_sizes_form() {
    for world in [1, 2, 3, 5, 8, 16] {
        let id = create();
        let meshes = finish((0..world).rev().map(|rank| start(&id, rank, world, PATIENCE)).collect());
        assert!(meshes.iter().rev().enumerate().all(|(rank, mesh)| mesh.rank() == rank && mesh.world_size() == world));
        check_group(&meshes);
        check_group(&local(world).unwrap());
    }
}

#[test]
fn impossible_ranks_and_worlds_are_refused() {
    let id = create();
    for (rank, world) in [(0, 0), (0, 17), (4, 4), (usize::MAX, 2)] {
        let error = join(&id, rank, world, PATIENCE).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    assert!(matches!(local(0), Err(Error::InvalidArgument(_))));
    assert!(matches!(local(17), Err(Error::InvalidArgument(_))));
}

#[test]
fn a_late_rank_is_waited_for() {
    let id = create();
    let early: Vec<_> = (0..3).map(|rank| start(&id, rank, 4, PATIENCE)).collect();
    thread::sleep(Duration::from_millis(700));
    assert!(early.iter().all(|thread| !thread.is_finished()));
    let late = start(&id, 3, 4, PATIENCE);
    check_group(&finish(early.into_iter().chain([late]).collect()));
}

#[test]
fn offenders_are_named_and_the_group_is_not_disturbed() {
    let id = create();
    let first: Vec<_> = [0, 2].map(|rank| start(&id, rank, 4, PATIENCE)).into();
    thread::sleep(Duration::from_millis(200));
    let pid = std::process::id();
    let twice = text_of(join(&id, 2, 4, PATIENCE));
    assert!(
        twice.contains("as rank 2 of 4") && twice.contains(&format!("process {pid} has joined as this")),
        "{twice}"
    );
    let other_world = text_of(join(&id, 1, 5, PATIENCE));
    assert!(other_world.contains("as rank 1 of 5: the world has 4 ranks"), "{other_world}");
    let stranger = text_of(join(&with_other_secret(&id), 1, 4, PATIENCE));
    assert!(stranger.contains("wrong secret"), "{stranger}");
    let rest: Vec<_> = [1, 3].map(|rank| start(&id, rank, 4, PATIENCE)).into();
    check_group(&finish(first.into_iter().chain(rest).collect()));
}

/// The same meeting place, another secret, a right checksum.
fn with_other_secret(id: &UniqueId) -> UniqueId {
    let mut bytes = *id.as_bytes();
    let name = bytes.windows(5).position(|window| window == b"cclx-").unwrap();
    bytes[name - 1] ^= 0x40;
    let checksum = Sha256::digest(&bytes[..UNIQUE_ID_BYTES - 32]);
    bytes[UNIQUE_ID_BYTES - 32..].copy_from_slice(&checksum);
    UniqueId::from_bytes(bytes)
}

#[test]
fn a_damaged_id_is_refused_before_anything_is_sent() {
    let id = create();
    for at in [0, 10, 20, 70, 100, 2000, UNIQUE_ID_BYTES - 1] {
        let mut bytes = *id.as_bytes();
        bytes[at] ^= 1;
        let error = join(&UniqueId::from_bytes(bytes), 0, 1, PATIENCE).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "byte {at}: {error}");
    }
    check_group(&[join(&UniqueId::from_bytes(*id.as_bytes()), 0, 1, PATIENCE).unwrap()]);
}

#[test]
fn the_timeout_names_the_missing_and_ranks_may_come_again() {
    let id = create();
    let limit = Duration::from_secs(2);
    let began = Instant::now();
    let there: Vec<_> = [0, 1, 3].map(|rank| start(&id, rank, 4, limit)).into();
    for thread in there {
        let error = thread.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Timeout { after, .. } if after == limit), "{error}");
        // The last to give up may have seen the others leave.
        let text = error.to_string();
        assert!(text.split_once("ranks joined; missing: ").is_some_and(|(_, ranks)| ranks.contains('2')), "{text}");
    }
    assert!(began.elapsed() >= limit && began.elapsed() < limit * 4);

    let patient: Vec<_> = [0, 1].map(|rank| start(&id, rank, 4, PATIENCE)).into();
    let error = text_of(join(&id, 3, 4, limit));
    assert!(error.contains("3 of 4 ranks joined; missing: 2"), "{error}");
    let rest: Vec<_> = [2, 3].map(|rank| start(&id, rank, 4, PATIENCE)).into();
    check_group(&finish(patient.into_iter().chain(rest).collect()));
}

#[test]
fn a_rendezvous_that_is_over_says_so() {
    let id = create();
    let _group = finish((0..2).map(|rank| start(&id, rank, 2, PATIENCE)).collect());
    let began = Instant::now();
    let error = text_of(join(&id, 0, 2, PATIENCE));
    assert!(error.contains("nobody serves this unique id any more"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5), "no reason to wait for the whole timeout");

    let short = RootOptions { idle_limit: Duration::from_millis(50), ..RootOptions::default() };
    let id = UniqueId::create(short).unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(text_of(join(&id, 0, 1, Duration::from_millis(500))).contains("nobody serves"));
}

#[test]
fn another_network_namespace_is_told_apart() {
    let id = create();
    let inside = move || match nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
        Ok(()) => Some(text_of(join(&id, 0, 1, PATIENCE))),
        Err(errno) => {
            eprintln!("skipped: this user may not make a network namespace ({errno})");
            None
        }
    };
    if let Some(error) = thread::spawn(inside).join().unwrap() {
        assert!(error.contains("another network namespace"), "{error}");
    }
}

/// Not a test of its own: the body of the processes that the tests below start.
#[test]
fn child() {
    let Ok(role) = std::env::var("CCL_TEST_ROLE") else { return };
    let mut bytes = [0; UNIQUE_ID_BYTES];
    std::io::stdin().read_exact(&mut bytes).unwrap();
    let id = UniqueId::from_bytes(bytes);
    match role.split_once(' ') {
        Some(("rank", numbers)) => {
            let (rank, world) = numbers.split_once('/').unwrap();
            let mesh = join(&id, rank.parse().unwrap(), world.parse().unwrap(), PATIENCE).unwrap();
            let said = mesh.all_gather(&std::process::id().to_le_bytes(), "pids").unwrap();
            for (peer, pid) in said.iter().enumerate().filter(|(peer, _)| *peer != mesh.rank()) {
                assert_eq!(mesh.peer_pid(peer).unwrap().to_le_bytes()[..], pid[..]);
            }
            println!("JOINED {}", mesh.rank());
        }
        _ => {
            nix::unistd::setuid(65534.into()).unwrap();
            println!("JOINER {}", text_of(join(&id, 0, 1, PATIENCE)));
            let address = SocketAddr::from_abstract_name(id.socket_name()).unwrap();
            let mut reply = Vec::new();
            UnixStream::connect_addr(&address).unwrap().read_to_end(&mut reply).unwrap();
            println!("ROOT {}", String::from_utf8_lossy(&reply));
        }
    }
}

fn spawn_child(role: &str, id: &UniqueId) -> std::process::Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("CCL_TEST_ROLE", role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(id.as_bytes()).unwrap();
    child
}

#[test]
fn processes_meet_at_a_process_that_is_no_rank() {
    let id = create();
    let children: Vec<_> = (0..5).map(|rank| spawn_child(&format!("rank {rank}/5"), &id)).collect();
    for (rank, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(&format!("JOINED {rank}")), "{text}");
    }
}

#[test]
fn another_user_is_refused_on_both_sides() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let id = create();
    let output = spawn_child("stranger", &id).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("its listener belongs to user 0, this process to user 65534"), "{text}");
    assert!(text.contains("it is for user 0, not for user 65534"), "{text}");
    check_group(&[join(&id, 0, 1, PATIENCE).unwrap()]);
}
