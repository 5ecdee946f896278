//! What a device says of itself.

use crate::abi::{chain, list, output, run, text};
use crate::config;
use crate::device::{Device, MAX_GROUP_SIZE, ORDINALS};
use crate::engine::{self, cuda};
use crate::entry::entry_points;
use crate::handle::get;
use crate::{graph, list};
use level_zero_sys::*;
use std::sync::OnceLock;

/// Neither is assigned to anybody: nobody may take this device for a piece of hardware.
const VENDOR: u32 = 0xfffe;
const DEVICE: u32 = 0x5af7;

/// The newer form of the device's properties, which tells its timer in ticks per second.
const STYPE_DEVICE_PROPERTIES_1_2: ze_structure_type_t = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;

/// The specification's bound on what one command's fill pattern may be.
pub(crate) const MAX_FILL_PATTERN: usize = 128;

const ALL_FLOAT: ze_device_fp_flags_t = ZE_DEVICE_FP_FLAG_DENORM
    | ZE_DEVICE_FP_FLAG_INF_NAN
    | ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST
    | ZE_DEVICE_FP_FLAG_ROUND_TO_ZERO
    | ZE_DEVICE_FP_FLAG_ROUND_TO_INF
    | ZE_DEVICE_FP_FLAG_FMA
    | ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT;

/// The machine's memory in bytes, or the GPU's: every device has all of it.
pub(crate) fn memory_size() -> u64 {
    if let (true, Some(size)) = (cuda::runs(), cuda::memory_size()) {
        return size;
    }
    static SIZE: OnceLock<u64> = OnceLock::new();
    // SAFETY: asking for numbers of the system has no preconditions.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    *SIZE.get_or_init(|| pages.max(1) as u64 * page.max(4096) as u64)
}

unsafe extern "C" fn zeDeviceGetProperties(
    hDevice: ze_device_handle_t,
    pDeviceProperties: *mut ze_device_properties_t,
) -> ze_result_t {
    run(|| {
        let device = get::<Device, _>(hDevice)?;
        let units = engine::compute_units();
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pDeviceProperties) }?;
        *properties = ze_device_properties_t {
            stype: properties.stype,
            pNext: properties.pNext,
            r#type: ZE_DEVICE_TYPE_GPU,
            vendorId: VENDOR,
            deviceId: if cuda::runs() { crate::ext::GPU_DEVICE_ID } else { DEVICE },
            coreClockRate: 1000,
            maxMemAllocSize: memory_size(),
            maxHardwareContexts: 1024,
            numThreadsPerEU: 1,
            physicalEUSimdWidth: 16,
            numEUsPerSubslice: 1,
            numSubslicesPerSlice: units,
            numSlices: 1,
            // A tick is a nanosecond, in whichever of the two ways it is asked for.
            timerResolution: if properties.stype == STYPE_DEVICE_PROPERTIES_1_2 { 1_000_000_000 } else { 1 },
            timestampValidBits: 64,
            kernelTimestampValidBits: 64,
            ..Default::default()
        };
        properties.uuid.id = *b"ze-soft device \0";
        properties.uuid.id[15] = device.index as u8;
        let place = if cuda::runs() { cuda::name(device.index) } else { "the CPU".to_owned() };
        text(&mut properties.name, &format!("ze-soft {} (software driver, runs on {place})", device.index));
        // SAFETY: the specification's promise about chains; each type stands for its structure.
        unsafe {
            chain(properties.pNext, |stype, link| match stype {
                ZE_STRUCTURE_TYPE_EU_COUNT_EXT => (*link.cast::<ze_eu_count_ext_t>()).numTotalEUs = units,
                ZE_STRUCTURE_TYPE_DEVICE_USABLEMEM_SIZE_EXT_PROPERTIES => {
                    (*link.cast::<ze_device_usablemem_size_ext_properties_t>()).currUsableMemSize = memory_size();
                }
                ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXT_PROPERTIES => {
                    (*link.cast::<ze_record_replay_graph_ext_properties_t>()).graphFlags = graph::FLAGS;
                }
                ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_PROPERTIES => {
                    let mutable = &mut *link.cast::<ze_mutable_command_list_exp_properties_t>();
                    (mutable.mutableCommandListFlags, mutable.mutableCommandFlags) = (0, list::MUTABLE_FLAGS);
                }
                ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXP_PROPERTIES => {
                    (*link.cast::<ze_record_replay_graph_exp_properties_t>()).graphFlags = graph::FLAGS;
                }
                _ => {}
            });
        }
        Ok(())
    })
}

unsafe extern "C" fn zeDeviceGetComputeProperties(
    hDevice: ze_device_handle_t,
    pComputeProperties: *mut ze_device_compute_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pComputeProperties) }?;
        *properties = ze_device_compute_properties_t {
            stype: properties.stype,
            pNext: properties.pNext,
            maxTotalGroupSize: MAX_GROUP_SIZE,
            maxGroupSizeX: MAX_GROUP_SIZE,
            maxGroupSizeY: MAX_GROUP_SIZE,
            maxGroupSizeZ: MAX_GROUP_SIZE,
            maxGroupCountX: u32::MAX,
            maxGroupCountY: u32::MAX,
            maxGroupCountZ: u32::MAX,
            maxSharedLocalMemory: engine::local_memory(128 << 10),
            numSubGroupSizes: 2,
            subGroupSizes: [16, 32, 0, 0, 0, 0, 0, 0],
        };
        Ok(())
    })
}

unsafe extern "C" fn zeDeviceGetModuleProperties(
    hDevice: ze_device_handle_t,
    pModuleProperties: *mut ze_device_module_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pModuleProperties) }?;
        let (major, minor) = engine::SPIRV_VERSION;
        *properties = ze_device_module_properties_t {
            stype: properties.stype,
            pNext: properties.pNext,
            spirvVersionSupported: if engine::executes_spirv() { ze_make_version(major, minor) } else { 0 },
            flags: ZE_DEVICE_MODULE_FLAG_FP16 | ZE_DEVICE_MODULE_FLAG_FP64 | ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS,
            fp16flags: ALL_FLOAT,
            fp32flags: ALL_FLOAT,
            fp64flags: ALL_FLOAT,
            maxArgumentsSize: crate::ext::MAX_ARGUMENTS_SIZE as u32,
            ..Default::default()
        };
        Ok(())
    })
}

unsafe extern "C" fn zeDeviceGetCommandQueueGroupProperties(
    hDevice: ze_device_handle_t,
    pCount: *mut u32,
    pCommandQueueGroupProperties: *mut ze_command_queue_group_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        let write = |ordinal: u32| {
            let compute =
                ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS;
            // SAFETY: the array has room for `*pCount` entries and `list` stays below that.
            let group = unsafe { &mut *pCommandQueueGroupProperties.add(ordinal as usize) };
            group.flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY | if ordinal < 2 { compute } else { 0 };
            group.maxMemoryFillPatternSize = MAX_FILL_PATTERN;
            group.numQueues = 1;
        };
        // SAFETY: as for `write`.
        unsafe { list(pCount, !pCommandQueueGroupProperties.is_null(), ORDINALS, write) }
    })
}

unsafe extern "C" fn zeDeviceGetMemoryProperties(
    hDevice: ze_device_handle_t,
    pCount: *mut u32,
    pMemProperties: *mut ze_device_memory_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        let write = |i: u32| {
            // SAFETY: the array has room for `*pCount` entries and `list` stays below that.
            let memory = unsafe { &mut *pMemProperties.add(i as usize) };
            (memory.flags, memory.maxClockRate, memory.maxBusWidth) = (0, 0, 64);
            memory.totalSize = memory_size();
            text(&mut memory.name, "host memory");
        };
        // SAFETY: as for `write`.
        unsafe { list(pCount, !pMemProperties.is_null(), 1, write) }
    })
}

unsafe extern "C" fn zeDeviceGetMemoryAccessProperties(
    hDevice: ze_device_handle_t,
    pMemAccessProperties: *mut ze_device_memory_access_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        let all = ZE_MEMORY_ACCESS_CAP_FLAG_RW
            | ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC
            | ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT
            | ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC;
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pMemAccessProperties) }?;
        properties.hostAllocCapabilities = all;
        properties.deviceAllocCapabilities = all;
        properties.sharedSingleDeviceAllocCapabilities = all;
        properties.sharedCrossDeviceAllocCapabilities = all;
        // Memory from elsewhere would work here, but not on most hardware: programs are not to lean on it.
        properties.sharedSystemAllocCapabilities = 0;
        Ok(())
    })
}

unsafe extern "C" fn zeDeviceGetCacheProperties(
    hDevice: ze_device_handle_t,
    pCount: *mut u32,
    pCacheProperties: *mut ze_device_cache_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        let write = |i: u32| {
            // SAFETY: the array has room for `*pCount` entries and `list` stays below that; `sysconf` only asks.
            let (cache, size) =
                unsafe { (&mut *pCacheProperties.add(i as usize), libc::sysconf(libc::_SC_LEVEL3_CACHE_SIZE)) };
            cache.flags = 0;
            cache.cacheSize = size.max(0) as usize;
        };
        // SAFETY: as for `write`.
        unsafe { list(pCount, !pCacheProperties.is_null(), 1, write) }
    })
}

unsafe extern "C" fn zeDeviceGetImageProperties(
    hDevice: ze_device_handle_t,
    pImageProperties: *mut ze_device_image_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pImageProperties) }?;
        // No images at all.
        *properties =
            ze_device_image_properties_t { stype: properties.stype, pNext: properties.pNext, ..Default::default() };
        Ok(())
    })
}

unsafe extern "C" fn zeDeviceGetExternalMemoryProperties(
    hDevice: ze_device_handle_t,
    pExternalMemoryProperties: *mut ze_device_external_memory_properties_t,
) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pExternalMemoryProperties) }?;
        *properties = ze_device_external_memory_properties_t {
            stype: properties.stype,
            pNext: properties.pNext,
            memoryAllocationExportTypes: ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD,
            ..Default::default()
        };
        Ok(())
    })
}

unsafe extern "C" fn zeDeviceGetP2PProperties(
    hDevice: ze_device_handle_t,
    hPeerDevice: ze_device_handle_t,
    pP2PProperties: *mut ze_device_p2p_properties_t,
) -> ze_result_t {
    run(|| {
        let (device, peer) = (get::<Device, _>(hDevice)?, get::<Device, _>(hPeerDevice)?);
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pP2PProperties) }?;
        properties.flags = if config::get().reaches(device.index, peer.index) {
            ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS | ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS
        } else {
            0
        };
        Ok(())
    })
}

unsafe extern "C" fn zeDevicePciGetPropertiesExt(
    hDevice: ze_device_handle_t,
    pPciProperties: *mut ze_pci_ext_properties_t,
) -> ze_result_t {
    run(|| {
        let device = get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pPciProperties) }?;
        // A domain that no machine's firmware hands out.
        properties.address = ze_pci_address_ext_t { domain: 0x5af7, bus: device.index, device: 0, function: 0 };
        properties.maxSpeed = ze_pci_speed_ext_t { genVersion: -1, width: -1, maxBandwidth: -1 };
        Ok(())
    })
}

entry_points! {
    zeDeviceGetProperties: zeDeviceGetProperties_t,
    zeDeviceGetComputeProperties: zeDeviceGetComputeProperties_t,
    zeDeviceGetModuleProperties: zeDeviceGetModuleProperties_t,
    zeDeviceGetCommandQueueGroupProperties: zeDeviceGetCommandQueueGroupProperties_t,
    zeDeviceGetMemoryProperties: zeDeviceGetMemoryProperties_t,
    zeDeviceGetMemoryAccessProperties: zeDeviceGetMemoryAccessProperties_t,
    zeDeviceGetCacheProperties: zeDeviceGetCacheProperties_t,
    zeDeviceGetImageProperties: zeDeviceGetImageProperties_t,
    zeDeviceGetExternalMemoryProperties: zeDeviceGetExternalMemoryProperties_t,
    zeDeviceGetP2PProperties: zeDeviceGetP2PProperties_t,
    zeDevicePciGetPropertiesExt: zeDevicePciGetPropertiesExt_t,
}
