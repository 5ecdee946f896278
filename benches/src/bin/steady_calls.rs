//! Calls in the steady state, for an instruction counter: `.ci/instructions.sh` runs this under callgrind, which counts
//! from entry to exit of [`ccl_steady_calls`] and leaves what each window took.
//!
//! `steady_calls RANKS BYTES [EXTRA]`: EXTRA adds that many turns of an empty loop to each call, to show that the count
//! would rise.
#![allow(unsafe_code, reason = "a symbol that the counter finds, and raw addresses")]

use ccl_core::bootstrap::{RootOptions, UniqueId};
use ccl_core::config::Config;
use ccl_core::plan::Request;
use ccl_core::{DataType, ReduceOp};
use ccl_ze::{Buffer, Communicator, Stream};
use std::error::Error;
use std::process::Command;

/// As many windows, each of as many calls (the script knows the latter).
const WINDOWS: usize = 8;
const CALLS: usize = 50;
const WARMUP: usize = 50;

struct Steady {
    stream: Stream,
    send: Buffer<u8>,
    recv: Buffer<u8>,
    comm: Communicator,
    request: Request,
    extra: u64,
}

/// What is counted: submit and wait, again and again.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ccl_steady_calls(steady: &Steady, calls: usize) -> bool {
    (0..calls).all(|_| {
        (0..steady.extra).for_each(|turn| {
            std::hint::black_box(turn);
        });
        let (send, recv) = (steady.send.as_ptr().cast_const().cast(), steady.recv.as_ptr().cast());
        // SAFETY: both buffers hold the message and live as long as the stream.
        let done = unsafe { steady.comm.all_reduce_raw(&steady.request, send, recv, &steady.stream, &[]) };
        done.and_then(|done| done.wait()).is_ok()
    })
}

fn rank(rank: usize, ranks: usize, bytes: usize, extra: u64) -> Result<(), Box<dyn Error>> {
    let hex = std::env::var("STEADY_ID")?;
    let id: Result<Vec<u8>, _> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16)).collect();
    let id = UniqueId::from_bytes(id?.try_into().map_err(|_| "STEADY_ID is no unique id")?);
    let comm = Communicator::builder_with(Config::from_env()?).init(&id, rank, ranks)?;
    let (stream, mut send, recv) = (comm.stream(0)?, comm.alloc::<u8>(bytes)?, comm.alloc::<u8>(bytes)?);
    let input: Vec<f32> = (0..bytes / 4).map(|position| (rank * 1000 + position % 1000) as f32).collect();
    let input: Vec<u8> = input.iter().flat_map(|value| value.to_ne_bytes()).collect();
    send.write(&stream, &input)?;
    let request = comm.request((bytes / 4) as u64, DataType::Float32, ReduceOp::Sum);
    let steady = Steady { stream, send, recv, comm, request, extra };
    for _ in 0..WINDOWS {
        // Not counted: the counter has more than one window's worth of threads to put in order after each.
        for _ in 0..WARMUP {
            // SAFETY: as in `ccl_steady_calls`.
            let done = unsafe {
                let (send, recv) = (steady.send.as_ptr().cast_const().cast(), steady.recv.as_ptr().cast());
                steady.comm.all_reduce_raw(&steady.request, send, recv, &steady.stream, &[])
            };
            done?.wait()?;
        }
        if !ccl_steady_calls(&steady, CALLS) {
            return Err("a call failed".into());
        }
    }
    let mut output = vec![0; bytes];
    steady.recv.read(&steady.stream, &mut output)?;
    let right = |position: usize| (0..ranks).map(|rank| (rank * 1000 + position % 1000) as f32).sum::<f32>();
    let is = |bytes: &[u8]| bytes.try_into().map(f32::from_ne_bytes);
    if !output.chunks_exact(4).enumerate().all(|(position, bytes)| is(bytes).is_ok_and(|is| is == right(position))) {
        return Err("a wrong sum".into());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> Result<usize, Box<dyn Error>> {
        Ok(arguments.get(at).ok_or("usage: steady_calls RANKS BYTES [EXTRA]")?.parse()?)
    };
    let (ranks, bytes, extra) = (number(0)?, number(1)?, number(2).unwrap_or(0));
    if let Ok(number) = std::env::var("STEADY_RANK") {
        return rank(number.parse()?, ranks, bytes, extra as u64);
    }
    // Slow as everything is under a counter, ranks take their time to meet.
    let id = UniqueId::create(RootOptions::default())?;
    let hex: String = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&arguments).env("STEADY_ID", &hex).env("STEADY_RANK", rank.to_string());
        command.env("LOCAL_RANK", rank.to_string()).env("ZE_SOFT_DEVICES", ranks.max(2).to_string()).spawn()
    };
    let children: Result<Vec<_>, _> = (0..ranks).map(start).collect();
    for mut child in children? {
        if !child.wait()?.success() {
            return Err("a rank failed".into());
        }
    }
    Ok(())
}
