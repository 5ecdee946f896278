//! The steps of plans as what a work-group does with messages: takes, moves, gives.

use std::fmt;

use super::super::push::{Mode, Part, Phase, PushPlan, PushStep, Transport};
use super::super::ring::{RingPlan, Step};

/// Bytes of a flag that is apart from its data.
const FLAG_BYTES: u64 = 4;
/// Most bytes that travel and are worked on as one: fine enough for a step's first lines to be under way while its last
/// are still to come.
const PIECE_BYTES: u64 = 4096;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// A slot of the ring.
    Slot,
    Input,
    Result,
    Ready,
    /// In direct: the result in the output, and the flag after it.
    Done,
    /// In direct: what was loaded from another rank.
    Loaded,
}

/// Which message: those from one rank to one wire of another are alike in nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) round: u32,
    /// Slot of the ring, or chunk.
    pub(super) part: u32,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Message { kind, round, part } = self;
        match kind {
            Kind::Slot => write!(f, "slot {part} of round {round}"),
            _ => write!(f, "{kind:?} of part {part} of round {round}"),
        }
    }
}

/// From whom or to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Peers {
    None,
    One(usize),
    /// All others, beginning with the next.
    Others,
}

impl Peers {
    pub(super) fn of(self, rank: usize, n: usize) -> impl Iterator<Item = usize> {
        let distances = match self {
            Peers::None => 0..0,
            Peers::One(_) => 0..1,
            Peers::Others => 1..n,
        };
        distances.map(move |distance| if let Peers::One(peer) = self { peer } else { (rank + distance) % n })
    }

    pub(super) const fn number(self, n: usize) -> u64 {
        match self {
            Peers::None => 0,
            Peers::One(_) => 1,
            Peers::Others => n as u64 - 1,
        }
    }
}

/// How what a step is about is cut into pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    /// Lines, or bytes of what has none.
    units: u64,
    unit_bytes: u64,
    unit_data: u64,
    /// Bytes behind the last piece.
    flag: u64,
}

impl Cut {
    const FLAG: Cut = Cut { units: 0, unit_bytes: 1, unit_data: 1, flag: FLAG_BYTES };

    const fn bytes(bytes: u64) -> Cut {
        Cut { units: bytes, ..Cut::FLAG }
    }

    const fn piece_units(&self) -> u64 {
        PIECE_BYTES / self.unit_bytes
    }

    pub(super) const fn pieces(&self) -> u32 {
        let pieces = self.units.div_ceil(self.piece_units()) as u32;
        if pieces == 0 { 1 } else { pieces }
    }

    /// Bytes on the wire and bytes of data of a piece.
    pub(super) const fn piece(&self, piece: u32) -> (u64, u64) {
        let rest = self.units.saturating_sub(piece as u64 * self.piece_units());
        let units = if rest < self.piece_units() { rest } else { self.piece_units() };
        let flag = if piece + 1 == self.pieces() { self.flag } else { 0 };
        (units * self.unit_bytes + flag, units * self.unit_data)
    }
}

/// The step that it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    Ring(Step),
    Push(PushStep),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Ring(step) => step.fmt(f),
            Origin::Push(step) => step.fmt(f),
        }
    }
}

/// What a work-group does for a step, piece by piece: waits for the piece of each message that it takes, passes memory,
/// stores the piece of each message that it gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) origin: Origin,
    pub(super) takes: Peers,
    pub(super) taken: Message,
    pub(super) gives: Peers,
    pub(super) given: Message,
    pub(super) cut: Cut,
    /// Nothing is touched before all pieces are there: their flag comes last.
    pub(super) whole: bool,
    /// What is taken is loaded from its owner's memory, and asked for first.
    pub(super) loads: bool,
    /// How often the data of a piece goes through local memory, besides what is taken.
    pub(super) passes: u64,
}

/// What `wire` of `rank` does for a ring, in order.
pub(super) fn ring(plan: &RingPlan, rank: usize, step: Step) -> Work {
    let n = plan.n;
    let message = |part| Message { kind: Kind::Slot, round: step.round, part };
    let form = plan.form;
    let cut = Cut {
        units: step.lines.into(),
        unit_bytes: form.granule() as u64,
        unit_data: form.data_words(plan.geometry.elem()) as u64 * 4,
        flag: 0,
    };
    Work {
        origin: Origin::Ring(step),
        takes: if step.receive { Peers::One((rank + n - 1) % n) } else { Peers::None },
        taken: message(step.position.wrapping_sub(1)),
        gives: if step.send { Peers::One((rank + 1) % n) } else { Peers::None },
        given: message(step.position),
        cut,
        whole: false,
        loads: false,
        passes: u64::from(!step.receive || step.reduce) + u64::from(step.store),
    }
}

/// What `wire` of `rank` does for a push algorithm, in order; one step may be two works.
pub(super) fn push(plan: &PushPlan, step: PushStep) -> impl Iterator<Item = Work> + use<> {
    let elem = plan.geometry.elem() as u64;
    let (cut, part) = match (step.part, plan.transport) {
        (Part::Lines { chunk, segment }, Transport::Lines(form)) => {
            let unit_data = form.data_words(elem as usize) as u64 * 4;
            (Cut { units: segment.lines.into(), unit_bytes: form.granule() as u64, unit_data, flag: 0 }, chunk as u32)
        }
        (Part::Lines { segment, .. }, Transport::Bulk) => (Cut::bytes(u64::from(segment.words) * 4), 0),
        (Part::Elements { elements, .. }, _) => (Cut::bytes(elements * elem), 0),
    };
    let message = |kind| Message { kind, round: step.round, part };
    let whole = plan.transport == Transport::Bulk;
    let nothing = Work {
        origin: Origin::Push(step),
        takes: Peers::None,
        taken: message(Kind::Input),
        gives: Peers::None,
        given: message(Kind::Result),
        cut,
        whole,
        loads: false,
        passes: 0,
    };
    let one = Peers::One(step.peer);
    let (first, second) = match (step.phase, plan.mode) {
        (Phase::Send, Mode::Direct) => {
            (Work { gives: one, given: message(Kind::Ready), cut: Cut::FLAG, ..nothing }, None)
        }
        (Phase::Send, _) => (Work { gives: one, given: message(Kind::Input), passes: 1, ..nothing }, None),
        (Phase::Reduce, Mode::OneShot) => (Work { takes: Peers::Others, passes: 2, ..nothing }, None),
        (Phase::Reduce, Mode::Mesh) => {
            (Work { takes: Peers::Others, gives: Peers::Others, passes: 2, ..nothing }, None)
        }
        (Phase::Reduce, Mode::Direct) => {
            let wait = Work { takes: Peers::Others, taken: message(Kind::Ready), cut: Cut::FLAG, ..nothing };
            let (taken, given) = (message(Kind::Loaded), message(Kind::Done));
            let (takes, gives) = (Peers::Others, Peers::Others);
            (wait, Some(Work { takes, taken, gives, given, whole: false, loads: true, passes: 2, ..nothing }))
        }
        (Phase::Gather, Mode::Direct) => (Work { takes: one, taken: message(Kind::Done), ..nothing }, None),
        (Phase::Gather, _) => (Work { takes: one, taken: message(Kind::Result), passes: 1, ..nothing }, None),
    };
    std::iter::once(first).chain(second)
}
