//! In the steady state a replay allocates nothing, in no thread.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod graph_bed;
#[path = "executor_support/mod.rs"]
mod support;

use graph_bed::{Graphs, NONE};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;

/// Counts the process's allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: it passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_replay_allocates_nothing() {
    let soft = Soft::new();
    let (list, child) = (soft.immediate(0, 0), soft.immediate(0, 1));
    let [fork, join, done] = std::array::from_fn(|_| soft.counted());
    let [regular] = soft.events();
    let cells = cells(4);
    ok(soft.begin(list));
    for _ in 0..10 {
        soft.take(list, &cells[1], &cells[0], fork, &[]);
        soft.take(child, &cells[2], &cells[1], join, &[fork]);
        soft.take(list, &cells[3], &cells[2], regular, &[join]);
    }
    let executable = soft.instantiate(soft.end(list));
    let round = |number: u64, deep: usize| {
        cells[0].store(number, Ordering::Relaxed);
        for _ in 0..deep {
            ok(soft.replay(list, executable, done, &[done]));
        }
        ok(soft.wait(done, NEVER));
        ok(soft.wait_list(list, NEVER));
        assert_eq!(read(&cells[3]), number);
    };
    // Room comes with use, and how many replays overlap is a matter of luck: deeper before than while it is counted.
    (0..100).for_each(|number| round(number, 16));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (100..600).for_each(|number| round(number, 4));
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!(allocations, 0, "allocations in 2,000 replays");
    // What is counted is counted: a capture allocates.
    ok(soft.begin(list));
    soft.take(list, &cells[1], &cells[0], NONE, &[]);
    soft.end(list);
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before);
}
