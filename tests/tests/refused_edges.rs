//! Events that a list can't signal, or can't be told to wait for: a call, a recording or a replay that is given one says so,
//! and what ran all the same has had its turn.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice, EventChoice, OnError};
use ccl_core::{DataType, Error, ReduceOp};
use ccl_tests::Group;
use ccl_tests::graph::{Lab, good, total, value};
use ccl_tests::local::{ranks, sum};
use ccl_ze::{Buffer, CallOptions, Communicator, Stream};
use level_zero_sys::*;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

const COUNT: usize = 1073;
/// For what has nothing left to wait for, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Runs `body` as each of two ranks, threads of one process, with events of each kind.
fn pairs(test: &str, choices: &[EventChoice], body: impl Fn(Communicator) + Sync) {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 2).limit(Duration::from_secs(90)).run(|_| {
        for &events in choices {
            let (device, timeout) = (DeviceChoice::Soft, Duration::from_secs(5));
            let config = Config { device, events, timeout, on_error: Some(OnError::Log), ..Config::default() };
            ranks(2, &config, &StartState::default(), &body);
        }
    });
}

/// Memory with this rank's input of a turn.
fn input(comm: &Communicator, copies: &Stream, turn: usize) -> Buffer<f32> {
    let mut memory = comm.alloc::<f32>(COUNT).unwrap();
    write(comm, copies, &mut memory, turn);
    memory
}

fn write(comm: &Communicator, copies: &Stream, memory: &mut Buffer<f32>, turn: usize) {
    let input: Vec<f32> = (0..COUNT).map(|i| value(turn, comm.rank(), i)).collect();
    memory.write(copies, &input).unwrap();
}

/// Whether it holds the sum of that turn's inputs, or else, of each element, what was there before.
#[track_caller]
fn check(comm: &Communicator, copies: &Stream, memory: &Buffer<f32>, turn: usize, reduced: bool) {
    let mut got = vec![0.0; COUNT];
    memory.read(copies, &mut got).unwrap();
    for (i, got) in got.into_iter().enumerate() {
        let want = if reduced { total(turn, 2, i) } else { value(turn, comm.rank(), i) };
        assert_eq!(got, want, "rank {}, [{i}], reduced: {reduced}", comm.rank());
    }
}

fn is_signalled(lab: &Lab, event: ze_event_handle_t) -> bool {
    // SAFETY: a live event.
    unsafe { (lab.table.zeEventQueryStatus)(event) == ZE_RESULT_SUCCESS }
}

/// A list that isn't in order signals the caller's event behind the call. The driver refuses that of a counter-based one
/// when the call is there already: it has had its turn then, and what comes on another stream comes after it.
#[test]
fn a_call_that_can_not_signal_has_had_its_turn() {
    pairs("a_call_that_can_not_signal_has_had_its_turn", &[EventChoice::Counter, EventChoice::Regular], |comm| {
        let lab = Lab::new(&comm);
        let list = lab.list(0, 0);
        // SAFETY: the list goes at the end, with nothing left on it.
        let loose = unsafe { comm.stream_from_raw(list).unwrap() };
        let [copies, other] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let event = lab.counter_event(0);
        let mut first = input(&comm, &copies, 1);
        let mut second = input(&comm, &copies, 2);
        if comm.rank() == 1 {
            // The other rank's first call still runs when its second one is made.
            std::thread::sleep(Duration::from_millis(300));
        }
        let (at, request) = (first.as_ptr().cast(), sum(DataType::Float32, COUNT));
        let options = CallOptions { after: &[], signal: Some(event) };
        // SAFETY: the memory outlives the waits below; a live event.
        let refused = unsafe { comm.all_reduce_with(&request, at, at, &loose, options) }.map(drop);
        let next = comm.all_reduce_in_place(&mut second, ReduceOp::Sum, &other).unwrap().wait();
        let Err(Error::Device { call, detail }) = &refused else { panic!("{refused:?}") };
        assert_eq!(call, "zeCommandListAppendBarrier");
        assert!(detail.contains("the call runs all the same"), "{detail}");
        assert_eq!((next, comm.fault()), (Ok(()), None), "rank {}", comm.rank());
        assert_eq!(loose.synchronize_for(SOON), Ok(true));
        check(&comm, &copies, &first, 1, true);
        check(&comm, &copies, &second, 2, true);
        // Nor is anything amiss with the events afterwards.
        for turn in 3..40 {
            write(&comm, &copies, &mut first, turn);
            let stream = if turn % 2 == 0 { &loose } else { &other };
            comm.all_reduce_in_place(&mut first, ReduceOp::Sum, stream).unwrap().wait().unwrap();
            check(&comm, &copies, &first, turn, true);
        }
        drop(loose);
        lab.destroy(list);
        // SAFETY: a live event that nothing refers to.
        good(unsafe { (lab.table.zeEventDestroy)(event) });
    });
}

/// A recorded call is refused before it is in the recording, and one that the list can take is signalled by each replay.
#[test]
fn a_recording_without_order_refuses_what_it_can_not_signal() {
    pairs("a_recording_without_order_refuses_what_it_can_not_signal", &[EventChoice::Counter], |comm| {
        let lab = Lab::new(&comm);
        let copies = comm.stream(0).unwrap();
        let (of, desc, mut list) = (&lab.table, ze_command_list_desc_t::default(), null_mut());
        // SAFETY: live context and device; descriptor and output outlive the call.
        good(unsafe { (of.zeCommandListCreate)(lab.context, lab.device, &raw const desc, &raw mut list) });
        // SAFETY: the list goes at the end, when it runs no more.
        let records = unsafe { comm.stream_from_raw(list).unwrap() };
        let counted = lab.counter_event(0);
        let (pool, regular) = lab.regular_event();
        let mut refused = input(&comm, &copies, 1);
        let mut taken = input(&comm, &copies, 2);
        let request = sum(DataType::Float32, COUNT);
        let record = |memory: &Buffer<f32>, signal| {
            let (at, options) = (memory.as_ptr().cast(), CallOptions { after: &[], signal: Some(signal) });
            // SAFETY: the memory outlives the list's executions; a live event.
            unsafe { comm.all_reduce_with(&request, at, at, &records, options) }.map(drop)
        };
        let outcome = record(&refused, counted);
        assert!(matches!(outcome, Err(Error::Device { .. })), "{outcome:?}");
        assert_eq!(record(&taken, regular), Ok(()));
        // SAFETY: a live list that is open.
        good(unsafe { (of.zeCommandListClose)(list) });
        for turn in 1..4 {
            write(&comm, &copies, &mut refused, turn);
            write(&comm, &copies, &mut taken, 10 + turn);
            // SAFETY: live lists and events; nothing else runs, and the execution is waited for.
            unsafe {
                good((of.zeEventHostReset)(regular));
                let execute = of.zeCommandListImmediateAppendCommandListsExp.unwrap();
                good(execute(copies.raw(), 1, &raw mut list, null_mut(), 0, null_mut()));
            }
            assert_eq!(copies.synchronize_for(SOON), Ok(true));
            assert!(is_signalled(&lab, regular), "turn {turn}");
            check(&comm, &copies, &refused, turn, false);
            check(&comm, &copies, &taken, 10 + turn, true);
        }
        assert_eq!(comm.fault(), None);
        drop(records);
        lab.destroy(list);
        // SAFETY: made above; nothing refers to them.
        unsafe {
            good((of.zeEventDestroy)(counted));
            good((of.zeEventDestroy)(regular));
            good((of.zeEventPoolDestroy)(pool));
        }
    });
}

/// A replay whose event is refused has not run; one that can signal does so when it is over.
#[test]
fn a_launch_that_can_not_signal_does_not_run() {
    pairs("a_launch_that_can_not_signal_does_not_run", &[EventChoice::Counter], |comm| {
        let lab = Lab::new(&comm);
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let mut memory = comm.alloc::<f32>(COUNT).unwrap();
        stream.begin_capture().unwrap();
        drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap());
        let graph = stream.end_capture().unwrap().instantiate().unwrap();
        let list = comm.command_list(0).unwrap();
        drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, list.stream()).unwrap());
        let list = list.close().unwrap();
        // For regular lists only.
        let flags = ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE;
        let desc = ze_event_counter_based_desc_t { flags, ..Default::default() };
        let (create, mut counted) = (lab.table.zeEventCounterBasedCreate.unwrap(), null_mut());
        // SAFETY: live context and device; descriptor and output outlive the call.
        good(unsafe { create(lab.context, lab.device, &raw const desc, &raw mut counted) });
        let (pool, regular) = lab.regular_event();
        let launch = |by_graph, signal| {
            let options = CallOptions { after: &[], signal: Some(signal) };
            // SAFETY: typed memory stays with what was recorded; a live event.
            unsafe { if by_graph { graph.launch(&stream, options) } else { list.execute(&stream, options) } }
        };
        for by_graph in [true, false] {
            write(&comm, &copies, &mut memory, 1);
            let refused = launch(by_graph, counted).map(drop);
            assert!(matches!(refused, Err(Error::Device { .. })), "{refused:?}");
            assert_eq!(stream.synchronize_for(SOON), Ok(true));
            check(&comm, &copies, &memory, 1, false);
            write(&comm, &copies, &mut memory, 2);
            // SAFETY: a live event that nothing waits for.
            good(unsafe { (lab.table.zeEventHostReset)(regular) });
            let done = launch(by_graph, regular).unwrap();
            assert_eq!(done.wait(), Ok(()));
            let since = Instant::now();
            while !is_signalled(&lab, regular) && since.elapsed() < SOON {
                std::thread::yield_now();
            }
            assert!(is_signalled(&lab, regular));
            check(&comm, &copies, &memory, 2, true);
        }
        assert_eq!(comm.fault(), None);
        // SAFETY: made above; nothing refers to them.
        unsafe {
            good((lab.table.zeEventDestroy)(counted));
            good((lab.table.zeEventDestroy)(regular));
            good((lab.table.zeEventPoolDestroy)(pool));
        }
    });
}

/// A stream comes into a recording by waiting for one of its events. A replay on it would be recorded and not run, and
/// with it whatever waits for it.
#[test]
fn a_launch_after_an_event_of_a_recording_is_refused() {
    pairs("a_launch_after_an_event_of_a_recording_is_refused", &[EventChoice::Counter], |comm| {
        let lab = Lab::new(&comm);
        let [stream, second, third] = [0; 3].map(|queue| comm.stream(queue).unwrap());
        let copies = comm.stream(1).unwrap();
        let mut memory = input(&comm, &copies, 1);
        stream.begin_capture().unwrap();
        drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap());
        let graph = stream.end_capture().unwrap().instantiate().unwrap();
        let mut recorded = input(&comm, &copies, 2);
        let mut eager = input(&comm, &copies, 3);
        stream.begin_capture().unwrap();
        let done = comm.all_reduce_in_place(&mut recorded, ReduceOp::Sum, &stream).unwrap();
        let options = CallOptions { after: &[done.event().unwrap()], signal: None };
        // SAFETY: a live event; typed memory stays with the graph.
        let refused = unsafe { graph.launch(&second, options) }.map(drop);
        let call = comm.all_reduce_in_place(&mut eager, ReduceOp::Sum, &third).unwrap();
        assert!(matches!(refused, Err(Error::NotImplemented(_))), "{refused:?}");
        assert_eq!(call.wait_for(SOON), Ok(true));
        check(&comm, &copies, &eager, 3, true);
        check(&comm, &copies, &memory, 1, false);
        // The second stream has come into the recording, and leaves it as any does.
        let joins = lab.counter_event(0);
        lab.signal(&second, joins);
        lab.wait(&stream, joins);
        let whole = stream.end_capture().unwrap().instantiate().unwrap();
        for (graph, memory, turn) in [(&whole, &recorded, 2), (&graph, &memory, 1)] {
            // SAFETY: as above.
            unsafe { graph.launch(&second, CallOptions::default()) }.unwrap().wait().unwrap();
            check(&comm, &copies, memory, turn, true);
        }
        assert_eq!(comm.fault(), None);
        drop((graph, whole));
        // SAFETY: made above; what referred to it is gone.
        good(unsafe { (lab.table.zeEventDestroy)(joins) });
    });
}
