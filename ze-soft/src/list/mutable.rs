//! Regular lists whose commands change after they were closed.
//!
//! A command that is to change has a number, which the program asks for before it appends it. Changes are collected, and
//! made when the list is closed again: until then it can't be executed, and a change that is refused leaves all as it was.

use super::{List, ListKind, Record, Target, wait_list};
use crate::abi::{chain, input, output, run};
use crate::entry::entry_points;
use crate::error::fail;
use crate::event::{self, Epoch, Event, Point};
use crate::handle::{answer, get};
use crate::kernel::{BoundLaunch, Draft, Kernel};
use crate::op::{Command, Op, Signal, Waits};
use level_zero_sys::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::Arc;

/// What can be changed.
pub(crate) const FLAGS: ze_mutable_command_exp_flags_t = DEFAULT_FLAGS | ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION;

/// What can be changed if the program doesn't say.
const DEFAULT_FLAGS: ze_mutable_command_exp_flags_t = ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS
    | ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT
    | ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE
    | ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET
    | ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT
    | ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS;

/// The commands of a list that may change, and the changes that are collected.
#[derive(Default)]
pub(super) struct Mutables {
    commands: BTreeMap<u64, Mutable>,
    changes: BTreeMap<u64, Change>,
    /// Those that had an event to signal, and signal none any more.
    silenced: BTreeSet<u64>,
}

/// A command that may change.
struct Mutable {
    flags: ze_mutable_command_exp_flags_t,
    /// Which kernels it may become a launch of.
    kernels: Vec<Arc<Kernel>>,
}

/// How one command is to change.
#[derive(Default)]
struct Change {
    launch: Option<Draft>,
    /// What it signals from then on, if anything.
    signal: Option<Option<(Signal, Arc<Event>)>>,
    waits: Option<Waits>,
}

impl Mutables {
    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The changed launches by their command's place, if none of them lacks anything.
    pub(super) fn launches(&self) -> Result<Vec<(usize, BoundLaunch)>, ze_result_t> {
        let drafts = self.changes.iter().filter_map(|(&number, change)| Some((number, change.launch.as_ref()?)));
        drafts.map(|(number, draft)| Ok((place(number), draft.launch()?))).collect()
    }

    /// Makes the changes, with the launches that they come to.
    pub(super) fn apply(&mut self, commands: &mut [Command], epoch: &Arc<Epoch>, launches: Vec<(usize, BoundLaunch)>) {
        for (at, launch) in launches {
            commands[at].op = Op::Launch(launch);
        }
        for (number, change) in std::mem::take(&mut self.changes) {
            let command = &mut commands[place(number)];
            if let Some(signal) = change.signal {
                if let Some((signal, event)) = &signal {
                    if let Signal::Count { counter, .. } = signal {
                        event.aim(Point::recorded(counter.clone(), epoch.clone(), place(number)));
                    }
                    event.captured().clear();
                } else {
                    self.silenced.insert(number);
                }
                command.signal = signal.map(|(signal, _)| signal);
            }
            if let Some(waits) = change.waits {
                command.waits = waits;
            }
        }
    }
}

/// Where the command of a number is.
fn place(number: u64) -> usize {
    number as usize - 1
}

fn refuse(why: impl Into<String>) -> ze_result_t {
    fail(ZE_RESULT_ERROR_INVALID_ARGUMENT, why)
}

impl Record {
    fn mutables(&mut self) -> Result<&mut Mutables, ze_result_t> {
        self.mutable.as_deref_mut().ok_or_else(|| refuse("this command list was not made for its commands to change"))
    }

    /// Gives the next command a number by which it can be changed.
    fn number(&mut self, mutable: Mutable) -> Result<u64, ze_result_t> {
        self.check_open()?;
        let number = self.commands.len() as u64 + 1;
        self.mutables()?.commands.insert(number, mutable);
        Ok(number)
    }

    /// Collects a change of a command of a closed list.
    fn change(
        &mut self,
        number: u64,
        flag: ze_mutable_command_exp_flags_t,
        edit: impl FnOnce(&mut Change, &Command, &Mutable) -> Result<(), ze_result_t>,
    ) -> Result<(), ze_result_t> {
        let closed = self.closed.clone().ok_or_else(|| refuse("only commands of a closed command list can change"))?;
        let Mutables { commands, changes, .. } = self.mutables()?;
        let known = number.checked_sub(1).and_then(|at| closed.commands.get(at as usize)).zip(commands.get(&number));
        let Some((command, mutable)) = known else {
            return Err(refuse(format!("this command list has no command {number} that can change")));
        };
        if mutable.flags & flag == 0 {
            return Err(refuse(format!("command {number} of this list was not made for such a change ({flag:#x})")));
        }
        let before = changes.remove(&number);
        let had_one = before.is_some();
        let mut change = before.unwrap_or_default();
        let outcome = edit(&mut change, command, mutable);
        if outcome.is_ok() || had_one {
            changes.insert(number, change);
        }
        outcome
    }

    /// Collects a change of a launch.
    fn edit(
        &mut self,
        number: u64,
        flag: ze_mutable_command_exp_flags_t,
        edit: impl FnOnce(&mut Draft) -> Result<(), ze_result_t>,
    ) -> Result<(), ze_result_t> {
        self.change(number, flag, |change, command, _| {
            let launch = launch(command, number)?;
            edit(change.launch.get_or_insert_with(|| launch.draft()))
        })
    }
}

fn launch(command: &Command, number: u64) -> Result<&BoundLaunch, ze_result_t> {
    match &command.op {
        Op::Launch(launch) => Ok(launch),
        _ => Err(refuse(format!("command {number} of this list is no launch of a kernel"))),
    }
}

/// Runs `body` with a regular list and what it records.
fn with<T>(
    list: ze_command_list_handle_t,
    body: impl FnOnce(&List, &mut Record) -> Result<T, ze_result_t>,
) -> Result<T, ze_result_t> {
    let list = get::<List, _>(list)?;
    match &list.kind {
        ListKind::Regular { record, .. } => body(list, &mut record.lock()),
        ListKind::Immediate { .. } => Err(refuse("commands of an immediate command list can't change")),
    }
}

/// What a program wants to be able to change.
///
/// # Safety
/// The specification's promise about the descriptor.
unsafe fn wanted(
    desc: *const ze_mutable_command_id_exp_desc_t,
    kernels: Vec<Arc<Kernel>>,
) -> Result<Mutable, ze_result_t> {
    // SAFETY: the caller's promise.
    let flags = unsafe { input(desc) }?.flags;
    if flags & !(FLAGS | ZE_MUTABLE_COMMAND_EXP_FLAG_GRAPH_ARGUMENTS) != 0 {
        return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
    }
    if flags & ZE_MUTABLE_COMMAND_EXP_FLAG_GRAPH_ARGUMENTS != 0 {
        return Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "arguments of a graph's launches can't be changed"));
    }
    Ok(Mutable { flags: if flags == 0 { DEFAULT_FLAGS } else { flags }, kernels })
}

unsafe extern "C" fn zeCommandListGetNextCommandIdExp(
    hCommandList: ze_command_list_handle_t,
    desc: *const ze_mutable_command_id_exp_desc_t,
    pCommandId: *mut u64,
) -> ze_result_t {
    run(|| {
        // SAFETY: the specification's promise about these two pointers.
        let (mutable, number) = unsafe { (wanted(desc, Vec::new())?, output(pCommandId)?) };
        *number = with(hCommandList, |_, record| record.number(mutable))?;
        Ok(())
    })
}

unsafe extern "C" fn zeCommandListGetNextCommandIdWithKernelsExp(
    hCommandList: ze_command_list_handle_t,
    desc: *const ze_mutable_command_id_exp_desc_t,
    numKernels: u32,
    phKernels: *mut ze_kernel_handle_t,
    pCommandId: *mut u64,
) -> ze_result_t {
    run(|| {
        if numKernels > 0 && phKernels.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        // SAFETY: the specification promises that many handles.
        let handles = (0..numKernels as usize).map(|index| unsafe { phKernels.add(index).read() });
        let kernels = handles.map(|handle| get::<Kernel, _>(handle).cloned()).collect::<Result<_, _>>()?;
        // SAFETY: the specification's promise about these two pointers.
        let (mutable, number) = unsafe { (wanted(desc, kernels)?, output(pCommandId)?) };
        *number = with(hCommandList, |_, record| record.number(mutable))?;
        Ok(())
    })
}

/// Collects the change that one structure of a chain describes.
///
/// # Safety
/// `link` is a structure of type `stype`, as the specification promises of it.
unsafe fn collect(record: &mut Record, stype: ze_structure_type_t, link: *mut c_void) -> Result<(), ze_result_t> {
    match stype {
        ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC => {
            // SAFETY: the caller's promise.
            let desc = unsafe { &*link.cast::<ze_mutable_kernel_argument_exp_desc_t>() };
            let flag = ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS;
            // SAFETY: the specification's promise: a value has the size that was passed.
            record.edit(desc.commandId, flag, |draft| unsafe {
                draft.set_argument(desc.argIndex, desc.argSize, desc.pArgValue)
            })
        }
        ZE_STRUCTURE_TYPE_MUTABLE_GROUP_COUNT_EXP_DESC => {
            // SAFETY: the caller's promise.
            let desc = unsafe { &*link.cast::<ze_mutable_group_count_exp_desc_t>() };
            // SAFETY: the specification's promise.
            let count = unsafe { input(desc.pGroupCount) }?;
            let count = [count.groupCountX, count.groupCountY, count.groupCountZ];
            record.edit(desc.commandId, ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT, |draft| {
                draft.set_group_count(count);
                Ok(())
            })
        }
        ZE_STRUCTURE_TYPE_MUTABLE_GROUP_SIZE_EXP_DESC => {
            // SAFETY: the caller's promise.
            let desc = unsafe { &*link.cast::<ze_mutable_group_size_exp_desc_t>() };
            let size = [desc.groupSizeX, desc.groupSizeY, desc.groupSizeZ];
            record.edit(desc.commandId, ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE, |draft| draft.set_group_size(size))
        }
        ZE_STRUCTURE_TYPE_MUTABLE_GLOBAL_OFFSET_EXP_DESC => {
            // SAFETY: the caller's promise.
            let desc = unsafe { &*link.cast::<ze_mutable_global_offset_exp_desc_t>() };
            let offset = [desc.offsetX, desc.offsetY, desc.offsetZ];
            let flag = ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET;
            record.edit(desc.commandId, flag, |draft| draft.set_global_offset(offset))
        }
        stype => {
            let text = format!("commands can't be changed with the structure of type {stype:#x}");
            Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, text))
        }
    }
}

unsafe extern "C" fn zeCommandListUpdateMutableCommandsExp(
    hCommandList: ze_command_list_handle_t,
    desc: *const ze_mutable_commands_exp_desc_t,
) -> ze_result_t {
    run(|| {
        // SAFETY: the specification's promise.
        let desc = unsafe { input(desc) }?;
        if desc.flags != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        with(hCommandList, |_, record| {
            let mut outcome = Ok(());
            // SAFETY: the specification's promise about chains; each type stands for its structure.
            unsafe {
                chain(desc.pNext.cast_mut(), |stype, link| {
                    if outcome.is_ok() {
                        outcome = collect(record, stype, link);
                    }
                });
            }
            outcome
        })
    })
}

unsafe extern "C" fn zeCommandListUpdateMutableCommandSignalEventExp(
    hCommandList: ze_command_list_handle_t,
    commandId: u64,
    hSignalEvent: ze_event_handle_t,
) -> ze_result_t {
    run(|| {
        with(hCommandList, |list, record| {
            let signal = match hSignalEvent.is_null() {
                true => None,
                false => {
                    let event = event::get(hSignalEvent)?;
                    Some((list.signal_of(event)?, event.clone()))
                }
            };
            let silenced = record.mutables()?.silenced.contains(&commandId);
            record.change(commandId, ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT, |change, command, _| {
                if command.signal.is_none() && !silenced {
                    return Err(refuse(format!(
                        "command {commandId} of this list was appended with no event to signal"
                    )));
                }
                change.signal = Some(signal);
                Ok(())
            })
        })
    })
}

unsafe extern "C" fn zeCommandListUpdateMutableCommandWaitEventsExp(
    hCommandList: ze_command_list_handle_t,
    commandId: u64,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t {
    run(|| {
        with(hCommandList, |list, record| {
            // No list at all means to wait for nothing, and so does an entry without an event.
            let count = if phWaitEvents.is_null() { 0 } else { numWaitEvents as usize };
            // SAFETY: the specification promises that many entries.
            let events = (0..count).map(|index| unsafe { phWaitEvents.add(index).read() });
            let mut events: Vec<ze_event_handle_t> = events.filter(|event| !event.is_null()).collect();
            // SAFETY: the list is our own.
            let Target::Run(waits) = unsafe { wait_list(list, events.len() as u32, events.as_mut_ptr()) }? else {
                return Err(refuse("a command can't be made to wait for an event of a recording"));
            };
            record.change(commandId, ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS, |change, _, _| {
                change.waits = Some(waits);
                Ok(())
            })
        })
    })
}

unsafe extern "C" fn zeCommandListUpdateMutableCommandKernelsExp(
    hCommandList: ze_command_list_handle_t,
    numKernels: u32,
    pCommandId: *mut u64,
    phKernels: *mut ze_kernel_handle_t,
) -> ze_result_t {
    run(|| {
        if pCommandId.is_null() || phKernels.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        }
        for index in 0..numKernels as usize {
            // SAFETY: the specification promises that many numbers and handles.
            let (number, kernel) = unsafe { (pCommandId.add(index).read(), phKernels.add(index).read()) };
            let kernel = get::<Kernel, _>(kernel)?;
            with(hCommandList, |_, record| {
                record.change(number, ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION, |change, command, mutable| {
                    let before = launch(command, number)?;
                    if !mutable.kernels.iter().any(|other| Arc::ptr_eq(other, kernel)) {
                        return Err(refuse(format!("command {number} of this list was not made for this kernel")));
                    }
                    if change.launch.is_some() || !before.is_of(kernel) {
                        change.launch = Some(kernel.draft().like(before));
                    }
                    Ok(())
                })
            })?;
        }
        Ok(())
    })
}

unsafe extern "C" fn zeCommandListIsMutableExp(
    hCommandList: ze_command_list_handle_t,
    pIsMutable: *mut ze_bool_t,
) -> ze_result_t {
    answer(hCommandList, pIsMutable, |list: &List| match &list.kind {
        ListKind::Regular { record, .. } => Ok(record.lock().mutable.is_some().into()),
        ListKind::Immediate { .. } => Ok(0),
    })
}

entry_points! {
    zeCommandListGetNextCommandIdExp: zeCommandListGetNextCommandIdExp_t,
    zeCommandListGetNextCommandIdWithKernelsExp: zeCommandListGetNextCommandIdWithKernelsExp_t,
    zeCommandListUpdateMutableCommandsExp: zeCommandListUpdateMutableCommandsExp_t,
    zeCommandListUpdateMutableCommandSignalEventExp: zeCommandListUpdateMutableCommandSignalEventExp_t,
    zeCommandListUpdateMutableCommandWaitEventsExp: zeCommandListUpdateMutableCommandWaitEventsExp_t,
    zeCommandListUpdateMutableCommandKernelsExp: zeCommandListUpdateMutableCommandKernelsExp_t,
    zeCommandListIsMutableExp: zeCommandListIsMutableExp_t,
}
