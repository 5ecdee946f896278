//! A stream that came into another's capture and is dropped before that ends.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice};
use ccl_core::{Error, ReduceOp};
use ccl_tests::Group;
use ccl_tests::graph::{total, value};
use ccl_tests::local::ranks;
use ccl_ze::{Buffer, CallOptions, Communicator, Stream, hooks};
use level_zero_sys::{ze_command_list_handle_t, ze_result_t};
use std::ffi::{CStr, c_void};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const COUNT: usize = 1073;
/// For what is under way, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Lists that were destroyed, by whatever in this process.
static DESTROYED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn noting_destroyed(name: &CStr) -> *const c_void {
    if name == c"zeCommandListDestroy" { note_destroyed as *const c_void } else { ze_soft::resolve(name) }
}

unsafe extern "C" fn note_destroyed(list: ze_command_list_handle_t) -> ze_result_t {
    DESTROYED.lock().unwrap().push(list as usize);
    type Destroy = unsafe extern "C" fn(ze_command_list_handle_t) -> ze_result_t;
    // SAFETY: the driver's function of this name has this type.
    let real: Destroy = unsafe { std::mem::transmute(ze_soft::resolve(c"zeCommandListDestroy")) };
    // SAFETY: passed on from the caller.
    unsafe { real(list) }
}

fn is_destroyed(list: usize) -> bool {
    DESTROYED.lock().unwrap().contains(&list)
}

fn write(comm: &Communicator, copies: &Stream, memory: &mut Buffer<f32>, turn: usize) {
    let input: Vec<f32> = (0..COUNT).map(|i| value(turn, comm.rank(), i)).collect();
    memory.write(copies, &input).unwrap();
}

/// The recording goes on without the stream, whose list goes with the graph, or with the capture if nothing comes of it.
fn dropped_before_the_end(test: &str, joins: bool) {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 2).limit(Duration::from_secs(90)).run(|_| {
        assert!(hooks::RESOLVER.set(noting_destroyed).is_ok(), "resolved once");
        let (device, timeout) = (DeviceChoice::Soft, Duration::from_secs(5));
        let config = Config { device, timeout, ..Config::default() };
        ranks(2, &config, &StartState::default(), |comm| {
            let [stream, second] = [0; 2].map(|queue| comm.stream(queue).unwrap());
            let copies = comm.stream(1).unwrap();
            let [mut first, mut other] = [(); 2].map(|()| comm.alloc::<f32>(COUNT).unwrap());
            let list = second.raw() as usize;
            // One that was destroyed before may have had this handle.
            DESTROYED.lock().unwrap().retain(|destroyed| *destroyed != list);
            stream.begin_capture().unwrap();
            let done = comm.all_reduce_in_place(&mut first, ReduceOp::Sum, &stream).unwrap();
            done.order(&second).unwrap();
            let after = comm.all_reduce_in_place(&mut other, ReduceOp::Sum, &second).unwrap();
            if joins {
                after.order(&stream).unwrap();
            }
            drop(second);
            assert!(!is_destroyed(list), "the capture still has it");
            let ended = stream.end_capture();
            drop((done, after));
            if joins {
                let graph = ended.unwrap().instantiate().unwrap();
                for turn in 0..3 {
                    write(&comm, &copies, &mut first, turn);
                    write(&comm, &copies, &mut other, 10 + turn);
                    // SAFETY: typed memory stays with the graph.
                    unsafe { graph.launch(&stream, CallOptions::default()) }.unwrap().wait().unwrap();
                    for (memory, turn) in [(&first, turn), (&other, 10 + turn)] {
                        let mut got = vec![0.0; COUNT];
                        memory.read(&copies, &mut got).unwrap();
                        let wrong = got.iter().enumerate().find(|(i, got)| **got != total(turn, 2, *i));
                        assert_eq!(wrong, None, "rank {}, turn {turn}", comm.rank());
                    }
                }
                assert!(!is_destroyed(list), "the graph still has it");
                drop(graph);
            } else {
                assert!(matches!(ended.map(drop), Err(Error::Device { .. })), "a list was not joined");
            }
            // Whatever is left of recordings goes now, at the latest; by the other rank's end, if that has taken it to itself.
            drop((stream, comm));
            let since = Instant::now();
            while !is_destroyed(list) {
                assert!(since.elapsed() < SOON, "the list was left behind");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    });
}

#[test]
fn its_list_goes_with_the_graph() {
    dropped_before_the_end("its_list_goes_with_the_graph", true);
}

#[test]
fn its_list_goes_with_a_capture_that_was_not_joined() {
    dropped_before_the_end("its_list_goes_with_a_capture_that_was_not_joined", false);
}
