//! The list of a module's entry points, each held to the type that `level-zero-sys` declares for it.

/// Defines `resolve(name)` for the module it is used in: the address of the entry point of that name, if it has one.
/// `entry_points! { zeMemFree: zeMemFree_t, ... }` does not compile where an implementation's type differs from the
/// declared one.
macro_rules! entry_points {
    ($($function:ident : $ty:ident),* $(,)?) => {
        /// The address of this module's entry point called `name`.
        pub(crate) fn resolve(name: &[u8]) -> Option<*const std::ffi::c_void> {
            $( if name == stringify!($function).as_bytes() {
                let function: level_zero_sys::$ty = $function;
                return Some(function as *const std::ffi::c_void);
            } )*
            None
        }
    };
}
pub(crate) use entry_points;
