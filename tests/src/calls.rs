//! Many calls back to back with no host in between, each with data of its own, all of them verified afterwards.
//!
//! Every call has a place of its own in one large send and one large receive buffer, with guard bytes around it and
//! offsets that go through all pairs of 0 to 15 elements.

use crate::data;
use crate::local::{UNTOUCHED, sum};
use ccl_core::plan::Request;
use ccl_core::{DataType, ReduceOp, Result};
use ccl_ze::{Buffer, Communicator, Stream};
use level_zero_sys::ze_event_handle_t;
use std::ffi::c_void;

/// Where a call's result goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Into the input's place.
    InPlace,
    /// To a place of its own.
    Apart,
    /// Into a buffer that all such calls share; a copy on the same stream takes it to a place of its own.
    Shared,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Element type.
    pub dtype: DataType,
    /// Reduction.
    pub op: ReduceOp,
    /// Elements.
    pub count: usize,
    /// Where the result goes.
    pub route: Route,
}

impl Call {
    /// A sum.
    pub const fn sum(dtype: DataType, count: usize, route: Route) -> Call {
        Call { dtype, op: ReduceOp::Sum, count, route }
    }

    /// What it asks for.
    pub fn request(&self) -> Request {
        Request { op: self.op, ..sum(self.dtype, self.count) }
    }
}

/// What happens to inputs (of calls that aren't in place) after they were used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// Nothing.
    Never,
    /// A device fill with NaN on another stream, which waits on the call's completion and on nothing else.
    OnCompletion,
    /// NEGATIVE CONTROL: the same fill, which waits on nothing.
    AtOnce,
}

/// How to run calls.
pub struct Options<'a> {
    /// Varies the data.
    pub seed: u64,
    /// See [`Overwrite`].
    pub overwrite: Overwrite,
    /// Called before each call with its number.
    pub before: &'a mut dyn FnMut(usize),
}

/// What verification found.
#[derive(Debug, Default)]
pub struct Found {
    /// Calls with a wrong result, and what is wrong with it.
    pub wrong: Vec<(usize, String)>,
    /// Calls whose input was changed, or not overwritten, against [`Options::overwrite`].
    pub inputs: Vec<usize>,
    /// Bytes outside of messages that were changed.
    pub stray: usize,
}

impl Found {
    /// Whether nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.wrong.is_empty() && self.inputs.is_empty() && self.stray == 0
    }

    /// Fails the test if anything was wrong.
    pub fn assert_clean(&self, what: &str) {
        assert!(
            self.is_clean(),
            "{what}: {} calls wrong, first {:?}; {} inputs changed, first {:?}; {} stray bytes",
            self.wrong.len(),
            self.wrong.first(),
            self.inputs.len(),
            self.inputs.first(),
            self.stray
        );
    }
}

const GUARD: usize = 64;
const MAX_OFFSET: usize = 15;

/// Byte offsets of a call's message in the two large buffers.
#[derive(Clone, Copy)]
struct Place {
    send: usize,
    recv: usize,
    bytes: usize,
}

/// The places, and the sizes of the two buffers.
fn lay_out(calls: &[Call]) -> (Vec<Place>, usize, usize) {
    let (mut send_end, mut recv_end) = (0usize, 0usize);
    let places = calls.iter().enumerate().map(|(i, call)| {
        let size = call.dtype.size();
        let bytes = call.count * size;
        let place = |end: &mut usize, offset: usize| {
            let at = end.next_multiple_of(GUARD) + GUARD + offset * size;
            *end = at + bytes + GUARD;
            at
        };
        let send = place(&mut send_end, i % 16);
        let recv = if call.route == Route::InPlace { 0 } else { place(&mut recv_end, i / 16 % 16) };
        Place { send, recv, bytes }
    });
    let places = places.collect();
    (places, send_end.max(1), recv_end.max(1))
}

/// Runs `calls` on `stream`, fills on `other`, waits once at the end, and verifies every byte. An error means that a
/// call failed.
pub fn run(
    comm: &Communicator,
    stream: &Stream,
    other: &Stream,
    calls: &[Call],
    options: Options<'_>,
) -> Result<Found> {
    let (places, send_len, recv_len) = lay_out(calls);
    let input = |i: usize, rank: usize| {
        data::ordinary(calls[i].dtype, options.seed.wrapping_add(i as u64), rank, calls[i].count)
    };
    let mut arena = vec![UNTOUCHED; send_len];
    for (i, place) in places.iter().enumerate() {
        arena[place.send..][..place.bytes].copy_from_slice(&input(i, comm.rank()));
    }
    let mut send: Buffer<u8> = comm.alloc(send_len)?;
    send.write(stream, &arena)?;
    let recv: Buffer<u8> = comm.alloc(recv_len)?;
    let largest = places.iter().map(|place| place.bytes).max().unwrap_or(0);
    let shared: Buffer<u8> = comm.alloc(largest + MAX_OFFSET * 8)?;
    // SAFETY: the whole buffer, which lives until the wait.
    unsafe { stream.fill(recv.as_ptr().cast(), UNTOUCHED, recv_len, &[])? };
    stream.synchronize()?;

    let issued = issue(comm, stream, other, calls, &places, options.overwrite, options.before, [&send, &recv, &shared]);
    // Whatever went wrong: the buffers may not go before the work that was enqueued.
    stream.synchronize()?;
    other.synchronize()?;
    issued?;
    if let Some(error) = comm.fault() {
        return Err(error);
    }
    drop(shared);

    let mut received = vec![0; recv_len];
    send.read(stream, &mut arena)?;
    recv.read(stream, &mut received)?;
    let mut found = Found::default();
    for (i, (call, place)) in calls.iter().zip(&places).enumerate() {
        let inputs: Vec<Vec<u8>> = (0..comm.world_size()).map(|rank| input(i, rank)).collect();
        let want = data::reduced(&call.request(), &inputs);
        let sent = &mut arena[place.send..][..place.bytes];
        let got = if call.route == Route::InPlace {
            &mut *sent
        } else {
            let intact = match options.overwrite {
                Overwrite::Never => sent == inputs[comm.rank()],
                Overwrite::OnCompletion | Overwrite::AtOnce => sent.iter().all(|&byte| byte == 0xFF),
            };
            if !intact {
                found.inputs.push(i);
            }
            sent.fill(UNTOUCHED);
            &mut received[place.recv..][..place.bytes]
        };
        if let Some(difference) = data::first_difference(got, &want, call.dtype) {
            found.wrong.push((i, difference));
        }
        got.fill(UNTOUCHED);
    }
    found.stray = arena.iter().chain(&received).filter(|&&byte| byte != UNTOUCHED).count();
    Ok(found)
}

#[allow(clippy::too_many_arguments, reason = "one step of `run`, called once")]
fn issue(
    comm: &Communicator,
    stream: &Stream,
    other: &Stream,
    calls: &[Call],
    places: &[Place],
    overwrite: Overwrite,
    before: &mut dyn FnMut(usize),
    [send, recv, shared]: [&Buffer<u8>; 3],
) -> Result<()> {
    // Those whose event a fill waits on; the events of the others are used again.
    let mut completions = Vec::with_capacity(calls.len());
    for (i, (call, place)) in calls.iter().zip(places).enumerate() {
        before(i);
        let from: *mut c_void = send.as_ptr().wrapping_byte_add(place.send).cast();
        let home: *mut c_void = recv.as_ptr().wrapping_byte_add(place.recv).cast();
        let to = match call.route {
            Route::InPlace => from,
            Route::Apart => home,
            Route::Shared => shared.as_ptr().wrapping_byte_add(i / 16 % 16 * call.dtype.size()).cast(),
        };
        let request = call.request();
        // SAFETY: the places hold the messages, and `run` keeps the buffers until all work has finished.
        let done = unsafe { comm.all_reduce_raw(&request, from, to, stream, &[])? };
        if place.bytes > 0 && call.route == Route::Shared {
            // SAFETY: as above.
            unsafe { stream.copy(home, to, place.bytes, &[])? };
        }
        if place.bytes > 0 && call.route != Route::InPlace && overwrite != Overwrite::Never {
            let event = [done.event()?];
            let after: &[ze_event_handle_t] = if overwrite == Overwrite::OnCompletion { &event } else { &[] };
            // SAFETY: as above; the completion is kept beyond the fill.
            unsafe { other.fill(from, 0xFF, place.bytes, after)? };
            completions.push(done);
        } else if i + 1 == calls.len() {
            completions.push(done);
        }
    }
    for completion in &completions {
        completion.wait()?;
    }
    other.synchronize()
}
