//! What a communicator asks of a device. The cut is at the level of a whole collective, never of a step: a device is
//! given a plan and executes all of it in one submission.
//!
//! `ccl-ze` is the one real implementer; this crate's tests use a small fake.

use crate::collective::Pieces;
use crate::error::Result;
use crate::plan::channel::ChannelPlan;
use crate::plan::{Plan, Registered, Request};
use crate::protocol::{CommState, LineForm};
use crate::watch::Alarm;
use serde::{Deserialize, Serialize};
use std::ffi::c_void;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Devices for which one table of algorithms serves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceFamily {
    /// The software device: a processor and its memory.
    Software,
    /// Intel GPUs that reach each other over PCIe.
    IntelPcie,
    /// Intel GPUs with Xe Link.
    IntelXelink,
    /// NVIDIA GPUs.
    Cuda,
}

impl DeviceFamily {
    /// All of them.
    pub const ALL: [DeviceFamily; 4] =
        [DeviceFamily::Software, DeviceFamily::IntelPcie, DeviceFamily::IntelXelink, DeviceFamily::Cuda];
}

impl fmt::Display for DeviceFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DeviceFamily::Software => "software",
            DeviceFamily::IntelPcie => "intel-pcie",
            DeviceFamily::IntelXelink => "intel-xelink",
            DeviceFamily::Cuda => "cuda",
        })
    }
}

/// What a rank tells the others about its device. Everything that selection reads is agreed from these.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Identifies the physical device on this host.
    pub uuid: [u8; 16],
    /// For people.
    pub name: String,
    /// Driver, for people.
    pub driver: String,
    /// Whether the device is the software one.
    pub software: bool,
    /// Bytes that can't be seen torn on this device's links.
    pub granule: u32,
    /// Work-groups that are certain to run at the same time.
    pub resident_groups: u32,
    /// Whether it has the kernels that push to every peer.
    pub push: bool,
    /// Whether whoever sees a flag that was stored after data, with release, sees the data, also on the peers' side.
    pub bulk: bool,
    /// Which table of algorithms serves it.
    pub family: DeviceFamily,
    /// Whether its kernels are functions of this library's.
    pub native: bool,
}

/// Where the staging memory of a communicator lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the receiver's device memory; peers store into it directly.
    Device,
    /// In host memory shared between the ranks.
    Host,
}

/// Buffers of one call. Both hold the plan's `count` elements and are the same range or do not overlap.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// Input, only read.
    pub send: *const c_void,
    /// Output.
    pub recv: *mut c_void,
}

/// What orders a call besides its stream.
#[derive(Clone, Copy, Debug)]
pub struct Edges<'a, Event> {
    /// The call begins after these.
    pub after: &'a [Event],
    /// The call signals this as its last act.
    pub signal: Option<Event>,
}

/// What stands for a communicator that is being made: alike on all its ranks, and like no other's as far as chance goes.
pub type ClaimKey = (u32, u64);

/// A device that collectives run on.
pub trait Device: Send + Sync + 'static {
    /// A communicator's share of the device.
    type Endpoint: Endpoint;

    /// What the other ranks need to know of it.
    fn facts(&self) -> &DeviceFacts;

    /// Waits until communicators that this process makes before have left the device; once the ranks know of each other.
    fn await_turn(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the device is this communicator's alone now, of those that are being made. If it isn't, it is asked for again.
    fn claim(&self, _key: ClaimKey) -> bool {
        true
    }

    /// The device did not go to this communicator on all ranks: others may have it here meanwhile.
    fn step_back(&self) {}

    /// The communicator is made, or not going to be: the device is for others.
    fn release(&self) {}

    /// Whether the driver lets this device store into `peer`'s memory.
    fn reaches(&self, peer: &DeviceFacts) -> bool;

    /// Allocates a communicator's memory: `staging_bytes` in `place`, cleared, and its state and host block.
    fn open(&self, place: Place, staging_bytes: usize) -> Result<Self::Endpoint>;
}

/// A communicator's memory on a device, and the way to run collectives on it.
pub trait Endpoint: Send + Sync + 'static {
    /// An ordered stream of work.
    type Stream;
    /// Tells when one call has finished.
    type Completion: Completion;
    /// A plan made ready.
    type Executable: Send + Sync;
    /// Memory of the device that a caller can register.
    type Memory;
    /// Something a call can be told to wait for.
    type Event: Copy;

    /// A descriptor of the staging memory and what else the importer needs to know.
    fn export(&self) -> Result<(Vec<u8>, OwnedFd)>;

    /// Maps the staging memory of another rank, `peer` of `n`. Called once for each, before `probe_send`.
    fn import(&mut self, peer: usize, n: usize, details: &[u8], memory: OwnedFd) -> Result<()>;

    /// Stores a pattern made from `seed`, with a kernel, into the part of `peer`'s staging memory that belongs to the
    /// pattern of `rank`, this one of `n`; returns when it is done.
    fn probe_send(&self, peer: usize, rank: usize, n: usize, seed: u32) -> Result<()>;

    /// Whether the patterns of the other ranks, each made from its `seeds`, are in the own staging memory; `rank` is this
    /// one, of which none is looked for.
    fn probe_check(&self, rank: usize, seeds: &[u32]) -> Result<Vec<bool>>;

    /// Makes everything as before the first call: clears staging memory and host block, sets the communicator's state, and
    /// takes the kernels for lines of `form`. The ranks meet between this and the first call.
    fn activate(&mut self, state: &CommState, form: LineForm) -> Result<()>;

    /// The handle by which the watch reads progress and sets the abort word.
    fn alarm(&self) -> Arc<dyn Alarm>;

    /// Makes the plan of `request` ready for `rank`; the costly part of a call's first time.
    fn prepare(&self, request: &Request, plan: &Plan, rank: usize) -> Result<Self::Executable>;

    /// The same of a call through channels, in which `rank` moves these pieces.
    fn prepare_pieces(&self, plan: &ChannelPlan, pieces: &Pieces<'_>, rank: usize) -> Result<Self::Executable>;

    /// Makes a copy of so many bytes ready: what is left of a call where a rank is alone.
    fn prepare_copy(&self, bytes: u64) -> Self::Executable;

    /// Runs the plan a few times, all ranks at once, on data that changes from call to call, and compares every element
    /// of every result: whether lines arrive whole, as far as trying can show. `request` is of binary32 elements.
    fn litmus(&self, request: &Request, plan: &Plan, rank: usize) -> Result<bool>;

    /// A descriptor of memory that is to be registered, and what else an importer needs to know.
    fn export_memory(&self, memory: &Self::Memory) -> Result<(Vec<u8>, OwnedFd)>;

    /// Maps the other ranks' memory of one registration, by rank, this one's apart, and keeps it under the
    /// registration's number. So many bytes of it are the registration's.
    fn register(
        &self,
        number: u32,
        rank: usize,
        memory: &Self::Memory,
        bytes: u64,
        others: Vec<Option<(Vec<u8>, OwnedFd)>>,
    ) -> Result<()>;

    /// Fails unless `io` of so many bytes each lies where `registered` says, in what is registered.
    fn check_registered(&self, registered: &Registered, bytes: u64, io: Io) -> Result<()>;

    /// Lets go of a registration. Its calls on this rank have finished; recordings keep what those in them use.
    fn deregister(&self, number: u32);

    /// Appends the collective to `stream`, in its order and that of `edges`. Where that has to wait, it gives up soon after
    /// the endpoint's [`Self::alarm`] was given; nothing is appended when an error is returned, unless
    /// that says so.
    ///
    /// # Safety
    /// The buffers of `io` must be valid for the plan until the completion says so, or as long as what records the
    /// stream may be replayed; the events of `edges` must be live.
    unsafe fn submit(
        &self,
        stream: &Self::Stream,
        executable: &Self::Executable,
        io: Io,
        edges: Edges<'_, Self::Event>,
    ) -> Result<Self::Completion>;

    /// The same without edges and for nobody to wait for; `None` if it was issued and there is nothing to say of it.
    ///
    /// # Safety
    /// As for [`Self::submit`].
    unsafe fn submit_unheard(
        &self,
        stream: &Self::Stream,
        executable: &Self::Executable,
        io: Io,
    ) -> Result<Option<Self::Completion>>;
}

/// Tells when one call has finished, right or not; whether it was right is the communicator's to say.
pub trait Completion {
    /// Returns true when the call has finished. A call that waits for something which may never come is only waited for
    /// until `give_up` says so, which is asked now and then: false then.
    fn wait_unless(&self, give_up: &mut dyn FnMut() -> bool) -> Result<bool>;
    /// Waits at most `limit`; false if it has not finished by then.
    fn wait_for(&self, limit: std::time::Duration) -> Result<bool>;
}
