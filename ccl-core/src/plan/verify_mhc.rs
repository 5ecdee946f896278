//! Executes the steps of all ranks of a plan by owners symbolically, two calls in a row, and says what is wrong.
//!
//! As in [`super::verify_push`]: what must hold in every interleaving is derived from causality. Here wires of one rank meet
//! (the last to count itself sends the sums), so that each wire of each rank has a clock that tells of all others.

use std::collections::{BTreeSet, HashMap};

use super::mhc::{MhcPhase, MhcPlan, MhcStep, words_of};
use super::verify::check_geometry;
use crate::protocol::{GENERATIONS, Region, generation, owner, tag};

/// Calls that are executed one after another.
const CALLS: u32 = 2;

/// Verifies that every element reaches every rank once and reduced from all inputs, that every rank adds all ranks' sums
/// of the same rows, and that nothing waits for ever or is stored over what was not taken.
pub fn verify(plan: &MhcPlan) -> Result<(), String> {
    check(plan, |rank| plan.steps(rank), &Rules::ALL)
}

/// What a test can switch off.
#[derive(Clone, Copy)]
struct Rules {
    generations: usize,
    /// Wires without data in a round count themselves too.
    idle_wires_count: bool,
}

impl Rules {
    const ALL: Rules = Rules { generations: GENERATIONS, idle_wires_count: true };
}

type Clock = Vec<u64>;

fn join(known: &mut Clock, news: &Clock) {
    known.iter_mut().zip(news).for_each(|(known, news)| *known = (*known).max(*news));
}

/// Receiver, region, generation, sender, wire.
type Place = (usize, Region, usize, usize, u32);

struct Message {
    call: u32,
    step: MhcStep,
    clock: Clock,
    /// By the receiver's wires: the step (from 1) at which it took the message.
    taken: HashMap<u32, u64>,
}

struct Machine<'a> {
    plan: &'a MhcPlan,
    rules: &'a Rules,
    places: HashMap<Place, Message>,
    clocks: Vec<Clock>,
    /// By call, rank, round: what the wires that counted themselves know, and how many they are.
    counted: HashMap<(u32, usize, u32), (Clock, u32)>,
    /// Call, rank, round, wire, owner of what is there.
    there: BTreeSet<(u32, usize, u32, u32, usize)>,
}

fn check<I>(plan: &MhcPlan, schedule: impl Fn(usize) -> I, rules: &Rules) -> Result<(), String>
where
    I: Iterator<Item = MhcStep>,
{
    for round in [0, plan.rounds() - 1] {
        check_geometry(&plan.geometry(round), plan.reduce.wires)?;
    }
    let (n, wires) = (plan.reduce.n, plan.reduce.wires);
    let actors = n * wires as usize;
    let mut machine = Machine {
        plan,
        rules,
        places: HashMap::new(),
        clocks: vec![vec![0; actors]; actors],
        counted: HashMap::new(),
        there: BTreeSet::new(),
    };
    // Each wire of each rank on its own: the slowest order that the protocol allows. The sums are whoever's comes last.
    let mut lists: Vec<Vec<(u32, Option<MhcStep>)>> = vec![Vec::new(); actors];
    for rank in 0..n {
        for call in 0..CALLS {
            for step in schedule(rank) {
                lists[rank * wires as usize + step.wire as usize].push((call, Some(step)));
            }
            (0..wires as usize).for_each(|wire| lists[rank * wires as usize + wire].push((call, None)));
        }
    }
    let mut at = vec![0; actors];
    // How many of a rank's wires have ended a call: the kernel boundary.
    let mut ended = vec![[0u32; CALLS as usize]; n];
    loop {
        let mut progress = false;
        for actor in 0..actors {
            let rank = actor / wires as usize;
            while let Some((call, step)) = lists[actor].get(at[actor]) {
                if *call > 0 && ended[rank][*call as usize - 1] < wires {
                    break;
                }
                match step {
                    Some(step) if !machine.execute(*call, rank, step)? => break,
                    Some(_) => {}
                    None => {
                        ended[rank][*call as usize] += 1;
                        if ended[rank][*call as usize] == wires {
                            let actors = rank * wires as usize..(rank + 1) * wires as usize;
                            let mut all = vec![0; n * wires as usize];
                            machine.clocks[actors.clone()].iter().for_each(|clock| join(&mut all, clock));
                            machine.clocks[actors].fill(all);
                        }
                    }
                }
                at[actor] += 1;
                progress = true;
            }
        }
        if at.iter().zip(&lists).all(|(at, list)| *at == list.len()) {
            return machine.finish();
        }
        if !progress {
            let waits = at.iter().zip(&lists).find_map(|(at, list)| list.get(*at));
            return Err(format!("deadlock at {waits:?}"));
        }
    }
}

impl Machine<'_> {
    fn place(&self, call: u32, region: Region, receiver: usize, sender: usize, wire: u32, round: u32) -> Place {
        let tag = tag(call * self.plan.rounds(), round);
        let generation = if self.rules.generations == GENERATIONS { generation(tag) } else { 0 };
        (receiver, region, generation, sender, wire)
    }

    fn is_there(&self, place: &Place, call: u32, step: &MhcStep) -> Result<bool, String> {
        let Some(message) = self.places.get(place) else { return Ok(false) };
        if (message.call, message.step.round) > (call, step.round) {
            return Err(format!("call {call}, {step:?}: its message has been overwritten by {:?}", message.step));
        }
        Ok((message.call, message.step.round) == (call, step.round))
    }

    fn take(&mut self, place: &Place, step: &MhcStep, words: u32, clock: &mut Clock, at: u64) -> Result<(), String> {
        let message = self.places.get_mut(place).ok_or("a message that is there")?;
        if message.step.words != words {
            return Err(format!("{step:?}: expects {words} words of {:?}", message.step));
        }
        message.taken.insert(step.wire, at);
        join(clock, &message.clock);
        Ok(())
    }

    fn send(&mut self, call: u32, place: Place, step: &MhcStep, clock: &Clock) -> Result<(), String> {
        let wires = self.plan.reduce.wires;
        if let Some(old) = self.places.get(&place) {
            // Sums are taken by all of the receiver's wires, everything else by the one of its number.
            let takers = if place.4 == wires { 0..wires } else { place.4..place.4 + 1 };
            for wire in takers {
                let actor = place.0 * wires as usize + wire as usize;
                if old.taken.get(&wire).is_none_or(|taken| *taken > clock[actor]) {
                    return Err(format!(
                        "call {call}, {step:?}: may overwrite {:?} of call {}, which wire {wire} of rank {} may not have taken",
                        old.step, old.call, place.0
                    ));
                }
            }
        }
        let words = u64::from(step.words);
        let PlanRoom { room, bytes } = self.room();
        let offset = self.plan.offset(place.1, tag(0, step.round), place.3, place.4);
        if words > room || offset + bytes > self.plan.reduce.layout.bytes() {
            return Err(format!("{step:?}: {words} words where a part holds {room}"));
        }
        self.places.insert(place, Message { call, step: *step, clock: clock.clone(), taken: HashMap::new() });
        Ok(())
    }

    fn room(&self) -> PlanRoom {
        let reduce = &self.plan.reduce;
        let bytes = match reduce.transport {
            super::push::Transport::Bulk => reduce.part as usize,
            super::push::Transport::Lines(form) => reduce.part as usize * form.granule(),
        };
        PlanRoom { room: words_of(reduce.transport, reduce.part), bytes }
    }

    /// Executes a step of `rank`; false if it has to wait.
    fn execute(&mut self, call: u32, rank: usize, step: &MhcStep) -> Result<bool, String> {
        let (n, wires) = (self.plan.reduce.n, self.plan.reduce.wires);
        let MhcStep { round, phase, wire, peer, words } = *step;
        let actor = rank * wires as usize + wire as usize;
        let mut clock = self.clocks[actor].clone();
        clock[actor] += 1;
        let now = clock[actor];
        let others = (0..n).filter(|other| *other != rank);
        match phase {
            MhcPhase::Send => {
                let place = self.place(call, Region::Input, peer, rank, wire, round);
                self.send(call, place, step, &clock)?;
            }
            MhcPhase::Reduce => {
                if words > 0 {
                    for other in others.clone() {
                        let place = self.place(call, Region::Input, rank, other, wire, round);
                        if !self.is_there(&place, call, step)? {
                            return Ok(false);
                        }
                    }
                    for other in others.clone() {
                        let place = self.place(call, Region::Input, rank, other, wire, round);
                        self.take(&place, step, words, &mut clock, now)?;
                    }
                    for other in others {
                        let place = self.place(call, Region::Result, other, rank, wire, round);
                        self.send(call, place, step, &clock)?;
                    }
                    self.arrives(call, rank, step, rank)?;
                }
                if words > 0 || self.rules.idle_wires_count {
                    let entry = self.counted.entry((call, rank, round)).or_insert_with(|| (vec![0; clock.len()], 0));
                    join(&mut entry.0, &clock);
                    entry.1 += 1;
                }
            }
            MhcPhase::Sums => {
                let all = match self.rules.idle_wires_count {
                    true => wires,
                    false => (0..wires).filter(|wire| self.plan.words((rank + 1) % n, *wire, round) > 0).count() as u32,
                };
                match self.counted.get(&(call, rank, round)) {
                    Some((known, count)) if *count == all => join(&mut clock, known),
                    None if all == 0 => {}
                    _ => return Ok(false),
                }
                let place = self.place(call, Region::Result, peer, rank, wires, round);
                self.send(call, place, step, &clock)?;
            }
            MhcPhase::Gather => {
                let place = self.place(call, Region::Result, rank, peer, wire, round);
                if !self.is_there(&place, call, step)? {
                    return Ok(false);
                }
                self.take(&place, step, words, &mut clock, now)?;
                self.arrives(call, rank, step, peer)?;
            }
            MhcPhase::Finish if words > 0 => {
                for other in others.clone() {
                    let place = self.place(call, Region::Result, rank, other, wires, round);
                    if !self.is_there(&place, call, step)? {
                        return Ok(false);
                    }
                }
                // The own sums are there once the last wire has counted itself.
                match self.counted.get(&(call, rank, round)) {
                    Some((known, count)) if *count == wires => join(&mut clock, known),
                    _ if !self.rules.idle_wires_count => {}
                    _ => return Ok(false),
                }
                for other in others {
                    let place = self.place(call, Region::Result, rank, other, wires, round);
                    self.take(&place, step, words, &mut clock, now)?;
                }
            }
            MhcPhase::Finish => {}
        }
        self.clocks[actor] = clock;
        Ok(true)
    }

    fn arrives(&mut self, call: u32, rank: usize, step: &MhcStep, from: usize) -> Result<(), String> {
        if !self.there.insert((call, rank, step.round, step.wire, from)) {
            return Err(format!("rank {rank}, {step:?}: rank {from}'s columns a second time"));
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), String> {
        let PlanDimensions { n, wires, rounds } = self.dimensions();
        for call in 0..CALLS {
            for (rank, round, wire) in
                (0..n).flat_map(|rank| (0..rounds).flat_map(move |r| (0..wires).map(move |w| (rank, r, w))))
            {
                for chunk in 0..n {
                    let from = owner(n, chunk);
                    let wanted = self.plan.words(chunk, wire, round) > 0;
                    if wanted != self.there.contains(&(call, rank, round, wire, from)) {
                        return Err(format!("rank {rank}, round {round}, wire {wire}: rank {from}'s columns"));
                    }
                }
            }
        }
        Ok(())
    }

    fn dimensions(&self) -> PlanDimensions {
        let reduce = &self.plan.reduce;
        PlanDimensions { n: reduce.n, wires: reduce.wires, rounds: reduce.rounds }
    }
}

struct PlanRoom {
    room: u64,
    bytes: usize,
}

struct PlanDimensions {
    n: usize,
    wires: u32,
    rounds: u32,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::config::{Config, TransportChoice};
    use crate::device::DeviceFamily;
    use crate::mhc::{Params, Variant};
    use crate::plan::Agreed;
    use crate::plan::mhc::Fused;
    use crate::protocol::LineForm;
    use crate::{DataType, Order};

    fn plan(n: usize, params: &Params, form: LineForm, family: DeviceFamily, transport: TransportChoice) -> MhcPlan {
        let agreed = Agreed { push_tiles: 16, bulk_bytes: 65_536, family, native: true, ..Agreed::ring(n, form, 8) };
        let config = Config { transport, ..Config::default() };
        MhcPlan::new(params, Fused::Owner, Order::Ring, &agreed, &config).unwrap()
    }

    #[test]
    fn plans_by_owners_are_sound() {
        let mut rounds = 0;
        for n in [2, 3, 4, 8] {
            for (rows, hidden, streams) in [(1, 64, 4), (1, 4096, 4), (3, 96, 2), (17, 1056, 8), (70, 1056, 4)] {
                for dtype in [DataType::Bfloat16, DataType::Float32] {
                    for variant in [Variant::V4, Variant::V41, Variant::Post] {
                        for form in LineForm::ALL {
                            for family in [DeviceFamily::Software, DeviceFamily::IntelPcie] {
                                let params = Params::new(variant, dtype, rows, hidden, streams);
                                let plan = plan(n, &params, form, family, TransportChoice::Lines);
                                plan.verify().unwrap_or_else(|wrong| panic!("{plan}: {wrong}"));
                                rounds = rounds.max(plan.rounds());
                            }
                        }
                        let params = Params::new(variant, dtype, rows, hidden, streams);
                        let plan = plan(n, &params, LineForm::L8, DeviceFamily::Software, TransportChoice::Bulk);
                        plan.verify().unwrap_or_else(|wrong| panic!("{plan}: {wrong}"));
                    }
                }
            }
        }
        assert!(rounds > 3);
    }

    /// Of three rounds, on more wires than there are blocks.
    fn several_rounds() -> MhcPlan {
        let params = Params::new(Variant::V4, DataType::Bfloat16, 9, 1024, 4);
        let mut plan = plan(2, &params, LineForm::L64, DeviceFamily::IntelPcie, TransportChoice::Lines);
        plan.round_rows = 4;
        plan.reduce.rounds = 3;
        plan.reduce.wires = 24;
        plan.reduce.part = 40;
        plan
    }

    #[test]
    fn each_rule_is_needed() {
        let plan = several_rounds();
        let with = |rules: &Rules| check(&plan, |rank| plan.steps(rank), rules);
        assert_eq!(with(&Rules::ALL), Ok(()));
        let text = with(&Rules { idle_wires_count: false, ..Rules::ALL }).unwrap_err();
        assert!(text.contains("may overwrite") && text.contains("may not have taken"), "{text}");
        for (what, phase) in [("columns", MhcPhase::Gather), ("deadlock", MhcPhase::Send), ("deadlock", MhcPhase::Sums)]
        {
            let without = |rank| plan.steps(rank).filter(move |s| rank != 1 || s.round != 1 || s.phase != phase);
            let text = check(&plan, without, &Rules::ALL).unwrap_err();
            assert!(text.contains(what) || text.contains("may overwrite"), "{phase:?}: {text}");
        }
        let impatient = |rank| plan.steps(rank).filter(|s| s.phase != MhcPhase::Finish);
        let text = check(&plan, impatient, &Rules::ALL).unwrap_err();
        assert!(text.contains("may not have taken"), "{text}");
    }

    #[test]
    fn what_cannot_be_planned_is_refused_by_name() {
        let agreed = Agreed { push_tiles: 16, bulk_bytes: 65_536, native: true, ..Agreed::ring(2, LineForm::L64, 8) };
        let good = Params::new(Variant::V4, DataType::Bfloat16, 3, 4096, 4);
        let tiny = Config::default();
        for (params, design, agreed, word) in [
            (good, Fused::Delayed, agreed, "y needs the sums"),
            (Params { variant: Variant::Pre, ..good }, Fused::Owner, agreed, "no reduced input"),
            (good, Fused::Owner, Agreed { n: 1, ..agreed }, "2 ranks"),
            (good, Fused::Owner, Agreed { push_tiles: 0, bulk_bytes: 0, ..agreed }, "not every rank"),
            (Params { hidden: 1 << 20, ..good }, Fused::Owner, agreed, "CCLX_BULK_BYTES"),
            (good, Fused::Owner, Agreed { bulk_bytes: 0, push_tiles: 1, ..agreed }, "CCLX_PUSH_TILES"),
            (Params { rows: 1 << 20, ..good }, Fused::Owner, Agreed { tag_limit: 9, ..agreed }, "tags"),
        ] {
            let text = MhcPlan::new(&params, design, Order::Ring, &agreed, &tiny).unwrap_err().to_string();
            assert!(text.contains(word), "{text}, not: {word}");
        }
        let delayed = Params { variant: Variant::V41, ..good };
        for (params, design) in [(good, Fused::Whole), (delayed, Fused::Delayed)] {
            let plan = MhcPlan::new(&params, design, Order::Ring, &agreed, &tiny).unwrap();
            assert_eq!(plan.verify(), Ok(()), "{plan}");
        }
    }

    /// A work-group alone reads `fn` at a tenth of the memory's speed.
    #[test]
    fn one_row_is_spread_over_at_least_16_work_groups_of_an_intel_gpu() {
        let groups = |n: usize, design: Fused, most: u32| {
            let family = DeviceFamily::IntelPcie;
            let agreed = Agreed { push_tiles: 16, family, max_wires: 160, ..Agreed::ring(n, LineForm::L16, 8) };
            let params = Params::new(Variant::V41, DataType::Bfloat16, 1, 4096, 4);
            let config = Config { max_wires: most, ..Config::default() };
            MhcPlan::new(&params, design, Order::Ring, &agreed, &config).unwrap().groups
        };
        for n in [2, 4, 8] {
            for design in Fused::ALL {
                let found = groups(n, design, Config::default().max_wires);
                assert!((16..=160).contains(&found), "{found} of design {design} on {n} ranks");
                assert!(groups(n, design, 8) <= 8, "fewer where no more are permitted");
            }
        }
    }

    #[test]
    fn the_fingerprint_tells_boundaries_apart() {
        let good = Params::new(Variant::V4, DataType::Bfloat16, 3, 4096, 4);
        let of =
            |params: &Params| plan(2, params, LineForm::L64, DeviceFamily::Software, TransportChoice::Auto).shape(7);
        assert_eq!(of(&good), of(&good));
        for other in [
            Params { variant: Variant::V41, ..good },
            Params { streams: 2, ..good },
            Params { sinkhorn_iterations: 19, ..good },
            Params { pre_eps: 2e-6, ..good },
            Params { norm_eps: Some(1e-6), ..good },
        ] {
            assert_ne!(of(&good).fingerprint, of(&other).fingerprint);
        }
    }
}
