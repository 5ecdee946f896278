//! Intel's driver on devices that it pretends (`.ci/beds/run-on-neo.sh`).

use ccl_core::comm::StartState;
use ccl_ze::{Builder, hooks};
use level_zero_sys::*;

/// A kind of pretended device.
pub struct Kind {
    /// As `run-on-neo.sh` calls it.
    pub name: String,
    /// PCI device id.
    pub id: u32,
    /// Parts of a device, each of which is shown as a device.
    pub parts: usize,
    /// Whether memory handles name the process that made them, so that the driver fetches descriptors itself.
    pub handles_name_process: bool,
}

/// Devices that the bed pretends, each of one or more parts.
pub const DEVICES: usize = 4;

/// The kind of this run.
pub fn kind() -> Kind {
    let name = std::env::var("BED_DEVICE").expect("run by .ci/beds/run-on-neo.sh");
    let (id, parts, handles_name_process) = match name.as_str() {
        "bmg" => (0xe20b, 1, true),
        "bmg-e223" => (0xe223, 1, true),
        "pvc" => (0x0bd5, 2, false),
        "dg2" => (0x56a0, 1, false),
        other => panic!("BED_DEVICE={other}"),
    };
    Kind { name, id, parts, handles_name_process }
}

/// A builder that takes the devices for what they are.
pub fn pretended(builder: Builder) -> Builder {
    builder.start(StartState { hooks: hooks::PRETENDED_DEVICE, ..StartState::default() })
}

/// The driver without our library between.
pub struct Raw {
    /// Its functions.
    pub table: Table,
    /// Its handle.
    pub driver: ze_driver_handle_t,
    /// Its devices.
    pub devices: Vec<ze_device_handle_t>,
    /// A context of its own.
    pub context: ze_context_handle_t,
    _loader: Loader,
}

impl Raw {
    /// Opens the first driver that the loader shows.
    pub fn open() -> Raw {
        let loader = Loader::open().expect("the bed's loader");
        let mut table = *loader.table();
        let mut types = ze_init_driver_type_desc_t { flags: ZE_INIT_DRIVER_TYPE_FLAG_GPU, ..Default::default() };
        let desc = ze_context_desc_t::default();
        let (mut driver, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut devices = vec![std::ptr::null_mut(); 64];
        let (mut drivers, mut found) = (1, devices.len() as u32);
        // SAFETY: handles come from the calls before; descriptors and outputs outlive the calls, the lists have room.
        unsafe {
            let init = table.zeInitDrivers.expect("a loader of today");
            assert_eq!(init(&raw mut drivers, &raw mut driver, &raw mut types), ZE_RESULT_SUCCESS);
            table.load_extensions(driver);
            assert_eq!((table.zeDeviceGet)(driver, &raw mut found, devices.as_mut_ptr()), ZE_RESULT_SUCCESS);
            assert_eq!((table.zeContextCreate)(driver, &raw const desc, &raw mut context), ZE_RESULT_SUCCESS);
        }
        devices.truncate(found as usize);
        Raw { table, driver, devices, context, _loader: loader }
    }

    /// Properties of a device, by its number.
    pub fn properties(&self, device: usize) -> ze_device_properties_t {
        let mut properties = ze_device_properties_t::default();
        // SAFETY: a live device and a descriptor of the right type.
        let code = unsafe { (self.table.zeDeviceGetProperties)(self.devices[device], &raw mut properties) };
        assert_eq!(code, ZE_RESULT_SUCCESS);
        properties
    }

    /// Whether one device may access another's memory.
    pub fn can_access(&self, device: usize, peer: usize) -> bool {
        let mut yes = 0;
        let (device, peer) = (self.devices[device], self.devices[peer]);
        // SAFETY: live devices and a place for the answer.
        assert_eq!(unsafe { (self.table.zeDeviceCanAccessPeer)(device, peer, &raw mut yes) }, ZE_RESULT_SUCCESS);
        yes != 0
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: made in `open`; its users destroy what they made in it.
        unsafe { (self.table.zeContextDestroy)(self.context) };
    }
}
