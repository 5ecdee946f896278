//! IPC handles of memory, within a process and between two.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

mod memory_bed;

use level_zero_sys::*;
use memory_bed::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

const SIZE: usize = 3 * 4096;

#[test]
fn opened_memory_is_the_same_memory_at_another_address() {
    let bed = Bed::new();
    let pointer = bed.alloc(1, SIZE);
    let handle = bed.handle(pointer.wrapping_add(100)).unwrap();
    let (first, second) = (bed.open(0, handle).unwrap(), bed.open(2, handle).unwrap());
    assert!(first != pointer && second != pointer && first != second);
    unsafe {
        first.add(SIZE - 1).write(42);
        assert_eq!((pointer.add(SIZE - 1).read(), second.add(SIZE - 1).read()), (42, 42));
    }
    let (kind, id, device) = bed.properties(first.wrapping_add(5));
    assert_eq!((kind, device), (ZE_MEMORY_TYPE_DEVICE, bed.devices[0]));
    assert!(id != bed.properties(pointer).1 && id != bed.properties(second).1);
    assert_eq!(bed.range(second.wrapping_add(SIZE / 2)), Ok((second, SIZE)));

    assert_eq!(bed.free(first), ZE_RESULT_ERROR_INVALID_ARGUMENT, "what was opened is closed, not freed");
    assert_eq!(bed.close(pointer), ZE_RESULT_ERROR_INVALID_ARGUMENT, "what was allocated is freed, not closed");
    assert_eq!(bed.handle(first).err(), Some(ZE_RESULT_ERROR_INVALID_ARGUMENT));
    ok(bed.close(first));
    assert_eq!(bed.close(first), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    ok(bed.free(pointer));
    // The memory lives on for who has it open.
    unsafe { assert_eq!(second.add(SIZE - 1).read(), 42) };
    ok(bed.close(second));
}

#[test]
fn a_handle_is_good_until_it_is_put_back_as_often_as_it_was_got() {
    let bed = Bed::new();
    let pointer = bed.alloc(0, SIZE);
    let handle = bed.handle(pointer).unwrap();
    let again = bed.handle(pointer).unwrap();
    ok(bed.put(again));
    ok(bed.close(bed.open(0, handle).unwrap()));
    ok(bed.put(handle));
    assert_eq!(bed.open(0, handle), Err(ZE_RESULT_ERROR_INVALID_ARGUMENT));
    assert_eq!(bed.put(handle), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    ok(bed.free(pointer));
    ok(bed.put(handle));
}

#[test]
fn only_device_memory_has_handles() {
    let bed = Bed::new();
    let mut host = null_mut();
    let desc = ze_host_mem_alloc_desc_t::default();
    ok(unsafe { (bed.ze.zeMemAllocHost)(bed.context, &raw const desc, 64, 0, &raw mut host) });
    assert_eq!(bed.handle(host.cast()).err(), Some(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE));
    let local = 0u8;
    assert_eq!(bed.handle(&raw const local).err(), Some(ZE_RESULT_ERROR_INVALID_ARGUMENT));
    ok(bed.free(host.cast()));
}

#[test]
fn bytes_and_descriptors_from_elsewhere_are_refused() {
    let bed = Bed::new();
    let pointer = bed.alloc(0, SIZE);
    let handle = bed.handle(pointer).unwrap();
    assert_eq!(bed.open(0, ze_ipc_mem_handle_t::default()), Err(ZE_RESULT_ERROR_INVALID_ARGUMENT));
    for byte in 4..64 {
        let mut changed = handle;
        changed.data[byte] ^= 0x10;
        assert_eq!(bed.open(0, changed), Err(ZE_RESULT_ERROR_INVALID_ARGUMENT), "byte {byte}");
    }
    let file = std::fs::File::open("/dev/null").unwrap();
    let memfd = nix::sys::memfd::memfd_create(c"ze-soft-device-0", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let other = bed.alloc(0, SIZE);
    let other_descriptor = bed.descriptor(bed.handle(other).unwrap()).unwrap();
    for number in [file.as_raw_fd(), memfd.as_raw_fd(), other_descriptor, -1, 1 << 20] {
        let mut changed = handle;
        for (to, from) in changed.data.iter_mut().zip(number.to_ne_bytes()) {
            *to = from as std::ffi::c_char;
        }
        assert_eq!(bed.open(0, changed), Err(ZE_RESULT_ERROR_INVALID_ARGUMENT), "descriptor {number}");
        assert!(bed.description().contains("was not passed"), "{}", bed.description());
    }
    assert_eq!(bed.handle_of(file.as_raw_fd()).err(), Some(ZE_RESULT_ERROR_INVALID_ARGUMENT));
    ok(bed.free(pointer));
    ok(bed.free(other));
}

#[test]
fn a_descriptor_means_nothing_in_another_process_until_it_is_passed() {
    let bed = Bed::new();
    if is_child() {
        let stream = parent();
        let (mut handle, descriptor) = receive(&stream);
        // The numbers that the sender's descriptors have there mean other things here.
        assert_eq!(bed.open(0, handle), Err(ZE_RESULT_ERROR_INVALID_ARGUMENT));
        assert!(bed.description().contains("was not passed"), "{}", bed.description());
        assert_eq!(bed.descriptor(handle).err(), Some(ZE_RESULT_ERROR_INVALID_ARGUMENT));

        // The clean way: a handle made of the descriptor.
        let made = bed.handle_of(descriptor.as_raw_fd()).unwrap();
        let first = bed.open(0, made).unwrap();
        ok(bed.put(made));
        // The old way: this process's number in the sender's bytes.
        for (to, from) in handle.data.iter_mut().zip(descriptor.as_raw_fd().to_ne_bytes()) {
            *to = from as std::ffi::c_char;
        }
        let second = bed.open(3, handle).unwrap();
        // Neither took the descriptor, and neither needs it any more.
        nix::fcntl::fcntl(&descriptor, nix::fcntl::FcntlArg::F_GETFD).unwrap();
        drop(descriptor);
        assert_eq!(bed.range(first), Ok((first, SIZE)));
        unsafe {
            assert_eq!(second.read(), 1);
            first.write(2);
            second.add(SIZE - 1).write(3);
        }
        ok(bed.close(second));
        ok(bed.close(first));
        (&stream).write_all(b"!").unwrap();
        return;
    }
    let pointer = bed.alloc(2, SIZE);
    unsafe { pointer.write(1) };
    // Padding, so that the number is none that the child happens to have.
    let padding: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let handle = bed.handle(pointer).unwrap();
    drop(padding);
    let (mut child, stream) = spawn("a_descriptor_means_nothing_in_another_process_until_it_is_passed", &[]);
    send(&stream, &handle, bed.descriptor(handle).unwrap());
    let answer = (&stream).read_exact(&mut [0]);
    assert!(child.wait().unwrap().success());
    answer.unwrap();
    unsafe { assert_eq!((pointer.read(), pointer.add(SIZE - 1).read()), (2, 3)) };
    ok(bed.put(handle));
    ok(bed.free(pointer));
}

/// In a process with that topology: which of five devices open memory of device 1.
fn openers(bed: &Bed) -> Vec<usize> {
    let pointer = bed.alloc(1, SIZE);
    let handle = bed.handle(pointer).unwrap();
    let opened = (0..bed.devices.len()).filter(|&device| match bed.open(device, handle) {
        Ok(mapped) => {
            ok(bed.close(mapped));
            true
        }
        Err(code) => {
            assert_eq!(code, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
            assert!(bed.description().contains("does not reach"), "{}", bed.description());
            false
        }
    });
    let opened = opened.collect();
    ok(bed.free(pointer));
    opened
}

#[test]
fn without_peer_access_only_the_owner_opens() {
    if is_child() {
        return assert_eq!(openers(&Bed::new()), [1]);
    }
    let test = "without_peer_access_only_the_owner_opens";
    let (mut child, _stream) = spawn(test, &[("ZE_SOFT_DEVICES", "5"), ("ZE_SOFT_P2P", "none")]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn in_a_ring_neighbours_open() {
    if is_child() {
        return assert_eq!(openers(&Bed::new()), [0, 1, 2]);
    }
    let (mut child, _stream) = spawn("in_a_ring_neighbours_open", &[("ZE_SOFT_DEVICES", "5"), ("ZE_SOFT_P2P", "ring")]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn devices_keep_their_identity_behind_a_mask() {
    if is_child() {
        let bed = Bed::new();
        let mut properties = [ze_device_properties_t::default(); 2];
        for (device, properties) in bed.devices.iter().zip(&mut properties) {
            ok(unsafe { (bed.ze.zeDeviceGetProperties)(*device, properties) });
        }
        assert_eq!(bed.devices.len(), 2);
        assert_eq!(properties.map(|properties| properties.uuid.id[15]), [1, 3]);
        return;
    }
    let (mut child, _stream) = spawn("devices_keep_their_identity_behind_a_mask", &[("ZE_AFFINITY_MASK", "3,1.0")]);
    assert!(child.wait().unwrap().success());
}
