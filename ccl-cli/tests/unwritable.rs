//! A command whose answer can't be written fails, whatever it is.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn ccl(arguments: &[&str], output: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CCL", "ZE_", "LOCAL_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command.env("CCLX_DEVICE", "soft").args(arguments).stdin(Stdio::null()).stdout(output).output().unwrap()
}

/// Succeeds where it can write, and fails with `status` on a full device, saying why.
fn check(arguments: &[&str], status: i32) {
    let written = ccl(arguments, Stdio::piped());
    assert!(written.status.success() && !written.stdout.is_empty(), "{arguments:?}: {written:?}");
    let full = ccl(arguments, File::options().write(true).open("/dev/full").unwrap());
    let told = String::from_utf8_lossy(&full.stderr).into_owned();
    assert!(told.contains("standard output: No space left on device"), "{arguments:?}: {told}");
    assert_eq!(full.status.code(), Some(status), "{arguments:?}: {told}");
}

#[test]
fn help_and_version() {
    for arguments in [&["--help"][..], &["--version"], &["perf", "--help"], &["help", "run"]] {
        check(arguments, 1);
    }
}

#[test]
fn doctor() {
    check(&["doctor", "--env"], 1);
    check(&["doctor", "--env", "--json"], 1);
    check(&["doctor"], 1);
}

#[test]
fn run() {
    check(&["run", "--dry-run", "--", "true"], 3);
    let status = |file: &str, command: &str| ccl(&["run", "--json", file, "--", command], Stdio::null()).status.code();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report");
    assert_eq!(status(file.to_str().unwrap(), "true"), Some(0));
    assert_eq!(status("/dev/full", "true"), Some(3));
    assert_eq!(status("/dev/full", "false"), Some(1), "the command's own failure");
}

#[test]
fn perf_verify_and_replay() {
    const PERF: [&str; 8] = ["perf", "all_reduce", "--ranks", "2", "-e", "64", "-n", "2"];
    check(&PERF, 1);
    for flag in ["--json", "--csv", "--plot"] {
        let failed = ccl(&[&PERF[..], &[flag, "/dev/full"]].concat(), Stdio::null());
        assert_eq!(failed.status.code(), Some(2), "{flag}: {failed:?}");
    }
    check(&["perf", "mhc", "--ranks", "2", "--rows", "1", "-n", "1"], 1);
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().to_str().unwrap();
    let mut made = Command::new(env!("CARGO_BIN_EXE_ccl"));
    made.args(PERF).env("CCLX_DEVICE", "soft").env("CCLX_CAPTURE", corpus);
    assert!(made.stdout(Stdio::null()).status().unwrap().success());
    check(&["verify", corpus], 3);
    check(&["verify", corpus, "--json"], 3);
    check(&["replay", corpus], 1);
}
