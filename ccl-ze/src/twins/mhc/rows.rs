//! What follows of a row once its X' is stored, for the designs that come to it by other ways than a boundary alone.

use super::lanes::Lanes;
use super::{Simd, is_fast};
#[cfg(target_arch = "x86_64")]
use super::{finish_row, y_row};
use ccl_core::mhc::element::Element;
use ccl_core::mhc::{Buffers, MAX_MIXES, Params, Variant, reference};
use half::{bf16, f16};

/// Coefficients, y and the norm of a row whose X' is stored and whose mixes are known.
///
/// # Safety
/// As for [`super::boundary`] of a variant that has both post and pre.
pub(super) unsafe fn finish<T: Lanes>(
    params: &Params,
    memory: &Buffers,
    row: usize,
    mix: &[f32; MAX_MIXES],
    simd: Simd,
) {
    #[cfg(target_arch = "x86_64")]
    if is_fast(simd) {
        // SAFETY: the processor has what it takes; the rest is passed on.
        return unsafe { finish_row::<T>(params, memory, row, mix) };
    }
    let _ = simd;
    let (hc, mixes) = (params.hc(), params.mixes());
    // SAFETY: by the shapes that the caller vouches for.
    unsafe {
        let scale = std::slice::from_raw_parts(memory.scale, params.variant.scales());
        let computed = reference::coefficients_of(params, mix, scale, std::slice::from_raw_parts(memory.base, mixes));
        let mut used = computed.pre;
        if params.variant == Variant::V41 {
            std::ptr::copy_nonoverlapping(memory.previous_pre.add(row * hc), used.as_mut_ptr(), hc);
        }
        for (values, to, len) in [
            (&computed.pre[..], memory.pre_out, hc),
            (&computed.post[..], memory.post_out, hc),
            (&computed.comb[..], memory.comb_out, hc * hc),
        ] {
            if !to.is_null() {
                std::ptr::copy_nonoverlapping(values.as_ptr(), to.add(row * len), len);
            }
        }
        plain_y::<T>(params, memory, row, &used[..hc]);
    }
}

/// y of a row, and its norm, from X' by the coefficients `used`.
unsafe fn plain_y<T: Element>(params: &Params, memory: &Buffers, row: usize, used: &[f32]) {
    let (hc, d) = (params.hc(), params.hidden as usize);
    // SAFETY: by the shapes that the caller vouches for.
    unsafe {
        let new = std::slice::from_raw_parts(memory.residual_out.cast::<T>().add(row * hc * d), hc * d);
        let y = reference::collapse(d, new, used);
        std::ptr::copy_nonoverlapping(y.as_ptr(), memory.y.cast::<T>().add(row * d), d);
        if let Some(eps) = params.norm_eps {
            let weight = std::slice::from_raw_parts(memory.norm_weight.cast::<T>(), d);
            let normed = reference::norm(params, &y, weight, eps);
            std::ptr::copy_nonoverlapping(normed.as_ptr(), memory.normed.cast::<T>().add(row * d), d);
        }
    }
}

/// y of all rows, and its norm, from X' and the previous boundary's `pre`.
///
/// # Safety
/// As for [`super::boundary`] of [`Variant::V41`]; X' is stored.
pub(super) unsafe fn collapse_rows(params: &Params, memory: &Buffers, simd: Simd) {
    use ccl_core::DataType::{Bfloat16, Float16, Float32};
    for row in 0..params.rows as usize {
        // SAFETY: passed on.
        unsafe {
            match params.dtype {
                Bfloat16 => collapse_row::<bf16>(params, memory, row, simd),
                Float16 => collapse_row::<f16>(params, memory, row, simd),
                Float32 => collapse_row::<f32>(params, memory, row, simd),
                _ => {}
            }
        }
    }
}

unsafe fn collapse_row<T: Lanes>(params: &Params, memory: &Buffers, row: usize, simd: Simd) {
    let hc = params.hc();
    // SAFETY: by the shapes that the caller vouches for.
    let used = unsafe { std::slice::from_raw_parts(memory.previous_pre.add(row * hc), hc) };
    #[cfg(target_arch = "x86_64")]
    if is_fast(simd) {
        // SAFETY: the processor has what it takes; the rest is passed on.
        return unsafe { y_row::<T>(params, memory, row, used) };
    }
    let _ = simd;
    // SAFETY: passed on.
    unsafe { plain_y::<T>(params, memory, row, used) };
}
