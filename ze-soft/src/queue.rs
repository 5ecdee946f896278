//! Command queues.

use crate::abi::{input, output, run};
use crate::context::Context;
use crate::entry::entry_points;
use crate::error::fail;
use crate::exec::{Executor, SourceCell, Work, wait};
use crate::fence::Fence;
use crate::handle::{Object, answer, export, get, take};
use crate::list::{List, queue_executor};
use level_zero_sys::*;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The executions submitted to one queue. They may end out of order, since each waits only for what it waits for.
pub(crate) struct Flow {
    executor: Arc<Executor>,
    issued: AtomicU64,
    /// All executions up to this number are over.
    through: AtomicU64,
    /// Those beyond that are over.
    early: Mutex<Vec<u64>>,
    /// What will have run the newest.
    newest: SourceCell,
    /// Where the executor's stream stood behind the newest that is over.
    given: AtomicU64,
}

impl Flow {
    fn new(executor: Arc<Executor>) -> Arc<Self> {
        Arc::new(Self {
            executor,
            issued: AtomicU64::new(0),
            through: AtomicU64::new(0),
            early: Mutex::default(),
            newest: SourceCell::default(),
            given: AtomicU64::new(0),
        })
    }

    /// The number of a new execution, from 1.
    fn issue(&self) -> u64 {
        self.issued.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that an execution is over.
    pub(crate) fn complete(&self, number: u64) {
        self.given.fetch_max(self.executor.given(), Ordering::Relaxed);
        let mut early = self.early.lock();
        early.push(number);
        let mut through = self.through.load(Ordering::Relaxed);
        while let Some(place) = early.iter().position(|&number| number == through + 1) {
            early.swap_remove(place);
            through += 1;
        }
        self.through.store(through, Ordering::Release);
    }

    /// Whether the first `number` executions are over for what follows in the same queue.
    pub(crate) fn reached(&self, number: u64) -> bool {
        self.through.load(Ordering::Acquire) >= number
    }

    /// Whether they are over for the host; if so, what they wrote is seen.
    pub(crate) fn is_over(&self, number: u64) -> bool {
        self.reached(number) && self.executor.retired(self.given.load(Ordering::Relaxed))
    }

    /// Waits until `over`, which executions of this queue bring about.
    pub(crate) fn wait(&self, timeout: u64, over: impl Fn() -> bool) -> ze_result_t {
        wait(timeout, over, || self.newest.get())
    }
}

/// How a queue was created, or an immediate list, which is created as one.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) index: u32,
    pub(crate) flags: ze_command_queue_flags_t,
    pub(crate) mode: ze_command_queue_mode_t,
    pub(crate) priority: ze_command_queue_priority_t,
}

impl Made {
    pub(crate) fn by(desc: &ze_command_queue_desc_t) -> Made {
        let &ze_command_queue_desc_t { index, flags, mode, priority, .. } = desc;
        Made { index, flags, mode, priority }
    }
}

/// A command queue.
pub(crate) struct Queue {
    executor: Arc<Executor>,
    made: Made,
    flow: Arc<Flow>,
}

impl Object for Queue {
    const MAGIC: u64 = 0x5a45_534f_4351_5531;
}

impl Queue {
    /// Its executions.
    pub(crate) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    fn execute(&self, lists: &[&Arc<List>], fence: Option<&Fence>) -> Result<(), ze_result_t> {
        // Nothing runs if one of them is refused.
        for list in lists {
            list.check_executable(&self.executor)?;
        }
        if fence.is_some_and(|fence| !fence.belongs_to(&self.flow)) {
            let text = "a fence can only be signalled by the queue that it was created for";
            return Err(fail(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, text));
        }
        self.executor.start()?;
        let mut last = 0;
        for list in lists {
            last = self.flow.issue();
            let flow = Some((self.flow.clone(), last));
            let receipt = list.execute(flow, |run| self.executor.submit_alone(Work::Run(run)))?;
            self.flow.newest.set(receipt.source);
        }
        if let Some(fence) = fence {
            fence.arm(last);
        }
        if self.made.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS {
            self.flow.wait(u64::MAX, || self.flow.is_over(last));
        }
        Ok(())
    }
}

unsafe extern "C" fn zeCommandQueueCreate(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    desc: *const ze_command_queue_desc_t,
    phCommandQueue: *mut ze_command_queue_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        get::<crate::device::Device, _>(hDevice)?;
        // SAFETY: the specification's promise about these two pointers.
        let (desc, queue) = unsafe { (input(desc)?, output(phCommandQueue)?) };
        let executor = queue_executor(hDevice, desc)?;
        let flow = Flow::new(executor.clone());
        *queue = export(Arc::new(Queue { executor, made: Made::by(desc), flow }));
        Ok(())
    })
}

unsafe extern "C" fn zeCommandQueueDestroy(hCommandQueue: ze_command_queue_handle_t) -> ze_result_t {
    // What was submitted still runs: it keeps all it needs.
    run(|| take::<Queue, _>(hCommandQueue).map(drop))
}

/// The command lists of an array.
///
/// # Safety
/// `lists` must be null or point to `count` handles.
pub(crate) unsafe fn lists<'a>(
    count: u32,
    lists: *mut ze_command_list_handle_t,
) -> Result<Vec<&'a Arc<List>>, ze_result_t> {
    if lists.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    if count == 0 {
        return Err(ZE_RESULT_ERROR_INVALID_SIZE);
    }
    // SAFETY: the caller's promise.
    (0..count as usize).map(|index| get::<List, _>(unsafe { lists.add(index).read() })).collect()
}

unsafe extern "C" fn zeCommandQueueExecuteCommandLists(
    hCommandQueue: ze_command_queue_handle_t,
    numCommandLists: u32,
    phCommandLists: *mut ze_command_list_handle_t,
    hFence: ze_fence_handle_t,
) -> ze_result_t {
    run(|| {
        let queue = get::<Queue, _>(hCommandQueue)?;
        // SAFETY: the specification's promise.
        let lists = unsafe { lists(numCommandLists, phCommandLists) }?;
        let fence = if hFence.is_null() { None } else { Some(get::<Fence, _>(hFence)?) };
        queue.execute(&lists, fence.map(Arc::as_ref))
    })
}

unsafe extern "C" fn zeCommandQueueSynchronize(hCommandQueue: ze_command_queue_handle_t, timeout: u64) -> ze_result_t {
    match get::<Queue, _>(hCommandQueue) {
        Ok(queue) => {
            let issued = queue.flow.issued.load(Ordering::Relaxed);
            queue.flow.wait(timeout, || queue.flow.is_over(issued))
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn zeCommandQueueGetOrdinal(
    hCommandQueue: ze_command_queue_handle_t,
    pOrdinal: *mut u32,
) -> ze_result_t {
    answer(hCommandQueue, pOrdinal, |queue: &Queue| Ok(queue.executor.ordinal()))
}

unsafe extern "C" fn zeCommandQueueGetIndex(hCommandQueue: ze_command_queue_handle_t, pIndex: *mut u32) -> ze_result_t {
    answer(hCommandQueue, pIndex, |queue: &Queue| Ok(queue.made.index))
}

unsafe extern "C" fn zeCommandQueueGetFlags(
    hCmdQueue: ze_command_queue_handle_t,
    pFlags: *mut ze_command_queue_flags_t,
) -> ze_result_t {
    answer(hCmdQueue, pFlags, |queue: &Queue| Ok(queue.made.flags))
}

unsafe extern "C" fn zeCommandQueueGetMode(
    hCmdQueue: ze_command_queue_handle_t,
    pMode: *mut ze_command_queue_mode_t,
) -> ze_result_t {
    answer(hCmdQueue, pMode, |queue: &Queue| Ok(queue.made.mode))
}

unsafe extern "C" fn zeCommandQueueGetPriority(
    hCmdQueue: ze_command_queue_handle_t,
    pPriority: *mut ze_command_queue_priority_t,
) -> ze_result_t {
    answer(hCmdQueue, pPriority, |queue: &Queue| Ok(queue.made.priority))
}

entry_points! {
    zeCommandQueueCreate: zeCommandQueueCreate_t,
    zeCommandQueueDestroy: zeCommandQueueDestroy_t,
    zeCommandQueueExecuteCommandLists: zeCommandQueueExecuteCommandLists_t,
    zeCommandQueueSynchronize: zeCommandQueueSynchronize_t,
    zeCommandQueueGetOrdinal: zeCommandQueueGetOrdinal_t,
    zeCommandQueueGetIndex: zeCommandQueueGetIndex_t,
    zeCommandQueueGetFlags: zeCommandQueueGetFlags_t,
    zeCommandQueueGetMode: zeCommandQueueGetMode_t,
    zeCommandQueueGetPriority: zeCommandQueueGetPriority_t,
}
