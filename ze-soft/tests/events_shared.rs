//! Events of both kinds between processes, and what their handles leave behind.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

#[path = "executor_support/mod.rs"]
mod support;

use level_zero_sys::*;
use std::ffi::c_char;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::*;

// The child is this binary again, running the one test below that does nothing without its variable.

const CHILD: &str = "ZE_SOFT_TEST_CHILD";
/// Where the child finds the descriptors that were passed to it.
const CHILD_FDS: [RawFd; 2] = [200, 201];

type Bytes = [c_char; ZE_MAX_IPC_HANDLE_SIZE];

fn descriptor(handle: &Bytes) -> RawFd {
    RawFd::from_ne_bytes(std::array::from_fn(|index| handle[index] as u8))
}

fn with_descriptor(mut handle: Bytes, number: RawFd) -> Bytes {
    for (place, byte) in handle.iter_mut().zip(number.to_ne_bytes()) {
        *place = byte as c_char;
    }
    handle
}

fn text(handle: &Bytes) -> String {
    handle.iter().map(|byte| format!("{:02x}", *byte as u8)).collect()
}

fn parse(text: &str) -> Bytes {
    std::array::from_fn(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap() as c_char)
}

/// A page that both processes map.
fn shared_cells(file: RawFd) -> &'static [AtomicU64] {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new shared mapping of a file of that length.
    let start = unsafe { libc::mmap(null_mut(), 4096, protection, libc::MAP_SHARED, file, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: it stays mapped, and atomics may be shared between processes.
    unsafe { std::slice::from_raw_parts(start.cast(), 512) }
}

fn child(role: &str, handles: &[&Bytes], passed: [RawFd; 2]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_other_process", "--nocapture"]);
    let handles: Vec<String> = handles.iter().map(|handle| text(handle)).collect();
    command.env(CHILD, format!("{role} {}", handles.join(" ")));
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            for (from, to) in passed.iter().zip(CHILD_FDS) {
                if libc::dup2(*from, to) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.spawn().unwrap()
}

#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(CHILD) else { return };
    let mut words = role.split(' ');
    let role = words.next().unwrap();
    let handles: Vec<Bytes> = words.map(parse).collect();
    let soft = Soft::new();
    let memory = shared_cells(CHILD_FDS[1]);
    let list = soft.immediate(1, 0);
    // SAFETY: live handles and places, also below.
    unsafe {
        let open = |handle: &Bytes, number| {
            let mut pool = null_mut();
            let ipc = ze_ipc_event_pool_handle_t { data: with_descriptor(*handle, number) };
            ((soft.ze.zeEventPoolOpenIpcHandle)(soft.context, ipc, &mut pool), pool)
        };
        match role {
            "pool" => {
                assert_eq!(open(&handles[0], -1).0, ZE_RESULT_ERROR_INVALID_ARGUMENT);
                assert_eq!(open(&handles[0], CHILD_FDS[1]).0, ZE_RESULT_ERROR_INVALID_ARGUMENT, "another file");
                let (code, pool) = open(&handles[0], CHILD_FDS[0]);
                ok(code);
                assert_eq!((soft.ze.zeEventPoolDestroy)(pool), ZE_RESULT_ERROR_INVALID_ARGUMENT, "it is to be closed");
                let [go, done, set] = [0, 1, 2].map(|index| soft.event(pool, index));
                ok(soft.query(set));
                // The device waits for the other process, then the host does.
                soft.store(list, &memory[1], 11, done, &[go]);
                ok(soft.wait(go, NEVER));
                assert_eq!(read(&memory[0]), 10);
                ok(soft.wait(done, NEVER));
                [go, done, set].into_iter().for_each(|event| soft.destroy_event(event));
                ok((soft.ze.zeEventPoolCloseIpcHandle)(pool));
            }
            "counted" => {
                let open_counted = soft.ze.zeEventCounterBasedOpenIpcHandle.unwrap();
                let import = |handle: &Bytes, number| {
                    let mut event = null_mut();
                    let ipc = ze_ipc_event_counter_based_handle_t { data: with_descriptor(*handle, number) };
                    (open_counted(soft.context, ipc, &mut event), event)
                };
                assert_eq!(import(&handles[0], CHILD_FDS[1]).0, ZE_RESULT_ERROR_INVALID_ARGUMENT, "another file");
                let (code, event) = import(&handles[0], CHILD_FDS[0]);
                ok(code);
                let (code, never) = import(&handles[1], -1);
                ok(code);
                ok(soft.query(never));
                assert_eq!(soft.query(event), ZE_RESULT_NOT_READY);
                assert_eq!(soft.wait(event, 1_000_000), ZE_RESULT_NOT_READY);
                let cell = &cells(1)[0];
                soft.store(list, cell, 1, null_mut(), &[event]);
                memory[5].store(1, Ordering::Release);
                ok(soft.wait(event, NEVER));
                assert_eq!(read(&memory[0]), 10);
                ok(soft.wait_list(list, NEVER));
                // It may signal the event it opened, which then stands for its own list.
                soft.store(list, &memory[1], 11, event, &[]);
                ok(soft.wait(event, NEVER));
                let close = soft.ze.zeEventCounterBasedCloseIpcHandle.unwrap();
                ok(close(event));
                ok(close(never));
            }
            role => panic!("no role {role}"),
        }
    }
    memory[6].store(1, Ordering::Release);
}

fn memory_file() -> (std::os::fd::OwnedFd, &'static [AtomicU64]) {
    let file = nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::MFD_CLOEXEC).unwrap();
    nix::unistd::ftruncate(&file, 4096).unwrap();
    let cells = shared_cells(file.as_raw_fd());
    (file, cells)
}

fn join(mut child: Child, finished: &AtomicU64) {
    eventually(|| child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
    assert_eq!(read(finished), 1, "the child ran to its end");
}

#[test]
fn a_pool_between_processes() {
    let soft = Soft::new();
    let pool = soft.pool(3, ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_IPC);
    let [go, done, set] = [0, 1, 2].map(|index| soft.event(pool, index));
    ok(soft.signal_host(set));
    let mut ipc = ze_ipc_event_pool_handle_t::default();
    // SAFETY: a live pool and a place.
    ok(unsafe { (soft.ze.zeEventPoolGetIpcHandle)(pool, &mut ipc) });
    let (file, memory) = memory_file();
    let child = child("pool", &[&ipc.data], [descriptor(&ipc.data), file.as_raw_fd()]);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(soft.query(done), ZE_RESULT_NOT_READY);
    let list = soft.immediate(0, 0);
    soft.store(list, &memory[0], 10, go, &[]);
    ok(soft.wait(done, SOON));
    assert_eq!(read(&memory[1]), 11);
    join(child, &memory[6]);
    // SAFETY: live handles that aren't used again.
    unsafe {
        ok((soft.ze.zeEventPoolPutIpcHandle)(soft.context, ipc));
        ok((soft.ze.zeEventPoolDestroy)(pool));
    }
}

#[test]
fn a_counter_based_event_between_processes() {
    let soft = Soft::new();
    let flags = ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE | ZE_EVENT_COUNTER_BASED_FLAG_IPC;
    let [event, never] = [soft.counted_with(flags), soft.counted_with(flags)];
    let [gate] = soft.events();
    let list = soft.immediate(0, 0);
    let (file, memory) = memory_file();
    // Some history, so that the counter isn't at its start.
    for _ in 0..3 {
        soft.store(list, &memory[0], 1, event, &[]);
    }
    soft.store(list, &memory[0], 10, event, &[gate]);
    let export = soft.ze.zeEventCounterBasedGetIpcHandle.unwrap();
    let mut handles = [ze_ipc_event_counter_based_handle_t::default(); 2];
    // SAFETY: live events and places.
    unsafe {
        ok(export(event, &mut handles[0]));
        ok(export(never, &mut handles[1]));
    }
    let handles = handles.map(|handle| handle.data);
    let child = child("counted", &[&handles[0], &handles[1]], [descriptor(&handles[0]), file.as_raw_fd()]);
    eventually(|| read(&memory[5]) == 1);
    ok(soft.signal_host(gate));
    ok(soft.wait_list(list, NEVER));
    join(child, &memory[6]);
    assert_eq!(read(&memory[1]), 11);
}

#[test]
fn nothing_leaks() {
    let soft = Soft::new();
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let cycle = || {
        let pool = soft.pool(100, ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_IPC);
        let [event, other] = [0, 99].map(|index| soft.event(pool, index));
        let counted = soft.counted_with(ZE_EVENT_COUNTER_BASED_FLAG_IPC);
        let list = soft.immediate(0, 0);
        let cell = &cells(1)[0];
        soft.store(list, cell, 1, event, &[]);
        soft.store(list, cell, 1, counted, &[event]);
        let mut ipc = ze_ipc_event_pool_handle_t::default();
        let mut ipc_counted = ze_ipc_event_counter_based_handle_t::default();
        // SAFETY: live handles and places; this process may open its own handles.
        unsafe {
            ok((soft.ze.zeEventPoolGetIpcHandle)(pool, &mut ipc));
            let opened = made(|opened| (soft.ze.zeEventPoolOpenIpcHandle)(soft.context, ipc, opened));
            let same = soft.event(opened, 0);
            ok(soft.wait(same, SOON));
            ok((soft.ze.zeEventCounterBasedGetIpcHandle.unwrap())(counted, &mut ipc_counted));
            let open = soft.ze.zeEventCounterBasedOpenIpcHandle.unwrap();
            let copy = made(|copy| open(soft.context, ipc_counted, copy));
            ok(soft.wait(copy, SOON));
            // Pools before their events, importers after exporters: any order will do.
            ok((soft.ze.zeEventPoolDestroy)(pool));
            soft.destroy_event(event);
            ok((soft.ze.zeEventPoolCloseIpcHandle)(opened));
            soft.destroy_event(same);
            soft.destroy_event(other);
            soft.destroy_list(list);
            soft.destroy_event(counted);
            ok((soft.ze.zeEventCounterBasedCloseIpcHandle.unwrap())(copy));
        }
    };
    cycle();
    // A command's own references end just after its signal.
    std::thread::sleep(Duration::from_millis(20));
    let before = (fds(), maps());
    (0..100).for_each(|_| cycle());
    eventually(|| fds() == before.0 && maps() <= before.1 + 2);
}
