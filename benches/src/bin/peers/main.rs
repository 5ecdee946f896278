//! This library and its peers, interleaved in one run: `peers compare`. How fast a CPU's memory is changes within
//! seconds on a shared machine, so only times of the same moment are compared: each pass lets all contestants run one
//! after the other, and ratios are of the same pass.

mod contestants;
mod coordinator;
mod data;
mod floors;
mod gate;
mod ours;
mod report;
mod serve;

use ccl_core::bootstrap::UniqueId;
use clap::{Parser, Subcommand};
use contestants::{CONTESTANTS, Contestant, Group, Setting};
use coordinator::{Coordinator, Order};
use data::Type;
use indicatif::{ProgressBar, ProgressStyle};
use report::{Report, Row, median};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "peers", about = "Compare this library with its peers, all of them in turn in one run")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure
    Compare(Compare),
    /// Write the tables of a JSON file, and put them into a page if one is named
    Table {
        /// What `compare --json` wrote
        json: Vec<PathBuf>,
        /// A page in which they go between the lines `<!-- peers: begin -->` and `<!-- peers: end -->`
        #[arg(long)]
        into: Option<PathBuf>,
    },
    /// One rank, which `compare` starts.
    #[command(hide = true)]
    Rank { group: Group, rank: usize, ranks: usize, max_bytes: usize },
}

#[derive(clap::Args)]
struct Compare {
    /// Ranks; more than cores only with the peers that can do that
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// Message sizes in bytes, with K and M for binary multiples
    #[arg(long, value_delimiter = ',', value_parser = bytes, default_value = "8,8K,64K,1M,16M,128M")]
    sizes: Vec<usize>,
    #[arg(long = "type", value_delimiter = ',', default_values = ["float32", "bfloat16"])]
    types: Vec<Type>,
    /// Passes over all contestants, of each size
    #[arg(long, default_value_t = 9)]
    passes: usize,
    /// Milliseconds of timed calls that a turn should take
    #[arg(long, default_value_t = 20.0)]
    turn_ms: f64,
    /// Leave all others out: for trying this program, not for comparing
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<Group>>,
    /// Fail if a demand is not met
    #[arg(long)]
    gate: bool,
    /// Write the results as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a picture, as SVG
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Where benches/peers/setup.sh put the peers
    #[arg(long, default_value = ".beds/peers")]
    bed: PathBuf,
}

/// Peers that don't spin for ever when there are more ranks than cores.
const YIELDING: [Group; 3] = [Group::Ours, Group::Impi, Group::Floors];

/// A group that is at work out of turn for a larger share of the run spoils the others' times.
const RESTLESS: f64 = 0.05;

fn bytes(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let number = digits.parse::<usize>().map_err(|error| format!("{text}: {error}"))?;
    match number << shift {
        bytes if bytes >= 4 && bytes % 4 == 0 => Ok(bytes),
        _ => Err(format!("{text}: no multiple of 4 bytes")),
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Compare(args) => compare(&args),
        Command::Table { json, into } => table(&json, into.as_deref()),
        Command::Rank { group, rank, ranks, max_bytes } => run_rank(group, rank, ranks, max_bytes),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &Compare) -> Result<(), String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let crowded = args.ranks > cores;
    let mut groups = args
        .only
        .clone()
        .unwrap_or_else(|| Group::ALL.into_iter().filter(|group| !crowded || YIELDING.contains(group)).collect());
    groups.sort_unstable();
    groups.dedup();
    let bed = std::path::absolute(&args.bed).map_err(|error| error.to_string())?;
    let missing: Vec<String> = groups.iter().flat_map(|g| g.missing(&bed)).map(|p| p.display().to_string()).collect();
    if !missing.is_empty() {
        return Err(format!("no {}: run benches/peers/setup.sh", missing.join(", no ")));
    }
    let max_bytes = args.sizes.iter().copied().max().ok_or("no sizes")?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let socket = folder.path().join("socket");
    let setting = Setting { ranks: args.ranks, max_bytes, bed: &bed, scripts: &scripts, socket: &socket };
    let mut coordinator = Coordinator::start(&groups, &setting)?;

    let mut report = Report {
        version: 1,
        ranks: args.ranks,
        processor: processor(),
        cores,
        passes: args.passes,
        peers: versions(&bed, &groups),
        rows: Vec::new(),
        comparisons: Vec::new(),
        out_of_turn: Vec::new(),
    };
    let bar = ProgressBar::new((args.types.len() * args.sizes.len() * args.passes) as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {elapsed} {msg}").map_err(|e| e.to_string())?);
    for &dtype in &args.types {
        for &bytes in &args.sizes {
            bar.set_message(format!("{} {}", dtype.name(), report::size(bytes)));
            report.rows.extend(measure(&mut coordinator, args, &groups, dtype, bytes, &bar)?);
        }
    }
    bar.finish_and_clear();
    report.comparisons = gate::compare(&report);
    let out_of_turn = coordinator.restlessness();
    report.out_of_turn = out_of_turn.iter().map(|(group, share)| (group.name().to_owned(), *share)).collect();
    drop(coordinator);

    print!("{}\n{}", report.text(), report.verdicts());
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &args.plot {
        let picture = ccl_chart::svg(&report.panels())?;
        std::fs::write(path, picture).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    judge(args, &report, &groups, crowded)
}

/// What makes the run a failure.
fn judge(args: &Compare, report: &Report, groups: &[Group], crowded: bool) -> Result<(), String> {
    let mut faults = Vec::new();
    if report.wrong() > 0 {
        let rows = report.rows.iter().filter(|row| row.wrong > 0);
        faults.extend(rows.map(|r| format!("{} {} {} B: {} wrong", r.contestant, r.dtype.name(), r.bytes, r.wrong)));
    }
    for (group, share) in report.out_of_turn.iter().filter(|(_, share)| *share > RESTLESS) {
        faults.push(format!("{group} was at work out of turn for {:.0} % of the run", share * 100.0));
    }
    if args.gate {
        let absent = Group::ALL.into_iter().filter(|group| !crowded || YIELDING.contains(group));
        faults
            .extend(absent.filter(|group| !groups.contains(group)).map(|group| format!("{} is absent", group.name())));
        faults.extend(report.failures());
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\npeers: ")) }
}

/// All passes of one size and type.
fn measure(
    coordinator: &mut Coordinator,
    args: &Compare,
    groups: &[Group],
    dtype: Type,
    bytes: usize,
    bar: &ProgressBar,
) -> Result<Vec<Row>, String> {
    let fits = |c: &&Contestant| groups.contains(&c.group) && c.types.contains(&dtype);
    let contestants: Vec<Contestant> = CONTESTANTS.iter().filter(fits).copied().collect();
    let mut seed = bytes as u32;
    let mut turn = |contestant: &Contestant, warmup: usize, calls: usize| {
        seed = seed.wrapping_add(2);
        let order = Order { variant: contestant.variant, dtype, bytes, warmup, calls, seed };
        coordinator.turn(contestant.group, &order)
    };
    let mut rows = Vec::new();
    let mut calls = Vec::new();
    for contestant in &contestants {
        // Also its first touch of this much memory.
        let first = turn(contestant, 1, 3)?;
        let fit = args.turn_ms * 1e6 / first.median_ns.max(1.0);
        calls.push((fit as usize).clamp(3, 2000));
        rows.push(Row {
            dtype,
            bytes,
            contestant: contestant.title.into(),
            role: contestant.role,
            calls: fit.clamp(3.0, 2000.0) as usize,
            passes_us: Vec::new(),
            median_us: f64::NAN,
            wrong: first.wrong,
        });
    }
    for pass in 0..args.passes {
        for step in 0..contestants.len() {
            // Another one begins each pass, so that nobody always follows the same one.
            let index = (step + pass) % contestants.len();
            let turn = turn(&contestants[index], (calls[index] / 10).clamp(1, 50), calls[index])?;
            let many = if contestants[index].variant == "barrier" { floors::BARRIERS as f64 } else { 1.0 };
            rows[index].passes_us.push(turn.median_ns / 1e3 / many);
            rows[index].wrong += turn.wrong;
        }
        bar.inc(1);
    }
    for row in &mut rows {
        row.median_us = median(&row.passes_us);
    }
    Ok(rows)
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(": ")).map_or("an unknown processor".into(), |(_, name)| name.to_owned())
}

/// Which peers, in which version.
fn versions(bed: &Path, groups: &[Group]) -> Vec<String> {
    let text = std::fs::read_to_string(bed.join("VERSIONS")).unwrap_or_default();
    let package = |group: &Group| match group {
        Group::Impi => Some(("impi-rt", "Intel MPI")),
        Group::Mpich => Some(("mpich", "MPICH")),
        Group::Gloo => Some(("torch", "gloo of torch")),
        Group::Oneccl => Some(("oneccl-cpu", "oneCCL")),
        Group::Ours | Group::Floors => None,
    };
    let version = |package: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == package).map_or("?".to_owned(), |(_, version)| version.to_owned())
    };
    groups.iter().filter_map(package).map(|(name, title)| format!("{title} {}", version(name))).collect()
}

fn run_rank(group: Group, rank: usize, ranks: usize, max_bytes: usize) -> Result<(), String> {
    let variable =
        |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set: `peers compare` starts this"));
    let socket = variable("PEERS_SOCKET")?;
    // The coordinator may die without a chance to end its ranks.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(|error| error.to_string())?;
    serve::pin(rank)?;
    match group {
        Group::Ours => {
            let hex = variable("PEERS_ID")?;
            let byte = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
            let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
            let id = bytes.and_then(|bytes| bytes.try_into().ok()).map(UniqueId::from_bytes);
            let id = id.ok_or("PEERS_ID is no unique id")?;
            let mut ours = ours::Ours::new(&id, rank, ranks, max_bytes).map_err(|error| error.to_string())?;
            serve::serve(group.name(), rank, ranks, &socket, &mut ours)
        }
        Group::Floors => {
            let number = variable("PEERS_FLOORS")?.parse().map_err(|error| format!("PEERS_FLOORS: {error}"))?;
            // SAFETY: the descriptor that `compare` left open for this process, and nobody else here knows of.
            let memory = unsafe { OwnedFd::from_raw_fd(number) };
            let mut floors = floors::Floors::new(memory, rank, ranks, max_bytes)?;
            serve::serve(group.name(), rank, ranks, &socket, &mut floors)
        }
        other => Err(format!("{} is not started like this", other.name())),
    }
}

const BEGIN: &str = "<!-- peers: begin -->";
const END: &str = "<!-- peers: end -->";

fn table(files: &[PathBuf], into: Option<&Path>) -> Result<(), String> {
    let mut text = String::new();
    for file in files {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let json = std::fs::read(file).map_err(|error| told(&error))?;
        let report: Report = serde_json::from_slice(&json).map_err(|error| told(&error))?;
        text.push_str(&format!("\n{}", report.text()));
    }
    let Some(page) = into else {
        print!("{text}");
        return Ok(());
    };
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", page.display());
    let old = std::fs::read_to_string(page).map_err(|error| told(&error))?;
    let parts = old.split_once(BEGIN).and_then(|(head, rest)| rest.split_once(END).map(|(_, tail)| (head, tail)));
    let (head, tail) = parts.ok_or_else(|| told(&format!("no lines {BEGIN} and {END}")))?;
    std::fs::write(page, format!("{head}{BEGIN}\n{text}\n{END}{tail}")).map_err(|error| told(&error))
}
