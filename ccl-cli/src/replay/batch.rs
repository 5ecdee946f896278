//! Calls that are on the device together: made eagerly, and recorded in one graph.

use super::{Corrupt, Outcome};
use crate::crew::member;
use ccl_core::Result;
use ccl_core::plan::Request;
use ccl_ze::{Buffer, CallOptions, Communicator, Completion, Stream};

/// Byte that outputs are filled with before a call.
const POISON: u8 = 0xA5;

/// A call with its messages.
pub(super) struct Call {
    number: u64,
    request: Request,
    in_place: bool,
    /// Pairs of an input and what must come of it: the captured one, and perhaps another.
    messages: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Call {
    pub(super) fn new(number: u64, request: Request, in_place: bool, messages: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        Self { number, request, in_place, messages }
    }

    /// Bytes of its input.
    pub(super) fn bytes(&self) -> usize {
        self.messages[0].0.len()
    }
}

/// A call with its memory.
struct Placed {
    call: Call,
    send: Buffer<u8>,
    /// None if it is in place.
    recv: Option<Buffer<u8>>,
    got: Vec<u8>,
}

impl Placed {
    fn result(&self) -> &Buffer<u8> {
        self.recv.as_ref().unwrap_or(&self.send)
    }
}

/// Calls with their memory, and the stream that they go to.
pub(super) struct Batch {
    // Dropped first, which waits for all that it has to do with the memory below.
    stream: Stream,
    calls: Vec<Placed>,
    corrupt: Option<Corrupt>,
}

impl Batch {
    pub(super) fn new(comm: &Communicator, calls: Vec<Call>, corrupt: Option<Corrupt>) -> Result<Batch> {
        let place = |call: Call| {
            let bytes = call.bytes();
            let recv = if call.in_place { None } else { Some(comm.alloc(bytes)?) };
            Ok(Placed { send: comm.alloc(bytes)?, recv, got: vec![POISON; bytes], call })
        };
        let calls = calls.into_iter().map(place).collect::<Result<_>>()?;
        // One element of one output on the last rank.
        let corrupt = corrupt.filter(|_| comm.rank() + 1 == comm.world_size());
        Ok(Batch { stream: comm.stream(0)?, calls, corrupt })
    }

    /// All calls eagerly, and then so many replays of a graph that holds them.
    pub(super) fn run(&mut self, comm: &Communicator, replays: u32, outcome: &mut Outcome) -> Result<()> {
        self.write(0)?;
        let completions = self.append(comm)?;
        self.read()?;
        completions.iter().try_for_each(Completion::wait)?;
        self.stream.synchronize()?;
        outcome.calls += self.calls.len() as u64;
        self.compare(0, "eager", Corrupt::Eager, outcome);
        if replays == 0 {
            return Ok(());
        }
        self.stream.begin_capture()?;
        let recorded = self.append(comm);
        // Ended whatever came of it: the stream is needed again.
        let graph = self.stream.end_capture()?;
        drop(recorded?);
        let executable = graph.instantiate()?;
        outcome.graphs += 1;
        for replay in 0..replays {
            // A, B, A, ...: what a replay leaves behind is not what the next one must find.
            let which = replay as usize % 2;
            self.write(which)?;
            // SAFETY: no events, and the batch's memory outlives the wait.
            let launched = unsafe { executable.launch(&self.stream, CallOptions::default())? };
            self.read()?;
            launched.wait()?;
            self.stream.synchronize()?;
            outcome.replays += 1;
            self.compare(which, &format!("replay {replay}"), Corrupt::Graph, outcome);
            member::busy()?;
        }
        Ok(())
    }

    /// Appends the inputs' way to the device, and poison for the outputs.
    fn write(&mut self, which: usize) -> Result<()> {
        for placed in &mut self.calls {
            placed.got.fill(POISON);
            let input = &placed.call.messages[which].0;
            if input.is_empty() {
                continue;
            }
            // SAFETY: memory of these sizes, which outlives the wait for the stream.
            unsafe {
                self.stream.copy(placed.send.as_ptr().cast(), input.as_ptr().cast(), input.len(), &[])?;
                if let Some(recv) = &placed.recv {
                    self.stream.fill(recv.as_ptr().cast(), POISON, input.len(), &[])?;
                }
            }
        }
        Ok(())
    }

    /// Appends the calls.
    fn append(&self, comm: &Communicator) -> Result<Vec<Completion>> {
        let append = |placed: &Placed| {
            let (send, recv) = (placed.send.as_ptr().cast(), placed.result().as_ptr().cast());
            // SAFETY: both hold the message, and outlive the wait for the stream and the graph.
            unsafe { comm.all_reduce_raw(&placed.call.request, send, recv, &self.stream, &[]) }
        };
        self.calls.iter().map(append).collect()
    }

    /// Appends the outputs' way back.
    fn read(&mut self) -> Result<()> {
        for placed in &mut self.calls {
            if placed.got.is_empty() {
                continue;
            }
            let from = placed.recv.as_ref().unwrap_or(&placed.send).as_ptr();
            // SAFETY: memory of these sizes, which outlives the wait for the stream.
            unsafe { self.stream.copy(placed.got.as_mut_ptr().cast(), from.cast(), placed.got.len(), &[])? };
        }
        Ok(())
    }

    /// Compares all outputs.
    fn compare(&mut self, which: usize, run: &str, corrupt: Corrupt, outcome: &mut Outcome) {
        if self.corrupt == Some(corrupt) {
            self.corrupt = None;
            if let Some(placed) = self.calls.iter_mut().rev().find(|placed| !placed.got.is_empty()) {
                let middle = placed.got.len() / 2;
                placed.got[middle] ^= 1;
            }
        }
        for Placed { call, got, .. } in &self.calls {
            let (want, size) = (&call.messages[which].1, call.request.dtype.size());
            outcome.elements += (got.len() / size) as u64;
            if got == want {
                continue;
            }
            let differ = || got.chunks(size).zip(want.chunks(size)).enumerate().filter(|(_, (got, want))| got != want);
            outcome.wrong += differ().count() as u64;
            if let Some((element, (got, want))) = differ().next() {
                outcome.first.get_or_insert_with(|| {
                    format!(
                        "{run}, event {}, element {element}: got bytes {got:02x?}, expected {want:02x?}",
                        call.number
                    )
                });
            }
        }
    }
}
