//! The command: started, its signals passed on, its orphans adopted, its processes looked at while it runs.

use super::processes::Processes;
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long what the command leaves behind is waited for.
const GRACE: Duration = Duration::from_secs(2);

/// How the command ended.
pub(crate) enum Ended {
    Status(u8),
    Signal(i32),
    NotStarted { status: u8, error: String },
}

impl Ended {
    /// What this program's own status is to be.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Ended::Status(status) | Ended::NotStarted { status, .. } => *status,
            Ended::Signal(number) => u8::try_from(128 + number).unwrap_or(u8::MAX),
        }
    }
}

/// Runs the command to its end.
pub(crate) fn run<'a>(
    words: &[OsString],
    variables: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
) -> Result<(Ended, Processes), String> {
    // What the command starts and leaves behind comes back here.
    set_child_subreaper(true).map_err(|errno| format!("prctl(PR_SET_CHILD_SUBREAPER): {errno}"))?;
    // Who started this program may have it that children leave no status.
    // SAFETY: the default takes the place of a disposition, not of a handler of ours.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }.map_err(|errno| format!("SIGCHLD: {errno}"))?;
    let mut heard = SigSet::empty();
    for each in [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP] {
        heard.add(each);
    }
    let before = heard.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
    let before = before.map_err(|errno| format!("blocking signals: {errno}"))?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).envs(variables);
    // SAFETY: the closure makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(move || Ok(before.thread_set_mask()?)) };
    let child = match command.spawn() {
        Ok(child) => Pid::from_raw(child.id() as i32),
        Err(error) => {
            let status = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
            return Ok((Ended::NotStarted { status, error: error.to_string() }, Processes::new()));
        }
    };
    let mut seen = Processes::new();
    let ended = watch(child, &heard, &mut seen)?;
    seen.look_at_all();
    Ok((ended, seen))
}

/// Until the command has ended, and what it left behind too, or time is over for that.
fn watch(child: Pid, heard: &SigSet, seen: &mut Processes) -> Result<Ended, String> {
    let begun = Instant::now();
    let mut ended: Option<(Ended, Instant)> = None;
    loop {
        seen.look();
        let pause = match begun.elapsed().as_millis() {
            0..200 => 5,
            200..2000 => 20,
            _ => 200,
        };
        if let Some((number, to_all)) = next_signal(heard, Duration::from_millis(pause))
            && number != libc::SIGCHLD
            && !to_all
            && ended.is_none()
        {
            // It may have ended just now: then there is nobody to tell.
            _ = Signal::try_from(number).map(|signal| kill(child, signal));
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => {
                    seen.ended(pid.as_raw());
                    if pid == child {
                        ended = Some((Ended::Status(code as u8), Instant::now()));
                    }
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    seen.ended(pid.as_raw());
                    if pid == child {
                        ended = Some((Ended::Signal(signal as i32), Instant::now()));
                    }
                }
                Ok(WaitStatus::StillAlive) => break,
                Ok(_) => {}
                Err(Errno::ECHILD) => match ended {
                    Some((ended, _)) => return Ok(ended),
                    None => return Err("the command is gone without a status".into()),
                },
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(format!("waitpid: {errno}")),
            }
        }
        if let Some((_, at)) = &ended
            && at.elapsed() > GRACE
        {
            return ended.map(|(ended, _)| ended).ok_or_else(|| "no end".into());
        }
    }
}

/// A signal that came within this time, and whether the terminal sent it, to the command too.
fn next_signal(heard: &SigSet, within: Duration) -> Option<(i32, bool)> {
    let time = libc::timespec { tv_sec: 0, tv_nsec: within.as_nanos() as libc::c_long };
    // SAFETY: all zeros is a value of this plain C structure.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set, a place for what came, and a time, all live.
    let number = unsafe { libc::sigtimedwait(heard.as_ref(), &raw mut info, &raw const time) };
    (number > 0).then_some((number, info.si_code == libc::SI_KERNEL))
}
