//! Names and arguments of the device kernels, and the pattern that one of them writes.

use crate::mhc::{DTYPES, MHC_ARGS, STREAMS};
use ccl_core::plan::push::{DIRECT_ARGS, PUSH_ARGS};
use ccl_core::protocol::LineForm;
use ccl_core::{DataType, Error, Result};
use std::ffi::CString;

/// Kernels that are compiled together: what a communicator needs as a whole or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// The pattern of the link test.
    Probe,
    /// The ring on lines of one form.
    Ring(LineForm),
    /// One-shot and mesh on lines of one form.
    Push(LineForm),
    /// One-shot and mesh in bulk, and direct: for coherent memory only.
    Bulk,
    /// mHC boundaries.
    Mhc,
}

/// A kernel as its source declares it.
pub(crate) struct Signature {
    pub(crate) name: String,
    /// Sizes of its arguments.
    pub(crate) arg_sizes: &'static [usize],
}

impl Family {
    /// All families, in the order of their numbers.
    pub(crate) const ALL: [Family; 9] = {
        use Family::{Bulk, Mhc, Probe, Push, Ring};
        use LineForm::{L8, L16, L64};
        [Probe, Ring(L8), Ring(L16), Ring(L64), Push(L8), Push(L16), Push(L64), Bulk, Mhc]
    };

    /// Its place in [`Family::ALL`].
    pub(crate) const fn number(self) -> usize {
        match self {
            Family::Probe => 0,
            Family::Ring(form) => 1 + form as usize,
            Family::Push(form) => 4 + form as usize,
            Family::Bulk => 7,
            Family::Mhc => 8,
        }
    }

    /// The name of its SPIR-V's file, without the ending.
    pub(crate) fn name(self) -> String {
        match self {
            Family::Probe => "probe".into(),
            Family::Ring(form) => format!("ring_l{}", form.granule()),
            Family::Push(form) => format!("push_l{}", form.granule()),
            Family::Bulk => "bulk".into(),
            Family::Mhc => "mhc".into(),
        }
    }

    /// Whether its kernels wait for those of other ranks, so that all groups of a launch have to run at once.
    pub(crate) const fn is_collective(self) -> bool {
        !matches!(self, Family::Probe | Family::Mhc)
    }

    /// Its kernels.
    pub(crate) fn kernels(self) -> Vec<Signature> {
        let of = |name: fn(usize) -> String, arg_sizes| WIDTHS.map(|width| Signature { name: name(width), arg_sizes });
        let by_form = |name: fn(usize, usize) -> String, form: LineForm, arg_sizes: &'static [usize]| {
            WIDTHS.map(|width| Signature { name: name(width, form.granule()), arg_sizes })
        };
        match self {
            Family::Probe => vec![Signature { name: PROBE.into(), arg_sizes: &PROBE_ARGS }],
            Family::Ring(form) => by_form(ring_name, form, &RING_ARGS).into(),
            Family::Push(form) => by_form(push_name, form, &PUSH_ARGS).into(),
            Family::Bulk => of(bulk_name, &PUSH_ARGS).into_iter().chain(of(direct_name, &DIRECT_ARGS)).collect(),
            Family::Mhc => DTYPES
                .into_iter()
                .flat_map(|dtype| {
                    STREAMS.map(|streams| Signature { name: mhc_name(dtype, streams), arg_sizes: &MHC_ARGS })
                })
                .collect(),
        }
    }
}

/// Sizes of the ring's arguments: send, recv, state, host, inbox, outbox, count, period, rank, n, tiles, rounds,
/// slot_tiles, kind, factor.
pub(crate) const RING_ARGS: [usize; 15] = [8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 8];
/// Sizes of the probe's arguments: memory, words, seed.
pub(crate) const PROBE_ARGS: [usize; 3] = [8, 8, 4];
/// Name of the kernel that writes the pattern of the link test.
pub(crate) const PROBE: &str = "probe";
/// Bytes of an element: there is a kernel for each, which is told the datatype.
pub(crate) const WIDTHS: [usize; 4] = [1, 2, 4, 8];

/// Name of the ring's kernel for elements of `width` bytes and a line form.
pub(crate) fn ring_name(width: usize, granule: usize) -> String {
    format!("ring_w{width}_l{granule}")
}

/// Name of the kernel of one-shot and mesh on lines, for elements of `width` bytes.
pub(crate) fn push_name(width: usize, granule: usize) -> String {
    format!("push_w{width}_l{granule}")
}

/// Name of the kernel of one-shot and mesh in bulk.
pub(crate) fn bulk_name(width: usize) -> String {
    format!("bulk_w{width}")
}

/// Name of the kernel of direct.
pub(crate) fn direct_name(width: usize) -> String {
    format!("direct_w{width}")
}

/// Name of the kernel of mHC boundaries, for a type and a number of streams.
pub(crate) fn mhc_name(dtype: DataType, streams: usize) -> String {
    let dtype = match dtype {
        DataType::Bfloat16 => "bf16",
        DataType::Float16 => "f16",
        _ => "f32",
    };
    format!("mhc_{dtype}_s{streams}")
}

/// Word `i` of the pattern made from `seed`.
pub(crate) fn probe_word(seed: u32, i: u64) -> u32 {
    let mut x = (i as u32).wrapping_mul(0x9E37_79B1) ^ seed;
    x ^= x >> 15;
    x = x.wrapping_mul(0x85EB_CA77);
    x ^ (x >> 13)
}

/// A name, or the like, as C wants it.
pub(crate) fn terminated(text: &str) -> Result<CString> {
    CString::new(text).map_err(|e| Error::Internal(format!("{text:?}: {e}")))
}
