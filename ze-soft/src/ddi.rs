//! The tables through which the Level Zero loader gets at a driver's functions.

mod tables;

use crate::error::fail;
use level_zero_sys::{
    ZE_RESULT_ERROR_INVALID_ARGUMENT, ZE_RESULT_ERROR_INVALID_NULL_POINTER, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
    ZE_RESULT_ERROR_UNSUPPORTED_VERSION, ZE_RESULT_SUCCESS, ze_api_version_t, ze_result_t,
};
use std::ffi::{CString, c_void};
use tables::{TABLES, Table};

type Refusal = unsafe extern "C" fn() -> ze_result_t;

/// What sits in the slot of a function that this driver lacks, the one of that number among all: the loader forwards every
/// call without a look. The C calling conventions of the machines Level Zero runs on leave arguments to the caller, so a
/// function that takes none serves for any.
unsafe extern "C" fn unsupported<const NUMBER: usize>() -> ze_result_t {
    let name = names().nth(NUMBER).unwrap_or("this function");
    fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, format!("{name} is not supported by this driver"))
}

/// One refusal for each number, eight to a block.
macro_rules! refusals {
    ($($block:literal)*) => {
        &[$(
            unsupported::<{ $block * 8 }>, unsupported::<{ $block * 8 + 1 }>, unsupported::<{ $block * 8 + 2 }>,
            unsupported::<{ $block * 8 + 3 }>, unsupported::<{ $block * 8 + 4 }>, unsupported::<{ $block * 8 + 5 }>,
            unsupported::<{ $block * 8 + 6 }>, unsupported::<{ $block * 8 + 7 }>,
        )*]
    };
}

const REFUSALS: &[Refusal] = refusals!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
);

/// The names of all slots of all tables.
fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|table| table.slots.iter().flat_map(|(_, names)| names.iter().copied()))
}

/// What refuses a function.
fn refusal(function: &str) -> *const c_void {
    let refusal = names().position(|name| name == function).and_then(|number| REFUSALS.get(number));
    refusal.map_or(std::ptr::null(), |&refusal| refusal as *const c_void)
}

fn find(export: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.export == export)
}

fn functions(table: &Table, version: ze_api_version_t) -> impl Iterator<Item = &'static str> {
    let minor = version & 0xffff;
    table.slots.iter().filter(move |(since, _)| *since <= minor).flat_map(|(_, names)| names.iter().copied())
}

/// The names of the functions that fill tables.
pub fn exports() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.export)
}

/// The functions whose slots are in the table that `export` fills at a version of the specification.
pub fn functions_of(export: &str, version: ze_api_version_t) -> impl Iterator<Item = &'static str> {
    find(export).into_iter().flat_map(move |table| functions(table, version))
}

/// How many slots the table that `export` fills has at a version of the specification.
pub fn slots(export: &str, version: ze_api_version_t) -> usize {
    functions_of(export, version).count()
}

/// Whether the slot of a function holds that function, not only the refusal of it.
pub fn is_supported(function: &str) -> bool {
    CString::new(function).is_ok_and(|name| !crate::resolve(&name).is_null())
}

/// Does what the function `export` of a driver does: fills its table as it is at `version`. Tables grow at their end,
/// so later slots are not touched.
///
/// # Safety
/// `table` is null or points to at least [`slots`] pointers.
pub unsafe fn fill(export: &str, version: ze_api_version_t, table: *mut c_void) -> ze_result_t {
    if table.is_null() {
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    }
    if version >> 16 != 1 {
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    }
    let Some(slots) = find(export) else { return ZE_RESULT_ERROR_INVALID_ARGUMENT };
    for (index, name) in functions(slots, version).enumerate() {
        let address = CString::new(name).map_or(std::ptr::null(), |name| crate::resolve(&name));
        let address = if address.is_null() { refusal(name) } else { address };
        // SAFETY: the caller's promise: there are that many slots.
        unsafe { table.cast::<*const c_void>().add(index).write(address) };
    }
    ZE_RESULT_SUCCESS
}
