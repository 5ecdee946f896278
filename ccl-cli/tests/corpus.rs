//! A token's calls captured, verified and made again, as a user does it.
#![allow(clippy::unwrap_used, reason = "test code")]

use ccl_core::config::Config;
use ccl_core::plan::Request;
use ccl_core::{DataType, Order, ReduceOp, bootstrap};
use ccl_ze::Communicator;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

const RANKS: usize = 4;
/// All-reduces of a decode token of 43 layers.
const CALLS: u64 = 87;
/// Set for the process that makes the corpus.
const MAKE: &str = "TEST_CORPUS";

fn clean(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars() {
        if ["CCL", "ZE_", "LOCAL_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).env("CCLX_DEVICE", "soft")
}

fn ccl(arguments: &[&str]) -> Output {
    clean(Command::new(env!("CARGO_BIN_EXE_ccl")).args(arguments)).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command on a corpus; its status and all that it said.
fn on(directory: &Path, command: &str) -> (Option<i32>, String) {
    let mut words = command.split_whitespace();
    let arguments: Vec<&str> = words.next().into_iter().chain([directory.to_str().unwrap()]).chain(words).collect();
    let output = ccl(&arguments);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// Bits that depend on call, rank and position, of ordinary size for floats of any type.
fn message(call: u64, rank: usize, dtype: DataType, count: usize) -> Vec<u8> {
    let element = |i: usize| {
        let mut x = (call << 40) ^ ((rank as u64 + 1) << 32) ^ i as u64;
        for _ in 0..2 {
            x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        }
        let bits = match dtype {
            DataType::Bfloat16 => (x & 0x807F) | (0x3E80 + (x >> 16 & 3) * 0x80),
            DataType::Float16 => (x & 0x83FF) | (0x3400 + (x >> 16 & 3) * 0x400),
            _ => (x & 0x807F_FFFF) | (0x3E80_0000 + (x >> 32 & 3) * 0x80_0000),
        };
        bits.to_le_bytes()[..dtype.size()].to_vec()
    };
    (0..count).flat_map(element).collect()
}

/// In a process of its own: a token's calls on four ranks, in and out of place.
#[test]
fn make_a_token() {
    let Some(directory) = std::env::var_os(MAKE) else { return };
    let shapes = [
        (DataType::Bfloat16, 4096),
        (DataType::Float32, 7),
        (DataType::Float16, 1000),
        (DataType::Bfloat16, 1),
        (DataType::Bfloat16, 9000),
    ];
    std::thread::scope(|scope| {
        for (rank, mesh) in bootstrap::local(RANKS).unwrap().into_iter().enumerate() {
            let config = Config { capture: Some(directory.clone().into()), ..Config::default() };
            scope.spawn(move || {
                let comm = Communicator::builder_with(config).device(rank).init_local(mesh).unwrap();
                let stream = comm.stream(0).unwrap();
                let mut send = comm.alloc::<u8>(1 << 16).unwrap();
                let mut recv = comm.alloc::<u8>(1 << 16).unwrap();
                for call in 0..CALLS {
                    let (dtype, count) = shapes[call as usize % shapes.len()];
                    let request = Request {
                        period: (call % 3 == 2).then_some(1000),
                        ..comm.request(count as u64, dtype, ReduceOp::Sum)
                    };
                    assert_eq!(request.order, Order::Ring);
                    send.write(&stream, &message(call, rank, dtype, count)).unwrap();
                    let from = send.as_ptr();
                    let to = if call % 2 == 0 { from } else { recv.as_ptr() };
                    // SAFETY: both hold 64 KiB, more than any of the messages, until the wait.
                    let done = unsafe { comm.all_reduce_raw(&request, from.cast(), to.cast(), &stream, &[]).unwrap() };
                    done.wait().unwrap();
                }
                // Somebody uses the result.
                let mut result = [0; 4];
                recv.read(&stream, &mut result).unwrap();
                recv.write(&stream, &[0; 4]).unwrap();
            });
        }
    });
}

fn token() -> &'static Path {
    static TOKEN: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = TOKEN.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        clean(&mut command).args(["make_a_token", "--exact", "--nocapture"]).env("ZE_SOFT_DEVICES", "4");
        let output = command.env(MAKE, folder.path().join("corpus")).output().unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        folder
    });
    // Not removed at the end: a few hundred kilobytes.
    Box::leak(Box::new(folder.path().join("corpus")))
}

/// A copy that may be spoilt.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Some file of a rank, by call; and its name in messages.
fn file(corpus: &Path, rank: usize, call: u64) -> (std::path::PathBuf, String) {
    let group = std::fs::read_dir(corpus).unwrap().next().unwrap().unwrap().file_name();
    let name = format!("{}/rank-{rank:03}/{call:06}-all_reduce.safetensors", group.to_str().unwrap());
    (corpus.join(&name), name)
}

#[test]
fn a_captured_token_stands() {
    let (code, said) = on(token(), "verify");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("all_reduce: 87 calls, 44 of them with an output in an input's place"), "{said}");
    let (code, json) = on(token(), "verify --json");
    assert_eq!(code, Some(0));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["version"], &json["passed"]), (&1.into(), &true.into()));
    assert_eq!((&json["counts"]["files"], &json["counts"]["ranks"]), (&348.into(), &4.into()));
    assert_eq!(json["findings"].as_array().unwrap().len(), 0);
}

#[test]
fn what_was_changed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    copy(token(), folder.path());
    let (path, name) = file(folder.path(), 2, 31);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 0x80;
    std::fs::write(&path, &bytes).unwrap();
    let (code, said) = on(folder.path(), "verify");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("WRONG {name}, byte ")) && said.contains("element "), "{said}");
    let (code, json) = on(folder.path(), "verify --json");
    assert_eq!(code, Some(1));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["passed"], &json["findings"][0]["file"]), (&false.into(), &name.clone().into()));
    let (code, said) = on(folder.path(), "replay");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("does not stand") && said.contains(&name), "{said}");
}

#[test]
fn usage_and_reading_have_statuses_of_their_own() {
    assert_eq!(ccl(&["verify"]).status.code(), Some(2));
    assert_eq!(ccl(&["verify", "/nowhere/at/all"]).status.code(), Some(3));
    assert_eq!(ccl(&["replay", "/nowhere/at/all"]).status.code(), Some(3));
    assert_eq!(on(token(), "replay --device cuda").0, Some(2));
}

#[test]
fn a_token_comes_out_again_bit_for_bit() {
    let (code, said) = on(token(), "replay --graph 8");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("87 calls, in 1 graphs of 8 replays each;") && said.contains(", 0 wrong"), "{said}");
    let (code, said) = on(token(), "replay");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("87 calls;"), "{said}");
}

#[test]
fn a_corpus_may_lie_in_a_folder_whose_name_is_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join(OsStr::from_bytes(b"caf\xe9"));
    copy(token(), &corpus);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl"));
    let output = clean(command.arg("replay").arg(&corpus)).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("87 calls;") && said.contains(", 0 wrong"), "{said}");
}

#[test]
fn a_replay_compares_what_it_says() {
    for (run, words) in [("eager", "eager, event 87"), ("graph", "replay 0, event 87")] {
        let (code, said) = on(token(), &format!("replay --graph 2 --corrupt {run}"));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("wrong data on rank 3") && said.contains(words), "{said}");
        assert!(said.contains("1 wrong elements"), "{said}");
    }
}

#[test]
fn another_line_form_and_place_give_the_same_bits() {
    let output = clean(
        Command::new(env!("CARGO_BIN_EXE_ccl"))
            .args(["replay", token().to_str().unwrap(), "--graph", "2"])
            .env("CCLX_GRANULE", "8")
            .env("CCL_TOPO_P2P_ACCESS", "0"),
    )
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn ranks_as_processes_capture_too() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl"));
    let arguments = "perf all_reduce --ranks 3 -b 8 -e 2K -f 16 -d bf16 -n 4 -w 1";
    let output = clean(command.args(arguments.split_whitespace())).env("CCLX_CAPTURE", &corpus).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (code, said) = on(&corpus, "verify");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("3 ranks"), "{said}");
    let (code, said) = on(&corpus, "replay --graph 3");
    assert_eq!(code, Some(0), "{said}");
}
