//! What is asked of this library, and whether it holds.

use crate::contestants::Role;
use crate::data::Type;
use crate::report::{Comparison, Demand, Report, Row, median};

const KIB: usize = 1 << 10;

/// The most that a staged message of 8 bytes may take, in µs.
const SMALLEST_US: f64 = 1.0;

/// Compares each of ours with the best peer and with the floor of direct access, at each size and type.
pub(crate) fn compare(report: &Report) -> Vec<Comparison> {
    let ours = report.rows.iter().filter(|row| row.role == Role::Ours);
    ours.map(|row| compare_one(report, row)).collect()
}

fn compare_one(report: &Report, row: &Row) -> Comparison {
    let (dtype, bytes) = (row.dtype, row.bytes);
    let peers = report.rows.iter().filter(|r| r.role == Role::Peer && r.dtype == dtype && r.bytes == bytes);
    let best = peers.min_by(|a, b| a.median_us.total_cmp(&b.median_us));
    let ratio = best.map(|best| paired(row, best));
    let floor = report.row(dtype, bytes, "floor D").map(|floor| paired(row, floor)[0]);
    let demands = demands(report.ranks, row, ratio.map(|ratio| ratio[0]), floor);
    Comparison {
        dtype,
        bytes,
        ours: row.contestant.clone(),
        median_us: row.median_us,
        best_peer: best.map(|best| best.contestant.clone()),
        peer_us: best.map(|best| best.median_us),
        ratio,
        floor_ratio: floor,
        demands,
    }
}

/// Of the passes' ratios, the machine's moods being alike within a pass: median, least, largest.
fn paired(ours: &Row, other: &Row) -> [f64; 3] {
    let ratios: Vec<f64> = ours.passes_us.iter().zip(&other.passes_us).map(|(a, b)| a / b).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    [median(&ratios), least, ratios.iter().copied().fold(0.0, f64::max)]
}

/// `registered` in the title: the library knows the buffers beforehand.
fn demands(ranks: usize, row: &Row, ratio: Option<f64>, floor: Option<f64>) -> Vec<Demand> {
    let mut demands = Vec::new();
    let mut demand = |what: &str, is: Option<f64>, limit: f64| {
        if let Some(is) = is {
            demands.push(Demand { what: what.into(), limit, is, holds: is <= limit });
        }
    };
    const PEER: &str = "ratio to the best peer";
    let (bytes, registered) = (row.bytes, row.contestant.contains("registered"));
    match (ranks, registered, row.dtype) {
        (2, false, Type::Float32 | Type::Bfloat16) => {
            if bytes == 8 {
                demand("time in µs", Some(row.median_us), SMALLEST_US);
            } else if bytes >= 8 * KIB {
                demand(PEER, ratio, 0.8);
            }
        }
        (2, true, _) if bytes >= 64 * KIB => {
            demand(PEER, ratio, 0.5);
            demand("ratio to floor D", floor, 1.5);
        }
        // The peers that are compared here are those that more ranks than cores don't stop.
        (4, false, _) => demand(PEER, ratio, 1.0),
        _ => {}
    }
    demands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contestant: &str, role: Role, bytes: usize, passes: &[f64]) -> Row {
        Row {
            dtype: Type::Float32,
            bytes,
            contestant: contestant.into(),
            role,
            calls: 1,
            passes_us: passes.to_vec(),
            median_us: median(passes),
            wrong: 0,
        }
    }

    fn report(ranks: usize, rows: Vec<Row>) -> Report {
        let mut report = Report {
            version: 1,
            ranks,
            processor: "p".into(),
            cores: 2,
            passes: 3,
            peers: vec![],
            rows,
            comparisons: vec![],
            out_of_turn: vec![],
        };
        report.comparisons = compare(&report);
        report
    }

    #[test]
    fn ratios_are_of_the_same_pass_and_to_the_best_peer() {
        let bytes = 64 * KIB;
        let report = report(
            2,
            vec![
                row("ours", Role::Ours, bytes, &[7.0, 70.0, 8.0]),
                row("slow", Role::Peer, bytes, &[100.0; 3]),
                row("quick", Role::Peer, bytes, &[10.0, 100.0, 10.0]),
                row("floor D", Role::Floor, bytes, &[5.0, 50.0, 5.0]),
            ],
        );
        let compared = &report.comparisons[0];
        assert_eq!(compared.best_peer.as_deref(), Some("quick"));
        assert_eq!(compared.ratio, Some([0.7, 0.7, 0.8]));
        assert_eq!(compared.floor_ratio, Some(1.4));
        assert!(report.failures().is_empty(), "{:?}", report.failures());
        assert!(report.text().contains(" 64 KiB |") && report.verdicts().starts_with("PASS"));
    }

    #[test]
    fn whatever_is_too_slow_is_named() {
        let rows = |ours: f64, name: &str, bytes| {
            vec![
                row(name, Role::Ours, bytes, &[ours]),
                row("p", Role::Peer, bytes, &[10.0]),
                row("floor D", Role::Floor, bytes, &[2.0]),
            ]
        };
        for (ranks, name, bytes, ours, failures) in [
            (2, "ours", 8, 0.9, 0),
            (2, "ours", 8, 1.1, 1),
            (2, "ours", 64 * KIB, 8.0, 0),
            (2, "ours", 64 * KIB, 8.1, 1),
            (2, "ours, registered", 64 * KIB, 2.9, 0),
            (2, "ours, registered", 64 * KIB, 3.1, 1),
            (2, "ours, registered", 64 * KIB, 5.1, 2),
            (4, "ours", 8, 10.0, 0),
            (4, "ours", 8, 10.1, 1),
        ] {
            let report = report(ranks, rows(ours, name, bytes));
            assert_eq!(report.failures().len(), failures, "{ranks} ranks, {name}, {bytes}, {ours}");
        }
    }
}
