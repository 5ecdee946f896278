//! The numbers that are reduced, as `benches/peers/data.h` draws them for the peers.

/// Element types of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Type {
    Float32,
    Bfloat16,
}

impl Type {
    pub(crate) const ALL: [Type; 2] = [Type::Float32, Type::Bfloat16];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Type::Float32 => "float32",
            Type::Bfloat16 => "bfloat16",
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Type::Float32 => 4,
            Type::Bfloat16 => 2,
        }
    }
}

fn integer(rank: usize, position: usize, seed: u32) -> i32 {
    let mut x = (position as u32)
        .wrapping_mul(0x9E37_79B1)
        .wrapping_add((rank as u32 + 1).wrapping_mul(0x85EB_CA77))
        .wrapping_add(seed.wrapping_mul(0xC2B2_AE3D));
    x ^= x >> 15;
    x = x.wrapping_mul(0x2C1B_3C6D);
    x ^= x >> 13;
    (x >> 27) as i32 - 16
}

/// The input of one rank, as bytes of `dtype`.
pub(crate) fn fill(to: &mut [u8], dtype: Type, rank: usize, seed: u32) {
    match dtype {
        Type::Float32 => {
            for (position, element) in to.chunks_exact_mut(4).enumerate() {
                element.copy_from_slice(&(integer(rank, position, seed) as f32).to_ne_bytes());
            }
        }
        Type::Bfloat16 => {
            for (position, element) in to.chunks_exact_mut(2).enumerate() {
                let value = half::bf16::from_f32(integer(rank, position, seed) as f32);
                element.copy_from_slice(&value.to_ne_bytes());
            }
        }
    }
}

/// Elements that are not the sum over all ranks.
pub(crate) fn wrong(from: &[u8], dtype: Type, ranks: usize, seed: u32) -> usize {
    let value = |element: &[u8]| match *element {
        [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]),
        [a, b] => half::bf16::from_ne_bytes([a, b]).to_f32(),
        _ => f32::NAN,
    };
    let right = |(position, element): &(usize, &[u8])| {
        let sum: i32 = (0..ranks).map(|rank| integer(rank, *position, seed)).sum();
        value(element) == sum as f32
    };
    from.chunks_exact(dtype.size()).enumerate().filter(|element| !right(element)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_right_and_nothing_else_is() {
        for dtype in Type::ALL {
            let count = 1000;
            let input = |rank| {
                let mut bytes = vec![0; count * dtype.size()];
                fill(&mut bytes, dtype, rank, 7);
                bytes
            };
            assert_eq!(wrong(&input(0), dtype, 1, 7), 0);
            assert!(wrong(&input(0), dtype, 1, 8) > count / 2, "another seed");
            assert!(wrong(&input(1), dtype, 1, 7) > count / 2, "another rank");
            assert!(wrong(&input(0), dtype, 2, 7) > count / 2, "a rank that is missing");
        }
        // As in C: these are what data.h gives.
        assert_eq!([0, 1, 2, 1000].map(|position| integer(1, position, 5)), KNOWN);
    }

    const KNOWN: [i32; 4] = [-13, 1, 11, -16];
}
