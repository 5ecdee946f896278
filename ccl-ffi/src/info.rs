//! Versions, texts, and the log that oneCCL's own parts write to.

use crate::entry::{Code, SUCCESS, code_name, entry, last_error, put};
use crate::handle::{OnecclComm, handle};
use crate::settings;
use std::ffi::{CStr, c_char, c_int};

/// Version of oneCCL's API that this stands for: callers refuse graph capture below 2022.0.
const VERSION: c_int = 2022 * 10_000 + 2 * 100;

/// Version of the API, `major * 10000 + minor * 100 + patch`.
///
/// # Safety
/// `version` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclGetVersion(version: *mut c_int) -> Code {
    // SAFETY: passed on to the caller.
    entry("onecclGetVersion", || unsafe { put(version, VERSION, "version") })
}

/// The parts of a version.
///
/// # Safety
/// Each place is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclExtractVersionComponents(
    version: c_int,
    major: *mut c_int,
    minor: *mut c_int,
    patch: *mut c_int,
) -> Code {
    entry("onecclExtractVersionComponents", || {
        for (place, value) in [(major, version / 10_000), (minor, version / 100 % 100), (patch, version % 100)] {
            // SAFETY: passed on to the caller.
            unsafe { put(place, value, "the place for a part of the version")? };
        }
        Ok(SUCCESS)
    })
}

/// The name of a result.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGetErrorString(code: Code) -> *const c_char {
    code_name(code)
}

/// What the communicator's first failure was, in words; without one, or without a communicator, this thread's last.
///
/// # Safety
/// `communicator` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclGetLastError(communicator: *mut OnecclComm) -> *const c_char {
    // SAFETY: passed on to the caller.
    let known = unsafe { handle(communicator) }.ok();
    known.and_then(|handle| handle.first_failure()).map_or_else(last_error, |(_, text)| text.as_ptr())
}

/// What this thread's last failure was, in words; valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGetLastErrorString() -> *const c_char {
    last_error()
}

/// Opens the log, which otherwise happens at first need.
#[unsafe(no_mangle)]
pub extern "C" fn onecclDebugInit() {
    entry("onecclDebugInit", || settings::config().map(|_| SUCCESS));
}

/// Nothing: the log's settings are read once.
#[unsafe(no_mangle)]
pub extern "C" fn onecclResetDebugInit() {}

/// A line for the log from oneCCL's own parts, at the level `debug`. It takes further arguments for the text's format, which
/// is logged as it is.
///
/// # Safety
/// `place` and `text` are null or terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclDebugLog(_level: c_int, place: *const c_char, line: c_int, text: *const c_char) {
    entry("onecclDebugLog", || {
        settings::config()?;
        let words = |text: *const c_char| {
            // SAFETY: passed on to the caller.
            if text.is_null() { "".into() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy() }
        };
        tracing::debug!("{}:{line}: {}", words(place), words(text));
        Ok(SUCCESS)
    });
}
