//! The numbers that are reduced: exact by construction.
//!
//! Element `i` of rank `r` in round `k` is an integer `v(i, r, k)` of magnitude at most `L`, drawn by a hash of the
//! three. `L` is such that even all [`MAX_RANKS`] ranks together stay below the first integer that the element type
//! can't hold: `MAX_RANKS * L < 2^(bits of the significand)`. So every partial sum is exact, whatever the order, and one
//! result is right to the bit. Elements of other ranks, places and rounds differ, but for coincidences that a few
//! elements rule out.

use ccl_core::protocol::MAX_RANKS;
use ccl_ze::Element;

/// Byte that outputs and guards are filled with. As a float of any type it is negative and no integer, so that no sum
/// equals it.
pub(super) const POISON: u8 = 0xA5;

/// An element type that sums of integers can be checked in.
pub(super) trait Value: Element {
    /// Bits of the significand, the hidden one included.
    const SIGNIFICAND: u32;
    /// `L`: the largest magnitude of an input.
    const LIMIT: i32 = (1 << Self::SIGNIFICAND) / MAX_RANKS as i32 - 1;

    /// Exactly this integer.
    fn from_integer(value: i32) -> Self;

    /// Its bits.
    fn bits(self) -> u32;

    /// The element with these bits; those beyond its size are left out.
    fn from_bits(bits: u32) -> Self;

    /// For messages.
    fn show(self) -> f32;
}

impl Value for f32 {
    const SIGNIFICAND: u32 = 24;

    fn from_integer(value: i32) -> Self {
        value as f32
    }

    fn bits(self) -> u32 {
        self.to_bits()
    }

    fn from_bits(bits: u32) -> Self {
        f32::from_bits(bits)
    }

    fn show(self) -> f32 {
        self
    }
}

macro_rules! half_width {
    ($($ty:ty = $significand:literal),*) => { $(
        impl Value for $ty {
            const SIGNIFICAND: u32 = $significand;

            fn from_integer(value: i32) -> Self {
                Self::from_f32(value as f32)
            }

            fn bits(self) -> u32 {
                self.to_bits().into()
            }

            fn from_bits(bits: u32) -> Self {
                <$ty>::from_bits(bits as u16)
            }

            fn show(self) -> f32 {
                self.to_f32()
            }
        }
    )* };
}
half_width!(half::f16 = 11, half::bf16 = 8);

/// Sets the inputs of a rank and a round apart from those of others.
fn salt(rank: usize, round: u32) -> u32 {
    mix((rank as u32).wrapping_mul(0x632B_E5AB) ^ round.wrapping_mul(0x85EB_CA77) ^ 0x27D4_EB2F)
}

const fn mix(mut x: u32) -> u32 {
    x = (x ^ x >> 16).wrapping_mul(0x7FEB_352D);
    x = (x ^ x >> 15).wrapping_mul(0x846C_A68B);
    x ^ x >> 16
}

/// `v` for the rank and round of `salt`.
#[inline]
const fn integer(position: u64, salt: u32, limit: i32) -> i32 {
    let x = mix((position as u32 ^ (position >> 32) as u32).wrapping_mul(0x9E37_79B1) ^ salt);
    let span = 2 * limit as u64 + 1;
    ((x as u64 * span) >> 32) as i32 - limit
}

/// Fills `message` with the input of `rank` in `round`.
pub(super) fn write_input<T: Value>(message: &mut [T], rank: usize, round: u32) {
    let salt = salt(rank, round);
    for (position, element) in (0..).zip(message) {
        *element = T::from_integer(integer(position, salt, T::LIMIT));
    }
}

/// What a check found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Finding {
    /// Elements that are not what they should be.
    pub(super) wrong: u64,
    /// The first of them, in words.
    pub(super) first: Option<String>,
}

impl Finding {
    fn note(&mut self, describe: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first.get_or_insert_with(describe);
    }

    /// Both together.
    pub(super) fn add(&mut self, other: Finding) {
        self.wrong += other.wrong;
        self.first = self.first.take().or(other.first);
    }
}

/// Compares every element with the sum over `ranks` ranks in `round`, to the bit.
pub(super) fn check_sum<T: Value>(message: &[T], ranks: usize, round: u32) -> Finding {
    let salts: Vec<u32> = (0..ranks).map(|rank| salt(rank, round)).collect();
    compare(message, "", |position| {
        T::from_integer(salts.iter().map(|salt| integer(position, *salt, T::LIMIT)).sum::<i32>())
    })
}

/// Compares every element with the input of `rank` in `round`, to the bit.
pub(super) fn check_input<T: Value>(message: &[T], rank: usize, round: u32) -> Finding {
    let salt = salt(rank, round);
    compare(message, " of the input, which must stay as it was,", |position| {
        T::from_integer(integer(position, salt, T::LIMIT))
    })
}

/// Compares guard elements with the poison that they were filled with.
pub(super) fn check_guard<T: Value>(guard: &[T], side: &str) -> Finding {
    let poison = poison::<T>().bits();
    let mut finding = Finding::default();
    for (position, element) in guard.iter().enumerate() {
        if element.bits() != poison {
            finding.note(|| {
                format!("guard element {position} {side} the message was overwritten with {}", element.show())
            });
        }
    }
    finding
}

/// An element of [`POISON`] bytes.
pub(super) fn poison<T: Value>() -> T {
    T::from_bits(u32::from_ne_bytes([POISON; 4]))
}

fn compare<T: Value>(message: &[T], which: &str, expected: impl Fn(u64) -> T) -> Finding {
    let mut finding = Finding::default();
    for (position, element) in (0..).zip(message) {
        let right = expected(position);
        if element.bits() != right.bits() {
            finding.note(|| format!("element {position}{which} is {}, not {}", element.show(), right.show()));
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    fn input<T: Value>(rank: usize, round: u32, count: usize) -> Vec<T> {
        let mut message = vec![T::from_integer(0); count];
        write_input(&mut message, rank, round);
        message
    }

    fn bits<T: Value>(message: &[T]) -> Vec<u32> {
        message.iter().map(|element| element.bits()).collect()
    }

    /// The sum, rounded to the element type at each step, from any rank on.
    fn sums_are_exact<T: Value>(add: impl Fn(T, T) -> T) {
        let (count, ranks) = (5000, MAX_RANKS);
        let inputs: Vec<Vec<T>> = (0..ranks).map(|rank| input(rank, 3, count)).collect();
        for start in 0..ranks {
            let sum: Vec<T> = (0..count)
                .map(|i| (1..ranks).fold(inputs[start][i], |sum, hop| add(sum, inputs[(start + hop) % ranks][i])))
                .collect();
            assert_eq!(check_sum(&sum, ranks, 3), Finding::default(), "{} from {start}", T::DATATYPE);
        }
    }

    #[test]
    fn every_order_of_summation_is_exact() {
        sums_are_exact::<f32>(|a, b| a + b);
        sums_are_exact::<f16>(|a, b| f16::from_f32(a.to_f32() + b.to_f32()));
        sums_are_exact::<bf16>(|a, b| bf16::from_f32(a.to_f32() + b.to_f32()));
    }

    #[test]
    fn the_extremes_of_all_ranks_can_be_told_apart() {
        fn holds<T: Value>() {
            let most = T::LIMIT * MAX_RANKS as i32;
            assert_eq!(T::from_integer(most).show(), most as f32);
            assert_ne!(T::from_integer(most).bits(), T::from_integer(most - 1).bits());
            assert!(poison::<T>().show() < 0.0 && poison::<T>().show().fract() != 0.0);
        }
        holds::<f32>();
        holds::<f16>();
        holds::<bf16>();
    }

    #[test]
    fn inputs_differ_by_rank_round_and_place() {
        let base = bits(&input::<bf16>(0, 0, 1000));
        for other in [input::<bf16>(1, 0, 1000), input(0, 1, 1000), input(15, 7, 1000)] {
            let alike = base.iter().zip(bits(&other)).filter(|(a, b)| **a == *b).count();
            assert!(alike < 100, "{alike} of 1000 elements are alike");
        }
        for shift in [1, 2, 64, 500] {
            let alike = base[shift..].iter().zip(&base).filter(|(a, b)| a == b).count();
            assert!(alike < (1000 - shift) / 10, "{alike} elements recur {shift} places on");
        }
    }

    #[test]
    fn whatever_is_not_right_is_counted() {
        let mut sum: Vec<f32> = input(0, 9, 64);
        assert_eq!(check_sum(&sum, 1, 9), Finding::default());
        assert_eq!(check_input(&sum, 0, 9), Finding::default());
        let negative_zero = sum.iter().position(|x| *x == 0.0).unwrap_or(5);
        sum[negative_zero] = -0.0;
        sum[63] = f32::NAN;
        let finding = check_sum(&sum, 1, 9);
        assert_eq!(finding.wrong, 2);
        assert!(finding.first.is_some_and(|first| first.contains(&format!("element {negative_zero} "))));
        assert_eq!(check_input(&sum, 0, 9).wrong, 2);
        assert!(check_sum(&input::<f32>(0, 9, 64), 2, 9).wrong > 60);

        let mut guard = vec![poison::<f16>(); 8];
        assert_eq!(check_guard(&guard, "after"), Finding::default());
        guard[2] = f16::ZERO;
        assert_eq!(check_guard(&guard, "after").wrong, 1);
    }
}
