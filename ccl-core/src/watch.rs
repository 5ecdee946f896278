//! The watch: one thread per communicator that notices dead peers, stuck collectives and device faults.
//!
//! It takes the control sockets over once initialisation is done. A socket that hangs up without a goodbye, a
//! collective that was entered and does not finish in time, and a fault that the device reports all end the same way:
//! the first failure is kept for every later caller, the abort word is set, and the other ranks are told, so that all
//! name the same culprit.
//!
//! # Fork
//! A communicator does not survive `fork`: in the child every method answers "used after fork", nothing is sent and no
//! abort word is touched. The child does hold copies of the control sockets until it execs or ends (close-on-exec
//! can't help a plain fork). So that such a child can't hide its parent's death, ranks also hand each other a process
//! descriptor and watch that.

mod call;
pub mod fork;
mod packet;
mod patrol;
mod verdict;

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::EventFd;
use parking_lot::Mutex;

use crate::mesh::{Mesh, Peer, Ranks, sys};
use crate::protocol::{Fault, Shape};
use crate::{Error, Result};
use call::{arguments, is_private, name};
use packet::Packet;
use patrol::Patrol;

/// By then the watch has said who is to blame for a fault that the device reports: it has looked, peers have answered, and
/// ranks that are late have had their time.
pub const VERDICT_TIME: Duration = Duration::from_secs(5);

/// What the watch needs of the device side.
pub trait Alarm: Send + Sync {
    /// Sets the abort word and wakes parked waiters. May be called more than once, from any thread.
    fn abort(&self);
    /// What the device last said. Must not block.
    fn progress(&self) -> Progress;
    /// The fault among it, if any. Asked after every call, so it is to be cheap.
    fn fault(&self) -> Option<DeviceFault> {
        self.progress().fault
    }
    /// Identifies the device, on which this process's collectives run one at a time. Unknown, a stuck collective of
    /// another communicator can't be named as the reason why one of this communicator has not begun.
    fn device(&self) -> Option<[u8; 16]> {
        None
    }
}

/// Collectives entered and finished, as the device counts them, and its first fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Collectives entered.
    pub entered: u64,
    /// Collectives finished.
    pub done: u64,
    /// Calls between some ranks only that were entered. One that runs counts as an entered collective until it is over.
    pub private: u64,
    /// The first failure, sticky.
    pub fault: Option<DeviceFault>,
    /// The latest collective whose arguments are known, by its number.
    pub shape: Option<(u64, Shape)>,
}

impl Progress {
    /// What collective `number` is: "all_reduce #7 (1024 bfloat16 sum)", or "collective #7" where that isn't known. A call
    /// between some ranks only has no number.
    pub(crate) fn describe(&self, number: u64) -> String {
        match self.shape {
            Some((of, shape)) if of == number => {
                let number = if is_private(&shape) { String::new() } else { format!(" #{number}") };
                format!("{}{number} ({})", name(&shape), arguments(&shape))
            }
            _ => format!("collective #{number}"),
        }
    }
}

/// Why and where a collective gave up ([`crate::protocol::HostBlock`], decoded).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFault {
    /// Why.
    pub fault: Fault,
    /// Wire that failed.
    pub wire: u32,
    /// Step that failed.
    pub step: u32,
    /// Round that failed.
    pub round: u32,
    /// Tag that was waited for.
    pub expected: u32,
    /// Flag that was there instead.
    pub seen: u32,
    /// Number (from 1) of the collective.
    pub call: u64,
}

/// See [`WatchOptions::on_fault`].
pub type OnFault = Box<dyn Fn(&Error) + Send>;

/// How to watch.
pub struct WatchOptions {
    /// How long a collective may stay entered and unfinished.
    pub timeout: Duration,
    /// Opens messages: "comm 3f21 rank 1/4".
    pub label: String,
    /// Called once, with the first failure, after the abort word is set and the peers are told. Logging or ending the
    /// process is the caller's business.
    pub on_fault: OnFault,
}

/// The running watch of one communicator.
pub struct Watch {
    status: Status,
    thread: Option<JoinHandle<()>>,
    goodbye: bool,
    tells: bool,
}

/// How a communicator is: what its [`Watch`] knows, also for those that outlive it.
#[derive(Clone)]
pub struct Status {
    shared: Arc<Shared>,
    generation: u32,
}

/// The watches of this process whose device is known.
static WATCHED: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// What the watch's thread and its owner share.
struct Shared {
    peers: Vec<Option<Peer>>,
    alarm: Arc<dyn Alarm>,
    timeout: Duration,
    label: String,
    on_fault: Mutex<Option<OnFault>>,
    tripped: AtomicBool,
    /// The peers have been told of the first failure.
    told: AtomicBool,
    fault: OnceLock<Error>,
    closing: AtomicBool,
    wake: EventFd,
}

/// What a watch takes that may not be there to be had: asked for while there still is a mesh by which to tell the others.
struct Means {
    generation: u32,
    wake: EventFd,
    /// Waits for what it is to do; ends if nothing comes.
    thread: JoinHandle<()>,
    begin: Sender<Patrol>,
}

impl Means {
    /// For a rank of `world_size`.
    fn new(world_size: usize) -> Result<Self> {
        let generation = fork::generation()?;
        let wake = sys::eventfd("eventfd of the watch", world_size)?;
        let (begin, begun) = channel::<Patrol>();
        let thread = sys::spawn("cclx-watch", move || {
            if let Ok(patrol) = begun.recv() {
                patrol.run();
            }
        })?;
        Ok(Self { generation, wake, thread, begin })
    }
}

impl Watch {
    /// Starts watching; `mesh` must be past its last step on every rank that is past it here. [`Error::System`] where there is
    /// no descriptor or thread left for it; the other ranks' watches are told then, and fail of the same.
    pub fn start(mesh: Mesh, alarm: Arc<dyn Alarm>, options: WatchOptions) -> Result<Self> {
        let means = Means::new(mesh.world_size()).inspect_err(|error| mesh.abandon(error))?;
        Ok(Self::start_by(means, mesh, alarm, options))
    }

    fn start_by(means: Means, mesh: Mesh, alarm: Arc<dyn Alarm>, options: WatchOptions) -> Self {
        let Means { generation, wake, thread, begin } = means;
        let (peers, ranks) = mesh.into_peers();
        let alarm_device = alarm.device();
        let shared = Arc::new(Shared {
            peers,
            alarm,
            timeout: options.timeout,
            label: options.label,
            on_fault: Mutex::new(Some(options.on_fault)),
            tripped: AtomicBool::new(false),
            told: AtomicBool::new(false),
            fault: OnceLock::new(),
            closing: AtomicBool::new(false),
            wake,
        });
        if ranks == Ranks::Processes {
            shared.attach();
        }
        if alarm_device.is_some() {
            let mut all = WATCHED.lock();
            all.retain(|other| other.strong_count() > 0);
            all.push(Arc::downgrade(&shared));
        }
        // Only fails where the thread is gone, which waits for this.
        let _ = begin.send(Patrol::new(Arc::clone(&shared)));
        Self { status: Status { shared, generation }, thread: Some(thread), goodbye: true, tells: true }
    }

    /// What it knows, to be kept.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// See [`Status::fault`].
    pub fn fault(&self) -> Option<Error> {
        self.status.fault()
    }

    /// See [`Status::fail`].
    pub fn fail(&self, error: Error) {
        self.status.fail(error);
    }

    /// Says goodbye and stops. Does not wait for the peers: what they have not read yet stays in their sockets. A fault that
    /// the device has just reported is told first.
    pub fn close(self) {
        drop(self);
    }

    /// Says goodbye and goes on: the process is about to end. A fault that the device has just reported is told first.
    pub fn leave(&self) {
        if !self.status.forked() {
            self.status.shared.await_verdict();
            self.status.shared.goodbye();
        }
    }

    /// NEGATIVE CONTROL, for tests only: stops without a goodbye.
    #[doc(hidden)]
    pub fn close_without_goodbye(mut self) {
        self.goodbye = false;
    }

    /// NEGATIVE CONTROL, for tests only: says goodbye whatever the device has reported.
    #[doc(hidden)]
    pub fn close_without_telling(mut self) {
        self.tells = false;
    }
}

impl Status {
    /// Whether there is no failure: two relaxed loads.
    #[inline]
    pub fn is_sound(&self) -> bool {
        !self.shared.tripped.load(Ordering::Relaxed) && !self.forked()
    }

    /// The first failure, which stays.
    pub fn fault(&self) -> Option<Error> {
        if self.is_sound() {
            return None;
        }
        if self.forked() {
            return Some(self.used_after_fork());
        }
        // The flag was stored after the failure; this makes the failure visible as well.
        fence(Ordering::Acquire);
        self.shared.fault.get().cloned()
    }

    /// A failure that this rank met itself: kept, unless there already is one, abort word set, peers told.
    pub fn fail(&self, error: Error) {
        if !self.forked() {
            self.shared.trip(error);
        }
    }

    /// Whether the watch has gone, with its communicator.
    pub fn is_closed(&self) -> bool {
        self.shared.closing.load(Ordering::Acquire)
    }

    #[inline]
    fn forked(&self) -> bool {
        fork::current() != self.generation
    }

    fn used_after_fork(&self) -> Error {
        Error::InvalidUsage(format!("{}: used after fork; a communicator belongs to one process", self.shared.label))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.status.forked() {
            // The thread does not exist in the child, so that it can't be joined; a goodbye would be the parent's.
            std::mem::forget(self.thread.take());
            return;
        }
        if self.tells {
            self.status.shared.await_verdict();
        }
        self.status.shared.closing.store(true, Ordering::Release);
        if self.goodbye {
            self.status.shared.goodbye();
        }
        // Only fails when the counter is full, and then the thread is awake already.
        let _ = self.status.shared.wake.write(1);
        if let Some(thread) = self.thread.take() {
            // A failure's callback may drop the watch on the watch's own thread.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("label", &self.status.shared.label)
            .field("fault", &self.status.shared.fault.get())
            .finish()
    }
}

impl Shared {
    /// The collective of another communicator that the same device is in.
    fn elsewhere(&self) -> Option<String> {
        let device = self.alarm.device()?;
        let others: Vec<_> = WATCHED.lock().iter().filter_map(Weak::upgrade).collect();
        others.into_iter().filter(|other| !std::ptr::eq(other.as_ref(), self)).find_map(|other| {
            let progress = other.alarm.progress();
            let busy = progress.entered > progress.done && other.alarm.device() == Some(device);
            busy.then(|| format!("{} of {}", progress.describe(progress.entered), other.label))
        })
    }

    /// The first failure, met here or heard of.
    fn trip(&self, error: Error) {
        if self.fault.set(error.clone()).is_err() {
            return;
        }
        self.tripped.store(true, Ordering::Release);
        self.alarm.abort();
        // Also what came from another rank: that rank may have died before it could tell everybody, and whoever sees
        // this one end must know that it was not the first.
        self.send_all(&Packet::Abort(error.clone()));
        self.told.store(true, Ordering::Release);
        let callback = self.on_fault.lock().take();
        if let Some(callback) = callback {
            callback(&error);
        }
    }

    /// Gives the watch the time to tell of a fault that the device has reported: the others would only see this rank go.
    fn await_verdict(&self) {
        let since = Instant::now();
        while (self.is_tripped() || self.alarm.fault().is_some())
            && !self.told.load(Ordering::Acquire)
            && since.elapsed() < VERDICT_TIME
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_tripped(&self) -> bool {
        self.tripped.load(Ordering::Relaxed)
    }

    fn send_all(&self, packet: &Packet) {
        for rank in 0..self.peers.len() {
            self.send(rank, packet);
        }
    }

    /// A peer whose buffer is full is stopped, one whose socket is closed is gone: either is noticed elsewhere.
    fn send(&self, rank: usize, packet: &Packet) {
        if let Some(peer) = &self.peers[rank] {
            let _ = sys::send(peer.socket.as_fd(), &[IoSlice::new(&packet.encode())], &[]);
        }
    }

    /// Gives each peer a descriptor of this process. Without one (an old kernel, a strict sandbox) the sockets alone
    /// must tell. A peer of the same number gets one as well: it may be another process, in another pid namespace.
    fn attach(&self) {
        // SAFETY: pidfd_open takes two integers and touches no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id() as libc::pid_t, 0) };
        let Ok(fd) = Errno::result(fd) else { return };
        // SAFETY: the call has just returned this descriptor and nothing else owns it.
        let process = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let packet = Packet::Attach.encode();
        for peer in self.peers.iter().flatten() {
            let _ = sys::send(peer.socket.as_fd(), &[IoSlice::new(&packet)], &[process.as_raw_fd()]);
        }
    }

    /// A goodbye that got lost would be taken for a death, so a full buffer is waited for, but not long.
    fn goodbye(&self) {
        let packet = Packet::Goodbye.encode();
        let until = Instant::now() + Duration::from_millis(100);
        for peer in self.peers.iter().flatten() {
            let socket = peer.socket.as_fd();
            while sys::send(socket, &[IoSlice::new(&packet)], &[]) == Ok(sys::Sent::Full) {
                let ready = sys::poll(&mut [PollFd::new(socket, PollFlags::POLLOUT)], until);
                if ready != Ok(true) {
                    break;
                }
            }
        }
    }
}
