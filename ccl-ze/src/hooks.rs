//! Rules that a test can switch off, to show that it would notice. Without the feature `test-hooks` nothing can.

pub use crate::kernel::KernelFacts;
use crate::kernels::Family;

/// Whether a rule is switched off.
#[inline(always)]
pub(crate) const fn on(hooks: u32, rule: u32) -> bool {
    cfg!(feature = "test-hooks") && hooks & rule != 0
}

/// The twin records its steps.
pub const TRACE: u32 = 1 << 0;
/// The flag of a line is stored before its data.
pub const FLAG_FIRST: u32 = 1 << 1;
/// The end of the tag range is passed without clearing.
pub const NO_CLEARING: u32 = 1 << 2;
/// The ring has one slot too few.
pub const ONE_SLOT_FEWER: u32 = 1 << 3;
/// Every call starts at the same base, as if it were an argument frozen in a recording.
pub const FROZEN_BASE: u32 = 1 << 4;
/// Overlapping collectives are not noticed.
pub const IGNORE_BUSY: u32 = 1 << 5;
/// Staging memory is left as it was allocated (poisoned by [`POISON_STAGING`]).
pub const SKIP_STAGING_CLEAR: u32 = 1 << 6;
/// Staging memory is filled with 0xFF before it is cleared.
pub const POISON_STAGING: u32 = 1 << 7;
/// Stores to the next rank are lost in the pattern test of P2P staging (not of host staging).
pub const CORRUPT_LINK: u32 = 1 << 8;
/// The driver pretends its devices and executes nothing. So every peer counts as reachable, the pattern test passes
/// without a look, and nobody waits at the end for what never finishes.
pub const PRETENDED_DEVICE: u32 = 1 << 9;
/// Calls signal no event.
pub const NO_SIGNAL: u32 = 1 << 10;
/// Calls don't wait for the events that they are given.
pub const NO_WAITS: u32 = 1 << 11;
/// Recorded calls signal an event that stays signalled from one replay to the next.
pub const STALE_EVENT: u32 = 1 << 12;
/// A call that fails leaves its output as it is.
pub const NO_FILL: u32 = 1 << 13;
/// Push slots have one generation.
pub const ONE_GENERATION: u32 = 1 << 16;
/// A saved call's input is read after the call.
pub const SAVE_INPUT_LATE: u32 = 1 << 20;
/// A communicator that goes does not wait for replays of its calls.
pub const NO_WAIT_FOR_REPLAYS: u32 = 1 << 21;
/// Data in bulk of a one-shot always lie with the receiver, where the sender has not read the last ones.
pub const BULK_STAYS: u32 = 1 << 22;
/// The sender of a channel doesn't wait until there is room.
pub const NO_CREDIT: u32 = 1 << 23;
/// In mHC by owners, the others' sums are taken without a wait: those of whichever call was there before.
pub const STALE_SUMS: u32 = 1 << 24;
/// The sender of a channel rests after a message's first line, as it may.
pub const REST_IN_MESSAGE: u32 = 1 << 25;
/// Boundaries are recorded as those of device kernels are, though the kernels are native.
pub const BOUNDARIES_OF_KERNELS: u32 = 1 << 26;
/// A call on a SYCL queue doesn't wait for the one before it on another queue.
pub const NO_ORDER_OF_QUEUES: u32 = 1 << 27;
/// What the device has counted is not looked at: all calls on a queue that the driver records count as finished.
pub const COUNTED_EARLY: u32 = 1 << 28;
/// The ring's twin leaves out each step's last block.
pub const SHORT_WALK: u32 = 1 << 29;
/// A call on a SYCL queue goes on with the slot of the call before it, whichever communicator's that is.
pub const ANYBODYS_SLOT: u32 = 1 << 30;

/// Switches of the whole process, each with the function that asks for it: off without the feature.
macro_rules! switches {
    ($($(#[$doc:meta])* $switch:ident: $visible:vis $ask:ident,)+) => { $(
        $(#[$doc])*
        #[cfg(feature = "test-hooks")]
        pub static $switch: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

        $(#[$doc])*
        #[cfg(feature = "test-hooks")]
        $visible fn $ask() -> bool {
            $switch.load(std::sync::atomic::Ordering::Relaxed)
        }

        /// Not without the feature.
        #[cfg(not(feature = "test-hooks"))]
        $visible const fn $ask() -> bool {
            false
        }
    )+ };
}

switches! {
    /// The calls of a group of the C API are made in the order in which they were queued.
    GROUPS_AS_QUEUED: pub groups_as_queued,
    /// Communicators that are asked for at the same time are made so, without a line or a claim to the device.
    MAKINGS_AT_ONCE: pub makings_at_once,
    /// Ranks whose turn to be made hasn't come say that it has, and wait for it once devices are asked for.
    TURNS_WITHIN_CLAIMS: pub turns_within_claims,
    /// This process gives up each litmus test at its end, as if its last call had outlasted its limit.
    LITMUS_GIVES_UP: pub(crate) litmus_gives_up,
    /// This process ends in the middle of its first litmus test, without a word.
    LITMUS_ENDS_THE_PROCESS: pub(crate) litmus_ends_the_process,
    /// A call on a command list waits for the one before it on another stream as for one on a SYCL queue: on the host.
    HOST_WAITS: pub(crate) host_waits,
    /// The abort word is never set.
    NO_ABORT: pub(crate) no_abort,
    /// Checked calls by columns go in parts among any number of ranks.
    CHECKED_IN_PARTS: pub(crate) checked_in_parts,
    /// Kernels get their arguments as one structure everywhere, as they do in a SYCL runtime's context; to be set before the
    /// first communicator.
    PACKED: pub(crate) packed,
}

/// Rules that are switched off for every communicator to be, where what makes them can't be told.
#[cfg(feature = "test-hooks")]
pub static EVERYWHERE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Milliseconds by which the next threads that make communicators of the C API are late, in the order of the calls.
#[cfg(feature = "test-hooks")]
pub static MAKINGS_LATE_MS: parking_lot::Mutex<std::collections::VecDeque<u64>> =
    parking_lot::Mutex::new(std::collections::VecDeque::new());

/// The next of [`MAKINGS_LATE_MS`].
#[cfg(feature = "test-hooks")]
pub fn how_late_a_making_is() -> std::time::Duration {
    std::time::Duration::from_millis(MAKINGS_LATE_MS.lock().pop_front().unwrap_or(0))
}

/// None without the feature.
#[cfg(not(feature = "test-hooks"))]
pub const fn how_late_a_making_is() -> std::time::Duration {
    std::time::Duration::ZERO
}

/// How the linked-in driver's functions are found, where a test wants to stand in between; to be set before the first
/// communicator.
#[cfg(all(feature = "soft", feature = "test-hooks"))]
pub static RESOLVER: std::sync::OnceLock<fn(&std::ffi::CStr) -> *const std::ffi::c_void> = std::sync::OnceLock::new();

/// A family's name and its SPIR-V, where a test wants others than those delivered; to be set before the first
/// communicator.
#[cfg(feature = "test-hooks")]
pub static SPIRV: std::sync::OnceLock<Vec<(String, Vec<u8>)>> = std::sync::OnceLock::new();

/// Beginnings of the names of families that are compiled without optimization: in seconds, where a processor's compiler
/// would take minutes; to be set before the first communicator.
#[cfg(feature = "test-hooks")]
pub static UNOPTIMIZED: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();

/// Turns of a device kernel's wait that count as a millisecond of its own limit; to be set before the first communicator.
#[cfg(feature = "test-hooks")]
pub static SPINS_PER_MS: std::sync::OnceLock<u32> = std::sync::OnceLock::new();

/// [`SPINS_PER_MS`], where it is set.
#[cfg(feature = "test-hooks")]
pub(crate) fn spins_per_ms() -> Option<u32> {
    SPINS_PER_MS.get().copied()
}

/// None without the feature.
#[cfg(not(feature = "test-hooks"))]
pub(crate) const fn spins_per_ms() -> Option<u32> {
    None
}

/// The flags that a family is built with.
#[cfg(feature = "test-hooks")]
pub(crate) fn build_flags(family: &str) -> String {
    let mut flags = crate::module::BUILD_FLAGS.to_owned();
    if UNOPTIMIZED.get().is_some_and(|names| names.iter().any(|name| family.starts_with(name))) {
        flags.push_str(" -ze-opt-disable");
    }
    flags
}

/// What [`SPIRV`] has in a family's place.
#[cfg(feature = "test-hooks")]
pub(crate) fn replaced(family: &str) -> Option<&'static [u8]> {
    SPIRV.get()?.iter().find(|(name, _)| name == family).map(|(_, image)| &**image)
}

/// A family of device kernels as delivered: its SPIR-V, and the flags that it is built with.
pub fn spirv(family: &str) -> Option<(&'static [u8], &'static str)> {
    let family = Family::ALL.into_iter().find(|known| known.name() == family)?;
    Some((crate::module::delivered(family), crate::module::BUILD_FLAGS))
}
