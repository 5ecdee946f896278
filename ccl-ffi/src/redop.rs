//! Reductions of a communicator's own: the sum of elements that are multiplied first.

use crate::call::Reduction;
use crate::entry::{Code, SUCCESS, comm_entry, null, put};
use crate::handle::{Live, OnecclComm};
use ccl_core::types::Factor;
use ccl_core::{DataType, Error, ReduceOp, Result};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

/// `onecclNumOps`: the first number that is free for a communicator's own.
const FIRST_OWN: c_int = 5;
const DEVICE: c_int = 0;
const HOST_IMMEDIATE: c_int = 1;

/// A communicator's own reductions by their numbers.
#[derive(Default)]
pub(crate) struct Operations {
    made: c_int,
    own: BTreeMap<c_int, Reduction>,
}

impl Live {
    /// The reduction of this number.
    pub(crate) fn reduction(&self, number: c_int) -> Result<Reduction> {
        match u32::try_from(number).ok().and_then(ReduceOp::from_abi) {
            Some(op) => Ok(Reduction::Known(op)),
            None => self.operations.lock().get(number),
        }
    }
}

impl Operations {
    /// The communicator's own of this number.
    #[cold]
    fn get(&self, number: c_int) -> Result<Reduction> {
        self.own.get(&number).copied().ok_or_else(|| {
            Error::InvalidArgument(format!(
                "reduction {number}: neither one of the API's nor made by this communicator"
            ))
        })
    }

    /// Numbers are not used again: an operation that is destroyed stays unknown.
    fn add(&mut self, op: Reduction) -> Result<c_int> {
        let number = FIRST_OWN.checked_add(self.made).ok_or_else(|| {
            Error::InvalidUsage("this communicator has made all the reductions that there are".into())
        })?;
        self.made += 1;
        self.own.insert(number, op);
        Ok(number)
    }
}

/// In which type a scalar lies in memory: for bfloat16 it is a binary32, as torch passes it.
pub(crate) const fn scalar_type(dtype: DataType) -> DataType {
    match dtype {
        DataType::Bfloat16 => DataType::Float32,
        other => other,
    }
}

/// Makes the reduction that multiplies by `*scalar` and adds. A scalar of residence host is read now, one of residence
/// device by each call, before that returns, within a group too. Each rank may have a scalar of its own.
///
/// # Safety
/// `op` is null or valid for a write; `scalar` is null or points to a `datatype` (a `float` for bfloat16), which in device
/// memory stays until the operation is destroyed; `communicator` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclRedOpCreatePreMulSum(
    op: *mut c_int,
    scalar: *mut c_void,
    datatype: c_int,
    residence: c_int,
    communicator: *mut OnecclComm,
) -> Code {
    let body = |handle: &'static OnecclComm| {
        let live = handle.live()?;
        let dtype = scalar_type(crate::call::datatype(datatype)?);
        if op.is_null() {
            return Err(null("the place for the reduction"));
        }
        if scalar.is_null() {
            return Err(null("the scalar"));
        }
        let reduction = match residence {
            HOST_IMMEDIATE => {
                let mut bytes = [0u8; 8];
                // SAFETY: the scalar has that many bytes, no more than there is room for.
                unsafe { std::ptr::copy_nonoverlapping(scalar.cast(), bytes.as_mut_ptr(), dtype.size()) };
                Reduction::Known(ReduceOp::PreMulSum(Factor::new(dtype, u64::from_le_bytes(bytes))))
            }
            DEVICE => Reduction::OnDevice { at: scalar as usize, dtype },
            other => return Err(Error::InvalidArgument(format!("scalar residence {other}"))),
        };
        let number = live.operations.lock().add(reduction)?;
        // SAFETY: passed on to the caller.
        unsafe { put(op, number, "the place for the reduction") }
    };
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("onecclRedOpCreatePreMulSum", communicator, body) }
}

/// Ends a reduction of a communicator's own. Calls that were given it are not affected.
///
/// # Safety
/// `communicator` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onecclRedOpDestroy(op: c_int, communicator: *mut OnecclComm) -> Code {
    let body = |handle: &'static OnecclComm| match handle.known()?.operations.lock().own.remove(&op) {
        Some(_) => Ok(SUCCESS),
        None => Err(Error::InvalidArgument(format!("reduction {op} was not made by this communicator"))),
    };
    // SAFETY: passed on to the caller.
    unsafe { comm_entry("onecclRedOpDestroy", communicator, body) }
}
