//! The tables through which the Level Zero loader gets at a driver's functions.

mod tables;

use level_zero_sys::{
    ZE_RESULT_ERROR_INVALID_ARGUMENT, ZE_RESULT_ERROR_INVALID_NULL_POINTER, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
    ZE_RESULT_ERROR_UNSUPPORTED_VERSION, ZE_RESULT_SUCCESS, ze_api_version_t, ze_result_t,
};
use std::ffi::{CString, c_void};
use tables::{TABLES, Table};

/// What sits in the slot of a function that this driver lacks: the loader forwards every call without a look. The C
/// calling conventions of the machines Level Zero runs on leave arguments to the caller, so one function that takes
/// none serves for all.
unsafe extern "C" fn unsupported() -> ze_result_t {
    ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
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

/// How many slots the table that `export` fills has at a version of the specification.
pub fn slots(export: &str, version: ze_api_version_t) -> usize {
    find(export).map_or(0, |table| functions(table, version).count())
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
    let refusal: unsafe extern "C" fn() -> ze_result_t = unsupported;
    for (index, name) in functions(slots, version).enumerate() {
        let address = CString::new(name).map_or(std::ptr::null(), |name| crate::resolve(&name));
        let address = if address.is_null() { refusal as *const c_void } else { address };
        // SAFETY: the caller's promise: there are that many slots.
        unsafe { table.cast::<*const c_void>().add(index).write(address) };
    }
    ZE_RESULT_SUCCESS
}
