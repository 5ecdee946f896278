//! Groups: calls between `onecclGroupStart` and the outermost `onecclGroupEnd` of a thread are made together.
//!
//! The collectives of a communicator are made in the order of their calls, then its sends and receives: the first ones
//! between each two ranks together, then the second ones, and so on. Communicators take turns in an order that is alike on
//! all ranks. So no rank waits for one that waits for it, in whatever order each of them queued its calls, as long as all
//! queued what fits. What is due at the same time on several communicators (ranks of one group in one thread) is begun on
//! all of them before any is waited for.

use crate::boundary::{Code, SUCCESS, entry, hear};
use crate::call::{Call, What};
use crate::forming::Making;
use crate::handle::{Live, OnecclComm};
use crate::host::Step;
use ccl_core::{Error, Result};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A call that was checked.
struct Queued {
    handle: &'static OnecclComm,
    live: Arc<Live>,
    call: Call,
}

#[derive(Default)]
struct Group {
    depth: usize,
    making: Vec<Making>,
    calls: Vec<Queued>,
    /// The first failure of a call in it: then none is made.
    failed: Option<Error>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Makes a call, now or at the end of this thread's group.
pub(crate) fn issue(handle: &'static OnecclComm, call: impl FnOnce(&Live) -> Result<Call>) -> Result<Code> {
    let queued = handle.live().and_then(|live| {
        let call = call(&live)?;
        call.check(live.comm.world_size(), live.comm.rank())?;
        Ok(Queued { handle, live, call })
    });
    GROUP
        .with_borrow_mut(|group| match queued {
            Ok(queued) if group.depth == 0 => Ok(Some(queued)),
            Ok(queued) => {
                group.calls.push(queued);
                Ok(None)
            }
            Err(error) => {
                if group.depth > 0 {
                    group.failed.get_or_insert(error.clone());
                }
                Err(error)
            }
        })
        // The group is not borrowed while a call runs.
        .and_then(|now| now.map_or(Ok(()), |queued| make(vec![queued]).map_err(|(_, error)| error)))
        .map(|()| SUCCESS)
}

/// Leaves the making of a communicator to the end of this thread's group; gives it back where there is none.
pub(crate) fn defer(making: Making) -> Option<Making> {
    GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Some(making);
        }
        group.making.push(making);
        None
    })
}

/// Makes calls, in the order that this module is about. A failure comes with the communicator that it is of.
fn make(calls: Vec<Queued>) -> std::result::Result<(), (&'static OnecclComm, Error)> {
    let steps = steps(calls)?;
    let mut left = &steps[..];
    while let Some((first, _)) = left.split_first() {
        let together = left.iter().take_while(|step| step.turn == first.turn).count();
        let (now, later) = left.split_at(together);
        left = later;
        let mut begun = Vec::with_capacity(now.len());
        let mut outcome = Ok(());
        for Due { handle, live, step, .. } in now {
            let running = handle.ledger.run();
            // SAFETY: the callers of the queued calls keep their buffers until their group's end.
            match unsafe { live.begin(step) } {
                Ok(step) => begun.push((*handle, step, running)),
                Err(error) => {
                    outcome = Err((*handle, error));
                    break;
                }
            }
        }
        for (handle, step, running) in begun {
            // SAFETY: as above.
            let ended = unsafe { step.finish() };
            drop(running);
            outcome = outcome.and(ended.map_err(|error| (handle, error)));
        }
        outcome?;
    }
    Ok(())
}

/// A step and when it is its turn.
struct Due {
    /// Alike on all ranks: the communicator's name, collectives before sends and receives, number among these.
    turn: (u32, bool, usize),
    handle: &'static OnecclComm,
    live: Arc<Live>,
    step: Step,
}

/// A communicator's sends and receives by peer, in order.
#[derive(Default)]
struct Between {
    sends: BTreeMap<usize, Vec<Call>>,
    receives: BTreeMap<usize, Vec<Call>>,
}

fn steps(calls: Vec<Queued>) -> std::result::Result<Vec<Due>, (&'static OnecclComm, Error)> {
    struct Of {
        handle: &'static OnecclComm,
        live: Arc<Live>,
        collectives: usize,
        between: Between,
    }
    let mut communicators: Vec<Of> = Vec::new();
    let mut steps = Vec::with_capacity(calls.len());
    for Queued { handle, live, call } in calls {
        let index = communicators.iter().position(|known| std::ptr::eq(known.handle, handle)).unwrap_or_else(|| {
            communicators.push(Of { handle, live: live.clone(), collectives: 0, between: Between::default() });
            communicators.len() - 1
        });
        let of = &mut communicators[index];
        match call.what {
            What::Send { to } => of.between.sends.entry(to).or_default().push(call),
            What::Receive { from } => of.between.receives.entry(from).or_default().push(call),
            _ => {
                let turn = (live.name, false, of.collectives);
                of.collectives += 1;
                steps.push(Due { turn, handle, live, step: Step::One(call) });
            }
        }
    }
    for Of { handle, live, between, .. } in communicators {
        let rounds = between.rounds(live.comm.rank()).map_err(|error| (handle, error))?;
        for (round, calls) in rounds.into_iter().enumerate() {
            let turn = (live.name, true, round);
            steps.push(Due { turn, handle, live: live.clone(), step: Step::Exchange(calls) });
        }
    }
    // By rank too, so that two threads that do this begin in one order.
    steps.sort_by_key(|due| (due.turn, due.live.comm.rank()));
    Ok(steps)
}

impl Between {
    /// The first send to and receive from each peer, then the second ones, and so on. What is between a rank and itself is
    /// copied at once.
    fn rounds(mut self, rank: usize) -> Result<Vec<Vec<Call>>> {
        let own_sends = self.sends.remove(&rank).unwrap_or_default();
        let own_receives = self.receives.remove(&rank).unwrap_or_default();
        copy_own(rank, &own_sends, &own_receives)?;
        let mut rounds: Vec<Vec<Call>> = Vec::new();
        for calls in self.sends.into_values().chain(self.receives.into_values()) {
            // Nobody waits for what has no elements; the other side leaves it out as well.
            for (round, call) in calls.into_iter().filter(|call| call.count > 0).enumerate() {
                if rounds.len() <= round {
                    rounds.push(Vec::new());
                }
                rounds[round].push(call);
            }
        }
        Ok(rounds)
    }
}

/// A rank's sends to itself, in the order of its receives from itself.
fn copy_own(rank: usize, sends: &[Call], receives: &[Call]) -> Result<()> {
    let bytes = |call: &Call| call.count * call.dtype.size();
    if sends.len() != receives.len() || sends.iter().zip(receives).any(|(send, receive)| bytes(send) != bytes(receive))
    {
        return Err(Error::InvalidUsage(format!(
            "rank {rank} sends itself {} messages and receives {} of other sizes or number; both belong in one group",
            sends.len(),
            receives.len()
        )));
    }
    for (send, receive) in sends.iter().zip(receives).filter(|(send, _)| send.count > 0) {
        // SAFETY: both buffers hold that many bytes until the group's end; they may overlap.
        unsafe { std::ptr::copy(send.send.cast::<u8>(), receive.recv.cast::<u8>(), bytes(send)) };
    }
    Ok(())
}

/// Opens a group on this thread, or one more level of it.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGroupStart() -> Code {
    entry("onecclGroupStart", || {
        GROUP.with_borrow_mut(|group| group.depth += 1);
        Ok(SUCCESS)
    })
}

/// Closes a level of this thread's group; the outermost makes its calls and returns when they are done.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGroupEnd() -> Code {
    entry("onecclGroupEnd", || {
        let group = GROUP.with_borrow_mut(|group| match group.depth {
            0 => Err(Error::InvalidUsage("no group was started on this thread".into())),
            1 => Ok(std::mem::take(group)),
            _ => {
                group.depth -= 1;
                Ok(Group::default())
            }
        })?;
        // Communicators that are being made are told of it all the same: the other ranks wait for this one.
        let made = Making::run_all(group.making);
        if let Some(error) = group.failed {
            return Err(error);
        }
        made?;
        make(group.calls).map(|()| SUCCESS).map_err(|(handle, error)| {
            handle.await_end("onecclGroupEnd");
            let who = handle.ledger.who_and_where();
            hear("onecclGroupEnd", &who, &error);
            handle.ledger.refused("onecclGroupEnd", &error);
            error
        })
    })
}
