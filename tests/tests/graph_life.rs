//! Recordings come and go, are abandoned, and meet what recordings meet in programs.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice, EventChoice};
use ccl_core::{DataType, Error, ReduceOp};
use ccl_tests::Group;
use ccl_tests::count::{Held, held};
use ccl_tests::graph::{Lab, good};
use ccl_tests::local::{ranks, sum};
use ccl_ze::{CallOptions, Communicator, Stream};
use level_zero_sys::*;
use std::sync::Barrier;
use std::time::Duration;

const N: usize = 2;
const COUNT: usize = 600;

fn config() -> Config {
    Config { device: DeviceChoice::Soft, timeout: Duration::from_secs(20), ..Config::default() }
}

fn group_with(test: &str, config: &Config, body: impl Fn(Communicator) + Sync) {
    let process = Group::new(test, 1).env("ZE_SOFT_DEVICES", N).env("MALLOC_ARENA_MAX", 1);
    process.limit(Duration::from_secs(120)).run(|_| {
        ranks(N, config, &StartState::default(), &body);
    });
}

fn group(test: &str, body: impl Fn(Communicator) + Sync) {
    group_with(test, &config(), body);
}

/// One eager call; ranks hold different numbers.
fn eager(comm: &Communicator, stream: &Stream) {
    let mut memory = comm.alloc::<f32>(COUNT).unwrap();
    memory.write(stream, &vec![1.0 + comm.rank() as f32; COUNT]).unwrap();
    comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, stream).unwrap().wait().unwrap();
    let mut output = vec![0.0; COUNT];
    memory.read(stream, &mut output).unwrap();
    assert_eq!(output, vec![3.0; COUNT]);
}

/// Captures a call on typed memory, replays it and checks it.
fn cycle(comm: &Communicator, stream: &Stream, copies: &Stream, turn: usize) {
    let mut memory = comm.alloc::<f32>(COUNT).unwrap();
    stream.begin_capture().unwrap();
    drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, stream).unwrap());
    let graph = stream.end_capture().unwrap().instantiate().unwrap();
    memory.write(copies, &vec![(turn * (1 + comm.rank())) as f32; COUNT]).unwrap();
    // SAFETY: typed memory stays with the graph.
    unsafe { graph.launch(stream, CallOptions::default()) }.unwrap().wait().unwrap();
    let mut output = vec![0.0; COUNT];
    memory.read(copies, &mut output).unwrap();
    assert_eq!(output, vec![(turn * 3) as f32; COUNT], "turn {turn}");
}

/// Descriptors and memory don't grow with the cycles. The other rank, a thread of this process, stands still meanwhile.
struct Flat<'a> {
    meet: &'a Barrier,
    before: Option<Held>,
}

impl Flat<'_> {
    fn measure(&self, rank: usize) -> Option<Held> {
        self.meet.wait();
        let held = (rank == 0).then(held);
        self.meet.wait();
        held
    }

    fn begin(&mut self, rank: usize) {
        self.before = self.measure(rank);
    }

    fn end(&self, rank: usize) {
        let (Some(after), Some(before)) = (self.measure(rank), self.before) else { return };
        assert!(after.descriptors <= before.descriptors, "{before:?}, then {after:?}");
        assert!(after.mappings < before.mappings + 50, "{before:?}, then {after:?}");
        assert!(after.address_space_kib < before.address_space_kib + (16 << 10), "{before:?}, then {after:?}");
    }
}

#[test]
fn captured_and_destroyed_a_thousand_times() {
    let meet = Barrier::new(N);
    group("captured_and_destroyed_a_thousand_times", |comm| {
        let mut flat = Flat { meet: &meet, before: None };
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        (0..50).for_each(|turn| cycle(&comm, &stream, &copies, turn));
        eager(&comm, &copies);
        flat.begin(comm.rank());
        (0..1_000).for_each(|turn| cycle(&comm, &stream, &copies, turn));
        eager(&comm, &copies);
        flat.end(comm.rank());
    });
}

#[test]
fn captured_and_thrown_away_a_thousand_times() {
    let meet = Barrier::new(N);
    group("captured_and_thrown_away_a_thousand_times", |comm| {
        let mut flat = Flat { meet: &meet, before: None };
        let mut memory = comm.alloc::<f32>(COUNT).unwrap();
        for turn in 0..1_050 {
            if turn == 50 {
                flat.begin(comm.rank());
            }
            let stream = comm.stream(0).unwrap();
            stream.begin_capture().unwrap();
            for _ in 0..3 {
                drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap());
            }
            if turn % 2 == 0 {
                drop(stream.end_capture().unwrap());
            }
            // Else the capture is abandoned with its stream.
        }
        flat.end(comm.rank());
        eager(&comm, &comm.stream(0).unwrap());
    });
}

#[test]
fn first_use_under_capture_and_eager_right_after() {
    for events in [EventChoice::Counter, EventChoice::Regular] {
        let config = Config { events, ..config() };
        group_with("first_use_under_capture_and_eager_right_after", &config, |comm| {
            let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
            cycle(&comm, &stream, &copies, 3);
            eager(&comm, &stream);
            // An eager call is not made to wait for what was recorded and never ran.
            let mut memory = comm.alloc::<f32>(COUNT).unwrap();
            stream.begin_capture().unwrap();
            drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap());
            eager(&comm, &copies);
            let graph = stream.end_capture().unwrap();
            eager(&comm, &stream);
            drop(graph);
            eager(&comm, &stream);
        });
    }
}

#[test]
fn a_recorded_call_is_not_waited_for() {
    group("a_recorded_call_is_not_waited_for", |comm| {
        let stream = comm.stream(0).unwrap();
        let mut memory = comm.alloc::<f32>(COUNT).unwrap();
        stream.begin_capture().unwrap();
        let done = comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap();
        for error in [done.wait().unwrap_err(), done.is_finished().unwrap_err(), stream.synchronize().unwrap_err()] {
            assert!(matches!(&error, Error::InvalidUsage(text) if text.contains("replay")), "{error}");
        }
        assert!(matches!(memory.read(&stream, &mut [0.0; 1]), Err(Error::InvalidUsage(_))));
        done.event().unwrap();
        assert!(matches!(stream.begin_capture(), Err(Error::Device { .. })), "it is being captured");
        drop(stream.end_capture().unwrap());
        assert!(matches!(stream.end_capture(), Err(Error::InvalidUsage(_))), "it is not being captured");
        eager(&comm, &stream);
    });
}

/// An error under capture changes nothing in what is captured.
#[test]
fn an_error_leaves_the_recording_usable() {
    group("an_error_leaves_the_recording_usable", |comm| {
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let mut memory = comm.alloc::<f32>(COUNT).unwrap();
        stream.begin_capture().unwrap();
        let at = memory.as_ptr().cast();
        let refused = |request, at: *mut std::ffi::c_void| {
            // SAFETY: refused before anything is enqueued.
            unsafe { comm.all_reduce_raw(request, at, at, &stream, &[]) }.map(drop).unwrap_err()
        };
        let strange = ccl_core::plan::Request { period: Some(0), ..sum(DataType::Float32, COUNT) };
        refused(&strange, at);
        assert!(matches!(refused(&sum(DataType::Float32, COUNT), std::ptr::null_mut()), Error::InvalidArgument(_)));
        drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap());
        let graph = stream.end_capture().unwrap().instantiate().unwrap();
        memory.write(&copies, &[1.0; COUNT]).unwrap();
        for turn in 0..3 {
            // SAFETY: typed memory stays with the graph.
            unsafe { graph.launch(&stream, CallOptions::default()) }.unwrap().wait().unwrap();
            let mut output = vec![0.0; COUNT];
            memory.read(&copies, &mut output).unwrap();
            assert_eq!(output, vec![(2 << turn) as f32; COUNT]);
        }
    });
}

#[test]
fn depending_on_what_is_already_finished() {
    group("depending_on_what_is_already_finished", |comm| {
        let [stream, other] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let mut memory = comm.alloc::<f32>(COUNT).unwrap();
        memory.write(&stream, &[1.0; COUNT]).unwrap();
        let before = comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &other).unwrap();
        before.wait().unwrap();
        stream.begin_capture().unwrap();
        before.order(&stream).unwrap();
        let at = memory.as_ptr().cast();
        let after = [before.event().unwrap()];
        // SAFETY: the memory and the completion live as long as the graph.
        drop(unsafe { comm.all_reduce_raw(&sum(DataType::Float32, COUNT), at, at, &stream, &after).unwrap() });
        let graph = stream.end_capture().unwrap().instantiate().unwrap();
        for turn in 1..20 {
            // SAFETY: as above.
            unsafe { graph.launch(&stream, CallOptions { after: &after, signal: None }) }.unwrap().wait().unwrap();
            let mut output = vec![0.0; COUNT];
            memory.read(&other, &mut output).unwrap();
            assert_eq!(output, vec![(2u32 << turn) as f32; COUNT]);
        }
    });
}

/// Events of the caller's: regular, counter-based, and opened from a handle of another owner's.
#[test]
fn events_of_the_callers() {
    group("events_of_the_callers", |comm| {
        let lab = Lab::new(&comm);
        let table = &lab.table;
        let [stream, other] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let (pool, regular) = lab.regular_event();
        let counter = lab.counter_event(0);
        let mut handle = ze_ipc_event_pool_handle_t::default();
        let (mut opened_pool, mut opened) = (std::ptr::null_mut(), std::ptr::null_mut());
        let scope = ZE_EVENT_SCOPE_FLAG_HOST;
        let desc = ze_event_desc_t { signal: scope, wait: scope, ..Default::default() };
        // SAFETY: a live pool that is for other processes; descriptors and outputs outlive the calls.
        unsafe {
            good((table.zeEventPoolGetIpcHandle)(pool, &raw mut handle));
            good((table.zeEventPoolOpenIpcHandle)(lab.context, handle, &raw mut opened_pool));
            good((table.zeEventCreate)(opened_pool, &raw const desc, &raw mut opened));
        }
        let memory = comm.alloc::<f32>(COUNT).unwrap();
        let at = memory.as_ptr().cast();
        let request = sum(DataType::Float32, COUNT);
        let input = vec![1.0f32; COUNT];
        let mut output = vec![0.0f32; COUNT];
        for turn in 0..200 {
            let signal = [regular, counter, opened][turn % 3];
            // SAFETY: vectors and memory outlive the waits below; events are live.
            unsafe {
                stream.copy(at, input.as_ptr().cast(), COUNT * 4, &[]).unwrap();
                let options = CallOptions { after: &[], signal: Some(signal) };
                let done = comm.all_reduce_with(&request, at, at, &stream, options).unwrap();
                // A consumer that waits for the caller's event only, then a call that does.
                other.copy(output.as_mut_ptr().cast(), at, COUNT * 4, &[signal]).unwrap();
                let options = CallOptions { after: &[signal], signal: None };
                let next = comm.all_reduce_with(&request, at, at, &other, options).unwrap();
                other.synchronize().unwrap();
                done.wait().unwrap();
                assert_eq!((next.wait(), next.is_finished()), (Ok(()), Ok(true)));
                assert_eq!(output, vec![2.0; COUNT], "turn {turn}");
                if signal != counter {
                    good((table.zeEventHostReset)(signal));
                }
            }
        }
        // SAFETY: nothing uses them any more.
        unsafe {
            good((table.zeEventDestroy)(opened));
            good((table.zeEventPoolCloseIpcHandle)(opened_pool));
            good((table.zeEventDestroy)(regular));
            good((table.zeEventPoolDestroy)(pool));
            good((table.zeEventDestroy)(counter));
        }
    });
}

/// A list that isn't in order: calls are ordered by events, and take their turns all the same.
#[test]
fn a_list_that_is_not_in_order() {
    group("a_list_that_is_not_in_order", |comm| {
        let lab = Lab::new(&comm);
        let list = lab.list(0, 0);
        // SAFETY: a list of the communicator's context and device, destroyed after the stream.
        let loose = unsafe { comm.stream_from_raw(list).unwrap() };
        let copies = comm.stream(1).unwrap();
        let mut memory = comm.alloc::<f32>(COUNT).unwrap();
        memory.write(&copies, &[1.0; COUNT]).unwrap();
        let mut done = Vec::new();
        for turn in 0..20 {
            let stream = if turn % 3 == 2 { &copies } else { &loose };
            done.push(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, stream).unwrap());
        }
        done.iter().for_each(|done| done.wait().unwrap());
        let mut output = vec![0.0; COUNT];
        memory.read(&copies, &mut output).unwrap();
        assert_eq!(output, vec![(1u32 << 20) as f32; COUNT]);
        // Captured, it gets an order from barriers; the calls have no event to give out, which is said by name.
        memory.write(&copies, &[1.0; COUNT]).unwrap();
        loose.begin_capture().unwrap();
        for _ in 0..5 {
            let done = comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &loose).unwrap();
            assert!(matches!(done.event(), Err(Error::NotImplemented(_))));
        }
        let graph = loose.end_capture().unwrap().instantiate().unwrap();
        // SAFETY: typed memory stays with the graph.
        let refused = unsafe { graph.launch(&loose, CallOptions::default()) }.map(drop).unwrap_err();
        assert!(matches!(refused, Error::NotImplemented(_)), "{refused}");
        let append = lab.table.zeCommandListAppendGraphExt.unwrap();
        for turn in 1..4 {
            // SAFETY: live list and graph.
            unsafe { good(append(list, graph.raw(), std::ptr::null(), std::ptr::null_mut(), 0, std::ptr::null_mut())) };
            loose.synchronize().unwrap();
            memory.read(&copies, &mut output).unwrap();
            assert_eq!(output, vec![(1u32 << (5 * turn)) as f32; COUNT], "turn {turn}");
        }
        drop((done, graph, loose));
        lab.destroy(list);
    });
}

/// Regular lists of the caller's, in order and not.
#[test]
fn regular_lists_of_the_callers() {
    group("regular_lists_of_the_callers", |comm| {
        let lab = Lab::new(&comm);
        let stream = comm.stream(0).unwrap();
        let mut memory = comm.alloc::<f32>(COUNT).unwrap();
        let append = lab.table.zeCommandListImmediateAppendCommandListsExp.unwrap();
        for flags in [ZE_COMMAND_LIST_FLAG_IN_ORDER, 0] {
            let desc = ze_command_list_desc_t { flags, ..Default::default() };
            let mut list = std::ptr::null_mut();
            // SAFETY: live context and device; descriptor and output outlive the call.
            good(unsafe { (lab.table.zeCommandListCreate)(lab.context, lab.device, &raw const desc, &raw mut list) });
            // SAFETY: of the communicator's context and device; destroyed after the stream.
            let recorded = unsafe { comm.stream_from_raw(list).unwrap() };
            memory.write(&stream, &[1.0; COUNT]).unwrap();
            for _ in 0..3 {
                let done = comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &recorded).unwrap();
                assert!(matches!(done.wait(), Err(Error::InvalidUsage(_))));
            }
            // SAFETY: a live list.
            good(unsafe { (lab.table.zeCommandListClose)(list) });
            for turn in 1..5 {
                let none = std::ptr::null_mut();
                // SAFETY: live lists.
                good(unsafe { append(stream.raw(), 1, &raw mut list, none, 0, std::ptr::null_mut()) });
                stream.synchronize().unwrap();
                let mut output = vec![0.0; COUNT];
                memory.read(&stream, &mut output).unwrap();
                assert_eq!(output, vec![(1u32 << (3 * turn)) as f32; COUNT], "flags {flags}, turn {turn}");
            }
            eager(&comm, &stream);
            drop(recorded);
            lab.destroy(list);
        }
    });
}

/// What docs/limits.md says that a call costs: each rank has a device of its own, whose calls are counted.
#[test]
fn what_calls_cost() {
    Group::new("what_calls_cost", 1).run(|_| {
        let mesh = ccl_core::bootstrap::local(1).unwrap().remove(0);
        let comm = Communicator::builder_with(config()).init_local(mesh).unwrap();
        let lab = Lab::new(&comm);
        let list = lab.list(0, ZE_COMMAND_QUEUE_FLAG_IN_ORDER);
        // SAFETY: of the communicator's context and device; destroyed after the stream.
        let theirs = unsafe { comm.stream_from_raw(list).unwrap() };
        let [ours, other] = [0, 0].map(|queue| comm.stream(queue).unwrap());
        let memory = comm.alloc::<f32>(COUNT).unwrap();
        let at = memory.as_ptr().cast();
        let cost = |stream: &Stream, after: &[ze_event_handle_t]| {
            let before = comm.level_zero_calls();
            // SAFETY: the memory is waited for below; the events are live.
            let done = unsafe { comm.all_reduce_raw(&sum(DataType::Float32, COUNT), at, at, stream, after).unwrap() };
            let cost = comm.level_zero_calls() - before;
            done.wait().unwrap();
            (cost, done)
        };
        let done = cost(&other, &[]).1;
        let after = [done.event().unwrap()];
        assert_eq!((cost(&ours, &[]).0, cost(&theirs, &[]).0), (1, 2));
        // The wait, the question, the call.
        assert_eq!((cost(&other, &after).0, cost(&theirs, &after).0), (3, 3));
        drop(theirs);
        lab.destroy(list);
    });
}

/// A recording whose communicator has gone gives up and harms nobody.
#[test]
fn a_graph_that_outlives_its_communicator() {
    group("a_graph_that_outlives_its_communicator", |comm| {
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let mut memory = comm.alloc::<f32>(COUNT).unwrap();
        stream.begin_capture().unwrap();
        drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap());
        let graph = stream.end_capture().unwrap().instantiate().unwrap();
        eager(&comm, &copies);
        let lab = Lab::new(&comm);
        let append = lab.table.zeCommandListAppendGraphExt.unwrap();
        let alone = comm.rank() == 0;
        drop(comm);
        if alone {
            // Nobody joins in: ranks that all replay could still meet in memory that their recordings keep.
            let none = std::ptr::null_mut();
            // SAFETY: live list and graph.
            unsafe { good(append(stream.raw(), graph.raw(), std::ptr::null(), none, 0, std::ptr::null_mut())) };
            stream.synchronize().unwrap();
            let mut output = vec![0.0f32; COUNT];
            memory.read(&copies, &mut output).unwrap();
            assert!(output.iter().all(|x| x.to_bits() == u32::MAX), "given up, and seen to be");
        }
    });
}
