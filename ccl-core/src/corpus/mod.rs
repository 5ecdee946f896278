//! A corpus: the inputs and outputs of a group's calls as files, from which a library can be cleared or convicted.
//!
//! [`Writer`] is given host bytes and knows no communicator, so that calls of any library can be captured with it.
//! [`verify()`] trusts nothing that it can compute: it holds every reduction to [`crate::reference`]. The format is
//! docs/corpus.md.

mod event;
mod manifest;
mod reader;
mod recompute;
mod tensors;
mod verdict;
mod verify;
mod writer;

pub use event::{AllReduce, ElementType, Event, Kind, Link, Mhc, Op, Role, Tensor};
pub use manifest::{End, Header, NotCaptured, Stopped};
pub use reader::{Group, Part, Scan};
pub use recompute::{Recomputed, boundary, recompute, reduce};
pub use tensors::Loaded;
pub use verdict::{Counts, Finding, Verdict, What};
pub use verify::{Options, verify};
pub use writer::{EventData, Origin, TensorData, Writer};

/// The version of the format that this build writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// Bytes as lower-case hexadecimal text.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A string takes all that is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// SHA-256 as text.
fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    hex(&sha2::Sha256::digest(bytes))
}
