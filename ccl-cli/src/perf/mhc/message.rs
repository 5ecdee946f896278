//! What passes between `ccl perf mhc` and its rank processes.

use super::super::message::Ready;
use ccl_core::mhc::Design;
use serde::{Deserialize, Serialize};

/// The first line to a rank.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) variant: String,
    pub(super) dtype: String,
    pub(super) hidden: u64,
    pub(super) streams: u32,
    /// Designs of which one element is changed before it is compared.
    pub(super) corrupt: Vec<String>,
}

/// The lines after it, answered one by one. All ranks get the same.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Command {
    /// Makes ready for tokens of so many rows.
    Prepare { rows: u64 },
    /// Makes a token by a design, for the first time.
    Try { design: String },
    /// Records the token by each of these designs, and what is measured beside them.
    Record { designs: Vec<String> },
    /// Makes a token of a round's inputs by a design and compares it.
    Check { design: String, replayed: bool, round: u32 },
    /// Times tokens by each of these designs, and what is measured beside them, in turn.
    Measure { designs: Vec<String>, turns: u32, replayed: bool },
}

/// What a rank says.
#[derive(Serialize, Deserialize)]
pub(super) enum Reply {
    /// To the job.
    Ready(Ready),
    /// To [`Command::Prepare`] and [`Command::Record`].
    Done,
    /// To [`Command::Try`]: why there is no such design for this, if there is none.
    Tried { refused: Option<String> },
    /// To [`Command::Check`].
    Checked { wrong: u64, first: Option<String> },
    /// To [`Command::Measure`]: of each contestant each turn.
    Measured(Vec<Vec<Turn>>),
}

/// Nanoseconds of a token's parts: begin, boundaries, end. What is no token has the second only.
pub(super) type Turn = [u64; 3];

/// What is measured beside the designs, in this order after them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beside {
    /// The boundaries' all-reduces alone.
    Reductions,
    /// The boundaries alone.
    Boundaries,
    /// Every boundary's `fn`, copied.
    Copies,
}

impl Beside {
    pub(super) const ALL: [Beside; 3] = [Beside::Reductions, Beside::Boundaries, Beside::Copies];
}

/// Designs that can be asked for.
pub(super) const DESIGNS: [Design; 4] = [Design::Unfused, Design::A, Design::B, Design::C];

/// The design of a name.
pub(super) fn design(name: &str) -> Result<Design, String> {
    let design = DESIGNS.into_iter().find(|design| design.to_string() == name);
    design.ok_or_else(|| format!("unknown design '{name}'; known: unfused a b c all"))
}
