//! A corpus that is right stands; one that was damaged, forged, or made from wrong results does not.
#![allow(clippy::unwrap_used, reason = "test code")]

#[path = "corpus_bed/mod.rs"]
mod bed;

use bed::{Boundary, HIDDEN, call, files, findings, forge, input, kinds, manifest, right, sum, write, writers};
use ccl_core::DataType::{Bfloat16, Float16, Float32};
use ccl_core::corpus::{AllReduce, Op, Options, What, Writer, verify};
use ccl_core::{DataType, Order};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

/// A token's 87 all-reduces on 4 ranks, of small messages.
fn token(directory: &Path) {
    let mut writers = writers(directory, 4);
    right(&mut writers, 0..87, &[call(Bfloat16, 100), call(Float32, 7), call(Float16, 1000), call(Bfloat16, 4000)]);
}

#[test]
fn a_token_of_reductions_stands() {
    let folder = tempfile::tempdir().unwrap();
    token(folder.path());
    let verdict = findings(folder.path());
    assert!(verdict.passed(), "{:?}", verdict.findings);
    assert_eq!((verdict.counts.ranks, verdict.counts.files), (4, 4 * 87));
    assert_eq!(verdict.counts.events["all_reduce"], 87);
    assert_eq!(verdict.counts.aliased["all_reduce"], 43);
    let elements: u64 = (0..87).map(|number| [100, 7, 1000, 4000][number % 4]).sum();
    assert_eq!(verdict.counts.elements, 4 * elements);
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        fs::create_dir_all(to.join(&file).parent().unwrap()).unwrap();
        fs::copy(from.join(&file), to.join(&file)).unwrap();
    }
}

#[test]
fn every_byte_of_a_small_corpus_counts() {
    let folder = tempfile::tempdir().unwrap();
    right(&mut writers(folder.path(), 2), 0..2, &[call(Bfloat16, 9), call(Float32, 3)]);
    assert!(findings(folder.path()).passed());
    let mut tried = 0;
    for file in files(folder.path()) {
        let path = folder.path().join(&file);
        let right = fs::read(&path).unwrap();
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1 << (at % 8);
            fs::write(&path, &wrong).unwrap();
            let verdict = findings(folder.path());
            let told = verdict.findings.iter().find(|finding| finding.file == file);
            assert!(told.is_some(), "byte {at} of {file}: {:?}", verdict.findings);
            tried += 1;
        }
        fs::write(&path, &right).unwrap();
    }
    assert!(findings(folder.path()).passed());
    assert!(tried > 3000, "{tried} bytes");
}

#[test]
fn a_changed_file_is_named_with_its_byte() {
    let folder = tempfile::tempdir().unwrap();
    right(&mut writers(folder.path(), 3), 0..1, &[call(Bfloat16, 50)]);
    let file = format!("{}/rank-001/000001-all_reduce.safetensors", bed::NAME);
    let path = folder.path().join(&file);
    let whole = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    // A header's byte, an input's and an output's.
    for at in [3, 20, header + 2 * 17, header + 100 + 2 * 31] {
        let mut wrong = whole.clone();
        // The sign of a number: the sum shows it.
        wrong[at | 1] ^= 0x80;
        fs::write(&path, &wrong).unwrap();
        let verdict = findings(folder.path());
        assert_eq!(verdict.findings.len(), 1, "{:?}", verdict.findings);
        let finding = &verdict.findings[0];
        assert_eq!((finding.what, &finding.file), (What::ChangedFile, &file));
        if at < header {
            assert!(finding.text.contains(&format!("byte {}", at | 1)), "{finding}");
        } else {
            assert_eq!(finding.byte, Some(at as u64), "{finding}");
        }
    }
}

#[test]
fn missing_extra_short_and_long_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    right(&mut writers(folder.path(), 2), 0..3, &[call(Bfloat16, 9)]);
    for file in files(folder.path()) {
        let path = folder.path().join(&file);
        let whole = fs::read(&path).unwrap();
        let told = |what: &str| {
            let verdict = findings(folder.path());
            assert!(verdict.findings.iter().any(|finding| finding.file == file), "{what}: {:?}", verdict.findings);
        };
        fs::remove_file(&path).unwrap();
        told("missing");
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            told("short");
        }
        fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        told("long");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        told("a link");
        fs::remove_file(&path).unwrap();
        fs::write(&path, &whole).unwrap();
    }
    for extra in
        ["x", "c-0123/x", "c-0123/rank-002.jsonl", "c-0123/rank-001/x", "c-0123/rank-001/000004-all_reduce.part"]
    {
        let path = folder.path().join(extra);
        fs::write(&path, "").unwrap();
        let verdict = findings(folder.path());
        assert!(verdict.findings.iter().any(|finding| finding.file == extra), "{extra}: {:?}", verdict.findings);
        fs::remove_file(&path).unwrap();
    }
    for extra in ["other", "c-0123/other", "c-0123/rank-001/other", "c-0123/rank-002"] {
        let path = folder.path().join(extra);
        fs::create_dir(&path).unwrap();
        let verdict = findings(folder.path());
        assert!(verdict.findings.iter().any(|finding| finding.file == extra), "{extra}: {:?}", verdict.findings);
        fs::remove_dir(&path).unwrap();
    }
    assert!(findings(folder.path()).passed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn no_change_of_a_token_is_let_pass(seed in any::<u64>(), bit in 0..8u32, way in 0..10u32) {
        let folder = tempfile::tempdir().unwrap();
        copy(original(), folder.path());
        let files = files(folder.path());
        let file = &files[seed as usize % files.len()];
        let path = folder.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        match way {
            0 => fs::remove_file(&path).unwrap(),
            1 => fs::write(path.with_extension("more"), &bytes).unwrap(),
            2 => fs::write(&path, &bytes[..(seed >> 20) as usize % bytes.len()]).unwrap(),
            _ => {
                let at = (seed >> 20) as usize % bytes.len();
                bytes[at] ^= 1 << bit;
                fs::write(&path, &bytes).unwrap();
            }
        }
        let verdict = findings(folder.path());
        let stem = file.rsplit_once('.').unwrap().0;
        prop_assert!(verdict.findings.iter().any(|finding| finding.file.starts_with(stem)), "{:?}", verdict.findings);
    }
}

fn original() -> &'static Path {
    static ORIGINAL: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    ORIGINAL
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            token(folder.path());
            folder
        })
        .path()
}

#[test]
fn a_wrong_sum_that_all_ranks_agree_on_is_convicted() {
    let folder = tempfile::tempdir().unwrap();
    {
        let mut writers = writers(folder.path(), 4);
        right(&mut writers, 0..5, &[call(Bfloat16, 300)]);
        let call = call(Bfloat16, 300);
        let inputs: Vec<_> = (0..4).map(|rank| input(Bfloat16, 5, rank, 300)).collect();
        let mut output = sum(&call, &inputs);
        // The last bit of one element.
        output[2 * 123] ^= 1;
        for (writer, input) in writers.iter_mut().zip(&inputs) {
            write(writer, &call, input, &output, true);
        }
        right(&mut writers, 6..8, std::slice::from_ref(&call));
    }
    let verdict = findings(folder.path());
    // All else is consistent: nothing but the computation tells.
    assert_eq!(kinds(&verdict), [What::Reduction]);
    assert_eq!(verdict.findings.len(), 4, "one of each rank");
    for (rank, finding) in verdict.findings.iter().enumerate() {
        assert_eq!((finding.rank, finding.event, finding.element), (Some(rank), Some(6), Some(123)));
        assert!(finding.text.contains("got 0x") && finding.text.contains("expected 0x"), "{finding}");
    }
}

#[test]
fn a_sum_in_another_order_is_convicted() {
    let folder = tempfile::tempdir().unwrap();
    let call = call(Bfloat16, 5000);
    let inputs: Vec<_> = (0..4).map(|rank| input(Bfloat16, 1, rank, 5000)).collect();
    let output = sum(&call, &inputs);
    let swapped = [&inputs[1], &inputs[0], &inputs[2], &inputs[3]];
    for (writer, input) in writers(folder.path(), 4).iter_mut().zip(swapped) {
        write(writer, &call, input, &output, false);
    }
    assert_eq!(kinds(&findings(folder.path())), [What::Reduction]);
}

#[test]
fn ranks_that_changed_places_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    right(&mut writers(folder.path(), 2), 0..2, &[call(Bfloat16, 9)]);
    let swap = |a: &str, b: &str| {
        let [a, b, c] = [a, b, "swap"].map(|name| folder.path().join(bed::NAME).join(name));
        fs::rename(&a, &c).unwrap();
        fs::rename(&b, &a).unwrap();
        fs::rename(&c, &b).unwrap();
    };
    swap("rank-000", "rank-001");
    assert_eq!(kinds(&findings(folder.path())), [What::ChangedFile]);
    swap("rank-000.jsonl", "rank-001.jsonl");
    assert_eq!(kinds(&findings(folder.path())), [What::Manifest]);
    // Forged, so that each says to be the other.
    for (rank, other) in [(0, 1), (1, 0)] {
        let (from, to) = (format!(r#""rank":{other},"#), format!(r#""rank":{rank},"#));
        forge(&manifest(folder.path(), rank), |record| Some(record.replacen(&from, &to, 1)));
    }
    // Of two, the sum is the same either way.
    assert!(findings(folder.path()).passed());
}

#[test]
fn one_rank_with_another_result_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let call = call(Float32, 100);
    let inputs: Vec<_> = (0..3).map(|rank| input(Float32, 1, rank, 100)).collect();
    let output = sum(&call, &inputs);
    for (rank, (writer, input)) in writers(folder.path(), 3).iter_mut().zip(&inputs).enumerate() {
        let mut output = output.clone();
        output[4 * 60 + 3] ^= if rank == 2 { 0x40 } else { 0 };
        write(writer, &call, input, &output, false);
    }
    let verdict = findings(folder.path());
    assert_eq!(kinds(&verdict), [What::Reduction, What::Equality]);
    assert!(verdict.findings.iter().all(|finding| (finding.rank, finding.element) == (Some(2), Some(60))));
}

#[test]
fn what_is_incomplete_fails_unless_it_is_allowed() {
    let allowed = Options { allow_incomplete: true };
    let make = |then: fn(&mut [Writer])| {
        let folder = tempfile::tempdir().unwrap();
        let mut writers = writers(folder.path(), 2);
        right(&mut writers, 0..3, &[call(Bfloat16, 9)]);
        then(&mut writers);
        drop(writers);
        folder
    };
    let not_captured: fn(&mut [Writer]) = |writers| {
        for writer in writers {
            writer.not_captured("a recorded all_reduce").unwrap();
        }
    };
    let stopped: fn(&mut [Writer]) = |writers| {
        for writer in writers {
            writer.stop("enough");
            assert!(!write(writer, &call(Bfloat16, 1), &[0, 0], &[0, 0], false));
        }
    };
    for (then, words) in [(not_captured, "recorded"), (stopped, "enough")] {
        let folder = make(then);
        let verdict = findings(folder.path());
        assert_eq!(kinds(&verdict), [What::Incomplete]);
        assert!(verdict.findings.iter().any(|finding| finding.text.contains(words)), "{:?}", verdict.findings);
        let verdict = verify(folder.path(), &allowed).unwrap();
        assert!(verdict.passed() && verdict.notes.len() >= 2, "{verdict:?}");
    }
    // A process that died: no last line, and perhaps a file that did not come into the manifest.
    let folder = make(|_| {});
    for rank in 0..2 {
        forge(&manifest(folder.path(), rank), |record| (!record.starts_with(r#"{"end""#)).then(|| record.into()));
    }
    fs::write(folder.path().join(bed::NAME).join("rank-001/000004-all_reduce.part"), "half").unwrap();
    assert_eq!(kinds(&findings(folder.path())), [What::ExtraFile, What::Incomplete]);
    assert!(verify(folder.path(), &allowed).unwrap().passed());
    // But not one of an event that the manifest had and lost.
    forge(&manifest(folder.path(), 0), |record| (!record.contains(r#""number":3"#)).then(|| record.into()));
    forge(&manifest(folder.path(), 0), |record| (!record.contains(r#""number":2"#)).then(|| record.into()));
    let verdict = verify(folder.path(), &allowed).unwrap();
    assert!(kinds(&verdict).contains(&What::ExtraFile), "{verdict:?}");
}

#[test]
fn the_limit_truncates_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let call = call(Float32, 1000);
    let limit = 50_000;
    let mut writer = Writer::create(ccl_core::corpus::Origin { limit, ..bed::origin(folder.path(), 0, 1) }).unwrap();
    let message = input(Float32, 0, 0, 1000);
    let saved = (0..20).filter(|_| write(&mut writer, &call, &message, &message, false)).count();
    assert!(saved > 2 && saved < 8, "{saved}");
    writer.finish().unwrap();
    let size: u64 = files(folder.path()).iter().map(|file| fs::metadata(folder.path().join(file)).unwrap().len()).sum();
    assert!(size <= limit, "{size} bytes");
    let verdict = findings(folder.path());
    assert_eq!(kinds(&verdict), [What::Incomplete]);
    assert!(verdict.findings[0].text.contains("limit of 50000 bytes"), "{:?}", verdict.findings);
    assert!(verdict.findings[1].text.contains(&format!("{} calls after", 20 - saved)), "{:?}", verdict.findings);
}

#[test]
fn a_second_writer_of_one_part_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Writer::create(bed::origin(folder.path(), 0, 1)).unwrap();
    assert!(Writer::create(bed::origin(folder.path(), 0, 1)).is_err());
}

#[test]
fn nothing_is_no_proof() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!findings(folder.path()).passed());
    drop(writers(folder.path(), 2));
    assert_eq!(kinds(&findings(folder.path())), [What::Incomplete]);
    assert!(!verify(folder.path(), &Options { allow_incomplete: true }).unwrap().passed());
    verify(&folder.path().join("nowhere"), &Options::default()).unwrap_err();
}

/// Forgeries whose checksums all fit.
#[test]
fn a_manifest_that_contradicts_itself_is_refused() {
    let forgeries: [(&str, &str, &str); 12] = [
        (r#""aliases":[{"output":"output","input":"input"}]"#, r#""aliases":[]"#, "alias pairs"),
        (r#""aliased":1,"alias_pairs":1"#, r#""aliased":1,"alias_pairs":2"#, "alias pairs"),
        (r#""events":2,"#, r#""events":3,"#, "events"),
        (r#""not_captured":0"#, r#""not_captured":1"#, "not captured"),
        (r#""after_stop":0"#, r#""after_stop":1"#, "stop"),
        (r#""number":2,"#, r#""number":3,"#, "follows"),
        (r#""format":1"#, r#""format":2"#, "format 2"),
        (r#""ranks":2"#, r#""ranks":3"#, "3"),
        (r#""count":9"#, r#""count":10"#, "count"),
        (r#""shape":[9]"#, r#""shape":[10]"#, "count"),
        (r#""dtype":"bfloat16","op""#, r#""dtype":"float16","op""#, "type"),
        (r#""period":null"#, r#""period":0"#, "period"),
    ];
    for (from, to, word) in forgeries {
        let folder = tempfile::tempdir().unwrap();
        right(&mut writers(folder.path(), 2), 0..2, &[call(Bfloat16, 9)]);
        let mut changed = 0;
        for rank in 0..if word == "period" { 2 } else { 1 } {
            forge(&manifest(folder.path(), rank), |record| {
                changed += usize::from(record.contains(from));
                Some(record.replacen(from, to, 1))
            });
        }
        assert!(changed > 0, "nothing to forge for {from}");
        let verdict = findings(folder.path());
        let told = verdict.findings.iter().any(|finding| finding.text.contains(word));
        assert!(told, "{from} as {to}: {:?}", verdict.findings);
    }
}

#[test]
fn ranks_that_tell_of_different_calls_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    right(&mut writers(folder.path(), 2), 0..2, &[call(Bfloat16, 9)]);
    forge(&manifest(folder.path(), 1), |record| Some(record.replacen(r#""period":null"#, r#""period":5"#, 1)));
    let verdict = findings(folder.path());
    assert_eq!(kinds(&verdict), [What::Ranks]);
    assert!(verdict.findings[0].text.contains("rank 1 and rank 0 differ in the call"), "{:?}", verdict.findings);
}

/// What ran is part of the evidence: ranks of one group run one version.
#[test]
fn ranks_of_different_versions_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    right(&mut writers(folder.path(), 3), 0..2, &[call(Bfloat16, 9)]);
    let renamed = |library: &str| {
        let to = format!(r#""library":"{library}""#);
        forge(&manifest(folder.path(), 2), |record| {
            let rest = record.split_once(r#""library":""#).map(|(before, after)| (before, after.split_once('"')));
            let Some((before, Some((_, after)))) = rest else { return Some(record.into()) };
            Some(format!("{before}{to}{after}"))
        });
    };
    renamed("test 2");
    let verdict = findings(folder.path());
    assert_eq!(kinds(&verdict), [What::Ranks]);
    assert_eq!(verdict.findings[0].text, "calls of test 2, of rank 0 those of test");
    // NEGATIVE CONTROL: forged back, it stands.
    renamed("test");
    assert!(findings(folder.path()).passed());
}

/// Names that are no text are findings like others, wherever they are.
#[test]
fn names_that_are_not_utf_8_are_named() {
    use std::os::unix::ffi::OsStrExt as _;
    let odd = std::ffi::OsStr::from_bytes(b"c-\xFF");
    for (below, is_folder) in [("", true), ("", false), (bed::NAME, true), ("c-0123/rank-000", false)] {
        let folder = tempfile::tempdir().unwrap();
        right(&mut writers(folder.path(), 2), 0..2, &[call(Bfloat16, 9)]);
        assert!(findings(folder.path()).passed());
        let path = folder.path().join(below).join(odd);
        if is_folder { fs::create_dir(&path) } else { fs::write(&path, "") }.unwrap();
        let verdict = findings(folder.path());
        assert_eq!(kinds(&verdict), [What::ExtraFile], "{below:?}");
        assert!(verdict.findings[0].file.ends_with("c-\u{FFFD}"), "{:?}", verdict.findings);
    }
}

/// A decode token with its mHC boundaries. `wrong` may change what a rank takes over, by boundary and which input;
/// `result` which output it writes with a bit changed.
fn decode_token(
    directory: &Path,
    wrong: impl Fn(usize, u64, usize) -> bool,
    result: impl Fn(usize, u64) -> Option<&'static str>,
) {
    for (rank, mut writer) in writers(directory, 4).into_iter().enumerate() {
        let (mut number, mut before) = (0, None);
        for reduction in 0..87u64 {
            let call = call(Bfloat16, HIDDEN);
            let inputs: Vec<_> = (0..4).map(|rank| input(Bfloat16, reduction, rank, HIDDEN)).collect();
            let x = sum(&call, &inputs);
            write(&mut writer, &call, &inputs[rank], &x, true);
            number += 1;
            if reduction == 0 {
                continue;
            }
            let (boundary, mut fed) = (reduction - 1, x.clone());
            fed[0] ^= u8::from(wrong(rank, boundary, 0));
            if let Some((_, taken)) = &mut before {
                let taken: &mut [Vec<u8>; 3] = taken;
                taken[0][5] ^= u8::from(wrong(rank, boundary, 1));
            }
            let event = Boundary {
                last: boundary == 85,
                aliased: boundary >= 2 && boundary % 2 == 0 && boundary < 85,
                x: (number, &fed),
                before,
                wrong: result(rank, boundary),
            };
            let outputs = event.write(&mut writer, 4);
            number += 1;
            before = Some((number, outputs));
        }
        writer.finish().unwrap();
    }
}

#[test]
fn a_token_with_boundaries_has_692_files_and_42_aliased_boundaries() {
    let folder = tempfile::tempdir().unwrap();
    decode_token(folder.path(), |_, _, _| false, |_, _| None);
    let verdict = findings(folder.path());
    assert!(verdict.passed(), "{:?}", verdict.findings);
    assert_eq!(verdict.counts.files, 692);
    let counts = ["all_reduce", "mhc_boundary", "mhc_post"].map(|kind| verdict.counts.events[kind]);
    assert_eq!(counts, [87, 85, 1]);
    assert_eq!(verdict.counts.aliased["mhc_boundary"], 42);
    assert_eq!(verdict.counts.links, 4 * (86 + 3 * 85));
}

#[test]
fn a_wrong_boundary_that_all_ranks_agree_on_is_convicted() {
    for name in ["y", "pre"] {
        let folder = tempfile::tempdir().unwrap();
        decode_token(folder.path(), |_, _, _| false, |_, boundary| (boundary == 41).then_some(name));
        let verdict = findings(folder.path());
        assert_eq!(kinds(&verdict), [What::Reduction]);
        assert_eq!(verdict.findings.len(), 4);
        assert!(verdict.findings.iter().all(|finding| finding.text.contains(&format!("of '{name}'"))), "{verdict:?}");
    }
    // What is handed on and differs shows again where it is taken over.
    let folder = tempfile::tempdir().unwrap();
    decode_token(folder.path(), |_, _, _| false, |rank, boundary| (boundary == 41 && rank == 1).then_some("comb"));
    assert_eq!(kinds(&findings(folder.path())), [What::Reduction, What::Equality, What::Link]);
}

#[test]
fn a_broken_link_is_named() {
    for (name, which) in [("x", 0), ("residual", 1)] {
        let folder = tempfile::tempdir().unwrap();
        // The final post among them, which is fed by the last boundary.
        let wrong = |_, boundary, what| what == which && (boundary == 9 || boundary == 85);
        decode_token(folder.path(), wrong, |_, _| None);
        let verdict = findings(folder.path());
        // All ranks computed the same of it: only the link tells.
        assert_eq!(kinds(&verdict), [What::Link]);
        assert_eq!(verdict.findings.len(), 8, "two events of four ranks");
        for finding in &verdict.findings {
            assert!(finding.text.contains(&format!("'{name}' is not what")) && finding.element.is_some(), "{finding}");
        }
    }
    // One rank alone differs from the others too.
    let folder = tempfile::tempdir().unwrap();
    decode_token(folder.path(), |rank, boundary, what| rank == 2 && what == 1 && boundary == 3, |_, _| None);
    let verdict = findings(folder.path());
    assert!(kinds(&verdict).contains(&What::Link) && kinds(&verdict).contains(&What::Equality), "{verdict:?}");
}

#[test]
fn every_type_reduction_and_order_is_computed_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut writers = writers(folder.path(), 3);
    let mut calls = Vec::new();
    for dtype in DataType::ALL {
        for op in [Op::Sum, Op::Prod, Op::Max, Op::Min, Op::Avg] {
            for order in [Order::Ring, Order::Rank] {
                calls.push(AllReduce { op, order, period: Some(13), ..call(dtype, 50) });
            }
        }
    }
    right(&mut writers, 0..calls.len() as u64, &calls);
    // Each rank with a factor of its own: 1, 2, 3 in bfloat16.
    let inputs: Vec<_> = (0..3).map(|rank| input(Bfloat16, 777, rank, 50)).collect();
    let multiplied: Vec<Vec<u8>> = inputs
        .iter()
        .zip([1.0, 2.0, 3.0])
        .map(|(input, factor)| {
            let product = |element: &[u8]| half::bf16::from_le_bytes([element[0], element[1]]).to_f32() * factor;
            input.chunks_exact(2).flat_map(|element| half::bf16::from_f32(product(element)).to_le_bytes()).collect()
        })
        .collect();
    let output = sum(&call(Bfloat16, 50), &multiplied);
    for (rank, writer) in writers.iter_mut().enumerate() {
        let op = Op::Premulsum(half::bf16::from_f32(rank as f32 + 1.0).to_bits().into());
        write(writer, &AllReduce { op, ..call(Bfloat16, 50) }, &inputs[rank], &output, false);
    }
    drop(writers);
    let verdict = findings(folder.path());
    assert!(verdict.passed(), "{:?}", verdict.findings);
    assert_eq!(verdict.counts.elements, 3 * 50 * (calls.len() as u64 + 1));
}

#[test]
fn a_link_that_is_left_out_is_noticed() {
    for (name, word) in [("x", "from a reduction"), ("residual", "no recurrent link"), ("comb", "no recurrent link")] {
        let folder = tempfile::tempdir().unwrap();
        decode_token(folder.path(), |_, _, _| false, |_, _| None);
        let link = format!(r#"{{"input":"{name}","event":"#);
        let mut left = 1;
        forge(&manifest(folder.path(), 3), |record| {
            let mut record = record.to_owned();
            // Of the final post.
            if let Some(at) = record.find(&link).filter(|_| left > 0 && record.contains(r#""mhc_post""#)) {
                let end = at + record[at..].find('}').unwrap() + 1;
                record.replace_range(at..end, "");
                record = record.replace("[,", "[").replace(",]", "]").replace(",,", ",");
                left -= 1;
            }
            Some(record)
        });
        assert_eq!(left, 0);
        let verdict = findings(folder.path());
        assert!(verdict.findings.iter().any(|finding| finding.text.contains(word)), "{:?}", verdict.findings);
    }
}
