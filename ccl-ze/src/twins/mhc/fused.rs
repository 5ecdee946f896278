//! An all-reduce and the mHC boundary after it in one launch: the twins of the fused kernels. Their steps are those of
//! `ccl_core::plan::mhc`.
//!
//! One thread plays all work-groups: round by round, phase by phase, and all wires in each.

use super::super::call::{self, Call, Failure, Frame};
use super::super::fold::Fold;
use super::super::push::{self, Push};
use super::super::{Simd, Twin, arg, fp, simd};
use super::columns::Columns;
use super::{boundary, owners, rows};
use crate::kernels::{columns_name, fused_name};
use crate::mhc::{FUSED_ARGS, FusedArgs, unpack_fused};
use ccl_core::mhc::{Buffers, Params, Variant};
use ccl_core::plan::geometry::Geometry;
use ccl_core::plan::mhc::{Fused, MhcPlan};
use ccl_core::plan::push::{PushPlan, Transport};
use ccl_core::protocol::{LineForm, Shape};
use ccl_core::{DataType, Kind};
use std::ptr::null_mut;
use ze_soft::ext::{zesoft_kernel_fn, zesoft_launch_t};

/// The kernel for a type, by its number, a number of streams, and lines of `G` bytes or, where that is 0, bulk; by `COLUMNS`
/// or not.
unsafe extern "C" fn kernel<const DTYPE: u32, const STREAMS: u32, const G: usize, const COLUMNS: bool>(
    launch: *const zesoft_launch_t,
) {
    let Some(dtype) = DataType::from_abi(DTYPE) else { return };
    // SAFETY: the driver passes a live launch with the registered arguments.
    let words = std::array::from_fn(|index| unsafe {
        match FUSED_ARGS[index] {
            8 => arg::<u64>(&*launch, index),
            _ => u64::from(arg::<u32>(&*launch, index)),
        }
    });
    let args = unpack_fused(&words, dtype, STREAMS);
    let _fp = fp::DefaultFp::enter();
    let transport = LineForm::from_granule(G).map_or(Transport::Bulk, Transport::Lines);
    // SAFETY: the host has checked what it launched, on an active communicator, for memory that its caller vouched for.
    unsafe { run(&args, transport, COLUMNS) };
}

/// All of them, as the software driver is told of them.
pub(super) fn all() -> Vec<Twin> {
    let mut twins = Vec::new();
    macro_rules! kernels {
        ($($dtype:ident $streams:literal),*) => { $(
            for (granule, function) in [
                (0, kernel::<{ DataType::$dtype as u32 }, $streams, 0, false> as zesoft_kernel_fn),
                (8, kernel::<{ DataType::$dtype as u32 }, $streams, 8, false> as zesoft_kernel_fn),
                (16, kernel::<{ DataType::$dtype as u32 }, $streams, 16, false> as zesoft_kernel_fn),
                (64, kernel::<{ DataType::$dtype as u32 }, $streams, 64, false> as zesoft_kernel_fn),
            ] {
                let name = fused_name(DataType::$dtype, $streams, granule);
                twins.push(Twin { name, function, arg_sizes: &FUSED_ARGS });
            }
            for (granule, function) in [
                (8, kernel::<{ DataType::$dtype as u32 }, $streams, 8, true> as zesoft_kernel_fn),
                (16, kernel::<{ DataType::$dtype as u32 }, $streams, 16, true> as zesoft_kernel_fn),
                (64, kernel::<{ DataType::$dtype as u32 }, $streams, 64, true> as zesoft_kernel_fn),
            ] {
                let name = columns_name(DataType::$dtype, $streams, granule);
                twins.push(Twin { name, function, arg_sizes: &FUSED_ARGS });
            }
        )* };
    }
    kernels!(Bfloat16 2, Bfloat16 4, Bfloat16 8, Float16 2, Float16 4, Float16 8, Float32 2, Float32 4, Float32 8);
    twins
}

/// # Safety
/// `args` are those of a launch on an active communicator whose ranks agreed on this transport; params and buffers have
/// passed their checks.
unsafe fn run(args: &FusedArgs, transport: Transport, columns: bool) {
    let FusedArgs { params, n, rank, design, mode, kind, part, rounds, round_rows, state, host, peers, wires, .. } =
        *args;
    let simd = simd();
    let (Some((dtype, op, order)), Some(fold)) = (Kind::read(kind, 0), Fold::new(kind, 0, n, simd)) else { return };
    let rows = if design == Fused::Owner { u64::from(round_rows) } else { params.rows };
    // The host planned this launch with the same geometry.
    let Ok(geometry) = Geometry::new(n, rows * params.hidden, Some(params.hidden), dtype.size()) else { return };
    // SAFETY: the table has an address for each rank; words that are set before the first collective only.
    let (peers, layout) = unsafe { (std::slice::from_raw_parts(peers, n), call::layout(state, n)) };
    let reduce = PushPlan { n, dtype, op, order, geometry, mode, transport, wires, part, rounds, layout };
    let plan = MhcPlan { params, design, reduce, round_rows, groups: wires, columns };
    let (output, output_bytes) = output(&params, &args.buffers);
    let shape = Shape::new(params.rows * params.hidden, params.hidden, args.factor, kind, rounds);
    let frame = Frame { output_bytes, ..Frame::of_push(&reduce, (state, host), (peers, rank), shape, output) };
    let body = |call: &Call<'_>| {
        // SAFETY: by this function's contract.
        unsafe {
            match design {
                Fused::Owner => owners::run(&plan, call, &fold, peers, rank, &args.buffers, simd),
                Fused::Whole | Fused::Delayed => whole(&plan, call, &fold, peers, rank, &args.buffers, simd),
            }
        }
    };
    // SAFETY: as above.
    unsafe { call::run(&frame, body) };
}

/// What is filled where there is no result: y, or X' of post alone.
fn output(params: &Params, buffers: &Buffers) -> (*mut u8, usize) {
    let row = params.rows as usize * params.hidden as usize * params.dtype.size();
    match buffers.y.is_null() {
        true => (buffers.residual_out.cast(), row * params.hc()),
        false => (buffers.y.cast(), row),
    }
}

/// Designs A and B: the reduction as ever, then the boundary on every rank.
///
/// # Safety
/// As for [`run`].
unsafe fn whole(
    plan: &MhcPlan,
    call: &Call<'_>,
    fold: &Fold,
    peers: &[*mut u8],
    rank: usize,
    buffers: &Buffers,
    simd: Simd,
) -> Result<(), Failure> {
    let size = plan.reduce.geometry.elem();
    // Where x isn't wanted, y has its place until y is written; the host refuses what has neither.
    let reduced = if buffers.x_out.is_null() { buffers.y } else { buffers.x_out };
    let (send, recv, bulk) = (buffers.x.cast(), reduced.cast(), plan.reduce.layout.bulk_offsets());
    // SAFETY: by this function's contract.
    unsafe {
        match plan.columns {
            true => Columns { plan, call, fold, peers, rank, send, recv }.reduce()?,
            false => push::rounds(&Push { plan: &plan.reduce, call, fold, peers, rank, send, recv, size, bulk })?,
        }
    }
    let whole = Buffers { x: reduced, ..*buffers };
    let (params, n) = (&plan.params, plan.reduce.n);
    if plan.design == Fused::Whole {
        // SAFETY: as above; x is reduced.
        unsafe { boundary(params, n, &whole, simd) };
        return Ok(());
    }
    // Whoever waits for y waits for nothing that comes after it but the launch's end.
    let post = Params { variant: Variant::Post, norm_eps: None, ..*params };
    let pre = Params { variant: Variant::Pre, norm_eps: None, ..*params };
    let sums = Buffers { residual: buffers.residual_out, y: null_mut(), ..whole };
    // SAFETY: as above, of each part what it uses.
    unsafe {
        boundary(&post, n, &whole.of_launch(&post), simd);
        rows::collapse_rows(params, &whole, simd);
        boundary(&pre, n, &sums.of_launch(&pre), simd);
    }
    Ok(())
}
