//! SPIR-V modules and kernels, as an OpenCL runtime executes them.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

mod memory_bed;
mod opencl_bed;

use level_zero_sys::*;
use memory_bed::*;
use opencl_bed::*;
use sha2::{Digest, Sha256};
use std::ffi::CStr;
use std::ptr::null_mut;
use ze_soft::ext::*;

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn vectors_are_added_wherever_they_lie() {
    let bed = bed();
    let list = List::new(&bed, 1, 0);
    let count = 1000usize;
    // Device memory from the middle of an allocation, memory of another device, and the program's own.
    let first = unsafe { bed.alloc(0, 1 << 16).add(4100) }.cast::<f32>();
    let second = bed.alloc(2, 1 << 13).cast::<f32>();
    let mut sum = vec![-1f32; count + 1];
    for i in 0..count {
        unsafe {
            first.add(i).write(i as f32);
            second.add(i).write(0.5 * i as f32);
        }
    }
    let arguments = [pointer(first), pointer(second), pointer(sum.as_mut_ptr()), value(count as u32)];
    list.run(c"add", &arguments, [16, 1, 1], [64, 1, 1]);
    for (i, sum) in sum[..count].iter().enumerate() {
        assert_eq!(*sum, 1.5 * i as f32);
    }
    assert_eq!(sum[count], -1.0);
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn work_items_are_numbered_from_the_global_offset() {
    let bed = bed();
    let list = List::new(&bed, 0, 0);
    let (first, second, sum) = (bed.alloc(0, 4096), bed.alloc(0, 4096), bed.alloc(0, 4096));
    let (first, second, sum) = (first.cast::<f32>(), second.cast::<f32>(), sum.cast::<f32>());
    for i in 0..256usize {
        unsafe {
            first.add(i).write(i as f32);
            second.add(i).write(3.0);
            sum.add(i).write(-1.0);
        }
    }
    let kernel = kernel(&bed, c"add");
    set_all(&bed, kernel, &[pointer(first), pointer(second), pointer(sum), value(256u32)]);
    set_group(&bed, kernel, [16, 1, 1]);
    let offset = bed.ze.zeKernelSetGlobalOffsetExp.unwrap();
    ok(unsafe { offset(kernel, 100, 0, 0) });
    ok(list.launch(kernel, [3, 1, 1]));
    // A launch that was made keeps its own.
    ok(unsafe { offset(kernel, 0, 0, 0) });
    ok(list.launch(kernel, [3, 1, 1]));
    list.wait();
    for i in 0..256usize {
        let written = i < 48 || (100..148).contains(&i);
        assert_eq!(unsafe { sum.add(i).read() }, if written { i as f32 + 3.0 } else { -1.0 }, "{i}");
    }
    ok(unsafe { (bed.ze.zeKernelDestroy)(kernel) });
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Odd {
    a: u8,
    b: u64,
    c: u16,
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn values_of_every_size_arrive() {
    let bed = bed();
    let list = List::new(&bed, 0, 1);
    let out = bed.alloc(0, 4096).cast::<u64>();
    let arguments = [
        pointer(out),
        value(0xf1u8),
        value(0xf234u16),
        value(0xf567_89abu32),
        value(0xfedc_ba98_7654_3210u64),
        value(0x3c01u16),
        value(1.25f32),
        value(-7.5f64),
        value([3u32, 4]),
        value([5u32, 6, 7, 0]),
        value(Odd { a: 9, b: 1 << 40, c: 300 }),
    ];
    list.run(c"scalars", &arguments, [1, 1, 1], [1, 1, 1]);
    let got = unsafe { std::slice::from_raw_parts(out, 10) };
    let want = [
        0xf1,
        0xf234,
        0xf567_89ab,
        0xfedc_ba98_7654_3210,
        0x3c01,
        u64::from(1.25f32.to_bits()),
        (-7.5f64).to_bits(),
        3 + (4 << 32),
        18,
        9 + (1 << 40) + 300,
    ];
    assert_eq!(got, want);
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn local_memory_has_a_size_and_no_value() {
    let bed = bed();
    let list = List::new(&bed, 0, 0);
    let data = bed.alloc(0, 4096).cast::<u32>();
    let bias = bed.alloc(0, 64).cast::<u32>();
    let fill = || (0..256).for_each(|i| unsafe { data.add(i).write(i as u32) });
    let check = |bias: u32| {
        for i in 0..256u32 {
            let (group, item) = (i / 64, i % 64);
            assert_eq!(unsafe { data.add(i as usize).read() }, group * 64 + 63 - item + bias);
        }
    };
    fill();
    unsafe { bias.write(7) };
    let reverse = kernel(&bed, c"reverse");
    set_all(&bed, reverse, &[pointer(data), Argument::Local(256), pointer(bias)]);
    assert_eq!(set(&bed, reverse, 1, &Argument::Local(0)), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    assert_eq!(set(&bed, reverse, 1, &value(0u64)), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    assert!(bed.description().contains("argument 1 of kernel reverse is local memory"), "{}", bed.description());
    set_group(&bed, reverse, [64, 1, 1]);
    ok(list.launch(reverse, [4, 1, 1]));
    list.wait();
    check(7);

    // All at once: of local memory the argument points to the size.
    fill();
    unsafe { bias.write(9) };
    let append = bed.ze.zeCommandListAppendLaunchKernelWithArguments.unwrap();
    let (mut data_value, mut size, mut bias_value) = (data, 256usize, bias);
    let mut arguments = [(&raw mut data_value).cast(), (&raw mut size).cast(), (&raw mut bias_value).cast()];
    let count = ze_group_count_t { groupCountX: 4, groupCountY: 1, groupCountZ: 1 };
    let group = ze_group_size_t { groupSizeX: 64, groupSizeY: 1, groupSizeZ: 1 };
    let pointers = arguments.as_mut_ptr();
    ok(unsafe { append(list.list, reverse, count, group, pointers, std::ptr::null(), null_mut(), 0, null_mut()) });
    list.wait();
    check(9);
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn a_grid_has_three_dimensions() {
    let bed = bed();
    let list = List::new(&bed, 0, 0);
    let (groups, size) = ([3u32, 2, 2], [4u32, 2, 1]);
    let out = bed.alloc(0, 1 << 16).cast::<u64>();
    list.run(c"places", &[pointer(out)], groups, size);
    let whole: [u32; 3] = std::array::from_fn(|i| groups[i] * size[i]);
    for z in 0..whole[2] {
        for y in 0..whole[1] {
            for x in 0..whole[0] {
                let (group, local) = ([x / size[0], y / size[1], z / size[2]], [x % size[0], y % size[1]]);
                let want = u64::from(group[0] + 16 * group[1] + 256 * group[2] + 4096 * local[0] + 65536 * local[1])
                    + (u64::from(local[0] + size[0] * local[1]) << 32);
                let at = x + whole[0] * (y + whole[1] * z);
                assert_eq!(unsafe { out.add(at as usize).read() }, want, "at {x} {y} {z}");
            }
        }
    }
    // A grid without groups is nothing to do.
    unsafe { out.write(u64::MAX) };
    list.run(c"places", &[pointer(out)], [0, 1, 1], size);
    assert_eq!(unsafe { out.read() }, u64::MAX);
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn pointers_in_memory_are_followed() {
    let bed = bed();
    let list = List::new(&bed, 0, 0);
    let mut cell = 41u32;
    let address = bed.alloc(0, 64).cast::<*mut u32>();
    unsafe { address.write(&raw mut cell) };
    list.run(c"indirect", &[pointer(address)], [1, 1, 1], [1, 1, 1]);
    assert_eq!(unsafe { (&raw const cell).read_volatile() }, 42);
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn wrong_arguments_are_refused() {
    let bed = bed();
    let add = kernel(&bed, c"add");
    assert_eq!(set(&bed, add, 4, &value(0u32)), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
    assert!(bed.description().contains("add has 4 arguments"), "{}", bed.description());
    assert_eq!(set(&bed, add, 3, &value(0u64)), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    assert!(bed.description().contains("argument 3 of kernel add has 4 bytes, not 8"), "{}", bed.description());
    assert_eq!(set(&bed, add, 0, &value(0u32)), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    let list = List::new(&bed, 0, 0);
    assert_eq!(list.launch(add, [1, 1, 1]), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert!(bed.description().contains("argument 0 of kernel add was never set"), "{}", bed.description());
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn kernels_say_what_they_are() {
    let bed = bed();
    let properties = |name: &CStr| {
        let mut properties = ze_kernel_properties_t::default();
        let kernel = kernel(&bed, name);
        ok(unsafe { (bed.ze.zeKernelGetProperties)(kernel, &raw mut properties) });
        (kernel, properties)
    };
    let (_, add) = properties(c"add");
    assert_eq!((add.numKernelArgs, add.requiredGroupSizeX, add.requiredSubgroupSize, add.spillMemSize), (4, 0, 0, 0));
    assert!(add.maxSubgroupSize > 0 && add.maxNumSubgroups > 0);
    let (_, sixteen) = properties(c"sixteen");
    assert_eq!((sixteen.requiredSubgroupSize, sixteen.maxSubgroupSize), (16, 16));
    let (fours, required) = properties(c"fours");
    let sizes = (required.requiredGroupSizeX, required.requiredGroupSizeY, required.requiredGroupSizeZ);
    assert_eq!(sizes, (4, 1, 1));
    let size = unsafe { (bed.ze.zeKernelSetGroupSize)(fours, 8, 1, 1) };
    assert_eq!(size, ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    assert!(bed.description().contains("fours demands [4, 1, 1]"), "{}", bed.description());

    let list = List::new(&bed, 0, 0);
    let out = bed.alloc(0, 4096).cast::<u32>();
    // Its own group size needs no setting.
    ok(set(&bed, fours, 0, &pointer(out)));
    ok(list.launch(fours, [2, 1, 1]));
    list.wait();
    assert_eq!(unsafe { std::slice::from_raw_parts(out, 9) }, [4, 4, 4, 4, 4, 4, 4, 4, 0]);
    list.run(c"sixteen", &[pointer(out)], [1, 1, 1], [32, 1, 1]);
    assert_eq!(unsafe { std::slice::from_raw_parts(out, 32) }, [16; 32]);
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn modules_say_what_is_in_them() {
    let bed = bed();
    let module = module(&bed);
    let mut count = 0;
    ok(unsafe { (bed.ze.zeModuleGetKernelNames)(module, &raw mut count, null_mut()) });
    let mut names = vec![std::ptr::null(); count as usize];
    ok(unsafe { (bed.ze.zeModuleGetKernelNames)(module, &raw mut count, names.as_mut_ptr()) });
    let mut names: Vec<_> = names.into_iter().map(|name| unsafe { CStr::from_ptr(name) }.to_str().unwrap()).collect();
    names.sort_unstable();
    let want = [
        "add", "fours", "indirect", "nothing", "pingpong", "places", "reverse", "scalars", "sixteen", "together",
        "total",
    ];
    assert_eq!(names, want);
    assert_eq!(try_kernel(&bed, module, c"subtract").err(), Some(ZE_RESULT_ERROR_INVALID_KERNEL_NAME));
    assert!(bed.description().contains("kernel subtract is not in the module"), "{}", bed.description());

    // Its native binary makes the same module again.
    let mut size = 0;
    ok(unsafe { (bed.ze.zeModuleGetNativeBinary)(module, &raw mut size, null_mut()) });
    let mut binary = vec![0u8; size];
    ok(unsafe { (bed.ze.zeModuleGetNativeBinary)(module, &raw mut size, binary.as_mut_ptr()) });
    let again = build(&bed, ZE_MODULE_FORMAT_NATIVE, &binary, None).0.unwrap();
    try_kernel(&bed, again, c"add").unwrap();
    let mut properties = ze_device_module_properties_t::default();
    ok(unsafe { (bed.ze.zeDeviceGetModuleProperties)(bed.devices[0], &raw mut properties) });
    assert_eq!(properties.spirvVersionSupported, ze_make_version(1, 2));
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn what_cannot_be_built_says_why() {
    let bed = bed();
    let refused = |image: &[u8], flags: Option<&CStr>, words: &[&str]| {
        let (module, log) = build(&bed, ZE_MODULE_FORMAT_IL_SPIRV, image, flags);
        assert_eq!(module.err(), Some(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE), "{log}");
        for word in words {
            assert!(log.contains(word), "{log}");
        }
        assert!(log.contains("the module with sha256"), "{log}");
    };
    refused(IMAGE, Some(c"-no-such-option"), &["-no-such-option", "clBuildProgram"]);
    refused(IMAGE, Some(c"-ze-no-such-flag"), &["the build flag -ze-no-such-flag is unknown"]);
    refused(&IMAGE[..1001], None, &["no SPIR-V that can be read"]);
    refused(b"not SPIR-V at all!!", None, &["no SPIR-V that can be read"]);
    let flags = c"-ze-opt-greater-than-4GB-buffer-required -cl-mad-enable";
    let (module, log) = build(&bed, ZE_MODULE_FORMAT_IL_SPIRV, IMAGE, Some(flags));
    assert!(module.is_ok() && log.contains("has no meaning on a processor"), "{log}");
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn what_was_compiled_is_kept() {
    const TEST: &str = "what_was_compiled_is_kept";
    const CACHED: &str = "ZE_SOFT_TEST_CACHED";
    if is_child() {
        let bed = bed();
        let (module, log) = build(&bed, ZE_MODULE_FORMAT_IL_SPIRV, IMAGE, None);
        assert_eq!(log.contains("taken from the cache"), std::env::var(CACHED).unwrap() == "1", "{log}");
        let list = List::new(&bed, 0, 0);
        let data = bed.alloc(0, 4096).cast::<u32>();
        let bias = bed.alloc(0, 4096).cast::<u32>();
        let reverse = try_kernel(&bed, module.unwrap(), c"reverse").unwrap();
        unsafe { data.write(5) };
        set_all(&bed, reverse, &[pointer(data), Argument::Local(8), pointer(bias)]);
        set_group(&bed, reverse, [2, 1, 1]);
        ok(list.launch(reverse, [1, 1, 1]));
        list.wait();
        return assert_eq!(unsafe { (data.read(), data.add(1).read()) }, (0, 5));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made");
    let run = |cached: &str| {
        let variables = [(CACHED, cached), ("ZE_SOFT_OPENCL_CACHE", path.to_str().unwrap())];
        let (mut child, _stream) = spawn_ignored(TEST, &variables);
        assert!(child.wait().unwrap().success(), "cached: {cached}");
    };
    run("0");
    run("1");
    // What is damaged is compiled anew.
    let files = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
    let kept = files.filter(|file| file.extension().is_none()).collect::<Vec<_>>();
    assert_eq!(kept.len(), 1);
    let mut bytes = std::fs::read(&kept[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&kept[0], bytes).unwrap();
    run("0");
    run("1");
}

unsafe extern "C" fn answer(launch: *const zesoft_launch_t) {
    unsafe { (*(*launch).args).cast::<*mut u32>().read().write(42) };
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn native_modules_work_beside_it() {
    let bed = bed();
    let image = module_image(&["answer"]);
    ok(bed.register(&Sha256::digest(&image).into(), c"answer", answer, &[8]));
    let module = build(&bed, ZE_MODULE_FORMAT_NATIVE, &image, None).0.unwrap();
    let answer = try_kernel(&bed, module, c"answer").unwrap();
    let list = List::new(&bed, 0, 0);
    let cell = bed.alloc(0, 64).cast::<u32>();
    let address = bed.alloc(0, 64).cast::<*mut u32>();
    unsafe { address.write(cell) };
    let indirect = kernel(&bed, c"indirect");
    set_all(&bed, answer, &[pointer(cell)]);
    set_all(&bed, indirect, &[pointer(address)]);
    ok(list.launch(answer, [1, 1, 1]));
    ok(list.launch(indirect, [1, 1, 1]));
    list.wait();
    assert_eq!(unsafe { cell.read() }, 43);
}
