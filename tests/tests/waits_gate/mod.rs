//! An event of the caller's own, by raw Level Zero, that is signalled when a test says so.
#![allow(dead_code, reason = "each test uses a part of it")]

use ccl_ze::Stream;
use level_zero_sys::*;

/// Work that waits on it is held back until it opens. Never destroyed: at the end of a test work may still wait on it.
pub(crate) struct Gate {
    table: Table,
    event: ze_event_handle_t,
}

// SAFETY: a handle that Level Zero lets any thread use.
unsafe impl Send for Gate {}

impl Gate {
    /// A closed one, in the context of the stream. Streams must be of the linked-in driver. From here on the stream counts
    /// as one that may hold work of the caller's.
    pub(crate) fn new(stream: &Stream) -> Gate {
        let table = Table::load_with(ze_soft::resolve).expect("the software driver");
        let mut context = std::ptr::null_mut();
        let mut pool = std::ptr::null_mut();
        let mut event = std::ptr::null_mut();
        let of_pool = ze_event_pool_desc_t { flags: ZE_EVENT_POOL_FLAG_HOST_VISIBLE, count: 1, ..Default::default() };
        let scope = ZE_EVENT_SCOPE_FLAG_HOST;
        let of_event = ze_event_desc_t { signal: scope, wait: scope, ..Default::default() };
        let get_context = table.zeCommandListGetContextHandle.expect("the software driver has it");
        // SAFETY: a live list of this driver; descriptors and outputs outlive the calls; no devices named means all.
        unsafe {
            assert_eq!(get_context(stream.raw(), &raw mut context), ZE_RESULT_SUCCESS);
            let made = (table.zeEventPoolCreate)(context, &raw const of_pool, 0, std::ptr::null_mut(), &raw mut pool);
            assert_eq!(made, ZE_RESULT_SUCCESS);
            assert_eq!((table.zeEventCreate)(pool, &raw const of_event, &raw mut event), ZE_RESULT_SUCCESS);
        }
        Gate { table, event }
    }

    /// For wait lists.
    pub(crate) fn event(&self) -> ze_event_handle_t {
        self.event
    }

    /// Holds back what comes on the stream from now on.
    pub(crate) fn hold(&self, stream: &Stream) {
        let mut event = self.event;
        // SAFETY: a live list and event; the wait list is read during the call; no other thread appends to the stream.
        let held = unsafe { (self.table.zeCommandListAppendWaitOnEvents)(stream.raw(), 1, &raw mut event) };
        assert_eq!(held, ZE_RESULT_SUCCESS);
    }

    /// Opens it for good.
    pub(crate) fn open(&self) {
        // SAFETY: a live event.
        assert_eq!(unsafe { (self.table.zeEventHostSignal)(self.event) }, ZE_RESULT_SUCCESS);
    }
}
