//! Allocating, exporting, opening, closing and freeing leaves nothing behind, in any legal order.
//! The only test of its binary, because it counts what the process holds.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

mod memory_bed;

use memory_bed::*;
use ze_soft::ext::*;

fn cycle(bed: &Bed, order: usize) {
    let pointer = bed.alloc(order % 4, 4096 * (1 + order % 5));
    let handle = bed.handle(pointer).unwrap();
    let first = bed.open(0, handle).unwrap();
    let second = bed.open(1, bed.handle_of(bed.descriptor(handle).unwrap()).unwrap()).unwrap();
    let steps: [&dyn Fn(); 4] =
        [&|| ok(bed.put(handle)), &|| ok(bed.close(first)), &|| ok(bed.close(second)), &|| ok(bed.free(pointer))];
    // Every one of the 24 orders.
    let mut left: Vec<usize> = (0..4).collect();
    let mut number = order % 24;
    for choices in (1..=4).rev() {
        steps[left.remove(number % choices)]();
        number /= choices;
    }
}

#[test]
fn nothing_is_left_after_a_thousand_cycles() {
    let bed = Bed::new();
    let late = |value| ok(bed.fault(ZESOFT_FAULT_LATE_STORES, ZESOFT_ANY, 8, value, 1));
    let clear = || ok(bed.fault(ZESOFT_FAULT_CLEAR, 0, 0, 0, 0));
    // The first round of everything, a thread included, leaves what the C library keeps for the next.
    (0..24).for_each(|order| cycle(&bed, order));
    late(1000);
    (0..24).for_each(|order| cycle(&bed, order));
    clear();
    let before = holdings();
    (0..1000).for_each(|order| cycle(&bed, order));
    assert_eq!(holdings(), before);

    // Handles that are never put back go with the memory.
    for _ in 0..100 {
        let pointer = bed.alloc(0, 4096);
        bed.handle(pointer).unwrap();
        bed.handle(pointer).unwrap();
        ok(bed.free(pointer));
    }
    assert_eq!(holdings(), before);

    // The thread of late stores ends with the last mapping.
    late(1000);
    (0..48).for_each(|order| cycle(&bed, order));
    clear();
    assert_eq!(holdings(), before);
}
