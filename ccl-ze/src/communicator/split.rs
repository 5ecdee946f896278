//! Communicators of some of another's ranks.

use super::{Builder, Communicator};
use ccl_core::Result;

impl Communicator {
    /// A builder with this communicator's configuration and device, for [`Self::split`].
    pub fn again(&self) -> Builder {
        Self::builder_with(self.config.clone()).device(self.gpu.index())
    }

    /// The communicator of those ranks that name the same colour, ordered by `key`, then by their rank here; none for a
    /// rank that names no colour. Every rank calls this, between collectives, and builds alike.
    pub fn split(&self, color: Option<u32>, key: i32, builder: Builder) -> Result<Option<Communicator>> {
        self.core.split(color, key)?.map(|mesh| builder.init_local(mesh)).transpose()
    }
}
