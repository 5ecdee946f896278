//! Collectives of all kinds, back to back with no host in between, against a sequential model: every byte of every
//! output, the inputs, and what lies between them.

use crate::data;
use crate::local::UNTOUCHED;
use ccl_core::collective::{Collective, CollectiveCall, Piece, Table};
use ccl_core::plan::Request;
use ccl_core::{DataType, Order, ReduceOp, Result};
use ccl_ze::{Buffer, CallOptions, Communicator, Completion, Stream};

/// What all ranks are told to do together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Job {
    /// A collective, perhaps in place.
    Collective(CollectiveCall, bool),
    /// An all-reduce, for company.
    AllReduce(Request),
    /// Elements from one rank to another, in a call of their own.
    Pair {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
        /// Elements.
        count: usize,
        /// Their type.
        dtype: DataType,
    },
    /// Each rank sends as many elements to each as [`vary`] says for this seed.
    AllToAllV(u64, DataType),
    /// The same as an exchange, between odd ranks and even ones only.
    Exchange(u64, DataType),
}

/// Elements that `from` sends `to`: none, few, or many.
pub fn vary(seed: u64, from: usize, to: usize) -> usize {
    let word = data::word(seed, from, to as u64) as usize;
    [0, 1, word % 7, word % 300, word % 9000, word % 40_000][word / 65_536 % 6]
}

/// What one rank does in a job: the call, its table, bytes of input and output, and where the input lies in the output if
/// it is in place (or the output in the input).
struct Part {
    call: CollectiveCall,
    table: Option<Table>,
    send: usize,
    recv: usize,
    /// Offsets in one buffer of `send` or `recv` bytes, whichever is more.
    in_place: Option<(usize, usize)>,
}

impl Job {
    fn size(&self) -> usize {
        match self {
            Job::Collective(call, _) => call.dtype.size(),
            Job::AllReduce(request) => request.dtype.size(),
            Job::Pair { dtype, .. } | Job::AllToAllV(_, dtype) | Job::Exchange(_, dtype) => dtype.size(),
        }
    }

    /// Elements from one rank to another.
    fn varied(&self, from: usize, to: usize) -> usize {
        match self {
            Job::AllToAllV(seed, _) => vary(*seed, from, to),
            Job::Exchange(seed, _) if from % 2 != to % 2 => vary(*seed, from, to),
            _ => 0,
        }
    }

    fn table(&self, n: usize, rank: usize) -> Table {
        let size = self.size();
        let mut table = Table::default();
        let (mut sent, mut received) = (0, 0);
        for peer in 0..n {
            let (out, inn) = (self.varied(rank, peer) * size, self.varied(peer, rank) * size);
            table.sends[peer] = Piece { offset: sent as u64, bytes: out as u64 };
            table.receives[peer] = Piece { offset: received as u64, bytes: inn as u64 };
            // The received ones are not side by side.
            sent += out;
            received += inn + 3 * size;
        }
        table
    }

    fn part(&self, n: usize, rank: usize) -> Option<Part> {
        let moving = CollectiveCall::moving;
        let (call, wants_in_place) = match *self {
            Job::Collective(call, in_place) => (call, in_place),
            Job::AllReduce(Request { count, dtype, op, order, .. }) => {
                // The shape of a reduce, for its sizes.
                let call = CollectiveCall { what: Collective::Reduce { root: rank }, count, dtype, op, order };
                let bytes = count as usize * dtype.size();
                return Some(Part { call, table: None, send: bytes, recv: bytes, in_place: None });
            }
            Job::Pair { from, to, count, dtype } if from == rank => {
                (moving(Collective::Send { to }, count as u64, dtype), false)
            }
            Job::Pair { from, to, count, dtype } if to == rank => {
                (moving(Collective::Receive { from }, count as u64, dtype), false)
            }
            Job::Pair { .. } => return None,
            Job::AllToAllV(_, dtype) => (moving(Collective::AllToAllV, 0, dtype), false),
            Job::Exchange(_, dtype) => (moving(Collective::Exchange, 0, dtype), false),
        };
        if call.what.by_table() {
            let table = self.table(n, rank);
            let end = |pieces: &[Piece]| pieces.iter().map(|p| (p.offset + p.bytes) as usize).max().unwrap_or(0);
            let (send, recv) = (end(&table.sends), end(&table.receives));
            return Some(Part { call, table: Some(table), send, recv, in_place: None });
        }
        let pattern = call.pattern(n, rank).expect("a valid call");
        let end = |of: &dyn Fn(usize) -> Option<Piece>| {
            (0..n).filter_map(of).map(|piece| (piece.offset + piece.bytes) as usize).max().unwrap_or(0)
        };
        let (send, recv) = (end(&|peer| pattern.send(peer)), end(&|peer| pattern.receive(peer)));
        let own = |piece: Option<Piece>| piece.map_or(0, |piece| piece.offset as usize);
        let in_place = wants_in_place.then(|| {
            let (from, to) = (own(pattern.send(rank)), own(pattern.receive(rank)));
            (to.saturating_sub(from), from.saturating_sub(to))
        });
        Some(Part { call, table: None, send, recv, in_place })
    }

    /// The input of a rank.
    fn input(&self, seed: u64, n: usize, rank: usize) -> Vec<u8> {
        let bytes = self.part(n, rank).map_or(0, |part| part.send);
        let dtype = match self {
            Job::Collective(call, _) if call.what.reduces() => call.dtype,
            Job::AllReduce(request) => request.dtype,
            // Moved bytes have any value.
            _ => DataType::Uint8,
        };
        data::ordinary(dtype, seed, rank, bytes / dtype.size())
    }

    /// What a rank's output must hold, and from which byte on each.
    fn expected(&self, seed: u64, n: usize, rank: usize) -> Vec<(usize, Vec<u8>)> {
        let inputs = || (0..n).map(|r| self.input(seed, n, r)).collect::<Vec<_>>();
        let reduced = |request: &Request| data::reduced(request, &inputs());
        match *self {
            Job::AllReduce(request) => vec![(0, reduced(&request))],
            Job::Pair { from, to, .. } if to == rank => vec![(0, self.input(seed, n, from))],
            Job::Pair { .. } => Vec::new(),
            Job::AllToAllV(..) | Job::Exchange(..) => {
                let own = self.table(n, rank);
                let piece = |from: usize| {
                    let Piece { offset, bytes } = self.table(n, from).sends[rank];
                    let input = self.input(seed, n, from);
                    (own.receives[from].offset as usize, input[offset as usize..][..bytes as usize].to_vec())
                };
                (0..n).map(piece).filter(|(_, bytes)| !bytes.is_empty()).collect()
            }
            Job::Collective(CollectiveCall { what, count, dtype, op, order }, _) => {
                let bytes = count as usize * dtype.size();
                let request = |count| Request { count, dtype, op, order, period: None, registered: None };
                let share = |from: usize, at: usize| self.input(seed, n, from)[at * bytes..][..bytes].to_vec();
                match what {
                    Collective::AllGather => vec![(0, inputs().concat())],
                    Collective::ReduceScatter => {
                        vec![(0, reduced(&request(count * n as u64))[rank * bytes..][..bytes].to_vec())]
                    }
                    Collective::Broadcast { root } => vec![(0, share(root, 0))],
                    Collective::Reduce { root } if root == rank => vec![(0, reduced(&request(count)))],
                    Collective::Scatter { root } => vec![(0, share(root, rank))],
                    Collective::Gather { root } if root == rank => vec![(0, inputs().concat())],
                    Collective::AllToAll => vec![(0, (0..n).flat_map(|from| share(from, rank)).collect())],
                    _ => Vec::new(),
                }
            }
        }
    }
}

const GUARD: usize = 64;

/// One rank's buffers for a list of jobs, laid out.
pub struct Bench<'a> {
    comm: &'a Communicator,
    jobs: &'a [Job],
    /// Byte offsets of input and output of each job; one arena for both.
    places: Vec<(usize, usize)>,
    parts: Vec<Option<Part>>,
    arena: Buffer<u8>,
    len: usize,
}

impl<'a> Bench<'a> {
    /// Room for the jobs, each at another alignment.
    pub fn new(comm: &'a Communicator, jobs: &'a [Job]) -> Result<Bench<'a>> {
        let mut end = 0usize;
        let (n, rank) = (comm.world_size(), comm.rank());
        let parts: Vec<_> = jobs.iter().map(|job| job.part(n, rank)).collect();
        let place = |(i, (job, part)): (usize, (&Job, &Option<Part>))| {
            let Some(part) = part else { return (0, 0) };
            let mut room = |bytes: usize, skew: usize| {
                let at = end.next_multiple_of(GUARD) + GUARD + skew % 16 * job.size();
                end = at + bytes + GUARD;
                at
            };
            match part.in_place {
                Some((send, recv)) => {
                    let at = room(part.send.max(part.recv), i);
                    (at + send, at + recv)
                }
                None => (room(part.send, i), room(part.recv, i / 16 + 3 * i)),
            }
        };
        let places = jobs.iter().zip(&parts).enumerate().map(place).collect();
        let len = end.max(1);
        Ok(Bench { comm, jobs, places, parts, arena: comm.alloc(len)?, len })
    }

    /// Writes the inputs of a round.
    pub fn write(&mut self, stream: &Stream, seed: u64) -> Result<()> {
        let image = self.image(seed, false);
        self.arena.write(stream, &image)
    }

    /// The arena before the calls, or as it must be after them.
    fn image(&self, seed: u64, after: bool) -> Vec<u8> {
        let (n, rank) = (self.comm.world_size(), self.comm.rank());
        let mut image = vec![UNTOUCHED; self.len];
        for (i, (job, (send, recv))) in self.jobs.iter().zip(&self.places).enumerate() {
            if self.parts[i].is_none() {
                continue;
            }
            let seed = seed.wrapping_mul(1000).wrapping_add(i as u64);
            let input = job.input(seed, n, rank);
            image[*send..][..input.len()].copy_from_slice(&input);
            if after {
                for (offset, bytes) in job.expected(seed, n, rank) {
                    image[recv + offset..][..bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
        image
    }

    /// Appends the calls; the last completion stands for all, those of other streams apart.
    pub fn issue(&self, stream: &Stream, before: &mut dyn FnMut(usize)) -> Result<Vec<Completion>> {
        let mut completions = Vec::new();
        for (i, (job, part)) in self.jobs.iter().zip(&self.parts).enumerate() {
            before(i);
            let Some(part) = part else { continue };
            let (send, recv) = self.places[i];
            let (send, recv) = (self.arena.as_ptr().wrapping_add(send), self.arena.as_ptr().wrapping_add(recv));
            // SAFETY: the places hold the messages, and the caller keeps the bench until all work has finished.
            let done = unsafe {
                match job {
                    Job::AllReduce(request) => {
                        self.comm.all_reduce_raw(request, send.cast(), recv.cast(), stream, &[])?
                    }
                    _ => self.comm.collective_raw(
                        &part.call,
                        part.table.as_ref(),
                        send.cast(),
                        recv.cast(),
                        stream,
                        CallOptions::default(),
                    )?,
                }
            };
            completions.push(done);
        }
        Ok(completions)
    }

    /// What is wrong with the arena after a round, or nothing.
    pub fn check(&self, stream: &Stream, seed: u64) -> Result<Option<String>> {
        let mut got = vec![0; self.len];
        self.arena.read(stream, &mut got)?;
        let want = self.image(seed, true);
        let Some(at) = got.iter().zip(&want).position(|(g, w)| g != w) else { return Ok(None) };
        let wrong = got.iter().zip(&want).filter(|(g, w)| g != w).count();
        let place = self.places.iter().rposition(|(send, recv)| (*send).min(*recv) <= at).unwrap_or(0);
        let (send, recv) = self.places[place];
        Ok(Some(format!(
            "{wrong} bytes wrong; first at {at}, near job {place} {:?} (input {send}, output {recv}): got {:02x?}, want {:02x?}",
            self.jobs[place],
            &got[at..(at + 8).min(self.len)],
            &want[at..(at + 8).min(self.len)]
        )))
    }
}

/// Runs jobs back to back, waits once at the end, and says what is wrong.
pub fn run(
    comm: &Communicator,
    stream: &Stream,
    jobs: &[Job],
    seed: u64,
    before: &mut dyn FnMut(usize),
) -> Result<Option<String>> {
    let mut bench = Bench::new(comm, jobs)?;
    bench.write(stream, seed)?;
    let issued = bench.issue(stream, before);
    // Whatever went wrong: the buffers may not go before the work that was enqueued.
    stream.synchronize()?;
    for completion in &issued? {
        completion.wait()?;
    }
    if let Some(error) = comm.fault() {
        return Err(error);
    }
    bench.check(stream, seed)
}

/// Collectives of every kind with this many elements, in place and not.
pub fn every_kind(n: usize, count: usize, dtype: DataType, op: ReduceOp, order: Order) -> Vec<Job> {
    let (first, last) = (count % n, (count + n - 1) % n);
    let kinds = [
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Broadcast { root: last },
        Collective::Reduce { root: first },
        Collective::Scatter { root: first },
        Collective::Gather { root: last },
        Collective::AllToAll,
    ];
    let mut jobs = Vec::new();
    for what in kinds {
        let call = CollectiveCall { what, count: count as u64, dtype, op, order };
        let call = if what.reduces() { call } else { CollectiveCall { op: ReduceOp::Sum, order: Order::Ring, ..call } };
        jobs.extend([Job::Collective(call, false), Job::Collective(call, true)]);
    }
    jobs
}
