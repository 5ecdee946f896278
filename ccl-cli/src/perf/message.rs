//! What passes between `ccl perf` and its rank processes: one line of JSON a message, over pipes.

use super::collective::What;
use serde::{Deserialize, Serialize};

/// The first line to a rank.
#[derive(Serialize, Deserialize)]
pub(super) struct Job {
    /// Bytes of the largest message.
    pub(super) max_bytes: u64,
    /// Whether the buffers are registered with the communicator.
    pub(super) registered: bool,
    pub(super) corrupt: bool,
    pub(super) what: What,
    /// Of collectives that have one.
    pub(super) root: usize,
}

/// The lines after it, answered one by one. All ranks get the same.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Command {
    /// Makes ready for messages of `count` elements, with fresh input.
    Prepare { dtype: String, op: String, count: u64, in_place: bool },
    /// Records the call in a graph.
    Record,
    /// Times so many calls, or replays of what was recorded.
    Time { calls: u32, replayed: bool },
    /// Checks calls, or replays, with fresh input for each.
    Check { replayed: bool },
}

/// What a rank says.
#[derive(Serialize, Deserialize)]
pub(super) enum Reply {
    /// To the job.
    Ready(Ready),
    /// To [`Command::Prepare`]: what the call will run.
    Prepared { algo: String, plan: String },
    /// To [`Command::Record`].
    Recorded,
    /// To [`Command::Time`].
    Timed(Timing),
    /// To [`Command::Check`].
    Checked { wrong: u64, first: Option<String> },
}

/// What a rank's communicator turned out to be.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) driver: String,
    pub(super) device: String,
    pub(super) device_index: usize,
    pub(super) software: bool,
    pub(super) p2p: bool,
    pub(super) granule: usize,
    pub(super) staging_bytes: usize,
    pub(super) init_ms: f64,
}

impl Ready {
    pub(super) fn of(comm: &ccl_ze::Communicator, init_ms: f64) -> Self {
        let is = comm.describe();
        Self {
            driver: is.driver,
            device: is.device,
            device_index: is.device_index,
            software: is.software,
            p2p: is.p2p,
            granule: is.granule,
            staging_bytes: is.staging_bytes,
            init_ms,
        }
    }
}

/// Times of one rank's calls in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Timing {
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    pub(super) min_us: f64,
    /// Level Zero calls of a call and the wait for it.
    pub(super) ze_calls_per_op: f64,
}

impl Timing {
    /// From the nanoseconds of each call, of which there is at least one.
    pub(super) fn from_samples(samples: &mut [u64], ze_calls: u64) -> Self {
        samples.sort_unstable();
        let count = samples.len().max(1);
        // By nearest rank: the least time that at least such a share of the calls kept to.
        let share = |percent: usize| {
            let rank = (count * percent).div_ceil(100).max(1);
            samples.get(rank - 1).copied().unwrap_or_default() as f64 / 1e3
        };
        Self {
            median_us: share(50),
            p99_us: share(99),
            min_us: share(0),
            ze_calls_per_op: ze_calls as f64 / count as f64,
        }
    }

    /// Of each number the largest among the ranks.
    pub(super) fn slowest(of: impl IntoIterator<Item = Timing>) -> Option<Timing> {
        of.into_iter().reduce(|a, b| Timing {
            median_us: a.median_us.max(b.median_us),
            p99_us: a.p99_us.max(b.p99_us),
            min_us: a.min_us.max(b.min_us),
            ze_calls_per_op: a.ze_calls_per_op.max(b.ze_calls_per_op),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let mut samples: Vec<u64> = (1..=100).rev().map(|ms| ms * 1000).collect();
        let timing = Timing::from_samples(&mut samples, 250);
        assert_eq!(timing, Timing { median_us: 50.0, p99_us: 99.0, min_us: 1.0, ze_calls_per_op: 2.5 });
        let one = Timing::from_samples(&mut [1500], 3);
        assert_eq!(one, Timing { median_us: 1.5, p99_us: 1.5, min_us: 1.5, ze_calls_per_op: 3.0 });
        let slowest = Timing::slowest([timing, Timing { min_us: 2.0, ..one }]);
        assert_eq!(slowest, Some(Timing { median_us: 50.0, p99_us: 99.0, min_us: 2.0, ze_calls_per_op: 3.0 }));
        assert_eq!(Timing::slowest([]), None);
    }
}
