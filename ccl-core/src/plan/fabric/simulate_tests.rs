#![allow(clippy::unwrap_used, reason = "test code")]

use super::super::work::Peers;
use super::*;
use crate::plan::fabric::RootPort;
use crate::plan::push::{Mode, Part, PushPlan, Transport};
use crate::plan::select::Pick;
use crate::plan::{Agreed, Request};
use crate::protocol::LineForm;
use crate::{DataType, Order, ReduceOp};

const L64: LineForm = LineForm::L64;

fn bulk(mode: Mode, n: usize, count: u64, wires: u32) -> PushPlan {
    let (dtype, op, order) = (DataType::Float32, ReduceOp::Sum, Order::Ring);
    let request = Request { count, dtype, op, order, period: None, registered: None };
    let agreed = Agreed { bulk_bytes: 1 << 16, ..Fabric::B70_PCIE.agreed(n, L64) };
    PushPlan::new(&request, &agreed, mode, Transport::Bulk, wires).unwrap()
}

/// Bytes that `rank` is to put on its link, from the plan alone.
fn bytes_of(plan: &Plan, rank: usize) -> u64 {
    let Plan::Push(push) = plan else {
        let Plan::Ring(ring) = plan else { return 0 };
        let sends = ring.steps(rank).filter(|step| step.send);
        return sends.map(|step| u64::from(step.lines) * ring.form.granule() as u64).sum();
    };
    let to_all = push.n as u64 - 1;
    let elem = push.dtype.size() as u64;
    let flags = |step: &crate::plan::push::PushStep| match (step.phase, push.mode) {
        (Phase::Send, _) => 1,
        (Phase::Reduce, Mode::Mesh) => to_all,
        // The result, and what others load.
        (Phase::Reduce, Mode::Direct) => to_all,
        _ => 0,
    };
    push.steps(rank)
        .map(|step| match (step.part, push.transport) {
            (Part::Lines { segment, .. }, Transport::Lines(form)) => {
                flags(&step) * u64::from(segment.lines) * form.granule() as u64
            }
            (Part::Elements { .. }, _) if push.mode == Mode::Direct && step.phase == Phase::Send => 4,
            (Part::Elements { elements, .. }, _) => flags(&step) * (elements * elem + 4),
            (Part::Lines { .. }, Transport::Bulk) => unreachable!("lines in bulk"),
        })
        .sum()
}

#[test]
fn what_plans_send_goes_over_the_links() {
    for n in [2, 3, 5, 8] {
        for pick in Pick::ALL {
            for (form, bytes) in LineForm::ALL.into_iter().flat_map(|form| [2, 9998, 300_002].map(|b| (form, b))) {
                let plan = Fabric::B70_PCIE.plan(Some(pick), n, bytes, form).unwrap();
                let report = simulate(&plan, &Fabric::B70_PCIE).unwrap();
                assert_eq!(report.sent, (0..n).map(|rank| bytes_of(&plan, rank)).collect::<Vec<_>>(), "{plan}");
            }
        }
        for mode in [Mode::OneShot, Mode::Mesh] {
            let plan = Plan::Push(bulk(mode, n, 50_001, 3));
            let report = simulate(&plan, &Fabric::B70_PCIE).unwrap();
            assert_eq!(report.sent, (0..n).map(|rank| bytes_of(&plan, rank)).collect::<Vec<_>>(), "{plan}");
        }
        // What a rank's memory is asked for leaves it as what it stores does: a whole message from all others' shares.
        let plan = Plan::Push(bulk(Mode::Direct, n, 50_001, 3));
        let report = simulate(&plan, &Fabric::B70_PCIE).unwrap();
        let loaded = 50_001 * 4 * (n as u64 - 1);
        let stored: u64 = (0..n).map(|rank| bytes_of(&plan, rank)).sum();
        // Each load is of the size of the share's result, its flag's 4 bytes included.
        assert_eq!(report.sent.iter().sum::<u64>(), loaded + stored + 4 * (n * (n - 1) * 3) as u64, "{plan}");
    }
}

#[test]
fn a_line_takes_launch_hops_and_its_bytes() {
    // A ring of two with one line each way and chunk 1 empty: rank 0 sends, rank 1 adds and sends back.
    let fabric = Fabric::B70_PCIE;
    let plan = fabric.plan(Some(Pick::Ring), 2, 2, L64).unwrap();
    let link = span(64, 28_650);
    let unit = span(64, 4000);
    // Rank 0 loads 60 bytes of its own input, rank 1 gets 64, loads and stores, rank 0 gets 64: units are slower.
    let expected = 5_000_000 + 3 * unit + 2 * (link + 1_500_000);
    assert_eq!(simulate(&plan, &fabric).unwrap().picoseconds, expected);
}

#[test]
fn results_are_the_same_everywhere() {
    // Numbers, to the picosecond: of another machine, another allocator, another build.
    let time = |pick, fabric: &Fabric| {
        simulate(&fabric.plan(Some(pick), 8, 100_002, L64).unwrap(), fabric).unwrap().picoseconds
    };
    let times = Pick::ALL.map(|pick| Fabric::BOXES.map(|fabric| time(pick, &fabric)));
    assert_eq!(times, Pick::ALL.map(|pick| Fabric::BOXES.map(|fabric| time(pick, &fabric))));
    assert_eq!(times, GOLDEN);
}

const GOLDEN: [[u64; 5]; 3] = [
    [42952020, 50724008, 134923575, 20445404, 10621956],
    [16333083, 16344093, 36027936, 9934485, 6179308],
    [28866700, 28871727, 35480939, 24365334, 17765480],
];

#[test]
fn a_root_port_matters_where_it_is_passed() {
    let time = |n, fabric: &Fabric| {
        Pick::ALL.map(|pick| simulate(&fabric.plan(Some(pick), n, 1 << 18, L64).unwrap(), fabric).unwrap())
    };
    let ignored = time(8, &Fabric { root: None, ..Fabric::B70_ROOT_PORT });
    for (with, without) in time(8, &Fabric::B70_ROOT_PORT).iter().zip(&ignored) {
        assert!(with.picoseconds > 2 * without.picoseconds, "{} {}", with.us(), without.us());
        assert_eq!((with.root_bytes, without.root_bytes), (with.sent.iter().sum(), 0));
    }
    // Two switches: half of what goes to seven others passes, and two of a ring's eight links.
    let [one_shot, mesh, ring] = time(8, &Fabric::B70_TWO_SWITCHES);
    for (push, without) in [one_shot, mesh].iter().zip(&ignored) {
        assert!(push.picoseconds > without.picoseconds && push.root_bytes * 7 == push.sent.iter().sum::<u64>() * 4);
    }
    assert_eq!(ring.root_bytes * 4, ring.sent.iter().sum::<u64>());
    // Four below one switch don't notice.
    assert_eq!(time(4, &Fabric::B70_TWO_SWITCHES), time(4, &Fabric::B70_PCIE));
}

#[test]
fn more_bytes_take_longer_and_faster_parts_less() {
    for fabric in Fabric::BOXES {
        for (n, pick) in [2, 3, 8].into_iter().flat_map(|n| Pick::ALL.map(|pick| (n, pick))) {
            let mut last = 0;
            for bytes in [2, 1000, 4096, 30_000, 200_000, 400_000] {
                // On the same wires: with more of them it may well be faster.
                let agreed = Agreed { max_wires: 4, ..fabric.agreed(n, L64) };
                let request = Request {
                    count: bytes,
                    dtype: DataType::Int8,
                    op: ReduceOp::Max,
                    order: Order::Ring,
                    period: None,
                    registered: None,
                };
                let plan = match pick {
                    Pick::Ring => Plan::Ring(crate::plan::ring::RingPlan::new(&request, &agreed, 4).unwrap()),
                    Pick::Mesh | Pick::OneShot => {
                        let mode = if pick == Pick::Mesh { Mode::Mesh } else { Mode::OneShot };
                        Plan::Push(PushPlan::new(&request, &agreed, mode, Transport::Lines(L64), 4).unwrap())
                    }
                };
                let time = |fabric: &Fabric| simulate(&plan, fabric).unwrap().picoseconds;
                let base = time(&fabric);
                assert!(base >= last, "{} n={n} {pick:?} {bytes}: {base} after {last}", fabric.name);
                last = base;
                let root = fabric.root.map(|root| RootPort { gbps: root.gbps * 2.0, ..root });
                for faster in [
                    Fabric { pair_gbps: fabric.pair_gbps * 2.0, port_gbps: fabric.port_gbps * 2.0, root, ..fabric },
                    Fabric { local_gbps: fabric.local_gbps * 2.0, ..fabric },
                    Fabric { unit_gbps: fabric.unit_gbps * 2.0, ..fabric },
                    Fabric { hop_us: fabric.hop_us - 0.1, ..fabric },
                    Fabric { launch_us: 0.0, ..fabric },
                ] {
                    // Who comes first at a port may change; by much it can't.
                    assert!(time(&faster) <= base + base / 50, "{} n={n} {pick:?} {bytes}: {faster:?}", fabric.name);
                }
            }
        }
    }
}

#[test]
fn work_groups_beyond_the_units_queue() {
    let plan = |wires| Plan::Push(bulk(Mode::Mesh, 4, 40_000, wires));
    let few = |compute_units| Fabric { compute_units, ..Fabric::B70_PCIE };
    let time = |wires, units| simulate(&plan(wires), &few(units)).unwrap().picoseconds - 5_000_000;
    assert_eq!(time(8, 8), time(8, 100));
    assert!(time(8, 4) > time(8, 8) + 1_000_000, "two lots, each with its hops");
    assert!(time(8, 1) > 3 * time(8, 4) / 2);
}

/// Runs a push plan whose steps pass through `change` (rank, its steps on a wire).
fn changed(plan: &PushPlan, change: impl Fn(usize, Vec<Work>) -> Vec<Work>) -> Result<Report, Stuck> {
    let works = |rank, wire| {
        let rounds = (0..plan.rounds).flat_map(move |round| Phase::ALL.map(|phase| (round, phase)));
        let steps = rounds.flat_map(move |(round, phase)| plan.phase_steps(rank, round, phase, wire));
        change(rank, steps.flat_map(|step| work::push(plan, step)).collect()).into_iter()
    };
    Machine::new(&Fabric::B70_PCIE, plan.n, plan.wires)?.run(works)
}

#[test]
fn a_broken_step_ends_in_an_error_that_names_who_waits() {
    let Plan::Push(plan) = Fabric::B70_PCIE.plan(Some(Pick::Mesh), 3, 2000, L64).unwrap() else {
        panic!("no mesh");
    };
    assert_eq!(changed(&plan, |_, works| works).unwrap(), simulate(&Plan::Push(plan), &Fabric::B70_PCIE).unwrap());
    // Rank 1 keeps its result to itself: everybody else waits for it.
    let keep = |rank, mut works: Vec<Work>| {
        works.iter_mut().filter(|work| rank == 1 && work.takes == Peers::Others).for_each(|w| w.gives = Peers::None);
        works
    };
    let Err(Stuck::Deadlock(text)) = changed(&plan, keep) else { panic!("no deadlock") };
    for waiting in ["rank 0 waits in round 0 Gather wire 0 peer 1", "rank 2 waits in round 0 Gather wire 0 peer 1"] {
        assert!(text.contains(waiting), "{text}");
    }
    assert!(text.contains("rank 1's Result of part 2 of round 0") && !text.contains("rank 1 waits"), "{text}");
    // It doesn't send its first part: what comes next is not what the owner waits for.
    let drop_first = |rank, mut works: Vec<Work>| {
        if rank == 1 {
            works.remove(0);
        }
        works
    };
    let Err(Stuck::Mismatch(text)) = changed(&plan, drop_first) else { panic!("no mismatch") };
    assert!(text.contains("rank 2, round 0 Reduce") && text.contains("rank 1's Input of part 0 of round 0"), "{text}");
    // What it waits for is of another round, or comes in another order, or is nobody's.
    let later = |rank, mut works: Vec<Work>| {
        if rank == 1 {
            works[0].given.round += 1;
        }
        works
    };
    let Err(Stuck::Mismatch(text)) = changed(&plan, later) else { panic!("no mismatch") };
    assert!(text.contains("rank 2, round 0 Reduce") && text.contains("finds Input of part 0 of round 1"), "{text}");
    let short = |rank, mut works: Vec<Work>| {
        if rank == 1 {
            works.pop();
        }
        works
    };
    let Err(Stuck::Mismatch(text)) = changed(&plan, short) else { panic!("no mismatch") };
    assert!(text.contains("rank 1 wire 0 never takes rank 0's Result"), "{text}");
}

#[test]
fn a_broken_ring_ends_in_an_error_too() {
    let Plan::Ring(plan) = Fabric::B70_PCIE.plan(Some(Pick::Ring), 4, 5000, L64).unwrap() else { panic!("no ring") };
    let works = |rank, wire| {
        plan.wire_steps(rank, wire).map(move |step| {
            let work = work::ring(&plan, rank, step);
            // Rank 2 doesn't pass on what it has last.
            if (rank, step.position) == (2, 5) { Work { gives: Peers::None, ..work } } else { work }
        })
    };
    let Err(Stuck::Deadlock(text)) = Machine::new(&Fabric::B70_PCIE, 4, plan.wires).unwrap().run(works) else {
        panic!("no deadlock")
    };
    assert!(text.contains("rank 3 waits in round 0 position 6 wire 0"), "{text}");
    assert!(text.contains("for rank 2's slot 5 of round 0"), "{text}");
}

#[test]
fn boxes_that_cannot_be_are_refused() {
    let plan = Fabric::B70_PCIE.plan(None, 2, 8, L64).unwrap();
    for (fabric, word) in [
        (Fabric { compute_units: 0, ..Fabric::B70_PCIE }, "compute units"),
        (Fabric { pair_gbps: 0.0, ..Fabric::B70_PCIE }, "rate"),
        (Fabric { unit_gbps: f64::NAN, ..Fabric::B70_PCIE }, "rate"),
        (Fabric { incast: 1.5, ..Fabric::B70_PCIE }, "incast"),
        (Fabric { poll_us: 2.0, ..Fabric::B70_PCIE }, "latency"),
        (Fabric { root: Some(RootPort { gbps: 1.0, switch: 0 }), ..Fabric::B70_PCIE }, "switch"),
    ] {
        let text = simulate(&plan, &fabric).unwrap_err().to_string();
        assert!(text.contains(word), "{text}");
    }
    for nothing in [Plan::Empty, Plan::Local] {
        assert_eq!(simulate(&nothing, &Fabric::B70_PCIE).unwrap().picoseconds, 5_000_000);
    }
}
