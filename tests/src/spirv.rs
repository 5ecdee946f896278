//! Ranks whose kernels are the SPIR-V that users get, executed on the processor (`.ci/beds/opencl-tests.sh`).

use crate::calls::{Call, Route};
use crate::{Group, Rank, data};
use ccl_core::comm::StartState;
use ccl_core::{DataType, ReduceOp};
use ccl_ze::{Communicator, hooks};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a line, in each of its forms.
pub const GRANULES: [u32; 3] = [8, 16, 64];

/// A family of kernels with a rule of the protocol broken, `FAMILY-MUTANT` as `.ci/kernels/build.sh --mutants` names its
/// file.
pub const IMAGE: &str = "BED_IMAGE";
const MUTANTS: &str = "BED_MUTANTS";

/// A group whose ranks execute SPIR-V, by the ring unless another algorithm is asked for. A hop takes some 20 ms where
/// each core has several ranks, so limits are wide.
pub fn group(test: &str, n: usize) -> Group {
    Group::new(test, n).limit(Duration::from_secs(300)).env("CCL_ALLREDUCE", "ring")
}

/// Has the kernels of boundaries compiled as they are, before the first communicator: to optimize them takes the processor's
/// compiler minutes.
pub fn leave_boundaries_unoptimized() {
    let families = ["fused", "columns", "mhc"].map(String::from);
    hooks::UNOPTIMIZED.set(families.into()).expect("the first communicator of its process");
}

/// The communicator of this rank; its kernels are SPIR-V, which [`IMAGE`] may replace by a mutant.
pub fn communicator(rank: &Rank, start: StartState) -> Communicator {
    if let Ok(mutant) = std::env::var(IMAGE) {
        let folder = PathBuf::from(std::env::var(MUTANTS).expect("a folder of mutants"));
        let image = std::fs::read(folder.join(&mutant).with_extension("spv")).expect("a mutant's SPIR-V");
        let (family, _) = mutant.split_once('-').expect("a family's mutant");
        assert_ne!(image, hooks::spirv(family).expect("a family").0, "mutant {mutant} is no mutant");
        hooks::SPIRV.set(vec![(family.into(), image)]).expect("the first communicator of its process");
    }
    let made = rank.builder().start(start).init(&rank.id, rank.rank, rank.n);
    let comm = made.unwrap_or_else(|error| panic!("rank {}: {error}", rank.rank));
    // A native kernel plays a whole group: its groups have one work-item.
    for kernel in comm.kernels() {
        assert!(kernel.group_size > 1, "{kernel:?} is no SPIR-V: these tests are run by .ci/beds/opencl-tests.sh");
        assert!(kernel.resident_groups >= 4, "{kernel:?}: too few groups, is the bed's preload missing?");
    }
    comm
}

/// Type and reduction of the `i`-th call: of 60 in turn, every type meets every reduction.
pub fn kind(i: usize) -> (DataType, ReduceOp) {
    let dtype = DataType::ALL[i % 10];
    (dtype, data::ops(dtype)[(i + i / 10) % 6])
}

/// Calls of mixed types, reductions, sizes and routes. Of 16 in turn, one has no element and one has `most`; offsets of messages
/// are the business of [`crate::calls`].
pub fn mixed(calls: usize, seed: u64, most: usize) -> Vec<Call> {
    let call = |i: usize| {
        let random = data::word(seed, 0, i as u64) as usize;
        let count = match i % 16 {
            3 => 0,
            // Fewer than there are ranks, less than a line, a block and its neighbours.
            5 | 6 => 1 + random % 4,
            8..=10 => 62 + random % 5,
            11 => 126 + random % 5,
            13 => most - random % 3,
            _ => 1 + random % 1_500,
        };
        let route = [Route::Apart, Route::InPlace, Route::Shared][random / 0x1000 % 3];
        let (dtype, op) = kind(i);
        Call { dtype, op, count, route }
    };
    (0..calls).map(call).collect()
}
