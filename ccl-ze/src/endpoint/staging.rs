//! Staging memory: the own, and the other ranks' as it is mapped here.

use crate::memory::{Exported, Imported, SharedHost};
use std::ffi::c_void;
use std::os::fd::OwnedFd;

/// The own staging memory.
pub(super) enum Staging {
    Device(Exported),
    Host(SharedHost, OwnedFd),
}

impl Staging {
    pub(super) fn address(&self) -> *mut c_void {
        match self {
            Staging::Device(exported) => exported.memory.address,
            Staging::Host(shared, _) => shared.address(),
        }
    }
}

/// Another rank's staging memory, mapped here.
pub(super) enum Peer {
    Device(Imported),
    Host(SharedHost),
}

impl Peer {
    pub(super) fn address(&self) -> *mut c_void {
        match self {
            Peer::Device(imported) => imported.address,
            Peer::Host(shared) => shared.address(),
        }
    }
}
