//! Executes the schedules of all ranks symbolically and says what is wrong with them.
//!
//! Values are expressions over the ranks' inputs, slots hold whole messages; nothing is done per element, so plans of
//! any length can be verified. Delivery is in whatever order the ranks happen to run here, but what must hold in
//! EVERY interleaving is derived from causality alone: each wire of each rank keeps a vector clock (how many steps of
//! each rank's same wire it knows to be past their receive), and a message may only be stored into a slot if the
//! sender knows that the previous one was consumed. Since a rank passes a chunk on line by line, that is shown line
//! by line: a step's line l follows all lines of the rank's earlier steps and line l of the message it receives, and
//! all segments of a chunk and round have equally many lines, which is checked.

use std::fmt;

use super::geometry::Geometry;
use super::ring::{RingPlan, Step};
use crate::protocol::{MAX_RANKS, owner, slots};

/// Verifies that every rank stores every element exactly once, summed in the documented order, without deadlock and
/// without a slot being overwritten before it was consumed.
pub fn verify(plan: &RingPlan) -> Result<(), String> {
    check(plan, (0..plan.n).map(|rank| plan.steps(rank)).collect(), slots(plan.n) as u32)
}

/// Inputs added from left to right: ((x_a + x_b) + x_c) ...
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sum {
    ranks: [u8; MAX_RANKS],
    len: usize,
}

impl Sum {
    fn of(rank: usize) -> Self {
        let mut ranks = [0; MAX_RANKS];
        ranks[0] = rank as u8;
        Self { ranks, len: 1 }
    }

    /// The documented sum of `chunk`: from rank c on, once around.
    fn documented(n: usize, chunk: usize) -> Self {
        let mut ranks = [0; MAX_RANKS];
        (0..n).for_each(|i| ranks[i] = ((chunk + i) % n) as u8);
        Self { ranks, len: n }
    }

    fn plus(mut self, rank: usize) -> Option<Self> {
        *self.ranks.get_mut(self.len)? = rank as u8;
        self.len += 1;
        Some(self)
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms: Vec<_> = self.ranks[..self.len].iter().map(|rank| format!("x{rank}")).collect();
        f.write_str(&terms.join("+"))
    }
}

/// Per rank: how many steps of its wire are known to be past their receive.
type Clock = [u64; MAX_RANKS];

#[derive(Clone, Copy)]
struct Message {
    step: Step,
    value: Sum,
    clock: Clock,
}

/// A wire's part of a slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    message: Option<Message>,
    /// The receiver's step (from 1) that consumed the message; 0 while none has.
    consumed: u64,
}

struct Machine<'a> {
    plan: &'a RingPlan,
    slots: u32,
    /// By receiving rank, slot, wire.
    staging: Vec<Slot>,
    /// By rank, wire.
    clocks: Vec<Clock>,
    /// Blocks stored so far, by rank, chunk, wire. Rounds go in order, so they form a prefix of the wire's stream.
    stored: Vec<u64>,
}

/// Runs the step lists `schedules` of all ranks over `slot_count` slots.
fn check<I>(plan: &RingPlan, schedules: Vec<I>, slot_count: u32) -> Result<(), String>
where
    I: Iterator<Item = Step>,
{
    check_geometry(&plan.geometry, plan.wires)?;
    let (n, wires) = (plan.n, plan.wires as usize);
    let mut machine = Machine {
        plan,
        slots: slot_count,
        staging: vec![Slot::default(); n * slot_count as usize * wires],
        clocks: vec![[0; MAX_RANKS]; n * wires],
        stored: vec![0; n * n * wires],
    };
    let mut ranks: Vec<_> = schedules.into_iter().map(Iterator::peekable).collect();
    loop {
        let mut progress = false;
        for (rank, steps) in ranks.iter_mut().enumerate() {
            while let Some(step) = steps.peek().copied() {
                if !machine.execute(rank, &step)? {
                    break;
                }
                steps.next();
                progress = true;
            }
        }
        let waiting: Vec<_> = ranks
            .iter_mut()
            .enumerate()
            .filter_map(|(rank, steps)| Some(format!("rank {rank} waits in {}", steps.peek()?)))
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
    fn slot(&mut self, receiver: usize, slot: u32, wire: u32) -> &mut Slot {
        let (slot, wires) = ((slot % self.slots) as usize, self.plan.wires as usize);
        &mut self.staging[(receiver * self.slots as usize + slot) * wires + wire as usize]
    }

    /// Executes a step of `rank`; false if it has to wait.
    fn execute(&mut self, rank: usize, step: &Step) -> Result<bool, String> {
        let (n, wires) = (self.plan.n, self.plan.wires as usize);
        let fail = |what: String| Err(format!("rank {rank}, {step}: {what}"));
        self.check_shape(rank, step)?;
        let actor = rank * wires + step.wire as usize;
        let mut clock = self.clocks[actor];
        clock[rank] += 1;
        let mut value = Sum::of(rank);
        if step.receive {
            let slot = self.slot(rank, step.position - 1, step.wire);
            let Some(message) = slot.message.filter(|_| slot.consumed == 0) else { return Ok(false) };
            let sent = message.step;
            let part = |s: &Step| (s.round, s.position, s.chunk, s.first_block, s.blocks, s.lines);
            if part(&sent) != part(&Step { position: step.position - 1, ..*step }) {
                return fail(format!("finds the message of {sent} in slot {}", step.position - 1));
            }
            slot.consumed = clock[rank];
            for (known, news) in clock.iter_mut().zip(message.clock) {
                *known = (*known).max(news);
            }
            value = message.value;
        }
        let stored_at = (rank * n + step.chunk) * wires + step.wire as usize;
        if !step.receive || step.reduce {
            if step.first_block < self.stored[stored_at] {
                return fail("reads its input where, in place, the result already is".into());
            }
            if step.receive {
                match value.plus(rank) {
                    Some(sum) => value = sum,
                    None => return fail(format!("adds x{rank} to {value}, which has {MAX_RANKS} terms already")),
                }
            }
        }
        if step.store {
            let documented = Sum::documented(n, step.chunk);
            if value != documented {
                return fail(format!("stores {value} instead of {documented}"));
            }
            let next = &mut self.stored[stored_at];
            if step.first_block != *next {
                let what = if step.first_block < *next { "twice or out of order" } else { "leaving a gap" };
                return fail(format!("stores {what}: the output's next block is {next}"));
            }
            *next += u64::from(step.blocks);
        }
        if step.send {
            let receiver = (rank + 1) % n;
            let slot = self.slot(receiver, step.position, step.wire);
            if let Some(old) = slot.message {
                if slot.consumed == 0 {
                    return fail(format!("overwrites the message of {} in rank {receiver}'s slot", old.step));
                }
                if slot.consumed > clock[receiver] {
                    return fail(format!(
                        "may overwrite the message of {} in rank {receiver}'s slot: nothing shows that it was consumed",
                        old.step
                    ));
                }
            }
            *slot = Slot { message: Some(Message { step: *step, value, clock }), consumed: 0 };
        }
        self.clocks[actor] = clock;
        Ok(true)
    }

    /// Whether the step speaks of something that exists and fits where it goes.
    fn check_shape(&self, rank: usize, step: &Step) -> Result<(), String> {
        let plan = self.plan;
        let fail = |what: String| Err(format!("rank {rank}, {step}: {what}"));
        if step.chunk >= plan.n || step.wire >= plan.wires || step.position >= plan.positions() {
            return fail("there is no such chunk, wire or position".into());
        }
        if (step.receive && step.position == 0) || (step.send && step.position + 1 == plan.positions()) {
            return fail("there is no slot for it".into());
        }
        let Some(segment) = plan.segment(step.chunk, step.wire, step.round) else {
            return fail("the round has no block of it".into());
        };
        if (segment.first_block, segment.blocks, segment.lines) != (step.first_block, step.blocks, step.lines) {
            return fail(format!("in {} lines, whereas it is {segment:?}", step.lines));
        }
        if u64::from(step.lines) > u64::from(plan.tiles) * plan.form.lines_per_tile() as u64 {
            return fail(format!("{} lines don't fit into {} tiles", step.lines, plan.tiles));
        }
        Ok(())
    }

    /// Nothing may be left over, and every rank must hold the whole message.
    fn finish(mut self) -> Result<(), String> {
        let RingPlan { n, wires, geometry, .. } = *self.plan;
        for rank in 0..n {
            for chunk in 0..n {
                for wire in 0..wires {
                    let stored = self.stored[(rank * n + chunk) * wires as usize + wire as usize];
                    let all = geometry.wire_blocks(chunk, wires, wire);
                    if stored != all {
                        return Err(format!(
                            "rank {rank} stored {stored} of {all} blocks of chunk {chunk} (owner {}) on wire {wire}",
                            owner(n, chunk)
                        ));
                    }
                }
            }
            for slot in 0..self.slots {
                for wire in 0..wires {
                    let Slot { message, consumed } = *self.slot(rank, slot, wire);
                    if let Some(Message { step, .. }) = message.filter(|_| consumed == 0) {
                        return Err(format!("rank {rank} never receives the message of {step}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether the wires' streams together hold every element exactly once.
///
/// The blocks of a row form a grid, dealt to chunks and wires in turn, so it is enough that counts agree, that the
/// ends of every stream lie where the definition of a chunk puts them, and that no element is left over.
pub(super) fn check_geometry(geometry: &Geometry, wires: u32) -> Result<(), String> {
    let mut elements = 0;
    for chunk in 0..geometry.n() {
        let blocks = geometry.blocks_in_chunk(chunk);
        let on_wires: u64 = (0..wires).map(|wire| geometry.wire_blocks(chunk, wires, wire)).sum();
        if on_wires != blocks {
            return Err(format!("the wires carry {on_wires} of {blocks} blocks of chunk {chunk}"));
        }
        for wire in 0..wires {
            let all = geometry.wire_blocks(chunk, wires, wire);
            for at in [0, all / 2, all.saturating_sub(1)] {
                for (block, at) in geometry.blocks(chunk, wires, wire, at, 2).zip(at..) {
                    let k = u64::from(wire) + at * u64::from(wires);
                    let ends = [block.first, block.first + u64::from(block.elements) - 1];
                    let apart = |i: u64| i >= geometry.count() || geometry.locate(i) != (chunk, k);
                    let whole = (ends[0] == 0 || apart(ends[0] - 1)) && apart(ends[1] + 1);
                    if !whole || ends.iter().any(|i| *i >= geometry.count() || geometry.locate(*i) != (chunk, k)) {
                        return Err(format!("block {at} of wire {wire} is {block:?}, not block {k} of chunk {chunk}"));
                    }
                }
            }
        }
        elements += geometry.elements_in_chunk(chunk);
    }
    if elements != geometry.count() {
        return Err(format!("the chunks hold {elements} of {} elements", geometry.count()));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::plan::{Agreed, Request};
    use crate::protocol::{LineForm, TILE_BLOCKS};
    use crate::{DataType, Order, ReduceOp};

    /// Equal chunks over two full rounds, so that a fault shows as itself and not as a difference of lengths.
    fn even(n: usize, wires: u32) -> RingPlan {
        let count = (n * TILE_BLOCKS * 128 * 2) as u64 * u64::from(wires);
        let request = Request {
            count,
            dtype: DataType::Bfloat16,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        };
        let agreed = Agreed { tag_limit: 9, ..Agreed::ring(n, LineForm::L64, wires) };
        let plan = RingPlan::new(&request, &agreed, wires).unwrap();
        assert_eq!((plan.rounds, verify(&plan)), (2, Ok(())));
        plan
    }

    fn schedules(plan: &RingPlan) -> Vec<Vec<Step>> {
        (0..plan.n).map(|rank| plan.steps(rank).collect()).collect()
    }

    fn run(plan: &RingPlan, schedules: Vec<Vec<Step>>) -> Result<(), String> {
        check(plan, schedules.into_iter().map(Vec::into_iter).collect(), slots(plan.n) as u32)
    }

    /// Applies `mutate` to the step lists and returns the complaint.
    #[track_caller]
    fn complaint(plan: &RingPlan, mutate: impl FnOnce(&mut Vec<Vec<Step>>)) -> String {
        let mut lists = schedules(plan);
        mutate(&mut lists);
        run(plan, lists).expect_err("the fault went unnoticed")
    }

    #[track_caller]
    fn says(text: &str, words: &[&str]) {
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }

    #[test]
    fn every_dropped_step_is_noticed() {
        for (n, wires) in [(2, 1), (3, 2), (4, 1)] {
            let plan = even(n, wires);
            for rank in 0..n {
                for at in 0..plan.steps(rank).count() {
                    complaint(&plan, |lists| {
                        lists[rank].remove(at);
                    });
                }
            }
        }
        let plan = even(3, 1);
        let text = complaint(&plan, |lists| lists[1].truncate(1));
        says(&text, &["deadlock", "rank 2 waits in round 0 position 2"]);
        // Without its last step, which only receives and stores.
        let text = complaint(&plan, |lists| {
            lists[0].pop();
        });
        says(&text, &["rank 0 stored 15 of 30 blocks of chunk 2"]);
    }

    #[test]
    fn every_flag_that_is_turned_is_noticed() {
        let plan = even(3, 1);
        let flips: [fn(&mut Step); 4] =
            [|s| s.receive ^= true, |s| s.reduce ^= true, |s| s.store ^= true, |s| s.send ^= true];
        for rank in 0..3 {
            for at in 0..plan.steps(rank).count() {
                for (which, flip) in flips.iter().enumerate() {
                    // Without a receive there is nothing to reduce with: the flag means nothing at position 0.
                    if which == 1 && !schedules(&plan)[rank][at].receive {
                        continue;
                    }
                    complaint(&plan, |lists| flip(&mut lists[rank][at]));
                }
            }
        }
    }

    #[test]
    fn a_swapped_chunk_is_noticed() {
        let plan = even(4, 1);
        let text = complaint(&plan, |lists| lists[2][1].chunk = 3);
        says(&text, &["rank 2", "position 1", "chunk 3", "finds the message", "chunk 1"]);
    }

    #[test]
    fn a_double_reduction_is_noticed() {
        let plan = even(4, 1);
        // Position 4 only passes the finished sum on.
        let text = complaint(&plan, |lists| lists[1][4].reduce = true);
        says(&text, &["rank 1", "position 4"]);
        // A store moved to the end leaves only the sum to complain about.
        let text = complaint(&plan, |lists| {
            for step in &mut lists[1] {
                step.reduce |= step.position == 4;
                step.store &= step.position != 4;
            }
        });
        says(&text, &["rank 2", "stores x1+x2+x3+x0+x1 instead of x1+x2+x3+x0"]);
    }

    #[test]
    fn a_wrong_order_of_ranks_is_noticed() {
        let plan = even(3, 1);
        // All ranks begin one chunk too late: messages match, every rank adds once, but from the wrong one on.
        let text = complaint(&plan, |lists| {
            lists.iter_mut().flatten().for_each(|step| step.chunk = (step.chunk + 1) % 3);
        });
        says(&text, &["stores x0+x1+x2 instead of x1+x2+x0"]);
        let text = complaint(&plan, |lists| lists.swap(0, 1));
        says(&text, &["finds the message"]);
    }

    #[test]
    fn one_slot_fewer_is_noticed_and_one_more_is_not_needed() {
        for n in 2..=8 {
            let plan = even(n, 1);
            let enough = slots(n) as u32;
            let lists = || schedules(&plan).into_iter().map(Vec::into_iter).collect::<Vec<_>>();
            assert_eq!(check(&plan, lists(), enough + 1), Ok(()));
            let text = check(&plan, lists(), enough - 1).expect_err("one slot fewer is not safe");
            assert!(["overwrite", "finds the message"].iter().any(|word| text.contains(word)), "n {n}: {text}");
        }
    }

    #[test]
    fn rounds_in_the_wrong_order_are_noticed() {
        let plan = even(3, 1);
        // All ranks alike, so messages match.
        let text = complaint(&plan, |lists| {
            lists.iter_mut().for_each(|steps| steps.sort_by_key(|s| std::cmp::Reverse(s.round)));
        });
        says(&text, &["leaving a gap", "next block is 0"]);
        // Both rounds of a position at once: the second message finds the slot in use.
        let text = complaint(&plan, |lists| {
            lists.iter_mut().for_each(|steps| steps.sort_by_key(|s| (s.position, s.round)));
        });
        says(&text, &["overwrites the message of round 0"]);
    }

    #[test]
    fn a_race_that_this_run_happens_to_win_is_noticed() {
        // Rank 1 takes its message before rank 0 sends the next one, but nothing makes rank 0 wait for that: the very
        // first sends of two rounds, with what lies between them removed.
        let plan = even(2, 1);
        let mut machine = Machine {
            plan: &plan,
            slots: 2,
            staging: vec![Slot::default(); 4],
            clocks: vec![[0; MAX_RANKS]; 2],
            stored: vec![0; 4],
        };
        let lists = schedules(&plan);
        assert_eq!(machine.execute(0, &lists[0][0]), Ok(true));
        assert_eq!(machine.execute(1, &lists[1][0]), Ok(true));
        assert_eq!(machine.execute(1, &lists[1][1]), Ok(true));
        let second = lists[0].iter().find(|s| (s.round, s.position) == (1, 0)).unwrap();
        let text = machine.execute(0, second).expect_err("a race");
        says(&text, &["may overwrite", "nothing shows that it was consumed"]);
    }

    #[test]
    fn a_step_of_another_shape_is_noticed() {
        let plan = even(3, 2);
        type Bend = fn(&mut Step);
        let bends: [(Bend, &str); 6] = [
            (|s| s.blocks -= 1, "whereas it is"),
            (|s| s.first_block += 1, "whereas it is"),
            (|s| s.lines += 1, "whereas it is"),
            (|s| s.wire = 2, "no such"),
            (|s| s.chunk = 3, "no such"),
            (|s| s.round = 2, "no block"),
        ];
        for (bend, word) in bends {
            says(&complaint(&plan, |lists| bend(&mut lists[0][2])), &["rank 0", word]);
        }
    }
}
