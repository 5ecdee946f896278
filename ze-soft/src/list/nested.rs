//! Regular lists and graphs as parts of something else: command by command, node by node.

use super::{List, Target};
use crate::error::fail;
use crate::event::Event;
use crate::graph::{Body, Pending};
use crate::op::{Op, Signal, Wait, Waits};
use level_zero_sys::*;
use std::sync::Arc;

fn refuse(why: impl Into<String>) -> ze_result_t {
    fail(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED, why)
}

/// What a recorded command is made of.
type Step = (Op, Vec<Arc<Event>>, Option<Arc<Event>>);

impl List {
    /// Refuses to have something recorded in this list that is itself made of commands.
    pub(super) fn check_nesting(&self, what: &str) -> Result<(), ze_result_t> {
        match &self.counter {
            Some(_) => Ok(()),
            None => Err(refuse(format!("{what} can be captured only in a list that is in order"))),
        }
    }

    /// The commands of a closed list, as a capture records them.
    fn steps(&self) -> Result<Vec<Step>, ze_result_t> {
        let super::ListKind::Regular { record, .. } = &self.kind else {
            return Err(fail(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "an immediate list can't be captured again"));
        };
        let recording = record.lock().recording()?;
        let step = |command: &crate::op::Command| {
            let waits = command.waits.iter().map(|wait| match wait {
                Wait::State(event) => Ok(event.clone()),
                Wait::Count(_) | Wait::Late { .. } | Wait::Replay(..) => {
                    Err(refuse("a list that waits for counter-based events can't be captured"))
                }
            });
            let signal = match &command.signal {
                None => None,
                Some(Signal::State(event)) => Some(event.clone()),
                Some(_) => return Err(refuse("a list that signals counter-based events can't be captured")),
            };
            Ok((command.op.clone(), waits.collect::<Result<_, _>>()?, signal))
        };
        recording.commands.iter().map(step).collect()
    }

    /// Has the commands of regular lists captured: what is refused leaves no trace.
    pub(super) fn record_lists(
        &self,
        lists: &[&Arc<List>],
        Pending { session, waits }: Pending,
        signal: Option<&Arc<Event>>,
    ) -> Result<(), ze_result_t> {
        self.check_nesting("command lists")?;
        let mut steps = Vec::new();
        for list in lists {
            list.check_executable(&self.executor)?;
            steps.append(&mut list.steps()?);
        }
        session.check_events(&waits, signal)?;
        for (_, waits, signal) in &steps {
            session.check_events(waits, signal.as_ref())?;
        }
        session.record(&self.site(), Op::Nothing, waits, None)?;
        for (op, waits, signal) in steps {
            session.record(&self.site(), op, waits, signal.as_ref())?;
        }
        session.record(&self.site(), Op::Nothing, Vec::new(), signal)
    }

    /// Appends a graph to a regular list: its nodes, in the order in which they were recorded, which all its edges allow.
    pub(super) fn append_nodes(
        &self,
        body: &Body,
        waits: Waits,
        signal: Option<&Arc<Event>>,
    ) -> Result<(), ze_result_t> {
        let refuse = |why: &str| Err(fail(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, why));
        for node in &body.nodes {
            if node.executor.device() != self.executor.device() {
                return refuse("a graph with work for another device can't be appended to a regular list");
            }
            if matches!(node.op, Op::Launch(_)) && !self.computes() {
                return refuse("a graph with kernels can't be appended to a list of a queue group that only copies");
            }
            let counted =
                node.signal.as_ref().is_some_and(|event| event.counted().is_some() && !event.is_graph_internal());
            if counted || !node.outside.is_empty() {
                return refuse("a graph with counter-based events of the outside can't be appended to a regular list");
            }
        }
        self.append(Op::Nothing, Target::Run(waits), None)?;
        for node in &body.nodes {
            let signal = node.signal.as_ref().filter(|event| event.counted().is_none());
            self.append(node.op.clone(), Target::Run(node.waits.clone()), signal)?;
        }
        self.append(Op::Nothing, Target::Run(Waits::default()), signal)
    }
}
