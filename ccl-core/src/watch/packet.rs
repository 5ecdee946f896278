//! What watches say to each other: one packet per message, of bounded size.

use std::time::Duration;

use crate::Error;
use crate::mesh::sys::clipped;
use crate::protocol::Shape;

const MAGIC: &[u8; 4] = b"CCLW";
const TEXT_BYTES: usize = 1024;
/// Bytes of the largest packet.
pub(super) const PACKET_BYTES: usize = 64 + 2 * (2 + TEXT_BYTES);

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// Comes with a descriptor of the sender's process.
    Attach,
    /// How far are you?
    Ask {
        /// Comes back with the answer.
        nonce: u64,
    },
    /// This far.
    Answer {
        /// That of the question.
        nonce: u64,
        /// Collectives entered.
        entered: u64,
        /// Collectives finished.
        done: u64,
        /// The latest collective whose arguments the sender's device told, by its number (0 if none).
        shape: (u64, Shape),
        /// The collective of another communicator that the sender's device is in, or nothing.
        elsewhere: String,
    },
    /// The sender's communicator failed, because of this.
    Abort(Error),
    /// The sender leaves in good order.
    Goodbye,
}

impl Packet {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        match self {
            Packet::Attach => out.push(1),
            Packet::Ask { nonce } => {
                out.push(2);
                out.extend(nonce.to_le_bytes());
            }
            Packet::Answer { nonce, entered, done, shape: (call, shape), elsewhere } => {
                out.push(3);
                let words = u64::from(shape.kind) << 32 | u64::from(shape.fingerprint);
                let numbers = [*nonce, *entered, *done, *call, shape.count, words];
                out.extend(numbers.into_iter().flat_map(|value| value.to_le_bytes()));
                text(&mut out, elsewhere);
            }
            Packet::Abort(error) => {
                out.push(4);
                let (kind, number, first, second) = flat(error);
                out.push(kind);
                out.extend(number.to_le_bytes());
                text(&mut out, &first);
                text(&mut out, &second);
            }
            Packet::Goodbye => out.push(5),
        }
        out
    }

    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let mut reader = Reader(packet.strip_prefix(MAGIC)?);
        Some(match reader.byte()? {
            1 => Packet::Attach,
            2 => Packet::Ask { nonce: reader.number()? },
            3 => Packet::Answer {
                nonce: reader.number()?,
                entered: reader.number()?,
                done: reader.number()?,
                shape: {
                    let (call, count, words) = (reader.number()?, reader.number()?, reader.number()?);
                    (call, Shape { count, kind: (words >> 32) as u32, fingerprint: words as u32 })
                },
                elsewhere: reader.text()?,
            },
            4 => {
                let (kind, number) = (reader.byte()?, reader.number()?);
                Packet::Abort(unflat(kind, number, reader.text()?, reader.text()?)?)
            }
            5 => Packet::Goodbye,
            _ => return None,
        })
        .filter(|_| reader.0.is_empty())
    }
}

/// An error as numbers and texts.
fn flat(error: &Error) -> (u8, u64, String, String) {
    let none = String::new;
    match error {
        Error::PeerLost { rank, detail, during } => (1, *rank as u64, detail.clone(), during.clone()),
        Error::Timeout { after, what } => (2, after.as_millis() as u64, what.clone(), none()),
        Error::Device { call, detail } => (3, 0, call.clone(), detail.clone()),
        Error::System { what, detail } => (4, 0, what.clone(), detail.clone()),
        Error::InvalidUsage(what) => (5, 0, what.clone(), none()),
        Error::Aborted(why) => (6, 0, why.clone(), none()),
        other => (7, 0, other.to_string(), none()),
    }
}

fn unflat(kind: u8, number: u64, first: String, second: String) -> Option<Error> {
    Some(match kind {
        1 => Error::PeerLost { rank: number as usize, detail: first, during: second },
        2 => Error::Timeout { after: Duration::from_millis(number), what: first },
        3 => Error::Device { call: first, detail: second },
        4 => Error::System { what: first, detail: second },
        5 => Error::InvalidUsage(first),
        6 | 7 => Error::Aborted(first),
        _ => return None,
    })
}

fn text(out: &mut Vec<u8>, text: &str) {
    let text = clipped(text, TEXT_BYTES);
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?) as usize;
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Packet> {
        vec![
            Packet::Attach,
            Packet::Ask { nonce: 5 },
            Packet::Answer {
                nonce: 5,
                entered: 7,
                done: 6,
                shape: (7, Shape::new(9, 9, 1, 2, 3)),
                elsewhere: "z".into(),
            },
            Packet::Goodbye,
            Packet::Abort(Error::PeerLost { rank: 3, detail: "a".into(), during: " during b".into() }),
            Packet::Abort(Error::Timeout { after: Duration::from_secs(60), what: "w".into() }),
            Packet::Abort(Error::Device { call: "c".into(), detail: "d".into() }),
            Packet::Abort(Error::Aborted("x".into())),
        ]
    }

    #[test]
    fn packets_come_back() {
        for packet in samples() {
            let bytes = packet.encode();
            assert!(bytes.len() <= PACKET_BYTES);
            assert_eq!(Packet::decode(&bytes), Some(packet));
        }
        let long = Packet::Abort(Error::PeerLost { rank: 1, detail: "é".repeat(2000), during: "x".repeat(2000) });
        assert!(long.encode().len() <= PACKET_BYTES && Packet::decode(&long.encode()).is_some());
    }

    #[test]
    fn cut_or_longer_packets_are_refused() {
        for packet in samples() {
            let mut bytes = packet.encode();
            for length in 0..bytes.len() {
                assert_eq!(Packet::decode(&bytes[..length]), None, "{packet:?} cut to {length}");
            }
            bytes.push(0);
            assert_eq!(Packet::decode(&bytes), None);
        }
    }
}
