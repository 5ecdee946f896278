//! Manifold-constrained hyper-connections (mHC): the operation that an all-reduce can carry to its end.
//!
//! A row (token) of the residual X is `streams` vectors of `hidden` elements. One *boundary* does
//! - post: `X'[o] = post[o] x + sum over i of comb[i, o] X[i]`, with x the reduced output of the sublayer that ends;
//! - pre: from X' the coefficients of the next sublayer (`pre`, `post`, `comb`) and its input `y = sum of pre[i] X'[i]`.
//!
//! docs/numerics.md has the formula, the rounding points and the order of every sum. [`mod@reference`] is that order in
//! Rust, which kernels are held to by bits; [`float64`] is the formula in double precision, for tolerances.

mod buffers;
pub mod element;
pub mod float64;
pub mod math;
pub mod reference;

pub use buffers::Buffers;

use crate::protocol::BLOCK_BYTES;
use crate::{DataType, Error, Result};
use std::fmt;

/// Most streams.
pub const MAX_STREAMS: usize = 8;
/// Most coefficients of a row: `pre`, `post` and `comb` together.
pub const MAX_MIXES: usize = (2 + MAX_STREAMS) * MAX_STREAMS;
/// Most Sinkhorn iterations: far more than change a bit, and few enough to be done soon whoever asks for them.
pub const MAX_ITERATIONS: u32 = 1000;
/// Columns whose products are added to one another first: what one work-item loads of a row of `fn` at once.
pub const GROUP: usize = 4;

/// What a boundary computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Variant {
    /// Post, then pre; y uses the coefficients of this boundary.
    V4,
    /// Post, then pre; y uses the coefficients that the previous boundary computed.
    V41,
    /// Post alone.
    Post,
    /// Pre alone, of a residual that is there.
    Pre,
    /// The model's end: y from sigmoid coefficients, without `post` and `comb`.
    Head,
}

impl Variant {
    /// Whether X' is computed from x, post and comb.
    pub const fn has_post(self) -> bool {
        matches!(self, Variant::V4 | Variant::V41 | Variant::Post)
    }

    /// Whether coefficients are computed from the residual by `fn`.
    pub const fn has_pre(self) -> bool {
        !matches!(self, Variant::Post)
    }

    /// Rows of `fn`, and coefficients of a row, for this many streams.
    pub const fn mixes(self, streams: usize) -> usize {
        match self {
            Variant::Post => 0,
            Variant::Head => streams,
            Variant::V4 | Variant::V41 | Variant::Pre => (2 + streams) * streams,
        }
    }

    /// Elements of `scale`.
    pub const fn scales(self) -> usize {
        match self {
            Variant::Post => 0,
            Variant::Head => 1,
            Variant::V4 | Variant::V41 | Variant::Pre => 3,
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Variant::V4 => "v4",
            Variant::V41 => "v41",
            Variant::Post => "post",
            Variant::Pre => "pre",
            Variant::Head => "head",
        })
    }
}

/// How an all-reduce and the boundary after it are computed. All designs have the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Design {
    /// Whichever is best, of those that there are for the call.
    Auto,
    /// The all-reduce, then the boundary in a launch of its own.
    Unfused,
    /// In one launch: the all-reduce, then every rank the whole boundary.
    A,
    /// In one launch, for y that doesn't need this boundary's sums ([`Variant::V41`]): they come after it.
    B,
    /// In one launch: the owner of a chunk of columns computes its part of the sums, which ride the all-gather.
    C,
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Design::Auto => "auto",
            Design::Unfused => "unfused",
            Design::A => "a",
            Design::B => "b",
            Design::C => "c",
        })
    }
}

/// Shape and constants of a boundary: alike on all ranks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Params {
    /// What is computed.
    pub variant: Variant,
    /// Element type of x, residual, y and the norm's weight; coefficients and `fn` are binary32.
    pub dtype: DataType,
    /// Rows: tokens.
    pub rows: u64,
    /// Elements of a row of x.
    pub hidden: u64,
    /// Streams of the residual: 2, 4 or 8.
    pub streams: u32,
    /// Added to the mean square before its root.
    pub rms_eps: f32,
    /// Added to `pre`.
    pub pre_eps: f32,
    /// Added to the sums that Sinkhorn's steps divide by.
    pub sinkhorn_eps: f32,
    /// Multiplies the sigmoid of `post`.
    pub post_multiplier: f32,
    /// Sinkhorn iterations, the softmax counted as the first; at least 1.
    pub sinkhorn_iterations: u32,
    /// Epsilon of the RMSNorm of y, if y is to be normed.
    pub norm_eps: Option<f32>,
}

impl Params {
    /// A boundary with the constants that DeepSeek-V4 uses.
    pub const fn new(variant: Variant, dtype: DataType, rows: u64, hidden: u64, streams: u32) -> Self {
        Self {
            variant,
            dtype,
            rows,
            hidden,
            streams,
            rms_eps: 1e-6,
            pre_eps: 1e-6,
            sinkhorn_eps: 1e-6,
            post_multiplier: 2.0,
            sinkhorn_iterations: 20,
            norm_eps: None,
        }
    }

    /// Refuses, by name, what is not defined.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::InvalidArgument(format!("mHC: {what}")));
        if !matches!(self.dtype, DataType::Bfloat16 | DataType::Float16 | DataType::Float32) {
            return Err(Error::NotImplemented(format!("mHC of {}; there are: bfloat16 float16 float32", self.dtype)));
        }
        if !matches!(self.streams, 2 | 4 | 8) {
            return refuse(format!("{} streams; there are 2, 4 or 8", self.streams));
        }
        if self.hidden == 0 {
            return refuse("rows of 0 elements".into());
        }
        if self.variant.has_pre() && !(1..=MAX_ITERATIONS).contains(&self.sinkhorn_iterations) {
            let iterations = self.sinkhorn_iterations;
            return refuse(format!(
                "{iterations} Sinkhorn iterations; the softmax is the first of 1 to {MAX_ITERATIONS}"
            ));
        }
        for (name, value) in [
            ("rms_eps", Some(self.rms_eps)),
            ("pre_eps", Some(self.pre_eps)),
            ("sinkhorn_eps", Some(self.sinkhorn_eps)),
            ("post_multiplier", Some(self.post_multiplier)),
            ("norm_eps", self.norm_eps),
        ] {
            if value.is_some_and(|value| !value.is_finite() || value < 0.0) {
                return refuse(format!("{name} of {value:?}; it must be finite and not negative"));
            }
        }
        if self.norm_eps.is_some() && self.variant == Variant::Post {
            return refuse("a norm of y, which post alone does not compute".into());
        }
        let elements = u128::from(self.rows) * u128::from(self.hidden) * u128::from(self.streams);
        if elements > (isize::MAX as u128) / 8 || u128::from(self.hidden) * 640 > isize::MAX as u128 {
            return refuse(format!("{} rows of {} x {} elements", self.rows, self.streams, self.hidden));
        }
        Ok(())
    }

    /// Streams, as a size.
    pub const fn hc(&self) -> usize {
        self.streams as usize
    }

    /// Coefficients of a row.
    pub const fn mixes(&self) -> usize {
        self.variant.mixes(self.streams as usize)
    }

    /// Columns of a block: the unit of ownership and of summation.
    pub const fn block(&self) -> usize {
        BLOCK_BYTES / self.dtype.size()
    }

    /// Blocks of a row.
    pub const fn blocks(&self) -> usize {
        (self.hidden as usize).div_ceil(self.block())
    }
}

/// The constants by their bits, so that parameters can be a key.
impl Params {
    /// All that makes two boundaries the same, as numbers. A zero's sign makes no difference.
    pub fn key(&self) -> [u64; 10] {
        let bits = |value: f32| u64::from((value + 0.0).to_bits());
        [
            self.variant as u64,
            self.dtype as u64,
            self.rows,
            self.hidden,
            u64::from(self.streams),
            bits(self.rms_eps) << 32 | bits(self.pre_eps),
            bits(self.sinkhorn_eps) << 32 | bits(self.post_multiplier),
            u64::from(self.sinkhorn_iterations),
            u64::from(self.norm_eps.is_some()),
            self.norm_eps.map_or(0, bits),
        ]
    }
}

/// The rank that owns block `block` of a row, among `n`: the chunk's owner in an all-reduce of period `hidden`.
pub const fn block_owner(n: usize, block: usize) -> usize {
    crate::protocol::owner(n, block % n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_defined_is_refused_by_name() {
        let good = Params::new(Variant::V4, DataType::Bfloat16, 3, 4096, 4);
        assert_eq!(good.check(), Ok(()));
        for (bad, word) in [
            (Params { dtype: DataType::Int8, ..good }, "int8"),
            (Params { streams: 3, ..good }, "3 streams"),
            (Params { hidden: 0, ..good }, "rows of 0"),
            (Params { sinkhorn_iterations: 0, ..good }, "0 Sinkhorn"),
            (Params { sinkhorn_iterations: u32::MAX, ..good }, "Sinkhorn"),
            (Params { rms_eps: f32::NAN, ..good }, "rms_eps"),
            (Params { norm_eps: Some(-1.0), ..good }, "norm_eps"),
            (Params { variant: Variant::Post, norm_eps: Some(1e-6), ..good }, "norm of y"),
            (Params { rows: u64::MAX, ..good }, "rows"),
        ] {
            let text = bad.check().expect_err("not defined").to_string();
            assert!(text.contains(word), "{text}, not: {word}");
        }
    }

    #[test]
    fn a_key_tells_boundaries_apart_by_value() {
        let one =
            Params { norm_eps: Some(0.0), sinkhorn_eps: 0.0, ..Params::new(Variant::V4, DataType::Float32, 3, 96, 4) };
        let same = Params { norm_eps: Some(-0.0), sinkhorn_eps: -0.0, ..one };
        assert_eq!(one.key(), same.key());
        for other in [
            Params { norm_eps: None, ..one },
            Params { norm_eps: Some(1e-6), ..one },
            Params { rms_eps: 2e-6, ..one },
            Params { pre_eps: 2e-6, ..one },
            Params { post_multiplier: 1.0, ..one },
        ] {
            assert_ne!(one.key(), other.key());
        }
    }
}
