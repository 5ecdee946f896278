//! Faults of the software driver, planted in this process.

use level_zero_sys::{Table, ZE_INIT_FLAG_GPU_ONLY, ZE_RESULT_SUCCESS};
use std::ffi::CString;
use ze_soft::ext::{self, zesoft_fault_t};

/// Plants a fault in the linked-in software driver (`ext::ZESOFT_FAULT_*`).
pub fn fault(kind: u32, device: u32, ordinal: u32, value: u64, seed: u64) {
    let table = Table::load_with(ze_soft::resolve).expect("the software driver");
    let mut count = 1;
    let mut driver = std::ptr::null_mut();
    let mut address = std::ptr::null_mut();
    let name = CString::from(ext::FAULT_NAME);
    // SAFETY: live outputs and a terminated name; the function of this name has this type; the fault outlives the call.
    unsafe {
        assert_eq!((table.zeInit)(ZE_INIT_FLAG_GPU_ONLY), ZE_RESULT_SUCCESS);
        assert_eq!((table.zeDriverGet)(&raw mut count, &raw mut driver), ZE_RESULT_SUCCESS);
        let got = (table.zeDriverGetExtensionFunctionAddress)(driver, name.as_ptr(), &raw mut address);
        assert_eq!(got, ZE_RESULT_SUCCESS);
        let plant: ext::zeSoftFault_t = std::mem::transmute(address);
        let fault = zesoft_fault_t { size: size_of::<zesoft_fault_t>() as u32, kind, device, ordinal, value, seed };
        assert_eq!(plant(&raw const fault), ZE_RESULT_SUCCESS, "fault {kind}");
    }
}
