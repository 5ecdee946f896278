//! What is refused in a group of the C ABI is told at once and at the group's end, and none of the group's calls is made.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_tests::Group;
use ccl_tests::abi::{INT32, SUM, element, last_error, new_id};
use cclx::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

/// `onecclFloat32`.
const FLOAT32: i32 = 7;
const COUNT: usize = 50;

/// Memory of the device, which the processor reaches on the software driver.
fn memory(bytes: usize) -> *mut c_void {
    let mut memory = null_mut();
    // SAFETY: a place for the address.
    assert_eq!(unsafe { onecclMemAlloc(&raw mut memory, bytes) }, 0, "{}", last_error(null_mut()));
    memory
}

fn odd(at: *mut c_void) -> *mut c_void {
    at.wrapping_byte_add(1)
}

fn stream_of(comm: *mut OnecclComm) -> *mut CclxStream {
    let mut stream = null_mut();
    // SAFETY: a handle, and a place for the stream.
    assert_eq!(unsafe { cclxStreamOpen(comm, 0, &raw mut stream) }, 0);
    stream
}

/// A communicator of one rank, on a device of its own.
fn alone_on(device: u32) -> *mut OnecclComm {
    let mut comm = null_mut();
    onecclSetDevice(device);
    // SAFETY: a place for the communicator.
    assert_eq!(unsafe { onecclCommInitRank(&raw mut comm, 1, new_id(), 0) }, 0, "{}", last_error(null_mut()));
    comm
}

/// A pre-multiplied sum.
fn multiplied(comm: *mut OnecclComm, scalar: *mut c_void, dtype: i32, residence: i32) -> i32 {
    let mut op = -1;
    // SAFETY: a place for the operation, and a scalar.
    assert_eq!(unsafe { onecclRedOpCreatePreMulSum(&raw mut op, scalar, dtype, residence, comm) }, 0);
    op
}

/// A bad call: what it is, its code, a part of what is said of it, and how it is made.
type Bad<'a> = (&'a str, i32, &'a str, Box<dyn Fn() -> i32 + 'a>);

#[test]
fn a_bad_call_in_a_group_is_told_at_its_end_and_nothing_is_made() {
    let name = "a_bad_call_in_a_group_is_told_at_its_end_and_nothing_is_made";
    Group::new(name, 2).env("CCLX_DEVICE", "soft").env("ZE_SOFT_DEVICES", 4).run(|me| {
        let comm = me.joined();
        let elsewhere = alone_on(2 + me.rank as u32);
        onecclSetDevice(me.rank as u32);
        let (stream, far) = (stream_of(comm), stream_of(elsewhere));
        let (a, b, c) = (memory(4 * COUNT), memory(4 * COUNT), memory(4 * COUNT));
        let (mut three, scalar) = (3f32, memory(4));
        let of_float = multiplied(comm, (&raw mut three).cast(), FLOAT32, 1);
        let on_device = multiplied(comm, scalar, INT32, 0);
        let none = null_mut::<c_void>();
        // SAFETY: the buffers hold as much and outlive the calls; handles, or what is to be refused.
        let bad: Vec<Bad<'_>> = unsafe {
            let on = move |stream, from: *mut c_void, to, dtype, op| {
                cclxAllReduceAfter(from, to, COUNT - 1, dtype, op, comm, stream, 0, null(), null_mut())
            };
            let split = |of, color| {
                let mut made = null_mut();
                onecclCommSplit(of, color, 0, &raw mut made, null_mut())
            };
            vec![
                (
                    "no such root",
                    4,
                    "root 2 of 2 ranks",
                    Box::new(move || onecclBroadcast(a, c, 9, INT32, 2, comm, none)),
                ),
                (
                    "a device scalar on a stream",
                    12,
                    "a scalar in device memory",
                    Box::new(move || on(stream, a, c, INT32, on_device)),
                ),
                (
                    "a misaligned input on a stream",
                    4,
                    "is not aligned",
                    Box::new(move || on(stream, odd(a), c, INT32, SUM)),
                ),
                (
                    "a misaligned output on a stream",
                    4,
                    "is not aligned",
                    Box::new(move || on(stream, a, odd(c), INT32, SUM)),
                ),
                (
                    "another type's factor on a stream",
                    4,
                    "a factor of float32",
                    Box::new(move || on(stream, a, c, INT32, of_float)),
                ),
                (
                    "another type's factor",
                    4,
                    "a factor of float32",
                    Box::new(move || onecclReduce(a, c, 9, INT32, of_float, 0, comm, none)),
                ),
                (
                    "another type's device scalar",
                    4,
                    "a factor of int32",
                    Box::new(move || onecclReduceScatter(a, c, 9, FLOAT32, on_device, comm, none)),
                ),
                ("another device's stream", 5, "the stream is on device", Box::new(move || on(far, a, c, INT32, SUM))),
                (
                    "no communicator",
                    4,
                    "communicator is null",
                    Box::new(move || onecclAllReduce(a, c, 9, INT32, SUM, null_mut(), none)),
                ),
                ("a split of none", 4, "communicator is null", Box::new(move || split(null_mut(), 0))),
                ("a split by no colour", 4, "colour -7", Box::new(move || split(comm, -7))),
                (
                    "a rank that there is not",
                    4,
                    "rank 5 of 2",
                    Box::new(|| {
                        let mut made = null_mut();
                        onecclCommInitRank(&raw mut made, 2, new_id(), 5)
                    }),
                ),
                (
                    "no events where there are to be",
                    4,
                    "the list of events",
                    Box::new(move || cclxAllReduceAfter(a, c, 9, INT32, SUM, comm, stream, 1, null(), null_mut())),
                ),
                (
                    "events without a stream",
                    12,
                    "events for a call on host buffers",
                    Box::new(move || {
                        let event = null_mut();
                        cclxAllReduceAfter(a, c, 9, INT32, SUM, comm, null_mut(), 1, &raw const event, null_mut())
                    }),
                ),
                (
                    "a boundary without parameters",
                    4,
                    "the parameters",
                    Box::new(move || cclxMhc(null(), comm, stream, 0, null(), null_mut())),
                ),
            ]
        };
        // SAFETY: as above.
        unsafe {
            let output = std::slice::from_raw_parts_mut(b.cast::<i32>(), COUNT);
            for (i, at) in std::slice::from_raw_parts_mut(a.cast::<i32>(), COUNT).iter_mut().enumerate() {
                *at = element(2, me.rank, i);
            }
            scalar.cast::<i32>().write(3);
            for (what, code, text, call) in &bad {
                for before in [null_mut(), stream] {
                    output.fill(7);
                    assert_eq!((onecclGroupStart(), onecclGroupStart()), (0, 0));
                    let queued = cclxAllReduceAfter(a, b, COUNT, INT32, SUM, comm, before, 0, null(), null_mut());
                    assert_eq!(queued, 0, "{what}: {}", last_error(null_mut()));
                    assert_eq!(call(), *code, "{what}: {}", last_error(null_mut()));
                    assert!(last_error(null_mut()).contains(text), "{what}: {}", last_error(null_mut()));
                    assert_eq!(onecclGroupEnd(), 0, "the outer level is open yet");
                    assert_eq!(onecclGroupEnd(), *code, "{what}");
                    assert_eq!(cclxStreamSynchronize(stream, 30_000), 0);
                    assert!(output.iter().all(|x| *x == 7), "{what}: the call before it was made");
                }
            }
            // The first failure stays; the communicator is good for further calls all the same.
            assert_eq!(onecclCommGetAsyncError(comm), 4);
            let told = last_error(comm);
            let place = format!("rank {} of 2", me.rank);
            assert!(told.contains("onecclBroadcast: call #2, communicator ") && told.contains(&place), "{told}");
            assert!(told.contains("root 2 of 2 ranks"), "{told}");
            assert_eq!(onecclAllReduce(a, b, COUNT, INT32, SUM, comm, none), 0);
            assert!((0..COUNT).all(|i| output[i] == element(2, 0, i) + element(2, 1, i)));
            assert_eq!((cclxStreamDestroy(stream), cclxStreamDestroy(far)), (0, 0));
            assert_eq!((onecclCommDestroy(comm), onecclCommDestroy(elsewhere)), (0, 0));
        }
    });
}

/// Outside a group.
#[test]
fn a_bad_call_is_refused() {
    Group::new("a_bad_call_is_refused", 2).env("CCLX_DEVICE", "soft").run(|me| {
        let comm = me.joined();
        let mut data = [5i32; COUNT];
        let at = data.as_mut_ptr().cast::<c_void>();
        assert_eq!(onecclGroupEnd(), 5, "no group was started");
        // SAFETY: a handle, and buffers that hold as much, or are refused.
        unsafe {
            // A message to oneself needs both its sides.
            assert_eq!(onecclSend(at, COUNT, INT32, me.rank as i32, comm, null_mut()), 5);
            assert!(last_error(null_mut()).contains("sends itself 1 messages and receives 0"));
            assert_eq!(onecclAllReduce(null(), at, COUNT, INT32, SUM, comm, null_mut()), 4);
            let queue = std::ptr::dangling_mut();
            assert_eq!(onecclAllReduce(at, at, COUNT, INT32, SUM, comm, queue), 12, "a SYCL queue");
            assert_eq!(onecclCommDestroy(comm), 0);
        }
    });
}

/// A message that a rank sends itself is copied only once it is known of all communicators that theirs have both sides.
#[test]
fn own_messages_are_copied_when_none_is_refused() {
    Group::new("own_messages_are_copied_when_none_is_refused", 1).env("CCLX_DEVICE", "soft").run(|me| {
        let comms = [alone_on(0), alone_on(1)];
        let input: Vec<i32> = (0..COUNT).map(|i| element(6, me.rank, i)).collect();
        for (first, whole) in [(0, false), (1, false), (0, true)] {
            let (one, other) = (comms[first], comms[1 - first]);
            let mut output = vec![7i32; COUNT];
            let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
            let mut also = vec![7i32; COUNT];
            // SAFETY: the buffers live until the group's end.
            unsafe {
                assert_eq!(onecclGroupStart(), 0);
                assert_eq!(onecclSend(from, COUNT, INT32, 0, one, null_mut()), 0);
                assert_eq!(onecclRecv(to, COUNT, INT32, 0, one, null_mut()), 0);
                assert_eq!(onecclSend(from, COUNT, INT32, 0, other, null_mut()), 0);
                if whole {
                    assert_eq!(onecclRecv(also.as_mut_ptr().cast(), COUNT, INT32, 0, other, null_mut()), 0);
                }
                assert_eq!(onecclGroupEnd(), if whole { 0 } else { 5 });
            }
            if whole {
                assert!(output == input && also == input);
            } else {
                assert!(output.iter().all(|x| *x == 7), "the other communicator's message was copied");
            }
        }
        for comm in comms {
            // SAFETY: a handle.
            assert_eq!(unsafe { onecclCommDestroy(comm) }, 0);
        }
    });
}
