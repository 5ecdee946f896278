//! `cclx.h`: C and C++ take it, it declares what the library exports, and the calls do what it says.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::{DataType, ReduceOp, bootstrap};
use ccl_tests::Group;
use ccl_tests::graph::Lab;
use ccl_ze::Communicator;
use cclx::*;
use level_zero_sys::ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};

const HEADER: &str = include_str!("../../ccl-ffi/include/cclx.h");
const USES: &str = "#include \"cclx.h\"\n#include \"cclx.h\"\nint main(void) { cclxStream_t stream = NULL; return \
                    cclxStreamDestroy(stream) == 0 || cclxStreamCreate(NULL, NULL, &stream) == 0 || \
                    cclxAllReduceAfter(NULL, NULL, 0, 0, 0, NULL, stream, 0, NULL, NULL) == 0; }\n";

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn c_and_cpp_take_it_and_it_declares_what_is_exported() {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().unwrap();
    let library = folder.join("libcclx.so");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ccl-ffi/include");
    for (compiler, standard, name) in [("cc", "-std=c99", "use.c"), ("c++", "-std=c++11", "use.cpp")] {
        let scratch = std::env::temp_dir().join(format!("ccl-header-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&scratch).unwrap();
        std::fs::write(scratch.join(name), USES).unwrap();
        // The library goes by another name to its users.
        std::fs::copy(&library, scratch.join("libccl.so.2")).unwrap();
        let mut command = Command::new(compiler);
        command
            .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
            .arg(&include)
            .arg(scratch.join(name));
        run(command.arg(scratch.join("libccl.so.2")).arg("-o").arg(scratch.join("use")));
        // Every call refuses its null.
        run(Command::new(scratch.join("use")).env("LD_LIBRARY_PATH", &scratch).env("CCLX_DEVICE", "soft"));
        std::fs::remove_dir_all(&scratch).unwrap();
    }
    let declared: BTreeSet<String> = HEADER
        .lines()
        .filter_map(|line| line.strip_prefix("int ")?.split_once('(').map(|(name, _)| name.to_owned()))
        .collect();
    let exported: BTreeSet<String> = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library))
        .lines()
        .filter_map(|line| line.split_whitespace().last().filter(|name| name.starts_with("cclx")).map(str::to_owned))
        .collect();
    assert_eq!(declared, exported);
    assert_eq!(declared.len(), 3);
}

#[test]
fn calls_with_events_on_a_list() {
    Group::new("calls_with_events_on_a_list", 2).env("CCLX_DEVICE", "soft").run(|rank| {
        // SAFETY: every handle is live and every buffer as long as it is said to be, until the list is waited for.
        unsafe {
            let mut comm = null_mut();
            onecclSetDevice(rank.rank as u32);
            let id = std::mem::transmute::<[u8; 4096], OnecclUniqueId>(*rank.id.as_bytes());
            assert_eq!(onecclCommInitRank(&raw mut comm, 2, id, rank.rank as i32), 0);
            // Another communicator of this process on the device shares the context.
            let mesh = bootstrap::local(1).unwrap().remove(0);
            let beside = Communicator::builder().unwrap().device(rank.rank).init_local(mesh).unwrap();
            let lab = Lab::new(&beside);
            let list = lab.list(0, ZE_COMMAND_QUEUE_FLAG_IN_ORDER);
            let mut stream = null_mut();
            assert_eq!(cclxStreamCreate(comm, list.cast(), &raw mut stream), 0);
            let other = beside.stream(1).unwrap();
            let memory = beside.alloc::<f32>(700).unwrap();
            let at: *mut c_void = memory.as_ptr().cast();
            let [produced, done] = [0; 2].map(|more| lab.counter_event(more));
            let (f32s, sum) = (DataType::Float32 as i32, ReduceOp::Sum.code() as i32);
            let mut output = vec![0f32; 700];
            for turn in 0..50 {
                let input: Vec<f32> = (0..700).map(|i| (i % 9 + turn + rank.rank) as f32).collect();
                lab.copy(&other, at, input.as_ptr().cast(), 2800, produced, &mut []);
                let wait = [produced.cast::<c_void>()];
                let code = cclxAllReduceAfter(at, at, 700, f32s, sum, comm, stream, 1, wait.as_ptr(), done.cast());
                assert_eq!(code, 0);
                lab.copy(&other, output.as_mut_ptr().cast(), at, 2800, null_mut(), &mut [done]);
                other.synchronize().unwrap();
                assert!((0..700).all(|i| output[i] == (2 * (i % 9 + turn) + 1) as f32), "turn {turn}");
            }
            let host = [1f32; 10];
            let mut result = [0f32; 10];
            let (from, to) = (host.as_ptr().cast(), result.as_mut_ptr().cast());
            assert_eq!(cclxAllReduceAfter(from, to, 10, f32s, sum, comm, null_mut(), 0, null(), null_mut()), 0);
            assert_eq!(result, [2.0; 10]);
            let wait = [done.cast::<c_void>()];
            let code = cclxAllReduceAfter(from, to, 10, f32s, sum, comm, null_mut(), 1, wait.as_ptr(), null_mut());
            assert_eq!(code, 12, "host buffers have no events");
            assert_eq!(cclxAllReduceAfter(at, at, 700, f32s, sum, comm, stream, 1, null(), null_mut()), 4);
            assert_eq!(cclxStreamDestroy(stream), 0);
            lab.destroy(list);
            assert_eq!(onecclCommDestroy(comm), 0);
        }
    });
}
