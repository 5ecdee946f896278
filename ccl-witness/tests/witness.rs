//! The witness between a program and a library: a right one is cleared, a wrong one convicted, by the call, rank and element
//! that are wrong.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[allow(unreachable_pub, reason = "a module of ccl-tests, which exports it")]
#[path = "../../tests/src/children.rs"]
mod children;
use children::Ranks;

/// A shared library that cargo built beside this test.
fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join(name)
}

fn compile(arguments: &[&str], source: &str, to: &Path) {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(own.join("../tests/c"));
    command.arg("-o").arg(to).arg(own.join("tests/c").join(source)).args(arguments);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A folder with the program, linked with a library of oneCCL's name, and the library that may be wrong.
fn workshop() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("witness").tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(built("libcclx.so"), at("libccl.so.2")).unwrap();
    compile(&[at("libccl.so.2").to_str().unwrap()], "calls.c", &at("calls"));
    compile(&["-shared", "-fPIC", "-Wl,-soname,libwrong.so", "-ldl"], "wrong.c", &at("libwrong.so"));
    folder
}

struct Witnessed {
    /// Of all ranks.
    said: String,
    reports: Vec<Value>,
}

impl Witnessed {
    /// A number of the reports, added up over the communicators as rank 0 has them.
    fn of(&self, what: &str) -> u64 {
        let rank0 = self.reports.iter().filter(|report| report["rank"] == 0);
        rank0.map(|report| report["tally"][what].as_u64().unwrap_or_else(|| panic!("{report}"))).sum()
    }

    fn convictions(&self) -> Vec<&Value> {
        self.reports.iter().flat_map(|report| report["tally"]["convictions"].as_array().unwrap()).collect()
    }
}

/// Runs the program with the witness over `under`.
fn witness(folder: &Path, ranks: usize, arguments: &[&str], under: &Path, variables: &[(&str, &str)]) -> Witnessed {
    let report = folder.join("report");
    let id = folder.join("id");
    for old in [&report, &id] {
        let _ = std::fs::remove_file(old);
    }
    let start = |rank: usize| {
        let mut command = Command::new(folder.join("calls"));
        command.args([rank.to_string(), ranks.to_string()]).arg(&id).args(arguments);
        command.env("LD_LIBRARY_PATH", folder).env("LD_PRELOAD", built("libcclx_witness.so"));
        command.env("CCLX_WITNESS", under).env("WRONG_UNDER", built("libcclx.so"));
        command
            .env("CCLX_WITNESS_REPORT", &report)
            .env("CCLX_DEVICE", "soft")
            .env("ZE_SOFT_DEVICES", ranks.to_string());
        command.env("CCLX_TIMEOUT_MS", "20000").envs(variables.iter().copied());
        let log = std::fs::File::create(folder.join(format!("said{rank}"))).unwrap();
        command.stdin(Stdio::null()).stderr(log).spawn().unwrap()
    };
    let all = Ranks::new((0..ranks).map(start));
    let said = || {
        (0..ranks).map(|rank| std::fs::read_to_string(folder.join(format!("said{rank}"))).unwrap()).collect::<String>()
    };
    all.wait(Duration::from_secs(120), said);
    let reports = std::fs::read_to_string(&report).unwrap_or_default();
    let reports = reports.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Witnessed { said: said(), reports }
}

#[test]
fn a_right_library_is_cleared_over_ten_thousand_calls() {
    let folder = workshop();
    let seen = witness(folder.path(), 2, &["10000"], &built("libcclx.so"), &[]);
    assert_eq!(seen.reports.len(), 4, "two communicators on two ranks: {}", seen.said);
    assert_eq!((seen.of("convicted"), seen.convictions().len()), (0, 0), "{}", seen.said);
    assert!(seen.of("compared") > 10_000, "{}", seen.said);
    assert_eq!(seen.of("open_elements"), 0);
    for report in &seen.reports {
        let (tally, text) = (&report["tally"], report.to_string());
        assert_eq!(tally["gave_up"], Value::Null, "{text}");
        let left_out: u64 = tally["left_out"].as_object().unwrap().values().map(|calls| calls.as_u64().unwrap()).sum();
        assert_eq!(tally["calls"].as_u64().unwrap(), tally["compared"].as_u64().unwrap() + left_out, "{text}");
        assert!(tally["elements"].as_u64().unwrap() > 10_000, "{text}");
        assert!(report["overhead_percent"].as_f64().unwrap() > 0.0, "{text}");
        assert!(report["library"].as_str().unwrap().ends_with("libcclx.so"), "{text}");
    }
    let left_out = &seen.reports.iter().find(|report| report["tally"]["calls"].as_u64() > Some(5000)).unwrap()["tally"];
    let reasons: Vec<_> = left_out["left_out"].as_object().unwrap().keys().collect();
    assert!(reasons.iter().any(|why| why.contains("send or receive")), "{reasons:?}");
    assert!(reasons.iter().any(|why| why.contains("another call of its group")), "{reasons:?}");
    assert!(seen.said.contains("0 wrong") && seen.said.contains("overhead "), "{}", seen.said);
}

/// One element of one result of one rank, in ten thousand calls.
const SPOILED: [(&str, &str); 5] = [
    ("WRONG_NAME", "onecclAllReduce"),
    ("WRONG_CALL", "6848"),
    ("WRONG_RANK", "1"),
    ("WRONG_BYTE", "120"),
    ("WRONG_BIT", "3"),
];

#[test]
fn one_wrong_element_in_ten_thousand_calls_is_convicted() {
    let folder = workshop();
    let corpus = folder.path().join("corpus");
    let variables = [&SPOILED[..], &[("CCLX_WITNESS_CORPUS", corpus.to_str().unwrap())]].concat();
    let seen = witness(folder.path(), 2, &["10000"], &folder.path().join("libwrong.so"), &variables);
    let convictions = seen.convictions();
    assert_eq!(convictions.len(), 1, "{}", seen.said);
    let wrong = convictions[0];
    // Which number the communicator gave it is the witness's to say.
    assert_eq!((&wrong["rank"], &wrong["element"]), (&Value::from(1), &Value::from(30)), "{wrong}");
    assert_eq!(wrong["what"], "all_reduce of 259 float32, sum");
    assert_eq!(wrong["wrong_elements"], 1, "{wrong}");
    let [got, expected] = ["got", "expected"].map(|key| wrong[key].as_str().unwrap().to_owned());
    assert_ne!(got, expected);
    assert!(wrong["call"].as_u64().unwrap() > 5000, "{wrong}");
    let told = format!(
        "call #{}, {}: rank 1 of 2, element {} is {got}",
        wrong["call"],
        wrong["what"].as_str().unwrap(),
        wrong["element"]
    );
    assert!(seen.said.contains(&told), "{told}: {}", seen.said);
    assert_eq!(seen.of("convicted"), 1, "rank 0 knows of it, whoever judged it: {}", seen.said);
    assert!(seen.of("compared") > 10_000);
    // The call is saved by both ranks, and the corpus convicts it too.
    assert_eq!(seen.reports.iter().map(|report| report["tally"]["saved"].as_u64().unwrap()).sum::<u64>(), 2);
    let verdict = ccl_core::corpus::verify(&corpus, &ccl_core::corpus::Options::default()).unwrap();
    let found = &verdict.findings[0];
    assert_eq!((found.rank, found.element), (Some(1), Some(30)), "{verdict:?}");
}

/// NEGATIVE CONTROL: what does not compare convicts nobody, whatever the library does.
#[test]
fn without_comparing_nobody_is_convicted() {
    let folder = workshop();
    let variables = [&SPOILED[..], &[("CCLX_WITNESS_SHARE", "0")]].concat();
    let seen = witness(folder.path(), 2, &["10000"], &folder.path().join("libwrong.so"), &variables);
    assert_eq!((seen.of("convicted"), seen.convictions().len(), seen.of("compared")), (0, 0, 0), "{}", seen.said);
    assert!(seen.of("calls") > 10_000);
}

/// Of every collective, on three ranks: the fifth call's result on rank 1, of which it is root if it has one, at one element.
#[test]
fn a_wrong_result_of_any_collective_is_convicted() {
    let folder = workshop();
    for name in ["AllReduce", "Reduce", "ReduceScatter", "Broadcast", "Scatter", "AllGather", "AllToAll", "AllToAllV"] {
        let name = format!("oneccl{name}");
        let mut variables = SPOILED.to_vec();
        variables.retain(|(key, _)| *key != "WRONG_NAME" && *key != "WRONG_CALL");
        variables.extend([("WRONG_NAME", &*name), ("WRONG_CALL", "5")]);
        let seen = witness(folder.path(), 3, &["650"], &folder.path().join("libwrong.so"), &variables);
        let convictions = seen.convictions();
        assert_eq!(convictions.len(), 1, "{name}: {}", seen.said);
        let wrong = convictions[0];
        let what = wrong["what"].as_str().unwrap().split(' ').next().unwrap().replace('_', "");
        assert_eq!(what, name["oneccl".len()..].to_lowercase(), "{wrong}");
        let (rank, element, elements) = (&wrong["rank"], &wrong["element"], &wrong["wrong_elements"]);
        assert_eq!((rank, element, elements), (&1.into(), &15.into(), &1.into()), "{name}: {wrong}");
    }
    // NEGATIVE CONTROL: what is not compared, whatever it holds, convicts nobody.
    let mut variables = SPOILED.to_vec();
    variables.retain(|(key, _)| *key != "WRONG_NAME" && *key != "WRONG_CALL");
    variables.extend([("WRONG_NAME", "onecclRecv"), ("WRONG_CALL", "1")]);
    let seen = witness(folder.path(), 3, &["800"], &folder.path().join("libwrong.so"), &variables);
    assert_eq!((seen.of("convicted"), seen.convictions().len()), (0, 0), "{}", seen.said);
}

/// As torch ends: nothing is destroyed, and ranks leave one after the other.
#[test]
fn a_program_that_destroys_nothing_is_reported_on_as_well() {
    let folder = workshop();
    let seen = witness(folder.path(), 3, &["1500", "leave"], &built("libcclx.so"), &[]);
    assert_eq!(seen.reports.len(), 6, "{}", seen.said);
    assert_eq!(seen.of("convicted"), 0, "{}", seen.said);
    assert!(seen.of("compared") > 1000, "{}", seen.said);
}

#[test]
fn a_share_is_a_share_and_the_overhead_is_bounded() {
    let folder = workshop();
    let seen = witness(folder.path(), 2, &["6000"], &built("libcclx.so"), &[("CCLX_WITNESS_SHARE", "20")]);
    let (calls, compared) = (seen.of("calls"), seen.of("compared"));
    assert!((calls / 7..calls / 4).contains(&compared), "{compared} of {calls}: {}", seen.said);
    // Less than any witness takes of a program that does nothing else: fewer and fewer calls are compared.
    let seen = witness(folder.path(), 2, &["12000"], &built("libcclx.so"), &[("CCLX_WITNESS_OVERHEAD", "1")]);
    let (calls, compared) = (seen.of("calls"), seen.of("compared"));
    assert!(compared > 0 && compared < calls * 3 / 4, "{compared} of {calls}: {}", seen.said);
    assert_eq!(seen.of("convicted"), 0);
}
