//! The driver: how it is found, what it says of itself, and its extension functions.

use crate::abi::{bytes, chain, input, list, output, run, text};
use crate::entry::entry_points;
use crate::error::{self, fail};
use crate::handle::{Object, export, get};
use crate::{context, device, ext, fault, memory};
use level_zero_sys::*;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};

/// The one driver of this library.
pub(crate) struct Driver {
    _private: (),
}

impl Object for Driver {
    const MAGIC: u64 = 0x5a45_534f_4452_5631;
}

/// The version of the specification whose functions this driver has.
const API_VERSION: ze_api_version_t = ZE_API_VERSION_1_17;

/// What is supported beyond the core of the specification.
const EXTENSIONS: &[(&CStr, u32)] = &[
    (ext::NATIVE_KERNELS_NAME, ext::VERSION),
    (ext::FAULTS_NAME, ext::VERSION),
    (ZE_PCI_PROPERTIES_EXT_NAME, ze_make_version(1, 0)),
    (ZE_EXTERNAL_MEMORY_MAPPING_EXT_NAME, ze_make_version(1, 0)),
    (ZE_MEMORY_FREE_POLICIES_EXT_NAME, ze_make_version(1, 0)),
    (ZE_IPC_MEM_HANDLE_TYPE_EXT_NAME, ze_make_version(1, 0)),
    (ZE_EU_COUNT_EXT_NAME, ze_make_version(1, 0)),
    (ZE_KERNEL_MAX_GROUP_SIZE_PROPERTIES_EXT_NAME, ze_make_version(1, 0)),
    (ZE_EVENT_POOL_COUNTER_BASED_EXP_NAME, ze_make_version(1, 0)),
    (ZE_IMMEDIATE_COMMAND_LIST_APPEND_EXP_NAME, ze_make_version(1, 0)),
    (ZEX_COUNTER_BASED_EVENT_EXT_NAME, ze_make_version(1, 0)),
    (ZE_MUTABLE_COMMAND_LIST_EXP_NAME, ze_make_version(1, 1)),
    (ZE_GLOBAL_OFFSET_EXP_NAME, ze_make_version(1, 0)),
    (c"ZE_intel_get_driver_version_string", ze_make_version(1, 0)),
    (ZE_RECORD_REPLAY_GRAPH_EXT_NAME, ze_make_version(1, 0)),
    (ZE_RECORD_REPLAY_GRAPH_EXP_NAME, ze_make_version(1, 0)),
];

/// This driver's version in the numbering of Intel's driver, by which programs tell what a driver can do: one that has all
/// that is here, launches with arguments among it.
const VERSION_STRING: &CStr = c"1.17.39122";

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// Makes the driver usable; fails where the environment leaves it no device.
fn initialise() -> Result<(), ze_result_t> {
    static ONCE: Once = Once::new();
    ONCE.call_once(memory::raise_descriptor_limit);
    if device::all().is_empty() {
        return Err(fail(ZE_RESULT_ERROR_UNINITIALIZED, "ZE_AFFINITY_MASK leaves no device"));
    }
    INITIALISED.store(true, Ordering::Release);
    Ok(())
}

fn handle() -> ze_driver_handle_t {
    static HANDLE: OnceLock<usize> = OnceLock::new();
    let handle = HANDLE
        .get_or_init(|| export::<Driver, _ze_driver_handle_t>(Arc::new(Driver { _private: () })).expose_provenance());
    std::ptr::with_exposed_provenance_mut(*handle)
}

unsafe extern "C" fn zeInit(flags: ze_init_flags_t) -> ze_result_t {
    run(|| {
        if flags & !(ZE_INIT_FLAG_GPU_ONLY | ZE_INIT_FLAG_VPU_ONLY) != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        if flags == ZE_INIT_FLAG_VPU_ONLY {
            return Err(fail(ZE_RESULT_ERROR_UNINITIALIZED, "this driver has GPU devices only"));
        }
        initialise()
    })
}

unsafe extern "C" fn zeInitDrivers(
    pCount: *mut u32,
    phDrivers: *mut ze_driver_handle_t,
    desc: *mut ze_init_driver_type_desc_t,
) -> ze_result_t {
    run(|| {
        // SAFETY: the specification's promise about the descriptor.
        let desc = unsafe { input(desc.cast_const()) }?;
        if desc.flags == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        if desc.flags & ZE_INIT_DRIVER_TYPE_FLAG_GPU == 0 {
            return Err(fail(ZE_RESULT_ERROR_UNINITIALIZED, "this driver has GPU devices only"));
        }
        initialise()?;
        // SAFETY: the specification's promise about the other two, which `zeDriverGet` makes as well.
        match unsafe { zeDriverGet(pCount, phDrivers) } {
            ZE_RESULT_SUCCESS => Ok(()),
            code => Err(code),
        }
    })
}

unsafe extern "C" fn zeDriverGet(pCount: *mut u32, phDrivers: *mut ze_driver_handle_t) -> ze_result_t {
    run(|| {
        if !INITIALISED.load(Ordering::Acquire) {
            return Err(fail(ZE_RESULT_ERROR_UNINITIALIZED, "zeInit or zeInitDrivers comes first"));
        }
        // SAFETY: the array has room for `*pCount` handles.
        unsafe { list(pCount, !phDrivers.is_null(), 1, |i| phDrivers.add(i as usize).write(handle())) }
    })
}

unsafe extern "C" fn zeDriverGetApiVersion(hDriver: ze_driver_handle_t, version: *mut ze_api_version_t) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        // SAFETY: the specification's promise.
        *unsafe { output(version) }? = API_VERSION;
        Ok(())
    })
}

unsafe extern "C" fn zeDriverGetProperties(
    hDriver: ze_driver_handle_t,
    pDriverProperties: *mut ze_driver_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pDriverProperties) }?;
        properties.uuid.id = *b"ze-soft driver 1";
        properties.driverVersion = 1;
        // SAFETY: the specification's promise about chains.
        unsafe {
            chain(properties.pNext, |stype, link| {
                if stype == ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES {
                    (*link.cast::<ze_driver_memory_free_ext_properties_t>()).freePolicies =
                        ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE
                            | ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
                }
            });
        }
        Ok(())
    })
}

unsafe extern "C" fn zeDriverGetIpcProperties(
    hDriver: ze_driver_handle_t,
    pIpcProperties: *mut ze_driver_ipc_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        // SAFETY: the specification's promise.
        unsafe { output(pIpcProperties) }?.flags = ZE_IPC_PROPERTY_FLAG_MEMORY | ZE_IPC_PROPERTY_FLAG_EVENT_POOL;
        Ok(())
    })
}

unsafe extern "C" fn zeDriverGetExtensionProperties(
    hDriver: ze_driver_handle_t,
    pCount: *mut u32,
    pExtensionProperties: *mut ze_driver_extension_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        let write = |i: u32| {
            let (name, version) = EXTENSIONS[i as usize];
            let mut properties = ze_driver_extension_properties_t { version, ..Default::default() };
            text(&mut properties.name, &name.to_string_lossy());
            // SAFETY: the array has room for `*pCount` entries and `list` stays below that.
            unsafe { pExtensionProperties.add(i as usize).write(properties) };
        };
        // SAFETY: as for `write`.
        unsafe { list(pCount, !pExtensionProperties.is_null(), EXTENSIONS.len() as u32, write) }
    })
}

unsafe extern "C" fn zeDriverGetExtensionFunctionAddress(
    hDriver: ze_driver_handle_t,
    name: *const c_char,
    ppFunctionAddress: *mut *mut c_void,
) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        // SAFETY: the specification's promise.
        let address = unsafe { output(ppFunctionAddress) }?;
        if name.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        // SAFETY: a pointer that isn't null is a C string.
        let name = unsafe { CStr::from_ptr(name) };
        let function = match name {
            name if name == ext::REGISTER_KERNEL_NAME => {
                let function: ext::zeSoftRegisterKernel_t = ext::register_kernel;
                function as *const c_void
            }
            name if name == ext::FAULT_NAME => {
                let function: ext::zeSoftFault_t = fault::set_fault;
                function as *const c_void
            }
            name if name == c"zeIntelGetDriverVersionString" => {
                let function: unsafe extern "C" fn(_, _, _) -> _ = zeIntelGetDriverVersionString;
                function as *const c_void
            }
            name => crate::graph::extension(name).unwrap_or_else(|| crate::resolve(name)),
        };
        *address = function.cast_mut();
        if function.is_null() {
            return Err(fail(
                ZE_RESULT_ERROR_INVALID_ARGUMENT,
                format!("there is no function {}", name.to_string_lossy()),
            ));
        }
        Ok(())
    })
}

unsafe extern "C" fn zeDriverGetLastErrorDescription(
    hDriver: ze_driver_handle_t,
    ppString: *mut *const c_char,
) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        // SAFETY: the specification's promise.
        *unsafe { output(ppString) }? = error::last();
        Ok(())
    })
}

unsafe extern "C" fn zeDriverGetDefaultContext(hDriver: ze_driver_handle_t) -> ze_context_handle_t {
    match get::<Driver, _>(hDriver) {
        Ok(_) => context::default_handle(),
        Err(_) => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn zeIntelGetDriverVersionString(
    hDriver: ze_driver_handle_t,
    pDriverVersion: *mut c_char,
    pVersionSize: *mut usize,
) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        // SAFETY: as for the specification's functions that answer with bytes.
        unsafe { bytes(pVersionSize, pDriverVersion.cast(), VERSION_STRING.to_bytes_with_nul()) }
    })
}

unsafe extern "C" fn zexDriverImportExternalPointer(
    hDriver: ze_driver_handle_t,
    ptr: *mut c_void,
    size: usize,
) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        memory::import_pages(ptr, size)
    })
}

unsafe extern "C" fn zexDriverReleaseImportedPointer(hDriver: ze_driver_handle_t, ptr: *mut c_void) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        memory::release_import(ptr)
    })
}

unsafe extern "C" fn zexDriverGetHostPointerBaseAddress(
    hDriver: ze_driver_handle_t,
    ptr: *mut c_void,
    baseAddress: *mut *mut c_void,
) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        // SAFETY: the specification's promise about optional outputs.
        let base = unsafe { baseAddress.as_mut() };
        let imported = memory::find(ptr).filter(|allocation| allocation.kind == ZE_MEMORY_TYPE_HOST_IMPORTED);
        let imported = imported
            .ok_or_else(|| fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("{ptr:p} lies in no imported memory")))?;
        if let Some(base) = base {
            *base = std::ptr::with_exposed_provenance_mut(imported.base());
        }
        Ok(())
    })
}

entry_points! {
    zeInit: zeInit_t,
    zeInitDrivers: zeInitDrivers_t,
    zeDriverGet: zeDriverGet_t,
    zeDriverGetApiVersion: zeDriverGetApiVersion_t,
    zeDriverGetProperties: zeDriverGetProperties_t,
    zeDriverGetIpcProperties: zeDriverGetIpcProperties_t,
    zeDriverGetExtensionProperties: zeDriverGetExtensionProperties_t,
    zeDriverGetExtensionFunctionAddress: zeDriverGetExtensionFunctionAddress_t,
    zeDriverGetLastErrorDescription: zeDriverGetLastErrorDescription_t,
    zeDriverGetDefaultContext: zeDriverGetDefaultContext_t,
    zexDriverImportExternalPointer: zexDriverImportExternalPointer_t,
    zexDriverReleaseImportedPointer: zexDriverReleaseImportedPointer_t,
    zexDriverGetHostPointerBaseAddress: zexDriverGetHostPointerBaseAddress_t,
}
