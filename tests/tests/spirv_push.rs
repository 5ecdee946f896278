//! One-shot and mesh, on lines and in bulk, and direct, as the device kernels' SPIR-V executes them, between processes and held to
//! the bits of the scalar reference: reductions, types, orders, sizes and rows, so that every pair of them occurs with
//! every algorithm. Run by `.ci/beds/opencl-tests.sh`.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::plan::geometry::Geometry;
use ccl_core::plan::push::Mode;
use ccl_core::plan::{Plan, Registered, Request};
use ccl_core::{DataType, Factor, Order, ReduceOp, reference};
use ccl_tests::local::Peer;
use ccl_tests::{Rank, data, spirv};
use ccl_ze::hooks;
use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

/// Fewer than ranks, a line, a block, their neighbours, several rounds.
const COUNTS: [usize; 9] = [1, 3, 63, 64, 129, 1000, 1025, 6_001, 20_011];
const PERIODS: [Option<u64>; 3] = [None, Some(100), Some(7)];

/// The factor of a rank: representable in every type, small enough for bytes.
fn factor(dtype: DataType, rank: usize) -> Factor {
    let bits = match dtype {
        DataType::Float16 => [0x3C00, 0x3800, 0xC000][rank % 3],
        DataType::Bfloat16 => [0x3F80, 0x3F00, 0xC000][rank % 3],
        DataType::Float32 => u64::from([1f32, 0.5, -2.0][rank % 3].to_bits()),
        DataType::Float64 => [1f64, 0.5, -2.0][rank % 3].to_bits(),
        _ => [1, 3, 5][rank % 3],
    };
    Factor::new(dtype, bits)
}

/// All pairs of neighbours in two cycles of coprime lengths, and so on: which request the i-th call makes.
fn request(i: usize, rank: usize) -> Request {
    let dtype = DataType::ALL[i % 10];
    let op = match (i / 10 + i) % 6 {
        5 => ReduceOp::PreMulSum(factor(dtype, rank)),
        op => ReduceOp::ALL[op],
    };
    Request {
        count: COUNTS[(i + i / 9) % 9] as u64,
        dtype,
        op,
        order: if (i / 2).is_multiple_of(2) { Order::Ring } else { Order::Rank },
        period: PERIODS[i % 7 % 3],
        registered: None,
    }
}

/// What all ranks' inputs come to; each multiplied by its own rank's factor.
fn expected(i: usize, n: usize, inputs: &[Vec<u8>]) -> Vec<u8> {
    let Request { count, dtype, op, order, period, .. } = request(i, 0);
    let geometry = Geometry::new(n, count, period, dtype.size()).unwrap();
    if !matches!(op, ReduceOp::PreMulSum(_)) {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        return reference::all_reduce(&inputs, dtype, op, order, &geometry);
    }
    // A factor of one's own for each rank: multiplied alone first, then summed.
    let alone = Geometry::new(1, count, None, dtype.size()).unwrap();
    let scaled: Vec<Vec<u8>> = inputs
        .iter()
        .enumerate()
        .map(|(rank, input)| reference::all_reduce(&[input], dtype, request(i, rank).op, Order::Ring, &alone))
        .collect();
    let scaled: Vec<&[u8]> = scaled.iter().map(Vec::as_slice).collect();
    reference::all_reduce(&scaled, dtype, ReduceOp::Sum, order, &geometry)
}

fn check(rank: Rank, calls: usize, algorithm: &str) {
    let comm = spirv::communicator(&rank, StartState { tag_limit: 200, ..StartState::default() });
    let mut peer = Peer::new(comm, 20_011 * 8 + 64);
    let mut most_rounds = 0;
    for i in 0..calls {
        let request = request(i, rank.rank);
        let Plan::Push(push) = peer.comm.plan(&request).unwrap() else { panic!("{request:?} is no push") };
        assert!(push.to_string().starts_with(algorithm), "{push}");
        most_rounds = most_rounds.max(push.rounds);
        let inputs: Vec<Vec<u8>> =
            (0..rank.n).map(|r| data::wild(request.dtype, i as u64, r, request.count as usize)).collect();
        let got = peer.reduce(&request, &inputs[rank.rank], i % 3 == 0).unwrap();
        let want = expected(i, rank.n, &inputs);
        let difference = data::first_difference(&got, &want, request.dtype);
        assert_eq!(difference, None, "rank {} of {}, call {i}, {push}", rank.rank, rank.n);
    }
    assert!(most_rounds > 1, "several rounds were meant to occur");
}

/// Calls on registered buffers, each with its output apart from the input or in its place; most of them don't begin where
/// their buffers do.
fn check_direct(rank: Rank, calls: usize) {
    let comm = spirv::communicator(&rank, StartState { tag_limit: 200, ..StartState::default() });
    let stream = comm.stream(0).unwrap();
    let (mut send, mut recv) = (comm.alloc::<u8>(20_100 * 8).unwrap(), comm.alloc::<u8>(20_100 * 8).unwrap());
    let registered = [comm.register(&send).unwrap(), comm.register(&recv).unwrap()];
    let mut direct = 0;
    for i in 0..calls {
        let target = usize::from(i % 3 != 0);
        let (first, second) = (8 * (i % 5), 8 * if target == 0 { i % 5 } else { 7 * i % 11 });
        let places =
            Registered { send: registered[0].range(first).unwrap(), recv: registered[target].range(second).unwrap() };
        let request = Request { registered: Some(places), ..request(i, rank.rank) };
        if matches!(request.op, ReduceOp::PreMulSum(_)) {
            // Nobody knows the others' factors.
            assert!(request.count == 0 || comm.plan(&request).is_err(), "{request:?}");
            continue;
        }
        let bytes = request.count as usize * request.dtype.size();
        let inputs: Vec<Vec<u8>> =
            (0..rank.n).map(|r| data::wild(request.dtype, i as u64, r, request.count as usize)).collect();
        send.write(&stream, &[vec![0x33; first], inputs[rank.rank].clone()].concat()).unwrap();
        recv.write(&stream, &vec![0x55; second + bytes]).unwrap();
        let plan = comm.plan(&request).unwrap();
        direct += usize::from(matches!(plan, Plan::Push(push) if push.mode == Mode::Direct));
        let from: *mut c_void = registered[0].as_ptr().wrapping_add(first).cast();
        let to: *mut c_void = registered[target].as_ptr().wrapping_add(second).cast();
        // SAFETY: both buffers hold the message and live until the wait.
        unsafe { comm.all_reduce_raw(&request, from, to, &stream, &[]).unwrap().wait().unwrap() };
        let mut got = vec![0; second + bytes];
        [&send, &recv][target].read(&stream, &mut got).unwrap();
        let difference = data::first_difference(&got[second..], &expected(i, rank.n, &inputs), request.dtype);
        assert_eq!(difference, None, "rank {} of {}, call {i}, {plan}", rank.rank, rank.n);
    }
    assert!(direct > calls / 2, "{direct} direct calls of {calls}");
}

fn all(test: &str, n: usize, algorithm: &'static str, transport: &str, granules: &[u32], calls: usize) {
    for granule in granules {
        let group = spirv::group(test, n).env("CCL_ALLREDUCE", algorithm).env("CCLX_TRANSPORT", transport);
        let group = group
            .env("CCLX_GRANULE", granule)
            .env("CCLX_PUSH_TILES", 4)
            .env("CCLX_BULK_BYTES", 8192)
            .env("CCLX_MAX_WIRES", 3);
        let name = if algorithm == "oneshot" { "one-shot" } else { algorithm };
        group.run(|rank| check(rank, calls, name));
    }
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn two_ranks_one_shot_on_lines() {
    all("two_ranks_one_shot_on_lines", 2, "oneshot", "lines", &[8, 16, 64], 60);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn three_ranks_one_shot_on_lines() {
    all("three_ranks_one_shot_on_lines", 3, "oneshot", "lines", &[8, 64], 60);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn two_ranks_mesh_on_lines() {
    all("two_ranks_mesh_on_lines", 2, "mesh", "lines", &[8, 16, 64], 60);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn three_ranks_mesh_on_lines() {
    all("three_ranks_mesh_on_lines", 3, "mesh", "lines", &[8, 64], 60);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn five_ranks_mesh_on_lines() {
    all("five_ranks_mesh_on_lines", 5, "mesh", "lines", &[16], 30);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn three_ranks_one_shot_in_bulk() {
    all("three_ranks_one_shot_in_bulk", 3, "oneshot", "bulk", &[64], 60);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn two_ranks_mesh_in_bulk() {
    all("two_ranks_mesh_in_bulk", 2, "mesh", "bulk", &[64], 60);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn four_ranks_mesh_in_bulk() {
    all("four_ranks_mesh_in_bulk", 4, "mesh", "bulk", &[64], 30);
}

/// As SYCL queues launch them. Compiled without optimization, since nothing else has these modules compiled.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn two_ranks_with_one_argument_a_kernel() {
    let group = spirv::group("two_ranks_with_one_argument_a_kernel", 2).env("CCL_ALLREDUCE", "mesh");
    let group = group.env("CCLX_TRANSPORT", "lines").env("CCLX_GRANULE", 16).env("CCLX_PUSH_TILES", 4);
    group.env("CCLX_MAX_WIRES", 3).run(|rank| {
        hooks::PACKED.store(true, Relaxed);
        hooks::UNOPTIMIZED.set(vec![String::new()]).unwrap();
        check(rank, 30, "mesh");
    });
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn two_ranks_direct() {
    spirv::group("two_ranks_direct", 2).env("CCL_ALLREDUCE", "direct").run(|rank| check_direct(rank, 60));
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn three_ranks_direct() {
    spirv::group("three_ranks_direct", 3).env("CCL_ALLREDUCE", "direct").run(|rank| check_direct(rank, 60));
}
