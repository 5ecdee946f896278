//! Graphs of any sizes and numbers of collectives share communicators with eager calls, in any interleaving.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::bootstrap;
use ccl_core::comm::StartState;
use ccl_core::config::{Config, DeviceChoice};
use ccl_core::{DataType, ReduceOp};
use ccl_tests::graph::{total, value};
use ccl_tests::local::{ranks, sum};
use ccl_tests::{Group, data};
use ccl_ze::{Buffer, CallOptions, Communicator, ExecutableGraph, Stream};
use std::sync::Mutex;
use std::time::Duration;

const N: usize = 2;

fn config() -> Config {
    Config { device: DeviceChoice::Soft, timeout: Duration::from_secs(20), ..Config::default() }
}

/// Runs `body` as every rank of a group of threads, in a process of its own.
fn group(test: &str, body: impl Fn(Communicator) + Sync) {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", N).limit(Duration::from_secs(120)).run(|_| {
        ranks(N, &config(), &StartState::default(), &body);
    });
}

/// What one collective of a token works on.
struct Part {
    memory: Buffer<f32>,
    input: Vec<f32>,
    output: Vec<f32>,
}

/// A graph of several collectives one after the other, each with a copy in and a copy out.
struct Token {
    graph: ExecutableGraph,
    parts: Vec<Part>,
    rank: usize,
}

impl Token {
    /// Collective i is of `counts[i]` elements, on the communicators in turn.
    fn capture(comms: &[&Communicator], stream: &Stream, counts: &[usize]) -> Token {
        let part = |&count: &usize| Part {
            memory: comms[0].alloc(count).unwrap(),
            input: vec![0.0; count],
            output: vec![0.0; count],
        };
        let parts: Vec<Part> = counts.iter().map(part).collect();
        stream.begin_capture().unwrap();
        for (i, part) in parts.iter().enumerate() {
            let (at, bytes) = (part.memory.as_ptr(), part.input.len() * 4);
            let request = sum(DataType::Float32, part.input.len());
            // SAFETY: the token keeps all of it, and is dropped when no replay is under way.
            unsafe {
                stream.copy(at.cast(), part.input.as_ptr().cast(), bytes, &[]).unwrap();
                let comm = comms[i % comms.len()];
                drop(comm.all_reduce_raw(&request, at.cast(), at.cast(), stream, &[]).unwrap());
                stream.copy(part.output.as_ptr().cast_mut().cast(), at.cast(), bytes, &[]).unwrap();
            }
        }
        let graph = stream.end_capture().unwrap();
        assert!(!graph.is_empty().unwrap());
        Token { graph: graph.instantiate().unwrap(), parts, rank: comms[0].rank() }
    }

    fn replay(&mut self, stream: &Stream, turn: usize) {
        for (p, part) in self.parts.iter_mut().enumerate() {
            part.input.iter_mut().enumerate().for_each(|(i, x)| *x = value(turn + p, self.rank, i));
            part.output.fill(-1.0);
        }
        // SAFETY: what was captured is in this token.
        unsafe { self.graph.launch(stream, CallOptions::default()) }.unwrap().wait().unwrap();
        for (p, part) in self.parts.iter().enumerate() {
            let wrong = part.output.iter().enumerate().find(|(i, x)| **x != total(turn + p, N, *i));
            assert_eq!(wrong, None, "turn {turn}, collective {p} of {} elements", part.output.len());
        }
    }
}

/// An eager call with data of this turn.
fn eager(comm: &Communicator, stream: &Stream, count: usize, turn: usize) {
    let mut memory = comm.alloc::<f32>(count).unwrap();
    let input: Vec<f32> = (0..count).map(|i| value(turn, comm.rank(), i)).collect();
    memory.write(stream, &input).unwrap();
    comm.all_reduce_in_place(&mut memory, ReduceOp::Sum, stream).unwrap().wait().unwrap();
    let mut output = vec![0.0; count];
    memory.read(stream, &mut output).unwrap();
    let wrong = output.iter().enumerate().find(|(i, x)| **x != total(turn, N, *i));
    assert_eq!(wrong, None, "turn {turn}, eager, {count} elements");
}

#[test]
fn alternating_sizes() {
    group("alternating_sizes", |comm| {
        let stream = comm.stream(0).unwrap();
        let mut tokens = [1073, 437].map(|count| Token::capture(&[&comm], &stream, &[count]));
        (0..1_000).for_each(|turn| tokens[turn % 2].replay(&stream, turn));
    });
}

#[test]
fn interleaved_with_eager_calls() {
    group("interleaved_with_eager_calls", |comm| {
        let [stream, other] = [0, 1].map(|queue| comm.stream(queue).unwrap());
        let mut token = Token::capture(&[&comm], &stream, &[1073, 5]);
        for turn in 0..2_000 {
            token.replay(&stream, turn);
            let count = if turn % 9 == 8 { 25 * 2048 } else { turn % 9 + 1 };
            eager(&comm, if turn % 2 == 0 { &stream } else { &other }, count, turn + 1);
        }
    });
}

#[test]
fn graphs_of_odd_and_even_numbers_of_collectives() {
    group("graphs_of_odd_and_even_numbers_of_collectives", |comm| {
        let stream = comm.stream(0).unwrap();
        let counts: Vec<usize> = (0..86).map(|i| 1 + i * 37 % 500).collect();
        let mut tokens = [1, 2, 3, 85, 86].map(|n| Token::capture(&[&comm], &stream, &counts[..n]));
        for turn in 0..60 {
            tokens[turn % 5].replay(&stream, turn);
            if turn % 3 == 0 {
                eager(&comm, &stream, 1 + turn, turn);
            }
        }
    });
}

#[test]
fn buckets_in_shuffled_order() {
    group("buckets_in_shuffled_order", |comm| {
        let stream = comm.stream(0).unwrap();
        let mut buckets = [1, 2, 4, 8, 16, 32].map(|rows| Token::capture(&[&comm], &stream, &[rows * 256, rows * 256]));
        for turn in 0..300 {
            // The same order on all ranks.
            buckets[data::word(7, 0, turn as u64) as usize % 6].replay(&stream, turn);
        }
    });
}

#[test]
fn two_communicators_in_one_graph() {
    let meshes = Mutex::new(bootstrap::local(N).unwrap().into_iter().map(Some).collect::<Vec<_>>());
    group("two_communicators_in_one_graph", |comm| {
        let mesh = meshes.lock().unwrap()[comm.rank()].take().unwrap();
        let second = Communicator::builder_with(config()).device(comm.rank()).init_local(mesh).unwrap();
        let stream = comm.stream(0).unwrap();
        let mut token = Token::capture(&[&comm, &second], &stream, &[700, 1073, 30, 900, 1]);
        for turn in 0..300 {
            token.replay(&stream, turn);
            eager(if turn % 2 == 0 { &comm } else { &second }, &stream, 100 + turn, turn);
        }
        // On several lists of one graph they take turns as well: else the second would wait in vain where ranks differ
        // in which of the two they happen to begin.
        let other = comm.stream(1).unwrap();
        let mut memory = [comm.alloc::<f32>(1000).unwrap(), comm.alloc::<f32>(1000).unwrap()];
        let copies = comm.stream(0).unwrap();
        stream.begin_capture().unwrap();
        let first = comm.all_reduce_in_place(&mut memory[0], ReduceOp::Sum, &stream).unwrap();
        first.order(&other).unwrap();
        let mut last = second.all_reduce_in_place(&mut memory[1], ReduceOp::Sum, &other).unwrap();
        for i in 0..20 {
            let (comm, stream) = if i % 2 == 0 { (&comm, &stream) } else { (&second, &other) };
            last = comm.all_reduce_in_place(&mut memory[i % 2], ReduceOp::Sum, stream).unwrap();
        }
        last.order(&stream).unwrap();
        let graph = stream.end_capture().unwrap().instantiate().unwrap();
        for turn in 0..50 {
            // Zeros stay zeros, however often they are added.
            for (i, memory) in memory.iter_mut().enumerate() {
                let input: Vec<f32> = (0..1000).map(|at| if at == turn { (i + 1) as f32 } else { 0.0 }).collect();
                memory.write(&copies, &input).unwrap();
            }
            // SAFETY: typed buffers stay with the graph.
            unsafe { graph.launch(&stream, CallOptions::default()) }.unwrap().wait().unwrap();
            for (i, memory) in memory.iter().enumerate() {
                let mut output = vec![0.0; 1000];
                memory.read(&copies, &mut output).unwrap();
                let sum = (i + 1) as f32 * (1u32 << 11) as f32;
                let right = output.iter().enumerate().all(|(at, x)| *x == if at == turn { sum } else { 0.0 });
                assert!(right, "turn {turn}, communicator {i}: {} not {sum}", output[turn]);
            }
        }
    });
}
