//! A decode token's calls on a device.

use super::model::{BOUNDARIES, Model, NAMES, REDUCTIONS, SITES, Tensor, in_place};
use ccl_core::mhc::{Buffers, Design, Params, Variant};
use ccl_core::plan::Request;
use ccl_core::{Error, ReduceOp, Result};
use ccl_ze::{Buffer, CallOptions, Communicator, Completion, Stream};
use std::ffi::c_void;

/// A token's parts, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The embedding's all-reduce, its sum into all streams, pre.
    Begin,
    /// All boundaries.
    Boundaries,
    /// The last all-reduce with post, and the head.
    End,
}

impl Part {
    pub(crate) const ALL: [Part; 3] = [Part::Begin, Part::Boundaries, Part::End];
}

/// What is made of the boundaries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// All-reduce and boundary, by a design.
    Both(Design),
    /// The all-reduces without the boundaries.
    Reductions,
    /// The boundaries without the all-reduces.
    Boundaries,
}

/// Elements from one site's scale and base to the next.
fn constants_stride(model: &Model) -> usize {
    (3 + model.params.mixes()).next_multiple_of(16)
}

/// The device memory of a token.
pub(crate) struct Token {
    pub(crate) model: Model,
    /// `fn` of each site.
    weights: Buffer<f32>,
    /// `scale` and `base` of each site.
    constants: Buffer<f32>,
    /// What this rank gives each all-reduce.
    parts: Buffer<u8>,
    /// Of each site.
    y: Buffer<u8>,
    /// Where no y is, and for the embedding.
    reduced: Buffer<u8>,
    residual: [Buffer<u8>; 2],
    post: [Buffer<f32>; 2],
    comb: [Buffer<f32>; 2],
    pre: [Buffer<f32>; 2],
    /// Whether boundaries write out the reduced x.
    keep_x: bool,
}

impl Token {
    /// Allocates it, and fills in the model.
    pub(crate) fn new(comm: &Communicator, stream: &Stream, model: Model, keep_x: bool) -> Result<Token> {
        let Params { rows, streams, dtype, .. } = model.params;
        let size = |elements: u64, of: usize| {
            usize::try_from(elements)
                .ok()
                .and_then(|elements| elements.checked_mul(of))
                .ok_or_else(|| Error::InvalidArgument(format!("mHC of {rows} rows")))
        };
        let (hc, row) = (u64::from(streams), model.params.hidden);
        let x = size(rows * row, dtype.size())?;
        let residual = || comm.alloc::<u8>(size(rows * row * hc, dtype.size())?);
        let floats = |elements: u64| comm.alloc::<f32>(size(rows * elements, 1)?);
        let site = model.params.mixes() * model.width();
        let mut token = Token {
            model,
            weights: comm.alloc(SITES * site)?,
            constants: comm.alloc(SITES * constants_stride(&model))?,
            parts: comm.alloc(REDUCTIONS * x)?,
            y: comm.alloc(SITES * x)?,
            reduced: comm.alloc(x)?,
            residual: [residual()?, residual()?],
            post: [floats(hc)?, floats(hc)?],
            comb: [floats(hc * hc)?, floats(hc * hc)?],
            pre: [floats(hc)?, floats(hc)?],
            keep_x,
        };
        let mut constants = Vec::with_capacity(SITES * constants_stride(&model));
        for number in 0..SITES {
            let (scale, base) = model.constants(number);
            constants.extend(scale);
            constants.resize(number * constants_stride(&model) + 3, 0.0);
            constants.extend(base);
            constants.resize((number + 1) * constants_stride(&model), 0.0);
            let weights = model.weights(number);
            let to = token.weights.as_ptr().wrapping_add(number * site);
            // SAFETY: within the buffer; waited for before the source goes.
            unsafe { stream.copy(to.cast(), weights.as_ptr().cast(), size_of_val(&weights[..]), &[])? };
            stream.synchronize()?;
        }
        token.constants.write(stream, &constants)?;
        // What a boundary without its token reads.
        for set in 0..2 {
            let width = token.residual[set].len();
            token.residual[set].write(stream, &vec![0; width])?;
            for floats in [&mut token.post[set], &mut token.comb[set], &mut token.pre[set]] {
                let zeros = vec![0.0; floats.len()];
                floats.write(stream, &zeros)?;
            }
        }
        Ok(token)
    }

    /// This rank's input of a round, and poison where results will be.
    pub(crate) fn write(&mut self, comm: &Communicator, stream: &Stream, round: u32) -> Result<()> {
        let rows = 0..self.model.params.rows;
        let mut parts = Vec::with_capacity(self.parts.len());
        for reduction in 0..REDUCTIONS {
            parts.extend(self.model.part(comm.rank(), reduction, round, rows.clone()));
        }
        self.parts.write(stream, &parts)?;
        // SAFETY: the buffer's own bytes.
        unsafe { stream.fill(self.y.as_ptr().cast(), 0xA5, self.y.len(), &[])? };
        stream.synchronize()
    }

    /// What a token left behind.
    pub(crate) fn read(&self, stream: &Stream) -> Result<Vec<Tensor>> {
        let Params { rows, dtype, streams, hidden, .. } = self.model.params;
        let hc = streams as usize;
        // The last post takes the other set.
        let (coefficients, residual) = (set_after(BOUNDARIES), 1 - set_after(BOUNDARIES));
        let tensor = |name, items, row_bytes, element, from: *const c_void| -> Result<Tensor> {
            let mut bytes = vec![0; items * rows as usize * row_bytes];
            // SAFETY: a buffer of this size, and the copy is waited for.
            unsafe { stream.copy(bytes.as_mut_ptr().cast(), from, bytes.len(), &[])? };
            stream.synchronize()?;
            Ok(Tensor { name, items, row_bytes, element, bytes })
        };
        let row = hidden as usize * dtype.size();
        let [y, x, post, comb, pre] = NAMES;
        Ok(vec![
            tensor(y, SITES, row, dtype.size(), self.y.as_ptr().cast())?,
            tensor(x, 1, hc * row, dtype.size(), self.residual[residual].as_ptr().cast())?,
            tensor(post, 1, 4 * hc, 4, self.post[coefficients].as_ptr().cast())?,
            tensor(comb, 1, 4 * hc * hc, 4, self.comb[coefficients].as_ptr().cast())?,
            tensor(pre, 1, 4 * hc, 4, self.pre[BOUNDARIES % 2].as_ptr().cast())?,
        ])
    }

    /// Bytes of one boundary's `fn`.
    pub(crate) fn weight_bytes(&self) -> usize {
        4 * self.model.params.mixes() * self.model.width()
    }

    /// The `fn` of a boundary.
    pub(crate) fn weights_of(&self, boundary: usize) -> *const f32 {
        self.weights.as_ptr().wrapping_add((boundary + 1) * self.weight_bytes() / 4)
    }

    fn request(&self, comm: &Communicator) -> Request {
        let Params { rows, hidden, dtype, .. } = self.model.params;
        Request { period: Some(hidden), ..comm.request(rows * hidden, dtype, ReduceOp::Sum) }
    }

    fn part(&self, reduction: usize) -> *const c_void {
        self.parts.as_ptr().wrapping_add(reduction * (self.parts.len() / REDUCTIONS)).cast()
    }

    /// A site's call, from one set into another.
    fn buffers(&self, site: usize, from: usize, to: usize) -> Buffers {
        let params = self.model.at(site);
        let stride = self.weight_bytes() / 4;
        let constants = self.constants.as_ptr().wrapping_add(site * constants_stride(&self.model));
        Buffers {
            x: self.part(site),
            residual: self.residual[from].as_ptr().cast(),
            post: self.post[from].as_ptr(),
            comb: self.comb[from].as_ptr(),
            previous_pre: self.pre[(site + 1) % 2].as_ptr(),
            weights: self.weights.as_ptr().wrapping_add(site * stride),
            weights_shape: [params.mixes() as u64, self.model.width() as u64],
            scale: constants,
            base: constants.wrapping_add(3),
            x_out: if self.keep_x { self.reduced.as_ptr().cast() } else { std::ptr::null_mut() },
            residual_out: self.residual[to].as_ptr().cast(),
            post_out: self.post[to].as_ptr(),
            comb_out: self.comb[to].as_ptr(),
            pre_out: self.pre[site % 2].as_ptr(),
            y: self.y.as_ptr().wrapping_add(site * (self.y.len() / SITES)).cast(),
            ..Buffers::default()
        }
    }

    /// Appends a part of the token. The completion is that of its last call.
    ///
    /// # Safety
    /// The token has to stay until the stream is done with it, or as long as what records it may be replayed.
    pub(crate) unsafe fn append(
        &self,
        comm: &Communicator,
        stream: &Stream,
        part: Part,
        how: How,
    ) -> Result<Completion> {
        let none = CallOptions::default();
        match part {
            Part::Begin => {
                let reduced = self.reduced.as_ptr();
                // A failure is told by the last call too.
                // SAFETY: the token's own memory, of the shapes that are told.
                let _sum =
                    unsafe { comm.all_reduce_with(&self.request(comm), self.part(0), reduced.cast(), stream, none)? };
                let Params { rows, hidden, dtype, streams, .. } = self.model.params;
                let row = hidden as usize * dtype.size();
                for copy in 0..rows as usize * streams as usize {
                    let from = reduced.wrapping_add(copy / streams as usize * row);
                    let to = self.residual[0].as_ptr().wrapping_add(copy * row);
                    // SAFETY: as above; both hold a row there.
                    unsafe { stream.copy(to.cast(), from.cast(), row, &[])? };
                }
                // SAFETY: as above.
                unsafe { comm.mhc(&self.model.at(0), &self.buffers(0, 0, 0), stream, none) }
            }
            Part::Boundaries => {
                let mut last = None;
                let mut from = 0;
                for boundary in 0..BOUNDARIES {
                    let (site, to) = (boundary + 1, set_after(boundary + 1));
                    let (params, buffers) = (self.model.at(site), self.buffers(site, from, to));
                    // SAFETY: as above.
                    let call = unsafe {
                        match how {
                            How::Both(design) => comm.all_reduce_mhc(&params, &buffers, design, stream, none),
                            How::Boundaries => comm.mhc(&params, &buffers, stream, none),
                            How::Reductions => comm.all_reduce_with(
                                &self.request(comm),
                                self.part(site),
                                self.reduced.as_ptr().cast(),
                                stream,
                                none,
                            ),
                        }
                    };
                    last = Some(call?);
                    from = to;
                }
                last.ok_or_else(|| Error::Internal("a token without boundaries".into()))
            }
            Part::End => {
                let from = set_after(BOUNDARIES);
                let head = self.buffers(SITES - 1, 1 - from, 1 - from);
                let post = Buffers { x_out: self.reduced.as_ptr().cast(), ..self.buffers(SITES - 1, from, 1 - from) };
                // Not every design can do without sums.
                let design = if how == How::Both(Design::Unfused) { Design::Unfused } else { Design::Auto };
                // SAFETY: as above.
                unsafe {
                    let _post = comm.all_reduce_mhc(&self.model.last(), &post, design, stream, none)?;
                    comm.mhc(&self.model.at(SITES - 1), &head, stream, none)
                }
            }
        }
    }
}

/// Bytes of memory that a boundary without its reduction reads and writes on a rank of `n`, at least.
pub(crate) fn boundary_bytes(model: &Model, design: Design, n: usize) -> u64 {
    let Params { rows, hidden, streams, dtype, variant, .. } = model.params;
    let hc = u64::from(streams);
    let weights = 4 * (model.params.mixes() * model.width()) as u64 / if design == Design::C { n as u64 } else { 1 };
    // Residual in and out, x in, y out; post and comb in, post, comb and pre out, and for V4.1 the previous pre in.
    let wide = (2 * hc + 2) * hidden * dtype.size() as u64;
    let floats = 4 * (2 * (hc + hc * hc) + hc + if variant == Variant::V41 { hc } else { 0 });
    weights + rows * (wide + floats)
}

/// The set of residual, post and comb that holds the token after so many boundaries.
fn set_after(boundaries: usize) -> usize {
    (0..boundaries).filter(|boundary| !in_place(*boundary)).count() % 2
}
