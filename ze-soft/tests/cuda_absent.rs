//! The CUDA engine where there is no NVIDIA GPU: refused in words that say what is missing.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

mod memory_bed;
mod opencl_bed;

use level_zero_sys::*;
use memory_bed::*;
use std::ffi::CStr;
use std::ptr::null_mut;

/// The default driver, as a program that has no context yet sees it.
fn driver(ze: &Table) -> ze_driver_handle_t {
    let (mut count, mut driver) = (1, null_mut());
    ok(unsafe { (ze.zeInit)(0) });
    ok(unsafe { (ze.zeDriverGet)(&raw mut count, &raw mut driver) });
    driver
}

#[test]
fn a_missing_driver_is_named() {
    if is_child() {
        let ze = Table::load_with(ze_soft::resolve).unwrap();
        let driver = driver(&ze);
        let (mut count, mut device) = (1, null_mut());
        ok(unsafe { (ze.zeDeviceGet)(driver, &raw mut count, &raw mut device) });
        // What needs no GPU works without one.
        let mut properties = ze_device_properties_t::default();
        ok(unsafe { (ze.zeDeviceGetProperties)(device, &raw mut properties) });
        assert_eq!(properties.deviceId, ze_soft::ext::GPU_DEVICE_ID);
        let (desc, mut context) = (ze_context_desc_t::default(), null_mut());
        let code = unsafe { (ze.zeContextCreate)(driver, &raw const desc, &raw mut context) };
        assert_eq!(code, ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
        let mut text = std::ptr::null();
        ok(unsafe { (ze.zeDriverGetLastErrorDescription)(driver, &raw mut text) });
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        for words in ["ZE_SOFT_ENGINE=cuda needs an NVIDIA GPU and its driver", "libcuda.so.1 can't be loaded"] {
            assert!(text.contains(words), "{text}");
        }
        return;
    }
    // A library of that name that is none hides a real one that the machine may have.
    let folder = tempfile::tempdir().unwrap();
    let text = "not a library, but longer than the header of one".repeat(9);
    std::fs::write(folder.path().join("libcuda.so.1"), text).unwrap();
    let variables = [("ZE_SOFT_ENGINE", "cuda"), ("LD_LIBRARY_PATH", folder.path().to_str().unwrap())];
    let (mut child, _stream) = spawn("a_missing_driver_is_named", &variables);
    assert!(child.wait().unwrap().success());
}
