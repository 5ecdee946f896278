//! What the ranks agree on at init, as a pure function of what each of them said.

use crate::config::Config;
use crate::device::{DeviceFacts, DeviceFamily, Place};
use crate::error::{Error, Result};
use crate::plan::Agreed;
use crate::protocol::{BULK_UNIT, LineForm, MAX_RANKS, MAX_WIRES, TAG_LIMIT};
use serde::{Deserialize, Serialize};

/// A rank's first word to the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Version of this library.
    pub version: String,
    /// Chance made it, so that no two communicators are alike; rank 0's is the communicator's name in messages.
    pub name: u32,
    /// Chance made it, once for each process.
    pub process: u64,
    /// Rules that a test has switched off on it; 0 in use.
    pub hooks: u32,
    /// Hash of the part of the configuration that must be alike.
    pub config: u64,
    /// The values behind the hash, for the message.
    pub alike: Vec<(String, String)>,
    /// Its device.
    pub device: DeviceFacts,
    /// The processors on which it may run.
    pub cpus: Vec<u32>,
}

/// Checks the ranks against one another and settles what selection depends on. Gives the same answer, or the same
/// error, on every rank.
pub fn agree(hellos: &[Hello], config: &Config) -> Result<Agreed> {
    let n = hellos.len();
    if n > MAX_RANKS {
        return Err(Error::NotImplemented(format!("{n} ranks: a ring has at most {MAX_RANKS}")));
    }
    let first = &hellos[0];
    for (rank, hello) in hellos.iter().enumerate() {
        let differs = |what: &str, ours: String, theirs: String| Error::Mismatch {
            rank,
            what: what.into(),
            detail: format!("{theirs} there, {ours} on rank 0"),
        };
        if hello.version != first.version {
            return Err(differs("library version", first.version.clone(), hello.version.clone()));
        }
        if hello.config != first.config {
            // The first differing variable is named where both ranks' values are known.
            let (ours, theirs) = (&first.alike, &hello.alike);
            let odd =
                theirs.iter().find(|pair| !ours.contains(pair)).or_else(|| ours.iter().find(|p| !theirs.contains(p)));
            let name = odd.map_or("hash", |(name, _)| name.as_str());
            let value = |list: &[(String, String)]| {
                list.iter().find(|(n, _)| n == name).map_or("unset".into(), |(_, value)| format!("{name}={value}"))
            };
            return Err(differs("configuration", value(ours), value(theirs)));
        }
        if hello.device.software != first.device.software {
            return Err(differs("driver", first.device.driver.clone(), hello.device.driver.clone()));
        }
        let shares = |h: &&Hello| h.device.uuid == hello.device.uuid && h.process == hello.process;
        if let Some(other) = hellos[..rank].iter().position(|h| shares(&h)) {
            return Err(Error::InvalidUsage(format!(
                "ranks {other} and {rank} are threads of one process on one device ({}): collectives of a process and \
                 device run one at a time, so that these would wait for each other",
                hello.device.name
            )));
        }
        if let Some(other) = hellos[..rank].iter().position(|h| h.device.uuid == hello.device.uuid)
            && !config.allow_shared_device
        {
            return Err(Error::InvalidUsage(format!(
                "ranks {other} and {rank} are on the same device ({}); CCLX_ALLOW_SHARED_DEVICE=1 permits it",
                hello.device.name
            )));
        }
    }
    let smallest = |of: fn(&DeviceFacts) -> u32| hellos.iter().map(|h| of(&h.device)).min().unwrap_or(0);
    let shown = smallest(|d| d.granule) as usize;
    // A mixture goes by the table of the slowest links.
    let family = hellos
        .iter()
        .map(|h| h.device.family)
        .reduce(|a, b| if a == b { a } else { DeviceFamily::IntelPcie })
        .unwrap_or(DeviceFamily::Software);
    let wanted = match (config.granule, family) {
        // One instruction moves no more there, and wider lines are slower, as measured.
        (0, DeviceFamily::Cuda) => shown.min(16),
        (0, _) => shown,
        (asked, _) => asked as usize,
    };
    if wanted > shown {
        return Err(Error::InvalidUsage(format!(
            "CCLX_GRANULE={wanted} asks for more than the {shown} bytes that all devices and links are known to keep whole"
        )));
    }
    let form = LineForm::from_granule(wanted)
        .ok_or_else(|| Error::NotImplemented(format!("a device that keeps only {wanted} bytes whole")))?;
    let resident = smallest(|d| d.resident_groups);
    if resident == 0 {
        return Err(Error::NotImplemented("a device that keeps no work-group resident".into()));
    }
    let max_wires = resident.min(config.max_wires).min(MAX_WIRES as u32);
    let every = |holds: fn(&DeviceFacts) -> bool| hellos.iter().all(|h| holds(&h.device));
    // A rank alone has nobody to push to.
    let push = n > 1 && every(|d| d.push);
    let bulk = push && every(|d| d.bulk);
    let slots = Slots::of(family, config);
    Ok(Agreed {
        n,
        form,
        slot_tiles: config.staging_tiles,
        push_tiles: if push { slots.push_tiles } else { 0 },
        bulk_bytes: if bulk { slots.bulk_bytes / BULK_UNIT * BULK_UNIT } else { 0 },
        family,
        native: every(|d| d.native),
        max_wires,
        tag_limit: TAG_LIMIT,
    })
}

/// How large the push algorithms' slots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// [`Layout::push_tiles`](crate::protocol::Layout::push_tiles).
    pub push_tiles: u32,
    /// [`Layout::bulk_bytes`](crate::protocol::Layout::bulk_bytes), before it is rounded down.
    pub bulk_bytes: u32,
}

impl Slots {
    /// Where nothing is set. Slots by lines serve short messages; a bulk slot is what two processors that share a cache can
    /// have in flight without leaving it, as far as 32 MiB for 8 ranks go.
    pub const USUAL: Slots = Slots { push_tiles: 16, bulk_bytes: 248 << 10 };

    /// On NVIDIA's GPUs a round costs as much time as their links need for some hundred kilobytes. 256 KiB by one-shot and
    /// 512 KiB by mesh on two ranks take one round on lines. In bulk, as measured on two ranks, 64 MiB by mesh take 341 us
    /// with half of it and 317 with twice as much.
    const CUDA: Slots = Slots { push_tiles: 80, bulk_bytes: 8 << 20 };

    /// What the configuration says, or else what suits the devices.
    pub fn of(family: DeviceFamily, config: &Config) -> Self {
        let unset = if family == DeviceFamily::Cuda { Self::CUDA } else { Self::USUAL };
        let or = |said: u32, unset: u32| if said == 0 { unset } else { said };
        Self {
            push_tiles: or(config.push_tiles, unset.push_tiles),
            bulk_bytes: or(config.bulk_bytes, unset.bulk_bytes),
        }
    }
}

/// Where staging memory goes: device memory if every rank's device reaches the next one's and nobody forbade it.
pub fn place(reaches_next: &[bool], config: &Config) -> Place {
    if config.p2p_access && reaches_next.iter().all(|&r| r) { Place::Device } else { Place::Host }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::protocol::{FLAG_STRIDE, STAGING_HEAD_BYTES};

    /// What `n` ranks agree on, each on a device that pushes, also in bulk.
    fn agreed(n: usize, family: DeviceFamily) -> Agreed {
        let hello = |rank: usize| Hello {
            version: String::new(),
            name: 1,
            process: rank as u64,
            hooks: 0,
            config: 0,
            alike: Vec::new(),
            device: DeviceFacts {
                uuid: [rank as u8; 16],
                name: String::new(),
                driver: String::new(),
                software: true,
                granule: 16,
                resident_groups: 64,
                push: true,
                bulk: true,
                family,
                native: false,
            },
            cpus: Vec::new(),
        };
        let hellos: Vec<Hello> = (0..n).map(hello).collect();
        agree(&hellos, &Config::default()).unwrap()
    }

    /// Where tags begin anew kernels clear, behind the head, `2 (n - 1)` slots of the ring, `4 n` push slots, and where there
    /// is bulk a flag of each of 64 wires for `6 n` places (`clear_flags` in call.h), whatever n is. All of it is there.
    #[test]
    fn what_kernels_clear_is_staging_memory() {
        for (n, family) in (1..=MAX_RANKS).flat_map(|n| [(n, DeviceFamily::Software), (n, DeviceFamily::Cuda)]) {
            let agreed = agreed(n, family);
            let tiles = 2 * (n - 1) * agreed.slot_tiles as usize + 4 * n * agreed.push_tiles as usize;
            let flags = if agreed.bulk_bytes == 0 { 0 } else { 6 * n * 64 * 64 };
            let end = STAGING_HEAD_BYTES + tiles * agreed.form.tile_bytes() + flags;
            let layout = agreed.layout();
            assert_eq!(layout.flags_offset() + layout.flags() * FLAG_STRIDE, end, "{n} ranks");
            assert!(layout.bytes() >= end, "{n} ranks");
            assert_eq!((agreed.push_tiles > 0, agreed.bulk_bytes > 0), (n > 1, n > 1), "{n} ranks");
        }
    }
}
