//! Faults on demand: what [`crate::ext::zeSoftFault_t`] plants, and what the rest of the driver asks about it.
//!
//! While no fault is planted each question costs one relaxed load.

use crate::abi::{input, run};
use crate::config::MAX_DEVICES;
use crate::device::ORDINALS;
use crate::error::fail;
use crate::ext::*;
use level_zero_sys::{
    ZE_RESULT_ERROR_INVALID_ARGUMENT, ZE_RESULT_ERROR_INVALID_ENUMERATION, ZE_RESULT_ERROR_INVALID_SIZE, ze_result_t,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// One bit per kind that is planted anywhere.
static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// The faults of one queue; 0 means none.
struct Queue {
    delay: AtomicU64,
    /// State of the random delays; 0 means that the delay is the same each time.
    random: AtomicU64,
    /// How many signals there are up to and with the one to lose.
    signals: AtomicU64,
    reorder: AtomicU64,
}

static QUEUES: [[Queue; ORDINALS as usize]; MAX_DEVICES as usize] = [const {
    [const {
        Queue {
            delay: AtomicU64::new(0),
            random: AtomicU64::new(0),
            signals: AtomicU64::new(0),
            reorder: AtomicU64::new(0),
        }
    }; ORDINALS as usize]
}; MAX_DEVICES as usize];

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static IPC_OPENS: AtomicU64 = AtomicU64::new(0);

/// Faults that a mapping takes over when it is opened.
static LINKS: Mutex<Vec<Link>> = Mutex::new(Vec::new());

/// Edges of graphs that are to be instantiated.
static EDGES: Mutex<Vec<EdgeRule>> = Mutex::new(Vec::new());

/// What becomes of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeFault {
    Drop,
    Stale,
}

/// Which edges a fault concerns.
#[derive(Clone, Copy)]
pub(crate) struct EdgeRule {
    device: u32,
    ordinal: u32,
    from: u32,
    to: u32,
    fault: EdgeFault,
}

impl EdgeFault {
    /// What becomes of the edge between node `from` and a node of (device, ordinal, number); the first rule counts.
    pub(crate) fn of(rules: &[EdgeRule], from: usize, (device, ordinal, to): (u32, u32, usize)) -> Option<Self> {
        let is = |wanted: u32, number: usize| wanted == ZESOFT_ANY || wanted as usize == number;
        let hit = |rule: &&EdgeRule| {
            is(rule.device, device as usize)
                && is(rule.ordinal, ordinal as usize)
                && is(rule.from, from)
                && is(rule.to, to)
        };
        rules.iter().find(hit).map(|rule| rule.fault)
    }
}

/// The rules for graphs that are instantiated now.
pub(crate) fn edges() -> Vec<EdgeRule> {
    if active(ZESOFT_FAULT_DROP_EDGES) || active(ZESOFT_FAULT_STALE_EDGES) { EDGES.lock().clone() } else { Vec::new() }
}

struct Link {
    opener: u32,
    fault: LinkFault,
}

#[derive(Clone, Copy)]
enum LinkFault {
    Corrupt { owner: u32 },
    Late(Late),
}

/// How stores through a mapping are to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    /// Bytes that arrive as one.
    pub(crate) granule: usize,
    pub(crate) max_delay: Duration,
    pub(crate) seed: u64,
}

/// What becomes of a mapping that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    True,
    Corrupt,
    Late(Late),
}

/// A well mixed number for each state.
pub(crate) fn mix(state: u64) -> u64 {
    let mut x = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0xd1b5_4a32_d192_ed03);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn active(kind: u32) -> bool {
    ACTIVE.load(Relaxed) & (1 << kind) != 0
}

fn queue(device: u32, ordinal: u32) -> Option<&'static Queue> {
    QUEUES.get(device as usize)?.get(ordinal as usize)
}

/// Counts one event and tells whether it is the one that is to fail.
fn strikes(countdown: &AtomicU64) -> bool {
    countdown.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) == Ok(1)
}

/// How late the next command of this queue starts.
pub(crate) fn queue_delay(device: u32, ordinal: u32) -> Duration {
    if !active(ZESOFT_FAULT_DELAY_QUEUE) {
        return Duration::ZERO;
    }
    let Some(queue) = queue(device, ordinal) else { return Duration::ZERO };
    let max = queue.delay.load(Relaxed);
    let random =
        queue.random.fetch_update(Relaxed, Relaxed, |state| (state != 0).then(|| state.wrapping_add(1).max(1)));
    Duration::from_nanos(match random {
        Ok(state) => mix(state) % max.max(1),
        Err(_) => max,
    })
}

/// Whether the signal that this queue is about to give gets lost.
pub(crate) fn lose_signal(device: u32, ordinal: u32) -> bool {
    active(ZESOFT_FAULT_LOSE_SIGNAL) && queue(device, ordinal).is_some_and(|queue| strikes(&queue.signals))
}

/// Where the shuffling of this queue's commands starts; 0: they aren't shuffled.
pub(crate) fn reorder_seed(device: u32, ordinal: u32) -> u64 {
    if !active(ZESOFT_FAULT_REORDER) {
        return 0;
    }
    queue(device, ordinal).map_or(0, |queue| queue.reorder.load(Relaxed))
}

/// Whether the allocation that is being made fails.
pub(crate) fn fail_allocation() -> bool {
    active(ZESOFT_FAULT_FAIL_ALLOCATION) && strikes(&ALLOCATIONS)
}

/// Whether the IPC handle that is being opened fails to open.
pub(crate) fn fail_ipc_open() -> bool {
    active(ZESOFT_FAULT_FAIL_IPC_OPEN) && strikes(&IPC_OPENS)
}

/// What becomes of memory of `owner` that `opener` is opening; of several faults the one planted last.
pub(crate) fn mapped(opener: u32, owner: u32) -> Mapped {
    let is = |wanted: u32, device: u32| wanted == ZESOFT_ANY || wanted == device;
    for link in LINKS.lock().iter().rev().filter(|link| is(link.opener, opener)) {
        match link.fault {
            LinkFault::Corrupt { owner: wanted } if is(wanted, owner) => return Mapped::Corrupt,
            LinkFault::Corrupt { .. } => {}
            LinkFault::Late(late) => return Mapped::Late(late),
        }
    }
    Mapped::True
}

fn clear() {
    for queue in QUEUES.iter().flatten() {
        for number in [&queue.delay, &queue.random, &queue.signals, &queue.reorder] {
            number.store(0, Relaxed);
        }
    }
    ALLOCATIONS.store(0, Relaxed);
    IPC_OPENS.store(0, Relaxed);
    LINKS.lock().clear();
    EDGES.lock().clear();
    ACTIVE.store(0, Relaxed);
}

/// The queues that a fault names.
fn queues(fault: &zesoft_fault_t) -> Result<impl Iterator<Item = &'static Queue>, ze_result_t> {
    let select = |wanted: u32, count: u32, what: &str| match wanted {
        ZESOFT_ANY => Ok(0..count),
        number if number < count => Ok(number..number + 1),
        number => Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("there is no {what} {number}"))),
    };
    let devices = select(fault.device, MAX_DEVICES, "device")?;
    let ordinals = select(fault.ordinal, ORDINALS, "queue ordinal")?;
    Ok(devices.flat_map(move |device| ordinals.clone().filter_map(move |ordinal| queue(device, ordinal))))
}

fn counted(fault: &zesoft_fault_t) -> Result<u64, ze_result_t> {
    match fault.value {
        0 => Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a fault that strikes the n-th time needs n of at least 1")),
        count => Ok(count),
    }
}

fn plant(fault: &zesoft_fault_t) -> Result<(), ze_result_t> {
    match fault.kind {
        ZESOFT_FAULT_CLEAR => {
            clear();
            return Ok(());
        }
        ZESOFT_FAULT_DELAY_QUEUE => {
            for queue in queues(fault)? {
                queue.delay.store(fault.value, Relaxed);
                queue.random.store(fault.seed, Relaxed);
            }
        }
        ZESOFT_FAULT_LOSE_SIGNAL => {
            let count = counted(fault)?;
            queues(fault)?.for_each(|queue| queue.signals.store(count, Relaxed));
        }
        ZESOFT_FAULT_REORDER => queues(fault)?.for_each(|queue| queue.reorder.store(fault.seed, Relaxed)),
        ZESOFT_FAULT_FAIL_ALLOCATION => ALLOCATIONS.store(counted(fault)?, Relaxed),
        ZESOFT_FAULT_FAIL_IPC_OPEN => IPC_OPENS.store(counted(fault)?, Relaxed),
        ZESOFT_FAULT_CORRUPT_LINK => {
            LINKS.lock().push(Link { opener: fault.device, fault: LinkFault::Corrupt { owner: fault.ordinal } });
        }
        ZESOFT_FAULT_LATE_STORES => {
            let granule = fault.ordinal as usize;
            if ![8, 16, 64].contains(&granule) {
                let text = format!("a granule of {granule} bytes is none of 8, 16, 64");
                return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
            }
            let late = Late { granule, max_delay: Duration::from_nanos(fault.value), seed: fault.seed };
            LINKS.lock().push(Link { opener: fault.device, fault: LinkFault::Late(late) });
        }
        ZESOFT_FAULT_DROP_EDGES | ZESOFT_FAULT_STALE_EDGES => {
            let (device, ordinal) = (fault.device, fault.ordinal);
            let (from, to) = ((fault.value >> 32) as u32, fault.value as u32);
            let kind = if fault.kind == ZESOFT_FAULT_DROP_EDGES { EdgeFault::Drop } else { EdgeFault::Stale };
            EDGES.lock().push(EdgeRule { device, ordinal, from, to, fault: kind });
        }
        kind => return Err(fail(ZE_RESULT_ERROR_INVALID_ENUMERATION, format!("there is no fault of kind {kind}"))),
    }
    ACTIVE.fetch_or(1 << fault.kind, Relaxed);
    Ok(())
}

pub(crate) unsafe extern "C" fn set_fault(fault: *const zesoft_fault_t) -> ze_result_t {
    run(|| {
        // SAFETY: the caller's pointer is null or points to a structure that begins with its size.
        let size = *unsafe { input(fault.cast::<u32>()) }? as usize;
        if size < size_of::<zesoft_fault_t>() {
            return Err(fail(ZE_RESULT_ERROR_INVALID_SIZE, format!("zesoft_fault_t of {size} bytes is too short")));
        }
        // SAFETY: the structure is as long as it says.
        plant(unsafe { input(fault) }?)
    })
}
