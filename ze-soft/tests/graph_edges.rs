//! Replays: edges hold whatever the executors do, and a missing one shows.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod graph_bed;
#[path = "executor_support/mod.rs"]
mod support;

use graph_bed::{Graphs, NONE};
use level_zero_sys::*;
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;
use ze_soft::ext::*;

/// Every edge of an instantiated graph, in a fault's `value`.
const EVERY: u64 = u64::MAX;

/// Which events make a graph's edges.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Events {
    Counted,
    Regular,
}

/// A graph with a producer on one ordinal, what stands for a collective on another, and a consumer on the first:
/// `input` -> `middle` -> `output`.
struct Pipe {
    list: ze_command_list_handle_t,
    executable: ze_executable_graph_handle_t,
    cells: &'static [AtomicU64],
}

impl Pipe {
    fn new(soft: &Soft, events: Events) -> Self {
        let (list, other) = (soft.immediate(0, 0), soft.immediate(0, 1));
        let [fork, join] = match events {
            Events::Counted => std::array::from_fn(|_| soft.counted()),
            Events::Regular => soft.events(),
        };
        let cells = cells(4);
        ok(soft.begin(list));
        soft.take(list, &cells[1], &cells[0], fork, &[]);
        soft.take(other, &cells[2], &cells[1], join, &[fork]);
        soft.take(list, &cells[3], &cells[2], NONE, &[join]);
        let graph = soft.end(list);
        let executable = soft.instantiate(graph);
        ok(soft.destroy_graph(graph));
        soft.destroy_list(other);
        soft.destroy_event(fork);
        soft.destroy_event(join);
        Self { list, executable, cells }
    }

    /// Replays with changing inputs until a replay's output isn't its input; how many were right.
    fn right(&self, soft: &Soft, replays: u64) -> u64 {
        for replay in 0..replays {
            let input = 0x1000 + 7 * replay;
            self.cells[0].store(input, Ordering::Relaxed);
            ok(soft.replay(self.list, self.executable, NONE, &[]));
            ok(soft.wait_list(self.list, NEVER));
            if read(&self.cells[3]) != input {
                return replay;
            }
        }
        replays
    }
}

#[test]
fn edges_hold_when_commands_are_late_and_shuffled() {
    let soft = Soft::new();
    for events in [Events::Counted, Events::Regular] {
        let pipe = Pipe::new(&soft, events);
        assert_eq!(pipe.right(&soft, 2000), 2000, "{events:?}");
        soft.fault(ZESOFT_FAULT_DELAY_QUEUE, ZESOFT_ANY, ZESOFT_ANY, 200_000, 11);
        soft.fault(ZESOFT_FAULT_REORDER, ZESOFT_ANY, ZESOFT_ANY, 0, 5);
        assert_eq!(pipe.right(&soft, 200), 200, "{events:?}");
        soft.clear_faults();
    }
}

#[test]
fn a_missing_or_stale_edge_shows() {
    let soft = Soft::new();
    let edge = |from: u64, to: u64| from << 32 | to;
    // By the ordinal that the edge leads to, and by its two commands.
    let faults = [
        (ZESOFT_FAULT_DROP_EDGES, 1, EVERY),
        (ZESOFT_FAULT_DROP_EDGES, 0, EVERY),
        (ZESOFT_FAULT_STALE_EDGES, 1, EVERY),
        (ZESOFT_FAULT_STALE_EDGES, 0, EVERY),
        (ZESOFT_FAULT_DROP_EDGES, ZESOFT_ANY, edge(0, 1)),
        (ZESOFT_FAULT_DROP_EDGES, ZESOFT_ANY, edge(1, 2)),
        (ZESOFT_FAULT_STALE_EDGES, ZESOFT_ANY, edge(1, 2)),
    ];
    for events in [Events::Counted, Events::Regular] {
        for (kind, ordinal, value) in faults {
            soft.fault(kind, ZESOFT_ANY, ordinal, value, 0);
            let pipe = Pipe::new(&soft, events);
            soft.clear_faults();
            // Whoever the edge would hold back comes first: the other ordinal is late.
            let early = if ordinal == 1 || value == edge(0, 1) { 1 } else { 0 };
            soft.fault(ZESOFT_FAULT_DELAY_QUEUE, ZESOFT_ANY, 1 - early, 300_000, 0);
            let right = pipe.right(&soft, 1000);
            assert!(right < 1000, "{events:?}, fault {kind} of ordinal {ordinal}, {value:#x}");
            soft.clear_faults();
        }
        // An edge that isn't there can't be hit.
        soft.fault(ZESOFT_FAULT_DROP_EDGES, ZESOFT_ANY, 2, EVERY, 0);
        soft.fault(ZESOFT_FAULT_DROP_EDGES, ZESOFT_ANY, ZESOFT_ANY, edge(0, 2), 0);
        let pipe = Pipe::new(&soft, events);
        soft.clear_faults();
        soft.fault(ZESOFT_FAULT_DELAY_QUEUE, ZESOFT_ANY, 1, 300_000, 0);
        assert_eq!(pipe.right(&soft, 50), 50);
        soft.clear_faults();
    }
}

#[test]
fn what_an_earlier_replay_signalled_releases_nobody() {
    let soft = Soft::new();
    let (list, other) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let [fork, join] = soft.events();
    let (gate, log) = (cells(2), cells(64));
    ok(soft.begin(list));
    soft.launch(list, "spin", [&raw const gate[0] as u64, &raw const gate[1] as u64], fork, &[]);
    soft.log(other, log, 1, join, &[fork]);
    ok(soft.wait_on(list, join));
    let executable = soft.instantiate(soft.end(list));
    gate[0].store(1, Ordering::Release);
    ok(soft.replay(list, executable, NONE, &[]));
    ok(soft.wait_list(list, SOON));
    // Both events are still signalled from that replay; nobody resets them.
    ok(soft.query(fork));
    gate[0].store(0, Ordering::Release);
    gate[1].store(0, Ordering::Release);
    ok(soft.replay(list, executable, NONE, &[]));
    eventually(|| read(&gate[1]) == 1);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(entries(log), [1], "the second replay's node ran before what it depends on");
    gate[0].store(1, Ordering::Release);
    ok(soft.wait_list(list, SOON));
    assert_eq!(entries(log), [1, 1]);
}

#[test]
fn branches_run_at_the_same_time() {
    let soft = Soft::new();
    let (list, other) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let [fork, join] = std::array::from_fn(|_| soft.counted());
    let meet = cells(2);
    ok(soft.begin(list));
    ok(soft.signal(list, fork));
    // Each ends only once the other has begun.
    soft.launch(list, "spin", [&raw const meet[0] as u64, &raw const meet[1] as u64], NONE, &[]);
    soft.launch(other, "spin", [&raw const meet[1] as u64, &raw const meet[0] as u64], join, &[fork]);
    ok(soft.wait_on(list, join));
    let executable = soft.instantiate(soft.end(list));
    for _ in 0..20 {
        meet.iter().for_each(|cell| cell.store(0, Ordering::Release));
        ok(soft.replay(list, executable, NONE, &[]));
        let (result, time) = timed(|| soft.wait_list(list, SOON));
        ok(result);
        assert!(time.as_secs() < 10);
    }
}

#[test]
fn without_order_only_barriers_and_events_make_edges() {
    let soft = Soft::new();
    let list = soft.immediate_with(0, 0, 0, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    let [event] = soft.events();
    let log = cells(4096);
    ok(soft.begin(list));
    for value in 1..=8 {
        soft.log(list, log, value, if value == 3 { event } else { NONE }, &[]);
    }
    ok(soft.barrier(list, NONE, &[]));
    soft.log(list, log, 9, NONE, &[]);
    // Waits for one command, and holds up all that follow.
    ok(soft.wait_on(list, event));
    soft.log(list, log, 10, NONE, &[]);
    let graph = soft.end(list);
    let dump = soft.dump(graph);
    assert_eq!(dump.matches("-> n8 [style=dashed];").count(), 8, "{dump}");
    assert!(!dump.contains("n0 -> n1") && dump.contains("n8 -> n9 [style=dashed];"), "{dump}");
    assert!(dump.contains("n2 -> n10;") && dump.contains("n10 -> n11 [style=dashed];"), "{dump}");
    assert!(!dump.contains("n9 -> "), "{dump}");
    let executable = soft.instantiate(graph);
    soft.fault(ZESOFT_FAULT_REORDER, ZESOFT_ANY, ZESOFT_ANY, 0, 77);
    let (mut shuffled, mut late) = (0, 0);
    for _ in 0..100 {
        log[0].store(0, Ordering::Relaxed);
        ok(soft.replay(list, executable, NONE, &[]));
        ok(soft.wait_list(list, NEVER));
        let order = entries(log);
        let mut first = order[..8].to_vec();
        shuffled += u32::from(first != [1, 2, 3, 4, 5, 6, 7, 8]);
        first.sort_unstable();
        assert_eq!(first, [1, 2, 3, 4, 5, 6, 7, 8]);
        late += u32::from(order[8..] == [10, 9]);
        let mut last = order[8..].to_vec();
        last.sort_unstable();
        assert_eq!(last, [9, 10]);
    }
    assert!(shuffled > 50 && late > 10, "{shuffled} of 100 replays shuffled, {late} with the last two swapped");
}

#[test]
fn one_executable_never_overlaps_itself_and_two_may() {
    let soft = Soft::new();
    let lists = [soft.immediate(0, 0), soft.immediate(0, 0)];
    let other = soft.immediate(0, 1);
    let [fork, join] = std::array::from_fn(|_| soft.counted());
    let inside = cells(2);
    let arguments = [&raw const inside[0] as u64, &raw const inside[1] as u64];
    ok(soft.begin(lists[0]));
    soft.launch(lists[0], "nothing", [0; 2], fork, &[]);
    soft.launch(other, "alone", arguments, join, &[fork]);
    ok(soft.wait_on(lists[0], join));
    soft.launch(lists[0], "alone", arguments, NONE, &[]);
    let executable = soft.instantiate(soft.end(lists[0]));
    // Two lists, many replays in flight.
    for _ in 0..300 {
        for list in lists {
            ok(soft.replay(list, executable, NONE, &[]));
        }
    }
    for list in lists {
        ok(soft.wait_list(list, NEVER));
    }
    assert_eq!((read(&inside[0]), read(&inside[1])), (0, 1));
}

#[test]
fn an_external_event_crosses_the_graphs_border() {
    let soft = Soft::new();
    let external = ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
        | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE
        | ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL;
    let [into, out] = std::array::from_fn(|_| soft.counted_with(external));
    let (list, outside) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let memory = cells(4);
    ok(soft.begin(list));
    soft.take(list, &memory[1], &memory[0], out, &[into]);
    // What comes after is not what `out` waits for.
    let gate = cells(2);
    soft.launch(list, "spin", [&raw const gate[0] as u64, &raw const gate[1] as u64], NONE, &[]);
    let executable = soft.instantiate(soft.end(list));
    soft.fault(ZESOFT_FAULT_DELAY_QUEUE, ZESOFT_ANY, 1, 100_000, 3);
    for round in 1..=30 {
        gate[0].store(0, Ordering::Release);
        soft.store(outside, &memory[0], round, into, &[]);
        ok(soft.replay(list, executable, NONE, &[]));
        soft.take(outside, &memory[2], &memory[1], NONE, &[out]);
        ok(soft.wait(out, NEVER));
        ok(soft.wait_list(outside, NEVER));
        assert_eq!((read(&memory[2]), read(&gate[0])), (round, 0));
        gate[0].store(1, Ordering::Release);
        ok(soft.wait_list(list, SOON));
    }
    soft.clear_faults();
    // One that other processes see as well is more than this device offers.
    let both = soft.counted_with(external | ZE_EVENT_COUNTER_BASED_FLAG_IPC);
    ok(soft.begin(list));
    assert_eq!(soft.barrier(list, both, &[]), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
    assert_eq!(soft.barrier(list, NONE, &[both]), ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
    soft.end(list);
}

#[test]
fn a_regular_event_from_outside_is_a_state() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let [event] = soft.events();
    let log = cells(16);
    ok(soft.begin(list));
    soft.log(list, log, 1, NONE, &[event]);
    // SAFETY: live handles.
    ok(unsafe { (soft.ze.zeCommandListAppendEventReset)(list, event) });
    let executable = soft.instantiate(soft.end(list));
    for round in 1..=5 {
        ok(soft.replay(list, executable, NONE, &[]));
        assert_eq!(soft.wait_list(list, 2_000_000), ZE_RESULT_NOT_READY);
        assert_eq!(entries(log).len(), round - 1);
        ok(soft.signal_host(event));
        ok(soft.wait_list(list, SOON));
        assert_eq!((entries(log).len(), soft.query(event)), (round, ZE_RESULT_NOT_READY));
    }
}

#[test]
fn events_of_a_shared_pool_cross_the_graphs_border() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let pool = soft.pool(2, ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_IPC);
    let [into, out] = [0, 1].map(|index| soft.event(pool, index));
    // As another process has it: other objects for the same states.
    let mut handle = ze_ipc_event_pool_handle_t { data: [0; ZE_MAX_IPC_HANDLE_SIZE] };
    // SAFETY: live handles and valid places.
    let opened = unsafe {
        ok((soft.ze.zeEventPoolGetIpcHandle)(pool, &mut handle));
        made(|opened| (soft.ze.zeEventPoolOpenIpcHandle)(soft.context, handle, opened))
    };
    let [far_into, far_out] = [0, 1].map(|index| soft.event(opened, index));
    let memory = cells(2);
    ok(soft.begin(list));
    soft.take(list, &memory[1], &memory[0], out, &[into]);
    let executable = soft.instantiate(soft.end(list));
    for round in 1..=20 {
        ok(soft.replay(list, executable, NONE, &[]));
        assert_eq!((soft.query(far_out), read(&memory[1])), (ZE_RESULT_NOT_READY, round - 1));
        memory[0].store(round, Ordering::Relaxed);
        ok(soft.signal_host(far_into));
        ok(soft.wait(far_out, SOON));
        assert_eq!(read(&memory[1]), round);
        ok(soft.wait_list(list, SOON));
        ok(soft.reset_host(far_out));
        ok(soft.reset_host(into));
    }
}

#[test]
fn a_lost_signal_ends_in_a_timeout_and_the_graph_goes_on() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let [event] = soft.events();
    let cell = &cells(1)[0];
    ok(soft.begin(list));
    soft.store(list, cell, 1, event, &[]);
    soft.store(list, cell, 2, NONE, &[event]);
    let executable = soft.instantiate(soft.end(list));
    soft.fault(ZESOFT_FAULT_LOSE_SIGNAL, 0, 0, 1, 0);
    ok(soft.replay(list, executable, NONE, &[]));
    ok(soft.wait_list(list, SOON));
    assert_eq!((read(cell), soft.wait(event, 1_000_000)), (2, ZE_RESULT_NOT_READY));
    ok(soft.replay(list, executable, NONE, &[]));
    ok(soft.wait(event, SOON));
    ok(soft.wait_list(list, SOON));
}

/// What this process holds: descriptors and kilobytes of memory.
fn held() -> (usize, u64) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (descriptors, resident.trim().trim_end_matches(" kB").parse().unwrap())
}

#[test]
fn a_thousand_captures_leave_nothing_behind() {
    let soft = Soft::new();
    let external = ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE | ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL;
    let (list, child) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let [fork, join] = std::array::from_fn(|_| soft.counted());
    let out = soft.counted_with(external);
    let cell = &cells(1)[0];
    let kernel = soft.kernel("store");
    let round = |number: u64| {
        let graph = soft.graph();
        ok(soft.begin_into(list, graph));
        for step in 0..20 {
            ok(soft.try_launch(list, kernel, [&raw const *cell as u64, number + step], fork, &[]));
            ok(soft.try_launch(child, kernel, [&raw const *cell as u64, number + step], join, &[fork]));
            ok(soft.try_launch(list, kernel, [&raw const *cell as u64, number], out, &[join]));
        }
        match number % 4 {
            // Given up, with lists that live on.
            0 => ok(soft.destroy_graph(graph)),
            // Never joined.
            1 => {
                ok(soft.signal(list, fork));
                ok(soft.try_launch(child, kernel, [&raw const *cell as u64, 0], NONE, &[fork]));
                assert!(soft.try_end(list).is_err());
                ok(soft.destroy_graph(graph));
            }
            _ => {
                assert_eq!(soft.end(list), graph);
                let executables = [soft.instantiate(graph), soft.instantiate(graph)];
                ok(soft.replay(list, executables[0], NONE, &[]));
                ok(soft.destroy_graph(graph));
                executables.iter().for_each(|&executable| soft.destroy_executable(executable));
                ok(soft.wait_list(list, NEVER));
            }
        }
    };
    (0..200).for_each(round);
    let before = held();
    (200..1200).for_each(round);
    let after = held();
    assert_eq!(before.0, after.0, "descriptors");
    assert!(after.1 < before.1 + 2048, "memory grew from {} to {} kB in 1,000 captures", before.1, after.1);
}
