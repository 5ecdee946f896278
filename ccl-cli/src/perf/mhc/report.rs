//! The results of `ccl perf mhc`.

use super::message::Turn;
use super::model::BOUNDARIES;
use serde::Serialize;

/// Everything that a run found out.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) version: u32,
    pub(super) collective: &'static str,
    pub(super) ranks: usize,
    pub(super) device: String,
    pub(super) software: bool,
    pub(super) results: Vec<Result>,
    /// Designs that there are not for what was asked, and why.
    pub(super) refused: Vec<Refused>,
    /// Wrong elements on all ranks of a design that has no results here, since it was not asked for: the unfused one, which
    /// the others are compared with. Null if there is none such or nothing was checked.
    pub(super) wrong_unasked: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct Refused {
    pub(super) design: String,
    pub(super) rows: u64,
    pub(super) why: String,
}

/// A design at a number of rows. Times are of the slowest rank, medians over turns.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Result {
    pub(super) design: String,
    pub(super) variant: String,
    pub(super) rows: u64,
    pub(super) hidden: u64,
    pub(super) streams: u32,
    pub(super) dtype: &'static str,
    /// Whether recorded calls were replayed.
    pub(super) replayed: bool,
    pub(super) turns: u32,
    pub(super) median_us_per_boundary: f64,
    pub(super) min_us_per_boundary: f64,
    pub(super) median_us_per_token: f64,
    /// A boundary's all-reduce alone.
    pub(super) allreduce_us: f64,
    /// A boundary alone.
    pub(super) standalone_us: f64,
    /// A boundary's time over that of the unfused design, of the same turn; null if that was not measured.
    pub(super) ratio: Option<f64>,
    /// Of memory, that a boundary without its reduction reads and writes at least.
    pub(super) bytes: u64,
    /// Those over the time of a boundary, the reduction included.
    pub(super) gbps: f64,
    /// What a boundary alone reads and writes, over its time.
    pub(super) standalone_gbps: f64,
    /// Bytes of `fn` over the time of a boundary alone.
    pub(super) standalone_fn_gbps: f64,
    /// What copies of all `fn` read and write, over their time.
    pub(super) copy_gbps: f64,
    /// Wrong elements on all ranks; null if nothing was checked.
    pub(super) wrong: Option<u64>,
}

/// Turns of one contestant on the slowest rank, in nanoseconds.
pub(super) struct Turns {
    boundaries: Vec<u64>,
    tokens: Vec<u64>,
}

impl Turns {
    /// From each rank's.
    pub(super) fn slowest(ranks: &[Vec<Turn>]) -> Self {
        let turns = ranks.iter().map(Vec::len).min().unwrap_or(0);
        let slowest = |of: fn(&Turn) -> u64| {
            (0..turns).map(|turn| ranks.iter().map(|rank| of(&rank[turn])).max().unwrap_or(0)).collect()
        };
        Self { boundaries: slowest(|turn| turn[1]), tokens: slowest(|turn| turn.iter().sum()) }
    }

    /// Microseconds of one boundary.
    pub(super) fn boundary_us(&self) -> f64 {
        median(self.boundaries.iter().map(|ns| *ns as f64).collect()) / 1e3 / BOUNDARIES as f64
    }

    pub(super) fn least_boundary_us(&self) -> f64 {
        self.boundaries.iter().min().copied().unwrap_or(0) as f64 / 1e3 / BOUNDARIES as f64
    }

    pub(super) fn token_us(&self) -> f64 {
        median(self.tokens.iter().map(|ns| *ns as f64).collect()) / 1e3
    }

    /// The median of what the boundaries took of what they took in another's same turn.
    pub(super) fn ratio(&self, other: &Turns) -> f64 {
        let pairs = self.boundaries.iter().zip(&other.boundaries);
        median(pairs.map(|(here, there)| *here as f64 / (*there).max(1) as f64).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// Gigabytes a second.
pub(super) fn rate(bytes: u64, us: f64) -> f64 {
    if us > 0.0 { bytes as f64 / us / 1e3 } else { 0.0 }
}

impl Report {
    /// Adds what a check of a design found that was not asked for.
    pub(super) fn count_unasked(&mut self, wrong: Option<u64>) {
        self.wrong_unasked = [self.wrong_unasked, wrong].into_iter().flatten().reduce(u64::saturating_add);
    }

    /// Wrong elements in all, if anything was checked.
    pub(super) fn wrong(&self) -> Option<u64> {
        let all = self.results.iter().map(|result| result.wrong).chain([self.wrong_unasked]);
        all.flatten().reduce(u64::saturating_add)
    }
}

/// The head of the table.
pub(super) fn columns() -> String {
    let (names, units) = (
        format!(
            "{:>5} {:>8} {:>7} {:>10} {:>11} {:>10} {:>10} {:>6} {:>10} {:>7} {:>7} {:>7} {:>7}",
            "rows",
            "design",
            "calls",
            "boundary",
            "token",
            "allreduce",
            "alone",
            "ratio",
            "bytes",
            "rate",
            "alone",
            "copy",
            "#wrong"
        ),
        format!(
            "{:>5} {:>8} {:>7} {:>10} {:>11} {:>10} {:>10} {:>6} {:>10} {:>7} {:>7} {:>7} {:>7}",
            "", "", "", "(us)", "(us)", "(us)", "(us)", "", "(B)", "(GB/s)", "(GB/s)", "(GB/s)", ""
        ),
    );
    format!("#\n# {}\n# {}", names.trim_end(), units.trim_end())
}

/// A line of the table.
pub(super) fn line(result: &Result) -> String {
    let calls = if result.replayed { "graph" } else { "eager" };
    let ratio = result.ratio.map_or_else(|| "N/A".to_owned(), |ratio| format!("{ratio:.3}"));
    let wrong = result.wrong.map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string());
    format!(
        "  {:>5} {:>8} {calls:>7} {:>10.2} {:>11.1} {:>10.2} {:>10.2} {ratio:>6} {:>10} {:>7.2} {:>7.2} {:>7.2} {wrong:>7}",
        result.rows,
        result.design,
        result.median_us_per_boundary,
        result.median_us_per_token,
        result.allreduce_us,
        result.standalone_us,
        result.bytes,
        result.gbps,
        result.standalone_gbps,
        result.copy_gbps,
    )
}

/// The last lines.
pub(super) fn footer(report: &Report) -> String {
    match report.wrong() {
        None => "# Out of bounds values : N/A (not checked)\n#".into(),
        Some(0) => "# Out of bounds values : 0 OK\n#".into(),
        Some(wrong) => format!("# Out of bounds values : {wrong} FAILED\n#"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_rank_counts_and_ratios_are_of_one_turn() {
        let slow = Turns::slowest(&[vec![[1, 850_000, 1], [0, 170_000, 0]], vec![[9, 85_000, 9], [0, 340_000, 0]]]);
        assert_eq!((slow.boundaries.clone(), slow.tokens.clone()), (vec![850_000, 340_000], vec![850_002, 340_000]));
        assert_eq!((slow.boundary_us(), slow.least_boundary_us()), (7.0, 4.0));
        let fast = Turns { boundaries: vec![425_000, 85_000], tokens: vec![0, 0] };
        assert_eq!(fast.ratio(&slow), 0.375);
        assert_eq!(rate(1000, 2.0), 0.5);
    }
}
