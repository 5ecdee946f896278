//! `CCLX_CAPTURE`: the inputs and outputs of eager calls, saved as they go.
//!
//! An mHC boundary is an event of its own behind that of its all-reduce, in one launch with it or not.
//!
//! Each call is waited for, so that it can be saved: slow, and meant for looking for faults. What can't be waited for
//! ends the saving, never the call.

mod boundary;

pub(crate) use boundary::Boundary;

use crate::capture;
use crate::communicator::CallOptions;
use crate::completion::Completion;
use crate::endpoint::ZeDevice;
use crate::gpu::Gpu;
use crate::hooks;
use crate::stream::Stream;
use ccl_core::collective::CollectiveCall;
use ccl_core::comm;
use ccl_core::config::Config;
use ccl_core::corpus::{AllReduce, ElementType, EventData, Kind, Origin, Role, TensorData, Writer};
use ccl_core::device::Io;
use ccl_core::plan::Request;
use ccl_core::{Error, Result};
use level_zero_sys::ze_event_handle_t;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::path::Path;
use std::time::Duration;

/// Saves a communicator's calls.
pub(crate) struct Saving {
    state: Mutex<State>,
    /// How long a call is waited for.
    limit: Duration,
    hooks: u32,
}

struct State {
    writer: Writer,
    /// Whether it was said that recorded calls are not saved.
    told: bool,
    /// What fed the boundaries to come.
    fed: boundary::Fed,
}

impl Saving {
    /// What is known to fail before the other ranks are met.
    pub(crate) fn check(directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory)
            .map_err(|error| Error::system(format!("CCLX_CAPTURE={}", directory.display()), error))
    }

    /// Begins, if the configuration asks for it.
    pub(crate) fn start(
        core: &comm::Communicator<ZeDevice>,
        gpu: &Gpu,
        config: &Config,
        hooks: u32,
    ) -> Result<Option<Saving>> {
        let Some(directory) = &config.capture else { return Ok(None) };
        let writer = Writer::create(Origin {
            directory: directory.clone(),
            communicator: format!("c-{:08x}", core.info().name),
            rank: core.rank(),
            ranks: core.world_size(),
            library: format!("ccl {}", env!("CARGO_PKG_VERSION")),
            driver: gpu.facts.driver.clone(),
            device: gpu.facts.name.clone(),
            limit: u64::from(config.capture_limit) << 20,
        })?;
        // Shorter than the watch's own limit: a call that only this wait holds up must not be taken for a hang.
        Ok(Some(Saving {
            state: Mutex::new(State { writer, told: false, fed: Default::default() }),
            limit: config.timeout / 2,
            hooks,
        }))
    }

    /// Makes a call, given as `submit`, which takes the events that it is still to wait for; saves its input before and
    /// its output after.
    ///
    /// # Safety
    /// As for the call: the buffers of `io` and the events of `options` are valid.
    pub(crate) unsafe fn around(
        &self,
        core: &comm::Communicator<ZeDevice>,
        request: &Request,
        io: Io,
        stream: &Stream,
        options: CallOptions<'_>,
        submit: impl FnOnce(&[ze_event_handle_t]) -> Result<Completion>,
    ) -> Result<Completion> {
        // Refused as ever, before anything is enqueued.
        let plan = core.check(request, io)?;
        let call = AllReduce::new(request, plan)?;
        // Held over the call: the numbers of events are the order of issue.
        let mut state = self.state.lock();
        // SAFETY: passed on to the caller.
        let (recording, after) = unsafe { capture::enter(stream, options.after)? };
        if recording.is_some() {
            state.skip(&format!("a recorded all_reduce of {} {}", request.count, request.dtype));
            return submit(after);
        }
        if state.writer.is_stopped() {
            state.skip("");
            return submit(after);
        }
        let bytes = request.count as usize * request.dtype.size();
        let late = hooks::on(self.hooks, hooks::SAVE_INPUT_LATE);
        let mut input = if late {
            Some(Vec::new())
        } else {
            // SAFETY: passed on to the caller.
            unsafe { self.read(&mut state, stream, io.send, bytes, after) }
        };
        let completion = submit(after)?;
        if input.is_none() {
            return Ok(completion);
        }
        if !self.is_finished(&mut state, &completion) {
            return Ok(completion);
        }
        if late {
            // SAFETY: as above.
            input = unsafe { self.read(&mut state, stream, io.send, bytes, &[]) };
        }
        // SAFETY: as above; the call has finished.
        let output = unsafe { self.read(&mut state, stream, io.recv, bytes, &[]) };
        if let (Some(input), Some(output)) = (input, output) {
            state.save(call, io, &input, &output);
        }
        Ok(completion)
    }

    /// Notes a call of another collective, which is no event of a corpus.
    pub(crate) fn leave_out(&self, call: &CollectiveCall) {
        let (what, count, dtype) = (call.what, call.count, call.dtype);
        self.state.lock().skip(&format!("{what} of {count} {dtype} (no all_reduce)"));
    }

    /// Whether a call ends in time and well; if not, the saving ends.
    fn is_finished(&self, state: &mut State, completion: &Completion) -> bool {
        match completion.wait_for(self.limit) {
            Ok(true) => return true,
            Ok(false) => state.stop(&format!("a call did not end within {:?}", self.limit)),
            // Whoever waits for the call is told.
            Err(error) => state.stop(&format!("a call failed: {error}")),
        }
        false
    }

    /// The bytes of a buffer, as they are once the stream has come here; `None` if it does not come here in time or can't be
    /// read, which ends the saving and is no reason for the call to fail.
    ///
    /// # Safety
    /// The buffer holds so many bytes and the events are live.
    unsafe fn read(
        &self,
        state: &mut State,
        stream: &Stream,
        from: *const c_void,
        bytes: usize,
        after: &[ze_event_handle_t],
    ) -> Option<Vec<u8>> {
        let mut copy = vec![0u8; bytes];
        if bytes == 0 {
            return Some(copy);
        }
        // SAFETY: by the contract; the copy lives until the stream has done this.
        let copied = unsafe { stream.copy(copy.as_mut_ptr().cast(), from, bytes, after) };
        match copied.and_then(|()| stream.synchronize_for(self.limit)) {
            Ok(true) => return Some(copy),
            Ok(false) => state.stop(&format!("work before a call did not end within {:?}", self.limit)),
            Err(error) => state.stop(&format!("a buffer could not be read: {error}")),
        }
        // The stream may still write to it.
        std::mem::forget(copy);
        None
    }
}

impl State {
    fn save(&mut self, call: AllReduce, io: Io, input: &[u8], output: &[u8]) {
        let shape = [call.count];
        let dtype = ElementType::Data(call.dtype);
        let tensor = |name, role, address, bytes| TensorData { name, role, dtype, shape: &shape, address, bytes };
        let tensors = [
            tensor("input", Role::Input, io.send as u64, input),
            tensor("output", Role::Output, io.recv as u64, output),
        ];
        if self.write(&EventData { call: Kind::AllReduce(call), tensors: &tensors, links: &[] }) {
            self.fed.reduced(self.writer.events(), io.recv as u64, output.len());
        }
    }

    /// Writes an event; false if it is not one of the corpus.
    fn write(&mut self, event: &EventData<'_>) -> bool {
        match self.writer.write(event) {
            Ok(true) => return true,
            Ok(false) => tracing::warn!(
                "CCLX_CAPTURE: {} calls are saved and no more: CCLX_CAPTURE_LIMIT is reached",
                self.writer.events()
            ),
            Err(error) => tracing::warn!("CCLX_CAPTURE: no more calls are saved: {error}"),
        }
        false
    }

    /// Ends the saving at a call, which is the first that is missing.
    fn stop(&mut self, why: &str) {
        if self.writer.is_stopped() {
            return;
        }
        tracing::warn!("CCLX_CAPTURE: no more calls are saved: {why}");
        self.writer.stop(why);
        self.skip("");
    }

    /// Counts a call that is not saved.
    fn skip(&mut self, what: &str) {
        if !self.writer.is_stopped() && !std::mem::replace(&mut self.told, true) {
            tracing::warn!("CCLX_CAPTURE: {what} is not saved, nor are others like it; the corpus counts them");
        }
        if let Err(error) = self.writer.not_captured(what) {
            tracing::warn!("CCLX_CAPTURE: {error}");
        }
    }
}
