//! In the steady state an append and a wait neither allocate nor call the system.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

#[path = "executor_support/mod.rs"]
mod support;

use level_zero_sys::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use support::*;

/// Counts this thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counter any more.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: it passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
const PR_SYS_DISPATCH_ON: i32 = 1;
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

/// What the kernel looks at before each system call of the measured thread.
static SELECTOR: AtomicU8 = AtomicU8::new(ALLOW);
static CALLS: AtomicU64 = AtomicU64::new(0);
static YIELDS: AtomicU64 = AtomicU64::new(0);
static LAST_CALL: AtomicI32 = AtomicI32::new(-1);

/// A system call was made while it was blocked: counts it, and lets calls through until the next round. A waiter yields
/// before it does anything else, and does so only when another thread, stopped half-way, has what it waits for.
unsafe extern "C" fn trapped(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    SELECTOR.store(ALLOW, Ordering::SeqCst);
    // SAFETY: for this signal the number lies after the call's address, 16 bytes of header before that.
    let number = unsafe { info.byte_add(24).cast::<i32>().read() };
    if i64::from(number) == libc::SYS_sched_yield {
        YIELDS.fetch_add(1, Ordering::SeqCst);
    } else {
        CALLS.fetch_add(1, Ordering::SeqCst);
        LAST_CALL.store(number, Ordering::SeqCst);
    }
}

fn watch_this_thread() {
    // SAFETY: a valid handler for a signal that nothing else uses, and a selector that lives for ever.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trapped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSYS, &action, null_mut()), 0);
        let result = libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, SELECTOR.as_ptr());
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn an_append_and_a_wait_neither_allocate_nor_call_the_system() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let event = soft.counted();
    let kernel = soft.kernel("store");
    let cell = &cells(1)[0];
    let launch = soft.ze.zeCommandListAppendLaunchKernelWithArguments.unwrap();
    let synchronize = soft.ze.zeEventHostSynchronize;
    let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let size = ze_group_size_t { groupSizeX: 1, groupSizeY: 1, groupSizeZ: 1 };
    let address = &raw const *cell;
    let step = |value: u64| {
        let mut arguments =
            [(&raw const address).cast_mut().cast(), (&raw const value).cast_mut().cast::<std::ffi::c_void>()];
        // SAFETY: live handles, arguments of the kernel's sizes.
        unsafe {
            let appended = launch(list, kernel, one, size, arguments.as_mut_ptr(), null(), event, 0, null_mut());
            (appended, synchronize(event, NEVER))
        }
    };
    watch_this_thread();
    // The watch works: a blocked call is counted.
    SELECTOR.store(BLOCK, Ordering::SeqCst);
    // SAFETY: no preconditions.
    unsafe { libc::getppid() };
    SELECTOR.store(ALLOW, Ordering::SeqCst);
    assert_eq!((CALLS.swap(0, Ordering::SeqCst), LAST_CALL.load(Ordering::SeqCst)), (1, libc::SYS_getppid as i32));

    // Room for commands and the thread come with the first use.
    for value in 0..100 {
        assert_eq!(step(value), (ZE_RESULT_SUCCESS, ZE_RESULT_SUCCESS));
    }
    let allocations = ALLOCATIONS.get();
    let rounds = 1000;
    let mut failed = 0;
    for value in 0..rounds {
        SELECTOR.store(BLOCK, Ordering::SeqCst);
        let results = step(1000 + value);
        SELECTOR.store(ALLOW, Ordering::SeqCst);
        failed += u64::from(results != (ZE_RESULT_SUCCESS, ZE_RESULT_SUCCESS) || read(cell) != 1000 + value);
    }
    let allocations = ALLOCATIONS.get() - allocations;
    let calls = CALLS.load(Ordering::SeqCst);
    assert_eq!(failed, 0);
    assert_eq!(allocations, 0, "allocations in {rounds} rounds");
    assert_eq!(calls, 0, "system calls in {rounds} rounds, the last {}", LAST_CALL.load(Ordering::SeqCst));
    let yields = YIELDS.load(Ordering::SeqCst);
    assert!(yields < rounds / 100, "{yields} of {rounds} rounds yielded");
}
