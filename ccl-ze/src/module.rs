//! Modules: the device kernels in families, each made for what a driver takes: SPIR-V, or native functions on the
//! software driver's native engine. A family is compiled when a communicator that uses it is made, once for each device
//! and process, so that no call pays for that.

use crate::api::{Api, ze};
use crate::kernel::{Kernel, KernelFacts};
use crate::kernels::{self, Family};
use crate::packed;
use ccl_core::device::DeviceFamily;
use ccl_core::{Error, Result};
use level_zero_sys::*;
use parking_lot::Mutex;
use qcell::QCellOwnerID;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// A family's kernels as they are delivered; made from kernels/*.cl, see .ci/kernels.
pub(crate) fn delivered(family: Family) -> &'static [u8] {
    use ccl_core::protocol::LineForm::{L8, L16, L64};
    macro_rules! spirv {
        ($name:literal) => {
            include_bytes!(concat!("../kernels/spirv/", $name, ".spv"))
        };
    }
    match family {
        Family::Probe => spirv!("probe"),
        Family::Ring(L8) => spirv!("ring_l8"),
        Family::Ring(L16) => spirv!("ring_l16"),
        Family::Ring(L64) => spirv!("ring_l64"),
        Family::Push(L8) => spirv!("push_l8"),
        Family::Push(L16) => spirv!("push_l16"),
        Family::Push(L64) => spirv!("push_l64"),
        Family::Bulk => spirv!("bulk"),
        Family::Mhc => spirv!("mhc"),
        Family::Fused(L8) => spirv!("fused_l8"),
        Family::Fused(L16) => spirv!("fused_l16"),
        Family::Fused(L64) => spirv!("fused_l64"),
        // Device kernels of it go by lines.
        Family::FusedBulk => &[],
        Family::Columns(L8) => spirv!("columns_l8"),
        Family::Columns(L16) => spirv!("columns_l16"),
        Family::Columns(L64) => spirv!("columns_l64"),
        Family::Channel(L8) => spirv!("channel_l8"),
        Family::Channel(L16) => spirv!("channel_l16"),
        Family::Channel(L64) => spirv!("channel_l64"),
        Family::ChannelBulk => spirv!("channel_bulk"),
    }
}

/// The version of that SPIR-V.
const SPIRV_VERSION: u32 = ze_make_version(1, 2);

/// Flags of the build, on every device and for every family the same; the tests of the compiler's output read them from
/// the same file.
///
/// Buffers may be larger than 4 GiB. The flag also decides how memory is addressed, and with that whether a load or
/// store that the source calls non-temporal passes the caches by: on Alchemist (dg2) it does only with it, and staging
/// memory depends on that.
pub(crate) const BUILD_FLAGS: &str = include_str!("../kernels/build.options").trim_ascii();

/// Most work-items of a group of a SPIR-V kernel: enough to keep the accesses of a wire in flight. Larger groups would
/// leave fewer of them resident.
const GROUP_ITEMS: u32 = 256;

/// Of the bulk kernels on NVIDIA's GPUs, where a group alone on its multiprocessor has no more accesses on their way than
/// it has work-items, and there are more multiprocessors than wires.
const CUDA_BULK_ITEMS: u32 = 1024;

fn group_items(family: Family, device: DeviceFamily) -> u32 {
    match (family, device) {
        (Family::Bulk, DeviceFamily::Cuda) => CUDA_BULK_ITEMS,
        _ => GROUP_ITEMS,
    }
}

/// Work-items that share the widest line.
const LINE_ITEMS: u32 = 4;

/// The families in use on one device.
pub(crate) struct Modules {
    /// By the families' numbers.
    loaded: [OnceLock<Module>; Family::ALL.len()],
    /// Held while one is compiled, so that none is twice.
    compiling: Mutex<()>,
    /// What the kernels' arguments are opened by.
    turn: QCellOwnerID,
    /// Whether kernels are of one argument.
    packed: bool,
}

/// A kernel of a loaded family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KernelId {
    /// Its family's.
    number: usize,
    index: usize,
}

impl Modules {
    /// None yet. `packed`: kernels get their arguments as one structure, which is how a SYCL runtime launches them quickly.
    pub(crate) fn new(turn: QCellOwnerID, packed: bool) -> Modules {
        Modules { loaded: [const { OnceLock::new() }; Family::ALL.len()], compiling: Mutex::new(()), turn, packed }
    }

    /// Compiles a family, unless it is there already.
    pub(crate) fn load(
        &self,
        family: Family,
        api: &Arc<Api>,
        context: ze_context_handle_t,
        device: ze_device_handle_t,
        device_family: DeviceFamily,
    ) -> Result<()> {
        let _one_at_a_time = self.compiling.lock();
        let place = &self.loaded[family.number()];
        if place.get().is_none() {
            let module = Module::create(
                family,
                api,
                context,
                device,
                device_family,
                self.turn,
                self.packed && family.can_be_packed(),
            )?;
            place.get_or_init(|| module);
        }
        Ok(())
    }

    /// A kernel by its name; none if its family isn't loaded or has none of that name.
    pub(crate) fn find(&self, family: Family, name: &str) -> Option<KernelId> {
        let kernels = &self.loaded[family.number()].get()?.kernels;
        kernels
            .iter()
            .position(|kernel| kernel.facts.name == name)
            .map(|index| KernelId { number: family.number(), index })
    }

    /// A kernel that [`Modules::find`] found.
    #[inline(always)]
    pub(crate) fn kernel(&self, id: KernelId) -> &Kernel {
        let module = self.loaded[id.number].get();
        &module.expect("found in a loaded family, which stays loaded").kernels[id.index]
    }

    /// What the driver says of the kernels that are loaded.
    pub(crate) fn facts(&self) -> impl Iterator<Item = &KernelFacts> {
        self.loaded.iter().filter_map(OnceLock::get).flat_map(|module| &module.kernels).map(|kernel| &kernel.facts)
    }

    /// Groups that are certain to run at the same time, whichever of the loaded collectives' they are.
    pub(crate) fn resident_groups(&self) -> u32 {
        let collectives = Family::ALL.into_iter().filter(|family| family.is_collective());
        let loaded = collectives.filter_map(|family| self.loaded[family.number()].get());
        let kernels = loaded.flat_map(|module| &module.kernels);
        kernels.map(|kernel| kernel.facts.resident_groups).min().unwrap_or(0)
    }
}

/// A family's kernels on one device.
struct Module {
    // Fields are dropped in this order.
    kernels: Vec<Kernel>,
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
    /// Compiles a family and makes all its kernels.
    fn create(
        family: Family,
        api: &Arc<Api>,
        context: ze_context_handle_t,
        device: ze_device_handle_t,
        device_family: DeviceFamily,
        turn: QCellOwnerID,
        packed: bool,
    ) -> Result<Module> {
        let items = group_items(family, device_family);
        let (handle, most_items) = match Takes::ask(api, device)? {
            Takes::Spirv => (spirv(family, api, context, device, packed)?, items.min(most_items(api, device)?)),
            // A native kernel plays a whole group.
            #[cfg(feature = "soft")]
            Takes::Native => (native(family, api, context, device, packed)?, 1),
        };
        let module = Handle { api: api.clone(), handle };
        let signatures = family.kernels();
        let kernels = signatures
            .iter()
            .map(|signature| Kernel::create(api, handle, signature, most_items, family.by_table(), packed, turn));
        let kernels = kernels.collect::<Result<Vec<_>>>()?;
        let module = Module { kernels, _handle: module };
        for Kernel { facts, .. } in &module.kernels {
            if most_items > 1 && !facts.group_size.is_multiple_of(LINE_ITEMS) {
                return Err(Error::NotImplemented(format!(
                    "a device on which groups of kernel {} have {} work-items: not a multiple of {LINE_ITEMS}",
                    facts.name, facts.group_size
                )));
            }
            if facts.spilled != 0 {
                tracing::warn!(
                    "kernel {} needs {} bytes of memory a work-item for registers that did not fit: it will be slow",
                    facts.name,
                    facts.spilled
                );
            }
        }
        Ok(module)
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

/// Whether modules on a device are made of native functions.
pub(crate) fn is_native(api: &Api, device: ze_device_handle_t) -> Result<bool> {
    Ok(!matches!(Takes::ask(api, device)?, Takes::Spirv))
}

/// Most work-items of any group on a device.
fn most_items(api: &Api, device: ze_device_handle_t) -> Result<u32> {
    let mut properties = ze_device_compute_properties_t::default();
    // SAFETY: a live device and a descriptor of the right type.
    unsafe { ze!(api, zeDeviceGetComputeProperties(device, &raw mut properties))? };
    Ok(properties.maxTotalGroupSize.min(properties.maxGroupSizeX))
}

fn spirv(
    family: Family,
    api: &Api,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    packed: bool,
) -> Result<ze_module_handle_t> {
    #[cfg(feature = "test-hooks")]
    let image = crate::hooks::replaced(&family.name()).unwrap_or(delivered(family));
    #[cfg(not(feature = "test-hooks"))]
    let image = delivered(family);
    if image.is_empty() {
        return Err(Error::NotImplemented(format!("{} on a device that takes SPIR-V", family.name())));
    }
    let image = if packed { Cow::Owned(packed::packed(image)?) } else { Cow::Borrowed(image) };
    #[cfg(feature = "test-hooks")]
    let flags = kernels::terminated(&crate::hooks::build_flags(&family.name()))?;
    #[cfg(not(feature = "test-hooks"))]
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

/// Registers a family's twins with the software driver and makes the module that names them.
#[cfg(feature = "soft")]
fn native(
    family: Family,
    api: &Api,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    packed: bool,
) -> Result<ze_module_handle_t> {
    use sha2::{Digest, Sha256};
    use ze_soft::ext;
    let kernels = family.kernels();
    let mut twins = crate::twins::all();
    twins.retain(|twin| kernels.iter().any(|kernel| kernel.name == twin.name));
    // The driver tells functions apart by the image that names them: those of one argument go in another order.
    if packed {
        twins.reverse();
    }
    let names: Vec<&str> = twins.iter().map(|t| t.name.as_str()).collect();
    let image = ext::module_image(&names);
    let sha256: [u8; 32] = Sha256::digest(&image).into();
    let register = crate::driver::extension(&api.table, api.driver, ext::REGISTER_KERNEL_NAME)
        .ok_or_else(|| Error::Internal("the software driver has no place for native kernels".into()))?;
    // SAFETY: the driver's function of this name has this type.
    let register: ext::zeSoftRegisterKernel_t = unsafe { std::mem::transmute(register.as_ptr()) };
    for twin in &twins {
        let name = kernels::terminated(&twin.name)?;
        let one = [size_of::<u64>() * twin.arg_sizes.len()];
        let sizes = if packed { &one } else { twin.arg_sizes };
        api.count();
        // SAFETY: hash, name and sizes outlive the call; the function is one of this library, which isn't unloaded.
        let code = unsafe {
            register(&raw const sha256, name.as_ptr(), Some(twin.function), sizes.len() as u32, sizes.as_ptr())
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
        for family in Family::ALL {
            gpu.load(family).expect("a family");
            gpu.load(family).expect("the same again");
            for kernel in family.kernels() {
                let found = gpu.modules.find(family, &kernel.name).expect("a kernel");
                let made = gpu.modules.kernel(found);
                assert_eq!(made.facts.name, kernel.name);
                // Without it a GPU's driver would leave the other ranks' memory out of what a launch makes resident.
                assert_eq!(made.indirect_access().expect("an answer") != 0, family.by_table(), "{}", kernel.name);
            }
            assert_eq!(gpu.modules.find(family, "another"), None);
        }
        let kernels = Family::ALL.iter().map(|family| family.kernels().len());
        assert_eq!(gpu.modules.facts().count(), kernels.sum::<usize>());
    }

    #[test]
    fn each_twin_is_of_one_family_and_takes_its_arguments() {
        let kernels: Vec<_> = Family::ALL.iter().flat_map(|family| family.kernels()).collect();
        let twins = crate::twins::all();
        assert_eq!(twins.len(), kernels.len());
        for twin in twins {
            let of_name: Vec<_> = kernels.iter().filter(|kernel| kernel.name == twin.name).collect();
            assert_eq!(of_name.iter().map(|kernel| kernel.arg_sizes).collect::<Vec<_>>(), [twin.arg_sizes]);
        }
    }
}
