//! Sums of two streams of elements, each rounded to nearest even in the element's own type; every NaN becomes the one
//! canonical NaN. Portable and AVX2/F16C versions give the same bits.
//!
//! binary16 and bfloat16 are added in binary32 and rounded once more: with at least 2p+2 bits in between, that equals
//! rounding the exact sum.

use ccl_core::DataType;
use half::f16;

/// `acc[i] = acc[i] + own[i]` over `bytes` of packed elements; `own` needs no alignment.
///
/// # Safety
/// `acc` and `own` hold `bytes` bytes and do not overlap.
pub(super) type AddFn = unsafe fn(acc: *mut u8, own: *const u8, bytes: usize);

/// Which implementation to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Simd {
    /// Plain Rust.
    Portable,
    /// AVX2 with F16C.
    Avx2,
}

impl Simd {
    /// The best that this processor has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
            return Simd::Avx2;
        }
        Simd::Portable
    }
}

/// The sum for a type, or nothing where there is none yet.
pub(super) fn add_fn(dtype: DataType, simd: Simd) -> Option<AddFn> {
    Some(match (dtype, simd) {
        #[cfg(target_arch = "x86_64")]
        (DataType::Bfloat16, Simd::Avx2) => avx2::bf16,
        #[cfg(target_arch = "x86_64")]
        (DataType::Float16, Simd::Avx2) => avx2::f16,
        #[cfg(target_arch = "x86_64")]
        (DataType::Float32, Simd::Avx2) => avx2::f32,
        (DataType::Bfloat16, _) => portable::<2, Bf16>,
        (DataType::Float16, _) => portable::<2, F16>,
        (DataType::Float32, _) => portable::<4, F32>,
        _ => return None,
    })
}

trait Element<const N: usize> {
    fn add(a: [u8; N], b: [u8; N]) -> [u8; N];
}

struct Bf16;
struct F16;
struct F32;

/// Rounds a binary32 to bfloat16, to nearest even.
#[inline(always)]
fn round_bf16(sum: f32) -> u16 {
    let bits = sum.to_bits();
    if sum.is_nan() { 0x7FC0 } else { ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16 }
}

impl Element<2> for Bf16 {
    #[inline(always)]
    fn add(a: [u8; 2], b: [u8; 2]) -> [u8; 2] {
        let widen = |x| f32::from_bits(u32::from(u16::from_le_bytes(x)) << 16);
        round_bf16(widen(a) + widen(b)).to_le_bytes()
    }
}

impl Element<2> for F16 {
    #[inline(always)]
    fn add(a: [u8; 2], b: [u8; 2]) -> [u8; 2] {
        let sum = f16::from_le_bytes(a).to_f32() + f16::from_le_bytes(b).to_f32();
        if sum.is_nan() { 0x7E00u16.to_le_bytes() } else { f16::from_f32(sum).to_le_bytes() }
    }
}

impl Element<4> for F32 {
    #[inline(always)]
    fn add(a: [u8; 4], b: [u8; 4]) -> [u8; 4] {
        let sum = f32::from_le_bytes(a) + f32::from_le_bytes(b);
        if sum.is_nan() { 0x7FC0_0000u32.to_le_bytes() } else { sum.to_le_bytes() }
    }
}

#[inline(never)]
unsafe fn portable<const N: usize, E: Element<N>>(acc: *mut u8, own: *const u8, bytes: usize) {
    for i in 0..bytes / N {
        // SAFETY: both hold `bytes` bytes by this function's contract; byte arrays need no alignment.
        unsafe {
            let at = acc.add(i * N).cast::<[u8; N]>();
            at.write(E::add(at.read(), own.add(i * N).cast::<[u8; N]>().read()));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Bf16, F16, F32, portable};
    use std::arch::x86_64::*;

    /// Runs `vector` on each whole 32 bytes and the portable sum on the rest.
    macro_rules! vectors {
        ($name:ident, $element:ty, $size:literal, $vector:ident) => {
            #[inline(never)]
            pub(in super::super) unsafe fn $name(acc: *mut u8, own: *const u8, bytes: usize) {
                #[target_feature(enable = "avx2,f16c")]
                unsafe fn whole(acc: *mut u8, own: *const u8, bytes: usize) {
                    for i in (0..bytes).step_by(32) {
                        // SAFETY: `bytes` is a multiple of 32 that both hold; the accesses are unaligned ones.
                        unsafe {
                            let a = _mm256_loadu_si256(acc.add(i).cast());
                            let b = _mm256_loadu_si256(own.add(i).cast());
                            _mm256_storeu_si256(acc.add(i).cast(), $vector(a, b));
                        }
                    }
                }
                let head = bytes & !31;
                // SAFETY: `add_fn` hands this out only where the processor has AVX2 and F16C.
                unsafe { whole(acc, own, head) };
                // SAFETY: the rest of the same ranges.
                unsafe { portable::<$size, $element>(acc.add(head), own.add(head), bytes - head) };
            }
        };
    }

    vectors!(bf16, Bf16, 2, add_bf16);
    vectors!(f16, F16, 2, add_f16);
    vectors!(f32, F32, 4, add_f32);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn round_bf16(sum: __m256) -> __m256i {
        let bits = _mm256_castps_si256(sum);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(sum, sum));
        let chosen = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7FC0_0000), nan);
        _mm256_srli_epi32::<16>(chosen)
    }

    /// Even and odd elements are added apart, so that nothing has to be shuffled.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_bf16(a: __m256i, b: __m256i) -> __m256i {
        let upper = _mm256_set1_epi32(0xFFFF_0000u32 as i32);
        let odd = _mm256_add_ps(
            _mm256_castsi256_ps(_mm256_and_si256(a, upper)),
            _mm256_castsi256_ps(_mm256_and_si256(b, upper)),
        );
        let even = _mm256_add_ps(
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(a)),
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(b)),
        );
        _mm256_or_si256(round_bf16(even), _mm256_slli_epi32::<16>(round_bf16(odd)))
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn add_f16_half(a: __m128i, b: __m128i) -> __m128i {
        let sum = _mm256_add_ps(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(sum, sum));
        let nan = _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256::<1>(nan));
        let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(sum);
        _mm_blendv_epi8(rounded, _mm_set1_epi16(0x7E00), nan)
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn add_f16(a: __m256i, b: __m256i) -> __m256i {
        let low = add_f16_half(_mm256_castsi256_si128(a), _mm256_castsi256_si128(b));
        let high = add_f16_half(_mm256_extracti128_si256::<1>(a), _mm256_extracti128_si256::<1>(b));
        _mm256_set_m128i(high, low)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_f32(a: __m256i, b: __m256i) -> __m256i {
        let sum = _mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(sum, sum));
        _mm256_blendv_epi8(_mm256_castps_si256(sum), _mm256_set1_epi32(0x7FC0_0000), nan)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::twins::fp::DefaultFp;

    fn sum(dtype: DataType, simd: Simd, a: &[u8], b: &[u8]) -> Vec<u8> {
        let mut acc = a.to_vec();
        let add = add_fn(dtype, simd).unwrap();
        // SAFETY: both vectors have the same length and are distinct.
        unsafe { add(acc.as_mut_ptr(), b.as_ptr(), a.len()) };
        acc
    }

    fn check(dtype: DataType, a: &[u8], b: &[u8]) {
        let _fp = DefaultFp::enter();
        let size = dtype.size();
        let portable = sum(dtype, Simd::Portable, a, b);
        if Simd::detect() == Simd::Avx2 {
            assert_eq!(portable, sum(dtype, Simd::Avx2, a, b), "{dtype}: AVX2 differs from portable");
        }
        for ((p, a), b) in portable.chunks(size).zip(a.chunks(size)).zip(b.chunks(size)) {
            let want = ccl_core::reference::add(dtype, load(a).into(), load(b).into());
            assert_eq!(u64::from(load(p)), want, "{dtype}: {:#x} + {:#x}", load(a), load(b));
        }
    }

    fn load(bytes: &[u8]) -> u32 {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_le_bytes(word)
    }

    /// Every 16-bit value with a partner that walks through all of them, near and far.
    #[test]
    fn sixteen_bit_sums_are_the_reference_s() {
        for dtype in [DataType::Bfloat16, DataType::Float16] {
            for stride in [1u32, 3, 257, 40503, 0] {
                let a: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
                let partner = |i: u32| (i.wrapping_mul(stride).wrapping_add(stride ^ 0x8001)) as u16;
                let b: Vec<u8> = (0..=u32::from(u16::MAX)).flat_map(|i| partner(i).to_le_bytes()).collect();
                check(dtype, &a, &b);
            }
        }
    }

    #[test]
    fn single_precision_sums_are_the_reference_s() {
        let special = [
            0u32,
            1,
            0x007F_FFFF,
            0x0080_0000,
            0x3F80_0000,
            0x7F7F_FFFF,
            0x7F80_0000,
            0x7FC0_0001,
            0x7F80_0001,
            0x3300_0000,
            0x4B80_0001,
        ];
        let all: Vec<u32> = special.iter().flat_map(|&x| [x, x | 0x8000_0000]).collect();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for x in &all {
            for y in &all {
                a.extend(x.to_le_bytes());
                b.extend(y.to_le_bytes());
            }
        }
        let mut state = 0x1234_5678u32;
        for _ in 0..100_000 {
            for side in [&mut a, &mut b] {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                side.extend((state ^ state >> 13).to_le_bytes());
            }
        }
        check(DataType::Float32, &a, &b);
    }

    /// The caller has flush-to-zero and denormals-are-zero on: the sums keep their subnormals, and the caller its mode.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn subnormals_survive_a_caller_that_flushes_them() {
        let flush = 0x9FC0u32;
        let read = || {
            let mut now = 0u32;
            // SAFETY: stores MXCSR to a local.
            unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut now, options(nostack)) };
            now
        };
        let before = read();
        // SAFETY: loads a valid MXCSR value, put back below.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const flush, options(nostack)) };
        let tiny = 3u32.to_le_bytes().repeat(16);
        for simd in [Simd::Portable, Simd::detect()] {
            let flushed = sum(DataType::Float32, simd, &tiny, &tiny);
            let fp = DefaultFp::enter();
            let kept = sum(DataType::Float32, simd, &tiny, &tiny);
            drop(fp);
            assert_eq!(read() & !0x3F, flush & !0x3F);
            assert_eq!(load(&kept[..4]), 6);
            // The negative control: without the guard the sum is lost.
            assert_eq!(load(&flushed[..4]), 0);
        }
        // SAFETY: as above.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const before, options(nostack)) };
    }
}
