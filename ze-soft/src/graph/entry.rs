//! Entry points for graphs: those of the specification, and those of Intel's driver that came before them.

use super::capture::Session;
use super::{Executable, Graph, Stage, dump};
use crate::abi::{chain, output, run};
use crate::context::Context;
use crate::entry::entry_points;
use crate::error::fail;
use crate::event;
use crate::handle::{self, export, get, take};
use crate::list::{List, wait_list};
use level_zero_sys::*;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// What the older functions return for "yes", "no" and "the graph is invalid".
const QUERY_TRUE_EXP: ze_result_t = 0x7fff_0000;
const QUERY_FALSE_EXP: ze_result_t = 0x7fff_0001;
const INVALID_GRAPH_EXP: ze_result_t = 0x7fff_0002;

/// Refuses extensions of a call that has none.
fn no_extensions(next: *const c_void) -> Result<(), ze_result_t> {
    let mut unknown = None;
    // SAFETY: the specification's promise about chains.
    unsafe { chain(next.cast_mut(), |stype, _| unknown = Some(stype)) };
    match unknown {
        None => Ok(()),
        Some(stype) => {
            let text = format!("graphs don't know the structure of type {stype:#x}");
            Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, text))
        }
    }
}

unsafe extern "C" fn zeGraphCreateExt(
    hContext: ze_context_handle_t,
    pNext: *const c_void,
    phGraph: *mut ze_graph_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // SAFETY: the specification's promise.
        let graph = unsafe { output(phGraph) }?;
        no_extensions(pNext)?;
        *graph = export(Graph::new());
        Ok(())
    })
}

fn begin(list: ze_command_list_handle_t, graph: Option<ze_graph_handle_t>, next: *const c_void) -> ze_result_t {
    run(|| {
        let recorder = get::<List, _>(list)?;
        let graph = match graph {
            None => None,
            Some(handle) => Some((handle, get::<Graph, _>(handle)?)),
        };
        no_extensions(next)?;
        Session::begin(&recorder.recordable()?, list, graph)
    })
}

unsafe extern "C" fn zeCommandListBeginGraphCaptureExt(
    hCommandList: ze_command_list_handle_t,
    pNext: *const c_void,
) -> ze_result_t {
    begin(hCommandList, None, pNext)
}

unsafe extern "C" fn zeCommandListBeginCaptureIntoGraphExt(
    hCommandList: ze_command_list_handle_t,
    hGraph: ze_graph_handle_t,
    pNext: *const c_void,
) -> ze_result_t {
    begin(hCommandList, Some(hGraph), pNext)
}

/// The capture that a list takes part in.
fn session(list: &List) -> Result<Arc<Session>, ze_result_t> {
    list.session().ok_or_else(|| {
        fail(ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING, "this command list does not take part in a recording")
    })
}

fn is_capturing(list: ze_command_list_handle_t) -> Result<bool, ze_result_t> {
    Ok(get::<List, _>(list)?.session().is_some())
}

/// The code of an answer.
fn answer(result: Result<bool, ze_result_t>, yes: ze_result_t, no: ze_result_t) -> ze_result_t {
    match result {
        Ok(true) => yes,
        Ok(false) => no,
        Err(code) => code,
    }
}

unsafe extern "C" fn zeCommandListIsGraphCaptureEnabledExt(hCommandList: ze_command_list_handle_t) -> ze_result_t {
    answer(is_capturing(hCommandList), ZE_RESULT_QUERY_TRUE, ZE_RESULT_QUERY_FALSE)
}

unsafe extern "C" fn zeCommandListEndGraphCaptureExt(
    hCommandList: ze_command_list_handle_t,
    pNext: *const c_void,
    phGraph: *mut ze_graph_handle_t,
) -> ze_result_t {
    run(|| {
        let list = get::<List, _>(hCommandList)?;
        // SAFETY: the specification's promise.
        let graph = unsafe { output(phGraph) }?;
        no_extensions(pNext)?;
        *graph = std::ptr::null_mut();
        *graph = session(list)?.end(list.key())?;
        Ok(())
    })
}

unsafe extern "C" fn zeCommandListGetGraphExt(
    hCommandList: ze_command_list_handle_t,
    phGraph: *mut ze_graph_handle_t,
) -> ze_result_t {
    run(|| {
        let list = get::<List, _>(hCommandList)?;
        // SAFETY: the specification's promise.
        let graph = unsafe { output(phGraph) }?;
        *graph = std::ptr::null_mut();
        *graph = session(list)?.handle();
        Ok(())
    })
}

unsafe extern "C" fn zeGraphGetPrimaryCommandListExt(
    hGraph: ze_graph_handle_t,
    phCommandList: *mut ze_command_list_handle_t,
) -> ze_result_t {
    run(|| {
        let graph = get::<Graph, _>(hGraph)?;
        // SAFETY: the specification's promise.
        let list = unsafe { output(phCommandList) }?;
        let state = graph.state.lock();
        if matches!(state.stage, Stage::Empty) {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "nothing was recorded into this graph"));
        }
        *list = state.primary as ze_command_list_handle_t;
        Ok(())
    })
}

unsafe extern "C" fn zeGraphSetDestructionCallbackExt(
    hGraph: ze_graph_handle_t,
    pfnCallback: zex_mem_graph_free_callback_fn_t,
    pUserData: *mut c_void,
    pNext: *const c_void,
) -> ze_result_t {
    run(|| {
        let graph = get::<Graph, _>(hGraph)?;
        let function = pfnCallback.ok_or(ZE_RESULT_ERROR_INVALID_NULL_POINTER)?;
        no_extensions(pNext)?;
        graph.add_callback((function, pUserData as usize));
        Ok(())
    })
}

unsafe extern "C" fn zeGraphInstantiateExt(
    hGraph: ze_graph_handle_t,
    pNext: *const c_void,
    phExecutableGraph: *mut ze_executable_graph_handle_t,
) -> ze_result_t {
    run(|| {
        let graph = get::<Graph, _>(hGraph)?;
        // SAFETY: the specification's promise.
        let executable = unsafe { output(phExecutableGraph) }?;
        no_extensions(pNext)?;
        *executable = export(Executable::new(graph, hGraph as usize)?);
        Ok(())
    })
}

unsafe extern "C" fn zeCommandListAppendGraphExt(
    hCommandList: ze_command_list_handle_t,
    hGraph: ze_executable_graph_handle_t,
    pNext: *const c_void,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    run(|| {
        let list = get::<List, _>(hCommandList)?;
        let graph = get::<Executable, _>(hGraph)?;
        no_extensions(pNext)?;
        // SAFETY: the specification's promise about wait lists.
        let target = unsafe { wait_list(list, numWaitEvents, phWaitEvents) }?;
        let signal = if hSignalEvent.is_null() { None } else { Some(event::get(hSignalEvent)?) };
        list.append_graph(graph, target, signal)
    })
}

unsafe extern "C" fn zeExecutableGraphGetSourceGraphExt(
    hGraph: ze_executable_graph_handle_t,
    phSourceGraph: *mut ze_graph_handle_t,
) -> ze_result_t {
    run(|| {
        let executable = get::<Executable, _>(hGraph)?;
        // SAFETY: the specification's promise.
        let graph = unsafe { output(phSourceGraph) }?;
        let handle = executable
            .source_graph()
            .ok_or_else(|| fail(ZE_RESULT_ERROR_INVALID_GRAPH, "the graph that this was made of was destroyed"))?;
        *graph = handle as ze_graph_handle_t;
        Ok(())
    })
}

fn is_empty(graph: ze_graph_handle_t) -> Result<bool, ze_result_t> {
    get::<Graph, _>(graph)?.is_empty()
}

unsafe extern "C" fn zeGraphIsEmptyExt(hGraph: ze_graph_handle_t) -> ze_result_t {
    answer(is_empty(hGraph), ZE_RESULT_QUERY_TRUE, ZE_RESULT_QUERY_FALSE)
}

unsafe extern "C" fn zeGraphDumpContentsExt(
    hGraph: ze_graph_handle_t,
    filePath: *const c_char,
    pNext: *const c_void,
) -> ze_result_t {
    run(|| {
        let graph = get::<Graph, _>(hGraph)?;
        if filePath.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        let (mut detailed, mut unknown) = (true, None);
        let visit = |stype, link: *mut c_void| match stype {
            ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXT_DUMP_DESC
            | ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXP_DUMP_DESC => {
                // SAFETY: both types stand for structures of this layout.
                let mode = unsafe { (*link.cast::<ze_record_replay_graph_ext_dump_desc_t>()).mode };
                detailed = mode == ZE_RECORD_REPLAY_GRAPH_EXT_DUMP_MODE_DETAILED;
                if mode > ZE_RECORD_REPLAY_GRAPH_EXT_DUMP_MODE_SIMPLE {
                    unknown = Some(ZE_RESULT_ERROR_INVALID_ENUMERATION);
                }
            }
            _ => unknown = Some(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE),
        };
        // SAFETY: the specification's promise about chains.
        unsafe { chain(pNext.cast_mut(), visit) };
        if let Some(code) = unknown {
            return Err(fail(code, "a graph can't be written in the way that was asked for"));
        }
        let text = dump::dot(&*graph.body()?, detailed);
        // SAFETY: a pointer that isn't null is a C string.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(filePath) }.to_bytes());
        std::fs::write(path, text).map_err(|error| {
            fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("can't write {}: {error}", path.to_string_lossy()))
        })
    })
}

unsafe extern "C" fn zeExecutableGraphDestroyExt(hGraph: ze_executable_graph_handle_t) -> ze_result_t {
    // Replays that are under way keep what they need.
    run(|| take::<Executable, _>(hGraph).map(drop))
}

unsafe extern "C" fn zeGraphDestroyExt(hGraph: ze_graph_handle_t) -> ze_result_t {
    run(|| {
        // Executables keep what was recorded.
        take::<Graph, _>(hGraph)?.destroyed();
        Ok(())
    })
}

unsafe extern "C" fn zeGraphCreateExp(
    hContext: ze_context_handle_t,
    phGraph: *mut ze_graph_handle_t,
    pNext: *mut c_void,
) -> ze_result_t {
    // SAFETY: the same call, its arguments in another order.
    unsafe { zeGraphCreateExt(hContext, pNext, phGraph) }
}

unsafe extern "C" fn zeCommandListBeginGraphCaptureExp(
    hCommandList: ze_command_list_handle_t,
    pNext: *mut c_void,
) -> ze_result_t {
    begin(hCommandList, None, pNext)
}

unsafe extern "C" fn zeCommandListBeginCaptureIntoGraphExp(
    hCommandList: ze_command_list_handle_t,
    hGraph: ze_graph_handle_t,
    pNext: *mut c_void,
) -> ze_result_t {
    begin(hCommandList, Some(hGraph), pNext)
}

unsafe extern "C" fn zeCommandListEndGraphCaptureExp(
    hCommandList: ze_command_list_handle_t,
    phGraph: *mut ze_graph_handle_t,
    pNext: *mut c_void,
) -> ze_result_t {
    // SAFETY: the same call, its arguments in another order.
    unsafe { zeCommandListEndGraphCaptureExt(hCommandList, pNext, phGraph) }
}

unsafe extern "C" fn zeCommandListInstantiateGraphExp(
    hGraph: ze_graph_handle_t,
    phExecutableGraph: *mut ze_executable_graph_handle_t,
    pNext: *mut c_void,
) -> ze_result_t {
    // SAFETY: the same call, its arguments in another order.
    unsafe { zeGraphInstantiateExt(hGraph, pNext, phExecutableGraph) }
}

unsafe extern "C" fn zeCommandListAppendGraphExp(
    hCommandList: ze_command_list_handle_t,
    hGraph: ze_executable_graph_handle_t,
    pNext: *mut c_void,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    // SAFETY: the same call by its older name.
    unsafe { zeCommandListAppendGraphExt(hCommandList, hGraph, pNext, hSignalEvent, numWaitEvents, phWaitEvents) }
}

unsafe extern "C" fn zeGraphDestroyExp(hGraph: ze_graph_handle_t) -> ze_result_t {
    // SAFETY: the same call by its older name.
    unsafe { zeGraphDestroyExt(hGraph) }
}

unsafe extern "C" fn zeExecutableGraphDestroyExp(hGraph: ze_executable_graph_handle_t) -> ze_result_t {
    // SAFETY: the same call by its older name.
    unsafe { zeExecutableGraphDestroyExt(hGraph) }
}

unsafe extern "C" fn zeCommandListIsGraphCaptureEnabledExp(hCommandList: ze_command_list_handle_t) -> ze_result_t {
    answer(is_capturing(hCommandList), QUERY_TRUE_EXP, QUERY_FALSE_EXP)
}

unsafe extern "C" fn zeGraphIsEmptyExp(hGraph: ze_graph_handle_t) -> ze_result_t {
    match answer(is_empty(hGraph), QUERY_TRUE_EXP, QUERY_FALSE_EXP) {
        ZE_RESULT_ERROR_INVALID_GRAPH => INVALID_GRAPH_EXP,
        code => code,
    }
}

unsafe extern "C" fn zeGraphDumpContentsExp(
    hGraph: ze_graph_handle_t,
    filePath: *const c_char,
    pNext: *mut c_void,
) -> ze_result_t {
    // SAFETY: the same call by its older name.
    unsafe { zeGraphDumpContentsExt(hGraph, filePath, pNext) }
}

unsafe extern "C" fn zeCommandListGetGraphExp(
    hCommandList: ze_command_list_handle_t,
    phGraph: *mut ze_graph_handle_t,
) -> ze_result_t {
    // SAFETY: the same call by its older name.
    unsafe { zeCommandListGetGraphExt(hCommandList, phGraph) }
}

unsafe extern "C" fn zeGraphSetDestructionCallbackExp(
    hGraph: ze_graph_handle_t,
    pfnCallback: zex_mem_graph_free_callback_fn_t,
    pUserData: *mut c_void,
    pNext: *mut c_void,
) -> ze_result_t {
    // SAFETY: the same call by its older name.
    unsafe { zeGraphSetDestructionCallbackExt(hGraph, pfnCallback, pUserData, pNext) }
}

/// A number that no other graph of this process has. Intel's driver hands the function out by name only.
unsafe extern "C" fn zeGraphGetIdExt(hGraph: ze_graph_handle_t, pGraphId: *mut u64) -> ze_result_t {
    handle::answer(hGraph, pGraphId, |graph: &Graph| Ok(graph.id))
}

/// The functions that no header declares.
pub(crate) fn extension(name: &CStr) -> Option<*const c_void> {
    let function: unsafe extern "C" fn(ze_graph_handle_t, *mut u64) -> ze_result_t = zeGraphGetIdExt;
    (name == c"zeGraphGetIdExt").then_some(function as *const c_void)
}

entry_points! {
    zeGraphCreateExt: zeGraphCreateExt_t,
    zeCommandListBeginGraphCaptureExt: zeCommandListBeginGraphCaptureExt_t,
    zeCommandListBeginCaptureIntoGraphExt: zeCommandListBeginCaptureIntoGraphExt_t,
    zeCommandListIsGraphCaptureEnabledExt: zeCommandListIsGraphCaptureEnabledExt_t,
    zeCommandListEndGraphCaptureExt: zeCommandListEndGraphCaptureExt_t,
    zeCommandListGetGraphExt: zeCommandListGetGraphExt_t,
    zeGraphGetPrimaryCommandListExt: zeGraphGetPrimaryCommandListExt_t,
    zeGraphSetDestructionCallbackExt: zeGraphSetDestructionCallbackExt_t,
    zeGraphInstantiateExt: zeGraphInstantiateExt_t,
    zeCommandListAppendGraphExt: zeCommandListAppendGraphExt_t,
    zeExecutableGraphGetSourceGraphExt: zeExecutableGraphGetSourceGraphExt_t,
    zeGraphIsEmptyExt: zeGraphIsEmptyExt_t,
    zeGraphDumpContentsExt: zeGraphDumpContentsExt_t,
    zeExecutableGraphDestroyExt: zeExecutableGraphDestroyExt_t,
    zeGraphDestroyExt: zeGraphDestroyExt_t,
    zeGraphCreateExp: zeGraphCreateExp_t,
    zeCommandListBeginGraphCaptureExp: zeCommandListBeginGraphCaptureExp_t,
    zeCommandListBeginCaptureIntoGraphExp: zeCommandListBeginCaptureIntoGraphExp_t,
    zeCommandListEndGraphCaptureExp: zeCommandListEndGraphCaptureExp_t,
    zeCommandListInstantiateGraphExp: zeCommandListInstantiateGraphExp_t,
    zeCommandListAppendGraphExp: zeCommandListAppendGraphExp_t,
    zeGraphDestroyExp: zeGraphDestroyExp_t,
    zeExecutableGraphDestroyExp: zeExecutableGraphDestroyExp_t,
    zeCommandListIsGraphCaptureEnabledExp: zeCommandListIsGraphCaptureEnabledExp_t,
    zeGraphIsEmptyExp: zeGraphIsEmptyExp_t,
    zeGraphDumpContentsExp: zeGraphDumpContentsExp_t,
    zeCommandListGetGraphExp: zeCommandListGetGraphExp_t,
    zeGraphSetDestructionCallbackExp: zeGraphSetDestructionCallbackExp_t,
}
