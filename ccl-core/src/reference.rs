//! Scalar reference of every reduction: the bits that plans and kernels are held to.
//!
//! docs/numerics.md has the rules. Floating-point arithmetic is done on integers, from the definition.

use crate::plan::geometry::Geometry;
use crate::softfloat::Format;
use crate::{DataType, Order, ReduceOp};

/// The bits that an element has.
const fn mask(dtype: DataType) -> u64 {
    u64::MAX >> (64 - 8 * dtype.size())
}

/// What `op` makes of two elements on the way, given and returned as bits in the lowest bytes: average and pre-multiplied
/// sum are sums.
pub fn combine(dtype: DataType, op: ReduceOp, a: u64, b: u64) -> u64 {
    let Some(format) = Format::of(dtype) else { return combine_integers(dtype, op, a, b) };
    match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => format.add(a, b),
        ReduceOp::Prod => format.multiply(a, b),
        ReduceOp::Max | ReduceOp::Min if format.is_nan(a) || format.is_nan(b) => format.canonical_nan(),
        ReduceOp::Max if format.less(a, b) => b,
        ReduceOp::Max => a,
        ReduceOp::Min if format.less(b, a) => b,
        ReduceOp::Min => a,
    }
}

fn combine_integers(dtype: DataType, op: ReduceOp, a: u64, b: u64) -> u64 {
    let result = match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => a.wrapping_add(b),
        ReduceOp::Prod => a.wrapping_mul(b),
        ReduceOp::Max => dtype.integer(a).max(dtype.integer(b)) as u64,
        ReduceOp::Min => dtype.integer(a).min(dtype.integer(b)) as u64,
    };
    result & mask(dtype)
}

/// The product of two elements.
pub fn multiply(dtype: DataType, a: u64, b: u64) -> u64 {
    combine(dtype, ReduceOp::Prod, a, b)
}

/// A finished sum divided by the number of ranks. Integers lose what is behind the point.
pub fn average(dtype: DataType, sum: u64, n: usize) -> u64 {
    match Format::of(dtype) {
        Some(format) => format.divide(sum, n as u32),
        None => (dtype.integer(sum) / n as i128) as u64 & mask(dtype),
    }
}

/// The sum of two elements, given and returned as bits in the lowest bytes.
pub fn add(dtype: DataType, a: u64, b: u64) -> u64 {
    combine(dtype, ReduceOp::Sum, a, b)
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

/// The sum of one element of all ranks in rank order, unrounded as long as its type allows.
fn in_rank_order(dtype: DataType, op: ReduceOp, x: impl Fn(usize) -> u64, n: usize) -> u64 {
    let fold = |dtype, x: &dyn Fn(usize) -> u64| {
        let all = (1..n).fold(x(0), |all, rank| combine(dtype, op, all, x(rank)));
        if op == ReduceOp::Avg { average(dtype, all, n) } else { all }
    };
    match Format::of(dtype).filter(|_| dtype.size() == 2) {
        Some(format) => {
            let wide = |rank| format.convert(x(rank), Format::BINARY32);
            Format::BINARY32.convert(fold(DataType::Float32, &wide), format)
        }
        None => fold(dtype, &x),
    }
}

/// The all-reduced message. In ring order chunk c is ((x_c + x_c+1) + ...), rounded to the element type at every hop; in
/// rank order it is ((x_0 + x_1) + ...), of 16-bit floats in binary32 and rounded once. A single input is returned as it
/// is, unless it is to be multiplied.
///
/// # Panics
/// If there are not `geometry.n()` inputs of `geometry.count()` elements of `dtype`, or if a factor is of no use for it.
pub fn all_reduce(inputs: &[&[u8]], dtype: DataType, op: ReduceOp, order: Order, geometry: &Geometry) -> Vec<u8> {
    let (n, size) = (geometry.n(), dtype.size());
    check_inputs(inputs, dtype, geometry);
    let factor = op.factor(dtype).unwrap_or_else(|error| panic!("{error}"));
    let contribution = |rank: usize, i: usize| match op {
        ReduceOp::PreMulSum(_) => multiply(dtype, load(inputs[rank], size, i), factor),
        _ => load(inputs[rank], size, i),
    };
    let mut output = inputs[0].to_vec();
    let (count, period) = (geometry.count() as usize, geometry.period() as usize);
    let block = geometry.block_elements() as usize;
    let mut first = 0;
    while first < count {
        let column = first % period;
        let end = (first + (block - column % block).min(period - column)).min(count);
        let chunk = geometry.chunk_of(first as u64);
        for i in first..end {
            let x = |hop: usize| contribution((chunk + hop) % n, i);
            let reduced = match order {
                _ if n == 1 => x(0),
                Order::Rank => in_rank_order(dtype, op, |rank| contribution(rank, i), n),
                Order::Ring => {
                    let all = (1..n).fold(x(0), |all, hop| combine(dtype, op, all, x(hop)));
                    if op == ReduceOp::Avg { average(dtype, all, n) } else { all }
                }
            };
            output[i * size..][..size].copy_from_slice(&reduced.to_le_bytes()[..size]);
        }
        first = end;
    }
    output
}

/// [`all_reduce`] of the sum in ring order.
///
/// # Panics
/// As that does.
pub fn sum_ring(inputs: &[&[u8]], dtype: DataType, geometry: &Geometry) -> Vec<u8> {
    all_reduce(inputs, dtype, ReduceOp::Sum, Order::Ring, geometry)
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
