//! Calls back to back on the device, where no host is in between: what a call costs a model's graph.
//!
//! `back_to_back RANKS MODE BYTES[,BYTES...] [CALLS] [REPLAYS]` starts the ranks. MODE is `graph`, CALLS calls recorded and
//! replayed; `eager`, as many appended one after the other and waited for in the end; or, as the floor below both, `copy`,
//! as `graph` with copies within the device in the calls' place. `edge` is `graph` with a consumer of each call on a
//! stream of its own, a copy of 8 bytes that waits for the call's completion; in `loose` only the first one waits. Rank 0 prints a line of JSON for each size: the median
//! over the REPLAYS of a replay's time divided by its calls, in microseconds, and the least. Results are checked: inputs
//! are whole numbers, so that every order of summation has the same bits.
//!
//! `back_to_back RANKS serve MOST_BYTES` keeps the ranks, does what each line of standard input says (`MODE DTYPE PLACE BYTES
//! CALLS REPLAYS`, where DTYPE is `float32` or `bfloat16` and PLACE `plain` or `registered`), and sleeps until the next: so
//! that others can be measured in turn.
#![allow(unsafe_code, reason = "raw addresses")]

use ccl_core::bootstrap::{RootOptions, UniqueId};
use ccl_core::config::Config;
use ccl_core::plan::{Registered, Request};
use ccl_core::{DataType, ReduceOp};
use ccl_ze::{Buffer, CallOptions, Communicator, RegisteredBuffer, Stream};
use serde::Serialize;
use std::error::Error;
use std::io::{BufRead, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str =
    "usage: back_to_back RANKS graph|eager|copy|edge|loose BYTES[,BYTES...] [CALLS] [REPLAYS], or RANKS serve BYTES";

/// What is measured.
#[derive(Clone)]
struct Job {
    mode: String,
    dtype: DataType,
    registered: bool,
    bytes: usize,
    calls: usize,
    replays: usize,
}

/// One size's result.
#[derive(Serialize)]
struct Line {
    mode: String,
    dtype: String,
    registered: bool,
    ranks: usize,
    bytes: usize,
    calls: usize,
    plan: String,
    device: String,
    median_us: f64,
    least_us: f64,
    right: bool,
}

/// The jobs that the command line tells, or the most bytes that a served one will have.
enum Jobs {
    Told(Vec<Job>),
    Served(usize),
}

impl Jobs {
    fn parse(arguments: &[String]) -> Outcome<Self> {
        let get = |at: usize| arguments.get(at).ok_or(USAGE);
        let sizes = get(2)?.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let mode = get(1)?.clone();
        if mode == "serve" {
            return Ok(Self::Served(*sizes.first().ok_or(USAGE)?));
        }
        if !["graph", "eager", "copy", "edge", "loose"].contains(&mode.as_str()) {
            return Err(USAGE.into());
        }
        let calls = arguments.get(3).map_or(Ok(100), |text| text.parse())?;
        let replays = arguments.get(4).map_or(Ok(50), |text| text.parse())?;
        let job = Job { mode, dtype: DataType::Float32, registered: false, bytes: 0, calls, replays };
        Ok(Self::Told(sizes.into_iter().map(|bytes| Job { bytes, ..job.clone() }).collect()))
    }

    fn most(&self) -> usize {
        match self {
            Self::Told(jobs) => jobs.iter().map(|job| job.bytes).max().unwrap_or(4),
            Self::Served(bytes) => *bytes,
        }
    }
}

impl Job {
    /// What a line of standard input says.
    fn served(line: &str) -> Outcome<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode @ ("graph" | "eager" | "copy"), dtype, place @ ("plain" | "registered"), bytes, calls, replays] =
            words[..]
        else {
            return Err(format!("not a job: {line}").into());
        };
        let dtype = match dtype {
            "float32" => DataType::Float32,
            "bfloat16" => DataType::Bfloat16,
            other => return Err(format!("not a type to be measured: {other}").into()),
        };
        Ok(Self {
            mode: mode.into(),
            dtype,
            registered: place == "registered",
            bytes: bytes.parse()?,
            calls: calls.parse()?,
            replays: replays.parse()?,
        })
    }

    fn element(&self, value: u32, to: &mut [u8]) {
        let bits = (value as f32).to_le_bytes();
        // Small whole numbers have the same value in both: bfloat16 is the upper half.
        to.copy_from_slice(&bits[4 - to.len()..]);
    }
}

/// Whole numbers of which the sums of 8 ranks are exact in bfloat16.
fn value(rank: usize, position: usize) -> u32 {
    ((rank * 7 + position) % 31 + 1) as u32
}

struct Bench<'a> {
    comm: &'a Communicator,
    ranks: usize,
    stream: Stream,
    send: Buffer<u8>,
    recv: Buffer<u8>,
    consumer: Stream,
    consumed: Buffer<u8>,
    registered: Option<[RegisteredBuffer<u8>; 2]>,
}

impl Bench<'_> {
    fn request(&self, job: &Job) -> Request {
        let mut request = self.comm.request((job.bytes / job.dtype.size()) as u64, job.dtype, ReduceOp::Sum);
        if let (true, Some([send, recv])) = (job.registered, &self.registered)
            && let (Some(send), Some(recv)) = (send.range(0), recv.range(0))
        {
            request.registered = Some(Registered { send, recv });
        }
        request
    }

    /// Appends call `number`.
    fn append(&self, job: &Job, number: usize) -> Outcome<()> {
        let (from, to) = (self.send.as_ptr(), self.recv.as_ptr());
        // SAFETY: both buffers hold the message and live as long as the stream.
        unsafe {
            if job.mode == "copy" {
                self.stream.copy(to.cast(), from.cast_const().cast(), job.bytes, &[])?;
            } else {
                let request = self.request(job);
                let (from, to) = (from.cast_const().cast(), to.cast());
                let completion = self.comm.all_reduce_raw(&request, from, to, &self.stream, &[])?;
                let consumed = ["edge", "loose"].contains(&job.mode.as_str());
                if job.mode == "edge" || (consumed && number == 0) {
                    completion.order(&self.consumer)?;
                }
                if consumed {
                    self.consumer.copy(self.consumed.as_ptr().cast(), to.cast_const(), 8, &[])?;
                }
            }
        }
        Ok(())
    }

    /// Joins the consumers' stream, by one more call that is on it.
    fn join(&self, job: &Job) -> Outcome<()> {
        if !["edge", "loose"].contains(&job.mode.as_str()) {
            return Ok(());
        }
        let (from, to) = (self.send.as_ptr(), self.recv.as_ptr());
        // SAFETY: as for the others.
        let last = unsafe {
            self.comm.all_reduce_raw(&self.request(job), from.cast_const().cast(), to.cast(), &self.consumer, &[])?
        };
        last.order(&self.stream)?;
        Ok(())
    }

    /// Puts bytes at a buffer's beginning.
    fn fill(&self, to: &Buffer<u8>, staging: &mut Buffer<u8>, bytes: &[u8]) -> Outcome<()> {
        staging.write(&self.stream, bytes)?;
        // SAFETY: both hold as much, and live until the stream has done it.
        unsafe { self.stream.copy(to.as_ptr().cast(), staging.as_ptr().cast_const().cast(), bytes.len(), &[])? };
        self.stream.synchronize()?;
        Ok(())
    }

    fn measure(&mut self, job: &Job) -> Outcome<Line> {
        let (size, rank) = (job.dtype.size(), self.comm.rank());
        let count = job.bytes / size;
        let mut image = vec![0u8; count * size];
        for (position, element) in image.chunks_exact_mut(size).enumerate() {
            job.element(value(rank, position), element);
        }
        // The buffers are as long as the longest message.
        let mut staging = self.comm.alloc::<u8>(image.len())?;
        self.fill(&self.send, &mut staging, &image)?;
        self.fill(&self.recv, &mut staging, &vec![0xFF; image.len()])?;
        let graph = if job.mode == "eager" {
            None
        } else {
            self.stream.begin_capture()?;
            let appended = (0..job.calls).try_for_each(|number| self.append(job, number));
            let joined = appended.and_then(|()| self.join(job));
            let graph = self.stream.end_capture()?;
            joined?;
            Some(graph.instantiate()?)
        };
        let mut samples = Vec::with_capacity(job.replays);
        for replay in 0..job.replays + 3 {
            let begun = Instant::now();
            match &graph {
                // SAFETY: what was recorded uses the buffers, which live on.
                Some(graph) => unsafe { graph.launch(&self.stream, CallOptions::default()) }?.wait()?,
                None => {
                    (0..job.calls).try_for_each(|number| self.append(job, number))?;
                    self.stream.synchronize()?;
                }
            }
            // The first are to warm up.
            if replay >= 3 {
                samples.push(begun.elapsed().as_secs_f64() * 1e6 / job.calls as f64);
            }
        }
        // SAFETY: both hold as much.
        unsafe { self.stream.copy(staging.as_ptr().cast(), self.recv.as_ptr().cast_const().cast(), image.len(), &[])? };
        staging.read(&self.stream, &mut image)?;
        let sum = |position| match job.mode.as_str() {
            "copy" => value(rank, position),
            _ => (0..self.ranks).map(|rank| value(rank, position)).sum(),
        };
        let mut expected = [0; 4];
        let right = image.chunks_exact(size).enumerate().all(|(position, got)| {
            job.element(sum(position), &mut expected[..size]);
            got == &expected[..size]
        });
        samples.sort_by(f64::total_cmp);
        let plan = if job.mode == "copy" { "copy".into() } else { self.comm.plan(&self.request(job))?.to_string() };
        Ok(Line {
            mode: job.mode.clone(),
            dtype: job.dtype.to_string(),
            registered: job.registered,
            ranks: self.ranks,
            bytes: job.bytes,
            calls: job.calls,
            plan,
            device: self.comm.describe().device,
            median_us: samples[samples.len() / 2],
            least_us: samples[0],
            right,
        })
    }

    fn tell(&mut self, job: &Job) -> Outcome<()> {
        let line = self.measure(job)?;
        if self.comm.rank() == 0 {
            println!("{}", serde_json::to_string(&line)?);
            std::io::stdout().flush()?;
        }
        if line.right { Ok(()) } else { Err(format!("a wrong result of {} bytes", job.bytes).into()) }
    }
}

fn rank(ranks: usize, jobs: &Jobs, rank: usize) -> Outcome<()> {
    let hex = std::env::var("BENCH_ID")?;
    let id: Result<Vec<u8>, _> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16)).collect();
    let id = UniqueId::from_bytes(id?.try_into().map_err(|_| "BENCH_ID is no unique id")?);
    let comm = Communicator::builder_with(Config::from_env()?).init(&id, rank, ranks)?;
    let (stream, send, recv) = (comm.stream(0)?, comm.alloc::<u8>(jobs.most())?, comm.alloc::<u8>(jobs.most())?);
    let registered = match jobs {
        Jobs::Told(_) => None,
        Jobs::Served(_) => Some([comm.register(&send)?, comm.register(&recv)?]),
    };
    let (consumer, consumed) = (comm.stream(0)?, comm.alloc::<u8>(8)?);
    let mut bench = Bench { comm: &comm, ranks, stream, send, recv, consumer, consumed, registered };
    match jobs {
        Jobs::Told(jobs) => jobs.iter().try_for_each(|job| bench.tell(job)),
        Jobs::Served(_) => std::io::stdin().lock().lines().try_for_each(|line| bench.tell(&Job::served(&line?)?)),
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ranks: usize = arguments.first().ok_or(USAGE)?.parse()?;
    let jobs = Jobs::parse(&arguments)?;
    if let Ok(number) = std::env::var("BENCH_RANK") {
        return rank(ranks, &jobs, number.parse()?);
    }
    let id = UniqueId::create(RootOptions::default())?;
    let hex: String = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let served = matches!(jobs, Jobs::Served(_));
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&arguments).env("BENCH_ID", &hex).env("BENCH_RANK", rank.to_string());
        let devices = std::env::var("ZE_SOFT_DEVICES").unwrap_or_else(|_| ranks.max(2).to_string());
        command.stdin(if served { Stdio::piped() } else { Stdio::null() });
        command.env("LOCAL_RANK", rank.to_string()).env("ZE_SOFT_DEVICES", devices).spawn()
    };
    let children: Result<Vec<Child>, _> = (0..ranks).map(start).collect();
    let mut children = children?;
    if served {
        let mut inputs: Vec<ChildStdin> = children.iter_mut().filter_map(|child| child.stdin.take()).collect();
        for line in std::io::stdin().lock().lines() {
            let line = line?;
            if inputs.iter_mut().any(|input| writeln!(input, "{line}").is_err()) {
                break;
            }
        }
    }
    let mut failed = false;
    for mut child in children {
        failed |= !child.wait()?.success();
    }
    if failed { Err("a rank failed".into()) } else { Ok(()) }
}
