//! Element types of the residual.

use half::{bf16, f16};

/// An element of x, residual and y.
pub trait Element: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// The value, exactly.
    fn widen(self) -> f32;
    /// The nearest value, ties to even; a NaN becomes the canonical one.
    fn round(value: f32) -> Self;
    /// The same from double precision, rounded once.
    fn round_f64(value: f64) -> Self;
    /// The bits.
    fn bits(self) -> u32;
}

impl Element for bf16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }

    fn round(value: f32) -> Self {
        if value.is_nan() { bf16::from_bits(0x7FC0) } else { bf16::from_f32(value) }
    }

    fn round_f64(value: f64) -> Self {
        if value.is_nan() { bf16::from_bits(0x7FC0) } else { bf16::from_f64(value) }
    }

    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Element for f16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }

    fn round(value: f32) -> Self {
        if value.is_nan() { f16::from_bits(0x7E00) } else { f16::from_f32(value) }
    }

    fn round_f64(value: f64) -> Self {
        if value.is_nan() { f16::from_bits(0x7E00) } else { f16::from_f64(value) }
    }

    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Element for f32 {
    fn widen(self) -> f32 {
        self
    }

    fn round(value: f32) -> Self {
        super::math::canonical(value)
    }

    fn round_f64(value: f64) -> Self {
        super::math::canonical(value as f32)
    }

    fn bits(self) -> u32 {
        self.to_bits()
    }
}
