//! Which communicator of those that a process makes at the same time has a device to itself.

use ccl_core::device::ClaimKey;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// One communicator's claim to a device. Whoever has the least key of those that want it goes first, so that devices that
/// several communicators want all go to the same one in the end, whatever order they are asked in. Ranks of one
/// communicator that share the device have it together.
///
/// Dropped when the communicator is made, or not going to be.
pub(crate) struct Claim {
    number: u64,
    device: usize,
}

struct Entry {
    number: u64,
    device: usize,
    key: ClaimKey,
    granted: bool,
}

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Claim {
    pub(crate) fn new(device: usize) -> Claim {
        Claim { number: NEXT.fetch_add(1, Ordering::Relaxed), device }
    }

    /// Whether it has the device now. If not, nobody with a greater key gets it before.
    pub(crate) fn granted(&self, key: ClaimKey) -> bool {
        let mut entries = ENTRIES.lock();
        let Claim { number, device } = *self;
        let others = || entries.iter().filter(|entry| entry.device == device && entry.key != key);
        let granted = others().all(|entry| !entry.granted && entry.key > key);
        entries.retain(|entry| entry.number != number);
        entries.push(Entry { number, device, key, granted });
        granted
    }

    /// It waits again, after its communicator didn't get another device.
    pub(crate) fn step_back(&self) {
        if let Some(own) = ENTRIES.lock().iter_mut().find(|entry| entry.number == self.number) {
            own.granted = false;
        }
    }

    /// It wants the device no more.
    pub(crate) fn withdraw(&self) {
        ENTRIES.lock().retain(|entry| entry.number != self.number);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No device of any other test.
    const DEVICE: usize = usize::MAX;

    #[test]
    fn the_least_key_has_the_device_next() {
        let [first, second, third] = [(1, 0), (2, 0), (2, 1)];
        let claims: Vec<_> = (0..4).map(|_| Claim::new(DEVICE)).collect();
        assert!(claims[1].granted(second), "nobody else wants it");
        assert!(claims[3].granted(second), "another rank of the same");
        assert!(!claims[2].granted(third) && !claims[0].granted(first), "it is another's");
        claims[1].step_back();
        assert!(!claims[0].granted(first), "one of its ranks still has it");
        claims[3].withdraw();
        assert!(!claims[2].granted(third) && !claims[1].granted(second), "it is for the least key");
        assert!(claims[0].granted(first) && claims[0].granted(first));
        let elsewhere = Claim::new(DEVICE - 1);
        assert!(elsewhere.granted(third));
        drop(claims);
        assert!(Claim::new(DEVICE).granted(third), "nothing is left");
    }
}
