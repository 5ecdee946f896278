//! What a stream was told to do to a regular event: until the stream comes to it, the event's state is not what the
//! commands behind must go by.

use crate::engine::cuda::Home;
use std::sync::atomic::{AtomicU64, Ordering};

/// The last of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// Nothing, or the host has changed the state since: it says all.
    Nothing,
    /// To signal it.
    Signal(Home),
    /// To reset it, as so many things of its.
    Reset(Home, u64),
}

/// A [`Given`] that changes: a bit for signals over 15 bits of stream over 48 of a reset's number.
#[derive(Default)]
pub(super) struct GivenCell(AtomicU64);

const SIGNAL: u64 = 1 << 63;
const NUMBER_BITS: u32 = 48;

impl GivenCell {
    pub(super) fn set(&self, given: Given) {
        let word = match given {
            Given::Nothing => 0,
            Given::Signal(home) => SIGNAL | u64::from(home.0) << NUMBER_BITS,
            Given::Reset(home, number) => u64::from(home.0) << NUMBER_BITS | number,
        };
        self.0.store(word, Ordering::Release);
    }

    pub(super) fn get(&self) -> Given {
        let word = self.0.load(Ordering::Acquire);
        let home = Home((word >> NUMBER_BITS) as u16 & 0x7FFF);
        match word {
            0 => Given::Nothing,
            _ if word & SIGNAL != 0 => Given::Signal(home),
            _ => Given::Reset(home, word & ((1 << NUMBER_BITS) - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_what_they_are_given() {
        let cell = GivenCell::default();
        assert_eq!(cell.get(), Given::Nothing);
        for given in [Given::Signal(Home(1)), Given::Reset(Home(1024), 1), Given::Reset(Home(3), (1 << 48) - 1)] {
            cell.set(given);
            assert_eq!(cell.get(), given);
        }
    }
}
