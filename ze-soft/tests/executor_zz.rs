#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]
#[path = "executor_support/mod.rs"]
mod support;
use level_zero_sys::*;
use std::ptr::{null, null_mut};
use support::*;
#[test]
fn t() {
    let soft = Soft::new();
    let list = soft.immediate(0, 0);
    let event = soft.counted();
    let kernel = soft.kernel("store");
    let cell = &cells(1)[0];
    let launch = soft.ze.zeCommandListAppendLaunchKernelWithArguments.unwrap();
    let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let size = ze_group_size_t { groupSizeX: 1, groupSizeY: 1, groupSizeZ: 1 };
    let address = &raw const *cell;
    for timeout in [NEVER, SOON] {
    let (_, t) = timed(|| for value in 0..20000u64 {
        let mut arguments = [(&raw const address).cast_mut().cast(), (&raw const value).cast_mut().cast::<std::ffi::c_void>()];
        unsafe {
            ok(launch(list, kernel, one, size, arguments.as_mut_ptr(), null(), event, 0, null_mut()));
            ok((soft.ze.zeEventHostSynchronize)(event, timeout));
        }
    });
    println!("append+wait {timeout} {:?}", t / 20000);
    }
    let (_, t) = timed(|| for value in 0..20000u64 {
        let mut arguments = [(&raw const address).cast_mut().cast(), (&raw const value).cast_mut().cast::<std::ffi::c_void>()];
        unsafe { ok(launch(list, kernel, one, size, arguments.as_mut_ptr(), null(), event, 0, null_mut())); }
        while soft.query(event) != 0 { std::thread::yield_now(); }
    });
    println!("append+poll {:?}", t / 20000);
}
