//! The whole host path against Intel's driver on devices that it pretends: everything is real but the execution. Run by
//! `.ci/beds/neo-tests.sh`; what is asserted to be wrong here is where the driver's pretence shows (docs/testing.md).
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::config::{Config, DeviceChoice};
use ccl_core::{DataType, ReduceOp, bootstrap};
use ccl_tests::neo::{DEVICES, Raw, kind, pretended};
use ccl_tests::{Group, Rank};
use ccl_ze::{Buffer, Communicator, Stream, hooks};
use level_zero_sys::*;
use std::time::{Duration, Instant};

/// A group of one on a device.
fn alone(device: usize) -> Communicator {
    let mesh = bootstrap::local(1).map(|mut meshes| meshes.remove(0)).unwrap();
    pretended(Communicator::builder().unwrap()).device(device).init_local(mesh).unwrap()
}

/// Calls of every kind that a group has; nobody waits for a result.
fn calls(comm: &Communicator) {
    let (first, second) = (comm.stream(0).unwrap(), comm.stream(1).unwrap());
    let send: Buffer<f32> = comm.alloc(300_000).unwrap();
    let recv: Buffer<f32> = comm.alloc(300_000).unwrap();
    let call = |dtype, count, in_place: bool, stream: &Stream, after: &[ze_event_handle_t]| {
        let request = comm.request(count, dtype, ReduceOp::Sum);
        let from = if in_place { recv.as_ptr() } else { send.as_ptr() };
        // SAFETY: the buffers hold the largest message and outlive the streams' work, which is none.
        unsafe { comm.all_reduce_raw(&request, from.cast(), recv.as_ptr().cast(), stream, after).unwrap() }
    };
    let mut done = Vec::new();
    for dtype in [DataType::Bfloat16, DataType::Float16, DataType::Float32] {
        for count in [0, 1, 1000, 300_000] {
            for in_place in [false, true] {
                // From stream to stream, so that the chain's event is waited for as well.
                done.push(call(dtype, count, in_place, &first, &[]));
                done.push(call(dtype, count, in_place, &second, &[]));
                done.push(call(dtype, count, in_place, &second, &[]));
            }
        }
    }
    // As many events to wait for as fit without an allocation, and more.
    for waits in [1, 15, 16, 40] {
        let after: Vec<_> = done.iter().rev().take(waits).map(|done| done.event().unwrap()).collect();
        done.push(call(DataType::Float32, 1000, true, if waits % 2 == 0 { &first } else { &second }, &after));
    }
    // Bounded, since these events never come: which answer a pretended device gives is not ours to judge.
    let since = Instant::now();
    let _ = done.last().unwrap().wait_for(Duration::from_millis(20)).unwrap();
    assert!(since.elapsed() < Duration::from_secs(5));
    assert_eq!(comm.fault().map(|error| error.to_string()), None);
}

#[test]
#[ignore = "needs the NEO bed"]
fn devices_are_discovered() {
    let (raw, kind) = (Raw::open(), kind());
    assert_eq!(raw.devices.len(), DEVICES * kind.parts);
    let properties: Vec<_> = (0..raw.devices.len()).map(|device| raw.properties(device)).collect();
    for (number, own) in properties.iter().enumerate() {
        assert_eq!((own.vendorId, own.deviceId, own.r#type), (0x8086, kind.id, ZE_DEVICE_TYPE_GPU));
        assert!(properties[..number].iter().all(|other| other.uuid.id != own.uuid.id), "two devices of one uuid");
        let comm = alone(number);
        let shown = comm.describe();
        assert!(shown.device.contains(&format!("{:#06x}", kind.id)), "{}", shown.device);
        assert!(!shown.software && shown.driver.starts_with("Intel driver"), "{}", shown.driver);
        // Nothing is known of its links.
        assert_eq!((shown.device_index, shown.granule), (number, 8));
    }
    // Pretended devices have no links, so that staging would go to host memory; parts of one device have.
    for a in 0..raw.devices.len() {
        for b in 0..raw.devices.len() {
            assert_eq!(raw.can_access(a, b), a / kind.parts == b / kind.parts, "{a} to {b}");
        }
    }
}

/// Whoever does not insist on the software driver gets the GPU.
#[test]
#[ignore = "needs the NEO bed"]
fn the_gpu_is_preferred() {
    for device in [DeviceChoice::Auto, DeviceChoice::Loader, DeviceChoice::Intel, DeviceChoice::Soft] {
        let mesh = bootstrap::local(1).map(|mut meshes| meshes.remove(0)).unwrap();
        let config = Config { device, ..Config::from_env().unwrap() };
        let comm = pretended(Communicator::builder_with(config)).init_local(mesh).unwrap();
        assert_eq!(comm.describe().software, device == DeviceChoice::Soft, "{device}");
    }
}

#[test]
#[ignore = "needs the NEO bed"]
fn kernels_compile_and_spill_nothing() {
    let comm = alone(0);
    let kernels = comm.kernels();
    // The link test's, the channels' that moves, and for lines of 8 bytes the ring's, the push algorithms' and the channels'
    // that combines, for each width.
    assert_eq!(kernels.len(), 1 + 1 + 3 * 4);
    for kernel in &kernels {
        println!("{}: {kernel:?}", kind().name);
        assert_eq!(kernel.spilled, 0, "{}", kernel.name);
        assert!(kernel.subgroup_size >= 8 && kernel.group_size % kernel.subgroup_size == 0, "{kernel:?}");
        assert!(kernel.resident_groups >= 1, "{kernel:?}");
    }
    let resident = kernels.iter().filter(|k| k.name != "probe").map(|k| k.resident_groups).min().unwrap();
    assert_eq!(comm.describe().max_wires, resident.min(64));
}

/// (What the compiler itself refuses takes the process down in this version, so that there is no log to see.)
#[test]
#[ignore = "needs the NEO bed; a refusal is a finding"]
fn a_module_without_our_kernels_is_refused() {
    // In a process of its own: the kernels of this one stay.
    Group::new("a_module_without_our_kernels_is_refused", 1).run(|_| {
        let only_a_header = [0x0723_0203u32, 0x0001_0200, 0, 8, 0];
        let image = only_a_header.iter().flat_map(|word| word.to_le_bytes()).collect();
        hooks::SPIRV.set(vec![("ring_l8".into(), image)]).unwrap();
        let mesh = bootstrap::local(1).map(|mut meshes| meshes.remove(0)).unwrap();
        let error = pretended(Communicator::builder().unwrap()).init_local(mesh).err().unwrap().to_string();
        assert!(error.contains("zeKernelCreate failed: kernel ring_w1_l8: "), "{error}");
    });
}

#[test]
#[ignore = "needs the NEO bed"]
fn one_rank() {
    let comm = alone(0);
    calls(&comm);
}

/// Regular lists are closed and executed, and may be executed again.
#[test]
#[ignore = "needs the NEO bed"]
fn a_regular_list() {
    let raw = Raw::open();
    let comm = alone(0);
    let buffer: Buffer<f32> = comm.alloc(5000).unwrap();
    let stream = comm.stream(0).unwrap();
    // SAFETY: only the list's own context and device are asked for; both live in the communicator.
    let (context, device) = unsafe {
        let (mut context, mut device) = (std::ptr::null_mut(), std::ptr::null_mut());
        let of = &raw.table;
        assert_eq!((of.zeCommandListGetContextHandle.unwrap())(stream.raw(), &raw mut context), ZE_RESULT_SUCCESS);
        assert_eq!((of.zeCommandListGetDeviceHandle.unwrap())(stream.raw(), &raw mut device), ZE_RESULT_SUCCESS);
        (context, device)
    };
    let of = &raw.table;
    let list_desc = ze_command_list_desc_t { flags: ZE_COMMAND_LIST_FLAG_IN_ORDER, ..Default::default() };
    let queue_desc = ze_command_queue_desc_t { mode: ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, ..Default::default() };
    let (mut list, mut queue) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: live context and device; descriptors and outputs outlive the calls; list and queue are destroyed last.
    unsafe {
        assert_eq!((of.zeCommandListCreate)(context, device, &raw const list_desc, &raw mut list), ZE_RESULT_SUCCESS);
        assert_eq!(
            (of.zeCommandQueueCreate)(context, device, &raw const queue_desc, &raw mut queue),
            ZE_RESULT_SUCCESS
        );
        let onto = comm.stream_from_raw(list).unwrap();
        for _ in 0..3 {
            let mut kept = Vec::new();
            for count in [0, 1, 5000] {
                let request = comm.request(count, DataType::Float32, ReduceOp::Sum);
                let at = buffer.as_ptr().cast();
                kept.push(comm.all_reduce_raw(&request, at, at, &onto, &[]).unwrap());
            }
            assert_eq!((of.zeCommandListClose)(list), ZE_RESULT_SUCCESS);
            let executed = (of.zeCommandQueueExecuteCommandLists)(queue, 1, &raw mut list, std::ptr::null_mut());
            assert_eq!(executed, ZE_RESULT_SUCCESS);
            assert_eq!((of.zeCommandQueueSynchronize)(queue, 1_000_000_000), ZE_RESULT_SUCCESS);
            assert_eq!((of.zeCommandListReset)(list), ZE_RESULT_SUCCESS);
        }
        drop(onto);
        assert_eq!((of.zeCommandQueueDestroy)(queue), ZE_RESULT_SUCCESS);
        assert_eq!((of.zeCommandListDestroy)(list), ZE_RESULT_SUCCESS);
    }
}

fn as_rank(rank: &Rank) -> Communicator {
    pretended(rank.builder()).init(&rank.id, rank.rank, rank.n).unwrap()
}

#[test]
#[ignore = "needs the NEO bed"]
fn two_ranks_through_host_memory() {
    Group::new("two_ranks_through_host_memory", 2).env("CCL_TOPO_P2P_ACCESS", 0).run(|rank| {
        let comm = as_rank(&rank);
        assert!(!comm.describe().p2p);
        calls(&comm);
    });
}

/// The driver has no links to offer, so the reach is pretended as well: handles are got, descriptors exchanged, memory
/// opened and closed.
#[test]
#[ignore = "needs the NEO bed"]
fn two_ranks_through_device_memory() {
    Group::new("two_ranks_through_device_memory", 2).run(|rank| {
        let comm = as_rank(&rank);
        assert!(comm.describe().p2p);
        calls(&comm);
    });
}

/// Without the hook the ranks find that there is no link, take host memory, and find that nothing arrives there either.
#[test]
#[ignore = "needs the NEO bed"]
fn pretence_is_found_out() {
    Group::new("pretence_is_found_out", 2).run(|rank| {
        let error = rank.builder().init(&rank.id, rank.rank, rank.n).err().unwrap().to_string();
        assert!(error.contains("pattern test") && error.contains("even through host memory"), "{error}");
    });
}

/// Where the driver's pretence shows in IPC: the descriptor in a handle is 0, and what it opens is no memory.
#[test]
#[ignore = "needs the NEO bed"]
fn memory_handles_are_pretended() {
    let raw = Raw::open();
    let of = &raw.table;
    let desc = ze_device_mem_alloc_desc_t::default();
    let mut handle = ze_ipc_mem_handle_t { data: [1; size_of::<ze_ipc_mem_handle_t>()] };
    let (mut memory, mut opened, mut descriptor) = (std::ptr::null_mut(), std::ptr::null_mut(), 1);
    // SAFETY: live context and devices; descriptors and outputs outlive the calls; the opened address isn't accessed.
    unsafe {
        let [owner, peer] = [raw.devices[0], raw.devices[1]];
        let made = (of.zeMemAllocDevice)(raw.context, &raw const desc, 65536, 65536, owner, &raw mut memory);
        assert_eq!(made, ZE_RESULT_SUCCESS);
        assert_eq!((of.zeMemGetIpcHandle)(raw.context, memory, &raw mut handle), ZE_RESULT_SUCCESS);
        let ask = of.zeMemGetFileDescriptorFromIpcHandleExp.unwrap();
        assert_eq!((ask)(raw.context, handle, &raw mut descriptor), ZE_RESULT_SUCCESS);
        assert_eq!((descriptor, &handle.data[..8]), (0, &[0; 8][..]));
        // Real all the same: the exporter's process, from which the driver would fetch the descriptor.
        let process: Vec<u8> = handle.data[16..20].iter().map(|byte| *byte as u8).collect();
        assert_eq!(process == std::process::id().to_ne_bytes(), kind().handles_name_process);
        let open = (of.zeMemOpenIpcHandle)(raw.context, peer, handle, 0, &raw mut opened);
        assert_eq!((open, opened.addr()), (ZE_RESULT_SUCCESS, 1));
        assert_eq!((of.zeMemCloseIpcHandle)(raw.context, opened), ZE_RESULT_SUCCESS);
        assert_eq!((of.zeMemPutIpcHandle)(raw.context, handle), ZE_RESULT_SUCCESS);
        assert_eq!((of.zeMemFree)(raw.context, memory), ZE_RESULT_SUCCESS);
    }
}
