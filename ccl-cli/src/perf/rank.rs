//! One rank process: does what `ccl perf` tells it, and says what came of it.

use super::collective::{Call, What};
use super::data::{self, Finding, POISON, Shape};
use super::message::{Command, Job, Ready, Reply, Timing};
use crate::crew::{Seat, member};
use ccl_core::collective::Table;
use ccl_core::config::Config;
use ccl_core::plan::{Plan, Registered};
use ccl_core::{Error, ReduceOp, Result};
use ccl_ze::{Buffer, CallOptions, Communicator, Completion, ExecutableGraph, RegisteredBuffer, Stream};
use std::process::ExitCode;
use std::time::Instant;

/// Guard bytes on either side of a message, so many that the message begins on a page.
const GUARD: usize = 4096;

/// Calls of a check that follow each other without a wait; fewer if their images would take more than
/// [`MOST_IMAGE_BYTES`].
const CHECK_CALLS: usize = 3;

const MOST_IMAGE_BYTES: usize = 256 << 20;

/// The whole life of a rank process.
pub(crate) fn rank() -> ExitCode {
    member::serve(run)
}

fn run(seat: Seat, job: Job) -> Result<()> {
    let config = Config::from_env()?;
    ccl_ze::log::install(&config)?;
    let begun = Instant::now();
    let comm = Communicator::builder_with(config).init(&seat.id()?, seat.rank, seat.ranks)?;
    let init_ms = begun.elapsed().as_secs_f64() * 1e3;
    let mut bench = Bench::new(comm, &seat, &job)?;
    member::say(Reply::Ready(Ready::of(&bench.comm, init_ms)))?;
    let done = bench.obey();
    if done.is_err() {
        // Nothing that may still run is waited for, so that the failure is told at once. The process ends with it.
        std::mem::forget(bench);
    }
    done
}

/// What is measured now.
struct Task {
    shape: Shape,
    call: Call,
    /// What goes where, of a call that says so.
    table: Option<Box<Table>>,
    in_place: bool,
    /// The call, recorded.
    graph: Option<ExecutableGraph>,
}

struct Bench {
    // Dropped first, which waits for all that they have to do with the memory below.
    task: Option<Task>,
    stream: Stream,
    /// Places for messages with guards on either side.
    send: Buffer<u8>,
    recv: Buffer<u8>,
    /// One element, in which the ranks meet.
    meeting: Buffer<f32>,
    /// For checks: the inputs of each call, then the outputs, with guards. Words, for elements of up to 8 bytes.
    images: Vec<u64>,
    /// The same places as all ranks know them, if they were registered.
    registered: Option<([RegisteredBuffer<u8>; 2], RegisteredBuffer<f32>)>,
    comm: Communicator,
    what: What,
    root: usize,
    corrupt: bool,
    /// Messages written so far. All ranks do the same, so it is alike on all.
    round: u32,
}

impl Bench {
    fn new(comm: Communicator, seat: &Seat, job: &Job) -> Result<Self> {
        let bytes = usize::try_from(job.max_bytes).ok().and_then(|bytes| bytes.checked_add(2 * GUARD));
        let bytes = bytes.ok_or_else(|| Error::InvalidArgument(format!("messages of {} bytes", job.max_bytes)))?;
        let stream = comm.stream(0)?;
        let mut meeting = comm.alloc(1)?;
        meeting.write(&stream, &[0.0])?;
        let (send, recv) = (comm.alloc(bytes)?, comm.alloc(bytes)?);
        let registered = match job.registered {
            true => Some(([comm.register(&send)?, comm.register(&recv)?], comm.register(&meeting)?)),
            false => None,
        };
        Ok(Self {
            task: None,
            stream,
            send,
            recv,
            registered,
            meeting,
            images: Vec::new(),
            what: job.what,
            root: job.root,
            corrupt: job.corrupt && seat.rank + 1 == seat.ranks,
            round: 0,
            comm,
        })
    }

    /// Does what it is told until the input ends.
    fn obey(&mut self) -> Result<()> {
        while let Some(command) = member::next::<Command>()? {
            let reply = match command {
                Command::Prepare { dtype, op, count, in_place } => self.prepare(&dtype, &op, count, in_place)?,
                Command::Record => self.record().map(|()| Reply::Recorded)?,
                Command::Time { calls, replayed } => self.time(calls, replayed).map(Reply::Timed)?,
                Command::Check { replayed } => {
                    let Finding { wrong, first } = self.check(replayed)?;
                    Reply::Checked { wrong, first }
                }
            };
            member::say(reply)?;
        }
        Ok(())
    }

    fn task(&self) -> Result<&Task> {
        self.task.as_ref().ok_or_else(|| Error::InvalidUsage("nothing was prepared".into()))
    }

    /// Where the input lies.
    fn source(&self, task: &Task) -> *mut u8 {
        if task.in_place { self.recv.as_ptr() } else { self.send.as_ptr() }
    }

    /// Makes `images` hold this many of `bytes`. They are only used once the stream is idle.
    fn make_room(&mut self, images: usize, bytes: usize) -> Result<()> {
        let words = images * stride(bytes) / 8;
        let more = words.saturating_sub(self.images.len());
        self.images.try_reserve_exact(more).map_err(|error| Error::system("memory for test data", error))?;
        self.images.resize(words, 0);
        Ok(())
    }

    /// Puts the next round's input, between guards, into an image.
    fn write_image(&mut self, shape: &Shape, image: usize) -> u32 {
        self.round = self.round.wrapping_add(1);
        let bytes = shape.bytes();
        let image = &mut bytemuck::cast_slice_mut(&mut self.images)[image * stride(bytes)..][..2 * GUARD + bytes];
        image.fill(POISON);
        shape.write_input(&mut image[GUARD..][..bytes], self.comm.rank(), self.round);
        self.round
    }

    fn prepare(&mut self, dtype: &str, op: &str, count: u64, in_place: bool) -> Result<Reply> {
        let (dtype, op) =
            (dtype.parse().map_err(Error::InvalidArgument)?, op.parse::<data::Op>().map_err(Error::InvalidArgument)?);
        let mut request = self.comm.request(count, dtype, op.of_rank(dtype, self.comm.rank()));
        if let Some(([send, recv], _)) = &self.registered {
            let source = if in_place { recv } else { send };
            let both = source.range(GUARD).zip(recv.range(GUARD));
            request.registered = both.map(|(send, recv)| Registered { send, recv });
        }
        let count = usize::try_from(count).map_err(|_| Error::InvalidArgument(format!("{count} elements")))?;
        let shape = Shape { dtype, op, order: request.order, ranks: self.comm.world_size(), count };
        let call = self.what.call(request, self.comm.world_size(), self.root);
        let (algo, plan) = match &call {
            Call::AllReduce(request) => {
                let plan = self.comm.plan(request)?;
                (algorithm(&plan), plan.to_string())
            }
            Call::Other(call) => ("channels".into(), self.comm.plan_collective(call)?.to_string()),
        };
        self.task = None;
        self.make_room(1, shape.bytes())?;
        self.write_image(&shape, 0);
        let whole = 2 * GUARD + shape.bytes();
        let place = if in_place { &mut self.recv } else { &mut self.send };
        place.write(&self.stream, &bytemuck::cast_slice(&self.images)[..whole])?;
        let table = self.what.table(&shape, self.comm.rank());
        self.task = Some(Task { shape, call, table, in_place, graph: None });
        Ok(Reply::Prepared { algo, plan })
    }

    /// Appends the call, or its replay.
    fn append(&self, task: &Task, replayed: bool) -> Result<Completion> {
        let Shape { count, ranks, dtype, .. } = task.shape;
        let (send, recv) = self.what.places(count, ranks, self.comm.rank());
        let send = self.source(task).wrapping_add(GUARD + send * dtype.size());
        let recv = self.recv.as_ptr().wrapping_add(GUARD + recv * dtype.size());
        // SAFETY: both places hold `count` elements, for as long as the stream has work and the graph is there.
        unsafe {
            match (&task.graph, replayed) {
                (Some(graph), true) => graph.launch(&self.stream, CallOptions::default()),
                (None, true) => Err(Error::InvalidUsage("nothing was recorded".into())),
                (_, false) => match &task.call {
                    Call::AllReduce(request) => {
                        self.comm.all_reduce_raw(request, send.cast(), recv.cast(), &self.stream, &[])
                    }
                    Call::Other(call) => {
                        let (table, options) = (task.table.as_deref(), CallOptions::default());
                        self.comm.collective_raw(call, table, send.cast(), recv.cast(), &self.stream, options)
                    }
                },
            }
        }
    }

    fn record(&mut self) -> Result<()> {
        self.stream.begin_capture()?;
        let appended = self.task().and_then(|task| self.append(task, false));
        // Whatever became of the call, the stream is not left recording.
        let graph = self.stream.end_capture()?;
        drop(appended?);
        let graph = graph.instantiate()?;
        if let Some(task) = &mut self.task {
            task.graph = Some(graph);
        }
        Ok(())
    }

    /// Returns when all ranks have called this, on all of them within a short time.
    fn meet(&mut self) -> Result<()> {
        let (comm, stream) = (&self.comm, &self.stream);
        let met = match &self.registered {
            Some((_, meeting)) => comm.all_reduce_registered((meeting, 0), (meeting, 0), 1, ReduceOp::Sum, stream),
            None => comm.all_reduce_in_place(&mut self.meeting, ReduceOp::Sum, stream),
        };
        met?.wait()
    }

    fn time(&mut self, calls: u32, replayed: bool) -> Result<Timing> {
        let mut samples = Vec::with_capacity(calls as usize);
        self.meet()?;
        let task = self.task()?;
        let ze_calls = self.comm.level_zero_calls();
        let mut begun = Instant::now();
        let mut pulse = member::Pulse::new();
        for _ in 0..calls {
            self.append(task, replayed)?.wait()?;
            let now = Instant::now();
            samples.push((now - begun).as_nanos() as u64);
            begun = now;
            if pulse.beat(now)? {
                begun = Instant::now();
            }
        }
        Ok(Timing::from_samples(&mut samples, self.comm.level_zero_calls() - ze_calls))
    }

    /// Calls with fresh data, back to back: nothing waits between them, and the output is overwritten before each.
    fn check(&mut self, replayed: bool) -> Result<Finding> {
        let (shape, in_place) = self.task().map(|task| (task.shape, task.in_place))?;
        let (whole, stride) = (2 * GUARD + shape.bytes(), stride(shape.bytes()));
        let calls = (MOST_IMAGE_BYTES / (2 * whole)).clamp(1, CHECK_CALLS);
        // The last image is for the input as the calls left it.
        self.make_room(2 * calls + 1, shape.bytes())?;
        let rounds: Vec<u32> = (0..calls).map(|call| self.write_image(&shape, call)).collect();
        member::busy()?;

        let images = self.images.as_mut_ptr().cast::<u8>();
        let image = |number: usize| images.wrapping_add(number * stride);
        let task = self.task()?;
        let device = self.recv.as_ptr();
        let mut completions = Vec::with_capacity(calls);
        for call in 0..calls {
            // SAFETY: both places hold that many bytes; images are not touched until the stream is idle, and outlive it.
            unsafe {
                self.stream.fill(device.cast(), POISON, whole, &[])?;
                self.stream.copy(self.source(task).cast(), image(call).cast(), whole, &[])?;
                completions.push(self.append(task, replayed)?);
                self.stream.copy(image(calls + call).cast(), device.cast(), whole, &[])?;
            }
        }
        // SAFETY: as above.
        unsafe { self.stream.copy(image(2 * calls).cast(), self.source(task).cast(), whole, &[])? };
        completions.iter().try_for_each(Completion::wait)?;
        self.stream.synchronize()?;
        member::busy()?;

        let images: &mut [u8] = bytemuck::cast_slice_mut(&mut self.images);
        if self.corrupt && shape.count > 0 {
            images[calls * stride + GUARD + shape.count / 2 * shape.dtype.size()] ^= 1;
        }
        let mut finding = Finding::default();
        for (image, round) in images[calls * stride..].chunks_exact(stride).zip(&rounds) {
            let (before, rest) = image[..whole].split_at(GUARD);
            let (message, after) = rest.split_at(shape.bytes());
            finding.add(self.what.check(&shape, (self.comm.rank(), self.root), in_place, message, *round));
            finding.add(data::check_guard(before, "before"));
            finding.add(data::check_guard(after, "after"));
        }
        if !in_place {
            let last = &images[2 * calls * stride + GUARD..][..shape.bytes()];
            finding.add(shape.check_input(last, self.comm.rank(), self.round, 0));
        }
        Ok(finding)
    }
}

fn algorithm(plan: &Plan) -> String {
    match plan {
        Plan::Empty => "none".into(),
        Plan::Local => "copy".into(),
        Plan::Ring(_) => "ring".into(),
        // By the words of --algo.
        Plan::Push(push) => push.mode.to_string().replace('-', ""),
    }
}

/// Bytes from one image to the next: each begins like a cache line.
fn stride(bytes: usize) -> usize {
    (2 * GUARD + bytes).next_multiple_of(64)
}
