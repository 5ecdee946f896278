//! Scalar reference of every reduction: the bits that plans and kernels are held to.
//!
//! Floating addition is done here on integers, from the definition: exact, then rounded once to nearest, ties to even.
//! So it owes nothing to the twins, to a conversion instruction, or to the rounding and flushing modes of the thread
//! that runs it. The rules beyond IEEE 754: every sum that is NaN is the one canonical NaN (positive, quiet, no
//! payload); subnormals are kept; x + -x is +0 and only -0 + -0 is -0. Integers wrap.

use crate::DataType;
use crate::plan::geometry::Geometry;

/// A binary interchange format.
#[derive(Clone, Copy)]
struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
}

impl Format {
    const fn of(dtype: DataType) -> Option<Self> {
        let (exponent_bits, fraction_bits) = match dtype {
            DataType::Float16 => (5, 10),
            DataType::Bfloat16 => (8, 7),
            DataType::Float32 => (8, 23),
            DataType::Float64 => (11, 52),
            _ => return None,
        };
        Some(Self { exponent_bits, fraction_bits })
    }

    const fn sign(self) -> u64 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    const fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    const fn canonical_nan(self) -> u64 {
        self.infinity() | 1 << (self.fraction_bits - 1)
    }

    /// Exponent (that of subnormals is 1, as for the smallest normal numbers) and significand of a finite magnitude.
    const fn parts(self, magnitude: u64) -> (u32, u64) {
        let hidden = 1 << self.fraction_bits;
        let fraction = magnitude & (hidden - 1);
        match (magnitude >> self.fraction_bits) as u32 {
            0 => (1, fraction),
            exponent => (exponent, fraction | hidden),
        }
    }

    fn add(self, a: u64, b: u64) -> u64 {
        let (sign, infinity) = (self.sign(), self.infinity());
        let magnitudes = (a & !sign, b & !sign);
        if magnitudes.0 > infinity || magnitudes.1 > infinity {
            return self.canonical_nan();
        }
        // Magnitudes compare as integers do.
        let (large, small) = if magnitudes.0 >= magnitudes.1 { (a, b) } else { (b, a) };
        let subtract = (a ^ b) & sign != 0;
        if large & !sign == infinity {
            return if subtract && small & !sign == infinity { self.canonical_nan() } else { large };
        }
        // Three more bits below the significand: guard, round, and one that is 1 if anything was lost to its right.
        const EXTRA: u32 = 3;
        let (mut exponent, high) = self.parts(large & !sign);
        let (small_exponent, low) = self.parts(small & !sign);
        let (high, low) = (high << EXTRA, shift_right_sticky(low << EXTRA, exponent - small_exponent));
        let mut sum = if subtract { high - low } else { high + low };
        if sum == 0 {
            return if subtract { 0 } else { large & sign };
        }
        let top = self.fraction_bits + EXTRA;
        if sum >> (top + 1) != 0 {
            sum = shift_right_sticky(sum, 1);
            exponent += 1;
        } else {
            let shift = (top - sum.ilog2().min(top)).min(exponent - 1);
            sum <<= shift;
            exponent -= shift;
        }
        let (lost, half) = (sum & ((1 << EXTRA) - 1), 1 << (EXTRA - 1));
        sum >>= EXTRA;
        sum += u64::from(lost > half || (lost == half && sum & 1 == 1));
        // Added, not or-ed: a significand that rounding carried into the next binade carries into the exponent, up to
        // and including infinity; one that stayed below the hidden bit is subnormal, with exponent field 0.
        let bits = (u64::from(exponent - 1) << self.fraction_bits) + sum;
        (large & sign) | bits.min(infinity)
    }
}

/// `value / 2^by`, its last bit set if anything was lost.
const fn shift_right_sticky(value: u64, by: u32) -> u64 {
    if by >= u64::BITS {
        return (value != 0) as u64;
    }
    let kept = value >> by;
    kept | (kept << by != value) as u64
}

/// The sum of two elements, given and returned as bits in the lowest bytes.
pub fn add(dtype: DataType, a: u64, b: u64) -> u64 {
    match Format::of(dtype) {
        Some(format) => format.add(a, b),
        None => a.wrapping_add(b) & (u64::MAX >> (64 - 8 * dtype.size())),
    }
}

/// The NaN that stands for all, as bits; `None` for integers.
pub const fn canonical_nan(dtype: DataType) -> Option<u64> {
    match Format::of(dtype) {
        Some(format) => Some(format.canonical_nan()),
        None => None,
    }
}

/// Element `i` of a message as bits.
fn load(message: &[u8], size: usize, i: usize) -> u64 {
    let mut bits = [0; 8];
    bits[..size].copy_from_slice(&message[i * size..][..size]);
    u64::from_le_bytes(bits)
}

/// The value of an element, exactly (64-bit integers beyond 2^53 excepted).
pub fn to_f64(dtype: DataType, bits: u64) -> f64 {
    match dtype {
        DataType::Int8 => bits as i8 as f64,
        DataType::Int32 => bits as i32 as f64,
        DataType::Int64 => bits as i64 as f64,
        DataType::Uint8 | DataType::Uint32 | DataType::Uint64 => bits as f64,
        DataType::Float32 => f32::from_bits(bits as u32).into(),
        DataType::Float64 => f64::from_bits(bits),
        DataType::Float16 => half::f16::from_bits(bits as u16).to_f64(),
        DataType::Bfloat16 => half::bf16::from_bits(bits as u16).to_f64(),
    }
}

/// The all-reduced message in ring order: chunk c is ((x_c + x_c+1) + ...), rounded to the element type at every hop.
/// A single input is returned as it is.
///
/// # Panics
/// If there are not `geometry.n()` inputs of `geometry.count()` elements of `dtype`.
pub fn sum_ring(inputs: &[&[u8]], dtype: DataType, geometry: &Geometry) -> Vec<u8> {
    let (n, size) = (geometry.n(), dtype.size());
    check_inputs(inputs, dtype, geometry);
    let mut output = inputs[0].to_vec();
    if n == 1 {
        return output;
    }
    let (count, period) = (geometry.count() as usize, geometry.period() as usize);
    let block = geometry.block_elements() as usize;
    let mut first = 0;
    while first < count {
        let column = first % period;
        let end = (first + (block - column % block).min(period - column)).min(count);
        let chunk = geometry.chunk_of(first as u64);
        for i in first..end {
            let x = |hop: usize| load(inputs[(chunk + hop) % n], size, i);
            let sum = (1..n).fold(x(0), |sum, hop| add(dtype, sum, x(hop)));
            output[i * size..][..size].copy_from_slice(&sum.to_le_bytes()[..size]);
        }
        first = end;
    }
    output
}

/// The sums in binary64, in rank order, unrounded: for checks by tolerance.
///
/// # Panics
/// If the inputs are not equally long messages of `dtype`.
pub fn sum_f64(inputs: &[&[u8]], dtype: DataType) -> Vec<f64> {
    let size = dtype.size();
    let count = inputs.first().map_or(0, |first| first.len() / size);
    for input in inputs {
        assert_eq!(input.len(), count * size, "an input of another length");
    }
    (0..count).map(|i| inputs.iter().map(|input| to_f64(dtype, load(input, size, i))).sum()).collect()
}

fn check_inputs(inputs: &[&[u8]], dtype: DataType, geometry: &Geometry) {
    assert_eq!(inputs.len(), geometry.n(), "inputs of all ranks");
    assert_eq!(dtype.size(), geometry.elem(), "the geometry of another type");
    for input in inputs {
        assert_eq!(input.len() as u64, geometry.count() * dtype.size() as u64, "an input of another length");
    }
}
