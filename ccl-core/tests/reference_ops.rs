//! The reference's products, quotients, extrema and orders, held to the processor's arithmetic and to plain rules.
#![allow(clippy::unwrap_used, reason = "test code")]

use ccl_core::DataType::{self, Bfloat16, Float16, Float32, Float64};
use ccl_core::plan::geometry::Geometry;
use ccl_core::reference::{all_reduce, average, canonical_nan, combine, multiply};
use ccl_core::{Factor, Order, ReduceOp};
use half::{bf16, f16};
use proptest::prelude::*;

/// A number that the processor computes with: binary32 for the 16-bit types.
fn wide(dtype: DataType, bits: u64) -> f32 {
    match dtype {
        Bfloat16 => f32::from_bits((bits as u32) << 16),
        Float16 => f16::from_bits(bits as u16).to_f32(),
        _ => f32::from_bits(bits as u32),
    }
}

fn narrow(dtype: DataType, x: f32) -> u64 {
    if x.is_nan() {
        return canonical_nan(dtype).unwrap();
    }
    match dtype {
        Bfloat16 => bf16::from_f32(x).to_bits().into(),
        Float16 => f16::from_f32(x).to_bits().into(),
        _ => x.to_bits().into(),
    }
}

fn narrow64(x: f64) -> u64 {
    if x.is_nan() { canonical_nan(Float64).unwrap() } else { x.to_bits() }
}

#[track_caller]
fn same_product(dtype: DataType, a: u64, b: u64) {
    let theirs = match dtype {
        Float64 => narrow64(f64::from_bits(a) * f64::from_bits(b)),
        _ => narrow(dtype, wide(dtype, a) * wide(dtype, b)),
    };
    assert_eq!(multiply(dtype, a, b), theirs, "{dtype}: {a:#x} * {b:#x}");
    assert_eq!(combine(dtype, ReduceOp::Prod, b, a), theirs, "{dtype}: {b:#x} * {a:#x}");
}

#[track_caller]
fn same_quotient(dtype: DataType, a: u64, n: usize) {
    let theirs = match dtype {
        Float64 => narrow64(f64::from_bits(a) / n as f64),
        _ => narrow(dtype, wide(dtype, a) / n as f32),
    };
    assert_eq!(average(dtype, a, n), theirs, "{dtype}: {a:#x} / {n}");
}

#[track_caller]
fn same_extrema(dtype: DataType, a: u64, b: u64) {
    let (x, y) = match dtype {
        Float64 => (f64::from_bits(a), f64::from_bits(b)),
        _ => (wide(dtype, a).into(), wide(dtype, b).into()),
    };
    let (max, min) = if x.is_nan() || y.is_nan() {
        (canonical_nan(dtype).unwrap(), canonical_nan(dtype).unwrap())
    } else if x == y {
        // Equal numbers have equal bits, save zeros: the positive one is the larger.
        (if x.is_sign_negative() { b } else { a }, if x.is_sign_negative() { a } else { b })
    } else if x > y {
        (a, b)
    } else {
        (b, a)
    };
    assert_eq!(combine(dtype, ReduceOp::Max, a, b), max, "{dtype}: max({a:#x}, {b:#x})");
    assert_eq!(combine(dtype, ReduceOp::Min, a, b), min, "{dtype}: min({a:#x}, {b:#x})");
}

fn special(exponent_bits: u32, fraction_bits: u32) -> Vec<u64> {
    let (bias, least) = ((1u64 << (exponent_bits - 1)) - 1, 1u64 << fraction_bits);
    let (infinity, sign) = (((1u64 << exponent_bits) - 1) << fraction_bits, 1u64 << (exponent_bits + fraction_bits));
    let one = bias << fraction_bits;
    let mut magnitudes = vec![0, 1, 2, 3, least - 1, least, least + 1, one - 1, one, one + 1, infinity - 1, infinity];
    magnitudes.extend([infinity + 1, infinity | (least / 2), sign - 1]);
    // Around the square root of the smallest and of the largest numbers: products that just leave the range.
    for exponent in [
        bias / 2 - u64::from(fraction_bits / 2).min(bias / 4),
        bias / 2,
        bias / 2 + 1,
        bias + bias / 2,
        bias + bias / 2 + 1,
    ] {
        magnitudes.extend([
            exponent << fraction_bits,
            (exponent << fraction_bits) + 1,
            ((exponent + 1) << fraction_bits) - 1,
        ]);
    }
    magnitudes.into_iter().flat_map(|m| [m, m | sign]).collect()
}

const FORMATS: [(DataType, u32, u32); 4] = [(Bfloat16, 8, 7), (Float16, 5, 10), (Float32, 8, 23), (Float64, 11, 52)];

/// All 16-bit numbers by all numbers of ranks. The processor's results are rounded to binary32 in between, which is thus
/// shown to change nothing.
#[test]
fn all_short_averages_and_all_products_with_special_values() {
    for (dtype, exponent_bits, fraction_bits) in &FORMATS[..2] {
        let others = special(*exponent_bits, *fraction_bits);
        for a in 0..=u64::from(u16::MAX) {
            (1..=16).for_each(|n| same_quotient(*dtype, a, n));
            for b in &others {
                same_product(*dtype, a, *b);
                same_extrema(*dtype, a, *b);
            }
        }
    }
}

#[test]
fn special_values_of_the_wide_types() {
    for (dtype, exponent_bits, fraction_bits) in &FORMATS[2..] {
        let all = special(*exponent_bits, *fraction_bits);
        for a in &all {
            (1..=16).for_each(|n| same_quotient(*dtype, *a, n));
            for b in &all {
                same_product(*dtype, *a, *b);
                same_extrema(*dtype, *a, *b);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_numbers(a: u64, b: u64, n in 1usize..=16) {
        for (dtype, ..) in FORMATS {
            let shift = 64 - 8 * dtype.size();
            same_product(dtype, a >> shift, b >> shift);
            same_extrema(dtype, a >> shift, b >> shift);
            same_quotient(dtype, a >> shift, n);
        }
    }

    /// Random pairs seldom have a product that is subnormal.
    #[test]
    fn products_at_the_lower_end(a: u64, b: u64, distance in -120i64..=10) {
        for (dtype, exponent_bits, fraction_bits) in FORMATS {
            let (mask, bias) = ((1u64 << exponent_bits) - 1, (1i64 << (exponent_bits - 1)) - 1);
            let bits = 8 * dtype.size() as u32;
            let (a, b) = (a >> (64 - bits), b >> (64 - bits));
            let exponent = (bias + 1 + distance - (a >> fraction_bits & mask) as i64).clamp(0, mask as i64) as u64;
            same_product(dtype, a, b & !(mask << fraction_bits) | exponent << fraction_bits);
        }
    }

    #[test]
    fn integers(a: u64, b: u64, n in 1u32..=16) {
        macro_rules! each {
            ($($dtype:ident $ty:ty, $unsigned:ty;)*) => { $({
                let (x, y) = (a as $ty, b as $ty);
                let bits = |value: $ty| u64::from(value as $unsigned);
                let combined = |op| combine(DataType::$dtype, op, bits(x), bits(y));
                assert_eq!(combined(ReduceOp::Sum), bits(x.wrapping_add(y)), "{x} + {y}");
                assert_eq!(combined(ReduceOp::Prod), bits(x.wrapping_mul(y)), "{x} * {y}");
                assert_eq!(combined(ReduceOp::Max), bits(x.max(y)), "max({x}, {y})");
                assert_eq!(combined(ReduceOp::Min), bits(x.min(y)), "min({x}, {y})");
                let quotient = (x as i128 / i128::from(n)) as $ty;
                assert_eq!(average(DataType::$dtype, bits(x), n as usize), bits(quotient), "{x} / {n}");
            })* };
        }
        each! {
            Int8 i8, u8; Uint8 u8, u8; Int32 i32, u32; Uint32 u32, u32; Int64 i64, u64; Uint64 u64, u64;
        }
    }
}

#[test]
fn the_rules_in_plain_numbers() {
    let nan = canonical_nan(Float32).unwrap();
    let bits = |x: f32| u64::from(x.to_bits());
    // 0 by infinity; the sign of a zero product; overflow.
    assert_eq!(multiply(Float32, bits(0.0), bits(f32::INFINITY)), nan);
    assert_eq!(multiply(Float32, bits(-0.0), bits(3.0)), bits(-0.0));
    assert_eq!(multiply(Float32, bits(1e30), bits(-1e30)), bits(f32::NEG_INFINITY));
    // A NaN is not passed over, a negative zero is below the positive one, and infinity is a number like others.
    for op in [ReduceOp::Max, ReduceOp::Min] {
        assert_eq!(combine(Float32, op, bits(1.0), nan | 1 | 1 << 31), nan);
        assert_eq!(combine(Float32, op, nan | 5, bits(1.0)), nan);
    }
    assert_eq!(combine(Float32, ReduceOp::Max, bits(-0.0), bits(0.0)), bits(0.0));
    assert_eq!(combine(Float32, ReduceOp::Min, bits(0.0), bits(-0.0)), bits(-0.0));
    assert_eq!(combine(Float32, ReduceOp::Max, bits(f32::NEG_INFINITY), bits(-1.0)), bits(-1.0));
    // Integers: towards zero, of the sum that has wrapped.
    assert_eq!(average(DataType::Int8, 0xF9, 2), 0xFD);
    assert_eq!(average(DataType::Uint8, 0xF9, 2), 0x7C);
    assert_eq!(average(DataType::Int64, -7i64 as u64, 3), -2i64 as u64);
}

fn reduce(dtype: DataType, op: ReduceOp, order: Order, elements: &[u64]) -> u64 {
    let size = dtype.size();
    let inputs: Vec<Vec<u8>> = elements.iter().map(|x| x.to_le_bytes()[..size].to_vec()).collect();
    let views: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let geometry = Geometry::new(elements.len(), 1, None, size).unwrap();
    let output = all_reduce(&views, dtype, op, order, &geometry);
    output.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

#[test]
fn rank_order_rounds_short_types_once() {
    let bf = |x: f32| u64::from(bf16::from_f32(x).to_bits());
    // 256 + 1 is a tie and goes down in ring order, every time; in binary32 nothing is lost.
    let elements = [256.0, 1.0, 1.0, 1.0].map(bf);
    assert_eq!(reduce(Bfloat16, ReduceOp::Sum, Order::Ring, &elements), bf(256.0));
    assert_eq!(reduce(Bfloat16, ReduceOp::Sum, Order::Rank, &elements), bf(260.0));
    assert_eq!(reduce(Bfloat16, ReduceOp::Avg, Order::Ring, &elements), bf(64.0));
    assert_eq!(reduce(Bfloat16, ReduceOp::Avg, Order::Rank, &elements), bf(64.75));
    // Beyond the range of binary16 and back.
    let hf = |x: f32| u64::from(f16::from_f32(x).to_bits());
    let elements = [60000.0, 60000.0, -60000.0].map(hf);
    assert_eq!(reduce(Float16, ReduceOp::Sum, Order::Ring, &elements), 0x7C00);
    assert_eq!(reduce(Float16, ReduceOp::Sum, Order::Rank, &elements), hf(60000.0));
    let elements = [3.0, 256.0, 256.0].map(hf);
    assert_eq!(reduce(Float16, ReduceOp::Prod, Order::Rank, &elements), 0x7C00);
    // The factor multiplies each element, which is rounded then: 257 * 3 = 771 goes to 772.
    let factor = ReduceOp::PreMulSum(Factor::new(Float32, f32::to_bits(3.0).into()));
    assert_eq!(reduce(Bfloat16, factor, Order::Rank, &[bf(258.0), bf(-2.0)]), bf(770.0));
    assert_eq!(reduce(Float32, factor, Order::Ring, &[1.5f32, -2.0].map(|x| x.to_bits().into())), 0xBFC0_0000);
    let factor = ReduceOp::PreMulSum(Factor::new(DataType::Int8, 0xFE));
    assert_eq!(reduce(DataType::Int8, factor, Order::Ring, &[100, 3, 1]), (-208i64 as u64) & 0xFF);
}

#[test]
fn a_single_input_is_only_multiplied() {
    for order in [Order::Ring, Order::Rank] {
        for op in ReduceOp::ALL {
            assert_eq!(reduce(Bfloat16, op, order, &[0xFF81]), 0xFF81);
        }
        let factor = ReduceOp::PreMulSum(Factor::new(Bfloat16, 0x4000));
        assert_eq!(reduce(Bfloat16, factor, order, &[0x3F81]), 0x4001);
        assert_eq!(reduce(Bfloat16, factor, order, &[0xFF81]), 0x7FC0);
    }
}
