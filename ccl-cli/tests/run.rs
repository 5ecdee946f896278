//! `ccl run` as a user starts it: which library each way of asking for oneCCL's really gets, by each route, and what is told of
//! it afterwards. A toy stands for oneCCL's own library.
#![allow(clippy::unwrap_used, reason = "test code")]

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The version that the toy says, and ours.
const REAL: &str = "99\n";
const OURS: &str = "20220200\n";

/// A file that cargo built beside this test.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().join(name).canonicalize().unwrap()
}

fn good(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// A command without what a surrounding program may have set.
fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().into_owned();
        if ["CCL", "ZE_", "LOCAL_", "LD_", "USE_CCL"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env("CCLX_DEVICE", "soft").stdin(Stdio::null());
    command
}

/// Programs and the toy.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { folder: tempfile::Builder::new().prefix("ccl-run-test-").tempdir().unwrap() };
        let real = bench.at("real");
        std::fs::create_dir(&real).unwrap();
        let library = real.join("libccl.so.2");
        good(cc().args(["-shared", "-fPIC", "-Wl,-soname,libccl.so.2", "-o"]).arg(&library).arg(source("real")));
        std::os::unix::fs::symlink("libccl.so.2", real.join("libccl.so")).unwrap();
        let linked = |name: &str, tags: &str| {
            let mut command = cc();
            command.args(["-o"]).arg(bench.at(name)).arg(source("binding")).arg("-Wl,--no-as-needed").arg(&library);
            command.arg(format!("-Wl,{tags},-rpath,{}", real.display())).arg("-ldl");
            good(&mut command);
        };
        linked("runpath", "--enable-new-dtags");
        linked("rpath", "--disable-new-dtags");
        good(cc().arg("-o").arg(bench.at("opener")).arg(source("binding")).arg("-ldl"));
        let mut user = cc();
        user.args(["-shared", "-fPIC", "-o"]).arg(bench.at("libuser.so")).arg(source("user")).arg(&library);
        good(user.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", real.display())));
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn real(&self) -> PathBuf {
        self.at("real/libccl.so.2")
    }
}

fn cc() -> Command {
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]);
    command
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"))
}

/// `ccl run` with the library that this build has.
fn run(options: &[&str], json: &Path) -> Command {
    let mut command = clean(env!("CARGO_BIN_EXE_ccl"));
    command.env("CCLX_LIBRARY", built("libcclx.so")).arg("run").args(options).arg("--json").arg(json).arg("--");
    command
}

fn report(json: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

fn processes(report: &Value) -> Vec<&Value> {
    report["processes"].as_array().unwrap().iter().collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_binds_where() {
    let bench = Bench::new();
    let real = bench.real();
    let (path, user, folder) =
        (real.display().to_string(), bench.at("libuser.so").display().to_string(), bench.at("real"));
    // Each way of asking, and whether preload, audit and folder get it to us.
    let rows: [(&str, &[&str], [bool; 3]); 11] = [
        ("runpath", &["linked"], [true, true, true]),
        ("rpath", &["linked"], [true, true, false]),
        ("opener", &["global", "libccl.so.2"], [true, true, true]),
        ("opener", &["global", "libccl.so"], [true, true, true]),
        ("opener", &["global", &path], [false, true, false]),
        ("opener", &["local", "libccl.so.2"], [true, true, true]),
        ("opener", &["local", &path], [false, true, false]),
        ("opener", &["deepbind", "libccl.so.2"], [true, true, true]),
        ("opener", &["deepbind", &path], [false, true, false]),
        ("opener", &["within", &user], [true, true, false]),
        ("rpath", &["global", "libccl.so.2"], [true, true, false]),
    ];
    let json = bench.at("report");
    for (program, arguments, expected) in rows {
        let program = bench.at(program);
        // Without a route it is the real library that answers, where its folder is searched.
        let mut plain = clean(&program);
        plain.args(arguments).env("LD_LIBRARY_PATH", &folder);
        assert_eq!(good(&mut plain), REAL, "{program:?} {arguments:?}");
        for (route, ours) in ["preload", "audit", "folder"].into_iter().zip(expected) {
            let what = format!("{route}: {program:?} {arguments:?}");
            let mut command = run(&["--route", route], &json);
            command.arg(&program).args(arguments).env("LD_LIBRARY_PATH", &folder);
            let done = command.output().unwrap();
            let said = text(&done.stderr);
            assert_eq!(
                (text(&done.stdout).as_str(), done.status.code()),
                (if ours { OURS } else { REAL }, Some(0)),
                "{what}: {said}"
            );
            let report = report(&json);
            let rows = processes(&report);
            // A process that maps the toy and ends at once may go unseen; ours tells of itself.
            let row = rows.iter().find(|row| row["program"] == program.canonicalize().unwrap().to_str().unwrap());
            let called = row.is_some_and(|row| !row["called"].is_null());
            assert_eq!(called, ours, "{what}: {report}");
            if ours {
                let row = row.unwrap();
                assert_eq!(row["others"], false, "{what}: {report}");
                let by = [("preload", "LD_PRELOAD"), ("audit", "LD_AUDIT"), ("folder", "LD_LIBRARY_PATH")];
                let by = by.into_iter().find(|(name, _)| *name == route).unwrap().1;
                assert_eq!(row["called"]["route"], by, "{what}");
                assert!(said.contains(&format!("this library, by {by}")), "{what}: {said}");
            } else {
                assert!(said.contains("No process called"), "{what}: {said}");
            }
        }
    }
    // Two slashes mean the file as it is, by audit too.
    let mut command = run(&["--route", "audit"], &json);
    let done = command.arg(bench.at("opener")).args(["global", &format!("/{path}")]).output().unwrap();
    assert_eq!(text(&done.stdout), REAL, "{}", text(&done.stderr));
    let said = report(&json);
    let row = &said["processes"][0];
    assert_eq!((&row["others"], &row["called"]), (&true.into(), &Value::Null), "{said}");
    assert!(text(&done.stderr).contains("NOT this library"), "{}", text(&done.stderr));
}

#[test]
fn the_end_of_the_command_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
    let plain = plain.to_str().unwrap();
    for (words, status) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["/nowhere/at/all"], 127),
        (&[plain], 126),
    ] {
        let done = run(&["--route", "audit"], &json).args(words).output().unwrap();
        assert_eq!(done.status.code(), Some(status), "{words:?}: {}", text(&done.stderr));
        assert_eq!(report(&json)["status"], status);
    }
    for words in [&["run"][..], &["run", "--route", "magic", "--", "true"], &["run", "--colour", "--", "true"]] {
        assert_eq!(clean(env!("CARGO_BIN_EXE_ccl")).args(words).output().unwrap().status.code(), Some(2), "{words:?}");
    }
    // A report that can't be written is noticed before the command has begun.
    let begun = folder.path().join("begun");
    let done = run(&["--route", "audit"], Path::new("/nowhere/report")).arg("touch").arg(&begun).output().unwrap();
    assert_eq!((done.status.code(), begun.exists()), (Some(3), false), "{}", text(&done.stderr));
    let mut nowhere = clean(env!("CARGO_BIN_EXE_ccl"));
    let done = nowhere.env("CCLX_LIBRARY", "/nowhere/libcclx.so").args(["run", "--", "true"]).output().unwrap();
    assert_eq!(done.status.code(), Some(3));
    assert!(text(&done.stderr).contains("CCLX_LIBRARY=/nowhere/libcclx.so"), "{}", text(&done.stderr));
}

#[test]
fn a_signal_goes_on_to_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let (json, ready) = (folder.path().join("report"), folder.path().join("ready"));
    let mut command = run(&["--route", "audit"], &json);
    // Its word that it heard is its status.
    command.args(["sh", "-c", "trap 'exit 21' TERM; touch \"$0\"; while :; do sleep 0.05; done"]).arg(&ready);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !ready.exists() {
        assert!(Instant::now() < until, "it never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    good(Command::new("kill").args(["-TERM", &child.id().to_string()]));
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("it still runs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(21));
}

#[test]
fn every_process_is_told() {
    let bench = Bench::new();
    let json = bench.at("report");
    let opener = bench.at("opener").display().to_string();
    let begun = bench.at("begun").display().to_string();
    // A child, a grandchild that was left behind by its parent in a session of its own, one that execs, and one that is idle.
    // What is left behind is waited for two seconds, in which a busy machine may not even start it.
    let script = format!(
        "'{opener}' global libccl.so.2; \
         (setsid sh -c \"touch '{begun}'; sleep 0.3; exec '{opener}' local libccl.so.2\" &) ; \
         n=0; while ! test -e '{begun}' && test $n -lt 3000; do n=$((n + 1)); sleep 0.01; done; \
         sh -c \"exec '{opener}' deepbind libccl.so.2\"; exec '{opener}' idle"
    );
    let done = run(&["--route", "preload"], &json).args(["sh", "-c", &script]).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let report = report(&json);
    let rows: Vec<_> =
        processes(&report).into_iter().filter(|row| row["program"].as_str().unwrap().ends_with("/opener")).collect();
    let called = rows.iter().filter(|row| !row["called"].is_null()).count();
    assert_eq!((rows.len(), called), (4, 3), "{report}");
    assert!(rows.iter().all(|row| row["ours"] == true && row["others"] == false), "{report}");
    let said = text(&done.stderr);
    assert!(said.contains("this library, never called"), "{said}");
    // What outlives the command is named, and its folder stays for it.
    let done = run(&["--route", "preload"], &json).args(["sh", "-c", "(setsid sleep 5 &)"]).output().unwrap();
    let said = text(&done.stderr);
    assert!(said.contains("sleep 5 (still running): this library, never called"), "{said}");
    let kept =
        said.lines().find_map(|line| line.strip_prefix("ccl run: ")?.strip_suffix(" stays, for what still runs"));
    std::fs::remove_dir_all(kept.unwrap()).unwrap();
}

#[test]
fn one_run_within_another_tells_both() {
    let bench = Bench::new();
    let (inner, outer) = (bench.at("inner"), bench.at("outer"));
    let mut nested = run(&["--route", "preload"], &outer);
    nested.args([env!("CARGO_BIN_EXE_ccl"), "run", "--route", "preload", "--json"]).arg(&inner).arg("--");
    let done = nested.arg(bench.at("opener")).args(["global", "libccl.so.2"]).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    for json in [inner, outer] {
        let report = report(&json);
        let opener = processes(&report).into_iter().find(|row| row["program"].as_str().unwrap().ends_with("/opener"));
        assert_eq!(opener.unwrap()["called"]["route"], "LD_PRELOAD", "{report}");
    }
}

fn copies(bench: &Bench, case: &str, variables: &[(&str, &str)]) -> (Output, String, String) {
    let program = bench.at("copies");
    if !program.exists() {
        good(cc().arg("-o").arg(&program).arg(source("copies")).arg("-ldl"));
        std::fs::create_dir(bench.at("second")).unwrap();
        std::fs::copy(built("libcclx.so"), bench.at("second/libother.so")).unwrap();
    }
    let (first, second) = (built("libcclx.so"), bench.at("second/libother.so"));
    let mut command = clean(&program);
    let done = command.args([&first, &second]).arg(case).envs(variables.iter().copied()).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    (done, first.display().to_string(), second.display().to_string())
}

#[test]
fn two_copies_are_told_apart_and_named() {
    let bench = Bench::new();
    let fix = "ccl run --route audit";
    for case in ["handle", "null"] {
        let (done, first, second) = copies(&bench, case, &[]);
        let (out, log) = (text(&done.stdout), text(&done.stderr));
        let line = out.lines().last().unwrap();
        for part in [&*first, &*second, "its calls are split between them", fix] {
            assert!(line.contains(part), "{case}: {part} in {line}");
            assert!(log.contains(part), "{case}: {part} in {log}");
        }
        assert!(line.starts_with(if case == "handle" { "other 5 1 " } else { "null 4 1 " }), "{line}");
        // The second's first call said it before anything went wrong.
        let warning: Vec<_> = log.lines().filter(|line| line.contains("this process has two libraries")).collect();
        assert!(warning.len() == 1 && warning[0].contains("another copy of it"), "{log}");
    }
    // A library of oneCCL's own beside ours is told as well.
    let (_, first, _) = copies(&bench, "handle", &[]);
    let real = bench.real().display().to_string();
    let done = clean(bench.at("copies")).args([&first, &first, "null"]).env("LD_PRELOAD", &real).output().unwrap();
    let log = text(&done.stderr);
    assert!(log.contains(&format!("{real}, another library for oneCCL's calls")), "{log}");
    // One copy that is opened twice is one.
    let done = clean(bench.at("copies")).args([&first, &first, "null"]).output().unwrap();
    let log = text(&done.stderr);
    assert!(log.contains("the communicator is null") && !log.contains("two libraries"), "{log}");
}

#[test]
fn communicators_are_found() {
    let bench = Bench::new();
    let (done, first, second) = copies(&bench, "lookup", &[]);
    let out = text(&done.stdout);
    let lines: Vec<_> = out.lines().collect();
    let starts = [
        "by-id 0 1",
        "by-device 0 1",
        "both 0 1",
        "contradiction 5 1 ",
        "several 5 1 ",
        "unknown 5 1 ",
        "elsewhere 5 1 ",
        "device 4 1",
        "place 4 1",
        "destroyed 5 1",
        "sole 0 1",
    ];
    assert_eq!(lines.len(), starts.len(), "{out}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line} is not {start}");
    }
    assert!(lines[4].contains("there are 2 live communicators in this process"), "{}", lines[4]);
    assert!(lines[6].contains(&first) && lines[6].contains(&second), "{}", lines[6]);
}

#[test]
fn the_banner_and_the_report_agree() {
    let bench = Bench::new();
    let _ = copies(&bench, "handle", &[]);
    let json = bench.at("report");
    let ours = built("libcclx.so").display().to_string();
    let mut command = run(&["--route", "audit"], &json);
    command.arg(bench.at("copies")).args([&ours, &ours, "handle"]).env("CCL_LOG_LEVEL", "info");
    let done = command.output().unwrap();
    let log = text(&done.stderr);
    let sum = good(Command::new("sha256sum").arg(&ours));
    let sum = sum.split(' ').next().unwrap();
    let banner: Vec<_> = log.lines().filter(|line| line.contains("|CCL_INFO| cclx ")).collect();
    assert_eq!(banner.len(), 1, "{log}");
    for part in [sum, &*ours, "by LD_AUDIT", "device 0"] {
        assert!(banner[0].contains(part), "{part} in {}", banner[0]);
    }
    let report = report(&json);
    let row = &report["processes"][0];
    assert_eq!((&row["called"]["sha256"], &row["called"]["library"]), (&sum.into(), &ours.as_str().into()), "{report}");
    let formed = &row["communicators"][0];
    assert_eq!((&formed["rank"], &formed["ranks"]), (&0.into(), &1.into()), "{report}");
    assert!(formed["driver"].as_str().unwrap().contains("software"), "{report}");
    assert!(log.contains("communicator: rank 0 of 1 on "), "{log}");
    // Below that level it is silent.
    let done = clean(bench.at("copies")).args([&ours, &ours, "handle"]).output().unwrap();
    assert!(done.stderr.is_empty(), "{}", text(&done.stderr));
}

/// As Python's `multiprocessing` has them by default: the parent has called the library, each child makes its communicator.
#[test]
fn a_forked_child_is_told_for_itself() {
    let bench = Bench::new();
    let _ = copies(&bench, "handle", &[]);
    let json = bench.at("report");
    let ours = built("libcclx.so").display().to_string();
    let mut command = run(&["--route", "audit"], &json);
    command.arg(bench.at("copies")).args([&ours, &ours, "forked"]).env("CCL_LOG_LEVEL", "info");
    let done = command.output().unwrap();
    assert_eq!(text(&done.stdout), "forked 0 1 \n", "{}", text(&done.stderr));
    let report = report(&json);
    let rows: Vec<_> =
        processes(&report).into_iter().filter(|row| row["program"].as_str().unwrap().ends_with("/copies")).collect();
    assert!(rows.len() == 2 && rows.iter().all(|row| row["called"]["route"] == "LD_AUDIT"), "{report}");
    let log = text(&done.stderr);
    assert!(log.contains("|CCL_INFO| cclx ") && !log.contains("never called"), "{log}");
}

#[test]
fn other_versions_above_the_plugin_are_refused() {
    let bench = Bench::new();
    let json = bench.at("report");
    for (version, code) in [("20220100", "12\n"), ("20220300", "12\n"), ("20220200", "0\n")] {
        let above = bench.at(version);
        std::fs::create_dir(&above).unwrap();
        let library = above.join("libccl.so.2");
        let mut command = cc();
        command
            .args(["-shared", "-fPIC", "-Wl,-soname,libccl.so.2", "-o"])
            .arg(&library)
            .arg(format!("-DVERSION={version}"));
        good(command.arg(source("above")).arg("-ldl"));
        let program = above.join("asks");
        let mut command = cc();
        command.arg("-o").arg(&program).arg(source("asks")).arg("-Wl,--no-as-needed").arg(&library);
        good(command.arg(format!("-Wl,-rpath,{}", above.display())).arg("-ldl"));
        let done = run(&["--route", "plugin"], &json).arg(&program).output().unwrap();
        let said = text(&done.stderr);
        assert_eq!(text(&done.stdout), code, "{version}: {said}");
        let refused = said.contains(&format!("as a plugin of {}, version {version}", library.display()));
        assert_eq!(refused, code != "0\n", "{version}: {said}");
        // That oneCCL's own library is above is as it should be.
        assert!(!said.contains("two libraries"), "{said}");
        assert!(said.contains("this library, by oneCCL's plugin interface, and another"), "{said}");
    }
}

#[test]
fn what_would_be_done() {
    let folder = tempfile::tempdir().unwrap();
    let ours = built("libcclx.so").display().to_string();
    let show = |options: &[&str], variables: &[(&str, &str)]| {
        let mut command = clean(env!("CARGO_BIN_EXE_ccl"));
        command.env("CCLX_LIBRARY", &ours).arg("run").arg("--dry-run").args(options).args([
            "--",
            "sh",
            "-c",
            "touch it's",
        ]);
        // Lines about a torch that is installed are none of this test's.
        let page = good(command.envs(variables.iter().copied()).current_dir(folder.path()));
        assert!(!page.contains("CCLX_REPORT"), "{page}");
        page.lines().filter(|line| !line.starts_with("# torch")).map(|line| format!("{line}\n")).collect::<String>()
    };
    let page = show(&[], &[("LD_AUDIT", "")]);
    assert!(page.starts_with("# route audit\n"), "{page}");
    assert!(page.contains("libcclx_audit.so \\\n") && page.contains("USE_CCL_V2=1 \\\n"), "{page}");
    assert!(page.ends_with("sh -c 'touch it'\\''s'\n"), "{page}");
    let page = show(&["--route", "preload"], &[("LD_PRELOAD", "libm.so.6"), ("USE_CCL_V2", "0")]);
    assert!(page.contains(&format!("LD_PRELOAD={ours}:libm.so.6 \\\n")) && !page.contains("USE_CCL_V2"), "{page}");
    assert!(page.starts_with("# /") && page.contains("stands for a folder of yours"), "{page}");
    let page = show(&["--route", "plugin"], &[]);
    assert!(page.contains(&format!("CCL_PLUGIN={ours} \\\n")), "{page}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was started");

    // Alone, without the audit library, auto is preload and says why.
    let (own, lone) = (folder.path().join("ccl"), folder.path().join("libcclx.so"));
    std::fs::copy(env!("CARGO_BIN_EXE_ccl"), &own).unwrap();
    std::fs::copy(&ours, &lone).unwrap();
    let page = good(clean(&own).args(["run", "--dry-run", "--", "true"]));
    assert!(page.contains("# route preload\n# since there is no libcclx_audit.so"), "{page}");
    let done = clean(&own).args(["run", "--route", "audit", "--", "true"]).output().unwrap();
    assert_eq!(done.status.code(), Some(3));
    // An audit library that can't be loaded is noticed before anything is started.
    std::fs::write(folder.path().join("libcclx_audit.so"), "no library").unwrap();
    let page = good(clean(&own).args(["run", "--dry-run", "--", "true"]));
    assert!(page.contains("# route preload\n# since route audit does not take here"), "{page}");
}
