//! Eight columns at a time.

use ccl_core::mhc::element::Element;
use half::{bf16, f16};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Elements as vectors of eight binary32.
pub(super) trait Lanes: Element {
    /// Loads `count` (1 to 8) elements; the rest is zero.
    ///
    /// # Safety
    /// So many can be read, and the processor has AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load(from: *const Self, count: usize) -> __m256;

    /// Rounds and stores `count` (1 to 8) elements; returns them widened again.
    ///
    /// # Safety
    /// So many can be written, and the processor has AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    unsafe fn store(to: *mut Self, values: __m256, count: usize) -> __m256;
}

/// 16-bit types: by a register of eight, through a buffer where there are fewer.
macro_rules! narrow {
    ($type:ty, $widen:expr, $round:expr) => {
        impl Lanes for $type {
            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn load(from: *const Self, count: usize) -> __m256 {
                // SAFETY: `count` elements, by the contract.
                unsafe {
                    if count == 8 {
                        return $widen(_mm_loadu_si128(from.cast()));
                    }
                    let mut few = [0u16; 8];
                    std::ptr::copy_nonoverlapping(from.cast::<u16>(), few.as_mut_ptr(), count);
                    $widen(_mm_loadu_si128(few.as_ptr().cast()))
                }
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn store(to: *mut Self, values: __m256, count: usize) -> __m256 {
                // SAFETY: `count` elements, by the contract.
                unsafe {
                    let rounded: __m128i = $round(values);
                    if count == 8 {
                        _mm_storeu_si128(to.cast(), rounded);
                    } else {
                        let mut few = [0u16; 8];
                        _mm_storeu_si128(few.as_mut_ptr().cast(), rounded);
                        std::ptr::copy_nonoverlapping(few.as_ptr(), to.cast::<u16>(), count);
                    }
                    $widen(rounded)
                }
            }
        }
    };
}

narrow!(bf16, widen_bf16, round_bf16);
narrow!(f16, _mm256_cvtph_ps, round_f16);

impl Lanes for f32 {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(from: *const Self, count: usize) -> __m256 {
        // SAFETY: `count` elements, by the contract.
        unsafe {
            if count == 8 {
                return _mm256_loadu_ps(from);
            }
            let mut few = [0.0f32; 8];
            std::ptr::copy_nonoverlapping(from, few.as_mut_ptr(), count);
            _mm256_loadu_ps(few.as_ptr())
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn store(to: *mut Self, values: __m256, count: usize) -> __m256 {
        // SAFETY: `count` elements, by the contract.
        unsafe {
            let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(values, values);
            let rounded = _mm256_blendv_ps(values, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC0_0000)), nan);
            if count == 8 {
                _mm256_storeu_ps(to, rounded);
            } else {
                let mut few = [0.0f32; 8];
                _mm256_storeu_ps(few.as_mut_ptr(), rounded);
                std::ptr::copy_nonoverlapping(few.as_ptr(), to, count);
            }
            rounded
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn widen_bf16(bits: __m128i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
}

/// To nearest even; NaN becomes the canonical one.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn round_bf16(values: __m256) -> __m128i {
    let bits = _mm256_castps_si256(values);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
    let high = _mm256_blendv_epi8(_mm256_srli_epi32::<16>(rounded), _mm256_set1_epi32(0x7FC0), nan);
    let packed = _mm256_packus_epi32(high, high);
    _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(packed))
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn round_f16(values: __m256) -> __m128i {
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
    let narrow_nan = _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256::<1>(nan));
    let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
    _mm_blendv_epi8(rounded, _mm_set1_epi16(0x7E00), narrow_nan)
}

/// In which order the registers of 64 columns are loaded, which no sum depends on: ascending, and so that no load goes on
/// in memory where the one before ended.
#[cfg(target_arch = "x86_64")]
const ASCENDING: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
#[cfg(target_arch = "x86_64")]
const SCATTERED: [usize; 8] = [2, 6, 0, 4, 3, 7, 1, 5];

/// The block sum of the products of `a` and `b`: `streams` runs of `block` (64 or 128) columns each, `a_stride` and
/// `b_stride` elements apart. In each column the streams by fused multiply-add, then the columns by fours, then halves.
///
/// `LONE` blocks have others' behind them in memory, which aren't wanted, but would be fetched for whoever reads upwards: they
/// are read in an order in which the processor sees no beginning of anything longer.
///
/// # Safety
/// So much can be read, and the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn dot<const LONE: bool>(
    a: *const f32,
    a_stride: usize,
    b: *const f32,
    b_stride: usize,
    streams: usize,
    block: usize,
) -> f32 {
    // SAFETY: by this function's contract, for both halves.
    let (mut low, mut high) = unsafe { dot_64::<LONE>(a, a_stride, b, b_stride, streams) };
    if block > 64 {
        // SAFETY: as above.
        let (low_2, high_2) = unsafe { dot_64::<LONE>(a.add(64), a_stride, b.add(64), b_stride, streams) };
        low = _mm256_add_ps(low, low_2);
        high = _mm256_add_ps(high, high_2);
    }
    // Eight groups: 0 2 4 6 in the lower half, 1 3 5 7 in the upper.
    let eight = _mm256_add_ps(low, high);
    let four = _mm256_add_ps(eight, _mm256_permute_ps::<0b1110>(eight));
    let two = _mm256_add_ps(four, _mm256_permute_ps::<0b01>(four));
    _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(two), _mm256_extractf128_ps::<1>(two)))
}

/// The sums of 64 columns by fours: groups 0 to 7 and 8 to 15, each in the order 0 2 4 6 1 3 5 7.
///
/// # Safety
/// As for [`dot`].
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn dot_64<const LONE: bool>(
    a: *const f32,
    a_stride: usize,
    b: *const f32,
    b_stride: usize,
    streams: usize,
) -> (__m256, __m256) {
    let order = if LONE { SCATTERED } else { ASCENDING };
    let mut sums = [_mm256_setzero_ps(); 8];
    for i in 0..streams {
        for v in order {
            // SAFETY: by the caller's contract.
            let (a, b) =
                unsafe { (_mm256_loadu_ps(a.add(i * a_stride + v * 8)), _mm256_loadu_ps(b.add(i * b_stride + v * 8))) };
            sums[v] = _mm256_fmadd_ps(a, b, sums[v]);
        }
    }
    let fours =
        |k: usize| _mm256_hadd_ps(_mm256_hadd_ps(sums[k], sums[k + 1]), _mm256_hadd_ps(sums[k + 2], sums[k + 3]));
    (fours(0), fours(4))
}

/// [`dot`] of what is shared, `LONE` or not, with each of four others; each pointer with the elements from one of its `HC` runs to the next.
///
/// # Safety
/// As for [`dot`], of all of them.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn four_dots<const HC: usize, const LONE: bool>(
    shared: (*const f32, usize),
    (four, stride): ([*const f32; 4], usize),
    block: usize,
) -> [f32; 4] {
    // SAFETY: by this function's contract.
    let eighth = |c: usize| unsafe { fours_of_32::<HC, LONE>(shared, (four, stride), c) };
    let add = |a: [__m256; 4], b: [__m256; 4]| std::array::from_fn(|k| _mm256_add_ps(a[k], b[k]));
    let (low, high) = match (block > 64, LONE) {
        (true, true) => {
            let (third, first, fourth, second) = (eighth(64), eighth(0), eighth(96), eighth(32));
            (add(first, third), add(second, fourth))
        }
        (true, false) => {
            let (first, second) = (eighth(0), eighth(32));
            (add(first, eighth(64)), add(second, eighth(96)))
        }
        (false, _) => (eighth(0), eighth(32)),
    };
    // As in `dot`, of two in one register and then of all.
    let [a, b, c, d] = add(low, high);
    let halves = |a, b| _mm256_add_ps(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xEE>(a, b));
    let two = _mm256_hadd_ps(halves(a, b), halves(c, d));
    let sums = _mm_add_ps(_mm256_castps256_ps128(two), _mm256_extractf128_ps::<1>(two));
    let mut four = [0.0; 4];
    // SAFETY: of this length.
    unsafe { _mm_storeu_ps(four.as_mut_ptr(), sums) };
    four
}

/// Of 32 columns from `from` on, for each of the four, the sums by fours: groups in the order 0 2 4 6 1 3 5 7.
///
/// # Safety
/// As for [`four_dots`].
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn fours_of_32<const HC: usize, const LONE: bool>(
    (shared, shared_stride): (*const f32, usize),
    (four, stride): ([*const f32; 4], usize),
    from: usize,
) -> [__m256; 4] {
    // Two registers for each of four and two that are shared: what there is room for.
    let sixteen = |c: usize| {
        let mut sums = [[_mm256_setzero_ps(); 2]; 4];
        for i in 0..HC {
            let of_shared = shared.wrapping_add(i * shared_stride + c);
            // SAFETY: by the caller's contract.
            let values = unsafe { [_mm256_loadu_ps(of_shared), _mm256_loadu_ps(of_shared.add(8))] };
            for (one, sums) in four.iter().zip(&mut sums) {
                let one = one.wrapping_add(i * stride + c);
                for (v, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: by the caller's contract.
                    *sum = _mm256_fmadd_ps(values[v], unsafe { _mm256_loadu_ps(one.add(v * 8)) }, *sum);
                }
            }
        }
        sums.map(|[a, b]| _mm256_hadd_ps(a, b))
    };
    let (low, high) = if LONE {
        let high = sixteen(from + 16);
        (sixteen(from), high)
    } else {
        (sixteen(from), sixteen(from + 16))
    };
    std::array::from_fn(|k| _mm256_hadd_ps(low[k], high[k]))
}

/// Asks for `elements` from `from` on, which will be needed soon, as far as the second cache: of what lies as far apart as
/// streams do, the first cache could hold too little.
#[cfg(target_arch = "x86_64")]
pub(super) fn fetch<E>(from: *const E, elements: usize) {
    for at in (0..elements * size_of::<E>()).step_by(64) {
        // SAFETY: a hint, which accesses nothing; every processor of this kind has it.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast::<i8>().wrapping_add(at)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn fetch<E>(_from: *const E, _elements: usize) {}
