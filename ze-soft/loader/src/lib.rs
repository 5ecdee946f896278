//! The software Level Zero driver as `libze_soft.so`, for the Level Zero loader: name the file in
//! `ZE_ENABLE_ALT_DRIVERS`, with its whole path.

use std::ffi::c_void;

/// Exports the functions through which the loader asks for the driver's tables.
macro_rules! exports {
    ($($export:ident),* $(,)?) => {
        $(
            /// Fills the table of this name.
            ///
            /// # Safety
            /// `table` is null or has every slot that the specification's `version` gives it.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "the loader looks for this name")]
            pub unsafe extern "C" fn $export(version: u32, table: *mut c_void) -> u32 {
                // SAFETY: the caller's promise.
                unsafe { driver::ddi::fill(stringify!($export), version, table) }
            }
        )*

        #[cfg(test)]
        const EXPORTS: &[&str] = &[$(stringify!($export)),*];
    };
}

exports! {
    zeGetRTASBuilderProcAddrTable,
    zeGetRTASBuilderExpProcAddrTable,
    zeGetRTASParallelOperationProcAddrTable,
    zeGetRTASParallelOperationExpProcAddrTable,
    zeGetGlobalProcAddrTable,
    zeGetDriverProcAddrTable,
    zeGetDriverExpProcAddrTable,
    zeGetDeviceProcAddrTable,
    zeGetDeviceExpProcAddrTable,
    zeGetContextProcAddrTable,
    zeGetCommandQueueProcAddrTable,
    zeGetCommandListProcAddrTable,
    zeGetCommandListExpProcAddrTable,
    zeGetImageProcAddrTable,
    zeGetImageExpProcAddrTable,
    zeGetMemProcAddrTable,
    zeGetMemExpProcAddrTable,
    zeGetFenceProcAddrTable,
    zeGetEventPoolProcAddrTable,
    zeGetEventProcAddrTable,
    zeGetEventExpProcAddrTable,
    zeGetModuleProcAddrTable,
    zeGetModuleBuildLogProcAddrTable,
    zeGetKernelProcAddrTable,
    zeGetKernelExpProcAddrTable,
    zeGetSamplerProcAddrTable,
    zeGetPhysicalMemProcAddrTable,
    zeGetVirtualMemProcAddrTable,
    zeGetFabricVertexExpProcAddrTable,
    zeGetFabricEdgeExpProcAddrTable,
    zeGetGraphProcAddrTable,
    zeGetExecutableGraphProcAddrTable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_of_the_driver_is_exported() {
        assert!(driver::ddi::exports().eq(EXPORTS.iter().copied()));
    }
}
