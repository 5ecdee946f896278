//! The numbers of channels: messages from one rank to another, of which nobody else needs to know (docs/protocol.md,
//! "Channels").

use super::{CommState, MAX_RANKS};

/// Wires of a channel at most: a message's place depends on this alone, never on a call.
pub const CHANNEL_WIRES: usize = 16;
/// Messages of a channel that may be under way: its slots. Also what a sender is ahead of its credit at most.
pub const CHANNEL_DEPTH: usize = 2;
/// The least that the tags of a channel may begin anew after: so that a credit from before isn't the one that is waited
/// for.
pub const LEAST_LAP: u32 = 4;

/// What a rank knows of its channels, at the end of [`CommState`]; the wire's work-group alone uses a wire's words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ChannelState {
    /// By receiver and wire: the tag of the message sent last, 0 at first.
    pub sent: [[u32; CHANNEL_WIRES]; MAX_RANKS],
    /// By sender and wire: the tag of the message taken last, 0 at first and after the tags began anew.
    pub taken: [[u32; CHANNEL_WIRES]; MAX_RANKS],
    /// Calls between some ranks only that this one took part in.
    pub private_calls: u64,
}

impl ChannelState {
    /// Nothing was sent yet.
    pub const NEW: ChannelState = ChannelState {
        sent: [[0; CHANNEL_WIRES]; MAX_RANKS],
        taken: [[0; CHANNEL_WIRES]; MAX_RANKS],
        private_calls: 0,
    };
}

/// Where the device's kernels find it.
pub const CHANNEL_STATE_OFFSET: usize = 328;
const _: () = assert!(std::mem::offset_of!(CommState, channels) == CHANNEL_STATE_OFFSET);

/// Tags between two new beginnings, given the communicator's limit.
pub const fn lap(tag_limit: u32) -> u32 {
    if tag_limit < LEAST_LAP { LEAST_LAP } else { tag_limit }
}

/// The slot of the message with this tag.
pub const fn channel_slot(tag: u32) -> usize {
    tag as usize % CHANNEL_DEPTH
}

/// What the sender of a channel does before its next message: the message's tag, and the credit that it waits for.
pub const fn next_sent(sent: u32, lap: u32) -> (u32, Credit) {
    if sent == lap {
        return (1, Credit::Cleared);
    }
    let tag = sent + 1;
    if tag as usize <= CHANNEL_DEPTH { (tag, Credit::None) } else { (tag, Credit::Taken(tag - CHANNEL_DEPTH as u32)) }
}

/// What a sender waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credit {
    /// Nothing: the slot is free.
    None,
    /// At least this credit.
    Taken(u32),
    /// A credit of 0: everything of the last lap is taken, and its flags are cleared.
    Cleared,
}

impl Credit {
    /// Whether this credit is enough.
    pub const fn is_met(self, credit: u32) -> bool {
        match self {
            Credit::None => true,
            Credit::Taken(least) => credit >= least,
            Credit::Cleared => credit == 0,
        }
    }

    /// What to tell of a wait for it.
    pub const fn word(self) -> u32 {
        match self {
            Credit::None | Credit::Cleared => 0,
            Credit::Taken(least) => least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender and a receiver, each as far ahead as the rules let it, over many laps: nothing is overwritten, and each
    /// message is found where it lies.
    #[test]
    fn a_channel_goes_round() {
        for limit in [1, 4, 5, 6, 7, 255] {
            let lap = lap(limit);
            let (mut sent, mut credit, mut taken) = (0, 0, 0);
            let mut slots = [None::<(u32, u64)>; CHANNEL_DEPTH];
            let (mut next, mut awaited) = (0u64, 0u64);
            for turn in 0..10_000u64 {
                let (tag, needs) = next_sent(sent, lap);
                if needs.is_met(credit) && !turn.is_multiple_of(3) {
                    assert!(slots[channel_slot(tag)].is_none(), "limit {limit}: message {next} over another");
                    slots[channel_slot(tag)] = Some((tag, next));
                    (sent, next) = (tag, next + 1);
                }
                let expected = taken + 1;
                if turn.is_multiple_of(2)
                    && let Some((tag, number)) = slots[channel_slot(expected)]
                    && tag == expected
                {
                    assert_eq!(number, awaited);
                    slots[channel_slot(expected)] = None;
                    awaited += 1;
                    taken = if expected == lap { 0 } else { expected };
                    credit = taken;
                }
            }
            assert!(awaited > 2000, "limit {limit}: {awaited}");
        }
    }
}
