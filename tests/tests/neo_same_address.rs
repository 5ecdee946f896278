//! Memory that goes, and other memory that comes in its place, on Intel's driver on devices that it pretends: a launch names
//! the allocation that is there now. Run by `.ci/beds/neo-tests.sh`, under an allocator that writes over what is freed and
//! doesn't hand it out again at once, so that the driver fails surely where it still uses the one before.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::config::Config;
use ccl_core::{DataType, Factor, ReduceOp, bootstrap};
use ccl_tests::neo::pretended;
use ccl_ze::{Communicator, DeviceMemory};
use std::ffi::c_void;

const TURNS: usize = 20;
/// Large enough for an address range of its own, which the next of this size gets again.
const BYTES: usize = 8 << 20;

fn alone() -> Communicator {
    let mesh = bootstrap::local(1).map(|mut meshes| meshes.remove(0)).unwrap();
    pretended(Communicator::builder().unwrap()).init_local(mesh).unwrap()
}

/// A call of one size on that memory. A rank alone that only summed would need no kernel.
fn call(comm: &Communicator, at: *mut c_void) {
    let stream = comm.stream(0).unwrap();
    let twice = Factor::new(DataType::Float32, 2f32.to_bits().into());
    let request = comm.request(1000, DataType::Float32, ReduceOp::PreMulSum(twice));
    // SAFETY: the memory holds the message until the stream has been waited for.
    drop(unsafe { comm.all_reduce_raw(&request, at, at, &stream, &[]).unwrap() });
    stream.synchronize().unwrap();
}

/// Without this the driver may get away with what it must not do.
fn check_allocator() {
    let tunables = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
    assert!(tunables.contains("malloc.perturb") && tunables.contains("tcache_count=0"), "GLIBC_TUNABLES={tunables}");
}

#[test]
#[ignore = "needs the NEO bed"]
fn a_buffer_where_another_was() {
    check_allocator();
    let (comm, config) = (alone(), Config::from_env().unwrap());
    let turn = || {
        let memory = DeviceMemory::new(&config, 0, BYTES).unwrap();
        call(&comm, memory.as_ptr());
        memory.as_ptr() as usize
    };
    let at: Vec<_> = (0..TURNS).map(|_| turn()).collect();
    let came_back = at.windows(2).filter(|pair| pair[0] == pair[1]).count();
    println!("{came_back} of {TURNS} were where the one before was");
    assert!(came_back > 0, "no memory came back at its address: {at:x?}");
}

/// The same of a communicator's staging memory, state and host block, which nobody is shown.
#[test]
#[ignore = "needs the NEO bed"]
fn a_communicator_where_another_was() {
    check_allocator();
    // The device and its kernels stay.
    let _stays = alone();
    let memory = DeviceMemory::new(&Config::from_env().unwrap(), 0, BYTES).unwrap();
    for _ in 0..TURNS {
        call(&alone(), memory.as_ptr());
    }
}
