//! What Intel's driver offers beyond the specification; declared in the driver's own headers.

use core::ffi::{CStr, c_char, c_void};

use super::*;

pub type zex_counter_based_event_exp_flags_t = u32;
pub type ze_record_replay_graph_exp_flags_t = u32;
pub type ze_record_replay_graph_exp_dump_mode_t = u32;

constants! {
    pub const ZEX_STRUCTURE_COUNTER_BASED_EVENT_DESC: ze_structure_type_t = 0x0003_001c;
    pub const ZEX_STRUCTURE_COUNTER_BASED_EVENT_EXTERNAL_SYNC_ALLOC_PROPERTIES: ze_structure_type_t = 0x0003_001d;
    pub const ZEX_STRUCTURE_COUNTER_BASED_EVENT_EXTERNAL_STORAGE_ALLOC_PROPERTIES: ze_structure_type_t = 0x0003_0027;
    pub const ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXP_PROPERTIES: ze_structure_type_t = 0x0003_0029;
    pub const ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXP_DUMP_DESC: ze_structure_type_t = 0x0003_0031;
    pub const ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE: zex_counter_based_event_exp_flags_t = 0x1;
    pub const ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE: zex_counter_based_event_exp_flags_t = 0x2;
    pub const ZEX_COUNTER_BASED_EVENT_FLAG_HOST_VISIBLE: zex_counter_based_event_exp_flags_t = 0x4;
    pub const ZEX_COUNTER_BASED_EVENT_FLAG_IPC: zex_counter_based_event_exp_flags_t = 0x8;
    pub const ZEX_COUNTER_BASED_EVENT_FLAG_KERNEL_TIMESTAMP: zex_counter_based_event_exp_flags_t = 0x10;
    pub const ZEX_COUNTER_BASED_EVENT_FLAG_KERNEL_MAPPED_TIMESTAMP: zex_counter_based_event_exp_flags_t = 0x20;
    pub const ZEX_COUNTER_BASED_EVENT_FLAG_EXTERNAL: zex_counter_based_event_exp_flags_t = 0x40;
    pub const ZE_RECORD_REPLAY_GRAPH_EXP_FLAG_IMMUTABLE_GRAPH: ze_record_replay_graph_exp_flags_t = 0x1;
    pub const ZE_RECORD_REPLAY_GRAPH_EXP_FLAG_MUTABLE_GRAPH: ze_record_replay_graph_exp_flags_t = 0x2;
    pub const ZE_RECORD_REPLAY_GRAPH_EXP_DUMP_MODE_DETAILED: ze_record_replay_graph_exp_dump_mode_t = 0;
    pub const ZE_RECORD_REPLAY_GRAPH_EXP_DUMP_MODE_SIMPLE: ze_record_replay_graph_exp_dump_mode_t = 1;
}

names! {
    pub const ZEX_COUNTER_BASED_EVENT_EXT_NAME: &CStr = c"ZEX_counter_based_event";
    pub const ZEX_DRIVER_IMPORT_HOST_POINTER_NAME: &CStr = c"ZEX_driver_import_host_pointer";
    pub const ZE_RECORD_REPLAY_GRAPH_EXP_NAME: &CStr = c"ZE_experimental_record_replay_graph";
}

structs! {
    pub struct zex_ipc_counter_based_event_handle_t {
        pub data: [c_char; ZE_MAX_IPC_HANDLE_SIZE],
    }

    #[stype(ZEX_STRUCTURE_COUNTER_BASED_EVENT_DESC)]
    pub struct zex_counter_based_event_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: zex_counter_based_event_exp_flags_t,
        pub signalScope: ze_event_scope_flags_t,
        pub waitScope: ze_event_scope_flags_t,
    }

    #[stype(ZEX_STRUCTURE_COUNTER_BASED_EVENT_EXTERNAL_SYNC_ALLOC_PROPERTIES)]
    pub struct zex_counter_based_event_external_sync_alloc_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub deviceAddress: *mut u64,
        pub hostAddress: *mut u64,
        pub completionValue: u64,
    }

    #[stype(ZEX_STRUCTURE_COUNTER_BASED_EVENT_EXTERNAL_STORAGE_ALLOC_PROPERTIES)]
    pub struct zex_counter_based_event_external_storage_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub deviceAddress: *mut u64,
        pub incrementValue: u64,
        pub completionValue: u64,
    }

    #[stype(ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXP_PROPERTIES)]
    pub struct ze_record_replay_graph_exp_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub graphFlags: ze_record_replay_graph_exp_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXP_DUMP_DESC)]
    pub struct ze_record_replay_graph_exp_dump_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub mode: ze_record_replay_graph_exp_dump_mode_t,
    }
}
