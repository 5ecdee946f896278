//! Entry points that append commands other than kernels, copies and fills.

mod copy;
mod launch;

use crate::abi::run;
use crate::device::Device;
use crate::engine::cuda;
use crate::entry::entry_points;
use crate::error::fail;
use crate::event;
use crate::handle::get;
use crate::list::{List, wait_list};
use crate::op::Op;
use crate::queue::lists;
use level_zero_sys::*;
use std::ffi::c_void;

/// The last three arguments of nearly every append.
struct Edges {
    signal: ze_event_handle_t,
    wait_count: u32,
    waits: *mut ze_event_handle_t,
}

/// Appends what `op` makes for the list.
fn append(
    list: ze_command_list_handle_t,
    edges: &Edges,
    op: impl FnOnce(&List) -> Result<Op, ze_result_t>,
) -> ze_result_t {
    run(|| {
        let list = get::<List, _>(list)?;
        if edges.wait_count == 0 && list.is_eager() {
            // The usual case, and nothing in it is large enough to be worth moving about.
            let signal = if edges.signal.is_null() { None } else { Some(event::get(edges.signal)?) };
            return list.issue(op(list)?, signal);
        }
        // SAFETY: the specification's promise about wait lists.
        let target = unsafe { wait_list(list, edges.wait_count, edges.waits) }?;
        let signal = if edges.signal.is_null() { None } else { Some(event::get(edges.signal)?) };
        list.append(op(list)?, target, signal)
    })
}

/// No signal and no wait list.
const NO_EDGES: Edges = Edges { signal: std::ptr::null_mut(), wait_count: 0, waits: std::ptr::null_mut() };

unsafe extern "C" fn zeCommandListAppendWriteGlobalTimestamp(
    hCommandList: ze_command_list_handle_t,
    dstptr: *mut u64,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append(hCommandList, &edges, |_| {
        if dstptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        if !dstptr.is_aligned() {
            return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "a timestamp's place must be aligned to 8 bytes"));
        }
        Ok(Op::Timestamp(dstptr))
    })
}

unsafe extern "C" fn zeCommandListAppendQueryKernelTimestamps(
    hCommandList: ze_command_list_handle_t,
    numEvents: u32,
    phEvents: *mut ze_event_handle_t,
    dstptr: *mut c_void,
    pOffsets: *const usize,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append(hCommandList, &edges, |_| {
        if phEvents.is_null() || dstptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        if cuda::runs() {
            let text = "a GPU of the CUDA engine gathers no timestamps: ask for each event's on the host";
            return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, text));
        }
        let one = |index: usize| {
            // SAFETY: the specification's promise: that many handles, and that many offsets where there are any.
            let event = event::get(unsafe { phEvents.add(index).read() })?;
            if !event.is_stamped() {
                let text = "an event without timestamps was asked for its timestamps";
                return Err(fail(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, text));
            }
            let offset = match pOffsets.is_null() {
                true => index * size_of::<ze_kernel_timestamp_result_t>(),
                // SAFETY: as above.
                false => unsafe { pOffsets.add(index).read() },
            };
            let target = dstptr.wrapping_byte_add(offset);
            if !target.addr().is_multiple_of(4) {
                return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "a result's place must be aligned to 4 bytes"));
            }
            Ok((event.clone(), target.cast()))
        };
        Ok(Op::Times((0..numEvents as usize).map(one).collect::<Result<_, _>>()?))
    })
}

unsafe extern "C" fn zeCommandListAppendBarrier(
    hCommandList: ze_command_list_handle_t,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append(hCommandList, &edges, |_| Ok(Op::Barrier))
}

unsafe extern "C" fn zeCommandListAppendMemoryRangesBarrier(
    hCommandList: ze_command_list_handle_t,
    numRanges: u32,
    pRangeSizes: *const usize,
    pRanges: *mut *const c_void,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append(hCommandList, &edges, |_| {
        if numRanges > 0 && (pRangeSizes.is_null() || pRanges.is_null()) {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        // A barrier for all memory serves any ranges.
        Ok(Op::Barrier)
    })
}

unsafe extern "C" fn zeCommandListAppendMemoryPrefetch(
    hCommandList: ze_command_list_handle_t,
    ptr: *const c_void,
    _size: usize,
) -> ze_result_t {
    append(hCommandList, &NO_EDGES, |_| {
        if ptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        // Host and devices share all memory: a hint about where it should be has nothing to do.
        Ok(Op::Nothing)
    })
}

unsafe extern "C" fn zeCommandListAppendMemAdvise(
    hCommandList: ze_command_list_handle_t,
    hDevice: ze_device_handle_t,
    ptr: *const c_void,
    _size: usize,
    _advice: ze_memory_advice_t,
) -> ze_result_t {
    append(hCommandList, &NO_EDGES, |_| {
        get::<Device, _>(hDevice)?;
        if ptr.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        // As for a prefetch.
        Ok(Op::Nothing)
    })
}

unsafe extern "C" fn zeCommandListAppendSignalEvent(
    hCommandList: ze_command_list_handle_t,
    hEvent: ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hEvent, ..NO_EDGES };
    if hEvent.is_null() && !hCommandList.is_null() {
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    }
    append(hCommandList, &edges, |_| Ok(Op::Nothing))
}

unsafe extern "C" fn zeCommandListAppendWaitOnEvents(
    hCommandList: ze_command_list_handle_t,
    numEvents: u32,
    phEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    if phEvents.is_null() && !hCommandList.is_null() {
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    }
    let edges = Edges { signal: std::ptr::null_mut(), wait_count: numEvents, waits: phEvents };
    append(hCommandList, &edges, |_| Ok(Op::Nothing))
}

unsafe extern "C" fn zeCommandListAppendEventReset(
    hCommandList: ze_command_list_handle_t,
    hEvent: ze_event_handle_t,
) -> ze_result_t {
    append(hCommandList, &NO_EDGES, |_| {
        let event = event::get(hEvent)?;
        if event.counted().is_some() {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a counter-based event is never reset"));
        }
        Ok(Op::Reset(event.clone()))
    })
}

unsafe extern "C" fn zeCommandListAppendHostFunction(
    hCommandList: ze_command_list_handle_t,
    pfnHostFunction: ze_host_function_callback_t,
    pUserData: *mut c_void,
    pNext: *const c_void,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append(hCommandList, &edges, |_| {
        let function = pfnHostFunction.ok_or(ZE_RESULT_ERROR_INVALID_NULL_POINTER)?;
        if !pNext.is_null() {
            return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "a host function has no extensions here"));
        }
        Ok(Op::Call { function, data: pUserData })
    })
}

unsafe extern "C" fn zeCommandListImmediateAppendCommandListsExp(
    hCommandListImmediate: ze_command_list_handle_t,
    numCommandLists: u32,
    phCommandLists: *mut ze_command_list_handle_t,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    run(|| {
        let list = get::<List, _>(hCommandListImmediate)?;
        // SAFETY: the specification's promise about both arrays.
        let (lists, target) =
            unsafe { (lists(numCommandLists, phCommandLists)?, wait_list(list, numWaitEvents, phWaitEvents)?) };
        let signal = if hSignalEvent.is_null() { None } else { Some(event::get(hSignalEvent)?) };
        list.append_lists(&lists, target, signal)
    })
}

unsafe extern "C" fn zeCommandListImmediateAppendCommandListsWithParameters(
    hCommandListImmediate: ze_command_list_handle_t,
    numCommandLists: u32,
    phCommandLists: *mut ze_command_list_handle_t,
    pNext: *const c_void,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    if !pNext.is_null() {
        return fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "appending command lists has no extensions here");
    }
    // SAFETY: the same arguments, under the same promises.
    unsafe {
        zeCommandListImmediateAppendCommandListsExp(
            hCommandListImmediate,
            numCommandLists,
            phCommandLists,
            hSignalEvent,
            numWaitEvents,
            phWaitEvents,
        )
    }
}

mod entries {
    use super::*;
    entry_points! {
        zeCommandListAppendWriteGlobalTimestamp: zeCommandListAppendWriteGlobalTimestamp_t,
        zeCommandListAppendQueryKernelTimestamps: zeCommandListAppendQueryKernelTimestamps_t,
        zeCommandListAppendBarrier: zeCommandListAppendBarrier_t,
        zeCommandListAppendMemoryRangesBarrier: zeCommandListAppendMemoryRangesBarrier_t,
        zeCommandListAppendMemoryPrefetch: zeCommandListAppendMemoryPrefetch_t,
        zeCommandListAppendMemAdvise: zeCommandListAppendMemAdvise_t,
        zeCommandListAppendSignalEvent: zeCommandListAppendSignalEvent_t,
        zeCommandListAppendWaitOnEvents: zeCommandListAppendWaitOnEvents_t,
        zeCommandListAppendEventReset: zeCommandListAppendEventReset_t,
        zeCommandListAppendHostFunction: zeCommandListAppendHostFunction_t,
        zeCommandListImmediateAppendCommandListsExp: zeCommandListImmediateAppendCommandListsExp_t,
        zeCommandListImmediateAppendCommandListsWithParameters: zeCommandListImmediateAppendCommandListsWithParameters_t,
    }
}

/// The address of this module's entry point called `name`.
pub(crate) fn resolve(name: &[u8]) -> Option<*const c_void> {
    entries::resolve(name).or_else(|| copy::resolve(name)).or_else(|| launch::resolve(name))
}
