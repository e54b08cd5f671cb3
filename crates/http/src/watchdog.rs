//! Closes connections that hold a slot without a request, with one timer per connection and none per request.
//!
//! A connection counts how many requests it has begun and notes whether one is under way. The watchdog looks
//! once per period: nothing under way and nothing begun since the last look means the peer sent no complete
//! head for at least one period, be it idle or trickling bytes.

use std::sync::atomic::{AtomicU32, Ordering};

/// What the watchdog knows of one connection.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    begun: AtomicU32,
    under_way: AtomicU32,
}

impl Activity {
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }
}
