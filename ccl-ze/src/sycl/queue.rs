//! SYCL queues: what they are, and what is submitted to them.

use super::bridge::{
    ASK_SUBMIT, Bridge, DRIVER_WAS_ASKED, LISTS_NOT_IMMEDIATE, LISTS_USUAL, QueueFacts, RECORDS, RawWork,
    TRY_DROPPED_EVENT, TRY_NO_EVENT, TRY_RECORDED,
};
use super::event::{Event, RawEvent};
use crate::api::ze;
use crate::gpu::Gpu;
use crate::stream::{Stream, nanoseconds};
use ccl_core::{Error, Result};
use level_zero_sys::*;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

/// For a fill of a byte to end.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

/// A handle of our own on a queue of the caller's, which it keeps alive.
pub(crate) struct Queue {
    pub(super) bridge: &'static Bridge,
    pub(super) own: *mut c_void,
    key: usize,
    /// Its command list as a stream, where it was captured.
    list: Mutex<Option<Arc<Stream>>>,
    /// Whether the runtime can tell that it is idle where no event does.
    tells_idle: bool,
    /// Its command list, if the driver tells of that whether it records the queue. Null otherwise.
    telling_list: ze_command_list_handle_t,
}

// SAFETY: a handle on a `sycl::queue`, which any thread may use.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

/// What is submitted.
pub(crate) enum Work<'a> {
    /// A kernel's launch; its one argument is a structure of these words.
    Launch { kernel: &'a Kernel, groups: u32, items: u32, words: &'a [u64] },
    /// A copy of more than no bytes.
    Copy { to: *mut c_void, from: *const c_void, bytes: usize },
    /// Nothing but the event.
    Nothing,
}

/// What tells when a submission has finished.
#[derive(Clone, Copy)]
pub(crate) enum End<'a> {
    /// Nothing.
    Untold,
    /// An event of its own.
    Own(&'a Event),
    /// The event of all that is on the queue when it is asked for: until then it costs nothing. With the submission's number
    /// as the device counts it, or 0.
    OfAll(&'a Event, u64),
}

/// Of which submissions the runtime can tell that none is unfinished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TellsIdle {
    /// Of none.
    Never,
    /// Of such as have no event.
    WithoutEvents,
    /// Of such as have one, even if nobody keeps it.
    WithEvents,
}

/// What came of [`Queue::go_on`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GoneOn {
    /// It was submitted.
    Yes,
    /// Not: nothing else tells the end of what came before.
    No,
    /// Not: the queue records.
    Records,
}

/// A kernel of ours as the runtime has it. Dropped before the `ze_kernel_handle_t` it was made from.
pub(crate) struct Kernel {
    bridge: &'static Bridge,
    own: *mut c_void,
}

// SAFETY: a handle on a `sycl::kernel`, which any thread may use.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// A submission of nothing.
const NOTHING: RawWork = RawWork {
    kernel: null_mut(),
    groups: 0,
    items: 0,
    words: null(),
    word_bytes: 0,
    to: null_mut(),
    from: null(),
    bytes: 0,
    unless_recording: 0,
};

impl Queue {
    /// What tells a live queue from others.
    ///
    /// # Safety
    /// `queue` is a live `sycl::queue` of the bridge's runtime.
    #[inline]
    pub(crate) unsafe fn key(bridge: &Bridge, queue: *const c_void) -> usize {
        // SAFETY: passed on to the caller.
        unsafe { (bridge.functions.queue_key)(queue) }
    }

    /// Opens a queue, if it is one that calls on `gpu` can be submitted to.
    ///
    /// # Safety
    /// As for [`Queue::key`].
    pub(crate) unsafe fn open(gpu: &Gpu, bridge: &'static Bridge, queue: *const c_void) -> Result<Queue> {
        // SAFETY: passed on to the caller.
        let key = unsafe { Self::key(bridge, queue) };
        let mut facts = QueueFacts { level_zero: 0, in_order: 0, lists: 0, device: null_mut(), context: null_mut() };
        let mut own = null_mut();
        // SAFETY: a live queue, and places for the answers.
        let code = unsafe { (bridge.functions.queue_open)(queue, &raw mut own, &raw mut facts) };
        bridge.check("sycl::queue", code)?;
        let mut opened =
            Queue { bridge, own, key, list: Mutex::default(), tells_idle: false, telling_list: null_mut() };
        opened.check(gpu, &facts)?;
        // Such an adapter gathers what is submitted, and may never hand the driver what another queue's call waits for.
        if facts.lists == LISTS_NOT_IMMEDIATE && bridge.gathers() && !opened.list_handle()?.is_null() {
            return Err(Error::NotImplemented(
                "a SYCL queue with property::queue::no_immediate_command_list, with an adapter that batches what is submitted"
                    .into(),
            ));
        }
        match gpu.queues_tell_idle.get_or_init(|| opened.try_telling(gpu)) {
            TellsIdle::Never => {}
            TellsIdle::WithoutEvents => opened.tells_idle = true,
            TellsIdle::WithEvents => {
                // SAFETY: an own handle that nobody else has yet.
                unsafe { (bridge.functions.queue_drop_events)(opened.own) };
                opened.tells_idle = true;
            }
        }
        let lists_tell = *gpu.lists_of_queues_tell.get_or_init(|| opened.try_list(gpu).unwrap_or(false));
        if lists_tell && facts.lists == LISTS_USUAL {
            opened.telling_list = opened.list_handle()?;
        }
        Ok(opened)
    }

    /// Another queue of its device and context to try something on (`TRY_...`).
    fn to_try(&self, what: u32) -> Result<Queue> {
        let mut own = null_mut();
        // SAFETY: an own handle, and a place for the other.
        let code = unsafe { (self.bridge.functions.queue_to_try)(self.own, what, &raw mut own) };
        self.bridge.check("sycl::queue", code)?;
        let (list, telling_list) = (Mutex::default(), null_mut());
        Ok(Queue { bridge: self.bridge, own, key: 0, list, tells_idle: false, telling_list })
    }

    /// Whether the driver tells of a usual queue's command list that it records it. With an adapter that has other lists
    /// beside (v2's batches), or none that records, it doesn't. The runtime takes five times as long to tell.
    fn try_list(&self, gpu: &Gpu) -> Result<bool> {
        let tried = self.to_try(TRY_RECORDED)?;
        let list = tried.list_handle()?;
        Ok(!list.is_null() && crate::capture::is_capturing(&gpu.api, list)?)
    }

    /// An adapter that orders by events (v1) looks at the last one, and doesn't trust one that nobody asked for.
    fn try_telling(&self, gpu: &Gpu) -> TellsIdle {
        let tells = |what| self.try_idle(gpu, what).unwrap_or(false);
        match () {
            () if tells(TRY_NO_EVENT) => TellsIdle::WithoutEvents,
            () if tells(TRY_DROPPED_EVENT) => TellsIdle::WithEvents,
            () => TellsIdle::Never,
        }
    }

    /// Whether a queue like this one is known to be idle after a submission without an event, or with one that was dropped.
    fn try_idle(&self, gpu: &Gpu, what: u32) -> Result<bool> {
        let tried = self.to_try(what)?;
        let list = tried.list_handle()?;
        if list.is_null() {
            // It is not known when the fill is over: what it fills stays.
            std::mem::forget(tried);
            return Ok(false);
        }
        // SAFETY: a live list of the device's.
        let done = unsafe { ze!(gpu.api, zeCommandListHostSynchronize(list, nanoseconds(LONG_ENOUGH))) };
        if done.is_err() {
            std::mem::forget(tried);
            return Ok(false);
        }
        tried.is_idle()
    }

    /// Whether [`End::OfAll`] may be asked for: if the queue records by the time that the end is asked for, it can then
    /// still be told.
    pub(crate) fn tells_idle(&self) -> bool {
        self.tells_idle
    }

    fn check(&self, gpu: &Gpu, facts: &QueueFacts) -> Result<()> {
        let refuse = |what: &str| Err(Error::NotImplemented(format!("a SYCL queue {what}")));
        if facts.level_zero == 0 {
            return refuse("of another backend than Level Zero");
        }
        if facts.in_order == 0 {
            return refuse("that is not in order (property::queue::in_order)");
        }
        if facts.device != gpu.device {
            return Err(Error::InvalidArgument(format!(
                "the SYCL queue is on another device than the communicator, which is on device {}",
                gpu.index()
            )));
        }
        if facts.context != gpu.context {
            return refuse(
                "of another context than the communicator's: queues have to be of SYCL's default context, and the SYCL \
                 runtime in use before the communicator is made",
            );
        }
        Ok(())
    }

    pub(crate) fn has_key(&self, key: usize) -> bool {
        self.key == key
    }

    /// What tells it from others, as [`Queue::key`].
    pub(crate) fn own_key(&self) -> usize {
        self.key
    }

    /// Whether what is submitted now is recorded for a graph.
    pub(crate) fn is_recording(&self) -> Result<bool> {
        Ok(self.ask_recording(true)? != 0)
    }

    /// The same if that is quickly told, else `None`: a submission tells.
    pub(crate) fn is_known_to_record(&self, gpu: &Gpu) -> Result<Option<bool>> {
        if !self.telling_list.is_null() {
            return Ok(crate::capture::is_capturing(&gpu.api, self.telling_list)?.then_some(true));
        }
        let recording = self.ask_recording(false)?;
        Ok((recording != ASK_SUBMIT).then_some(recording != 0))
    }

    fn ask_recording(&self, whatever_it_costs: bool) -> Result<u32> {
        let mut recording = 0;
        // SAFETY: an own handle, and a place for the answer.
        let code =
            unsafe { (self.bridge.functions.queue_recording)(self.own, whatever_it_costs.into(), &raw mut recording) };
        self.bridge.check("sycl::queue::ext_oneapi_get_state", code)?;
        Ok(recording)
    }

    /// Its immediate command list; null if it has a command queue instead.
    fn list_handle(&self) -> Result<ze_command_list_handle_t> {
        let mut list = null_mut();
        // SAFETY: an own handle, and a place for the answer.
        let code = unsafe { (self.bridge.functions.queue_list)(self.own, &raw mut list) };
        self.bridge.check("sycl::get_native of a queue", code)?;
        Ok(list.cast())
    }

    /// The queue's command list, if the driver itself captures it: the runtime's native recording.
    pub(crate) fn captured(&self, gpu: &Arc<Gpu>) -> Result<Option<Arc<Stream>>> {
        let list = self.list_handle()?;
        if list.is_null() || !crate::capture::is_capturing(&gpu.api, list)? {
            return Ok(None);
        }
        let mut known = self.list.lock();
        if let Some(stream) = known.as_ref().filter(|stream| stream.list() == list) {
            return Ok(Some(stream.clone()));
        }
        let stream = Arc::new(Stream::wrap(gpu, list)?);
        *known = Some(stream.clone());
        Ok(Some(stream))
    }

    /// Whether nothing that was submitted is unfinished; what was recorded isn't submitted.
    pub(super) fn is_idle(&self) -> Result<bool> {
        let mut idle = 0;
        // SAFETY: an own handle, and a place for the answer.
        let code = unsafe { (self.bridge.functions.queue_is_idle)(self.own, &raw mut idle) };
        self.bridge.check("sycl::queue::ext_oneapi_empty", code)?;
        Ok(idle != 0)
    }

    /// Makes the event of all that was submitted; false, and none is made, if the queue records.
    pub(super) fn mark(&self, event: *mut RawEvent) -> Result<bool> {
        let raw = RawWork { unless_recording: 1, ..NOTHING };
        // SAFETY: it names no memory, and there is a place for the event.
        let code = unsafe { (self.bridge.functions.submit)(self.own, &raw const raw, null(), 0, event) };
        if code == RECORDS {
            return Ok(false);
        }
        self.bridge.check("sycl::queue::submit", code).map(|()| true)
    }

    /// Submits in the queue's order and after `after`; `end` then tells its end. With `unless_recording` nothing is done if the
    /// queue records: false.
    ///
    /// # Safety
    /// What `work` names is valid until it has finished, or as long as a graph that records it may be replayed.
    pub(crate) unsafe fn submit(
        self: &Arc<Self>,
        work: Work<'_>,
        after: Option<&Event>,
        end: End<'_>,
        unless_recording: bool,
    ) -> Result<bool> {
        let asked = if self.telling_list.is_null() { 1 } else { DRIVER_WAS_ASKED };
        let mut raw = RawWork { unless_recording: if unless_recording { asked } else { 0 }, ..NOTHING };
        match work {
            Work::Launch { kernel, groups, items, words } => {
                (raw.kernel, raw.groups, raw.items) = (kernel.own, groups, items);
                (raw.words, raw.word_bytes) = (words.as_ptr(), size_of_val(words));
            }
            Work::Copy { to, from, bytes } => (raw.to, raw.from, raw.bytes) = (to, from, bytes),
            Work::Nothing => {}
        }
        let after = after.map(|after| after.place.lock());
        let awaited = after.as_ref().and_then(|place| place.get());
        let (list, count) = (awaited.as_ref().map_or(null(), std::ptr::from_ref), u32::from(awaited.is_some()));
        let submit = |place: *mut RawEvent| {
            // SAFETY: own handles; the words take the bytes it says; the awaited event is kept from changing by its
            // lock; the place is for one event, or null. The rest is the caller's duty.
            let code = unsafe { (self.bridge.functions.submit)(self.own, &raw const raw, list, count, place) };
            if unless_recording && code == RECORDS {
                return Ok(false);
            }
            self.bridge.check("sycl::queue::submit", code).map(|()| true)
        };
        match end {
            End::Untold => submit(null_mut()),
            End::Own(event) => event.place.lock().renew(self.bridge, submit),
            End::OfAll(event, number) => {
                let mut place = event.place.lock();
                let submitted = submit(null_mut())?;
                if submitted {
                    place.set_behind(self.bridge, self, number);
                }
                Ok(submitted)
            }
        }
    }

    /// Submits a launch behind one that [`End::OfAll`] was asked for with `event`, which then tells of both; not if the
    /// queue records. `number` is this one's as the device counts, or 0.
    ///
    /// # Safety
    /// As for [`Queue::submit`].
    #[inline(always)]
    pub(crate) unsafe fn go_on(
        self: &Arc<Self>,
        gpu: &Gpu,
        kernel: &Kernel,
        (groups, items): (u32, u32),
        words: &[u64],
        event: &Event,
        number: u64,
    ) -> Result<GoneOn> {
        let mut place = event.place.lock();
        if !place.is_behind(self) {
            return Ok(GoneOn::No);
        }
        let unless_recording = if self.telling_list.is_null() {
            1
        } else if crate::capture::is_capturing(&gpu.api, self.telling_list)? {
            return Ok(GoneOn::Records);
        } else {
            DRIVER_WAS_ASKED
        };
        let size = u64::from(groups) << 32 | u64::from(items);
        // SAFETY: own handles, and words that take the bytes it says. The rest is the caller's duty.
        let code = unsafe {
            let launch = self.bridge.functions.launch;
            launch(self.own, kernel.own, size, words.as_ptr(), size_of_val(words), unless_recording)
        };
        if code == RECORDS {
            return Ok(GoneOn::Records);
        }
        self.bridge.check("sycl::queue::submit", code)?;
        place.number = number;
        Ok(GoneOn::Yes)
    }

    /// The runtime's own kernel on a Level Zero kernel that nobody else sets arguments of.
    ///
    /// # Safety
    /// Live handles of the queue's context and device, which stay until the kernel is dropped.
    pub(crate) unsafe fn kernel(&self, module: ze_module_handle_t, kernel: ze_kernel_handle_t) -> Result<Kernel> {
        let mut own = null_mut();
        // SAFETY: an own handle, live ones by contract, and a place for the answer.
        let code = unsafe { (self.bridge.functions.kernel_open)(self.own, module.cast(), kernel.cast(), &raw mut own) };
        self.bridge.check("sycl::make_kernel", code)?;
        Ok(Kernel { bridge: self.bridge, own })
    }

    /// An event to be submitted with.
    pub(crate) fn event(&self) -> Event {
        Event::new(self.bridge, None)
    }

    /// The bridge to its runtime.
    pub(crate) fn bridge(&self) -> &'static Bridge {
        self.bridge
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: an own handle, used by nobody any more.
        unsafe { (self.bridge.functions.queue_close)(self.own) };
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: an own handle, used by nobody any more.
        unsafe { (self.bridge.functions.kernel_close)(self.own) };
    }
}
