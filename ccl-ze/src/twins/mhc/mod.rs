//! mHC boundaries on the CPU. `ccl_core::mhc::reference` is their law; this is the same arithmetic in the same order, at
//! the speed of memory: `weights`, nearly all that a boundary reads, is read once for several rows (`sums.rs`).

mod columns;
mod fused;
mod lanes;
mod owners;
mod rows;
mod sums;
#[cfg(test)]
mod tests;

use super::{Simd, Twin, arg, fp, simd};
use crate::kernels::mhc_name;
use crate::mhc::{MHC_ARGS, unpack};
use ccl_core::DataType;
use ccl_core::mhc::element::Element;
use ccl_core::mhc::reference::{self, Inputs, Outputs};
use ccl_core::mhc::{Buffers, MAX_MIXES, Params, Variant, block_owner};
use ccl_core::protocol::MAX_RANKS;
use ccl_core::slot::Line;
use half::{bf16, f16};
use lanes::Lanes;
use std::cell::RefCell;
use std::ffi::c_void;
use sums::{Blocks, Room};
use ze_soft::ext::{zesoft_kernel_fn, zesoft_launch_t};

/// The kernel for a type, by its number, and a number of streams.
unsafe extern "C" fn kernel<const DTYPE: u32, const STREAMS: u32>(launch: *const zesoft_launch_t) {
    let Some(dtype) = DataType::from_abi(DTYPE) else { return };
    // SAFETY: the driver passes a live launch with the registered arguments.
    let words = std::array::from_fn(|index| unsafe {
        match MHC_ARGS[index] {
            8 => arg::<u64>(&*launch, index),
            _ => u64::from(arg::<u32>(&*launch, index)),
        }
    });
    let (params, n, memory) = unpack(&words, dtype, STREAMS);
    let _fp = fp::DefaultFp::enter();
    // SAFETY: the host has checked what it launched, for memory that its caller vouched for.
    unsafe { boundary(&params, n, &memory, simd()) };
}

/// Stores lines one after the other.
unsafe fn put_lines<const D: usize>(to: *mut u8, words: &[u32], tag: u32) {
    for (i, words) in words.chunks(D).enumerate() {
        let mut data = [0; D];
        data[..words.len()].copy_from_slice(words);
        // SAFETY: by the caller's contract the lines lie in staging memory, which is aligned for them.
        unsafe { (*to.cast::<Line<D>>().add(i)).put(&data, tag) };
    }
}

/// All of them, as the software driver is told of them.
pub(super) fn all() -> Vec<Twin> {
    let mut twins = Vec::new();
    macro_rules! kernels {
        ($($dtype:ident),*) => { $(
            for (streams, function) in [
                (2, kernel::<{ DataType::$dtype as u32 }, 2> as zesoft_kernel_fn),
                (4, kernel::<{ DataType::$dtype as u32 }, 4> as zesoft_kernel_fn),
                (8, kernel::<{ DataType::$dtype as u32 }, 8> as zesoft_kernel_fn),
            ] {
                twins.push(Twin { name: mhc_name(DataType::$dtype, streams), function, arg_sizes: &MHC_ARGS });
            }
        )* };
    }
    kernels!(Bfloat16, Float16, Float32);
    twins.extend(fused::all());
    twins
}

/// A boundary for `n` ranks. `y` and `normed` may be null, and `y` may be `x`: a row of it is written when all of that
/// row of x has been read.
///
/// # Safety
/// `params` and `memory` have passed their checks, and the memory has the shapes that they say; what the variant doesn't
/// use is null.
#[inline(never)]
pub(super) unsafe fn boundary(params: &Params, n: usize, memory: &Buffers, simd: Simd) {
    use ccl_core::DataType::{Bfloat16, Float16, Float32};
    // SAFETY: passed on.
    unsafe {
        match params.dtype {
            Bfloat16 => typed::<bf16>(params, n, memory, simd),
            Float16 => typed::<f16>(params, n, memory, simd),
            Float32 => typed::<f32>(params, n, memory, simd),
            // Refused by `Params::check`.
            _ => {}
        }
    }
}

unsafe fn typed<T: Lanes>(params: &Params, n: usize, memory: &Buffers, simd: Simd) {
    #[cfg(target_arch = "x86_64")]
    if is_fast(simd) {
        // SAFETY: the processor has what `fast` is compiled for; the rest is passed on.
        return unsafe { fast::<T>(params, n, memory) };
    }
    let _ = simd;
    // SAFETY: passed on.
    unsafe { plain::<T>(params, n, memory) }
}

/// By the reference itself, a row at a time: all inputs of a row are read before an output is written.
unsafe fn plain<T: Element>(params: &Params, n: usize, memory: &Buffers) {
    let (hc, d, mixes) = (params.hc(), params.hidden as usize, params.mixes());
    let one = Params { rows: 1, ..*params };
    unsafe fn slice<'a, E>(from: *const E, len: usize) -> &'a [E] {
        // SAFETY: null stands for what isn't used; else the shape is the caller's duty.
        if from.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(from, len) } }
    }
    unsafe fn store<E: Copy>(from: &[E], to: *mut E) {
        if !to.is_null() {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        }
    }
    for row in 0..params.rows as usize {
        let at = |from: *const c_void, elements: usize| match from.is_null() {
            true => std::ptr::null(),
            false => from.cast::<T>().wrapping_add(row * elements),
        };
        let wide = |from: *const f32, elements: usize| match from.is_null() {
            true => from,
            false => from.wrapping_add(row * elements),
        };
        // SAFETY: by this function's contract.
        let out: Outputs<T> = unsafe {
            reference::boundary(
                &one,
                n,
                &Inputs {
                    x: slice(at(memory.x, d), d),
                    residual: slice(at(memory.residual, hc * d), hc * d),
                    post: slice(wide(memory.post, hc), hc),
                    comb: slice(wide(memory.comb, hc * hc), hc * hc),
                    previous_pre: slice(wide(memory.previous_pre, hc), hc),
                    weights: slice(memory.weights, mixes * hc * d),
                    scale: slice(memory.scale, params.variant.scales()),
                    base: slice(memory.base, mixes),
                    norm_weight: slice(memory.norm_weight.cast(), d),
                },
            )
        };
        // SAFETY: as above.
        unsafe {
            store(&out.residual, at(memory.residual_out, hc * d).cast_mut());
            store(&out.y, at(memory.y, d).cast_mut());
            store(&out.normed, at(memory.normed, d).cast_mut());
            store(&out.pre, wide(memory.pre_out, hc).cast_mut());
            store(&out.post, wide(memory.post_out, hc).cast_mut());
            store(&out.comb, wide(memory.comb_out, hc * hc).cast_mut());
        }
    }
}

/// Rows times streams of a tile, whose rows share what is read of `weights`.
const TILE: usize = 32;
/// Columns of a run of few rows: 4 KiB of each row of `weights` and each stream, which stay in the first cache.
const RUN: usize = 1024;
/// Sums of a row: the mixes and the square.
const SUMS: usize = MAX_MIXES + 1;

/// Room for a tile, kept by the thread.
#[derive(Default)]
struct Scratch {
    room: Room,
    /// Of few rows: [row, stream, RUN].
    values: Vec<f32>,
    /// [row, owner, SUMS].
    partial: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn fast<T: Lanes>(params: &Params, n: usize, memory: &Buffers) {
    SCRATCH.with_borrow_mut(|scratch| {
        let rows_of_tile = TILE / params.hc();
        scratch.partial.resize(TILE / 2 * MAX_RANKS * SUMS, 0.0);
        scratch.values.resize((sums::MANY - 1) * 8 * RUN, 0.0);
        let rows = params.rows as usize;
        for first in (0..rows).step_by(rows_of_tile) {
            // SAFETY: passed on.
            unsafe { tile::<T>(params, n, memory, scratch, first, rows_of_tile.min(rows - first)) };
        }
    });
}

/// Post, sums and what follows from them, for a few rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<T: Lanes>(
    params: &Params,
    n: usize,
    memory: &Buffers,
    scratch: &mut Scratch,
    first: usize,
    rows: usize,
) {
    let (hc, d, mixes, pre) = (params.hc(), params.hidden as usize, params.mixes(), params.variant.has_pre());
    scratch.partial[..rows * n * SUMS].fill(0.0);
    let few = rows < sums::MANY;
    if few && pre {
        (0..sums::ahead(params)).for_each(|step| ask_run(params, memory.weights, 0, step));
    }
    for from in (0..if few { d } else { 0 }).step_by(RUN) {
        let columns = RUN.min(d - from);
        for row in 0..rows {
            let values = &mut scratch.values[row * hc * RUN..][..hc * RUN];
            // SAFETY: passed on.
            unsafe { post_run::<T>(params, memory, first + row, from, columns, (values, RUN)) };
        }
        if pre {
            // SAFETY: passed on; the values of the rows' streams have just been made.
            unsafe { sum_run(params, n, memory.weights, scratch, rows, from, columns) };
        }
    }
    let Scratch { room, partial, .. } = scratch;
    let all = Blocks { first: 0, step: 1, count: if few { 0 } else { params.blocks() } };
    room.make(params, rows);
    let post = |row: usize, block: usize, values: &mut [f32]| {
        // SAFETY: passed on.
        unsafe { post_block::<T>(params, memory, first + row, block, values) };
    };
    if pre {
        let add = |row: usize, block: usize, sums: &[f32]| {
            sums::add_to(&mut partial[(row * n + block_owner(n, block)) * SUMS..], sums);
        };
        sums::ask(params, memory.weights, all);
        // SAFETY: passed on.
        unsafe { sums::of_blocks(params, memory.weights, rows, all, room, post, add) };
    } else {
        for (row, k) in (0..rows).flat_map(|row| (0..all.count).map(move |k| (row, k))) {
            post(row, k, room.values(params, row));
        }
    }
    if !pre {
        return;
    }
    for row in 0..rows {
        let mut mix = [0.0f32; MAX_MIXES];
        let owned = &partial[row * n * SUMS..][..n * SUMS];
        let total = |j: usize| (0..n).fold(0.0f32, |sum, owner| sum + owned[owner * SUMS + j]);
        let inverse = ccl_core::mhc::math::rsqrt(total(mixes) / (hc * d) as f32 + params.rms_eps);
        for (j, mix) in mix[..mixes].iter_mut().enumerate() {
            *mix = total(j) * inverse;
        }
        // SAFETY: passed on.
        unsafe { finish_row::<T>(params, memory, first + row, &mix) };
    }
}

/// Asks for the weights of a step of few rows: a mix and a block of a run, or of the next one.
#[cfg(target_arch = "x86_64")]
fn ask_run(params: &Params, weights: *const f32, run: usize, step: usize) {
    let (d, block, whole) = (params.hidden as usize, params.block(), RUN / params.block());
    let (j, run) = match step / whole {
        j if j >= params.mixes() => (j - params.mixes(), run + 1),
        j => (j, run),
    };
    let at = run * whole + step % whole;
    if at * block < d {
        sums::fetch_block(params, weights.wrapping_add(j * params.hc() * d + at * block), at);
    }
}

/// Adds a run's block sums to the owners' partial sums.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sum_run(
    params: &Params,
    n: usize,
    weights: *const f32,
    scratch: &mut Scratch,
    rows: usize,
    from: usize,
    columns: usize,
) {
    let (hc, d, mixes, block) = (params.hc(), params.hidden as usize, params.mixes(), params.block());
    let Scratch { values, partial, .. } = scratch;
    // Of the row's last block, which may be short: beyond the columns always zero.
    let mut tail = [0.0f32; 8 * 128];
    let (whole, ahead) = (RUN / block, sums::ahead(params));
    for j in 0..mixes {
        for b in (0..columns).step_by(block) {
            ask_run(params, weights, from / RUN, j * whole + b / block + ahead);
            let owner = block_owner(n, (from + b) / block);
            // SAFETY: inside `weights`.
            let mut row_of_weights = unsafe { weights.add(j * hc * d + from + b) };
            let mut stride = d;
            if b + block > columns {
                // Beyond the row is the next stream's.
                for i in 0..hc {
                    // SAFETY: the columns that the row has.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            row_of_weights.add(i * d),
                            tail.as_mut_ptr().add(i * 128),
                            columns - b,
                        );
                    }
                }
                row_of_weights = tail.as_ptr();
                stride = 128;
            }
            for row in 0..rows {
                let values = &values[row * hc * RUN + b..];
                // SAFETY: whole blocks of `hc` streams, in both.
                let sum = unsafe { lanes::dot::<false>(values.as_ptr(), RUN, row_of_weights, stride, hc, block) };
                partial[(row * n + owner) * SUMS + j] += sum;
            }
        }
    }
    for b in (0..columns).step_by(block) {
        let owner = block_owner(n, (from + b) / block);
        for row in 0..rows {
            let values = values[row * hc * RUN + b..].as_ptr();
            // SAFETY: as above.
            let sum = unsafe { lanes::dot::<false>(values, RUN, values, RUN, hc, block) };
            partial[(row * n + owner) * SUMS + mixes] += sum;
        }
    }
}

/// X' of a block of a row: stored, and widened into `values`, by streams, with zeros up to the whole block.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn post_block<T: Lanes>(params: &Params, memory: &Buffers, row: usize, block: usize, values: &mut [f32]) {
    let (width, from) = (params.block(), block * params.block());
    let columns = width.min(params.hidden as usize - from);
    // SAFETY: passed on.
    unsafe { post_run::<T>(params, memory, row, from, columns, (values, width)) };
}

/// The same of `columns` columns from `from` on, with streams so many values apart.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn post_run<T: Lanes>(
    params: &Params,
    memory: &Buffers,
    row: usize,
    from: usize,
    columns: usize,
    (values, width): (&mut [f32], usize),
) {
    let hc = params.hc();
    // SAFETY: passed on.
    unsafe {
        match hc {
            2 => post_streams::<T, 2>(params, memory, row, from, columns, (values, width)),
            4 => post_streams::<T, 4>(params, memory, row, from, columns, (values, width)),
            _ => post_streams::<T, 8>(params, memory, row, from, columns, (values, width)),
        }
    }
    // The last vector may have written beyond the row: what it read there was zero, but its sum need not be (0 times
    // infinity).
    let padded = columns.next_multiple_of(params.block());
    if columns < padded {
        (0..hc).for_each(|i| values[i * width + columns..i * width + padded].fill(0.0));
    }
}

/// The same of `HC` streams, whose values stay in registers; what `values` has beyond the columns is left to the caller.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn post_streams<T: Lanes, const HC: usize>(
    params: &Params,
    memory: &Buffers,
    row: usize,
    from: usize,
    columns: usize,
    (values, width): (&mut [f32], usize),
) {
    use std::arch::x86_64::*;
    let d = params.hidden as usize;
    let streams = row * HC * d + from;
    debug_assert!(values.len() >= (HC - 1) * width + columns.next_multiple_of(8));
    let values = values.as_mut_ptr();
    // Below, a count of at most 8 elements is accessed, and `values` has whole vectors, since blocks are multiples of 8.
    // SAFETY: an offset inside the shapes that the caller vouches for.
    let residual = unsafe { memory.residual.cast::<T>().add(streams) };
    if !params.variant.has_post() {
        for (c, i) in (0..columns).step_by(8).flat_map(|c| (0..HC).map(move |i| (c, i))) {
            // SAFETY: inside the shapes that the caller vouches for.
            unsafe {
                _mm256_storeu_ps(values.add(i * width + c), T::load(residual.add(i * d + c), (columns - c).min(8)))
            };
        }
        return;
    }
    // Of each output: those of the streams, and that of x.
    let (mut of_streams, mut of_x) = ([[0.0f32; HC]; HC], [0.0f32; HC]);
    for o in 0..HC {
        // SAFETY: inside the shapes that the caller vouches for.
        unsafe {
            of_x[o] = *memory.post.add(row * HC + o);
            of_streams[o] = std::array::from_fn(|i| *memory.comb.add((row * HC + i) * HC + o));
        }
    }
    // SAFETY: as above.
    let (x, out) = unsafe { (memory.x.cast::<T>().add(row * d + from), memory.residual_out.cast::<T>().add(streams)) };
    let columns_at = |c: usize, count: usize| {
        // SAFETY: inside the shapes that the caller vouches for.
        unsafe {
            let old: [__m256; HC] = std::array::from_fn(|i| T::load(residual.add(i * d + c), count));
            let x = T::load(x.add(c), count);
            for o in 0..HC {
                let mut sum = _mm256_mul_ps(_mm256_set1_ps(of_x[o]), x);
                for (factor, old) in of_streams[o].iter().zip(&old) {
                    sum = _mm256_fmadd_ps(_mm256_set1_ps(*factor), *old, sum);
                }
                _mm256_storeu_ps(values.add(o * width + c), T::store(out.add(o * d + c), sum, count));
            }
        }
    };
    let whole = columns / 8 * 8;
    (0..whole).step_by(8).for_each(|c| columns_at(c, 8));
    if whole < columns {
        columns_at(whole, columns - whole);
    }
}

/// Coefficients, y and the norm of a row whose X' is stored and whose mixes are known.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn finish_row<T: Lanes>(params: &Params, memory: &Buffers, row: usize, mix: &[f32; MAX_MIXES]) {
    let (hc, mixes) = (params.hc(), params.mixes());
    // SAFETY: by the shapes that the caller vouches for.
    let (scale, base) = unsafe {
        let scale = std::slice::from_raw_parts(memory.scale, params.variant.scales());
        (scale, std::slice::from_raw_parts(memory.base, mixes))
    };
    let computed = reference::coefficients_of(params, mix, scale, base);
    let mut used = [0.0f32; 8];
    used[..hc].copy_from_slice(&computed.pre[..hc]);
    if params.variant == Variant::V41 {
        // SAFETY: inside the shapes that the caller vouches for. Before `pre_out` is written, which may be the same place.
        unsafe { std::ptr::copy_nonoverlapping(memory.previous_pre.add(row * hc), used.as_mut_ptr(), hc) };
    }
    if params.variant != Variant::Head {
        for (values, to, len) in [
            (&computed.pre[..], memory.pre_out, hc),
            (&computed.post[..], memory.post_out, hc),
            (&computed.comb[..], memory.comb_out, hc * hc),
        ] {
            if !to.is_null() {
                // SAFETY: inside the shapes that the caller vouches for.
                unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to.add(row * len), len) };
            }
        }
    }
    if !memory.y.is_null() {
        // SAFETY: inside the shapes that the caller vouches for.
        unsafe { y_row::<T>(params, memory, row, &used[..hc]) };
    }
}

/// y of a row, and its norm, from X' by the coefficients `used`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn y_row<T: Lanes>(params: &Params, memory: &Buffers, row: usize, used: &[f32]) {
    use std::arch::x86_64::*;
    let (hc, d) = (params.hc(), params.hidden as usize);
    let residual = if params.variant.has_post() { memory.residual_out.cast_const() } else { memory.residual };
    // SAFETY: inside the shapes that the caller vouches for.
    let (residual, y) = unsafe { (residual.cast::<T>().add(row * hc * d), memory.y.cast::<T>().add(row * d)) };
    for c in (0..d).step_by(8) {
        let count = (d - c).min(8);
        let mut sum = _mm256_setzero_ps();
        for (i, factor) in used.iter().enumerate() {
            // SAFETY: inside the shapes that the caller vouches for.
            sum = unsafe { _mm256_fmadd_ps(_mm256_set1_ps(*factor), T::load(residual.add(i * d + c), count), sum) };
        }
        // SAFETY: inside the shapes that the caller vouches for.
        unsafe { T::store(y.add(c), sum, count) };
    }
    if let Some(eps) = params.norm_eps
        && !memory.normed.is_null()
    {
        // SAFETY: inside the shapes that the caller vouches for.
        unsafe { norm_row::<T>(params, y, memory.norm_weight.cast(), memory.normed.cast::<T>().add(row * d), eps) };
    }
}

/// Whether the processor has what the vectors take, and they are wanted.
fn is_fast(simd: Simd) -> bool {
    #[cfg(target_arch = "x86_64")]
    return simd != Simd::Portable && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = simd;
        false
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn norm_row<T: Lanes>(params: &Params, y: *const T, weight: *const T, out: *mut T, eps: f32) {
    use std::arch::x86_64::*;
    let (d, block) = (params.hidden as usize, params.block());
    let mut squares = 0.0f32;
    for b in (0..d).step_by(block) {
        let mut values = [0.0f32; 128];
        for c in (b..(b + block).min(d)).step_by(8) {
            // SAFETY: columns that the row has, of which at most 8 are read.
            unsafe { _mm256_storeu_ps(values.as_mut_ptr().add(c - b), T::load(y.add(c), (d - c).min(8))) };
        }
        // SAFETY: one stream of a whole block.
        squares += unsafe { lanes::dot::<false>(values.as_ptr(), 0, values.as_ptr(), 0, 1, block) };
    }
    let inverse = _mm256_set1_ps(ccl_core::mhc::math::rsqrt(squares / d as f32 + eps));
    for c in (0..d).step_by(8) {
        let count = (d - c).min(8);
        // SAFETY: columns that the row has.
        unsafe {
            let normed = _mm256_mul_ps(T::load(y.add(c), count), inverse);
            T::store(out.add(c), _mm256_mul_ps(normed, T::load(weight.add(c), count)), count);
        }
    }
}
