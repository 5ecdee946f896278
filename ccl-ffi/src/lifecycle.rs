//! Communicators: how they begin and end, and what can be asked of them.

use crate::abi::{OnecclConfig, OnecclUniqueId};
use crate::entry::{Code, IN_PROGRESS, SUCCESS, comm_entry, entry, making_entry, null, put, splitting_entry};
use crate::farewell;
use crate::forming::{From, Making, Wish};
use crate::handle::{OnecclComm, State};
use crate::settings;
use ccl_core::bootstrap::{self, UniqueId};
use ccl_core::{Error, Result};
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// For calls in flight to notice an abort.
const TIME_TO_GIVE_UP: Duration = Duration::from_secs(2);

/// Makes the id of a new group; its rendezvous runs in this process until the group has formed.
///
/// # Safety
/// `id` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclGetUniqueId(id: *mut OnecclUniqueId) -> Code {
    entry("onecclGetUniqueId", || {
        // Before a rendezvous is started that nobody could come to.
        if id.is_null() {
            return Err(null("unique id"));
        }
        settings::config()?;
        let data = *UniqueId::create(Default::default())?.as_bytes();
        // SAFETY: passed on to the caller.
        unsafe { put(id, OnecclUniqueId { data }, "unique id") }
    })
}

/// Chooses the device of the communicators and the memory that this thread makes from now on.
#[unsafe(no_mangle)]
pub extern "C" fn onecclSetDevice(index: u32) -> Code {
    entry("onecclSetDevice", || {
        settings::set_device(index);
        Ok(SUCCESS)
    })
}

/// Joins the group of `id`. Returns when all ranks have; within a group of calls that is the group's end.
///
/// # Safety
/// `comm` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommInitRank(
    comm: *mut *mut OnecclComm,
    world_size: usize,
    id: OnecclUniqueId,
    rank: c_int,
) -> Code {
    // SAFETY: passed on to the caller.
    making_entry("onecclCommInitRank", || unsafe { join(comm, world_size, id, rank, std::ptr::null()) })
}

/// The same with a configuration, which may be null.
///
/// # Safety
/// As for [`onecclCommInitRank`]; `config` is null or a configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommInitRankConfig(
    comm: *mut *mut OnecclComm,
    world_size: usize,
    id: OnecclUniqueId,
    rank: c_int,
    config: *const OnecclConfig,
) -> Code {
    // SAFETY: passed on to the caller.
    making_entry("onecclCommInitRankConfig", || unsafe { join(comm, world_size, id, rank, config) })
}

/// # Safety
/// As for [`onecclCommInitRankConfig`].
unsafe fn join(
    comm: *mut *mut OnecclComm,
    world_size: usize,
    id: OnecclUniqueId,
    rank: c_int,
    config: *const OnecclConfig,
) -> Result<Code> {
    // What is not made is null, whatever was there before.
    // SAFETY: passed on to the caller.
    unsafe { put(comm, std::ptr::null_mut(), "the place for the communicator")? };
    let id = UniqueId::from_bytes(id.data);
    let rank = usize::try_from(rank).ok().filter(|rank| *rank < world_size).ok_or_else(|| {
        let error = Error::InvalidArgument(format!("rank {rank} of {world_size}"));
        // The ranks that have come already would wait for one that can't come.
        bootstrap::decline(&id, usize::MAX, world_size, &error);
        error
    })?;
    // A variable that is wrong stays so, and this rank can't come.
    let settings = settings::config().inspect_err(|error| bootstrap::decline(&id, rank, world_size, error))?;
    let wish = Wish { config: settings.clone(), blocking: true };
    // SAFETY: passed on to the caller.
    let wish = unsafe { wish.with(config)? };
    let from = From::Id { id: Box::new(id), rank, world_size, device: settings::device() };
    // SAFETY: as above.
    unsafe { make(comm, from, wish) }
}

/// # Safety
/// `place` is valid for a write.
unsafe fn make(place: *mut *mut OnecclComm, from: From, wish: Wish) -> Result<Code> {
    let (making, handle) = Making::new(from, wish)?;
    let code = making.begin()?;
    let handle = handle.map_or(std::ptr::null_mut(), |handle| std::ptr::from_ref(handle).cast_mut());
    // SAFETY: by this function's contract.
    unsafe { put(place, handle, "the place for the communicator")? };
    Ok(code)
}

/// Makes a communicator of those ranks that name the same colour, ordered by key, then by rank. All ranks call this. A rank
/// whose colour is -1 (`ONECCL_SPLIT_NOCOLOR`) gets null.
///
/// # Safety
/// `communicator` is null or a handle, `made` null or valid for a write, `config` null or a configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommSplit(
    communicator: *mut OnecclComm,
    color: c_int,
    key: c_int,
    made: *mut *mut OnecclComm,
    config: *mut OnecclConfig,
) -> Code {
    let body = |handle: &'static OnecclComm| {
        // SAFETY: passed on to the caller.
        unsafe { put(made, std::ptr::null_mut(), "the place for the communicator")? };
        let parent = handle.live()?;
        let color = match color {
            -1 => None,
            color => Some(u32::try_from(color).map_err(|_| Error::InvalidArgument(format!("colour {color}")))?),
        };
        // SAFETY: as above.
        let wish = unsafe { parent.wish.clone().with(config)? };
        // SAFETY: as above.
        unsafe { make(made, From::Parent { parent, color, key }, wish) }
    };
    // SAFETY: passed on to the caller.
    unsafe { splitting_entry("onecclCommSplit", communicator, body) }
}

/// Waits for the communicator's calls; it takes no more.
///
/// # Safety
/// `communicator` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommFinalize(communicator: *mut OnecclComm) -> Code {
    let body = |handle: &'static OnecclComm| {
        let live = handle.finalize()?;
        // A call holds it as long as it runs, which is bounded.
        drop(live.host.lock());
        live.settle_queues()?;
        live.comm.check_ended()?;
        Ok(SUCCESS)
    };
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("onecclCommFinalize", communicator, body) }
}

/// Ends a communicator; its collectives are waited for. One that was aborted may be destroyed as well.
///
/// # Safety
/// `communicator` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommDestroy(communicator: *mut OnecclComm) -> Code {
    let body = |handle: &'static OnecclComm| match handle.become_state(State::Destroyed)? {
        State::Destroyed => Err(Error::InvalidUsage("the communicator was destroyed before".into())),
        old => {
            farewell::not_of(handle);
            drop(old);
            Ok(SUCCESS)
        }
    };
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("onecclCommDestroy", communicator, body) }
}

/// Ends a communicator without waiting for what may not end: its calls in flight, on other threads and other ranks too, fail.
/// What can't begin stays until the communicator is destroyed. May be called from any thread.
///
/// # Safety
/// `communicator` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommAbort(communicator: *mut OnecclComm) -> Code {
    let body = |handle: &'static OnecclComm| {
        handle.ledger.aborting.store(true, Ordering::Relaxed);
        match handle.become_state(State::Aborted(None))? {
            State::Live(live) | State::Finalized(live) => {
                live.comm.abort("onecclCommAbort was called");
                // What is not over by then has not begun, being behind work of the caller's, whose end may be this thread's.
                if !live.comm.is_over_within(TIME_TO_GIVE_UP) {
                    handle.leave_to_destroy(live);
                }
            }
            State::Destroyed => {
                handle.become_state(State::Destroyed)?;
                return Err(Error::InvalidUsage("the communicator was destroyed".into()));
            }
            State::Aborted(Some(live)) => handle.leave_to_destroy(live),
            State::Forming | State::Failed(_) | State::Aborted(None) => {}
        }
        Ok(SUCCESS)
    };
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("onecclCommAbort", communicator, body) }
}

/// How the communicator is: `onecclInProgress` while it is being made, else the code of its first failure, a refused
/// collective included.
///
/// # Safety
/// `communicator` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommGetAsyncError(communicator: *mut OnecclComm) -> Code {
    let body = |handle: &'static OnecclComm| {
        if handle.is_forming()? {
            return Ok(IN_PROGRESS);
        }
        handle.known()?;
        Ok(handle.first_failure().map_or(SUCCESS, |(code, _)| *code))
    };
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("onecclCommGetAsyncError", communicator, body) }
}

/// Number of ranks.
///
/// # Safety
/// `communicator` is null or a handle, `count` null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommCount(communicator: *mut OnecclComm, count: *mut c_int) -> Code {
    // SAFETY: passed on to the caller.
    let body = |handle: &'static OnecclComm| unsafe { put(count, handle.known()?.comm.world_size() as c_int, "count") };
    // SAFETY: as above.
    unsafe { comm_entry("onecclCommCount", communicator, body) }
}

/// This rank.
///
/// # Safety
/// `communicator` is null or a handle, `rank` null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommUserRank(communicator: *mut OnecclComm, rank: *mut c_int) -> Code {
    // SAFETY: passed on to the caller.
    let body = |handle: &'static OnecclComm| unsafe { put(rank, handle.known()?.comm.rank() as c_int, "rank") };
    // SAFETY: as above.
    unsafe { comm_entry("onecclCommUserRank", communicator, body) }
}

/// Number of the communicator's device, among those that the driver shows.
///
/// # Safety
/// `communicator` is null or a handle, `device` null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommDevice(communicator: *mut OnecclComm, device: *mut c_int) -> Code {
    let body = |handle: &'static OnecclComm| {
        let index = handle.known()?.comm.describe().device_index;
        // SAFETY: passed on to the caller.
        unsafe { put(device, index as c_int, "device") }
    };
    // SAFETY: as above.
    unsafe { comm_entry("onecclCommDevice", communicator, body) }
}
