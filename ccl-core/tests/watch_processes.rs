//! Ranks that are killed, stopped or forked.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ccl_core::bootstrap::{RootOptions, UNIQUE_ID_BYTES, UniqueId, join, local};
use ccl_core::watch::{Alarm, Progress, Watch, WatchOptions};
use ccl_core::{Error, Result};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

const PATIENCE: Duration = Duration::from_secs(20);
/// Within this every survivor must know.
const NOTICE: Duration = Duration::from_millis(200);

/// In the 7th collective for ever; remembers when the abort word was set, by the clock that all processes share.
#[derive(Default)]
struct Stuck {
    aborted: AtomicI64,
}

impl Alarm for Stuck {
    fn abort(&self) {
        self.aborted.store(now(), Ordering::SeqCst);
    }

    fn progress(&self) -> Progress {
        Progress { entered: 7, done: 6, ..Progress::default() }
    }
}

fn now() -> i64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

fn options(timeout: Duration) -> WatchOptions {
    WatchOptions { timeout, label: "comm".into(), on_fault: Box::new(|_| {}) }
}

fn watch_as(id: &UniqueId, rank: usize, world: usize, timeout: Duration) -> Result<(Watch, Arc<Stuck>)> {
    let mesh = join(id, rank, world, PATIENCE)?;
    mesh.barrier("ready")?;
    let alarm = Arc::new(Stuck::default());
    Ok((Watch::start(mesh, alarm.clone(), options(timeout))?, alarm))
}

/// Not a test of its own: the body of the processes that the tests below start.
#[test]
fn child() {
    let Ok(role) = std::env::var("CCL_TEST_ROLE") else { return };
    match role.as_str() {
        "fork" => forked(),
        rank => rank_process(rank),
    }
}

/// "rank/world/timeout in ms/forks".
fn rank_process(role: &str) {
    let mut numbers = role.split('/').map(|number| number.parse::<usize>().unwrap());
    let mut next = || numbers.next().unwrap();
    let (rank, world, timeout, forks) = (next(), next(), next(), next());
    let mut bytes = [0; UNIQUE_ID_BYTES];
    std::io::stdin().read_exact(&mut bytes).unwrap();
    let timeout = Duration::from_millis(timeout as u64);
    let (watch, alarm) = watch_as(&UniqueId::from_bytes(bytes), rank, world, timeout).unwrap();
    for _ in 0..forks {
        // SAFETY: the child only sleeps and leaves, without running any of this process's code.
        if let ForkResult::Child = unsafe { fork() }.unwrap() {
            thread::sleep(Duration::from_secs(3));
            // SAFETY: ends the process at once; no handler, no destructor.
            unsafe { libc::_exit(0) };
        }
    }
    println!("\nUP");
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && alarm.aborted.load(Ordering::SeqCst) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    println!("\nFAULT {} {}", alarm.aborted.load(Ordering::SeqCst), watch.fault().unwrap());
}

struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    _stdin: ChildStdin,
}

impl Process {
    fn rank(id: &UniqueId, rank: usize, world: usize, timeout: Duration, forks: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env("CCL_TEST_ROLE", format!("{rank}/{world}/{}/{forks}", timeout.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(id.as_bytes()).unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        Self { child, lines, _stdin: stdin }
    }

    fn wait_for(&self, start: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let line = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap();
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }

    /// When it failed, and of what.
    fn fault(&self) -> (i64, String) {
        let line = self.wait_for("FAULT ");
        let (time, text) = line.split_once(' ').unwrap();
        (time.parse().unwrap(), text.to_owned())
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Ranks 1.. as processes that are up and watching, rank 0 here.
fn group(world: usize, timeout: Duration, forks: usize) -> (Watch, Arc<Stuck>, Vec<Process>) {
    let id = UniqueId::create(RootOptions::default()).unwrap();
    let others: Vec<_> = (1..world).map(|rank| Process::rank(&id, rank, world, timeout, forks)).collect();
    let (watch, alarm) = watch_as(&id, 0, world, timeout).unwrap();
    for process in &others {
        process.wait_for("UP");
    }
    (watch, alarm, others)
}

/// Kills rank 2 of 4 and returns how long the slowest survivor took to know; checks that all name it.
fn kill_one(forks: usize) -> Duration {
    let (watch, alarm, others) = group(4, Duration::from_secs(60), forks);
    let (victim, pid) = (&others[1], others[1].pid());
    let killed = now();
    kill(victim.pid(), Signal::SIGKILL).unwrap();
    let mut times = Vec::new();
    for survivor in [&others[0], &others[2]] {
        let (time, text) = survivor.fault();
        assert!(text.contains("rank 2 is gone") && text.contains("during collective #7"), "{text}");
        assert!(text.contains(&format!("process {pid} ended without a goodbye")), "{text}");
        times.push(time);
    }
    let until = Instant::now() + PATIENCE;
    while alarm.aborted.load(Ordering::SeqCst) == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(watch.fault(), Some(Error::PeerLost { rank: 2, .. })));
    times.push(alarm.aborted.load(Ordering::SeqCst));
    Duration::from_nanos((times.into_iter().max().unwrap() - killed) as u64)
}

#[test]
fn a_killed_rank_is_known_at_once() {
    let took = kill_one(0);
    assert!(took < NOTICE, "{took:?}");
}

#[test]
fn a_killed_rank_is_known_at_once_on_a_busy_machine() {
    let stop = Arc::new(AtomicBool::new(false));
    let cores = thread::available_parallelism().unwrap().get();
    let spinners: Vec<_> = (0..2 * cores)
        .map(|_| {
            let stop = Arc::clone(&stop);
            let until = Instant::now() + Duration::from_secs(30);
            thread::spawn(move || while !stop.load(Ordering::Relaxed) && Instant::now() < until {})
        })
        .collect();
    let took: Vec<_> = (0..3).map(|_| kill_one(0)).collect();
    stop.store(true, Ordering::Relaxed);
    spinners.into_iter().for_each(|spinner| spinner.join().unwrap());
    eprintln!("known after {took:?}");
    assert!(took.iter().all(|took| *took < NOTICE), "{took:?}");
}

#[test]
fn a_forked_child_does_not_hide_a_death() {
    let took = kill_one(1);
    assert!(took < NOTICE, "{took:?}");
}

#[test]
fn a_stopped_rank_is_named_when_time_is_up() {
    let timeout = Duration::from_millis(1500);
    let (watch, alarm, others) = group(3, timeout, 0);
    let began = now();
    let pid = others[0].pid();
    kill(pid, Signal::SIGSTOP).unwrap();
    let (time, text) = others[1].fault();
    assert!(text.contains("collective #7 did not finish"), "{text}");
    assert!(text.contains(&format!("rank 1 (process {pid}) does not answer (stopped?)")), "{text}");
    assert!(!text.contains("rank 0 (process"), "{text}");
    let took = Duration::from_nanos((time - began).max(0) as u64);
    assert!(took < timeout + Duration::from_millis(500), "{took:?}");
    let until = Instant::now() + PATIENCE;
    while alarm.aborted.load(Ordering::SeqCst) == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    let error = watch.fault().unwrap();
    assert!(matches!(error, Error::Timeout { .. }) && error.to_string().contains("rank 1 (process"), "{error}");
    // Once it goes on it learns what the others decided meanwhile.
    kill(pid, Signal::SIGCONT).unwrap();
    let (_, text) = others[0].fault();
    assert!(text.contains("rank 1 (process") && text.contains("tells"), "{text}");
}

/// In a process of its own, since a fork copies whatever the test harness is doing.
#[test]
fn a_forked_child_can_neither_use_nor_end_a_communicator() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("CCL_TEST_ROLE", "fork")
        .spawn()
        .unwrap();
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > until => {
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(status.success(), "{status}");
}

fn forked() {
    let mut watches: Vec<_> = local(2)
        .unwrap()
        .into_iter()
        .map(|mesh| {
            let alarm = Arc::new(Stuck::default());
            (Watch::start(mesh, alarm.clone(), options(Duration::from_secs(60))).unwrap(), alarm)
        })
        .collect();
    let (first, first_alarm) = watches.remove(0);
    // SAFETY: the other threads of this process only wait; the C library makes its allocator usable in the child.
    if let ForkResult::Child = unsafe { fork() }.unwrap() {
        let said = first.fault().map(|error| error.to_string()).unwrap_or_default();
        first.fail(Error::Aborted("in the child".into()));
        let well = said.contains("used after fork") && first_alarm.aborted.load(Ordering::SeqCst) == 0;
        drop(first);
        drop(watches);
        // SAFETY: ends the process at once; no handler, no destructor.
        unsafe { libc::_exit(if well { 0 } else { 9 }) };
    }
    let WaitStatus::Exited(_, code) = nix::sys::wait::wait().unwrap() else { panic!("the child did not exit") };
    assert_eq!(code, 0, "what the child found");
    thread::sleep(Duration::from_millis(100));
    let (second, second_alarm) = watches.remove(0);
    assert_eq!((first.fault(), second.fault()), (None, None));
    // Had the child said goodbye, this hang-up would be silent.
    first.close_without_goodbye();
    let until = Instant::now() + PATIENCE;
    while second_alarm.aborted.load(Ordering::SeqCst) == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(second.fault(), Some(Error::PeerLost { rank: 0, .. })), "{:?}", second.fault());
    let _ = waitpid(Pid::from_raw(-1), None);
}
