//! What every entry point does with the pointers that a C program hands over.

use level_zero_sys::{ZE_RESULT_ERROR_INVALID_NULL_POINTER, ZE_RESULT_SUCCESS, ze_result_t, ze_structure_type_t};
use std::ffi::{c_char, c_void};

/// Runs an entry point's body and turns its outcome into a code.
pub(crate) fn run(body: impl FnOnce() -> Result<(), ze_result_t>) -> ze_result_t {
    match body() {
        Ok(()) => ZE_RESULT_SUCCESS,
        Err(code) => code,
    }
}

/// A structure that the program gave us to write to.
///
/// # Safety
/// A pointer that isn't null points to a `T` that nobody else touches during the call.
pub(crate) unsafe fn output<'a, T>(pointer: *mut T) -> Result<&'a mut T, ze_result_t> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or(ZE_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// A structure that the program gave us to read.
///
/// # Safety
/// A pointer that isn't null points to a `T` that nobody writes during the call.
pub(crate) unsafe fn input<'a, T>(pointer: *const T) -> Result<&'a T, ze_result_t> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(ZE_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// The head that all structures of a `pNext` chain share.
#[repr(C)]
struct Link {
    stype: ze_structure_type_t,
    next: *mut c_void,
}

/// Shows every structure of a chain; the visitor skips those that it doesn't know.
///
/// # Safety
/// `next` is null or the head of a chain of structures that each begin with a type and a pointer to the next.
pub(crate) unsafe fn chain(mut next: *mut c_void, mut visit: impl FnMut(ze_structure_type_t, *mut c_void)) {
    while !next.is_null() {
        // SAFETY: the caller's promise; only the head is read.
        let link = unsafe { next.cast::<Link>().read() };
        visit(link.stype, next);
        next = link.next;
    }
}

/// Answers a query for a list: a zero or short count is set to what there is, `write` gets each index that fits.
///
/// # Safety
/// `count` is null or points to a number that nobody else touches; if `wanted` is set, `write(i)` must be allowed for
/// every `i` below `*count`.
pub(crate) unsafe fn list(
    count: *mut u32,
    wanted: bool,
    available: u32,
    mut write: impl FnMut(u32),
) -> Result<(), ze_result_t> {
    // SAFETY: the caller's promise.
    let count = unsafe { output(count) }?;
    if *count == 0 || !wanted {
        *count = available;
        return Ok(());
    }
    *count = available.min(*count);
    (0..*count).for_each(&mut write);
    Ok(())
}

/// Answers a query for bytes by the specification's two-call pattern: no buffer, or size 0, asks for the size.
///
/// # Safety
/// `size` is null or points to a number that nobody else touches; `buffer` is null or has room for `*size` bytes.
pub(crate) unsafe fn bytes(size: *mut usize, buffer: *mut u8, value: &[u8]) -> Result<(), ze_result_t> {
    // SAFETY: the caller's promise.
    let size = unsafe { output(size) }?;
    if *size != 0 && !buffer.is_null() {
        // SAFETY: the buffer has room for `*size` bytes and is the program's own, so it can't overlap ours.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), buffer, value.len().min(*size)) };
    }
    *size = value.len();
    Ok(())
}

/// Writes a text into a field of fixed size, cut where it doesn't fit, always ended by a zero.
pub(crate) fn text(field: &mut [c_char], value: &str) {
    field.fill(0);
    let room = field.len().saturating_sub(1);
    for (to, from) in field[..room].iter_mut().zip(value.bytes()) {
        *to = from as c_char;
    }
}
