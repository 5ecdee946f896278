//! Inputs that depend on rank and position, and what their reduction must be.

use crate::local::sum;
use ccl_core::plan::Request;
use ccl_core::plan::geometry::Geometry;
use ccl_core::{DataType, Factor, ReduceOp, reference};

/// A well-mixed word for (seed, rank, position).
pub fn word(seed: u64, rank: usize, i: u64) -> u32 {
    let mut x = seed ^ (rank as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x >> 32) as u32
}

/// `count` elements of ordinary size (sums round, and nothing overflows), as bytes.
pub fn ordinary(dtype: DataType, seed: u64, rank: usize, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * dtype.size());
    for i in 0..count as u64 {
        let word = word(seed, rank, i);
        // Sign, an exponent around that of 1, and a random mantissa.
        match dtype {
            DataType::Bfloat16 => {
                bytes.extend(((word & 0x807F) as u16 | (0x3E80 + (word >> 16 & 3) as u16 * 0x80)).to_le_bytes())
            }
            DataType::Float16 => {
                bytes.extend(((word & 0x83FF) as u16 | (0x3400 + (word >> 16 & 3) as u16 * 0x400)).to_le_bytes())
            }
            DataType::Float32 => {
                let high = (word & 0x8000_0000) | (0x3E80_0000 + (word >> 16 & 3) * 0x80_0000);
                bytes.extend((high | word.wrapping_mul(0x9E37_79B1) >> 9).to_le_bytes());
            }
            DataType::Float64 => {
                let fraction = u64::from(word) << 32 | u64::from(word.wrapping_mul(0x9E37_79B1));
                let exponent = (0x3FE + u64::from(word >> 16 & 3)) << 52;
                bytes.extend((fraction & !(0x7FF << 52) | exponent).to_le_bytes());
            }
            _ => bytes.extend_from_slice(&integer(word)[..dtype.size()]),
        }
    }
    bytes
}

/// The bytes of an integer of any size: any, or one at which something happens.
fn integer(word: u32) -> [u8; 8] {
    let special = [0u64, 1, 2, u64::MAX, u64::MAX - 1, 0x7F, 0x80, 0x8000_0000, 0x7FFF_FFFF, 1 << 63, u64::MAX >> 1];
    let bits = match word & 3 {
        // Several ranks have the same one now and then.
        0 => special[(word >> 8) as usize % special.len()],
        _ => u64::from(word).wrapping_mul(0x9E37_79B9_7F4A_7C15),
    };
    bits.to_le_bytes()
}

/// `count` elements of any bit pattern: NaN, infinities, subnormals, signed zeros, halfway cases among them.
pub fn wild(dtype: DataType, seed: u64, rank: usize, count: usize) -> Vec<u8> {
    let special16: [u16; 16] = match dtype {
        DataType::Bfloat16 => [
            0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC1, 0xFF81, 0x3F80, 0x3C00, 0xBF80,
            0x4380,
        ],
        _ => [
            0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0xFD01, 0x3C00, 0x1000, 0xBC00,
            0x6800,
        ],
    };
    let mut bytes = Vec::with_capacity(count * dtype.size());
    for i in 0..count as u64 {
        let word = word(seed, rank, i);
        match dtype {
            DataType::Bfloat16 | DataType::Float16 => {
                let value = if word & 0x3_0000 == 0 { word as u16 } else { special16[(word >> 20 & 15) as usize] };
                bytes.extend(value.to_le_bytes());
            }
            DataType::Float32 => {
                let value = if word & 0x3_0000 == 0 {
                    word.wrapping_mul(0x9E37_79B1)
                } else {
                    let special = [
                        0,
                        1,
                        0x7F_FFFF,
                        0x80_0000,
                        0x7F7F_FFFF,
                        0x7F80_0000,
                        0x7FC0_0001,
                        0x7F80_0001,
                        0x3F80_0000,
                        0x3380_0000,
                    ];
                    special[(word >> 20) as usize % special.len()] | word << 31
                };
                bytes.extend(value.to_le_bytes());
            }
            DataType::Float64 => {
                let special = [
                    0,
                    1,
                    (1 << 52) - 1,
                    1 << 52,
                    0x7FEF_FFFF_FFFF_FFFF,
                    0x7FF0 << 48,
                    0x7FF8 << 48 | 1,
                    0x7FF0 << 48 | 1,
                    0x3FF0 << 48,
                    0x3CA0 << 48,
                    0x1FF0 << 48,
                ];
                let value = match word & 0x3_0000 {
                    0 => u64::from(word).wrapping_mul(0x9E37_79B9_7F4A_7C15),
                    _ => special[(word >> 20) as usize % special.len()] | u64::from(word) << 63,
                };
                bytes.extend(value.to_le_bytes());
            }
            _ => bytes.extend_from_slice(&integer(word)[..dtype.size()]),
        }
    }
    bytes
}

/// The bits that a sum in ring order must have, by the scalar reference.
pub fn expected(dtype: DataType, inputs: &[Vec<u8>], period: Option<u64>) -> Vec<u8> {
    let count = inputs[0].len() / dtype.size();
    reduced(&Request { period, ..sum(dtype, count) }, inputs)
}

/// The bits that what is requested must have, by the scalar reference.
pub fn reduced(request: &Request, inputs: &[Vec<u8>]) -> Vec<u8> {
    let Request { count, dtype, op, order, period, .. } = *request;
    let geometry = Geometry::new(inputs.len(), count, period, dtype.size()).expect("a valid request");
    let views: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    reference::all_reduce(&views, dtype, op, order, &geometry)
}

/// Every reduction, that with a factor last: one of the ordinary elements.
pub fn ops(dtype: DataType) -> [ReduceOp; 6] {
    let mut bits = [0; 8];
    bits[..dtype.size()].copy_from_slice(&ordinary(dtype, 77, 5, 1));
    let factor = ReduceOp::PreMulSum(Factor::new(dtype, u64::from_le_bytes(bits)));
    std::array::from_fn(|i| ReduceOp::ALL.get(i).copied().unwrap_or(factor))
}

/// First place where two results differ, for messages.
pub fn first_difference(got: &[u8], want: &[u8], dtype: DataType) -> Option<String> {
    let size = dtype.size();
    let wrong = got.chunks(size).zip(want.chunks(size)).filter(|(g, w)| g != w).count();
    let i = got.chunks(size).zip(want.chunks(size)).position(|(g, w)| g != w)?;
    Some(format!(
        "{wrong} wrong of {}; first: element {i}: got {:02x?}, want {:02x?}",
        want.len() / size,
        &got[i * size..(i + 1) * size],
        &want[i * size..(i + 1) * size]
    ))
}
