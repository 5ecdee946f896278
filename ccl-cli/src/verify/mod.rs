//! `ccl verify`: does a captured corpus stand?

use crate::output;
use ccl_core::corpus::{self, Options, Verdict};
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) const AFTER_HELP: &str = "\
DIR is what CCLX_CAPTURE named while a program ran. Every file must be there, whole and unchanged; every reduction is \
computed again from the captured inputs of all ranks, in the recorded order, and compared bit by bit. What can't be \
shown to be right fails.

Exit status: 0 all of it is right; 1 it is not, and the first wrong file with its byte or element is named; 2 a command \
line that can't be carried out; 3 it could not be read.";

/// Findings that are shown in words; JSON has them all.
const SHOWN: usize = 20;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The corpus
    directory: PathBuf,
    /// Let pass what was not captured: calls after the limit or in recordings, a process that ended early
    #[arg(long)]
    allow_incomplete: bool,
    /// Print the verdict as JSON
    #[arg(long)]
    json: bool,
}

/// Exit status for a corpus that does not stand.
const WRONG: u8 = 1;
/// Exit status for one that could not be read.
const UNREADABLE: u8 = 3;

pub(crate) fn main(args: &Args) -> ExitCode {
    let options = Options { allow_incomplete: args.allow_incomplete };
    let verdict = match corpus::verify(&args.directory, &options) {
        Ok(verdict) => verdict,
        Err(error) => {
            eprintln!("ccl verify: {error}");
            return ExitCode::from(UNREADABLE);
        }
    };
    let text = if args.json { json(&verdict) } else { words(&verdict) };
    if let Err(error) = output::line(&text) {
        eprintln!("ccl verify: {error}");
        return ExitCode::from(UNREADABLE);
    }
    if verdict.passed() { ExitCode::SUCCESS } else { ExitCode::from(WRONG) }
}

#[derive(serde::Serialize)]
struct Json<'a> {
    version: u32,
    passed: bool,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

fn json(verdict: &Verdict) -> String {
    let json = Json { version: 1, passed: verdict.passed(), verdict };
    // Nothing in it can fail to be text.
    serde_json::to_string_pretty(&json).unwrap_or_default()
}

fn words(verdict: &Verdict) -> String {
    let counts = &verdict.counts;
    let mut lines = vec![format!(
        "{} communicators, {} ranks, {} files of {} bytes",
        counts.communicators, counts.ranks, counts.files, counts.bytes
    )];
    for (kind, events) in &counts.events {
        let aliased = counts.aliased.get(kind).copied().unwrap_or_default();
        lines.push(format!("{kind}: {events} calls, {aliased} of them with an output in an input's place"));
    }
    lines.push(format!("{} elements computed again, {} links compared", counts.elements, counts.links));
    lines.extend(verdict.notes.iter().map(|note| format!("let pass: {note}")));
    lines.extend(verdict.findings.iter().take(SHOWN).map(|finding| format!("WRONG {finding}")));
    if verdict.findings.len() > SHOWN {
        lines.push(format!("and {} more (--json has all)", verdict.findings.len() - SHOWN));
    }
    lines.push(match (verdict.findings.len(), verdict.notes.len()) {
        (0, 0) => "right".into(),
        (0, _) => "right, as far as it was captured".into(),
        (1, _) => "1 thing is wrong".into(),
        (many, _) => format!("{many} things are wrong"),
    });
    lines.join("\n")
}
