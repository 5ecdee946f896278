//! The report for people: sections of aligned lines, problems with what helps, the verdict last.

use super::gpus::Gpu;
use super::report::{Attempt, Pair, PairResult, Patterns, Report};
use super::settings::{Configuration, State};
use super::system::{Limit, System};
use super::verdict::all_ways_tried;
use ccl_ze::inspect::{Access, DeviceReport, DriverReport, LoaderState, Route};
use std::fmt::Write as _;

/// Most columns of a matrix, so that it stays readable.
const MOST_COLUMNS: usize = 16;

const WIDTH: usize = 100;

/// Text in sections. Writing into it can't fail.
pub(super) struct Page {
    text: String,
}

impl Page {
    pub(super) fn section(&mut self, title: &str) {
        let _ = writeln!(self.text, "\n{title}");
    }

    pub(super) fn line(&mut self, name: &str, value: impl AsRef<str>) {
        let _ = writeln!(self.text, "  {name:<14} {}", value.as_ref());
    }

    /// A paragraph, broken between words.
    fn paragraph(&mut self, first: &str, rest: &str, text: &str) {
        let mut line = first.to_owned();
        let mut empty = true;
        for word in text.split_whitespace() {
            if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
                let _ = writeln!(self.text, "{line}");
                line = rest.to_owned();
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        let _ = writeln!(self.text, "{line}");
    }
}

pub(super) fn report(report: &Report) -> String {
    let mut page = Page { text: format!("ccl doctor {}\n", report.ccl) };
    loader(&mut page, report);
    for driver in &report.drivers {
        drivers(&mut page, driver, report);
    }
    if let Some(mask) = report.configuration.get("ZE_AFFINITY_MASK") {
        page.section("Affinity");
        page.line(
            "mask",
            format!("ZE_AFFINITY_MASK={}: only these devices are seen, numbered from 0 anew", mask.value),
        );
    }
    patterns(&mut page, &report.patterns);
    ipc(&mut page, report);
    gpus(&mut page, &report.gpus);
    super::oneccl::write(&mut page, &report.oneccl);
    page.section("SYCL queues");
    for bridge in &report.sycl {
        page.line(&format!("libsycl.so.{}", bridge.release), bridge.text());
    }
    system(&mut page, &report.system);
    configuration(&mut page, &report.configuration);
    trials(&mut page, report);
    page.section("Problems");
    if report.problems.is_empty() {
        page.text += "  none\n";
    }
    for problem in &report.problems {
        page.paragraph(&format!("  {}: ", problem.about), "      ", &problem.text);
        page.paragraph("      Fix: ", "      ", &problem.fix);
    }
    page.section("Verdict");
    for text in &report.verdict.text {
        page.paragraph("  ", "  ", text);
    }
    page.text
}

fn loader(page: &mut Page, report: &Report) {
    let section = &report.loader;
    let loader = &section.report;
    page.section("Level Zero loader");
    let state = match loader.state {
        LoaderState::Found => "found",
        LoaderState::Absent => "not installed (needed for GPUs only)",
        LoaderState::Unusable => "can't be used",
    };
    page.line("state", state);
    if let Some(path) = &loader.path {
        page.line("file", path);
    }
    if let Some(version) = &loader.version {
        page.line("version", version);
    }
    if let Some(error) = loader.error.as_ref().filter(|_| loader.state == LoaderState::Unusable) {
        page.line("reason", error);
    }
    for library in &section.libraries {
        page.line("opened", library);
    }
    if loader.state == LoaderState::Found && !report.drivers.iter().any(|driver| driver.route == Route::Loader) {
        let error = section.drivers_error.as_ref().or(section.trouble.as_ref());
        page.line("drivers", format!("none{}", error.map(|e| format!(" ({e})")).unwrap_or_default()));
        if let Some(words) = &section.intel_driver {
            page.line("Intel's driver", words);
        }
    }
}

fn drivers(page: &mut Page, driver: &DriverReport, report: &Report) {
    let kind = match driver.devices.first() {
        _ if driver.software => "software driver (runs on the CPU)",
        Some(device) if device.vendor_id == super::gpus::INTEL => "Intel's",
        _ => "of another vendor",
    };
    let route = match driver.route {
        Route::Loader => "through the loader",
        Route::Linked => "linked in",
    };
    page.section(&format!("Driver: {kind}, {route}"));
    page.line("version", format!("{}, Level Zero {}", driver.version, driver.api_version));
    let in_use =
        report.chosen.result.as_ref().is_some_and(|c| c.route == driver.route && c.software == driver.software);
    let used = match (in_use, driver.runs_kernels) {
        (true, _) => "yes",
        (false, true) => "no",
        (false, false) => "no: this build has no kernels for it",
    };
    page.line("would be used", used);
    if let Some(error) = &driver.error {
        page.line("error", error);
    }
    if driver.devices.is_empty() {
        page.line("devices", "none");
    }
    for (index, device) in driver.devices.iter().enumerate() {
        describe(page, index, device);
    }
    if driver.devices.len() > 1 {
        page.line(
            "access",
            "device in the row to memory of the device in the column: + yes, a with atomics, - no, ? unknown",
        );
        matrix(page, driver.devices.len(), |from, to| match driver.p2p.get(from).and_then(|row| row.get(to)) {
            Some(Some(Access { can_access: true, atomics: true, .. })) => "a",
            Some(Some(Access { can_access: true, .. })) => "+",
            Some(Some(_)) => "-",
            _ => "?",
        });
    }
}

fn describe(page: &mut Page, index: usize, device: &DeviceReport) {
    let name = format!("device {index}");
    page.line(&name, format!("{} [{:04x}:{:04x}] {}", device.name, device.vendor_id, device.device_id, device.kind));
    let pci = device.pci.as_deref().unwrap_or("none");
    page.line("", format!("PCI {pci}, uuid {}", device.uuid));
    let sub = match device.sub_devices {
        0 => "no sub-devices".into(),
        count => format!("{count} sub-devices"),
    };
    let integrated = if device.integrated { ", shares the host's memory" } else { "" };
    page.line(
        "",
        format!(
            "{} of memory{integrated}, {} execution units, {sub}",
            bytes(device.memory_bytes),
            device.execution_units
        ),
    );
    let groups = device.queue_groups.iter().map(|group| {
        let kinds = [(group.compute, "compute"), (group.cooperative, "cooperative"), (group.copy, "copy")];
        let kinds: Vec<_> = kinds.iter().filter(|(has, _)| *has).map(|(_, kind)| *kind).collect();
        format!("{} x{} ({})", group.ordinal, group.queues, kinds.join(" "))
    });
    page.line("", format!("queue groups {}", groups.collect::<Vec<_>>().join(", ")));
}

fn matrix(page: &mut Page, size: usize, cell: impl Fn(usize, usize) -> &'static str) {
    let shown = size.min(MOST_COLUMNS);
    let heads: String = (0..shown).map(|to| format!("{to:>3}")).collect();
    page.line("", format!("    {heads}"));
    for from in 0..shown {
        let cells: String = (0..shown).map(|to| format!("{:>3}", cell(from, to))).collect();
        page.line("", format!("{from:>3} {cells}"));
    }
    if shown < size {
        page.line("", format!("(the first {shown} of {size}; --json has all)"));
    }
}

fn patterns(page: &mut Page, patterns: &Patterns) {
    page.section("Pattern test: do stores of a device's kernel arrive in another device's memory");
    if let Some(error) = &patterns.error {
        page.line("incomplete", error);
    }
    if patterns.error.is_none() && patterns.devices < 2 {
        page.line("result", "not needed with a single device");
    }
    if patterns.devices < 2 {
        return;
    }
    let of = |from: usize, to: usize| patterns.pairs.iter().find(|pair: &&Pair| (pair.from, pair.to) == (from, to));
    page.line(
        "result",
        "+ they arrive, X they are lost, ! the test failed, - the driver offers no access, ? not tested",
    );
    matrix(page, patterns.devices, |from, to| match of(from, to).map(|pair| pair.result) {
        _ if from == to => ".",
        Some(PairResult::Passed) => "+",
        Some(PairResult::Lost) => "X",
        Some(PairResult::Failed) => "!",
        Some(PairResult::NoAccess) => "-",
        None => "?",
    });
}

fn ipc(page: &mut Page, report: &Report) {
    page.section("Descriptors between processes");
    for way in &report.ipc.ways {
        let needed = matches!(way.name.as_str(), "memfd" | "scm_rights");
        let value = match (&way.error, needed) {
            (None, _) => "works".into(),
            (Some(error), true) => format!("refused: {error}"),
            (Some(error), false) => format!(
                "refused: descriptors are passed over sockets instead; an Intel driver that fetches them itself falls back to host memory ({error})"
            ),
        };
        page.line(&way.name, value);
    }
    if !all_ways_tried(report) {
        page.line("incomplete", report.ipc.error.as_deref().unwrap_or("the probe said nothing more"));
    }
    let system = &report.system;
    let seccomp = match (system.seccomp, system.seccomp_filters) {
        (None, _) => "unknown".into(),
        (Some(0), _) => "off".into(),
        (Some(2), Some(filters)) => format!("on ({filters} filters)"),
        (Some(mode), _) => format!("on (mode {mode})"),
    };
    page.line("seccomp", seccomp);
    page.line("no_new_privs", system.no_new_privileges.map_or("unknown", |set| if set { "set" } else { "not set" }));
    let yama = match system.ptrace_scope {
        None => "no Yama".into(),
        Some(0) => "0: processes of one user may look into each other".into(),
        Some(1) => "1: only into descendants, so that pidfd_getfd fails between ranks".into(),
        Some(scope) => format!("{scope}: only with CAP_SYS_PTRACE or not at all, so that pidfd_getfd fails"),
    };
    page.line("ptrace_scope", yama);
    page.line("CAP_SYS_PTRACE", system.may_trace.map_or("unknown", |may| if may { "yes" } else { "no" }));
}

fn gpus(page: &mut Page, gpus: &[Gpu]) {
    page.section("GPUs that the kernel shows");
    if gpus.is_empty() {
        page.line("none", "no display controller on the PCI bus, no render node in /dev/dri");
    }
    for gpu in gpus {
        let ids = match (gpu.vendor_id, gpu.device_id) {
            (Some(vendor), Some(device)) => format!("[{vendor:04x}:{device:04x}]"),
            _ => "[unknown]".into(),
        };
        let driver = gpu.kernel_driver.as_deref().unwrap_or("none");
        page.line(gpu.pci.as_deref().unwrap_or("no PCI address"), format!("{ids}, kernel driver {driver}"));
        let Some(node) = &gpu.node else { continue };
        let access = match (&gpu.open_error, gpu.node_exists) {
            (None, _) => "may be opened".into(),
            (Some(_), false) => "is missing".into(),
            (Some(error), true) => format!("can't be opened: {error}"),
        };
        let mut line = format!("{node} {access}");
        if let (Some(mode), Some(owner), Some(group)) = (&gpu.mode, &gpu.owner, &gpu.group) {
            line +=
                &format!(" (mode {mode}, owner {owner}, group {group}{})", if gpu.in_group { ", yours" } else { "" });
        }
        page.line("", line);
    }
}

fn system(page: &mut Page, system: &System) {
    page.section("System");
    let limit = |limit: Option<Limit>, unit: fn(u64) -> String| {
        let one = |value: Option<u64>| value.map_or_else(|| "unlimited".into(), unit);
        limit.map_or_else(|| "unknown".into(), |limit| format!("{}, at most {}", one(limit.soft), one(limit.hard)))
    };
    page.line("open files", limit(system.open_files, |value| value.to_string()));
    page.line("locked memory", format!("{} (not needed)", limit(system.locked_memory, bytes)));
    let shm = system
        .dev_shm
        .map_or_else(|| "none".into(), |space| format!("{}, {} free", bytes(space.bytes), bytes(space.free)));
    page.line("/dev/shm", format!("{shm} (not needed: shared memory is memfd)"));
    page.line("processors", system.processors.to_string());
    page.line("CPU kernels", system.twins.unwrap_or("none: built without the software driver"));
    page.line("container", system.container.as_deref().unwrap_or("no sign of one"));
}

fn configuration(page: &mut Page, configuration: &Configuration) {
    page.section("Configuration (ccl doctor --env lists all variables)");
    if configuration.set.is_empty() {
        page.line("all", "defaults: no variable is set");
    }
    for setting in &configuration.set {
        let state = match setting.state {
            State::Used => "in force",
            State::Refused => "REFUSED",
            State::Ignored => "ignored",
            State::Elsewhere => "",
        };
        let note = setting.note.as_deref().unwrap_or_default();
        let gap = if state.is_empty() || note.is_empty() { "" } else { ": " };
        page.line(&format!("{}={}", setting.name, setting.value), format!("{state}{gap}{note}"));
    }
}

fn trials(page: &mut Page, report: &Report) {
    page.section("Groups tried, each with an all-reduce whose every element was compared");
    if report.groups.is_empty() {
        page.line("none", "not tried, since choosing a driver hung");
    }
    // What was printed when the driver was chosen is told above.
    let known = |note: &String| report.chosen.notes.contains(note);
    for group in &report.groups {
        let ranks = if group.ranks == 1 { "1 rank" } else { "2 ranks" };
        let place = if group.processes > 1 { "in 2 processes" } else { "in 1 process" };
        page.line(ranks, format!("{place}: {}", outcome(&group.attempt)));
        for note in group.attempt.notes.iter().filter(|note| !known(note)) {
            page.line("", note);
        }
    }
}

fn outcome(attempt: &Attempt<super::group::Formed>) -> String {
    match (&attempt.result, &attempt.error) {
        (Some(formed), _) => {
            let shared = if formed.shared { ", sharing a device" } else { "" };
            let data = match (formed.p2p, formed.granule) {
                (true, granule) => format!("device memory in lines of {granule} bytes"),
                (false, granule) => format!("host memory in lines of {granule} bytes"),
            };
            format!("works on {}{shared}, mailboxes in {data}", formed.device)
        }
        (None, Some(error)) => format!("fails: {error}"),
        (None, None) => "fails".into(),
    }
}

/// `ccl doctor --env`.
pub(super) fn environment(configuration: &Configuration) -> String {
    let rows = configuration.table();
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let value = |row: &super::settings::Row| row.value.clone().unwrap_or_else(|| "unset".into());
    let (names, values) = (
        width(&mut rows.iter().map(|row| row.name.len())),
        width(&mut rows.iter().map(|row| value(row).chars().count().max(5))),
    );
    let mut text = format!("{:<names$}  {:<values$}  set  meaning\n", "variable", "value");
    for row in &rows {
        let set = if row.set.is_some() { "yes" } else { "no" };
        let _ = writeln!(text, "{:<names$}  {:<values$}  {set:<3}  {}", row.name, value(row), row.help);
        let _ = writeln!(text, "{:names$}  {:values$}       accepts {}", "", "", row.accepts);
        if let Some(error) = &row.error {
            let _ = writeln!(text, "{:names$}  {:values$}       REFUSED: {error}", "", "");
        }
    }
    for setting in &configuration.set {
        let in_table = rows.iter().any(|row| row.name == setting.name);
        let note = setting.note.as_deref().unwrap_or_default();
        match setting.state {
            State::Refused if !in_table => {
                let _ = writeln!(text, "{}={}  REFUSED: {note}", setting.name, setting.value);
            }
            State::Ignored | State::Elsewhere => {
                let state = if setting.state == State::Ignored { "ignored: " } else { "" };
                let _ = writeln!(text, "{}={}  {state}{note}", setting.name, setting.value);
            }
            _ => {}
        }
    }
    text
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
