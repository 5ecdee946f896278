//! Producer, collective and consumer on three lists, with nothing but events between them: eager, in a graph, or in regular
//! lists that are executed again and again.

#![allow(clippy::not_unsafe_ptr_arg_deref, reason = "test code: handles are opaque, and live")]

use crate::local::{ranks, sum};
use ccl_core::comm::StartState;
use ccl_core::config::Config;
use ccl_core::{DataType, Result};
use ccl_ze::{
    Buffer, CallOptions, CommandList, Communicator, Completion, ExecutableGraph, ExecutableList, Graph, Stream,
};
use level_zero_sys::*;
use std::ffi::c_void;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The driver below the library, in a communicator's context.
pub struct Lab {
    /// Its functions.
    pub table: Table,
    /// The context.
    pub context: ze_context_handle_t,
    /// The device.
    pub device: ze_device_handle_t,
    _loader: Option<Loader>,
}

/// Panics if a call of the driver failed.
#[track_caller]
pub fn good(code: ze_result_t) {
    assert_eq!(code, ZE_RESULT_SUCCESS, "{}", result_name(code));
}

impl Lab {
    /// That of `comm`.
    pub fn new(comm: &Communicator) -> Lab {
        let through_loader = comm.describe().driver.contains("libze_loader");
        let loader = through_loader.then(|| Loader::open().expect("a loader"));
        let table = match &loader {
            Some(loader) => *loader.table(),
            None => Table::load_with(ze_soft::resolve).expect("the software driver"),
        };
        let stream = comm.stream(0).expect("a stream");
        let (mut context, mut device) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live list and places for the answers; both live as long as the communicator.
        unsafe {
            good((table.zeCommandListGetContextHandle.expect("a driver of today"))(stream.raw(), &raw mut context));
            good((table.zeCommandListGetDeviceHandle.expect("a driver of today"))(stream.raw(), &raw mut device));
        }
        Lab { table, context, device, _loader: loader }
    }

    /// A new immediate list.
    pub fn list(&self, ordinal: u32, flags: ze_command_queue_flags_t) -> ze_command_list_handle_t {
        let mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
        let desc = ze_command_queue_desc_t { ordinal, flags, mode, ..Default::default() };
        let mut list = std::ptr::null_mut();
        // SAFETY: live context and device; descriptor and output outlive the call.
        good(unsafe {
            (self.table.zeCommandListCreateImmediate)(self.context, self.device, &raw const desc, &raw mut list)
        });
        list
    }

    /// Destroys a list.
    pub fn destroy(&self, list: ze_command_list_handle_t) {
        // SAFETY: a list of `list`, which nobody uses any more.
        good(unsafe { (self.table.zeCommandListDestroy)(list) });
    }

    /// A counter-based event that may also cross the border of a graph.
    pub fn counter_event(&self, more: ze_event_counter_based_flags_t) -> ze_event_handle_t {
        let flags = ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
            | ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE
            | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE
            | more;
        let (signal, wait) = (ZE_EVENT_SCOPE_FLAG_HOST, ZE_EVENT_SCOPE_FLAG_HOST);
        let desc = ze_event_counter_based_desc_t { flags, signal, wait, ..Default::default() };
        let mut event = std::ptr::null_mut();
        let create = self.table.zeEventCounterBasedCreate.expect("counter-based events");
        // SAFETY: live context and device; descriptor and output outlive the call.
        good(unsafe { create(self.context, self.device, &raw const desc, &raw mut event) });
        event
    }

    /// A regular event, not signalled, in a pool of its own.
    pub fn regular_event(&self) -> (ze_event_pool_handle_t, ze_event_handle_t) {
        let flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_IPC;
        let of_pool = ze_event_pool_desc_t { flags, count: 1, ..Default::default() };
        let (signal, wait) = (ZE_EVENT_SCOPE_FLAG_HOST, ZE_EVENT_SCOPE_FLAG_HOST);
        let of_event = ze_event_desc_t { signal, wait, ..Default::default() };
        let (mut pool, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut device = self.device;
        // SAFETY: live context and device; descriptors and outputs outlive the calls.
        unsafe {
            good((self.table.zeEventPoolCreate)(self.context, &raw const of_pool, 1, &raw mut device, &raw mut pool));
            good((self.table.zeEventCreate)(pool, &raw const of_event, &raw mut event));
        }
        (pool, event)
    }

    /// Appends a copy of `bytes` bytes.
    ///
    /// # Safety
    /// Both ranges must be valid as long as the list may do this.
    pub unsafe fn copy(
        &self,
        stream: &Stream,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        signal: ze_event_handle_t,
        waits: &mut [ze_event_handle_t],
    ) {
        let append = self.table.zeCommandListAppendMemoryCopy;
        // SAFETY: live list and events; the ranges are the caller's duty.
        good(unsafe { append(stream.raw(), to, from, bytes, signal, waits.len() as u32, waits.as_mut_ptr()) });
    }

    /// Has the stream wait for an event.
    pub fn wait(&self, stream: &Stream, mut event: ze_event_handle_t) {
        // SAFETY: live list and event.
        good(unsafe { (self.table.zeCommandListAppendWaitOnEvents)(stream.raw(), 1, &raw mut event) });
    }

    /// Has the stream signal an event.
    pub fn signal(&self, stream: &Stream, event: ze_event_handle_t) {
        // SAFETY: live list and event.
        good(unsafe { (self.table.zeCommandListAppendSignalEvent)(stream.raw(), event) });
    }
}

/// Runs everything again with new inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Appended anew each time.
    Eager,
    /// Captured once, replayed.
    Graph,
    /// Three regular lists, executed each time.
    Lists,
    /// The graph holds producer and collective; the consumer, outside, waits on what each replay returned.
    Outside,
    /// NEGATIVE CONTROL: the same, but it waits on what the recorded call returned.
    Wrong,
}

enum Ready {
    Eager,
    Graph(ExecutableGraph),
    Lists(Box<[ExecutableList; 3]>),
    Outside(ExecutableGraph, Option<Completion>),
}

/// The three of one rank: copy in (queue 0), collective in place (queue 1), copy out (queue 0, a list of its own).
pub struct Chain {
    // Dropped in this order: what runs before what it uses.
    ready: Ready,
    comm: Communicator,
    lab: Lab,
    producer: Stream,
    collective: Stream,
    consumer: Stream,
    events: [ze_event_handle_t; 4],
    memory: Buffer<f32>,
    input: Vec<f32>,
    output: Vec<f32>,
}

/// Exact in any order of summation.
pub fn value(turn: usize, rank: usize, i: usize) -> f32 {
    ((turn * 31 + rank * 17 + i * 7) % 1009) as f32
}

/// The sum of [`value`] over `n` ranks.
pub fn total(turn: usize, n: usize, i: usize) -> f32 {
    (0..n).map(|rank| value(turn, rank, i)).sum()
}

impl Chain {
    /// Records it, unless it is eager.
    pub fn new(comm: Communicator, way: Way, count: usize) -> Result<Chain> {
        let lab = Lab::new(&comm);
        let [producer, collective, consumer] = [0, 1, 0].map(|queue| comm.stream(queue).expect("a stream"));
        let events = [0; 4].map(|more| lab.counter_event(more));
        let memory = comm.alloc(count)?;
        let (input, output) = (vec![0.0; count], vec![0.0; count]);
        let ready = Ready::Eager;
        let mut chain = Chain { ready, comm, lab, producer, collective, consumer, events, memory, input, output };
        chain.ready = match way {
            Way::Eager => Ready::Eager,
            Way::Graph => Ready::Graph(chain.capture(true)?.0.instantiate()?),
            Way::Outside | Way::Wrong => {
                let (graph, done) = chain.capture(false)?;
                Ready::Outside(graph.instantiate()?, (way == Way::Wrong).then_some(done))
            }
            Way::Lists => Ready::Lists(Box::new(chain.record()?)),
        };
        Ok(chain)
    }

    fn bytes(&self) -> usize {
        self.input.len() * size_of::<f32>()
    }

    fn produce(&self, stream: &Stream) {
        let (to, from) = (self.memory.as_ptr().cast(), self.input.as_ptr().cast());
        // SAFETY: memory of this chain, which outlives what it runs.
        unsafe { self.lab.copy(stream, to, from, self.bytes(), self.events[0], &mut []) };
    }

    fn reduce(&self, stream: &Stream) -> Result<Completion> {
        let at = self.memory.as_ptr().cast();
        let request = sum(DataType::Float32, self.input.len());
        let options = CallOptions { after: &self.events[..1], signal: None };
        // SAFETY: as above.
        unsafe { self.comm.all_reduce_with(&request, at, at, stream, options) }
    }

    /// Waits on the completion and on nothing else.
    fn consume(&self, stream: &Stream, done: &Completion) -> Result<()> {
        done.order(stream)?;
        let (to, from) = (self.output.as_ptr().cast_mut().cast(), self.memory.as_ptr().cast());
        // SAFETY: as above; nobody looks at the output before the copy is over.
        unsafe { self.lab.copy(stream, to, from, self.bytes(), self.events[1], &mut []) };
        Ok(())
    }

    /// Captures the producer and the collective, and if `whole` the consumer.
    pub fn capture(&self, whole: bool) -> Result<(Graph, Completion)> {
        self.producer.begin_capture()?;
        // Both other lists come into the capture at its beginning, so that this orders neither behind the producer.
        self.lab.signal(&self.producer, self.events[2]);
        self.lab.wait(&self.collective, self.events[2]);
        self.lab.signal(&self.producer, self.events[3]);
        self.produce(&self.producer);
        let done = self.reduce(&self.collective)?;
        if whole {
            self.lab.wait(&self.consumer, self.events[3]);
            self.consume(&self.consumer, &done)?;
        }
        done.order(&self.producer)?;
        if whole {
            self.lab.wait(&self.producer, self.events[1]);
        }
        Ok((self.producer.end_capture()?, done))
    }

    fn record(&self) -> Result<[ExecutableList; 3]> {
        let [first, second, third] = [0, 1, 0].map(|queue| self.comm.command_list(queue).expect("a list"));
        self.produce(first.stream());
        let done = self.reduce(second.stream())?;
        self.consume(third.stream(), &done)?;
        let mut closed = [first, second, third].map(CommandList::close).into_iter();
        let mut next = || closed.next().expect("three lists");
        Ok([next()?, next()?, next()?])
    }

    /// Runs it on inputs of this turn, and says what is wrong with the output.
    pub fn turn(&mut self, turn: usize) -> Result<Option<String>> {
        let (rank, n) = (self.comm.rank(), self.comm.world_size());
        self.input.iter_mut().enumerate().for_each(|(i, x)| *x = value(turn, rank, i));
        self.output.fill(-1.0);
        let none = CallOptions::default();
        // SAFETY: what was recorded is of this chain and outlives the waits below.
        unsafe {
            match &self.ready {
                Ready::Eager => {
                    self.produce(&self.producer);
                    let done = self.reduce(&self.collective)?;
                    self.consume(&self.consumer, &done)?;
                    self.consumer.synchronize()?;
                    self.producer.synchronize()?;
                    done.wait()?;
                }
                Ready::Graph(graph) => graph.launch(&self.producer, none)?.wait()?,
                Ready::Lists(lists) => {
                    let [first, second, third] = &**lists;
                    let first = first.execute(&self.producer, none)?;
                    let second = second.execute(&self.collective, none)?;
                    third.execute(&self.consumer, none)?.wait()?;
                    second.wait()?;
                    first.wait()?;
                }
                Ready::Outside(graph, recorded) => {
                    let done = graph.launch(&self.producer, none)?;
                    self.consume(&self.consumer, recorded.as_ref().unwrap_or(&done))?;
                    self.consumer.synchronize()?;
                    done.wait()?;
                }
            }
        }
        let wrong = self.output.iter().enumerate().find(|(i, x)| **x != total(turn, n, *i));
        Ok(wrong.map(|(i, x)| format!("turn {turn}, rank {rank}: [{i}] = {x}, not {}", total(turn, n, i))))
    }

    /// Where a graph is launched.
    pub fn stream(&self) -> &Stream {
        &self.producer
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.ready = Ready::Eager;
        for stream in [&self.producer, &self.collective, &self.consumer] {
            let _ = stream.synchronize();
        }
        for event in self.events {
            // SAFETY: made in `new`; all that used it is over.
            good(unsafe { (self.lab.table.zeEventDestroy)(event) });
        }
    }
}

/// Runs the chain as one rank, whose others do the same, and fails the test if an output is wrong.
pub fn run_rank(way: Way, comm: Communicator, count: usize, turns: usize) {
    let mut chain = Chain::new(comm, way, count).unwrap_or_else(|e| panic!("{way:?}: {e}"));
    for turn in 0..turns {
        let found = chain.turn(turn).unwrap_or_else(|e| panic!("{way:?}, turn {turn}: {e}"));
        assert_eq!(found, None, "{way:?}");
    }
}

/// How many turns of `turns` went wrong before it was enough to know, and what the first of them says.
#[derive(Debug)]
pub struct Verdict {
    /// Turns that were run.
    pub turns: usize,
    /// Wrong outputs.
    pub wrong: usize,
    /// The first of them.
    pub first: Option<String>,
}

/// Runs the chain on `n` ranks, threads of this process, until one is wrong or `turns` are done.
pub fn run(way: Way, n: usize, count: usize, turns: usize, config: &Config, hooks: u32) -> Verdict {
    const BATCH: usize = 20;
    let (wrong, barrier) = (AtomicUsize::new(0), Barrier::new(n));
    let start = StartState { hooks, ..StartState::default() };
    let results = ranks(n, config, &start, |comm| {
        let mut chain = Chain::new(comm, way, count).unwrap_or_else(|e| panic!("{way:?}: {e}"));
        let (mut first, mut turn) = (None, 0);
        while turn < turns {
            for _ in 0..BATCH.min(turns - turn) {
                let found = chain.turn(turn).unwrap_or_else(|e| panic!("{way:?}, turn {turn}: {e}"));
                turn += 1;
                if found.is_some() {
                    wrong.fetch_add(1, Ordering::SeqCst);
                }
                first = first.or(found);
            }
            // Twice: nobody may look at the count while another still adds to it, or they part.
            barrier.wait();
            let stop = wrong.load(Ordering::SeqCst) > 0;
            barrier.wait();
            if stop {
                break;
            }
        }
        (turn, first)
    });
    let turns = results.iter().map(|(turn, _)| *turn).max().unwrap_or(0);
    let first = results.into_iter().find_map(|(_, first)| first);
    Verdict { turns, wrong: wrong.into_inner(), first }
}

/// Whether a graph's dump shows producer, collective and consumer with edges from one to the next: a copy from which a path
/// leads to the kernel, and a copy to which one leads from there.
pub fn shows_edges(dump: &str) -> std::result::Result<(), String> {
    let mut labels = Vec::<(String, String)>::new();
    let mut edges = Vec::<(String, String)>::new();
    let name = |text: &str| text.split_whitespace().next().unwrap_or_default().trim_matches('"').to_owned();
    for line in dump.lines().map(|line| line.trim().trim_end_matches(';')) {
        if let Some((from, to)) = line.split_once("->") {
            edges.push((name(from), name(to)));
        } else if let Some((node, label)) = line.split_once("[label=") {
            labels.push((name(node), label.to_lowercase()));
        } else if let Some((_, label)) = labels.last_mut()
            && line.starts_with('<')
        {
            label.push_str(&line.to_lowercase());
        }
    }
    // Intel's driver draws the order of lists, forks and joins; other waits are to be found among the arguments.
    let handles = |label: &str, argument: &str| -> Vec<String> {
        let rest = label.split(argument).skip(1);
        rest.filter_map(|text| text.split_once("0x")?.1.split('<').next().map(str::to_owned)).collect()
    };
    for (before, signals) in labels.iter().map(|(node, label)| (node, handles(label, ">hsignalevent<"))) {
        for (after, label) in &labels {
            let waits = handles(label, "events[");
            if signals.iter().any(|signal| waits.contains(signal)) {
                edges.push((before.clone(), after.clone()));
            }
        }
    }
    let named = |what: &str| -> Vec<String> {
        labels.iter().filter(|(_, label)| label.contains(what)).map(|(node, _)| node.clone()).collect()
    };
    let (kernels, copies) = (named("kernel"), named("copy"));
    let [kernel] = &kernels[..] else { return Err(format!("kernels {kernels:?} of {labels:?}")) };
    let reaches = |from: &String, to: &String| {
        let (mut seen, mut next) = (vec![from.clone()], vec![from.clone()]);
        while let Some(at) = next.pop() {
            for (_, after) in edges.iter().filter(|(before, _)| *before == at) {
                if !seen.contains(after) {
                    seen.push(after.clone());
                    next.push(after.clone());
                }
            }
        }
        seen.contains(to)
    };
    let before = copies.iter().filter(|copy| reaches(copy, kernel)).count();
    let after = copies.iter().filter(|copy| reaches(kernel, copy)).count();
    match (before, after) {
        (1, 1) => Ok(()),
        _ => Err(format!("{before} copies before the kernel and {after} after it: {labels:?} {edges:?}")),
    }
}
