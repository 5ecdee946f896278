//! The engine that has NVIDIA's GPUs execute everything: commands, copies and SPIR-V modules.
//!
//! It is there when `ZE_SOFT_ENGINE=cuda`. `libcuda.so.1` is looked for as any library is; nothing of CUDA is needed to
//! build. The devices share the GPUs out in turn: with more devices than GPUs, several play on one, each with its share of
//! the places for resident groups. Processes whose kernels wait for one another on one GPU need its multi-process service;
//! without it their kernels take turns.
//!
//! The executors go on choosing what comes next ([`crate::exec`]), but running a command means giving it to the
//! executor's CUDA stream: for the executor it has run, and what follows in the same stream may count on it. Everybody
//! else (the host, other queue groups, other processes) looks at what the GPU itself has written: signals are stores of the
//! stream into the same cells as ever, and [`Stream::retired`] tells how far it has come.
//!
//! Modules are looked up by the hash of their SPIR-V: the folder `ZE_SOFT_CUDA_MODULES` holds `HASH.sm_XY.cubin` for a
//! GPU's architecture, or `HASH.ptx`, which CUDA's driver compiles.

mod api;
mod graph;
mod memory;
mod program;
mod runtime;
mod stream;

pub(crate) use graph::Graph;
pub(crate) use memory::{Device as DeviceMemory, Opened, Pinned, TICKET_BYTES, own};
pub(crate) use program::{Kernel, Program};
pub(crate) use stream::{Home, Stream, Target};

use crate::config::{self, Engine};
use crate::error::fail;
use level_zero_sys::{ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, ze_result_t};

/// Whether this process runs on NVIDIA's GPUs.
pub(crate) fn runs() -> bool {
    config::get().engine == Engine::Cuda
}

/// Refuses to go on, by name, where this engine was asked for and can't be had.
pub(crate) fn check() -> Result<(), ze_result_t> {
    match runs() {
        true => unavailable(runtime::get().map(drop)),
        false => Ok(()),
    }
}

fn unavailable<T>(found: Result<T, String>) -> Result<T, ze_result_t> {
    found.map_err(|why| fail(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, why))
}

/// The multiprocessors of a device.
pub(super) fn compute_units() -> Option<u32> {
    runtime::get().ok()?.first().ok().map(|gpu| gpu.multiprocessors)
}

/// Whether two devices reach each other's memory; where this engine doesn't run, nothing forbids it.
pub(crate) fn reaches(a: u32, b: u32) -> bool {
    !runs() || runtime::get().is_ok_and(|runtime| runtime.reaches(a, b))
}

/// The memory of a device in bytes, if there is one.
pub(crate) fn memory_size() -> Option<u64> {
    runtime::get().ok()?.first().ok().map(|gpu| gpu.memory)
}

/// What device `index` runs on.
pub(crate) fn name(index: u32) -> String {
    match runtime::get().and_then(|runtime| runtime.gpu(index)) {
        Ok(gpu) => gpu.name.clone(),
        Err(_) => "no GPU: CUDA is not to be had".to_owned(),
    }
}

/// The time of a device's clock, in nanoseconds.
pub(crate) fn timestamp(index: u32) -> Result<u64, ze_result_t> {
    unavailable(runtime::get().and_then(|runtime| runtime.gpu(index)?.timestamp()))
}
