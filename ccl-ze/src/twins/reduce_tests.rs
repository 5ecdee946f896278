#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use super::*;
use crate::twins::fp::DefaultFp;
use ccl_core::Factor;
use ccl_core::plan::geometry::Geometry;
use ccl_core::reference;

fn reducer(dtype: DataType, op: ReduceOp, order: Order, n: usize, simd: Simd) -> Reducer {
    Reducer::new((dtype, op, order), op.factor(dtype).unwrap(), n, simd)
}

/// Bits that a mixed word makes: any, or a value at which something happens.
fn element(dtype: DataType, word: u64) -> u64 {
    let (exponent_bits, fraction_bits) = match dtype {
        DataType::Bfloat16 => (8, 7),
        DataType::Float16 => (5, 10),
        DataType::Float32 => (8, 23),
        DataType::Float64 => (11, 52),
        _ => {
            let top = 1u64 << (8 * dtype.size() - 1);
            let special = [0, 1, 2, 3, top, top - 1, top + 1, u64::MAX, u64::MAX - 1];
            return if word & 1 == 0 { word >> 8 } else { special[(word >> 8) as usize % special.len()] };
        }
    };
    let least = 1u64 << fraction_bits;
    let (infinity, sign) = (((1u64 << exponent_bits) - 1) << fraction_bits, 1u64 << (exponent_bits + fraction_bits));
    let one = ((1u64 << (exponent_bits - 1)) - 1) << fraction_bits;
    let half = one - (fraction_bits + 1) * least;
    let root = (one >> fraction_bits) / 2 * least + word % least;
    let special = [
        0,
        1,
        2,
        least - 1,
        least,
        least + 1,
        half - 1,
        half,
        half + 1,
        one - 1,
        one,
        one + 1,
        root,
        infinity - 1,
        infinity,
        infinity + 1,
        infinity | (least / 2),
        sign - 1,
    ];
    match word & 7 {
        0 | 1 => word >> 8,
        // Near one: results that round.
        2..=4 => (word >> 8 & (sign | (least - 1))) | (one + (word >> 4 & 3) * least),
        _ => special[(word >> 8) as usize % special.len()] | ((word >> 3 & 1) * sign),
    }
}

fn messages(dtype: DataType, seed: u64, n: usize, count: usize) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut message = |_| {
        let mut bytes = Vec::new();
        for _ in 0..count {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut x = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            bytes.extend_from_slice(&element(dtype, x ^ x >> 31).to_le_bytes()[..dtype.size()]);
        }
        bytes
    };
    (0..n).map(&mut message).collect()
}

/// What the reference makes of the inputs in an order that begins with rank `first`.
fn expected(inputs: &[Vec<u8>], dtype: DataType, op: ReduceOp, order: Order, first: usize) -> Vec<u8> {
    let n = inputs.len();
    let views: Vec<&[u8]> = (0..n).map(|rank| inputs[(first + rank) % n].as_slice()).collect();
    // Each element alone is of chunk 0, which begins with the first input.
    let one = Geometry::new(n, 1, None, dtype.size()).unwrap();
    let size = dtype.size();
    let element = |i: usize| {
        let elements: Vec<&[u8]> = views.iter().map(|view| &view[i * size..][..size]).collect();
        reference::all_reduce(&elements, dtype, op, order, &one)
    };
    (0..inputs[0].len() / size).flat_map(element).collect()
}

#[track_caller]
fn same(got: &[u8], want: &[u8], dtype: DataType, what: &dyn std::fmt::Display) {
    let at = got.chunks(dtype.size()).zip(want.chunks(dtype.size())).position(|(got, want)| got != want);
    if let Some(i) = at {
        let range = i * dtype.size()..(i + 1) * dtype.size();
        panic!("{dtype} {what}, element {i}: got {:02x?}, want {:02x?}", &got[range.clone()], &want[range]);
    }
}

fn ops(dtype: DataType, seed: u64) -> Vec<ReduceOp> {
    let factors = [0, 1, 5, 6].map(|low| ReduceOp::PreMulSum(Factor::new(dtype, element(dtype, seed << 8 | low))));
    ReduceOp::ALL.into_iter().chain(factors).collect()
}

/// Every type, operation, order and implementation; lengths with and without whole vectors; nothing aligned; the output
/// apart from the inputs and in the place of each.
#[test]
fn all_reductions_are_the_reference_s() {
    let _fp = DefaultFp::enter();
    for dtype in DataType::ALL {
        let size = dtype.size();
        for (n, count) in [(2, 611), (2, 33), (3, 130), (4, 64), (5, 31), (8, 67), (1, 9)] {
            for op in ops(dtype, (n * count) as u64) {
                for order in [Order::Ring, Order::Rank] {
                    let inputs = messages(dtype, count as u64 * 31 + n as u64, n, count);
                    let first = if order == Order::Ring { count % n } else { 0 };
                    let mut want = expected(&inputs, dtype, op, order, first);
                    if n == 1 && !matches!(op, ReduceOp::PreMulSum(_)) {
                        // The reference copies a single input; a reduction leaves one NaN also where it adds nothing.
                        want = canonical(dtype, &want);
                    }
                    for simd in Simd::here() {
                        let reducer = reducer(dtype, op, order, n, simd);
                        let what = format!("{op} {order} n={n} {simd:?}");
                        // One byte further, so that nothing is aligned.
                        let shifted: Vec<Vec<u8>> = inputs.iter().map(|input| [&[0xEE], &input[..]].concat()).collect();
                        let mut pointers: Vec<*const u8> = shifted.iter().map(|input| input[1..].as_ptr()).collect();
                        let mut out = vec![0xEE; count * size + 2];
                        let raw = (1u32 << n) - 1;
                        // SAFETY: all hold the message, and the output is apart.
                        unsafe {
                            reducer.reduce_many(
                                Target::only(out[1..].as_mut_ptr()),
                                &pointers,
                                first,
                                raw,
                                count * size,
                            )
                        };
                        same(&out[1..=count * size], &want, dtype, &what);
                        assert_eq!((out[0], out[count * size + 1]), (0xEE, 0xEE));
                        for place in 0..n {
                            let mut own = shifted[place].clone();
                            let to = own[1..].as_mut_ptr();
                            pointers[place] = to;
                            // SAFETY: as above; the output is one of the inputs.
                            unsafe { reducer.reduce_many(Target::only(to), &pointers, first, raw, count * size) };
                            same(&own[1..], &want, dtype, &what);
                            pointers[place] = shifted[place][1..].as_ptr();
                        }
                    }
                }
            }
        }
    }
}

/// NaN becomes the canonical one; nothing else changes.
fn canonical(dtype: DataType, message: &[u8]) -> Vec<u8> {
    let size = dtype.size();
    let one = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(word);
        let result = reference::combine(dtype, ReduceOp::Max, bits, bits);
        result.to_le_bytes()[..size].to_vec()
    };
    message.chunks(size).flat_map(one).collect()
}

/// As the ring does it: the first contributes, the others add theirs, the last one finishes.
#[test]
fn step_by_step_gives_the_same() {
    let _fp = DefaultFp::enter();
    for dtype in DataType::ALL {
        for n in [2, 3, 5] {
            for op in ops(dtype, n as u64) {
                let inputs = messages(dtype, n as u64, n, 300);
                let want = expected(&inputs, dtype, op, Order::Ring, 0);
                for simd in Simd::here() {
                    let reducer = reducer(dtype, op, Order::Ring, n, simd);
                    let mut acc = vec![0; inputs[0].len()];
                    for (rank, own) in inputs.iter().enumerate() {
                        // SAFETY: both hold the message and are apart.
                        unsafe {
                            match rank {
                                0 => reducer.contribute(acc.as_mut_ptr(), own.as_ptr(), own.len()),
                                _ => reducer.reduce(acc.as_mut_ptr(), own.as_ptr(), rank + 1 == n, own.len()),
                            }
                        }
                    }
                    same(&acc, &want, dtype, &format!("{op} n={n} {simd:?}"));
                    // In place, and of inputs that are as they are sent already.
                    let mut sent = inputs.clone();
                    for message in &mut sent {
                        let own = message.as_mut_ptr();
                        // SAFETY: the message is both.
                        unsafe { reducer.contribute(own, own, message.len()) };
                    }
                    let pointers: Vec<*const u8> = sent.iter().map(|message| message.as_ptr()).collect();
                    // SAFETY: as above.
                    unsafe { reducer.reduce_many(Target::only(acc.as_mut_ptr()), &pointers, 0, 0, acc.len()) };
                    same(&acc, &want, dtype, &format!("{op} n={n} {simd:?}, contributions"));
                }
            }
        }
    }
}

/// Every 16-bit value with a partner that walks through all of them, near and far.
#[test]
fn all_short_values_meet_others() {
    let _fp = DefaultFp::enter();
    for dtype in [DataType::Bfloat16, DataType::Float16] {
        for (stride, op) in [1u32, 3, 257, 40503, 0].into_iter().zip(ReduceOp::ALL.into_iter().cycle()) {
            for op in [ReduceOp::Sum, op] {
                let partner = |i: u32| (i.wrapping_mul(stride).wrapping_add(stride ^ 0x8001)) as u16;
                let inputs = [
                    (0..=u16::MAX).flat_map(u16::to_le_bytes).collect::<Vec<u8>>(),
                    (0..=u32::from(u16::MAX)).flat_map(|i| partner(i).to_le_bytes()).collect(),
                ];
                let want = expected(&inputs, dtype, op, Order::Ring, 0);
                for simd in Simd::here() {
                    let mut got = vec![0; want.len()];
                    let pointers = [inputs[0].as_ptr(), inputs[1].as_ptr()];
                    let reducer = reducer(dtype, op, Order::Ring, 2, simd);
                    // SAFETY: all hold the message, and the output is apart.
                    unsafe { reducer.reduce_many(Target::only(got.as_mut_ptr()), &pointers, 0, 0, got.len()) };
                    same(&got, &want, dtype, &format!("{op} stride {stride} {simd:?}"));
                }
            }
        }
    }
}

/// The caller has flush-to-zero and denormals-are-zero on: the sums keep their subnormals, and the caller its mode.
#[test]
#[cfg(target_arch = "x86_64")]
fn subnormals_survive_a_caller_that_flushes_them() {
    let flush = 0x9FC0u32;
    let read = || {
        let mut now = 0u32;
        // SAFETY: stores MXCSR to a local.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut now, options(nostack)) };
        now
    };
    let before = read();
    // SAFETY: loads a valid MXCSR value, put back below.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const flush, options(nostack)) };
    let tiny = 3u32.to_le_bytes().repeat(16);
    for simd in Simd::here() {
        let reducer = reducer(DataType::Float32, ReduceOp::Sum, Order::Ring, 2, simd);
        let sum = || {
            let mut acc = tiny.clone();
            // SAFETY: both hold the message and are apart.
            unsafe { reducer.reduce(acc.as_mut_ptr(), tiny.as_ptr(), true, tiny.len()) };
            u32::from_le_bytes(acc[..4].try_into().unwrap())
        };
        let flushed = sum();
        let fp = DefaultFp::enter();
        let kept = sum();
        drop(fp);
        assert_eq!(read() & !0x3F, flush & !0x3F);
        assert_eq!(kept, 6);
        // The negative control: without the guard the sum is lost.
        assert_eq!(flushed, 0);
    }
    // SAFETY: as above.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const before, options(nostack)) };
}

/// Prints how long a sum of two messages takes, in copies of one: `cargo test --release -p ccl-ze --lib -- --ignored
/// --nocapture sums_and_copies`.
#[test]
#[ignore = "a measurement"]
fn sums_and_copies() {
    let _fp = DefaultFp::enter();
    for bytes in [32 << 10, 1 << 20, 32 << 20] {
        let (a, b) = (vec![0x3Fu8; bytes], vec![0x3Eu8; bytes]);
        let mut out = vec![0u8; bytes];
        let pointers = [a.as_ptr(), b.as_ptr()];
        let turns = (256 << 20) / bytes;
        for (dtype, op, order) in [
            (DataType::Bfloat16, ReduceOp::Sum, Order::Ring),
            (DataType::Float16, ReduceOp::Sum, Order::Ring),
            (DataType::Float32, ReduceOp::Sum, Order::Ring),
            (DataType::Bfloat16, ReduceOp::Sum, Order::Rank),
            (DataType::Float16, ReduceOp::Sum, Order::Rank),
            (DataType::Bfloat16, ReduceOp::Max, Order::Ring),
            (DataType::Bfloat16, ReduceOp::Avg, Order::Ring),
            (DataType::Float64, ReduceOp::Sum, Order::Ring),
            (DataType::Int8, ReduceOp::Sum, Order::Ring),
            (DataType::Int32, ReduceOp::Max, Order::Ring),
        ] {
            let reducer = reducer(dtype, op, order, 2, Simd::detect());
            let mut ratios = Vec::new();
            for _ in 0..7 {
                let start = std::time::Instant::now();
                for _ in 0..turns {
                    out.copy_from_slice(std::hint::black_box(&a));
                    std::hint::black_box(&mut out);
                }
                let copy = start.elapsed();
                let start = std::time::Instant::now();
                for _ in 0..turns {
                    // SAFETY: all hold the message, and the output is apart.
                    unsafe { reducer.reduce_many(Target::only(out.as_mut_ptr()), &pointers, 0, 0, bytes) };
                    std::hint::black_box(&mut out);
                }
                let copied = (turns * bytes) as f64 / copy.as_secs_f64() / 1e9;
                ratios.push((start.elapsed().as_secs_f64() / copy.as_secs_f64(), copied));
            }
            ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
            println!(
                "{:>5} KiB {dtype:>8} {op:>4} {order}: {:5.2} copies (a copy: {:.1} GB/s)",
                bytes >> 10,
                ratios[3].0,
                ratios[3].1
            );
        }
    }
}
