//! The results that a call must have, from its captured inputs. What can't be computed here is no pass.

use std::borrow::Cow;

use half::{bf16, f16};

use super::event::{AllReduce, ElementType, Event, Kind, Op, Role};
use super::tensors::Loaded;
use crate::mhc::reference::{Inputs, Outputs, boundary as reference_boundary};
use crate::mhc::{Params, Variant};
use crate::plan::geometry::Geometry;
use crate::{DataType, ReduceOp, reference};

/// What came of computing a call again.
#[derive(Debug, PartialEq, Eq)]
pub enum Recomputed {
    /// Each output by name, as every rank must hold it.
    Outputs(Vec<(&'static str, Vec<u8>)>),
    /// There is no such call, or its inputs are not there.
    Impossible(String),
}

/// Computes a call again from one event of each rank, which are of one call, and their tensors.
pub fn recompute(events: &[&Event], tensors: &[&Loaded]) -> Recomputed {
    let outputs = match &events[0].call {
        Kind::AllReduce(_) => all_reduce(events, tensors).map(|output| vec![("output", output)]),
        // All ranks compute it of the same inputs, which the verifier demands.
        Kind::MhcBoundary(_) | Kind::MhcPost(_) => {
            boundary(events[0], events.len(), |name| tensors[0].tensor(events[0], Role::Input, name))
        }
    };
    outputs.map_or_else(Recomputed::Impossible, Recomputed::Outputs)
}

fn all_reduce(events: &[&Event], tensors: &[&Loaded]) -> Result<Vec<u8>, String> {
    let (mut calls, mut inputs) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
    for (event, loaded) in events.iter().zip(tensors) {
        let (Kind::AllReduce(call), Some(input)) = (&event.call, loaded.tensor(event, Role::Input, "input")) else {
            return Err("no input of an all_reduce".into());
        };
        calls.push(call);
        inputs.push(input);
    }
    reduce(&calls, &inputs)
}

/// What every rank must get from one all-reduce: each rank's call, which differ in the factor at most, and its input.
pub fn reduce(calls: &[&AllReduce], inputs: &[&[u8]]) -> Result<Vec<u8>, String> {
    let call = *calls.first().ok_or("no ranks")?;
    let geometry = Geometry::new(calls.len(), call.count, call.period, call.dtype.size()).map_err(|e| e.to_string())?;
    let message = call.count as usize * call.dtype.size();
    if calls.len() != inputs.len() || inputs.iter().any(|input| input.len() != message) {
        return Err("inputs of another size than the call".into());
    }
    // Each rank has a factor of its own, so the messages are multiplied here.
    let shares = calls.iter().zip(inputs).map(|(call, input)| match call.op {
        Op::Premulsum(factor) => Cow::Owned(multiplied(input, call.dtype, factor)),
        _ => Cow::Borrowed(*input),
    });
    let shares: Vec<Cow<'_, [u8]>> = shares.collect();
    let op = match call.op {
        Op::Premulsum(_) => ReduceOp::Sum,
        op => op.reduce_op(call.dtype),
    };
    let shares: Vec<&[u8]> = shares.iter().map(|share| &**share).collect();
    Ok(reference::all_reduce(&shares, call.dtype, op, call.order, &geometry))
}

fn multiplied(message: &[u8], dtype: DataType, factor: u64) -> Vec<u8> {
    let size = dtype.size();
    let product = |element: &[u8]| {
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(element);
        reference::multiply(dtype, u64::from_le_bytes(bits), factor).to_le_bytes()
    };
    message.chunks_exact(size).flat_map(|element| product(element).into_iter().take(size)).collect()
}

/// Outputs by name.
type Named = Vec<(&'static str, Vec<u8>)>;

/// What an mHC event must put out, by name, given its inputs by name; `ranks` is how many there are.
pub fn boundary<'a>(event: &Event, ranks: usize, input: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Named, String> {
    let (Kind::MhcBoundary(call) | Kind::MhcPost(call)) = &event.call else {
        return Err(format!("{} is no mHC event", event.call.name()));
    };
    let params = call.params().ok_or_else(|| format!("mHC variant '{}'", call.variant))?;
    params.check().map_err(|error| error.to_string())?;
    let named = match (&event.call, params.variant) {
        (Kind::MhcBoundary(_), Variant::V4 | Variant::V41) | (Kind::MhcPost(_), Variant::Post) => true,
        (_, Variant::V4 | Variant::V41 | Variant::Post | Variant::Pre | Variant::Head) => false,
    };
    if !named {
        return Err(format!("{} of variant {}", event.call.name(), params.variant));
    }
    match params.dtype {
        DataType::Bfloat16 => boundary_of::<bf16>(&params, event, ranks, &input),
        DataType::Float16 => boundary_of::<f16>(&params, event, ranks, &input),
        _ => boundary_of::<f32>(&params, event, ranks, &input),
    }
}

/// An element as bytes.
trait Bytes: crate::mhc::element::Element {
    fn read(bytes: &[u8]) -> Vec<Self>;
    fn write(elements: &[Self]) -> Vec<u8>;
}

macro_rules! bytes {
    ($($ty:ty),*) => { $(
        impl Bytes for $ty {
            fn read(bytes: &[u8]) -> Vec<Self> {
                bytes.as_chunks().0.iter().map(|element| <$ty>::from_le_bytes(*element)).collect()
            }

            fn write(elements: &[Self]) -> Vec<u8> {
                elements.iter().flat_map(|element| element.to_le_bytes()).collect()
            }
        }
    )* };
}
bytes!(bf16, f16, f32);

fn boundary_of<'a, T: Bytes>(
    params: &Params,
    event: &Event,
    ranks: usize,
    bytes: &dyn Fn(&str) -> Option<&'a [u8]>,
) -> Result<Named, String> {
    let (rows, hidden, streams) = (params.rows, params.hidden, u64::from(params.streams));
    let (pre, previous) = (params.variant.has_pre(), params.variant == Variant::V41);
    let input = |name: &str, dtype: DataType, shape: &[u64], used: bool| -> Result<&'a [u8], String> {
        let tensor = event.tensor(Role::Input, name);
        match tensor {
            None if !used => Ok(&[]),
            Some(tensor) if used && tensor.dtype == ElementType::Data(dtype) && tensor.shape == shape => {
                let bytes = bytes(name).ok_or_else(|| format!("no input '{name}'"))?;
                if Some(bytes.len() as u64) != tensor.bytes() {
                    return Err(format!("input '{name}' of {} bytes", bytes.len()));
                }
                Ok(bytes)
            }
            Some(_) => Err(format!("input '{name}' is not {dtype} {shape:?}, or is not used")),
            None => Err(format!("no input '{name}'")),
        }
    };
    const NAMES: [&str; 9] =
        ["x", "residual", "post", "comb", "previous_pre", "weights", "scale", "base", "norm_weight"];
    let strange = event.tensors.iter().find(|tensor| tensor.role == Role::Input && !NAMES.contains(&&*tensor.name));
    if let Some(tensor) = strange {
        return Err(format!("the call has no input '{}'", tensor.name));
    }
    let elements = |name, shape: &[u64], used| input(name, params.dtype, shape, used).map(T::read);
    let floats = |name, shape: &[u64], used| input(name, DataType::Float32, shape, used).map(f32::read);
    let mixes = params.mixes() as u64;
    let x = elements("x", &[rows, hidden], true)?;
    let residual = elements("residual", &[rows, streams, hidden], true)?;
    let post = floats("post", &[rows, streams], true)?;
    let comb = floats("comb", &[rows, streams, streams], true)?;
    let previous_pre = floats("previous_pre", &[rows, streams], previous)?;
    let weights = floats("weights", &[mixes, streams, hidden], pre)?;
    let scale = floats("scale", &[params.variant.scales() as u64], pre)?;
    let base = floats("base", &[mixes], pre)?;
    let norm_weight = elements("norm_weight", &[hidden], params.norm_eps.is_some())?;
    let inputs = Inputs {
        x: &x,
        residual: &residual,
        post: &post,
        comb: &comb,
        previous_pre: &previous_pre,
        weights: &weights,
        scale: &scale,
        base: &base,
        norm_weight: &norm_weight,
    };
    let Outputs { residual, pre, post, comb, y, normed } = reference_boundary(params, ranks, &inputs);
    let all = [
        ("residual", T::write(&residual)),
        ("pre", f32::write(&pre)),
        ("post", f32::write(&post)),
        ("comb", f32::write(&comb)),
        ("y", T::write(&y)),
        ("normed", T::write(&normed)),
    ];
    // Not every fused kernel writes out all of them; that what it does write is right is another question. But what feeds
    // the next event has to be there.
    let needed = |name: &str, bytes: &[u8]| {
        event.tensor(Role::Output, name).is_some()
            || (!bytes.is_empty() && matches!(name, "residual" | "post" | "comb"))
    };
    Ok(all.into_iter().filter(|(name, bytes)| needed(name, bytes)).collect())
}
