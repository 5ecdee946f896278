//! A bounded cache of what was prepared for a request.
//!
//! A hit touches one set of four entries: no allocation, no lock. Which entries are cached is a matter of speed only
//! and never of the plan, which is a pure function.

use super::Request;
use crate::collective::CollectiveCall;
use crate::{Kind, ReduceOp};

const SETS: usize = 64;
const WAYS: usize = 4;

/// Most requests that a [`PlanCache`] holds.
pub const CAPACITY: usize = SETS * WAYS;

/// What something is prepared for.
pub trait Key: Copy + Eq {
    /// Spreads keys over the cache's sets.
    fn spread(&self) -> u64;
}

/// Multiplication by an odd constant with mixed bits, the upper bits of which depend on all lower ones.
const fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Key for Request {
    fn spread(&self) -> u64 {
        let Request { count, dtype, op, order, period, registered } = *self;
        let kind = u64::from(Kind::new(dtype, op, order).word());
        let place = registered.map_or(0, |r| mix(mix(1, r.send.offset), r.recv.offset));
        let factor = if let ReduceOp::PreMulSum(factor) = op { factor.bits() } else { 0 };
        mix(mix(mix(mix(place, factor), count), period.unwrap_or(0)), kind)
    }
}

impl Key for CollectiveCall {
    fn spread(&self) -> u64 {
        let factor = if let ReduceOp::PreMulSum(factor) = self.op { factor.bits() } else { 0 };
        mix(mix(mix(0, factor), self.count), self.kind().into())
    }
}

#[derive(Debug)]
struct Entry<K, T> {
    request: K,
    value: T,
    used: u64,
}

/// Values by request, the least recently used of a set given up for a new one.
#[derive(Debug)]
pub struct PlanCache<K, T> {
    entries: Box<[Option<Entry<K, T>>]>,
    clock: u64,
    /// Where the last one was found: often the next one is the same.
    last: usize,
}

impl<K: Key, T> Default for PlanCache<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key, T> PlanCache<K, T> {
    /// An empty cache; all memory that it will ever use is allocated here.
    pub fn new() -> Self {
        Self { entries: (0..CAPACITY).map(|_| None).collect(), clock: 0, last: 0 }
    }

    /// The set in which `request` may be.
    fn set(request: &K) -> usize {
        (request.spread() >> 32) as usize % SETS * WAYS
    }

    /// What is cached for `request`.
    #[inline]
    pub fn get(&mut self, request: &K) -> Option<&T> {
        let entry = self.find(request)?;
        self.entries[entry].as_ref().map(|entry| &entry.value)
    }

    /// What was found or cached last.
    #[inline(always)]
    pub fn last(&self) -> Option<(&K, &T)> {
        let entry = self.entries[self.last].as_ref()?;
        Some((&entry.request, &entry.value))
    }

    /// What is cached for `request`, made and cached now if it isn't there.
    #[inline]
    pub fn get_or_make<E>(&mut self, request: &K, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let entry = match self.find(request) {
            Some(entry) => entry,
            None => {
                self.insert(*request, make()?);
                self.last
            }
        };
        Ok(&self.entries[entry].as_ref().expect("found, or put there just now").value)
    }

    #[inline]
    fn find(&mut self, request: &K) -> Option<usize> {
        self.clock += 1;
        let is_it = |entry: &Option<Entry<K, T>>| entry.as_ref().is_some_and(|entry| entry.request == *request);
        if !is_it(&self.entries[self.last]) {
            let start = Self::set(request);
            self.last = start + self.entries[start..start + WAYS].iter().position(is_it)?;
        }
        let entry = self.entries[self.last].as_mut()?;
        entry.used = self.clock;
        Some(self.last)
    }

    /// Caches `value` for `request`. Returns what had to go for it: the request's own old value, or that of another.
    pub fn insert(&mut self, request: K, value: T) -> Option<(K, T)> {
        self.clock += 1;
        let start = Self::set(&request);
        let set = &mut self.entries[start..start + WAYS];
        let own = set.iter().position(|e| e.as_ref().is_some_and(|e| e.request == request));
        // A free entry was used at time 0, before any other.
        let oldest = || (0..WAYS).min_by_key(|way| set[*way].as_ref().map_or(0, |e| e.used)).unwrap_or(0);
        let way = own.unwrap_or_else(oldest);
        self.last = start + way;
        let old = set[way].replace(Entry { request, value, used: self.clock });
        old.map(|entry| (entry.request, entry.value))
    }

    /// Gives up what is cached for requests of which `keep` does not hold.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        for entry in &mut self.entries {
            if entry.as_ref().is_some_and(|entry| !keep(&entry.request)) {
                *entry = None;
            }
        }
    }

    /// Everything that is cached.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten().map(|e| &e.value)
    }

    /// Empties the cache and hands out what it held.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.entries.iter_mut().filter_map(Option::take).map(|e| e.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataType, Factor, Order, ReduceOp};

    fn request(count: u64) -> Request {
        Request {
            count,
            dtype: DataType::Bfloat16,
            op: ReduceOp::Sum,
            order: Order::Ring,
            period: None,
            registered: None,
        }
    }

    #[test]
    fn every_field_of_a_request_counts() {
        let mut cache = PlanCache::new();
        let variants = [
            request(1),
            request(2),
            Request { dtype: DataType::Float16, ..request(1) },
            Request { op: ReduceOp::Max, ..request(1) },
            Request { op: ReduceOp::PreMulSum(Factor::new(DataType::Bfloat16, 1)), ..request(1) },
            Request { op: ReduceOp::PreMulSum(Factor::new(DataType::Bfloat16, 2)), ..request(1) },
            Request { order: Order::Rank, ..request(1) },
            Request { period: Some(1), ..request(1) },
        ];
        for (i, r) in variants.iter().enumerate() {
            assert_eq!(cache.insert(*r, i), None);
        }
        for (i, r) in variants.iter().enumerate() {
            assert_eq!(cache.get(r), Some(&i));
            assert_eq!(cache.last(), Some((r, &i)));
        }
        assert_eq!(cache.get_or_make(&variants[2], || Err("made anew")), Ok(&2));
        let unseen = request(3);
        assert_eq!(cache.get_or_make(&unseen, || Err("can't be")), Err("can't be"));
        assert_eq!(cache.get_or_make(&unseen, || Ok::<_, ()>(8)), Ok(&8));
        assert_eq!(cache.get_or_make(&unseen, || Err("made anew")), Ok(&8));
        assert_eq!(cache.insert(variants[2], 9), Some((variants[2], 2)));
        assert_eq!(cache.get(&variants[2]), Some(&9));
        cache.retain(|request| *request != unseen);
        assert_eq!(cache.get(&unseen), None);
        assert_eq!(cache.get(&variants[2]), Some(&9));
        assert_eq!(cache.drain().count(), variants.len());
        assert_eq!(cache.values().count(), 0);
    }

    #[test]
    fn it_stays_bounded_hands_back_what_goes_and_keeps_what_is_used() {
        let mut cache = PlanCache::new();
        let mut gone = 0;
        cache.insert(request(0), 0);
        for count in 1..5000u64 {
            if let Some((request, value)) = cache.insert(request(count), count) {
                assert_eq!(request.count, value);
                assert_ne!(value, 0, "the entry in constant use was given up");
                gone += 1;
            }
            assert_eq!(cache.get(&request(0)), Some(&0));
        }
        let held = cache.values().count();
        assert!(held <= CAPACITY && held > CAPACITY / 2, "{held}");
        assert_eq!(gone, 5000 - held);
    }

    #[test]
    fn common_sizes_spread_over_the_sets() {
        let mut sets = std::collections::BTreeSet::new();
        for count in (0..40).map(|shift| 1u64 << shift).chain((1..=64).map(|tokens| tokens * 7168)) {
            sets.insert(PlanCache::<Request, ()>::set(&request(count)));
        }
        assert!(sets.len() > SETS / 2, "{}", sets.len());
    }
}
