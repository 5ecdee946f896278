//! The reference's addition, held to the processor's and to the rounding rules, bit by bit.
#![allow(clippy::unwrap_used, reason = "test code")]

use ccl_core::DataType::{self, Bfloat16, Float16, Float32, Float64};
use ccl_core::reference::{add, canonical_nan, sum_f64, to_f64};

use half::{bf16, f16};
use proptest::prelude::*;

/// The processor's sum with the canonical NaN. 16-bit elements are added in binary32, whose 24 significant bits are at
/// least twice theirs and two more: rounding twice then gives what rounding once does.
fn oracle(dtype: DataType, a: u64, b: u64) -> u64 {
    let (nan, bits) = match dtype {
        Float16 => {
            let sum = f16::from_bits(a as u16).to_f32() + f16::from_bits(b as u16).to_f32();
            (sum.is_nan(), u64::from(f32_to_f16(sum)))
        }
        Bfloat16 => {
            let sum = bf16::from_bits(a as u16).to_f32() + bf16::from_bits(b as u16).to_f32();
            (sum.is_nan(), u64::from(f32_to_bf16(sum)))
        }
        Float32 => {
            let sum = f32::from_bits(a as u32) + f32::from_bits(b as u32);
            (sum.is_nan(), u64::from(sum.to_bits()))
        }
        _ => {
            let sum = f64::from_bits(a) + f64::from_bits(b);
            (sum.is_nan(), sum.to_bits())
        }
    };
    if nan { canonical_nan(dtype).unwrap() } else { bits }
}

fn f32_to_bf16(x: f32) -> u16 {
    bf16::from_f32(x).to_bits()
}

fn f32_to_f16(x: f32) -> u16 {
    f16::from_f32(x).to_bits()
}

#[track_caller]
fn same(dtype: DataType, a: u64, b: u64) {
    let (ours, theirs) = (add(dtype, a, b), oracle(dtype, a, b));
    assert_eq!(ours, theirs, "{dtype}: {a:#x} + {b:#x} = {ours:#x}, the processor says {theirs:#x}");
    assert_eq!(ours, add(dtype, b, a), "{dtype}: {a:#x} + {b:#x} does not commute");
}

/// Values at which something happens: zeros, both ends of the subnormals and of the normals, one and its neighbours,
/// infinities, quiet and signalling NaN; of both signs.
fn special(exponent_bits: u32, fraction_bits: u32) -> Vec<u64> {
    let (one, least) = (((1 << (exponent_bits - 1)) - 1) << fraction_bits, 1u64 << fraction_bits);
    let (infinity, sign) = (((1u64 << exponent_bits) - 1) << fraction_bits, 1u64 << (exponent_bits + fraction_bits));
    // Half a unit in the last place of one, and its neighbours: the ties.
    let tie = one - (u64::from(fraction_bits) + 1) * least;
    let magnitudes = [
        0,
        1,
        2,
        3,
        least - 1,
        least,
        least + 1,
        2 * least,
        tie - 1,
        tie,
        tie + 1,
        tie + least,
        one - 1,
        one,
        one + 1,
        one + least,
        one + least - 1,
        infinity - least,
        infinity - 1,
        infinity,
        infinity + 1,
        infinity | (least / 2),
        sign - 1,
    ];
    magnitudes.into_iter().flat_map(|m| [m, m | sign]).collect()
}

#[test]
fn all_bfloat16_with_every_special_value() {
    for b in special(8, 7) {
        for a in 0..=u64::from(u16::MAX) {
            same(Bfloat16, a, b);
        }
    }
}

#[test]
fn all_float16_with_every_special_value_and_a_sample_of_all_pairs() {
    for b in special(5, 10) {
        for a in 0..=u64::from(u16::MAX) {
            same(Float16, a, b);
        }
    }
    // Steps that are coprime to 2^16 reach every pattern of both operands.
    for i in 0..3_000_000u64 {
        same(Float16, (i * 40503) & 0xFFFF, (i * 27449 + (i >> 16) * 12347) & 0xFFFF);
    }
}

#[test]
fn special_values_of_the_wide_types() {
    for (dtype, exponent_bits, fraction_bits) in [(Float32, 8, 23), (Float64, 11, 52)] {
        let values = special(exponent_bits, fraction_bits);
        for a in &values {
            for b in &values {
                same(dtype, *a, *b);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pair(a: u64, b: u64) {
        same(Float64, a, b);
        same(Float32, a >> 32, b >> 32);
        same(Bfloat16, a >> 48, b >> 48);
        same(Float16, a >> 48, b >> 48);
    }

    /// Random pairs seldom have exponents so close that bits cancel or meet at the rounding position.
    #[test]
    fn pairs_of_like_exponents(a: u64, b: u64, distance in -60i64..=60) {
        let near = |a: u64, exponent_bits: u32, fraction_bits: u32| {
            let mask = (1u64 << exponent_bits) - 1;
            let exponent = ((a >> fraction_bits & mask) as i64 + distance).clamp(0, mask as i64) as u64;
            (b & !(mask << fraction_bits)) & (u64::MAX >> (63 - exponent_bits - fraction_bits)) | exponent << fraction_bits
        };
        same(Float64, a, near(a, 11, 52));
        same(Float32, a >> 32, near(a >> 32, 8, 23));
        same(Bfloat16, a >> 48, near(a >> 48, 8, 7));
        same(Float16, a >> 48, near(a >> 48, 5, 10));
    }
}

#[test]
fn the_rules_in_plain_numbers() {
    let bf = |x: f32| u64::from(bf16::from_f32(x).to_bits());
    // Halfway between 256 and 258 lies 257: to even, that is down; 259 goes up to 260.
    assert_eq!(add(Bfloat16, bf(256.0), bf(1.0)), bf(256.0));
    assert_eq!(add(Bfloat16, bf(258.0), bf(1.0)), bf(260.0));
    let hf = |x: f32| u64::from(f16::from_f32(x).to_bits());
    assert_eq!(add(Float16, hf(2048.0), hf(1.0)), hf(2048.0));
    assert_eq!(add(Float16, hf(2050.0), hf(1.0)), hf(2052.0));
    // 65504 is the largest; half a step more is a tie that goes to infinity, less stays.
    assert_eq!(add(Float16, 0x7BFF, hf(16.0)), 0x7C00);
    assert_eq!(add(Float16, 0x7BFF, hf(15.99)), 0x7BFF);
    for (dtype, infinity, sign, nan) in [
        (Bfloat16, 0x7F80, 1 << 15, 0x7FC0),
        (Float16, 0x7C00, 1 << 15, 0x7E00),
        (Float32, 0x7F80_0000, 1 << 31, 0x7FC0_0000),
    ] {
        assert_eq!(canonical_nan(dtype), Some(nan));
        assert_eq!(add(dtype, infinity, infinity | sign), nan);
        assert_eq!(add(dtype, infinity, infinity), infinity);
        assert_eq!(add(dtype, infinity | sign, 1), infinity | sign);
        // Any NaN, of any sign and payload, comes out as the one.
        for other in [infinity | 1, sign | infinity | 1, sign | nan, nan | 1] {
            assert_eq!((add(dtype, other, 0), add(dtype, 1, other), add(dtype, other, infinity)), (nan, nan, nan));
        }
        // Subnormals stay, zeros have their signs.
        assert_eq!((add(dtype, 1, 2), add(dtype, 3, sign | 1), add(dtype, sign | 1, 0)), (3, 2, sign | 1));
        assert_eq!((add(dtype, sign, sign), add(dtype, sign, 0), add(dtype, 5, sign | 5)), (sign, 0, 0));
    }
}

#[test]
fn integers_wrap() {
    assert_eq!(add(DataType::Int8, 0x7F, 1), 0x80);
    assert_eq!(add(DataType::Uint8, 0xFF, 2), 1);
    assert_eq!(add(DataType::Int32, 0xFFFF_FFFF, 0xFFFF_FFFF), 0xFFFF_FFFE);
    assert_eq!(add(DataType::Uint64, u64::MAX, 2), 1);
    assert_eq!(canonical_nan(DataType::Int32), None);
}

#[test]
fn sums_in_binary64() {
    let one = [1.5f32, -2.0].map(f32::to_le_bytes).concat();
    let two = [1e-30f32, 3.0].map(f32::to_le_bytes).concat();
    assert_eq!(sum_f64(&[&one, &two], Float32), [1.5 + f64::from(1e-30f32), 1.0]);
    assert_eq!(sum_f64(&[], Float32), [0.0; 0]);
    assert_eq!((to_f64(DataType::Int8, 0xFF), to_f64(DataType::Uint8, 0xFF)), (-1.0, 255.0));
    assert_eq!((to_f64(Bfloat16, 0x3F80), to_f64(Float16, 0x0001)), (1.0, 2f64.powi(-24)));
}
