//! The selection tables of GPUs, held to what a simulation of every box says.
#![allow(clippy::unwrap_used, reason = "test code")]

use ccl_core::device::DeviceFamily;
use ccl_core::plan::fabric::{Fabric, simulate};
use ccl_core::plan::push::{Mode, PushPlan, Transport};
use ccl_core::plan::ring::RingPlan;
use ccl_core::plan::select::Pick;
use ccl_core::plan::{Plan, Request};
use ccl_core::protocol::LineForm;
use ccl_core::{DataType, Order, ReduceOp};

/// How many times the best simulated time the table's choice may take.
const MARGIN: f64 = 1.25;
/// Lines of GPUs are the narrowest until more is shown; the tables have to suit the widest, too.
const FORMS: [LineForm; 2] = [LineForm::L8, LineForm::L64];

fn time(fabric: &Fabric, pick: Option<Pick>, n: usize, bytes: u64, form: LineForm) -> f64 {
    simulate(&fabric.plan(pick, n, bytes, form).unwrap(), fabric).unwrap().us()
}

fn check(fabric: &Fabric) {
    let mut wrong = Vec::new();
    for form in FORMS {
        // The rows of two NVIDIA GPUs were measured, and say otherwise than the simulation.
        let first = if fabric.family == DeviceFamily::Cuda { 3 } else { 2 };
        for n in first..=8 {
            let halves = (10..18).map(|shift| 3 << (shift - 1));
            let large = if n == 2 || n == 4 { 1 << 22 } else { 1 << 20 };
            for bytes in (3..=18).map(|shift| 1u64 << shift).chain(halves).chain([large]) {
                let chosen = time(fabric, None, n, bytes, form);
                // Beyond that a one-shot is far from the best of more than two, and slow to simulate.
                let tried = Pick::ALL
                    .into_iter()
                    .filter(|pick| *pick != Pick::OneShot || (n as u64 - 1) * bytes <= 1 << 19 || n == 2);
                let (least, best) = tried
                    .map(|pick| (time(fabric, Some(pick), n, bytes, form), pick))
                    .min_by(|a, b| a.0.total_cmp(&b.0))
                    .unwrap();
                if chosen > MARGIN * least {
                    wrong.push(format!("{form:?} n={n} {bytes} bytes: {chosen:.1} us, but {best:?} {least:.1} us"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", fabric.name, wrong.join("\n"));
}

#[test]
fn the_table_suits_b70() {
    check(&Fabric::B70_PCIE);
}

#[test]
fn the_table_suits_b70_below_two_switches() {
    check(&Fabric::B70_TWO_SWITCHES);
}

#[test]
fn the_table_suits_b70_below_one_root_port() {
    check(&Fabric::B70_ROOT_PORT);
}

#[test]
fn the_table_suits_pvc() {
    check(&Fabric::PVC_XELINK);
}

#[test]
fn the_table_suits_h200() {
    check(&Fabric::H200_NVLINK);
}

#[test]
fn no_other_number_of_wires_is_much_faster() {
    for fabric in Fabric::ALL {
        for (form, n) in FORMS.into_iter().flat_map(|form| [2, 4, 8].map(|n| (form, n))) {
            for bytes in [8, 1 << 10, 1 << 12, 1 << 13, 1 << 14, 1 << 16, 1 << 18] {
                let (dtype, op, order) = (DataType::Bfloat16, ReduceOp::Sum, Order::Ring);
                let request = Request { count: bytes / 2, dtype, op, order, period: None, registered: None };
                let agreed = fabric.agreed(n, form);
                let chosen = fabric.plan(None, n, bytes, form).unwrap();
                let with = |wires| match chosen {
                    Plan::Ring(_) => RingPlan::new(&request, &agreed, wires).map(Plan::Ring),
                    Plan::Push(PushPlan { mode, .. }) => {
                        let lines = Transport::Lines(form);
                        let most = PushPlan::most_wires(&agreed, mode, lines);
                        assert!(mode != Mode::Direct);
                        PushPlan::new(&request, &agreed, mode, lines, wires.min(most)).map(Plan::Push)
                    }
                    Plan::Empty | Plan::Local => unreachable!("{chosen}"),
                };
                let wires = (0..7).map(|shift| 1 << shift).filter(|wires| *wires <= fabric.compute_units);
                let least = wires.map(|wires| simulate(&with(wires).unwrap(), &fabric).unwrap().us());
                let least = least.reduce(f64::min).unwrap();
                let time = simulate(&chosen, &fabric).unwrap().us();
                assert!(time <= MARGIN * least, "{} {form:?} n={n} {bytes}: {chosen}: {time} {least}", fabric.name);
            }
        }
    }
}

#[test]
fn the_closed_form_and_the_simulation_are_of_one_opinion() {
    let mut ratios = Vec::new();
    for fabric in Fabric::ALL {
        for (n, pick) in [2, 4, 8].into_iter().flat_map(|n| Pick::ALL.map(|pick| (n, pick))) {
            for (form, bytes) in FORMS.into_iter().flat_map(|form| [8, 1 << 13, 1 << 16, 1 << 18].map(|b| (form, b))) {
                let closed = fabric.predict_default_us(pick, n, bytes, form);
                let ratio = time(&fabric, Some(pick), n, bytes, form) / closed;
                ratios.push((ratio, format!("{} {form:?} n={n} {pick:?} {bytes}", fabric.name)));
            }
        }
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, most) = (ratios.first().unwrap(), ratios.last().unwrap());
    // The closed form adds the hops of long rings, which overlap. It knows no wires, and of short one-shots all chunks
    // begin on the first.
    assert!(least.0 > 0.6 && most.0 < 2.5, "{least:?} {most:?}");
}
