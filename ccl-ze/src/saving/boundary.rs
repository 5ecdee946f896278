//! mHC boundaries as events, with what fed them.

use super::{Saving, State};
use crate::capture;
use crate::communicator::CallOptions;
use crate::completion::Completion;
use crate::gpu::Gpu;
use crate::hooks;
use crate::memory::Allocation;
use crate::stream::Stream;
use ccl_core::corpus::{AllReduce, ElementType, EventData, Kind, Link, Role, TensorData};
use ccl_core::device::Io;
use ccl_core::mhc::{Buffers, Params, Variant};
use ccl_core::{DataType, Result};
use level_zero_sys::ze_event_handle_t;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

/// An mHC call.
pub(crate) struct Boundary<'a> {
    pub(crate) params: &'a Params,
    pub(crate) buffers: &'a Buffers,
    /// The all-reduce that is in the same launch.
    pub(crate) sum: Option<AllReduce>,
}

/// What earlier events put where.
#[derive(Default)]
pub(super) struct Fed {
    /// By address: the last sum there, and its bytes.
    sums: BTreeMap<u64, (u64, usize)>,
    /// The boundary before, unless a post alone ended the chain.
    before: Option<Before>,
}

/// An mHC event's number and its outputs: name, address, bytes.
struct Before {
    number: u64,
    outputs: Vec<(&'static str, u64, Vec<u8>)>,
}

impl Fed {
    pub(super) fn reduced(&mut self, number: u64, address: u64, bytes: usize) {
        self.sums.insert(address, (number, bytes));
    }
}

/// A tensor of a call.
struct Named {
    name: &'static str,
    role: Role,
    dtype: DataType,
    shape: Vec<u64>,
    address: *const c_void,
}

impl Named {
    fn bytes(&self) -> usize {
        self.shape.iter().product::<u64>() as usize * self.dtype.size()
    }
}

/// The tensors of a boundary whose x is at `x`, in the order of an event.
fn tensors(params: &Params, buffers: &Buffers, x: *const c_void) -> Vec<Named> {
    let Params { variant, dtype, rows, hidden, streams, norm_eps, .. } = *params;
    let (hc, mixes, float) = (u64::from(streams), params.mixes() as u64, DataType::Float32);
    let pre = variant.has_pre();
    let mut all = Vec::with_capacity(16);
    let mut add = |used: bool, role, name, dtype, shape: &[u64], address: *const c_void| {
        if used && !address.is_null() {
            all.push(Named { name, role, dtype, shape: shape.to_vec(), address });
        }
    };
    let (x_shape, wide) = ([rows, hidden], [rows, hc, hidden]);
    let (row, square) = ([rows, hc], [rows, hc, hc]);
    add(true, Role::Input, "x", dtype, &x_shape, x);
    add(true, Role::Input, "residual", dtype, &wide, buffers.residual);
    add(true, Role::Input, "post", float, &row, buffers.post.cast());
    add(true, Role::Input, "comb", float, &square, buffers.comb.cast());
    add(variant == Variant::V41, Role::Input, "previous_pre", float, &row, buffers.previous_pre.cast());
    add(pre, Role::Input, "weights", float, &[mixes, hc, hidden], buffers.weights.cast());
    add(pre, Role::Input, "scale", float, &[variant.scales() as u64], buffers.scale.cast());
    add(pre, Role::Input, "base", float, &[mixes], buffers.base.cast());
    add(norm_eps.is_some(), Role::Input, "norm_weight", dtype, &[hidden], buffers.norm_weight);
    add(true, Role::Output, "residual", dtype, &wide, buffers.residual_out);
    add(pre, Role::Output, "post", float, &row, buffers.post_out.cast());
    add(pre, Role::Output, "comb", float, &square, buffers.comb_out.cast());
    add(pre, Role::Output, "pre", float, &row, buffers.pre_out.cast());
    add(pre, Role::Output, "y", dtype, &x_shape, buffers.y);
    add(norm_eps.is_some(), Role::Output, "normed", dtype, &x_shape, buffers.normed);
    all
}

impl Saving {
    /// Makes an mHC call, given as `submit`, which takes its memory and the events that it is still to wait for; saves what
    /// it reads before and what it writes after. A call that is no event of a corpus is only made.
    ///
    /// # Safety
    /// As for the call.
    pub(crate) unsafe fn around_mhc(
        &self,
        call: Boundary<'_>,
        gpu: &Arc<Gpu>,
        stream: &Stream,
        options: CallOptions<'_>,
        submit: impl FnOnce(&Buffers, &[ze_event_handle_t]) -> Result<Completion>,
    ) -> Result<Completion> {
        let Boundary { params, buffers, sum } = call;
        let Some(kind) = Kind::mhc(params).filter(|_| params.rows > 0) else {
            return submit(buffers, options.after);
        };
        let mut state = self.state.lock();
        // SAFETY: passed on to the caller.
        let (recording, after) = unsafe { capture::enter(stream, options.after)? };
        if recording.is_some() {
            state.skip(&format!("a recorded {} of {} rows", kind.name(), params.rows));
            return submit(buffers, after);
        }
        if state.writer.is_stopped() {
            state.skip("");
            return submit(buffers, after);
        }
        let mut buffers = *buffers;
        let x_bytes = (params.rows * params.hidden) as usize * params.dtype.size();
        // The sum is an event's output, wanted by the caller or not.
        let mut own = None;
        if sum.is_some() && buffers.x_out.is_null() {
            match Allocation::device(gpu, x_bytes) {
                Ok(memory) => {
                    let memory = Arc::new(memory);
                    buffers.x_out = memory.address;
                    own = Some(memory);
                }
                Err(error) => {
                    state.stop(&format!("no memory for the sum of a boundary: {error}"));
                    return submit(&buffers, after);
                }
            }
        }
        let x = if sum.is_some() { buffers.x_out.cast_const() } else { buffers.x };
        let all = tensors(params, &buffers, x);
        let late = hooks::on(self.hooks, hooks::SAVE_INPUT_LATE);
        // What of the call is there before it: all inputs, of which x is its part of the sum.
        let read = |state: &mut State, role, after: &[ze_event_handle_t]| -> Option<Vec<Vec<u8>>> {
            let mut copies = Vec::new();
            for (number, tensor) in all.iter().filter(|tensor| tensor.role == role).enumerate() {
                let first = number == 0 && role == Role::Input;
                let from = if first { buffers.x } else { tensor.address };
                let after = if number == 0 { after } else { &[] };
                // SAFETY: passed on to the caller.
                copies.push(unsafe { self.read(state, stream, from, tensor.bytes(), after)? });
            }
            Some(copies)
        };
        let mut inputs = if late { Some(Vec::new()) } else { read(&mut state, Role::Input, after) };
        let completion = submit(&buffers, after)?;
        if inputs.is_none() || !self.is_finished(&mut state, &completion) {
            // The call may still write to it.
            std::mem::forget(own);
            return Ok(completion);
        }
        if late {
            inputs = read(&mut state, Role::Input, &[]);
        }
        let outputs = read(&mut state, Role::Output, &[]);
        let (Some(mut inputs), Some(outputs)) = (inputs, outputs) else { return Ok(completion) };
        if let Some(sum) = sum {
            // SAFETY: as above; the call has finished.
            let Some(whole) = (unsafe { self.read(&mut state, stream, x, x_bytes, &[]) }) else {
                return Ok(completion);
            };
            let io = Io { send: buffers.x, recv: x.cast_mut() };
            state.save(sum, io, &inputs[0], &whole);
            inputs[0] = whole;
        }
        state.save_mhc(kind, &all, &inputs, &outputs);
        Ok(completion)
    }
}

impl State {
    fn save_mhc(&mut self, call: Kind, all: &[Named], inputs: &[Vec<u8>], outputs: &[Vec<u8>]) {
        if self.writer.is_stopped() {
            self.skip("");
            return;
        }
        let data: Vec<TensorData<'_>> = all
            .iter()
            .zip(inputs.iter().chain(outputs))
            .map(|(tensor, bytes)| TensorData {
                name: tensor.name,
                role: tensor.role,
                dtype: ElementType::Data(tensor.dtype),
                shape: &tensor.shape,
                address: tensor.address as u64,
                bytes,
            })
            .collect();
        // An event that hangs in the air would say nothing, and make the whole manifest void.
        let links = match self.fed.links(&data) {
            Ok(links) => links,
            Err(why) => return self.stop(&format!("{}: {why}", call.name())),
        };
        let ends = matches!(call, Kind::MhcPost(_));
        if !self.write(&EventData { call, tensors: &data, links: &links }) {
            return;
        }
        let written = all.iter().filter(|tensor| tensor.role == Role::Output).zip(outputs);
        self.fed.before = (!ends).then(|| Before {
            number: self.writer.events(),
            outputs: written.map(|(tensor, bytes)| (tensor.name, tensor.address as u64, bytes.clone())).collect(),
        });
    }
}

impl Fed {
    /// The links of a boundary's inputs; the error says which of them can't be led back to an event.
    ///
    /// An input is what lies where an event put its output: whether it still is that is for the verifier to say. Where it
    /// lies elsewhere, it is taken for a copy if it has the same bits.
    fn links(&self, tensors: &[TensorData<'_>]) -> std::result::Result<Vec<Link>, String> {
        let input = |name: &str| tensors.iter().find(|tensor| tensor.role == Role::Input && tensor.name == name);
        let link = |input: &str, event, output: &str| Link { input: input.into(), event, output: output.into() };
        let x = input("x").ok_or("no x")?;
        let sum = self.sums.get(&x.address).filter(|(_, bytes)| *bytes == x.bytes.len());
        let (number, _) = sum.ok_or("its x is not where a captured all_reduce put its output")?;
        let mut links = vec![link("x", *number, "output")];
        let Some(before) = &self.before else { return Ok(links) };
        for (name, output) in [("residual", "residual"), ("post", "post"), ("comb", "comb"), ("previous_pre", "pre")] {
            let here = input(name);
            let there = before.outputs.iter().find(|(known, ..)| *known == output);
            let (Some(here), Some((_, address, bytes))) = (here, there) else { continue };
            let same = here.bytes.len() == bytes.len() && (here.address == *address || here.bytes == *bytes);
            if same {
                links.push(link(name, before.number, output));
            } else if name != "previous_pre" {
                return Err(format!("its {name} is not what event {} put out", before.number));
            }
        }
        Ok(links)
    }
}
