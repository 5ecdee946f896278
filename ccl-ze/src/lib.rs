//! Collectives on Level Zero devices: the Rust API.
//!
//! ```no_run
//! use ccl_core::{ReduceOp, bootstrap::UniqueId};
//! use ccl_ze::Communicator;
//!
//! # fn main() -> ccl_core::Result<()> {
//! # let (rank, world_size) = (0, 1);
//! // One process makes the id and hands its bytes to the others.
//! let id = UniqueId::create(Default::default())?;
//! let comm = Communicator::builder()?.init(&id, rank, world_size)?;
//! let stream = comm.stream(0)?;
//! let mut x = comm.alloc::<f32>(1024)?;
//! x.write(&stream, &vec![rank as f32; 1024])?;
//! let done = comm.all_reduce_in_place(&mut x, ReduceOp::Sum, &stream)?;
//! done.wait()?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything on the device side is written once, against Level Zero. Under it is Intel's driver or the software driver
//! `ze-soft`; the kernels are SPIR-V, or [`twins`] on the native engine of the latter.

mod api;
mod bounds;
mod buffer;
mod capture;
mod chain;
mod claim;
mod communicator;
mod completion;
mod driver;
mod endpoint;
mod event;
mod gpu;
mod graph;
#[doc(hidden)]
pub mod hooks;
pub mod inspect;
mod kernel;
mod kernels;
mod line;
mod list;
pub mod log;
mod memory;
mod mhc;
mod module;
mod packed;
mod place;
mod raw;
mod recording;
mod registered;
mod registry;
mod replay;
mod saving;
mod stream;
pub mod sycl;
#[cfg(feature = "soft")]
#[doc(hidden)]
pub mod twins;

pub use buffer::{Buffer, Element};
pub use ccl_core;
pub use communicator::{Builder, CallOptions, Communicator, Description, Handles};
pub use completion::Completion;
pub use graph::{ExecutableGraph, Graph};
pub use line::PlaceInLine;
pub use list::{CommandList, ExecutableList};
pub use raw::DeviceMemory;
pub use registered::RegisteredBuffer;
pub use stream::Stream;
