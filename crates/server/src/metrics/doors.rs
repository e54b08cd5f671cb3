//! The surfaces: what they hold for those who wait.

use std::time::Duration;

use alluvium_feeds::{Service, http::Surface};
use alluvium_metrics::Page;
use alluvium_streams::Streams;
use alluvium_subscriptions::Handle;

use super::families as f;
use crate::keep::Counted;

/// The streams' surface.
pub(crate) fn streams(page: &mut Page, streams: &Streams, waiters_max: usize) {
    let standing = streams.standing();
    page.whole(&f::WAITERS, &["long_poll"], standing.long_polls as u64);
    page.whole(&f::WAITERS, &["subscriber"], standing.subscribers as u64);
    page.whole(&f::WAITERS_MAX, &[], waiters_max as u64);
    page.whole(&f::WAITERS_REFUSED, &[], standing.waiters_refused as u64);
    page.whole(&f::BODY_BYTES_HELD, &[], standing.body_bytes as u64);
}

/// The feeds.
pub(crate) fn feeds(page: &mut Page, service: &Service, surface: &Surface) {
    let counted = service.counted();
    page.whole(&f::FEED_OPEN_SPACES, &[], counted.open_spaces);
    page.whole(&f::FEED_APPENDS, &[], counted.appends);
    page.whole(&f::FEED_BLOCKS, &[], counted.blocks);
    page.whole(&f::FEED_QUERIES, &[], counted.queries);
    page.whole(&f::FEED_BLOCKS_READ, &[], counted.blocks_read);
    page.whole(&f::FEED_REFUSED, &[], counted.refused);
    page.whole(&f::FEED_DUPLICATES, &[], counted.duplicates);
    page.whole(&f::FEED_CONFLICTS, &[], counted.conflicts);
    page.whole(&f::FEED_OVER_SOFT_LIMIT, &[], counted.over_soft_limit);
    page.whole(&f::FEED_DAMAGED, &[], counted.damaged);
    page.whole(&f::FEED_PAGES, &[], counted.pages);
    page.whole(&f::FEED_PRUNED, &[], counted.pruned);
    let standing = surface.standing();
    page.whole(&f::FEED_SOCKETS, &[], standing.sockets as u64);
    page.whole(&f::FEED_SOCKET_BYTES, &[], standing.socket_bytes as u64);
    page.whole(&f::FEED_WAITERS, &[], standing.waiters as u64);
}

/// The subscriptions.
pub(crate) fn subscriptions(page: &mut Page, handle: &Handle) {
    let counted = handle.counters();
    page.whole(&f::SUBSCRIPTIONS, &[], counted.subscriptions);
    page.whole(&f::SUBSCRIPTION_LINKS, &[], counted.links);
    page.whole(&f::SUBSCRIPTION_LINKS_REFUSED, &[], counted.links_refused);
    page.whole(&f::SUBSCRIPTION_LEASES, &[], counted.leases);
    page.whole(&f::SUBSCRIPTION_LEASES_EXPIRED, &[], counted.leases_expired);
    page.whole(&f::SUBSCRIPTION_WAKES, &[], counted.wakes);
    page.whole(&f::SUBSCRIPTION_REQUESTS, &["claim"], counted.claims);
    page.whole(&f::SUBSCRIPTION_REQUESTS, &["ack"], counted.acks);
    page.whole(&f::SUBSCRIPTION_REQUESTS, &["fenced"], counted.fenced);
    page.whole(&f::SUBSCRIPTION_WRITES_FAILED, &[], counted.writes_failed);
    page.whole(&f::WAKE_EVENTS, &["written"], counted.announced);
    page.whole(&f::WAKE_EVENTS, &["failed"], counted.announce_failed);
    page.whole(&f::WEBHOOKS, &["taken"], counted.delivered.saturating_sub(counted.done));
    page.whole(&f::WEBHOOKS, &["done"], counted.done);
    for (class, count) in counted.failed {
        page.whole(&f::WEBHOOKS, &[class], count);
    }
    page.whole(&f::WEBHOOK_RETRIES, &[], counted.retries);
    page.whole(&f::WEBHOOKS_IN_FLIGHT, &[], counted.in_flight);
    page.whole(&f::WEBHOOKS_QUEUED, &[], counted.queued);
}

/// Backups of the running server.
pub(crate) fn backups(page: &mut Page, counted: Counted) {
    page.whole(&f::BACKUPS, &["taken"], counted.taken);
    page.whole(&f::BACKUPS, &["failed"], counted.failed);
    page.fraction(&f::BACKUP_SECONDS, &[], Duration::from_millis(counted.last_took_ms).as_secs_f64());
    page.whole(&f::BACKUP_BYTES, &[], counted.last_bytes);
    page.whole(&f::BACKUP_TIME, &[], counted.last_ms / 1000);
}
