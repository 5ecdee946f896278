//! Which calls are compared: a share of them that every rank draws alike, and fewer while the witness takes too much.

/// More halvings than this leave as good as nothing.
const MOST_HALVINGS: u32 = 20;
/// How far ahead a change begins: beyond what any rank has drawn already, as a rule. Where one has, its calls are left out.
const AHEAD: u64 = 1024;

/// What a rank draws by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    share: u32,
    halvings: u32,
    /// From this call on, the next one holds.
    from: u64,
    next: u32,
}

impl Sample {
    /// A share in percent.
    pub(crate) const fn new(share: u32) -> Sample {
        Sample { share, halvings: 0, from: 0, next: 0 }
    }

    /// Whether any call at all is compared.
    pub(crate) const fn is_empty(&self) -> bool {
        self.share == 0
    }

    fn halvings(&self, call: u64) -> u32 {
        if call >= self.from { self.next } else { self.halvings }
    }

    /// Whether this call is compared. A call that a smaller share has is in every larger one.
    pub(crate) fn draws(&self, call: u64) -> bool {
        let chance = u64::from(mixed(call) as u32);
        chance * 100 < (u64::from(self.share) << 32) >> self.halvings(call)
    }

    /// Less or more, after the ranks have told each other the largest part that the witness takes of any of them. All ranks
    /// come to the same.
    pub(crate) fn adapt(&mut self, latest: u64, taken: f64, bound: f64) {
        // The last change has to show first.
        if latest < self.from {
            return;
        }
        self.halvings = self.next;
        if taken > bound && self.halvings < MOST_HALVINGS {
            self.next = self.halvings + 1;
        } else if taken < bound / 2.0 && self.halvings > 0 {
            self.next = self.halvings - 1;
        } else {
            return;
        }
        self.from = latest + AHEAD;
    }
}

/// Spreads numbers, so that no period of a program's calls meets one of ours.
const fn mixed(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (x ^ (x >> 31)) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sample: &Sample, from: u64, to: u64) -> u64 {
        (from..to).filter(|call| sample.draws(*call)).count() as u64
    }

    #[test]
    fn shares_are_shares() {
        assert_eq!(drawn(&Sample::new(100), 1, 10_001), 10_000);
        assert_eq!(drawn(&Sample::new(0), 1, 10_001), 0);
        let tenth = drawn(&Sample::new(10), 1, 100_001);
        assert!((9_500..10_500).contains(&tenth), "{tenth}");
        // Also of every 129th call, as a model makes them.
        let layer = (0..10_000).filter(|token| Sample::new(10).draws(token * 129 + 7)).count();
        assert!((800..1200).contains(&layer), "{layer}");
        assert!((1..10_000).all(|call| !Sample::new(10).draws(call) || Sample::new(20).draws(call)));
    }

    #[test]
    fn a_witness_that_takes_too_much_compares_less_and_then_more_again() {
        let mut sample = Sample::new(100);
        sample.adapt(10, 0.5, 0.1);
        assert_eq!(drawn(&sample, 11, 10 + AHEAD), AHEAD - 1, "not before the others know");
        let half = drawn(&sample, 10 + AHEAD, 10 + AHEAD + 10_000);
        assert!((4_700..5_300).contains(&half), "{half}");
        sample.adapt(20, 0.5, 0.1);
        assert_eq!(sample.next, 1, "the change has to show first");
        let mut latest = 10 + AHEAD;
        for _ in 0..30 {
            sample.adapt(latest, 0.5, 0.1);
            latest += AHEAD;
        }
        assert_eq!(sample.next, MOST_HALVINGS);
        for _ in 0..30 {
            sample.adapt(latest, 0.01, 0.1);
            latest += AHEAD;
        }
        assert!(sample.draws(latest), "everything again");
    }
}
