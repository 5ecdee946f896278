//! A launch with everything it needs, independent of what happens to its kernel afterwards.

use super::Code;
use crate::engine::cuda::Target;
use crate::ext::{Native, zesoft_launch_t};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// Storage for argument values, aligned as the most demanding of them.
#[repr(C, align(16))]
#[derive(Clone, Copy, Default)]
pub(super) struct Chunk([u8; 16]);

impl Chunk {
    /// How many chunks hold so many bytes.
    pub(super) fn count(bytes: usize) -> usize {
        bytes.div_ceil(size_of::<Self>())
    }

    pub(super) fn bytes_mut(chunks: &mut [Self]) -> &mut [u8] {
        // SAFETY: chunks are plain bytes without gaps.
        unsafe { std::slice::from_raw_parts_mut(chunks.as_mut_ptr().cast(), size_of_val(chunks)) }
    }
}

/// The values of a launch's arguments, and where each lies: a place that launches use one after the other.
struct Values {
    /// Only accessed through `start` and `pointers`, which stay valid wherever this moves.
    memory: Vec<Chunk>,
    start: *mut Chunk,
    pointers: Box<[*const c_void]>,
}

// SAFETY: the pointers are into memory that this owns.
unsafe impl Send for Values {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for Values {}

impl Default for Values {
    fn default() -> Self {
        Self { memory: Vec::new(), start: std::ptr::null_mut(), pointers: Box::default() }
    }
}

impl Values {
    fn new(code: &Code, values: &[Chunk]) -> Self {
        let mut memory = values.to_vec();
        let start = memory.as_mut_ptr();
        let place = |offset: usize| start.cast::<u8>().wrapping_add(offset).cast_const().cast();
        let pointers = code.arguments().iter().map(|argument| place(argument.offset)).collect();
        Self { memory, start, pointers }
    }

    fn set(&mut self, values: &[Chunk]) {
        assert_eq!(values.len(), self.memory.len(), "values of another kernel");
        // SAFETY: as long as the memory, which nobody else accesses now.
        unsafe { self.start.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }
}

/// What the launches of a kernel share, however long its program keeps it.
pub(super) struct Launches {
    pub(super) name: Arc<CStr>,
    pub(super) code: Code,
    /// Places for the values of launches to come: those of launches that are over.
    spare: Mutex<Vec<Values>>,
}

impl Launches {
    pub(super) fn new(name: Arc<CStr>, code: Code) -> Arc<Self> {
        Arc::new(Self { name, code, spare: Mutex::new(Vec::new()) })
    }
}

/// One launch of a kernel.
pub(crate) struct BoundLaunch {
    kernel: Arc<Launches>,
    /// Empty only when they have gone back to the kernel's spare ones.
    values: Values,
    grid: Grid,
}

/// How a kernel is launched.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    pub(super) group_count: [u32; 3],
    pub(super) group_size: [u32; 3],
    pub(super) cooperative: bool,
}

impl Drop for BoundLaunch {
    fn drop(&mut self) {
        // Capacity for as many as were ever in flight: no allocation in a steady state.
        self.kernel.spare.lock().push(std::mem::take(&mut self.values));
    }
}

impl BoundLaunch {
    /// A launch with a copy of these values.
    pub(super) fn new(kernel: &Arc<Launches>, values: &[Chunk], grid: Grid) -> Self {
        let values = match kernel.spare.lock().pop() {
            Some(mut spare) => {
                spare.set(values);
                spare
            }
            None => Values::new(&kernel.code, values),
        };
        Self { kernel: kernel.clone(), values, grid }
    }

    fn start(&self) -> *const u8 {
        self.values.start.cast_const().cast()
    }

    /// The kernel's name.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.kernel.name.to_string_lossy()
    }

    /// Its group counts and group size.
    pub(crate) fn grid(&self) -> ([u32; 3], [u32; 3]) {
        (self.grid.group_count, self.grid.group_size)
    }

    /// Shows the number and the value of each argument; of local memory the value is its size.
    pub(crate) fn arguments(&self, mut show: impl FnMut(usize, &[u8])) {
        for (index, argument) in self.kernel.code.arguments().iter().enumerate() {
            // SAFETY: the values were laid out as the arguments say.
            show(index, unsafe { std::slice::from_raw_parts(self.start().add(argument.offset), argument.size) });
        }
    }

    /// Executes the whole grid in this thread. A grid without groups is nothing to do.
    pub(crate) fn run(&self) {
        if self.grid.group_count.contains(&0) {
            return;
        }
        let start = self.start();
        let native = match &self.kernel.code {
            Code::Native(native) => native,
            // SAFETY: the values were laid out as this kernel says; what it reaches is the program's duty.
            Code::Spirv(kernel) => return unsafe { kernel.run(start, self.grid.group_count, self.grid.group_size) },
            // Only ever given to a stream.
            Code::Cuda(_) => return,
        };
        self.call(native, &self.values.pointers);
    }

    /// Gives the whole grid to a stream, which has read the arguments when this returns.
    pub(crate) fn give(&self, target: Target<'_>) -> Result<(), String> {
        let Grid { group_count, group_size, cooperative } = self.grid;
        match &self.kernel.code {
            _ if group_count.contains(&0) => Ok(()),
            Code::Cuda(kernel) => kernel.give(target, &self.values.pointers, group_count, group_size, cooperative),
            Code::Native(_) | Code::Spirv(_) => Err("it was made for another engine".to_owned()),
        }
    }

    fn call(&self, native: &Native, arguments: &[*const c_void]) {
        let launch = zesoft_launch_t {
            size: size_of::<zesoft_launch_t>() as u32,
            cooperative: self.grid.cooperative.into(),
            group_count: self.grid.group_count,
            group_size: self.grid.group_size,
            arg_count: arguments.len() as u32,
            args: arguments.as_ptr(),
        };
        // SAFETY: the function was registered as one that takes a launch with arguments of just these sizes; the
        // launch and everything it points to outlive the call.
        unsafe { (native.function)(&raw const launch) }
    }
}
