//! Registered buffers: memory that every rank maps of every other, so that calls can go straight from buffer to buffer.

use super::{Communicator, gather_flags};
use crate::device::{Device, Endpoint, Place};
use crate::error::{Error, Result};
use crate::mesh::{Mesh, Parcel};
use crate::plan::Registered;
use std::os::fd::AsFd;

/// The ranks' way to exchange descriptors while the watch has their first mesh.
pub(super) struct Registrations {
    pub(super) mesh: Mesh,
    /// The number of the next registration: all ranks register in the same order, and so count alike.
    next: u32,
}

impl Registrations {
    pub(super) fn new(mesh: Mesh) -> Registrations {
        Registrations { mesh, next: 0 }
    }
}

impl<D: Device> Communicator<D> {
    /// Makes `bytes` bytes of device memory known to all ranks. Every rank calls this, in the same order, with as many
    /// bytes; all succeed or all fail. Returns the registration's number; nothing where no call could make use of it, which
    /// is so on all ranks or on none.
    pub fn register(&self, memory: &<D::Endpoint as Endpoint>::Memory, bytes: u64) -> Result<Option<u32>> {
        let shared = &*self.shared;
        shared.health.check()?;
        let (info, endpoint) = (&shared.info, &shared.endpoint);
        if info.agreed.n == 1 || info.place == Place::Host || info.agreed.bulk_bytes == 0 {
            return Ok(None);
        }
        let mut registrations = shared.registrations.lock();
        let Registrations { mesh, next } = &mut *registrations;
        mesh.set_deadline(shared.config.timeout);
        *next += 1;
        let number = *next;
        let exported = endpoint.export_memory(memory);
        let able = gather_flags(mesh, exported.is_ok(), "registration")?;
        let (details, descriptor) = exported?;
        everywhere(&able, "export")?;
        let sizes = mesh.all_gather(&bytes.to_le_bytes(), "size of a registered buffer")?;
        if let Some(rank) = sizes.iter().position(|size| *size != bytes.to_le_bytes()) {
            let theirs = sizes[rank].as_slice().try_into().map_or(0, u64::from_le_bytes);
            let what = "registered buffer".into();
            // Whoever is in the minority is told so by the others.
            return Err(Error::Mismatch { rank, what, detail: format!("{theirs} bytes there, {bytes} here") });
        }
        let parcels = vec![Parcel { bytes: &details, fds: vec![descriptor.as_fd()] }; info.agreed.n];
        let deliveries = mesh.exchange_fds(&parcels, "registered buffer")?;
        let others = deliveries.into_iter().map(|delivery| {
            let descriptor = delivery.fds.into_iter().next()?;
            Some((delivery.bytes, descriptor))
        });
        let mapped = endpoint.register(number, shared.rank, memory, bytes, others.collect());
        let able = gather_flags(mesh, mapped.is_ok(), "registration");
        let everywhere = able.and_then(|able| {
            mapped?;
            everywhere(&able, "map")
        });
        if everywhere.is_err() {
            endpoint.deregister(number);
        }
        everywhere.map(|()| Some(number))
    }

    /// Lets go of a registration, on this rank alone. Its calls have finished here.
    pub fn deregister(&self, number: u32) {
        let of_it =
            |registered: &Registered| [registered.send, registered.recv].map(|r| r.registration).contains(&number);
        // What was made ready for its calls names memory that goes with it; nor may a call be made meanwhile.
        let mut issue = self.shared.issue.lock();
        issue.plans.retain(|request| !request.registered.as_ref().is_some_and(of_it));
        self.shared.endpoint.deregister(number);
    }
}

fn everywhere(able: &[bool], what: &str) -> Result<()> {
    match able.iter().position(|&able| !able) {
        None => Ok(()),
        Some(rank) => Err(Error::Internal(format!("rank {rank} could not {what} a buffer that is to be registered"))),
    }
}
