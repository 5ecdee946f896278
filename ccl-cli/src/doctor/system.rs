//! What the system allows this process.

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use serde::Serialize;
use std::path::Path;

#[derive(Debug, Default, Serialize)]
pub(super) struct System {
    /// Open files, now and at most; null is unlimited.
    pub(super) open_files: Option<Limit>,
    /// Bytes of locked memory.
    pub(super) locked_memory: Option<Limit>,
    /// Bytes of /dev/shm, and how many are free.
    pub(super) dev_shm: Option<Space>,
    /// 0 off, 1 strict, 2 a filter.
    pub(super) seccomp: Option<u64>,
    pub(super) seccomp_filters: Option<u64>,
    pub(super) no_new_privileges: Option<bool>,
    /// Whether this process may trace those of its user whatever Yama says.
    pub(super) may_trace: Option<bool>,
    /// Yama's ptrace_scope; null without Yama.
    pub(super) ptrace_scope: Option<u64>,
    /// What shows that this is a container.
    pub(super) container: Option<String>,
    /// Processors that this process may use.
    pub(super) processors: usize,
    /// Form of the software driver's kernels that this processor runs.
    pub(super) twins: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Limit {
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Space {
    pub(super) bytes: u64,
    pub(super) free: u64,
}

/// The number of CAP_SYS_PTRACE among capabilities.
const CAP_SYS_PTRACE: u64 = 19;

pub(super) fn look() -> System {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    System {
        open_files: limit(Resource::RLIMIT_NOFILE),
        locked_memory: limit(Resource::RLIMIT_MEMLOCK),
        dev_shm: space(Path::new("/dev/shm")),
        ptrace_scope: std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
            .ok()
            .and_then(|text| text.trim().parse().ok()),
        container: container(),
        processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
        twins: ccl_ze::inspect::twins(),
        ..of_status(&status)
    }
}

/// Fields of /proc/self/status; kernels differ in which there are.
fn of_status(status: &str) -> System {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim().to_owned()))
    };
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let capabilities = field("CapEff").and_then(|text| u64::from_str_radix(&text, 16).ok());
    System {
        seccomp: number("Seccomp"),
        seccomp_filters: number("Seccomp_filters"),
        no_new_privileges: number("NoNewPrivs").map(|value| value != 0),
        may_trace: capabilities.map(|bits| bits >> CAP_SYS_PTRACE & 1 == 1),
        ..System::default()
    }
}

fn limit(resource: Resource) -> Option<Limit> {
    let finite = |value: u64| (value != libc::RLIM_INFINITY).then_some(value);
    getrlimit(resource).ok().map(|(soft, hard)| Limit { soft: finite(soft), hard: finite(hard) })
}

fn space(path: &Path) -> Option<Space> {
    let of = statvfs(path).ok()?;
    let unit = of.fragment_size();
    Some(Space { bytes: of.blocks().saturating_mul(unit), free: of.blocks_available().saturating_mul(unit) })
}

fn container() -> Option<String> {
    [("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman")]
        .iter()
        .find(|(file, _)| Path::new(file).exists())
        .map(|(_, name)| (*name).to_owned())
        .or_else(|| std::env::var("container").ok().filter(|name| !name.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_a_kernel_lacks_are_unknown() {
        let full = "Name:\tccl\nCapEff:\t00000000a80c25fb\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let system = of_status(full);
        assert_eq!((system.seccomp, system.seccomp_filters), (Some(2), Some(3)));
        assert_eq!((system.no_new_privileges, system.may_trace), (Some(true), Some(true)));
        let system = of_status("CapEff:\t00000000a80425fb\nSeccomp:\tx\n");
        assert_eq!((system.seccomp, system.seccomp_filters), (None, None));
        assert_eq!((system.no_new_privileges, system.may_trace), (None, Some(false)));
        assert_eq!(of_status("").may_trace, None);
    }
}
