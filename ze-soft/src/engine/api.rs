//! The functions of an OpenCL library that was loaded at run time.

use libloading::Library;
use opencl_sys::cl_function_types::*;

/// The declarations are of pointers that may be null; ours never are.
pub(super) trait Nullable {
    type Pointer;
}

impl<F> Nullable for Option<F> {
    type Pointer = F;
}

macro_rules! functions {
    ($($name:ident: $type:ident,)*) => {
        /// What the engine calls.
        pub(super) struct Api {
            $(pub(super) $name: <$type as Nullable>::Pointer,)*
            /// Last, and never dropped before the pointers into it.
            _library: Library,
        }

        impl Api {
            /// Finds all functions of a library.
            pub(super) fn of(library: Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: a library that exports OpenCL's names exports OpenCL's functions; the pointers live no
                    // longer than the library, which is kept beside them.
                    $($name: *unsafe {
                        library.get::<<$type as Nullable>::Pointer>(concat!(stringify!($name), "\0").as_bytes())
                    }?,)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    clGetPlatformIDs: clGetPlatformIDs_t,
    clGetDeviceIDs: clGetDeviceIDs_t,
    clGetDeviceInfo: clGetDeviceInfo_t,
    clCreateContext: clCreateContext_t,
    clCreateCommandQueueWithProperties: clCreateCommandQueueWithProperties_t,
    clCreateProgramWithIL: clCreateProgramWithIL_t,
    clCreateProgramWithBinary: clCreateProgramWithBinary_t,
    clGetProgramInfo: clGetProgramInfo_t,
    clBuildProgram: clBuildProgram_t,
    clGetProgramBuildInfo: clGetProgramBuildInfo_t,
    clReleaseProgram: clReleaseProgram_t,
    clCreateKernel: clCreateKernel_t,
    clReleaseKernel: clReleaseKernel_t,
    clSetKernelArg: clSetKernelArg_t,
    clSetKernelArgSVMPointer: clSetKernelArgSVMPointer_t,
    clSetKernelExecInfo: clSetKernelExecInfo_t,
    clGetKernelWorkGroupInfo: clGetKernelWorkGroupInfo_t,
    clGetKernelSubGroupInfo: clGetKernelSubGroupInfo_t,
    clEnqueueNDRangeKernel: clEnqueueNDRangeKernel_t,
    clFinish: clFinish_t,
}
