//! Copies into other ranks' memory.
//!
//! A line that the receiver has read is shared by two processors' caches. What storing to it again costs depends on
//! where these two processors are: next to nothing beside a cache that they share, and up to ten times a store past the
//! caches between dies; and a virtual machine moves them about. So both ways are tried now and then, and the one that
//! is taken is chosen for each receiver by what it cost. It is a matter of speed only: the data are the same.

use ccl_core::protocol::MAX_RANKS;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Shorter copies are plain: the processor's store buffer hides most of what they cost.
const LEAST: usize = 2048;
/// Bytes on which each way is tried.
const TRIAL: usize = 8192;
/// Copies between two trials.
const TURNS: u32 = 16;
/// A trial that took longer than this many times the average was interrupted, and tells nothing.
const OUTLIER: u32 = 16;

/// What is known of the way to a receiver. Races between threads only blur a measurement.
struct Way {
    turn: AtomicU32,
    /// Cycles for [`TRIAL`] bytes, averaged; 0 before the first trial.
    plain: AtomicU32,
    past: AtomicU32,
    /// Whether stores go past the caches.
    chosen: AtomicBool,
}

static WAYS: [Way; MAX_RANKS] = [const {
    Way { turn: AtomicU32::new(0), plain: AtomicU32::new(0), past: AtomicU32::new(0), chosen: AtomicBool::new(false) }
}; MAX_RANKS];

/// Copies into the memory of `peer`, by whichever way is the faster one. Stores that follow are seen after it.
///
/// # Safety
/// Both hold `bytes` bytes and do not overlap.
#[inline]
pub(super) unsafe fn to_peer(peer: usize, from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= LEAST && super::simd() == super::Simd::Avx2 {
        // SAFETY: passed on; the processor has AVX2.
        return unsafe { long(&WAYS[peer % MAX_RANKS], from, to, bytes) };
    }
    let _ = peer;
    // SAFETY: passed on.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

#[cfg(target_arch = "x86_64")]
unsafe fn long(way: &Way, from: *const u8, to: *mut u8, bytes: usize) {
    let turn = way.turn.load(Ordering::Relaxed).wrapping_add(1);
    way.turn.store(turn, Ordering::Relaxed);
    let mut done = 0;
    if turn.is_multiple_of(TURNS) && bytes >= TRIAL {
        // Both in turn, so that either has been tried soon after the start, and short copies suffice.
        // SAFETY: part of the ranges.
        unsafe { try_one(way, (turn / TURNS).is_multiple_of(2), from, to) };
        done = TRIAL;
    }
    // SAFETY: the rest of the ranges.
    unsafe {
        if way.chosen.load(Ordering::Relaxed) {
            past(from.add(done), to.add(done), bytes - done);
        } else {
            std::ptr::copy_nonoverlapping(from.add(done), to.add(done), bytes - done);
        }
    }
}

/// Copies [`TRIAL`] bytes one way, and chooses anew.
#[cfg(target_arch = "x86_64")]
#[cold]
unsafe fn try_one(way: &Way, past_caches: bool, from: *const u8, to: *mut u8) {
    use std::arch::x86_64::{_mm_sfence, _rdtsc};
    // SAFETY: passed on; neither instruction accesses memory.
    let cycles = unsafe {
        let start = _rdtsc();
        if past_caches {
            past(from, to, TRIAL);
        } else {
            std::ptr::copy_nonoverlapping(from, to, TRIAL);
            _mm_sfence();
        }
        _rdtsc() - start
    };
    let average = if past_caches { &way.past } else { &way.plain };
    let (old, cycles) = (average.load(Ordering::Relaxed), u32::try_from(cycles).unwrap_or(u32::MAX));
    if old != 0 && cycles / OUTLIER > old {
        return;
    }
    average.store(if old == 0 { cycles.max(1) } else { old - old / 4 + cycles / 4 }, Ordering::Relaxed);
    let (plain, past) = (way.plain.load(Ordering::Relaxed), way.past.load(Ordering::Relaxed));
    // What went past the caches has to be fetched from memory by its reader: so it has to be clearly cheaper.
    way.chosen.store(past != 0 && plain / 2 > past, Ordering::Relaxed);
}

/// Copies past the caches.
///
/// # Safety
/// Both hold `bytes` bytes and do not overlap; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
unsafe fn past(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    const LINE: usize = 64;

    #[target_feature(enable = "avx2")]
    unsafe fn lines(from: *const u8, to: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(LINE) {
            // SAFETY: whole lines of the ranges; `to` is aligned.
            unsafe {
                let a = _mm256_loadu_si256(from.add(at).cast());
                let b = _mm256_loadu_si256(from.add(at + 32).cast());
                _mm256_stream_si256(to.add(at).cast(), a);
                _mm256_stream_si256(to.add(at + 32).cast(), b);
            }
        }
    }

    let head = to.align_offset(LINE).min(bytes);
    let whole = (bytes - head) / LINE * LINE;
    // SAFETY: three parts of the ranges, of which the middle one is aligned lines.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        lines(from.add(head), to.add(head), whole);
        let rest = head + whole;
        std::ptr::copy_nonoverlapping(from.add(rest), to.add(rest), bytes - rest);
        // Such stores are ordered by nothing else.
        _mm_sfence();
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Every offset and many lengths, both ways: the same bytes, and none beside them.
    #[test]
    fn both_ways_copy_the_same() {
        if super::super::Simd::detect() != super::super::Simd::Avx2 {
            return;
        }
        let from: Vec<u8> = (0..40_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        for offset in [0, 1, 2, 31, 32, 33, 63, 64] {
            for bytes in [0, 1, 63, 64, 65, 127, 2048, 8192, 8193, 20_011] {
                let mut to = vec![0xA5u8; 20_200];
                // SAFETY: both vectors are longer than that.
                unsafe { past(from.as_ptr().add(3), to.as_mut_ptr().add(offset), bytes) };
                assert_eq!(to[offset..offset + bytes], from[3..3 + bytes], "{offset} {bytes}");
                assert!(to[..offset].iter().chain(&to[offset + bytes..]).all(|&b| b == 0xA5), "{offset} {bytes}");
            }
        }
        for _ in 0..3 * TURNS {
            let mut to = vec![0u8; 20_000];
            // SAFETY: as above.
            unsafe { to_peer(MAX_RANKS - 1, from.as_ptr(), to.as_mut_ptr(), to.len()) };
            assert_eq!(to, from[..to.len()]);
        }
        let way = &WAYS[MAX_RANKS - 1];
        assert!(way.plain.load(Ordering::Relaxed) > 0 && way.past.load(Ordering::Relaxed) > 0);
    }
}
