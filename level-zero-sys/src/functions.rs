//! The functions of the API, each named once with its signature.
//!
//! `required`: every driver since version 1.6 of the specification has them. `optional`: newer, or an extension; the
//! loader exports them. `extension`: newer still; where the loader doesn't export them the driver may hand them out by
//! name. `vendor`: declared in the driver's own headers and only handed out by name.
//!
//! Beware: the `Exp` graph functions take `pNext` last, the `Ext` ones take it before the output.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    reason = "mirrors the specification's names, which are documented there"
)]

use core::ffi::{CStr, c_char, c_void};

use crate::table::{MissingSymbol, functions, symbol};
use crate::types::*;

functions! {
    required {
        zeInit: zeInit_t = fn(flags: ze_init_flags_t) -> ze_result_t;
        zeDriverGet: zeDriverGet_t = fn(pCount: *mut u32, phDrivers: *mut ze_driver_handle_t) -> ze_result_t;
        zeDriverGetApiVersion: zeDriverGetApiVersion_t = fn(
            hDriver: ze_driver_handle_t, version: *mut ze_api_version_t,
        ) -> ze_result_t;
        zeDriverGetProperties: zeDriverGetProperties_t = fn(
            hDriver: ze_driver_handle_t, pDriverProperties: *mut ze_driver_properties_t,
        ) -> ze_result_t;
        zeDriverGetIpcProperties: zeDriverGetIpcProperties_t = fn(
            hDriver: ze_driver_handle_t, pIpcProperties: *mut ze_driver_ipc_properties_t,
        ) -> ze_result_t;
        zeDriverGetExtensionProperties: zeDriverGetExtensionProperties_t = fn(
            hDriver: ze_driver_handle_t, pCount: *mut u32, pExtensionProperties: *mut ze_driver_extension_properties_t,
        ) -> ze_result_t;
        zeDriverGetExtensionFunctionAddress: zeDriverGetExtensionFunctionAddress_t = fn(
            hDriver: ze_driver_handle_t, name: *const c_char, ppFunctionAddress: *mut *mut c_void,
        ) -> ze_result_t;
        zeDriverGetLastErrorDescription: zeDriverGetLastErrorDescription_t = fn(
            hDriver: ze_driver_handle_t, ppString: *mut *const c_char,
        ) -> ze_result_t;
        zeDeviceGet: zeDeviceGet_t = fn(
            hDriver: ze_driver_handle_t, pCount: *mut u32, phDevices: *mut ze_device_handle_t,
        ) -> ze_result_t;
        zeDeviceGetSubDevices: zeDeviceGetSubDevices_t = fn(
            hDevice: ze_device_handle_t, pCount: *mut u32, phSubdevices: *mut ze_device_handle_t,
        ) -> ze_result_t;
        zeDeviceGetProperties: zeDeviceGetProperties_t = fn(
            hDevice: ze_device_handle_t, pDeviceProperties: *mut ze_device_properties_t,
        ) -> ze_result_t;
        zeDeviceGetComputeProperties: zeDeviceGetComputeProperties_t = fn(
            hDevice: ze_device_handle_t, pComputeProperties: *mut ze_device_compute_properties_t,
        ) -> ze_result_t;
        zeDeviceGetModuleProperties: zeDeviceGetModuleProperties_t = fn(
            hDevice: ze_device_handle_t, pModuleProperties: *mut ze_device_module_properties_t,
        ) -> ze_result_t;
        zeDeviceGetCommandQueueGroupProperties: zeDeviceGetCommandQueueGroupProperties_t = fn(
            hDevice: ze_device_handle_t, pCount: *mut u32,
            pCommandQueueGroupProperties: *mut ze_command_queue_group_properties_t,
        ) -> ze_result_t;
        zeDeviceGetMemoryProperties: zeDeviceGetMemoryProperties_t = fn(
            hDevice: ze_device_handle_t, pCount: *mut u32, pMemProperties: *mut ze_device_memory_properties_t,
        ) -> ze_result_t;
        zeDeviceGetMemoryAccessProperties: zeDeviceGetMemoryAccessProperties_t = fn(
            hDevice: ze_device_handle_t, pMemAccessProperties: *mut ze_device_memory_access_properties_t,
        ) -> ze_result_t;
        zeDeviceGetCacheProperties: zeDeviceGetCacheProperties_t = fn(
            hDevice: ze_device_handle_t, pCount: *mut u32, pCacheProperties: *mut ze_device_cache_properties_t,
        ) -> ze_result_t;
        zeDeviceGetExternalMemoryProperties: zeDeviceGetExternalMemoryProperties_t = fn(
            hDevice: ze_device_handle_t, pExternalMemoryProperties: *mut ze_device_external_memory_properties_t,
        ) -> ze_result_t;
        zeDeviceGetP2PProperties: zeDeviceGetP2PProperties_t = fn(
            hDevice: ze_device_handle_t, hPeerDevice: ze_device_handle_t,
            pP2PProperties: *mut ze_device_p2p_properties_t,
        ) -> ze_result_t;
        zeDeviceCanAccessPeer: zeDeviceCanAccessPeer_t = fn(
            hDevice: ze_device_handle_t, hPeerDevice: ze_device_handle_t, value: *mut ze_bool_t,
        ) -> ze_result_t;
        zeDeviceGetStatus: zeDeviceGetStatus_t = fn(hDevice: ze_device_handle_t) -> ze_result_t;
        zeDeviceGetGlobalTimestamps: zeDeviceGetGlobalTimestamps_t = fn(
            hDevice: ze_device_handle_t, hostTimestamp: *mut u64, deviceTimestamp: *mut u64,
        ) -> ze_result_t;
        zeContextCreate: zeContextCreate_t = fn(
            hDriver: ze_driver_handle_t, desc: *const ze_context_desc_t, phContext: *mut ze_context_handle_t,
        ) -> ze_result_t;
        zeContextCreateEx: zeContextCreateEx_t = fn(
            hDriver: ze_driver_handle_t, desc: *const ze_context_desc_t, numDevices: u32,
            phDevices: *mut ze_device_handle_t, phContext: *mut ze_context_handle_t,
        ) -> ze_result_t;
        zeContextDestroy: zeContextDestroy_t = fn(hContext: ze_context_handle_t) -> ze_result_t;
        zeContextGetStatus: zeContextGetStatus_t = fn(hContext: ze_context_handle_t) -> ze_result_t;
        zeContextSystemBarrier: zeContextSystemBarrier_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t,
        ) -> ze_result_t;
        zeContextMakeMemoryResident: zeContextMakeMemoryResident_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, ptr: *mut c_void, size: usize,
        ) -> ze_result_t;
        zeContextEvictMemory: zeContextEvictMemory_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, ptr: *mut c_void, size: usize,
        ) -> ze_result_t;
        zeCommandQueueCreate: zeCommandQueueCreate_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, desc: *const ze_command_queue_desc_t,
            phCommandQueue: *mut ze_command_queue_handle_t,
        ) -> ze_result_t;
        zeCommandQueueDestroy: zeCommandQueueDestroy_t = fn(hCommandQueue: ze_command_queue_handle_t) -> ze_result_t;
        zeCommandQueueExecuteCommandLists: zeCommandQueueExecuteCommandLists_t = fn(
            hCommandQueue: ze_command_queue_handle_t, numCommandLists: u32,
            phCommandLists: *mut ze_command_list_handle_t, hFence: ze_fence_handle_t,
        ) -> ze_result_t;
        zeCommandQueueSynchronize: zeCommandQueueSynchronize_t = fn(
            hCommandQueue: ze_command_queue_handle_t, timeout: u64,
        ) -> ze_result_t;
        zeCommandListCreate: zeCommandListCreate_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, desc: *const ze_command_list_desc_t,
            phCommandList: *mut ze_command_list_handle_t,
        ) -> ze_result_t;
        zeCommandListCreateImmediate: zeCommandListCreateImmediate_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, altdesc: *const ze_command_queue_desc_t,
            phCommandList: *mut ze_command_list_handle_t,
        ) -> ze_result_t;
        zeCommandListDestroy: zeCommandListDestroy_t = fn(hCommandList: ze_command_list_handle_t) -> ze_result_t;
        zeCommandListClose: zeCommandListClose_t = fn(hCommandList: ze_command_list_handle_t) -> ze_result_t;
        zeCommandListReset: zeCommandListReset_t = fn(hCommandList: ze_command_list_handle_t) -> ze_result_t;
        zeCommandListAppendWriteGlobalTimestamp: zeCommandListAppendWriteGlobalTimestamp_t = fn(
            hCommandList: ze_command_list_handle_t, dstptr: *mut u64, hSignalEvent: ze_event_handle_t,
            numWaitEvents: u32, phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListHostSynchronize: zeCommandListHostSynchronize_t = fn(
            hCommandList: ze_command_list_handle_t, timeout: u64,
        ) -> ze_result_t;
        zeCommandListAppendBarrier: zeCommandListAppendBarrier_t = fn(
            hCommandList: ze_command_list_handle_t, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendMemoryRangesBarrier: zeCommandListAppendMemoryRangesBarrier_t = fn(
            hCommandList: ze_command_list_handle_t, numRanges: u32, pRangeSizes: *const usize,
            pRanges: *mut *const c_void, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendMemoryCopy: zeCommandListAppendMemoryCopy_t = fn(
            hCommandList: ze_command_list_handle_t, dstptr: *mut c_void, srcptr: *const c_void, size: usize,
            hSignalEvent: ze_event_handle_t, numWaitEvents: u32, phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendMemoryFill: zeCommandListAppendMemoryFill_t = fn(
            hCommandList: ze_command_list_handle_t, ptr: *mut c_void, pattern: *const c_void, pattern_size: usize,
            size: usize, hSignalEvent: ze_event_handle_t, numWaitEvents: u32, phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendMemoryPrefetch: zeCommandListAppendMemoryPrefetch_t = fn(
            hCommandList: ze_command_list_handle_t, ptr: *const c_void, size: usize,
        ) -> ze_result_t;
        zeCommandListAppendMemAdvise: zeCommandListAppendMemAdvise_t = fn(
            hCommandList: ze_command_list_handle_t, hDevice: ze_device_handle_t, ptr: *const c_void, size: usize,
            advice: ze_memory_advice_t,
        ) -> ze_result_t;
        zeEventPoolCreate: zeEventPoolCreate_t = fn(
            hContext: ze_context_handle_t, desc: *const ze_event_pool_desc_t, numDevices: u32,
            phDevices: *mut ze_device_handle_t, phEventPool: *mut ze_event_pool_handle_t,
        ) -> ze_result_t;
        zeEventPoolDestroy: zeEventPoolDestroy_t = fn(hEventPool: ze_event_pool_handle_t) -> ze_result_t;
        zeEventCreate: zeEventCreate_t = fn(
            hEventPool: ze_event_pool_handle_t, desc: *const ze_event_desc_t, phEvent: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeEventDestroy: zeEventDestroy_t = fn(hEvent: ze_event_handle_t) -> ze_result_t;
        zeEventPoolGetIpcHandle: zeEventPoolGetIpcHandle_t = fn(
            hEventPool: ze_event_pool_handle_t, phIpc: *mut ze_ipc_event_pool_handle_t,
        ) -> ze_result_t;
        zeEventPoolPutIpcHandle: zeEventPoolPutIpcHandle_t = fn(
            hContext: ze_context_handle_t, hIpc: ze_ipc_event_pool_handle_t,
        ) -> ze_result_t;
        zeEventPoolOpenIpcHandle: zeEventPoolOpenIpcHandle_t = fn(
            hContext: ze_context_handle_t, hIpc: ze_ipc_event_pool_handle_t, phEventPool: *mut ze_event_pool_handle_t,
        ) -> ze_result_t;
        zeEventPoolCloseIpcHandle: zeEventPoolCloseIpcHandle_t = fn(hEventPool: ze_event_pool_handle_t) -> ze_result_t;
        zeCommandListAppendSignalEvent: zeCommandListAppendSignalEvent_t = fn(
            hCommandList: ze_command_list_handle_t, hEvent: ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendWaitOnEvents: zeCommandListAppendWaitOnEvents_t = fn(
            hCommandList: ze_command_list_handle_t, numEvents: u32, phEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeEventHostSignal: zeEventHostSignal_t = fn(hEvent: ze_event_handle_t) -> ze_result_t;
        zeEventHostSynchronize: zeEventHostSynchronize_t = fn(hEvent: ze_event_handle_t, timeout: u64) -> ze_result_t;
        zeEventQueryStatus: zeEventQueryStatus_t = fn(hEvent: ze_event_handle_t) -> ze_result_t;
        zeCommandListAppendEventReset: zeCommandListAppendEventReset_t = fn(
            hCommandList: ze_command_list_handle_t, hEvent: ze_event_handle_t,
        ) -> ze_result_t;
        zeEventHostReset: zeEventHostReset_t = fn(hEvent: ze_event_handle_t) -> ze_result_t;
        zeEventQueryKernelTimestamp: zeEventQueryKernelTimestamp_t = fn(
            hEvent: ze_event_handle_t, dstptr: *mut ze_kernel_timestamp_result_t,
        ) -> ze_result_t;
        zeFenceCreate: zeFenceCreate_t = fn(
            hCommandQueue: ze_command_queue_handle_t, desc: *const ze_fence_desc_t, phFence: *mut ze_fence_handle_t,
        ) -> ze_result_t;
        zeFenceDestroy: zeFenceDestroy_t = fn(hFence: ze_fence_handle_t) -> ze_result_t;
        zeFenceHostSynchronize: zeFenceHostSynchronize_t = fn(hFence: ze_fence_handle_t, timeout: u64) -> ze_result_t;
        zeFenceQueryStatus: zeFenceQueryStatus_t = fn(hFence: ze_fence_handle_t) -> ze_result_t;
        zeFenceReset: zeFenceReset_t = fn(hFence: ze_fence_handle_t) -> ze_result_t;
        zeMemAllocShared: zeMemAllocShared_t = fn(
            hContext: ze_context_handle_t, device_desc: *const ze_device_mem_alloc_desc_t,
            host_desc: *const ze_host_mem_alloc_desc_t, size: usize, alignment: usize, hDevice: ze_device_handle_t,
            pptr: *mut *mut c_void,
        ) -> ze_result_t;
        zeMemAllocDevice: zeMemAllocDevice_t = fn(
            hContext: ze_context_handle_t, device_desc: *const ze_device_mem_alloc_desc_t, size: usize,
            alignment: usize, hDevice: ze_device_handle_t, pptr: *mut *mut c_void,
        ) -> ze_result_t;
        zeMemAllocHost: zeMemAllocHost_t = fn(
            hContext: ze_context_handle_t, host_desc: *const ze_host_mem_alloc_desc_t, size: usize, alignment: usize,
            pptr: *mut *mut c_void,
        ) -> ze_result_t;
        zeMemFree: zeMemFree_t = fn(hContext: ze_context_handle_t, ptr: *mut c_void) -> ze_result_t;
        zeMemGetAllocProperties: zeMemGetAllocProperties_t = fn(
            hContext: ze_context_handle_t, ptr: *const c_void,
            pMemAllocProperties: *mut ze_memory_allocation_properties_t, phDevice: *mut ze_device_handle_t,
        ) -> ze_result_t;
        zeMemGetAddressRange: zeMemGetAddressRange_t = fn(
            hContext: ze_context_handle_t, ptr: *const c_void, pBase: *mut *mut c_void, pSize: *mut usize,
        ) -> ze_result_t;
        zeMemGetIpcHandle: zeMemGetIpcHandle_t = fn(
            hContext: ze_context_handle_t, ptr: *const c_void, pIpcHandle: *mut ze_ipc_mem_handle_t,
        ) -> ze_result_t;
        zeMemPutIpcHandle: zeMemPutIpcHandle_t = fn(
            hContext: ze_context_handle_t, handle: ze_ipc_mem_handle_t,
        ) -> ze_result_t;
        zeMemOpenIpcHandle: zeMemOpenIpcHandle_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, handle: ze_ipc_mem_handle_t,
            flags: ze_ipc_memory_flags_t, pptr: *mut *mut c_void,
        ) -> ze_result_t;
        zeMemCloseIpcHandle: zeMemCloseIpcHandle_t = fn(
            hContext: ze_context_handle_t, ptr: *const c_void,
        ) -> ze_result_t;
        zeModuleCreate: zeModuleCreate_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, desc: *const ze_module_desc_t,
            phModule: *mut ze_module_handle_t, phBuildLog: *mut ze_module_build_log_handle_t,
        ) -> ze_result_t;
        zeModuleDestroy: zeModuleDestroy_t = fn(hModule: ze_module_handle_t) -> ze_result_t;
        zeModuleBuildLogDestroy: zeModuleBuildLogDestroy_t = fn(
            hModuleBuildLog: ze_module_build_log_handle_t,
        ) -> ze_result_t;
        zeModuleBuildLogGetString: zeModuleBuildLogGetString_t = fn(
            hModuleBuildLog: ze_module_build_log_handle_t, pSize: *mut usize, pBuildLog: *mut c_char,
        ) -> ze_result_t;
        zeModuleGetNativeBinary: zeModuleGetNativeBinary_t = fn(
            hModule: ze_module_handle_t, pSize: *mut usize, pModuleNativeBinary: *mut u8,
        ) -> ze_result_t;
        zeModuleGetKernelNames: zeModuleGetKernelNames_t = fn(
            hModule: ze_module_handle_t, pCount: *mut u32, pNames: *mut *const c_char,
        ) -> ze_result_t;
        zeModuleGetProperties: zeModuleGetProperties_t = fn(
            hModule: ze_module_handle_t, pModuleProperties: *mut ze_module_properties_t,
        ) -> ze_result_t;
        zeKernelCreate: zeKernelCreate_t = fn(
            hModule: ze_module_handle_t, desc: *const ze_kernel_desc_t, phKernel: *mut ze_kernel_handle_t,
        ) -> ze_result_t;
        zeKernelDestroy: zeKernelDestroy_t = fn(hKernel: ze_kernel_handle_t) -> ze_result_t;
        zeKernelSetGroupSize: zeKernelSetGroupSize_t = fn(
            hKernel: ze_kernel_handle_t, groupSizeX: u32, groupSizeY: u32, groupSizeZ: u32,
        ) -> ze_result_t;
        zeKernelSuggestGroupSize: zeKernelSuggestGroupSize_t = fn(
            hKernel: ze_kernel_handle_t, globalSizeX: u32, globalSizeY: u32, globalSizeZ: u32, groupSizeX: *mut u32,
            groupSizeY: *mut u32, groupSizeZ: *mut u32,
        ) -> ze_result_t;
        zeKernelSuggestMaxCooperativeGroupCount: zeKernelSuggestMaxCooperativeGroupCount_t = fn(
            hKernel: ze_kernel_handle_t, totalGroupCount: *mut u32,
        ) -> ze_result_t;
        zeKernelSetArgumentValue: zeKernelSetArgumentValue_t = fn(
            hKernel: ze_kernel_handle_t, argIndex: u32, argSize: usize, pArgValue: *const c_void,
        ) -> ze_result_t;
        zeKernelSetIndirectAccess: zeKernelSetIndirectAccess_t = fn(
            hKernel: ze_kernel_handle_t, flags: ze_kernel_indirect_access_flags_t,
        ) -> ze_result_t;
        zeKernelSetCacheConfig: zeKernelSetCacheConfig_t = fn(
            hKernel: ze_kernel_handle_t, flags: ze_cache_config_flags_t,
        ) -> ze_result_t;
        zeKernelGetProperties: zeKernelGetProperties_t = fn(
            hKernel: ze_kernel_handle_t, pKernelProperties: *mut ze_kernel_properties_t,
        ) -> ze_result_t;
        zeKernelGetName: zeKernelGetName_t = fn(
            hKernel: ze_kernel_handle_t, pSize: *mut usize, pName: *mut c_char,
        ) -> ze_result_t;
        zeCommandListAppendLaunchKernel: zeCommandListAppendLaunchKernel_t = fn(
            hCommandList: ze_command_list_handle_t, hKernel: ze_kernel_handle_t,
            pLaunchFuncArgs: *const ze_group_count_t, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendLaunchCooperativeKernel: zeCommandListAppendLaunchCooperativeKernel_t = fn(
            hCommandList: ze_command_list_handle_t, hKernel: ze_kernel_handle_t,
            pLaunchFuncArgs: *const ze_group_count_t, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
    }
    optional {
        zeInitDrivers: zeInitDrivers_t = fn(
            pCount: *mut u32, phDrivers: *mut ze_driver_handle_t, desc: *mut ze_init_driver_type_desc_t,
        ) -> ze_result_t;
        zeDriverGetDefaultContext: zeDriverGetDefaultContext_t = fn(hDriver: ze_driver_handle_t) -> ze_context_handle_t;
        zeDeviceGetRootDevice: zeDeviceGetRootDevice_t = fn(
            hDevice: ze_device_handle_t, phRootDevice: *mut ze_device_handle_t,
        ) -> ze_result_t;
        zeDeviceSynchronize: zeDeviceSynchronize_t = fn(hDevice: ze_device_handle_t) -> ze_result_t;
        zeDevicePciGetPropertiesExt: zeDevicePciGetPropertiesExt_t = fn(
            hDevice: ze_device_handle_t, pPciProperties: *mut ze_pci_ext_properties_t,
        ) -> ze_result_t;
        zeCommandListGetDeviceHandle: zeCommandListGetDeviceHandle_t = fn(
            hCommandList: ze_command_list_handle_t, phDevice: *mut ze_device_handle_t,
        ) -> ze_result_t;
        zeCommandListGetContextHandle: zeCommandListGetContextHandle_t = fn(
            hCommandList: ze_command_list_handle_t, phContext: *mut ze_context_handle_t,
        ) -> ze_result_t;
        zeCommandListGetOrdinal: zeCommandListGetOrdinal_t = fn(
            hCommandList: ze_command_list_handle_t, pOrdinal: *mut u32,
        ) -> ze_result_t;
        zeCommandListImmediateGetIndex: zeCommandListImmediateGetIndex_t = fn(
            hCommandListImmediate: ze_command_list_handle_t, pIndex: *mut u32,
        ) -> ze_result_t;
        zeCommandListIsImmediate: zeCommandListIsImmediate_t = fn(
            hCommandList: ze_command_list_handle_t, pIsImmediate: *mut ze_bool_t,
        ) -> ze_result_t;
        zeCommandListImmediateAppendCommandListsExp: zeCommandListImmediateAppendCommandListsExp_t = fn(
            hCommandListImmediate: ze_command_list_handle_t, numCommandLists: u32,
            phCommandLists: *mut ze_command_list_handle_t, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandQueueGetOrdinal: zeCommandQueueGetOrdinal_t = fn(
            hCommandQueue: ze_command_queue_handle_t, pOrdinal: *mut u32,
        ) -> ze_result_t;
        zeCommandQueueGetIndex: zeCommandQueueGetIndex_t = fn(
            hCommandQueue: ze_command_queue_handle_t, pIndex: *mut u32,
        ) -> ze_result_t;
        zeEventGetEventPool: zeEventGetEventPool_t = fn(
            hEvent: ze_event_handle_t, phEventPool: *mut ze_event_pool_handle_t,
        ) -> ze_result_t;
        zeEventGetSignalScope: zeEventGetSignalScope_t = fn(
            hEvent: ze_event_handle_t, pSignalScope: *mut ze_event_scope_flags_t,
        ) -> ze_result_t;
        zeEventGetWaitScope: zeEventGetWaitScope_t = fn(
            hEvent: ze_event_handle_t, pWaitScope: *mut ze_event_scope_flags_t,
        ) -> ze_result_t;
        zeEventPoolGetContextHandle: zeEventPoolGetContextHandle_t = fn(
            hEventPool: ze_event_pool_handle_t, phContext: *mut ze_context_handle_t,
        ) -> ze_result_t;
        zeEventPoolGetFlags: zeEventPoolGetFlags_t = fn(
            hEventPool: ze_event_pool_handle_t, pFlags: *mut ze_event_pool_flags_t,
        ) -> ze_result_t;
        zeEventQueryKernelTimestampsExt: zeEventQueryKernelTimestampsExt_t = fn(
            hEvent: ze_event_handle_t, hDevice: ze_device_handle_t, pCount: *mut u32,
            pResults: *mut ze_event_query_kernel_timestamps_results_ext_properties_t,
        ) -> ze_result_t;
        zeMemFreeExt: zeMemFreeExt_t = fn(
            hContext: ze_context_handle_t, pMemFreeDesc: *const ze_memory_free_ext_desc_t, ptr: *mut c_void,
        ) -> ze_result_t;
        zeMemGetIpcHandleFromFileDescriptorExp: zeMemGetIpcHandleFromFileDescriptorExp_t = fn(
            hContext: ze_context_handle_t, handle: u64, pIpcHandle: *mut ze_ipc_mem_handle_t,
        ) -> ze_result_t;
        zeMemGetFileDescriptorFromIpcHandleExp: zeMemGetFileDescriptorFromIpcHandleExp_t = fn(
            hContext: ze_context_handle_t, ipcHandle: ze_ipc_mem_handle_t, pHandle: *mut u64,
        ) -> ze_result_t;
        zeKernelSetGlobalOffsetExp: zeKernelSetGlobalOffsetExp_t = fn(
            hKernel: ze_kernel_handle_t, offsetX: u32, offsetY: u32, offsetZ: u32,
        ) -> ze_result_t;
        zeDeviceGetImageProperties: zeDeviceGetImageProperties_t = fn(
            hDevice: ze_device_handle_t, pImageProperties: *mut ze_device_image_properties_t,
        ) -> ze_result_t;
        zeKernelGetIndirectAccess: zeKernelGetIndirectAccess_t = fn(
            hKernel: ze_kernel_handle_t, pFlags: *mut ze_kernel_indirect_access_flags_t,
        ) -> ze_result_t;
        zeKernelGetSourceAttributes: zeKernelGetSourceAttributes_t = fn(
            hKernel: ze_kernel_handle_t, pSize: *mut u32, pString: *mut *mut c_char,
        ) -> ze_result_t;
        zeCommandListAppendMemoryCopyRegion: zeCommandListAppendMemoryCopyRegion_t = fn(
            hCommandList: ze_command_list_handle_t, dstptr: *mut c_void, dstRegion: *const ze_copy_region_t,
            dstPitch: u32, dstSlicePitch: u32, srcptr: *const c_void, srcRegion: *const ze_copy_region_t,
            srcPitch: u32, srcSlicePitch: u32, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendMemoryCopyFromContext: zeCommandListAppendMemoryCopyFromContext_t = fn(
            hCommandList: ze_command_list_handle_t, dstptr: *mut c_void, hContextSrc: ze_context_handle_t,
            srcptr: *const c_void, size: usize, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListGetNextCommandIdExp: zeCommandListGetNextCommandIdExp_t = fn(
            hCommandList: ze_command_list_handle_t, desc: *const ze_mutable_command_id_exp_desc_t,
            pCommandId: *mut u64,
        ) -> ze_result_t;
        zeCommandListGetNextCommandIdWithKernelsExp: zeCommandListGetNextCommandIdWithKernelsExp_t = fn(
            hCommandList: ze_command_list_handle_t, desc: *const ze_mutable_command_id_exp_desc_t, numKernels: u32,
            phKernels: *mut ze_kernel_handle_t, pCommandId: *mut u64,
        ) -> ze_result_t;
        zeCommandListUpdateMutableCommandsExp: zeCommandListUpdateMutableCommandsExp_t = fn(
            hCommandList: ze_command_list_handle_t, desc: *const ze_mutable_commands_exp_desc_t,
        ) -> ze_result_t;
        zeCommandListUpdateMutableCommandSignalEventExp: zeCommandListUpdateMutableCommandSignalEventExp_t = fn(
            hCommandList: ze_command_list_handle_t, commandId: u64, hSignalEvent: ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListUpdateMutableCommandWaitEventsExp: zeCommandListUpdateMutableCommandWaitEventsExp_t = fn(
            hCommandList: ze_command_list_handle_t, commandId: u64, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListUpdateMutableCommandKernelsExp: zeCommandListUpdateMutableCommandKernelsExp_t = fn(
            hCommandList: ze_command_list_handle_t, numKernels: u32, pCommandId: *mut u64,
            phKernels: *mut ze_kernel_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendQueryKernelTimestamps: zeCommandListAppendQueryKernelTimestamps_t = fn(
            hCommandList: ze_command_list_handle_t, numEvents: u32, phEvents: *mut ze_event_handle_t,
            dstptr: *mut c_void, pOffsets: *const usize, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeVirtualMemReserve: zeVirtualMemReserve_t = fn(
            hContext: ze_context_handle_t, pStart: *const c_void, size: usize, pptr: *mut *mut c_void,
        ) -> ze_result_t;
        zeVirtualMemFree: zeVirtualMemFree_t = fn(
            hContext: ze_context_handle_t, ptr: *const c_void, size: usize,
        ) -> ze_result_t;
        zeVirtualMemQueryPageSize: zeVirtualMemQueryPageSize_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, size: usize, pagesize: *mut usize,
        ) -> ze_result_t;
        zeVirtualMemMap: zeVirtualMemMap_t = fn(
            hContext: ze_context_handle_t, ptr: *const c_void, size: usize, hPhysicalMemory: ze_physical_mem_handle_t,
            offset: usize, access: ze_memory_access_attribute_t,
        ) -> ze_result_t;
        zeVirtualMemUnmap: zeVirtualMemUnmap_t = fn(
            hContext: ze_context_handle_t, ptr: *const c_void, size: usize,
        ) -> ze_result_t;
        zeVirtualMemSetAccessAttribute: zeVirtualMemSetAccessAttribute_t = fn(
            hContext: ze_context_handle_t, ptr: *const c_void, size: usize, access: ze_memory_access_attribute_t,
        ) -> ze_result_t;
        zeVirtualMemGetAccessAttribute: zeVirtualMemGetAccessAttribute_t = fn(
            hContext: ze_context_handle_t, ptr: *const c_void, size: usize,
            access: *mut ze_memory_access_attribute_t, outSize: *mut usize,
        ) -> ze_result_t;
        zePhysicalMemCreate: zePhysicalMemCreate_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, desc: *mut ze_physical_mem_desc_t,
            phPhysicalMemory: *mut ze_physical_mem_handle_t,
        ) -> ze_result_t;
        zePhysicalMemDestroy: zePhysicalMemDestroy_t = fn(
            hContext: ze_context_handle_t, hPhysicalMemory: ze_physical_mem_handle_t,
        ) -> ze_result_t;
    }
    extension {
        zePhysicalMemGetProperties: zePhysicalMemGetProperties_t = fn(
            hContext: ze_context_handle_t, hPhysicalMem: ze_physical_mem_handle_t,
            pMemProperties: *mut ze_physical_mem_properties_t,
        ) -> ze_result_t;
        zeCommandListIsMutableExp: zeCommandListIsMutableExp_t = fn(
            hCommandList: ze_command_list_handle_t, pIsMutable: *mut ze_bool_t,
        ) -> ze_result_t;
        zeCommandListAppendMemoryCopyWithParameters: zeCommandListAppendMemoryCopyWithParameters_t = fn(
            hCommandList: ze_command_list_handle_t, dstptr: *mut c_void, srcptr: *const c_void, size: usize,
            pNext: *const c_void, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendMemoryFillWithParameters: zeCommandListAppendMemoryFillWithParameters_t = fn(
            hCommandList: ze_command_list_handle_t, ptr: *mut c_void, pattern: *const c_void, pattern_size: usize,
            size: usize, pNext: *const c_void, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandQueueGetFlags: zeCommandQueueGetFlags_t = fn(
            hCmdQueue: ze_command_queue_handle_t, pFlags: *mut ze_command_queue_flags_t,
        ) -> ze_result_t;
        zeCommandQueueGetMode: zeCommandQueueGetMode_t = fn(
            hCmdQueue: ze_command_queue_handle_t, pMode: *mut ze_command_queue_mode_t,
        ) -> ze_result_t;
        zeCommandQueueGetPriority: zeCommandQueueGetPriority_t = fn(
            hCmdQueue: ze_command_queue_handle_t, pPriority: *mut ze_command_queue_priority_t,
        ) -> ze_result_t;
        zeCommandListImmediateGetPriority: zeCommandListImmediateGetPriority_t = fn(
            hCommandList: ze_command_list_handle_t, pPriority: *mut ze_command_queue_priority_t,
        ) -> ze_result_t;
        zeCommandListAppendLaunchKernelWithParameters: zeCommandListAppendLaunchKernelWithParameters_t = fn(
            hCommandList: ze_command_list_handle_t, hKernel: ze_kernel_handle_t, pGroupCounts: *const ze_group_count_t,
            pNext: *const c_void, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendLaunchKernelWithArguments: zeCommandListAppendLaunchKernelWithArguments_t = fn(
            hCommandList: ze_command_list_handle_t, hKernel: ze_kernel_handle_t, groupCounts: ze_group_count_t,
            groupSizes: ze_group_size_t, pArguments: *mut *mut c_void, pNext: *const c_void,
            hSignalEvent: ze_event_handle_t, numWaitEvents: u32, phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListImmediateAppendCommandListsWithParameters: zeCommandListImmediateAppendCommandListsWithParameters_t = fn(
            hCommandListImmediate: ze_command_list_handle_t, numCommandLists: u32,
            phCommandLists: *mut ze_command_list_handle_t, pNext: *const c_void, hSignalEvent: ze_event_handle_t,
            numWaitEvents: u32, phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeCommandListGetFlags: zeCommandListGetFlags_t = fn(
            hCommandList: ze_command_list_handle_t, pFlags: *mut ze_command_list_flags_t,
        ) -> ze_result_t;
        zeCommandListImmediateGetFlags: zeCommandListImmediateGetFlags_t = fn(
            hCommandList: ze_command_list_handle_t, pFlags: *mut ze_command_queue_flags_t,
        ) -> ze_result_t;
        zeCommandListImmediateGetMode: zeCommandListImmediateGetMode_t = fn(
            hCommandList: ze_command_list_handle_t, pMode: *mut ze_command_queue_mode_t,
        ) -> ze_result_t;
        zeMemGetIpcHandleWithProperties: zeMemGetIpcHandleWithProperties_t = fn(
            hContext: ze_context_handle_t, ptr: *const c_void, pNext: *mut c_void, pIpcHandle: *mut ze_ipc_mem_handle_t,
        ) -> ze_result_t;
        zeEventCounterBasedCreate: zeEventCounterBasedCreate_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, desc: *const ze_event_counter_based_desc_t,
            phEvent: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeEventCounterBasedGetIpcHandle: zeEventCounterBasedGetIpcHandle_t = fn(
            hEvent: ze_event_handle_t, phIpc: *mut ze_ipc_event_counter_based_handle_t,
        ) -> ze_result_t;
        zeEventCounterBasedOpenIpcHandle: zeEventCounterBasedOpenIpcHandle_t = fn(
            hContext: ze_context_handle_t, hIpc: ze_ipc_event_counter_based_handle_t, phEvent: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeEventCounterBasedCloseIpcHandle: zeEventCounterBasedCloseIpcHandle_t = fn(
            hEvent: ze_event_handle_t,
        ) -> ze_result_t;
        zeEventCounterBasedGetDeviceAddress: zeEventCounterBasedGetDeviceAddress_t = fn(
            hEvent: ze_event_handle_t, completionValue: *mut u64, deviceAddress: *mut u64,
        ) -> ze_result_t;
        zeEventGetCounterBasedFlags: zeEventGetCounterBasedFlags_t = fn(
            hEvent: ze_event_handle_t, pFlags: *mut ze_event_counter_based_flags_t,
        ) -> ze_result_t;
        zeDeviceGetCounterBasedEventMaxValue: zeDeviceGetCounterBasedEventMaxValue_t = fn(
            hDevice: ze_device_handle_t, maxValue: *mut u64,
        ) -> ze_result_t;
        zeDeviceGetAggregatedCopyOffloadIncrementValue: zeDeviceGetAggregatedCopyOffloadIncrementValue_t = fn(
            hDevice: ze_device_handle_t, incrementValue: *mut u32,
        ) -> ze_result_t;
        zeCommandListAppendHostFunction: zeCommandListAppendHostFunction_t = fn(
            hCommandList: ze_command_list_handle_t, pfnHostFunction: ze_host_function_callback_t,
            pUserData: *mut c_void, pNext: *const c_void, hSignalEvent: ze_event_handle_t, numWaitEvents: u32,
            phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeGraphCreateExt: zeGraphCreateExt_t = fn(
            hContext: ze_context_handle_t, pNext: *const c_void, phGraph: *mut ze_graph_handle_t,
        ) -> ze_result_t;
        zeCommandListBeginGraphCaptureExt: zeCommandListBeginGraphCaptureExt_t = fn(
            hCommandList: ze_command_list_handle_t, pNext: *const c_void,
        ) -> ze_result_t;
        zeCommandListBeginCaptureIntoGraphExt: zeCommandListBeginCaptureIntoGraphExt_t = fn(
            hCommandList: ze_command_list_handle_t, hGraph: ze_graph_handle_t, pNext: *const c_void,
        ) -> ze_result_t;
        zeCommandListIsGraphCaptureEnabledExt: zeCommandListIsGraphCaptureEnabledExt_t = fn(
            hCommandList: ze_command_list_handle_t,
        ) -> ze_result_t;
        zeCommandListEndGraphCaptureExt: zeCommandListEndGraphCaptureExt_t = fn(
            hCommandList: ze_command_list_handle_t, pNext: *const c_void, phGraph: *mut ze_graph_handle_t,
        ) -> ze_result_t;
        zeCommandListGetGraphExt: zeCommandListGetGraphExt_t = fn(
            hCommandList: ze_command_list_handle_t, phGraph: *mut ze_graph_handle_t,
        ) -> ze_result_t;
        zeGraphGetPrimaryCommandListExt: zeGraphGetPrimaryCommandListExt_t = fn(
            hGraph: ze_graph_handle_t, phCommandList: *mut ze_command_list_handle_t,
        ) -> ze_result_t;
        zeGraphSetDestructionCallbackExt: zeGraphSetDestructionCallbackExt_t = fn(
            hGraph: ze_graph_handle_t, pfnCallback: zex_mem_graph_free_callback_fn_t, pUserData: *mut c_void,
            pNext: *const c_void,
        ) -> ze_result_t;
        zeGraphInstantiateExt: zeGraphInstantiateExt_t = fn(
            hGraph: ze_graph_handle_t, pNext: *const c_void, phExecutableGraph: *mut ze_executable_graph_handle_t,
        ) -> ze_result_t;
        zeCommandListAppendGraphExt: zeCommandListAppendGraphExt_t = fn(
            hCommandList: ze_command_list_handle_t, hGraph: ze_executable_graph_handle_t, pNext: *const c_void,
            hSignalEvent: ze_event_handle_t, numWaitEvents: u32, phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeExecutableGraphGetSourceGraphExt: zeExecutableGraphGetSourceGraphExt_t = fn(
            hGraph: ze_executable_graph_handle_t, phSourceGraph: *mut ze_graph_handle_t,
        ) -> ze_result_t;
        zeGraphIsEmptyExt: zeGraphIsEmptyExt_t = fn(hGraph: ze_graph_handle_t) -> ze_result_t;
        zeGraphDumpContentsExt: zeGraphDumpContentsExt_t = fn(
            hGraph: ze_graph_handle_t, filePath: *const c_char, pNext: *const c_void,
        ) -> ze_result_t;
        zeExecutableGraphDestroyExt: zeExecutableGraphDestroyExt_t = fn(
            hGraph: ze_executable_graph_handle_t,
        ) -> ze_result_t;
        zeGraphDestroyExt: zeGraphDestroyExt_t = fn(hGraph: ze_graph_handle_t) -> ze_result_t;
    }
    vendor {
        zexDriverImportExternalPointer: zexDriverImportExternalPointer_t = fn(
            hDriver: ze_driver_handle_t, ptr: *mut c_void, size: usize,
        ) -> ze_result_t;
        zexDriverReleaseImportedPointer: zexDriverReleaseImportedPointer_t = fn(
            hDriver: ze_driver_handle_t, ptr: *mut c_void,
        ) -> ze_result_t;
        zexDriverGetHostPointerBaseAddress: zexDriverGetHostPointerBaseAddress_t = fn(
            hDriver: ze_driver_handle_t, ptr: *mut c_void, baseAddress: *mut *mut c_void,
        ) -> ze_result_t;
        zexEventGetDeviceAddress: zexEventGetDeviceAddress_t = fn(
            event: ze_event_handle_t, completionValue: *mut u64, address: *mut u64,
        ) -> ze_result_t;
        zexCounterBasedEventCreate2: zexCounterBasedEventCreate2_t = fn(
            hContext: ze_context_handle_t, hDevice: ze_device_handle_t, desc: *const zex_counter_based_event_desc_t,
            phEvent: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zexCounterBasedEventGetIpcHandle: zexCounterBasedEventGetIpcHandle_t = fn(
            hEvent: ze_event_handle_t, phIpc: *mut zex_ipc_counter_based_event_handle_t,
        ) -> ze_result_t;
        zexCounterBasedEventOpenIpcHandle: zexCounterBasedEventOpenIpcHandle_t = fn(
            hContext: ze_context_handle_t, hIpc: zex_ipc_counter_based_event_handle_t, phEvent: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zexCounterBasedEventCloseIpcHandle: zexCounterBasedEventCloseIpcHandle_t = fn(
            hEvent: ze_event_handle_t,
        ) -> ze_result_t;
        zeGraphCreateExp: zeGraphCreateExp_t = fn(
            hContext: ze_context_handle_t, phGraph: *mut ze_graph_handle_t, pNext: *mut c_void,
        ) -> ze_result_t;
        zeCommandListBeginGraphCaptureExp: zeCommandListBeginGraphCaptureExp_t = fn(
            hCommandList: ze_command_list_handle_t, pNext: *mut c_void,
        ) -> ze_result_t;
        zeCommandListBeginCaptureIntoGraphExp: zeCommandListBeginCaptureIntoGraphExp_t = fn(
            hCommandList: ze_command_list_handle_t, hGraph: ze_graph_handle_t, pNext: *mut c_void,
        ) -> ze_result_t;
        zeCommandListEndGraphCaptureExp: zeCommandListEndGraphCaptureExp_t = fn(
            hCommandList: ze_command_list_handle_t, phGraph: *mut ze_graph_handle_t, pNext: *mut c_void,
        ) -> ze_result_t;
        zeCommandListInstantiateGraphExp: zeCommandListInstantiateGraphExp_t = fn(
            hGraph: ze_graph_handle_t, phExecutableGraph: *mut ze_executable_graph_handle_t, pNext: *mut c_void,
        ) -> ze_result_t;
        zeCommandListAppendGraphExp: zeCommandListAppendGraphExp_t = fn(
            hCommandList: ze_command_list_handle_t, hGraph: ze_executable_graph_handle_t, pNext: *mut c_void,
            hSignalEvent: ze_event_handle_t, numWaitEvents: u32, phWaitEvents: *mut ze_event_handle_t,
        ) -> ze_result_t;
        zeGraphDestroyExp: zeGraphDestroyExp_t = fn(hGraph: ze_graph_handle_t) -> ze_result_t;
        zeExecutableGraphDestroyExp: zeExecutableGraphDestroyExp_t = fn(
            hGraph: ze_executable_graph_handle_t,
        ) -> ze_result_t;
        zeCommandListIsGraphCaptureEnabledExp: zeCommandListIsGraphCaptureEnabledExp_t = fn(
            hCommandList: ze_command_list_handle_t,
        ) -> ze_result_t;
        zeGraphIsEmptyExp: zeGraphIsEmptyExp_t = fn(hGraph: ze_graph_handle_t) -> ze_result_t;
        zeGraphDumpContentsExp: zeGraphDumpContentsExp_t = fn(
            hGraph: ze_graph_handle_t, filePath: *const c_char, pNext: *mut c_void,
        ) -> ze_result_t;
        zeCommandListGetGraphExp: zeCommandListGetGraphExp_t = fn(
            hCommandList: ze_command_list_handle_t, phGraph: *mut ze_graph_handle_t,
        ) -> ze_result_t;
        zeGraphSetDestructionCallbackExp: zeGraphSetDestructionCallbackExp_t = fn(
            hGraph: ze_graph_handle_t, pfnCallback: zex_mem_graph_free_callback_fn_t, pUserData: *mut c_void,
            pNext: *mut c_void,
        ) -> ze_result_t;
    }
}
