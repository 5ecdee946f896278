//! Holds every declaration against the tables that `.ci/abi/regen.sh` made from the headers.

#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fmt::Write;

use level_zero_sys::abi::{self, Layout};

const SPECIFICATION: &str = include_str!("../abi/ze_api.tsv");
const VENDOR: &str = include_str!("../abi/zex_api.tsv");

/// The sources that declare something, to see that nothing is declared past the macros that list it.
const SOURCES: &[&str] = &[
    include_str!("../src/types/base.rs"),
    include_str!("../src/types/device.rs"),
    include_str!("../src/types/driver.rs"),
    include_str!("../src/types/event.rs"),
    include_str!("../src/types/graph.rs"),
    include_str!("../src/types/list.rs"),
    include_str!("../src/types/memory.rs"),
    include_str!("../src/types/module.rs"),
    include_str!("../src/types/zex.rs"),
    include_str!("../src/ddi.rs"),
];

fn render(
    numbers: &[&[(&str, u64)]],
    texts: &[(&str, &CStr)],
    structs: &[&[Layout]],
    signatures: &[(&str, &str)],
) -> String {
    let mut table = String::new();
    for (name, value) in numbers.iter().copied().flatten() {
        writeln!(table, "number\t{name}\t{value:#x}").unwrap();
    }
    for (name, value) in texts {
        writeln!(table, "text\t{name}\t{}", value.to_str().unwrap()).unwrap();
    }
    for layout in structs.iter().copied().flatten() {
        writeln!(table, "struct\t{}\t{}\t{}", layout.name, layout.size, layout.align).unwrap();
        for field in layout.fields {
            let name = field.name.trim_start_matches("r#");
            writeln!(table, "field\t{}.{name}\t{}\t{}", layout.name, field.offset, field.size).unwrap();
        }
    }
    for (name, signature) in signatures {
        let signature = signature.split_whitespace().collect::<Vec<_>>().join(" ");
        writeln!(table, "function\t{name}\t{signature}").unwrap();
    }
    table
}

fn assert_same(declared: &str, committed: &str) {
    let mut committed = committed.lines();
    assert!(
        committed.next().unwrap().starts_with("# ze_api.h v1."),
        "the table's first line states the headers' version"
    );
    let declared: BTreeSet<&str> = declared.lines().collect();
    let committed: BTreeSet<&str> = committed.collect();
    let ours: Vec<_> = declared.difference(&committed).collect();
    let theirs: Vec<_> = committed.difference(&declared).collect();
    assert!(ours.is_empty() && theirs.is_empty(), "only declared: {ours:#?}\nonly in the headers' table: {theirs:#?}");
}

#[test]
fn declarations_of_the_specification_agree_with_the_headers() {
    assert_same(&render(abi::CONSTANTS, abi::NAMES, abi::STRUCTS, abi::SIGNATURES), SPECIFICATION);
}

#[test]
fn declarations_of_the_vendor_agree_with_the_headers() {
    let ours = render(&[abi::VENDOR_CONSTANTS], abi::VENDOR_NAMES, &[abi::VENDOR_STRUCTS], abi::VENDOR_SIGNATURES);
    assert_same(&ours, VENDOR);
}

#[test]
fn nothing_is_declared_past_the_tables() {
    let listed: BTreeSet<&str> =
        SPECIFICATION.lines().chain(VENDOR.lines()).filter_map(|row| row.split('\t').nth(1)).collect();
    let mut seen = 0;
    for line in SOURCES.iter().flat_map(|source| source.lines()) {
        let line = line.trim_start();
        let Some(rest) = line.strip_prefix("pub const ").or_else(|| line.strip_prefix("pub struct ")) else { continue };
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
        if name.starts_with("ZE") || name.starts_with("ze") {
            assert!(listed.contains(name), "{name} is declared but not in the headers' tables");
            seen += 1;
        }
    }
    let rows = SPECIFICATION.lines().chain(VENDOR.lines());
    let expected =
        rows.filter(|row| ["number\t", "text\t", "struct\t"].iter().any(|kind| row.starts_with(kind))).count();
    assert_eq!(seen, expected, "the sources searched are not all that declare something");
}

#[test]
fn no_source_of_types_is_left_out() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/types");
    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(files + 1, SOURCES.len(), "a file in {folder} is not among the sources searched");
}
