//! Names and arguments of the device kernels, and the pattern that one of them writes.

use ccl_core::plan::push::{DIRECT_ARGS, PUSH_ARGS};
use ccl_core::protocol::LineForm;
use ccl_core::{Error, Result};
use std::ffi::CString;

/// Kernels that are compiled together: what a communicator needs as a whole or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// The ring, and the pattern of the link test.
    Ring,
    /// One-shot and mesh on lines.
    Push,
    /// One-shot and mesh in bulk, and direct: for coherent memory only.
    Bulk,
}

/// A kernel as its source declares it.
pub(crate) struct Signature {
    pub(crate) name: String,
    /// Sizes of its arguments.
    pub(crate) arg_sizes: &'static [usize],
}

impl Family {
    /// All families, in the order of their numbers.
    pub(crate) const ALL: [Family; 3] = [Family::Ring, Family::Push, Family::Bulk];

    /// Its file's name, without the ending: source and SPIR-V.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::Ring => "ring",
            Family::Push => "push",
            Family::Bulk => "bulk",
        }
    }

    /// Its kernels.
    pub(crate) fn kernels(self) -> Vec<Signature> {
        match self {
            Family::Push => {
                let of = |width| LineForm::ALL.map(|form| push_name(width, form.granule()));
                let names = WIDTHS.into_iter().flat_map(of);
                names.map(|name| Signature { name, arg_sizes: &PUSH_ARGS }).collect()
            }
            Family::Bulk => {
                let bulk = WIDTHS.map(|width| Signature { name: bulk_name(width), arg_sizes: &PUSH_ARGS });
                let direct = WIDTHS.map(|width| Signature { name: direct_name(width), arg_sizes: &DIRECT_ARGS });
                bulk.into_iter().chain(direct).collect()
            }
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
