//! `ccl`: measure and diagnose collectives on Intel GPUs.

mod crew;
mod doctor;
mod installed;
mod output;
mod perf;
mod replay;
mod run;
mod verify;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Exit status for a command line that can't be carried out.
const USAGE: u8 = 2;
/// Exit status of a command whose answer could not be written.
const UNWRITTEN: u8 = 1;

/// Commands that are known by name and not there yet.
const PLANNED: [&str; 1] = ["trace"];

#[derive(Parser)]
#[command(
    name = "ccl",
    version,
    about = "Measure and diagnose collectives on Intel GPUs",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Time a collective between processes of this machine and check every element of its results
    #[command(after_help = perf::AFTER_HELP)]
    Perf(Box<perf::Perf>),
    /// One rank of `ccl perf`, which starts it.
    #[command(name = perf::RANK_COMMAND, hide = true)]
    Rank,
    /// One rank of `ccl perf mhc`, which starts it.
    #[command(name = perf::MHC_RANK_COMMAND, hide = true)]
    MhcRank,
    /// Tell what would run on this machine and why, and what would stop it
    #[command(after_help = doctor::AFTER_HELP)]
    Doctor(doctor::Args),
    /// One thing that `ccl doctor` tries, in a process of its own.
    #[command(name = doctor::PROBE_COMMAND, hide = true)]
    DoctorProbe(doctor::ProbeArgs),
    /// Start a command with this library in oneCCL's place, and tell what its processes really had
    #[command(after_help = run::AFTER_HELP)]
    Run(run::Args),
    /// Tell which library a process gets.
    #[command(name = run::PROBE_COMMAND, hide = true)]
    RunProbe,
    /// Tell whether a captured corpus is whole and right
    #[command(after_help = verify::AFTER_HELP)]
    Verify(verify::Args),
    /// Make a captured corpus's calls again and compare what comes out
    #[command(after_help = replay::AFTER_HELP)]
    Replay(replay::Args),
    /// One rank of `ccl replay`, which starts it.
    #[command(name = replay::RANK_COMMAND, hide = true)]
    ReplayRank,
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// What is asked of the command line itself (its help, its version), and what is wrong with it.
fn answer(error: &clap::Error) -> ExitCode {
    let written = error.print().and_then(|()| std::io::stdout().flush());
    match (written, error.exit_code()) {
        (Err(error), 0) => {
            eprintln!("ccl: standard output: {error}");
            ExitCode::from(UNWRITTEN)
        }
        (_, code) => ExitCode::from(u8::try_from(code).unwrap_or(USAGE)),
    }
}

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return answer(&error),
    };
    match command {
        Command::Perf(perf) => perf::main(*perf),
        Command::Rank => perf::rank(),
        Command::MhcRank => perf::mhc_rank(),
        Command::Doctor(args) => doctor::main(&args),
        Command::DoctorProbe(args) => doctor::probe(&args),
        Command::Run(args) => run::main(&args),
        Command::RunProbe => run::probe(),
        Command::Verify(args) => verify::main(&args),
        Command::Replay(args) => replay::main(&args),
        Command::ReplayRank => replay::rank(),
        Command::Other(words) => {
            let name = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
            if PLANNED.contains(&name.as_str()) {
                eprintln!("ccl: {name} is not there yet; there are: perf, doctor, run, verify, replay");
            } else {
                eprintln!("ccl: unknown command '{name}'; there are: perf, doctor, run, verify, replay");
            }
            ExitCode::from(USAGE)
        }
    }
}
