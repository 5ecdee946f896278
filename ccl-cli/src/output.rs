//! Standard output, which a command fails without: a report that nobody got must not look like one. And paths in JSON, which
//! is text as no path has to be.

use serde::{Serialize, Serializer};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes all of `text`; the error says what could not be written to.
pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| format!("standard output: {error}"))
}

/// The same of `text` and the end of its line.
pub(crate) fn line(text: &str) -> Result<(), String> {
    print(&format!("{text}\n"))
}

/// A path as text; what is not UTF-8 in it is replaced.
pub(crate) fn path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    path.to_string_lossy().serialize(to)
}

/// The same of one that there may be.
pub(crate) fn path_if_any<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(to)
}
