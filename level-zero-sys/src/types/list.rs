//! Contexts, command queues and command lists.

use core::ffi::c_void;

use super::*;

pub type ze_context_flags_t = u32;
pub type ze_command_queue_flags_t = u32;
pub type ze_command_queue_mode_t = u32;
pub type ze_command_queue_priority_t = u32;
pub type ze_command_list_flags_t = u32;
pub type ze_mutable_command_exp_flags_t = u32;
pub type ze_mutable_command_list_exp_flags_t = u32;
pub type ze_host_function_callback_t = Option<unsafe extern "C" fn(*mut c_void)>;

constants! {
    pub const ZE_CONTEXT_FLAG_TBD: ze_context_flags_t = 0x1;
    pub const ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY: ze_command_queue_flags_t = 0x1;
    pub const ZE_COMMAND_QUEUE_FLAG_IN_ORDER: ze_command_queue_flags_t = 0x2;
    pub const ZE_COMMAND_QUEUE_FLAG_COPY_OFFLOAD_HINT: ze_command_queue_flags_t = 0x4;
    pub const ZE_COMMAND_QUEUE_MODE_DEFAULT: ze_command_queue_mode_t = 0;
    pub const ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS: ze_command_queue_mode_t = 1;
    pub const ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS: ze_command_queue_mode_t = 2;
    pub const ZE_COMMAND_QUEUE_PRIORITY_NORMAL: ze_command_queue_priority_t = 0;
    pub const ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW: ze_command_queue_priority_t = 1;
    pub const ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH: ze_command_queue_priority_t = 2;
    pub const ZE_COMMAND_LIST_FLAG_RELAXED_ORDERING: ze_command_list_flags_t = 0x1;
    pub const ZE_COMMAND_LIST_FLAG_MAXIMIZE_THROUGHPUT: ze_command_list_flags_t = 0x2;
    pub const ZE_COMMAND_LIST_FLAG_EXPLICIT_ONLY: ze_command_list_flags_t = 0x4;
    pub const ZE_COMMAND_LIST_FLAG_IN_ORDER: ze_command_list_flags_t = 0x8;
    pub const ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE: ze_command_list_flags_t = 0x10;
    pub const ZE_COMMAND_LIST_FLAG_COPY_OFFLOAD_HINT: ze_command_list_flags_t = 0x20;
    pub const ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS: ze_mutable_command_exp_flags_t = 0x1;
    pub const ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT: ze_mutable_command_exp_flags_t = 0x2;
    pub const ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE: ze_mutable_command_exp_flags_t = 0x4;
    pub const ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET: ze_mutable_command_exp_flags_t = 0x8;
    pub const ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT: ze_mutable_command_exp_flags_t = 0x10;
    pub const ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS: ze_mutable_command_exp_flags_t = 0x20;
    pub const ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION: ze_mutable_command_exp_flags_t = 0x40;
    pub const ZE_MUTABLE_COMMAND_EXP_FLAG_GRAPH_ARGUMENTS: ze_mutable_command_exp_flags_t = 0x80;
    pub const ZE_MUTABLE_COMMAND_LIST_EXP_FLAG_RESERVED: ze_mutable_command_list_exp_flags_t = 0x1;
}

structs! {
    #[stype(ZE_STRUCTURE_TYPE_CONTEXT_DESC)]
    pub struct ze_context_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_context_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC)]
    pub struct ze_command_queue_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub ordinal: u32,
        pub index: u32,
        pub flags: ze_command_queue_flags_t,
        pub mode: ze_command_queue_mode_t,
        pub priority: ze_command_queue_priority_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC)]
    pub struct ze_command_list_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub commandQueueGroupOrdinal: u32,
        pub flags: ze_command_list_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_COMMAND_LIST_APPEND_PARAM_COOPERATIVE_DESC)]
    pub struct ze_command_list_append_launch_kernel_param_cooperative_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub isCooperative: ze_bool_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_PROPERTIES)]
    pub struct ze_mutable_command_list_exp_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub mutableCommandListFlags: ze_mutable_command_list_exp_flags_t,
        pub mutableCommandFlags: ze_mutable_command_exp_flags_t,
    }

    pub struct ze_copy_region_t {
        pub originX: u32,
        pub originY: u32,
        pub originZ: u32,
        pub width: u32,
        pub height: u32,
        pub depth: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC)]
    pub struct ze_mutable_command_list_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_mutable_command_list_exp_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_ID_EXP_DESC)]
    pub struct ze_mutable_command_id_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_mutable_command_exp_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC)]
    pub struct ze_mutable_commands_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC)]
    pub struct ze_mutable_kernel_argument_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub commandId: u64,
        pub argIndex: u32,
        pub argSize: usize,
        pub pArgValue: *const c_void,
    }

    #[stype(ZE_STRUCTURE_TYPE_MUTABLE_GROUP_COUNT_EXP_DESC)]
    pub struct ze_mutable_group_count_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub commandId: u64,
        pub pGroupCount: *const ze_group_count_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_MUTABLE_GROUP_SIZE_EXP_DESC)]
    pub struct ze_mutable_group_size_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub commandId: u64,
        pub groupSizeX: u32,
        pub groupSizeY: u32,
        pub groupSizeZ: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_MUTABLE_GLOBAL_OFFSET_EXP_DESC)]
    pub struct ze_mutable_global_offset_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub commandId: u64,
        pub offsetX: u32,
        pub offsetY: u32,
        pub offsetZ: u32,
    }
}
