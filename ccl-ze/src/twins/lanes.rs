//! Arithmetic on one element of each type, written without branches so that a loop over it becomes one over vectors.

/// An element type: how it lies in memory, what it is computed with, and the operations.
pub(super) trait Lane {
    /// An element in memory: plain bits.
    type Wire: Copy;
    /// What is computed with.
    type Acc: Copy;

    /// The element in the lowest bits of a word.
    fn element(word: u64) -> Self::Wire;
    fn widen(wire: Self::Wire) -> Self::Acc;
    /// Rounded to the type; NaN becomes the canonical one.
    fn narrow(acc: Self::Acc) -> Self::Wire;
    /// Rounded to what the type can hold.
    fn round(acc: Self::Acc) -> Self::Acc;
    fn sum(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn prod(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn max(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn min(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn divide(a: Self::Acc, by: u32) -> Self::Acc;
}

/// One of the operations.
pub(super) trait Op {
    fn apply<L: Lane>(a: L::Acc, b: L::Acc) -> L::Acc;
}

macro_rules! ops {
    ($($op:ident $function:ident),*) => { $(
        pub(super) struct $op;

        impl Op for $op {
            #[inline(always)]
            fn apply<L: Lane>(a: L::Acc, b: L::Acc) -> L::Acc {
                L::$function(a, b)
            }
        }
    )* };
}
ops!(Sum sum, Prod prod, Max max, Min min);

macro_rules! integers {
    ($($ty:ident),*) => { $(
        impl Lane for $ty {
            type Wire = $ty;
            type Acc = $ty;

            #[inline(always)]
            fn element(word: u64) -> $ty {
                word as $ty
            }
            #[inline(always)]
            fn widen(wire: $ty) -> $ty {
                wire
            }
            #[inline(always)]
            fn narrow(acc: $ty) -> $ty {
                acc
            }
            #[inline(always)]
            fn round(acc: $ty) -> $ty {
                acc
            }
            #[inline(always)]
            fn sum(a: $ty, b: $ty) -> $ty {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn prod(a: $ty, b: $ty) -> $ty {
                a.wrapping_mul(b)
            }
            #[inline(always)]
            fn max(a: $ty, b: $ty) -> $ty {
                Ord::max(a, b)
            }
            #[inline(always)]
            fn min(a: $ty, b: $ty) -> $ty {
                Ord::min(a, b)
            }
            #[inline(always)]
            fn divide(a: $ty, by: u32) -> $ty {
                // There are few ranks, and never none.
                a / by as $ty
            }
        }
    )* };
}
integers!(i8, u8, i32, u32, i64, u64);

/// The operations of a floating type that is computed with as `$acc`. For extrema, bits are ordered as numbers are once
/// those of negative ones are turned round; so -0 is below +0. A NaN among the two is the result.
macro_rules! float_operations {
    ($acc:ident, $signed:ident) => {
        #[inline(always)]
        fn sum(a: $acc, b: $acc) -> $acc {
            a + b
        }
        #[inline(always)]
        fn prod(a: $acc, b: $acc) -> $acc {
            a * b
        }
        #[inline(always)]
        fn max(a: $acc, b: $acc) -> $acc {
            let key = |x: $acc| x.to_bits() as $signed ^ (x.to_bits() as $signed >> ($signed::BITS - 1) & $signed::MAX);
            let larger = if key(a) < key(b) { b } else { a };
            if a.is_nan() | b.is_nan() { $acc::NAN } else { larger }
        }
        #[inline(always)]
        fn min(a: $acc, b: $acc) -> $acc {
            let key = |x: $acc| x.to_bits() as $signed ^ (x.to_bits() as $signed >> ($signed::BITS - 1) & $signed::MAX);
            let smaller = if key(b) < key(a) { b } else { a };
            if a.is_nan() | b.is_nan() { $acc::NAN } else { smaller }
        }
        #[inline(always)]
        fn divide(a: $acc, by: u32) -> $acc {
            a / by as $acc
        }
    };
}

macro_rules! floats {
    ($($ty:ident $wire:ident $signed:ident $nan:literal),*) => { $(
        impl Lane for $ty {
            type Wire = $wire;
            type Acc = $ty;

            #[inline(always)]
            fn element(word: u64) -> $wire {
                word as $wire
            }
            #[inline(always)]
            fn widen(wire: $wire) -> $ty {
                $ty::from_bits(wire)
            }
            #[inline(always)]
            fn narrow(acc: $ty) -> $wire {
                if acc.is_nan() { $nan } else { acc.to_bits() }
            }
            #[inline(always)]
            fn round(acc: $ty) -> $ty {
                acc
            }
            float_operations!($ty, $signed);
        }
    )* };
}
floats!(f32 u32 i32 0x7FC0_0000, f64 u64 i64 0x7FF8_0000_0000_0000);

/// bfloat16.
pub(super) struct Bf16;
/// binary16.
pub(super) struct F16;

macro_rules! short_floats {
    ($($lane:ident $widen:ident $narrow:ident),*) => { $(
        impl Lane for $lane {
            type Wire = u16;
            type Acc = f32;

            #[inline(always)]
            fn element(word: u64) -> u16 {
                word as u16
            }
            #[inline(always)]
            fn widen(wire: u16) -> f32 {
                $widen(wire)
            }
            #[inline(always)]
            fn narrow(acc: f32) -> u16 {
                $narrow(acc)
            }
            #[inline(always)]
            fn round(acc: f32) -> f32 {
                $widen($narrow(acc))
            }
            float_operations!(f32, i32);
        }
    )* };
}
short_floats!(Bf16 widen_bf16 narrow_bf16, F16 widen_f16 narrow_f16);

#[inline(always)]
fn widen_bf16(wire: u16) -> f32 {
    f32::from_bits(u32::from(wire) << 16)
}

#[inline(always)]
fn narrow_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
    (if x.is_nan() { 0x7FC0_0000 } else { rounded } >> 16) as u16
}

/// How far the exponents of binary16 and binary32 are apart.
const EXPONENT_GAP: u32 = 112 << 23;
const LEAST_NORMAL_F16: u32 = 0x3880_0000;

#[inline(always)]
fn widen_f16(wire: u16) -> f32 {
    let magnitude = u32::from(wire & 0x7FFF) << 13;
    // As fraction of 2^-14, less 2^-14: exact.
    let tiny = (f32::from_bits(magnitude + LEAST_NORMAL_F16) - f32::from_bits(LEAST_NORMAL_F16)).to_bits();
    let normal = magnitude + EXPONENT_GAP;
    let finite = if magnitude < 0x0400 << 13 { tiny } else { normal };
    let wide = if magnitude >= 0x7C00 << 13 { normal + EXPONENT_GAP } else { finite };
    f32::from_bits(wide | u32::from(wire & 0x8000) << 16)
}

#[inline(always)]
fn narrow_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7FFF_FFFF;
    let normal = magnitude.wrapping_sub(EXPONENT_GAP).wrapping_add(0x0FFF + (magnitude >> 13 & 1)) >> 13;
    // The last bit of 0.5 is 2^-24, that of a subnormal binary16: the addition rounds.
    let tiny = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < LEAST_NORMAL_F16 { tiny } else { normal };
    // What rounding carried past the largest is infinity already.
    let rounded = if magnitude >= 0x4780_0000 { 0x7C00 } else { finite } | bits >> 16 & 0x8000;
    (if x.is_nan() { 0x7E00 } else { rounded }) as u16
}
