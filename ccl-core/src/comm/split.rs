//! Communicators of some of another's ranks.

use super::Communicator;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::mesh::Mesh;
use std::sync::atomic::Ordering;

/// Bytes of what a rank tells the others: which of its splits this is, its colour and its key.
const WISH_BYTES: usize = 20;

/// A rank's part in a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    number: u64,
    color: Option<u32>,
    key: i32,
}

impl<D: Device> Communicator<D> {
    /// The number of a split that is asked for now, for [`Self::split`]: all ranks ask for theirs in the same order, and so
    /// count alike.
    pub fn next_split(&self) -> u64 {
        self.shared.splits.fetch_add(1, Ordering::Relaxed)
    }

    /// Meshes of those ranks that name the same colour, ordered by `key`, then by their rank here; none for a rank that
    /// names no colour. Every rank calls this, between collectives; with the same `number`, or all fail.
    pub fn split(&self, number: u64, color: Option<u32>, key: i32) -> Result<Option<Mesh>> {
        let shared = &*self.shared;
        shared.health.check()?;
        let registrations = shared.registrations.lock();
        let mesh = &registrations.mesh;
        mesh.set_deadline(shared.config.connection_timeout);
        let wishes = mesh.all_gather(&encode(Wish { number, color, key }), "colours of a split")?;
        let wishes: Vec<_> = wishes.iter().map(|bytes| decode(bytes)).collect::<Result<_>>()?;
        check_numbers(&wishes).inspect_err(|_| {
            // All ranks see this, and go on from one count: one that failed before it came here has counted apart.
            let most = wishes.iter().map(|wish| wish.number).max().unwrap_or(0);
            shared.splits.fetch_max(most.saturating_add(1), Ordering::Relaxed);
        })?;
        let part = mesh.part(&members(&wishes, color))?;
        Ok(color.map(|_| part))
    }
}

/// Fails, on all ranks, if they are at different splits: two that run at once on one parent have met crosswise, or one
/// failed on some ranks only.
fn check_numbers(wishes: &[Wish]) -> Result<()> {
    let first = wishes.first().map_or(0, |wish| wish.number);
    match wishes.iter().position(|wish| wish.number != first) {
        None => Ok(()),
        Some(rank) => Err(Error::Mismatch {
            rank,
            what: "the order of its splits".into(),
            detail: format!(
                "its split number {} met number {first} of rank 0: either two were asked for in different orders, or one \
                 failed on some ranks only. None is made; the ranks count alike from here on, and may split again",
                wishes[rank].number
            ),
        }),
    }
}

/// The ranks that wish for `color`, in their new order.
fn members(wishes: &[Wish], color: Option<u32>) -> Vec<usize> {
    let mut members: Vec<usize> =
        (0..wishes.len()).filter(|rank| color.is_some() && wishes[*rank].color == color).collect();
    // Stable: equal keys keep their order.
    members.sort_by_key(|rank| wishes[*rank].key);
    members
}

fn encode(wish: Wish) -> Vec<u8> {
    let color = wish.color.map_or(-1, i64::from);
    [&wish.number.to_le_bytes()[..], &color.to_le_bytes(), &wish.key.to_le_bytes()].concat()
}

fn decode(bytes: &[u8]) -> Result<Wish> {
    let wish = <&[u8; WISH_BYTES]>::try_from(bytes).ok().and_then(|bytes| {
        let (number, rest) = bytes.split_first_chunk()?;
        let (color, key) = rest.split_first_chunk()?;
        let color = u32::try_from(i64::from_le_bytes(*color)).ok();
        Some(Wish { number: u64::from_le_bytes(*number), color, key: i32::from_le_bytes(key.try_into().ok()?) })
    });
    wish.ok_or_else(|| Error::Internal(format!("a colour of {} bytes", bytes.len())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn colours_part_and_keys_order() {
        let wishes = [(Some(1), 5), (Some(0), 0), (Some(1), -3), (None, 0), (Some(1), 5)];
        let wishes = wishes.map(|(color, key)| Wish { number: 3, color, key });
        assert_eq!(members(&wishes, Some(1)), [2, 0, 4]);
        assert_eq!(members(&wishes, Some(0)), [1]);
        assert_eq!(members(&wishes, None), [0; 0]);
        for wish in wishes {
            assert_eq!(decode(&encode(wish)).unwrap(), wish);
        }
        decode(&[0; WISH_BYTES - 1]).unwrap_err();
        decode(&[0; WISH_BYTES + 1]).unwrap_err();
    }

    #[test]
    fn splits_that_meet_crosswise_are_told() {
        let of = |numbers: [u64; 3]| numbers.map(|number| Wish { number, color: Some(0), key: 0 });
        check_numbers(&of([4, 4, 4])).unwrap();
        assert!(matches!(check_numbers(&of([4, 4, 5])), Err(Error::Mismatch { rank: 2, .. })));
        assert!(matches!(check_numbers(&of([5, 4, 4])), Err(Error::Mismatch { rank: 1, .. })));
    }
}
