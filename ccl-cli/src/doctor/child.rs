//! Runs a probe in a process of its own, which may crash, hang or be killed without harm to who asked.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Begins a line that a probe says; any other line is some library's.
pub(super) const MARK: &str = "ccl-doctor ";

/// Most bytes of output that are read.
const MOST_OUTPUT: u64 = 8 << 20;

/// How long a killed process has to disappear; one that hangs in the kernel may not.
const BURIAL: Duration = Duration::from_secs(2);

/// How a probe ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    Good,
    /// With this status.
    Status(i32),
    /// By a signal, with its name.
    Signal(String),
    /// It was killed after this time.
    TimedOut(Duration),
    /// It could not be started, for this reason.
    NotStarted(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Good => f.write_str("ended as it should"),
            End::Status(status) => write!(f, "ended with status {status}"),
            End::Signal(signal) => write!(f, "crashed ({signal})"),
            End::TimedOut(limit) => write!(f, "hung, and was killed after {} s", limit.as_secs_f32()),
            End::NotStarted(why) => write!(f, "could not be started: {why}"),
        }
    }
}

/// What came of a probe.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What it said, in JSON, line by line.
    pub(super) lines: Vec<String>,
    /// What else was printed while it ran, mostly by libraries.
    pub(super) noise: Vec<String>,
    pub(super) end: End,
}

impl Outcome {
    /// The end with the last thing that was printed, where it wasn't good.
    pub(super) fn trouble(&self) -> Option<String> {
        if self.end == End::Good {
            return None;
        }
        Some(match self.noise.last() {
            Some(line) => format!("{}: {line}", self.end),
            None => self.end.to_string(),
        })
    }
}

/// To be called from the main thread: its end ends the probes.
pub(super) fn run(stage: &str, limit: Duration) -> Outcome {
    let since = Instant::now();
    let mut outcome = Outcome { lines: Vec::new(), noise: Vec::new(), end: End::Good };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            outcome.end = End::NotStarted(format!("the path of ccl: {error}"));
            return outcome;
        }
    };
    let mut command = Command::new(program);
    command.arg(super::PROBE_COMMAND).arg(stage).arg(limit.as_millis().to_string());
    // A group of its own, so that what it starts can be killed with it.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => collect(child, since + limit, limit, &mut outcome),
        Err(error) => outcome.end = End::NotStarted(error.to_string()),
    }
    outcome
}

fn collect(mut child: Child, until: Instant, limit: Duration, outcome: &mut Outcome) {
    let (sender, heard) = channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>),
        child.stderr.take().map(|err| Box::new(err) as Box<dyn Read + Send>),
    ];
    for stream in streams.into_iter().flatten() {
        let sender = sender.clone();
        // Not joined: a process that can't be killed may keep its end of the pipe open for ever.
        std::thread::spawn(move || listen(stream, &sender));
    }
    drop(sender);
    let heard_all = hear(&heard, until, outcome);
    let ended = if heard_all { wait(&mut child, until) } else { None };
    // Also what it may have left behind.
    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
    outcome.end = match ended {
        Some(status) => end_of(status),
        None => {
            hear(&heard, Instant::now() + BURIAL, outcome);
            let _ = wait(&mut child, Instant::now() + BURIAL);
            End::TimedOut(limit)
        }
    };
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(0), _) => End::Good,
        (Some(code), _) => End::Status(code),
        (None, Some(signal)) => {
            End::Signal(Signal::try_from(signal).map_or(format!("signal {signal}"), |s| s.to_string()))
        }
        (None, None) => End::Signal("an unknown signal".into()),
    }
}

/// True once nothing more can come.
fn hear(heard: &Receiver<String>, until: Instant, outcome: &mut Outcome) -> bool {
    loop {
        match heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => match line.strip_prefix(MARK) {
                Some(said) => outcome.lines.push(said.to_owned()),
                None if line.trim().is_empty() => {}
                None => outcome.noise.push(line.trim_end().to_owned()),
            },
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            _ => return None,
        }
    }
}

fn listen(stream: impl Read, to: &Sender<String>) {
    let mut stream = BufReader::new(stream.take(MOST_OUTPUT));
    let mut line = Vec::new();
    while stream.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
        if to.send(text).is_err() {
            return;
        }
        line.clear();
    }
}

/// Says something to who runs this probe; false if nobody listens any more.
pub(super) fn say(what: &impl Serialize) -> bool {
    use std::io::Write;
    let Ok(text) = serde_json::to_string(what) else { return false };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{text}").and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn script(text: &str, limit: Duration) -> Outcome {
        let mut outcome = Outcome { lines: Vec::new(), noise: Vec::new(), end: End::Good };
        let mut command = Command::new("sh");
        command.args(["-c", text]).process_group(0).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        collect(child, Instant::now() + limit, limit, &mut outcome);
        outcome
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn what_is_said_and_what_is_noise() {
        let outcome = script("echo 'ccl-doctor 1'; echo hum; echo 'ccl-doctor 2'", LONG);
        assert_eq!((outcome.lines, outcome.noise), (vec!["1".into(), "2".into()], vec!["hum".into()]));
        assert_eq!(outcome.end, End::Good);
    }

    #[test]
    fn every_end_is_told() {
        assert_eq!(script("exit 5", LONG).end, End::Status(5));
        let crashed = script("echo 'ccl-doctor 1'; echo bad news >&2; kill -SEGV $$", LONG);
        assert_eq!(crashed.trouble().unwrap(), "crashed (SIGSEGV): bad news");
        assert_eq!(crashed.lines, ["1"]);
    }

    #[test]
    fn a_hang_is_ended_with_all_that_it_started() {
        let since = Instant::now();
        let limit = Duration::from_millis(300);
        let outcome = script("sleep 100 & echo \"ccl-doctor $!\"; exec sleep 100", limit);
        assert_eq!(outcome.end, End::TimedOut(limit));
        assert!(since.elapsed() < Duration::from_secs(10));
        let left = format!("/proc/{}/stat", outcome.lines[0]);
        // It ends some time after the signal was sent, and whoever inherited it may not reap it.
        let state = loop {
            let state = std::fs::read_to_string(&left).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") || since.elapsed() > Duration::from_secs(20) {
                break state;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }
}
