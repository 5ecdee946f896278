//! A device that is in use by this process: context, modules, and the chain that keeps its collectives one at a time.

use crate::api::{Api, ze};
use crate::capture::Graphs;
use crate::chain::{Chain, Finished};
use crate::driver;
use crate::kernels::Family;
use crate::module::Modules;
use crate::sycl::{Bridge, Recordings, SyclDevice, TellsIdle};
use ccl_core::config::{Config, EventChoice};
use ccl_core::device::{DeviceFacts, DeviceFamily};
use ccl_core::protocol::LineForm;
use ccl_core::{Error, Result};
use level_zero_sys::*;
use parking_lot::{Condvar, Mutex};
use qcell::QCellOwnerID;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// A device in use. One per device and process, so that its collectives are chained whatever communicator issues them.
pub(crate) struct Gpu {
    // Fields are dropped in this order: what was made in the context before it.
    pub(crate) chain: Mutex<Chain>,
    /// The next place in the chain has become free.
    pub(crate) places: Condvar,
    /// Makes what the chain's turn opens.
    pub(crate) turn: QCellOwnerID,
    pub(crate) modules: Modules,
    /// None if the context is the SYCL runtime's.
    _owned: Option<OwnedContext>,
    pub(crate) context: ze_context_handle_t,
    pub(crate) device: ze_device_handle_t,
    pub(crate) facts: DeviceFacts,
    pub(crate) ordinals: Vec<u32>,
    /// Which of the chain's collectives have finished.
    pub(crate) finished: Finished,
    pub(crate) graphs: Graphs,
    /// SYCL graphs that are being recorded.
    pub(crate) sycl_graphs: Recordings,
    /// See [`crate::sycl::Queue::tells_idle`]; known with the first queue.
    pub(crate) queues_tell_idle: OnceLock<TellsIdle>,
    /// Whether the driver tells of a queue's command list that it records it; likewise.
    pub(crate) lists_of_queues_tell: OnceLock<bool>,
    /// The bridge to the runtime whose context this is, or why there is none.
    bridge: Result<&'static Bridge>,
    /// See [`Gpu::patience`].
    patience_ms: AtomicU64,
    pub(crate) api: Arc<Api>,
    index: usize,
}

// SAFETY: Level Zero lets any thread use context, device and module handles; they live until `drop`.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

static IN_USE: Mutex<Vec<Weak<Gpu>>> = Mutex::new(Vec::new());

impl Gpu {
    /// Opens device `local_rank`, as the driver numbers them (which honours ZE_AFFINITY_MASK).
    pub(crate) fn open(config: &Config, local_rank: usize) -> Result<Arc<Gpu>> {
        let mut in_use = IN_USE.lock();
        in_use.retain(|gpu| gpu.strong_count() > 0);
        let api = driver::open(config.device)?;
        let devices = driver::devices(&api.table, api.driver).map_err(|code| api.error("zeDeviceGet", code))?;
        let (bridge, shared) = shared_devices(&api, &devices);
        // Numbered as the runtime does, whose programs choose by its numbers.
        let devices: Vec<ze_device_handle_t> = match &shared[..] {
            [] => devices,
            shared => shared.iter().map(|one| one.device).collect(),
        };
        let index = match devices.len() {
            0 => return Err(Error::InvalidUsage("the driver has no device".into())),
            count if local_rank < count => local_rank,
            count if config.allow_shared_device => local_rank % count,
            count => {
                return Err(Error::InvalidUsage(format!(
                    "local rank {local_rank} needs a device of its own, but there are {count}; \
                     CCLX_ALLOW_SHARED_DEVICE=1 lets ranks share (the software driver shows ZE_SOFT_DEVICES devices)"
                )));
            }
        };
        let properties = driver::device_properties(&api.table, devices[index])
            .ok_or_else(|| Error::Device { call: "zeDeviceGetProperties".into(), detail: "no properties".into() })?;
        // However it was asked for: two of one device would not know each other's collectives.
        let same = |gpu: &Arc<Gpu>| gpu.facts.uuid == properties.uuid.id && gpu.api.route() == api.route();
        if let Some(gpu) = in_use.iter().filter_map(Weak::upgrade).find(same) {
            gpu.expect_calls_of(config.timeout);
            return Ok(gpu);
        }
        let gpu = Arc::new(Self::create(api, devices[index], shared.get(index), bridge, &properties, index, config)?);
        gpu.expect_calls_of(config.timeout);
        in_use.push(Arc::downgrade(&gpu));
        Ok(gpu)
    }

    /// How long unfinished collectives are waited for when their memory is to go: their kernels give up before, whichever of
    /// the device's communicators they are of.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms.load(Ordering::Relaxed))
    }

    /// A communicator whose calls may take so long uses the device.
    fn expect_calls_of(&self, timeout: Duration) {
        let patience = timeout.saturating_mul(3).saturating_add(Duration::from_secs(10));
        self.patience_ms.fetch_max(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn create(
        api: Arc<Api>,
        device: ze_device_handle_t,
        shared: Option<&SyclDevice>,
        bridge: Result<&'static Bridge>,
        properties: &ze_device_properties_t,
        index: usize,
        config: &Config,
    ) -> Result<Gpu> {
        // SAFETY: the driver fills the name with a terminated string within its array.
        let name = unsafe { CStr::from_ptr(properties.name.as_ptr()) }.to_string_lossy().into_owned();
        let ordinals = compute_ordinals(&api, device)?;
        let (context, _owned) = match shared {
            Some(shared) => (shared.context, None),
            None => {
                let owned = OwnedContext::create(&api)?;
                (owned.context, Some(owned))
            }
        };
        let on_gpu = plays_on_gpu(&api, properties);
        let facts = DeviceFacts {
            uuid: properties.uuid.id,
            name,
            driver: describe_driver(&api, on_gpu),
            software: api.software,
            // The software driver's memory is a processor's, of which `ccl_core::slot` knows the order; of any other
            // link nothing is known yet.
            granule: if api.software { 64 } else { 8 },
            resident_groups: 0,
            push: true,
            // The order of two stores is shown for a processor's memory only.
            bulk: api.software,
            native: crate::module::is_native(&api, device)?,
            family: match api.software {
                true if on_gpu => DeviceFamily::Cuda,
                true => DeviceFamily::Software,
                false => DeviceFamily::IntelPcie,
            },
        };
        let chain = Chain::new();
        let turn = chain.turn.id();
        let mut gpu = Gpu {
            chain: Mutex::new(chain),
            places: Condvar::new(),
            turn,
            modules: Modules::new(turn, bridge.is_ok() || crate::hooks::packed()),
            _owned,
            context,
            device,
            facts,
            ordinals,
            finished: Finished::default(),
            graphs: Graphs::default(),
            sycl_graphs: Recordings::default(),
            queues_tell_idle: OnceLock::new(),
            lists_of_queues_tell: OnceLock::new(),
            bridge,
            patience_ms: AtomicU64::new(0),
            api,
            index,
        };
        // What is agreed on in the end may be narrower; it is loaded then.
        let widest = if config.granule == 0 { gpu.facts.granule } else { config.granule };
        gpu.load(Family::Probe)?;
        gpu.load_for(LineForm::from_granule(widest as usize).unwrap_or(LineForm::L8))?;
        gpu.facts.resident_groups = gpu.modules.resident_groups();
        Ok(gpu)
    }

    /// Compiles the collectives' kernels for lines of `form`, and those without lines if the device is one for them.
    pub(crate) fn load_for(&self, form: LineForm) -> Result<()> {
        self.load(Family::Ring(form))?;
        self.load(Family::Push(form))?;
        self.load(Family::Channel(form))?;
        if self.facts.bulk {
            self.load(Family::Bulk)?;
            self.load(Family::ChannelBulk)?;
        }
        Ok(())
    }

    /// Compiles a family of kernels for this device, unless it is there already.
    pub(crate) fn load(&self, family: Family) -> Result<()> {
        self.modules.load(family, &self.api, self.context, self.device, self.facts.family)
    }

    /// The bridge to the SYCL runtime whose context this device is used in.
    #[inline]
    pub(crate) fn bridge(&self) -> Result<&'static Bridge> {
        match &self.bridge {
            Ok(bridge) => Ok(bridge),
            Err(error) => Err(error.clone()),
        }
    }

    /// The device's number among those that the driver shows.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Whether this device may store into that one's memory. A device that this process can't see may be reachable all
    /// the same: the pattern test will tell.
    pub(crate) fn reaches(&self, peer: &DeviceFacts) -> bool {
        if peer.uuid == self.facts.uuid {
            return true;
        }
        let table = &self.api.table;
        let devices = driver::devices(table, self.api.driver).unwrap_or_default();
        let same = |device: &ze_device_handle_t| {
            driver::device_properties(table, *device).is_some_and(|p| p.uuid.id == peer.uuid)
        };
        let Some(peer) = devices.into_iter().find(same) else { return true };
        let mut yes = 0;
        // SAFETY: two live devices and a place for the answer.
        let asked = unsafe { ze!(self.api, zeDeviceCanAccessPeer(self.device, peer, &raw mut yes)) };
        asked.is_ok() && yes != 0
    }

    /// Whether events are counter-based, given what was asked for and what the driver has.
    pub(crate) fn counter_events(&self, choice: EventChoice) -> Result<bool> {
        match (choice, self.api.table.zeEventCounterBasedCreate.is_some()) {
            (EventChoice::Regular, _) => Ok(false),
            (EventChoice::Auto, available) => Ok(available),
            (EventChoice::Counter, true) => Ok(true),
            (EventChoice::Counter, false) => Err(Api::lacks("zeEventCounterBasedCreate (CCLX_EVENTS=counter)")),
        }
    }
}

/// Destroys the context.
struct OwnedContext {
    api: Arc<Api>,
    context: ze_context_handle_t,
}

impl OwnedContext {
    fn create(api: &Arc<Api>) -> Result<OwnedContext> {
        let desc = ze_context_desc_t::default();
        let mut context = std::ptr::null_mut();
        // SAFETY: a live driver; descriptor and output outlive the call.
        unsafe { ze!(api, zeContextCreate(api.driver, &raw const desc, &raw mut context))? };
        Ok(OwnedContext { api: api.clone(), context })
    }
}

impl Drop for OwnedContext {
    fn drop(&mut self) {
        // SAFETY: everything made in the context holds an `Arc` of the `Gpu`, or was dropped before this, and so is
        // gone. A failure can't be helped here.
        let _ = unsafe { ze!(self.api, zeContextDestroy(self.context)) };
    }
}

/// The bridge to the SYCL runtime that the process has loaded, or why there is none, and the runtime's devices if they are
/// this driver's: their context is taken instead of one of our own, so that queues of theirs can be submitted to.
fn shared_devices(api: &Api, devices: &[ze_device_handle_t]) -> (Result<&'static Bridge>, Vec<SyclDevice>) {
    let refuse = |why: &str| (Err(Error::NotImplemented(format!("a SYCL queue: {why}"))), Vec::new());
    if !api.is_shared() {
        return refuse("the communicator is on the software driver inside this library; CCLX_DEVICE=loader or intel");
    }
    let known = Bridge::of_process().and_then(|bridge| match bridge {
        Some(bridge) => Ok(Some((bridge, bridge.devices()?))),
        None => Ok(None),
    });
    match known {
        Ok(Some((bridge, known))) if !known.is_empty() && known.iter().all(|one| devices.contains(&one.device)) => {
            (Ok(bridge), known)
        }
        Ok(Some(_)) => refuse("the SYCL runtime has other devices than the driver that the communicator uses"),
        Ok(None) => refuse("the SYCL runtime (libsycl.so.8 or .9) was not loaded when the communicator was made"),
        Err(error) => {
            tracing::warn!("{error}");
            (Err(error), Vec::new())
        }
    }
}

/// Whether the software driver's device is an NVIDIA GPU.
#[cfg(feature = "soft")]
fn plays_on_gpu(api: &Api, properties: &ze_device_properties_t) -> bool {
    api.software && properties.deviceId == ze_soft::ext::GPU_DEVICE_ID
}

#[cfg(not(feature = "soft"))]
fn plays_on_gpu(_: &Api, _: &ze_device_properties_t) -> bool {
    false
}

fn describe_driver(api: &Api, on_gpu: bool) -> String {
    let mut properties = ze_driver_properties_t::default();
    // SAFETY: a live driver and a descriptor of the right type.
    let version = match unsafe { ze!(api, zeDriverGetProperties(api.driver, &raw mut properties)) } {
        Ok(()) => properties.driverVersion,
        Err(_) => 0,
    };
    let kind = match api.software {
        true if on_gpu => "software driver on an NVIDIA GPU (no Intel GPU is used)",
        true => "software driver on the CPU (no GPU is used)",
        false => "Intel driver",
    };
    format!("{kind}, {}, version {version:#x}", api.route())
}

/// Ordinals of the queue groups that run kernels.
fn compute_ordinals(api: &Api, device: ze_device_handle_t) -> Result<Vec<u32>> {
    let mut count = 0;
    // SAFETY: a live device; null asks for the number only.
    unsafe {
        ze!(api, zeDeviceGetCommandQueueGroupProperties(device, &raw mut count, std::ptr::null_mut()))?;
    }
    let mut groups = vec![ze_command_queue_group_properties_t::default(); count as usize];
    // SAFETY: room for `count` descriptors of the right type.
    unsafe { ze!(api, zeDeviceGetCommandQueueGroupProperties(device, &raw mut count, groups.as_mut_ptr()))? };
    let ordinals: Vec<u32> = (0..)
        .zip(&groups)
        .filter(|(_, group)| group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE != 0)
        .map(|(ordinal, _)| ordinal)
        .collect();
    if ordinals.is_empty() {
        Err(Error::NotImplemented("a device without a compute queue".into()))
    } else {
        Ok(ordinals)
    }
}

#[cfg(all(test, feature = "soft"))]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use ccl_core::config::DeviceChoice;

    #[test]
    fn the_most_patient_communicator_decides() {
        let open = |seconds| {
            let timeout = Duration::from_secs(seconds);
            Gpu::open(&Config { device: DeviceChoice::Soft, timeout, ..Config::default() }, 3).unwrap()
        };
        let gpus = [2, 100, 1].map(open);
        assert!(Arc::ptr_eq(&gpus[0], &gpus[1]), "a device is opened once");
        assert_eq!(gpus[0].patience(), Duration::from_secs(310));
    }
}
