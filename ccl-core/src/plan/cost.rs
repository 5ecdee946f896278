//! The closed form: what a call would take on a described box. **Predictions**, not measurements: they rank algorithms
//! where there is nothing to measure on (docs/performance.md).
//!
//! Time is launch, hops, and the bytes over the slower of link and local memory. Hops of different rounds don't overlap: a
//! line's next round begins after its last. All links run in both directions at once. [`super::fabric::simulate`] executes
//! the plans' steps instead; the selection tables are held to that.

use super::fabric::Fabric;
use super::select::Pick;
use crate::protocol::{LineForm, TILE_BLOCKS};
use crate::topology::Slots;

/// Data bytes of a tile, whatever its form.
const TILE_DATA: f64 = (TILE_BLOCKS * 256) as f64;

impl Fabric {
    /// GB/s that leave a device that stores into `peers` others at once.
    fn rate(&self, peers: f64) -> f64 {
        let port = if peers > 1.0 { self.port_gbps * self.incast } else { self.port_gbps };
        port.min(self.pair_gbps * peers)
    }

    /// Predicted microseconds of an all-reduce of `bytes` by `pick` on `n` ranks, on lines of `form`, with slots of
    /// `slot_tiles` (ring) and `push_tiles`.
    pub fn predict_us(
        &self,
        pick: Pick,
        n: usize,
        bytes: u64,
        form: LineForm,
        slot_tiles: u32,
        push_tiles: u32,
    ) -> f64 {
        let (ranks, size) = (n as f64, bytes as f64);
        let efficiency = form.payload_words() as f64 * 4.0 / form.granule() as f64;
        // Data that a rank sends, peers that it sends to at once, hops of a round, data of a round's slot.
        let share = size / ranks;
        let (sent, peers, hops, rounds) = match pick {
            Pick::Ring => {
                (2.0 * (ranks - 1.0) * share, 1.0, 2.0 * (ranks - 1.0), share / (f64::from(slot_tiles) * TILE_DATA))
            }
            Pick::Mesh => (2.0 * (ranks - 1.0) * share, ranks - 1.0, 2.0, share / (f64::from(push_tiles) * TILE_DATA)),
            Pick::OneShot => ((ranks - 1.0) * size, ranks - 1.0, 1.0, size / (f64::from(push_tiles) * TILE_DATA)),
        };
        let wire = sent / efficiency;
        // What arrives is written and read, the input read, the output written.
        let local = (2.0 * wire + 2.0 * size) / self.local_gbps;
        let units = f64::from(self.compute_units) * self.unit_gbps;
        let link = wire / self.rate(peers).min(units);
        self.launch_us + rounds.ceil().max(1.0) * hops * self.hop_us + link.max(local) * 1e-3
    }

    /// The pick that is predicted to be the fastest with the default slots.
    pub fn best(&self, n: usize, bytes: u64, form: LineForm) -> (Pick, f64) {
        let time = |pick| (pick, self.predict_default_us(pick, n, bytes, form));
        let faster = |a: (Pick, f64), b: (Pick, f64)| if b.1 < a.1 { b } else { a };
        Pick::ALL.into_iter().map(time).reduce(faster).unwrap_or((Pick::Ring, f64::INFINITY))
    }

    /// [`Self::predict_us`] with the default slots.
    pub fn predict_default_us(&self, pick: Pick, n: usize, bytes: u64, form: LineForm) -> f64 {
        let config = crate::config::Config::default();
        self.predict_us(pick, n, bytes, form, config.staging_tiles, Slots::USUAL.push_tiles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_behave() {
        for fabric in Fabric::ALL {
            for n in [2, 4, 8] {
                for pick in Pick::ALL {
                    let time = |bytes, form| fabric.predict_default_us(pick, n, bytes, form);
                    assert!(
                        time(8, LineForm::L8) > fabric.launch_us && time(8, LineForm::L8) < fabric.launch_us + 25.0
                    );
                    for shift in 3..28 {
                        assert!(time(2 << shift, LineForm::L8) >= time(1 << shift, LineForm::L8));
                        assert!(time(1 << shift, LineForm::L64) <= time(1 << shift, LineForm::L8));
                    }
                    // No faster than the bytes that have to leave a device.
                    let large = 1u64 << 28;
                    let least = 2.0 * (n as f64 - 1.0) / n as f64 * large as f64 / fabric.port_gbps * 1e-3;
                    assert!(time(large, LineForm::L64) >= least);
                }
            }
            assert_eq!(fabric.best(8, 8, LineForm::L8).0, Pick::OneShot);
        }
    }
}
