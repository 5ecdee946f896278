//! What tests that need several rank processes share: starting the ranks, data that depends on rank and position, and
//! the expected result.

pub mod data;
pub mod group;
pub mod soft;

pub use group::{Group, Rank};
