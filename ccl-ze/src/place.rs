//! A call's place in the device's chain while the host waits for the call before it: others stay behind it, though the
//! chain isn't locked meanwhile. So whoever aborts or ends a communicator never waits for what another one waits for.

use crate::chain::Chain;
use crate::event::{EventSlot, SLICE};
use crate::gpu::Gpu;
use crate::hooks;
use ccl_core::{Error, Result};
use parking_lot::{Condvar, MutexGuard};
use std::sync::Arc;

impl Gpu {
    /// The chain, for a call that is issued next: behind calls that came before and still wait for their turn. An error once
    /// `failed` says that the call's communicator has failed.
    #[inline]
    pub(crate) fn place(&self, failed: &dyn Fn() -> bool) -> Result<MutexGuard<'_, Chain>> {
        let chain = self.chain.lock();
        if chain.is_taken { self.place_behind(chain, failed) } else { Ok(chain) }
    }

    #[cold]
    fn place_behind<'a>(
        &self,
        mut chain: MutexGuard<'a, Chain>,
        failed: &dyn Fn() -> bool,
    ) -> Result<MutexGuard<'a, Chain>> {
        while chain.is_taken {
            self.places.wait_for(&mut chain, SLICE);
            if failed() {
                return Err(given_up());
            }
        }
        Ok(chain)
    }

    /// What a collective on a command list must wait for: see [`Chain::predecessor`]. A list can't wait for a SYCL queue's
    /// event: that is waited for here.
    #[inline]
    pub(crate) fn predecessor_of_list(
        &self,
        chain: &mut MutexGuard<'_, Chain>,
        stream: Option<u64>,
        failed: &dyn Fn() -> bool,
    ) -> Result<Option<Arc<EventSlot>>> {
        match chain.predecessor(stream, &self.finished) {
            Some(event) if event.on_queue().is_some() || hooks::host_waits() => {
                self.settle_in_place(chain, &event, failed).map(|()| None)
            }
            other => Ok(other),
        }
    }

    /// Waits for the collective that was issued last, for a call that is to come behind it. As long as this lasts none
    /// comes between; the chain is not locked. An error, and the place is the next one's, if that doesn't end or as soon as
    /// `failed` says that the call's communicator has failed.
    #[cold]
    pub(crate) fn settle_in_place(
        &self,
        chain: &mut MutexGuard<'_, Chain>,
        last: &Arc<EventSlot>,
        failed: &dyn Fn() -> bool,
    ) -> Result<()> {
        chain.is_taken = true;
        let place = Place { chain, places: &self.places };
        // Holding `last` also keeps calls from going on with its slot: they look whether anybody else has it.
        if MutexGuard::unlocked(place.chain, || last.settle_unless(failed))? { Ok(()) } else { Err(given_up()) }
    }
}

/// The next place in the chain, taken. It becomes free whatever comes of the wait, a panic too.
struct Place<'a, 'b> {
    chain: &'a mut MutexGuard<'b, Chain>,
    places: &'a Condvar,
}

impl Drop for Place<'_, '_> {
    fn drop(&mut self) {
        self.chain.is_taken = false;
        self.places.notify_all();
    }
}

/// Whose communicator has failed says why itself.
fn given_up() -> Error {
    Error::Aborted("the communicator failed while the call waited for a collective before it".into())
}
