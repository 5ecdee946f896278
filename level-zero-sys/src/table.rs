//! The table of functions and how it is filled.

use core::ffi::CStr;

/// A required function that could not be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Level Zero function {name} is missing: the loader or driver is too old, or isn't one")]
pub struct MissingSymbol {
    /// The function's name.
    pub name: &'static str,
}

/// The symbol in `bytes`, which end with a zero byte; evaluated while compiling.
pub(crate) const fn symbol(bytes: &'static [u8]) -> &'static CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => name,
        Err(_) => panic!("a symbol's name ends with its only zero byte"),
    }
}

/// Declares the function pointer types, the table that holds one of each, and the lists of their names.
macro_rules! functions {
    (
        required { $($req:ident: $req_t:ident = fn($($req_a:ident: $req_at:ty),* $(,)?) -> $req_r:ty;)* }
        optional { $($opt:ident: $opt_t:ident = fn($($opt_a:ident: $opt_at:ty),* $(,)?) -> $opt_r:ty;)* }
        extension { $($ext:ident: $ext_t:ident = fn($($ext_a:ident: $ext_at:ty),* $(,)?) -> $ext_r:ty;)* }
        vendor { $($ven:ident: $ven_t:ident = fn($($ven_a:ident: $ven_at:ty),* $(,)?) -> $ven_r:ty;)* }
    ) => {
        $(pub type $req_t = unsafe extern "C" fn($($req_a: $req_at),*) -> $req_r;)*
        $(pub type $opt_t = unsafe extern "C" fn($($opt_a: $opt_at),*) -> $opt_r;)*
        $(pub type $ext_t = unsafe extern "C" fn($($ext_a: $ext_at),*) -> $ext_r;)*
        $(pub type $ven_t = unsafe extern "C" fn($($ven_a: $ven_at),*) -> $ven_r;)*

        /// Each function's name, and whether a table can't do without it.
        pub const FUNCTIONS: &[(&str, bool)] = &[
            $((stringify!($req), true),)*
            $((stringify!($opt), false),)*
            $((stringify!($ext), false),)*
            $((stringify!($ven), false),)*
        ];

        pub(crate) const SIGNATURES: &[(&str, &str)] = &[
            $((stringify!($req), stringify!(($($req_at),*) -> $req_r)),)*
            $((stringify!($opt), stringify!(($($opt_at),*) -> $opt_r)),)*
            $((stringify!($ext), stringify!(($($ext_at),*) -> $ext_r)),)*
        ];

        pub(crate) const VENDOR_SIGNATURES: &[(&str, &str)] = &[
            $((stringify!($ven), stringify!(($($ven_at),*) -> $ven_r)),)*
        ];

        /// One pointer per function, named as the function; `None` where this loader or driver lacks it.
        ///
        /// What a pointer really does is known to whoever filled the table: that is why calling one is unsafe.
        #[derive(Clone, Copy, Debug)]
        pub struct Table {
            $(pub $req: $req_t,)*
            $(pub $opt: Option<$opt_t>,)*
            $(pub $ext: Option<$ext_t>,)*
            $(pub $ven: Option<$ven_t>,)*
        }

        impl Table {
            /// Fills a table from `resolve`, which returns the address of the function of that name, or null.
            pub fn load_with(mut resolve: impl FnMut(&CStr) -> *const c_void) -> Result<Self, MissingSymbol> {
                let mut resolve = |name: &'static [u8]| resolve(symbol(name));
                Ok(Self {
                    $($req: {
                        let address = resolve(concat!(stringify!($req), "\0").as_bytes());
                        // SAFETY: a pointer, null or not, is a valid `Option` of a function pointer.
                        let function = unsafe { core::mem::transmute::<*const c_void, Option<$req_t>>(address) };
                        function.ok_or(MissingSymbol { name: stringify!($req) })?
                    },)*
                    $($opt: {
                        let address = resolve(concat!(stringify!($opt), "\0").as_bytes());
                        // SAFETY: a pointer, null or not, is a valid `Option` of a function pointer.
                        unsafe { core::mem::transmute::<*const c_void, Option<$opt_t>>(address) }
                    },)*
                    $($ext: {
                        let address = resolve(concat!(stringify!($ext), "\0").as_bytes());
                        // SAFETY: a pointer, null or not, is a valid `Option` of a function pointer.
                        unsafe { core::mem::transmute::<*const c_void, Option<$ext_t>>(address) }
                    },)*
                    $($ven: {
                        let address = resolve(concat!(stringify!($ven), "\0").as_bytes());
                        // SAFETY: a pointer, null or not, is a valid `Option` of a function pointer.
                        unsafe { core::mem::transmute::<*const c_void, Option<$ven_t>>(address) }
                    },)*
                })
            }

            /// Asks `driver` by name for those `extension` and `vendor` functions that are still `None`.
            ///
            /// With several drivers under one loader, handles may be the loader's own, and a function got here takes
            /// only the driver's: ask once per driver and pass it that driver's handles.
            ///
            /// # Safety
            /// `driver` is a live handle from this table's drivers, and the table's functions are the real ones.
            pub unsafe fn load_extensions(&mut self, driver: ze_driver_handle_t) {
                let get = self.zeDriverGetExtensionFunctionAddress;
                let ask = |name: &'static [u8]| -> *const c_void {
                    let mut address = core::ptr::null_mut();
                    // SAFETY: the caller vouches for `driver` and `get`; the name ends with a zero byte and the output
                    // outlives the call.
                    let result = unsafe { get(driver, symbol(name).as_ptr(), &raw mut address) };
                    if result == ZE_RESULT_SUCCESS { address } else { core::ptr::null() }
                };
                $(if self.$ext.is_none() {
                    let address = ask(concat!(stringify!($ext), "\0").as_bytes());
                    // SAFETY: a pointer, null or not, is a valid `Option` of a function pointer.
                    self.$ext = unsafe { core::mem::transmute::<*const c_void, Option<$ext_t>>(address) };
                })*
                $(if self.$ven.is_none() {
                    let address = ask(concat!(stringify!($ven), "\0").as_bytes());
                    // SAFETY: a pointer, null or not, is a valid `Option` of a function pointer.
                    self.$ven = unsafe { core::mem::transmute::<*const c_void, Option<$ven_t>>(address) };
                })*
            }
        }
    };
}
pub(crate) use functions;
