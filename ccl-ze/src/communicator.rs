//! The Rust API: communicators on Level Zero devices.

mod checks;
mod collectives;
#[cfg(all(test, feature = "soft", feature = "test-hooks"))]
mod overlap;
mod split;

use crate::bounds;
use crate::buffer::{Buffer, Element};
use crate::completion::Completion;
use crate::endpoint::{Completed, ZeDevice};
use crate::gpu::Gpu;
use crate::kernel::KernelFacts;
use crate::line::PlaceInLine;
use crate::list::CommandList;
use crate::saving::Saving;
use crate::stream::Stream;
use crate::sycl::Queue;
use ccl_core::bootstrap::{self, UniqueId};
use ccl_core::comm::{self, FaultHandler, Health, StartState};
use ccl_core::config::{Check, Config, OnError};
use ccl_core::device::{Edges, Io, Place};
use ccl_core::mesh::Mesh;
use ccl_core::plan::{Plan, Request};
use ccl_core::{DataType, Error, ReduceOp, Result};
use level_zero_sys::{
    ze_command_list_handle_t, ze_context_handle_t, ze_device_handle_t, ze_driver_handle_t, ze_event_handle_t,
};
use std::ffi::c_void;
use std::io::Write as _;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// Settings of a communicator to be.
pub struct Builder {
    config: Config,
    local_rank: Option<usize>,
    start: StartState,
    on_fault: Option<FaultHandler>,
    place: Option<PlaceInLine>,
}

impl Builder {
    /// The configuration, instead of the environment's.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The device: its number as the driver shows it. Otherwise LOCAL_RANK, otherwise the rank.
    pub fn device(mut self, local_rank: usize) -> Self {
        self.local_rank = Some(local_rank);
        self
    }

    /// Called once, from another thread, with the failure that poisons the communicator. Otherwise CCLX_ON_ERROR
    /// decides: `log` (the default here) logs it, `abort` ends the process.
    pub fn on_fault(mut self, handler: impl Fn(&Error) + Send + 'static) -> Self {
        self.on_fault = Some(Box::new(handler));
        self
    }

    /// Its place in line, where several communicators are made at once.
    pub fn place(mut self, place: PlaceInLine) -> Self {
        self.place = Some(place);
        self
    }

    /// For tests.
    #[cfg(feature = "test-hooks")]
    #[doc(hidden)]
    pub fn start(mut self, start: StartState) -> Self {
        self.start = start;
        self
    }

    /// Joins the group of `id` as `rank` of `world_size`; returns when all ranks have.
    pub fn init(mut self, id: &UniqueId, rank: usize, world_size: usize) -> Result<Communicator> {
        // What this rank alone can get wrong is found before the others are met, who are told not to wait for it.
        let device = self.open(rank).inspect_err(|error| bootstrap::decline(id, rank, world_size, error))?;
        let mesh = bootstrap::join(id, rank, world_size, self.config.connection_timeout)?;
        self.form(device, mesh)
    }

    /// Forms a group of one mesh, as from [`bootstrap::local`] for ranks that are threads of one process. Every rank's
    /// thread calls this.
    pub fn init_local(mut self, mesh: Mesh) -> Result<Communicator> {
        let device = match self.open(mesh.rank()) {
            Ok(device) => device,
            Err(error) => {
                mesh.abandon(&error);
                return Err(error);
            }
        };
        self.form(device, mesh)
    }

    fn open(&mut self, rank: usize) -> Result<ZeDevice> {
        self.config.check()?;
        if let Some(directory) = &self.config.capture {
            Saving::check(directory)?;
        }
        static TOLD: Once = Once::new();
        if !self.config.ignored().is_empty() {
            TOLD.call_once(|| {
                tracing::warn!("these variables have no effect here: {}", self.config.ignored().join(" "))
            });
        }
        #[cfg(feature = "test-hooks")]
        {
            self.start.hooks |= crate::hooks::EVERYWHERE.load(std::sync::atomic::Ordering::Relaxed);
        }
        let local_rank = self.local_rank.or(self.config.local_rank.map(|r| r as usize)).unwrap_or(rank);
        let device = ZeDevice::open(&self.config, local_rank, self.start.hooks, self.place.take())?;
        if let Some(place) = &device.place {
            place.on_device(device.gpu.index());
        }
        Ok(device)
    }

    fn form(self, device: ZeDevice, mesh: Mesh) -> Result<Communicator> {
        let on_fault = self.on_fault.unwrap_or_else(|| default_handler(&self.config, mesh.rank(), mesh.world_size()));
        let gpu = device.gpu.clone();
        let core = comm::Communicator::init(&device, mesh, &self.config, &self.start, on_fault)?;
        let saving = Saving::start(&core, &gpu, &self.config, self.start.hooks)?.map(Arc::new);
        let plain = self.config.check == Check::Off && saving.is_none();
        Ok(Communicator { core, gpu, config: self.config, saving, plain })
    }
}

/// A recording answers for the communicators whose calls it holds.
fn recorded(call: &Completed, health: &Arc<Health>) {
    if let Completed::Recorded(recording, _) = call {
        recording.answer_for(health);
    }
}

/// What CCLX_ON_ERROR asks for.
fn default_handler(config: &Config, rank: usize, n: usize) -> FaultHandler {
    let ends = config.on_error == Some(OnError::Abort);
    let elsewhere = config.log_file.is_some();
    Box::new(move |error| {
        if !ends {
            tracing::error!("rank {rank} of {n}: {error}");
            return;
        }
        let message = format!("rank {rank} of {n}: {error}; the process ends (CCLX_ON_ERROR=log would keep it)\n");
        // A process that ends says why on standard error, whether it has a log or not; in one write, so that the
        // messages of several ranks don't mix.
        let _ = std::io::stderr().write_all(message.as_bytes());
        if elsewhere {
            tracing::error!("{}", message.trim_end());
        }
        // Whatever the process would compute from here on would rest on a wrong result.
        std::process::abort();
    })
}

/// A group of ranks that reduce together, and this rank's device in it. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Communicator {
    core: comm::Communicator<ZeDevice>,
    gpu: Arc<Gpu>,
    config: Config,
    /// With `CCLX_CAPTURE`.
    saving: Option<Arc<Saving>>,
    /// Whether calls are neither checked more than they have to be nor saved.
    plain: bool,
}

/// What orders a call besides its stream. Events may be regular or counter-based, ours or the caller's, also such as were
/// opened from another process's handles.
///
/// A regular event that a call is to signal has to be reset before each call and each replay, by whoever owns it: one that
/// is still signalled from the time before lets its waiters go early.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions<'a> {
    /// The call begins after these. Whatever comes after it on the stream may do so too if the call is refused: they have to
    /// come all the same.
    pub after: &'a [ze_event_handle_t],
    /// The call signals this as its last act. Of a kind that the list can't signal it is refused with the call, and nothing is
    /// enqueued; except on an immediate list that isn't in order, which can't signal counter-based events: the error then says
    /// that the call runs all the same, and the memory has to stay until the list has finished.
    pub signal: Option<ze_event_handle_t>,
}

/// What a communicator turned out to be, in plain words and numbers.
#[derive(Clone, Debug)]
pub struct Description {
    /// A number that is alike on all ranks, and like no other communicator's as far as chance goes.
    pub name: u32,
    /// The driver, and how it was reached.
    pub driver: String,
    /// The device.
    pub device: String,
    /// The device's number.
    pub device_index: usize,
    /// Whether it is the software device.
    pub software: bool,
    /// Whether peers store into device memory directly.
    pub p2p: bool,
    /// Bytes of a line.
    pub granule: usize,
    /// Whether data and flag may be stored apart, as long messages want it.
    pub bulk: bool,
    /// Most work-groups of one collective.
    pub max_wires: u32,
    /// Bytes of staging memory on this rank.
    pub staging_bytes: usize,
}

/// The handles of Level Zero that a communicator uses, for lists and events of the caller's. They live as long as it does.
#[derive(Clone, Copy, Debug)]
pub struct Handles {
    /// The driver.
    pub driver: ze_driver_handle_t,
    /// The context.
    pub context: ze_context_handle_t,
    /// The device.
    pub device: ze_device_handle_t,
}

impl Communicator {
    /// Starts from the environment's configuration (docs/environment.md).
    pub fn builder() -> Result<Builder> {
        Ok(Self::builder_with(Config::from_env()?))
    }

    /// Starts from `config`; the environment is not read.
    pub fn builder_with(config: Config) -> Builder {
        Builder { config, local_rank: None, start: StartState::default(), on_fault: None, place: None }
    }

    /// This rank.
    #[inline]
    pub fn rank(&self) -> usize {
        self.core.rank()
    }

    /// Number of ranks.
    #[inline]
    pub fn world_size(&self) -> usize {
        self.core.world_size()
    }

    /// What it is made of.
    pub fn describe(&self) -> Description {
        let info = self.core.info();
        Description {
            name: info.name,
            driver: self.gpu.facts.driver.clone(),
            device: self.gpu.facts.name.clone(),
            device_index: self.gpu.index(),
            software: self.gpu.facts.software,
            p2p: info.place == Place::Device,
            granule: info.agreed.form.granule(),
            bulk: info.agreed.bulk_bytes > 0,
            max_wires: info.agreed.max_wires,
            staging_bytes: info.staging_bytes,
        }
    }

    /// The device's number.
    #[inline]
    pub fn device_index(&self) -> usize {
        self.gpu.index()
    }

    /// Whether an address lies in memory that the device's context has allocated, or been told of; what doesn't is the host's
    /// own.
    pub fn has_allocated(&self, address: *const c_void) -> bool {
        bounds::range(&self.gpu, address).is_some()
    }

    /// What lists and events of the caller's have to be made of.
    pub fn handles(&self) -> Handles {
        Handles { driver: self.gpu.api.driver, context: self.gpu.context, device: self.gpu.device }
    }

    /// Level Zero calls that this library has made on this device's driver so far.
    pub fn level_zero_calls(&self) -> u64 {
        self.gpu.api.calls()
    }

    /// For tests: what the driver says of the device kernels.
    #[doc(hidden)]
    pub fn kernels(&self) -> Vec<KernelFacts> {
        self.gpu.modules.facts().cloned().collect()
    }

    /// A stream on one of the device's compute queues, counted from 0.
    pub fn stream(&self, queue: usize) -> Result<Stream> {
        Stream::new(&self.gpu, queue)
    }

    /// A stream on a command list of the caller's: immediate, in order or not, or regular and open. What is appended to an
    /// immediate list while the caller captures it becomes part of the graph.
    ///
    /// The stream of a regular list keeps what the recorded calls need: it has to outlive the list's last execution, and to
    /// be made anew when the list is reset.
    ///
    /// # Safety
    /// The list must be of this communicator's device and context and outlive the stream; a regular one may be executed only
    /// while the stream lives, a graph that was captured from it only while the graph lives that its executables come from.
    pub unsafe fn stream_from_raw(&self, list: ze_command_list_handle_t) -> Result<Stream> {
        Stream::wrap(&self.gpu, list)
    }

    /// A stream on a SYCL queue (docs/sycl.md): in order, of the device and of SYCL's default context. Calls are submitted
    /// through the SYCL runtime, in the queue's order, and are recorded where the queue records. Work that is to be ordered
    /// with them goes to the queue; Level Zero's events can neither be waited for nor signalled. The queue is kept alive.
    ///
    /// # Safety
    /// `queue` is a live `sycl::queue` of the runtime that the process has loaded.
    pub unsafe fn stream_from_queue(&self, queue: *const c_void) -> Result<Arc<Stream>> {
        // SAFETY: passed on to the caller.
        unsafe { Stream::on_queue(&self.gpu, queue) }
    }

    /// What tells a live queue from others, for whoever keeps the streams of several.
    ///
    /// # Safety
    /// As for [`Self::stream_from_queue`].
    #[inline(always)]
    pub unsafe fn key_of_queue(&self, queue: *const c_void) -> Result<usize> {
        let bridge = self.gpu.bridge()?;
        // SAFETY: passed on to the caller.
        Ok(unsafe { Queue::key(bridge, queue) })
    }

    /// A regular command list to record calls in, for one of the device's compute queues.
    pub fn command_list(&self, queue: usize) -> Result<CommandList> {
        CommandList::new(&self.gpu, queue)
    }

    /// Device memory for `len` elements; its content is not defined.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::new(&self.gpu, len)
    }

    pub(crate) fn core(&self) -> &comm::Communicator<ZeDevice> {
        &self.core
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn saving(&self) -> Option<&Saving> {
        self.saving.as_deref()
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The plan that a call would run; it prints as one line.
    pub fn plan(&self, request: &Request) -> Result<Plan> {
        self.core.plan(request)
    }

    /// The failure that poisoned this communicator, if any.
    pub fn fault(&self) -> Option<Error> {
        self.core.fault()
    }

    /// Whether the calls that have ended were right. Of a fault that the device has just reported this waits until it is known
    /// which rank is to blame.
    pub fn check_ended(&self) -> Result<()> {
        self.core.check_ended()
    }

    /// Tells the other ranks that this process is about to end, so that its end is not taken for a death. For programs that
    /// end without dropping their communicators.
    pub fn leave(&self) {
        self.core.leave();
    }

    /// Gives up all collectives in flight, here and on the other ranks. May be called from any thread.
    pub fn abort(&self, why: &str) {
        self.core.abort(why);
    }

    /// Waits until all that is under way has finished, at most so long: true if dropping the communicator waits for nothing.
    pub fn is_over_within(&self, limit: Duration) -> bool {
        let now = Instant::now();
        self.core.endpoint().is_over_by(now.checked_add(limit).unwrap_or(now))
    }

    /// `recv = op over ranks of send`, on every rank. Ordered on `stream`; returns once it is appended.
    pub fn all_reduce<T: Element>(
        &self,
        send: &Buffer<T>,
        recv: &mut Buffer<T>,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<Completion> {
        if send.len() != recv.len() {
            return Err(Error::InvalidArgument(format!(
                "the send buffer has {} elements, the receive buffer {}",
                send.len(),
                recv.len()
            )));
        }
        send.check_gpu(&self.gpu, "send")?;
        let completion = self.typed(send.address(), recv, op, stream)?;
        send.used_by(completion.device());
        Ok(completion)
    }

    /// The same with the result in the input's place.
    pub fn all_reduce_in_place<T: Element>(
        &self,
        buffer: &mut Buffer<T>,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<Completion> {
        self.typed(buffer.address(), buffer, op, stream)
    }

    fn typed<T: Element>(
        &self,
        send: *const c_void,
        recv: &mut Buffer<T>,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<Completion> {
        recv.check_gpu(&self.gpu, "receive")?;
        let request = self.request(recv.len() as u64, T::DATATYPE, op);
        // SAFETY: the buffers have that many elements, and keep their memory until the call has finished.
        let completion = unsafe { self.all_reduce_raw(&request, send, recv.address(), stream, &[])? };
        recv.used_by(completion.device());
        Ok(completion)
    }

    /// A request in the configured order and in one row.
    #[inline(always)]
    pub fn request(&self, count: u64, dtype: DataType, op: ReduceOp) -> Request {
        Request { count, dtype, op, order: self.config.order, period: None, registered: None }
    }

    /// The same on raw device addresses, after the events in `after` as well.
    ///
    /// # Safety
    /// As for [`Self::all_reduce_with`].
    #[inline]
    pub unsafe fn all_reduce_raw(
        &self,
        request: &Request,
        send: *const c_void,
        recv: *mut c_void,
        stream: &Stream,
        after: &[ze_event_handle_t],
    ) -> Result<Completion> {
        // SAFETY: passed on to the caller.
        unsafe { self.all_reduce_with(request, send, recv, stream, CallOptions { after, signal: None }) }
    }

    /// The same of a call like one before it, for which few checks are enough and that nobody waits for: `None` if this isn't
    /// one. Nothing was done then, and [`Self::all_reduce_raw`] is what makes or refuses it. `op` takes no factor.
    ///
    /// # Safety
    /// As for [`Self::all_reduce_with`].
    // Always inlined, as what it leads to: a call is short, and functions that hand it on would be most of it.
    #[inline(always)]
    pub unsafe fn all_reduce_plainly(
        &self,
        (count, dtype, op): (u64, DataType, ReduceOp),
        send: *const c_void,
        recv: *mut c_void,
        stream: &Stream,
    ) -> Option<Result<()>> {
        if !self.plain || matches!(op, ReduceOp::PreMulSum(_)) {
            return None;
        }
        let request = self.request(count, dtype, op);
        // SAFETY: passed on to the caller.
        unsafe { self.core.all_reduce_plainly(&request, Io { send, recv }, stream, recorded) }
    }

    /// The same with all options.
    ///
    /// # Safety
    /// `send` and `recv` must hold `request.count` elements until the completion says so, or as long as what records the
    /// stream may be replayed; the events must be live, of the device's context.
    #[inline]
    pub unsafe fn all_reduce_with(
        &self,
        request: &Request,
        send: *const c_void,
        recv: *mut c_void,
        stream: &Stream,
        options: CallOptions<'_>,
    ) -> Result<Completion> {
        let io = Io { send, recv };
        if self.config.check != Check::Off {
            self.check_memory(request, io)?;
        }
        let submit = |after: &[ze_event_handle_t]| {
            let edges = Edges { after, signal: options.signal };
            // SAFETY: passed on to the caller.
            unsafe { self.core.all_reduce(request, io, stream, edges) }.map(Completion::of_call)
        };
        match &self.saving {
            None => submit(options.after),
            // SAFETY: as above.
            Some(saving) => unsafe { saving.around(&self.core, request, io, stream, options, submit) },
        }
    }
}
