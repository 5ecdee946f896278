//! Handles: what a Level Zero program holds is an `Arc` of one of our objects, turned into a pointer.
//!
//! Every object starts with a magic word, so that a foreign, null or destroyed handle is refused instead of
//! being followed blindly (a destroyed object's word is overwritten before its memory goes back).

use crate::abi::{output, run};
use level_zero_sys::{ZE_RESULT_ERROR_INVALID_NULL_HANDLE, ZE_RESULT_ERROR_UNINITIALIZED, ze_result_t};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An object that programs refer to by handle.
pub(crate) trait Object: Send + Sync + 'static {
    /// Word that marks a live object of this type.
    const MAGIC: u64;
}

#[repr(C)]
struct Boxed<T> {
    magic: AtomicU64,
    value: Arc<T>,
}

/// Makes a handle of `value`; [`take`] ends it.
pub(crate) fn export<T: Object, H>(value: Arc<T>) -> *mut H {
    Box::into_raw(Box::new(Boxed { magic: AtomicU64::new(T::MAGIC), value })).cast()
}

fn check<T: Object, H>(handle: *mut H) -> Result<*mut Boxed<T>, ze_result_t> {
    let boxed = handle.cast::<Boxed<T>>();
    if boxed.is_null() || !boxed.is_aligned() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    }
    // SAFETY: the specification demands a handle that this driver gave out; it then points to a `Boxed<_>`, whose
    // first word is the magic for every T. A wrong type or a destroyed object is told by that word.
    let magic = unsafe { (*boxed.cast::<AtomicU64>()).load(Ordering::Relaxed) };
    if magic == T::MAGIC { Ok(boxed) } else { Err(ZE_RESULT_ERROR_UNINITIALIZED) }
}

/// The object behind a handle, borrowed for as long as the handle lives (the caller's duty by the specification).
pub(crate) fn get<'a, T: Object, H>(handle: *mut H) -> Result<&'a Arc<T>, ze_result_t> {
    let boxed = check::<T, H>(handle)?;
    // SAFETY: `check` found a live object of this type; a program may not destroy a handle while it is in use.
    Ok(unsafe { &(*boxed).value })
}

/// Answers a question about the object behind a handle; `answer` points to a place for it, by the specification's promise.
pub(crate) fn answer<T: Object, H, A>(
    handle: *mut H,
    answer: *mut A,
    ask: impl FnOnce(&T) -> Result<A, ze_result_t>,
) -> ze_result_t {
    run(|| {
        let object = get::<T, _>(handle)?;
        // SAFETY: the specification's promise.
        let answer = unsafe { output(answer) }?;
        *answer = ask(object)?;
        Ok(())
    })
}

/// Ends a handle and gives back its object.
pub(crate) fn take<T: Object, H>(handle: *mut H) -> Result<Arc<T>, ze_result_t> {
    let boxed = check::<T, H>(handle)?;
    // SAFETY: as in `get`; the compare-exchange lets only one of two racing destroys through.
    let won = unsafe {
        (*boxed.cast::<AtomicU64>()).compare_exchange(T::MAGIC, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    if !won {
        return Err(ZE_RESULT_ERROR_UNINITIALIZED);
    }
    // SAFETY: it was made by `Box::into_raw` in `export` and nobody else can take it any more.
    let boxed = unsafe { Box::from_raw(boxed) };
    Ok(boxed.value)
}
