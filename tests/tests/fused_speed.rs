//! What a fused boundary costs beside an unfused one. On an idle machine only:
//! `cargo test --release -p ccl-tests --test fused_speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType;
use ccl_core::mhc::{Design, Params, Variant};
use ccl_tests::Group;
use ccl_tests::fused::Case;
use ccl_ze::CallOptions;
use half::bf16;
use std::time::{Duration, Instant};

const BOUNDARIES: usize = 85;
const PASSES: usize = 9;
const DESIGNS: [Design; 3] = [Design::Unfused, Design::C, Design::A];

/// Most that a boundary by owners may take of an unfused one, one row on two ranks.
const MOST: f64 = 0.7;

/// A token's boundaries, each with an `fn` of its own, so that caches don't lie. Designs take turns; of each the median
/// pass of the slowest rank counts.
#[test]
#[ignore = "a measurement: wants an idle machine"]
fn one_row_by_owners_takes_little_of_an_unfused_boundary() {
    for ranks in [2, 4] {
        let body = |rank: ccl_tests::Rank| {
            let comm = rank.communicator();
            comm.prepare_mhc().unwrap();
            let stream = comm.stream(0).unwrap();
            for rows in [1, 8, 64] {
                let params = Params::new(Variant::V4, DataType::Bfloat16, rows, 4096, 4);
                let case = Case { params, seed: 1, in_place: true, x_out: None };
                let image = case.before::<bf16>(rank.rank);
                let mut memory: Vec<_> = (0..BOUNDARIES).map(|_| comm.alloc::<u8>(image.len()).unwrap()).collect();
                memory.iter_mut().for_each(|memory| memory.write(&stream, &image).unwrap());
                let mut times = [const { Vec::new() }; DESIGNS.len()];
                for pass in 0..PASSES + 1 {
                    for (design, times) in DESIGNS.into_iter().zip(&mut times) {
                        let start = Instant::now();
                        let mut last = None;
                        for memory in &memory {
                            let options = CallOptions { after: &[], signal: None };
                            let buffers = case.buffers(memory.as_ptr());
                            // SAFETY: the memory lives until the stream has been waited for.
                            let done = unsafe { comm.all_reduce_mhc(&params, &buffers, design, &stream, options) };
                            last = Some(done.unwrap());
                        }
                        last.unwrap().wait().unwrap();
                        if pass > 0 {
                            times.push(start.elapsed().as_secs_f64() * 1e6 / BOUNDARIES as f64);
                        }
                    }
                }
                let medians = times.map(|mut times| {
                    times.sort_by(f64::total_cmp);
                    times[PASSES / 2]
                });
                rank.say(format_args!("us {rows} {} {} {}", medians[0], medians[1], medians[2]));
            }
        };
        let ended = Group::new("one_row_by_owners_takes_little_of_an_unfused_boundary", ranks)
            .limit(Duration::from_secs(200))
            .run_with(body, |running| running.wait());
        let of_rank = |ended: &ccl_tests::group::Ended| -> Vec<Vec<f64>> {
            assert!(ended.status.success(), "{}", ended.output);
            ended.said("us").iter().map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect()).collect()
        };
        let all: Vec<_> = ended.iter().map(of_rank).collect();
        for line in 0..all[0].len() {
            let most = |column: usize| all.iter().map(|rank| rank[line][column]).fold(0.0, f64::max);
            let (unfused, c, a) = (most(1), most(2), most(3));
            eprintln!(
                "{ranks} ranks, {} rows: unfused {unfused:.1} us, c {c:.1} ({:.2}), a {a:.1} ({:.2})",
                all[0][line][0],
                c / unfused,
                a / unfused
            );
            if ranks == 2 && all[0][line][0] == 1.0 {
                assert!(c <= MOST * unfused, "design c takes {:.2} of an unfused boundary", c / unfused);
            }
        }
    }
}
