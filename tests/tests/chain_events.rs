//! Calls that take turns on one device while a stream is held back by an event of the caller's: no call's event is used
//! again or destroyed while another call still waits on it, and devices are one however they were asked for.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod waits_gate;

use ccl_core::DataType::Float32;
use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice, EventChoice};
use ccl_core::{Error, ReduceOp, bootstrap};
use ccl_tests::local::{self, sum};
use ccl_tests::{Group, data};
use ccl_ze::{Buffer, Communicator, Completion, Stream};
use level_zero_sys::{ze_event_handle_t, ze_result_t};
use std::ffi::{CStr, c_void};
use std::sync::Mutex;
use std::time::Duration;
use waits_gate::Gate;

/// More than twice the events that a communicator starts with.
const CALLS: usize = 48;
const COUNT: usize = 700;
/// For what has nothing left to wait for, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 3).limit(Duration::from_secs(100))
}

fn configs() -> [Config; 2] {
    [EventChoice::Regular, EventChoice::Counter].map(|events| Config {
        device: DeviceChoice::Soft,
        events,
        staging_tiles: 16,
        timeout: Duration::from_secs(5),
        ..Config::default()
    })
}

/// A message of its own data.
struct Message {
    seed: u64,
    buffer: Buffer<u8>,
}

impl Message {
    fn new(comm: &Communicator, copies: &Stream, seed: u64) -> Message {
        let input = data::ordinary(Float32, seed, comm.rank(), COUNT);
        let mut buffer: Buffer<u8> = comm.alloc(input.len()).unwrap();
        buffer.write(copies, &input).unwrap();
        Message { seed, buffer }
    }

    fn reduce(&self, comm: &Communicator, stream: &Stream) -> Completion {
        let at = self.buffer.as_ptr().cast();
        // SAFETY: the buffer holds the message and is read, after the wait for the streams, before it goes.
        unsafe { comm.all_reduce_raw(&sum(Float32, COUNT), at, at, stream, &[]).unwrap() }
    }

    fn check(&self, rank: usize, n: usize, copies: &Stream) {
        let mut got = vec![0; COUNT * 4];
        self.buffer.read(copies, &mut got).unwrap();
        let inputs: Vec<_> = (0..n).map(|rank| data::ordinary(Float32, self.seed, rank, COUNT)).collect();
        let difference = data::first_difference(&got, &data::expected(Float32, &inputs, None), Float32);
        assert_eq!(difference, None, "rank {rank} of {n}, call {}", self.seed);
    }
}

fn finish(streams: &[Stream]) {
    for (number, stream) in streams.iter().enumerate() {
        assert!(stream.synchronize_for(SOON).unwrap(), "stream {number} is still waiting after {SOON:?}");
    }
}

#[test]
fn what_a_call_waits_on_is_not_used_again() {
    process("what_a_call_waits_on_is_not_used_again").run(|_| {
        for config in configs() {
            for n in [2, 3] {
                local::ranks(n, &config, &StartState::default(), |comm| {
                    let [copies, free, held] = [0, 0, 1].map(|queue| comm.stream(queue).unwrap());
                    let messages: Vec<_> = (0..CALLS as u64).map(|i| Message::new(&comm, &copies, i)).collect();
                    let gate = Gate::new(&held);
                    gate.hold(&held);
                    let streams = [free, held];
                    let first = messages[0].reduce(&comm, &streams[0]);
                    drop(messages[1].reduce(&comm, &streams[1]));
                    // Its event is signalled now, nobody holds it, and the second call has not looked at it yet.
                    first.wait().unwrap();
                    drop(first);
                    for (i, message) in messages.iter().enumerate().skip(2) {
                        drop(message.reduce(&comm, &streams[i % 2]));
                    }
                    gate.open();
                    finish(&streams);
                    assert_eq!(comm.fault(), None);
                    messages.iter().for_each(|message| message.check(comm.rank(), n, &copies));
                });
            }
        }
    });
}

/// Events that were destroyed, by whatever in this process.
static DESTROYED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn noting_destroyed(name: &CStr) -> *const c_void {
    if name == c"zeEventDestroy" { note_destroyed as *const c_void } else { ze_soft::resolve(name) }
}

unsafe extern "C" fn note_destroyed(event: ze_event_handle_t) -> ze_result_t {
    DESTROYED.lock().unwrap().push(event as usize);
    type Destroy = unsafe extern "C" fn(ze_event_handle_t) -> ze_result_t;
    // SAFETY: the driver's function of this name has this type.
    let real: Destroy = unsafe { std::mem::transmute(ze_soft::resolve(c"zeEventDestroy")) };
    // SAFETY: passed on from the caller.
    unsafe { real(event) }
}

fn is_destroyed(event: usize) -> bool {
    DESTROYED.lock().unwrap().contains(&event)
}

/// A communicator goes when its own calls have finished, though another's call still waits on the event of one.
#[test]
fn what_a_call_waits_on_outlives_its_communicator() {
    process("what_a_call_waits_on_outlives_its_communicator").run(|_| {
        assert!(ccl_ze::hooks::RESOLVER.set(noting_destroyed).is_ok(), "resolved once");
        for config in configs() {
            for n in [2, 3] {
                let meshes = Mutex::new(bootstrap::local(n).unwrap().into_iter().map(Some).collect::<Vec<_>>());
                local::ranks(n, &config, &StartState::default(), |stays| {
                    let rank = stays.rank();
                    let mesh = meshes.lock().unwrap()[rank].take().unwrap();
                    let goes = Communicator::builder_with(config.clone()).device(rank).init_local(mesh).unwrap();
                    let [copies, free, held] = [0, 0, 1].map(|queue| stays.stream(queue).unwrap());
                    let messages: Vec<_> = (0..6).map(|i| Message::new(&stays, &copies, i)).collect();
                    let gate = Gate::new(&held);
                    gate.hold(&held);
                    let streams = [free, held];
                    drop(messages[0].reduce(&goes, &streams[0]));
                    let before = messages[1].reduce(&goes, &streams[0]);
                    let awaited = before.event().unwrap() as usize;
                    // An event that was destroyed before may have had this address.
                    DESTROYED.lock().unwrap().retain(|event| *event != awaited);
                    drop(messages[2].reduce(&stays, &streams[1]));
                    before.wait().unwrap();
                    drop(before);
                    drop(goes);
                    assert!(!is_destroyed(awaited), "a queued call waits on it");
                    for (i, message) in messages.iter().enumerate().skip(3) {
                        drop(message.reduce(&stays, &streams[i % 2]));
                    }
                    gate.open();
                    finish(&streams);
                    assert_eq!(stays.fault(), None);
                    messages.iter().for_each(|message| message.check(rank, n, &copies));
                    drop((messages, stays));
                    assert!(is_destroyed(awaited), "nobody waits on it any more");
                });
            }
        }
    });
}

/// A stream over a list of the caller's that goes while the list waits for a call's event keeps that until the list has
/// looked at it: its next use would make the list wait for another call.
#[test]
fn what_a_callers_list_waits_on_is_not_used_again() {
    process("what_a_callers_list_waits_on_is_not_used_again").run(|_| {
        let [config, _] = configs();
        local::ranks(1, &config, &StartState::default(), |comm| {
            let [copies, free, list] = [0, 0, 1].map(|queue| comm.stream(queue).unwrap());
            let message = Message::new(&comm, &copies, 1);
            let gate = Gate::new(&list);
            gate.hold(&list);
            // SAFETY: the list outlives the stream over it.
            let over = unsafe { comm.stream_from_raw(list.raw()).unwrap() };
            let done = message.reduce(&comm, &free);
            done.wait().unwrap();
            done.order(&over).unwrap();
            drop(done);
            assert_eq!(list.synchronize_for(Duration::ZERO), Ok(false), "it is held back");
            let opener = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(200));
                gate.open();
            });
            drop(over);
            assert_eq!(list.synchronize_for(Duration::ZERO), Ok(true), "the stream went before its list had looked");
            opener.join().unwrap();
            message.check(0, 1, &copies);
        });
    });
}

/// A stream of the one is good for the other only if both know the device's collectives as one chain.
fn share_a_device(choices: [DeviceChoice; 2]) {
    let n = 2;
    let [first, second] = choices.map(|device| Config {
        device,
        staging_tiles: 16,
        timeout: Duration::from_secs(5),
        ..Config::default()
    });
    let meshes = Mutex::new(bootstrap::local(n).unwrap().into_iter().map(Some).collect::<Vec<_>>());
    local::ranks(n, &first, &StartState::default(), |comm| {
        let rank = comm.rank();
        let mesh = meshes.lock().unwrap()[rank].take().unwrap();
        let comms = [comm, Communicator::builder_with(second.clone()).device(rank).init_local(mesh).unwrap()];
        let [copies, stream, other] = [0, 0, 1].map(|queue| comms[0].stream(queue).unwrap());
        let drivers = comms.each_ref().map(|comm| comm.describe().driver);
        if drivers[0] != drivers[1] {
            let mut buffer = comms[1].alloc::<f32>(COUNT).unwrap();
            let refused = comms[1].all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).map(drop);
            assert!(matches!(refused, Err(Error::InvalidUsage(_))), "{drivers:?}: {refused:?}");
            return;
        }
        let messages: Vec<_> = (0..CALLS as u64).map(|i| Message::new(&comms[0], &copies, i)).collect();
        let streams = [stream, other];
        for (i, message) in messages.iter().enumerate() {
            drop(message.reduce(&comms[i / 2 % 2], &streams[i % 2]));
        }
        finish(&streams);
        messages.iter().for_each(|message| message.check(rank, n, &copies));
        assert_eq!(comms[0].level_zero_calls(), comms[1].level_zero_calls(), "one device counts once");
    });
}

#[test]
fn a_device_is_one_however_it_was_asked_for() {
    let choices = [[DeviceChoice::Auto, DeviceChoice::Soft], [DeviceChoice::Soft, DeviceChoice::Auto]];
    process("a_device_is_one_however_it_was_asked_for").run(|_| choices.into_iter().for_each(share_a_device));
}

/// With a search path that no loader is opened along, `auto` takes the driver that is linked in.
#[test]
fn a_device_is_one_where_no_loader_can_be_used() {
    let process = process("a_device_is_one_where_no_loader_can_be_used").env("LD_LIBRARY_PATH", ".");
    process.run(|_| {
        for choices in [[DeviceChoice::Auto, DeviceChoice::Soft], [DeviceChoice::Soft, DeviceChoice::Auto]] {
            share_a_device(choices);
        }
        let config = Config { device: DeviceChoice::Auto, ..Config::default() };
        let drivers = local::ranks(1, &config, &StartState::default(), |comm| comm.describe().driver);
        assert!(drivers[0].contains("linked in"), "{drivers:?}");
    });
}
