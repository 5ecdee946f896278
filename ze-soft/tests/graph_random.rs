//! Recordings made at random, with forks, joins and events of both kinds: whatever the executors do, no command of a
//! replay runs before one that it depends on.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod graph_bed;
#[path = "executor_support/mod.rs"]
mod support;

use graph_bed::{Graphs, NONE};
use level_zero_sys::*;
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;
use ze_soft::ext::*;

/// Numbers that only look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}

/// A list of a recording.
struct Lane {
    list: ze_command_list_handle_t,
    parent: usize,
    in_order: bool,
    joined: bool,
    newest: Option<usize>,
}

/// What was recorded: an executable, and which command must come before which.
struct Recorded {
    executable: ze_executable_graph_handle_t,
    /// (earlier, later)
    rules: Vec<(usize, usize)>,
    commands: usize,
}

/// Appends "append the command's number to the log" at random places until `commands` are recorded; joins all in the end.
fn record(soft: &Soft, lists: &[(ze_command_list_handle_t, bool)], log: &'static [AtomicU64], seed: u64) -> Recorded {
    let mut dice = Dice(seed);
    let kernel = soft.kernel("log");
    let mut lanes = vec![Lane { list: lists[0].0, parent: 0, in_order: true, joined: false, newest: None }];
    let (mut rules, mut events, mut commands) = (Vec::new(), Vec::<ze_event_handle_t>::new(), 0);
    let pool = soft.pool(64, ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
    ok(soft.begin(lists[0].0));
    let mut append = |lane: &mut Lane, waits: &[usize], dice: &mut Dice, rules: &mut Vec<_>| {
        let event = match lane.in_order && dice.below(2) == 0 {
            true => soft.counted(),
            false => soft.event(pool, commands as u32),
        };
        let handles: Vec<_> = waits.iter().map(|&before: &usize| events[before]).collect();
        let arguments = [log.as_ptr() as u64, commands as u64];
        ok(soft.try_launch(lane.list, kernel, arguments, event, &handles));
        rules.extend(waits.iter().map(|&before| (before, commands)));
        if lane.in_order {
            rules.extend(lane.newest.map(|before| (before, commands)));
        }
        lane.newest = Some(commands);
        events.push(event);
        commands += 1;
        commands - 1
    };
    for _ in 0..25 {
        let free = lists.len() - lanes.len();
        let active: Vec<usize> = (0..lanes.len()).filter(|&lane| !lanes[lane].joined).collect();
        let from = active[dice.below(active.len())];
        if free > 0 && lanes[from].newest.is_some() && dice.below(3) == 0 {
            let (list, in_order) = lists[lanes.len()];
            let fork = lanes[from].newest.unwrap();
            let mut lane = Lane { list, parent: from, in_order, joined: false, newest: None };
            append(&mut lane, &[fork], &mut dice, &mut rules);
            lanes.push(lane);
            continue;
        }
        // Waits for what other lists of the recording did, as far as they are at it.
        let mut waits: Vec<usize> = active.iter().filter_map(|&lane| lanes[lane].newest).collect();
        waits.retain(|_| dice.below(4) == 0);
        append(&mut lanes[from], &waits, &mut dice, &mut rules);
    }
    // The youngest first: a list is joined by the one that it was forked from.
    for lane in (1..lanes.len()).rev() {
        if !lanes[lane].in_order {
            ok(soft.barrier(lanes[lane].list, NONE, &[]));
        }
        let last = append(&mut lanes[lane], &[], &mut dice, &mut rules);
        let parent = lanes[lane].parent;
        append(&mut lanes[parent], &[last], &mut dice, &mut rules);
    }
    let graph = soft.end(lists[0].0);
    let executable = soft.instantiate(graph);
    ok(soft.destroy_graph(graph));
    events.iter().for_each(|&event| soft.destroy_event(event));
    // SAFETY: live handles that the test doesn't use again.
    unsafe {
        ok((soft.ze.zeEventPoolDestroy)(pool));
        ok((soft.ze.zeKernelDestroy)(kernel));
    }
    Recorded { executable, rules, commands }
}

/// How many rules a replay broke.
fn broken(soft: &Soft, list: ze_command_list_handle_t, recorded: &Recorded, log: &[AtomicU64]) -> usize {
    log[0].store(0, Ordering::Relaxed);
    ok(soft.replay(list, recorded.executable, NONE, &[]));
    ok(soft.wait_list(list, NEVER));
    let order = entries(log);
    let mut place = vec![usize::MAX; recorded.commands];
    for (index, &command) in order.iter().enumerate() {
        assert_eq!(std::mem::replace(&mut place[command as usize], index), usize::MAX, "{command} ran twice");
    }
    assert_eq!(order.len(), recorded.commands);
    recorded.rules.iter().filter(|(earlier, later)| place[*earlier] > place[*later]).count()
}

fn lists(soft: &Soft) -> [(ze_command_list_handle_t, bool); 5] {
    let unordered = |device, ordinal| soft.immediate_with(device, ordinal, 0, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    [
        (soft.immediate(0, 0), true),
        (soft.immediate(0, 1), true),
        (unordered(0, 0), false),
        (soft.immediate(1, 0), true),
        (unordered(1, 1), false),
    ]
}

#[test]
fn no_replay_breaks_an_edge() {
    let soft = Soft::new();
    let (lists, log) = (lists(&soft), cells(128));
    for seed in 1..=200 {
        let recorded = record(&soft, &lists, log, seed);
        soft.fault(ZESOFT_FAULT_REORDER, ZESOFT_ANY, ZESOFT_ANY, 0, seed);
        for replay in 0..3 {
            assert_eq!(broken(&soft, lists[0].0, &recorded, log), 0, "seed {seed}, replay {replay}");
            soft.fault(ZESOFT_FAULT_DELAY_QUEUE, ZESOFT_ANY, (seed + replay) as u32 % 2, 20_000, seed);
        }
        soft.clear_faults();
        soft.destroy_executable(recorded.executable);
    }
}

#[test]
fn without_their_edges_replays_break_them() {
    let soft = Soft::new();
    let (lists, log) = (lists(&soft), cells(128));
    for kind in [ZESOFT_FAULT_DROP_EDGES, ZESOFT_FAULT_STALE_EDGES] {
        let mut convicted = 0;
        for seed in 1..=40 {
            soft.fault(kind, ZESOFT_ANY, ZESOFT_ANY, u64::MAX, 0);
            let recorded = record(&soft, &lists, log, seed);
            soft.clear_faults();
            soft.fault(ZESOFT_FAULT_REORDER, ZESOFT_ANY, ZESOFT_ANY, 0, seed);
            soft.fault(ZESOFT_FAULT_DELAY_QUEUE, ZESOFT_ANY, seed as u32 % 2, 20_000, seed);
            convicted += u32::from((0..5).any(|_| broken(&soft, lists[0].0, &recorded, log) > 0));
            soft.clear_faults();
            soft.destroy_executable(recorded.executable);
        }
        assert!(convicted > 30, "fault {kind}: only {convicted} of 40 recordings showed it");
    }
}
