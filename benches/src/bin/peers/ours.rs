//! This library as a contestant.

use crate::data::Type;
use crate::serve::Contestant;
use ccl_core::bootstrap::UniqueId;
use ccl_core::config::Config;
use ccl_core::plan::Registered;
use ccl_core::{DataType, ReduceOp};
use ccl_ze::{Buffer, Communicator, RegisteredBuffer, Stream};

/// The variant whose buffers are registered; the other is `staged`.
const REGISTERED: &str = "registered";

pub(crate) struct Ours {
    // Dropped before the memory that its work uses.
    stream: Stream,
    send: Buffer<u8>,
    recv: Buffer<u8>,
    /// Buffers that all ranks know of, and as they know them: another pair, so that the one is staged all the same.
    known: [(Buffer<u8>, RegisteredBuffer<u8>); 2],
    comm: Communicator,
}

impl Ours {
    pub(crate) fn new(id: &UniqueId, rank: usize, ranks: usize, max_bytes: usize) -> ccl_core::Result<Self> {
        let comm = Communicator::builder_with(Config::from_env()?).init(id, rank, ranks)?;
        let buffer = || comm.alloc::<u8>(max_bytes);
        let known = || {
            let buffer = buffer()?;
            let registered = comm.register(&buffer)?;
            Ok::<_, ccl_core::Error>((buffer, registered))
        };
        let known = [known()?, known()?];
        if !known.iter().all(|(_, registered)| registered.is_direct()) {
            return Err(ccl_core::Error::NotImplemented("registered buffers can't be reached directly here".into()));
        }
        Ok(Self { stream: comm.stream(0)?, send: buffer()?, recv: buffer()?, known, comm })
    }
}

impl Contestant for Ours {
    fn set_input(&mut self, variant: &str, bytes: &[u8]) -> Result<(), String> {
        let clear = vec![0xA5; bytes.len()];
        let write = |buffer: &mut Buffer<u8>, data: &[u8]| buffer.write(&self.stream, data).map_err(|e| e.to_string());
        let (send, recv) = match (variant, &mut self.known) {
            (REGISTERED, [(send, _), (recv, _)]) => (send, recv),
            _ => (&mut self.send, &mut self.recv),
        };
        write(send, bytes)?;
        write(recv, &clear)
    }

    fn all_reduce(&mut self, variant: &str, dtype: Type, bytes: usize) -> Result<(), String> {
        let datatype = match dtype {
            Type::Float32 => DataType::Float32,
            Type::Bfloat16 => DataType::Bfloat16,
        };
        let mut request = self.comm.request((bytes / dtype.size()) as u64, datatype, ReduceOp::Sum);
        let [(known_send, send), (known_recv, recv)] = &self.known;
        let (send, recv) = if variant == REGISTERED {
            let both = send.range(0).zip(recv.range(0));
            request.registered = both.map(|(send, recv)| Registered { send, recv });
            (known_send, known_recv)
        } else {
            (&self.send, &self.recv)
        };
        // SAFETY: both buffers hold as many bytes as any step was announced with, and live as long as the stream.
        let done = unsafe {
            let (send, recv) = (send.as_ptr().cast_const().cast(), recv.as_ptr().cast());
            self.comm.all_reduce_raw(&request, send, recv, &self.stream, &[])
        };
        done.and_then(|done| done.wait()).map_err(|error| error.to_string())
    }

    fn output(&mut self, variant: &str, to: &mut [u8]) -> Result<bool, String> {
        let recv = if variant == REGISTERED { &self.known[1].0 } else { &self.recv };
        recv.read(&self.stream, to).map(|()| true).map_err(|error| error.to_string())
    }
}
