//! When subscriptions were asked for last, in memory: those that nobody asks for give way first.

use std::collections::HashMap;

use alluvium_feed_protocol::Id;
use parking_lot::Mutex;

/// Times by subscription, in milliseconds since the Unix epoch.
#[derive(Debug, Default)]
pub(crate) struct Used(Mutex<HashMap<Id, u64>>);

impl Used {
    /// A subscription that is there was asked for. Where more than `count_max` are remembered, all are forgotten: then they
    /// go by when they were made until they are asked for again.
    pub(crate) fn note(&self, subscription: &Id, now_ms: u64, count_max: usize) {
        let mut times = self.0.lock();
        if let Some(time) = times.get_mut(subscription) {
            *time = now_ms;
            return;
        }
        if times.len() >= count_max {
            times.clear();
        }
        times.insert(subscription.clone(), now_ms);
    }

    /// When a subscription was asked for last; 0 if that isn't known.
    pub(crate) fn at(&self, subscription: &Id) -> u64 {
        self.0.lock().get(subscription).copied().unwrap_or(0)
    }

    pub(crate) fn forget(&self, subscription: &Id) {
        self.0.lock().remove(subscription);
    }
}
