//! What SPIR-V kernels do at the same time: wait for one another across work-groups, queues, devices and processes.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

mod memory_bed;
mod opencl_bed;

use level_zero_sys::*;
use memory_bed::*;
use opencl_bed::*;
use std::ffi::CStr;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// These tests share the machine's few work-groups, so they take turns.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn suggested(bed: &Bed, kernel: ze_kernel_handle_t) -> u32 {
    let mut groups = 0;
    ok(unsafe { (bed.ze.zeKernelSuggestMaxCooperativeGroupCount)(kernel, &raw mut groups) });
    groups
}

/// Launches groups that all wait for each other, split over lists, and checks that each saw all.
fn meet(bed: &Bed, kernel: ze_kernel_handle_t, parts: &[(&List, u32)]) {
    let total = parts.iter().map(|(_, groups)| groups).sum::<u32>();
    let there = bed.alloc(0, 4096);
    let seen = bed.alloc(0, 4096).cast::<u32>();
    let mut first = 0;
    for (list, groups) in parts {
        let arguments = [pointer(there), value(first), value(total), value(TURNS), pointer(seen)];
        set_all(bed, kernel, &arguments);
        ok(list.launch_cooperative(kernel, *groups));
        first += groups;
    }
    parts.iter().for_each(|(list, _)| list.wait());
    assert_eq!(unsafe { std::slice::from_raw_parts(seen, total as usize) }, vec![total; total as usize]);
    ok(bed.free(there));
    ok(bed.free(seen.cast()));
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn as_many_groups_as_suggested_are_resident() {
    let _alone = alone();
    let bed = bed();
    let lists = [List::new(&bed, 0, 0), List::new(&bed, 0, 1)];
    let together = kernel(&bed, c"together");
    set_group(&bed, together, [32, 1, 1]);
    let groups = suggested(&bed, together);
    println!("{groups} work-groups are resident");
    for _ in 0..10 {
        meet(&bed, together, &[(&lists[0], groups)]);
        // Of one launch, or of two at once.
        let half = groups / 2;
        meet(&bed, together, &[(&lists[0], half), (&lists[1], groups - half)]);
    }
    assert_eq!(lists[0].launch_cooperative(together, groups + 1), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert!(bed.description().contains(&format!("at most {groups} run at the same time")), "{}", bed.description());
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn fewer_compute_units_can_be_asked_for() {
    if is_child() {
        let bed = bed();
        return assert_eq!(suggested(&bed, kernel(&bed, c"together")), 1);
    }
    let (mut child, _stream) = spawn_ignored("fewer_compute_units_can_be_asked_for", &[("ZE_SOFT_COMPUTE_UNITS", "1")]);
    assert!(child.wait().unwrap().success());
}

/// Ping-pong of two kernels of this process; the time of a round, in which each side sees the other once.
fn play(bed: &Bed, places: [(usize, u32); 2], rounds: u32) -> Duration {
    let cells = [bed.alloc(0, 4096), bed.alloc(0, 4096)];
    let results = bed.alloc(0, 4096).cast::<u32>();
    let lists = places.map(|(device, ordinal)| List::new(bed, device, ordinal));
    // One kernel object for both: each launch keeps the arguments it was made with.
    let pingpong = kernel(bed, c"pingpong");
    let start = Instant::now();
    for (side, list) in lists.iter().enumerate() {
        let (from, to, result) = (cells[side], cells[1 - side], unsafe { results.add(side) });
        let arguments = [pointer(from), pointer(to), value(rounds), value(side as u32), value(TURNS), pointer(result)];
        set_all(bed, pingpong, &arguments);
        ok(list.launch(pingpong, [1, 1, 1]));
    }
    lists.iter().for_each(List::wait);
    let time = start.elapsed() / rounds;
    assert_eq!(unsafe { (results.read(), results.add(1).read()) }, (rounds, rounds));
    time
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn kernels_on_two_ordinals_run_at_once() {
    let _alone = alone();
    let bed = bed();
    for (rounds, places) in [(20, [(0, 0), (0, 1)]), (20, [(0, 1), (0, 0)]), (20, [(1, 0), (3, 0)])] {
        let time = play(&bed, places, rounds);
        println!("two kernels of one process at {places:?}: {:?} a hop", time / 2);
    }
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn kernels_of_two_processes_run_at_once() {
    const ROUNDS: u32 = 20;
    let side = |bed: &Bed, from: *const u8, to: *const u8, serves: u32| {
        let result = bed.alloc(0, 64).cast::<u32>();
        let list = List::new(bed, 0, 0);
        let start = Instant::now();
        let arguments = [pointer(from), pointer(to), value(ROUNDS), value(serves), value(TURNS), pointer(result)];
        list.run(c"pingpong", &arguments, [1, 1, 1], [1, 1, 1]);
        assert_eq!(unsafe { result.read() }, ROUNDS);
        start.elapsed() / ROUNDS
    };
    if is_child() {
        let bed = bed();
        let stream = parent();
        let (_, descriptor) = receive(&stream);
        let handle = bed.handle_of(descriptor.as_raw_fd()).unwrap();
        // The peer's memory, mapped for another device than the one it belongs to.
        let memory = bed.open(2, handle).unwrap();
        ok(bed.put(handle));
        side(&bed, unsafe { memory.add(4096) }, memory, 1);
        ok(bed.close(memory));
        return (&stream).write_all(&[1]).unwrap();
    }
    let _alone = alone();
    let bed = bed();
    let memory = bed.alloc(1, 8192);
    let handle = bed.handle(memory).unwrap();
    let (mut child, stream) = spawn_ignored("kernels_of_two_processes_run_at_once", &[]);
    send(&stream, &handle, bed.descriptor(handle).unwrap());
    let time = side(&bed, memory, unsafe { memory.add(4096) }, 0);
    println!("two processes: {:?} a hop, the other's start included", time / 2);
    (&stream).read_exact(&mut [0]).unwrap();
    assert!(child.wait().unwrap().success());
    ok(bed.put(handle));
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn launches_cost_little() {
    let _alone = alone();
    let bed = bed();
    let list = List::new(&bed, 0, 0);
    let time = |name: &CStr, arguments: &[Argument]| {
        let kernel = kernel(&bed, name);
        set_all(&bed, kernel, arguments);
        let mut least = Duration::MAX;
        for _ in 0..20 {
            let start = Instant::now();
            for _ in 0..10 {
                ok(list.launch(kernel, [1, 1, 1]));
            }
            list.wait();
            least = least.min(start.elapsed() / 10);
        }
        println!("a launch of {name:?} takes {least:?}");
        least
    };
    let out = bed.alloc(0, 4096);
    let least = time(c"nothing", &[]).max(time(c"places", &[pointer(out)]));
    assert!(least < Duration::from_millis(5), "{least:?}");
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn a_failed_launch_loses_the_device() {
    if is_child() {
        let bed = bed();
        let list = List::new(&bed, 0, 0);
        let data = bed.alloc(0, 4096);
        let reverse = kernel(&bed, c"reverse");
        // No machine has that much local memory.
        set_all(&bed, reverse, &[pointer(data), Argument::Local(1 << 40), pointer(data)]);
        ok(list.launch(reverse, [1, 1, 1]));
        let wait = || unsafe { (bed.ze.zeCommandListHostSynchronize)(list.list, SOON) };
        assert_eq!(wait(), ZE_RESULT_ERROR_DEVICE_LOST);
        assert!(bed.description().contains("a launch of kernel reverse was not executed"), "{}", bed.description());
        assert_eq!(list.launch(reverse, [1, 1, 1]), ZE_RESULT_ERROR_DEVICE_LOST);
        assert_eq!(unsafe { (bed.ze.zeDeviceGetStatus)(bed.devices[0]) }, ZE_RESULT_ERROR_DEVICE_LOST);
        return;
    }
    let (mut child, _stream) = spawn_ignored("a_failed_launch_loses_the_device", &[]);
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "needs an OpenCL CPU runtime: .ci/beds/opencl.sh"]
fn a_process_can_end_while_a_kernel_waits() {
    if is_child() {
        let bed = bed();
        let list = List::new(&bed, 0, 0);
        let cells = bed.alloc(0, 4096);
        let pingpong = kernel(&bed, c"pingpong");
        let arguments = [pointer(cells), pointer(cells), value(1u32), value(0u32), value(u64::MAX), pointer(cells)];
        set_all(&bed, pingpong, &arguments);
        ok(list.launch(pingpong, [1, 1, 1]));
        let wait = unsafe { (bed.ze.zeCommandListHostSynchronize)(list.list, 50_000_000) };
        assert_eq!(wait, ZE_RESULT_NOT_READY);
        std::process::exit(7);
    }
    let _alone = alone();
    let (mut child, _stream) = spawn_ignored("a_process_can_end_while_a_kernel_waits", &[]);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if start.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status, Some(7));
}
