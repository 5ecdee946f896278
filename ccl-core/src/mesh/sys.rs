//! The few system calls that rendezvous, mesh and watch share.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::socket::{self, AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType};

use crate::protocol::MAX_RANKS;
use crate::{Error, Result};

/// Most descriptors in one message: enough for one of each peer.
pub(crate) const MAX_FDS: usize = 16;
/// About what a rank has open besides what it shares with others: driver, watch, standard streams.
const RANK_FDS: usize = 24;

/// A pair of connected sockets that keep message boundaries.
pub(crate) fn pair() -> nix::Result<(OwnedFd, OwnedFd)> {
    socket::socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)
}

/// What became of a send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// So many bytes went out.
    Bytes(usize),
    /// The buffer is full.
    Full,
    /// The other end is closed.
    Closed,
}

/// Sends without blocking and without a signal.
pub(crate) fn send(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>], fds: &[RawFd]) -> nix::Result<Sent> {
    let rights = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() { &rights[..0] } else { &rights[..] };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    loop {
        return match socket::sendmsg::<()>(socket.as_raw_fd(), parts, control, flags, None) {
            Ok(sent) => Ok(Sent::Bytes(sent)),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN | Errno::ENOBUFS) => Ok(Sent::Full),
            Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN) => Ok(Sent::Closed),
            Err(errno) => Err(errno),
        };
    }
}

/// What a receive found.
#[derive(Debug)]
pub(crate) enum Received {
    /// So many bytes, and the descriptors that came with them.
    Data(usize, Vec<OwnedFd>),
    /// Nothing there yet.
    Empty,
    /// The other end is closed and everything it sent has been read.
    Closed,
}

/// Room for the descriptors of one message, aligned as control headers want it.
#[repr(C, align(16))]
struct Control([u8; 16 + MAX_FDS * size_of::<RawFd>()]);

/// Receives without blocking. Descriptors are close-on-exec from the start.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> nix::Result<Received> {
    loop {
        let mut part = [IoSliceMut::new(buffer)];
        let mut control = Control([0; _]);
        // SAFETY: all zeros is a valid `msghdr` (null pointers with zero lengths).
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = part.as_mut_ptr().cast();
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>() as _;
        // SAFETY: the header points at one part (IoSliceMut has the layout of iovec) and at a control buffer, both of
        // which outlive the call, with their true lengths.
        let got =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) };
        let got = match Errno::result(got) {
            Ok(got) => got as usize,
            // A peer that closed with our messages unread: whatever it sent before is still there to be read.
            Err(Errno::EINTR | Errno::ECONNRESET) => continue,
            Err(Errno::EAGAIN) => return Ok(Received::Empty),
            Err(errno) => return Err(errno),
        };
        let fds = descriptors(&header);
        if header.msg_flags & libc::MSG_CTRUNC != 0 {
            return Err(Errno::EMFILE);
        }
        if header.msg_flags & libc::MSG_TRUNC != 0 {
            return Err(Errno::EMSGSIZE);
        }
        return Ok(if got == 0 { Received::Closed } else { Received::Data(got, fds) });
    }
}

/// Takes the descriptors of a message that was just received into ownership, also those of a truncated one.
fn descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel filled in the control buffer and its length; CMSG_* walk it within that length.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: not null, so it points at a whole control header within the buffer.
        let (level, kind, length) = unsafe { ((*message).cmsg_level, (*message).cmsg_type, (*message).cmsg_len) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            // SAFETY: plain arithmetic on the pointer of a header within the buffer.
            let data = unsafe { libc::CMSG_DATA(message) };
            let bytes = length.saturating_sub(data as usize - message as usize);
            for index in 0..bytes / size_of::<RawFd>() {
                // SAFETY: `index` lies within the message's data; each is a descriptor that this process has just
                // been given and that nothing else owns.
                fds.push(unsafe { OwnedFd::from_raw_fd(data.cast::<RawFd>().add(index).read_unaligned()) });
            }
        }
        // SAFETY: as for CMSG_FIRSTHDR, from a header within the buffer.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    fds
}

/// Polls until something is ready or `until` has passed; `false` means that it has.
pub(crate) fn poll(fds: &mut [PollFd<'_>], until: Instant) -> nix::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, or the last fraction of a millisecond would be spun away.
        let millis = left.as_micros().div_ceil(1000).min(60_000) as u16;
        match nix::poll::poll(fds, PollTimeout::from(millis)) {
            Ok(0) if Instant::now() >= until => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
}

/// Starts a thread that takes no signals: those are for the application's own threads.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    spawn_by(name, |thread| thread.spawn(body))
}

/// The same within a scope.
pub(crate) fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    spawn_by(name, |thread| thread.spawn_scoped(scope, body))
}

fn spawn_by<H>(name: &str, start: impl FnOnce(Builder) -> std::io::Result<H>) -> Result<H> {
    let mut before = SigSet::empty();
    let failed = |errno: Errno| Error::system(format!("start of thread {name}"), errno);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before)).map_err(failed)?;
    let thread = start(Builder::new().name(name.to_owned()).stack_size(256 << 10));
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(failed)?;
    thread.map_err(|error| Error::system(format!("start of thread {name}"), error))
}

/// An eventfd of a rank of `world_size`, which nobody waits in; `what` says whose.
pub(crate) fn eventfd(what: &str, world_size: usize) -> Result<EventFd> {
    let made = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
    made.map_err(|errno| Error::system(what, refused(errno, world_size)))
}

/// Something that another thread can poll for, and that rings once.
pub(crate) struct Bell(EventFd);

impl Bell {
    /// For a rank of `world_size`.
    pub(crate) fn new(world_size: usize) -> Result<Self> {
        eventfd("an eventfd", world_size).map(Self)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Rings when the result is dropped.
    pub(crate) fn rung_at_end(&self) -> impl Drop {
        struct Rings<'a>(&'a Bell);
        impl Drop for Rings<'_> {
            fn drop(&mut self) {
                // Of a counter that stands at 0 a write can't fail.
                let _ = self.0.0.write(1);
            }
        }
        Rings(self)
    }
}

/// What the system said to a rank of `world_size`, or to who serves its rendezvous; with the limit and what is needed where
/// it has no descriptor left.
pub(crate) fn refused(errno: Errno, world_size: usize) -> String {
    let limit = match errno {
        Errno::EMFILE => match getrlimit(Resource::RLIMIT_NOFILE) {
            Ok((soft, _)) => format!("this process may have {soft} files open (ulimit -n)"),
            Err(_) => "this process has as many files open as it may (ulimit -n)".into(),
        },
        Errno::ENFILE => "the system has as many files open as it may (/proc/sys/fs/file-max)".into(),
        _ => return errno.to_string(),
    };
    // Control sockets and their twins, and others' memory on its way to be mapped.
    let (rank, root) = (RANK_FDS + 4 * world_size, world_size * world_size);
    format!(
        "{errno}: {limit}; a rank of {world_size} takes about {rank}, and the process that made the unique id {root} more \
         until the group has formed: raise the limit"
    )
}

/// The same of a file that could not be read.
pub(crate) fn unread(path: &str, error: std::io::Error) -> Error {
    let errno = error.raw_os_error().map(Errno::from_raw);
    Error::system(path, errno.map_or_else(|| error.to_string(), |errno| refused(errno, MAX_RANKS)))
}

/// Now plus `duration`, or about a century where that is beyond what the clock can hold.
pub(crate) fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + Duration::from_secs(100 * 365 * 86_400))
}

/// The longest start of `text` that fits `bytes`.
pub(crate) fn clipped(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
