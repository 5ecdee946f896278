//! Buffers are read and written after the collective that was given them last, on whatever stream.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod waits_gate;

use ccl_core::ReduceOp;
use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice, EventChoice};
use ccl_tests::{Group, local, soft};
use ccl_ze::Communicator;
use std::time::{Duration, Instant};
use waits_gate::Gate;
use ze_soft::ext;

const COUNT: usize = 5000;
const CALLS: usize = 6;
const RANKS: usize = 2;
/// Collectives go to stream 0, each of whose commands begins so late; copies go to another.
const LATE: Duration = Duration::from_millis(20);
/// What rank 0 writes where the collective's input or output is.
const WRITTEN: f32 = -7.0;

fn input(rank: usize, call: usize) -> Vec<f32> {
    (0..COUNT).map(|i| (i % 89 + 3 * rank + 5 * call) as f32).collect()
}

fn sums(call: usize) -> Vec<f32> {
    let inputs: Vec<_> = (0..RANKS).map(|rank| input(rank, call)).collect();
    (0..COUNT).map(|i| inputs.iter().map(|input| input[i]).sum()).collect()
}

/// Runs the body as two ranks in one process, with collectives that begin late, for both kinds of events.
fn ranks(test: &str, body: impl Fn(Communicator) + Sync) {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", RANKS).limit(Duration::from_secs(60)).run(|_| {
        for events in [EventChoice::Regular, EventChoice::Counter] {
            let config = Config { device: DeviceChoice::Soft, events, ..Config::default() };
            local::ranks(RANKS, &config, &StartState::default(), |comm| {
                // Not earlier: what init does would be late as well. One rank's is all ranks'.
                soft::fault(ext::ZESOFT_FAULT_DELAY_QUEUE, ext::ZESOFT_ANY, 0, LATE.as_nanos() as u64, 0);
                body(comm);
            });
            soft::fault(ext::ZESOFT_FAULT_CLEAR, ext::ZESOFT_ANY, ext::ZESOFT_ANY, 0, 0);
        }
    });
}

#[test]
fn a_write_comes_after_the_collective_in_place() {
    ranks("a_write_comes_after_the_collective_in_place", |comm| {
        let [stream, other] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let mut buffer = comm.alloc::<f32>(COUNT).unwrap();
        let mut got = vec![0.0; COUNT];
        for call in 0..CALLS {
            buffer.write(&other, &input(comm.rank(), call)).unwrap();
            let done = comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap();
            if comm.rank() == 0 {
                buffer.write(&other, &[WRITTEN; COUNT]).unwrap();
                done.wait().unwrap();
                buffer.read(&other, &mut got).unwrap();
                assert_eq!(got, [WRITTEN; COUNT], "call {call}: the write came first");
            } else {
                done.wait().unwrap();
                buffer.read(&other, &mut got).unwrap();
                assert!(got == sums(call), "call {call}: rank 0 contributed {} at 0", got[0] - input(1, call)[0]);
            }
        }
    });
}

#[test]
fn a_write_to_the_input_comes_after_the_collective() {
    ranks("a_write_to_the_input_comes_after_the_collective", |comm| {
        let [stream, other] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let mut send = comm.alloc::<f32>(COUNT).unwrap();
        let mut recv = comm.alloc::<f32>(COUNT).unwrap();
        let mut got = vec![0.0; COUNT];
        for call in 0..CALLS {
            send.write(&other, &input(comm.rank(), call)).unwrap();
            let done = comm.all_reduce(&send, &mut recv, ReduceOp::Sum, &stream).unwrap();
            send.write(&other, &[WRITTEN; COUNT]).unwrap();
            done.wait().unwrap();
            recv.read(&other, &mut got).unwrap();
            assert!(got == sums(call), "call {call}: element 0 is {}", got[0]);
        }
    });
}

#[test]
fn a_read_comes_after_the_collective() {
    ranks("a_read_comes_after_the_collective", |comm| {
        let [stream, other] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let mut buffer = comm.alloc::<f32>(COUNT).unwrap();
        let mut got = vec![0.0; COUNT];
        for call in 0..CALLS {
            buffer.write(&other, &input(comm.rank(), call)).unwrap();
            drop(comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap());
            buffer.read(&other, &mut got).unwrap();
            assert!(got == sums(call), "call {call}: element 0 is {}", got[0]);
        }
    });
}

/// The collective is itself behind an event of the caller's that comes late.
#[test]
fn a_copy_comes_after_a_collective_that_waits() {
    ranks("a_copy_comes_after_a_collective_that_waits", |comm| {
        let [stream, other] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let mut buffer = comm.alloc::<f32>(COUNT).unwrap();
        let mut got = vec![0.0; COUNT];
        buffer.write(&other, &input(comm.rank(), 0)).unwrap();
        let gate = Gate::new(&stream);
        gate.hold(&stream);
        let since = Instant::now();
        let done = comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap();
        let closed = Duration::from_millis(100);
        let opens = std::thread::spawn(move || {
            std::thread::sleep(closed);
            gate.open();
        });
        buffer.read(&other, &mut got).unwrap();
        assert!(since.elapsed() >= closed);
        assert!(got == sums(0), "element 0 is {}", got[0]);
        buffer.write(&other, &[WRITTEN; COUNT]).unwrap();
        done.wait().unwrap();
        buffer.read(&other, &mut got).unwrap();
        assert_eq!(got, [WRITTEN; COUNT]);
        opens.join().unwrap();
    });
}
