//! Communicators and the all-reduce, under oneCCL's names.

use crate::boundary::{Code, code_name, entry, last_error, null};
use ccl_core::bootstrap::UniqueId;
use ccl_core::config::{Config, OnError};
use ccl_core::{DataType, Error, ReduceOp, Result};
use ccl_ze::{Buffer, Communicator, Stream};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock};

/// Version of oneCCL's API that this stands for: callers refuse graph capture below 2022.0.
const VERSION: c_int = 2022 * 10_000 + 2 * 100;

/// `onecclUniqueId`: passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OnecclUniqueId {
    data: [u8; 4096],
}

/// What `onecclComm_t` points to.
pub struct OnecclComm {
    pub(crate) comm: Communicator,
    host: Mutex<HostPath>,
}

/// Host buffers go through device memory of this communicator.
struct HostPath {
    stream: Stream,
    scratch: Buffer<u8>,
}

thread_local! {
    static DEVICE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The environment's configuration and the log, read once per process.
fn config() -> Result<Config> {
    static CONFIG: OnceLock<Result<Config>> = OnceLock::new();
    CONFIG
        .get_or_init(|| {
            let mut config = Config::from_env()?;
            // Callers ignore return codes: unless told otherwise, a failed collective ends the process.
            config.on_error = Some(config.on_error.unwrap_or(OnError::Abort));
            // A program that has a log of its own keeps it.
            let _ = ccl_ze::log::install(&config);
            Ok(config)
        })
        .clone()
}

/// The communicator behind a handle.
///
/// # Safety
/// `comm` is null or a handle from `onecclCommInitRank` that is not destroyed.
pub(crate) unsafe fn comm<'a>(comm: *mut OnecclComm) -> Result<&'a OnecclComm> {
    // SAFETY: by this function's contract.
    unsafe { comm.as_ref() }.ok_or_else(|| null("the communicator"))
}

/// Stores a result.
///
/// # Safety
/// `to` is null or valid for a write.
pub(crate) unsafe fn put<T>(to: *mut T, value: T, what: &str) -> Result<()> {
    if to.is_null() {
        return Err(null(what));
    }
    // SAFETY: by this function's contract.
    unsafe { to.write(value) };
    Ok(())
}

/// Version of the API, `major * 10000 + minor * 100 + patch`.
///
/// # Safety
/// `version` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclGetVersion(version: *mut c_int) -> Code {
    // SAFETY: passed on to the caller.
    entry("onecclGetVersion", || unsafe { put(version, VERSION, "version") })
}

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
        let data = *UniqueId::create(Default::default())?.as_bytes();
        // SAFETY: passed on to the caller.
        unsafe { put(id, OnecclUniqueId { data }, "unique id") }
    })
}

/// Chooses the device of the communicators that this thread makes from now on.
#[unsafe(no_mangle)]
pub extern "C" fn onecclSetDevice(index: u32) -> Code {
    entry("onecclSetDevice", || {
        DEVICE.set(Some(index));
        Ok(())
    })
}

/// Joins the group of `id`. Returns when all ranks have.
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
    entry("onecclCommInitRank", || {
        if comm.is_null() {
            return Err(null("the place for the communicator"));
        }
        let rank = usize::try_from(rank)
            .ok()
            .filter(|rank| *rank < world_size)
            .ok_or_else(|| Error::InvalidArgument(format!("rank {rank} of {world_size}")))?;
        let mut builder = Communicator::builder_with(config()?);
        if let Some(device) = DEVICE.get() {
            builder = builder.device(device as usize);
        }
        let joined = builder.init(&UniqueId::from_bytes(id.data), rank, world_size)?;
        let host = HostPath { stream: joined.stream(0)?, scratch: joined.alloc(0)? };
        let handle = Box::into_raw(Box::new(OnecclComm { comm: joined, host: Mutex::new(host) }));
        // SAFETY: passed on to the caller.
        unsafe { put(comm, handle, "the place for the communicator") }
    })
}

/// Ends a communicator; its collectives are waited for.
///
/// # Safety
/// `comm` is null or a live handle, which is dead afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommDestroy(comm: *mut OnecclComm) -> Code {
    entry("onecclCommDestroy", || {
        if comm.is_null() {
            return Err(null("the communicator"));
        }
        // SAFETY: made by `Box::into_raw` in `onecclCommInitRank`, destroyed once by contract.
        drop(unsafe { Box::from_raw(comm) });
        Ok(())
    })
}

/// Number of ranks.
///
/// # Safety
/// `communicator` is null or a live handle, `count` null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommCount(communicator: *mut OnecclComm, count: *mut c_int) -> Code {
    // SAFETY: passed on to the caller.
    entry("onecclCommCount", || unsafe { put(count, comm(communicator)?.comm.world_size() as c_int, "count") })
}

/// This rank.
///
/// # Safety
/// `communicator` is null or a live handle, `rank` null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclCommUserRank(communicator: *mut OnecclComm, rank: *mut c_int) -> Code {
    // SAFETY: passed on to the caller.
    entry("onecclCommUserRank", || unsafe { put(rank, comm(communicator)?.comm.rank() as c_int, "rank") })
}

/// All-reduce of host buffers: `stream` must be null, and the call returns when the result is there.
///
/// # Safety
/// `send` and `recv` hold `count` elements each and are the same or apart; `communicator` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclAllReduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    datatype: c_int,
    op: c_int,
    communicator: *mut OnecclComm,
    stream: *mut c_void,
) -> Code {
    entry("onecclAllReduce", || {
        // SAFETY: passed on to the caller.
        let this = unsafe { comm(communicator)? };
        let (dtype, op) = parse(datatype, op)?;
        if !stream.is_null() {
            return Err(Error::NotImplemented("a stream: only host buffers with a null stream so far".into()));
        }
        // SAFETY: as above.
        unsafe { this.all_reduce_on_host(send, recv, count, dtype, op) }
    })
}

/// Type and reduction of a call, from their numbers.
pub(crate) fn parse(datatype: c_int, op: c_int) -> Result<(DataType, ReduceOp)> {
    let dtype = u32::try_from(datatype)
        .ok()
        .and_then(DataType::from_abi)
        .ok_or_else(|| Error::InvalidArgument(format!("datatype {datatype}")))?;
    let op = u32::try_from(op)
        .ok()
        .and_then(ReduceOp::from_abi)
        .ok_or_else(|| Error::NotImplemented(format!("reduction {op}")))?;
    Ok((dtype, op))
}

impl OnecclComm {
    /// # Safety
    /// `send` and `recv` hold `count` elements each and are the same or apart.
    pub(crate) unsafe fn all_reduce_on_host(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<()> {
        if count > 0 && (send.is_null() || recv.is_null()) {
            return Err(null("a buffer"));
        }
        let bytes = count
            .checked_mul(dtype.size())
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .ok_or_else(|| Error::InvalidArgument(format!("{count} elements of {dtype} overflow")))?;
        let apart = (send as usize).abs_diff(recv as usize);
        if apart != 0 && apart < bytes {
            return Err(Error::InvalidArgument("the buffers overlap in part; in place means equal".into()));
        }
        let request = self.comm.request(count as u64, dtype, op);
        // Refused before anything is moved.
        self.comm.plan(&request)?;
        let mut host = self.host.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if host.scratch.len() < bytes {
            host.scratch = self.comm.alloc(bytes)?;
        }
        // Before anything is moved: a communicator that has failed says so.
        if let Some(error) = self.comm.fault() {
            return Err(error);
        }
        let HostPath { stream, scratch } = &mut *host;
        if bytes > 0 {
            // SAFETY: the caller's buffer holds `bytes` bytes.
            scratch.write(stream, unsafe { std::slice::from_raw_parts(send.cast(), bytes) })?;
        }
        let memory: *mut c_void = scratch.as_ptr().cast();
        // SAFETY: the scratch buffer holds `count` elements and is locked until the call has finished.
        let outcome = unsafe { self.comm.all_reduce_raw(&request, memory, memory, stream, &[]) }?.wait();
        if bytes > 0 {
            // Also after a failure: the output is then 0xFF bytes, which nobody takes for a result.
            // SAFETY: the caller's buffer holds `bytes` bytes, and nobody else uses it during the call.
            scratch.read(stream, unsafe { std::slice::from_raw_parts_mut(recv.cast(), bytes) })?;
        }
        outcome
    }
}

/// The name of a result.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGetErrorString(code: Code) -> *const c_char {
    code_name(code)
}

/// What this thread's last failure was, in words; valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn onecclGetLastError(_comm: *mut OnecclComm) -> *const c_char {
    last_error()
}
