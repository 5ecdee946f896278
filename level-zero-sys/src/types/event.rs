//! Events, event pools and fences.

use core::ffi::c_void;

use super::*;

pub type ze_event_pool_flags_t = u32;
pub type ze_event_scope_flags_t = u32;
pub type ze_event_counter_based_flags_t = u32;
pub type ze_event_sync_mode_flags_t = u32;
pub type ze_fence_flags_t = u32;
pub type ze_event_query_kernel_timestamps_ext_flags_t = u32;
pub type ze_event_pool_counter_based_exp_flags_t = u32;

constants! {
    pub const ZE_EVENT_POOL_FLAG_HOST_VISIBLE: ze_event_pool_flags_t = 0x1;
    pub const ZE_EVENT_POOL_FLAG_IPC: ze_event_pool_flags_t = 0x2;
    pub const ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP: ze_event_pool_flags_t = 0x4;
    pub const ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP: ze_event_pool_flags_t = 0x8;
    pub const ZE_EVENT_SCOPE_FLAG_SUBDEVICE: ze_event_scope_flags_t = 0x1;
    pub const ZE_EVENT_SCOPE_FLAG_DEVICE: ze_event_scope_flags_t = 0x2;
    pub const ZE_EVENT_SCOPE_FLAG_HOST: ze_event_scope_flags_t = 0x4;
    pub const ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE: ze_event_counter_based_flags_t = 0x1;
    pub const ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE: ze_event_counter_based_flags_t = 0x2;
    pub const ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE: ze_event_counter_based_flags_t = 0x4;
    pub const ZE_EVENT_COUNTER_BASED_FLAG_IPC: ze_event_counter_based_flags_t = 0x8;
    pub const ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP: ze_event_counter_based_flags_t = 0x10;
    pub const ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP: ze_event_counter_based_flags_t = 0x20;
    pub const ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL: ze_event_counter_based_flags_t = 0x40;
    pub const ZE_EVENT_SYNC_MODE_FLAG_LOW_POWER_WAIT: ze_event_sync_mode_flags_t = 0x1;
    pub const ZE_EVENT_SYNC_MODE_FLAG_SIGNAL_INTERRUPT: ze_event_sync_mode_flags_t = 0x2;
    pub const ZE_EVENT_SYNC_MODE_FLAG_EXTERNAL_INTERRUPT_WAIT: ze_event_sync_mode_flags_t = 0x4;
    pub const ZE_FENCE_FLAG_SIGNALED: ze_fence_flags_t = 0x1;
    pub const ZE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_FLAG_KERNEL: ze_event_query_kernel_timestamps_ext_flags_t = 0x1;
    pub const ZE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_FLAG_SYNCHRONIZED: ze_event_query_kernel_timestamps_ext_flags_t =
        0x2;
    pub const ZE_EVENT_POOL_COUNTER_BASED_EXP_FLAG_IMMEDIATE: ze_event_pool_counter_based_exp_flags_t = 0x1;
    pub const ZE_EVENT_POOL_COUNTER_BASED_EXP_FLAG_NON_IMMEDIATE: ze_event_pool_counter_based_exp_flags_t = 0x2;
}

structs! {
    #[stype(ZE_STRUCTURE_TYPE_EVENT_POOL_DESC)]
    pub struct ze_event_pool_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_event_pool_flags_t,
        pub count: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_EVENT_SYNC_MODE_DESC)]
    pub struct ze_event_sync_mode_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub syncModeFlags: ze_event_sync_mode_flags_t,
        pub externalInterruptId: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_EVENT_DESC)]
    pub struct ze_event_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub index: u32,
        pub signal: ze_event_scope_flags_t,
        pub wait: ze_event_scope_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_EVENT_COUNTER_BASED_DESC)]
    pub struct ze_event_counter_based_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_event_counter_based_flags_t,
        pub signal: ze_event_scope_flags_t,
        pub wait: ze_event_scope_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_EVENT_COUNTER_BASED_EXTERNAL_SYNC_ALLOCATION_DESC)]
    pub struct ze_event_counter_based_external_sync_allocation_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub deviceAddress: *mut u64,
        pub hostAddress: *mut u64,
        pub completionValue: u64,
    }

    #[stype(ZE_STRUCTURE_TYPE_EVENT_COUNTER_BASED_EXTERNAL_AGGREGATE_STORAGE_DESC)]
    pub struct ze_event_counter_based_external_aggregate_storage_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub deviceAddress: *mut u64,
        pub incrementValue: u64,
        pub completionValue: u64,
    }

    pub struct ze_kernel_timestamp_data_t {
        pub kernelStart: u64,
        pub kernelEnd: u64,
    }

    pub struct ze_kernel_timestamp_result_t {
        pub global: ze_kernel_timestamp_data_t,
        pub context: ze_kernel_timestamp_data_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_FENCE_DESC)]
    pub struct ze_fence_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_fence_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_PROPERTIES)]
    pub struct ze_event_query_kernel_timestamps_ext_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub flags: ze_event_query_kernel_timestamps_ext_flags_t,
    }

    pub struct ze_synchronized_timestamp_data_ext_t {
        pub kernelStart: u64,
        pub kernelEnd: u64,
    }

    pub struct ze_synchronized_timestamp_result_ext_t {
        pub global: ze_synchronized_timestamp_data_ext_t,
        pub context: ze_synchronized_timestamp_data_ext_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_EVENT_QUERY_KERNEL_TIMESTAMPS_RESULTS_EXT_PROPERTIES)]
    pub struct ze_event_query_kernel_timestamps_results_ext_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub pKernelTimestampsBuffer: *mut ze_kernel_timestamp_result_t,
        pub pSynchronizedTimestampsBuffer: *mut ze_synchronized_timestamp_result_ext_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_COUNTER_BASED_EVENT_POOL_EXP_DESC)]
    pub struct ze_event_pool_counter_based_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_event_pool_counter_based_exp_flags_t,
    }
}
