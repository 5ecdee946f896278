//! Events of both kinds.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

#[path = "executor_support/mod.rs"]
mod support;

use level_zero_sys::*;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::*;

#[test]
fn the_host_signals_resets_and_queries() {
    let soft = Soft::new();
    let [event, other] = soft.events();
    assert_eq!(soft.query(event), ZE_RESULT_NOT_READY);
    assert_eq!(soft.wait(event, 0), ZE_RESULT_NOT_READY);
    ok(soft.signal_host(event));
    ok(soft.query(event));
    ok(soft.wait(event, 0));
    ok(soft.wait(event, 1));
    ok(soft.wait(event, NEVER));
    assert_eq!(soft.query(other), ZE_RESULT_NOT_READY);
    ok(soft.reset_host(event));
    assert_eq!(soft.query(event), ZE_RESULT_NOT_READY);
    assert_eq!(soft.query(null_mut()), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
}

#[test]
fn a_timed_wait_ends_at_its_time() {
    let soft = Soft::new();
    let [event] = soft.events();
    for timeout in [1u64, 50_000, 2_000_000, 30_000_000] {
        let bound = Duration::from_nanos(timeout) + Duration::from_millis(1);
        let least = least_of(bound, || {
            let (result, time) = timed(|| soft.wait(event, timeout));
            assert_eq!(result, ZE_RESULT_NOT_READY);
            assert!(time >= Duration::from_nanos(timeout), "{time:?} of {timeout} ns");
            time
        });
        assert!(least < bound, "{least:?} of {timeout} ns");
    }
}

#[test]
fn devices_signal_and_reset() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let [event, done] = soft.events();
    // SAFETY: live list and events, also below.
    ok(unsafe { (soft.ze.zeCommandListAppendSignalEvent)(list, event) });
    ok(soft.wait(event, NEVER));
    // SAFETY: as above.
    ok(unsafe { (soft.ze.zeCommandListAppendEventReset)(list, event) });
    ok(soft.wait_list(list, NEVER));
    assert_eq!(soft.query(event), ZE_RESULT_NOT_READY);
    // SAFETY: as above; the array is as long as said.
    unsafe {
        ok((soft.ze.zeCommandListAppendWaitOnEvents)(list, 1, [event].as_mut_ptr()));
        ok((soft.ze.zeCommandListAppendSignalEvent)(list, done));
    }
    assert_eq!(soft.wait(done, 10_000_000), ZE_RESULT_NOT_READY);
    ok(soft.signal_host(event));
    ok(soft.wait(done, SOON));
}

#[test]
fn more_waits_than_fit_inline() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let events: [_; 12] = soft.events();
    let cell = &cells(1)[0];
    soft.store(list, cell, 1, null_mut(), &events);
    for event in events {
        assert_eq!(soft.wait_list(list, 0), ZE_RESULT_NOT_READY);
        ok(soft.signal_host(event));
    }
    ok(soft.wait_list(list, NEVER));
    assert_eq!(read(cell), 1);
}

#[test]
fn pools_say_what_they_are_and_refuse_the_rest() {
    let soft = Soft::new();
    let ze = &soft.ze;
    let flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP;
    let pool = soft.pool(3, flags);
    let desc = ze_event_desc_t { index: 2, signal: ZE_EVENT_SCOPE_FLAG_HOST, wait: 2, ..Default::default() };
    let mut other = null_mut();
    let mut number = 0;
    // SAFETY: live handles, valid descriptors and places.
    unsafe {
        let event = made(|event| (ze.zeEventCreate)(pool, &desc, event));
        ok((ze.zeEventGetEventPool.unwrap())(event, &mut other));
        assert_eq!(other, pool);
        ok((ze.zeEventGetSignalScope.unwrap())(event, &mut number));
        assert_eq!(number, ZE_EVENT_SCOPE_FLAG_HOST);
        ok((ze.zeEventGetWaitScope.unwrap())(event, &mut number));
        assert_eq!(number, 2);
        ok((ze.zeEventGetCounterBasedFlags.unwrap())(event, &mut number));
        assert_eq!(number, 0);
        ok((ze.zeEventPoolGetFlags.unwrap())(pool, &mut number));
        assert_eq!(number, flags);
        let mut context = null_mut();
        ok((ze.zeEventPoolGetContextHandle.unwrap())(pool, &mut context));
        assert_eq!(context, soft.context);

        let mut event = null_mut();
        let beyond = ze_event_desc_t { index: 3, ..Default::default() };
        assert_eq!((ze.zeEventCreate)(pool, &beyond, &mut event), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        let scope = ze_event_desc_t { wait: 8, ..Default::default() };
        assert_eq!((ze.zeEventCreate)(pool, &scope, &mut event), ZE_RESULT_ERROR_INVALID_ENUMERATION);
        assert_eq!((ze.zeEventCreate)(pool, std::ptr::null(), &mut event), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        let create = |flags, count| {
            let desc = ze_event_pool_desc_t { flags, count, ..Default::default() };
            let mut pool = null_mut();
            (ze.zeEventPoolCreate)(soft.context, &desc, 0, null_mut(), &mut pool)
        };
        assert_eq!(create(0, 0), ZE_RESULT_ERROR_INVALID_SIZE);
        assert_eq!(create(0x10, 1), ZE_RESULT_ERROR_INVALID_ENUMERATION);
        assert_eq!(create(0xc, 1), ZE_RESULT_ERROR_INVALID_ENUMERATION, "both kinds of timestamps");
        let mut ipc = ze_ipc_event_pool_handle_t::default();
        assert_eq!((ze.zeEventPoolGetIpcHandle)(pool, &mut ipc), ZE_RESULT_ERROR_INVALID_ARGUMENT, "not for IPC");
        assert_eq!((ze.zeEventPoolCloseIpcHandle)(pool), ZE_RESULT_ERROR_INVALID_ARGUMENT, "not opened");
        ok((ze.zeEventPoolDestroy)(pool));
    }
}

#[test]
fn timestamps_tell_when_a_command_ran() {
    let soft = Soft::new();
    let now = || {
        let (mut host, mut device) = (0, 0);
        // SAFETY: a live device and places.
        ok(unsafe { (soft.ze.zeDeviceGetGlobalTimestamps)(soft.devices[0], &mut host, &mut device) });
        device
    };
    let list = soft.immediate(0, 0);
    let [gate, plain] = soft.events();
    let pool = soft.pool(1, ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
    let regular = soft.event(pool, 0);
    let counted =
        soft.counted_with(ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE | ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP);
    let query = |event| {
        let mut result = ze_kernel_timestamp_result_t::default();
        // SAFETY: a live event and a place.
        let code = unsafe { (soft.ze.zeEventQueryKernelTimestamp)(event, &mut result) };
        (code, result)
    };
    for event in [regular, counted] {
        let release = &cells(1)[0];
        let before = now();
        soft.spin_now(list, release, event);
        assert_eq!(query(event).0, ZE_RESULT_NOT_READY);
        std::thread::sleep(Duration::from_millis(3));
        release.store(1, Ordering::Release);
        ok(soft.wait(event, SOON));
        let after = now();
        let (code, result) = query(event);
        ok(code);
        let (start, end) = (result.global.kernelStart, result.global.kernelEnd);
        assert!(before <= start && start + 3_000_000 <= end && end <= after, "{before} {start} {end} {after}");
        assert_eq!((result.context.kernelStart, result.context.kernelEnd), (start, end));
        let (mut count, mut kernel) = (0, ze_kernel_timestamp_result_t::default());
        let mut synchronized = ze_synchronized_timestamp_result_ext_t::default();
        let mut results = ze_event_query_kernel_timestamps_results_ext_properties_t {
            pKernelTimestampsBuffer: &mut kernel,
            pSynchronizedTimestampsBuffer: &mut synchronized,
            ..Default::default()
        };
        let ext = soft.ze.zeEventQueryKernelTimestampsExt.unwrap();
        // SAFETY: live handles, places as long as said.
        unsafe {
            ok(ext(event, soft.devices[0], &mut count, null_mut()));
            assert_eq!(count, 1);
            ok(ext(event, soft.devices[0], &mut count, &mut results));
        }
        assert_eq!((kernel.global.kernelStart, synchronized.context.kernelEnd), (start, end));
    }
    ok(soft.signal_host(gate));
    for event in [gate, plain] {
        assert_eq!(query(event).0, ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "no timestamps");
    }
}

#[test]
fn a_counter_based_event_is_what_it_was_last_aimed_at() {
    let soft = Soft::new();
    let (first, second) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let event = soft.counted();
    ok(soft.query(event));
    ok(soft.wait(event, NEVER));
    let gates: [_; 2] = soft.events();
    let cell = cells(2);
    // Two signals of the same event, with no reset between them, and a wait appended between the two: it is for the
    // first.
    soft.store(first, &cell[0], 1, event, &[gates[0]]);
    assert_eq!(soft.query(event), ZE_RESULT_NOT_READY);
    soft.store(second, &cell[1], 1, null_mut(), &[event]);
    soft.store(first, &cell[0], 2, event, &[gates[1]]);
    assert_eq!(soft.wait_list(second, 5_000_000), ZE_RESULT_NOT_READY);
    ok(soft.signal_host(gates[0]));
    ok(soft.wait_list(second, NEVER));
    assert_eq!((read(&cell[0]), read(&cell[1])), (1, 1));
    assert_eq!(soft.query(event), ZE_RESULT_NOT_READY);
    ok(soft.signal_host(gates[1]));
    ok(soft.wait(event, NEVER));
    assert_eq!(read(&cell[0]), 2);
    // It goes over to another list.
    soft.store(second, &cell[1], 3, event, &[]);
    ok(soft.wait(event, SOON));
    assert_eq!(read(&cell[1]), 3);
    soft.destroy_list(first);
    ok(soft.query(event));
}

#[test]
fn what_a_counter_based_event_refuses() {
    let soft = Soft::new();
    let event = soft.counted();
    let ordered = soft.immediate(0, 0);
    let loose = soft.immediate_with(0, 0, 0, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    let regular = soft.list(0, 0, ZE_COMMAND_LIST_FLAG_IN_ORDER);
    assert_eq!(soft.signal_host(event), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert_eq!(soft.reset_host(event), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    let (mut value, mut address) = (0, 0);
    let place = soft.ze.zeEventCounterBasedGetDeviceAddress.unwrap();
    // SAFETY: live handles, valid descriptors and places.
    unsafe {
        let signal = soft.ze.zeCommandListAppendSignalEvent;
        assert_eq!((soft.ze.zeCommandListAppendEventReset)(ordered, event), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        assert_eq!(signal(loose, event), ZE_RESULT_ERROR_INVALID_ARGUMENT, "not an in-order list");
        assert_eq!(signal(regular, event), ZE_RESULT_ERROR_INVALID_ARGUMENT, "not created for regular lists");
        let non_immediate = soft.counted_with(ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE);
        assert_eq!(signal(ordered, non_immediate), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        ok(signal(regular, non_immediate));
        assert_eq!(place(event, &mut value, &mut address), ZE_RESULT_ERROR_INVALID_ARGUMENT, "no counter yet");
        ok(signal(ordered, event));
        ok(soft.wait(event, NEVER));
        ok(place(event, &mut value, &mut address));
        assert!((*(address as *const AtomicU64)).load(Ordering::Acquire) >= value);
        let mut pool = null_mut();
        let code = (soft.ze.zeEventGetEventPool.unwrap())(event, &mut pool);
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_ARGUMENT);
        let mut ipc = ze_ipc_event_counter_based_handle_t::default();
        let export = soft.ze.zeEventCounterBasedGetIpcHandle.unwrap();
        assert_eq!(export(event, &mut ipc), ZE_RESULT_ERROR_INVALID_ARGUMENT, "not for IPC");
        let close = soft.ze.zeEventCounterBasedCloseIpcHandle.unwrap();
        assert_eq!(close(event), ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "not opened");
        let create = soft.ze.zeEventCounterBasedCreate.unwrap();
        let mut made = null_mut();
        for desc in [
            ze_event_counter_based_desc_t { flags: 0x80, ..Default::default() },
            ze_event_counter_based_desc_t { flags: 0x30, ..Default::default() },
            ze_event_counter_based_desc_t { signal: 8, ..Default::default() },
        ] {
            let code = create(soft.context, soft.devices[0], &desc, &mut made);
            assert_eq!(code, ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        let storage = ze_event_counter_based_external_aggregate_storage_desc_t::default();
        let desc = ze_event_counter_based_desc_t { pNext: (&raw const storage).cast(), ..Default::default() };
        let code = create(soft.context, soft.devices[0], &desc, &mut made);
        assert_eq!(code, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    }
}

#[test]
fn counter_based_events_by_the_older_ways() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let create = soft.ze.zexCounterBasedEventCreate2.unwrap();
    let desc = zex_counter_based_event_desc_t { flags: ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE, ..Default::default() };
    let chained = ze_event_pool_counter_based_exp_desc_t {
        flags: ZE_EVENT_POOL_COUNTER_BASED_EXP_FLAG_IMMEDIATE,
        ..Default::default()
    };
    let pool = ze_event_pool_desc_t { pNext: (&raw const chained).cast(), count: 1, ..Default::default() };
    // SAFETY: live handles, valid descriptors and places.
    let events = unsafe {
        let pool = made(|made| (soft.ze.zeEventPoolCreate)(soft.context, &pool, 0, null_mut(), made));
        [made(|event| create(soft.context, soft.devices[0], &desc, event)), soft.event(pool, 0)]
    };
    let [gate] = soft.events();
    let cell = &cells(1)[0];
    soft.store(list, cell, 1, events[0], &[gate]);
    soft.store(list, cell, 2, events[1], &[]);
    for event in events {
        assert_eq!(soft.query(event), ZE_RESULT_NOT_READY);
        assert_eq!(soft.signal_host(event), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    ok(soft.signal_host(gate));
    ok(soft.wait(events[1], NEVER));
    ok(soft.wait(events[0], 0));
}

#[test]
fn counter_based_events_of_regular_lists_follow_each_execution() {
    let soft = Soft::new();
    let (makers, users) = (soft.queue(0, 1), soft.queue(0, 0));
    let make = soft.list(0, 1, ZE_COMMAND_LIST_FLAG_IN_ORDER);
    let take = soft.list(0, 0, ZE_COMMAND_LIST_FLAG_IN_ORDER);
    let [made, taken] = [(); 2].map(|()| soft.counted_with(ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE));
    let log = cells(1000);
    soft.log(make, log, 1, made, &[]);
    soft.log(take, log, 0, null_mut(), &[made]);
    soft.log(take, log, 0, taken, &[]);
    [make, take].into_iter().for_each(|list| ok(soft.close(list)));
    assert_eq!(soft.query(taken), ZE_RESULT_NOT_READY, "its list was not executed yet");
    // What an execution waits for is the other list's latest execution when it is submitted.
    let rounds = 50;
    soft.fault(ze_soft::ext::ZESOFT_FAULT_DELAY_QUEUE, 0, 1, 300_000, 9);
    for _ in 0..rounds {
        ok(soft.execute(makers, &[make], null_mut()));
        ok(soft.execute(users, &[take], null_mut()));
    }
    ok(soft.wait(taken, NEVER));
    ok(soft.wait_queue(makers, NEVER));
    // Each execution of `take` logs twice; never more than executions of `make` allow.
    let (mut ones, mut zeros) = (0, 0);
    for entry in entries(log) {
        if entry == 1 {
            ones += 1
        } else {
            zeros += 1
        }
        assert!(zeros <= 2 * ones, "an execution went ahead of the one it waits for");
    }
    assert_eq!((ones, zeros), (rounds, 2 * rounds));
}
