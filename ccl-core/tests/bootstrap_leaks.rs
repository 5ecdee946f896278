//! Cycles of create, join, watch and close leave nothing behind. Alone in its file: it counts what the process has.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ccl_core::bootstrap::{RootOptions, UniqueId, join};
use ccl_core::watch::{Alarm, Progress, Watch, WatchOptions};

struct Quiet;

impl Alarm for Quiet {
    fn abort(&self) {}

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

fn cycle() {
    let id = UniqueId::create(RootOptions::default()).unwrap();
    let ranks: Vec<_> = (0..3)
        .map(|rank| {
            thread::spawn(move || {
                let mesh = join(&id, rank, 3, Duration::from_secs(20)).unwrap();
                mesh.barrier("in").unwrap();
                let timeout = Duration::from_secs(60);
                let options = WatchOptions { timeout, label: format!("rank {rank}"), on_fault: Box::new(|_| {}) };
                let watch = Watch::start(mesh, Arc::new(Quiet), options).unwrap();
                assert_eq!(watch.fault(), None);
                watch.close();
            })
        })
        .collect();
    for rank in ranks {
        rank.join().unwrap();
    }
}

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn descriptors_and_threads_stay_flat() {
    cycle();
    thread::sleep(Duration::from_millis(200));
    let (fds, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
    for _ in 0..200 {
        cycle();
    }
    // The last rendezvous may still be putting its things away.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until && (count("/proc/self/fd") > fds || count("/proc/self/task") > threads) {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((count("/proc/self/fd"), count("/proc/self/task")), (fds, threads));
}
