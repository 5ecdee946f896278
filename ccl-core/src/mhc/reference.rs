//! A boundary in binary32 with the order of every sum: what all kernels and designs equal by bits.

use super::element::Element;
use super::math::{canonical, exp, rsqrt, sigmoid};
use super::{GROUP, MAX_MIXES, Params, Variant, block_owner};

/// What a boundary reads. What the variant does not use may be empty.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, T> {
    /// The reduced sublayer output, [rows, hidden].
    pub x: &'a [T],
    /// [rows, streams, hidden].
    pub residual: &'a [T],
    /// [rows, streams].
    pub post: &'a [f32],
    /// [rows, streams (in), streams (out)].
    pub comb: &'a [f32],
    /// The previous boundary's `pre`, [rows, streams]: [`Variant::V41`] only.
    pub previous_pre: &'a [f32],
    /// [mixes, streams, hidden].
    pub weights: &'a [f32],
    /// Three, or one of [`Variant::Head`].
    pub scale: &'a [f32],
    /// `[mixes]`.
    pub base: &'a [f32],
    /// `[hidden]`, if y is normed.
    pub norm_weight: &'a [T],
}

/// What a boundary writes. What the variant does not compute is empty.
#[derive(Clone, PartialEq, Debug)]
pub struct Outputs<T> {
    /// X', [rows, streams, hidden].
    pub residual: Vec<T>,
    /// [rows, streams].
    pub pre: Vec<f32>,
    /// [rows, streams].
    pub post: Vec<f32>,
    /// [rows, streams (in), streams (out)].
    pub comb: Vec<f32>,
    /// [rows, hidden].
    pub y: Vec<T>,
    /// RMSNorm(y), [rows, hidden].
    pub normed: Vec<T>,
}

/// The boundary of `params` for `n` ranks: their number cuts the sums. The slices must have the shapes of [`Inputs`].
pub fn boundary<T: Element>(params: &Params, n: usize, inputs: &Inputs<'_, T>) -> Outputs<T> {
    let (hc, d) = (params.hc(), params.hidden as usize);
    let mut out = Outputs {
        residual: Vec::new(),
        pre: Vec::new(),
        post: Vec::new(),
        comb: Vec::new(),
        y: Vec::new(),
        normed: Vec::new(),
    };
    for row in 0..params.rows as usize {
        let streams = row * hc * d..(row + 1) * hc * d;
        let coefficients = row * hc..(row + 1) * hc;
        let old = &inputs.residual[streams];
        let new = if params.variant.has_post() {
            let x = &inputs.x[row * d..(row + 1) * d];
            let comb = &inputs.comb[row * hc * hc..(row + 1) * hc * hc];
            post(d, x, old, &inputs.post[coefficients.clone()], comb)
        } else {
            old.to_vec()
        };
        if params.variant.has_pre() {
            let mixes = mixes(params, n, &new, inputs.weights);
            let row = coefficients_of(params, &mixes, inputs.scale, inputs.base);
            let used = match params.variant {
                Variant::V41 => &inputs.previous_pre[coefficients],
                _ => &row.pre[..hc],
            };
            let y = collapse(d, &new, used);
            if let Some(eps) = params.norm_eps {
                out.normed.extend(norm(params, &y, inputs.norm_weight, eps));
            }
            out.y.extend(y);
            if params.variant != Variant::Head {
                out.pre.extend(&row.pre[..hc]);
                out.post.extend(&row.post[..hc]);
                out.comb.extend(&row.comb[..hc * hc]);
            }
        }
        if params.variant.has_post() {
            out.residual.extend(new);
        }
    }
    out
}

/// X' of one row: `post[o] x`, then the streams by fused multiply-add in ascending order, rounded once.
pub fn post<T: Element>(d: usize, x: &[T], residual: &[T], post: &[f32], comb: &[f32]) -> Vec<T> {
    let hc = post.len();
    let mut out = Vec::with_capacity(hc * d);
    for o in 0..hc {
        for c in 0..d {
            let start = post[o] * x[c].widen();
            let sum = (0..hc).fold(start, |sum, i| comb[i * hc + o].mul_add(residual[i * d + c].widen(), sum));
            out.push(T::round(sum));
        }
    }
    out
}

/// The sum over the columns of a block, of one value a column: neighbours by fours, then halves. Columns that the row
/// doesn't have are 0.
fn block_sum(columns: &mut [f32]) -> f32 {
    let groups = columns.len() / GROUP;
    for g in 0..groups {
        let c = g * GROUP;
        columns[g] = (columns[c] + columns[c + 1]) + (columns[c + 2] + columns[c + 3]);
    }
    let mut half = groups / 2;
    while half > 0 {
        for g in 0..half {
            columns[g] += columns[g + half];
        }
        half /= 2;
    }
    columns[0]
}

/// Adds what `of` says of each block of a row: block after block for each owner, then the owners in rank order.
fn total(params: &Params, n: usize, of: impl Fn(usize) -> f32) -> f32 {
    (0..n).fold(0.0, |sum, owner| sum + owned(params, n, owner, &of))
}

/// Adds what `of` says of the blocks of a row that are `owner`'s, in ascending order.
fn owned(params: &Params, n: usize, owner: usize, of: impl Fn(usize) -> f32) -> f32 {
    (0..params.blocks()).filter(|block| block_owner(n, *block) == owner).fold(0.0, |sum, block| sum + of(block))
}

/// What an owner adds up over its columns of a row of the residual: the dot products, then the sum of squares. The owners'
/// sums, added in rank order, are those of the row.
pub fn owner_sums<T: Element>(
    params: &Params,
    n: usize,
    owner: usize,
    residual: &[T],
    weights: &[f32],
) -> [f32; MAX_MIXES + 1] {
    let (hc, d, mixes) = (params.hc(), params.hidden as usize, params.mixes());
    let sum = |factor: &dyn Fn(usize, usize, f32) -> f32| {
        owned(params, n, owner, |b| block_of_products(params, b, residual, factor))
    };
    std::array::from_fn(|j| match j {
        _ if j < mixes => sum(&|i, c, _| weights[(j * hc + i) * d + c]),
        _ if j == mixes => sum(&|_, _, value| value),
        _ => 0.0,
    })
}

/// The sum over a block's columns of a row's values times `factor` (of stream, column, value).
fn block_of_products<T: Element>(
    params: &Params,
    b: usize,
    residual: &[T],
    factor: &dyn Fn(usize, usize, f32) -> f32,
) -> f32 {
    let (hc, d, block) = (params.hc(), params.hidden as usize, params.block());
    let mut columns = [0.0f32; 128];
    for (column, c) in columns.iter_mut().zip(b * block..((b + 1) * block).min(d)) {
        *column = (0..hc).fold(0.0, |sum, i| {
            let value = residual[i * d + c].widen();
            value.mul_add(factor(i, c, value), sum)
        });
    }
    block_sum(&mut columns[..block])
}

/// The dot products of one row of the residual with the rows of `weights`, over the root of its mean square.
pub fn mixes<T: Element>(params: &Params, n: usize, residual: &[T], weights: &[f32]) -> [f32; MAX_MIXES] {
    let (hc, d) = (params.hc(), params.hidden as usize);
    let sum = |factor: &dyn Fn(usize, usize, f32) -> f32| {
        total(params, n, |b| block_of_products(params, b, residual, factor))
    };
    let squares = sum(&|_, _, value| value);
    let inverse = rsqrt(squares / (hc * d) as f32 + params.rms_eps);
    let mut mixes = [0.0; MAX_MIXES];
    for (j, mix) in mixes[..params.mixes()].iter_mut().enumerate() {
        *mix = sum(&|i, c, _| weights[(j * hc + i) * d + c]) * inverse;
    }
    mixes
}

/// The coefficients of one row.
pub struct Coefficients {
    /// One for each stream.
    pub pre: [f32; super::MAX_STREAMS],
    /// One for each stream.
    pub post: [f32; super::MAX_STREAMS],
    /// Streams (in) by streams (out).
    pub comb: [f32; super::MAX_STREAMS * super::MAX_STREAMS],
}

/// From a row's mixes to its coefficients: sigmoids, and Sinkhorn's iteration, which ends on columns.
#[inline(always)]
pub fn coefficients_of(params: &Params, mixes: &[f32], scale: &[f32], base: &[f32]) -> Coefficients {
    let hc = params.hc();
    let mut out = Coefficients { pre: [0.0; 8], post: [0.0; 8], comb: [0.0; 64] };
    for i in 0..hc {
        out.pre[i] = canonical(sigmoid(mixes[i].mul_add(scale[0], base[i])) + params.pre_eps);
    }
    if params.variant == Variant::Head {
        return out;
    }
    for i in 0..hc {
        let j = hc + i;
        out.post[i] = canonical(sigmoid(mixes[j].mul_add(scale[1], base[j])) * params.post_multiplier);
    }
    let c = &mut out.comb[..hc * hc];
    for (k, c) in c.iter_mut().enumerate() {
        let j = 2 * hc + k;
        *c = mixes[j].mul_add(scale[2], base[j]);
    }
    let eps = params.sinkhorn_eps;
    for row in c.chunks_exact_mut(hc) {
        let most = row[1..].iter().fold(row[0], |most, &c| if c > most { c } else { most });
        row.iter_mut().for_each(|c| *c = exp(*c - most));
        let sum = row[1..].iter().fold(row[0], |sum, c| sum + c);
        row.iter_mut().for_each(|c| *c = *c / sum + eps);
    }
    divide_columns(c, hc, eps);
    for _ in 1..params.sinkhorn_iterations {
        for row in c.chunks_exact_mut(hc) {
            let sum = row[1..].iter().fold(row[0], |sum, c| sum + c) + eps;
            row.iter_mut().for_each(|c| *c /= sum);
        }
        divide_columns(c, hc, eps);
    }
    c.iter_mut().for_each(|c| *c = canonical(*c));
    out
}

#[inline(always)]
fn divide_columns(c: &mut [f32], hc: usize, eps: f32) {
    for o in 0..hc {
        let sum = (1..hc).fold(c[o], |sum, i| sum + c[i * hc + o]) + eps;
        (0..hc).for_each(|i| c[i * hc + o] /= sum);
    }
}

/// y of one row: the streams by fused multiply-add in ascending order, rounded once.
pub fn collapse<T: Element>(d: usize, residual: &[T], pre: &[f32]) -> Vec<T> {
    (0..d)
        .map(|c| {
            let sum =
                (0..).zip(pre).fold(0.0f32, |sum, (i, pre): (usize, _)| pre.mul_add(residual[i * d + c].widen(), sum));
            T::round(sum)
        })
        .collect()
}

/// RMSNorm of one row of y, as rounded: y over the root of its mean square, times the weight. Blocks are added in
/// ascending order whatever the number of ranks, since every rank has all of y.
pub fn norm<T: Element>(params: &Params, y: &[T], weight: &[T], eps: f32) -> Vec<T> {
    let (d, block) = (params.hidden as usize, params.block());
    let squares = total(params, 1, |b| {
        let mut columns = [0.0f32; 128];
        for (column, y) in columns.iter_mut().zip(&y[b * block..((b + 1) * block).min(d)]) {
            *column = y.widen() * y.widen();
        }
        block_sum(&mut columns[..block])
    });
    let inverse = rsqrt(squares / d as f32 + eps);
    y.iter().zip(weight).map(|(y, weight)| T::round(y.widen() * inverse * weight.widen())).collect()
}
