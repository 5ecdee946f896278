//! The command's processes, as the kernel shows them while they run: what they are, and which libraries they have mapped.
//!
//! Looking now and then misses what comes and goes in between; what calls this library, or maps it, tells so by itself
//! (`ccl_core::presence`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time between two looks at a process's mappings.
const LONGEST: Duration = Duration::from_secs(10);

/// A program that a process ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) program: PathBuf,
    pub(crate) command: String,
    /// Files of oneCCL's name, or of this library's.
    pub(crate) libraries: Vec<PathBuf>,
    /// oneCCL's C++ API is mapped.
    pub(crate) version_1: bool,
    pub(crate) alive: bool,
}

struct Process {
    /// The last is what it runs now.
    programs: Vec<Seen>,
    next_look: Instant,
    pause: Duration,
}

/// All that were seen.
pub(crate) struct Processes {
    own: u32,
    all: BTreeMap<u32, Process>,
}

impl Processes {
    pub(crate) fn new() -> Processes {
        Processes { own: std::process::id(), all: BTreeMap::new() }
    }

    /// Looks at those that are due.
    pub(crate) fn look(&mut self) {
        self.update(false);
    }

    /// Looks at all that are there.
    pub(crate) fn look_at_all(&mut self) {
        self.update(true);
    }

    fn update(&mut self, all: bool) {
        let living = descendants(self.own);
        for (pid, process) in &mut self.all {
            if !living.contains(pid)
                && let Some(last) = process.programs.last_mut()
            {
                last.alive = false;
            }
        }
        let now = Instant::now();
        for pid in living {
            // One that has ended and was not yet waited for has no program.
            let Ok(program) = std::fs::read_link(format!("/proc/{pid}/exe")) else { continue };
            let process = self.all.entry(pid).or_insert_with(|| Process {
                programs: Vec::new(),
                next_look: now,
                pause: Duration::from_millis(10),
            });
            if process.programs.last().is_none_or(|last| last.program != program) {
                if let Some(before) = process.programs.last_mut() {
                    before.alive = false;
                }
                process.programs.push(Seen { program, ..Seen::default() });
                (process.next_look, process.pause) = (now, Duration::from_millis(10));
            }
            if !all && now < process.next_look {
                continue;
            }
            process.next_look = now + process.pause;
            process.pause = (process.pause * 2).min(LONGEST);
            if let Some(last) = process.programs.last_mut() {
                last.alive = true;
                last.examine(pid);
            }
        }
    }

    /// A process was waited for.
    pub(crate) fn ended(&mut self, pid: i32) {
        let process = u32::try_from(pid).ok().and_then(|pid| self.all.get_mut(&pid));
        if let Some(last) = process.and_then(|process| process.programs.last_mut()) {
            last.alive = false;
        }
    }

    /// How many still run.
    pub(crate) fn living(&self) -> usize {
        self.all.values().filter(|process| process.programs.last().is_some_and(|last| last.alive)).count()
    }

    /// Each process with the programs that it ran. A program that was only there between fork and exec is its parent's: it is
    /// told by not being the last.
    pub(crate) fn into_programs(self) -> impl Iterator<Item = (u32, Vec<Seen>)> {
        self.all.into_iter().map(|(pid, process)| (pid, process.programs))
    }
}

impl Seen {
    fn examine(&mut self, pid: u32) {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> =
            words.split(|byte| *byte == 0).map(String::from_utf8_lossy).filter(|w| !w.is_empty()).collect();
        if !words.is_empty() {
            self.command = words.join(" ");
        }
        let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        for path in String::from_utf8_lossy(&maps).lines().filter_map(|line| line.find('/').map(|at| &line[at..])) {
            let path = Path::new(path.trim_end_matches(" (deleted)"));
            match kind(path) {
                Some(Kind::Version2) if !self.libraries.iter().any(|known| known == path) => {
                    self.libraries.push(path.to_owned());
                }
                Some(Kind::Version1) => self.version_1 = true,
                _ => {}
            }
        }
    }
}

enum Kind {
    Version1,
    Version2,
}

/// What a file's name says.
fn kind(path: &Path) -> Option<Kind> {
    match path.file_name()?.to_str()? {
        "libcclx.so" | "libcclx_witness.so" | "libccl.so" | "libccl.so.2" => Some(Kind::Version2),
        name if name.starts_with("libccl.so.2.") => Some(Kind::Version2),
        name if name == "libccl.so.1" || name.starts_with("libccl.so.1.") => Some(Kind::Version1),
        _ => None,
    }
}

/// All processes that descend from `root`.
fn descendants(root: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        for child in children(pid) {
            if !found.contains(&child) {
                found.push(child);
                open.push(child);
            }
        }
    }
    found
}

/// A process's children, whichever of its threads they were started by.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}
