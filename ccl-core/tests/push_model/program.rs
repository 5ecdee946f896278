//! The work of all ranks, laid out from the library's plans.

use std::collections::{BTreeMap, HashMap};

use ccl_core::plan::mhc::{MhcPlan, column_lines};
use ccl_core::plan::push::{BulkPlace, Mode, Part, Phase, PushPlan, PushStep, Transport};
use ccl_core::plan::ring::RingPlan;
use ccl_core::protocol::{self, DirectFlag, FLAG_STRIDE, MAX_WIRES, Region, STAGING_HEAD_BYTES, tag_span};

use super::{Generations, Kind, Scenario};

/// Bulk data is looked at in pieces of so many bytes.
const PIECE: usize = 2048;

/// What is done in one step that nothing can interrupt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Stores a message into cells, with its flag if it is a line. What a rank stores into memory of its own it sees at once.
    Store { cells: Vec<u16>, message: u16, line: Option<u16>, own: bool },
    /// Stores a flag, after the data before it if it is a release.
    Flag { cell: u16, tag: u16, release: bool },
    /// Waits for flags, then takes a message from cells each.
    Receive { flags: Vec<(u16, u16)>, data: Vec<(u16, u16)> },
    /// Clears flags.
    Clear(Vec<u16>),
}

/// A work-group: what comes before all else, and then strands that go their own way.
#[derive(Clone, Default, Debug)]
pub(crate) struct Group {
    pub(crate) first: Vec<Op>,
    pub(crate) strands: Vec<Vec<Op>>,
}

/// All calls of all ranks, and what they touch.
pub(crate) struct Program {
    /// By rank, then call, then wire. User's work between direct calls is a call, too.
    pub(crate) ranks: Vec<Vec<Vec<Group>>>,
    pub(crate) cells: usize,
}

/// What a cell is: a place in a rank's staging memory, or a share of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Cell {
    Staging(usize, usize),
    /// The same for the groups of this part, where several share a block of columns: who stores there stores for all.
    Copy(usize, usize, usize),
    Barrier(usize, u32, usize),
    /// Of a rank's input or output, the share that an owner reduces on a wire.
    Buffer(usize, bool, usize, u32),
}

/// Call, round, what, from, which, line.
type Message = (usize, u32, u8, usize, usize, u32);

struct Layer<'a> {
    scenario: &'a Scenario,
    cells: HashMap<Cell, u16>,
    messages: HashMap<Message, u16>,
}

/// Lays out all calls. A call's steps are the plan's.
pub(crate) fn lay_out(scenario: &Scenario) -> Program {
    let n = scenario.agreed.n;
    let mut layer = Layer { scenario, cells: HashMap::new(), messages: HashMap::new() };
    let mut ranks = vec![Vec::new(); n];
    let (mut base, mut wraps) = (0, 0u16);
    let mut by_mode: HashMap<Mode, u32> = HashMap::new();
    let mut wrapping = Vec::new();
    for (call, spec) in scenario.calls.iter().enumerate() {
        let request = spec.request();
        let rounds;
        match spec.kind {
            Kind::Ring => {
                let plan = RingPlan::new(&request, &scenario.agreed, spec.wires).unwrap();
                rounds = plan.rounds;
                let span = tag_span(base, rounds, scenario.agreed.tag_limit);
                for (rank, calls) in ranks.iter_mut().enumerate() {
                    calls.push(layer.ring(call, &plan, rank, span.base));
                }
            }
            Kind::Push(mode, transport) => {
                let plan = PushPlan::new(&request, &scenario.agreed, mode, transport, spec.wires).unwrap();
                rounds = plan.rounds;
                let span = tag_span(base, rounds, scenario.agreed.tag_limit);
                let own = by_mode.entry(mode).or_default();
                for (rank, calls) in ranks.iter_mut().enumerate() {
                    if mode == Mode::Direct {
                        calls.push(layer.user(call, &plan, rank, true));
                    }
                    calls.push(layer.push(call, &plan, rank, span.base, *own));
                    if mode == Mode::Direct {
                        calls.push(layer.user(call, &plan, rank, false));
                    }
                }
                *own += rounds;
            }
            Kind::Columns { .. } => {
                let plan = spec.columns(&scenario.agreed).unwrap();
                rounds = plan.rounds();
                let span = tag_span(base, rounds, scenario.agreed.tag_limit);
                let own = by_mode.entry(Mode::OneShot).or_default();
                for (rank, calls) in ranks.iter_mut().enumerate() {
                    calls.push(layer.columns(call, &plan, rank, span.base, *own));
                }
                *own += rounds;
            }
        }
        let span = tag_span(base, rounds, scenario.agreed.tag_limit);
        if span.wraps {
            wraps += 1;
            let at = ranks[0].len() - 1 - usize::from(spec.kind == Kind::Push(Mode::Direct, Transport::Bulk));
            wrapping.push((call, at, wraps));
        }
        base = span.next;
    }
    // Only now is it known which cells there are to clear.
    for (call, at, number) in wrapping {
        for (rank, calls) in ranks.iter_mut().enumerate() {
            let wires = scenario.calls[call].wires;
            for (group, wire) in calls[at].iter_mut().zip(0..) {
                if wire < wires {
                    group.first = layer.wrap(call, rank, wire, number);
                }
                if matches!(scenario.calls[call].kind, Kind::Columns { .. }) {
                    group.first.extend(layer.others_wires(rank, wire, wires, number));
                }
            }
        }
    }
    Program { ranks, cells: layer.cells.len() }
}

impl Layer<'_> {
    fn cell(&mut self, cell: Cell) -> u16 {
        let next = self.cells.len() as u16;
        *self.cells.entry(cell).or_insert(next)
    }

    /// A line's place in staging memory, as often as there are groups that may share its block.
    fn copies(&mut self, rank: usize, offset: usize) -> Vec<u16> {
        let first = self.cell(Cell::Staging(rank, offset));
        let others = 1..self.scenario.parts;
        std::iter::once(first).chain(others.map(|part| self.cell(Cell::Copy(rank, offset, part)))).collect()
    }

    /// The tag whose generation a round uses.
    fn place(&self, tag: u32, round: u32, own_rounds: u32) -> u32 {
        match self.scenario.rules.generations {
            Generations::ByTag => tag,
            Generations::One => 0,
            Generations::ByRound => round,
            Generations::ByMode => own_rounds + round,
        }
    }

    /// 0 is no message.
    fn message(&mut self, message: Message) -> u16 {
        let next = self.messages.len() as u16 + 1;
        *self.messages.entry(message).or_insert(next)
    }

    /// Strands by key, on their wires.
    fn groups<K: Ord>(&self, wires: u32, ops: Vec<(u32, K, Vec<Op>)>) -> Vec<Group> {
        let mut groups = vec![Group::default(); wires as usize];
        if self.scenario.thread {
            // All on the first wire, in order.
            let all: Vec<Op> = ops.into_iter().flat_map(|(_, _, ops)| ops).collect();
            groups[0].strands.extend((!all.is_empty()).then_some(all));
            return groups;
        }
        let mut strands: BTreeMap<(u32, K), Vec<Op>> = BTreeMap::new();
        for (wire, key, ops) in ops {
            strands.entry((wire, key)).or_default().extend(ops);
        }
        for ((wire, _), ops) in strands {
            groups[wire as usize].strands.push(ops);
        }
        groups
    }

    fn ring(&mut self, call: usize, plan: &RingPlan, rank: usize, base: u32) -> Vec<Group> {
        let n = plan.n;
        let mut all = Vec::new();
        for step in plan.steps(rank) {
            let tag = protocol::tag(base, step.round) as u16;
            for line in self.scenario.lines.clone().into_iter().filter(|line| *line < step.lines) {
                let mut ops = Vec::new();
                let place = |layer: &mut Self, receiver: usize, position: u32| {
                    let offset = plan.line_offset(position, step.wire, line);
                    let cell = layer.cell(Cell::Staging(receiver, offset));
                    (cell, layer.message((call, step.round, 0, position as usize, step.chunk, line | step.wire << 16)))
                };
                if step.receive {
                    let (cell, message) = place(self, rank, step.position - 1);
                    ops.push(Op::Receive { flags: vec![(cell, tag)], data: vec![(cell, message)] });
                }
                if step.send {
                    let (cell, message) = place(self, (rank + 1) % n, step.position);
                    ops.push(Op::Store { cells: vec![cell], message, line: Some(tag), own: false });
                }
                all.push((step.wire, (0, line), ops));
            }
        }
        self.groups(plan.wires, all)
    }

    /// What a step's part is, for a message's name.
    fn which(part: &Part) -> usize {
        match part {
            Part::Lines { chunk, .. } => *chunk,
            Part::Elements { first, .. } => *first as usize,
        }
    }

    fn push(&mut self, call: usize, plan: &PushPlan, rank: usize, base: u32, own_rounds: u32) -> Vec<Group> {
        let mut all = Vec::new();
        for step in plan.steps(rank) {
            let tag = protocol::tag(base, step.round);
            let place = self.place(tag, step.round, own_rounds);
            match step.part {
                Part::Lines { chunk, segment } => {
                    let form = plan.layout.form;
                    let data = segment.words.div_ceil(form.payload_words() as u32);
                    let lines = if self.scenario.rules.every_round { segment.lines } else { data };
                    for line in self.scenario.lines.clone().into_iter().filter(|line| *line < lines) {
                        let ops = self.line(call, plan, rank, &step, line, (tag as u16, place));
                        all.push((step.wire, (chunk, line), ops));
                    }
                }
                Part::Elements { elements, .. } => {
                    if elements == 0 && plan.mode == Mode::OneShot && !self.scenario.rules.every_round {
                        continue;
                    }
                    let ops = match plan.mode {
                        Mode::Direct => self.direct(call, plan, rank, &step, tag as u16),
                        _ => self.bulk(call, plan, rank, &step, (tag as u16, place)),
                    };
                    all.push((step.wire, (0, 0), ops));
                }
            }
        }
        self.groups(plan.wires, all)
    }

    fn region(&self, region: Region) -> Region {
        if self.scenario.rules.results_apart { region } else { Region::Input }
    }

    fn line(
        &mut self,
        call: usize,
        plan: &PushPlan,
        rank: usize,
        step: &PushStep,
        line: u32,
        (tag, place): (u16, u32),
    ) -> Vec<Op> {
        let chunk = Self::which(&step.part);
        let slot = |layer: &mut Self, region: Region, sender: usize, receiver: usize| {
            let first = plan.segment_offset(layer.region(region), place, sender, step.wire, chunk);
            let cells = layer.copies(receiver, first + line as usize * plan.layout.form.granule());
            let name = (call, step.round, 1 + region as u8, sender, chunk, line | step.wire << 16);
            (cells, layer.message(name))
        };
        let store = |(cells, message): (Vec<u16>, u16)| Op::Store { cells, message, line: Some(tag), own: false };
        let receive = |(cells, message): (Vec<u16>, u16)| received(&cells, tag, message);
        let peers = (0..plan.n).filter(|peer| *peer != rank);
        match step.phase {
            Phase::Send => vec![store(slot(self, Region::Input, rank, step.peer))],
            Phase::Reduce => {
                let mut ops: Vec<Op> =
                    peers.clone().map(|peer| receive(slot(self, Region::Input, peer, rank))).collect();
                if plan.mode == Mode::Mesh {
                    ops.extend(peers.map(|peer| store(slot(self, Region::Result, rank, peer))));
                }
                ops
            }
            Phase::Gather => vec![receive(slot(self, Region::Result, step.peer, rank))],
        }
    }

    fn bulk(
        &mut self,
        call: usize,
        plan: &PushPlan,
        rank: usize,
        step: &PushStep,
        (tag, place): (u16, u32),
    ) -> Vec<Op> {
        let Part::Elements { first, elements } = step.part else { return Vec::new() };
        let (flag_last, release) = (self.scenario.rules.flag_last, self.scenario.rules.release);
        let slot = |layer: &mut Self, region: Region, sender: usize, receiver: usize| {
            let at = layer.region(region);
            // A result comes back in the place of the input.
            let (from, to) = if region == Region::Input { (sender, receiver) } else { (receiver, sender) };
            let turn = if layer.scenario.rules.turns { place } else { 0 };
            let BulkPlace { holder, offset: start } = plan.bulk_place(turn, from, to, step.wire);
            let pieces = start / PIECE..(start + elements as usize).div_ceil(PIECE);
            let pieces = if elements == 0 { 0..0 } else { pieces };
            let cells: Vec<u16> = pieces.map(|piece| layer.cell(Cell::Staging(holder, piece * PIECE))).collect();
            let flag = plan.layout.bulk_flag(at, protocol::generation(place), sender, step.wire);
            let flag = layer.cell(Cell::Staging(receiver, flag));
            let name = (call, step.round, 3 + region as u8, sender, first as usize, step.wire);
            (cells, flag, layer.message(name))
        };
        let store = |(cells, flag, message): (Vec<u16>, u16, u16)| {
            let flag = Op::Flag { cell: flag, tag, release };
            if cells.is_empty() {
                return vec![flag];
            }
            let data = Op::Store { cells, message, line: None, own: false };
            if flag_last { vec![data, flag] } else { vec![flag, data] }
        };
        let receive = |(cells, flag, message): (Vec<u16>, u16, u16)| Op::Receive {
            flags: vec![(flag, tag)],
            data: cells.into_iter().map(|cell| (cell, message)).collect(),
        };
        let peers = (0..plan.n).filter(|peer| *peer != rank);
        match step.phase {
            Phase::Send => store(slot(self, Region::Input, rank, step.peer)),
            Phase::Reduce => {
                let mut ops: Vec<Op> =
                    peers.clone().map(|peer| receive(slot(self, Region::Input, peer, rank))).collect();
                if plan.mode == Mode::Mesh {
                    ops.extend(peers.flat_map(|peer| store(slot(self, Region::Result, rank, peer))));
                }
                ops
            }
            Phase::Gather => vec![receive(slot(self, Region::Result, step.peer, rank))],
        }
    }

    /// Groups of a tile, of its blocks, of their parts; one thread sends all before it takes any.
    fn columns(&mut self, call: usize, plan: &MhcPlan, rank: usize, base: u32, own_rounds: u32) -> Vec<Group> {
        let (n, parts, blocks) = (plan.reduce.n, self.scenario.parts, plan.params.blocks());
        let (form, tag) = (plan.reduce.layout.form, protocol::tag(base, 0));
        let place = self.place(tag, 0, own_rounds);
        let lines = |line: &u32| (*line as usize) < column_lines(form);
        let looked_at: Vec<u32> = self.scenario.lines.clone().into_iter().filter(lines).collect();
        let slot = |layer: &mut Self, row: u64, block: usize, line: u32, sender: usize, receiver: usize| {
            let first = plan.column_offset(place, sender, row, block);
            let cells = layer.copies(receiver, first + line as usize * form.granule());
            (cells, layer.message((call, 0, 7, sender, row as usize * blocks + block, line)))
        };
        let mut groups = vec![Group::default(); plan.groups as usize * parts];
        let (mut all_sent, mut all_taken) = (Vec::new(), Vec::new());
        let rows_of_tile = 16 / u64::from(plan.params.streams);
        for (row, block) in (0..plan.params.rows).flat_map(|row| (0..blocks).map(move |block| (row, block))) {
            for (part, line) in (0..parts).flat_map(|part| looked_at.iter().map(move |line| (part, *line))) {
                let mut sent = Vec::new();
                for peer in (1 + part..n).step_by(parts).map(|distance| (rank + distance) % n) {
                    let (cells, message) = slot(self, row, block, line, rank, peer);
                    sent.push(Op::Store { cells, message, line: Some(tag as u16), own: false });
                }
                let mut taken = Vec::new();
                for sender in (1..n).map(|distance| (rank + distance) % n) {
                    let (cells, message) = slot(self, row, block, line, sender, rank);
                    taken.push(received(&cells[part..=part], tag as u16, message));
                }
                if self.scenario.thread {
                    all_sent.extend(sent);
                    all_taken.extend(taken);
                    continue;
                }
                sent.extend(taken);
                let group = ((row / rows_of_tile) as usize * blocks + block) * parts + part;
                groups[group].strands.push(sent);
            }
        }
        if self.scenario.thread {
            all_sent.extend(all_taken);
            groups[0].strands.push(all_sent);
        }
        groups
    }

    fn share(&mut self, rank: usize, output: bool, owner: usize, wire: u32) -> u16 {
        self.cell(Cell::Buffer(rank, output && !self.scenario.in_place, owner, wire))
    }

    fn direct(&mut self, call: usize, plan: &PushPlan, rank: usize, step: &PushStep, tag: u16) -> Vec<Op> {
        let (n, wire) = (plan.n, step.wire);
        let flag = |layer: &mut Self, which: DirectFlag, sender: usize, receiver: usize| {
            layer.cell(Cell::Staging(receiver, plan.layout.direct_flag(which, sender, wire)))
        };
        let rules = self.scenario.rules;
        let store = |cell| Op::Flag { cell, tag, release: rules.release };
        let peers = (0..n).filter(|peer| *peer != rank);
        match step.phase {
            Phase::Send => vec![store(flag(self, DirectFlag::Ready, rank, step.peer))],
            Phase::Reduce => {
                let flags: Vec<_> =
                    peers.clone().map(|peer| (flag(self, DirectFlag::Ready, peer, rank), tag)).collect();
                let mut ops = Vec::new();
                if rules.ready {
                    ops.push(Op::Receive { flags, data: Vec::new() });
                }
                for of in 0..n {
                    let (cell, message) =
                        (self.share(of, false, rank, wire), self.message((call, 0, 5, of, rank, wire)));
                    ops.push(Op::Receive { flags: Vec::new(), data: vec![(cell, message)] });
                }
                for of in 0..n {
                    let (cell, message) =
                        (self.share(of, true, rank, wire), self.message((call, 0, 6, of, rank, wire)));
                    ops.push(Op::Store { cells: vec![cell], message, line: None, own: of == rank });
                }
                ops.extend(peers.map(|peer| store(flag(self, DirectFlag::Done, rank, peer))));
                ops
            }
            Phase::Gather if !rules.done => Vec::new(),
            Phase::Gather => {
                let flags = vec![(flag(self, DirectFlag::Done, step.peer, rank), tag)];
                vec![Op::Receive { flags, data: Vec::new() }]
            }
        }
    }

    /// The user's own work on the buffers of a direct call: writes the input before it, reads the output after it.
    fn user(&mut self, call: usize, plan: &PushPlan, rank: usize, before: bool) -> Vec<Group> {
        let shares: Vec<(usize, u32)> =
            (0..plan.n).flat_map(|owner| (0..plan.wires).map(move |wire| (owner, wire))).collect();
        let mut data = Vec::new();
        let mut ops = Vec::new();
        for (owner, wire) in shares {
            let cell = self.share(rank, !before, owner, wire);
            let message = self.message((call, 0, if before { 5 } else { 6 }, rank, owner, wire));
            data.push((cell, message));
            ops.push(Op::Store { cells: vec![cell], message, line: None, own: true });
        }
        let ops = if before { ops } else { vec![Op::Receive { flags: Vec::new(), data }] };
        vec![Group { first: Vec::new(), strands: vec![ops] }]
    }

    /// Barrier, clearing, barrier.
    fn wrap(&mut self, call: usize, rank: usize, wire: u32, number: u16) -> Vec<Op> {
        let rules = self.scenario.rules;
        let mut ops = Vec::new();
        for barrier in 0..2 {
            if rules.barriers[barrier] {
                ops.extend(self.barrier(rank, wire, barrier, number));
            }
            if barrier == 0 {
                let mine: Vec<u16> = self
                    .cells
                    .iter()
                    .filter_map(|(cell, id)| match cell {
                        Cell::Staging(of, offset) | Cell::Copy(of, offset, _) if *of == rank => {
                            (self.clears(call, *offset) == Some(wire)).then_some(*id)
                        }
                        _ => None,
                    })
                    .collect();
                let mut mine = mine;
                mine.sort_unstable();
                ops.push(Op::Clear(mine));
            }
        }
        ops
    }

    /// By columns: waits until the other wires are cleared, by the last word that each one's barriers leave with this rank.
    fn others_wires(&mut self, rank: usize, group: u32, wires: u32, number: u16) -> Vec<Op> {
        if !self.scenario.rules.wires_awaited || !self.scenario.rules.barriers[1] {
            return Vec::new();
        }
        let lap = if rank == 0 { 2 } else { 3 };
        let mut wait =
            |wire| Op::Receive { flags: vec![(self.cell(Cell::Barrier(rank, wire, lap)), number)], data: vec![] };
        (0..wires).filter(|wire| *wire != group).map(&mut wait).collect()
    }

    fn barrier(&mut self, rank: usize, wire: u32, barrier: usize, number: u16) -> Vec<Op> {
        let n = self.scenario.agreed.n;
        let mut word = |rank: usize, lap: usize| self.cell(Cell::Barrier(rank, wire, barrier * 2 + lap));
        let mut wait = |lap| Op::Receive { flags: vec![(word(rank, lap), number)], data: Vec::new() };
        let waits = [wait(0), wait(1)];
        let mut pass = |lap| Op::Flag { cell: word((rank + 1) % n, lap), tag: number, release: true };
        let passes = [pass(0), pass(1)];
        let ([wait0, wait1], [pass0, pass1]) = (waits, passes);
        match rank {
            0 => vec![pass0, wait0, pass1],
            _ if rank + 1 < n => vec![wait0, pass0, wait1, pass1],
            _ => vec![wait0, pass0, wait1],
        }
    }

    /// The wire of the call that clears what lies at `offset`, if anything does: flags only.
    fn clears(&self, call: usize, offset: usize) -> Option<u32> {
        let (spec, layout) = (&self.scenario.calls[call], self.scenario.agreed.layout());
        let last = spec.wires - 1;
        let granule = layout.form.granule();
        if offset >= layout.bulk_offset() && layout.bulk_bytes > 0 {
            return None;
        }
        if offset >= layout.push_offset() && !self.scenario.rules.clears_all {
            return None;
        }
        let wire = if offset < layout.push_offset() {
            let part = layout.slot_tiles as usize / spec.wires as usize * layout.form.tile_bytes();
            let slot = layout.slot_tiles as usize * layout.form.tile_bytes();
            (spec.kind == Kind::Ring).then(|| (offset - STAGING_HEAD_BYTES) % slot / part)
        } else if offset < layout.flags_offset() {
            let part = layout.push_tiles as usize * layout.form.lines_per_tile() / spec.wires as usize;
            let lines = matches!(spec.kind, Kind::Push(_, Transport::Lines(_)) | Kind::Columns { .. });
            lines.then(|| (offset - layout.push_offset()) % layout.push_slot_bytes() / granule / part)
        } else {
            let wire = (offset - layout.flags_offset()) / FLAG_STRIDE % MAX_WIRES;
            matches!(spec.kind, Kind::Push(_, Transport::Bulk)).then_some(wire)
        };
        Some(wire.map_or(last, |wire| (wire as u32).min(last)))
    }
}

/// One wait for a line, and for its copies.
fn received(cells: &[u16], tag: u16, message: u16) -> Op {
    let of_all = |word: u16| cells.iter().map(|cell| (*cell, word)).collect();
    Op::Receive { flags: of_all(tag), data: of_all(message) }
}
