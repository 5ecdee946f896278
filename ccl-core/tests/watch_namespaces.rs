//! Ranks in pid namespaces beside each other, as those of containers are, where all have the same process number.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ccl_core::bootstrap::{RootOptions, UniqueId, join};
use ccl_core::watch::{Alarm, Progress, Watch, WatchOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, fork, getpid};

const PATIENCE: Duration = Duration::from_secs(20);
/// Within this every survivor must know.
const NOTICE: Duration = Duration::from_secs(1);
/// So long a child of the dead rank holds its sockets.
const HELD: Duration = Duration::from_secs(6);
/// Set for the processes that are ranks: a folder and the rank.
const ROLE: &str = "CCL_TEST_ROLE";
const WORLD: usize = 3;
const VICTIM: usize = 2;

/// Remembers when the abort word was set, by the clock that all processes share.
#[derive(Default)]
struct Idle(AtomicI64);

impl Alarm for Idle {
    fn abort(&self) {
        self.0.store(now(), Ordering::SeqCst);
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

fn now() -> i64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

/// The id, which rank 0 makes: in its own namespace, from which it sees no process of the others'.
fn meeting(place: &Path, rank: usize) -> UniqueId {
    if rank == 0 {
        let id = UniqueId::create(RootOptions::default()).unwrap();
        std::fs::write(place.with_extension("new"), id.as_bytes()).unwrap();
        std::fs::rename(place.with_extension("new"), place).unwrap();
        return id;
    }
    let until = Instant::now() + PATIENCE;
    loop {
        match std::fs::read(place) {
            Ok(bytes) => return UniqueId::from_bytes(bytes.try_into().unwrap()),
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Not a test of its own: the body of the processes that the test below starts.
#[test]
fn child() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let place = PathBuf::from(role);
    let rank: usize = place.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let folder = place.parent().unwrap();
    let mesh = join(&meeting(&folder.join("id"), rank), rank, WORLD, PATIENCE).unwrap();
    let pids: Vec<_> = (0..WORLD).filter_map(|peer| mesh.peer_pid(peer)).collect();
    mesh.barrier("ready").unwrap();
    let alarm = Arc::new(Idle::default());
    let timeout = Duration::from_secs(60);
    let options = WatchOptions { timeout, label: "comm".into(), on_fault: Box::new(|_| {}) };
    let watch = Watch::start(mesh, alarm.clone(), options).unwrap();
    println!("\nPIDS {} {pids:?}", getpid());
    if rank == VICTIM {
        // The others are watching by then.
        thread::sleep(Duration::from_secs(2));
        // SAFETY: the child only sleeps and leaves, without running any of this process's code.
        if let ForkResult::Child = unsafe { fork() }.unwrap() {
            thread::sleep(HELD);
            // SAFETY: ends the process at once; no handler, no destructor.
            unsafe { libc::_exit(0) };
        }
        println!("\nKILLED {}", now());
        kill(getpid(), Signal::SIGKILL).unwrap();
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && alarm.0.load(Ordering::SeqCst) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    println!("\nFAULT {} {}", alarm.0.load(Ordering::SeqCst), watch.fault().unwrap());
}

struct Rank {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Rank {
    /// In a pid namespace of its own, whose first process is a shell that stays as long as the rank's child may: with the
    /// first process of a namespace all end, and none can kill it.
    fn start(folder: &Path, rank: usize) -> Self {
        let mut child = apart()
            .args(["sh", "-c", &format!("\"$@\"; sleep {}", 2 * HELD.as_secs()), "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(ROLE, folder.join(rank.to_string()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(std::result::Result::ok);
            lines.map(|line| sender.send(line)).take_while(std::result::Result::is_ok).for_each(drop);
        });
        Self { child, lines }
    }

    /// The next line of this beginning: a number, and the rest.
    fn said(&self, start: &str) -> (i64, String) {
        let until = Instant::now() + 2 * PATIENCE;
        loop {
            let line = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap();
            if let Some(rest) = line.strip_prefix(start) {
                let (number, text) = rest.split_once(' ').unwrap_or((rest, ""));
                return (number.parse().unwrap(), text.to_owned());
            }
        }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // All of its namespace ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What follows runs as the first process of a pid namespace of its own.
fn apart() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]);
    command
}

#[test]
fn a_forked_child_does_not_hide_the_death_of_a_rank_of_the_same_number() {
    let may = apart().arg("true").output().unwrap();
    if !may.status.success() {
        // Only root may have namespaces of its own.
        assert!(!nix::unistd::geteuid().is_root(), "{}", String::from_utf8_lossy(&may.stderr));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ranks: Vec<_> = (0..WORLD).map(|rank| Rank::start(folder.path(), rank)).collect();
    for rank in &ranks {
        let (own, others) = rank.said("PIDS ");
        assert_eq!(others, format!("[{own}, {own}]"), "the numbers are to be alike, or this shows nothing");
    }
    let (killed, _) = ranks[VICTIM].said("KILLED ");
    for survivor in &ranks[..VICTIM] {
        let (time, text) = survivor.said("FAULT ");
        assert!(text.contains("rank 2 is gone") && text.contains("ended without a goodbye"), "{text}");
        let took = Duration::from_nanos((time - killed).max(0) as u64);
        assert!(time > 0 && took < NOTICE, "known after {took:?}");
    }
}
