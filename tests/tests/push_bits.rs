//! Every algorithm gives the bits of the scalar reference: one-shot and mesh on lines and in bulk, direct, and the ring.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::{Algorithm, Config, TransportChoice};
use ccl_core::plan::geometry::Geometry;
use ccl_core::plan::push::{Mode, Transport};
use ccl_core::plan::{Plan, Registered, Request};
use ccl_core::{DataType, Factor, Order, ReduceOp, reference};
use ccl_tests::local;
use ccl_tests::{Group, data};
use ccl_ze::{Buffer, Communicator, RegisteredBuffer, Stream};
use std::ffi::c_void;

const MAX_RANKS: usize = 8;

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", MAX_RANKS).env("ZE_SOFT_COMPUTE_UNITS", 8)
}

/// How calls go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Ring,
    Lines(Mode),
    Bulk(Mode),
    Direct,
}

const WAYS: [Way; 6] = [
    Way::Ring,
    Way::Lines(Mode::OneShot),
    Way::Lines(Mode::Mesh),
    Way::Bulk(Mode::OneShot),
    Way::Bulk(Mode::Mesh),
    Way::Direct,
];

fn config(way: Way, p2p: bool) -> Config {
    let (allreduce, transport) = match way {
        Way::Ring => (Algorithm::Ring, TransportChoice::Auto),
        Way::Lines(Mode::OneShot) => (Algorithm::OneShot, TransportChoice::Lines),
        Way::Lines(_) => (Algorithm::Mesh, TransportChoice::Lines),
        Way::Bulk(Mode::OneShot) => (Algorithm::OneShot, TransportChoice::Bulk),
        Way::Bulk(_) => (Algorithm::Mesh, TransportChoice::Bulk),
        Way::Direct => (Algorithm::Direct, TransportChoice::Auto),
    };
    // Small slots, so that short messages have several rounds.
    Config {
        allreduce,
        transport,
        staging_tiles: 4,
        push_tiles: 4,
        bulk_bytes: 4096,
        p2p_access: p2p,
        ..Config::default()
    }
}

/// A rank with its buffers, which are registered.
struct Rank {
    comm: Communicator,
    stream: Stream,
    send: Buffer<u8>,
    recv: Buffer<u8>,
    registered: [RegisteredBuffer<u8>; 2],
}

impl Rank {
    fn new(comm: Communicator, capacity: usize) -> Rank {
        let stream = comm.stream(0).unwrap();
        let (send, recv) = (comm.alloc(capacity).unwrap(), comm.alloc(capacity).unwrap());
        let registered = [comm.register(&send).unwrap(), comm.register(&recv).unwrap()];
        Rank { comm, stream, send, recv, registered }
    }

    /// The plan by which it went, and what came out.
    fn reduce(&mut self, way: Way, request: Request, input: &[u8], in_place: bool) -> (Plan, Vec<u8>) {
        // Not at the beginning, and the same distance on all ranks.
        let at = 64 * (request.count as usize % 3);
        self.send.write(&self.stream, &[&vec![0x55; at], input].concat()).unwrap();
        let target = usize::from(!in_place);
        let place = |buffer: usize| self.registered[buffer].range(at).unwrap();
        let registered = (way == Way::Direct).then(|| Registered { send: place(0), recv: place(target) });
        let request = Request { registered, ..request };
        let plan = self.comm.plan(&request).unwrap();
        let (send, recv) = (self.registered[0].as_ptr(), self.registered[target].as_ptr());
        let (send, recv): (*mut c_void, *mut c_void) = (send.wrapping_add(at).cast(), recv.wrapping_add(at).cast());
        // SAFETY: both buffers hold the message and live until the wait.
        let done = unsafe { self.comm.all_reduce_raw(&request, send, recv, &self.stream, &[]).unwrap() };
        done.wait().unwrap();
        let mut output = vec![0; at + input.len()];
        if in_place { &self.send } else { &self.recv }.read(&self.stream, &mut output).unwrap();
        (plan, output.split_off(at))
    }
}

fn check(n: usize, way: Way, p2p: bool, requests: &[Request]) {
    let capacity = requests.iter().map(|r| r.count as usize * r.dtype.size()).max().unwrap() + 128;
    local::ranks(n, &config(way, p2p), &StartState::default(), |comm| {
        let rank = comm.rank();
        let mut peer = Rank::new(comm, capacity);
        for (seed, request) in (0..).zip(requests) {
            let Request { count, dtype, op, order, period, .. } = *request;
            if way == Way::Direct && matches!(op, ReduceOp::PreMulSum(_)) {
                // Who doesn't know the others' factors can't reduce their inputs.
                let place = peer.registered[0].range(0).unwrap();
                let registered = Some(Registered { send: place, recv: place });
                let refused = count > 0 && n > 1;
                assert_eq!(peer.comm.plan(&Request { registered, ..*request }).is_err(), refused, "{request:?}");
                continue;
            }
            let input = |rank: usize| elements(dtype, seed, rank, count as usize);
            for in_place in [false, true] {
                let (plan, got) = peer.reduce(way, *request, &input(rank), in_place);
                match (&plan, way) {
                    (Plan::Empty, _) => assert_eq!(count, 0),
                    (Plan::Ring(_), Way::Ring) => {}
                    (Plan::Push(push), Way::Lines(mode)) => {
                        assert!(push.mode == mode && matches!(push.transport, Transport::Lines(_)), "{plan}");
                    }
                    (Plan::Push(push), Way::Bulk(mode)) => {
                        assert!(push.mode == mode && push.transport == Transport::Bulk, "{plan}");
                    }
                    (Plan::Push(push), Way::Direct) => assert_eq!(push.mode, Mode::Direct, "{plan}"),
                    _ => panic!("{way:?}: {plan}"),
                }
                // Every rank has the same output; a rank's turn to compare it comes round.
                if seed as usize % n == rank && count > 0 {
                    let inputs: Vec<_> = (0..n).map(input).collect();
                    let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
                    let geometry = Geometry::new(n, count, period, dtype.size()).unwrap();
                    let want = reference::all_reduce(&slices, dtype, op, order, &geometry);
                    let difference = data::first_difference(&got, &want, dtype);
                    assert_eq!(difference, None, "rank {rank}, in place: {in_place}, {plan}");
                }
            }
        }
    });
}

/// Elements of any bit pattern; of floats with NaN, infinities, subnormals and halfway cases among them.
fn elements(dtype: DataType, seed: u64, rank: usize, count: usize) -> Vec<u8> {
    match dtype {
        DataType::Bfloat16 | DataType::Float16 | DataType::Float32 if seed.is_multiple_of(2) => {
            data::wild(dtype, seed, rank, count)
        }
        DataType::Bfloat16 | DataType::Float16 | DataType::Float32 => data::ordinary(dtype, seed, rank, count),
        _ => {
            let special = [0u64, 1, 0x7FF0 << 48, 0xFFF0 << 48, 0x7FF8 << 48 | 1, 0x3FF0 << 48, 0xBFF0 << 48, !0];
            let element = |i: u64| {
                let (low, high) = (data::word(seed, rank, 2 * i), data::word(seed, rank, 2 * i + 1));
                match low & 7 {
                    0 => special[high as usize % special.len()],
                    // Equal on all ranks; near 1 if it is a float.
                    1 => (0x3FF0 << 48) + i,
                    _ => u64::from(low) | u64::from(high) << 32,
                }
            };
            (0..count as u64).flat_map(|i| element(i).to_le_bytes()[..dtype.size()].to_vec()).collect()
        }
    }
}

fn ops(dtype: DataType) -> Vec<ReduceOp> {
    let three = match dtype {
        DataType::Float16 => 0x4200,
        DataType::Bfloat16 => 0x4040,
        DataType::Float32 => 0x4040_0000,
        DataType::Float64 => 0x4008_0000_0000_0000,
        _ => 3,
    };
    ReduceOp::ALL.into_iter().chain([ReduceOp::PreMulSum(Factor::new(dtype, three))]).collect()
}

fn request(dtype: DataType, op: ReduceOp, order: Order, count: u64) -> Request {
    Request { count, dtype, op, order, period: None, registered: None }
}

/// Every type with every reduction, in both orders, of lengths around those of blocks, lines and slots.
fn sweep(test: &str, n: usize) {
    process(test).limit(std::time::Duration::from_secs(300)).run(|_| {
        for way in WAYS {
            let orders: &[Order] = if way == Way::Ring { &[Order::Ring] } else { &[Order::Ring, Order::Rank] };
            let mut requests = Vec::new();
            let mut turn = n as u64;
            for dtype in DataType::ALL {
                for op in ops(dtype) {
                    for &order in orders {
                        // Different lengths for each, and all of 0 to 130 in the end.
                        for _ in 0..3 {
                            turn += 1;
                            requests.push(request(dtype, op, order, turn * 37 % 131));
                        }
                        let edges = [255, 256, 257, 1023, 1024, 1025, 4099, 8191, 8193, 20_011];
                        requests.push(request(dtype, op, order, edges[turn as usize % edges.len()]));
                        // Rows.
                        let period = Some([1, 100, 257][turn as usize % 3]);
                        requests.push(Request { period, ..request(dtype, op, order, 1000 + turn % 300) });
                    }
                }
            }
            check(n, way, true, &requests);
        }
    });
}

#[test]
fn two_ranks() {
    sweep("two_ranks", 2);
}

#[test]
fn three_ranks() {
    sweep("three_ranks", 3);
}

#[test]
fn five_ranks() {
    sweep("five_ranks", 5);
}

#[test]
fn eight_ranks() {
    sweep("eight_ranks", 8);
}

/// Without access from device to device everything goes by host memory, and there is no direct call.
#[test]
fn host_staging() {
    process("host_staging").run(|_| {
        for way in WAYS.into_iter().filter(|way| *way != Way::Direct) {
            let counts = [1, 130, 4099, 20_011];
            let requests = counts.map(|count| request(DataType::Bfloat16, ReduceOp::Sum, Order::Ring, count));
            for n in [2, 3] {
                let capacity = 64 << 10;
                local::ranks(n, &config(way, false), &StartState::default(), |comm| {
                    assert!(!comm.describe().p2p);
                    let rank = comm.rank();
                    let buffer = comm.alloc::<f32>(capacity).unwrap();
                    assert!(!comm.register(&buffer).unwrap().is_direct());
                    let mut peer = local::Peer::new(comm, capacity);
                    for (seed, request) in (0..).zip(&requests) {
                        let count = request.count as usize;
                        let inputs: Vec<_> = (0..n).map(|r| data::wild(request.dtype, seed, r, count)).collect();
                        let got = peer.reduce(request, &inputs[rank], false).unwrap();
                        let want = data::expected(request.dtype, &inputs, None);
                        assert_eq!(data::first_difference(&got, &want, request.dtype), None);
                    }
                });
            }
        }
    });
}

/// A message of many rounds.
#[test]
fn long_messages() {
    process("long_messages").limit(std::time::Duration::from_secs(300)).run(|_| {
        for (n, dtype) in [(2, DataType::Float32), (3, DataType::Bfloat16)] {
            for way in [Way::Bulk(Mode::OneShot), Way::Bulk(Mode::Mesh), Way::Direct] {
                check(n, way, true, &[request(dtype, ReduceOp::Sum, Order::Ring, 10_556_587)]);
            }
        }
    });
}

/// A message beyond 2^32 bytes, where an offset of 32 bits would begin anew. Needs 9 GB of memory.
#[test]
#[ignore = "9 GB of memory; .ci runs it"]
fn beyond_four_gibibytes() {
    process("beyond_four_gibibytes").limit(std::time::Duration::from_secs(600)).run(|_| {
        const COUNT: usize = (1 << 32) + 1_000_003;
        let element =
            |rank: usize, i: usize| (i as u32 ^ (i >> 32) as u32).wrapping_mul(0x9E37_79B1 + 2 * rank as u32) >> 24;
        for way in [Way::Bulk(Mode::Mesh), Way::Bulk(Mode::OneShot), Way::Direct] {
            let config = Config { bulk_bytes: 256 << 10, ..config(way, true) };
            local::ranks(2, &config, &StartState::default(), |comm| {
                let (rank, stream) = (comm.rank(), comm.stream(0).unwrap());
                let buffer = comm.alloc::<u8>(COUNT).unwrap();
                let handle = comm.register(&buffer).unwrap();
                // SAFETY: the software device's memory is the host's, and nothing else uses it now.
                let memory = unsafe { std::slice::from_raw_parts_mut(buffer.as_ptr(), COUNT) };
                for (i, byte) in memory.iter_mut().enumerate() {
                    *byte = element(rank, i) as u8;
                }
                let place = handle.range(0).filter(|_| way == Way::Direct);
                let registered = place.map(|place| Registered { send: place, recv: place });
                let request = request(DataType::Uint8, ReduceOp::Sum, Order::Ring, COUNT as u64);
                let request = Request { registered, ..request };
                let address: *mut c_void = buffer.as_ptr().cast();
                // SAFETY: the buffer holds the message and lives until the wait.
                unsafe { comm.all_reduce_raw(&request, address, address, &stream, &[]).unwrap().wait().unwrap() };
                let wrong = (0..COUNT).find(|&i| memory[i] != (element(0, i) + element(1, i)) as u8);
                assert_eq!(wrong, None, "{}", comm.plan(&request).unwrap());
            });
        }
    });
}
