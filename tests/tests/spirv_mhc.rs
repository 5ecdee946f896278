//! mHC boundaries as the device kernels' SPIR-V executes them, held to the bits of the reference: variants, types, shapes,
//! streams and places, so that every two of them meet; alone, and in one launch with the all-reduce before them by each
//! design. Run by `.ci/beds/opencl-tests.sh`.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType;
use ccl_core::comm::StartState;
use ccl_core::mhc::{Design, Params, Variant};
use ccl_core::plan::mhc::Fused;
use ccl_tests::mhc::{Bed, Case, Reduced, Way};
use ccl_tests::spirv;

fn bits(test: &str, n: usize, cases: std::ops::Range<usize>, most: u64) {
    spirv::group(test, n).env("CCL_ALLREDUCE", "auto").run(|rank| {
        spirv::leave_boundaries_unoptimized();
        let mut bed = Bed::new(spirv::communicator(&rank, StartState::default()), 64 << 20);
        for i in cases {
            let case = Case::nth(i, most);
            assert_eq!(bed.differs(&case, i as u64, Design::Unfused), None, "rank {} of {n}, case {i}", rank.rank);
        }
    });
}

/// Cases that an all-reduce precedes, by designs in turn.
fn fused(number: usize, most: u64) -> impl Iterator<Item = (Case, Design)> {
    let cases = (0..).map(move |i| Case::nth(i, most)).filter(|case| {
        case.params.variant.has_post() && case.reduced != Reduced::Not
            // Without y there is no other place for x.
            && !(case.params.variant == Variant::Post && case.reduced == Reduced::Dropped)
    });
    cases.take(number).enumerate().map(|(i, case)| {
        let designs: &[Design] = match case.params.variant {
            Variant::V41 => &[Design::B, Design::C, Design::A],
            _ => &[Design::C, Design::A],
        };
        (case, designs[i / 3 % designs.len()])
    })
}

fn designs(test: &str, n: usize, granule: u32, number: usize, most: u64) {
    spirv::group(test, n).env("CCL_ALLREDUCE", "auto").env("CCLX_GRANULE", granule).run(|rank| {
        spirv::leave_boundaries_unoptimized();
        // A clearing every few calls.
        let start = StartState { tag_limit: 40, ..StartState::default() };
        let mut bed = Bed::new(spirv::communicator(&rank, start), 64 << 20);
        for (i, (case, design)) in fused(number, most).enumerate() {
            let found = bed.differs(&case, i as u64, design);
            assert_eq!(found, None, "rank {} of {n}, case {i}, design {design}", rank.rank);
        }
    });
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn one_rank() {
    bits("one_rank", 1, 0..60, 150_000);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn two_ranks() {
    bits("two_ranks", 2, 90..110, 60_000);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn three_ranks() {
    bits("three_ranks", 3, 120..130, 60_000);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn fused_two_ranks() {
    designs("fused_two_ranks", 2, 16, 24, 60_000);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn fused_three_ranks() {
    designs("fused_three_ranks", 3, 16, 12, 60_000);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn fused_narrow_lines() {
    designs("fused_narrow_lines", 2, 8, 12, 40_000);
}

/// Of cases that an all-reduce precedes, `number` that go by columns.
fn columns(test: &str, n: usize, granule: u32, number: usize) {
    spirv::group(test, n).env("CCL_ALLREDUCE", "oneshot").env("CCLX_GRANULE", granule).run(|rank| {
        spirv::leave_boundaries_unoptimized();
        // A clearing every few calls.
        let start = StartState { tag_limit: 7, ..StartState::default() };
        let mut bed = Bed::new(spirv::communicator(&rank, start), 64 << 20);
        let by_columns: Vec<(Case, Design)> = fused(2000, 40_000)
            .filter(|(case, _)| bed.comm.plan_mhc(&case.params, Fused::Whole).is_ok_and(|plan| plan.columns))
            .take(number)
            .collect();
        assert_eq!(by_columns.len(), number, "too few cases go by columns");
        for (i, (case, _)) in by_columns.iter().enumerate() {
            let found = bed.differs(case, i as u64, Design::A);
            assert_eq!(found, None, "rank {} of {n}, case {i}, {case:?}", rank.rank);
        }
        let case = &by_columns[0].0;
        for way in [Way::List, Way::Graph] {
            assert_eq!(bed.recorded_differs(case, &[2, 3, 4], Design::A, way), None, "{way:?}");
        }
    });
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn columns_two_ranks() {
    columns("columns_two_ranks", 2, 16, 12);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn columns_three_ranks() {
    columns("columns_three_ranks", 3, 16, 6);
}

/// Eager boundaries are made to fail, by counters that are not 0; recorded ones don't use theirs.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn recordings_have_memory_of_their_own() {
    spirv::group("recordings_have_memory_of_their_own", 1).run(|rank| {
        spirv::leave_boundaries_unoptimized();
        let mut bed = Bed::new(spirv::communicator(&rank, StartState::default()), 8 << 20);
        let params = Params::new(Variant::V4, DataType::Bfloat16, 2, 1056, 4);
        let case = Case { params, reduced: Reduced::Not, in_place: false, wild: false };
        assert_eq!(bed.differs(&case, 1, Design::Unfused), None);
        let (counters, words) = bed.comm.mhc_counters().unwrap();
        let fill = |value: u32| {
            // SAFETY: memory of the software device, which this process may access; nothing is in flight.
            unsafe { std::slice::from_raw_parts_mut(counters, words).fill(value) };
        };
        fill(1000);
        for way in [Way::List, Way::Graph] {
            assert_eq!(bed.recorded_differs(&case, &[2, 3, 4], Design::Unfused, way), None, "{way:?}");
        }
        assert!(bed.differs(&case, 5, Design::Unfused).is_some(), "the control: nobody noticed");
        fill(0);
        assert_eq!(bed.differs(&case, 6, Design::Unfused), None);
    });
}
