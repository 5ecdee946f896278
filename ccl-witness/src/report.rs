//! What the witness tells: at once of a call that it convicts, at the end of each communicator.

use crate::real;
use crate::watched::Seat;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

/// Convictions that are told one by one.
const MOST_TOLD: u64 = 16;

/// What a rank of a communicator has seen.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Tally {
    /// Calls that were made.
    pub(crate) calls: u64,
    /// Calls that were computed again, and how many elements of them this rank judged.
    pub(crate) compared: u64,
    pub(crate) elements: u64,
    /// Calls that any rank convicted, and those of them that this rank did.
    pub(crate) convicted: u64,
    pub(crate) convicted_here: u64,
    /// Elements for which no bound exists.
    pub(crate) open_elements: u64,
    /// Compared calls whose results are right, but not the same on all ranks.
    pub(crate) unlike: u64,
    /// Calls that were not compared, by the reason.
    pub(crate) left_out: BTreeMap<String, u64>,
    /// Calls saved as a corpus.
    pub(crate) saved: u64,
    /// The first calls that were convicted here.
    pub(crate) convictions: Vec<Conviction>,
    /// Why comparing ended early.
    pub(crate) gave_up: Option<String>,
}

/// A wrong result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Conviction {
    /// The call's number on its communicator, from 1.
    pub(crate) call: u64,
    pub(crate) what: String,
    /// Whose result is wrong, and where first.
    pub(crate) rank: usize,
    pub(crate) element: u64,
    pub(crate) got: String,
    pub(crate) expected: String,
    /// The inputs of that element, by rank, or from where it came.
    pub(crate) inputs: String,
    /// How many elements of this rank's result the judge found wrong.
    pub(crate) wrong_elements: u64,
}

/// Time that the witness took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Of the program's threads.
    pub(crate) callers: Duration,
    /// Of a processor, beside them.
    pub(crate) beside: Duration,
    /// Since the communicator was made.
    pub(crate) of: Duration,
}

impl Spent {
    /// The part of the time.
    pub(crate) fn part(&self) -> f64 {
        (self.callers + self.beside).as_secs_f64() / self.of.as_secs_f64().max(1e-9)
    }
}

/// A line on standard error, in one write, so that lines of several ranks don't mix.
pub(crate) fn say(text: &str) {
    let line = format!("cclx witness: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// "communicator 0badcafe, rank 1 of 2".
fn who(name: u32, seat: Option<Seat>) -> String {
    match seat {
        Some(Seat { rank, n }) => format!("communicator {name:08x}, rank {rank} of {n}"),
        None => "a communicator that has not formed".into(),
    }
}

impl Tally {
    /// Notes a wrong result, and says so if there were not too many.
    pub(crate) fn convict(&mut self, name: u32, seat: Seat, conviction: Conviction) {
        let Conviction { call, what, rank, element, got, expected, inputs, wrong_elements } = &conviction;
        if self.convictions.len() as u64 == MOST_TOLD {
            return;
        }
        say(&format!(
            "WRONG RESULT: communicator {name:08x}, call #{call}, {what}: rank {rank} of {}, element {element} is {got}, \
             should be {expected}; {inputs}; {wrong_elements} elements of it are wrong as far as rank {} judges them",
            seat.n, seat.rank
        ));
        self.convictions.push(conviction);
    }

    /// Counts calls that are not compared.
    pub(crate) fn leave_out(&mut self, why: &str, calls: u64) {
        if calls > 0 {
            *self.left_out.entry(why.into()).or_default() += calls;
        }
    }

    /// The communicator's end, for people and for programs.
    pub(crate) fn report(&self, name: u32, seat: Option<Seat>, spent: Spent) {
        let percent = 100.0 * spent.part();
        let mut text = format!(
            "{}, over {}: {} calls, {} compared ({} elements judged here), {} wrong",
            who(name, seat),
            real::path(),
            self.calls,
            self.compared,
            self.elements,
            self.convicted
        );
        let mut also = |count: u64, what: &str| {
            if count > 0 {
                text += &format!("; {count} {what}");
            }
        };
        also(self.unlike, "right but not alike on all ranks");
        also(self.open_elements, "elements that no bound holds for");
        also(self.saved, "saved as a corpus");
        for (why, calls) in &self.left_out {
            also(*calls, &format!("not compared: {why}"));
        }
        text += &format!(
            "; overhead {percent:.1} % ({:.3} s of the program's threads, {:.3} s of a processor beside them, in {:.3} s)",
            spent.callers.as_secs_f64(),
            spent.beside.as_secs_f64(),
            spent.of.as_secs_f64()
        );
        say(&text);
        if let Ok(config) = real::config()
            && let Some(path) = &config.witness_report
        {
            let line = serde_json::json!({
                "version": 1, "communicator": format!("{name:08x}"), "rank": seat.map(|seat| seat.rank),
                "ranks": seat.map(|seat| seat.n), "process": std::process::id(), "library": real::path(),
                "overhead_percent": percent, "caller_seconds": spent.callers.as_secs_f64(),
                "beside_seconds": spent.beside.as_secs_f64(), "seconds": spent.of.as_secs_f64(), "tally": self,
            });
            let written = OpenOptions::new().create(true).append(true).open(path);
            // In one write, as other ranks append too.
            if let Err(error) = written.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())) {
                say(&format!("CCLX_WITNESS_REPORT={}: {error}", path.display()));
            }
        }
    }
}
