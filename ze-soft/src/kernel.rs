//! Kernels: a native function or one of a SPIR-V program, its arguments and group size, and the launches made of them.

mod draft;
mod entries;
mod launch;
mod shared;

pub(crate) use draft::Draft;
pub(crate) use entries::resolve;
pub(crate) use launch::BoundLaunch;

use crate::config;
use crate::device::MAX_GROUP_SIZE;
use crate::engine::{self, cuda};
use crate::error::fail;
use crate::ext::{Argument, Native};
use crate::handle::Object;
use crate::latch::Latch;
use launch::{Chunk, Grid, Launches};
use level_zero_sys::*;
use shared::Shared;
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
    /// How many arguments have 8 bytes side by side, before any other, and how many 4 right after those.
    runs: [usize; 2],
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

    /// Whether all arguments have these values: in a program's steady state, where a launch that takes them along costs little
    /// more than one that doesn't. It may say no where they do. `runs` is [`Kernel::runs`].
    ///
    /// # Safety
    /// `values` has a pointer for each of the kernel's `arguments`, and a value that isn't null has its argument's size.
    #[inline(always)]
    unsafe fn has(&self, arguments: &[Argument], runs: [usize; 2], values: *const *const c_void) -> bool {
        let (start, [wide, narrow]) = (self.values.as_ptr().cast::<u8>(), runs);
        // SAFETY: the caller's promise; the values are laid out as the arguments say.
        unsafe {
            (0..wide).all(|index| is::<u64>(values.add(index).read(), start.add(8 * index)))
                && (0..narrow).all(|index| is::<u32>(values.add(wide + index).read(), start.add(8 * wide + 4 * index)))
                && arguments.iter().enumerate().skip(wide + narrow).all(|(index, argument)| match argument.size {
                    4 => is::<u32>(values.add(index).read(), start.add(argument.offset)),
                    8 => is::<u64>(values.add(index).read(), start.add(argument.offset)),
                    _ => false,
                })
                && self.set.trailing_ones() as usize >= arguments.len()
        }
    }
}

/// Whether a value is the one at `at`; null is none.
///
/// # Safety
/// Both hold a `T`, aligned or not, unless the first is null.
#[inline(always)]
unsafe fn is<T: PartialEq>(value: *const c_void, at: *const u8) -> bool {
    // SAFETY: the caller's promise.
    !value.is_null() && unsafe { value.cast::<T>().read_unaligned() == at.cast::<T>().read_unaligned() }
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
        let run = |from: usize, start: usize, size: usize| {
            let next = code.arguments().iter().skip(from).enumerate();
            next.take_while(|(i, argument)| (argument.size, argument.offset) == (size, start + size * i)).count()
        };
        let wide = run(0, 0, 8);
        let runs = [wide, run(wide, 8 * wide, 4)];
        Self { name, module, code, shared, runs, state }
    }

    /// Sets where the numbers of the work-items of the launches to come begin.
    fn set_global_offset(&self, offset: [u32; 3]) -> Result<(), ze_result_t> {
        let mut state = self.state.lock();
        self.shared.write_offset(&mut state.values, offset)?;
        state.launches.outdate();
        Ok(())
    }

    /// Sets the group size of the launches to come.
    fn set_group_size(&self, size: [u32; 3]) -> Result<(), ze_result_t> {
        self.shared.check_group_size(size)?;
        self.state.lock().group_size = size;
        Ok(())
    }

    /// Sets one argument of the launches to come.
    ///
    /// # Safety
    /// A value that isn't null is of `size` bytes.
    unsafe fn set_argument(&self, index: u32, size: usize, value: *const c_void) -> Result<(), ze_result_t> {
        let mut state = self.state.lock();
        // SAFETY: the caller's promise.
        unsafe { self.shared.write_argument(&mut state.values, index, size, value) }?;
        state.set |= 1 << index;
        state.launches.outdate();
        Ok(())
    }

    /// A launch of this kernel as it is now, to be edited: whatever was not set is still to be.
    pub(crate) fn draft(&self) -> Draft {
        let state = self.state.lock();
        let grid = Grid { group_count: [0; 3], group_size: state.group_size, cooperative: false };
        Draft::new(self.shared.clone(), state.values.to_vec(), grid, state.set)
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
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(Overrides { group_size, arguments }) = overrides {
            if group_size != state.group_size {
                self.shared.check_group_size(group_size)?;
                state.group_size = group_size;
            }
            let known = self.code.arguments();
            // SAFETY: the specification promises one pointer per argument, each to a value of its size (of local memory: to the
            // size) or null.
            if !arguments.is_null() && unsafe { !state.has(known, self.runs, arguments) } {
                for (index, &argument) in known.iter().enumerate() {
                    // SAFETY: as above.
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
            self.shared.check_cooperative(&grid)?;
        }
        Ok(state.launches.launch(&self.shared, &state.values, grid))
    }
}
