//! This library as a contestant.

use crate::data::Type;
use crate::serve::Contestant;
use ccl_core::bootstrap::UniqueId;
use ccl_core::config::Config;
use ccl_core::{DataType, ReduceOp};
use ccl_ze::{Buffer, Communicator, Stream};

pub(crate) struct Ours {
    // Dropped before the memory that its work uses.
    stream: Stream,
    send: Buffer<u8>,
    recv: Buffer<u8>,
    comm: Communicator,
}

impl Ours {
    pub(crate) fn new(id: &UniqueId, rank: usize, ranks: usize, max_bytes: usize) -> ccl_core::Result<Self> {
        let comm = Communicator::builder_with(Config::from_env()?).init(id, rank, ranks)?;
        let buffer = || comm.alloc::<u8>(max_bytes);
        Ok(Self { stream: comm.stream(0)?, send: buffer()?, recv: buffer()?, comm })
    }
}

impl Contestant for Ours {
    fn set_input(&mut self, _variant: &str, bytes: &[u8]) -> Result<(), String> {
        let clear = vec![0xA5; bytes.len()];
        let write = |buffer: &mut Buffer<u8>, data: &[u8]| buffer.write(&self.stream, data).map_err(|e| e.to_string());
        write(&mut self.send, bytes)?;
        write(&mut self.recv, &clear)
    }

    fn all_reduce(&mut self, _variant: &str, dtype: Type, bytes: usize) -> Result<(), String> {
        let datatype = match dtype {
            Type::Float32 => DataType::Float32,
            Type::Bfloat16 => DataType::Bfloat16,
        };
        let request = self.comm.request((bytes / dtype.size()) as u64, datatype, ReduceOp::Sum);
        // SAFETY: both buffers hold as many bytes as any step was announced with, and live as long as the stream.
        let done = unsafe {
            let (send, recv) = (self.send.as_ptr().cast_const().cast(), self.recv.as_ptr().cast());
            self.comm.all_reduce_raw(&request, send, recv, &self.stream, &[])
        };
        done.and_then(|done| done.wait()).map_err(|error| error.to_string())
    }

    fn output(&mut self, _variant: &str, to: &mut [u8]) -> Result<bool, String> {
        self.recv.read(&self.stream, to).map(|()| true).map_err(|error| error.to_string())
    }
}
