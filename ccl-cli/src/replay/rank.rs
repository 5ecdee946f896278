//! One rank of a replay.

use super::batch::{Batch, Call};
use super::{Job, Outcome, Reply};
use crate::crew::{Seat, member};
use ccl_core::config::Config;
use ccl_core::corpus::{AllReduce, Event, Group, Kind, Role, Scan, reduce};
use ccl_core::{Error, Result};
use ccl_ze::Communicator;
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
    let scan = Scan::open(&job.directory)?;
    let group = scan.groups.iter().find(|group| group.name == job.group);
    let group = group.ok_or_else(|| Error::InvalidUsage(format!("{} is no longer in the corpus", job.group)))?;
    let comm = Communicator::builder_with(config).init(&seat.id()?, seat.rank, seat.ranks)?;
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
            bytes += 2 * call.bytes() as u64;
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

fn call_of(event: &Event) -> Result<&AllReduce> {
    match &event.call {
        Kind::AllReduce(call) => Ok(call),
        other => Err(Error::NotImplemented(format!("{} made again", other.name()))),
    }
}

/// One call of this rank: the captured input and output, and others where they are wanted.
fn load(scan: &Scan, group: &Group, comm: &Communicator, index: usize, others: bool) -> Result<Call> {
    let tensor = |rank: usize, role, name: &str| -> Result<Vec<u8>> {
        let event = &group.parts[rank].events[index];
        let loaded = scan.tensors(group, rank, event)?;
        let bytes = loaded.tensor(event, role, name);
        bytes.map(<[u8]>::to_vec).ok_or_else(|| Error::InvalidUsage(format!("event {} has no '{name}'", event.number)))
    };
    let rank = comm.rank();
    let event = &group.parts[rank].events[index];
    let call = call_of(event)?;
    let mut messages = vec![(tensor(rank, Role::Input, "input")?, tensor(rank, Role::Output, "output")?)];
    if others {
        // Each rank gets its neighbour's input, from the end: other sums everywhere, and as ordinary ones.
        let ranks = group.parts.len();
        let inputs: Vec<Vec<u8>> = (0..ranks)
            .map(|rank| {
                let input = tensor((rank + 1) % ranks, Role::Input, "input")?;
                Ok(input.chunks_exact(call.dtype.size()).rev().flatten().copied().collect())
            })
            .collect::<Result<_>>()?;
        let calls: Vec<&AllReduce> =
            group.parts.iter().map(|part| call_of(&part.events[index])).collect::<Result<_>>()?;
        let views: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let output = reduce(&calls, &views).map_err(Error::InvalidUsage)?;
        messages.push((inputs[rank].clone(), output));
    }
    Ok(Call::new(event.number, call.request(), !event.aliases.is_empty(), messages))
}
