//! An element's bits don't depend on how much more was reduced with it.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{self, Bfloat16, Float16, Float32};
use ccl_core::comm::StartState;
use ccl_core::config::Config;
use ccl_core::plan::Request;
use ccl_tests::local::{self, Peer, sum};
use ccl_tests::{Group, data};

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 8)
}

#[test]
fn a_prefix_has_the_bits_of_the_whole() {
    process("a_prefix_has_the_bits_of_the_whole").run(|_| {
        const COUNT: usize = 50_021;
        for n in [2, 3, 5, 8] {
            for dtype in [Bfloat16, Float16, Float32] {
                let config = Config { staging_tiles: 8, ..Config::default() };
                local::ranks(n, &config, &StartState::default(), |comm| {
                    let input = data::ordinary(dtype, 7, comm.rank(), COUNT);
                    let mut peer = Peer::new(comm, input.len());
                    let whole = peer.reduce(&sum(dtype, COUNT), &input, false).unwrap();
                    for count in [1, 2, 127, 128, 129, 1000, 4096, 25_000, COUNT - 1] {
                        let bytes = count * dtype.size();
                        let prefix = peer.reduce(&sum(dtype, count), &input[..bytes], count.is_multiple_of(2)).unwrap();
                        assert_eq!(data::first_difference(&prefix, &whole[..bytes], dtype), None, "n {n}, {count}");
                    }
                });
            }
        }
    });
}

/// Each of 64 rows alone, among the 8 that begin where it is, and among all 64.
fn check_rows(n: usize, dtype: DataType, row: usize, period: Option<u64>) {
    const ROWS: usize = 64;
    local::ranks(n, &Config::default(), &StartState::default(), |comm| {
        let input = data::wild(dtype, 3, comm.rank(), ROWS * row);
        let mut peer = Peer::new(comm, input.len());
        let bytes = row * dtype.size();
        let mut reduce = |first: usize, rows: usize| {
            let request = Request { period, ..sum(dtype, rows * row) };
            peer.reduce(&request, &input[first * bytes..][..rows * bytes], first.is_multiple_of(2)).unwrap()
        };
        let all = reduce(0, ROWS);
        for first in 0..ROWS {
            let rows = 8.min(ROWS - first);
            for got in [reduce(first, 1), reduce(first, rows)] {
                let want = &all[first * bytes..][..got.len()];
                assert_eq!(data::first_difference(&got, want, dtype), None, "n {n}, row {first} of {row} elements");
            }
        }
    });
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    process("a_row_has_the_same_bits_alone_and_among_others").run(|_| {
        for n in [2, 4, 8] {
            check_rows(n, Bfloat16, 4096, None);
        }
    });
}

/// Where ranks and blocks don't divide a row, the period does it.
#[test]
fn a_period_gives_rows_the_same_bits() {
    process("a_period_gives_rows_the_same_bits").run(|_| {
        check_rows(3, Bfloat16, 4096, Some(4096));
        check_rows(5, Float32, 1000, Some(1000));
    });
}

/// NEGATIVE CONTROL: without the period those rows differ, so the tests above can tell.
#[test]
fn without_a_period_such_rows_differ() {
    process("without_a_period_such_rows_differ").run(|_| {
        let differ = local::ranks(3, &Config::default(), &StartState::default(), |comm| {
            let input = data::ordinary(Bfloat16, 3, comm.rank(), 2 * 4096);
            let mut peer = Peer::new(comm, input.len());
            let both = peer.reduce(&sum(Bfloat16, 2 * 4096), &input, false).unwrap();
            let second = peer.reduce(&sum(Bfloat16, 4096), &input[8192..], false).unwrap();
            both[8192..] != second
        });
        assert_eq!(differ, [true; 3]);
    });
}
