//! Modules, kernels, their arguments, and launches of native kernels.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

mod memory_bed;

use level_zero_sys::*;
use memory_bed::*;
use sha2::{Digest, Sha256};
use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use ze_soft::ext::*;

fn sha(image: &[u8]) -> [u8; 32] {
    Sha256::digest(image).into()
}

fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a module; with an error comes what the build log says.
fn create(bed: &Bed, format: ze_module_format_t, image: &[u8]) -> Result<ze_module_handle_t, (ze_result_t, String)> {
    let desc = ze_module_desc_t { format, inputSize: image.len(), pInputModule: image.as_ptr(), ..Default::default() };
    let (mut module, mut log) = (null_mut(), null_mut());
    unsafe {
        let code = (bed.ze.zeModuleCreate)(bed.context, bed.devices[0], &raw const desc, &raw mut module, &raw mut log);
        let mut size = 0;
        ok((bed.ze.zeModuleBuildLogGetString)(log, &raw mut size, null_mut()));
        let mut text = vec![0u8; size];
        ok((bed.ze.zeModuleBuildLogGetString)(log, &raw mut size, text.as_mut_ptr().cast()));
        ok((bed.ze.zeModuleBuildLogDestroy)(log));
        let text = CString::from_vec_with_nul(text).unwrap().into_string().unwrap();
        if code == ZE_RESULT_SUCCESS { Ok(module) } else { Err((code, text)) }
    }
}

fn kernel(bed: &Bed, module: ze_module_handle_t, name: &CStr) -> Result<ze_kernel_handle_t, ze_result_t> {
    let desc = ze_kernel_desc_t { pKernelName: name.as_ptr(), ..Default::default() };
    let mut kernel = null_mut();
    match unsafe { (bed.ze.zeKernelCreate)(module, &raw const desc, &raw mut kernel) } {
        ZE_RESULT_SUCCESS => Ok(kernel),
        code => Err(code),
    }
}

/// A module of one kernel of its own, so that tests don't meet.
fn single(bed: &Bed, name: &CStr, function: zesoft_kernel_fn, sizes: &[usize]) -> ze_kernel_handle_t {
    let image = module_image(&[name.to_str().unwrap()]);
    ok(bed.register(&sha(&image), name, function, sizes));
    let module = create(bed, ZE_MODULE_FORMAT_NATIVE, &image).unwrap();
    let kernel = kernel(bed, module, name).unwrap();
    // A kernel outlives its module.
    ok(unsafe { (bed.ze.zeModuleDestroy)(module) });
    kernel
}

fn set<T>(bed: &Bed, kernel: ze_kernel_handle_t, index: u32, value: &T) -> ze_result_t {
    unsafe { (bed.ze.zeKernelSetArgumentValue)(kernel, index, size_of::<T>(), std::ptr::from_ref(value).cast()) }
}

unsafe extern "C" fn nothing(_launch: *const zesoft_launch_t) {}

/// Adds what argument 1 says to as many words as there are work-items, and notes the launch behind them.
unsafe extern "C" fn add(launch: *const zesoft_launch_t) {
    unsafe {
        let launch = &*launch;
        let argument = |index: usize| *launch.args.add(index);
        let words = argument(0).cast::<*mut u64>().read();
        let addend = argument(1).cast::<u32>().read();
        let items = launch.group_count.iter().chain(&launch.group_size).product::<u32>() as usize;
        for index in 0..items {
            *words.add(index) += u64::from(addend);
        }
        words.add(items).write(u64::from(launch.cooperative) << 32 | u64::from(launch.arg_count));
    }
}

struct List<'a> {
    bed: &'a Bed,
    list: ze_command_list_handle_t,
}

impl<'a> List<'a> {
    fn new(bed: &'a Bed) -> Self {
        let desc = ze_command_queue_desc_t { flags: ZE_COMMAND_QUEUE_FLAG_IN_ORDER, ..Default::default() };
        let mut list = null_mut();
        ok(unsafe {
            (bed.ze.zeCommandListCreateImmediate)(bed.context, bed.devices[0], &raw const desc, &raw mut list)
        });
        Self { bed, list }
    }

    fn launch(&self, kernel: ze_kernel_handle_t, groups: [u32; 3], cooperative: bool) -> ze_result_t {
        let [x, y, z] = groups;
        let count = ze_group_count_t { groupCountX: x, groupCountY: y, groupCountZ: z };
        let launch = if cooperative {
            self.bed.ze.zeCommandListAppendLaunchCooperativeKernel
        } else {
            self.bed.ze.zeCommandListAppendLaunchKernel
        };
        unsafe { launch(self.list, kernel, &raw const count, null_mut(), 0, null_mut()) }
    }

    fn synchronize(&self) {
        ok(unsafe { (self.bed.ze.zeCommandListHostSynchronize)(self.list, u64::MAX) });
    }
}

impl Drop for List<'_> {
    fn drop(&mut self) {
        ok(unsafe { (self.bed.ze.zeCommandListDestroy)(self.list) });
    }
}

#[test]
fn a_module_says_what_is_in_it() {
    let bed = Bed::new();
    let image = module_image(&["what_is_in_it_a", "what_is_in_it_b"]);
    ok(bed.register(&sha(&image), c"what_is_in_it_b", nothing, &[]));
    let module = create(&bed, ZE_MODULE_FORMAT_NATIVE, &image).unwrap();
    let (mut names, mut count, mut size) = ([null(); 4], 4, 0);
    let mut binary = vec![0u8; image.len()];
    let mut properties = ze_module_properties_t::default();
    unsafe {
        ok((bed.ze.zeModuleGetKernelNames)(module, &raw mut count, names.as_mut_ptr()));
        assert_eq!(count, 2);
        assert_eq!(
            names[..2].iter().map(|name| CStr::from_ptr(*name)).collect::<Vec<_>>(),
            [c"what_is_in_it_a", c"what_is_in_it_b"]
        );
        ok((bed.ze.zeModuleGetNativeBinary)(module, &raw mut size, null_mut()));
        assert_eq!(size, image.len());
        ok((bed.ze.zeModuleGetNativeBinary)(module, &raw mut size, binary.as_mut_ptr()));
        ok((bed.ze.zeModuleGetProperties)(module, &raw mut properties));
    }
    assert_eq!(binary, image);
    // In the module, but not registered; and not in it at all.
    assert_eq!(kernel(&bed, module, c"what_is_in_it_a").err(), Some(ZE_RESULT_ERROR_INVALID_KERNEL_NAME));
    assert!(bed.description().contains("what_is_in_it_a") && bed.description().contains("not registered"));
    assert_eq!(kernel(&bed, module, c"elsewhere").err(), Some(ZE_RESULT_ERROR_INVALID_KERNEL_NAME));
    assert!(bed.description().contains("elsewhere") && bed.description().contains("not in"));
    let found = kernel(&bed, module, c"what_is_in_it_b").unwrap();
    ok(unsafe { (bed.ze.zeKernelDestroy)(found) });
    ok(unsafe { (bed.ze.zeModuleDestroy)(module) });
}

#[test]
fn modules_without_kernels_to_run_are_refused_by_hash() {
    let bed = Bed::new();
    let image = module_image(&["nobody_registered_this"]);
    let refused = |format, image: &[u8], code| {
        let (got, log) = create(&bed, format, image).unwrap_err();
        assert_eq!(got, code);
        assert!(log.contains(&hex(&sha(image))), "{log}");
        assert_eq!(bed.description(), log);
    };
    refused(ZE_MODULE_FORMAT_NATIVE, &image, ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    refused(ZE_MODULE_FORMAT_IL_SPIRV, &[3, 2, 35, 7], ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    refused(ZE_MODULE_FORMAT_NATIVE, b"ELF?", ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
}

#[test]
fn arguments_are_checked_by_index_and_size() {
    let bed = Bed::new();
    let kernel = single(&bed, c"checked", nothing, &[8, 4]);
    ok(set(&bed, kernel, 0, &0u64));
    ok(set(&bed, kernel, 1, &0u32));
    assert_eq!(set(&bed, kernel, 2, &0u32), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
    assert_eq!(set(&bed, kernel, 1, &0u64), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    assert!(bed.description().contains("argument 1") && bed.description().contains("checked"));
    ok(unsafe { (bed.ze.zeKernelDestroy)(kernel) });
    assert_eq!(set(&bed, null_mut(), 1, &0u64), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
}

#[test]
fn registrations_are_checked() {
    let bed = Bed::new();
    let hash = sha(b"checked registrations");
    assert_eq!(bed.register(&hash, c"", nothing, &[]), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert_eq!(bed.register(&hash, c"two\nlines", nothing, &[]), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert_eq!(bed.register(&hash, c"k", nothing, &[8, 0]), ZE_RESULT_ERROR_INVALID_SIZE);
    assert_eq!(bed.register(&hash, c"k", nothing, &[8; 65]), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    assert_eq!(bed.register(&hash, c"k", nothing, &[2048, 1]), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    assert_eq!(bed.register(&hash, c"k", nothing, &[usize::MAX, 8]), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
}

#[test]
fn kernels_say_what_they_are_and_what_fits() {
    let bed = Bed::new();
    let kernel = single(&bed, c"described", nothing, &[8, 4, 4]);
    let mut properties = ze_kernel_properties_t { spillMemSize: 7, ..Default::default() };
    let (mut size, mut text) = (32, [0u8; 32]);
    let (mut x, mut y, mut z, mut groups) = (0, 0, 0, 0);
    unsafe {
        ok((bed.ze.zeKernelGetProperties)(kernel, &raw mut properties));
        ok((bed.ze.zeKernelGetName)(kernel, &raw mut size, text.as_mut_ptr().cast()));
        ok((bed.ze.zeKernelSuggestGroupSize)(kernel, 96, 5, 1, &raw mut x, &raw mut y, &raw mut z));
        ok((bed.ze.zeKernelSuggestMaxCooperativeGroupCount)(kernel, &raw mut groups));
        ok((bed.ze.zeKernelSetGroupSize)(kernel, 64, 4, 4));
        let odd = |x, y, z| (bed.ze.zeKernelSetGroupSize)(kernel, x, y, z);
        assert_eq!(odd(1025, 1, 1), ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
        assert_eq!(odd(64, 4, 5), ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
        assert_eq!(odd(1, 0, 1), ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
        ok((bed.ze.zeKernelSetIndirectAccess)(kernel, ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE));
        ok((bed.ze.zeKernelSetCacheConfig)(kernel, ZE_CACHE_CONFIG_FLAG_LARGE_SLM));
        ok((bed.ze.zeKernelDestroy)(kernel));
    }
    assert_eq!((properties.numKernelArgs, properties.spillMemSize), (3, 0));
    assert_eq!((size, &text[..size]), (10, b"described\0".as_slice()));
    assert_eq!((x, y, z, groups), (32, 1, 1, 8));
}

#[test]
fn a_launch_runs_the_kernel_as_it_was_when_appended() {
    let bed = Bed::new();
    let memory = bed.alloc(0, 4096).cast::<u64>();
    let kernel = single(&bed, c"as_it_was", add, &[8, 4]);
    let list = List::new(&bed);
    ok(set(&bed, kernel, 0, &memory));
    assert_eq!(list.launch(kernel, [1, 1, 1], false), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert!(bed.description().contains("argument 1"), "{}", bed.description());
    ok(unsafe { (bed.ze.zeKernelSetGroupSize)(kernel, 4, 1, 1) });
    ok(set(&bed, kernel, 1, &10u32));
    ok(list.launch(kernel, [2, 1, 3], false));
    // What is set from here on concerns later launches only.
    ok(set(&bed, kernel, 1, &1u32));
    ok(unsafe { (bed.ze.zeKernelSetGroupSize)(kernel, 1, 1, 1) });
    ok(list.launch(kernel, [2, 2, 1], true));
    ok(list.launch(kernel, [0, 1, 1], false));
    ok(unsafe { (bed.ze.zeKernelDestroy)(kernel) });
    list.synchronize();
    let words = unsafe { std::slice::from_raw_parts(memory, 26) };
    let mut wanted = [10u64; 26];
    wanted[..4].fill(11);
    // Behind the items of each launch: cooperative or not, and the number of arguments.
    wanted[4] = 1 << 32 | 2;
    wanted[24..].copy_from_slice(&[2, 0]);
    assert_eq!(words, wanted);
    drop(list);
    ok(bed.free(memory.cast()));
}

#[test]
fn a_launch_may_bring_its_arguments_along() {
    let bed = Bed::new();
    let memory = bed.alloc(0, 4096).cast::<u64>();
    let kernel = single(&bed, c"along", add, &[8, 4]);
    let list = List::new(&bed);
    let append = bed.ze.zeCommandListAppendLaunchKernelWithArguments.unwrap();
    let groups = ze_group_count_t { groupCountX: 2, groupCountY: 1, groupCountZ: 1 };
    let size = |x| ze_group_size_t { groupSizeX: x, groupSizeY: 1, groupSizeZ: 1 };
    let addend = 5u32;
    let mut arguments: [*mut c_void; 2] =
        [(&raw const memory).cast_mut().cast(), (&raw const addend).cast_mut().cast()];
    unsafe {
        let launch =
            |size, arguments| append(list.list, kernel, groups, size, arguments, null(), null_mut(), 0, null_mut());
        ok(launch(size(2), arguments.as_mut_ptr()));
        assert_eq!(launch(size(4096), null_mut()), ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
        // Without arguments of its own it has those that the launch before has set.
        ok(launch(size(1), null_mut()));
    }
    list.synchronize();
    let words = unsafe { std::slice::from_raw_parts(memory, 5) };
    assert_eq!(words, [10, 10, 2, 5, 2]);
    drop(list);
    ok(unsafe { (bed.ze.zeKernelDestroy)(kernel) });
    ok(bed.free(memory.cast()));
}

#[test]
fn no_more_groups_cooperate_than_run_together() {
    let bed = Bed::new();
    let kernel = single(&bed, c"cooperating", nothing, &[]);
    let list = List::new(&bed);
    ok(list.launch(kernel, [2, 2, 2], true));
    assert_eq!(list.launch(kernel, [3, 3, 1], true), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert!(bed.description().contains("at most 8"), "{}", bed.description());
    ok(list.launch(kernel, [3, 3, 1], false));
    list.synchronize();
    drop(list);
    ok(unsafe { (bed.ze.zeKernelDestroy)(kernel) });
}

/// Sums all arguments but the first, of 40 bytes each, word by word, into what the first points to.
unsafe extern "C" fn sum_all(launch: *const zesoft_launch_t) {
    unsafe {
        let launch = &*launch;
        let target = (*launch.args).cast::<*mut u64>().read();
        let values = (1..launch.arg_count as usize).map(|index| {
            let value = *launch.args.add(index);
            assert!(value.addr().is_multiple_of(16));
            value.cast::<[u64; 5]>().read().iter().sum::<u64>()
        });
        target.write(values.sum());
    }
}

#[test]
fn many_and_large_arguments_arrive_whole() {
    let bed = Bed::new();
    let memory = bed.alloc(0, 4096).cast::<u64>();
    let sizes: Vec<usize> = std::iter::once(8).chain(std::iter::repeat_n(40, 40)).collect();
    let kernel = single(&bed, c"many", sum_all, &sizes);
    let list = List::new(&bed);
    ok(set(&bed, kernel, 0, &memory));
    for index in 1..=40u32 {
        let base = u64::from(index) * 100;
        ok(set(&bed, kernel, index, &[base, 1, 2, 3, 4]));
    }
    ok(list.launch(kernel, [1, 1, 1], false));
    list.synchronize();
    assert_eq!(unsafe { memory.read() }, (1..=40).map(|index| index * 100 + 10).sum());
    drop(list);
    ok(unsafe { (bed.ze.zeKernelDestroy)(kernel) });
    ok(bed.free(memory.cast()));
}

#[test]
fn registering_again_replaces_for_later_kernels() {
    unsafe extern "C" fn one(launch: *const zesoft_launch_t) {
        unsafe { (*(*launch).args).cast::<*mut u64>().read().write(1) };
    }
    unsafe extern "C" fn two(launch: *const zesoft_launch_t) {
        unsafe { (*(*launch).args).cast::<*mut u64>().read().add(1).write(2) };
    }
    let bed = Bed::new();
    let memory = bed.alloc(0, 4096).cast::<u64>();
    let first = single(&bed, c"again", one, &[8]);
    let second = single(&bed, c"again", two, &[8]);
    let list = List::new(&bed);
    for kernel in [first, second] {
        ok(set(&bed, kernel, 0, &memory));
        ok(list.launch(kernel, [1, 1, 1], false));
    }
    list.synchronize();
    assert_eq!(unsafe { [memory.read(), memory.add(1).read()] }, [1, 2]);
    drop(list);
    for kernel in [first, second] {
        ok(unsafe { (bed.ze.zeKernelDestroy)(kernel) });
    }
    ok(bed.free(memory.cast()));
}
