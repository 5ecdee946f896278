//! The one boundary that every entry goes through: panics are contained, errors become codes and are remembered.

use ccl_core::Error;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `onecclResult_t`.
pub type Code = i32;

pub(crate) const SUCCESS: Code = 0;
const INTERNAL_ERROR: Code = 3;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs an entry's body.
pub(crate) fn entry(name: &str, body: impl FnOnce() -> ccl_core::Result<()>) -> Code {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let (code, text) = match outcome {
        Ok(Ok(())) => return SUCCESS,
        Ok(Err(error)) => (error.abi_code(), error.to_string()),
        Err(_) => (INTERNAL_ERROR, "a panic inside the library".into()),
    };
    // Callers of this ABI ignore return codes: what failed must be heard.
    tracing::error!("{name}: {text}");
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // Not at thread exit, when the cell may be gone: then the text is only in the log.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    code
}

/// The text of this thread's last failure; valid until its next one.
pub(crate) fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

pub(crate) fn null(what: &str) -> Error {
    Error::InvalidArgument(format!("{what} is null"))
}

/// Names of the codes, in their order.
const NAMES: [&CStr; 13] = [
    c"success",
    c"error",
    c"system error",
    c"internal error",
    c"invalid argument",
    c"invalid usage",
    c"in progress",
    c"GPU failure",
    c"CPU failure",
    c"allocation failure on the CPU",
    c"allocation failure on the GPU",
    c"plugin exception",
    c"not implemented",
];

pub(crate) fn code_name(code: Code) -> *const c_char {
    usize::try_from(code).ok().and_then(|code| NAMES.get(code)).unwrap_or(&c"unknown result").as_ptr()
}
