//! `cclx.h`: C and C++ take it, it declares what the library exports, and the calls do what it says.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::mhc::{Params, Variant};
use ccl_core::{DataType, ReduceOp, bootstrap};
use ccl_tests::fused::Case;
use ccl_tests::graph::Lab;
use ccl_tests::{Group, Rank};
use ccl_ze::Communicator;
use cclx::*;
use half::bf16;
use level_zero_sys::{ZE_COMMAND_QUEUE_FLAG_IN_ORDER, ze_command_list_handle_t};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};

const HEADER: &str = include_str!("../../ccl-ffi/include/cclx.h");
const USES: &str = "#include \"cclx.h\"\n#include \"cclx.h\"\nint main(void) { cclxStream_t stream = NULL; return \
                    cclxStreamDestroy(stream) == 0 || cclxStreamCreate(NULL, NULL, &stream) == 0 || \
                    cclxStreamOpen(NULL, 0, &stream) == 0 || cclxStreamSynchronize(NULL, 1) == 0 || \
                    cclxStreamCopy(NULL, NULL, NULL, 1, 0, NULL) == 0 || cclxCommHandles(NULL, NULL, NULL, NULL) == 0 || \
                    cclxAllReduceAfter(NULL, NULL, 0, 0, 0, NULL, stream, 0, NULL, NULL) == 0 || \
                    cclxStreamFromQueue(NULL, NULL, &stream) == 0 || cclxCommLookup(NULL, -1, NULL) == 0 || \
                    cclxMhcPrepare(NULL) == 0 || cclxMhc(NULL, NULL, stream, 0, NULL, NULL) == 0 || \
                    cclxAllReduceMhc(NULL, NULL, stream, 0, NULL, NULL) == 0; }\n";

/// What fails to compile unless C has `cclxMhcParams` where Rust does.
fn layout() -> String {
    let mut text = format!("typedef char size[sizeof(cclxMhcParams) == {} ? 1 : -1];\n", size_of::<CclxMhcParams>());
    macro_rules! fields {
        ($($field:ident)*) => { $(
            text += &format!(
                "typedef char at_{0}[offsetof(cclxMhcParams, {0}) == {1} ? 1 : -1];\n",
                stringify!($field),
                std::mem::offset_of!(CclxMhcParams, $field)
            );
        )* };
    }
    fields!(size version variant datatype design rows hidden streams sinkhorn_iterations rms_eps pre_eps sinkhorn_eps
        post_multiplier has_norm norm_eps x residual post comb previous_pre fn_weights fn_rows fn_columns scale base
        norm_weight x_out residual_out post_out comb_out pre_out y normed);
    text
}

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
        std::fs::write(scratch.join(name), USES.replace("int main", &format!("{}int main", layout()))).unwrap();
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
    let untried: Vec<_> = declared.iter().filter(|name| !USES.contains(&format!("{name}("))).collect();
    assert!(untried.is_empty(), "{untried:?}");
}

/// A rank of two that calls by C, with a stream of its own.
struct Caller {
    comm: *mut OnecclComm,
    /// Another communicator of this process on the device, which shares the context.
    beside: Communicator,
    lab: Lab,
    list: ze_command_list_handle_t,
    stream: *mut CclxStream,
}

impl Caller {
    fn of(rank: &Rank) -> Self {
        onecclSetDevice(rank.rank as u32);
        let (mut comm, mut stream) = (null_mut(), null_mut());
        // SAFETY: any bytes are an id; the place for the handle is this function's.
        unsafe {
            let id = std::mem::transmute::<[u8; 4096], OnecclUniqueId>(*rank.id.as_bytes());
            assert_eq!(onecclCommInitRank(&raw mut comm, 2, id, rank.rank as i32), 0);
        }
        let mesh = bootstrap::local(1).unwrap().remove(0);
        let beside = Communicator::builder().unwrap().device(rank.rank).init_local(mesh).unwrap();
        let lab = Lab::new(&beside);
        let list = lab.list(0, ZE_COMMAND_QUEUE_FLAG_IN_ORDER);
        // SAFETY: both handles are live.
        assert_eq!(unsafe { cclxStreamCreate(comm, list.cast(), &raw mut stream) }, 0);
        Self { comm, beside, lab, list, stream }
    }
}

#[test]
fn calls_with_events_on_a_list() {
    Group::new("calls_with_events_on_a_list", 2).env("CCLX_DEVICE", "soft").run(|rank| {
        // SAFETY: every handle is live and every buffer as long as it is said to be, until the list is waited for.
        unsafe {
            let Caller { comm, beside, lab, list, stream } = Caller::of(&rank);
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
            // Within a group, at its end; but not with events.
            let input: Vec<f32> = (0..700).map(|i| (i % 7 + rank.rank) as f32).collect();
            lab.copy(&other, at, input.as_ptr().cast(), 2800, null_mut(), &mut []);
            other.synchronize().unwrap();
            let plain = || cclxAllReduceAfter(at, at, 700, f32s, sum, comm, stream, 0, null(), null_mut());
            assert_eq!((onecclGroupStart(), plain(), cclxStreamSynchronize(stream, 0)), (0, 0, 0));
            assert_eq!(*memory.as_ptr().cast::<f32>().add(6), input[6], "nothing happens before the group's end");
            assert_eq!((onecclGroupEnd(), cclxStreamSynchronize(stream, 20_000)), (0, 0));
            assert!((0..700).all(|i| *memory.as_ptr().cast::<f32>().add(i) == (2 * (i % 7) + 1) as f32));
            assert_eq!(onecclGroupStart(), 0);
            assert_eq!(cclxAllReduceAfter(at, at, 700, f32s, sum, comm, stream, 1, wait.as_ptr(), null_mut()), 12);
            assert_eq!(onecclGroupEnd(), 12);
            // Memory of another device, and such that ends too early, is refused whether there are events or not.
            let mut given = null_mut();
            for (device, count, code) in [(1 - rank.rank, 700, 12), (rank.rank, 701, 4)] {
                onecclSetDevice(device as u32);
                assert_eq!(onecclMemAlloc(&raw mut given, 2800), 0);
                let call = |events: usize| {
                    cclxAllReduceAfter(given, given, count, f32s, sum, comm, stream, events, wait.as_ptr(), null_mut())
                };
                assert_eq!((call(0), call(1)), (code, code), "device {device}, {count}");
                assert_eq!(onecclMemFree(given), 0);
            }
            assert_eq!(cclxStreamDestroy(stream), 0);
            lab.destroy(list);
            assert_eq!(onecclCommDestroy(comm), 0);
        }
    });
}

#[test]
fn boundaries_of_c_callers() {
    Group::new("boundaries_of_c_callers", 2).env("CCLX_DEVICE", "soft").run(|rank| {
        // SAFETY: every handle is live and every buffer as long as it is said to be, until the list is waited for.
        unsafe {
            let Caller { comm, beside, lab, list, stream } = Caller::of(&rank);
            let (other, done) = (beside.stream(1).unwrap(), lab.counter_event(0));
            // Post alone: x' = 3 x + X for the first stream, 5 x + X for the second, where comb is the identity.
            let (rows, hidden) = (3usize, 70usize);
            let memory = beside.alloc::<f32>(4096).unwrap();
            let at = |place: usize| memory.as_ptr().wrapping_add(place);
            let mut image = vec![0f32; 4096];
            for (i, value) in image.iter_mut().enumerate().take(rows * hidden) {
                *value = (i % 11 + rank.rank) as f32;
            }
            for i in 0..2 * rows * hidden {
                image[1024 + i] = (i % 17) as f32;
            }
            for row in 0..rows {
                image[2048 + 2 * row..][..2].copy_from_slice(&[3.0, 5.0]);
                image[2080 + 4 * row..][..4].copy_from_slice(&[1.0, 0.0, 0.0, 1.0]);
            }
            lab.copy(&other, at(0).cast(), image.as_ptr().cast(), 16384, null_mut(), &mut []);
            other.synchronize().unwrap();
            let mut params = CclxMhcParams {
                size: size_of::<CclxMhcParams>(),
                version: 1,
                variant: 2,
                datatype: DataType::Float32 as i32,
                rows: rows as u64,
                hidden: hidden as u64,
                streams: 2,
                x: at(0).cast(),
                x_out: at(0).cast(),
                residual: at(1024).cast(),
                residual_out: at(1024).cast(),
                post: at(2048),
                comb: at(2080),
                ..std::mem::zeroed()
            };
            let call =
                |params: &CclxMhcParams, signal: *mut c_void| cclxAllReduceMhc(params, comm, stream, 0, null(), signal);
            assert_eq!(call(&params, null_mut()), 5, "before cclxMhcPrepare");
            assert_eq!(cclxMhcPrepare(comm), 0);
            for (bad, code) in [
                (CclxMhcParams { size: 8, ..params }, 4),
                (CclxMhcParams { version: 2, ..params }, 12),
                (CclxMhcParams { variant: 5, ..params }, 4),
                (CclxMhcParams { design: 9, ..params }, 4),
                (CclxMhcParams { streams: 3, ..params }, 4),
                (CclxMhcParams { post: null(), ..params }, 4),
                (CclxMhcParams { residual_out: at(1025).cast(), ..params }, 4),
            ] {
                assert_eq!(call(&bad, null_mut()), code, "{bad:?}");
            }
            // Memory of another device, and such that ends too early.
            let mut given = null_mut();
            for (device, bytes, code) in [(1 - rank.rank, 4 * rows * hidden, 12), (rank.rank, 4 * rows * hidden - 4, 4)]
            {
                onecclSetDevice(device as u32);
                assert_eq!(onecclMemAlloc(&raw mut given, bytes), 0);
                let bad = CclxMhcParams { x: given, x_out: given, ..params };
                assert_eq!(call(&bad, null_mut()), code, "device {device}, {bytes} bytes");
                assert_eq!(onecclMemFree(given), 0);
            }
            assert_eq!((onecclGroupStart(), call(&params, null_mut()), onecclGroupEnd()), (0, 12, 12));
            assert_eq!(call(&params, done.cast()), 0);
            let mut output = vec![0f32; 4096];
            lab.copy(&other, output.as_mut_ptr().cast(), at(0).cast(), 16384, null_mut(), &mut [done]);
            other.synchronize().unwrap();
            let mut want = image.clone();
            for i in 0..rows * hidden {
                want[i] = (2 * (i % 11) + 1) as f32;
                let (row, column) = (i / hidden, i % hidden);
                for stream in 0..2 {
                    let place = 1024 + (2 * row + stream) * hidden + column;
                    want[place] = [3.0, 5.0][stream] * want[i] + image[place];
                }
            }
            assert!(output == want);
            params.rows = 0;
            assert_eq!(cclxMhc(&raw const params, comm, stream, 0, null(), null_mut()), 0, "nothing to do");
            assert_eq!(cclxStreamDestroy(stream), 0);
            lab.destroy(list);
            assert_eq!(onecclCommDestroy(comm), 0);
        }
    });
}

/// A case as C says it.
fn of_c(case: &Case, design: i32, base: *mut u8) -> CclxMhcParams {
    let (Params { variant, dtype, rows, hidden, streams, .. }, b) = (case.params, case.buffers(base));
    CclxMhcParams {
        size: size_of::<CclxMhcParams>(),
        version: 1,
        // CCLX_MHC_V4, CCLX_MHC_V41, CCLX_MHC_POST.
        variant: [Variant::V4, Variant::V41, Variant::Post].iter().position(|known| *known == variant).unwrap() as i32,
        datatype: dtype as i32,
        design,
        rows,
        hidden,
        streams,
        sinkhorn_iterations: case.params.sinkhorn_iterations,
        rms_eps: case.params.rms_eps,
        pre_eps: case.params.pre_eps,
        sinkhorn_eps: case.params.sinkhorn_eps,
        post_multiplier: case.params.post_multiplier,
        has_norm: case.params.norm_eps.is_some().into(),
        norm_eps: case.params.norm_eps.unwrap_or(0.0),
        x: b.x,
        residual: b.residual,
        post: b.post,
        comb: b.comb,
        previous_pre: b.previous_pre,
        fn_weights: b.weights,
        fn_rows: b.weights_shape[0],
        fn_columns: b.weights_shape[1],
        scale: b.scale,
        base: b.base,
        norm_weight: b.norm_weight,
        x_out: b.x_out,
        residual_out: b.residual_out,
        post_out: b.post_out,
        comb_out: b.comb_out,
        pre_out: b.pre_out,
        y: b.y,
        normed: b.normed,
    }
}

/// V4, V4.1 and post alone by every design, with the reference's bits, and nothing else written.
#[test]
fn designs_of_c_callers() {
    let [auto, unfused, a, b, c] = [0, 1, 2, 3, 4];
    Group::new("designs_of_c_callers", 2).env("CCLX_DEVICE", "soft").run(|rank| {
        // SAFETY: every handle is live and every buffer as long as it is said to be, until the stream is waited for.
        unsafe {
            let Caller { comm, beside, lab, list, stream } = Caller::of(&rank);
            assert_eq!(cclxMhcPrepare(comm), 0);
            let other = beside.stream(1).unwrap();
            let mut memory = beside.alloc::<u8>(1 << 20).unwrap();
            let mut seed = 0;
            for (variant, designs) in [
                (Variant::V4, &[auto, unfused, a, c][..]),
                (Variant::V41, &[auto, unfused, a, b, c]),
                (Variant::Post, &[auto, unfused, a, c]),
            ] {
                for (&design, rows) in designs.iter().flat_map(|design| [1, 3].map(|rows| (design, rows))) {
                    seed += 1;
                    let mut params = Params::new(variant, DataType::Bfloat16, rows, 1056, 4);
                    params.norm_eps = (variant != Variant::Post && seed % 2 == 0).then_some(1e-6);
                    // Post alone has no y to keep the sum in; by owners, which it is here if nobody says, it needs no place.
                    let wants_x = variant == Variant::Post && [unfused, a].contains(&design);
                    let x_out = [None, Some(false), Some(true)][(seed % 3) as usize].or(wants_x.then_some(false));
                    let case = Case { params, seed, in_place: seed % 4 < 2, x_out };
                    let call = of_c(&case, design, memory.as_ptr());
                    if wants_x {
                        let nowhere = CclxMhcParams { x_out: null_mut(), ..call };
                        assert_eq!(cclxAllReduceMhc(&raw const nowhere, comm, stream, 0, null(), null_mut()), 4);
                    }
                    let mut image = case.before::<bf16>(rank.rank);
                    memory.write(&other, &image).unwrap();
                    assert_eq!(cclxAllReduceMhc(&raw const call, comm, stream, 0, null(), null_mut()), 0, "{case:?}");
                    assert_eq!(cclxStreamSynchronize(stream, 60_000), 0);
                    memory.read(&other, &mut image).unwrap();
                    let found = case.wrong::<bf16>(rank.rank, &case.written::<bf16>(2), &image);
                    assert_eq!(found, None, "design {design}, {case:?}");
                    // The control: another call's results.
                    let another = Case { seed: seed + 100, ..case }.written::<bf16>(2);
                    assert!(case.wrong::<bf16>(rank.rank, &another, &image).is_some());
                }
            }
            let params = Params::new(Variant::V4, DataType::Bfloat16, 1, 1056, 4);
            let delayed = of_c(&Case { params, seed, in_place: true, x_out: None }, b, memory.as_ptr());
            assert_eq!(cclxAllReduceMhc(&raw const delayed, comm, stream, 0, null(), null_mut()), 12);
            assert_eq!(cclxStreamDestroy(stream), 0);
            lab.destroy(list);
            assert_eq!(onecclCommDestroy(comm), 0);
        }
    });
}
