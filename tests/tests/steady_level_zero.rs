//! What a collective costs in Level Zero calls in the steady state, counted in front of the driver: one or two, or more where
//! arguments are set one by one.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::{DataType, ReduceOp};
use ccl_tests::{Group, Rank, count, data};
use ccl_ze::CallOptions;
use std::collections::BTreeMap;
use std::ffi::CStr;

const CALLS: u64 = 200;
const COUNT: usize = 3000;
const LAUNCH: &str = "zeCommandListAppendLaunchKernelWithArguments";

/// What one call costs.
#[derive(Debug)]
struct Cost {
    /// The most calls of one submission.
    most: u64,
    /// All of them, by function.
    functions: BTreeMap<String, u64>,
    /// Calls of one wait for the completion.
    wait: u64,
}

/// Buffers used in turn, in place; each is right in the end.
fn measure(rank: &Rank, buffers: usize) -> Cost {
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    let inputs: Vec<_> = (0..rank.n).map(|rank| data::ordinary(DataType::Float32, 3, rank, COUNT)).collect();
    let want = data::expected(DataType::Float32, &inputs, None);
    let mut buffers: Vec<_> = (0..buffers).map(|_| comm.alloc::<f32>(COUNT).unwrap()).collect();
    for buffer in buffers.iter_mut() {
        for _ in 0..40 {
            buffer.write(&stream, bytemuck::cast_slice(&inputs[rank.rank])).unwrap();
            comm.all_reduce_in_place(buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
        }
    }
    let mut cost = Cost { most: 0, functions: BTreeMap::new(), wait: 0 };
    let before = count::level_zero_calls();
    let mut waits = 0;
    let turns = buffers.len();
    for call in 0..CALLS as usize {
        let buffer = &mut buffers[call % turns];
        let (own, independent) = (comm.level_zero_calls(), count::level_zero_total());
        let done = comm.all_reduce_in_place(buffer, ReduceOp::Sum, &stream).unwrap();
        let submitted = count::level_zero_total() - independent;
        assert_eq!(comm.level_zero_calls() - own, submitted, "the library counts its own calls rightly");
        cost.most = cost.most.max(submitted);
        let independent = count::level_zero_total();
        done.wait().unwrap();
        waits += count::level_zero_total() - independent;
    }
    cost.wait = waits / CALLS;
    assert_eq!(waits % CALLS, 0, "every wait costs the same");
    for (name, count) in count::level_zero_calls() {
        let count = count - before.get(&name).copied().unwrap_or(0);
        if count > 0 {
            cost.functions.insert(name, count);
        }
    }
    for buffer in &mut buffers {
        buffer.write(&stream, bytemuck::cast_slice(&inputs[rank.rank])).unwrap();
        comm.all_reduce_in_place(buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
        let mut got = vec![0f32; COUNT];
        buffer.read(&stream, &mut got).unwrap();
        assert_eq!(data::first_difference(bytemuck::cast_slice(&got), &want, DataType::Float32), None);
    }
    cost
}

/// Runs it on two ranks with events of this kind; `check` judges in each rank.
fn steady(test: &str, events: &str, hidden: Option<&CStr>, buffers: usize, check: impl Fn(&Cost)) {
    let body = |rank: Rank| {
        count::count_level_zero(hidden);
        let cost = measure(&rank, buffers);
        rank.say(format_args!("cost {cost:?}"));
        check(&cost);
    };
    Group::new(test, 2).env("CCLX_EVENTS", events).run_with(body, |running| {
        for (rank, ended) in running.wait().iter().enumerate() {
            assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
            eprintln!("{test}, rank {rank}: {}", ended.said("cost")[0]);
        }
    });
}

fn calls(cost: &Cost, function: &str) -> u64 {
    cost.functions.get(function).copied().unwrap_or(0)
}

#[test]
fn one_call_with_counter_based_events() {
    steady("one_call_with_counter_based_events", "counter", None, 2, |cost| {
        assert_eq!((cost.most, cost.wait), (1, 1), "{cost:?}");
        assert_eq!(calls(cost, LAUNCH), CALLS);
    });
}

#[test]
fn two_calls_with_regular_events_that_were_waited_for() {
    steady("two_calls_with_regular_events_that_were_waited_for", "regular", None, 2, |cost| {
        assert_eq!((cost.most, cost.wait), (2, 1), "{cost:?}");
        assert_eq!(calls(cost, LAUNCH), CALLS);
    });
}

/// A buffer's address is told to the driver in each call, also where the call before had the same: the memory there may be
/// another's by now, which only the driver knows.
#[test]
fn the_same_address_is_told_again() {
    steady("the_same_address_is_told_again", "counter", None, 1, |cost| {
        assert_eq!((cost.most, cost.wait), (1, 1), "{cost:?}");
        assert_eq!(calls(cost, LAUNCH), CALLS);
    });
}

/// Without the function that takes arguments along, those that may be addresses are set before the launch, whether they
/// changed or not, and no other where the size stays.
fn set_one_by_one(test: &str, buffers: usize) {
    steady(test, "counter", Some(c"zeCommandListAppendLaunchKernelWithArguments"), buffers, |cost| {
        assert_eq!((cost.most, cost.wait), (9, 1), "{cost:?}");
        assert_eq!(calls(cost, LAUNCH), 0);
        assert_eq!(calls(cost, "zeCommandListAppendLaunchKernel"), CALLS);
        assert_eq!(calls(cost, "zeKernelSetArgumentValue"), 8 * CALLS);
    });
}

#[test]
fn nine_calls_where_arguments_are_set_one_by_one() {
    set_one_by_one("nine_calls_where_arguments_are_set_one_by_one", 2);
}

#[test]
fn nine_calls_where_no_argument_changes() {
    set_one_by_one("nine_calls_where_no_argument_changes", 1);
}

/// Replays a graph and a list, and says how many counter-based events were made.
fn counter_based_for_replays(rank: &Rank) -> u64 {
    count::count_level_zero(None);
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    let inputs: Vec<_> = (0..rank.n).map(|rank| data::ordinary(DataType::Float32, 4, rank, COUNT)).collect();
    let want = data::expected(DataType::Float32, &inputs, None);
    let mut memory = comm.alloc::<f32>(COUNT).unwrap();
    stream.begin_capture().unwrap();
    drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap());
    let graph = stream.end_capture().unwrap().instantiate().unwrap();
    let list = comm.command_list(0).unwrap();
    drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, list.stream()).unwrap());
    let list = list.close().unwrap();
    for by_graph in [true, false, true, false] {
        memory.write(&stream, bytemuck::cast_slice(&inputs[rank.rank])).unwrap();
        let options = CallOptions::default();
        // SAFETY: typed memory stays with what was recorded.
        let done = unsafe { if by_graph { graph.launch(&stream, options) } else { list.execute(&stream, options) } };
        done.unwrap().wait().unwrap();
        let mut got = vec![0f32; COUNT];
        memory.read(&stream, &mut got).unwrap();
        assert_eq!(data::first_difference(bytemuck::cast_slice(&got), &want, DataType::Float32), None);
    }
    count::level_zero_calls().get("zeEventCounterBasedCreate").copied().unwrap_or(0)
}

/// Where only regular events are wanted, replays have no others either.
#[test]
fn replays_keep_to_regular_events() {
    Group::new("replays_keep_to_regular_events", 2).env("CCLX_EVENTS", "regular").run(|rank| {
        assert_eq!(counter_based_for_replays(&rank), 0);
    });
}

/// CONTROL of the above: else they are counter-based, and counted.
#[test]
fn replays_have_counter_based_events_otherwise() {
    Group::new("replays_have_counter_based_events_otherwise", 2).env("CCLX_EVENTS", "counter").run(|rank| {
        assert!(counter_based_for_replays(&rank) > 0);
    });
}
