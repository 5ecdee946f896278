//! The synchronous steps of initialisation.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use ccl_core::bootstrap::local;
use ccl_core::mesh::{MAX_MESSAGE_BYTES, Mesh, Parcel};
use ccl_core::{Error, Result};

/// Runs `body` on each rank and returns what each returned. A rank's mesh lives until all are through.
fn on_ranks<T: Send>(world: usize, body: impl Fn(&Mesh) -> T + Sync) -> Vec<T> {
    let meshes = local(world).unwrap();
    for mesh in &meshes {
        mesh.set_deadline(Duration::from_secs(10));
    }
    thread::scope(|scope| {
        let threads: Vec<_> = meshes.iter().map(|mesh| scope.spawn(|| body(mesh))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn bytes_of(rank: usize, round: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + rank * 31 + round * 13) as u8).collect()
}

#[test]
fn gathers_of_any_length_arrive_in_order() {
    let lengths = [0, 1, 32 << 10, (32 << 10) + 1, 300_000, MAX_MESSAGE_BYTES];
    on_ranks(4, |mesh| {
        for (round, length) in lengths.into_iter().enumerate() {
            // Lengths differ by rank.
            let length_of = |rank: usize| length - length.min(rank * 1000);
            let own = bytes_of(mesh.rank(), round, length_of(mesh.rank()));
            let all = mesh.all_gather(&own, "blob").unwrap();
            for (rank, bytes) in all.iter().enumerate() {
                assert!(*bytes == bytes_of(rank, round, length_of(rank)), "round {round} rank {rank}");
            }
            mesh.barrier("between").unwrap();
        }
    });
}

#[test]
fn too_much_is_refused_by_name() {
    let results = on_ranks(1, |mesh| {
        mesh.all_gather(&[1], "alone").unwrap();
        mesh.send_fd(0, b"", std::io::stdin().as_fd(), "to myself")
    });
    assert!(matches!(&results[0], Err(Error::InvalidArgument(text)) if text.contains("to myself")));
    let results = on_ranks(2, |mesh| mesh.all_gather(&vec![0; MAX_MESSAGE_BYTES + 1], "huge"));
    for result in results {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("huge"), "{error}");
    }
}

fn file_with(text: &str) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn text_in(fd: std::os::fd::OwnedFd) -> String {
    let mut file = File::from(fd);
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn descriptors_reach_the_rank_they_are_for() {
    on_ranks(5, |mesh| {
        let me = mesh.rank();
        let files: Vec<_> = (0..5).map(|to| file_with(&format!("{me} to {to}"))).collect();
        let words: Vec<_> = (0..5).map(|to| format!("from {me} for {to}")).collect();
        let parcels: Vec<_> = files
            .iter()
            .zip(&words)
            .map(|(file, word)| Parcel { bytes: word.as_bytes(), fds: vec![file.as_fd(), file.as_fd()] })
            .collect();
        let got = mesh.exchange_fds(&parcels, "files").unwrap();
        for (from, delivery) in got.into_iter().enumerate() {
            if from == me {
                assert!(delivery.bytes.is_empty() && delivery.fds.is_empty());
                continue;
            }
            assert_eq!(delivery.bytes, format!("from {from} for {me}").into_bytes());
            assert_eq!(delivery.fds.len(), 2);
            for fd in delivery.fds {
                let flags = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_GETFD).unwrap();
                assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
                assert_eq!(text_in(fd), format!("{from} to {me}"));
            }
        }
    });
}

#[test]
fn one_descriptor_goes_round_the_ring() {
    on_ranks(3, |mesh| {
        let (me, next, previous) = (mesh.rank(), (mesh.rank() + 1) % 3, (mesh.rank() + 2) % 3);
        for round in 0..3 {
            let file = file_with(&format!("{me} round {round}"));
            mesh.send_fd(next, &[me as u8], file.as_fd(), "staging").unwrap();
            let (bytes, fd) = mesh.recv_fd(previous, "staging").unwrap();
            assert_eq!(bytes, [previous as u8]);
            assert_eq!(text_in(fd), format!("{previous} round {round}"));
        }
        mesh.barrier("end").unwrap();
    });
}

#[test]
fn ranks_in_different_steps_are_told_both() {
    let errors = on_ranks(2, |mesh| match mesh.rank() {
        0 => mesh.all_gather(b"x", "topology").map(drop),
        _ => mesh.barrier("staging"),
    });
    // Whoever notices first tells the other one.
    let texts: Vec<_> = errors.into_iter().map(|error| error.unwrap_err().to_string()).collect();
    assert!(texts.iter().all(|text| text.contains("'topology'") && text.contains("'staging'")), "{texts:?}");

    // The same name, but a step was left out.
    let errors = on_ranks(2, |mesh| {
        if mesh.rank() == 0 {
            mesh.send_fd(1, b"", std::io::stdin().as_fd(), "extra")?;
        }
        mesh.all_gather(b"x", "limits").map(drop)
    });
    let texts: Vec<_> = errors.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    assert!(!texts.is_empty());
    assert!(texts.iter().all(|text| text.contains("'extra'") && text.contains("'limits'")), "{texts:?}");
}

#[test]
fn a_rank_that_vanishes_is_named_to_all() {
    let mut meshes = local(4).unwrap();
    drop(meshes.remove(2));
    let began = Instant::now();
    let errors: Vec<Error> = thread::scope(|scope| {
        let threads: Vec<_> =
            meshes.into_iter().map(|mesh| scope.spawn(move || mesh.barrier("setup").unwrap_err())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for error in errors {
        assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
        assert!(error.to_string().contains("during"), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_rank_that_gives_up_says_why() {
    let errors = on_ranks(3, |mesh| {
        if mesh.rank() == 1 {
            let error = Error::Device { call: "zeInit".into(), detail: "no device".into() };
            mesh.abandon(&error);
            return mesh.barrier("setup").unwrap_err();
        }
        mesh.barrier("setup").unwrap_err()
    });
    assert!(matches!(&errors[1], Error::Device { .. }), "its own error stays: {}", errors[1]);
    for error in [&errors[0], &errors[2]] {
        assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
        assert!(error.to_string().contains("zeInit failed: no device"), "{error}");
    }
}

#[test]
fn the_deadline_names_who_was_waited_for() {
    let errors = on_ranks(3, |mesh| {
        mesh.set_deadline(Duration::from_millis(200));
        if mesh.rank() == 1 {
            thread::sleep(Duration::from_millis(600));
            return None;
        }
        mesh.barrier("slow").err()
    });
    let texts: Vec<_> = errors.into_iter().flatten().map(|error| error.to_string()).collect();
    // The second to notice may be told by the first.
    assert!(texts.iter().any(|text| text.contains("'slow': no word from rank 1 (process")), "{texts:?}");
    assert_eq!(texts.len(), 2);
}

#[test]
fn a_failed_mesh_stays_failed() {
    let mut meshes = local(2).unwrap();
    drop(meshes.pop());
    let mesh = meshes.pop().unwrap();
    let first = mesh.barrier("one").unwrap_err();
    assert_eq!(mesh.all_gather(b"", "two").unwrap_err(), first);
}
