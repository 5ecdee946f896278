//! Faults on demand. They hold for the whole process, so these tests take turns.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

mod memory_bed;

use level_zero_sys::*;
use memory_bed::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use ze_soft::ext::*;

const SIZE: usize = 4096;

static TURN: Mutex<()> = Mutex::new(());

struct Turn {
    bed: Bed,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Self { bed: Bed::new(), _turn: turn }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        ok(self.bed.fault(ZESOFT_FAULT_CLEAR, 0, 0, 0, 0));
    }
}

#[test]
fn the_nth_allocation_fails_and_no_other() {
    let turn = Turn::new();
    let bed = &turn.bed;
    ok(bed.fault(ZESOFT_FAULT_FAIL_ALLOCATION, ZESOFT_ANY, ZESOFT_ANY, 3, 0));
    let outcomes: Vec<_> = (0..5).map(|_| bed.try_alloc(0, SIZE, 0)).collect();
    assert_eq!(outcomes[2], Err(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 4);
    outcomes.into_iter().flatten().for_each(|pointer| ok(bed.free(pointer)));
}

#[test]
fn the_nth_opening_fails_and_no_other() {
    let turn = Turn::new();
    let bed = &turn.bed;
    let pointer = bed.alloc(0, SIZE);
    let handle = bed.handle(pointer).unwrap();
    ok(bed.fault(ZESOFT_FAULT_FAIL_IPC_OPEN, ZESOFT_ANY, ZESOFT_ANY, 2, 0));
    let outcomes: Vec<_> = (0..4).map(|_| bed.open(0, handle)).collect();
    assert_eq!(outcomes[1], Err(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 3);
    outcomes.into_iter().flatten().for_each(|pointer| ok(bed.close(pointer)));
    ok(bed.free(pointer));
}

#[test]
fn a_corrupt_link_swallows_stores_in_its_direction_only() {
    let turn = Turn::new();
    let bed = &turn.bed;
    ok(bed.fault(ZESOFT_FAULT_CORRUPT_LINK, 2, 1, 0, 0));
    let (one, two) = (bed.alloc(1, SIZE), bed.alloc(2, SIZE));
    let from_two = bed.open(2, bed.handle(one).unwrap()).unwrap();
    let from_one = bed.open(1, bed.handle(two).unwrap()).unwrap();
    let from_three = bed.open(3, bed.handle(one).unwrap()).unwrap();
    unsafe {
        from_two.write(7);
        from_one.write(8);
        from_three.add(1).write(9);
        assert_eq!((one.read(), two.read(), one.add(1).read()), (0, 8, 9));
    }
    [from_two, from_one, from_three].into_iter().for_each(|pointer| ok(bed.close(pointer)));
    [one, two].into_iter().for_each(|pointer| ok(bed.free(pointer)));
}

fn words(pointer: *mut u8, bytes: usize) -> &'static [AtomicU64] {
    unsafe { std::slice::from_raw_parts(pointer.cast(), bytes / 8) }
}

#[test]
fn late_stores_arrive_whole_in_any_order_and_before_the_close_is_over() {
    for granule in [8usize, 16, 64] {
        let turn = Turn::new();
        let bed = &turn.bed;
        let pointer = bed.alloc(0, 16 * SIZE);
        let real = words(pointer, 16 * SIZE);
        // What was there before is seen through the mapping.
        real[5].store(77, Ordering::Relaxed);
        ok(bed.fault(ZESOFT_FAULT_LATE_STORES, 1, granule as u32, 60_000_000, 9));
        let opened = bed.open(1, bed.handle(pointer).unwrap()).unwrap();
        let seen = words(opened, 16 * SIZE);
        assert_eq!(seen[5].load(Ordering::Relaxed), 77);
        let each = granule / 8;
        let granules = real.len() / each;
        for round in 1..=3u64 {
            for (index, word) in seen.iter().enumerate() {
                word.store(round << 32 | index as u64, Ordering::Release);
            }
            if round < 3 {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            // Look on while the last round arrives: each granule goes from one whole value to another, and some later
            // one comes before some earlier one.
            let round_of = |granule: usize| {
                let words = &real[granule * each..(granule + 1) * each];
                let last = words[each - 1].load(Ordering::Acquire) >> 32;
                // The last word is never ahead of the others.
                assert!(words.iter().all(|word| word.load(Ordering::Acquire) >> 32 >= last), "torn");
                last
            };
            let end = Instant::now() + Duration::from_secs(10);
            loop {
                let missing = (0..granules).find(|&granule| round_of(granule) < 3);
                let missing = missing.expect("a later granule overtakes an earlier one before all have arrived");
                if (missing..granules).any(|granule| round_of(granule) == 3) {
                    break;
                }
                assert!(Instant::now() < end, "granule {granule}: nothing arrives");
            }
        }
        ok(bed.close(opened));
        for (index, word) in real.iter().enumerate() {
            assert_eq!(word.load(Ordering::Relaxed), 3 << 32 | index as u64, "granule {granule}, word {index}");
        }
        ok(bed.free(pointer));
    }
}

#[test]
fn a_late_store_is_really_late_but_arrives_without_a_close() {
    let turn = Turn::new();
    let bed = &turn.bed;
    let pointer = bed.alloc(0, SIZE);
    ok(bed.fault(ZESOFT_FAULT_LATE_STORES, ZESOFT_ANY, 8, 300_000_000, 3));
    let opened = bed.open(0, bed.handle(pointer).unwrap()).unwrap();
    let (real, seen) = (words(pointer, SIZE), words(opened, SIZE));
    let start = Instant::now();
    seen.iter().for_each(|word| word.store(1, Ordering::Release));
    let arrived = || real.iter().filter(|word| word.load(Ordering::Acquire) == 1).count();
    assert!(arrived() < real.len(), "512 stores with delays up to 300 ms can't all be there at once");
    while arrived() < real.len() {
        assert!(start.elapsed() < Duration::from_secs(10), "{} of {} arrived", arrived(), real.len());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(start.elapsed() > Duration::from_millis(100), "{:?}", start.elapsed());
    ok(bed.close(opened));
    ok(bed.free(pointer));
}

#[test]
fn clearing_spares_what_is_open_and_ends_the_rest() {
    let turn = Turn::new();
    let bed = &turn.bed;
    let pointer = bed.alloc(0, SIZE);
    let handle = bed.handle(pointer).unwrap();
    ok(bed.fault(ZESOFT_FAULT_LATE_STORES, ZESOFT_ANY, 64, u64::MAX / 2, 3));
    let late = bed.open(0, handle).unwrap();
    ok(bed.fault(ZESOFT_FAULT_CLEAR, 0, 0, 0, 0));
    let direct = bed.open(0, handle).unwrap();
    unsafe {
        late.write(1);
        direct.add(64).write(2);
        assert_eq!((pointer.read(), pointer.add(64).read()), (0, 2));
        ok(bed.close(late));
        assert_eq!((pointer.read(), pointer.add(64).read()), (1, 2), "a store of others in another granule stays");
    }
    ok(bed.close(direct));
    ok(bed.free(pointer));
}

#[test]
fn faults_that_make_no_sense_are_refused() {
    let turn = Turn::new();
    let bed = &turn.bed;
    let any = ZESOFT_ANY;
    assert_eq!(bed.fault(99, any, any, 1, 0), ZE_RESULT_ERROR_INVALID_ENUMERATION);
    assert_eq!(bed.fault(ZESOFT_FAULT_LATE_STORES, any, 12, 1, 0), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert_eq!(bed.fault(ZESOFT_FAULT_DELAY_QUEUE, any, 3, 1, 0), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert_eq!(bed.fault(ZESOFT_FAULT_DELAY_QUEUE, 64, any, 1, 0), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert_eq!(bed.fault(ZESOFT_FAULT_FAIL_ALLOCATION, any, any, 0, 0), ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

#[test]
fn a_delayed_queue_is_late_and_no_other() {
    let turn = Turn::new();
    let bed = &turn.bed;
    let run = |device: usize, ordinal| {
        let desc = ze_command_queue_desc_t { ordinal, ..Default::default() };
        let mut list = std::ptr::null_mut();
        let start = Instant::now();
        unsafe {
            ok((bed.ze.zeCommandListCreateImmediate)(bed.context, bed.devices[device], &raw const desc, &raw mut list));
            ok((bed.ze.zeCommandListAppendBarrier)(list, std::ptr::null_mut(), 0, std::ptr::null_mut()));
            ok((bed.ze.zeCommandListHostSynchronize)(list, u64::MAX));
            ok((bed.ze.zeCommandListDestroy)(list));
        }
        start.elapsed()
    };
    let delay = Duration::from_millis(150);
    ok(bed.fault(ZESOFT_FAULT_DELAY_QUEUE, 1, 2, delay.as_nanos() as u64, 0));
    assert!(run(1, 2) >= delay);
    assert!(run(1, 0) < delay && run(0, 2) < delay);
    // With a seed it is a random time below that.
    ok(bed.fault(ZESOFT_FAULT_DELAY_QUEUE, 1, 2, 10_000_000, 7));
    assert!(run(1, 2) < delay);
    ok(bed.fault(ZESOFT_FAULT_CLEAR, 0, 0, 0, 0));
    assert!(run(1, 2) < delay);
}
