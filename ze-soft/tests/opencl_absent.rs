//! SPIR-V where nothing executes it: refused in words that say what to do.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

mod memory_bed;
mod opencl_bed;

use level_zero_sys::*;
use memory_bed::*;
use opencl_bed::*;

fn refusal(bed: &Bed) -> (ze_result_t, String) {
    let (module, log) = build(bed, ZE_MODULE_FORMAT_IL_SPIRV, IMAGE, None);
    (module.expect_err("nothing here executes SPIR-V"), log)
}

#[test]
fn the_native_engine_names_the_other() {
    if is_child() {
        let (code, log) = refusal(&Bed::new());
        assert_eq!(code, ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
        return assert!(log.contains("is SPIR-V") && log.contains("ZE_SOFT_ENGINE=opencl"), "{log}");
    }
    let (mut child, _stream) = spawn("the_native_engine_names_the_other", &[("ZE_SOFT_ENGINE", "native")]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_missing_runtime_is_named() {
    if is_child() {
        let bed = Bed::new();
        let (code, log) = refusal(&bed);
        assert_eq!(code, ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
        for words in ["ZE_SOFT_ENGINE=opencl needs an OpenCL runtime", "libOpenCL.so.1 can't be loaded"] {
            assert!(log.contains(words), "{log}");
        }
        // What needs no runtime works without one.
        let mut properties = ze_device_properties_t::default();
        return ok(unsafe { (bed.ze.zeDeviceGetProperties)(bed.devices[0], &raw mut properties) });
    }
    // A library of that name that is none hides a real one that the machine may have.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libOpenCL.so.1"), "not a library, but longer than the header of one".repeat(9))
        .unwrap();
    let variables = [("ZE_SOFT_ENGINE", "opencl"), ("LD_LIBRARY_PATH", folder.path().to_str().unwrap())];
    let (mut child, _stream) = spawn("a_missing_runtime_is_named", &variables);
    assert!(child.wait().unwrap().success());
}
