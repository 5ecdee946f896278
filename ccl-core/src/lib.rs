//! The part of the collective library that knows neither a driver nor an ABI.
//!
//! Data flows one way: a call is checked by the [`comm::Communicator`], turned into a [`plan`] (a pure function of
//! rank-invariant inputs), and handed to a [`device::Device`], which is cut at the level of a whole collective.
//! [`protocol`] holds the numbers of the wire protocol; the model checks read the same ones.

pub mod bootstrap;
pub mod collective;
pub mod comm;
pub mod config;
mod cores;
pub mod corpus;
pub mod device;
pub mod error;
pub mod linker;
pub mod mesh;
pub mod mhc;
pub mod plan;
pub mod presence;
pub mod protocol;
pub mod reference;
pub mod slot;
mod softfloat;
pub mod topology;
pub mod types;
pub mod watch;

pub use error::{Error, Result};
pub use types::{DataType, Factor, Kind, Order, ReduceOp};
