//! The launch of a boundary: its kernel, its grid, its arguments, and the memory that its work-groups share.

use super::FusedCalls;
use crate::gpu::Gpu;
use crate::kernels::{Family, mhc_name};
use crate::memory::Allocation;
use crate::module::KernelId;
use crate::stream::Stream;
use ccl_core::config::Config;
#[cfg(any(feature = "soft", test))]
use ccl_core::mhc::Variant;
use ccl_core::mhc::{Buffers, Params};
use ccl_core::plan::Agreed;
use ccl_core::{DataType, Error, Result};
use std::ffi::c_void;
use std::sync::Arc;

/// Sizes of a boundary kernel's arguments: x, residual, post, comb, previous_pre, weights, scale, base, norm_weight,
/// residual_out, post_out, comb_out, pre_out, y, normed, workspace, rows, hidden, shape (variant, number of ranks, whether
/// split, parts), iterations, rms_eps, pre_eps, sinkhorn_eps, post_multiplier, norm_eps, and as binary32 the numbers of a row's
/// elements, of all streams and of one: not every device converts them as this processor does.
pub(crate) const MHC_ARGS: [usize; 27] =
    [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4];

/// In `shape`: the row's sums are added by whichever work-group is the last; and where the number of parts is.
const SPLIT: u64 = 1 << 16;
const PARTS_SHIFT: u32 = 17;

/// Where the workspace is among the arguments.
const WORKSPACE: usize = 15;

/// Types and streams that there is a kernel for.
pub(crate) const DTYPES: [DataType; 3] = [DataType::Bfloat16, DataType::Float16, DataType::Float32];
pub(crate) const STREAMS: [usize; 3] = [2, 4, 8];

/// Rows times streams of one work-group's tile.
const TILE_STREAMS: u64 = 16;
/// Up to so many rows each block of columns has a work-group of its own; from there on there are enough of them.
const SPLIT_ROWS: u64 = 64;
/// Work-groups that a boundary of few rows is spread over, as far as it can be.
const MANY_GROUPS: u64 = 128;
/// Work-items of a group, and columns of one of them.
const ITEMS: u64 = 256;
const ITEM_COLUMNS: u64 = 4;
/// Bytes of the memory that work-groups share: a counter for each tile, then the sums of a row's blocks.
const WORKSPACE_BYTES: usize = 4 << 20;
/// Where the sums begin.
pub(crate) const COUNTER_BYTES: usize = 256;
/// Behind them: places of sums that tell by themselves whether they have come, each with the mark of one that hasn't when no
/// boundary runs. A form of the kernels for sub-groups of 32 uses them.
const MARKED_BYTES: usize = 1 << 20;
const MARK: u8 = 0xFF;
const _: () = assert!(SPLIT_ROWS as usize * 4 <= COUNTER_BYTES);

/// What boundaries of one communicator share. They take turns, and leave the counters at 0 and the marks set.
pub(crate) struct Workspace {
    memory: Arc<Allocation>,
    /// Calls that have an all-reduce before them.
    pub(crate) fused: FusedCalls,
    /// By type and streams.
    kernels: [[KernelId; 3]; 3],
}

/// A boundary made ready.
pub(crate) struct Launch {
    pub(crate) kernel: KernelId,
    pub(crate) groups: u32,
    pub(crate) arguments: [u64; MHC_ARGS.len()],
    /// What it uses besides the caller's memory.
    pub(crate) memory: Arc<Allocation>,
}

impl Workspace {
    /// Compiles the kernels and allocates the memory.
    pub(crate) fn new(gpu: &Arc<Gpu>, stream: &Stream, agreed: &Agreed, config: &Config) -> Result<Workspace> {
        gpu.load(Family::Mhc)?;
        let fused = FusedCalls::new(gpu, stream, agreed, config)?;
        let mut kernels = Vec::new();
        for dtype in DTYPES {
            for streams in STREAMS {
                let name = mhc_name(dtype, streams);
                let found = gpu.modules.find(Family::Mhc, &name);
                kernels.push(found.ok_or_else(|| Error::NotImplemented(format!("kernel {name} on this device")))?);
            }
        }
        let kernels = std::array::from_fn(|dtype| std::array::from_fn(|streams| kernels[3 * dtype + streams]));
        let memory = memory(gpu, stream)?;
        Ok(Workspace { memory, fused, kernels })
    }

    /// The launch of a boundary that has rows, for `n` ranks.
    pub(crate) fn launch(&self, params: &Params, n: usize, buffers: &Buffers) -> Result<Launch> {
        let kernel = kernel_of(params).map(|(dtype, streams)| self.kernels[dtype][streams]);
        let kernel = kernel.ok_or_else(|| Error::NotImplemented(format!("mHC of {}", params.dtype)))?;
        let buffers = &buffers.of_launch(params);
        let grid = Grid::of(params, buffers);
        let groups = u32::try_from(grid.groups)
            .map_err(|_| Error::NotImplemented(format!("mHC of {} rows in one call", params.rows)))?;
        let arguments = arguments(params, n, buffers, self.memory.address, &grid);
        Ok(Launch { kernel, groups, arguments, memory: self.memory.clone() })
    }

    /// What work-groups share.
    pub(crate) fn memory(&self) -> &Arc<Allocation> {
        &self.memory
    }

    /// Leaks the memory: work that may still use it doesn't end.
    pub(crate) fn forget(&self) {
        std::mem::forget(self.memory.clone());
        self.fused.forget();
    }
}

/// Memory for the work-groups of boundaries that take turns, its counters at 0 and its marks set.
pub(crate) fn memory(gpu: &Arc<Gpu>, stream: &Stream) -> Result<Arc<Allocation>> {
    let memory = Arc::new(Allocation::device(gpu, WORKSPACE_BYTES + MARKED_BYTES)?);
    let marked = memory.address.wrapping_byte_add(WORKSPACE_BYTES);
    // SAFETY: both lie in memory of this size, which lives until the stream has settled.
    unsafe {
        stream.fill(memory.address, 0, COUNTER_BYTES, &[])?;
        stream.fill(marked, MARK, MARKED_BYTES, &[])?;
    }
    stream.settle()?;
    Ok(memory)
}

impl Launch {
    /// The same with other memory for its work-groups.
    pub(crate) fn with_memory(&self, memory: Arc<Allocation>) -> Launch {
        let mut arguments = self.arguments;
        arguments[WORKSPACE] = memory.address as u64;
        Launch { arguments, memory, ..*self }
    }
}

fn kernel_of(params: &Params) -> Option<(usize, usize)> {
    let dtype = DTYPES.iter().position(|dtype| *dtype == params.dtype)?;
    Some((dtype, STREAMS.iter().position(|streams| *streams == params.hc())?))
}

/// How a boundary is spread over work-groups.
pub(super) struct Grid {
    groups: u64,
    /// Whether each has one block of columns of its tile of rows only, which is so while that fits.
    split: bool,
    /// Groups that share a block's mixes.
    parts: u64,
}

impl Grid {
    /// One that nobody splits: every group has whole rows.
    pub(super) const WHOLE: Grid = Grid { groups: 0, split: false, parts: 1 };

    fn of(params: &Params, buffers: &Buffers) -> Grid {
        let tiles = params.rows.div_ceil(TILE_STREAMS / u64::from(params.streams));
        let blocks = params.blocks() as u64;
        let sums = params.rows.saturating_mul(blocks).saturating_mul(4 * (params.mixes() as u64 + 1));
        let fits = sums <= (WORKSPACE_BYTES - COUNTER_BYTES) as u64;
        // Post alone has no sums.
        let split = !params.variant.has_pre() || (params.rows <= SPLIT_ROWS && fits);
        if !split {
            return Grid { groups: tiles, split, parts: 1 };
        }
        let groups = tiles.saturating_mul(blocks);
        let parts = if params.variant.has_pre() && !is_in_place(buffers) { useful_parts(params, groups) } else { 1 };
        Grid { groups: groups.saturating_mul(parts), split, parts }
    }
}

/// All parts of a block read it, and the first one writes: what lies in another place.
pub(super) fn is_in_place(buffers: &Buffers) -> bool {
    buffers.residual == buffers.residual_out.cast_const() || buffers.x == buffers.y.cast_const()
}

/// Parts that a block's mixes are cut into, where there are so many groups with one.
pub(super) fn useful_parts(params: &Params, groups: u64) -> u64 {
    let teams = ITEMS * ITEM_COLUMNS / params.block() as u64;
    MANY_GROUPS.div_ceil(groups).min((params.mixes() as u64).div_ceil(teams))
}

/// The arguments, in the kernel's order.
pub(super) fn arguments(
    params: &Params,
    n: usize,
    buffers: &Buffers,
    workspace: *mut c_void,
    grid: &Grid,
) -> [u64; MHC_ARGS.len()] {
    let float = |value: f32| u64::from(value.to_bits());
    [
        buffers.x as u64,
        buffers.residual as u64,
        buffers.post as u64,
        buffers.comb as u64,
        buffers.previous_pre as u64,
        buffers.weights as u64,
        buffers.scale as u64,
        buffers.base as u64,
        buffers.norm_weight as u64,
        buffers.residual_out as u64,
        buffers.post_out as u64,
        buffers.comb_out as u64,
        buffers.pre_out as u64,
        buffers.y as u64,
        buffers.normed as u64,
        workspace as u64,
        params.rows,
        params.hidden,
        params.variant as u64 | (n as u64) << 8 | if grid.split { SPLIT } else { 0 } | grid.parts << PARTS_SHIFT,
        u64::from(params.sinkhorn_iterations),
        float(params.rms_eps),
        float(params.pre_eps),
        float(params.sinkhorn_eps),
        float(params.post_multiplier),
        float(params.norm_eps.unwrap_or(0.0)),
        float((params.hc() * params.hidden as usize) as f32),
        float(params.hidden as usize as f32),
    ]
}

/// What [`Workspace::launch`] packed, for the kernel of a type and a number of streams.
#[cfg(any(feature = "soft", test))]
pub(crate) fn unpack(words: &[u64; MHC_ARGS.len()], dtype: DataType, streams: u32) -> (Params, usize, Buffers) {
    let shape = words[18];
    let variant = match shape & 0xFF {
        0 => Variant::V4,
        1 => Variant::V41,
        2 => Variant::Post,
        3 => Variant::Pre,
        _ => Variant::Head,
    };
    let float = |index: usize| f32::from_bits(words[index] as u32);
    let params = Params {
        variant,
        dtype,
        rows: words[16],
        hidden: words[17],
        streams,
        rms_eps: float(20),
        pre_eps: float(21),
        sinkhorn_eps: float(22),
        post_multiplier: float(23),
        sinkhorn_iterations: words[19] as u32,
        // Without a norm there is no place for it.
        norm_eps: (words[14] != 0).then(|| float(24)),
    };
    let buffers = Buffers {
        x: words[0] as *const c_void,
        residual: words[1] as *const c_void,
        post: words[2] as *const f32,
        comb: words[3] as *const f32,
        previous_pre: words[4] as *const f32,
        weights: words[5] as *const f32,
        scale: words[6] as *const f32,
        base: words[7] as *const f32,
        norm_weight: words[8] as *const c_void,
        residual_out: words[9] as *mut c_void,
        post_out: words[10] as *mut f32,
        comb_out: words[11] as *mut f32,
        pre_out: words[12] as *mut f32,
        y: words[13] as *mut c_void,
        normed: words[14] as *mut c_void,
        ..Buffers::default()
    };
    (params, (shape >> 8 & 0xFF) as usize, buffers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        for variant in [Variant::V4, Variant::V41, Variant::Post, Variant::Pre, Variant::Head] {
            let mut params = Params::new(variant, DataType::Float16, 5, 96, 8);
            params.rms_eps = 1e-5;
            params.pre_eps = 3e-5;
            params.sinkhorn_iterations = 7;
            params.norm_eps = params.variant.has_pre().then_some(2e-6);
            let mut address = 0usize;
            let mut next = || {
                address += 0x1000;
                address
            };
            let buffers = Buffers {
                x: next() as *const c_void,
                residual: next() as *const c_void,
                post: next() as *const f32,
                comb: next() as *const f32,
                previous_pre: next() as *const f32,
                weights: next() as *const f32,
                scale: next() as *const f32,
                base: next() as *const f32,
                norm_weight: next() as *const c_void,
                residual_out: next() as *mut c_void,
                post_out: next() as *mut f32,
                comb_out: next() as *mut f32,
                pre_out: next() as *mut f32,
                y: next() as *mut c_void,
                normed: next() as *mut c_void,
                ..Buffers::default()
            };
            let buffers = buffers.of_launch(&params);
            let grid = Grid { groups: 6, split: true, parts: 3 };
            let words = arguments(&params, 3, &buffers, std::ptr::null_mut(), &grid);
            assert_eq!(unpack(&words, DataType::Float16, 8), (params, 3, buffers));
        }
    }

    #[test]
    fn few_rows_are_spread_over_their_blocks() {
        let apart = Buffers { residual_out: 64 as *mut c_void, y: 128 as *mut c_void, ..Buffers::default() };
        let at = |variant, dtype, rows, hidden, streams, buffers: &Buffers| {
            let grid = Grid::of(&Params::new(variant, dtype, rows, hidden, streams), buffers);
            (grid.groups, grid.split, grid.parts)
        };
        let bf16 = |rows, hidden, streams| at(Variant::V4, DataType::Bfloat16, rows, hidden, streams, &apart);
        assert_eq!(bf16(1, 4096, 4), (96, true, 3));
        assert_eq!(bf16(8, 4096, 4), (128, true, 2));
        assert_eq!(bf16(64, 4096, 4), (512, true, 1));
        assert_eq!(bf16(64, 7168, 8), (32 * 56, true, 1));
        assert_eq!(bf16(65, 4096, 4), (17, false, 1));
        let in_place = Buffers { residual_out: std::ptr::null_mut(), ..apart };
        let alone = at(Variant::V4, DataType::Bfloat16, 1, 4096, 4, &in_place);
        assert_eq!(alone, (32, true, 1), "nobody reads what another has written over");
        let many = at(Variant::V4, DataType::Float32, 64, 1 << 20, 8, &apart);
        assert_eq!(many, (32, false, 1), "more sums than there is room for");
        assert_eq!(at(Variant::Post, DataType::Float32, 1000, 65, 4, &apart), (250 * 2, true, 1));
    }
}
