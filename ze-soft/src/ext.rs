//! This driver's extension: native kernels, and faults on demand for tests.
//!
//! Both are functions that `zeDriverGetExtensionFunctionAddress` hands out by name. No handle occurs in their
//! signatures, so they work the same whether the driver is linked in or sits behind a loader that wraps handles.
//!
//! # Native kernels
//! A program that has a native function for each kernel of a module registers them by the SHA-256 of the module's
//! bytes with [`zeSoftRegisterKernel_t`]; then it creates module and kernels through Level Zero as ever. A module with
//! no registered kernel, and a kernel that isn't registered, are refused by name. Modules are of the native format: the
//! bytes that [`module_image`] makes.
//!
//! # Faults
//! [`zeSoftFault_t`] plants one fault or removes all of them; see [`zesoft_fault_t`].

use crate::error::fail;
use level_zero_sys::{
    ZE_RESULT_ERROR_INVALID_ARGUMENT, ZE_RESULT_ERROR_INVALID_NULL_POINTER, ZE_RESULT_ERROR_INVALID_SIZE,
    ZE_RESULT_ERROR_UNSUPPORTED_SIZE, ze_result_t,
};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, LazyLock};

/// The name under which drivers list the native kernels among their extensions.
pub const NATIVE_KERNELS_NAME: &CStr = c"ZE_SOFT_extension_native_kernels";
/// The name under which drivers list the faults among their extensions.
pub const FAULTS_NAME: &CStr = c"ZE_SOFT_extension_faults";
/// The version of both, major in the upper half.
pub const VERSION: u32 = 1 << 16;
/// The name of the function of type [`zeSoftRegisterKernel_t`].
pub const REGISTER_KERNEL_NAME: &CStr = c"zeSoftRegisterKernel";
/// The name of the function of type [`zeSoftFault_t`].
pub const FAULT_NAME: &CStr = c"zeSoftFault";

/// What a device that an NVIDIA GPU plays says of itself as its number, where those that the processor plays have another.
pub const GPU_DEVICE_ID: u32 = 0x5afc;

/// The first bytes of a module; names of kernels follow, one a line.
pub const MODULE_MAGIC: [u8; 8] = *b"ZESOFTM1";

/// The most bytes that one kernel's arguments may take together.
pub const MAX_ARGUMENTS_SIZE: usize = 2048;
/// The most arguments of one kernel.
pub const MAX_ARGUMENTS: usize = 64;

/// The bytes of a module with kernels of these names.
pub fn module_image(kernels: &[&str]) -> Vec<u8> {
    let mut image = MODULE_MAGIC.to_vec();
    image.extend_from_slice(kernels.join("\n").as_bytes());
    image
}

/// One launch, as a native kernel sees it. All pointers are valid during the call only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zesoft_launch_t {
    /// Size of this structure in bytes; it grows at its end.
    pub size: u32,
    /// 1 for a cooperative launch, else 0.
    pub cooperative: u32,
    /// Work-groups along x, y and z.
    pub group_count: [u32; 3],
    /// Work-items of a group along x, y and z.
    pub group_size: [u32; 3],
    /// How many arguments there are.
    pub arg_count: u32,
    /// One pointer to each argument's value, aligned to the value's size up to 16 bytes.
    pub args: *const *const c_void,
}

/// A native kernel: executes the whole grid before it returns. It must not unwind.
pub type zesoft_kernel_fn = unsafe extern "C" fn(launch: *const zesoft_launch_t);

/// Registers a native kernel for the module whose bytes have this SHA-256; the same module and name again replaces it,
/// for kernels created from then on. The sizes of its arguments are in bytes.
pub type zeSoftRegisterKernel_t = unsafe extern "C" fn(
    sha256: *const [u8; 32],
    name: *const c_char,
    function: Option<zesoft_kernel_fn>,
    arg_count: u32,
    arg_sizes: *const usize,
) -> ze_result_t;

/// Plants a fault, or removes all of them.
pub type zeSoftFault_t = unsafe extern "C" fn(fault: *const zesoft_fault_t) -> ze_result_t;

/// Stands for every device, or every queue ordinal, in a [`zesoft_fault_t`].
pub const ZESOFT_ANY: u32 = u32::MAX;

/// Removes every fault. Mappings already opened keep what they were opened with.
pub const ZESOFT_FAULT_CLEAR: u32 = 0;
/// Each command of (`device`, `ordinal`) starts `value` nanoseconds late; with a `seed`, a random time below that.
pub const ZESOFT_FAULT_DELAY_QUEUE: u32 = 1;
/// The `value`-th event signal from now (1: the next) of (`device`, `ordinal`) never happens.
pub const ZESOFT_FAULT_LOSE_SIGNAL: u32 = 2;
/// (`device`, `ordinal`) takes commands that may run in any order in one shuffled by `seed`; 0 ends it.
pub const ZESOFT_FAULT_REORDER: u32 = 3;
/// The `value`-th memory allocation from now fails for want of memory.
pub const ZESOFT_FAULT_FAIL_ALLOCATION: u32 = 4;
/// The `value`-th opening of a memory IPC handle from now fails.
pub const ZESOFT_FAULT_FAIL_IPC_OPEN: u32 = 5;
/// Memory of device `ordinal` that `device` opens from now on is a private copy: no store to it reaches its owner.
pub const ZESOFT_FAULT_CORRUPT_LINK: u32 = 6;
/// Stores into memory that `device` opens from now on arrive late and in an order shuffled by `seed`, each after a
/// random time below `value` nanoseconds; no granule of `ordinal` bytes (8, 16 or 64) is ever torn, and its last bytes
/// arrive last. Loads through the mapping show this process's own stores only; storing the very bytes that a granule
/// already holds is no store. Everything has arrived when the handle is closed.
pub const ZESOFT_FAULT_LATE_STORES: u32 = 7;

/// In graphs instantiated from now on, edges that an event makes are missing: those to commands of (`device`, `ordinal`)
/// that `value` names. Its upper half is the number of the earlier command, its lower half that of the later one, as
/// `zeGraphDumpContentsExt` numbers them; [`ZESOFT_ANY`] in a half stands for every command, so `u64::MAX` for all edges.
pub const ZESOFT_FAULT_DROP_EDGES: u32 = 8;
/// As [`ZESOFT_FAULT_DROP_EDGES`], but the edges aren't missing: what the replay before signalled satisfies them.
pub const ZESOFT_FAULT_STALE_EDGES: u32 = 9;

/// One fault. Devices are numbered as without an affinity mask.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zesoft_fault_t {
    /// Size of this structure in bytes; it grows at its end.
    pub size: u32,
    /// One of the `ZESOFT_FAULT_*` numbers.
    pub kind: u32,
    /// The device it concerns, or [`ZESOFT_ANY`].
    pub device: u32,
    /// The queue ordinal it concerns or [`ZESOFT_ANY`]; some kinds put another number here.
    pub ordinal: u32,
    /// A time or a count, as the kind says.
    pub value: u64,
    /// Where random choices start; the same seed makes the same choices.
    pub seed: u64,
}

/// Where an argument's value lies among the bytes of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Argument {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// A registered kernel.
pub(crate) struct Native {
    pub(crate) function: zesoft_kernel_fn,
    pub(crate) arguments: Vec<Argument>,
    /// The bytes that all arguments take, gaps for alignment included.
    pub(crate) size: usize,
}

type Kernels = HashMap<String, Arc<Native>>;

static REGISTERED: LazyLock<RwLock<HashMap<[u8; 32], Kernels>>> = LazyLock::new(RwLock::default);

/// Whether any kernel of the module with this hash is registered.
pub(crate) fn is_registered(module: &[u8; 32]) -> bool {
    REGISTERED.read().contains_key(module)
}

/// The kernel of that name of the module with this hash.
pub(crate) fn native(module: &[u8; 32], name: &str) -> Option<Arc<Native>> {
    REGISTERED.read().get(module)?.get(name).cloned()
}

/// Lays the arguments out one after the other, each aligned to its size rounded up to a power of two, at most 16.
pub(crate) fn layout(sizes: &[usize]) -> (Vec<Argument>, usize) {
    let mut end = 0usize;
    let place = |&size: &usize| {
        let offset = end.next_multiple_of(size.next_power_of_two().min(16));
        end = offset + size;
        Argument { offset, size }
    };
    (sizes.iter().map(place).collect(), end)
}

pub(crate) unsafe extern "C" fn register_kernel(
    sha256: *const [u8; 32],
    name: *const c_char,
    function: Option<zesoft_kernel_fn>,
    arg_count: u32,
    arg_sizes: *const usize,
) -> ze_result_t {
    crate::abi::run(|| {
        // SAFETY: the caller's pointers are null or valid for the call.
        let module = *unsafe { crate::abi::input(sha256) }?;
        let function = function.ok_or(ZE_RESULT_ERROR_INVALID_NULL_POINTER)?;
        if name.is_null() || (arg_sizes.is_null() && arg_count > 0) {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        // SAFETY: a pointer that isn't null is a C string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let sizes = match arg_count as usize {
            0 => &[],
            count if count > MAX_ARGUMENTS => {
                let text = format!("kernel {name} has {count} arguments, more than {MAX_ARGUMENTS}");
                return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, text));
            }
            // SAFETY: the array has `arg_count` entries.
            count => unsafe { std::slice::from_raw_parts(arg_sizes, count) },
        };
        if name.is_empty() || name.contains('\n') {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a kernel's name is one line that isn't empty"));
        }
        if let Some(index) = sizes.iter().position(|&size| size == 0) {
            return Err(fail(ZE_RESULT_ERROR_INVALID_SIZE, format!("argument {index} of kernel {name} has size 0")));
        }
        if sizes.iter().any(|&size| size > MAX_ARGUMENTS_SIZE) || layout(sizes).1 > MAX_ARGUMENTS_SIZE {
            let text = format!("the arguments of kernel {name} take more than {MAX_ARGUMENTS_SIZE} bytes");
            return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, text));
        }
        let (arguments, size) = layout(sizes);
        REGISTERED.write().entry(module).or_default().insert(name, Arc::new(Native { function, arguments, size }));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_aligned_to_their_size() {
        let (arguments, size) = layout(&[4, 8, 1, 2, 24, 4]);
        let offsets: Vec<usize> = arguments.iter().map(|argument| argument.offset).collect();
        assert_eq!(offsets, [0, 8, 16, 18, 32, 56]);
        assert_eq!(size, 60);
    }
}
