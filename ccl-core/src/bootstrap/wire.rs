//! What joiner and root say to each other. Both messages have one fixed size: no length comes in from outside.

use std::hint::black_box;
use std::time::Duration;

use super::id::SECRET_BYTES;
use crate::mesh::sys::clipped;
use crate::protocol::MAX_RANKS;

const MAGIC: &[u8; 8] = b"CCLXJOIN";
const VERSION: u32 = 1;
/// Bytes of magic, version and secret.
const PROOF_BYTES: usize = 12 + SECRET_BYTES;
/// Bytes of a [`Hello`].
pub(super) const HELLO_BYTES: usize = PROOF_BYTES + 28;
const TEXT_BYTES: usize = 400;
/// Bytes of a [`Reply`].
pub(super) const REPLY_BYTES: usize = 16 + 4 * MAX_RANKS + TEXT_BYTES;

/// Who a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) world_size: u32,
    pub(super) rank: u32,
    pub(super) pid: u32,
    /// Inode of the process's pid namespace: numbers of processes compare within one only.
    pub(super) pid_namespace: u64,
    pub(super) timeout: Duration,
}

/// Why a hello was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strange {
    /// It is not from this library.
    Magic,
    /// It is from another version.
    Version,
    /// It is from somebody who does not have the unique id.
    Secret,
}

impl Hello {
    pub(super) fn encode(&self, secret: &[u8]) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..PROOF_BYTES].copy_from_slice(&proof(secret));
        let words = [self.world_size, self.rank, self.pid].map(u32::to_le_bytes);
        bytes[PROOF_BYTES..PROOF_BYTES + 12].copy_from_slice(words.as_flattened());
        let longs = [self.pid_namespace, self.timeout.as_millis() as u64].map(u64::to_le_bytes);
        bytes[PROOF_BYTES + 12..].copy_from_slice(longs.as_flattened());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HELLO_BYTES], secret: &[u8]) -> Result<Self, Strange> {
        if !alike(&bytes[..PROOF_BYTES], &proof(secret)) {
            // Magic and version are no secrets.
            return Err(if !bytes.starts_with(MAGIC) {
                Strange::Magic
            } else if bytes[8..12] != VERSION.to_le_bytes() {
                Strange::Version
            } else {
                Strange::Secret
            });
        }
        let word = |index: usize| word(bytes, PROOF_BYTES + 4 * index);
        let long = |index| u64::from(word(index)) | u64::from(word(index + 1)) << 32;
        Ok(Self {
            world_size: word(0),
            rank: word(1),
            pid: word(2),
            pid_namespace: long(3),
            timeout: Duration::from_millis(long(5)),
        })
    }

    /// Whether the first bytes can't become a hello.
    pub(super) fn is_hopeless(start: &[u8]) -> bool {
        let length = start.len().min(MAGIC.len());
        start[..length] != MAGIC[..length]
    }
}

fn proof(secret: &[u8]) -> [u8; PROOF_BYTES] {
    let mut bytes = [0; PROOF_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..].copy_from_slice(secret);
    bytes
}

/// Compares in a time that does not tell where the first difference is.
fn alike(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |acc, (a, b)| black_box(acc | (a ^ b)));
    one.len() == other.len() && differing == 0
}

/// What the root answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// No, and asking again does not help.
    Refused(String),
    /// These ranks (bit r for rank r) are there.
    Waiting(u32),
    /// The group is complete: the processes by rank. The sockets come along, by rank.
    Formed([u32; MAX_RANKS]),
}

impl Reply {
    pub(super) fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        match self {
            Reply::Refused(text) => {
                let text = clipped(text, TEXT_BYTES);
                bytes[8] = 1;
                bytes[12..16].copy_from_slice(&(text.len() as u32).to_le_bytes());
                bytes[16..16 + text.len()].copy_from_slice(text.as_bytes());
            }
            Reply::Waiting(ranks) => {
                bytes[8] = 2;
                bytes[12..16].copy_from_slice(&ranks.to_le_bytes());
            }
            Reply::Formed(pids) => {
                bytes[8] = 3;
                bytes[16..16 + 4 * MAX_RANKS].copy_from_slice(pids.map(u32::to_le_bytes).as_flattened());
            }
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; REPLY_BYTES]) -> Option<Self> {
        match bytes[8] {
            _ if !bytes.starts_with(MAGIC) => None,
            1 => {
                let text = bytes[16..].get(..word(bytes, 12) as usize)?;
                Some(Reply::Refused(String::from_utf8_lossy(text).into_owned()))
            }
            2 => Some(Reply::Waiting(word(bytes, 12))),
            3 => Some(Reply::Formed(std::array::from_fn(|rank| word(bytes, 16 + 4 * rank)))),
            _ => None,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// The ranks of a world that `joined` lacks: "2, 5".
pub(super) fn missing(joined: u32, world_size: usize) -> String {
    let ranks: Vec<_> = (0..world_size).filter(|rank| joined & 1 << rank == 0).map(|rank| rank.to_string()).collect();
    ranks.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; SECRET_BYTES] = [7; SECRET_BYTES];

    #[test]
    fn hellos_come_back_and_strangers_are_told_apart() {
        let timeout = Duration::from_millis(5_000_000_000);
        let hello = Hello { world_size: 16, rank: 15, pid: 1 << 22, pid_namespace: u64::MAX - 3, timeout };
        let bytes = hello.encode(&SECRET);
        assert_eq!(Hello::decode(&bytes, &SECRET), Ok(hello));
        for (at, strange) in [(0, Strange::Magic), (8, Strange::Version), (12, Strange::Secret), (27, Strange::Secret)]
        {
            let mut other = bytes;
            other[at] ^= 0x10;
            assert_eq!(Hello::decode(&other, &SECRET), Err(strange));
        }
        assert!(Hello::is_hopeless(b"GET / HTTP"));
        assert!(!Hello::is_hopeless(&bytes[..3]) && !Hello::is_hopeless(&bytes));
    }

    #[test]
    fn replies_come_back() {
        let pids = std::array::from_fn(|rank| rank as u32 * 1000);
        for reply in [Reply::Refused("no: é".into()), Reply::Waiting(0b1011), Reply::Formed(pids)] {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
        let mut bytes = Reply::Refused("x".into()).encode();
        bytes[12..16].fill(0xFF);
        assert_eq!(Reply::decode(&bytes), None, "a text longer than the message");
        let long = Reply::Refused("é".repeat(1000));
        assert!(matches!(Reply::decode(&long.encode()), Some(Reply::Refused(text)) if text.len() == TEXT_BYTES));
        assert_eq!(missing(0b1011, 6), "2, 4, 5");
    }
}
