//! How much may be done in a time, and by whom how much was.
//!
//! A *bucket* holds what may be done at once and fills up at a steady rate. It is kept as one number: the time at which it
//! will be full again. An append that is larger than the bucket passes when that is full, and is paid off afterwards.
//! Buckets are kept in a bounded table; a full one is as good as none, so those go first.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Parts of a table, each with a lock of its own.
const SHARDS: usize = 16;
/// Entries that are looked at to find one that can go.
const LOOKED_AT: usize = 8;
/// How often a part of a full table is looked through as a whole.
const SWEEP_NS: u64 = NS_PER_S;
const NS_PER_S: u64 = 1_000_000_000;

/// How much, in a second.
pub type Rate = u64;

/// What is counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rates {
    /// Requests in a second; `None` for as many as there are.
    pub requests_per_s: Option<Rate>,
    /// Bytes of bodies that change something, in a second.
    pub append_bytes_per_s: Option<Rate>,
}

impl Rates {
    /// Whether nothing is bounded.
    pub const fn is_unbounded(self) -> bool {
        self.requests_per_s.is_none() && self.append_bytes_per_s.is_none()
    }

    /// These, and where they say nothing the others.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            requests_per_s: if self.requests_per_s.is_some() {
                self.requests_per_s
            } else {
                other.requests_per_s
            },
            append_bytes_per_s: if self.append_bytes_per_s.is_some() {
                self.append_bytes_per_s
            } else {
                other.append_bytes_per_s
            },
        }
    }
}

/// The address that requests are counted by: of IPv6 the network, since one who has an address there has them all.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AddressKey {
    /// An IPv4 address.
    V4(u32),
    /// The first 64 bits of an IPv6 address.
    V6(u64),
}

impl From<IpAddr> for AddressKey {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6(u64::try_from(address.to_bits() >> 64).unwrap_or_default()),
        }
    }
}

/// When a bucket will be full again, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(u64);

impl Bucket {
    /// Takes what costs so much time to fill up again, if there is as much or the bucket is full. Otherwise says how long
    /// to wait.
    fn take(&mut self, now: u64, cost: u64, burst: u64) -> Result<(), u64> {
        let full_at = self.0.max(now);
        let missing = full_at - now;
        let too_much = missing.saturating_add(cost.min(burst)).saturating_sub(burst);
        if too_much > 0 {
            return Err(too_much);
        }
        self.0 = full_at.saturating_add(cost);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    requests: Bucket,
    bytes: Bucket,
}

impl Entry {
    fn full_at(&self) -> u64 {
        self.requests.0.max(self.bytes.0)
    }
}

#[derive(Debug)]
struct Shard<K> {
    entries: HashMap<K, Entry>,
    swept_at: u64,
}

/// Buckets by whoever they are of.
#[derive(Debug)]
pub struct Table<K> {
    shards: Vec<Mutex<Shard<K>>>,
    hasher: RandomState,
    shard_max: usize,
    burst_ns: u64,
    began: Instant,
}

impl<K: Copy + Eq + Hash> Table<K> {
    /// A table of at most about `entries_max`, whose buckets hold what comes in `burst`.
    pub fn new(entries_max: usize, burst: Duration) -> Self {
        let shard = || Mutex::new(Shard { entries: HashMap::new(), swept_at: 0 });
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            hasher: RandomState::new(),
            shard_max: entries_max.div_ceil(SHARDS).max(1),
            burst_ns: u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX / 4).max(NS_PER_S),
            began: Instant::now(),
        }
    }

    /// Takes requests and bytes from the bucket of `key`, or says how long to wait; then nothing is taken.
    pub fn take(&self, key: K, rates: Rates, requests: u64, bytes: u64) -> Result<(), Duration> {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.take_at(now, key, rates, requests, bytes).map_err(Duration::from_nanos)
    }

    fn take_at(&self, now: u64, key: K, rates: Rates, requests: u64, bytes: u64) -> Result<(), u64> {
        if rates.is_unbounded() {
            return Ok(());
        }
        let index = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or_default();
        let mut shard = self.shards[index].lock();
        let known = shard.entries.get(&key).copied();
        let mut entry = known.unwrap_or_default();
        if let (Some(rate), 1..) = (rates.requests_per_s, requests) {
            entry.requests.take(now, cost_ns(requests, rate), self.burst_ns)?;
        }
        if let (Some(rate), 1..) = (rates.append_bytes_per_s, bytes) {
            entry.bytes.take(now, cost_ns(bytes, rate), self.burst_ns)?;
        }
        if known.is_none() && shard.entries.len() >= self.shard_max {
            make_room(&mut shard, now, self.shard_max);
        }
        shard.entries.insert(key, entry);
        Ok(())
    }

    /// Takes bytes that have come in any case.
    pub fn owe(&self, key: K, rates: Rates, bytes: u64) {
        let Some(rate) = rates.append_bytes_per_s else { return };
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let index = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or_default();
        if let Some(entry) = self.shards[index].lock().entries.get_mut(&key) {
            entry.bytes.0 = entry.bytes.0.max(now).saturating_add(cost_ns(bytes, rate));
        }
    }

    /// How many are counted.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// Whether nobody is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How long it takes until so much may be done again.
fn cost_ns(amount: u64, rate: Rate) -> u64 {
    let ns = u128::from(amount) * u128::from(NS_PER_S) / u128::from(rate.max(1));
    // More than a century is for ever.
    u64::try_from(ns).unwrap_or(u64::MAX / 4)
}

/// Lets full buckets go, and if there are none the one that will soonest be, of a few.
fn make_room<K: Copy + Eq + Hash>(shard: &mut Shard<K>, now: u64, max: usize) {
    if now >= shard.swept_at.saturating_add(SWEEP_NS) {
        shard.swept_at = now;
        shard.entries.retain(|_, entry| entry.full_at() > now);
    }
    while shard.entries.len() >= max {
        let few = shard.entries.iter().take(LOOKED_AT);
        let Some(key) = few.min_by_key(|(_, entry)| entry.full_at()).map(|(key, _)| *key) else { return };
        shard.entries.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUESTS: Rates = Rates { requests_per_s: Some(10), append_bytes_per_s: None };
    const BYTES: Rates = Rates { requests_per_s: None, append_bytes_per_s: Some(1000) };

    #[test]
    fn what_is_saved_up_can_be_used_at_once_and_then_comes_steadily() {
        // Two keys may come to the same part, which must have room for both.
        let table = Table::new(2 * SHARDS, Duration::from_secs(2));
        for _ in 0..20 {
            assert_eq!(table.take_at(0, 1, REQUESTS, 1, 0), Ok(()));
        }
        assert_eq!(table.take_at(0, 1, REQUESTS, 1, 0), Err(NS_PER_S / 10));
        assert_eq!(table.take_at(0, 2, REQUESTS, 1, 0), Ok(()), "another one has a bucket of its own");
        assert_eq!(table.take_at(NS_PER_S / 10, 1, REQUESTS, 1, 0), Ok(()));
        assert!(table.take_at(NS_PER_S / 10, 1, REQUESTS, 1, 0).is_err());
    }

    #[test]
    fn an_append_larger_than_the_bucket_passes_once_that_is_full_and_is_paid_off() {
        let table = Table::new(16, Duration::from_secs(1));
        assert_eq!(table.take_at(0, 1, BYTES, 1, 5000), Ok(()));
        assert_eq!(table.take_at(0, 1, BYTES, 1, 1), Err(4 * NS_PER_S + NS_PER_S / 1000));
        assert_eq!(table.take_at(0, 1, BYTES, 1, 0), Ok(()), "what has no bytes takes none");
        assert_eq!(table.take_at(5 * NS_PER_S, 1, BYTES, 1, 1), Ok(()));
    }

    #[test]
    fn addresses_are_counted_by_what_one_caller_has() {
        let key = |text: &str| AddressKey::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
        assert_ne!(key("10.0.0.1"), key("10.0.0.2"));
    }

    proptest! {
        /// Whatever is asked for when, no more is given than was saved up and has come since; and whoever waits as long as
        /// told is given what it asked for.
        #[test]
        fn no_more_is_given_than_comes(
            steps in prop::collection::vec((0..300_000_000_u64, 1..2000_u64), 1..60),
            rate in 1..5000_u64, burst_s in 1..4_u64,
        ) {
            let rates = Rates { requests_per_s: None, append_bytes_per_s: Some(rate) };
            let table = Table::new(16, Duration::from_secs(burst_s));
            let (mut now, mut given, mut largest) = (0, 0, 0);
            for (pause, bytes) in steps {
                now += pause;
                match table.take_at(now, (), rates, 1, bytes) {
                    Ok(()) => {
                        given += bytes;
                        largest = largest.max(bytes);
                    }
                    Err(wait) => {
                        prop_assert!(table.take_at(now + wait - 1, (), rates, 1, bytes).is_err());
                        prop_assert_eq!(table.take_at(now + wait, (), rates, 1, bytes), Ok(()));
                        now += wait;
                        given += bytes;
                        largest = largest.max(bytes);
                    }
                }
                // A step rounds down by less than a nanosecond's worth, which is less than a byte in all.
                let comes = u128::from(rate) * u128::from(now) / u128::from(NS_PER_S);
                prop_assert!(u128::from(given) <= u128::from(rate * burst_s + largest) + comes + 1);
            }
        }

        /// The table never has more than its bound, and forgets nobody who is held back as long as there is room.
        #[test]
        fn the_table_is_bounded(keys in prop::collection::vec(any::<u64>(), 1..2000)) {
            let table = Table::new(64, Duration::from_secs(1));
            for (at, key) in keys.iter().enumerate() {
                let _ = table.take_at(at as u64 * 1000, *key, REQUESTS, 1, 0);
                prop_assert!(table.len() <= 64);
            }
        }
    }
}
