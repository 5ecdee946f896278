//! Executors: order, independence, waiting, and faults.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

#[path = "executor_support/mod.rs"]
mod support;

use level_zero_sys::*;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::*;
use ze_soft::ext::*;

/// How often a consumer on one ordinal saw what a producer on another had not yet written.
fn stale_reads(soft: &Soft, edge: impl Fn(usize) -> Option<ze_event_handle_t>, host_waits: bool) -> usize {
    let (producer, consumer) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let mut stale = 0;
    for round in 0..30 {
        let data = cells(2);
        let event = edge(round);
        let edges: Vec<_> = event.into_iter().collect();
        soft.store(producer, &data[0], 1, event.unwrap_or(null_mut()), &[]);
        let (to, from) = ((&raw const data[1]).cast_mut().cast(), (&raw const data[0]).cast());
        let copy = soft.ze.zeCommandListAppendMemoryCopy;
        // SAFETY: live handles; the cells live for ever, and only commands touch them until both lists are done.
        ok(unsafe { copy(consumer, to, from, 8, null_mut(), edges.len() as u32, edges.as_ptr().cast_mut()) });
        if host_waits {
            ok(soft.wait_list(consumer, NEVER));
        }
        for list in [producer, consumer] {
            ok(soft.wait_list(list, SOON));
        }
        stale += usize::from(read(&data[1]) == 0);
    }
    stale
}

#[test]
fn between_ordinals_only_events_order() {
    let soft = Soft::new();
    soft.fault(ZESOFT_FAULT_DELAY_QUEUE, 0, 0, 2_000_000, 0);
    let events: [_; 30] = soft.events();
    for host_waits in [false, true] {
        assert_eq!(stale_reads(&soft, |_| Some(soft.counted()), host_waits), 0);
        events.into_iter().for_each(|event| ok(soft.reset_host(event)));
        assert_eq!(stale_reads(&soft, |round| Some(events[round]), host_waits), 0);
        assert!(stale_reads(&soft, |_| None, host_waits) > 15, "a missing edge must show");
    }
}

#[test]
fn a_wait_may_be_submitted_before_its_signal() {
    let soft = Soft::new();
    for (round, timeout) in [NEVER, SOON, NEVER, SOON].into_iter().enumerate() {
        let [event] = soft.events();
        let log = cells(10);
        let (first, second) = (soft.immediate(0, 0), soft.immediate(0, 0));
        soft.log(first, log, 2, null_mut(), &[event]);
        soft.log(first, log, 3, null_mut(), &[]);
        if round > 1 {
            // The thread has seen it and waits.
            std::thread::sleep(Duration::from_millis(20));
        }
        soft.log(second, log, 1, event, &[]);
        ok(soft.wait_list(first, timeout));
        assert_eq!(entries(log), [1, 2, 3]);
    }
}

#[test]
fn lists_of_one_ordinal_run_in_the_order_of_issue() {
    let soft = Soft::new();
    let lists: Vec<_> = (0..8).map(|_| soft.immediate(0, 0)).collect();
    let [gate] = soft.events();
    let log = cells(200);
    // Held back by a command that runs, not by waits, until all is issued.
    let release = &cells(1)[0];
    soft.spin_now(lists[0], release, null_mut());
    for value in 0..100u64 {
        soft.log(lists[(value as usize * 5) % 8], log, value, null_mut(), &[]);
    }
    soft.log(lists[0], log, 100, gate, &[]);
    release.store(1, Ordering::Release);
    ok(soft.wait(gate, NEVER));
    assert_eq!(entries(log), (0..=100).collect::<Vec<_>>());
}

#[test]
fn nothing_needs_a_host_that_waits() {
    let soft = Soft::new();
    let cell = &cells(1)[0];
    let (first, second) = (soft.immediate(2, 0), soft.immediate(2, 1));
    for pause in [0, 5, 250] {
        // After the last pause the threads sleep for good.
        std::thread::sleep(Duration::from_millis(pause));
        let event = soft.counted();
        cell.store(0, Ordering::Release);
        soft.store(first, cell, 1, event, &[]);
        soft.store(second, cell, 2, null_mut(), &[event]);
        eventually(|| read(cell) == 2);
    }
    // Blocked for long, then signalled by the host.
    let [gate] = soft.events();
    soft.store(first, cell, 3, null_mut(), &[gate]);
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(read(cell), 2);
    ok(soft.signal_host(gate));
    eventually(|| read(cell) == 3);
}

#[test]
fn a_long_kernel_holds_up_neither_timed_waits_nor_appends() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let other = soft.immediate(0, 0);
    for drained in [false, true] {
        let release = &cells(1)[0];
        let done = soft.counted();
        std::thread::scope(|scope| {
            let started = &cells(1)[0];
            soft.launch(list, "spin", [&raw const *release as u64, &raw const *started as u64], done, &[]);
            if drained {
                let (ze, event) = (soft.ze, done as usize);
                // SAFETY: the event lives until the scope ends.
                scope.spawn(move || ok(unsafe { (ze.zeEventHostSynchronize)(event as ze_event_handle_t, NEVER) }));
            }
            eventually(|| read(started) == 1);
            let least = least_of(Duration::from_millis(4), || {
                let (result, time) = timed(|| soft.wait(done, 3_000_000));
                assert_eq!(result, ZE_RESULT_NOT_READY);
                assert!(time >= Duration::from_millis(3));
                time
            });
            assert!(least < Duration::from_millis(4), "a wait of 3 ms took {least:?}");
            assert_eq!(soft.wait_list(list, 1_000_000), ZE_RESULT_NOT_READY);
            let cell = &cells(1)[0];
            let times = (0..20).map(|value| timed(|| soft.store(other, cell, value, null_mut(), &[])).1);
            let least = times.min().unwrap();
            assert!(least < Duration::from_millis(1), "an append took {least:?}");
            assert_eq!(soft.query(done), ZE_RESULT_NOT_READY);
            release.store(1, Ordering::Release);
            ok(soft.wait(done, SOON));
        });
        ok(soft.wait_list(other, NEVER));
    }
}

#[test]
fn a_waiter_runs_nothing_that_was_issued_later() {
    let soft = Soft::new();
    let [gate] = soft.events();
    let release = &cells(1)[0];
    let (list, other) = (soft.immediate(0, 0), soft.immediate(0, 0));
    let cell = &cells(1)[0];
    let event = soft.counted();
    soft.store(list, cell, 1, event, &[]);
    let started = &cells(1)[0];
    // This kernel needs what the waiter does next: run by the waiter it would never end.
    soft.launch(other, "spin", [&raw const *release as u64, &raw const *started as u64], null_mut(), &[]);
    ok(soft.wait(event, NEVER));
    assert_eq!(read(cell), 1);
    release.store(1, Ordering::Release);
    ok(soft.wait_list(other, SOON));
    // The same where the host itself signals what is waited for, which a command signalled the time before.
    let release = &cells(1)[0];
    // SAFETY: a live list and event.
    ok(unsafe { (soft.ze.zeCommandListAppendSignalEvent)(list, gate) });
    ok(soft.wait(gate, NEVER));
    ok(soft.reset_host(gate));
    let start = Instant::now();
    soft.launch(other, "spin", [&raw const *release as u64, &raw const *started as u64], null_mut(), &[]);
    std::thread::scope(|scope| {
        let (ze, event) = (soft.ze, gate as usize);
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            // SAFETY: the event lives until the scope ends.
            ok(unsafe { (ze.zeEventHostSignal)(event as ze_event_handle_t) });
        });
        ok(soft.wait(gate, NEVER));
        assert!(start.elapsed() < Duration::from_secs(10), "the waiter ran the kernel that waits for it");
        release.store(1, Ordering::Release);
    });
    ok(soft.wait_list(other, SOON));
}

#[test]
fn a_lone_caller_runs_the_commands_itself_across_ordinals() {
    extern "C" fn note(data: *mut std::ffi::c_void) {
        // SAFETY: the test passes a cell; gettid has no preconditions.
        unsafe { (*data.cast::<AtomicU64>()).store(libc::gettid() as u64, Ordering::Release) };
    }
    let soft = Soft::new();
    let (first, second) = (soft.immediate(3, 0), soft.immediate(3, 1));
    // SAFETY: no preconditions.
    let me = unsafe { libc::gettid() } as u64;
    let rounds = 200;
    let mut mine = 0;
    for _ in 0..rounds {
        let ran = cells(2);
        let [edge, done] = [soft.counted(), soft.counted()];
        for (list, cell, signal, waits) in [(first, &ran[0], edge, 0), (second, &ran[1], done, 1)] {
            let append = soft.ze.zeCommandListAppendHostFunction.unwrap();
            let data = (&raw const *cell).cast_mut().cast();
            // SAFETY: live handles, one wait at most.
            ok(unsafe { append(list, Some(note), data, std::ptr::null(), signal, waits, [edge].as_mut_ptr()) });
        }
        ok(soft.wait(done, NEVER));
        mine += ran.iter().filter(|cell| read(cell) == me).count();
    }
    assert!(mine > rounds, "only {mine} of {} commands ran in the thread that waits for them", 2 * rounds);
}

#[test]
fn several_threads_drain_but_one_command_runs_at_a_time() {
    let soft = Soft::new();
    let state = cells(2);
    let arguments = [&raw const state[0] as u64, &raw const state[1] as u64];
    let kernel = soft.kernel("alone") as usize;
    let handles: Vec<_> = (0..4).map(|_| (soft.immediate(0, 0) as usize, soft.counted() as usize)).collect();
    std::thread::scope(|scope| {
        for (list, event) in handles {
            let soft = &soft;
            let ze = soft.ze;
            let launch = ze.zeCommandListAppendLaunchKernelWithArguments.unwrap();
            scope.spawn(move || {
                for round in 0..500 {
                    let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
                    let sizes = ze_group_size_t { groupSizeX: 1, groupSizeY: 1, groupSizeZ: 1 };
                    let mut pointers = arguments.each_ref().map(|value| (&raw const *value).cast_mut().cast());
                    let (list, event) = (list as ze_command_list_handle_t, event as ze_event_handle_t);
                    let kernel = kernel as ze_kernel_handle_t;
                    let none: *mut ze_event_handle_t = null_mut();
                    // SAFETY: live handles, each list and event used by one thread.
                    unsafe {
                        ok(launch(list, kernel, groups, sizes, pointers.as_mut_ptr(), none.cast(), event, 0, none));
                        let timeout = if round % 7 == 0 { SOON } else { NEVER };
                        ok((ze.zeEventHostSynchronize)(event, timeout));
                    }
                }
            });
        }
    });
    assert_eq!((read(&state[0]), read(&state[1])), (0, 1));
}

#[test]
fn a_delayed_queue_is_late() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let cell = &cells(1)[0];
    soft.fault(ZESOFT_FAULT_DELAY_QUEUE, 0, 0, 10_000_000, 0);
    for timeout in [NEVER, SOON] {
        let event = soft.counted();
        soft.store(list, cell, 1, event, &[]);
        let (result, time) = timed(|| soft.wait(event, timeout));
        ok(result);
        assert!(time >= Duration::from_millis(9), "{time:?}");
    }
    soft.clear_faults();
    let (result, _) = timed(|| soft.wait_list(list, NEVER));
    ok(result);
}

#[test]
fn a_lost_signal_never_comes() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let cell = &cells(1)[0];
    for counted in [false, true] {
        let [first, second] = if counted { [(); 2].map(|()| soft.counted()) } else { soft.events() };
        soft.fault(ZESOFT_FAULT_LOSE_SIGNAL, 0, 0, 2, 0);
        soft.store(list, cell, 1, first, &[]);
        soft.store(list, cell, 2, second, &[]);
        ok(soft.wait_list(list, SOON));
        assert_eq!(read(cell), 2, "the command itself ran");
        ok(soft.query(first));
        assert_eq!(soft.wait(second, 10_000_000), ZE_RESULT_NOT_READY);
        // Only that one is lost.
        soft.store(list, cell, 3, first, &[]);
        ok(soft.wait(first, SOON));
        ok(soft.wait_list(list, SOON));
    }
}

#[test]
fn reordering_keeps_to_lists_and_events() {
    let soft = Soft::new();
    let mut orders = std::collections::BTreeSet::new();
    for seed in 1..=10 {
        soft.fault(ZESOFT_FAULT_REORDER, 0, 0, 0, seed);
        let lists: Vec<_> = (0..4).map(|_| soft.immediate(0, 0)).collect();
        let log = cells(100);
        let edge = soft.counted();
        let release = &cells(1)[0];
        let blocker = soft.immediate(0, 0);
        soft.spin_now(blocker, release, null_mut());
        for step in 0..5u64 {
            for (index, list) in lists.iter().enumerate() {
                // List 1's last command waits for list 0's last.
                let (signal, waits) = match (index, step) {
                    (0, 4) => (edge, vec![]),
                    (1, 4) => (null_mut(), vec![edge]),
                    _ => (null_mut(), vec![]),
                };
                soft.log(*list, log, 10 * index as u64 + step, signal, &waits);
            }
        }
        release.store(1, Ordering::Release);
        for list in &lists {
            ok(soft.wait_list(*list, if seed % 2 == 0 { NEVER } else { SOON }));
        }
        let order = entries(log);
        let place = |value| order.iter().position(|&entry| entry == value).unwrap();
        for index in 0..4 {
            assert!((0..4).all(|step| place(10 * index + step) < place(10 * index + step + 1)), "{order:?}");
        }
        assert!(place(4) < place(14), "{order:?}");
        orders.insert(order);
        soft.clear_faults();
    }
    assert!(orders.len() > 5, "ten seeds gave only {} orders", orders.len());
}

#[test]
fn executors_of_a_device_are_independent() {
    let soft = Soft::new();
    let release = &cells(1)[0];
    let (stuck, free) = (soft.immediate(1, 0), [soft.immediate(1, 1), soft.immediate(1, 2), soft.immediate(2, 0)]);
    soft.spin_now(stuck, release, null_mut());
    for (timeout, list) in [NEVER, SOON, NEVER].into_iter().zip(free) {
        // SAFETY: a live list; no events.
        ok(unsafe { (soft.ze.zeCommandListAppendBarrier)(list, null_mut(), 0, null_mut()) });
        ok(soft.wait_list(list, timeout));
    }
    assert_eq!(soft.wait_list(stuck, 0), ZE_RESULT_NOT_READY);
    release.store(1, Ordering::Release);
    ok(soft.wait_list(stuck, SOON));
}

#[test]
fn what_a_command_wrote_is_seen_by_whoever_sees_its_event() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let pool = soft.pool(1, ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
    let event = soft.event(pool, 0);
    let mut source = vec![0u8; 1 << 16];
    let mut target = vec![0u8; 1 << 16];
    for round in 1..200u32 {
        source.fill(round as u8);
        let (to, from) = (target.as_mut_ptr().cast(), source.as_ptr().cast());
        // SAFETY: both buffers live until the event says that the copy is done.
        ok(unsafe { (soft.ze.zeCommandListAppendMemoryCopy)(list, to, from, 1 << 16, event, 0, null_mut()) });
        while soft.query(event) == ZE_RESULT_NOT_READY {
            std::thread::yield_now();
        }
        assert!(target.iter().all(|&byte| byte == round as u8));
        ok(soft.reset_host(event));
    }
}

#[test]
fn idle_threads_cost_nothing() {
    let soft = Soft::new();
    let cpu = || {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: a valid place; zeros are a valid value of it.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let [gate] = soft.events();
    let lists = [0, 1].map(|ordinal| soft.immediate(0, ordinal));
    let cell = &cells(1)[0];
    for list in lists {
        soft.store(list, cell, 1, null_mut(), &[]);
        ok(soft.wait_list(list, NEVER));
    }
    std::thread::sleep(Duration::from_millis(200));
    let (before, count) = (cpu(), threads());
    std::thread::sleep(Duration::from_millis(500));
    let idle = cpu() - before;
    assert!(idle < Duration::from_millis(5), "idle threads took {idle:?} in 500 ms");
    // Something that waits for the host for long costs little.
    soft.store(lists[0], cell, 2, null_mut(), &[gate]);
    std::thread::sleep(Duration::from_millis(100));
    let before = cpu();
    std::thread::sleep(Duration::from_millis(500));
    let blocked = cpu() - before;
    assert!(blocked < Duration::from_millis(50), "a blocked list took {blocked:?} in 500 ms");
    ok(soft.signal_host(gate));
    ok(soft.wait_list(lists[0], NEVER));
    for _ in 0..50 {
        let list = soft.immediate(0, 0);
        soft.store(list, cell, 3, null_mut(), &[]);
        soft.destroy_list(list);
    }
    assert_eq!(threads(), count);
}

#[test]
fn many_lists_events_and_threads_at_random() {
    let soft = Soft::new();
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..3usize {
            let (soft, stop) = (&soft, &stop);
            let lists: Vec<_> = (0..3).map(|ordinal| soft.immediate(thread % 2, ordinal % 2) as usize).collect();
            let events: Vec<_> = (0..4).map(|_| soft.counted() as usize).collect();
            let ze = soft.ze;
            scope.spawn(move || {
                // Each thread adds up in a chain over its lists: every step waits for the one before by an event.
                let sum = cells(1)[0].as_ptr() as usize;
                extern "C" fn step(data: *mut std::ffi::c_void) {
                    // Not atomic on purpose: only the events keep the steps apart.
                    // SAFETY: the cell lives for ever.
                    unsafe { data.cast::<u64>().write(data.cast::<u64>().read() + 1) };
                }
                let append = ze.zeCommandListAppendHostFunction.unwrap();
                let mut random = 12345u64 + thread as u64;
                let mut previous: Option<usize> = None;
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let list = lists[(random >> 33) as usize % 3] as ze_command_list_handle_t;
                    let event = events[count as usize % 4];
                    let mut waits = [previous.unwrap_or(0) as ze_event_handle_t];
                    let wait_count = u32::from(previous.is_some());
                    let none = std::ptr::null();
                    // SAFETY: live handles of this thread.
                    unsafe {
                        let signal = event as ze_event_handle_t;
                        ok(append(list, Some(step), sum as *mut _, none, signal, wait_count, waits.as_mut_ptr()));
                        count += 1;
                        previous = Some(event);
                        if random >> 60 == 0 {
                            let timeout = if random >> 40 & 1 == 0 { NEVER } else { SOON };
                            ok((ze.zeEventHostSynchronize)(signal, timeout));
                            assert_eq!((sum as *const u64).read(), count);
                        }
                    }
                }
                // SAFETY: a live event of this thread.
                unsafe {
                    ok((ze.zeEventHostSynchronize)(previous.unwrap() as ze_event_handle_t, NEVER));
                    assert_eq!((sum as *const u64).read(), count);
                }
            });
        }
        while start.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
