//! The functions of CUDA's driver library, loaded at run time. Types are named as CUDA names them.

use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

pub(super) type CUresult = c_int;
pub(super) type CUdevice = c_int;
pub(super) type CUdeviceptr = u64;

macro_rules! handles {
    ($($name:ident)*) => {$(
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name(pub(super) *mut c_void);

        // SAFETY: CUDA lets any thread use its handles.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            pub(super) const NULL: Self = Self(std::ptr::null_mut());
        }
    )*};
}

handles! { CUcontext CUstream CUmodule CUfunction CUgraph CUgraphExec }

pub(super) type CUgraphNode = *mut c_void;

/// What names device memory to another process.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CUipcMemHandle(pub(super) [u8; 64]);

/// How a kernel is launched.
#[repr(C)]
pub(super) struct CUlaunchConfig {
    pub(super) groups: [c_uint; 3],
    pub(super) items: [c_uint; 3],
    pub(super) shared_memory: c_uint,
    pub(super) stream: CUstream,
    pub(super) attributes: *const CUlaunchAttribute,
    pub(super) count: c_uint,
}

/// Something more that is said of a launch.
#[repr(C)]
pub(super) struct CUlaunchAttribute {
    pub(super) id: c_uint,
    pub(super) padding: c_uint,
    pub(super) value: [u64; 8],
}

pub(super) const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;

pub(super) const CUDA_SUCCESS: CUresult = 0;
pub(super) const CUDA_ERROR_NOT_READY: CUresult = 600;

pub(super) const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
pub(super) const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub(super) const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
pub(super) const CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: c_int = 91;

pub(super) const CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: c_int = 0;
pub(super) const CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: c_int = 1;
pub(super) const CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: c_int = 3;

pub(super) const CU_STREAM_NON_BLOCKING: c_uint = 1;
pub(super) const CU_MEMHOSTREGISTER_PORTABLE_DEVICEMAP: c_uint = 3;
pub(super) const CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: c_uint = 1;
pub(super) const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: c_int = 1;
pub(super) const CU_STREAM_SET_CAPTURE_DEPENDENCIES: c_uint = 1;

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($type:ty),* $(,)?);)*) => {
        /// What the engine calls.
        pub(super) struct Api {
            $(pub(super) $field: unsafe extern "C" fn($($type),*) -> CUresult,)*
            /// Last, and never dropped before the pointers into it.
            _library: Library,
        }

        impl Api {
            /// Finds all functions of a library.
            pub(super) fn of(library: Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: a library that exports CUDA's names exports CUDA's functions; the pointers live no longer
                    // than the library, which is kept beside them.
                    $($field: *unsafe {
                        library.get::<unsafe extern "C" fn($($type),*) -> CUresult>(concat!($name, "\0").as_bytes())
                    }?,)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    cuDeviceCanAccessPeer = "cuDeviceCanAccessPeer": fn(*mut c_int, CUdevice, CUdevice);
    cuInit = "cuInit": fn(c_uint);
    cuGetErrorName = "cuGetErrorName": fn(CUresult, *mut *const c_char);
    cuDeviceGetCount = "cuDeviceGetCount": fn(*mut c_int);
    cuDeviceGet = "cuDeviceGet": fn(*mut CUdevice, c_int);
    cuDeviceGetName = "cuDeviceGetName": fn(*mut c_char, c_int, CUdevice);
    cuDeviceGetAttribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, CUdevice);
    cuDeviceTotalMem = "cuDeviceTotalMem_v2": fn(*mut usize, CUdevice);
    cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain": fn(*mut CUcontext, CUdevice);
    cuCtxSetCurrent = "cuCtxSetCurrent": fn(CUcontext);
    cuMemAlloc = "cuMemAlloc_v2": fn(*mut CUdeviceptr, usize);
    cuMemFree = "cuMemFree_v2": fn(CUdeviceptr);
    cuMemHostRegister = "cuMemHostRegister_v2": fn(*mut c_void, usize, c_uint);
    cuMemHostUnregister = "cuMemHostUnregister": fn(*mut c_void);
    cuIpcGetMemHandle = "cuIpcGetMemHandle": fn(*mut CUipcMemHandle, CUdeviceptr);
    cuIpcOpenMemHandle = "cuIpcOpenMemHandle_v2": fn(*mut CUdeviceptr, CUipcMemHandle, c_uint);
    cuIpcCloseMemHandle = "cuIpcCloseMemHandle": fn(CUdeviceptr);
    cuStreamCreate = "cuStreamCreate": fn(*mut CUstream, c_uint);
    cuStreamDestroy = "cuStreamDestroy_v2": fn(CUstream);
    cuStreamQuery = "cuStreamQuery": fn(CUstream);
    cuStreamSynchronize = "cuStreamSynchronize": fn(CUstream);
    cuStreamWriteValue32 = "cuStreamWriteValue32_v2": fn(CUstream, CUdeviceptr, u32, c_uint);
    cuStreamWriteValue64 = "cuStreamWriteValue64_v2": fn(CUstream, CUdeviceptr, u64, c_uint);
    cuMemcpyAsync = "cuMemcpyAsync": fn(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemsetD8Async = "cuMemsetD8Async": fn(CUdeviceptr, u8, usize, CUstream);
    cuMemsetD16Async = "cuMemsetD16Async": fn(CUdeviceptr, u16, usize, CUstream);
    cuMemsetD32Async = "cuMemsetD32Async": fn(CUdeviceptr, u32, usize, CUstream);
    cuLaunchHostFunc = "cuLaunchHostFunc": fn(CUstream, unsafe extern "C" fn(*mut c_void), *mut c_void);
    cuModuleLoadData = "cuModuleLoadData": fn(*mut CUmodule, *const c_void);
    cuModuleUnload = "cuModuleUnload": fn(CUmodule);
    cuModuleGetGlobal = "cuModuleGetGlobal_v2": fn(*mut CUdeviceptr, *mut usize, CUmodule, *const c_char);
    cuModuleGetFunction = "cuModuleGetFunction": fn(*mut CUfunction, CUmodule, *const c_char);
    cuFuncGetAttribute = "cuFuncGetAttribute": fn(*mut c_int, c_int, CUfunction);
    cuOccupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor": fn(*mut c_int, CUfunction, c_int, usize);
    cuLaunchKernel = "cuLaunchKernel": fn(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void,
    );
    cuLaunchKernelEx = "cuLaunchKernelEx": fn(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
    cuLaunchCooperativeKernel = "cuLaunchCooperativeKernel": fn(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
    );
    cuStreamBeginCapture = "cuStreamBeginCapture_v2": fn(CUstream, c_int);
    cuStreamEndCapture = "cuStreamEndCapture": fn(CUstream, *mut CUgraph);
    cuStreamGetCaptureInfo = "cuStreamGetCaptureInfo_v2": fn(
        CUstream, *mut c_int, *mut u64, *mut CUgraph, *mut *const CUgraphNode, *mut usize,
    );
    cuStreamUpdateCaptureDependencies = "cuStreamUpdateCaptureDependencies": fn(
        CUstream, *mut CUgraphNode, usize, c_uint,
    );
    cuGraphInstantiate = "cuGraphInstantiateWithFlags": fn(*mut CUgraphExec, CUgraph, u64);
    cuGraphLaunch = "cuGraphLaunch": fn(CUgraphExec, CUstream);
    cuGraphExecDestroy = "cuGraphExecDestroy": fn(CUgraphExec);
    cuGraphDestroy = "cuGraphDestroy": fn(CUgraph);
}

impl Api {
    /// What a function's code means to a reader.
    pub(super) fn check(&self, function: &str, code: CUresult) -> Result<(), String> {
        if code == CUDA_SUCCESS {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: a place for a pointer to a string that the library keeps; an unknown code leaves it null.
        let known = unsafe { (self.cuGetErrorName)(code, &raw mut name) } == CUDA_SUCCESS && !name.is_null();
        // SAFETY: as above.
        let name = if known { unsafe { CStr::from_ptr(name) }.to_string_lossy() } else { "an unknown error".into() };
        Err(format!("{function} of CUDA failed with error {code} ({name})"))
    }
}

/// Calls a function of the table, and checks its code.
macro_rules! cuda {
    ($api:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let api: &$crate::engine::cuda::api::Api = $api;
        let code = (api.$name)($($argument),*);
        api.check(stringify!($name), code)
    }};
}

pub(super) use cuda;
