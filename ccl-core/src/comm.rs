//! The communicator: init, the check of every call, issue order, and the failure that poisons it.

mod claim;
mod collective;
mod completion;
mod connect;
mod register;
mod split;

pub use completion::{Completion, Health, wait, wait_for};

use crate::collective::CollectiveCall;
use crate::config::{Check, Config};
use crate::cores;
use crate::device::{Device, Edges, Endpoint, Io, Place};
use crate::error::{Error, Result};
use crate::mesh::Mesh;
use crate::plan::cache::PlanCache;
use crate::plan::{self, Agreed, Plan, Request};
use crate::protocol::channel::ChannelState;
use crate::protocol::{CommState, MAX_WIRES, TAG_LIMIT};
use crate::topology::{self, Hello};
use crate::watch::{Watch, WatchOptions};
use crate::{DataType, Order, ReduceOp};
use claim::Claim;
use connect::{Litmus, connect, litmus};
use parking_lot::Mutex;
use register::Registrations;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// Test-only starting values. [`Default`] is what is used outside tests.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct StartState {
    /// Highest tag.
    pub tag_limit: u32,
    /// First base.
    pub base: u32,
    /// Rules switched off.
    pub hooks: u32,
}

impl Default for StartState {
    fn default() -> Self {
        Self { tag_limit: TAG_LIMIT, base: 0, hooks: 0 }
    }
}

/// Called once, with the failure that poisons a communicator.
pub type FaultHandler = Box<dyn Fn(&Error) + Send>;

/// What a communicator turned out to be.
#[derive(Clone, Debug)]
pub struct Info {
    /// Where the staging memory is.
    pub place: Place,
    /// What selection depends on.
    pub agreed: Agreed,
    /// Bytes of staging memory on this rank.
    pub staging_bytes: usize,
    /// A name that is alike on all ranks, and like no other communicator's as far as chance goes.
    pub name: u32,
}

struct Issue<E: Endpoint> {
    plans: PlanCache<Request, E::Executable>,
    /// Of the other collectives, which are as large or small whatever the request.
    collectives: PlanCache<CollectiveCall, E::Executable>,
}

struct Shared<D: Device> {
    // Dropped before the endpoint: after the goodbye nobody's absence is an error any more.
    watch: Watch,
    health: Arc<Health>,
    endpoint: D::Endpoint,
    issue: Mutex<Issue<D::Endpoint>>,
    registrations: Mutex<Registrations>,
    rank: usize,
    config: Config,
    info: Info,
    /// Splits that were asked for here.
    splits: AtomicU64,
}

/// A group of ranks that reduce together. Cheap to clone; usable from any thread.
pub struct Communicator<D: Device> {
    shared: Arc<Shared<D>>,
}

impl<D: Device> Clone for Communicator<D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<D: Device> Communicator<D> {
    /// Forms the communicator. Every rank of the mesh calls this; all succeed or all fail. Only one that has no descriptor or
    /// thread left for its watch, which comes last, fails alone: the others' communicators then fail at once, of the same.
    pub fn init(
        device: &D,
        mesh: Mesh,
        config: &Config,
        start: &StartState,
        on_fault: FaultHandler,
    ) -> Result<Communicator<D>> {
        mesh.set_deadline(config.connection_timeout);
        let Met { endpoint, info, side } = match Self::meet(device, &mesh, config, start) {
            Ok(met) => met,
            Err(error) => {
                mesh.abandon(&error);
                return Err(error);
            }
        };
        let (rank, n) = (mesh.rank(), mesh.world_size());
        let alarm = endpoint.alarm();
        let label = format!("communicator {:08x}, rank {rank} of {n}", info.name);
        let options = WatchOptions { timeout: config.timeout, label, on_fault };
        let watch = Watch::start(mesh, alarm.clone(), options)?;
        let health = Arc::new(Health::new(watch.status().clone(), alarm));
        let issue = Mutex::new(Issue { plans: PlanCache::new(), collectives: PlanCache::new() });
        Ok(Communicator {
            shared: Arc::new(Shared {
                watch,
                health,
                endpoint,
                issue,
                registrations: Mutex::new(Registrations::new(side)),
                rank,
                config: config.clone(),
                info,
                splits: AtomicU64::new(0),
            }),
        })
    }

    /// Everything that needs the other ranks.
    fn meet(device: &D, mesh: &Mesh, config: &Config, start: &StartState) -> Result<Met<D::Endpoint>> {
        let (rank, n) = (mesh.rank(), mesh.world_size());
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            name: chance() as u32,
            process: *PROCESS.get_or_init(chance),
            hooks: start.hooks,
            config: config.hash(),
            alike: config.alike().map(|(name, value)| (name.to_owned(), value)).collect(),
            device: device.facts().clone(),
            cpus: cores::of_this_thread(),
        };
        let hellos: Vec<Hello> =
            mesh.all_gather(&encode(&hello)?, "hello")?.iter().map(|bytes| decode(bytes)).collect::<Result<_>>()?;
        let mut agreed = topology::agree(&hellos, config)?;
        let _claim = Claim::of(device, mesh, config, (hellos[0].name, hellos[0].process))?;
        // That may have taken any time, and is bounded by itself.
        mesh.set_deadline(config.connection_timeout);
        let reaches = hellos.iter().enumerate().all(|(peer, hello)| peer == rank || device.reaches(&hello.device));
        let reaches = gather_flags(mesh, reaches, "P2P access")?;
        let mut place = topology::place(&reaches, config);
        let cpus: Vec<&[u32]> = hellos.iter().map(|hello| hello.cpus.as_slice()).collect();
        let state = CommState {
            base: start.base,
            tag_limit: start.tag_limit,
            left: 0,
            poisoned: 0,
            wraps: 0,
            hooks: start.hooks,
            calls: 0,
            // The host's deadline comes first and says more; this is for the case that the host is gone.
            spin_limit_ms: 2 * config.timeout.as_millis() as u64 + 2_000,
            spins_before_yield: if cores::suffice(&cpus) { 2_000 } else { 0 },
            spins_per_ms: 0,
            slot_tiles: agreed.slot_tiles,
            push_tiles: agreed.push_tiles,
            bulk_bytes: agreed.bulk_bytes,
            granule: agreed.form.granule() as u32,
            busy: [0; MAX_WIRES],
            check: u32::from(config.check == Check::Global),
            reserved: 0,
            channels: ChannelState::NEW,
        };
        let mut endpoint = loop {
            let mut endpoint = connect(device, mesh, &agreed, &mut place)?;
            // A test that breaks a rule wants to see it broken in its calls.
            if n == 1 || hellos.iter().any(|hello| hello.hooks != 0) {
                break endpoint;
            }
            match litmus(&mut endpoint, mesh, &agreed, config, &state)? {
                Litmus::Holds => break endpoint,
                Litmus::Torn => {
                    let form = agreed.form;
                    agreed.form = form.narrower().ok_or_else(|| Error::Device {
                        call: "litmus test".into(),
                        detail: format!("not even lines of {} bytes arrive whole", form.granule()),
                    })?;
                    if rank == 0 {
                        tracing::warn!(
                            "lines of {} bytes do not arrive whole here; lines of {} bytes are tried",
                            form.granule(),
                            agreed.form.granule()
                        );
                    }
                }
                Litmus::Unordered => {
                    agreed.bulk_bytes = 0;
                    if rank == 0 {
                        tracing::warn!(
                            "data do not arrive before the flag that follows them; all messages go by lines"
                        );
                    }
                }
            }
        };
        agreed.tag_limit = start.tag_limit;
        let state = CommState { granule: agreed.form.granule() as u32, bulk_bytes: agreed.bulk_bytes, ..state };
        endpoint.activate(&state, agreed.form)?;
        // Nobody may push before everybody's staging memory is cleared.
        mesh.barrier("ready")?;
        let staging_bytes = agreed.layout().bytes();
        let info = Info { place, agreed, staging_bytes, name: hellos[0].name };
        Ok(Met { endpoint, info, side: mesh.twin()? })
    }

    /// Whether both are handles of one communicator.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// This rank.
    #[inline]
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Number of ranks.
    #[inline]
    pub fn world_size(&self) -> usize {
        self.shared.info.agreed.n
    }

    /// What the ranks agreed on.
    pub fn info(&self) -> &Info {
        &self.shared.info
    }

    /// Its share of the device.
    pub fn endpoint(&self) -> &D::Endpoint {
        &self.shared.endpoint
    }

    /// The plan that a request would run.
    pub fn plan(&self, request: &Request) -> Result<Plan> {
        plan::plan(request, &self.shared.info.agreed, &self.shared.config)
    }

    /// The failure that poisoned this communicator, if any.
    pub fn fault(&self) -> Option<Error> {
        self.shared.watch.fault()
    }

    /// Whether the calls that have ended were right. Of a fault that the device has just reported this waits until it is known
    /// which rank is to blame.
    pub fn check_ended(&self) -> Result<()> {
        self.shared.health.check_ended()
    }

    /// Gives up all collectives in flight, here and on the other ranks. May be called from any thread.
    pub fn abort(&self, why: &str) {
        self.shared.watch.fail(Error::Aborted(why.into()));
    }

    /// Tells the other ranks that this process is about to end, so that its end is not taken for a death. For programs that
    /// end without dropping their communicators.
    pub fn leave(&self) {
        self.shared.watch.leave();
    }

    /// The plan of a call, if it is one: refuses what [`Self::all_reduce`] refuses before it looks at the stream.
    pub fn check(&self, request: &Request, io: Io) -> Result<Plan> {
        self.check_call(request, io)?;
        self.check_registered(request, io)?;
        self.plan(request)
    }

    /// The ranges that a request names are registered here, and hold the buffers.
    #[inline(always)]
    fn check_registered(&self, request: &Request, io: Io) -> Result<()> {
        let Some(registered) = &request.registered else { return Ok(()) };
        // No overflow: the buffers were checked.
        self.shared.endpoint.check_registered(registered, request.count * request.dtype.size() as u64, io)
    }

    /// What every call is refused for first: a communicator that has failed, and buffers that no call can have.
    #[inline(always)]
    pub fn check_call(&self, request: &Request, io: Io) -> Result<()> {
        self.shared.health.check()?;
        check_buffers(request, io)
    }

    /// Appends an all-reduce to `stream` and returns. It runs in the stream's order and that of `edges`.
    ///
    /// Nothing is enqueued when an error is returned, unless that says so.
    ///
    /// # Safety
    /// `io` must hold `request.count` elements each, valid until the completion says so, or as long as what records the
    /// stream may be replayed; the events of `edges` must be live.
    #[inline]
    pub unsafe fn all_reduce(
        &self,
        request: &Request,
        io: Io,
        stream: &<D::Endpoint as Endpoint>::Stream,
        edges: Edges<'_, <D::Endpoint as Endpoint>::Event>,
    ) -> Result<Completion<D>> {
        // SAFETY: passed on to the caller.
        let inner = unsafe { self.issue(request, io, stream, edges)? };
        Ok(Completion::new(inner, self.shared.health.clone()))
    }

    /// The same of a call like one before it, for which few checks are enough and that nobody waits for: `None` if this isn't
    /// one, and nothing was done. What the device says of it all the same goes to `said`. `request` is in one row, of buffers
    /// that aren't registered, and of a reduction without a factor.
    ///
    /// # Safety
    /// As for [`Self::all_reduce`].
    #[inline(always)]
    pub unsafe fn all_reduce_plainly(
        &self,
        request: &Request,
        io: Io,
        stream: &<D::Endpoint as Endpoint>::Stream,
        said: impl FnOnce(&<D::Endpoint as Endpoint>::Completion, &Arc<Health>),
    ) -> Option<Result<()>> {
        let shared = &*self.shared;
        // As below.
        let mut issue = shared.issue.lock();
        if !shared.health.is_sound() || !are_whole(request, io) {
            return None;
        }
        let executable = match issue.plans.last() {
            Some((last, executable)) if last.is_plainly(request) => executable,
            _ => find(&mut issue.plans, request.count, request.dtype, request.op.code(), request.order)?,
        };
        // SAFETY: passed on to the caller.
        match unsafe { shared.endpoint.submit_unheard(stream, executable, io) } {
            Ok(None) => {}
            Ok(Some(completion)) => said(&completion, &shared.health),
            Err(error) => return Some(Err(shared.health.why(error))),
        }
        Some(Ok(()))
    }

    /// # Safety
    /// As for [`Self::all_reduce`].
    unsafe fn issue(
        &self,
        request: &Request,
        io: Io,
        stream: &<D::Endpoint as Endpoint>::Stream,
        edges: Edges<'_, <D::Endpoint as Endpoint>::Event>,
    ) -> Result<<D::Endpoint as Endpoint>::Completion> {
        let shared = &*self.shared;
        // One lock around check, plan, number and append: two threads that issue on one communicator get one order, and the
        // communicator may fail while the other one's call is waited for.
        let mut issue = shared.issue.lock();
        self.check_call(request, io)?;
        self.check_registered(request, io)?;
        let executable = issue.plans.get_or_make(request, || self.prepare(request))?;
        // SAFETY: passed on to the caller.
        unsafe { shared.endpoint.submit(stream, executable, io, edges) }.map_err(|error| shared.health.why(error))
    }

    #[cold]
    fn prepare(&self, request: &Request) -> Result<<D::Endpoint as Endpoint>::Executable> {
        let plan = self.plan(request)?;
        #[cfg(debug_assertions)]
        plan.verify().map_err(Error::Internal)?;
        self.shared.endpoint.prepare(request, &plan, self.shared.rank)
    }

    /// Appends work of this rank alone, made ready by the endpoint, in the order of this communicator's calls.
    ///
    /// Nothing is enqueued when an error is returned, unless that says so.
    ///
    /// # Safety
    /// The memory that `executable` was made for and the events of `edges` must be live as for [`Self::all_reduce`].
    pub unsafe fn launch(
        &self,
        executable: &<D::Endpoint as Endpoint>::Executable,
        stream: &<D::Endpoint as Endpoint>::Stream,
        edges: Edges<'_, <D::Endpoint as Endpoint>::Event>,
    ) -> Result<Completion<D>> {
        let shared = &*self.shared;
        let _issue = shared.issue.lock();
        shared.health.check()?;
        let io = Io { send: std::ptr::null(), recv: std::ptr::null_mut() };
        // SAFETY: passed on to the caller.
        let inner = unsafe { shared.endpoint.submit(stream, executable, io, edges) };
        let inner = inner.map_err(|error| shared.health.why(error))?;
        Ok(Completion::new(inner, shared.health.clone()))
    }
}

/// What is cached for a plain request, which comes in parts so that a call that needs none of this doesn't lay it out.
#[cold]
fn find<T>(plans: &mut PlanCache<Request, T>, count: u64, dtype: DataType, op: u32, order: Order) -> Option<&T> {
    let op = ReduceOp::from_abi(op)?;
    plans.get(&Request { count, dtype, op, order, period: None, registered: None })
}

/// What came of the meeting.
struct Met<E> {
    endpoint: E,
    info: Info,
    /// For what the ranks have to exchange later.
    side: Mesh,
}

static PROCESS: OnceLock<u64> = OnceLock::new();

/// A number that nobody else has, as far as chance goes.
fn chance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn gather_flags(mesh: &Mesh, flag: bool, what: &str) -> Result<Vec<bool>> {
    Ok(mesh.all_gather(&[u8::from(flag)], what)?.iter().map(|bytes| bytes == &[1]).collect())
}

fn encode(hello: &Hello) -> Result<Vec<u8>> {
    serde_json::to_vec(hello).map_err(|e| Error::Internal(format!("hello: {e}")))
}

fn decode(bytes: &[u8]) -> Result<Hello> {
    serde_json::from_slice(bytes).map_err(|e| Error::Internal(format!("a peer's hello: {e}")))
}

#[inline(always)]
fn check_buffers(request: &Request, io: Io) -> Result<()> {
    if are_whole(request, io) { Ok(()) } else { check_each(request, io) }
}

/// Whether buffers that hold something are as they have to be.
#[inline(always)]
fn are_whole(request: &Request, io: Io) -> bool {
    let (size, send, recv) = (request.dtype.size() as u64, io.send as u64, io.recv as u64);
    let whole = |at: u64, bytes: u64| at != 0 && at & (size - 1) == 0 && at.checked_add(bytes).is_some();
    let Some(bytes) = request.count.checked_mul(size) else { return false };
    bytes <= isize::MAX as u64
        && whole(send, bytes)
        && whole(recv, bytes)
        && (send == recv || send.abs_diff(recv) >= bytes)
}

/// The same with words for what is wrong; nothing is of buffers without elements.
#[cold]
fn check_each(request: &Request, io: Io) -> Result<()> {
    let size = request.dtype.size() as u64;
    let Some(bytes) = request.count.checked_mul(size).filter(|&b| b <= isize::MAX as u64) else {
        return Err(Error::InvalidArgument(format!("count {} overflows the address space", request.count)));
    };
    if bytes == 0 {
        return Ok(());
    }
    let (send, recv) = (io.send as usize, io.recv as usize);
    for (name, address) in [("send", send), ("receive", recv)] {
        if address == 0 {
            return Err(Error::InvalidArgument(format!("{name} buffer is null but count is {}", request.count)));
        }
        if !(address as u64).is_multiple_of(size) {
            return Err(Error::InvalidArgument(format!(
                "{name} buffer {address:#x} is not aligned to its element type {}",
                request.dtype
            )));
        }
        if (address as u64).checked_add(bytes).is_none() {
            return Err(Error::InvalidArgument(format!("{name} buffer {address:#x} ends past the address space")));
        }
    }
    if send != recv && (send.abs_diff(recv) as u64) < bytes {
        return Err(Error::InvalidArgument(format!(
            "send buffer {send:#x} and receive buffer {recv:#x} of {bytes} bytes overlap in part; in place means equal"
        )));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn request(count: u64) -> Request {
        Request {
            count,
            dtype: DataType::Bfloat16,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        }
    }

    fn io(send: usize, recv: usize) -> Io {
        Io { send: send as *const c_void, recv: recv as *mut c_void }
    }
    use std::ffi::c_void;

    #[test]
    fn buffers_are_equal_or_apart() {
        let count = 100;
        for ok in [(0x1000, 0x1000), (0x1000, 0x1000 + 200), (0x1000 + 200, 0x1000)] {
            check_buffers(&request(count), io(ok.0, ok.1)).unwrap();
            check_each(&request(count), io(ok.0, ok.1)).unwrap();
        }
        for bad in [(0x1000, 0x1000 + 198), (0x1002, 0x1000), (0, 0x1000), (0x1000, 0), (0x1001, 0x2000)] {
            assert!(!are_whole(&request(count), io(bad.0, bad.1)));
            check_buffers(&request(count), io(bad.0, bad.1)).unwrap_err();
        }
        check_buffers(&request(0), io(0, 0)).unwrap();
        check_buffers(&request(u64::MAX / 2), io(0x1000, 0x1000)).unwrap_err();
    }
}
