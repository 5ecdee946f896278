//! Reads a corpus as it lies on the disk: which files there are, and what the manifests say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::FORMAT;
use super::event::{self, Event, Kind, Role};
use super::manifest::{self, End, FIRST_CHAIN, Header, NotCaptured, Record, Stopped};
use super::tensors::{Changed, Loaded};
use super::verdict::{Finding, What};
use crate::protocol::MAX_RANKS;
use crate::{Error, Result};

/// How a manifest's name ends.
pub(super) const MANIFEST_ENDING: &str = "jsonl";

/// One rank's part of a communicator's calls.
#[derive(Debug)]
pub struct Part {
    /// Whose it is.
    pub header: Header,
    /// Its events, numbered from 1.
    pub events: Vec<Event>,
    /// Calls that could not be captured.
    pub not_captured: Vec<NotCaptured>,
    /// Set if capturing ended early.
    pub stopped: Option<Stopped>,
    /// Not set if the process ended before it was done, or could write no more.
    pub end: Option<End>,
}

impl Part {
    /// Why this part does not hold all calls; empty if it does.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        if let Some(stopped) = &self.stopped {
            gaps.push(format!("truncated after event {}: {}", stopped.after, stopped.why));
        }
        match &self.end {
            None => gaps.push(format!(
                "unfinished after event {}: the process ended without destroying the communicator, or could write no more",
                self.events.len()
            )),
            Some(end) => {
                if end.after_stop > 0 {
                    gaps.push(format!("{} calls after the truncation are missing", end.after_stop));
                }
                if end.not_captured > 0 {
                    gaps.push(format!("{} calls were not captured", end.not_captured));
                }
            }
        }
        gaps.extend(self.not_captured.iter().map(|call| format!("after event {}: {}", call.after, call.what)));
        gaps
    }
}

/// The parts of all ranks of a communicator.
#[derive(Debug)]
pub struct Group {
    /// The communicator's name.
    pub name: String,
    /// By rank, all of them.
    pub parts: Vec<Part>,
}

/// A corpus as it lies there.
#[derive(Debug)]
pub struct Scan {
    root: PathBuf,
    /// Communicators with a sound manifest of every rank.
    pub groups: Vec<Group>,
    /// What is wrong with manifests and names of files. Tensors are not looked at yet.
    pub findings: Vec<Finding>,
    /// The same that an unfinished part explains: files of an event that did not come into the manifest.
    pub(super) excusable: Vec<Finding>,
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::system(format!("reading {}", path.display()), error)
}

/// The entries of a folder by name: whether each is a folder, a file, or neither.
fn entries(path: &Path) -> Result<BTreeMap<String, Option<bool>>> {
    let failed = |error| unreadable(path, error);
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        // A link is neither: what it points to is not part of the corpus. Nor is what has no name in UTF-8.
        let folder = if kind.is_dir() { Some(true) } else { kind.is_file().then_some(false) };
        let name = entry.file_name();
        all.insert(name.to_string_lossy().into_owned(), folder.filter(|_| name.to_str().is_some()));
    }
    Ok(all)
}

impl Scan {
    /// Looks at all names and manifests below `root`. An error is one of reading; what is wrong is a finding.
    pub fn open(root: &Path) -> Result<Scan> {
        let mut scan = Scan { root: root.to_owned(), groups: Vec::new(), findings: Vec::new(), excusable: Vec::new() };
        let folders = entries(root)?;
        if folders.is_empty() {
            scan.add(Finding::new(What::Manifest, ".", "no corpus: nothing is here"));
        }
        for (name, folder) in folders {
            if folder == Some(true) {
                scan.group(&name)?;
            } else {
                scan.add(Finding::new(What::ExtraFile, name, "not part of the corpus"));
            }
        }
        Ok(scan)
    }

    fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    fn group(&mut self, name: &str) -> Result<()> {
        let folder = self.root.join(name);
        let mut present = BTreeSet::new();
        let mut manifests = BTreeMap::new();
        let (mut folders, mut strange) = (BTreeMap::new(), Vec::new());
        for (entry, is_folder) in entries(&folder)? {
            let path = format!("{name}/{entry}");
            match (rank_of(&entry), is_folder) {
                (Some((rank, true)), Some(false)) => drop(manifests.insert(rank, path)),
                (Some((rank, false)), Some(true)) => {
                    folders.insert(rank, path.clone());
                    for (file, is_folder) in entries(&folder.join(&entry))? {
                        if is_folder == Some(false) {
                            present.insert(format!("{path}/{file}"));
                        } else {
                            strange.push(format!("{path}/{file}"));
                        }
                    }
                }
                _ => strange.push(path),
            }
        }
        strange.extend(folders.into_iter().filter(|(rank, _)| !manifests.contains_key(rank)).map(|(_, path)| path));
        for path in strange {
            self.add(Finding::new(What::ExtraFile, path, "not part of the corpus"));
        }
        if manifests.is_empty() {
            self.add(Finding::new(What::MissingFile, name, "no manifest of any rank"));
        }
        let mut parts = BTreeMap::new();
        for (rank, path) in &manifests {
            let bytes = fs::read(self.root.join(path)).map_err(|error| unreadable(Path::new(path), error))?;
            match parse(&bytes, path, name, *rank) {
                Ok(part) => drop(parts.insert(*rank, part)),
                Err(finding) => self.add(finding),
            }
        }
        let sound = parts.len() == manifests.len();
        // What a damaged manifest knew can't be told.
        for rank in manifests.keys().filter(|rank| !parts.contains_key(rank)) {
            let prefix = format!("{name}/{}/", event::rank_name(*rank));
            present.retain(|path| !path.starts_with(&prefix));
        }
        let ranks = parts.values().map(|part| part.header.ranks).max().unwrap_or(0);
        for rank in (0..ranks).filter(|rank| !manifests.contains_key(rank)) {
            let path = format!("{name}/{}.{MANIFEST_ENDING}", event::rank_name(rank));
            self.add(Finding::new(What::MissingFile, path, format!("rank {rank} of {ranks} has no manifest")));
        }
        for (rank, part) in &parts {
            if part.header.ranks != ranks {
                let text = format!("a group of {} ranks, elsewhere of {ranks}", part.header.ranks);
                self.add(Finding::new(What::Ranks, manifests[rank].clone(), text));
            }
        }
        self.compare_files(name, &parts, present);
        if sound && parts.len() == ranks && parts.values().all(|part| part.header.ranks == ranks) && ranks > 0 {
            self.groups.push(Group { name: name.into(), parts: parts.into_values().collect() });
        }
        Ok(())
    }

    /// The files that are there against those that the manifests know.
    fn compare_files(&mut self, name: &str, parts: &BTreeMap<usize, Part>, mut present: BTreeSet<String>) {
        for (rank, part) in parts {
            for event in &part.events {
                let path = format!("{name}/{}", event.path(*rank));
                if !present.remove(&path) {
                    let text = format!("missing: {} of event {}", event.call.name(), event.number);
                    self.add(Finding::new(What::MissingFile, path, text).at(*rank, event.number));
                }
            }
        }
        for path in present {
            let finding = Finding::new(What::ExtraFile, path, "no manifest knows this file");
            let next = parts.iter().any(|(rank, part)| {
                let stem = format!("{name}/{}/{:06}-", event::rank_name(*rank), part.events.len() + 1);
                part.end.is_none() && finding.file.starts_with(&stem)
            });
            if next { self.excusable.push(finding) } else { self.add(finding) }
        }
    }

    /// Reads an event's file and holds it to the manifest. `None` if it is missing, which is a finding already.
    pub(super) fn load(
        &self,
        group: &Group,
        rank: usize,
        event: &Event,
    ) -> Result<Option<std::result::Result<Loaded, Changed>>> {
        let path = self.root.join(&group.name).join(event.path(rank));
        let size = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path, error)),
        };
        if size != event.file.bytes {
            let why = format!("{size} bytes, not the {} of the manifest", event.file.bytes);
            return Ok(Some(Err(Changed { why, tensors: None, suspects: Vec::new() })));
        }
        let bytes = fs::read(&path).map_err(|error| unreadable(&path, error))?;
        Ok(Some(Loaded::new(event, bytes)))
    }

    /// An event's tensors on one rank, if they are those of the manifest.
    pub fn tensors(&self, group: &Group, rank: usize, event: &Event) -> Result<Loaded> {
        let path = event.path(rank);
        match self.load(group, rank, event)? {
            Some(Ok(loaded)) => Ok(loaded),
            Some(Err(changed)) => Err(Error::InvalidUsage(format!("{}/{path}: {}", group.name, changed.why))),
            None => Err(Error::InvalidUsage(format!("{}/{path} is missing", group.name))),
        }
    }
}

/// The rank that a name stands for, and whether it is a manifest's and not a folder's.
fn rank_of(name: &str) -> Option<(usize, bool)> {
    let (stem, manifest) = match name.split_once('.') {
        Some((stem, MANIFEST_ENDING)) => (stem, true),
        Some(_) => return None,
        None => (name, false),
    };
    let rank = stem.strip_prefix("rank-")?.parse().ok().filter(|rank| *rank < MAX_RANKS)?;
    (event::rank_name(rank) == stem).then_some((rank, manifest))
}

/// A rank's manifest, line by line.
fn parse(bytes: &[u8], path: &str, communicator: &str, rank: usize) -> std::result::Result<Part, Finding> {
    let mut chain = FIRST_CHAIN.to_owned();
    let (mut at, mut number) = (0, 0);
    let mut part: Option<Part> = None;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        number += 1;
        let wrong = |byte: usize, why: String| {
            Finding::new(What::Manifest, path, format!("line {number}: {why}")).byte((at + byte) as u64)
        };
        let (record, next) = manifest::decode(&chain, line).map_err(|damage| wrong(damage.byte, damage.why.clone()))?;
        chain = next;
        match (&mut part, record) {
            (None, Record::Header(header)) => {
                check_header(&header, communicator, rank).map_err(|why| wrong(0, why))?;
                part = Some(Part { header, events: Vec::new(), not_captured: Vec::new(), stopped: None, end: None });
            }
            (Some(part), record) => part.add(record).map_err(|why| wrong(0, why))?,
            (None, _) => return Err(wrong(0, "the first record is no header".into())),
        }
        at += line.len();
    }
    part.ok_or_else(|| Finding::new(What::Manifest, path, "an empty manifest"))
}

fn check_header(header: &Header, communicator: &str, rank: usize) -> std::result::Result<(), String> {
    if header.format != FORMAT {
        return Err(format!("format {}; this build reads {FORMAT}", header.format));
    }
    if (header.communicator.as_str(), header.rank) != (communicator, rank) {
        return Err(format!("the manifest of rank {} of communicator {}", header.rank, header.communicator));
    }
    if header.ranks > MAX_RANKS || header.rank >= header.ranks {
        return Err(format!("rank {} of {}", header.rank, header.ranks));
    }
    Ok(())
}

impl Part {
    /// Takes the next record; the error says what it contradicts.
    fn add(&mut self, record: Record) -> std::result::Result<(), String> {
        let events = self.events.len() as u64;
        if self.end.is_some() {
            return Err("a record after the last".into());
        }
        match record {
            Record::Header(_) => Err("a second header".into()),
            Record::Event(_) if self.stopped.is_some() => Err("an event after capturing had stopped".into()),
            Record::Event(event) => {
                if event.number != events + 1 {
                    return Err(format!("event {} follows event {events}", event.number));
                }
                check_event(&event, &self.events).map_err(|why| format!("event {}: {why}", event.number))?;
                self.events.push(event);
                Ok(())
            }
            Record::NotCaptured(call) if call.after == events => {
                self.not_captured.push(call);
                Ok(())
            }
            Record::Stopped(stopped) if stopped.after == events && self.stopped.is_none() => {
                self.stopped = Some(stopped);
                Ok(())
            }
            Record::NotCaptured(_) | Record::Stopped(_) => Err("a record of another place".into()),
            Record::End(end) => {
                // Counted from the addresses, not from what the events declare.
                let pairs = self.events.iter().map(|event| event::aliases(&event.tensors).map(|pairs| pairs.len()));
                let pairs: Vec<usize> = pairs.collect::<std::result::Result<_, _>>()?;
                let alias_pairs = pairs.iter().sum::<usize>() as u64;
                let aliased = pairs.iter().filter(|pairs| **pairs > 0).count() as u64;
                let told = (end.events, end.aliased, end.alias_pairs);
                if told != (events, aliased, alias_pairs) {
                    return Err(format!(
                        "it tells of {} events, {} of them aliased, {} alias pairs; there are {events}, {aliased}, \
                         {alias_pairs}",
                        told.0, told.1, told.2
                    ));
                }
                if (end.not_captured > 0) == self.not_captured.is_empty() {
                    return Err(format!("it tells of {} calls that were not captured", end.not_captured));
                }
                if end.after_stop > 0 && self.stopped.is_none() {
                    return Err("it tells of calls after a stop that there was not".into());
                }
                self.end = Some(end);
                Ok(())
            }
        }
    }
}

/// What an event must be by itself, and given the ones before it.
fn check_event(event: &Event, earlier: &[Event]) -> std::result::Result<(), String> {
    for (at, tensor) in event.tensors.iter().enumerate() {
        if tensor.bytes().is_none() {
            return Err(format!("'{}' is larger than any memory", tensor.name));
        }
        if event.tensors[..at].iter().any(|other| (other.role, &other.name) == (tensor.role, &tensor.name)) {
            return Err(format!("two tensors '{}'", tensor.name));
        }
    }
    let declared = &event.aliases;
    let found = event::aliases(&event.tensors)?;
    if *declared != found {
        return Err(format!("alias pairs {declared:?}, but by their addresses {found:?}"));
    }
    if let Kind::AllReduce(call) = &event.call {
        let right = event.tensors.len() == 2
            && [(Role::Input, "input"), (Role::Output, "output")].into_iter().all(|(role, name)| {
                event.tensor(role, name).is_some_and(|tensor| {
                    tensor.dtype == event::ElementType::Data(call.dtype) && tensor.shape == [call.count]
                })
            });
        if !right {
            return Err("an all_reduce has an input and an output of its count and type, and nothing else".into());
        }
    }
    for link in &event.links {
        let input = event.tensor(Role::Input, &link.input);
        let output = numbered(earlier, link.event).and_then(|event| event.tensor(Role::Output, &link.output));
        let (Some(input), Some(output)) = (input, output) else {
            return Err(format!("a link from '{}' of event {} to '{}'", link.output, link.event, link.input));
        };
        if (input.dtype, input.bytes()) != (output.dtype, output.bytes()) {
            return Err(format!("'{}' is linked with another type or size", link.input));
        }
    }
    if !matches!(event.call, Kind::AllReduce(_)) {
        check_mhc_links(event, earlier)?;
    }
    Ok(())
}

/// The event of this number: they are numbered from 1.
fn numbered(events: &[Event], number: u64) -> Option<&Event> {
    events.get(usize::try_from(number.checked_sub(1)?).ok()?)
}

/// The inputs that an mHC event takes over from the mHC event before it.
const RECURRENT: [&str; 3] = ["residual", "post", "comb"];

/// An mHC event is fed by a reduction, and by the mHC event before it, unless that ended a token.
fn check_mhc_links(event: &Event, earlier: &[Event]) -> std::result::Result<(), String> {
    let reduced = event
        .links
        .iter()
        .filter(|link| numbered(earlier, link.event).is_some_and(|from| matches!(from.call, Kind::AllReduce(_))));
    if reduced.count() != 1 {
        return Err("not exactly one link from a reduction".into());
    }
    let before = earlier.iter().rev().find(|event| !matches!(event.call, Kind::AllReduce(_)));
    let Some(before) = before.filter(|event| !matches!(event.call, Kind::MhcPost(_))) else { return Ok(()) };
    for name in RECURRENT {
        let needed = name == RECURRENT[0]
            || (event.tensor(Role::Input, name).is_some() && before.tensor(Role::Output, name).is_some());
        let linked = event
            .links
            .iter()
            .any(|link| (link.input.as_str(), link.event, link.output.as_str()) == (name, before.number, name));
        if needed && !linked {
            return Err(format!("no recurrent link of '{name}' from event {}", before.number));
        }
    }
    Ok(())
}
