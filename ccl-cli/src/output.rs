//! Standard output, which a command fails without: a report that nobody got must not look like one.

use std::io::Write;

/// Writes all of `text`; the error says what could not be written to.
pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| format!("standard output: {error}"))
}

/// The same of `text` and the end of its line.
pub(crate) fn line(text: &str) -> Result<(), String> {
    print(&format!("{text}\n"))
}
