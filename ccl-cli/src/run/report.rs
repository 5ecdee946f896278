//! What each process had: what it told by itself, put together with what was seen of it.

use super::child::Ended;
use super::place::{Place, WITNESS};
use super::processes::{Processes, Seen};
use super::route::Route;
use ccl_core::presence::{self, Event};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Version of the JSON object.
const VERSION: u32 = 1;
/// Processes that are shown one by one.
const SHOWN: usize = 200;
/// Those among them that have this library and never called it: with LD_PRELOAD each helper of a script has.
const IDLE_SHOWN: usize = 8;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: u32,
    route: &'static str,
    library: PathBuf,
    /// That library is the witness, which passes calls on to another.
    witness: bool,
    status: u8,
    processes: Vec<Process>,
}

/// A program that a process ran.
#[derive(Debug, Default, Serialize)]
struct Process {
    pid: u32,
    program: PathBuf,
    command: String,
    /// Files of oneCCL's name, or this library's, that were mapped.
    libraries: Vec<PathBuf>,
    /// This library was among them.
    ours: bool,
    /// Another library was.
    others: bool,
    /// oneCCL's C++ API was mapped, which this library can't stand in for.
    version_1: bool,
    called: Option<Called>,
    communicators: Vec<Formed>,
    /// What the library said about a second one.
    warnings: Vec<String>,
    still_running: bool,
}

#[derive(Debug, Serialize)]
struct Called {
    library: PathBuf,
    version: String,
    sha256: String,
    route: String,
}

#[derive(Debug, Serialize)]
struct Formed {
    rank: usize,
    ranks: usize,
    driver: String,
    device: String,
}

impl Report {
    pub(crate) fn new(route: &Route, place: &Place, folder: &Path, seen: Processes, ended: &Ended) -> Report {
        let mut all: BTreeMap<(u32, PathBuf), Process> = BTreeMap::new();
        for line in presence::read(folder).unwrap_or_default() {
            let process = all.entry((line.pid, line.program.clone())).or_insert_with(|| Process {
                pid: line.pid,
                command: line.program.display().to_string(),
                program: line.program.clone(),
                ..Process::default()
            });
            process.hear(line.event);
        }
        for (pid, programs) in seen.into_programs() {
            let last = programs.len().saturating_sub(1);
            for (index, seen) in programs.into_iter().enumerate() {
                let key = (pid, seen.program.clone());
                // Before its exec a process looks like its parent.
                if index == last || all.contains_key(&key) {
                    all.entry(key).or_default().see(pid, seen);
                }
            }
        }
        let mut processes: Vec<_> = all.into_values().collect();
        let ours = place.library.canonicalize().ok();
        for process in &mut processes {
            let is_ours = |path: &PathBuf| path.canonicalize().ok() == ours;
            process.ours = process.called.is_some() || process.libraries.iter().any(is_ours);
            process.others = process.libraries.iter().any(|path| !is_ours(path));
        }
        let (route, library) = (route.choice.name(), place.library.clone());
        Report { version: VERSION, route, library, witness: place.is_witness(), status: ended.status(), processes }
    }

    pub(crate) fn write(&self, file: &mut File) -> std::io::Result<()> {
        file.write_all((serde_json::to_string_pretty(self)? + "\n").as_bytes())
    }

    pub(crate) fn words(&self) -> String {
        let mut text = String::from("ccl run: which libccl was mapped\n");
        let (with, without): (Vec<&Process>, Vec<&Process>) =
            self.processes.iter().partition(|process| process.has_any());
        let (idle, busy): (Vec<&Process>, Vec<&Process>) = with.iter().copied().partition(|process| process.is_idle());
        for process in busy.iter().take(SHOWN).chain(idle.iter().take(IDLE_SHOWN)) {
            text += &process.words(self.witness);
        }
        if busy.len() > SHOWN {
            text += &format!("  and {} more\n", count(busy.len() - SHOWN, "process"));
        }
        let more = &idle[idle.len().min(IDLE_SHOWN)..];
        for (processes, what) in
            [(more, "more with this library, never called"), (&without[..], "in which none was seen")]
        {
            if !processes.is_empty() {
                let names: BTreeSet<_> = processes.iter().filter_map(|process| process.program.file_name()).collect();
                let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
                text += &format!("  {} {what}: {}\n", count(processes.len(), "process"), names.join(", "));
            }
        }
        let files: BTreeSet<_> =
            with.iter().filter_map(|process| process.called.as_ref()).map(|called| called.in_words()).collect();
        for file in files {
            text += &format!("  {file}\n");
        }
        if !self.processes.iter().any(|process| process.called.is_some()) {
            text += &format!("  No process called {}.\n", self.library.display());
        }
        text
    }
}

impl Process {
    fn hear(&mut self, event: Event) {
        match event {
            Event::Mapped { library } => self.add(library),
            Event::Called { library, version, sha256, route } => {
                self.add(library.clone());
                self.called = Some(Called { library, version, sha256, route });
            }
            Event::Formed { rank, ranks, driver, device } => {
                self.communicators.push(Formed { rank, ranks, driver, device });
            }
            Event::Second { text } => self.warnings.push(text),
        }
    }

    fn see(&mut self, pid: u32, seen: Seen) {
        (self.pid, self.program) = (pid, seen.program);
        if !seen.command.is_empty() {
            self.command = seen.command;
        }
        self.version_1 |= seen.version_1;
        self.still_running |= seen.alive;
        seen.libraries.into_iter().for_each(|library| self.add(library));
    }

    /// A file is listed once, by whichever of its names came first.
    fn add(&mut self, library: PathBuf) {
        let real = library.canonicalize().unwrap_or_else(|_| library.clone());
        if !self.libraries.iter().any(|known| known.canonicalize().unwrap_or_else(|_| known.clone()) == real) {
            self.libraries.push(library);
        }
    }

    /// It has this library, did nothing with it, and is gone.
    fn is_idle(&self) -> bool {
        self.ours && !self.others && !self.version_1 && self.called.is_none() && !self.still_running
    }

    fn has_any(&self) -> bool {
        !self.libraries.is_empty() || self.version_1 || self.called.is_some()
    }

    fn words(&self, witness: bool) -> String {
        let mut command: String = self.command.chars().take(70).collect();
        if command.len() < self.command.len() {
            command += "...";
        }
        let running = if self.still_running { " (still running)" } else { "" };
        let files: Vec<_> = self.libraries.iter().map(|path| path.display().to_string()).collect();
        let files = files.join(" and ");
        let what = match (&self.called, self.ours, self.others) {
            (_, true, true) if witness => {
                let own = |path: &&PathBuf| path.file_name() != Some(OsStr::new(WITNESS));
                let under: Vec<_> = self.libraries.iter().filter(own).map(|path| path.display().to_string()).collect();
                format!("the witness, over {}", under.join(" and "))
            }
            (_, true, false) if witness => "the witness, never called, or with no library under it".into(),
            (_, false, true) if witness => format!("NOT the witness: {files}"),
            (Some(called), _, false) => format!("this library, by {}", called.route),
            (Some(called), _, true) => format!("this library, by {}, and another: {files}", called.route),
            (None, true, false) => "this library, never called".into(),
            (None, true, true) => format!("this library, never called, and another: {files}"),
            (None, false, true) => format!("NOT this library: {files}"),
            (None, false, false) => {
                "NOT this library: oneCCL's C++ API (libccl.so.1), as torch before 2.11 uses it: out of reach".into()
            }
        };
        let mut text = format!("  {} {command}{running}: {what}\n", self.pid);
        let devices: BTreeSet<_> = self.communicators.iter().map(Formed::in_words).collect();
        for (index, device) in devices.iter().enumerate() {
            if index == 4 {
                text += &format!("      and more; {} in all\n", count(self.communicators.len(), "communicator"));
                break;
            }
            text += &format!("      {device}\n");
        }
        for warning in &self.warnings {
            text += &format!("      {warning}\n");
        }
        text
    }
}

impl Called {
    fn in_words(&self) -> String {
        let digest = if self.sha256.is_empty() { String::new() } else { format!(", sha256 {}", self.sha256) };
        format!("{}: version {}{digest}", self.library.display(), self.version)
    }
}

impl Formed {
    fn in_words(&self) -> String {
        format!("communicator: rank {} of {} on {} ({})", self.rank, self.ranks, self.device, self.driver)
    }
}

fn count(count: usize, what: &str) -> String {
    match (count, what) {
        (1, what) => format!("1 {what}"),
        (count, "process") => format!("{count} processes"),
        (count, what) => format!("{count} {what}s"),
    }
}
