//! Event pools.

use super::Stamps;
use super::shared::{IpcHandle, Kind, Shared};
use crate::abi::{chain, input, output, run};
use crate::context::Context;
use crate::entry::entry_points;
use crate::error::fail;
use crate::handle::{Object, answer, export, get, take};
use level_zero_sys::*;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const FLAGS: u32 = ZE_EVENT_POOL_FLAG_HOST_VISIBLE
    | ZE_EVENT_POOL_FLAG_IPC
    | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP
    | ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP;

/// What a regular event is, in memory that several processes may have mapped. All zeros is a valid one.
#[repr(C, align(64))]
pub(super) struct Cell {
    state: AtomicU32,
    pub(super) stamps: Stamps,
}

impl Cell {
    pub(super) fn is_signalled(&self) -> bool {
        self.state.load(Ordering::Acquire) != 0
    }

    pub(super) fn set(&self) {
        self.state.store(1, Ordering::Release);
    }

    pub(super) fn clear(&self) {
        self.state.store(0, Ordering::Release);
    }

    /// Where a GPU stores its state.
    pub(super) fn state(&self) -> *mut u32 {
        self.state.as_ptr()
    }
}

/// A pool.
pub(super) struct Pool {
    memory: Shared,
    count: u32,
    flags: ze_event_pool_flags_t,
    /// Its events are counter-based ones with these flags.
    counted: Option<ze_event_counter_based_flags_t>,
    /// It came through an IPC handle, and its events' states with it.
    opened: bool,
    context: usize,
}

impl Object for Pool {
    const MAGIC: u64 = 0x5a45_534f_4550_4c31;
}

impl Pool {
    /// The cell of an event that is being created. In a pool of our own it starts out not signalled.
    pub(super) fn claim(&self, index: u32) -> Result<NonNull<Cell>, ze_result_t> {
        if index >= self.count {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        let cell =
            self.memory.at::<Cell>(index as usize * size_of::<Cell>()).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        if !self.opened {
            // SAFETY: the cell lies in this pool's mapping, and a cell is atomics, for which all bytes are valid.
            unsafe { cell.as_ref() }.clear();
        }
        Ok(cell)
    }

    pub(super) fn is_stamped(&self) -> bool {
        self.flags & (ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP) != 0
    }

    pub(super) fn counted(&self) -> Option<ze_event_counter_based_flags_t> {
        self.counted
    }
}

fn length(count: u32) -> usize {
    count as usize * size_of::<Cell>()
}

/// The flags that make a pool's events counter-based, if its descriptor's chain has any.
///
/// # Safety
/// As for [`chain`].
unsafe fn counted_flags(next: *mut c_void, pool: ze_event_pool_flags_t) -> Option<ze_event_counter_based_flags_t> {
    let mut counted = None;
    let visit = |stype, link: *mut c_void| {
        if stype == ZE_STRUCTURE_TYPE_COUNTER_BASED_EVENT_POOL_EXP_DESC {
            // SAFETY: the type stands for this structure.
            let desc = unsafe { &*link.cast::<ze_event_pool_counter_based_exp_desc_t>() };
            counted = Some(desc.flags);
        }
    };
    // SAFETY: the caller's promise.
    unsafe { chain(next, visit) };
    // The two lowest flags are the same in both worlds; the pool's own flags say the rest.
    let modes = ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE | ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE;
    let rest = [
        (ZE_EVENT_POOL_FLAG_HOST_VISIBLE, ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE),
        (ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP, ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP),
        (ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP, ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP),
    ];
    let rest = rest.iter().filter(|(from, _)| pool & from != 0).fold(0, |flags, (_, to)| flags | to);
    counted.map(|flags| flags & modes | rest)
}

unsafe extern "C" fn zeEventPoolCreate(
    hContext: ze_context_handle_t,
    desc: *const ze_event_pool_desc_t,
    numDevices: u32,
    phDevices: *mut ze_device_handle_t,
    phEventPool: *mut ze_event_pool_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // SAFETY: the specification's promise about these two pointers.
        let (desc, pool) = unsafe { (input(desc)?, output(phEventPool)?) };
        let both = ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP;
        if desc.flags & !FLAGS != 0 || desc.flags & both == both {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        if desc.count == 0 || (phDevices.is_null() && numDevices > 0) {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        // SAFETY: the specification's promise about chains.
        let counted = unsafe { counted_flags(desc.pNext.cast_mut(), desc.flags) };
        let memory = Shared::create(length(desc.count))?;
        let (count, flags, context) = (desc.count, desc.flags, hContext as usize);
        *pool = export(Arc::new(Pool { memory, count, flags, counted, opened: false, context }));
        Ok(())
    })
}

fn end(pool: ze_event_pool_handle_t, opened: bool) -> ze_result_t {
    run(|| {
        if get::<Pool, _>(pool)?.opened != opened {
            let text = if opened { "this pool was not opened from an IPC handle" } else { "this pool is to be closed" };
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
        }
        take::<Pool, _>(pool).map(drop)
    })
}

unsafe extern "C" fn zeEventPoolDestroy(hEventPool: ze_event_pool_handle_t) -> ze_result_t {
    end(hEventPool, false)
}

unsafe extern "C" fn zeEventPoolCloseIpcHandle(hEventPool: ze_event_pool_handle_t) -> ze_result_t {
    end(hEventPool, true)
}

unsafe extern "C" fn zeEventPoolGetIpcHandle(
    hEventPool: ze_event_pool_handle_t,
    phIpc: *mut ze_ipc_event_pool_handle_t,
) -> ze_result_t {
    run(|| {
        let pool = get::<Pool, _>(hEventPool)?;
        // SAFETY: the specification's promise.
        let ipc = unsafe { output(phIpc) }?;
        if pool.flags & ZE_EVENT_POOL_FLAG_IPC == 0 || pool.counted.is_some() {
            let text = "an event pool is shared only if it has ZE_EVENT_POOL_FLAG_IPC and no counter-based events";
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
        }
        let mut handle = pool.memory.handle(Kind::Pool)?;
        handle.words = [u64::from(pool.count), u64::from(pool.flags), 0];
        ipc.data = handle.encode();
        Ok(())
    })
}

unsafe extern "C" fn zeEventPoolPutIpcHandle(
    hContext: ze_context_handle_t,
    hIpc: ze_ipc_event_pool_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // The handle names the pool's own descriptor, which ends with the pool: there is nothing to give back.
        IpcHandle::decode(&hIpc.data, Kind::Pool).map(drop)
    })
}

unsafe extern "C" fn zeEventPoolOpenIpcHandle(
    hContext: ze_context_handle_t,
    hIpc: ze_ipc_event_pool_handle_t,
    phEventPool: *mut ze_event_pool_handle_t,
) -> ze_result_t {
    run(|| {
        get::<Context, _>(hContext)?;
        // SAFETY: the specification's promise.
        let pool = unsafe { output(phEventPool) }?;
        let handle = IpcHandle::decode(&hIpc.data, Kind::Pool)?;
        let [count, flags] = [handle.words[0], handle.words[1]].map(u32::try_from);
        let (Ok(count), Ok(flags)) = (count, flags) else { return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT) };
        let memory = Shared::open(&handle, length(count))?;
        let context = hContext as usize;
        *pool = export(Arc::new(Pool { memory, count, flags, counted: None, opened: true, context }));
        Ok(())
    })
}

unsafe extern "C" fn zeEventPoolGetContextHandle(
    hEventPool: ze_event_pool_handle_t,
    phContext: *mut ze_context_handle_t,
) -> ze_result_t {
    answer(hEventPool, phContext, |pool: &Pool| Ok(pool.context as ze_context_handle_t))
}

unsafe extern "C" fn zeEventPoolGetFlags(
    hEventPool: ze_event_pool_handle_t,
    pFlags: *mut ze_event_pool_flags_t,
) -> ze_result_t {
    answer(hEventPool, pFlags, |pool: &Pool| Ok(pool.flags))
}

entry_points! {
    zeEventPoolCreate: zeEventPoolCreate_t,
    zeEventPoolDestroy: zeEventPoolDestroy_t,
    zeEventPoolGetIpcHandle: zeEventPoolGetIpcHandle_t,
    zeEventPoolPutIpcHandle: zeEventPoolPutIpcHandle_t,
    zeEventPoolOpenIpcHandle: zeEventPoolOpenIpcHandle_t,
    zeEventPoolCloseIpcHandle: zeEventPoolCloseIpcHandle_t,
    zeEventPoolGetContextHandle: zeEventPoolGetContextHandle_t,
    zeEventPoolGetFlags: zeEventPoolGetFlags_t,
}
