//! What the tests of graphs share, beyond what those of lists do.

#![allow(dead_code, reason = "each test binary uses its part of this")]

use crate::support::*;
use level_zero_sys::*;
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicU64;

/// The functions for graphs, with the arguments that matter.
pub(crate) trait Graphs {
    fn table(&self) -> &Soft;

    fn begin(&self, list: ze_command_list_handle_t) -> ze_result_t {
        // SAFETY: a live list.
        unsafe { self.table().ze.zeCommandListBeginGraphCaptureExt.unwrap()(list, null()) }
    }

    fn graph(&self) -> ze_graph_handle_t {
        let soft = self.table();
        // SAFETY: a live context and a valid place.
        made(|graph| unsafe { soft.ze.zeGraphCreateExt.unwrap()(soft.context, null(), graph) })
    }

    fn begin_into(&self, list: ze_command_list_handle_t, graph: ze_graph_handle_t) -> ze_result_t {
        // SAFETY: live handles.
        unsafe { self.table().ze.zeCommandListBeginCaptureIntoGraphExt.unwrap()(list, graph, null()) }
    }

    fn try_end(&self, list: ze_command_list_handle_t) -> Result<ze_graph_handle_t, ze_result_t> {
        let mut graph = null_mut();
        // SAFETY: a live list and a valid place.
        match unsafe { self.table().ze.zeCommandListEndGraphCaptureExt.unwrap()(list, null(), &mut graph) } {
            ZE_RESULT_SUCCESS => Ok(graph),
            code => Err(code),
        }
    }

    #[track_caller]
    fn end(&self, list: ze_command_list_handle_t) -> ze_graph_handle_t {
        self.try_end(list).map_err(result_name).unwrap()
    }

    fn capturing(&self, list: ze_command_list_handle_t) -> bool {
        // SAFETY: a live list.
        match unsafe { self.table().ze.zeCommandListIsGraphCaptureEnabledExt.unwrap()(list) } {
            ZE_RESULT_QUERY_TRUE => true,
            ZE_RESULT_QUERY_FALSE => false,
            code => panic!("{}", result_name(code)),
        }
    }

    fn is_empty(&self, graph: ze_graph_handle_t) -> ze_result_t {
        // SAFETY: a handle that this driver gave out.
        unsafe { self.table().ze.zeGraphIsEmptyExt.unwrap()(graph) }
    }

    fn try_instantiate(&self, graph: ze_graph_handle_t) -> Result<ze_executable_graph_handle_t, ze_result_t> {
        let mut executable = null_mut();
        // SAFETY: a live graph and a valid place.
        match unsafe { self.table().ze.zeGraphInstantiateExt.unwrap()(graph, null(), &mut executable) } {
            ZE_RESULT_SUCCESS => Ok(executable),
            code => Err(code),
        }
    }

    #[track_caller]
    fn instantiate(&self, graph: ze_graph_handle_t) -> ze_executable_graph_handle_t {
        self.try_instantiate(graph).map_err(result_name).unwrap()
    }

    fn replay(
        &self,
        list: ze_command_list_handle_t,
        executable: ze_executable_graph_handle_t,
        signal: ze_event_handle_t,
        waits: &[ze_event_handle_t],
    ) -> ze_result_t {
        let waits = (waits.len() as u32, if waits.is_empty() { null_mut() } else { waits.as_ptr().cast_mut() });
        // SAFETY: live handles, an array as long as said.
        unsafe {
            self.table().ze.zeCommandListAppendGraphExt.unwrap()(list, executable, null(), signal, waits.0, waits.1)
        }
    }

    fn destroy_graph(&self, graph: ze_graph_handle_t) -> ze_result_t {
        // SAFETY: a handle that this driver gave out.
        unsafe { self.table().ze.zeGraphDestroyExt.unwrap()(graph) }
    }

    fn destroy_executable(&self, executable: ze_executable_graph_handle_t) {
        // SAFETY: a live executable that the test doesn't use again.
        ok(unsafe { self.table().ze.zeExecutableGraphDestroyExt.unwrap()(executable) });
    }

    /// The graph as `zeGraphDumpContentsExt` writes it.
    fn dump(&self, graph: ze_graph_handle_t) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = std::ffi::CString::new(file.path().to_str().unwrap()).unwrap();
        // SAFETY: a live graph and a C string.
        ok(unsafe { self.table().ze.zeGraphDumpContentsExt.unwrap()(graph, path.as_ptr(), null()) });
        std::fs::read_to_string(file.path()).unwrap()
    }

    fn barrier(
        &self,
        list: ze_command_list_handle_t,
        signal: ze_event_handle_t,
        waits: &[ze_event_handle_t],
    ) -> ze_result_t {
        let waits = (waits.len() as u32, if waits.is_empty() { null_mut() } else { waits.as_ptr().cast_mut() });
        // SAFETY: live handles, an array as long as said.
        unsafe { (self.table().ze.zeCommandListAppendBarrier)(list, signal, waits.0, waits.1) }
    }

    fn wait_on(&self, list: ze_command_list_handle_t, event: ze_event_handle_t) -> ze_result_t {
        let mut event = event;
        // SAFETY: live handles.
        unsafe { (self.table().ze.zeCommandListAppendWaitOnEvents)(list, 1, &mut event) }
    }

    fn signal(&self, list: ze_command_list_handle_t, event: ze_event_handle_t) -> ze_result_t {
        // SAFETY: live handles.
        unsafe { (self.table().ze.zeCommandListAppendSignalEvent)(list, event) }
    }

    /// Appends "copy `from` to `to`".
    #[track_caller]
    fn take(
        &self,
        list: ze_command_list_handle_t,
        to: &'static AtomicU64,
        from: &'static AtomicU64,
        signal: ze_event_handle_t,
        waits: &[ze_event_handle_t],
    ) {
        self.table().launch(list, "take", [&raw const *to as u64, &raw const *from as u64], signal, waits);
    }
}

impl Graphs for Soft {
    fn table(&self) -> &Soft {
        self
    }
}

pub(crate) const NONE: ze_event_handle_t = null_mut();
