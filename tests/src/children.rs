//! Ranks that are programs of their own. Tests of other packages include this file.

use std::process::Child;
use std::time::{Duration, Instant};

/// Ranks that are killed when this is dropped.
pub struct Ranks(Vec<Child>);

impl Ranks {
    /// These, in order of rank.
    pub fn new(children: impl IntoIterator<Item = Child>) -> Self {
        Self(children.into_iter().collect())
    }

    /// Waits for all to end well within `limit`; what they said, by `said`, is told otherwise.
    pub fn wait(mut self, limit: Duration, said: impl Fn() -> String) {
        let until = Instant::now() + limit;
        let n = self.0.len();
        for (rank, child) in self.0.iter_mut().enumerate() {
            let status = loop {
                if let Some(status) = child.try_wait().unwrap_or_else(|error| panic!("rank {rank} of {n}: {error}")) {
                    break status;
                }
                assert!(Instant::now() < until, "rank {rank} of {n} still runs: {}", said());
                std::thread::sleep(Duration::from_millis(5));
            };
            assert!(status.success(), "rank {rank} of {n}: {status}: {}", said());
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
