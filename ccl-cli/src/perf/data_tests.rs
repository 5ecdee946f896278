//! What the data promises: exactness whatever the order, and that errors are found.
#![allow(clippy::unwrap_used, reason = "test code")]

use super::*;

const EXACT: u32 = 2;
const ROUGH: u32 = 3;

fn shapes(ranks: usize, count: usize) -> impl Iterator<Item = Shape> {
    let all = DataType::ALL.into_iter().flat_map(|dtype| Op::all().map(move |op| (dtype, op)));
    all.flat_map(move |(dtype, op)| [Order::Ring, Order::Rank].map(|order| Shape { dtype, op, order, ranks, count }))
}

fn input(shape: &Shape, rank: usize, round: u32) -> Vec<u8> {
    let mut message = vec![0; shape.bytes()];
    shape.write_input(&mut message, rank, round);
    message
}

#[test]
fn exact_data_agrees_with_the_reference_in_every_order() {
    for ranks in [1, 2, 3, MAX_RANKS] {
        for shape in shapes(ranks, 700) {
            assert!(!shape.is_rough(EXACT));
            let right = shape.reference(EXACT).unwrap();
            assert_eq!(shape.check_output(&right, EXACT, 0), Finding::default(), "{shape:?}");
        }
    }
}

#[test]
fn rough_data_rounds_so_that_the_order_shows() {
    for dtype in [DataType::Float16, DataType::Bfloat16, DataType::Float32, DataType::Float64] {
        for op in [Op::Plain(ReduceOp::Sum), Op::Plain(ReduceOp::Prod), Op::PreMulSum] {
            let shape = |order| Shape { dtype, op, order, ranks: 3, count: 3000 };
            let (ring, rank) = (shape(Order::Ring), shape(Order::Rank));
            let sum = ring.reference(ROUGH).unwrap();
            assert_eq!(ring.check_output(&sum, ROUGH, 0), Finding::default());
            assert!(rank.check_output(&sum, ROUGH, 0).wrong > 100, "{dtype} {} in the wrong order", op.name());
        }
    }
}

/// A call of a few bytes may have none of an element for each rank.
#[test]
fn messages_of_no_element_are_right() {
    for shape in shapes(4, 0) {
        for round in [EXACT, ROUGH] {
            assert_eq!(shape.check_output(&input(&shape, 0, round), round, 0), Finding::default(), "{shape:?}");
        }
    }
}

#[test]
fn inputs_differ_by_rank_round_and_place() {
    for shape in shapes(2, 1000).filter(|shape| shape.op == Op::Plain(ReduceOp::Sum)) {
        let size = shape.dtype.size();
        let alike = |a: &[u8], b: &[u8]| a.chunks(size).zip(b.chunks(size)).filter(|(a, b)| a == b).count();
        let base = input(&shape, 0, 0);
        for other in [input(&shape, 1, 0), input(&shape, 0, 2), input(&shape, 15, 8)] {
            assert!(alike(&base, &other) < 100, "{shape:?}");
        }
        for shift in [1, 2, 64, 500] {
            assert!(alike(&base[shift * size..], &base) < (1000 - shift) / 10, "{shape:?} recurs {shift} places on");
        }
    }
}

#[test]
fn whatever_is_not_right_is_counted() {
    for shape in shapes(2, 64) {
        for round in [EXACT, ROUGH] {
            let right = shape.reference(round).unwrap();
            let mut message = right.clone();
            // The lowest bit of one element, and another one with the poison.
            let size = shape.dtype.size();
            message[5 * size] ^= 1;
            message[63 * size..].fill(POISON);
            let finding = shape.check_output(&message, round, 0);
            assert_eq!(finding.wrong, 2, "{shape:?}");
            assert!(finding.first.unwrap().starts_with("element 5 is "));
            assert_eq!(shape.check_input(&input(&shape, 1, round), 1, round, 0), Finding::default());
            assert!(shape.check_input(&input(&shape, 0, round), 1, round, 0).wrong > 30, "{shape:?}");
        }
    }
    let mut guard = [POISON; 8];
    assert_eq!(check_guard(&guard, "after"), Finding::default());
    guard[2] = 0;
    assert_eq!(check_guard(&guard, "after").wrong, 1);
}

#[test]
fn reductions_by_name() {
    for op in Op::all() {
        assert_eq!(op.name().parse(), Ok(op));
    }
    assert_eq!("mulsum".parse(), Ok(Op::PreMulSum));
    assert!("median".parse::<Op>().is_err_and(|error| error.contains("premulsum")));
    let factors: Vec<_> = (0..4).map(|rank| Op::PreMulSum.of_rank(DataType::Int8, rank)).collect();
    assert_eq!(factors[0], factors[3]);
    assert_ne!(factors[0], factors[1]);
}
