//! A Level Zero driver that runs on the CPU.
//!
//! Devices are this machine's processor seen several times over: their memory is memfds, so that other processes
//! can map it through Level Zero's IPC calls; their queues are executors in this process; their kernels are native
//! functions that a program registers through [`ext`], or SPIR-V that an OpenCL runtime executes. Linked in, a program
//! gets at the functions with [`resolve`]; the package `ze-soft-loader` builds the same driver as a shared library for the Level Zero loader.

#![allow(
    non_snake_case,
    non_camel_case_types,
    reason = "entry points and the extension's types are named as C programs name them"
)]

mod abi;
mod append;
mod config;
mod context;
pub mod ddi;
mod device;
mod driver;
mod engine;
mod entry;
mod error;
mod event;
mod exec;
pub mod ext;
mod fault;
mod fence;
mod graph;
mod handle;
mod ipc;
mod kernel;
mod latch;
mod list;
mod memory;
mod module;
mod op;
mod properties;
mod queue;

use std::ffi::{CStr, c_void};

/// The address of the function called `name`, null where this driver has none. It serves
/// `level_zero_sys::Table::load_with`.
pub fn resolve(name: &CStr) -> *const c_void {
    type Resolve = fn(&[u8]) -> Option<*const c_void>;
    const MODULES: &[Resolve] = &[
        append::resolve,
        context::resolve,
        device::resolve,
        driver::resolve,
        event::resolve,
        fence::resolve,
        graph::resolve,
        ipc::resolve,
        kernel::resolve,
        list::resolve,
        memory::resolve,
        module::resolve,
        properties::resolve,
        queue::resolve,
    ];
    MODULES.iter().find_map(|resolve| resolve(name.to_bytes())).unwrap_or(std::ptr::null())
}
