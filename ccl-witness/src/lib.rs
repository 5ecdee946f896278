//! The witness: a library under oneCCL's names that passes every call on to another one, and compares what that made of it.
//!
//! It knows no device and makes no collective. Of a call on host buffers it keeps the input and, when the call has returned,
//! the output; threads of its own exchange them between the ranks over sockets, compute the call again and hold the output
//! to that (docs/witness.md). Which library is underneath, `CCLX_WITNESS` says.

mod abi;
mod bounds;
mod call;
mod check;
mod collectives;
mod comparer;
mod entries;
mod evidence;
mod exchange;
mod group;
mod places;
mod queue;
mod real;
mod report;
mod sample;
mod watched;

pub use abi::{Code, OnecclUniqueId};
pub use collectives::*;
pub use entries::*;
pub use group::{onecclGroupEnd, onecclGroupStart};
