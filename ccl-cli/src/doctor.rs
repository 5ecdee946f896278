//! `ccl doctor`: what would run on this machine and why, and what would stop it.
//!
//! The doctor's own process never calls a driver. Whatever may crash or hang is tried by a [`mod@probe`] in a process of
//! its own with a deadline, and its end is a finding like any other.

mod child;
mod gpus;
mod group;
mod ipc;
mod oneccl;
mod probe;
mod report;
mod settings;
mod sycl;
mod system;
mod text;
mod verdict;

use crate::{UNWRITTEN, output};
use ccl_ze::inspect::{DriverReport, LoaderReport, LoaderState};
use child::{End, Outcome};
use probe::{LoaderWord, PatternWord};
use report::{Attempt, Group, Ipc, LoaderSection, Pair, PairResult, Patterns, Report, Verdict};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::process::ExitCode;
use std::time::Duration;

/// The hidden command that makes a process a probe.
pub(crate) const PROBE_COMMAND: &str = "__doctor-probe";

/// Exit status where no communicator could be formed.
const NOTHING_WORKS: u8 = 3;

pub(crate) const AFTER_HELP: &str = "\
Nothing needs to be installed: without a loader or a GPU the report says what stands in. Everything that may crash or \
hang is tried in a process of its own. The JSON object is described in docs/doctor.md.

Exit status: 0 a communicator can be formed; 1 the report could not be written; 2 a command line that can't be carried out; 3 none could be formed.";

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Only the table of environment variables with their values
    #[arg(long)]
    env: bool,
    /// Seconds that each thing that is tried may take
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = clap::value_parser!(u16).range(1..=3600))]
    limit: u16,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ProbeArgs {
    stage: String,
    limit_ms: u64,
}

/// One probe, started by the doctor.
pub(crate) fn probe(args: &ProbeArgs) -> ExitCode {
    probe::main(&args.stage, Duration::from_millis(args.limit_ms))
}

pub(crate) fn main(args: &Args) -> ExitCode {
    let configuration = settings::look(std::env::vars_os());
    if args.env {
        let rows = configuration.table();
        let text = if args.json {
            json(&serde_json::json!({ "version": report::VERSION, "variables": rows }))
        } else {
            Ok(text::environment(&configuration))
        };
        return print(text, ExitCode::SUCCESS);
    }
    let report = examine(configuration, Duration::from_secs(args.limit.into()));
    let status = if report.verdict.works { ExitCode::SUCCESS } else { ExitCode::from(NOTHING_WORKS) };
    print(if args.json { json(&report) } else { Ok(text::report(&report)) }, status)
}

fn json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| format!("the report as JSON: {error}"))
}

fn print(text: Result<String, String>, status: ExitCode) -> ExitCode {
    match text.and_then(|text| output::print(&text)) {
        Ok(()) => status,
        Err(error) => {
            eprintln!("ccl doctor: {error}");
            ExitCode::from(UNWRITTEN)
        }
    }
}

fn examine(configuration: settings::Configuration, limit: Duration) -> Report {
    let (loader, mut drivers) = loader(limit);
    let linked: Attempt<DriverReport> = attempt("linked", limit);
    drivers.extend(linked.result);
    let chosen: Attempt<ccl_ze::inspect::Chosen> = attempt("chosen", limit);
    let (patterns, groups) = if chosen.hung {
        // They begin with the same step.
        let error = "not tried, since choosing a driver hung";
        (Patterns { error: Some(error.into()), ..Patterns::default() }, Vec::new())
    } else {
        // Threads of one process can't share a device, so that they need two; where that is unknown, the trial tells.
        let threads = chosen.result.as_ref().is_none_or(|chosen| chosen.devices > 1);
        let groups = [("group-1", 1, 1), ("group-2", 2, 1), ("group-processes", 2, 2)];
        let groups = groups.into_iter().filter(|(stage, ..)| threads || *stage != "group-2");
        let group = |(stage, ranks, processes)| Group { ranks, processes, attempt: attempt(stage, limit) };
        (patterns(chosen.error.as_deref(), limit), groups.map(group).collect())
    };
    let mut report = Report {
        version: report::VERSION,
        ccl: env!("CARGO_PKG_VERSION"),
        verdict: Verdict::default(),
        problems: Vec::new(),
        loader,
        drivers,
        chosen,
        patterns,
        groups,
        ipc: ipc(limit),
        gpus: gpus::look(&gpus::Places::default()),
        oneccl: oneccl::look(attempt("oneccl", limit)),
        sycl: sycl::look(),
        system: system::look(),
        configuration,
    };
    report.problems = verdict::problems(&report, linked.error.as_deref());
    report.verdict = verdict::verdict(&report);
    report
}

/// Runs a probe that says one thing.
fn attempt<T: DeserializeOwned>(stage: &str, limit: Duration) -> Attempt<T> {
    let mut outcome = child::run(stage, limit);
    let hung = matches!(outcome.end, End::TimedOut(_));
    let error = match &outcome.end {
        End::Good => None,
        // A probe that fails says why in its last line.
        End::Status(1) => outcome.noise.pop().or_else(|| outcome.trouble()),
        _ => outcome.trouble(),
    };
    let result = if error.is_none() { words(&outcome).pop() } else { None };
    let silent = error.is_none() && result.is_none();
    let error = if silent { Some("the probe said nothing".into()) } else { error };
    Attempt { result, error, hung, notes: notes(outcome.noise) }
}

/// Printed lines without the log's time and thread, each once.
fn notes(lines: Vec<String>) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for line in lines {
        let note = match line.split_once("|CCL_") {
            Some((_, rest)) => rest.split_once("| ").map_or(rest, |(_, text)| text),
            None => &line,
        };
        if !notes.iter().any(|known| known == note) {
            notes.push(note.to_owned());
        }
    }
    notes
}

/// What a probe said; what is no word of this type it can't have meant.
fn words<T: DeserializeOwned>(outcome: &Outcome) -> Vec<T> {
    outcome.lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn loader(limit: Duration) -> (LoaderSection, Vec<DriverReport>) {
    let outcome = child::run("loader", limit);
    let mut found = None;
    let mut asked = None;
    for word in words(&outcome) {
        match word {
            LoaderWord::Loader(report) => found = Some(report),
            LoaderWord::Drivers(drivers) => asked = Some(drivers),
        }
    }
    let trouble = outcome.trouble();
    let lost = || {
        let error = format!("opening it {}", trouble.as_deref().unwrap_or("said nothing"));
        LoaderReport { state: LoaderState::Unusable, path: None, version: None, error: Some(error) }
    };
    let mut report = found.unwrap_or_else(lost);
    let asked = asked.unwrap_or_default();
    report.version = asked.loader_version.or(report.version);
    let section = LoaderSection {
        report,
        libraries: asked.libraries,
        drivers_error: asked.error,
        intel_driver: asked.intel_driver,
        trouble,
    };
    (section, asked.drivers)
}

fn patterns(no_driver: Option<&str>, limit: Duration) -> Patterns {
    if let Some(error) = no_driver {
        return Patterns { error: Some(format!("no driver to test: {error}")), ..Patterns::default() };
    }
    let outcome = child::run("patterns", limit);
    let mut patterns = Patterns::default();
    let mut begun = None;
    for word in words(&outcome) {
        let (result, error) = match word {
            PatternWord::Devices(devices) => {
                patterns.devices = devices;
                continue;
            }
            PatternWord::Begin(from, to) => {
                begun = Some((from, to));
                continue;
            }
            PatternWord::Tested(None) => (PairResult::NoAccess, None),
            PatternWord::Tested(Some(true)) => (PairResult::Passed, None),
            PatternWord::Tested(Some(false)) => (PairResult::Lost, None),
            PatternWord::Failed(error) => (PairResult::Failed, Some(error)),
        };
        if let Some((from, to)) = begun.take() {
            patterns.pairs.push(Pair { from, to, result, error });
        }
    }
    if let Some(trouble) = outcome.trouble() {
        if let Some((from, to)) = begun {
            // The pair in whose midst the probe ended; a deadline may just have come between two quick ones.
            patterns.pairs.push(Pair { from, to, result: PairResult::Failed, error: Some(trouble.clone()) });
        }
        patterns.error = Some(format!("the test {trouble}"));
    }
    patterns
}

fn ipc(limit: Duration) -> Ipc {
    let outcome = child::run("ipc", limit);
    Ipc { ways: words(&outcome), error: outcome.trouble() }
}
