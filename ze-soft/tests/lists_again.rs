//! Regular lists that are executed again and again: what an execution left behind counts in the next one.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

#[path = "executor_support/mod.rs"]
mod support;

use level_zero_sys::*;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use support::*;
use ze_soft::ext::*;

const NONE: ze_event_handle_t = null_mut();

/// A producer on ordinal 1 and a consumer on ordinal 0, in a list each, with a regular event between them that the
/// consumer resets or doesn't. How many of so many executions of both were right.
fn right(soft: &Soft, reset: bool, executions: u64) -> u64 {
    let (queues, lists) =
        ([0, 1].map(|ordinal| soft.queue(0, ordinal)), [0, 1].map(|ordinal| soft.list(0, ordinal, 0)));
    let [event] = soft.events();
    let memory = cells(3);
    let addresses = [0, 1, 2].map(|index| &raw const memory[index] as u64);
    soft.launch(lists[1], "take", [addresses[1], addresses[0]], event, &[]);
    soft.launch(lists[0], "take", [addresses[2], addresses[1]], NONE, &[event]);
    if reset {
        // SAFETY: live handles.
        ok(unsafe { (soft.ze.zeCommandListAppendEventReset)(lists[0], event) });
    }
    lists.iter().for_each(|&list| ok(soft.close(list)));
    for execution in 0..executions {
        let input = 0x500 + 3 * execution;
        memory[0].store(input, Ordering::Relaxed);
        ok(soft.execute(queues[0], &[lists[0]], null_mut()));
        ok(soft.execute(queues[1], &[lists[1]], null_mut()));
        queues.iter().for_each(|&queue| ok(soft.wait_queue(queue, NEVER)));
        if read(&memory[2]) != input {
            return execution;
        }
    }
    executions
}

#[test]
fn a_regular_event_must_be_reset_between_executions() {
    let soft = Soft::new();
    soft.fault(ZESOFT_FAULT_DELAY_QUEUE, 0, 1, 100_000, 0);
    assert_eq!(right(&soft, true, 300), 300);
    // Without the reset the first execution is right, and then the event is still signalled.
    assert_eq!(right(&soft, false, 300), 1);
}

#[test]
fn a_counter_based_event_is_each_executions_own() {
    let soft = Soft::new();
    let in_order = ZE_COMMAND_LIST_FLAG_IN_ORDER;
    let (queues, lists) =
        ([0, 1].map(|ordinal| soft.queue(0, ordinal)), [0, 1].map(|ordinal| soft.list(0, ordinal, in_order)));
    let event = soft.counted_with(ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE);
    let memory = cells(3);
    let addresses = [0, 1, 2].map(|index| &raw const memory[index] as u64);
    soft.launch(lists[1], "take", [addresses[1], addresses[0]], event, &[]);
    soft.launch(lists[0], "take", [addresses[2], addresses[1]], NONE, &[event]);
    lists.iter().for_each(|&list| ok(soft.close(list)));
    soft.fault(ZESOFT_FAULT_DELAY_QUEUE, 0, 1, 100_000, 7);
    for execution in 0..300 {
        let input = 0x700 + 5 * execution;
        memory[0].store(input, Ordering::Relaxed);
        ok(soft.execute(queues[1], &[lists[1]], null_mut()));
        ok(soft.execute(queues[0], &[lists[0]], null_mut()));
        ok(soft.wait(event, NEVER));
        assert_eq!(read(&memory[1]), input);
        queues.iter().for_each(|&queue| ok(soft.wait_queue(queue, NEVER)));
        assert_eq!(read(&memory[2]), input);
    }
}

#[test]
fn executions_of_one_list_never_overlap() {
    let soft = Soft::new();
    let queues = [soft.queue(0, 0), soft.queue(0, 0)];
    let list = soft.list(0, 0, 0);
    let memory = cells(2);
    let log = cells(4096);
    let arguments = [&raw const memory[0] as u64, &raw const memory[1] as u64];
    soft.launch(list, "alone", arguments, NONE, &[]);
    soft.log(list, log, 1, NONE, &[]);
    soft.log(list, log, 2, NONE, &[]);
    ok(soft.close(list));
    soft.fault(ZESOFT_FAULT_REORDER, ZESOFT_ANY, ZESOFT_ANY, 0, 9);
    for _ in 0..300 {
        queues.iter().for_each(|&queue| ok(soft.execute(queue, &[list], null_mut())));
    }
    queues.iter().for_each(|&queue| ok(soft.wait_queue(queue, NEVER)));
    assert_eq!((entries(log), read(&memory[1])), ([1, 2].repeat(600), 1));
}
