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
