//! What tests that need several rank processes share: starting the ranks, data that depends on rank and position, and
//! the expected result.

pub mod abi;
pub mod calls;
pub mod children;
pub mod collectives;
pub mod count;
pub mod data;
pub mod failure;
pub mod fused;
pub mod graph;
pub mod group;
pub mod local;
pub mod mhc;
pub mod neo;
pub mod soft;
pub mod spirv;
pub mod syscalls;

pub use group::{Group, Rank};
