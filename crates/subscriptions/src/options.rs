//! What subscriptions are told when they start, and their bounds.

use std::time::Duration;

/// Subscriptions of one server.
pub const SUBSCRIPTIONS_MAX_DEFAULT: usize = 10_000;
/// Streams that all subscriptions together follow; one that two follow counts twice.
pub const LINKS_MAX_DEFAULT: usize = 2_000_000;
/// Webhooks under way at a time.
pub const DELIVERIES_MAX_DEFAULT: usize = 32;
/// How long a webhook's receiver may take to answer, if its lease is not shorter.
pub const WEBHOOK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// How often a new signing key takes over.
pub const KEY_ROTATION_DEFAULT: Duration = Duration::from_hours(30 * 24);
/// The least time that a signing key is used.
pub const KEY_ROTATION_MIN: Duration = Duration::from_hours(1);
/// Streams in one wake. Pending ones come first; what has no place comes with a later wake.
pub const WAKE_STREAMS_MAX: usize = 1_000;
/// Streams in one answer about a subscription.
pub const LISTED_STREAMS_MAX: usize = 10_000;
/// Bytes of a request's body.
pub const DOCUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of what a webhook's receiver answers.
pub const RESPONSE_BYTES_MAX: u64 = 64 * 1024;
/// Requests that wait for the thread of subscriptions.
pub const COMMANDS_MAX: usize = 1_024;
/// Requests that wait for one subscription.
pub const WAITING_MAX: usize = 64;
/// Streams that a new subscription looks at before others have their turn.
pub const LOOKS_MAX_DEFAULT: usize = 1_024;
/// Bytes of a subscription's history at which a snapshot replaces it, if that is at most half as long.
pub const HISTORY_BYTES_MIN: u64 = 64 * 1024;

/// How subscriptions are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// URL under which clients reach the server, without a slash at its end; `None` to take it from the `Host` header of
    /// the request that made the subscription.
    pub public_url: Option<String>,
    /// Most subscriptions.
    pub subscriptions_max: usize,
    /// Most links of streams to subscriptions.
    pub links_max: usize,
    /// Most streams that a subscription that is being made looks at, or writes into one record, before others have their
    /// turn.
    pub looks_max: usize,
    /// Most webhooks under way.
    pub deliveries_max: usize,
    /// Most time for a webhook.
    pub webhook_timeout: Duration,
    /// Whether webhooks may go to this machine, without TLS.
    pub webhook_loopback: bool,
    /// How often a new signing key takes over; at least [`KEY_ROTATION_MIN`].
    pub key_rotation: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            public_url: None,
            subscriptions_max: SUBSCRIPTIONS_MAX_DEFAULT,
            links_max: LINKS_MAX_DEFAULT,
            looks_max: LOOKS_MAX_DEFAULT,
            deliveries_max: DELIVERIES_MAX_DEFAULT,
            webhook_timeout: WEBHOOK_TIMEOUT_DEFAULT,
            webhook_loopback: false,
            key_rotation: KEY_ROTATION_DEFAULT,
        }
    }
}
