//! The protocol holds in every state that it can reach, and each of its rules is needed: take one away, and the search
//! finds the violation that it prevents.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod model;

use std::time::Instant;

use ccl_core::plan::ring::RingPlan;
use ccl_core::plan::{Agreed, Request};
use ccl_core::protocol::{BLOCK_WORDS, LineForm, STAGING_HEAD_BYTES, TAG_LIMIT, TILE_BLOCKS, slots};
use ccl_core::{DataType, Order, ReduceOp};
use model::machine::Violation;
use model::search::search;
use model::{Advance, Call, Layout, Rules, Scenario, SlotRule, TagRule, Work, order};
use proptest::prelude::*;

/// Tags enough for every scenario here: none wraps.
const MANY: u32 = 1000;

/// All sequences of `length` of the given calls.
fn sequences(palette: &[Call], length: usize) -> Vec<Vec<Call>> {
    (0..length).fold(vec![Vec::new()], |all, _| {
        all.iter()
            .flat_map(|calls| palette.iter().map(|call| [calls.as_slice(), std::slice::from_ref(call)].concat()))
            .collect()
    })
}

fn dealt(n: usize, kinds: &[(usize, usize)]) -> Vec<Call> {
    kinds.iter().map(|&(wires, lines)| Call::dealt(n, wires, lines)).collect()
}

/// Searches all scenarios and says how much that was.
fn all_hold(name: &str, scenarios: impl IntoIterator<Item = Scenario>) {
    let (start, mut states, mut count) = (Instant::now(), 0, 0);
    for scenario in scenarios {
        let outcome = search(&scenario);
        assert!(outcome.violation.is_none(), "{scenario:?}\n{outcome}");
        assert_eq!(order::check(&scenario), Ok(()), "the order of events says otherwise: {scenario:?}");
        (states, count) = (states + outcome.states, count + 1);
    }
    println!("{name}: {count} scenarios, {states} states, {:.1?}", start.elapsed());
}

/// The search finds `expected`, and for few ranks it finds it with stores delayed as well.
#[track_caller]
fn fails(scenario: &Scenario, expected: Violation) {
    let all = [scenario.clone(), scenario.delayed()];
    for scenario in if scenario.n <= 3 { &all[..] } else { &all[..1] } {
        let outcome = search(scenario);
        let found = outcome.violation.as_ref().map(|(violation, _)| *violation);
        assert_eq!(found, Some(expected), "{scenario:?}\n{outcome}");
        println!("{outcome}");
    }
}

#[track_caller]
fn holds(scenario: &Scenario) {
    let outcome = search(scenario);
    assert!(outcome.violation.is_none(), "{scenario:?}\n{outcome}");
    println!("{outcome}");
}

// The protocol holds.

#[test]
fn two_ranks_any_three_calls_stores_delayed() {
    // Slots of three lines: one wire of three, two of one with a line left over, or three of one.
    let palette = dealt(2, &[(1, 1), (1, 3), (1, 7), (2, 1), (2, 5), (3, 3)]);
    let all = sequences(&palette, 3);
    all_hold("n=2, 3 calls", all.into_iter().map(|calls| Scenario::new(2, 3, MANY, calls).delayed()));
}

#[test]
fn two_ranks_tags_begin_anew() {
    let palette = dealt(2, &[(1, 1), (1, 3), (1, 5), (2, 2), (2, 5)]);
    let all = sequences(&palette, 4);
    // The longest call has three rounds.
    let scenarios = all.iter().flat_map(|calls| [3, 4].map(|limit| Scenario::new(2, 2, limit, calls.clone())));
    all_hold("n=2, 4 calls, tags to 3 and 4", scenarios);
    let delayed = sequences(&dealt(2, &[(1, 1), (1, 4), (2, 2)]), 3);
    let delayed = delayed.into_iter().map(|calls| Scenario::new(2, 2, 2, calls).delayed());
    all_hold("n=2, 3 calls, tags to 2, stores delayed", delayed);
}

#[test]
fn three_ranks_any_two_or_three_calls() {
    let palette = dealt(3, &[(1, 1), (1, 2), (1, 3), (1, 5), (2, 1), (2, 5), (2, 8)]);
    let two = sequences(&palette, 2).into_iter().map(|calls| Scenario::new(3, 2, MANY, calls));
    all_hold("n=3, 2 calls", two);
    let palette = dealt(3, &[(1, 1), (1, 4), (1, 7), (2, 2), (2, 4), (2, 6)]);
    let three = sequences(&palette, 3);
    let three = three.iter().flat_map(|calls| [2, 3, MANY].map(|limit| Scenario::new(3, 2, limit, calls.clone())));
    all_hold("n=3, 3 calls, tags to 2, 3 and many", three);
}

#[test]
fn three_ranks_stores_delayed_or_work_in_another_order() {
    let palette = dealt(3, &[(1, 1), (1, 3), (2, 2), (2, 3)]);
    let delayed = sequences(&palette, 2).into_iter().map(|calls| Scenario::new(3, 2, MANY, calls).delayed());
    all_hold("n=3, 2 calls, stores delayed", delayed);
    let palette = dealt(3, &[(1, 1), (1, 4), (2, 2), (2, 4)]);
    for work in [Work::Chunk, Work::Wire] {
        let scenarios = sequences(&palette, 2).into_iter().map(|calls| Scenario::new(3, 2, 2, calls).by(work));
        all_hold(&format!("n=3, 2 calls, tags to 2, by {work:?}"), scenarios);
    }
}

#[test]
fn four_ranks_two_or_three_calls() {
    let palette = dealt(4, &[(1, 1), (1, 3), (1, 4), (2, 2), (2, 5), (2, 6)]);
    let two = sequences(&palette, 2).into_iter().map(|calls| Scenario::new(4, 2, MANY, calls));
    all_hold("n=4, 2 calls", two);
    let palette = dealt(4, &[(1, 1), (1, 5), (2, 4)]);
    let three = sequences(&palette, 3).into_iter().map(|calls| Scenario::new(4, 2, 2, calls));
    all_hold("n=4, 3 calls, tags to 2", three);
    let delayed = sequences(&palette[..2], 2).into_iter().map(|calls| Scenario::new(4, 2, 2, calls).delayed());
    all_hold("n=4, 2 calls, tags to 2, stores delayed", delayed);
}

#[test]
fn five_ranks_two_or_three_calls() {
    let palette = dealt(5, &[(1, 2), (2, 5)]);
    let scenarios = sequences(&palette, 2).into_iter().map(|calls| Scenario::new(5, 2, 1, calls));
    all_hold("n=5, 2 calls, tags to 1", scenarios);
    let palette = dealt(5, &[(1, 1), (1, 5), (1, 7)]);
    let scenarios = sequences(&palette, 3).into_iter().map(|calls| Scenario::new(5, 1, 2, calls));
    all_hold("n=5, 3 calls of one line, tags to 2", scenarios);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// By the order of events, for chunks of any lengths (more than any geometry makes) and rings of up to 12.
    #[test]
    fn any_calls_are_ordered((n, lines, limit, calls) in any_calls()) {
        let calls: Vec<Call> = calls.into_iter().map(|(wires, chunks)| Call { wires: 1 + wires % lines, chunks }).collect();
        let scenario = Scenario::new(n, lines, MANY, calls);
        let most = (0..scenario.calls.len()).map(|call| scenario.rounds(call)).max().unwrap();
        let scenario = Scenario { limit: most + limit, ..scenario };
        prop_assert_eq!(order::check(&scenario), Ok(()));
        let one_barrier = scenario.with(Rules { barriers: [false, true], ..Rules::default() });
        prop_assert_eq!(order::check(&one_barrier), Ok(()));
    }
}

type AnyCalls = (usize, usize, u32, Vec<(usize, Vec<usize>)>);

fn any_calls() -> impl Strategy<Value = AnyCalls> {
    (2..=12usize, 1..=4usize, 0..4u32).prop_flat_map(|(n, lines, limit)| {
        let chunks =
            prop::collection::vec(0..=9usize, n).prop_filter("empty", |chunks| chunks.iter().any(|&len| len > 0));
        let calls = prop::collection::vec((0..4usize, chunks), 1..6);
        (Just(n), Just(lines), Just(limit), calls)
    })
}

// Negative controls: each rule is needed.

/// Two calls of one line for each chunk.
fn plain(n: usize) -> Scenario {
    Scenario::new(n, 1, MANY, vec![Call::dealt(n, 1, n), Call::dealt(n, 1, n)])
}

#[test]
fn one_slot_fewer_is_too_few() {
    // Even with a tag of its own for each step: a message is stored over one that is not yet received.
    let fewer = |n| Rules { slots: SlotRule::Modulo(slots(n) - 1), tags: TagRule::PerStep, ..Rules::default() };
    for n in 2..=5 {
        fails(&plain(n).with(fewer(n)), Violation::Overwritten);
    }
    for n in 2..=16 {
        assert_eq!(order::check(&plain(n).with(fewer(n))), Err(Violation::Overwritten));
        assert_eq!(order::check(&plain(n)), Ok(()));
    }
}

#[test]
fn n_slots_are_too_few() {
    for n in 3..=4 {
        let rules = Rules { slots: SlotRule::Modulo(n), tags: TagRule::PerStep, ..Rules::default() };
        fails(&plain(n).with(rules), Violation::Overwritten);
        // Used in turn they would do while all lines go the same number of rounds ...
        let rules = Rules { slots: SlotRule::Rolling(n), tags: TagRule::PerStep, ..Rules::default() };
        holds(&plain(n).with(rules));
        // ... but not once a line has sat out a round: its messages are no longer consecutive.
        let mixed = Scenario::new(n, 2, MANY, vec![Call::dealt(n, 1, 2 * n + 1), Call::dealt(n, 1, 2 * n)]);
        fails(&mixed.with(rules), Violation::Overwritten);
        assert_eq!(order::check(&mixed.with(rules)), Err(Violation::Overwritten));
        assert_eq!(order::check(&mixed), Ok(()));
    }
}

#[test]
fn slots_that_move_with_the_number_of_wires_collide() {
    let moving = Rules { layout: Layout::WireMajor, ..Rules::default() };
    for n in 2..=4 {
        let calls = vec![Call::dealt(n, 1, 2 * n), Call::dealt(n, 2, 2 * n)];
        let scenario = Scenario::new(n, 2, MANY, calls);
        fails(&scenario.with(moving), Violation::Overwritten);
        // While the number of wires stays they are as good as any.
        let calls = vec![Call::dealt(n, 2, 2 * n), Call::dealt(n, 2, 2 * n)];
        assert_eq!(order::check(&Scenario::new(n, 2, MANY, calls).with(moving)), Ok(()));
    }
}

#[test]
fn a_tag_from_an_argument_takes_the_last_replay_for_this_one() {
    let argument = Rules { tags: TagRule::Argument, ..Rules::default() };
    for n in 2..=5 {
        fails(&plain(n).with(argument), Violation::WrongMessage);
        assert_eq!(order::check(&plain(n).with(argument)), Err(Violation::WrongMessage));
        let once = Scenario { calls: vec![Call::dealt(n, 1, n)], ..plain(n) };
        holds(&once.with(argument));
    }
}

#[test]
fn a_flag_apart_from_its_data_is_believed_too_early() {
    let torn = Rules { whole_lines: false, ..Rules::default() };
    for n in 2..=4 {
        let torn = search(&plain(n).with(torn).delayed());
        assert_eq!(torn.violation.as_ref().unwrap().0, Violation::WrongMessage, "{torn}");
    }
}

/// Two lines, then one, until the tags are spent; then two again, of which the second still holds the first's flag.
fn spent(n: usize) -> Scenario {
    let (both, one) = (Call::dealt(n, 1, 2 * n), Call::dealt(n, 1, n));
    Scenario::new(n, 2, 3, vec![both.clone(), one.clone(), one, both])
}

#[test]
fn without_clearing_an_old_flag_matches_again() {
    for n in 2..=3 {
        holds(&spent(n));
        let rules = Rules { clears: false, ..Rules::default() };
        fails(&spent(n).with(rules), Violation::WrongMessage);
        assert_eq!(order::check(&spent(n).with(rules)), Err(Violation::WrongMessage));
    }
}

#[test]
fn without_clearing_what_the_layout_leaves_over_an_old_flag_matches_again() {
    for n in 2..=3 {
        // Three lines; with two wires the third is nobody's part, and it is such a call that begins the tags anew.
        let (all, two) = (Call::dealt(n, 1, 2 * n + 1), Call::dealt(n, 2, 1));
        let scenario = Scenario::new(n, 3, 2, vec![two.clone(), all.clone(), two, all]);
        holds(&scenario);
        let rules = Rules { clears_remainder: false, ..Rules::default() };
        fails(&scenario.with(rules), Violation::WrongMessage);
        assert_eq!(order::check(&scenario.with(rules)), Err(Violation::WrongMessage));
    }
}

#[test]
fn clearing_without_barriers_removes_the_next_ranks_message() {
    for n in 2..=4 {
        let scenario = Scenario { limit: 1, ..plain(n) };
        holds(&scenario);
        for barriers in [[false, false], [true, false]] {
            let rules = Rules { barriers, ..Rules::default() };
            fails(&scenario.with(rules), Violation::ClearedUnread);
            assert_eq!(order::check(&scenario.with(rules)), Err(Violation::ClearedUnread));
        }
    }
}

#[test]
fn a_clearing_must_reach_memory_before_the_barrier_ends() {
    let late = Rules { clears_in_order: false, ..Rules::default() };
    let finds = |scenario: &Scenario, expected| {
        let outcome = search(&scenario.with(late));
        assert_eq!(outcome.violation.as_ref().unwrap().0, expected, "{outcome}");
        holds(scenario);
    };
    for n in 2..=3 {
        // The old flag is still there when the new tags begin,
        finds(&Scenario { limit: 1, ..plain(n) }.delayed(), Violation::WrongMessage);
        // or, if it is of another round, the clearing takes the new message with it.
        let calls = vec![Call::dealt(n, 1, n), Call::dealt(n, 1, n), Call::dealt(n, 1, n)];
        finds(&Scenario::new(n, 1, 2, calls).delayed(), Violation::ClearedUnread);
    }
}

#[test]
fn barrier_flags_must_be_counted() {
    let mut scenario = Scenario { limit: 1, ..plain(2) };
    scenario.calls.push(Call::dealt(2, 1, 2));
    holds(&scenario);
    let rules = Rules { barriers_counted: false, ..Rules::default() };
    fails(&scenario.with(rules), Violation::ClearedUnread);
}

#[test]
fn the_barrier_before_the_clearing_is_one_more_than_needed() {
    // A rank that enters a call has received all that was ever sent to it, and nobody sends before the second barrier.
    let rules = Rules { barriers: [false, true], ..Rules::default() };
    for n in 2..=3 {
        holds(&spent(n).with(rules));
        holds(&Scenario { limit: 1, ..plain(n) }.with(rules).delayed());
    }
    for n in 4..=5 {
        holds(&Scenario { limit: 1, ..plain(n) }.with(rules));
    }
}

#[test]
fn the_base_must_advance_by_the_most_rounds() {
    let rules = Rules { advance: Advance::LastByOne, ..Rules::default() };
    for n in 2..=4 {
        // Two rounds, of which the second left tag 2 behind; the next call's first round would be 2 again.
        let calls = vec![Call::dealt(n, 1, 2 * n), Call::dealt(n, 1, n)];
        let scenario = Scenario::new(n, 1, MANY, calls);
        holds(&scenario);
        fails(&scenario.with(rules), Violation::WrongMessage);
    }
}

#[test]
fn the_last_work_group_must_advance_the_base_not_the_first() {
    let rules = Rules { advance: Advance::FirstByMost, ..Rules::default() };
    let scenario = Scenario::new(2, 2, MANY, vec![Call::dealt(2, 2, 4)]);
    holds(&scenario);
    // A work-group that comes late waits for tags that nobody sends.
    fails(&scenario.with(rules), Violation::Deadlock);
}

#[test]
fn the_model_deals_lines_as_a_plan_deals_blocks() {
    let (form, n) = (LineForm::L16, 3);
    for (slot_tiles, wires, blocks) in [(1, 1, 7), (2, 2, 150), (4, 2, 400), (6, 3, 271), (6, 1, 999)] {
        let count = (blocks * BLOCK_WORDS) as u64;
        let request = Request {
            count,
            dtype: DataType::Float32,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        };
        let agreed = Agreed::ring(n, form, slot_tiles as u32);
        let plan = RingPlan::new(&request, &agreed, wires as u32).unwrap();
        let model = Scenario::new(n, slot_tiles * TILE_BLOCKS, TAG_LIMIT, vec![Call::dealt(n, wires, blocks)]);
        assert_eq!(plan.rounds, model.rounds(0));
        for (wire, round, chunk) in
            (0..wires).flat_map(|w| (0..plan.rounds).flat_map(move |r| (0..n).map(move |c| (w, r, c))))
        {
            let lanes = model.lanes(0).filter(|lane| lane / model.part(0) == wire);
            let dealt = lanes.filter(|&lane| round < model.rounds_of(0, lane, chunk) as u32).count();
            let planned = plan.segment(chunk, wire as u32, round).map_or(0, |segment| segment.blocks as usize);
            assert_eq!(planned, dealt, "{plan} wire {wire} round {round} chunk {chunk}");
            for position in model.positions() {
                let step = plan.step(1, round, position as u32, wire as u32);
                assert!(step.is_none_or(|step| step.chunk == model.chunk_at(1, position)));
            }
        }
        for (wire, slot) in (0..wires).flat_map(|wire| (0..slots(n)).map(move |slot| (wire, slot))) {
            let cell = model.cell(0, 0, wire * model.part(0), (0, 0, slot));
            let offset = STAGING_HEAD_BYTES + cell / TILE_BLOCKS * form.tile_bytes();
            assert_eq!(plan.slot_offset(slot as u32, wire as u32), offset);
        }
    }
}
