//! The rendezvous: one thread, one poll loop, nothing that a stranger can make it wait for or allocate.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr, sockopt};
use nix::unistd::geteuid;

use super::id::SECRET_BYTES;
use super::wire::{HELLO_BYTES, Hello, Reply, Strange};
use super::{RootOptions, socket_pairs};
use crate::mesh::sys;
use crate::protocol::MAX_RANKS;
use crate::{Error, Result};

/// Connections taken in one go before the others are served again.
const ACCEPTS_IN_A_ROW: usize = 64;
/// How long a listener that can't be accepted from (no descriptors left) is left alone.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Binds the listener, then serves it from a detached thread: when this returns, ranks can connect.
pub(super) fn start(name: &[u8], secret: &[u8], options: RootOptions) -> Result<()> {
    let failed = |what: &str, errno: Errno| Error::system(format!("rendezvous: {what}"), errno);
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .map_err(|errno| failed("listener", errno))?;
    let address = UnixAddr::new_abstract(name).map_err(|errno| failed("address", errno))?;
    socket::bind(listener.as_raw_fd(), &address).map_err(|errno| failed("bind", errno))?;
    socket::listen(&listener, Backlog::MAXCONN).map_err(|errno| failed("listen", errno))?;
    let mut copy = [0; SECRET_BYTES];
    copy.copy_from_slice(secret);
    let path = "/proc/self/ns/pid";
    let pid_namespace = std::fs::metadata(path).map_err(|error| Error::system(path, error))?.ino();
    let now = Instant::now();
    let root = Root {
        listener,
        secret: copy,
        pid_namespace,
        ends: now.checked_add(options.idle_limit).unwrap_or_else(|| sys::after(Duration::MAX)),
        options,
        met: false,
        accept_from: now,
        pending: VecDeque::new(),
        world_size: 0,
        members: (0..MAX_RANKS).map(|_| None).collect(),
    };
    sys::spawn("cclx-rendezvous", move || root.run()).map(drop)
}

struct Root {
    listener: OwnedFd,
    secret: [u8; SECRET_BYTES],
    pid_namespace: u64,
    options: RootOptions,
    /// Whether a rank ever came.
    met: bool,
    ends: Instant,
    accept_from: Instant,
    /// Oldest first.
    pending: VecDeque<Pending>,
    /// 0 while there are no members.
    world_size: usize,
    members: Vec<Option<Member>>,
}

/// A connection that has not said who it is.
struct Pending {
    socket: OwnedFd,
    /// As the kernel says, in this process's pid namespace; 0 if it is in another.
    pid: u32,
    until: Instant,
    hello: [u8; HELLO_BYTES],
    got: usize,
}

/// A rank that waits for the others.
struct Member {
    socket: OwnedFd,
    pid: u32,
}

/// What a connection's bytes amount to so far.
enum Heard {
    /// Not enough.
    Nothing,
    /// It is of no use; the text, if any, is for whoever is at the other end.
    Reject(Option<String>),
    /// A rank.
    Rank(Hello),
}

impl Root {
    fn run(mut self) {
        while Instant::now() < self.ends {
            let ready = match self.poll() {
                Ok(ready) => ready,
                Err(errno) => return self.give_up(&format!("poll: {errno}")),
            };
            self.drop_lost_members();
            for index in ready.into_iter().rev() {
                self.serve(index);
            }
            self.expire();
            self.accept();
            if self.joined().count_ones() as usize == self.world_size && self.world_size > 0 {
                // A child forked meanwhile may hold the listener: whoever connects now must still be refused.
                let _ = socket::shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both);
                return self.form();
            }
        }
        let _ = socket::shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both);
    }

    /// Waits for something to do; returns the pending connections with news, in order.
    fn poll(&self) -> nix::Result<Vec<usize>> {
        let now = Instant::now();
        let mut until = self.pending.front().map_or(self.ends, |oldest| oldest.until.min(self.ends));
        let mut fds: Vec<_> = self.pending.iter().map(|p| PollFd::new(p.socket.as_fd(), PollFlags::POLLIN)).collect();
        // A member has nothing to say; only its hang-up is of interest, and that is always reported.
        fds.extend(self.members.iter().flatten().map(|m| PollFd::new(m.socket.as_fd(), PollFlags::empty())));
        if self.accept_from <= now {
            fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        } else {
            until = until.min(self.accept_from);
        }
        sys::poll(&mut fds, until)?;
        Ok((0..self.pending.len()).filter(|index| fds[*index].any() == Some(true)).collect())
    }

    fn accept(&mut self) {
        if self.accept_from > Instant::now() {
            return;
        }
        for _ in 0..ACCEPTS_IN_A_ROW {
            match socket::accept4(self.listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK) {
                Ok(fd) => {
                    // SAFETY: the call has just returned this descriptor and nothing else owns it.
                    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
                    self.admit(socket);
                }
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                Err(Errno::EAGAIN) => return,
                Err(_) => {
                    // Out of descriptors, most likely: make room, and don't spin on a listener that stays ready.
                    self.pending.pop_front();
                    self.accept_from = Instant::now() + ACCEPT_PAUSE;
                    return;
                }
            }
        }
    }

    /// A new connection: whoever has sent its hello already is served at once and never waits among strangers.
    fn admit(&mut self, socket: OwnedFd) {
        let Ok(peer) = socket::getsockopt(&socket, sockopt::PeerCredentials) else { return };
        let own = geteuid().as_raw();
        if peer.uid() != own {
            return refuse(&socket, &format!("it is for user {own}, not for user {}", peer.uid()));
        }
        let until = Instant::now() + self.options.hello_limit;
        self.pending.push_back(Pending { socket, pid: peer.pid() as u32, until, hello: [0; _], got: 0 });
        self.serve(self.pending.len() - 1);
        while self.pending.len() > self.options.max_pending {
            self.pending.pop_front();
        }
    }

    fn serve(&mut self, index: usize) {
        let heard = self.pending[index].hear(&self.secret);
        if matches!(heard, Heard::Nothing) {
            return;
        }
        let Some(pending) = self.pending.remove(index) else { return };
        match heard {
            Heard::Nothing | Heard::Reject(None) => {}
            Heard::Reject(Some(text)) => refuse(&pending.socket, &text),
            Heard::Rank(hello) => match self.check(&hello, pending.pid) {
                Ok(rank) => self.welcome(rank, &hello, pending),
                Err(text) => refuse(&pending.socket, &text),
            },
        }
    }

    /// Whether a rank with the secret may be let in; the refusal names it.
    fn check(&mut self, hello: &Hello, pid: u32) -> std::result::Result<usize, String> {
        let (rank, world_size) = (hello.rank as usize, hello.world_size as usize);
        let who = format!("process {} as rank {rank} of {world_size}", hello.pid);
        if hello.pid_namespace == self.pid_namespace && hello.pid != pid {
            return Err(format!("{who}: the kernel says that it is process {pid}"));
        }
        if world_size == 0 || world_size > MAX_RANKS || rank >= world_size {
            return Err(format!("{who}: the rank is out of range"));
        }
        if self.world_size != 0 && self.world_size != world_size {
            return Err(format!("{who}: the world has {} ranks", self.world_size));
        }
        self.drop_lost_members();
        match &self.members[rank] {
            Some(member) => Err(format!("{who}: process {} has joined as this rank already", member.pid)),
            None => Ok(rank),
        }
    }

    fn welcome(&mut self, rank: usize, hello: &Hello, pending: Pending) {
        let now = Instant::now();
        if !self.met {
            self.met = true;
            self.ends = now + self.options.join_limit.min(Duration::from_secs(86_400));
        }
        // A little more than the rank itself waits, so that it is the one to give up, and a day at most.
        let patience = hello.timeout.min(Duration::from_secs(86_400)) + Duration::from_secs(1);
        self.ends = self.ends.max(now + patience);
        self.world_size = hello.world_size as usize;
        let pid = if pending.pid != 0 { pending.pid } else { hello.pid };
        self.members[rank] = Some(Member { socket: pending.socket, pid });
        self.tell_progress();
    }

    /// Each rank knows at any time who is missing, and can say so when its time is up.
    fn tell_progress(&self) {
        let reply = Reply::Waiting(self.joined()).encode();
        for member in self.members.iter().flatten() {
            // One that can't be told has hung up, which the next poll shows.
            let _ = sys::send(member.socket.as_fd(), &[IoSlice::new(&reply)], &[]);
        }
    }

    /// A rank that ended or gave up may come again, or another in its place.
    fn drop_lost_members(&mut self) {
        let before = self.joined();
        for seat in &mut self.members {
            seat.take_if(|member| hung_up(&member.socket));
        }
        let after = self.joined();
        if after == 0 {
            self.world_size = 0;
        }
        if after != before {
            self.tell_progress();
        }
    }

    fn joined(&self) -> u32 {
        let there = self.members.iter().enumerate().filter(|(_, member)| member.is_some());
        there.fold(0, |ranks, (rank, _)| ranks | 1 << rank)
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while self.pending.front().is_some_and(|oldest| oldest.until <= now) {
            self.pending.pop_front();
        }
    }

    /// All are there: a socket pair for each pair of ranks.
    fn form(&self) {
        let all = match socket_pairs(self.world_size) {
            Ok(all) => all,
            Err(errno) => return self.give_up(&format!("socket pairs: {errno}")),
        };
        let mut pids = [0; MAX_RANKS];
        for (pid, member) in pids.iter_mut().zip(&self.members) {
            *pid = member.as_ref().map_or(0, |member| member.pid);
        }
        let reply = Reply::Formed(pids).encode();
        for (member, sockets) in self.members.iter().flatten().zip(&all) {
            let fds: Vec<RawFd> = sockets.iter().flatten().map(AsRawFd::as_raw_fd).collect();
            // A rank that has just ended shows to the others as a peer that hangs up.
            if let Err(errno) = sys::send(member.socket.as_fd(), &[IoSlice::new(&reply)], &fds) {
                return self.give_up(&format!("hand-out of the sockets: {errno}"));
            }
        }
    }

    fn give_up(&self, text: &str) {
        for member in self.members.iter().flatten() {
            refuse(&member.socket, &format!("it gave up: {text}"));
        }
    }
}

impl Pending {
    fn hear(&mut self, secret: &[u8]) -> Heard {
        let until_whole = self.got..HELLO_BYTES;
        match sys::receive(self.socket.as_fd(), &mut self.hello[until_whole]) {
            Ok(sys::Received::Data(length, _)) => self.got += length,
            Ok(sys::Received::Empty) => return Heard::Nothing,
            Ok(sys::Received::Closed) | Err(_) => return Heard::Reject(None),
        }
        if Hello::is_hopeless(&self.hello[..self.got]) {
            return Heard::Reject(Some("this is no hello of a rank".into()));
        }
        if self.got < HELLO_BYTES {
            return Heard::Nothing;
        }
        match Hello::decode(&self.hello, secret) {
            Ok(hello) => Heard::Rank(hello),
            Err(Strange::Magic) => Heard::Reject(Some("this is no hello of a rank".into())),
            Err(Strange::Version) => Heard::Reject(Some("the hello is of another version of this library".into())),
            Err(Strange::Secret) => Heard::Reject(Some("wrong secret: the rank has another unique id".into())),
        }
    }
}

/// Says why, without waiting for anybody to read it.
fn refuse(socket: &OwnedFd, text: &str) {
    let _ = sys::send(socket.as_fd(), &[IoSlice::new(&Reply::Refused(text.to_owned()).encode())], &[]);
}

fn hung_up(socket: &OwnedFd) -> bool {
    sys::poll(&mut [PollFd::new(socket.as_fd(), PollFlags::empty())], Instant::now()) == Ok(true)
}
