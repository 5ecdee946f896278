//! What one captured call is: its kind, its tensors, which of them share storage, and what fed it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::mhc::{Params, Variant};
use crate::plan::Request;
use crate::types::Factor;
use crate::{DataType, Order, ReduceOp};

/// Writes a value as the text that it prints as and parses.
pub(super) mod text {
    use super::*;

    pub(crate) fn serialize<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr,
        T::Err: fmt::Display,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Element type of a captured tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementType {
    /// One byte, 0 or 1.
    Bool,
    /// A type that collectives reduce.
    Data(DataType),
}

impl ElementType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            ElementType::Bool => 1,
            ElementType::Data(dtype) => dtype.size(),
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementType::Bool => f.pad("bool"),
            ElementType::Data(dtype) => dtype.fmt(f),
        }
    }
}

impl FromStr for ElementType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bool" => Ok(ElementType::Bool),
            other => other.parse().map(ElementType::Data),
        }
    }
}

/// Whether a call reads or writes a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// As it was before the call.
    Input,
    /// As it was after the call.
    Output,
}

/// One tensor of a call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Its name in the call; inputs and outputs have names of their own.
    pub name: String,
    /// Read or written.
    pub role: Role,
    /// Element type.
    #[serde(with = "text")]
    pub dtype: ElementType,
    /// Extents, the slowest first.
    pub shape: Vec<u64>,
    /// Where it lay: tells which tensors were the same storage.
    pub address: u64,
    /// Of its bytes.
    pub sha256: String,
}

impl Tensor {
    /// Bytes of its elements; `None` if no memory has so many.
    pub fn bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.dtype.size() as u64, |bytes, extent| bytes.checked_mul(*extent))
    }
}

/// A reduction as manifests have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Maximum.
    Max,
    /// Minimum.
    Min,
    /// Sum divided by the number of ranks.
    Avg,
    /// Sum of elements that were multiplied first, by this rank's factor: the bits of an element.
    Premulsum(u64),
}

impl Op {
    /// What `op` is for elements of `dtype`; an error if its factor is none for them.
    pub fn new(op: ReduceOp, dtype: DataType) -> crate::Result<Self> {
        Ok(match op {
            ReduceOp::Sum => Op::Sum,
            ReduceOp::Prod => Op::Prod,
            ReduceOp::Max => Op::Max,
            ReduceOp::Min => Op::Min,
            ReduceOp::Avg => Op::Avg,
            ReduceOp::PreMulSum(factor) => Op::Premulsum(factor.element(dtype)?),
        })
    }

    /// What a library is asked for.
    pub const fn reduce_op(self, dtype: DataType) -> ReduceOp {
        match self {
            Op::Sum => ReduceOp::Sum,
            Op::Prod => ReduceOp::Prod,
            Op::Max => ReduceOp::Max,
            Op::Min => ReduceOp::Min,
            Op::Avg => ReduceOp::Avg,
            Op::Premulsum(bits) => ReduceOp::PreMulSum(Factor::new(dtype, bits)),
        }
    }
}

/// An all-reduce. Everything that its result depends on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllReduce {
    /// Elements of each rank's message.
    pub count: u64,
    /// Element type.
    #[serde(with = "text")]
    pub dtype: DataType,
    /// Reduction.
    pub op: Op,
    /// Order of summation.
    #[serde(with = "text")]
    pub order: Order,
    /// Elements of a row, if ownership starts anew with each.
    pub period: Option<u64>,
    /// The plan in words, of a library that has such.
    pub plan: String,
}

impl AllReduce {
    /// From a request and the plan that it runs.
    pub fn new(request: &Request, plan: impl fmt::Display) -> crate::Result<Self> {
        let Request { count, dtype, op, order, period, registered: _ } = *request;
        Ok(Self { count, dtype, op: Op::new(op, dtype)?, order, period, plan: plan.to_string() })
    }

    /// What is asked of the library to do it again.
    pub const fn request(&self) -> Request {
        Request {
            count: self.count,
            dtype: self.dtype,
            op: self.op.reduce_op(self.dtype),
            order: self.order,
            period: self.period,
            registered: None,
        }
    }
}

/// An mHC call: shape and constants, of which the binary32 ones as bits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mhc {
    /// What is computed: as [`Variant`] prints.
    pub variant: String,
    /// Element type of x, residual, y and the norm's weight.
    #[serde(with = "text")]
    pub dtype: DataType,
    /// Tokens.
    pub rows: u64,
    /// Width of a stream.
    pub hidden: u64,
    /// Residual streams.
    pub streams: u32,
    /// See [`Params::rms_eps`].
    pub rms_eps: u32,
    /// See [`Params::pre_eps`].
    pub pre_eps: u32,
    /// See [`Params::sinkhorn_eps`].
    pub sinkhorn_eps: u32,
    /// See [`Params::post_multiplier`].
    pub post_multiplier: u32,
    /// See [`Params::sinkhorn_iterations`].
    pub sinkhorn_iterations: u32,
    /// See [`Params::norm_eps`].
    pub norm_eps: Option<u32>,
}

impl Mhc {
    /// From a call's parameters.
    pub fn new(params: &Params) -> Self {
        Self {
            variant: params.variant.to_string(),
            dtype: params.dtype,
            rows: params.rows,
            hidden: params.hidden,
            streams: params.streams,
            rms_eps: params.rms_eps.to_bits(),
            pre_eps: params.pre_eps.to_bits(),
            sinkhorn_eps: params.sinkhorn_eps.to_bits(),
            post_multiplier: params.post_multiplier.to_bits(),
            sinkhorn_iterations: params.sinkhorn_iterations,
            norm_eps: params.norm_eps.map(f32::to_bits),
        }
    }

    /// The call's parameters; `None` if there is no such variant.
    pub fn params(&self) -> Option<Params> {
        let variants = [Variant::V4, Variant::V41, Variant::Post, Variant::Pre, Variant::Head];
        Some(Params {
            variant: variants.into_iter().find(|variant| variant.to_string() == self.variant)?,
            dtype: self.dtype,
            rows: self.rows,
            hidden: self.hidden,
            streams: self.streams,
            rms_eps: f32::from_bits(self.rms_eps),
            pre_eps: f32::from_bits(self.pre_eps),
            sinkhorn_eps: f32::from_bits(self.sinkhorn_eps),
            post_multiplier: f32::from_bits(self.post_multiplier),
            sinkhorn_iterations: self.sinkhorn_iterations,
            norm_eps: self.norm_eps.map(f32::from_bits),
        })
    }
}

/// Which call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `output` is the reduction of every rank's `input`.
    AllReduce(AllReduce),
    /// Between two sublayers: the post of the finished one and the pre of the next.
    MhcBoundary(Mhc),
    /// After the last sublayer: post only.
    MhcPost(Mhc),
}

impl Kind {
    /// An mHC call; `None` for a variant that is no event of a corpus.
    pub fn mhc(params: &Params) -> Option<Self> {
        match params.variant {
            Variant::V4 | Variant::V41 => Some(Kind::MhcBoundary(Mhc::new(params))),
            Variant::Post => Some(Kind::MhcPost(Mhc::new(params))),
            Variant::Pre | Variant::Head => None,
        }
    }

    /// The name in manifests, file names and messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Kind::AllReduce(_) => "all_reduce",
            Kind::MhcBoundary(_) => "mhc_boundary",
            Kind::MhcPost(_) => "mhc_post",
        }
    }

    /// Whether two ranks tell of one call: each may have a factor of its own.
    pub(super) fn is_alike(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::AllReduce(a), Kind::AllReduce(b)) => {
                let same_op = std::mem::discriminant(&a.op) == std::mem::discriminant(&b.op);
                same_op && AllReduce { op: b.op, ..a.clone() } == *b
            }
            (a, b) => a == b,
        }
    }
}

/// An input that holds, bit for bit, what an earlier event of the same rank put out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The input's name.
    pub input: String,
    /// The earlier event's number.
    pub event: u64,
    /// The name of its output.
    pub output: String,
}

/// An output in an input's storage.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alias {
    /// The output's name.
    pub output: String,
    /// The input's name.
    pub input: String,
}

/// The file of one event on one rank.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Its size.
    pub bytes: u64,
    /// Of its bytes.
    pub sha256: String,
}

/// One call on one rank.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Its place among the communicator's events, from 1.
    pub number: u64,
    /// Which call.
    pub call: Kind,
    /// Where its tensors are.
    pub file: File,
    /// Its tensors, in the order of the call.
    pub tensors: Vec<Tensor>,
    /// All pairs of an output and an input that were the same storage.
    pub aliases: Vec<Alias>,
    /// What fed it.
    pub links: Vec<Link>,
}

impl Event {
    /// The tensor of this name and role.
    pub fn tensor(&self, role: Role, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.role == role && tensor.name == name)
    }

    /// The name of its file, below the communicator's folder.
    pub fn path(&self, rank: usize) -> String {
        file_path(rank, self.number, &self.call)
    }
}

pub(super) fn file_path(rank: usize, number: u64, call: &Kind) -> String {
    format!("{}/{number:06}-{}.safetensors", rank_name(rank), call.name())
}

/// The name of a rank's folder, and of its manifest but for the ending.
pub(super) fn rank_name(rank: usize) -> String {
    format!("rank-{rank:03}")
}

/// All pairs of an output and an input at one address; an error names two that overlap in part.
pub(super) fn aliases(tensors: &[Tensor]) -> Result<Vec<Alias>, String> {
    let of = |role| tensors.iter().filter(move |tensor| tensor.role == role);
    let mut pairs = Vec::new();
    for output in of(Role::Output) {
        for input in of(Role::Input) {
            let (Some(written), Some(read)) = (output.bytes(), input.bytes()) else {
                return Err(format!("'{}' or '{}' is larger than any memory", output.name, input.name));
            };
            if written == 0 || read == 0 {
                continue;
            }
            if (output.address, written) == (input.address, read) {
                pairs.push(Alias { output: output.name.clone(), input: input.name.clone() });
            } else if output.address < input.address.saturating_add(read)
                && input.address < output.address.saturating_add(written)
            {
                return Err(format!("output '{}' overlaps input '{}' in part", output.name, input.name));
            }
        }
    }
    Ok(pairs)
}
