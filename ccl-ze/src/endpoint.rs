//! A communicator's memory on a device and the submission of its collectives: at most three Level Zero calls each.

mod boundary;
mod completed;
mod device;
mod end;
mod host;
mod pieces;
mod queue;
mod staging;
mod submit;

pub(crate) use completed::Completed;
pub(crate) use device::ZeDevice;

use crate::event::{EventSlot, Events};
use crate::gpu::Gpu;
use crate::hooks;
use crate::kernels::{Family, PROBE, RING_ARGS, bulk_name, direct_name, probe_word, push_name, ring_name};
use crate::memory::{Allocation, Details, Imported, SharedHost};
use crate::mhc;
use crate::module::KernelId;
use crate::recording::{Kept, Recording};
use crate::registry::{self, Registry};
use crate::stream::Stream;
use ccl_core::collective::Pieces;
use ccl_core::device::{DeviceFamily, Edges, Endpoint, Io};
use ccl_core::plan::channel::{CHANNEL_ARGS, ChannelPlan};
use ccl_core::plan::push::{DIRECT_ARGS, Mode, PUSH_ARGS, PushPlan, Transport};
use ccl_core::plan::{Plan, Registered, Request};
use ccl_core::protocol::{CommState, Fault, LineForm, fingerprint_of};
use ccl_core::watch::Alarm;
use ccl_core::{Error, Kind as ReductionKind, Result};
use host::HostWords;
use level_zero_sys::*;
use parking_lot::Mutex;
use qcell::QCell;
use staging::{Peer, Staging};
use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Words of the pattern of the link test at each end of the staging memory.
const PROBE_WORDS: usize = 16 * 1024;
/// How late the pattern may arrive: the protocol waits for every line, so a slow link is not a broken one.
const PROBE_LIMIT: Duration = Duration::from_millis(300);

/// Calls of the litmus test. A link that tears lines shows it in a few calls of a hundred.
const LITMUS_CALLS: usize = 128;

/// See [`Endpoint`].
pub(crate) struct ZeEndpoint {
    // Fields are dropped in this order: what uses memory before the memory.
    events: QCell<Events>,
    /// Regular ones, for lists that aren't in order.
    loose_events: QCell<Events>,
    /// Of calls on SYCL queues, once there is one.
    queue_events: Mutex<Option<Events>>,
    stream: Stream,
    /// By rank; nothing at the own.
    peers: Arc<Vec<Option<Peer>>>,
    staging: Arc<Staging>,
    /// Addresses of all ranks' staging memory, for kernels that store into any.
    table: Arc<Allocation>,
    state: Arc<Allocation>,
    host: Arc<HostWords>,
    registry: Arc<Registry>,
    /// Once it is asked for.
    mhc: OnceLock<mhc::Workspace>,
    bytes: usize,
    /// Set by `activate`.
    form: Option<LineForm>,
    hooks: u32,
    /// Whether `events` are counter-based.
    counter: bool,
    /// All that kernels use besides the caller's buffers, as recordings keep it.
    memory: OnceLock<Kept>,
    /// Those that hold its calls.
    recordings: Mutex<Vec<Weak<Recording>>>,
    /// Tables of calls, each with the call that uses it last.
    tables: Mutex<Vec<(Arc<Allocation>, Arc<EventSlot>)>>,
    gpu: Arc<Gpu>,
}

/// A plan made ready: what doesn't change from call to call.
pub(crate) struct Executable {
    kind: Kind,
}

enum Kind {
    Empty,
    Copy {
        bytes: usize,
    },
    /// The arguments in the kernel's order (`kernels::RING_ARGS`).
    Ring {
        kernel: KernelId,
        groups: u32,
        arguments: [u64; RING_ARGS.len()],
    },
    /// The same of one-shot and mesh (`PUSH_ARGS`).
    Push {
        kernel: KernelId,
        groups: u32,
        arguments: [u64; PUSH_ARGS.len()],
    },
    /// The same of direct (`DIRECT_ARGS`), and the table that the arguments name.
    Direct {
        kernel: KernelId,
        groups: u32,
        arguments: [u64; DIRECT_ARGS.len()],
        table: Arc<registry::Table>,
    },
    /// A boundary, with the caller's memory among its arguments.
    Mhc(mhc::Launch),
    /// A boundary after an all-reduce, likewise.
    Fused(mhc::FusedLaunch),
    /// The same of channels (`CHANNEL_ARGS`), and the table that the arguments name, if any.
    Channel {
        kernel: KernelId,
        groups: u32,
        arguments: Box<[u64; CHANNEL_ARGS.len()]>,
        table: Option<Arc<Allocation>>,
    },
}

impl ZeEndpoint {
    fn fill(&self, to: *mut c_void, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: memory of this endpoint, and the stream is waited for.
        unsafe { self.stream.fill(to, byte, bytes, &[])? };
        self.stream.settle()
    }

    fn clear_staging(&self) -> Result<()> {
        if hooks::on(self.hooks, hooks::SKIP_STAGING_CLEAR) {
            return Ok(());
        }
        self.fill(self.staging.address(), 0, self.bytes)
    }

    /// Waits for what other communicators have issued on the device: whoever meets the other ranks in the litmus test
    /// must be able to begin at once, since they wait for lines in the meantime.
    fn await_others(&self) -> Result<()> {
        let last = self.gpu.chain.lock().last();
        let Some(last) = last.filter(|_| !hooks::on(self.hooks, hooks::PRETENDED_DEVICE)) else { return Ok(()) };
        if last.ends()? {
            return Ok(());
        }
        let what = format!("a collective of another communicator on device {} does not end", self.gpu.index());
        Err(Error::Timeout { after: self.gpu.patience(), what })
    }

    /// Where the staging memory of `rank` is mapped.
    fn peer_address(&self, rank: usize) -> Result<*mut c_void> {
        let peer = self.peers.get(rank).and_then(Option::as_ref);
        peer.map(Peer::address)
            .ok_or_else(|| Error::Internal(format!("the staging memory of rank {rank} is not mapped")))
    }

    fn kernel(&self, family: Family, name: &str) -> Result<KernelId> {
        let found = self.gpu.modules.find(family, name);
        found.ok_or_else(|| Error::NotImplemented(format!("kernel {name} on this device")))
    }

    /// The two ranges of staging memory that the patterns cover, its beginning and its end, and in each the words of one
    /// rank's.
    fn probed(&self, n: usize) -> ([usize; 2], usize) {
        // No line of memory has parts of two ranks: what arrives of one's store may be all of it.
        let words = (self.bytes / 8).min(PROBE_WORDS) / n / 16 * 16;
        ([0, self.bytes - n * words * 4], words)
    }
}

/// Tells apart the registrations of different requests, as far as 32 bits can.
fn registrations(request: &Request) -> u64 {
    let numbers = request.registered.map(|of| [of.send.registration, of.recv.registration]);
    u64::from(numbers.into_iter().flatten().fold(0, fingerprint_of))
}

impl Endpoint for ZeEndpoint {
    type Stream = Stream;
    type Completion = Completed;
    type Executable = Executable;
    type Memory = Arc<Allocation>;
    type Event = ze_event_handle_t;

    fn export(&self) -> Result<(Vec<u8>, OwnedFd)> {
        match &*self.staging {
            Staging::Device(exported) => {
                let (details, memory) = exported.export()?;
                Ok((details.encode(), memory))
            }
            Staging::Host(_, memory) => {
                let copy = memory.try_clone().map_err(|e| Error::system("duplicating a descriptor", e))?;
                Ok((Vec::new(), copy))
            }
        }
    }

    fn import(&mut self, peer: usize, n: usize, details: &[u8], memory: OwnedFd) -> Result<()> {
        let imported = match *self.staging {
            Staging::Device(_) => Peer::Device(Imported::open(&self.gpu, &Details::decode(details)?, memory)?),
            Staging::Host(..) => Peer::Host(SharedHost::map(&self.gpu, memory.as_fd(), self.bytes)?),
        };
        let peers = Arc::get_mut(&mut self.peers).ok_or_else(|| Error::Internal("peers in use".into()))?;
        peers.resize_with(n, || None);
        peers[peer] = Some(imported);
        Ok(())
    }

    fn probe_send(&self, peer: usize, rank: usize, n: usize, seed: u32) -> Result<()> {
        let probe = self.kernel(Family::Probe, PROBE)?;
        let lost = hooks::on(self.hooks, hooks::CORRUPT_LINK) && matches!(*self.staging, Staging::Device(_));
        let seed = if lost { !seed } else { seed };
        let (ranges, words) = self.probed(n);
        for offset in ranges {
            let memory = self.peer_address(peer)?.wrapping_byte_add(offset + rank * words * 4);
            let arguments = [memory as u64, words as u64, u64::from(seed)];
            let mut chain = self.gpu.chain.lock();
            let _guard = self.stream.lock.lock();
            // SAFETY: arguments as the kernel's; the range lies in that rank's staging memory; the list is live and
            // waited for below.
            unsafe {
                let (probe, first) = (self.gpu.modules.kernel(probe), [arguments[0], arguments[1]]);
                let (list, none) = (self.stream.list(), std::ptr::null_mut());
                probe.launch(&mut chain.turn, list, 1, first, &arguments, none, &[])?;
            }
        }
        self.stream.settle()
    }

    fn probe_check(&self, rank: usize, seeds: &[u32]) -> Result<Vec<bool>> {
        let since = Instant::now();
        let n = seeds.len();
        let (ranges, words) = self.probed(n);
        let mut shown = vec![true; n];
        for offset in ranges {
            let mut seen = vec![0u32; n * words];
            let from = self.staging.address().wrapping_byte_add(offset);
            loop {
                // SAFETY: a range of the own staging memory and a vector of its size, which outlives the wait.
                unsafe { self.stream.copy(seen.as_mut_ptr().cast(), from, n * words * 4, &[])? };
                self.stream.settle()?;
                if hooks::on(self.hooks, hooks::PRETENDED_DEVICE) {
                    break;
                }
                let there = |peer: usize| {
                    let part = &seen[peer * words..(peer + 1) * words];
                    peer == rank || (0..).zip(part).all(|(i, word)| *word == probe_word(seeds[peer], i))
                };
                let there: Vec<bool> = (0..n).map(there).collect();
                let all = there.iter().all(|&there| there);
                if all || since.elapsed() > PROBE_LIMIT {
                    shown.iter_mut().zip(there).for_each(|(shown, there)| *shown &= there);
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(shown)
    }

    fn activate(&mut self, state: &CommState, form: LineForm) -> Result<()> {
        self.gpu.load_for(form)?;
        let (groups, agreed) = (self.gpu.modules.resident_groups(), self.gpu.facts.resident_groups);
        if groups < agreed {
            return Err(Error::NotImplemented(format!(
                "a device that runs {groups} groups at once with lines of {} bytes and {agreed} with wider ones",
                form.granule()
            )));
        }
        self.form = Some(form);
        self.await_others()?;
        self.clear_staging()?;
        self.host.clear();
        self.host.begin_at(state.calls);
        // A processor that plays a device turns faster than one.
        let turns = if self.gpu.facts.family == DeviceFamily::Software { 1 << 20 } else { 0 };
        let state = CommState { spins_per_ms: hooks::spins_per_ms().unwrap_or(turns), ..*state };
        let own = self.staging.address() as u64;
        let table: Vec<u64> = self.peers.iter().map(|peer| peer.as_ref().map_or(own, |p| p.address() as u64)).collect();
        // SAFETY: the table has room for every rank; the vector lives until the stream has settled.
        unsafe { self.stream.copy(self.table.address, table.as_ptr().cast(), table.len() * 8, &[])? };
        let state = &raw const state;
        // SAFETY: the allocation has this size, and the stream is waited for while `state` is borrowed.
        unsafe { self.stream.copy(self.state.address, state.cast(), size_of::<CommState>(), &[])? };
        self.stream.settle()
    }

    fn alarm(&self) -> Arc<dyn Alarm> {
        self.host.clone()
    }

    fn prepare(&self, request: &Request, plan: &Plan, rank: usize) -> Result<Executable> {
        let kind = match plan {
            Plan::Empty => Kind::Empty,
            Plan::Local => Kind::Copy { bytes: request.count as usize * request.dtype.size() },
            Plan::Ring(ring) => {
                let form = self.form.ok_or_else(|| Error::Internal("no line form is agreed yet".into()))?;
                let kernel = self.kernel(Family::Ring(form), &ring_name(ring.dtype.size(), form.granule()))?;
                // A rank alone has no next one.
                let next = if ring.n == 1 { self.staging.address() } else { self.peer_address((rank + 1) % ring.n)? };
                let arguments = [
                    0,
                    0,
                    self.state.address as u64,
                    self.host.memory.address as u64,
                    self.staging.address() as u64,
                    next as u64,
                    ring.geometry.count(),
                    ring.geometry.period(),
                    rank as u64,
                    ring.n as u64,
                    u64::from(ring.tiles),
                    u64::from(ring.rounds),
                    u64::from(ring.slot_tiles),
                    u64::from(ReductionKind::new(ring.dtype, ring.op, ring.order).word()),
                    ring.op.factor(ring.dtype)?,
                ];
                Kind::Ring { kernel, groups: ring.wires, arguments }
            }
            Plan::Push(push) => {
                let PushPlan { n, dtype, mode, transport, part, rounds, .. } = *push;
                let width = dtype.size();
                let (family, name) = match (mode, transport) {
                    (Mode::Direct, _) => (Family::Bulk, direct_name(width)),
                    (_, Transport::Bulk) => (Family::Bulk, bulk_name(width)),
                    (_, Transport::Lines(form)) => (Family::Push(form), push_name(width, form.granule())),
                };
                let (kernel, groups) = (self.kernel(family, &name)?, push.wires);
                let kind = ccl_core::Kind::new(dtype, push.op, push.order);
                let factor = push.op.factor(dtype)?;
                let (kind, rank, n) = (u64::from(kind.word()), rank as u64, n as u64);
                let (state, host, peers) =
                    (self.state.address as u64, self.host.memory.address as u64, self.table.address as u64);
                let (count, period) = (push.geometry.count(), push.geometry.period());
                if mode == Mode::Direct {
                    let table = self.registry.table(request, &self.stream)?;
                    // Direct takes no factor. In its place comes which registrations the call is of: checked calls
                    // compare it.
                    let registered = registrations(request);
                    let buffers = table.address();
                    let arguments = [0, 0, state, host, peers, buffers, count, period, registered, kind, rank, n];
                    Kind::Direct { kernel, groups, arguments, table }
                } else {
                    let (mode, part, rounds) = (mode as u64, u64::from(part), u64::from(rounds));
                    let arguments =
                        [0, 0, state, host, peers, count, period, factor, kind, rank, n, mode, part, rounds];
                    Kind::Push { kernel, groups, arguments }
                }
            }
        };
        Ok(Executable { kind })
    }

    fn prepare_pieces(&self, plan: &ChannelPlan, pieces: &Pieces<'_>, rank: usize) -> Result<Executable> {
        self.of_pieces(plan, pieces, rank)
    }

    fn prepare_copy(&self, bytes: u64) -> Executable {
        Executable { kind: if bytes == 0 { Kind::Empty } else { Kind::Copy { bytes: bytes as usize } } }
    }

    fn litmus(&self, request: &Request, plan: &Plan, rank: usize) -> Result<bool> {
        if hooks::on(self.hooks, hooks::PRETENDED_DEVICE) {
            return Ok(true);
        }
        let n = match plan {
            Plan::Ring(ring) => ring.n,
            Plan::Push(push) => push.n,
            Plan::Empty | Plan::Local => return Ok(true),
        };
        let executable = self.prepare(request, plan, rank)?;
        let count = request.count as usize;
        let bytes = count * size_of::<f32>();
        let memory = Allocation::device(&self.gpu, bytes)?;
        let io = Io { send: memory.address, recv: memory.address };
        // Small integers, so that any order of summation is exact.
        let value = |rank: usize, call: usize, i: usize| ((29 * rank + 13 * call + 7 * i) % 251) as f32;
        let mut whole = true;
        for call in 0..LITMUS_CALLS {
            if call == LITMUS_CALLS / 2 && hooks::litmus_ends_the_process() {
                std::process::abort();
            }
            let input: Vec<f32> = (0..count).map(|i| value(rank, call, i)).collect();
            let mut output = vec![0f32; count];
            let began = Instant::now();
            // SAFETY: the allocation and the vectors hold `bytes` bytes and live until the stream has settled.
            unsafe {
                self.stream.copy(memory.address, input.as_ptr().cast(), bytes, &[])?;
                self.submit(&self.stream, &executable, io, Edges { after: &[], signal: None })?;
                self.stream.copy(output.as_mut_ptr().cast(), memory.address, bytes, &[])?;
            }
            self.stream.settle()?;
            // A call that gave up waiting has shown nothing about lines.
            if let Some(fault) = self.host.fault().filter(|fault| fault.fault == Fault::SpinLimit) {
                let what = format!("call {} of the litmus test waited for another rank", fault.call);
                return Err(Error::Timeout { after: began.elapsed(), what });
            }
            let sum = |i| (0..n).map(|rank| value(rank, call, i)).sum::<f32>();
            whole &= output.iter().enumerate().all(|(i, got)| *got == sum(i));
        }
        if hooks::litmus_gives_up() {
            return Err(Error::Timeout { after: Duration::ZERO, what: "the litmus test of this rank gives up".into() });
        }
        Ok(whole)
    }

    fn export_memory(&self, memory: &Arc<Allocation>) -> Result<(Vec<u8>, OwnedFd)> {
        Registry::export(memory)
    }

    fn register(
        &self,
        number: u32,
        rank: usize,
        memory: &Arc<Allocation>,
        bytes: u64,
        others: Vec<Option<(Vec<u8>, OwnedFd)>>,
    ) -> Result<()> {
        self.registry.add(number, rank, (memory, bytes), others)
    }

    fn check_registered(&self, registered: &Registered, bytes: u64, io: Io) -> Result<()> {
        self.registry.check(registered, bytes, io)
    }

    fn deregister(&self, number: u32) {
        self.registry.remove(number);
    }

    #[inline]
    unsafe fn submit(
        &self,
        stream: &Stream,
        executable: &Executable,
        io: Io,
        edges: Edges<'_, ze_event_handle_t>,
    ) -> Result<Completed> {
        // SAFETY: passed on to the caller.
        unsafe { self.enqueue(stream, executable, io, edges) }
    }

    #[inline(always)]
    unsafe fn submit_unheard(&self, stream: &Stream, executable: &Executable, io: Io) -> Result<Option<Completed>> {
        // SAFETY: passed on to the caller.
        unsafe { self.enqueue_unheard(stream, executable, io) }
    }
}
