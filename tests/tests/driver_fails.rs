//! A driver whose functions fail beside a call: the call's own outcome stands, and nothing of it outlasts its end.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod waits_gate;

use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice, EventChoice};
use ccl_core::{DataType, ReduceOp};
use ccl_tests::abi::{INT32, WITHOUT_WISHES, last_error, new_id};
use ccl_tests::local::{self, sum};
use ccl_tests::{Group, data};
use cclx::*;
use level_zero_sys::*;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use waits_gate::Gate;

/// Whether questions about events fail.
static LOOKS_FAIL: AtomicBool = AtomicBool::new(false);
/// Copies that go well, before one that doesn't; negative, all do.
static COPIES_BEFORE_FAILURE: AtomicI32 = AtomicI32::new(-1);
/// Waits for lists.
static WAITS: AtomicUsize = AtomicUsize::new(0);

fn failing(name: &CStr) -> *const c_void {
    match name.to_bytes() {
        b"zeEventQueryStatus" => query as *const c_void,
        b"zeCommandListAppendMemoryCopy" => copy as *const c_void,
        b"zeCommandListHostSynchronize" => wait as *const c_void,
        _ => ze_soft::resolve(name),
    }
}

unsafe extern "C" fn query(event: ze_event_handle_t) -> ze_result_t {
    if LOOKS_FAIL.load(SeqCst) {
        return ZE_RESULT_ERROR_DEVICE_LOST;
    }
    type Query = unsafe extern "C" fn(ze_event_handle_t) -> ze_result_t;
    // SAFETY: the driver's function of this name has this type.
    let real: Query = unsafe { std::mem::transmute(ze_soft::resolve(c"zeEventQueryStatus")) };
    // SAFETY: passed on from the caller.
    unsafe { real(event) }
}

unsafe extern "C" fn copy(
    list: ze_command_list_handle_t,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    signal: ze_event_handle_t,
    count: u32,
    waits: *mut ze_event_handle_t,
) -> ze_result_t {
    if COPIES_BEFORE_FAILURE.fetch_update(SeqCst, SeqCst, |left| (left >= 0).then(|| left - 1)) == Ok(0) {
        WAITS.store(0, SeqCst);
        return ZE_RESULT_ERROR_DEVICE_LOST;
    }
    type Copy = unsafe extern "C" fn(
        ze_command_list_handle_t,
        *mut c_void,
        *const c_void,
        usize,
        ze_event_handle_t,
        u32,
        *mut ze_event_handle_t,
    ) -> ze_result_t;
    // SAFETY: as above.
    let real: Copy = unsafe { std::mem::transmute(ze_soft::resolve(c"zeCommandListAppendMemoryCopy")) };
    // SAFETY: as above.
    unsafe { real(list, to, from, bytes, signal, count, waits) }
}

unsafe extern "C" fn wait(list: ze_command_list_handle_t, limit: u64) -> ze_result_t {
    WAITS.fetch_add(1, SeqCst);
    type Wait = unsafe extern "C" fn(ze_command_list_handle_t, u64) -> ze_result_t;
    // SAFETY: as above.
    let real: Wait = unsafe { std::mem::transmute(ze_soft::resolve(c"zeCommandListHostSynchronize")) };
    // SAFETY: as above.
    unsafe { real(list, limit) }
}

/// A process whose driver may fail.
fn process(test: &str, devices: usize) -> Group {
    let group = Group::new(test, 1).env("ZE_SOFT_DEVICES", devices).limit(Duration::from_secs(60));
    group.env("CCLX_DEVICE", "soft").env("CCLX_ON_ERROR", "log")
}

fn meddle() {
    assert!(ccl_ze::hooks::RESOLVER.set(failing).is_ok(), "resolved once");
}

/// The chain of collectives asks now and then how an earlier one is doing. That it gets no answer is not the failure of the
/// call that it has just enqueued.
#[test]
fn a_look_that_fails_is_not_the_calls_failure() {
    process("a_look_that_fails_is_not_the_calls_failure", 2).run(|_| {
        meddle();
        let config = Config { device: DeviceChoice::Soft, events: EventChoice::Counter, ..Config::default() };
        local::ranks(1, &config, &StartState::default(), |comm| {
            let streams = [comm.stream(0).unwrap(), comm.stream(1).unwrap()];
            let mut buffer = comm.alloc::<f32>(500).unwrap();
            let input: Vec<f32> = (0..500).map(|i| (i % 37) as f32).collect();
            buffer.write(&streams[0], &input).unwrap();
            let gate = Gate::new(&streams[0]);
            gate.hold(&streams[0]);
            LOOKS_FAIL.store(true, SeqCst);
            // More than are remembered before it is asked.
            for call in 0..80 {
                let done = comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &streams[call % 2]);
                assert!(done.is_ok(), "call {call}: {:?}", done.err());
            }
            LOOKS_FAIL.store(false, SeqCst);
            gate.open();
            for stream in &streams {
                assert_eq!(stream.synchronize_for(Duration::from_secs(20)), Ok(true));
            }
            let mut got = vec![0f32; 500];
            buffer.read(&streams[0], &mut got).unwrap();
            assert_eq!(got, input);
        });
    });
}

/// What is to be saved of a call can't be read: the saving ends, and the call goes on on all ranks.
#[test]
fn a_saving_that_cannot_read_lets_the_call_go_on() {
    process("a_saving_that_cannot_read_lets_the_call_go_on", 2).run(|_| {
        meddle();
        let folder = std::env::temp_dir().join(format!("ccl-capture-fails-{}", std::process::id()));
        let timeout = Duration::from_secs(5);
        let (device, capture) = (DeviceChoice::Soft, Some(folder.clone()));
        let config = Config { device, capture, timeout, ..Config::default() };
        let ready = Barrier::new(2);
        local::ranks(2, &config, &StartState::default(), |comm| {
            let (rank, stream) = (comm.rank(), comm.stream(0).unwrap());
            let inputs: Vec<_> = (0..2).map(|of| data::ordinary(DataType::Float32, 3, of, 900)).collect();
            let mut buffer = comm.alloc::<u8>(3600).unwrap();
            let at = buffer.as_ptr().cast();
            for failing in [0, 1] {
                buffer.write(&stream, &inputs[rank]).unwrap();
                ready.wait();
                if rank == 0 {
                    // An input; then an output, of the rank whose saving has not ended.
                    COPIES_BEFORE_FAILURE.store(failing, SeqCst);
                }
                ready.wait();
                // SAFETY: the buffer holds the message and is read before it goes.
                let done = unsafe { comm.all_reduce_raw(&sum(DataType::Float32, 900), at, at, &stream, &[]) };
                done.unwrap().wait().unwrap();
                ready.wait();
                assert_eq!(COPIES_BEFORE_FAILURE.swap(-1, SeqCst), -1, "one has failed");
                ready.wait();
                let mut got = vec![0u8; 3600];
                buffer.read(&stream, &mut got).unwrap();
                assert_eq!(got, data::expected(DataType::Float32, &inputs, None), "rank {rank}");
            }
        });
        std::fs::remove_dir_all(folder).unwrap();
    });
}

/// Of a step's inputs the second can't be copied: the first is waited for, since its caller may free it then.
#[test]
fn copies_of_a_failed_step_are_waited_for() {
    process("copies_of_a_failed_step_are_waited_for", 3).run(|_| {
        meddle();
        let (id, mut comms) = (new_id(), [null_mut(); 3]);
        let config = WITHOUT_WISHES;
        assert_eq!(onecclGroupStart(), 0);
        for (rank, comm) in comms.iter_mut().enumerate() {
            onecclSetDevice(rank as u32);
            // SAFETY: a place for the communicator, and a configuration.
            assert_eq!(unsafe { onecclCommInitRankConfig(comm, 3, id, rank as i32, &raw const config) }, 0);
        }
        assert_eq!(onecclGroupEnd(), 0, "{}", last_error(null_mut()));
        let messages = [1, 2].map(|to| (0..300).map(|i| to * 1000 + i).collect::<Vec<i32>>());
        let exchange = || {
            let mut got = [vec![0i32; 300], vec![0i32; 300]];
            // SAFETY: the buffers live until the group's end.
            unsafe {
                assert_eq!(onecclGroupStart(), 0);
                for (to, (sent, received)) in (1..).zip(messages.iter().zip(&mut got)) {
                    let (from, into) = (sent.as_ptr().cast(), received.as_mut_ptr().cast());
                    assert_eq!(onecclSend(from, 300, INT32, to, comms[0], null_mut()), 0);
                    assert_eq!(onecclRecv(into, 300, INT32, 0, comms[to as usize], null_mut()), 0);
                }
                (onecclGroupEnd(), got)
            }
        };
        assert_eq!(exchange(), (0, messages.clone()));
        COPIES_BEFORE_FAILURE.store(1, SeqCst);
        let (code, _) = exchange();
        assert_ne!(code, 0);
        assert_eq!(COPIES_BEFORE_FAILURE.load(SeqCst), -1, "the second copy has failed");
        assert!(WAITS.load(SeqCst) > 0, "the first copy was not waited for");
        assert_eq!(exchange(), (0, messages.clone()), "nothing was enqueued, and all go on");
        for comm in comms {
            // SAFETY: a handle.
            assert_eq!(unsafe { onecclCommDestroy(comm) }, 0);
        }
    });
}
