//! Groups of the C ABI: whatever order each rank queues its calls in, the results are those of one call after the other.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::bootstrap::UniqueId;
use ccl_tests::Group;
use ccl_tests::abi::{INT32, SUM, element, id_of, join, last_error, new_id, seen_of};
use cclx::*;
use std::ptr::{null, null_mut};
use std::time::Duration;

/// Numbers that are alike on all ranks, or not, as the seed is.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    AllReduce,
    Broadcast { root: usize },
    AllGather,
    ReduceScatter,
    Message { from: usize, to: usize },
}

/// A call of the plan, on one of the communicators.
#[derive(Clone, Copy, Debug)]
struct Planned {
    number: usize,
    comm: usize,
    kind: Kind,
    count: usize,
}

/// One side of a call on one rank.
struct Side {
    call: Planned,
    sends: bool,
    /// Calls of one lane keep their order.
    lane: (usize, u8, usize),
}

impl Side {
    fn input(&self, n: usize, rank: usize) -> Vec<i32> {
        let count = match self.call.kind {
            Kind::ReduceScatter => n * self.call.count,
            _ => self.call.count,
        };
        (0..count).map(|i| element(self.call.number, rank, i)).collect()
    }

    fn wanted(&self, n: usize, rank: usize) -> Vec<i32> {
        let Planned { number, kind, count, .. } = self.call;
        let sum = |i: usize| (0..n).map(|of| element(number, of, i)).sum::<i32>();
        match kind {
            Kind::AllReduce => (0..count).map(sum).collect(),
            Kind::ReduceScatter => (0..count).map(|i| sum(rank * count + i)).collect(),
            Kind::Broadcast { root } => (0..count).map(|i| element(number, root, i)).collect(),
            Kind::AllGather => (0..n * count).map(|i| element(number, i / count, i % count)).collect(),
            Kind::Message { from, .. } if !self.sends => (0..count).map(|i| element(number, from, i)).collect(),
            Kind::Message { .. } => Vec::new(),
        }
    }

    /// # Safety
    /// The buffers live until the group's end.
    unsafe fn issue(&self, comm: *mut OnecclComm, input: &[i32], output: &mut [i32]) -> i32 {
        let (from, to, count, none) = (input.as_ptr().cast(), output.as_mut_ptr().cast(), self.call.count, null_mut());
        // SAFETY: by the contract.
        unsafe {
            match self.call.kind {
                Kind::AllReduce => onecclAllReduce(from, to, count, INT32, SUM, comm, none),
                Kind::Broadcast { root } => onecclBroadcast(from, to, count, INT32, root as i32, comm, none),
                Kind::AllGather => onecclAllGather(from, to, count, INT32, comm, none),
                Kind::ReduceScatter => onecclReduceScatter(from, to, count, INT32, SUM, comm, none),
                Kind::Message { to: peer, .. } if self.sends => onecclSend(from, count, INT32, peer as i32, comm, none),
                Kind::Message { from, .. } => onecclRecv(to, count, INT32, from as i32, comm, none),
            }
        }
    }
}

/// The same on all ranks.
fn plan(seed: u64, calls: usize, n: usize) -> Vec<Planned> {
    let mut chance = Chance(seed);
    (0..calls)
        .map(|number| {
            let kind = match chance.below(7) {
                0 => Kind::AllReduce,
                1 => Kind::Broadcast { root: chance.below(n) },
                2 => Kind::AllGather,
                3 => Kind::ReduceScatter,
                // Also to oneself.
                _ => Kind::Message { from: chance.below(n), to: chance.below(n) },
            };
            Planned { number, comm: chance.below(2), kind, count: [0, 1, 3, 40, 700][chance.below(5)] }
        })
        .collect()
}

/// A rank's sides of the calls, in an order of its own.
fn shuffled(plan: &[Planned], rank: usize, chance: &mut Chance) -> Vec<Side> {
    let mut lanes: Vec<Vec<Side>> = Vec::new();
    let mut add = |side: Side| match lanes.iter_mut().find(|lane| lane[0].lane == side.lane) {
        Some(lane) => lane.push(side),
        None => lanes.push(vec![side]),
    };
    for &call in plan {
        match call.kind {
            Kind::Message { from, to } => {
                if from == rank {
                    add(Side { call, sends: true, lane: (call.comm, 1, to) });
                }
                if to == rank {
                    add(Side { call, sends: false, lane: (call.comm, 2, from) });
                }
            }
            _ => add(Side { call, sends: false, lane: (call.comm, 0, 0) }),
        }
    }
    lanes.iter_mut().for_each(|lane| lane.reverse());
    let mut order = Vec::new();
    while !lanes.is_empty() {
        let lane = chance.below(lanes.len());
        order.extend(lanes[lane].pop());
        if lanes[lane].is_empty() {
            lanes.swap_remove(lane);
        }
    }
    order
}

#[test]
fn groups_in_any_order_are_like_one_call_after_the_other() {
    Group::new("groups_in_any_order_are_like_one_call_after_the_other", 3).env("CCLX_DEVICE", "soft").run(|me| {
        let (rank, n) = (me.rank, me.n);
        let first = me.joined();
        let mut second = null_mut();
        // SAFETY: a handle, and a place for another.
        assert_eq!(unsafe { onecclCommSplit(first, 0, rank as i32, &raw mut second, null_mut()) }, 0);
        let comms = [first, second];
        for (seed, calls) in [(11, 40), (12, 300), (13, 1000)] {
            let sides = shuffled(&plan(seed, calls, n), rank, &mut Chance(seed * 1000 + rank as u64));
            let inputs: Vec<_> = sides.iter().map(|side| side.input(n, rank)).collect();
            let mut outputs: Vec<_> = sides.iter().map(|side| vec![-1; side.wanted(n, rank).len()]).collect();
            assert_eq!(onecclGroupStart(), 0);
            for ((side, input), output) in sides.iter().zip(&inputs).zip(&mut outputs) {
                // SAFETY: the buffers live until the group's end.
                let code = unsafe { side.issue(comms[side.call.comm], input, output) };
                assert_eq!(code, 0, "{:?}: {}", side.call, last_error(null_mut()));
                assert!(output.iter().all(|x| *x == -1), "nothing happens before the group's end");
            }
            assert_eq!(onecclGroupEnd(), 0, "{}", last_error(null_mut()));
            for (side, output) in sides.iter().zip(&outputs) {
                assert_eq!(*output, side.wanted(n, rank), "seed {seed}, rank {rank}: {:?}", side.call);
            }
        }
        for comm in comms {
            // SAFETY: a handle.
            assert_eq!(unsafe { onecclCommDestroy(comm) }, 0);
        }
    });
}

/// Both ranks queue what they receive before what they send. Without a group the same calls wait for each other until the
/// deadline.
#[test]
fn receives_before_sends_need_a_group() {
    let group = Group::new("receives_before_sends_need_a_group", 2).env("CCLX_DEVICE", "soft");
    group.env("CCLX_TIMEOUT_MS", 1500).env("CCLX_ON_ERROR", "log").limit(Duration::from_secs(60)).run(|me| {
        let comm = me.joined();
        let peer = 1 - me.rank as i32;
        let input: Vec<i32> = (0..100).map(|i| element(1, me.rank, i)).collect();
        let mut output = vec![0i32; 100];
        for grouped in [true, false] {
            output.fill(0);
            // SAFETY: the buffers live until the calls are over.
            unsafe {
                if grouped {
                    assert_eq!(onecclGroupStart(), 0);
                }
                let received = onecclRecv(output.as_mut_ptr().cast(), 100, INT32, peer, comm, null_mut());
                let sent = onecclSend(input.as_ptr().cast(), 100, INT32, peer, comm, null_mut());
                if grouped {
                    assert_eq!((received, sent, onecclGroupEnd()), (0, 0, 0));
                    assert!((0..100).all(|i| output[i] == element(1, peer as usize, i)));
                } else {
                    assert_eq!((received, sent), (2, 2), "{}", last_error(comm));
                }
            }
        }
    });
}

/// NEGATIVE CONTROL of the order in which a group's calls are made: in the order in which they were queued, a message before
/// a collective on one rank and behind it on the other, and two communicators in different orders, wait until the deadline.
#[test]
fn groups_need_their_order() {
    let group = Group::new("groups_need_their_order", 2).env("CCLX_DEVICE", "soft");
    group.env("CCLX_TIMEOUT_MS", 2000).env("CCLX_ON_ERROR", "log").limit(Duration::from_secs(90)).run(|me| {
        let peer = 1 - me.rank;
        for (as_queued, several) in [(false, false), (false, true), (true, false), (true, true)] {
            let first = me_again(&me, as_queued, several);
            let mut second = null_mut();
            // SAFETY: a handle, and a place for another.
            assert_eq!(unsafe { onecclCommSplit(first, 0, me.rank as i32, &raw mut second, null_mut()) }, 0);
            ccl_ze::hooks::GROUPS_AS_QUEUED.store(as_queued, std::sync::atomic::Ordering::Relaxed);
            let input: Vec<i32> = (0..100).map(|i| element(3, me.rank, i)).collect();
            let (mut sums, mut other) = (vec![0i32; 100], vec![0i32; 100]);
            let (from, sum, to) = (input.as_ptr().cast(), sums.as_mut_ptr().cast(), other.as_mut_ptr().cast());
            let reduce = |comm, to| {
                // SAFETY: the buffers live until the group's end.
                assert_eq!(unsafe { onecclAllReduce(from, to, 100, INT32, SUM, comm, null_mut()) }, 0);
            };
            let message = || {
                // SAFETY: as above.
                let code = unsafe {
                    match me.rank {
                        0 => onecclSend(from, 100, INT32, 1, first, null_mut()),
                        _ => onecclRecv(to, 100, INT32, 0, first, null_mut()),
                    }
                };
                assert_eq!(code, 0);
            };
            assert_eq!(onecclGroupStart(), 0);
            match (several, me.rank) {
                (false, 0) => (reduce(first, sum), message()),
                (false, _) => (message(), reduce(first, sum)),
                (true, 0) => (reduce(first, sum), reduce(second, to)),
                (true, _) => (reduce(second, to), reduce(first, sum)),
            };
            let ended = onecclGroupEnd();
            if as_queued {
                assert_ne!(ended, 0, "several communicators: {several}");
                continue;
            }
            assert_eq!(ended, 0, "{}", last_error(null_mut()));
            let both = |i| element(3, 0, i) + element(3, 1, i);
            assert!((0..100).all(|i| sums[i] == both(i)));
            match (several, me.rank) {
                (true, _) => assert!((0..100).all(|i| other[i] == both(i))),
                (false, 1) => assert!((0..100).all(|i| other[i] == element(3, peer, i))),
                (false, _) => {}
            }
        }
        // What failed says no goodbye that would be waited for.
        std::process::exit(0);
    });
}

/// A communicator of this turn: a failed one is of no more use. The ids go from rank 0 to the other by a file.
fn me_again(me: &ccl_tests::Rank, as_queued: bool, several: bool) -> *mut OnecclComm {
    let path = std::env::temp_dir().join(format!(
        "ccl-groups-{}-{as_queued}-{several}",
        me.id.as_bytes().iter().fold(0u64, |all, byte| all.wrapping_mul(31).wrapping_add(u64::from(*byte)))
    ));
    if me.rank == 0 {
        let id = UniqueId::create(Default::default()).unwrap();
        let part = path.with_extension("part");
        std::fs::write(&part, id.as_bytes()).unwrap();
        std::fs::rename(&part, &path).unwrap();
        return join(id_of(&id), 0, 2);
    }
    let until = std::time::Instant::now() + Duration::from_secs(30);
    let bytes = loop {
        match std::fs::read(&path) {
            Ok(bytes) => break bytes,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    std::fs::remove_file(&path).unwrap();
    join(id_of(&UniqueId::from_bytes(bytes.try_into().unwrap())), 1, 2)
}

/// Ranks 0 and 1 are one thread of one process.
#[test]
fn one_thread_is_several_ranks_in_groups() {
    let group = Group::new("one_thread_is_several_ranks_in_groups", 1).env("CCLX_DEVICE", "soft");
    // Ranks that wait for one another in their splits fail before the test does.
    group.env("CCL_KVS_CONNECTION_TIMEOUT", 20).run(|_| {
        let id = new_id();
        let mut comms = [null_mut(); 2];
        assert_eq!(onecclGroupStart(), 0);
        for (rank, comm) in comms.iter_mut().enumerate() {
            onecclSetDevice(rank as u32);
            // SAFETY: a place for the communicator.
            assert_eq!(unsafe { onecclCommInitRank(comm, 2, id, rank as i32) }, 0);
        }
        let mut number = -1;
        // SAFETY: a handle, and a place for a number.
        assert_eq!(unsafe { onecclCommUserRank(comms[0], &raw mut number) }, 5, "it is not made yet");
        assert_eq!(onecclGroupEnd(), 0, "{}", last_error(null_mut()));
        for call in 0..20 {
            let inputs = [0, 1].map(|rank| (0..500).map(|i| element(call, rank, i)).collect::<Vec<_>>());
            let (mut sums, mut got) = ([vec![0i32; 500], vec![0i32; 500]], [vec![0i32; 500], vec![0i32; 500]]);
            assert_eq!(onecclGroupStart(), 0);
            // The ranks take their calls in different orders.
            for rank in if call % 2 == 0 { [0, 1] } else { [1, 0] } {
                let (from, comm, peer) = (inputs[rank].as_ptr().cast(), comms[rank], 1 - rank as i32);
                // SAFETY: the buffers live until the group's end.
                unsafe {
                    let (sum, other) = (sums[rank].as_mut_ptr().cast(), got[rank].as_mut_ptr().cast());
                    assert_eq!(onecclRecv(other, 500, INT32, peer, comm, null_mut()), 0);
                    assert_eq!(onecclAllReduce(from, sum, 500, INT32, SUM, comm, null_mut()), 0);
                    assert_eq!(onecclSend(from, 500, INT32, peer, comm, null_mut()), 0);
                }
            }
            assert_eq!(onecclGroupEnd(), 0, "{}", last_error(null_mut()));
            for rank in 0..2 {
                assert!((0..500).all(|i| sums[rank][i] == element(call, 0, i) + element(call, 1, i)));
                assert_eq!(got[rank], inputs[1 - rank]);
            }
        }
        // Two splits, each of both ranks; the second turns them around.
        let mut made = [[null_mut(); 2]; 2];
        assert_eq!(onecclGroupStart(), 0);
        for (sign, made) in [1, -1].into_iter().zip(&mut made) {
            for (rank, place) in made.iter_mut().enumerate() {
                // SAFETY: a handle, and a place for another.
                assert_eq!(unsafe { onecclCommSplit(comms[rank], 0, sign * rank as i32, place, null_mut()) }, 0);
            }
        }
        assert_eq!(onecclGroupEnd(), 0, "{}", last_error(null_mut()));
        ranks_as_threads(made[0], |rank, comm| assert_eq!(seen_of(comm, 5 + rank), (2, rank, 11)));
        ranks_as_threads(made[1], |rank, comm| assert_eq!(seen_of(comm, 5 + rank), (2, 1 - rank, 11)));
        // And by two threads, each of which waits for its own.
        ranks_as_threads(comms, |rank, comm| {
            let mut own = null_mut();
            // SAFETY: a handle, and a place for another.
            let code = unsafe { onecclCommSplit(comm, 3, -rank, &raw mut own, null_mut()) };
            assert_eq!(code, 0, "{}", last_error(null_mut()));
            assert_eq!(seen_of(own, 7 + rank), (2, 1 - rank, 15));
            // SAFETY: a handle.
            assert_eq!(unsafe { onecclCommDestroy(own) }, 0);
        });
        for comm in made.into_iter().flatten().chain(comms) {
            // SAFETY: a handle.
            assert_eq!(unsafe { onecclCommDestroy(comm) }, 0);
        }
    });
}

/// Runs the ranks of one process on a thread each.
fn ranks_as_threads(comms: [*mut OnecclComm; 2], body: impl Fn(i32, *mut OnecclComm) + Sync) {
    let addresses = comms.map(|comm| comm.expose_provenance());
    std::thread::scope(|scope| {
        for (rank, address) in addresses.into_iter().enumerate() {
            let body = &body;
            scope.spawn(move || body(rank as i32, std::ptr::with_exposed_provenance_mut(address)));
        }
    });
}

/// A scalar in device memory is the call's when it is made: within a group too it may be destroyed and overwritten before
/// the end.
#[test]
fn a_scalar_is_read_before_the_groups_end() {
    Group::new("a_scalar_is_read_before_the_groups_end", 2).env("CCLX_DEVICE", "soft").run(|me| {
        let comm = me.joined();
        let input: Vec<i32> = (0..90).map(|i| element(4, me.rank, i)).collect();
        let mut output = vec![0i32; 90];
        let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        let (mut memory, mut op) = (null_mut(), -1);
        // SAFETY: places for results; the scalar is in memory that the processor reaches on this driver; the buffers live
        // until the group's end.
        unsafe {
            assert_eq!(onecclMemAlloc(&raw mut memory, 4), 0);
            let scalar = memory.cast::<i32>();
            scalar.write(3 + me.rank as i32);
            assert_eq!(onecclRedOpCreatePreMulSum(&raw mut op, memory, INT32, 0, comm), 0);
            assert_eq!(onecclGroupStart(), 0);
            assert_eq!(onecclAllReduce(from, to, 90, INT32, op, comm, null_mut()), 0);
            assert_eq!(onecclRedOpDestroy(op, comm), 0);
            scalar.write(1000);
            assert_eq!(onecclGroupEnd(), 0, "{}", last_error(null_mut()));
            assert!((0..90).all(|i| output[i] == 3 * element(4, 0, i) + 4 * element(4, 1, i)), "{output:?}");
            assert_eq!((onecclMemFree(memory), onecclCommDestroy(comm)), (0, 0));
        }
    });
}

/// One rank comes late, so that the other's call on a stream can't have ended when its next call begins. What that writes
/// is read by a call on the stream again.
#[test]
fn calls_on_host_buffers_and_on_streams_see_what_the_ones_before_wrote() {
    let name = "calls_on_host_buffers_and_on_streams_see_what_the_ones_before_wrote";
    Group::new(name, 2).env("CCLX_DEVICE", "soft").limit(Duration::from_secs(120)).run(|me| {
        const COUNT: usize = 100;
        let comm = me.joined();
        // Memory that the processor reaches on this driver.
        let memory = [(); 4].map(|()| {
            let mut memory = null_mut();
            // SAFETY: a place for the address.
            assert_eq!(unsafe { onecclMemAlloc(&raw mut memory, 4 * COUNT) }, 0);
            memory.cast::<i32>()
        });
        for (call, late) in [0, 1, 0, 1].into_iter().enumerate() {
            let mut stream = null_mut();
            // SAFETY: a handle and a place for the stream; the buffers hold as much, and nothing else uses them meanwhile.
            unsafe {
                assert_eq!(cclxStreamOpen(comm, call as i32 / 2, &raw mut stream), 0);
                for (i, at) in memory.iter().flat_map(|at| (0..COUNT).map(move |i| (i, at.add(i)))) {
                    at.write(if at.offset_from(memory[0].add(i)) == 0 { element(call, me.rank, i) } else { -1 });
                }
                seen_of(comm, 1);
                if me.rank == late {
                    std::thread::sleep(Duration::from_millis(300));
                }
                let [a, x, y, z] = memory.map(<*mut i32>::cast);
                assert_eq!(onecclGroupStart(), 0);
                assert_eq!(cclxAllReduceAfter(a, x, COUNT, INT32, SUM, comm, stream, 0, null(), null_mut()), 0);
                assert_eq!(onecclAllReduce(x, y, COUNT, INT32, SUM, comm, null_mut()), 0);
                assert_eq!(cclxAllReduceAfter(y, z, COUNT, INT32, SUM, comm, stream, 0, null(), null_mut()), 0);
                assert_eq!(onecclGroupEnd(), 0, "{}", last_error(null_mut()));
                assert_eq!(cclxStreamSynchronize(stream, 30_000), 0);
                for i in 0..COUNT {
                    let sum = element(call, 0, i) + element(call, 1, i);
                    let got = [1, 2, 3].map(|of: usize| memory[of].add(i).read());
                    assert_eq!(got, [sum, 2 * sum, 4 * sum], "turn {call}, rank {}, element {i}", me.rank);
                }
                assert_eq!(cclxStreamDestroy(stream), 0);
            }
        }
        // SAFETY: a handle.
        assert_eq!(unsafe { onecclCommDestroy(comm) }, 0);
    });
}
