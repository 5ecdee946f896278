//! Holds a corpus to itself and to the reference. Fails closed: what can't be shown to be right is a finding.

use std::path::Path;

use super::event::{ElementType, Event, Kind, Link, Role, Tensor};
use super::reader::{Group, Scan};
use super::recompute::{Recomputed, recompute};
use super::tensors::{Changed, Loaded};
use super::verdict::{Finding, Verdict, What};
use crate::{Result, reference};

/// What is let pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Calls that were not captured, and manifests without an end, are noted and not held against the corpus.
    pub allow_incomplete: bool,
}

/// Verifies the corpus in `root`. An error is one of reading; whatever is wrong is in the verdict.
pub fn verify(root: &Path, options: &Options) -> Result<Verdict> {
    let mut scan = Scan::open(root)?;
    let mut verdict = Verdict { findings: std::mem::take(&mut scan.findings), ..Default::default() };
    for finding in std::mem::take(&mut scan.excusable) {
        verdict.incomplete(options, finding);
    }
    for group in &scan.groups {
        let parts = group.parts.len();
        verdict.counts.communicators += 1;
        verdict.counts.ranks += parts as u64;
        Check { scan: &scan, group, options, verdict: &mut verdict }.run()?;
    }
    if verdict.findings.is_empty() && verdict.counts.events.is_empty() {
        verdict.findings.push(Finding::new(What::Incomplete, ".", "no call was captured, so nothing is shown"));
    }
    Ok(verdict)
}

impl Verdict {
    fn incomplete(&mut self, options: &Options, finding: Finding) {
        if options.allow_incomplete {
            self.notes.push(finding.to_string());
        } else {
            self.findings.push(finding);
        }
    }
}

/// An event's file on one rank, as it was found.
type Found = Option<std::result::Result<Loaded, Changed>>;

struct Check<'a> {
    scan: &'a Scan,
    group: &'a Group,
    options: &'a Options,
    verdict: &'a mut Verdict,
}

impl Check<'_> {
    fn path(&self, rank: usize, event: &Event) -> String {
        format!("{}/{}", self.group.name, event.path(rank))
    }

    fn manifest(&self, rank: usize) -> String {
        format!("{}/{}.{}", self.group.name, super::event::rank_name(rank), super::reader::MANIFEST_ENDING)
    }

    fn run(&mut self) -> Result<()> {
        let (group, options) = (self.group, self.options);
        let counts: Vec<usize> = group.parts.iter().map(|part| part.events.len()).collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        for (rank, part) in group.parts.iter().enumerate() {
            let gaps = part.gaps();
            // A shorter part needs a reason of its own.
            if part.events.len() < most && gaps.is_empty() {
                let text = format!("{} events, where another rank has {most}", part.events.len());
                self.verdict.findings.push(Finding::new(What::Ranks, self.manifest(rank), text));
            }
            let (library, first) = (&part.header.library, &group.parts[0].header.library);
            if library != first {
                let text = format!("calls of {library}, of rank 0 those of {first}");
                self.verdict.findings.push(Finding::new(What::Ranks, self.manifest(rank), text));
            }
            for gap in gaps {
                let finding = Finding::new(What::Incomplete, self.manifest(rank), gap);
                self.verdict.incomplete(options, finding);
            }
        }
        for index in 0..most {
            self.event(index)?;
        }
        Ok(())
    }

    /// One event on all ranks.
    fn event(&mut self, index: usize) -> Result<()> {
        let group = self.group;
        let mut files: Vec<Found> = Vec::with_capacity(group.parts.len());
        for (rank, part) in group.parts.iter().enumerate() {
            let Some(event) = part.events.get(index) else {
                files.push(None);
                continue;
            };
            let found = self.scan.load(group, rank, event)?;
            if found.is_some() {
                self.verdict.counts.files += 1;
                self.verdict.counts.bytes += event.file.bytes;
            }
            files.push(found);
        }
        let events: Vec<&Event> = group.parts.iter().filter_map(|part| part.events.get(index)).collect();
        if events.len() < group.parts.len() {
            // Said already; what is there has to be whole, but no result can be computed without all inputs.
            self.changed(&events, &files, None);
            return Ok(());
        }
        let first = events[0];
        *self.verdict.counts.events.entry(first.call.name()).or_default() += 1;
        *self.verdict.counts.aliased.entry(first.call.name()).or_default() += u64::from(!first.aliases.is_empty());
        let mut alike = true;
        for (rank, event) in events.iter().enumerate().skip(1) {
            if let Some(difference) = difference(event, first) {
                alike = false;
                let text = format!("event {}: rank {rank} and rank 0 differ in {difference}", first.number);
                self.verdict.findings.push(Finding::new(What::Ranks, self.manifest(rank), text).at(rank, first.number));
            }
        }
        let legible: Vec<&Loaded> = files
            .iter()
            .filter_map(|found| match found.as_ref()? {
                Ok(loaded) => Some(loaded),
                Err(changed) => changed.tensors.as_ref(),
            })
            .collect();
        let expected = (alike && legible.len() == events.len()).then(|| recompute(&events, &legible));
        if self.changed(&events, &files, expected.as_ref().map(|expected| (expected, &legible[..]))) {
            return Ok(());
        }
        if let Some(expected) = expected {
            self.recomputed(&events, &legible, &expected);
            self.equal(&events, &legible);
        }
        for (rank, event) in events.iter().enumerate() {
            for link in &event.links {
                self.link(rank, event, link)?;
            }
        }
        Ok(())
    }

    /// Tells of changed files; true if there are any, or one is missing.
    fn changed(&mut self, events: &[&Event], files: &[Found], expected: Option<(&Recomputed, &[&Loaded])>) -> bool {
        let mut any = false;
        let present = files.iter().enumerate().filter(|(rank, _)| {
            self.group.parts[*rank].events.len() as u64 >= events.first().map_or(0, |event| event.number)
        });
        for ((rank, found), event) in present.zip(events) {
            match found {
                Some(Ok(_)) => {}
                None => any = true,
                Some(Err(changed)) => {
                    any = true;
                    let mut finding =
                        Finding::new(What::ChangedFile, self.path(rank, event), &*changed.why).at(rank, event.number);
                    if let Some((Recomputed::Outputs(outputs), loaded)) = expected
                        && let Some((element, byte, where_)) = locate(rank, events, loaded, changed, outputs)
                    {
                        finding = finding.element(element, byte);
                        finding.text += &format!("; by the reduction, first in element {element} of {where_}");
                    }
                    self.verdict.findings.push(finding);
                }
            }
        }
        any
    }

    /// Holds the outputs of intact files to what was computed again.
    fn recomputed(&mut self, events: &[&Event], loaded: &[&Loaded], expected: &Recomputed) {
        let first = events[0];
        let outputs = match expected {
            Recomputed::Outputs(outputs) => outputs,
            Recomputed::Impossible(why) => {
                let text = format!("event {}: not recomputed: {why}", first.number);
                let finding = Finding::new(What::NotRecomputed, self.path(0, first), text);
                self.verdict.findings.push(finding.at(0, first.number));
                return;
            }
        };
        for output in first.tensors.iter().filter(|tensor| tensor.role == Role::Output) {
            if !outputs.iter().any(|(name, _)| *name == output.name) {
                let text = format!("event {}: not recomputed: the call has no output '{}'", first.number, output.name);
                let finding = Finding::new(What::NotRecomputed, self.path(0, first), text);
                self.verdict.findings.push(finding.at(0, first.number));
            }
        }
        for (rank, (event, loaded)) in events.iter().zip(loaded).enumerate() {
            for (name, want) in outputs {
                let Some(position) = output_position(event, name) else {
                    let text = format!("event {}: no output '{name}'", event.number);
                    self.verdict.findings.push(Finding::new(What::Manifest, self.manifest(rank), text));
                    continue;
                };
                let (tensor, got) = (&event.tensors[position], loaded.bytes_of(position));
                self.verdict.counts.elements += (want.len() / tensor.dtype.size()) as u64;
                if let Some(wrong) = first_difference(got, want, tensor) {
                    let text = format!(
                        "rank {rank}, event {} ({}), element {} of '{name}': got {}, expected {}; {} of {} elements \
                         are wrong",
                        event.number,
                        describe(&event.call),
                        wrong.element,
                        wrong.got,
                        wrong.want,
                        wrong.count,
                        got.len() / tensor.dtype.size(),
                    );
                    let byte = loaded.offset(position) as u64 + wrong.element * tensor.dtype.size() as u64;
                    self.verdict.findings.push(
                        Finding::new(What::Reduction, self.path(rank, event), text)
                            .at(rank, event.number)
                            .element(wrong.element, byte),
                    );
                }
            }
        }
    }

    /// Outputs are equal on all ranks; so are the inputs of calls that every rank computes for itself.
    fn equal(&mut self, events: &[&Event], loaded: &[&Loaded]) {
        let first = events[0];
        let replicated = !matches!(first.call, Kind::AllReduce(_));
        for (position, tensor) in first.tensors.iter().enumerate() {
            if tensor.role == Role::Input && !replicated {
                continue;
            }
            for rank in 1..events.len() {
                let (got, want) = (loaded[rank].bytes_of(position), loaded[0].bytes_of(position));
                if let Some(wrong) = first_difference(got, want, tensor) {
                    let text = format!(
                        "event {} ({}), element {} of '{}': rank {rank} has {}, rank 0 has {}",
                        first.number,
                        describe(&first.call),
                        wrong.element,
                        tensor.name,
                        wrong.got,
                        wrong.want
                    );
                    let byte = loaded[rank].offset(position) as u64 + wrong.element * tensor.dtype.size() as u64;
                    self.verdict.findings.push(
                        Finding::new(What::Equality, self.path(rank, events[rank]), text)
                            .at(rank, first.number)
                            .element(wrong.element, byte),
                    );
                }
            }
        }
    }

    /// An input is what the linked output was.
    fn link(&mut self, rank: usize, event: &Event, link: &Link) -> Result<()> {
        let earlier = self.group.parts[rank].events.iter().find(|earlier| earlier.number == link.event);
        let input = event.tensor(Role::Input, &link.input);
        let output = earlier.and_then(|earlier| earlier.tensor(Role::Output, &link.output));
        let (Some(earlier), Some(input), Some(output)) = (earlier, input, output) else {
            // The reader accepts no such link.
            return Ok(());
        };
        // Both files are shown to be those of the manifest, or it is said that they are not.
        if input.sha256 == output.sha256 {
            self.verdict.counts.links += 1;
            return Ok(());
        }
        let mut text = format!(
            "rank {rank}, event {} ({}): '{}' is not what event {} ({}) put out as '{}'",
            event.number,
            event.call.name(),
            link.input,
            earlier.number,
            earlier.call.name(),
            link.output
        );
        let mut finding = Finding::new(What::Link, self.path(rank, event), "").at(rank, event.number);
        let files = (self.scan.load(self.group, rank, event)?, self.scan.load(self.group, rank, earlier)?);
        if let (Some(Ok(here)), Some(Ok(there))) = files
            && let Some(position) = event.tensors.iter().position(|tensor| std::ptr::eq(tensor, input))
            && let Some(want) = there.tensor(earlier, Role::Output, &link.output)
            && let Some(wrong) = first_difference(here.bytes_of(position), want, input)
        {
            text += &format!("; element {}: got {}, expected {}", wrong.element, wrong.got, wrong.want);
            let byte = here.offset(position) as u64 + wrong.element * input.dtype.size() as u64;
            finding = finding.element(wrong.element, byte);
        }
        finding.text = text;
        self.verdict.findings.push(finding);
        Ok(())
    }
}

fn output_position(event: &Event, name: &str) -> Option<usize> {
    event.tensors.iter().position(|tensor| tensor.role == Role::Output && tensor.name == name)
}

/// The first element of a changed file that the reduction shows to be wrong, its byte, and the tensor it is in.
fn locate(
    rank: usize,
    events: &[&Event],
    loaded: &[&Loaded],
    changed: &Changed,
    outputs: &[(&'static str, Vec<u8>)],
) -> Option<(u64, u64, String)> {
    let event = events[rank];
    changed.suspects.iter().find_map(|&suspect| {
        let tensor = &event.tensors[suspect];
        let wrong = match tensor.role {
            Role::Output => {
                let want = &outputs.iter().find(|(name, _)| *name == tensor.name)?.1;
                first_difference(loaded[rank].bytes_of(suspect), want, tensor)
            }
            // An input shows in any rank's output, where the elements of both correspond.
            Role::Input => outputs.iter().find_map(|(name, want)| {
                let position = output_position(event, name)?;
                let output = &event.tensors[position];
                (output.shape == tensor.shape && output.dtype == tensor.dtype).then_some(())?;
                (0..events.len()).find_map(|other| first_difference(loaded[other].bytes_of(position), want, output))
            }),
        }?;
        let byte = loaded[rank].offset(suspect) as u64 + wrong.element * tensor.dtype.size() as u64;
        Some((wrong.element, byte, format!("'{}'", tensor.name)))
    })
}

/// In which of the things that are alike on all ranks two differ.
fn difference(event: &Event, first: &Event) -> Option<String> {
    if !event.call.is_alike(&first.call) {
        return Some(format!("the call: {:?} and {:?}", event.call, first.call));
    }
    let shape = |tensor: &Tensor| (tensor.name.clone(), tensor.role, tensor.dtype, tensor.shape.clone());
    if event.tensors.iter().map(shape).ne(first.tensors.iter().map(shape)) {
        return Some("the tensors' names, types or shapes".into());
    }
    (event.links != first.links).then(|| "the links".into())
}

fn describe(call: &Kind) -> String {
    match call {
        Kind::AllReduce(call) => {
            let op = call.op.reduce_op(call.dtype);
            format!("all_reduce of {} {}, {op}, order {}", call.count, call.dtype, call.order)
        }
        other => other.name().into(),
    }
}

struct Wrong {
    element: u64,
    count: u64,
    got: String,
    want: String,
}

/// Where two tensors of one type and size first differ.
fn first_difference(got: &[u8], want: &[u8], tensor: &Tensor) -> Option<Wrong> {
    if got == want {
        return None;
    }
    let size = tensor.dtype.size();
    let differ = || got.chunks(size).zip(want.chunks(size)).enumerate().filter(|(_, (got, want))| got != want);
    Some(match differ().next() {
        Some((element, (got, want))) => Wrong {
            element: element as u64,
            count: differ().count() as u64,
            got: show(got, tensor.dtype),
            want: show(want, tensor.dtype),
        },
        // Of another length, though all that both have is alike.
        None => Wrong {
            element: (got.len().min(want.len()) / size) as u64,
            count: (got.len().abs_diff(want.len()) / size) as u64,
            got: format!("{} bytes", got.len()),
            want: format!("{} bytes", want.len()),
        },
    })
}

/// An element's bits, and its value.
fn show(element: &[u8], dtype: ElementType) -> String {
    let mut bits = [0; 8];
    bits[..element.len()].copy_from_slice(element);
    let bits = u64::from_le_bytes(bits);
    match dtype {
        ElementType::Bool => format!("{bits}"),
        ElementType::Data(dtype) => {
            format!("{bits:#0width$x} ({})", reference::to_f64(dtype, bits), width = 2 + 2 * dtype.size())
        }
    }
}
