//! What the loader and the drivers of this machine say of themselves, for diagnosis.
//!
//! Everything here runs code of drivers: who diagnoses a machine calls it in a process that may be lost.

use crate::driver;
use crate::endpoint::{ZeDevice, ZeEndpoint};
use ccl_core::config::{Config, DeviceChoice};
use ccl_core::device::{Device as _, Endpoint as _, Place};
use ccl_core::{Error, Result};
use level_zero_sys::*;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char};

/// Staging memory of the pattern test: both of its ends are covered, whole.
const PATTERN_BYTES: usize = 256 << 10;

/// What a device that is a GPU says of its kind.
const GPU: &str = "GPU";

/// The loader, as the system finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoaderState {
    /// It can be used.
    Found,
    /// There is none.
    Absent,
    /// There is one, but it can't be used.
    Unusable,
}

/// The system's Level Zero loader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoaderReport {
    /// Whether it can be used.
    pub state: LoaderState,
    /// The file that was opened.
    pub path: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Why it can't be used.
    pub error: Option<String>,
}

/// What the drivers behind the loader say.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoaderDrivers {
    /// The loader's own word on its version.
    pub loader_version: Option<String>,
    /// Why there is no driver.
    pub error: Option<String>,
    /// Libraries of drivers and layers that the loader has opened.
    pub libraries: Vec<String>,
    /// What the system says when asked for Intel's driver, where the loader offers no driver at all.
    pub intel_driver: Option<String>,
    /// The drivers.
    pub drivers: Vec<DriverReport>,
}

/// How a driver is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// Through the system's loader.
    Loader,
    /// Linked into this library.
    Linked,
}

/// A driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DriverReport {
    /// How it is reached.
    pub route: Route,
    /// Whether it is the software driver of this library.
    pub software: bool,
    /// Whether this build has kernels for it: what communicators go by when they choose a driver.
    pub runs_kernels: bool,
    /// Version of the Level Zero specification that it follows.
    pub api_version: String,
    /// Its own version.
    pub version: String,
    /// What went wrong while it was asked.
    pub error: Option<String>,
    /// Its devices, numbered as ranks are.
    pub devices: Vec<DeviceReport>,
    /// For each device its access to each device; null where the driver gave no answer.
    pub p2p: Vec<Vec<Option<Access>>>,
}

/// What a device may do with another's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Access {
    /// The driver's yes or no to whether it can access the peer.
    pub can_access: bool,
    /// The P2P property for loads and stores.
    pub access: bool,
    /// The P2P property for atomics.
    pub atomics: bool,
}

/// A device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// GPU, CPU or another kind by number.
    pub kind: String,
    /// PCI vendor.
    pub vendor_id: u32,
    /// PCI device.
    pub device_id: u32,
    /// The driver's identifier of it.
    pub uuid: String,
    /// PCI address.
    pub pci: Option<String>,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// Number of sub-devices.
    pub sub_devices: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Execution units.
    pub execution_units: u32,
    /// Groups of queues.
    pub queue_groups: Vec<QueueGroup>,
}

/// A group of queues of a device.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct QueueGroup {
    /// Its number.
    pub ordinal: u32,
    /// Whether it runs kernels.
    pub compute: bool,
    /// Whether it copies.
    pub copy: bool,
    /// Whether it runs cooperative kernels.
    pub cooperative: bool,
    /// Number of queues.
    pub queues: u32,
}

/// The driver that a communicator would use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Chosen {
    /// How it is reached.
    pub route: Route,
    /// Whether it is the software driver.
    pub software: bool,
    /// Number of its devices.
    pub devices: usize,
}

/// Looks for the loader, the way that communicators do. No driver is asked yet.
pub fn loader() -> (LoaderReport, Option<Loader>) {
    let error = match Loader::open() {
        Ok(loader) => {
            let path = mapped("libze_loader.so").pop();
            let version = path.as_deref().and_then(version_in_name);
            return (LoaderReport { state: LoaderState::Found, path, version, error: None }, Some(loader));
        }
        Err(error) => error,
    };
    let absent = matches!(&error, LoadError::Open { reason, name }
        if reason.starts_with(&format!("{name}: cannot open shared object file: No such file")));
    let path = match &error {
        // It was opened and closed again; opened once more, it tells where it is.
        LoadError::Missing(_) => {
            // SAFETY: a terminated name; the library's constructors have run once already. It stays open.
            unsafe { libc::dlopen(c"libze_loader.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            mapped("libze_loader.so").pop()
        }
        // The system names the file that it could not take, somewhere in its words.
        LoadError::Open { reason, .. } => reason
            .split(|c: char| c.is_whitespace() || "():,`'".contains(c))
            .find(|word| word.starts_with('/') && file_name(word).starts_with("libze_loader.so"))
            .map(str::to_owned),
        _ => None,
    };
    let version = path.as_deref().and_then(version_in_name);
    let state = if absent { LoaderState::Absent } else { LoaderState::Unusable };
    (LoaderReport { state, path, version, error: Some(error.to_string()) }, None)
}

/// Initialises the drivers behind the loader and asks them everything.
pub fn loader_drivers(loader: &Loader) -> LoaderDrivers {
    let table = loader.table();
    let mut report = LoaderDrivers::default();
    match driver::drivers(table) {
        Ok(drivers) => {
            report.loader_version = loader_version();
            report.drivers = drivers.into_iter().map(|driver| ask_driver(table, driver, Route::Loader)).collect();
        }
        Err(code) => report.error = Some(format!("initialisation says {}", result_name(code))),
    }
    report.libraries = mapped("libze_").into_iter().filter(|path| !file_name(path).contains("loader")).collect();
    if report.drivers.is_empty() {
        report.intel_driver = Some(try_intel_driver());
    }
    report
}

/// The driver that is linked in.
pub fn linked_driver() -> Result<DriverReport> {
    let api = driver::open(DeviceChoice::Soft)?;
    Ok(ask_driver(&api.table, api.driver, Route::Linked))
}

/// The driver that a communicator with this configuration would use.
pub fn chosen(config: &Config) -> Result<Chosen> {
    let api = driver::open(config.device)?;
    let devices = driver::devices(&api.table, api.driver).map_err(|code| api.error("zeDeviceGet", code))?;
    let route = if api.is_linked() { Route::Linked } else { Route::Loader };
    Ok(Chosen { route, software: api.software, devices: devices.len() })
}

/// Which form of the software driver's kernels this processor runs; none in a build without that driver.
pub fn twins() -> Option<&'static str> {
    #[cfg(feature = "soft")]
    return Some(match crate::twins::Simd::detect() {
        crate::twins::Simd::Avx512 => "AVX-512",
        crate::twins::Simd::Avx2 => "AVX2 and F16C",
        crate::twins::Simd::Portable => "portable",
    });
    #[cfg(not(feature = "soft"))]
    None
}

/// The test that decides on P2P at init, between any two devices: a kernel on one stores a pattern into memory of the
/// other, opened from an IPC handle.
pub struct PatternTest {
    devices: Vec<ZeDevice>,
    seed: u32,
}

impl PatternTest {
    /// Opens all devices of the driver that `config` chooses.
    pub fn open(config: &Config) -> Result<PatternTest> {
        let devices =
            (0..chosen(config)?.devices).map(|index| ZeDevice::open(config, index, 0, None)).collect::<Result<_>>()?;
        Ok(PatternTest { devices, seed: 0x5EED_0000 })
    }

    /// Number of devices.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Whether stores of device `from` arrive in the memory of device `to`; `None` if the driver says that they can't.
    pub fn test(&mut self, from: usize, to: usize) -> Result<Option<bool>> {
        let device = |index: usize| {
            let missing = || Error::InvalidArgument(format!("device {index} of {}", self.devices.len()));
            self.devices.get(index).ok_or_else(missing)
        };
        let (source, target) = (device(from)?, device(to)?);
        if !source.reaches(target.facts()) {
            return Ok(None);
        }
        let mut sender: ZeEndpoint = source.open(Place::Device, PATTERN_BYTES)?;
        let receiver: ZeEndpoint = target.open(Place::Device, PATTERN_BYTES)?;
        let (details, memory) = receiver.export()?;
        // As ranks 0 and 1 of two.
        sender.import(1, 2, &details, memory)?;
        // Two patterns, so that the second can't be what was there before.
        for _ in 0..2 {
            self.seed = self.seed.wrapping_mul(0x9E37_79B1).wrapping_add(1);
            sender.probe_send(1, 0, 2, self.seed)?;
            if !receiver.probe_check(1, &[self.seed, 0])?[0] {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }
}

fn ask_driver(table: &Table, driver: ze_driver_handle_t, route: Route) -> DriverReport {
    let mut error = None;
    let mut note = |call: &str, code: ze_result_t| {
        if code != ZE_RESULT_SUCCESS && error.is_none() {
            error = Some(format!("{call} says {}", result_name(code)));
        }
    };
    let mut api_version = 0;
    // SAFETY: a live driver and a place for the answer.
    note("zeDriverGetApiVersion", unsafe { (table.zeDriverGetApiVersion)(driver, &raw mut api_version) });
    let mut properties = ze_driver_properties_t::default();
    // SAFETY: a live driver and a descriptor of the right type.
    note("zeDriverGetProperties", unsafe { (table.zeDriverGetProperties)(driver, &raw mut properties) });
    let handles = driver::devices(table, driver).unwrap_or_else(|code| {
        note("zeDeviceGet", code);
        Vec::new()
    });
    let mut devices = Vec::new();
    for &device in &handles {
        // One that says nothing keeps its place: the others' numbers must not shift.
        let properties = driver::device_properties(table, device).unwrap_or_else(|| {
            note("zeDeviceGetProperties", ZE_RESULT_ERROR_UNKNOWN);
            ze_device_properties_t::default()
        });
        devices.push(ask_device(table, device, &properties));
    }
    let intel = devices.iter().any(|device| device.vendor_id == driver::INTEL);
    let software = driver::is_software(table, driver);
    let v = properties.driverVersion;
    DriverReport {
        route,
        software,
        // The rule by which `driver::open` takes one.
        runs_kernels: software || devices.iter().any(|d| d.vendor_id == driver::INTEL && d.kind == GPU),
        api_version: format!("{}.{}", ze_major_version(api_version), ze_minor_version(api_version)),
        version: if intel { format!("{}.{}.{}", v >> 24, v >> 16 & 0xff, v & 0xffff) } else { v.to_string() },
        error,
        devices,
        p2p: handles.iter().map(|&from| handles.iter().map(|&to| ask_access(table, from, to)).collect()).collect(),
    }
}

fn ask_access(table: &Table, from: ze_device_handle_t, to: ze_device_handle_t) -> Option<Access> {
    let mut can = 0;
    let mut properties = ze_device_p2p_properties_t::default();
    // SAFETY: live devices, and places for the answers.
    let codes = unsafe {
        [
            (table.zeDeviceCanAccessPeer)(from, to, &raw mut can),
            (table.zeDeviceGetP2PProperties)(from, to, &raw mut properties),
        ]
    };
    (codes == [ZE_RESULT_SUCCESS; 2]).then_some(Access {
        can_access: can != 0,
        access: properties.flags & ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS != 0,
        atomics: properties.flags & ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS != 0,
    })
}

fn ask_device(table: &Table, device: ze_device_handle_t, properties: &ze_device_properties_t) -> DeviceReport {
    let mut sub_devices = 0;
    // SAFETY: a live device; null asks for the number only.
    unsafe { (table.zeDeviceGetSubDevices)(device, &raw mut sub_devices, std::ptr::null_mut()) };
    let groups: Vec<ze_command_queue_group_properties_t> =
        // SAFETY: a live device; `described` gives null or room for `count` descriptors of the right type.
        described(|count, groups| unsafe { (table.zeDeviceGetCommandQueueGroupProperties)(device, count, groups) });
    let memories: Vec<ze_device_memory_properties_t> =
        // SAFETY: as above.
        described(|count, memories| unsafe { (table.zeDeviceGetMemoryProperties)(device, count, memories) });
    let kind = match properties.r#type {
        ZE_DEVICE_TYPE_GPU => GPU.into(),
        ZE_DEVICE_TYPE_CPU => "CPU".into(),
        other => format!("device type {other}"),
    };
    let queue_group = |(ordinal, group): (u32, &ze_command_queue_group_properties_t)| QueueGroup {
        ordinal,
        compute: group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE != 0,
        copy: group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY != 0,
        cooperative: group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS != 0,
        queues: group.numQueues,
    };
    DeviceReport {
        name: text(&properties.name),
        kind,
        vendor_id: properties.vendorId,
        device_id: properties.deviceId,
        uuid: properties.uuid.id.iter().map(|byte| format!("{byte:02x}")).collect(),
        pci: pci_address(table, device),
        integrated: properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED != 0,
        sub_devices,
        memory_bytes: memories.iter().map(|memory| memory.totalSize).sum(),
        execution_units: [properties.numSlices, properties.numSubslicesPerSlice, properties.numEUsPerSubslice]
            .into_iter()
            .fold(1, u32::saturating_mul),
        queue_groups: (0..).zip(&groups).map(queue_group).collect(),
    }
}

/// A list of descriptors, empty if the driver gives none. Unlike handles they must be initialised before.
fn described<T: Clone + Default>(list: impl Fn(*mut u32, *mut T) -> ze_result_t) -> Vec<T> {
    let mut count = 0;
    if list(&raw mut count, std::ptr::null_mut()) != ZE_RESULT_SUCCESS {
        return Vec::new();
    }
    let mut items = vec![T::default(); count as usize];
    if count > 0 && list(&raw mut count, items.as_mut_ptr()) != ZE_RESULT_SUCCESS {
        return Vec::new();
    }
    items.truncate(count as usize);
    items
}

fn pci_address(table: &Table, device: ze_device_handle_t) -> Option<String> {
    let ask = table.zeDevicePciGetPropertiesExt?;
    let mut properties = ze_pci_ext_properties_t::default();
    // SAFETY: a live device and a descriptor of the right type.
    if unsafe { ask(device, &raw mut properties) } != ZE_RESULT_SUCCESS {
        return None;
    }
    let a = properties.address;
    Some(format!("{:04x}:{:02x}:{:02x}.{:x}", a.domain, a.bus, a.device, a.function))
}

/// A text within an array that need not be terminated.
fn text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Files mapped into this process whose name begins so.
fn mapped(prefix: &str) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut paths: Vec<String> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| line[at..].to_owned()))
        .filter(|path| file_name(path).starts_with(prefix))
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// "1.8.0" of a file libze_loader.so.1.8.0; nothing where only the number of the interface stands there.
fn version_in_name(path: &str) -> Option<String> {
    file_name(path).split_once(".so.").map(|(_, version)| version.to_owned()).filter(|version| version.contains('.'))
}

/// The version that the open loader tells of itself, once drivers are initialised.
fn loader_version() -> Option<String> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Component {
        name: [c_char; 64],
        specification: u32,
        version: [i32; 3],
    }
    type GetVersions = unsafe extern "C" fn(*mut usize, *mut Component) -> ze_result_t;
    let name: &CStr = c"zelLoaderGetVersions";
    // SAFETY: terminated names; the loader is open already and is not opened anew.
    let address = unsafe {
        let library = libc::dlopen(c"libze_loader.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, name.as_ptr())
    };
    if address.is_null() {
        return None;
    }
    // SAFETY: the loader's function of that name has this signature in every version.
    let get = unsafe { std::mem::transmute::<*mut libc::c_void, GetVersions>(address) };
    let mut count = 0;
    // SAFETY: null asks for the number only.
    if unsafe { get(&raw mut count, std::ptr::null_mut()) } != ZE_RESULT_SUCCESS || count > 64 {
        return None;
    }
    let mut components = vec![Component { name: [0; 64], specification: 0, version: [0; 3] }; count];
    // SAFETY: room for `count` components.
    if unsafe { get(&raw mut count, components.as_mut_ptr()) } != ZE_RESULT_SUCCESS {
        return None;
    }
    let loader = components.iter().find(|component| text(&component.name) == "loader")?;
    Some(loader.version.map(|part| part.to_string()).join("."))
}

/// Opens Intel's driver as the loader does, for the sake of the system's words if that fails.
fn try_intel_driver() -> String {
    // SAFETY: a terminated name. The library's constructors run, as they do when the loader opens it; it stays open.
    if !unsafe { libc::dlopen(c"libze_intel_gpu.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null() {
        return "libze_intel_gpu.so.1 is installed".into();
    }
    // SAFETY: a terminated text or null, read before the next call of the linker on this thread.
    let words = unsafe { libc::dlerror() };
    if words.is_null() {
        return "libze_intel_gpu.so.1 can't be opened".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_names_of_files() {
        let version = |path| version_in_name(path);
        assert_eq!(version("/usr/lib/libze_loader.so.1.32.0").as_deref(), Some("1.32.0"));
        assert_eq!(version("/usr/lib.so.2.1/libze_loader.so.1"), None);
        assert_eq!(version("libze_loader.so"), None);
    }

    #[test]
    fn texts_end_at_their_array() {
        let mut array = [b'x' as c_char; 4];
        assert_eq!(text(&array), "xxxx");
        array[1] = 0;
        assert_eq!(text(&array), "x");
    }
}
