//! Devices: this machine's processor, seen several times over.

use crate::abi::{list, output, run};
use crate::config;
use crate::driver::Driver;
use crate::engine::{self, cuda};
use crate::entry::entry_points;
use crate::exec::{self, Executor};
use crate::handle::{Object, export, get};
use level_zero_sys::*;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How many queue groups a device has: 0 and 1 compute and copy, 2 only copies.
pub(crate) const ORDINALS: u32 = 3;

/// The most work-items of a group.
pub(crate) const MAX_GROUP_SIZE: u32 = 1024;

/// A device.
pub(crate) struct Device {
    /// Its number as without an affinity mask: so it is one and the same device in every process.
    pub(crate) index: u32,
    executors: [Arc<Executor>; ORDINALS as usize],
}

impl Object for Device {
    const MAGIC: u64 = 0x5a45_534f_4445_5631;
}

impl Device {
    /// The executor of a queue group, if there is such a group.
    pub(crate) fn executor(&self, ordinal: u32) -> Option<&Arc<Executor>> {
        self.executors.get(ordinal as usize)
    }

    /// Whether everything that was issued to it is done.
    fn is_idle(&self) -> bool {
        self.executors.iter().all(|executor| executor.is_idle())
    }
}

/// Whether everything that was issued to any device of this process is done.
pub(crate) fn all_idle() -> bool {
    all().iter().all(|entry| entry.device.is_idle())
}

/// Waits until everything that was issued to any device of this process is done.
pub(crate) fn drain_all() {
    exec::wait(u64::MAX, all_idle, || None);
}

/// A device and its handle. Both live as long as the process.
pub(crate) struct Entry {
    pub(crate) device: Arc<Device>,
    handle: usize,
}

impl Entry {
    pub(crate) fn handle(&self) -> ze_device_handle_t {
        std::ptr::with_exposed_provenance_mut(self.handle)
    }
}

/// The devices that this process sees.
pub(crate) fn all() -> &'static [Entry] {
    static DEVICES: OnceLock<Vec<Entry>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let entry = |&index: &u32| {
            let executors = std::array::from_fn(|ordinal| Executor::new(index, ordinal as u32));
            let device = Arc::new(Device { index, executors });
            let handle = export::<Device, _ze_device_handle_t>(device.clone()).expose_provenance();
            Entry { device, handle }
        };
        config::get().visible.iter().map(entry).collect()
    })
}

/// The handle of a device by its number; null where this process doesn't see it.
pub(crate) fn handle_of(index: u32) -> ze_device_handle_t {
    all().iter().find(|entry| entry.device.index == index).map_or(std::ptr::null_mut(), Entry::handle)
}

/// The time of the clock that the host and all devices that a processor plays share, in nanoseconds.
pub(crate) fn timestamp() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a local, and this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
}

unsafe extern "C" fn zeDeviceGet(
    hDriver: ze_driver_handle_t,
    pCount: *mut u32,
    phDevices: *mut ze_device_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Driver, _>(hDriver)?;
        let devices = all();
        // SAFETY: the array has room for `*pCount` handles and `list` stays below that.
        let write = |i: u32| unsafe { phDevices.add(i as usize).write(devices[i as usize].handle()) };
        // SAFETY: as for `write`.
        unsafe { list(pCount, !phDevices.is_null(), devices.len() as u32, write) }
    })
}

unsafe extern "C" fn zeDeviceGetSubDevices(
    hDevice: ze_device_handle_t,
    pCount: *mut u32,
    _phSubdevices: *mut ze_device_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise; there is nothing to write into the array.
        *unsafe { output(pCount) }? = 0;
        Ok(())
    })
}

unsafe extern "C" fn zeDeviceGetRootDevice(
    hDevice: ze_device_handle_t,
    phRootDevice: *mut ze_device_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        // SAFETY: the specification's promise. A root device has no root.
        *unsafe { output(phRootDevice) }? = std::ptr::null_mut();
        Ok(())
    })
}

unsafe extern "C" fn zeDeviceCanAccessPeer(
    hDevice: ze_device_handle_t,
    hPeerDevice: ze_device_handle_t,
    value: *mut ze_bool_t,
) -> ze_result_t {
    run(|| {
        let (device, peer) = (get::<Device, _>(hDevice)?, get::<Device, _>(hPeerDevice)?);
        let reaches = config::get().reaches(device.index, peer.index) && cuda::reaches(device.index, peer.index);
        // SAFETY: the specification's promise.
        *unsafe { output(value) }? = reaches.into();
        Ok(())
    })
}

unsafe extern "C" fn zeDeviceGetStatus(hDevice: ze_device_handle_t) -> ze_result_t {
    run(|| {
        get::<Device, _>(hDevice)?;
        match engine::health() {
            ZE_RESULT_SUCCESS => Ok(()),
            code => Err(code),
        }
    })
}

unsafe extern "C" fn zeDeviceSynchronize(hDevice: ze_device_handle_t) -> ze_result_t {
    run(|| {
        let device = get::<Device, _>(hDevice)?;
        match exec::wait(u64::MAX, || device.is_idle(), || None) {
            ZE_RESULT_SUCCESS => Ok(()),
            code => Err(code),
        }
    })
}

unsafe extern "C" fn zeDeviceGetGlobalTimestamps(
    hDevice: ze_device_handle_t,
    hostTimestamp: *mut u64,
    deviceTimestamp: *mut u64,
) -> ze_result_t {
    run(|| {
        let device = get::<Device, _>(hDevice)?;
        let gpu = if cuda::runs() { Some(cuda::timestamp(device.index)?) } else { None };
        // SAFETY: the specification's promise; each is written while no other reference to it lives.
        unsafe {
            output(hostTimestamp)?;
            let host = timestamp();
            *output(deviceTimestamp)? = gpu.unwrap_or(host);
            *output(hostTimestamp)? = host;
        }
        Ok(())
    })
}

entry_points! {
    zeDeviceGet: zeDeviceGet_t,
    zeDeviceGetSubDevices: zeDeviceGetSubDevices_t,
    zeDeviceGetRootDevice: zeDeviceGetRootDevice_t,
    zeDeviceCanAccessPeer: zeDeviceCanAccessPeer_t,
    zeDeviceGetStatus: zeDeviceGetStatus_t,
    zeDeviceSynchronize: zeDeviceSynchronize_t,
    zeDeviceGetGlobalTimestamps: zeDeviceGetGlobalTimestamps_t,
}
