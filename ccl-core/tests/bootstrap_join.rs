//! Joining, and every way in which it is refused.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ccl_core::bootstrap::{RootOptions, UNIQUE_ID_BYTES, UniqueId, decline, join, local};
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

/// Longer than it takes to tell somebody something, and much shorter than a rank's own time.
const SOON: Duration = Duration::from_secs(8);

/// Ranks 0 and 2 of 4, which have joined.
fn two_of_four(options: RootOptions) -> (UniqueId, Vec<thread::JoinHandle<Result<Mesh>>>) {
    let id = UniqueId::create(options).unwrap();
    let ranks = [0, 2].map(|rank| start(&id, rank, 4, PATIENCE)).into();
    thread::sleep(Duration::from_millis(200));
    (id, ranks)
}

/// A rank that can't be let in, and what it and the others are told.
type Offence = (fn(&UniqueId) -> String, &'static str);

const OFFENCES: [Offence; 6] = [
    (|id| text_of(join(id, 2, 4, PATIENCE)), "as rank 2 of 4: process PID has joined as this rank already"),
    (|id| text_of(join(id, 1, 5, PATIENCE)), "process PID as rank 1 of 5: the world has 4 ranks"),
    (|id| text_of(join(id, 4, 4, PATIENCE)), "rank 4 in a world of 4 ranks"),
    (|id| text_of(join(id, 3, 17, PATIENCE)), "a world of 17 ranks"),
    (other_version, "process PID: it speaks version 7 of the rendezvous, process PID version 2"),
    (
        |id| {
            decline(id, 3, 4, &Error::System { what: "no device".into(), detail: "really none".into() });
            "no device: really none".into()
        },
        "no device: really none",
    ),
];

/// The right secret in a hello of another version, which is shorter than this one's.
fn other_version(id: &UniqueId) -> String {
    let bytes = id.as_bytes();
    let name = bytes.windows(5).position(|window| window == b"cclx-").unwrap();
    let hello = [b"CCLXJOIN\x07\0\0\0", &bytes[name - 16..name]].concat();
    let address = SocketAddr::from_abstract_name(id.socket_name()).unwrap();
    let mut stream = UnixStream::connect_addr(&address).unwrap();
    stream.write_all(&hello).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn all_ranks_are_told_at_once_why_no_group_can_form() {
    for (index, (offend, said)) in OFFENCES.into_iter().enumerate() {
        let (id, waiting) = two_of_four(RootOptions::default());
        let said = said.replace("PID", &std::process::id().to_string());
        let began = Instant::now();
        let own = offend(&id);
        assert!(own.contains(&said), "{own}");
        let late = start(&id, 3, 4, PATIENCE);
        for rank in waiting.into_iter().chain([late]) {
            let error = rank.join().unwrap().unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&said), "{text}");
            match error {
                Error::InvalidUsage(_) => assert!(text.contains("no group can form"), "{text}"),
                Error::PeerLost { rank, .. } => assert_eq!((rank, said.contains("no device")), (3, true)),
                other => panic!("{other:?}"),
            }
        }
        assert!(began.elapsed() < SOON, "{said}: told after {:?}", began.elapsed());
        // Four have been told: nothing is left for a fifth.
        if index == 0 {
            assert!(text_of(join(&id, 1, 4, PATIENCE)).contains("nobody serves"));
        }
    }
}

/// The same offences where only the offender is told: the others would wait.
#[test]
fn untold_the_others_wait() {
    for (offend, _) in OFFENCES {
        let (id, waiting) = two_of_four(RootOptions { untold: true, ..RootOptions::default() });
        offend(&id);
        thread::sleep(Duration::from_millis(300));
        assert!(waiting.iter().all(|rank| !rank.is_finished()));
        let rest: Vec<_> = [1, 3].map(|rank| start(&id, rank, 4, PATIENCE)).into();
        check_group(&finish(waiting.into_iter().chain(rest).collect()));
    }
}

#[test]
fn a_stranger_is_refused_and_the_group_is_not_disturbed() {
    let (id, waiting) = two_of_four(RootOptions::default());
    let stranger = text_of(join(&with_other_secret(&id), 1, 4, PATIENCE));
    assert!(stranger.contains("wrong secret"), "{stranger}");
    decline(&with_other_secret(&id), 1, 4, &Error::Internal("a stranger's reason".into()));
    let rest: Vec<_> = [1, 3].map(|rank| start(&id, rank, 4, PATIENCE)).into();
    check_group(&finish(waiting.into_iter().chain(rest).collect()));
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
        // Also from the last to give up, who has seen the others leave.
        let text = error.to_string();
        let cause = text.split_once("3 of 4 ranks joined; missing: 2");
        assert!(cause.is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with("; gave up before")), "{text}");
    }
    assert!(began.elapsed() >= limit && began.elapsed() < limit * 4);

    let patient: Vec<_> = [0, 1].map(|rank| start(&id, rank, 4, PATIENCE)).into();
    let error = text_of(join(&id, 3, 4, limit));
    assert!(error.contains("3 of 4 ranks joined; missing: 2"), "{error}");
    // Those who wait longer know of it.
    let error = text_of(join(&id, 3, 4, limit));
    assert!(error.contains("3 of 4 ranks joined; missing: 2"), "{error}");
    let error = text_of(join(&id, 2, 4, Duration::from_millis(500)));
    assert!(error.ends_with("4 of 4 ranks joined; gave up before, since their own time was over: 3"), "{error}");
    let rest: Vec<_> = [2, 3].map(|rank| start(&id, rank, 4, PATIENCE)).into();
    check_group(&finish(patient.into_iter().chain(rest).collect()));
}

#[test]
fn a_rank_that_ended_is_named_apart_from_those_that_never_came() {
    let id = create();
    let waiting = start(&id, 0, 4, Duration::from_secs(4));
    let mut child = spawn_child("rank 2/4", &id);
    thread::sleep(Duration::from_secs(1));
    let seen = text_of(join(&id, 1, 4, Duration::from_millis(200)));
    assert!(seen.contains("3 of 4 ranks joined; missing: 3"), "{seen}");
    child.kill().unwrap();
    child.wait().unwrap();
    let error = text_of(waiting.join().unwrap());
    let expected = "3 of 4 ranks joined; missing: 3; ended while they waited: 2; gave up before, since their own time was \
                    over: 1";
    assert!(error.ends_with(expected), "{error}");
}

/// The body of a process with few descriptors, in which all of a group's ranks are threads.
fn scarce(spare: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
    let id = create();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, open + spare, hard).unwrap();
    let began = Instant::now();
    let ranks: Vec<_> = (0..8).map(|rank| start(&id, rank, 8, PATIENCE)).collect();
    for rank in ranks {
        match rank.join().unwrap() {
            Ok(_) => println!("FORMED"),
            Err(error) => println!("SCARCE {} {error}", matches!(error, Error::System { .. })),
        }
    }
    println!("IN_TIME {}", began.elapsed() < SOON);
}

#[test]
fn too_few_descriptors_are_named_with_the_limit_and_the_need() {
    let id = create();
    // For all the sockets of the ranks and of who serves them; for some of those between the ranks; for half of the ranks.
    for (spare, formed) in [(200, true), (30, false), (13, false)] {
        let output = spawn_child(&format!("scarce {spare}"), &id).wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("IN_TIME true"), "{text}");
        let told = text.lines().filter(|line| {
            line.contains("SCARCE true") && line.contains("EMFILE") && line.contains("(ulimit -n); a rank of ")
        });
        let formings = text.matches("FORMED").count();
        assert_eq!((formings, told.count()), if formed { (8, 0) } else { (0, 8) }, "{spare}: {text}");
    }
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

/// How long `rank` takes to decline where the root's process ends without an answer, and nobody listens any more; nothing
/// where that is long.
fn declines(rank: usize) -> Option<Duration> {
    let id = UniqueId::derived(format!("a root that ends, {rank}, {}", std::process::id()).as_bytes()).unwrap();
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(id.socket_name()).unwrap()).unwrap();
    thread::spawn(move || drop(listener.accept().unwrap()));
    let (done, ended) = mpsc::channel();
    let began = Instant::now();
    // Left behind if it doesn't end.
    thread::spawn(move || {
        decline(&id, rank, 2, &Error::InvalidArgument(format!("rank {rank} of 2")));
        let _ = done.send(());
    });
    ended.recv_timeout(Duration::from_secs(5)).ok().map(|()| began.elapsed())
}

#[test]
fn a_decline_of_a_large_rank_ends() {
    for rank in [1, 1_000_000] {
        let took = declines(rank);
        assert!(took.is_some_and(|took| took < Duration::from_secs(3)), "rank {rank}: {took:?}");
    }
}

#[test]
fn a_decline_of_no_rank_ends() {
    // As the C ABI says it of a negative one.
    let took = declines(usize::MAX);
    assert!(took.is_some_and(|took| took < Duration::from_secs(3)), "{took:?}");
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
        Some(("scarce", spare)) => scarce(spare.parse().unwrap()),
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
