//! The tables that the Level Zero loader asks for.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

use level_zero_sys::ddi::*;
use level_zero_sys::*;
use std::collections::{BTreeSet, HashSet};
use std::ffi::c_void;
use ze_soft::ddi;

/// Slots of the tables as `level-zero-sys` declares them.
const DECLARED: &[(&str, usize)] = &[
    ("zeGetGlobalProcAddrTable", size_of::<ze_global_dditable_t>()),
    ("zeGetDriverProcAddrTable", size_of::<ze_driver_dditable_t>()),
    ("zeGetDeviceProcAddrTable", size_of::<ze_device_dditable_t>()),
    ("zeGetContextProcAddrTable", size_of::<ze_context_dditable_t>()),
    ("zeGetCommandQueueProcAddrTable", size_of::<ze_command_queue_dditable_t>()),
    ("zeGetCommandListProcAddrTable", size_of::<ze_command_list_dditable_t>()),
    ("zeGetCommandListExpProcAddrTable", size_of::<ze_command_list_exp_dditable_t>()),
    ("zeGetMemProcAddrTable", size_of::<ze_mem_dditable_t>()),
    ("zeGetMemExpProcAddrTable", size_of::<ze_mem_exp_dditable_t>()),
    ("zeGetFenceProcAddrTable", size_of::<ze_fence_dditable_t>()),
    ("zeGetEventPoolProcAddrTable", size_of::<ze_event_pool_dditable_t>()),
    ("zeGetEventProcAddrTable", size_of::<ze_event_dditable_t>()),
    ("zeGetModuleProcAddrTable", size_of::<ze_module_dditable_t>()),
    ("zeGetModuleBuildLogProcAddrTable", size_of::<ze_module_build_log_dditable_t>()),
    ("zeGetKernelProcAddrTable", size_of::<ze_kernel_dditable_t>()),
    ("zeGetKernelExpProcAddrTable", size_of::<ze_kernel_exp_dditable_t>()),
    ("zeGetGraphProcAddrTable", size_of::<ze_graph_dditable_t>()),
    ("zeGetExecutableGraphProcAddrTable", size_of::<ze_executable_graph_dditable_t>()),
];

#[test]
fn every_slot_is_filled_and_nothing_beyond() {
    for export in ddi::exports() {
        let slots = ddi::slots(export, ZE_API_VERSION_1_17);
        assert_ne!(slots, 0, "{export}");
        let mut table = vec![std::ptr::null::<c_void>(); slots + 8];
        let code = unsafe { ddi::fill(export, ZE_API_VERSION_1_17, table.as_mut_ptr().cast()) };
        assert_eq!(code, ZE_RESULT_SUCCESS);
        assert!(table[..slots].iter().all(|slot| !slot.is_null()), "{export}");
        assert!(table[slots..].iter().all(|slot| slot.is_null()), "{export}");
    }
}

#[test]
fn tables_are_as_long_as_they_are_declared() {
    let exports: HashSet<&str> = ddi::exports().collect();
    for (export, bytes) in DECLARED {
        assert!(exports.contains(export), "{export}");
        assert_eq!(ddi::slots(export, ZE_API_VERSION_1_17) * size_of::<*const c_void>(), *bytes, "{export}");
    }
}

#[test]
fn an_older_loader_gets_the_shorter_table() {
    let mut table = [std::ptr::null::<c_void>(); 2];
    let fill = |version, table: &mut [*const c_void; 2]| unsafe {
        ddi::fill("zeGetGlobalProcAddrTable", version, table.as_mut_ptr().cast())
    };
    assert_eq!(fill(ZE_API_VERSION_1_9, &mut table), ZE_RESULT_SUCCESS);
    assert!(!table[0].is_null() && table[1].is_null());
    assert_eq!(fill(ZE_API_VERSION_1_10, &mut table), ZE_RESULT_SUCCESS);
    assert!(!table[1].is_null());
    assert_eq!(fill(2 << 16, &mut table), ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
    let null = std::ptr::null_mut();
    assert_eq!(unsafe { ddi::fill("zeGetMemProcAddrTable", 1 << 16, null) }, ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    assert_eq!(
        unsafe { ddi::fill("zeGetNoProcAddrTable", 1 << 16, table.as_mut_ptr().cast()) },
        ZE_RESULT_ERROR_INVALID_ARGUMENT
    );
}

#[test]
fn slots_hold_the_function_of_their_name() {
    let mut table = ze_mem_dditable_t::default();
    let code = unsafe { ddi::fill("zeGetMemProcAddrTable", ZE_API_VERSION_1_17, (&raw mut table).cast()) };
    assert_eq!(code, ZE_RESULT_SUCCESS);
    let address = |function: Option<zeMemFree_t>| function.map(|function| function as *const c_void).unwrap();
    assert_eq!(address(table.pfnFree), ze_soft::resolve(c"zeMemFree"));
    assert!(ddi::is_supported("zeMemFree") && !ddi::is_supported("zeImageCreate"));
    // What isn't supported says so instead of crashing.
    let mut images = [std::ptr::null::<c_void>(); 8];
    unsafe {
        ddi::fill("zeGetImageProcAddrTable", ZE_API_VERSION_1_17, images.as_mut_ptr().cast());
        let create: unsafe extern "C" fn(usize, usize, usize) -> ze_result_t = std::mem::transmute(images[1]);
        assert_eq!(create(1, 2, 3), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    }
}

/// The functions that docs/software-driver.md says are missing.
fn documented() -> BTreeSet<String> {
    let text = include_str!("../../docs/software-driver.md");
    let table = text.split("## Functions that are missing").nth(1).unwrap();
    let words = table.lines().filter(|line| line.starts_with("| ")).flat_map(|line| line.split('`'));
    words.filter(|word| word.starts_with("ze") && word.len() > 4).map(str::to_owned).collect()
}

#[test]
fn what_is_missing_is_documented_and_says_its_name() {
    let all = || ddi::exports().flat_map(|export| ddi::functions_of(export, ZE_API_VERSION_1_17));
    let missing: BTreeSet<String> = all().filter(|function| !ddi::is_supported(function)).map(str::to_owned).collect();
    let documented = documented();
    let undocumented: Vec<&String> = missing.difference(&documented).collect();
    let there: Vec<&String> = documented.difference(&missing).collect();
    assert!(undocumented.is_empty() && there.is_empty(), "undocumented {undocumented:?}, not missing {there:?}");

    // A slot that refuses tells which it is; no two share a function.
    let (mut refusals, mut count) = (HashSet::new(), 0);
    for export in ddi::exports() {
        let functions: Vec<_> = ddi::functions_of(export, ZE_API_VERSION_1_17).collect();
        let mut table = vec![std::ptr::null::<c_void>(); functions.len()];
        assert_eq!(unsafe { ddi::fill(export, ZE_API_VERSION_1_17, table.as_mut_ptr().cast()) }, ZE_RESULT_SUCCESS);
        let missing = functions.iter().zip(&table).filter(|(function, _)| !ddi::is_supported(function));
        for (_, slot) in missing {
            refusals.insert(*slot);
            count += 1;
        }
    }
    assert_eq!(refusals.len(), count);
}

#[test]
fn a_table_of_functions_loads_and_is_shut_before_init() {
    let ze = Table::load_with(ze_soft::resolve).unwrap();
    let mut count = 0;
    // No other test of this binary initialises the driver.
    assert_eq!(unsafe { (ze.zeDriverGet)(&raw mut count, std::ptr::null_mut()) }, ZE_RESULT_ERROR_UNINITIALIZED);
}
