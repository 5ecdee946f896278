//! What programs ask for that our own library doesn't: copies of boxes, what queues and lists were made with, and the
//! answers that runtimes want from a driver before they use it.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

#[path = "executor_support/mod.rs"]
mod support;

use level_zero_sys::*;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use support::*;

fn region([x, y, z]: [u32; 3], [width, height, depth]: [u32; 3]) -> ze_copy_region_t {
    ze_copy_region_t { originX: x, originY: y, originZ: z, width, height, depth }
}

#[test]
fn a_box_is_copied_into_another_array() {
    let soft = Soft::new();
    let list = soft.immediate(0, 2);
    let copy = soft.ze.zeCommandListAppendMemoryCopyRegion.unwrap();
    let source: Vec<u8> = (0..7 * 11 * 6u32).map(|i| (i * 37 % 251) as u8).collect();
    for extent in [[3, 4, 2], [5, 1, 1], [3, 0, 0], [2, 3, 0], [0, 2, 2]] {
        let mut target = vec![0xeeu8; 8 * 13 * 4];
        let (to, from) = (region([2, 3, 1], extent), region([1, 2, 3], extent));
        ok(unsafe {
            let (target, source) = (target.as_mut_ptr().cast(), source.as_ptr().cast());
            copy(list, target, &to, 13, 8 * 13, source, &from, 11, 7 * 11, null_mut(), 0, null_mut())
        });
        ok(soft.wait_list(list, NEVER));
        let [width, height, depth] = [extent[0], extent[1].max(1), extent[2].max(1)];
        for (at, byte) in (0u32..).zip(&target) {
            let (x, y, z) = (at % 13, at / 13 % 8, at / (13 * 8));
            let within = (2..2 + width).contains(&x) && (3..3 + height).contains(&y) && (1..1 + depth).contains(&z);
            let at = || ((x - 2 + 1) + (y - 3 + 2) * 11 + (z - 1 + 3) * 77) as usize;
            assert_eq!(*byte, if within { source[at()] } else { 0xee }, "{x} {y} {z} of {extent:?}");
        }
    }
    let mut target = [0u8; 64];
    let (to, from) = (region([0; 3], [2, 2, 1]), region([0; 3], [2, 3, 1]));
    let code = unsafe {
        let (target, source) = (target.as_mut_ptr().cast(), source.as_ptr().cast());
        copy(list, target, &to, 8, 0, source, &from, 8, 0, null_mut(), 0, null_mut())
    };
    assert_eq!(code, ZE_RESULT_ERROR_INVALID_SIZE);
}

#[test]
fn copies_and_fills_have_newer_forms() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let copy = soft.ze.zeCommandListAppendMemoryCopyWithParameters.unwrap();
    let fill = soft.ze.zeCommandListAppendMemoryFillWithParameters.unwrap();
    let from_context = soft.ze.zeCommandListAppendMemoryCopyFromContext.unwrap();
    let (mut a, mut b, mut c) = ([0u16; 8], [0u16; 8], [0u16; 8]);
    let pattern = [0x1234u16, 0x5678];
    let unknown = ze_context_desc_t::default();
    unsafe {
        let (a, b, c) = (a.as_mut_ptr().cast(), b.as_mut_ptr().cast(), c.as_mut_ptr().cast());
        let pattern = pattern.as_ptr().cast();
        ok(fill(list, a, pattern, 4, 16, null(), null_mut(), 0, null_mut()));
        ok(copy(list, b, a, 12, null(), null_mut(), 0, null_mut()));
        ok(from_context(list, c, soft.context, b, 16, null_mut(), 0, null_mut()));
        let next = (&raw const unknown).cast();
        let refused = ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
        assert_eq!(fill(list, a, pattern, 4, 16, next, null_mut(), 0, null_mut()), refused);
        assert_eq!(copy(list, b, a, 12, next, null_mut(), 0, null_mut()), refused);
        let no_context = from_context(list, c, null_mut(), b, 16, null_mut(), 0, null_mut());
        assert_eq!(no_context, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    }
    ok(soft.wait_list(list, NEVER));
    assert_eq!(c, [0x1234, 0x5678, 0x1234, 0x5678, 0x1234, 0x5678, 0, 0]);
}

/// What a function writes.
fn answer<T: Default>(ask: impl FnOnce(*mut T) -> ze_result_t) -> T {
    let mut value = T::default();
    ok(ask(&mut value));
    value
}

#[test]
fn queues_and_lists_say_how_they_were_made() {
    let soft = Soft::new();
    let ze = &soft.ze;
    let desc = ze_command_queue_desc_t {
        ordinal: 1,
        flags: ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
        mode: ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
        priority: ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH,
        ..Default::default()
    };
    let queue = made(|queue| unsafe { (ze.zeCommandQueueCreate)(soft.context, soft.devices[0], &desc, queue) });
    let list = made(|list| unsafe { (ze.zeCommandListCreateImmediate)(soft.context, soft.devices[0], &desc, list) });
    let (flags, mode) = (ze.zeCommandQueueGetFlags.unwrap(), ze.zeCommandQueueGetMode.unwrap());
    assert_eq!(answer(|place| unsafe { flags(queue, place) }), ZE_COMMAND_QUEUE_FLAG_IN_ORDER);
    assert_eq!(answer(|place| unsafe { mode(queue, place) }), ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    let priority = ze.zeCommandQueueGetPriority.unwrap();
    assert_eq!(answer(|place| unsafe { priority(queue, place) }), ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH);
    let priority = ze.zeCommandListImmediateGetPriority.unwrap();
    assert_eq!(answer(|place| unsafe { priority(list, place) }), ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH);
}

#[test]
fn kernels_answer_what_runtimes_ask() {
    let soft = Soft::new();
    let ze = &soft.ze;
    let kernel = soft.kernel("store");
    let (indirect, attributes) = (ze.zeKernelGetIndirectAccess.unwrap(), ze.zeKernelGetSourceAttributes.unwrap());
    ok(unsafe { (ze.zeKernelSetIndirectAccess)(kernel, ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE) });
    let flags = answer(|place| unsafe { indirect(kernel, place) });
    assert_eq!(flags, ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE);
    assert_eq!(answer(|size| unsafe { attributes(kernel, size, null_mut()) }), 1);
    let (mut size, mut text) = (1, [0x55 as c_char; 2]);
    ok(unsafe { attributes(kernel, &mut size, &mut text.as_mut_ptr()) });
    assert_eq!((size, text), (1, [0, 0x55]));
    // Native kernels have the launch's own numbering of work-items, and no other.
    let offset = ze.zeKernelSetGlobalOffsetExp.unwrap();
    ok(unsafe { offset(kernel, 0, 0, 0) });
    assert_eq!(unsafe { offset(kernel, 0, 64, 0) }, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    let mut text = null();
    ok(unsafe { (ze.zeDriverGetLastErrorDescription)(soft.driver, &mut text) });
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    assert!(text.contains("global offset"), "{text}");
}

#[test]
fn a_device_without_images_says_so() {
    let soft = Soft::new();
    let properties = soft.ze.zeDeviceGetImageProperties.unwrap();
    let mut answer = ze_device_image_properties_t { maxSamplers: 9, maxImageDims2D: 9, ..Default::default() };
    ok(unsafe { properties(soft.devices[0], &mut answer) });
    assert_eq!((answer.maxSamplers, answer.maxImageDims2D), (0, 0));
    assert_eq!(answer.stype, ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES);
}

#[test]
fn the_driver_says_its_version_as_runtimes_read_it() {
    let soft = Soft::new();
    type Version = unsafe extern "C" fn(ze_driver_handle_t, *mut c_char, *mut usize) -> ze_result_t;
    let mut function: *mut c_void = null_mut();
    let name = c"zeIntelGetDriverVersionString";
    ok(unsafe { (soft.ze.zeDriverGetExtensionFunctionAddress)(soft.driver, name.as_ptr(), &mut function) });
    let version: Version = unsafe { std::mem::transmute(function) };
    let mut size = 0;
    ok(unsafe { version(soft.driver, null_mut(), &mut size) });
    let mut text = vec![0u8; size];
    ok(unsafe { version(soft.driver, text.as_mut_ptr().cast(), &mut size) });
    let text = CStr::from_bytes_with_nul(&text).unwrap().to_str().unwrap();
    let numbers: Vec<u32> = text.split('.').map(|number| number.parse().unwrap()).collect();
    assert!(numbers.len() == 3 && numbers > vec![1, 14, 36300], "{text}");
}
