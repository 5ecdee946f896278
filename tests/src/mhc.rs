//! mHC boundaries on device memory, held to the bits of the reference, with everything around them watched.

use ccl_core::mhc::element::Element;
use ccl_core::mhc::reference::{self, Inputs};
use ccl_core::mhc::{Buffers, Design, Params, Variant};
use ccl_core::plan::geometry::Geometry;
use ccl_core::{DataType, ReduceOp};
use ccl_ze::{Buffer, CallOptions, Communicator, Completion, Stream};
use half::{bf16, f16};
use std::ffi::c_void;

const VARIANTS: [Variant; 5] = [Variant::V4, Variant::V41, Variant::Post, Variant::Pre, Variant::Head];
const DTYPES: [DataType; 3] = [DataType::Bfloat16, DataType::Float16, DataType::Float32];
const ROWS: [u64; 7] = [1, 2, 3, 8, 17, 64, 257];
const HIDDEN: [u64; 6] = [64, 96, 1056, 4096, 5120, 7168];

/// Where the reduced x goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduced {
    /// There is no reduction.
    Not,
    /// Nowhere.
    Dropped,
    /// To x's place.
    InPlace,
    /// To memory of its own.
    Apart,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Of the boundary.
    pub params: Params,
    /// Of x.
    pub reduced: Reduced,
    /// Whether residual, post and comb are written where they are read.
    pub in_place: bool,
    /// Whether one row has a NaN and another an infinity.
    pub wild: bool,
}

impl Case {
    /// The `i`-th of a sequence in which every two of variant, type, rows, elements, streams and places meet soon. Rows are
    /// fewer where there would be more than `most` elements of the residual.
    pub fn nth(i: usize, most: u64) -> Case {
        let variant = VARIANTS[i % 5];
        let dtype = DTYPES[(i / 5 + i) % 3];
        let (hidden, streams) = (HIDDEN[(i / 7 + i / 2) % 6], [4, 2, 8][(i / 3 + i / 15) % 3]);
        let fits = |rows: &&u64| **rows * hidden * u64::from(streams) <= most;
        let rows = *ROWS[..=(i + i / 6) % 7].iter().rfind(fits).unwrap_or(&1);
        let mut params = Params::new(variant, dtype, rows, hidden, streams);
        if variant.has_pre() {
            params.norm_eps = (i / 2).is_multiple_of(2).then_some(1e-6);
        }
        if i % 11 == 3 {
            (params.sinkhorn_iterations, params.sinkhorn_eps, params.post_multiplier) = (1 + i as u32 % 4, 0.0, 1.5);
        }
        let reduced = match (variant.has_post(), variant, i / 5 % 4) {
            (false, ..) | (.., 3) => Reduced::Not,
            (true, Variant::Post, 0) => Reduced::Apart,
            (.., 0) => Reduced::Dropped,
            (.., 1) => Reduced::InPlace,
            _ => Reduced::Apart,
        };
        Case { params, reduced, in_place: (i / 4).is_multiple_of(2), wild: i.is_multiple_of(4) }
    }
}

/// A communicator with memory for boundaries.
pub struct Bed {
    /// The communicator.
    pub comm: Communicator,
    /// Where its calls go.
    pub stream: Stream,
    arena: Buffer<u8>,
    image: Vec<u8>,
    /// What the reference gets wrong, to show that it is noticed.
    pub mutant: Option<fn(&mut Params)>,
}

/// How a call is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// In a regular command list.
    List,
    /// In a graph.
    Graph,
}

/// What lies between tensors, and in outputs before a call.
const UNTOUCHED: u8 = 0xA5;
/// At least so many bytes lie between tensors.
const GAP: usize = 64;

/// One call's tensors, as offsets in the arena.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    x: usize,
    residual: usize,
    post: usize,
    comb: usize,
    previous_pre: usize,
    weights: usize,
    scale: usize,
    base: usize,
    norm_weight: usize,
    x_out: usize,
    residual_out: usize,
    post_out: usize,
    comb_out: usize,
    pre_out: usize,
    y: usize,
    normed: usize,
}

/// Numbers that look like chance, from position and salt: between -scale and scale.
pub fn numbers(salt: u64, len: usize, scale: f32) -> Vec<f32> {
    (0..len as u64).map(|i| crate::data::word(salt, 0, i) as i32 as f32 * (scale / 2_147_483_648.0)).collect()
}

fn narrow<T: Element>(values: Vec<f32>) -> Vec<T> {
    values.into_iter().map(T::round).collect()
}

impl Bed {
    /// Room for calls whose tensors need `bytes` bytes.
    pub fn new(comm: Communicator, bytes: usize) -> Bed {
        comm.prepare_mhc().expect("kernels of boundaries");
        let stream = comm.stream(0).expect("a stream");
        let arena = comm.alloc(bytes).expect("memory");
        Bed { comm, stream, arena, image: Vec::new(), mutant: None }
    }

    /// Makes the call and compares: outputs with the reference's bits, in rows of which some are picked where there are many,
    /// and everything else with what was there before. Says what differs.
    pub fn differs(&mut self, case: &Case, seed: u64, design: Design) -> Option<String> {
        match case.params.dtype {
            DataType::Bfloat16 => self.typed::<bf16>(case, seed, design),
            DataType::Float16 => self.typed::<f16>(case, seed, design),
            _ => self.typed::<f32>(case, seed, design),
        }
    }

    /// Makes the call by each of `designs` and compares the first with the reference, the others with the first: all that
    /// the memory holds, in every row. Says what differs; else returns a sum of what the memory held in the end, which is
    /// alike on all ranks if the reduced x goes to x's place.
    pub fn designs_differ(&mut self, case: &Case, seed: u64, designs: &[Design]) -> Result<u64, String> {
        match case.params.dtype {
            DataType::Bfloat16 => self.designs_of::<bf16>(case, seed, designs),
            DataType::Float16 => self.designs_of::<f16>(case, seed, designs),
            _ => self.designs_of::<f32>(case, seed, designs),
        }
    }

    fn designs_of<T: Element + bytemuck::Pod>(
        &mut self,
        case: &Case,
        seed: u64,
        designs: &[Design],
    ) -> Result<u64, String> {
        let data = Data::<T>::new(case, seed, self.comm.rank());
        let places = self.lay_out(case, &data);
        let buffers = self.buffers(case, &places);
        let (mut first, mut differs) = (None::<Vec<u8>>, None);
        for &design in designs {
            self.arena.write(&self.stream, &self.image).expect("inputs");
            // SAFETY: the arena holds the tensors and lives until the wait.
            let call = unsafe { self.call(case, &buffers, design, &self.stream, CallOptions::default()) };
            call.expect("a call").wait().expect("a result");
            let mut got = vec![0; self.image.len()];
            self.arena.read(&self.stream, &mut got).expect("outputs");
            let found = match &first {
                None => self.compare(case, &data, &places, seed, self.image.clone()),
                Some(first) => got
                    .iter()
                    .zip(first)
                    .position(|(got, first)| got != first)
                    .map(|at| format!("byte {at} is {:#x}, not {:#x}; {case:?}; {places:?}", got[at], first[at])),
            };
            // The others go on, and so must this rank.
            differs = differs.or(found.map(|text| format!("{design}: {text}")));
            first.get_or_insert(got);
        }
        if let Some(text) = differs {
            return Err(text);
        }
        let end = first.unwrap_or_default();
        let words = end.chunks_exact(8).map(|word| u64::from_le_bytes(std::array::from_fn(|i| word[i])));
        Ok(words.fold(0, |sum, word| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)))
    }

    /// Records the call and executes it for each of `seeds`, with its data in the inputs' place. Says what differs.
    pub fn recorded_differs(&mut self, case: &Case, seeds: &[u64], design: Design, way: Way) -> Option<String> {
        assert_eq!(case.params.dtype, DataType::Bfloat16, "the type of recorded calls here");
        let places = self.lay_out(case, &Data::<bf16>::new(case, 0, self.comm.rank()));
        let buffers = self.buffers(case, &places);
        let record = |stream: &Stream| {
            // SAFETY: the arena holds the tensors and lives until all executions are waited for.
            let call = unsafe { self.call(case, &buffers, design, stream, CallOptions::default()) };
            drop(call.expect("a recorded call"));
        };
        let (mut list, mut graph) = (None, None);
        if way == Way::List {
            let open = self.comm.command_list(0).expect("a list");
            record(open.stream());
            list = Some(open.close().expect("a closed list"));
        } else {
            self.stream.begin_capture().expect("a capture");
            record(&self.stream);
            let captured = self.stream.end_capture().expect("a graph");
            graph = Some((captured.instantiate().expect("an executable"), captured));
        }
        for &seed in seeds {
            let data = Data::<bf16>::new(case, seed, self.comm.rank());
            self.lay_out(case, &data);
            let before = self.image.clone();
            self.arena.write(&self.stream, &before).expect("inputs");
            // SAFETY: as above.
            let done = unsafe {
                match (&list, &graph) {
                    (Some(list), _) => list.execute(&self.stream, CallOptions::default()),
                    (_, Some((graph, _))) => graph.launch(&self.stream, CallOptions::default()),
                    _ => unreachable!("one of both"),
                }
            };
            done.expect("an execution").wait().expect("a result");
            if let Some(text) = self.compare(case, &data, &places, seed, before) {
                return Some(text);
            }
        }
        None
    }

    fn place(&mut self, bytes: &[u8]) -> usize {
        let at = (self.image.len() + GAP).next_multiple_of(GAP);
        self.image.resize(at, UNTOUCHED);
        self.image.extend_from_slice(bytes);
        at
    }

    fn room(&mut self, bytes: usize) -> usize {
        let at = self.place(&[]);
        self.image.resize(at + bytes, UNTOUCHED);
        at
    }

    fn typed<T: Element + bytemuck::Pod>(&mut self, case: &Case, seed: u64, design: Design) -> Option<String> {
        let data = Data::<T>::new(case, seed, self.comm.rank());
        let places = self.lay_out(case, &data);
        let before = self.image.clone();
        self.arena.write(&self.stream, &before).expect("inputs");
        let buffers = self.buffers(case, &places);
        // SAFETY: the arena holds the tensors and lives until the wait.
        let call = unsafe { self.call(case, &buffers, design, &self.stream, CallOptions::default()) };
        call.expect("a call").wait().expect("a result");
        self.compare(case, &data, &places, seed, before)
    }

    /// What is in the arena after a call, beside what was there and the reference's results.
    fn compare<T: Element + bytemuck::Pod>(
        &self,
        case: &Case,
        data: &Data<T>,
        places: &Places,
        seed: u64,
        before: Vec<u8>,
    ) -> Option<String> {
        let mut got = vec![0; before.len()];
        self.arena.read(&self.stream, &mut got).expect("outputs");
        let mut want = before;
        self.expect(case, data, places, seed, &got, &mut want);
        let at = got.iter().zip(&want).position(|(got, want)| got != want)?;
        Some(format!("byte {at} is {:#x}, not {:#x}; {case:?}; {places:?}", got[at], want[at]))
    }

    /// Makes the call.
    ///
    /// # Safety
    /// As for [`Communicator::all_reduce_mhc`].
    pub unsafe fn call(
        &self,
        case: &Case,
        buffers: &Buffers,
        design: Design,
        stream: &Stream,
        options: CallOptions<'_>,
    ) -> ccl_core::Result<Completion> {
        // SAFETY: passed on to the caller.
        unsafe {
            match case.reduced {
                Reduced::Not => self.comm.mhc(&case.params, buffers, stream, options),
                _ => self.comm.all_reduce_mhc(&case.params, buffers, design, stream, options),
            }
        }
    }

    fn lay_out<T: Element + bytemuck::Pod>(&mut self, case: &Case, data: &Data<T>) -> Places {
        let bytes = |data: &[T]| size_of_val(data);
        self.image.clear();
        let mut places = Places {
            x: self.place(bytemuck::cast_slice(&data.x)),
            residual: self.place(bytemuck::cast_slice(&data.residual)),
            post: self.place(bytemuck::cast_slice(&data.post)),
            comb: self.place(bytemuck::cast_slice(&data.comb)),
            previous_pre: self.place(bytemuck::cast_slice(&data.previous_pre)),
            weights: self.place(bytemuck::cast_slice(&data.weights)),
            scale: self.place(bytemuck::cast_slice(&data.scale)),
            base: self.place(bytemuck::cast_slice(&data.base)),
            norm_weight: self.place(bytemuck::cast_slice(&data.norm_weight)),
            pre_out: self.room(size_of_val(&data.post[..])),
            y: self.room(bytes(&data.x)),
            normed: self.room(bytes(&data.x)),
            ..Places::default()
        };
        places.x_out = if case.reduced == Reduced::InPlace { places.x } else { self.room(bytes(&data.x)) };
        (places.residual_out, places.post_out, places.comb_out) = match case.in_place {
            true => (places.residual, places.post, places.comb),
            false => (
                self.room(bytes(&data.residual)),
                self.room(size_of_val(&data.post[..])),
                self.room(size_of_val(&data.comb[..])),
            ),
        };
        self.room(GAP);
        places
    }

    /// The tensors of a call whose inputs are now in the arena.
    pub fn prepared(&mut self, case: &Case) -> Buffers {
        let places = self.lay_out(case, &Data::<bf16>::new(case, 0, self.comm.rank()));
        self.arena.write(&self.stream, &self.image).expect("inputs");
        self.buffers(case, &places)
    }

    fn buffers(&self, case: &Case, places: &Places) -> Buffers {
        let arena: *mut u8 = self.arena.as_ptr();
        let at = |place: usize| arena.wrapping_add(place).cast::<c_void>();
        let params = &case.params;
        let dropped = matches!(case.reduced, Reduced::Dropped | Reduced::Not);
        Buffers {
            x: at(places.x),
            residual: at(places.residual),
            post: at(places.post).cast(),
            comb: at(places.comb).cast(),
            previous_pre: at(places.previous_pre).cast(),
            weights: at(places.weights).cast(),
            weights_shape: [params.mixes() as u64, u64::from(params.streams) * params.hidden],
            scale: at(places.scale).cast(),
            base: at(places.base).cast(),
            norm_weight: at(places.norm_weight),
            x_out: if dropped { std::ptr::null_mut() } else { at(places.x_out) },
            residual_out: at(places.residual_out),
            post_out: at(places.post_out).cast(),
            comb_out: at(places.comb_out).cast(),
            pre_out: at(places.pre_out).cast(),
            y: at(places.y),
            normed: at(places.normed),
        }
    }

    /// Writes into `want` what the call is to write; in rows that aren't picked, what it did write.
    fn expect<T: Element + bytemuck::Pod>(
        &self,
        case: &Case,
        data: &Data<T>,
        places: &Places,
        seed: u64,
        got: &[u8],
        want: &mut [u8],
    ) {
        let params = &case.params;
        let (rows, d, hc, n) = (params.rows as usize, params.hidden as usize, params.hc(), self.comm.world_size());
        let mut one = Params { rows: 1, ..*params };
        if let Some(mutant) = self.mutant {
            mutant(&mut one);
        }
        let order = self.comm.request(0, params.dtype, ReduceOp::Sum).order;
        let geometry = Geometry::new(n, d as u64, Some(d as u64), size_of::<T>()).expect("a geometry");
        for row in 0..rows {
            let picked = row < 3 || row + 1 == rows || row == rows / 2;
            let mut put = |place: usize, values: &[u8]| {
                let at = place + row * values.len();
                let new = if picked { values } else { &got[at..at + values.len()] };
                want[at..at + values.len()].copy_from_slice(new);
            };
            let x = match case.reduced {
                Reduced::Not => data.x[row * d..(row + 1) * d].to_vec(),
                _ if !picked => vec![T::round(0.0); d],
                _ => {
                    let parts: Vec<Vec<T>> =
                        (0..n).map(|rank| Data::<T>::x(case, seed, rank)[row * d..(row + 1) * d].to_vec()).collect();
                    let parts: Vec<&[u8]> = parts.iter().map(|part| bytemuck::cast_slice(part)).collect();
                    let sum = ccl_core::reference::all_reduce(&parts, params.dtype, ReduceOp::Sum, order, &geometry);
                    sum.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
                }
            };
            let outputs = match picked {
                true => reference::boundary(&one, n, &data.row(row, d, hc, &x)),
                false => reference::Outputs {
                    residual: vec![T::round(0.0); if params.variant.has_post() { hc * d } else { 0 }],
                    pre: vec![0.0; if coefficients(params) { hc } else { 0 }],
                    post: vec![0.0; if coefficients(params) { hc } else { 0 }],
                    comb: vec![0.0; if coefficients(params) { hc * hc } else { 0 }],
                    y: vec![T::round(0.0); if params.variant.has_pre() { d } else { 0 }],
                    normed: vec![T::round(0.0); if params.norm_eps.is_some() { d } else { 0 }],
                },
            };
            if matches!(case.reduced, Reduced::InPlace | Reduced::Apart) {
                put(places.x_out, bytemuck::cast_slice(&x));
            }
            put(places.residual_out, bytemuck::cast_slice(&outputs.residual));
            put(places.post_out, bytemuck::cast_slice(&outputs.post));
            put(places.comb_out, bytemuck::cast_slice(&outputs.comb));
            put(places.pre_out, bytemuck::cast_slice(&outputs.pre));
            put(places.y, bytemuck::cast_slice(&outputs.y));
            put(places.normed, bytemuck::cast_slice(&outputs.normed));
        }
    }
}

fn coefficients(params: &Params) -> bool {
    params.variant.has_pre() && params.variant != Variant::Head
}

/// A call's inputs. x is this rank's part; everything else is alike on all ranks.
struct Data<T> {
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

impl<T: Element> Data<T> {
    fn new(case: &Case, seed: u64, rank: usize) -> Self {
        let params = &case.params;
        let (m, d, hc) = (params.rows as usize, params.hidden as usize, params.hc());
        let salt = seed * 100;
        let mut residual = narrow::<T>(numbers(salt + 2, m * hc * d, 3.0));
        if case.wild && m > 2 {
            residual[2 * hc * d + d / 2] = T::round(f32::INFINITY);
        }
        let rank = if case.reduced == Reduced::Not { 0 } else { rank };
        Self {
            x: Self::x(case, seed, rank),
            residual,
            post: numbers(salt + 3, m * hc, 2.0),
            comb: numbers(salt + 4, m * hc * hc, 1.0),
            previous_pre: numbers(salt + 5, m * hc, 1.0),
            weights: numbers(salt + 6, params.mixes() * hc * d, 0.04),
            // Without an epsilon: as far as to where e^x is subnormal, 0 or infinite.
            scale: numbers(salt + 7, 3, if params.sinkhorn_eps == 0.0 { 90.0 } else { 1.0 }),
            base: numbers(salt + 8, params.mixes(), 1.0),
            norm_weight: narrow(numbers(salt + 9, d, 1.5)),
        }
    }

    fn x(case: &Case, seed: u64, rank: usize) -> Vec<T> {
        let (m, d) = (case.params.rows as usize, case.params.hidden as usize);
        let mut x = narrow::<T>(numbers(seed * 100 + 10 + rank as u64, m * d, 3.0));
        if case.wild && m > 1 && rank == 0 {
            x[d + d / 3] = T::round(f32::NAN);
        }
        x
    }

    fn row<'a>(&'a self, row: usize, d: usize, hc: usize, x: &'a [T]) -> Inputs<'a, T> {
        Inputs {
            x,
            residual: &self.residual[row * hc * d..(row + 1) * hc * d],
            post: &self.post[row * hc..(row + 1) * hc],
            comb: &self.comb[row * hc * hc..(row + 1) * hc * hc],
            previous_pre: &self.previous_pre[row * hc..(row + 1) * hc],
            weights: &self.weights,
            scale: &self.scale,
            base: &self.base,
            norm_weight: &self.norm_weight,
        }
    }
}
