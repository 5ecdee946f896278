//! A device, and the making of a communicator's share of it.

use super::ZeEndpoint;
use super::host::HostWords;
use super::staging::Staging;
use crate::claim::Claim;
use crate::event::{Events, FIRST_EVENTS};
use crate::gpu::Gpu;
use crate::hooks;
use crate::line;
use crate::memory::{Allocation, Exported, SharedHost};
use crate::registry::Registry;
use crate::stream::Stream;
use ccl_core::Result;
use ccl_core::config::Config;
use ccl_core::device::{ClaimKey, Device, DeviceFacts, Place};
use ccl_core::protocol::{CommState, HostBlock, MAX_RANKS};
use parking_lot::Mutex;
use std::os::fd::AsFd as _;
use std::sync::{Arc, OnceLock};

/// A device, as `ccl-core` sees it.
pub(crate) struct ZeDevice {
    pub(crate) gpu: Arc<Gpu>,
    config: Config,
    hooks: u32,
    /// Where several communicators are made at once; kept until this one is.
    pub(crate) place: Option<line::PlaceInLine>,
    claim: Claim,
}

impl ZeDevice {
    /// Opens the device for `local_rank`. `hooks` are for tests.
    pub(crate) fn open(
        config: &Config,
        local_rank: usize,
        hooks: u32,
        place: Option<line::PlaceInLine>,
    ) -> Result<ZeDevice> {
        let gpu = Gpu::open(config, local_rank)?;
        let claim = Claim::new(gpu.index());
        Ok(ZeDevice { gpu, config: config.clone(), hooks, place, claim })
    }

    fn turn(&self) -> Result<()> {
        self.place.as_ref().map_or(Ok(()), |place| place.await_turn(line::patience(&self.config)))
    }
}

impl Device for ZeDevice {
    type Endpoint = ZeEndpoint;

    fn facts(&self) -> &DeviceFacts {
        &self.gpu.facts
    }

    fn await_turn(&self) -> Result<()> {
        if hooks::turns_within_claims() { Ok(()) } else { self.turn() }
    }

    fn claim(&self, key: ClaimKey) -> bool {
        if hooks::turns_within_claims() && self.turn().is_err() {
            return false;
        }
        hooks::makings_at_once() || self.claim.granted(key)
    }

    fn step_back(&self) {
        self.claim.step_back();
    }

    fn release(&self) {
        self.claim.withdraw();
    }

    fn reaches(&self, peer: &DeviceFacts) -> bool {
        hooks::on(self.hooks, hooks::PRETENDED_DEVICE) || self.gpu.reaches(peer)
    }

    fn open(&self, place: Place, staging_bytes: usize) -> Result<ZeEndpoint> {
        let gpu = &self.gpu;
        let bytes = staging_bytes.next_multiple_of(4096);
        let staging = match place {
            Place::Device => Staging::Device(Exported::new(Arc::new(Allocation::device(gpu, bytes)?))?),
            Place::Host => {
                let memory = SharedHost::create(bytes)?;
                Staging::Host(SharedHost::map(gpu, memory.as_fd(), bytes)?, memory)
            }
        };
        let counter = gpu.counter_events(self.config.events)?;
        let mut events = Events::new(gpu, counter);
        events.grow(FIRST_EVENTS)?;
        let endpoint = ZeEndpoint {
            staging: Arc::new(staging),
            bytes,
            peers: Arc::default(),
            table: Arc::new(Allocation::device(gpu, MAX_RANKS * 8)?),
            state: Arc::new(Allocation::device(gpu, size_of::<CommState>())?),
            host: Arc::new(HostWords::new(Allocation::host(gpu, size_of::<HostBlock>())?, gpu.facts.uuid, self.hooks)),
            form: None,
            stream: Stream::new(gpu, 0)?,
            events: gpu.turn.cell(events),
            loose_events: gpu.turn.cell(Events::new(gpu, false)),
            queue_events: Mutex::default(),
            counter,
            registry: Arc::new(Registry::new(gpu)),
            mhc: OnceLock::new(),
            memory: OnceLock::new(),
            recordings: Mutex::default(),
            tables: Mutex::default(),
            hooks: self.hooks,
            gpu: gpu.clone(),
        };
        if hooks::on(self.hooks, hooks::POISON_STAGING) {
            endpoint.fill(endpoint.staging.address(), 0xFF, bytes)?;
        }
        endpoint.clear_staging()?;
        endpoint.host.clear();
        Ok(endpoint)
    }
}
