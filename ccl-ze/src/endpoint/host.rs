//! The words that host and device exchange while a collective runs.

use crate::hooks;
use crate::memory::Allocation;
use crate::recording::Recording;
use crate::sycl;
use ccl_core::Result;
use ccl_core::protocol::{Fault, HostBlock, Shape};
use ccl_core::watch::{Alarm, DeviceFault, Progress};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};

/// The host block, as the watch uses it.
pub(super) struct HostWords {
    pub(super) memory: Allocation,
    device: [u8; 16],
    hooks: u32,
    /// What the device's count of finished collectives comes to once all that were issued have finished, unless replays ran.
    issued: AtomicU64,
    recorded: Mutex<Recorded>,
}

/// Where calls were recorded, so that replays may count like calls.
enum Recorded {
    Nowhere,
    InOne(Weak<Recording>),
    InMany,
}

impl HostWords {
    pub(super) fn new(memory: Allocation, device: [u8; 16], hooks: u32) -> HostWords {
        HostWords { memory, device, hooks, issued: AtomicU64::new(0), recorded: Mutex::new(Recorded::Nowhere) }
    }

    /// The device has counted so many so far, and none is under way.
    pub(super) fn begin_at(&self, calls: u64) {
        self.issued.store(calls, Ordering::Relaxed);
    }

    /// The number of the collective that is issued next. Numbers are taken by whoever has the device's turn.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.issued.load(Ordering::Relaxed) + 1
    }

    /// That one was issued.
    #[inline]
    pub(super) fn took_next(&self) {
        self.took(self.next());
    }

    /// The same, which is of this number.
    #[inline]
    pub(super) fn took(&self, number: u64) {
        self.issued.store(number, Ordering::Relaxed);
    }

    /// `recording` holds calls, and each of its replays counts.
    pub(super) fn is_in(&self, recording: &Arc<Recording>) {
        let mut recorded = self.recorded.lock();
        match &*recorded {
            Recorded::Nowhere => *recorded = Recorded::InOne(Arc::downgrade(recording)),
            Recorded::InOne(known) if std::ptr::eq(known.as_ptr(), Arc::as_ptr(recording)) => {}
            Recorded::InOne(_) | Recorded::InMany => *recorded = Recorded::InMany,
        }
    }

    /// It is no longer known how many were issued.
    #[cold]
    pub(super) fn lost_count(&self) {
        *self.recorded.lock() = Recorded::InMany;
    }

    /// Whether the communicator has failed, or was aborted: whoever looks at that afterwards finds why.
    pub(super) fn is_aborted(&self) -> bool {
        // SAFETY: only the address of the field is computed.
        self.word(unsafe { &raw mut (*self.block()).abort }).load(Ordering::Acquire) != 0
    }

    fn block(&self) -> *mut HostBlock {
        self.memory.address.cast()
    }

    /// No collective is under way. By the host: the watch reads these words whether a device has written them or not.
    pub(super) fn clear(&self) {
        // SAFETY: host memory of this size that nobody else accesses now.
        unsafe { std::ptr::write_bytes(self.block(), 0, 1) };
    }

    fn word(&self, word: *mut u32) -> &AtomicU32 {
        // SAFETY: a word of the block, which lives as long as this and is accessed as atomics only.
        unsafe { AtomicU32::from_ptr(word) }
    }

    fn long(&self, word: *mut u64) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

impl sycl::Counts for HostWords {
    fn has_done(
        &self,
        number: u64,
        recording: &mut dyn FnMut() -> Result<Option<Arc<Recording>>>,
    ) -> Result<Option<bool>> {
        if hooks::on(self.hooks, hooks::COUNTED_EARLY) {
            return Ok(Some(true));
        }
        // Before it is looked at whether a replay may have come between.
        let done = self.progress().done;
        let known = match &*self.recorded.lock() {
            Recorded::Nowhere => None,
            Recorded::InOne(known) => Some(known.as_ptr()),
            Recorded::InMany => return Ok(None),
        };
        // What is being recorded was not replayed yet.
        if let Some(known) = known
            && !recording()?.is_some_and(|recording| std::ptr::eq(known, Arc::as_ptr(&recording)))
        {
            return Ok(None);
        }
        Ok(Some(done >= number))
    }
}

impl Alarm for HostWords {
    fn device(&self) -> Option<[u8; 16]> {
        Some(self.device)
    }

    fn abort(&self) {
        if hooks::no_abort() {
            return;
        }
        // SAFETY: only the address of the field is computed.
        self.word(unsafe { &raw mut (*self.block()).abort }).store(1, Ordering::Release);
    }

    fn fault(&self) -> Option<DeviceFault> {
        // SAFETY: only the address of a field is computed.
        let code = self.word(unsafe { &raw mut (*self.block()).fault });
        if code.load(Ordering::Acquire) == 0 { None } else { self.progress().fault }
    }

    fn progress(&self) -> Progress {
        let block = self.block();
        // SAFETY: only addresses of fields are computed.
        unsafe {
            // `done` first: it never passes `entered` then.
            let done = self.long(&raw mut (*block).done).load(Ordering::Acquire);
            let entered = self.long(&raw mut (*block).entered).load(Ordering::Acquire);
            let code = self.word(&raw mut (*block).fault).load(Ordering::Acquire);
            let read = |word| self.word(word).load(Ordering::Relaxed);
            let fault = Fault::from_code(code).map(|fault| DeviceFault {
                fault,
                wire: read(&raw mut (*block).wire),
                step: read(&raw mut (*block).step),
                round: read(&raw mut (*block).round),
                expected: read(&raw mut (*block).expected),
                seen: read(&raw mut (*block).seen),
                call: self.long(&raw mut (*block).call).load(Ordering::Relaxed),
            });
            let number = self.long(&raw mut (*block).shape_call);
            let call = number.load(Ordering::Acquire);
            let shape = Shape {
                count: self.long(&raw mut (*block).shape_count).load(Ordering::Relaxed),
                kind: read(&raw mut (*block).shape_kind),
                fingerprint: read(&raw mut (*block).shape_fingerprint),
            };
            fence(Ordering::Acquire);
            // The device may be writing the next one's.
            let shape = (call != 0 && number.load(Ordering::Relaxed) == call).then_some((call, shape));
            let private = self.long(&raw mut (*block).private_entered).load(Ordering::Relaxed);
            Progress { entered, done, private, fault, shape }
        }
    }
}
