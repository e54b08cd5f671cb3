//! The surfaces: what they hold for those who wait.

use alluvium_feeds::{Service, http::Surface};
use alluvium_metrics::Page;
use alluvium_streams::Streams;

use super::families as f;

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
    let standing = surface.standing();
    page.whole(&f::FEED_SOCKETS, &[], standing.sockets as u64);
    page.whole(&f::FEED_SOCKET_BYTES, &[], standing.socket_bytes as u64);
    page.whole(&f::FEED_WAITERS, &[], standing.waiters as u64);
}
