//! Packets of the initialisation steps. Fixed head, bounded body; nothing is allocated by a length that came in.

use super::sys::clipped;
use crate::Error;

const MAGIC: &[u8; 4] = b"CCLM";
/// Bytes of a step's name on the wire.
pub(crate) const WHAT_BYTES: usize = 64;
/// Bytes before the data.
pub(crate) const HEADER_BYTES: usize = 24 + WHAT_BYTES;
/// Data bytes of one packet; a longer message is sent in several.
pub(crate) const PART_BYTES: usize = 32 << 10;
const REASON_BYTES: usize = 1024;
const ABANDON: u8 = 255;

/// Kind of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Gather = 1,
    Barrier = 2,
    Exchange = 3,
    Post = 4,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Gather => "init step",
            Kind::Barrier => "init barrier",
            Kind::Exchange => "init exchange",
            Kind::Post => "init hand-over",
        }
    }
}

/// Head of a packet.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: Kind,
    pub(crate) number: u32,
    pub(crate) what: &'a str,
    pub(crate) total: usize,
    pub(crate) offset: usize,
}

impl<'a> Frame<'a> {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let what = clipped(self.what, WHAT_BYTES);
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = what.len() as u8;
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.total as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.offset as u32).to_le_bytes());
        bytes[24..24 + what.len()].copy_from_slice(what.as_bytes());
        bytes
    }

    pub(crate) fn decode(packet: &'a [u8]) -> Option<Self> {
        let bytes = packet.get(..HEADER_BYTES).filter(|bytes| bytes.starts_with(MAGIC))?;
        let kind = [Kind::Gather, Kind::Barrier, Kind::Exchange, Kind::Post];
        Some(Self {
            kind: kind.into_iter().find(|kind| *kind as u8 == bytes[4])?,
            number: word(bytes, 8)?,
            what: std::str::from_utf8(bytes.get(24..24 + bytes[5] as usize)?).ok()?,
            total: word(bytes, 12)? as usize,
            offset: word(bytes, 16)? as usize,
        })
        .filter(|frame| frame.total <= super::MAX_MESSAGE_BYTES)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The packet by which `rank` tells that it gives up. It names the first culprit: a rank that gives up because another
/// one vanished must not be taken for the cause.
pub(crate) fn abandon(rank: usize, error: &Error) -> Vec<u8> {
    let (culprit, reason) = match error {
        Error::PeerLost { rank: lost, detail, .. } => (*lost, detail.clone()),
        other => (rank, format!("gave up: {other}")),
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend([ABANDON, 0, 0, 0]);
    bytes.extend((culprit as u32).to_le_bytes());
    bytes.extend(clipped(&reason, REASON_BYTES).as_bytes());
    bytes
}

/// The error that a packet from rank `from` stands for, if it tells of one.
pub(crate) fn abandoned(packet: &[u8], from: usize, world_size: usize) -> Option<Error> {
    if !packet.starts_with(MAGIC) || *packet.get(4)? != ABANDON {
        return None;
    }
    let rank = word(packet, 8).map(|rank| rank as usize).filter(|rank| *rank < world_size)?;
    let reason = String::from_utf8_lossy(packet.get(12..)?);
    let detail = if rank == from { reason.into_owned() } else { format!("{reason}, as rank {from} tells") };
    Some(Error::PeerLost { rank, detail, during: " during initialisation".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_garbage_does_not() {
        let frame = Frame { kind: Kind::Exchange, number: 7, what: "staging", total: 40_000, offset: 32_768 };
        let mut bytes = frame.encode();
        assert_eq!(Frame::decode(&bytes), Some(frame));
        assert_eq!(Frame::decode(&bytes[..HEADER_BYTES - 1]), None);
        bytes[12..16].fill(0xFF);
        assert_eq!(Frame::decode(&bytes), None, "a length beyond the limit");
        bytes = [0xAB; HEADER_BYTES];
        assert_eq!(Frame::decode(&bytes), None);
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        let what = "é".repeat(WHAT_BYTES);
        let bytes = Frame { kind: Kind::Barrier, number: 1, what: &what, total: 0, offset: 0 }.encode();
        assert_eq!(Frame::decode(&bytes).map(|f| f.what.len()), Some(WHAT_BYTES));
    }

    #[test]
    fn giving_up_names_the_first_culprit() {
        let lost = Error::PeerLost { rank: 2, detail: "process 9 closed".into(), during: String::new() };
        let told = abandoned(&abandon(0, &lost), 0, 4);
        assert!(
            matches!(told, Some(Error::PeerLost { rank: 2, ref detail, .. }) if detail.contains("as rank 0 tells"))
        );
        let own = abandoned(&abandon(1, &Error::Internal("x".into())), 1, 4);
        assert!(matches!(own, Some(Error::PeerLost { rank: 1, ref detail, .. }) if detail.contains("gave up")));
        assert_eq!(abandoned(&abandon(9, &Error::Internal("x".into())), 1, 4), None, "no such rank");
    }
}
