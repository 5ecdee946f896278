//! Names and arguments of the device kernels, and the pattern that one of them writes.

use ccl_core::{DataType, Error, Result};
use std::ffi::CString;

/// Sizes of the ring's arguments: send, recv, state, host, inbox, outbox, count, period, rank, n, tiles, rounds,
/// slot_tiles.
pub(crate) const RING_ARGS: [usize; 13] = [8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4];
/// Sizes of the probe's arguments: memory, words, seed.
pub(crate) const PROBE_ARGS: [usize; 3] = [8, 8, 4];
/// Name of the kernel that writes the pattern of the link test.
pub(crate) const PROBE: &str = "probe";
/// Datatypes that the ring has kernels for.
pub(crate) const RING_TYPES: [DataType; 3] = [DataType::Bfloat16, DataType::Float16, DataType::Float32];

/// Name of the ring's kernel for a datatype and line form.
pub(crate) fn ring_name(dtype: DataType, granule: usize) -> String {
    format!("ring_{}_l{granule}", dtype.name())
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
