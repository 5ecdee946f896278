//! What a steady-state all-reduce costs on the host with Intel's driver, beside the bare append of the same kernel with
//! the same arguments: interleaved in one run, so that whatever disturbs the one disturbs the other. Nothing executes
//! (`.ci/beds/run-on-neo.sh`), the host's part is the real one.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::config::{Algorithm, Config, DeviceChoice, EventChoice};
use ccl_core::plan::{Plan, Request};
use ccl_core::{DataType, Kind, ReduceOp, bootstrap};
use ccl_tests::neo::{Raw, kind, pretended};
use ccl_ze::{Buffer, Communicator, Stream, hooks};
use level_zero_sys::*;
use std::ffi::CString;
use std::time::Instant;

/// Pairs of calls that are measured, and how many come before them.
const PAIRS: usize = 5000;
const WARM_UP: usize = 500;
/// Of the bare append's time, at most.
const LIMIT: f64 = 1.5;

fn group_of_two(events: EventChoice) -> [Communicator; 2] {
    let config = Config { device: DeviceChoice::Intel, events, allreduce: Algorithm::Ring, ..Config::default() };
    let ranks = bootstrap::local(2).unwrap().into_iter().map(|mesh| {
        let builder = pretended(Communicator::builder_with(config.clone()));
        std::thread::spawn(move || builder.init_local(mesh).unwrap())
    });
    let ranks: Vec<_> = ranks.collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>().try_into().ok().unwrap()
}

/// The ring's kernel, made and launched without our library.
struct Bare<'a> {
    raw: &'a Raw,
    list: ze_command_list_handle_t,
    module: ze_module_handle_t,
    kernel: ze_kernel_handle_t,
    groups: ze_group_count_t,
    memory: Vec<*mut std::ffi::c_void>,
    context: ze_context_handle_t,
}

impl<'a> Bare<'a> {
    /// On the device and in the context of `stream`, on a list of its own of the same kind, with the arguments that a
    /// call of `request` has.
    fn new(raw: &'a Raw, comm: &Communicator, stream: &Stream, request: &Request, buffer: &Buffer<f32>) -> Bare<'a> {
        let Plan::Ring(ring) = comm.plan(request).unwrap() else { panic!("a ring") };
        let kernels = comm.kernels();
        let facts = kernels.iter().find(|k| k.name == "ring_w4_l8").unwrap();
        let name = CString::new(facts.name.as_str()).unwrap();
        let (image, flags) = hooks::spirv("ring_l8").unwrap();
        let flags = CString::new(flags).unwrap();
        let of = &raw.table;
        let (mut context, mut device) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut list, mut module) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut kernel = std::ptr::null_mut();
        let list_desc = ze_command_queue_desc_t {
            flags: ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
            mode: ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            ..Default::default()
        };
        let module_desc = ze_module_desc_t {
            format: ZE_MODULE_FORMAT_IL_SPIRV,
            inputSize: image.len(),
            pInputModule: image.as_ptr(),
            pBuildFlags: flags.as_ptr(),
            ..Default::default()
        };
        let kernel_desc = ze_kernel_desc_t { pKernelName: name.as_ptr(), ..Default::default() };
        let ok = |code| assert_eq!(result_name(code), "ZE_RESULT_SUCCESS");
        // SAFETY: handles come from the calls before and live; descriptors and outputs outlive the calls.
        unsafe {
            ok((of.zeCommandListGetContextHandle.unwrap())(stream.raw(), &raw mut context));
            ok((of.zeCommandListGetDeviceHandle.unwrap())(stream.raw(), &raw mut device));
            ok((of.zeCommandListCreateImmediate)(context, device, &raw const list_desc, &raw mut list));
            let no_log = std::ptr::null_mut();
            ok((of.zeModuleCreate)(context, device, &raw const module_desc, &raw mut module, no_log));
            ok((of.zeKernelCreate)(module, &raw const kernel_desc, &raw mut kernel));
            ok((of.zeKernelSetGroupSize)(kernel, facts.group_size, 1, 1));
        }
        let allocate = |host: bool| {
            let (on_device, on_host) = (ze_device_mem_alloc_desc_t::default(), ze_host_mem_alloc_desc_t::default());
            let mut memory = std::ptr::null_mut();
            // SAFETY: live context and device; descriptors and output outlive the calls.
            ok(unsafe {
                if host {
                    (of.zeMemAllocHost)(context, &raw const on_host, 65536, 4096, &raw mut memory)
                } else {
                    let desc = &raw const on_device;
                    (of.zeMemAllocDevice)(context, desc, 65536, 65536, device, &raw mut memory)
                }
            });
            memory
        };
        // State, host block, own staging memory and the next rank's, which is no memory of the driver's here either.
        let memory = vec![allocate(false), allocate(true), allocate(false)];
        let arguments: [(u64, usize); 15] = [
            (buffer.as_ptr() as u64, 8),
            (buffer.as_ptr() as u64, 8),
            (memory[0] as u64, 8),
            (memory[1] as u64, 8),
            (memory[2] as u64, 8),
            (memory[2] as u64, 8),
            (ring.geometry.count(), 8),
            (ring.geometry.period(), 8),
            (0, 4),
            (2, 4),
            (ring.tiles.into(), 4),
            (ring.rounds.into(), 4),
            (ring.slot_tiles.into(), 4),
            (Kind::new(ring.dtype, ring.op, ring.order).word().into(), 4),
            (0, 8),
        ];
        for (index, (word, size)) in (0..).zip(arguments) {
            // SAFETY: a live kernel, and a value at least as wide as the argument.
            ok(unsafe { (of.zeKernelSetArgumentValue)(kernel, index, size, (&raw const word).cast()) });
        }
        let groups = ze_group_count_t { groupCountX: ring.wires, groupCountY: 1, groupCountZ: 1 };
        Bare { raw, list, module, kernel, groups, memory, context }
    }

    fn append(&self, signal: ze_event_handle_t) {
        let of = &self.raw.table;
        let none = std::ptr::null_mut();
        // SAFETY: live list and kernel with all arguments set; nothing executes.
        let code = unsafe {
            (of.zeCommandListAppendLaunchKernel)(self.list, self.kernel, &raw const self.groups, signal, 0, none)
        };
        assert_eq!(code, ZE_RESULT_SUCCESS);
    }

    fn synchronize(&self) {
        // SAFETY: a live list.
        let code = unsafe { (self.raw.table.zeCommandListHostSynchronize)(self.list, 1_000_000_000) };
        assert_eq!(code, ZE_RESULT_SUCCESS);
    }
}

impl Drop for Bare<'_> {
    fn drop(&mut self) {
        let of = &self.raw.table;
        // SAFETY: made in `new`, destroyed once, users first.
        unsafe {
            (of.zeCommandListDestroy)(self.list);
            (of.zeKernelDestroy)(self.kernel);
            (of.zeModuleDestroy)(self.module);
            for memory in &self.memory {
                (of.zeMemFree)(self.context, *memory);
            }
        }
    }
}

fn median(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2] as f64
}

fn timed(work: impl FnOnce()) -> u64 {
    let since = Instant::now();
    work();
    since.elapsed().as_nanos() as u64
}

struct Cost {
    ours: f64,
    bare: f64,
    /// Most Level Zero calls of one of ours.
    calls: u64,
}

/// Measures in pairs; `buffers` are used in turn.
fn measure(events: EventChoice, buffers: usize) -> Cost {
    let raw = Raw::open();
    let comms = group_of_two(events);
    let comm = &comms[0];
    let stream = comm.stream(0).unwrap();
    let buffers: Vec<Buffer<f32>> = (0..buffers).map(|_| comm.alloc(4096).unwrap()).collect();
    let request = comm.request(4096, DataType::Float32, ReduceOp::Sum);
    // Whoever takes a stream's handle may put it into a capture, so that its calls would ask about that.
    let other = comm.stream(0).unwrap();
    let bare = Bare::new(&raw, comm, &other, &request, &buffers[0]);
    let mut most_calls = 0;
    let (mut ours, mut theirs) = (Vec::with_capacity(PAIRS), Vec::with_capacity(PAIRS));
    for pair in 0..WARM_UP + PAIRS {
        let at = buffers[pair % buffers.len()].as_ptr().cast();
        let calls = comm.level_zero_calls();
        let mut done = None;
        let mut other = 0;
        // Neither always comes first.
        if pair % 2 == 0 {
            other = timed(|| bare.append(std::ptr::null_mut()));
        }
        let own = timed(|| {
            // SAFETY: the buffer holds the message, and nothing executes.
            done = Some(unsafe { comm.all_reduce_raw(&request, at, at, &stream, &[]).unwrap() });
        });
        let calls = comm.level_zero_calls() - calls;
        if pair % 2 == 1 {
            other = timed(|| bare.append(std::ptr::null_mut()));
        }
        if pair >= WARM_UP {
            ours.push(own);
            theirs.push(other);
            most_calls = most_calls.max(calls);
        }
        if events == EventChoice::Regular {
            // In the device's place: the driver counts the events of an in-order list, whatever their kind, and one
            // that it counts is signalled as long as nothing was appended since its reset.
            let event = done.as_ref().unwrap().event().unwrap();
            // SAFETY: a live event that nothing waits on here.
            unsafe {
                assert_eq!((raw.table.zeEventHostReset)(event), ZE_RESULT_SUCCESS);
                assert_eq!((raw.table.zeEventQueryStatus)(event), ZE_RESULT_SUCCESS);
            }
        }
        if pair % 100 == 99 {
            stream.synchronize().unwrap();
            bare.synchronize();
        }
    }
    Cost { ours: median(ours), bare: median(theirs), calls: most_calls }
}

#[test]
#[ignore = "needs the NEO bed, bare"]
fn a_call_costs_little_more_than_its_append() {
    for (what, events, buffers) in [
        ("same buffers, counter-based events", EventChoice::Counter, 1),
        ("other buffers each time, counter-based events", EventChoice::Counter, 2),
        ("same buffers, regular events", EventChoice::Regular, 1),
        ("other buffers each time, regular events", EventChoice::Regular, 2),
    ] {
        // A shared machine has bad moments; a call that is too slow is so every time.
        let within = (0..3).any(|_| {
            let cost = measure(events, buffers);
            let ratio = cost.ours / cost.bare;
            println!(
                "host cost on {}, {what}: all_reduce {:.0} ns in {} calls, bare append {:.0} ns, ratio {ratio:.2}",
                kind().name,
                cost.ours,
                cost.calls,
                cost.bare
            );
            assert!(cost.calls <= 3, "{what}: {} Level Zero calls", cost.calls);
            ratio <= LIMIT
        });
        assert!(within, "{what}: more than {LIMIT} times the bare append, three times over");
    }
}
