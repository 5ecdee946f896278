//! Registered buffers: calls straight from buffer to buffer, and what becomes of registrations.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::plan::push::{Mode, PushPlan};
use ccl_core::plan::{Plan, Registered, RegisteredRange};
use ccl_core::{DataType, Error, ReduceOp};
use ccl_tests::{Group, data};
use ccl_ze::{CallOptions, Communicator, Completion, RegisteredBuffer, Stream};
use std::time::Duration;

const COUNT: usize = 50_000;

fn group(test: &str, n: usize) -> Group {
    Group::new(test, n).env("CCLX_DEVICE", "soft").limit(Duration::from_secs(60))
}

fn inputs(n: usize, seed: u64, count: usize) -> Vec<Vec<u8>> {
    (0..n).map(|rank| data::ordinary(DataType::Float32, seed, rank, count)).collect()
}

fn floats(bytes: &[u8]) -> &[f32] {
    bytemuck::cast_slice(bytes)
}

fn is_direct(comm: &Communicator, buffer: &RegisteredBuffer<f32>) -> bool {
    let range = buffer.range(0);
    let registered = range.map(|range| Registered { send: range, recv: range });
    let request = comm.request(COUNT as u64, DataType::Float32, ReduceOp::Sum);
    let plan = comm.plan(&ccl_core::plan::Request { registered, ..request }).unwrap();
    matches!(plan, Plan::Push(PushPlan { mode: Mode::Direct, .. }))
}

/// Calls at all distances, in place and not, with calls on buffers that aren't registered in between, and none waited for
/// before all are issued.
#[test]
fn processes_reduce_from_buffer_to_buffer() {
    for n in [2, 3, 4] {
        group("processes_reduce_from_buffer_to_buffer", n).run(|rank| {
            let comm = rank.communicator();
            let (rank, n) = (comm.rank(), comm.world_size());
            let stream = comm.stream(0).unwrap();
            let mut send = comm.alloc::<f32>(COUNT).unwrap();
            let recv = comm.alloc::<f32>(COUNT).unwrap();
            let mut other = comm.alloc::<f32>(1000).unwrap();
            let (from, to) = (comm.register(&send).unwrap(), comm.register(&recv).unwrap());
            assert!(is_direct(&comm, &from) && from.is_direct());
            for turn in 0..30u64 {
                let all = inputs(n, turn, COUNT);
                send.write(&stream, floats(&all[rank])).unwrap();
                other.write(&stream, &[1.0; 1000]).unwrap();
                let first = turn as usize * 13 % 500;
                let count = COUNT / 2 - turn as usize * 77;
                let apart = comm.all_reduce_registered((&from, first), (&to, 0), count, ReduceOp::Sum, &stream);
                let small = comm.all_reduce_in_place(&mut other, ReduceOp::Sum, &stream).unwrap();
                let second = COUNT / 2 + 500;
                let rest = COUNT - second;
                let same = comm.all_reduce_registered((&from, second), (&from, second), rest, ReduceOp::Sum, &stream);
                apart.unwrap().wait().unwrap();
                small.wait().unwrap();
                same.unwrap().wait().unwrap();
                let mut got = vec![0f32; COUNT];
                let part = |first: usize, count: usize| {
                    let parts: Vec<_> = all.iter().map(|all| all[first * 4..(first + count) * 4].to_vec()).collect();
                    data::expected(DataType::Float32, &parts, None)
                };
                recv.read(&stream, &mut got).unwrap();
                assert_eq!(&got[..count], floats(&part(first, count)), "rank {rank}, turn {turn}");
                send.read(&stream, &mut got).unwrap();
                assert_eq!(&got[second..], floats(&part(second, rest)), "rank {rank}, turn {turn}, in place");
                assert_eq!(&got[..second], &floats(&all[rank])[..second], "input of rank {rank} was written");
            }
        });
    }
}

#[test]
fn unequal_lengths_are_refused_everywhere() {
    group("unequal_lengths_are_refused_everywhere", 3).run(|rank| {
        let comm = rank.communicator();
        let buffer = comm.alloc::<f32>(if rank.rank == 1 { 100 } else { 101 }).unwrap();
        let Err(Error::Mismatch { what, .. }) = comm.register(&buffer) else { panic!("not refused") };
        assert_eq!(what, "registered buffer");
        // And nothing is left of it: the next one goes well.
        let buffer = comm.alloc::<f32>(COUNT).unwrap();
        assert!(is_direct(&comm, &comm.register(&buffer).unwrap()));
    });
}

/// What has been dropped is not used again, though a call of it was made ready before; nor memory beside the registration.
#[test]
fn what_is_not_registered_is_refused() {
    group("what_is_not_registered_is_refused", 2).run(|rank| {
        let comm = rank.communicator();
        let stream = comm.stream(0).unwrap();
        let mut buffer = comm.alloc::<f32>(COUNT).unwrap();
        let all = inputs(2, 7, COUNT);
        buffer.write(&stream, floats(&all[rank.rank])).unwrap();
        let handle = comm.register(&buffer).unwrap();
        assert!(is_direct(&comm, &handle));
        let call = |first: usize, count: usize, shift: isize, range: RegisteredRange| {
            let registered = Some(Registered { send: range, recv: range });
            let request = comm.request(count as u64, DataType::Float32, ReduceOp::Sum);
            let request = ccl_core::plan::Request { registered, ..request };
            let at = buffer.as_ptr().cast::<f32>().wrapping_add(first).wrapping_offset(shift);
            let options = CallOptions::default();
            // SAFETY: the buffer holds the range, or the call is refused.
            unsafe { comm.all_reduce_with(&request, at.cast_const().cast(), at.cast(), &stream, options) }
        };
        let (whole, part) = (handle.range(0).unwrap(), handle.range(100).unwrap());
        let refused = |outcome: Result<Completion, Error>| match outcome {
            Err(Error::InvalidUsage(text)) => text,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("not refused"),
        };
        assert!(refused(call(0, COUNT, 4, whole)).contains("is not what lies 0 bytes behind"));
        assert!(refused(call(100, COUNT - 99, 0, part)).contains("is not what lies 400 bytes behind"));
        call(0, COUNT, 0, whole).unwrap().wait().unwrap();
        call(100, COUNT - 100, 0, part).unwrap().wait().unwrap();
        drop(handle);
        assert!(refused(call(0, COUNT, 0, whole)).contains("is not registered (any more)"));
        // And the others go on.
        let again = comm.register(&buffer).unwrap();
        call(0, COUNT, 0, again.range(0).unwrap()).unwrap().wait().unwrap();
    });
}

/// In checked mode a rank that names its buffers the other way round is found out, before wrong elements are taken.
#[test]
fn checked_calls_compare_registrations() {
    let group = group("checked_calls_compare_registrations", 3).env("CCLX_CHECK", "global");
    group.env("CCLX_ON_ERROR", "log").run(|rank| {
        let comm = rank.communicator();
        let stream = comm.stream(0).unwrap();
        let (mut one, other) = (comm.alloc::<f32>(COUNT).unwrap(), comm.alloc::<f32>(COUNT).unwrap());
        let all = inputs(3, 5, COUNT);
        one.write(&stream, floats(&all[rank.rank])).unwrap();
        let (from, to) = (comm.register(&one).unwrap(), comm.register(&other).unwrap());
        assert!(is_direct(&comm, &from));
        let call = |from, to| comm.all_reduce_registered((from, 0), (to, 0), COUNT, ReduceOp::Sum, &stream).unwrap();
        for _ in 0..3 {
            call(&from, &to).wait().unwrap();
        }
        let mut got = vec![0f32; COUNT];
        other.read(&stream, &mut got).unwrap();
        assert_eq!(got, floats(&data::expected(DataType::Float32, &all, None)));
        let odd = if rank.rank == 1 { call(&to, &from) } else { call(&from, &to) };
        let told = odd.wait().expect_err("the buffers are swapped on one rank").to_string();
        assert!(told.contains("ranks disagree on call #4: rank 1"), "rank {}: {told}", rank.rank);
        // What failed says no goodbye that would be waited for.
        std::process::exit(0);
    });
}

/// A handle that goes while its call is under way waits for it; so does the memory.
#[test]
fn handles_go_in_flight() {
    group("handles_go_in_flight", 2).run(|rank| {
        let comm = rank.communicator();
        let stream = comm.stream(0).unwrap();
        for turn in 0..100u64 {
            let all = inputs(2, turn, COUNT);
            let mut buffer = comm.alloc::<f32>(COUNT).unwrap();
            buffer.write(&stream, floats(&all[rank.rank])).unwrap();
            let handle = comm.register(&buffer).unwrap();
            let done = comm.all_reduce_registered((&handle, 0), (&handle, 0), COUNT, ReduceOp::Sum, &stream).unwrap();
            if turn % 2 == 0 {
                drop(handle);
                let mut got = vec![0f32; COUNT];
                buffer.read(&stream, &mut got).unwrap();
                assert_eq!(got, floats(&data::expected(DataType::Float32, &all, None)));
            } else {
                drop((buffer, handle));
            }
            done.wait().unwrap();
        }
    });
}

/// What is out of range, or of another communicator, is refused before anything is enqueued.
#[test]
fn what_cannot_be_is_refused() {
    group("what_cannot_be_is_refused", 2).run(|rank| {
        let (comm, stream): (Communicator, Stream) = {
            let comm = rank.communicator();
            let stream = comm.stream(0).unwrap();
            (comm, stream)
        };
        let buffer = comm.alloc::<f32>(100).unwrap();
        let handle = comm.register(&buffer).unwrap();
        for (first, count) in [(0, 101), (100, 1), (usize::MAX, 2)] {
            let call = comm.all_reduce_registered((&handle, first), (&handle, first), count, ReduceOp::Sum, &stream);
            assert!(matches!(call, Err(Error::InvalidArgument(_))), "{first} {count}");
        }
        let overlap = comm.all_reduce_registered((&handle, 0), (&handle, 10), 50, ReduceOp::Sum, &stream);
        assert!(matches!(overlap, Err(Error::InvalidArgument(_))));
        let alone = ccl_core::bootstrap::local(1).unwrap().remove(0);
        let solo = rank.builder().device(rank.rank).init_local(alone).unwrap();
        assert!(!solo.register(&buffer).unwrap().is_direct());
        let foreign = solo.all_reduce_registered((&handle, 0), (&handle, 0), 100, ReduceOp::Sum, &stream);
        assert!(matches!(foreign, Err(Error::InvalidUsage(_))));
        comm.all_reduce_registered((&handle, 0), (&handle, 0), 100, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
    });
}

/// Runs `cycle` so often that whatever one of them left behind would be seen: no descriptors, no mappings.
fn leaves_nothing(mut cycle: impl FnMut(u64)) {
    let held = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
        (descriptors, std::fs::read_to_string("/proc/self/maps").unwrap().lines().count())
    };
    let mut most = (0, 0);
    for turn in 0..80 {
        cycle(turn);
        let (descriptors, maps) = held();
        if turn < 20 {
            most = (most.0.max(descriptors), most.1.max(maps));
        } else {
            assert!(descriptors <= most.0 && maps <= most.1 + 2, "turn {turn}: {descriptors} {maps}, before {most:?}");
        }
    }
}

fn register_and_reduce(comm: &Communicator, stream: &Stream) {
    let buffer = comm.alloc::<f32>(COUNT).unwrap();
    let handle = comm.register(&buffer).unwrap();
    let call = comm.all_reduce_registered((&handle, 0), (&handle, 0), COUNT, ReduceOp::Max, stream);
    call.unwrap().wait().unwrap();
}

#[test]
fn registrations_leave_nothing_behind() {
    group("registrations_leave_nothing_behind", 2).run(|rank| {
        let comm = rank.communicator();
        let stream = comm.stream(0).unwrap();
        leaves_nothing(|_| register_and_reduce(&comm, &stream));
    });
}

/// Nor where there is a graph that has nothing to do with them.
#[test]
fn registrations_beside_a_graph() {
    group("registrations_beside_a_graph", 2).run(|rank| {
        let comm = rank.communicator();
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let mut other = comm.alloc::<f32>(100).unwrap();
        stream.begin_capture().unwrap();
        drop(comm.all_reduce_in_place(&mut other, ReduceOp::Sum, &stream).unwrap());
        let graph = stream.end_capture().unwrap().instantiate().unwrap();
        leaves_nothing(|_| register_and_reduce(&comm, &stream));
        let part = |i: usize| (1 + i % 7) as f32;
        other.write(&copies, &std::array::from_fn::<_, 100, _>(|i| part(i) * (1 + rank.rank) as f32)).unwrap();
        // SAFETY: typed memory stays with the graph.
        unsafe { graph.launch(&stream, CallOptions::default()) }.unwrap().wait().unwrap();
        let mut got = [0.0; 100];
        other.read(&copies, &mut got).unwrap();
        assert_eq!(got, std::array::from_fn(|i| part(i) * 3.0));
    });
}

/// A graph keeps the registrations that its calls are of, though their handles are dropped. They go when it does.
#[test]
fn a_graph_keeps_its_registrations() {
    group("a_graph_keeps_its_registrations", 2).run(|rank| {
        let comm = rank.communicator();
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        leaves_nothing(|turn| {
            let mut send = comm.alloc::<f32>(COUNT).unwrap();
            let recv = comm.alloc::<f32>(COUNT).unwrap();
            let (from, to) = (comm.register(&send).unwrap(), comm.register(&recv).unwrap());
            assert!(is_direct(&comm, &from));
            stream.begin_capture().unwrap();
            let call = comm.all_reduce_registered((&from, 0), (&to, 0), COUNT, ReduceOp::Sum, &stream);
            drop(call.unwrap());
            let graph = stream.end_capture().unwrap().instantiate().unwrap();
            drop((from, to));
            // What was let go of would be in use for this by now.
            for _ in 0..3 {
                register_and_reduce(&comm, &stream);
            }
            for replay in 0..2 {
                let all = inputs(2, 2 * turn + replay, COUNT);
                send.write(&copies, floats(&all[rank.rank])).unwrap();
                // SAFETY: typed memory stays with the graph.
                unsafe { graph.launch(&stream, CallOptions::default()) }.unwrap().wait().unwrap();
                let mut got = vec![0f32; COUNT];
                recv.read(&copies, &mut got).unwrap();
                assert!(got == floats(&data::expected(DataType::Float32, &all, None)), "turn {turn}, {replay}");
            }
        });
    });
}
