//! The C ABI as C and C++ programs see it, with declarations of our own: layouts, exported names, and tables of calls.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_tests::children::Ranks;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The shared library that cargo built beside this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().join("libcclx.so")
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Compiles one of the programs; the library goes by its users' name.
fn compile(source: &str, language: &str, folder: &Path) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let named = folder.join("libccl.so.2");
    if !named.exists() {
        std::os::unix::fs::symlink(library(), &named).unwrap();
    }
    let program = folder.join(format!("{source}-{language}"));
    let (compiler, standard) = if language == "c" { ("cc", "-std=c11") } else { ("c++", "-std=c++17") };
    let mut command = Command::new(compiler);
    command.args([standard, "-x", language, "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"]);
    command.arg(sources.join(format!("{source}.c"))).args(["-x", "none"]).arg(named).arg("-o").arg(&program);
    output(&mut command);
    program
}

fn folder(name: &str) -> tempfile::TempDir {
    tempfile::Builder::new().prefix(name).tempdir().unwrap()
}

#[test]
fn layouts_and_numbers() {
    let folder = folder("layout");
    for language in ["c", "c++"] {
        let program = compile("layout", language, folder.path());
        output(Command::new(program).env("LD_LIBRARY_PATH", folder.path()));
    }
}

#[test]
fn tables_of_calls() {
    let folder = folder("tables");
    for (language, ranks) in [("c", 1), ("c++", 2), ("c", 3), ("c++", 4)] {
        let program = compile("client", language, folder.path());
        let at = |name: &str| folder.path().join(format!("{name}-{ranks}"));
        let start = |rank: usize| {
            let mut command = Command::new(&program);
            command
                .args([rank.to_string(), ranks.to_string()])
                .arg(at("id"))
                .arg(at(&format!("results{rank}")))
                .arg("all");
            command.env("LD_LIBRARY_PATH", folder.path()).env("CCLX_DEVICE", "soft").env("CCL_LOG_FILE", at("log"));
            command.stdin(Stdio::null()).spawn().unwrap()
        };
        let log = || std::fs::read_to_string(at("log")).unwrap_or_default();
        Ranks::new((0..ranks).map(start)).wait(Duration::from_secs(120), log);
        for rank in 0..ranks {
            let results = std::fs::read_to_string(at(&format!("results{rank}"))).unwrap();
            assert!(results.lines().count() > 1000 && results.lines().all(|line| line.split(' ').nth(1) == Some("0")));
        }
        let log = std::fs::read_to_string(at("log")).unwrap();
        // What is not there says so once per name, not once per call and rank of the process.
        let said = log.lines().filter(|line| line.contains("onecclCommWindowRegister: not implemented")).count();
        assert_eq!(said, ranks, "{log}");
    }
}

#[test]
fn what_is_exported_and_needed() {
    let symbols = output(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let mut exported: Vec<_> = symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    exported.sort_unstable();
    let known: Vec<_> = include_str!("../../ccl-ffi/exports.txt").lines().collect();
    assert_eq!(exported, known, "ccl-ffi/exports.txt lists what the library exports");
    assert_eq!(
        known.iter().filter(|name| name.starts_with("oneccl")).count(),
        46,
        "oneCCL's 44, CommGetAsyncError, and the entry of its plugins"
    );
    let headers = output(Command::new("readelf").args(["-d", "-W"]).arg(library()));
    assert!(headers.contains("soname: [libccl.so.2]"), "{headers}");
    for name in ["sycl", "ze_loader", "python", "stdc++"] {
        assert!(!headers.lines().any(|line| line.contains("NEEDED") && line.contains(name)), "{headers}");
    }
    assert!(headers.lines().any(|line| line.contains("FLAGS_1") && line.contains("NODELETE")), "{headers}");
    // One destructor, the C runtime's own, which every shared library has.
    let end = headers.lines().find(|line| line.contains("FINI_ARRAYSZ")).unwrap();
    assert!(end.contains("8 (bytes)"), "{end}");
}
