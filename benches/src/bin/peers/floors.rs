//! What the memory of this machine allows, as contestants: the flag barrier of all ranks (`barrier`), direct access to
//! the others' buffers (`direct`: each rank reduces its share of all inputs and stores it into all outputs), and staging
//! through slices that stay in cache (`staged`). Simple code, without anything that a library has to care for.

use crate::data::Type;
use crate::serve::Contestant;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use std::arch::x86_64::*;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// A single barrier is too short for the clock.
pub(crate) const BARRIERS: u64 = 100;

const LINE: usize = 64;
const PAGE: usize = 4096;
const SLICE: usize = 256 << 10;
const GENERATIONS: usize = 2;
const MOST_RANKS: usize = 16;

/// Spins before the core is given to whoever else wants it: more ranks than cores must get on too.
const SPINS: u32 = 2000;

pub(crate) struct Floors {
    base: *mut u8,
    rank: usize,
    ranks: usize,
    max_bytes: usize,
    /// Barriers passed, and slices staged.
    barriers: u64,
    slices: u64,
    private: Vec<u8>,
    input: Vec<u8>,
}

/// Bytes of memory that all ranks share.
pub(crate) fn shared_bytes(ranks: usize, max_bytes: usize) -> usize {
    PAGE + ranks * (2 * max_bytes.next_multiple_of(PAGE) + GENERATIONS * SLICE)
}

impl Floors {
    pub(crate) fn new(memory: impl AsFd, rank: usize, ranks: usize, max_bytes: usize) -> Result<Self, String> {
        if ranks > MOST_RANKS || !is_x86_feature_detected!("avx2") {
            return Err(format!("the floors are for at most {MOST_RANKS} ranks and processors with AVX2"));
        }
        let max_bytes = max_bytes.next_multiple_of(PAGE);
        let length = NonZeroUsize::new(shared_bytes(ranks, max_bytes)).ok_or("no memory")?;
        // SAFETY: a new mapping; the memory is as long, and is never cut.
        let base = unsafe {
            mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, memory, 0)
        };
        let base = base.map_err(|error| error.to_string())?.as_ptr().cast();
        let buffer = || vec![0; max_bytes];
        Ok(Self { base, rank, ranks, max_bytes, barriers: 0, slices: 0, private: buffer(), input: buffer() })
    }

    fn word(&self, rank: usize, number: usize) -> &AtomicU64 {
        // SAFETY: within the first page, aligned, and only used as an atomic.
        unsafe { &*self.base.add((number * MOST_RANKS + rank) * LINE).cast::<AtomicU64>() }
    }

    fn send(&self, rank: usize) -> *mut u8 {
        self.base.wrapping_add(PAGE + 2 * rank * self.max_bytes)
    }

    fn recv(&self, rank: usize) -> *mut u8 {
        self.send(rank).wrapping_add(self.max_bytes)
    }

    fn slot(&self, rank: usize, generation: usize) -> *mut u8 {
        let slots = PAGE + 2 * self.ranks * self.max_bytes;
        self.base.wrapping_add(slots + (rank * GENERATIONS + generation) * SLICE)
    }

    /// Returns when the word of every rank has reached `value`.
    fn wait(&self, number: usize, value: u64) {
        for rank in (0..self.ranks).filter(|rank| *rank != self.rank) {
            let mut spins = 0;
            while self.word(rank, number).load(Ordering::Acquire) < value {
                spins += 1;
                if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
            }
        }
    }

    fn barrier(&mut self) {
        self.barriers += 1;
        self.word(self.rank, 0).store(self.barriers, Ordering::Release);
        self.wait(0, self.barriers);
    }

    fn direct(&mut self, dtype: Type, bytes: usize) {
        self.barrier();
        // Shares are whole cache lines.
        let lines = bytes.div_ceil(LINE);
        let part = |rank: usize| (lines * rank / self.ranks * LINE).min(bytes);
        let (from, to) = (part(self.rank), part(self.rank + 1));
        let sources: Vec<*const u8> = (0..self.ranks).map(|r| self.send(r).wrapping_add(from).cast_const()).collect();
        let targets: Vec<*mut u8> = (0..self.ranks).map(|r| self.recv(r).wrapping_add(from)).collect();
        // SAFETY: AVX2 is there; all buffers hold `bytes` bytes, nobody else writes this share of the outputs, and the
        // inputs don't change between the barriers.
        unsafe { reduce(dtype, &sources, &targets, to - from) };
        self.barrier();
    }

    fn staged(&mut self, dtype: Type, bytes: usize) {
        let mut at = 0;
        while at < bytes {
            let length = SLICE.min(bytes - at);
            self.slices += 1;
            let generation = self.slices as usize % GENERATIONS;
            let slot = self.slot(self.rank, generation);
            // SAFETY: slot and input hold the slice; whoever read this slot last has since then announced the slice
            // after it, which this rank has waited for.
            unsafe { std::ptr::copy_nonoverlapping(self.input.as_ptr().add(at), slot, length) };
            self.word(self.rank, 1).store(self.slices, Ordering::Release);
            self.wait(1, self.slices);
            let mut sources = vec![self.input[at..].as_ptr()];
            let others = (0..self.ranks).filter(|rank| *rank != self.rank);
            sources.extend(others.map(|rank| self.slot(rank, generation).cast_const()));
            // SAFETY: AVX2 is there; the sources hold the slice and stay until this rank announces the next but one.
            unsafe { reduce(dtype, &sources, &[self.private[at..].as_mut_ptr()], length) };
            at += length;
        }
    }
}

impl Contestant for Floors {
    fn set_input(&mut self, variant: &str, bytes: &[u8]) -> Result<(), String> {
        if variant == "direct" {
            // Nobody's output is cleared once another has begun to reduce, nor input changed that another still reads.
            self.barrier();
            // SAFETY: this rank's own buffers, which hold that many bytes; all others are between the same barriers.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.send(self.rank), bytes.len());
                std::ptr::write_bytes(self.recv(self.rank), 0xA5, bytes.len());
            }
            self.barrier();
        } else {
            self.input[..bytes.len()].copy_from_slice(bytes);
            self.private[..bytes.len()].fill(0xA5);
        }
        Ok(())
    }

    fn all_reduce(&mut self, variant: &str, dtype: Type, bytes: usize) -> Result<(), String> {
        match variant {
            "barrier" => (0..BARRIERS).for_each(|_| self.barrier()),
            "direct" => self.direct(dtype, bytes),
            "staged" => self.staged(dtype, bytes),
            other => return Err(format!("no floor {other}")),
        }
        Ok(())
    }

    fn output(&mut self, variant: &str, to: &mut [u8]) -> Result<bool, String> {
        match variant {
            "direct" => {
                // SAFETY: this rank's own output; the call ended with a barrier.
                let is = unsafe { std::slice::from_raw_parts(self.recv(self.rank), to.len()) };
                to.copy_from_slice(is);
            }
            "staged" => to.copy_from_slice(&self.private[..to.len()]),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Each target becomes the sum of the sources.
///
/// # Safety
/// All hold `bytes` bytes, and no target overlaps a source or another target.
#[target_feature(enable = "avx2")]
unsafe fn reduce(dtype: Type, sources: &[*const u8], targets: &[*mut u8], bytes: usize) {
    // SAFETY: passed on; whole vectors end within `bytes`.
    unsafe {
        match dtype {
            Type::Float32 => {
                let whole = bytes / 32 * 32;
                for at in (0..whole).step_by(32) {
                    let mut sum = _mm256_loadu_ps(sources[0].add(at).cast());
                    for source in &sources[1..] {
                        sum = _mm256_add_ps(sum, _mm256_loadu_ps(source.add(at).cast()));
                    }
                    for target in targets {
                        _mm256_storeu_ps(target.add(at).cast(), sum);
                    }
                }
                for at in (whole..bytes).step_by(4) {
                    let sum: f32 = sources.iter().map(|source| source.add(at).cast::<f32>().read_unaligned()).sum();
                    targets.iter().for_each(|target| target.add(at).cast::<f32>().write_unaligned(sum));
                }
            }
            Type::Bfloat16 => {
                let whole = bytes / 16 * 16;
                for at in (0..whole).step_by(16) {
                    let load = |source: &*const u8| widen(_mm_loadu_si128(source.add(at).cast()));
                    let mut sum = load(&sources[0]);
                    for source in &sources[1..] {
                        sum = _mm256_add_ps(sum, load(source));
                    }
                    let narrow = narrowed(sum);
                    for target in targets {
                        _mm_storeu_si128(target.add(at).cast::<__m128i>(), narrow);
                    }
                }
                for at in (whole..bytes).step_by(2) {
                    let load = |source: &*const u8| source.add(at).cast::<half::bf16>().read_unaligned().to_f32();
                    let sum = half::bf16::from_f32(sources.iter().map(load).sum());
                    targets.iter().for_each(|target| target.add(at).cast::<half::bf16>().write_unaligned(sum));
                }
            }
        }
    }
}

#[target_feature(enable = "avx2")]
fn widen(bits: __m128i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))
}

/// To nearest even; the inputs are no NaN.
#[target_feature(enable = "avx2")]
fn narrowed(sum: __m256) -> __m128i {
    let bits = _mm256_castps_si256(sum);
    let odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    let up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    let high = _mm256_srli_epi32(up, 16);
    _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1))
}

/// The memory that the ranks of the floors share, to be inherited by them.
pub(crate) fn share(ranks: usize, max_bytes: usize) -> Result<std::os::fd::OwnedFd, String> {
    let told = |error: nix::Error| format!("shared memory for the floors: {error}");
    let memory = nix::sys::memfd::memfd_create(c"floors", nix::sys::memfd::MFdFlags::empty()).map_err(told)?;
    nix::unistd::ftruncate(&memory, shared_bytes(ranks, max_bytes) as libc::off_t).map_err(told)?;
    Ok(memory)
}

impl Drop for Floors {
    fn drop(&mut self) {
        let length = shared_bytes(self.ranks, self.max_bytes);
        // SAFETY: the mapping made in `new`, which nothing refers to any more.
        let _ = unsafe { libc::munmap(self.base.cast::<c_void>(), length) };
    }
}
