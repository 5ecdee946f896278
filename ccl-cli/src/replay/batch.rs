//! Calls that are on the device together: made eagerly, and recorded in one graph.

use super::{Corrupt, Outcome};
use crate::crew::member;
use ccl_core::mhc::{Buffers, Params};
use ccl_core::plan::Request;
use ccl_core::{Error, Result};
use ccl_ze::{Buffer, CallOptions, Communicator, Completion, Stream};
use std::sync::Arc;

/// Byte that outputs are filled with before a call.
const POISON: u8 = 0xA5;

/// What is done.
pub(super) enum What {
    AllReduce(Request),
    Mhc(Params),
}

/// One input or output of a call.
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) output: bool,
    /// Bytes of an element.
    pub(super) element: usize,
    /// Which of the call's places it is in: an output may be in an input's.
    pub(super) place: usize,
    /// What it holds, or must hold, with the captured inputs; and with others, if that differs.
    pub(super) values: Vec<Arc<[u8]>>,
}

impl Tensor {
    fn value(&self, which: usize) -> &[u8] {
        &self.values[which.min(self.values.len() - 1)]
    }
}

/// A call with its messages.
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) what: What,
    pub(super) tensors: Vec<Tensor>,
}

impl Call {
    /// Bytes of all that it has.
    pub(super) fn bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.value(0).len()).sum()
    }
}

/// A call with its memory.
struct Placed {
    call: Call,
    places: Vec<Buffer<u8>>,
    /// What came out, by output.
    got: Vec<Vec<u8>>,
}

impl Placed {
    fn new(comm: &Communicator, call: Call) -> Result<Placed> {
        let count = call.tensors.iter().map(|tensor| tensor.place + 1).max().unwrap_or(0);
        let places = (0..count).map(|place| {
            let of = call.tensors.iter().filter(|tensor| tensor.place == place);
            comm.alloc(of.map(|tensor| tensor.value(0).len()).max().unwrap_or(0))
        });
        let places = places.collect::<Result<_>>()?;
        let outputs = call.tensors.iter().filter(|tensor| tensor.output);
        let got = outputs.map(|tensor| vec![POISON; tensor.value(0).len()]).collect();
        Ok(Placed { call, places, got })
    }

    fn outputs(&self) -> impl Iterator<Item = (&Tensor, &Vec<u8>)> {
        self.call.tensors.iter().filter(|tensor| tensor.output).zip(&self.got)
    }

    /// Where an input or output is; null if the call has none of the name.
    fn address(&self, output: bool, name: &str) -> *mut u8 {
        let tensor = self.call.tensors.iter().find(|tensor| tensor.output == output && tensor.name == name);
        tensor.map_or(std::ptr::null_mut(), |tensor| self.places[tensor.place].as_ptr())
    }

    fn append(&self, comm: &Communicator, stream: &Stream) -> Result<Completion> {
        let (input, output) = (|name| self.address(false, name), |name| self.address(true, name));
        match &self.call.what {
            // SAFETY: both hold the message, and outlive the wait for the stream and the graph.
            What::AllReduce(request) => unsafe {
                comm.all_reduce_raw(request, input("input").cast(), output("output").cast(), stream, &[])
            },
            What::Mhc(params) => {
                let buffers = Buffers {
                    x: input("x").cast(),
                    residual: input("residual").cast(),
                    post: input("post").cast(),
                    comb: input("comb").cast(),
                    previous_pre: input("previous_pre").cast(),
                    weights: input("weights").cast(),
                    weights_shape: [params.mixes() as u64, u64::from(params.streams) * params.hidden],
                    scale: input("scale").cast(),
                    base: input("base").cast(),
                    norm_weight: input("norm_weight").cast(),
                    x_out: std::ptr::null_mut(),
                    residual_out: output("residual").cast(),
                    post_out: output("post").cast(),
                    comb_out: output("comb").cast(),
                    pre_out: output("pre").cast(),
                    y: output("y").cast(),
                    normed: output("normed").cast(),
                };
                // SAFETY: of the shapes of the event, which verified; they outlive the wait for the stream and the graph.
                unsafe { comm.mhc(params, &buffers, stream, CallOptions::default()) }
            }
        }
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
        if calls.iter().any(|call| call.tensors.iter().any(|tensor| tensor.values.is_empty())) {
            return Err(Error::Internal("a tensor without a value".into()));
        }
        let calls = calls.into_iter().map(|call| Placed::new(comm, call)).collect::<Result<_>>()?;
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
            placed.got.iter_mut().for_each(|got| got.fill(POISON));
            // Inputs after outputs, which may be in their places.
            for output in [true, false] {
                for tensor in placed.call.tensors.iter().filter(|tensor| tensor.output == output) {
                    let (to, value) = (placed.places[tensor.place].as_ptr(), tensor.value(which));
                    if value.is_empty() {
                        continue;
                    }
                    // SAFETY: memory of these sizes, which outlives the wait for the stream.
                    unsafe {
                        if output {
                            self.stream.fill(to.cast(), POISON, value.len(), &[])?;
                        } else {
                            self.stream.copy(to.cast(), value.as_ptr().cast(), value.len(), &[])?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends the calls.
    fn append(&self, comm: &Communicator) -> Result<Vec<Completion>> {
        self.calls.iter().map(|placed| placed.append(comm, &self.stream)).collect()
    }

    /// Appends the outputs' way back.
    fn read(&mut self) -> Result<()> {
        for Placed { call, places, got } in &mut self.calls {
            for (tensor, got) in call.tensors.iter().filter(|tensor| tensor.output).zip(got) {
                if got.is_empty() {
                    continue;
                }
                let from = places[tensor.place].as_ptr();
                // SAFETY: memory of these sizes, which outlives the wait for the stream.
                unsafe { self.stream.copy(got.as_mut_ptr().cast(), from.cast(), got.len(), &[])? };
            }
        }
        Ok(())
    }

    /// Compares all outputs.
    fn compare(&mut self, which: usize, run: &str, corrupt: Corrupt, outcome: &mut Outcome) {
        if self.corrupt == Some(corrupt) {
            self.corrupt = None;
            let mut all = self.calls.iter_mut().rev().flat_map(|placed| &mut placed.got);
            if let Some(got) = all.find(|got| !got.is_empty()) {
                let middle = got.len() / 2;
                got[middle] ^= 1;
            }
        }
        for placed in &self.calls {
            for (tensor, got) in placed.outputs() {
                let (want, size) = (tensor.value(which), tensor.element);
                outcome.elements += (got.len() / size) as u64;
                if got == want {
                    continue;
                }
                let differ =
                    || got.chunks(size).zip(want.chunks(size)).enumerate().filter(|(_, (got, want))| got != want);
                outcome.wrong += differ().count() as u64;
                if let Some((element, (got, want))) = differ().next() {
                    outcome.first.get_or_insert_with(|| {
                        format!(
                            "{run}, event {}, element {element} of '{}': got bytes {got:02x?}, expected {want:02x?}",
                            placed.call.number, tensor.name
                        )
                    });
                }
            }
        }
    }
}
