//! Filling the table from something other than the loader.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::ptr;

use level_zero_sys::*;

unsafe extern "C" fn init(flags: ze_init_flags_t) -> ze_result_t {
    if flags == ZE_INIT_FLAG_GPU_ONLY { ZE_RESULT_SUCCESS } else { ZE_RESULT_ERROR_INVALID_ENUMERATION }
}

unsafe extern "C" fn import(_: ze_driver_handle_t, _: *mut c_void, size: usize) -> ze_result_t {
    if size == 4096 { ZE_RESULT_SUCCESS } else { ZE_RESULT_ERROR_INVALID_SIZE }
}

unsafe extern "C" fn is_empty(_: ze_graph_handle_t) -> ze_result_t {
    ZE_RESULT_QUERY_TRUE
}

unsafe extern "C" fn other_is_empty(_: ze_graph_handle_t) -> ze_result_t {
    ZE_RESULT_QUERY_FALSE
}

unsafe extern "C" fn extension(_: ze_driver_handle_t, name: *const c_char, address: *mut *mut c_void) -> ze_result_t {
    // SAFETY: the table passes a string that ends with a zero byte.
    let found: *mut c_void = match unsafe { CStr::from_ptr(name) }.to_str().unwrap() {
        "zexDriverImportExternalPointer" => import as zexDriverImportExternalPointer_t as *mut c_void,
        "zeGraphIsEmptyExt" => other_is_empty as zeGraphIsEmptyExt_t as *mut c_void,
        // A driver may leave rubbish in the output of a call that fails.
        _ => {
            // SAFETY: the table passes a place for the answer.
            unsafe { *address = ptr::dangling_mut() };
            return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
        }
    };
    // SAFETY: as above.
    unsafe { *address = found };
    ZE_RESULT_SUCCESS
}

/// Stands for every function that the tests never call.
unsafe extern "C" fn filler() {}

fn resolve(name: &CStr) -> *const c_void {
    match name.to_str().unwrap() {
        "zeInit" => init as zeInit_t as *const c_void,
        "zeDriverGetExtensionFunctionAddress" => extension as zeDriverGetExtensionFunctionAddress_t as *const c_void,
        "zeGraphIsEmptyExt" => is_empty as zeGraphIsEmptyExt_t as *const c_void,
        name if FUNCTIONS.iter().any(|&(known, required)| required && known == name) => {
            filler as unsafe extern "C" fn() as *const c_void
        }
        _ => ptr::null(),
    }
}

#[test]
fn a_table_is_filled_by_name() {
    let mut asked = Vec::new();
    let table = Table::load_with(|name| {
        asked.push(name.to_str().unwrap().to_owned());
        resolve(name)
    })
    .unwrap();
    assert_eq!(asked, FUNCTIONS.iter().map(|&(name, _)| name).collect::<Vec<_>>());
    // SAFETY: `init` above, called by its own signature.
    assert_eq!(unsafe { (table.zeInit)(ZE_INIT_FLAG_GPU_ONLY) }, ZE_RESULT_SUCCESS);
    assert!(table.zeInitDrivers.is_none());
    assert!(table.zeGraphIsEmptyExt.is_some());
}

#[test]
fn each_required_function_is_missed_by_name() {
    for &(name, required) in FUNCTIONS {
        let loaded =
            Table::load_with(|symbol| if symbol.to_str().unwrap() == name { ptr::null() } else { resolve(symbol) });
        match loaded {
            Ok(_) => assert!(!required, "{name} is required, but a table came about without it"),
            Err(missing) => {
                assert!(required, "{name} is not required");
                assert_eq!(missing, MissingSymbol { name });
                assert!(missing.to_string().contains(name));
            }
        }
    }
}

#[test]
fn extensions_fill_only_what_is_missing() {
    let mut table = Table::load_with(resolve).unwrap();
    assert!(table.zexDriverImportExternalPointer.is_none());
    // SAFETY: `extension` above doesn't look at the driver.
    unsafe { table.load_extensions(ptr::null_mut()) };
    // SAFETY: `import` above, called by its own signature.
    let result = unsafe { table.zexDriverImportExternalPointer.unwrap()(ptr::null_mut(), ptr::null_mut(), 4096) };
    assert_eq!(result, ZE_RESULT_SUCCESS);
    // SAFETY: `is_empty` above, which was found first and must not be replaced.
    assert_eq!(unsafe { table.zeGraphIsEmptyExt.unwrap()(ptr::null_mut()) }, ZE_RESULT_QUERY_TRUE);
    assert!(table.zexCounterBasedEventCreate2.is_none(), "a failed answer was taken");
    assert!(table.zeInitDrivers.is_none(), "not an extension: never asked of a driver");
}

#[test]
fn structures_default_to_zero_with_their_type() {
    let desc = ze_device_mem_alloc_desc_t::default();
    assert_eq!(desc.stype, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
    assert!(desc.pNext.is_null());
    assert_eq!((desc.flags, desc.ordinal), (0, 0));
    assert_eq!(zex_counter_based_event_desc_t::default().stype, ZEX_STRUCTURE_COUNTER_BASED_EVENT_DESC);
    assert!(ddi::ze_graph_dditable_t::default().pfnCreateExt.is_none());
}

#[test]
fn results_have_names() {
    assert_eq!(result_name(ZE_RESULT_SUCCESS), "ZE_RESULT_SUCCESS");
    assert_eq!(result_name(ZE_RESULT_ERROR_DEVICE_LOST), "ZE_RESULT_ERROR_DEVICE_LOST");
    // Shares its number with constants that are no results.
    assert_eq!(result_name(ZE_RESULT_NOT_READY), "ZE_RESULT_NOT_READY");
    assert_eq!(result_name(12_345), "an unknown ze_result_t");
}

#[test]
fn versions_are_put_together_and_taken_apart() {
    assert_eq!(ze_make_version(1, 17), ZE_API_VERSION_1_17);
    assert_eq!((ze_major_version(ZE_API_VERSION_1_17), ze_minor_version(ZE_API_VERSION_1_17)), (1, 17));
}

#[test]
fn a_relative_path_is_refused() {
    for path in ["libze_loader.so.1", "./libze_loader.so.1", ""] {
        let error = Loader::open_path(Path::new(path)).unwrap_err();
        assert!(matches!(&error, LoadError::RelativePath(refused) if refused == Path::new(path)), "{error}");
    }
}

#[test]
fn an_absent_library_is_named() {
    let error = Loader::open_path(Path::new("/nowhere/libze_loader.so.1")).unwrap_err();
    assert!(matches!(error, LoadError::Open { .. }));
    assert!(error.to_string().contains("/nowhere/libze_loader.so.1: cannot open shared object file"), "{error}");
}

#[test]
fn a_library_that_is_no_loader_is_told_by_the_first_function_it_lacks() {
    // This test's own C library: always there, and certainly no Level Zero.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.starts_with('/') && word.contains("libc.so")).unwrap();
    let error = Loader::open_path(Path::new(libc)).unwrap_err();
    assert!(matches!(error, LoadError::Missing(MissingSymbol { name: "zeInit" })), "{error}");
}
