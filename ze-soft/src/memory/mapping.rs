//! Files of memory and their mappings: the system calls under every allocation.

use crate::engine::cuda::TICKET_BYTES;
use level_zero_sys::{ZE_MEMORY_TYPE_DEVICE, ZE_MEMORY_TYPE_HOST, ZE_MEMORY_TYPE_SHARED, ze_memory_type_t};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::ffi::{CString, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;

/// Every allocation holds a descriptor, so the usual soft limit of 1024 is soon reached: this raises it to the hard
/// one. A program that uses `select` on descriptors above 1023 has to know.
pub(crate) fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // Where it isn't allowed the old limit holds, and an allocation beyond it fails by name.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

pub(crate) fn page_size() -> usize {
    // SAFETY: asking for a number of the system has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize
}

/// Whether every page of a range is mapped in this process.
pub(crate) fn is_mapped(base: usize, size: usize) -> bool {
    const AT_ONCE: usize = 1 << 12;
    let page = page_size();
    let mut resident = [0u8; AT_ONCE];
    (0..size.div_ceil(page)).step_by(AT_ONCE).all(|first| {
        let bytes = (size - first * page).min(AT_ONCE * page);
        let start: *mut c_void = std::ptr::without_provenance_mut(base + first * page);
        // SAFETY: mincore only looks at the page tables, and the vector has room for one byte per page asked about.
        unsafe { libc::mincore(start, bytes, resident.as_mut_ptr()) == 0 }
    })
}

/// A memfd in whole pages. Its name says what it is, so that a process that was only passed the descriptor knows as
/// much; its size is sealed, so that no mapping of it can lose its pages.
pub(crate) struct File {
    descriptor: OwnedFd,
    size: usize,
    kind: ze_memory_type_t,
    device: Option<u32>,
    identity: Identity,
    /// Not the memory itself, but what tells CUDA in another process which memory it is.
    ticket: bool,
}

/// What tells one file from all others that live at the same time on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) filesystem: u64,
    pub(crate) inode: u64,
}

const KINDS: [(ze_memory_type_t, &str); 3] =
    [(ZE_MEMORY_TYPE_DEVICE, "device"), (ZE_MEMORY_TYPE_SHARED, "shared"), (ZE_MEMORY_TYPE_HOST, "host")];
const NAME: &str = "ze-soft";
/// What a ticket's name has for a kind.
const TICKET: &str = "gpu";

impl File {
    pub(crate) fn create(kind: ze_memory_type_t, device: Option<u32>, size: usize) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let kind_name = KINDS.iter().find(|(number, _)| *number == kind).map_or("host", |(_, name)| name);
        let size = size.checked_next_multiple_of(page_size()).ok_or_else(too_large)?;
        Self::named(kind, kind_name, device, size)
    }

    /// A ticket for memory of a GPU.
    pub(crate) fn ticket(device: Option<u32>, bytes: &[u8; TICKET_BYTES]) -> io::Result<Self> {
        let file = Self::named(ZE_MEMORY_TYPE_DEVICE, TICKET, device, page_size())?;
        let written = nix::sys::uio::pwrite(&file.descriptor, bytes, 0)?;
        if written == bytes.len() { Ok(file) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn named(kind: ze_memory_type_t, kind_name: &str, device: Option<u32>, size: usize) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let length = i64::try_from(size).map_err(|_| too_large())?;
        let name = match device {
            Some(device) => format!("{NAME}-{kind_name}-{device}"),
            None => format!("{NAME}-{kind_name}"),
        };
        let name = CString::new(name).map_err(io::Error::other)?;
        let descriptor = memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        nix::unistd::ftruncate(&descriptor, length)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&descriptor, FcntlArg::F_ADD_SEALS(seals))?;
        let identity = identify(&descriptor)?.0;
        Ok(Self { descriptor, size, kind, device, identity, ticket: kind_name == TICKET })
    }

    /// Whether it is a ticket for memory of a GPU, not memory.
    pub(crate) fn is_ticket(&self) -> bool {
        self.ticket
    }

    /// What a ticket says.
    pub(crate) fn read_ticket(&self) -> io::Result<[u8; TICKET_BYTES]> {
        let mut bytes = [0; TICKET_BYTES];
        match nix::sys::uio::pread(&self.descriptor, &mut bytes, 0)? {
            TICKET_BYTES => Ok(bytes),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The file behind a descriptor that came from somewhere; `None` if it isn't one of these. The descriptor stays the
    /// caller's.
    pub(crate) fn received(descriptor: BorrowedFd<'_>) -> Option<Self> {
        // Only a memfd has seals.
        fcntl(descriptor, FcntlArg::F_GET_SEALS).ok()?;
        let name = nix::fcntl::readlink(format!("/proc/self/fd/{}", descriptor.as_raw_fd()).as_str()).ok()?;
        let name = name.to_str()?.strip_prefix("/memfd:")?.split_whitespace().next()?;
        let mut parts = name.strip_prefix(NAME)?.strip_prefix('-')?.split('-');
        let kind_name = parts.next()?;
        let ticket = kind_name == TICKET;
        let kind = match ticket {
            true => ZE_MEMORY_TYPE_DEVICE,
            false => KINDS.iter().find(|(_, name)| *name == kind_name)?.0,
        };
        let device = match parts.next() {
            Some(number) => Some(number.parse().ok()?),
            None => None,
        };
        let (identity, size) = identify(descriptor).ok()?;
        let descriptor = descriptor.try_clone_to_owned().ok()?;
        Some(Self { descriptor, size, kind, device, identity, ticket })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.descriptor.try_clone()
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn kind(&self) -> ze_memory_type_t {
        self.kind
    }

    pub(crate) fn device(&self) -> Option<u32> {
        self.device
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }
}

fn identify(descriptor: impl AsFd) -> io::Result<(Identity, usize)> {
    let stat = nix::sys::stat::fstat(descriptor)?;
    Ok((Identity { filesystem: stat.st_dev, inode: stat.st_ino }, stat.st_size as usize))
}

/// Mapped pages, unmapped when dropped.
pub(crate) struct Mapping {
    base: usize,
    size: usize,
}

impl Mapping {
    /// Maps a whole file at an address that is a multiple of `alignment` (0: any page). What is stored reaches the file
    /// only if it is `shared`.
    pub(crate) fn of_file(descriptor: BorrowedFd<'_>, size: usize, alignment: usize, shared: bool) -> io::Result<Self> {
        let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        if alignment <= page_size() {
            return map(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, Some(descriptor));
        }
        // Reserve enough to find an aligned place within, map over that, and give the rest back.
        let reserved_size = size.checked_add(alignment).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let reserved = map(null_mut(), reserved_size, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None)?;
        let base = reserved.base.next_multiple_of(alignment);
        let place = std::ptr::without_provenance_mut(base);
        let mapping = map(place, size, libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_FIXED, Some(descriptor))?;
        let reserved = std::mem::ManuallyDrop::new(reserved);
        drop(Self { base: reserved.base, size: base - reserved.base });
        drop(Self { base: base + size, size: reserved.base + reserved.size - base - size });
        Ok(mapping)
    }

    /// Fresh pages of this process alone.
    pub(crate) fn private(size: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        map(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, None)
    }

    /// Addresses with nothing behind them; near `wanted` if that is not 0.
    pub(crate) fn reserve(wanted: usize, size: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        map(std::ptr::without_provenance_mut(wanted), size, libc::PROT_NONE, flags, None)
    }

    /// Puts part of a file, or with none nothing, behind part of these addresses, with this protection. The part must lie
    /// within.
    pub(crate) fn cover(
        &self,
        start: usize,
        size: usize,
        protection: i32,
        file: Option<(BorrowedFd<'_>, i64)>,
    ) -> io::Result<()> {
        assert!(start >= self.base && size <= self.base + self.size - start, "that part is not of this mapping");
        let place = std::ptr::with_exposed_provenance_mut(start);
        let (kind, descriptor, offset) = match file {
            Some((file, offset)) => (libc::MAP_SHARED, file.as_raw_fd(), offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0),
        };
        // SAFETY: the addresses belong to this mapping, as was checked.
        let base = unsafe { libc::mmap(place, size, protection, kind | libc::MAP_FIXED, descriptor, offset) };
        if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Changes the protection of a part, which must lie within.
    pub(crate) fn protect(&self, start: usize, size: usize, protection: i32) -> io::Result<()> {
        assert!(start >= self.base && size <= self.base + self.size - start, "that part is not of this mapping");
        // SAFETY: as in `cover`.
        match unsafe { libc::mprotect(std::ptr::with_exposed_provenance_mut(start), size, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn base(&self) -> usize {
        self.base
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

fn map(
    place: *mut c_void,
    size: usize,
    protection: i32,
    flags: i32,
    file: Option<BorrowedFd<'_>>,
) -> io::Result<Mapping> {
    let descriptor = file.map_or(-1, |file| file.as_raw_fd());
    // SAFETY: without MAP_FIXED the system picks unused addresses; with it `place` lies in a range that the caller
    // reserved for this.
    let base = unsafe { libc::mmap(place, size, protection, flags, descriptor, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(Mapping { base: base.expose_provenance(), size })
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.size > 0 {
            // SAFETY: these pages were mapped by `map` and belong to this value alone.
            unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.base), self.size) };
        }
    }
}
