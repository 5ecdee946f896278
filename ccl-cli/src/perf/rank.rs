//! One rank process: does what `ccl perf` tells it, and says what came of it.

use super::data::{self, Finding, POISON, Value};
use super::message::{Command, Job, Ready, Reply, Timing};
use crate::crew::{Seat, member};
use ccl_core::config::Config;
use ccl_core::{DataType, Error, ReduceOp, Result};
use ccl_ze::{Buffer, Communicator, Completion, Stream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Guard bytes on either side of a message, so many that the message begins on a page.
const GUARD_BYTES: usize = 4096;

/// Calls of a check that follow each other without a wait; fewer if their images would take more than
/// [`MOST_IMAGE_BYTES`].
const CHECK_CALLS: usize = 3;

const MOST_IMAGE_BYTES: usize = 256 << 20;

/// How often a rank says that it is still at work.
const BUSY_EVERY: Duration = Duration::from_millis(500);

/// The whole life of a rank process.
pub(crate) fn rank() -> ExitCode {
    member::serve(|seat, job: Job| {
        let config = Config::from_env()?;
        ccl_ze::log::install(&config)?;
        let dtype: DataType = job.dtype.parse().map_err(Error::InvalidArgument)?;
        match dtype {
            DataType::Float32 => measure::<f32>(&seat, &job, config),
            DataType::Float16 => measure::<half::f16>(&seat, &job, config),
            DataType::Bfloat16 => measure::<half::bf16>(&seat, &job, config),
            other => Err(Error::NotImplemented(format!("test data of {other}"))),
        }
    })
}

fn measure<T: Value>(seat: &Seat, job: &Job, config: Config) -> Result<()> {
    let op: ReduceOp = job.op.parse().map_err(Error::InvalidArgument)?;
    let begun = Instant::now();
    let comm = Communicator::builder_with(config).init(&seat.id()?, seat.rank, seat.ranks)?;
    let init_ms = begun.elapsed().as_secs_f64() * 1e3;
    let plan = comm.plan(&comm.request(job.max_count, T::DATATYPE, op))?;
    let mut bench = Bench::<T>::new(comm, op, job)?;
    let is = bench.comm.describe();
    member::say(Reply::Ready(Ready {
        driver: is.driver,
        device: is.device,
        device_index: is.device_index,
        software: is.software,
        p2p: is.p2p,
        granule: is.granule,
        staging_bytes: is.staging_bytes,
        plan: plan.to_string(),
        init_ms,
    }))?;
    let done = bench.obey();
    if done.is_err() {
        // Nothing that may still run is waited for, so that the failure is told at once. The process ends with it.
        std::mem::forget(bench);
    }
    done
}

/// A place for messages with guards on either side.
struct Place<T> {
    buffer: Buffer<T>,
}

impl<T: Value> Place<T> {
    const GUARD: usize = GUARD_BYTES / size_of::<T>();

    fn message(&self) -> *mut T {
        self.buffer.as_ptr().wrapping_add(Self::GUARD)
    }
}

struct Bench<T: Value> {
    // Dropped first, which waits for all that it has to do with the memory below.
    stream: Stream,
    send: Place<T>,
    recv: Place<T>,
    /// One element, in which the ranks meet.
    meeting: Buffer<T>,
    /// For checks: the inputs of each call, then the outputs, with guards.
    images: Vec<T>,
    comm: Communicator,
    op: ReduceOp,
    corrupt: bool,
    count: usize,
    in_place: bool,
    /// Messages written so far. All ranks do the same, so it is alike on all.
    round: u32,
}

impl<T: Value> Bench<T> {
    fn new(comm: Communicator, op: ReduceOp, job: &Job) -> Result<Self> {
        let elements = usize::try_from(job.max_count).ok().and_then(|count| count.checked_add(2 * Place::<T>::GUARD));
        let elements = elements.ok_or_else(|| Error::InvalidArgument(format!("{} elements", job.max_count)))?;
        let stream = comm.stream(0)?;
        let mut meeting = comm.alloc(1)?;
        meeting.write(&stream, &[T::from_integer(0)])?;
        let place = || comm.alloc(elements).map(|buffer| Place { buffer });
        Ok(Self {
            stream,
            send: place()?,
            recv: place()?,
            meeting,
            images: Vec::new(),
            op,
            corrupt: job.corrupt && comm.rank() + 1 == comm.world_size(),
            count: 0,
            in_place: false,
            round: 0,
            comm,
        })
    }

    /// Does what it is told until the input ends.
    fn obey(&mut self) -> Result<()> {
        while let Some(command) = member::next::<Command>()? {
            let reply = match command {
                Command::Prepare { count, in_place } => self.prepare(count, in_place).map(|()| Reply::Prepared),
                Command::Time { calls } => self.time(calls).map(Reply::Timed),
                Command::Check => self.check().map(|Finding { wrong, first }| Reply::Checked { wrong, first }),
            }?;
            member::say(reply)?;
        }
        Ok(())
    }

    /// Elements of a message with its guards.
    fn elements(&self) -> usize {
        self.count + 2 * Place::<T>::GUARD
    }

    /// Where the input lies.
    fn source(&self) -> &Place<T> {
        if self.in_place { &self.recv } else { &self.send }
    }

    /// Makes `images` hold this many. They are only used once the stream is idle.
    fn make_room(&mut self, images: usize) -> Result<()> {
        let elements = images * self.elements();
        let more = elements.saturating_sub(self.images.len());
        self.images.try_reserve_exact(more).map_err(|error| Error::system("memory for test data", error))?;
        self.images.resize(elements, data::poison());
        Ok(())
    }

    /// Puts the next round's input, between guards, into an image.
    fn write_image(&mut self, image: usize) -> u32 {
        self.round = self.round.wrapping_add(1);
        let elements = self.elements();
        let image = &mut self.images[image * elements..][..elements];
        image.fill(data::poison());
        data::write_input(&mut image[Place::<T>::GUARD..][..self.count], self.comm.rank(), self.round);
        self.round
    }

    fn prepare(&mut self, count: u64, in_place: bool) -> Result<()> {
        self.count = usize::try_from(count).map_err(|_| Error::InvalidArgument(format!("{count} elements")))?;
        self.in_place = in_place;
        self.make_room(1)?;
        self.write_image(0);
        let place = if in_place { &mut self.recv } else { &mut self.send };
        place.buffer.write(&self.stream, &self.images)
    }

    /// Appends the call.
    fn append(&self) -> Result<Completion> {
        let request = self.comm.request(self.count as u64, T::DATATYPE, self.op);
        let (send, recv) = (self.source().message(), self.recv.message());
        // SAFETY: both places hold `count` elements, for as long as the stream has work.
        unsafe { self.comm.all_reduce_raw(&request, send.cast(), recv.cast(), &self.stream, &[]) }
    }

    /// Returns when all ranks have called this, on all of them within a short time.
    fn meet(&mut self) -> Result<()> {
        self.comm.all_reduce_in_place(&mut self.meeting, ReduceOp::Sum, &self.stream)?.wait()
    }

    fn time(&mut self, calls: u32) -> Result<Timing> {
        let mut samples = Vec::with_capacity(calls as usize);
        self.meet()?;
        let ze_calls = self.comm.level_zero_calls();
        let mut begun = Instant::now();
        let mut said = begun;
        for _ in 0..calls {
            self.append()?.wait()?;
            let now = Instant::now();
            samples.push((now - begun).as_nanos() as u64);
            begun = now;
            if now - said > BUSY_EVERY {
                member::busy()?;
                begun = Instant::now();
                said = begun;
            }
        }
        Ok(Timing::from_samples(&mut samples, self.comm.level_zero_calls() - ze_calls))
    }

    /// Calls with fresh data, back to back: nothing waits between them, and the output is overwritten before each.
    fn check(&mut self) -> Result<Finding> {
        let elements = self.elements();
        let bytes = elements * size_of::<T>();
        let calls = (MOST_IMAGE_BYTES / (2 * bytes)).clamp(1, CHECK_CALLS);
        // The last image is for the input as the calls left it.
        self.make_room(2 * calls + 1)?;
        let rounds: Vec<u32> = (0..calls).map(|call| self.write_image(call)).collect();
        member::busy()?;

        let mut completions = Vec::with_capacity(calls);
        for call in 0..calls {
            // SAFETY: both places hold that many bytes; images are not touched until the stream is idle, and outlive it.
            unsafe {
                let device = self.recv.buffer.as_ptr().cast();
                self.stream.fill(device, POISON, bytes, &[])?;
                let input = self.images.as_ptr().add(call * elements);
                self.stream.copy(self.source().buffer.as_ptr().cast(), input.cast(), bytes, &[])?;
                completions.push(self.append()?);
                let output = self.images.as_mut_ptr().add((calls + call) * elements);
                self.stream.copy(output.cast(), device, bytes, &[])?;
            }
        }
        // SAFETY: as above.
        unsafe {
            let input = self.images.as_mut_ptr().add(2 * calls * elements);
            self.stream.copy(input.cast(), self.source().buffer.as_ptr().cast(), bytes, &[])?;
        }
        completions.iter().try_for_each(Completion::wait)?;
        self.stream.synchronize()?;
        member::busy()?;

        let guard = Place::<T>::GUARD;
        if self.corrupt && self.count > 0 {
            let element = &mut self.images[calls * elements + guard + self.count / 2];
            *element = T::from_bits(element.bits() ^ 1);
        }
        let mut finding = Finding::default();
        for (image, round) in self.images[calls * elements..].chunks_exact(elements).zip(&rounds) {
            let (before, rest) = image.split_at(guard);
            let (message, after) = rest.split_at(self.count);
            finding.add(data::check_sum(message, self.comm.world_size(), *round));
            finding.add(data::check_guard(before, "before"));
            finding.add(data::check_guard(after, "after"));
        }
        if !self.in_place {
            let last = &self.images[2 * calls * elements + guard..][..self.count];
            finding.add(data::check_input(last, self.comm.rank(), self.round));
        }
        Ok(finding)
    }
}
