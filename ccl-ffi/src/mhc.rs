//! mHC boundaries, to C: `include/cclx.h` is the same.

use crate::call::datatype;
use crate::cclx::{CclxStream, events};
use crate::entry::{Code, SUCCESS, call_entry, comm_entry, null};
use crate::group::refuse_within;
use crate::handle::OnecclComm;
use crate::memory;
use ccl_core::mhc::{Buffers, Design, Params, Variant};
use ccl_core::{Error, Result};
use ccl_ze::{CallOptions, Communicator, Completion, Stream};
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

/// What this library knows of [`CclxMhcParams`].
const VERSION: u32 = 1;

/// `cclxMhcParams`: a boundary's shape, constants and memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CclxMhcParams {
    /// Bytes of this structure, as its writer knows it.
    pub size: usize,
    /// 1.
    pub version: u32,
    /// `CCLX_MHC_V4` and so on.
    pub variant: c_int,
    /// oneCCL's number.
    pub datatype: c_int,
    /// `CCLX_MHC_AUTO` and so on.
    pub design: c_int,
    /// Tokens.
    pub rows: u64,
    /// Elements of a row of x.
    pub hidden: u64,
    /// Of the residual.
    pub streams: u32,
    /// The softmax counted as the first.
    pub sinkhorn_iterations: u32,
    /// Added to the mean square.
    pub rms_eps: f32,
    /// Added to pre.
    pub pre_eps: f32,
    /// Added to the sums that are divided by.
    pub sinkhorn_eps: f32,
    /// Of the sigmoid of post.
    pub post_multiplier: f32,
    /// Whether y is normed.
    pub has_norm: c_int,
    /// Of that norm.
    pub norm_eps: f32,
    /// [rows, hidden].
    pub x: *const c_void,
    /// [rows, streams, hidden].
    pub residual: *const c_void,
    /// [rows, streams].
    pub post: *const f32,
    /// [rows, streams, streams].
    pub comb: *const f32,
    /// [rows, streams].
    pub previous_pre: *const f32,
    /// [fn_rows, fn_columns].
    pub fn_weights: *const f32,
    /// Coefficients of a row.
    pub fn_rows: u64,
    /// streams * hidden.
    pub fn_columns: u64,
    /// Three, or one.
    pub scale: *const f32,
    /// `[fn_rows]`.
    pub base: *const f32,
    /// `[hidden]`.
    pub norm_weight: *const c_void,
    /// [rows, hidden], or null.
    pub x_out: *mut c_void,
    /// [rows, streams, hidden].
    pub residual_out: *mut c_void,
    /// [rows, streams].
    pub post_out: *mut f32,
    /// [rows, streams, streams].
    pub comb_out: *mut f32,
    /// [rows, streams], or null.
    pub pre_out: *mut f32,
    /// [rows, hidden].
    pub y: *mut c_void,
    /// [rows, hidden].
    pub normed: *mut c_void,
}

/// The parameters as this library has them.
///
/// # Safety
/// `params` is null or as long as its first word says, which is readable.
unsafe fn read(params: *const CclxMhcParams) -> Result<(Params, Buffers, Design)> {
    let invalid = |what: String| Error::InvalidArgument(format!("mHC: {what}"));
    if params.is_null() {
        return Err(null("the parameters"));
    }
    // SAFETY: by the contract; no more is read until the size is known to be all of it.
    let size = unsafe { (&raw const (*params).size).read() };
    if size < size_of::<CclxMhcParams>() {
        let known = size_of::<CclxMhcParams>();
        return Err(invalid(format!("parameters of {size} bytes; those of version {VERSION} have {known}")));
    }
    // SAFETY: as above.
    let given = unsafe { params.read() };
    if given.version != VERSION {
        return Err(Error::NotImplemented(format!(
            "mHC parameters of version {}; this library knows version {VERSION}",
            given.version
        )));
    }
    let variant = match given.variant {
        0 => Variant::V4,
        1 => Variant::V41,
        2 => Variant::Post,
        3 => Variant::Pre,
        4 => Variant::Head,
        other => return Err(invalid(format!("variant {other}"))),
    };
    let design = match given.design {
        0 => Design::Auto,
        1 => Design::Unfused,
        2 => Design::A,
        3 => Design::B,
        4 => Design::C,
        other => return Err(invalid(format!("design {other}"))),
    };
    let shape = Params {
        variant,
        dtype: datatype(given.datatype)?,
        rows: given.rows,
        hidden: given.hidden,
        streams: given.streams,
        rms_eps: given.rms_eps,
        pre_eps: given.pre_eps,
        sinkhorn_eps: given.sinkhorn_eps,
        post_multiplier: given.post_multiplier,
        sinkhorn_iterations: given.sinkhorn_iterations,
        norm_eps: (given.has_norm != 0).then_some(given.norm_eps),
    };
    let buffers = Buffers {
        x: given.x,
        residual: given.residual,
        post: given.post,
        comb: given.comb,
        previous_pre: given.previous_pre,
        weights: given.fn_weights,
        weights_shape: [given.fn_rows, given.fn_columns],
        scale: given.scale,
        base: given.base,
        norm_weight: given.norm_weight,
        x_out: given.x_out,
        residual_out: given.residual_out,
        post_out: given.post_out,
        comb_out: given.comb_out,
        pre_out: given.pre_out,
        y: given.y,
        normed: given.normed,
    };
    Ok((shape, buffers, design))
}

/// Makes a communicator ready for boundaries.
///
/// # Safety
/// `communicator` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxMhcPrepare(communicator: *mut OnecclComm) -> Code {
    let body = |handle: &'static OnecclComm| handle.live()?.comm.prepare_mhc().map(|()| SUCCESS);
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("cclxMhcPrepare", communicator, body) }
}

/// A boundary without a reduction.
///
/// # Safety
/// `params` is null or as long as it says, with memory of its shapes as long as the call may run; `communicator` and
/// `stream` are null or live; `wait` holds `n_wait` live events, and `signal` is null or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxMhc(
    params: *const CclxMhcParams,
    communicator: *mut OnecclComm,
    stream: *mut CclxStream,
    n_wait: usize,
    wait: *const *mut c_void,
    signal: *mut c_void,
) -> Code {
    // SAFETY: passed on to the caller.
    let body = |handle: &'static OnecclComm| unsafe {
        call(handle, false, params, stream, (n_wait, wait, signal), |comm, (params, buffers, _), stream, options| {
            comm.mhc(params, buffers, stream, options)
        })
    };
    // SAFETY: as above.
    unsafe { call_entry(&"cclxMhc", communicator, body) }
}

/// An all-reduce of x, and the boundary of its sum.
///
/// # Safety
/// As for [`cclxMhc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclxAllReduceMhc(
    params: *const CclxMhcParams,
    communicator: *mut OnecclComm,
    stream: *mut CclxStream,
    n_wait: usize,
    wait: *const *mut c_void,
    signal: *mut c_void,
) -> Code {
    // SAFETY: passed on to the caller.
    let body = |handle: &'static OnecclComm| unsafe {
        call(
            handle,
            true,
            params,
            stream,
            (n_wait, wait, signal),
            |comm, (params, buffers, design), stream, options| {
                comm.all_reduce_mhc(params, buffers, *design, stream, options)
            },
        )
    };
    // SAFETY: as above.
    unsafe { call_entry(&"cclxAllReduceMhc", communicator, body) }
}

/// # Safety
/// As for [`cclxMhc`].
unsafe fn call(
    handle: &'static OnecclComm,
    reduces: bool,
    params: *const CclxMhcParams,
    stream: *mut CclxStream,
    (n_wait, wait, signal): (usize, *const *mut c_void, *mut c_void),
    submit: impl FnOnce(&Communicator, &(Params, Buffers, Design), &Stream, CallOptions<'_>) -> Result<Completion>,
) -> Result<Code> {
    // SAFETY: passed on to the caller.
    let (given, stream, after) = unsafe { (read(params)?, stream.as_ref(), events(n_wait, wait)?) };
    let stream = stream.ok_or_else(|| null("the stream"))?;
    let signal = (!signal.is_null()).then_some(signal.cast());
    refuse_within("an mHC boundary")?;
    let (live, (params, buffers, _)) = (handle.live()?, &given);
    params.check()?;
    buffers.check(params, reduces)?;
    for (_, address, bytes) in buffers.used(params, reduces) {
        memory::check(address as usize, bytes as usize, live.comm.device_index())?;
    }
    handle.ledger.on_streams.store(true, Ordering::Relaxed);
    submit(&live.comm, &given, &stream.stream, CallOptions { after, signal }).map(|_| SUCCESS)
}
