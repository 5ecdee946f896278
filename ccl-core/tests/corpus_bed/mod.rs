//! Corpora made without a device: inputs that depend on rank, call and position, results by the reference.

use ccl_core::corpus::{
    AllReduce, ElementType, EventData, Kind, Link, Mhc, Options, Origin, Role, TensorData, Verdict, What, Writer,
    verify,
};
use ccl_core::plan::geometry::Geometry;
use ccl_core::{DataType, Order, ReduceOp, reference};
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
            _ => word,
        };
        bits.to_le_bytes()[..dtype.size()].to_vec()
    };
    (0..count).flat_map(element).collect()
}

pub(crate) fn call(dtype: DataType, count: usize) -> AllReduce {
    AllReduce { count: count as u64, dtype, op: ReduceOp::Sum, order: Order::Ring, period: None, plan: "a plan".into() }
}

pub(crate) fn sum(call: &AllReduce, inputs: &[Vec<u8>]) -> Vec<u8> {
    let geometry = Geometry::new(inputs.len(), call.count, call.period, call.dtype.size()).unwrap();
    let views: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    reference::sum_ring(&views, call.dtype, &geometry)
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

/// An mHC event with made-up results, equal on all ranks.
pub(crate) struct Boundary<'a> {
    pub(crate) last: bool,
    pub(crate) aliased: bool,
    pub(crate) x: (u64, &'a [u8]),
    /// The mHC event before, and its residual, post and comb.
    pub(crate) before: Option<(u64, [Vec<u8>; 3])>,
    pub(crate) salt: u64,
}

impl Boundary<'_> {
    /// Writes it; returns what it put out.
    pub(crate) fn write(&self, writer: &mut Writer) -> [Vec<u8>; 3] {
        const HIDDEN: usize = 8;
        let mhc = Mhc {
            rows: 1,
            hidden: HIDDEN as u64,
            streams: 4,
            sinkhorn: 20,
            epsilon: 1e-6f32.to_bits(),
            post_scale: 2f32.to_bits(),
            delayed: false,
        };
        let fresh = |salt: u64| {
            [
                input(DataType::Bfloat16, salt, 0, 4 * HIDDEN),
                input(DataType::Float32, salt + 1, 0, 4),
                input(DataType::Float32, salt + 2, 0, 16),
            ]
        };
        let inputs = self.before.as_ref().map_or_else(|| fresh(7), |before| before.1.clone());
        let outputs = fresh(1000 + 10 * self.salt);
        let names = ["residual", "post", "comb"];
        let shapes: [&[u64]; 3] = [&[1, 4, HIDDEN as u64], &[1, 4], &[1, 4, 4]];
        let dtypes = [DataType::Bfloat16, DataType::Float32, DataType::Float32].map(ElementType::Data);
        let mut tensors = vec![TensorData {
            name: "x",
            role: Role::Input,
            dtype: dtypes[0],
            shape: &[1, HIDDEN as u64],
            address: 0x1_0000,
            bytes: self.x.1,
        }];
        let written = if self.last { 1 } else { 3 };
        for i in 0..3 {
            let tensor = |role, address, bytes| TensorData {
                name: names[i],
                role,
                dtype: dtypes[i],
                shape: shapes[i],
                address,
                bytes,
            };
            let at = 0x2_0000 + 0x1000 * i as u64;
            tensors.push(tensor(Role::Input, at, &inputs[i]));
            if i < written {
                tensors.push(tensor(Role::Output, if self.aliased { at } else { at + 0x10_0000 }, &outputs[i]));
            }
        }
        let mut links = vec![Link { input: "x".into(), event: self.x.0, output: "output".into() }];
        if let Some((event, _)) = self.before {
            links.extend(names.map(|name| Link { input: name.into(), event, output: name.into() }));
        }
        let call = if self.last { Kind::MhcPost(mhc) } else { Kind::MhcBoundary(mhc) };
        assert!(writer.write(&EventData { call, tensors: &tensors, links: &links }).unwrap());
        outputs
    }
}
