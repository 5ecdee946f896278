//! Allocations, imports, and what driver and devices say of themselves.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

mod memory_bed;

use level_zero_sys::*;
use memory_bed::*;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::ffi::{CStr, c_void};
use std::ops::Deref;
use std::ptr::{null, null_mut};
use ze_soft::ext;

const PAGE: usize = 4096;

/// A bed while no other test here has one: addresses are the process's, so what one test has freed and looks for
/// could be what another was given a moment later.
struct Alone(Bed, #[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

impl Alone {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock();
        Self(Bed::new(), turn)
    }
}

impl Deref for Alone {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.0
    }
}

fn name(text: &[std::ffi::c_char]) -> String {
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().to_owned()
}

#[test]
fn allocations_are_found_by_any_address_inside() {
    let bed = Alone::new();
    let pointer = bed.alloc(1, 3 * PAGE - 5);
    let (kind, id, device) = bed.properties(pointer);
    assert_eq!((kind, device), (ZE_MEMORY_TYPE_DEVICE, bed.devices[1]));
    for offset in [0, 1, PAGE, 3 * PAGE - 1] {
        let inside = pointer.wrapping_add(offset);
        assert_eq!(bed.properties(inside), (kind, id, device));
        assert_eq!(bed.range(inside), Ok((pointer, 3 * PAGE)), "whole pages");
    }
    unsafe {
        pointer.write_bytes(0xa5, 3 * PAGE);
        assert_eq!(pointer.add(3 * PAGE - 1).read(), 0xa5);
    }
    ok(bed.free(pointer));
    assert_eq!(bed.properties(pointer), (ZE_MEMORY_TYPE_UNKNOWN, 0, null_mut()));
    assert_eq!(bed.range(pointer), Err(ZE_RESULT_ERROR_ADDRESS_NOT_FOUND));
    assert_eq!(bed.free(pointer), ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

#[test]
fn memory_that_is_not_the_drivers_is_unknown() {
    let bed = Alone::new();
    let local = 7u64;
    let pointer = (&raw const local).cast::<u8>();
    assert_eq!(bed.properties(pointer), (ZE_MEMORY_TYPE_UNKNOWN, 0, null_mut()));
    assert_eq!(bed.range(pointer), Err(ZE_RESULT_ERROR_ADDRESS_NOT_FOUND));
    assert_eq!(bed.free(pointer.cast_mut()), ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

#[test]
fn ids_never_come_back() {
    let bed = Alone::new();
    let mut ids = HashSet::new();
    for _ in 0..200 {
        let pointer = bed.alloc(0, PAGE);
        assert!(ids.insert(bed.properties(pointer).1));
        ok(bed.free(pointer));
    }
}

#[test]
fn sizes_and_alignments_are_checked_and_honoured() {
    let bed = Alone::new();
    for shift in 0..=22 {
        let alignment = 1usize << shift;
        let pointer = bed.try_alloc(0, 100, alignment).unwrap();
        assert!(pointer.addr().is_multiple_of(alignment), "{pointer:p} for {alignment}");
        unsafe { pointer.write_bytes(1, 100) };
        ok(bed.free(pointer));
    }
    assert_eq!(bed.try_alloc(0, 100, 3), Err(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT));
    assert_eq!(bed.try_alloc(0, 100, 1 << 40), Err(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT));
    assert_eq!(bed.try_alloc(0, 0, 0), Err(ZE_RESULT_ERROR_UNSUPPORTED_SIZE));
    assert!(bed.description().contains("0 bytes"), "{}", bed.description());
    assert_eq!(bed.try_alloc(0, usize::MAX, 0), Err(ZE_RESULT_ERROR_UNSUPPORTED_SIZE));
}

#[test]
fn host_and_shared_memory_say_what_they_are() {
    let bed = Alone::new();
    let (device_desc, host_desc) = (ze_device_mem_alloc_desc_t::default(), ze_host_mem_alloc_desc_t::default());
    let (mut host, mut shared, mut anywhere) = (null_mut(), null_mut(), null_mut());
    unsafe {
        ok((bed.ze.zeMemAllocHost)(bed.context, &raw const host_desc, 64, 64, &raw mut host));
        let alloc = |device, to| {
            (bed.ze.zeMemAllocShared)(bed.context, &raw const device_desc, &raw const host_desc, 64, 0, device, to)
        };
        ok(alloc(bed.devices[2], &raw mut shared));
        ok(alloc(null_mut(), &raw mut anywhere));
    }
    let seen = |pointer: *mut c_void| {
        let (kind, _, device) = bed.properties(pointer.cast());
        (kind, device)
    };
    assert_eq!(seen(host), (ZE_MEMORY_TYPE_HOST, null_mut()));
    assert_eq!(seen(shared), (ZE_MEMORY_TYPE_SHARED, bed.devices[2]));
    assert_eq!(seen(anywhere), (ZE_MEMORY_TYPE_SHARED, null_mut()));
    for pointer in [host, shared, anywhere] {
        ok(bed.free(pointer.cast()));
    }
}

#[test]
fn null_and_foreign_arguments_are_told_apart() {
    let bed = Alone::new();
    let desc = ze_device_mem_alloc_desc_t::default();
    let mut pointer = null_mut();
    let device = bed.devices[0];
    unsafe {
        let alloc = |context, desc, device, to| (bed.ze.zeMemAllocDevice)(context, desc, 8, 0, device, to);
        let wanted = &raw const desc;
        assert_eq!(alloc(null_mut(), wanted, device, &raw mut pointer), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        assert_eq!(alloc(bed.context, null(), device, &raw mut pointer), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        assert_eq!(alloc(bed.context, wanted, null_mut(), &raw mut pointer), ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        assert_eq!(alloc(bed.context, wanted, device, null_mut()), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        assert_eq!(alloc(device.cast(), wanted, device, &raw mut pointer), ZE_RESULT_ERROR_UNINITIALIZED);
        assert_eq!((bed.ze.zeMemFree)(bed.context, null_mut()), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        let odd = ze_device_mem_alloc_desc_t { flags: 1 << 20, ..desc };
        assert_eq!(alloc(bed.context, &raw const odd, device, &raw mut pointer), ZE_RESULT_ERROR_INVALID_ENUMERATION);
    }
}

#[test]
fn memory_is_freed_by_either_policy() {
    let bed = Alone::new();
    let free = bed.ze.zeMemFreeExt.unwrap();
    for policy in
        [0, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE]
    {
        let pointer = bed.alloc(0, PAGE);
        let desc = ze_memory_free_ext_desc_t { freePolicy: policy, ..Default::default() };
        ok(unsafe { free(bed.context, &raw const desc, pointer.cast()) });
        assert_eq!(bed.properties(pointer).0, ZE_MEMORY_TYPE_UNKNOWN);
    }
}

/// Pages of the program's own.
struct Pages(*mut c_void, usize);

impl Pages {
    fn new(size: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let base = unsafe { libc::mmap(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self(base, size)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.0, self.1) };
    }
}

fn map_system_memory(bed: &Bed, memory: *mut c_void, size: usize) -> Result<*mut c_void, ze_result_t> {
    let system =
        ze_external_memmap_sysmem_ext_desc_t { pSystemMemory: memory, size: size as u64, ..Default::default() };
    let desc = ze_host_mem_alloc_desc_t { pNext: (&raw const system).cast(), ..Default::default() };
    let mut pointer = null_mut();
    match unsafe { (bed.ze.zeMemAllocHost)(bed.context, &raw const desc, size, 0, &raw mut pointer) } {
        ZE_RESULT_SUCCESS => Ok(pointer),
        code => Err(code),
    }
}

#[test]
fn mapped_system_memory_keeps_its_address() {
    let bed = Alone::new();
    let pages = Pages::new(4 * PAGE);
    assert_eq!(map_system_memory(&bed, pages.0, 4 * PAGE), Ok(pages.0));
    let (kind, id, _) = bed.properties(pages.0.cast::<u8>().wrapping_add(PAGE + 1));
    assert_eq!(kind, ZE_MEMORY_TYPE_HOST_IMPORTED);
    assert_ne!(id, 0);
    assert_eq!(bed.range(pages.0.cast()), Ok((pages.0.cast(), 4 * PAGE)));
    let overlap = pages.0.wrapping_byte_add(PAGE);
    assert_eq!(map_system_memory(&bed, overlap, PAGE), Err(ZE_RESULT_ERROR_INVALID_ARGUMENT));
    ok(bed.free(pages.0.cast()));
    unsafe { pages.0.cast::<u8>().write(9) };
    assert_eq!(bed.properties(pages.0.cast()).0, ZE_MEMORY_TYPE_UNKNOWN);
}

#[test]
fn only_whole_mapped_pages_are_imported() {
    let bed = Alone::new();
    let pages = Pages::new(2 * PAGE);
    assert_eq!(map_system_memory(&bed, pages.0.wrapping_byte_add(8), PAGE), Err(ZE_RESULT_ERROR_INVALID_SIZE));
    assert_eq!(map_system_memory(&bed, pages.0, PAGE + 8), Err(ZE_RESULT_ERROR_INVALID_SIZE));
    // No process has anything so low.
    let low = std::ptr::without_provenance_mut(PAGE);
    assert_eq!(map_system_memory(&bed, low, 2 * PAGE), Err(ZE_RESULT_ERROR_INVALID_ARGUMENT));
    assert!(bed.description().contains("not all mapped"), "{}", bed.description());
}

#[test]
fn pointers_are_imported_without_a_descriptor_too() {
    let mut bed = Alone::new();
    unsafe { bed.0.ze.load_extensions(bed.driver) };
    let import = bed.ze.zexDriverImportExternalPointer.unwrap();
    let release = bed.ze.zexDriverReleaseImportedPointer.unwrap();
    let base_of = bed.ze.zexDriverGetHostPointerBaseAddress.unwrap();
    let pages = Pages::new(2 * PAGE);
    let mut base = null_mut();
    unsafe {
        ok(import(bed.driver, pages.0, 2 * PAGE));
        ok(base_of(bed.driver, pages.0.wrapping_byte_add(PAGE), &raw mut base));
        assert_eq!(base, pages.0);
        assert_eq!(bed.properties(pages.0.cast()).0, ZE_MEMORY_TYPE_HOST_IMPORTED);
        ok(release(bed.driver, pages.0));
        assert_eq!(release(bed.driver, pages.0), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        assert_eq!(base_of(bed.driver, pages.0, &raw mut base), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
}

#[test]
fn residency_is_asked_for_known_ranges_only() {
    let bed = Alone::new();
    let pointer = bed.alloc(0, 2 * PAGE);
    let resident = |pointer: *mut u8, size| unsafe {
        (bed.ze.zeContextMakeMemoryResident)(bed.context, bed.devices[1], pointer.cast(), size)
    };
    ok(resident(pointer, 2 * PAGE));
    ok(resident(pointer.wrapping_add(PAGE), PAGE));
    assert_eq!(resident(pointer.wrapping_add(PAGE), 2 * PAGE), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert_eq!(resident(null_mut(), 1), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    ok(bed.free(pointer));
    assert_eq!(resident(pointer, 1), ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

#[test]
fn the_driver_names_itself_and_its_extensions() {
    let bed = Alone::new();
    let (mut version, mut count) = (0, 0);
    let mut ipc = ze_driver_ipc_properties_t::default();
    let (mut first, mut second) = (ze_driver_properties_t::default(), ze_driver_properties_t::default());
    unsafe {
        ok((bed.ze.zeDriverGetApiVersion)(bed.driver, &raw mut version));
        ok((bed.ze.zeDriverGetIpcProperties)(bed.driver, &raw mut ipc));
        ok((bed.ze.zeDriverGetProperties)(bed.driver, &raw mut first));
        ok((bed.ze.zeDriverGetProperties)(bed.driver, &raw mut second));
        ok((bed.ze.zeDriverGetExtensionProperties)(bed.driver, &raw mut count, null_mut()));
        let mut list = vec![ze_driver_extension_properties_t::default(); count as usize];
        ok((bed.ze.zeDriverGetExtensionProperties)(bed.driver, &raw mut count, list.as_mut_ptr()));
        let names: HashSet<String> = list.iter().map(|extension| name(&extension.name)).collect();
        for wanted in [ext::NATIVE_KERNELS_NAME, ext::FAULTS_NAME, ZE_EXTERNAL_MEMORY_MAPPING_EXT_NAME] {
            assert!(names.contains(wanted.to_str().unwrap()), "{wanted:?}");
        }
    }
    assert_eq!(version, ZE_API_VERSION_1_17);
    assert_ne!(ipc.flags & ZE_IPC_PROPERTY_FLAG_MEMORY, 0);
    assert_eq!(first.uuid.id, second.uuid.id);
    let mut address = null_mut();
    let get = bed.ze.zeDriverGetExtensionFunctionAddress;
    assert_eq!(
        unsafe { get(bed.driver, c"zeNoSuchThing".as_ptr(), &raw mut address) },
        ZE_RESULT_ERROR_INVALID_ARGUMENT
    );
    assert!(address.is_null() && bed.description().contains("zeNoSuchThing"));
}

#[test]
fn drivers_are_selected_by_kind() {
    let bed = Alone::new();
    let init = bed.ze.zeInitDrivers.unwrap();
    let with = |flags| {
        let mut desc = ze_init_driver_type_desc_t { flags, ..Default::default() };
        let mut count = 0;
        (unsafe { init(&raw mut count, null_mut(), &raw mut desc) }, count)
    };
    assert_eq!(with(ZE_INIT_DRIVER_TYPE_FLAG_GPU), (ZE_RESULT_SUCCESS, 1));
    assert_eq!(with(u32::MAX), (ZE_RESULT_SUCCESS, 1));
    assert_eq!(with(ZE_INIT_DRIVER_TYPE_FLAG_NPU).0, ZE_RESULT_ERROR_UNINITIALIZED);
    assert_eq!(with(0).0, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    assert_eq!(unsafe { (bed.ze.zeInit)(ZE_INIT_FLAG_VPU_ONLY) }, ZE_RESULT_ERROR_UNINITIALIZED);
}

#[test]
fn devices_say_plainly_what_they_are() {
    let bed = Alone::new();
    assert_eq!(bed.devices.len(), 4);
    let (mut ids, mut addresses) = (HashSet::new(), HashSet::new());
    for &device in &bed.devices {
        // One structure that the driver knows, behind one that it doesn't.
        let mut units = ze_eu_count_ext_t::default();
        let mut unknown = ze_base_properties_t { stype: 0x7abc_def0, pNext: (&raw mut units).cast() };
        let mut properties = ze_device_properties_t { pNext: (&raw mut unknown).cast(), ..Default::default() };
        let mut pci = ze_pci_ext_properties_t::default();
        unsafe {
            ok((bed.ze.zeDeviceGetProperties)(device, &raw mut properties));
            ok(bed.ze.zeDevicePciGetPropertiesExt.unwrap()(device, &raw mut pci));
            ok((bed.ze.zeDeviceGetStatus)(device));
        }
        assert_eq!(properties.r#type, ZE_DEVICE_TYPE_GPU);
        assert!(name(&properties.name).contains("software driver"), "{}", name(&properties.name));
        assert_eq!((properties.flags, units.numTotalEUs, unknown.stype), (0, 8, 0x7abc_def0));
        assert!(ids.insert(properties.uuid.id));
        assert!(addresses.insert(pci.address.bus));
    }
}

#[test]
fn queue_groups_and_peers_are_as_promised() {
    let bed = Alone::new();
    let device = bed.devices[0];
    let mut groups = [ze_command_queue_group_properties_t::default(); 5];
    let mut count = groups.len() as u32;
    let (mut access, mut p2p) = (0, ze_device_p2p_properties_t::default());
    let (mut host, mut there) = (0, 0);
    unsafe {
        ok((bed.ze.zeDeviceGetCommandQueueGroupProperties)(device, &raw mut count, groups.as_mut_ptr()));
        ok((bed.ze.zeDeviceCanAccessPeer)(device, bed.devices[3], &raw mut access));
        ok((bed.ze.zeDeviceGetP2PProperties)(device, bed.devices[3], &raw mut p2p));
        ok((bed.ze.zeDeviceGetGlobalTimestamps)(device, &raw mut host, &raw mut there));
    }
    assert_eq!(count, 3);
    let computes =
        |group: &ze_command_queue_group_properties_t| group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE != 0;
    assert_eq!(groups.map(|group| computes(&group))[..3], [true, true, false]);
    assert!(groups[..3].iter().all(|group| group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY != 0));
    assert_eq!(access, 1);
    assert_ne!(p2p.flags & ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS, 0);
    assert!(host != 0 && host == there);
}

#[test]
fn the_default_context_can_not_be_destroyed() {
    let bed = Alone::new();
    let context = unsafe { bed.ze.zeDriverGetDefaultContext.unwrap()(bed.driver) };
    assert!(!context.is_null());
    unsafe {
        ok((bed.ze.zeContextGetStatus)(context));
        assert_eq!((bed.ze.zeContextDestroy)(context), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        ok((bed.ze.zeContextDestroy)(bed.context));
    }
}

#[test]
fn deferred_memory_lives_while_commands_may_use_it() {
    let bed = Alone::new();
    let ze = &bed.ze;
    let pool_desc = ze_event_pool_desc_t { flags: ZE_EVENT_POOL_FLAG_HOST_VISIBLE, count: 1, ..Default::default() };
    let event_desc = ze_event_desc_t::default();
    let queue_desc = ze_command_queue_desc_t::default();
    let (mut pool, mut event, mut list) = (null_mut(), null_mut(), null_mut());
    let pointer = bed.alloc(0, PAGE);
    let target = bed.alloc(0, PAGE);
    unsafe {
        pointer.write(5);
        ok((ze.zeEventPoolCreate)(bed.context, &raw const pool_desc, 0, null_mut(), &raw mut pool));
        ok((ze.zeEventCreate)(pool, &raw const event_desc, &raw mut event));
        ok((ze.zeCommandListCreateImmediate)(bed.context, bed.devices[0], &raw const queue_desc, &raw mut list));
        let copy = |target: *mut u8, waits: &mut [ze_event_handle_t]| {
            let count = waits.len() as u32;
            (ze.zeCommandListAppendMemoryCopy)(
                list,
                target.cast(),
                pointer.cast(),
                1,
                null_mut(),
                count,
                waits.as_mut_ptr(),
            )
        };
        ok(copy(target, &mut [event]));
        let desc = ze_memory_free_ext_desc_t {
            freePolicy: ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE,
            ..Default::default()
        };
        // It doesn't wait for the copy, which can't run as yet, and doesn't take the memory away from it.
        ok(ze.zeMemFreeExt.unwrap()(bed.context, &raw const desc, pointer.cast()));
        assert_eq!(bed.properties(pointer).0, ZE_MEMORY_TYPE_UNKNOWN);
        ok((ze.zeEventHostSignal)(event));
        ok((ze.zeCommandListHostSynchronize)(list, 10_000_000_000));
        ok(ze.zeDeviceSynchronize.unwrap()(bed.devices[0]));
        assert_eq!(target.read(), 5);
        ok((ze.zeCommandListDestroy)(list));
        ok((ze.zeEventDestroy)(event));
        ok((ze.zeEventPoolDestroy)(pool));
    }
    ok(bed.free(target));
}
