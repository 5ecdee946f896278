//! The library with its C names, and the rules that tests can switch off.
#![allow(missing_docs, reason = "test code")]

use std::sync::atomic::Ordering;

// Its entries become this library's.
extern crate cclx as _;

/// Switches rules off (`ccl_ze::hooks`) for communicators that are made from here on.
#[unsafe(no_mangle)]
pub extern "C" fn ccl_test_hooks(rules: u32) {
    ccl_ze::hooks::EVERYWHERE.store(rules, Ordering::Relaxed);
}
