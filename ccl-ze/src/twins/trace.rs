//! What executed twins did, for the tests that hold them to their plan.

use ccl_core::plan::mhc::MhcStep;
use ccl_core::plan::push::PushStep;
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

static PUSH_TRACE: Mutex<BTreeMap<usize, Vec<PushStep>>> = Mutex::new(BTreeMap::new());

/// As [`record`], of a push algorithm.
pub(super) fn record_push(rank: usize, step: PushStep) {
    PUSH_TRACE.lock().entry(rank).or_default().push(step);
}

/// As [`take`], of a push algorithm.
#[doc(hidden)]
pub fn take_push(rank: usize) -> Vec<PushStep> {
    PUSH_TRACE.lock().remove(&rank).unwrap_or_default()
}

static MHC_TRACE: Mutex<BTreeMap<usize, Vec<MhcStep>>> = Mutex::new(BTreeMap::new());

/// As [`record`], of a reduction that an mHC boundary follows by owners.
pub(super) fn record_mhc(rank: usize, step: MhcStep) {
    MHC_TRACE.lock().entry(rank).or_default().push(step);
}

/// As [`take`], of the same.
#[doc(hidden)]
pub fn take_mhc(rank: usize) -> Vec<MhcStep> {
    MHC_TRACE.lock().remove(&rank).unwrap_or_default()
}
