//! Fences.

use crate::abi::{input, output, run};
use crate::entry::entry_points;
use crate::handle::{Object, export, get, take};
use crate::queue::{Flow, Queue};
use level_zero_sys::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that no queue's executions come to.
const NEVER: u64 = u64::MAX;

/// A fence: that its queue has come to a certain execution.
pub(crate) struct Fence {
    flow: Arc<Flow>,
    /// The execution, from 1; 0 was signalled from the start.
    target: AtomicU64,
}

impl Object for Fence {
    const MAGIC: u64 = 0x5a45_534f_464e_4331;
}

impl Fence {
    /// Whether it was created for the queue with these executions.
    pub(crate) fn belongs_to(&self, flow: &Arc<Flow>) -> bool {
        Arc::ptr_eq(&self.flow, flow)
    }

    /// Has it signalled when the first `number` executions of its queue are over.
    pub(crate) fn arm(&self, number: u64) {
        self.target.store(number, Ordering::Relaxed);
    }

    fn is_signalled(&self) -> bool {
        self.flow.is_over(self.target.load(Ordering::Relaxed))
    }
}

unsafe extern "C" fn zeFenceCreate(
    hCommandQueue: ze_command_queue_handle_t,
    desc: *const ze_fence_desc_t,
    phFence: *mut ze_fence_handle_t,
) -> ze_result_t {
    run(|| {
        let queue = get::<Queue, _>(hCommandQueue)?;
        // SAFETY: the specification's promise about these two pointers.
        let (desc, fence) = unsafe { (input(desc)?, output(phFence)?) };
        if desc.flags & !ZE_FENCE_FLAG_SIGNALED != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        let target = if desc.flags & ZE_FENCE_FLAG_SIGNALED != 0 { 0 } else { NEVER };
        *fence = export(Arc::new(Fence { flow: queue.flow().clone(), target: AtomicU64::new(target) }));
        Ok(())
    })
}

unsafe extern "C" fn zeFenceDestroy(hFence: ze_fence_handle_t) -> ze_result_t {
    run(|| take::<Fence, _>(hFence).map(drop))
}

unsafe extern "C" fn zeFenceHostSynchronize(hFence: ze_fence_handle_t, timeout: u64) -> ze_result_t {
    match get::<Fence, _>(hFence) {
        Ok(fence) => fence.flow.wait(timeout, || fence.is_signalled()),
        Err(code) => code,
    }
}

unsafe extern "C" fn zeFenceQueryStatus(hFence: ze_fence_handle_t) -> ze_result_t {
    run(|| if get::<Fence, _>(hFence)?.is_signalled() { Ok(()) } else { Err(ZE_RESULT_NOT_READY) })
}

unsafe extern "C" fn zeFenceReset(hFence: ze_fence_handle_t) -> ze_result_t {
    run(|| {
        get::<Fence, _>(hFence)?.arm(NEVER);
        Ok(())
    })
}

entry_points! {
    zeFenceCreate: zeFenceCreate_t,
    zeFenceDestroy: zeFenceDestroy_t,
    zeFenceHostSynchronize: zeFenceHostSynchronize_t,
    zeFenceQueryStatus: zeFenceQueryStatus_t,
    zeFenceReset: zeFenceReset_t,
}
