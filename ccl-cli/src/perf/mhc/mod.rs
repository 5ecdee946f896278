//! `ccl perf mhc`: times the boundaries of a decode token by each design, and checks what they computed.

mod message;
mod model;
mod options;
mod rank;
mod report;
mod token;

pub(crate) use options::{AFTER_HELP, Args, Options};
pub(crate) use rank::rank;

use super::message::Ready;
use super::report::{probe, write};
use super::{Progress, Stop, form, print, who};
use crate::crew::{Crew, Failure};
use ccl_core::mhc::{Design, Params};
use message::{Beside, Command, DESIGNS, Job, Reply, Turn};
use model::Model;
use report::{Refused, Report, Turns, rate};
use std::time::{Duration, Instant};

/// The hidden command that makes a process a rank.
pub(crate) const RANK_COMMAND: &str = "__mhc-rank";

/// Unless told otherwise: the fewest and the most timed turns, and the time that they may take.
const TURNS: (u32, u32) = (5, 50);
const TURNS_TIME: Duration = Duration::from_secs(5);

/// Version of the JSON; it rises when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// Inputs that tokens are checked with, in this order: replays get others than the call before them.
const ROUNDS: [u32; 2] = [0, 1];

pub(super) fn run(options: &Options) -> Result<(), Stop> {
    if let Some(path) = &options.json {
        probe("--json", path).map_err(Stop::usage)?;
    }
    let Params { variant, dtype, hidden, streams, .. } = options.models[0].params;
    let corrupt = options.corrupt.iter().map(Design::to_string).collect();
    let job = Job { variant: variant.to_string(), dtype: dtype.name().into(), hidden, streams, corrupt };
    let ready = |reply| if let Reply::Ready(ready) = reply { Some(ready) } else { None };
    let (mut crew, ready) =
        form(RANK_COMMAND, options.ranks, &options.config, &options.variables, || job.clone(), ready)?;
    print(&header(options, &ready, &crew.pids()))?;
    print(&report::columns())?;
    let mut report = Report {
        version: VERSION,
        collective: "mhc",
        ranks: options.ranks,
        device: format!("{}; {}", ready[0].device, ready[0].driver),
        software: ready[0].software,
        results: Vec::new(),
        refused: Vec::new(),
        wrong_unasked: None,
    };
    let mut progress = Progress::new(options.models.len());
    for model in &options.models {
        progress.show(format!("{} rows", model.params.rows));
        let before = report.results.len();
        let designs = attempt(&mut crew, options, model, &mut report, &mut progress)?;
        measure(&mut crew, options, model, &designs, &mut report, &mut progress)
            .map_err(|failure| Stop::failed(failure, report.results.len()))?;
        progress.advance();
        for result in &report.results[before..] {
            progress.pause(|| print(&report::line(result)))?;
        }
    }
    drop(progress);
    crew.finish().map_err(Stop::wrong)?;
    for Refused { design, rows, why } in &report.refused {
        print(&format!("# No design {design} for {rows} rows: {why}"))?;
    }
    print(&report::footer(&report))?;
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).map_err(Stop::wrong)?;
        write("--json", path, &(text + "\n")).map_err(Stop::usage)?;
    }
    match report.wrong() {
        None | Some(0) => Ok(()),
        Some(wrong) => Err(Stop::wrong(format!("{wrong} wrong elements"))),
    }
}

/// Makes ready for a model, and tries all designs once: those that there are. The unfused one, which the others are
/// compared with, comes first, asked for or not.
fn attempt(
    crew: &mut Crew<Reply>,
    options: &Options,
    model: &Model,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<Vec<Design>, Stop> {
    let rows = model.params.rows;
    crew.ask(Command::Prepare { rows }, &mut || progress.tick()).map_err(Stop::not_started)?;
    let mut there = Vec::new();
    for design in DESIGNS {
        let asked = options.designs.designs.contains(&design);
        if !asked && design != Design::Unfused {
            continue;
        }
        let design_name = design.to_string();
        let replies = crew.ask(Command::Try { design: design_name.clone() }, &mut || progress.tick());
        let replies = replies.map_err(|failure| Stop::failed(failure, report.results.len()))?;
        let refused =
            replies.into_iter().find_map(|reply| if let Reply::Tried { refused } = reply { refused } else { None });
        match refused {
            None => there.push(design),
            Some(why) if options.designs.all && design != Design::Unfused => {
                report.refused.push(Refused { design: design_name, rows, why });
            }
            Some(why) => return Err(Stop::usage(why)),
        }
    }
    Ok(there)
}

/// Measures a model by each design, eager and then replayed.
fn measure(
    crew: &mut Crew<Reply>,
    options: &Options,
    model: &Model,
    designs: &[Design],
    report: &mut Report,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let names: Vec<String> = designs.iter().map(Design::to_string).collect();
    if options.replays.is_some() {
        crew.ask(Command::Record { designs: names.clone() }, &mut || progress.tick())?;
    }
    for replayed in [false, true] {
        let turns = match (replayed, options.replays, options.turns) {
            (true, None, _) => continue,
            (true, Some(replays), _) => replays,
            (false, _, Some(turns)) => turns,
            (false, _, None) => {
                let begun = Instant::now();
                time(crew, &names, 1, false, progress)?;
                let fit = TURNS_TIME.as_secs_f64() / begun.elapsed().as_secs_f64().max(1e-6);
                (fit as u32).clamp(TURNS.0, TURNS.1)
            }
        };
        let mut wrong = vec![None; designs.len()];
        if options.check {
            for (wrong, name) in wrong.iter_mut().zip(&names) {
                let mut all = 0u64;
                // Of replays the first that is compared follows a token of other inputs.
                let rounds = if replayed { [ROUNDS[1], ROUNDS[0]] } else { ROUNDS };
                for round in rounds {
                    all = all.saturating_add(check(crew, name, replayed, round, progress)?);
                }
                *wrong = Some(all);
            }
        }
        let times = time(crew, &names, turns, replayed, progress)?;
        let beside = |which: Beside| &times[designs.len() + which as usize];
        let unfused = designs.iter().position(|design| *design == Design::Unfused).map(|at| &times[at]);
        let alone_us = beside(Beside::Boundaries).boundary_us();
        let weights = 4 * (model.params.mixes() * model.width()) as u64;
        for ((&design, times), wrong) in designs.iter().zip(&times).zip(wrong) {
            if !options.designs.designs.contains(&design) {
                report.count_unasked(wrong);
                continue;
            }
            let bytes = token::boundary_bytes(model, design, options.ranks);
            let us = times.boundary_us();
            report.results.push(report::Result {
                design: design.to_string(),
                variant: model.params.variant.to_string(),
                rows: model.params.rows,
                hidden: model.params.hidden,
                streams: model.params.streams,
                dtype: model.params.dtype.name(),
                replayed,
                turns,
                median_us_per_boundary: us,
                min_us_per_boundary: times.least_boundary_us(),
                median_us_per_token: times.token_us(),
                allreduce_us: beside(Beside::Reductions).boundary_us(),
                standalone_us: alone_us,
                ratio: unfused.map(|unfused| times.ratio(unfused)),
                bytes,
                gbps: rate(bytes, us),
                standalone_gbps: rate(token::boundary_bytes(model, Design::Unfused, options.ranks), alone_us),
                standalone_fn_gbps: rate(weights, alone_us),
                copy_gbps: rate(2 * weights, beside(Beside::Copies).boundary_us()),
                wrong,
            });
        }
    }
    Ok(())
}

/// Turns of the designs and of what is beside them, each on the slowest rank.
fn time(
    crew: &mut Crew<Reply>,
    designs: &[String],
    turns: u32,
    replayed: bool,
    progress: &mut Progress,
) -> Result<Vec<Turns>, Failure> {
    let command = Command::Measure { designs: designs.to_vec(), turns, replayed };
    let replies = crew.ask(command, &mut || progress.tick())?;
    let ranks: Vec<Vec<Vec<Turn>>> = replies
        .into_iter()
        .filter_map(|reply| if let Reply::Measured(times) = reply { Some(times) } else { None })
        .collect();
    let contestants = designs.len() + Beside::ALL.len();
    if ranks.is_empty() || ranks.iter().any(|rank| rank.len() != contestants) {
        return Err(Failure::of("a rank gave another answer than was asked for"));
    }
    let of = |contestant: usize| ranks.iter().map(|rank| rank[contestant].clone()).collect::<Vec<_>>();
    Ok((0..contestants).map(|contestant| Turns::slowest(&of(contestant))).collect())
}

/// Wrong elements on all ranks; the first of each rank is shown.
fn check(
    crew: &mut Crew<Reply>,
    design: &str,
    replayed: bool,
    round: u32,
    progress: &mut Progress,
) -> Result<u64, Failure> {
    let command = Command::Check { design: design.into(), replayed, round };
    let mut wrong = 0u64;
    for (rank, reply) in crew.ask(command, &mut || progress.tick())?.into_iter().enumerate() {
        let Reply::Checked { wrong: here, first } = reply else {
            return Err(Failure::of(format!("rank {rank} gave another answer than was asked for")));
        };
        wrong = wrong.saturating_add(here);
        if let Some(first) = first {
            let how = if replayed { ", replayed" } else { "" };
            eprintln!("ccl perf: wrong data on rank {rank}, design {design}{how}: {first}");
        }
    }
    Ok(wrong)
}

/// What is measured, on what, and how.
fn header(options: &Options, ready: &[Ready], pids: &[u32]) -> String {
    let Params { variant, dtype, hidden, streams, .. } = options.models[0].params;
    let mut lines = vec![format!(
        "ccl perf mhc: {} ranks, {variant}, {streams} streams of {hidden} {dtype}; {} bytes of fn a boundary",
        options.ranks,
        4 * options.models[0].params.mixes() * options.models[0].width(),
    )];
    lines.extend(who(ready, pids));
    let turns = match options.turns {
        Some(turns) => format!("{turns} turns"),
        None => format!("{} to {} turns, as many as fit in {TURNS_TIME:?}", TURNS.0, TURNS.1),
    };
    lines.push(format!(
        "Time: median of {turns}; in each turn every design makes a token of 87 all-reduces and 85 boundaries, and beside \
         them the all-reduces run alone, the boundaries alone, and copies of every fn; slowest rank"
    ));
    lines.push(
        "Ratio: a boundary's time to that of unfused in the same turn. Bytes: read and written on a rank, the reduction \
         left out; by design c a rank reads its part of fn"
            .into(),
    );
    if let Some(replays) = options.replays {
        lines.push(format!(
            "Graph: median of {replays} replays of the token, recorded in a graph for each of its parts"
        ));
    }
    lines.push(if options.check {
        "Check: tokens of fresh inputs; every y, the last residual and coefficients, exact to the bit (of more than 8 rows \
         each rank computes its share again, and compares the others between designs)"
            .into()
    } else {
        "Check: none (-c 0)".into()
    });
    lines.iter().map(|line| format!("# {line}")).collect::<Vec<_>>().join("\n")
}
