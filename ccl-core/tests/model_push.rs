//! The push algorithms, bulk and lines, mHC boundaries by columns, and rings between them hold in every state that they can reach; and each of their
//! rules is needed: take one away, and the search finds the violation that it prevents.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

mod push_model;

use std::time::Instant;

use ccl_core::plan::Agreed;
use ccl_core::plan::push::{Mode, PushPlan, Transport};
use ccl_core::plan::ring::RingPlan;
use ccl_core::protocol::LineForm;
use proptest::prelude::*;
use push_model::machine::search;
use push_model::{Call, Generations, Kind, Rules, Scenario, Violation, order};

const LINES: Transport = Transport::Lines(LineForm::L64);
/// The first line of a segment, and one that a second, short round leaves idle.
const BOTH: &[u32] = &[0, 29];

/// Slots of one tile and of one page: a few blocks make several rounds.
fn small(n: usize) -> Agreed {
    Agreed { push_tiles: 1, bulk_bytes: 4096, ..Agreed::ring(n, LineForm::L64, 1) }
}

fn ring(bytes: u64) -> Call {
    Call { kind: Kind::Ring, bytes, wires: 1 }
}

fn push(mode: Mode, transport: Transport, bytes: u64, wires: u32) -> Call {
    Call { kind: Kind::Push(mode, transport), bytes, wires }
}

fn one_shot(bytes: u64) -> Call {
    push(Mode::OneShot, LINES, bytes, 1)
}

fn mesh(bytes: u64) -> Call {
    push(Mode::Mesh, LINES, bytes, 1)
}

fn bulk(bytes: u64, wires: u32) -> Call {
    push(Mode::OneShot, Transport::Bulk, bytes, wires)
}

fn bulk_mesh(bytes: u64, wires: u32) -> Call {
    push(Mode::Mesh, Transport::Bulk, bytes, wires)
}

fn columns(rows: u64, blocks: u64) -> Call {
    Call { kind: Kind::Columns { rows, blocks }, bytes: 0, wires: 1 }
}

fn direct(wires: u32) -> Call {
    push(Mode::Direct, Transport::Bulk, 512, wires)
}

fn rounds(n: usize, call: &Call) -> u32 {
    match call.kind {
        Kind::Ring => RingPlan::new(&call.request(), &small(n), call.wires).unwrap().rounds,
        Kind::Push(mode, by) => PushPlan::new(&call.request(), &small(n), mode, by, call.wires).unwrap().rounds,
        Kind::Columns { .. } => call.columns(&small(n)).unwrap().rounds(),
    }
}

fn sequences(palette: &[Call], length: usize) -> Vec<Vec<Call>> {
    (0..length).fold(vec![Vec::new()], |all, _| {
        all.iter()
            .flat_map(|calls| palette.iter().map(|call| [calls.as_slice(), std::slice::from_ref(call)].concat()))
            .collect()
    })
}

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

/// The scenario holds, and without the rule the search finds one of the violations.
#[track_caller]
fn needs(scenario: &Scenario, rules: Rules, expected: &[Violation]) {
    let whole = search(scenario);
    assert!(whole.violation.is_none(), "{scenario:?}\n{whole}");
    let broken = search(&scenario.with(rules));
    assert!(broken.violation.is_some_and(|found| expected.contains(&found)), "{scenario:?}\n{broken}");
    println!("{broken}");
}

/// The same by the order of events, which does not tell a message that is overwritten from one that is taken for another.
#[track_caller]
fn is_ordered_only_by(scenario: &Scenario, rules: Rules) {
    assert_eq!(order::check(scenario), Ok(()));
    assert!(order::check(&scenario.with(rules)).is_err(), "{scenario:?}");
}

// The protocol holds.

#[test]
fn two_ranks_any_calls_of_all_algorithms() {
    let palette = [
        ring(1),
        ring(512),
        one_shot(1),
        one_shot(512),
        mesh(1),
        mesh(512),
        bulk(100, 1),
        bulk_mesh(512, 1),
        direct(1),
    ];
    let all = sequences(&palette, 3);
    all_hold("n=2, 3 calls", all.iter().map(|calls| Scenario::new(small(2), &[0], calls)));
    let all = sequences(&palette, 2);
    all_hold("n=2, 2 calls, stores delayed", all.iter().map(|calls| Scenario::new(small(2), &[0], calls).delayed()));
}

#[test]
fn two_ranks_calls_of_several_rounds_and_wires() {
    let long = [one_shot(3840), mesh(7936), bulk(8192 + 100, 2), bulk_mesh(8192 + 100, 1), direct(2)];
    assert!(long[..4].iter().all(|call| rounds(2, call) > 1));
    let short = [one_shot(1), push(Mode::Mesh, LINES, 512, 2), bulk(4096, 2), ring(1)];
    let palette = [&long[..], &short].concat();
    // Each before each, and the long ones before short ones: a long call after another shows no more than a short one.
    let all = sequences(&palette, 2).into_iter().filter(|calls| calls[0] == calls[1] || short.contains(&calls[1]));
    all_hold("n=2, 2 calls of rounds and wires", all.map(|calls| Scenario::new(small(2), BOTH, &calls)));
    let three = sequences(&[one_shot(3840), bulk(8192 + 100, 1), one_shot(1)], 3);
    all_hold("n=2, 3 calls of rounds", three.iter().map(|calls| Scenario::new(small(2), BOTH, calls)));
}

#[test]
fn two_ranks_tags_begin_anew() {
    let palette = [ring(1), one_shot(512), mesh(512), bulk(100, 1), direct(1)];
    let all = sequences(&palette, 3);
    let agreed = |tag_limit| Agreed { tag_limit, ..small(2) };
    let scenarios = all.iter().flat_map(|calls| [1, 2].map(|limit| Scenario::new(agreed(limit), &[0], calls)));
    all_hold("n=2, 3 calls, tags to 1 and 2", scenarios);
}

#[test]
fn three_ranks_any_two_calls() {
    let palette = [ring(1), one_shot(1), mesh(1), bulk(100, 1), bulk_mesh(300, 1), direct(1)];
    let all = sequences(&palette, 2);
    all_hold("n=3, 2 calls", all.iter().map(|calls| Scenario::new(small(3), &[0], calls)));
    let three = sequences(&[one_shot(1), mesh(1), ring(1)], 3);
    all_hold("n=3, 3 calls", three.iter().map(|calls| Scenario::new(small(3), &[0], calls)));
}

#[test]
fn one_thread_may_play_all_wires() {
    let palette = [push(Mode::Mesh, LINES, 768, 2), bulk(4096, 2), push(Mode::OneShot, LINES, 768, 2), direct(2)];
    let all = sequences(&palette, 2);
    let scenario = |calls: &Vec<Call>| Scenario { thread: true, ..Scenario::new(small(3), &[0], calls) };
    all_hold("n=3, 2 calls by one thread", all.iter().map(scenario));
}

/// Lines of which a call by columns and one-shots and meshes make something else each.
const SHARED: &[u32] = &[0, 5];

fn is_by_columns(call: &&Call) -> bool {
    matches!(call.kind, Kind::Columns { .. })
}

fn with_columns(calls: &&Vec<Call>) -> bool {
    calls.iter().any(|call| is_by_columns(&call))
}

#[test]
fn calls_by_columns_among_others() {
    let others = [one_shot(1), one_shot(3840), mesh(512), ring(1), bulk(100, 1), direct(1)];
    let palette = [&[columns(1, 1), columns(1, 2), columns(2, 1)], &others[..]].concat();
    let scenario = |calls: &Vec<Call>| Scenario::new(small(2), SHARED, calls);
    let two = sequences(&palette, 2);
    let two: Vec<_> = two.iter().filter(with_columns).collect();
    all_hold("n=2, 2 calls by columns and others", two.iter().map(|calls| scenario(calls)));
    let delayed = two.iter().map(|calls| Scenario { lines: vec![0], ..scenario(calls).delayed() });
    all_hold("n=2, 2 calls by columns and others, stores delayed", delayed);
    let by_thread = two.iter().map(|calls| Scenario { thread: true, ..Scenario::new(small(3), SHARED, calls) });
    all_hold("n=3, 2 calls by columns and others, by one thread", by_thread);
    // Two of them with whatever else before, between or behind them.
    let three = sequences(&[columns(1, 1), columns(1, 2), one_shot(1), one_shot(3840), ring(1)], 3);
    let several = three.iter().filter(|calls| calls.iter().filter(is_by_columns).count() > 1);
    all_hold("n=2, 3 calls by columns and others", several.map(scenario));
    let three = sequences(&[columns(1, 1), one_shot(1), mesh(1), ring(1)], 2);
    let scenario = |calls: &Vec<Call>| Scenario::new(small(3), &[0], calls);
    all_hold("n=3, 2 calls by columns and others", three.iter().filter(with_columns).map(scenario));
}

/// All of a block's groups read its lines, of which some send.
#[test]
fn groups_that_share_a_block_of_columns() {
    for (n, palette) in [(2, &[columns(1, 1), columns(1, 2), one_shot(1), mesh(1)][..]), (3, &[columns(1, 1)])] {
        let all = sequences(palette, 2);
        let scenario = |calls: &Vec<Call>| Scenario { parts: 2, ..Scenario::new(small(n), &[0], calls) };
        all_hold(&format!("n={n}, 2 calls, 2 parts"), all.iter().filter(with_columns).map(scenario));
    }
}

/// With more groups than wires, and as many.
#[test]
fn calls_by_columns_whose_tags_begin_anew() {
    let two_wires = Call { wires: 2, ..columns(1, 2) };
    let palette = [columns(1, 1), columns(1, 2), two_wires, one_shot(1), ring(1)];
    let all = sequences(&palette, 3);
    let agreed = |tag_limit| Agreed { tag_limit, ..small(2) };
    let scenarios = all.iter().filter(with_columns);
    let scenarios = scenarios.flat_map(|calls| [1, 2].map(|limit| Scenario::new(agreed(limit), &[0], calls)));
    all_hold("n=2, 3 calls by columns and others, tags to 1 and 2", scenarios);
    let three = Scenario::new(Agreed { tag_limit: 1, ..small(3) }, &[0], &[columns(1, 2), columns(1, 2)]);
    all_hold("n=3, 2 calls by columns, tags to 1", [three]);
}

#[test]
fn direct_calls_in_place() {
    for n in 2..=3 {
        let calls = [direct(1), direct(1), direct(1)];
        let scenario = Scenario { in_place: true, ..Scenario::new(small(n), &[0], &calls[..5 - n]) };
        all_hold(&format!("n={n}, direct, in place"), [scenario.clone(), scenario.delayed()].into_iter().take(4 - n));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// By the order of events, for sizes that no search reaches.
    #[test]
    fn any_calls_are_ordered(
        n in 2usize..=8,
        limit in 0u32..4,
        in_place in any::<bool>(),
        parts in 1usize..4,
        kinds in prop::collection::vec((0usize..7, 1u64..12_000, 1u32..4), 1..6),
    ) {
        let calls: Vec<Call> = kinds.into_iter().map(|(kind, bytes, wires)| match kind {
            0 => ring(bytes),
            1 => push(Mode::OneShot, LINES, bytes, wires.min(1 + 4 / n as u32)),
            2 => push(Mode::Mesh, LINES, bytes, wires),
            3 => bulk(bytes, wires.min(2)),
            4 => bulk_mesh(bytes, wires.min(2)),
            5 => Call { wires: 1 + wires % 2, ..columns(1 + bytes % 3, u64::from(wires) + 1) },
            _ => direct(wires),
        }).collect();
        let most = calls.iter().map(|call| rounds(n, call)).max().unwrap();
        let scenario = Scenario::new(Agreed { tag_limit: most + limit, ..small(n) }, &[0, 3, 6], &calls);
        prop_assert_eq!(order::check(&Scenario { in_place, parts, ..scenario }), Ok(()));
    }
}

// Negative controls: each rule is needed.

const LOST: &[Violation] = &[Violation::Overwritten, Violation::WrongMessage];

#[test]
fn one_generation_is_too_few_for_a_one_shot() {
    let one = Rules { generations: Generations::One, ..Rules::default() };
    for calls in [[one_shot(1), one_shot(1)], [bulk(100, 1), bulk(100, 1)]] {
        for n in 2..=3 {
            let scenario = Scenario::new(small(n), &[0], &calls);
            needs(&scenario, one, LOST);
            is_ordered_only_by(&scenario, one);
        }
    }
    // For meshes alone it would do.
    for calls in [[mesh(512), mesh(512)], [bulk_mesh(512, 1), bulk_mesh(512, 1)]] {
        all_hold("n=2, meshes of one generation", [Scenario::new(small(2), &[0], &calls).with(one)]);
    }
}

#[test]
fn a_generation_is_told_by_the_tag_and_not_by_the_round() {
    let by_round = Rules { generations: Generations::ByRound, ..Rules::default() };
    for calls in [[one_shot(1), one_shot(1)], [bulk(100, 1), bulk(100, 1)]] {
        let scenario = Scenario::new(small(2), &[0], &calls);
        needs(&scenario, by_round, LOST);
        is_ordered_only_by(&scenario, by_round);
    }
}

#[test]
fn algorithms_that_share_slots_share_generations() {
    let by_mode = Rules { generations: Generations::ByMode, ..Rules::default() };
    let scenario = Scenario::new(small(2), &[0], &[one_shot(1), mesh(1)]);
    // Chunk 0 belongs to rank 1: it is rank 0 that sends twice.
    needs(&scenario, by_mode, LOST);
    is_ordered_only_by(&scenario, by_mode);
}

#[test]
fn a_line_that_sits_out_a_round_shows_nothing() {
    let sits_out = Rules { every_round: false, ..Rules::default() };
    let scenario = Scenario::new(small(2), BOTH, &[one_shot(3840), one_shot(3584)]);
    assert_eq!((rounds(2, &one_shot(3840)), rounds(2, &one_shot(3584))), (2, 1));
    needs(&scenario, sits_out, LOST);
    is_ordered_only_by(&scenario, sits_out);
}

#[test]
fn a_wire_that_sits_out_a_round_shows_nothing() {
    let sits_out = Rules { every_round: false, ..Rules::default() };
    // The second round has work for one of two wires.
    let scenario = Scenario::new(small(2), &[0], &[bulk(4096 + 100, 2), bulk(4096, 2)]);
    assert_eq!(rounds(2, &bulk(4096 + 100, 2)), 2);
    needs(&scenario, sits_out, LOST);
    is_ordered_only_by(&scenario, sits_out);
}

#[test]
fn a_bulk_flag_before_its_data_is_believed_too_early() {
    let flag_first = Rules { flag_last: false, ..Rules::default() };
    for call in [bulk(100, 1), bulk_mesh(512, 1)] {
        needs(&Scenario::new(small(2), &[0], &[call]), flag_first, &[Violation::WrongMessage]);
    }
}

#[test]
fn a_bulk_flag_without_release_overtakes_its_data() {
    let relaxed = Rules { release: false, ..Rules::default() };
    for call in [bulk(100, 1), bulk_mesh(512, 1), direct(1)] {
        needs(&Scenario::new(small(2), &[0], &[call]).delayed(), relaxed, &[Violation::WrongMessage]);
    }
}

#[test]
fn ranks_of_a_bulk_slot_store_by_turns() {
    let stays = Rules { turns: false, ..Rules::default() };
    for calls in [vec![bulk(100, 1), bulk(100, 1)], vec![bulk(8192 + 100, 1)]] {
        for n in 2..=3 {
            let scenario = Scenario::new(small(n), &[0], &calls);
            needs(&scenario, stays, LOST);
            is_ordered_only_by(&scenario, stays);
        }
    }
}

#[test]
fn results_need_slots_of_their_own() {
    let shared = Rules { results_apart: false, ..Rules::default() };
    let scenario = Scenario::new(small(2), &[0], &[mesh(512)]);
    needs(&scenario, shared, &[Violation::Overwritten, Violation::WrongMessage]);
}

#[test]
fn a_direct_call_waits_for_everybody_before_and_after() {
    for in_place in [false, true] {
        let scenario = Scenario { in_place, ..Scenario::new(small(2), &[0], &[direct(1), direct(1)]) };
        for rules in [Rules { ready: false, ..Rules::default() }, Rules { done: false, ..Rules::default() }] {
            needs(&scenario, rules, LOST);
        }
    }
}

#[test]
fn a_clearing_covers_all_that_holds_flags() {
    let only_ring = Rules { clears_all: false, ..Rules::default() };
    // A line is left with tag 1; a ring begins the tags anew, then the same line is waited for with tag 1 or 3 again.
    for call in [one_shot(1), mesh(1), bulk(100, 1), direct(1)] {
        let calls = [call, ring(1), call];
        let again = Scenario::new(Agreed { tag_limit: 1, ..small(2) }, &[0], &calls);
        needs(&again, only_ring, &[Violation::WrongMessage, Violation::Overwritten]);
    }
}

#[test]
fn a_clearing_needs_the_barrier_after_it() {
    let none = Rules { barriers: [true, false], ..Rules::default() };
    let scenario = Scenario::new(Agreed { tag_limit: 1, ..small(2) }, &[0], &[one_shot(1), one_shot(1)]);
    needs(&scenario, none, &[Violation::ClearedUnread, Violation::Overwritten, Violation::WrongMessage]);
    // The one before it is one more than needed, as in the ring.
    let second = Rules { barriers: [false, true], ..Rules::default() };
    all_hold("n=2, one barrier", [scenario.with(second)]);
}

#[test]
fn one_generation_is_too_few_for_calls_by_columns() {
    let one = Rules { generations: Generations::One, ..Rules::default() };
    for calls in [[columns(1, 1), columns(1, 1)], [columns(1, 2), one_shot(1)], [one_shot(1), columns(1, 2)]] {
        for (n, parts) in [(2, 1), (2, 2), (3, 1)] {
            let scenario = Scenario { parts, ..Scenario::new(small(n), &[0], &calls) };
            needs(&scenario, one, LOST);
            is_ordered_only_by(&scenario, one);
        }
    }
}

/// One counted by the mode's own rounds: a call by columns and a mesh would share a set.
#[test]
fn calls_by_columns_share_generations_with_all_others() {
    let by_mode = Rules { generations: Generations::ByMode, ..Rules::default() };
    let scenario = Scenario::new(small(2), &[0], &[columns(1, 1), mesh(1)]);
    needs(&scenario, by_mode, LOST);
    is_ordered_only_by(&scenario, by_mode);
}

/// Groups beyond the wires, and those whose lines another wire clears.
#[test]
fn a_call_by_columns_waits_for_the_clearing_of_all_wires() {
    let own_only = Rules { wires_awaited: false, ..Rules::default() };
    for wires in [1, 2] {
        let call = Call { wires, ..columns(1, 2) };
        let scenario = Scenario::new(Agreed { tag_limit: 1, ..small(2) }, &[0], &[call, call]);
        needs(&scenario, own_only, &[Violation::ClearedUnread, Violation::Overwritten, Violation::WrongMessage]);
        is_ordered_only_by(&scenario, own_only);
    }
}

#[test]
fn a_clearing_by_columns_needs_its_barrier_and_covers_others_lines() {
    let agreed = Agreed { tag_limit: 1, ..small(2) };
    let lost = [Violation::ClearedUnread, Violation::Overwritten, Violation::WrongMessage];
    let no_barrier = Rules { barriers: [true, false], ..Rules::default() };
    needs(&Scenario::new(agreed, &[0], &[columns(1, 2), columns(1, 2)]), no_barrier, &lost);
    let only_ring = Rules { clears_all: false, ..Rules::default() };
    needs(&Scenario::new(agreed, &[0], &[columns(1, 1), ring(1), columns(1, 1)]), only_ring, &lost);
}
