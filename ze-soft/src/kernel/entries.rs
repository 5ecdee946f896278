//! The entry points of kernels.

use super::{Code, Kernel};
use crate::abi::{bytes, chain, input, output, run};
use crate::device::MAX_GROUP_SIZE;
use crate::engine::{self, cuda};
use crate::entry::entry_points;
use crate::error::fail;
use crate::ext;
use crate::handle::{answer, export, get, take};
use crate::module::{self, Module, hex};
use level_zero_sys::*;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// What a group is suggested to have where the global size allows it.
const SUGGESTED_GROUP_SIZE: u32 = 256;

unsafe extern "C" fn zeKernelCreate(
    hModule: ze_module_handle_t,
    desc: *const ze_kernel_desc_t,
    phKernel: *mut ze_kernel_handle_t,
) -> ze_result_t {
    run(|| {
        let module = get::<Module, _>(hModule)?;
        // SAFETY: the specification's promise.
        let (desc, kernel) = unsafe { (input(desc)?, output(phKernel)?) };
        if desc.flags & !(ZE_KERNEL_FLAG_FORCE_RESIDENCY | ZE_KERNEL_FLAG_EXPLICIT_RESIDENCY) != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        if desc.pKernelName.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        // SAFETY: a pointer that isn't null is a C string.
        let name = unsafe { CStr::from_ptr(desc.pKernelName) };
        let text = name.to_string_lossy();
        let refuse = |why: &str| {
            let module = hex(&module.hash);
            fail(ZE_RESULT_ERROR_INVALID_KERNEL_NAME, format!("kernel {text} {why} the module with sha256 {module}"))
        };
        if !module.has(&text) {
            return Err(refuse("is not in"));
        }
        let code = match &module.kind {
            module::Kind::Native => {
                Code::Native(ext::native(&module.hash, &text).ok_or_else(|| refuse("is not registered for"))?)
            }
            module::Kind::Spirv(program) => match engine::Kernel::find(program, name) {
                Ok(Some(found)) => Code::Spirv(Arc::new(found)),
                Ok(None) => return Err(refuse("is not in")),
                Err(why) => return Err(refuse(&format!("can't be made ({why}) of"))),
            },
            module::Kind::Cuda(program) => match cuda::Kernel::find(program, name) {
                Ok(Some(found)) => Code::Cuda(Arc::new(found)),
                Ok(None) => return Err(refuse("is not in")),
                Err(why) => return Err(refuse(&format!("can't be made ({why}) of"))),
            },
        };
        *kernel = export(Arc::new(Kernel::new(name.to_owned(), module.hash, code)));
        Ok(())
    })
}

unsafe extern "C" fn zeKernelDestroy(hKernel: ze_kernel_handle_t) -> ze_result_t {
    // Launches keep what they need of it.
    run(|| take::<Kernel, _>(hKernel).map(drop))
}

unsafe extern "C" fn zeKernelSetGroupSize(
    hKernel: ze_kernel_handle_t,
    groupSizeX: u32,
    groupSizeY: u32,
    groupSizeZ: u32,
) -> ze_result_t {
    run(|| {
        let kernel = get::<Kernel, _>(hKernel)?;
        kernel.set_group_size([groupSizeX, groupSizeY, groupSizeZ])
    })
}

unsafe extern "C" fn zeKernelSetGlobalOffsetExp(
    hKernel: ze_kernel_handle_t,
    offsetX: u32,
    offsetY: u32,
    offsetZ: u32,
) -> ze_result_t {
    run(|| get::<Kernel, _>(hKernel)?.set_global_offset([offsetX, offsetY, offsetZ]))
}

unsafe extern "C" fn zeKernelSuggestGroupSize(
    hKernel: ze_kernel_handle_t,
    globalSizeX: u32,
    globalSizeY: u32,
    globalSizeZ: u32,
    groupSizeX: *mut u32,
    groupSizeY: *mut u32,
    groupSizeZ: *mut u32,
) -> ze_result_t {
    run(|| {
        get::<Kernel, _>(hKernel)?;
        if globalSizeX == 0 || globalSizeY == 0 || globalSizeZ == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION);
        }
        // SAFETY: the specification's promise; each is written while no other reference to it lives.
        unsafe {
            // The largest power of two that divides the size, so that no group is part empty.
            *output(groupSizeX)? = (1 << globalSizeX.trailing_zeros()).min(SUGGESTED_GROUP_SIZE);
            *output(groupSizeY)? = 1;
            *output(groupSizeZ)? = 1;
        }
        Ok(())
    })
}

unsafe extern "C" fn zeKernelSuggestMaxCooperativeGroupCount(
    hKernel: ze_kernel_handle_t,
    totalGroupCount: *mut u32,
) -> ze_result_t {
    answer(hKernel, totalGroupCount, |kernel: &Kernel| Ok(kernel.code.most_groups(kernel.state.lock().group_size)))
}

unsafe extern "C" fn zeKernelSetArgumentValue(
    hKernel: ze_kernel_handle_t,
    argIndex: u32,
    argSize: usize,
    pArgValue: *const c_void,
) -> ze_result_t {
    run(|| {
        let kernel = get::<Kernel, _>(hKernel)?;
        // SAFETY: the specification's promise: a value has the size that was passed.
        unsafe { kernel.set_argument(argIndex, argSize, pArgValue) }
    })
}

unsafe extern "C" fn zeKernelSetIndirectAccess(
    hKernel: ze_kernel_handle_t,
    flags: ze_kernel_indirect_access_flags_t,
) -> ze_result_t {
    run(|| {
        let kernel = get::<Kernel, _>(hKernel)?;
        let known = ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST
            | ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE
            | ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED;
        if flags & !known != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        kernel.state.lock().indirect = flags;
        Ok(())
    })
}

unsafe extern "C" fn zeKernelGetIndirectAccess(
    hKernel: ze_kernel_handle_t,
    pFlags: *mut ze_kernel_indirect_access_flags_t,
) -> ze_result_t {
    answer(hKernel, pFlags, |kernel: &Kernel| Ok(kernel.state.lock().indirect))
}

unsafe extern "C" fn zeKernelGetSourceAttributes(
    hKernel: ze_kernel_handle_t,
    pSize: *mut u32,
    pString: *mut *mut c_char,
) -> ze_result_t {
    run(|| {
        get::<Kernel, _>(hKernel)?;
        // SAFETY: the specification's promise; what is asked for is optional.
        let (size, string) = unsafe { (output(pSize)?, pString.as_mut()) };
        // Of what the source says nothing but the group size is kept, and that is among the properties: an empty text.
        if let Some(string) = string
            && *size > 0
            && !string.is_null()
        {
            // SAFETY: the program's buffer has room for `*size` characters.
            unsafe { string.write(0) };
        }
        *size = 1;
        Ok(())
    })
}

unsafe extern "C" fn zeKernelSetCacheConfig(
    hKernel: ze_kernel_handle_t,
    flags: ze_cache_config_flags_t,
) -> ze_result_t {
    run(|| {
        get::<Kernel, _>(hKernel)?;
        if flags & !(ZE_CACHE_CONFIG_FLAG_LARGE_SLM | ZE_CACHE_CONFIG_FLAG_LARGE_DATA) != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        // A processor's caches have no such choice.
        Ok(())
    })
}

unsafe extern "C" fn zeKernelGetProperties(
    hKernel: ze_kernel_handle_t,
    pKernelProperties: *mut ze_kernel_properties_t,
) -> ze_result_t {
    run(|| {
        let kernel = get::<Kernel, _>(hKernel)?;
        // SAFETY: the specification's promise.
        let properties = unsafe { output(pKernelProperties) }?;
        let mut uuid = ze_kernel_uuid_t::default();
        uuid.mid.copy_from_slice(&kernel.module[..16]);
        for (i, byte) in kernel.name.to_bytes().iter().enumerate() {
            let slot = &mut uuid.kid[i % 16];
            *slot = slot.rotate_left(3) ^ byte;
        }
        *properties = ze_kernel_properties_t {
            stype: properties.stype,
            pNext: properties.pNext,
            numKernelArgs: kernel.code.arguments().len() as u32,
            maxSubgroupSize: 32,
            maxNumSubgroups: MAX_GROUP_SIZE / 16,
            uuid,
            ..Default::default()
        };
        let mut multiple = 16;
        let facts = match &kernel.code {
            Code::Native(_) => None,
            Code::Spirv(kernel) => Some((kernel.facts, kernel.required_subgroup_size())),
            Code::Cuda(kernel) => Some((kernel.facts, kernel.required_subgroup_size())),
        };
        if let Some((facts, subgroup_size)) = facts {
            let [x, y, z] = kernel.code.required_group_size().unwrap_or_default();
            (properties.requiredGroupSizeX, properties.requiredGroupSizeY, properties.requiredGroupSizeZ) = (x, y, z);
            properties.requiredSubgroupSize = subgroup_size.unwrap_or(0);
            (properties.maxSubgroupSize, properties.maxNumSubgroups) = (facts.subgroup_size, facts.subgroups);
            (properties.localMemSize, properties.privateMemSize) = (facts.local_memory, facts.private_memory);
            // What a processor's compiler spills it spills to the stack, and nobody counts it: spillMemSize stays 0.
            multiple = facts.subgroup_size.max(1);
        }
        // SAFETY: the specification's promise about chains; each type stands for its structure.
        unsafe {
            chain(properties.pNext, |stype, link| match stype {
                ZE_STRUCTURE_TYPE_KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES => {
                    (*link.cast::<ze_kernel_max_group_size_properties_ext_t>()).maxGroupSize = kernel.code.most_items();
                }
                ZE_STRUCTURE_TYPE_KERNEL_PREFERRED_GROUP_SIZE_PROPERTIES => {
                    (*link.cast::<ze_kernel_preferred_group_size_properties_t>()).preferredMultiple = multiple;
                }
                _ => {}
            });
        }
        Ok(())
    })
}

unsafe extern "C" fn zeKernelGetName(
    hKernel: ze_kernel_handle_t,
    pSize: *mut usize,
    pName: *mut c_char,
) -> ze_result_t {
    run(|| {
        let kernel = get::<Kernel, _>(hKernel)?;
        // SAFETY: the specification's promise.
        unsafe { bytes(pSize, pName.cast(), kernel.name.to_bytes_with_nul()) }
    })
}

entry_points! {
    zeKernelCreate: zeKernelCreate_t,
    zeKernelDestroy: zeKernelDestroy_t,
    zeKernelSetGroupSize: zeKernelSetGroupSize_t,
    zeKernelSetGlobalOffsetExp: zeKernelSetGlobalOffsetExp_t,
    zeKernelSuggestGroupSize: zeKernelSuggestGroupSize_t,
    zeKernelSuggestMaxCooperativeGroupCount: zeKernelSuggestMaxCooperativeGroupCount_t,
    zeKernelSetArgumentValue: zeKernelSetArgumentValue_t,
    zeKernelSetIndirectAccess: zeKernelSetIndirectAccess_t,
    zeKernelGetIndirectAccess: zeKernelGetIndirectAccess_t,
    zeKernelGetSourceAttributes: zeKernelGetSourceAttributes_t,
    zeKernelSetCacheConfig: zeKernelSetCacheConfig_t,
    zeKernelGetProperties: zeKernelGetProperties_t,
    zeKernelGetName: zeKernelGetName_t,
}
