//! A communicator of the library underneath, as its callers' threads see it: what they leave for the comparer, and what that
//! costs them.

use crate::abi::Code;
use crate::call::{Call, Op};
use crate::queue::Queue;
use crate::real;
use crate::report::{Spent, Tally};
use crate::sample::Sample;
use ccl_core::types::Factor;
use ccl_core::{DataType, ReduceOp};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const HOST_IMMEDIATE: c_int = 1;

/// This rank's place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) rank: usize,
    pub(crate) n: usize,
}

/// What a call leaves.
pub(crate) struct Kept {
    /// Its number on the communicator, from 1.
    pub(crate) number: u64,
    pub(crate) call: Call,
    /// Its input, as it was before, and its output; or why it can't be compared.
    pub(crate) data: Result<(Vec<u8>, Vec<u8>), String>,
}

/// What the comparer does in turn.
pub(crate) enum Job {
    Call(Box<Kept>),
    /// The ranks part; whoever waits for the new mesh gets it.
    Split {
        number: u64,
        color: Option<u32>,
        key: i32,
        made: std::sync::mpsc::Sender<ccl_core::mesh::Mesh>,
    },
    End,
}

struct Draw {
    calls: u64,
    sample: Sample,
    /// Calls, or groups of them, that are being made.
    flying: u32,
    /// Counts how often one began while another ran.
    overlaps: u64,
}

/// A communicator that is watched.
pub(crate) struct Watched {
    seat: (Mutex<Option<Seat>>, Condvar),
    pub(crate) name: OnceLock<u32>,
    draw: Mutex<Draw>,
    pub(crate) queue: Queue<Job>,
    /// Reductions of the communicator's own; none of which the factor can't be read.
    factors: Mutex<BTreeMap<c_int, Option<Factor>>>,
    pub(crate) tally: Mutex<Tally>,
    began: Instant,
    callers: AtomicU64,
    pub(crate) beside: AtomicU64,
    patience: Duration,
    over: AtomicBool,
    ending: AtomicBool,
    finished: (Mutex<bool>, Condvar),
}

/// A call that is being made.
pub(crate) struct Begun {
    number: u64,
    place: u64,
    call: Call,
    data: Result<(Vec<u8>, usize), String>,
}

impl Watched {
    pub(crate) fn new(seat: Option<Seat>) -> Arc<Watched> {
        let (share, timeout) =
            real::config().as_ref().map_or((0, Duration::ZERO), |config| (config.witness_share, config.timeout));
        // As capturing: never long enough to be the reason that a call of the library underneath fails.
        Self::with(seat, share, timeout / 2)
    }

    /// With a share of the calls in percent, and the time for which a caller waits at most.
    pub(crate) fn with(seat: Option<Seat>, share: u32, patience: Duration) -> Arc<Watched> {
        let draw = Draw { calls: 0, sample: Sample::new(share), flying: 0, overlaps: 0 };
        Arc::new(Watched {
            seat: (Mutex::new(seat), Condvar::new()),
            name: OnceLock::new(),
            draw: Mutex::new(draw),
            queue: Queue::new(),
            factors: Mutex::default(),
            tally: Mutex::default(),
            began: Instant::now(),
            callers: AtomicU64::new(0),
            beside: AtomicU64::new(0),
            patience,
            over: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            finished: (Mutex::new(false), Condvar::new()),
        })
    }

    /// This rank's place, when it is known: after a split that takes the other ranks.
    pub(crate) fn seat(&self) -> Option<Seat> {
        let until = Instant::now() + self.patience;
        let mut seat = self.seat.0.lock();
        while seat.is_none() && !self.is_over() {
            if self.seat.1.wait_until(&mut seat, until).timed_out() {
                break;
            }
        }
        *seat
    }

    /// The same, as far as it is known now.
    pub(crate) fn known_seat(&self) -> Option<Seat> {
        *self.seat.0.lock()
    }

    pub(crate) fn sit(&self, seat: Seat) {
        *self.seat.0.lock() = Some(seat);
        self.seat.1.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Compares nothing any more.
    pub(crate) fn give_up(&self, why: &str) {
        if self.over.swap(true, Ordering::Relaxed) {
            return;
        }
        let left = self.queue.close() as u64;
        let mut tally = self.tally.lock();
        tally.leave_out("comparing had ended", left);
        tally.gave_up = Some(why.into());
        drop(tally);
        let guard = self.seat.0.lock();
        self.seat.1.notify_all();
        drop(guard);
    }

    /// Draws by less or more from some later call on.
    pub(crate) fn adapt(&self, latest: u64, taken: f64, bound: f64) {
        self.draw.lock().sample.adapt(latest, taken, bound);
    }

    /// All ranks draw alike.
    pub(crate) fn agree(&self, share: u32) {
        let mut draw = self.draw.lock();
        draw.sample = Sample::new(share);
    }

    pub(crate) fn spent(&self) -> Spent {
        let nanoseconds = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed));
        Spent { callers: nanoseconds(&self.callers), beside: nanoseconds(&self.beside), of: self.began.elapsed() }
    }

    fn took(&self, since: Instant) {
        self.callers.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// Notes a call that is passed on and no more.
    pub(crate) fn leave_out(&self, why: &str) {
        let mut tally = self.tally.lock();
        tally.calls += 1;
        tally.leave_out(why, 1);
    }

    /// A call, or a group of them, begins on this communicator. What is returned goes to [`Self::leave`].
    pub(crate) fn enter(&self) -> u64 {
        let mut draw = self.draw.lock();
        draw.flying += 1;
        draw.overlaps += u64::from(draw.flying > 1);
        draw.overlaps + u64::from(draw.flying > 1) * u64::MAX / 2
    }

    /// It has ended. Whether no other ran meanwhile: which calls of the ranks belong together is not known of others.
    pub(crate) fn leave(&self, entered: u64) -> bool {
        let mut draw = self.draw.lock();
        draw.flying -= 1;
        draw.overlaps == entered
    }

    /// A call is about to be made; keeps its input, unless it is `hidden` for a reason. A caller that has a group open can't
    /// wait for room.
    pub(crate) fn begin(&self, call: Call, may_wait: bool, hidden: Option<&'static str>) -> Option<Begun> {
        let since = Instant::now();
        let begun = self.keep_input(call, may_wait, hidden);
        self.took(since);
        begun
    }

    fn keep_input(&self, call: Call, may_wait: bool, hidden: Option<&'static str>) -> Option<Begun> {
        if !self.is_over() && may_wait && !self.queue.wait_for_room(self.patience) {
            self.give_up(&format!("other ranks did not make their calls within {} s", self.patience.as_secs_f64()));
        }
        let (number, place) = {
            let mut draw = self.draw.lock();
            draw.calls += 1;
            let number = draw.calls;
            let mut tally = self.tally.lock();
            tally.calls += 1;
            if self.is_over() {
                tally.leave_out("comparing had ended", 1);
                return None;
            }
            if draw.sample.is_empty() || !draw.sample.draws(number) {
                tally.leave_out("not in the share that is compared", 1);
                return None;
            }
            // In the order of the numbers.
            (number, self.queue.take())
        };
        let data = self.input(&call, hidden);
        Some(Begun { number, place, call, data })
    }

    /// A copy of a call's input, and the bytes of its output; or why it can't be compared.
    fn input(&self, call: &Call, hidden: Option<&'static str>) -> Result<(Vec<u8>, usize), String> {
        if let Some(why) = hidden {
            return Err(why.into());
        }
        // Whoever didn't know its counts has waited already.
        let seat = if call.lacks_table() { None } else { self.seat() };
        let Seat { rank, n } = seat.ok_or("the ranks' witnesses have not met")?;
        let (send, recv) = call.extents(n, rank)?;
        if call.op == Op::Unknown {
            return Err("its factor is in device memory".into());
        }
        Ok((copied(call.send, send)?, recv))
    }

    /// The call has returned; keeps its output.
    pub(crate) fn end(&self, begun: Begun, code: Code, alone: bool) {
        let since = Instant::now();
        let Begun { number, place, call, data } = begun;
        let data = data.and_then(|(input, bytes)| {
            if code != 0 {
                return Err(format!("the library underneath returned {code}"));
            }
            if !alone {
                return Err("another thread made calls on the communicator at the same time".into());
            }
            Ok((input, copied(call.recv, bytes)?))
        });
        let bytes = data.as_ref().map_or(0, |(input, output)| input.len() + output.len());
        self.queue.fill(place, Job::Call(Box::new(Kept { number, call, data })), bytes);
        self.took(since);
    }

    /// The ranks part here.
    pub(crate) fn split(&self, color: Option<u32>, key: i32, made: std::sync::mpsc::Sender<ccl_core::mesh::Mesh>) {
        let (number, place) = {
            let mut draw = self.draw.lock();
            draw.calls += 1;
            (draw.calls, self.queue.take())
        };
        self.queue.fill(place, Job::Split { number, color, key, made }, 0);
    }

    /// No more calls come.
    pub(crate) fn end_calls(&self) {
        if !self.ending.swap(true, Ordering::Relaxed) {
            let place = self.queue.take();
            self.queue.fill(place, Job::End, 0);
        }
    }

    /// Reports, once.
    pub(crate) fn finish(&self) {
        let mut finished = self.finished.0.lock();
        if !std::mem::replace(&mut *finished, true) {
            let (name, seat) = (self.name.get().copied().unwrap_or(0), self.known_seat());
            let mut tally = self.tally.lock().clone();
            if let Some(why) = tally.gave_up.clone() {
                tally.leave_out(&format!("comparing ended early: {why}"), 0);
                crate::report::say(&format!("communicator {name:08x}: comparing ended early: {why}"));
            }
            tally.report(name, seat, self.spent());
            self.finished.1.notify_all();
        }
    }

    /// Waits for the comparer; what it has not done by then is reported as not done.
    pub(crate) fn finish_by(&self, until: Instant) {
        let mut finished = self.finished.0.lock();
        while !*finished {
            if self.finished.1.wait_until(&mut finished, until).timed_out() {
                drop(finished);
                self.give_up("the process ended before the other ranks had told what they found");
                return self.finish();
            }
        }
    }

    /// A reduction of this number.
    pub(crate) fn reduction(&self, number: c_int) -> Option<Op> {
        if let Some(op) = u32::try_from(number).ok().and_then(ReduceOp::from_abi) {
            return Some(Op::Known(op));
        }
        let factor = *self.factors.lock().get(&number)?;
        Some(factor.map_or(Op::Unknown, |factor| Op::Known(ReduceOp::PreMulSum(factor))))
    }

    /// # Safety
    /// `scalar` is one of that type, if it is in host memory: a binary32 number for bfloat16.
    pub(crate) unsafe fn knows_factor(&self, op: c_int, scalar: *const c_void, dtype: c_int, residence: c_int) {
        let dtype = u32::try_from(dtype).ok().and_then(DataType::from_abi);
        let factor = dtype.filter(|_| residence == HOST_IMMEDIATE && !scalar.is_null()).map(|dtype| {
            let own = if dtype == DataType::Bfloat16 { DataType::Float32 } else { dtype };
            let mut bytes = [0u8; 8];
            // SAFETY: the scalar has that many bytes, no more than there is room for.
            unsafe { std::ptr::copy_nonoverlapping(scalar.cast(), bytes.as_mut_ptr(), own.size()) };
            Factor::new(own, u64::from_le_bytes(bytes))
        });
        self.factors.lock().insert(op, factor);
    }

    pub(crate) fn forgets_factor(&self, op: c_int) {
        self.factors.lock().remove(&op);
    }
}

/// A copy of so many bytes at `address`. The system makes it: what the host can't read, as a device's memory, is told and does
/// not end the program.
fn copied(address: usize, bytes: usize) -> Result<Vec<u8>, String> {
    let mut copy = vec![0u8; bytes];
    let mut at = 0;
    while at < bytes {
        let from = RemoteIoVec { base: address + at, len: bytes - at };
        match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(&mut copy[at..])], &[from]) {
            Ok(0) | Err(Errno::EFAULT) => return Err("its buffers are not the host's".into()),
            Ok(read) => at += read,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(format!("process_vm_readv, by which buffers are copied, is refused: {errno}")),
        }
    }
    Ok(copy)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn memory_that_can_not_be_read_is_told() {
        let text: Vec<u8> = (0..100_000).map(|i| (i * 7 + i / 256) as u8).collect();
        assert_eq!(copied(text.as_ptr() as usize, text.len()).unwrap(), text);
        assert!(copied(0, 0).unwrap().is_empty());
        assert!(copied(4096, 8).unwrap_err().contains("not the host's"));
    }
}
