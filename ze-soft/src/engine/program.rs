//! Programs: SPIR-V that the runtime has compiled.

use super::cache;
use super::runtime::{self, Runtime, check, read_text};
use super::spirv::{self, Signature};
use level_zero_sys::*;
use opencl_sys::{CL_PROGRAM_BINARIES, CL_PROGRAM_BINARY_SIZES, CL_PROGRAM_BUILD_LOG, CL_SUCCESS, cl_program};
use std::ffi::{CStr, CString};
use std::fmt::Write;
use std::ptr::null_mut;
use std::sync::Arc;

/// A compiled module.
pub(crate) struct Program {
    pub(super) runtime: &'static Runtime,
    pub(super) handle: Handle,
    kernels: Vec<Arc<Signature>>,
}

/// The runtime's own program, released at the end.
pub(super) struct Handle {
    runtime: &'static Runtime,
    pub(super) program: cl_program,
}

// SAFETY: OpenCL's functions can be called from any thread, and a program doesn't change once it is built.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Compiles; beside the outcome, what the compiler had to say.
    fn compile(&self, options: &CStr) -> (Result<(), String>, String) {
        let (api, device) = (&self.runtime.api, self.runtime.device);
        let build = api.clBuildProgram;
        // SAFETY: a live program and the device of its context; without a callback the call returns when all is done.
        let code = unsafe { build(self.program, 1, &raw const device, options.as_ptr(), None, null_mut()) };
        // SAFETY: a null place with room for nothing asks for the size, then the buffer has that size.
        let said = read_text("clGetProgramBuildInfo", |size, place, needed| unsafe {
            (api.clGetProgramBuildInfo)(self.program, device, CL_PROGRAM_BUILD_LOG, size, place, needed)
        });
        (check("clBuildProgram", code), said.unwrap_or_else(|why| why))
    }

    /// What was compiled, if the runtime gives it out.
    fn binary(&self) -> Option<Vec<u8>> {
        let get = self.runtime.api.clGetProgramInfo;
        let mut size = 0usize;
        let place = (&raw mut size).cast();
        // SAFETY: a live program, built for one device: there is one size.
        let code = unsafe { get(self.program, CL_PROGRAM_BINARY_SIZES, size_of::<usize>(), place, null_mut()) };
        if code != CL_SUCCESS || size == 0 {
            return None;
        }
        let mut binary = vec![0u8; size];
        let mut start = binary.as_mut_ptr();
        let place = (&raw mut start).cast();
        // SAFETY: as above; the one pointer leads to as many bytes as the binary has.
        let code = unsafe { get(self.program, CL_PROGRAM_BINARIES, size_of::<*mut u8>(), place, null_mut()) };
        (code == CL_SUCCESS).then_some(binary)
    }
}

/// The program of a binary that was kept; `None` if the runtime doesn't take it any more.
fn load(runtime: &'static Runtime, binary: &[u8], options: &CStr) -> Option<Handle> {
    let (mut status, mut code) = (CL_SUCCESS, CL_SUCCESS);
    let create = runtime.api.clCreateProgramWithBinary;
    let (device, length, mut start) = (runtime.device, binary.len(), binary.as_ptr());
    // SAFETY: one device, and of its binary length and start; the runtime copies it.
    let program = unsafe {
        create(runtime.context, 1, &raw const device, &raw const length, &raw mut start, &raw mut status, &raw mut code)
    };
    if code != CL_SUCCESS {
        return None;
    }
    let handle = Handle { runtime, program };
    handle.compile(options).0.is_ok().then_some(handle)
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: it was created by this runtime and is released once; kernels made of it hold it themselves.
        unsafe { (self.runtime.api.clReleaseProgram)(self.program) };
    }
}

/// Why there is no program.
pub(crate) struct Refusal {
    pub(crate) code: ze_result_t,
    pub(crate) text: String,
}

impl Program {
    /// Whether these bytes claim to be SPIR-V.
    pub(crate) fn is_spirv(image: &[u8]) -> bool {
        image.starts_with(&rspirv::spirv::MAGIC_NUMBER.to_le_bytes())
    }

    /// Builds a program; the text is what the compiler had to say.
    pub(crate) fn build(image: &[u8], flags: &CStr) -> Result<(Self, String), Refusal> {
        let refuse = |code| move |text: String| Refusal { code, text };
        let broken = refuse(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
        let runtime =
            runtime::get().map_err(|why| Refusal { code: ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, text: why.into() })?;
        // Before the runtime sees it: what can't be read here is also what a runtime may stumble over.
        let kernels = spirv::kernels(image).map_err(broken)?;
        let (options, mut log) = options(flags).map_err(broken)?;
        let api = &runtime.api;
        let cached = cache::Place::of(image, &options, runtime);
        if let Some(handle) = cached.as_ref().and_then(|place| place.read()).and_then(|it| load(runtime, &it, &options))
        {
            log.push_str("taken from the cache");
            return Ok((Self { runtime, handle, kernels: kernels.into_iter().map(Arc::new).collect() }, log));
        }
        let mut code = CL_SUCCESS;
        // SAFETY: the image is `len` bytes; the runtime copies them.
        let program =
            unsafe { (api.clCreateProgramWithIL)(runtime.context, image.as_ptr().cast(), image.len(), &raw mut code) };
        check("clCreateProgramWithIL", code).map_err(broken)?;
        let handle = Handle { runtime, program };
        let (built, said) = handle.compile(&options);
        log.push_str(&said);
        if let Err(why) = built {
            return Err(broken(format!("{why} with options {options:?} on {}: {log}", runtime.name)));
        }
        if let Some(place) = cached
            && let Some(binary) = handle.binary()
        {
            place.write(binary);
        }
        Ok((Self { runtime, handle, kernels: kernels.into_iter().map(Arc::new).collect() }, log))
    }

    /// The names of its kernels.
    pub(crate) fn names(&self) -> impl Iterator<Item = &CString> {
        self.kernels.iter().map(|kernel| &kernel.name)
    }

    pub(super) fn signature(&self, name: &CStr) -> Option<&Arc<Signature>> {
        self.kernels.iter().find(|kernel| kernel.name.as_c_str() == name)
    }
}

/// OpenCL's options for Level Zero's flags, and a line for each flag that means nothing on a processor. Flags that both
/// know are passed on as they are.
fn options(flags: &CStr) -> Result<(CString, String), String> {
    const WITHOUT_MEANING: [&str; 4] = [
        "-ze-opt-greater-than-4GB-buffer-required",
        "-ze-opt-large-register-file",
        "-ze-opt-has-buffer-offset-arg",
        "-ze-intel-greater-than-4GB-buffer-required",
    ];
    let flags = flags.to_str().map_err(|_| "the build flags are not UTF-8".to_owned())?;
    let mut log = String::new();
    let mut options = Vec::new();
    for flag in flags.split_whitespace() {
        if WITHOUT_MEANING.contains(&flag) {
            // Writing to a string can't fail.
            let _ = writeln!(log, "{flag} has no meaning on a processor");
        } else if flag == "-ze-opt-disable" {
            options.push("-cl-opt-disable");
        } else if flag.starts_with("-ze-") {
            return Err(format!("the build flag {flag} is unknown"));
        } else {
            options.push(flag);
        }
    }
    let options = CString::new(options.join(" ")).map_err(|_| "a build flag has a zero byte".to_owned())?;
    Ok((options, log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_options() {
        let flags = c"-cl-std=CL3.0  -ze-opt-disable -ze-opt-large-register-file -cl-mad-enable";
        let (options, log) = options(flags).unwrap_or_default();
        assert_eq!(options.as_c_str(), c"-cl-std=CL3.0 -cl-opt-disable -cl-mad-enable");
        assert_eq!(log, "-ze-opt-large-register-file has no meaning on a processor\n");
        assert!(super::options(c"-ze-warp").is_err_and(|why| why.contains("-ze-warp")));
    }
}
