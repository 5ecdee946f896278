//! The slots of the tables, in order, each with the minor version of the specification that brought it.

/// One table: the function that fills it, and its slots as (minor version, functions added by it).
pub(super) struct Table {
    pub(super) export: &'static str,
    pub(super) slots: &'static [(u32, &'static [&'static str])],
}

pub(super) const TABLES: &[Table] = &[
    Table {
        export: "zeGetRTASBuilderProcAddrTable",
        slots: &[(
            13,
            &[
                "zeRTASBuilderCreateExt",
                "zeRTASBuilderGetBuildPropertiesExt",
                "zeRTASBuilderBuildExt",
                "zeRTASBuilderCommandListAppendCopyExt",
                "zeRTASBuilderDestroyExt",
            ],
        )],
    },
    Table {
        export: "zeGetRTASBuilderExpProcAddrTable",
        slots: &[(
            7,
            &[
                "zeRTASBuilderCreateExp",
                "zeRTASBuilderGetBuildPropertiesExp",
                "zeRTASBuilderBuildExp",
                "zeRTASBuilderDestroyExp",
            ],
        )],
    },
    Table {
        export: "zeGetRTASParallelOperationProcAddrTable",
        slots: &[(
            13,
            &[
                "zeRTASParallelOperationCreateExt",
                "zeRTASParallelOperationGetPropertiesExt",
                "zeRTASParallelOperationJoinExt",
                "zeRTASParallelOperationDestroyExt",
            ],
        )],
    },
    Table {
        export: "zeGetRTASParallelOperationExpProcAddrTable",
        slots: &[(
            7,
            &[
                "zeRTASParallelOperationCreateExp",
                "zeRTASParallelOperationGetPropertiesExp",
                "zeRTASParallelOperationJoinExp",
                "zeRTASParallelOperationDestroyExp",
            ],
        )],
    },
    Table { export: "zeGetGlobalProcAddrTable", slots: &[(0, &["zeInit"]), (10, &["zeInitDrivers"])] },
    Table {
        export: "zeGetDriverProcAddrTable",
        slots: &[
            (
                0,
                &[
                    "zeDriverGet",
                    "zeDriverGetApiVersion",
                    "zeDriverGetProperties",
                    "zeDriverGetIpcProperties",
                    "zeDriverGetExtensionProperties",
                ],
            ),
            (1, &["zeDriverGetExtensionFunctionAddress"]),
            (6, &["zeDriverGetLastErrorDescription"]),
            (13, &["zeDriverRTASFormatCompatibilityCheckExt"]),
            (14, &["zeDriverGetDefaultContext"]),
        ],
    },
    Table { export: "zeGetDriverExpProcAddrTable", slots: &[(7, &["zeDriverRTASFormatCompatibilityCheckExp"])] },
    Table {
        export: "zeGetDeviceProcAddrTable",
        slots: &[
            (
                0,
                &[
                    "zeDeviceGet",
                    "zeDeviceGetSubDevices",
                    "zeDeviceGetProperties",
                    "zeDeviceGetComputeProperties",
                    "zeDeviceGetModuleProperties",
                    "zeDeviceGetCommandQueueGroupProperties",
                    "zeDeviceGetMemoryProperties",
                    "zeDeviceGetMemoryAccessProperties",
                    "zeDeviceGetCacheProperties",
                    "zeDeviceGetImageProperties",
                    "zeDeviceGetExternalMemoryProperties",
                    "zeDeviceGetP2PProperties",
                    "zeDeviceCanAccessPeer",
                    "zeDeviceGetStatus",
                ],
            ),
            (1, &["zeDeviceGetGlobalTimestamps"]),
            (2, &["zeDeviceReserveCacheExt", "zeDeviceSetCacheAdviceExt"]),
            (3, &["zeDevicePciGetPropertiesExt"]),
            (7, &["zeDeviceGetRootDevice"]),
            (12, &["zeDeviceImportExternalSemaphoreExt", "zeDeviceReleaseExternalSemaphoreExt"]),
            (13, &["zeDeviceGetVectorWidthPropertiesExt"]),
            (14, &["zeDeviceSynchronize"]),
            (15, &["zeDeviceGetAggregatedCopyOffloadIncrementValue"]),
            (
                16,
                &[
                    "zeDeviceGetRuntimeRequirements",
                    "zeDeviceGetRuntimeRequirementsKey",
                    "zeDeviceValidateRuntimeRequirements",
                ],
            ),
            (17, &["zeDeviceGetCounterBasedEventMaxValue"]),
        ],
    },
    Table { export: "zeGetDeviceExpProcAddrTable", slots: &[(4, &["zeDeviceGetFabricVertexExp"])] },
    Table {
        export: "zeGetContextProcAddrTable",
        slots: &[
            (
                0,
                &[
                    "zeContextCreate",
                    "zeContextDestroy",
                    "zeContextGetStatus",
                    "zeContextSystemBarrier",
                    "zeContextMakeMemoryResident",
                    "zeContextEvictMemory",
                    "zeContextMakeImageResident",
                    "zeContextEvictImage",
                ],
            ),
            (1, &["zeContextCreateEx"]),
        ],
    },
    Table {
        export: "zeGetCommandQueueProcAddrTable",
        slots: &[
            (
                0,
                &[
                    "zeCommandQueueCreate",
                    "zeCommandQueueDestroy",
                    "zeCommandQueueExecuteCommandLists",
                    "zeCommandQueueSynchronize",
                ],
            ),
            (9, &["zeCommandQueueGetOrdinal", "zeCommandQueueGetIndex"]),
            (17, &["zeCommandQueueGetFlags", "zeCommandQueueGetMode", "zeCommandQueueGetPriority"]),
        ],
    },
    Table {
        export: "zeGetCommandListProcAddrTable",
        slots: &[
            (
                0,
                &[
                    "zeCommandListCreate",
                    "zeCommandListCreateImmediate",
                    "zeCommandListDestroy",
                    "zeCommandListClose",
                    "zeCommandListReset",
                    "zeCommandListAppendWriteGlobalTimestamp",
                    "zeCommandListAppendBarrier",
                    "zeCommandListAppendMemoryRangesBarrier",
                    "zeCommandListAppendMemoryCopy",
                    "zeCommandListAppendMemoryFill",
                    "zeCommandListAppendMemoryCopyRegion",
                    "zeCommandListAppendMemoryCopyFromContext",
                    "zeCommandListAppendImageCopy",
                    "zeCommandListAppendImageCopyRegion",
                    "zeCommandListAppendImageCopyToMemory",
                    "zeCommandListAppendImageCopyFromMemory",
                    "zeCommandListAppendMemoryPrefetch",
                    "zeCommandListAppendMemAdvise",
                    "zeCommandListAppendSignalEvent",
                    "zeCommandListAppendWaitOnEvents",
                    "zeCommandListAppendEventReset",
                    "zeCommandListAppendQueryKernelTimestamps",
                    "zeCommandListAppendLaunchKernel",
                    "zeCommandListAppendLaunchCooperativeKernel",
                    "zeCommandListAppendLaunchKernelIndirect",
                    "zeCommandListAppendLaunchMultipleKernelsIndirect",
                ],
            ),
            (3, &["zeCommandListAppendImageCopyToMemoryExt", "zeCommandListAppendImageCopyFromMemoryExt"]),
            (6, &["zeCommandListHostSynchronize"]),
            (
                9,
                &[
                    "zeCommandListGetDeviceHandle",
                    "zeCommandListGetContextHandle",
                    "zeCommandListGetOrdinal",
                    "zeCommandListImmediateGetIndex",
                    "zeCommandListIsImmediate",
                ],
            ),
            (12, &["zeCommandListAppendSignalExternalSemaphoreExt", "zeCommandListAppendWaitExternalSemaphoreExt"]),
            (14, &["zeCommandListAppendLaunchKernelWithParameters", "zeCommandListAppendLaunchKernelWithArguments"]),
            (
                16,
                &[
                    "zeCommandListAppendMemoryCopyWithParameters",
                    "zeCommandListAppendMemoryFillWithParameters",
                    "zeCommandListImmediateAppendCommandListsWithParameters",
                ],
            ),
            (
                17,
                &[
                    "zeCommandListGetFlags",
                    "zeCommandListImmediateGetFlags",
                    "zeCommandListImmediateGetMode",
                    "zeCommandListImmediateGetPriority",
                    "zeCommandListBeginGraphCaptureExt",
                    "zeCommandListBeginCaptureIntoGraphExt",
                    "zeCommandListIsGraphCaptureEnabledExt",
                    "zeCommandListEndGraphCaptureExt",
                    "zeCommandListGetGraphExt",
                    "zeCommandListAppendGraphExt",
                    "zeCommandListAppendHostFunction",
                ],
            ),
        ],
    },
    Table {
        export: "zeGetCommandListExpProcAddrTable",
        slots: &[
            (
                9,
                &[
                    "zeCommandListCreateCloneExp",
                    "zeCommandListImmediateAppendCommandListsExp",
                    "zeCommandListGetNextCommandIdExp",
                    "zeCommandListUpdateMutableCommandsExp",
                    "zeCommandListUpdateMutableCommandSignalEventExp",
                    "zeCommandListUpdateMutableCommandWaitEventsExp",
                ],
            ),
            (10, &["zeCommandListGetNextCommandIdWithKernelsExp", "zeCommandListUpdateMutableCommandKernelsExp"]),
            (17, &["zeCommandListIsMutableExp"]),
        ],
    },
    Table {
        export: "zeGetImageProcAddrTable",
        slots: &[
            (0, &["zeImageGetProperties", "zeImageCreate", "zeImageDestroy"]),
            (3, &["zeImageGetAllocPropertiesExt"]),
            (5, &["zeImageViewCreateExt"]),
        ],
    },
    Table {
        export: "zeGetImageExpProcAddrTable",
        slots: &[(2, &["zeImageGetMemoryPropertiesExp", "zeImageViewCreateExp"]), (9, &["zeImageGetDeviceOffsetExp"])],
    },
    Table {
        export: "zeGetMemProcAddrTable",
        slots: &[
            (
                0,
                &[
                    "zeMemAllocShared",
                    "zeMemAllocDevice",
                    "zeMemAllocHost",
                    "zeMemFree",
                    "zeMemGetAllocProperties",
                    "zeMemGetAddressRange",
                    "zeMemGetIpcHandle",
                    "zeMemOpenIpcHandle",
                    "zeMemCloseIpcHandle",
                ],
            ),
            (3, &["zeMemFreeExt"]),
            (6, &["zeMemPutIpcHandle"]),
            (9, &["zeMemGetPitchFor2dImage"]),
            (15, &["zeMemGetIpcHandleWithProperties"]),
        ],
    },
    Table {
        export: "zeGetMemExpProcAddrTable",
        slots: &[
            (6, &["zeMemGetIpcHandleFromFileDescriptorExp", "zeMemGetFileDescriptorFromIpcHandleExp"]),
            (7, &["zeMemSetAtomicAccessAttributeExp", "zeMemGetAtomicAccessAttributeExp"]),
        ],
    },
    Table {
        export: "zeGetFenceProcAddrTable",
        slots: &[(
            0,
            &["zeFenceCreate", "zeFenceDestroy", "zeFenceHostSynchronize", "zeFenceQueryStatus", "zeFenceReset"],
        )],
    },
    Table {
        export: "zeGetEventPoolProcAddrTable",
        slots: &[
            (
                0,
                &[
                    "zeEventPoolCreate",
                    "zeEventPoolDestroy",
                    "zeEventPoolGetIpcHandle",
                    "zeEventPoolOpenIpcHandle",
                    "zeEventPoolCloseIpcHandle",
                ],
            ),
            (6, &["zeEventPoolPutIpcHandle"]),
            (9, &["zeEventPoolGetContextHandle", "zeEventPoolGetFlags"]),
        ],
    },
    Table {
        export: "zeGetEventProcAddrTable",
        slots: &[
            (
                0,
                &[
                    "zeEventCreate",
                    "zeEventDestroy",
                    "zeEventHostSignal",
                    "zeEventHostSynchronize",
                    "zeEventQueryStatus",
                    "zeEventHostReset",
                    "zeEventQueryKernelTimestamp",
                ],
            ),
            (6, &["zeEventQueryKernelTimestampsExt"]),
            (9, &["zeEventGetEventPool", "zeEventGetSignalScope", "zeEventGetWaitScope"]),
            (
                15,
                &[
                    "zeEventCounterBasedCreate",
                    "zeEventCounterBasedGetIpcHandle",
                    "zeEventCounterBasedOpenIpcHandle",
                    "zeEventCounterBasedCloseIpcHandle",
                    "zeEventCounterBasedGetDeviceAddress",
                ],
            ),
            (17, &["zeEventGetCounterBasedFlags"]),
        ],
    },
    Table { export: "zeGetEventExpProcAddrTable", slots: &[(2, &["zeEventQueryTimestampsExp"])] },
    Table {
        export: "zeGetModuleProcAddrTable",
        slots: &[
            (
                0,
                &[
                    "zeModuleCreate",
                    "zeModuleDestroy",
                    "zeModuleDynamicLink",
                    "zeModuleGetNativeBinary",
                    "zeModuleGetGlobalPointer",
                    "zeModuleGetKernelNames",
                    "zeModuleGetProperties",
                    "zeModuleGetFunctionPointer",
                ],
            ),
            (3, &["zeModuleInspectLinkageExt"]),
        ],
    },
    Table {
        export: "zeGetModuleBuildLogProcAddrTable",
        slots: &[(0, &["zeModuleBuildLogDestroy", "zeModuleBuildLogGetString"])],
    },
    Table {
        export: "zeGetKernelProcAddrTable",
        slots: &[(
            0,
            &[
                "zeKernelCreate",
                "zeKernelDestroy",
                "zeKernelSetCacheConfig",
                "zeKernelSetGroupSize",
                "zeKernelSuggestGroupSize",
                "zeKernelSuggestMaxCooperativeGroupCount",
                "zeKernelSetArgumentValue",
                "zeKernelSetIndirectAccess",
                "zeKernelGetIndirectAccess",
                "zeKernelGetSourceAttributes",
                "zeKernelGetProperties",
                "zeKernelGetName",
            ],
        )],
    },
    Table {
        export: "zeGetKernelExpProcAddrTable",
        slots: &[
            (1, &["zeKernelSetGlobalOffsetExp"]),
            (2, &["zeKernelSchedulingHintExp"]),
            (11, &["zeKernelGetBinaryExp"]),
            (14, &["zeKernelGetAllocationPropertiesExp"]),
        ],
    },
    Table { export: "zeGetSamplerProcAddrTable", slots: &[(0, &["zeSamplerCreate", "zeSamplerDestroy"])] },
    Table {
        export: "zeGetPhysicalMemProcAddrTable",
        slots: &[(0, &["zePhysicalMemCreate", "zePhysicalMemDestroy"]), (15, &["zePhysicalMemGetProperties"])],
    },
    Table {
        export: "zeGetVirtualMemProcAddrTable",
        slots: &[(
            0,
            &[
                "zeVirtualMemReserve",
                "zeVirtualMemFree",
                "zeVirtualMemQueryPageSize",
                "zeVirtualMemMap",
                "zeVirtualMemUnmap",
                "zeVirtualMemSetAccessAttribute",
                "zeVirtualMemGetAccessAttribute",
            ],
        )],
    },
    Table {
        export: "zeGetFabricVertexExpProcAddrTable",
        slots: &[(
            4,
            &[
                "zeFabricVertexGetExp",
                "zeFabricVertexGetSubVerticesExp",
                "zeFabricVertexGetPropertiesExp",
                "zeFabricVertexGetDeviceExp",
            ],
        )],
    },
    Table {
        export: "zeGetFabricEdgeExpProcAddrTable",
        slots: &[(4, &["zeFabricEdgeGetExp", "zeFabricEdgeGetVerticesExp", "zeFabricEdgeGetPropertiesExp"])],
    },
    Table {
        export: "zeGetGraphProcAddrTable",
        slots: &[(
            17,
            &[
                "zeGraphCreateExt",
                "zeGraphGetPrimaryCommandListExt",
                "zeGraphSetDestructionCallbackExt",
                "zeGraphInstantiateExt",
                "zeGraphIsEmptyExt",
                "zeGraphDumpContentsExt",
                "zeGraphDestroyExt",
            ],
        )],
    },
    Table {
        export: "zeGetExecutableGraphProcAddrTable",
        slots: &[(17, &["zeExecutableGraphGetSourceGraphExt", "zeExecutableGraphDestroyExt"])],
    },
];
