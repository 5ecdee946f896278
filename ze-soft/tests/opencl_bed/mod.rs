//! What the tests of SPIR-V modules share: modules, kernels and launches, in as few words as a test can use.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use crate::memory_bed::{Bed, ok};
use level_zero_sys::*;
use std::ffi::{CStr, CString, c_void};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::ptr::{null, null_mut};
use std::time::Duration;

pub const IMAGE: &[u8] = include_bytes!("../opencl/kernels.spv");

/// A bound on what should come at once, generous because the machine may be busy.
pub const SOON: u64 = 60_000_000_000;
/// How often a kernel that waits looks: longer than anything should take, and not for ever.
pub const TURNS: u64 = 1 << 33;

/// One argument of a launch.
pub enum Argument {
    Pointer(*const c_void),
    Bytes(Vec<u8>),
    Local(usize),
}

pub fn pointer<T>(pointer: *const T) -> Argument {
    Argument::Pointer(pointer.cast())
}

/// An argument whose value is these bytes.
pub fn value<T: Copy>(value: T) -> Argument {
    let bytes = unsafe { std::slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>()) };
    Argument::Bytes(bytes.to_vec())
}

/// A driver that executes SPIR-V: whoever runs these tests says so.
pub fn bed() -> Bed {
    assert_eq!(std::env::var("ZE_SOFT_ENGINE").as_deref(), Ok("opencl"), "this test runs with ZE_SOFT_ENGINE=opencl");
    Bed::new()
}

/// Makes a module; beside it comes what the build log says.
pub fn build(
    bed: &Bed,
    format: ze_module_format_t,
    image: &[u8],
    flags: Option<&CStr>,
) -> (Result<ze_module_handle_t, ze_result_t>, String) {
    let desc = ze_module_desc_t {
        format,
        inputSize: image.len(),
        pInputModule: image.as_ptr(),
        pBuildFlags: flags.map_or(null(), CStr::as_ptr),
        ..Default::default()
    };
    let (mut module, mut log) = (null_mut(), null_mut());
    unsafe {
        let code = (bed.ze.zeModuleCreate)(bed.context, bed.devices[0], &raw const desc, &raw mut module, &raw mut log);
        let mut size = 0;
        ok((bed.ze.zeModuleBuildLogGetString)(log, &raw mut size, null_mut()));
        let mut text = vec![0u8; size];
        ok((bed.ze.zeModuleBuildLogGetString)(log, &raw mut size, text.as_mut_ptr().cast()));
        ok((bed.ze.zeModuleBuildLogDestroy)(log));
        let text = CString::from_vec_with_nul(text).unwrap().into_string().unwrap();
        (if code == ZE_RESULT_SUCCESS { Ok(module) } else { Err(code) }, text)
    }
}

/// The module of the tests' kernels.
#[track_caller]
pub fn module(bed: &Bed) -> ze_module_handle_t {
    let (module, log) = build(bed, ZE_MODULE_FORMAT_IL_SPIRV, IMAGE, None);
    module.unwrap_or_else(|code| panic!("{}: {log}", result_name(code)))
}

pub fn try_kernel(bed: &Bed, module: ze_module_handle_t, name: &CStr) -> Result<ze_kernel_handle_t, ze_result_t> {
    let desc = ze_kernel_desc_t { pKernelName: name.as_ptr(), ..Default::default() };
    let mut kernel = null_mut();
    match unsafe { (bed.ze.zeKernelCreate)(module, &raw const desc, &raw mut kernel) } {
        ZE_RESULT_SUCCESS => Ok(kernel),
        code => Err(code),
    }
}

/// A kernel of a module of its own.
#[track_caller]
pub fn kernel(bed: &Bed, name: &CStr) -> ze_kernel_handle_t {
    let module = module(bed);
    let kernel = try_kernel(bed, module, name).unwrap_or_else(|_| panic!("{}", bed.description()));
    ok(unsafe { (bed.ze.zeModuleDestroy)(module) });
    kernel
}

pub fn set(bed: &Bed, kernel: ze_kernel_handle_t, index: u32, argument: &Argument) -> ze_result_t {
    let set = bed.ze.zeKernelSetArgumentValue;
    unsafe {
        match argument {
            Argument::Pointer(pointer) => set(kernel, index, 8, (&raw const *pointer).cast()),
            Argument::Bytes(bytes) => set(kernel, index, bytes.len(), bytes.as_ptr().cast()),
            Argument::Local(size) => set(kernel, index, *size, null()),
        }
    }
}

#[track_caller]
pub fn set_all(bed: &Bed, kernel: ze_kernel_handle_t, arguments: &[Argument]) {
    for (index, argument) in arguments.iter().enumerate() {
        ok(set(bed, kernel, index as u32, argument));
    }
}

#[track_caller]
pub fn set_group(bed: &Bed, kernel: ze_kernel_handle_t, [x, y, z]: [u32; 3]) {
    ok(unsafe { (bed.ze.zeKernelSetGroupSize)(kernel, x, y, z) });
}

/// An immediate list.
pub struct List<'a> {
    bed: &'a Bed,
    pub list: ze_command_list_handle_t,
}

impl<'a> List<'a> {
    pub fn new(bed: &'a Bed, device: usize, ordinal: u32) -> Self {
        let desc = ze_command_queue_desc_t { ordinal, flags: ZE_COMMAND_QUEUE_FLAG_IN_ORDER, ..Default::default() };
        let mut list = null_mut();
        let create = bed.ze.zeCommandListCreateImmediate;
        ok(unsafe { create(bed.context, bed.devices[device], &raw const desc, &raw mut list) });
        Self { bed, list }
    }

    pub fn launch(&self, kernel: ze_kernel_handle_t, [x, y, z]: [u32; 3]) -> ze_result_t {
        let count = ze_group_count_t { groupCountX: x, groupCountY: y, groupCountZ: z };
        let launch = self.bed.ze.zeCommandListAppendLaunchKernel;
        unsafe { launch(self.list, kernel, &raw const count, null_mut(), 0, null_mut()) }
    }

    pub fn launch_cooperative(&self, kernel: ze_kernel_handle_t, groups: u32) -> ze_result_t {
        let count = ze_group_count_t { groupCountX: groups, groupCountY: 1, groupCountZ: 1 };
        let launch = self.bed.ze.zeCommandListAppendLaunchCooperativeKernel;
        unsafe { launch(self.list, kernel, &raw const count, null_mut(), 0, null_mut()) }
    }

    #[track_caller]
    pub fn wait(&self) {
        ok(unsafe { (self.bed.ze.zeCommandListHostSynchronize)(self.list, SOON) });
    }

    /// Launches a new kernel of this name with these arguments, and waits for its end.
    #[track_caller]
    pub fn run(&self, name: &CStr, arguments: &[Argument], groups: [u32; 3], group_size: [u32; 3]) {
        let kernel = kernel(self.bed, name);
        set_all(self.bed, kernel, arguments);
        set_group(self.bed, kernel, group_size);
        ok(self.launch(kernel, groups));
        // What was appended doesn't need it any more.
        ok(unsafe { (self.bed.ze.zeKernelDestroy)(kernel) });
        // Without a bound, so that this thread itself may be what runs it.
        ok(unsafe { (self.bed.ze.zeCommandListHostSynchronize)(self.list, u64::MAX) });
    }
}

impl Drop for List<'_> {
    fn drop(&mut self) {
        ok(unsafe { (self.bed.ze.zeCommandListDestroy)(self.list) });
    }
}

/// As `spawn`, for a test that is ignored.
pub fn spawn_ignored(test: &str, variables: &[(&str, &str)]) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--ignored"])
        .env("ZE_SOFT_TEST_CHILD", "1")
        .envs(variables.iter().copied())
        .stdin(OwnedFd::from(theirs))
        .spawn()
        .unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    (child, ours)
}
