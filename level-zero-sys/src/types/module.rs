//! Modules and kernels.

use core::ffi::{c_char, c_void};

use super::*;

pub type ze_module_format_t = u32;
pub type ze_module_property_flags_t = u32;
pub type ze_kernel_flags_t = u32;
pub type ze_kernel_indirect_access_flags_t = u32;
pub type ze_cache_config_flags_t = u32;
pub type ze_scheduling_hint_exp_flags_t = u32;

constants! {
    pub const ZE_MAX_NATIVE_KERNEL_UUID_SIZE: usize = 16;
    pub const ZE_MAX_KERNEL_UUID_SIZE: usize = 16;
    pub const ZE_MAX_MODULE_UUID_SIZE: usize = 16;
    pub const ZE_MODULE_FORMAT_IL_SPIRV: ze_module_format_t = 0;
    pub const ZE_MODULE_FORMAT_NATIVE: ze_module_format_t = 1;
    pub const ZE_MODULE_PROPERTY_FLAG_IMPORTS: ze_module_property_flags_t = 0x1;
    pub const ZE_KERNEL_FLAG_FORCE_RESIDENCY: ze_kernel_flags_t = 0x1;
    pub const ZE_KERNEL_FLAG_EXPLICIT_RESIDENCY: ze_kernel_flags_t = 0x2;
    pub const ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST: ze_kernel_indirect_access_flags_t = 0x1;
    pub const ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE: ze_kernel_indirect_access_flags_t = 0x2;
    pub const ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED: ze_kernel_indirect_access_flags_t = 0x4;
    pub const ZE_CACHE_CONFIG_FLAG_LARGE_SLM: ze_cache_config_flags_t = 0x1;
    pub const ZE_CACHE_CONFIG_FLAG_LARGE_DATA: ze_cache_config_flags_t = 0x2;
    pub const ZE_SCHEDULING_HINT_EXP_FLAG_OLDEST_FIRST: ze_scheduling_hint_exp_flags_t = 0x1;
    pub const ZE_SCHEDULING_HINT_EXP_FLAG_ROUND_ROBIN: ze_scheduling_hint_exp_flags_t = 0x2;
    pub const ZE_SCHEDULING_HINT_EXP_FLAG_STALL_BASED_ROUND_ROBIN: ze_scheduling_hint_exp_flags_t = 0x4;
}

structs! {
    pub struct ze_native_kernel_uuid_t {
        pub id: [u8; ZE_MAX_NATIVE_KERNEL_UUID_SIZE],
    }

    pub struct ze_module_constants_t {
        pub numConstants: u32,
        pub pConstantIds: *const u32,
        pub pConstantValues: *mut *const c_void,
    }

    #[stype(ZE_STRUCTURE_TYPE_MODULE_DESC)]
    pub struct ze_module_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub format: ze_module_format_t,
        pub inputSize: usize,
        pub pInputModule: *const u8,
        pub pBuildFlags: *const c_char,
        pub pConstants: *const ze_module_constants_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_MODULE_PROPERTIES)]
    pub struct ze_module_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub flags: ze_module_property_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_KERNEL_DESC)]
    pub struct ze_kernel_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_kernel_flags_t,
        pub pKernelName: *const c_char,
    }

    pub struct ze_kernel_uuid_t {
        pub kid: [u8; ZE_MAX_KERNEL_UUID_SIZE],
        pub mid: [u8; ZE_MAX_MODULE_UUID_SIZE],
    }

    #[stype(ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES)]
    pub struct ze_kernel_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub numKernelArgs: u32,
        pub requiredGroupSizeX: u32,
        pub requiredGroupSizeY: u32,
        pub requiredGroupSizeZ: u32,
        pub requiredNumSubGroups: u32,
        pub requiredSubgroupSize: u32,
        pub maxSubgroupSize: u32,
        pub maxNumSubgroups: u32,
        pub localMemSize: u32,
        pub privateMemSize: u32,
        pub spillMemSize: u32,
        pub uuid: ze_kernel_uuid_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_KERNEL_PREFERRED_GROUP_SIZE_PROPERTIES)]
    pub struct ze_kernel_preferred_group_size_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub preferredMultiple: u32,
    }

    pub struct ze_group_count_t {
        pub groupCountX: u32,
        pub groupCountY: u32,
        pub groupCountZ: u32,
    }

    pub struct ze_group_size_t {
        pub groupSizeX: u32,
        pub groupSizeY: u32,
        pub groupSizeZ: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC)]
    pub struct ze_module_program_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub count: u32,
        pub inputSizes: *const usize,
        pub pInputModules: *mut *const u8,
        pub pBuildFlags: *mut *const c_char,
        pub pConstants: *mut *const ze_module_constants_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_SCHEDULING_HINT_EXP_PROPERTIES)]
    pub struct ze_scheduling_hint_exp_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub schedulingHintFlags: ze_scheduling_hint_exp_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_SCHEDULING_HINT_EXP_DESC)]
    pub struct ze_scheduling_hint_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_scheduling_hint_exp_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES)]
    pub struct ze_kernel_max_group_size_properties_ext_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub maxGroupSize: u32,
    }
}
