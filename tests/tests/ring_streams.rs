//! Several streams and several communicators on one device.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{self, Bfloat16, Float32};
use ccl_core::comm::StartState;
use ccl_core::config::{Config, EventChoice};
use ccl_core::{ReduceOp, bootstrap};
use ccl_tests::data::word;
use ccl_tests::local::{self, sum};
use ccl_tests::{Group, data};
use ccl_ze::{Buffer, Communicator, Completion, Stream};

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 4)
}

fn configs() -> [Config; 2] {
    [EventChoice::Counter, EventChoice::Regular].map(|events| Config { events, staging_tiles: 16, ..Config::default() })
}

/// One call in flight.
struct Flight {
    dtype: DataType,
    seed: u64,
    count: usize,
    buffer: Buffer<u8>,
    completion: Completion,
}

impl Flight {
    fn start(comm: &Communicator, stream: &Stream, dtype: DataType, seed: u64, count: usize) -> Flight {
        let input = data::ordinary(dtype, seed, comm.rank(), count);
        let mut buffer: Buffer<u8> = comm.alloc(input.len()).unwrap();
        // Written on a stream of its own: the copy's wait must not order the calls.
        buffer.write(&comm.stream(0).unwrap(), &input).unwrap();
        let at = buffer.as_ptr().cast();
        // SAFETY: the buffer holds the message and lives until `finish`.
        let completion = unsafe { comm.all_reduce_raw(&sum(dtype, count), at, at, stream, &[]).unwrap() };
        Flight { dtype, seed, count, buffer, completion }
    }

    fn finish(self, comm: &Communicator, stream: &Stream) {
        self.completion.wait().unwrap();
        let mut got = vec![0; self.count * self.dtype.size()];
        self.buffer.read(stream, &mut got).unwrap();
        let inputs: Vec<_> =
            (0..comm.world_size()).map(|r| data::ordinary(self.dtype, self.seed, r, self.count)).collect();
        let difference = data::first_difference(&got, &data::expected(self.dtype, &inputs, None), self.dtype);
        assert_eq!(difference, None, "rank {}, call {} of {} {}", comm.rank(), self.seed, self.count, self.dtype);
    }
}

fn message(seed: u64) -> (DataType, usize) {
    let random = word(seed, 0, 1) as usize;
    let most = if random.is_multiple_of(5) { 60_000 } else { 600 };
    (if random.is_multiple_of(2) { Bfloat16 } else { Float32 }, 1 + random / 10 % most)
}

#[test]
fn two_streams_take_turns_on_one_communicator() {
    process("two_streams_take_turns_on_one_communicator").run(|_| {
        for config in configs() {
            for n in [2, 3] {
                local::ranks(n, &config, &StartState::default(), |comm| {
                    let streams = [comm.stream(0).unwrap(), comm.stream(1).unwrap()];
                    let flights: Vec<_> = (0..300u64)
                        .map(|seed| {
                            let (dtype, count) = message(seed);
                            Flight::start(&comm, &streams[seed as usize % 2], dtype, seed, count)
                        })
                        .collect();
                    for flight in flights {
                        flight.finish(&comm, &streams[0]);
                    }
                });
            }
        }
    });
}

/// The chain orders calls of different streams, so each may work on what the one before left.
#[test]
fn a_call_sees_what_the_one_before_left_on_another_stream() {
    process("a_call_sees_what_the_one_before_left_on_another_stream").run(|_| {
        const CALLS: usize = 6;
        for n in [2, 4] {
            local::ranks(n, &Config::default(), &StartState::default(), |comm| {
                let streams = [comm.stream(0).unwrap(), comm.stream(1).unwrap()];
                let mut buffer = comm.alloc::<f32>(5000).unwrap();
                let input: Vec<f32> = (0..5000).map(|i| (i % 97 + comm.rank()) as f32).collect();
                buffer.write(&streams[0], &input).unwrap();
                let mut last = None;
                for call in 0..CALLS {
                    last = Some(comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &streams[call % 2]).unwrap());
                }
                last.unwrap().wait().unwrap();
                let mut got = vec![0f32; 5000];
                buffer.read(&streams[0], &mut got).unwrap();
                // Small integers: exact. The first call sums the ranks, each further one multiplies by n.
                let factor = n.pow(CALLS as u32 - 1) as f32;
                for (i, got) in got.into_iter().enumerate() {
                    let first: usize = (0..n).map(|rank| i % 97 + rank).sum();
                    assert_eq!(got, first as f32 * factor, "element {i}");
                }
            });
        }
    });
}

#[test]
fn two_communicators_take_turns_on_one_device() {
    process("two_communicators_take_turns_on_one_device").run(|_| {
        for config in configs() {
            for n in [2, 3] {
                let meshes =
                    std::sync::Mutex::new(bootstrap::local(n).unwrap().into_iter().map(Some).collect::<Vec<_>>());
                local::ranks(n, &config, &StartState::default(), |first| {
                    let mesh = meshes.lock().unwrap()[first.rank()].take().unwrap();
                    let builder = Communicator::builder_with(config.clone()).device(first.rank());
                    let comms = [first, builder.init_local(mesh).unwrap()];
                    let streams = [comms[0].stream(0).unwrap(), comms[1].stream(1).unwrap()];
                    // Any order will do that is the same on all ranks.
                    let flights: Vec<_> = (0..300u64)
                        .map(|seed| {
                            let (dtype, count) = message(seed);
                            let (which, stream) = (word(seed, 1, 0) as usize % 2, word(seed, 1, 1) as usize % 2);
                            (which, Flight::start(&comms[which], &streams[stream], dtype, seed, count))
                        })
                        .collect();
                    for (which, flight) in flights {
                        flight.finish(&comms[which], &streams[0]);
                    }
                });
            }
        }
    });
}
