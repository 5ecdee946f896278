//! Allocations, IPC memory and imports of external memory.

use core::ffi::{c_int, c_void};

use super::*;

pub type ze_external_memory_type_flags_t = u32;
pub type ze_memory_advice_t = u32;
pub type ze_device_mem_alloc_flags_t = u32;
pub type ze_host_mem_alloc_flags_t = u32;
pub type ze_memory_type_t = u32;
pub type ze_ipc_memory_flags_t = u32;
pub type ze_relaxed_allocation_limits_exp_flags_t = u32;
pub type ze_ipc_mem_handle_type_flags_t = u32;
pub type ze_memory_access_attribute_t = u32;
pub type ze_physical_mem_flags_t = u32;

constants! {
    pub const ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD: ze_external_memory_type_flags_t = 0x1;
    pub const ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF: ze_external_memory_type_flags_t = 0x2;
    pub const ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32: ze_external_memory_type_flags_t = 0x4;
    pub const ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32_KMT: ze_external_memory_type_flags_t = 0x8;
    pub const ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D11_TEXTURE: ze_external_memory_type_flags_t = 0x10;
    pub const ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D11_TEXTURE_KMT: ze_external_memory_type_flags_t = 0x20;
    pub const ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP: ze_external_memory_type_flags_t = 0x40;
    pub const ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_RESOURCE: ze_external_memory_type_flags_t = 0x80;
    pub const ZE_MEMORY_ADVICE_SET_READ_MOSTLY: ze_memory_advice_t = 0;
    pub const ZE_MEMORY_ADVICE_CLEAR_READ_MOSTLY: ze_memory_advice_t = 1;
    pub const ZE_MEMORY_ADVICE_SET_PREFERRED_LOCATION: ze_memory_advice_t = 2;
    pub const ZE_MEMORY_ADVICE_CLEAR_PREFERRED_LOCATION: ze_memory_advice_t = 3;
    pub const ZE_MEMORY_ADVICE_SET_NON_ATOMIC_MOSTLY: ze_memory_advice_t = 4;
    pub const ZE_MEMORY_ADVICE_CLEAR_NON_ATOMIC_MOSTLY: ze_memory_advice_t = 5;
    pub const ZE_MEMORY_ADVICE_BIAS_CACHED: ze_memory_advice_t = 6;
    pub const ZE_MEMORY_ADVICE_BIAS_UNCACHED: ze_memory_advice_t = 7;
    pub const ZE_MEMORY_ADVICE_SET_SYSTEM_MEMORY_PREFERRED_LOCATION: ze_memory_advice_t = 8;
    pub const ZE_MEMORY_ADVICE_CLEAR_SYSTEM_MEMORY_PREFERRED_LOCATION: ze_memory_advice_t = 9;
    pub const ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_CACHED: ze_device_mem_alloc_flags_t = 0x1;
    pub const ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_UNCACHED: ze_device_mem_alloc_flags_t = 0x2;
    pub const ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT: ze_device_mem_alloc_flags_t = 0x4;
    pub const ZE_HOST_MEM_ALLOC_FLAG_BIAS_CACHED: ze_host_mem_alloc_flags_t = 0x1;
    pub const ZE_HOST_MEM_ALLOC_FLAG_BIAS_UNCACHED: ze_host_mem_alloc_flags_t = 0x2;
    pub const ZE_HOST_MEM_ALLOC_FLAG_BIAS_WRITE_COMBINED: ze_host_mem_alloc_flags_t = 0x4;
    pub const ZE_HOST_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT: ze_host_mem_alloc_flags_t = 0x8;
    pub const ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY: ze_host_mem_alloc_flags_t = 0x10;
    pub const ZE_MEMORY_TYPE_UNKNOWN: ze_memory_type_t = 0;
    pub const ZE_MEMORY_TYPE_HOST: ze_memory_type_t = 1;
    pub const ZE_MEMORY_TYPE_DEVICE: ze_memory_type_t = 2;
    pub const ZE_MEMORY_TYPE_SHARED: ze_memory_type_t = 3;
    pub const ZE_MEMORY_TYPE_HOST_IMPORTED: ze_memory_type_t = 4;
    pub const ZE_IPC_MEMORY_FLAG_BIAS_CACHED: ze_ipc_memory_flags_t = 0x1;
    pub const ZE_IPC_MEMORY_FLAG_BIAS_UNCACHED: ze_ipc_memory_flags_t = 0x2;
    pub const ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE: ze_relaxed_allocation_limits_exp_flags_t = 0x1;
    pub const ZE_IPC_MEM_HANDLE_TYPE_FLAG_DEFAULT: ze_ipc_mem_handle_type_flags_t = 0x1;
    pub const ZE_IPC_MEM_HANDLE_TYPE_FLAG_FABRIC_ACCESSIBLE: ze_ipc_mem_handle_type_flags_t = 0x2;
    pub const ZE_MEMORY_ACCESS_ATTRIBUTE_NONE: ze_memory_access_attribute_t = 0;
    pub const ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE: ze_memory_access_attribute_t = 1;
    pub const ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY: ze_memory_access_attribute_t = 2;
    pub const ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE: ze_physical_mem_flags_t = 0x1;
    pub const ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST: ze_physical_mem_flags_t = 0x2;
}

structs! {
    #[stype(ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC)]
    pub struct ze_device_mem_alloc_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_device_mem_alloc_flags_t,
        pub ordinal: u32,
    }

    #[stype(ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC)]
    pub struct ze_host_mem_alloc_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_host_mem_alloc_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC)]
    pub struct ze_physical_mem_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_physical_mem_flags_t,
        pub size: usize,
    }

    #[stype(ZE_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES)]
    pub struct ze_physical_mem_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub id: u64,
        pub size: u64,
    }

    #[stype(ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES)]
    pub struct ze_memory_allocation_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub r#type: ze_memory_type_t,
        pub id: u64,
        pub pageSize: u64,
    }

    #[stype(ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC)]
    pub struct ze_external_memory_export_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_external_memory_type_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD)]
    pub struct ze_external_memory_import_fd_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_external_memory_type_flags_t,
        pub fd: c_int,
    }

    #[stype(ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD)]
    pub struct ze_external_memory_export_fd_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_external_memory_type_flags_t,
        pub fd: c_int,
    }

    #[stype(ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC)]
    pub struct ze_relaxed_allocation_limits_exp_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub flags: ze_relaxed_allocation_limits_exp_flags_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC)]
    pub struct ze_memory_free_ext_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub freePolicy: ze_driver_memory_free_policy_ext_flags_t,
    }

    pub struct ze_sub_allocation_t {
        pub base: *mut c_void,
        pub size: usize,
    }

    #[stype(ZE_STRUCTURE_TYPE_MEMORY_SUB_ALLOCATIONS_EXP_PROPERTIES)]
    pub struct ze_memory_sub_allocations_exp_properties_t {
        pub stype: ze_structure_type_t,
        pub pNext: *mut c_void,
        pub pCount: *mut u32,
        pub pSubAllocations: *mut ze_sub_allocation_t,
    }

    #[stype(ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC)]
    pub struct ze_external_memmap_sysmem_ext_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub pSystemMemory: *mut c_void,
        pub size: u64,
    }

    #[stype(ZE_STRUCTURE_TYPE_IPC_MEM_HANDLE_TYPE_EXT_DESC)]
    pub struct ze_ipc_mem_handle_type_ext_desc_t {
        pub stype: ze_structure_type_t,
        pub pNext: *const c_void,
        pub typeFlags: ze_ipc_mem_handle_type_flags_t,
    }
}
