//! Sums of bfloat16, binary16 and binary32 in ring order, by vectors.

use super::lanes::Sum;
use super::lanes::{Bf16, F16};
use super::reduce::{Job, Target, elements};
use std::arch::x86_64::*;

/// What is done with a second target.
const NONE: u8 = 0;
const PLAIN: u8 = 1;
const PAST: u8 = 2;

/// Whether whole vectors can be stored to `to` past the caches.
fn is_aligned(to: *mut u8) -> bool {
    to.addr().is_multiple_of(64)
}

/// For each name a function that runs `$add` on whole vectors and the loops for all (or `$tail`) on the rest, or on
/// everything if there is more to do than to add.
macro_rules! sums {
    ($features:literal, $width:literal, $load:ident, $store:ident, $stream:ident, $tail:ident;
        $($name:ident $lane:ty, $add:ident);*) => { $(
        /// # Safety
        /// As of `RunFn`. The processor has the features.
        #[inline(never)]
        #[target_feature(enable = $features)]
        pub(in crate::twins) unsafe fn $name(job: &Job<'_>) {
            /// Two vectors at a time; returns how many bytes are done.
            ///
            /// # Safety
            /// As of `RunFn`; the job is plain, and what goes past the caches is aligned.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn vectors<const OUT: u8, const ALSO: u8>(job: &Job<'_>) -> usize {
                let after = |rank: usize| if rank + 1 == job.inputs.len() { 0 } else { rank + 1 };
                let second = after(job.first);
                let (a, b) = (job.inputs[job.first], job.inputs[second]);
                let Target { out, also, .. } = job.to;
                let mut at = 0;
                while job.bytes - at >= 2 * $width {
                    // SAFETY: offsets are below `bytes`, which all hold; accesses are unaligned ones unless the caller
                    // made sure of more.
                    unsafe {
                        let load = |from: *const u8, at: usize| $load(from.add(at).cast());
                        let mut low = $add(load(a, at), load(b, at));
                        let mut high = $add(load(a, at + $width), load(b, at + $width));
                        let mut rank = second;
                        for _ in 2..job.inputs.len() {
                            rank = after(rank);
                            let next = *job.inputs.get_unchecked(rank);
                            low = $add(low, load(next, at));
                            high = $add(high, load(next, at + $width));
                        }
                        if OUT == PAST {
                            $stream(out.add(at).cast(), low);
                            $stream(out.add(at + $width).cast(), high);
                        } else {
                            $store(out.add(at).cast(), low);
                            $store(out.add(at + $width).cast(), high);
                        }
                        if ALSO == PAST {
                            $stream(also.add(at).cast(), low);
                            $stream(also.add(at + $width).cast(), high);
                        } else if ALSO == PLAIN {
                            $store(also.add(at).cast(), low);
                            $store(also.add(at + $width).cast(), high);
                        }
                    }
                    at += 2 * $width;
                }
                at
            }

            let mut at = 0;
            if job.is_plain() && job.inputs.len() > 1 {
                let Target { out, also, out_past, also_past } = job.to;
                let out_past = out_past && is_aligned(out);
                let also_past = also_past && is_aligned(also);
                // SAFETY: passed on.
                unsafe {
                    at = match (out_past, also.is_null(), also_past) {
                        (false, true, _) => vectors::<PLAIN, NONE>(job),
                        (true, true, _) => vectors::<PAST, NONE>(job),
                        (false, false, false) => vectors::<PLAIN, PLAIN>(job),
                        (true, false, false) => vectors::<PAST, PLAIN>(job),
                        (false, false, true) => vectors::<PLAIN, PAST>(job),
                        (true, false, true) => vectors::<PAST, PAST>(job),
                    };
                    at = $tail(job, at, |a, b| $add(a, b));
                    if out_past || also_past {
                        // Such stores are ordered by nothing else.
                        _mm_sfence();
                    }
                }
            }
            if at < job.bytes {
                // SAFETY: passed on.
                unsafe { elements::<$lane, Sum, true>(job, at) };
            }
        }
    )* };
}

pub(super) mod avx2 {
    use super::*;

    #[inline(always)]
    unsafe fn tail(_: &Job<'_>, at: usize, _: impl Fn(__m256i, __m256i) -> __m256i) -> usize {
        at
    }

    sums! {
        "avx2,f16c", 32, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256, tail;
        bf16 Bf16, add_bf16; f16 F16, add_f16; f32 f32, add_f32
    }

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
        let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(sum, sum);
        _mm256_blendv_epi8(_mm256_castps_si256(sum), _mm256_set1_epi32(0x7FC0_0000), _mm256_castps_si256(nan))
    }
}

/// With AVX-512, whose conversion to bfloat16 is right but for subnormals and NaN, which are told apart.
pub(super) mod avx512 {
    use super::*;

    /// The rest, which is less than two vectors, by masked vectors: short messages are nothing else.
    ///
    /// # Safety
    /// As of `RunFn`; the job is plain, and `at` bytes are done.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    unsafe fn tail(job: &Job<'_>, at: usize, add: impl Fn(__m512i, __m512i) -> __m512i) -> usize {
        let after = |rank: usize| if rank + 1 == job.inputs.len() { 0 } else { rank + 1 };
        let mut at = at;
        while at < job.bytes {
            let left = (job.bytes - at).min(64);
            let mask = u64::MAX >> (64 - left);
            // SAFETY: the mask leaves out what is beyond `bytes`.
            unsafe {
                let load = |rank: usize| _mm512_maskz_loadu_epi8(mask, job.inputs[rank].add(at).cast());
                let mut rank = job.first;
                let mut sum = load(rank);
                for _ in 1..job.inputs.len() {
                    rank = after(rank);
                    sum = add(sum, load(rank));
                }
                _mm512_mask_storeu_epi8(job.to.out.add(at).cast(), mask, sum);
                if !job.to.also.is_null() {
                    _mm512_mask_storeu_epi8(job.to.also.add(at).cast(), mask, sum);
                }
            }
            at += left;
        }
        at
    }

    sums! {
        "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16", 64,
        _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512, tail;
        bf16 Bf16, add_bf16; f16 F16, add_f16; f32 f32, add_f32
    }

    /// What `vcvtneps2bf16` doesn't round as the other implementations do.
    const NAN_OR_SUBNORMAL: i32 = 0x01 | 0x20 | 0x80;

    /// Words of two vectors by turns: of the first the lower half is the even ones, the upper half the odd ones.
    const BY_TURNS: [u16; 32] = {
        let mut turns = [0; 32];
        let mut i = 0;
        while i < 32 {
            turns[i] = (i / 2 + i % 2 * 16) as u16;
            i += 1;
        }
        turns
    };

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    fn add_bf16(a: __m512i, b: __m512i) -> __m512i {
        let upper = _mm512_set1_epi32(0xFFFF_0000u32 as i32);
        let even = _mm512_add_ps(
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(a)),
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(b)),
        );
        let odd = _mm512_add_ps(
            _mm512_castsi512_ps(_mm512_and_si512(a, upper)),
            _mm512_castsi512_ps(_mm512_and_si512(b, upper)),
        );
        let special =
            _mm512_fpclass_ps_mask::<NAN_OR_SUBNORMAL>(even) | _mm512_fpclass_ps_mask::<NAN_OR_SUBNORMAL>(odd);
        if special != 0 {
            return round_any(even, odd);
        }
        // SAFETY: an array of as many bytes.
        let by_turns = unsafe { _mm512_loadu_si512(BY_TURNS.as_ptr().cast()) };
        // SAFETY: both are 512 bits without a meaning of their own.
        let both: __m512i = unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(odd, even)) };
        _mm512_permutexvar_epi16(by_turns, both)
    }

    #[cold]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn round_any(even: __m512, odd: __m512) -> __m512i {
        let round = |sum: __m512| {
            let bits = _mm512_castps_si512(sum);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(sum, sum);
            _mm512_srli_epi32::<16>(_mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7FC0_0000)))
        };
        _mm512_or_si512(round(even), _mm512_slli_epi32::<16>(round(odd)))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn add_f16_half(a: __m256i, b: __m256i) -> __m256i {
        let sum = _mm512_add_ps(_mm512_cvtph_ps(a), _mm512_cvtph_ps(b));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(sum, sum);
        let rounded = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(sum);
        _mm256_mask_mov_epi16(rounded, nan, _mm256_set1_epi16(0x7E00))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn add_f16(a: __m512i, b: __m512i) -> __m512i {
        let low = add_f16_half(_mm512_castsi512_si256(a), _mm512_castsi512_si256(b));
        let high = add_f16_half(_mm512_extracti64x4_epi64::<1>(a), _mm512_extracti64x4_epi64::<1>(b));
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add_f32(a: __m512i, b: __m512i) -> __m512i {
        let sum = _mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(sum, sum);
        _mm512_mask_mov_epi32(_mm512_castps_si512(sum), nan, _mm512_set1_epi32(0x7FC0_0000))
    }
}
