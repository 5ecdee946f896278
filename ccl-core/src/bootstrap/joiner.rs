//! A rank's side of the rendezvous.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, sockopt};
use nix::sys::time::TimeVal;
use nix::unistd::geteuid;

use super::id::{Meeting, UniqueId};
use super::wire::{Hello, REPLY_BYTES, Reply, Seats, WITHDRAWAL};
use crate::mesh::{Mesh, Ranks, sys};
use crate::protocol::MAX_RANKS;
use crate::{Error, Result};

/// How long nobody may listen before the rendezvous is given up. The listener is there before the id is, and its name
/// is never used again: once it is gone it stays gone.
const REFUSED_LIMIT: Duration = Duration::from_secs(2);
/// Longest single wait for a place in the listener's queue.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// How long a rank that has failed already tries to tell the others.
const DECLINE_LIMIT: Duration = Duration::from_secs(2);

/// Meets the other ranks of `id` and returns the sockets to them, or tells after `timeout` who is missing.
pub fn join(id: &UniqueId, rank: usize, world_size: usize, timeout: Duration) -> Result<Mesh> {
    let fits = super::check_world(world_size).and_then(|()| {
        let text = || format!("rank {rank} in a world of {world_size} ranks");
        if rank < world_size { Ok(()) } else { Err(Error::InvalidArgument(text())) }
    });
    if let Err(error) = fits {
        decline(id, rank, world_size, &error);
        return Err(error);
    }
    Joiner::new(id, rank, world_size, timeout, None)?.run()
}

/// Tells the other ranks of `id` that this one can't join them, and why, so that they don't wait for it. They are told
/// as far as possible: it takes 2 s at most, and leaves no error.
pub fn decline(id: &UniqueId, rank: usize, world_size: usize, error: &Error) {
    let told =
        Joiner::new(id, rank, world_size, DECLINE_LIMIT, Some(error.to_string())).and_then(|joiner| joiner.run());
    // What it is told is its own reason, or that of a rank before it.
    if let Err(answer) = told {
        tracing::debug!("rank {rank} of {world_size} gave up, and heard: {answer}");
    }
}

struct Joiner<'a> {
    meeting: Meeting<'a>,
    hello: Hello,
    rank: usize,
    world_size: usize,
    timeout: Duration,
    deadline: Instant,
}

/// An attempt that may be made again.
enum Miss {
    /// Nobody listens.
    Refused,
    /// The listener is overloaded, or dropped this connection in favour of another.
    Busy,
}

impl<'a> Joiner<'a> {
    fn new(
        id: &'a UniqueId,
        rank: usize,
        world_size: usize,
        timeout: Duration,
        declines: Option<String>,
    ) -> Result<Self> {
        let path = "/proc/self/ns/pid";
        let pid_namespace = std::fs::metadata(path).map_err(|error| sys::unread(path, error))?.ino();
        let [said_rank, said_world] = [rank, world_size].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let pid = std::process::id();
        let hello = Hello { world_size: said_world, rank: said_rank, pid, pid_namespace, timeout, declines };
        Ok(Self { meeting: id.meeting()?, hello, rank, world_size, timeout, deadline: sys::after(timeout) })
    }

    fn run(&self) -> Result<Mesh> {
        let mut refused_since = None;
        let mut pause = Duration::from_millis(2);
        loop {
            match self.attempt()? {
                Ok(mesh) => return Ok(mesh),
                Err(Miss::Busy) => refused_since = None,
                Err(Miss::Refused) => {
                    let since: Instant = *refused_since.get_or_insert_with(Instant::now);
                    // Nobody waits for what a rank that gives up would say.
                    if since.elapsed() > REFUSED_LIMIT || self.hello.declines.is_some() {
                        return Err(self.nobody());
                    }
                }
            }
            if Instant::now() >= self.deadline {
                return Err(if refused_since.is_some() { self.nobody() } else { self.timed_out(None) });
            }
            // The rank keeps those that were turned away together from coming back together. One that declines may be none.
            let apart = Duration::from_micros(200 * self.rank.min(MAX_RANKS) as u64);
            sleep((pause + apart).min(self.deadline.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    fn attempt(&self) -> Result<std::result::Result<Mesh, Miss>> {
        let socket = match self.connect()? {
            Ok(socket) => socket,
            Err(miss) => return Ok(Err(miss)),
        };
        let hello = self.hello.encode(self.meeting.secret);
        match sys::send(socket.as_fd(), &[IoSlice::new(&hello)], &[]) {
            // If it was closed there may be a refusal to read.
            Ok(sys::Sent::Bytes(_) | sys::Sent::Closed) => self.await_group(&socket),
            Ok(sys::Sent::Full) => Ok(Err(Miss::Busy)),
            Err(errno) => Err(self.system("hello", errno)),
        }
    }

    fn connect(&self) -> Result<std::result::Result<OwnedFd, Miss>> {
        let address = UnixAddr::new_abstract(self.meeting.name).map_err(|e| self.system("address", e))?;
        let socket = socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|errno| self.system("socket", self.refused(errno)))?;
        // Blocking, since a waiter has its turn when the queue moves; somebody who only tries may never find a place.
        let limit = self.deadline.saturating_duration_since(Instant::now()).min(CONNECT_LIMIT);
        let limit = TimeVal::new(limit.as_secs() as i64, i64::from(limit.subsec_micros()).max(1000));
        socket::setsockopt(&socket, sockopt::SendTimeout, &limit).map_err(|e| self.system("socket option", e))?;
        match socket::connect(socket.as_raw_fd(), &address) {
            Ok(()) => {}
            Err(Errno::ECONNREFUSED) => return Ok(Err(Miss::Refused)),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM) => return Ok(Err(Miss::Busy)),
            Err(errno) => return Err(self.system("connect", errno)),
        }
        // An abstract name belongs to whoever binds it first: the secret must not go to another user's listener.
        let server = socket::getsockopt(&socket, sockopt::PeerCredentials)
            .map_err(|errno| self.system("credentials of the rendezvous", errno))?;
        let own = geteuid().as_raw();
        if server.uid() != own {
            let detail = format!("its listener belongs to user {}, this process to user {own}", server.uid());
            return Err(self.system("connect", detail));
        }
        Ok(Ok(socket))
    }

    /// Reads replies until the group has formed.
    fn await_group(&self, socket: &OwnedFd) -> Result<std::result::Result<Mesh, Miss>> {
        let mut reply = [0; REPLY_BYTES];
        let mut got = 0;
        let mut fds = Vec::new();
        let mut joined = None;
        loop {
            match sys::receive(socket.as_fd(), &mut reply[got..]) {
                Ok(sys::Received::Data(length, new)) => {
                    got += length;
                    fds.extend(new);
                }
                Ok(sys::Received::Empty) => {
                    let ready = sys::poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], self.deadline)
                        .map_err(|errno| self.system("poll", errno))?;
                    if !ready {
                        // Whoever waits longer is to know that this one was there.
                        let _ = sys::send(socket.as_fd(), &[IoSlice::new(&WITHDRAWAL)], &[]);
                        return Err(self.timed_out(joined));
                    }
                    continue;
                }
                // The root never drops a rank that it has let in.
                Ok(sys::Received::Closed) => {
                    let Some(seats) = joined else { return Ok(Err(Miss::Busy)) };
                    let detail = format!(
                        "process {}, which served it, has ended; by then {}",
                        self.meeting.creator,
                        seats.tell(self.world_size)
                    );
                    return Err(self.system("wait for the other ranks", detail));
                }
                Err(errno) => return Err(self.system("wait for the other ranks", self.refused(errno))),
            }
            if got < REPLY_BYTES {
                continue;
            }
            got = 0;
            match Reply::decode(&reply) {
                Some(Reply::Waiting(seats)) => joined = Some(seats),
                Some(Reply::Refused(text)) => {
                    return Err(Error::InvalidUsage(format!("the rendezvous refused rank {}: {text}", self.rank)));
                }
                Some(Reply::Hopeless(text)) => {
                    return Err(Error::InvalidUsage(format!("no group can form from this unique id: {text}")));
                }
                Some(Reply::Gone(rank, detail)) => {
                    return Err(Error::PeerLost { rank, detail, during: " before the group had formed".into() });
                }
                Some(Reply::Failed(text)) => return Err(self.system("the process that serves it gave up", text)),
                Some(Reply::Formed(pids)) => return self.formed(&pids, fds).map(Ok),
                None => return Err(self.system("reply", "it makes no sense")),
            }
        }
    }

    fn formed(&self, pids: &[u32; MAX_RANKS], fds: Vec<OwnedFd>) -> Result<Mesh> {
        if fds.len() != self.world_size - 1 {
            let detail = format!("{} sockets came for {} peers", fds.len(), self.world_size - 1);
            return Err(self.system("hand-out of the sockets", detail));
        }
        let mut fds = fds.into_iter();
        let sockets = (0..self.world_size).map(|rank| if rank == self.rank { None } else { fds.next() }).collect();
        Ok(Mesh::new(self.rank, sockets, &pids[..self.world_size], Ranks::Processes, self.deadline))
    }

    fn timed_out(&self, joined: Option<Seats>) -> Error {
        let what = match joined {
            Some(seats) => format!("rendezvous of rank {}: {}", self.rank, seats.tell(self.world_size)),
            None => format!("rendezvous of rank {}: no answer from process {}", self.rank, self.meeting.creator),
        };
        Error::Timeout { after: self.timeout, what }
    }

    fn nobody(&self) -> Error {
        let detail = format!(
            "nobody serves this unique id any more: its group has formed, failed or timed out, or process {}, which \
             made it, has ended",
            self.meeting.creator
        );
        self.system("connect", detail)
    }

    fn refused(&self, errno: Errno) -> String {
        sys::refused(errno, self.world_size)
    }

    fn system(&self, what: &str, detail: impl std::fmt::Display) -> Error {
        Error::system(format!("rendezvous of rank {}: {what}", self.rank), detail)
    }
}
