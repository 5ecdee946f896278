//! The vocabulary of a collective call: element types, reductions, order of summation.

use std::fmt;
use std::str::FromStr;

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

    /// The type with this ABI number.
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
    fn from_str(text: &str) -> Result<Self, String> {
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

/// Reduction of the elements of all ranks. The discriminants are those of the C ABI.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum ReduceOp {
    /// Sum.
    Sum = 0,
    /// Product.
    Prod = 1,
    /// Maximum.
    Max = 2,
    /// Minimum.
    Min = 3,
    /// Sum divided by the world size.
    Avg = 4,
}

impl ReduceOp {
    /// All of them, in ABI order.
    pub const ALL: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];

    /// The operation with this ABI number.
    pub fn from_abi(value: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u32 == value)
    }

    /// The name used on command lines and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Avg => "avg",
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

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|op| op.name()).collect();
            format!("unknown reduction '{text}'; known: {}", names.join(" "))
        })
    }
}

/// Order in which the ranks' elements are added; part of the result, since floating addition is not associative.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Order {
    /// Chunk c is ((x_c + x_c+1) + x_c+2) ..., rounded to the wire type at every hop.
    #[default]
    Ring,
    /// Absolute rank order, 16-bit types accumulated in binary32 and rounded once.
    Rank,
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

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ring" => Ok(Order::Ring),
            "rank" => Ok(Order::Rank),
            _ => Err(format!("unknown order '{text}'; known: ring rank")),
        }
    }
}
