//! Tests of what happens when the chain of collectives is broken, as only two replays of recordings can break it: the
//! host does not see those, the busy words do.
#![allow(clippy::unwrap_used, reason = "test code")]

use crate::hooks;
use crate::{Buffer, Communicator, Completion};
use ccl_core::bootstrap;
use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice};
use ccl_core::device::Endpoint as _;
use ccl_core::{Error, ReduceOp, Result};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const COUNT: usize = 3000;

/// Communicators of the same devices are made one after the other: the calls by which they test their lines would take
/// turns on the devices in different orders.
static ONE_AT_A_TIME: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// What a rank's two calls met, and what they left in their buffers.
struct Met {
    outcomes: [Result<()>; 2],
    outputs: [Vec<f32>; 2],
}

fn read(comm: &Communicator, buffer: &Buffer<f32>) -> Vec<f32> {
    let mut got = vec![0.0; COUNT];
    buffer.read(&comm.stream(0).unwrap(), &mut got).unwrap();
    got
}

/// Two calls of each of two ranks. Rank 0 issues both on two queues before rank 1 comes, so that the first can't
/// finish before the second is issued; with `broken` the second does not wait for it.
fn two_calls(broken: bool, hooks: u32) -> [Met; 2] {
    let _turn = ONE_AT_A_TIME.lock();
    let meshes = bootstrap::local(2).unwrap();
    let issued = Barrier::new(2);
    // What is broken ends by the deadline; what is not must not, on a busy machine either.
    let timeout = Duration::from_secs(if broken { 1 } else { 30 });
    let config = Config { device: DeviceChoice::Soft, timeout, ..Config::default() };
    let rank = |mesh| {
        let start = StartState { hooks, ..StartState::default() };
        let comm = Communicator::builder_with(config.clone()).start(start).init_local(mesh).unwrap();
        let streams = [comm.stream(0).unwrap(), comm.stream(1).unwrap()];
        let mut buffers = [(); 2].map(|()| comm.alloc::<f32>(COUNT).unwrap());
        for (i, buffer) in buffers.iter_mut().enumerate() {
            buffer.write(&streams[0], &[comm.rank() as f32 + 1.0 + 10.0 * i as f32; COUNT]).unwrap();
        }
        let [a, b] = &mut buffers;
        if comm.rank() == 1 {
            issued.wait();
        }
        let first = comm.all_reduce_in_place(a, ReduceOp::Sum, &streams[0]);
        if comm.rank() == 0 {
            let alarm = comm.core.endpoint().alarm();
            let began = Instant::now();
            while alarm.progress().entered == 0 {
                assert!(began.elapsed() < Duration::from_secs(10), "the first call begins");
                std::thread::sleep(Duration::from_millis(1));
            }
            if broken {
                comm.gpu.chain.lock().leave(&comm.gpu.finished, |_| true);
            }
        }
        let second = comm.all_reduce_in_place(b, ReduceOp::Sum, &streams[1]);
        let wait = |call: &Result<Completion>| call.as_ref().map_err(Error::clone).and_then(|done| done.wait());
        if comm.rank() == 0 {
            let noticed = broken && second.as_ref().unwrap().wait_for(Duration::from_millis(500)).is_err();
            if noticed {
                // Before rank 1 comes and helps it to an end after all.
                wait(&first).unwrap_err();
            }
            issued.wait();
        }
        let outcomes = [wait(&first), wait(&second)];
        for stream in &streams {
            stream.synchronize().unwrap();
        }
        Met { outcomes, outputs: [read(&comm, &buffers[0]), read(&comm, &buffers[1])] }
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = meshes.into_iter().map(|mesh| scope.spawn(|| rank(mesh))).collect();
        let mut met = ranks.into_iter().map(|rank| rank.join().unwrap());
        [met.next().unwrap(), met.next().unwrap()]
    })
}

fn right(met: &Met) -> bool {
    met.outcomes.iter().all(Result::is_ok) && met.outputs == [vec![3.0; COUNT], vec![23.0; COUNT]]
}

#[test]
fn chained_calls_take_turns() {
    for met in two_calls(false, 0) {
        assert!(right(&met), "{:?}", met.outcomes);
    }
}

#[test]
fn overlapping_calls_are_an_error_and_no_mix_up() {
    let [zero, one] = two_calls(true, 0);
    for outcome in &zero.outcomes {
        let Err(Error::InvalidUsage(text)) = outcome else { panic!("{outcome:?}") };
        assert!(text.contains("started while another collective of the same communicator was running"), "{text}");
    }
    for output in &zero.outputs {
        assert!(output.iter().all(|x| x.to_bits() == u32::MAX), "given up, and seen to be");
    }
    assert!(
        matches!(&one.outcomes[0], Err(Error::InvalidUsage(text)) if text.contains("rank 0")),
        "{:?}",
        one.outcomes
    );
}

/// NEGATIVE CONTROL: without the busy words the same is not noticed, and goes wrong.
#[test]
fn without_the_busy_words_overlapping_calls_go_wrong_unnoticed() {
    let met = two_calls(true, hooks::IGNORE_BUSY);
    let noticed = |met: &Met| met.outcomes.iter().any(|outcome| matches!(outcome, Err(Error::InvalidUsage(_))));
    assert!(!met.iter().any(noticed), "{:?} {:?}", met[0].outcomes, met[1].outcomes);
    assert!(!met.iter().all(right), "two calls at once did no harm, so the tests above show nothing");
}
