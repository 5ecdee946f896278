//! Every reduction of every type by the ring, held to the scalar reference bit by bit.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{self, Bfloat16, Float32, Float64, Int8, Int32, Int64, Uint8, Uint32, Uint64};
use ccl_core::comm::StartState;
use ccl_core::config::{Algorithm, Config};
use ccl_core::plan::Request;
use ccl_core::{Factor, Order, ReduceOp, reference};
use ccl_tests::local::{self, Peer, sum};
use ccl_tests::{Group, data};

const RANKS: [usize; 6] = [1, 2, 3, 4, 5, 8];
const GRANULES: [u32; 3] = [8, 16, 64];

/// A ring whose larger messages take several rounds.
fn config(granule: u32) -> Config {
    Config { granule, staging_tiles: 2, allreduce: Algorithm::Ring, ..Config::default() }
}

/// One rank process that plays all ranks as threads.
fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 8)
}

/// Runs `requests` on `n` ranks, with inputs that `make` makes of a request's number and a rank.
fn check(n: usize, granule: u32, requests: &[Request], make: impl Fn(&Request, u64, usize) -> Vec<u8> + Sync) {
    let bytes = |request: &Request| request.count as usize * request.dtype.size();
    let capacity = requests.iter().map(bytes).max().unwrap().max(1);
    let wants: Vec<_> = (0..)
        .zip(requests)
        .map(|(i, request)| {
            let inputs: Vec<_> = (0..n).map(|rank| make(request, i, rank)).collect();
            data::reduced(request, &inputs)
        })
        .collect();
    local::ranks(n, &config(granule), &StartState::default(), |comm| {
        let rank = comm.rank();
        let mut peer = Peer::new(comm, capacity);
        for (i, (request, want)) in (0..).zip(requests.iter().zip(&wants)) {
            let got = peer.reduce(request, &make(request, i, rank), i % 2 == 1).unwrap();
            let difference = data::first_difference(&got, want, request.dtype);
            assert_eq!(difference, None, "rank {rank} of {n}, {request:?}, {granule}-byte lines");
        }
    });
}

fn any(request: &Request, i: u64, rank: usize) -> Vec<u8> {
    let make = if i.is_multiple_of(3) { data::ordinary } else { data::wild };
    make(request.dtype, i, rank, request.count as usize)
}

/// All pairs of type and reduction; each with counts below 131 that add up to all of them, primes, and several rounds.
fn requests(shift: usize) -> Vec<Request> {
    let mut requests = Vec::new();
    for (turn, dtype) in DataType::ALL.into_iter().enumerate() {
        for (i, op) in data::ops(dtype).into_iter().enumerate() {
            let few = (0..=130).filter(|count| (count + turn + shift) % 12 == 2 * i || (count + i).is_multiple_of(65));
            let many = [[251, 1009, 4099, 10_007][(turn + i + shift) % 4], [257, 523, 2053][(turn + i) % 3]];
            requests.extend(few.chain(many).map(|count| Request { op, ..sum(dtype, count) }));
        }
    }
    requests
}

#[test]
fn every_reduction_of_every_type() {
    process("every_reduction_of_every_type").run(|_| {
        for (shift, n) in RANKS.into_iter().enumerate() {
            for (turn, granule) in GRANULES.into_iter().enumerate() {
                // Each line form with few and with more ranks.
                if n == 2 || n == 3 || turn == shift % 3 {
                    check(n, granule, &requests(shift + turn), any);
                }
            }
        }
    });
}

#[test]
fn averages_of_every_length() {
    process("averages_of_every_length").run(|_| {
        for (turn, n) in RANKS.into_iter().enumerate() {
            let all = |dtype| (0..=130).map(move |count| Request { op: ReduceOp::Avg, ..sum(dtype, count) });
            // Two of the ten types, so that five numbers of ranks see all of them; bfloat16 and float32 always.
            let types = [DataType::ALL[2 * turn % 10], DataType::ALL[(2 * turn + 1) % 10], Bfloat16, Float32];
            check(n, GRANULES[turn % 3], &types.into_iter().flat_map(all).collect::<Vec<_>>(), any);
        }
    });
}

/// The reference aside: what Rust's own integers say of negative, equal and extreme numbers.
#[test]
fn integer_extrema() {
    process("integer_extrema").run(|_| {
        const COUNT: usize = 300;
        let value = |dtype: DataType, rank: usize, i: usize| -> i128 {
            let bits = 8 * dtype.size() as u32;
            let signed = matches!(dtype, Int8 | Int32 | Int64);
            let (least, most) = match signed {
                true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
                false => (0, (1i128 << bits) - 1),
            };
            let place = i128::from(data::word(3, rank, i as u64) % 5);
            match i % 4 {
                // Alike on all ranks; on all but one; around zero, negative if they can be; at both ends.
                0 => least + i as i128 % (most - least),
                1 => {
                    if rank == i % 3 {
                        most - 1
                    } else {
                        most
                    }
                }
                2 => (place - 2).max(least),
                _ => {
                    if place % 2 == 0 {
                        least + place
                    } else {
                        most - place
                    }
                }
            }
        };
        for dtype in [Int8, Uint8, Int32, Uint32, Int64, Uint64] {
            let message = |rank: usize| -> Vec<u8> {
                (0..COUNT).flat_map(|i| value(dtype, rank, i).to_le_bytes()[..dtype.size()].to_vec()).collect()
            };
            for n in [2, 3, 4] {
                local::ranks(n, &config(16), &StartState::default(), |comm| {
                    let rank = comm.rank();
                    let mut peer = Peer::new(comm, COUNT * 8);
                    for op in [ReduceOp::Max, ReduceOp::Min] {
                        let of = |i: usize| {
                            let all = (0..n).map(|rank| value(dtype, rank, i));
                            if op == ReduceOp::Max { all.max().unwrap() } else { all.min().unwrap() }
                        };
                        let want: Vec<u8> =
                            (0..COUNT).flat_map(|i| of(i).to_le_bytes()[..dtype.size()].to_vec()).collect();
                        let got = peer.reduce(&Request { op, ..sum(dtype, COUNT) }, &message(rank), false).unwrap();
                        assert_eq!(
                            data::first_difference(&got, &want, dtype),
                            None,
                            "rank {rank} of {n}, {dtype} {op}"
                        );
                    }
                });
            }
        }
    });
}

/// Each rank multiplies by a factor of its own, which is rounded to the type of the elements.
#[test]
fn factors_of_the_ranks_own() {
    process("factors_of_the_ranks_own").run(|_| {
        const COUNT: usize = 4_001;
        for (dtype, scalars) in
            [(Bfloat16, Float32), (Float32, Float64), (Float64, Float64), (Int32, Int8), (Uint8, Uint8)]
        {
            for n in [1, 2, 3, 5] {
                let op = |rank: usize| {
                    let bits = data::ordinary(scalars, 9, rank, 1);
                    let mut word = [0; 8];
                    word[..bits.len()].copy_from_slice(&bits);
                    ReduceOp::PreMulSum(Factor::new(scalars, u64::from_le_bytes(word)))
                };
                let inputs: Vec<_> = (0..n).map(|rank| data::ordinary(dtype, 5, rank, COUNT)).collect();
                let multiplied = |rank: usize| -> Vec<u8> {
                    let factor = op(rank).factor(dtype).unwrap();
                    let elements = inputs[rank].chunks(dtype.size()).map(|element| {
                        let mut word = [0; 8];
                        word[..element.len()].copy_from_slice(element);
                        reference::multiply(dtype, u64::from_le_bytes(word), factor)
                    });
                    elements.flat_map(|bits| bits.to_le_bytes()[..dtype.size()].to_vec()).collect()
                };
                let want = data::expected(dtype, &(0..n).map(multiplied).collect::<Vec<_>>(), None);
                local::ranks(n, &config(64), &StartState::default(), |comm| {
                    let rank = comm.rank();
                    let mut peer = Peer::new(comm, COUNT * dtype.size());
                    for in_place in [false, true] {
                        let request = Request { op: op(rank), ..sum(dtype, COUNT) };
                        let got = peer.reduce(&request, &inputs[rank], in_place).unwrap();
                        assert_eq!(data::first_difference(&got, &want, dtype), None, "rank {rank} of {n}, {dtype}");
                    }
                });
            }
        }
    });
}

/// There is no order with one rank: both are there, whatever the reduction.
#[test]
fn a_rank_alone_has_every_order() {
    process("a_rank_alone_has_every_order").run(|_| {
        let all = requests(0).into_iter().map(|request| Request { order: Order::Rank, ..request });
        check(1, 64, &all.collect::<Vec<_>>(), any);
    });
}
