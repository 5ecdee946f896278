//! All-reduces with an mHC boundary after them: inputs that depend on rank and position, one piece of device memory that
//! holds all tensors, and what that memory must look like afterwards, byte for byte.

use crate::data::word;
use crate::local::UNTOUCHED;
use ccl_core::mhc::element::Element;
use ccl_core::mhc::reference::{Inputs, boundary};
use ccl_core::mhc::{Buffers, Design, Params};
use ccl_core::plan::geometry::Geometry;
use ccl_core::protocol::FAILED_FILL;
use ccl_core::{Order, ReduceOp, Result, reference};
use ccl_ze::{Buffer, CallOptions, Communicator, Completion, Stream};
use std::time::{Duration, Instant};

/// What a call is of, and where its outputs go.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The boundary.
    pub params: Params,
    /// Varies the data.
    pub seed: u64,
    /// Residual, post and comb have their outputs in their inputs' place.
    pub in_place: bool,
    /// The reduced x is wanted, and where: in a place of its own, or its input's.
    pub x_out: Option<bool>,
}

/// Places of the tensors, in bytes.
#[derive(Clone, Copy, Debug)]
struct Places {
    at: [usize; TENSORS],
    bytes: [usize; TENSORS],
    end: usize,
}

const TENSORS: usize = 16;
const X: usize = 0;
const RESIDUAL: usize = 1;
const POST: usize = 2;
const COMB: usize = 3;
const PREVIOUS: usize = 4;
const WEIGHTS: usize = 5;
const SCALE: usize = 6;
const BASE: usize = 7;
const NORM_WEIGHT: usize = 8;
const X_OUT: usize = 9;
const RESIDUAL_OUT: usize = 10;
const POST_OUT: usize = 11;
const COMB_OUT: usize = 12;
const PRE_OUT: usize = 13;
const Y: usize = 14;
const NORMED: usize = 15;

fn bytes_of<E>(values: &[E]) -> Vec<u8> {
    // SAFETY: plain numbers without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }.to_vec()
}

/// Between -1 and 1.
fn number(seed: u64, rank: usize, i: usize) -> f32 {
    word(seed, rank, i as u64) as i32 as f32 / 2_147_483_648.0
}

struct Tensors<T> {
    x: Vec<T>,
    residual: Vec<T>,
    post: Vec<f32>,
    comb: Vec<f32>,
    previous: Vec<f32>,
    weights: Vec<f32>,
    scale: Vec<f32>,
    base: Vec<f32>,
    norm_weight: Vec<T>,
}

impl Case {
    fn places(&self) -> Places {
        let p = &self.params;
        let (m, d, hc, j, e) = (p.rows as usize, p.hidden as usize, p.hc(), p.mixes(), p.dtype.size());
        let (x, residual, row, square) = (m * d * e, m * hc * d * e, m * hc * 4, m * hc * hc * 4);
        let bytes =
            [x, residual, row, square, row, j * hc * d * 4, 12, j * 4, d * e, x, residual, row, square, row, x, x];
        let mut at = [0; TENSORS];
        let mut end = 64;
        for (at, bytes) in at.iter_mut().zip(bytes) {
            *at = end;
            end += (bytes + 64).next_multiple_of(64);
        }
        if self.in_place {
            (at[RESIDUAL_OUT], at[POST_OUT], at[COMB_OUT]) = (at[RESIDUAL], at[POST], at[COMB]);
        }
        if self.x_out == Some(true) {
            at[X_OUT] = at[X];
        }
        Places { at, bytes, end }
    }

    /// Bytes of the memory that the case takes.
    pub fn bytes(&self) -> usize {
        self.places().end
    }

    fn tensors<T: Element>(&self, rank: usize) -> Tensors<T> {
        let p = &self.params;
        let (m, d, hc, j) = (p.rows as usize, p.hidden as usize, p.hc(), p.mixes());
        let wide = |salt: u64, rank: usize, len: usize, scale: f32| -> Vec<f32> {
            (0..len).map(|i| number(self.seed * 16 + salt, rank, i) * scale).collect()
        };
        let narrow = |values: Vec<f32>| values.into_iter().map(T::round).collect();
        Tensors {
            x: narrow(wide(1, rank, m * d, 3.0)),
            residual: narrow(wide(2, 0, m * hc * d, 3.0)),
            post: wide(3, 0, m * hc, 2.0),
            comb: wide(4, 0, m * hc * hc, 1.0),
            previous: wide(5, 0, m * hc, 1.0),
            weights: wide(6, 0, j * hc * d, 0.04),
            scale: wide(7, 0, 3, 1.0),
            base: wide(8, 0, j, 1.0),
            norm_weight: narrow(wide(9, 0, d, 1.5)),
        }
    }

    /// The memory of `rank` before the call.
    pub fn before<T: Element>(&self, rank: usize) -> Vec<u8> {
        let (places, t) = (self.places(), self.tensors::<T>(rank));
        let mut image = vec![UNTOUCHED; places.end];
        for (i, bytes) in [
            (X, bytes_of(&t.x)),
            (RESIDUAL, bytes_of(&t.residual)),
            (POST, bytes_of(&t.post)),
            (COMB, bytes_of(&t.comb)),
            (PREVIOUS, bytes_of(&t.previous)),
            (WEIGHTS, bytes_of(&t.weights)),
            (SCALE, bytes_of(&t.scale)),
            (BASE, bytes_of(&t.base)),
            (NORM_WEIGHT, bytes_of(&t.norm_weight)),
        ] {
            image[places.at[i]..][..bytes.len()].copy_from_slice(&bytes);
        }
        image
    }

    /// What a call among `n` ranks writes: place and bytes, the same on all ranks. By the reference.
    pub fn written<T: Element>(&self, n: usize) -> Vec<(usize, Vec<u8>)> {
        let (places, p) = (self.places(), &self.params);
        let inputs: Vec<Vec<u8>> = (0..n).map(|rank| bytes_of(&self.tensors::<T>(rank).x)).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let geometry = Geometry::new(n, p.rows * p.hidden, Some(p.hidden), p.dtype.size()).expect("a geometry");
        let x = match n {
            1 => inputs[0].to_vec(),
            _ => reference::all_reduce(&inputs, p.dtype, ReduceOp::Sum, Order::Ring, &geometry),
        };
        let mut t = self.tensors::<T>(0);
        // SAFETY: as many elements as the row has, of plain numbers.
        t.x = (0..t.x.len()).map(|i| unsafe { x.as_ptr().cast::<T>().add(i).read_unaligned() }).collect();
        let out = boundary(
            p,
            n,
            &Inputs {
                x: &t.x,
                residual: &t.residual,
                post: &t.post,
                comb: &t.comb,
                previous_pre: &t.previous,
                weights: &t.weights,
                scale: &t.scale,
                base: &t.base,
                norm_weight: &t.norm_weight,
            },
        );
        let mut written = vec![
            (places.at[RESIDUAL_OUT], bytes_of(&out.residual)),
            (places.at[POST_OUT], bytes_of(&out.post)),
            (places.at[COMB_OUT], bytes_of(&out.comb)),
            (places.at[PRE_OUT], bytes_of(&out.pre)),
            (places.at[Y], bytes_of(&out.y)),
            (places.at[NORMED], bytes_of(&out.normed)),
        ];
        if self.x_out.is_some() {
            written.push((places.at[X_OUT], x));
        }
        written
    }

    /// The tensors in memory at `base`.
    pub fn buffers(&self, base: *mut u8) -> Buffers {
        let places = self.places();
        let p = &self.params;
        let place = |i: usize| base.wrapping_add(places.at[i]);
        let of = |i: usize| place(i).cast::<f32>().cast_const();
        let buffers = Buffers {
            x: place(X).cast(),
            residual: place(RESIDUAL).cast(),
            post: of(POST),
            comb: of(COMB),
            previous_pre: of(PREVIOUS),
            weights: of(WEIGHTS),
            weights_shape: [p.mixes() as u64, u64::from(p.streams) * p.hidden],
            scale: of(SCALE),
            base: of(BASE),
            norm_weight: place(NORM_WEIGHT).cast(),
            x_out: std::ptr::null_mut(),
            residual_out: place(RESIDUAL_OUT).cast(),
            post_out: place(POST_OUT).cast(),
            comb_out: place(COMB_OUT).cast(),
            pre_out: place(PRE_OUT).cast(),
            y: place(Y).cast(),
            normed: place(NORMED).cast(),
        };
        match self.x_out {
            Some(_) => Buffers { x_out: place(X_OUT).cast(), ..buffers },
            None => buffers,
        }
    }

    /// What is wrong with `image`, the memory of `rank` after a call that writes `written`.
    pub fn wrong<T: Element>(&self, rank: usize, written: &[(usize, Vec<u8>)], image: &[u8]) -> Option<String> {
        let mut want = self.before::<T>(rank);
        for (at, bytes) in written {
            want[*at..][..bytes.len()].copy_from_slice(bytes);
        }
        let differs = (0..want.len()).filter(|i| image[*i] != want[*i]);
        let first = differs.clone().next()?;
        let places = self.places();
        let tensor = (0..TENSORS).find(|i| (places.at[*i]..places.at[*i] + places.bytes[*i]).contains(&first));
        Some(format!("{} bytes differ, the first at {first}, tensor {tensor:?}", differs.count()))
    }

    /// What is wrong with `image`, the memory of `rank` after a call that failed: each byte of y is [`FAILED_FILL`], and
    /// nothing else was written; but a block's groups may have made their x and X', which are of `written` then.
    fn unlike_failed<T: Element>(&self, rank: usize, written: &[(usize, Vec<u8>)], image: &[u8]) -> Option<String> {
        let (places, before) = (self.places(), self.before::<T>(rank));
        let range = |i: usize| places.at[i]..places.at[i] + places.bytes[i];
        let mut may_be = before.clone();
        let blocks_own = [X_OUT, RESIDUAL_OUT].map(|i| places.at[i]);
        for (at, bytes) in written.iter().filter(|(at, _)| blocks_own.contains(at)) {
            may_be[*at..][..bytes.len()].copy_from_slice(bytes);
        }
        let is_wrong = |i: &usize| match range(Y).contains(i) {
            true => image[*i] != FAILED_FILL,
            false => image[*i] != before[*i] && image[*i] != may_be[*i],
        };
        let wrong: Vec<usize> = (0..before.len()).filter(is_wrong).collect();
        let first = *wrong.first()?;
        let tensor = (0..TENSORS).find(|i| range(*i).contains(&first));
        Some(format!("{} bytes are none of a failed call, the first at {first}, tensor {tensor:?}", wrong.len()))
    }
}

/// A rank with its stream and memory.
pub struct Peer {
    /// The communicator.
    pub comm: Communicator,
    /// Where its calls go.
    pub stream: Stream,
    /// All tensors.
    pub memory: Buffer<u8>,
}

impl Peer {
    /// With room for `capacity` bytes.
    pub fn new(comm: Communicator, capacity: usize) -> Peer {
        comm.prepare_mhc().expect("mHC on this device");
        let (stream, memory) = (comm.stream(0).expect("a stream"), comm.alloc(capacity.max(1)).expect("memory"));
        Peer { comm, stream, memory }
    }

    /// Appends a call on memory that is written already.
    pub fn issue(&self, case: &Case, design: Design) -> Result<Completion> {
        let buffers = case.buffers(self.memory.as_ptr());
        let options = CallOptions { after: &[], signal: None };
        // SAFETY: the memory holds the tensors and lives until the stream has been waited for.
        unsafe { self.comm.all_reduce_mhc(&case.params, &buffers, design, &self.stream, options) }
    }

    /// Writes the inputs, calls, waits, and returns the memory.
    pub fn run<T: Element>(&mut self, case: &Case, design: Design) -> Result<Vec<u8>> {
        let mut image = case.before::<T>(self.comm.rank());
        self.memory.write(&self.stream, &image)?;
        self.issue(case, design)?.wait()?;
        self.memory.read(&self.stream, &mut image)?;
        Ok(image)
    }

    /// What is wrong with the memory after a call that failed, once y is filled or has had the time for it
    /// (compared by `Case::unlike_failed`). For memory of the software device, which is the host's.
    pub fn unlike_failed<T: Element>(
        &self,
        case: &Case,
        written: &[(usize, Vec<u8>)],
        within: Duration,
    ) -> Option<String> {
        let places = case.places();
        let y = places.at[Y]..places.at[Y] + places.bytes[Y];
        // SAFETY: the byte lies in the memory; a kernel may write it meanwhile, so that it is read anew each time and
        // nothing rests on it.
        let byte = |i: usize| unsafe { self.memory.as_ptr().add(i).read_volatile() };
        let is_filled = |i: usize| byte(i) == FAILED_FILL;
        let since = Instant::now();
        while !y.clone().all(is_filled) && since.elapsed() < within {
            std::thread::sleep(Duration::from_millis(1));
        }
        let image: Vec<u8> = (0..case.bytes()).map(byte).collect();
        case.unlike_failed::<T>(self.comm.rank(), written, &image)
    }
}
