//! The vocabulary of a collective call: element types, reductions, order of summation.

use std::fmt;
use std::str::FromStr;

use crate::softfloat::Format;
use crate::{Error, Result};

/// Element type of a buffer. The discriminants are those of the C ABI.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum DataType {
    /// Signed 8-bit integer.
    Int8 = 0,
    /// Unsigned 8-bit integer.
    Uint8 = 1,
    /// Signed 32-bit integer.
    Int32 = 2,
    /// Unsigned 32-bit integer.
    Uint32 = 3,
    /// Signed 64-bit integer.
    Int64 = 4,
    /// Unsigned 64-bit integer.
    Uint64 = 5,
    /// IEEE binary16.
    Float16 = 6,
    /// IEEE binary32.
    Float32 = 7,
    /// IEEE binary64.
    Float64 = 8,
    /// The upper half of a binary32.
    Bfloat16 = 9,
}

impl DataType {
    /// All of them, in ABI order.
    pub const ALL: [DataType; 10] = [
        DataType::Int8,
        DataType::Uint8,
        DataType::Int32,
        DataType::Uint32,
        DataType::Int64,
        DataType::Uint64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
        DataType::Bfloat16,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DataType::Int8 | DataType::Uint8 => 1,
            DataType::Float16 | DataType::Bfloat16 => 2,
            DataType::Int32 | DataType::Uint32 | DataType::Float32 => 4,
            DataType::Int64 | DataType::Uint64 | DataType::Float64 => 8,
        }
    }

    /// Whether its elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, DataType::Float16 | DataType::Bfloat16 | DataType::Float32 | DataType::Float64)
    }

    /// The value of an element of an integer type.
    pub(crate) const fn integer(self, bits: u64) -> i128 {
        match self {
            DataType::Int8 => bits as i8 as i128,
            DataType::Int32 => bits as i32 as i128,
            DataType::Int64 => bits as i64 as i128,
            _ => bits as i128,
        }
    }

    /// The type with this ABI number.
    #[inline]
    pub fn from_abi(value: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|t| *t as u32 == value)
    }

    /// The name used on command lines and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            DataType::Int8 => "int8",
            DataType::Uint8 => "uint8",
            DataType::Int32 => "int32",
            DataType::Uint32 => "uint32",
            DataType::Int64 => "int64",
            DataType::Uint64 => "uint64",
            DataType::Float16 => "float16",
            DataType::Float32 => "float32",
            DataType::Float64 => "float64",
            DataType::Bfloat16 => "bfloat16",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DataType {
    type Err = String;

    /// Accepts our names and nccl-tests' (`half`, `float`, `double`).
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let alias = match text {
            "half" | "fp16" => "float16",
            "float" | "fp32" => "float32",
            "double" | "fp64" => "float64",
            "bf16" => "bfloat16",
            other => other,
        };
        Self::ALL.into_iter().find(|t| t.name() == alias).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|t| t.name()).collect();
            format!("unknown datatype '{text}'; known: {}", names.join(" "))
        })
    }
}

/// What a pre-multiplied sum multiplies by: a scalar of some datatype.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Factor {
    dtype: DataType,
    bits: u64,
}

impl Factor {
    /// The element of `dtype` with these bits; bits beyond its size don't count.
    pub const fn new(dtype: DataType, bits: u64) -> Self {
        Self { dtype, bits: bits & (u64::MAX >> (64 - 8 * dtype.size())) }
    }

    /// The datatype of the scalar.
    pub const fn dtype(self) -> DataType {
        self.dtype
    }

    /// The bits of the scalar.
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// The factor as an element of a message of `dtype`. A floating scalar is rounded to nearest even (a binary32
    /// scalar for bfloat16 elements is usual); an integer must be in the range of an integer type, else it is an error,
    /// and so is an integer for floating elements or the reverse.
    pub fn element(self, dtype: DataType) -> Result<u64> {
        let refuse = |why: &str| {
            let Factor { dtype: own, bits } = self;
            Err(Error::InvalidArgument(format!("a factor of {own} (bits {bits:#x}) for elements of {dtype}: {why}")))
        };
        if self.dtype == dtype {
            return Ok(self.bits);
        }
        match (Format::of(self.dtype), Format::of(dtype)) {
            (Some(own), Some(wanted)) => Ok(own.convert(self.bits, wanted)),
            (None, None) => {
                let value = self.dtype.integer(self.bits);
                let bits = Factor::new(dtype, value as u64).bits;
                if dtype.integer(bits) == value { Ok(bits) } else { refuse("it is out of their range") }
            }
            _ => refuse("one is floating, the other not"),
        }
    }
}

/// Reduction of the elements of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Maximum.
    Max,
    /// Minimum.
    Min,
    /// Sum divided by the world size.
    Avg,
    /// Sum of the elements, each multiplied first. Each rank may have a factor of its own.
    PreMulSum(Factor),
}

impl ReduceOp {
    /// Those that take no factor, in ABI order.
    pub const ALL: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];

    /// The number of the operation: that of the C ABI, except that a pre-multiplied sum has none there.
    pub const fn code(self) -> u32 {
        match self {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Max => 2,
            ReduceOp::Min => 3,
            ReduceOp::Avg => 4,
            ReduceOp::PreMulSum(_) => 5,
        }
    }

    /// The operation with this ABI number.
    #[inline]
    pub fn from_abi(value: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.code() == value)
    }

    /// The operation with this [`Self::code`]; `factor` is for that which takes one.
    pub(crate) fn from_code(code: u32, factor: Factor) -> Option<Self> {
        match code {
            5 => Some(ReduceOp::PreMulSum(factor)),
            _ => Self::from_abi(code),
        }
    }

    /// The name used on command lines and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Avg => "avg",
            ReduceOp::PreMulSum(_) => "premulsum",
        }
    }

    /// The factor as an element of `dtype`; 0 where there is none.
    pub fn factor(self, dtype: DataType) -> Result<u64> {
        match self {
            ReduceOp::PreMulSum(factor) => factor.element(dtype),
            _ => Ok(0),
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|op| op.name()).collect();
            format!("unknown reduction '{text}'; known: {}", names.join(" "))
        })
    }
}

/// Datatype, reduction and order as kernels are told of them: one byte each, in this order from the lowest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kind(u32);

impl Kind {
    /// The word of a reduction.
    pub const fn new(dtype: DataType, op: ReduceOp, order: Order) -> Self {
        Self(dtype as u32 | op.code() << 8 | (order as u32) << 16)
    }

    /// The word itself.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// What a word says; the factor of a pre-multiplied sum, an element of the datatype, comes separately.
    #[inline]
    pub fn read(word: u32, factor: u64) -> Option<(DataType, ReduceOp, Order)> {
        let dtype = DataType::from_abi(word & 0xFF)?;
        let op = ReduceOp::from_code(word >> 8 & 0xFF, Factor::new(dtype, factor))?;
        let order = [Order::Ring, Order::Rank].into_iter().find(|order| *order as u32 == word >> 16)?;
        Some((dtype, op, order))
    }
}

/// Order in which the ranks' elements are added; part of the result, since floating addition is not associative.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
pub enum Order {
    /// Chunk c is ((x_c + x_c+1) + x_c+2) ..., rounded to the wire type at every hop.
    #[default]
    Ring = 0,
    /// Absolute rank order, 16-bit types accumulated in binary32 and rounded once.
    Rank = 1,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Order::Ring => "ring",
            Order::Rank => "rank",
        })
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "ring" => Ok(Order::Ring),
            "rank" => Ok(Order::Rank),
            _ => Err(format!("unknown order '{text}'; known: ring rank")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn a_kind_says_what_went_into_it() {
        let mut seen = std::collections::BTreeSet::new();
        for dtype in DataType::ALL {
            let factor = Factor::new(dtype, 0x8123_4567_89AB_CDEF);
            for op in ReduceOp::ALL.into_iter().chain([ReduceOp::PreMulSum(factor)]) {
                for order in [Order::Ring, Order::Rank] {
                    let kind = Kind::new(dtype, op, order);
                    assert_eq!(Kind::read(kind.word(), op.factor(dtype).unwrap()), Some((dtype, op, order)));
                    assert!(seen.insert(kind.word()));
                }
            }
        }
        for word in [10, 6 << 8, 2 << 16, 1 << 24] {
            assert_eq!(Kind::read(word, 0), None);
        }
    }

    #[test]
    fn factors_take_the_type_of_the_elements() {
        let element = |own, bits, dtype| Factor::new(own, bits).element(dtype);
        let half = f32::to_bits(0.5).into();
        assert_eq!(element(DataType::Float32, half, DataType::Bfloat16), Ok(0x3F00));
        assert_eq!(element(DataType::Float32, half, DataType::Float16), Ok(0x3800));
        assert_eq!(element(DataType::Float32, half, DataType::Float64), Ok(0.5f64.to_bits()));
        // 1/3 is rounded to nearest: up in bfloat16.
        let third = f32::to_bits(1.0 / 3.0).into();
        assert_eq!(element(DataType::Float32, third, DataType::Bfloat16), Ok(0x3EAB));
        assert_eq!(element(DataType::Float64, f64::MAX.to_bits(), DataType::Float32), Ok(0x7F80_0000));
        assert_eq!(element(DataType::Float64, f64::NAN.to_bits() | 1 << 63, DataType::Float16), Ok(0x7E00));
        // A payload survives where nothing is converted.
        assert_eq!(element(DataType::Float16, 0x7D01, DataType::Float16), Ok(0x7D01));
        assert_eq!(element(DataType::Int8, 0xFF, DataType::Int64), Ok(u64::MAX));
        assert_eq!(element(DataType::Int64, -128i64 as u64, DataType::Int8), Ok(0x80));
        for (own, bits, dtype, word) in [
            (DataType::Int8, 0xFF, DataType::Uint64, "range"),
            (DataType::Int64, 128, DataType::Int8, "range"),
            (DataType::Uint64, u64::MAX, DataType::Int64, "range"),
            (DataType::Float32, half, DataType::Int32, "floating"),
            (DataType::Int32, 2, DataType::Float32, "floating"),
        ] {
            let error = element(own, bits, dtype).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains(own.name()) && error.contains(dtype.name()), "{error}");
        }
    }
}
