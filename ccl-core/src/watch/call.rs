//! What a call was, in words, by what the device tells of it.

use crate::Order;
use crate::collective::{CODE_SHIFT, Collective, ROOT_SHIFT};
use crate::protocol::Shape;
use crate::types::Kind;

fn code(shape: &Shape) -> u32 {
    shape.kind >> CODE_SHIFT
}

/// Which collective.
pub(super) fn name(shape: &Shape) -> &'static str {
    Collective::name_of(code(shape)).unwrap_or("collective")
}

/// Whether it concerns some ranks only.
pub(super) fn is_private(shape: &Shape) -> bool {
    code(shape) >= Collective::Send { to: 0 }.code()
}

/// The one other rank that it concerns, if it is just one.
pub(super) fn other_side(shape: &Shape) -> Option<usize> {
    let concerns_one = [Collective::Send { to: 0 }, Collective::Receive { from: 0 }].map(Collective::code);
    concerns_one.contains(&code(shape)).then_some((shape.kind >> ROOT_SHIFT & 0xF) as usize)
}

/// "1024 bfloat16 sum", "1024 bfloat16 root=2".
pub(super) fn arguments(shape: &Shape) -> String {
    let root = shape.kind >> ROOT_SHIFT & 0xF;
    let Some((dtype, op, order)) = Kind::read(shape.kind & ((1 << ROOT_SHIFT) - 1), 0) else {
        return format!("{} elements of kind {:#x}", shape.count, shape.kind);
    };
    let reduction = match code(shape) {
        0 | 2 | 4 => format!(" {op}{}", if order == Order::Ring { "" } else { " order=rank" }),
        _ => String::new(),
    };
    let root = match code(shape) {
        3..=6 => format!(" root={root}"),
        10 => format!(" to rank {root}"),
        11 => format!(" from rank {root}"),
        _ => String::new(),
    };
    match code(shape) {
        8 | 12 => format!("pieces of {dtype}"),
        9 => "no data".into(),
        _ => format!("{} {dtype}{reduction}{root}", shape.count),
    }
}
