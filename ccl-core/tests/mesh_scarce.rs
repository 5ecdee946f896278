//! A rank that the system gives no descriptor says so to the others. Each test has a process of its own, whose descriptors it
//! uses up.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod alone;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use alone::is_alone;
use ccl_core::Error;
use ccl_core::bootstrap::local;
use ccl_core::watch::{Alarm, Progress, Watch, WatchOptions};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Time that the steps have; who is told knows long before.
const DEADLINE: Duration = Duration::from_secs(10);
const NOTICE: Duration = Duration::from_secs(2);

/// Takes all descriptors that there are.
fn used_up() -> Vec<File> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 64, hard).unwrap();
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn a_rank_that_has_no_descriptors_left_says_so() {
    if !is_alone("a_rank_that_has_no_descriptors_left_says_so") {
        return;
    }
    let meshes = local(3).unwrap();
    meshes.iter().for_each(|mesh| mesh.set_deadline(DEADLINE));
    let held = used_up();
    let began = Instant::now();
    // The last rank makes no sockets of its own: it hears what became of those of the others.
    let said: Vec<String> = thread::scope(|scope| {
        let ranks: Vec<_> =
            meshes.iter().map(|mesh| scope.spawn(|| mesh.part(&[0, 1, 2]).unwrap_err().to_string())).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert!(began.elapsed() < NOTICE, "after {:?}: {said:?}", began.elapsed());
    assert!(said.iter().all(|said| said.contains("64 files open (ulimit -n)")), "{said:?}");
    assert!(said[2].contains("rank 0") || said[2].contains("rank 1"), "{said:?}");
    drop(held);
    // It stays so: nobody goes on with steps that others have given up.
    for mesh in &meshes {
        assert!(mesh.barrier("after it").unwrap_err().to_string().contains("ulimit -n"));
    }
}

#[derive(Default)]
struct Quiet(AtomicBool);

impl Alarm for Quiet {
    fn abort(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

#[test]
fn a_rank_whose_watch_can_not_start_says_so() {
    if !is_alone("a_rank_whose_watch_can_not_start_says_so") {
        return;
    }
    let mut meshes = local(2).unwrap();
    let options = |rank: usize| {
        let timeout = Duration::from_secs(60);
        WatchOptions { timeout, label: format!("rank {rank}"), on_fault: Box::new(|_| {}) }
    };
    let (one, zero) = (meshes.pop().unwrap(), meshes.pop().unwrap());
    let alarm = Arc::new(Quiet::default());
    let watch = Watch::start(one, alarm.clone(), options(1)).unwrap();
    let _held = used_up();
    let error = Watch::start(zero, Arc::new(Quiet::default()), options(0)).unwrap_err();
    assert!(matches!(error, Error::System { .. }) && error.to_string().contains("ulimit -n"), "{error}");
    let until = Instant::now() + NOTICE;
    while !alarm.0.load(Ordering::SeqCst) && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    let heard = watch.fault().unwrap().to_string();
    assert!(heard.contains("eventfd of the watch") && heard.contains("rank 0"), "{heard}");
}
