//! Command lists and graphs within graphs, and graphs in command lists.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

mod graph_bed;
#[path = "executor_support/mod.rs"]
mod support;

use graph_bed::{Graphs, NONE};
use level_zero_sys::*;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;
use ze_soft::ext::*;

fn append_lists(
    soft: &Soft,
    list: ze_command_list_handle_t,
    lists: &[ze_command_list_handle_t],
    signal: ze_event_handle_t,
) -> ze_result_t {
    let append = soft.ze.zeCommandListImmediateAppendCommandListsExp.unwrap();
    unsafe { append(list, lists.len() as u32, lists.as_ptr().cast_mut(), signal, 0, null_mut()) }
}

#[test]
fn lists_are_captured_command_by_command() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let (first, second) = (soft.list(0, 0, 0), soft.list(0, 0, ZE_COMMAND_LIST_FLAG_IN_ORDER));
    let [inner, end] = soft.events();
    let log = cells(400);
    soft.log(first, log, 1, inner, &[]);
    soft.log(first, log, 2, NONE, &[]);
    soft.log(second, log, 3, NONE, &[inner]);
    assert_eq!(append_lists(&soft, list, &[first], NONE), ZE_RESULT_ERROR_INVALID_ARGUMENT, "it is open");
    ok(soft.close(first));
    ok(soft.close(second));
    ok(soft.begin(list));
    soft.log(list, log, 0, NONE, &[]);
    ok(append_lists(&soft, list, &[first, second], end));
    soft.log(list, log, 4, NONE, &[]);
    let graph = soft.end(list);
    assert_eq!(entries(log), [0u64; 0], "nothing runs while it is recorded");
    let dump = soft.dump(graph);
    assert_eq!(dump.matches("kernel log").count(), 5, "{dump}");
    let executable = soft.instantiate(graph);
    // What was captured stays, whatever becomes of the list.
    ok(unsafe { (soft.ze.zeCommandListReset)(first) });
    for _ in 0..20 {
        ok(unsafe { (soft.ze.zeEventHostReset)(end) });
        ok(soft.replay(list, executable, NONE, &[]));
        ok(soft.wait_list(list, NEVER));
        ok(soft.query(end));
    }
    assert_eq!(entries(log), [0, 1, 2, 3, 4].repeat(20));
}

/// A graph on two executors: 1, then 2 here and 3 there, then 4. Each stores what it finds in the cell before its own plus
/// its own number, so that a missing edge shows.
fn diamond(soft: &Soft, list: ze_command_list_handle_t, log: &'static [AtomicU64]) -> ze_executable_graph_handle_t {
    let other = soft.immediate(0, 1);
    let [fork, join] = [(); 2].map(|()| soft.counted());
    ok(soft.begin(list));
    soft.log(list, log, 1, fork, &[]);
    soft.log(other, log, 2, join, &[fork]);
    soft.log(list, log, 3, NONE, &[join]);
    let graph = soft.end(list);
    soft.instantiate(graph)
}

#[test]
fn graphs_are_captured_node_by_node() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let log = cells(2000);
    let inner = diamond(&soft, list, log);
    let [outside] = soft.events();
    ok(soft.begin(list));
    soft.log(list, log, 10, NONE, &[]);
    ok(soft.replay(list, inner, NONE, &[]));
    soft.log(list, log, 11, NONE, &[]);
    ok(soft.replay(list, inner, outside, &[]));
    ok(soft.replay(list, inner, NONE, &[]));
    soft.log(list, log, 12, NONE, &[]);
    let outer = soft.instantiate(soft.end(list));
    // A replay on its own in between doesn't mix with those within the other graph.
    let whole = [10, 1, 2, 3, 11, 1, 2, 3, 1, 2, 3, 12];
    for seed in 0..30 {
        soft.fault(ZESOFT_FAULT_REORDER, ZESOFT_ANY, ZESOFT_ANY, 0, seed);
        soft.fault(ZESOFT_FAULT_DELAY_QUEUE, 0, (seed % 2) as u32, 100_000, seed + 1);
        log[0].store(0, Ordering::Relaxed);
        ok(unsafe { (soft.ze.zeEventHostReset)(outside) });
        ok(soft.replay(list, outer, NONE, &[]));
        ok(soft.replay(list, inner, NONE, &[]));
        ok(soft.wait_list(list, NEVER));
        ok(soft.query(outside));
        soft.clear_faults();
        assert_eq!(entries(log), [whole.as_slice(), &[1, 2, 3]].concat());
    }
}

#[test]
fn without_its_edges_a_captured_graph_shows_it() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let log = cells(2000);
    let inner = diamond(&soft, list, log);
    ok(soft.begin(list));
    ok(soft.replay(list, inner, NONE, &[]));
    let graph = soft.end(list);
    soft.fault(ZESOFT_FAULT_DROP_EDGES, ZESOFT_ANY, ZESOFT_ANY, u64::MAX, 0);
    let broken = soft.instantiate(graph);
    // The second executor's command comes too late for who doesn't wait for it.
    soft.fault(ZESOFT_FAULT_DELAY_QUEUE, 0, 1, 20_000_000, 0);
    ok(soft.replay(list, broken, NONE, &[]));
    ok(soft.wait_list(list, NEVER));
    soft.clear_faults();
    assert_ne!(entries(log), [1, 2, 3]);
}

#[test]
fn a_graph_in_a_regular_list_runs_with_it() {
    let soft = Soft::new();
    let (list, queue) = (soft.immediate(0, 0), soft.queue(0, 0));
    let log = cells(2000);
    let graph = diamond(&soft, list, log);
    let [gate, end] = soft.events();
    let regular = soft.list(0, 0, 0);
    soft.log(regular, log, 10, NONE, &[]);
    ok(soft.replay(regular, graph, end, &[gate]));
    soft.log(regular, log, 11, NONE, &[]);
    ok(soft.close(regular));
    assert_eq!(entries(log), [0u64; 0]);
    ok(soft.execute(queue, &[regular], null_mut()));
    eventually(|| entries(log) == [10]);
    ok(soft.signal_host(gate));
    ok(soft.wait_queue(queue, NEVER));
    assert_eq!(entries(log), [10, 1, 2, 3, 11]);
    ok(soft.query(end));
    ok(soft.execute(queue, &[regular], null_mut()));
    ok(soft.wait_queue(queue, NEVER));
    assert_eq!(entries(log), [10, 1, 2, 3, 11].repeat(2));

    for (list, why) in [(soft.list(1, 0, 0), "another device"), (soft.list(0, 2, 0), "only copies")] {
        assert_eq!(soft.replay(list, graph, NONE, &[]), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "{why}");
        ok(soft.close(list));
    }
}

#[test]
fn what_cannot_be_nested_is_refused_and_leaves_no_trace() {
    let soft = Soft::new();
    let (list, unordered) = (soft.immediate(0, 0), soft.immediate_with(0, 0, 0, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS));
    let log = cells(100);
    let graph = diamond(&soft, list, log);
    let counting = soft.list(0, 0, ZE_COMMAND_LIST_FLAG_IN_ORDER);
    let counted =
        soft.counted_with(ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE);
    soft.log(counting, log, 1, counted, &[]);
    let plain = soft.list(0, 0, 0);
    soft.log(plain, log, 2, NONE, &[]);
    let elsewhere = soft.list(0, 1, 0);
    [counting, plain, elsewhere].into_iter().for_each(|list| ok(soft.close(list)));
    ok(soft.begin(list));
    assert_eq!(append_lists(&soft, list, &[plain, counting], NONE), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
    assert_eq!(append_lists(&soft, list, &[plain, elsewhere], NONE), ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
    assert_eq!(append_lists(&soft, list, &[list], NONE), ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
    let empty = soft.end(list);
    assert_eq!(soft.is_empty(empty), ZE_RESULT_QUERY_TRUE);
    ok(soft.begin(unordered));
    assert_eq!(append_lists(&soft, unordered, &[plain], NONE), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
    assert_eq!(soft.replay(unordered, graph, NONE, &[]), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
    assert_eq!(soft.is_empty(soft.end(unordered)), ZE_RESULT_QUERY_TRUE);
    assert_eq!(entries(log), [0u64; 0]);
}
