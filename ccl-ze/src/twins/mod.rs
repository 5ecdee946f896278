//! Native twins: the device kernels as Rust functions, which the software driver runs.

mod bulk;
mod call;
mod channel;
mod copy;
mod direct;
mod fold;
mod fp;
mod lanes;
mod mhc;
mod push;
mod reduce;
mod ring;
#[cfg(target_arch = "x86_64")]
mod sums;
#[doc(hidden)]
pub mod trace;
mod wait;

pub use reduce::Simd;

use crate::kernels::{
    PROBE_ARGS, RING_ARGS, WIDTHS, bulk_name, combine_name, direct_name, move_name, probe_word, push_name,
};
use ccl_core::collective::ROOT_SHIFT;
use ccl_core::plan::channel::CHANNEL_ARGS;
use ccl_core::plan::geometry::Geometry;
use ccl_core::plan::push::{DIRECT_ARGS, PUSH_ARGS, Transport};
use ccl_core::protocol::LineForm;
use ccl_core::slot::Line;
use fold::Fold;
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

/// Argument `index` of a launch. Where there is only one, that is a structure of a 64-bit word for each.
///
/// # Safety
/// The driver checked the number and sizes of the arguments against those registered with the kernel.
unsafe fn arg<T: Copy>(launch: &zesoft_launch_t, index: usize) -> T {
    // SAFETY: by this function's contract there is such an argument, of T's size; no twin has just one. The machine is
    // little-endian, so that a narrow one is the first bytes of its word.
    unsafe {
        if launch.arg_count == 1 {
            return (*launch.args).cast::<u64>().add(index).cast::<T>().read_unaligned();
        }
        (*launch.args.add(index)).cast::<T>().read_unaligned()
    }
}

/// The ring of one line form (by its payload), of elements that fill `P` words of a line.
unsafe extern "C" fn ring_kernel<const D: usize, const P: usize>(launch: *const zesoft_launch_t) {
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
            kind: arg(launch, 13),
            factor: arg(launch, 14),
        };
        (launch, args)
    };
    let _fp = fp::DefaultFp::enter();
    let form = LineForm::from_granule(size_of::<Line<D>>());
    let plan = Fold::new(args.kind, args.factor, args.n as usize, simd()).zip(form).and_then(|(fold, form)| {
        let geometry = Geometry::new(args.n as usize, args.count, Some(args.period), fold.dtype.size()).ok()?;
        Some((fold, form, geometry))
    });
    // The host planned this launch with the same geometry and wrote the kind, so there are all.
    if let Some((fold, form, geometry)) = plan {
        // SAFETY: the launch is the endpoint's, which passes its own memory and buffers that its caller vouched for.
        unsafe { ring::run::<D, P>(&args, geometry, form, launch.group_count[0], &fold) };
    }
}

/// One-shot and mesh of elements of `W` bytes, on lines of `G` bytes, or in bulk where that is 0.
unsafe extern "C" fn push_kernel<const W: usize, const G: usize>(launch: *const zesoft_launch_t) {
    // SAFETY: the driver passes a live launch with the registered arguments.
    let (launch, args) = unsafe {
        let launch = &*launch;
        let args = push::Args {
            send: arg(launch, 0),
            recv: arg(launch, 1),
            state: arg(launch, 2),
            host: arg(launch, 3),
            peers: arg(launch, 4),
            count: arg(launch, 5),
            period: arg(launch, 6),
            factor: arg(launch, 7),
            kind: arg(launch, 8),
            rank: arg(launch, 9),
            n: arg(launch, 10),
            mode: arg(launch, 11),
            part: arg(launch, 12),
            rounds: arg(launch, 13),
        };
        (launch, args)
    };
    let _fp = fp::DefaultFp::enter();
    let transport = LineForm::from_granule(G).map_or(Transport::Bulk, Transport::Lines);
    let geometry = Geometry::new(args.n as usize, args.count, Some(args.period), W);
    // The host planned this launch with the same geometry and for a reduction that there is.
    if let (Ok(geometry), Some(fold)) = (geometry, Fold::new(args.kind, args.factor, args.n as usize, simd())) {
        // SAFETY: as in `ring_kernel`.
        unsafe { push::run(&args, geometry, transport, launch.group_count[0], &fold) };
    }
}

/// Direct, of elements of `W` bytes.
unsafe extern "C" fn direct_kernel<const W: usize>(launch: *const zesoft_launch_t) {
    // SAFETY: the driver passes a live launch with the registered arguments.
    let (launch, args) = unsafe {
        let launch = &*launch;
        let args = direct::Args {
            send: arg(launch, 0),
            recv: arg(launch, 1),
            state: arg(launch, 2),
            host: arg(launch, 3),
            peers: arg(launch, 4),
            buffers: arg(launch, 5),
            count: arg(launch, 6),
            period: arg(launch, 7),
            factor: arg(launch, 8),
            kind: arg(launch, 9),
            rank: arg(launch, 10),
            n: arg(launch, 11),
        };
        (launch, args)
    };
    let _fp = fp::DefaultFp::enter();
    let geometry = Geometry::new(args.n as usize, args.count, Some(args.period), W);
    if let (Ok(geometry), Some(fold)) = (geometry, Fold::new(args.kind, args.factor, args.n as usize, simd())) {
        // SAFETY: as in `ring_kernel`.
        unsafe { direct::run(&args, geometry, launch.group_count[0], &fold) };
    }
}

/// The arguments of a kernel of channels.
///
/// # Safety
/// As for [`arg`].
unsafe fn channel_args(launch: &zesoft_launch_t) -> channel::Args {
    // SAFETY: passed on.
    unsafe {
        channel::Args {
            send: arg(launch, 0),
            recv: arg(launch, 1),
            state: arg(launch, 2),
            host: arg(launch, 3),
            peers: arg(launch, 4),
            table: arg(launch, 5),
            send_stride: arg(launch, 6),
            recv_stride: arg(launch, 7),
            bytes: arg(launch, 8),
            count: arg(launch, 9),
            first: arg(launch, 10),
            factor: arg(launch, 11),
            kind: arg(launch, 12),
            rank: arg(launch, 13),
            n: arg(launch, 14),
            sends: arg(launch, 15),
            receives: arg(launch, 16),
            wires: arg(launch, 17),
            part: arg(launch, 18),
            flags: arg(launch, 19),
        }
    }
}

/// Moves pieces through channels, on lines of `G` bytes, or in bulk where that is 0.
unsafe extern "C" fn move_kernel<const G: usize>(launch: *const zesoft_launch_t) {
    // SAFETY: the driver passes a live launch with the registered arguments.
    let (launch, args) = unsafe { (&*launch, channel_args(&*launch)) };
    let transport = LineForm::from_granule(G).map_or(Transport::Bulk, Transport::Lines);
    // SAFETY: as in `ring_kernel`.
    unsafe { channel::run(&args, transport, launch.group_count[0], None) };
}

/// Reduces elements of `W` bytes that come through channels.
unsafe extern "C" fn combine_kernel<const W: usize, const G: usize>(launch: *const zesoft_launch_t) {
    // SAFETY: the driver passes a live launch with the registered arguments.
    let (launch, args) = unsafe { (&*launch, channel_args(&*launch)) };
    let _fp = fp::DefaultFp::enter();
    let transport = LineForm::from_granule(G).map_or(Transport::Bulk, Transport::Lines);
    let n = args.n as usize;
    // What is reduced goes on from the own piece in equal ones, where it is shared out.
    let message = if args.send_stride == 0 { args.count } else { args.count * n as u64 };
    let geometry = Geometry::new(n, message, None, W);
    let fold = Fold::new(args.kind & ((1 << ROOT_SHIFT) - 1), args.factor, n, simd());
    // The host planned this launch with the same geometry and for a reduction that there is.
    if let (Ok(geometry), Some(fold)) = (geometry, fold) {
        // SAFETY: as in `ring_kernel`.
        unsafe {
            channel::run(&args, transport, launch.group_count[0], Some(channel::Reduction { fold: &fold, geometry }));
        }
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
    // Lines by form: of elements of up to 4 bytes, and of 8.
    let rings: [[zesoft_kernel_fn; 2]; 3] = [
        [ring_kernel::<1, 1>, ring_kernel::<1, 1>],
        [ring_kernel::<3, 3>, ring_kernel::<3, 2>],
        [ring_kernel::<15, 15>, ring_kernel::<15, 14>],
    ];
    let mut twins = Vec::new();
    for (form, functions) in LineForm::ALL.into_iter().zip(rings) {
        for width in WIDTHS {
            let function = functions[usize::from(width == 8)];
            let name = crate::kernels::ring_name(width, form.granule());
            twins.push(Twin { name, function, arg_sizes: &RING_ARGS });
        }
    }
    macro_rules! pushes {
        ($($width:literal),*) => { $(
            for (granule, function) in [
                (8, push_kernel::<$width, 8> as zesoft_kernel_fn),
                (16, push_kernel::<$width, 16> as zesoft_kernel_fn),
                (64, push_kernel::<$width, 64> as zesoft_kernel_fn),
            ] {
                twins.push(Twin { name: push_name($width, granule), function, arg_sizes: &PUSH_ARGS });
            }
            twins.push(Twin { name: bulk_name($width), function: push_kernel::<$width, 0>, arg_sizes: &PUSH_ARGS });
            twins.push(Twin { name: direct_name($width), function: direct_kernel::<$width>, arg_sizes: &DIRECT_ARGS });
            for (form, function) in [
                (Some(LineForm::L8), combine_kernel::<$width, 8> as zesoft_kernel_fn),
                (Some(LineForm::L16), combine_kernel::<$width, 16> as zesoft_kernel_fn),
                (Some(LineForm::L64), combine_kernel::<$width, 64> as zesoft_kernel_fn),
                (None, combine_kernel::<$width, 0> as zesoft_kernel_fn),
            ] {
                twins.push(Twin { name: combine_name($width, form), function, arg_sizes: &CHANNEL_ARGS });
            }
        )* };
    }
    pushes!(1, 2, 4, 8);
    twins.extend(mhc::all());
    for (form, function) in [
        (Some(LineForm::L8), move_kernel::<8> as zesoft_kernel_fn),
        (Some(LineForm::L16), move_kernel::<16> as zesoft_kernel_fn),
        (Some(LineForm::L64), move_kernel::<64> as zesoft_kernel_fn),
        (None, move_kernel::<0> as zesoft_kernel_fn),
    ] {
        twins.push(Twin { name: move_name(form), function, arg_sizes: &CHANNEL_ARGS });
    }
    twins.push(Twin { name: crate::kernels::PROBE.into(), function: probe_kernel, arg_sizes: &PROBE_ARGS });
    twins
}
