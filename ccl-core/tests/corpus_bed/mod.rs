//! Corpora made without a device: inputs that depend on rank, call and position, results by the reference.

use ccl_core::corpus::{
    AllReduce, ElementType, EventData, Kind, Link, Op, Options, Origin, Role, TensorData, Verdict, What, Writer, verify,
};
use ccl_core::mhc::reference::{Inputs, boundary};
use ccl_core::mhc::{Params, Variant};
use ccl_core::plan::geometry::Geometry;
use ccl_core::{DataType, Order, reference};
use half::bf16;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

pub(crate) const NAME: &str = "c-0123";

pub(crate) fn origin(directory: &Path, rank: usize, ranks: usize) -> Origin {
    Origin {
        directory: directory.into(),
        communicator: NAME.into(),
        rank,
        ranks,
        library: "test".into(),
        driver: "none".into(),
        device: format!("device {rank}"),
        limit: 1 << 30,
    }
}

pub(crate) fn writers(directory: &Path, ranks: usize) -> Vec<Writer> {
    (0..ranks).map(|rank| Writer::create(origin(directory, rank, ranks)).unwrap()).collect()
}

pub(crate) fn word(call: u64, rank: usize, i: usize) -> u64 {
    let mut x = (call << 40) ^ ((rank as u64 + 1) << 32) ^ i as u64;
    for _ in 0..2 {
        x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    x ^ (x >> 32)
}

/// Numbers of ordinary size whose sums round.
pub(crate) fn input(dtype: DataType, call: u64, rank: usize, count: usize) -> Vec<u8> {
    let element = |i| {
        let word = word(call, rank, i);
        let bits = match dtype {
            DataType::Bfloat16 => (word & 0x807F) | (0x3E80 + (word >> 16 & 3) * 0x80),
            DataType::Float16 => (word & 0x83FF) | (0x3400 + (word >> 16 & 3) * 0x400),
            DataType::Float32 => (word & 0x807F_FFFF) | (0x3E80_0000 + (word >> 32 & 3) * 0x80_0000),
            DataType::Float64 => (word & 0x800F_FFFF_FFFF_FFFF) | (0x3FD0_0000_0000_0000 + (word >> 52 & 3 << 52)),
            _ => word,
        };
        bits.to_le_bytes()[..dtype.size()].to_vec()
    };
    (0..count).flat_map(element).collect()
}

pub(crate) fn call(dtype: DataType, count: usize) -> AllReduce {
    AllReduce { count: count as u64, dtype, op: Op::Sum, order: Order::Ring, period: None, plan: "a plan".into() }
}

pub(crate) fn sum(call: &AllReduce, inputs: &[Vec<u8>]) -> Vec<u8> {
    let geometry = Geometry::new(inputs.len(), call.count, call.period, call.dtype.size()).unwrap();
    let views: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    reference::all_reduce(&views, call.dtype, call.op.reduce_op(call.dtype), call.order, &geometry)
}

/// Writes one all-reduce of one rank.
pub(crate) fn write(writer: &mut Writer, call: &AllReduce, input: &[u8], output: &[u8], in_place: bool) -> bool {
    let shape = [call.count];
    let tensor = |name, role, address, bytes| TensorData {
        name,
        role,
        dtype: ElementType::Data(call.dtype),
        shape: &shape,
        address,
        bytes,
    };
    let recv = if in_place { 0x10_0000 } else { 0x20_0000 };
    let tensors = [tensor("input", Role::Input, 0x10_0000, input), tensor("output", Role::Output, recv, output)];
    writer.write(&EventData { call: Kind::AllReduce(call.clone()), tensors: &tensors, links: &[] }).unwrap()
}

/// Captures right all-reduces of all ranks; every other one in place. Returns the inputs of the last.
pub(crate) fn right(writers: &mut [Writer], numbers: std::ops::Range<u64>, calls: &[AllReduce]) {
    for number in numbers {
        let call = &calls[number as usize % calls.len()];
        let inputs: Vec<Vec<u8>> =
            (0..writers.len()).map(|rank| input(call.dtype, number, rank, call.count as usize)).collect();
        let output = sum(call, &inputs);
        for (writer, input) in writers.iter_mut().zip(&inputs) {
            assert!(write(writer, call, input, &output, number % 2 == 1));
        }
    }
}

/// What is wrong with a corpus.
pub(crate) fn findings(directory: &Path) -> Verdict {
    verify(directory, &Options::default()).unwrap()
}

pub(crate) fn kinds(verdict: &Verdict) -> Vec<What> {
    let mut kinds: Vec<What> = verdict.findings.iter().map(|finding| finding.what).collect();
    kinds.dedup();
    kinds
}

/// All files below a folder, by their names relative to it.
pub(crate) fn files(directory: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut folders = vec![directory.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                all.push(path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    all.sort();
    all
}

pub(crate) fn manifest(directory: &Path, rank: usize) -> PathBuf {
    directory.join(NAME).join(format!("rank-{rank:03}.jsonl"))
}

/// Forges a manifest: each record as text goes through `change`, and the checksums are made to fit again.
pub(crate) fn forge(manifest: &Path, mut change: impl FnMut(&str) -> Option<String>) {
    let mut chain = "ccl corpus".to_owned();
    let mut forged = String::new();
    for line in std::fs::read_to_string(manifest).unwrap().lines() {
        let record = line.split_once(r#","record":"#).unwrap().1.strip_suffix('}').unwrap();
        let Some(record) = change(record) else { continue };
        let digest = Sha256::digest(format!("{chain}{record}"));
        chain = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        forged += &format!("{{\"chain\":\"{chain}\",\"record\":{record}}}\n");
    }
    std::fs::write(manifest, forged).unwrap();
}

/// An mHC event with the results of the reference.
pub(crate) struct Boundary<'a> {
    pub(crate) last: bool,
    pub(crate) aliased: bool,
    pub(crate) x: (u64, &'a [u8]),
    /// The mHC event before, and its residual, post and comb.
    pub(crate) before: Option<(u64, [Vec<u8>; 3])>,
    /// An output that is written with one bit changed.
    pub(crate) wrong: Option<&'a str>,
}

pub(crate) const HIDDEN: usize = 40;
const STREAMS: usize = 4;

fn bf16s(bytes: &[u8]) -> Vec<bf16> {
    bytes.chunks_exact(2).map(|element| bf16::from_le_bytes([element[0], element[1]])).collect()
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|element| f32::from_le_bytes(element.try_into().unwrap())).collect()
}

fn bytes_of_f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

impl Boundary<'_> {
    /// Writes it as one of `ranks`; returns what it put out.
    pub(crate) fn write(&self, writer: &mut Writer, ranks: usize) -> [Vec<u8>; 3] {
        let variant = if self.last { Variant::Post } else { Variant::V4 };
        let params = Params::new(variant, DataType::Bfloat16, 1, HIDDEN as u64, STREAMS as u32);
        let numbers = |salt, count| input(DataType::Float32, salt, 0, count);
        let [residual, post, comb] = self.before.as_ref().map_or_else(
            || [input(DataType::Bfloat16, 7, 0, STREAMS * HIDDEN), numbers(8, STREAMS), numbers(9, STREAMS * STREAMS)],
            |before| before.1.clone(),
        );
        let mixes = params.mixes();
        let weights = if self.last { Vec::new() } else { numbers(10 + self.x.0, mixes * STREAMS * HIDDEN) };
        let (scale, base) = if self.last { Default::default() } else { (numbers(11, 3), numbers(12, mixes)) };
        let results = boundary(
            &params,
            ranks,
            &Inputs {
                x: &bf16s(self.x.1),
                residual: &bf16s(&residual),
                post: &f32s(&post),
                comb: &f32s(&comb),
                previous_pre: &[],
                weights: &f32s(&weights),
                scale: &f32s(&scale),
                base: &f32s(&base),
                norm_weight: &[],
            },
        );
        let bytes_of_bf16s = |values: &[bf16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let shape = |name| match name {
            "x" | "y" => vec![1, HIDDEN as u64],
            "residual" => vec![1, STREAMS as u64, HIDDEN as u64],
            "post" | "pre" => vec![1, STREAMS as u64],
            "comb" => vec![1, STREAMS as u64, STREAMS as u64],
            "weights" => vec![mixes as u64, STREAMS as u64, HIDDEN as u64],
            "scale" => vec![3],
            _ => vec![mixes as u64],
        };
        let next = [bytes_of_bf16s(&results.residual), bytes_of_f32s(&results.post), bytes_of_f32s(&results.comb)];
        let mut all = vec![
            (Role::Input, "x", self.x.1.to_vec()),
            (Role::Input, "residual", residual),
            (Role::Input, "post", post),
            (Role::Input, "comb", comb),
            (Role::Output, "residual", next[0].clone()),
        ];
        if !self.last {
            all.extend([(Role::Input, "weights", weights), (Role::Input, "scale", scale), (Role::Input, "base", base)]);
            all.extend([
                (Role::Output, "post", next[1].clone()),
                (Role::Output, "comb", next[2].clone()),
                (Role::Output, "pre", bytes_of_f32s(&results.pre)),
                (Role::Output, "y", bytes_of_bf16s(&results.y)),
            ]);
        }
        for (role, name, bytes) in &mut all {
            if *role == Role::Output && self.wrong == Some(*name) {
                bytes[3] ^= 1;
            }
        }
        let shapes: Vec<Vec<u64>> = all.iter().map(|(_, name, _)| shape(*name)).collect();
        let tensors: Vec<TensorData<'_>> = all
            .iter()
            .zip(&shapes)
            .map(|((role, name, bytes), shape)| {
                let dtype = if ["x", "residual", "y"].contains(name) { DataType::Bfloat16 } else { DataType::Float32 };
                let place = ["x", "residual", "post", "comb", "weights", "scale", "base", "pre", "y"];
                let place = place.iter().position(|other| other == name).unwrap() as u64;
                let apart = *role == Role::Output && !self.aliased;
                TensorData {
                    name,
                    role: *role,
                    dtype: ElementType::Data(dtype),
                    shape,
                    address: 0x10_0000 * (1 + place + if apart { 16 } else { 0 }),
                    bytes,
                }
            })
            .collect();
        let mut links = vec![Link { input: "x".into(), event: self.x.0, output: "output".into() }];
        if let Some((event, _)) = self.before {
            links.extend(["residual", "post", "comb"].map(|name| Link {
                input: name.into(),
                event,
                output: name.into(),
            }));
        }
        let call = Kind::mhc(&params).unwrap();
        assert!(writer.write(&EventData { call, tensors: &tensors, links: &links }).unwrap());
        next
    }
}
