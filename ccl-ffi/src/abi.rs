//! The ABI's structures. Tests hold their sizes and offsets to oneCCL's headers.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `onecclUniqueId`: passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OnecclUniqueId {
    pub(crate) data: [u8; 4096],
}

/// `onecclConfig_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OnecclConfig {
    /// Bytes of the structure as its maker knows it.
    pub size: usize,
    /// [`CONFIG_MAGIC`].
    pub magic: c_uint,
    /// The maker's version of the API.
    pub version: c_uint,
    /// 0: making the communicator returns before it is made.
    pub blocking: c_int,
    /// A hint.
    pub cga_cluster_size: c_int,
    /// A hint.
    pub min_ctas: c_int,
    /// Most work-groups of a collective.
    pub max_ctas: c_int,
    /// Which network: of no meaning on one host.
    pub net_name: *const c_char,
    /// A hint.
    pub split_share: c_int,
    /// Every communicator is for several threads.
    pub multi_threaded: c_int,
    /// Whose implementation.
    pub plugin: c_uint,
}

/// What marks an `onecclConfig_t`.
pub const CONFIG_MAGIC: c_uint = 0xCAFE_BEEF;
/// An `int` of it that says nothing.
pub const UNDEFINED: c_int = c_int::MIN;

/// `onecclDevComm_t`.
#[repr(C)]
pub struct OnecclDevComm {
    words: [*mut c_void; 8],
}

/// `onecclDevCommRequirements_t`.
#[repr(C)]
pub struct OnecclDevCommRequirements {
    barriers: c_int,
}

const _: () = assert!(size_of::<OnecclUniqueId>() == 4096 && align_of::<OnecclUniqueId>() == 1);
const _: () = assert!(size_of::<OnecclConfig>() == 56 && std::mem::offset_of!(OnecclConfig, plugin) == 48);
const _: () = assert!(size_of::<OnecclDevComm>() == 64 && size_of::<OnecclDevCommRequirements>() == 4);
