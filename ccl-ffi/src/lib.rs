//! The C ABI: oneCCL's names, so that programs built for it find this library in its place.
//!
//! What is here so far is what a program needs for an all-reduce of host buffers. Every entry is contained: a panic
//! becomes `onecclInternalError` and never crosses the boundary.

mod boundary;
mod cclx;
mod comm;

pub use boundary::Code;
pub use cclx::*;
pub use comm::*;
