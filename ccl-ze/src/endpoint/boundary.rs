//! mHC boundaries on an endpoint.

use super::{Executable, Kind, ZeEndpoint};
use crate::mhc::{self, Workspace};
use crate::recording::Recording;
use ccl_core::mhc::{Buffers, Params};
use ccl_core::plan::Agreed;
use ccl_core::plan::mhc::{Fused, MhcPlan};
use ccl_core::{Error, Result};

impl ZeEndpoint {
    /// See [`crate::Communicator::prepare_mhc`].
    pub(crate) fn prepare_mhc(&self, agreed: &Agreed) -> Result<()> {
        if self.mhc.get().is_none() {
            let made = Workspace::new(&self.gpu, &self.stream, agreed)?;
            // Of two that come at once one has made it in vain.
            self.mhc.get_or_init(|| made);
        }
        Ok(())
    }

    /// See [`crate::Communicator::mhc_counters`].
    #[cfg(feature = "test-hooks")]
    pub(crate) fn mhc_counters(&self) -> Option<(*mut u32, usize)> {
        let workspace = self.mhc.get()?;
        Some((workspace.memory().address.cast(), mhc::COUNTER_BYTES / 4))
    }

    /// A boundary made ready. What it is of has been checked.
    pub(crate) fn mhc(&self, params: &Params, n: usize, buffers: &Buffers) -> Result<Executable> {
        let kind = match self.mhc.get() {
            None => return Err(Error::InvalidUsage("an mHC boundary before prepare_mhc".into())),
            Some(_) if params.rows == 0 => Kind::Empty,
            Some(workspace) => Kind::Mhc(workspace.launch(params, n, buffers)?),
        };
        Ok(Executable { kind })
    }

    /// A boundary in a recording has memory of the recording's: replays run beside eager boundaries, and no busy words are
    /// in the way. A native kernel needs none.
    pub(super) fn of_recording(&self, recording: &Recording, executable: &Executable) -> Result<Option<Executable>> {
        match &executable.kind {
            Kind::Mhc(launch) if !self.gpu.facts.native => {
                let memory = recording.workspace(&self.gpu, || mhc::memory(&self.gpu, &self.stream))?;
                Ok(Some(Executable { kind: Kind::Mhc(launch.with_memory(memory)) }))
            }
            _ => Ok(None),
        }
    }

    /// The same after an all-reduce of `rank`, in one launch.
    pub(crate) fn fused(
        &self,
        params: &Params,
        design: Fused,
        plan: impl FnOnce() -> Result<MhcPlan>,
        rank: usize,
        buffers: &Buffers,
    ) -> Result<Executable> {
        let workspace = self.mhc.get();
        let workspace = workspace.ok_or_else(|| Error::InvalidUsage("an mHC boundary before prepare_mhc".into()))?;
        let addresses = mhc::Addresses {
            state: self.state.address as u64,
            host: self.host.memory.address as u64,
            peers: self.table.address as u64,
        };
        let ready = workspace.fused.ready(&self.gpu, params, design, plan)?;
        let launch = workspace.fused.launch(&ready, rank, buffers, addresses, workspace.memory());
        Ok(Executable { kind: Kind::Fused(launch) })
    }
}
