//! Calls back to back on the device, where no host is in between: what a call costs a model's graph.
//!
//! `back_to_back RANKS MODE BYTES[,BYTES...] [CALLS] [REPLAYS]` starts the ranks. MODE is `graph`, CALLS calls recorded and
//! replayed; `eager`, as many appended one after the other and waited for in the end; or, as the floor below both, `copy`,
//! as `graph` with copies within the device in the calls' place. Rank 0 prints a line of JSON for each size: the median
//! over the REPLAYS of a replay's time divided by its calls, in microseconds, and the least. Results are checked: inputs
//! are whole numbers, so that every order of summation has the same bits.
#![allow(unsafe_code, reason = "raw addresses")]

use ccl_core::bootstrap::{RootOptions, UniqueId};
use ccl_core::config::Config;
use ccl_core::{DataType, ReduceOp};
use ccl_ze::{Buffer, CallOptions, Communicator, Stream};
use serde::Serialize;
use std::error::Error;
use std::process::Command;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: back_to_back RANKS graph|eager|copy BYTES[,BYTES...] [CALLS] [REPLAYS]";

/// What is measured.
struct Job {
    ranks: usize,
    mode: String,
    sizes: Vec<usize>,
    calls: usize,
    replays: usize,
}

/// One size's result.
#[derive(Serialize)]
struct Line {
    mode: String,
    ranks: usize,
    bytes: usize,
    calls: usize,
    plan: String,
    device: String,
    median_us: f64,
    least_us: f64,
    right: bool,
}

impl Job {
    fn parse(arguments: &[String]) -> Outcome<Self> {
        let get = |at: usize| arguments.get(at).ok_or(USAGE);
        let sizes = get(2)?.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let calls = arguments.get(3).map_or(Ok(100), |text| text.parse())?;
        let replays = arguments.get(4).map_or(Ok(50), |text| text.parse())?;
        Ok(Self { ranks: get(0)?.parse()?, mode: get(1)?.clone(), sizes, calls, replays })
    }
}

fn value(rank: usize, position: usize) -> f32 {
    ((rank + 1) * (position % 61 + 1)) as f32
}

struct Bench<'a> {
    job: &'a Job,
    comm: &'a Communicator,
    stream: Stream,
    send: Buffer<f32>,
    recv: Buffer<f32>,
}

impl Bench<'_> {
    /// Appends one call.
    fn append(&self, count: usize) -> Outcome<()> {
        let (from, to) = (self.send.as_ptr(), self.recv.as_ptr());
        // SAFETY: both buffers hold the message and live as long as the stream.
        unsafe {
            if self.job.mode == "copy" {
                self.stream.copy(to.cast(), from.cast_const().cast(), count * 4, &[])?;
            } else {
                let request = self.comm.request(count as u64, DataType::Float32, ReduceOp::Sum);
                drop(self.comm.all_reduce_raw(&request, from.cast_const().cast(), to.cast(), &self.stream, &[])?);
            }
        }
        Ok(())
    }

    fn measure(&mut self, bytes: usize) -> Outcome<Line> {
        let (job, count, rank) = (self.job, bytes / 4, self.comm.rank());
        let input: Vec<f32> = (0..count).map(|position| value(rank, position)).collect();
        let mut image = vec![0.0; self.send.len()];
        image[..count].copy_from_slice(&input);
        self.send.write(&self.stream, &image)?;
        let graph = if job.mode == "eager" {
            None
        } else {
            self.stream.begin_capture()?;
            let appended = (0..job.calls).try_for_each(|_| self.append(count));
            let graph = self.stream.end_capture()?;
            appended?;
            Some(graph.instantiate()?)
        };
        let mut samples = Vec::with_capacity(job.replays);
        for replay in 0..job.replays + 3 {
            let begun = Instant::now();
            match &graph {
                // SAFETY: what was recorded uses the buffers, which live on.
                Some(graph) => unsafe { graph.launch(&self.stream, CallOptions::default()) }?.wait()?,
                None => {
                    (0..job.calls).try_for_each(|_| self.append(count))?;
                    self.stream.synchronize()?;
                }
            }
            // The first are to warm up.
            if replay >= 3 {
                samples.push(begun.elapsed().as_secs_f64() * 1e6 / job.calls as f64);
            }
        }
        self.recv.read(&self.stream, &mut image)?;
        let sum = |position| match job.mode.as_str() {
            "copy" => value(rank, position),
            _ => (0..job.ranks).map(|rank| value(rank, position)).sum(),
        };
        let right = image[..count].iter().enumerate().all(|(position, got)| *got == sum(position));
        samples.sort_by(f64::total_cmp);
        let request = self.comm.request(count as u64, DataType::Float32, ReduceOp::Sum);
        let plan = if job.mode == "copy" { "copy".into() } else { self.comm.plan(&request)?.to_string() };
        Ok(Line {
            mode: job.mode.clone(),
            ranks: job.ranks,
            bytes,
            calls: job.calls,
            plan,
            device: self.comm.describe().device,
            median_us: samples[samples.len() / 2],
            least_us: samples[0],
            right,
        })
    }
}

fn rank(job: &Job, rank: usize) -> Outcome<()> {
    let hex = std::env::var("BENCH_ID")?;
    let id: Result<Vec<u8>, _> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16)).collect();
    let id = UniqueId::from_bytes(id?.try_into().map_err(|_| "BENCH_ID is no unique id")?);
    let comm = Communicator::builder_with(Config::from_env()?).init(&id, rank, job.ranks)?;
    let most = job.sizes.iter().copied().max().unwrap_or(4) / 4;
    let (stream, send, recv) = (comm.stream(0)?, comm.alloc::<f32>(most)?, comm.alloc::<f32>(most)?);
    let mut bench = Bench { job, comm: &comm, stream, send, recv };
    for bytes in &job.sizes {
        let line = bench.measure(*bytes)?;
        if rank == 0 {
            println!("{}", serde_json::to_string(&line)?);
        }
        if !line.right {
            return Err(format!("rank {rank}: a wrong result of {bytes} bytes").into());
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let job = Job::parse(&arguments)?;
    if let Ok(number) = std::env::var("BENCH_RANK") {
        return rank(&job, number.parse()?);
    }
    let id = UniqueId::create(RootOptions::default())?;
    let hex: String = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&arguments).env("BENCH_ID", &hex).env("BENCH_RANK", rank.to_string());
        let devices = std::env::var("ZE_SOFT_DEVICES").unwrap_or_else(|_| job.ranks.max(2).to_string());
        command.env("LOCAL_RANK", rank.to_string()).env("ZE_SOFT_DEVICES", devices).spawn()
    };
    let children: Result<Vec<_>, _> = (0..job.ranks).map(start).collect();
    let mut failed = false;
    for mut child in children? {
        failed |= !child.wait()?.success();
    }
    if failed { Err("a rank failed".into()) } else { Ok(()) }
}
