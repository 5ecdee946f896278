//! Kernels: a native function or one of a SPIR-V program, its arguments and group size, and the launches made of them.

mod entries;
mod launch;

pub(crate) use entries::resolve;
pub(crate) use launch::BoundLaunch;

use crate::config;
use crate::device::MAX_GROUP_SIZE;
use crate::engine::{self, cuda};
use crate::error::fail;
use crate::ext::{Argument, Native};
use crate::handle::Object;
use crate::latch::Latch;
use launch::{Chunk, Grid, Launches, Shared};
use level_zero_sys::*;
use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;

/// What one launch sets on its kernel before it is made.
pub(crate) struct Overrides {
    pub(crate) group_size: [u32; 3],
    /// One pointer per argument to its value, or null: the values set before.
    pub(crate) arguments: *const *const c_void,
}

/// What a kernel executes.
#[derive(Clone)]
enum Code {
    Native(Arc<Native>),
    Spirv(Arc<engine::Kernel>),
    Cuda(Arc<cuda::Kernel>),
}

impl Code {
    fn arguments(&self) -> &[Argument] {
        match self {
            Self::Native(native) => &native.arguments,
            Self::Spirv(kernel) => &kernel.arguments,
            Self::Cuda(kernel) => &kernel.arguments,
        }
    }

    /// The bytes that all arguments take.
    fn size(&self) -> usize {
        match self {
            Self::Native(native) => native.size,
            Self::Spirv(kernel) => kernel.size,
            Self::Cuda(kernel) => kernel.size,
        }
    }

    fn is_local(&self, argument: usize) -> bool {
        matches!(self, Self::Spirv(kernel) if kernel.is_local(argument))
    }

    fn required_group_size(&self) -> Option<[u32; 3]> {
        match self {
            Self::Native(_) => None,
            Self::Spirv(kernel) => kernel.required_group_size(),
            Self::Cuda(kernel) => kernel.required_group_size(),
        }
    }

    fn most_items(&self) -> u32 {
        match self {
            Self::Native(_) => MAX_GROUP_SIZE,
            Self::Spirv(kernel) => kernel.facts.most_items,
            Self::Cuda(kernel) => kernel.facts.most_items,
        }
    }

    /// How many work-groups of this size run at the same time.
    fn most_groups(&self, group_size: [u32; 3]) -> u32 {
        match self {
            Self::Native(_) => config::get().compute_units(),
            Self::Spirv(_) => engine::compute_units(),
            Self::Cuda(kernel) => kernel.most_groups(group_size.iter().product()),
        }
    }
}

/// A kernel object.
pub(crate) struct Kernel {
    name: Arc<CStr>,
    module: [u8; 32],
    code: Code,
    shared: Arc<Shared>,
    state: Latch<State>,
}

/// What programs set on a kernel.
struct State {
    group_size: [u32; 3],
    values: Box<[Chunk]>,
    /// One bit per argument whose value was set.
    set: u64,
    indirect: ze_kernel_indirect_access_flags_t,
    launches: Launches,
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
        self.launches.outdate();
    }
}

impl Kernel {
    fn new(name: CString, module: [u8; 32], code: Code) -> Self {
        let state = Latch::new(State {
            group_size: code.required_group_size().unwrap_or([1; 3]),
            values: vec![Chunk::default(); Chunk::count(code.size())].into(),
            set: 0,
            indirect: 0,
            launches: Launches::default(),
        });
        let name: Arc<CStr> = name.into();
        let shared = Arc::new(Shared { name: name.clone(), code: code.clone() });
        Self { name, module, code, shared, state }
    }

    /// Sets where the numbers of the work-items of the launches to come begin.
    fn set_global_offset(&self, offset: [u32; 3]) -> Result<(), ze_result_t> {
        match &self.code {
            Code::Spirv(kernel) => {
                let place = kernel.offset.offset..kernel.offset.offset + kernel.offset.size;
                let mut state = self.state.lock();
                let bytes = Chunk::bytes_mut(&mut state.values)[place].iter_mut();
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

    /// Sets the group size of the launches to come.
    fn set_group_size(&self, size: [u32; 3]) -> Result<(), ze_result_t> {
        self.check_group_size(size)?;
        self.state.lock().group_size = size;
        Ok(())
    }

    /// Sets one argument of the launches to come; of local memory only the size is set, and there is no value.
    ///
    /// # Safety
    /// A value that isn't null is of `size` bytes.
    unsafe fn set_argument(&self, index: u32, size: usize, value: *const c_void) -> Result<(), ze_result_t> {
        let name = || self.name.to_string_lossy();
        let arguments = self.code.arguments();
        let Some(&argument) = arguments.get(index as usize) else {
            let count = arguments.len();
            return Err(fail(
                ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX,
                format!("kernel {} has {count} arguments, none with index {index}", name()),
            ));
        };
        if self.code.is_local(index as usize) {
            if size == 0 || !value.is_null() {
                return Err(fail(
                    ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                    format!("argument {index} of kernel {} is local memory: it has a size and no value", name()),
                ));
            }
            // SAFETY: the value is a `usize`, which is what such an argument keeps.
            unsafe { self.state.lock().set(index as usize, argument, (&raw const size).cast()) };
            return Ok(());
        }
        if size != argument.size {
            let right = argument.size;
            return Err(fail(
                ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                format!("argument {index} of kernel {} has {right} bytes, not {size}", name()),
            ));
        }
        // SAFETY: the caller's promise: a value has the size that was passed, which is the argument's.
        unsafe { self.state.lock().set(index as usize, argument, value) };
        Ok(())
    }

    /// A launch of this kernel as it is now, or as it is after `overrides`, which stay set on it.
    pub(crate) fn bind(
        &self,
        group_count: [u32; 3],
        overrides: Option<Overrides>,
        cooperative: bool,
    ) -> Result<BoundLaunch, ze_result_t> {
        if !matches!(self.code, Code::Native(_)) && engine::health() != ZE_RESULT_SUCCESS {
            return Err(ZE_RESULT_ERROR_DEVICE_LOST);
        }
        if let Some(Overrides { group_size, .. }) = &overrides {
            self.check_group_size(*group_size)?;
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(Overrides { group_size, arguments }) = overrides {
            state.group_size = group_size;
            if !arguments.is_null() {
                for (index, &argument) in self.code.arguments().iter().enumerate() {
                    // SAFETY: the specification promises one pointer per argument, each to a value of its size (of local
                    // memory: to the size) or null.
                    unsafe { state.set(index, argument, arguments.add(index).read()) };
                }
            }
        }
        let grid = Grid { group_count, group_size: state.group_size, cooperative };
        if let Some(again) = state.launches.again(&grid) {
            return Ok(again);
        }
        // At most 64 arguments: that is as many as `set` has bits.
        let missing = state.set.trailing_ones() as usize;
        if missing < self.code.arguments().len() {
            let index = missing;
            return Err(fail(
                ZE_RESULT_ERROR_INVALID_ARGUMENT,
                format!("argument {index} of kernel {} was never set", self.name.to_string_lossy()),
            ));
        }
        if cooperative {
            self.check_cooperative(group_count, state.group_size)?;
        }
        Ok(state.launches.launch(&self.shared, &state.values, grid))
    }

    fn check_cooperative(&self, group_count: [u32; 3], group_size: [u32; 3]) -> Result<(), ze_result_t> {
        let most = self.code.most_groups(group_size);
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

    fn check_group_size(&self, size: [u32; 3]) -> Result<(), ze_result_t> {
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
