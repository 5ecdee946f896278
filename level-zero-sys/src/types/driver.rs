//! Initialization and drivers.

use core::ffi::{c_char, c_void};

use super::*;

pub type ze_init_flags_t = u32;
pub type ze_init_driver_type_flags_t = u32;
pub type ze_ipc_property_flags_t = u32;
pub type ze_driver_memory_free_policy_ext_flags_t = u32;
pub type ze_driver_ddi_handle_ext_flags_t = u32;

constants! {
    pub const ZE_MAX_DRIVER_UUID_SIZE: usize = 16;
    pub const ZE_MAX_EXTENSION_NAME: usize = 256;
    pub const ZE_INIT_FLAG_GPU_ONLY: ze_init_flags_t = 0x1;
    pub const ZE_INIT_FLAG_VPU_ONLY: ze_init_flags_t = 0x2;
    pub const ZE_INIT_DRIVER_TYPE_FLAG_GPU: ze_init_driver_type_flags_t = 0x1;
    pub const ZE_INIT_DRIVER_TYPE_FLAG_NPU: ze_init_driver_type_flags_t = 0x2;
    pub const ZE_IPC_PROPERTY_FLAG_MEMORY: ze_ipc_property_flags_t = 0x1;
    pub const ZE_IPC_PROPERTY_FLAG_EVENT_POOL: ze_ipc_property_flags_t = 0x2;
    pub const ZE_IPC_PROPERTY_FLAG_FABRIC_ACCESSIBLE: ze_ipc_property_flags_t = 0x4;
    pub const ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE: ze_driver_memory_free_policy_ext_flags_t = 0x1;
    pub const ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE: ze_driver_memory_free_policy_ext_flags_t = 0x2;
    pub const ZE_DRIVER_DDI_HANDLE_EXT_FLAG_DDI_HANDLE_EXT_SUPPORTED: ze_driver_ddi_handle_ext_flags_t = 0x1;
}

structs! {
    #[stype(ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC)]
    pub struct ze_init_driver_type_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_init_driver_type_flags_t,
    }

    pub struct ze_driver_uuid_t {
        pub id: [u8; ZE_MAX_DRIVER_UUID_SIZE],
    }

    #[stype(ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES)]
    pub struct ze_driver_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub uuid: ze_driver_uuid_t,
        pub driverVersion: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES)]
    pub struct ze_driver_ipc_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub flags: ze_ipc_property_flags_t,
    }

    pub struct ze_driver_extension_properties_t {
        pub name: [c_char; ZE_MAX_EXTENSION_NAME],
        pub version: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES)]
    pub struct ze_driver_memory_free_ext_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub freePolicies: ze_driver_memory_free_policy_ext_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_DRIVER_DDI_HANDLES_EXT_PROPERTIES)]
    pub struct ze_driver_ddi_handles_ext_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub flags: ze_driver_ddi_handle_ext_flags_t,
    }
}
