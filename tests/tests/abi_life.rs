//! The C ABI's communicators: how they begin, end and fail.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_tests::Group;
use ccl_tests::abi::{INT32, SUM, WITHOUT_WISHES, id_of, join, last_error, new_id};
use cclx::*;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

fn element(rank: usize, i: usize) -> i32 {
    (rank * 1009 + i * 7) as i32 - 300
}

/// One all-reduce that has to be right.
fn reduce(comm: *mut OnecclComm, rank: usize, n: usize) -> i32 {
    let mut data: Vec<i32> = (0..333).map(|i| element(rank, i)).collect();
    let at = data.as_mut_ptr();
    // SAFETY: a handle, and a buffer of as many elements.
    let code = unsafe { onecclAllReduce(at.cast(), at.cast(), 333, INT32, SUM, comm, null_mut()) };
    if code == 0 {
        assert!((0..333).all(|i| data[i] == (0..n).map(|of| element(of, i)).sum::<i32>()));
    }
    code
}

fn destroy(comm: *mut OnecclComm) -> i32 {
    // SAFETY: a handle.
    unsafe { onecclCommDestroy(comm) }
}

fn state(comm: *mut OnecclComm) -> i32 {
    // SAFETY: a handle.
    unsafe { onecclCommGetAsyncError(comm) }
}

/// Rank 1 does not come to the second call, on which rank 0's main thread waits.
#[test]
fn abort_from_another_thread_ends_a_call() {
    let group = Group::new("abort_from_another_thread_ends_a_call", 2).env("CCLX_DEVICE", "soft");
    let body = |me: ccl_tests::Rank| {
        let comm = me.joined();
        assert_eq!(reduce(comm, me.rank, 2), 0);
        if me.rank == 1 {
            // Hears of the abort while it does something else.
            let until = Instant::now() + Duration::from_secs(30);
            while state(comm) == 0 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(200));
            me.say("still here");
            // Its callers look at no code: the process ends.
            reduce(comm, 1, 2);
            me.say("went on");
            return;
        }
        let handle = comm as usize;
        let aborts = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            // SAFETY: a handle, whatever other threads do with it.
            unsafe { onecclCommAbort(handle as *mut OnecclComm) }
        });
        let since = Instant::now();
        assert_ne!(reduce(comm, 0, 2), 0);
        assert!(since.elapsed() < Duration::from_secs(20), "the deadline would be 60 seconds");
        assert_eq!(aborts.join().unwrap(), 0);
        assert_eq!(reduce(comm, 0, 2), 5);
        assert!(last_error(null_mut()).contains("was aborted"), "{}", last_error(null_mut()));
        assert_eq!(destroy(comm), 0, "what was aborted may be destroyed");
        assert_eq!(destroy(comm), 5);
    };
    group.limit(Duration::from_secs(60)).run_with(body, |running| {
        let ended = running.wait();
        assert!(ended[0].status.success(), "{}", ended[0].output);
        assert_eq!(ended[1].status.signal(), Some(Signal::SIGABRT as i32), "{}", ended[1].output);
        let told = &ended[1].output;
        assert!(told.contains("onecclCommAbort was called") && told.contains("onecclAllReduce: call #2, "), "{told}");
        assert!(told.contains("[1] still here\n") && !told.contains("went on"), "{told}");
    });
}

/// As torch ends: nobody destroys a communicator, and ranks leave one after the other.
#[test]
fn ranks_leave_without_a_word() {
    for (leaves, calls_again) in [("exit", false), ("exit", false), ("_exit", false), ("_exit", true)] {
        let group = Group::new("ranks_leave_without_a_word", 2).env("CCLX_DEVICE", "soft");
        let body = |me: ccl_tests::Rank| {
            let comm = me.joined();
            assert_eq!(reduce(comm, me.rank, 2), 0);
            if me.rank == 1 {
                match std::env::var("LEAVES").unwrap().as_str() {
                    "exit" => std::process::exit(0),
                    _ => {
                        // Nobody says goodbye: the other rank must have had the time to end its call.
                        std::thread::sleep(Duration::from_secs(1));
                        // SAFETY: ends the process.
                        unsafe { libc::_exit(0) }
                    }
                }
            }
            let until = Instant::now() + Duration::from_secs(30);
            // A rank that said goodbye is no failure.
            while state(comm) == 0 && std::env::var("LEAVES").unwrap() == "_exit" {
                assert!(Instant::now() < until, "the other rank's end is not noticed");
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(500));
            me.say(state(comm));
            if std::env::var("AGAIN").unwrap() == "true" {
                reduce(comm, 0, 2);
                me.say("went on");
            }
        };
        let group = group.env("LEAVES", leaves).env("AGAIN", calls_again).limit(Duration::from_secs(60));
        group.run_with(body, |running| {
            let ended = running.wait();
            let output = &ended[0].output;
            assert!(ended[1].status.success(), "{}", ended[1].output);
            if calls_again {
                assert_eq!(ended[0].status.signal(), Some(Signal::SIGABRT as i32), "{output}");
                assert!(output.contains("rank 1 is gone") && !output.contains("went on"), "{output}");
            } else {
                assert!(ended[0].status.success(), "{leaves}: {output}");
                assert!(output.contains(if leaves == "exit" { "[0] 0" } else { "[0] 2" }), "{leaves}: {output}");
            }
        });
    }
}

#[test]
fn a_forked_child_gets_errors() {
    Group::new("a_forked_child_gets_errors", 2).env("CCLX_DEVICE", "soft").run(|me| {
        let comm = me.joined();
        assert_eq!(reduce(comm, me.rank, 2), 0);
        // SAFETY: the child calls this library's entries, which know of the fork, and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let mut number = 0;
                let mut made = null_mut();
                let mut memory = null_mut();
                // SAFETY: a handle, places for results.
                let codes = unsafe {
                    [
                        reduce(comm, me.rank, 2),
                        onecclCommCount(comm, &raw mut number),
                        onecclCommSplit(comm, 0, 0, &raw mut made, null_mut()),
                        onecclCommFinalize(comm),
                        onecclCommAbort(comm),
                        state(comm),
                        destroy(comm),
                        onecclCommInitRank(&raw mut made, 1, new_id(), 0),
                        onecclMemAlloc(&raw mut memory, 8),
                        onecclGetVersion(&raw mut number),
                    ]
                };
                // SAFETY: ends the child without its parent's destructors.
                unsafe { libc::_exit(i32::from(codes != [5, 5, 5, 5, 5, 5, 5, 5, 5, 0])) };
            }
            ForkResult::Parent { child } => assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0))),
        }
        for _ in 0..10 {
            assert_eq!(reduce(comm, me.rank, 2), 0, "the parent goes on");
        }
        assert_eq!(destroy(comm), 0);
    });
}

/// A stream that the parent has opened, and a group that it has begun.
#[test]
fn a_forked_child_gets_errors_from_a_stream_and_a_group() {
    Group::new("a_forked_child_gets_errors_from_a_stream_and_a_group", 2).env("CCLX_DEVICE", "soft").run(|me| {
        let comm = me.joined();
        let (mut stream, mut memory) = (null_mut(), null_mut());
        let input: Vec<i32> = (0..90).map(|i| element(me.rank, i)).collect();
        let (mut output, mut copied) = (vec![7i32; 90], vec![7i32; 90]);
        let from = input.as_ptr().cast();
        // SAFETY: places for results, a live handle and stream, and buffers of as many bytes; the child calls this library's
        // entries, which know of the fork, and ends without its parent's destructors.
        unsafe {
            assert_eq!(onecclMemAlloc(&raw mut memory, 360), 0);
            assert_eq!(cclxStreamOpen(comm, 0, &raw mut stream), 0);
            assert_eq!(onecclGroupStart(), 0);
            assert_eq!(onecclAllReduce(from, output.as_mut_ptr().cast(), 90, INT32, SUM, comm, null_mut()), 0);
            match fork().unwrap() {
                ForkResult::Child => {
                    libc::alarm(20);
                    let codes = [
                        cclxStreamCopy(stream, memory, from, 360, 0, std::ptr::null()),
                        cclxStreamSynchronize(stream, 1000),
                        cclxStreamDestroy(stream),
                        onecclGroupEnd(),
                    ];
                    eprintln!("the child's codes: {codes:?}");
                    libc::_exit(i32::from(codes != [5; 4]));
                }
                ForkResult::Parent { child } => assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0))),
            }
            assert_eq!(onecclGroupEnd(), 0, "the parent goes on: {}", last_error(null_mut()));
            assert!((0..90).all(|i| output[i] == element(0, i) + element(1, i)));
            assert_eq!(cclxStreamCopy(stream, memory, from, 360, 0, std::ptr::null()), 0);
            assert_eq!(cclxStreamCopy(stream, copied.as_mut_ptr().cast(), memory, 360, 0, std::ptr::null()), 0);
            assert_eq!((cclxStreamSynchronize(stream, 30_000), cclxStreamDestroy(stream)), (0, 0));
            assert_eq!(copied, input);
        }
        assert_eq!(destroy(comm), 0);
    });
}

#[test]
fn a_communicator_can_be_made_without_waiting() {
    Group::new("a_communicator_can_be_made_without_waiting", 2).env("CCLX_DEVICE", "soft").run(|me| {
        let mut comm = null_mut();
        onecclSetDevice(me.rank as u32);
        let config = OnecclConfig { blocking: 0, max_ctas: 3, ..WITHOUT_WISHES };
        let init = |comm: &mut *mut OnecclComm, config: &OnecclConfig| {
            // SAFETY: a place for the communicator, and a configuration.
            unsafe { onecclCommInitRankConfig(comm, 2, id_of(&me.id), me.rank as i32, config) }
        };
        let mut absent = null_mut();
        for (bad, code) in [
            (OnecclConfig { magic: 1, ..config }, 4),
            (OnecclConfig { size: 40, ..config }, 4),
            (OnecclConfig { blocking: 7, ..config }, 4),
            (OnecclConfig { max_ctas: 0, ..config }, 4),
            (OnecclConfig { plugin: 0xBAAA_AAAD, ..config }, 12),
        ] {
            assert_eq!(init(&mut absent, &bad), code, "{bad:?}");
            assert!(absent.is_null());
        }
        assert_eq!(init(&mut comm, &config), 6, "in progress");
        let until = Instant::now() + Duration::from_secs(60);
        while state(comm) == 6 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(state(comm), 0, "{}", last_error(comm));
        assert_eq!(reduce(comm, me.rank, 2), 0);
        assert_eq!(destroy(comm), 0);
    });
}

#[test]
fn a_refused_call_ends_the_process_on_request() {
    for (which, told) in [
        ("own", "onecclAllReduce: call #2, communicator "),
        ("none", "onecclAllReduce: invalid argument: the communicator is null"),
        ("foreign", "onecclAllReduce: invalid usage: the communicator 0x"),
    ] {
        let group = Group::new("a_refused_call_ends_the_process_on_request", 1).env("CCLX_DEVICE", "soft");
        let ended = group.env("CCLX_ON_ERROR", "abort").env("WHICH", which).run_with(
            |me| {
                let comm = me.joined();
                assert_eq!(reduce(comm, 0, 1), 0);
                let comm = match std::env::var("WHICH").unwrap().as_str() {
                    "own" => comm,
                    "none" => null_mut(),
                    _ => other_copys_communicator(),
                };
                me.say("calls");
                // SAFETY: a handle, or what is to be refused; nothing is read.
                unsafe { onecclAllReduce(null_mut(), null_mut(), 9, INT32, SUM, comm, null_mut()) };
                me.say("went on");
            },
            |running| running.wait(),
        );
        let output = &ended[0].output;
        assert_eq!(ended[0].status.signal(), Some(Signal::SIGABRT as i32), "{which}: {output}");
        assert!(output.contains("[0] calls\n") && !output.contains("went on"), "{which}: {output}");
        let line = output.lines().find(|line| line.contains("the process ends"));
        assert!(line.is_some_and(|line| line.contains(told)), "{which}: {output}");
    }
}

#[test]
fn handles_that_are_none_are_named() {
    Group::new("handles_that_are_none_are_named", 1).env("CCLX_DEVICE", "soft").run(|_| {
        assert_eq!(reduce(null_mut(), 0, 1), 4);
        assert!(last_error(null_mut()).contains("the communicator is null"), "{}", last_error(null_mut()));
        // Another copy of the library, as when one was linked and another preloaded.
        let own = std::env::current_exe().unwrap();
        assert_eq!(reduce(other_copys_communicator(), 0, 1), 5);
        let text = last_error(null_mut());
        assert!(
            text.contains("not made by this copy of the library (") && text.contains(own.to_str().unwrap()),
            "{text}"
        );
    });
}

fn other_copys_communicator() -> *mut OnecclComm {
    type Init = unsafe extern "C" fn(*mut *mut OnecclComm, usize, OnecclUniqueId, i32) -> i32;
    let path = std::env::current_exe().unwrap().parent().unwrap().join("libcclx.so");
    // SAFETY: a library that we built, whose functions have these types; it stays loaded.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(path).unwrap()));
        let init: libloading::Symbol<Init> = library.get(b"onecclCommInitRank").unwrap();
        let mut comm = null_mut();
        assert_eq!(init(&raw mut comm, 1, new_id(), 0), 0);
        comm
    }
}

#[test]
fn threads_share_a_communicator() {
    Group::new("threads_share_a_communicator", 2).env("CCLX_DEVICE", "soft").run(|me| {
        let comm = me.joined() as usize;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| assert_eq!(reduce(comm as *mut OnecclComm, me.rank, 2), 0)));
            }
        });
        assert_eq!(destroy(comm as *mut OnecclComm), 0);
    });
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// As torch has them: a communicator for each pair of ranks, and many in turn.
#[test]
fn many_communicators_and_many_lives() {
    Group::new("many_communicators_and_many_lives", 2).env("CCLX_DEVICE", "soft").run(|me| {
        let world = me.joined();
        let mut all = Vec::new();
        for _ in 0..64 {
            let mut comm = null_mut();
            // SAFETY: a handle, and a place for another.
            assert_eq!(unsafe { onecclCommSplit(world, 0, me.rank as i32, &raw mut comm, null_mut()) }, 0);
            all.push(comm);
        }
        for turn in 0..2 {
            for comm in all.iter().skip(turn) {
                assert_eq!(reduce(*comm, me.rank, 2), 0, "{}", last_error(*comm));
            }
        }
        all.into_iter().for_each(|comm| assert_eq!(destroy(comm), 0));
        let mut before = 0;
        for turn in 0..100 {
            // Alone, where no other rank's pace counts.
            let comm = join(new_id(), 0, 1);
            assert_eq!(reduce(comm, 0, 1), 0);
            assert_eq!(destroy(comm), 0);
            if turn == 10 {
                before = descriptors();
            }
        }
        // A rendezvous may not have ended yet.
        assert!(descriptors() <= before + 8, "{} descriptors, {before} before", descriptors());
        assert_eq!(destroy(world), 0);
    });
}
