//! Regular lists whose commands change after they were closed.

#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs, reason = "test code")]

#[path = "executor_support/mod.rs"]
mod support;

use level_zero_sys::*;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;

struct Bed {
    soft: Soft,
    queue: ze_command_queue_handle_t,
    list: ze_command_list_handle_t,
}

impl Bed {
    fn new() -> Self {
        let soft = Soft::new();
        let queue = soft.queue(0, 0);
        let list = mutable_list(&soft);
        Self { soft, queue, list }
    }

    fn number(&self, flags: ze_mutable_command_exp_flags_t, kernels: &[ze_kernel_handle_t]) -> u64 {
        let desc = ze_mutable_command_id_exp_desc_t { flags, ..Default::default() };
        let mut number = 0;
        let (count, kernels) = (kernels.len() as u32, kernels.as_ptr().cast_mut());
        ok(unsafe {
            match count {
                0 => self.soft.ze.zeCommandListGetNextCommandIdExp.unwrap()(self.list, &desc, &mut number),
                _ => {
                    let next = self.soft.ze.zeCommandListGetNextCommandIdWithKernelsExp.unwrap();
                    next(self.list, &desc, count, kernels, &mut number)
                }
            }
        });
        number
    }

    fn update(&self, next: *const c_void) -> ze_result_t {
        let desc = ze_mutable_commands_exp_desc_t { pNext: next, ..Default::default() };
        unsafe { self.soft.ze.zeCommandListUpdateMutableCommandsExp.unwrap()(self.list, &desc) }
    }

    fn set(&self, number: u64, index: u32, value: u64) -> ze_result_t {
        let change = argument(number, index, &value, null());
        self.update((&raw const change).cast())
    }

    fn exchange(&self, mut number: u64, mut kernel: ze_kernel_handle_t) -> ze_result_t {
        let update = self.soft.ze.zeCommandListUpdateMutableCommandKernelsExp.unwrap();
        unsafe { update(self.list, 1, &mut number, &mut kernel) }
    }

    fn signal(&self, number: u64, event: ze_event_handle_t) -> ze_result_t {
        let update = self.soft.ze.zeCommandListUpdateMutableCommandSignalEventExp.unwrap();
        unsafe { update(self.list, number, event) }
    }

    fn waits(&self, number: u64, events: &[ze_event_handle_t]) -> ze_result_t {
        let update = self.soft.ze.zeCommandListUpdateMutableCommandWaitEventsExp.unwrap();
        unsafe { update(self.list, number, events.len() as u32, events.as_ptr().cast_mut()) }
    }

    fn execute(&self) -> ze_result_t {
        self.soft.execute(self.queue, &[self.list], null_mut())
    }

    #[track_caller]
    fn run(&self) {
        ok(self.soft.close(self.list));
        ok(self.execute());
        ok(self.soft.wait_queue(self.queue, NEVER));
    }

    fn error(&self) -> String {
        let mut text = null();
        ok(unsafe { (self.soft.ze.zeDriverGetLastErrorDescription)(self.soft.driver, &mut text) });
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

fn mutable_list(soft: &Soft) -> ze_command_list_handle_t {
    let mutable = ze_mutable_command_list_exp_desc_t::default();
    let desc = ze_command_list_desc_t { pNext: (&raw const mutable).cast(), ..Default::default() };
    made(|list| unsafe { (soft.ze.zeCommandListCreate)(soft.context, soft.devices[0], &desc, list) })
}

fn argument(number: u64, index: u32, value: &u64, next: *const c_void) -> ze_mutable_kernel_argument_exp_desc_t {
    ze_mutable_kernel_argument_exp_desc_t {
        pNext: next,
        commandId: number,
        argIndex: index,
        argSize: 8,
        pArgValue: (&raw const *value).cast(),
        ..Default::default()
    }
}

fn address(cell: &'static AtomicU64) -> u64 {
    &raw const *cell as u64
}

#[test]
fn arguments_change_between_executions() {
    let bed = Bed::new();
    let cells = cells(3);
    let number = bed.number(0, &[]);
    bed.soft.store(bed.list, &cells[0], 11, null_mut(), &[]);
    let second = bed.number(0, &[]);
    assert_ne!(number, second);
    bed.soft.store(bed.list, &cells[1], 22, null_mut(), &[]);
    bed.run();
    assert_eq!(cells.iter().map(read).collect::<Vec<_>>(), [11, 22, 0]);
    // Two changes of one command at once, and one of another.
    let (place, value, other) = (address(&cells[2]), 33, 44);
    let chain = argument(second, 1, &other, null());
    let chain = argument(number, 1, &value, (&raw const chain).cast());
    let chain = argument(number, 0, &place, (&raw const chain).cast());
    ok(bed.update((&raw const chain).cast()));
    assert_eq!(bed.execute(), ZE_RESULT_ERROR_INVALID_ARGUMENT, "it must be closed first");
    bed.run();
    assert_eq!(cells.iter().map(read).collect::<Vec<_>>(), [11, 44, 33]);
    // As often as one likes, and nothing changes by itself.
    for value in 100..150 {
        ok(bed.set(number, 1, value));
        bed.run();
        assert_eq!(read(&cells[2]), value);
        cells[2].store(0, Ordering::Relaxed);
        bed.run();
        assert_eq!(read(&cells[2]), value);
    }
}

#[test]
fn groups_change_between_executions() {
    let bed = Bed::new();
    let cell = &cells(1)[0];
    let number = bed.number(0, &[]);
    bed.soft.store(bed.list, cell, 5, null_mut(), &[]);
    bed.run();
    assert_eq!(read(cell), 5);
    let none = ze_group_count_t { groupCountX: 0, groupCountY: 1, groupCountZ: 1 };
    let count = ze_mutable_group_count_exp_desc_t { commandId: number, pGroupCount: &none, ..Default::default() };
    ok(bed.update((&raw const count).cast()));
    cell.store(0, Ordering::Relaxed);
    bed.run();
    assert_eq!(read(cell), 0, "a grid without groups is nothing to do");
    let size = |x| ze_mutable_group_size_exp_desc_t {
        commandId: number,
        groupSizeX: x,
        groupSizeY: 1,
        groupSizeZ: 1,
        ..Default::default()
    };
    let (some, none) = (size(64), size(0));
    ok(bed.update((&raw const some).cast()));
    assert_eq!(bed.update((&raw const none).cast()), ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    let offset = ze_mutable_global_offset_exp_desc_t { commandId: number, offsetX: 1, ..Default::default() };
    assert_eq!(bed.update((&raw const offset).cast()), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "of a native kernel");
}

#[test]
fn a_command_becomes_a_launch_of_another_kernel() {
    let bed = Bed::new();
    let (store, log) = (bed.soft.kernel("store"), bed.soft.kernel("log"));
    let cells = cells(10);
    let number = bed.number(ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION | 1, &[store, log]);
    ok(bed.soft.try_launch(bed.list, store, [address(&cells[9]), 7], null_mut(), &[]));
    bed.run();
    assert_eq!(read(&cells[9]), 7);
    ok(bed.exchange(number, log));
    // The other kernel's arguments were never set.
    assert_eq!(bed.soft.close(bed.list), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert!(bed.error().contains("argument 0 of kernel log"), "{}", bed.error());
    ok(bed.set(number, 0, cells.as_ptr() as u64));
    ok(bed.set(number, 1, 99));
    bed.run();
    bed.run();
    assert_eq!(entries(cells), [99, 99]);
    // Back again: the kernel still has the arguments of its last launch.
    ok(bed.exchange(number, store));
    cells[9].store(0, Ordering::Relaxed);
    bed.run();
    assert_eq!(read(&cells[9]), 7);
    let spin = bed.soft.kernel("spin");
    assert_eq!(bed.exchange(number, spin), ZE_RESULT_ERROR_INVALID_ARGUMENT, "it was not named before");
    // The refusal left the list as it was.
    ok(bed.execute());
    ok(bed.soft.wait_queue(bed.queue, NEVER));
}

#[test]
fn events_change_between_executions() {
    let bed = Bed::new();
    let [first, second, gate, other_gate] = bed.soft.events();
    let log = cells(10);
    let number = bed.number(0, &[]);
    bed.soft.log(bed.list, log, 1, first, &[gate]);
    ok(bed.soft.signal_host(gate));
    bed.run();
    assert_eq!((bed.soft.query(first), bed.soft.query(second)), (ZE_RESULT_SUCCESS, ZE_RESULT_NOT_READY));
    ok(bed.signal(number, second));
    ok(bed.waits(number, &[other_gate]));
    ok(bed.soft.close(bed.list));
    ok(bed.execute());
    assert_eq!(bed.soft.wait_queue(bed.queue, 20_000_000), ZE_RESULT_NOT_READY, "it waits for the other event now");
    ok(bed.soft.signal_host(other_gate));
    ok(bed.soft.wait_queue(bed.queue, NEVER));
    assert_eq!(bed.soft.query(second), ZE_RESULT_SUCCESS);
    assert_eq!(entries(log), [1, 1]);
    // Nothing to wait for and nothing to signal; then again something.
    for event in [first, second, gate, other_gate] {
        ok(unsafe { (bed.soft.ze.zeEventHostReset)(event) });
    }
    ok(bed.waits(number, &[null_mut()]));
    ok(bed.signal(number, null_mut()));
    bed.run();
    assert_eq!((bed.soft.query(first), bed.soft.query(second)), (ZE_RESULT_NOT_READY, ZE_RESULT_NOT_READY));
    ok(bed.signal(number, first));
    bed.run();
    assert_eq!(bed.soft.query(first), ZE_RESULT_SUCCESS);
    assert_eq!(entries(log), [1; 4]);
}

#[test]
fn what_may_not_change_is_refused_by_name() {
    let bed = Bed::new();
    let log = cells(10);
    let [event] = bed.soft.events();
    let fixed = bed.number(ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT, &[]);
    bed.soft.log(bed.list, log, 1, null_mut(), &[]);
    let barrier = bed.number(0, &[]);
    ok(unsafe { (bed.soft.ze.zeCommandListAppendBarrier)(bed.list, null_mut(), 0, null_mut()) });
    bed.soft.log(bed.list, log, 2, null_mut(), &[]);
    assert_eq!(bed.set(fixed, 1, 3), ZE_RESULT_ERROR_INVALID_ARGUMENT, "the list is open");
    ok(bed.soft.close(bed.list));
    let refused = |code: ze_result_t, why: &str| {
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_ARGUMENT);
        assert!(bed.error().contains(why), "{}", bed.error());
    };
    refused(bed.set(fixed, 1, 3), "was not made for such a change");
    refused(bed.set(barrier, 1, 3), "is no launch");
    refused(bed.set(3, 1, 3), "no command 3 that can change");
    refused(bed.set(0, 1, 3), "no command 0 that can change");
    refused(bed.set(u64::MAX, 1, 3), "that can change");
    refused(bed.signal(barrier, event), "appended with no event");
    let image = ze_base_desc_t { stype: ZE_STRUCTURE_TYPE_CONTEXT_DESC, pNext: null() };
    assert_eq!(bed.update((&raw const image).cast()), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    let desc =
        ze_mutable_command_id_exp_desc_t { flags: ZE_MUTABLE_COMMAND_EXP_FLAG_GRAPH_ARGUMENTS, ..Default::default() };
    let next = bed.soft.ze.zeCommandListGetNextCommandIdExp.unwrap();
    let mut number = 0;
    assert_eq!(unsafe { next(bed.list, &desc, &mut number) }, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    // All the same it runs as it was.
    ok(bed.execute());
    ok(bed.soft.wait_queue(bed.queue, NEVER));
    assert_eq!(entries(log), [1, 2]);

    let plain = bed.soft.list(0, 0, 0);
    let desc = ze_mutable_command_id_exp_desc_t::default();
    assert_eq!(unsafe { next(plain, &desc, &mut number) }, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    let is_mutable = bed.soft.ze.zeCommandListIsMutableExp.unwrap();
    let asked = [plain, bed.list, bed.soft.immediate(0, 0)].map(|list| {
        let mut answer = 9;
        ok(unsafe { is_mutable(list, &mut answer) });
        answer
    });
    assert_eq!(asked, [0, 1, 0]);
}

#[test]
fn a_list_in_flight_does_not_change() {
    let bed = Bed::new();
    let [gate] = bed.soft.events();
    let cell = &cells(1)[0];
    let number = bed.number(0, &[]);
    bed.soft.store(bed.list, cell, 1, null_mut(), &[gate]);
    ok(bed.soft.close(bed.list));
    ok(bed.execute());
    ok(bed.set(number, 1, 2));
    assert_eq!(bed.soft.close(bed.list), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    ok(bed.soft.signal_host(gate));
    ok(bed.soft.wait_queue(bed.queue, NEVER));
    assert_eq!(read(cell), 1);
    bed.run();
    assert_eq!(read(cell), 2);
}

#[test]
fn resetting_a_list_forgets_what_could_change() {
    let bed = Bed::new();
    let cell = &cells(1)[0];
    let number = bed.number(0, &[]);
    bed.soft.store(bed.list, cell, 1, null_mut(), &[]);
    bed.run();
    ok(unsafe { (bed.soft.ze.zeCommandListReset)(bed.list) });
    bed.soft.store(bed.list, cell, 2, null_mut(), &[]);
    ok(bed.soft.close(bed.list));
    assert_eq!(bed.set(number, 1, 3), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    bed.run();
    assert_eq!(read(cell), 2);
}
