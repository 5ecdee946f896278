//! Everything this crate declares, as data, for the test that compares it with the headers.

use core::ffi::CStr;

use crate::types::{base, device, driver, event, graph, list, memory, module, zex};

/// Size, alignment and fields of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its alignment in bytes.
    pub align: usize,
    /// Its fields in order.
    pub fields: &'static [Field],
}

/// Place of a field in its structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its offset in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// The structures of the specification.
pub const STRUCTS: &[&[Layout]] = &[
    base::STRUCTS,
    device::STRUCTS,
    driver::STRUCTS,
    event::STRUCTS,
    graph::STRUCTS,
    list::STRUCTS,
    memory::STRUCTS,
    module::STRUCTS,
    crate::ddi::STRUCTS,
];

/// The numbers of the specification.
pub const CONSTANTS: &[&[(&str, u64)]] = &[
    base::CONSTANTS,
    device::CONSTANTS,
    driver::CONSTANTS,
    event::CONSTANTS,
    graph::CONSTANTS,
    list::CONSTANTS,
    memory::CONSTANTS,
    module::CONSTANTS,
];

/// The names of extensions of the specification.
pub const NAMES: &[(&str, &CStr)] = base::NAMES;

/// The structures of the driver's own headers.
pub const VENDOR_STRUCTS: &[Layout] = zex::STRUCTS;

/// The numbers of the driver's own headers.
pub const VENDOR_CONSTANTS: &[(&str, u64)] = zex::CONSTANTS;

/// The names of extensions of the driver's own headers.
pub const VENDOR_NAMES: &[(&str, &CStr)] = zex::NAMES;

/// Signature of each function, as declared: its arguments in parentheses and its result.
pub const SIGNATURES: &[(&str, &str)] = crate::functions::SIGNATURES;

/// As [`SIGNATURES`], of the functions of the driver's own headers.
pub const VENDOR_SIGNATURES: &[(&str, &str)] = crate::functions::VENDOR_SIGNATURES;
