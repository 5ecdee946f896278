//! `ccl replay`: a captured corpus once more, through this library, bit for bit.

mod batch;
mod rank;

pub(crate) use rank::rank;

use crate::crew::{Crew, Failure, Seat};
use crate::output;
use ccl_core::bootstrap::{RootOptions, UniqueId};
use ccl_core::config::Config;
use ccl_core::corpus::{self, Group, Scan};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The hidden command that makes a process a rank.
pub(crate) const RANK_COMMAND: &str = "__replay";

/// How long a rank may be silent beyond the library's own limit, while it reads files or computes references.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const AFTER_HELP: &str = "\
DIR must stand by itself (ccl verify). Its calls are made again from the files, with the recorded number of ranks, and \
every output is compared with the captured one. With --graph they are also recorded in a graph, which is replayed N \
times: with the captured inputs and with others in turn.

Exit status: 0 all right; 1 wrong data, a corpus that does not stand, or a rank that failed; 2 a command line that \
can't be carried out; 3 it could not be read or not start; 4 timed out.";

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The corpus
    directory: PathBuf,
    /// Record the calls in a graph and replay it N times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    graph: Option<u32>,
    /// Driver: auto (Intel's if there is one, else the software driver), soft, intel [default: CCLX_DEVICE, or auto]
    #[arg(long)]
    device: Option<String>,
    /// Let pass what was not captured: calls after the limit or in recordings, a process that ended early
    #[arg(long)]
    allow_incomplete: bool,
    /// For tests of the comparison: change one element of an output before it is compared.
    #[arg(long, hide = true, value_enum)]
    corrupt: Option<Corrupt>,
}

/// In which run an element is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
enum Corrupt {
    Eager,
    Graph,
}

/// What a rank is to do.
#[derive(Clone, Serialize, Deserialize)]
struct Job {
    /// The corpus's path, which need not be text.
    directory: Vec<u8>,
    /// The communicator's name.
    group: String,
    /// So many of its events.
    events: usize,
    replays: u32,
    corrupt: Option<Corrupt>,
}

/// What a rank says.
#[derive(Clone, Serialize, Deserialize)]
enum Reply {
    /// To the job, once there is a communicator.
    Ready { driver: String, device: String },
    /// At the end.
    Done(Outcome),
}

/// What came of a rank's calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Outcome {
    /// Calls that were made.
    calls: u64,
    /// Graphs that were recorded.
    graphs: u64,
    /// Replays of all of them.
    replays: u64,
    /// Elements that were compared.
    elements: u64,
    /// Wrong ones among them.
    wrong: u64,
    /// The first of these.
    first: Option<String>,
}

struct Stop {
    code: u8,
    why: String,
}

impl Stop {
    fn new(code: u8, why: impl fmt::Display) -> Self {
        Self { code, why: why.to_string() }
    }

    fn wrong(why: impl fmt::Display) -> Self {
        Self::new(1, why)
    }

    fn not_started(why: impl fmt::Display) -> Self {
        Self::new(3, why)
    }

    fn failed(failure: Failure) -> Self {
        Self::new(if failure.timed_out { 4 } else { 1 }, failure)
    }
}

pub(crate) fn main(args: &Args) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            for line in stop.why.lines() {
                eprintln!("ccl replay: {line}");
            }
            ExitCode::from(stop.code)
        }
    }
}

fn run(args: &Args) -> Result<(), Stop> {
    let mut variables = Vec::new();
    variables.extend(args.device.clone().map(|device| ("CCLX_DEVICE", device)));
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    let inherited: Vec<(String, String)> = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let set = variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let config =
        Config::from_vars(inherited.iter().cloned().chain(set)).map_err(|error| Stop::new(crate::USAGE, error))?;

    let options = corpus::Options { allow_incomplete: args.allow_incomplete };
    let verdict = corpus::verify(&args.directory, &options).map_err(Stop::not_started)?;
    if let Some(first) = verdict.findings.first() {
        let why = format!("the corpus does not stand (ccl verify has more): {first}");
        return Err(Stop::wrong(why));
    }
    let scan = Scan::open(&args.directory).map_err(Stop::not_started)?;
    let soft_devices = inherited.iter().any(|(name, _)| name == "ZE_SOFT_DEVICES");
    let mut wrong = 0;
    for group in &scan.groups {
        let mut variables = variables.clone();
        if !soft_devices {
            variables.push(("ZE_SOFT_DEVICES", group.parts.len().to_string()));
        }
        wrong += replay(args, &config, &variables, group)?;
    }
    if wrong > 0 { Err(Stop::wrong(format!("{wrong} wrong elements"))) } else { Ok(()) }
}

/// Makes a communicator's calls again; returns the number of wrong elements.
fn replay(args: &Args, config: &Config, variables: &[(&'static str, String)], group: &Group) -> Result<u64, Stop> {
    // This process, which is no rank, serves the rendezvous.
    let limit = config.connection_timeout;
    let root = RootOptions { idle_limit: limit, join_limit: limit, ..Default::default() };
    let id = UniqueId::create(root).map_err(Stop::not_started)?;
    let ranks = group.parts.len();
    let job = Job {
        directory: args.directory.as_os_str().as_bytes().to_vec(),
        group: group.name.clone(),
        events: group.parts.iter().map(|part| part.events.len()).min().unwrap_or(0),
        replays: args.graph.unwrap_or(0),
        corrupt: args.corrupt,
    };
    let jobs = Seat::all(ranks, &id).map(|seat| (seat, job.clone())).collect();
    let silence = config.timeout.max(limit) + PATIENCE;
    let mut crew = Crew::<Reply>::start(RANK_COMMAND, jobs, variables, silence).map_err(Stop::not_started)?;
    let ready = crew.gather(&mut || {}).map_err(Stop::not_started)?;
    if let Some(Reply::Ready { driver, device }) = ready.first() {
        print(&format!("{}: {ranks} ranks on {device}; {driver}", group.name))?;
    }
    let outcomes: Vec<Outcome> = crew
        .gather(&mut || {})
        .map_err(Stop::failed)?
        .into_iter()
        .filter_map(|reply| if let Reply::Done(outcome) = reply { Some(outcome) } else { None })
        .collect();
    if outcomes.len() != ranks {
        return Err(Stop::wrong("a rank gave another answer than was asked for"));
    }
    crew.finish().map_err(Stop::failed)?;
    for (rank, outcome) in outcomes.iter().enumerate() {
        if let Some(first) = &outcome.first {
            eprintln!("ccl replay: wrong data on rank {rank}: {first}");
        }
    }
    let (first, wrong) = (&outcomes[0], outcomes.iter().map(|outcome| outcome.wrong).sum());
    print(&format!(
        "{}: {} calls{}; {} elements compared on all ranks, {wrong} wrong",
        group.name,
        first.calls,
        match args.graph {
            None => String::new(),
            Some(replays) => format!(", in {} graphs of {replays} replays each", first.graphs),
        },
        outcomes.iter().map(|outcome| outcome.elements).sum::<u64>(),
    ))?;
    Ok(wrong)
}

fn print(text: &str) -> Result<(), Stop> {
    output::line(text).map_err(Stop::wrong)
}
