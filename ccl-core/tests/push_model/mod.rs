//! A model of calls of every algorithm one after another, made from the library's own plans: what is stored where under
//! which tag, with switches that take one rule of the protocol away at a time.
//!
//! [`program`] lays the plans out as strands of stores and receives, [`machine`] visits every state that they can reach,
//! [`order`] proves the same of sizes that no search reaches.

pub(crate) mod machine;
pub(crate) mod order;
pub(crate) mod program;

use ccl_core::config::{Algorithm, Config};
use ccl_core::mhc::{Params, Variant};
use ccl_core::plan::mhc::{Fused, MhcPlan};
use ccl_core::plan::push::{Mode, Transport};
use ccl_core::plan::{Agreed, Request};
use ccl_core::{DataType, Order, ReduceOp};

/// What must never happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// A receive found something else than the message meant for it.
    WrongMessage,
    /// A message or a flag was stored over one that had not been received.
    Overwritten,
    /// A clearing removed a flag that had not been seen.
    ClearedUnread,
    /// Ranks wait for ever.
    Deadlock,
    /// All calls ended and a message was never received.
    Leftover,
}

/// An algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Ring,
    Push(Mode, Transport),
    /// With an mHC boundary behind it, of so many rows and blocks of columns.
    Columns {
        rows: u64,
        blocks: u64,
    },
}

/// One collective of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    pub(crate) wires: u32,
}

impl Call {
    pub(crate) fn request(&self) -> Request {
        Request {
            count: self.bytes,
            dtype: DataType::Uint8,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        }
    }

    /// The plan of a call by columns. Its wires are those of the clearing.
    pub(crate) fn columns(&self, agreed: &Agreed) -> Option<MhcPlan> {
        let Kind::Columns { rows, blocks } = self.kind else { return None };
        let params = Params::new(Variant::V4, DataType::Bfloat16, rows, blocks * 128, 4);
        let config = Config { allreduce: Algorithm::OneShot, ..Config::default() };
        let mut plan = MhcPlan::new(&params, Fused::Whole, Order::Ring, agreed, &config).unwrap();
        assert!(plan.columns && plan.groups >= self.wires, "{plan}");
        plan.reduce.wires = self.wires;
        Some(plan)
    }
}

/// Which generation of slots a round uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Generations {
    /// The library's: by the tag.
    ByTag,
    /// One for all.
    One,
    /// By the round of the call.
    ByRound,
    /// By a count of the mode's own rounds: modes share regions without regard to each other.
    ByMode,
}

/// The rules in force. The default is the library's protocol; each negative control changes one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    pub(crate) generations: Generations,
    /// In a one-shot every line and every wire's flag goes in every round.
    pub(crate) every_round: bool,
    /// A bulk flag is stored after its data.
    pub(crate) flag_last: bool,
    /// A bulk flag is not seen before its data.
    pub(crate) release: bool,
    /// A mesh's results have slots of their own.
    pub(crate) results_apart: bool,
    /// The two ranks of a bulk slot of one-shots store into it by turns.
    pub(crate) turns: bool,
    /// A direct call waits for everybody to be ready.
    pub(crate) ready: bool,
    /// A direct call waits for everybody to be done.
    pub(crate) done: bool,
    /// The clearing covers more than the ring's slots.
    pub(crate) clears_all: bool,
    /// Barriers before and after the clearing.
    pub(crate) barriers: [bool; 2],
    /// By columns, every group waits until all wires are cleared everywhere.
    pub(crate) wires_awaited: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            generations: Generations::ByTag,
            every_round: true,
            flag_last: true,
            release: true,
            results_apart: true,
            turns: true,
            ready: true,
            done: true,
            clears_all: true,
            barriers: [true, true],
            wires_awaited: true,
        }
    }
}

/// Calls one after another on all ranks.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) agreed: Agreed,
    pub(crate) calls: Vec<Call>,
    pub(crate) rules: Rules,
    /// Lines of a segment that are looked at. To leave lines out only takes waits away: what holds without them holds.
    pub(crate) lines: Vec<u32>,
    /// Buffers of direct calls are in place.
    pub(crate) in_place: bool,
    /// Stores arrive later, in any order that the rules allow.
    pub(crate) delayed: bool,
    /// One thread plays all wires; otherwise each line, or each wire in bulk, goes its own way.
    pub(crate) thread: bool,
    /// Groups that share a block of columns: each reads all of its lines.
    pub(crate) parts: usize,
}

impl Scenario {
    pub(crate) fn new(agreed: Agreed, lines: &[u32], calls: &[Call]) -> Self {
        Self {
            agreed,
            calls: calls.to_vec(),
            rules: Rules::default(),
            lines: lines.to_vec(),
            in_place: false,
            delayed: false,
            thread: false,
            parts: 1,
        }
    }

    pub(crate) fn with(&self, rules: Rules) -> Self {
        Self { rules, ..self.clone() }
    }

    pub(crate) fn delayed(&self) -> Self {
        Self { delayed: true, ..self.clone() }
    }
}
