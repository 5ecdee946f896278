//! Ways for a descriptor to get from one process to another, each tried between two processes.

use super::child::say;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitCode, Stdio};

/// What is written into shared memory by one process and read by the other.
const TOKEN: &[u8] = b"from one process to another";

/// A way, and whether it can be gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Way {
    pub(super) name: String,
    pub(super) works: bool,
    /// Why not.
    pub(super) error: Option<String>,
}

fn tell(name: &str, result: Result<(), String>) {
    say(&Way { name: name.into(), works: result.is_ok(), error: result.err() });
}

/// The names of all ways, in the order in which they are tried.
pub(super) const WAYS: [&str; 4] = ["memfd", "scm_rights", "pidfd_open", "pidfd_getfd"];

/// Starts a second process and receives from it.
pub(super) fn probe() -> ExitCode {
    match with_peer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn with_peer() -> Result<(), String> {
    let (own, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(|errno| format!("a pair of sockets: {errno}"))?;
    let program = std::env::current_exe().map_err(|error| format!("the path of ccl: {error}"))?;
    let mut peer = Command::new(program)
        .args([super::PROBE_COMMAND, "ipc-peer", "0"])
        .stdin(Stdio::from(other))
        // Its words go straight to who runs this probe.
        .stdout(Stdio::inherit())
        .spawn()
        .map_err(|error| format!("a second process: {error}"))?;
    tell("scm_rights", receive(&own));
    // Tells the peer that this process may now be asked for a descriptor of its own.
    File::from(own).write_all(b"go").map_err(|error| format!("the second process: {error}"))?;
    // Bounded by who runs this probe.
    match peer.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the second process ended early: {status}")),
        Err(error) => Err(format!("the second process: {error}")),
    }
}

fn receive(socket: &OwnedFd) -> Result<(), String> {
    let mut word = [0; 8];
    let mut space = nix::cmsg_space!(RawFd);
    let mut parts = [IoSliceMut::new(&mut word)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)
        .map_err(|errno| format!("recvmsg: {errno}"))?;
    if message.bytes == 0 {
        return Err("the second process sent nothing".into());
    }
    let rights = message.cmsgs().map_err(|errno| format!("the ancillary data: {errno}"))?;
    for control in rights {
        if let ControlMessageOwned::ScmRights(descriptors) = control
            && let Some(&descriptor) = descriptors.first()
        {
            // SAFETY: the system has just made this descriptor for this process; nobody else owns it.
            let memory = unsafe { File::from_raw_fd(descriptor) };
            let mut seen = vec![0; TOKEN.len()];
            memory.read_exact_at(&mut seen, 0).map_err(|error| format!("reading the memory: {error}"))?;
            return if seen == TOKEN { Ok(()) } else { Err("the memory holds something else".into()) };
        }
    }
    Err("the message came without its descriptor".into())
}

/// The second process: sends a descriptor of its own, then asks for one of the first process's. That one is its parent
/// and no descendant of it, as little as ranks are of each other: what Yama goes by.
pub(super) fn peer() -> ExitCode {
    let memory = memfd_create(c"ccl-doctor", MFdFlags::MFD_CLOEXEC).map_err(|errno| errno.to_string());
    let memory = memory.and_then(|memory| {
        let memory = File::from(memory);
        memory.write_all_at(TOKEN, 0).map_err(|error| error.to_string())?;
        Ok(memory)
    });
    tell("memfd", memory.as_ref().map(drop).map_err(Clone::clone));
    if let Ok(memory) = memory {
        let rights = [memory.as_raw_fd()];
        let sent = sendmsg::<()>(
            0,
            &[IoSlice::new(b"memory")],
            &[ControlMessage::ScmRights(&rights)],
            MsgFlags::MSG_NOSIGNAL,
            None,
        );
        if let Err(errno) = sent {
            eprintln!("sendmsg with SCM_RIGHTS: {errno}");
        }
    } else {
        // Any descriptor will do to show whether one can be sent; the reader says that it isn't the memory.
        let sent = sendmsg::<()>(0, &[IoSlice::new(b"none")], &[], MsgFlags::MSG_NOSIGNAL, None);
        if let Err(errno) = sent {
            eprintln!("sendmsg: {errno}");
        }
    }
    let mut word = [0; 2];
    if let Err(error) = std::io::stdin().lock().read_exact(&mut word) {
        eprintln!("the first process: {error}");
        return ExitCode::FAILURE;
    }
    let opened = system_call(libc::SYS_pidfd_open, [nix::unistd::getppid().as_raw(), 0, 0]);
    tell("pidfd_open", opened.as_ref().map(drop).map_err(ToString::to_string));
    let got = match &opened {
        Ok(process) => system_call(libc::SYS_pidfd_getfd, [process.as_raw_fd(), 0, 0]).map_err(|e| e.to_string()),
        Err(_) => Err("needs pidfd_open".into()),
    };
    tell("pidfd_getfd", got.map(drop));
    ExitCode::SUCCESS
}

/// A call without pointers that makes a descriptor.
fn system_call(number: libc::c_long, arguments: [i32; 3]) -> Result<OwnedFd, std::io::Error> {
    let [a, b, c] = arguments.map(libc::c_long::from);
    // SAFETY: only `pidfd_open` and `pidfd_getfd` are called so, which take numbers.
    let result = unsafe { libc::syscall(number, a, b, c) };
    match RawFd::try_from(result) {
        // SAFETY: the call has just made this descriptor; nobody else owns it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(std::io::Error::last_os_error()),
    }
}
