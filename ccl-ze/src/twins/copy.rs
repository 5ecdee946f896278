//! Copies, of which those into another rank's output are chosen by what they cost.
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

/// Copies within a processor's own memory, or memory that it has last read. (The C library's routine gives way to an
/// instruction of the processor's for longer ones, which is slower where lines go to and fro between cores.)
///
/// # Safety
/// Both hold `bytes` bytes and do not overlap.
#[inline]
pub(super) unsafe fn plain(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= 512 && super::simd() != super::Simd::Portable {
        // SAFETY: passed on; the processor has AVX2.
        return unsafe { vectors::<false>(from, to, bytes) };
    }
    // SAFETY: passed on.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Copies to the user's own buffer, past the caches if `past` says so.
///
/// # Safety
/// Both hold `bytes` bytes and do not overlap.
#[inline]
pub(super) unsafe fn to_own(from: *const u8, to: *mut u8, bytes: usize, past_caches: bool) {
    #[cfg(target_arch = "x86_64")]
    if past_caches && bytes >= 512 && super::simd() != super::Simd::Portable {
        // SAFETY: passed on; the processor has AVX2.
        return unsafe { past(from, to, bytes) };
    }
    let _ = past_caches;
    // SAFETY: passed on.
    unsafe { plain(from, to, bytes) };
}

/// Whether `bytes` had better be stored to `peer`'s output past the caches; nothing if it is time for a trial, which
/// [`to_peer`] makes.
#[inline]
pub(super) fn way(peer: usize, bytes: usize) -> Option<bool> {
    if bytes < LEAST {
        return Some(false);
    }
    let way = &WAYS[peer % MAX_RANKS];
    let turn = way.turn.load(Ordering::Relaxed).wrapping_add(1);
    if turn.is_multiple_of(TURNS) && bytes >= TRIAL {
        return None;
    }
    way.turn.store(turn, Ordering::Relaxed);
    Some(way.chosen.load(Ordering::Relaxed))
}

/// Copies into the output of `peer`, by whichever way is the faster one. Stores that follow are seen after it.
///
/// # Safety
/// Both hold `bytes` bytes and do not overlap.
#[inline]
pub(super) unsafe fn to_peer(peer: usize, from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= LEAST && super::simd() != super::Simd::Portable {
        let way = &WAYS[peer % MAX_RANKS];
        let turn = way.turn.load(Ordering::Relaxed).wrapping_add(1);
        way.turn.store(turn, Ordering::Relaxed);
        let mut done = 0;
        if turn.is_multiple_of(TURNS) && bytes >= TRIAL {
            // Both in turn, so that either has been tried soon after the start, and short copies suffice.
            // SAFETY: part of the ranges; the processor has AVX2.
            unsafe { try_one(way, (turn / TURNS).is_multiple_of(2), from, to) };
            done = TRIAL;
        }
        // SAFETY: the rest of the ranges; the processor has AVX2.
        return unsafe {
            if way.chosen.load(Ordering::Relaxed) {
                past(from.add(done), to.add(done), bytes - done);
            } else {
                vectors::<false>(from.add(done), to.add(done), bytes - done);
            }
        };
    }
    let _ = peer;
    // SAFETY: passed on.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
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
            vectors::<false>(from, to, TRIAL);
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

/// Copies past the caches. Stores that follow are seen after it.
///
/// # Safety
/// As of [`vectors`].
#[cfg(target_arch = "x86_64")]
unsafe fn past(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: passed on; a fence accesses nothing.
    unsafe {
        vectors::<true>(from, to, bytes);
        // Such stores are ordered by nothing else.
        std::arch::x86_64::_mm_sfence();
    }
}

/// Copies by vectors, past the caches or not.
///
/// # Safety
/// Both hold `bytes` bytes and do not overlap; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn vectors<const PAST: bool>(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256};
    const LINE: usize = 64;
    let head = to.align_offset(LINE).min(bytes);
    let whole = (bytes - head) / LINE * LINE;
    // SAFETY: three parts of the ranges, of which the middle one is aligned lines.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for at in (head..head + whole).step_by(LINE) {
            let a = _mm256_loadu_si256(from.add(at).cast());
            let b = _mm256_loadu_si256(from.add(at + 32).cast());
            if PAST {
                _mm256_stream_si256(to.add(at).cast(), a);
                _mm256_stream_si256(to.add(at + 32).cast(), b);
            } else {
                _mm256_storeu_si256(to.add(at).cast(), a);
                _mm256_storeu_si256(to.add(at + 32).cast(), b);
            }
        }
        let rest = head + whole;
        std::ptr::copy_nonoverlapping(from.add(rest), to.add(rest), bytes - rest);
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Every offset and many lengths, both ways: the same bytes, and none beside them.
    #[test]
    fn both_ways_copy_the_same() {
        if super::super::Simd::detect() == super::super::Simd::Portable {
            return;
        }
        let from: Vec<u8> = (0..40_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        for offset in [0, 1, 2, 31, 32, 33, 63, 64] {
            for bytes in [0, 1, 63, 64, 65, 127, 2048, 8192, 8193, 20_011] {
                for past_caches in [false, true] {
                    let mut to = vec![0xA5u8; 20_200];
                    // SAFETY: both vectors are longer than that.
                    unsafe { to_own(from.as_ptr().add(3), to.as_mut_ptr().add(offset), bytes, past_caches) };
                    assert_eq!(to[offset..offset + bytes], from[3..3 + bytes], "{offset} {bytes}");
                    assert!(to[..offset].iter().chain(&to[offset + bytes..]).all(|&b| b == 0xA5), "{offset} {bytes}");
                }
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
