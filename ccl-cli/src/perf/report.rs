//! The results: the table for people, and JSON for programs.

use super::message::Timing;
use ccl_chart::{Curve, Panel};
use serde::Serialize;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Version of the JSON; it rises when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// Everything that a run found out.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) version: u32,
    pub(super) collective: &'static str,
    pub(super) ranks: usize,
    pub(super) device: String,
    pub(super) software: bool,
    pub(super) p2p: bool,
    pub(super) granule: usize,
    /// Whether the buffers were registered.
    pub(super) registered: bool,
    pub(super) staging_bytes: usize,
    pub(super) init_ms: f64,
    pub(super) results: Vec<Row>,
}

/// One message size, in place or not. Times are of the slowest rank.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) bytes: u64,
    pub(super) count: u64,
    pub(super) dtype: &'static str,
    pub(super) op: &'static str,
    /// -1 where there is none.
    pub(super) root: i64,
    pub(super) in_place: bool,
    pub(super) algo: String,
    pub(super) order: String,
    pub(super) iterations: u32,
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    pub(super) min_us: f64,
    pub(super) first_call_us: f64,
    pub(super) algbw_gbps: f64,
    pub(super) busbw_gbps: f64,
    /// Wrong elements on all ranks; null if nothing was checked.
    pub(super) wrong: Option<u64>,
    pub(super) ze_calls_per_op: f64,
    /// The same call recorded in a graph and replayed; absent if that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replay: Option<Replay>,
}

/// Replays of a recorded call.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Replay {
    pub(super) replays: u32,
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    pub(super) min_us: f64,
    /// As for calls.
    pub(super) wrong: Option<u64>,
    pub(super) ze_calls_per_op: f64,
}

/// Algorithm and bus bandwidth in GB/s, as nccl-tests define them, by how much the latter is the former.
pub(super) fn bandwidths(bytes: u64, bus_factor: f64, timing: &Timing) -> (f64, f64) {
    let algbw = if timing.median_us > 0.0 { bytes as f64 / timing.median_us / 1e3 } else { 0.0 };
    (algbw, algbw * bus_factor)
}

impl Report {
    pub(super) fn version() -> u32 {
        VERSION
    }

    /// Wrong elements in all, if anything was checked.
    pub(super) fn wrong(&self) -> Option<u64> {
        let of = |row: &Row| [row.wrong, row.replay.as_ref().and_then(|replay| replay.wrong)];
        self.results.iter().flat_map(of).flatten().reduce(u64::saturating_add)
    }

    fn average_busbw(&self) -> f64 {
        let sum: f64 = self.results.iter().map(|row| row.busbw_gbps).sum();
        sum / self.results.len().max(1) as f64
    }
}

/// The head of the table: nccl-tests' columns, and behind them what they lack, each out of place and in place.
pub(super) fn columns(replays: bool) -> String {
    let measured = format!("{:>9} {:>7} {:>7} {:>7}", "time", "algbw", "busbw", "#wrong");
    let units = format!("{:>9} {:>7} {:>7} {:>7}", "(us)", "(GB/s)", "(GB/s)", "");
    let pair = |left: &str, right: &str| format!("  {left:>9} {right:>9}");
    let more = [pair("p99", "p99"), if replays { pair("replay", "replay") } else { String::new() }, pair("algo", "")];
    let more_units = [pair("(us)", "(us)"), if replays { pair("(us)", "(us)") } else { String::new() }];
    let head = format!(
        "#\n# {:>55}  {:^33}  {:^33}\n# {:>11} {:>13} {:>9} {:>8} {:>7}    {measured}  {measured}{}\n\
         # {:>11} {:>13} {:>9} {:>8} {:>7}    {units}  {units}{}",
        "",
        "out-of-place",
        "in-place",
        "size",
        "count",
        "type",
        "redop",
        "root",
        more.concat(),
        "(B)",
        "(elements)",
        "",
        "",
        "",
        more_units.concat()
    );
    head.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// A line of the table; some collectives are never in place.
pub(super) fn line(out_of_place: &Row, in_place: Option<&Row>) -> String {
    let measured = |row: &Row| {
        let wrong = [row.wrong, row.replay.as_ref().and_then(|replay| replay.wrong)];
        let wrong = wrong.into_iter().flatten().reduce(u64::saturating_add);
        let wrong = wrong.map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string());
        format!("{:>9} {:>7.2} {:>7.2} {wrong:>7}", time(row.median_us), row.algbw_gbps, row.busbw_gbps)
    };
    let Row { bytes, count, dtype, op, root, algo, .. } = out_of_place;
    let absent = || "N/A".to_owned();
    let pair = |left: f64, right: Option<f64>| format!("  {:>9} {:>9}", time(left), right.map_or_else(absent, time));
    let replays = out_of_place.replay.as_ref().map(|left| {
        let right = in_place.and_then(|row| row.replay.as_ref());
        pair(left.median_us, right.map(|right| right.median_us))
    });
    let none = || format!("{:>9} {:>7} {:>7} {:>7}", "N/A", "N/A", "N/A", "N/A");
    format!(
        "{bytes:>13} {count:>13} {dtype:>9} {op:>8} {root:>7}    {}  {}{}{}  {algo:>9}",
        measured(out_of_place),
        in_place.map_or_else(none, measured),
        pair(out_of_place.p99_us, in_place.map(|row| row.p99_us)),
        replays.unwrap_or_default()
    )
}

/// Microseconds with two digits to spare below a hundred.
fn time(us: f64) -> String {
    let digits = match us {
        us if us < 100.0 => 2,
        us if us < 1000.0 => 1,
        _ => 0,
    };
    format!("{us:.digits$}")
}

/// The last lines.
pub(super) fn footer(report: &Report) -> String {
    let verdict = match report.wrong() {
        None => "# Out of bounds values : N/A (not checked)".to_owned(),
        Some(0) => "# Out of bounds values : 0 OK".to_owned(),
        Some(wrong) => format!("# Out of bounds values : {wrong} FAILED"),
    };
    format!("{verdict}\n# Avg bus bandwidth    : {:.6}\n#", report.average_busbw())
}

/// The results as CSV: a line for each row, with the names of the JSON's fields; those of replays begin with `replay_`.
pub(super) fn csv(results: &[Row]) -> Result<String, String> {
    let mut lines: Vec<String> = Vec::new();
    for row in results {
        let value = serde_json::to_value(row).map_err(|error| error.to_string())?;
        let (mut names, mut cells) = (Vec::new(), Vec::new());
        let mut put = |prefix: &str, fields: &serde_json::Map<String, serde_json::Value>| {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_object()) {
                names.push(format!("{prefix}{name}"));
                // Texts are names of ours, without anything that would want quotes.
                cells.push(value.as_str().map_or_else(|| value.to_string().replace("null", ""), str::to_owned));
            }
        };
        if let Some(fields) = value.as_object() {
            put("", fields);
            if let Some(replay) = fields.get("replay").and_then(|replay| replay.as_object()) {
                put("replay_", replay);
            }
        }
        if lines.is_empty() {
            lines.push(names.join(","));
        }
        lines.push(cells.join(","));
    }
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

/// Most curves that can be told apart.
const MOST_CURVES: usize = 12;

/// Latency above bus bandwidth, as SVG.
pub(super) fn picture(report: &Report) -> Result<String, String> {
    let mut curves: Vec<(String, Vec<&Row>)> = Vec::new();
    let mut kinds: Vec<(&str, &str)> = report.results.iter().map(|row| (row.dtype, row.op)).collect();
    kinds.dedup();
    for row in &report.results {
        let place = if row.in_place { "in place" } else { "out of place" };
        // With many kinds the difference between the places matters least.
        let name = match kinds.len() {
            1 => place.to_owned(),
            2..=6 => format!("{} {}, {place}", row.dtype, row.op),
            _ if row.in_place => continue,
            _ => format!("{} {}", row.dtype, row.op),
        };
        match curves.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => curves.push((name, vec![row])),
        }
    }
    let left_out = curves.len().saturating_sub(MOST_CURVES);
    curves.truncate(MOST_CURVES);
    let panel = |title: &str, unit: &str, value: &dyn Fn(&Row) -> f64, more: &dyn Fn(&Row) -> Option<f64>| {
        let points = |rows: &[&Row], value: &dyn Fn(&Row) -> Option<f64>| {
            rows.iter().filter_map(|row| Some((row.bytes as f64, value(row)?))).collect::<Vec<_>>()
        };
        let mut drawn = Vec::new();
        for (name, rows) in &curves {
            drawn.push(Curve { name: name.clone(), points: points(rows, &|row| Some(value(row))), faint: false });
            let replayed = points(rows, more);
            if !replayed.is_empty() {
                drawn.push(Curve { name: format!("{name}, replayed"), points: replayed, faint: true });
            }
        }
        let note = if left_out > 0 { format!(" ({left_out} more curves left out)") } else { String::new() };
        let title = format!("{} of {} ranks: {title}{note}", report.collective, report.ranks);
        Panel { title, unit: unit.into(), curves: drawn }
    };
    ccl_chart::svg(&[
        panel("latency", "time (µs)", &|row| row.median_us, &|row| row.replay.as_ref().map(|r| r.median_us)),
        panel("bus bandwidth", "GB/s", &|row| row.busbw_gbps, &|_| None),
    ])
}

/// Fails now if [`write()`] would at the end.
pub(super) fn probe(flag: &str, path: &Path) -> Result<(), String> {
    let probe = match target(path) {
        Target::Replaced { path } => beside(&path).map(drop),
        Target::Stream => std::fs::OpenOptions::new().write(true).open(path).map(drop),
    };
    probe.map_err(|error| format!("{flag} {}: {error}", path.display()))
}

/// Writes what a flag asked for. A file is replaced as a whole.
pub(super) fn write(flag: &str, path: &Path, text: &str) -> Result<(), String> {
    let write = || -> std::io::Result<()> {
        match target(path) {
            Target::Replaced { path } => {
                let mut file = beside(&path)?;
                file.write_all(text.as_bytes())?;
                file.persist(&path)?;
                Ok(())
            }
            Target::Stream => std::fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes()),
        }
    };
    write().map_err(|error| format!("{flag} {}: {error}", path.display()))
}

/// The report as JSON.
pub(super) fn json(report: &Report) -> Result<String, String> {
    serde_json::to_string_pretty(report).map(|text| text + "\n").map_err(|error| error.to_string())
}

enum Target {
    /// A file, or none yet.
    Replaced { path: PathBuf },
    /// A terminal, a pipe or the like (or a folder, which opening will refuse).
    Stream,
}

fn target(path: &Path) -> Target {
    match std::fs::metadata(path) {
        Ok(data) if !data.is_file() => Target::Stream,
        // Through a link the file is replaced, not the link.
        _ => Target::Replaced { path: path.canonicalize().unwrap_or_else(|_| path.to_owned()) },
    }
}

fn beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As any new file: what the umask leaves.
    tempfile::Builder::new().prefix(".ccl-").permissions(Permissions::from_mode(0o666)).tempfile_in(folder)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::super::collective::What;
    use super::*;

    fn row(bytes: u64, in_place: bool, wrong: Option<u64>) -> Row {
        let timing = Timing { median_us: 12.345, p99_us: 20.0, min_us: 10.0, ze_calls_per_op: 3.0 };
        let (algbw_gbps, busbw_gbps) = bandwidths(bytes, 1.5, &timing);
        Row {
            bytes,
            count: bytes / 2,
            dtype: "bfloat16",
            op: "sum",
            root: -1,
            in_place,
            algo: "ring".into(),
            order: "ring".into(),
            iterations: 20,
            median_us: timing.median_us,
            p99_us: timing.p99_us,
            min_us: timing.min_us,
            first_call_us: 99.0,
            algbw_gbps,
            busbw_gbps,
            wrong,
            ze_calls_per_op: timing.ze_calls_per_op,
            replay: None,
        }
    }

    fn report(results: Vec<Row>) -> Report {
        Report {
            version: Report::version(),
            collective: "all_reduce",
            ranks: 4,
            device: "some device".into(),
            software: true,
            p2p: true,
            granule: 64,
            registered: false,
            staging_bytes: 1,
            init_ms: 1.0,
            results,
        }
    }

    #[test]
    fn bandwidths_as_in_nccl_tests() {
        let timing = Timing { median_us: 1000.0, p99_us: 0.0, min_us: 0.0, ze_calls_per_op: 0.0 };
        assert_eq!(bandwidths(1_000_000, What::AllReduce.bus_factor(4), &timing), (1.0, 1.5));
        assert_eq!(bandwidths(1_000_000, What::AllReduce.bus_factor(1), &timing), (1.0, 0.0));
        assert_eq!(bandwidths(0, 1.0, &Timing { median_us: 0.0, ..timing }), (0.0, 0.0));
    }

    #[test]
    fn the_columns_stand_above_their_numbers() {
        let head = columns(false);
        let titles: Vec<&str> = head.lines().find(|line| line.contains("redop")).unwrap().split_whitespace().collect();
        assert_eq!(titles[..6], ["#", "size", "count", "type", "redop", "root"]);
        assert_eq!(titles[6..14], ["time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong"]);
        assert_eq!(titles[14..], ["p99", "p99", "algo"]);
        let text = line(&row(1 << 20, false, Some(0)), Some(&row(1 << 20, true, Some(3))));
        let cells: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "1048576", "524288", "bfloat16", "sum", "-1", "12.35", "84.94", "127.41", "0", "12.35", "84.94",
                "127.41", "3", "20.00", "20.00", "ring"
            ]
        );
        // Right-aligned under each other.
        let titles = head.lines().find(|line| line.contains("redop")).unwrap();
        for (title, cell) in [
            ("size", "1048576"),
            ("count", "524288"),
            ("type", "bfloat16"),
            ("root", "-1"),
            ("#wrong", "0 "),
            ("algo", "ring"),
        ] {
            let (above, below) =
                (titles.find(title).unwrap() + title.len(), text.find(cell).unwrap() + cell.trim().len());
            assert_eq!(above, below, "{title}");
        }
        let replay =
            Replay { replays: 3, median_us: 4.5, p99_us: 6.0, min_us: 4.0, wrong: Some(2), ze_calls_per_op: 1.0 };
        let replayed = Row { replay: Some(replay), ..row(8, true, Some(1)) };
        let (head, text) = (columns(true), line(&replayed, Some(&replayed)));
        let titles = head.lines().find(|line| line.contains("redop")).unwrap();
        assert_eq!(titles.find("replay").unwrap() + 6, text.find("4.50").unwrap() + 4);
        assert_eq!(text.split_whitespace().nth(8), Some("3"), "wrong in calls and in replays");
        assert_eq!((time(9.876), time(123.45), time(98765.4)), ("9.88".into(), "123.5".into(), "98765".into()));
    }

    #[test]
    fn the_footer_gives_the_verdict() {
        let rows = |wrong| vec![row(1000, false, wrong), row(3000, true, wrong)];
        assert!(
            footer(&report(rows(Some(0)))).starts_with("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.243")
        );
        assert!(
            footer(&report(rows(Some(u64::MAX)))).starts_with("# Out of bounds values : 18446744073709551615 FAILED\n")
        );
        assert!(footer(&report(rows(None))).starts_with("# Out of bounds values : N/A"));
    }

    #[test]
    fn json_is_written_whole_or_refused_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        probe("--json", &path).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "a probe leaves nothing");
        std::fs::write(&path, "old and much longer than nothing").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let text = json(&report(vec![row(8, false, Some(0)), row(8, true, None)])).unwrap();
        write("--json", &link, &text).unwrap();
        assert!(link.is_symlink());
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(json["version"], 1);
        assert_eq!(json["results"][0]["wrong"], 0);
        assert!(json["results"][1]["wrong"].is_null());
        assert_eq!(json["results"][1]["in_place"], true);
        assert!(json["results"][1].get("replay").is_none());

        assert!(probe("--json", folder.path()).is_err_and(|error| error.contains("--json")));
        assert!(probe("--json", Path::new("/nowhere/at/all.json")).is_err());
        // Not replaced by a file.
        write("--json", Path::new("/dev/null"), "{}").unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn csv_has_a_cell_for_each_field() {
        let replay = Replay { replays: 3, median_us: 4.5, p99_us: 6.0, min_us: 4.0, wrong: None, ze_calls_per_op: 1.0 };
        let rows = [Row { replay: Some(replay), ..row(8, true, None) }];
        let text = csv(&rows).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), lines[1].len());
        let cell = |name: &str| lines[1][lines[0].iter().position(|known| *known == name).unwrap()];
        assert_eq!((cell("bytes"), cell("dtype"), cell("wrong"), cell("in_place")), ("8", "bfloat16", "", "true"));
        assert_eq!((cell("p99_us"), cell("replay_median_us"), cell("replay_wrong")), ("20.0", "4.5", ""));
        assert_eq!(csv(&[]), Ok(String::new()));
    }

    #[test]
    fn the_picture_has_each_kind() {
        let rows = vec![row(8, false, None), row(8, true, None), row(64, false, None), row(64, true, None)];
        let one = picture(&report(rows.clone())).unwrap();
        assert!(one.contains("latency") && one.contains("bus bandwidth") && one.contains("in place"));
        let names: Vec<String> = (0..15).map(|number| format!("type{number}")).collect();
        let many = names.iter().map(|name| Row { dtype: name.clone().leak(), ..rows[0].clone() });
        let many = picture(&report(many.collect())).unwrap();
        assert!(many.contains("type11 sum") && !many.contains("type12 sum") && many.contains("3 more curves"));
    }
}
