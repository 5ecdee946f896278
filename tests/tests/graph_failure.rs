//! What goes wrong while recordings are made and replayed is told like what goes wrong in eager calls.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::{Check, Config, DeviceChoice, EventChoice, OnError};
use ccl_core::{DataType, Error, ReduceOp};
use ccl_tests::failure::die;
use ccl_tests::graph::{Lab, good};
use ccl_tests::local::{ranks, sum};
use ccl_tests::{Group, Rank};
use ccl_ze::{Buffer, CallOptions, Communicator, Completion, ExecutableGraph, Stream, hooks};
use level_zero_sys::*;
use std::sync::Barrier;
use std::time::{Duration, Instant};

fn config() -> Config {
    Config {
        device: DeviceChoice::Soft,
        timeout: Duration::from_secs(20),
        on_error: Some(OnError::Log),
        ..Config::default()
    }
}

fn group(test: &str, n: usize, config: &Config, hooks: u32, body: impl Fn(Communicator) + Sync) {
    let start = StartState { hooks, ..StartState::default() };
    Group::new(test, 1).env("ZE_SOFT_DEVICES", n).limit(Duration::from_secs(60)).run(|_| {
        ranks(n, config, &start, &body);
    });
}

/// A graph of `calls` reductions of `count` elements, each in place of the one before.
fn record(comm: &Communicator, stream: &Stream, count: usize, calls: usize) -> (Buffer<f32>, ExecutableGraph) {
    let mut memory = comm.alloc::<f32>(count).unwrap();
    stream.begin_capture().unwrap();
    for _ in 0..calls {
        drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, stream).unwrap());
    }
    (memory, stream.end_capture().unwrap().instantiate().unwrap())
}

fn launch(graph: &ExecutableGraph, stream: &Stream) -> Result<Completion, Error> {
    // SAFETY: typed memory stays with the graph.
    unsafe { graph.launch(stream, CallOptions::default()) }
}

fn value(rank: usize, i: usize) -> f32 {
    ((rank * 5 + i * 3) % 101) as f32
}

/// The sum of [`value`] over `n` ranks.
fn total(n: usize, i: usize) -> f32 {
    (0..n).map(|rank| value(rank, i)).sum()
}

fn write(memory: &mut Buffer<f32>, stream: &Stream, rank: usize) {
    let input: Vec<f32> = (0..memory.len()).map(|i| value(rank, i)).collect();
    memory.write(stream, &input).unwrap();
}

fn read(memory: &Buffer<f32>, stream: &Stream) -> Vec<f32> {
    let mut output = vec![0.0; memory.len()];
    memory.read(stream, &mut output).unwrap();
    output
}

fn has_given_up(memory: &Buffer<f32>, stream: &Stream) -> bool {
    read(memory, stream).iter().all(|x| x.to_bits() == u32::MAX)
}

/// A rank that is killed between two of a replay's collectives.
#[test]
fn a_rank_killed_in_mid_replay_is_named() {
    let body = |rank: Rank| {
        let comm = rank.communicator();
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let (mut memory, graph) = record(&comm, &stream, 100_000, 5);
        write(&mut memory, &copies, comm.rank());
        launch(&graph, &stream).unwrap().wait().unwrap();
        if rank.rank == 2 {
            // A replay that the others still wait for would fail, too.
            std::thread::sleep(Duration::from_millis(300));
            let _running = launch(&graph, &stream).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            die();
        }
        let replays = (0..50).map(|_| launch(&graph, &stream).and_then(|done| done.wait()));
        let error = replays.into_iter().find_map(Result::err).unwrap();
        assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
        assert_eq!(launch(&graph, &stream).map(drop), Err(error.clone()));
        assert_eq!(comm.fault(), Some(error));
        assert!(has_given_up(&memory, &copies));
        drop((comm, graph, memory, stream, copies));
        rank.say("freed all");
    };
    let group = Group::new("a_rank_killed_in_mid_replay_is_named", 3).limit(Duration::from_secs(40));
    let group = group.env("CCLX_DEVICE", "soft").env("CCLX_ON_ERROR", "log");
    let ended = group.run_with(body, |running| running.wait());
    for (rank, ended) in ended.iter().take(2).enumerate() {
        assert!(ended.status.success() && ended.output.contains("freed all"), "rank {rank}: {}", ended.output);
    }
}

/// Rank 1 never joins the replay, and rank 0 gives it up.
#[test]
fn an_abort_ends_a_replay() {
    group("an_abort_ends_a_replay", 2, &config(), 0, |comm| {
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let (mut memory, graph) = record(&comm, &stream, 5000, 3);
        write(&mut memory, &copies, comm.rank());
        let since = Instant::now();
        if comm.rank() == 0 {
            let done = launch(&graph, &stream).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(done.is_finished(), Ok(false));
            comm.abort("enough");
            assert_eq!(done.wait(), Err(Error::Aborted("enough".into())));
            assert!(has_given_up(&memory, &copies));
        }
        while comm.fault().is_none() && since.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let error = comm.fault().unwrap();
        assert!(error.to_string().contains("enough"), "{error}");
        assert_eq!(launch(&graph, &stream).map(drop), Err(error));
        assert!(since.elapsed() < Duration::from_secs(5));
    });
}

/// A replay is in flight while its communicator goes, and rank 1 joins in late: what became of it on each rank, and
/// whether its result is right.
fn goes_while_replaying(hooks: u32) -> Vec<(Result<(), Error>, bool)> {
    ranks(2, &config(), &StartState { hooks, ..StartState::default() }, |comm| {
        let rank = comm.rank();
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let (mut memory, graph) = record(&comm, &stream, 700, 1);
        write(&mut memory, &copies, rank);
        if rank == 1 {
            std::thread::sleep(Duration::from_millis(200));
        }
        let running = launch(&graph, &stream).unwrap();
        drop(comm);
        let outcome = running.wait();
        let right = read(&memory, &copies).iter().enumerate().all(|(i, x)| *x == total(2, i));
        let since = Instant::now();
        let refused = launch(&graph, &stream).map(drop);
        assert!(matches!(&refused, Err(Error::InvalidUsage(text)) if text.contains("has gone")), "{refused:?}");
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        (outcome, right)
    })
}

#[test]
fn a_replay_in_flight_ends_before_its_communicator() {
    Group::new("a_replay_in_flight_ends_before_its_communicator", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        assert_eq!(goes_while_replaying(0), [(Ok(()), true), (Ok(()), true)]);
    });
}

/// NEGATIVE CONTROL: a communicator that does not wait takes the replay with it, and that is told for what it is.
#[test]
fn without_the_wait_it_gives_up() {
    Group::new("without_the_wait_it_gives_up", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let met = goes_while_replaying(hooks::NO_WAIT_FOR_REPLAYS);
        let (outcome, right) = &met[0];
        assert!(matches!(outcome, Err(Error::InvalidUsage(text)) if text.contains("has gone")), "{met:?}");
        assert!(!right, "{met:?}");
    });
}

/// Two threads capture at once, of one communicator; then four replays on two streams, with nobody waiting in between.
#[test]
fn two_captures_at_once() {
    for events in [EventChoice::Counter, EventChoice::Regular] {
        group("two_captures_at_once", 2, &Config { events, ..config() }, 0, |comm| {
            let streams = [0, 0].map(|queue| comm.stream(queue).unwrap());
            let copies = comm.stream(1).unwrap();
            for turn in 0..20 {
                let begun = Barrier::new(2);
                let mut graphs: Vec<_> = std::thread::scope(|scope| {
                    let capture = |(i, stream)| {
                        let (comm, begun) = (&comm, &begun);
                        scope.spawn(move || {
                            begun.wait();
                            record(comm, stream, 500 + 300 * i + turn, 1 + i)
                        })
                    };
                    let threads: Vec<_> = streams.iter().enumerate().map(capture).collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
                });
                graphs.iter_mut().for_each(|(memory, _)| write(memory, &copies, comm.rank()));
                let there = graphs.iter().zip(&streams);
                let back = graphs.iter().zip(streams.iter().rev());
                let replays: Vec<_> =
                    there.chain(back).map(|((_, graph), stream)| launch(graph, stream).unwrap()).collect();
                replays.into_iter().for_each(|done| done.wait().unwrap());
                for ((memory, _), factor) in graphs.iter().zip([2.0, 8.0]) {
                    let output = read(memory, &copies);
                    let right = output.iter().enumerate().all(|(i, x)| *x == factor * total(2, i));
                    assert!(right, "turn {turn}, factor {factor}: {:?}", &output[..4]);
                }
            }
        });
    }
}

/// A graph is replayed on the kind of queue that it was recorded for.
#[test]
fn a_queue_of_another_kind_is_refused_and_nothing_is_lost() {
    group("a_queue_of_another_kind_is_refused_and_nothing_is_lost", 2, &config(), 0, |comm| {
        let [stream, other] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let (mut memory, graph) = record(&comm, &stream, 700, 1);
        let refused = launch(&graph, &other).map(drop).unwrap_err();
        assert!(refused.to_string().contains("like the one on which it was recorded"), "{refused}");
        write(&mut memory, &other, comm.rank());
        launch(&graph, &stream).unwrap().wait().unwrap();
        assert!(read(&memory, &other).iter().enumerate().all(|(i, x)| *x == total(2, i)));
    });
}

/// The host does not see what a replay holds: the device tells it.
#[test]
fn the_rank_with_another_graph_is_named() {
    let config = Config { check: Check::Global, ..config() };
    group("the_rank_with_another_graph_is_named", 3, &config, 0, |comm| {
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let (mut memory, usual) = record(&comm, &stream, 1000, 2);
        let (_memory, other) = record(&comm, &stream, 990, 2);
        write(&mut memory, &copies, comm.rank());
        for _ in 0..3 {
            launch(&usual, &stream).unwrap().wait().unwrap();
        }
        let odd = comm.rank() == 1;
        let error = launch(if odd { &other } else { &usual }, &stream).unwrap().wait().unwrap_err();
        let named = "ranks disagree on call #7: rank 1 made it with 990 float32 sum";
        assert!(matches!(&error, Error::InvalidUsage(text) if text.contains(named)), "{error}");
    });
}

/// Ranks that have not come to the call, of three, decide who is the odd one. One that doesn't come is told for what it is,
/// and asking whether a call has finished waits for none of that.
#[test]
fn a_rank_that_comes_late_is_waited_for() {
    for (late, named) in [
        (300, "ranks disagree on call #7: rank 1 made it with 990 float32 sum; ranks 0, 2 made"),
        (4000, "; rank 2 has not entered it (it finished #6)"),
    ] {
        let config = Config { check: Check::Global, ..config() };
        group("a_rank_that_comes_late_is_waited_for", 3, &config, 0, |comm| {
            let stream = comm.stream(0).unwrap();
            let (_memory, usual) = record(&comm, &stream, 1000, 2);
            let (_other_memory, other) = record(&comm, &stream, 990, 2);
            for _ in 0..3 {
                launch(&usual, &stream).unwrap().wait().unwrap();
            }
            if comm.rank() == 2 {
                std::thread::sleep(Duration::from_millis(late));
            }
            let graph = if comm.rank() == 1 { &other } else { &usual };
            let error = match launch(graph, &stream) {
                Err(error) => error,
                Ok(done) => loop {
                    let since = Instant::now();
                    match done.is_finished() {
                        Ok(false) => std::thread::sleep(Duration::from_millis(1)),
                        Ok(true) => panic!("a call of ranks that disagree ends well"),
                        Err(error) => break error,
                    }
                    assert!(since.elapsed() < Duration::from_millis(900), "{:?}", since.elapsed());
                },
            };
            assert!(matches!(&error, Error::InvalidUsage(text) if text.contains(named)), "{error}");
        });
    }
}

/// Nobody looks into what the device reports once the communicator has gone: that is told at once.
#[test]
fn a_failure_after_the_communicator_is_told_at_once() {
    let config = Config { check: Check::Global, ..config() };
    group("a_failure_after_the_communicator_is_told_at_once", 2, &config, 0, |comm| {
        let stream = comm.stream(0).unwrap();
        let mut memory = comm.alloc::<f32>(1000).unwrap();
        comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
        let lab = Lab::new(&comm);
        let (pool, gate) = lab.regular_event();
        let options = CallOptions { after: &[gate], signal: None };
        let (at, count) = (memory.as_ptr().cast(), 1000 - comm.rank());
        // SAFETY: the memory and the event outlive the call.
        let done = unsafe { comm.all_reduce_with(&sum(DataType::Float32, count), at, at, &stream, options) }.unwrap();
        let goes = std::thread::spawn(move || drop(comm));
        std::thread::sleep(Duration::from_millis(500));
        // SAFETY: a live event.
        good(unsafe { (lab.table.zeEventHostSignal)(gate) });
        let error = done.wait().unwrap_err();
        goes.join().unwrap();
        let since = Instant::now();
        assert_eq!(done.wait().unwrap_err(), error);
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        // On a busy machine it may not have gone in that time.
        let said = ["has gone before its calls", "ranks disagree"];
        assert!(said.iter().any(|text| error.to_string().contains(text)), "{error}");
        assert!(matches!(&error, Error::InvalidUsage(_)), "{error}");
        // SAFETY: nothing waits for it any more.
        unsafe {
            good((lab.table.zeEventDestroy)(gate));
            good((lab.table.zeEventPoolDestroy)(pool));
        }
    });
}

/// NEGATIVE CONTROL: unchecked, the same ends on every rank as if nothing were wrong.
#[test]
fn unchecked_nobody_is_named() {
    let config = Config { check: Check::Off, ..config() };
    group("unchecked_nobody_is_named", 3, &config, 0, |comm| {
        let stream = comm.stream(0).unwrap();
        let (_memory, usual) = record(&comm, &stream, 1000, 2);
        let (_other_memory, other) = record(&comm, &stream, 990, 2);
        let odd = comm.rank() == 1;
        assert_eq!(launch(if odd { &other } else { &usual }, &stream).unwrap().wait(), Ok(()));
    });
}

/// An event of another process's handle orders eager calls. A recording can't wait for it: it has no flag that says so, and
/// the refusal leaves the recording usable.
#[test]
fn counter_based_events_from_handles() {
    group("counter_based_events_from_handles", 2, &config(), 0, |comm| {
        let lab = Lab::new(&comm);
        let [stream, copies] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let event = lab.counter_event(ZE_EVENT_COUNTER_BASED_FLAG_IPC);
        let [mut source, memory] = [(); 2].map(|()| comm.alloc::<f32>(600).unwrap());
        write(&mut source, &copies, comm.rank());
        let at = memory.as_ptr().cast();
        let mut handle = ze_ipc_event_counter_based_handle_t::default();
        let mut opened = std::ptr::null_mut();
        // SAFETY: both buffers have 600 elements and outlive the waits; the handle is read while its event lives.
        unsafe {
            lab.copy(&copies, at, source.as_ptr().cast(), 2400, event, &mut []);
            good((lab.table.zeEventCounterBasedGetIpcHandle.unwrap())(event, &raw mut handle));
            good((lab.table.zeEventCounterBasedOpenIpcHandle.unwrap())(lab.context, handle, &raw mut opened));
        }
        let request = sum(DataType::Float32, 600);
        let options = CallOptions { after: &[opened], signal: None };
        // SAFETY: live memory and event.
        let call = || unsafe { comm.all_reduce_with(&request, at, at, &stream, options) };
        call().unwrap().wait().unwrap();
        assert!(read(&memory, &copies).iter().enumerate().all(|(i, x)| *x == total(2, i)));

        stream.begin_capture().unwrap();
        let refused = call().map(drop).unwrap_err();
        assert!(refused.to_string().contains("GRAPH_EXTERNAL"), "{refused}");
        drop(comm.all_reduce_in_place(&mut source, ReduceOp::Sum, &stream).unwrap());
        let graph = stream.end_capture().unwrap().instantiate().unwrap();
        launch(&graph, &stream).unwrap().wait().unwrap();
        assert!(read(&source, &copies).iter().enumerate().all(|(i, x)| *x == total(2, i)));
        // SAFETY: nothing uses them any more.
        unsafe {
            good((lab.table.zeEventCounterBasedCloseIpcHandle.unwrap())(opened));
            good((lab.table.zeEventDestroy)(event));
        }
    });
}

/// Without counter-based events a recorded call has no event to hand out and does not move to another list. Both are said,
/// and the recording stays usable.
#[test]
fn recordings_without_counter_based_events() {
    let config = Config { events: EventChoice::Regular, ..config() };
    group("recordings_without_counter_based_events", 2, &config, 0, |comm| {
        let [stream, other] = [0, 0].map(|queue| comm.stream(queue).unwrap());
        let copies = comm.stream(1).unwrap();
        let lab = Lab::new(&comm);
        let (fork, join) = (lab.counter_event(0), lab.counter_event(0));
        let mut memory = comm.alloc::<f32>(600).unwrap();
        stream.begin_capture().unwrap();
        let done = comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap();
        assert!(matches!(done.event(), Err(Error::NotImplemented(_))));
        assert!(matches!(done.order(&other), Err(Error::NotImplemented(_))));
        lab.signal(&stream, fork);
        lab.wait(&other, fork);
        let refused = comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &other).map(drop);
        assert!(matches!(refused, Err(Error::NotImplemented(_))), "{refused:?}");
        lab.signal(&other, join);
        lab.wait(&stream, join);
        drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, &stream).unwrap());
        let graph = stream.end_capture().unwrap().instantiate().unwrap();
        let list = comm.command_list(0).unwrap();
        drop(comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, list.stream()).unwrap());
        let list = list.close().unwrap();
        for _ in 0..3 {
            write(&mut memory, &copies, comm.rank());
            launch(&graph, &stream).unwrap().wait().unwrap();
            // SAFETY: typed memory stays with the list.
            unsafe { list.execute(&stream, CallOptions::default()) }.unwrap().wait().unwrap();
            assert!(read(&memory, &copies).iter().enumerate().all(|(i, x)| *x == 4.0 * total(2, i)));
        }
        for event in [fork, join] {
            // SAFETY: nothing is replayed any more.
            unsafe { good((lab.table.zeEventDestroy)(event)) }
        }
    });
}
