//! What a full disk leaves of a corpus. A limit on the size of files stands for the full disk: each test has a process of its
//! own.
#![allow(clippy::unwrap_used, reason = "test code")]

mod alone;
#[allow(dead_code, reason = "this file needs a part of it")]
#[path = "corpus_bed/mod.rs"]
mod bed;

use alone::is_alone;
use bed::{NAME, call, files, input, kinds, manifest, right, writers};
use ccl_core::DataType::{Bfloat16, Float32};
use ccl_core::corpus::{AllReduce, ElementType, EventData, Kind, Options, Role, TensorData, Verdict, Writer, verify};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs;
use std::path::Path;

/// No file may be longer than `bytes` while `body` runs.
fn limited(bytes: u64, body: impl FnOnce()) {
    // SAFETY: a disposition to ignore, so that what passes the limit is an error and not the end of the process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, bytes, hard).unwrap();
    body();
    setrlimit(Resource::RLIMIT_FSIZE, soft, hard).unwrap();
}

/// Writes a call that has no room.
fn refused(writer: &mut Writer, call: &AllReduce, rank: usize) {
    let bytes = input(call.dtype, 9, rank, call.count as usize);
    let (dtype, shape) = (ElementType::Data(call.dtype), [call.count]);
    let tensor = |name, role, address| TensorData { name, role, dtype, shape: &shape, address, bytes: &bytes };
    let tensors = [tensor("input", Role::Input, 0x1000_0000), tensor("output", Role::Output, 0x2000_0000)];
    writer.write(&EventData { call: Kind::AllReduce(call.clone()), tensors: &tensors, links: &[] }).unwrap_err();
}

/// Passes if what is missing is let pass, and tells of it; else not.
fn stands(directory: &Path) -> Verdict {
    let strict = verify(directory, &Options::default()).unwrap();
    assert!(!strict.passed());
    let verdict = verify(directory, &Options { allow_incomplete: true }).unwrap();
    assert!(verdict.passed(), "{:?}: {:?}", kinds(&verdict), verdict.findings);
    assert_eq!((verdict.counts.ranks, verdict.counts.events["all_reduce"]), (2, 3));
    verdict
}

#[test]
fn a_full_disk_leaves_a_corpus_that_stands() {
    if !is_alone("a_full_disk_leaves_a_corpus_that_stands") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut writers = writers(folder.path(), 2);
    right(&mut writers, 0..3, &[call(Bfloat16, 9)]);
    let before = files(folder.path());
    limited(64 << 10, || {
        for (rank, writer) in writers.iter_mut().enumerate() {
            refused(writer, &call(Float32, 100_000), rank);
            assert!(writer.is_stopped());
            assert!(
                !writer
                    .write(&EventData { call: Kind::AllReduce(call(Float32, 1)), tensors: &[], links: &[] })
                    .unwrap()
            );
        }
        drop(writers);
    });
    assert_eq!(files(folder.path()), before, "nothing is left of the file that had no room");
    let verdict = stands(folder.path());
    let notes = format!("{:?}", verdict.notes);
    assert!(
        notes.contains("event 4 could not be written") && notes.contains("2 calls after the truncation"),
        "{notes}"
    );
}

#[test]
fn half_a_line_of_a_manifest_is_taken_back() {
    if !is_alone("half_a_line_of_a_manifest_is_taken_back") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut writers = writers(folder.path(), 2);
    right(&mut writers, 0..3, &[call(Bfloat16, 9)]);
    let before = [0, 1].map(|rank| fs::read(manifest(folder.path(), rank)).unwrap());
    // The file has room, its line has not.
    let bytes = before.iter().map(Vec::len).max().unwrap() as u64 + 100;
    limited(bytes, || {
        for (rank, writer) in writers.iter_mut().enumerate() {
            refused(writer, &call(Bfloat16, 9), rank);
            assert!(writer.is_stopped());
        }
        drop(writers);
    });
    assert_eq!([0, 1].map(|rank| fs::read(manifest(folder.path(), rank)).unwrap()), before);
    assert!(files(folder.path()).contains(&format!("{NAME}/rank-001/000004-all_reduce.safetensors")), "it had room");
    let notes = format!("{:?}", stands(folder.path()).notes);
    assert!(notes.contains("could write no more"), "{notes}");
}
