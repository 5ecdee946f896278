//! `ccl perf`: times a collective between rank processes that it starts, and checks what they computed.

mod collective;
mod data;
mod message;
mod mhc;
mod options;
mod rank;
mod report;
mod sizes;

pub(crate) use mhc::{RANK_COMMAND as MHC_RANK_COMMAND, rank as mhc_rank};
pub(crate) use options::AFTER_HELP;
pub(crate) use rank::rank;

use crate::crew::{Crew, Failure, Seat};
use crate::output;
use ccl_core::bootstrap::{RootOptions, UniqueId};
use ccl_core::config::Config;
use indicatif::{ProgressBar, ProgressStyle};
use message::{Command, Job, Ready, Reply, Timing};
use options::{Args, Options, Series};
use report::{Replay, Report, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sizes::Step;
use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What is measured: a collective over message sizes, or something that has options of its own.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Perf {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    sizes: Option<Args>,
}

#[derive(clap::Subcommand, Debug)]
enum Other {
    /// Time the mHC boundaries of a decode token, fused with their all-reduces and not
    #[command(after_help = mhc::AFTER_HELP)]
    Mhc(mhc::Args),
}

/// The hidden command that makes a process a rank.
pub(crate) const RANK_COMMAND: &str = "__rank";

/// Unless told otherwise: the fewest and the most timed calls of a size, and the time that they may take.
const CALLS: (u32, u32) = (5, 200);
const CALLS_TIME: Duration = Duration::from_millis(500);

/// Unless told otherwise: calls before the timed ones, and of slow ones, which are so from this time on.
const WARMUP: (u32, u32) = (5, 1);
const SLOW_CALL: Duration = Duration::from_millis(100);

/// How long a rank may be silent beyond the library's own limit, while it makes data or compares it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run shorter than this shows no bar.
const LONG_RUN: Duration = Duration::from_secs(2);

/// Why a run has no good end, with its exit status.
struct Stop {
    code: u8,
    why: String,
}

impl Stop {
    fn wrong(why: impl fmt::Display) -> Self {
        Self { code: 1, why: why.to_string() }
    }

    fn usage(why: impl fmt::Display) -> Self {
        Self { code: crate::USAGE, why: why.to_string() }
    }

    fn not_started(why: impl fmt::Display) -> Self {
        Self { code: 3, why: why.to_string() }
    }

    /// Of ranks that failed once all were ready.
    fn failed(failure: Failure, results: usize) -> Self {
        let code = match (failure.timed_out, results) {
            (true, _) => 4,
            (false, 0) => 3,
            (false, _) => 1,
        };
        Self { code, why: failure.to_string() }
    }
}

pub(crate) fn main(perf: Perf) -> ExitCode {
    // Other names and values than text are none of ours, but for the values of variables that are: the ranks would
    // refuse them.
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    let environment = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    let done = match perf {
        Perf { other: Some(Other::Mhc(args)), .. } => {
            args.resolve(environment).map_err(Stop::usage).and_then(|options| mhc::run(&options))
        }
        Perf { other: None, sizes: Some(args) } => {
            args.resolve(environment).map_err(Stop::usage).and_then(|options| run(&options))
        }
        Perf { other: None, sizes: None } => {
            Err(Stop::usage("no collective; its name comes first: see ccl perf --help"))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            for line in stop.why.lines() {
                eprintln!("ccl perf: {line}");
            }
            ExitCode::from(stop.code)
        }
    }
}

fn run(options: &Options) -> Result<(), Stop> {
    let files = [("--json", &options.json), ("--csv", &options.csv), ("--plot", &options.plot)];
    for (flag, path) in files {
        path.as_ref().map_or(Ok(()), |path| report::probe(flag, path)).map_err(Stop::usage)?;
    }
    let (mut crew, ready) = start(options)?;
    let plan = prepare_largest(&mut crew, options)?;
    print(&header(options, &ready, &crew.pids(), &plan))?;
    print(&report::columns(options.replays.is_some()))?;

    let mut report = Report {
        version: Report::version(),
        collective: options.what.name(),
        ranks: options.ranks,
        device: format!("{}; {}", ready[0].device, ready[0].driver),
        software: ready[0].software,
        p2p: ready[0].p2p,
        granule: ready[0].granule,
        registered: options.registered,
        staging_bytes: ready[0].staging_bytes,
        init_ms: ready.iter().map(|rank| rank.init_ms).fold(0.0, f64::max),
        results: Vec::new(),
    };
    let places = if options.what.has_place() { 2 } else { 1 };
    let mut progress = Progress::new(options.series.iter().map(|series| places * series.counts.len()).sum());
    for series in &options.series {
        for &count in &series.counts {
            let mut both = Vec::with_capacity(2);
            for in_place in [false, true].into_iter().filter(|in_place| !in_place || options.what.has_place()) {
                let place = if in_place { ", in place" } else { "" };
                progress.show(format!("{count} of {} {}{place}", series.dtype, series.op.name()));
                let row = measure(&mut crew, options, series, count, in_place, &mut progress)
                    .map_err(|failure| Stop::failed(failure, report.results.len()))?;
                progress.advance();
                report.results.push(row.clone());
                both.push(row);
            }
            progress.pause(|| print(&report::line(&both[0], both.get(1))))?;
        }
    }
    drop(progress);
    crew.finish().map_err(Stop::wrong)?;
    print(&report::footer(&report))?;
    for (flag, path) in files {
        let Some(path) = path else { continue };
        let text = match flag {
            "--json" => report::json(&report),
            "--csv" => report::csv(&report.results),
            _ => report::picture(&report),
        };
        // It could be written at the start.
        text.and_then(|text| report::write(flag, path, &text)).map_err(Stop::usage)?;
    }
    match report.wrong() {
        None | Some(0) => Ok(()),
        Some(wrong) => Err(Stop::wrong(format!("{wrong} wrong elements"))),
    }
}

fn print(text: &str) -> Result<(), Stop> {
    output::line(text).map_err(Stop::wrong)
}

/// Starts the ranks and waits until all are ready.
fn start(options: &Options) -> Result<(Crew<Reply>, Vec<Ready>), Stop> {
    let job = || Job {
        max_bytes: options.max_bytes(),
        registered: options.registered,
        corrupt: options.corrupt,
        what: options.what,
        root: options.root,
    };
    let ready = |reply| if let Reply::Ready(ready) = reply { Some(ready) } else { None };
    form(RANK_COMMAND, options.ranks, &options.config, &options.variables, job, ready)
}

/// Starts a group whose ranks do a job each by the hidden command, and waits for the first word of all.
fn form<J: Serialize, A: DeserializeOwned + Send + 'static>(
    command: &str,
    ranks: usize,
    config: &Config,
    variables: &[(&'static str, String)],
    job: impl Fn() -> J,
    ready: impl Fn(A) -> Option<Ready>,
) -> Result<(Crew<A>, Vec<Ready>), Stop> {
    // This process, which is no rank, serves the rendezvous.
    let limit = config.connection_timeout;
    let root = RootOptions { idle_limit: limit, join_limit: limit, ..Default::default() };
    let id = UniqueId::create(root).map_err(Stop::not_started)?;
    let jobs = Seat::all(ranks, &id).map(|seat| (seat, job())).collect();
    let silence = config.timeout.max(limit) + PATIENCE;
    let mut crew = Crew::start(command, jobs, variables, silence).map_err(Stop::not_started)?;
    let replies = crew.gather(&mut || {}).map_err(Stop::not_started)?;
    let ready: Vec<Ready> = replies.into_iter().filter_map(ready).collect();
    if ready.len() != ranks {
        return Err(Stop::not_started("a rank gave another answer than was asked for"));
    }
    Ok((crew, ready))
}

/// Makes ready for the largest message; the plan of rank 0 tells what it will be.
fn prepare_largest(crew: &mut Crew<Reply>, options: &Options) -> Result<String, Stop> {
    let bytes = |series: &&Series| series.counts.last().unwrap_or(&0) * series.dtype.size() as u64;
    let largest = options.series.iter().max_by_key(bytes).ok_or_else(|| Stop::usage("no sizes"))?;
    let count = largest.counts.last().copied().unwrap_or_default();
    // A call that the ranks refuse has not begun.
    prepare(crew, largest, count, false, &mut || {}).map(|(_, plan)| plan).map_err(Stop::not_started)
}

/// Makes ready for a message; gives the algorithm and the plan.
fn prepare(
    crew: &mut Crew<Reply>,
    series: &Series,
    count: u64,
    in_place: bool,
    busy: &mut dyn FnMut(),
) -> Result<(String, String), Failure> {
    let (dtype, op) = (series.dtype.name().to_owned(), series.op.name().to_owned());
    let replies = crew.ask(Command::Prepare { dtype, op, count, in_place }, busy)?;
    match replies.into_iter().next() {
        Some(Reply::Prepared { algo, plan }) => Ok((algo, plan)),
        _ => Err(Failure::of("rank 0 gave another answer than was asked for")),
    }
}

/// Measures one message size, in place or not.
fn measure(
    crew: &mut Crew<Reply>,
    options: &Options,
    series: &Series,
    count: u64,
    in_place: bool,
    progress: &mut Progress,
) -> Result<Row, Failure> {
    let busy = &mut || progress.tick();
    let (algo, _) = prepare(crew, series, count, in_place, busy)?;
    let first = time(crew, 1, false, busy)?;
    let slow = first.median_us > SLOW_CALL.as_secs_f64() * 1e6;
    let mut expected = first;
    match options.warmup.unwrap_or(if slow { WARMUP.1 } else { WARMUP.0 }) {
        0 => {}
        calls => expected = time(crew, calls, false, busy)?,
    }
    let iterations = options.iterations.unwrap_or_else(|| {
        let fit = CALLS_TIME.as_secs_f64() * 1e6 / expected.median_us.max(0.001);
        (fit as u32).clamp(CALLS.0, CALLS.1)
    });
    let timing = time(crew, iterations, false, busy)?;
    let what = |how: &str| {
        let place = if in_place { "in place" } else { "out of place" };
        format!("{count} elements of {} {}, {place}{how}", series.dtype, series.op.name())
    };
    let wrong = if options.check { Some(check(crew, false, &what(""), busy)?) } else { None };
    let replay = match options.replays {
        None => None,
        Some(replays) => {
            crew.ask(Command::Record, busy)?;
            // The first after its inputs changed, not the first ever, which a graph may need to get ready.
            let wrong = if options.check { Some(check(crew, true, &what(", replayed"), busy)?) } else { None };
            let timing = time(crew, replays, true, busy)?;
            let Timing { median_us, p99_us, min_us, ze_calls_per_op } = timing;
            Some(Replay { replays, median_us, p99_us, min_us, wrong, ze_calls_per_op })
        }
    };
    let bytes = count * series.dtype.size() as u64;
    let (algbw_gbps, busbw_gbps) = report::bandwidths(bytes, options.what.bus_factor(options.ranks), &timing);
    Ok(Row {
        bytes,
        count,
        dtype: series.dtype.name(),
        op: collective::redop(options.what, series.op.name()),
        root: if options.what.has_root() { options.root as i64 } else { -1 },
        in_place,
        algo,
        order: options.config.order.to_string(),
        iterations,
        median_us: timing.median_us,
        p99_us: timing.p99_us,
        min_us: timing.min_us,
        first_call_us: first.median_us,
        algbw_gbps,
        busbw_gbps,
        wrong,
        ze_calls_per_op: timing.ze_calls_per_op,
        replay,
    })
}

/// Times of the slowest rank.
fn time(crew: &mut Crew<Reply>, calls: u32, replayed: bool, busy: &mut dyn FnMut()) -> Result<Timing, Failure> {
    let replies = crew.ask(Command::Time { calls, replayed }, busy)?;
    let times =
        replies.into_iter().filter_map(|reply| if let Reply::Timed(timing) = reply { Some(timing) } else { None });
    Timing::slowest(times).ok_or_else(|| Failure::of("no rank told its times"))
}

/// Wrong elements on all ranks; the first of each rank is shown.
fn check(crew: &mut Crew<Reply>, replayed: bool, what: &str, busy: &mut dyn FnMut()) -> Result<u64, Failure> {
    let mut wrong = 0u64;
    for (rank, reply) in crew.ask(Command::Check { replayed }, busy)?.into_iter().enumerate() {
        let Reply::Checked { wrong: here, first } = reply else {
            return Err(Failure::of(format!("rank {rank} gave another answer than was asked for")));
        };
        wrong = wrong.saturating_add(here);
        if let Some(first) = first {
            eprintln!("ccl perf: wrong data on rank {rank}, {what}: {first}");
        }
    }
    Ok(wrong)
}

/// On what is measured.
fn who(ready: &[Ready], pids: &[u32]) -> Vec<String> {
    let root = &ready[0];
    let mut lines = vec![format!("Driver: {}", root.driver)];
    for (rank, (is, pid)) in ready.iter().zip(pids).enumerate() {
        lines.push(format!(" Rank {rank:2} Pid {pid:6} device {:2} [{}]", is.device_index, is.device));
    }
    let way = match (ready.len(), root.p2p) {
        (1, _) => "none (one rank)",
        (_, true) => "direct stores into the next device's memory (P2P)",
        (_, false) => "staging in host memory (no P2P)",
    };
    lines.push(format!(
        "Links: {way}; lines of {} bytes; {} bytes of staging memory a rank",
        root.granule, root.staging_bytes
    ));
    lines
}

/// What is measured, on what, and how.
fn header(options: &Options, ready: &[Ready], pids: &[u32], plan: &str) -> String {
    let step = match options.step {
        Step::Factor(factor) => format!("factor {factor}"),
        Step::Bytes(bytes) => format!("step {bytes}"),
    };
    let mut lines = vec![format!(
        "ccl perf {}: {} ranks, {} to {} bytes, {step}",
        options.what.name(),
        options.ranks,
        options.min_bytes(),
        options.max_bytes(),
    )];
    lines.extend(who(ready, pids));
    if options.registered {
        lines.push("Buffers: registered with the communicator".into());
    }
    lines.push(format!("Plan of the largest size: {plan}"));
    let calls = match options.iterations {
        Some(calls) => format!("{calls} calls"),
        None => format!("{} to {} calls, as many as fit in {CALLS_TIME:?}", CALLS.0, CALLS.1),
    };
    let warmup = match options.warmup {
        Some(calls) => format!("{calls}"),
        None => format!("{} (where a call takes over {SLOW_CALL:?}: {})", WARMUP.0, WARMUP.1),
    };
    lines.push(format!(
        "Time: median of {calls} after a first and {warmup} to warm up; each is appended and waited for, with no barrier \
         between; slowest rank"
    ));
    if let Some(replays) = options.replays {
        lines.push(format!("Replay: median of {replays} replays of the call, recorded in a graph"));
    }
    lines.push(if options.check {
        "Check: every element on every rank, of calls back to back with fresh data, exact to the bit; guards around them".into()
    } else {
        "Check: none (-c 0)".into()
    });
    lines.iter().map(|line| format!("# {line}")).collect::<Vec<_>>().join("\n")
}

/// A bar on long runs, if standard error is a terminal.
struct Progress {
    begun: Instant,
    steps: u64,
    done: u64,
    now: String,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(steps: usize) -> Self {
        Self { begun: Instant::now(), steps: steps as u64, done: 0, now: String::new(), bar: None }
    }

    fn show(&mut self, now: String) {
        self.now = now;
        self.tick();
    }

    fn advance(&mut self) {
        self.done += 1;
        self.tick();
    }

    fn tick(&mut self) {
        if self.begun.elapsed() < LONG_RUN {
            return;
        }
        // On anything but a terminal it draws nothing.
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {elapsed} {msg}");
            ProgressBar::new(self.steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_position(self.done);
        bar.set_message(self.now.clone());
        bar.tick();
    }

    /// Does something to the terminal without the bar in the way.
    fn pause<T>(&self, act: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(act),
            None => act(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
