//! The C ABI of the collective library.
