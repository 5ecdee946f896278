//! The ring as the device kernels' SPIR-V executes it, between processes and held to the bits of the scalar reference.
//! Run by `.ci/beds/opencl-tests.sh`.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::DataType;
use ccl_core::comm::StartState;
use ccl_core::plan::{Plan, Request};
use ccl_core::protocol::tag_span;
use ccl_tests::calls::{self, Call, Options, Overwrite, Route};
use ccl_tests::local::{Peer, sum};
use ccl_tests::spirv::{self, GRANULES, kind, mixed};
use ccl_tests::{Group, Rank, data};
use ccl_ze::Communicator;
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

/// Calls of a case.
const CALLS: usize = 64;
/// Calls of a case in which each of the 16 offsets of an input meets each of an output.
const MANY: usize = 160;

/// How many wires and rounds `calls` take at most.
fn extent(comm: &Communicator, calls: &[Call]) -> (u32, u32) {
    let plans = calls.iter().map(|call| comm.plan(&call.request()).unwrap());
    plans.fold((0, 0), |(wires, rounds), plan| match plan {
        Plan::Ring(ring) => (wires.max(ring.wires), rounds.max(ring.rounds)),
        Plan::Push(push) => panic!("{push}"),
        Plan::Empty | Plan::Local => (wires, rounds),
    })
}

/// Runs `calls` back to back with pauses here and there, and verifies each byte.
fn verify(rank: &Rank, comm: &Communicator, calls: &[Call], seed: u64) {
    let mut before = |i: usize| {
        let random = u64::from(data::word(seed, rank.rank, i as u64));
        if random.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(random / 16 % 3_000));
        }
    };
    let options = Options { seed, overwrite: Overwrite::OnCompletion, before: &mut before };
    let (stream, other) = (comm.stream(0).unwrap(), comm.stream(1).unwrap());
    let found = calls::run(comm, &stream, &other, calls, options).unwrap();
    found.assert_clean(&format!("rank {} of {}", rank.rank, rank.n));
}

/// Mixed calls in slots of one tile, so that the larger ones take several rounds, in each line form.
fn mixed_calls(test: &str, n: usize, calls: usize) {
    for granule in GRANULES {
        let group = spirv::group(test, n).env("CCLX_GRANULE", granule).env("CCLX_STAGING_TILES", 1);
        group.run(|rank| {
            let comm = spirv::communicator(&rank, StartState::default());
            let granule = comm.describe().granule;
            assert_eq!(std::env::var("CCLX_GRANULE"), Ok(granule.to_string()));
            let calls = mixed(calls, granule as u64, 6_000);
            let (_, rounds) = extent(&comm, &calls);
            assert!(rounds >= 2, "{rounds} rounds at most");
            verify(&rank, &comm, &calls, granule as u64);
        });
    }
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn a_rank_alone() {
    spirv::group("a_rank_alone", 1).run(|rank| {
        let comm = spirv::communicator(&rank, StartState::default());
        verify(&rank, &comm, &mixed(MANY, 1, 6_000), 1);
    });
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn two_ranks() {
    mixed_calls("two_ranks", 2, MANY);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn three_ranks() {
    mixed_calls("three_ranks", 3, MANY);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn four_ranks() {
    mixed_calls("four_ranks", 4, CALLS);
}

#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn five_ranks() {
    mixed_calls("five_ranks", 5, CALLS);
}

/// As users have it: the lines that a device's family prefers, the widest but on NVIDIA's GPUs, and which are tested at init.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn two_ranks_as_configured_by_default() {
    spirv::group("two_ranks_as_configured_by_default", 2).run(|rank| {
        let comm = spirv::communicator(&rank, StartState::default());
        let nvidia = std::env::var("ZE_SOFT_ENGINE").is_ok_and(|engine| engine == "cuda");
        assert_eq!(comm.describe().granule, if nvidia { 16 } else { 64 });
        verify(&rank, &comm, &mixed(CALLS, 2, 6_000), 2);
    });
}

/// Several work-groups, all of which must be resident, share each message.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn grids_of_four_to_eight_groups() {
    for granule in GRANULES {
        let group = spirv::group("grids_of_four_to_eight_groups", 2).env("CCLX_GRANULE", granule);
        group.env("CCLX_STAGING_TILES", 16).run(|rank| {
            // Few tags, so that the range is also begun anew by calls of several work-groups.
            let comm = spirv::communicator(&rank, StartState { tag_limit: 40, ..StartState::default() });
            let routes = [Route::Apart, Route::InPlace, Route::Shared];
            // 4 wires from 128 KiB on, 8 from 512 KiB on.
            let bytes = |i: usize| [140_000, 3_000, 540_000, 70_000, 140_000][i % 5];
            let call = |i: usize| {
                let (dtype, op) = kind(i);
                Call { dtype, op, count: bytes(i) / dtype.size() + i, route: routes[i / 3 % 3] }
            };
            let calls: Vec<_> = (0..CALLS).map(call).collect();
            let (wires, rounds) = extent(&comm, &calls);
            assert!(wires == 8 && rounds >= 4, "{wires} wires, {rounds} rounds at most");
            verify(&rank, &comm, &calls, 40);
        });
    }
}

/// Staging memory that no device's memory holds.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn three_ranks_in_host_memory() {
    let group = spirv::group("three_ranks_in_host_memory", 3).env("CCL_TOPO_P2P_ACCESS", 0);
    group.env("CCLX_GRANULE", 64).run(|rank| {
        let comm = spirv::communicator(&rank, StartState::default());
        verify(&rank, &comm, &mixed(CALLS, 3, 6_000), 3);
    });
}

/// A range of 16 tags is passed again and again, by calls of one round and of several.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn tags_pass_their_end() {
    // A rank alone spends tags on what it multiplies only.
    for (n, granule) in [(1, 16), (2, 8), (2, 64), (3, 16)] {
        let group = spirv::group("tags_pass_their_end", n).env("CCLX_GRANULE", granule).env("CCLX_STAGING_TILES", 1);
        group.run(|rank| {
            let start = StartState { tag_limit: 16, ..StartState::default() };
            let comm = spirv::communicator(&rank, start.clone());
            let (many, most) = if n == 1 { (300, 4_000) } else { (100, 6_000) };
            let calls = mixed(many, 5, most);
            let (mut base, mut wraps) = (start.base, 0);
            for call in &calls {
                let rounds = comm.plan(&call.request()).unwrap().rounds();
                let span = tag_span(base, rounds, start.tag_limit);
                base = span.next;
                wraps += u32::from(span.wraps);
            }
            assert!(wraps >= 5, "{wraps} wraps");
            verify(&rank, &comm, &calls, 5);
        });
    }
}

/// Bits of every kind, and what became of them: a hash of all results of this rank.
fn bits(rank: &Rank, comm: Communicator) -> u64 {
    const COUNTS: [usize; 3] = [1, 63, 4_099];
    let mut peer = Peer::new(comm, COUNTS[2] * 8);
    let mut hasher = DefaultHasher::new();
    for (turn, dtype) in DataType::ALL.into_iter().enumerate() {
        for (i, op) in data::ops(dtype).into_iter().enumerate() {
            // Every reduction of every type once, and every length and kind of data of every type.
            let (count, make) = (COUNTS[i % 3], [data::ordinary, data::wild][(i / 3 + turn) % 2]);
            let inputs: Vec<_> = (0..rank.n).map(|r| make(dtype, 1 + i as u64, r, count)).collect();
            let request = Request { op, ..sum(dtype, count) };
            let got = peer.reduce(&request, &inputs[rank.rank], count == 63).unwrap();
            let difference = data::first_difference(&got, &data::reduced(&request, &inputs), dtype);
            assert_eq!(difference, None, "rank {} of {}, {dtype} {op}", rank.rank, rank.n);
            hasher.write(&got);
        }
    }
    hasher.finish()
}

/// What the ranks of a group said of their bits; all alike.
fn said_bits(group: Group, communicator: impl Fn(&Rank) -> Communicator) -> String {
    let body = |rank: Rank| rank.say(format_args!("bits {:x}", bits(&rank, communicator(&rank))));
    group.run_with(body, |running| {
        let mut hashes = Vec::new();
        for (rank, ended) in running.wait().into_iter().enumerate() {
            assert!(ended.status.success(), "rank {rank}: {}\n{}", ended.status, ended.output);
            hashes.extend(ended.said("bits").into_iter().map(str::to_owned));
        }
        assert!(!hashes.is_empty() && hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
        hashes.remove(0)
    })
}

/// NaN, infinities, subnormals, halfway cases: as the reference has them, and as the native twins do.
#[test]
#[ignore = ".ci/beds/opencl-tests.sh"]
fn the_twins_have_the_same_bits() {
    const TEST: &str = "the_twins_have_the_same_bits";
    const NATIVE: &str = "TEST_NATIVE";
    // A rank runs what its own environment asks for, in whichever turn of the loop it gets there.
    let make = |rank: &Rank| match std::env::var_os(NATIVE) {
        None => spirv::communicator(rank, StartState::default()),
        Some(_) => {
            let comm = rank.communicator();
            assert!(comm.kernels().iter().all(|kernel| kernel.group_size == 1), "{:?}", comm.kernels());
            comm
        }
    };
    for n in 2..=5 {
        for granule in GRANULES {
            let group = |group: Group| group.env("CCLX_GRANULE", granule);
            let spirv = said_bits(group(spirv::group(TEST, n)), make);
            let native = said_bits(group(Group::new(TEST, n)).env("ZE_SOFT_ENGINE", "native").env(NATIVE, 1), make);
            assert_eq!(spirv, native, "{n} ranks, {granule}-byte lines");
        }
    }
}
