//! What came of a verification.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A manifest that is not as it was written, or contradicts itself.
    Manifest,
    /// A file that no manifest knows.
    ExtraFile,
    /// A file that a manifest knows and that is not there.
    MissingFile,
    /// A file that is not the one of the manifest.
    ChangedFile,
    /// Ranks that tell of different calls.
    Ranks,
    /// A result that is not the reduction of the inputs.
    Reduction,
    /// Ranks that hold different values where all must hold the same.
    Equality,
    /// An input that is not what was put into it.
    Link,
    /// Tensors that were the same storage, or not, other than it says.
    Alias,
    /// A result that this build can't compute again.
    NotRecomputed,
    /// Something that was not captured.
    Incomplete,
}

/// One reason why a corpus does not stand.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What it is about.
    pub what: What,
    /// The file, below the corpus.
    pub file: String,
    /// The first byte of it that is known to be wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte: Option<u64>,
    /// Where it is about one call: the rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// Where it is about one call: its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// Where it is about an element: the first wrong one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub element: Option<u64>,
    /// All of it in words, but for the file.
    pub text: String,
}

impl Finding {
    pub(super) fn new(what: What, file: impl Into<String>, text: impl Into<String>) -> Self {
        Self { what, file: file.into(), byte: None, rank: None, event: None, element: None, text: text.into() }
    }

    pub(super) fn at(mut self, rank: usize, event: u64) -> Self {
        (self.rank, self.event) = (Some(rank), Some(event));
        self
    }

    pub(super) fn byte(mut self, byte: u64) -> Self {
        self.byte = Some(byte);
        self
    }

    pub(super) fn element(mut self, element: u64, byte: u64) -> Self {
        (self.element, self.byte) = (Some(element), Some(byte));
        self
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(byte) = self.byte {
            write!(f, ", byte {byte}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// How much was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Communicators.
    pub communicators: u64,
    /// Ranks of all of them.
    pub ranks: u64,
    /// Files of tensors.
    pub files: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Events by kind, each counted once for all its ranks.
    pub events: BTreeMap<&'static str, u64>,
    /// Events by kind that had an output in an input's storage, on rank 0.
    pub aliased: BTreeMap<&'static str, u64>,
    /// Elements computed again and compared, on all ranks.
    pub elements: u64,
    /// Links found bit-equal, on all ranks.
    pub links: u64,
}

/// What came of a verification.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Verdict {
    /// What was looked at.
    pub counts: Counts,
    /// Why the corpus does not stand; empty if it does.
    pub findings: Vec<Finding>,
    /// What was let pass because it was asked for.
    pub notes: Vec<String>,
}

impl Verdict {
    /// Whether the corpus stands.
    pub fn passed(&self) -> bool {
        self.findings.is_empty()
    }
}
