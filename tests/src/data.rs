//! Inputs that depend on rank and position, and what their reduction must be.

use ccl_core::plan::geometry::Geometry;
use ccl_core::{DataType, reference};

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
            _ => panic!("no inputs for {dtype} yet"),
        }
    }
    bytes
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
            _ => panic!("no inputs for {dtype} yet"),
        }
    }
    bytes
}

/// The bits that a sum in ring order must have, by the scalar reference.
pub fn expected(dtype: DataType, inputs: &[Vec<u8>], period: Option<u64>) -> Vec<u8> {
    let count = inputs[0].len() / dtype.size();
    if inputs.len() == 1 {
        return inputs[0].clone();
    }
    let geometry = Geometry::new(inputs.len(), count as u64, period, dtype.size()).expect("a valid request");
    let views: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    reference::sum_ring(&views, dtype, &geometry)
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
