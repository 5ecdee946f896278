//! One error type for the whole library, mapped one to one to the codes of the C ABI.

use std::time::Duration;

/// Result of this library's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. Clonable, since a communicator repeats the failure that poisoned it to every later caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that no call may have.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// A call that does not fit the state of the library.
    #[error("invalid usage: {0}")]
    InvalidUsage(String),
    /// A combination that this build does not support, by name.
    #[error("not implemented: {0}")]
    NotImplemented(String),
    /// The operating system refused something.
    #[error("{what}: {detail}")]
    System {
        /// What was attempted.
        what: String,
        /// What the system said.
        detail: String,
    },
    /// A driver call failed.
    #[error("{call} failed: {detail}")]
    Device {
        /// The driver's function.
        call: String,
        /// Its code by name, and the driver's own words if it has any.
        detail: String,
    },
    /// Ranks disagree about something that must be alike.
    #[error("rank {rank} differs from rank 0 in {what}: {detail}")]
    Mismatch {
        /// The odd rank.
        rank: usize,
        /// The thing they disagree on.
        what: String,
        /// Both values.
        detail: String,
    },
    /// A peer is gone.
    #[error("rank {rank} is gone ({detail}){during}")]
    PeerLost {
        /// The rank that vanished.
        rank: usize,
        /// How it was noticed.
        detail: String,
        /// " during all_reduce #7", or empty outside a collective.
        during: String,
    },
    /// A wait outlasted its deadline.
    #[error("timed out after {after:?}: {what}")]
    Timeout {
        /// The limit that was in force.
        after: Duration,
        /// Who waited for what.
        what: String,
    },
    /// The communicator was aborted by this process.
    #[error("aborted: {0}")]
    Aborted(String),
    /// A broken invariant of this library.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// The code of the C ABI that stands for this error.
    pub const fn abi_code(&self) -> i32 {
        match self {
            Error::System { .. } | Error::PeerLost { .. } | Error::Timeout { .. } => 2,
            Error::Internal(_) | Error::Aborted(_) => 3,
            Error::InvalidArgument(_) => 4,
            Error::InvalidUsage(_) | Error::Mismatch { .. } => 5,
            Error::Device { .. } => 7,
            Error::NotImplemented(_) => 12,
        }
    }

    /// An operating system error with the action that met it.
    pub fn system(what: impl Into<String>, detail: impl std::fmt::Display) -> Self {
        Error::System { what: what.into(), detail: detail.to_string() }
    }
}
