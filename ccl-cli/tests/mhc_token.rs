//! A decode token's 85 boundaries and 87 all-reduces on four ranks: bits of the whole chain, eager and replayed; and as a
//! corpus that stands and is made again.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]
#![allow(dead_code, reason = "what only `ccl perf mhc` uses")]

#[path = "../src/perf/mhc/model.rs"]
mod model;
#[path = "../src/perf/mhc/token.rs"]
mod token;

use ccl_core::config::Config;
use ccl_core::mhc::{Design, Params, Variant};
use ccl_core::{DataType, Order, bootstrap};
use ccl_ze::{CallOptions, Communicator, Stream};
use model::{BOUNDARIES, Model, REDUCTIONS, Row, compare, in_place};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use token::{How, Part, Token};

const RANKS: usize = 4;
/// Set for the process that runs a test's inside; with it, where it captures.
const INSIDE: &str = "TEST_MHC_TOKEN";

fn clean(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars() {
        if ["CCL", "ZE_", "LOCAL_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).env("CCLX_DEVICE", "soft")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs this test again in a process of its own with a device for each rank, unless this is that; true if it is.
fn inside(name: &str, value: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    clean(&mut command).args([name, "--exact", "--nocapture"]).env("ZE_SOFT_DEVICES", RANKS.to_string());
    let output = command.env(INSIDE, value).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    false
}

/// A rank's work, on a thread for each rank.
fn ranks(config: &Config, work: impl Fn(&Communicator, &Stream) + Sync) {
    std::thread::scope(|scope| {
        for (rank, mesh) in bootstrap::local(RANKS).unwrap().into_iter().enumerate() {
            let (config, work) = (config.clone(), &work);
            scope.spawn(move || {
                let comm = Communicator::builder_with(config).device(rank).init_local(mesh).unwrap();
                comm.prepare_mhc().unwrap();
                let stream = comm.stream(0).unwrap();
                work(&comm, &stream);
            });
        }
    });
}

fn model(variant: Variant, dtype: DataType, rows: u64, hidden: u64) -> Model {
    Model { params: Params::new(variant, dtype, rows, hidden, 4) }
}

/// Appends a whole token.
fn append(token: &Token, comm: &Communicator, stream: &Stream, design: Design) -> ccl_ze::Completion {
    let parts = Part::ALL.map(|part| {
        // SAFETY: the token outlives the wait for the last part, and the graph that records it.
        unsafe { token.append(comm, stream, part, How::Both(design)).unwrap() }
    });
    let [_, _, last] = parts;
    last
}

const REPLAYS: u32 = 8;

/// What every round's token must leave behind.
fn references(model: &Model) -> BTreeMap<u32, Vec<Row>> {
    let rows: Vec<u64> = (0..model.params.rows).collect();
    let round = |round| (round, model.reference(RANKS, Order::Ring, round, &rows, &mut || Ok(())).unwrap());
    (0..=REPLAYS).map(round).collect()
}

#[test]
fn the_chain_is_right_to_the_bit_eager_and_replayed_twice_in_a_row() {
    let name = "the_chain_is_right_to_the_bit_eager_and_replayed_twice_in_a_row";
    if !inside(name, "chain") {
        return;
    }
    assert_eq!((0..BOUNDARIES).filter(|boundary| in_place(*boundary)).count(), 42);
    let chains = [
        (model(Variant::V4, DataType::Bfloat16, 2, 416), &[Design::Unfused, Design::A, Design::C][..]),
        (model(Variant::V41, DataType::Bfloat16, 1, 160), &[Design::Unfused, Design::A, Design::B, Design::C]),
    ];
    for (model, designs) in chains {
        let references = references(&model);
        ranks(&Config::default(), |comm, stream| {
            let mut token = Token::new(comm, stream, model, false).unwrap();
            let right = |token: &Token, round: u32, what: &str| {
                let got = token.read(stream).unwrap();
                for (row, want) in references[&round].iter().enumerate() {
                    let (wrong, first) = compare(&got, row, want);
                    assert_eq!((wrong, &first), (0, &None), "rank {}, {what}, round {round}", comm.rank());
                }
                // The control: another round's token is another in every tensor.
                let other = &references[&((round + 1) % (REPLAYS + 1))];
                for number in 0..got.len() {
                    let (wrong, _) = compare(&got[number..=number], 0, &other[0][number..=number].to_vec());
                    assert!(wrong > 0, "tensor {number} of two rounds is alike");
                }
            };
            for time in 0..2 {
                for &design in designs {
                    let what = format!("{} {design}, time {time}", model.params.variant);
                    token.write(comm, stream, 0).unwrap();
                    append(&token, comm, stream, design).wait().unwrap();
                    right(&token, 0, &format!("{what}, eager"));
                    stream.begin_capture().unwrap();
                    let recorded = append(&token, comm, stream, design);
                    let graph = stream.end_capture().unwrap();
                    drop(recorded);
                    let graph = graph.instantiate().unwrap();
                    for round in 1..=REPLAYS {
                        token.write(comm, stream, round).unwrap();
                        // SAFETY: the token outlives the wait.
                        unsafe { graph.launch(stream, CallOptions::default()).unwrap() }.wait().unwrap();
                        right(&token, round, &format!("{what}, replayed"));
                    }
                }
            }
        });
    }
}

/// In a process of its own: tokens, captured.
#[test]
fn make_a_corpus() {
    let Ok(inside) = std::env::var(INSIDE) else { return };
    let words: Vec<&str> = inside.split(' ').collect();
    let [directory, variant, design, tokens, keep_x] = words[..] else { return };
    let variant = [Variant::V4, Variant::V41].into_iter().find(|known| known.to_string() == variant).unwrap();
    let designs = [Design::Unfused, Design::A, Design::B, Design::C];
    let design = designs.into_iter().find(|known| known.to_string() == design).unwrap();
    let model = model(variant, DataType::Bfloat16, 2, 160);
    let config = Config { capture: Some(directory.into()), ..Config::default() };
    ranks(&config, |comm, stream| {
        let mut token = Token::new(comm, stream, model, keep_x == "keep").unwrap();
        for round in 0..tokens.parse().unwrap() {
            token.write(comm, stream, round).unwrap();
            append(&token, comm, stream, design).wait().unwrap();
            let got = token.read(stream).unwrap();
            let want = model.reference(RANKS, Order::Ring, round, &[0], &mut || Ok(())).unwrap();
            assert_eq!(compare(&got, 0, &want[0]), (0, None), "a call that is captured is another");
        }
    });
}

fn corpus(folder: &Path, variant: &str, design: &str, tokens: u32, keep_x: bool) {
    let keep_x = if keep_x { "keep" } else { "drop" };
    let mut command = Command::new(std::env::current_exe().unwrap());
    clean(&mut command).args(["make_a_corpus", "--exact", "--nocapture"]).env("ZE_SOFT_DEVICES", RANKS.to_string());
    command.env(INSIDE, format!("{} {variant} {design} {tokens} {keep_x}", folder.display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// Runs a command on a corpus; its status and all that it said.
fn on(directory: &Path, command: &str) -> (Option<i32>, String) {
    let mut words = command.split_whitespace();
    let mut ccl = Command::new(env!("CARGO_BIN_EXE_ccl"));
    ccl.args(words.next()).arg(directory).args(words);
    let output = clean(&mut ccl).output().unwrap();
    (output.status.code(), text(&output))
}

fn verified(directory: &Path) -> Value {
    let (code, json) = on(directory, "verify --json");
    assert_eq!(code, Some(0), "{json}");
    serde_json::from_str(&json).unwrap()
}

#[test]
fn a_captured_token_stands_and_comes_out_again() {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    for (variant, design) in [("v4", "unfused"), ("v4", "c"), ("v41", "b")] {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("corpus");
        corpus(&directory, variant, design, 1, true);
        let json = verified(&directory);
        let counts = &json["counts"];
        assert_eq!((REDUCTIONS, BOUNDARIES), (87, 85));
        assert_eq!((&counts["files"], &counts["ranks"]), (&692.into(), &4.into()), "{design}");
        let events = &counts["events"];
        assert_eq!(
            (&events["all_reduce"], &events["mhc_boundary"], &events["mhc_post"]),
            (&87.into(), &85.into(), &1.into())
        );
        let aliased = &counts["aliased"];
        assert_eq!(
            (&aliased["mhc_boundary"], &aliased["mhc_post"], &aliased["all_reduce"]),
            (&42.into(), &0.into(), &0.into())
        );
        // On each rank every x, and but for the first boundary its residual, post and comb, and of v41 the pre before.
        let recurrent = if variant == "v41" { 85 * 3 + 84 } else { 85 * 3 };
        assert_eq!(counts["links"], 4 * (86 + recurrent), "{design}");

        let (code, said) = on(&directory, "replay --graph 3");
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("173 calls, in 1 graphs of 3 replays each;") && said.contains(", 0 wrong"), "{said}");
        if design != "c" {
            continue;
        }
        for (run, words) in [("eager", "eager, event 173"), ("graph", "replay 0, event 173")] {
            let (code, said) = on(&directory, &format!("replay --graph 2 --corrupt {run}"));
            assert_eq!(code, Some(1), "{said}");
            assert!(
                said.contains("wrong data on rank 3") && said.contains(words) && said.contains("'residual'"),
                "{said}"
            );
        }
        // A boundary's file with one bit changed.
        let group = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
        let file = group.join("rank-002/000051-mhc_boundary.safetensors");
        let mut bytes = std::fs::read(&file).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 0x80;
        std::fs::write(&file, bytes).unwrap();
        let (code, said) = on(&directory, "verify");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("rank-002/000051-mhc_boundary.safetensors, byte "), "{said}");
    }
}

#[test]
fn tokens_one_after_the_other_are_chains_of_their_own() {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    for design in ["unfused", "c"] {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("corpus");
        // Where nobody wants the reduced x, the capture has it all the same.
        corpus(&directory, "v4", design, 2, false);
        let counts = &verified(&directory)["counts"];
        assert_eq!(counts["files"], 2 * 692, "{design}");
        assert_eq!(counts["links"], 2 * 4 * (86 + 85 * 3), "{design}");
        let (code, said) = on(&directory, "replay");
        assert_eq!(code, Some(0), "{said}");
    }
}
