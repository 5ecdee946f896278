//! What a call costs on the host, apart from the kernel: the plan, the append of a collective that has nothing to wait
//! for, and the replay of a recorded one.
#![allow(missing_docs, reason = "a benchmark")]

use ccl_core::bootstrap;
use ccl_core::config::Config;
use ccl_core::plan::{Agreed, Request, plan};
use ccl_core::protocol::LineForm;
use ccl_core::{DataType, Order, ReduceOp};
use ccl_ze::{Buffer, CallOptions, Communicator, Stream};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn plans(c: &mut Criterion) {
    let config = Config::default();
    let agreed = Agreed { max_wires: 32, ..Agreed::ring(8, LineForm::L64, 256) };
    for (name, count) in [("plan 4 KiB", 2048), ("plan 64 MiB", 32 << 20)] {
        let request = Request {
            count,
            dtype: DataType::Bfloat16,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        };
        c.bench_function(name, |b| b.iter(|| plan(black_box(&request), &agreed, &config)));
    }
}

/// A communicator of one rank: its calls have nothing to wait for.
fn alone() -> (Communicator, Stream, Buffer<f32>) {
    let mesh = bootstrap::local(1).map(|mut meshes| meshes.remove(0)).expect("a group of one");
    let comm = Communicator::builder_with(Config::default()).init_local(mesh).expect("a communicator");
    let stream = comm.stream(0).expect("a stream");
    let mut buffer = comm.alloc::<f32>(1024).expect("a buffer");
    let input: Vec<f32> = (0..1024).map(|position| position as f32).collect();
    buffer.write(&stream, &input).expect("an input");
    (comm, stream, buffer)
}

fn calls(c: &mut Criterion) {
    let (comm, stream, mut buffer) = alone();
    let mut recv = comm.alloc::<f32>(1024).expect("a buffer");
    c.bench_function("all_reduce of one rank in place, append and wait", |b| {
        b.iter(|| comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).and_then(|done| done.wait()));
    });
    c.bench_function("all_reduce of one rank out of place, append and wait", |b| {
        b.iter(|| comm.all_reduce(&buffer, &mut recv, ReduceOp::Sum, &stream).and_then(|done| done.wait()));
    });
}

/// The same call, recorded in a graph.
fn replays(c: &mut Criterion) {
    let (comm, stream, buffer) = alone();
    let mut recv = comm.alloc::<f32>(1024).expect("a buffer");
    stream.begin_capture().expect("a capture");
    let recorded = comm.all_reduce(&buffer, &mut recv, ReduceOp::Sum, &stream);
    let graph = stream.end_capture().and_then(|graph| graph.instantiate()).expect("a graph");
    drop(recorded.expect("a recorded call"));
    c.bench_function("replay of an all_reduce of one rank, append and wait", |b| {
        b.iter(|| {
            // SAFETY: no events; what was captured lives until the end of this function, and is waited for.
            unsafe { graph.launch(&stream, CallOptions::default()) }.and_then(|done| done.wait())
        });
    });
}

criterion_group!(benches, plans, calls, replays);
criterion_main!(benches);
