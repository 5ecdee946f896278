//! Names and arguments of the device kernels, and how a module with them is made on a driver.

use crate::api::{Api, ze};
use ccl_core::{DataType, Error, Result};
use level_zero_sys::*;
use std::ffi::CString;

/// Sizes of the ring's arguments: send, recv, state, host, inbox, outbox, count, period, rank, n, tiles, rounds,
/// slot_tiles.
pub(crate) const RING_ARGS: [usize; 13] = [8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4];
/// Sizes of the probe's arguments: memory, words, seed.
pub(crate) const PROBE_ARGS: [usize; 3] = [8, 8, 4];
/// Name of the kernel that writes the pattern of the link test.
pub(crate) const PROBE: &str = "probe";
/// Datatypes that the ring has kernels for.
pub(crate) const RING_TYPES: [DataType; 3] = [DataType::Bfloat16, DataType::Float16, DataType::Float32];

/// Name of the ring's kernel for a datatype and line form.
pub(crate) fn ring_name(dtype: DataType, granule: usize) -> String {
    format!("ring_{}_l{granule}", dtype.name())
}

/// Word `i` of the pattern made from `seed`.
pub(crate) fn probe_word(seed: u32, i: u64) -> u32 {
    let mut x = (i as u32).wrapping_mul(0x9E37_79B1) ^ seed;
    x ^= x >> 15;
    x = x.wrapping_mul(0x85EB_CA77);
    x ^ (x >> 13)
}

/// Makes the module with all kernels on a device.
#[cfg(feature = "soft")]
pub(crate) fn create_module(
    api: &Api,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
) -> Result<ze_module_handle_t> {
    use sha2::{Digest, Sha256};
    use ze_soft::ext;
    let twins = crate::twins::all();
    let names: Vec<&str> = twins.iter().map(|t| t.name.as_str()).collect();
    let image = ext::module_image(&names);
    let sha256: [u8; 32] = Sha256::digest(&image).into();
    let register = crate::driver::extension(&api.table, api.driver, ext::REGISTER_KERNEL_NAME)
        .ok_or_else(|| Error::Internal("the software driver has no place for native kernels".into()))?;
    // SAFETY: the driver's function of this name has this type.
    let register: ext::zeSoftRegisterKernel_t = unsafe { std::mem::transmute(register.as_ptr()) };
    for twin in &twins {
        let name = terminated(&twin.name)?;
        api.count();
        // SAFETY: hash, name and sizes outlive the call; the function is one of this library, which isn't unloaded.
        let code = unsafe {
            register(
                &raw const sha256,
                name.as_ptr(),
                Some(twin.function),
                twin.arg_sizes.len() as u32,
                twin.arg_sizes.as_ptr(),
            )
        };
        api.check("zeSoftRegisterKernel", code)?;
    }
    let desc = ze_module_desc_t {
        format: ZE_MODULE_FORMAT_NATIVE,
        inputSize: image.len(),
        pInputModule: image.as_ptr(),
        ..Default::default()
    };
    let mut module = std::ptr::null_mut();
    // SAFETY: live context and device; the descriptor and the image outlive the call; no build log is asked for, since
    // the driver's last error says the same.
    unsafe { ze!(api, zeModuleCreate(context, device, &raw const desc, &raw mut module, std::ptr::null_mut()))? };
    Ok(module)
}

#[cfg(not(feature = "soft"))]
pub(crate) fn create_module(_: &Api, _: ze_context_handle_t, _: ze_device_handle_t) -> Result<ze_module_handle_t> {
    Err(Error::NotImplemented("this build has no device kernels yet".into()))
}

/// A name as C wants it.
pub(crate) fn terminated(name: &str) -> Result<CString> {
    CString::new(name).map_err(|e| Error::Internal(format!("kernel name: {e}")))
}
