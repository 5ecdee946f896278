//! CCLX_CHECK: ranks that make different calls, and buffers that are too small. Without it the first ends in wrong data
//! that nothing tells of: the negative control.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::{Algorithm, Check, Config, OnError, TransportChoice};
use ccl_core::plan::Request;
use ccl_core::types::Factor;
use ccl_core::{DataType, Error, ReduceOp};
use ccl_tests::local::{self, Peer, sum};
use ccl_tests::{Group, data};
use std::time::Duration;

fn config(check: Check) -> Config {
    Config {
        check,
        on_error: Some(OnError::Log),
        timeout: Duration::from_secs(20),
        staging_tiles: 16,
        ..Config::default()
    }
}

/// Calls 1 to 3 are alike, call 4 is the odd rank's own; returns what it came to on every rank.
fn odd_one_out(n: usize, odd: usize, config: &Config, usual: Request, other: Request) -> Vec<Result<Vec<u8>, Error>> {
    local::ranks(n, config, &StartState::default(), |comm| {
        let rank = comm.rank();
        let mut peer = Peer::new(comm, 1 << 16);
        let mut call = |request: &Request, seed| {
            let input = data::ordinary(request.dtype, seed, rank, request.count as usize);
            peer.reduce(request, &input, false)
        };
        for seed in 1..=3 {
            call(&usual, seed).unwrap();
        }
        call(if rank == odd { &other } else { &usual }, 4)
    })
}

#[test]
fn the_rank_with_another_call_is_named_by_every_rank() {
    Group::new("the_rank_with_another_call_is_named_by_every_rank", 1).env("ZE_SOFT_DEVICES", 5).run(|_| {
        let usual = sum(DataType::Float32, 1000);
        let others = [
            (sum(DataType::Float32, 1001), "made it with 1001 float32 sum"),
            (sum(DataType::Bfloat16, 2000), "made it with 2000 bfloat16 sum"),
            (Request { period: Some(100), ..usual }, "made it with 1000 float32 sum, fingerprint"),
        ];
        for (n, odd) in [(3, 0), (4, 2), (5, 4)] {
            for (other, told) in &others {
                for (rank, outcome) in odd_one_out(n, odd, &config(Check::Global), usual, *other).iter().enumerate() {
                    let error = outcome.as_ref().expect_err("a call that differs");
                    assert!(matches!(error, Error::InvalidUsage(_)), "rank {rank}: {error}");
                    let text = error.to_string();
                    let named = format!("ranks disagree on call #4: rank {odd} {told}");
                    assert!(text.contains(&named), "n {n}, rank {rank}: {text}, not: {named}");
                }
            }
        }
    });
}

/// NEGATIVE CONTROL: unchecked, ranks with counts that need the same rounds finish, all of them, and some are wrong.
#[test]
fn unchecked_a_wrong_result_looks_like_a_right_one() {
    Group::new("unchecked_a_wrong_result_looks_like_a_right_one", 1).env("ZE_SOFT_DEVICES", 4).run(|_| {
        let (usual, other) = (sum(DataType::Float32, 1000), sum(DataType::Float32, 990));
        let outcomes = odd_one_out(4, 2, &config(Check::Off), usual, other);
        let inputs: Vec<_> = (0..4).map(|rank| data::ordinary(DataType::Float32, 4, rank, 1000)).collect();
        let right = data::expected(DataType::Float32, &inputs, None);
        let wrong = outcomes.iter().filter(|outcome| outcome.as_ref().is_ok_and(|got| *got != right)).count();
        assert!(wrong > 0, "{outcomes:?}");
    });
}

/// Checked calls of every kind of size are as right as others.
#[test]
fn checked_calls_are_right() {
    Group::new("checked_calls_are_right", 1).env("ZE_SOFT_DEVICES", 3).run(|_| {
        let start = StartState { tag_limit: 255, ..StartState::default() };
        local::ranks(3, &config(Check::Global), &start, |comm| {
            let rank = comm.rank();
            let mut peer = Peer::new(comm, 1 << 20);
            for seed in 0..300u64 {
                let count = [1, 7, 64, 1000, 0, 50_000][seed as usize % 6];
                let inputs: Vec<_> = (0..3).map(|r| data::ordinary(DataType::Bfloat16, seed, r, count)).collect();
                let got = peer.reduce(&sum(DataType::Bfloat16, count), &inputs[rank], seed % 2 == 0).unwrap();
                assert!(got == data::expected(DataType::Bfloat16, &inputs, None), "rank {rank}, call {seed}");
            }
        });
    });
}

/// A factor is each rank's own, by whatever algorithm: nothing to compare.
#[test]
fn factors_may_differ() {
    Group::new("factors_may_differ", 1).env("ZE_SOFT_DEVICES", 3).run(|_| {
        for (allreduce, transport) in [
            (Algorithm::Ring, TransportChoice::Lines),
            (Algorithm::OneShot, TransportChoice::Lines),
            (Algorithm::OneShot, TransportChoice::Bulk),
            (Algorithm::Mesh, TransportChoice::Lines),
            (Algorithm::Mesh, TransportChoice::Bulk),
        ] {
            let config = Config { allreduce, transport, ..config(Check::Global) };
            // Small integers: sums are exact in any order.
            let (count, value) = (3000, |rank: usize, i: usize| ((rank * 31 + i * 7) % 50) as f32);
            let outcomes = local::ranks(3, &config, &StartState::default(), |comm| {
                let rank = comm.rank();
                let factor = Factor::new(DataType::Float32, u64::from(((rank + 2) as f32).to_bits()));
                let request = Request { op: ReduceOp::PreMulSum(factor), ..sum(DataType::Float32, count) };
                let input: Vec<u8> = (0..count).flat_map(|i| value(rank, i).to_le_bytes()).collect();
                let mut peer = Peer::new(comm, 1 << 16);
                (0..3).try_fold(Vec::new(), |_, _| peer.reduce(&request, &input, false))
            });
            let wanted = |i| (0..3).map(|rank| value(rank, i) * (rank + 2) as f32).sum::<f32>();
            let wanted: Vec<u8> = (0..count).flat_map(|i| wanted(i).to_le_bytes()).collect();
            for (rank, outcome) in outcomes.into_iter().enumerate() {
                assert!(outcome.unwrap() == wanted, "rank {rank}, {allreduce:?} by {transport:?}");
            }
        }
    });
}

#[test]
fn a_buffer_that_ends_too_early_is_refused_and_nothing_is_lost() {
    Group::new("a_buffer_that_ends_too_early_is_refused_and_nothing_is_lost", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        local::ranks(2, &config(Check::Local), &StartState::default(), |comm| {
            let stream = comm.stream(0).unwrap();
            let mut buffer = comm.alloc::<f32>(1024).unwrap();
            let at = buffer.as_ptr().cast::<f32>();
            let own = [1.0f32; 8];
            for (send, recv, count, named) in [
                (at.cast_const(), at, 1_000_000, "send buffer"),
                (at.wrapping_add(1000).cast_const(), at.wrapping_add(1000), 4000, "passes the end"),
                (own.as_ptr(), at, 8, "not memory of this device"),
            ] {
                let request = comm.request(count, DataType::Float32, ReduceOp::Sum);
                // SAFETY: refused before anything is enqueued.
                let refused = unsafe { comm.all_reduce_raw(&request, send.cast(), recv.cast(), &stream, &[]) };
                let text = refused.err().expect("a bad buffer").to_string();
                assert!(text.contains(named), "{text}, not: {named}");
            }
            let input: Vec<f32> = (0..1024).map(|i| (i + comm.rank()) as f32).collect();
            buffer.write(&stream, &input).unwrap();
            comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
            let mut got = vec![0.0f32; 1024];
            buffer.read(&stream, &mut got).unwrap();
            assert!(got.iter().enumerate().all(|(i, got)| *got == (2 * i + 1) as f32));
        });
    });
}
