//! The launch of an all-reduce with the mHC boundary after it.

#[cfg(any(feature = "soft", test))]
use super::launch::unpack;
use super::launch::{Grid, MHC_ARGS, arguments, is_in_place, useful_parts};
use crate::gpu::Gpu;
use crate::hooks;
use crate::kernels::{Family, columns_name, fused_name};
use crate::memory::Allocation;
use crate::module::KernelId;
use crate::stream::Stream;
use ccl_core::config::{Check, Config};
use ccl_core::mhc::{Buffers, Params};
use ccl_core::plan::Agreed;
use ccl_core::plan::mhc::{Fused, MhcPlan, PAIR_BYTES, SHARED_BYTES, SHARED_HEAD_BYTES, most_groups};
use ccl_core::plan::push::{Mode, Transport};
use ccl_core::protocol::{CommState, HostBlock};
use ccl_core::{DataType, Error, Kind, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// Arguments of a boundary's kernel.
const MHC: usize = MHC_ARGS.len();

/// Arguments of a fused kernel besides.
const MORE: usize = 8;

/// Sizes of a fused kernel's arguments: those of a boundary's, whose `shape` has also the mode, the design and the rank;
/// then x_out, state, host, peers (as for push kernels), `kind` with `part` above it, rounds with the rows of a round or a
/// batch above them, what stands for a factor ([`MhcPlan::factor`]), and the wires, of which there are fewer than groups.
pub(crate) const FUSED_ARGS: [usize; MHC + MORE] = {
    let mut sizes = [8; MHC + MORE];
    let mut i = 0;
    while i < MHC {
        sizes[i] = MHC_ARGS[i];
        i += 1;
    }
    sizes
};

/// Where `shape` is among the arguments.
const SHAPE: usize = 18;
/// In `shape`: a mesh, else a one-shot.
const MESH: u64 = 1 << 17;
/// In `shape`, by columns: the number of parts, of three bits.
const PARTS_SHIFT: u32 = 17;
const MOST_PARTS: u32 = 7;
const DESIGN_SHIFT: u32 = 20;
const RANK_SHIFT: u32 = 24;

/// Plans that are kept. A model has as many as it has numbers of rows.
const KEPT: usize = 64;

/// Calls made ready, by what they are.
pub(crate) struct FusedCalls {
    kept: Mutex<Kept>,
    /// What work-groups share, if there are several.
    shared: Option<Arc<Allocation>>,
    /// Most work-groups of a call by columns in parts; 0 where no call may go in parts.
    most_in_parts: u32,
}

#[derive(Default)]
struct Kept {
    calls: Vec<Ready>,
    /// Which goes next, once there are [`KEPT`].
    oldest: usize,
}

/// A plan and its kernel.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    plan: MhcPlan,
    kernel: KernelId,
    /// Most work-groups of the call if it goes in parts.
    most_in_parts: u32,
}

/// A call with the caller's memory.
pub(crate) struct FusedLaunch {
    pub(crate) kernel: KernelId,
    pub(crate) groups: u32,
    pub(crate) arguments: [u64; FUSED_ARGS.len()],
    /// What work-groups share.
    pub(crate) memory: Arc<Allocation>,
}

/// A communicator's memory, as its kernels get it.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) state: u64,
    pub(crate) host: u64,
    pub(crate) peers: u64,
}

impl FusedCalls {
    /// Compiles the kernels of what `agreed` lets calls go by, and allocates what their groups share.
    pub(crate) fn new(gpu: &Arc<Gpu>, stream: &Stream, agreed: &Agreed, config: &Config) -> Result<FusedCalls> {
        let mut shared = None;
        if agreed.native {
            gpu.load(Family::Fused(agreed.form))?;
            gpu.load(Family::FusedBulk)?;
            gpu.load(Family::Columns(agreed.form))?;
        } else if agreed.n > 1 && agreed.push_tiles > 0 {
            gpu.load(Family::Fused(agreed.form))?;
            gpu.load(Family::Columns(agreed.form))?;
            let memory = Arc::new(Allocation::device(gpu, SHARED_BYTES + PAIR_BYTES)?);
            // SAFETY: memory of this size, which lives until the stream has settled.
            unsafe {
                stream.fill(memory.address, 0, SHARED_HEAD_BYTES, &[])?;
                stream.fill(memory.address.wrapping_byte_add(SHARED_BYTES), 0, PAIR_BYTES, &[])?;
            }
            stream.settle()?;
            shared = Some(memory);
        }
        let most_in_parts = if may_go_in_parts(agreed.n, config) { most_groups(agreed, config) } else { 0 };
        Ok(FusedCalls { kept: Mutex::default(), shared, most_in_parts })
    }

    /// Leaks the memory: work that may still use it doesn't end.
    pub(crate) fn forget(&self) {
        std::mem::forget(self.shared.clone());
    }

    /// The plan of a call and its kernel: kept, or by `plan`.
    pub(crate) fn ready(
        &self,
        gpu: &Gpu,
        params: &Params,
        design: Fused,
        plan: impl FnOnce() -> Result<MhcPlan>,
    ) -> Result<Ready> {
        let mut kept = self.kept.lock();
        let is_it = |ready: &&Ready| ready.plan.design == design && ready.plan.params == *params;
        if let Some(ready) = kept.calls.iter().find(is_it) {
            return Ok(*ready);
        }
        let plan = plan()?;
        #[cfg(debug_assertions)]
        plan.verify().map_err(Error::Internal)?;
        let (dtype, streams) = (params.dtype, params.hc());
        let (family, name) = match plan.reduce.transport {
            Transport::Bulk => (Family::FusedBulk, fused_name(dtype, streams, 0)),
            Transport::Lines(form) if plan.columns => {
                (Family::Columns(form), columns_name(dtype, streams, form.granule()))
            }
            Transport::Lines(form) => (Family::Fused(form), fused_name(dtype, streams, form.granule())),
        };
        let kernel = gpu.modules.find(family, &name);
        let kernel = kernel.ok_or_else(|| Error::NotImplemented(format!("kernel {name} on this device")))?;
        let resident = gpu.modules.kernel(kernel).facts.resident_groups;
        if resident < plan.groups {
            return Err(Error::NotImplemented(format!(
                "{} work-groups of {name} at once: this device runs {resident}; CCLX_MAX_WIRES={resident} permits no more",
                plan.groups
            )));
        }
        // Of two on one multiprocessor each takes longer than one alone.
        let most_in_parts = self.most_in_parts.min(resident / 2);
        let ready = Ready { plan, kernel, most_in_parts };
        if kept.calls.len() < KEPT {
            kept.calls.push(ready);
        } else {
            let place = kept.oldest;
            kept.calls[place] = ready;
            kept.oldest = (place + 1) % KEPT;
        }
        Ok(ready)
    }

    /// A call of `rank`. What it is of has been checked. Kernels whose groups share nothing are given `workspace`.
    pub(crate) fn launch(
        &self,
        ready: &Ready,
        rank: usize,
        buffers: &Buffers,
        addresses: Addresses,
        workspace: &Arc<Allocation>,
    ) -> FusedLaunch {
        let memory = self.shared.as_ref().unwrap_or(workspace);
        let Ready { plan, kernel, .. } = ready;
        let (reduce, params) = (&plan.reduce, &plan.params);
        let kind = Kind::new(reduce.dtype, reduce.op, reduce.order);
        let mut words = [0; FUSED_ARGS.len()];
        let boundary = arguments(params, reduce.n, &buffers.of_launch(params), memory.address, &Grid::WHOLE);
        words[..MHC].copy_from_slice(&boundary);
        // What a boundary alone has above the number of ranks is of no meaning here.
        words[SHAPE] &= 0xFFFF;
        let parts = if plan.columns { column_parts(params, buffers, plan.groups, ready.most_in_parts) } else { 1 };
        words[SHAPE] |= match plan.columns {
            true => u64::from(parts) << PARTS_SHIFT,
            false if reduce.mode == Mode::Mesh => MESH,
            false => 0,
        };
        words[SHAPE] |= (plan.design as u64) << DESIGN_SHIFT | (rank as u64) << RANK_SHIFT;
        words[MHC..].copy_from_slice(&[
            buffers.x_out as u64,
            addresses.state,
            addresses.host,
            addresses.peers,
            u64::from(kind.word()) | u64::from(reduce.part) << 32,
            u64::from(reduce.rounds) | u64::from(plan.round_rows) << 32,
            plan.factor(),
            u64::from(reduce.wires),
        ]);
        FusedLaunch { kernel: *kernel, groups: plan.groups * parts, arguments: words, memory: memory.clone() }
    }
}

/// Whether several groups may share a block's mixes, and the sending of its x. Not in a call that is compared with the
/// others' among three ranks or more: the previous rank stores its next call's check line over this call's once it has this
/// rank's blocks. So they have to come from the group that has read the line, the first, which as one part of several doesn't
/// send to the rank at the greatest distance. Between two ranks that distance is 1, which the first part serves.
fn may_go_in_parts(n: usize, config: &Config) -> bool {
    config.check != Check::Global || n < 3 || hooks::checked_in_parts()
}

/// Groups that share a block's mixes, this rank's alone to choose: as many as `most` groups in all permit.
fn column_parts(params: &Params, buffers: &Buffers, groups: u32, most: u32) -> u32 {
    // All parts of a block read its x as well.
    let in_place = is_in_place(buffers) || buffers.x == buffers.x_out.cast_const();
    let most = (most / groups).clamp(1, MOST_PARTS);
    if in_place { 1 } else { useful_parts(params, u64::from(groups)).min(u64::from(most)) as u32 }
}

/// The arguments of a fused kernel.
#[cfg(any(feature = "soft", test))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FusedArgs {
    pub(crate) params: Params,
    pub(crate) buffers: Buffers,
    pub(crate) n: usize,
    pub(crate) rank: usize,
    pub(crate) design: Fused,
    pub(crate) mode: Mode,
    pub(crate) kind: u32,
    pub(crate) part: u32,
    pub(crate) rounds: u32,
    pub(crate) round_rows: u32,
    pub(crate) state: *mut CommState,
    pub(crate) host: *mut HostBlock,
    pub(crate) peers: *const *mut u8,
    pub(crate) factor: u64,
    pub(crate) wires: u32,
}

/// What [`FusedCalls::launch`] packed.
#[cfg(any(feature = "soft", test))]
pub(crate) fn unpack_fused(words: &[u64; FUSED_ARGS.len()], dtype: DataType, streams: u32) -> FusedArgs {
    let boundary: [u64; MHC] = std::array::from_fn(|i| words[i]);
    let (params, n, buffers) = unpack(&boundary, dtype, streams);
    let shape = words[SHAPE];
    let [x_out, state, host, peers, kind_part, rounds_rows, factor, wires] = std::array::from_fn(|i| words[MHC + i]);
    FusedArgs {
        params,
        buffers: Buffers { x_out: x_out as *mut _, ..buffers },
        n,
        rank: (shape >> RANK_SHIFT & 0xFF) as usize,
        design: Fused::from_number((shape >> DESIGN_SHIFT & 0xF) as u32).unwrap_or(Fused::Whole),
        mode: if shape & MESH != 0 { Mode::Mesh } else { Mode::OneShot },
        kind: kind_part as u32,
        part: (kind_part >> 32) as u32,
        rounds: rounds_rows as u32,
        round_rows: (rounds_rows >> 32) as u32,
        state: state as *mut CommState,
        host: host as *mut HostBlock,
        peers: peers as *const *mut u8,
        factor,
        wires: wires as u32,
    }
}
