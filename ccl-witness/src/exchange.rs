//! What the comparers of a communicator's ranks tell each other: a header that says which call, and the bytes that each judge
//! needs of it.

use ccl_core::mesh::{MAX_MESSAGE_BYTES, Mesh, Parcel};
use ccl_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Room for a header in the first message.
const HEADER_ROOM: usize = 64 << 10;
/// Bytes of a call that go with its header.
const FIRST: usize = MAX_MESSAGE_BYTES - HEADER_ROOM;
/// Headers name no more of what a rank says in words.
const MOST_WORDS: usize = 4096;

/// What a rank has next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Its number on the communicator.
    pub(crate) number: u64,
    /// The call in words: alike on all ranks.
    pub(crate) what: String,
    /// Why this rank can't compare it.
    pub(crate) unfit: Option<String>,
    /// The factor of a pre-multiplied sum: its datatype's number and its bits.
    pub(crate) factor: Option<(u32, u64)>,
    /// The part of the time that the witness took of this rank.
    pub(crate) taken: f64,
    /// How many results this rank convicted of the call that was compared before.
    pub(crate) wrong_before: u64,
    /// The most bytes that this rank has for another.
    longest: usize,
}

impl Header {
    pub(crate) fn new(number: u64, what: String) -> Header {
        Header { number, what, unfit: None, factor: None, taken: 0.0, wrong_before: 0, longest: 0 }
    }
}

/// The other ranks' headers, and what has come of their bytes.
pub(crate) struct Met {
    pub(crate) headers: Vec<Header>,
    data: Vec<Vec<u8>>,
}

fn framed(header: &Header, data: &[u8]) -> Result<Vec<u8>> {
    let text = serde_json::to_vec(header).map_err(|error| Error::Internal(format!("a header: {error}")))?;
    Ok([&(text.len() as u32).to_le_bytes(), &*text, &data[..data.len().min(FIRST)]].concat())
}

fn parted(rank: usize, message: &[u8]) -> Result<(Header, Vec<u8>)> {
    let strange = || Error::Internal(format!("rank {rank}'s witness speaks another language"));
    let (length, rest) = message.split_first_chunk().ok_or_else(strange)?;
    let (text, data) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(strange)?;
    Ok((serde_json::from_slice(text).map_err(|_| strange())?, data.to_vec()))
}

/// Tells all ranks what this one has next, and each what it needs of it, as far as that fits.
pub(crate) fn meet(mesh: &Mesh, mut own: Header, data: &[Vec<u8>], limit: Duration) -> Result<Met> {
    own.longest = data.iter().map(Vec::len).max().unwrap_or(0);
    for words in [Some(&mut own.what), own.unfit.as_mut()].into_iter().flatten() {
        if words.len() > MOST_WORDS {
            *words = words.chars().take(MOST_WORDS / 4).collect();
        }
    }
    let messages: Vec<Vec<u8>> = data.iter().map(|data| framed(&own, data)).collect::<Result<_>>()?;
    let parcels: Vec<_> = messages.iter().map(|bytes| Parcel { bytes, fds: Vec::new() }).collect();
    mesh.set_deadline(limit);
    let deliveries = mesh.exchange_fds(&parcels, "a call's header")?;
    let (mut headers, mut came) = (Vec::with_capacity(data.len()), Vec::with_capacity(data.len()));
    for (rank, delivery) in deliveries.into_iter().enumerate() {
        if rank == mesh.rank() {
            headers.push(own.clone());
            came.push(data[rank].clone());
        } else {
            let (header, data) = parted(rank, &delivery.bytes)?;
            headers.push(header);
            came.push(data);
        }
    }
    Ok(Met { headers, data: came })
}

impl Met {
    /// The rest of what did not fit; all ranks call this, or none. What each rank gave to this one.
    pub(crate) fn rest(mut self, mesh: &Mesh, data: &[Vec<u8>], limit: Duration) -> Result<Vec<Vec<u8>>> {
        let longest = self.headers.iter().map(|header| header.longest).max().unwrap_or(0);
        let mut at = FIRST;
        while at < longest {
            let part = |data: &Vec<u8>| data.get(at..data.len().min(at + MAX_MESSAGE_BYTES)).map(<[u8]>::to_vec);
            let parts: Vec<_> = data.iter().map(|data| part(data).unwrap_or_default()).collect();
            let parcels: Vec<_> = parts.iter().map(|bytes| Parcel { bytes, fds: Vec::new() }).collect();
            mesh.set_deadline(limit);
            for (rank, delivery) in mesh.exchange_fds(&parcels, "a call's data")?.into_iter().enumerate() {
                if rank != mesh.rank() {
                    self.data[rank].extend(delivery.bytes);
                }
            }
            at += MAX_MESSAGE_BYTES;
        }
        Ok(self.data)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn long_and_unequal_data_come_whole() {
        let lengths = [[0, 3 << 20, 17], [FIRST + 1, 5, 0], [1, FIRST, 2 * MAX_MESSAGE_BYTES + FIRST]];
        let byte = |from: usize, to: usize, i: usize| (from * 7 + to * 31 + i * 13 + i / 251) as u8;
        let meshes = ccl_core::bootstrap::local(3).unwrap();
        std::thread::scope(|scope| {
            for mesh in meshes {
                scope.spawn(move || {
                    let rank = mesh.rank();
                    let data: Vec<Vec<u8>> =
                        (0..3).map(|to| (0..lengths[rank][to]).map(|i| byte(rank, to, i)).collect()).collect();
                    let limit = Duration::from_secs(60);
                    let met = meet(&mesh, Header::new(rank as u64, "a call".into()), &data, limit).unwrap();
                    assert_eq!(met.headers.iter().map(|header| header.number).collect::<Vec<_>>(), [0, 1, 2]);
                    let came = met.rest(&mesh, &data, limit).unwrap();
                    for (from, came) in came.iter().enumerate() {
                        assert_eq!(came.len(), lengths[from][rank]);
                        assert!(came.iter().enumerate().all(|(i, got)| *got == byte(from, rank, i)));
                    }
                });
            }
        });
    }
}
