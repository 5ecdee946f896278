//! A boundary in double precision with the same rounding points: the formula as one would write it down, in no
//! particular order of summation. For tolerances only.

use super::element::Element;
use super::reference::{Inputs, Outputs};
use super::{Params, Variant};

/// See [`super::reference::boundary`].
pub fn boundary<T: Element>(params: &Params, inputs: &Inputs<'_, T>) -> Outputs<T> {
    let (hc, d, rows) = (params.hc(), params.hidden as usize, params.rows as usize);
    let wide = |value: T| f64::from(value.widen());
    let residual: Vec<T> = if params.variant.has_post() {
        let mut all = Vec::with_capacity(rows * hc * d);
        for (m, o) in (0..rows).flat_map(|m| (0..hc).map(move |o| (m, o))) {
            all.extend((0..d).map(|c| {
                let mixed: f64 = (0..hc)
                    .map(|i| {
                        f64::from(inputs.comb[(m * hc + i) * hc + o]) * wide(inputs.residual[(m * hc + i) * d + c])
                    })
                    .sum();
                T::round_f64(f64::from(inputs.post[m * hc + o]) * wide(inputs.x[m * d + c]) + mixed)
            }));
        }
        all
    } else {
        inputs.residual.to_vec()
    };
    let mut out = Outputs {
        residual: Vec::new(),
        pre: Vec::new(),
        post: Vec::new(),
        comb: Vec::new(),
        y: Vec::new(),
        normed: Vec::new(),
    };
    if params.variant.has_pre() {
        for m in 0..rows {
            let x: Vec<f64> = residual[m * hc * d..(m + 1) * hc * d].iter().map(|&v| wide(v)).collect();
            let mean = x.iter().map(|x| x * x).sum::<f64>() / (hc * d) as f64;
            let mix: Vec<f64> = (0..params.mixes())
                .map(|j| {
                    let row = &inputs.weights[j * hc * d..(j + 1) * hc * d];
                    let dot: f64 = x.iter().zip(row).map(|(x, w)| x * f64::from(*w)).sum();
                    dot / (mean + f64::from(params.rms_eps)).sqrt()
                })
                .collect();
            let z = |j: usize, s: usize| mix[j] * f64::from(inputs.scale[s]) + f64::from(inputs.base[j]);
            let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
            let pre: Vec<f64> = (0..hc).map(|i| sigmoid(z(i, 0)) + f64::from(params.pre_eps)).collect();
            let used: Vec<f64> = match params.variant {
                Variant::V41 => inputs.previous_pre[m * hc..(m + 1) * hc].iter().map(|&p| f64::from(p)).collect(),
                _ => pre.clone(),
            };
            let y: Vec<T> = (0..d).map(|c| T::round_f64((0..hc).map(|i| used[i] * x[i * d + c]).sum())).collect();
            if let Some(eps) = params.norm_eps {
                let mean = y.iter().map(|&y| wide(y) * wide(y)).sum::<f64>() / d as f64;
                let root = (mean + f64::from(eps)).sqrt();
                out.normed
                    .extend(y.iter().zip(inputs.norm_weight).map(|(&y, &w)| T::round_f64(wide(y) / root * wide(w))));
            }
            out.y.extend(y);
            if params.variant == Variant::Head {
                continue;
            }
            out.pre.extend(pre.iter().map(|&p| p as f32));
            out.post.extend((0..hc).map(|i| (sigmoid(z(hc + i, 1)) * f64::from(params.post_multiplier)) as f32));
            out.comb.extend(sinkhorn(params, |k| z(2 * hc + k, 2)).iter().map(|&c| c as f32));
        }
    }
    if params.variant.has_post() {
        out.residual = residual;
    }
    out
}

fn sinkhorn(params: &Params, z: impl Fn(usize) -> f64) -> Vec<f64> {
    let (hc, eps) = (params.hc(), f64::from(params.sinkhorn_eps));
    let mut c: Vec<f64> = (0..hc * hc).map(z).collect();
    for row in c.chunks_exact_mut(hc) {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|c| (c - most).exp()).sum();
        row.iter_mut().for_each(|c| *c = (*c - most).exp() / sum + eps);
    }
    for iteration in 0..params.sinkhorn_iterations {
        if iteration > 0 {
            for row in c.chunks_exact_mut(hc) {
                let sum = row.iter().sum::<f64>() + eps;
                row.iter_mut().for_each(|c| *c /= sum);
            }
        }
        for o in 0..hc {
            let sum = (0..hc).map(|i| c[i * hc + o]).sum::<f64>() + eps;
            (0..hc).for_each(|i| c[i * hc + o] /= sum);
        }
    }
    c
}
