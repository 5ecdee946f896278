//! Typed device memory.

use crate::endpoint::Completed;
use crate::event::EventSlot;
use crate::gpu::Gpu;
use crate::memory::Allocation;
use crate::stream::Stream;
use ccl_core::{DataType, Error, Result};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

mod sealed {
    pub trait Sealed {}
}

/// An element type of collectives.
pub trait Element: bytemuck::Pod + sealed::Sealed + Send + Sync {
    /// Its name in a call.
    const DATATYPE: DataType;
}

macro_rules! elements {
    ($($ty:ty = $name:ident),* $(,)?) => { $(
        impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const DATATYPE: DataType = DataType::$name;
        }
    )* };
}
elements! {
    i8 = Int8, u8 = Uint8, i32 = Int32, u32 = Uint32, i64 = Int64, u64 = Uint64,
    half::f16 = Float16, f32 = Float32, f64 = Float64, half::bf16 = Bfloat16,
}

/// Device memory for `len` elements. It stays allocated until the last collective that was given it has finished.
pub struct Buffer<T> {
    storage: Arc<Storage>,
    len: usize,
    _element: PhantomData<T>,
}

/// A buffer's memory, and what of ours uses it.
pub(crate) struct Storage {
    pub(crate) memory: Arc<Allocation>,
    /// The collective that uses it last, by the number in the device's chain: those before it are over when it is.
    used: Mutex<Option<Arc<EventSlot>>>,
}

impl Storage {
    /// Keeps the memory until the call is over, or as long as it may be replayed.
    pub(crate) fn used_by(&self, call: &Completed) {
        match call {
            Completed::Issued(event) => {
                let mut used = self.used.lock();
                // Threads that share the memory may come here in another order than their calls were issued in.
                if used.as_ref().is_none_or(|noted| noted.number() < event.number()) {
                    *used = Some(event.clone());
                }
            }
            Completed::Recorded(recording, _) => recording.keep(self.memory.clone()),
        }
    }

    /// Waits for the last call that was given it, as long as that is worth it; false if it is still unfinished.
    pub(crate) fn settle(&self) -> bool {
        let used = self.used.lock().clone();
        used.is_none_or(|event| event.wait_at_end())
    }
}

impl<T: Element> Buffer<T> {
    pub(crate) fn new(gpu: &Arc<Gpu>, len: usize) -> Result<Buffer<T>> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&b| b <= isize::MAX as usize)
            .ok_or_else(|| Error::InvalidArgument(format!("a buffer of {len} elements overflows the address space")))?;
        // A driver refuses to allocate nothing.
        let memory = Arc::new(Allocation::device(gpu, bytes.max(1))?);
        Ok(Buffer { storage: Arc::new(Storage { memory, used: Mutex::new(None) }), len, _element: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address on the device.
    pub fn as_ptr(&self) -> *mut T {
        self.storage.memory.address.cast()
    }

    /// Copies `data` in, ordered on `stream` and after the last collective that was given the buffer; returns when it is
    /// there.
    pub fn write(&mut self, stream: &Stream, data: &[T]) -> Result<()> {
        self.check(stream, data.len())?;
        // SAFETY: both ranges hold that many bytes and live until the wait ends.
        unsafe { self.transfer(stream, self.storage.memory.address, data.as_ptr().cast(), size_of_val(data)) }
    }

    /// Copies the first `data.len()` elements out, ordered on `stream` and after the last collective that was given the
    /// buffer; returns when they are here.
    pub fn read(&self, stream: &Stream, data: &mut [T]) -> Result<()> {
        self.check(stream, data.len())?;
        // SAFETY: as above; any bytes are a value of a plain-old-data type.
        unsafe { self.transfer(stream, data.as_mut_ptr().cast(), self.storage.memory.address, size_of_val(data)) }
    }

    /// # Safety
    /// Both ranges hold `bytes` bytes.
    unsafe fn transfer(&self, stream: &Stream, to: *mut c_void, from: *const c_void, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let used = self.storage.used.lock().clone();
        if used.as_ref().is_some_and(|event| !event.is_bounded()) {
            stream.mark_foreign();
        }
        // A list can't wait for a SYCL queue's event.
        let used = match used {
            Some(event) if event.on_queue().is_some() => event.settle().map(|()| None)?,
            used => used,
        };
        let after = used.as_ref().map(|event| event.handle);
        // SAFETY: by the contract, and the stream is waited for; the event is held meanwhile.
        unsafe { stream.append_copy(to, from, bytes, after.as_slice())? };
        stream.synchronize()
    }

    fn check(&self, stream: &Stream, len: usize) -> Result<()> {
        stream.check_device(&self.storage.memory.gpu)?;
        // It would wait for what only a replay does.
        stream.check_issues()?;
        if len > self.len {
            return Err(Error::InvalidArgument(format!("{len} elements, but the buffer has {}", self.len)));
        }
        Ok(())
    }

    pub(crate) fn check_gpu(&self, gpu: &Arc<Gpu>, what: &str) -> Result<()> {
        if Arc::ptr_eq(&self.storage.memory.gpu, gpu) {
            return Ok(());
        }
        Err(Error::InvalidUsage(format!("the {what} buffer is on another device than the communicator")))
    }

    pub(crate) fn used_by(&self, call: &Completed) {
        self.storage.used_by(call);
    }

    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.storage.memory.address
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if !self.settle() {
            tracing::error!("a collective that uses a buffer is still unfinished; the buffer's memory is not freed");
            std::mem::forget((self.used.get_mut().take(), self.memory.clone()));
        }
    }
}

#[cfg(all(test, feature = "soft"))]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::api::ze;
    use crate::communicator::Communicator;
    use ccl_core::bootstrap;
    use ccl_core::config::{Config, DeviceChoice};
    use ccl_core::{DataType, ReduceOp};
    use std::time::Duration;

    /// Two threads have made calls on two streams, and the one whose call is the later notes it first.
    #[test]
    fn the_later_call_counts_in_whatever_order_they_are_noted() {
        let config = Config { device: DeviceChoice::Soft, ..Config::default() };
        let mesh = bootstrap::local(1).unwrap().remove(0);
        let comm = Communicator::builder_with(config).device(2).init_local(mesh).unwrap();
        let [free, held] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let buffer = comm.alloc::<f32>(100).unwrap();
        let request = comm.request(100, DataType::Float32, ReduceOp::Sum);
        let at = buffer.address();
        let call = |stream| {
            // SAFETY: the buffer has as many elements and is dropped after the wait for both.
            unsafe { comm.all_reduce_raw(&request, at, at, stream, &[]).unwrap() }
        };
        let gate = EventSlot::stale(comm.gpu()).unwrap();
        let first = call(&free);
        first.wait().unwrap();
        held.wait_on(&gate).unwrap();
        let second = call(&held);
        for done in [&second, &first] {
            buffer.used_by(done.device());
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                // SAFETY: a live event.
                unsafe { ze!(comm.gpu().api, zeEventHostSignal(gate.handle)).unwrap() };
            });
            assert!(buffer.storage().settle());
            assert_eq!(second.is_finished(), Ok(true), "only the earlier call was waited for");
        });
    }
}
