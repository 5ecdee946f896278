//! Communicators that several threads make at the same time try their lines out one after the other.
//!
//! The trials wait for other ranks, and a device does one thing after the other: two communicators that begin in different
//! orders on two devices would wait for each other. No order that one process chooses by itself is that of the others, so
//! the ranks ask each other: only when a communicator has the devices of all its ranks it begins.

use super::gather_flags;
use crate::config::Config;
use crate::device::{ClaimKey, Device};
use crate::error::{Error, Result};
use crate::mesh::Mesh;
use std::time::{Duration, Instant};

/// Between two times that a communicator asks for its devices.
const PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The devices of all ranks are this communicator's, of those that are being made.
pub(super) struct Claim<'a, D: Device>(&'a D);

impl<'a, D: Device> Claim<'a, D> {
    /// Waits until all ranks have their devices at the same time.
    pub(super) fn of(device: &'a D, mesh: &Mesh, config: &Config, key: ClaimKey) -> Result<Claim<'a, D>> {
        device.await_turn()?;
        let claim = Claim(device);
        if mesh.world_size() == 1 {
            return Ok(claim);
        }
        // What others are made for is bounded by their own deadlines, of which several may have to pass.
        let limit = config.connection_timeout.saturating_mul(3).saturating_add(Duration::from_secs(60));
        // A rank whose turn hasn't come waits for a communicator that may want the same devices: nobody keeps them from that.
        mesh.set_deadline(limit);
        mesh.barrier("turn to be made")?;
        let (began, mut pause) = (Instant::now(), PAUSE);
        loop {
            // Each question is one step; how many there are depends on other communicators.
            mesh.set_deadline(config.connection_timeout);
            let granted = device.claim(key);
            let all = gather_flags(mesh, granted, "claim to the devices")?;
            let Some(without) = all.iter().position(|granted| !granted) else { return Ok(claim) };
            device.step_back();
            if began.elapsed() > limit {
                let what = format!(
                    "rank {} of a communicator waited until rank {without}'s device was free, on which others were being made",
                    mesh.rank()
                );
                return Err(Error::Timeout { after: limit, what });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl<D: Device> Drop for Claim<'_, D> {
    fn drop(&mut self) {
        self.0.release();
    }
}
