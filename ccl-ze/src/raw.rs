//! Device memory by its address, apart from any communicator: what a C interface hands out.

use crate::gpu::Gpu;
use crate::memory::Allocation;
use ccl_core::config::Config;
use ccl_core::{Error, Result};
use std::ffi::c_void;

/// Memory of a device. Freed when this is dropped: by then no work may use it.
pub struct DeviceMemory(Allocation);

impl DeviceMemory {
    /// `bytes` bytes on the device of this number.
    pub fn new(config: &Config, device: usize, bytes: usize) -> Result<DeviceMemory> {
        if bytes > isize::MAX as usize {
            return Err(Error::InvalidArgument(format!("{bytes} bytes overflow the address space")));
        }
        let gpu = Gpu::open(config, device)?;
        // A driver refuses to allocate nothing.
        Ok(DeviceMemory(Allocation::device(&gpu, bytes.max(1))?))
    }

    /// The device's number.
    pub fn device_index(&self) -> usize {
        self.0.gpu.index()
    }

    /// Its address.
    pub fn as_ptr(&self) -> *mut c_void {
        self.0.address
    }
}
