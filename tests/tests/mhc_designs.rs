//! Every design of mHC gives the bits of the unfused one, in every row and on every rank.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType;
use ccl_core::comm::StartState;
use ccl_core::config::Config;
use ccl_core::mhc::{Design, Params, Variant};
use ccl_tests::mhc::{Bed, Case, Reduced};
use ccl_tests::{Group, local};
use ccl_ze::hooks;
use std::time::Duration;

const DTYPES: [DataType; 3] = [DataType::Bfloat16, DataType::Float16, DataType::Float32];

/// Calls of all of these shapes among `n` ranks: variants by all of their designs, types in turn. What was wrong.
fn grid(n: usize, rows: &[u64], hidden: &[u64], start: &StartState) -> Vec<String> {
    let mut cases = Vec::new();
    for &rows in rows {
        for &hidden in hidden {
            for streams in [2, 4, 8] {
                let i = cases.len();
                let (variant, designs) = match i % 2 {
                    0 => (Variant::V4, &[Design::Unfused, Design::A, Design::C][..]),
                    _ => (Variant::V41, &[Design::Unfused, Design::A, Design::B, Design::C][..]),
                };
                let mut params = Params::new(variant, DTYPES[i / 2 % 3], rows, hidden, streams);
                params.norm_eps = (i % 3 == 0).then_some(1e-6);
                // All that the memory holds is then alike on all ranks.
                let case = Case { params, reduced: Reduced::InPlace, in_place: i / 3 % 2 == 0, wild: i % 4 == 1 };
                cases.push((case, designs));
            }
        }
    }
    let most = cases.iter().map(|(Case { params, .. }, _)| {
        let (residual, weights) = (params.rows * params.hidden * 8 * 4, params.mixes() as u64 * params.hidden * 8 * 4);
        3 * residual + weights + (1 << 20)
    });
    let bytes = most.max().unwrap() as usize;
    let found = local::ranks(n, &Config::default(), start, |comm| {
        let mut bed = Bed::new(comm, bytes);
        let of = |(i, (case, designs)): (usize, &(Case, &[Design]))| bed.designs_differ(case, i as u64, designs);
        cases.iter().enumerate().map(of).collect::<Vec<_>>()
    });
    let mut wrong = Vec::new();
    for (i, (case, _)) in cases.iter().enumerate() {
        for (rank, of_rank) in found.iter().enumerate() {
            match (&of_rank[i], &found[0][i]) {
                (Err(text), _) => wrong.push(format!("rank {rank} of {n}: {text}")),
                (Ok(sum), Ok(first)) if sum != first => wrong.push(format!("rank {rank} of {n} has others: {case:?}")),
                _ => {}
            }
        }
    }
    wrong
}

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 8).env("ZE_SOFT_COMPUTE_UNITS", 8).env("CCLX_DEVICE", "soft")
}

const NONE: [String; 0] = [];

/// Rows of many rounds, and as few and as odd columns as there can be: some ranks own none.
#[test]
fn many_rows_and_odd_columns() {
    process("many_rows_and_odd_columns").run(|_| {
        for n in [3, 8] {
            assert_eq!(grid(n, &[1, 64, 257], &[1, 7, 96, 129], &StartState::default()), NONE);
        }
        assert_eq!(grid(4, &[5000], &[3], &StartState::default()), NONE);
    });
}

/// NEGATIVE CONTROL: a design with other sums is told from the unfused one.
#[test]
fn a_design_that_is_wrong_is_noticed() {
    process("a_design_that_is_wrong_is_noticed").run(|_| {
        let start = StartState { hooks: hooks::STALE_SUMS, ..StartState::default() };
        let wrong = grid(3, &[1, 64, 257], &[1, 7, 96, 129], &start);
        assert!(wrong.iter().any(|text| text.contains(": c: byte")), "nobody noticed");
        assert!(!wrong.iter().any(|text| text.contains(": unfused:") || text.contains(": a:")), "{wrong:?}");
    });
}

/// All of rows, columns, streams and ranks.
#[test]
#[ignore = "minutes"]
fn every_shape() {
    process("every_shape").limit(Duration::from_secs(1800)).run(|_| {
        for n in [1, 2, 3, 4, 8] {
            let (rows, hidden) = ([1, 2, 3, 8, 17, 64, 257], [64, 96, 1056, 4096, 5120, 7168]);
            assert_eq!(grid(n, &rows, &hidden, &StartState::default()), NONE);
        }
    });
}
