//! Bounds on what a message may hold, each with its unit last in the name.
//!
//! The constants are hard: a decoder refuses what passes them whatever the configuration says. [`Limits`] are the
//! configurable ones within them; a server tells its own in `Welcome`.

use serde::{Deserialize, Serialize};

/// Longest space, feed, actor or subscription identifier, in characters.
pub const ID_CHARS_MAX: usize = 128;
/// Longest namespace, in characters.
pub const NAMESPACE_CHARS_MAX: usize = 64;
/// Longest request identifier, in bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 1024;
/// Largest number on the wire: 2^53 - 1, the largest that JavaScript holds exactly.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;
/// Most blocks of one append or one page.
pub const BLOCKS_HARD_MAX: usize = 1000;
/// Most feeds or namespaces named in one message.
pub const NAMES_HARD_MAX: usize = 1000;
/// Most feeds listed in one answer.
pub const LISTED_HARD_MAX: usize = 1000;
/// Most spaces described in one `Welcome`.
pub const SPACES_HARD_MAX: usize = 1000;
/// Largest data of one block. A row of a Durable Object ends at 2 MB.
pub const DATA_BYTES_HARD_MAX: usize = 1536 * 1024;
/// Deepest nesting of a message.
pub const NESTING_MAX: usize = 16;
/// Blocks of a page when the request doesn't say.
pub const PAGE_BLOCKS_DEFAULT: usize = 50;
/// Bytes of a page when the request doesn't say.
pub const PAGE_BYTES_DEFAULT: usize = 512 * 1024;
/// Feeds named in one hint; more are only counted.
pub const HINT_FEEDS_MAX: usize = 32;
/// Bytes that a block counts beside its data: identifiers, numbers and the names of fields.
pub const BLOCK_OVERHEAD_BYTES: usize = 256;

/// Largest WebSocket message, in bytes, if a server is not told otherwise; as all of these.
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;
/// Largest data of one block, in bytes.
pub const DATA_BYTES_MAX: usize = 256 * 1024;
/// Most blocks of one append.
pub const APPEND_BLOCKS_MAX: usize = 500;
/// Most bytes of one append.
pub const APPEND_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most blocks of one page.
pub const PAGE_BLOCKS_MAX: usize = 1000;
/// Most bytes of one page.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Most feeds named in one subscribe message.
pub const SUBSCRIBE_FEEDS_MAX: usize = 1000;
/// Most subscriptions of one principal in one space.
pub const SUBSCRIPTIONS_MAX: usize = 64;
/// Most requests of one socket without an answer.
pub const OPEN_REQUESTS_MAX: usize = 32;
/// Most feeds of one space.
pub const FEEDS_MAX: usize = 10_000;
/// Most blocks of one feed.
pub const FEED_BLOCKS_MAX: u64 = 1_000_000;
/// Feeds of one space that are good for it.
pub const FEEDS_SOFT_MAX: usize = 1000;
/// Blocks of one feed that are good for it.
pub const FEED_BLOCKS_SOFT_MAX: u64 = 10_000;

/// What a server accepts and gives.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Largest WebSocket message, in bytes.
    pub frame_bytes_max: usize,
    /// Largest data of one block, in bytes.
    pub data_bytes_max: usize,
    /// Most blocks of one append.
    pub append_blocks_max: usize,
    /// Most bytes of one append.
    pub append_bytes_max: usize,
    /// Most blocks of one page.
    pub page_blocks_max: usize,
    /// Most bytes of one page.
    pub page_bytes_max: usize,
    /// Most feeds named in one subscribe message; `add` extends a subscription beyond it.
    pub subscribe_feeds_max: usize,
    /// Most subscriptions of one principal in one space.
    pub subscriptions_max: usize,
    /// Most requests of one socket without an answer.
    pub open_requests_max: usize,
    /// Most feeds of one space.
    pub feeds_max: usize,
    /// Most blocks of one feed.
    pub feed_blocks_max: u64,
    /// Feeds of one space from which on an append that makes one more is warned.
    pub feeds_soft_max: usize,
    /// Blocks of one feed from which on an append to it is warned.
    pub feed_blocks_soft_max: u64,
}

impl Limits {
    /// These limits, each within what a decoder takes at all.
    #[must_use]
    pub fn within_hard(self) -> Self {
        Self {
            data_bytes_max: self.data_bytes_max.min(DATA_BYTES_HARD_MAX),
            append_blocks_max: self.append_blocks_max.clamp(1, BLOCKS_HARD_MAX),
            page_blocks_max: self.page_blocks_max.clamp(1, BLOCKS_HARD_MAX),
            subscribe_feeds_max: self.subscribe_feeds_max.clamp(1, NAMES_HARD_MAX),
            open_requests_max: self.open_requests_max.max(1),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: FRAME_BYTES_MAX,
            data_bytes_max: DATA_BYTES_MAX,
            append_blocks_max: APPEND_BLOCKS_MAX,
            append_bytes_max: APPEND_BYTES_MAX,
            page_blocks_max: PAGE_BLOCKS_MAX,
            page_bytes_max: PAGE_BYTES_MAX,
            subscribe_feeds_max: SUBSCRIBE_FEEDS_MAX,
            subscriptions_max: SUBSCRIPTIONS_MAX,
            open_requests_max: OPEN_REQUESTS_MAX,
            feeds_max: FEEDS_MAX,
            feed_blocks_max: FEED_BLOCKS_MAX,
            feeds_soft_max: FEEDS_SOFT_MAX,
            feed_blocks_soft_max: FEED_BLOCKS_SOFT_MAX,
        }
    }
}
