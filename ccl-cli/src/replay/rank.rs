//! One rank of a replay.

use super::batch::{Batch, Call, Tensor, What};
use super::{Job, Outcome, Reply};
use crate::crew::{Seat, member};
use ccl_core::config::Config;
use ccl_core::corpus::{Group, Kind, Role, Scan, boundary, reduce};
use ccl_core::{Error, Result};
use ccl_ze::Communicator;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// Bytes of the messages that are on the device at one time; at least one call is.
const BATCH_BYTES: u64 = 64 << 20;

/// The whole life of a rank process.
pub(crate) fn rank() -> ExitCode {
    member::serve(|seat, job| serve(&seat, &job))
}

fn serve(seat: &Seat, job: &Job) -> Result<()> {
    let mut config = Config::from_env()?;
    // What is made again is not captured again, least of all into the corpus that it comes from.
    config.capture = None;
    ccl_ze::log::install(&config)?;
    let scan = Scan::open(Path::new(OsStr::from_bytes(&job.directory)))?;
    let group = scan.groups.iter().find(|group| group.name == job.group);
    let group = group.ok_or_else(|| Error::InvalidUsage(format!("{} is no longer in the corpus", job.group)))?;
    let comm = Communicator::builder_with(config).init(&seat.id()?, seat.rank, seat.ranks)?;
    if group.parts[seat.rank].events.iter().any(|event| !matches!(event.call, Kind::AllReduce(_))) {
        comm.prepare_mhc()?;
    }
    let is = comm.describe();
    member::say(Reply::Ready { driver: is.driver, device: is.device })?;
    let mut outcome = Outcome::default();
    let replayed = replay(&scan, group, job, &comm, &mut outcome);
    if replayed.is_err() {
        // Nothing that may still run is waited for, so that the failure is told at once. The process ends with it.
        std::mem::forget(comm);
        return replayed;
    }
    member::say(Reply::Done(outcome))?;
    // Until all ranks are done: one that leaves before has failed.
    while member::next::<serde::de::IgnoredAny>()?.is_some() {}
    Ok(())
}

fn replay(scan: &Scan, group: &Group, job: &Job, comm: &Communicator, outcome: &mut Outcome) -> Result<()> {
    let mut next = 0;
    while next < job.events {
        let (mut calls, mut bytes) = (Vec::new(), 0);
        while next < job.events && (calls.is_empty() || bytes < BATCH_BYTES) {
            let call = load(scan, group, comm, next, job.replays > 0)?;
            bytes += call.bytes() as u64;
            calls.push(call);
            next += 1;
            member::busy()?;
        }
        let mut batch = Batch::new(comm, calls, job.corrupt)?;
        let run = batch.run(comm, job.replays, outcome);
        if run.is_err() {
            // Its memory may still be in use.
            std::mem::forget(batch);
            return run;
        }
    }
    Ok(())
}

/// One call of this rank: what was captured, and other inputs with what must come of them where they are wanted.
fn load(scan: &Scan, group: &Group, comm: &Communicator, index: usize, others: bool) -> Result<Call> {
    let event = &group.parts[comm.rank()].events[index];
    let loaded = scan.tensors(group, comm.rank(), event)?;
    let mut places = 0;
    let mut tensors: Vec<Tensor> = Vec::with_capacity(event.tensors.len());
    for (position, tensor) in event.tensors.iter().enumerate() {
        // As it was placed, where that is something to ask for: an output that the library itself put in the place of an
        // input that it was done with is not.
        let own = |name: &str| matches!(event.call, Kind::AllReduce(_)) || tensor.name == name;
        let shared = event.aliases.iter().filter(|_| tensor.role == Role::Output).find_map(|alias| {
            let input = |known: &&Tensor| !known.output && known.name == alias.input;
            (alias.output == tensor.name && own(&alias.input)).then(|| tensors.iter().find(input))?
        });
        let place = shared.map_or(places, |input| input.place);
        places += usize::from(shared.is_none());
        tensors.push(Tensor {
            name: tensor.name.clone(),
            output: tensor.role == Role::Output,
            element: tensor.dtype.size(),
            place,
            values: vec![loaded.bytes_of(position).into()],
        });
    }
    if others {
        add_others(scan, group, comm.rank(), index, &mut tensors)?;
    }
    let what = match &event.call {
        Kind::AllReduce(call) => What::AllReduce(call.request()),
        Kind::MhcBoundary(call) | Kind::MhcPost(call) => {
            let unknown = || Error::InvalidUsage(format!("event {}: mHC {}", event.number, call.variant));
            What::Mhc(call.params().ok_or_else(unknown)?)
        }
    };
    Ok(Call { number: event.number, what, tensors })
}

/// A message from its end to its beginning: other results everywhere, and as ordinary ones.
fn reversed(bytes: &[u8], element: usize) -> Vec<u8> {
    bytes.chunks_exact(element).rev().flatten().copied().collect()
}

/// Gives tensors other values: reductions the neighbour's input from the end, boundaries x and residual from the end.
fn add_others(scan: &Scan, group: &Group, rank: usize, index: usize, tensors: &mut [Tensor]) -> Result<()> {
    let ranks = group.parts.len();
    let event_of = |rank: usize| &group.parts[rank].events[index];
    let event = event_of(rank);
    let others: Vec<(bool, &str, Vec<u8>)> = if let Kind::AllReduce(_) = event.call {
        let (mut calls, mut inputs) = (Vec::with_capacity(ranks), Vec::with_capacity(ranks));
        for rank in 0..ranks {
            let Kind::AllReduce(call) = &event_of(rank).call else {
                return Err(Error::InvalidUsage(format!("event {} is another on rank {rank}", event.number)));
            };
            let neighbour = (rank + 1) % ranks;
            let loaded = scan.tensors(group, neighbour, event_of(neighbour))?;
            let input = loaded.tensor(event_of(neighbour), Role::Input, "input");
            let input = input.ok_or_else(|| Error::InvalidUsage(format!("event {} has no input", event.number)))?;
            calls.push(call);
            inputs.push(reversed(input, call.dtype.size()));
        }
        let views: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let output = reduce(&calls, &views).map_err(Error::InvalidUsage)?;
        vec![(false, "input", inputs.swap_remove(rank)), (true, "output", output)]
    } else {
        let input = |name: &str| tensors.iter().find(|tensor| !tensor.output && tensor.name == name);
        let other =
            |name: &'static str| input(name).map(|tensor| (false, name, reversed(&tensor.values[0], tensor.element)));
        let mut others: Vec<(bool, &str, Vec<u8>)> = ["x", "residual"].into_iter().filter_map(other).collect();
        let bytes = |name: &str| {
            let other = others.iter().find(|(_, known, _)| *known == name).map(|(_, _, bytes)| bytes.as_slice());
            other.or_else(|| input(name).map(|tensor| &*tensor.values[0]))
        };
        let outputs = boundary(event, ranks, bytes).map_err(Error::InvalidUsage)?;
        others.extend(outputs.into_iter().map(|(name, bytes)| (true, name, bytes)));
        others
    };
    for (output, name, bytes) in others {
        let known = tensors.iter_mut().find(|tensor| tensor.output == output && tensor.name == name);
        known.into_iter().for_each(|tensor| tensor.values.push(bytes.as_slice().into()));
    }
    Ok(())
}
