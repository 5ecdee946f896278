//! Functions of one binary32 value, built from correctly rounded steps only (add, multiply, fused multiply-add, divide,
//! root, conversion), so that every machine and compiler computes the same bits.

/// The one NaN that results carry.
pub const fn canonical(value: f32) -> f32 {
    if value.is_nan() { f32::from_bits(0x7FC0_0000) } else { value }
}

/// 1 / ln 2.
pub const LOG2_E: f32 = f32::from_bits(0x3FB8_AA3B);
/// The first bits of ln 2: products with small integers are exact.
pub const LN2_HIGH: f32 = f32::from_bits(0x3F31_7200);
/// The rest of ln 2.
pub const LN2_LOW: f32 = f32::from_bits(0x35BF_BE8E);
/// Adding it rounds to an integer, ties to even.
pub const ROUND: f32 = 12_582_912.0;
/// 1/7!, 1/6!, ... 1/2!, 1, 1: e^r by Taylor's series, whose remainder is below 1e-8 for |r| <= ln 2 / 2.
pub const EXP_COEFFICIENTS: [f32; 8] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
/// From here on e^x is infinite in binary32.
pub const EXP_MOST: f32 = 88.722_84;
/// From here on down e^x is 0.
pub const EXP_LEAST: f32 = -103.972_08;

/// e^x, within 1.5 units in the last place.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    if x.is_nan() {
        return canonical(x);
    }
    if x >= EXP_MOST {
        return f32::INFINITY;
    }
    if x <= EXP_LEAST {
        return 0.0;
    }
    let k = x.mul_add(LOG2_E, ROUND) - ROUND;
    let r = k.mul_add(-LN2_LOW, k.mul_add(-LN2_HIGH, x));
    let p = EXP_COEFFICIENTS[1..].iter().fold(EXP_COEFFICIENTS[0], |p, &c| p.mul_add(r, c));
    // In two steps: 2^k alone may be out of range where the product is not. The first is exact.
    let k = k as i32;
    let half = k >> 1;
    p * power_of_two(half) * power_of_two(k - half)
}

/// 2^k for -126 <= k <= 127.
pub const fn power_of_two(k: i32) -> f32 {
    f32::from_bits(((k + 127) as u32) << 23)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// 1 / sqrt(x), the root and the quotient each rounded.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_near_the_truth_everywhere() {
        let mut worst = 0.0f64;
        for i in 0..2_000_000 {
            let x = -104.0 + 193.0 * (i as f32 / 2_000_000.0);
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            if want > f64::from(f32::MAX) || want < 1e-38 {
                continue;
            }
            let ulp = f64::from(f32::from_bits((want as f32).to_bits() + 1)) - f64::from(want as f32);
            worst = worst.max((got - want).abs() / ulp);
        }
        assert!(worst < 1.5 && worst > 0.4, "{worst} units in the last place");
    }

    #[test]
    fn exp_ends_where_binary32_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(88.8), f32::INFINITY);
        assert!(exp(88.7).is_finite());
        assert_eq!(exp(-104.0), 0.0);
        assert!(exp(-103.9) > 0.0);
        assert_eq!(exp(-f32::NAN).to_bits(), 0x7FC0_0000);
    }
}
