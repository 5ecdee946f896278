//! Communicators of some of another's ranks.

use super::Communicator;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::mesh::Mesh;

impl<D: Device> Communicator<D> {
    /// Meshes of those ranks that name the same colour, ordered by `key`, then by their rank here; none for a rank that
    /// names no colour. Every rank calls this, between collectives.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Mesh>> {
        let shared = &*self.shared;
        shared.health.check()?;
        let registrations = shared.registrations.lock();
        let mesh = &registrations.mesh;
        mesh.set_deadline(shared.config.connection_timeout);
        let wishes = mesh.all_gather(&encode(color, key), "colours of a split")?;
        let wishes: Vec<_> = wishes.iter().map(|bytes| decode(bytes)).collect::<Result<_>>()?;
        let part = mesh.part(&members(&wishes, color))?;
        Ok(color.map(|_| part))
    }
}

/// The ranks that wish for `color`, in their new order.
fn members(wishes: &[(Option<u32>, i32)], color: Option<u32>) -> Vec<usize> {
    let mut members: Vec<usize> =
        (0..wishes.len()).filter(|rank| color.is_some() && wishes[*rank].0 == color).collect();
    // Stable: equal keys keep their order.
    members.sort_by_key(|rank| wishes[*rank].1);
    members
}

fn encode(color: Option<u32>, key: i32) -> Vec<u8> {
    let color = color.map_or(-1, i64::from);
    [&color.to_le_bytes()[..], &key.to_le_bytes()].concat()
}

fn decode(bytes: &[u8]) -> Result<(Option<u32>, i32)> {
    let wish = bytes.split_first_chunk().and_then(|(color, key)| {
        Some((u32::try_from(i64::from_le_bytes(*color)).ok(), i32::from_le_bytes(key.try_into().ok()?)))
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
        assert_eq!(members(&wishes, Some(1)), [2, 0, 4]);
        assert_eq!(members(&wishes, Some(0)), [1]);
        assert_eq!(members(&wishes, None), [0; 0]);
        for (color, key) in wishes {
            assert_eq!(decode(&encode(color, key)).unwrap(), (color, key));
        }
        decode(&[0; 11]).unwrap_err();
    }
}
