//! Boundaries by the twin against the reference, by bits.
#![allow(clippy::unwrap_used, reason = "test code")]

use super::*;
use ccl_core::DataType;

/// Numbers that look like chance, from position and salt.
fn mixed(salt: u32, i: usize) -> u32 {
    let mut x = (i as u32).wrapping_mul(0x9E37_79B1) ^ salt.wrapping_mul(0x85EB_CA77);
    x ^= x >> 15;
    x = x.wrapping_mul(0x2C1B_3C6D);
    x ^ (x >> 13)
}

fn wide(salt: u32, len: usize, scale: f32) -> Vec<f32> {
    (0..len).map(|i| (mixed(salt, i) as i32 as f32) * (scale / 2_147_483_648.0)).collect()
}

struct Case<T> {
    params: Params,
    x: Vec<T>,
    residual: Vec<T>,
    post: Vec<f32>,
    comb: Vec<f32>,
    previous_pre: Vec<f32>,
    weights: Vec<f32>,
    scale: Vec<f32>,
    base: Vec<f32>,
    norm_weight: Vec<T>,
}

impl<T: Lanes> Case<T> {
    fn new(params: Params) -> Self {
        params.check().unwrap();
        let (m, d, hc) = (params.rows as usize, params.hidden as usize, params.hc());
        let narrow = |values: Vec<f32>| values.into_iter().map(T::round).collect::<Vec<_>>();
        Self {
            params,
            x: narrow(wide(1, m * d, 3.0)),
            residual: narrow(wide(2, m * hc * d, 3.0)),
            post: wide(3, m * hc, 2.0),
            comb: wide(4, m * hc * hc, 1.0),
            previous_pre: wide(5, m * hc, 1.0),
            weights: wide(6, params.mixes() * hc * d, 0.04),
            scale: wide(7, 3, 1.0),
            base: wide(8, params.mixes(), 1.0),
            norm_weight: narrow(wide(9, d, 1.5)),
        }
    }

    fn inputs(&self) -> Inputs<'_, T> {
        Inputs {
            x: &self.x,
            residual: &self.residual,
            post: &self.post,
            comb: &self.comb,
            previous_pre: &self.previous_pre,
            weights: &self.weights,
            scale: &self.scale,
            base: &self.base,
            norm_weight: &self.norm_weight,
        }
    }

    /// The twin's outputs; in place where `alias` says so.
    fn twin(&self, n: usize, simd: Simd, alias: bool) -> Outputs<T> {
        let variant = self.params.variant;
        let (mut residual, mut post, mut comb) = (self.residual.clone(), self.post.clone(), self.comb.clone());
        let rows = self.params.rows as usize;
        let (hc, d) = (self.params.hc(), self.params.hidden as usize);
        let mut out = Outputs {
            residual: vec![T::round(9.0); rows * hc * d],
            pre: vec![9.0; rows * hc],
            post: vec![9.0; rows * hc],
            comb: vec![9.0; rows * hc * hc],
            y: vec![T::round(9.0); rows * d],
            normed: vec![T::round(9.0); rows * d],
        };
        let own = |own: *mut f32, other: *mut f32| if alias { own } else { other };
        let memory = Buffers {
            x: self.x.as_ptr().cast(),
            residual: residual.as_mut_ptr().cast(),
            post: post.as_mut_ptr(),
            comb: comb.as_mut_ptr(),
            previous_pre: self.previous_pre.as_ptr(),
            weights: self.weights.as_ptr(),
            scale: self.scale.as_ptr(),
            base: self.base.as_ptr(),
            norm_weight: self.norm_weight.as_ptr().cast(),
            residual_out: if alias { residual.as_mut_ptr().cast() } else { out.residual.as_mut_ptr().cast() },
            post_out: own(post.as_mut_ptr(), out.post.as_mut_ptr()),
            comb_out: own(comb.as_mut_ptr(), out.comb.as_mut_ptr()),
            pre_out: out.pre.as_mut_ptr(),
            y: out.y.as_mut_ptr().cast(),
            normed: out.normed.as_mut_ptr().cast(),
            ..Buffers::default()
        };
        // SAFETY: vectors of the shapes that the parameters say.
        unsafe { boundary(&self.params, n, &memory.of_launch(&self.params), simd) };
        if alias {
            (out.residual, out.post, out.comb) = (residual, post, comb);
        }
        // What the variant doesn't compute must be as it was.
        let untouched = |values: &[T]| values.iter().all(|v| v.bits() == T::round(9.0).bits());
        if !variant.has_post() {
            assert!(alias || untouched(&out.residual));
            out.residual.clear();
        }
        if !variant.has_pre() {
            assert!(untouched(&out.y));
            out.y.clear();
        }
        if self.params.norm_eps.is_none() {
            assert!(untouched(&out.normed));
            out.normed.clear();
        }
        if !variant.has_pre() || variant == Variant::Head {
            assert!(out.pre.iter().all(|v| *v == 9.0));
            out.pre.clear();
            out.post.clear();
            out.comb.clear();
        }
        out
    }

    fn check(&self, n: usize, alias: bool) {
        let want = reference::boundary(&self.params, n, &self.inputs());
        for simd in [Simd::detect(), Simd::Portable] {
            let got = self.twin(n, simd, alias);
            for (name, got, want) in
                [("X'", &got.residual, &want.residual), ("y", &got.y, &want.y), ("norm", &got.normed, &want.normed)]
            {
                let bits = |values: &[T]| values.iter().map(|v| v.bits()).collect::<Vec<_>>();
                assert!(bits(got) == bits(want), "{name} of {:?} n={n} {simd:?}", self.params);
            }
            for (name, got, want) in
                [("pre", &got.pre, &want.pre), ("post", &got.post, &want.post), ("comb", &got.comb, &want.comb)]
            {
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert!(bits(got) == bits(want), "{name} of {:?} n={n} {simd:?}", self.params);
            }
        }
    }
}

fn every_variant<T: Lanes>(dtype: DataType, m: u64, d: u64, hc: u32, n: usize) {
    for (k, variant) in [Variant::V4, Variant::V41, Variant::Post, Variant::Pre, Variant::Head].into_iter().enumerate()
    {
        let mut params = Params::new(variant, dtype, m, d, hc);
        params.norm_eps = (variant != Variant::Post && k % 2 == 0).then_some(1e-6);
        Case::<T>::new(params).check(n, k % 2 == 1);
    }
}

#[test]
fn every_shape_and_type_has_the_references_bits() {
    let mut n = 0;
    for d in [1, 7, 64, 96, 129, 1056, 1100] {
        for hc in [2, 4, 8] {
            for m in [1, 2, 9, 17] {
                n = n % 8 + 1;
                every_variant::<bf16>(DataType::Bfloat16, m, d, hc, n);
            }
            every_variant::<f16>(DataType::Float16, 3, d, hc, n);
            every_variant::<f32>(DataType::Float32, 3, d, hc, n);
        }
    }
    every_variant::<bf16>(DataType::Bfloat16, 1, 4096, 4, 4);
    every_variant::<bf16>(DataType::Bfloat16, 0, 64, 4, 4);
}

#[test]
fn a_row_that_is_not_finite_stays_alone() {
    let params = Params::new(Variant::V4, DataType::Bfloat16, 5, 300, 4);
    let mut case = Case::<bf16>::new(params);
    case.x[300] = bf16::NAN;
    case.residual[4 * 300 * 2 + 299] = bf16::INFINITY;
    case.comb[3 * 16 + 2] = f32::from_bits(0xFFC0_1234);
    case.check(3, false);
    let got = case.twin(3, Simd::detect(), false);
    for row in 0..5 {
        let finite = got.y[row * 300..][..300].iter().all(|y| y.to_f32().is_finite());
        assert_eq!(finite, row == 0 || row == 4, "row {row}");
    }
}

/// The order in which columns are read changes no bit, of one row or of four.
#[cfg(target_arch = "x86_64")]
#[test]
fn lone_blocks_have_the_same_sums() {
    if !is_fast(simd()) {
        return;
    }
    let (d, values) = (640, wide(1, 4 * 8 * 128, 2.0));
    let weights = wide(2, 8 * d, 2.0);
    for (streams, block) in [2, 4, 8].into_iter().flat_map(|streams| [(streams, 64), (streams, 128)]) {
        let four: [*const f32; 4] = std::array::from_fn(|row| values[row * streams * block..].as_ptr());
        let from = weights[256..].as_ptr();
        // SAFETY: both hold as many runs of a block; the processor has what it takes.
        let (one, lone, fours) = unsafe {
            let all = |four| match streams {
                2 => [
                    lanes::four_dots::<2, false>((from, d), four, block),
                    lanes::four_dots::<2, true>((from, d), four, block),
                ],
                4 => [
                    lanes::four_dots::<4, false>((from, d), four, block),
                    lanes::four_dots::<4, true>((from, d), four, block),
                ],
                _ => [
                    lanes::four_dots::<8, false>((from, d), four, block),
                    lanes::four_dots::<8, true>((from, d), four, block),
                ],
            };
            (
                four.map(|row| lanes::dot::<false>(row, block, from, d, streams, block)),
                four.map(|row| lanes::dot::<true>(row, block, from, d, streams, block)),
                all((four, block)),
            )
        };
        let bits = |sums: [f32; 4]| sums.map(f32::to_bits);
        for other in [lone, fours[0], fours[1]] {
            assert_eq!(bits(one), bits(other), "{streams} streams, blocks of {block}");
        }
        assert!(one[0] != one[1] && one[1] != one[2] && one[2] != one[3]);
    }
}
