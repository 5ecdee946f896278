//! Recording: what is captured, what is refused, and what becomes of lists, events and graphs.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod graph_bed;
#[path = "executor_support/mod.rs"]
mod support;

use graph_bed::{Graphs, NONE};
use level_zero_sys::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;

#[test]
fn what_is_recorded_runs_with_each_replay_and_not_before() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let log = cells(64);
    assert!(!soft.capturing(list));
    ok(soft.begin(list));
    assert!(soft.capturing(list));
    for value in 1..=3 {
        soft.log(list, log, value, NONE, &[]);
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(entries(log), []);
    let graph = soft.end(list);
    assert!(!soft.capturing(list));
    assert_eq!(soft.is_empty(graph), ZE_RESULT_QUERY_FALSE);
    // Afterwards the list executes again.
    soft.log(list, log, 4, NONE, &[]);
    ok(soft.wait_list(list, SOON));
    assert_eq!(entries(log), [4]);
    let (first, second) = (soft.instantiate(graph), soft.instantiate(graph));
    ok(soft.replay(list, first, NONE, &[]));
    soft.log(list, log, 5, NONE, &[]);
    ok(soft.replay(list, second, NONE, &[]));
    ok(soft.replay(list, first, NONE, &[]));
    ok(soft.wait_list(list, NEVER));
    assert_eq!(entries(log), [4, 1, 2, 3, 5, 1, 2, 3, 1, 2, 3]);
    // In any order.
    soft.destroy_executable(second);
    ok(soft.destroy_graph(graph));
    ok(soft.replay(list, first, NONE, &[]));
    soft.destroy_executable(first);
    soft.destroy_list(list);
    eventually(|| entries(log).len() == 14);
}

#[test]
fn arguments_are_captured_when_they_are_appended() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let cell = &cells(1)[0];
    let kernel = soft.kernel("store");
    ok(soft.begin(list));
    ok(soft.try_launch(list, kernel, [&raw const *cell as u64, 17], NONE, &[]));
    let graph = soft.end(list);
    // The kernel's values change afterwards, and then the kernel goes.
    ok(soft.try_launch(list, kernel, [&raw const *cell as u64, 18], NONE, &[]));
    // SAFETY: a live kernel.
    ok(unsafe { (soft.ze.zeKernelDestroy)(kernel) });
    ok(soft.replay(list, soft.instantiate(graph), NONE, &[]));
    ok(soft.wait_list(list, SOON));
    assert_eq!(read(cell), 17);
}

#[test]
fn a_replay_waits_and_signals() {
    let soft = Soft::new();
    let (list, other) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let [gate, done] = soft.events();
    let counted = soft.counted();
    let (cell, seen) = (&cells(1)[0], cells(2));
    ok(soft.begin(list));
    soft.store(list, cell, 9, NONE, &[]);
    let executable = soft.instantiate(soft.end(list));
    ok(soft.replay(list, executable, done, &[gate]));
    soft.take(other, &seen[0], cell, NONE, &[done]);
    assert_eq!(soft.wait(done, 5_000_000), ZE_RESULT_NOT_READY);
    assert_eq!((read(cell), read(&seen[0])), (0, 0));
    ok(soft.signal_host(gate));
    ok(soft.wait_list(other, SOON));
    assert_eq!(read(&seen[0]), 9);
    // A counter-based event stands for its replay.
    for round in 0..50 {
        cell.store(0, Ordering::Relaxed);
        ok(soft.replay(list, executable, counted, &[]));
        soft.take(other, &seen[1], cell, NONE, &[counted]);
        ok(soft.wait(counted, NEVER));
        ok(soft.wait_list(other, NEVER));
        assert_eq!(read(&seen[1]), 9, "round {round}");
        seen[1].store(0, Ordering::Relaxed);
    }
}

#[test]
fn forks_are_transitive_and_must_be_joined() {
    let soft = Soft::new();
    let lists = [soft.immediate(0, 0), soft.immediate(0, 1), soft.immediate(1, 0)];
    let [fork, further, back, home] = std::array::from_fn(|_| soft.counted());
    let log = cells(256);
    ok(soft.begin(lists[0]));
    soft.log(lists[0], log, 1, fork, &[]);
    assert!(!soft.capturing(lists[1]));
    soft.log(lists[1], log, 2, further, &[fork]);
    soft.log(lists[2], log, 3, back, &[further]);
    assert!(lists.iter().all(|&list| soft.capturing(list)));
    soft.log(lists[1], log, 4, home, &[back]);
    soft.log(lists[0], log, 5, NONE, &[home]);
    let graph = soft.end(lists[0]);
    assert!(!lists.iter().any(|&list| soft.capturing(list)));
    let executable = soft.instantiate(graph);
    for _ in 0..20 {
        ok(soft.replay(lists[0], executable, NONE, &[]));
    }
    ok(soft.wait_list(lists[0], NEVER));
    assert_eq!(entries(log), [1, 2, 3, 4, 5].repeat(20));

    // Events of a capture that is over fork nothing.
    soft.log(lists[1], log, 6, NONE, &[fork]);
    assert!(!soft.capturing(lists[1]));

    // Left open; joined, but with work after the join; joined, and only waits and signals after that.
    type Case = fn(&Soft, [ze_command_list_handle_t; 2], [ze_event_handle_t; 2], &'static [AtomicU64]);
    let cases: [(Case, bool); 4] = [
        (|_, _, _, _| (), false),
        (
            |soft, [first, child], [back, _], log| {
                ok(soft.signal(child, back));
                soft.log(first, log, 5, NONE, &[back]);
                soft.log(child, log, 7, NONE, &[]);
            },
            false,
        ),
        (
            |soft, [first, child], [back, fork], log| {
                ok(soft.signal(child, back));
                soft.log(first, log, 5, fork, &[back]);
                ok(soft.wait_on(child, fork));
            },
            true,
        ),
        (
            |soft, [first, child], [back, _], log| {
                // Only the last of several signals joins.
                ok(soft.signal(child, back));
                ok(soft.wait_on(first, back));
                soft.log(child, log, 7, back, &[]);
                ok(soft.wait_on(first, back));
            },
            true,
        ),
    ];
    for (index, (case, joined)) in cases.into_iter().enumerate() {
        let graph = soft.graph();
        ok(soft.begin_into(lists[0], graph));
        soft.log(lists[0], log, 1, fork, &[]);
        soft.log(lists[1], log, 2, NONE, &[fork]);
        case(&soft, [lists[0], lists[1]], [back, fork], log);
        match soft.try_end(lists[0]) {
            Ok(ended) => assert!(joined && ended == graph, "case {index}"),
            Err(code) => {
                assert_eq!((code, joined), (ZE_RESULT_ERROR_GRAPH_UNJOINED_FORKS, false), "case {index}");
                assert_eq!(soft.is_empty(graph), ZE_RESULT_ERROR_INVALID_GRAPH);
                assert_eq!(soft.try_instantiate(graph), Err(ZE_RESULT_ERROR_INVALID_GRAPH));
            }
        }
        ok(soft.destroy_graph(graph));
        // The lists execute again either way.
        for list in &lists[..2] {
            assert!(!soft.capturing(*list));
            soft.log(*list, log, 8, NONE, &[]);
            ok(soft.wait_list(*list, SOON));
        }
    }
    // A grandchild is joined where it was forked, not past that.
    ok(soft.begin(lists[0]));
    soft.log(lists[0], log, 1, fork, &[]);
    soft.log(lists[1], log, 2, further, &[fork]);
    soft.log(lists[2], log, 3, back, &[further]);
    ok(soft.wait_on(lists[0], back));
    ok(soft.wait_on(lists[0], further));
    assert_eq!(soft.try_end(lists[0]), Err(ZE_RESULT_ERROR_GRAPH_UNJOINED_FORKS));
}

#[test]
fn nothing_waits_for_what_is_only_recorded() {
    let soft = Soft::new();
    let (list, regular) = (soft.immediate(0, 0), soft.list(0, 0, ZE_COMMAND_LIST_FLAG_IN_ORDER));
    let [event] = soft.events();
    let all = ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
        | ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE
        | ZE_EVENT_COUNTER_BASED_FLAG_IPC;
    let counted = soft.counted_with(all);
    let log = cells(16);
    ok(soft.begin(list));
    soft.log(list, log, 1, event, &[]);
    soft.log(list, log, 2, counted, &[]);
    for timeout in [0, 1000, NEVER] {
        assert_eq!(soft.wait_list(list, timeout), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
        assert_eq!(soft.wait(event, timeout), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
        assert_eq!(soft.wait(counted, timeout), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
    }
    assert_eq!(soft.query(event), ZE_RESULT_NOT_READY);
    assert_eq!(soft.query(counted), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
    // An internal event is the recording's alone.
    let internal = ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT;
    assert_eq!(soft.barrier(regular, NONE, &[counted]), internal);
    assert_eq!(soft.barrier(regular, counted, &[]), internal);
    let elsewhere = soft.immediate(0, 1);
    assert_eq!(soft.barrier(elsewhere, counted, &[]), internal);
    let mut handle = ze_ipc_event_counter_based_handle_t { data: [0; ZE_MAX_IPC_HANDLE_SIZE] };
    // SAFETY: a live event and valid places.
    unsafe {
        assert_eq!(soft.ze.zeEventCounterBasedGetIpcHandle.unwrap()(counted, &mut handle), internal);
        let address = soft.ze.zeEventCounterBasedGetDeviceAddress.unwrap();
        assert_eq!(address(counted, &mut 0, &mut 0), internal);
    }
    // The recording took no harm.
    let executable = soft.instantiate(soft.end(list));
    // After it the event is the program's again, and stands for what it stood for before.
    ok(soft.query(counted));
    soft.log(list, log, 3, counted, &[]);
    ok(soft.replay(list, executable, NONE, &[]));
    ok(soft.wait(counted, SOON));
    ok(soft.wait(event, SOON));
    ok(soft.wait_list(list, SOON));
    assert_eq!(entries(log), [3, 1, 2]);
}

#[test]
fn what_is_refused_leaves_the_recording_usable() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let log = cells(16);
    let asynchronous = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
    let synchronous = soft.immediate_with(0, 1, ZE_COMMAND_QUEUE_FLAG_IN_ORDER, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    let regular = soft.list(0, 0, 0);
    let unordered = soft.immediate_with(0, 0, 0, asynchronous);
    assert_eq!(soft.begin(synchronous), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
    assert_eq!(soft.begin(regular), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert_eq!(soft.try_end(list), Err(ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING));

    ok(soft.begin(list));
    soft.log(list, log, 1, NONE, &[]);
    let whole = soft.instantiate(soft.end(list));
    let outside = soft.counted();
    soft.log(list, log, 2, outside, &[]);
    ok(soft.close(regular));

    let (mine, other) = (soft.counted(), soft.counted());
    ok(soft.begin(list));
    assert_eq!(soft.begin(list), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    // No edge of this graph can stand for it.
    assert_eq!(soft.barrier(list, NONE, &[outside]), ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT);
    let kernel = soft.kernel("log");
    // SAFETY: live handles; the kernel's arguments were never set.
    let unset = unsafe {
        let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        (soft.ze.zeCommandListAppendLaunchKernel)(list, kernel, &groups, NONE, 0, null_mut())
    };
    assert_eq!(unset, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    soft.log(list, log, 3, mine, &[]);
    // A list that can't be captured doesn't join.
    assert_eq!(soft.barrier(synchronous, NONE, &[mine]), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
    assert_eq!(soft.replay(unordered, whole, NONE, &[mine]), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
    assert_eq!(soft.barrier(unordered, other, &[mine]), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert!(!soft.capturing(synchronous) && !soft.capturing(unordered));
    // Two recordings don't become one.
    let second = soft.immediate(0, 1);
    ok(soft.begin(second));
    soft.log(second, log, 4, other, &[]);
    assert_eq!(soft.barrier(second, NONE, &[mine]), ZE_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT);
    assert_eq!(soft.barrier(unordered, NONE, &[mine, other]), ZE_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT);
    assert_eq!(soft.barrier(second, mine, &[]), ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT);
    // Only the list on which it began ends it.
    soft.log(unordered, log, 5, NONE, &[mine]);
    assert_eq!(soft.try_end(unordered), Err(ZE_RESULT_ERROR_INVALID_ARGUMENT));
    let [join] = soft.events();
    ok(soft.barrier(unordered, join, &[]));
    ok(soft.wait_on(list, join));
    let (first, second_graph) = (soft.end(list), soft.end(second));

    // Into what isn't empty nothing is recorded.
    assert_eq!(soft.begin_into(list, first), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert_eq!(soft.try_instantiate(soft.graph()), Err(ZE_RESULT_ERROR_INVALID_GRAPH));
    // A replay needs a list like the first one.
    let executable = soft.instantiate(first);
    let kind = ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE;
    for wrong in [second, unordered, soft.immediate(1, 0), synchronous] {
        assert_eq!(soft.replay(wrong, executable, NONE, &[]), kind);
    }
    ok(soft.replay(list, executable, NONE, &[]));
    ok(soft.replay(second, soft.instantiate(second_graph), NONE, &[]));
    ok(soft.wait_list(list, SOON));
    ok(soft.wait_list(second, SOON));
    let mut seen = entries(log);
    seen.sort_unstable();
    assert_eq!(seen, [2, 3, 4, 5]);
}

#[test]
fn an_event_signalled_anew_outside_is_no_longer_the_recordings() {
    let soft = Soft::new();
    let (list, other) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let [event] = soft.events();
    let log = cells(16);
    ok(soft.begin(list));
    soft.log(list, log, 1, event, &[]);
    // What is refused changes nothing: it still forks.
    let regular = soft.list(0, 0, 0);
    ok(soft.close(regular));
    assert_eq!(soft.barrier(regular, event, &[]), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    let fork = soft.immediate(0, 1);
    let [join] = soft.events();
    ok(soft.barrier(fork, join, &[event]));
    ok(soft.wait_on(list, join));
    assert!(soft.capturing(fork));
    soft.log(other, log, 2, event, &[]);
    ok(soft.wait(event, SOON));
    soft.log(other, log, 3, NONE, &[event]);
    assert!(!soft.capturing(other));
    ok(soft.wait_list(other, SOON));
    soft.log(list, log, 4, NONE, &[event]);
    let dump = soft.dump(soft.end(list));
    assert!(dump.contains("waits for 1 events from outside") && !dump.contains("n0 -> n3;"), "{dump}");
    assert_eq!(entries(log), [2, 3]);
}

#[test]
fn recordings_that_nobody_ends() {
    let soft = Soft::new();
    let (list, child) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let [fork, _] = soft.events();
    let log = cells(16);
    let graph = soft.graph();
    ok(soft.begin_into(list, graph));
    soft.log(list, log, 1, fork, &[]);
    soft.log(child, log, 2, NONE, &[fork]);
    soft.destroy_list(list);
    assert!(!soft.capturing(child));
    assert_eq!(soft.is_empty(graph), ZE_RESULT_ERROR_INVALID_GRAPH);
    assert_eq!(soft.query(fork), ZE_RESULT_NOT_READY);
    soft.log(child, log, 3, NONE, &[]);
    ok(soft.wait_list(child, SOON));
    assert_eq!(entries(log), [3]);
    ok(soft.destroy_graph(graph));

    // The graph goes first; then a child.
    let list = soft.immediate(0, 0);
    let graph = soft.graph();
    ok(soft.begin_into(list, graph));
    soft.log(list, log, 1, NONE, &[]);
    ok(soft.destroy_graph(graph));
    assert!(!soft.capturing(list));
    ok(soft.begin(list));
    soft.log(list, log, 1, fork, &[]);
    soft.log(child, log, 2, NONE, &[fork]);
    soft.destroy_list(child);
    assert_eq!(soft.try_end(list), Err(ZE_RESULT_ERROR_GRAPH_UNJOINED_FORKS));
    soft.log(list, log, 4, NONE, &[]);
    ok(soft.wait_list(list, SOON));
    assert_eq!(entries(log), [3, 4]);
    // The event means nothing recorded any more.
    ok(soft.reset_host(fork));
    soft.log(list, log, 5, fork, &[]);
    ok(soft.wait(fork, SOON));
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test passes one of its cells.
    unsafe { (*data.cast::<AtomicU64>()).fetch_add(1, Ordering::Relaxed) };
}

#[test]
fn what_a_graph_says_of_itself() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let (cell, calls) = (&cells(1)[0], &cells(1)[0]);
    let graph = soft.graph();
    assert_eq!(soft.is_empty(graph), ZE_RESULT_QUERY_TRUE);
    ok(soft.begin_into(list, graph));
    assert_eq!(soft.is_empty(graph), ZE_RESULT_QUERY_TRUE);
    let callback = soft.ze.zeGraphSetDestructionCallbackExt.unwrap();
    let register = || {
        // SAFETY: a live graph, a function and its argument.
        ok(unsafe { callback(graph, Some(count), (&raw const *calls).cast_mut().cast(), null()) });
    };
    register();
    soft.store(list, cell, 3, NONE, &[]);
    assert_eq!(soft.is_empty(graph), ZE_RESULT_QUERY_FALSE);
    assert_eq!(soft.try_instantiate(graph), Err(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED));
    // SAFETY: live handles and valid places.
    unsafe {
        assert_eq!(made(|found| soft.ze.zeCommandListGetGraphExt.unwrap()(list, found)), graph);
        assert_eq!(made(|found| soft.ze.zeGraphGetPrimaryCommandListExt.unwrap()(graph, found)), list);
        assert_eq!(soft.end(list), graph);
        let mut found = 1 as ze_graph_handle_t;
        let none = soft.ze.zeCommandListGetGraphExt.unwrap()(list, &mut found);
        assert_eq!((none, found.is_null()), (ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING, true));
        assert_eq!(made(|found| soft.ze.zeGraphGetPrimaryCommandListExt.unwrap()(graph, found)), list);
    }
    register();
    let executable = soft.instantiate(graph);
    // SAFETY: live handles and valid places.
    unsafe {
        let source = soft.ze.zeExecutableGraphGetSourceGraphExt.unwrap();
        assert_eq!(made(|found| source(executable, found)), graph);
        assert_eq!(read(calls), 0);
        ok(soft.destroy_graph(graph));
        assert_eq!(read(calls), 2);
        assert_eq!(source(executable, &mut null_mut()), ZE_RESULT_ERROR_INVALID_GRAPH);
    }
    let mut properties = ze_record_replay_graph_ext_properties_t::default();
    let mut device =
        ze_device_properties_t { pNext: (&raw mut properties).cast(), ..ze_device_properties_t::default() };
    // SAFETY: a live device and a chain of valid structures.
    ok(unsafe { (soft.ze.zeDeviceGetProperties)(soft.devices[0], &mut device) });
    let flags = ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_IMMUTABLE_GRAPH
        | ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_SUBGRAPHS
        | ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_APPEND_COMMANDLIST;
    assert_eq!(properties.graphFlags, flags);
    let mut id: *mut c_void = null_mut();
    // SAFETY: a live driver, a name and a place.
    ok(unsafe { (soft.ze.zeDriverGetExtensionFunctionAddress)(soft.driver, c"zeGraphGetIdExt".as_ptr(), &mut id) });
    // SAFETY: the function's type, as Intel's driver has it.
    let id: unsafe extern "C" fn(ze_graph_handle_t, *mut u64) -> ze_result_t = unsafe { std::mem::transmute(id) };
    let ids = [soft.graph(), soft.graph()].map(|graph| {
        let mut number = 0;
        // SAFETY: a live graph and a place.
        ok(unsafe { id(graph, &mut number) });
        number
    });
    assert!(ids[0] != ids[1]);
}

#[test]
fn a_dump_shows_nodes_and_edges() {
    let soft = Soft::new();
    let (list, child) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let [fork, join] = std::array::from_fn(|_| soft.counted());
    let memory = cells(8);
    let [one, two] = [0, 1].map(|index| (&raw const memory[index]).cast_mut().cast::<c_void>());
    ok(soft.begin(list));
    // SAFETY: eight bytes each that live for ever.
    unsafe {
        ok((soft.ze.zeCommandListAppendMemoryFill)(list, one, [7u8].as_ptr().cast(), 1, 8, fork, 0, null_mut()));
        soft.store(child, &memory[2], 5, join, &[fork]);
        ok((soft.ze.zeCommandListAppendMemoryCopy)(list, two, one, 8, NONE, 1, [join].as_mut_ptr()));
    }
    ok(soft.barrier(list, NONE, &[]));
    let graph = soft.end(list);
    let dump = soft.dump(graph);
    let address = &raw const memory[2] as u64;
    for expected in [
        "0: fill",
        "1: kernel store",
        "2: copy",
        "3: barrier",
        &format!("8 bytes {address:#x}"),
        &format!("argument 1: 8 bytes {:#x}", 5),
        &format!("to {two:p} from {one:p}, 8 bytes"),
        "n0 -> n1;",
        "n1 -> n2;",
        "n0 -> n2 [style=dashed];",
        "n2 -> n3 [style=dashed];",
    ] {
        assert!(dump.contains(expected), "no {expected:?} in\n{dump}");
    }
    assert_eq!(dump.matches("->").count(), 4, "{dump}");
    let mode = ZE_RECORD_REPLAY_GRAPH_EXT_DUMP_MODE_SIMPLE;
    let desc = ze_record_replay_graph_ext_dump_desc_t { mode, ..Default::default() };
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = std::ffi::CString::new(file.path().to_str().unwrap()).unwrap();
    let write = soft.ze.zeGraphDumpContentsExt.unwrap();
    // SAFETY: a live graph, C strings and a valid structure.
    unsafe {
        ok(write(graph, path.as_ptr(), (&raw const desc).cast()));
        let nowhere = c"/no/such/folder/graph.dot".as_ptr();
        assert_eq!(write(graph, nowhere, null()), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        assert_eq!(write(graph, null(), null()), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    let simple = std::fs::read_to_string(file.path()).unwrap();
    assert!(simple.contains("1: kernel store") && !simple.contains("argument"), "{simple}");
}

#[test]
fn the_older_functions_do_the_same() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let cell = &cells(1)[0];
    let ze = &soft.ze;
    // SAFETY: live handles and valid places; `pNext` comes last here.
    unsafe {
        let graph = made(|graph| ze.zeGraphCreateExp.unwrap()(soft.context, graph, null_mut()));
        assert_eq!(ze.zeGraphIsEmptyExp.unwrap()(graph), 0x7fff_0000);
        ok(ze.zeCommandListBeginCaptureIntoGraphExp.unwrap()(list, graph, null_mut()));
        assert_eq!(ze.zeCommandListIsGraphCaptureEnabledExp.unwrap()(list), 0x7fff_0000);
        soft.store(list, cell, 6, NONE, &[]);
        assert_eq!(made(|ended| ze.zeCommandListEndGraphCaptureExp.unwrap()(list, ended, null_mut())), graph);
        assert_eq!(ze.zeCommandListIsGraphCaptureEnabledExp.unwrap()(list), 0x7fff_0001);
        assert_eq!(ze.zeGraphIsEmptyExp.unwrap()(graph), 0x7fff_0001);
        let executable = made(|made| ze.zeCommandListInstantiateGraphExp.unwrap()(graph, made, null_mut()));
        ok(ze.zeCommandListAppendGraphExp.unwrap()(list, executable, null_mut(), NONE, 0, null_mut()));
        ok(soft.wait_list(list, SOON));
        assert_eq!(read(cell), 6);
        ok(ze.zeExecutableGraphDestroyExp.unwrap()(executable));
        ok(ze.zeGraphDestroyExp.unwrap()(graph));
        // One whose recording came to nothing.
        let lost = soft.graph();
        let gone = soft.immediate(0, 0);
        ok(ze.zeCommandListBeginCaptureIntoGraphExp.unwrap()(gone, lost, null_mut()));
        soft.destroy_list(gone);
        assert_eq!(ze.zeGraphIsEmptyExp.unwrap()(lost), 0x7fff_0002);
    }
}
