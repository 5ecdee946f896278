//! Entry points for counter-based events.

use super::shared::{IpcHandle, Kind};
use super::{Event, EventKind, Point, SCOPES};
use crate::abi::{input, output, run};
use crate::context::Context;
use crate::device::Device;
use crate::entry::entry_points;
use crate::error::fail;
use crate::handle::{export, get, take};
use level_zero_sys::*;
use std::ffi::c_void;
use std::sync::Arc;

const FLAGS: u32 = ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
    | ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE
    | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE
    | ZE_EVENT_COUNTER_BASED_FLAG_IPC
    | ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP
    | ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP
    | ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL;

/// Refuses the extensions of a descriptor that would put the counter where the program wants it.
fn check_chain(next: *const c_void) -> Result<(), ze_result_t> {
    let mut unknown = None;
    let visit = |stype, _| {
        if stype != ZE_STRUCTURE_TYPE_EVENT_SYNC_MODE_DESC {
            unknown = Some(stype);
        }
    };
    // SAFETY: the specification's promise about chains.
    unsafe { crate::abi::chain(next.cast_mut(), visit) };
    match unknown {
        None => Ok(()),
        Some(stype) => Err(fail(
            ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
            format!("a counter-based event can't be created with the structure of type {stype:#x}"),
        )),
    }
}

fn create(
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    flags: ze_event_counter_based_flags_t,
    scopes: (ze_event_scope_flags_t, ze_event_scope_flags_t),
) -> Result<ze_event_handle_t, ze_result_t> {
    get::<Context, _>(context)?;
    get::<Device, _>(device)?;
    let both = ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP | ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP;
    if flags & !FLAGS != 0 || flags & both == both || (scopes.0 | scopes.1) & !SCOPES != 0 {
        return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
    }
    Ok(export(Arc::new(Event::new_counted(flags, scopes, None, 0)?)))
}

unsafe extern "C" fn zeEventCounterBasedCreate(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    desc: *const ze_event_counter_based_desc_t,
    phEvent: *mut ze_event_handle_t,
) -> ze_result_t {
    run(|| {
        // SAFETY: the specification's promise about these two pointers.
        let (desc, event) = unsafe { (input(desc)?, output(phEvent)?) };
        check_chain(desc.pNext)?;
        *event = create(hContext, hDevice, desc.flags, (desc.signal, desc.wait))?;
        Ok(())
    })
}

unsafe extern "C" fn zexCounterBasedEventCreate2(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    desc: *const zex_counter_based_event_desc_t,
    phEvent: *mut ze_event_handle_t,
) -> ze_result_t {
    run(|| {
        // SAFETY: the specification's promise about these two pointers.
        let (desc, event) = unsafe { (input(desc)?, output(phEvent)?) };
        check_chain(desc.pNext)?;
        // The flags are the same as those that the specification took over.
        *event = create(hContext, hDevice, desc.flags, (desc.signalScope, desc.waitScope))?;
        Ok(())
    })
}

/// The counter-based event of a handle.
fn counted<'a>(event: ze_event_handle_t) -> Result<(&'a Arc<Event>, ze_event_counter_based_flags_t), ze_result_t> {
    let event = super::get(event)?;
    let flags = event.counted().ok_or(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT)?;
    Ok((event, flags))
}

/// A handle of what the event stands for at this moment: a later signal through the exporter's event goes unnoticed,
/// as with Intel's driver.
fn export_event(event: ze_event_handle_t) -> Result<IpcHandle, ze_result_t> {
    let (event, flags) = counted(event)?;
    if flags & ZE_EVENT_COUNTER_BASED_FLAG_IPC == 0 {
        let text = "a counter-based event is shared only if it has ZE_EVENT_COUNTER_BASED_FLAG_IPC";
        return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
    }
    event.check_usable()?;
    match event.point() {
        Some(point) => point.export(),
        // Never signalled: complete, and no counter to share.
        None => Ok(IpcHandle { descriptor: -1, kind: Kind::Counted, inode: 0, words: [0; 3] }),
    }
}

fn import_event(
    context: ze_context_handle_t,
    data: &[std::ffi::c_char; ZE_MAX_IPC_HANDLE_SIZE],
) -> Result<ze_event_handle_t, ze_result_t> {
    get::<Context, _>(context)?;
    let handle = IpcHandle::decode(data, Kind::Counted)?;
    let never_signalled = handle.descriptor == -1 && handle.inode == 0;
    let point = if never_signalled { None } else { Some(Point::import(&handle)?) };
    let modes = ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE | ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE;
    let flags = modes | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE | ZE_EVENT_COUNTER_BASED_FLAG_IPC;
    Ok(export(Arc::new(Event::new_counted(flags, (SCOPES, SCOPES), Some(point), 0)?)))
}

unsafe extern "C" fn zeEventCounterBasedGetIpcHandle(
    hEvent: ze_event_handle_t,
    phIpc: *mut ze_ipc_event_counter_based_handle_t,
) -> ze_result_t {
    run(|| {
        // SAFETY: the specification's promise.
        let ipc = unsafe { output(phIpc) }?;
        ipc.data = export_event(hEvent)?.encode();
        Ok(())
    })
}

unsafe extern "C" fn zexCounterBasedEventGetIpcHandle(
    hEvent: ze_event_handle_t,
    phIpc: *mut zex_ipc_counter_based_event_handle_t,
) -> ze_result_t {
    run(|| {
        // SAFETY: the driver interface's promise, the same as the specification's.
        let ipc = unsafe { output(phIpc) }?;
        ipc.data = export_event(hEvent)?.encode();
        Ok(())
    })
}

unsafe extern "C" fn zeEventCounterBasedOpenIpcHandle(
    hContext: ze_context_handle_t,
    hIpc: ze_ipc_event_counter_based_handle_t,
    phEvent: *mut ze_event_handle_t,
) -> ze_result_t {
    run(|| {
        // SAFETY: the specification's promise.
        let event = unsafe { output(phEvent) }?;
        *event = import_event(hContext, &hIpc.data)?;
        Ok(())
    })
}

unsafe extern "C" fn zexCounterBasedEventOpenIpcHandle(
    hContext: ze_context_handle_t,
    hIpc: zex_ipc_counter_based_event_handle_t,
    phEvent: *mut ze_event_handle_t,
) -> ze_result_t {
    run(|| {
        // SAFETY: the driver interface's promise, the same as the specification's.
        let event = unsafe { output(phEvent) }?;
        *event = import_event(hContext, &hIpc.data)?;
        Ok(())
    })
}

unsafe extern "C" fn zeEventCounterBasedCloseIpcHandle(hEvent: ze_event_handle_t) -> ze_result_t {
    run(|| {
        let (event, _) = counted(hEvent)?;
        if !matches!(event.kind, EventKind::Counted { opened: true, .. }) {
            let text = "this event was not opened from an IPC handle";
            return Err(fail(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, text));
        }
        take::<Event, _>(hEvent).map(drop)
    })
}

unsafe extern "C" fn zexCounterBasedEventCloseIpcHandle(hEvent: ze_event_handle_t) -> ze_result_t {
    // SAFETY: the same call by its older name.
    unsafe { zeEventCounterBasedCloseIpcHandle(hEvent) }
}

unsafe extern "C" fn zeEventCounterBasedGetDeviceAddress(
    hEvent: ze_event_handle_t,
    completionValue: *mut u64,
    deviceAddress: *mut u64,
) -> ze_result_t {
    run(|| {
        let (event, _) = counted(hEvent)?;
        event.check_usable()?;
        // SAFETY: the specification's promise about these two pointers.
        let (value, address) = unsafe { (output(completionValue)?, output(deviceAddress)?) };
        let point = event.point().ok_or_else(|| {
            fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "no list was told to signal this event, so it has no counter yet")
        })?;
        (*value, *address) = point.counter().place(point.target());
        Ok(())
    })
}

unsafe extern "C" fn zexEventGetDeviceAddress(
    event: ze_event_handle_t,
    completionValue: *mut u64,
    address: *mut u64,
) -> ze_result_t {
    // SAFETY: the same call by its older name.
    unsafe { zeEventCounterBasedGetDeviceAddress(event, completionValue, address) }
}

unsafe extern "C" fn zeEventGetCounterBasedFlags(
    hEvent: ze_event_handle_t,
    pFlags: *mut ze_event_counter_based_flags_t,
) -> ze_result_t {
    run(|| {
        let event = super::get(hEvent)?;
        // SAFETY: the specification's promise. A regular event has none of the flags.
        *unsafe { output(pFlags) }? = event.counted().unwrap_or(0);
        Ok(())
    })
}

entry_points! {
    zeEventCounterBasedCreate: zeEventCounterBasedCreate_t,
    zexCounterBasedEventCreate2: zexCounterBasedEventCreate2_t,
    zeEventCounterBasedGetIpcHandle: zeEventCounterBasedGetIpcHandle_t,
    zexCounterBasedEventGetIpcHandle: zexCounterBasedEventGetIpcHandle_t,
    zeEventCounterBasedOpenIpcHandle: zeEventCounterBasedOpenIpcHandle_t,
    zexCounterBasedEventOpenIpcHandle: zexCounterBasedEventOpenIpcHandle_t,
    zeEventCounterBasedCloseIpcHandle: zeEventCounterBasedCloseIpcHandle_t,
    zexCounterBasedEventCloseIpcHandle: zexCounterBasedEventCloseIpcHandle_t,
    zeEventCounterBasedGetDeviceAddress: zeEventCounterBasedGetDeviceAddress_t,
    zexEventGetDeviceAddress: zexEventGetDeviceAddress_t,
    zeEventGetCounterBasedFlags: zeEventGetCounterBasedFlags_t,
}
