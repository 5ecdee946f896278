//! What a process says about the library in it, for `ccl run`: one line of JSON an event, appended to the file that has the
//! process's number for a name, in the folder of [`FOLDER`].

use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Names the folder.
pub const FOLDER: &str = "CCLX_REPORT";

/// A line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The process.
    pub pid: u32,
    /// The program that it runs; a process may run several in turn.
    pub program: PathBuf,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A library of this name was mapped, ours or oneCCL's.
    Mapped {
        /// Its file.
        library: PathBuf,
    },
    /// This library was called for the first time.
    Called {
        /// Its file.
        library: PathBuf,
        /// Its version.
        version: String,
        /// The file's SHA-256, in hexadecimal; empty if it could not be read.
        sha256: String,
        /// How it got into the process.
        route: String,
    },
    /// A communicator was made.
    Formed {
        /// This rank.
        rank: usize,
        /// Of how many.
        ranks: usize,
        /// The driver in use.
        driver: String,
        /// The device in use.
        device: String,
    },
    /// The process has a second such library.
    Second {
        /// What was said about it.
        text: String,
    },
}

/// Adds a line for this process. An error is for nobody here to see: the report lacks the line.
pub fn say(folder: &Path, event: Event) {
    let pid = std::process::id();
    let line = Line { pid, program: std::env::current_exe().unwrap_or_default(), event };
    let Ok(mut text) = serde_json::to_vec(&line) else { return };
    text.push(b'\n');
    // One write a line: threads don't mix theirs.
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(folder.join(pid.to_string())) {
        _ = file.write_all(&text);
    }
}

/// Adds what a folder holds to another one's files: of a `ccl run` within another, both are to know.
pub fn pass_on(from: &Path, to: &Path) {
    // As for `say`: what can't be read or written is lacking there.
    for entry in std::fs::read_dir(from).into_iter().flatten().filter_map(Result::ok) {
        let Ok(text) = std::fs::read(entry.path()) else { continue };
        if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(to.join(entry.file_name())) {
            _ = file.write_all(&text);
        }
    }
}

/// All lines of a folder, process by process, each in order. What is no such line is left out.
pub fn read(folder: &Path) -> std::io::Result<Vec<Line>> {
    let mut files: Vec<_> = std::fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path()).collect();
    files
        .retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().bytes().all(|b| b.is_ascii_digit())));
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        let text = String::from_utf8_lossy(&std::fs::read(file)?).into_owned();
        lines.extend(text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()));
    }
    Ok(lines)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_were_said() {
        let folder = tempfile::tempdir().unwrap();
        let events = [
            Event::Mapped { library: "/a \"b\"/libccl.so.2".into() },
            Event::Formed { rank: 1, ranks: 2, driver: "d".into(), device: "e\nf".into() },
        ];
        for event in &events {
            say(folder.path(), event.clone());
        }
        std::fs::write(folder.path().join("notes"), "{}\n").unwrap();
        let raw = "not a line\n{\"pid\":7,\"program\":\"/p\",\"event\":{\"mapped\":{\"library\":\"/l\"}}}\n";
        std::fs::write(folder.path().join("7"), raw).unwrap();
        let read = read(folder.path()).unwrap();
        let own = std::process::id();
        let mine: Vec<_> = read.iter().filter(|line| line.pid == own).map(|line| line.event.clone()).collect();
        assert_eq!(mine, events);
        let other: Vec<_> = read.iter().filter(|line| line.pid == 7).collect();
        assert_eq!(other.len(), 1);
        assert_eq!(other[0].event, Event::Mapped { library: "/l".into() });
    }
}
