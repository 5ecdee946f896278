//! Whether what is appended to a stream runs or is recorded. Nothing else asks the driver that.

use crate::api::{Api, ze};
use crate::gpu::Gpu;
use crate::recording::Recording;
use crate::stream::{Form, Stream};
use ccl_core::{Error, Result};
use level_zero_sys::*;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::{Arc, Weak};

/// What the experimental functions of older drivers answer.
const QUERY_TRUE_EXP: ze_result_t = 0x7fff_0000;
const QUERY_FALSE_EXP: ze_result_t = 0x7fff_0001;

/// The graphs of a device that are being captured, or that may be replayed.
#[derive(Default)]
pub(crate) struct Graphs(Mutex<Vec<(usize, Weak<Recording>)>>);

/// Recordings whose graphs are gone. Destroyed later, by [`sweep`], and not in the driver's callback: it may still look at
/// the graph's events after that.
static ENDED: Mutex<Vec<Arc<Recording>>> = Mutex::new(Vec::new());

/// What `stream` records for, if it records.
#[inline]
pub(crate) fn of(stream: &Stream) -> Result<Option<Arc<Recording>>> {
    // Only through its handle or by a wait for an event can a list of ours have come into a capture.
    if matches!(stream.form, Form::Immediate) && !stream.is_foreign() { Ok(None) } else { of_others(stream) }
}

/// The same where it takes a question.
fn of_others(stream: &Stream) -> Result<Option<Arc<Recording>>> {
    match &stream.form {
        Form::Regular(recording) => Ok(Some(recording.clone())),
        Form::OnQueue(queue) if !queue.is_recording()? => Ok(None),
        Form::OnQueue(queue) => match queue.captured(&stream.gpu)? {
            Some(list) => of(&list),
            None => Ok(Some(stream.gpu.sycl_graphs.of(queue)?.recording().clone())),
        },
        Form::Immediate => {
            let capturing = is_capturing(&stream.gpu.api, stream.list())?;
            stream.note_capturing(capturing);
            if capturing { adopt(stream).map(Some) } else { Ok(None) }
        }
    }
}

/// Puts the events in `after` in front of a call on `stream`, and says what the stream then records for and which events
/// the call itself must still wait for.
///
/// A list comes into a capture by waiting for an event of it, so that the wait has to be there before it is known what
/// kind of call this is.
///
/// # Safety
/// `after` must hold live events.
// Always: each call of a stream passes here, and most have nothing to ask.
#[inline(always)]
pub(crate) unsafe fn enter<'a>(
    stream: &Stream,
    after: &'a [ze_event_handle_t],
) -> Result<(Option<Arc<Recording>>, &'a [ze_event_handle_t])> {
    if after.is_empty() {
        return Ok((of(stream)?, after));
    }
    // SAFETY: passed on to the caller.
    unsafe { enter_after(stream, after) }
}

/// # Safety
/// As for [`enter`].
unsafe fn enter_after<'a>(
    stream: &Stream,
    after: &'a [ze_event_handle_t],
) -> Result<(Option<Arc<Recording>>, &'a [ze_event_handle_t])> {
    stream.check_list("a wait for Level Zero events")?;
    stream.mark_foreign();
    if let Form::Regular(recording) = &stream.form {
        return Ok((Some(recording.clone()), after));
    }
    let api = &stream.gpu.api;
    if !has_graphs(api) {
        return Ok((None, after));
    }
    // Asking first would make one call more of each that is given events; so only where the answer is likely to be yes.
    if stream.was_capturing()
        && let Some(recording) = of(stream)?
    {
        return Ok((Some(recording), after));
    }
    {
        let _guard = stream.lock.lock();
        let (list, count, events) = (stream.list(), after.len() as u32, after.as_ptr().cast_mut());
        // SAFETY: a live list; the events are the caller's duty; the wait list is only read.
        unsafe { ze!(api, zeCommandListAppendWaitOnEvents(list, count, events))? };
    }
    let recording = of(stream)?;
    // Where nothing else orders the call behind that wait, it waits again itself; in a recording so that the edge shows.
    let after = if recording.is_none() && stream.order().is_some() { &[] } else { after };
    Ok((recording, after))
}

fn has_graphs(api: &Api) -> bool {
    let table = &api.table;
    !api.lacks_graphs()
        && (table.zeCommandListIsGraphCaptureEnabledExt.is_some()
            || table.zeCommandListIsGraphCaptureEnabledExp.is_some())
}

/// Whether the driver captures what is appended to a list.
pub(crate) fn is_capturing(api: &Api, list: ze_command_list_handle_t) -> Result<bool> {
    let table = &api.table;
    let Some(ask) = table.zeCommandListIsGraphCaptureEnabledExt.or(table.zeCommandListIsGraphCaptureEnabledExp) else {
        return Ok(false);
    };
    if api.lacks_graphs() {
        return Ok(false);
    }
    api.count();
    // SAFETY: a live list.
    match answer(unsafe { ask(list) }) {
        Ok(capturing) => Ok(capturing),
        // A loader that knows the function over a driver that doesn't.
        Err(
            ZE_RESULT_ERROR_UNSUPPORTED_FEATURE | ZE_RESULT_ERROR_UNSUPPORTED_VERSION | ZE_RESULT_ERROR_UNINITIALIZED,
        ) => {
            api.note_no_graphs();
            Ok(false)
        }
        Err(code) => Err(api.error("zeCommandListIsGraphCaptureEnabledExt", code)),
    }
}

/// The answer to a question about graphs, which comes as a result.
pub(crate) fn answer(code: ze_result_t) -> std::result::Result<bool, ze_result_t> {
    match code {
        ZE_RESULT_QUERY_TRUE | QUERY_TRUE_EXP => Ok(true),
        ZE_RESULT_QUERY_FALSE | QUERY_FALSE_EXP => Ok(false),
        code => Err(code),
    }
}

/// The recording of the graph that `stream` is being captured into, begun now if this is the first to ask.
fn adopt(stream: &Stream) -> Result<Arc<Recording>> {
    let gpu = &stream.gpu;
    let graph = graph_of(&gpu.api, stream.list())?;
    let mut graphs = gpu.graphs.0.lock();
    let alive = |recording: &Weak<Recording>| recording.upgrade().filter(|recording| !recording.has_ended());
    graphs.retain(|(_, recording)| alive(recording).is_some());
    if let Some(recording) = graphs.iter().find(|(known, _)| *known == graph.addr()).and_then(|(_, r)| alive(r)) {
        return Ok(recording);
    }
    let recording = Recording::new();
    graphs.push((graph.addr(), Arc::downgrade(&recording)));
    drop(graphs);
    tell_when_gone(gpu, graph, &recording)?;
    sweep();
    Ok(recording)
}

fn graph_of(api: &Api, list: ze_command_list_handle_t) -> Result<ze_graph_handle_t> {
    let table = &api.table;
    let ask = table.zeCommandListGetGraphExt.or(table.zeCommandListGetGraphExp);
    let ask = ask.ok_or_else(|| Api::lacks("zeCommandListGetGraphExt"))?;
    let mut graph = std::ptr::null_mut();
    api.count();
    // SAFETY: a live list and a place for the answer.
    let code = unsafe { ask(list, &raw mut graph) };
    api.check("zeCommandListGetGraphExt", code)?;
    Ok(graph)
}

/// Keeps the recording until the graph is gone.
fn tell_when_gone(gpu: &Gpu, graph: ze_graph_handle_t, recording: &Arc<Recording>) -> Result<()> {
    let (api, table) = (&gpu.api, &gpu.api.table);
    let kept = Arc::into_raw(recording.clone()).cast_mut().cast::<c_void>();
    api.count();
    // SAFETY: a live graph; `is_gone` takes the data back and is called at most once.
    let told = unsafe {
        match (table.zeGraphSetDestructionCallbackExt, table.zeGraphSetDestructionCallbackExp) {
            (Some(set), _) => set(graph, Some(is_gone), kept, std::ptr::null()),
            (None, Some(set)) => set(graph, Some(is_gone), kept, std::ptr::null_mut()),
            (None, None) => ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
        }
    };
    if told == ZE_RESULT_SUCCESS {
        return Ok(());
    }
    // SAFETY: the driver didn't take it.
    drop(unsafe { Arc::from_raw(kept.cast::<Recording>()) });
    recording.end();
    Err(Error::NotImplemented(format!(
        "recording: this driver doesn't tell when a graph is gone (zeGraphSetDestructionCallbackExt: {})",
        result_name(told)
    )))
}

unsafe extern "C" fn is_gone(recording: *mut c_void) {
    // SAFETY: what `tell_when_gone` handed over, once.
    let recording = unsafe { Arc::from_raw(recording.cast::<Recording>()) };
    recording.end();
    ENDED.lock().push(recording);
}

/// Lets go of what belonged to graphs that are gone.
pub(crate) fn sweep() {
    let ended = std::mem::take(&mut *ENDED.lock());
    drop(ended);
}
