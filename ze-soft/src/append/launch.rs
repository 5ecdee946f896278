//! Entry points that append kernels.

use super::{Edges, append};
use crate::abi::{chain, input};
use crate::entry::entry_points;
use crate::error::fail;
use crate::handle::get;
use crate::kernel::{Kernel, Overrides};
use crate::op::Op;
use level_zero_sys::*;
use std::ffi::c_void;

/// How a kernel is launched.
struct Launch {
    groups: [u32; 3],
    overrides: Option<Overrides>,
    cooperative: bool,
}

fn append_launch(
    list: ze_command_list_handle_t,
    kernel: ze_kernel_handle_t,
    edges: &Edges,
    launch: impl FnOnce() -> Result<Launch, ze_result_t>,
) -> ze_result_t {
    append(list, edges, |list| {
        let kernel = get::<Kernel, _>(kernel)?;
        let launch = launch()?;
        if !list.computes() {
            let text = "this command list's queue group only copies: it runs no kernels";
            return Err(fail(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, text));
        }
        kernel.bind(launch.groups, launch.overrides, launch.cooperative).map(Op::Launch)
    })
}

fn groups(count: &ze_group_count_t) -> [u32; 3] {
    [count.groupCountX, count.groupCountY, count.groupCountZ]
}

/// Whether a launch's extensions make it cooperative.
fn cooperative(next: *const c_void) -> Result<bool, ze_result_t> {
    let mut cooperative = false;
    let mut unknown = None;
    let visit = |stype, link: *mut c_void| match stype {
        ZE_STRUCTURE_TYPE_COMMAND_LIST_APPEND_PARAM_COOPERATIVE_DESC => {
            let desc = link.cast::<ze_command_list_append_launch_kernel_param_cooperative_desc_t>();
            // SAFETY: the type stands for this structure.
            cooperative = unsafe { (*desc).isCooperative } != 0;
        }
        stype => unknown = Some(stype),
    };
    // SAFETY: the specification's promise about chains.
    unsafe { chain(next.cast_mut(), visit) };
    match unknown {
        None => Ok(cooperative),
        Some(stype) => {
            let text = format!("a kernel can't be launched with the structure of type {stype:#x}");
            Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, text))
        }
    }
}

unsafe extern "C" fn zeCommandListAppendLaunchKernel(
    hCommandList: ze_command_list_handle_t,
    hKernel: ze_kernel_handle_t,
    pLaunchFuncArgs: *const ze_group_count_t,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append_launch(hCommandList, hKernel, &edges, || {
        // SAFETY: the specification's promise.
        let groups = groups(unsafe { input(pLaunchFuncArgs) }?);
        Ok(Launch { groups, overrides: None, cooperative: false })
    })
}

unsafe extern "C" fn zeCommandListAppendLaunchCooperativeKernel(
    hCommandList: ze_command_list_handle_t,
    hKernel: ze_kernel_handle_t,
    pLaunchFuncArgs: *const ze_group_count_t,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append_launch(hCommandList, hKernel, &edges, || {
        // SAFETY: the specification's promise.
        let groups = groups(unsafe { input(pLaunchFuncArgs) }?);
        Ok(Launch { groups, overrides: None, cooperative: true })
    })
}

unsafe extern "C" fn zeCommandListAppendLaunchKernelWithParameters(
    hCommandList: ze_command_list_handle_t,
    hKernel: ze_kernel_handle_t,
    pGroupCounts: *const ze_group_count_t,
    pNext: *const c_void,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append_launch(hCommandList, hKernel, &edges, || {
        // SAFETY: the specification's promise.
        let groups = groups(unsafe { input(pGroupCounts) }?);
        Ok(Launch { groups, overrides: None, cooperative: cooperative(pNext)? })
    })
}

unsafe extern "C" fn zeCommandListAppendLaunchKernelWithArguments(
    hCommandList: ze_command_list_handle_t,
    hKernel: ze_kernel_handle_t,
    groupCounts: ze_group_count_t,
    groupSizes: ze_group_size_t,
    pArguments: *mut *mut c_void,
    pNext: *const c_void,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    let edges = Edges { signal: hSignalEvent, wait_count: numWaitEvents, waits: phWaitEvents };
    append_launch(hCommandList, hKernel, &edges, || {
        let overrides = Overrides {
            group_size: [groupSizes.groupSizeX, groupSizes.groupSizeY, groupSizes.groupSizeZ],
            arguments: pArguments.cast(),
        };
        let cooperative = cooperative(pNext)?;
        Ok(Launch { groups: groups(&groupCounts), overrides: Some(overrides), cooperative })
    })
}

entry_points! {
    zeCommandListAppendLaunchKernel: zeCommandListAppendLaunchKernel_t,
    zeCommandListAppendLaunchCooperativeKernel: zeCommandListAppendLaunchCooperativeKernel_t,
    zeCommandListAppendLaunchKernelWithParameters: zeCommandListAppendLaunchKernelWithParameters_t,
    zeCommandListAppendLaunchKernelWithArguments: zeCommandListAppendLaunchKernelWithArguments_t,
}
