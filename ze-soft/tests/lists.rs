//! Command lists, queues and fences.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

#[path = "executor_support/mod.rs"]
mod support;

use level_zero_sys::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::*;

#[test]
fn an_immediate_list_runs_in_order() {
    let soft = Soft::new();
    for flags in [0, ZE_COMMAND_QUEUE_FLAG_IN_ORDER] {
        let list = soft.immediate_with(0, 0, flags, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
        let log = cells(200);
        for value in 0..100 {
            soft.log(list, log, value, null_mut(), &[]);
        }
        ok(soft.wait_list(list, NEVER));
        assert_eq!(entries(log), (0..100).collect::<Vec<_>>());
        soft.destroy_list(list);
    }
}

#[test]
fn a_synchronous_list_returns_when_done() {
    let soft = Soft::new();
    let list = soft.immediate_with(0, 1, 0, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    let cell = &cells(1)[0];
    for value in 1..50 {
        soft.store(list, cell, value, null_mut(), &[]);
        assert_eq!(read(cell), value);
    }
}

#[test]
fn a_regular_list_runs_only_when_executed_and_as_often() {
    let soft = Soft::new();
    let (queue, list) = (soft.queue(0, 0), soft.list(0, 0, 0));
    let log = cells(100);
    for value in 0..3 {
        soft.log(list, log, value, null_mut(), &[]);
    }
    assert_eq!(soft.execute(queue, &[list], null_mut()), ZE_RESULT_ERROR_INVALID_ARGUMENT, "it is still open");
    ok(soft.close(list));
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(entries(log), [0u64; 0]);
    // Submitted again while the first run is in flight.
    for _ in 0..4 {
        ok(soft.execute(queue, &[list], null_mut()));
    }
    ok(soft.wait_queue(queue, NEVER));
    assert_eq!(entries(log), [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);

    let kernel = soft.kernel("log");
    let refused = soft.try_launch(list, kernel, [log.as_ptr() as u64, 9], null_mut(), &[]);
    assert_eq!(refused, ZE_RESULT_ERROR_INVALID_ARGUMENT, "it is closed");
    assert_eq!(soft.close(list), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    // SAFETY: a live list.
    ok(unsafe { (soft.ze.zeCommandListReset)(list) });
    log[0].store(0, Ordering::Relaxed);
    soft.log(list, log, 7, null_mut(), &[]);
    ok(soft.close(list));
    ok(soft.execute(queue, &[list], null_mut()));
    ok(soft.wait_queue(queue, SOON));
    assert_eq!(entries(log), [7]);
}

#[test]
fn resetting_a_list_in_flight_keeps_what_was_submitted() {
    let soft = Soft::new();
    let (queue, list) = (soft.queue(0, 0), soft.list(0, 0, ZE_COMMAND_LIST_FLAG_IN_ORDER));
    let [gate] = soft.events();
    let log = cells(100);
    soft.log(list, log, 1, null_mut(), &[gate]);
    soft.log(list, log, 2, null_mut(), &[]);
    ok(soft.close(list));
    ok(soft.execute(queue, &[list], null_mut()));
    // SAFETY: a live list.
    ok(unsafe { (soft.ze.zeCommandListReset)(list) });
    soft.log(list, log, 3, null_mut(), &[]);
    ok(soft.close(list));
    ok(soft.execute(queue, &[list], null_mut()));
    assert_eq!(soft.wait_queue(queue, 20_000_000), ZE_RESULT_NOT_READY);
    assert_eq!(entries(log), [0u64; 0], "the second run of a list doesn't overtake the first");
    ok(soft.signal_host(gate));
    ok(soft.wait_queue(queue, NEVER));
    assert_eq!(entries(log), [1, 2, 3]);
}

#[test]
fn a_waiting_list_does_not_hold_up_its_queue_but_a_barrier_does() {
    let soft = Soft::new();
    let queue = soft.queue(0, 0);
    let [gate] = soft.events();
    let log = cells(100);
    let lists = [0; 3].map(|_: u32| soft.list(0, 0, 0));
    soft.log(lists[0], log, 0, null_mut(), &[gate]);
    soft.log(lists[1], log, 1, null_mut(), &[]);
    // SAFETY: a live list; no events.
    ok(unsafe { (soft.ze.zeCommandListAppendBarrier)(lists[2], null_mut(), 0, null_mut()) });
    soft.log(lists[2], log, 2, null_mut(), &[]);
    lists.into_iter().for_each(|list| ok(soft.close(list)));
    let fence = soft.fence(queue);
    ok(soft.execute(queue, &lists, fence));
    eventually(|| read(&log[0]) == 1);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(entries(log), [1], "a full barrier waits for all that the queue was given before");
    // SAFETY: a live fence.
    assert_eq!(unsafe { (soft.ze.zeFenceQueryStatus)(fence) }, ZE_RESULT_NOT_READY);
    ok(soft.signal_host(gate));
    // SAFETY: a live fence.
    ok(unsafe { (soft.ze.zeFenceHostSynchronize)(fence, NEVER) });
    assert_eq!(entries(log), [1, 0, 2]);
}

#[test]
fn fences() {
    let soft = Soft::new();
    let (queue, other) = (soft.queue(0, 0), soft.queue(0, 0));
    let list = soft.list(0, 0, 0);
    let cell = &cells(1)[0];
    soft.store(list, cell, 1, null_mut(), &[]);
    ok(soft.close(list));
    let fence = soft.fence(queue);
    // SAFETY: live fences and queues; valid descriptor and place.
    unsafe {
        assert_eq!((soft.ze.zeFenceHostSynchronize)(fence, 1_000_000), ZE_RESULT_NOT_READY);
        assert_eq!(soft.execute(other, &[list], fence), ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
        for value in 0..20 {
            cell.store(value + 2, Ordering::Relaxed);
            ok(soft.execute(queue, &[list], fence));
            ok((soft.ze.zeFenceHostSynchronize)(fence, if value % 2 == 0 { NEVER } else { SOON }));
            assert_eq!(read(cell), 1);
            ok((soft.ze.zeFenceQueryStatus)(fence));
            ok((soft.ze.zeFenceReset)(fence));
            assert_eq!((soft.ze.zeFenceQueryStatus)(fence), ZE_RESULT_NOT_READY);
        }
        let desc = ze_fence_desc_t { flags: ZE_FENCE_FLAG_SIGNALED, ..Default::default() };
        let signalled = made(|fence| (soft.ze.zeFenceCreate)(queue, &desc, fence));
        ok((soft.ze.zeFenceQueryStatus)(signalled));
        ok((soft.ze.zeFenceDestroy)(signalled));
        ok((soft.ze.zeFenceDestroy)(fence));
        assert_eq!((soft.ze.zeFenceQueryStatus)(null_mut()), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    }
}

#[test]
fn lists_appended_to_an_immediate_list() {
    let soft = Soft::new();
    let append = soft.ze.zeCommandListImmediateAppendCommandListsExp.unwrap();
    let immediate = soft.immediate(0, 0);
    let [gate, done] = soft.events();
    let log = cells(100);
    let mut lists = [0, 1].map(|value| {
        let list = soft.list(0, 0, 0);
        soft.log(list, log, 10 * value, null_mut(), &[]);
        soft.log(list, log, 10 * value + 1, null_mut(), &[]);
        ok(soft.close(list));
        list
    });
    let mut empty = [soft.list(0, 0, 0)];
    ok(soft.close(empty[0]));
    soft.log(immediate, log, 5, null_mut(), &[]);
    // SAFETY: live handles, arrays as long as said.
    unsafe {
        ok(append(immediate, 2, lists.as_mut_ptr(), done, 1, [gate].as_mut_ptr()));
        ok(append(immediate, 1, empty.as_mut_ptr(), null_mut(), 0, null_mut()));
    }
    soft.log(immediate, log, 6, null_mut(), &[]);
    assert_eq!(soft.wait(done, 10_000_000), ZE_RESULT_NOT_READY);
    assert_eq!(entries(log), [5]);
    ok(soft.signal_host(gate));
    ok(soft.wait(done, NEVER));
    ok(soft.wait_list(immediate, NEVER));
    assert_eq!(entries(log), [5, 0, 1, 10, 11, 6]);
    // SAFETY: as above.
    unsafe {
        let code = append(lists[0], 1, [lists[1]].as_mut_ptr(), null_mut(), 0, null_mut());
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_ARGUMENT);
        let code = append(immediate, 1, [immediate].as_mut_ptr(), null_mut(), 0, null_mut());
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
        let code = append(immediate, 1, null_mut(), null_mut(), 0, null_mut());
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
}

#[test]
fn copies_and_fills() {
    let soft = Soft::new();
    let list = soft.immediate(0, 2);
    let mut bytes: Vec<u8> = (0..=255).collect();
    let start = bytes.as_mut_ptr();
    // SAFETY: all ranges lie in `bytes`, which lives until the list is done.
    unsafe {
        let copy = |to: usize, from: usize, size| {
            let (to, from) = (start.add(to).cast::<c_void>(), start.add(from).cast::<c_void>());
            (soft.ze.zeCommandListAppendMemoryCopy)(list, to, from, size, null_mut(), 0, null_mut())
        };
        // Overlapping, both ways.
        ok(copy(1, 0, 200));
        ok(copy(0, 1, 200));
        ok(copy(3, 7, 0));
    }
    ok(soft.wait_list(list, NEVER));
    // The first copy moved bytes 0..200 up by one, the second back down.
    let expected: Vec<u8> = (0..200).chain([199]).chain(201..=255).collect();
    assert_eq!(bytes, expected);

    let fill = soft.ze.zeCommandListAppendMemoryFill;
    for length in [1usize, 2, 4, 8, 16, 32, 64, 128] {
        for count in [0usize, 1, 2, 3, 7, 33] {
            let pattern: Vec<u8> = (0..length).map(|index| (index * 7 + length) as u8).collect();
            let mut target = vec![0xaau8; length * count + 1];
            let size = length * count;
            // SAFETY: pattern and target are as long as said and live until the list is done.
            ok(unsafe {
                fill(list, target.as_mut_ptr().cast(), pattern.as_ptr().cast(), length, size, null_mut(), 0, null_mut())
            });
            ok(soft.wait_list(list, NEVER));
            assert_eq!(target[..size], pattern.repeat(count));
            assert_eq!(target[size], 0xaa);
        }
    }
    let mut target = [0u8; 64];
    let target = target.as_mut_ptr().cast::<c_void>();
    let pattern = [0u8; 512].as_ptr().cast::<c_void>();
    // SAFETY: pattern and target are long enough, and nothing is appended.
    unsafe {
        for (pattern_size, size) in [(3, 6), (4, 6), (0, 0), (256, 256)] {
            let code = fill(list, target, pattern, pattern_size, size, null_mut(), 0, null_mut());
            assert_eq!(code, ZE_RESULT_ERROR_INVALID_SIZE);
        }
        let null = null_mut();
        assert_eq!(fill(list, null, pattern, 1, 1, null_mut(), 0, null_mut()), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        let copy = soft.ze.zeCommandListAppendMemoryCopy;
        assert_eq!(copy(list, target, null, 1, null_mut(), 0, null_mut()), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
}

#[test]
fn the_small_commands() {
    unsafe extern "C" fn call(data: *mut c_void) {
        // SAFETY: the test passes a cell.
        unsafe { (*data.cast::<AtomicU64>()).fetch_add(5, Ordering::Relaxed) };
    }
    let soft = Soft::new();
    let list = soft.immediate(1, 0);
    let cell = &cells(1)[0];
    let mut stamp = [0u64; 2];
    let (mut host, mut device) = (0, 0);
    let advise = soft.ze.zeCommandListAppendMemAdvise;
    // SAFETY: live handles, and places that live until the list is done.
    unsafe {
        ok((soft.ze.zeDeviceGetGlobalTimestamps)(soft.devices[1], &mut host, &mut device));
        let stamped = soft.ze.zeCommandListAppendWriteGlobalTimestamp;
        ok(stamped(list, &mut stamp[0], null_mut(), 0, null_mut()));
        let odd = stamp.as_mut_ptr().cast::<u8>().add(1).cast();
        assert_eq!(stamped(list, odd, null_mut(), 0, null_mut()), ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
        let data = (&raw const *cell).cast_mut().cast::<c_void>();
        let call = Some(call as unsafe extern "C" fn(*mut c_void));
        let append_call = soft.ze.zeCommandListAppendHostFunction.unwrap();
        ok(append_call(list, call, data, std::ptr::null(), null_mut(), 0, null_mut()));
        let code = append_call(list, None, data, std::ptr::null(), null_mut(), 0, null_mut());
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        ok((soft.ze.zeCommandListAppendMemoryPrefetch)(list, data, 8));
        ok(advise(list, soft.devices[1], data, 8, 0));
        let (sizes, mut ranges) = ([8usize], [data.cast_const()]);
        let barrier = soft.ze.zeCommandListAppendMemoryRangesBarrier;
        ok(barrier(list, 1, sizes.as_ptr(), ranges.as_mut_ptr(), null_mut(), 0, null_mut()));
        let code = barrier(list, 1, std::ptr::null(), ranges.as_mut_ptr(), null_mut(), 0, null_mut());
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        ok(stamped(list, &mut stamp[1], null_mut(), 0, null_mut()));
    }
    ok(soft.wait_list(list, SOON));
    assert_eq!(read(cell), 5);
    assert!(device <= stamp[0] && stamp[0] <= stamp[1], "{device} {stamp:?}");
    // SAFETY: as above.
    ok(unsafe { (soft.ze.zeDeviceGetGlobalTimestamps)(soft.devices[1], &mut host, &mut device) });
    assert!(stamp[1] <= device);
}

#[test]
fn launches_by_every_entry_point() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let kernel = soft.kernel("log");
    let log = cells(20);
    let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let address = log.as_ptr() as u64;
    let cooperative =
        ze_command_list_append_launch_kernel_param_cooperative_desc_t { isCooperative: 1, ..Default::default() };
    // SAFETY: live handles, argument values of the right size.
    unsafe {
        ok((soft.ze.zeKernelSetGroupSize)(kernel, 1, 1, 1));
        ok((soft.ze.zeKernelSetArgumentValue)(kernel, 0, 8, (&raw const address).cast()));
        for value in 0u64..3 {
            ok((soft.ze.zeKernelSetArgumentValue)(kernel, 1, 8, (&raw const value).cast()));
            let launch = match value {
                0 => soft.ze.zeCommandListAppendLaunchKernel,
                _ => soft.ze.zeCommandListAppendLaunchCooperativeKernel,
            };
            if value < 2 {
                ok(launch(list, kernel, &groups, null_mut(), 0, null_mut()));
            } else {
                let launch = soft.ze.zeCommandListAppendLaunchKernelWithParameters.unwrap();
                ok(launch(list, kernel, &groups, (&raw const cooperative).cast(), null_mut(), 0, null_mut()));
            }
        }
        let launch = soft.ze.zeCommandListAppendLaunchKernel;
        assert_eq!(
            launch(list, kernel, std::ptr::null(), null_mut(), 0, null_mut()),
            ZE_RESULT_ERROR_INVALID_NULL_POINTER
        );
        let launch = soft.ze.zeCommandListAppendLaunchKernelWithParameters.unwrap();
        let unknown = ze_context_desc_t::default();
        let code = launch(list, kernel, &groups, (&raw const unknown).cast(), null_mut(), 0, null_mut());
        assert_eq!(code, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    }
    soft.log(list, log, 3, null_mut(), &[]);
    ok(soft.wait_list(list, NEVER));
    assert_eq!(entries(log), [0, 1, 2, 3]);
    let copies = soft.immediate(0, 2);
    let code = soft.try_launch(copies, kernel, [address, 4], null_mut(), &[]);
    assert_eq!(code, ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "a queue group that only copies");
}

#[test]
fn what_a_list_says_of_itself() {
    let soft = Soft::new();
    let flags = ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
    let immediate = soft.immediate_with(1, 1, flags, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    let regular = soft.list(2, 2, ZE_COMMAND_LIST_FLAG_IN_ORDER);
    let queue = soft.queue(0, 1);
    let (mut device, mut context) = (null_mut(), null_mut());
    let (mut number, mut is) = (9, 9);
    let ze = &soft.ze;
    // SAFETY: live handles and places.
    unsafe {
        ok((ze.zeCommandListGetDeviceHandle.unwrap())(regular, &mut device));
        ok((ze.zeCommandListGetContextHandle.unwrap())(regular, &mut context));
        assert_eq!((device, context), (soft.devices[2], soft.context));
        for (list, ordinal, immediately) in [(immediate, 1, 1), (regular, 2, 0)] {
            ok((ze.zeCommandListGetOrdinal.unwrap())(list, &mut number));
            ok((ze.zeCommandListIsImmediate.unwrap())(list, &mut is));
            assert_eq!((number, u32::from(is)), (ordinal, immediately));
        }
        ok((ze.zeCommandListImmediateGetIndex.unwrap())(immediate, &mut number));
        assert_eq!(number, 0);
        ok((ze.zeCommandListImmediateGetFlags.unwrap())(immediate, &mut number));
        assert_eq!(number, flags);
        ok((ze.zeCommandListImmediateGetMode.unwrap())(immediate, &mut number));
        assert_eq!(number, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
        ok((ze.zeCommandListGetFlags.unwrap())(regular, &mut number));
        assert_eq!(number, ZE_COMMAND_LIST_FLAG_IN_ORDER);
        let code = (ze.zeCommandListImmediateGetIndex.unwrap())(regular, &mut number);
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_ARGUMENT);
        ok((ze.zeCommandQueueGetOrdinal.unwrap())(queue, &mut number));
        assert_eq!(number, 1);
        ok((ze.zeCommandQueueGetIndex.unwrap())(queue, &mut number));
        assert_eq!(number, 0);
    }
}

#[test]
fn what_is_refused() {
    let soft = Soft::new();
    let (ze, device) = (&soft.ze, soft.devices[0]);
    let (mut list, mut queue) = (null_mut(), null_mut());
    let immediate = soft.immediate(0, 0);
    let regular = soft.list(0, 1, 0);
    ok(soft.close(regular));
    // SAFETY: live handles or null ones, valid descriptors and places.
    unsafe {
        let desc = ze_command_queue_desc_t { ordinal: 3, ..Default::default() };
        let code = (ze.zeCommandListCreateImmediate)(soft.context, device, &desc, &mut list);
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_ARGUMENT, "no such ordinal");
        assert_eq!((ze.zeCommandQueueCreate)(soft.context, device, &desc, &mut queue), code);
        let desc = ze_command_queue_desc_t { index: 1, ..Default::default() };
        assert_eq!((ze.zeCommandQueueCreate)(soft.context, device, &desc, &mut queue), code, "no such index");
        for desc in [
            ze_command_queue_desc_t { mode: 3, ..Default::default() },
            ze_command_queue_desc_t { priority: 3, ..Default::default() },
            ze_command_queue_desc_t { flags: 8, ..Default::default() },
        ] {
            let code = (ze.zeCommandListCreateImmediate)(soft.context, device, &desc, &mut list);
            assert_eq!(code, ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        let desc = ze_command_list_desc_t { commandQueueGroupOrdinal: 7, ..Default::default() };
        let create = ze.zeCommandListCreate;
        assert_eq!(create(soft.context, device, &desc, &mut list), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        assert_eq!(create(soft.context, device, std::ptr::null(), &mut list), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        assert_eq!(create(null_mut(), device, &desc, &mut list), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        assert_eq!(create(soft.context, null_mut(), &desc, &mut list), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);

        let queue = soft.queue(0, 0);
        let execute = |lists: &[_]| soft.execute(queue, lists, null_mut());
        assert_eq!(execute(&[immediate]), ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
        assert_eq!(execute(&[regular]), ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "another ordinal's list");
        assert_eq!(execute(&[]), ZE_RESULT_ERROR_INVALID_SIZE);
        let code = (ze.zeCommandQueueExecuteCommandLists)(queue, 1, null_mut(), null_mut());
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        let elsewhere = soft.list(1, 0, 0);
        ok(soft.close(elsewhere));
        assert_eq!(execute(&[elsewhere]), ZE_RESULT_ERROR_INVALID_ARGUMENT, "another device's list");

        assert_eq!(soft.wait_list(regular, 0), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        assert_eq!((ze.zeCommandListReset)(immediate), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        assert_eq!(soft.close(immediate), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        assert_eq!(soft.close(null_mut()), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        let barrier = ze.zeCommandListAppendBarrier;
        assert_eq!(barrier(immediate, null_mut(), 1, null_mut()), ZE_RESULT_ERROR_INVALID_SIZE);
        assert_eq!(barrier(immediate, null_mut(), 1, [null_mut()].as_mut_ptr()), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        let code = barrier(immediate, immediate.cast(), 0, null_mut());
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "a list is no event");
        let wait = ze.zeCommandListAppendWaitOnEvents;
        assert_eq!(wait(immediate, 1, null_mut()), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
}

#[test]
fn destroying_in_flight() {
    let soft = Soft::new();
    let cell = cells(4);
    for round in 0..20 {
        let list = soft.immediate(0, 0);
        let regular = soft.list(0, 1, 0);
        let queue = soft.queue(0, 1);
        let pool = soft.pool(2, ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
        let [gate, done] = [0, 1].map(|index| soft.event(pool, index));
        let counted = soft.counted();
        soft.store(list, &cell[0], round, counted, &[gate]);
        soft.store(regular, &cell[1], round, done, &[counted, gate]);
        ok(soft.close(regular));
        let fence = soft.fence(queue);
        ok(soft.execute(queue, &[regular], fence));
        ok(soft.signal_host(gate));
        soft.destroy_list(list);
        soft.destroy_list(regular);
        [gate, done, counted].into_iter().for_each(|event| soft.destroy_event(event));
        // SAFETY: live handles that are not used again.
        unsafe {
            ok((soft.ze.zeEventPoolDestroy)(pool));
            ok((soft.ze.zeFenceDestroy)(fence));
            ok((soft.ze.zeCommandQueueDestroy)(queue));
        }
        eventually(|| read(&cell[0]) == round && read(&cell[1]) == round);
    }
}
