//! What the findings mean: each problem with its fix, and what would be used and why.

use super::gpus::{self, Gpu, INTEL};
use super::ipc::WAYS;
use super::report::{PairResult, Problem, Report, Verdict};
use super::settings::State;
use ccl_core::config::DeviceChoice;
use ccl_ze::inspect::{LoaderState, Route};
use nix::unistd::{AccessFlags, access};
use std::path::Path;

/// Open files that a rank of a large group may need, with room for the application's own.
const FEW_FILES: u64 = 1024;

/// `linked` is what was wrong with the software driver that is linked in.
pub(super) fn problems(report: &Report, linked: Option<&str>) -> Vec<Problem> {
    let mut all = Vec::new();
    let mut add = |about: &'static str, text: String, fix: &str| all.push(Problem { about, text, fix: fix.to_owned() });
    for bridge in &report.sycl {
        if let (None, Some(runtime)) = (&bridge.bridge, &bridge.runtime) {
            add(
                "sycl",
                format!(
                    "{} is there, but no bridge to it: queues of programs that load it are refused.",
                    runtime.display()
                ),
                "build it by ccl-ffi/sycl/build.sh, into the folder of libcclx.so (docs/sycl.md).",
            );
        }
    }
    for setting in report.configuration.set.iter().filter(|setting| setting.state == State::Refused) {
        let note = setting.note.as_deref().unwrap_or("it is refused");
        add(
            "configuration",
            format!("{} is set to '{}': {note}.", setting.name, setting.value),
            &format!("unset {}, or give it a value that is accepted (ccl doctor --env).", setting.name),
        );
    }
    loader(report, &mut add);
    for gpu in &report.gpus {
        if let Some((text, fix)) = gpu_problem(gpu) {
            add("gpus", text, &fix);
        }
    }
    if let Some(error) = linked {
        add(
            "drivers",
            format!("The software driver that is linked in can't be used: {error}."),
            "Look at ZE_AFFINITY_MASK, which must name devices that there are, and at the ZE_SOFT_ variables.",
        );
    }
    if let Some(error) = &report.chosen.error
        && report.configuration.valid
        && linked != Some(error)
    {
        add("drivers", format!("No driver can be used: {error}."), driver_fix(report));
    }
    // What only repeats the loader's error is told there.
    let told = |note: &str| report.loader.report.error.as_ref().is_some_and(|error| note.contains(error));
    for note in report.chosen.notes.iter().filter(|note| !told(note)) {
        add(
            "drivers",
            format!("While the driver was chosen, this was printed: {note}"),
            "Every process would log the same: see to what it names.",
        );
    }
    for pair in &report.patterns.pairs {
        let (from, to) = (pair.from, pair.to);
        match (pair.result, &pair.error) {
            (PairResult::Lost, _) => add(
                "patterns",
                format!("The driver offers device {from} access to device {to}, but stores don't arrive."),
                "Nothing has to be done: staging in host memory is used. Direct access often fails in virtual machines \
                 and where the IOMMU or PCI ACS redirects traffic between devices.",
            ),
            (PairResult::Failed, Some(error)) => add(
                "patterns",
                format!("The pattern test from device {from} to device {to} failed: {error}."),
                "CCL_TOPO_P2P_ACCESS=0 keeps to staging in host memory.",
            ),
            _ => {}
        }
    }
    if let Some(error) = report.patterns.error.as_ref().filter(|_| report.chosen.error.is_none()) {
        add("patterns", format!("Not all pairs of devices were tested: {error}."), "Give it more time with --limit.");
    }
    if !report.ipc.works("scm_rights") || !report.ipc.works("memfd") {
        let errors = report.ipc.ways.iter().filter_map(|way| Some(format!("{}: {}", way.name, way.error.as_ref()?)));
        let errors: Vec<_> = errors.chain(report.ipc.error.clone()).collect();
        add(
            "ipc",
            format!("Processes can't hand descriptors to each other here ({}).", errors.join("; ")),
            "Allow memfd_create, socketpair, sendmsg and recvmsg in the container's seccomp profile.",
        );
    }
    if report.configuration.valid {
        for group in &report.groups {
            if let Some(error) = &group.attempt.error {
                let (ranks, processes) =
                    (ranks(group.ranks), if group.processes > 1 { "several processes" } else { "one process" });
                add(
                    "groups",
                    format!("A group of {ranks} in {processes} failed: {error}."),
                    "See the problems above, if any.",
                );
            }
        }
    }
    for problem in super::oneccl::problems(&report.oneccl) {
        add(problem.about, problem.text, &problem.fix);
    }
    if let Some(path) = &report.configuration.accepted().log_file
        && let Err(errno) = writable(path)
    {
        add(
            "configuration",
            format!("CCL_LOG_FILE={} can't be written: {errno}.", path.display()),
            "Name a file in a folder that may be written to.",
        );
    }
    if let Some(soft) = report.system.open_files.and_then(|limit| limit.soft)
        && soft < FEW_FILES
    {
        add(
            "system",
            format!("Only {soft} files may be open in a process; device memory and each peer take some."),
            "Raise it with `ulimit -n 4096`, or --ulimit nofile=4096 for a container.",
        );
    }
    all
}

/// Whether a file may be appended to, or made; nothing is changed.
fn writable(path: &Path) -> nix::Result<()> {
    if path.exists() {
        return access(path, AccessFlags::W_OK);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK)
}

fn loader(report: &Report, add: &mut dyn FnMut(&'static str, String, &str)) {
    let loader = &report.loader;
    if loader.report.state == LoaderState::Unusable {
        let error = loader.report.error.as_deref().unwrap_or("it can't be opened");
        let place = loader.report.path.as_ref().map(|path| format!(" {path}")).unwrap_or_default();
        let elsewhere = match std::env::var_os("LD_LIBRARY_PATH").is_some_and(|path| !path.is_empty()) {
            true => ", or take this one out of LD_LIBRARY_PATH",
            false => "",
        };
        let fix = if error.starts_with("LD_LIBRARY_PATH") {
            "Set LD_LIBRARY_PATH to absolute paths only, without empty elements.".into()
        } else if error.contains("is missing") {
            format!(
                "Install a newer loader (libze1 of Intel's package repository for GPUs, or of a newer distribution){elsewhere}. \
                 Without a GPU none is needed."
            )
        } else {
            format!("Install the loader anew (Debian and Ubuntu: libze1){elsewhere}; CCLX_DEVICE=soft goes without.")
        };
        add("loader", format!("The Level Zero loader{place} can't be used: {error}."), &fix);
    } else if let Some(trouble) = &loader.trouble {
        add(
            "loader",
            format!("Asking the drivers behind the Level Zero loader {trouble}."),
            "Update the GPU driver. CCLX_DEVICE=soft goes without loader and GPU.",
        );
    }
    let gpu = report.gpus.iter().any(|gpu| gpu.vendor_id == Some(INTEL));
    if gpu && loader.report.state == LoaderState::Absent {
        add(
            "loader",
            "There is an Intel GPU, but no Level Zero loader.".into(),
            "Install it with the GPU driver (Debian and Ubuntu: libze1 and libze-intel-gpu1).",
        );
    }
    if let Some(words) = loader.intel_driver.as_ref().filter(|_| gpu) {
        add(
            "loader",
            format!("There is an Intel GPU, but the loader offers no driver for it ({words})."),
            "Install libze-intel-gpu1 (or intel-level-zero-gpu), and see that the render nodes may be opened.",
        );
    }
}

fn gpu_problem(gpu: &Gpu) -> Option<(String, String)> {
    if gpu.vendor_id.is_some_and(|vendor| vendor != INTEL) {
        return None;
    }
    let place = gpu.pci.as_ref().map(|pci| format!(" at {pci}")).unwrap_or_default();
    let Some(node) = &gpu.node else {
        let text = format!("The Intel GPU{place} has no render node, so no program can use it");
        return Some(match &gpu.kernel_driver {
            None => (
                format!("{text}: the kernel has no driver for it."),
                "Load xe or i915, or take a kernel that knows this GPU. One that is bound to vfio-pci is given to a \
                 virtual machine."
                    .into(),
            ),
            Some(driver) => (
                format!("{text}; its kernel driver is {driver}."),
                "Bind it to xe or i915, or make /sys/class/drm visible here.".into(),
            ),
        });
    };
    if gpu.opens {
        return None;
    }
    if !gpu.node_exists {
        return Some((
            format!("The kernel has the render node {node}{place}, but there is no such file here."),
            "In a container: start it with --device /dev/dri.".into(),
        ));
    }
    let error = gpu.open_error.as_deref().unwrap_or("refused");
    let (mode, owner) = (gpu.mode.as_deref().unwrap_or("?"), gpu.owner.as_deref().unwrap_or("?"));
    let group = gpu.group.as_deref().unwrap_or("?");
    let text = format!("{node} can't be opened: {error} (mode {mode}, owner {owner}, group {group}).");
    let fix = match gpu.gid {
        Some(gid) if !gpu.in_group => {
            format!("sudo usermod -aG {group} {}, then log in anew; in a container: --group-add {gid}.", gpus::user())
        }
        _ => "The group is right: look at the node's mode, and at the container's device rules.".into(),
    };
    Some((text, fix))
}

fn driver_fix(report: &Report) -> &'static str {
    if report.configuration.get("ZE_AFFINITY_MASK").is_some() {
        "ZE_AFFINITY_MASK must name devices that there are; without it all are seen."
    } else if report.configuration.accepted().device == DeviceChoice::Auto {
        "CCLX_DEVICE=soft goes without loader and GPU."
    } else {
        "CCLX_DEVICE=auto takes what there is."
    }
}

pub(super) fn verdict(report: &Report) -> Verdict {
    let formed = || report.groups.iter().filter_map(|group| Some((group, group.attempt.result.as_ref()?)));
    let Some((_, first)) = formed().next() else {
        return Verdict { works: false, software: None, text: vec![why_nothing(report)] };
    };
    let mut text =
        vec![format!("{}, since {}", what(report, first.software, &first.device), reason(report, first.software))];
    match formed().find(|(group, _)| group.ranks > 1) {
        Some((_, pair)) => text.push(data_path(report, pair.p2p, pair.granule)),
        None => text.push("A group of one rank works, but two ranks can't work together: see the problems.".into()),
    }
    text.push(capacity(report));
    if formed().all(|(group, _)| group.processes == 1) {
        text.push("Ranks must be threads of one process: a group of several processes failed.".into());
    }
    Verdict { works: true, software: Some(first.software), text }
}

fn what(report: &Report, software: bool, device: &str) -> String {
    if software {
        let through = match report.chosen.result.as_ref().map(|chosen| chosen.route) {
            Some(Route::Loader) => ", through the Level Zero loader",
            _ => "",
        };
        format!("A collective started here would run on the software driver on the CPU{through} (no GPU is used)")
    } else {
        format!("A collective started here would run on the GPU ({device})")
    }
}

/// Why this driver and no other.
fn reason(report: &Report, software: bool) -> String {
    match report.configuration.accepted().device {
        DeviceChoice::Soft => return "CCLX_DEVICE=soft asks for it.".into(),
        DeviceChoice::Loader => return "CCLX_DEVICE=loader takes what the loader offers.".into(),
        DeviceChoice::Intel => return "CCLX_DEVICE=intel asks for it.".into(),
        DeviceChoice::Auto => {}
    }
    if !software {
        return "an Intel GPU that this build has kernels for is preferred.".into();
    }
    if report.chosen.result.as_ref().is_some_and(|chosen| chosen.route == Route::Loader) {
        return "the loader offers the software driver, which is preferred to the one that is linked in.".into();
    }
    let loader = &report.loader.report;
    match loader.state {
        LoaderState::Absent => "there is no Level Zero loader on this machine.".into(),
        LoaderState::Unusable => format!(
            "the Level Zero loader{} can't be used.",
            loader.path.as_ref().map(|path| format!(" {path}")).unwrap_or_default()
        ),
        LoaderState::Found if report.drivers.iter().any(|driver| driver.route == Route::Loader) => {
            "the Level Zero loader offers no driver that this build has kernels for.".into()
        }
        LoaderState::Found => "the Level Zero loader is here, but offers no driver.".into(),
    }
}

fn data_path(report: &Report, p2p: bool, granule: usize) -> String {
    if p2p {
        let n = report.patterns.devices;
        let direct = |from: usize| {
            let to = (from + 1) % n;
            report.patterns.pairs.iter().any(|p| (p.from, p.to) == (from, to) && p.result == PairResult::Passed)
        };
        return if n < 2 {
            format!("Ranks that share the one device reach each other's memory in it, in lines of {granule} bytes.")
        } else if (0..n).all(direct) {
            format!("Ranks would store straight into each other's device memory, in lines of {granule} bytes.")
        } else {
            format!(
                "Two ranks would store straight into each other's device memory, in lines of {granule} bytes; a ring \
                 over all devices would go through host memory, since not every device reaches the next."
            )
        };
    }
    let why = if !report.configuration.accepted().p2p_access {
        "CCL_TOPO_P2P_ACCESS=0 asks for it"
    } else if report.patterns.pairs.iter().any(|pair| matches!(pair.result, PairResult::Lost | PairResult::Failed)) {
        "the pattern test between devices failed"
    } else {
        "the driver offers no access from one device to the next"
    };
    format!("Ranks would exchange data through host memory, since {why}.")
}

fn capacity(report: &Report) -> String {
    let devices = report.chosen.result.as_ref().map_or(0, |chosen| chosen.devices);
    let config = report.configuration.accepted();
    if config.allow_shared_device {
        format!("Devices in view: {devices}; CCLX_ALLOW_SHARED_DEVICE=1 lets several ranks use one.")
    } else {
        format!("At most {}, one a device; CCLX_ALLOW_SHARED_DEVICE=1 would allow more.", ranks(devices))
    }
}

fn ranks(count: usize) -> String {
    if count == 1 { "1 rank".into() } else { format!("{count} ranks") }
}

fn why_nothing(report: &Report) -> String {
    if !report.configuration.valid {
        let refused: Vec<_> = report
            .configuration
            .set
            .iter()
            .filter(|setting| setting.state == State::Refused)
            .map(|setting| format!("{}={}", setting.name, setting.value))
            .collect();
        return format!("No collective can be started here: {} is refused.", refused.join(" and "));
    }
    let error = report.chosen.error.as_ref().or_else(|| report.groups.iter().find_map(|g| g.attempt.error.as_ref()));
    let error = error.map_or("no group could be formed", String::as_str);
    format!("No collective can be started here: {error}.")
}

/// Whether all ways of passing descriptors were tried.
pub(super) fn all_ways_tried(report: &Report) -> bool {
    WAYS.iter().all(|name| report.ipc.ways.iter().any(|way| way.name == *name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn intel() -> Gpu {
        Gpu {
            pci: Some("0000:03:00.0".into()),
            vendor_id: Some(INTEL),
            kernel_driver: Some("xe".into()),
            ..Gpu::default()
        }
    }

    fn node() -> Gpu {
        Gpu { node: Some("/dev/dri/renderD128".into()), ..intel() }
    }

    #[test]
    fn each_state_of_a_gpu_has_its_fix() {
        let denied = Gpu {
            node_exists: true,
            mode: Some("0660".into()),
            owner: Some("root".into()),
            group: Some("render".into()),
            gid: Some(992),
            open_error: Some("Permission denied (os error 13)".into()),
            ..node()
        };
        let (text, fix) = gpu_problem(&denied).unwrap();
        assert!(text.contains("mode 0660, owner root, group render"), "{text}");
        assert!(fix.contains("usermod -aG render") && fix.contains("--group-add 992"), "{fix}");
        let (_, fix) = gpu_problem(&Gpu { in_group: true, ..denied }).unwrap();
        assert!(fix.contains("device rules"), "{fix}");
        let (_, fix) = gpu_problem(&node()).unwrap();
        assert!(fix.contains("--device /dev/dri"), "{fix}");
        let (text, _) = gpu_problem(&Gpu { kernel_driver: None, ..intel() }).unwrap();
        assert!(text.contains("0000:03:00.0") && text.contains("no driver"), "{text}");
        assert!(gpu_problem(&Gpu { node_exists: true, opens: true, ..node() }).is_none());
        assert!(gpu_problem(&Gpu { vendor_id: Some(0x10de), ..intel() }).is_none());
    }
}
