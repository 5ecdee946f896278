//! A graph as a picture: in the language of Graphviz.

use super::{Body, Node};
use crate::memory;
use crate::op::Op;
use std::ffi::c_void;
use std::fmt::Write;

/// The graph's nodes and edges. A dashed edge is a list's own order, any other one an event.
pub(super) fn dot(body: &Body, detailed: bool) -> String {
    let mut text = String::from("digraph graph_1 {\n    node [shape=box];\n");
    let lists = body.nodes.iter().map(|node| node.list + 1).max().unwrap_or(0);
    for list in 0..lists {
        let of_list = || body.nodes.iter().enumerate().filter(|(_, node)| node.list == list);
        let Some((_, first)) = of_list().next() else { continue };
        let (device, ordinal) = (first.executor.device(), first.executor.ordinal());
        let _ = writeln!(text, "    subgraph cluster_{list} {{");
        let _ = writeln!(text, "        label=\"list {list}: device {device}, ordinal {ordinal}\";");
        for (index, node) in of_list() {
            let _ = writeln!(text, "        n{index} [label=\"{}\"];", label(index, node, detailed));
        }
        text.push_str("    }\n");
    }
    for (index, node) in body.nodes.iter().enumerate() {
        for before in &node.after {
            let style = if before.by_event { "" } else { " [style=dashed]" };
            let _ = writeln!(text, "    n{} -> n{index}{style};", before.node);
        }
    }
    text.push_str("}\n");
    text
}

fn label(index: usize, node: &Node, detailed: bool) -> String {
    let mut text = format!("{index}: {}", name(node));
    if !detailed {
        return text;
    }
    let mut line = |line: std::fmt::Arguments<'_>| {
        text.push_str("\\n");
        let _ = text.write_fmt(line);
    };
    match &node.op {
        Op::Copy { target, source, size } => {
            line(format_args!("to {:p} from {:p}, {size} bytes", *target, *source));
        }
        Op::Fill { target, size, pattern } => {
            let length = pattern.bytes().len();
            line(format_args!("{:p}, {size} bytes, pattern of {length}", *target));
        }
        Op::Timestamp(target) => line(format_args!("to {:p}", *target)),
        Op::Launch(launch) => {
            let ([x, y, z], [width, height, depth]) = launch.grid();
            line(format_args!("{x} x {y} x {z} groups of {width} x {height} x {depth}"));
            launch.arguments(|index, bytes| match <[u8; 8]>::try_from(bytes).map(u64::from_ne_bytes) {
                Ok(value) if memory::find(std::ptr::with_exposed_provenance::<c_void>(value as usize)).is_some() => {
                    line(format_args!("argument {index}: pointer {value:#x}"));
                }
                Ok(value) => line(format_args!("argument {index}: 8 bytes {value:#x}")),
                Err(_) => {
                    let hex = bytes.iter().rev().fold(String::new(), |mut hex, byte| {
                        let _ = write!(hex, "{byte:02x}");
                        hex
                    });
                    line(format_args!("argument {index}: {} bytes 0x{hex}", bytes.len()));
                }
            });
        }
        _ => {}
    }
    let outside = node.outside.len() + node.waits.iter().count();
    if outside > 0 {
        line(format_args!("waits for {outside} events from outside"));
    }
    if let Some(event) = &node.signal
        && !event.is_graph_internal()
    {
        line(format_args!("signals an event"));
    }
    text
}

fn name(node: &Node) -> String {
    match &node.op {
        Op::Nothing if node.signal.is_some() => "signal".into(),
        Op::Nothing => "wait".into(),
        Op::Barrier => "barrier".into(),
        Op::Copy { .. } | Op::CopyRegion(_) => "copy".into(),
        Op::Fill { .. } => "fill".into(),
        Op::Launch(launch) => format!("kernel {}", launch.name().replace(['"', '\\'], "_")),
        Op::Reset(_) => "reset".into(),
        Op::Timestamp(_) => "timestamp".into(),
        Op::Times(_) => "timestamps of events".into(),
        Op::Call { .. } => "host function".into(),
        Op::Begin(..) | Op::Replay(_) => "graph".into(),
    }
}
