//! Modules: bytes that name kernels, accepted when a program has registered native functions for them, and SPIR-V where
//! the OpenCL engine runs.

use crate::abi::{bytes, input, list, output, run};
use crate::context::Context;
use crate::device::Device;
use crate::engine::{self, cuda};
use crate::entry::entry_points;
use crate::error::{fail, last_text};
use crate::ext::{self, MODULE_MAGIC};
use crate::handle::{Object, export, get, take};
use level_zero_sys::*;
use sha2::{Digest, Sha256};
use std::ffi::{CStr, CString, c_char};
use std::fmt::Write;
use std::sync::Arc;

/// A module.
pub(crate) struct Module {
    pub(crate) hash: [u8; 32],
    pub(crate) kind: Kind,
    image: Vec<u8>,
    names: Vec<CString>,
}

/// What a module is made of.
pub(crate) enum Kind {
    /// Names of functions that a program registers.
    Native,
    /// A compiled program.
    Spirv(Arc<engine::Program>),
    /// What a GPU executes in the place of SPIR-V.
    Cuda(Arc<cuda::Program>),
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

    /// A module and what its making had to say.
    ///
    /// # Safety
    /// The flags are null or a C string, the constants null or what the specification says.
    unsafe fn build(desc: &ze_module_desc_t, image: &[u8], device: u32) -> Result<(Self, String), ze_result_t> {
        let hash: [u8; 32] = Sha256::digest(image).into();
        let refuse = |code, why: &str| Err(fail(code, format!("the module with sha256 {} {why}", hex(&hash))));
        // The native binary of a SPIR-V module is the SPIR-V itself.
        let spirv = match desc.format {
            ZE_MODULE_FORMAT_IL_SPIRV => true,
            ZE_MODULE_FORMAT_NATIVE => engine::Program::is_spirv(image),
            _ => return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "is of a format that this driver doesn't know"),
        };
        if spirv && !engine::executes_spirv() {
            let why = "is SPIR-V, which only other engines execute (ZE_SOFT_ENGINE=opencl or cuda)";
            return refuse(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, why);
        }
        if spirv {
            // SAFETY: the caller's promise.
            if unsafe { desc.pConstants.as_ref() }.is_some_and(|constants| constants.numConstants > 0) {
                return refuse(
                    ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                    "sets specialisation constants, which can't be set",
                );
            }
            // SAFETY: the caller's promise.
            let flags = if desc.pBuildFlags.is_null() { c"" } else { unsafe { CStr::from_ptr(desc.pBuildFlags) } };
            let built = match cuda::runs() {
                true => cuda::Program::build(image, &hash, device).map(|(program, log)| {
                    let names = program.names().cloned().collect::<Vec<_>>();
                    (Kind::Cuda(Arc::new(program)), names, log)
                }),
                false => engine::Program::build(image, flags).map(|(program, log)| {
                    let names = program.names().cloned().collect::<Vec<_>>();
                    (Kind::Spirv(Arc::new(program)), names, log)
                }),
            };
            return match built {
                Ok((kind, names, log)) => Ok((Self { hash, kind, image: image.to_vec(), names }, log)),
                Err(refusal) => refuse(refusal.code, &format!("can't be built: {}", refusal.text)),
            };
        }
        if cuda::runs() {
            let why = "names native kernels, which no GPU executes (ZE_SOFT_ENGINE=cuda)";
            return refuse(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, why);
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
        Ok((Self { hash, kind: Kind::Native, image: image.to_vec(), names }, String::new()))
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
        let device = get::<Device, _>(hDevice)?.index;
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
        // SAFETY: the specification's promise.
        let built = unsafe { Module::build(desc, image, device) };
        if let Some(log) = log {
            let said = match &built {
                Ok((_, said)) => said.replace('\0', "?"),
                Err(_) => last_text(),
            };
            let mut text = said.into_bytes();
            text.push(0);
            *log = export(Arc::new(BuildLog { text }));
        }
        *module = export(Arc::new(built?.0));
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
