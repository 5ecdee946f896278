//! mHC boundaries on an endpoint.

use super::{Executable, Kind, ZeEndpoint};
use crate::mhc::Workspace;
use ccl_core::mhc::{Buffers, Params};
use ccl_core::{Error, Result};

impl ZeEndpoint {
    /// See [`crate::Communicator::prepare_mhc`].
    pub(crate) fn prepare_mhc(&self) -> Result<()> {
        if self.mhc.get().is_none() {
            let made = Workspace::new(&self.gpu, &self.stream)?;
            // Of two that come at once one has made it in vain.
            self.mhc.get_or_init(|| made);
        }
        Ok(())
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
}
