//! A launch with everything it needs, independent of what happens to its kernel afterwards.

use super::shared::Shared;
use super::{Code, Draft};
use crate::engine::cuda::Target;
use crate::ext::{Native, zesoft_launch_t};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::c_void;
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

/// The values of a launch's arguments, and where each lies.
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

/// How many launches of other values are looked at for one that is over, and how many are kept.
const LOOKS: usize = 4;
const MOST: usize = 64;

/// The launches that a kernel has made: the latest is made again as long as nothing changes, and those before it give
/// their memory to launches to come once they are over.
#[derive(Default)]
pub(super) struct Launches {
    latest: Option<BoundLaunch>,
    former: VecDeque<BoundLaunch>,
}

impl Launches {
    /// Takes note that values or group size have changed.
    pub(super) fn outdate(&mut self) {
        if let Some(latest) = self.latest.take() {
            self.former.push_back(latest);
        }
    }

    /// The latest launch, if it has this grid.
    pub(super) fn again(&self, grid: &Grid) -> Option<BoundLaunch> {
        self.latest.as_ref().filter(|latest| latest.0.grid == *grid).cloned()
    }

    /// A former launch that nobody holds any more. The oldest is the first to be over, so that in a steady state there is
    /// one as soon as there are as many as are ever in flight; but those that a graph holds are never over.
    fn over(&mut self) -> Option<BoundLaunch> {
        for _ in 0..self.former.len().min(LOOKS) {
            let mut oldest = self.former.pop_front()?;
            if Arc::get_mut(&mut oldest.0).is_some() {
                return Some(oldest);
            }
            self.former.push_back(oldest);
        }
        if self.former.len() > MOST {
            self.former.pop_front();
        }
        None
    }

    /// A launch with a copy of these values.
    pub(super) fn launch(&mut self, kernel: &Arc<Shared>, values: &[Chunk], grid: Grid) -> BoundLaunch {
        self.outdate();
        let launch = self.over().map(|mut over| {
            if let Some(launch) = Arc::get_mut(&mut over.0) {
                launch.values.set(values);
                launch.grid = grid;
            }
            over
        });
        let launch = launch.unwrap_or_else(|| {
            let values = Values::new(&kernel.code, values);
            BoundLaunch(Arc::new(Bound { kernel: kernel.clone(), values, grid }))
        });
        self.latest = Some(launch.clone());
        launch
    }
}

/// One launch of a kernel: nothing of it changes while anybody but the kernel holds it.
#[derive(Clone)]
pub(crate) struct BoundLaunch(Arc<Bound>);

struct Bound {
    kernel: Arc<Shared>,
    values: Values,
    grid: Grid,
}

/// How a kernel is launched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) group_count: [u32; 3],
    pub(super) group_size: [u32; 3],
    pub(super) cooperative: bool,
}

impl BoundLaunch {
    /// A launch that no other will be the same as.
    pub(super) fn alone(kernel: Arc<Shared>, values: &[Chunk], grid: Grid) -> Self {
        let values = Values::new(&kernel.code, values);
        Self(Arc::new(Bound { kernel, values, grid }))
    }

    /// This launch, to be edited.
    pub(crate) fn draft(&self) -> Draft {
        let Bound { kernel, values, grid } = &*self.0;
        Draft::new(kernel.clone(), values.memory.clone(), *grid, u64::MAX)
    }

    /// Whether it is a launch of this kernel.
    pub(crate) fn is_of(&self, kernel: &super::Kernel) -> bool {
        Arc::ptr_eq(&self.0.kernel, &kernel.shared)
    }

    fn start(&self) -> *const u8 {
        self.0.values.start.cast_const().cast()
    }

    /// The kernel's name.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.0.kernel.name.to_string_lossy()
    }

    /// Its group counts and group size.
    pub(crate) fn grid(&self) -> ([u32; 3], [u32; 3]) {
        (self.0.grid.group_count, self.0.grid.group_size)
    }

    pub(super) fn is_cooperative(&self) -> bool {
        self.0.grid.cooperative
    }

    /// Shows the number and the value of each argument; of local memory the value is its size.
    pub(crate) fn arguments(&self, mut show: impl FnMut(usize, &[u8])) {
        for (index, argument) in self.0.kernel.code.arguments().iter().enumerate() {
            // SAFETY: the values were laid out as the arguments say.
            show(index, unsafe { std::slice::from_raw_parts(self.start().add(argument.offset), argument.size) });
        }
    }

    /// Executes the whole grid in this thread. A grid without groups is nothing to do.
    pub(crate) fn run(&self) {
        let Grid { group_count, group_size, .. } = self.0.grid;
        if group_count.contains(&0) {
            return;
        }
        match &self.0.kernel.code {
            Code::Native(native) => self.call(native, &self.0.values.pointers),
            // SAFETY: the values were laid out as this kernel says; what it reaches is the program's duty.
            Code::Spirv(kernel) => unsafe { kernel.run(self.start(), group_count, group_size) },
            // Only ever given to a stream.
            Code::Cuda(_) => {}
        }
    }

    /// Whether it may begin while a kernel like it ends that it depends on.
    pub(crate) fn begins_early(&self) -> bool {
        match &self.0.kernel.code {
            Code::Cuda(kernel) => !self.0.grid.cooperative && kernel.begins_early(),
            Code::Native(_) | Code::Spirv(_) => false,
        }
    }

    /// Gives the whole grid to a stream, which has read the arguments when this returns.
    pub(crate) fn give(&self, target: Target<'_>) -> Result<(), String> {
        let Grid { group_count, group_size, cooperative } = self.0.grid;
        match &self.0.kernel.code {
            _ if group_count.contains(&0) => Ok(()),
            Code::Cuda(kernel) => kernel.give(target, &self.0.values.pointers, group_count, group_size, cooperative),
            Code::Native(_) | Code::Spirv(_) => Err("it was made for another engine".to_owned()),
        }
    }

    fn call(&self, native: &Native, arguments: &[*const c_void]) {
        let launch = zesoft_launch_t {
            size: size_of::<zesoft_launch_t>() as u32,
            cooperative: self.0.grid.cooperative.into(),
            group_count: self.0.grid.group_count,
            group_size: self.0.grid.group_size,
            arg_count: arguments.len() as u32,
            args: arguments.as_ptr(),
        };
        // SAFETY: the function was registered as one that takes a launch with arguments of just these sizes; the
        // launch and everything it points to outlive the call.
        unsafe { (native.function)(&raw const launch) }
    }
}
