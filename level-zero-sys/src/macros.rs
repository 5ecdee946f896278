//! The macros that declare types: each item they declare is also listed for the layout test, so none can be left out.

/// A value of all zero bits, safely: only types for which zero is a valid value implement it.
pub(crate) trait Zero: Copy {
    /// The zero value.
    const ZERO: Self;
}

macro_rules! zero_numbers {
    ($($number:ty),*) => { $(impl Zero for $number { const ZERO: Self = 0; })* };
}
zero_numbers!(u8, i8, u16, u32, i32, u64, i64, usize);

impl Zero for f32 {
    const ZERO: Self = 0.0;
}

impl<T> Zero for *mut T {
    const ZERO: Self = core::ptr::null_mut();
}

impl<T> Zero for *const T {
    const ZERO: Self = core::ptr::null();
}

impl<F: Copy> Zero for Option<F> {
    const ZERO: Self = None;
}

impl<T: Zero, const N: usize> Zero for [T; N] {
    const ZERO: Self = [T::ZERO; N];
}

/// Declares opaque handle types.
macro_rules! handles {
    ($($name:ident = $object:ident;)*) => { $(
        #[repr(C)]
        #[derive(Debug)]
        pub struct $object {
            _private: [u8; 0],
        }
        pub type $name = *mut $object;
    )* };
}

/// Declares numbers, and lists them as `CONSTANTS`.
macro_rules! constants {
    ($(pub const $name:ident: $ty:ty = $value:expr;)*) => {
        $(pub const $name: $ty = $value;)*
        pub(crate) const CONSTANTS: &[(&str, u64)] = &[$((stringify!($name), $name as u64)),*];
    };
}

/// Declares strings, and lists them as `NAMES`.
macro_rules! names {
    ($(pub const $name:ident: &CStr = $value:literal;)*) => {
        $(pub const $name: &CStr = $value;)*
        pub(crate) const NAMES: &[(&str, &CStr)] = &[$((stringify!($name), $name)),*];
    };
}

/// Declares C structures, their zeroed `Default` (with `stype` set where `#[stype(..)]` names one), and lists their
/// layout as `STRUCTS`.
macro_rules! structs {
    ($(
        $(#[stype($stype:ident)])?
        pub struct $name:ident { $(pub $field:ident: $ty:ty,)* }
    )*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub struct $name { $(pub $field: $ty,)* }

            impl $crate::macros::Zero for $name {
                const ZERO: Self = Self { $($field: <$ty as $crate::macros::Zero>::ZERO,)* };
            }

            impl Default for $name {
                fn default() -> Self {
                    Self { $(stype: $stype,)? ..<Self as $crate::macros::Zero>::ZERO }
                }
            }
        )*

        pub(crate) const STRUCTS: &[$crate::abi::Layout] = &[$($crate::abi::Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: &[$($crate::abi::Field {
                name: stringify!($field),
                offset: core::mem::offset_of!($name, $field),
                size: size_of::<$ty>(),
            },)*],
        },)*];
    };
}
