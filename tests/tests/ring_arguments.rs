//! Calls that are refused: by name, before anything is enqueued, and without harm to the communicator.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{Bfloat16, Float32, Float64, Int32, Uint64};
use ccl_core::comm::StartState;
use ccl_core::config::{Algorithm, Config};
use ccl_core::plan::Request;
use ccl_core::{Error, Factor, Order, ReduceOp, bootstrap};
use ccl_tests::local::{self, sum};
use ccl_tests::{Group, data};
use ccl_ze::{Buffer, Communicator, Stream};
use std::ffi::c_void;

const COUNT: usize = 1000;

/// A communicator, its stream, and memory for messages.
struct Bench {
    comm: Communicator,
    stream: Stream,
    arena: Buffer<u8>,
    calls: u64,
}

impl Bench {
    fn new(comm: Communicator) -> Bench {
        let (stream, arena) = (comm.stream(0).unwrap(), comm.alloc(16 * COUNT).unwrap());
        Bench { comm, stream, arena, calls: 0 }
    }

    /// An address in the arena.
    fn at(&self, byte: usize) -> *mut c_void {
        self.arena.as_ptr().wrapping_byte_add(byte).cast()
    }

    /// Makes a call that must be refused with an error that `is` knows and that has `words` in it, and then one that
    /// must work.
    fn refused(
        &mut self,
        request: &Request,
        send: *mut c_void,
        recv: *mut c_void,
        is: fn(&Error) -> bool,
        words: &[&str],
    ) {
        let before = self.comm.level_zero_calls();
        // SAFETY: refused, or else the arena holds any of these messages and outlives the stream's work.
        let error = unsafe { self.comm.all_reduce_raw(request, send, recv, &self.stream, &[]) }.err();
        let enqueued = self.comm.level_zero_calls() - before;
        self.check(error, is, words);
        assert_eq!(enqueued, 0, "Level Zero calls of a refused call");
        self.works();
    }

    fn check(&self, error: Option<Error>, is: fn(&Error) -> bool, words: &[&str]) {
        let error = error.expect("a call that must be refused was not");
        assert!(is(&error), "{error:?}");
        for word in words {
            assert!(error.to_string().contains(word), "no {word:?} in: {error}");
        }
        assert!(self.comm.fault().is_none());
    }

    fn works(&mut self) {
        self.calls += 1;
        let inputs: Vec<_> =
            (0..self.comm.world_size()).map(|r| data::ordinary(Float32, self.calls, r, COUNT)).collect();
        self.arena.write(&self.stream, &inputs[self.comm.rank()]).unwrap();
        let (send, recv) = (self.at(0), self.at(4 * COUNT));
        // SAFETY: both messages lie in the arena, side by side, and the call is waited for.
        unsafe {
            let done = self.comm.all_reduce_raw(&sum(Float32, COUNT), send, recv, &self.stream, &[]).unwrap();
            done.wait().unwrap();
        }
        let mut got = vec![0; 8 * COUNT];
        self.arena.read(&self.stream, &mut got).unwrap();
        assert_eq!(got[4 * COUNT..], data::expected(Float32, &inputs, None));
    }
}

fn argument(error: &Error) -> bool {
    matches!(error, Error::InvalidArgument(_))
}

fn not_there(error: &Error) -> bool {
    matches!(error, Error::NotImplemented(_))
}

fn usage(error: &Error) -> bool {
    matches!(error, Error::InvalidUsage(_))
}

fn on_ranks(test: &str, body: impl Fn(Bench) + Sync) {
    let config = Config { allreduce: Algorithm::Ring, ..Config::default() };
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 4).run(|_| {
        for n in [1, 3] {
            local::ranks(n, &config, &StartState::default(), |comm| {
                let mut bench = Bench::new(comm);
                bench.works();
                body(bench);
            });
        }
    });
}

#[test]
fn buffers_that_overlap_in_part_are_refused() {
    on_ranks("buffers_that_overlap_in_part_are_refused", |mut bench| {
        let request = sum(Float32, COUNT);
        for (send, recv) in [(0, 4), (4, 0), (0, 4 * COUNT - 4), (4 * COUNT - 4, 0)] {
            let (send, recv) = (bench.at(send), bench.at(recv));
            bench.refused(&request, send, recv, argument, &["overlap", "in place"]);
        }
    });
}

#[test]
fn addresses_that_cannot_be_are_refused() {
    on_ranks("addresses_that_cannot_be_are_refused", |mut bench| {
        let (request, wide) = (sum(Float32, COUNT), bench.at(8 * COUNT));
        for byte in [1, 2, 3] {
            let off = bench.at(byte);
            bench.refused(&request, off, wide, argument, &["send", "aligned", "float32"]);
            bench.refused(&request, wide, off, argument, &["receive", "aligned", "float32"]);
        }
        bench.refused(&sum(Bfloat16, COUNT), bench.at(1), wide, argument, &["send", "aligned", "bfloat16"]);
        bench.refused(&request, std::ptr::null_mut(), wide, argument, &["send", "null"]);
        bench.refused(&request, wide, std::ptr::null_mut(), argument, &["receive", "null"]);
        bench.refused(&Request { count: 1 << 62, ..request }, bench.at(0), wide, argument, &["count"]);
        bench.refused(&Request { period: Some(0), ..request }, bench.at(0), wide, argument, &["period"]);
    });
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    on_ranks("what_cannot_be_is_refused_by_name", |mut bench| {
        let (send, recv) = (bench.at(0), bench.at(8 * COUNT));
        let request = sum(Float32, COUNT);
        if bench.comm.world_size() > 1 {
            bench.refused(
                &Request { order: Order::Rank, ..request },
                send,
                recv,
                not_there,
                &["order=rank", "by algorithm ring"],
            );
        }
        let by = |dtype, bits| ReduceOp::PreMulSum(Factor::new(dtype, bits));
        for (op, dtype, words) in [
            (by(Int32, 2), Float32, ["factor of int32", "float32"]),
            (by(Float64, 2), Int32, ["factor of float64", "int32"]),
            (by(Int32, 1 << 31), Uint64, ["factor of int32", "range"]),
        ] {
            bench.refused(&Request { op, ..sum(dtype, COUNT) }, send, recv, argument, &words);
        }
    });
}

#[test]
fn another_devices_stream_and_buffers_are_refused() {
    on_ranks("another_devices_stream_and_buffers_are_refused", |mut bench| {
        let mesh = bootstrap::local(1).unwrap().remove(0);
        let other = Communicator::builder_with(Config::default()).device(3).init_local(mesh).unwrap();
        let stream = other.stream(0).unwrap();
        let mut own = [0; 2].map(|_| bench.comm.alloc::<f32>(COUNT).unwrap());
        let mut foreign = other.alloc::<f32>(COUNT).unwrap();
        let [send, recv] = &mut own;

        let error = bench.comm.all_reduce(send, recv, ReduceOp::Sum, &stream).err();
        bench.check(error, usage, &["stream", "device 3"]);
        bench.works();
        let error = bench.comm.all_reduce(send, &mut foreign, ReduceOp::Sum, &bench.stream).err();
        bench.check(error, usage, &["receive", "another device"]);
        bench.works();
        let error = bench.comm.all_reduce(&foreign, recv, ReduceOp::Sum, &bench.stream).err();
        bench.check(error, usage, &["send", "another device"]);
        bench.works();
        let done = bench.comm.all_reduce_in_place(recv, ReduceOp::Sum, &bench.stream).unwrap();
        bench.check(done.order(&stream).err(), usage, &["stream", "device 3"]);
        done.wait().unwrap();
        bench.works();
        let mut short = bench.comm.alloc::<f32>(COUNT - 1).unwrap();
        let error = bench.comm.all_reduce(send, &mut short, ReduceOp::Sum, &bench.stream).err();
        bench.check(error, argument, &["1000", "999"]);
        bench.works();
    });
}

/// Nothing but a completion: null buffers are fine.
#[test]
fn no_element_is_no_error() {
    on_ranks("no_element_is_no_error", |mut bench| {
        let none = std::ptr::null_mut();
        for dtype in [Bfloat16, Float32] {
            // SAFETY: no element is accessed.
            unsafe {
                bench.comm.all_reduce_raw(&sum(dtype, 0), none, none, &bench.stream, &[]).unwrap().wait().unwrap()
            };
        }
        bench.works();
    });
}
