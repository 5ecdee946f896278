//! A rank's manifest: lines of JSON, written as things happen, so that a process that dies leaves a true one.
//!
//! Each line holds a record and a checksum over the record and the checksum before it. A line is only accepted in the
//! one form in which this code writes it. So no byte of a manifest can change, and no line be missing but the last ones;
//! that those are there is said by the last of all, [`Record::End`].

use serde::{Deserialize, Serialize};

use super::event::Event;
use super::sha256;

/// The first record: whose manifest this is, and what ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`super::FORMAT`].
    pub format: u32,
    /// The communicator's name, which is that of its folder.
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

/// A call that could not be captured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotCaptured {
    /// Events before it.
    pub after: u64,
    /// Which call, and why.
    pub what: String,
}

/// The end of capturing before that of the communicator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stopped {
    /// Events before it.
    pub after: u64,
    /// Why.
    pub why: String,
}

/// The last record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Events in this manifest.
    pub events: u64,
    /// Events with at least one output in an input's storage.
    pub aliased: u64,
    /// Pairs of an output and an input that were the same storage, in all events.
    pub alias_pairs: u64,
    /// Calls that could not be captured.
    pub not_captured: u64,
    /// Calls after capturing had stopped.
    pub after_stop: u64,
}

/// A line's content.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record {
    Header(Header),
    Event(Event),
    NotCaptured(NotCaptured),
    Stopped(Stopped),
    End(End),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    chain: String,
    record: Record,
}

/// What the first line's checksum covers in place of one before it.
pub(super) const FIRST_CHAIN: &str = "ccl corpus";

/// The line of a record, and its checksum.
pub(super) fn encode(previous: &str, record: Record) -> Result<(Vec<u8>, String), serde_json::Error> {
    let mut covered = previous.as_bytes().to_vec();
    serde_json::to_writer(&mut covered, &record)?;
    let chain = sha256(&covered);
    let mut line = serde_json::to_vec(&Line { chain: chain.clone(), record })?;
    line.push(b'\n');
    Ok((line, chain))
}

/// A line that is not as it was written: from which byte of it on, and why.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) byte: usize,
    pub(super) why: String,
}

/// The record and the checksum of a line, which `line` holds with its end.
pub(super) fn decode(previous: &str, line: &[u8]) -> Result<(Record, String), Damage> {
    if line.last() != Some(&b'\n') {
        return Err(Damage { byte: line.len(), why: "the last line has no end".into() });
    }
    let parsed: Line = serde_json::from_slice(line)
        .map_err(|error| Damage { byte: error.column().saturating_sub(1), why: error.to_string() })?;
    let record = parsed.record;
    let (expected, chain) = encode(previous, record.clone()).map_err(|e| Damage { byte: 0, why: e.to_string() })?;
    if expected == line {
        return Ok((record, chain));
    }
    let differs = expected.iter().zip(line).position(|(a, b)| a != b).unwrap_or(expected.len().min(line.len()));
    // The checksums have one length.
    let covered = br#"{"chain":"","record":"#.len() + chain.len();
    Err(if expected.get(covered..) == line.get(covered..) && chain.len() == parsed.chain.len() {
        Damage { byte: differs, why: "a record and its checksum, or the line before, don't belong together".into() }
    } else {
        Damage { byte: differs, why: "not the form in which manifests are written".into() }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn lines() -> Vec<(String, Vec<u8>)> {
        let stopped = |after| Record::Stopped(Stopped { after, why: "a \"reason\"".into() });
        let mut chain = FIRST_CHAIN.to_owned();
        (0..3)
            .map(|after| {
                let before = chain.clone();
                let (line, next) = encode(&chain, stopped(after)).unwrap();
                chain = next;
                (before, line)
            })
            .collect()
    }

    #[test]
    fn a_line_comes_back() {
        for (after, (before, line)) in (0..).zip(lines()) {
            let (record, _) = decode(&before, &line).unwrap();
            assert!(matches!(record, Record::Stopped(stopped) if stopped.after == after));
        }
    }

    #[test]
    fn no_byte_can_change_and_no_line_be_left_out() {
        let lines = lines();
        for (before, line) in &lines {
            for at in 0..line.len() {
                for change in 1..=255 {
                    let mut changed = line.clone();
                    changed[at] ^= change;
                    decode(before, &changed).unwrap_err();
                }
            }
            for length in 0..line.len() {
                decode(before, &line[..length]).unwrap_err();
            }
        }
        decode(&lines[0].0, &lines[1].1).unwrap_err();
        decode(&lines[1].0, &lines[2].1).unwrap_err();
    }
}
