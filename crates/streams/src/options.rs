//! What the surface is told when it starts.

use std::{sync::Arc, time::Duration};

use alluvium_http::ResponseBudget;

/// How the surface behaves. See [`limits`](crate::limits) for the defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// URL under which clients reach the server, without a slash at its end; `None` to take it from the `Host` header.
    pub public_url: Option<String>,
    /// How long a long-poll waits.
    pub long_poll_timeout: Duration,
    /// About how long an SSE response lasts.
    pub sse_cycle: Duration,
    /// Most bytes of a request body.
    pub append_bytes_max: usize,
    /// Most stored bytes of a catch-up or long-poll response.
    pub read_bytes_max: u64,
    /// Most long-polls and SSE responses that wait at once.
    pub waiters_max: usize,
    /// Most bytes of partly received request bodies held at once.
    pub bodies_bytes_max: usize,
    /// Most time a request body may take; of a snapshot's body, most time that it may pause.
    pub body_timeout: Duration,
    /// Most bytes of a snapshot.
    pub snapshot_bytes_max: usize,
    /// Most bytes of messages and their part headers in one bootstrap, and one message more.
    pub bootstrap_bytes_max: u64,
    /// Whether shared caches may keep what a stream held before its floor moved.
    pub public_history: bool,
    /// What responses hold in memory; the same that the HTTP server is given.
    pub responses: Arc<ResponseBudget>,
    /// Who may cache responses with data.
    pub cache_visibility: CacheVisibility,
}

/// Who may cache a response that can be cached (PROTOCOL §10.1, §12.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CacheVisibility {
    /// Anyone on the way, such as a content delivery network.
    Public,
    /// Only the client that asked.
    Private,
}

impl CacheVisibility {
    /// The directive of `Cache-Control`.
    pub const fn directive(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Private => "private",
        }
    }
}
