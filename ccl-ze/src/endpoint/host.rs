//! The words that host and device exchange while a collective runs.

use crate::memory::Allocation;
use ccl_core::protocol::{Fault, HostBlock, Shape};
use ccl_core::watch::{Alarm, DeviceFault, Progress};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The host block, as the watch uses it.
pub(super) struct HostWords {
    pub(super) memory: Allocation,
    pub(super) device: [u8; 16],
}

impl HostWords {
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

impl Alarm for HostWords {
    fn device(&self) -> Option<[u8; 16]> {
        Some(self.device)
    }

    fn abort(&self) {
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
