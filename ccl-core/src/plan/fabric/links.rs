//! Links: what transfers queue at, first come, first served.
//!
//! A transfer passes its pair's own link, the sender's port, the root port and the receiver's port, as far as there are
//! any, and moves on as soon as its head does: alone it takes the latency and its bytes over the slowest of them.

use super::Fabric;

/// Picoseconds since the launch.
pub(super) type Time = u64;

/// Picoseconds of so many microseconds.
pub(super) fn picoseconds(us: f64) -> Time {
    (us * 1e6).round() as Time
}

/// MB/s of so many GB/s, at least 1: whole numbers from here on.
pub(super) fn rate(gbps: f64) -> u64 {
    ((gbps * 1e3).round() as u64).max(1)
}

/// How long `bytes` take at a rate in MB/s.
pub(super) const fn span(bytes: u64, rate: u64) -> Time {
    (bytes * 1_000_000).div_ceil(rate)
}

/// Something that serves one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    rate: u64,
    free: Time,
}

impl Server {
    pub(super) const fn new(rate: u64) -> Self {
        Self { rate, free: 0 }
    }

    /// When the service of `bytes` that come at `now` begins and ends.
    pub(super) fn serve(&mut self, now: Time, bytes: u64) -> (Time, Time) {
        self.serve_in(now, span(bytes, self.rate))
    }

    fn serve_in(&mut self, now: Time, span: Time) -> (Time, Time) {
        let start = now.max(self.free);
        self.free = start + span;
        (start, self.free)
    }
}

/// Where a transfer is to queue next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    Pair,
    Egress,
    Root,
    Ingress,
    /// It is there, and a poll sees it.
    Seen,
}

/// Bytes on their way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Transfer {
    pub(super) from: u8,
    pub(super) to: u8,
    pub(super) bytes: u32,
    /// When its last byte has left the servers so far.
    pub(super) end: Time,
}

/// All links of a box.
pub(super) struct Links {
    fabric: Fabric,
    n: usize,
    hop: Time,
    pairs: Vec<Server>,
    egress: Vec<Server>,
    ingress: Vec<(Server, usize)>,
    /// MB/s of a port that several devices store into.
    incast: u64,
    root: Option<Server>,
    /// Bytes that went through the root port.
    pub(super) root_bytes: u64,
    /// Bytes that each rank sent.
    pub(super) sent: Vec<u64>,
}

impl Links {
    pub(super) fn new(fabric: &Fabric, n: usize) -> Self {
        let port = Server::new(rate(fabric.port_gbps));
        Self {
            fabric: *fabric,
            n,
            hop: picoseconds(fabric.hop_us),
            pairs: vec![Server::new(rate(fabric.pair_gbps)); n * n],
            egress: vec![port; n],
            ingress: (0..n).map(|rank| (port, rank)).collect(),
            incast: rate(fabric.port_gbps * fabric.incast),
            root: fabric.root.map(|root| Server::new(rate(root.gbps))),
            root_bytes: 0,
            sent: vec![0; n],
        }
    }

    /// Takes a transfer that comes to a stage at `now` through it: where it comes to next, and when.
    pub(super) fn pass(&mut self, stage: Stage, now: Time, transfer: &mut Transfer) -> (Stage, Time) {
        let (from, to, bytes) = (transfer.from as usize, transfer.to as usize, transfer.bytes.into());
        let ((start, end), next) = match stage {
            Stage::Pair => {
                self.sent[from] += bytes;
                (self.pairs[from * self.n + to].serve(now, bytes), Stage::Egress)
            }
            Stage::Egress => {
                let next = if self.fabric.passes_root(from, to) { Stage::Root } else { Stage::Ingress };
                (self.egress[from].serve(now, bytes), next)
            }
            Stage::Root => {
                self.root_bytes += bytes;
                (self.root.as_mut().map_or((now, now), |root| root.serve(now, bytes)), Stage::Ingress)
            }
            Stage::Ingress => {
                let (port, last) = &mut self.ingress[to];
                // It came while another's was being served.
                let mixed = port.free > now && *last != from;
                *last = from;
                let served = if mixed { port.serve_in(now, span(bytes, self.incast)) } else { port.serve(now, bytes) };
                (served, Stage::Seen)
            }
            Stage::Seen => ((now, now), Stage::Seen),
        };
        transfer.end = transfer.end.max(end);
        if next == Stage::Seen { (next, transfer.end + self.hop) } else { (next, start) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;
    use crate::plan::fabric::RootPort;

    /// When each of these (from, to, bytes) is seen if all set out at once.
    fn seen(fabric: &Fabric, transfers: &[(u8, u8, u32)]) -> Vec<Time> {
        let mut links = Links::new(fabric, 8);
        let mut queue: BinaryHeap<_> = transfers
            .iter()
            .enumerate()
            .map(|(i, &(from, to, bytes))| Reverse((0, i, Stage::Pair, Transfer { from, to, bytes, end: 0 })))
            .collect();
        let mut seen = vec![0; transfers.len()];
        while let Some(Reverse((now, i, stage, mut transfer))) = queue.pop() {
            match links.pass(stage, now, &mut transfer) {
                (Stage::Seen, at) => seen[i] = at,
                (next, at) => queue.push(Reverse((at, i, next, transfer))),
            }
        }
        assert_eq!(links.sent.iter().sum::<u64>(), transfers.iter().map(|t| u64::from(t.2)).sum::<u64>());
        seen
    }

    #[test]
    fn alone_it_is_latency_and_bytes_over_bandwidth() {
        for fabric in Fabric::BOXES {
            let narrow = fabric.pair_gbps.min(fabric.port_gbps);
            for bytes in [1, 4096, 10_000_019] {
                // 1 byte at 1 MB/s takes 10^6 picoseconds.
                let expected =
                    (fabric.hop_us * 1e6) as u64 + (u64::from(bytes) * 1_000_000).div_ceil((narrow * 1e3) as u64);
                assert_eq!(seen(&fabric, &[(1, 6, bytes)]), [expected], "{}", fabric.name);
            }
        }
        // Through a root port that is the narrowest.
        let thin = Fabric { root: Some(RootPort { gbps: 5.0, switch: 4 }), ..Fabric::B70_PCIE };
        assert_eq!(seen(&thin, &[(1, 6, 5000)]), [1_500_000 + 1_000_000]);
        assert_eq!(seen(&thin, &[(1, 2, 28_650)]), [1_500_000 + 1_000_000]);
    }

    #[test]
    fn two_through_a_root_port_take_twice_as_long() {
        let root = |gbps, switch| Fabric { root: Some(RootPort { gbps, switch }), ..Fabric::B70_PCIE };
        let pairs = [(0, 4, 286_500), (1, 5, 286_500)];
        let alone = seen(&root(28.65, 4), &pairs[..1])[0] - 1_500_000;
        assert_eq!(alone, 10_000_000);
        assert_eq!(*seen(&root(28.65, 4), &pairs).iter().max().unwrap() - 1_500_000, 2 * alone);
        // Not if they don't pass it, nor if it is wide enough.
        assert_eq!(*seen(&root(28.65, 8), &pairs).iter().max().unwrap() - 1_500_000, alone);
        let wide = *seen(&root(2000.0 * 28.65, 4), &pairs).iter().max().unwrap() - 1_500_000;
        assert!((alone..alone + alone / 1000).contains(&wide), "{wide}");
        // From one device to two others, and from two into one, which costs more.
        assert_eq!(*seen(&root(28.65, 8), &[(0, 1, 286_500), (0, 2, 286_500)]).iter().max().unwrap(), 21_500_000);
        let incast = *seen(&root(28.65, 8), &[(1, 0, 286_500), (2, 0, 286_500)]).iter().max().unwrap();
        assert!((21_500_001..23_500_000).contains(&incast), "{incast}");
    }

    #[test]
    fn a_pair_of_its_own_link_is_not_slowed_by_others() {
        let all: Vec<_> = (1..8).map(|to| (0, to, 200_000)).collect();
        let last = *seen(&Fabric::PVC_XELINK, &all).iter().max().unwrap();
        // Its own 10 us; the port, as wide as seven pairs, takes the last in after the others' heads.
        assert!((10_000_000 + 1_200_000..20_000_000).contains(&last), "{last}");
    }
}
