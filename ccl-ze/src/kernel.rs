//! A device kernel: what the driver says of it, its arguments, and its launch.

use crate::api::{Api, ze};
use crate::gpu::Gpu;
use crate::kernels::{self, Signature};
use crate::sycl;
use ccl_core::{Error, Result};
use level_zero_sys::*;
use qcell::{QCell, QCellOwner, QCellOwnerID};
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

/// Staging memory is a device's or the host's; where a driver has mapped another rank's is its own affair.
const ANY_MEMORY: ze_kernel_indirect_access_flags_t =
    ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST | ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE | ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED;
/// Most arguments of a kernel.
pub(crate) const MOST_ARGUMENTS: usize = 40;
/// Bytes of an argument that may be an address.
const ADDRESS: usize = size_of::<*const c_void>();

/// What the driver says of a kernel.
#[doc(hidden)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelFacts {
    /// Its name.
    pub name: String,
    /// Work-items of a group.
    pub group_size: u32,
    /// Work-items that run in one thread.
    pub subgroup_size: u32,
    /// Bytes of registers that did not fit, a work-item.
    pub spilled: u32,
    /// Groups of this size that are certain to run at the same time.
    pub resident_groups: u32,
}

/// A kernel with its group size set.
pub(crate) struct Kernel {
    /// The same for SYCL queues, once one is used. Dropped before the module.
    on_queues: OnceLock<QueueKernel>,
    api: Arc<Api>,
    module: ze_module_handle_t,
    handle: ze_kernel_handle_t,
    pub(crate) facts: KernelFacts,
    /// Sizes of its arguments.
    sizes: &'static [usize],
    by_table: bool,
    /// Whether they are the members of one structure, each a 64-bit word.
    packed: bool,
    /// The arguments that were set one by one. Whoever launches has the device's turn, from the first to the append of the
    /// launch that they are for.
    set: QCell<Arguments>,
}

/// What is known of a kernel's arguments, where they are set one by one.
struct Arguments {
    words: [u64; MOST_ARGUMENTS],
    /// One bit for each of which it is known that it is set to its word.
    known: u64,
}

const NOTHING_SET: Arguments = Arguments { words: [0; MOST_ARGUMENTS], known: 0 };

const _: () = assert!(MOST_ARGUMENTS < 64);

// SAFETY: a handle that any thread may use; the turn serialises those who set arguments and launch.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// A kernel of a module, whose groups have at most `most_items` work-items, which reaches memory through a table, if
    /// so `by_table`, and which has one argument, a structure of all, if `packed`.
    pub(crate) fn create(
        api: &Arc<Api>,
        module: ze_module_handle_t,
        signature: &Signature,
        most_items: u32,
        by_table: bool,
        packed: bool,
        turn: QCellOwnerID,
    ) -> Result<Kernel> {
        let Signature { name, arg_sizes: sizes } = signature;
        let text = kernels::terminated(name)?;
        let desc = ze_kernel_desc_t { pKernelName: text.as_ptr(), ..Default::default() };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live module; name, descriptor and output outlive the call.
        let made = unsafe { ze!(api, zeKernelCreate(module, &raw const desc, &raw mut handle)) };
        made.map_err(|error| of_kernel(error, name))?;
        let facts = KernelFacts { name: name.clone(), group_size: 1, subgroup_size: 1, spilled: 0, resident_groups: 0 };
        let set = turn.cell(NOTHING_SET);
        let mut kernel = Kernel {
            on_queues: OnceLock::new(),
            api: api.clone(),
            module,
            handle,
            facts,
            sizes,
            by_table,
            packed,
            set,
        };
        kernel.settle(most_items).map_err(|error| of_kernel(error, name))?;
        kernel.name_its_reach(handle).map_err(|error| of_kernel(error, name))?;
        Ok(kernel)
    }

    /// Tells the driver, of a handle of this kernel, that it reaches memory that is not among its arguments: the other ranks'
    /// staging memory, whose addresses are in a table, or all of it, where the addresses are in a structure. A driver makes
    /// resident what a launch names, and nothing else without this.
    fn name_its_reach(&self, handle: ze_kernel_handle_t) -> Result<()> {
        if !self.by_table && !self.packed {
            return Ok(());
        }
        // SAFETY: a live kernel.
        unsafe { ze!(self.api, zeKernelSetIndirectAccess(handle, ANY_MEMORY)) }
    }

    /// What the driver was told of its reach; `None` if it can't say.
    #[cfg(test)]
    pub(crate) fn indirect_access(&self) -> Option<ze_kernel_indirect_access_flags_t> {
        let mut flags = 0;
        // SAFETY: a live kernel, and a place for the flags.
        let code = unsafe { (self.api.table.zeKernelGetIndirectAccess?)(self.handle, &raw mut flags) };
        (code == ZE_RESULT_SUCCESS).then_some(flags)
    }

    /// Sets the group size and asks what follows from it.
    fn settle(&mut self, most_items: u32) -> Result<()> {
        let mut largest = ze_kernel_max_group_size_properties_ext_t::default();
        let mut properties = ze_kernel_properties_t { pNext: (&raw mut largest).cast(), ..Default::default() };
        // SAFETY: a live kernel and chained descriptors of the right types.
        unsafe { ze!(self.api, zeKernelGetProperties(self.handle, &raw mut properties))? };
        let facts = &mut self.facts;
        facts.subgroup_size = properties.maxSubgroupSize;
        facts.spilled = properties.spillMemSize;
        facts.group_size = group_size(&properties, largest.maxGroupSize, most_items);
        // SAFETY: a live kernel, and a place for the number.
        unsafe {
            ze!(self.api, zeKernelSetGroupSize(self.handle, facts.group_size, 1, 1))?;
            ze!(self.api, zeKernelSuggestMaxCooperativeGroupCount(self.handle, &raw mut facts.resident_groups))
        }
    }

    /// Appends a launch: one call where the driver takes arguments with it, else one for each argument that has to be set
    /// and one for the launch. The launch is a plain one: that the groups of a collective run at the same time follows from
    /// their number, which `resident_groups` limits; a cooperative launch would only say it again.
    ///
    /// Addresses are set for each launch, whatever was set before: a driver remembers which allocation an address was in,
    /// makes that resident for the launch, and is not asked to forget it when the allocation goes. What has the address now
    /// may be another one, of ours or of the caller's.
    ///
    /// `first` stands in the place of the first two `words`: as a rule they are what changes from call to call.
    ///
    /// # Safety
    /// The words must be what the kernel's arguments may be until the launch has finished; list and events must be live,
    /// and appends to the list serialised.
    #[expect(clippy::too_many_arguments, reason = "what a launch takes")]
    pub(crate) unsafe fn launch<const N: usize>(
        &self,
        turn: &mut QCellOwner,
        list: ze_command_list_handle_t,
        groups: u32,
        first: [u64; 2],
        words: &[u64; N],
        signal: ze_event_handle_t,
        after: &[ze_event_handle_t],
    ) -> Result<()> {
        const { assert!(N >= 2 && N <= MOST_ARGUMENTS) };
        if N != self.sizes.len() {
            return Err(Error::Internal(format!("{N} arguments for kernel {}", self.facts.name)));
        }
        let api = &*self.api;
        let count = ze_group_count_t { groupCountX: groups, groupCountY: 1, groupCountZ: 1 };
        let (waits, wait_list) = (after.len() as u32, after.as_ptr().cast_mut());
        let whole = || {
            let mut whole = *words;
            whole[..2].copy_from_slice(&first);
            whole
        };
        if let Some(launch) = api.table.zeCommandListAppendLaunchKernelWithArguments {
            let size = ze_group_size_t { groupSizeX: self.facts.group_size, groupSizeY: 1, groupSizeZ: 1 };
            let word = |i: usize| first.get(i).unwrap_or(&words[i]);
            let mut pointers: [*mut c_void; N] = std::array::from_fn(|i| (&raw const *word(i)).cast_mut().cast());
            let structure;
            // The first is the only argument then.
            if self.packed {
                structure = whole();
                pointers[0] = structure.as_ptr().cast_mut().cast();
            }
            let (pointers, nothing) = (pointers.as_mut_ptr(), std::ptr::null());
            api.count();
            // SAFETY: live list, kernel and events; at least one pointer per argument, each to a value at least as wide as
            // the argument (the machine is little-endian, so a narrow one is the first bytes; packed, all words are one).
            let code = unsafe { launch(list, self.handle, count, size, pointers, nothing, signal, waits, wait_list) };
            return api.check("zeCommandListAppendLaunchKernelWithArguments", code);
        }
        self.set_each(turn.rw(&self.set), &whole())?;
        // SAFETY: live list, kernel with all arguments set, live events; the count is read during the call.
        unsafe {
            ze!(api, zeCommandListAppendLaunchKernel(list, self.handle, &raw const count, signal, waits, wait_list))
        }
    }

    /// Sets the arguments, one by one: what may be an address, and of the rest what has changed.
    fn set_each(&self, set: &mut Arguments, words: &[u64]) -> Result<()> {
        if self.packed {
            // SAFETY: a live kernel, whose one argument is a structure of these words.
            return unsafe {
                ze!(self.api, zeKernelSetArgumentValue(self.handle, 0, size_of_val(words), words.as_ptr().cast()))
            };
        }
        for (index, (word, &size)) in (0..).zip(words.iter().zip(self.sizes)) {
            let (bit, place) = (1 << index, index as usize);
            if size == ADDRESS || set.known & bit == 0 || set.words[place] != *word {
                // If it fails, what is set is no longer known.
                set.known &= !bit;
                // SAFETY: a live kernel, and a value at least as wide as the argument.
                unsafe {
                    ze!(self.api, zeKernelSetArgumentValue(self.handle, index, size, (&raw const *word).cast()))?;
                }
                set.words[place] = *word;
                set.known |= bit;
            }
        }
        Ok(())
    }
}

/// A kernel as a SYCL runtime has it, with a Level Zero kernel of its own, since the runtime sets that one's arguments.
struct QueueKernel {
    // Fields are dropped in this order.
    kernel: sycl::Kernel,
    _owned: OwnedKernel,
}

struct OwnedKernel {
    api: Arc<Api>,
    handle: ze_kernel_handle_t,
}

// SAFETY: a handle that Level Zero lets any thread use.
unsafe impl Send for OwnedKernel {}
// SAFETY: as above.
unsafe impl Sync for OwnedKernel {}

impl Drop for OwnedKernel {
    fn drop(&mut self) {
        // SAFETY: the runtime's kernel on it is gone. A failure can't be helped here.
        let _ = unsafe { ze!(self.api, zeKernelDestroy(self.handle)) };
    }
}

impl Kernel {
    /// Submits a launch to a SYCL queue, as [`sycl::Queue::submit`] does.
    ///
    /// # Safety
    /// As for [`Kernel::launch`]; where a graph records the launch, as long as that may be replayed.
    pub(crate) unsafe fn submit(
        &self,
        queue: &Arc<sycl::Queue>,
        groups: u32,
        words: &[u64],
        after: Option<&sycl::Event>,
        end: sycl::End<'_>,
        unless_recording: bool,
    ) -> Result<bool> {
        if !self.packed || words.len() != self.sizes.len() {
            let what = format!("{} words for kernel {} on a SYCL queue", words.len(), self.facts.name);
            return Err(Error::Internal(what));
        }
        let kernel = match self.on_queues.get() {
            Some(known) => &known.kernel,
            None => {
                let made = self.for_queues(queue)?;
                // Of two that come at once one has made it in vain.
                &self.on_queues.get_or_init(|| made).kernel
            }
        };
        let work = sycl::Work::Launch { kernel, groups, items: self.facts.group_size, words };
        // SAFETY: passed on to the caller.
        unsafe { queue.submit(work, after, end, unless_recording) }
    }

    /// Goes on with a launch, as [`sycl::Queue::go_on`] does; never with its first one.
    ///
    /// # Safety
    /// As for [`Kernel::submit`].
    #[inline(always)]
    pub(crate) unsafe fn go_on(
        &self,
        gpu: &Gpu,
        queue: &Arc<sycl::Queue>,
        groups: u32,
        words: &[u64],
        event: &sycl::Event,
        number: u64,
    ) -> Result<sycl::GoneOn> {
        match self.on_queues.get() {
            Some(known) if words.len() == self.sizes.len() => {
                let size = (groups, self.facts.group_size);
                // SAFETY: passed on to the caller.
                unsafe { queue.go_on(gpu, &known.kernel, size, words, event, number) }
            }
            _ => Ok(sycl::GoneOn::No),
        }
    }

    fn for_queues(&self, queue: &sycl::Queue) -> Result<QueueKernel> {
        let text = kernels::terminated(&self.facts.name)?;
        let desc = ze_kernel_desc_t { pKernelName: text.as_ptr(), ..Default::default() };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live module; name, descriptor and output outlive the call.
        unsafe { ze!(self.api, zeKernelCreate(self.module, &raw const desc, &raw mut handle))? };
        let _owned = OwnedKernel { api: self.api.clone(), handle };
        self.name_its_reach(handle)?;
        // SAFETY: live handles of the queue's context, which was compared; the module outlives its kernels.
        let kernel = unsafe { queue.kernel(self.module, handle)? };
        Ok(QueueKernel { kernel, _owned })
    }
}

const _: () = assert!(cfg!(target_endian = "little"), "narrow kernel arguments are passed as the first bytes of a u64");

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: whoever drops it has made sure that no launch of it is in flight. A failure can't be helped here.
        let _ = unsafe { ze!(self.api, zeKernelDestroy(self.handle)) };
    }
}

/// Work-items of a group: what the kernel demands, else as many whole sub-groups as the limits leave room for.
fn group_size(properties: &ze_kernel_properties_t, kernel_limit: u32, most_items: u32) -> u32 {
    if properties.requiredGroupSizeX != 0 {
        return properties.requiredGroupSizeX;
    }
    // A driver that doesn't know the question leaves the answer 0.
    let limit = if kernel_limit == 0 { most_items } else { most_items.min(kernel_limit) };
    let subgroup = properties.maxSubgroupSize.max(1);
    if limit < subgroup { limit.max(1) } else { limit - limit % subgroup }
}

fn of_kernel(error: Error, name: &str) -> Error {
    match error {
        Error::Device { call, detail } => Error::Device { call, detail: format!("kernel {name}: {detail}") },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_whole_subgroups_within_the_limits() {
        let kernel = |required, subgroup| ze_kernel_properties_t {
            requiredGroupSizeX: required,
            maxSubgroupSize: subgroup,
            ..Default::default()
        };
        assert_eq!(group_size(&kernel(0, 32), 1024, 256), 256);
        assert_eq!(group_size(&kernel(0, 32), 0, 256), 256, "a driver that knows no limit of the kernel");
        assert_eq!(group_size(&kernel(0, 16), 100, 256), 96);
        assert_eq!(group_size(&kernel(128, 16), 1024, 256), 128);
        assert_eq!(group_size(&kernel(0, 32), 1024, 1), 1, "a native kernel plays a whole group");
        assert_eq!(group_size(&kernel(0, 0), 1024, 64), 64);
    }
}
