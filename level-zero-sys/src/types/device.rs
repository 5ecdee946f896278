//! Devices and their properties.

use core::ffi::{c_char, c_void};

use super::*;

pub type ze_bandwidth_unit_t = u32;
pub type ze_latency_unit_t = u32;
pub type ze_device_type_t = u32;
pub type ze_device_property_flags_t = u32;
pub type ze_device_module_flags_t = u32;
pub type ze_device_fp_flags_t = u32;
pub type ze_command_queue_group_property_flags_t = u32;
pub type ze_device_memory_property_flags_t = u32;
pub type ze_memory_access_cap_flags_t = u32;
pub type ze_device_cache_property_flags_t = u32;
pub type ze_device_p2p_property_flags_t = u32;
pub type ze_device_event_properties_flags_t = u32;
pub type ze_device_fp_atomic_ext_flags_t = u32;
pub type ze_device_memory_ext_type_t = u32;

constants! {
    pub const ZE_MAX_DEVICE_UUID_SIZE: usize = 16;
    pub const ZE_MAX_DEVICE_NAME: usize = 256;
    pub const ZE_SUBGROUPSIZE_COUNT: usize = 8;
    pub const ZE_MAX_DEVICE_LUID_SIZE_EXT: usize = 8;
    pub const ZE_BANDWIDTH_UNIT_UNKNOWN: ze_bandwidth_unit_t = 0;
    pub const ZE_BANDWIDTH_UNIT_BYTES_PER_NANOSEC: ze_bandwidth_unit_t = 1;
    pub const ZE_BANDWIDTH_UNIT_BYTES_PER_CLOCK: ze_bandwidth_unit_t = 2;
    pub const ZE_LATENCY_UNIT_UNKNOWN: ze_latency_unit_t = 0;
    pub const ZE_LATENCY_UNIT_NANOSEC: ze_latency_unit_t = 1;
    pub const ZE_LATENCY_UNIT_CLOCK: ze_latency_unit_t = 2;
    pub const ZE_LATENCY_UNIT_HOP: ze_latency_unit_t = 3;
    pub const ZE_DEVICE_TYPE_GPU: ze_device_type_t = 1;
    pub const ZE_DEVICE_TYPE_CPU: ze_device_type_t = 2;
    pub const ZE_DEVICE_TYPE_FPGA: ze_device_type_t = 3;
    pub const ZE_DEVICE_TYPE_MCA: ze_device_type_t = 4;
    pub const ZE_DEVICE_TYPE_VPU: ze_device_type_t = 5;
    pub const ZE_DEVICE_PROPERTY_FLAG_INTEGRATED: ze_device_property_flags_t = 0x1;
    pub const ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE: ze_device_property_flags_t = 0x2;
    pub const ZE_DEVICE_PROPERTY_FLAG_ECC: ze_device_property_flags_t = 0x4;
    pub const ZE_DEVICE_PROPERTY_FLAG_ONDEMANDPAGING: ze_device_property_flags_t = 0x8;
    pub const ZE_DEVICE_MODULE_FLAG_FP16: ze_device_module_flags_t = 0x1;
    pub const ZE_DEVICE_MODULE_FLAG_FP64: ze_device_module_flags_t = 0x2;
    pub const ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS: ze_device_module_flags_t = 0x4;
    pub const ZE_DEVICE_MODULE_FLAG_DP4A: ze_device_module_flags_t = 0x8;
    pub const ZE_DEVICE_FP_FLAG_DENORM: ze_device_fp_flags_t = 0x1;
    pub const ZE_DEVICE_FP_FLAG_INF_NAN: ze_device_fp_flags_t = 0x2;
    pub const ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST: ze_device_fp_flags_t = 0x4;
    pub const ZE_DEVICE_FP_FLAG_ROUND_TO_ZERO: ze_device_fp_flags_t = 0x8;
    pub const ZE_DEVICE_FP_FLAG_ROUND_TO_INF: ze_device_fp_flags_t = 0x10;
    pub const ZE_DEVICE_FP_FLAG_FMA: ze_device_fp_flags_t = 0x20;
    pub const ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT: ze_device_fp_flags_t = 0x40;
    pub const ZE_DEVICE_FP_FLAG_SOFT_FLOAT: ze_device_fp_flags_t = 0x80;
    pub const ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE: ze_command_queue_group_property_flags_t = 0x1;
    pub const ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY: ze_command_queue_group_property_flags_t = 0x2;
    pub const ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS: ze_command_queue_group_property_flags_t = 0x4;
    pub const ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_METRICS: ze_command_queue_group_property_flags_t = 0x8;
    pub const ZE_DEVICE_MEMORY_PROPERTY_FLAG_TBD: ze_device_memory_property_flags_t = 0x1;
    pub const ZE_MEMORY_ACCESS_CAP_FLAG_RW: ze_memory_access_cap_flags_t = 0x1;
    pub const ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC: ze_memory_access_cap_flags_t = 0x2;
    pub const ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT: ze_memory_access_cap_flags_t = 0x4;
    pub const ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC: ze_memory_access_cap_flags_t = 0x8;
    pub const ZE_DEVICE_CACHE_PROPERTY_FLAG_USER_CONTROL: ze_device_cache_property_flags_t = 0x1;
    pub const ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS: ze_device_p2p_property_flags_t = 0x1;
    pub const ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS: ze_device_p2p_property_flags_t = 0x2;
    pub const ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_EXTERNAL_AGGREGATE_STORAGE: ze_device_event_properties_flags_t =
        0x1;
    pub const ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_IPC: ze_device_event_properties_flags_t = 0x2;
    pub const ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_EXTERNAL_SYNC_ALLOCATION: ze_device_event_properties_flags_t =
        0x4;
    pub const ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_EXTERNAL_INTERRUPT_WAIT: ze_device_event_properties_flags_t =
        0x8;
    pub const ZE_DEVICE_FP_ATOMIC_EXT_FLAG_GLOBAL_LOAD_STORE: ze_device_fp_atomic_ext_flags_t = 0x1;
    pub const ZE_DEVICE_FP_ATOMIC_EXT_FLAG_GLOBAL_ADD: ze_device_fp_atomic_ext_flags_t = 0x2;
    pub const ZE_DEVICE_FP_ATOMIC_EXT_FLAG_GLOBAL_MIN_MAX: ze_device_fp_atomic_ext_flags_t = 0x4;
    pub const ZE_DEVICE_FP_ATOMIC_EXT_FLAG_LOCAL_LOAD_STORE: ze_device_fp_atomic_ext_flags_t = 0x10000;
    pub const ZE_DEVICE_FP_ATOMIC_EXT_FLAG_LOCAL_ADD: ze_device_fp_atomic_ext_flags_t = 0x20000;
    pub const ZE_DEVICE_FP_ATOMIC_EXT_FLAG_LOCAL_MIN_MAX: ze_device_fp_atomic_ext_flags_t = 0x40000;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_HBM: ze_device_memory_ext_type_t = 0;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_HBM2: ze_device_memory_ext_type_t = 1;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_DDR: ze_device_memory_ext_type_t = 2;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_DDR2: ze_device_memory_ext_type_t = 3;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_DDR3: ze_device_memory_ext_type_t = 4;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_DDR4: ze_device_memory_ext_type_t = 5;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_DDR5: ze_device_memory_ext_type_t = 6;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_LPDDR: ze_device_memory_ext_type_t = 7;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_LPDDR3: ze_device_memory_ext_type_t = 8;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_LPDDR4: ze_device_memory_ext_type_t = 9;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_LPDDR5: ze_device_memory_ext_type_t = 10;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_SRAM: ze_device_memory_ext_type_t = 11;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_L1: ze_device_memory_ext_type_t = 12;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_L3: ze_device_memory_ext_type_t = 13;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_GRF: ze_device_memory_ext_type_t = 14;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_SLM: ze_device_memory_ext_type_t = 15;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_GDDR4: ze_device_memory_ext_type_t = 16;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_GDDR5: ze_device_memory_ext_type_t = 17;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_GDDR5X: ze_device_memory_ext_type_t = 18;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_GDDR6: ze_device_memory_ext_type_t = 19;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_GDDR6X: ze_device_memory_ext_type_t = 20;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_GDDR7: ze_device_memory_ext_type_t = 21;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_HBM2E: ze_device_memory_ext_type_t = 22;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_HBM3: ze_device_memory_ext_type_t = 23;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_HBM3E: ze_device_memory_ext_type_t = 24;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_HBM4: ze_device_memory_ext_type_t = 25;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_LPDDR5X: ze_device_memory_ext_type_t = 26;
    pub const ZE_DEVICE_MEMORY_EXT_TYPE_LPDDR6: ze_device_memory_ext_type_t = 27;
}

structs! {
    pub struct ze_device_uuid_t {
        pub id: [u8; ZE_MAX_DEVICE_UUID_SIZE],
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES)]
    pub struct ze_device_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub r#type: ze_device_type_t,
        pub vendorId: u32,
        pub deviceId: u32,
        pub flags: ze_device_property_flags_t,
        pub subdeviceId: u32,
        pub coreClockRate: u32,
        pub maxMemAllocSize: u64,
        pub maxHardwareContexts: u32,
        pub maxCommandQueuePriority: u32,
        pub numThreadsPerEU: u32,
        pub physicalEUSimdWidth: u32,
        pub numEUsPerSubslice: u32,
        pub numSubslicesPerSlice: u32,
        pub numSlices: u32,
        pub timerResolution: u64,
        pub timestampValidBits: u32,
        pub kernelTimestampValidBits: u32,
        pub uuid: ze_device_uuid_t,
        pub name: [c_char; ZE_MAX_DEVICE_NAME],
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES)]
    pub struct ze_device_compute_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub maxTotalGroupSize: u32,
        pub maxGroupSizeX: u32,
        pub maxGroupSizeY: u32,
        pub maxGroupSizeZ: u32,
        pub maxGroupCountX: u32,
        pub maxGroupCountY: u32,
        pub maxGroupCountZ: u32,
        pub maxSharedLocalMemory: u32,
        pub numSubGroupSizes: u32,
        pub subGroupSizes: [u32; ZE_SUBGROUPSIZE_COUNT],
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES)]
    pub struct ze_device_module_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub spirvVersionSupported: u32,
        pub flags: ze_device_module_flags_t,
        pub fp16flags: ze_device_fp_flags_t,
        pub fp32flags: ze_device_fp_flags_t,
        pub fp64flags: ze_device_fp_flags_t,
        pub maxArgumentsSize: u32,
        pub printfBufferSize: u32,
        pub nativeKernelSupported: ze_native_kernel_uuid_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES)]
    pub struct ze_command_queue_group_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub flags: ze_command_queue_group_property_flags_t,
        pub maxMemoryFillPatternSize: usize,
        pub numQueues: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES)]
    pub struct ze_device_memory_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub flags: ze_device_memory_property_flags_t,
        pub maxClockRate: u32,
        pub maxBusWidth: u32,
        pub totalSize: u64,
        pub name: [c_char; ZE_MAX_DEVICE_NAME],
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES)]
    pub struct ze_device_memory_access_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub hostAllocCapabilities: ze_memory_access_cap_flags_t,
        pub deviceAllocCapabilities: ze_memory_access_cap_flags_t,
        pub sharedSingleDeviceAllocCapabilities: ze_memory_access_cap_flags_t,
        pub sharedCrossDeviceAllocCapabilities: ze_memory_access_cap_flags_t,
        pub sharedSystemAllocCapabilities: ze_memory_access_cap_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES)]
    pub struct ze_device_cache_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub flags: ze_device_cache_property_flags_t,
        pub cacheSize: usize,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES)]
    pub struct ze_device_external_memory_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub memoryAllocationImportTypes: ze_external_memory_type_flags_t,
        pub memoryAllocationExportTypes: ze_external_memory_type_flags_t,
        pub imageImportTypes: ze_external_memory_type_flags_t,
        pub imageExportTypes: ze_external_memory_type_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_P2P_PROPERTIES)]
    pub struct ze_device_p2p_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub flags: ze_device_p2p_property_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_EVENT_PROPERTIES)]
    pub struct ze_device_event_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub flags: ze_device_event_properties_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_FLOAT_ATOMIC_EXT_PROPERTIES)]
    pub struct ze_float_atomic_ext_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub fp16Flags: ze_device_fp_atomic_ext_flags_t,
        pub fp32Flags: ze_device_fp_atomic_ext_flags_t,
        pub fp64Flags: ze_device_fp_atomic_ext_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_EU_COUNT_EXT)]
    pub struct ze_eu_count_ext_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub numTotalEUs: u32,
    }

    pub struct ze_pci_address_ext_t {
        pub domain: u32,
        pub bus: u32,
        pub device: u32,
        pub function: u32,
    }

    pub struct ze_pci_speed_ext_t {
        pub genVersion: i32,
        pub width: i32,
        pub maxBandwidth: i64,
    }

    #[stype(ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES)]
    pub struct ze_pci_ext_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub address: ze_pci_address_ext_t,
        pub maxSpeed: ze_pci_speed_ext_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_P2P_BANDWIDTH_EXP_PROPERTIES)]
    pub struct ze_device_p2p_bandwidth_exp_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub logicalBandwidth: u32,
        pub physicalBandwidth: u32,
        pub bandwidthUnit: ze_bandwidth_unit_t,
        pub logicalLatency: u32,
        pub physicalLatency: u32,
        pub latencyUnit: ze_latency_unit_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_COPY_BANDWIDTH_EXP_PROPERTIES)]
    pub struct ze_copy_bandwidth_exp_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub copyBandwidth: u32,
        pub copyBandwidthUnit: ze_bandwidth_unit_t,
    }

    pub struct ze_device_luid_ext_t {
        pub id: [u8; ZE_MAX_DEVICE_LUID_SIZE_EXT],
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_LUID_EXT_PROPERTIES)]
    pub struct ze_device_luid_ext_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub luid: ze_device_luid_ext_t,
        pub nodeMask: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES)]
    pub struct ze_device_memory_ext_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub r#type: ze_device_memory_ext_type_t,
        pub physicalSize: u64,
        pub readBandwidth: u32,
        pub writeBandwidth: u32,
        pub bandwidthUnit: ze_bandwidth_unit_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_IP_VERSION_EXT)]
    pub struct ze_device_ip_version_ext_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub ipVersion: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_CACHELINE_SIZE_EXT)]
    pub struct ze_device_cache_line_size_ext_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub cacheLineSize: usize,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_USABLEMEM_SIZE_EXT_PROPERTIES)]
    pub struct ze_device_usablemem_size_ext_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub currUsableMemSize: u64,
    }

    #[stype(ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES)]
    pub struct ze_device_image_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub maxImageDims1D: u32,
        pub maxImageDims2D: u32,
        pub maxImageDims3D: u32,
        pub maxImageBufferSize: u64,
        pub maxImageArraySlices: u32,
        pub maxSamplers: u32,
        pub maxReadImageArgs: u32,
        pub maxWriteImageArgs: u32,
    }
}
