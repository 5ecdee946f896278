//! Buffers that all ranks know of.

use crate::buffer::{Buffer, Element, Storage};
use crate::communicator::{CallOptions, Communicator};
use crate::completion::Completion;
use crate::stream::Stream;
use ccl_core::plan::{Registered, RegisteredRange};
use ccl_core::{Error, ReduceOp, Result};
use std::marker::PhantomData;
use std::sync::Arc;

/// A [`Buffer`] whose memory all ranks of a communicator know, so that calls can go straight from buffer to buffer where
/// memory is coherent. Elsewhere it serves as any other buffer does.
///
/// The memory stays allocated as long as this lives. Dropping it waits for the calls on this rank that were given it;
/// afterwards no rank may be given its own handle of the same registration any more. Recordings that hold calls of it keep
/// what these use, and can be replayed.
pub struct RegisteredBuffer<T> {
    communicator: Communicator,
    storage: Arc<Storage>,
    len: usize,
    /// None where direct calls can't be.
    number: Option<u32>,
    _element: PhantomData<T>,
}

impl<T: Element> RegisteredBuffer<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether calls can go straight from buffer to buffer.
    pub fn is_direct(&self) -> bool {
        self.number.is_some()
    }

    /// Address on the device.
    pub fn as_ptr(&self) -> *mut T {
        self.storage.memory.address.cast()
    }

    /// Where element `first` is, for a request of raw addresses; nothing where direct calls can't be.
    pub fn range(&self, first: usize) -> Option<RegisteredRange> {
        let offset = (first * size_of::<T>()) as u64;
        self.number.map(|registration| RegisteredRange { registration, offset })
    }

    fn check(&self, first: usize, count: usize, what: &str) -> Result<()> {
        if first.checked_add(count).is_none_or(|end| end > self.len) {
            return Err(Error::InvalidArgument(format!(
                "{count} elements from number {first} on, but the {what} buffer has {}",
                self.len
            )));
        }
        Ok(())
    }
}

impl Communicator {
    /// Makes a buffer known to all ranks. Every rank calls this, for buffers of equal length and in the same order; all
    /// succeed or all fail.
    pub fn register<T: Element>(&self, buffer: &Buffer<T>) -> Result<RegisteredBuffer<T>> {
        buffer.check_gpu(self.gpu(), "registered")?;
        let storage = buffer.storage().clone();
        let number = self.core().register(&storage.memory, (buffer.len() * size_of::<T>()) as u64)?;
        Ok(RegisteredBuffer { communicator: self.clone(), storage, len: buffer.len(), number, _element: PhantomData })
    }

    /// `recv = op over ranks of send`, of `count` elements from the `first` ones of both buffers on (which may be one), on
    /// every rank. All ranks pass handles of the same registrations and the same numbers. Ordered on `stream`; returns once
    /// it is appended.
    pub fn all_reduce_registered<T: Element>(
        &self,
        (send, send_first): (&RegisteredBuffer<T>, usize),
        (recv, recv_first): (&RegisteredBuffer<T>, usize),
        count: usize,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<Completion> {
        send.check(send_first, count, "send")?;
        recv.check(recv_first, count, "receive")?;
        for buffer in [send, recv] {
            if !self.core().is(buffer.communicator.core()) {
                return Err(Error::InvalidUsage("a buffer was registered with another communicator".into()));
            }
        }
        let mut request = self.request(count as u64, T::DATATYPE, op);
        if let (Some(send), Some(recv)) = (send.range(send_first), recv.range(recv_first)) {
            request.registered = Some(Registered { send, recv });
        }
        let (from, to) = (send.as_ptr().wrapping_add(send_first), recv.as_ptr().wrapping_add(recv_first));
        let options = CallOptions { after: &[], signal: None };
        // SAFETY: the buffers have that many elements, and keep their memory until the call has finished.
        let completion =
            unsafe { self.all_reduce_with(&request, from.cast_const().cast(), to.cast(), stream, options)? };
        for buffer in [send, recv] {
            buffer.storage.used_by(completion.device());
        }
        Ok(completion)
    }
}

impl<T> Drop for RegisteredBuffer<T> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        if self.storage.settle() {
            self.communicator.core().deregister(number);
        } else {
            tracing::error!("a collective that uses a registered buffer is still unfinished; it stays registered");
            std::mem::forget((self.communicator.clone(), self.storage.clone()));
        }
    }
}
