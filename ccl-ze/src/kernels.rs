//! Names and arguments of the device kernels, and the pattern that one of them writes.

use crate::mhc::{DTYPES, FUSED_ARGS, MHC_ARGS, STREAMS};
use ccl_core::plan::channel::CHANNEL_ARGS;
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
    /// All-reduces with mHC boundaries after them, on lines of one form.
    Fused(LineForm),
    /// The same in bulk.
    FusedBulk,
    /// The same by columns.
    Columns(LineForm),
    /// Channels on lines of one form.
    Channel(LineForm),
    /// Channels in bulk: for coherent memory only.
    ChannelBulk,
}

/// A kernel as its source declares it.
pub(crate) struct Signature {
    pub(crate) name: String,
    /// Sizes of its arguments.
    pub(crate) arg_sizes: &'static [usize],
}

impl Family {
    /// All families, in the order of their numbers.
    pub(crate) const ALL: [Family; 20] = {
        use Family::{Bulk, Channel, ChannelBulk, Columns, Fused, FusedBulk, Mhc, Probe, Push, Ring};
        use LineForm::{L8, L16, L64};
        [
            Probe,
            Ring(L8),
            Ring(L16),
            Ring(L64),
            Push(L8),
            Push(L16),
            Push(L64),
            Bulk,
            Mhc,
            Fused(L8),
            Fused(L16),
            Fused(L64),
            FusedBulk,
            Columns(L8),
            Columns(L16),
            Columns(L64),
            Channel(L8),
            Channel(L16),
            Channel(L64),
            ChannelBulk,
        ]
    };

    /// Whether its kernels reach other ranks' staging memory through a table: the ring's has its neighbours' among its
    /// arguments, the probe's and a boundary alone reach nobody's.
    pub(crate) const fn by_table(self) -> bool {
        !matches!(self, Family::Probe | Family::Ring(_) | Family::Mhc)
    }

    /// Whether its kernels may get their arguments as one structure; the link's test is launched on no queue.
    pub(crate) const fn can_be_packed(self) -> bool {
        !matches!(self, Family::Probe)
    }

    /// Its place in [`Family::ALL`].
    pub(crate) const fn number(self) -> usize {
        match self {
            Family::Probe => 0,
            Family::Ring(form) => 1 + form as usize,
            Family::Push(form) => 4 + form as usize,
            Family::Bulk => 7,
            Family::Mhc => 8,
            Family::Fused(form) => 9 + form as usize,
            Family::FusedBulk => 12,
            Family::Columns(form) => 13 + form as usize,
            Family::Channel(form) => 16 + form as usize,
            Family::ChannelBulk => 19,
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
            Family::Fused(form) => format!("fused_l{}", form.granule()),
            Family::FusedBulk => "fused_bulk".into(),
            Family::Columns(form) => format!("columns_l{}", form.granule()),
            Family::Channel(form) => format!("channel_l{}", form.granule()),
            Family::ChannelBulk => "channel_bulk".into(),
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
            Family::Mhc => boundaries(mhc_name, &MHC_ARGS),
            Family::Fused(form) => boundaries(|dtype, streams| fused_name(dtype, streams, form.granule()), &FUSED_ARGS),
            Family::FusedBulk => boundaries(|dtype, streams| fused_name(dtype, streams, 0), &FUSED_ARGS),
            Family::Columns(form) => {
                boundaries(|dtype, streams| columns_name(dtype, streams, form.granule()), &FUSED_ARGS)
            }
            Family::Channel(form) => channels(Some(form)),
            Family::ChannelBulk => channels(None),
        }
    }
}

/// Kernels for each type and number of streams.
fn boundaries(name: impl Fn(DataType, usize) -> String, arg_sizes: &'static [usize]) -> Vec<Signature> {
    let of = |dtype| STREAMS.map(|streams| Signature { name: name(dtype, streams), arg_sizes });
    DTYPES.into_iter().flat_map(of).collect()
}

/// The kernels of channels, on lines or in bulk.
fn channels(form: Option<LineForm>) -> Vec<Signature> {
    let arg_sizes = &CHANNEL_ARGS;
    let combine = WIDTHS.map(|width| Signature { name: combine_name(width, form), arg_sizes });
    combine.into_iter().chain([Signature { name: move_name(form), arg_sizes }]).collect()
}

/// Name of the kernel of channels that moves pieces; in bulk without a form.
pub(crate) fn move_name(form: Option<LineForm>) -> String {
    form.map_or("move_bulk".into(), |form| format!("move_l{}", form.granule()))
}

/// Name of the kernel of channels that reduces elements of `width` bytes.
pub(crate) fn combine_name(width: usize, form: Option<LineForm>) -> String {
    let way = form.map_or("bulk".into(), |form| format!("l{}", form.granule()));
    format!("combine_w{width}_{way}")
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
    format!("mhc_{}_s{streams}", short(dtype))
}

/// The same after an all-reduce, on lines of so many bytes or, where that is 0, in bulk.
pub(crate) fn fused_name(dtype: DataType, streams: usize, granule: usize) -> String {
    match granule {
        0 => format!("fused_{}_s{streams}_bulk", short(dtype)),
        _ => format!("fused_{}_s{streams}_l{granule}", short(dtype)),
    }
}

/// The same by columns, on lines of so many bytes.
pub(crate) fn columns_name(dtype: DataType, streams: usize, granule: usize) -> String {
    format!("columns_{}_s{streams}_l{granule}", short(dtype))
}

fn short(dtype: DataType) -> &'static str {
    match dtype {
        DataType::Bfloat16 => "bf16",
        DataType::Float16 => "f16",
        _ => "f32",
    }
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
