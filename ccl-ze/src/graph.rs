//! Level Zero graphs: what is appended to a stream is captured, and replayed as often as wanted.

use crate::api::{Api, ze_optional};
use crate::capture;
use crate::communicator::CallOptions;
use crate::completion::Completion;
use crate::gpu::Gpu;
use crate::recording::Recording;
use crate::replay::Replays;
use crate::stream::{Form, Stream};
use ccl_core::{Error, Result};
use level_zero_sys::*;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// Calls the function of the extension, or the one of its experimental forerunner where a driver has only that.
macro_rules! ze_graph {
    ($api:expr, $ext:ident ( $($a:expr),* ), $exp:ident ( $($b:expr),* )) => {
        if $api.table.$ext.is_some() || $api.table.$exp.is_none() {
            supported(ze_optional!($api, $ext ( $($a),* )))
        } else {
            supported(ze_optional!($api, $exp ( $($b),* )))
        }
    };
}

/// A loader exports the functions also over a driver that doesn't have them.
fn supported(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::Device { call, detail }) if detail.starts_with("ZE_RESULT_ERROR_UNSUPPORTED_") => {
            Err(Error::NotImplemented(format!("graphs: this Level Zero driver lacks {call}")))
        }
        other => other,
    }
}

impl Stream {
    /// From here on what is appended is captured instead of run. An error if the driver has no graphs
    /// (`NotImplemented`) or the stream is being captured.
    pub fn begin_capture(&self) -> Result<()> {
        if let Form::Regular(_) = self.form {
            return Err(Error::InvalidUsage(
                "a regular list records by itself; only an immediate one is captured".into(),
            ));
        }
        capture::sweep();
        self.check_list("a capture of the driver's")?;
        self.mark_foreign();
        let (api, list) = (&*self.gpu.api, self.list());
        let _guard = self.lock.lock();
        // SAFETY: a live list.
        unsafe {
            ze_graph!(
                api,
                zeCommandListBeginGraphCaptureExt(list, null()),
                zeCommandListBeginGraphCaptureExp(list, null_mut())
            )
        }
    }

    /// Ends the capture and gives what was captured, also on lists that came into it by waiting for its events.
    pub fn end_capture(&self) -> Result<Graph> {
        let recording = match (&self.form, capture::of(self)?) {
            (Form::Immediate, Some(recording)) => recording,
            _ => return Err(Error::InvalidUsage("the stream is not being captured".into())),
        };
        let handle = end(self)?;
        Ok(Graph { captured: Arc::new(Captured { gpu: self.gpu.clone(), handle }), recording })
    }
}

fn end(stream: &Stream) -> Result<ze_graph_handle_t> {
    let (api, list) = (&*stream.gpu.api, stream.list());
    let mut graph = null_mut();
    let _guard = stream.lock.lock();
    // SAFETY: a live list and a place for the graph.
    unsafe {
        ze_graph!(
            api,
            zeCommandListEndGraphCaptureExt(list, null(), &raw mut graph),
            zeCommandListEndGraphCaptureExp(list, &raw mut graph, null_mut())
        )?;
    }
    Ok(graph)
}

/// Ends a capture that nobody will. If the stream is still in one then, it is another list's: what that records.
pub(crate) fn abandon(stream: &Stream) -> Option<Arc<Recording>> {
    let Ok(Some(recording)) = capture::of(stream) else { return None };
    match end(stream) {
        Ok(handle) => {
            drop(Captured { gpu: stream.gpu.clone(), handle });
            None
        }
        // Only the list that began a capture can end it.
        Err(_) => Some(recording),
    }
}

/// A graph of the driver.
struct Captured {
    gpu: Arc<Gpu>,
    handle: ze_graph_handle_t,
}

// SAFETY: a handle that Level Zero lets any thread use.
unsafe impl Send for Captured {}
// SAFETY: as above.
unsafe impl Sync for Captured {}

impl Drop for Captured {
    fn drop(&mut self) {
        let api = &*self.gpu.api;
        // SAFETY: the graph is not used any more: its executables hold this. A failure can't be helped.
        let _ = unsafe { ze_graph!(api, zeGraphDestroyExt(self.handle), zeGraphDestroyExp(self.handle)) };
        capture::sweep();
    }
}

/// What was captured.
pub struct Graph {
    captured: Arc<Captured>,
    recording: Arc<Recording>,
}

impl Graph {
    /// The driver's handle. Valid while this lives.
    pub fn raw(&self) -> ze_graph_handle_t {
        self.captured.handle
    }

    /// Whether nothing was captured.
    pub fn is_empty(&self) -> Result<bool> {
        let api = &*self.captured.gpu.api;
        let table = &api.table;
        let ask = table.zeGraphIsEmptyExt.or(table.zeGraphIsEmptyExp).ok_or_else(|| Api::lacks("zeGraphIsEmptyExt"))?;
        api.count();
        // SAFETY: a live graph.
        match capture::answer(unsafe { ask(self.raw()) }) {
            Ok(answer) => Ok(answer),
            Err(code) => Err(api.error("zeGraphIsEmptyExt", code)),
        }
    }

    /// Writes the driver's description of nodes and edges to a file.
    pub fn dump(&self, file: &Path) -> Result<()> {
        let path = CString::new(file.as_os_str().as_bytes())
            .map_err(|_| Error::InvalidArgument(format!("a path with a zero byte: {}", file.display())))?;
        let api = &*self.captured.gpu.api;
        // SAFETY: a live graph and a terminated path.
        unsafe {
            ze_graph!(
                api,
                zeGraphDumpContentsExt(self.raw(), path.as_ptr(), null()),
                zeGraphDumpContentsExp(self.raw(), path.as_ptr(), null_mut())
            )
        }
    }

    /// Makes something that can be launched.
    pub fn instantiate(&self) -> Result<ExecutableGraph> {
        let replays = Replays::new(&self.captured.gpu, &self.recording)?;
        let api = &*self.captured.gpu.api;
        let mut handle = null_mut();
        // SAFETY: a live graph and a place for the handle.
        unsafe {
            ze_graph!(
                api,
                zeGraphInstantiateExt(self.raw(), null(), &raw mut handle),
                zeCommandListInstantiateGraphExp(self.raw(), &raw mut handle, null_mut())
            )?;
        }
        Ok(ExecutableGraph { replays, handle, captured: self.captured.clone() })
    }
}

/// A graph that can be launched.
pub struct ExecutableGraph {
    replays: Replays,
    handle: ze_executable_graph_handle_t,
    captured: Arc<Captured>,
}

// SAFETY: a handle that Level Zero lets any thread use.
unsafe impl Send for ExecutableGraph {}
// SAFETY: as above.
unsafe impl Sync for ExecutableGraph {}

impl ExecutableGraph {
    /// The driver's handle. Valid while this lives. Whoever appends it without [`Self::launch`] sees to it that no two
    /// collectives of a communicator run at once.
    pub fn raw(&self) -> ze_executable_graph_handle_t {
        self.handle
    }

    /// Appends a replay to a stream in order, on a queue of the same kind as in the capture. It takes its turn with the device's other collectives. Work outside the
    /// graph that needs its results waits for the completion that is returned: it is this replay's, while what was returned
    /// during the capture are edges inside.
    ///
    /// # Safety
    /// The events of `options` must be live, and what was captured valid until the completion says so.
    pub unsafe fn launch(&self, stream: &Stream, options: CallOptions<'_>) -> Result<Completion> {
        let api = &*self.captured.gpu.api;
        // SAFETY: passed on to the caller; live list and graph; the wait list is only read.
        unsafe {
            self.replays.launch(stream, options, |list, signal, waits| {
                let (count, waits) = (waits.len() as u32, waits.as_ptr().cast_mut());
                ze_graph!(
                    api,
                    zeCommandListAppendGraphExt(list, self.handle, null(), signal, count, waits),
                    zeCommandListAppendGraphExp(list, self.handle, null_mut(), signal, count, waits)
                )
            })
        }
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        if !self.replays.finish() {
            std::mem::forget(self.captured.clone());
            return;
        }
        let api = &*self.captured.gpu.api;
        // SAFETY: its runs are over. A failure can't be helped.
        let _ = unsafe {
            ze_graph!(api, zeExecutableGraphDestroyExt(self.handle), zeExecutableGraphDestroyExp(self.handle))
        };
    }
}
