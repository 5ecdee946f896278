//! What is unfinished when it goes is given up after a while: nothing that its work still uses is freed.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod waits_gate;

use ccl_core::collective::Table;
use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice, OnError};
use ccl_tests::{Group, local};
use ccl_ze::{Communicator, Stream};
use level_zero_sys::*;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use waits_gate::Gate;

/// For what has nothing left to wait for, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// For what has to come.
const LONG: Duration = Duration::from_secs(20);
/// For what doesn't come: giving up takes three times as long and ten seconds.
const SHORT: Duration = Duration::from_secs(2);

fn config(timeout: Duration) -> Config {
    Config { device: DeviceChoice::Soft, on_error: Some(OnError::Log), timeout, ..Config::default() }
}

fn process(test: &str, devices: usize) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", devices).limit(Duration::from_secs(100))
}

/// Host memory of a table's size: what is allocated now, and how many there ever were.
static TABLES: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));
/// Contexts that were destroyed.
static CONTEXTS: AtomicUsize = AtomicUsize::new(0);

type AllocHost = unsafe extern "C" fn(
    ze_context_handle_t,
    *const ze_host_mem_alloc_desc_t,
    usize,
    usize,
    *mut *mut c_void,
) -> ze_result_t;
type Free = unsafe extern "C" fn(ze_context_handle_t, *mut c_void) -> ze_result_t;
type Destroy = unsafe extern "C" fn(ze_context_handle_t) -> ze_result_t;

fn noting(name: &CStr) -> *const c_void {
    match name.to_bytes() {
        b"zeMemAllocHost" => alloc_host as *const c_void,
        b"zeMemFree" => free as *const c_void,
        b"zeContextDestroy" => destroy as *const c_void,
        _ => ze_soft::resolve(name),
    }
}

unsafe extern "C" fn alloc_host(
    context: ze_context_handle_t,
    desc: *const ze_host_mem_alloc_desc_t,
    size: usize,
    alignment: usize,
    address: *mut *mut c_void,
) -> ze_result_t {
    // SAFETY: the driver's function of this name has this type.
    let real: AllocHost = unsafe { std::mem::transmute(ze_soft::resolve(c"zeMemAllocHost")) };
    // SAFETY: passed on from the caller, who gives a place for the address.
    let (code, made) = unsafe { (real(context, desc, size, alignment, address), *address) };
    if size == size_of::<Table>() {
        let mut tables = TABLES.lock().unwrap();
        tables.0.push(made as usize);
        tables.1 += 1;
    }
    code
}

unsafe extern "C" fn free(context: ze_context_handle_t, address: *mut c_void) -> ze_result_t {
    TABLES.lock().unwrap().0.retain(|table| *table != address as usize);
    // SAFETY: as above.
    let real: Free = unsafe { std::mem::transmute(ze_soft::resolve(c"zeMemFree")) };
    // SAFETY: passed on from the caller.
    unsafe { real(context, address) }
}

unsafe extern "C" fn destroy(context: ze_context_handle_t) -> ze_result_t {
    CONTEXTS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: as above.
    let real: Destroy = unsafe { std::mem::transmute(ze_soft::resolve(c"zeContextDestroy")) };
    // SAFETY: passed on from the caller.
    unsafe { real(context) }
}

/// The tables that are allocated now, and how many were made so far.
fn tables() -> (usize, usize) {
    let tables = TABLES.lock().unwrap();
    (tables.0.len(), tables.1)
}

/// The kernel of an exchange that is held back reads its table when it runs at last.
#[test]
fn the_table_of_an_unfinished_call_is_kept() {
    process("the_table_of_an_unfinished_call_is_kept", 2).run(|_| {
        assert!(ccl_ze::hooks::RESOLVER.set(noting).is_ok(), "resolved once");
        let exchange = |comm: &Communicator, stream: &Stream| {
            let counts = if comm.rank() == 0 { [40, 60] } else { [60, 20] };
            let send = comm.alloc::<f32>(100).unwrap();
            let mut recv = comm.alloc::<f32>(100).unwrap();
            let done = comm.all_to_all_v(&send, &counts, &mut recv, &counts, stream);
            (done.unwrap(), send, recv)
        };
        // What has finished lets its table go, or this would show nothing.
        local::ranks(2, &config(LONG), &StartState::default(), |comm| {
            exchange(&comm, &comm.stream(0).unwrap()).0.wait().unwrap();
        });
        assert_eq!(tables(), (0, 2));
        let issued = Barrier::new(2);
        local::ranks(2, &config(SHORT), &StartState::default(), |comm| {
            if comm.rank() == 1 {
                // Stays until the call is issued, and takes no part in it.
                issued.wait();
                return;
            }
            let stream = comm.stream(0).unwrap();
            let gate = Gate::new(&stream);
            gate.hold(&stream);
            let (done, send, recv) = exchange(&comm, &stream);
            issued.wait();
            drop((done, comm));
            assert_eq!(tables(), (1, 3), "freed under a call that still has to run");
            gate.open();
            assert!(stream.synchronize_for(SOON).unwrap(), "it gives up");
            drop((send, recv));
        });
    });
}

static FROM: [u8; 64] = [0x5A; 64];
static TO: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];

/// The last of a device that goes is a stream with work of the caller's that doesn't end: its context stays.
#[test]
fn the_context_of_an_unfinished_stream_is_kept() {
    process("the_context_of_an_unfinished_stream_is_kept", 1).run(|_| {
        assert!(ccl_ze::hooks::RESOLVER.set(noting).is_ok(), "resolved once");
        let stream_alone = |held: bool| {
            let mut streams = local::ranks(1, &config(SHORT), &StartState::default(), |comm| comm.stream(0).unwrap());
            let stream = streams.pop().unwrap();
            let gate = Gate::new(&stream);
            if held {
                gate.hold(&stream);
            }
            let to = TO.as_ptr().cast_mut().cast();
            // SAFETY: both live as long as the process, and of the one only atomics are asked.
            unsafe { stream.copy(to, FROM.as_ptr().cast(), FROM.len(), &[]).unwrap() };
            gate
        };
        let copied = || TO.iter().all(|byte| byte.load(Ordering::SeqCst) == FROM[0]);
        // What has finished lets its context go, or this would show nothing.
        stream_alone(false);
        assert!(copied());
        assert_eq!(CONTEXTS.load(Ordering::SeqCst), 1);
        TO.iter().for_each(|byte| byte.store(0, Ordering::SeqCst));
        let gate = stream_alone(true);
        assert!(!copied());
        assert_eq!(CONTEXTS.load(Ordering::SeqCst), 1, "destroyed under a list that still has to run");
        gate.open();
        let since = Instant::now();
        while !copied() {
            assert!(since.elapsed() < SOON, "what was given up runs on");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
