//! What a comparison found: for people, for programs, as a picture.

use crate::contestants::Role;
use crate::data::Type;
use ccl_chart::{Curve, Panel};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) version: u32,
    pub(crate) ranks: usize,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) passes: usize,
    /// What was compared with: package and version.
    pub(crate) peers: Vec<String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) comparisons: Vec<Comparison>,
    /// Share of the run in which a group was at work out of turn.
    pub(crate) out_of_turn: Vec<(String, f64)>,
}

/// One contestant at one size and type. Times are of the slowest rank: of each pass the median of its calls.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) dtype: Type,
    pub(crate) bytes: usize,
    pub(crate) contestant: String,
    pub(crate) role: Role,
    pub(crate) calls: usize,
    pub(crate) passes_us: Vec<f64>,
    /// Median over the passes.
    pub(crate) median_us: f64,
    pub(crate) wrong: u64,
}

/// One of ours against the best peer, and against the floor of direct access.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) dtype: Type,
    pub(crate) bytes: usize,
    pub(crate) ours: String,
    pub(crate) median_us: f64,
    pub(crate) best_peer: Option<String>,
    pub(crate) peer_us: Option<f64>,
    /// Median over the passes of this pass's time through the peer's, lower is better; then the least and largest.
    pub(crate) ratio: Option<[f64; 3]>,
    /// The same to the floor D.
    pub(crate) floor_ratio: Option<f64>,
    /// What is asked of it, each with whether it holds.
    pub(crate) demands: Vec<Demand>,
}

/// A limit.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Demand {
    pub(crate) what: String,
    pub(crate) limit: f64,
    pub(crate) is: f64,
    pub(crate) holds: bool,
}

/// The middle one; of an even number the mean of the two.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

impl Report {
    fn sizes(&self) -> Vec<(Type, usize)> {
        let mut sizes: Vec<(Type, usize)> = Vec::new();
        for row in &self.rows {
            if !sizes.contains(&(row.dtype, row.bytes)) {
                sizes.push((row.dtype, row.bytes));
            }
        }
        sizes
    }

    pub(crate) fn row(&self, dtype: Type, bytes: usize, contestant: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.dtype == dtype && row.bytes == bytes && row.contestant == contestant)
    }

    fn titles(&self, dtype: Type) -> Vec<&str> {
        let mut titles: Vec<&str> = Vec::new();
        for row in self.rows.iter().filter(|row| row.dtype == dtype) {
            if !titles.contains(&row.contestant.as_str()) {
                titles.push(&row.contestant);
            }
        }
        titles
    }

    /// Everything wrong that was found.
    pub(crate) fn wrong(&self) -> u64 {
        self.rows.iter().map(|row| row.wrong).sum()
    }

    /// Demands that don't hold, in words.
    pub(crate) fn failures(&self) -> Vec<String> {
        let of = |comparison: &Comparison| {
            let place = format!("{} {} {}", comparison.ours, comparison.dtype.name(), size(comparison.bytes));
            let broken = comparison.demands.iter().filter(|demand| !demand.holds);
            broken.map(|d| format!("{place}: {} {:.2}, at most {}", d.what, d.is, d.limit)).collect::<Vec<_>>()
        };
        self.comparisons.iter().flat_map(of).collect()
    }

    /// Tables in Markdown, which read well as text too.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{} ranks on {} cores of {}; {} passes, all contestants in turn in each; medians in µs, slowest rank. {}.\n",
            self.ranks,
            self.cores,
            self.processor,
            self.passes,
            if self.peers.is_empty() { "No peers".into() } else { self.peers.join(", ") }
        );
        for dtype in Type::ALL {
            let titles = self.titles(dtype);
            if titles.is_empty() {
                continue;
            }
            let mut lines = vec![vec![dtype.name().to_owned()]];
            lines[0].extend(titles.iter().map(|title| (*title).to_owned()));
            lines[0].extend(["ours / best peer".to_owned(), "least..largest".to_owned()]);
            for (_, bytes) in self.sizes().into_iter().filter(|(is, _)| *is == dtype) {
                let mut line = vec![size(bytes)];
                line.extend(titles.iter().map(|t| self.row(dtype, bytes, t).map_or("-".into(), |r| time(r.median_us))));
                let compared: Vec<_> =
                    self.comparisons.iter().filter(|c| c.dtype == dtype && c.bytes == bytes).collect();
                let each = |show: &dyn Fn([f64; 3]) -> String| {
                    compared.iter().map(|c| c.ratio.map_or("-".into(), show)).collect::<Vec<_>>().join(", ")
                };
                line.push(each(&|ratio| format!("{:.2}", ratio[0])));
                line.push(each(&|ratio| format!("{:.2}..{:.2}", ratio[1], ratio[2])));
                lines.push(line);
            }
            text.push('\n');
            text.push_str(&table(&lines));
        }
        text
    }

    /// Each demand with its verdict.
    pub(crate) fn verdicts(&self) -> String {
        let mut text = String::new();
        for comparison in &self.comparisons {
            for demand in &comparison.demands {
                let _ = writeln!(
                    text,
                    "{} {:>8} {:>8} {}: {} is {:.3}, at most {}",
                    if demand.holds { "PASS" } else { "FAIL" },
                    comparison.dtype.name(),
                    size(comparison.bytes),
                    comparison.ours,
                    demand.what,
                    demand.is,
                    demand.limit
                );
            }
        }
        text
    }

    /// A panel of latency for each type.
    pub(crate) fn panels(&self) -> Vec<Panel> {
        let panel = |dtype: Type| {
            let curve = |title: &str| {
                let rows = self.rows.iter().filter(|row| row.dtype == dtype && row.contestant == title);
                let faint = self.rows.iter().any(|row| row.contestant == title && row.role != Role::Ours);
                let points = rows.map(|row| (row.bytes as f64, row.median_us)).collect();
                Curve { name: title.to_owned(), points, faint }
            };
            Panel {
                title: format!("all-reduce, sum of {}, {} ranks on {} cores", dtype.name(), self.ranks, self.cores),
                unit: "time (µs)".into(),
                curves: self.titles(dtype).into_iter().map(curve).collect(),
            }
        };
        Type::ALL.into_iter().filter(|dtype| !self.titles(*dtype).is_empty()).map(panel).collect()
    }
}

fn table(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|width| format!("{}:", "-".repeat(*width + 1))).collect();
            let _ = writeln!(text, "|{}|", rules.join("|"));
        }
    }
    text
}

pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

fn time(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 100.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}
