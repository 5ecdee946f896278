//! Errors: a code for the program, and a sentence that `zeDriverGetLastErrorDescription` hands out.

use level_zero_sys::ze_result_t;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Remembers for this thread what went wrong, and gives back `code`.
pub(crate) fn fail(code: ze_result_t, text: impl Into<String>) -> ze_result_t {
    let text = CString::new(text.into().replace('\0', "?")).unwrap_or_default();
    // A thread that is ending has no description any more, but still gets its code.
    let _ = LAST.try_with(|last| last.replace(text));
    code
}

/// The last sentence of this thread, valid until its next failing call.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The last sentence of this thread as text.
pub(crate) fn last_text() -> String {
    LAST.try_with(|last| CStr::to_string_lossy(&last.borrow()).into_owned()).unwrap_or_default()
}
