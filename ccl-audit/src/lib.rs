//! An audit library for glibc's dynamic linker (`LD_AUDIT`): whoever asks for oneCCL's `libccl.so.2`, by whatever name or
//! path, gets this project's library. docs/preload.md says when to use it.
//!
//! The linker loads it with a C library of its own, in a namespace of its own, before the program's first library. It asks for
//! no per-call hooks, so that calls cost what they cost without it.

use ccl_core::linker;
use std::ffi::{CStr, CString, OsStr, c_char, c_long, c_uint, c_void};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The name as whoever asks has it, before any search (`LA_SER_ORIG`).
const AS_ASKED_FOR: c_uint = 1;
/// The namespace of the program itself (`LM_ID_BASE`).
const BASE: c_long = 0;

/// The public part of the linker's `struct link_map`.
#[repr(C)]
pub struct LinkMap {
    address: usize,
    name: *const c_char,
    dynamic: *mut c_void,
    next: *mut LinkMap,
    previous: *mut LinkMap,
}

/// What takes oneCCL's place.
static OURS: OnceLock<CString> = OnceLock::new();

/// Whether `name` stands for the library that ours takes the place of: its plain name or that of version 2. Version 1 is the
/// C++ API, which is another library.
fn is_oneccl(name: &[u8]) -> bool {
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    file == b"libccl.so" || file == b"libccl.so.2" || file.starts_with(b"libccl.so.2.")
}

/// A path that is meant as it is: who opens the real library beside ours says so by two slashes.
fn is_meant(name: &[u8]) -> bool {
    name.starts_with(b"//")
}

/// The library of `CCLX_LIBRARY`, else the one beside this file.
fn library() -> Option<PathBuf> {
    let named = std::env::var_os("CCLX_LIBRARY").map(PathBuf::from);
    let path = named.or_else(|| Some(linker::file_of((&raw const OURS).addr())?.with_file_name("libcclx.so")))?;
    if path.is_absolute() && path.is_file() {
        return Some(path);
    }
    eprintln!("libcclx_audit: {} is no absolute path of a file: oneCCL stays in its place", path.display());
    None
}

/// Whether this library is to be heard, and in which version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(offered: c_uint) -> c_uint {
    match library().and_then(|path| CString::new(path.into_os_string().into_vec()).ok()) {
        Some(path) => {
            _ = OURS.set(path);
            // Both versions that there are have the functions below.
            offered
        }
        None => 0,
    }
}

/// An object was mapped. Remembers whether it is the program's own, and takes note of a library that is oneCCL's or ours.
///
/// # Safety
/// Called by the dynamic linker, with its map of the object and a place for a word.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(map: *const LinkMap, namespace: c_long, cookie: *mut usize) -> c_uint {
    // SAFETY: the linker's place for a word of ours.
    unsafe { cookie.write(usize::from(namespace != BASE)) };
    // SAFETY: the linker's map of an object, whose name is null or terminated.
    let name = unsafe { (*map).name };
    if !name.is_null() {
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let ours = OURS.get().is_some_and(|ours| ours.to_bytes() == name);
        if ours || is_oneccl(name) {
            note(Path::new(OsStr::from_bytes(name)));
        }
    }
    // No hooks for its symbols: calls go straight.
    0
}

/// Where an object is to be looked for.
///
/// # Safety
/// Called by the dynamic linker, with a terminated name and the word of whoever asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(name: *const c_char, cookie: *mut usize, flag: c_uint) -> *const c_char {
    if flag != AS_ASKED_FOR || name.is_null() {
        return name;
    }
    // SAFETY: terminated, by this function's contract.
    let asked = unsafe { CStr::from_ptr(name) }.to_bytes();
    // What another namespace asks for is the real library's own affair.
    // SAFETY: the word of the object that asks, which the linker keeps.
    let elsewhere = !cookie.is_null() && unsafe { cookie.read() } == 1;
    match OURS.get() {
        Some(ours) if !elsewhere && is_oneccl(asked) && !is_meant(asked) => ours.as_ptr(),
        _ => name,
    }
}

/// Adds a line to this process's file in the folder of `CCLX_REPORT`, in the form of `ccl_core::presence`.
fn note(library: &Path) {
    let Some(folder) = std::env::var_os("CCLX_REPORT") else { return };
    let process = std::process::id();
    let program = std::env::current_exe().unwrap_or_default();
    let line = format!(
        "{{\"pid\":{process},\"program\":{},\"event\":{{\"mapped\":{{\"library\":{}}}}}}}\n",
        json(&program.to_string_lossy()),
        json(&library.to_string_lossy())
    );
    let file = OpenOptions::new().append(true).create(true).open(Path::new(&folder).join(process.to_string()));
    // Nobody to tell if it can't be written: the report then lacks the line.
    if let Ok(mut file) = file {
        _ = file.write_all(line.as_bytes());
    }
}

fn json(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            control if control < ' ' => quoted += &format!("\\u{:04x}", control as u32),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_library() {
        for name in
            ["libccl.so", "libccl.so.2", "libccl.so.2.0", "/opt/x/libccl.so.2", "./libccl.so", "//opt/libccl.so.2"]
        {
            assert!(is_oneccl(name.as_bytes()), "{name}");
        }
        for name in ["libccl.so.1", "libccl.so.1.0", "libcclx.so", "libccl.so.20", "/libccl.so.2/x", "libnccl.so.2", ""]
        {
            assert!(!is_oneccl(name.as_bytes()), "{name}");
        }
        assert!(is_meant(b"//opt/libccl.so.2") && !is_meant(b"/opt/libccl.so.2") && !is_meant(b"libccl.so.2"));
    }

    #[test]
    fn texts_in_json() {
        assert_eq!(json("a\"b\\c\nd\u{e9}"), "\"a\\\"b\\\\c\\u000ad\u{e9}\"");
    }
}
