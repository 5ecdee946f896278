//! `ccl perf mhc` as a user runs it: real rank processes on the software driver.
#![allow(clippy::unwrap_used, reason = "test code")]

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn run(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl"));
    for (name, _) in std::env::vars() {
        if ["CCL", "ZE_", "LOCAL_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.args(arguments.split_whitespace()).env("CCLX_DEVICE", "soft").stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn tokens_by_every_design_are_right_eager_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    for (line, variant, dtype, designs) in [
        ("--ranks 3 --rows 1,9 --hidden 160", "v4", "bfloat16", &["unfused", "a", "c"][..]),
        (
            "--ranks 2 --rows 2 --hidden 66 --streams 2 -d float --variant v41",
            "v41",
            "float32",
            &["unfused", "a", "b", "c"],
        ),
    ] {
        let output = run(&format!("perf mhc {line} -n 2 --graph 3 --json {}", path.display()));
        let (table, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{line}: {table}{errors}");
        assert!(table.contains("# Out of bounds values : 0 OK\n"), "{table}");
        let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((&json["version"], &json["collective"]), (&1.into(), &"mhc".into()));
        let results = json["results"].as_array().unwrap();
        let rows: Vec<u64> = if variant == "v4" { vec![1, 9] } else { vec![2] };
        let want = rows.iter().flat_map(|rows| {
            let of = |replayed| designs.iter().map(move |design| (*rows, replayed, (*design).to_owned()));
            of(false).chain(of(true))
        });
        let got = results.iter().map(|result| {
            let design = result["design"].as_str().unwrap().to_owned();
            (result["rows"].as_u64().unwrap(), result["replayed"].as_bool().unwrap(), design)
        });
        assert_eq!(got.collect::<Vec<_>>(), want.collect::<Vec<_>>(), "{table}");
        let lines: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), results.len(), "{table}");
        for result in results {
            assert_eq!((&result["variant"], &result["dtype"]), (&variant.into(), &dtype.into()));
            assert_eq!(
                (&result["wrong"], &result["turns"]),
                (&0.into(), &if result["replayed"] == true { 3 } else { 2 }.into())
            );
            let number = |name: &str| result[name].as_f64().unwrap_or_else(|| panic!("no {name} in {result}"));
            let (boundary, token) = (number("median_us_per_boundary"), number("median_us_per_token"));
            assert!(0.0 < number("min_us_per_boundary") && number("min_us_per_boundary") <= boundary, "{result}");
            assert!(token > boundary, "{result}");
            for name in ["allreduce_us", "standalone_us", "ratio", "standalone_gbps", "standalone_fn_gbps", "copy_gbps"]
            {
                assert!(number(name) > 0.0, "{name}: {result}");
            }
            assert!((number("gbps") - number("bytes") / boundary / 1e3).abs() < 1e-9, "{result}");
            if result["design"] == "unfused" {
                assert_eq!(number("ratio"), 1.0);
            }
        }
        // A third of fn, all of it.
        let bytes = |design: &str| results.iter().find(|result| result["design"] == design).unwrap()["bytes"].as_u64();
        assert!(bytes("c") < bytes("unfused"), "{table}");
    }
}

#[test]
fn a_design_that_there_is_not_is_told() {
    let output = run("perf mhc --ranks 2 --rows 1 --hidden 64 -n 1");
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}{}", text(&output.stderr));
    assert!(table.contains("# No design b for 1 rows: ") && table.contains("sums"), "{table}");
    let output = run("perf mhc --ranks 2 --rows 1 --hidden 64 -n 1 --design c");
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}{}", text(&output.stderr));
    let lines: Vec<Vec<&str>> =
        table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 1, "{table}");
    assert_eq!((lines[0][1], lines[0].len()), ("c", 13), "{table}");
    assert!(lines[0][6 + 1].parse::<f64>().is_ok_and(|ratio| ratio > 0.0), "a ratio to unfused, measured too: {table}");
}

#[test]
fn a_wrong_element_is_found() {
    let output = run("perf mhc --ranks 2 --rows 2 --hidden 64 -n 1 --graph 1 --design unfused --corrupt");
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{table}{errors}");
    // Of two eager tokens and two replays.
    assert!(table.contains("# Out of bounds values : 4 FAILED"), "{table}");
    assert!(
        errors.contains("wrong data on rank 1, design unfused: row ") && errors.contains("of y number 43"),
        "{errors}"
    );
    assert!(errors.contains("wrong data on rank 1, design unfused, replayed"), "{errors}");
    let output = run("perf mhc --ranks 2 --rows 2 --hidden 64 -n 1 --design unfused --corrupt -c 0");
    assert_eq!(output.status.code(), Some(0), "nothing is compared: {}", text(&output.stdout));
    assert!(text(&output.stdout).contains("N/A (not checked)"));
}

#[test]
fn a_wrong_element_of_a_design_that_was_not_asked_for_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    let line = "perf mhc --ranks 2 --rows 2 --hidden 64 -n 1 --graph 1 --design c";
    let output = run(&format!("{line} --corrupt unfused --json {}", path.display()));
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{table}{errors}");
    // Of two eager tokens and two replays.
    assert!(table.contains("# Out of bounds values : 4 FAILED"), "{table}");
    assert!(errors.contains("wrong data on rank 1, design unfused: row "), "{errors}");
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let results = json["results"].as_array().unwrap();
    assert!(
        results.len() == 2 && results.iter().all(|result| result["design"] == "c" && result["wrong"] == 0),
        "{json}"
    );
    assert_eq!(json["wrong_unasked"], 4);
    // Of a design that isn't made at all nothing can be wrong.
    let output = run(&format!("{line} --corrupt a --json {}", path.display()));
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(json["wrong_unasked"], 0);
}

#[test]
fn usage_has_a_status_of_its_own() {
    for (line, word) in [
        ("--streams 3", "3 streams"),
        ("--design b", "--variant v41"),
        ("--rows 0", "0 rows"),
        ("--variant v5", "v5"),
        ("--json /nowhere/at/all", "--json /nowhere/at/all"),
        ("-b 8", "'-b'"),
    ] {
        let output = run(&format!("perf mhc {line}"));
        assert_eq!(output.status.code(), Some(2), "{line}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(word), "{line}: {}", text(&output.stderr));
    }
    let output = run("perf mhc --help");
    let help = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for word in ["--rows", "--hidden", "--streams", "--variant", "--design", "--graph", "--json", "85 boundaries"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(text(&run("perf --help").stdout).contains("mhc"));
    assert_eq!(run("perf").status.code(), Some(2));
}
