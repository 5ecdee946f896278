//! Control sockets between all ranks, and the synchronous steps of initialisation over them.
//!
//! Every rank holds one message-keeping socket for each other rank. While a communicator is being set up, ranks run
//! the same sequence of steps ([`Mesh::all_gather`], [`Mesh::barrier`], [`Mesh::exchange_fds`]); every message carries
//! the number and the name of its step, so that ranks which went different ways are told so by name. Afterwards the
//! [`crate::watch::Watch`] takes the sockets over.
//!
//! The descriptors are close-on-exec. A plain `fork` still copies them: see [`crate::watch`] for what that means.

mod frame;
pub(crate) mod sys;

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use parking_lot::Mutex;

use crate::{Error, Result};
pub(crate) use frame::abandoned;
use frame::{Frame, HEADER_BYTES, Kind, PART_BYTES};
use sys::Bell;

/// Most bytes that one rank may send to another in one step.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Most descriptors that one rank may send to another in one step.
pub const MAX_MESSAGE_FDS: usize = sys::MAX_FDS;

/// The way to another rank.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) socket: OwnedFd,
    pub(crate) pid: u32,
}

/// What the ranks of a mesh are known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranks {
    /// Threads of this process.
    Threads,
    /// Maybe of several processes. Equal process numbers don't make them one: in another pid namespace the same number is
    /// another process.
    Processes,
}

/// What one rank sends to another in [`Mesh::exchange_fds`].
#[derive(Clone, Debug, Default)]
pub struct Parcel<'a> {
    /// Data.
    pub bytes: &'a [u8],
    /// Descriptors; the receiver gets duplicates.
    pub fds: Vec<BorrowedFd<'a>>,
}

/// What came from another rank.
#[derive(Debug, Default)]
pub struct Delivery {
    /// Data.
    pub bytes: Vec<u8>,
    /// Descriptors, now owned by this process, close-on-exec.
    pub fds: Vec<OwnedFd>,
}

/// One rank's end of the group.
#[derive(Debug)]
pub struct Mesh {
    rank: usize,
    peers: Vec<Option<Peer>>,
    ranks: Ranks,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Group steps taken.
    step: u32,
    /// Messages sent to and received from each peer by `send_fd` and `recv_fd`.
    posted: Vec<u32>,
    taken: Vec<u32>,
    began: Instant,
    deadline: Instant,
    /// The failure that ended this mesh; half-read messages would garble every later step.
    broken: Option<Error>,
}

/// The step that is running.
#[derive(Clone, Copy)]
struct Step<'a> {
    kind: Kind,
    what: &'a str,
    began: Instant,
    deadline: Instant,
}

struct Outgoing<'a> {
    number: u32,
    bytes: &'a [u8],
    fds: Vec<RawFd>,
    sent: Option<usize>,
}

struct Incoming {
    number: u32,
    delivery: Delivery,
    done: bool,
}

impl Mesh {
    /// `sockets` and `pids` by rank; no socket at `rank`.
    pub(crate) fn new(
        rank: usize,
        sockets: Vec<Option<OwnedFd>>,
        pids: &[u32],
        ranks: Ranks,
        deadline: Instant,
    ) -> Self {
        let count = sockets.len();
        let peers = sockets.into_iter().zip(pids).map(|(socket, &pid)| socket.map(|socket| Peer { socket, pid }));
        let state = State {
            step: 0,
            posted: vec![0; count],
            taken: vec![0; count],
            began: Instant::now(),
            deadline,
            broken: None,
        };
        Self { rank, peers: peers.collect(), ranks, state: Mutex::new(state) }
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.peers.len()
    }

    /// Process of another rank, as the rendezvous saw it; `None` for this rank.
    pub fn peer_pid(&self, rank: usize) -> Option<u32> {
        self.peers.get(rank)?.as_ref().map(|peer| peer.pid)
    }

    /// Bounds all later steps together: whatever is not done `limit` from now is a [`Error::Timeout`].
    pub fn set_deadline(&self, limit: Duration) {
        let mut state = self.state.lock();
        state.began = Instant::now();
        state.deadline = sys::after(limit);
    }

    /// Every rank's `bytes`, by rank. All ranks call it with the same `what`; lengths may differ.
    pub fn all_gather(&self, bytes: &[u8], what: &str) -> Result<Vec<Vec<u8>>> {
        let parcels = vec![Parcel { bytes, fds: Vec::new() }; self.world_size()];
        let mut all: Vec<_> = self.group(Kind::Gather, &parcels, what)?.into_iter().map(|d| d.bytes).collect();
        all[self.rank] = bytes.to_vec();
        Ok(all)
    }

    /// Returns once every rank has called it with the same `what`.
    pub fn barrier(&self, what: &str) -> Result<()> {
        let parcels = vec![Parcel::default(); self.world_size()];
        self.group(Kind::Barrier, &parcels, what).map(drop)
    }

    /// Gives each rank its own parcel (indexed by rank; the own entry is ignored) and returns what each gave to this
    /// one (the own entry is empty). All ranks call it with the same `what`.
    pub fn exchange_fds(&self, parcels: &[Parcel<'_>], what: &str) -> Result<Vec<Delivery>> {
        self.group(Kind::Exchange, parcels, what)
    }

    /// A second mesh of the same ranks, for steps that come when this one has been given to the watch. All ranks call it.
    pub fn twin(&self) -> Result<Mesh> {
        self.part(&(0..self.world_size()).collect::<Vec<_>>())
    }

    /// A mesh of some of the ranks, in the order of `members`, which hold this one; or none, of a rank that has no part in
    /// any. All ranks of this mesh call it, those that are to be together with the same `members`. A rank that fails tells
    /// all others, for which it is a failed step too: [`Error::System`] where it has no descriptor left.
    pub fn part(&self, members: &[usize]) -> Result<Mesh> {
        // Also what goes wrong outside of a step, which nobody else would hear of.
        self.make_part(members).inspect_err(|error| self.abandon(error))
    }

    fn make_part(&self, members: &[usize]) -> Result<Mesh> {
        let (rank, n, what) = (self.rank, self.world_size(), "a further mesh");
        let together = |peer: usize| peer != rank && members.contains(&peer);
        let mut sockets: Vec<Option<OwnedFd>> = (0..n).map(|_| None).collect();
        let mut given: Vec<Option<OwnedFd>> = (0..n).map(|_| None).collect();
        // The lower rank of each two makes their sockets.
        for peer in (rank + 1..n).filter(|peer| together(*peer)) {
            let (own, other) = sys::pair().map_err(|e| Error::system("a pair of sockets", sys::refused(e, n)))?;
            (sockets[peer], given[peer]) = (Some(own), Some(other));
        }
        let parcels: Vec<_> =
            given.iter().map(|fd| Parcel { bytes: &[], fds: fd.iter().map(|fd| fd.as_fd()).collect() }).collect();
        let deliveries = self.exchange_fds(&parcels, what)?;
        for (peer, delivery) in deliveries.into_iter().enumerate().take(rank).filter(|(peer, _)| together(*peer)) {
            let socket = delivery.fds.into_iter().next();
            sockets[peer] =
                Some(socket.ok_or_else(|| Error::Internal(format!("rank {peer} sent no socket for {what}")))?);
        }
        let own = members.iter().position(|member| *member == rank).unwrap_or(0);
        let pids: Vec<u32> = members.iter().map(|peer| self.peer_pid(*peer).unwrap_or(0)).collect();
        let sockets = members.iter().map(|peer| sockets[*peer].take()).collect();
        Ok(Mesh::new(own, sockets, &pids, self.ranks, sys::after(Duration::ZERO)))
    }

    /// Sends bytes and a descriptor to one rank, which must call [`Mesh::recv_fd`] with the same `what`.
    pub fn send_fd(&self, peer: usize, bytes: &[u8], fd: BorrowedFd<'_>, what: &str) -> Result<()> {
        self.check_peer(peer, what)?;
        let mut outgoing: Vec<_> = self.peers.iter().map(|_| None).collect();
        self.with_state(|state| {
            state.posted[peer] += 1;
            let number = state.posted[peer];
            outgoing[peer] = Some(Outgoing::new(number, &Parcel { bytes, fds: vec![fd] }, what)?);
            let mut incoming: Vec<_> = self.peers.iter().map(|_| None).collect();
            self.run(state.step_of(Kind::Post, what), &mut outgoing, &mut incoming)
        })
    }

    /// Receives what `peer` sends with [`Mesh::send_fd`].
    pub fn recv_fd(&self, peer: usize, what: &str) -> Result<(Vec<u8>, OwnedFd)> {
        self.check_peer(peer, what)?;
        let mut incoming: Vec<_> = self.peers.iter().map(|_| None).collect();
        self.with_state(|state| {
            state.taken[peer] += 1;
            incoming[peer] = Some(Incoming::new(state.taken[peer]));
            let mut outgoing: Vec<_> = self.peers.iter().map(|_| None).collect();
            self.run(state.step_of(Kind::Post, what), &mut outgoing, &mut incoming)
        })?;
        let delivery = incoming[peer].take().map(|message| message.delivery).unwrap_or_default();
        match delivery.fds.into_iter().next() {
            Some(fd) => Ok((delivery.bytes, fd)),
            None => Err(Error::Internal(format!("rank {peer} sent no descriptor in init step '{what}'"))),
        }
    }

    /// Tells all other ranks why this one gives up, so that their error names the cause and not just a closed socket.
    pub fn abandon(&self, error: &Error) {
        let mut state = self.state.lock();
        state.broken.get_or_insert_with(|| error.clone());
        self.tell_failure(error);
    }

    /// Waits until a peer closes its socket, whatever it sent before, or until the bell rings; whether it was a peer, which
    /// the next step names.
    pub(crate) fn loses_a_rank_before(&self, over: &Bell) -> bool {
        // A socket that is asked for nothing reports a hang-up alone.
        let sockets = self.peers.iter().flatten().map(|peer| PollFd::new(peer.socket.as_fd(), PollFlags::empty()));
        let mut fds: Vec<_> = sockets.chain([PollFd::new(over.as_fd(), PollFlags::POLLIN)]).collect();
        let ready = sys::poll(&mut fds, sys::after(Duration::MAX)).unwrap_or(false);
        ready && fds.split_last().is_some_and(|(_, sockets)| sockets.iter().any(|fd| fd.any() == Some(true)))
    }

    /// The sockets by rank and what is at their other ends, for the watch.
    pub(crate) fn into_peers(self) -> (Vec<Option<Peer>>, Ranks) {
        (self.peers, self.ranks)
    }

    fn check_peer(&self, peer: usize, what: &str) -> Result<()> {
        match self.peers.get(peer) {
            Some(Some(_)) => Ok(()),
            _ => Err(Error::InvalidArgument(format!(
                "rank {peer} is no peer of rank {} of {} (init step '{what}')",
                self.rank,
                self.world_size()
            ))),
        }
    }

    /// A step in which every rank sends to and receives from every other.
    fn group(&self, kind: Kind, parcels: &[Parcel<'_>], what: &str) -> Result<Vec<Delivery>> {
        if parcels.len() != self.world_size() {
            let (got, want) = (parcels.len(), self.world_size());
            return Err(Error::InvalidArgument(format!("init step '{what}': {got} parcels for {want} ranks")));
        }
        self.with_state(|state| {
            state.step += 1;
            let number = state.step;
            let mut outgoing = Vec::with_capacity(parcels.len());
            for (parcel, peer) in parcels.iter().zip(&self.peers) {
                outgoing.push(peer.as_ref().map(|_| Outgoing::new(number, parcel, what)).transpose()?);
            }
            let mut incoming: Vec<_> =
                self.peers.iter().map(|peer| peer.as_ref().map(|_| Incoming::new(number))).collect();
            self.run(state.step_of(kind, what), &mut outgoing, &mut incoming)?;
            Ok(incoming.into_iter().map(|message| message.map(|m| m.delivery).unwrap_or_default()).collect())
        })
    }

    /// Runs `body` unless an earlier step failed; a failure of its own is the last.
    fn with_state<T>(&self, body: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let result = body(&mut state);
        if let Err(error) = &result {
            state.broken = Some(error.clone());
            // Before this rank's own sockets close, or the others might take this one for the culprit.
            self.tell_failure(error);
        }
        result
    }

    fn tell_failure(&self, error: &Error) {
        let packet = frame::abandon(self.rank, error);
        for peer in self.peers.iter().flatten() {
            // A peer that can't be told will see the sockets close.
            let _ = sys::send(peer.socket.as_fd(), &[IoSlice::new(&packet)], &[]);
        }
    }

    /// Sends and receives until all of it is done. It never stops receiving because it can't send or the other way
    /// round: two ranks with full buffers would wait for each other.
    fn run(
        &self,
        step: Step<'_>,
        outgoing: &mut [Option<Outgoing<'_>>],
        incoming: &mut [Option<Incoming>],
    ) -> Result<()> {
        let mut buffer = vec![0; HEADER_BYTES + PART_BYTES];
        loop {
            let mut polled = Vec::new();
            for (rank, peer) in self.peers.iter().enumerate() {
                let Some(peer) = peer else { continue };
                let mut events = PollFlags::empty();
                if let Some(message) = outgoing[rank].as_mut().filter(|m| m.sent != Some(m.bytes.len()))
                    && !self.push(step, rank, peer, message)?
                {
                    events |= PollFlags::POLLOUT;
                }
                if let Some(message) = incoming[rank].as_mut().filter(|m| !m.done)
                    && !self.pull(step, rank, peer, message, &mut buffer)?
                {
                    events |= PollFlags::POLLIN;
                }
                if !events.is_empty() {
                    polled.push(PollFd::new(peer.socket.as_fd(), events));
                }
            }
            if polled.is_empty() {
                return Ok(());
            }
            let ready =
                sys::poll(&mut polled, step.deadline).map_err(|e| Error::system(format!("poll in {step}"), e))?;
            if !ready {
                return Err(self.timed_out(step, outgoing, incoming));
            }
        }
    }

    /// Sends as much as fits; true once the message is out.
    fn push(&self, step: Step<'_>, rank: usize, peer: &Peer, message: &mut Outgoing<'_>) -> Result<bool> {
        loop {
            let offset = message.sent.unwrap_or(0);
            let part = &message.bytes[offset..message.bytes.len().min(offset + PART_BYTES)];
            let header =
                Frame { kind: step.kind, number: message.number, what: step.what, total: message.bytes.len(), offset }
                    .encode();
            let fds = if message.sent.is_none() { &message.fds[..] } else { &[] };
            match sys::send(peer.socket.as_fd(), &[IoSlice::new(&header), IoSlice::new(part)], fds) {
                Ok(sys::Sent::Bytes(_)) => message.sent = Some(offset + part.len()),
                Ok(sys::Sent::Full) => return Ok(false),
                Ok(sys::Sent::Closed) => return Err(self.last_words(step, rank, peer)),
                Err(errno) => return Err(Error::system(format!("send to rank {rank} in {step}"), errno)),
            }
            if message.sent == Some(message.bytes.len()) {
                return Ok(true);
            }
        }
    }

    /// Receives what is there; true once the message is whole.
    fn pull(
        &self,
        step: Step<'_>,
        rank: usize,
        peer: &Peer,
        message: &mut Incoming,
        buffer: &mut [u8],
    ) -> Result<bool> {
        loop {
            let (length, fds) = match sys::receive(peer.socket.as_fd(), buffer) {
                Ok(sys::Received::Data(length, fds)) => (length, fds),
                Ok(sys::Received::Empty) => return Ok(false),
                Ok(sys::Received::Closed) => return Err(self.lost(step, rank, peer)),
                Err(errno) => {
                    let why = sys::refused(errno, self.world_size());
                    return Err(Error::system(format!("receive from rank {rank} in {step}"), why));
                }
            };
            if let Some(error) = frame::abandoned(&buffer[..length], rank, self.world_size()) {
                return Err(error);
            }
            let Some(frame) = Frame::decode(&buffer[..length]) else {
                return Err(self.skew(step, rank, "past initialisation"));
            };
            if frame.kind != step.kind || frame.number != message.number || frame.what != step.what_sent() {
                let theirs = format!("in {} '{}' (#{})", frame.kind.name(), frame.what, frame.number);
                return Err(self.skew(step.numbered(message.number), rank, &theirs));
            }
            let part = &buffer[HEADER_BYTES..length];
            if frame.offset != message.delivery.bytes.len() || frame.offset + part.len() > frame.total {
                return Err(Error::Internal(format!("rank {rank} sent a malformed message in {step}")));
            }
            message.delivery.bytes.extend_from_slice(part);
            message.delivery.fds.extend(fds);
            if message.delivery.bytes.len() == frame.total {
                message.done = true;
                return Ok(true);
            }
        }
    }

    /// Why a socket that can't be sent to was closed: the peer may have said so before.
    fn last_words(&self, step: Step<'_>, rank: usize, peer: &Peer) -> Error {
        let mut buffer = vec![0; HEADER_BYTES + PART_BYTES];
        while let Ok(sys::Received::Data(length, _)) = sys::receive(peer.socket.as_fd(), &mut buffer) {
            if let Some(error) = frame::abandoned(&buffer[..length], rank, self.world_size()) {
                return error;
            }
        }
        self.lost(step, rank, peer)
    }

    fn lost(&self, step: Step<'_>, rank: usize, peer: &Peer) -> Error {
        Error::PeerLost {
            rank,
            detail: format!("process {} closed its control socket", peer.pid),
            during: format!(" during {step}"),
        }
    }

    fn skew(&self, step: impl std::fmt::Display, rank: usize, theirs: &str) -> Error {
        Error::InvalidUsage(format!("ranks took different ways: rank {rank} is {theirs}, rank {} in {step}", self.rank))
    }

    fn timed_out(&self, step: Step<'_>, outgoing: &[Option<Outgoing<'_>>], incoming: &[Option<Incoming>]) -> Error {
        let mut waits = Vec::new();
        for (rank, peer) in self.peers.iter().enumerate() {
            let Some(peer) = peer else { continue };
            if incoming[rank].as_ref().is_some_and(|m| !m.done) {
                waits.push(format!("no word from rank {rank} (process {})", peer.pid));
            } else if outgoing[rank].as_ref().is_some_and(|m| m.sent != Some(m.bytes.len())) {
                waits.push(format!("rank {rank} (process {}) does not read", peer.pid));
            }
        }
        let after = step.deadline.saturating_duration_since(step.began);
        Error::Timeout { after, what: format!("rank {} in {step}: {}", self.rank, waits.join(", ")) }
    }
}

impl State {
    fn step_of<'a>(&self, kind: Kind, what: &'a str) -> Step<'a> {
        Step { kind, what, began: self.began, deadline: self.deadline }
    }
}

impl<'a> Step<'a> {
    /// The name as it fits a frame.
    fn what_sent(&self) -> &'a str {
        sys::clipped(self.what, frame::WHAT_BYTES)
    }

    fn numbered(&self, number: u32) -> String {
        format!("{self} (#{number})")
    }
}

impl std::fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} '{}'", self.kind.name(), self.what)
    }
}

impl<'a> Outgoing<'a> {
    fn new(number: u32, parcel: &Parcel<'a>, what: &str) -> Result<Self> {
        let (bytes, count) = (parcel.bytes.len(), parcel.fds.len());
        if bytes > MAX_MESSAGE_BYTES || count > MAX_MESSAGE_FDS {
            return Err(Error::InvalidArgument(format!(
                "init step '{what}': {bytes} bytes and {count} descriptors for one rank; the limits are \
                 {MAX_MESSAGE_BYTES} and {MAX_MESSAGE_FDS}"
            )));
        }
        Ok(Self { number, bytes: parcel.bytes, fds: parcel.fds.iter().map(AsRawFd::as_raw_fd).collect(), sent: None })
    }
}

impl Incoming {
    fn new(number: u32) -> Self {
        Self { number, delivery: Delivery::default(), done: false }
    }
}
