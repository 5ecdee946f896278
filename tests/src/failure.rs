//! What tests of failures share: stamps that compare between processes, and what a survivor must find.

use crate::Rank;
use crate::group::Ended;
use ccl_core::bootstrap::{RootOptions, UNIQUE_ID_BYTES, UniqueId};
use ccl_core::{Error, ReduceOp};
use ccl_ze::{Buffer, Communicator, Stream};
use std::time::{Duration, Instant};

/// Nanoseconds of the clock that all processes of this machine share.
pub fn stamp() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a monotonic clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

impl Rank {
    /// Tells `key` with the time of now.
    pub fn mark(&self, key: &str) {
        self.say(format_args!("{key} {}", stamp()));
    }
}

impl Ended {
    /// What the rank said after `key`, each time it did.
    pub fn said(&self, key: &str) -> Vec<&str> {
        let found = self.output.lines().filter_map(|line| {
            // Not at the start of the line if the test harness has written before it.
            let (_, rest) = line.split_once("] ")?;
            rest.strip_prefix(key)?.strip_prefix(' ')
        });
        found.collect()
    }

    /// The one stamp that it said with `key`.
    pub fn stamped(&self, key: &str) -> u64 {
        let said = self.said(key);
        match said[..] {
            [stamp] => stamp.parse().expect("a stamp"),
            _ => panic!("`{key}` was said {} times, not once:\n{}", said.len(), self.output),
        }
    }
}

/// Ends this process as `kill -9` would.
pub fn die() -> ! {
    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    unreachable!("SIGKILL can't be outlived")
}

/// A call that is to fail, waited for: what it met, stamped as `failed`.
pub fn failing_call(rank: &Rank, comm: &Communicator, buffer: &mut Buffer<f32>, stream: &Stream) -> Error {
    let met = comm.all_reduce_in_place(buffer, ReduceOp::Sum, stream).and_then(|done| done.wait());
    rank.mark("failed");
    let error = met.expect_err("a failure");
    rank.say(format_args!("error {error}"));
    error
}

/// What the communicator has failed by, as soon as it has.
pub fn fault(comm: &Communicator, within: Duration) -> Error {
    let since = Instant::now();
    loop {
        if let Some(error) = comm.fault() {
            return error;
        }
        assert!(since.elapsed() < within, "rank {} is not told", comm.rank());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether all bytes of the buffer are 0xFF, read through the device.
pub fn is_failed_output(buffer: &Buffer<f32>, stream: &Stream) -> bool {
    let mut words = vec![0f32; buffer.len()];
    buffer.read(stream, &mut words).expect("reading the output");
    words.iter().all(|word| word.to_bits() == u32::MAX)
}

/// The output is all 0xFF, later calls give the same error, and they reach the device no more.
pub fn check_poisoned(comm: &Communicator, buffer: &mut Buffer<f32>, stream: &Stream, error: &Error) {
    assert!(is_failed_output(buffer, stream), "the output of a failed collective is filled with 0xFF");
    check_sticky(comm, buffer, stream, error);
}

/// Later calls give the same error, and they reach the device no more.
pub fn check_sticky(comm: &Communicator, buffer: &mut Buffer<f32>, stream: &Stream, error: &Error) {
    assert_eq!(comm.fault().as_ref(), Some(error));
    let before = comm.level_zero_calls();
    for _ in 0..3 {
        let again = comm.all_reduce_in_place(buffer, ReduceOp::Sum, stream).map(drop);
        assert_eq!(again.as_ref(), Err(error), "a poisoned communicator repeats its failure");
    }
    assert_eq!(comm.level_zero_calls(), before, "nothing is enqueued on a poisoned communicator");
}

/// A bound that holds in the best of the attempts, a wider one that holds in each. The rest is other people's load.
pub fn check_latency(what: &str, took: &[Duration], best: Duration, each: Duration) {
    eprintln!("{what}: {took:.1?}");
    let (least, most) = (took.iter().min().expect("attempts"), took.iter().max().expect("attempts"));
    assert!(*least <= best, "{what}: {took:?}, and not once within {best:?}");
    assert!(*most <= each, "{what}: {took:?}, and not each within {each:?}");
}

/// An id that rank 0 makes and the others learn through a sum in which they add nothing.
pub fn share_id(rank: &Rank, comm: &Communicator, stream: &Stream, options: RootOptions) -> UniqueId {
    let mut bytes = [0u8; UNIQUE_ID_BYTES];
    if rank.rank == 0 {
        bytes = *UniqueId::create(options).expect("a unique id").as_bytes();
    }
    let mut words: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte)).collect();
    let mut buffer = comm.alloc::<f32>(words.len()).expect("device memory");
    buffer.write(stream, &words).expect("writing the id");
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, stream).and_then(|done| done.wait()).expect("sharing the id");
    buffer.read(stream, &mut words).expect("reading the id");
    for (byte, word) in bytes.iter_mut().zip(&words) {
        *byte = *word as u8;
    }
    UniqueId::from_bytes(bytes)
}
