//! All that the doctor found, as programs get it. docs/doctor.md says what each name means; they are not changed
//! without a new version.

use super::group::Formed;
use super::ipc::Way;
use ccl_ze::inspect::{Chosen, DriverReport, LoaderReport};
use serde::Serialize;

/// Version of the JSON object.
pub(super) const VERSION: u32 = 1;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: u32,
    /// The tool's own version.
    pub(super) ccl: &'static str,
    pub(super) verdict: Verdict,
    pub(super) problems: Vec<Problem>,
    pub(super) loader: LoaderSection,
    pub(super) drivers: Vec<DriverReport>,
    pub(super) chosen: Attempt<Chosen>,
    pub(super) patterns: Patterns,
    pub(super) groups: Vec<Group>,
    pub(super) ipc: Ipc,
    pub(super) gpus: Vec<super::gpus::Gpu>,
    pub(super) oneccl: OneCcl,
    /// By version of the runtime.
    pub(super) sycl: Vec<super::sycl::Bridge>,
    pub(super) system: super::system::System,
    pub(super) configuration: super::settings::Configuration,
}

/// What would happen.
#[derive(Debug, Default, Serialize)]
pub(super) struct Verdict {
    /// Whether a communicator could be formed.
    pub(super) works: bool,
    /// Whether it runs on the software driver, if there is one.
    pub(super) software: Option<bool>,
    /// In plain words.
    pub(super) text: Vec<String>,
}

/// Something that is wrong, and what helps.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    /// The section that it belongs to.
    pub(super) about: &'static str,
    pub(super) text: String,
    pub(super) fix: String,
}

/// The loader, and what came of asking it for drivers.
#[derive(Debug, Serialize)]
pub(super) struct LoaderSection {
    #[serde(flatten)]
    pub(super) report: LoaderReport,
    /// Libraries of drivers and layers that it opened.
    pub(super) libraries: Vec<String>,
    /// Why it offers no driver.
    pub(super) drivers_error: Option<String>,
    /// What the system says to Intel's driver, where no driver is offered.
    pub(super) intel_driver: Option<String>,
    /// How the probe ended, where it didn't end well.
    pub(super) trouble: Option<String>,
}

/// Something that was tried.
#[derive(Debug, Serialize)]
pub(super) struct Attempt<T> {
    pub(super) result: Option<T>,
    pub(super) error: Option<String>,
    /// Whether it hung, so that what rests on it was not tried.
    pub(super) hung: bool,
    /// What was printed meanwhile.
    pub(super) notes: Vec<String>,
}

/// The pattern test between the devices of the chosen driver.
#[derive(Debug, Default, Serialize)]
pub(super) struct Patterns {
    pub(super) devices: usize,
    pub(super) pairs: Vec<Pair>,
    /// Why there are not all pairs.
    pub(super) error: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Pair {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) result: PairResult,
    pub(super) error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PairResult {
    /// Every word arrived.
    Passed,
    /// The driver offers access, and stores don't arrive.
    Lost,
    /// The driver offers no access.
    NoAccess,
    /// The driver refused something, or the test was the end of the probe.
    Failed,
}

/// A group that was tried.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    pub(super) ranks: usize,
    pub(super) processes: usize,
    #[serde(flatten)]
    pub(super) attempt: Attempt<Formed>,
}

/// How descriptors can travel.
#[derive(Debug, Serialize)]
pub(super) struct Ipc {
    pub(super) ways: Vec<Way>,
    /// Why there are not all ways.
    pub(super) error: Option<String>,
}

/// oneCCL and torch, and which library a process would get.
#[derive(Debug, Serialize)]
pub(super) struct OneCcl {
    pub(super) libraries: Vec<crate::installed::Library>,
    pub(super) torches: Vec<crate::installed::Torch>,
    /// What a process that is started here gets for `libccl.so.2`.
    pub(super) bound: Attempt<super::oneccl::Bound>,
}

impl Ipc {
    pub(super) fn works(&self, name: &str) -> bool {
        self.ways.iter().any(|way| way.name == name && way.works)
    }
}
