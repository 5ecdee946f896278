//! Results are those of the scalar reference, bit by bit: every type, line form and number of ranks.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{self, Bfloat16, Float16, Float32};
use ccl_core::comm::StartState;
use ccl_core::config::Config;
use ccl_core::reference;
use ccl_tests::local::{self, Peer, sum};
use ccl_tests::{Group, data};
use ccl_ze::twins::{self, Simd};
use std::hash::{DefaultHasher, Hasher};
use std::hint::black_box;

const RANKS: [usize; 6] = [1, 2, 3, 4, 5, 8];
const DTYPES: [DataType; 3] = [Bfloat16, Float16, Float32];
const SIMD: &str = "TEST_SIMD";

/// A message, and what must come of it.
struct Case {
    dtype: DataType,
    what: &'static str,
    inputs: Vec<Vec<u8>>,
    want: Vec<u8>,
}

impl Case {
    fn new(what: &'static str, dtype: DataType, inputs: Vec<Vec<u8>>) -> Case {
        let want = data::expected(dtype, &inputs, None);
        Case { dtype, what, inputs, want }
    }

    fn count(&self) -> usize {
        self.want.len() / self.dtype.size()
    }
}

/// All pairs of the special values that `pick` gives meet, in both orders, whatever the chunk.
fn pairs(dtype: DataType, n: usize) -> Vec<Vec<u8>> {
    let bits: Vec<u32> = match dtype {
        // Zeros, subnormals, the least normal, halfway cases of 1, the largest, infinity, quiet and signalling NaN.
        Bfloat16 => vec![
            0, 1, 2, 0x7F, 0x80, 0x81, 0x3B80, 0x3B81, 0x3B7F, 0x3F80, 0x3F81, 0x7F7F, 0x7B7F, 0x7F80, 0x7FC1, 0x7F81,
        ],
        Float16 => vec![
            0, 1, 2, 0x3FF, 0x400, 0x401, 0x1000, 0x1001, 0x0FFF, 0x3C00, 0x3C01, 0x7BFF, 0x4C00, 0x7C00, 0x7E01,
            0x7D01,
        ],
        _ => vec![
            0,
            1,
            2,
            0x7F_FFFF,
            0x80_0000,
            0x80_0001,
            0x3380_0000,
            0x3380_0001,
            0x337F_FFFF,
            0x3F80_0000,
            0x3F80_0001,
            0x7F7F_FFFF,
            0x737F_FFFF,
            0x7F80_0000,
            0x7FC0_0001,
            0x7F80_0001,
        ],
    };
    let sign = 1u32 << (dtype.size() * 8 - 1);
    let all: Vec<u32> = bits.iter().flat_map(|&b| [b, b | sign]).collect();
    let message = |rank: usize| {
        let mut bytes = Vec::new();
        for (i, a) in all.iter().enumerate() {
            for j in 0..all.len() {
                // Neighbouring ranks hold the two of a pair.
                let value = if rank.is_multiple_of(2) { *a } else { all[(i + j + rank / 2) % all.len()] };
                bytes.extend_from_slice(&value.to_le_bytes()[..dtype.size()]);
            }
        }
        bytes
    };
    (0..n).map(message).collect()
}

fn cases(n: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DTYPES {
        for (seed, count) in (1..).zip([1usize, 63, 1000, 20_011]) {
            let inputs = |kind: fn(DataType, u64, usize, usize) -> Vec<u8>| {
                (0..n).map(|r| kind(dtype, seed, r, count)).collect()
            };
            cases.push(Case::new("ordinary", dtype, inputs(data::ordinary)));
            cases.push(Case::new("wild", dtype, inputs(data::wild)));
        }
        cases.push(Case::new("pairs", dtype, pairs(dtype, n)));
    }
    cases
}

/// Runs the cases on `n` ranks; returns a hash of all results of rank 0.
fn check(n: usize, granule: u32, cases: &[Case], before: fn(), after: fn()) -> u64 {
    let capacity = cases.iter().map(|c| c.want.len()).max().unwrap();
    let config = Config { granule, staging_tiles: 16, ..Config::default() };
    let hashes = local::ranks(n, &config, &StartState::default(), |comm| {
        let rank = comm.rank();
        if n > 1 {
            assert_eq!(comm.describe().granule, granule as usize);
        }
        let mut peer = Peer::new(comm, capacity);
        let mut hasher = DefaultHasher::new();
        before();
        for case in cases {
            for in_place in [false, true] {
                let got = peer.reduce(&sum(case.dtype, case.count()), &case.inputs[rank], in_place).unwrap();
                let difference = data::first_difference(&got, &case.want, case.dtype);
                let (what, dtype) = (case.what, case.dtype);
                assert_eq!(difference, None, "rank {rank} of {n}, {what} {dtype}, {granule}-byte lines");
                hasher.write(&got);
            }
        }
        after();
        hasher.finish()
    });
    assert!(hashes.iter().all(|&hash| hash == hashes[0]), "ranks differ");
    hashes[0]
}

fn nothing() {}

#[test]
fn every_form_and_type_has_the_bits_of_the_reference() {
    Group::new("every_form_and_type_has_the_bits_of_the_reference", 1).env("ZE_SOFT_DEVICES", 8).run(|_| {
        for n in RANKS {
            let cases = cases(n);
            for granule in [8, 16, 64] {
                check(n, granule, &cases, nothing, nothing);
            }
        }
    });
}

/// The reference itself is held to sums in binary64: bits alike could be alike and wrong.
#[test]
fn sums_are_close_to_the_exact_ones() {
    for n in RANKS {
        for case in cases(n).iter().filter(|case| case.what == "ordinary") {
            let views: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
            let unit = match case.dtype {
                Bfloat16 => 2f64.powi(-8),
                Float16 => 2f64.powi(-11),
                _ => 2f64.powi(-24),
            };
            let value = |message: &[u8], i: usize| {
                let size = case.dtype.size();
                let mut bits = [0; 8];
                bits[..size].copy_from_slice(&message[i * size..][..size]);
                reference::to_f64(case.dtype, u64::from_le_bytes(bits))
            };
            for (i, exact) in reference::sum_f64(&views, case.dtype).into_iter().enumerate() {
                let magnitudes: f64 = views.iter().map(|view| value(view, i).abs()).sum();
                // A rounding at each hop, of a partial sum that is no larger than that.
                let bound = 1.05 * (n - 1) as f64 * unit * magnitudes;
                let error = (value(&case.want, i) - exact).abs();
                assert!(error <= bound, "n {n} {} element {i}: off by {error}, at most {bound}", case.dtype);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
const FLUSH: u32 = 1 << 15 | 1 << 6;

#[cfg(target_arch = "x86_64")]
fn control() -> u32 {
    let mut word = 0u32;
    // SAFETY: stores MXCSR through a valid pointer.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack)) };
    word
}

/// Flushes subnormal results to zero and takes subnormal operands as zero, on this thread and those it starts.
#[cfg(target_arch = "x86_64")]
fn flush() {
    let word = control() | FLUSH;
    // SAFETY: loads MXCSR with the exceptions as masked as before; nothing in this test computes with floats but what
    // is meant to be affected.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack)) };
    assert_eq!(black_box(f32::from_bits(1)) * black_box(1.0), 0.0, "subnormals are still kept");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_caller_that_flushes_subnormals_gets_the_same_bits() {
    Group::new("a_caller_that_flushes_subnormals_gets_the_same_bits", 1).env("ZE_SOFT_DEVICES", 8).run(|_| {
        // Before the driver starts its threads, which inherit it.
        flush();
        for n in [2, 3, 8] {
            check(n, 64, &cases(n), flush, || {
                assert_eq!(control() & FLUSH, FLUSH, "the caller's mode was changed");
            });
        }
    });
}

#[test]
fn both_implementations_have_the_same_bits() {
    let hashes: Vec<Vec<String>> = ["portable", "avx2"]
        .into_iter()
        .map(|simd| {
            let group = Group::new("both_implementations_have_the_same_bits", 1).env("ZE_SOFT_DEVICES", 8);
            group.env(SIMD, simd).run_with(
                |rank| {
                    let simd = match std::env::var(SIMD).unwrap().as_str() {
                        "portable" => Simd::Portable,
                        // Where there is none, this compares the portable one with itself.
                        _ => Simd::detect(),
                    };
                    assert!(twins::force_simd(simd), "a twin was in use already");
                    for n in RANKS {
                        rank.say(format!("n {n}: {:x}", check(n, 64, &cases(n), nothing, nothing)));
                    }
                },
                |running| {
                    let ended = running.wait().remove(0);
                    assert!(ended.status.success(), "{simd}: {}", ended.output);
                    // The harness has begun the first line.
                    let hash = |line: &str| line.split_once("[0] n ").map(|(_, hash)| hash.to_owned());
                    ended.output.lines().filter_map(hash).collect()
                },
            )
        })
        .collect();
    assert_eq!(hashes[0].len(), RANKS.len());
    assert_eq!(hashes[0], hashes[1]);
}
