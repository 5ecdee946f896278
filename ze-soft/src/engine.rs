//! The engines that execute SPIR-V: NVIDIA's GPUs ([`cuda`]), or an OpenCL runtime for the processor, found at run time.
//! Of the latter the rest of this module speaks.
//!
//! It is there when `ZE_SOFT_ENGINE=opencl`. `libOpenCL.so.1` is looked for as any library is (`LD_LIBRARY_PATH`), and
//! itself finds the runtimes (for Intel's: `OCL_ICD_FILENAMES` and `OCL_ICD_VENDORS` name `libintelocl.so`). All
//! devices of this process share one OpenCL context. A launch takes a queue and a kernel object for itself and returns
//! when the kernel has ended, so it can run in whichever thread plays the device, and kernels of two queue ordinals run
//! at once, as kernels that wait for one another need. Work-groups of all kernels that run at once share the runtime's
//! threads: more of them than [`compute_units`] aren't resident together.
//!
//! Native modules go on working beside SPIR-V ones. What the native engine promises of steady state (no allocation, no
//! system call) doesn't hold for SPIR-V launches. A kernel that never ends can't be stopped: its launch, its
//! queue ordinal and an unbounded wait hang. Waits with a timeout return, and the process can exit ([`exit`]).

mod api;
mod cache;
pub(crate) mod cuda;
mod exit;
pub(crate) mod kernel;
mod program;
mod runtime;
mod spirv;

pub(crate) use kernel::Kernel;
pub(crate) use program::Program;

use crate::config::{self, Engine};
use crate::error::fail;
use level_zero_sys::{ZE_RESULT_ERROR_DEVICE_LOST, ZE_RESULT_SUCCESS, ze_result_t};
use std::sync::OnceLock;

/// The SPIR-V that devices say they take; the runtimes that were seen read newer ones as well, and say so if not.
pub(crate) const SPIRV_VERSION: (u32, u32) = (1, 2);

/// Whether this process executes SPIR-V.
pub(crate) fn executes_spirv() -> bool {
    config::get().engine != Engine::Native
}

/// How many work-groups a device has room for: what is configured, or what the OpenCL runtime has if that is less.
pub(crate) fn compute_units() -> u32 {
    let configured = config::get().compute_units();
    match config::get().engine {
        Engine::Native => return configured,
        Engine::Cuda => return cuda::compute_units().unwrap_or(configured),
        Engine::OpenCl => {}
    }
    // Without a runtime there are only native kernels.
    runtime::get().map_or(configured, |runtime| configured.min(runtime.compute_units))
}

/// How much local memory a group has: `most`, or what the OpenCL runtime has if that is less.
pub(crate) fn local_memory(most: u32) -> u32 {
    match config::get().engine {
        Engine::Native => return most,
        // What every GPU gives a group without being asked for more.
        Engine::Cuda => return most.min(48 << 10),
        Engine::OpenCl => {}
    }
    runtime::get().map_or(most, |runtime| runtime.local_memory.try_into().unwrap_or(u32::MAX).min(most))
}

static LOST: OnceLock<String> = OnceLock::new();

/// Notes that a launch failed: its results are missing, so the devices count as lost from then on.
fn lose(text: String) {
    eprintln!("ze-soft: {text}");
    // A loss before this one says it already.
    let _ = LOST.set(text);
}

/// Whether every launch so far was executed.
pub(crate) fn health() -> ze_result_t {
    match LOST.get() {
        None => ZE_RESULT_SUCCESS,
        Some(text) => fail(ZE_RESULT_ERROR_DEVICE_LOST, text.as_str()),
    }
}
