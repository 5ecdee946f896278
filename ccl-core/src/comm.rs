//! The communicator: init, the check of every call, issue order, and the failure that poisons it.

mod completion;

pub use completion::{Completion, Health, wait};

use crate::config::{Algorithm, Check, Config, TransportChoice};
use crate::device::{Device, Edges, Endpoint, Io, Place};
use crate::error::{Error, Result};
use crate::mesh::{Delivery, Mesh, Parcel};
use crate::plan::cache::PlanCache;
use crate::plan::{self, Agreed, Plan, Request};
use crate::protocol::{CommState, MAX_RANKS, MAX_WIRES, STAGING_HEAD_BYTES, TAG_LIMIT};
use crate::topology::{self, Hello};
use crate::types::{DataType, Order, ReduceOp};
use crate::watch::{Watch, WatchOptions};
use parking_lot::Mutex;
use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::AsFd;
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
    plans: PlanCache<Arc<E::Executable>>,
}

struct Shared<D: Device> {
    // Dropped before the endpoint: after the goodbye nobody's absence is an error any more.
    watch: Watch,
    health: Arc<Health>,
    endpoint: D::Endpoint,
    issue: Mutex<Issue<D::Endpoint>>,
    rank: usize,
    config: Config,
    info: Info,
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
    /// Forms the communicator. Every rank of the mesh calls this; all succeed or all fail.
    pub fn init(
        device: &D,
        mesh: Mesh,
        config: &Config,
        start: &StartState,
        on_fault: FaultHandler,
    ) -> Result<Communicator<D>> {
        mesh.set_deadline(config.connection_timeout);
        let (endpoint, info) = match Self::meet(device, &mesh, config, start) {
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
        let issue = Mutex::new(Issue { plans: PlanCache::new() });
        Ok(Communicator {
            shared: Arc::new(Shared { watch, health, endpoint, issue, rank, config: config.clone(), info }),
        })
    }

    /// Everything that needs the other ranks.
    fn meet(device: &D, mesh: &Mesh, config: &Config, start: &StartState) -> Result<Met<D>> {
        let (rank, n) = (mesh.rank(), mesh.world_size());
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            name: chance() as u32,
            process: *PROCESS.get_or_init(chance),
            hooks: start.hooks,
            config: config.hash(),
            alike: config.alike().map(|(name, value)| (name.to_owned(), value)).collect(),
            device: device.facts().clone(),
        };
        let hellos: Vec<Hello> =
            mesh.all_gather(&encode(&hello)?, "hello")?.iter().map(|bytes| decode(bytes)).collect::<Result<_>>()?;
        let mut agreed = topology::agree(&hellos, config)?;
        let reaches = hellos.iter().enumerate().all(|(peer, hello)| peer == rank || device.reaches(&hello.device));
        let reaches = gather_flags(mesh, reaches, "P2P access")?;
        let mut place = topology::place(&reaches, config);
        let cores = std::thread::available_parallelism().map_or(1, |c| c.get());
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
            spins_before_yield: if n <= cores { 20_000 } else { 200 },
            spins_per_ms: 0,
            slot_tiles: agreed.slot_tiles,
            push_tiles: agreed.push_tiles,
            bulk_bytes: agreed.bulk_bytes,
            granule: agreed.form.granule() as u32,
            busy: [0; MAX_WIRES],
            check: u32::from(config.check == Check::Global),
            reserved: 0,
        };
        let mut endpoint = loop {
            let mut endpoint = connect(device, mesh, &agreed, &mut place)?;
            // A form that was asked for is taken as it is; a test that breaks a rule wants to see it broken in its calls.
            if n == 1 || config.granule != 0 || hellos.iter().any(|hello| hello.hooks != 0) {
                break endpoint;
            }
            let mut shows = |algorithm, transport| {
                litmus(
                    &mut endpoint,
                    mesh,
                    &agreed,
                    &state,
                    &Config { allreduce: algorithm, transport, ..config.clone() },
                )
            };
            // A ring has lines to the next rank only.
            let whole = shows(Algorithm::Ring, TransportChoice::Auto)?
                && (agreed.push_tiles == 0 || shows(Algorithm::OneShot, TransportChoice::Lines)?);
            if whole {
                if agreed.bulk_bytes == 0 || shows(Algorithm::Mesh, TransportChoice::Bulk)? {
                    break endpoint;
                }
                agreed.bulk_bytes = 0;
                if rank == 0 {
                    tracing::warn!("data does not arrive before its flag here; flags travel with their data only");
                }
                continue;
            }
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
        };
        agreed.tag_limit = start.tag_limit;
        let state = CommState { granule: agreed.form.granule() as u32, bulk_bytes: agreed.bulk_bytes, ..state };
        endpoint.activate(&state, agreed.form)?;
        // Nobody may push before everybody's staging memory is cleared.
        mesh.barrier("ready")?;
        let staging_bytes = agreed.layout().bytes();
        Ok((endpoint, Info { place, agreed, staging_bytes, name: hellos[0].name }))
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Number of ranks.
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

    /// Gives up all collectives in flight, here and on the other ranks. May be called from any thread.
    pub fn abort(&self, why: &str) {
        self.shared.watch.fail(Error::Aborted(why.into()));
    }

    /// The plan of a call, if it is one: refuses what [`Self::all_reduce`] refuses before it looks at the stream.
    pub fn check(&self, request: &Request, io: Io) -> Result<Plan> {
        self.shared.health.check()?;
        check_buffers(request, io)?;
        self.plan(request)
    }

    /// Appends an all-reduce to `stream` and returns. It runs in the stream's order and that of `edges`.
    ///
    /// Nothing is enqueued when an error is returned.
    ///
    /// # Safety
    /// `io` must hold `request.count` elements each, valid until the completion says so, or as long as what records the
    /// stream may be replayed; the events of `edges` must be live.
    pub unsafe fn all_reduce(
        &self,
        request: &Request,
        io: Io,
        stream: &<D::Endpoint as Endpoint>::Stream,
        edges: Edges<'_, <D::Endpoint as Endpoint>::Event>,
    ) -> Result<Completion<D>> {
        let shared = &*self.shared;
        shared.health.check()?;
        check_buffers(request, io)?;
        // One lock around plan, number and append: two threads that issue on one communicator get one order.
        let mut issue = shared.issue.lock();
        let executable = match issue.plans.get(request) {
            Some(executable) => executable.clone(),
            None => {
                let plan = self.plan(request)?;
                #[cfg(debug_assertions)]
                plan.verify().map_err(Error::Internal)?;
                let executable = Arc::new(shared.endpoint.prepare(request, &plan, shared.rank)?);
                issue.plans.insert(*request, executable.clone());
                executable
            }
        };
        // SAFETY: passed on to the caller.
        let inner = unsafe { shared.endpoint.submit(stream, &executable, io, edges)? };
        Ok(Completion::new(inner, shared.health.clone()))
    }
}

/// An endpoint, and what came of the meeting.
type Met<D> = (<D as Device>::Endpoint, Info);

static PROCESS: OnceLock<u64> = OnceLock::new();

/// A number that nobody else has, as far as chance goes.
fn chance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Connects the ranks, in `place` or, where direct access turns out not to work, in host memory.
fn connect<D: Device>(device: &D, mesh: &Mesh, agreed: &Agreed, place: &mut Place) -> Result<D::Endpoint> {
    let bytes = agreed.layout().bytes();
    let mut opened = open(device, mesh, *place, bytes);
    if *place == Place::Device && !works(&opened) {
        if mesh.rank() == 0 {
            tracing::warn!(
                "direct access between devices does not work here ({}); all ranks use staging in host memory",
                describe_failure(&opened)
            );
        }
        *place = Place::Host;
        // The device endpoint goes first: its memory is not needed any more.
        drop(opened);
        opened = open(device, mesh, *place, bytes);
    }
    let (endpoint, shown) = opened?;
    if let Some((from, to)) = shown.broken().next() {
        return Err(Error::Device {
            call: "pattern test".into(),
            detail: format!("stores of rank {from} do not arrive at rank {to} even through host memory"),
        });
    }
    Ok(endpoint)
}

/// Elements of a call of the litmus test: a few hundred lines in flight at once.
const LITMUS_COUNT: u64 = 8192;
/// How long a rank waits for a line in the litmus test.
const LITMUS_LIMIT_MS: u64 = 10_000;

/// Whether lines of the agreed form arrive whole on every rank, or bulk data before its flag, as far as calls with changing
/// data can show. The configuration forces by what.
fn litmus<E: Endpoint>(
    endpoint: &mut E,
    mesh: &Mesh,
    agreed: &Agreed,
    state: &CommState,
    config: &Config,
) -> Result<bool> {
    let state = CommState {
        base: 0,
        tag_limit: agreed.tag_limit,
        spin_limit_ms: LITMUS_LIMIT_MS,
        granule: agreed.form.granule() as u32,
        bulk_bytes: agreed.bulk_bytes,
        ..*state
    };
    endpoint.activate(&state, agreed.form)?;
    let request = Request {
        count: LITMUS_COUNT,
        dtype: DataType::Float32,
        op: ReduceOp::Sum,
        order: Order::Ring,
        period: None,
        registered: None,
    };
    let plan = plan::plan(&request, agreed, config)?;
    mesh.barrier("litmus test")?;
    let outcome = endpoint.litmus(&request, &plan, mesh.rank());
    let whole = gather_flags(mesh, matches!(outcome, Ok(true)), "litmus test")?.iter().all(|&whole| whole);
    // A failure of this rank's own is told as such.
    outcome.map(|_| whole)
}

/// Between which ranks stores arrive.
struct Shown {
    /// For each rank, whether it could reach and store into all others.
    sent: Vec<bool>,
    /// For each rank, a bit for every other whose stores arrived there.
    arrived: Vec<u16>,
}

impl Shown {
    /// Pairs (from, to) of ranks between which stores do not arrive.
    fn broken(&self) -> impl Iterator<Item = (usize, usize)> {
        let n = self.sent.len();
        let pairs = (0..n).flat_map(move |from| (1..n).map(move |distance| (from, (from + distance) % n)));
        pairs.filter(|&(from, to)| !self.sent[from] || self.arrived[to] & 1 << from == 0)
    }
}

type Opened<E> = Result<(E, Shown)>;

/// Opens the endpoint, connects it with all others and shows by a pattern that stores arrive. Every rank takes the same
/// path through the exchanges, whatever fails where.
fn open<D: Device>(device: &D, mesh: &Mesh, place: Place, bytes: usize) -> Opened<D::Endpoint> {
    let (rank, n) = (mesh.rank(), mesh.world_size());
    let opened = device.open(place, bytes);
    if n == 1 {
        return opened.map(|endpoint| (endpoint, Shown { sent: vec![true], arrived: vec![0] }));
    }
    let exported = opened.and_then(|endpoint| endpoint.export().map(|export| (endpoint, export)));
    let all = gather_flags(mesh, exported.is_ok(), "staging memory")?;
    let (mut endpoint, (details, memory)) = exported?;
    if let Some(rank) = all.iter().position(|&ok| !ok) {
        return Err(Error::Internal(format!("rank {rank} could not allocate or export its staging memory")));
    }
    let parcels = vec![Parcel { bytes: &details, fds: vec![memory.as_fd()] }; n];
    let mut deliveries = mesh.exchange_fds(&parcels, "staging memory")?;
    drop(parcels);
    drop(memory);
    let mut failure = None;
    // From the next rank on, as the ring goes.
    for peer in (1..n).map(|distance| (rank + distance) % n) {
        let Delivery { bytes: details, fds } = std::mem::take(&mut deliveries[peer]);
        let memory = fds.into_iter().next();
        let memory = memory.ok_or_else(|| Error::Internal(format!("rank {peer} sent no staging memory")));
        if let Err(error) = memory.and_then(|memory| endpoint.import(peer, n, &details, memory)) {
            failure.get_or_insert(error);
        }
    }
    let mut arrived = u16::MAX;
    // Two patterns, so that neither an old one nor fresh memory can pass for the second.
    for seed in [0x5EED_0001u32, 0x9E37_79B9] {
        let seeds: Vec<u32> = (0..n as u32).map(|rank| seed.wrapping_mul(2 * rank + 1)).collect();
        for peer in (0..n).filter(|&peer| peer != rank) {
            if failure.is_none() {
                failure = endpoint.probe_send(peer, rank, n, seeds[rank]).err();
            }
        }
        mesh.barrier("pattern sent")?;
        match endpoint.probe_check(rank, &seeds) {
            Ok(there) => {
                let mask = |(peer, there): (usize, &bool)| if *there { 1 << peer } else { 0 };
                arrived &= there.iter().enumerate().map(mask).sum::<u16>();
            }
            // Kept for later: whoever leaves between two exchanges leaves the others in them.
            Err(error) => {
                arrived = 0;
                failure.get_or_insert(error);
            }
        }
        mesh.barrier("pattern checked")?;
    }
    let arrived = mesh.all_gather(&arrived.to_le_bytes(), "pattern arrived")?;
    let arrived = arrived.iter().map(|bytes| bytes.as_slice().try_into().map_or(0, u16::from_le_bytes)).collect();
    let sent = gather_flags(mesh, failure.is_none(), "pattern sent")?;
    match failure {
        // Told to the others by the flags; kept here for the message.
        Some(error) if place == Place::Host => Err(error),
        _ => Ok((endpoint, Shown { sent, arrived })),
    }
}

fn works<E>(opened: &Opened<E>) -> bool {
    opened.as_ref().is_ok_and(|(_, shown)| shown.broken().next().is_none())
}

fn describe_failure<E>(opened: &Opened<E>) -> String {
    match opened {
        Err(error) => error.to_string(),
        Ok((_, shown)) => {
            let pairs: Vec<_> = shown.broken().map(|(from, to)| format!("{from} -> {to}")).collect();
            format!("pattern test failed from rank to rank: {}", pairs.join(", "))
        }
    }
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

fn check_buffers(request: &Request, io: Io) -> Result<()> {
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

const _: () = assert!(STAGING_HEAD_BYTES.is_multiple_of(4096));
const _: () = assert!(MAX_RANKS <= 16, "a bit for each rank");

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::types::{DataType, Order, ReduceOp};

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
        }
        for bad in [(0x1000, 0x1000 + 198), (0x1002, 0x1000), (0, 0x1000), (0x1000, 0), (0x1001, 0x2000)] {
            check_buffers(&request(count), io(bad.0, bad.1)).unwrap_err();
        }
        check_buffers(&request(0), io(0, 0)).unwrap();
        check_buffers(&request(u64::MAX / 2), io(0x1000, 0x1000)).unwrap_err();
    }
}
