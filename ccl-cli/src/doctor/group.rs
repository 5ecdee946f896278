//! Tries to form communicators, and to reduce something with them.

use super::child::say;
use ccl_core::bootstrap::{self, UNIQUE_ID_BYTES, UniqueId};
use ccl_core::config::{Config, LogLevel, OnError};
use ccl_core::mesh::Mesh;
use ccl_core::{Error, ReduceOp, Result};
use ccl_ze::{Communicator, inspect, log};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Not a multiple of anything, so that the tail of a tile is reduced as well.
const COUNT: usize = 1027;

/// A group that was formed and has reduced something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Formed {
    /// Driver and how it was reached.
    pub(super) driver: String,
    /// The first rank's device.
    pub(super) device: String,
    pub(super) software: bool,
    /// Whether ranks store into each other's device memory.
    pub(super) p2p: bool,
    /// Bytes of a line on the wire.
    pub(super) granule: usize,
    /// Whether the ranks had to share a device.
    pub(super) shared: bool,
}

/// The environment's configuration, with waits that end before `limit` does, and without side effects.
pub(super) fn config(limit: Duration) -> Result<Config> {
    let mut config = Config::from_env()?;
    config.timeout = config.timeout.min(limit / 3);
    config.connection_timeout = config.connection_timeout.min(limit / 3);
    config.on_error = Some(OnError::Log);
    // What is logged belongs into the report, not into the user's file.
    config.log_file = None;
    config.log_level = LogLevel::Warn;
    log::install(&config)?;
    Ok(config)
}

/// Ranks of one process, one thread each. Says what came of it.
pub(super) fn threads(ranks: usize, limit: Duration) -> Result<()> {
    let (config, shared) = shareable(config(limit)?, ranks)?;
    let meshes = bootstrap::local(ranks)?;
    let formed = std::thread::scope(|scope| {
        let rank = |mesh: Mesh| {
            let config = config.clone();
            scope.spawn(move || {
                let rank = mesh.rank();
                reduce(Communicator::builder_with(config).device(rank).init_local(mesh)?, shared)
            })
        };
        let threads: Vec<_> = meshes.into_iter().map(rank).collect();
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::Internal("a thread of the doctor panicked".into())))
        });
        ended.collect::<Result<Vec<Formed>>>()
    })?;
    say(&formed.first());
    Ok(())
}

/// Two ranks, each in a process: what nearly all users have.
pub(super) fn processes(limit: Duration) -> Result<()> {
    let (config, shared) = shareable(config(limit)?, 2)?;
    let id = UniqueId::create(Default::default())?;
    let program = std::env::current_exe().map_err(|error| Error::system("the path of ccl", error))?;
    let mut peer = Command::new(program)
        .args([super::PROBE_COMMAND, "group-peer", &limit.as_millis().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| Error::system("a second process", error))?;
    if let Some(mut input) = peer.stdin.take() {
        input.write_all(id.as_bytes()).map_err(|error| Error::system("the second process", error))?;
    }
    let formed = reduce(Communicator::builder_with(config).device(0).init(&id, 0, 2)?, shared)?;
    let status = peer.wait().map_err(|error| Error::system("the second process", error))?;
    if !status.success() {
        return Err(Error::Internal(format!("the second process ended badly: {status}")));
    }
    say(&Some(formed));
    Ok(())
}

/// The second rank.
pub(super) fn peer(limit: Duration) -> Result<()> {
    let (config, shared) = shareable(config(limit)?, 2)?;
    let mut id = [0; UNIQUE_ID_BYTES];
    std::io::stdin().lock().read_exact(&mut id).map_err(|error| Error::system("the first process", error))?;
    let id = UniqueId::from_bytes(id);
    reduce(Communicator::builder_with(config).device(1).init(&id, 1, 2)?, shared)?;
    Ok(())
}

/// Lets ranks share a device where there are too few: what is asked here is whether ranks can talk at all.
fn shareable(mut config: Config, ranks: usize) -> Result<(Config, bool)> {
    let shared = inspect::chosen(&config)?.devices < ranks;
    config.allow_shared_device |= shared;
    Ok((config, shared))
}

/// An all-reduce whose every element is compared. All sums are exact in the type.
fn reduce(comm: Communicator, shared: bool) -> Result<Formed> {
    let (rank, ranks) = (comm.rank(), comm.world_size());
    let value = |rank: usize, index: usize| (rank * 100 + index % 97) as f32;
    let input: Vec<f32> = (0..COUNT).map(|index| value(rank, index)).collect();
    let stream = comm.stream(0)?;
    let mut send = comm.alloc::<f32>(COUNT)?;
    let mut recv = comm.alloc::<f32>(COUNT)?;
    send.write(&stream, &input)?;
    recv.write(&stream, &vec![f32::NAN; COUNT])?;
    comm.all_reduce(&send, &mut recv, ReduceOp::Sum, &stream)?.wait()?;
    let mut output = vec![f32::NAN; COUNT];
    recv.read(&stream, &mut output)?;
    for (index, got) in output.iter().enumerate() {
        let expected: f32 = (0..ranks).map(|rank| value(rank, index)).sum();
        if got.to_bits() != expected.to_bits() {
            return Err(Error::Internal(format!(
                "the all-reduce gave a wrong sum: element {index} is {got}, should be {expected}"
            )));
        }
    }
    let is = comm.describe();
    Ok(Formed { driver: is.driver, device: is.device, software: is.software, p2p: is.p2p, granule: is.granule, shared })
}

/// A probe's exit; the reason goes to standard error, as its last line.
pub(super) fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
