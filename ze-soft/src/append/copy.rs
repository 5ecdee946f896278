//! Entry points that append copies and fills.

use super::{Edges, append};
use crate::abi::input;
use crate::context::Context;
use crate::entry::entry_points;
use crate::error::fail;
use crate::handle::get;
use crate::op::{Op, Pattern, Region};
use crate::properties::MAX_FILL_PATTERN;
use level_zero_sys::*;
use std::ffi::c_void;

/// A copy of `size` bytes, whose ends aren't null.
fn copy(target: *mut c_void, source: *const c_void, size: usize) -> Result<Op, ze_result_t> {
    if target.is_null() || source.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    Ok(Op::Copy { target: target.cast(), source: source.cast(), size })
}

/// Refuses extensions: there are none here.
fn no_extensions(next: *const c_void) -> Result<(), ze_result_t> {
    match next.is_null() {
        true => Ok(()),
        false => Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "copies and fills have no extensions here")),
    }
}

unsafe extern "C" fn zeCommandListAppendMemoryCopy(
    hCommandList: ze_command_list_handle_t,
    dstptr: *mut c_void,
    srcptr: *const c_void,
    size: usize,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append(hCommandList, &edges, |_| copy(dstptr, srcptr, size))
}

unsafe extern "C" fn zeCommandListAppendMemoryCopyFromContext(
    hCommandList: ze_command_list_handle_t,
    dstptr: *mut c_void,
    hContextSrc: ze_context_handle_t,
    srcptr: *const c_void,
    size: usize,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append(hCommandList, &edges, |_| {
        // All contexts share all memory.
        get::<Context, _>(hContextSrc)?;
        copy(dstptr, srcptr, size)
    })
}

unsafe extern "C" fn zeCommandListAppendMemoryCopyWithParameters(
    hCommandList: ze_command_list_handle_t,
    dstptr: *mut c_void,
    srcptr: *const c_void,
    size: usize,
    pNext: *const c_void,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append(hCommandList, &edges, |_| {
        no_extensions(pNext)?;
        copy(dstptr, srcptr, size)
    })
}

unsafe extern "C" fn zeCommandListAppendMemoryCopyRegion(
    hCommandList: ze_command_list_handle_t,
    dstptr: *mut c_void,
    dstRegion: *const ze_copy_region_t,
    dstPitch: u32,
    dstSlicePitch: u32,
    srcptr: *const c_void,
    srcRegion: *const ze_copy_region_t,
    srcPitch: u32,
    srcSlicePitch: u32,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append(hCommandList, &edges, |_| {
        // SAFETY: the specification's promise.
        let (to, from) = unsafe { (input(dstRegion)?, input(srcRegion)?) };
        if dstptr.is_null() || srcptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        let extent = |region: &ze_copy_region_t| [region.width, region.height, region.depth];
        if extent(to) != extent(from) {
            return Err(fail(ZE_RESULT_ERROR_INVALID_SIZE, "the two regions of a copy have different sizes"));
        }
        // A region with no depth, or no height, is a slice, or a row.
        let [width, height, depth] = extent(to);
        let start = |region: &ze_copy_region_t, pitch: u32, slice_pitch: u32| {
            let rows = region.originY as usize * pitch as usize;
            region.originX as usize + rows + region.originZ as usize * slice_pitch as usize
        };
        Ok(Op::CopyRegion(Box::new(Region {
            target: dstptr.cast::<u8>().wrapping_add(start(to, dstPitch, dstSlicePitch)),
            target_pitches: [dstPitch as usize, dstSlicePitch as usize],
            source: srcptr.cast::<u8>().wrapping_add(start(from, srcPitch, srcSlicePitch)),
            source_pitches: [srcPitch as usize, srcSlicePitch as usize],
            extent: [width as usize, height.max(1) as usize, depth.max(1) as usize],
        })))
    })
}

/// A fill, if its pattern is one.
///
/// # Safety
/// A pattern that isn't null has `pattern_size` bytes.
unsafe fn fill(
    target: *mut c_void,
    pattern: *const c_void,
    pattern_size: usize,
    size: usize,
) -> Result<Op, ze_result_t> {
    if target.is_null() || pattern.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    if !pattern_size.is_power_of_two() || pattern_size > MAX_FILL_PATTERN {
        let text = format!("a pattern of {pattern_size} bytes: it must be a power of two up to {MAX_FILL_PATTERN}");
        return Err(fail(ZE_RESULT_ERROR_INVALID_SIZE, text));
    }
    if !size.is_multiple_of(pattern_size) {
        let text = format!("{size} bytes are no multiple of a pattern of {pattern_size}");
        return Err(fail(ZE_RESULT_ERROR_INVALID_SIZE, text));
    }
    // SAFETY: the caller's promise; it is read during the call.
    let pattern = Pattern::new(unsafe { std::slice::from_raw_parts(pattern.cast(), pattern_size) });
    Ok(Op::Fill { target: target.cast(), size, pattern })
}

unsafe extern "C" fn zeCommandListAppendMemoryFill(
    hCommandList: ze_command_list_handle_t,
    ptr: *mut c_void,
    pattern: *const c_void,
    pattern_size: usize,
    size: usize,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    // SAFETY: the specification's promise.
    append(hCommandList, &edges, |_| unsafe { fill(ptr, pattern, pattern_size, size) })
}

unsafe extern "C" fn zeCommandListAppendMemoryFillWithParameters(
    hCommandList: ze_command_list_handle_t,
    ptr: *mut c_void,
    pattern: *const c_void,
    pattern_size: usize,
    size: usize,
    pNext: *const c_void,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append(hCommandList, &edges, |_| {
        no_extensions(pNext)?;
        // SAFETY: the specification's promise.
        unsafe { fill(ptr, pattern, pattern_size, size) }
    })
}

entry_points! {
    zeCommandListAppendMemoryCopy: zeCommandListAppendMemoryCopy_t,
    zeCommandListAppendMemoryCopyFromContext: zeCommandListAppendMemoryCopyFromContext_t,
    zeCommandListAppendMemoryCopyWithParameters: zeCommandListAppendMemoryCopyWithParameters_t,
    zeCommandListAppendMemoryCopyRegion: zeCommandListAppendMemoryCopyRegion_t,
    zeCommandListAppendMemoryFill: zeCommandListAppendMemoryFill_t,
    zeCommandListAppendMemoryFillWithParameters: zeCommandListAppendMemoryFillWithParameters_t,
}
