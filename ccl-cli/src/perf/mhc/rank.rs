//! One rank process of `ccl perf mhc`.

use super::super::message::Ready;
use super::message::{Beside, Command, Job, Reply, Turn, design};
use super::model::{BOUNDARIES, Model, Row, Tensor, compare};
use super::token::{How, Part, Token};
use crate::crew::member::Pulse;
use crate::crew::{Seat, member};
use ccl_core::config::Config;
use ccl_core::mhc::{Design, Params, Variant};
use ccl_core::{Error, ReduceOp, Result};
use ccl_ze::{Buffer, CallOptions, Communicator, Completion, ExecutableGraph, Stream};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::process::ExitCode;
use std::time::Instant;

/// Up to so many rows are all computed again by every rank; of more each computes its share.
const MOST_ROWS: u64 = 8;

/// Most bytes that copies of `fn` go to.
const COPY_BYTES: usize = 64 << 20;

/// The whole life of a rank process.
pub(crate) fn rank() -> ExitCode {
    member::serve(run)
}

fn run(seat: Seat, job: Job) -> Result<()> {
    let config = Config::from_env()?;
    ccl_ze::log::install(&config)?;
    let begun = Instant::now();
    let comm = Communicator::builder_with(config).init(&seat.id()?, seat.rank, seat.ranks)?;
    comm.prepare_mhc()?;
    let init_ms = begun.elapsed().as_secs_f64() * 1e3;
    let stream = comm.stream(0)?;
    let mut meeting = comm.alloc(1)?;
    meeting.write(&stream, &[0.0])?;
    let corrupt = if seat.rank + 1 == seat.ranks { job.corrupt.clone() } else { Vec::new() };
    let corrupt = corrupt.iter().map(|name| named(name)).collect::<Result<_>>()?;
    let mut bench = Bench { task: None, stream, meeting, comm, job, corrupt, pulse: Pulse::new() };
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
    /// What was recorded: the parts of each, those that it has.
    graphs: Vec<(How, Vec<(Part, ExecutableGraph)>)>,
    token: Token,
    copies: Buffer<u8>,
    /// By round.
    references: BTreeMap<u32, Vec<(u64, Row)>>,
    /// What the first design made of a round.
    first: BTreeMap<u32, Vec<Tensor>>,
}

struct Bench {
    // Dropped first, which waits for all that they have to do with the memory below.
    task: Option<Task>,
    stream: Stream,
    /// One element, in which the ranks meet.
    meeting: Buffer<f32>,
    comm: Communicator,
    job: Job,
    /// Designs of which one element is changed here before it is compared.
    corrupt: Vec<Design>,
    pulse: Pulse,
}

fn named(name: &str) -> Result<Design> {
    design(name).map_err(Error::InvalidArgument)
}

impl Bench {
    /// Does what it is told until the input ends.
    fn obey(&mut self) -> Result<()> {
        while let Some(command) = member::next()? {
            let reply = match command {
                Command::Prepare { rows } => self.prepare(rows).map(|()| Reply::Done)?,
                Command::Try { design } => Reply::Tried { refused: self.attempt(named(&design)?)? },
                Command::Record { designs } => self.record(&designs).map(|()| Reply::Done)?,
                Command::Check { design, replayed, round } => self.check(named(&design)?, replayed, round)?,
                Command::Measure { designs, turns, replayed } => {
                    self.measure(&designs, turns, replayed).map(Reply::Measured)?
                }
            };
            member::say(reply)?;
        }
        Ok(())
    }

    fn task(&self) -> Result<&Task> {
        self.task.as_ref().ok_or_else(|| Error::InvalidUsage("nothing was prepared".into()))
    }

    fn prepare(&mut self, rows: u64) -> Result<()> {
        let Job { variant, dtype, hidden, streams, .. } = &self.job;
        let variants = [Variant::V4, Variant::V41];
        let variant = variants.into_iter().find(|known| known.to_string() == *variant);
        let variant = variant.ok_or_else(|| Error::InvalidArgument("no such variant".into()))?;
        let dtype = dtype.parse().map_err(Error::InvalidArgument)?;
        let model = Model { params: Params::new(variant, dtype, rows, *hidden, *streams) };
        // What was measured before goes first: both may be large.
        self.task = None;
        let mut token = Token::new(&self.comm, &self.stream, model, false)?;
        token.write(&self.comm, &self.stream, 0)?;
        let one = token.weight_bytes();
        let copies = self.comm.alloc(one * (COPY_BYTES / one).clamp(1, BOUNDARIES))?;
        self.task =
            Some(Task { graphs: Vec::new(), token, copies, references: BTreeMap::new(), first: BTreeMap::new() });
        Ok(())
    }

    fn attempt(&mut self, design: Design) -> Result<Option<String>> {
        match self.token(How::Both(design), false) {
            Ok(_) => Ok(None),
            Err(Error::NotImplemented(why)) => {
                self.stream.synchronize()?;
                Ok(Some(why))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a token, part after part.
    fn token(&self, how: How, replayed: bool) -> Result<Turn> {
        let mut turn = [0; 3];
        for (part, time) in Part::ALL.into_iter().zip(&mut turn) {
            *time = self.part(part, how, replayed)?;
        }
        Ok(turn)
    }

    /// Makes a part of a token, and says how many nanoseconds it took.
    fn part(&self, part: Part, how: How, replayed: bool) -> Result<u64> {
        let task = self.task()?;
        let begun = Instant::now();
        self.append(task, part, how, replayed)?.wait()?;
        Ok(begun.elapsed().as_nanos() as u64)
    }

    fn append(&self, task: &Task, part: Part, how: How, replayed: bool) -> Result<Completion> {
        if !replayed {
            // SAFETY: the token outlives the stream's work, or is leaked with it.
            return unsafe { task.token.append(&self.comm, &self.stream, part, how) };
        }
        let graphs = task.graphs.iter().find(|(of, _)| *of == how).map(|(_, graphs)| graphs);
        let graph = graphs.and_then(|graphs| graphs.iter().find(|(of, _)| *of == part));
        let (_, graph) = graph.ok_or_else(|| Error::InvalidUsage("nothing was recorded".into()))?;
        // SAFETY: as above.
        unsafe { graph.launch(&self.stream, CallOptions::default()) }
    }

    fn record(&mut self, designs: &[String]) -> Result<()> {
        let mut graphs = Vec::new();
        let mut hows: Vec<How> = Vec::new();
        for design in designs {
            hows.push(How::Both(named(design)?));
        }
        hows.extend([How::Reductions, How::Boundaries]);
        for how in hows {
            let parts: &[Part] = if matches!(how, How::Both(_)) { &Part::ALL } else { &[Part::Boundaries] };
            let mut recorded = Vec::with_capacity(parts.len());
            for &part in parts {
                self.stream.begin_capture()?;
                let appended = self.task().and_then(|task| self.append(task, part, how, false));
                // Whatever became of the calls, the stream is not left recording.
                let graph = self.stream.end_capture()?;
                drop(appended?);
                recorded.push((part, graph.instantiate()?));
                self.pulse.beat(Instant::now())?;
            }
            graphs.push((how, recorded));
        }
        if let Some(task) = &mut self.task {
            task.graphs = graphs;
        }
        Ok(())
    }

    /// Returns when all ranks have called this, on all of them within a short time.
    fn meet(&mut self) -> Result<()> {
        self.comm.all_reduce_in_place(&mut self.meeting, ReduceOp::Sum, &self.stream)?.wait()
    }

    fn measure(&mut self, designs: &[String], turns: u32, replayed: bool) -> Result<Vec<Vec<Turn>>> {
        let designs: Vec<Design> = designs.iter().map(|name| named(name)).collect::<Result<_>>()?;
        let contestants = designs.len() + Beside::ALL.len();
        let mut samples = vec![Vec::with_capacity(turns as usize); contestants];
        for turn in 0..turns as usize {
            for place in 0..contestants {
                // Another begins each time, so that none always follows the same.
                let contestant = (turn + place) % contestants;
                self.meet()?;
                let time = match designs.get(contestant) {
                    Some(design) => self.token(How::Both(*design), replayed)?,
                    None => {
                        let time = match Beside::ALL[contestant - designs.len()] {
                            Beside::Reductions => self.part(Part::Boundaries, How::Reductions, replayed)?,
                            Beside::Boundaries => self.part(Part::Boundaries, How::Boundaries, replayed)?,
                            Beside::Copies => self.copies()?,
                        };
                        [0, time, 0]
                    }
                };
                samples[contestant].push(time);
                self.pulse.beat(Instant::now())?;
            }
        }
        Ok(samples)
    }

    /// Copies every boundary's `fn`.
    fn copies(&self) -> Result<u64> {
        let Task { token, copies, .. } = self.task()?;
        let one = token.weight_bytes();
        let begun = Instant::now();
        for boundary in 0..BOUNDARIES {
            let to = copies.as_ptr().wrapping_add(boundary * one % copies.len());
            // SAFETY: both hold so many bytes, and stay until the stream is waited for.
            unsafe { self.stream.copy(to.cast(), token.weights_of(boundary).cast(), one, &[])? };
        }
        self.stream.synchronize()?;
        Ok(begun.elapsed().as_nanos() as u64)
    }

    /// Makes a token of a round's inputs and compares all that it leaves behind.
    fn check(&mut self, design: Design, replayed: bool, round: u32) -> Result<Reply> {
        let (comm, pulse) = (&self.comm, &mut self.pulse);
        let task = self.task.as_mut().ok_or_else(|| Error::InvalidUsage("nothing was prepared".into()))?;
        task.token.write(comm, &self.stream, round)?;
        let model = task.token.model;
        if let Entry::Vacant(place) = task.references.entry(round) {
            let (rank, ranks) = (comm.rank(), comm.world_size());
            let order = comm.request(1, model.params.dtype, ReduceOp::Sum).order;
            let all = 0..model.params.rows;
            let rows: Vec<u64> =
                if model.params.rows <= MOST_ROWS { all.collect() } else { all.skip(rank).step_by(ranks).collect() };
            let results = model.reference(ranks, order, round, &rows, &mut || pulse.beat(Instant::now()).map(drop))?;
            place.insert(rows.into_iter().zip(results).collect());
        }
        // All begin together: a rank that has been waited for too long has failed.
        member::busy()?;
        self.token(How::Both(design), replayed)?;
        let task = self.task()?;
        let mut got = task.token.read(&self.stream)?;
        if self.corrupt.contains(&design) {
            let middle = got[0].bytes.len() / 2;
            got[0].bytes[middle] ^= 1;
        }
        let (mut wrong, mut first) = (0, None);
        let mut note = |(more, what): (u64, Option<String>)| {
            wrong += more;
            first = first.take().or(what);
        };
        let references = task.references.get(&round).map_or(&[][..], Vec::as_slice);
        references.iter().for_each(|(row, want)| note(compare(&got, *row as usize, want)));
        // Of the other rows each design has to make the same.
        if let Some(before) = task.first.get(&round) {
            for row in (0..model.params.rows).filter(|row| !references.iter().any(|(known, _)| known == row)) {
                note(compare(&got, row as usize, &row_of(before, row as usize)));
            }
        }
        if let Some(task) = &mut self.task {
            task.first.entry(round).or_insert(got);
        }
        Ok(Reply::Checked { wrong, first })
    }
}

/// A row of what a token left behind.
fn row_of(tensors: &[Tensor], row: usize) -> Row {
    let of = |tensor: &Tensor| {
        let rows = tensor.bytes.chunks_exact(tensor.bytes.len() / tensor.items);
        rows.flat_map(|item| &item[row * tensor.row_bytes..][..tensor.row_bytes]).copied().collect()
    };
    tensors.iter().map(of).collect()
}
