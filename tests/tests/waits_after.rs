//! A call that is queued behind something that never comes: once a peer has died, whoever waits for it is told so, and
//! what belonged to it can be let go in bounded time.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod waits_gate;

use ccl_core::{DataType, Error, ReduceOp};
use ccl_tests::failure::stamp;
use ccl_tests::group::Ended;
use ccl_tests::local::sum;
use ccl_tests::{Group, Rank};
use nix::sys::signal::Signal;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use waits_gate::Gate;

const COUNT: usize = 5000;
/// A failed communicator's queued calls are waited for 2 s longer; the rest is for a busy machine.
const TOLD: Duration = Duration::from_millis(3500);
/// Of CCLX_TIMEOUT_MS=300: unfinished work is waited for three times that and 10 s, and a second for a busy machine.
const LET_GO: Duration = Duration::from_millis(3 * 300 + 10_000 + 1_500);

/// What keeps the call from beginning.
#[derive(Clone, Copy, PartialEq)]
enum Behind {
    /// An event that it was told to wait on.
    After,
    /// The caller's own wait on its stream.
    Held,
    /// A fill on its stream that waits.
    Fill,
    /// Another call, on another stream, that waits.
    Other,
    /// The caller's wait, on a stream that the caller made.
    Foreign,
}

/// Lets something go.
type Part = Box<dyn FnOnce() + Send>;

/// Rank 0's part: joins, queues a call that can't begin and waits for it. Then lets all go, or ends at once.
fn waits(rank: &Rank, behind: Behind, lets_go: bool) {
    let comm = rank.communicator();
    let [stream, other, apart] = [0, 1, 0].map(|queue| comm.stream(queue).unwrap());
    let mut buffer = comm.alloc::<f32>(COUNT).unwrap();
    let mut second = comm.alloc::<f32>(COUNT).unwrap();
    let scratch = comm.alloc::<f32>(COUNT).unwrap();
    buffer.write(&stream, &[1.0; COUNT]).unwrap();
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
    // Of a stream of its own: the others must not count as the caller's for that.
    let gate = Gate::new(&apart);
    let done = match behind {
        Behind::After => {
            assert!(!lets_go, "nothing but the completion keeps this buffer");
            let at = buffer.as_ptr().cast();
            // SAFETY: the process ends before the buffer goes; the gate stays.
            unsafe { comm.all_reduce_raw(&sum(DataType::Float32, COUNT), at, at, &stream, &[gate.event()]).unwrap() }
        }
        Behind::Held => {
            gate.hold(&stream);
            comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap()
        }
        Behind::Fill => {
            // SAFETY: the scratch memory is let go after the streams.
            unsafe { stream.fill(scratch.as_ptr().cast(), 0, COUNT * 4, &[gate.event()]).unwrap() };
            comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap()
        }
        Behind::Other => {
            gate.hold(&stream);
            drop(comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap());
            comm.all_reduce_in_place(&mut second, ReduceOp::Sum, &other).unwrap()
        }
        Behind::Foreign => {
            gate.hold(&apart);
            // SAFETY: an in-order list of this communicator's device and context, which lives as long.
            let wrapped = unsafe { comm.stream_from_raw(apart.raw()).unwrap() };
            comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &wrapped).unwrap()
        }
    };
    assert_eq!(done.wait_for(Duration::from_millis(50)), Ok(false), "it can't have begun");
    rank.say("queued");
    let error = done.wait().unwrap_err();
    rank.mark("told");
    assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
    assert_eq!(comm.fault(), Some(error));
    if !lets_go {
        std::process::exit(0);
    }
    // At once, so that the test doesn't take the sum of the bounds.
    std::thread::scope(|scope| {
        let drops: [(&str, Part); 5] = [
            ("communicator", Box::new(move || drop((done, comm)))),
            ("stream", Box::new(move || drop(stream))),
            ("other stream", Box::new(move || drop(other))),
            ("buffer", Box::new(move || drop(buffer))),
            ("second buffer", Box::new(move || drop(second))),
        ];
        for (what, part) in drops {
            scope.spawn(move || {
                let since = Instant::now();
                part();
                assert!(since.elapsed() < LET_GO, "{what}: {:?}", since.elapsed());
            });
        }
    });
    // What was let go before its time is still there for the kernel, which now begins and gives up.
    gate.open();
    assert!(apart.synchronize_for(TOLD).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    drop((apart, scratch));
    rank.say("let go");
}

/// Takes part in the first call only, until it is killed.
fn victim(rank: &Rank) {
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    let mut buffer = comm.alloc::<f32>(COUNT).unwrap();
    buffer.write(&stream, &[1.0; COUNT]).unwrap();
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

fn run(test: &str, behind: Behind, events: &str, lets_go: bool) -> Ended {
    let group = Group::new(test, 2).env("CCLX_DEVICE", "soft").env("CCLX_EVENTS", events).env("CCLX_TIMEOUT_MS", 300);
    let body = |rank: Rank| if rank.rank == 0 { waits(&rank, behind, lets_go) } else { victim(&rank) };
    let (mut ended, killed) = group.limit(Duration::from_secs(30)).run_with(body, |running| {
        running.wait_for_line(0, "queued", Duration::from_secs(15));
        let killed = stamp();
        running.signal(1, Signal::SIGKILL);
        (running.wait(), killed)
    });
    assert_eq!(ended[1].status.signal(), Some(Signal::SIGKILL as i32));
    let ended = ended.swap_remove(0);
    assert!(ended.status.success(), "{}\n{}", ended.status, ended.output);
    let took = Duration::from_nanos(ended.stamped("told") - killed);
    eprintln!("{test}: told after {took:.1?}");
    assert!(took < TOLD, "told after {took:?}");
    ended
}

#[test]
fn behind_an_event() {
    for events in ["regular", "counter"] {
        run("behind_an_event", Behind::After, events, false);
    }
}

#[test]
fn behind_a_wait_on_its_stream() {
    run("behind_a_wait_on_its_stream", Behind::Held, "regular", false);
}

#[test]
fn behind_a_fill_that_waits() {
    run("behind_a_fill_that_waits", Behind::Fill, "counter", false);
}

#[test]
fn behind_another_call_that_waits() {
    for events in ["regular", "counter"] {
        run("behind_another_call_that_waits", Behind::Other, events, false);
    }
}

#[test]
fn behind_a_wait_on_a_stream_of_the_callers() {
    run("behind_a_wait_on_a_stream_of_the_callers", Behind::Foreign, "counter", false);
}

#[test]
fn all_is_let_go_in_bounded_time_behind_another_call() {
    let ended = run("all_is_let_go_in_bounded_time_behind_another_call", Behind::Other, "regular", true);
    assert!(ended.output.contains("let go"), "{}", ended.output);
}

#[test]
fn all_is_let_go_in_bounded_time_behind_a_fill() {
    let ended = run("all_is_let_go_in_bounded_time_behind_a_fill", Behind::Fill, "counter", true);
    assert!(ended.output.contains("let go"), "{}", ended.output);
}
