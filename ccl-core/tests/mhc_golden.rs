//! The reference of mHC boundaries against the NumPy oracle (tests/oracle), by tolerance, and what the tolerance is
//! worth: each way to get the formula wrong must be outside it.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType;
use ccl_core::mhc::element::Element;
use ccl_core::mhc::reference::{self, Inputs, Outputs};
use ccl_core::mhc::{Params, Variant, float64};
use half::bf16;
use std::collections::BTreeMap;

#[derive(serde::Deserialize)]
struct Case {
    variant: String,
    rows: u64,
    hidden: u64,
    streams: u32,
    iterations: u32,
    slow: bool,
    norm: f32,
    rms_eps: f32,
    pre_eps: f32,
    sinkhorn_eps: f32,
    outputs: BTreeMap<String, Vec<u32>>,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("oracle/mhc_golden.json")).unwrap()
}

/// The formula of tests/oracle/golden.py.
fn numbers(salt: u32, len: usize) -> impl Iterator<Item = u32> {
    (0..len as u32).map(move |i| {
        let mut x = i.wrapping_mul(0x9E37_79B1) ^ salt.wrapping_mul(0x85EB_CA77);
        x ^= x >> 15;
        x = x.wrapping_mul(0x2C1B_3C6D);
        x ^= x >> 13;
        x >> 8
    })
}

fn signed(salt: u32, len: usize, bits: u32, scale: f32) -> Vec<f32> {
    numbers(salt, len).map(|x| ((x >> (24 - bits)) as i64 - (1 << (bits - 1))) as f32 * scale).collect()
}

#[derive(Clone)]
struct Data {
    params: Params,
    x: Vec<bf16>,
    residual: Vec<bf16>,
    post: Vec<f32>,
    comb: Vec<f32>,
    previous_pre: Vec<f32>,
    weights: Vec<f32>,
    scale: Vec<f32>,
    base: Vec<f32>,
    norm_weight: Vec<bf16>,
}

impl Data {
    fn new(case: &Case) -> Self {
        let variant = match case.variant.as_str() {
            "v4" => Variant::V4,
            "v41" => Variant::V41,
            "post" => Variant::Post,
            "pre" => Variant::Pre,
            "head" => Variant::Head,
            other => panic!("variant {other}"),
        };
        let mut params = Params::new(variant, DataType::Bfloat16, case.rows, case.hidden, case.streams);
        params.sinkhorn_iterations = case.iterations;
        (params.rms_eps, params.pre_eps, params.sinkhorn_eps) = (case.rms_eps, case.pre_eps, case.sinkhorn_eps);
        params.norm_eps = (case.norm != 0.0).then_some(case.norm);
        params.check().unwrap();
        let (m, d, hc) = (case.rows as usize, case.hidden as usize, case.streams as usize);
        // The golden file has the oracle's shapes whatever the variant reads.
        let mixes = if variant == Variant::Head { hc } else { hc * (2 + hc) };
        let narrow = |values: Vec<f32>| values.into_iter().map(bf16::from_f32).collect::<Vec<_>>();
        let mut base = signed(6, mixes, 8, 1.0 / 128.0);
        if case.slow {
            for (k, base) in base[2 * hc..].iter_mut().enumerate() {
                *base += if k % hc >= k / hc { 6.0 } else { -6.0 };
            }
        }
        Self {
            params,
            x: narrow(signed(1, m * d, 8, 1.0 / 32.0)),
            residual: narrow(signed(2, m * hc * d, 8, 1.0 / 32.0)),
            post: numbers(3, m * hc).map(|x| x as f32 / 8_388_608.0).collect(),
            comb: numbers(4, m * hc * hc).map(|x| (x >> 12) as f32 / 4096.0 / hc as f32).collect(),
            previous_pre: numbers(8, m * hc).map(|x| x as f32 / 8_388_608.0).collect(),
            weights: signed(5, mixes * hc * d, 12, 1.0 / 32768.0),
            scale: vec![0.75, 0.875, 1.25],
            base,
            norm_weight: narrow(signed(7, d, 8, 1.0 / 64.0).into_iter().map(|w| w + 1.0).collect()),
        }
    }

    fn inputs(&self) -> Inputs<'_, bf16> {
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

    /// Coefficients of the golden file's own residual, so that one last bit of it doesn't count.
    fn of_residual(&self, residual: Vec<bf16>, n: usize) -> Outputs<bf16> {
        let mut same = self.clone();
        same.residual = residual;
        if same.params.variant == Variant::V4 {
            same.params.variant = Variant::Pre;
        }
        reference::boundary(&same.params, n, &same.inputs())
    }
}

/// Steps between two values of 16 bits.
fn steps(a: bf16, b: bf16) -> u32 {
    let key = |v: bf16| match v.to_bits() {
        bits if bits & 0x8000 != 0 => -i32::from(bits & 0x7FFF),
        bits => i32::from(bits),
    };
    key(a).abs_diff(key(b))
}

fn narrow_near(got: &[bf16], want: &[u32]) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} elements for {}", got.len(), want.len()));
    }
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let want = bf16::from_bits(want as u16);
        // Near 0 a sum of large parts cancels.
        if steps(got, want) > 1 && (got.to_f32() - want.to_f32()).abs() > 1.0 / 4096.0 {
            return Err(format!("element {i}: {got} for {want}"));
        }
    }
    Ok(())
}

fn wide_near(got: &[f32], want: &[u32]) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} coefficients for {}", got.len(), want.len()));
    }
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let want = f32::from_bits(want);
        if (got - want).abs() > 5e-6 {
            return Err(format!("coefficient {i}: {got} for {want}"));
        }
    }
    Ok(())
}

fn golden(case: &Case, name: &str) -> Vec<u32> {
    case.outputs.get(name).cloned().unwrap_or_default()
}

fn golden_residual(case: &Case) -> Vec<bf16> {
    golden(case, "residual").iter().map(|&bits| bf16::from_bits(bits as u16)).collect()
}

fn coefficients_near(case: &Case, got: &Outputs<bf16>) -> Result<(), String> {
    for (name, values) in [("pre", &got.pre), ("post", &got.post), ("comb", &got.comb)] {
        wide_near(values, &golden(case, name)).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

#[test]
fn the_reference_is_within_tolerance_of_the_oracle() {
    for case in &cases() {
        let data = Data::new(case);
        for n in [1, 2, 3, 5, 8] {
            let label = format!("{} {}x{}x{} n={n}", case.variant, case.rows, case.streams, case.hidden);
            let got = reference::boundary(&data.params, n, &data.inputs());
            for (name, values) in [("residual", &got.residual), ("y", &got.y), ("normed", &got.normed)] {
                narrow_near(values, &golden(case, name)).unwrap_or_else(|e| panic!("{label} {name}: {e}"));
            }
            if data.params.variant == Variant::V4 {
                coefficients_near(case, &data.of_residual(golden_residual(case), n))
                    .unwrap_or_else(|e| panic!("{label}: {e}"));
            } else if data.params.variant == Variant::Pre {
                coefficients_near(case, &got).unwrap_or_else(|e| panic!("{label}: {e}"));
            }
        }
    }
}

#[test]
fn double_precision_in_rust_is_the_oracles() {
    for case in &cases() {
        let data = Data::new(case);
        let got = float64::boundary(&data.params, &data.inputs());
        for (name, values) in [("residual", &got.residual), ("y", &got.y), ("normed", &got.normed)] {
            let bits: Vec<u32> = values.iter().map(|v| v.bits()).collect();
            assert_eq!(bits, golden(case, name), "{} {name}", case.variant);
        }
        for (name, values) in [("pre", &got.pre), ("post", &got.post), ("comb", &got.comb)] {
            for (got, want) in values.iter().zip(golden(case, name)) {
                assert!(got.to_bits().abs_diff(want) <= 1, "{} {name}: {got}", case.variant);
            }
        }
    }
}

/// A result computed wrongly in each of the ways that have been met is outside the tolerance.
#[test]
fn wrong_formulas_are_seen() {
    let cases = cases();
    let of = |pick: &dyn Fn(&Case) -> bool| cases.iter().find(|case| pick(case)).unwrap();
    let (usual, large) = (of(&|c| c.variant == "v4" && !c.slow), of(&|c| c.variant == "v4" && c.pre_eps > 1e-3));
    let slow = of(&|c| c.slow);

    let mut data = Data::new(usual);
    let hc = data.params.hc();
    for comb in data.comb.chunks_exact_mut(hc * hc) {
        let old = comb.to_vec();
        (0..hc * hc).for_each(|k| comb[k] = old[k % hc * hc + k / hc]);
    }
    let got = reference::boundary(&data.params, 2, &data.inputs());
    narrow_near(&got.residual, &golden(usual, "residual")).expect_err("comb transposed");

    let mut data = Data::new(usual);
    data.params.variant = Variant::V41;
    let got = reference::boundary(&data.params, 2, &data.inputs());
    narrow_near(&got.y, &golden(usual, "y")).expect_err("another boundary's pre");

    let mut data = Data::new(slow);
    coefficients_near(slow, &data.of_residual(golden_residual(slow), 2)).unwrap();
    data.params.sinkhorn_iterations = 19;
    coefficients_near(slow, &data.of_residual(golden_residual(slow), 2)).expect_err("19 iterations");

    let mut data = Data::new(usual);
    data.weights.iter_mut().for_each(|w| *w = bf16::from_f32(*w).to_f32());
    coefficients_near(usual, &data.of_residual(golden_residual(usual), 2)).expect_err("fn rounded to 16 bits");

    let data = Data::new(large);
    let mut got = data.of_residual(golden_residual(large), 2);
    coefficients_near(large, &got).unwrap();
    got.post.iter_mut().for_each(|post| *post += large.pre_eps);
    coefficients_near(large, &got).expect_err("epsilon on post");

    // The dot product of what X' was before it was rounded.
    let data = Data::new(usual);
    let (hc, d) = (data.params.hc(), data.params.hidden as usize);
    let wide = Params { dtype: DataType::Float32, rows: 1, variant: Variant::Pre, ..data.params };
    let x: Vec<f32> = data.x[..d].iter().map(|v| v.to_f32()).collect();
    let residual: Vec<f32> = data.residual[..hc * d].iter().map(|v| v.to_f32()).collect();
    let unrounded = reference::post(d, &x, &residual, &data.post[..hc], &data.comb[..hc * hc]);
    let mixes = reference::mixes(&wide, 2, &unrounded, &data.weights);
    let row = reference::coefficients_of(&wide, &mixes, &data.scale, &data.base);
    wide_near(&row.pre[..hc], &golden(usual, "pre")[..hc]).expect_err("dot product before rounding");
}

/// A row's bits depend neither on the other rows nor on its place among them.
#[test]
fn rows_do_not_see_one_another() {
    let case = &cases()[0];
    let mut data = Data::new(case);
    let (d, hc) = (case.hidden as usize, case.streams as usize);
    data.residual[3] = bf16::NAN;
    data.x[7] = bf16::INFINITY;
    let both = reference::boundary(&data.params, 3, &data.inputs());
    let mut one = data.clone();
    one.params.rows = 1;
    one.x.drain(..d);
    one.residual.drain(..hc * d);
    one.post.drain(..hc);
    one.comb.drain(..hc * hc);
    let second = reference::boundary(&one.params, 3, &one.inputs());
    assert_eq!(both.residual[hc * d..], second.residual);
    assert_eq!(both.y[d..], second.y);
    assert_eq!(both.comb[hc * hc..], second.comb);
    assert!(second.y.iter().all(|y| y.to_f32().is_finite()));
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert!(bits(&both.comb[..hc * hc]).iter().all(|&bits| bits == 0x7FC0_0000), "one NaN everywhere in its row");
}
