//! Launches that are edited: those of a list whose commands change after it was closed.

use super::BoundLaunch;
use super::launch::{Chunk, Grid};
use super::shared::Shared;
use crate::error::fail;
use level_zero_sys::{ZE_RESULT_ERROR_INVALID_ARGUMENT, ze_result_t};
use std::ffi::c_void;
use std::sync::Arc;

/// A launch in the making.
pub(crate) struct Draft {
    kernel: Arc<Shared>,
    values: Vec<Chunk>,
    grid: Grid,
    /// One bit per argument that has a value.
    set: u64,
}

impl Draft {
    pub(super) fn new(kernel: Arc<Shared>, values: Vec<Chunk>, grid: Grid, set: u64) -> Self {
        Self { kernel, values, grid, set }
    }

    /// Sets one argument.
    ///
    /// # Safety
    /// A value that isn't null is of `size` bytes.
    pub(crate) unsafe fn set_argument(
        &mut self,
        index: u32,
        size: usize,
        value: *const c_void,
    ) -> Result<(), ze_result_t> {
        // SAFETY: the caller's promise.
        unsafe { self.kernel.write_argument(&mut self.values, index, size, value) }?;
        self.set |= 1 << index;
        Ok(())
    }

    pub(crate) fn set_group_count(&mut self, count: [u32; 3]) {
        self.grid.group_count = count;
    }

    pub(crate) fn set_group_size(&mut self, size: [u32; 3]) -> Result<(), ze_result_t> {
        self.kernel.check_group_size(size)?;
        self.grid.group_size = size;
        Ok(())
    }

    pub(crate) fn set_global_offset(&mut self, offset: [u32; 3]) -> Result<(), ze_result_t> {
        self.kernel.write_offset(&mut self.values, offset)
    }

    /// The same kind of launch, as many groups of it, as that of another kernel.
    pub(crate) fn like(mut self, before: &BoundLaunch) -> Self {
        self.grid.group_count = before.grid().0;
        self.grid.cooperative = before.is_cooperative();
        self
    }

    /// The launch, if nothing of it is missing.
    pub(crate) fn launch(&self) -> Result<BoundLaunch, ze_result_t> {
        // At most 64 arguments: that is as many as `set` has bits.
        let missing = self.set.trailing_ones() as usize;
        if missing < self.kernel.code.arguments().len() {
            let text = format!("argument {missing} of kernel {} was never set", self.kernel.name.to_string_lossy());
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
        }
        if self.grid.cooperative {
            self.kernel.check_cooperative(&self.grid)?;
        }
        Ok(BoundLaunch::alone(self.kernel.clone(), &self.values, self.grid))
    }
}
