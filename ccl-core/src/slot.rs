//! Lines in staging memory: the one host file that knows memory order.
//!
//! A device kernel writes a line with a single store. On the CPU the same guarantee, "whoever sees the flag sees the
//! data", comes from release and acquire on the flag: the data words are plain memory, written before the flag's
//! release store and read after its acquire load. Nothing overwrites them before the receiver has passed on what it
//! read (docs/protocol.md), so no access races. Compiled with `--cfg loom` the very same code runs on loom's types,
//! which check just that.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};

/// `UnsafeCell` with loom's closures for interface.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A line of `D` words of data and a flag. `D` is 1, 3 or 15 (`LineForm::payload_words`).
#[derive(Debug)]
#[repr(C)]
pub struct Line<const D: usize> {
    data: UnsafeCell<[u32; D]>,
    flag: AtomicU32,
}

// SAFETY: the data is only touched by the sender before its release store of the flag and by the receiver after its
// acquire load, which the protocol orders (and loom checks).
unsafe impl<const D: usize> Sync for Line<D> {}
// SAFETY: a line owns plain words only.
unsafe impl<const D: usize> Send for Line<D> {}

impl<const D: usize> Default for Line<D> {
    fn default() -> Self {
        Self { data: UnsafeCell::new([0; D]), flag: AtomicU32::new(0) }
    }
}

impl<const D: usize> Line<D> {
    /// Writes the data, then the flag: the order that a receiver relies on.
    #[inline(always)]
    pub fn put(&self, data: &[u32; D], tag: u32) {
        // SAFETY: the receiver does not read this line before it sees `tag`, and it has already passed on what the
        // line held before (docs/protocol.md, "Slots").
        self.data.with_mut(|line| unsafe { line.write(*data) });
        self.flag.store(tag, Ordering::Release);
    }

    /// NEGATIVE CONTROL, for tests only: flag before data.
    #[doc(hidden)]
    pub fn put_flag_first(&self, data: &[u32; D], tag: u32, between: impl FnOnce()) {
        self.flag.store(tag, Ordering::Release);
        between();
        // SAFETY: deliberately none: this is the fault that the tests must catch.
        self.data.with_mut(|line| unsafe { line.write(*data) });
    }

    /// The flag as it is now; if it is the tag that is waited for, the data of that message may be read.
    #[inline(always)]
    pub fn flag(&self) -> u32 {
        self.flag.load(Ordering::Acquire)
    }

    /// Reads the data of a line whose flag was seen.
    #[inline(always)]
    pub fn take(&self) -> [u32; D] {
        // SAFETY: the flag's acquire load ordered this read after the sender's writes, and the sender writes here
        // again only after this receiver has passed on what it reads now.
        self.data.with(|line| unsafe { line.read() })
    }

    /// Makes the line hold no message. Only between the two barriers of a clearing.
    pub fn clear(&self) {
        self.flag.store(0, Ordering::Relaxed);
    }
}

/// Words of data in bulk, and their flag apart from them. Whoever sees the flag sees the data.
///
/// Where the data is a range of staging memory rather than words of a size, a twin copies it and uses a [`BulkFlag`].
#[derive(Debug)]
pub struct BulkSlot<const D: usize> {
    data: UnsafeCell<[u32; D]>,
}

// SAFETY: as for `Line`: a flag's release and acquire order the accesses, and the generations keep the next ones off.
unsafe impl<const D: usize> Sync for BulkSlot<D> {}
// SAFETY: a slot owns plain words only.
unsafe impl<const D: usize> Send for BulkSlot<D> {}

impl<const D: usize> Default for BulkSlot<D> {
    fn default() -> Self {
        Self { data: UnsafeCell::new([0; D]) }
    }
}

impl<const D: usize> BulkSlot<D> {
    fn write(&self, data: &[u32; D]) {
        // SAFETY: the receiver reads only after it has seen the flag that follows, and whoever stores here has itself
        // taken what was here before (docs/protocol.md, "Why two generations are enough").
        self.data.with_mut(|slot| unsafe { slot.write(*data) });
    }

    /// Writes the data, then the receiver's flag.
    pub fn put(&self, data: &[u32; D], flag: &BulkFlag, tag: u32) {
        self.write(data);
        flag.raise(tag);
    }

    /// NEGATIVE CONTROL, for tests only: flag before data.
    #[doc(hidden)]
    pub fn put_flag_first(&self, data: &[u32; D], flag: &BulkFlag, tag: u32) {
        flag.raise(tag);
        self.write(data);
    }

    /// NEGATIVE CONTROL, for tests only: a flag that orders nothing.
    #[doc(hidden)]
    pub fn put_without_release(&self, data: &[u32; D], flag: &BulkFlag, tag: u32) {
        self.write(data);
        flag.0.store(tag, Ordering::Relaxed);
    }

    /// Reads the data of a slot after its message's flag was seen.
    pub fn take(&self) -> [u32; D] {
        // SAFETY: the flag's acquire load ordered this read after the sender's writes, and the next to write here is
        // this receiver.
        self.data.with(|slot| unsafe { slot.read() })
    }
}

/// A flag apart from its data: of a bulk slot, or of a direct call.
#[derive(Debug)]
#[repr(C)]
pub struct BulkFlag(AtomicU32);

impl Default for BulkFlag {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl BulkFlag {
    /// Tells that everything that this thread has stored so far is there.
    #[inline(always)]
    pub fn raise(&self, tag: u32) {
        self.0.store(tag, Ordering::Release);
    }

    /// The flag as it is now; what was stored before it was raised may be read.
    #[inline(always)]
    pub fn seen(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Makes it tell nothing. Only between the two barriers of a clearing.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::protocol::LineForm;

    #[test]
    fn a_line_fills_its_granule() {
        assert_eq!(size_of::<Line<1>>(), LineForm::L8.granule());
        assert_eq!(size_of::<Line<3>>(), LineForm::L16.granule());
        assert_eq!(size_of::<Line<15>>(), LineForm::L64.granule());
    }
}
