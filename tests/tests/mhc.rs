//! mHC boundaries, alone and after their all-reduce, between processes on the native kernels: bits, places, refusals,
//! recordings.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::mhc::{Buffers, Design, Params, Variant};
use ccl_core::{DataType, Error};
use ccl_tests::Group;
use ccl_tests::mhc::{Bed, Case, Reduced, Way};
use ccl_ze::CallOptions;

fn bits(test: &str, n: usize, cases: usize, most: u64) {
    Group::new(test, n).env("CCLX_DEVICE", "soft").run(|rank| {
        let mut bed = Bed::new(rank.communicator(), 96 << 20);
        for i in 0..cases {
            // Other cases for each number of ranks.
            let case = Case::nth(i + 13 * n, most);
            let design = if i % 2 == 0 { Design::Unfused } else { Design::Auto };
            assert_eq!(bed.differs(&case, i as u64, design), None, "rank {} of {n}, case {i}", rank.rank);
        }
    });
}

#[test]
fn one_rank() {
    bits("one_rank", 1, 60, 2 << 20);
}

#[test]
fn two_ranks() {
    bits("two_ranks", 2, 45, 1 << 20);
}

#[test]
fn three_ranks() {
    bits("three_ranks", 3, 30, 600_000);
}

#[test]
fn four_ranks() {
    bits("four_ranks", 4, 30, 600_000);
}

#[test]
fn eight_ranks() {
    bits("eight_ranks", 8, 15, 300_000);
}

fn case(variant: Variant, rows: u64, reduced: Reduced, in_place: bool) -> Case {
    let mut params = Params::new(variant, DataType::Bfloat16, rows, 300, 4);
    params.norm_eps = variant.has_pre().then_some(1e-6);
    Case { params, reduced, in_place, wild: false }
}

/// NEGATIVE CONTROL: what the tests above compare with is not what something else computes.
#[test]
fn a_reference_that_is_wrong_is_noticed() {
    Group::new("a_reference_that_is_wrong_is_noticed", 1).env("CCLX_DEVICE", "soft").run(|rank| {
        let mut bed = Bed::new(rank.communicator(), 1 << 20);
        let mutants: [fn(&mut Params); 7] = [
            |params| params.sinkhorn_iterations -= 1,
            |params| params.post_multiplier = 2.0 + 1e-6,
            |params| params.pre_eps = 0.0,
            |params| params.rms_eps = 1e-4,
            |params| params.sinkhorn_eps = 0.0,
            |params| params.norm_eps = Some(1e-2),
            |params| params.variant = Variant::V41,
        ];
        let mut case = case(Variant::V4, 3, Reduced::Not, false);
        // From a few iterations on, one more changes no bit.
        case.params.sinkhorn_iterations = 3;
        assert_eq!(bed.differs(&case, 1, Design::Unfused), None);
        for (i, mutant) in mutants.into_iter().enumerate() {
            bed.mutant = Some(mutant);
            assert!(bed.differs(&case, 1, Design::Unfused).is_some(), "mutant {i} passes");
        }
    });
}

#[test]
fn lists_and_graphs_with_changed_inputs() {
    Group::new("lists_and_graphs_with_changed_inputs", 2).env("CCLX_DEVICE", "soft").run(|rank| {
        let mut bed = Bed::new(rank.communicator(), 4 << 20);
        for way in [Way::List, Way::Graph] {
            for (variant, reduced, in_place) in [
                (Variant::V4, Reduced::Dropped, true),
                (Variant::V41, Reduced::Apart, false),
                (Variant::Post, Reduced::InPlace, true),
                (Variant::Pre, Reduced::Not, false),
            ] {
                let case = case(variant, 5, reduced, in_place);
                let seeds = [1, 2, 3, 4, 5, 6, 7, 8];
                let differs = bed.recorded_differs(&case, &seeds, Design::Unfused, way);
                assert_eq!(differs, None, "{way:?}");
            }
        }
    });
}

#[test]
fn what_is_refused_is_refused_by_name_before_anything_is_enqueued() {
    let test = "what_is_refused_is_refused_by_name_before_anything_is_enqueued";
    Group::new(test, 1).env("CCLX_DEVICE", "soft").run(|rank| {
        let comm = rank.communicator();
        let good = case(Variant::V4, 3, Reduced::Dropped, false);
        let stream = comm.stream(0).unwrap();
        // SAFETY: nothing is enqueued.
        let unprepared = unsafe {
            let none = Params { rows: 0, ..good.params };
            comm.mhc(&none, &Buffers::default(), &stream, CallOptions::default()).map(drop)
        };
        assert!(
            matches!(&unprepared, Err(Error::InvalidUsage(text)) if text.contains("prepare_mhc")),
            "{unprepared:?}"
        );
        let mut bed = Bed::new(comm, 1 << 20);
        let buffers = bed.prepared(&good);
        let before = bed.comm.level_zero_calls();
        let params = good.params;
        let odd = buffers.y.wrapping_byte_add(1);
        let cases: [(Params, Buffers, Design, &str); 9] = [
            (Params { streams: 3, ..params }, buffers, Design::Auto, "3 streams"),
            (Params { hidden: 301, ..params }, buffers, Design::Auto, "fn of 24 x 1200"),
            (Params { rms_eps: f32::INFINITY, ..params }, buffers, Design::Auto, "rms_eps"),
            (Params { dtype: DataType::Float64, ..params }, buffers, Design::Auto, "float64"),
            (params, Buffers { comb: std::ptr::null(), ..buffers }, Design::Auto, "comb is null"),
            (params, Buffers { y: odd, ..buffers }, Design::Auto, "not aligned"),
            (params, Buffers { y: buffers.x.cast_mut(), ..buffers }, Design::Auto, "y and x overlap"),
            (Params { variant: Variant::Pre, ..params }, buffers, Design::Auto, "has no x"),
            (
                Params { variant: Variant::Post, norm_eps: None, ..params },
                Buffers { x_out: std::ptr::null_mut(), ..buffers },
                Design::Unfused,
                "x_out",
            ),
        ];
        for (params, buffers, design, words) in cases {
            // SAFETY: nothing is enqueued.
            let refused =
                unsafe { bed.comm.all_reduce_mhc(&params, &buffers, design, &bed.stream, CallOptions::default()) };
            let text = refused.map(drop).expect_err(words).to_string();
            assert!(text.contains(words), "{text}, not: {words}");
        }
        assert_eq!(bed.comm.level_zero_calls(), before, "refused, but the driver was called");
        for (params, reduces, most) in [(Params { rows: 0, ..params }, false, 3), (params, false, 3), (params, true, 6)]
        {
            for turn in 0..3 {
                let before = bed.comm.level_zero_calls();
                // SAFETY: the bed's memory has the shapes, and lives until the wait.
                let done = unsafe {
                    let (buffers, options) = (&buffers, CallOptions::default());
                    match reduces {
                        false => bed.comm.mhc(&params, buffers, &bed.stream, options).unwrap(),
                        true => {
                            bed.comm.all_reduce_mhc(&params, buffers, Design::Unfused, &bed.stream, options).unwrap()
                        }
                    }
                };
                let calls = bed.comm.level_zero_calls() - before;
                assert!(calls <= most, "{calls} calls of the driver in turn {turn}");
                done.wait().unwrap();
            }
        }
    });
}
