//! The C ABI: oneCCL's names, so that programs built for it find this library in its place (docs/abi.md).
//!
//! Every entry is contained: a panic becomes `onecclInternalError` and never reaches the caller. With a null stream
//! buffers are the host's and a call returns with its result; with a SYCL queue they are device memory and a call returns
//! once it is submitted.

mod abi;
mod call;
mod cclx;
mod collectives;
mod copies;
mod entry;
mod farewell;
mod forming;
mod group;
mod handle;
mod host;
mod info;
mod ledger;
mod lifecycle;
mod lookup;
mod memory;
mod mhc;
mod plugin;
mod presence;
mod queue;
mod redop;
mod settings;
mod stream;
mod unsupported;

pub use abi::*;
pub use cclx::*;
pub use collectives::*;
pub use entry::Code;
pub use group::{onecclGroupEnd, onecclGroupStart};
pub use handle::OnecclComm;
pub use info::*;
pub use lifecycle::*;
pub use lookup::cclxCommLookup;
pub use memory::*;
pub use mhc::*;
pub use plugin::{Outer, onecclPluginCall};
pub use redop::{onecclRedOpCreatePreMulSum, onecclRedOpDestroy};
pub use stream::*;
pub use unsupported::*;
