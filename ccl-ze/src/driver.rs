//! Which driver is used: Intel's if it has a GPU, else the software driver.

use crate::api::{Api, Via};
use ccl_core::config::DeviceChoice;
use ccl_core::{Error, Result};
use level_zero_sys::*;
use std::path::Path;
use std::sync::Arc;

/// Where the kernel shows graphics devices.
const RENDER_NODES: &str = "/dev/dri";

/// Finds the driver that `choice` asks for.
pub(crate) fn open(choice: DeviceChoice) -> Result<Arc<Api>> {
    match choice {
        DeviceChoice::Soft => linked(),
        DeviceChoice::Loader => through_loader()?.best().ok_or_else(|| {
            Error::NotImplemented(
                "the system's Level Zero loader offers no driver that this build has kernels for".into(),
            )
        }),
        DeviceChoice::Intel => through_loader()?.intel.ok_or_else(|| {
            Error::InvalidUsage("CCLX_DEVICE=intel, but the Level Zero loader offers no Intel GPU".into())
        }),
        DeviceChoice::Auto => match through_loader() {
            Ok(found) => found.best().map_or_else(linked, Ok),
            Err(Unusable::Absent(error)) => {
                tracing::debug!("{error}; the software driver is used");
                linked()
            }
            // Only somebody with a GPU minds a loader that can't be used.
            Err(Unusable::Broken(error)) if Path::new(RENDER_NODES).exists() => {
                tracing::warn!("{error}; the software driver is used instead");
                linked()
            }
            Err(Unusable::Broken(error)) => {
                tracing::info!("{error}; the software driver is used instead");
                linked()
            }
        },
    }
}

#[cfg(feature = "soft")]
fn linked() -> Result<Arc<Api>> {
    #[cfg(feature = "test-hooks")]
    let resolve = crate::hooks::RESOLVER.get().copied().unwrap_or(ze_soft::resolve);
    #[cfg(not(feature = "test-hooks"))]
    let resolve = ze_soft::resolve;
    let table = Table::load_with(resolve).map_err(|e| Error::Internal(e.to_string()))?;
    let drivers = drivers(&table).map_err(|code| failed("zeInit of the software driver", code))?;
    let driver = drivers.first().copied().ok_or_else(|| Error::Internal("the software driver has no driver".into()))?;
    Ok(Arc::new(with_extensions(table, driver, Via::Linked, true)))
}

#[cfg(not(feature = "soft"))]
fn linked() -> Result<Arc<Api>> {
    Err(Error::NotImplemented("this build was made without the software driver (feature `soft`)".into()))
}

/// What the loader offers.
#[derive(Default)]
struct Found {
    software: Option<Arc<Api>>,
    intel: Option<Arc<Api>>,
}

impl Found {
    fn best(self) -> Option<Arc<Api>> {
        self.intel.or(self.software)
    }
}

/// Why the loader is of no use.
enum Unusable {
    /// There is none.
    Absent(Error),
    /// There is one, but it can't be used: its owner will want to know.
    Broken(Error),
}

impl From<Unusable> for Error {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Absent(error) | Unusable::Broken(error) => error,
        }
    }
}

fn through_loader() -> std::result::Result<Found, Unusable> {
    let loader = Loader::open().map_err(|error| {
        let absent = matches!(error, LoadError::Open { .. });
        let error = Error::system("the system's Level Zero loader", error);
        if absent { Unusable::Absent(error) } else { Unusable::Broken(error) }
    })?;
    let table = *loader.table();
    let mut found = Found::default();
    let drivers = match drivers(&table) {
        Ok(drivers) => drivers,
        // The loader is there but no driver: what a machine without a GPU says.
        Err(ZE_RESULT_ERROR_UNINITIALIZED) => return Ok(found),
        Err(code) => return Err(Unusable::Broken(failed("zeInit", code))),
    };
    for driver in drivers {
        let software = is_software(&table, driver);
        let place = if software {
            &mut found.software
        } else if has_intel_gpu(&table, driver) {
            &mut found.intel
        } else {
            continue;
        };
        // The loader's order is the user's to choose: the first of a kind is the one.
        if place.is_none() {
            *place = Some(Arc::new(with_extensions(table, driver, Via::Loader(Box::new(loader.clone())), software)));
        }
    }
    Ok(found)
}

fn with_extensions(mut table: Table, driver: ze_driver_handle_t, via: Via, software: bool) -> Api {
    // SAFETY: a live driver of this table.
    unsafe { table.load_extensions(driver) };
    Api::new(table, driver, via, software)
}

fn failed(call: &str, code: ze_result_t) -> Error {
    Error::Device { call: call.into(), detail: result_name(code).into() }
}

/// Initialises the drivers and lists them.
pub(crate) fn drivers(table: &Table) -> std::result::Result<Vec<ze_driver_handle_t>, ze_result_t> {
    let mut desc = ze_init_driver_type_desc_t { flags: ZE_INIT_DRIVER_TYPE_FLAG_GPU, ..Default::default() };
    let mut list = |count: &mut u32, drivers: *mut ze_driver_handle_t| match table.zeInitDrivers {
        // SAFETY: `drivers` is null or has room for `count`; the descriptor outlives the call.
        Some(init) => unsafe { init(count, drivers, &raw mut desc) },
        // SAFETY: as above; older loaders only have these two.
        None => match unsafe { (table.zeInit)(ZE_INIT_FLAG_GPU_ONLY) } {
            // SAFETY: as above.
            ZE_RESULT_SUCCESS => unsafe { (table.zeDriverGet)(count, drivers) },
            code => code,
        },
    };
    enumerate(&mut list)
}

/// Level Zero's way of listing: ask for the number, then for that many.
pub(crate) fn enumerate<T: Copy>(
    list: &mut dyn FnMut(&mut u32, *mut T) -> ze_result_t,
) -> std::result::Result<Vec<T>, ze_result_t> {
    let mut count = 0;
    match list(&mut count, std::ptr::null_mut()) {
        ZE_RESULT_SUCCESS => {}
        code => return Err(code),
    }
    let mut items = Vec::with_capacity(count as usize);
    if count > 0 {
        match list(&mut count, items.as_mut_ptr()) {
            ZE_RESULT_SUCCESS => {}
            code => return Err(code),
        }
    }
    // SAFETY: the driver wrote `count` items, no more than there was room for.
    unsafe { items.set_len((count as usize).min(items.capacity())) };
    Ok(items)
}

/// The devices of a driver.
pub(crate) fn devices(
    table: &Table,
    driver: ze_driver_handle_t,
) -> std::result::Result<Vec<ze_device_handle_t>, ze_result_t> {
    // SAFETY: a live driver; `devices` is null or has room for `count`.
    enumerate(&mut |count, devices| unsafe { (table.zeDeviceGet)(driver, count, devices) })
}

/// Properties of a device.
pub(crate) fn device_properties(table: &Table, device: ze_device_handle_t) -> Option<ze_device_properties_t> {
    let mut properties = ze_device_properties_t::default();
    // SAFETY: a live device and a descriptor of the right type.
    let code = unsafe { (table.zeDeviceGetProperties)(device, &raw mut properties) };
    (code == ZE_RESULT_SUCCESS).then_some(properties)
}

pub(crate) const INTEL: u32 = 0x8086;

pub(crate) fn has_intel_gpu(table: &Table, driver: ze_driver_handle_t) -> bool {
    devices(table, driver).unwrap_or_default().into_iter().any(|device| {
        device_properties(table, device).is_some_and(|p| p.vendorId == INTEL && p.r#type == ZE_DEVICE_TYPE_GPU)
    })
}

#[cfg(feature = "soft")]
pub(crate) fn is_software(table: &Table, driver: ze_driver_handle_t) -> bool {
    extension(table, driver, ze_soft::ext::REGISTER_KERNEL_NAME).is_some()
}

#[cfg(not(feature = "soft"))]
pub(crate) fn is_software(_: &Table, _: ze_driver_handle_t) -> bool {
    false
}

/// Address of a driver's own function.
#[cfg(feature = "soft")]
pub(crate) fn extension(
    table: &Table,
    driver: ze_driver_handle_t,
    name: &std::ffi::CStr,
) -> Option<std::ptr::NonNull<std::ffi::c_void>> {
    let mut address = std::ptr::null_mut();
    // SAFETY: a live driver, a terminated name, a place for the address.
    let code = unsafe { (table.zeDriverGetExtensionFunctionAddress)(driver, name.as_ptr(), &raw mut address) };
    if code == ZE_RESULT_SUCCESS { std::ptr::NonNull::new(address) } else { None }
}
