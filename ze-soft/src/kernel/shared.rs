//! What a kernel and its launches share: its code, and what its arguments and groups may be.

use super::Code;
use super::launch::{Chunk, Grid};
use crate::error::fail;
use level_zero_sys::*;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// What the launches of a kernel share, however long its program keeps it.
pub(super) struct Shared {
    pub(super) name: Arc<CStr>,
    pub(super) code: Code,
}

impl Shared {
    /// Writes one argument's value among those of a launch; of local memory only the size is set, and there is no value.
    ///
    /// # Safety
    /// A value that isn't null is of `size` bytes.
    pub(super) unsafe fn write_argument(
        &self,
        values: &mut [Chunk],
        index: u32,
        size: usize,
        value: *const c_void,
    ) -> Result<(), ze_result_t> {
        let name = || self.name.to_string_lossy();
        let arguments = self.code.arguments();
        let Some(argument) = arguments.get(index as usize) else {
            let count = arguments.len();
            return Err(fail(
                ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX,
                format!("kernel {} has {count} arguments, none with index {index}", name()),
            ));
        };
        let to = &mut Chunk::bytes_mut(values)[argument.offset..argument.offset + argument.size];
        if self.code.is_local(index as usize) {
            if size == 0 || !value.is_null() {
                return Err(fail(
                    ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                    format!("argument {index} of kernel {} is local memory: it has a size and no value", name()),
                ));
            }
            to.copy_from_slice(&size.to_ne_bytes());
            return Ok(());
        }
        if size != argument.size {
            let right = argument.size;
            return Err(fail(
                ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                format!("argument {index} of kernel {} has {right} bytes, not {size}", name()),
            ));
        }
        if value.is_null() {
            to.fill(0);
        } else {
            // SAFETY: the caller's promise; the destination is our own and exactly as long.
            unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), to.as_mut_ptr(), size) };
        }
        Ok(())
    }

    /// Writes a launch's global offset among its values, which only SPIR-V on the processor has a place for.
    pub(super) fn write_offset(&self, values: &mut [Chunk], offset: [u32; 3]) -> Result<(), ze_result_t> {
        match &self.code {
            Code::Spirv(kernel) => {
                let place = kernel.offset.offset..kernel.offset.offset + kernel.offset.size;
                let bytes = Chunk::bytes_mut(values)[place].iter_mut();
                bytes.zip(offset.iter().flat_map(|items| items.to_ne_bytes())).for_each(|(to, from)| *to = from);
                Ok(())
            }
            Code::Native(_) | Code::Cuda(_) if offset == [0; 3] => Ok(()),
            Code::Native(_) | Code::Cuda(_) => Err(fail(
                ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                format!("kernel {} can't be launched with a global offset by this engine", self.name.to_string_lossy()),
            )),
        }
    }

    pub(super) fn check_cooperative(&self, grid: &Grid) -> Result<(), ze_result_t> {
        let most = self.code.most_groups(grid.group_size);
        let groups = grid.group_count.iter().map(|&count| u128::from(count)).product::<u128>();
        if groups > most.into() {
            return Err(fail(
                ZE_RESULT_ERROR_INVALID_ARGUMENT,
                format!(
                    "a cooperative launch of kernel {} with {groups} groups: at most {most} run at the same time",
                    self.name.to_string_lossy()
                ),
            ));
        }
        Ok(())
    }

    pub(super) fn check_group_size(&self, size: [u32; 3]) -> Result<(), ze_result_t> {
        let items = size.iter().map(|&items| u128::from(items)).product::<u128>();
        let most = self.code.most_items();
        let [x, y, z] = size;
        if items == 0 || items > most.into() {
            let text = format!("a group of {x} x {y} x {z} work-items, where 1 to {most} are possible");
            return Err(fail(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, text));
        }
        if let Some(required) = self.code.required_group_size()
            && required != size
        {
            let name = self.name.to_string_lossy();
            let text = format!("a group of {x} x {y} x {z} work-items, where kernel {name} demands {required:?}");
            return Err(fail(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, text));
        }
        Ok(())
    }
}
