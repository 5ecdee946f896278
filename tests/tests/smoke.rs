//! One all-reduce between processes, the whole way.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use ccl_core::{DataType, ReduceOp};
use ccl_tests::{Group, data};

fn round_trip(rank: ccl_tests::Rank) {
    let comm = rank.communicator();
    let stream = comm.stream(0).unwrap();
    for count in [1usize, 100, 5000, 100_000] {
        let inputs: Vec<Vec<u8>> =
            (0..rank.n).map(|r| data::ordinary(DataType::Float32, count as u64, r, count)).collect();
        let mine: &[f32] = bytemuck::cast_slice(&inputs[rank.rank]);
        let mut send = comm.alloc::<f32>(count).unwrap();
        let mut recv = comm.alloc::<f32>(count).unwrap();
        send.write(&stream, mine).unwrap();
        comm.all_reduce(&send, &mut recv, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
        let mut got = vec![0f32; count];
        recv.read(&stream, &mut got).unwrap();
        let want = data::expected(DataType::Float32, &inputs, None);
        let difference = data::first_difference(bytemuck::cast_slice(&got), &want, DataType::Float32);
        assert_eq!(difference, None, "count {count}");
    }
}

#[test]
fn two_ranks() {
    Group::new("two_ranks", 2).run(round_trip);
}

#[test]
fn three_ranks() {
    Group::new("three_ranks", 3).run(round_trip);
}
