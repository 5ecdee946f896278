//! Replays of one communicator that overlap end in an error that stays, and not in a mix-up.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice};
use ccl_core::{Error, ReduceOp};
use ccl_tests::Group;
use ccl_tests::graph::{Lab, good};
use ccl_tests::local::ranks;
use ccl_ze::{CallOptions, ExecutableGraph, Stream, hooks};
use std::sync::Barrier;
use std::time::Duration;

const COUNT: usize = 1073;

/// What became of a rank.
#[derive(Debug)]
struct Met {
    fault: Option<Error>,
    /// Replay the second graph through the library once more.
    again: Result<(), Error>,
    outputs: [Vec<f32>; 2],
}

fn append(lab: &Lab, stream: &Stream, graph: &ExecutableGraph) {
    let (none, append) = (std::ptr::null_mut(), lab.table.zeCommandListAppendGraphExt.unwrap());
    // SAFETY: live list and graph.
    good(unsafe { append(stream.raw(), graph.raw(), std::ptr::null(), none, 0, std::ptr::null_mut()) });
}

/// Two graphs of one call each. Rank 0 puts both on their queues by itself, so that nobody makes them take turns, and the
/// first can't end before rank 1 joins in, which it does only once both have begun.
fn two_replays(hooks: u32) -> Vec<Met> {
    let config = Config { device: DeviceChoice::Soft, timeout: Duration::from_secs(3), ..Config::default() };
    let begun = Barrier::new(2);
    ranks(2, &config, &StartState { hooks, ..StartState::default() }, |comm| {
        let lab = Lab::new(&comm);
        let streams = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let copies = comm.stream(0).unwrap();
        let mut memory = [comm.alloc::<f32>(COUNT).unwrap(), comm.alloc::<f32>(COUNT).unwrap()];
        let mut graphs = Vec::new();
        for (i, (memory, stream)) in memory.iter_mut().zip(&streams).enumerate() {
            let input: Vec<f32> = (0..COUNT).map(|at| (10 * i + comm.rank() + at % 3) as f32).collect();
            memory.write(&copies, &input).unwrap();
            stream.begin_capture().unwrap();
            drop(comm.all_reduce_in_place(memory, ReduceOp::Sum, stream).unwrap());
            graphs.push(stream.end_capture().unwrap().instantiate().unwrap());
        }
        if comm.rank() == 0 {
            append(&lab, &streams[0], &graphs[0]);
            append(&lab, &streams[1], &graphs[1]);
            // Both are on their way: the executors have nothing else to do.
            std::thread::sleep(Duration::from_millis(100));
            begun.wait();
        } else {
            begun.wait();
            append(&lab, &streams[0], &graphs[0]);
            streams[0].synchronize().unwrap();
            append(&lab, &streams[1], &graphs[1]);
        }
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        let until = std::time::Instant::now() + Duration::from_secs(6);
        while comm.fault().is_none() && hooks == 0 && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let fault = comm.fault();
        // SAFETY: typed memory stays with the graph.
        let again = unsafe { graphs[1].launch(&streams[1], CallOptions::default()) };
        let outputs = memory.each_ref().map(|memory| {
            let mut output = vec![0.0; COUNT];
            memory.read(&copies, &mut output).unwrap();
            output
        });
        Met { fault, again: again.map(drop), outputs }
    })
}

fn right(met: &Met) -> bool {
    (0..2).all(|i| met.outputs[i].iter().enumerate().all(|(at, x)| *x == (20 * i + 1 + 2 * (at % 3)) as f32))
}

#[test]
fn overlapping_replays_are_an_error_that_stays() {
    Group::new("overlapping_replays_are_an_error_that_stays", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let met = two_replays(0);
        let fault = met[0].fault.clone();
        let Some(Error::InvalidUsage(text)) = &fault else { panic!("{fault:?}") };
        assert!(text.contains("started while another collective of the same communicator was running"), "{text}");
        assert!(
            matches!(&met[1].fault, Some(Error::InvalidUsage(text)) if text.contains("rank 0")),
            "{:?}",
            met[1].fault
        );
        for met in &met {
            assert_eq!(met.again.as_ref().err(), met.fault.as_ref(), "every later replay says so");
            assert!(!right(met), "nobody takes this for a result");
        }
        let given_up = met[0].outputs.iter().filter(|output| output.iter().all(|x| x.to_bits() == u32::MAX)).count();
        assert!(given_up >= 1, "seen to be given up");
    });
}

/// NEGATIVE CONTROL: without the busy words nobody notices.
#[test]
fn without_the_busy_words_nobody_notices() {
    Group::new("without_the_busy_words_nobody_notices", 1).env("ZE_SOFT_DEVICES", 2).run(|_| {
        let met = two_replays(hooks::IGNORE_BUSY);
        let noticed = |met: &Met| matches!(met.fault, Some(Error::InvalidUsage(_)));
        assert!(!met.iter().any(noticed), "{:?} {:?}", met[0].fault, met[1].fault);
        assert!(!met.iter().all(right), "two replays at once did no harm, so the test above shows nothing");
    });
}
