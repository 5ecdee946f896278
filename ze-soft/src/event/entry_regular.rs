//! Entry points for events of all kinds, and those that only regular events have.

use super::pool::Pool;
use super::{Event, SCOPES};
use crate::abi::{input, output, run};
use crate::device::Device;
use crate::engine;
use crate::entry::entry_points;
use crate::error::fail;
use crate::exec::{kick_all, wait_on};
use crate::handle::{export, get, take};
use level_zero_sys::*;
use std::sync::Arc;

unsafe extern "C" fn zeEventCreate(
    hEventPool: ze_event_pool_handle_t,
    desc: *const ze_event_desc_t,
    phEvent: *mut ze_event_handle_t,
) -> ze_result_t {
    run(|| {
        let pool = get::<Pool, _>(hEventPool)?;
        // SAFETY: the specification's promise about these two pointers.
        let (desc, event) = unsafe { (input(desc)?, output(phEvent)?) };
        if (desc.signal | desc.wait) & !SCOPES != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        let made = Event::regular(pool, hEventPool as usize, desc)?;
        let made = match pool.counted() {
            None => made,
            Some(flags) => Event::new_counted(flags, (desc.signal, desc.wait), None, hEventPool as usize)?,
        };
        *event = export(Arc::new(made));
        Ok(())
    })
}

unsafe extern "C" fn zeEventDestroy(hEvent: ze_event_handle_t) -> ze_result_t {
    // Commands that still refer to it keep what they need.
    run(|| take::<Event, _>(hEvent).map(drop))
}

/// The event, if its state is the program's to change.
fn settable<'a>(event: ze_event_handle_t) -> Result<&'a Arc<Event>, ze_result_t> {
    let event = super::get(event)?;
    if event.counted().is_some() {
        let text = "a counter-based event is neither signalled by the host nor reset";
        return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
    }
    Ok(event)
}

unsafe extern "C" fn zeEventHostSignal(hEvent: ze_event_handle_t) -> ze_result_t {
    run(|| {
        settable(hEvent)?.signal(None);
        kick_all();
        Ok(())
    })
}

unsafe extern "C" fn zeEventHostReset(hEvent: ze_event_handle_t) -> ze_result_t {
    run(|| {
        settable(hEvent)?.reset();
        Ok(())
    })
}

unsafe extern "C" fn zeEventHostSynchronize(hEvent: ze_event_handle_t, timeout: u64) -> ze_result_t {
    match super::get(hEvent) {
        Ok(event) => match event.check_waitable() {
            Ok(()) => match event.look() {
                (true, _) => engine::health(),
                (false, source) => wait_on(timeout, source, || event.is_signalled(), || event.source()),
            },
            Err(code) => code,
        },
        Err(code) => code,
    }
}

unsafe extern "C" fn zeEventQueryStatus(hEvent: ze_event_handle_t) -> ze_result_t {
    run(|| {
        let event = super::get(hEvent)?;
        if event.is_graph_internal() {
            event.check_waitable()?;
        }
        if event.is_signalled() { Ok(()) } else { Err(ZE_RESULT_NOT_READY) }
    })
}

unsafe extern "C" fn zeEventQueryKernelTimestamp(
    hEvent: ze_event_handle_t,
    dstptr: *mut ze_kernel_timestamp_result_t,
) -> ze_result_t {
    run(|| {
        let event = super::get(hEvent)?;
        // SAFETY: the specification's promise.
        let result = unsafe { output(dstptr) }?;
        let times = event.times()?;
        // A command has its executor to itself from start to end: both clocks run alike.
        *result = ze_kernel_timestamp_result_t { global: times, context: times };
        Ok(())
    })
}

unsafe extern "C" fn zeEventQueryKernelTimestampsExt(
    hEvent: ze_event_handle_t,
    hDevice: ze_device_handle_t,
    pCount: *mut u32,
    pResults: *mut ze_event_query_kernel_timestamps_results_ext_properties_t,
) -> ze_result_t {
    run(|| {
        let event = super::get(hEvent)?;
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise.
        let count = unsafe { output(pCount) }?;
        if *count == 0 || pResults.is_null() {
            *count = 1;
            return Ok(());
        }
        let times = event.times()?;
        *count = 1;
        // SAFETY: there is room for `*pCount` results, which was not 0.
        let result = unsafe { &*pResults };
        // SAFETY: a result's buffers are null or have room for one entry a packet.
        if let Some(kernel) = unsafe { result.pKernelTimestampsBuffer.as_mut() } {
            *kernel = ze_kernel_timestamp_result_t { global: times, context: times };
        }
        // SAFETY: as above.
        if let Some(synchronized) = unsafe { result.pSynchronizedTimestampsBuffer.as_mut() } {
            let ze_kernel_timestamp_data_t { kernelStart, kernelEnd } = times;
            let times = ze_synchronized_timestamp_data_ext_t { kernelStart, kernelEnd };
            *synchronized = ze_synchronized_timestamp_result_ext_t { global: times, context: times };
        }
        Ok(())
    })
}

unsafe extern "C" fn zeEventGetEventPool(
    hEvent: ze_event_handle_t,
    phEventPool: *mut ze_event_pool_handle_t,
) -> ze_result_t {
    run(|| {
        let event = super::get(hEvent)?;
        // SAFETY: the specification's promise.
        let pool = unsafe { output(phEventPool) }?;
        if event.pool == 0 {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "this event was not created from a pool"));
        }
        *pool = event.pool as ze_event_pool_handle_t;
        Ok(())
    })
}

unsafe extern "C" fn zeEventGetSignalScope(
    hEvent: ze_event_handle_t,
    pSignalScope: *mut ze_event_scope_flags_t,
) -> ze_result_t {
    run(|| {
        let event = super::get(hEvent)?;
        // SAFETY: the specification's promise.
        *unsafe { output(pSignalScope) }? = event.signal_scope;
        Ok(())
    })
}

unsafe extern "C" fn zeEventGetWaitScope(
    hEvent: ze_event_handle_t,
    pWaitScope: *mut ze_event_scope_flags_t,
) -> ze_result_t {
    run(|| {
        let event = super::get(hEvent)?;
        // SAFETY: the specification's promise.
        *unsafe { output(pWaitScope) }? = event.wait_scope;
        Ok(())
    })
}

entry_points! {
    zeEventCreate: zeEventCreate_t,
    zeEventDestroy: zeEventDestroy_t,
    zeEventHostSignal: zeEventHostSignal_t,
    zeEventHostReset: zeEventHostReset_t,
    zeEventHostSynchronize: zeEventHostSynchronize_t,
    zeEventQueryStatus: zeEventQueryStatus_t,
    zeEventQueryKernelTimestamp: zeEventQueryKernelTimestamp_t,
    zeEventQueryKernelTimestampsExt: zeEventQueryKernelTimestampsExt_t,
    zeEventGetEventPool: zeEventGetEventPool_t,
    zeEventGetSignalScope: zeEventGetSignalScope_t,
    zeEventGetWaitScope: zeEventGetWaitScope_t,
}
