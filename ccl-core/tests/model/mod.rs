//! A model of the ring, made from the library's own numbers: what is sent where under which tag, with switches that
//! take one rule of the protocol away at a time.
//!
//! [`work`] lays out who does what, [`machine`] is the protocol as a state machine, [`search`] visits every state of it,
//! [`order`] proves the same of sizes that no search reaches.

pub(crate) mod machine;
pub(crate) mod order;
pub(crate) mod search;
pub(crate) mod work;

use ccl_core::protocol::{self, TagSpan, sent_chunk, steps, tag, tag_span};

/// One collective: its wires and the lines of each chunk. Line k of a chunk goes to wire k mod wires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) wires: usize,
    pub(crate) chunks: Vec<usize>,
}

impl Call {
    /// A message of `lines` lines, dealt to the `n` chunks in turn: a short one has only some of the chunks.
    pub(crate) fn dealt(n: usize, wires: usize, lines: usize) -> Self {
        Self { wires, chunks: (0..n).map(|chunk| (lines + n - 1 - chunk) / n).collect() }
    }
}

/// Which slot a step uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotRule {
    /// The library's: a slot for each step.
    PerStep,
    /// Fewer slots, each call begins at slot 0.
    Modulo(usize),
    /// Fewer slots, used in turn through all rounds of all calls.
    Rolling(usize),
}

/// Where a tag comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TagRule {
    /// The library's: the word in device memory.
    Base,
    /// Another tag for each step as well: so that too few slots aren't found out by equal tags alone.
    PerStep,
    /// A launch argument, fixed when the call was recorded: each replay has the tags of the first.
    Argument,
}

/// Who advances the base, and by how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advance {
    /// The library's: the last work-group to leave, by the most rounds that any wire has.
    LastByMost,
    /// The first work-group to leave.
    FirstByMost,
    /// The last, but always by one.
    LastByOne,
}

/// How a slot is found in staging memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// The library's: a slot is the same range for every number of wires, wires are parts of it.
    SlotMajor,
    /// A wire is a range, its slots are parts of it: they move with the number of wires.
    WireMajor,
}

/// What is done in order on a rank; all else goes its own way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// A line of the slot, position by position: a work-item, as on a device.
    Line,
    /// A chunk on a line, within a round: the least order that the protocol asks for.
    Chunk,
    /// All lines of a wire, position by position: a thread that plays a work-group.
    Wire,
}

/// The rules in force. The default is the library's protocol; each negative control changes one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    pub(crate) slots: SlotRule,
    pub(crate) tags: TagRule,
    pub(crate) advance: Advance,
    pub(crate) layout: Layout,
    /// A line arrives at once. Otherwise its data and its flag arrive apart, in any order.
    pub(crate) whole_lines: bool,
    /// Flags are cleared when the tags begin anew.
    pub(crate) clears: bool,
    /// The last wire clears what the layout leaves unused, too.
    pub(crate) clears_remainder: bool,
    /// The clearing has reached memory before the barrier after it begins.
    pub(crate) clears_in_order: bool,
    /// Barriers before and after the clearing.
    pub(crate) barriers: [bool; 2],
    /// Barrier flags carry the number of the clearing; otherwise always 1.
    pub(crate) barriers_counted: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            slots: SlotRule::PerStep,
            tags: TagRule::Base,
            advance: Advance::LastByMost,
            layout: Layout::SlotMajor,
            whole_lines: true,
            clears: true,
            clears_remainder: true,
            clears_in_order: true,
            barriers: [true, true],
            barriers_counted: true,
        }
    }
}

/// Ranks, staging memory, and calls one after another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Scenario {
    pub(crate) n: usize,
    /// Lines of a slot.
    pub(crate) lines: usize,
    /// Highest tag.
    pub(crate) limit: u32,
    pub(crate) calls: Vec<Call>,
    pub(crate) rules: Rules,
    /// Stores arrive later, in any order. Otherwise at once, which for whole lines finds the same violations: the
    /// second of two stores to a line is then already issued while the first is unread.
    pub(crate) delayed: bool,
    pub(crate) work: Work,
}

impl Scenario {
    pub(crate) fn new(n: usize, lines: usize, limit: u32, calls: Vec<Call>) -> Self {
        for call in &calls {
            assert_eq!(call.chunks.len(), n, "a length for each chunk");
            assert!(call.wires <= lines && call.chunks.iter().any(|&len| len > 0), "an empty call is not launched");
        }
        Self { n, lines, limit, calls, rules: Rules::default(), delayed: false, work: Work::Line }
    }

    pub(crate) fn delayed(&self) -> Self {
        Self { delayed: true, ..self.clone() }
    }

    pub(crate) fn by(&self, work: Work) -> Self {
        Self { work, ..self.clone() }
    }

    pub(crate) fn with(&self, rules: Rules) -> Self {
        Self { rules, ..self.clone() }
    }

    /// Lines of one wire's part of a slot.
    pub(crate) fn part(&self, call: usize) -> usize {
        self.lines / self.calls[call].wires
    }

    /// Rounds that `chunk` needs on line `lane` of the slot (counted over all wires).
    pub(crate) fn rounds_of(&self, call: usize, lane: usize, chunk: usize) -> usize {
        let (Call { wires, chunks }, part) = (&self.calls[call], self.part(call));
        let (wire, line) = (lane / part, lane % part);
        // Lines of this chunk that go to this wire, then those of them that come to this line.
        let on_wire = (chunks[chunk] + wires - 1 - wire) / wires;
        (on_wire + part - 1 - line) / part
    }

    /// Lines of the slot that the call's layout uses.
    pub(crate) fn lanes(&self, call: usize) -> std::ops::Range<usize> {
        0..self.part(call) * self.calls[call].wires
    }

    /// The call's rounds: the most that any chunk needs on any wire.
    pub(crate) fn rounds(&self, call: usize) -> u32 {
        let most = self.lanes(call).flat_map(|lane| (0..self.n).map(move |chunk| (lane, chunk)));
        most.map(|(lane, chunk)| self.rounds_of(call, lane, chunk)).max().unwrap_or(0) as u32
    }

    /// What a work-group of the call makes of the base that it reads.
    pub(crate) fn span(&self, call: usize, base: u32) -> TagSpan {
        match self.rules.tags {
            TagRule::Argument => TagSpan { base: 0, next: base, wraps: false },
            TagRule::Base | TagRule::PerStep => tag_span(base, self.rounds(call), self.limit),
        }
    }

    /// Base that the call leaves behind.
    pub(crate) fn next_base(&self, span: TagSpan) -> u32 {
        if self.rules.advance == Advance::LastByOne { span.base + 1 } else { span.next }
    }

    /// Tag of a message.
    pub(crate) fn tag(&self, base: u32, round: usize, step: usize) -> u32 {
        let tag = tag(base, round as u32);
        if self.rules.tags == TagRule::PerStep { (tag - 1) * steps(self.n) as u32 + step as u32 + 1 } else { tag }
    }

    /// Slots of a rank.
    pub(crate) fn slots(&self) -> usize {
        match self.rules.slots {
            SlotRule::PerStep => protocol::slots(self.n),
            SlotRule::Modulo(slots) | SlotRule::Rolling(slots) => slots,
        }
    }

    fn slot(&self, base: u32, round: usize, step: usize) -> usize {
        match self.rules.slots {
            SlotRule::PerStep => step,
            SlotRule::Modulo(slots) => step % slots,
            SlotRule::Rolling(slots) => ((base as usize + round) * steps(self.n) + step) % slots,
        }
    }

    /// Lines of all ranks' staging memory.
    pub(crate) fn cells(&self) -> usize {
        self.n * self.slots() * self.lines
    }

    /// The line of `rank`'s staging memory into which the previous rank stores at `step`.
    pub(crate) fn cell(
        &self,
        call: usize,
        rank: usize,
        lane: usize,
        (base, round, step): (u32, usize, usize),
    ) -> usize {
        let (slot, part) = (self.slot(base, round, step), self.part(call));
        let inside = match self.rules.layout {
            Layout::SlotMajor => slot * self.lines + lane,
            Layout::WireMajor => ((lane / part) * self.slots() + slot) * part + lane % part,
        };
        rank * self.slots() * self.lines + inside
    }

    /// Lines that work-group `wire` of the call clears.
    pub(crate) fn cleared_by(&self, call: usize, rank: usize, wire: usize) -> Vec<usize> {
        let part = self.part(call);
        let last = wire + 1 == self.calls[call].wires && self.rules.clears_remainder;
        let end = if last { self.lines } else { (wire + 1) * part };
        let slots = 0..self.slots();
        slots
            .flat_map(|slot| (wire * part..end).map(move |lane| (slot, lane)))
            .map(|(slot, lane)| (rank * self.slots() + slot) * self.lines + lane)
            .collect()
    }

    /// Chunk that `rank` receives, reduces and sends on at `position` (0 sends only, the last receives only).
    pub(crate) fn chunk_at(&self, rank: usize, position: usize) -> usize {
        sent_chunk(self.n, rank, position)
    }

    /// Positions of a rank in a round: one more than the ring's steps.
    pub(crate) fn positions(&self) -> std::ops::RangeInclusive<usize> {
        0..=steps(self.n)
    }
}
