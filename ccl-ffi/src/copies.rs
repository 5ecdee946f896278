//! Other libraries for the same calls in this process: copies of this one, and oneCCL's own. Two of them split a program's
//! calls, and a communicator made by one is unknown to the other.
//!
//! A copy that was called shows itself by a page of a name of its own among the process's mappings, which other copies find
//! wherever they were loaded from and in whichever namespace of the dynamic linker.

use crate::handle::{OnecclComm, own_path};
use ccl_core::linker;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name of a copy's page.
const NAME: &CStr = c"cclx-copy-1";
const MAGIC: [u8; 8] = *b"cclxcop1";
const PATH_BYTES: usize = 4000;

/// A copy's communicators: how many fit an id's digest, or null for any, and a device, or -1 for any; one of them.
type Lookup = unsafe extern "C" fn(digest: *const u8, device: c_int, found: *mut *mut OnecclComm) -> c_int;

/// What a copy's page holds.
#[repr(C)]
struct Page {
    magic: [u8; 8],
    /// Address of the copy's own byte, by which it is told from this one.
    copy: usize,
    lookup: Lookup,
    path: [c_char; PATH_BYTES],
}

/// A library that is not this one.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    pub(crate) path: String,
    /// It is a copy of this library that was called; else its file has the name of one, or of oneCCL's.
    lookup: Option<Lookup>,
}

impl Other {
    /// Whether it is a copy of this library that was called.
    pub(crate) fn is_copy(&self) -> bool {
        self.lookup.is_some()
    }

    /// As [`Lookup`].
    pub(crate) fn lookup(&self, digest: Option<&[u8; 32]>, device: c_int) -> (usize, *mut OnecclComm) {
        let mut found = std::ptr::null_mut();
        let count = self.lookup.map_or(0, |lookup| {
            // SAFETY: a function of a copy that stays loaded, by the page's version; null or 32 bytes, and a place.
            unsafe { lookup(digest.map_or(std::ptr::null(), |digest| digest.as_ptr()), device, &raw mut found) }
        });
        (usize::try_from(count).unwrap_or(0), found)
    }
}

/// Shows this copy to others. Without it (no memory, a filter of system calls) only their files' names tell.
pub(crate) fn show(copy: usize, lookup: Lookup) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| _ = map(copy, lookup));
}

fn map(copy: usize, lookup: Lookup) -> std::io::Result<()> {
    let failed = std::io::Error::last_os_error;
    // SAFETY: a terminated name.
    let descriptor = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(failed());
    }
    // SAFETY: the system has just made it for nobody else.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let bytes = size_of::<Page>();
    // SAFETY: a descriptor of our own.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) } != 0 {
        return Err(failed());
    }
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, at an address that the system chooses.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, file.as_raw_fd(), 0) };
    if place == libc::MAP_FAILED {
        return Err(failed());
    }
    let mut page = Page { magic: [0; 8], copy, lookup, path: [0; PATH_BYTES] };
    for (to, from) in page.path.iter_mut().zip(own_path().bytes().take(PATH_BYTES - 1)) {
        *to = from as c_char;
    }
    let place: *mut Page = place.cast();
    // SAFETY: mapped with room for it, and seen by nobody who doesn't look for the mark, which comes last.
    unsafe {
        place.write(page);
        std::sync::atomic::fence(Ordering::Release);
        (&raw mut (*place).magic).write_volatile(MAGIC);
    }
    Ok(())
}

/// The other libraries, copies that were called first.
pub(crate) fn others(copy: usize) -> Vec<Other> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mappings: Vec<_> = maps.lines().filter_map(Mapping::parse).collect();
    let mut others: Vec<Other> = Vec::new();
    let own = mappings.iter().find(|mapping| mapping.holds(copy)).map(|mapping| (mapping.device, mapping.inode));
    for mapping in mappings.iter().filter(|mapping| mapping.is_page()) {
        // SAFETY: a mapping of that name and size is a page of a copy, which never unmaps it.
        let page = unsafe { &*(mapping.start as *const Page) };
        // SAFETY: inside that page; volatile, as another thread may be about to write it.
        let magic = unsafe { (&raw const page.magic).read_volatile() };
        std::sync::atomic::fence(Ordering::Acquire);
        if magic == MAGIC && page.copy != copy {
            // SAFETY: the page's maker ends the text with a zero.
            let path = unsafe { CStr::from_ptr(page.path.as_ptr()) }.to_string_lossy().into_owned();
            others.push(Other { path, lookup: Some(page.lookup) });
        }
    }
    for mapping in mappings.iter().filter(|mapping| is_such_a_name(mapping.path)) {
        let known = others.iter().any(|other| other.path == mapping.path || same_file(&other.path, mapping));
        if own != Some((mapping.device, mapping.inode)) && !known {
            others.push(Other { path: mapping.path.into(), lookup: None });
        }
    }
    others
}

fn same_file(path: &str, mapping: &Mapping<'_>) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.ino() == mapping.inode && mapping.inode != 0)
}

/// The file that an address of some library's belongs to, for people.
pub(crate) fn file_of(address: usize) -> Option<String> {
    linker::file_of(address).map(|file| file.to_string_lossy().into_owned())
}

/// oneCCL's name, or ours, but not those of the audit library and the like.
fn is_such_a_name(path: &str) -> bool {
    let name = path.trim_end_matches(" (deleted)");
    let name = name.rsplit('/').next().unwrap_or(name);
    name == "libcclx.so" || name == "libccl.so" || name == "libccl.so.2" || name.starts_with("libccl.so.2.")
}

/// What helps, in words.
pub(crate) fn advice(own: &str) -> String {
    format!(
        "load one only: start the program with `ccl run --route audit`, which has every lookup find {own}, or take the \
         other out of LD_PRELOAD, LD_LIBRARY_PATH or the program"
    )
}

/// The one message about a second library; none if there is none that is meant to be there.
pub(crate) fn warning(copy: usize) -> Option<String> {
    let others: Vec<_> = others(copy).into_iter().filter(|other| !is_meant(other)).collect();
    let first = others.first()?;
    let kind = if first.lookup.is_some() {
        "another copy of it, which was called"
    } else {
        "another library for oneCCL's calls"
    };
    let own = own_path();
    Some(format!(
        "this process has two libraries for oneCCL's calls: {own}, which was called now, and {}, {kind}; a communicator made by \
         one is unknown to the other: {}",
        first.path,
        advice(&own)
    ))
}

/// This library was reached through oneCCL's own, as its plugin.
pub(crate) static AS_PLUGIN: AtomicBool = AtomicBool::new(false);

/// oneCCL's own library, where it is to be there: above this one.
pub(crate) fn is_meant(other: &Other) -> bool {
    other.lookup.is_none() && AS_PLUGIN.load(Ordering::Relaxed)
}

/// A line of `/proc/self/maps`.
struct Mapping<'a> {
    start: usize,
    end: usize,
    device: &'a str,
    inode: u64,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Mapping<'a>> {
        let mut rest = line;
        let mut field = || {
            let (field, after) = rest.split_once(' ')?;
            rest = after.trim_start();
            Some(field)
        };
        let (range, _access, _offset, device, inode) = (field()?, field()?, field()?, field()?, field()?);
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(Mapping { start: number(start)?, end: number(end)?, device, inode: inode.parse().ok()?, path: rest })
    }

    fn holds(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    fn is_page(&self) -> bool {
        let name = self.path.strip_prefix("/memfd:").and_then(|name| name.strip_suffix(" (deleted)"));
        name.is_some_and(|name| name.as_bytes() == NAME.to_bytes()) && self.end - self.start >= size_of::<Page>()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_map() {
        let line = "7f0000001000-7f0000003000 r-xp 00001000 fe:01 4242                       /opt/a b/libccl.so.2";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end, mapping.inode), (0x7f00_0000_1000, 0x7f00_0000_3000, 4242));
        assert_eq!((mapping.device, mapping.path), ("fe:01", "/opt/a b/libccl.so.2"));
        assert!(mapping.holds(0x7f00_0000_1fff) && !mapping.holds(0x7f00_0000_3000) && !mapping.is_page());
        let anonymous = Mapping::parse("7f0000001000-7f0000003000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(anonymous.path, "");
        let page = Mapping::parse("7f0000001000-7f0000003000 rw-s 00000000 00:01 9    /memfd:cclx-copy-1 (deleted)");
        assert!(page.unwrap().is_page());
        for name in ["/x/libccl.so.2", "/x/libccl.so.2.0 (deleted)", "/x/libcclx.so", "/x/libccl.so"] {
            assert!(is_such_a_name(name), "{name}");
        }
        for name in ["/x/libccl.so.1", "/x/libcclx_audit.so", "[heap]", "/x/libcclx_sycl8.so", ""] {
            assert!(!is_such_a_name(name), "{name}");
        }
    }
}
