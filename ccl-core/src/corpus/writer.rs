//! Writes one rank's part of a corpus. Every event is a file that appears whole, and then a line in the manifest.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use super::event::{self, ElementType, Event, Kind, Link, Role, Tensor};
use super::manifest::{self, End, FIRST_CHAIN, Header, NotCaptured, Record, Stopped};
use super::{FORMAT, sha256, tensors};
use crate::{Error, Result};

/// Bytes of the limit that are kept for the manifest's last lines.
const RESERVE: u64 = 4096;

/// How many uncaptured calls are told one by one; all are counted.
const TOLD: u64 = 16;

/// Whose part is written, where, and what ran.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The corpus. Created if it is not there.
    pub directory: PathBuf,
    /// Alike on all ranks of the communicator and like no other: lower-case letters, digits and `-`.
    pub communicator: String,
    /// This rank.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// The library whose calls these are, with its version.
    pub library: String,
    /// The driver.
    pub driver: String,
    /// The device.
    pub device: String,
    /// Bytes that this rank's part may take.
    pub limit: u64,
}

/// A tensor in host memory.
#[derive(Clone, Debug)]
pub struct TensorData<'a> {
    /// Its name in the call.
    pub name: &'a str,
    /// Read or written by the call.
    pub role: Role,
    /// Element type.
    pub dtype: ElementType,
    /// Extents, the slowest first.
    pub shape: &'a [u64],
    /// Where the call had it.
    pub address: u64,
    /// Its elements: before the call if it is an input, after it if it is an output.
    pub bytes: &'a [u8],
}

/// A call that has finished.
#[derive(Clone, Debug)]
pub struct EventData<'a> {
    /// Which call.
    pub call: Kind,
    /// All its tensors.
    pub tensors: &'a [TensorData<'a>],
    /// What fed it.
    pub links: &'a [Link],
}

/// Writes one rank's part. Dropping it finishes it.
pub struct Writer {
    origin: Origin,
    /// The communicator's.
    folder: PathBuf,
    manifest: File,
    chain: String,
    written: u64,
    end: End,
    stopped: bool,
    finished: bool,
}

impl Writer {
    /// Begins the part. Fails if there is one of this communicator and rank already.
    pub fn create(origin: Origin) -> Result<Writer> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if origin.communicator.is_empty() || !origin.communicator.chars().all(plain) {
            return Err(Error::InvalidArgument(format!("'{}' as a communicator's name", origin.communicator)));
        }
        if origin.rank >= origin.ranks {
            return Err(Error::InvalidArgument(format!("rank {} of {}", origin.rank, origin.ranks)));
        }
        let folder = origin.directory.join(&origin.communicator);
        let name = event::rank_name(origin.rank);
        let files = folder.join(&name);
        let failed = |what: &PathBuf, error| Error::system(format!("capture in {}", what.display()), error);
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        fs::create_dir(&files).map_err(|error| failed(&files, error))?;
        let path = folder.join(format!("{name}.{}", super::reader::MANIFEST_ENDING));
        let manifest =
            OpenOptions::new().append(true).create_new(true).open(&path).map_err(|error| failed(&path, error))?;
        let end = End { events: 0, aliased: 0, alias_pairs: 0, not_captured: 0, after_stop: 0 };
        let header = Header {
            format: FORMAT,
            communicator: origin.communicator.clone(),
            rank: origin.rank,
            ranks: origin.ranks,
            library: origin.library.clone(),
            driver: origin.driver.clone(),
            device: origin.device.clone(),
            limit: origin.limit,
        };
        let chain = FIRST_CHAIN.to_owned();
        let mut writer = Writer { origin, folder, manifest, chain, written: 0, end, stopped: false, finished: false };
        writer.record(Record::Header(header))?;
        Ok(writer)
    }

    /// Events written so far.
    pub fn events(&self) -> u64 {
        self.end.events
    }

    /// Whether capturing has ended.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Writes an event; false if capturing has ended, be it because this one would pass the limit.
    pub fn write(&mut self, data: &EventData<'_>) -> Result<bool> {
        if self.stopped {
            self.end.after_stop += 1;
            return Ok(false);
        }
        let written = self.try_write(data);
        match &written {
            Ok(true) => {}
            Ok(false) => self.end.after_stop += 1,
            Err(error) => {
                self.stop(&format!("event {} could not be written: {error}", self.end.events + 1));
                self.end.after_stop += 1;
            }
        }
        written
    }

    fn try_write(&mut self, data: &EventData<'_>) -> Result<bool> {
        let described: Vec<Tensor> = data
            .tensors
            .iter()
            .map(|tensor| Tensor {
                name: tensor.name.into(),
                role: tensor.role,
                dtype: tensor.dtype,
                shape: tensor.shape.to_vec(),
                address: tensor.address,
                sha256: sha256(tensor.bytes),
            })
            .collect();
        for (tensor, data) in described.iter().zip(data.tensors) {
            if tensor.bytes() != Some(data.bytes.len() as u64) {
                return Err(Error::InvalidArgument(format!(
                    "{} bytes of {:?} {} in '{}'",
                    data.bytes.len(),
                    data.shape,
                    data.dtype,
                    data.name
                )));
            }
        }
        let aliases = event::aliases(&described).map_err(Error::InvalidArgument)?;
        let file = tensors::encode(data.tensors.iter().map(|tensor| tensors::Stored {
            role: tensor.role,
            name: tensor.name,
            dtype: tensor.dtype,
            shape: tensor.shape,
            bytes: tensor.bytes,
        }))
        .map_err(Error::InvalidArgument)?;
        let event = Event {
            number: self.end.events + 1,
            call: data.call.clone(),
            file: event::File { bytes: file.len() as u64, sha256: sha256(&file) },
            tensors: described,
            aliases,
            links: data.links.to_vec(),
        };
        let path = self.folder.join(event.path(self.origin.rank));
        let (number, pairs) = (event.number, event.aliases.len() as u64);
        let (line, chain) = manifest::encode(&self.chain, Record::Event(event)).map_err(unwritable)?;
        let after = self.written + file.len() as u64 + line.len() as u64;
        if after + RESERVE > self.origin.limit {
            self.stop(&format!("event {number} would pass the limit of {} bytes", self.origin.limit));
            return Ok(false);
        }
        // Under another name first, so that a file of an event is a whole one.
        let part = path.with_extension("part");
        if let Err(error) = fs::write(&part, &file).and_then(|()| fs::rename(&part, &path)) {
            // What the manifest goes on to tell explains no such file; and on a full disk it takes the room to tell it.
            let _ = fs::remove_file(&part);
            return Err(Error::system(format!("writing {}", path.display()), error));
        }
        self.append(&line, chain)?;
        self.written = after;
        self.end.events += 1;
        self.end.alias_pairs += pairs;
        self.end.aliased += u64::from(pairs > 0);
        Ok(true)
    }

    /// Notes a call that can't be captured; the first few by name.
    pub fn not_captured(&mut self, what: &str) -> Result<()> {
        if self.stopped {
            self.end.after_stop += 1;
            return Ok(());
        }
        self.end.not_captured += 1;
        if self.end.not_captured > TOLD {
            return Ok(());
        }
        self.record(Record::NotCaptured(NotCaptured { after: self.end.events, what: what.into() }))
    }

    /// Ends capturing; the calls after this are counted only.
    pub fn stop(&mut self, why: &str) {
        if self.stopped {
            return;
        }
        let stopped = Record::Stopped(Stopped { after: self.end.events, why: why.into() });
        // If not even this can be written, the manifest has no end, which tells as much.
        let _ = self.record(stopped);
        self.stopped = true;
    }

    /// Writes the last line, after which the part is complete.
    pub fn finish(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.finished {
            return Ok(());
        }
        self.finished = true;
        self.record(Record::End(self.end.clone()))
    }

    fn record(&mut self, record: Record) -> Result<()> {
        let (line, chain) = manifest::encode(&self.chain, record).map_err(unwritable)?;
        self.written += line.len() as u64;
        self.append(&line, chain)
    }

    fn append(&mut self, line: &[u8], chain: String) -> Result<()> {
        let written = self.manifest.metadata().and_then(|before| {
            // Nobody would believe a manifest that ends in half a line.
            self.manifest.write_all(line).inspect_err(|_| drop(self.manifest.set_len(before.len())))
        });
        if let Err(error) = written {
            // Nothing more is told, lest a later line told of what this one should have: a manifest without an end stands.
            (self.stopped, self.finished) = (true, true);
            return Err(Error::system(format!("the manifest in {}", self.folder.display()), error));
        }
        self.chain = chain;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("capture: {error}");
        }
    }
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::Internal(format!("a manifest's line: {error}"))
}
