//! What the ABI passes by value. Everything else of it is somebody else's pointer.

/// `onecclResult_t`.
pub type Code = i32;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const SYSTEM_ERROR: Code = 2;
pub(crate) const IN_PROGRESS: Code = 6;
pub(crate) const NOT_IMPLEMENTED: Code = 12;

/// `onecclUniqueId`: passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OnecclUniqueId {
    pub(crate) data: [u8; 4096],
}

const _: () = assert!(size_of::<OnecclUniqueId>() == 4096 && align_of::<OnecclUniqueId>() == 1);
