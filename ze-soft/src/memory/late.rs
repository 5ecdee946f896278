//! Stores to a peer's memory that arrive late: the program stores into a shadow, and one thread of this process carries
//! every granule that changed over into the real memory, after a random time.
//!
//! Within a granule nothing arrives torn, and its last word arrives last: that is what a link promises. Between granules
//! nothing is promised, and nothing is kept.

use super::mapping::Mapping;
use crate::fault::{Late, mix};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WORD: usize = size_of::<u64>();
/// The words of the largest granule.
const MAX_WORDS: usize = 8;

/// The pause of the thread between two looks at busy shadows, and at most at idle ones.
const PAUSE: Duration = Duration::from_micros(20);
const MAX_PAUSE: Duration = Duration::from_micros(500);

/// One mapping whose stores arrive late.
pub(super) struct Shadow {
    seen: Mapping,
    real: Mapping,
    late: Late,
    work: Mutex<Work>,
}

struct Work {
    /// What the program had stored when it was last looked at, granule by granule.
    taken: Vec<u64>,
    pending: Vec<Pending>,
    /// One bit per granule that is on its way: it is not looked at before it has arrived, so its stores keep their order.
    busy: Vec<u64>,
    random: u64,
    closed: bool,
}

struct Pending {
    due: Instant,
    granule: usize,
    words: [u64; MAX_WORDS],
    /// Was due and had to wait all the same.
    held: bool,
}

impl Shadow {
    pub(super) fn base(&self) -> usize {
        self.seen.base()
    }

    fn words_of(mapping: &Mapping) -> &[AtomicU64] {
        let base: *const AtomicU64 = std::ptr::with_exposed_provenance(mapping.base());
        // SAFETY: the mapping is whole pages that live as long as it does, any bytes are a number, and everybody who
        // touches them at the same time is another process or native code behind a raw pointer.
        unsafe { std::slice::from_raw_parts(base, mapping.size() / WORD) }
    }

    fn words_per_granule(&self) -> usize {
        self.late.granule / WORD
    }

    /// Reads a granule, its last word first: whoever sees that word sees what was stored before it.
    fn read(granule: &[AtomicU64]) -> [u64; MAX_WORDS] {
        let mut words = [0; MAX_WORDS];
        for (word, from) in words.iter_mut().zip(granule).rev() {
            *word = from.load(Ordering::Acquire);
        }
        words
    }

    /// Puts granules that changed on their way. Returns whether there were any.
    fn collect(&self, work: &mut Work) -> bool {
        let now = Instant::now();
        let each = self.words_per_granule();
        let mut found = false;
        for (granule, words) in Self::words_of(&self.seen).chunks_exact(each).enumerate() {
            let taken = &mut work.taken[granule * each..(granule + 1) * each];
            let unchanged = words.iter().zip(&*taken).all(|(word, taken)| word.load(Ordering::Relaxed) == *taken);
            let (slot, bit) = (granule / 64, 1 << (granule % 64));
            if unchanged || work.busy[slot] & bit != 0 {
                continue;
            }
            let value = Self::read(words);
            if value != Self::read(words) {
                // It is being stored to right now; the next look takes it.
                found = true;
                continue;
            }
            taken.copy_from_slice(&value[..each]);
            work.busy[slot] |= bit;
            work.random = work.random.wrapping_add(1);
            let most = self.late.max_delay.as_nanos().clamp(1, u64::MAX.into()) as u64;
            let due = now + Duration::from_nanos(mix(work.random) % most);
            work.pending.push(Pending { due, granule, words: value, held: false });
            found = true;
        }
        found
    }

    /// Delivers what is due, or all of it. A look at large memory takes longer than stores are late, so that all of them
    /// are due when it ends; a random half is held back for another look, in which a reader meets the torn line even if
    /// it slept while the others were delivered.
    fn deliver(&self, work: &mut Work, all: bool) {
        let now = Instant::now();
        let Work { pending, busy, random, .. } = work;
        pending.sort_unstable_by_key(|pending| pending.due);
        let goes = |pending: &mut Pending| {
            *random = random.wrapping_add(1);
            let due = pending.due <= now;
            let held = std::mem::replace(&mut pending.held, due);
            all || due && (held || mix(*random) & 1 == 0)
        };
        let each = self.words_per_granule();
        let real = Self::words_of(&self.real);
        for Pending { granule, words, .. } in pending.extract_if(.., goes) {
            for (to, word) in real[granule * each..(granule + 1) * each].iter().zip(words) {
                // In ascending order, each after the one before: the last word, with the flag, comes last.
                to.store(word, Ordering::Release);
            }
            busy[granule / 64] &= !(1 << (granule % 64));
        }
    }

    /// One look by the thread. Returns whether there is anything under way.
    fn turn(&self) -> bool {
        let mut work = self.work.lock();
        if work.closed {
            return false;
        }
        let found = self.collect(&mut work);
        self.deliver(&mut work, false);
        found || !work.pending.is_empty()
    }
}

/// The open shadows, and the thread that serves them all while there are any.
struct Post {
    shadows: Vec<Arc<Shadow>>,
    thread: Option<(JoinHandle<()>, Arc<AtomicBool>)>,
}

static POST: Mutex<Post> = Mutex::new(Post { shadows: Vec::new(), thread: None });

/// Puts a shadow before `real`.
pub(super) fn start(real: Mapping, late: Late) -> io::Result<Arc<Shadow>> {
    let seen = Mapping::private(real.size())?;
    let taken: Vec<u64> = Shadow::words_of(&real).iter().map(|word| word.load(Ordering::Relaxed)).collect();
    for (to, word) in Shadow::words_of(&seen).iter().zip(&taken) {
        to.store(*word, Ordering::Relaxed);
    }
    let busy = vec![0; (real.size() / late.granule).div_ceil(64)];
    let work = Work { taken, pending: Vec::new(), busy, random: mix(late.seed), closed: false };
    let shadow = Arc::new(Shadow { seen, real, late, work: Mutex::new(work) });
    let mut post = POST.lock();
    if post.thread.is_none() {
        let stop = Arc::new(AtomicBool::new(false));
        let service = {
            let stop = stop.clone();
            move || serve(&stop)
        };
        post.thread = Some((std::thread::Builder::new().name("ze-soft late".into()).spawn(service)?, stop));
    }
    post.shadows.push(shadow.clone());
    Ok(shadow)
}

/// Delivers everything that was stored and ends the service of a shadow; with the last one the thread ends.
pub(super) fn finish(shadow: &Arc<Shadow>) {
    let thread = {
        let mut post = POST.lock();
        post.shadows.retain(|other| !Arc::ptr_eq(other, shadow));
        if post.shadows.is_empty() { post.thread.take() } else { None }
    };
    {
        let mut work = shadow.work.lock();
        work.closed = true;
        // What is on its way keeps newer stores to the same granules back: they follow in a second round.
        for _ in 0..2 {
            shadow.collect(&mut work);
            shadow.deliver(&mut work, true);
        }
    }
    if let Some((thread, stop)) = thread {
        stop.store(true, Ordering::Relaxed);
        // It ends within one pause, and cannot panic before.
        let _ = thread.join();
    }
}

fn serve(stop: &AtomicBool) {
    let mut pause = PAUSE;
    let mut shadows = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        shadows.extend(POST.lock().shadows.iter().cloned());
        let busy = shadows.drain(..).fold(false, |busy, shadow| shadow.turn() | busy);
        pause = if busy { PAUSE } else { (pause * 2).min(MAX_PAUSE) };
        std::thread::sleep(pause);
    }
}
