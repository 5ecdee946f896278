//! Memory: the allocations of this process, found by address.

mod alloc;
mod late;
mod mapping;
mod reserved;

pub(crate) use mapping::{File, page_size, raise_descriptor_limit};

use crate::device;
use crate::engine::cuda::{self, DeviceMemory, Pinned};
use crate::error::fail;
use crate::fault::{Late, Mapped};
use late::Shadow;
use level_zero_sys::*;
use mapping::Mapping;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Memory that programs know by its address.
pub(crate) struct Allocation {
    /// Never used again in this process.
    pub(crate) id: u64,
    pub(crate) kind: ze_memory_type_t,
    /// The device it was allocated, or opened, for.
    pub(crate) device: Option<u32>,
    base: usize,
    size: usize,
    backing: Backing,
}

enum Backing {
    /// Made by this process, which holds the file to export it.
    Own { file: File, exported: Mutex<Exported>, _pinned: Option<Pinned>, _mapping: Mapping },
    /// A GPU's, made by this process. The file, made for the first to ask, says what another process is to open.
    /// CUDA doesn't open memory in the process that allocated it: whoever does that here gets the same address, counted.
    Gpu { memory: DeviceMemory, ticket: OnceLock<File>, exported: Mutex<Exported>, opened: AtomicU64 },
    /// Made by somebody, opened from an IPC handle. The mapping alone keeps the memory.
    Opened(Opened),
    /// Physical memory that the program has mapped into addresses it reserved, until it unmaps it ([`reserved`]).
    Placed,
    /// The program's own pages, which it keeps mapped until it releases them.
    Imported { _pinned: Option<Pinned> },
}

enum Opened {
    Direct(Mapping),
    Late(Arc<Shadow>),
    /// Another process's memory on a GPU. CUDA gives the same address to all who open it, so it is opened once and counted.
    Gpu {
        _memory: cuda::Opened,
        times: AtomicU64,
    },
}

/// The descriptor that IPC handles of an allocation carry: there while handles are out.
#[derive(Default)]
struct Exported {
    descriptor: Option<OwnedFd>,
    handles: usize,
}

static ALLOCATIONS: RwLock<BTreeMap<usize, Arc<Allocation>>> = RwLock::new(BTreeMap::new());

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Allocation {
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The first address behind it.
    pub(crate) fn end(&self) -> usize {
        self.base + self.size
    }

    /// The file behind memory of this process's own making.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.backing {
            Backing::Own { file, .. } => Some(file),
            Backing::Gpu { ticket, .. } => ticket.get(),
            Backing::Opened(_) | Backing::Imported { .. } | Backing::Placed => None,
        }
    }

    /// The number of the descriptor for an IPC handle, which `handles` more handles carry from now on. It stays good
    /// until as many are put back, or the memory is freed.
    pub(crate) fn export(&self, handles: usize) -> Result<RawFd, ze_result_t> {
        let (file, exported) = match &self.backing {
            Backing::Own { file, exported, .. } => (file, exported),
            Backing::Gpu { memory, ticket, exported, .. } => (self.ticket(memory, ticket)?, exported),
            Backing::Opened(_) | Backing::Imported { .. } | Backing::Placed => {
                let text = "only memory that this process allocated as such can be exported";
                return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, text));
            }
        };
        let mut exported = exported.lock();
        let descriptor = match exported.descriptor.take() {
            Some(descriptor) => descriptor,
            None => file.duplicate().map_err(|error| out_of_memory(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, &error))?,
        };
        let number = descriptor.as_raw_fd();
        exported.descriptor = Some(descriptor);
        exported.handles += handles;
        Ok(number)
    }

    fn ticket<'a>(&self, memory: &DeviceMemory, ticket: &'a OnceLock<File>) -> Result<&'a File, ze_result_t> {
        if let Some(file) = ticket.get() {
            return Ok(file);
        }
        let bytes = memory.ticket().map_err(|why| fail(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, why))?;
        let file = File::ticket(self.device, &bytes)
            .map_err(|error| out_of_memory(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, &error))?;
        Ok(ticket.get_or_init(|| file))
    }

    /// Puts one handle back; the last one closes the descriptor.
    pub(crate) fn put_back(&self) -> Result<(), ze_result_t> {
        let (Backing::Own { exported, .. } | Backing::Gpu { exported, .. }) = &self.backing else { return Ok(()) };
        let mut exported = exported.lock();
        match exported.handles.checked_sub(1) {
            None => Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "this handle was put back before")),
            Some(left) => {
                exported.handles = left;
                if left == 0 {
                    exported.descriptor = None;
                }
                Ok(())
            }
        }
    }
}

impl Allocation {
    /// Counts one opening less, where there are others or the memory is this process's own; false if it is to go.
    fn close_one(&self) -> bool {
        let (count, last) = match &self.backing {
            Backing::Gpu { opened, .. } => (opened, 0),
            Backing::Opened(Opened::Gpu { times, .. }) => (times, 1),
            Backing::Own { .. } | Backing::Opened(_) | Backing::Imported { .. } | Backing::Placed => return false,
        };
        let more = count.load(Ordering::Relaxed) > last;
        if more {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        more
    }
}

/// The error of an operation that the system refused.
fn out_of_memory(code: ze_result_t, error: &io::Error) -> ze_result_t {
    fail(code, format!("the system refused memory or a descriptor: {error}"))
}

/// The allocation that an address lies in.
pub(crate) fn find(pointer: *const c_void) -> Option<Arc<Allocation>> {
    let address = pointer.addr();
    let allocations = ALLOCATIONS.read();
    let (_, allocation) = allocations.range(..=address).next_back()?;
    (address < allocation.end()).then(|| allocation.clone())
}

fn insert(allocation: Allocation) -> *mut c_void {
    let base = allocation.base;
    ALLOCATIONS.write().insert(base, Arc::new(allocation));
    std::ptr::with_exposed_provenance_mut(base)
}

/// Takes out the allocation that starts at `pointer` if `right` says it is one of the kind wanted.
fn remove(pointer: *const c_void, right: impl FnOnce(&Allocation) -> bool) -> Result<Arc<Allocation>, ze_result_t> {
    let unknown = |what: &str| fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("{pointer:p} {what}"));
    let mut allocations = ALLOCATIONS.write();
    match allocations.get(&pointer.addr()) {
        None => Err(unknown("is not the start of any memory of this driver")),
        Some(allocation) if right(allocation) => {
            Ok(allocations.remove(&pointer.addr()).expect("it was found under the same lock"))
        }
        Some(_) => Err(unknown(
            "is released by another call: free what was allocated, close what was opened, unmap what was mapped",
        )),
    }
}

/// Makes new memory of a kind, for a device or the host, in whole pages.
fn allocate(
    kind: ze_memory_type_t,
    device: Option<u32>,
    size: usize,
    alignment: usize,
) -> Result<*mut c_void, ze_result_t> {
    sweep();
    let code = if device.is_some() { ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY } else { ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY };
    if crate::fault::fail_allocation() {
        return Err(fail(code, "this allocation was to fail (ZESOFT_FAULT_FAIL_ALLOCATION)"));
    }
    if let (true, ZE_MEMORY_TYPE_DEVICE, Some(index)) = (cuda::runs(), kind, device) {
        return allocate_on_gpu(index, size, alignment);
    }
    let make = || {
        let file = File::create(kind, device, size)?;
        let mapping = Mapping::of_file(file.descriptor(), file.size(), alignment, true)?;
        Ok((file, mapping))
    };
    let (file, mapping) = make().map_err(|error| out_of_memory(code, &error))?;
    let (base, size) = (mapping.base(), file.size());
    let _pinned = Pinned::new(base, size)?;
    let backing = Backing::Own { file, exported: Mutex::default(), _pinned, _mapping: mapping };
    Ok(insert(Allocation { id: next_id(), kind, device, base, size, backing }))
}

fn allocate_on_gpu(index: u32, size: usize, alignment: usize) -> Result<*mut c_void, ze_result_t> {
    let memory = DeviceMemory::allocate(index, size).map_err(|why| fail(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, why))?;
    let (base, size) = (memory.base(), memory.size());
    if alignment != 0 && !base.is_multiple_of(alignment) {
        let text = format!("CUDA gives no memory aligned to {alignment} bytes");
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, text));
    }
    let (ticket, exported, opened) = (OnceLock::new(), Mutex::default(), AtomicU64::new(0));
    let backing = Backing::Gpu { memory, ticket, exported, opened };
    let kind = ZE_MEMORY_TYPE_DEVICE;
    Ok(insert(Allocation { id: next_id(), kind, device: Some(index), base, size, backing }))
}

/// Frees memory that this process allocated or imported.
fn free(pointer: *const c_void) -> Result<(), ze_result_t> {
    sweep();
    remove(pointer, |allocation| !matches!(allocation.backing, Backing::Opened(_) | Backing::Placed)).map(drop)
}

/// Memory that is to go once nothing that was issued can use it any more.
static DEFERRED: Mutex<Vec<Arc<Allocation>>> = Mutex::new(Vec::new());

/// Frees memory as soon as everything issued so far is done.
fn free_later(pointer: *const c_void) -> Result<(), ze_result_t> {
    let allocation = remove(pointer, |allocation| !matches!(allocation.backing, Backing::Opened(_) | Backing::Placed))?;
    DEFERRED.lock().push(allocation);
    sweep();
    Ok(())
}

/// Frees what was deferred, if its time has come.
fn sweep() {
    let mut deferred = DEFERRED.lock();
    if !deferred.is_empty() && device::all_idle() {
        deferred.clear();
    }
}

/// Maps a file for a device; what is mapped depends on the fault that is planted.
pub(crate) fn open(file: &File, device: u32, mapped: Mapped) -> Result<*mut c_void, ze_result_t> {
    if file.is_ticket() || cuda::runs() {
        return open_on_gpu(file, device, mapped);
    }
    let make = || match mapped {
        Mapped::True => Mapping::of_file(file.descriptor(), file.size(), 0, true).map(Opened::Direct),
        Mapped::Corrupt => Mapping::of_file(file.descriptor(), file.size(), 0, false).map(Opened::Direct),
        Mapped::Late(late) => open_late(file, late).map(Opened::Late),
    };
    let opened = make().map_err(|error| out_of_memory(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, &error))?;
    let base = match &opened {
        Opened::Direct(mapping) => mapping.base(),
        Opened::Late(shadow) => shadow.base(),
        Opened::Gpu { _memory, .. } => _memory.base(),
    };
    Ok(insert(Allocation {
        id: next_id(),
        kind: file.kind(),
        device: Some(device),
        base,
        size: file.size(),
        backing: Backing::Opened(opened),
    }))
}

fn open_on_gpu(file: &File, device: u32, mapped: Mapped) -> Result<*mut c_void, ze_result_t> {
    if !(file.is_ticket() && cuda::runs()) {
        let text = "memory can be opened only where the same engine runs as in the process that allocated it";
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, text));
    }
    if !matches!(mapped, Mapped::True) {
        let text = "faults of links can't be planted into the memory of a GPU";
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, text));
    }
    let ticket = file.read_ticket().map_err(|error| out_of_memory(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, &error))?;
    // Held meanwhile: who opens the same memory at the same time is to be counted.
    let mut allocations = ALLOCATIONS.write();
    if let Some(own) = cuda::own(&ticket) {
        let Some(Backing::Gpu { opened, .. }) = allocations.get(&own).map(|allocation| &allocation.backing) else {
            return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the memory of this handle was freed"));
        };
        opened.fetch_add(1, Ordering::Relaxed);
        return Ok(std::ptr::with_exposed_provenance_mut(own));
    }
    let memory = cuda::Opened::open(device, &ticket).map_err(|why| fail(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, why))?;
    let (base, size) = (memory.base(), memory.size());
    let pointer = std::ptr::with_exposed_provenance_mut(base);
    if let Some(before) = allocations.get(&base)
        && let Backing::Opened(Opened::Gpu { times, .. }) = &before.backing
    {
        times.fetch_add(1, Ordering::Relaxed);
        return Ok(pointer);
    }
    let backing = Backing::Opened(Opened::Gpu { _memory: memory, times: AtomicU64::new(1) });
    let (id, kind, device) = (next_id(), ZE_MEMORY_TYPE_DEVICE, Some(device));
    allocations.insert(base, Arc::new(Allocation { id, kind, device, base, size, backing }));
    Ok(pointer)
}

fn open_late(file: &File, late: Late) -> io::Result<Arc<Shadow>> {
    late::start(Mapping::of_file(file.descriptor(), file.size(), 0, true)?, late)
}

/// Closes memory that was opened from an IPC handle; late stores arrive first.
pub(crate) fn close(pointer: *const c_void) -> Result<(), ze_result_t> {
    if ALLOCATIONS.write().get(&pointer.addr()).is_some_and(|allocation| allocation.close_one()) {
        return Ok(());
    }
    let allocation = remove(pointer, |allocation| matches!(allocation.backing, Backing::Opened(_)))?;
    if let Backing::Opened(Opened::Late(shadow)) = &allocation.backing {
        late::finish(shadow);
    }
    Ok(())
}

/// Makes pages of the program's own known to the driver, as host memory.
pub(crate) fn import_pages(pointer: *mut c_void, size: usize) -> Result<(), ze_result_t> {
    let page = mapping::page_size();
    if pointer.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    if size == 0 || !size.is_multiple_of(page) || !pointer.addr().is_multiple_of(page) {
        return Err(fail(
            ZE_RESULT_ERROR_INVALID_SIZE,
            format!("{size} bytes at {pointer:p} are not whole pages of {page}"),
        ));
    }
    let base = pointer.expose_provenance();
    let Some(end) = base.checked_add(size) else {
        return Err(fail(ZE_RESULT_ERROR_INVALID_SIZE, format!("{size} bytes at {pointer:p} leave the address space")));
    };
    if !mapping::is_mapped(base, size) {
        return Err(fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, format!("{size} bytes at {pointer:p} are not all mapped")));
    }
    let kind = ZE_MEMORY_TYPE_HOST_IMPORTED;
    let mut allocations = ALLOCATIONS.write();
    if allocations.range(..end).next_back().is_some_and(|(_, other)| other.end() > base) {
        return Err(fail(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            format!("{size} bytes at {pointer:p} overlap memory that the driver has already"),
        ));
    }
    let backing = Backing::Imported { _pinned: Pinned::new(base, size)? };
    allocations.insert(base, Arc::new(Allocation { id: next_id(), kind, device: None, base, size, backing }));
    Ok(())
}

/// Forgets pages that were imported.
pub(crate) fn release_import(pointer: *const c_void) -> Result<(), ze_result_t> {
    if pointer.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    remove(pointer, |allocation| matches!(allocation.backing, Backing::Imported { .. })).map(drop)
}

/// The address of the entry point of this name.
pub(crate) fn resolve(name: &[u8]) -> Option<*const c_void> {
    alloc::resolve(name).or_else(|| reserved::resolve(name))
}
