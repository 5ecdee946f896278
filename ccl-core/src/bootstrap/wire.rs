//! What joiner and root say to each other. Both messages have one fixed size: no length comes in from outside.

use std::hint::black_box;
use std::time::Duration;

use super::id::SECRET_BYTES;
use crate::mesh::sys::clipped;
use crate::protocol::MAX_RANKS;

const MAGIC: &[u8; 8] = b"CCLXJOIN";
/// Of the rendezvous.
pub(super) const VERSION: u32 = 2;
/// Bytes of magic, version and secret, which lie there in every version.
const PROOF_BYTES: usize = 12 + SECRET_BYTES;
const TEXT_BYTES: usize = 400;
const AT_TEXT: usize = PROOF_BYTES + 32;
/// Bytes of a [`Hello`].
pub(super) const HELLO_BYTES: usize = AT_TEXT + TEXT_BYTES;
/// Bytes of a [`Reply`].
pub(super) const REPLY_BYTES: usize = AT_REPLY_TEXT + TEXT_BYTES;
const AT_REPLY_TEXT: usize = 16 + 4 * MAX_RANKS;
/// What a rank says that stops waiting since its own time is over. One that dies says nothing.
pub(super) const WITHDRAWAL: [u8; 1] = [b'W'];

/// Who a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) world_size: u32,
    pub(super) rank: u32,
    pub(super) pid: u32,
    /// Inode of the process's pid namespace: numbers of processes compare within one only.
    pub(super) pid_namespace: u64,
    pub(super) timeout: Duration,
    /// Why it doesn't join, of one that only comes to say so.
    pub(super) declines: Option<String>,
}

/// Why a hello was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strange {
    /// It is not from this library.
    Magic,
    /// It is from a rank of this group, but of this version of the rendezvous.
    Version(u32),
    /// It is from somebody who does not have the unique id.
    Secret,
}

impl Hello {
    pub(super) fn encode(&self, secret: &[u8]) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..PROOF_BYTES].copy_from_slice(secret);
        // A reason is never empty.
        let text = self.declines.as_deref().map_or("", |reason| clipped(reason, TEXT_BYTES));
        let words = [self.world_size, self.rank, self.pid, text.len() as u32].map(u32::to_le_bytes);
        bytes[PROOF_BYTES..PROOF_BYTES + 16].copy_from_slice(words.as_flattened());
        let longs = [self.pid_namespace, self.timeout.as_millis() as u64].map(u64::to_le_bytes);
        bytes[PROOF_BYTES + 16..AT_TEXT].copy_from_slice(longs.as_flattened());
        bytes[AT_TEXT..AT_TEXT + text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// A hello that [`Strange::of`] has nothing against.
    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> Self {
        let word = |index: usize| word(bytes, PROOF_BYTES + 4 * index);
        let long = |index| u64::from(word(index)) | u64::from(word(index + 1)) << 32;
        let text = &bytes[AT_TEXT..AT_TEXT + (word(3) as usize).min(TEXT_BYTES)];
        Self {
            world_size: word(0),
            rank: word(1),
            pid: word(2),
            pid_namespace: long(4),
            timeout: Duration::from_millis(long(6)),
            declines: (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned()),
        }
    }
}

impl Strange {
    /// What the first bytes of a hello show, as early as they do: another version's hello may be of another length.
    pub(super) fn of(start: &[u8], secret: &[u8]) -> Option<Strange> {
        let length = start.len().min(MAGIC.len());
        if start[..length] != MAGIC[..length] {
            return Some(Strange::Magic);
        }
        let shown = start.get(12..PROOF_BYTES)?;
        let version = word(start, 8);
        match (alike(shown, secret), version) {
            (false, _) => Some(Strange::Secret),
            (true, VERSION) => None,
            (true, other) => Some(Strange::Version(other)),
        }
    }
}

/// Compares in a time that does not tell where the first difference is.
fn alike(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |acc, (a, b)| black_box(acc | (a ^ b)));
    one.len() == other.len() && differing == 0
}

/// Where the ranks are, each a bit (bit r for rank r).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seats {
    /// They wait.
    pub(super) waiting: u32,
    /// They have waited until their own time was over.
    pub(super) withdrawn: u32,
    /// They were there and went without a word.
    pub(super) ended: u32,
}

impl Seats {
    /// What a rank of `world_size` says that waits in vain.
    pub(super) fn tell(&self, world_size: usize) -> String {
        let ranks = |chosen: u32| {
            let chosen = (0..world_size).filter(|rank| chosen & 1 << rank != 0);
            chosen.map(|rank| rank.to_string()).collect::<Vec<_>>().join(", ")
        };
        let joined = self.waiting | self.withdrawn | self.ended;
        let mut text = format!("{} of {world_size} ranks joined", joined.count_ones());
        for (chosen, what) in [
            (!joined, "missing"),
            (self.ended, "ended while they waited"),
            (self.withdrawn, "gave up before, since their own time was over"),
        ] {
            let named = ranks(chosen);
            if !named.is_empty() {
                text += &format!("; {what}: {named}");
            }
        }
        text
    }
}

/// What the root answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// No, and asking again does not help.
    Refused(String),
    /// The group can't form, since this was refused to another.
    Hopeless(String),
    /// The group can't form, since this rank gives up.
    Gone(usize, String),
    /// The group can't form, since the system refused this to the root.
    Failed(String),
    /// Not yet.
    Waiting(Seats),
    /// The group is complete: the processes by rank. The sockets come along, by rank.
    Formed([u32; MAX_RANKS]),
}

impl Reply {
    pub(super) fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        let mut put = |kind, words: &[u32], text: &str| {
            bytes[8] = kind;
            bytes[16..16 + 4 * words.len()]
                .copy_from_slice(words.iter().map(|w| w.to_le_bytes()).collect::<Vec<_>>().as_flattened());
            let text = clipped(text, TEXT_BYTES);
            bytes[12..16].copy_from_slice(&(text.len() as u32).to_le_bytes());
            bytes[AT_REPLY_TEXT..AT_REPLY_TEXT + text.len()].copy_from_slice(text.as_bytes());
        };
        match self {
            Reply::Refused(text) => put(1, &[], text),
            Reply::Waiting(seats) => put(2, &[seats.waiting, seats.withdrawn, seats.ended], ""),
            Reply::Formed(pids) => put(3, pids, ""),
            Reply::Hopeless(text) => put(4, &[], text),
            Reply::Gone(rank, text) => put(5, &[*rank as u32], text),
            Reply::Failed(text) => put(6, &[], text),
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; REPLY_BYTES]) -> Option<Self> {
        if !bytes.starts_with(MAGIC) {
            return None;
        }
        let text = bytes[AT_REPLY_TEXT..].get(..word(bytes, 12) as usize)?;
        let text = String::from_utf8_lossy(text).into_owned();
        let number = |index: usize| word(bytes, 16 + 4 * index);
        match bytes[8] {
            1 => Some(Reply::Refused(text)),
            2 => Some(Reply::Waiting(Seats { waiting: number(0), withdrawn: number(1), ended: number(2) })),
            3 => Some(Reply::Formed(std::array::from_fn(number))),
            4 => Some(Reply::Hopeless(text)),
            5 => Some(Reply::Gone(number(0) as usize, text)),
            6 => Some(Reply::Failed(text)),
            _ => None,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; SECRET_BYTES] = [7; SECRET_BYTES];

    #[test]
    fn hellos_come_back_and_strangers_are_told_apart() {
        let timeout = Duration::from_millis(5_000_000_000);
        let pid_namespace = u64::MAX - 3;
        let mut hello = Hello { world_size: 16, rank: 15, pid: 1 << 22, pid_namespace, timeout, declines: None };
        for declines in [None, Some("no device".to_owned())] {
            hello.declines = declines;
            let bytes = hello.encode(&SECRET);
            assert_eq!(Strange::of(&bytes, &SECRET), None);
            assert_eq!(Hello::decode(&bytes), hello);
        }
        let bytes = hello.encode(&SECRET);
        let version = Strange::Version(VERSION ^ 0x10);
        for (at, strange) in [(0, Strange::Magic), (8, version), (12, Strange::Secret), (27, Strange::Secret)] {
            let mut other = bytes;
            other[at] ^= 0x10;
            assert_eq!(Strange::of(&other, &SECRET), Some(strange));
            assert_eq!(Strange::of(&other[..PROOF_BYTES], &SECRET), Some(strange), "a shorter hello");
        }
        let mut both = bytes;
        both[8] ^= 0x10;
        both[12] ^= 0x10;
        assert_eq!(Strange::of(&both, &SECRET), Some(Strange::Secret), "a stranger of another version");
        assert_eq!(Strange::of(b"GET / HTTP", &SECRET), Some(Strange::Magic));
        assert_eq!((Strange::of(&bytes[..3], &SECRET), Strange::of(&[], &SECRET)), (None, None));
        hello.declines = Some("é".repeat(1000));
        assert!(matches!(Hello::decode(&hello.encode(&SECRET)).declines, Some(text) if text.len() == TEXT_BYTES));
    }

    #[test]
    fn replies_come_back() {
        let pids = std::array::from_fn(|rank| rank as u32 * 1000);
        let seats = Seats { waiting: 0b1000, withdrawn: 0b11, ended: 0b10_0000 };
        let told = [Reply::Refused, Reply::Hopeless, Reply::Failed, |text| Reply::Gone(13, text)];
        let told = told.map(|reply: fn(String) -> Reply| reply("no: é".into()));
        for reply in told.into_iter().chain([Reply::Waiting(seats), Reply::Formed(pids)]) {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
        let mut bytes = Reply::Refused("x".into()).encode();
        bytes[12..16].fill(0xFF);
        assert_eq!(Reply::decode(&bytes), None, "a text longer than the message");
        let long = Reply::Refused("é".repeat(1000));
        assert!(matches!(Reply::decode(&long.encode()), Some(Reply::Refused(text)) if text.len() == TEXT_BYTES));
    }

    #[test]
    fn who_waits_in_vain_says_where_the_others_are() {
        let seats = Seats { waiting: 0b1000, withdrawn: 0b11, ended: 0b10_0000 };
        assert_eq!(
            seats.tell(6),
            "4 of 6 ranks joined; missing: 2, 4; ended while they waited: 5; gave up before, since their own time was \
             over: 0, 1"
        );
        assert_eq!(Seats { waiting: 0b1011, ..Default::default() }.tell(6), "3 of 6 ranks joined; missing: 2, 4, 5");
    }
}
