//! What a reduction of one element may come to, whatever order a library adds in: docs/witness.md has the derivation.

use crate::call::Op;
use ccl_core::reference::{self, to_f64};
use ccl_core::types::Factor;
use ccl_core::{DataType, ReduceOp};

/// A judgement of one element.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Judged {
    Right,
    /// What it should have been.
    Wrong(String),
    /// Orders differ beyond any bound: a product that may overflow or underflow on the way.
    Open,
}

/// Of a floating-point type: what one rounding may change, the largest number, and the least normal one.
struct Precision {
    /// Half a unit in the last place, relative.
    u: f64,
    largest: f64,
    least_normal: f64,
    /// What may be lost below the normal numbers, for each operation.
    tiny: f64,
    /// Of results that were added up in binary32 and rounded once.
    wide: f64,
}

impl Precision {
    fn of(dtype: DataType) -> Option<Precision> {
        let single = f64::from(f32::MIN_POSITIVE);
        Some(match dtype {
            // Nobody flushes its subnormals; a single rounding from binary32 may lose half of the least.
            DataType::Float16 => Precision {
                u: 2f64.powi(-11),
                largest: 65504.0,
                least_normal: 2f64.powi(-14),
                tiny: 2f64.powi(-24),
                wide: 2f64.powi(-23),
            },
            DataType::Bfloat16 => Precision {
                u: 2f64.powi(-8),
                largest: 3.3895313892515355e38,
                least_normal: single,
                tiny: single,
                wide: 2f64.powi(-23),
            },
            DataType::Float32 => {
                Precision { u: 2f64.powi(-24), largest: f32::MAX.into(), least_normal: single, tiny: single, wide: 0.0 }
            }
            DataType::Float64 => Precision {
                u: 2f64.powi(-53),
                largest: f64::MAX,
                least_normal: f64::MIN_POSITIVE,
                tiny: f64::MIN_POSITIVE,
                wide: 0.0,
            },
            _ => return None,
        })
    }
}

/// Bits of the lowest bytes of `element`.
pub(crate) fn load(element: &[u8]) -> u64 {
    let mut bits = [0; 8];
    bits[..element.len()].copy_from_slice(element);
    u64::from_le_bytes(bits)
}

/// An element for people.
pub(crate) fn show(dtype: DataType, bits: u64) -> String {
    match dtype {
        DataType::Int64 => (bits as i64).to_string(),
        DataType::Uint64 => bits.to_string(),
        _ if dtype.is_float() => format!("{:e} ({bits:#x})", to_f64(dtype, bits)),
        _ => format!("{}", to_f64(dtype, bits)),
    }
}

/// Judges `got`, which is to be the reduction of `inputs`, one of each rank; `factors` are of a pre-multiplied sum.
pub(crate) fn judge(dtype: DataType, op: Op, inputs: &[u64], factors: &[Factor], got: u64) -> Judged {
    let Op::Known(op) = op else { return Judged::Open };
    match Precision::of(dtype) {
        Some(precision) => floats(&precision, dtype, op, inputs, factors, got),
        None => integers(dtype, op, inputs, factors, got),
    }
}

fn integers(dtype: DataType, op: ReduceOp, inputs: &[u64], factors: &[Factor], got: u64) -> Judged {
    let mut inputs = inputs.to_vec();
    if let ReduceOp::PreMulSum(_) = op {
        for (input, factor) in inputs.iter_mut().zip(factors) {
            let Ok(factor) = factor.element(dtype) else { return Judged::Open };
            *input = reference::multiply(dtype, *input, factor);
        }
    }
    let all = inputs[1..].iter().fold(inputs[0], |all, input| reference::combine(dtype, op, all, *input));
    let n = inputs.len();
    if op != ReduceOp::Avg {
        return if got == all { Judged::Right } else { Judged::Wrong(show(dtype, all)) };
    }
    // Toward zero, or down; the sum itself may have wrapped, or not.
    let exact: i128 = inputs.iter().map(|input| integer(dtype, *input)).sum();
    let n = n as i128;
    let (wrapped, got) = (integer(dtype, all), integer(dtype, got));
    if [wrapped / n, wrapped.div_euclid(n), exact / n, exact.div_euclid(n)].contains(&got) {
        return Judged::Right;
    }
    Judged::Wrong(format!("{} (rounded toward zero or down)", exact / n))
}

fn integer(dtype: DataType, bits: u64) -> i128 {
    match dtype {
        DataType::Int8 => (bits as i8).into(),
        DataType::Int32 => (bits as i32).into(),
        DataType::Int64 => (bits as i64).into(),
        _ => bits.into(),
    }
}

/// A sum with what binary64 has lost of it.
#[derive(Default)]
struct Sum {
    high: f64,
    low: f64,
}

impl Sum {
    fn add(&mut self, x: f64) {
        let high = self.high + x;
        let back = high - self.high;
        self.low += (self.high - (high - back)) + (x - back);
        self.high = high;
    }
}

fn floats(p: &Precision, dtype: DataType, op: ReduceOp, bits: &[u64], factors: &[Factor], got: u64) -> Judged {
    let n = bits.len();
    let mut x = [0.0; ccl_core::protocol::MAX_RANKS];
    let x = &mut x[..n];
    for (x, bits) in x.iter_mut().zip(bits) {
        *x = to_f64(dtype, *bits);
    }
    let result = to_f64(dtype, got);
    match op {
        ReduceOp::Max | ReduceOp::Min => extremes(op, x, result),
        // One number is nothing to round.
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Avg if n == 1 => {
            let right = x[0] == result || x[0].is_nan() && result.is_nan();
            if right { Judged::Right } else { Judged::Wrong(format!("{:e}", x[0])) }
        }
        ReduceOp::Prod => product(p, x, result),
        ReduceOp::Sum => sum(p, x, result, &Slack { scale: 1.0, inputs: 0.0, results: 1.0 }),
        // Divided at the end, or before.
        ReduceOp::Avg => sum(p, x, result, &Slack { scale: n as f64, inputs: 2.0, results: 2.0 }),
        ReduceOp::PreMulSum(_) => {
            for (x, factor) in x.iter_mut().zip(factors) {
                let Ok(factor) = factor.element(dtype) else { return Judged::Open };
                *x *= to_f64(dtype, factor);
            }
            // Of binary64 the products here are rounded as well.
            sum(p, x, result, &Slack { scale: 1.0, inputs: 2.0, results: 1.0 })
        }
    }
}

fn extremes(op: ReduceOp, x: &[f64], result: f64) -> Judged {
    let better = |a: f64, b: f64| if op == ReduceOp::Max { a.max(b) } else { a.min(b) };
    let best = x.iter().copied().fold(f64::NAN, better);
    // Whether NaN wins is each library's own matter, and so is which zero does.
    let with_nan = x.iter().any(|x| x.is_nan()) && result.is_nan();
    if result == best || with_nan { Judged::Right } else { Judged::Wrong(format!("{best:e}")) }
}

/// What is rounded beside the additions.
struct Slack {
    /// The sum is divided by this.
    scale: f64,
    /// Roundings of each input.
    inputs: f64,
    /// Roundings of the result.
    results: f64,
}

fn sum(p: &Precision, x: &[f64], result: f64, slack: &Slack) -> Judged {
    let n = x.len() as f64;
    if x.iter().any(|x| x.is_nan()) {
        return if result.is_nan() { Judged::Right } else { Judged::Wrong("NaN".into()) };
    }
    let (mut total, mut up, mut down) = (Sum::default(), 0.0f64, 0.0f64);
    for x in x {
        total.add(*x);
        if *x > 0.0 { up += x } else { down -= x }
    }
    // No partial sum passes these, whatever the order: leaving out what has the other sign only makes it larger.
    let grown = (1.0 + p.u).powi(x.len() as i32 + 1);
    let (up, down) = (up * grown, down * grown);
    // Infinite inputs count here too.
    let (plus, minus) = (up >= p.largest, down >= p.largest);
    if x.contains(&f64::INFINITY) && x.contains(&f64::NEG_INFINITY) {
        return if result.is_nan() { Judged::Right } else { Judged::Wrong("NaN".into()) };
    }
    if result.is_nan() {
        return if plus && minus { Judged::Right } else { wrong(&total, slack, 0.0) };
    }
    if result.is_infinite() {
        let may = if result > 0.0 { plus } else { minus };
        return if may { Judged::Right } else { wrong(&total, slack, 0.0) };
    }
    if x.iter().any(|x| x.is_infinite()) {
        return Judged::Wrong(format!("{:e}", x.iter().sum::<f64>()));
    }
    let most = up.max(down) / slack.scale;
    let mut tolerance = slack.results * p.u * result.abs();
    tolerance += (n - 2.0).max(0.0) * p.u * most + n * p.wide * most;
    tolerance += slack.inputs * p.u * (up + down) / slack.scale + n * p.tiny;
    // What binary64 itself rounds, here and in the factors.
    tolerance = tolerance * (1.0 + 1e-9) + n * n * 2f64.powi(-100) * most;
    let off = if slack.scale == 1.0 {
        ((result - total.high) - total.low).abs()
    } else {
        tolerance += 4.0 * 2f64.powi(-53) * most;
        (result - (total.high + total.low) / slack.scale).abs()
    };
    // Sums beyond binary64 compare with nothing; then `plus` or `minus` holds and a finite result may be anything.
    if off <= tolerance || !off.is_finite() && (plus || minus) {
        return Judged::Right;
    }
    wrong(&total, slack, tolerance)
}

fn wrong(total: &Sum, slack: &Slack, tolerance: f64) -> Judged {
    let exact = (total.high + total.low) / slack.scale;
    Judged::Wrong(format!("{exact:e}, or at most {tolerance:.3e} from it"))
}

fn product(p: &Precision, x: &[f64], result: f64) -> Judged {
    let judged = |right: bool, wanted: f64| if right { Judged::Right } else { Judged::Wrong(format!("{wanted:e}")) };
    if x.iter().any(|x| x.is_nan()) {
        return judged(result.is_nan(), f64::NAN);
    }
    let zero = x.contains(&0.0);
    let infinite = x.iter().any(|x| x.is_infinite());
    // The largest and the smallest partial product of any order.
    let large: f64 = x.iter().map(|x| x.abs().max(1.0)).product();
    let small: f64 = x.iter().map(|x| x.abs()).filter(|x| *x > 0.0).map(|x| x.min(1.0)).product();
    let grown = (1.0 + p.u).powi(x.len() as i32);
    let (overflows, underflows) = (large * grown >= p.largest, small <= p.least_normal * grown);
    let exact: f64 = x.iter().product();
    if zero && infinite {
        return judged(result.is_nan(), f64::NAN);
    }
    if underflows || overflows && !infinite {
        return Judged::Open;
    }
    if infinite || zero {
        return judged(result == exact, exact);
    }
    let n = x.len() as f64;
    let relative = (grown - 1.0 + n * p.wide) * (1.0 + 1e-9) + n * 2f64.powi(-52);
    judged((result - exact).abs() <= relative * exact.abs(), exact)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use half::{bf16, f16};
    use proptest::prelude::*;

    fn sum_of(dtype: DataType, inputs: &[u64], got: u64) -> Judged {
        judge(dtype, Op::Known(ReduceOp::Sum), inputs, &[], got)
    }

    /// All results of adding in the order of some binary tree, with each rounding to the type.
    fn any_order(dtype: DataType, op: ReduceOp, inputs: &[u64], choices: &[usize]) -> u64 {
        let mut left = inputs.to_vec();
        for choice in choices.iter().cycle() {
            if left.len() == 1 {
                break;
            }
            let a = left.swap_remove(choice % left.len());
            let b = left.swap_remove(choice / 7 % left.len());
            left.push(reference::combine(dtype, op, a, b));
        }
        left[0]
    }

    const FLOATS: [DataType; 4] = [DataType::Float16, DataType::Bfloat16, DataType::Float32, DataType::Float64];

    /// Bits of a number of `dtype`, moderate or of any size.
    fn number(dtype: DataType, seed: u64, any: bool) -> u64 {
        if any {
            return seed >> (64 - 8 * dtype.size());
        }
        let value = (seed % 20_001) as f64 / 997.0 - 10.0;
        match dtype {
            DataType::Float16 => f16::from_f64(value).to_bits().into(),
            DataType::Bfloat16 => bf16::from_f64(value).to_bits().into(),
            DataType::Float32 => (value as f32).to_bits().into(),
            _ => value.to_bits(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::with_source_file("bounds") })]

        /// No order of any library is ever taken for wrong, special numbers included.
        #[test]
        fn every_order_is_right(
            seeds in prop::collection::vec(any::<u64>(), 1..9),
            choices in prop::collection::vec(0usize..100, 8..9),
            dtype in 0usize..4,
            any_size in any::<bool>(),
            op in 0usize..3,
        ) {
            let dtype = FLOATS[dtype];
            let inputs: Vec<u64> = seeds.iter().map(|seed| number(dtype, *seed, any_size)).collect();
            let op = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Avg][op];
            let mut got = any_order(dtype, op, &inputs, &choices);
            if op == ReduceOp::Avg && inputs.len() > 1 {
                got = reference::average(dtype, got, inputs.len());
            }
            let judged = judge(dtype, Op::Known(op), &inputs, &[], got);
            prop_assert!(!matches!(judged, Judged::Wrong(_)), "{dtype} {op} of {inputs:x?} gave {got:x}: {judged:?}");
        }

        /// NEGATIVE CONTROL: what is farther from the sum than any order can come is not right.
        #[test]
        fn a_changed_element_is_wrong(
            seeds in prop::collection::vec(any::<u64>(), 2..9),
            choices in prop::collection::vec(0usize..100, 8..9),
            dtype in 0usize..4,
        ) {
            let dtype = FLOATS[dtype];
            let inputs: Vec<u64> = seeds.iter().map(|seed| number(dtype, *seed, false)).collect();
            let right = any_order(dtype, ReduceOp::Sum, &inputs, &choices);
            // The sign, and the highest bit of the exponent.
            for flipped in [1u64 << (8 * dtype.size() - 1), 1 << (8 * dtype.size() - 2)] {
                let exact = to_f64(dtype, right).abs();
                let total: f64 = inputs.iter().map(|x| to_f64(dtype, *x).abs()).sum();
                // Near zero, a change of sign is within what orders differ by.
                prop_assume!(exact > total / 8.0);
                prop_assert!(matches!(sum_of(dtype, &inputs, right ^ flipped), Judged::Wrong(_)));
            }
        }
    }

    #[test]
    fn two_numbers_have_one_sum() {
        let (a, b) = (1.0f32, f32::EPSILON * 0.75);
        let right = a + b;
        let bits = |x: f32| u64::from(x.to_bits());
        assert_eq!(sum_of(DataType::Float32, &[bits(a), bits(b)], bits(right)), Judged::Right);
        assert!(matches!(sum_of(DataType::Float32, &[bits(a), bits(b)], bits(right) + 1), Judged::Wrong(_)));
        assert!(matches!(sum_of(DataType::Float32, &[bits(3.0), bits(-3.0)], bits(1e-20)), Judged::Wrong(_)));
    }

    #[test]
    fn special_numbers() {
        let bits = |x: f32| u64::from(x.to_bits());
        let of = |op, inputs: &[f32], got: f32| {
            judge(
                DataType::Float32,
                Op::Known(op),
                &inputs.iter().map(|x| bits(*x)).collect::<Vec<_>>(),
                &[],
                bits(got),
            )
        };
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        for (op, inputs, got, right) in [
            (ReduceOp::Sum, [1.0, inf, 2.0], inf, true),
            (ReduceOp::Sum, [1.0, inf, 2.0], 3.0, false),
            (ReduceOp::Sum, [1.0, inf, -inf], nan, true),
            (ReduceOp::Sum, [1.0, nan, 2.0], nan, true),
            (ReduceOp::Sum, [1.0, nan, 2.0], 3.0, false),
            (ReduceOp::Sum, [1.0, 1.0, 2.0], nan, false),
            // Overflows in one order, not in another.
            (ReduceOp::Sum, [3e38, 3e38, -3e38], inf, true),
            (ReduceOp::Sum, [3e38, 3e38, -3e38], 3e38, true),
            (ReduceOp::Sum, [3e38, 3e38, -3e38], -inf, false),
            (ReduceOp::Prod, [0.0, inf, 1.0], nan, true),
            (ReduceOp::Prod, [0.0, 5.0, 1.0], 1.0, false),
            (ReduceOp::Max, [0.0, nan, 1.0], nan, true),
            (ReduceOp::Max, [0.0, nan, 1.0], 1.0, true),
            (ReduceOp::Max, [0.0, nan, 1.0], 0.0, false),
            (ReduceOp::Min, [-2.0, 5.0, 1.0], 5.0, false),
        ] {
            let judged = of(op, &inputs, got);
            assert_eq!(judged == Judged::Right, right, "{op} of {inputs:?} gave {got}: {judged:?}");
        }
    }

    #[test]
    fn integers_are_exact() {
        let bytes = |x: i8| u64::from(x as u8);
        let of = |op, inputs: &[i8], got: i8| {
            let inputs: Vec<u64> = inputs.iter().map(|x| bytes(*x)).collect();
            judge(DataType::Int8, Op::Known(op), &inputs, &[], bytes(got)) == Judged::Right
        };
        assert!(of(ReduceOp::Sum, &[100, 100], -56) && !of(ReduceOp::Sum, &[100, 100], 127));
        assert!(of(ReduceOp::Max, &[-1, 0], 0) && !of(ReduceOp::Max, &[-1, 0], -1));
        assert!(of(ReduceOp::Avg, &[-3, 0], -1) && of(ReduceOp::Avg, &[-3, 0], -2) && !of(ReduceOp::Avg, &[-3, 0], 0));
        let factors = [Factor::new(DataType::Int8, 3), Factor::new(DataType::Int8, 200)];
        let op = ReduceOp::PreMulSum(factors[0]);
        let inputs = [bytes(5), bytes(2)];
        let wanted = 5i8.wrapping_mul(3).wrapping_add(2i8.wrapping_mul(200u8 as i8));
        assert_eq!(judge(DataType::Int8, Op::Known(op), &inputs, &factors, bytes(wanted)), Judged::Right);
        assert!(matches!(judge(DataType::Int8, Op::Known(op), &inputs, &factors, bytes(wanted ^ 1)), Judged::Wrong(_)));
    }
}
