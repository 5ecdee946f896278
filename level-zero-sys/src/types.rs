//! The types, constants and structures of the API, by subject.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    reason = "mirrors the specification's names, which are documented there"
)]

pub mod base;
pub mod device;
pub mod driver;
pub mod event;
pub mod graph;
pub mod list;
pub mod memory;
pub mod module;
pub mod zex;

pub use base::*;
pub use device::*;
pub use driver::*;
pub use event::*;
pub use graph::*;
pub use list::*;
pub use memory::*;
pub use module::*;
pub use zex::*;
