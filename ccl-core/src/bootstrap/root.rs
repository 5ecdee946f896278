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
use super::wire::{HELLO_BYTES, Hello, Reply, Seats, Strange, VERSION, WITHDRAWAL};
use super::{RootOptions, socket_pairs};
use crate::mesh::sys;
use crate::protocol::MAX_RANKS;
use crate::{Error, Result};

/// Connections taken in one go before the others are served again.
const ACCEPTS_IN_A_ROW: usize = 64;
/// How long a listener that can't be accepted from (no descriptors left) is left alone.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// How long there may be no descriptors, with no stranger to take one from, before the group is given up.
const STARVED_LIMIT: Duration = Duration::from_secs(1);

/// Binds the listener, then serves it from a detached thread: when this returns, ranks can connect.
pub(super) fn start(name: &[u8], secret: &[u8], options: RootOptions) -> Result<()> {
    let failed =
        |what: &str, errno: Errno| Error::system(format!("rendezvous: {what}"), sys::refused(errno, MAX_RANKS));
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .map_err(|errno| failed("listener", errno))?;
    let address = UnixAddr::new_abstract(name).map_err(|errno| failed("address", errno))?;
    socket::bind(listener.as_raw_fd(), &address).map_err(|errno| failed("bind", errno))?;
    socket::listen(&listener, Backlog::MAXCONN).map_err(|errno| failed("listen", errno))?;
    let mut copy = [0; SECRET_BYTES];
    copy.copy_from_slice(secret);
    let path = "/proc/self/ns/pid";
    let pid_namespace = std::fs::metadata(path).map_err(|error| sys::unread(path, error))?.ino();
    let now = Instant::now();
    let root = Root {
        listener,
        secret: copy,
        pid_namespace,
        ends: now.checked_add(options.idle_limit).unwrap_or_else(|| sys::after(Duration::MAX)),
        options,
        met: false,
        accept_from: now,
        starved: None,
        pending: VecDeque::new(),
        world_size: 0,
        members: (0..MAX_RANKS).map(|_| None).collect(),
        withdrawn: 0,
        ended: 0,
        verdict: None,
        told: 0,
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
    /// Since when there are no descriptors for who comes.
    starved: Option<Instant>,
    /// Oldest first.
    pending: VecDeque<Pending>,
    /// As the members say, or those who were the last to be.
    world_size: usize,
    members: Vec<Option<Member>>,
    /// Ranks (a bit each) that were members until their time was over, or until they ended.
    withdrawn: u32,
    ended: u32,
    /// Why the group can't form, once that is known. From then on there are no members, and whoever comes is told.
    verdict: Option<Reply>,
    /// How many have been told so.
    told: usize,
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
    /// A rank of this group, and a version that does not know how to join it.
    Foreign(u32),
    /// A rank.
    Rank(Hello),
}

/// Why a rank can't be let in.
struct Refusal {
    /// For that rank.
    own: String,
    /// For all others.
    others: Reply,
}

impl Root {
    fn run(mut self) {
        // Once as many know why no group can form as it would have had ranks, nobody else will come.
        while Instant::now() < self.ends && (self.verdict.is_none() || self.told < self.expected()) {
            let ready = match self.poll() {
                Ok(ready) => ready,
                Err(errno) => return self.conclude(Reply::Failed(format!("poll: {errno}"))),
            };
            self.drop_lost_members();
            for index in ready.into_iter().rev() {
                self.serve(index);
            }
            self.expire();
            self.accept();
            if self.joined().count_ones() as usize == self.world_size && self.verdict.is_none() && self.met {
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
                Err(errno) => {
                    // Out of descriptors, most likely: make room, and don't spin on a listener that stays ready.
                    let now = Instant::now();
                    self.accept_from = now + ACCEPT_PAUSE;
                    if self.pending.pop_front().is_some() {
                        self.starved = None;
                    } else if *self.starved.get_or_insert(now) + STARVED_LIMIT <= now && self.verdict.is_none() {
                        // The members' descriptors serve to tell those who wait to be let in.
                        let why = sys::refused(errno, self.world_size);
                        self.conclude(Reply::Failed(format!("a rank can't be let in: {why}")));
                    }
                    return;
                }
            }
            self.starved = None;
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
            Heard::Foreign(version) => {
                let text = format!(
                    "process {}: it speaks version {version} of the rendezvous, process {} version {VERSION}: two \
                     versions of this library",
                    pending.pid,
                    std::process::id()
                );
                self.turn_away(&pending, Refusal { own: text.clone(), others: Reply::Hopeless(text) });
            }
            Heard::Rank(hello) => match self.check(&hello, pending.pid) {
                Ok(rank) => self.welcome(rank, &hello, pending),
                Err(refusal) => {
                    if self.world_size == 0 && (1..=MAX_RANKS).contains(&(hello.world_size as usize)) {
                        self.world_size = hello.world_size as usize;
                    }
                    self.turn_away(&pending, refusal);
                }
            },
        }
    }

    /// Whoever has the secret belongs to the group, and the group can't form without it: all are told why.
    fn turn_away(&mut self, pending: &Pending, refusal: Refusal) {
        if let Some(verdict) = &self.verdict {
            self.told += 1;
            return tell(&pending.socket, verdict);
        }
        refuse(&pending.socket, &refusal.own);
        if !self.options.untold {
            self.told += 1;
            self.conclude(refusal.others);
        }
    }

    /// How many processes want to know why no group can form, as far as is known.
    fn expected(&self) -> usize {
        if self.world_size > 0 { self.world_size } else { MAX_RANKS }
    }

    /// Whether a rank with the secret may be let in; the refusal names it.
    fn check(&mut self, hello: &Hello, pid: u32) -> std::result::Result<usize, Refusal> {
        let (rank, world_size) = (hello.rank as usize, hello.world_size as usize);
        let who = format!("process {} as rank {rank} of {world_size}", hello.pid);
        let refused = |why: String| {
            let text = format!("{who}: {why}");
            Err(Refusal { own: text.clone(), others: Reply::Hopeless(text) })
        };
        if hello.pid_namespace == self.pid_namespace && hello.pid != pid {
            return refused(format!("the kernel says that it is process {pid}"));
        }
        if let Some(reason) = &hello.declines {
            let others = if rank < world_size && world_size <= MAX_RANKS {
                Reply::Gone(rank, format!("process {} gave up: {reason}", hello.pid))
            } else {
                Reply::Hopeless(format!("process {}: {reason}", hello.pid))
            };
            return Err(Refusal { own: format!("{who}: {reason}"), others });
        }
        if world_size == 0 || world_size > MAX_RANKS || rank >= world_size {
            return refused("the rank is out of range".into());
        }
        self.drop_lost_members();
        if self.joined() != 0 && self.world_size != world_size {
            return refused(format!("the world has {} ranks", self.world_size));
        }
        match &self.members[rank] {
            Some(member) => refused(format!("process {} has joined as this rank already", member.pid)),
            None if self.verdict.is_some() => refused("too late".into()),
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
        if self.world_size != hello.world_size as usize {
            self.world_size = hello.world_size as usize;
            (self.withdrawn, self.ended) = (0, 0);
        }
        self.withdrawn &= !(1 << rank);
        self.ended &= !(1 << rank);
        let pid = if pending.pid != 0 { pending.pid } else { hello.pid };
        self.members[rank] = Some(Member { socket: pending.socket, pid });
        self.tell_progress();
    }

    /// Each rank knows at any time who is missing, and can say so when its time is up.
    fn tell_progress(&self) {
        let seats = Seats { waiting: self.joined(), withdrawn: self.withdrawn, ended: self.ended };
        self.tell_all(&Reply::Waiting(seats));
    }

    fn tell_all(&self, reply: &Reply) {
        for member in self.members.iter().flatten() {
            // One that can't be told has hung up, which the next poll shows.
            tell(&member.socket, reply);
        }
    }

    /// A rank that ended or gave up may come again, or another in its place.
    fn drop_lost_members(&mut self) {
        let before = self.joined();
        for (rank, seat) in self.members.iter_mut().enumerate() {
            let Some(member) = seat.take_if(|member| hung_up(&member.socket)) else { continue };
            let list = if member.withdrew() { &mut self.withdrawn } else { &mut self.ended };
            *list |= 1 << rank;
        }
        if self.joined() != before {
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
    fn form(&mut self) {
        let all = match socket_pairs(self.world_size) {
            Ok(all) => all,
            Err(errno) => {
                let why = sys::refused(errno, self.world_size);
                return self.conclude(Reply::Failed(format!("sockets between the ranks: {why}")));
            }
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
                return self.tell_all(&Reply::Failed(format!("hand-out of the sockets: {errno}")));
            }
        }
    }

    /// The group can't form: all that wait are told at once, and all that come from now on.
    fn conclude(&mut self, verdict: Reply) {
        self.tell_all(&verdict);
        self.told += self.joined().count_ones() as usize;
        self.members.fill_with(|| None);
        self.verdict = Some(verdict);
        // Not for as long as those would have waited that have been told.
        self.ends = Instant::now() + self.options.join_limit.min(Duration::from_secs(86_400));
    }
}

impl Member {
    /// Whether one that hung up has said that its time was over.
    fn withdrew(&self) -> bool {
        let mut word = [0; WITHDRAWAL.len()];
        matches!(sys::receive(self.socket.as_fd(), &mut word), Ok(sys::Received::Data(..))) && word == WITHDRAWAL
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
        match Strange::of(&self.hello[..self.got], secret) {
            None if self.got < HELLO_BYTES => Heard::Nothing,
            None => Heard::Rank(Hello::decode(&self.hello)),
            Some(Strange::Magic) => Heard::Reject(Some("this is no hello of a rank".into())),
            Some(Strange::Version(version)) => Heard::Foreign(version),
            Some(Strange::Secret) => Heard::Reject(Some("wrong secret: the rank has another unique id".into())),
        }
    }
}

/// Says why, without waiting for anybody to read it.
fn refuse(socket: &OwnedFd, text: &str) {
    tell(socket, &Reply::Refused(text.to_owned()));
}

fn tell(socket: &OwnedFd, reply: &Reply) {
    let _ = sys::send(socket.as_fd(), &[IoSlice::new(&reply.encode())], &[]);
}

fn hung_up(socket: &OwnedFd) -> bool {
    sys::poll(&mut [PollFd::new(socket.as_fd(), PollFlags::empty())], Instant::now()) == Ok(true)
}
