//! Plans executed on real bytes in real slots, held to the reference; and what the reference promises to rows.
#![allow(clippy::unwrap_used, reason = "test code")]

use ccl_core::plan::geometry::Geometry;
use ccl_core::plan::ring::{RingPlan, Step};
use ccl_core::plan::{Agreed, Request};
use ccl_core::protocol::{BLOCK_WORDS, LineForm, tag};
use ccl_core::reference::{all_reduce, average, combine, multiply, sum_ring};
use ccl_core::{DataType, Factor, Order, ReduceOp};

/// Bits that differ by rank and position and whose sums depend on the order: exponents near one, any fraction.
fn message(rank: usize, count: u64, dtype: DataType) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count as usize * dtype.size());
    for i in 0..count {
        let mut h = (i << 5 | rank as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        h = (h ^ h >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        h ^= h >> 32;
        let (sign, fraction, scale) = (h & 1, h >> 8, h >> 4 & 7);
        let bits = match dtype {
            DataType::Bfloat16 => sign << 15 | (123 + scale) << 7 | fraction & 0x7F,
            DataType::Float16 => sign << 15 | (11 + scale) << 10 | fraction & 0x3FF,
            DataType::Float32 => sign << 31 | (123 + scale) << 23 | fraction & 0x7F_FFFF,
            DataType::Float64 => sign << 63 | (1019 + scale) << 52 | h >> 12,
            _ => h,
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
    }
    bytes
}

/// Messages of all ranks, at most once made for a test.
fn messages(n: usize, count: u64, dtype: DataType) -> Vec<Vec<u8>> {
    (0..n).map(|rank| message(rank, count, dtype)).collect()
}

fn reference(inputs: &[&[u8]], dtype: DataType, period: Option<u64>) -> Vec<u8> {
    let count = (inputs[0].len() / dtype.size()) as u64;
    sum_ring(inputs, dtype, &Geometry::new(inputs.len(), count, period, dtype.size()).unwrap())
}

/// A rank's memory; the message is reduced in place.
struct Rank {
    message: Vec<u8>,
    /// Staging memory by 32-bit words.
    staging: Vec<u32>,
}

struct Run<'a> {
    plan: &'a RingPlan,
    ranks: Vec<Rank>,
}

impl Run<'_> {
    /// Bytes in `message` and in the segment's words of every block of a step.
    fn places(&self, step: &Step) -> Vec<(usize, usize, usize)> {
        let (g, size) = (&self.plan.geometry, self.plan.dtype.size());
        g.blocks(step.chunk, self.plan.wires, step.wire, step.first_block, step.blocks.into())
            .enumerate()
            .map(|(i, b)| (b.first as usize * size, i * BLOCK_WORDS * 4, b.elements as usize * size))
            .collect()
    }

    /// Executes a step of `rank`; false while a line of its slot is missing.
    fn execute(&mut self, rank: usize, step: &Step) -> bool {
        let (plan, flag) = (self.plan, self.plan.form.payload_words());
        let payload = plan.form.data_words(plan.dtype.size());
        let (size, stamp) = (plan.dtype.size(), tag(40, step.round));
        let line = |slot: u32, l: u32| plan.line_offset(slot, step.wire, l) / 4;
        let mut words = vec![0u32; step.lines as usize * payload];
        if step.receive {
            for (l, data) in words.chunks_mut(payload).enumerate() {
                let at = line(step.position - 1, l as u32);
                if self.ranks[rank].staging[at + flag] != stamp {
                    return false;
                }
                data.copy_from_slice(&self.ranks[rank].staging[at..at + payload]);
            }
        }
        let mut value: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        for (at, from, bytes) in self.places(step) {
            let own = &mut self.ranks[rank].message[at..at + bytes];
            let part = &mut value[from..from + bytes];
            if !step.receive || step.reduce {
                for (x, y) in part.chunks_mut(size).zip(own.chunks(size)) {
                    let bits = |b: &[u8]| b.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                    let mut all = match plan.op {
                        ReduceOp::PreMulSum(factor) => multiply(plan.dtype, bits(y), factor.bits()),
                        _ => bits(y),
                    };
                    if step.receive {
                        all = combine(plan.dtype, plan.op, bits(x), all);
                    }
                    if step.store && plan.op == ReduceOp::Avg {
                        all = average(plan.dtype, all, plan.n);
                    }
                    x.copy_from_slice(&all.to_le_bytes()[..size]);
                }
            }
            if step.store {
                own.copy_from_slice(part);
            }
        }
        if step.send {
            let next = &mut self.ranks[(rank + 1) % plan.n].staging;
            for (l, data) in value.chunks(payload * 4).enumerate() {
                let at = line(step.position, l as u32);
                for (word, bytes) in next[at..].iter_mut().zip(data.chunks(4)) {
                    *word = u32::from_le_bytes(bytes.try_into().unwrap());
                }
                next[at + flag] = stamp;
            }
        }
        true
    }
}

fn execute(plan: &RingPlan, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let rank = |m: &Vec<u8>| Rank { message: m.clone(), staging: vec![u32::MAX; plan.staging_bytes() / 4] };
    let mut run = Run { plan, ranks: inputs.iter().map(rank).collect() };
    let mut todo: Vec<_> = (0..plan.n).map(|rank| plan.steps(rank).peekable()).collect();
    loop {
        let mut progress = false;
        for (rank, steps) in todo.iter_mut().enumerate() {
            while steps.peek().is_some_and(|step| run.execute(rank, step)) {
                steps.next();
                progress = true;
            }
        }
        if !progress {
            assert!(todo.iter_mut().all(|steps| steps.peek().is_none()), "{plan}: deadlock");
            return run.ranks.into_iter().map(|r| r.message).collect();
        }
    }
}

#[test]
fn executed_plans_leave_the_bits_of_the_reference_on_every_rank() {
    let mut several_rounds = 0;
    let mut turn = 0;
    for n in [2, 3, 4, 5, 8, 16] {
        for (i, count) in [1, n as u64 - 1, n as u64 + 1, 127, 1009, 4097, 30_011].into_iter().enumerate() {
            for period in [None, Some(77), Some(1024)] {
                for (form, wires) in LineForm::ALL.into_iter().zip([1, 2, 3]) {
                    turn += 1;
                    let dtype = DataType::ALL[turn % 10];
                    let factor = ReduceOp::PreMulSum(Factor::new(dtype, message(20, 1, dtype)[0].into()));
                    let op = *ReduceOp::ALL.get(turn / 10 % 6).unwrap_or(&factor);
                    let request = Request { count, dtype, op, order: Order::Ring, period, registered: None };
                    let agreed = Agreed::ring(n, form, wires * (1 + i as u32 % 2) + 1);
                    let plan = RingPlan::new(&request, &agreed, wires).unwrap();
                    let inputs = messages(n, count, dtype);
                    let views: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
                    let expected = all_reduce(&views, dtype, op, Order::Ring, &plan.geometry);
                    for (rank, output) in execute(&plan, &inputs).into_iter().enumerate() {
                        assert!(output == expected, "{plan}: rank {rank} differs");
                    }
                    several_rounds += u32::from(plan.rounds > 1);
                }
            }
        }
    }
    assert!(several_rounds > 30, "{several_rounds}");
}

/// Bytes `range` of every message.
fn part(inputs: &[Vec<u8>], range: std::ops::Range<usize>) -> Vec<&[u8]> {
    inputs.iter().map(|m| &m[range.clone()]).collect()
}

#[test]
fn a_prefix_has_the_bits_of_the_whole() {
    for dtype in [DataType::Bfloat16, DataType::Float16, DataType::Float32] {
        for n in [2, 3, 5, 8, 16] {
            for period in [None, Some(300)] {
                let inputs = messages(n, 20_000, dtype);
                let whole = reference(&part(&inputs, 0..20_000 * dtype.size()), dtype, period);
                for count in [1, 2, 127, 128, 129, 1000, 4096, 9973, 19_999] {
                    let bytes = count * dtype.size();
                    assert!(
                        reference(&part(&inputs, 0..bytes), dtype, period) == whole[..bytes],
                        "{dtype} n {n} {count}"
                    );
                }
            }
        }
    }
}

const ROW: usize = 4096;

/// How many of `rows` rows differ from the same row reduced alone.
fn rows_that_differ(n: usize, rows: usize, period: Option<u64>) -> usize {
    let (dtype, bytes) = (DataType::Bfloat16, ROW * 2);
    let inputs = messages(n, (rows * ROW) as u64, dtype);
    let together = reference(&part(&inputs, 0..rows * bytes), dtype, period);
    let alone = |row: usize| reference(&part(&inputs, row * bytes..(row + 1) * bytes), dtype, period);
    (0..rows).filter(|row| alone(*row) != together[row * bytes..(row + 1) * bytes]).count()
}

#[test]
fn every_row_has_the_same_bits_alone_and_among_others() {
    for n in [2, 4, 8] {
        for rows in [8, 64] {
            for period in [None, Some(ROW as u64)] {
                assert_eq!(rows_that_differ(n, rows, period), 0, "n {n}, {rows} rows, period {period:?}");
            }
        }
    }
}

#[test]
fn where_blocks_do_not_divide_the_row_only_a_period_keeps_its_bits() {
    // 3 blocks of 128 do not divide 4096: without a period two rows of three begin in the middle of a deal. That the
    // bits then differ also shows that these inputs can tell one order of summation from another.
    assert_eq!(rows_that_differ(3, 8, Some(ROW as u64)), 0);
    assert_eq!(rows_that_differ(3, 8, None), 5);
}
