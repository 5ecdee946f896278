//! Groups: the calls of one are made at its end, so that is when their buffers are looked at.

use crate::abi::{Code, SUCCESS};
use crate::call::Call;
use crate::places::{self, Birth};
use crate::real::under;
use crate::watched::Watched;
use std::cell::RefCell;
use std::sync::Arc;

#[derive(Default)]
struct Group {
    depth: usize,
    born: Vec<(usize, Birth)>,
    calls: Vec<(Arc<Watched>, Call)>,
    /// Where messages are received: address and bytes.
    received: Vec<(usize, usize)>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Whether this thread has a group open.
pub(crate) fn is_open() -> bool {
    GROUP.with_borrow(|group| group.depth > 0)
}

/// A call of the open group.
pub(crate) fn queue(watched: Arc<Watched>, call: Call) {
    GROUP.with_borrow_mut(|group| group.calls.push((watched, call)));
}

/// A message of the open group will lie there.
pub(crate) fn receives(address: usize, bytes: usize) {
    GROUP.with_borrow_mut(|group| group.received.push((address, bytes)));
}

/// A communicator comes to be, now or at the group's end.
pub(crate) fn born(place: usize, birth: Birth) {
    let now = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Some(birth);
        }
        group.born.push((place, birth));
        None
    });
    if let Some(birth) = now {
        places::birth(place, birth);
    }
}

/// What was in its buffers when it was made is not known.
const OVERWRITTEN: &str = "another call of its group writes into its buffers";
/// As the other call's buffers end nobody knows where.
const UNKNOWN: &str = "another call of its group may write into its buffers: the ranks' witnesses have not met";

/// Which calls have buffers that another call of the group writes into, or may.
fn hidden(calls: &[(Arc<Watched>, Call)], received: &[(usize, usize)]) -> Vec<Option<&'static str>> {
    // With the number of the call; messages come behind the calls.
    let messages = received.iter().enumerate().map(|(i, (at, bytes))| (*at, *bytes, true, calls.len() + i));
    let mut spans: Vec<(usize, usize, bool, usize)> = messages.collect();
    for (index, (watched, call)) in calls.iter().enumerate() {
        let seat = if call.lacks_table() { None } else { watched.seat() };
        // One of which it isn't known may write anywhere. What it is a moment later no longer counts, nor is it waited for again.
        let Some(seat) = seat else { return vec![Some(UNKNOWN); calls.len()] };
        if let Ok((send, recv)) = call.extents(seat.n, seat.rank) {
            spans.extend([(call.send, send, false, index), (call.recv, recv, true, index)]);
        }
    }
    spans.retain(|span| span.1 > 0);
    spans.sort_unstable();
    let mut hidden = vec![None; calls.len() + received.len()];
    let mut open: Vec<(usize, bool, usize)> = Vec::new();
    for (start, bytes, written, index) in spans {
        open.retain(|(end, _, _)| *end > start);
        for (_, also_written, other) in &open {
            if *other != index && (written || *also_written) {
                hidden[index] = Some(OVERWRITTEN);
                hidden[*other] = Some(OVERWRITTEN);
            }
        }
        open.push((start.saturating_add(bytes), written, index));
    }
    hidden.truncate(calls.len());
    hidden
}

/// Opens a group, or one more level of it.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclGroupStart() -> Code {
    // SAFETY: passed on to the caller.
    let code = unsafe { under::onecclGroupStart() };
    if code == SUCCESS {
        GROUP.with_borrow_mut(|group| group.depth += 1);
    }
    code
}

/// Closes a level of the group; the outermost makes its calls.
///
/// # Safety
/// As the library underneath has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclGroupEnd() -> Code {
    let ended = GROUP.with_borrow_mut(|group| match group.depth {
        1 => Some(std::mem::take(group)),
        depth => {
            group.depth = depth.saturating_sub(1);
            None
        }
    });
    let Some(Group { born, calls, received, .. }) = ended else {
        // SAFETY: passed on to the caller.
        return unsafe { under::onecclGroupEnd() };
    };
    let hidden = hidden(&calls, &received);
    let mut entered: Vec<(Arc<Watched>, u64)> = Vec::new();
    let mut begun = Vec::with_capacity(calls.len());
    for ((watched, call), hidden) in calls.into_iter().zip(hidden) {
        if !entered.iter().any(|(known, _)| Arc::ptr_eq(known, &watched)) {
            entered.push((watched.clone(), watched.enter()));
        }
        let call = watched.begin(call, false, hidden);
        begun.extend(call.map(|call| (watched, call)));
    }
    // SAFETY: passed on to the caller.
    let code = unsafe { under::onecclGroupEnd() };
    let alone: Vec<_> = entered.into_iter().map(|(watched, mark)| (watched.leave(mark), watched)).collect();
    for (watched, call) in begun {
        let alone = alone.iter().any(|(alone, known)| *alone && Arc::ptr_eq(known, &watched));
        watched.end(call, code, alone);
    }
    if code == SUCCESS {
        born.into_iter().for_each(|(place, birth)| places::birth(place, birth));
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Op, What};
    use crate::watched::Seat;
    use ccl_core::collective::Collective;
    use ccl_core::{DataType, ReduceOp};
    use std::time::Duration;

    fn call(send: usize, recv: usize) -> Call {
        Call {
            what: What::AllReduce,
            count: 25,
            dtype: DataType::Float32,
            op: Op::Known(ReduceOp::Sum),
            table: None,
            send,
            recv,
        }
    }

    fn are_hidden(calls: &[(Arc<Watched>, Call)], received: &[(usize, usize)]) -> Vec<bool> {
        hidden(calls, received).iter().map(Option::is_some).collect()
    }

    #[test]
    fn calls_that_touch_each_other_are_hidden() {
        let watched = Watched::new(Some(Seat { rank: 0, n: 2 }));
        let calls = [
            call(0x1000, 0x1000),
            call(0x2000, 0x3000),
            // Reads what the second reads.
            call(0x2000, 0x4000),
            // Reads what the third writes.
            call(0x4060, 0x5000),
            call(0x6000, 0x1064),
        ];
        let calls: Vec<_> = calls.into_iter().map(|call| (watched.clone(), call)).collect();
        assert_eq!(are_hidden(&calls, &[]), [false, false, true, true, false]);
        // A message that comes into what the second reads, one beside everything.
        assert_eq!(are_hidden(&calls, &[(0x2010, 4), (0x7000, 64)]), [false, true, true, true, false]);
    }

    /// The second call writes into what the first reads: with the seat that can be told, without it nothing can.
    #[test]
    fn a_call_of_which_nothing_is_known_hides_all() {
        let known = Watched::new(Some(Seat { rank: 1, n: 2 }));
        let late = Watched::with(None, 100, Duration::from_millis(5));
        let beside = (known.clone(), call(0x9000, 0xA000));
        let calls = [(known.clone(), call(0x1000, 0x2000)), (late.clone(), call(0x3000, 0x1000)), beside.clone()];
        assert_eq!(hidden(&calls, &[]), [Some(UNKNOWN); 3]);
        late.sit(Seat { rank: 0, n: 2 });
        assert_eq!(hidden(&calls, &[]), [Some(OVERWRITTEN), Some(OVERWRITTEN), None]);
        // Of this one it was not known how many counts it has when it was called.
        let pieces = Call { what: What::Other(Collective::AllToAllV), count: 0, ..call(0x3000, 0x1000) };
        let calls = [(known, call(0x1000, 0x2000)), (late, pieces), beside];
        assert_eq!(hidden(&calls, &[]), [Some(UNKNOWN); 3]);
    }
}
