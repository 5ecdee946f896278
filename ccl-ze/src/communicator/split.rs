//! Communicators of some of another's ranks.

use super::{Builder, Communicator};
use crate::line;
use ccl_core::Result;

impl Communicator {
    /// A builder with this communicator's configuration and device, for [`Self::split`].
    pub fn again(&self) -> Builder {
        Self::builder_with(self.config.clone()).device(self.gpu.index())
    }

    /// The communicator of those ranks that name the same colour, ordered by `key`, then by their rank here; none for a
    /// rank that names no colour. Every rank calls this, between collectives, and builds alike.
    pub fn split(&self, color: Option<u32>, key: i32, builder: Builder) -> Result<Option<Communicator>> {
        self.split_as(self.next_split(), color, key, builder)
    }

    /// The number of a split that is asked for now and made later, by [`Self::split_as`].
    pub fn next_split(&self) -> u64 {
        self.core.next_split()
    }

    /// [`Self::split`] where several may be under way, on threads of their own: ranks whose numbers differ fail. If `builder`
    /// has a place in line, its turn is awaited.
    pub fn split_as(
        &self,
        number: u64,
        color: Option<u32>,
        key: i32,
        builder: Builder,
    ) -> Result<Option<Communicator>> {
        if let Some(place) = &builder.place {
            place.on_device(self.gpu.index());
            place.await_turn(line::patience(&builder.config))?;
        }
        self.core.split(number, color, key)?.map(|mesh| builder.init_local(mesh)).transpose()
    }
}
