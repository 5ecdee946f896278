//! What this library does not have: windows, and communicators inside kernels. Each says so, once.

use crate::abi::{OnecclDevComm, OnecclDevCommRequirements};
use crate::entry::{Code, entry};
use crate::handle::OnecclComm;
use ccl_core::Error;
use std::ffi::{c_int, c_void};

fn refuse(name: &str, what: &str) -> Code {
    entry(name, || Err(Error::NotImplemented(what.into())))
}

const WINDOWS: &str = "there are no windows of memory";
const DEVICE_COMMUNICATORS: &str = "there are no communicators for use inside kernels";

/// Not implemented.
#[unsafe(no_mangle)]
pub extern "C" fn onecclCommWindowRegister(
    _communicator: *mut OnecclComm,
    _buffer: *mut c_void,
    _size: usize,
    _window: *mut *mut c_void,
    _flags: c_int,
) -> Code {
    refuse("onecclCommWindowRegister", WINDOWS)
}

/// Not implemented.
#[unsafe(no_mangle)]
pub extern "C" fn onecclCommWindowDeregister(_communicator: *mut OnecclComm, _window: *mut c_void) -> Code {
    refuse("onecclCommWindowDeregister", WINDOWS)
}

/// Not implemented.
#[unsafe(no_mangle)]
pub extern "C" fn onecclDevCommCreate(
    _communicator: *mut OnecclComm,
    _requirements: *const OnecclDevCommRequirements,
    _made: *mut OnecclDevComm,
) -> Code {
    refuse("onecclDevCommCreate", DEVICE_COMMUNICATORS)
}

/// Not implemented.
#[unsafe(no_mangle)]
pub extern "C" fn onecclDevCommDestroy(_communicator: *mut OnecclComm, _made: *const OnecclDevComm) -> Code {
    refuse("onecclDevCommDestroy", DEVICE_COMMUNICATORS)
}

/// Not implemented.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGetPeerDevicePointer(
    _window: *mut c_void,
    _offset: usize,
    _peer: c_int,
    _place: *mut *mut c_void,
) -> Code {
    refuse("onecclGetPeerDevicePointer", WINDOWS)
}

/// Not implemented.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGetLsaDevicePointer(
    _window: *mut c_void,
    _offset: usize,
    _peer: c_int,
    _place: *mut *mut c_void,
) -> Code {
    refuse("onecclGetLsaDevicePointer", WINDOWS)
}

/// Not implemented.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGetLocalDevicePointer(_window: *mut c_void, _offset: usize, _place: *mut *mut c_void) -> Code {
    refuse("onecclGetLocalDevicePointer", WINDOWS)
}
