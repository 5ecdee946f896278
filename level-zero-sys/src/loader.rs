//! Opens the system's loader library.

use core::error::Error;
use core::ffi::{CStr, c_void};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::{MissingSymbol, Table};

/// The loader's name, looked up along the system's search path.
const SONAME: &str = "libze_loader.so.1";

/// Why the loader could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The path given is not absolute.
    #[error("the path of the Level Zero loader must be absolute: {}", .0.display())]
    RelativePath(PathBuf),
    /// `LD_LIBRARY_PATH` would have the system search the current folder.
    #[error(
        "LD_LIBRARY_PATH holds {element:?}, which makes the system look for {SONAME} relative to the current folder: \
         remove it or give the loader's absolute path"
    )]
    UnsafeSearchPath {
        /// The element at fault; empty where two separators touch or one stands at an end.
        element: String,
    },
    /// The system could not open the library.
    #[error("cannot open the Level Zero loader {name}: {reason}")]
    Open {
        /// Name or path asked for.
        name: String,
        /// What the system said.
        reason: String,
    },
    /// The library lacks a function.
    #[error(transparent)]
    Missing(#[from] MissingSymbol),
}

/// The open loader library and the functions it exports.
///
/// Clones share the library. Keep one for as long as any function of its table may be called: the library is closed
/// when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Loader {
    table: Table,
    _library: Arc<Library>,
}

impl Loader {
    /// Opens `libze_loader.so.1` from the system's search path.
    ///
    /// Reads `LD_LIBRARY_PATH` for safety only: an empty or relative element makes the system search the current
    /// folder, so it is refused.
    pub fn open() -> Result<Self, LoadError> {
        if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
            check_search_path(&path)?;
        }
        Self::load(OsStr::new(SONAME))
    }

    /// Opens the loader at `path`, which must be absolute.
    pub fn open_path(path: &Path) -> Result<Self, LoadError> {
        if !path.is_absolute() {
            return Err(LoadError::RelativePath(path.to_owned()));
        }
        Self::load(path.as_os_str())
    }

    /// The functions of the library; valid while a clone of this loader lives.
    pub fn table(&self) -> &Table {
        &self.table
    }

    fn load(name: &OsStr) -> Result<Self, LoadError> {
        // SAFETY: runs the library's constructors; the caller asked for the Level Zero loader by its soname or by an
        // absolute path, and opening it is what a program linked with it does at its start.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| LoadError::Open { name: name.display().to_string(), reason: reason(&error) })?;
        let table = Table::load_with(|symbol| address(&library, symbol))?;
        Ok(Self { table, _library: Arc::new(library) })
    }
}

/// What the system said, which the error itself leaves to its source.
fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// The address of `symbol`, null if the library has none.
fn address(library: &Library, symbol: &CStr) -> *const c_void {
    // SAFETY: only the address is taken; nothing is read or called through it here.
    match unsafe { library.get::<*const c_void>(symbol) } {
        Ok(found) => found.into_raw().cast_const(),
        Err(_) => core::ptr::null(),
    }
}

/// Refuses a library search path with an element that isn't absolute. An empty variable is no search path at all.
fn check_search_path(path: &OsStr) -> Result<(), LoadError> {
    if path.is_empty() {
        return Ok(());
    }
    // The system separates elements by either sign.
    match path.as_bytes().split(|&byte| byte == b':' || byte == b';').find(|element| !element.starts_with(b"/")) {
        None => Ok(()),
        Some(element) => Err(LoadError::UnsafeSearchPath { element: String::from_utf8_lossy(element).into_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str) -> Option<String> {
        match check_search_path(OsStr::new(path)) {
            Ok(()) => None,
            Err(LoadError::UnsafeSearchPath { element }) => Some(element),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn search_paths_of_absolute_elements_pass() {
        for path in ["", "/usr/lib", "/usr/lib:/opt/lib", "/usr/lib;/opt/lib"] {
            assert_eq!(refused(path), None, "{path:?}");
        }
    }

    #[test]
    fn empty_and_relative_elements_are_refused() {
        for (path, element) in [
            (":", ""),
            (":/usr/lib", ""),
            ("/usr/lib:", ""),
            ("/usr/lib::/opt/lib", ""),
            ("/usr/lib;", ""),
            (".", "."),
            ("/usr/lib:lib", "lib"),
        ] {
            assert_eq!(refused(path).as_deref(), Some(element), "{path:?}");
        }
    }

    #[test]
    fn the_refusal_says_what_to_change() {
        let error = check_search_path(OsStr::new("/usr/lib:")).expect_err("an empty element");
        assert!(error.to_string().starts_with("LD_LIBRARY_PATH holds \"\""), "{error}");
    }
}
