//! A launch with everything it needs, independent of what happens to its kernel afterwards.

use super::Code;
use crate::ext::{Native, zesoft_launch_t};
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

/// Up to 256 bytes of values inside the launch itself, so that the usual launch allocates nothing.
const INLINE: usize = 16;
/// Up to so many pointers to arguments on the stack.
const INLINE_ARGUMENTS: usize = 32;

#[expect(clippy::large_enum_variant, reason = "that the usual values lie inside is the point")]
pub(super) enum Values {
    Inline([Chunk; INLINE]),
    Heap(Box<[Chunk]>),
}

impl Values {
    pub(super) fn copy(values: &[Chunk]) -> Self {
        let mut inline = [Chunk::default(); INLINE];
        match inline.get_mut(..values.len()) {
            Some(start) => {
                start.copy_from_slice(values);
                Self::Inline(inline)
            }
            None => Self::Heap(values.into()),
        }
    }

    fn start(&self) -> *const u8 {
        match self {
            Self::Inline(chunks) => chunks.as_ptr().cast(),
            Self::Heap(chunks) => chunks.as_ptr().cast(),
        }
    }
}

/// One launch of a kernel.
pub(crate) struct BoundLaunch {
    pub(super) name: Arc<CStr>,
    pub(super) code: Code,
    pub(super) values: Values,
    pub(super) group_count: [u32; 3],
    pub(super) group_size: [u32; 3],
    pub(super) cooperative: bool,
}

impl BoundLaunch {
    /// The kernel's name.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.name.to_string_lossy()
    }

    /// Its group counts and group size.
    pub(crate) fn grid(&self) -> ([u32; 3], [u32; 3]) {
        (self.group_count, self.group_size)
    }

    /// Shows the number and the value of each argument; of local memory the value is its size.
    pub(crate) fn arguments(&self, mut show: impl FnMut(usize, &[u8])) {
        for (index, argument) in self.code.arguments().iter().enumerate() {
            // SAFETY: the values were laid out as the arguments say.
            show(index, unsafe { std::slice::from_raw_parts(self.values.start().add(argument.offset), argument.size) });
        }
    }

    /// Executes the whole grid in this thread. A grid without groups is nothing to do.
    pub(crate) fn run(&self) {
        if self.group_count.contains(&0) {
            return;
        }
        let start = self.values.start();
        let native = match &self.code {
            Code::Native(native) => native,
            // SAFETY: the values were laid out as this kernel says; what it reaches is the program's duty.
            Code::Spirv(kernel) => return unsafe { kernel.run(start, self.group_count, self.group_size) },
        };
        let arguments = &native.arguments;
        let pointer = |index: usize| start.wrapping_add(arguments[index].offset).cast::<c_void>();
        if arguments.len() <= INLINE_ARGUMENTS {
            let mut pointers = [std::ptr::null(); INLINE_ARGUMENTS];
            for (index, to) in pointers.iter_mut().enumerate().take(arguments.len()) {
                *to = pointer(index);
            }
            self.call(native, &pointers[..arguments.len()]);
        } else {
            self.call(native, &(0..arguments.len()).map(pointer).collect::<Vec<_>>());
        }
    }

    fn call(&self, native: &Native, arguments: &[*const c_void]) {
        let launch = zesoft_launch_t {
            size: size_of::<zesoft_launch_t>() as u32,
            cooperative: self.cooperative.into(),
            group_count: self.group_count,
            group_size: self.group_size,
            arg_count: arguments.len() as u32,
            args: arguments.as_ptr(),
        };
        // SAFETY: the function was registered as one that takes a launch with arguments of just these sizes; the
        // launch and everything it points to outlive the call.
        unsafe { (native.function)(&raw const launch) }
    }
}
