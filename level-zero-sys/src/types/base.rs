//! Handles, results, structure types and the names of extensions.

use core::ffi::{CStr, c_char, c_void};

pub type ze_bool_t = u8;
pub type ze_result_t = u32;
pub type ze_structure_type_t = u32;
pub type ze_api_version_t = u32;

/// A version number from its parts.
pub const fn ze_make_version(major: u32, minor: u32) -> u32 {
    (major << 16) | (minor & 0xffff)
}

/// The major part of a version number.
pub const fn ze_major_version(version: u32) -> u32 {
    version >> 16
}

/// The minor part of a version number.
pub const fn ze_minor_version(version: u32) -> u32 {
    version & 0xffff
}

constants! {
    pub const ZE_MAX_IPC_HANDLE_SIZE: usize = 64;
    pub const ZE_RESULT_SUCCESS: ze_result_t = 0;
    pub const ZE_RESULT_NOT_READY: ze_result_t = 1;
    pub const ZE_RESULT_ERROR_DEVICE_LOST: ze_result_t = 0x7000_0001;
    pub const ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY: ze_result_t = 0x7000_0002;
    pub const ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY: ze_result_t = 0x7000_0003;
    pub const ZE_RESULT_ERROR_MODULE_BUILD_FAILURE: ze_result_t = 0x7000_0004;
    pub const ZE_RESULT_ERROR_MODULE_LINK_FAILURE: ze_result_t = 0x7000_0005;
    pub const ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET: ze_result_t = 0x7000_0006;
    pub const ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE: ze_result_t = 0x7000_0007;
    pub const ZE_RESULT_EXP_ERROR_DEVICE_IS_NOT_VERTEX: ze_result_t = 0x7ff0_0001;
    pub const ZE_RESULT_EXP_ERROR_VERTEX_IS_NOT_DEVICE: ze_result_t = 0x7ff0_0002;
    pub const ZE_RESULT_EXP_ERROR_REMOTE_DEVICE: ze_result_t = 0x7ff0_0003;
    pub const ZE_RESULT_EXP_ERROR_OPERANDS_INCOMPATIBLE: ze_result_t = 0x7ff0_0004;
    pub const ZE_RESULT_EXP_RTAS_BUILD_RETRY: ze_result_t = 0x7ff0_0005;
    pub const ZE_RESULT_EXP_RTAS_BUILD_DEFERRED: ze_result_t = 0x7ff0_0006;
    pub const ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS: ze_result_t = 0x7001_0000;
    pub const ZE_RESULT_ERROR_NOT_AVAILABLE: ze_result_t = 0x7001_0001;
    pub const ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE: ze_result_t = 0x7002_0000;
    pub const ZE_RESULT_WARNING_DROPPED_DATA: ze_result_t = 0x7002_0001;
    pub const ZE_RESULT_ERROR_UNINITIALIZED: ze_result_t = 0x7800_0001;
    pub const ZE_RESULT_ERROR_UNSUPPORTED_VERSION: ze_result_t = 0x7800_0002;
    pub const ZE_RESULT_ERROR_UNSUPPORTED_FEATURE: ze_result_t = 0x7800_0003;
    pub const ZE_RESULT_ERROR_INVALID_ARGUMENT: ze_result_t = 0x7800_0004;
    pub const ZE_RESULT_ERROR_INVALID_NULL_HANDLE: ze_result_t = 0x7800_0005;
    pub const ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE: ze_result_t = 0x7800_0006;
    pub const ZE_RESULT_ERROR_INVALID_NULL_POINTER: ze_result_t = 0x7800_0007;
    pub const ZE_RESULT_ERROR_INVALID_SIZE: ze_result_t = 0x7800_0008;
    pub const ZE_RESULT_ERROR_UNSUPPORTED_SIZE: ze_result_t = 0x7800_0009;
    pub const ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT: ze_result_t = 0x7800_000a;
    pub const ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT: ze_result_t = 0x7800_000b;
    pub const ZE_RESULT_ERROR_INVALID_ENUMERATION: ze_result_t = 0x7800_000c;
    pub const ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION: ze_result_t = 0x7800_000d;
    pub const ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT: ze_result_t = 0x7800_000e;
    pub const ZE_RESULT_ERROR_INVALID_NATIVE_BINARY: ze_result_t = 0x7800_000f;
    pub const ZE_RESULT_ERROR_INVALID_GLOBAL_NAME: ze_result_t = 0x7800_0010;
    pub const ZE_RESULT_ERROR_INVALID_KERNEL_NAME: ze_result_t = 0x7800_0011;
    pub const ZE_RESULT_ERROR_INVALID_FUNCTION_NAME: ze_result_t = 0x7800_0012;
    pub const ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION: ze_result_t = 0x7800_0013;
    pub const ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION: ze_result_t = 0x7800_0014;
    pub const ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX: ze_result_t = 0x7800_0015;
    pub const ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE: ze_result_t = 0x7800_0016;
    pub const ZE_RESULT_ERROR_INVALID_KERNEL_ATTRIBUTE_VALUE: ze_result_t = 0x7800_0017;
    pub const ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED: ze_result_t = 0x7800_0018;
    pub const ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE: ze_result_t = 0x7800_0019;
    pub const ZE_RESULT_ERROR_OVERLAPPING_REGIONS: ze_result_t = 0x7800_001a;
    pub const ZE_RESULT_WARNING_ACTION_REQUIRED: ze_result_t = 0x7800_001b;
    pub const ZE_RESULT_ERROR_INVALID_KERNEL_HANDLE: ze_result_t = 0x7800_001c;
    pub const ZE_RESULT_EXT_RTAS_BUILD_RETRY: ze_result_t = 0x7800_001d;
    pub const ZE_RESULT_EXT_RTAS_BUILD_DEFERRED: ze_result_t = 0x7800_001e;
    pub const ZE_RESULT_EXT_ERROR_OPERANDS_INCOMPATIBLE: ze_result_t = 0x7800_001f;
    pub const ZE_RESULT_ERROR_SURVIVABILITY_MODE_DETECTED: ze_result_t = 0x7800_0020;
    pub const ZE_RESULT_ERROR_ADDRESS_NOT_FOUND: ze_result_t = 0x7800_0021;
    pub const ZE_RESULT_QUERY_TRUE: ze_result_t = 0x7800_0022;
    pub const ZE_RESULT_QUERY_FALSE: ze_result_t = 0x7800_0023;
    pub const ZE_RESULT_ERROR_INVALID_GRAPH: ze_result_t = 0x7800_0024;
    pub const ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED: ze_result_t = 0x7800_0025;
    pub const ZE_RESULT_ERROR_GRAPH_CAPTURE_INVALIDATED: ze_result_t = 0x7800_0026;
    pub const ZE_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT: ze_result_t = 0x7800_0027;
    pub const ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING: ze_result_t = 0x7800_0028;
    pub const ZE_RESULT_ERROR_GRAPH_UNJOINED_FORKS: ze_result_t = 0x7800_0029;
    pub const ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT: ze_result_t = 0x7800_002a;
    pub const ZE_RESULT_ERROR_UNKNOWN: ze_result_t = 0x7fff_fffe;
    pub const ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES: ze_structure_type_t = 0x1;
    pub const ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES: ze_structure_type_t = 0x2;
    pub const ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES: ze_structure_type_t = 0x3;
    pub const ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES: ze_structure_type_t = 0x4;
    pub const ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES: ze_structure_type_t = 0x5;
    pub const ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES: ze_structure_type_t = 0x6;
    pub const ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES: ze_structure_type_t = 0x7;
    pub const ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES: ze_structure_type_t = 0x8;
    pub const ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES: ze_structure_type_t = 0x9;
    pub const ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES: ze_structure_type_t = 0xa;
    pub const ZE_STRUCTURE_TYPE_DEVICE_P2P_PROPERTIES: ze_structure_type_t = 0xb;
    pub const ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES: ze_structure_type_t = 0xc;
    pub const ZE_STRUCTURE_TYPE_CONTEXT_DESC: ze_structure_type_t = 0xd;
    pub const ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC: ze_structure_type_t = 0xe;
    pub const ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC: ze_structure_type_t = 0xf;
    pub const ZE_STRUCTURE_TYPE_EVENT_POOL_DESC: ze_structure_type_t = 0x10;
    pub const ZE_STRUCTURE_TYPE_EVENT_DESC: ze_structure_type_t = 0x11;
    pub const ZE_STRUCTURE_TYPE_FENCE_DESC: ze_structure_type_t = 0x12;
    pub const ZE_STRUCTURE_TYPE_IMAGE_DESC: ze_structure_type_t = 0x13;
    pub const ZE_STRUCTURE_TYPE_IMAGE_PROPERTIES: ze_structure_type_t = 0x14;
    pub const ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC: ze_structure_type_t = 0x15;
    pub const ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC: ze_structure_type_t = 0x16;
    pub const ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES: ze_structure_type_t = 0x17;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC: ze_structure_type_t = 0x18;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD: ze_structure_type_t = 0x19;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD: ze_structure_type_t = 0x1a;
    pub const ZE_STRUCTURE_TYPE_MODULE_DESC: ze_structure_type_t = 0x1b;
    pub const ZE_STRUCTURE_TYPE_MODULE_PROPERTIES: ze_structure_type_t = 0x1c;
    pub const ZE_STRUCTURE_TYPE_KERNEL_DESC: ze_structure_type_t = 0x1d;
    pub const ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES: ze_structure_type_t = 0x1e;
    pub const ZE_STRUCTURE_TYPE_SAMPLER_DESC: ze_structure_type_t = 0x1f;
    pub const ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC: ze_structure_type_t = 0x20;
    pub const ZE_STRUCTURE_TYPE_KERNEL_PREFERRED_GROUP_SIZE_PROPERTIES: ze_structure_type_t = 0x21;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32: ze_structure_type_t = 0x22;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_WIN32: ze_structure_type_t = 0x23;
    pub const ZE_STRUCTURE_TYPE_DEVICE_RAYTRACING_EXT_PROPERTIES: ze_structure_type_t = 0x0001_0001;
    pub const ZE_STRUCTURE_TYPE_RAYTRACING_MEM_ALLOC_EXT_DESC: ze_structure_type_t = 0x0001_0002;
    pub const ZE_STRUCTURE_TYPE_FLOAT_ATOMIC_EXT_PROPERTIES: ze_structure_type_t = 0x0001_0003;
    pub const ZE_STRUCTURE_TYPE_CACHE_RESERVATION_EXT_DESC: ze_structure_type_t = 0x0001_0004;
    pub const ZE_STRUCTURE_TYPE_EU_COUNT_EXT: ze_structure_type_t = 0x0001_0005;
    pub const ZE_STRUCTURE_TYPE_SRGB_EXT_DESC: ze_structure_type_t = 0x0001_0006;
    pub const ZE_STRUCTURE_TYPE_LINKAGE_INSPECTION_EXT_DESC: ze_structure_type_t = 0x0001_0007;
    pub const ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES: ze_structure_type_t = 0x0001_0008;
    pub const ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES: ze_structure_type_t = 0x0001_0009;
    pub const ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC: ze_structure_type_t = 0x0001_000a;
    pub const ZE_STRUCTURE_TYPE_MEMORY_COMPRESSION_HINTS_EXT_DESC: ze_structure_type_t = 0x0001_000b;
    pub const ZE_STRUCTURE_TYPE_IMAGE_ALLOCATION_EXT_PROPERTIES: ze_structure_type_t = 0x0001_000c;
    pub const ZE_STRUCTURE_TYPE_DEVICE_LUID_EXT_PROPERTIES: ze_structure_type_t = 0x0001_000d;
    pub const ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES: ze_structure_type_t = 0x0001_000e;
    pub const ZE_STRUCTURE_TYPE_DEVICE_IP_VERSION_EXT: ze_structure_type_t = 0x0001_000f;
    pub const ZE_STRUCTURE_TYPE_IMAGE_VIEW_PLANAR_EXT_DESC: ze_structure_type_t = 0x0001_0010;
    pub const ZE_STRUCTURE_TYPE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_PROPERTIES: ze_structure_type_t = 0x0001_0011;
    pub const ZE_STRUCTURE_TYPE_EVENT_QUERY_KERNEL_TIMESTAMPS_RESULTS_EXT_PROPERTIES: ze_structure_type_t = 0x0001_0012;
    pub const ZE_STRUCTURE_TYPE_KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES: ze_structure_type_t = 0x0001_0013;
    pub const ZE_STRUCTURE_TYPE_IMAGE_FORMAT_SUPPORT_EXT_PROPERTIES: ze_structure_type_t = 0x0001_0014;
    pub const ZE_STRUCTURE_TYPE_DEVICE_READONLY_MEMORY_EXT_PROPERTIES: ze_structure_type_t = 0x0001_0015;
    pub const ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXT_DESC: ze_structure_type_t = 0x0001_0016;
    pub const ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC: ze_structure_type_t = 0x0002_0001;
    pub const ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC: ze_structure_type_t = 0x0002_0002;
    pub const ZE_STRUCTURE_TYPE_SCHEDULING_HINT_EXP_PROPERTIES: ze_structure_type_t = 0x0002_0003;
    pub const ZE_STRUCTURE_TYPE_SCHEDULING_HINT_EXP_DESC: ze_structure_type_t = 0x0002_0004;
    pub const ZE_STRUCTURE_TYPE_IMAGE_VIEW_PLANAR_EXP_DESC: ze_structure_type_t = 0x0002_0005;
    pub const ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2: ze_structure_type_t = 0x0002_0006;
    pub const ZE_STRUCTURE_TYPE_IMAGE_MEMORY_EXP_PROPERTIES: ze_structure_type_t = 0x0002_0007;
    pub const ZE_STRUCTURE_TYPE_POWER_SAVING_HINT_EXP_DESC: ze_structure_type_t = 0x0002_0008;
    pub const ZE_STRUCTURE_TYPE_COPY_BANDWIDTH_EXP_PROPERTIES: ze_structure_type_t = 0x0002_0009;
    pub const ZE_STRUCTURE_TYPE_DEVICE_P2P_BANDWIDTH_EXP_PROPERTIES: ze_structure_type_t = 0x0002_000a;
    pub const ZE_STRUCTURE_TYPE_FABRIC_VERTEX_EXP_PROPERTIES: ze_structure_type_t = 0x0002_000b;
    pub const ZE_STRUCTURE_TYPE_FABRIC_EDGE_EXP_PROPERTIES: ze_structure_type_t = 0x0002_000c;
    pub const ZE_STRUCTURE_TYPE_MEMORY_SUB_ALLOCATIONS_EXP_PROPERTIES: ze_structure_type_t = 0x0002_000d;
    pub const ZE_STRUCTURE_TYPE_RTAS_BUILDER_EXP_DESC: ze_structure_type_t = 0x0002_000e;
    pub const ZE_STRUCTURE_TYPE_RTAS_BUILDER_BUILD_OP_EXP_DESC: ze_structure_type_t = 0x0002_000f;
    pub const ZE_STRUCTURE_TYPE_RTAS_BUILDER_EXP_PROPERTIES: ze_structure_type_t = 0x0002_0010;
    pub const ZE_STRUCTURE_TYPE_RTAS_PARALLEL_OPERATION_EXP_PROPERTIES: ze_structure_type_t = 0x0002_0011;
    pub const ZE_STRUCTURE_TYPE_RTAS_DEVICE_EXP_PROPERTIES: ze_structure_type_t = 0x0002_0012;
    pub const ZE_STRUCTURE_TYPE_RTAS_GEOMETRY_AABBS_EXP_CB_PARAMS: ze_structure_type_t = 0x0002_0013;
    pub const ZE_STRUCTURE_TYPE_COUNTER_BASED_EVENT_POOL_EXP_DESC: ze_structure_type_t = 0x0002_0014;
    pub const ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_PROPERTIES: ze_structure_type_t = 0x0002_0015;
    pub const ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC: ze_structure_type_t = 0x0002_0016;
    pub const ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_ID_EXP_DESC: ze_structure_type_t = 0x0002_0017;
    pub const ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC: ze_structure_type_t = 0x0002_0018;
    pub const ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC: ze_structure_type_t = 0x0002_0019;
    pub const ZE_STRUCTURE_TYPE_MUTABLE_GROUP_COUNT_EXP_DESC: ze_structure_type_t = 0x0002_001a;
    pub const ZE_STRUCTURE_TYPE_MUTABLE_GROUP_SIZE_EXP_DESC: ze_structure_type_t = 0x0002_001b;
    pub const ZE_STRUCTURE_TYPE_MUTABLE_GLOBAL_OFFSET_EXP_DESC: ze_structure_type_t = 0x0002_001c;
    pub const ZE_STRUCTURE_TYPE_PITCHED_ALLOC_DEVICE_EXP_PROPERTIES: ze_structure_type_t = 0x0002_001d;
    pub const ZE_STRUCTURE_TYPE_BINDLESS_IMAGE_EXP_DESC: ze_structure_type_t = 0x0002_001e;
    pub const ZE_STRUCTURE_TYPE_PITCHED_IMAGE_EXP_DESC: ze_structure_type_t = 0x0002_001f;
    pub const ZE_STRUCTURE_TYPE_MUTABLE_GRAPH_ARGUMENT_EXP_DESC: ze_structure_type_t = 0x0002_0020;
    pub const ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC: ze_structure_type_t = 0x0002_0021;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_EXT_DESC: ze_structure_type_t = 0x0002_0022;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_WIN32_EXT_DESC: ze_structure_type_t = 0x0002_0023;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_FD_EXT_DESC: ze_structure_type_t = 0x0002_0024;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_EXT: ze_structure_type_t = 0x0002_0025;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_WAIT_PARAMS_EXT: ze_structure_type_t = 0x0002_0026;
    pub const ZE_STRUCTURE_TYPE_DRIVER_DDI_HANDLES_EXT_PROPERTIES: ze_structure_type_t = 0x0002_0027;
    pub const ZE_STRUCTURE_TYPE_DEVICE_CACHELINE_SIZE_EXT: ze_structure_type_t = 0x0002_0028;
    pub const ZE_STRUCTURE_TYPE_DEVICE_VECTOR_WIDTH_PROPERTIES_EXT: ze_structure_type_t = 0x0002_0029;
    pub const ZE_STRUCTURE_TYPE_RTAS_BUILDER_EXT_DESC: ze_structure_type_t = 0x0002_0030;
    pub const ZE_STRUCTURE_TYPE_RTAS_BUILDER_BUILD_OP_EXT_DESC: ze_structure_type_t = 0x0002_0031;
    pub const ZE_STRUCTURE_TYPE_RTAS_BUILDER_EXT_PROPERTIES: ze_structure_type_t = 0x0002_0032;
    pub const ZE_STRUCTURE_TYPE_RTAS_PARALLEL_OPERATION_EXT_PROPERTIES: ze_structure_type_t = 0x0002_0033;
    pub const ZE_STRUCTURE_TYPE_RTAS_DEVICE_EXT_PROPERTIES: ze_structure_type_t = 0x0002_0034;
    pub const ZE_STRUCTURE_TYPE_RTAS_GEOMETRY_AABBS_EXT_CB_PARAMS: ze_structure_type_t = 0x0002_0035;
    pub const ZE_STRUCTURE_TYPE_COMMAND_LIST_APPEND_PARAM_COOPERATIVE_DESC: ze_structure_type_t = 0x0002_0036;
    pub const ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC: ze_structure_type_t = 0x0002_0037;
    pub const ZE_STRUCTURE_TYPE_PITCHED_ALLOC_2DIMAGE_LINEAR_PITCH_EXP_INFO: ze_structure_type_t = 0x0002_0038;
    pub const ZE_STRUCTURE_TYPE_KERNEL_ALLOCATION_PROPERTIES: ze_structure_type_t = 0x0002_0039;
    pub const ZE_STRUCTURE_TYPE_EVENT_COUNTER_BASED_DESC: ze_structure_type_t = 0x0002_003a;
    pub const ZE_STRUCTURE_TYPE_EVENT_COUNTER_BASED_EXTERNAL_SYNC_ALLOCATION_DESC: ze_structure_type_t = 0x0002_003b;
    pub const ZE_STRUCTURE_TYPE_EVENT_SYNC_MODE_DESC: ze_structure_type_t = 0x0002_003c;
    pub const ZE_STRUCTURE_TYPE_IPC_MEM_HANDLE_TYPE_EXT_DESC: ze_structure_type_t = 0x0002_003d;
    pub const ZE_STRUCTURE_TYPE_DEVICE_EVENT_PROPERTIES: ze_structure_type_t = 0x0002_003e;
    pub const ZE_STRUCTURE_TYPE_EVENT_COUNTER_BASED_EXTERNAL_AGGREGATE_STORAGE_DESC: ze_structure_type_t = 0x0002_003f;
    pub const ZE_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES: ze_structure_type_t = 0x0002_0040;
    pub const ZE_STRUCTURE_TYPE_DEVICE_USABLEMEM_SIZE_EXT_PROPERTIES: ze_structure_type_t = 0x0002_0041;
    pub const ZE_STRUCTURE_TYPE_CUSTOM_PITCH_EXP_DESC: ze_structure_type_t = 0x0002_0042;
    pub const ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_DOTPRODUCT_EXT_PROPERTIES: ze_structure_type_t = 0x0002_0043;
    pub const ZE_STRUCTURE_TYPE_RUNTIME_REQUIREMENTS_MODULE_DESC: ze_structure_type_t = 0x0002_0044;
    pub const ZE_STRUCTURE_TYPE_RUNTIME_REQUIREMENTS_GRAPH_DESC: ze_structure_type_t = 0x0002_0045;
    pub const ZE_STRUCTURE_TYPE_RUNTIME_REQUIREMENTS_OUTPUT: ze_structure_type_t = 0x0002_0046;
    pub const ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXT_PROPERTIES: ze_structure_type_t = 0x0002_0047;
    pub const ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXT_DUMP_DESC: ze_structure_type_t = 0x0002_0048;
    pub const ZE_API_VERSION_1_0: ze_api_version_t = ze_make_version(1, 0);
    pub const ZE_API_VERSION_1_1: ze_api_version_t = ze_make_version(1, 1);
    pub const ZE_API_VERSION_1_2: ze_api_version_t = ze_make_version(1, 2);
    pub const ZE_API_VERSION_1_3: ze_api_version_t = ze_make_version(1, 3);
    pub const ZE_API_VERSION_1_4: ze_api_version_t = ze_make_version(1, 4);
    pub const ZE_API_VERSION_1_5: ze_api_version_t = ze_make_version(1, 5);
    pub const ZE_API_VERSION_1_6: ze_api_version_t = ze_make_version(1, 6);
    pub const ZE_API_VERSION_1_7: ze_api_version_t = ze_make_version(1, 7);
    pub const ZE_API_VERSION_1_8: ze_api_version_t = ze_make_version(1, 8);
    pub const ZE_API_VERSION_1_9: ze_api_version_t = ze_make_version(1, 9);
    pub const ZE_API_VERSION_1_10: ze_api_version_t = ze_make_version(1, 10);
    pub const ZE_API_VERSION_1_11: ze_api_version_t = ze_make_version(1, 11);
    pub const ZE_API_VERSION_1_12: ze_api_version_t = ze_make_version(1, 12);
    pub const ZE_API_VERSION_1_13: ze_api_version_t = ze_make_version(1, 13);
    pub const ZE_API_VERSION_1_14: ze_api_version_t = ze_make_version(1, 14);
    pub const ZE_API_VERSION_1_15: ze_api_version_t = ze_make_version(1, 15);
    pub const ZE_API_VERSION_1_16: ze_api_version_t = ze_make_version(1, 16);
    pub const ZE_API_VERSION_1_17: ze_api_version_t = ze_make_version(1, 17);
}

names! {
    pub const ZE_RECORD_REPLAY_GRAPH_EXT_NAME: &CStr = c"ZE_extension_record_replay_graph";
    pub const ZE_EXTERNAL_MEMORY_MAPPING_EXT_NAME: &CStr = c"ZE_extension_external_memmap_sysmem";
    pub const ZE_EVENT_POOL_COUNTER_BASED_EXP_NAME: &CStr = c"ZE_experimental_event_pool_counter_based";
    pub const ZE_IMMEDIATE_COMMAND_LIST_APPEND_EXP_NAME: &CStr = c"ZE_experimental_immediate_command_list_append";
    pub const ZE_MUTABLE_COMMAND_LIST_EXP_NAME: &CStr = c"ZE_experimental_mutable_command_list";
    pub const ZE_PCI_PROPERTIES_EXT_NAME: &CStr = c"ZE_extension_pci_properties";
    pub const ZE_DEVICE_IP_VERSION_EXT_NAME: &CStr = c"ZE_extension_device_ip_version";
    pub const ZE_EU_COUNT_EXT_NAME: &CStr = c"ZE_extension_eu_count";
    pub const ZE_DEVICE_MEMORY_PROPERTIES_EXT_NAME: &CStr = c"ZE_extension_device_memory_properties";
    pub const ZE_BANDWIDTH_PROPERTIES_EXP_NAME: &CStr = c"ZE_experimental_bandwidth_properties";
    pub const ZE_GLOBAL_OFFSET_EXP_NAME: &CStr = c"ZE_experimental_global_offset";
    pub const ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME: &CStr = c"ZE_experimental_relaxed_allocation_limits";
    pub const ZE_BFLOAT16_CONVERSIONS_EXT_NAME: &CStr = c"ZE_extension_bfloat16_conversions";
    pub const ZE_IPC_MEM_HANDLE_TYPE_EXT_NAME: &CStr = c"ZE_extension_ipc_mem_handle_type";
    pub const ZE_MEMORY_FREE_POLICIES_EXT_NAME: &CStr = c"ZE_extension_memory_free_policies";
    pub const ZE_SUB_ALLOCATIONS_EXP_NAME: &CStr = c"ZE_experimental_sub_allocations";
    pub const ZE_DEVICE_LUID_EXT_NAME: &CStr = c"ZE_extension_device_luid";
    pub const ZE_CACHELINE_SIZE_EXT_NAME: &CStr = c"ZE_extension_device_cache_line_size";
    pub const ZE_DEVICE_USABLEMEM_SIZE_PROPERTIES_EXT_NAME: &CStr = c"ZE_extension_device_usablemem_size_properties";
    pub const ZE_KERNEL_SCHEDULING_HINTS_EXP_NAME: &CStr = c"ZE_experimental_scheduling_hints";
    pub const ZE_KERNEL_MAX_GROUP_SIZE_PROPERTIES_EXT_NAME: &CStr = c"ZE_extension_kernel_max_group_size_properties";
    pub const ZE_DRIVER_DDI_HANDLES_EXT_NAME: &CStr = c"ZE_extension_driver_ddi_handles";
    pub const ZE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_NAME: &CStr = c"ZE_extension_event_query_kernel_timestamps";
    pub const ZE_LINKONCE_ODR_EXT_NAME: &CStr = c"ZE_extension_linkonce_odr";
    pub const ZE_SUBGROUPS_EXT_NAME: &CStr = c"ZE_extension_subgroups";
    pub const ZE_FLOAT_ATOMICS_EXT_NAME: &CStr = c"ZE_extension_float_atomics";
    pub const ZE_MODULE_PROGRAM_EXP_NAME: &CStr = c"ZE_experimental_module_program";
}

handles! {
    ze_driver_handle_t = _ze_driver_handle_t;
    ze_device_handle_t = _ze_device_handle_t;
    ze_context_handle_t = _ze_context_handle_t;
    ze_command_queue_handle_t = _ze_command_queue_handle_t;
    ze_command_list_handle_t = _ze_command_list_handle_t;
    ze_fence_handle_t = _ze_fence_handle_t;
    ze_event_pool_handle_t = _ze_event_pool_handle_t;
    ze_event_handle_t = _ze_event_handle_t;
    ze_physical_mem_handle_t = _ze_physical_mem_handle_t;
    ze_module_handle_t = _ze_module_handle_t;
    ze_graph_handle_t = _ze_graph_handle_t;
    ze_module_build_log_handle_t = _ze_module_build_log_handle_t;
    ze_kernel_handle_t = _ze_kernel_handle_t;
    ze_executable_graph_handle_t = _ze_executable_graph_handle_t;
}

structs! {
    pub struct ze_ipc_mem_handle_t {
        pub data: [c_char; ZE_MAX_IPC_HANDLE_SIZE],
    }

    pub struct ze_ipc_event_pool_handle_t {
        pub data: [c_char; ZE_MAX_IPC_HANDLE_SIZE],
    }

    pub struct ze_base_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
    }

    pub struct ze_base_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
    }

    pub struct ze_ipc_event_counter_based_handle_t {
        pub data: [c_char; ZE_MAX_IPC_HANDLE_SIZE],
    }
}

/// Name of a result for messages.
pub fn result_name(result: ze_result_t) -> &'static str {
    const PREFIX: &str = "ZE_RESULT_";
    CONSTANTS
        .iter()
        .find(|(name, value)| name.starts_with(PREFIX) && *value == u64::from(result))
        .map_or("an unknown ze_result_t", |(name, _)| name)
}
