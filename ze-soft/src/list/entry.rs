//! Entry points for command lists, but for those that append.

use super::{Chain, List, ListKind, Made, Record};
use crate::abi::{chain, input, output, run};
use crate::context::Context;
use crate::device::Device;
use crate::entry::entry_points;
use crate::error::fail;
use crate::event::Counter;
use crate::exec::{Executor, SourceCell};
use crate::graph::Mark;
use crate::handle::{answer, export, get, take};
use level_zero_sys::*;
use parking_lot::Mutex;
use std::sync::Arc;

const LIST_FLAGS: u32 = ZE_COMMAND_LIST_FLAG_RELAXED_ORDERING
    | ZE_COMMAND_LIST_FLAG_MAXIMIZE_THROUGHPUT
    | ZE_COMMAND_LIST_FLAG_EXPLICIT_ONLY
    | ZE_COMMAND_LIST_FLAG_IN_ORDER
    | ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE
    | ZE_COMMAND_LIST_FLAG_COPY_OFFLOAD_HINT;

const QUEUE_FLAGS: u32 =
    ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY | ZE_COMMAND_QUEUE_FLAG_IN_ORDER | ZE_COMMAND_QUEUE_FLAG_COPY_OFFLOAD_HINT;

/// The executor of a device's queue group.
fn executor(device: ze_device_handle_t, ordinal: u32) -> Result<Arc<Executor>, ze_result_t> {
    let device = get::<Device, _>(device)?;
    device.executor(ordinal).cloned().ok_or_else(|| {
        fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("device {} has no queue group {ordinal}", device.index))
    })
}

/// The executor that a queue's descriptor asks for, if the descriptor is in order.
pub(crate) fn queue_executor(
    device: ze_device_handle_t,
    desc: &ze_command_queue_desc_t,
) -> Result<Arc<Executor>, ze_result_t> {
    if desc.flags & !QUEUE_FLAGS != 0
        || desc.mode > ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS
        || desc.priority > ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH
    {
        return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
    }
    let executor = executor(device, desc.ordinal)?;
    if desc.index != 0 {
        let text = format!("queue group {} has one queue, so there is no index {}", desc.ordinal, desc.index);
        return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
    }
    Ok(executor)
}

unsafe extern "C" fn zeCommandListCreate(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    desc: *const ze_command_list_desc_t,
    phCommandList: *mut ze_command_list_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise about these two pointers.
        let (desc, list) = unsafe { (input(desc)?, output(phCommandList)?) };
        let relaxed_in_order = ZE_COMMAND_LIST_FLAG_IN_ORDER | ZE_COMMAND_LIST_FLAG_RELAXED_ORDERING;
        if desc.flags & !LIST_FLAGS != 0 || desc.flags & relaxed_in_order == relaxed_in_order {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        let executor = executor(hDevice, desc.commandQueueGroupOrdinal)?;
        let in_order = desc.flags & ZE_COMMAND_LIST_FLAG_IN_ORDER != 0;
        let mut mutable = false;
        // SAFETY: the specification's promise about chains.
        unsafe {
            chain(desc.pNext.cast_mut(), |stype, _| {
                mutable |= stype == ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC
            });
        }
        *list = export(Arc::new(List {
            context: hContext as usize,
            device: hDevice as usize,
            executor,
            counter: in_order.then(Counter::new).transpose()?,
            capture: Mark::default(),
            kind: ListKind::Regular {
                flags: desc.flags,
                record: Mutex::new(Record { mutable: mutable.then(Box::default), ..Record::default() }),
                chain: Arc::new(Chain::default()),
            },
        }));
        Ok(())
    })
}

unsafe extern "C" fn zeCommandListCreateImmediate(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    altdesc: *const ze_command_queue_desc_t,
    phCommandList: *mut ze_command_list_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise about these two pointers.
        let (desc, list) = unsafe { (input(altdesc)?, output(phCommandList)?) };
        let executor = queue_executor(hDevice, desc)?;
        let in_order = desc.flags & ZE_COMMAND_QUEUE_FLAG_IN_ORDER != 0;
        let counter = in_order.then(Counter::new).transpose()?;
        let (lane, progress) = executor.open_lane(counter.clone());
        *list = export(Arc::new(List {
            context: hContext as usize,
            device: hDevice as usize,
            executor,
            counter,
            capture: Mark::default(),
            kind: ListKind::Immediate { lane, progress, made: Made::by(desc), newest: SourceCell::default() },
        }));
        Ok(())
    })
}

unsafe extern "C" fn zeCommandListDestroy(hCommandList: ze_command_list_handle_t) -> ze_result_t {
    run(|| take::<List, _>(hCommandList).map(drop))
}

/// What a regular list records.
fn record<'a>(list: ze_command_list_handle_t, what: &str) -> Result<&'a Mutex<Record>, ze_result_t> {
    match &get::<List, _>(list)?.kind {
        ListKind::Regular { record, .. } => Ok(record),
        ListKind::Immediate { .. } => {
            Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("an immediate command list can't be {what}")))
        }
    }
}

unsafe extern "C" fn zeCommandListClose(hCommandList: ze_command_list_handle_t) -> ze_result_t {
    run(|| record(hCommandList, "closed")?.lock().close())
}

unsafe extern "C" fn zeCommandListReset(hCommandList: ze_command_list_handle_t) -> ze_result_t {
    run(|| {
        record(hCommandList, "reset")?.lock().reset();
        Ok(())
    })
}

unsafe extern "C" fn zeCommandListHostSynchronize(hCommandList: ze_command_list_handle_t, timeout: u64) -> ze_result_t {
    run(|| get::<List, _>(hCommandList)?.synchronize(timeout))
}

unsafe extern "C" fn zeCommandListGetDeviceHandle(
    hCommandList: ze_command_list_handle_t,
    phDevice: *mut ze_device_handle_t,
) -> ze_result_t {
    answer(hCommandList, phDevice, |list: &List| Ok(list.device as ze_device_handle_t))
}

unsafe extern "C" fn zeCommandListGetContextHandle(
    hCommandList: ze_command_list_handle_t,
    phContext: *mut ze_context_handle_t,
) -> ze_result_t {
    answer(hCommandList, phContext, |list: &List| Ok(list.context as ze_context_handle_t))
}

unsafe extern "C" fn zeCommandListGetOrdinal(
    hCommandList: ze_command_list_handle_t,
    pOrdinal: *mut u32,
) -> ze_result_t {
    answer(hCommandList, pOrdinal, |list: &List| Ok(list.executor.ordinal()))
}

unsafe extern "C" fn zeCommandListIsImmediate(
    hCommandList: ze_command_list_handle_t,
    pIsImmediate: *mut ze_bool_t,
) -> ze_result_t {
    answer(hCommandList, pIsImmediate, |list: &List| Ok(list.is_immediate().into()))
}

/// How an immediate list was created.
fn made(list: &List) -> Result<&Made, ze_result_t> {
    match &list.kind {
        ListKind::Immediate { made, .. } => Ok(made),
        ListKind::Regular { .. } => {
            Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "this is not an immediate command list"))
        }
    }
}

unsafe extern "C" fn zeCommandListImmediateGetIndex(
    hCommandListImmediate: ze_command_list_handle_t,
    pIndex: *mut u32,
) -> ze_result_t {
    answer(hCommandListImmediate, pIndex, |list| Ok(made(list)?.index))
}

unsafe extern "C" fn zeCommandListImmediateGetFlags(
    hCommandList: ze_command_list_handle_t,
    pFlags: *mut ze_command_queue_flags_t,
) -> ze_result_t {
    answer(hCommandList, pFlags, |list| Ok(made(list)?.flags))
}

unsafe extern "C" fn zeCommandListImmediateGetMode(
    hCommandList: ze_command_list_handle_t,
    pMode: *mut ze_command_queue_mode_t,
) -> ze_result_t {
    answer(hCommandList, pMode, |list| Ok(made(list)?.mode))
}

unsafe extern "C" fn zeCommandListImmediateGetPriority(
    hCommandList: ze_command_list_handle_t,
    pPriority: *mut ze_command_queue_priority_t,
) -> ze_result_t {
    answer(hCommandList, pPriority, |list| Ok(made(list)?.priority))
}

unsafe extern "C" fn zeCommandListGetFlags(
    hCommandList: ze_command_list_handle_t,
    pFlags: *mut ze_command_list_flags_t,
) -> ze_result_t {
    answer(hCommandList, pFlags, |list: &List| match &list.kind {
        ListKind::Regular { flags, .. } => Ok(*flags),
        ListKind::Immediate { .. } => Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "this is an immediate command list")),
    })
}

entry_points! {
    zeCommandListCreate: zeCommandListCreate_t,
    zeCommandListCreateImmediate: zeCommandListCreateImmediate_t,
    zeCommandListDestroy: zeCommandListDestroy_t,
    zeCommandListClose: zeCommandListClose_t,
    zeCommandListReset: zeCommandListReset_t,
    zeCommandListHostSynchronize: zeCommandListHostSynchronize_t,
    zeCommandListGetDeviceHandle: zeCommandListGetDeviceHandle_t,
    zeCommandListGetContextHandle: zeCommandListGetContextHandle_t,
    zeCommandListGetOrdinal: zeCommandListGetOrdinal_t,
    zeCommandListIsImmediate: zeCommandListIsImmediate_t,
    zeCommandListImmediateGetIndex: zeCommandListImmediateGetIndex_t,
    zeCommandListImmediateGetFlags: zeCommandListImmediateGetFlags_t,
    zeCommandListImmediateGetMode: zeCommandListImmediateGetMode_t,
    zeCommandListImmediateGetPriority: zeCommandListImmediateGetPriority_t,
    zeCommandListGetFlags: zeCommandListGetFlags_t,
}
