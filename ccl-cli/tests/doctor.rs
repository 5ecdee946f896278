//! `ccl doctor` as a user runs it, on sound machines and on broken ones.
#![allow(clippy::unwrap_used, reason = "test code")]

use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn ccl(arguments: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CCL", "ZE_", "LOCAL_", "FI_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command.args(arguments.split_whitespace()).envs(variables.iter().copied()).stdin(Stdio::null());
    command
}

fn text(arguments: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = ccl(arguments, variables).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn parse(output: &Output) -> (Option<i32>, Value) {
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (output.status.code(), value)
}

fn json(variables: &[(&str, &str)]) -> (Option<i32>, Value) {
    parse(&ccl("doctor --json", variables).output().unwrap())
}

/// Problems of a section, each with its fix.
fn problems<'a>(report: &'a Value, about: &str) -> Vec<(&'a str, &'a str)> {
    let all = report["problems"].as_array().unwrap().iter().filter(|problem| problem["about"] == about);
    all.map(|problem| (problem["text"].as_str().unwrap(), problem["fix"].as_str().unwrap())).collect()
}

fn verdict(report: &Value) -> String {
    let sentences = report["verdict"]["text"].as_array().unwrap();
    sentences.iter().map(|sentence| sentence.as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                into.insert(key.clone());
                keys(value, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, into)),
        _ => {}
    }
}

#[test]
fn the_report_for_people() {
    let (code, page) = text("doctor", &[("CCLX_DEVICE", "soft")]);
    assert_eq!(code, Some(0), "{page}");
    let mut rest = &*page;
    for title in [
        "ccl doctor",
        "Level Zero loader",
        "Driver: software driver (runs on the CPU), linked in",
        "Pattern test",
        "Descriptors between processes",
        "GPUs that the kernel shows",
        "oneCCL, in whose place",
        "System",
        "Configuration",
        "CCLX_DEVICE=soft in force",
        "Groups tried",
        "Problems",
        "Verdict",
    ] {
        let at = rest.find(&format!("\n{title}")).or_else(|| rest.find(title));
        rest = &rest[at.unwrap_or_else(|| panic!("no {title} in the rest of {page}"))..];
    }
    let words = rest.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("would run on the software driver on the CPU (no GPU is used), since CCLX_DEVICE=soft asks"),
        "{words}"
    );
    assert!(words.contains("At most 4 ranks"), "{words}");
    assert!(!page.contains('\x1b'));
}

#[test]
fn the_object_for_programs_and_its_document() {
    let (code, report) = json(&[("FI_PROVIDER", "tcp"), ("CCLX_DEVICE", "soft")]);
    assert_eq!((code, &report["version"], &report["verdict"]["works"]), (Some(0), &1.into(), &true.into()), "{report}");
    let groups = report["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 3);
    for group in groups {
        assert!(group["error"].is_null() && group["result"]["software"] == true, "{group}");
    }
    for way in report["ipc"]["ways"].as_array().unwrap().iter().take(2) {
        assert_eq!(way["works"], true, "{way}");
    }
    let pairs = report["patterns"]["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 12);
    assert!(pairs.iter().all(|pair| pair["result"] == "passed"), "{pairs:?}");
    let releases: Vec<_> = report["sycl"].as_array().unwrap().iter().map(|bridge| bridge["release"].as_u64()).collect();
    assert_eq!(releases, [Some(8), Some(9)]);
    assert!(report["system"]["open_files"]["soft"].is_u64() && report["system"]["processors"].as_u64() >= Some(1));

    let mut all = BTreeSet::new();
    keys(&report, &mut all);
    let (_, table) = parse(&ccl("doctor --env --json", &[]).output().unwrap());
    keys(&table, &mut all);
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/doctor.md")).unwrap();
    let missing: Vec<_> = all.iter().filter(|key| !document.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/doctor.md lacks {missing:?}");
}

#[test]
fn refused_and_ignored_variables() {
    let wrong = [
        ("CCLX_DEVICE", "gpu"),
        ("CCLX_TIMEOUT", "5"),
        ("CCL_ALLREDUCE", "topo"),
        ("CCLX_ORDER", "rank"),
        ("CCL_ATL_TRANSPORT", "ofi"),
        ("CCL_PLUGIN", "/p"),
        ("FI_PROVIDER", "tcp"),
    ];
    let (code, report) = json(&wrong);
    assert_eq!((code, &report["verdict"]["works"]), (Some(3), &false.into()));
    let verdict = verdict(&report);
    assert!(verdict.contains("CCLX_DEVICE=gpu") && verdict.contains("is refused"), "{verdict}");
    let found = problems(&report, "configuration");
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().any(|(text, fix)| text.contains("auto|soft|intel|loader") && fix.contains("CCLX_DEVICE")));
    let states: Vec<_> = report["configuration"]["set"]
        .as_array()
        .unwrap()
        .iter()
        .map(|setting| (setting["name"].as_str().unwrap(), setting["state"].as_str().unwrap()))
        .collect();
    let expected = [
        ("CCLX_DEVICE", "refused"),
        ("CCLX_ORDER", "used"),
        ("CCLX_TIMEOUT", "refused"),
        ("CCL_ALLREDUCE", "refused"),
        ("CCL_ATL_TRANSPORT", "ignored"),
        ("CCL_PLUGIN", "elsewhere"),
        ("FI_PROVIDER", "ignored"),
    ];
    assert_eq!(states, expected);

    let (code, page) = text("doctor", &wrong);
    assert_eq!(code, Some(3));
    assert!(page.contains("CCLX_TIMEOUT=5 REFUSED: invalid argument: CCLX_TIMEOUT is no known variable"), "{page}");
    assert!(page.contains("CCL_ATL_TRANSPORT=ofi ignored"), "{page}");

    let (code, table) = text("doctor --env", &wrong);
    assert_eq!(code, Some(0));
    assert!(table.lines().any(|line| line.starts_with("CCLX_ORDER ") && line.contains(" rank ")), "{table}");
    for part in ["REFUSED: invalid argument: CCLX_DEVICE='gpu'", "CCLX_TIMEOUT=5  REFUSED", "FI_PROVIDER=tcp  ignored"]
    {
        assert!(table.contains(part), "no {part} in {table}");
    }
    for variable in ccl_core::config::VARIABLES {
        assert!(table.contains(variable.name) && table.contains(variable.help), "{}", variable.name);
    }
}

/// For each device those that it may access, by the driver's word and by the test.
fn reached(report: &Value) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let linked = report["drivers"].as_array().unwrap().iter().find(|driver| driver["route"] == "linked").unwrap();
    let said = linked["p2p"].as_array().unwrap().iter().map(|row| {
        let row = row.as_array().unwrap().iter().enumerate();
        row.filter(|(_, access)| access["can_access"] == true && access["access"] == true).map(|(to, _)| to).collect()
    });
    let said: Vec<Vec<usize>> = said.collect();
    let mut tested = vec![Vec::new(); said.len()];
    for pair in report["patterns"]["pairs"].as_array().unwrap() {
        let (from, to) = (pair["from"].as_u64().unwrap() as usize, pair["to"].as_u64().unwrap() as usize);
        match pair["result"].as_str().unwrap() {
            "passed" => tested[from].push(to),
            other => assert_eq!(other, "no_access"),
        }
    }
    (said, tested)
}

#[test]
fn access_between_devices_is_shown_as_it_is() {
    let (code, report) = json(&[("CCLX_DEVICE", "soft"), ("ZE_SOFT_P2P", "none"), ("ZE_SOFT_DEVICES", "3")]);
    assert_eq!(code, Some(0));
    let (said, tested) = reached(&report);
    assert_eq!((said, tested), (vec![vec![0], vec![1], vec![2]], vec![vec![]; 3]));
    let words = verdict(&report);
    assert!(words.contains("through host memory, since the driver offers no access"), "{words}");

    let ring = [("CCLX_DEVICE", "soft"), ("ZE_SOFT_P2P", "ring"), ("ZE_SOFT_DEVICES", "5")];
    let (_, report) = json(&ring);
    let (said, tested) = reached(&report);
    assert_eq!(said[0], [0, 1, 4]);
    assert_eq!(tested, [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]);
    assert!(verdict(&report).contains("straight into each other's device memory"), "{}", verdict(&report));
    let (_, page) = text("doctor", &ring);
    let lines: Vec<_> = page.lines().map(str::trim).collect();
    assert!(lines.contains(&"0   a  a  -  -  a") && lines.contains(&"0   .  +  -  -  +"), "{page}");

    let (_, report) = json(&[("CCLX_DEVICE", "soft"), ("CCL_TOPO_P2P_ACCESS", "0")]);
    assert!(verdict(&report).contains("CCL_TOPO_P2P_ACCESS=0 asks for it"), "{}", verdict(&report));
}

#[test]
fn the_affinity_mask_is_honoured_and_told() {
    let mask = [("CCLX_DEVICE", "soft"), ("ZE_AFFINITY_MASK", "0,2")];
    let (code, report) = json(&mask);
    assert_eq!(code, Some(0));
    let driver = report["drivers"].as_array().unwrap().iter().find(|driver| driver["route"] == "linked").unwrap();
    let devices = driver["devices"].as_array().unwrap();
    let ends: Vec<_> = devices.iter().map(|device| &device["uuid"].as_str().unwrap()[30..]).collect();
    assert_eq!(ends, ["00", "02"]);
    assert_eq!(report["patterns"]["devices"], 2);
    assert!(text("doctor", &mask).1.contains("ZE_AFFINITY_MASK=0,2: only these devices are seen"));

    let (_, report) = json(&[("CCLX_DEVICE", "soft"), ("ZE_AFFINITY_MASK", "3")]);
    let groups = report["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2, "threads can't share a device");
    assert!(groups[1]["processes"] == 2 && groups[1]["result"]["shared"] == true, "{report}");
    assert!(verdict(&report).contains("At most 1 rank,"), "{}", verdict(&report));

    let (code, report) = json(&[("CCLX_DEVICE", "soft"), ("ZE_AFFINITY_MASK", "9")]);
    assert_eq!(code, Some(3), "{report}");
    assert!(problems(&report, "drivers").iter().any(|(_, fix)| fix.contains("ZE_AFFINITY_MASK")), "{report}");
}

/// A folder with a loader made from C.
fn fake_loader(source: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (c, library) = (folder.path().join("fake.c"), folder.path().join("libze_loader.so.1"));
    std::fs::write(&c, source).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&c).status().unwrap();
    assert!(status.success());
    folder
}

#[test]
fn loaders_that_can_not_be_used() {
    let old = fake_loader("int zeInit(unsigned flags) { return 0; }");
    let broken = tempfile::tempdir().unwrap();
    std::fs::write(broken.path().join("libze_loader.so.1"), "no library at all").unwrap();
    for (folder, error) in [(&old, "is missing"), (&broken, "file too short")] {
        let folder = folder.path().to_str().unwrap();
        let (code, report) = json(&[("LD_LIBRARY_PATH", folder)]);
        assert_eq!((code, &report["loader"]["state"]), (Some(0), &"unusable".into()), "{report}");
        assert!(report["loader"]["error"].as_str().unwrap().contains(error), "{report}");
        assert_eq!(report["loader"]["path"], format!("{folder}/libze_loader.so.1"));
        let found = problems(&report, "loader");
        assert!(found.len() == 1 && found[0].1.contains("LD_LIBRARY_PATH"), "{found:?}");
        let words = verdict(&report);
        assert!(
            words.contains("(no GPU is used), since the Level Zero loader") && words.contains("can't be used"),
            "{words}"
        );
    }
    let (code, report) = json(&[("LD_LIBRARY_PATH", "/usr/lib:")]);
    assert_eq!((code, &report["loader"]["state"]), (Some(0), &"unusable".into()));
    assert!(problems(&report, "loader")[0].1.contains("absolute paths only"), "{report}");
}

#[test]
fn a_loader_that_crashes_takes_nobody_with_it() {
    let folder = fake_loader("#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }");
    let path = ("LD_LIBRARY_PATH", folder.path().to_str().unwrap());
    let (code, report) = json(&[path]);
    assert_eq!(code, Some(3), "{report}");
    assert!(report["loader"]["trouble"].as_str().unwrap().contains("SIGABRT"), "{report}");
    assert!(verdict(&report).contains("crashed (SIGABRT)"), "{}", verdict(&report));
    assert!(problems(&report, "loader")[0].1.contains("CCLX_DEVICE=soft"), "{report}");
    let (code, report) = json(&[path, ("CCLX_DEVICE", "soft")]);
    assert_eq!((code, &report["verdict"]["works"]), (Some(0), &true.into()), "{report}");
}

#[test]
fn a_loader_that_hangs_is_left_behind() {
    let folder =
        fake_loader("#include <unistd.h>\n__attribute__((constructor)) static void start(void) { for (;;) pause(); }");
    let since = Instant::now();
    let output = ccl("doctor --json --limit 1", &[("LD_LIBRARY_PATH", folder.path().to_str().unwrap())]).output();
    let (code, report) = parse(&output.unwrap());
    assert!(since.elapsed() < Duration::from_secs(30));
    assert_eq!((code, &report["chosen"]["hung"]), (Some(3), &true.into()), "{report}");
    assert!(report["loader"]["trouble"].as_str().unwrap().contains("hung"), "{report}");
    assert_eq!(report["ipc"]["ways"].as_array().unwrap().len(), 4);
}

/// Lets a system call fail as a container's seccomp profile does.
fn refuse(command: &mut Command, call: libc::c_long) {
    let filter = [
        // The number of the call; if it is this one, EPERM, else it may pass.
        libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf: 1, k: call as u32 },
        libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        },
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let install = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: plain calls; the kernel copies the filter.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes system calls only, which is allowed between fork and exec.
    unsafe { command.pre_exec(install) };
}

#[test]
fn a_container_that_refuses_calls() {
    let mut command = ccl("doctor --json", &[("CCLX_DEVICE", "soft")]);
    refuse(&mut command, libc::SYS_pidfd_getfd);
    let (code, report) = parse(&command.output().unwrap());
    assert_eq!(code, Some(0), "{report}");
    let works: Vec<_> = report["ipc"]["ways"].as_array().unwrap().iter().map(|way| way["works"] == true).collect();
    assert_eq!(works, [true, true, true, false], "{report}");
    assert_eq!((&report["system"]["seccomp"], &report["system"]["no_new_privileges"]), (&2.into(), &true.into()));
    assert!(problems(&report, "ipc").is_empty(), "{report}");

    let mut command = ccl("doctor --json", &[("CCLX_DEVICE", "soft")]);
    refuse(&mut command, libc::SYS_memfd_create);
    let (code, report) = parse(&command.output().unwrap());
    assert_eq!(code, Some(3), "{report}");
    let found = problems(&report, "ipc");
    assert!(found.len() == 1 && found[0].0.contains("memfd") && found[0].1.contains("seccomp"), "{found:?}");
}

/// The same in a mount namespace of its own: 64 MiB of /dev/shm, no /dev/dri, and Yama's strictest scope.
fn confine(command: &mut Command) {
    let mount = |on: &std::ffi::CStr, options: &std::ffi::CStr| {
        let (tmpfs, none) = (c"tmpfs".as_ptr(), c"none".as_ptr());
        // SAFETY: terminated texts; the namespace is this process's own.
        if unsafe { libc::mount(none, on.as_ptr(), tmpfs, 0, options.as_ptr().cast()) } == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    let dri = Path::new("/dev/dri").exists();
    // What else is read there.
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap();
    let write = |path: &std::ffi::CStr, text: &[u8]| {
        // SAFETY: plain calls with a terminated text, bytes that are there, and a descriptor that is checked.
        unsafe {
            let file = libc::open(path.as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o644);
            file >= 0
                && libc::write(file, text.as_ptr().cast(), text.len()) == text.len() as isize
                && libc::close(file) == 0
        }
    };
    let isolate = move || {
        // SAFETY: plain calls with terminated texts.
        let apart = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(
                    c"none".as_ptr(),
                    c"/".as_ptr(),
                    std::ptr::null(),
                    libc::MS_REC | libc::MS_PRIVATE,
                    std::ptr::null(),
                ) == 0
        };
        if !apart {
            return Err(std::io::Error::last_os_error());
        }
        mount(c"/dev/shm", c"size=64m")?;
        if dri {
            mount(c"/dev/dri", c"size=4k")?;
        }
        mount(c"/proc/sys/kernel", c"size=64k")?;
        // SAFETY: terminated texts.
        let folders = unsafe {
            libc::mkdir(c"/proc/sys/kernel/yama".as_ptr(), 0o755) == 0
                && libc::mkdir(c"/proc/sys/kernel/random".as_ptr(), 0o755) == 0
        };
        let written = folders
            && write(c"/proc/sys/kernel/yama/ptrace_scope", b"3\n")
            && write(c"/proc/sys/kernel/random/boot_id", &boot);
        if written { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes system calls only, which is allowed between fork and exec.
    unsafe { command.pre_exec(isolate) };
}

#[test]
fn a_narrow_container() {
    let narrow = |arguments: &str| {
        let mut command = ccl(arguments, &[]);
        confine(&mut command);
        // What a scope of 3 refuses, whoever asks; here the filter does.
        for call in [libc::SYS_ptrace, libc::SYS_pidfd_getfd, libc::SYS_process_vm_readv, libc::SYS_kcmp] {
            refuse(&mut command, call);
        }
        command
    };
    let output = match narrow("doctor --json").output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            // Only root may have mounts of its own.
            assert_ne!(nix::unistd::geteuid().as_raw(), 0, "{error}");
            return;
        }
        output => output.unwrap(),
    };
    let (code, report) = parse(&output);
    assert_eq!((code, &report["verdict"]["works"]), (Some(0), &true.into()), "{report}");
    assert_eq!(report["system"]["dev_shm"]["bytes"], 64 << 20, "{report}");
    assert_eq!((&report["system"]["ptrace_scope"], &report["system"]["seccomp"]), (&3.into(), &2.into()), "{report}");
    assert!(report["system"]["seccomp_filters"].as_u64().unwrap_or(4) >= 4, "{report}");
    let works: Vec<_> = report["ipc"]["ways"].as_array().unwrap().iter().map(|way| way["works"] == true).collect();
    assert_eq!(works, [true, true, true, false], "{report}");
    assert!(report["gpus"].as_array().unwrap().iter().all(|gpu| gpu["node_exists"] == false), "{report}");
    for about in ["ipc", "system", "groups"] {
        assert!(problems(&report, about).is_empty(), "{report}");
    }
    // Messages longer than all of /dev/shm pass through memory that is none of its.
    let done = narrow("perf all_reduce --ranks 2 -b 80M -e 80M -n 1 -w 0 --device soft").output().unwrap();
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && out.contains("# Out of bounds values : 0 OK"), "{out}");
}

#[test]
fn what_a_process_gets_for_oneccl() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // No python of this machine, and no library but these.
    std::fs::create_dir(at("bin")).unwrap();
    for (place, version) in [("old", "2.9.1+xpu"), ("new", "2.12.0+xpu")] {
        std::fs::create_dir_all(at(place).join("torch/lib")).unwrap();
        std::fs::write(at(place).join("torch/version.py"), format!("__version__ = '{version}'\ndebug = False\n"))
            .unwrap();
        std::fs::write(at(place).join("torch/lib/libtorch_xpu.so"), "").unwrap();
    }
    let source = at("real.c");
    std::fs::write(&source, "int onecclGetVersion(int *version) { *version = 99; return 0; }").unwrap();
    let real = at("old/torch/lib/libccl.so.2");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-Wl,-soname,libccl.so.2", "-o"]).arg(&real).arg(&source).status();
    assert!(built.unwrap().success());
    let python = at("bin/python3");
    std::fs::write(&python, format!("#!/bin/sh\necho; echo {}; echo {}\n", at("old").display(), at("new").display()))
        .unwrap();
    std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
    let library_path = real.parent().unwrap().display().to_string();
    let set = [("CCLX_DEVICE", "soft"), ("PATH", &*path), ("LD_LIBRARY_PATH", &*library_path)];
    let (code, report) = json(&set);
    assert_eq!(code, Some(0), "{report}");
    let section = &report["oneccl"];
    let apis: Vec<_> =
        section["torches"].as_array().unwrap().iter().map(|torch| torch["out_of_reach"] == true).collect();
    assert_eq!(apis, [true, false], "{section}");
    assert!(section["torches"][1]["api"].as_str().unwrap().contains("USE_CCL_V2=1"), "{section}");
    assert_eq!(
        (&section["libraries"][0]["path"], &section["libraries"][0]["ours"]),
        (&real.to_str().unwrap().into(), &false.into())
    );
    let bound = &section["bound"]["result"];
    assert_eq!((&bound["path"], &bound["ours"]), (&real.to_str().unwrap().into(), &false.into()), "{section}");
    assert!(bound["because"].as_str().unwrap().contains("is in LD_LIBRARY_PATH"), "{section}");
    let found = problems(&report, "oneccl");
    assert!(found.len() == 1 && found[0].0.contains("2.9.1+xpu") && found[0].1.contains("2.11"), "{found:?}");

    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    for (variable, file, because) in [
        ("LD_PRELOAD", "libcclx.so", "in LD_PRELOAD"),
        ("LD_AUDIT", "libcclx_audit.so", "LD_AUDIT has libcclx_audit.so"),
    ] {
        let file = deps.join(file).display().to_string();
        let mut all = set.to_vec();
        all.push((variable, &file));
        let (_, report) = json(&all);
        let bound = &report["oneccl"]["bound"]["result"];
        assert_eq!(
            (&bound["ours"], bound["because"].as_str().unwrap().contains(because)),
            (&true.into(), true),
            "{report}"
        );
    }
    let (_, report) = json(&[("CCLX_DEVICE", "soft"), ("PATH", &path)]);
    let page = text("doctor", &set).1;
    assert!(page.contains("NOT this library; `ccl run` would put it there"), "{page}");
    assert!(report["oneccl"]["bound"]["error"].is_null(), "{report}");
}

#[test]
fn a_path_that_is_no_text_is_in_the_report_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join(OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("libsycl.so.8"), "").unwrap();
    let output = ccl("doctor --json", &[("CCLX_DEVICE", "soft")]).env("LD_LIBRARY_PATH", &odd).output().unwrap();
    let (code, report) = parse(&output);
    assert_eq!((code, &report["verdict"]["works"]), (Some(0), &true.into()), "{report}");
    let bridges = report["sycl"].as_array().unwrap();
    let runtime = bridges.iter().find(|bridge| bridge["release"] == 8).unwrap()["runtime"].as_str().unwrap();
    assert!(runtime.contains("caf\u{fffd}/libsycl.so.8"), "{runtime}");
}

#[test]
fn odd_surroundings() {
    let (code, report) = json(&[("CCLX_DEVICE", "soft"), ("CCL_LOG_FILE", "/nowhere/at/all.log")]);
    assert_eq!(code, Some(0));
    assert!(problems(&report, "configuration")[0].0.contains("/nowhere/at/all.log"), "{report}");

    let (code, report) = json(&[("CCLX_DEVICE", "soft"), ("ZE_SOFT_P2P", "mesh")]);
    assert_eq!(code, Some(0));
    assert!(problems(&report, "drivers").iter().any(|(text, _)| text.contains("ZE_SOFT_P2P=mesh")), "{report}");

    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 200; exec \"$0\" doctor --json", env!("CARGO_BIN_EXE_ccl")]).env("CCLX_DEVICE", "soft");
    let (_, report) = parse(&few.output().unwrap());
    assert_eq!(report["system"]["open_files"]["soft"], 200);
    assert!(problems(&report, "system")[0].1.contains("ulimit -n"), "{report}");

    for arguments in ["doctor --limit 0", "doctor extra", "doctor --colour"] {
        assert_eq!(ccl(arguments, &[]).output().unwrap().status.code(), Some(2), "{arguments}");
    }
}
