//! Stores that arrive late and out of order, but for what the line form relies on.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType::{Bfloat16, Float32};
use ccl_tests::calls::{self, Call, Found, Options, Overwrite, Route};
use ccl_tests::data::word;
use ccl_tests::{Group, Rank, soft};
use std::time::Duration;
use ze_soft::ext;

/// Bytes that arrive as one.
const DELIVERED: &str = "TEST_DELIVERED";

fn group(test: &str, n: usize, form: u32, delivered: u32) -> Group {
    // Faults are planted in the driver that is linked in.
    let group = Group::new(test, n).env("CCLX_DEVICE", "soft").env("CCLX_GRANULE", form).env(DELIVERED, delivered);
    // Little staging memory: all of it is looked at for each delivery.
    group.env("CCLX_STAGING_TILES", 3).env("CCLX_MAX_WIRES", 3).env("CCLX_PUSH_TILES", 2).env("CCLX_BULK_BYTES", 4096)
}

fn run(rank: &Rank, calls: &[Call]) -> ccl_core::Result<Found> {
    let delivered = std::env::var(DELIVERED).unwrap().parse().unwrap();
    let (most, seed) = (Duration::from_micros(300), rank.rank as u64 + 1);
    soft::fault(ext::ZESOFT_FAULT_LATE_STORES, ext::ZESOFT_ANY, delivered, most.as_nanos() as u64, seed);
    let comm = rank.communicator();
    // In host memory no store would be late.
    assert!(comm.describe().p2p, "the pattern test took late stores for lost ones");
    let (stream, other) = (comm.stream(0)?, comm.stream(1)?);
    calls::run(
        &comm,
        &stream,
        &other,
        calls,
        Options { seed: 77, overwrite: Overwrite::OnCompletion, before: &mut |_| () },
    )
}

fn mixed() -> Vec<Call> {
    let call = |i: usize| {
        let random = word(77, 0, i as u64) as usize;
        let most = [40, 400, 3_000, 12_000][i % 4];
        let route = [Route::Apart, Route::InPlace, Route::Shared][i % 3];
        Call::sum(if random.is_multiple_of(2) { Bfloat16 } else { Float32 }, 1 + random / 2 % most, route)
    };
    (0..300).map(call).collect()
}

#[test]
fn late_stores_change_nothing() {
    // By default what is short goes by one-shot and the rest by a mesh, both on lines: the litmus test refuses bulk.
    for (n, form, algorithm) in [(2, 8, "auto"), (2, 64, "ring"), (3, 16, "ring"), (3, 64, "mesh"), (4, 64, "auto")] {
        let group = group("late_stores_change_nothing", n, form, form).env("CCL_ALLREDUCE", algorithm);
        group.run(|rank| {
            run(&rank, &mixed()).unwrap().assert_clean(&format!("rank {} of {}", rank.rank, rank.n));
        });
    }
}

/// NEGATIVE CONTROL: lines wider than what arrives as one are seen torn.
#[test]
fn lines_wider_than_the_granule_are_noticed() {
    for (form, delivered) in [(64, 8), (64, 16), (16, 8)] {
        torn("lines_wider_than_the_granule_are_noticed", form, delivered);
    }
}

fn torn(test: &str, form: u32, delivered: u32) {
    let group = group(test, 2, form, delivered).env("CCLX_TIMEOUT_MS", 5000);
    group.run_with(
        |rank| match run(&rank, &mixed()) {
            Ok(found) if found.wrong.is_empty() => rank.say("clean"),
            Ok(found) => rank.say(format!("{} calls torn", found.wrong.len())),
            Err(error) => rank.say(error),
        },
        |running| {
            let ended = running.wait();
            let torn = ended.iter().filter(|rank| rank.output.contains("calls torn")).count();
            assert!(torn > 0, "{form}-byte lines: {:?}", ended.iter().map(|rank| &rank.output).collect::<Vec<_>>());
        },
    );
}
