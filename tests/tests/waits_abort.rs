//! Calls that the host has to hold back until the call before them has finished, as it does behind a SYCL queue's, while that one
//! is stuck behind work of the caller's: whoever aborts or ends a communicator doesn't wait for them, they give up with their own
//! communicator only, and no other call comes past them.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod waits_gate;

use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice};
use ccl_core::{ReduceOp, bootstrap};
use ccl_tests::{Group, local};
use ccl_ze::hooks::HOST_WAITS;
use ccl_ze::{Buffer, CallOptions, Communicator, Stream};
use std::sync::atomic::Ordering;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use waits_gate::Gate;

const COUNT: usize = 700;
const RANKS: usize = 2;
/// What an abort waits for calls that can't begin, as the C API does.
const TIME_TO_GIVE_UP: Duration = Duration::from_secs(2);
/// For what doesn't wait for the stuck call, on a busy machine; that is waited for 25 s.
const SOON: Duration = Duration::from_secs(10);
/// For what does not happen.
const A_WHILE: Duration = Duration::from_millis(300);

/// Two communicators on one device, and its streams.
struct Rank {
    comms: [Communicator; 2],
    /// For copies, and three for calls; the first of these is held back by the gate.
    copies: Stream,
    streams: [Stream; 3],
    gate: Gate,
}

fn on_two_communicators(test: &str, body: impl Fn(Rank) + Sync) {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", RANKS).limit(Duration::from_secs(120)).run(|_| {
        HOST_WAITS.store(true, Ordering::Relaxed);
        let timeout = Duration::from_secs(5);
        let config = Config { device: DeviceChoice::Soft, staging_tiles: 16, timeout, ..Config::default() };
        let meshes = Mutex::new(bootstrap::local(RANKS).unwrap().into_iter().map(Some).collect::<Vec<_>>());
        local::ranks(RANKS, &config, &StartState::default(), |first| {
            let rank = first.rank();
            let mesh = meshes.lock().unwrap()[rank].take().unwrap();
            let second = Communicator::builder_with(config.clone()).device(rank).init_local(mesh).unwrap();
            let copies = first.stream(0).unwrap();
            let streams = [0, 1, 1].map(|queue| first.stream(queue).unwrap());
            let gate = Gate::new(&streams[0]);
            gate.hold(&streams[0]);
            body(Rank { comms: [first, second], copies, streams, gate });
        });
    });
}

/// Small, so that sums are exact in any order.
fn value(rank: usize, call: usize, i: usize) -> f32 {
    ((29 * rank + 13 * call + 7 * i) % 251) as f32
}

fn message(comm: &Communicator, copies: &Stream, call: usize) -> Buffer<f32> {
    let mut buffer = comm.alloc(COUNT).unwrap();
    buffer.write(copies, &input(comm.rank(), call)).unwrap();
    buffer
}

fn input(rank: usize, call: usize) -> Vec<f32> {
    (0..COUNT).map(|i| value(rank, call, i)).collect()
}

fn sum(call: usize) -> Vec<f32> {
    (0..COUNT).map(|i| (0..RANKS).map(|rank| value(rank, call, i)).sum()).collect()
}

fn read(buffer: &Buffer<f32>, copies: &Stream) -> Vec<f32> {
    let mut got = vec![0.0; COUNT];
    buffer.read(copies, &mut got).unwrap();
    got
}

fn reduce(comm: &Communicator, buffer: &mut Buffer<f32>, stream: &Stream) -> ccl_core::Result<()> {
    comm.all_reduce_in_place(buffer, ReduceOp::Sum, stream)?.wait()
}

#[test]
fn an_abort_does_not_wait_for_a_call_that_waits_on_the_host() {
    abort_before_a_call("an_abort_does_not_wait_for_a_call_that_waits_on_the_host", false);
}

#[test]
fn an_abort_does_not_wait_for_a_replay_that_waits_on_the_host() {
    abort_before_a_call("an_abort_does_not_wait_for_a_replay_that_waits_on_the_host", true);
}

fn abort_before_a_call(test: &str, replayed: bool) {
    let together = Barrier::new(RANKS);
    on_two_communicators(test, |rank| {
        let Rank { comms: [aborted, other], copies, streams: [held, free, third], gate } = rank;
        let [mut stuck, mut behind, mut later, mut last] = [0, 1, 2, 3].map(|call| message(&other, &copies, call));
        let list = replayed.then(|| {
            let list = aborted.command_list(1).unwrap();
            drop(aborted.all_reduce_in_place(&mut behind, ReduceOp::Sum, list.stream()).unwrap());
            list.close().unwrap()
        });
        let first = aborted.all_reduce_in_place(&mut stuck, ReduceOp::Sum, &held).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| match &list {
                None => reduce(&aborted, &mut behind, &free),
                // SAFETY: typed memory stays with the list.
                Some(list) => unsafe { list.execute(&free, CallOptions::default()) }?.wait(),
            });
            std::thread::sleep(A_WHILE);
            let next = scope.spawn(|| reduce(&other, &mut later, &third));
            std::thread::sleep(A_WHILE);
            assert!(!waits.is_finished() && !next.is_finished(), "both wait for the stuck call");
            together.wait();
            let since = Instant::now();
            if aborted.rank() == 0 {
                aborted.abort("enough");
                assert!(!aborted.is_over_within(TIME_TO_GIVE_UP), "a call can't begin");
                assert!(since.elapsed() < SOON, "an abort takes {:?}", since.elapsed());
            }
            let error = waits.join().unwrap().unwrap_err();
            assert!(since.elapsed() < SOON, "a call notices an abort after {:?}", since.elapsed());
            assert!(error.to_string().contains("enough"), "{error}");
            // Nor does one of another thread that had been let in come later.
            let error = aborted.all_reduce_in_place(&mut last, ReduceOp::Sum, &third).map(drop).unwrap_err();
            assert!(error.to_string().contains("enough"), "{error}");
            assert_eq!(free.synchronize_for(Duration::ZERO), Ok(true), "a call that was not made is on the stream");
            std::thread::sleep(A_WHILE);
            assert!(!next.is_finished(), "another communicator's call waits for the stuck one as before");
            together.wait();
            gate.open();
            assert_eq!(next.join().unwrap(), Ok(()));
        });
        let error = first.wait().unwrap_err();
        assert!(error.to_string().contains("enough"), "{error}");
        assert_eq!(read(&behind, &copies), input(aborted.rank(), 1), "a call that was not made");
        assert_eq!(read(&later, &copies), sum(2), "a call of the other communicator");
        reduce(&other, &mut last, &free).unwrap();
        assert_eq!(read(&last, &copies), sum(3), "a call after it");
    });
}

#[test]
fn a_communicator_goes_while_anothers_call_waits_on_the_host() {
    let together = Barrier::new(RANKS);
    on_two_communicators("a_communicator_goes_while_anothers_call_waits_on_the_host", |rank| {
        let Rank { comms: [goes, stays], copies, streams: [held, free, third], gate } = rank;
        let [mut before, mut stuck, mut behind] = [0, 1, 2].map(|call| message(&stays, &copies, call));
        reduce(&goes, &mut before, &third).unwrap();
        assert_eq!(read(&before, &copies), sum(0));
        let first = stays.all_reduce_in_place(&mut stuck, ReduceOp::Sum, &held).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| reduce(&stays, &mut behind, &free));
            std::thread::sleep(A_WHILE);
            assert!(!waits.is_finished(), "it waits for the stuck call");
            let since = Instant::now();
            assert!(goes.is_over_within(TIME_TO_GIVE_UP), "its call is over");
            drop(goes);
            assert!(since.elapsed() < SOON, "a communicator without calls goes after {:?}", since.elapsed());
            together.wait();
            gate.open();
            assert_eq!(waits.join().unwrap(), Ok(()));
        });
        assert_eq!(first.wait(), Ok(()));
        assert_eq!((read(&stuck, &copies), read(&behind, &copies)), (sum(1), sum(2)));
    });
}
