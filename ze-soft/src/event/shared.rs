//! Memory that events live in: a memfd, so that another process can map it, and what an IPC handle says of it.

use crate::engine::cuda::Pinned;
use crate::memory::page_size;
use level_zero_sys::{
    ZE_MAX_IPC_HANDLE_SIZE, ZE_RESULT_ERROR_INVALID_ARGUMENT, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, ze_result_t,
};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use std::ffi::{c_char, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;

/// A shared mapping of a memfd.
pub(super) struct Shared {
    /// Dropped by hand, before the mapping goes.
    pinned: Option<Pinned>,
    start: NonNull<c_void>,
    length: usize,
    file: OwnedFd,
}

// SAFETY: it is only an address range; what lies in it is accessed through atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// `length` bytes of zeros.
    pub(super) fn create(length: usize) -> Result<Self, ze_result_t> {
        let file =
            memfd_create(c"ze-soft-events", MFdFlags::MFD_CLOEXEC).map_err(|_| ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        let size = i64::try_from(length).map_err(|_| ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        nix::unistd::ftruncate(&file, size).map_err(|_| ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        Self::map(file, length)
    }

    /// The file of a handle from another process, if the descriptor that it names here is really that file.
    pub(super) fn open(handle: &IpcHandle, length: usize) -> Result<Self, ze_result_t> {
        if handle.descriptor < 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: it is borrowed for this call only; a number that isn't open makes the calls below fail.
        let file = unsafe { BorrowedFd::borrow_raw(handle.descriptor) };
        let status = fstat(file).map_err(|_| ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        if status.st_ino != handle.inode || usize::try_from(status.st_size).is_ok_and(|size| size < length) {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        let file = file.try_clone_to_owned().map_err(|_| ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        Self::map(file, length)
    }

    fn map(file: OwnedFd, length: usize) -> Result<Self, ze_result_t> {
        let size = NonZeroUsize::new(length).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let start = unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, file.as_fd(), 0) }
            .map_err(|_| ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        let mut shared = Self { pinned: None, start, length, file };
        shared.pinned = Pinned::new(start.as_ptr().expose_provenance(), length.next_multiple_of(page_size()))?;
        Ok(shared)
    }

    /// The `T` at an offset that holds one.
    pub(super) fn at<T>(&self, offset: usize) -> Option<NonNull<T>> {
        let end = offset.checked_add(size_of::<T>())?;
        // SAFETY: the offset was found to lie within the mapping.
        (end <= self.length && offset.is_multiple_of(align_of::<T>()))
            .then(|| unsafe { self.start.byte_add(offset).cast() })
    }

    /// A handle's part that names the file.
    pub(super) fn handle(&self, kind: Kind) -> Result<IpcHandle, ze_result_t> {
        let status = fstat(&self.file).map_err(|_| ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        Ok(IpcHandle { descriptor: self.file.as_raw_fd(), kind, inode: status.st_ino, words: [0; 3] })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.pinned = None;
        // SAFETY: the mapping is ours alone, and nothing refers to it once its owner is dropped.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// What an IPC handle is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An event pool.
    Pool,
    /// A counter-based event.
    Counted,
}

impl Kind {
    fn magic(self) -> u32 {
        match self {
            Self::Pool => 0x5a53_4550,
            Self::Counted => 0x5a53_4342,
        }
    }
}

/// An IPC handle, taken apart. Its first bytes are the number of a descriptor, which means nothing in another process
/// until the descriptor has been passed there and its number there put in its place; the inode tells whether it was.
pub(super) struct IpcHandle {
    pub(super) descriptor: RawFd,
    pub(super) kind: Kind,
    pub(super) inode: u64,
    pub(super) words: [u64; 3],
}

type Bytes = [c_char; ZE_MAX_IPC_HANDLE_SIZE];

impl IpcHandle {
    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = [0; ZE_MAX_IPC_HANDLE_SIZE];
        let mut put = |at: usize, source: &[u8]| {
            for (place, byte) in bytes[at..].iter_mut().zip(source) {
                *place = *byte as c_char;
            }
        };
        put(0, &self.descriptor.to_ne_bytes());
        put(4, &self.kind.magic().to_ne_bytes());
        put(8, &self.inode.to_ne_bytes());
        for (index, word) in self.words.iter().enumerate() {
            put(16 + 8 * index, &word.to_ne_bytes());
        }
        bytes
    }

    /// Refuses what isn't a handle of this kind.
    pub(super) fn decode(bytes: &Bytes, kind: Kind) -> Result<Self, ze_result_t> {
        let four = |at: usize| std::array::from_fn(|index| bytes[at + index] as u8);
        let eight = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index] as u8));
        if u32::from_ne_bytes(four(4)) != kind.magic() {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        Ok(Self {
            descriptor: RawFd::from_ne_bytes(four(0)),
            kind,
            inode: eight(8),
            words: std::array::from_fn(|index| eight(16 + 8 * index)),
        })
    }
}
