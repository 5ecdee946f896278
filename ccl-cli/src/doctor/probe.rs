//! The probes: what the doctor's processes do, one each.

use super::child::say;
use super::{group, ipc};
use ccl_core::Error;
use ccl_ze::inspect::{self, LoaderDrivers, LoaderReport};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::time::Duration;

/// What the probe "loader" says: first where the loader is, since asking the drivers may be the end of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LoaderWord {
    Loader(LoaderReport),
    Drivers(LoaderDrivers),
}

/// What the probe "patterns" says: before and after each pair, so that the one that was the end of it is known.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum PatternWord {
    Devices(usize),
    Begin(usize, usize),
    /// None where the driver doesn't offer access.
    Tested(Option<bool>),
    Failed(String),
}

/// The whole life of a probe.
pub(super) fn main(stage: &str, limit: Duration) -> ExitCode {
    // Who asked may die without a chance to end it.
    if let Err(errno) = set_pdeathsig(Signal::SIGKILL) {
        eprintln!("prctl(PR_SET_PDEATHSIG): {errno}");
    }
    match stage {
        "loader" => loader(),
        "linked" => group::exit(inspect::linked_driver().map(tell)),
        "chosen" => group::exit(group::config(limit).and_then(|config| inspect::chosen(&config)).map(tell)),
        "patterns" => group::exit(patterns(limit)),
        "oneccl" => {
            tell(super::oneccl::bound());
            ExitCode::SUCCESS
        }
        "ipc" => ipc::probe(),
        "ipc-peer" => ipc::peer(),
        "group-1" => group::exit(group::threads(1, limit)),
        "group-2" => group::exit(group::threads(2, limit)),
        "group-processes" => group::exit(group::processes(limit)),
        "group-peer" => group::exit(group::peer(limit)),
        other => group::exit(Err(Error::InvalidUsage(format!("no probe '{other}': `ccl doctor` starts them")))),
    }
}

fn tell(what: impl Serialize) {
    say(&what);
}

fn loader() -> ExitCode {
    let (report, loader) = inspect::loader();
    say(&LoaderWord::Loader(report));
    if let Some(loader) = loader {
        say(&LoaderWord::Drivers(inspect::loader_drivers(&loader)));
    }
    ExitCode::SUCCESS
}

fn patterns(limit: Duration) -> ccl_core::Result<()> {
    let mut test = inspect::PatternTest::open(&group::config(limit)?)?;
    let devices = test.devices();
    say(&PatternWord::Devices(devices));
    for from in 0..devices {
        for to in (0..devices).filter(|&to| to != from) {
            say(&PatternWord::Begin(from, to));
            let word = match test.test(from, to) {
                Ok(result) => PatternWord::Tested(result),
                Err(error) => PatternWord::Failed(error.to_string()),
            };
            if !say(&word) {
                return Ok(());
            }
        }
    }
    Ok(())
}
