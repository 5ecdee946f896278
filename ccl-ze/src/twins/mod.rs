//! Native twins: the device kernels as Rust functions, which the software driver runs.

mod call;
mod fp;
mod lanes;
mod reduce;
mod ring;
#[doc(hidden)]
pub mod trace;
mod wait;

pub use reduce::Simd;

use crate::kernels::{PROBE_ARGS, RING_ARGS, probe_word};
use ccl_core::plan::geometry::Geometry;
use ccl_core::{DataType, Kind, Order, ReduceOp};
use reduce::Reducer;
use std::sync::OnceLock;
use ze_soft::ext::{zesoft_kernel_fn, zesoft_launch_t};

static SIMD: OnceLock<Simd> = OnceLock::new();

/// Makes the twins use this implementation, for tests; false if one is in use already.
#[doc(hidden)]
pub fn force_simd(simd: Simd) -> bool {
    SIMD.set(simd).is_ok()
}

fn simd() -> Simd {
    *SIMD.get_or_init(Simd::detect)
}

/// Argument `index` of a launch.
///
/// # Safety
/// The driver checked the number and sizes of the arguments against those registered with the kernel.
unsafe fn arg<T: Copy>(launch: &zesoft_launch_t, index: usize) -> T {
    // SAFETY: by this function's contract there is such an argument, of T's size.
    unsafe { (*launch.args.add(index)).cast::<T>().read_unaligned() }
}

/// The ring of one datatype (by its ABI number) and line form (by its payload).
unsafe extern "C" fn ring_kernel<const DTYPE: u32, const D: usize>(launch: *const zesoft_launch_t) {
    // SAFETY: the driver passes a live launch with the registered arguments.
    let (launch, args) = unsafe {
        let launch = &*launch;
        let args = ring::Args {
            send: arg(launch, 0),
            recv: arg(launch, 1),
            state: arg(launch, 2),
            host: arg(launch, 3),
            inbox: arg(launch, 4),
            outbox: arg(launch, 5),
            count: arg(launch, 6),
            period: arg(launch, 7),
            rank: arg(launch, 8),
            n: arg(launch, 9),
            tiles: arg(launch, 10),
            rounds: arg(launch, 11),
            slot_tiles: arg(launch, 12),
        };
        (launch, args)
    };
    let _fp = fp::DefaultFp::enter();
    let plan = DataType::from_abi(DTYPE).and_then(|dtype| {
        let geometry = Geometry::new(args.n as usize, args.count, Some(args.period), dtype.size()).ok()?;
        let kind = Kind::new(dtype, ReduceOp::Sum, Order::Ring).word();
        Some((geometry, kind, Reducer::new(kind, 0, args.n as usize, simd())?))
    });
    // The host planned this launch with the same geometry, so there is one; only registered types get here.
    if let Some((geometry, kind, reducer)) = plan {
        // SAFETY: the launch is the endpoint's, which passes its own memory and buffers that its caller vouched for.
        unsafe { ring::run::<D>(&args, geometry, launch.group_count[0] as usize, kind, &reducer) };
    }
}

/// Writes the words of a pattern.
unsafe extern "C" fn probe_kernel(launch: *const zesoft_launch_t) {
    // SAFETY: as in `ring_kernel`.
    unsafe {
        let launch = &*launch;
        let (memory, words, seed): (*mut u32, u64, u32) = (arg(launch, 0), arg(launch, 1), arg(launch, 2));
        for i in 0..words {
            memory.add(i as usize).write_volatile(probe_word(seed, i));
        }
    }
}

/// A kernel as the software driver is told of it.
pub(crate) struct Twin {
    pub(crate) name: String,
    pub(crate) function: zesoft_kernel_fn,
    pub(crate) arg_sizes: &'static [usize],
}

/// All twins.
pub(crate) fn all() -> Vec<Twin> {
    macro_rules! rings {
        ($($dtype:ident),*) => { vec![$(
            (DataType::$dtype, 1, ring_kernel::<{ DataType::$dtype as u32 }, 1> as zesoft_kernel_fn),
            (DataType::$dtype, 3, ring_kernel::<{ DataType::$dtype as u32 }, 3> as zesoft_kernel_fn),
            (DataType::$dtype, 15, ring_kernel::<{ DataType::$dtype as u32 }, 15> as zesoft_kernel_fn),
        )*] };
    }
    let rings: Vec<(DataType, usize, zesoft_kernel_fn)> = rings![Bfloat16, Float16, Float32];
    let mut twins: Vec<Twin> = rings
        .into_iter()
        .map(|(dtype, payload, function)| Twin {
            name: crate::kernels::ring_name(dtype, (payload + 1) * 4),
            function,
            arg_sizes: &RING_ARGS,
        })
        .collect();
    twins.push(Twin { name: crate::kernels::PROBE.into(), function: probe_kernel, arg_sizes: &PROBE_ARGS });
    twins
}
