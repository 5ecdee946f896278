//! Regular command lists: recorded once, executed as often as wanted. Every driver has them.

use crate::api::{ze, ze_optional};
use crate::communicator::CallOptions;
use crate::completion::Completion;
use crate::gpu::Gpu;
use crate::recording::Recording;
use crate::replay::Replays;
use crate::stream::{Form, Stream};
use ccl_core::{Error, Result};
use level_zero_sys::*;
use std::sync::Arc;

/// A list that is being recorded.
pub struct CommandList {
    // Dropped before the list.
    stream: Stream,
    list: OwnedList,
}

struct OwnedList {
    gpu: Arc<Gpu>,
    handle: ze_command_list_handle_t,
}

// SAFETY: a handle that Level Zero lets any thread use.
unsafe impl Send for OwnedList {}
// SAFETY: as above.
unsafe impl Sync for OwnedList {}

impl Drop for OwnedList {
    fn drop(&mut self) {
        // SAFETY: nothing executes it any more. A failure can't be helped.
        let _ = unsafe { ze!(self.gpu.api, zeCommandListDestroy(self.handle)) };
    }
}

impl CommandList {
    /// A list in order, for the compute queue that [`crate::Communicator::stream`] gives for the same number.
    pub(crate) fn new(gpu: &Arc<Gpu>, queue: usize) -> Result<CommandList> {
        let desc = ze_command_list_desc_t {
            commandQueueGroupOrdinal: gpu.ordinals[queue % gpu.ordinals.len()],
            flags: ZE_COMMAND_LIST_FLAG_IN_ORDER,
            ..Default::default()
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: live context and device; descriptor and output outlive the call.
        unsafe { ze!(gpu.api, zeCommandListCreate(gpu.context, gpu.device, &raw const desc, &raw mut handle))? };
        let list = OwnedList { gpu: gpu.clone(), handle };
        Ok(CommandList { stream: Stream::recording(gpu, handle, true), list })
    }

    /// Where calls go that are to be recorded.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Ends the recording.
    pub fn close(self) -> Result<ExecutableList> {
        let CommandList { stream, list } = self;
        let Form::Regular(recording) = &stream.form else {
            return Err(Error::Internal("a command list that does not record".into()));
        };
        // SAFETY: a live list that is open.
        unsafe { ze!(list.gpu.api, zeCommandListClose(list.handle))? };
        let replays = Replays::new(&list.gpu, recording)?;
        Ok(ExecutableList { replays, list: Some(list), recording: recording.clone() })
    }
}

/// A recorded list.
pub struct ExecutableList {
    replays: Replays,
    list: Option<OwnedList>,
    recording: Arc<Recording>,
}

impl ExecutableList {
    /// Appends an execution to a stream in order, on a queue of the same kind. It takes its turn with the device's other
    /// collectives. Work outside the list that needs its results waits for the completion that is returned.
    ///
    /// # Safety
    /// The events of `options` must be live, and what was recorded valid until the completion says so.
    pub unsafe fn execute(&self, stream: &Stream, options: CallOptions<'_>) -> Result<Completion> {
        let Some(owned) = &self.list else { return Err(Error::Internal("a list that is gone".into())) };
        let mut lists = [owned.handle];
        // SAFETY: passed on to the caller; live lists; the wait list is only read.
        unsafe {
            self.replays.launch(stream, options, |list, signal, waits| {
                let (count, waits) = (waits.len() as u32, waits.as_ptr().cast_mut());
                ze_optional!(
                    owned.gpu.api,
                    zeCommandListImmediateAppendCommandListsExp(list, 1, lists.as_mut_ptr(), signal, count, waits)
                )
            })
        }
    }
}

impl Drop for ExecutableList {
    fn drop(&mut self) {
        if !self.replays.finish() {
            std::mem::forget((self.list.take(), self.recording.clone()));
        }
    }
}
