//! Modules and kernels: counterparts of SPIR-V, found by its hash.

use super::api::*;
use super::runtime::{self, Gpu, function};
use super::stream::Target;
use crate::config;
use crate::device::MAX_GROUP_SIZE;
use crate::engine::kernel::Facts;
use crate::engine::program::Refusal;
use crate::engine::spirv::{self, Parameter, Signature};
use crate::ext::{Argument, layout};
use crate::module::hex;
use level_zero_sys::{ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, ZE_RESULT_ERROR_MODULE_BUILD_FAILURE};
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

/// The work-items of a sub-group: a warp.
const WARP: u32 = 32;

/// A module's counterpart, loaded on one GPU.
pub(crate) struct Program {
    gpu: &'static Gpu,
    module: CUmodule,
    kernels: Vec<Arc<Signature>>,
    /// Whether its kernels themselves wait for what they depend on, so that they may begin while that ends.
    waits: bool,
}

/// What a module defines whose kernels all do so before they read anything that others write.
const WAITS: &CStr = c"waits_for_what_is_before";

impl Program {
    /// Finds and loads the counterpart of SPIR-V with this hash for a device; the text says which.
    pub(crate) fn build(image: &[u8], hash: &[u8; 32], device: u32) -> Result<(Self, String), Refusal> {
        let broken = |text| Refusal { code: ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, text };
        let missing = |text| Refusal { code: ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, text };
        let gpu = runtime::get().and_then(|runtime| runtime.gpu(device)).map_err(missing)?;
        let kernels = spirv::kernels(image).map_err(broken)?;
        let folder = config::get()
            .cuda_modules
            .as_deref()
            .ok_or_else(|| missing("ZE_SOFT_CUDA_MODULES names no folder with modules for NVIDIA's GPUs".to_owned()))?;
        let (name, mut code) = read(folder, hash, gpu.architecture).map_err(missing)?;
        // PTX is a text with a terminator; what is compiled knows its length.
        code.push(0);
        let mut module = CUmodule::NULL;
        let mut load = || {
            gpu.enter()?;
            // SAFETY: a current context; the code is read during the call, which judges it.
            unsafe { cuda!(gpu.api, cuModuleLoadData(&raw mut module, code.as_ptr().cast())) }
        };
        load().map_err(|why| broken(format!("{why} for {name} on {}", gpu.name)))?;
        let (mut place, mut size) = (0, 0);
        // SAFETY: a live module, and places for the answers. That it has no such name is an answer, too.
        let found = unsafe { (gpu.api.cuModuleGetGlobal)(&raw mut place, &raw mut size, module, WAITS.as_ptr()) };
        let kernels = kernels.into_iter().map(Arc::new).collect();
        let program = Self { gpu, module, kernels, waits: found == CUDA_SUCCESS };
        Ok((program, format!("{name} is executed on {}", gpu.name)))
    }

    /// The names of its kernels.
    pub(crate) fn names(&self) -> impl Iterator<Item = &CString> {
        self.kernels.iter().map(|kernel| &kernel.name)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: loaded above and unloaded once, when no kernel of it is left.
            unsafe { (self.gpu.api.cuModuleUnload)(self.module) };
        }
    }
}

/// What is executed in the place of SPIR-V with this hash: its file's name, and its bytes.
fn read(folder: &Path, hash: &[u8; 32], architecture: u32) -> Result<(String, Vec<u8>), String> {
    let names = [format!("{}.sm_{architecture}.cubin", hex(hash)), format!("{}.ptx", hex(hash))];
    let found = names.iter().find_map(|name| Some((name.clone(), std::fs::read(folder.join(name)).ok()?)));
    found.ok_or_else(|| format!("{} holds neither {} nor {}", folder.display(), names[0], names[1]))
}

/// A kernel of a program.
pub(crate) struct Kernel {
    program: Arc<Program>,
    function: CUfunction,
    signature: Arc<Signature>,
    pub(crate) facts: Facts,
    /// Where the values of its arguments lie.
    pub(crate) arguments: Vec<Argument>,
    /// The bytes that all values take.
    pub(crate) size: usize,
}

impl Kernel {
    /// The kernel of that name; `None` if the program has none.
    pub(crate) fn find(program: &Arc<Program>, name: &CStr) -> Result<Option<Self>, String> {
        let found = program.kernels.iter().find(|kernel| kernel.name.as_c_str() == name);
        let Some(signature) = found.cloned() else { return Ok(None) };
        if signature.parameters.contains(&Parameter::Local) {
            return Err("it takes local memory as an argument, which this engine doesn't".to_owned());
        }
        if signature.subgroup_size.is_some_and(|size| size != WARP) {
            return Err(format!("it demands sub-groups of other than {WARP} work-items"));
        }
        let gpu = program.gpu;
        gpu.enter()?;
        let function = function(gpu.api, program.module, name)?;
        let ask = |what| {
            let mut value: c_int = 0;
            // SAFETY: a live function and a place for the number.
            unsafe { cuda!(gpu.api, cuFuncGetAttribute(&raw mut value, what, function)) }.map(|()| value.max(0) as u32)
        };
        let most_items = ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?.min(MAX_GROUP_SIZE);
        let facts = Facts {
            most_items,
            local_memory: ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            private_memory: ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            subgroup_size: WARP,
            subgroups: most_items.div_ceil(WARP),
        };
        let sizes: Vec<usize> = signature.parameters.iter().map(|parameter| parameter.size()).collect();
        let (arguments, size) = layout(&sizes);
        Ok(Some(Self { program: program.clone(), function, signature, facts, arguments, size }))
    }

    /// Whether it waits by itself for what it depends on, so that it may begin while that ends, and says when the next one
    /// may: not before it comes to an end by itself, since groups that wait take places, which another device of the same GPU
    /// may need.
    pub(crate) fn begins_early(&self) -> bool {
        self.program.waits
    }

    /// The group size that its source demands.
    pub(crate) fn required_group_size(&self) -> Option<[u32; 3]> {
        self.signature.group_size
    }

    /// The sub-group size that its source demands.
    pub(crate) fn required_subgroup_size(&self) -> Option<u32> {
        self.signature.subgroup_size
    }

    /// How many groups of so many work-items run at the same time: of what the GPU has room for, the device's share.
    pub(crate) fn most_groups(&self, items: u32) -> u32 {
        let gpu = self.program.gpu;
        let mut each: c_int = 0;
        let mut ask = || {
            gpu.enter()?;
            // SAFETY: a live function and a place for the number.
            unsafe { cuda!(gpu.api, cuOccupancy(&raw mut each, self.function, items as c_int, 0)) }
        };
        match ask() {
            Ok(()) => {
                let share = each.max(0) as u32 * gpu.multiprocessors / gpu.sharers;
                config::get().compute_units.map_or(share, |most| share.min(most))
            }
            // A launch will say why.
            Err(_) => 0,
        }
    }

    /// Gives a launch to a stream of a GPU; the arguments are read before this returns.
    pub(crate) fn give(
        &self,
        Target { gpu, stream, early }: Target<'_>,
        arguments: &[*const c_void],
        [x, y, z]: [u32; 3],
        [width, height, depth]: [u32; 3],
        cooperative: bool,
    ) -> Result<(), String> {
        let name = || self.signature.name.to_string_lossy();
        if !std::ptr::eq(gpu, self.program.gpu) {
            return Err(format!("kernel {} was made for {}, not for {}", name(), self.program.gpu.name, gpu.name));
        }
        let function = self.function;
        let values = arguments.as_ptr().cast_mut().cast();
        let attribute = CUlaunchAttribute {
            id: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            padding: 0,
            value: [1, 0, 0, 0, 0, 0, 0, 0],
        };
        // SAFETY: live function and stream; one pointer for each argument, to a value of its size, as the kernel's launch
        // was bound. What it reaches is the program's duty.
        let given = unsafe {
            if cooperative {
                cuda!(gpu.api, cuLaunchCooperativeKernel(function, x, y, z, width, height, depth, 0, stream, values))
            } else if early {
                let config = CUlaunchConfig {
                    groups: [x, y, z],
                    items: [width, height, depth],
                    shared_memory: 0,
                    stream,
                    attributes: &raw const attribute,
                    count: 1,
                };
                cuda!(gpu.api, cuLaunchKernelEx(&raw const config, function, values, std::ptr::null_mut()))
            } else {
                let extra = std::ptr::null_mut();
                cuda!(gpu.api, cuLaunchKernel(function, x, y, z, width, height, depth, 0, stream, values, extra))
            }
        };
        given.map_err(|why| format!("kernel {}: {why}", name()))
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn what_is_compiled_for_the_gpu_goes_before_what_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let hash = [0xab; 32];
        let name = |ending: &str| format!("{}.{ending}", "ab".repeat(32));
        let refused = read(folder.path(), &hash, 90).expect_err("an empty folder");
        assert!(refused.contains(&name("ptx")) && refused.contains(&name("sm_90.cubin")), "{refused}");
        std::fs::write(folder.path().join(name("ptx")), b"text").expect("a file");
        assert_eq!(read(folder.path(), &hash, 90), Ok((name("ptx"), b"text".to_vec())));
        std::fs::write(folder.path().join(name("sm_90.cubin")), b"code").expect("a file");
        assert_eq!(read(folder.path(), &hash, 90), Ok((name("sm_90.cubin"), b"code".to_vec())));
        assert_eq!(read(folder.path(), &hash, 80), Ok((name("ptx"), b"text".to_vec())));
    }
}
