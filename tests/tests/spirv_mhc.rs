//! mHC boundaries as the device kernels' SPIR-V executes them, held to the bits of the reference: variants, types, shapes,
//! streams and places, so that every two of them meet. Run by `.ci/beds/opencl-tests.sh`.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::mhc::Design;
use ccl_tests::mhc::{Bed, Case};
use ccl_tests::spirv;

fn bits(test: &str, n: usize, cases: std::ops::Range<usize>, most: u64) {
    spirv::group(test, n).env("CCL_ALLREDUCE", "auto").run(|rank| {
        let mut bed = Bed::new(spirv::communicator(&rank, StartState::default()), 64 << 20);
        for i in cases {
            let case = Case::nth(i, most);
            assert_eq!(bed.differs(&case, i as u64, Design::Unfused), None, "rank {} of {n}, case {i}", rank.rank);
        }
    });
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn one_rank() {
    bits("one_rank", 1, 0..90, 150_000);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn two_ranks() {
    bits("two_ranks", 2, 90..120, 60_000);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn three_ranks() {
    bits("three_ranks", 3, 120..140, 60_000);
}
