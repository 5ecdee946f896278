//! Modules: bytes that name kernels, accepted when a program has registered native functions for them.

use crate::abi::{bytes, input, list, output, run};
use crate::context::Context;
use crate::device::Device;
use crate::entry::entry_points;
use crate::error::{fail, last_text};
use crate::ext::{self, MODULE_MAGIC};
use crate::handle::{Object, export, get, take};
use level_zero_sys::*;
use sha2::{Digest, Sha256};
use std::ffi::{CString, c_char};
use std::fmt::Write;
use std::sync::Arc;

/// A module.
pub(crate) struct Module {
    pub(crate) hash: [u8; 32],
    image: Vec<u8>,
    names: Vec<CString>,
}

impl Object for Module {
    const MAGIC: u64 = 0x5a45_534f_4d4f_4431;
}

/// What the making of a module had to say.
struct BuildLog {
    text: Vec<u8>,
}

impl Object for BuildLog {
    const MAGIC: u64 = 0x5a45_534f_4c4f_4731;
}

/// A hash in the usual notation.
pub(crate) fn hex(hash: &[u8; 32]) -> String {
    hash.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Module {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known.to_bytes() == name.as_bytes())
    }

    fn build(format: ze_module_format_t, image: &[u8]) -> Result<Self, ze_result_t> {
        let hash: [u8; 32] = Sha256::digest(image).into();
        let refuse = |code, why: &str| Err(fail(code, format!("the module with sha256 {} {why}", hex(&hash))));
        if format != ZE_MODULE_FORMAT_NATIVE {
            return refuse(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, "is not of the native format, the only one there is");
        }
        let Some(names) = image.strip_prefix(&MODULE_MAGIC) else {
            return refuse(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, "was not made for this driver");
        };
        let names = names
            .split(|&byte| byte == b'\n')
            .filter(|name| !name.is_empty())
            .map(CString::new)
            .collect::<Result<Vec<_>, _>>();
        let Ok(names) = names else {
            return refuse(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, "has a kernel whose name contains a zero byte");
        };
        if !ext::is_registered(&hash) {
            return refuse(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, "has no registered kernel (zeSoftRegisterKernel)");
        }
        Ok(Self { hash, image: image.to_vec(), names })
    }
}

unsafe extern "C" fn zeModuleCreate(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    desc: *const ze_module_desc_t,
    phModule: *mut ze_module_handle_t,
    phBuildLog: *mut ze_module_build_log_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise; the log is optional.
        let (desc, module, log) = unsafe { (input(desc)?, output(phModule)?, phBuildLog.as_mut()) };
        if desc.pInputModule.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        if desc.inputSize == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        // SAFETY: the specification's promise: that many bytes are there.
        let image = unsafe { std::slice::from_raw_parts(desc.pInputModule, desc.inputSize) };
        let built = Module::build(desc.format, image);
        if let Some(log) = log {
            let mut text = if built.is_err() { last_text().into_bytes() } else { Vec::new() };
            text.push(0);
            *log = export(Arc::new(BuildLog { text }));
        }
        *module = export(Arc::new(built?));
        Ok(())
    })
}

unsafe extern "C" fn zeModuleDestroy(hModule: ze_module_handle_t) -> ze_result_t {
    // Kernels keep what they need of it.
    run(|| take::<Module, _>(hModule).map(drop))
}

unsafe extern "C" fn zeModuleBuildLogDestroy(hModuleBuildLog: ze_module_build_log_handle_t) -> ze_result_t {
    run(|| take::<BuildLog, _>(hModuleBuildLog).map(drop))
}

unsafe extern "C" fn zeModuleBuildLogGetString(
    hModuleBuildLog: ze_module_build_log_handle_t,
    pSize: *mut usize,
    pBuildLog: *mut c_char,
) -> ze_result_t {
    run(|| {
        let log = get::<BuildLog, _>(hModuleBuildLog)?;
        // SAFETY: the specification's promise.
        unsafe { bytes(pSize, pBuildLog.cast(), &log.text) }
    })
}

unsafe extern "C" fn zeModuleGetNativeBinary(
    hModule: ze_module_handle_t,
    pSize: *mut usize,
    pModuleNativeBinary: *mut u8,
) -> ze_result_t {
    run(|| {
        let module = get::<Module, _>(hModule)?;
        // SAFETY: the specification's promise.
        unsafe { bytes(pSize, pModuleNativeBinary, &module.image) }
    })
}

unsafe extern "C" fn zeModuleGetKernelNames(
    hModule: ze_module_handle_t,
    pCount: *mut u32,
    pNames: *mut *const c_char,
) -> ze_result_t {
    run(|| {
        let names = &get::<Module, _>(hModule)?.names;
        // SAFETY: the array has room for `*pCount` pointers and `list` stays below that; the names live as the module.
        let write = |i: u32| unsafe { pNames.add(i as usize).write(names[i as usize].as_ptr()) };
        // SAFETY: as for `write`.
        unsafe { list(pCount, !pNames.is_null(), names.len() as u32, write) }
    })
}

unsafe extern "C" fn zeModuleGetProperties(
    hModule: ze_module_handle_t,
    pModuleProperties: *mut ze_module_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Module, _>(hModule)?;
        // SAFETY: the specification's promise. No module imports anything.
        unsafe { output(pModuleProperties) }?.flags = 0;
        Ok(())
    })
}

entry_points! {
    zeModuleCreate: zeModuleCreate_t,
    zeModuleDestroy: zeModuleDestroy_t,
    zeModuleBuildLogDestroy: zeModuleBuildLogDestroy_t,
    zeModuleBuildLogGetString: zeModuleBuildLogGetString_t,
    zeModuleGetNativeBinary: zeModuleGetNativeBinary_t,
    zeModuleGetKernelNames: zeModuleGetKernelNames_t,
    zeModuleGetProperties: zeModuleGetProperties_t,
}
