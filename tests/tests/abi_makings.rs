//! Communicators of the C ABI that are made at the same time: each meets those that it is to meet, and a split that failed on one
//! rank is no reason for the next one to fail.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_tests::Group;
use ccl_tests::abi::{UINT8, WITHOUT_WISHES, element, id_of, last_error, new_id, seen_of};
use cclx::*;
use std::ptr::null_mut;
use std::time::Duration;

/// A rank whose split failed before it met the others has counted apart. That is told once, and the next split is sound.
#[test]
fn splits_count_alike_again_after_one_failed() {
    let group = Group::new("splits_count_alike_again_after_one_failed", 3).env("CCLX_DEVICE", "soft");
    group.env("CCLX_ON_ERROR", "log").run(|me| {
        let parent = me.communicator();
        for lost in [1, 2] {
            if me.rank == lost {
                parent.next_split();
            }
            let split = |color| parent.split(Some(color), 0, parent.again());
            let told = split(0).err().unwrap().to_string();
            assert!(told.contains("the order of its splits") && told.contains("may split again"), "{told}");
            for round in 0..2 {
                let made = split((me.rank + round) as u32 % 2).unwrap().unwrap();
                let with_me = (0..3).filter(|other| other % 2 == me.rank % 2);
                assert_eq!((made.world_size(), made.rank()), (with_me.count(), me.rank / 2));
            }
        }
    });
}

/// Which of the next two communicators this rank is late with.
fn late_with(first: bool) {
    let late = if first { [150, 0] } else { [0, 150] };
    *ccl_ze::hooks::MAKINGS_LATE_MS.lock() = late.into();
}

/// Waits until a communicator is made.
fn await_made(comm: *mut OnecclComm) {
    let until = std::time::Instant::now() + Duration::from_secs(60);
    // SAFETY: a handle.
    while unsafe { onecclCommGetAsyncError(comm) } == 6 {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Two splits of one parent, under way at once: each rank's first meets the other ranks' first, whichever thread comes late.
/// NEGATIVE CONTROL: without the line they meet crosswise, which is told instead of wrong members.
#[test]
fn splits_at_once_keep_their_order() {
    Group::new("splits_at_once_keep_their_order", 3).env("CCLX_DEVICE", "soft").env("CCLX_ON_ERROR", "log").run(|me| {
        let rank = me.rank as i32;
        let parent = me.joined();
        let inputs = [0, 1, 2].map(|of| element(9, of, 0));
        let waits_not = OnecclConfig { blocking: 0, ..WITHOUT_WISHES };
        for round in 0..6 {
            let grouped = round % 2 == 0;
            late_with((me.rank == 1) == (round < 4));
            let config = if grouped { WITHOUT_WISHES } else { waits_not };
            let config = (&raw const config).cast_mut();
            let mut made = [null_mut(); 2];
            // SAFETY: a handle, places for others, and a configuration.
            unsafe {
                if grouped {
                    assert_eq!(onecclGroupStart(), 0);
                }
                // 0 and 2 with 1 alone; then 2 and 1 in this order with 0 alone.
                let told = [
                    onecclCommSplit(parent, rank % 2, rank, &raw mut made[0], config),
                    onecclCommSplit(parent, i32::from(rank > 0), -rank, &raw mut made[1], config),
                ];
                if grouped {
                    assert_eq!((told, onecclGroupEnd()), ([0, 0], 0), "{}", last_error(null_mut()));
                } else {
                    assert_eq!(told, [6, 6], "they are in progress");
                    made.into_iter().for_each(await_made);
                }
            }
            let wanted = match rank {
                0 => [(2, 0, inputs[0] + inputs[2]), (1, 0, inputs[0])],
                1 => [(1, 0, inputs[1]), (2, 1, inputs[1] + inputs[2])],
                _ => [(2, 1, inputs[0] + inputs[2]), (2, 0, inputs[1] + inputs[2])],
            };
            assert_eq!(made.map(|comm| seen_of(comm, inputs[me.rank])), wanted, "rank {rank}, round {round}");
            for comm in made {
                // SAFETY: a handle.
                assert_eq!(unsafe { onecclCommDestroy(comm) }, 0);
            }
        }
        ccl_ze::hooks::MAKINGS_AT_ONCE.store(true, std::sync::atomic::Ordering::Relaxed);
        late_with(me.rank == 1);
        let mut made = [null_mut(); 2];
        // SAFETY: a handle and places for others.
        unsafe {
            assert_eq!(onecclGroupStart(), 0);
            for (place, color) in made.iter_mut().zip([rank % 2, i32::from(rank > 0)]) {
                assert_eq!(onecclCommSplit(parent, color, 0, place, null_mut()), 0);
            }
            assert_ne!(onecclGroupEnd(), 0);
        }
        assert!(last_error(null_mut()).contains("the order of its splits"), "{}", last_error(null_mut()));
        assert_eq!(seen_of(parent, inputs[me.rank]), (3, rank, inputs.iter().sum()), "the parent is sound");
    });
}

/// Ids that rank 0 made.
fn shared_ids(me: &ccl_tests::Rank, comm: *mut OnecclComm) -> [OnecclUniqueId; 2] {
    let mut ids = [0, 1].map(|_| if me.rank == 0 { new_id() } else { id_of(&me.id) });
    let at = ids.as_mut_ptr().cast();
    // SAFETY: the buffer outlives the call.
    assert_eq!(unsafe { onecclBroadcast(at, at, size_of_val(&ids), UINT8, 0, comm, null_mut()) }, 0);
    ids
}

/// Makes two communicators in one group.
fn two_at_once(me: &ccl_tests::Rank, ids: [OnecclUniqueId; 2]) -> (i32, [*mut OnecclComm; 2]) {
    let mut made = [null_mut(); 2];
    assert_eq!(onecclGroupStart(), 0);
    for (place, id) in made.iter_mut().zip(ids) {
        // SAFETY: a place for the communicator.
        assert_eq!(unsafe { onecclCommInitRank(place, me.n, id, me.rank as i32) }, 0);
    }
    (onecclGroupEnd(), made)
}

/// Two communicators of one group on one device try their lines out one after the other.
/// NEGATIVE CONTROL: at once their first calls wait for each other, which is an error, and no reason for narrower lines.
#[test]
fn a_group_makes_communicators_of_one_device_in_order() {
    let group = Group::new("a_group_makes_communicators_of_one_device_in_order", 2).env("CCLX_DEVICE", "soft");
    let group = group.env("CCLX_ON_ERROR", "log").env("CCLX_TIMEOUT_MS", 500);
    let body = |me: ccl_tests::Rank| {
        let first = me.joined();
        let inputs = [element(8, 0, 0), element(8, 1, 0)];
        for round in 0..4 {
            let ids = shared_ids(&me, first);
            late_with((round % 2 == 0) == (me.rank == 1));
            let (code, made) = two_at_once(&me, ids);
            assert_eq!(code, 0, "{}", last_error(null_mut()));
            for comm in made {
                assert_eq!(seen_of(comm, inputs[me.rank]), (2, me.rank as i32, inputs.iter().sum()));
                // SAFETY: a handle.
                assert_eq!(unsafe { onecclCommDestroy(comm) }, 0);
            }
        }
        ccl_ze::hooks::MAKINGS_AT_ONCE.store(true, std::sync::atomic::Ordering::Relaxed);
        let (code, _) = two_at_once(&me, shared_ids(&me, first));
        me.say(format_args!("at once: {code}"));
        // What failed says no goodbye that would be waited for.
        std::process::exit(0);
    };
    let ended = group.run_with(body, |running| running.wait());
    for (rank, ended) in ended.iter().enumerate() {
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        assert!(!ended.output.contains("do not arrive"), "rank {rank}:\n{}", ended.output);
        assert_ne!(ended.said("at once:"), ["0"], "rank {rank}:\n{}", ended.output);
    }
    assert!(ended.iter().any(|ended| ended.output.contains("litmus test waited")), "{ended:?}");
}

/// Makes communicators on threads of their own, that many milliseconds apart, in an order that is another one on every other
/// rank.
fn by_threads(me: &ccl_tests::Rank, ids: &[OnecclUniqueId], apart: u64) -> Vec<(i32, usize)> {
    let (rank, n) = (me.rank, me.n);
    let make = |(number, id): (usize, OnecclUniqueId)| {
        let late = if rank.is_multiple_of(2) { number } else { ids.len() - 1 - number };
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(apart * late as u64));
            assert_eq!(onecclSetDevice(rank as u32), 0);
            let mut comm = null_mut();
            // SAFETY: a place for the communicator.
            let code = unsafe { onecclCommInitRank(&raw mut comm, n, id, rank as i32) };
            (code, comm as usize)
        })
    };
    let threads: Vec<_> = ids.iter().copied().enumerate().map(make).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Threads that ask for communicators of one device at the same time get them, in whatever order each rank's threads come.
/// NEGATIVE CONTROL: without the claim to the devices their first calls wait for each other.
#[test]
fn threads_make_communicators_of_one_device_at_the_same_time() {
    let group = Group::new("threads_make_communicators_of_one_device_at_the_same_time", 3).env("CCLX_DEVICE", "soft");
    let group = group.env("CCLX_ON_ERROR", "log").env("CCLX_TIMEOUT_MS", 500).limit(Duration::from_secs(90));
    let body = |me: ccl_tests::Rank| {
        let first = me.joined();
        let inputs = [0, 1, 2].map(|rank| element(8, rank, 0));
        for _ in 0..3 {
            let ids = [shared_ids(&me, first), shared_ids(&me, first)].concat();
            for (code, comm) in by_threads(&me, &ids, 20) {
                assert_eq!(code, 0, "{}", last_error(null_mut()));
                let comm = comm as *mut OnecclComm;
                assert_eq!(seen_of(comm, inputs[me.rank]), (3, me.rank as i32, inputs.iter().sum()));
                // SAFETY: a handle.
                assert_eq!(unsafe { onecclCommDestroy(comm) }, 0);
            }
        }
        ccl_ze::hooks::MAKINGS_AT_ONCE.store(true, std::sync::atomic::Ordering::Relaxed);
        let made = by_threads(&me, &shared_ids(&me, first), 0);
        me.say(format_args!("at once: {}", made.iter().filter(|(code, _)| *code != 0).count()));
        std::process::exit(0);
    };
    for (rank, ended) in group.run_with(body, |running| running.wait()).iter().enumerate() {
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        assert!(!ended.output.contains("do not arrive"), "rank {rank}:\n{}", ended.output);
        assert_ne!(ended.said("at once:"), ["0"], "rank {rank}:\n{}", ended.output);
    }
}

/// Two communicators that rank 0's threads ask for, the second one first, and rank 1 in a group: there the second waits for the
/// first, and no rank may keep its device for it meanwhile.
/// NEGATIVE CONTROL: where the ranks don't meet before they ask for their devices it does.
#[test]
fn a_group_and_threads_make_communicators_of_one_device() {
    let group = Group::new("a_group_and_threads_make_communicators_of_one_device", 2).env("CCLX_DEVICE", "soft");
    let group = group.env("CCLX_ON_ERROR", "log").env("CCL_KVS_CONNECTION_TIMEOUT", 6).limit(Duration::from_secs(90));
    let body = |me: ccl_tests::Rank| {
        let first = me.joined();
        let inputs = [element(8, 0, 0), element(8, 1, 0)];
        let make_both = || {
            let ids = shared_ids(&me, first);
            if me.rank == 1 {
                let (code, made) = two_at_once(&me, ids);
                return made.map(|comm| (code, comm as usize));
            }
            let make = |late: u64, id: OnecclUniqueId| {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(late));
                    let mut comm = null_mut();
                    // SAFETY: a place for the communicator.
                    (unsafe { onecclCommInitRank(&raw mut comm, 2, id, 0) }, comm as usize)
                })
            };
            [make(500, ids[0]), make(0, ids[1])].map(|thread| thread.join().unwrap())
        };
        for (code, comm) in make_both() {
            assert_eq!(code, 0, "{}", last_error(null_mut()));
            let comm = comm as *mut OnecclComm;
            assert_eq!(seen_of(comm, inputs[me.rank]), (2, me.rank as i32, inputs.iter().sum()));
            // SAFETY: a handle.
            assert_eq!(unsafe { onecclCommDestroy(comm) }, 0);
        }
        ccl_ze::hooks::TURNS_WITHIN_CLAIMS.store(true, std::sync::atomic::Ordering::Relaxed);
        me.say(format_args!("unmet: {:?}", make_both().map(|(code, _)| code != 0)));
        std::process::exit(0);
    };
    for (rank, ended) in group.run_with(body, |running| running.wait()).iter().enumerate() {
        assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
        let failed = if rank == 0 { "[false, true]" } else { "[true, true]" };
        assert_eq!(ended.said("unmet:"), [failed], "rank {rank}:\n{}", ended.output);
    }
}

/// Ranks that are threads of one process, each by itself or all asked for by one thread in a group. If one takes another's
/// number, or one that no rank can have, all are told at once.
#[test]
fn ranks_may_be_threads() {
    let group = Group::new("ranks_may_be_threads", 1).env("CCLX_DEVICE", "soft").env("ZE_SOFT_DEVICES", 8);
    group.env("CCLX_ON_ERROR", "log").limit(Duration::from_secs(90)).run(|_| {
        let by_themselves = |id: OnecclUniqueId, n: usize, last: i32| {
            let join = move |rank: usize| {
                onecclSetDevice(rank as u32);
                let (mut comm, taken) = (null_mut(), if rank == n - 1 { last } else { rank as i32 });
                // SAFETY: a place for the communicator.
                let code = unsafe { onecclCommInitRank(&raw mut comm, n, id, taken) };
                (code, last_error(null_mut()), comm as usize)
            };
            let threads: Vec<_> = (0..n).map(|rank| std::thread::spawn(move || join(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        };
        for n in [2, 3, 5, 8] {
            let mut grouped = vec![null_mut(); n];
            assert_eq!(onecclGroupStart(), 0);
            let id = new_id();
            for (rank, place) in grouped.iter_mut().enumerate() {
                onecclSetDevice(rank as u32);
                // SAFETY: a place for the communicator.
                assert_eq!(unsafe { onecclCommInitRank(place, n, id, rank as i32) }, 0);
            }
            assert_eq!(onecclGroupEnd(), 0, "{}", last_error(null_mut()));
            let made = by_themselves(new_id(), n, n as i32 - 1);
            assert!(made.iter().all(|(code, ..)| *code == 0), "{made:?}");
            let alone: Vec<_> = made.into_iter().map(|(.., comm)| comm as *mut OnecclComm).collect();
            for comms in [grouped, alone] {
                let all: i32 = (0..n).map(|rank| element(4, rank, 0)).sum();
                let ranks: Vec<_> = comms.iter().map(|comm| *comm as usize).enumerate().collect();
                let call = |(rank, comm): (usize, usize)| seen_of(comm as *mut OnecclComm, element(4, rank, 0));
                let calls: Vec<_> = ranks.into_iter().map(|rank| std::thread::spawn(move || call(rank))).collect();
                for (rank, seen) in calls.into_iter().enumerate() {
                    assert_eq!(seen.join().unwrap(), (n as i32, rank as i32, all));
                }
                for comm in comms {
                    // SAFETY: a handle.
                    assert_eq!(unsafe { onecclCommDestroy(comm) }, 0);
                }
            }
            let began = std::time::Instant::now();
            for (last, own, said) in
                [(0, 5, "as rank 0 of N: process"), (-1, 4, "rank -1 of N"), (n as i32, 4, "rank N of N")]
            {
                for (rank, (code, told, _)) in by_themselves(new_id(), n, last).into_iter().enumerate() {
                    let expected = if rank == n - 1 { own } else { 5 };
                    assert!(code == expected && told.contains(&said.replace('N', &n.to_string())), "{code}: {told}");
                }
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        }
    });
}

/// A rank whose environment is wrong never comes to meet the others, who are told so.
#[test]
fn a_rank_with_a_wrong_variable_is_not_waited_for() {
    let group = Group::new("a_rank_with_a_wrong_variable_is_not_waited_for", 3).env("CCLX_DEVICE", "soft");
    group.env("CCLX_ON_ERROR", "log").limit(Duration::from_secs(60)).run(|me| {
        if me.rank == 1 {
            // SAFETY: nothing else runs in this process yet that would read the environment.
            unsafe { std::env::set_var("CCLX_NONE_SUCH", "1") };
        }
        let mut comm = null_mut();
        // SAFETY: a place for the communicator.
        let code = unsafe { onecclCommInitRank(&raw mut comm, me.n, id_of(&me.id), me.rank as i32) };
        let told = last_error(null_mut());
        assert_eq!(code, if me.rank == 1 { 4 } else { 2 }, "{told}");
        assert!(told.contains("CCLX_NONE_SUCH") && told.contains("rank 1 is gone") != (me.rank == 1), "{told}");
    });
}
