//! Registered buffers of a communicator: every rank's memory of each, mapped here.

use crate::gpu::Gpu;
use crate::memory::{Allocation, Details, Exported, Imported};
use crate::stream::Stream;
use ccl_core::device::Io;
use ccl_core::plan::{Registered, Request};
use ccl_core::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// See the module.
pub(crate) struct Registry {
    gpu: Arc<Gpu>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By number.
    buffers: BTreeMap<u32, Arc<Shared>>,
    /// By the numbers of an input and an output.
    tables: BTreeMap<(u32, u32), Arc<Table>>,
}

/// Where an input and an output begin on every rank, as direct kernels want it. What it names stays mapped while it lives,
/// as in recordings, which keep the tables of their calls.
pub(crate) struct Table {
    memory: Allocation,
    _buffers: [Arc<Shared>; 2],
}

impl Table {
    pub(crate) fn address(&self) -> u64 {
        self.memory.address as u64
    }
}

/// One registration.
struct Shared {
    /// Where each rank's memory is mapped here.
    addresses: Vec<u64>,
    /// The own part of it.
    begin: u64,
    bytes: u64,
    _imports: Vec<Imported>,
    _own: Exported,
}

impl Registry {
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Registry {
        Registry { gpu: gpu.clone(), inner: Mutex::default() }
    }

    /// A descriptor of memory that is to be registered.
    pub(crate) fn export(memory: &Arc<Allocation>) -> Result<(Vec<u8>, OwnedFd)> {
        let (details, descriptor) = Exported::new(memory.clone())?.export()?;
        Ok((details.encode(), descriptor))
    }

    /// Maps the others' memory.
    pub(crate) fn add(
        &self,
        number: u32,
        rank: usize,
        (memory, bytes): (&Arc<Allocation>, u64),
        others: Vec<Option<(Vec<u8>, OwnedFd)>>,
    ) -> Result<()> {
        let mut imports = Vec::new();
        let mut addresses = Vec::new();
        for (peer, parcel) in others.into_iter().enumerate() {
            if peer == rank {
                addresses.push(memory.address as u64);
                continue;
            }
            let (details, descriptor) =
                parcel.ok_or_else(|| Error::Internal(format!("rank {peer} sent no memory to be registered")))?;
            let import = Imported::open(&self.gpu, &Details::decode(&details)?, descriptor)?;
            addresses.push(import.address as u64);
            imports.push(import);
        }
        let (begin, own) = (memory.address as u64, Exported::new(memory.clone())?);
        let shared = Shared { addresses, begin, bytes, _imports: imports, _own: own };
        self.inner.lock().buffers.insert(number, Arc::new(shared));
        Ok(())
    }

    /// Fails unless both buffers of `bytes` bytes lie where `registered` says: kernels trust in it.
    pub(crate) fn check(&self, registered: &Registered, bytes: u64, io: Io) -> Result<()> {
        let inner = self.inner.lock();
        let ranges = [("send", registered.send, io.send as u64), ("receive", registered.recv, io.recv as u64)];
        for (what, range, address) in ranges {
            let buffer = inner.buffers.get(&range.registration).ok_or_else(|| unknown(what))?;
            let end = range.offset.checked_add(bytes);
            let inside = end.is_some_and(|end| end <= buffer.bytes);
            if bytes > 0 && !(inside && address == buffer.begin + range.offset) {
                return Err(Error::InvalidUsage(format!(
                    "the {what} buffer of {bytes} bytes at {address:#x} is not what lies {} bytes behind the beginning of a \
                     registered buffer of {} bytes at {:#x}",
                    range.offset, buffer.bytes, buffer.begin
                )));
            }
        }
        Ok(())
    }

    /// Lets go of a registration whose calls have finished.
    pub(crate) fn remove(&self, number: u32) {
        let mut inner = self.inner.lock();
        inner.buffers.remove(&number);
        inner.tables.retain(|pair, _| ![pair.0, pair.1].contains(&number));
    }

    /// The table of the buffers that a request lies in.
    pub(crate) fn table(&self, request: &Request, stream: &Stream) -> Result<Arc<Table>> {
        let registered = request.registered.ok_or_else(|| unknown("send"))?;
        let pair = (registered.send.registration, registered.recv.registration);
        let mut inner = self.inner.lock();
        if let Some(table) = inner.tables.get(&pair) {
            return Ok(table.clone());
        }
        let send = inner.buffers.get(&pair.0).ok_or_else(|| unknown("send"))?;
        let recv = inner.buffers.get(&pair.1).ok_or_else(|| unknown("receive"))?;
        let words: Vec<u64> = send.addresses.iter().chain(&recv.addresses).copied().collect();
        let buffers = [send.clone(), recv.clone()];
        let memory = Allocation::device(&self.gpu, size_of_val(words.as_slice()))?;
        // SAFETY: the table has room for the words, which live until the stream has settled.
        unsafe { stream.copy(memory.address, words.as_ptr().cast(), size_of_val(words.as_slice()), &[])? };
        stream.settle()?;
        let table = Arc::new(Table { memory, _buffers: buffers });
        inner.tables.insert(pair, table.clone());
        Ok(table)
    }
}

fn unknown(what: &str) -> Error {
    Error::InvalidUsage(format!("the {what} buffer is not registered (any more)"))
}
