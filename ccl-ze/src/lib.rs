//! The collective library on Level Zero devices: the Rust API.
