//! mHC boundaries, alone and after their all-reduce, between processes on the native kernels: bits, places, refusals,
//! recordings.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::mhc::Design;
use ccl_tests::Group;
use ccl_tests::mhc::{Bed, Case};

fn bits(test: &str, n: usize, cases: usize, most: u64) {
    Group::new(test, n).env("CCLX_DEVICE", "soft").run(|rank| {
        let mut bed = Bed::new(rank.communicator(), 96 << 20);
        for i in 0..cases {
            // Other cases for each number of ranks.
            let case = Case::nth(i + 13 * n, most);
            let design = if i % 2 == 0 { Design::Unfused } else { Design::Auto };
            assert_eq!(bed.differs(&case, i as u64, design), None, "rank {} of {n}, case {i}", rank.rank);
        }
    });
}

#[test]
fn one_rank() {
    bits("one_rank", 1, 60, 2 << 20);
}

#[test]
fn two_ranks() {
    bits("two_ranks", 2, 45, 1 << 20);
}

#[test]
fn three_ranks() {
    bits("three_ranks", 3, 30, 600_000);
}

#[test]
fn four_ranks() {
    bits("four_ranks", 4, 30, 600_000);
}

#[test]
fn eight_ranks() {
    bits("eight_ranks", 8, 15, 300_000);
}
