//! Reductions of elements on the CPU: docs/numerics.md has the rules, `ccl_core::reference` the bits.
//!
//! One pass over the inputs, in the order of the result, without intermediate buffers. The loops are written so that the
//! compiler makes vectors of them; sums of bfloat16, binary16 and binary32 in ring order have vectors of their own.
//!
//! 16-bit floats are computed with in binary32. Where each result is rounded to the type, that equals rounding the exact
//! one: binary32 has at least 2p+2 bits, and what it loses of subnormals is never what decides.

use super::lanes::{Lane, Max, Min, Op, Prod, Sum};
use ccl_core::{DataType, Order, ReduceOp};
use std::mem::MaybeUninit;

/// Which implementation to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Simd {
    /// Whatever every processor has.
    Portable,
    /// AVX2 with F16C.
    Avx2,
    /// AVX-512 with its conversions to bfloat16.
    Avx512,
}

impl Simd {
    /// The best that this processor has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
            let wide = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bf16");
            return if wide { Simd::Avx512 } else { Simd::Avx2 };
        }
        Simd::Portable
    }
}

#[cfg(test)]
impl Simd {
    /// All that this processor has.
    fn here() -> impl Iterator<Item = Simd> {
        let best = Simd::detect();
        let below = [Simd::Portable, Simd::Avx2].into_iter().filter(move |simd| match simd {
            Simd::Portable => best != Simd::Portable,
            _ => best == Simd::Avx512,
        });
        below.chain([best])
    }
}

/// Where a result goes.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) out: *mut u8,
    /// A second place, null if there is none.
    pub(super) also: *mut u8,
    /// Whether `out` is better stored to past the caches, where that is of use to nobody's caches.
    pub(super) out_past: bool,
    pub(super) also_past: bool,
}

impl Target {
    /// One place.
    pub(super) const fn only(out: *mut u8) -> Target {
        Target { out, also: std::ptr::null_mut(), out_past: false, also_past: false }
    }

    pub(super) fn wrapping_add(self, bytes: usize) -> Target {
        let also = if self.also.is_null() { self.also } else { self.also.wrapping_add(bytes) };
        Target { out: self.out.wrapping_add(bytes), also, ..self }
    }
}

/// Messages to be reduced.
pub(super) struct Job<'a> {
    pub(super) to: Target,
    /// By rank.
    pub(super) inputs: &'a [*const u8],
    /// The rank that the sum begins with; the others follow in turn.
    pub(super) first: usize,
    /// A bit for each rank whose input has yet to be multiplied by `factor`.
    pub(super) raw: u32,
    /// An element.
    pub(super) factor: u64,
    /// What the result is divided by, if by more than 1.
    pub(super) divisor: u32,
    pub(super) bytes: usize,
}

impl Job<'_> {
    /// Nothing to do but to combine.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.raw == 0 && self.divisor <= 1
    }
}

/// # Safety
/// The target and all inputs hold `bytes` bytes; each place of the target may be one of the inputs, and else overlaps none
/// of them, nor the other place. Nothing needs any alignment.
type RunFn = unsafe fn(&Job<'_>);

/// What a call does with elements.
#[derive(Clone, Copy)]
pub(super) struct Reducer {
    run: RunFn,
    size: usize,
    factor: u64,
    scales: bool,
    /// 1 where nothing is divided.
    divisor: u32,
}

impl Reducer {
    /// For a reduction with this `factor` among `n` ranks.
    pub(super) fn new((dtype, op, order): (DataType, ReduceOp, Order), factor: u64, n: usize, simd: Simd) -> Reducer {
        Reducer {
            run: run_fn(dtype, op, order, simd),
            size: dtype.size(),
            factor,
            scales: matches!(op, ReduceOp::PreMulSum(_)),
            divisor: if op == ReduceOp::Avg { n as u32 } else { 1 },
        }
    }

    /// Bytes of an element.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// What a rank contributes: its own input, multiplied if it is to be. A copy otherwise.
    ///
    /// # Safety
    /// `out` and `own` hold `bytes` bytes and are the same or apart.
    pub(super) unsafe fn contribute(&self, out: *mut u8, own: *const u8, bytes: usize) {
        if self.scales {
            let (inputs, factor) = ([own], self.factor);
            // SAFETY: by this function's contract.
            let to = Target::only(out);
            // SAFETY: by this function's contract.
            unsafe { (self.run)(&Job { to, inputs: &inputs, first: 0, raw: 1, factor, divisor: 1, bytes }) };
        } else if !std::ptr::eq(out, own) {
            // SAFETY: by this function's contract.
            unsafe { super::copy::plain(own, out, bytes) };
        }
    }

    /// `acc` and then the rank's own input `own`, into `acc`; with `last` the result is finished. Of ring order: each
    /// step is rounded.
    ///
    /// # Safety
    /// `acc` and `own` hold `bytes` bytes and are apart.
    #[inline]
    pub(super) unsafe fn reduce(&self, acc: *mut u8, own: *const u8, last: bool, bytes: usize) {
        let divisor = if last { self.divisor } else { 1 };
        let raw = u32::from(self.scales) << 1;
        let job = Job {
            to: Target::only(acc),
            inputs: &[acc.cast_const(), own],
            first: 0,
            raw,
            factor: self.factor,
            divisor,
            bytes,
        };
        // SAFETY: by this function's contract.
        unsafe { (self.run)(&job) };
    }

    /// All ranks' inputs, reduced in order from rank `first` on, once around, and finished. `raw` has a bit for each rank
    /// whose input is as its caller gave it (and not as [`Self::contribute`] makes it).
    ///
    /// # Safety
    /// As of [`RunFn`].
    pub(super) unsafe fn reduce_many(&self, to: Target, inputs: &[*const u8], first: usize, raw: u32, bytes: usize) {
        let raw = if self.scales { raw } else { 0 };
        // SAFETY: by this function's contract.
        unsafe { (self.run)(&Job { to, inputs, first, raw, factor: self.factor, divisor: self.divisor, bytes }) };
    }
}

fn run_fn(dtype: DataType, op: ReduceOp, order: Order, simd: Simd) -> RunFn {
    use super::lanes as of;
    #[cfg(target_arch = "x86_64")]
    if order == Order::Ring && !matches!(op, ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min) {
        use super::sums;
        match (dtype, simd) {
            (DataType::Bfloat16, Simd::Avx2) => return sums::avx2::bf16,
            (DataType::Float16, Simd::Avx2) => return sums::avx2::f16,
            (DataType::Float32, Simd::Avx2) => return sums::avx2::f32,
            (DataType::Bfloat16, Simd::Avx512) => return sums::avx512::bf16,
            (DataType::Float16, Simd::Avx512) => return sums::avx512::f16,
            (DataType::Float32, Simd::Avx512) => return sums::avx512::f32,
            _ => {}
        }
    }
    let rounds = order == Order::Ring;
    match dtype {
        DataType::Int8 => by_op::<i8, true>(op, simd),
        DataType::Uint8 => by_op::<u8, true>(op, simd),
        DataType::Int32 => by_op::<i32, true>(op, simd),
        DataType::Uint32 => by_op::<u32, true>(op, simd),
        DataType::Int64 => by_op::<i64, true>(op, simd),
        DataType::Uint64 => by_op::<u64, true>(op, simd),
        DataType::Float16 if rounds => by_op::<of::F16, true>(op, simd),
        DataType::Float16 => by_op::<of::F16, false>(op, simd),
        DataType::Bfloat16 if rounds => by_op::<of::Bf16, true>(op, simd),
        DataType::Bfloat16 => by_op::<of::Bf16, false>(op, simd),
        DataType::Float32 => by_op::<f32, true>(op, simd),
        DataType::Float64 => by_op::<f64, true>(op, simd),
    }
}

fn by_op<L: Lane, const ROUND: bool>(op: ReduceOp, simd: Simd) -> RunFn {
    match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => by_simd::<L, Sum, ROUND>(simd),
        ReduceOp::Prod => by_simd::<L, Prod, ROUND>(simd),
        ReduceOp::Max => by_simd::<L, Max, ROUND>(simd),
        ReduceOp::Min => by_simd::<L, Min, ROUND>(simd),
    }
}

fn by_simd<L: Lane, O: Op, const ROUND: bool>(simd: Simd) -> RunFn {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 | Simd::Avx512 => avx2::any::<L, O, ROUND>,
        _ => portable::<L, O, ROUND>,
    }
}

/// # Safety
/// As of [`RunFn`].
#[inline(never)]
unsafe fn portable<L: Lane, O: Op, const ROUND: bool>(job: &Job<'_>) {
    // SAFETY: passed on.
    unsafe { elements::<L, O, ROUND>(job, 0) };
}

/// Elements that are reduced together: what is between a load and a store stays in the first cache.
const BLOCK: usize = 128;

/// The elements from byte `from` on, a block after the other.
///
/// Of each, the loops below do one thing for all elements, and how many there are is known to none of them: so the
/// compiler makes vectors of each, where it would unroll a short loop of known length.
///
/// # Safety
/// As of [`RunFn`].
#[inline(always)]
pub(super) unsafe fn elements<L: Lane, O: Op, const ROUND: bool>(job: &Job<'_>, from: usize) {
    let size = size_of::<L::Wire>();
    if job.bytes - from <= FEW * size && job.is_plain() {
        // SAFETY: passed on.
        return unsafe { few::<L, O, ROUND>(job, from) };
    }
    let mut room = [[const { MaybeUninit::<L::Acc>::uninit() }; BLOCK]; 2];
    let [acc, x] = &mut room;
    for at in (from..job.bytes).step_by(BLOCK * size) {
        let len = (job.bytes - at) / size;
        let (acc, x) = (&mut acc[..len.min(BLOCK)], &mut x[..len.min(BLOCK)]);
        // SAFETY: passed on; the elements lie within `bytes`.
        let acc = unsafe { load::<L>(job, job.first, at, acc) };
        let mut rank = job.first;
        for _ in 1..job.inputs.len() {
            rank = if rank + 1 == job.inputs.len() { 0 } else { rank + 1 };
            // SAFETY: passed on.
            let x = unsafe { load::<L>(job, rank, at, x) };
            for (acc, x) in acc.iter_mut().zip(x) {
                let both = O::apply::<L>(*acc, *x);
                *acc = if ROUND { L::round(both) } else { both };
            }
        }
        if job.divisor > 1 {
            acc.iter_mut().for_each(|acc| *acc = L::divide(*acc, job.divisor));
        }
        let Target { out, also, .. } = job.to.wrapping_add(at);
        for (i, acc) in acc.iter().enumerate() {
            // SAFETY: the elements are part of the output.
            unsafe { out.cast::<L::Wire>().add(i).write_unaligned(L::narrow(*acc)) };
        }
        if !also.is_null() {
            // SAFETY: as above; what has just been stored.
            unsafe { std::ptr::copy_nonoverlapping(out, also, acc.len() * size) };
        }
    }
}

/// So few elements are done one by one: loops that the compiler makes vectors of take longer to begin with than that.
const FEW: usize = 4;

/// # Safety
/// As of [`RunFn`]; there is nothing to do but to combine.
#[inline(always)]
unsafe fn few<L: Lane, O: Op, const ROUND: bool>(job: &Job<'_>, from: usize) {
    for at in (from..job.bytes).step_by(size_of::<L::Wire>()) {
        // SAFETY: the element lies within `bytes`.
        let load = |rank: usize| L::widen(unsafe { job.inputs[rank].add(at).cast::<L::Wire>().read_unaligned() });
        let mut acc = load(job.first);
        let mut rank = job.first;
        for _ in 1..job.inputs.len() {
            rank = if rank + 1 == job.inputs.len() { 0 } else { rank + 1 };
            let both = O::apply::<L>(acc, load(rank));
            acc = if ROUND { L::round(both) } else { both };
        }
        let (Target { out, also, .. }, result) = (job.to, L::narrow(acc));
        // SAFETY: as above, in the output.
        unsafe {
            out.add(at).cast::<L::Wire>().write_unaligned(result);
            if !also.is_null() {
                also.add(at).cast::<L::Wire>().write_unaligned(result);
            }
        }
    }
}

/// A rank's elements from byte `at` on, as many as there is room for, multiplied if they have yet to be.
///
/// # Safety
/// As of [`RunFn`]; all of them are there.
#[inline(always)]
unsafe fn load<'a, L: Lane>(
    job: &Job<'_>,
    rank: usize,
    at: usize,
    room: &'a mut [MaybeUninit<L::Acc>],
) -> &'a mut [L::Acc] {
    let from = job.inputs[rank].wrapping_add(at).cast::<L::Wire>();
    for (i, x) in room.iter_mut().enumerate() {
        // SAFETY: by this function's contract.
        x.write(L::widen(unsafe { from.add(i).read_unaligned() }));
    }
    // SAFETY: all of it has just been written.
    let x = unsafe { room.assume_init_mut() };
    if job.raw >> rank & 1 != 0 {
        let factor = L::widen(L::element(job.factor));
        x.iter_mut().for_each(|x| *x = L::round(L::prod(*x, factor)));
    }
    x
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Job, Lane, Op, elements};

    /// The portable loops, as the compiler makes them for this processor.
    ///
    /// # Safety
    /// As of `RunFn`. The processor has AVX2 and F16C.
    #[inline(never)]
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn any<L: Lane, O: Op, const ROUND: bool>(job: &Job<'_>) {
        // SAFETY: passed on.
        unsafe { elements::<L, O, ROUND>(job, 0) };
    }
}

#[cfg(test)]
#[path = "reduce_tests.rs"]
mod tests;
