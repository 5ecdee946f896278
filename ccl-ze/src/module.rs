//! The module with all device kernels, made for what a driver takes: SPIR-V, or native functions on the software
//! driver's native engine. It is compiled when a device is opened, so that no call pays for that.

use crate::api::{Api, ze};
use crate::kernel::{Kernel, KernelFacts};
use crate::kernels::{self, PROBE, RING_TYPES};
use ccl_core::protocol::LineForm;
use ccl_core::{DataType, Error, Result};
use level_zero_sys::*;
use std::sync::Arc;

/// The kernels as they are delivered; made from kernels/*.cl, see .ci/kernels.
pub(crate) static SPIRV: &[u8] = include_bytes!("../kernels/spirv/ccl.spv");
/// The version of that SPIR-V.
const SPIRV_VERSION: u32 = ze_make_version(1, 2);

/// Flags of the build, on every device the same; the tests of the compiler's output read them from the same file.
///
/// Buffers may be larger than 4 GiB. The flag also decides how memory is addressed, and with that whether a load or
/// store that the source calls non-temporal passes the caches by: on Alchemist (dg2) it does only with it, and staging
/// memory depends on that.
pub(crate) const BUILD_FLAGS: &str = include_str!("../kernels/build.options").trim_ascii();

/// Most work-items of a group of a SPIR-V kernel: enough to keep the accesses of a wire in flight. Larger groups would
/// leave fewer of them resident.
const GROUP_ITEMS: u32 = 256;

/// Work-items that share the widest line.
const LINE_ITEMS: u32 = 4;

/// The kernels on one device.
pub(crate) struct Module {
    // Fields are dropped in this order.
    rings: Vec<(DataType, LineForm, Kernel)>,
    pub(crate) probe: Kernel,
    _handle: Handle,
}

struct Handle {
    api: Arc<Api>,
    handle: ze_module_handle_t,
}

// SAFETY: a handle that Level Zero lets any thread use.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: its kernels are gone. A failure can't be helped here.
        let _ = unsafe { ze!(self.api, zeModuleDestroy(self.handle)) };
    }
}

impl Module {
    /// Compiles the module and makes all its kernels.
    pub(crate) fn create(api: &Arc<Api>, context: ze_context_handle_t, device: ze_device_handle_t) -> Result<Module> {
        let (handle, most_items) = match Takes::ask(api, device)? {
            Takes::Spirv => (spirv(api, context, device)?, GROUP_ITEMS.min(most_items(api, device)?)),
            // A native kernel plays a whole group.
            #[cfg(feature = "soft")]
            Takes::Native => (native(api, context, device)?, 1),
        };
        let module = Handle { api: api.clone(), handle };
        let kernel = |name: &str| Kernel::create(api, handle, name, most_items);
        let mut rings = Vec::new();
        for dtype in RING_TYPES {
            for form in LineForm::ALL {
                rings.push((dtype, form, kernel(&kernels::ring_name(dtype, form.granule()))?));
            }
        }
        let module = Module { rings, probe: kernel(PROBE)?, _handle: module };
        if let Some(facts) = module.facts().find(|facts| most_items > 1 && !facts.group_size.is_multiple_of(LINE_ITEMS))
        {
            return Err(Error::NotImplemented(format!(
                "a device on which groups of kernel {} have {} work-items: not a multiple of {LINE_ITEMS}",
                facts.name, facts.group_size
            )));
        }
        for facts in module.facts().filter(|facts| facts.spilled != 0) {
            tracing::warn!(
                "kernel {} needs {} bytes of memory a work-item for registers that did not fit: it will be slow",
                facts.name,
                facts.spilled
            );
        }
        Ok(module)
    }

    /// The ring's kernel for a datatype and line form: its number for [`Module::ring`].
    pub(crate) fn find_ring(&self, dtype: DataType, form: LineForm) -> Option<usize> {
        self.rings.iter().position(|ring| (ring.0, ring.1) == (dtype, form))
    }

    /// A kernel that [`Module::find_ring`] found.
    pub(crate) fn ring(&self, number: usize) -> &Kernel {
        &self.rings[number].2
    }

    /// What the driver says of the kernels.
    pub(crate) fn facts(&self) -> impl Iterator<Item = &KernelFacts> {
        self.rings.iter().map(|ring| &ring.2).chain([&self.probe]).map(|kernel| &kernel.facts)
    }

    /// Groups that are certain to run at the same time, whichever ring's they are.
    pub(crate) fn resident_groups(&self) -> u32 {
        self.rings.iter().map(|ring| ring.2.facts.resident_groups).min().unwrap_or(0)
    }
}

/// What modules can be made of on a device.
enum Takes {
    Spirv,
    #[cfg(feature = "soft")]
    Native,
}

impl Takes {
    fn ask(api: &Api, device: ze_device_handle_t) -> Result<Takes> {
        let mut properties = ze_device_module_properties_t::default();
        // SAFETY: a live device and a descriptor of the right type.
        unsafe { ze!(api, zeDeviceGetModuleProperties(device, &raw mut properties))? };
        let version = properties.spirvVersionSupported;
        if version >= SPIRV_VERSION {
            return Ok(Takes::Spirv);
        }
        #[cfg(feature = "soft")]
        if api.software && version == 0 {
            return Ok(Takes::Native);
        }
        Err(Error::NotImplemented(format!(
            "a device that takes SPIR-V up to version {}.{} (0.0 is none): the kernels are of version {}.{}",
            version >> 16,
            version & 0xFFFF,
            SPIRV_VERSION >> 16,
            SPIRV_VERSION & 0xFFFF
        )))
    }
}

/// Most work-items of any group on a device.
fn most_items(api: &Api, device: ze_device_handle_t) -> Result<u32> {
    let mut properties = ze_device_compute_properties_t::default();
    // SAFETY: a live device and a descriptor of the right type.
    unsafe { ze!(api, zeDeviceGetComputeProperties(device, &raw mut properties))? };
    Ok(properties.maxTotalGroupSize.min(properties.maxGroupSizeX))
}

fn spirv(api: &Api, context: ze_context_handle_t, device: ze_device_handle_t) -> Result<ze_module_handle_t> {
    #[cfg(feature = "test-hooks")]
    let image: &[u8] = crate::hooks::SPIRV.get().map_or(SPIRV, |image| image);
    #[cfg(not(feature = "test-hooks"))]
    let image = SPIRV;
    let flags = kernels::terminated(BUILD_FLAGS)?;
    let desc = ze_module_desc_t {
        format: ZE_MODULE_FORMAT_IL_SPIRV,
        inputSize: image.len(),
        pInputModule: image.as_ptr(),
        pBuildFlags: flags.as_ptr(),
        ..Default::default()
    };
    build(api, context, device, &desc)
}

/// Builds a module; an error carries what the compiler said.
fn build(
    api: &Api,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    desc: &ze_module_desc_t,
) -> Result<ze_module_handle_t> {
    let (mut module, mut log) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: live context and device; the descriptor and what it points to outlive the call, and so do the outputs.
    let built = unsafe { ze!(api, zeModuleCreate(context, device, &raw const *desc, &raw mut module, &raw mut log)) };
    let said = if log.is_null() { String::new() } else { take_log(api, log) };
    match built {
        Ok(()) => {
            if !said.is_empty() {
                tracing::debug!("building the device kernels: {said}");
            }
            Ok(module)
        }
        Err(Error::Device { call, detail }) if !said.is_empty() => {
            Err(Error::Device { call, detail: format!("{detail}; the build's log: {said}") })
        }
        Err(error) => Err(error),
    }
}

/// A build log's text. Destroys the log.
fn take_log(api: &Api, log: ze_module_build_log_handle_t) -> String {
    let mut size = 0;
    let mut text = Vec::new();
    // SAFETY: a live log; null asks for the size, then there is room for that much; it isn't used after its end.
    unsafe {
        if ze!(api, zeModuleBuildLogGetString(log, &raw mut size, std::ptr::null_mut())).is_ok() {
            text.resize(size, 0u8);
            if ze!(api, zeModuleBuildLogGetString(log, &raw mut size, text.as_mut_ptr().cast())).is_err() {
                text.clear();
            }
        }
        let _ = ze!(api, zeModuleBuildLogDestroy(log));
    }
    String::from_utf8_lossy(&text).trim_end_matches('\0').trim().to_owned()
}

/// Registers the twins with the software driver and makes the module that names them.
#[cfg(feature = "soft")]
fn native(api: &Api, context: ze_context_handle_t, device: ze_device_handle_t) -> Result<ze_module_handle_t> {
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
        let name = kernels::terminated(&twin.name)?;
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
    build(api, context, device, &desc)
}

#[cfg(all(test, feature = "soft"))]
mod tests {
    use super::*;
    use crate::gpu::Gpu;
    use ccl_core::config::{Config, DeviceChoice};

    #[test]
    fn a_failed_build_says_what_the_compiler_said() {
        let config = Config { device: DeviceChoice::Soft, ..Config::default() };
        let gpu = Gpu::open(&config, 0).expect("the software driver");
        let desc = ze_module_desc_t {
            format: ZE_MODULE_FORMAT_NATIVE,
            inputSize: 3,
            pInputModule: c"abc".as_ptr().cast(),
            ..Default::default()
        };
        let error = build(&gpu.api, gpu.context, gpu.device, &desc).expect_err("no module").to_string();
        assert!(error.contains("zeModuleCreate") && error.contains("; the build's log: the module with"), "{error}");
    }

    #[test]
    fn every_kernel_is_made_at_once() {
        let config = Config { device: DeviceChoice::Soft, ..Config::default() };
        let gpu = Gpu::open(&config, 0).expect("the software driver");
        assert_eq!(gpu.module.facts().count(), RING_TYPES.len() * LineForm::ALL.len() + 1);
        for dtype in RING_TYPES {
            for form in LineForm::ALL {
                let found = gpu.module.find_ring(dtype, form).expect("a kernel");
                assert_eq!(gpu.module.ring(found).facts.name, kernels::ring_name(dtype, form.granule()));
            }
        }
        assert_eq!(gpu.module.find_ring(DataType::Float64, LineForm::L8), None);
    }
}
