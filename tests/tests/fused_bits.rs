//! Every fused design of mHC gives the bits of the reference, on every rank, and writes nothing else.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType;
use ccl_core::comm::StartState;
use ccl_core::config::{Algorithm, Config, TransportChoice};
use ccl_core::mhc::element::Element;
use ccl_core::mhc::{Design, Params, Variant};
use ccl_tests::fused::{Case, Peer};
use ccl_tests::{Group, data, local};
use half::{bf16, f16};

fn process(test: &str) -> Group {
    Group::new(test, 1).env("ZE_SOFT_DEVICES", 8).env("ZE_SOFT_COMPUTE_UNITS", 8)
}

/// A case with what it writes.
struct Known {
    case: Case,
    design: Design,
    written: Vec<(usize, Vec<u8>)>,
}

fn written(case: &Case, n: usize) -> Vec<(usize, Vec<u8>)> {
    match case.params.dtype {
        DataType::Bfloat16 => case.written::<bf16>(n),
        DataType::Float16 => case.written::<f16>(n),
        _ => case.written::<f32>(n),
    }
}

fn run(peer: &mut Peer, known: &Known) -> Option<String> {
    fn typed<T: Element>(peer: &mut Peer, Known { case, design, written }: &Known) -> Option<String> {
        let image = peer.run::<T>(case, *design).unwrap_or_else(|e| panic!("{case:?} by {design}: {e}"));
        case.wrong::<T>(peer.comm.rank(), written, &image)
    }
    match known.case.params.dtype {
        DataType::Bfloat16 => typed::<bf16>(peer, known),
        DataType::Float16 => typed::<f16>(peer, known),
        _ => typed::<f32>(peer, known),
    }
}

/// `number` cases that go through all that there is, each combined with the others by chance.
fn cases(n: usize, seed: u64, number: usize) -> Vec<Known> {
    let mut known = Vec::new();
    for i in 0.. {
        let pick = |salt: u64, of: usize| data::word(seed, i, salt) as usize % of;
        let variant = [Variant::V4, Variant::V4, Variant::V41, Variant::V41, Variant::Post][pick(1, 5)];
        let dtype = [DataType::Bfloat16, DataType::Bfloat16, DataType::Float16, DataType::Float32][pick(2, 4)];
        let rows = [1, 2, 3, 8, 17, 64][pick(3, 6)];
        let hidden = [64, 96, 127, 1056, 4096, 5120][pick(4, 6)];
        let mut params = Params::new(variant, dtype, rows, hidden, [2, 4, 8][pick(5, 3)]);
        // The reference takes a second for as much as the twin does in a few milliseconds.
        if rows as usize * hidden as usize * params.hc() * params.mixes() > 6_000_000 {
            continue;
        }
        params.norm_eps = (variant != Variant::Post && pick(6, 2) == 0).then_some(1e-6);
        // Designs that share a launch keep x where y goes; post alone has none.
        let designs: &[Design] = match variant {
            Variant::V4 => &[Design::A, Design::C, Design::C, Design::Auto, Design::Unfused],
            Variant::V41 => &[Design::A, Design::B, Design::B, Design::C],
            _ => &[Design::A, Design::C],
        };
        let design = designs[pick(7, designs.len())];
        let mut x_out = [None, Some(false), Some(true)][pick(8, 3)];
        if variant == Variant::Post && (design != Design::C || n == 1) {
            x_out = x_out.or(Some(false));
        }
        let case = Case { params, seed: seed + i as u64, in_place: pick(9, 2) == 0, x_out };
        known.push(Known { written: written(&case, n), case, design });
        if known.len() == number {
            return known;
        }
    }
    unreachable!("there are enough")
}

fn check(n: usize, config: &Config, start: &StartState, known: &[Known]) -> Vec<String> {
    let capacity = known.iter().map(|known| known.case.bytes()).max().unwrap();
    let wrong = local::ranks(n, config, start, |comm| {
        let mut peer = Peer::new(comm, capacity);
        let mut found = Vec::new();
        for known in known {
            if let Some(wrong) = run(&mut peer, known) {
                found.push(format!(
                    "rank {} of {n}, design {}, {:?}: {wrong}",
                    peer.comm.rank(),
                    known.design,
                    known.case
                ));
            }
        }
        found
    });
    wrong.into_iter().flatten().collect()
}

fn ways() -> [Config; 5] {
    let lines =
        |granule, push_tiles| Config { transport: TransportChoice::Lines, granule, push_tiles, ..Config::default() };
    [
        Config::default(),
        // Slots that hold a few rows only, so that calls have many rounds.
        Config { bulk_bytes: 24 << 10, ..Config::default() },
        lines(64, 16),
        lines(8, 8),
        Config { allreduce: Algorithm::Mesh, ..lines(16, 16) },
    ]
}

fn sweep(test: &str, n: usize, number: usize) {
    process(test).run(|_| {
        for (seed, config) in (0..).zip(ways()) {
            let known = cases(n, 1000 * n as u64 + 100 * seed, number);
            let wrong = check(n, &config, &StartState::default(), &known);
            assert!(wrong.is_empty(), "{config:?}: {} wrong, first: {}", wrong.len(), wrong[0]);
        }
    });
}

#[test]
fn one_rank() {
    sweep("one_rank", 1, 6);
}

#[test]
fn two_ranks() {
    sweep("two_ranks", 2, 16);
}

#[test]
fn three_ranks() {
    sweep("three_ranks", 3, 12);
}

#[test]
fn four_ranks() {
    sweep("four_ranks", 4, 10);
}

#[test]
fn eight_ranks() {
    sweep("eight_ranks", 8, 8);
}
