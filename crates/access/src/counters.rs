//! What was counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) unauthorized: AtomicU64,
    pub(crate) forbidden: AtomicU64,
    pub(crate) limited_by_address: AtomicU64,
    pub(crate) limited_by_caller: AtomicU64,
    pub(crate) leases_ended: AtomicU64,
    pub(crate) file_loads: AtomicU64,
    pub(crate) file_failures: AtomicU64,
    pub(crate) key_loads: AtomicU64,
    pub(crate) key_failures: AtomicU64,
}

impl Counters {
    pub(crate) fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A snapshot of all counters.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Requests refused for want of a valid token.
    pub unauthorized: u64,
    /// Requests refused to a caller that is known and may not.
    pub forbidden: u64,
    /// Requests refused because their address had too many.
    pub limited_by_address: u64,
    /// Requests refused because their caller had too many.
    pub limited_by_caller: u64,
    /// Responses and connections that were ended because what they rested on had ended.
    pub leases_ended: u64,
    /// Times the access file was taken over, the start included.
    pub file_loads: u64,
    /// Changes of the access file that were not taken over.
    pub file_failures: u64,
    /// Times keys of an issuer were taken over.
    pub key_loads: u64,
    /// Times they could not be read or fetched.
    pub key_failures: u64,
    /// Addresses that are counted now.
    pub addresses: u64,
    /// Callers that are counted now.
    pub callers: u64,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            unauthorized: of(&self.unauthorized),
            forbidden: of(&self.forbidden),
            limited_by_address: of(&self.limited_by_address),
            limited_by_caller: of(&self.limited_by_caller),
            leases_ended: of(&self.leases_ended),
            file_loads: of(&self.file_loads),
            file_failures: of(&self.file_failures),
            key_loads: of(&self.key_loads),
            key_failures: of(&self.key_failures),
            addresses: 0,
            callers: 0,
        }
    }
}
