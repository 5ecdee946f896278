//! Kernels of programs, and their launches.

use super::exit::Launch;
use super::lose;
use super::program::Program;
use super::runtime::check;
use super::spirv::{Parameter, Signature};
use crate::device::MAX_GROUP_SIZE;
use crate::ext::{Argument, layout};
use opencl_sys::*;
use parking_lot::Mutex;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// A kernel of a program.
pub(crate) struct Kernel {
    program: Arc<Program>,
    signature: Arc<Signature>,
    pub(crate) facts: Facts,
    /// Where the values of its arguments lie. Of local memory the value is its size.
    pub(crate) arguments: Vec<Argument>,
    /// Where the global offset of a launch lies: behind the values.
    pub(crate) offset: Argument,
    /// The bytes that all values take, the offset included.
    pub(crate) size: usize,
    /// The runtime's kernel objects that no launch uses at the moment: an object's arguments are the object's own, so
    /// launches that run at once need one each.
    spare: Mutex<Vec<Instance>>,
}

/// What the runtime says of a kernel.
#[derive(Clone, Copy, Default)]
pub(crate) struct Facts {
    pub(crate) most_items: u32,
    pub(crate) local_memory: u32,
    pub(crate) private_memory: u32,
    /// Of a group of the most items.
    pub(crate) subgroup_size: u32,
    pub(crate) subgroups: u32,
}

struct Instance(cl_kernel);

// SAFETY: OpenCL allows any thread to use a kernel object as long as no two set its arguments at once; an instance has
// one user at a time.
unsafe impl Send for Instance {}

impl Kernel {
    /// The kernel of that name; `None` if the program has none.
    pub(crate) fn find(program: &Arc<Program>, name: &CStr) -> Result<Option<Self>, String> {
        let Some(signature) = program.signature(name) else { return Ok(None) };
        let sizes = signature.parameters.iter().map(|parameter| parameter.size());
        let sizes: Vec<usize> = sizes.chain([size_of::<[u32; 3]>()]).collect();
        let (mut arguments, size) = layout(&sizes);
        let offset = arguments.pop().ok_or("a kernel has no place for its offset")?;
        let mut kernel = Self {
            program: program.clone(),
            signature: signature.clone(),
            facts: Facts::default(),
            arguments,
            offset,
            size,
            spare: Mutex::default(),
        };
        let instance = kernel.instance()?;
        kernel.facts = kernel.ask(&instance)?;
        kernel.spare.lock().push(instance);
        Ok(Some(kernel))
    }

    /// The group size that its source demands.
    pub(crate) fn required_group_size(&self) -> Option<[u32; 3]> {
        self.signature.group_size
    }

    /// The sub-group size that its source demands.
    pub(crate) fn required_subgroup_size(&self) -> Option<u32> {
        self.signature.subgroup_size
    }

    /// Whether an argument is local memory, which has a size and no value.
    pub(crate) fn is_local(&self, argument: usize) -> bool {
        matches!(self.signature.parameters.get(argument), Some(Parameter::Local))
    }

    /// Executes the grid, and returns when it is done.
    ///
    /// # Safety
    /// The values lie at `values` as `arguments` says, and what the kernel reaches through them is accessible.
    pub(crate) unsafe fn run(&self, values: *const u8, groups: [u32; 3], group_size: [u32; 3]) {
        // SAFETY: the caller's promise.
        if let Err(why) = unsafe { self.try_run(values, groups, group_size) } {
            let name = self.signature.name.to_string_lossy();
            lose(format!("a launch of kernel {name} was not executed: {why}"));
        }
    }

    unsafe fn try_run(&self, values: *const u8, groups: [u32; 3], group_size: [u32; 3]) -> Result<(), String> {
        let runtime = self.program.runtime;
        let spare = self.spare.lock().pop();
        let instance = match spare {
            Some(instance) => instance,
            None => self.instance()?,
        };
        for (index, (parameter, argument)) in self.signature.parameters.iter().zip(&self.arguments).enumerate() {
            // SAFETY: the caller's promise.
            unsafe { self.set(&instance, index as u32, *parameter, values.add(argument.offset)) }?;
        }
        let local = group_size.map(|items| items as usize);
        let global: [usize; 3] = std::array::from_fn(|i| groups[i] as usize * local[i]);
        // SAFETY: the caller's promise; the offset lies behind the arguments' values.
        let offset = unsafe { values.add(self.offset.offset).cast::<[u32; 3]>().read_unaligned() };
        let offset = offset.map(|items| items as usize);
        let launched = runtime.with_queue(|queue| {
            let _launch = Launch::begin();
            let enqueue = runtime.api.clEnqueueNDRangeKernel;
            let (offset, global, local) = (offset.as_ptr(), global.as_ptr(), local.as_ptr());
            // SAFETY: live objects; all sizes have three entries; no events. The kernel's memory is the caller's.
            let code = unsafe { enqueue(queue, instance.0, 3, offset, global, local, 0, null(), null_mut()) };
            check("clEnqueueNDRangeKernel", code)?;
            // SAFETY: a live queue.
            check("clFinish", unsafe { (runtime.api.clFinish)(queue) })
        });
        self.spare.lock().push(instance);
        launched?
    }

    /// # Safety
    /// `value` points to a value of the parameter's size.
    unsafe fn set(
        &self,
        instance: &Instance,
        index: u32,
        parameter: Parameter,
        value: *const u8,
    ) -> Result<(), String> {
        let api = &self.program.runtime.api;
        let kernel = instance.0;
        match parameter {
            Parameter::Pointer => {
                // SAFETY: the caller's promise; the parameter is a pointer, as the module itself says.
                let code =
                    unsafe { (api.clSetKernelArgSVMPointer)(kernel, index, value.cast::<*const c_void>().read()) };
                check("clSetKernelArgSVMPointer", code)
            }
            Parameter::Local => {
                // SAFETY: the caller's promise; the parameter is local memory, of which only the size is set.
                let code = unsafe { (api.clSetKernelArg)(kernel, index, value.cast::<usize>().read(), null()) };
                check("clSetKernelArg", code)
            }
            Parameter::Value(size) => {
                // SAFETY: the caller's promise.
                check("clSetKernelArg", unsafe { (api.clSetKernelArg)(kernel, index, size, value.cast()) })
            }
        }
    }

    /// A kernel object of the runtime's.
    fn instance(&self) -> Result<Instance, String> {
        let api = &self.program.runtime.api;
        let mut code = CL_SUCCESS;
        // SAFETY: a live program and a C string.
        let kernel =
            unsafe { (api.clCreateKernel)(self.program.handle.program, self.signature.name.as_ptr(), &raw mut code) };
        check("clCreateKernel", code)?;
        let instance = Instance(kernel);
        let all_memory: cl_bool = 1;
        // Kernels follow pointers that lie in memory, to memory that the runtime was never told of.
        // SAFETY: a live kernel, and a value of the size that this setting has.
        let code = unsafe {
            (api.clSetKernelExecInfo)(
                kernel,
                CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM,
                size_of::<cl_bool>(),
                (&raw const all_memory).cast(),
            )
        };
        if let Err(why) = check("clSetKernelExecInfo", code) {
            self.release(instance);
            return Err(why);
        }
        Ok(instance)
    }

    fn release(&self, instance: Instance) {
        // SAFETY: it was created by this runtime, and nobody uses it any more.
        unsafe { (self.program.runtime.api.clReleaseKernel)(instance.0) };
    }

    fn ask(&self, instance: &Instance) -> Result<Facts, String> {
        let most_items: usize = self.group_info(instance, CL_KERNEL_WORK_GROUP_SIZE)?;
        let local_memory: u64 = self.group_info(instance, CL_KERNEL_LOCAL_MEM_SIZE)?;
        let private_memory: u64 = self.group_info(instance, CL_KERNEL_PRIVATE_MEM_SIZE)?;
        let most_items = u32::try_from(most_items).unwrap_or(u32::MAX).min(MAX_GROUP_SIZE);
        let group = self.signature.group_size.unwrap_or([most_items, 1, 1]).map(|items| items as usize);
        Ok(Facts {
            most_items,
            local_memory: local_memory as u32,
            private_memory: private_memory as u32,
            subgroup_size: self.subgroup_info(instance, CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE, group)?,
            subgroups: self.subgroup_info(instance, CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE, group)?,
        })
    }

    fn group_info<T: Default>(&self, instance: &Instance, what: cl_kernel_work_group_info) -> Result<T, String> {
        let runtime = self.program.runtime;
        let mut value = T::default();
        let place = (&raw mut value).cast::<c_void>();
        let get = runtime.api.clGetKernelWorkGroupInfo;
        // SAFETY: live objects; the callers name types that are what the runtime writes for `what`: plain numbers.
        let code = unsafe { get(instance.0, runtime.device, what, size_of::<T>(), place, null_mut()) };
        check("clGetKernelWorkGroupInfo", code)?;
        Ok(value)
    }

    fn subgroup_info(
        &self,
        instance: &Instance,
        what: cl_kernel_sub_group_info,
        group: [usize; 3],
    ) -> Result<u32, String> {
        let runtime = self.program.runtime;
        let mut value = 0usize;
        // SAFETY: live objects; the input is the group's size, the output one number, both of the sizes that are said.
        let code = unsafe {
            (runtime.api.clGetKernelSubGroupInfo)(
                instance.0,
                runtime.device,
                what,
                size_of_val(&group),
                group.as_ptr().cast(),
                size_of::<usize>(),
                (&raw mut value).cast(),
                null_mut(),
            )
        };
        check("clGetKernelSubGroupInfo", code)?;
        Ok(value as u32)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for instance in std::mem::take(self.spare.get_mut()) {
            self.release(instance);
        }
    }
}
