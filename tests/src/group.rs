//! Rank processes: copies of the test binary that run one test's body as one rank.

use ccl_core::bootstrap::{RootOptions, UniqueId};
use ccl_ze::{Builder, Communicator};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const RANK: &str = "TEST_RANK";
const RANKS: &str = "TEST_RANKS";
const ID: &str = "TEST_UNIQUE_ID";
/// Which of its test's calls of [`Group::run`] a rank belongs to.
const TURN: &str = "TEST_TURN";

/// How many groups of each test have been run here.
static TURNS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// A group of rank processes to be started by a test.
pub struct Group {
    test: String,
    ranks: usize,
    limit: Duration,
    variables: Vec<(String, String)>,
}

/// One rank, in its own process.
pub struct Rank {
    /// Its number.
    pub rank: usize,
    /// Number of ranks.
    pub n: usize,
    /// The group's id.
    pub id: UniqueId,
}

impl Rank {
    /// A builder with the environment's configuration, for `init(&rank.id, rank.rank, rank.n)`.
    pub fn builder(&self) -> Builder {
        Communicator::builder().expect("the test's environment is valid")
    }

    /// The communicator of this rank.
    pub fn communicator(&self) -> Communicator {
        self.builder().init(&self.id, self.rank, self.n).unwrap_or_else(|e| panic!("rank {}: {e}", self.rank))
    }

    /// A line to standard output, for the parent to find.
    pub fn say(&self, line: impl std::fmt::Display) {
        // One write, so that lines of ranks don't mix; not print!, which the test harness captures.
        let line = format!("[{}] {line}\n", self.rank);
        let _ = nix::unistd::write(std::io::stdout(), line.as_bytes());
    }
}

/// How a rank process ended.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// What it wrote.
    pub output: String,
    /// When it ended, after the start of the group.
    pub after: Duration,
}

impl Group {
    /// A group whose ranks run the body of `test`: the full name of the calling test function.
    pub fn new(test: &str, ranks: usize) -> Group {
        let mut group = Group { test: test.into(), ranks, limit: Duration::from_secs(120), variables: Vec::new() };
        if std::env::var_os("ZE_SOFT_DEVICES").is_none() {
            group = group.env("ZE_SOFT_DEVICES", ranks.max(2));
        }
        group
    }

    /// Sets a variable for all ranks.
    pub fn env(mut self, name: &str, value: impl ToString) -> Group {
        self.variables.push((name.into(), value.to_string()));
        self
    }

    /// The time after which ranks that still run are killed and the test fails.
    pub fn limit(mut self, limit: Duration) -> Group {
        self.limit = limit;
        self
    }

    /// In a rank process: runs `body` and ends the process. In the test itself: starts the ranks and hands them to
    /// `watch`, which gets them running. Ranks run the body of their test's first call of this, also those of further groups:
    /// what differs from group to group they have to take from the environment and the number of ranks.
    pub fn run_with<R>(self, body: impl FnOnce(Rank), watch: impl FnOnce(Running) -> R) -> R {
        if let Ok(rank) = std::env::var(RANK) {
            assert!(std::env::var(TURN).is_err(), "a test with both ways to run a group");
            be_rank(&rank, body);
        }
        watch(self.start(None))
    }

    /// Like [`Group::run_with`], where all ranks are to succeed within the limit. Each of a test's groups has its own body.
    pub fn run(self, body: impl FnOnce(Rank)) {
        let turn = self.turn();
        if let Ok(rank) = std::env::var(RANK) {
            match std::env::var(TURN).expect("a test with one way to run a group") {
                wanted if wanted == turn.to_string() => be_rank(&rank, body),
                _ => return,
            }
        }
        for (rank, ended) in self.start(Some(turn)).wait().into_iter().enumerate() {
            let Ended { status, output, .. } = ended;
            assert!(status.success(), "rank {rank} failed: {status}\n{output}");
            assert!(!output.contains("test result: ok"), "rank {rank} never came to its body:\n{output}");
        }
    }

    /// Which of its test's groups this is.
    fn turn(&self) -> usize {
        let mut turns = TURNS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let next = turns.entry(self.test.clone()).or_default();
        *next += 1;
        *next - 1
    }

    fn start(self, turn: Option<usize>) -> Running {
        let id = UniqueId::create(RootOptions::default()).expect("a unique id");
        let hex: String = id.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        let start = Instant::now();
        let children = (0..self.ranks)
            .map(|rank| {
                let mut command = Command::new(std::env::current_exe().expect("the test binary"));
                command
                    .args([self.test.as_str(), "--exact", "--nocapture", "--test-threads=1", "--include-ignored"])
                    .env(RANK, rank.to_string())
                    .env(RANKS, self.ranks.to_string())
                    .env(ID, &hex)
                    .envs(turn.map(|turn| (TURN, turn.to_string())))
                    .envs(self.variables.iter().map(|(k, v)| (k, v)))
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
                let mut child = command.spawn().expect("a rank process");
                let mut out = child.stdout.take().expect("piped");
                let heard = Arc::new(Mutex::new(Vec::new()));
                let hears = heard.clone();
                let mut err = child.stderr.take().expect("piped");
                let collect = std::thread::spawn(move || {
                    let errors = std::thread::spawn(move || {
                        let mut text = Vec::new();
                        let _ = err.read_to_end(&mut text);
                        text
                    });
                    let mut part = [0; 4096];
                    while let Ok(count @ 1..) = out.read(&mut part) {
                        hears.lock().expect("no panic under it").extend_from_slice(&part[..count]);
                    }
                    let mut text = std::mem::take(&mut *hears.lock().expect("no panic under it"));
                    text.extend(errors.join().unwrap_or_default());
                    String::from_utf8_lossy(&text).into_owned()
                });
                RankProcess { child, heard, collect: Some(collect), ended: None }
            })
            .collect();
        Running { children, start, limit: self.limit }
    }
}

/// Runs the body of the rank that this process is, and ends the process.
fn be_rank(rank: &str, body: impl FnOnce(Rank)) -> ! {
    let number = |text: &str| text.parse().expect("a number from the parent");
    let hex = std::env::var(ID).expect("an id from the parent");
    let bytes: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal from the parent"))
        .collect();
    let id = UniqueId::from_bytes(bytes.try_into().expect("4096 bytes from the parent"));
    let n = number(&std::env::var(RANKS).expect("a number from the parent"));
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).expect("prctl");
    body(Rank { rank: number(rank), n, id });
    // The harness has nothing more to do here; its summary would only be noise.
    std::process::exit(0);
}

struct RankProcess {
    child: Child,
    /// What it has written to standard output so far.
    heard: Arc<Mutex<Vec<u8>>>,
    collect: Option<std::thread::JoinHandle<String>>,
    ended: Option<(ExitStatus, Duration)>,
}

/// Ranks that have been started. They are killed when this is dropped.
pub struct Running {
    children: Vec<RankProcess>,
    start: Instant,
    limit: Duration,
}

impl Running {
    /// Process of a rank.
    pub fn pid(&self, rank: usize) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.children[rank].child.id() as i32)
    }

    /// Sends a signal to a rank.
    pub fn signal(&self, rank: usize, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(self.pid(rank), signal).expect("the rank process");
    }

    /// Returns when a rank that runs on has said `line`.
    pub fn wait_for_line(&self, rank: usize, line: &str, limit: Duration) {
        let wanted = format!("[{rank}] {line}\n");
        let until = Instant::now() + limit;
        loop {
            let heard = self.children[rank].heard.lock().expect("no panic under it");
            if heard.windows(wanted.len()).any(|text| text == wanted.as_bytes()) {
                return;
            }
            let text = String::from_utf8_lossy(&heard).into_owned();
            drop(heard);
            assert!(Instant::now() < until, "rank {rank} did not say `{line}` within {limit:?}:\n{text}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Since the ranks were started.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits for all ranks; those that still run at the limit are killed and count as failed by that.
    pub fn wait(mut self) -> Vec<Ended> {
        while self.children.iter().any(|c| c.ended.is_none()) {
            let over = self.start.elapsed() > self.limit;
            for process in self.children.iter_mut().filter(|c| c.ended.is_none()) {
                if over {
                    let _ = process.child.kill();
                }
                if let Some(status) = process.child.try_wait().expect("waiting for a rank") {
                    process.ended = Some((status, self.start.elapsed()));
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let limit = self.limit;
        self.children
            .iter_mut()
            .map(|process| {
                let (status, after) = process.ended.expect("all have ended");
                let mut output = process.collect.take().map(|c| c.join().unwrap_or_default()).unwrap_or_default();
                if after > limit && status.signal() == Some(9) {
                    output.push_str("\n(killed: still running at the test's limit)");
                }
                Ended { status, output, after }
            })
            .collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for process in self.children.iter_mut().filter(|c| c.ended.is_none()) {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}
