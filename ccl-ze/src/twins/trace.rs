//! What executed twins did, for the tests that hold them to their plan.

use ccl_core::plan::ring::Step;
use parking_lot::Mutex;
use std::collections::BTreeMap;

static TRACE: Mutex<BTreeMap<usize, Vec<Step>>> = Mutex::new(BTreeMap::new());

/// Adds a step of `rank`; called where `hooks::TRACE` is on.
pub(super) fn record(rank: usize, step: Step) {
    TRACE.lock().entry(rank).or_default().push(step);
}

/// Takes the steps that `rank` has executed since the last time.
#[doc(hidden)]
pub fn take(rank: usize) -> Vec<Step> {
    TRACE.lock().remove(&rank).unwrap_or_default()
}
