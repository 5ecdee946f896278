//! The rank processes: started together, asked together, ended together.

pub(crate) mod member;

use ccl_core::bootstrap::UniqueId;
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long after a first failure those of other ranks are waited for: they may say more.
const AFTERMATH: Duration = Duration::from_millis(500);

/// How long the ranks have to end once there is nothing more to do.
const FAREWELL: Duration = Duration::from_secs(10);

/// Where a rank belongs.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// The process that started it.
    parent: i32,
    /// The unique id, in hexadecimal.
    id: String,
}

impl Seat {
    /// Those of a whole group.
    pub(crate) fn all(ranks: usize, id: &UniqueId) -> impl Iterator<Item = Seat> {
        let (parent, id) = (nix::unistd::getpid().as_raw(), hex(id.as_bytes()));
        (0..ranks).map(move |rank| Seat { rank, ranks, parent, id: id.clone() })
    }

    /// The group's id.
    pub(crate) fn id(&self) -> ccl_core::Result<UniqueId> {
        let damaged = || ccl_core::Error::InvalidArgument("the unique id in the job is damaged".into());
        unhex(&self.id).map(UniqueId::from_bytes).ok_or_else(damaged)
    }
}

/// The first line to a rank.
#[derive(Serialize, Deserialize)]
struct Post<J> {
    seat: Seat,
    job: J,
}

/// A line of a rank.
#[derive(Serialize, Deserialize)]
enum Said<A> {
    /// What was asked for.
    Answer(A),
    /// At times, that it is still at it.
    Busy,
    /// Instead of an answer; its last word.
    Failed { timed_out: bool, error: String },
}

/// What ended a run.
#[derive(Debug)]
pub(crate) struct Failure {
    /// One line for each rank that has something to say.
    lines: Vec<String>,
    /// Whether somebody waited too long.
    pub(crate) timed_out: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

impl Failure {
    pub(crate) fn of(what: impl fmt::Display) -> Self {
        Self { lines: vec![what.to_string()], timed_out: false }
    }
}

struct Member<A> {
    child: Child,
    /// None once nothing more will be asked.
    input: Option<ChildStdin>,
    /// Its last word.
    failed: Option<String>,
    /// Its output has ended.
    closed: bool,
    heard: Instant,
    /// Answers that no [`Crew::gather`] has taken yet. A rank that answers more than once of itself may be ahead of the
    /// others by an answer.
    answers: VecDeque<A>,
}

enum Heard<A> {
    Said(Said<A>),
    /// Some library's output.
    Noise(String),
    Closed,
}

/// The ranks of a group, whose answers are `A`.
pub(crate) struct Crew<A> {
    members: Vec<Member<A>>,
    heard: Receiver<(usize, Heard<A>)>,
    /// A rank that says nothing for so long is given up.
    silence: Duration,
}

impl<A: DeserializeOwned + Send + 'static> Crew<A> {
    /// Starts a process for each job, as `ccl` with the hidden command. To be called from the main thread: its end ends
    /// the ranks.
    pub(crate) fn start<J: Serialize>(
        command: &str,
        jobs: Vec<(Seat, J)>,
        variables: &[(&'static str, String)],
        silence: Duration,
    ) -> Result<Crew<A>, Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::of(format!("the path of ccl: {error}")))?;
        let (sender, heard) = channel();
        let mut crew = Crew { members: Vec::with_capacity(jobs.len()), heard, silence };
        for (seat, _) in &jobs {
            let rank = seat.rank;
            let child = std::process::Command::new(&program)
                .arg(command)
                .envs(variables.iter().map(|(name, value)| (name, value)))
                .env("LOCAL_RANK", rank.to_string())
                .env("LOCAL_WORLD_SIZE", seat.ranks.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let mut child =
                child.map_err(|error| Failure::of(format!("rank {rank}: {}: {error}", program.display())))?;
            let (input, output) = (child.stdin.take(), child.stdout.take());
            crew.members.push(Member::new(child, input));
            if let Some(output) = output {
                let sender = sender.clone();
                std::thread::Builder::new()
                    .name(format!("rank {rank}"))
                    .spawn(move || listen(rank, output, &sender))
                    .map_err(|error| Failure::of(format!("a thread for rank {rank}: {error}")))?;
            }
        }
        for (member, job) in crew.members.iter_mut().zip(jobs) {
            member.tell(&Post { seat: job.0, job: job.1 })?;
        }
        Ok(crew)
    }

    /// Process ids by rank.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.child.id()).collect()
    }

    /// Gives all ranks a command and gathers their answers, in the order of ranks.
    pub(crate) fn ask(&mut self, command: impl Serialize, busy: &mut dyn FnMut()) -> Result<Vec<A>, Failure> {
        for member in &mut self.members {
            member.tell(&command)?;
        }
        self.gather(busy)
    }

    /// One answer of each rank; `busy` is called now and then while they are awaited.
    pub(crate) fn gather(&mut self, busy: &mut dyn FnMut()) -> Result<Vec<A>, Failure> {
        let now = Instant::now();
        self.members.iter_mut().for_each(|member| member.heard = now);
        while self.members.iter().any(|member| member.answers.is_empty()) {
            let waited_for = self.members.iter().filter(|member| member.answers.is_empty());
            let since = waited_for.map(|member| member.heard.elapsed()).max().unwrap_or_default();
            match self.heard.recv_timeout(self.silence.saturating_sub(since)) {
                Ok((rank, Heard::Said(Said::Busy))) => {
                    self.members[rank].heard = Instant::now();
                    busy();
                }
                Ok((_, Heard::Noise(line))) => eprintln!("{line}"),
                Ok((rank, heard @ (Heard::Said(Said::Failed { .. }) | Heard::Closed))) => {
                    return Err(self.post_mortem(rank, heard));
                }
                Ok((rank, Heard::Said(Said::Answer(answer)))) => self.members[rank].answers.push_back(answer),
                // Each listener says that it ends.
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::of("the ranks are gone")),
                Err(RecvTimeoutError::Timeout) => {
                    let silent = (0..).zip(&self.members).filter(|(_, member)| member.answers.is_empty());
                    let lines =
                        silent.map(|(rank, _): (usize, _)| format!("rank {rank} said nothing for {:?}", self.silence));
                    return Err(Failure { lines: lines.collect(), timed_out: true });
                }
            }
        }
        Ok(self.members.iter_mut().filter_map(|member| member.answers.pop_front()).collect())
    }

    /// After the first failure: gathers what others have to say, ends all, and tells who met what end.
    fn post_mortem(&mut self, rank: usize, heard: Heard<A>) -> Failure {
        let mut timed_out = false;
        let mut next = Some((rank, heard));
        let until = Instant::now() + AFTERMATH;
        while let Some((rank, heard)) = next {
            let member = &mut self.members[rank];
            match heard {
                Heard::Said(Said::Failed { timed_out: waited, error }) => {
                    timed_out |= waited;
                    member.failed.get_or_insert(error);
                }
                Heard::Closed => member.closed = true,
                Heard::Noise(line) => eprintln!("{line}"),
                Heard::Said(_) => {}
            }
            next = self.heard.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        }
        let (mut dead, mut told) = (Vec::new(), Vec::new());
        for (rank, member) in self.members.iter_mut().enumerate() {
            // Who closed its output without a word has ended of itself, or is about to.
            let status = member.end(if member.closed { AFTERMATH } else { Duration::ZERO });
            match &member.failed {
                Some(error) => told.push(format!("rank {rank}: {error}")),
                None if member.closed => dead.push(format!("rank {rank} {}", describe(status))),
                None => {}
            }
        }
        // Those who vanished first: what the others tell follows from it.
        dead.append(&mut told);
        Failure { lines: dead, timed_out }
    }

    /// Lets the ranks end. How they do is part of the result.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        for member in &mut self.members {
            member.input = None;
        }
        let until = Instant::now() + FAREWELL;
        let mut lines = Vec::new();
        for (rank, member) in self.members.iter_mut().enumerate() {
            let status = member.end(until.saturating_duration_since(Instant::now()));
            if !status.is_some_and(|status| status.success()) {
                lines.push(format!("rank {rank}, after all was done, {}", describe(status)));
            }
        }
        if lines.is_empty() { Ok(()) } else { Err(Failure { lines, timed_out: false }) }
    }
}

impl<A> Drop for Crew<A> {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.end(Duration::ZERO);
        }
    }
}

impl<A> Member<A> {
    fn new(child: Child, input: Option<ChildStdin>) -> Self {
        Self { child, input, failed: None, closed: false, heard: Instant::now(), answers: VecDeque::new() }
    }

    /// Fails where the message can't be put into words: the rank would wait for it, and be waited for.
    fn tell(&mut self, message: &impl Serialize) -> Result<(), Failure> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let line = serde_json::to_vec(message);
        let mut line = line.map_err(|error| Failure::of(format!("what a rank is to be told: {error}")))?;
        line.push(b'\n');
        // One that is gone is noticed by its listener.
        let _ = input.write_all(&line).and_then(|()| input.flush());
        Ok(())
    }

    /// Waits for its end, which after `patience` is brought about. `None` if it had to be.
    fn end(&mut self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // SIGKILL: neither can fail for a child that was not waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

fn describe(status: Option<ExitStatus>) -> String {
    match status {
        None => "had to be ended".into(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with status {code}"),
            (None, Some(number)) => {
                let name = Signal::try_from(number).map_or("unknown", |signal| signal.as_str());
                format!("was ended by signal {number} ({name})")
            }
            (None, None) => "ended".into(),
        },
    }
}

/// Passes on what a rank says.
fn listen<A: DeserializeOwned>(rank: usize, output: ChildStdout, to: &Sender<(usize, Heard<A>)>) {
    for line in BufReader::new(output).split(b'\n') {
        let Ok(line) = line else { break };
        let heard = match serde_json::from_slice(&line) {
            Ok(said) => Heard::Said(said),
            Err(_) => Heard::Noise(format!("rank {rank}: {}", String::from_utf8_lossy(&line))),
        };
        if to.send((rank, heard)).is_err() {
            return;
        }
    }
    // Nobody listens any more if this fails.
    let _ = to.send((rank, Heard::Closed));
}

/// Bytes as text.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A string takes all that is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The `N` bytes that a text stands for.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    /// A crew of shell scripts.
    fn crew(scripts: &[&str], silence: Duration) -> Crew<u32> {
        let (sender, heard) = channel();
        let members = scripts.iter().enumerate().map(|(rank, script)| {
            let mut child = std::process::Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (output, sender) = (child.stdout.take().unwrap(), sender.clone());
            std::thread::spawn(move || listen(rank, output, &sender));
            let input = child.stdin.take();
            Member::new(child, input)
        });
        Crew { members: members.collect(), heard, silence }
    }

    const LONG: Duration = Duration::from_secs(20);
    const ANSWERS: &str = r#"while read line; do echo '"Busy"'; echo '{"Answer":7}'; done"#;

    #[test]
    fn all_are_asked_and_all_answer() {
        let mut crew = crew(&[ANSWERS, ANSWERS], LONG);
        let mut busy = 0;
        for _ in 0..3 {
            let replies = crew.ask("a question", &mut || busy += 1).unwrap();
            assert_eq!(replies, [7, 7]);
        }
        assert!(busy >= 3);
        crew.finish().unwrap();
    }

    #[test]
    fn an_answer_that_comes_early_is_kept() {
        // The second answer of one rank comes before the first of the other.
        let eager = r#"echo '{"Answer":1}'; echo '{"Answer":2}'; read line"#;
        let late = r#"sleep 0.5; echo '{"Answer":3}'; echo '{"Answer":4}'; read line"#;
        let mut crew = crew(&[eager, late], Duration::from_secs(5));
        assert_eq!(crew.gather(&mut || {}).unwrap(), [1, 3]);
        assert_eq!(crew.gather(&mut || {}).unwrap(), [2, 4]);
    }

    #[test]
    fn every_end_is_told_and_nobody_outlives_it() {
        let failed = r#"echo '{"Failed":{"timed_out":true,"error":"too late"}}'"#;
        let mut crew = crew(&["exec sleep 100", failed, "read line; kill -9 $$", "exec sleep 100"], LONG);
        let pids = crew.pids();
        let failure = crew.ask("a question", &mut || {}).err().unwrap();
        assert!(failure.timed_out);
        let text = failure.to_string();
        assert_eq!(text, "rank 2 was ended by signal 9 (SIGKILL)\nrank 1: too late");
        for pid in pids {
            assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left");
        }
    }

    #[test]
    fn what_can_not_be_told_is_an_error_at_once() {
        use std::os::unix::ffi::OsStrExt;
        let mut crew = crew(&[ANSWERS], LONG);
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        let began = Instant::now();
        let failure = crew.ask(path, &mut || {}).err().unwrap();
        assert!(!failure.timed_out && failure.to_string().contains("UTF-8"), "{failure}");
        assert!(began.elapsed() < LONG / 2);
    }

    #[test]
    fn a_silent_rank_is_given_up() {
        let mut crew = crew(&[ANSWERS, "exec sleep 100"], Duration::from_millis(300));
        let failure = crew.ask("a question", &mut || {}).err().unwrap();
        assert!(failure.timed_out);
        assert_eq!(failure.to_string(), "rank 1 said nothing for 300ms");
    }

    #[test]
    fn a_bad_end_is_part_of_the_result() {
        let failure = crew(&["read line; exit 3", ANSWERS], LONG).finish().err().unwrap();
        assert_eq!(failure.to_string(), "rank 0, after all was done, ended with status 3");
    }

    #[test]
    fn hexadecimal_there_and_back() {
        let bytes = [0, 9, 0xAB, 0xFF];
        assert_eq!(hex(&bytes), "0009abff");
        assert_eq!(unhex("0009abff"), Some(bytes));
        assert_eq!(unhex::<4>("0009abf"), None);
        assert_eq!(unhex::<4>("0009abfg"), None);
    }
}
