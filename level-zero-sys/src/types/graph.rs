//! Recorded graphs.

use core::ffi::c_void;

use super::*;

pub type ze_record_replay_graph_ext_flags_t = u32;
pub type ze_record_replay_graph_ext_dump_mode_t = u32;
pub type zex_mem_graph_free_callback_fn_t = Option<unsafe extern "C" fn(*mut c_void)>;

constants! {
    pub const ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_IMMUTABLE_GRAPH: ze_record_replay_graph_ext_flags_t = 0x1;
    pub const ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_MUTABLE_GRAPH: ze_record_replay_graph_ext_flags_t = 0x2;
    pub const ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_SUBGRAPHS: ze_record_replay_graph_ext_flags_t = 0x4;
    pub const ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_APPEND_COMMANDLIST: ze_record_replay_graph_ext_flags_t = 0x8;
    pub const ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_CB_EXTERNAL_IPC: ze_record_replay_graph_ext_flags_t = 0x10;
    pub const ZE_RECORD_REPLAY_GRAPH_EXT_DUMP_MODE_DETAILED: ze_record_replay_graph_ext_dump_mode_t = 0x0;
    pub const ZE_RECORD_REPLAY_GRAPH_EXT_DUMP_MODE_SIMPLE: ze_record_replay_graph_ext_dump_mode_t = 0x1;
}

structs! {
    #[stype(ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXT_PROPERTIES)]
    pub struct ze_record_replay_graph_ext_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub graphFlags: ze_record_replay_graph_ext_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXT_DUMP_DESC)]
    pub struct ze_record_replay_graph_ext_dump_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub mode: ze_record_replay_graph_ext_dump_mode_t,
    }
}
