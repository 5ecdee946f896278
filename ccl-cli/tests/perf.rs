//! `ccl perf` as a user runs it: real rank processes on the software driver.
#![allow(clippy::unwrap_used, reason = "test code")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn ccl(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl"));
    for (name, _) in std::env::vars() {
        if ["CCL", "ZE_", "LOCAL_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.args(arguments.split_whitespace()).env("CCLX_DEVICE", "soft").stdin(Stdio::null());
    command
}

fn run(arguments: &str) -> Output {
    ccl(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines that are no comment, as cells.
fn rows(output: &Output) -> Vec<Vec<String>> {
    let table = text(&output.stdout);
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn the_table_for_every_number_of_ranks_and_type() {
    for (ranks, dtype, size) in [(1, "float32", 4), (2, "bfloat16", 2), (3, "half", 2), (4, "bfloat16", 2)] {
        let output = run(&format!("perf all_reduce --ranks {ranks} -b 8 -e 128K -f 16 -d {dtype} -n 5 -w 2"));
        let (table, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{ranks} ranks: {table}{errors}");
        assert!(table.contains("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "), "{table}");
        assert!(table.contains("software driver on the CPU (no GPU is used)"), "{table}");
        let rows = rows(&output);
        assert_eq!(rows.len(), 4, "{table}");
        for (row, bytes) in rows.iter().zip([8, 128, 2048, 32768]) {
            assert_eq!(row.len(), 16, "{row:?}");
            assert_eq!(row[..2], [bytes.to_string(), (bytes / size).to_string()]);
            assert_eq!(row[3..5], ["sum", "-1"]);
            assert_eq!((&*row[8], &*row[12]), ("0", "0"), "#wrong");
            let numbers: Vec<f64> = [5, 6, 7, 9, 10, 11].map(|cell: usize| row[cell].parse().unwrap()).to_vec();
            assert!(numbers[0] > 0.0 && numbers[3] > 0.0, "{row:?}");
        }
    }
}

#[test]
fn json_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    let output = run(&format!("perf all_reduce --ranks 2 -b 4 -e 4K -f 1024 -d bf16 -n 10 --json {}", path.display()));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((&json["version"], &json["collective"]), (&1.into(), &"all_reduce".into()));
    assert_eq!(json["ranks"], 2);
    assert!(json["device"].as_str().unwrap().contains("software"));
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    for (number, result) in results.iter().enumerate() {
        assert_eq!(result["bytes"], [4, 4096][number / 2]);
        assert_eq!(result["count"], [2, 2048][number / 2]);
        assert_eq!(result["in_place"], number % 2 == 1);
        for (name, value) in [("dtype", "bfloat16"), ("op", "sum"), ("order", "ring")] {
            assert_eq!(result[name], value, "{name}");
        }
        let number = |name: &str| result[name].as_f64().unwrap_or_else(|| panic!("no {name} in {result}"));
        let (min, median, p99) = (number("min_us"), number("median_us"), number("p99_us"));
        assert!(0.0 < min && min <= median && median <= p99, "{result}");
        assert!(number("first_call_us") > 0.0);
        let algbw = number("bytes") / median / 1e3;
        assert!((number("algbw_gbps") - algbw).abs() < 1e-9);
        assert!(["ring", "mesh", "oneshot"].contains(&result["algo"].as_str().unwrap()), "{result}");
        // 2(n-1)/n is 1 for two ranks.
        assert!((number("busbw_gbps") - algbw).abs() < 1e-9);
        assert_eq!(result["wrong"], 0);
        // At most three appends, and the wait.
        assert!((1.0..=4.0).contains(&number("ze_calls_per_op")), "{result}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing beside the file");
}

#[test]
fn every_collective_and_its_replays() {
    for (name, root) in [
        ("all_gather", "-1"),
        ("reduce_scatter", "-1"),
        ("broadcast", "1"),
        ("reduce", "1"),
        ("scatter", "1"),
        ("gather", "1"),
        ("all_to_all", "-1"),
    ] {
        let line = format!("perf {name} --ranks 3 -r 1 -b 600 -e 60K -f 100 -d bf16,int64 -n 2 --graph 2");
        let output = run(&line);
        let (table, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{line}: {table}{errors}");
        let rows = rows(&output);
        assert_eq!(rows.len(), 4, "{table}");
        for row in rows {
            assert_eq!((&*row[4], &*row[8], &*row[12]), (root, "0", "0"), "{line}: {table}");
            assert_eq!(row.last().map(String::as_str), Some("channels"), "{table}");
        }
        // NEGATIVE CONTROL: one element that is another on the last rank.
        let output = run(&format!("perf {name} --ranks 3 -r 1 -b 600 -e 600 -n 1 --corrupt"));
        assert_eq!(output.status.code(), Some(1), "{name}: {}", text(&output.stdout));
    }
}

/// Each rank sends to the next and receives from the one before: never in place.
#[test]
fn messages_round_a_ring() {
    let line = "perf sendrecv --ranks 3 -b 600 -e 600K -f 1000 -d bf16,int64 -n 2 --graph 2";
    let output = run(line);
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{line}: {table}{errors}");
    let rows = rows(&output);
    assert_eq!(rows.len(), 4, "{table}");
    for row in rows {
        assert_eq!((&*row[3], &*row[8], &*row[9], &*row[12]), ("none", "0", "N/A", "N/A"), "{table}");
        assert_eq!(row[6], row[7], "all that is sent crosses a link once: {table}");
        assert_eq!(row.last().map(String::as_str), Some("channels"), "{table}");
    }
    // NEGATIVE CONTROL: one element that is another on the last rank.
    let output = run("perf sendrecv --ranks 3 -b 600 -e 600 -n 1 --corrupt");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

#[test]
fn registered_buffers_go_directly() {
    let output = run("perf all_reduce --ranks 3 -b 64K -e 1M -f 16 -d bf16,int64 -o sum,avg -n 3 -R 1 --algo direct");
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{table}{errors}");
    assert!(table.contains("# Buffers: registered"), "{table}");
    let rows = rows(&output);
    assert_eq!(rows.len(), 8, "{table}");
    assert!(rows.iter().all(|row| row[8] == "0" && row[12] == "0" && row[15] == "direct"), "{table}");
}

#[test]
fn every_type_and_reduction_in_one_run() {
    let output = run("perf all_reduce --ranks 3 -b 1K -e 1K -d all -o all -n 2 -w 0");
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{table}{errors}");
    let rows = rows(&output);
    assert_eq!(rows.len(), 60, "{table}");
    assert!(rows.iter().all(|row| row[8] == "0" && row[12] == "0"), "{table}");
}

#[test]
fn replays_beside_calls() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (json, csv, svg) = (file("out.json"), file("out.csv"), file("out.svg"));
    let output = run(&format!(
        "perf all_reduce --ranks 2 -b 8 -e 64K -f 128 -d bf16 -n 5 --graph 20 --json {} --csv {} --plot {}",
        json.display(),
        csv.display(),
        svg.display()
    ));
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{table}{errors}");
    let head: Vec<&str> = table.lines().find(|line| line.contains("redop")).unwrap().split_whitespace().collect();
    assert_eq!(head[14..], ["p99", "p99", "replay", "replay", "algo"]);
    for row in rows(&output) {
        assert_eq!(row.len(), 18, "{row:?}");
        assert!(row[15].parse::<f64>().is_ok_and(|time| time > 0.0), "{row:?}");
    }
    let json: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    for result in json["results"].as_array().unwrap() {
        let replay = &result["replay"];
        assert_eq!((&replay["replays"], &replay["wrong"]), (&20.into(), &0.into()), "{result}");
        assert!(replay["median_us"].as_f64().unwrap() <= replay["p99_us"].as_f64().unwrap());
    }
    let csv = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(csv.lines().count(), 1 + json["results"].as_array().unwrap().len());
    assert!(csv.lines().next().unwrap().contains("replay_median_us"));
    let svg = std::fs::read_to_string(&svg).unwrap();
    assert!(svg.contains("latency") && svg.contains("in place, replayed") && svg.contains("bus bandwidth"));
}

#[test]
fn a_wrong_element_of_a_replay_is_found() {
    let output = run("perf all_reduce --ranks 2 -b 1K -e 1K -d bfloat16 -n 2 --graph 2 --corrupt");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("512 elements of bfloat16 sum, in place, replayed: element 256 is"), "{errors}");
}

#[test]
fn without_a_check_nothing_is_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    let output = run(&format!("perf all_reduce -b 8 -e 8 -c 0 -n 3 --json {}", path.display()));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(rows(&output)[0][8], "N/A");
    assert!(text(&output.stdout).contains("# Out of bounds values : N/A"));
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(json["results"][0]["wrong"].is_null());
}

#[test]
fn one_wrong_element_is_found() {
    let output = run("perf all_reduce --ranks 2 -b 1K -e 1K -d bfloat16 -n 2 --corrupt");
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{table}{errors}");
    assert_eq!((&*rows(&output)[0][8], &*rows(&output)[0][12]), ("1", "1"), "{table}");
    assert!(table.contains("# Out of bounds values : 2 FAILED"), "{table}");
    assert!(
        errors.contains("wrong data on rank 1, 512 elements of bfloat16 sum, in place: element 256 is"),
        "{errors}"
    );
}

#[test]
fn host_staging_gives_the_same() {
    let output =
        ccl("perf all_reduce --ranks 3 -b 8 -e 64K -f 64 -d bfloat16 -n 3").env("ZE_SOFT_P2P", "none").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("staging in host memory"));
}

#[test]
fn what_is_not_there_is_refused_before_anything_starts() {
    for (arguments, word) in [
        ("perf gathering", "unknown collective 'gathering'"),
        ("perf all_reduce --algo direct", "buffers are not registered"),
        ("perf all_reduce --order rank --algo ring", "order=rank"),
        ("perf all_reduce --graph 0", "at least 1 replay"),
        ("perf all_reduce -o median", "median"),
        ("perf all_reduce -d int7", "int7"),
        ("perf all_reduce --plot picture.png", "SVG"),
        ("perf all_reduce --csv /nowhere/at/all.csv", "/nowhere/at/all.csv"),
        ("perf all_reduce --ranks 99", "99 ranks"),
        ("perf all_reduce --ranks 0", "at least 1 rank"),
        ("perf all_reduce -b 0", "'0' is not a size"),
        ("perf all_reduce -n -3", "'-3'"),
        ("perf all_reduce --device cuda", "cuda"),
        ("perf all_reduce --json /nowhere/at/all.json", "/nowhere/at/all.json"),
        ("perf all_reduce --frobnicate", "--frobnicate"),
        ("trace 1", "trace is not there yet"),
        ("dance", "unknown command 'dance'"),
        ("", "Usage"),
    ] {
        let output = run(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {errors}");
        assert!(errors.contains(word), "{arguments}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
    let output = ccl("perf all_reduce").env("CCLX_TIMEOUT", "5").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("CCLX_TIMEOUT is no known variable"));
}

#[test]
fn ranks_that_cannot_start_are_named() {
    let output = ccl("perf all_reduce --ranks 3 -b 8 -e 8").env("ZE_SOFT_DEVICES", "2").output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("rank 2: ") && errors.contains("local rank 2 needs a device"), "{errors}");
}

#[test]
fn a_rank_process_alone_does_nothing() {
    assert!(run("__rank").status.success(), "no job, no work");
}

/// A run that lasts until it is disturbed, and the processes of its ranks.
struct Endless {
    child: Child,
    ranks: Vec<Pid>,
}

impl Endless {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ranks = Vec::new();
        // Read on even once all is known: nobody may wait for a full pipe.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.by_ref() {
            let line = line.unwrap();
            let mut words = line.split_whitespace();
            if words.by_ref().any(|word| word == "Pid") {
                ranks.push(Pid::from_raw(words.next().unwrap().parse().unwrap()));
            }
            if line.contains("redop") {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        // In the midst of the timed calls.
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "it ended of itself");
        Self { child, ranks }
    }

    fn wait(&mut self, limit: Duration) -> (Option<i32>, String) {
        let until = Instant::now() + limit;
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > until {
                self.child.kill().unwrap();
                panic!("not ended after {limit:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap().code(), errors)
    }

    /// Whether all ranks are gone within a short time.
    fn ranks_are_gone(&self) -> bool {
        let until = Instant::now() + Duration::from_secs(5);
        let left = |pid: &Pid| {
            // A zombie whose new parent has not looked yet is gone.
            let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
            status.is_ok_and(|status| !status.contains("State:\tZ"))
        };
        while self.ranks.iter().any(left) {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

const ENDLESS: &str = "perf all_reduce --ranks 3 -b 8 -e 8 -n 10000000 -w 0";

#[test]
fn a_killed_rank_is_named() {
    let mut endless = Endless::start(ccl(ENDLESS));
    assert_eq!(endless.ranks.len(), 3);
    kill(endless.ranks[1], Signal::SIGKILL).unwrap();
    let (code, errors) = endless.wait(Duration::from_secs(10));
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains("ccl perf: rank 1 was ended by signal 9 (SIGKILL)"), "{errors}");
    assert!(errors.contains("rank 0: rank 1 is gone") || errors.contains("rank 2: rank 1 is gone"), "{errors}");
    assert!(endless.ranks_are_gone());
}

#[test]
fn a_stopped_rank_times_out() {
    let mut command = ccl(ENDLESS);
    command.env("CCLX_TIMEOUT_MS", "500");
    let mut endless = Endless::start(command);
    kill(endless.ranks[2], Signal::SIGSTOP).unwrap();
    let (code, errors) = endless.wait(Duration::from_secs(20));
    assert_eq!(code, Some(4), "{errors}");
    assert!(errors.contains("timed out after 500ms"), "{errors}");
    assert!(endless.ranks_are_gone());
}

#[test]
fn ranks_do_not_outlive_their_parent() {
    let mut endless = Endless::start(ccl(ENDLESS));
    endless.child.kill().unwrap();
    endless.child.wait().unwrap();
    assert!(endless.ranks_are_gone());
}
