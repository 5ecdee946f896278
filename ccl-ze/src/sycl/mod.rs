//! SYCL queues as streams (docs/sycl.md): calls are submitted through the runtime that the process has loaded, so that its
//! own order, events and graphs hold for them. What needs C++ is in a library of its own, the bridge.

mod bridge;
mod event;
mod queue;
mod recordings;

pub(crate) use bridge::{Bridge, SyclDevice};
pub use bridge::{RELEASES, beside, file_name};
pub(crate) use event::{Counts, Event};
pub(crate) use queue::{End, GoneOn, Kernel, Queue, TellsIdle, Work};
pub(crate) use recordings::Recordings;
