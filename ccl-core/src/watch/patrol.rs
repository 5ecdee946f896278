//! The watch's thread: hears the peers, looks at the device, decides.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use super::call::{is_private, other_side};
use super::packet::{PACKET_BYTES, Packet};
use super::verdict::{Standing, blame, is_undecided, odd, private};
use super::{DeviceFault, Shared};
use crate::Error;
use crate::mesh::{self, sys};
use crate::protocol::{Fault, MAX_RANKS, Shape};

/// Between two looks at the device while a collective is in flight or was not long ago.
const BUSY_TICK: Duration = Duration::from_millis(20);
/// Between two looks otherwise. Hang-ups and questions wake the thread at once either way.
const IDLE_TICK: Duration = Duration::from_millis(200);
/// How long ago is "not long".
const RECENT: Duration = Duration::from_secs(1);
/// A rank that runs answers a question within this, also on a loaded machine.
const ANSWER_TIME: Duration = Duration::from_millis(300);
/// The least time to wait for answers.
const SHORTEST_ANSWER_TIME: Duration = Duration::from_millis(100);
/// How long ranks that have not made the call yet about which others disagree are waited for, as long as they decide who
/// is the odd one.
const LATE_TIME: Duration = Duration::from_secs(1);
/// A tick that took this much longer than asked for means that this process did not run (stopped, suspended).
const ABSENCE: Duration = Duration::from_millis(500);
/// How long hearsay of a death waits for the hang-up to be seen here as well.
const LINGER: Duration = Duration::from_millis(10);
/// Most descriptors that are watched: the owner's, and of each peer its socket and its process.
const MOST_FDS: usize = 1 + 2 * MAX_RANKS;
/// Packets of one peer in a row, so that one peer can't keep the thread from the others.
const BURST: usize = 64;

/// The thread's state.
pub(super) struct Patrol {
    shared: Arc<Shared>,
    seats: Vec<Seat>,
    entered: u64,
    private: u64,
    busy: bool,
    /// When `entered` last changed, later by any absence of this process.
    since: Instant,
    recent: Instant,
    looked: Instant,
    doubt: Option<Doubt>,
    nonce: u64,
}

/// What is known of another rank.
struct Seat {
    rank: usize,
    pid: u32,
    process: Option<OwnedFd>,
    left: bool,
    closed: bool,
    /// It told of a failure; its end is then a consequence.
    told: bool,
    answer: Option<Answer>,
    /// The shape that it told in the answer before, to the same question.
    before: Option<(u64, Shape)>,
}

/// How far a rank says it is.
struct Answer {
    entered: u64,
    done: u64,
    shape: (u64, Shape),
    elsewhere: String,
}

/// A collective that seems stuck, while the peers are being asked.
struct Doubt {
    number: u64,
    fault: Option<DeviceFault>,
    decide: Instant,
    /// Until when a disagreement waits for ranks that have not made the call and decide who is the odd one.
    patience: Instant,
}

impl Patrol {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let now = Instant::now();
        let seats = shared.peers.iter().enumerate().filter_map(|(rank, peer)| {
            let pid = peer.as_ref()?.pid;
            Some(Seat { rank, pid, process: None, left: false, closed: false, told: false, answer: None, before: None })
        });
        Self {
            seats: seats.collect(),
            shared,
            entered: 0,
            private: 0,
            busy: false,
            since: now,
            recent: now,
            looked: now,
            doubt: None,
            nonce: 0,
        }
    }

    pub(super) fn run(mut self) {
        while !self.shared.closing.load(Ordering::Acquire) {
            let tick = self.tick();
            let ready = match self.poll(tick) {
                Ok(ready) => ready,
                Err(errno) => {
                    self.shared.trip(Error::system(format!("{}: poll of the watch", self.shared.label), errno));
                    return;
                }
            };
            self.hear(&ready);
            if !self.shared.is_tripped() {
                self.look(tick);
            }
        }
    }

    fn tick(&self) -> Duration {
        if self.shared.is_tripped() || !(self.busy || self.recent.elapsed() < RECENT) && self.doubt.is_none() {
            return IDLE_TICK;
        }
        let next = match &self.doubt {
            Some(doubt) => doubt.decide.saturating_duration_since(Instant::now()),
            None => self.ask_after().saturating_sub(self.since.elapsed()),
        };
        next.clamp(Duration::from_millis(1), BUSY_TICK)
    }

    /// Waits for a packet, a hang-up, the end of a process or the tick; returns the seats with news.
    fn poll(&self, tick: Duration) -> nix::Result<Vec<usize>> {
        // On the stack, since a tick in the steady state allocates nothing.
        let mut fds: [_; MOST_FDS] = std::array::from_fn(|_| PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN));
        let mut whose = [usize::MAX; MOST_FDS];
        let mut count = 1;
        let mut add = |fd, index| {
            fds[count] = PollFd::new(fd, PollFlags::POLLIN);
            whose[count] = index;
            count += 1;
        };
        for (index, seat) in self.seats.iter().enumerate().filter(|(_, seat)| !seat.closed) {
            if let Some(peer) = &self.shared.peers[seat.rank] {
                add(peer.socket.as_fd(), index);
            }
            if let Some(process) = seat.process.as_ref().filter(|_| !seat.left) {
                add(process.as_fd(), index);
            }
        }
        let fds = &mut fds[..count];
        sys::poll(fds, Instant::now() + tick)?;
        let mut ready: Vec<_> =
            fds.iter().zip(whose).filter(|(fd, _)| fd.any() == Some(true)).map(|(_, i)| i).collect();
        ready.retain(|index| *index != usize::MAX);
        ready.dedup();
        Ok(ready)
    }

    /// Reads what the seats sent, then decides about their failures together: a rank that told of a failure and ended
    /// is not the culprit, whatever the order in which its news and the culprit's came.
    fn hear(&mut self, ready: &[usize]) {
        let mut told = Vec::new();
        for &index in ready {
            self.drain(index, &mut told);
        }
        // Own observation beats hearsay: the socket of a rank that is said to be gone is looked at as well.
        let accused: Vec<_> = told.iter().filter_map(|(_, error)| culprit(error)).collect();
        for index in 0..self.seats.len() {
            if accused.contains(&self.seats[index].rank) && !self.seats[index].closed {
                self.linger(self.seats[index].rank);
                self.drain(index, &mut told);
            }
        }
        if self.shared.is_tripped() {
            return;
        }
        if let Some(seat) = self.seats.iter().find(|seat| seat.closed && !seat.left && !seat.told) {
            let detail = format!("process {} ended without a goodbye", seat.pid);
            self.shared.trip(Error::PeerLost { rank: seat.rank, detail, during: self.during() });
        } else if let Some((from, error)) = told.into_iter().next() {
            self.shared.trip(attributed(error, from));
        }
    }

    /// A process that ends closes its sockets one after the other: this rank's may be next.
    fn linger(&self, rank: usize) {
        if let Some(peer) = &self.shared.peers[rank] {
            // Whatever it returns, the socket is read next.
            let _ = sys::poll(&mut [PollFd::new(peer.socket.as_fd(), PollFlags::POLLIN)], Instant::now() + LINGER);
        }
    }

    /// Reads one seat's packets and notices its end.
    fn drain(&mut self, index: usize, told: &mut Vec<(usize, Error)>) {
        let rank = self.seats[index].rank;
        let shared = Arc::clone(&self.shared);
        let Some(peer) = &shared.peers[rank] else { return };
        // Asked before reading: a process that ends between a last look at its socket and the question may have said
        // goodbye in between.
        let ended = self.seats[index].has_ended();
        let mut buffer = [0; PACKET_BYTES];
        for _ in 0..BURST {
            match sys::receive(peer.socket.as_fd(), &mut buffer) {
                Ok(sys::Received::Data(length, fds)) => self.take(index, &buffer[..length], fds, told),
                Ok(sys::Received::Empty) => {
                    // Nothing more will come from a process that has ended, even if a child of it holds the socket.
                    self.seats[index].closed |= ended;
                    return;
                }
                Ok(sys::Received::Closed) => {
                    self.seats[index].closed = true;
                    return;
                }
                // No descriptor left for the peer's process: its socket must do.
                Err(Errno::EMFILE) => {}
                // A packet larger than any of ours is read away and judged like any other that makes no sense.
                Err(Errno::EMSGSIZE) => self.take(index, &[], Vec::new(), told),
                Err(_) => {
                    self.seats[index].closed = true;
                    return;
                }
            }
        }
    }

    fn take(&mut self, index: usize, bytes: &[u8], fds: Vec<OwnedFd>, told: &mut Vec<(usize, Error)>) {
        let seat = &mut self.seats[index];
        match Packet::decode(bytes) {
            Some(Packet::Attach) => seat.process = fds.into_iter().next(),
            Some(Packet::Ask { nonce }) => {
                let progress = self.shared.alarm.progress();
                let elsewhere = self.shared.elsewhere().unwrap_or_default();
                let shape = progress.shape.unwrap_or_default();
                let (entered, done) = (progress.entered, progress.done);
                let answer = Packet::Answer { nonce, entered, done, shape, elsewhere };
                self.shared.send(seat.rank, &answer);
            }
            Some(Packet::Answer { nonce, entered, done, shape, elsewhere }) if nonce == self.nonce => {
                let before = seat.answer.replace(Answer { entered, done, shape, elsewhere });
                seat.before = before.map(|answer| answer.shape);
            }
            Some(Packet::Answer { .. }) => {}
            Some(Packet::Goodbye) => seat.left = true,
            Some(Packet::Abort(error)) => {
                seat.told = true;
                told.push((seat.rank, error));
            }
            // It gave up in its last init step while this rank got through.
            None => match mesh::abandoned(bytes, seat.rank, self.shared.peers.len()) {
                Some(error) => {
                    seat.told = true;
                    told.push((seat.rank, error));
                }
                None => {
                    let text = format!("{}: rank {} sent a malformed control packet", self.shared.label, seat.rank);
                    self.shared.trip(Error::Internal(text));
                }
            },
        }
    }

    /// Looks at the device.
    fn look(&mut self, tick: Duration) {
        let now = Instant::now();
        let absence = (now - self.looked).saturating_sub(tick);
        if absence > ABSENCE {
            self.since += absence;
        }
        self.looked = now;
        let progress = self.shared.alarm.progress();
        self.busy = progress.entered > progress.done;
        if (progress.entered, progress.private) != (self.entered, self.private) {
            (self.entered, self.private) = (progress.entered, progress.private);
            self.since = now;
        }
        if self.busy {
            self.recent = now;
        }
        if let Some(fault) = progress.fault {
            self.judge(fault, now);
        } else if !self.busy
            || self.doubt.as_ref().is_some_and(|doubt| doubt.number != self.entered || self.since == now)
        {
            self.doubt = None;
        } else if self.doubt.is_none() && now - self.since >= self.ask_after() {
            let decide = self.since.checked_add(self.shared.timeout).unwrap_or(now).max(now + SHORTEST_ANSWER_TIME);
            self.ask(Doubt { number: self.entered, fault: None, decide, patience: decide });
        }
        if let Some(mut doubt) = self.doubt.take_if(|doubt| now >= doubt.decide) {
            if now < doubt.patience && self.is_open(doubt.number) {
                self.shared.send_all(&Packet::Ask { nonce: self.nonce });
                doubt.decide = now + BUSY_TICK;
                self.doubt = Some(doubt);
            } else {
                self.conclude(&doubt, now);
            }
        }
    }

    /// Whether ranks that may still make the call about which others disagree decide who is the odd one. A rank counts as
    /// soon as it says the same twice: in the middle of the device's telling its host, parts may be of the call before.
    fn is_open(&self, number: u64) -> bool {
        let mut shapes = self.made(number);
        let mut late = 0;
        for seat in &self.seats {
            let sure = seat.made(number).is_some() && seat.before == seat.answer.as_ref().map(|answer| answer.shape);
            if !sure {
                late += usize::from(!seat.left);
                shapes.retain(|(rank, _)| *rank != seat.rank);
            }
        }
        is_undecided(&shapes, late)
    }

    /// Peers are asked a little before the time is up, so that the verdict is there when it is.
    fn ask_after(&self) -> Duration {
        self.shared.timeout.saturating_sub(ANSWER_TIME.min(self.shared.timeout / 2))
    }

    fn ask(&mut self, doubt: Doubt) {
        self.nonce += 1;
        for seat in &mut self.seats {
            (seat.answer, seat.before) = (None, None);
        }
        self.shared.send_all(&Packet::Ask { nonce: self.nonce });
        self.doubt = Some(doubt);
    }

    fn judge(&mut self, fault: DeviceFault, now: Instant) {
        let name = self.shared.alarm.progress().describe(fault.call);
        let label = &self.shared.label;
        match fault.fault {
            Fault::Overlap => self.shared.trip(Error::InvalidUsage(format!(
                "{label}: {name} started while another collective of the same communicator was running{}",
                place(&fault)
            ))),
            Fault::Aborted => {
                self.shared.trip(Error::Aborted(format!("{label}: the abort word was set during {name}")))
            }
            Fault::SpinLimit | Fault::Mismatch if self.doubt.as_ref().is_none_or(|doubt| doubt.fault.is_none()) => {
                let decide = now + SHORTEST_ANSWER_TIME;
                let late = if fault.fault == Fault::Mismatch {
                    LATE_TIME.min(self.shared.timeout / 2)
                } else {
                    Duration::ZERO
                };
                self.ask(Doubt { number: fault.call, fault: Some(fault), decide, patience: now + late });
            }
            Fault::SpinLimit | Fault::Mismatch => {}
        }
    }

    /// The peers have had their time to answer.
    fn conclude(&self, doubt: &Doubt, now: Instant) {
        if doubt.fault.is_some_and(|fault| fault.fault == Fault::Mismatch) {
            self.shared.trip(Error::InvalidUsage(format!(
                "{}: {}",
                self.shared.label,
                self.disagreement(doubt.number)
            )));
            return;
        }
        let progress = self.shared.alarm.progress();
        let name = progress.describe(doubt.number);
        let mut standings: Vec<_> = self.seats.iter().map(|seat| (seat.rank, seat.standing())).collect();
        let verdict = match progress.shape {
            Some((call, shape)) if call == doubt.number && is_private(&shape) => {
                standings.retain(|(rank, _)| other_side(&shape).is_none_or(|other| other == *rank));
                private(&standings)
            }
            _ => blame(doubt.number, &name, &standings),
        };
        let label = &self.shared.label;
        let (after, what) = match &doubt.fault {
            None => (self.shared.timeout, format!("{label}: {name} did not finish: {verdict}")),
            Some(fault) => {
                let text = format!("{label}: the device gave {name} up by its own limit{}: {verdict}", place(fault));
                (Duration::from_millis((now - self.since).as_millis() as u64), text)
            }
        };
        self.shared.trip(Error::Timeout { after, what });
    }

    /// Who called what.
    fn disagreement(&self, number: u64) -> String {
        let standings: Vec<_> = self.seats.iter().map(|seat| (seat.rank, seat.standing())).collect();
        odd(number, &self.made(number), &standings)
    }

    /// What every rank made as call `number`, where it is known.
    fn made(&self, number: u64) -> Vec<(usize, Option<Shape>)> {
        let mut shapes: Vec<_> = self.seats.iter().map(|seat| (seat.rank, seat.made(number))).collect();
        if let Some(own) = self.shared.peers.iter().position(Option::is_none) {
            shapes.push((own, self.shared.alarm.progress().shape.and_then(|shape| made(number, shape))));
        }
        shapes.sort_by_key(|(rank, _)| *rank);
        shapes
    }

    fn during(&self) -> String {
        let progress = self.shared.alarm.progress();
        if progress.entered > progress.done {
            format!(" during {}", progress.describe(progress.entered))
        } else {
            String::new()
        }
    }
}

impl Seat {
    fn has_ended(&self) -> bool {
        let Some(process) = &self.process else { return false };
        sys::poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], Instant::now()) == Ok(true)
    }

    /// What it made as call `number`, as far as it said.
    fn made(&self, number: u64) -> Option<Shape> {
        made(number, self.answer.as_ref()?.shape)
    }

    fn standing(&self) -> Standing {
        match &self.answer {
            _ if self.left => Standing::Left,
            Some(Answer { entered, done, shape, elsewhere }) => {
                Standing::At { entered: *entered, done: *done, shape: *shape, elsewhere: elsewhere.clone() }
            }
            None => Standing::Silent { pid: self.pid },
        }
    }
}

/// What was made as call `number`, if it is that which is known. A call between some ranks only goes by the number of the
/// next collective, which it isn't.
fn made(number: u64, (call, shape): (u64, Shape)) -> Option<Shape> {
    (call == number && !is_private(&shape)).then_some(shape)
}

fn place(fault: &DeviceFault) -> String {
    let DeviceFault { wire, step, round, expected, seen, .. } = fault;
    format!(" (wire {wire}, step {step}, round {round}: waited for tag {expected}, saw {seen})")
}

/// The rank that an error says is gone.
fn culprit(error: &Error) -> Option<usize> {
    match error {
        Error::PeerLost { rank, .. } => Some(*rank),
        _ => None,
    }
}

/// Of a text that is told on, what comes before whose it is. The rest of what a packet takes is enough for each rank once.
const TOLD_BYTES: usize = 600;

/// What this rank says of a failure that rank `from` told, and tells on: of an abort nothing else says whose it is.
fn attributed(error: Error, from: usize) -> Error {
    // What was told first, then by whom, which has to come through: a packet has room for this of the one, and for all ranks.
    let by = |text: String| {
        let (what, whom) = text.split_at(text.find(", as rank ").unwrap_or(text.len()));
        format!("{}{whom}, as rank {from} tells", sys::clipped(what, TOLD_BYTES))
    };
    match error {
        Error::PeerLost { rank, detail, during } => Error::PeerLost { rank, detail: by(detail), during },
        Error::Timeout { after, what } => Error::Timeout { after, what: by(what) },
        Error::Device { call, detail } => Error::Device { call, detail: by(detail) },
        Error::System { what, detail } => Error::System { what, detail: by(detail) },
        Error::InvalidUsage(text) => Error::InvalidUsage(by(text)),
        Error::Aborted(text) => Error::Aborted(by(text)),
        other => other,
    }
}
