//! The tables through which the loader asks a driver for its functions.
//!
//! Tables grow at their end: a driver writes only the slots that exist at the version it is asked for.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    reason = "mirrors the specification's names, which are documented there"
)]

use crate::functions::*;
use crate::types::*;

/// A slot for a function that this crate doesn't declare.
pub type OpaqueSlot = Option<unsafe extern "C" fn()>;

structs! {
    pub struct ze_rtas_builder_dditable_t {
        pub pfnCreateExt: OpaqueSlot,
        pub pfnGetBuildPropertiesExt: OpaqueSlot,
        pub pfnBuildExt: OpaqueSlot,
        pub pfnCommandListAppendCopyExt: OpaqueSlot,
        pub pfnDestroyExt: OpaqueSlot,
    }

    pub struct ze_rtas_builder_exp_dditable_t {
        pub pfnCreateExp: OpaqueSlot,
        pub pfnGetBuildPropertiesExp: OpaqueSlot,
        pub pfnBuildExp: OpaqueSlot,
        pub pfnDestroyExp: OpaqueSlot,
    }

    pub struct ze_rtas_parallel_operation_dditable_t {
        pub pfnCreateExt: OpaqueSlot,
        pub pfnGetPropertiesExt: OpaqueSlot,
        pub pfnJoinExt: OpaqueSlot,
        pub pfnDestroyExt: OpaqueSlot,
    }

    pub struct ze_rtas_parallel_operation_exp_dditable_t {
        pub pfnCreateExp: OpaqueSlot,
        pub pfnGetPropertiesExp: OpaqueSlot,
        pub pfnJoinExp: OpaqueSlot,
        pub pfnDestroyExp: OpaqueSlot,
    }

    pub struct ze_global_dditable_t {
        pub pfnInit: Option<zeInit_t>,
        pub pfnInitDrivers: Option<zeInitDrivers_t>,
    }

    pub struct ze_driver_dditable_t {
        pub pfnGet: Option<zeDriverGet_t>,
        pub pfnGetApiVersion: Option<zeDriverGetApiVersion_t>,
        pub pfnGetProperties: Option<zeDriverGetProperties_t>,
        pub pfnGetIpcProperties: Option<zeDriverGetIpcProperties_t>,
        pub pfnGetExtensionProperties: Option<zeDriverGetExtensionProperties_t>,
        pub pfnGetExtensionFunctionAddress: Option<zeDriverGetExtensionFunctionAddress_t>,
        pub pfnGetLastErrorDescription: Option<zeDriverGetLastErrorDescription_t>,
        pub pfnRTASFormatCompatibilityCheckExt: OpaqueSlot,
        pub pfnGetDefaultContext: Option<zeDriverGetDefaultContext_t>,
    }

    pub struct ze_driver_exp_dditable_t {
        pub pfnRTASFormatCompatibilityCheckExp: OpaqueSlot,
    }

    pub struct ze_device_dditable_t {
        pub pfnGet: Option<zeDeviceGet_t>,
        pub pfnGetSubDevices: Option<zeDeviceGetSubDevices_t>,
        pub pfnGetProperties: Option<zeDeviceGetProperties_t>,
        pub pfnGetComputeProperties: Option<zeDeviceGetComputeProperties_t>,
        pub pfnGetModuleProperties: Option<zeDeviceGetModuleProperties_t>,
        pub pfnGetCommandQueueGroupProperties: Option<zeDeviceGetCommandQueueGroupProperties_t>,
        pub pfnGetMemoryProperties: Option<zeDeviceGetMemoryProperties_t>,
        pub pfnGetMemoryAccessProperties: Option<zeDeviceGetMemoryAccessProperties_t>,
        pub pfnGetCacheProperties: Option<zeDeviceGetCacheProperties_t>,
        pub pfnGetImageProperties: Option<zeDeviceGetImageProperties_t>,
        pub pfnGetExternalMemoryProperties: Option<zeDeviceGetExternalMemoryProperties_t>,
        pub pfnGetP2PProperties: Option<zeDeviceGetP2PProperties_t>,
        pub pfnCanAccessPeer: Option<zeDeviceCanAccessPeer_t>,
        pub pfnGetStatus: Option<zeDeviceGetStatus_t>,
        pub pfnGetGlobalTimestamps: Option<zeDeviceGetGlobalTimestamps_t>,
        pub pfnReserveCacheExt: OpaqueSlot,
        pub pfnSetCacheAdviceExt: OpaqueSlot,
        pub pfnPciGetPropertiesExt: Option<zeDevicePciGetPropertiesExt_t>,
        pub pfnGetRootDevice: Option<zeDeviceGetRootDevice_t>,
        pub pfnImportExternalSemaphoreExt: OpaqueSlot,
        pub pfnReleaseExternalSemaphoreExt: OpaqueSlot,
        pub pfnGetVectorWidthPropertiesExt: OpaqueSlot,
        pub pfnSynchronize: Option<zeDeviceSynchronize_t>,
        pub pfnGetAggregatedCopyOffloadIncrementValue: Option<zeDeviceGetAggregatedCopyOffloadIncrementValue_t>,
        pub pfnGetRuntimeRequirements: OpaqueSlot,
        pub pfnGetRuntimeRequirementsKey: OpaqueSlot,
        pub pfnValidateRuntimeRequirements: OpaqueSlot,
        pub pfnGetCounterBasedEventMaxValue: Option<zeDeviceGetCounterBasedEventMaxValue_t>,
    }

    pub struct ze_device_exp_dditable_t {
        pub pfnGetFabricVertexExp: OpaqueSlot,
    }

    pub struct ze_context_dditable_t {
        pub pfnCreate: Option<zeContextCreate_t>,
        pub pfnDestroy: Option<zeContextDestroy_t>,
        pub pfnGetStatus: Option<zeContextGetStatus_t>,
        pub pfnSystemBarrier: Option<zeContextSystemBarrier_t>,
        pub pfnMakeMemoryResident: Option<zeContextMakeMemoryResident_t>,
        pub pfnEvictMemory: Option<zeContextEvictMemory_t>,
        pub pfnMakeImageResident: OpaqueSlot,
        pub pfnEvictImage: OpaqueSlot,
        pub pfnCreateEx: Option<zeContextCreateEx_t>,
    }

    pub struct ze_command_queue_dditable_t {
        pub pfnCreate: Option<zeCommandQueueCreate_t>,
        pub pfnDestroy: Option<zeCommandQueueDestroy_t>,
        pub pfnExecuteCommandLists: Option<zeCommandQueueExecuteCommandLists_t>,
        pub pfnSynchronize: Option<zeCommandQueueSynchronize_t>,
        pub pfnGetOrdinal: Option<zeCommandQueueGetOrdinal_t>,
        pub pfnGetIndex: Option<zeCommandQueueGetIndex_t>,
        pub pfnGetFlags: Option<zeCommandQueueGetFlags_t>,
        pub pfnGetMode: Option<zeCommandQueueGetMode_t>,
        pub pfnGetPriority: Option<zeCommandQueueGetPriority_t>,
    }

    pub struct ze_command_list_dditable_t {
        pub pfnCreate: Option<zeCommandListCreate_t>,
        pub pfnCreateImmediate: Option<zeCommandListCreateImmediate_t>,
        pub pfnDestroy: Option<zeCommandListDestroy_t>,
        pub pfnClose: Option<zeCommandListClose_t>,
        pub pfnReset: Option<zeCommandListReset_t>,
        pub pfnAppendWriteGlobalTimestamp: Option<zeCommandListAppendWriteGlobalTimestamp_t>,
        pub pfnAppendBarrier: Option<zeCommandListAppendBarrier_t>,
        pub pfnAppendMemoryRangesBarrier: Option<zeCommandListAppendMemoryRangesBarrier_t>,
        pub pfnAppendMemoryCopy: Option<zeCommandListAppendMemoryCopy_t>,
        pub pfnAppendMemoryFill: Option<zeCommandListAppendMemoryFill_t>,
        pub pfnAppendMemoryCopyRegion: Option<zeCommandListAppendMemoryCopyRegion_t>,
        pub pfnAppendMemoryCopyFromContext: Option<zeCommandListAppendMemoryCopyFromContext_t>,
        pub pfnAppendImageCopy: OpaqueSlot,
        pub pfnAppendImageCopyRegion: OpaqueSlot,
        pub pfnAppendImageCopyToMemory: OpaqueSlot,
        pub pfnAppendImageCopyFromMemory: OpaqueSlot,
        pub pfnAppendMemoryPrefetch: Option<zeCommandListAppendMemoryPrefetch_t>,
        pub pfnAppendMemAdvise: Option<zeCommandListAppendMemAdvise_t>,
        pub pfnAppendSignalEvent: Option<zeCommandListAppendSignalEvent_t>,
        pub pfnAppendWaitOnEvents: Option<zeCommandListAppendWaitOnEvents_t>,
        pub pfnAppendEventReset: Option<zeCommandListAppendEventReset_t>,
        pub pfnAppendQueryKernelTimestamps: OpaqueSlot,
        pub pfnAppendLaunchKernel: Option<zeCommandListAppendLaunchKernel_t>,
        pub pfnAppendLaunchCooperativeKernel: Option<zeCommandListAppendLaunchCooperativeKernel_t>,
        pub pfnAppendLaunchKernelIndirect: OpaqueSlot,
        pub pfnAppendLaunchMultipleKernelsIndirect: OpaqueSlot,
        pub pfnAppendImageCopyToMemoryExt: OpaqueSlot,
        pub pfnAppendImageCopyFromMemoryExt: OpaqueSlot,
        pub pfnHostSynchronize: Option<zeCommandListHostSynchronize_t>,
        pub pfnGetDeviceHandle: Option<zeCommandListGetDeviceHandle_t>,
        pub pfnGetContextHandle: Option<zeCommandListGetContextHandle_t>,
        pub pfnGetOrdinal: Option<zeCommandListGetOrdinal_t>,
        pub pfnImmediateGetIndex: Option<zeCommandListImmediateGetIndex_t>,
        pub pfnIsImmediate: Option<zeCommandListIsImmediate_t>,
        pub pfnAppendSignalExternalSemaphoreExt: OpaqueSlot,
        pub pfnAppendWaitExternalSemaphoreExt: OpaqueSlot,
        pub pfnAppendLaunchKernelWithParameters: Option<zeCommandListAppendLaunchKernelWithParameters_t>,
        pub pfnAppendLaunchKernelWithArguments: Option<zeCommandListAppendLaunchKernelWithArguments_t>,
        pub pfnAppendMemoryCopyWithParameters: Option<zeCommandListAppendMemoryCopyWithParameters_t>,
        pub pfnAppendMemoryFillWithParameters: Option<zeCommandListAppendMemoryFillWithParameters_t>,
        pub pfnImmediateAppendCommandListsWithParameters: Option<zeCommandListImmediateAppendCommandListsWithParameters_t>,
        pub pfnGetFlags: Option<zeCommandListGetFlags_t>,
        pub pfnImmediateGetFlags: Option<zeCommandListImmediateGetFlags_t>,
        pub pfnImmediateGetMode: Option<zeCommandListImmediateGetMode_t>,
        pub pfnImmediateGetPriority: Option<zeCommandListImmediateGetPriority_t>,
        pub pfnBeginGraphCaptureExt: Option<zeCommandListBeginGraphCaptureExt_t>,
        pub pfnBeginCaptureIntoGraphExt: Option<zeCommandListBeginCaptureIntoGraphExt_t>,
        pub pfnIsGraphCaptureEnabledExt: Option<zeCommandListIsGraphCaptureEnabledExt_t>,
        pub pfnEndGraphCaptureExt: Option<zeCommandListEndGraphCaptureExt_t>,
        pub pfnGetGraphExt: Option<zeCommandListGetGraphExt_t>,
        pub pfnAppendGraphExt: Option<zeCommandListAppendGraphExt_t>,
        pub pfnAppendHostFunction: Option<zeCommandListAppendHostFunction_t>,
    }

    pub struct ze_command_list_exp_dditable_t {
        pub pfnCreateCloneExp: OpaqueSlot,
        pub pfnImmediateAppendCommandListsExp: Option<zeCommandListImmediateAppendCommandListsExp_t>,
        pub pfnGetNextCommandIdExp: Option<zeCommandListGetNextCommandIdExp_t>,
        pub pfnUpdateMutableCommandsExp: Option<zeCommandListUpdateMutableCommandsExp_t>,
        pub pfnUpdateMutableCommandSignalEventExp: Option<zeCommandListUpdateMutableCommandSignalEventExp_t>,
        pub pfnUpdateMutableCommandWaitEventsExp: Option<zeCommandListUpdateMutableCommandWaitEventsExp_t>,
        pub pfnGetNextCommandIdWithKernelsExp: Option<zeCommandListGetNextCommandIdWithKernelsExp_t>,
        pub pfnUpdateMutableCommandKernelsExp: Option<zeCommandListUpdateMutableCommandKernelsExp_t>,
        pub pfnIsMutableExp: Option<zeCommandListIsMutableExp_t>,
    }

    pub struct ze_image_dditable_t {
        pub pfnGetProperties: OpaqueSlot,
        pub pfnCreate: OpaqueSlot,
        pub pfnDestroy: OpaqueSlot,
        pub pfnGetAllocPropertiesExt: OpaqueSlot,
        pub pfnViewCreateExt: OpaqueSlot,
    }

    pub struct ze_image_exp_dditable_t {
        pub pfnGetMemoryPropertiesExp: OpaqueSlot,
        pub pfnViewCreateExp: OpaqueSlot,
        pub pfnGetDeviceOffsetExp: OpaqueSlot,
    }

    pub struct ze_mem_dditable_t {
        pub pfnAllocShared: Option<zeMemAllocShared_t>,
        pub pfnAllocDevice: Option<zeMemAllocDevice_t>,
        pub pfnAllocHost: Option<zeMemAllocHost_t>,
        pub pfnFree: Option<zeMemFree_t>,
        pub pfnGetAllocProperties: Option<zeMemGetAllocProperties_t>,
        pub pfnGetAddressRange: Option<zeMemGetAddressRange_t>,
        pub pfnGetIpcHandle: Option<zeMemGetIpcHandle_t>,
        pub pfnOpenIpcHandle: Option<zeMemOpenIpcHandle_t>,
        pub pfnCloseIpcHandle: Option<zeMemCloseIpcHandle_t>,
        pub pfnFreeExt: Option<zeMemFreeExt_t>,
        pub pfnPutIpcHandle: Option<zeMemPutIpcHandle_t>,
        pub pfnGetPitchFor2dImage: OpaqueSlot,
        pub pfnGetIpcHandleWithProperties: Option<zeMemGetIpcHandleWithProperties_t>,
    }

    pub struct ze_mem_exp_dditable_t {
        pub pfnGetIpcHandleFromFileDescriptorExp: Option<zeMemGetIpcHandleFromFileDescriptorExp_t>,
        pub pfnGetFileDescriptorFromIpcHandleExp: Option<zeMemGetFileDescriptorFromIpcHandleExp_t>,
        pub pfnSetAtomicAccessAttributeExp: OpaqueSlot,
        pub pfnGetAtomicAccessAttributeExp: OpaqueSlot,
    }

    pub struct ze_fence_dditable_t {
        pub pfnCreate: Option<zeFenceCreate_t>,
        pub pfnDestroy: Option<zeFenceDestroy_t>,
        pub pfnHostSynchronize: Option<zeFenceHostSynchronize_t>,
        pub pfnQueryStatus: Option<zeFenceQueryStatus_t>,
        pub pfnReset: Option<zeFenceReset_t>,
    }

    pub struct ze_event_pool_dditable_t {
        pub pfnCreate: Option<zeEventPoolCreate_t>,
        pub pfnDestroy: Option<zeEventPoolDestroy_t>,
        pub pfnGetIpcHandle: Option<zeEventPoolGetIpcHandle_t>,
        pub pfnOpenIpcHandle: Option<zeEventPoolOpenIpcHandle_t>,
        pub pfnCloseIpcHandle: Option<zeEventPoolCloseIpcHandle_t>,
        pub pfnPutIpcHandle: Option<zeEventPoolPutIpcHandle_t>,
        pub pfnGetContextHandle: Option<zeEventPoolGetContextHandle_t>,
        pub pfnGetFlags: Option<zeEventPoolGetFlags_t>,
    }

    pub struct ze_event_dditable_t {
        pub pfnCreate: Option<zeEventCreate_t>,
        pub pfnDestroy: Option<zeEventDestroy_t>,
        pub pfnHostSignal: Option<zeEventHostSignal_t>,
        pub pfnHostSynchronize: Option<zeEventHostSynchronize_t>,
        pub pfnQueryStatus: Option<zeEventQueryStatus_t>,
        pub pfnHostReset: Option<zeEventHostReset_t>,
        pub pfnQueryKernelTimestamp: Option<zeEventQueryKernelTimestamp_t>,
        pub pfnQueryKernelTimestampsExt: Option<zeEventQueryKernelTimestampsExt_t>,
        pub pfnGetEventPool: Option<zeEventGetEventPool_t>,
        pub pfnGetSignalScope: Option<zeEventGetSignalScope_t>,
        pub pfnGetWaitScope: Option<zeEventGetWaitScope_t>,
        pub pfnCounterBasedCreate: Option<zeEventCounterBasedCreate_t>,
        pub pfnCounterBasedGetIpcHandle: Option<zeEventCounterBasedGetIpcHandle_t>,
        pub pfnCounterBasedOpenIpcHandle: Option<zeEventCounterBasedOpenIpcHandle_t>,
        pub pfnCounterBasedCloseIpcHandle: Option<zeEventCounterBasedCloseIpcHandle_t>,
        pub pfnCounterBasedGetDeviceAddress: Option<zeEventCounterBasedGetDeviceAddress_t>,
        pub pfnGetCounterBasedFlags: Option<zeEventGetCounterBasedFlags_t>,
    }

    pub struct ze_event_exp_dditable_t {
        pub pfnQueryTimestampsExp: OpaqueSlot,
    }

    pub struct ze_module_dditable_t {
        pub pfnCreate: Option<zeModuleCreate_t>,
        pub pfnDestroy: Option<zeModuleDestroy_t>,
        pub pfnDynamicLink: OpaqueSlot,
        pub pfnGetNativeBinary: Option<zeModuleGetNativeBinary_t>,
        pub pfnGetGlobalPointer: OpaqueSlot,
        pub pfnGetKernelNames: Option<zeModuleGetKernelNames_t>,
        pub pfnGetProperties: Option<zeModuleGetProperties_t>,
        pub pfnGetFunctionPointer: OpaqueSlot,
        pub pfnInspectLinkageExt: OpaqueSlot,
    }

    pub struct ze_module_build_log_dditable_t {
        pub pfnDestroy: Option<zeModuleBuildLogDestroy_t>,
        pub pfnGetString: Option<zeModuleBuildLogGetString_t>,
    }

    pub struct ze_kernel_dditable_t {
        pub pfnCreate: Option<zeKernelCreate_t>,
        pub pfnDestroy: Option<zeKernelDestroy_t>,
        pub pfnSetCacheConfig: Option<zeKernelSetCacheConfig_t>,
        pub pfnSetGroupSize: Option<zeKernelSetGroupSize_t>,
        pub pfnSuggestGroupSize: Option<zeKernelSuggestGroupSize_t>,
        pub pfnSuggestMaxCooperativeGroupCount: Option<zeKernelSuggestMaxCooperativeGroupCount_t>,
        pub pfnSetArgumentValue: Option<zeKernelSetArgumentValue_t>,
        pub pfnSetIndirectAccess: Option<zeKernelSetIndirectAccess_t>,
        pub pfnGetIndirectAccess: Option<zeKernelGetIndirectAccess_t>,
        pub pfnGetSourceAttributes: Option<zeKernelGetSourceAttributes_t>,
        pub pfnGetProperties: Option<zeKernelGetProperties_t>,
        pub pfnGetName: Option<zeKernelGetName_t>,
    }

    pub struct ze_kernel_exp_dditable_t {
        pub pfnSetGlobalOffsetExp: Option<zeKernelSetGlobalOffsetExp_t>,
        pub pfnSchedulingHintExp: OpaqueSlot,
        pub pfnGetBinaryExp: OpaqueSlot,
        pub pfnGetAllocationPropertiesExp: OpaqueSlot,
    }

    pub struct ze_sampler_dditable_t {
        pub pfnCreate: OpaqueSlot,
        pub pfnDestroy: OpaqueSlot,
    }

    pub struct ze_physical_mem_dditable_t {
        pub pfnCreate: OpaqueSlot,
        pub pfnDestroy: OpaqueSlot,
        pub pfnGetProperties: OpaqueSlot,
    }

    pub struct ze_virtual_mem_dditable_t {
        pub pfnReserve: OpaqueSlot,
        pub pfnFree: OpaqueSlot,
        pub pfnQueryPageSize: OpaqueSlot,
        pub pfnMap: OpaqueSlot,
        pub pfnUnmap: OpaqueSlot,
        pub pfnSetAccessAttribute: OpaqueSlot,
        pub pfnGetAccessAttribute: OpaqueSlot,
    }

    pub struct ze_fabric_vertex_exp_dditable_t {
        pub pfnGetExp: OpaqueSlot,
        pub pfnGetSubVerticesExp: OpaqueSlot,
        pub pfnGetPropertiesExp: OpaqueSlot,
        pub pfnGetDeviceExp: OpaqueSlot,
    }

    pub struct ze_fabric_edge_exp_dditable_t {
        pub pfnGetExp: OpaqueSlot,
        pub pfnGetVerticesExp: OpaqueSlot,
        pub pfnGetPropertiesExp: OpaqueSlot,
    }

    pub struct ze_graph_dditable_t {
        pub pfnCreateExt: Option<zeGraphCreateExt_t>,
        pub pfnGetPrimaryCommandListExt: Option<zeGraphGetPrimaryCommandListExt_t>,
        pub pfnSetDestructionCallbackExt: Option<zeGraphSetDestructionCallbackExt_t>,
        pub pfnInstantiateExt: Option<zeGraphInstantiateExt_t>,
        pub pfnIsEmptyExt: Option<zeGraphIsEmptyExt_t>,
        pub pfnDumpContentsExt: Option<zeGraphDumpContentsExt_t>,
        pub pfnDestroyExt: Option<zeGraphDestroyExt_t>,
    }

    pub struct ze_executable_graph_dditable_t {
        pub pfnGetSourceGraphExt: Option<zeExecutableGraphGetSourceGraphExt_t>,
        pub pfnDestroyExt: Option<zeExecutableGraphDestroyExt_t>,
    }
}

pub type zeGetRTASBuilderProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_rtas_builder_dditable_t) -> ze_result_t;
pub type zeGetRTASBuilderExpProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_rtas_builder_exp_dditable_t) -> ze_result_t;
pub type zeGetRTASParallelOperationProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_rtas_parallel_operation_dditable_t) -> ze_result_t;
pub type zeGetRTASParallelOperationExpProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_rtas_parallel_operation_exp_dditable_t) -> ze_result_t;
pub type zeGetGlobalProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_global_dditable_t) -> ze_result_t;
pub type zeGetDriverProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_driver_dditable_t) -> ze_result_t;
pub type zeGetDriverExpProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_driver_exp_dditable_t) -> ze_result_t;
pub type zeGetDeviceProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_device_dditable_t) -> ze_result_t;
pub type zeGetDeviceExpProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_device_exp_dditable_t) -> ze_result_t;
pub type zeGetContextProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_context_dditable_t) -> ze_result_t;
pub type zeGetCommandQueueProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_command_queue_dditable_t) -> ze_result_t;
pub type zeGetCommandListProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_command_list_dditable_t) -> ze_result_t;
pub type zeGetCommandListExpProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_command_list_exp_dditable_t) -> ze_result_t;
pub type zeGetImageProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_image_dditable_t) -> ze_result_t;
pub type zeGetImageExpProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_image_exp_dditable_t) -> ze_result_t;
pub type zeGetMemProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_mem_dditable_t) -> ze_result_t;
pub type zeGetMemExpProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_mem_exp_dditable_t) -> ze_result_t;
pub type zeGetFenceProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_fence_dditable_t) -> ze_result_t;
pub type zeGetEventPoolProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_event_pool_dditable_t) -> ze_result_t;
pub type zeGetEventProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_event_dditable_t) -> ze_result_t;
pub type zeGetEventExpProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_event_exp_dditable_t) -> ze_result_t;
pub type zeGetModuleProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_module_dditable_t) -> ze_result_t;
pub type zeGetModuleBuildLogProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_module_build_log_dditable_t) -> ze_result_t;
pub type zeGetKernelProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_kernel_dditable_t) -> ze_result_t;
pub type zeGetKernelExpProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_kernel_exp_dditable_t) -> ze_result_t;
pub type zeGetSamplerProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_sampler_dditable_t) -> ze_result_t;
pub type zeGetPhysicalMemProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_physical_mem_dditable_t) -> ze_result_t;
pub type zeGetVirtualMemProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_virtual_mem_dditable_t) -> ze_result_t;
pub type zeGetFabricVertexExpProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_fabric_vertex_exp_dditable_t) -> ze_result_t;
pub type zeGetFabricEdgeExpProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_fabric_edge_exp_dditable_t) -> ze_result_t;
pub type zeGetGraphProcAddrTable_t = unsafe extern "C" fn(ze_api_version_t, *mut ze_graph_dditable_t) -> ze_result_t;
pub type zeGetExecutableGraphProcAddrTable_t =
    unsafe extern "C" fn(ze_api_version_t, *mut ze_executable_graph_dditable_t) -> ze_result_t;
