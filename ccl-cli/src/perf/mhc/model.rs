//! A model to decode a token with: its numbers, and what the reference makes of them.
//!
//! The token is that of a model of 43 layers with two sublayers each: an all-reduce of the embedding, whose sum becomes all
//! streams, and a pre alone; 85 boundaries, each after an all-reduce; a last all-reduce with post alone, and the head.
//! Every boundary has an `fn` of its own, so that no cache holds the next one's.

use ccl_core::mhc::element::Element;
use ccl_core::mhc::reference::{Inputs, Outputs, boundary};
use ccl_core::mhc::{Params, Variant};
use ccl_core::plan::geometry::Geometry;
use ccl_core::{DataType, Order, ReduceOp, Result, reference};

/// Boundaries of a token.
pub(crate) const BOUNDARIES: usize = 85;

/// All-reduces of a token: of the embedding, before each boundary, and before the last post.
pub(crate) const REDUCTIONS: usize = BOUNDARIES + 2;

/// Where a y is computed: the first pre, the boundaries, the head.
pub(crate) const SITES: usize = BOUNDARIES + 2;

/// Whether a boundary's residual, post and comb take the place of those that it reads: the second of each layer but the
/// first, which has one only.
pub(crate) const fn in_place(boundary: usize) -> bool {
    boundary >= 2 && boundary.is_multiple_of(2)
}

/// Shape and numbers of a model. The same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    /// Of a boundary: [`Variant::V4`] or [`Variant::V41`].
    pub(crate) params: Params,
}

/// What a token leaves behind, of all its rows: `items` times `[rows, row_bytes]`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: &'static str,
    pub(crate) items: usize,
    pub(crate) row_bytes: usize,
    /// Bytes of an element.
    pub(crate) element: usize,
    pub(crate) bytes: Vec<u8>,
}

/// The same of one row, computed by the reference: for each tensor its items one after the other.
pub(crate) type Row = Vec<Vec<u8>>;

/// What keeps a long computation's owner alive.
pub(crate) type Busy<'a> = &'a mut dyn FnMut() -> Result<()>;

impl Model {
    /// What is computed at a site.
    pub(crate) fn at(&self, site: usize) -> Params {
        let variant = match site {
            0 => Variant::Pre,
            site if site + 1 == SITES => Variant::Head,
            _ => self.params.variant,
        };
        Params { variant, ..self.params }
    }

    /// The post that ends the token.
    pub(crate) fn last(&self) -> Params {
        Params { variant: Variant::Post, ..self.params }
    }

    /// Elements of a row's streams.
    pub(crate) fn width(&self) -> usize {
        self.params.hc() * self.params.hidden as usize
    }

    /// `fn` of a site.
    pub(crate) fn weights(&self, site: usize) -> Vec<f32> {
        let params = self.at(site);
        let salt = salt(1, site as u32, 0);
        // So that a row's products with it differ by a few units.
        let scale = 4.0 / (self.width() as f32).sqrt();
        (0..(params.mixes() * self.width()) as u64).map(|position| scale * unit(position, salt)).collect()
    }

    /// `scale` of a site, and its `base`.
    pub(crate) fn constants(&self, site: usize) -> (Vec<f32>, Vec<f32>) {
        let params = self.at(site);
        let salt = salt(2, site as u32, 0);
        let number = |position| unit(position as u64, salt);
        let scales = params.variant.scales();
        let scale = (0..scales).map(|i| 1.0 + 0.5 * number(i)).collect();
        (scale, (0..params.mixes()).map(|j| number(scales + j)).collect())
    }

    /// The part of `rank` of what all-reduce number `reduction` adds up, in a round's token: of some rows.
    pub(crate) fn part(&self, rank: usize, reduction: usize, round: u32, rows: std::ops::Range<u64>) -> Vec<u8> {
        match self.params.dtype {
            DataType::Bfloat16 => self.part_of::<half::bf16>(rank, reduction, round, rows),
            DataType::Float16 => self.part_of::<half::f16>(rank, reduction, round, rows),
            _ => self.part_of::<f32>(rank, reduction, round, rows),
        }
    }

    fn part_of<T: Element + bytemuck::Pod>(
        &self,
        rank: usize,
        reduction: usize,
        round: u32,
        rows: std::ops::Range<u64>,
    ) -> Vec<u8> {
        let salt = salt(3 + rank as u32, reduction as u32, round);
        let columns = self.params.hidden;
        let elements = rows.start * columns..rows.end * columns;
        let elements: Vec<T> = elements.map(|position| T::round(unit(position, salt))).collect();
        bytemuck::cast_slice(&elements).to_vec()
    }

    /// What a round's token leaves behind of each of `rows`, of `ranks` ranks.
    pub(crate) fn reference(
        &self,
        ranks: usize,
        order: Order,
        round: u32,
        rows: &[u64],
        busy: Busy<'_>,
    ) -> Result<Vec<Row>> {
        match self.params.dtype {
            DataType::Bfloat16 => self.reference_of::<half::bf16>(ranks, order, round, rows, busy),
            DataType::Float16 => self.reference_of::<half::f16>(ranks, order, round, rows, busy),
            _ => self.reference_of::<f32>(ranks, order, round, rows, busy),
        }
    }

    fn reference_of<T: Element + bytemuck::Pod>(
        &self,
        ranks: usize,
        order: Order,
        round: u32,
        rows: &[u64],
        busy: Busy<'_>,
    ) -> Result<Vec<Row>> {
        let Params { dtype, hidden, .. } = self.params;
        // A row's bits depend neither on its position nor on the others.
        let geometry = Geometry::new(ranks, hidden, Some(hidden), dtype.size())?;
        let reduced = |reduction: usize, row: u64| -> Vec<T> {
            let parts: Vec<Vec<u8>> = (0..ranks).map(|rank| self.part(rank, reduction, round, row..row + 1)).collect();
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let sum = reference::all_reduce(&parts, dtype, ReduceOp::Sum, order, &geometry);
            sum.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
        };
        let first = |row: &u64| State::new(reduced(0, *row).repeat(self.params.hc()));
        let mut states: Vec<State<T>> = rows.iter().map(first).collect();
        for site in 0..SITES {
            let (weights, (scale, base)) = (self.weights(site), self.constants(site));
            for (state, row) in states.iter_mut().zip(rows) {
                busy()?;
                let x = if site == 0 { Vec::new() } else { reduced(site, *row) };
                if site + 1 == SITES {
                    state.step(&Params { rows: 1, ..self.last() }, ranks, &x, [&[], &[], &[]]);
                }
                state.step(&Params { rows: 1, ..self.at(site) }, ranks, &x, [&weights, &scale, &base]);
            }
        }
        Ok(states.into_iter().map(State::bytes).collect())
    }
}

/// A row between two sites.
struct State<T> {
    residual: Vec<T>,
    post: Vec<f32>,
    comb: Vec<f32>,
    pre: Vec<f32>,
    /// All so far.
    y: Vec<T>,
}

impl<T: Element + bytemuck::Pod> State<T> {
    fn new(residual: Vec<T>) -> Self {
        Self { residual, post: Vec::new(), comb: Vec::new(), pre: Vec::new(), y: Vec::new() }
    }

    fn step(&mut self, params: &Params, ranks: usize, x: &[T], [weights, scale, base]: [&[f32]; 3]) {
        let Outputs { residual, pre, post, comb, y, normed: _ } = boundary(
            params,
            ranks,
            &Inputs {
                x,
                residual: &self.residual,
                post: &self.post,
                comb: &self.comb,
                previous_pre: &self.pre,
                weights,
                scale,
                base,
                norm_weight: &[],
            },
        );
        self.y.extend(y);
        if params.variant.has_post() {
            self.residual = residual;
        }
        if !pre.is_empty() {
            (self.pre, self.post, self.comb) = (pre, post, comb);
        }
    }

    /// In the order of [`NAMES`].
    fn bytes(self) -> Row {
        let floats = |floats: &[f32]| bytemuck::cast_slice(floats).to_vec();
        let elements = |elements: &[T]| bytemuck::cast_slice(elements).to_vec();
        let Self { residual, post, comb, pre, y } = self;
        vec![elements(&y), elements(&residual), floats(&post), floats(&comb), floats(&pre)]
    }
}

/// What a token leaves behind, in order.
pub(crate) const NAMES: [&str; 5] = ["y", "residual", "post", "comb", "pre"];

/// Elements of a row that are not what they should be, and the first of them in words.
pub(crate) fn compare(got: &[Tensor], row: usize, want: &Row) -> (u64, Option<String>) {
    let (mut wrong, mut first) = (0, None);
    for (tensor, want) in got.iter().zip(want) {
        let rows = tensor.bytes.len() / (tensor.items * tensor.row_bytes);
        for (item, want) in want.chunks_exact(tensor.row_bytes).enumerate() {
            let at = (item * rows + row) * tensor.row_bytes;
            let pairs = tensor.bytes[at..at + tensor.row_bytes]
                .chunks_exact(tensor.element)
                .zip(want.chunks_exact(tensor.element));
            for (element, (got, want)) in pairs.enumerate().filter(|(_, (got, want))| got != want) {
                wrong += 1;
                first.get_or_insert_with(|| {
                    let which = if tensor.items > 1 { format!(" number {item}") } else { String::new() };
                    let hex = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
                    format!("row {row}, element {element} of {}{which} is {}, not {}", tensor.name, hex(got), hex(want))
                });
            }
        }
    }
    (wrong, first)
}

const fn mix(mut x: u32) -> u32 {
    x = (x ^ x >> 16).wrapping_mul(0x7FEB_352D);
    x = (x ^ x >> 15).wrapping_mul(0x846C_A68B);
    x ^ x >> 16
}

/// Sets the numbers of one thing apart from those of others.
const fn salt(kind: u32, which: u32, round: u32) -> u32 {
    mix(mix(kind.wrapping_mul(0x632B_E5AB) ^ which.wrapping_mul(0x85EB_CA77)) ^ round.wrapping_mul(0x9E37_79B1))
}

/// A number between -1 and 1.
const fn unit(position: u64, salt: u32) -> f32 {
    let random = mix((position as u32 ^ (position >> 32) as u32).wrapping_mul(0x9E37_79B1) ^ salt);
    (random >> 8) as f32 / (1 << 23) as f32 - 1.0
}
