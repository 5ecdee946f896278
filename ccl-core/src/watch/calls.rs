//! The last calls of a communicator, so that a message can say what number 7 was.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::{DataType, Factor, ReduceOp};

/// Kept calls; more than are ever in flight.
const KEPT: usize = 64;

/// Which collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CallKind {
    /// All-reduce.
    AllReduce = 1,
    /// Reduce-scatter.
    ReduceScatter = 2,
    /// All-gather.
    AllGather = 3,
    /// All-to-all.
    AllToAll = 4,
    /// Broadcast.
    Broadcast = 5,
    /// Reduce.
    Reduce = 6,
    /// Send.
    Send = 7,
    /// Receive.
    Recv = 8,
    /// Barrier.
    Barrier = 9,
}

impl CallKind {
    const ALL: [CallKind; 9] = [
        CallKind::AllReduce,
        CallKind::ReduceScatter,
        CallKind::AllGather,
        CallKind::AllToAll,
        CallKind::Broadcast,
        CallKind::Reduce,
        CallKind::Send,
        CallKind::Recv,
        CallKind::Barrier,
    ];

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            CallKind::AllReduce => "all_reduce",
            CallKind::ReduceScatter => "reduce_scatter",
            CallKind::AllGather => "all_gather",
            CallKind::AllToAll => "all_to_all",
            CallKind::Broadcast => "broadcast",
            CallKind::Reduce => "reduce",
            CallKind::Send => "send",
            CallKind::Recv => "recv",
            CallKind::Barrier => "barrier",
        }
    }
}

/// What a call was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Which collective.
    pub kind: CallKind,
    /// Elements.
    pub count: u64,
    /// Element type.
    pub dtype: DataType,
    /// Reduction, if it is one. Its factor is not kept.
    pub op: Option<ReduceOp>,
}

/// A ring that one thread at a time writes and any thread reads.
#[derive(Debug)]
pub(super) struct Calls([Slot; KEPT]);

/// `number` is 0 while the rest is being written.
#[derive(Debug, Default)]
struct Slot {
    number: AtomicU64,
    count: AtomicU64,
    what: AtomicU64,
}

impl Default for Calls {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Slot::default()))
    }
}

impl Calls {
    pub(super) fn record(&self, number: u64, call: Call) {
        let op = call.op.map_or(0, |op| u64::from(op.code()) + 1);
        let slot = &self.0[number as usize % KEPT];
        slot.number.store(0, Ordering::Relaxed);
        // A reader that sees a new field sees the zero as well.
        fence(Ordering::Release);
        slot.count.store(call.count, Ordering::Relaxed);
        slot.what.store(call.kind as u64 | (call.dtype as u64) << 8 | op << 16, Ordering::Relaxed);
        slot.number.store(number, Ordering::Release);
    }

    fn get(&self, number: u64) -> Option<Call> {
        let slot = &self.0[number as usize % KEPT];
        if number == 0 || slot.number.load(Ordering::Acquire) != number {
            return None;
        }
        let (count, what) = (slot.count.load(Ordering::Relaxed), slot.what.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if slot.number.load(Ordering::Relaxed) != number {
            return None;
        }
        let dtype = DataType::from_abi((what >> 8) as u32 & 0xFF)?;
        Some(Call {
            kind: CallKind::ALL.into_iter().find(|kind| *kind as u64 == what & 0xFF)?,
            count,
            dtype,
            op: ((what >> 16) as u32).checked_sub(1).and_then(|code| ReduceOp::from_code(code, Factor::new(dtype, 0))),
        })
    }

    pub(super) fn describe(&self, number: u64) -> String {
        match self.get(number) {
            None => format!("collective #{number}"),
            Some(Call { kind, count, dtype, op }) => {
                let op = op.map(|op| format!(" {op}")).unwrap_or_default();
                format!("{} #{number} ({count} {dtype}{op})", kind.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_calls_are_known_and_older_ones_are_not() {
        let calls = Calls::default();
        assert_eq!(calls.describe(0), "collective #0");
        for number in 1..=100 {
            let op = (number % 2 == 0).then_some(ReduceOp::Sum);
            let kind = if op.is_some() { CallKind::AllReduce } else { CallKind::AllGather };
            calls.record(number, Call { kind, count: number * 10, dtype: DataType::Bfloat16, op });
        }
        assert_eq!(calls.describe(100), "all_reduce #100 (1000 bfloat16 sum)");
        assert_eq!(calls.describe(37), "all_gather #37 (370 bfloat16)");
        assert_eq!(calls.describe(36), "collective #36");
        assert_eq!(calls.describe(101), "collective #101");
        let op = Some(ReduceOp::PreMulSum(Factor::new(DataType::Float32, 7)));
        calls.record(101, Call { kind: CallKind::AllReduce, count: 3, dtype: DataType::Float32, op });
        assert_eq!(calls.describe(101), "all_reduce #101 (3 float32 premulsum)");
    }

    #[test]
    fn a_reader_never_mixes_two_calls() {
        let calls = Calls::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 1..200_000u64 {
                    let kind = CallKind::ALL[number as usize % CallKind::ALL.len()];
                    calls.record(number, Call { kind, count: number, dtype: DataType::Int8, op: None });
                }
            });
            let mut seen = 0u64;
            let mut number = 1;
            while !writer.is_finished() {
                number = number % 200_000 + 1;
                if let Some(call) = calls.get(number) {
                    assert_eq!(call.count, number);
                    assert_eq!(call.kind, CallKind::ALL[number as usize % CallKind::ALL.len()]);
                    seen += 1;
                }
            }
            assert!(seen > 0 || number < 200_000, "a long run that never met a call shows nothing");
        });
    }
}
