//! The results that a call must have, from its captured inputs. What can't be computed here is no pass.

use super::event::{AllReduce, Kind};
use crate::plan::geometry::Geometry;
use crate::{Order, ReduceOp, reference};

/// What came of computing a call again.
#[derive(Debug, PartialEq, Eq)]
pub enum Recomputed {
    /// Each output by name, as every rank must hold it.
    Outputs(Vec<(&'static str, Vec<u8>)>),
    /// This build has no reference for the call.
    NotYet(String),
    /// There is no such call.
    Impossible(String),
}

/// Computes a call of `ranks` ranks again. `input` gives a rank's input by name; all of the call's inputs are there and
/// have the size of the manifest.
pub fn recompute<'a>(call: &Kind, ranks: usize, input: &dyn Fn(usize, &str) -> &'a [u8]) -> Recomputed {
    match call {
        Kind::AllReduce(call) => {
            let inputs: Vec<&[u8]> = (0..ranks).map(|rank| input(rank, "input")).collect();
            reduce(call, &inputs)
        }
        Kind::MhcBoundary(_) | Kind::MhcPost(_) => {
            Recomputed::NotYet(format!("{} has no reference in this build", call.name()))
        }
    }
}

fn reduce(call: &AllReduce, inputs: &[&[u8]]) -> Recomputed {
    let geometry = match Geometry::new(inputs.len(), call.count, call.period, call.dtype.size()) {
        Ok(geometry) => geometry,
        Err(error) => return Recomputed::Impossible(error.to_string()),
    };
    if (call.op, call.order) != (ReduceOp::Sum, Order::Ring) {
        return Recomputed::NotYet(format!("{} {} in order {} has no reference", call.dtype, call.op, call.order));
    }
    Recomputed::Outputs(vec![("output", reference::sum_ring(inputs, call.dtype, &geometry))])
}
