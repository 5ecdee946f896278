//! The verifier over ranks, counts, rows, wires, forms and sizes of slots: every plan that can be chosen is a right one.
#![allow(clippy::unwrap_used, reason = "test code")]

use ccl_core::config::Config;
use ccl_core::plan::push::{Mode, PushPlan, Transport};
use ccl_core::plan::ring::RingPlan;
use ccl_core::plan::verify::verify;
use ccl_core::plan::{Agreed, Plan, Request, plan};
use ccl_core::protocol::LineForm;
use ccl_core::{DataType, Order, ReduceOp};
use proptest::prelude::*;

const LARGE: u64 = 10_556_587;
const BEYOND_32_BITS: u64 = (1 << 33) + 12_289;

fn request(count: u64, dtype: DataType, period: Option<u64>) -> Request {
    Request { count, dtype, op: ReduceOp::Sum, order: Order::Ring, period, registered: None }
}

fn agreed(n: usize, form: LineForm, slot_tiles: u32) -> Agreed {
    Agreed::ring(n, form, slot_tiles)
}

/// Counts at which something changes.
fn counts(n: u64) -> Vec<u64> {
    let mut counts = vec![0, 1, n - 1, n, n + 1, 127, 128, 129, 1009, 128 * n - 1, 128 * n, 128 * n + 1, 65_537];
    counts.extend([15 * 128 * n, 15 * 128 * n + 1, 299_993]);
    counts
}

#[test]
fn chosen_plans_for_every_number_of_ranks() {
    let config = Config::default();
    let mut rings = 0;
    for n in 1..=16 {
        for count in counts(n as u64).into_iter().chain([LARGE, BEYOND_32_BITS]) {
            for (dtype, form) in [
                (DataType::Bfloat16, LineForm::L64),
                (DataType::Float16, LineForm::L16),
                (DataType::Float32, LineForm::L8),
            ] {
                // Beyond 32 bits, slots as large as make few rounds of it.
                let slot_tiles = if count > 1 << 32 { 1 << 16 } else { config.staging_tiles };
                let request = request(count, dtype, None);
                let plan = plan(&request, &agreed(n, form, slot_tiles), &config).unwrap();
                plan.verify().unwrap_or_else(|e| panic!("{plan}: {e}"));
                match plan {
                    Plan::Empty => assert_eq!(count, 0),
                    Plan::Local => assert_eq!(n, 1),
                    Plan::Push(push) => panic!("nobody can push: {push}"),
                    Plan::Ring(ring) => {
                        assert!(n > 1 && count > 0 && ring.rounds >= 1);
                        rings += 1;
                    }
                }
            }
        }
    }
    assert!(rings > 600, "{rings}");
}

#[test]
fn any_wires_forms_and_slots() {
    for n in [2, 3, 4, 7, 16] {
        for count in counts(n as u64) {
            for period in [None, Some(1), Some(100), Some(4096)] {
                // A row of one element fills a block of the wire each: few of them are many rounds.
                let count = if period == Some(1) { count % 2000 } else { count };
                for (slot_tiles, wires) in [(1, 1), (2, 2), (5, 2), (64, 64), (200, 7)] {
                    for form in LineForm::ALL {
                        let request = request(count, DataType::Bfloat16, period);
                        let ring = RingPlan::new(&request, &agreed(n, form, slot_tiles), wires).unwrap();
                        verify(&ring).unwrap_or_else(|e| panic!("{ring}: {e}"));
                        assert_eq!(ring.rounds == 0, count == 0);
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked_for(
        n in 2usize..=16,
        count in 0u64..600_000,
        period in prop_oneof![Just(None), (50u64..700_000).prop_map(Some)],
        tiles in 1u32..40,
        wires in 1u32..=64,
        form in 0usize..3,
    ) {
        let request = request(count, DataType::Float32, period);
        let ring = RingPlan::new(&request, &agreed(n, LineForm::ALL[form], tiles * wires), wires).unwrap();
        prop_assert_eq!(verify(&ring), Ok(()), "{}", ring);
    }
}

/// What every push algorithm can travel by.
fn ways(form: LineForm) -> [(Mode, Transport); 5] {
    [
        (Mode::OneShot, Transport::Lines(form)),
        (Mode::Mesh, Transport::Lines(form)),
        (Mode::OneShot, Transport::Bulk),
        (Mode::Mesh, Transport::Bulk),
        (Mode::Direct, Transport::Bulk),
    ]
}

fn pushing(n: usize, form: LineForm, push_tiles: u32, bulk_bytes: u32) -> Agreed {
    Agreed { push_tiles, bulk_bytes, ..agreed(n, form, 4) }
}

#[test]
fn every_push_of_the_grid_is_right() {
    let (start, mut plans) = (std::time::Instant::now(), 0);
    for n in 2..=16usize {
        // The steps of a round grow with the square of the ranks, or its cube: the longest messages only for few.
        let longest = [300_000, 70_000, 10_000][(n > 3) as usize + (n > 5) as usize];
        for count in counts(n as u64).into_iter().filter(|count| *count <= longest) {
            for period in [None, Some(1), Some(100), Some(4096)] {
                if period == Some(1) && count > 1_000 {
                    continue;
                }
                let form = LineForm::ALL[(n + count as usize) % 3];
                let agreed = pushing(n, form, 16, 16_384);
                for (mode, transport) in ways(form) {
                    for wires in [1, 3] {
                        let request = request(count, DataType::ALL[(count % 10) as usize], period);
                        let push = PushPlan::new(&request, &agreed, mode, transport, wires).unwrap();
                        Plan::Push(push).verify().unwrap_or_else(|e| panic!("{push}: {e}"));
                        assert_eq!(push.rounds == 0, count == 0);
                        plans += 1;
                    }
                }
            }
        }
    }
    println!("{plans} plans, {:.1?}", start.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_pushed(
        n in 2usize..=16,
        count in 0u64..40_000,
        period in prop_oneof![Just(None), (50u64..700_000).prop_map(Some)],
        dtype in 0usize..10,
        tiles in 16u32..40,
        pages in 1u32..20,
        wires in 1u32..=9,
        form in 0usize..3,
        way in 0usize..5,
    ) {
        let form = LineForm::ALL[form];
        let agreed = pushing(n, form, tiles, pages * 4096);
        let (mode, transport) = ways(form)[way];
        let wires = wires.min(PushPlan::most_wires(&agreed, mode, transport));
        let request = request(count, DataType::ALL[dtype], period);
        let push = PushPlan::new(&request, &agreed, mode, transport, wires).unwrap();
        prop_assert_eq!(Plan::Push(push).verify(), Ok(()), "{}", push);
    }
}

#[test]
fn the_ring_goes_as_often_as_its_longest_stream_needs() {
    // 4 ranks, 2 wires of 1 tile: 15 blocks of 128 elements each a round, so 15360 elements a round.
    let rounds = |count| {
        RingPlan::new(&request(count, DataType::Bfloat16, None), &agreed(4, LineForm::L8, 2), 2).unwrap().rounds
    };
    assert_eq!([0, 1, 15_360, 15_361, 30_720, 30_721].map(rounds), [0, 1, 1, 2, 2, 3]);
}
