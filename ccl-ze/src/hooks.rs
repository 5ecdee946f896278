//! Rules that a test can switch off, to show that it would notice. Zero in use.

/// The twin records its steps.
pub const TRACE: u32 = 1;
/// The flag of a line is stored before its data.
pub const FLAG_FIRST: u32 = 2;
/// The end of the tag range is passed without clearing.
pub const NO_CLEARING: u32 = 4;
/// The ring has one slot too few.
pub const ONE_SLOT_FEWER: u32 = 8;
/// Every call starts at the same base, as if it were an argument frozen in a recording.
pub const FROZEN_BASE: u32 = 16;
/// Overlapping collectives are not noticed.
pub const IGNORE_BUSY: u32 = 32;
/// Staging memory is left as it was allocated (poisoned by [`POISON_STAGING`]).
pub const SKIP_STAGING_CLEAR: u32 = 64;
/// Staging memory is filled with 0xFF before it is cleared.
pub const POISON_STAGING: u32 = 128;
/// Stores to the next rank are lost in the pattern test of P2P staging (not of host staging).
pub const CORRUPT_LINK: u32 = 256;

/// How the linked-in driver's functions are found, where a test wants to stand in between; to be set before the first
/// communicator.
#[cfg(feature = "soft")]
pub static RESOLVER: std::sync::OnceLock<fn(&std::ffi::CStr) -> *const std::ffi::c_void> = std::sync::OnceLock::new();
