//! Floating-point arithmetic on integers, from the definition: the exact result, rounded once to nearest, ties to even.
//!
//! So it owes nothing to the twins, to a conversion instruction, or to the rounding and flushing modes of the thread
//! that runs it. The rules beyond IEEE 754: every result that is NaN is the one canonical NaN (positive, quiet, no
//! payload); subnormals are kept.

use crate::DataType;

/// A binary interchange format. Its numbers are bits in the lowest places of a word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
}

/// A number that is not NaN.
enum Number {
    Infinite,
    /// `significand * 2^exponent`.
    Finite {
        significand: u64,
        exponent: i32,
    },
}

impl Format {
    pub(crate) const BINARY32: Format = Format { exponent_bits: 8, fraction_bits: 23 };

    /// The format of a datatype; `None` for integers.
    pub(crate) const fn of(dtype: DataType) -> Option<Self> {
        let (exponent_bits, fraction_bits) = match dtype {
            DataType::Float16 => (5, 10),
            DataType::Bfloat16 => (8, 7),
            DataType::Float32 => return Some(Self::BINARY32),
            DataType::Float64 => (11, 52),
            _ => return None,
        };
        Some(Self { exponent_bits, fraction_bits })
    }

    pub(crate) const fn sign(self) -> u64 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    const fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    pub(crate) const fn canonical_nan(self) -> u64 {
        self.infinity() | 1 << (self.fraction_bits - 1)
    }

    pub(crate) const fn is_nan(self, bits: u64) -> bool {
        bits & !self.sign() > self.infinity()
    }

    /// The exponent of the last place of subnormals, and of the smallest normal numbers.
    const fn least_exponent(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1)) - self.fraction_bits as i32
    }

    /// The magnitude of a number, or nothing of NaN.
    fn number(self, bits: u64) -> Option<Number> {
        let (magnitude, hidden) = (bits & !self.sign(), 1 << self.fraction_bits);
        if magnitude >= self.infinity() {
            return (magnitude == self.infinity()).then_some(Number::Infinite);
        }
        let fraction = magnitude & (hidden - 1);
        Some(match (magnitude >> self.fraction_bits) as i32 {
            0 => Number::Finite { significand: fraction, exponent: self.least_exponent() },
            field => Number::Finite { significand: fraction | hidden, exponent: self.least_exponent() + field - 1 },
        })
    }

    /// `significand * 2^exponent`, rounded. The significand has 127 bits at most; where it stands for more digits than
    /// it has, its last bit is set and at least two lie below the last place of the result.
    fn round(self, sign: u64, significand: u128, exponent: i32) -> u64 {
        if significand == 0 {
            return sign;
        }
        let top = exponent + significand.ilog2() as i32;
        let place = (top - self.fraction_bits as i32).max(self.least_exponent());
        let rounded = match place - exponent {
            // All of it lies below half of the last place.
            by if by > 127 => 0,
            by if by > 0 => {
                let (kept, lost) = (significand >> by, significand & ((1 << by) - 1));
                let half = 1 << (by - 1);
                kept + u128::from(lost > half || (lost == half && kept & 1 == 1))
            }
            by => significand << -by,
        };
        // The field of the exponent would be one more, but a normal significand has its hidden bit to add to it. What
        // rounding carried into the next binade carries into the exponent, up to and including infinity.
        let field = (place - self.least_exponent()) as u128;
        let bits = (field << self.fraction_bits) + rounded;
        sign | bits.min(u128::from(self.infinity())) as u64
    }

    /// The sum. x + -x is +0, and only -0 + -0 is -0.
    pub(crate) fn add(self, a: u64, b: u64) -> u64 {
        let sign = self.sign();
        // Magnitudes compare as integers do.
        let (large, small) = if a & !sign >= b & !sign { (a, b) } else { (b, a) };
        let subtract = (a ^ b) & sign != 0;
        match (self.number(large), self.number(small)) {
            (None, _) | (_, None) => self.canonical_nan(),
            (Some(Number::Infinite), Some(Number::Infinite)) if subtract => self.canonical_nan(),
            (Some(Number::Infinite), _) | (_, Some(Number::Infinite)) => large,
            (
                Some(Number::Finite { significand: high, exponent }),
                Some(Number::Finite { significand: low, exponent: low_exponent }),
            ) => {
                // As many more bits as the significands have, so that what falls off on the right is a rest of the last
                // of them.
                const EXTRA: u32 = 62;
                let high = u128::from(high) << EXTRA;
                let low = shift_right_sticky(u128::from(low) << EXTRA, (exponent - low_exponent) as u32);
                let sum = if subtract { high - low } else { high + low };
                let zero = if subtract { 0 } else { large & sign };
                self.round(if sum == 0 { zero } else { large & sign }, sum, exponent - EXTRA as i32)
            }
        }
    }

    /// The product. 0 times infinity is NaN.
    pub(crate) fn multiply(self, a: u64, b: u64) -> u64 {
        let sign = (a ^ b) & self.sign();
        match (self.number(a), self.number(b)) {
            (None, _) | (_, None) => self.canonical_nan(),
            (
                Some(Number::Finite { significand: a, exponent: a_exponent }),
                Some(Number::Finite { significand: b, exponent: b_exponent }),
            ) => self.round(sign, u128::from(a) * u128::from(b), a_exponent + b_exponent),
            // Infinite by zero.
            (Some(Number::Finite { significand: 0, .. }), _) | (_, Some(Number::Finite { significand: 0, .. })) => {
                self.canonical_nan()
            }
            _ => sign | self.infinity(),
        }
    }

    /// The quotient by a small number that is not 0.
    pub(crate) fn divide(self, a: u64, by: u32) -> u64 {
        let sign = a & self.sign();
        match self.number(a) {
            None => self.canonical_nan(),
            Some(Number::Infinite) => a,
            Some(Number::Finite { significand, exponent }) => {
                const EXTRA: u32 = 72;
                let (dividend, by) = (u128::from(significand) << EXTRA, u128::from(by));
                let quotient = (dividend / by) | u128::from(!dividend.is_multiple_of(by));
                self.round(sign, quotient, exponent - EXTRA as i32)
            }
        }
    }

    /// The same number in another format.
    pub(crate) fn convert(self, bits: u64, to: Format) -> u64 {
        let sign = if bits & self.sign() != 0 { to.sign() } else { 0 };
        match self.number(bits) {
            None => to.canonical_nan(),
            Some(Number::Infinite) => sign | to.infinity(),
            Some(Number::Finite { significand, exponent }) => to.round(sign, significand.into(), exponent),
        }
    }

    /// Whether `a` is below `b`, neither of them NaN; -0 is below +0.
    pub(crate) fn less(self, a: u64, b: u64) -> bool {
        // Bits of positive numbers are ordered as the numbers are, those of negative ones the other way round.
        let key = |bits: u64| match bits & self.sign() {
            0 => bits as i64 as i128,
            _ => -1 - (bits & !self.sign()) as i128,
        };
        key(a) < key(b)
    }
}

/// `value / 2^by`, its last bit set if anything was lost.
const fn shift_right_sticky(value: u128, by: u32) -> u128 {
    if by >= u128::BITS {
        return (value != 0) as u128;
    }
    let kept = value >> by;
    kept | (kept << by != value) as u128
}
