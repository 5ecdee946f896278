//! Kernels: a native function, its arguments and group size, and the launches made of them.

mod entries;
mod launch;

pub(crate) use entries::resolve;
pub(crate) use launch::BoundLaunch;

use crate::config;
use crate::device::MAX_GROUP_SIZE;
use crate::error::fail;
use crate::ext::{Argument, Native};
use crate::handle::Object;
use launch::{Chunk, Values};
use level_zero_sys::*;
use parking_lot::Mutex;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// What one launch sets on its kernel before it is made.
pub(crate) struct Overrides {
    pub(crate) group_size: [u32; 3],
    /// One pointer per argument to its value, or null: the values set before.
    pub(crate) arguments: *const *const c_void,
}

/// A kernel object.
pub(crate) struct Kernel {
    name: CString,
    module: [u8; 32],
    native: Arc<Native>,
    state: Mutex<State>,
}

/// What programs set on a kernel.
struct State {
    group_size: [u32; 3],
    values: Box<[Chunk]>,
    /// One bit per argument whose value was set.
    set: u64,
    indirect: ze_kernel_indirect_access_flags_t,
}

impl Object for Kernel {
    const MAGIC: u64 = 0x5a45_534f_4b45_5231;
}

impl State {
    /// Sets one argument; a null value is zero bytes, as for a null pointer.
    ///
    /// # Safety
    /// A value that isn't null has the argument's size.
    unsafe fn set(&mut self, index: usize, argument: Argument, value: *const c_void) {
        let to = &mut Chunk::bytes_mut(&mut self.values)[argument.offset..argument.offset + argument.size];
        if value.is_null() {
            to.fill(0);
        } else {
            // SAFETY: the caller's promise; the destination is our own and exactly as long.
            unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), to.as_mut_ptr(), argument.size) };
        }
        self.set |= 1 << index;
    }
}

impl Kernel {
    fn new(name: CString, module: [u8; 32], native: Arc<Native>) -> Self {
        let state = Mutex::new(State {
            group_size: [1; 3],
            values: vec![Chunk::default(); Chunk::count(native.size)].into(),
            set: 0,
            indirect: 0,
        });
        Self { name, module, native, state }
    }

    /// A launch of this kernel as it is now, or as it is after `overrides`, which stay set on it.
    pub(crate) fn bind(
        &self,
        group_count: [u32; 3],
        overrides: Option<Overrides>,
        cooperative: bool,
    ) -> Result<BoundLaunch, ze_result_t> {
        let mut state = self.state.lock();
        if let Some(Overrides { group_size, arguments }) = overrides {
            check_group_size(group_size)?;
            state.group_size = group_size;
            if !arguments.is_null() {
                for (index, &argument) in self.native.arguments.iter().enumerate() {
                    // SAFETY: the specification promises one pointer per argument, each to a value of its size or null.
                    unsafe { state.set(index, argument, arguments.add(index).read()) };
                }
            }
        }
        let missing = (0..self.native.arguments.len()).find(|index| state.set & (1 << index) == 0);
        if let Some(index) = missing {
            return Err(fail(
                ZE_RESULT_ERROR_INVALID_ARGUMENT,
                format!("argument {index} of kernel {} was never set", self.name.to_string_lossy()),
            ));
        }
        if cooperative {
            self.check_cooperative(group_count)?;
        }
        Ok(BoundLaunch {
            native: self.native.clone(),
            values: Values::copy(&state.values),
            group_count,
            group_size: state.group_size,
            cooperative,
        })
    }

    fn check_cooperative(&self, group_count: [u32; 3]) -> Result<(), ze_result_t> {
        let most = config::get().compute_units;
        let groups = group_count.iter().map(|&count| u128::from(count)).product::<u128>();
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
}

fn check_group_size(size: [u32; 3]) -> Result<(), ze_result_t> {
    let items = size.iter().map(|&items| u128::from(items)).product::<u128>();
    if items == 0 || items > MAX_GROUP_SIZE.into() {
        let [x, y, z] = size;
        let text = format!("a group of {x} x {y} x {z} work-items, where 1 to {MAX_GROUP_SIZE} are possible");
        return Err(fail(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, text));
    }
    Ok(())
}
