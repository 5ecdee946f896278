//! What the dynamic linker knows.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// The file that an address of some library's or the program's belongs to, by the name that it was loaded by.
pub fn file_of(address: usize) -> Option<PathBuf> {
    // SAFETY: all zeros is a value of this plain C structure.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; a place for what is known of it.
    if unsafe { libc::dladdr(address as *const c_void, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker gave a terminated string that lives as long as the file is loaded, and it is copied at once.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Why this thread's last call of the linker failed.
pub fn last_error() -> String {
    // SAFETY: terminated if it isn't null, and read before this thread's next call of the linker.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "no reason given".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}
