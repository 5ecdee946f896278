//! Ranks as threads of this process, and blocking calls on plain bytes.

use ccl_core::comm::StartState;
use ccl_core::config::Config;
use ccl_core::plan::Request;
use ccl_core::{DataType, Order, ReduceOp, Result, bootstrap};
use ccl_ze::{Buffer, Communicator, Stream};
use std::ffi::c_void;

/// What an output holds before a call: no sum of test data has these bytes throughout.
pub const UNTOUCHED: u8 = 0xA5;

/// Forms a group of `n` threads, rank r on device r, and returns what `body` makes of each communicator. The process
/// must have `n` devices: run it as a [`crate::Group`] of one rank with `ZE_SOFT_DEVICES` set.
pub fn ranks<R: Send>(
    n: usize,
    config: &Config,
    start: &StartState,
    body: impl Fn(Communicator) -> R + Sync,
) -> Vec<R> {
    let meshes = bootstrap::local(n).expect("socket pairs");
    std::thread::scope(|scope| {
        let threads: Vec<_> = meshes
            .into_iter()
            .enumerate()
            .map(|(rank, mesh)| {
                let body = &body;
                scope.spawn(move || {
                    let builder = Communicator::builder_with(config.clone()).device(rank).start(start.clone());
                    body(builder.init_local(mesh).unwrap_or_else(|e| panic!("rank {rank} of {n}: {e}")))
                })
            })
            .collect();
        let joined: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        joined.into_iter().map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// A sum in ring order.
pub fn sum(dtype: DataType, count: usize) -> Request {
    Request { count: count as u64, dtype, op: ReduceOp::Sum, order: Order::Ring, period: None, registered: None }
}

/// A communicator with a stream and room for a message.
pub struct Peer {
    /// The communicator.
    pub comm: Communicator,
    /// Where its calls go.
    pub stream: Stream,
    send: Buffer<u8>,
    recv: Buffer<u8>,
}

impl Peer {
    /// Buffers of `capacity` bytes.
    pub fn new(comm: Communicator, capacity: usize) -> Peer {
        let stream = comm.stream(0).expect("a stream");
        let send = comm.alloc(capacity).expect("a send buffer");
        let recv = comm.alloc(capacity).expect("a receive buffer");
        Peer { comm, stream, send, recv }
    }

    /// Reduces `input` and waits for the result.
    pub fn reduce(&mut self, request: &Request, input: &[u8], in_place: bool) -> Result<Vec<u8>> {
        assert_eq!(input.len(), request.count as usize * request.dtype.size(), "bytes of the input");
        self.send.write(&self.stream, input)?;
        let send: *mut c_void = self.send.as_ptr().cast();
        let recv: *mut c_void = if in_place { send } else { self.recv.as_ptr().cast() };
        if !in_place && !input.is_empty() {
            // SAFETY: the buffer holds the input's bytes and lives until the wait below.
            unsafe { self.stream.fill(recv, UNTOUCHED, input.len(), &[])? };
        }
        // SAFETY: both buffers hold the message and live until the wait.
        unsafe { self.comm.all_reduce_raw(request, send, recv, &self.stream, &[])?.wait()? };
        let mut output = vec![0; input.len()];
        if in_place { &self.send } else { &self.recv }.read(&self.stream, &mut output)?;
        Ok(output)
    }
}
