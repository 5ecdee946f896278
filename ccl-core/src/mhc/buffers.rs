//! The device memory of a boundary, and what is refused of it before anything is enqueued.

use super::{Params, Variant};
use crate::{Error, Result};
use std::ffi::c_void;
use std::ptr::{null, null_mut};

/// Addresses of a boundary's tensors, each contiguous. What the variant doesn't use is ignored.
///
/// `residual_out`, `post_out` and `comb_out` may be the storage of `residual`, `post` and `comb`, exactly, and `x_out`
/// that of `x`; nothing else may overlap what is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffers {
    /// The sublayer's output, [rows, hidden]: this rank's part if the call reduces, else the whole.
    pub x: *const c_void,
    /// [rows, streams, hidden].
    pub residual: *const c_void,
    /// [rows, streams].
    pub post: *const f32,
    /// [rows, streams (in), streams (out)].
    pub comb: *const f32,
    /// The previous boundary's `pre`, [rows, streams]: [`Variant::V41`] only.
    pub previous_pre: *const f32,
    /// `fn`: [mixes, streams * hidden].
    pub weights: *const f32,
    /// Rows and columns that `weights` has.
    pub weights_shape: [u64; 2],
    /// Three, or one of [`Variant::Head`].
    pub scale: *const f32,
    /// `[mixes]`.
    pub base: *const f32,
    /// `[hidden]`, if y is normed.
    pub norm_weight: *const c_void,
    /// The reduced x, [rows, hidden], of a call that reduces; null if it isn't wanted.
    pub x_out: *mut c_void,
    /// X', [rows, streams, hidden].
    pub residual_out: *mut c_void,
    /// [rows, streams].
    pub post_out: *mut f32,
    /// [rows, streams (in), streams (out)].
    pub comb_out: *mut f32,
    /// [rows, streams]; may be null unless the next boundary needs it, which it does of [`Variant::V41`].
    pub pre_out: *mut f32,
    /// [rows, hidden].
    pub y: *mut c_void,
    /// RMSNorm(y), [rows, hidden].
    pub normed: *mut c_void,
}

/// Null everywhere.
impl Default for Buffers {
    fn default() -> Self {
        Self {
            x: null(),
            residual: null(),
            post: null(),
            comb: null(),
            previous_pre: null(),
            weights: null(),
            weights_shape: [0; 2],
            scale: null(),
            base: null(),
            norm_weight: null(),
            x_out: null_mut(),
            residual_out: null_mut(),
            post_out: null_mut(),
            comb_out: null_mut(),
            pre_out: null_mut(),
            y: null_mut(),
            normed: null_mut(),
        }
    }
}

// SAFETY: addresses on a device; whoever passes them to a call vouches for them there.
unsafe impl Send for Buffers {}
// SAFETY: as above.
unsafe impl Sync for Buffers {}

/// One tensor as a call uses it.
#[derive(Clone, Copy)]
struct Tensor {
    name: &'static str,
    address: u64,
    bytes: u64,
    /// Bytes of an element.
    element: u64,
    used: Use,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Ignored,
    Read,
    Written,
}

/// Tensors of a boundary.
const TENSORS: usize = 16;
/// Those that are written come first.
const WRITTEN: usize = 7;
/// Of those so many may have the storage of an input, each of the one that comes `WRITTEN` after it.
const IN_PLACE: usize = 4;

impl Buffers {
    /// Refuses what a call of `params` can't have: null, misaligned, overlapping, of another shape. `reduces` says
    /// whether the call reduces x. `params` has passed its check.
    pub fn check(&self, params: &Params, reduces: bool) -> Result<()> {
        if params.rows == 0 {
            return Ok(());
        }
        let shape = [params.mixes() as u64, u64::from(params.streams) * params.hidden];
        if params.variant.has_pre() && self.weights_shape != shape {
            return refuse(format!(
                "fn of {} x {}; {} of {} streams of {} elements takes {} x {}",
                self.weights_shape[0],
                self.weights_shape[1],
                params.variant,
                params.streams,
                params.hidden,
                shape[0],
                shape[1]
            ));
        }
        let tensors = self.tensors(params, reduces);
        for tensor in tensors.iter().filter(|tensor| tensor.used != Use::Ignored) {
            tensor.check()?;
        }
        for (i, written) in tensors[..WRITTEN].iter().enumerate().filter(|(_, tensor)| tensor.used == Use::Written) {
            for (k, other) in tensors.iter().enumerate().filter(|(_, tensor)| tensor.used != Use::Ignored) {
                // Two outputs are compared once, and nothing with itself.
                let own = i < IN_PLACE && k == WRITTEN + i;
                if (k < WRITTEN && k <= i) || !written.overlaps(other) || (own && written.address == other.address) {
                    continue;
                }
                let how = if own { ": in place means equal" } else { "" };
                return refuse(format!("{} and {} overlap{how}", written.name, other.name));
            }
        }
        Ok(())
    }

    /// Name, address and bytes of what a call uses, whose buffers have been checked.
    pub fn used(&self, params: &Params, reduces: bool) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let tensors = if params.rows == 0 { None } else { Some(self.tensors(params, reduces)) };
        let used = tensors.into_iter().flatten().filter(|tensor| tensor.used != Use::Ignored);
        used.map(|tensor| (tensor.name, tensor.address, tensor.bytes))
    }

    /// What the launch of a boundary is given: null where the variant uses nothing.
    pub fn of_launch(&self, params: &Params) -> Buffers {
        let (post, pre) = (params.variant.has_post(), params.variant.has_pre());
        let (coefficients, normed) = (pre && params.variant != Variant::Head, params.norm_eps.is_some());
        fn when<T>(used: bool, address: *const T) -> *const T {
            if used { address } else { null() }
        }
        Buffers {
            x: when(post, self.x),
            residual: self.residual,
            post: when(post, self.post),
            comb: when(post, self.comb),
            previous_pre: when(params.variant == Variant::V41, self.previous_pre),
            weights: when(pre, self.weights),
            weights_shape: self.weights_shape,
            scale: when(pre, self.scale),
            base: when(pre, self.base),
            norm_weight: when(normed, self.norm_weight),
            x_out: null_mut(),
            residual_out: when(post, self.residual_out).cast_mut(),
            post_out: when(coefficients, self.post_out).cast_mut(),
            comb_out: when(coefficients, self.comb_out).cast_mut(),
            pre_out: when(coefficients, self.pre_out).cast_mut(),
            y: when(pre, self.y).cast_mut(),
            normed: when(normed, self.normed).cast_mut(),
        }
    }

    fn tensors(&self, params: &Params, reduces: bool) -> [Tensor; TENSORS] {
        let (post, pre) = (params.variant.has_post(), params.variant.has_pre());
        let (delayed, normed) = (params.variant == Variant::V41, params.norm_eps.is_some());
        let coefficients = pre && params.variant != Variant::Head;
        let (narrow, hc, d, mixes) =
            (params.dtype.size() as u64, u64::from(params.streams), params.hidden, params.mixes() as u64);
        // What overflows is as large as what ends past the address space.
        let row = |elements: u64| elements.saturating_mul(params.rows);
        let tensor = |name, address: *const c_void, elements: u64, element: u64, used| Tensor {
            name,
            address: address as u64,
            bytes: elements.saturating_mul(element),
            element,
            used,
        };
        let read = |when: bool| if when { Use::Read } else { Use::Ignored };
        let written = |when: bool| if when { Use::Written } else { Use::Ignored };
        let pre_out = coefficients && (delayed || !self.pre_out.is_null());
        [
            tensor("x_out", self.x_out, row(d), narrow, written(reduces && post && !self.x_out.is_null())),
            tensor("residual_out", self.residual_out, row(hc * d), narrow, written(post)),
            tensor("post_out", self.post_out.cast(), row(hc), 4, written(coefficients)),
            tensor("comb_out", self.comb_out.cast(), row(hc * hc), 4, written(coefficients)),
            tensor("pre_out", self.pre_out.cast(), row(hc), 4, written(pre_out)),
            tensor("y", self.y, row(d), narrow, written(pre)),
            tensor("normed", self.normed, row(d), narrow, written(normed)),
            tensor("x", self.x, row(d), narrow, read(post)),
            tensor("residual", self.residual, row(hc * d), narrow, Use::Read),
            tensor("post", self.post.cast(), row(hc), 4, read(post)),
            tensor("comb", self.comb.cast(), row(hc * hc), 4, read(post)),
            tensor("previous_pre", self.previous_pre.cast(), row(hc), 4, read(delayed)),
            tensor("fn", self.weights.cast(), (mixes * hc).saturating_mul(d), 4, read(pre)),
            tensor("scale", self.scale.cast(), params.variant.scales() as u64, 4, read(pre)),
            tensor("base", self.base.cast(), mixes, 4, read(pre)),
            tensor("norm_weight", self.norm_weight, d, narrow, read(normed)),
        ]
    }
}

impl Tensor {
    fn check(&self) -> Result<()> {
        let Tensor { name, address, bytes, element, .. } = *self;
        if address == 0 {
            return refuse(format!("{name} is null"));
        }
        if !address.is_multiple_of(element) {
            return refuse(format!("{name} {address:#x} is not aligned to its elements of {element} bytes"));
        }
        if bytes > isize::MAX as u64 || address.checked_add(bytes).is_none() {
            return refuse(format!("{name} {address:#x} of {bytes} bytes ends past the address space"));
        }
        Ok(())
    }

    fn overlaps(&self, other: &Tensor) -> bool {
        self.address < other.address + other.bytes && other.address < self.address + self.bytes
    }
}

fn refuse(what: String) -> Result<()> {
    Err(Error::InvalidArgument(format!("mHC: {what}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::DataType;

    /// Tensors side by side, none of them used twice.
    fn apart(params: &Params) -> Buffers {
        let mut buffers = Buffers { weights_shape: [params.mixes() as u64, 4 * params.hidden], ..Buffers::default() };
        let mut next = 0x1_0000u64;
        let sizes = {
            let all = Buffers { x_out: 0x40 as *mut c_void, pre_out: 0x40 as *mut f32, ..buffers };
            all.tensors(params, true).map(|tensor| tensor.bytes)
        };
        let mut place = |i: usize| {
            let at = next;
            next += sizes[i].next_multiple_of(64);
            at
        };
        buffers.x_out = place(0) as *mut c_void;
        buffers.residual_out = place(1) as *mut c_void;
        buffers.post_out = place(2) as *mut f32;
        buffers.comb_out = place(3) as *mut f32;
        buffers.pre_out = place(4) as *mut f32;
        buffers.y = place(5) as *mut c_void;
        buffers.normed = place(6) as *mut c_void;
        buffers.x = place(7) as *const c_void;
        buffers.residual = place(8) as *const c_void;
        buffers.post = place(9) as *const f32;
        buffers.comb = place(10) as *const f32;
        buffers.previous_pre = place(11) as *const f32;
        buffers.weights = place(12) as *const f32;
        buffers.scale = place(13) as *const f32;
        buffers.base = place(14) as *const f32;
        buffers.norm_weight = place(15) as *const c_void;
        buffers
    }

    fn params(variant: Variant) -> Params {
        let mut params = Params::new(variant, DataType::Bfloat16, 3, 96, 4);
        params.norm_eps = params.variant.has_pre().then_some(1e-6);
        params
    }

    const VARIANTS: [Variant; 5] = [Variant::V4, Variant::V41, Variant::Post, Variant::Pre, Variant::Head];

    #[test]
    fn outputs_are_apart_or_exactly_in_the_place_of_their_own_input() {
        for variant in VARIANTS {
            let params = params(variant);
            let good = apart(&params);
            good.check(&params, true).unwrap();
            let in_place = Buffers {
                x_out: good.x.cast_mut(),
                residual_out: good.residual.cast_mut(),
                post_out: good.post.cast_mut(),
                comb_out: good.comb.cast_mut(),
                ..good
            };
            in_place.check(&params, true).unwrap();
        }
        let params = params(Variant::V41);
        let good = apart(&params);
        for (bad, words) in [
            (Buffers { residual_out: good.residual.wrapping_byte_add(64).cast_mut(), ..good }, "in place means equal"),
            (Buffers { post_out: good.post.wrapping_add(1).cast_mut(), ..good }, "post_out and post overlap"),
            (Buffers { y: good.x.cast_mut(), ..good }, "y and x overlap"),
            (Buffers { pre_out: good.previous_pre.cast_mut(), ..good }, "pre_out and previous_pre"),
            (Buffers { pre_out: good.post_out, ..good }, "post_out and pre_out"),
            (Buffers { normed: good.y, ..good }, "y and normed"),
            (Buffers { y: good.weights.cast_mut().cast(), ..good }, "y and fn"),
            (Buffers { comb_out: good.base.cast_mut(), ..good }, "comb_out and base"),
            (Buffers { x_out: good.residual.cast_mut(), ..good }, "x_out and residual"),
        ] {
            let text = bad.check(&params, true).unwrap_err().to_string();
            assert!(text.contains(words), "{text}, not: {words}");
        }
        let unused = Buffers { x_out: good.residual.cast_mut(), ..good };
        unused.check(&params, false).unwrap();
    }

    #[test]
    fn null_misaligned_and_misshapen_tensors_are_refused_by_name() {
        for variant in VARIANTS {
            let params = params(variant);
            let good = apart(&params);
            for index in 0..TENSORS {
                let used = good.tensors(&params, true)[index].used != Use::Ignored;
                let optional = index == 0 || (index == 4 && variant != Variant::V41);
                for (address, fault) in [(0, "null"), (0x1_0001, "aligned"), (u64::MAX - 3, "address space")] {
                    let bad = with(&good, index, address);
                    let wanted = used && !(address == 0 && optional);
                    let refused = bad.check(&params, true);
                    let name = good.tensors(&params, true)[index].name;
                    match refused {
                        Ok(()) => assert!(!wanted, "{variant}: {name} {fault}"),
                        Err(error) => {
                            let text = error.to_string();
                            assert!(wanted && text.contains(name) && text.contains(fault), "{variant}: {text}");
                        }
                    }
                }
            }
            if variant.has_pre() {
                let text =
                    Buffers { weights_shape: [24, 4 * 95], ..good }.check(&params, true).unwrap_err().to_string();
                assert!(text.contains("fn of 24 x 380"), "{text}");
            }
            let none = Params { rows: 0, ..params };
            Buffers::default().check(&none, true).unwrap();
        }
    }

    fn with(good: &Buffers, index: usize, address: u64) -> Buffers {
        let mut bad = *good;
        match index {
            0 => bad.x_out = address as *mut c_void,
            1 => bad.residual_out = address as *mut c_void,
            2 => bad.post_out = address as *mut f32,
            3 => bad.comb_out = address as *mut f32,
            4 => bad.pre_out = address as *mut f32,
            5 => bad.y = address as *mut c_void,
            6 => bad.normed = address as *mut c_void,
            7 => bad.x = address as *const c_void,
            8 => bad.residual = address as *const c_void,
            9 => bad.post = address as *const f32,
            10 => bad.comb = address as *const f32,
            11 => bad.previous_pre = address as *const f32,
            12 => bad.weights = address as *const f32,
            13 => bad.scale = address as *const f32,
            14 => bad.base = address as *const f32,
            _ => bad.norm_weight = address as *const c_void,
        }
        bad
    }
}
