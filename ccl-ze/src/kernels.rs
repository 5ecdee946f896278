//! Names and arguments of the device kernels, and the pattern that one of them writes.

use ccl_core::protocol::LineForm;
use ccl_core::{Error, Result};
use std::ffi::CString;

/// Kernels that are compiled together: what a communicator needs as a whole or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// The ring, and the pattern of the link test.
    Ring,
}

/// A kernel as its source declares it.
pub(crate) struct Signature {
    pub(crate) name: String,
    /// Sizes of its arguments.
    pub(crate) arg_sizes: &'static [usize],
}

impl Family {
    /// All families, in the order of their numbers.
    pub(crate) const ALL: [Family; 1] = [Family::Ring];

    /// Its file's name, without the ending: source and SPIR-V.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::Ring => "ring",
        }
    }

    /// Its kernels.
    pub(crate) fn kernels(self) -> Vec<Signature> {
        match self {
            Family::Ring => {
                let of = |width| LineForm::ALL.map(|form| ring_name(width, form.granule()));
                let rings = WIDTHS.into_iter().flat_map(of).map(|name| Signature { name, arg_sizes: &RING_ARGS });
                rings.chain([Signature { name: PROBE.into(), arg_sizes: &PROBE_ARGS }]).collect()
            }
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
