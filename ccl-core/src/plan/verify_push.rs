//! Executes the schedules of all ranks of a push plan symbolically and says what is wrong with them.
//!
//! As in [`super::verify`], delivery is in whatever order the ranks happen to run here, and what must hold in every
//! interleaving is derived from causality: each wire of each rank keeps a vector clock, and a message may only be stored
//! over another one if the sender knows that that one was taken. The call is made twice, so that slots are used again
//! across the border between two calls, where a rank's wires know what all of them knew.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::push::{Mode, Part, Phase, PushPlan, PushStep, Transport};
use super::verify::check_geometry;
use crate::protocol::{GENERATIONS, MAX_RANKS, Region, generation, tag};

/// Calls that are executed one after another.
const CALLS: u32 = 2;

/// Verifies that every rank stores every element exactly once, reduced from every rank's input, without deadlock, and that
/// no slot is stored into before it was taken; in place or not.
pub fn verify(plan: &PushPlan) -> Result<(), String> {
    check(plan, |rank| plan.steps(rank), GENERATIONS)
}

/// Per rank: how many steps of the wire are known to be past what they take.
type Clock = [u64; MAX_RANKS];

fn join(known: &mut Clock, news: &Clock) {
    known.iter_mut().zip(news).for_each(|(known, news)| *known = (*known).max(*news));
}

/// What a place in a slot holds: an input, a result, or (direct) a flag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Input,
    Result,
    Ready,
    Done,
}

/// A wire's part of a slot, or a flag: receiver, kind, generation, sender, wire, chunk.
type Place = (usize, Kind, usize, usize, u32, usize);

#[derive(Clone, Copy)]
struct Message {
    call: u32,
    step: PushStep,
    clock: Clock,
    /// The receiver's step (from 1) that took it; 0 while none has.
    taken: u64,
}

/// Elements or blocks side by side, merged.
#[derive(Clone, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn touches(&self, range: &Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, end)| *end > range.start) && !range.is_empty()
    }

    fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut merged = range.clone();
        if let Some((&start, &end)) = self.0.range(..=range.start).next_back()
            && end == range.start
        {
            merged.start = start;
        }
        if let Some(end) = self.0.remove(&range.end) {
            merged.end = end;
        }
        self.0.insert(merged.start, merged.end);
    }

    fn is(&self, all: u64) -> bool {
        if all == 0 { self.0.is_empty() } else { self.0.len() == 1 && self.0.get(&0) == Some(&all) }
    }
}

struct Machine<'a> {
    plan: &'a PushPlan,
    generations: usize,
    call: u32,
    places: HashMap<Place, Message>,
    /// By rank, wire.
    clocks: Vec<Clock>,
    /// Output so far. On lines by rank, chunk, wire, in blocks of the wire's stream; else by rank, in elements.
    stored: Vec<Ranges>,
    /// In direct: by rank and writer, the step of the writer's last store that the rank does not know of yet.
    unknown: HashMap<(usize, usize), u64>,
}

/// Runs the step lists that `schedule` gives for each rank, twice, over slots of so many generations.
fn check<I>(plan: &PushPlan, schedule: impl Fn(usize) -> I, generations: usize) -> Result<(), String>
where
    I: Iterator<Item = PushStep>,
{
    check_geometry(&plan.geometry, plan.wires)?;
    let (n, wires) = (plan.n, plan.wires as usize);
    let outputs = if matches!(plan.transport, Transport::Lines(_)) { n * n * wires } else { n };
    let mut machine = Machine {
        plan,
        generations,
        call: 0,
        places: HashMap::new(),
        clocks: vec![[0; MAX_RANKS]; n * wires],
        stored: Vec::new(),
        unknown: HashMap::new(),
    };
    // A rank may be a call ahead of another: each has its own list of both calls.
    machine.stored = vec![Ranges::default(); outputs * CALLS as usize];
    let mut ranks: Vec<_> = (0..n)
        .map(|rank| {
            let schedule = &schedule;
            let call = move |call| schedule(rank).map(Some).chain(std::iter::once(None)).map(move |step| (call, step));
            (0..CALLS).flat_map(call).peekable()
        })
        .collect();
    loop {
        let mut progress = false;
        for (rank, steps) in ranks.iter_mut().enumerate() {
            while let Some((call, step)) = steps.peek().copied() {
                machine.call = call;
                match step {
                    Some(step) if !machine.execute(rank, &step)? => break,
                    Some(_) => {}
                    None => machine.end_call(rank)?,
                }
                steps.next();
                progress = true;
            }
        }
        let waiting: Vec<_> = ranks
            .iter_mut()
            .enumerate()
            .filter_map(|(rank, steps)| {
                let (call, step) = steps.peek()?;
                Some(format!("rank {rank} waits in call {call}, {}", step.map_or("end".into(), |s| s.to_string())))
            })
            .collect();
        if waiting.is_empty() {
            return machine.finish();
        }
        if !progress {
            return Err(format!("deadlock: {}", waiting.join("; ")));
        }
    }
}

impl Machine<'_> {
    fn place(&self, kind: Kind, receiver: usize, sender: usize, step: &PushStep) -> Place {
        let tag = tag(self.call * self.plan.rounds, step.round);
        let generation = match kind {
            Kind::Ready | Kind::Done => 0,
            _ if self.generations == GENERATIONS => generation(tag),
            _ => tag as usize % self.generations,
        };
        let chunk = match step.part {
            Part::Lines { chunk, .. } if self.plan.mode == Mode::OneShot => chunk,
            _ => 0,
        };
        (receiver, kind, generation, sender, step.wire, chunk)
    }

    /// Whether the message of this step's peer is there. The clock learns what the message knows.
    fn take(
        &mut self,
        kind: Kind,
        rank: usize,
        sender: usize,
        step: &PushStep,
        clock: &mut Clock,
    ) -> Result<bool, String> {
        let place = self.place(kind, rank, sender, step);
        let call = self.call;
        let Some(message) = self.places.get_mut(&place).filter(|m| m.taken == 0) else { return Ok(false) };
        let alike = match kind {
            // A flag says that the peer is there; what it is about is the taker's own business.
            Kind::Ready | Kind::Done => message.step.round == step.round,
            _ => message.step.part == step.part && message.step.round == step.round,
        };
        if !alike || message.call != call {
            return Err(format!("rank {rank}, {step}: finds the message of call {}, {}", message.call, message.step));
        }
        message.taken = clock[rank];
        join(clock, &message.clock);
        Ok(true)
    }

    fn send(&mut self, kind: Kind, rank: usize, receiver: usize, step: &PushStep, clock: &Clock) -> Result<(), String> {
        let place = self.place(kind, receiver, rank, step);
        if let Some(old) = self.places.get(&place) {
            let what = format!("the message of call {}, {} in rank {receiver}'s memory", old.call, old.step);
            if old.taken == 0 {
                return Err(format!("rank {rank}, {step}: overwrites {what}"));
            }
            if old.taken > clock[receiver] {
                return Err(format!("rank {rank}, {step}: may overwrite {what}: nothing shows that it was taken"));
            }
        }
        self.places.insert(place, Message { call: self.call, step: *step, clock: *clock, taken: 0 });
        Ok(())
    }

    /// The output of a rank that a step is about, and which part of it.
    fn output(&self, rank: usize, step: &PushStep) -> (usize, Range<u64>) {
        let PushPlan { n, wires, .. } = *self.plan;
        let per_call = self.stored.len() / CALLS as usize;
        let first = self.call as usize * per_call;
        match step.part {
            Part::Lines { chunk, segment } => {
                let at = (rank * n + chunk) * wires as usize + step.wire as usize;
                (first + at, segment.first_block..segment.first_block + u64::from(segment.blocks))
            }
            Part::Elements { first: element, elements } => (first + rank, element..element + elements),
        }
    }

    fn read(&self, reader: usize, of: usize, step: &PushStep) -> Result<(), String> {
        let (output, range) = self.output(of, step);
        if self.stored[output].touches(&range) {
            return Err(format!(
                "rank {reader}, {step}: reads rank {of}'s input where, in place, the result already is"
            ));
        }
        Ok(())
    }

    fn store(&mut self, writer: usize, of: usize, step: &PushStep) -> Result<(), String> {
        let (output, range) = self.output(of, step);
        if self.stored[output].touches(&range) {
            return Err(format!("rank {writer}, {step}: stores into rank {of}'s output twice"));
        }
        self.stored[output].add(range);
        Ok(())
    }

    /// Executes a step of `rank`; false if it has to wait.
    fn execute(&mut self, rank: usize, step: &PushStep) -> Result<bool, String> {
        let PushPlan { n, wires, mode, .. } = *self.plan;
        self.check_shape(rank, step)?;
        let actor = rank * wires as usize + step.wire as usize;
        let mut clock = self.clocks[actor];
        clock[rank] += 1;
        let peers = (0..n).filter(|peer| *peer != rank);
        match (step.phase, mode) {
            (Phase::Send, Mode::Direct) => self.send(Kind::Ready, rank, step.peer, step, &clock)?,
            (Phase::Send, _) => {
                self.read(rank, rank, step)?;
                self.send(Kind::Input, rank, step.peer, step, &clock)?;
            }
            (Phase::Reduce, _) => {
                let kind = if mode == Mode::Direct { Kind::Ready } else { Kind::Input };
                // All or none: nothing is taken before everything is there.
                let there = |peer: usize| {
                    self.places.get(&self.place(kind, rank, peer, step)).is_some_and(|message| message.taken == 0)
                };
                if !peers.clone().all(there) {
                    return Ok(false);
                }
                for peer in peers.clone() {
                    self.take(kind, rank, peer, step, &mut clock)?;
                }
                self.read(rank, rank, step)?;
                if mode == Mode::Direct {
                    for peer in peers.clone() {
                        self.read(rank, peer, step)?;
                    }
                    for peer in peers.clone() {
                        self.store(rank, peer, step)?;
                        self.unknown.insert((peer, rank), clock[rank]);
                    }
                }
                self.store(rank, rank, step)?;
                let news = match mode {
                    Mode::OneShot => None,
                    Mode::Mesh => Some(Kind::Result),
                    Mode::Direct => Some(Kind::Done),
                };
                for (peer, kind) in peers.filter_map(|peer| Some((peer, news?))) {
                    self.send(kind, rank, peer, step, &clock)?;
                }
            }
            (Phase::Gather, Mode::Direct) => {
                if !self.take(Kind::Done, rank, step.peer, step, &mut clock)? {
                    return Ok(false);
                }
            }
            (Phase::Gather, _) => {
                if !self.take(Kind::Result, rank, step.peer, step, &mut clock)? {
                    return Ok(false);
                }
                self.store(rank, rank, step)?;
            }
        }
        self.clocks[actor] = clock;
        Ok(true)
    }

    /// Whether the step speaks of something that exists and fits where it goes.
    fn check_shape(&self, rank: usize, step: &PushStep) -> Result<(), String> {
        let plan = self.plan;
        let fail = |what: &str| Err(format!("rank {rank}, {step}: {what}"));
        if step.round >= plan.rounds || step.wire >= plan.wires || step.peer >= plan.n {
            return fail("there is no such round, wire or rank");
        }
        if (step.peer == rank) != (step.phase == Phase::Reduce) {
            return fail("a rank neither sends to itself nor reduces for another");
        }
        let fits = match step.part {
            Part::Lines { chunk, segment } => {
                chunk < plan.n
                    && plan.segment(chunk, step.wire, step.round) == Some(segment)
                    && segment.lines <= plan.segment_lines()
                    && u64::from(segment.blocks) <= plan.round_blocks()
            }
            Part::Elements { first, elements } => {
                let bytes = elements.saturating_mul(plan.geometry.elem() as u64);
                let room = plan.mode == Mode::Direct || bytes <= u64::from(plan.part);
                room && first + elements <= plan.geometry.count()
            }
        };
        if !fits {
            return fail("it is no part of the message that fits into its slot");
        }
        let (tag, layout) = (tag(0, step.round), &plan.layout);
        let (start, end, slot, size) = match step.part {
            _ if plan.mode == Mode::Direct => return Ok(()),
            Part::Lines { chunk, segment } => {
                let start = plan.segment_offset(Region::Input, tag, rank, step.wire, chunk);
                let end = start + segment.lines as usize * layout.form.granule();
                (start, end, layout.push_slot(Region::Input, generation(tag), rank), layout.push_slot_bytes())
            }
            Part::Elements { elements, .. } => {
                let start = plan.bulk_place(tag, rank, step.peer, step.wire).offset;
                let end = start + elements as usize * plan.geometry.elem();
                let size = layout.bulk_bytes as usize;
                (start, end, start - (start - layout.turns_offset()) % size, size)
            }
        };
        if start < slot || end > slot + size || end > layout.bytes() {
            return fail("it lies outside its slot");
        }
        Ok(())
    }

    /// The end of a call on a rank: its output is whole, and its wires know what all of them know.
    fn end_call(&mut self, rank: usize) -> Result<(), String> {
        let PushPlan { n, wires, geometry, .. } = *self.plan;
        let own = rank * wires as usize..(rank + 1) * wires as usize;
        let mut all = self.clocks[rank * wires as usize];
        self.clocks[own.clone()].iter().for_each(|clock| join(&mut all, clock));
        self.clocks[own].fill(all);
        for (writer, known) in all.iter().enumerate().take(n) {
            if self.unknown.remove(&(rank, writer)).is_some_and(|step| *known < step) {
                return Err(format!("rank {rank} ends without knowing that rank {writer} has stored into its output"));
            }
        }
        let first = self.call as usize * self.stored.len() / CALLS as usize;
        if let Transport::Lines(_) = self.plan.transport {
            for (chunk, wire) in (0..n).flat_map(|chunk| (0..wires).map(move |wire| (chunk, wire))) {
                let stored = &self.stored[first + (rank * n + chunk) * wires as usize + wire as usize];
                if !stored.is(geometry.wire_blocks(chunk, wires, wire)) {
                    return Err(format!(
                        "rank {rank} ends without all of chunk {chunk} on wire {wire}: {:?}",
                        stored.0
                    ));
                }
            }
        } else if !self.stored[first + rank].is(geometry.count()) {
            return Err(format!("rank {rank} ends without all of its output: {:?}", self.stored[first + rank].0));
        }
        Ok(())
    }

    /// Nothing may be left over.
    fn finish(self) -> Result<(), String> {
        match self.places.iter().find(|(_, message)| message.taken == 0) {
            Some((place, message)) => Err(format!("rank {} never takes the message of {}", place.0, message.step)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::plan::{Agreed, Request};
    use crate::protocol::LineForm;
    use crate::{DataType, Order, ReduceOp};

    const LINES: Transport = Transport::Lines(LineForm::L64);

    /// A plan of equal chunks over two full rounds (direct: one).
    fn even(n: usize, mode: Mode, transport: Transport, wires: u32) -> PushPlan {
        let agreed = Agreed { push_tiles: 4, bulk_bytes: 8192, ..Agreed::ring(n, LineForm::L64, 4) };
        let request = |count| Request {
            count,
            dtype: DataType::Bfloat16,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        };
        let one = PushPlan::new(&request(1), &agreed, mode, transport, wires).unwrap();
        let round = match transport {
            Transport::Lines(_) => one.round_blocks() * 128 * n as u64 * u64::from(wires),
            Transport::Bulk if mode == Mode::Direct => 4096,
            Transport::Bulk => one.windows().window(),
        };
        let plan = PushPlan::new(&request(2 * round), &agreed, mode, transport, wires).unwrap();
        assert_eq!(plan.rounds, if mode == Mode::Direct { 1 } else { 2 });
        assert_eq!(verify(&plan), Ok(()), "{plan}");
        plan
    }

    fn all_kinds(n: usize, wires: u32) -> Vec<PushPlan> {
        let kinds = [(Mode::OneShot, LINES), (Mode::Mesh, LINES), (Mode::OneShot, Transport::Bulk)];
        let more = [(Mode::Mesh, Transport::Bulk), (Mode::Direct, Transport::Bulk)];
        kinds.into_iter().chain(more).map(|(mode, transport)| even(n, mode, transport, wires)).collect()
    }

    fn schedules(plan: &PushPlan) -> Vec<Vec<PushStep>> {
        (0..plan.n).map(|rank| plan.steps(rank).collect()).collect()
    }

    fn run(plan: &PushPlan, schedules: Vec<Vec<PushStep>>, generations: usize) -> Result<(), String> {
        check(plan, |rank| schedules[rank].iter().copied(), generations)
    }

    #[track_caller]
    fn complaint(plan: &PushPlan, mutate: impl FnOnce(&mut Vec<Vec<PushStep>>)) -> String {
        let mut lists = schedules(plan);
        mutate(&mut lists);
        run(plan, lists, GENERATIONS).expect_err("the fault went unnoticed")
    }

    #[test]
    fn every_dropped_or_doubled_step_is_noticed() {
        for plan in [all_kinds(2, 1), all_kinds(3, 2)].concat() {
            for rank in 0..plan.n {
                for at in 0..plan.steps(rank).count() {
                    complaint(&plan, |lists| {
                        lists[rank].remove(at);
                    });
                    complaint(&plan, |lists| {
                        let step = lists[rank][at];
                        lists[rank].insert(at, step);
                    });
                }
            }
        }
    }

    #[test]
    fn every_bent_step_is_noticed() {
        let bends: [fn(&mut PushStep); 4] = [
            |s| s.round = (s.round + 1) % 3,
            |s| s.wire += 1,
            |s| s.peer += 1,
            |s| match &mut s.part {
                Part::Lines { segment, .. } => segment.first_block += 1,
                Part::Elements { first, .. } => *first += 1,
            },
        ];
        for plan in all_kinds(3, 2) {
            for rank in 0..3 {
                for at in 0..plan.steps(rank).count() {
                    for (which, bend) in bends.iter().enumerate() {
                        let step = schedules(&plan)[rank][at];
                        // What the flags of a direct call are about is said by the step that reduces.
                        if plan.mode == Mode::Direct && which == 3 && step.phase != Phase::Reduce {
                            continue;
                        }
                        complaint(&plan, |lists| bend(&mut lists[rank][at]));
                    }
                }
            }
        }
    }

    #[test]
    fn one_generation_is_too_few_for_one_shot_and_enough_for_a_mesh() {
        for n in 2..=5 {
            for plan in all_kinds(n, 1) {
                let outcome = run(&plan, schedules(&plan), 1);
                if plan.mode == Mode::OneShot {
                    let text = outcome.expect_err("one generation is not safe");
                    assert!(text.contains("overwrite") || text.contains("finds the message"), "{text}");
                } else {
                    assert_eq!(outcome, Ok(()), "{plan}");
                }
            }
        }
    }

    #[test]
    fn a_result_that_is_awaited_by_nobody_is_noticed() {
        let plan = even(2, Mode::Direct, Transport::Bulk, 1);
        let text =
            complaint(&plan, |lists| lists.iter_mut().for_each(|steps| steps.retain(|s| s.phase != Phase::Gather)));
        assert!(text.contains("overwrites") || text.contains("without"), "{text}");
    }

    #[test]
    fn a_call_in_place_must_not_read_what_it_has_stored() {
        for plan in all_kinds(2, 1).into_iter().filter(|plan| plan.mode != Mode::Direct) {
            // The second round's input goes out only after the first round's result was stored over it.
            let text = complaint(&plan, |lists| {
                for steps in lists {
                    let first = steps.iter().find(|s| s.phase == Phase::Send).copied().unwrap();
                    let late = steps.iter_mut().rfind(|s| s.phase == Phase::Send).unwrap();
                    late.part = first.part;
                }
            });
            assert!(text.contains("in place") || text.contains("no part"), "{text}");
        }
    }
}
